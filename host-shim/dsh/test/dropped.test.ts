/** Plugins that are dropped into a folder while calls run and wait, as the harness sees them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BUDGET, Folder, inFolder, said, told } from './dropped-support.ts';
import { limit, settled, until } from './support.ts';

test('what is dropped in decides with the limiter, about the next call, and is told who runs', async () => {
  const folder = new Folder();
  const world = await inFolder(folder, { config: limit(3) });
  world.read('a');
  await until(() => world.backend.open.length === 1);
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  await until(() => said(world, 'the plugin budget is at work'));
  world.read('b');
  await settled();
  assert.deepEqual(world.backend.sessions, ['a'], 'the one that runs has used the budget up');
  assert.deepEqual(told(world).plugins.map(({ name, live, waiting }) => [name, live, waiting]), [['budget', 1, 1]]);
  assert.equal(world.waiting, 0, 'the limiter has not been asked');
});

test('where it is removed those it kept waiting go on, and the limit holds', async () => {
  const folder = new Folder();
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(2) });
  for (const session of ['a', 'b', 'c']) world.read(session);
  await settled();
  assert.deepEqual(world.backend.sessions, ['a'], 'what lay there at the start has a say in the first calls');
  folder.remove('budget.wasm');
  await until(() => said(world, 'the plugin budget is gone'));
  assert.deepEqual(world.backend.sessions, ['a', 'b']);
  assert.equal(world.waiting, 1);
  world.backend.of('a').end();
  await until(() => world.backend.sessions.includes('c'));
  assert.equal(world.backend.peakSessions, 2);
});

test('its settings are its file, and hold for those who wait', async () => {
  const folder = new Folder();
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(9) });
  for (const session of ['a', 'b', 'c']) world.read(session);
  await settled();
  folder.settings('budget', { config: { perMinute: 2, maxWaitMs: 600_000 } });
  await until(() => world.backend.open.length === 2);
  world.gate.advance(1);
  await settled();
  assert.deepEqual(world.backend.sessions, ['a', 'b']);
});

test('settings that are taken away are not in force any more', async () => {
  const folder = new Folder();
  folder.settings('budget', { config: { perMinute: 0, maxWaitMs: 600_000 } });
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(9) });
  world.read('a');
  await settled();
  assert.deepEqual(world.backend.sessions, []);
  folder.remove('budget.json');
  await until(() => told(world).plugins[0]?.waiting === 0 || world.stderr.filter((line) => line.includes('budget is at work')).length === 2);
  world.gate.advance(1);
  await until(() => world.backend.open.length === 1);
});

test('a limiter in the folder takes the packaged one\'s place with all its calls, and gives it back', async () => {
  const folder = new Folder();
  const world = await inFolder(folder, { config: limit(1) });
  const packaged = told(world).component;
  for (const session of ['a', 'b', 'c']) world.read(session);
  await settled();
  folder.drop('gen-limit', 'gen-limit-chaos');
  await until(() => said(world, 'the plugin gen-limit is at work'));
  assert.notEqual(told(world).component, packaged);
  assert.deepEqual([world.occupancy, world.waiting], [1, 2]);
  world.backend.of('a').end();
  await until(() => world.backend.sessions.includes('b'));
  folder.remove('gen-limit.wasm');
  await until(() => said(world, 'the packaged component is back'));
  assert.equal(told(world).component, packaged);
  assert.deepEqual([world.occupancy, world.waiting], [1, 1]);
  world.backend.of('b').end();
  await until(() => world.backend.sessions.includes('c'));
  assert.equal(world.backend.peakSessions, 1);
});

test('a file that cannot be used is named once with what is wrong, in stats too, and harms nobody', async () => {
  const folder = new Folder();
  folder.write('broken.wasm', 'not wasm at all');
  folder.settings('budget', { config: { perMinute: 'ten' } });
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(1) });
  world.read('a');
  await until(() => world.backend.open.length === 1);
  assert.equal(world.stderr.filter((line) => line.includes('broken.wasm')).length, 1);
  const refused = told(world).refused;
  assert.deepEqual(refused.map(({ file }) => file).toSorted(), ['broken.wasm', 'budget.json']);
  assert.match(refused.find(({ file }) => file === 'budget.json')?.reason ?? '', /perMinute: expected a whole number from 0, found "ten".*calls pass without it/);
  assert.ok(!said(world, 'budget is at work'), 'it is not');
  folder.remove('broken.wasm');
  folder.settings('budget', BUDGET);
  await until(() => told(world).refused.length === 0);
  world.read('b');
  await settled();
  assert.deepEqual(world.backend.sessions, ['a']);
});

test('the limits of an instance come from its file', async () => {
  const folder = new Folder();
  folder.drop('budget', 'budget-guard');
  folder.settings('budget', { limits: { memoryBytes: 65_536 } });
  const world = await inFolder(folder, { config: limit(1) });
  await until(() => told(world).refused.length === 1);
  assert.match(told(world).refused[0]?.reason ?? '', /memory/);
  folder.settings('budget', { limits: { memoryBytes: 16_777_216 } });
  await until(() => told(world).plugins.length === 1);
});

test('one that fails again and again is given up by its policy, and the limiter goes on', async () => {
  const folder = new Folder();
  folder.settings('hostile', { config: { do: 'trap', in: 'start', maxRestarts: 1 } });
  folder.drop('hostile', 'hostile');
  const world = await inFolder(folder, { config: limit(1) });
  for (const session of ['a', 'b', 'c']) world.read(session);
  await settled();
  assert.deepEqual(world.backend.sessions, ['a']);
  assert.equal(world.waiting, 2);
  assert.ok(said(world, 'the plugin hostile has FAILED'), world.stderr.join(''));
  assert.equal(told(world).plugins[0]?.state, 'failed-open');
});

test('settings without their plugin are told of, until they go', async () => {
  const folder = new Folder();
  folder.settings('budgte', BUDGET);
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(9) });
  await until(() => told(world).refused.length === 1);
  assert.equal(told(world).refused[0]?.file, 'budgte.json');
  folder.remove('budget.wasm');
  await until(() => told(world).refused.length === 2);
  folder.remove('budget.json');
  folder.remove('budgte.json');
  await until(() => told(world).refused.length === 0);
});

test('what was at work before stays where its successor cannot be put to work, and that is said until it can', async () => {
  const folder = new Folder();
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(9) });
  world.read('a');
  await settled();
  folder.settings('budget', { config: { perMinute: 'ten' } });
  await until(() => said(world, 'what was at work before stays'));
  world.read('b');
  await settled();
  assert.deepEqual(world.backend.sessions, ['a']);
  assert.deepEqual(told(world).refused.map(({ file }) => file), ['budget.json']);
  folder.settings('budget', { cofnig: {} });
  await until(() => told(world).refused[0]?.reason.includes('cofnig') === true);
  assert.equal(told(world).refused.length, 1, 'of what is not there any more nothing is told');
  folder.settings('budget', { config: { perMinute: 2, maxWaitMs: 600_000 } });
  await until(() => world.backend.open.length === 2);
  assert.deepEqual(told(world).refused, []);
});
