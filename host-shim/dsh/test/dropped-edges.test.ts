/** The plugin folder where rows come and go, and where it is not as it should be. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { load } from '../src/load.ts';
import { BUDGET, Folder, inFolder, said, told } from './dropped-support.ts';
import { PARTS, limit, settled, until, type Reading } from './support.ts';
import { Tenancy } from './tenants-support.ts';

function nameOf(task: string): string {
  try {
    return readFileSync(`/proc/self/task/${task}/comm`, 'utf8').trim();
  } catch {
    return 'gone meanwhile';
  }
}

/** The threads of this process that watch a folder. */
function watchers(): number {
  const tasks = readdirSync('/proc/self/task');
  return tasks.filter((task) => nameOf(task) === 'gen-limit-watch').length;
}

test('a row that goes while it loads leaves no folder watched', async () => {
  const folder = new Folder();
  const component = join(folder.path, '..', 'gen-limit.wasm');
  copyFileSync(PARTS.component, component);
  const world = await inFolder(folder, { config: limit(1), parts: { component } });
  await until(() => watchers() === 1);
  await world.remove();
  await until(() => watchers() === 0);
  // It has to be compiled anew, which takes longer than to remove the row.
  utimesSync(component, 1, 1);
  const { XDG_CACHE_HOME: cache } = process.env;
  process.env['XDG_CACHE_HOME'] = join(folder.path, '..', 'cache');
  const id = 'second';
  await world.ctx.loader.create({ id, name: 'cordis:gen-limit', config: limit(1) } as never);
  await world.ctx.loader.remove(id);
  await load({ ...PARTS, component }, () => undefined);
  // A thread has its name a moment after it is there.
  if (cache === undefined) delete process.env['XDG_CACHE_HOME'];
  else process.env['XDG_CACHE_HOME'] = cache;
  // A thread has its name a moment after it is there.
  for (let turn = 0; turn < 100; turn += 1) await settled();
  assert.equal(watchers(), 0);
});

test('all that lies there at the start has a say in the first call', async () => {
  const folder = new Folder();
  folder.settings('hostile', { config: { calls: 'deny' } });
  folder.drop('hostile', 'hostile');
  folder.settings('aa', { config: { perMinute: 9, maxWaitMs: 600_000 } });
  folder.drop('aa', 'budget-guard');
  for (const file of readdirSync(folder.path)) utimesSync(join(folder.path, file), 1, 1);
  const world = await inFolder(folder, { config: limit(1) });
  assert.deepEqual(told(world).plugins.map(({ name }) => name), ['aa', 'hostile']);
});

test('what does not matter in the folder delays no start', async () => {
  const folder = new Folder();
  writeFileSync(join(folder.path, '.draft.wasm'), 'x');
  const world = await inFolder(folder, { config: limit(1) });
  assert.deepEqual(world.stderr.filter((line) => line.includes('is not loaded after')), []);
});

test('a folder that cannot be read, or is none, is told of', async () => {
  const folder = new Folder();
  rmSync(folder.path, { recursive: true });
  writeFileSync(folder.path, 'a file');
  const world = await inFolder(folder, { config: limit(1) });
  await until(() => said(world, folder.path));
  world.read('a');
  await until(() => world.backend.open.length === 1);
});

test('settings of the packaged one that go are no component that goes', async () => {
  const folder = new Folder();
  folder.settings('gen-limit', { limits: { memoryBytes: 33_554_432 } });
  const world = await inFolder(folder, { config: limit(1) });
  await until(() => said(world, 'at work: other limits'));
  folder.write('gen-limit.json', '{"limits": {"memoryBytes": "x"}}');
  await until(() => told(world).refused.length === 1);
  folder.remove('gen-limit.json');
  await until(() => told(world).refused.length === 0);
  assert.equal(said(world, 'is back'), false, world.stderr.join(''));
  assert.equal(said(world, 'is gone'), false, world.stderr.join(''));
});

test('a broken limiter changes nothing, a right one after it is at work, and the packaged one is back', async () => {
  const folder = new Folder();
  const world = await inFolder(folder, { config: limit(1) });
  const { component } = told(world);
  for (const session of ['a', 'b']) world.read(session);
  folder.write('gen-limit.wasm', 'broken');
  await until(() => told(world).refused.length === 1);
  assert.equal(told(world).component, component);
  folder.drop('gen-limit', 'gen-limit-chaos');
  await until(() => told(world).component !== component);
  assert.equal(told(world).refused.length, 0);
  folder.drop('gen-limit', 'budget-guard');
  await until(() => told(world).refused.length === 1 || said(world, 'FAILED'));
  assert.deepEqual([world.occupancy, world.waiting], [1, 1], world.stderr.join(''));
  folder.remove('gen-limit.wasm');
  await until(() => told(world).component === component);
  assert.equal(told(world).refused.length, 0);
  assert.deepEqual([world.occupancy, world.waiting], [1, 1]);
  world.backend.of('a').end();
  await until(() => world.backend.sessions.includes('b'));
});

test('a limiter in the folder judges the configuration, also one that the packaged one refuses', async () => {
  const folder = new Folder();
  folder.drop('gen-limit', 'gen-limit-chaos');
  const config = limit(1, { chaos: 'flood:0' });
  const world = await inFolder(folder, { config });
  assert.deepEqual(world.stats.host.problems, []);
  assert.equal(world.stderr.some((line) => line.includes('chaos: ')), false, world.stderr.join(''));
  // The packaged one refuses it, so it does not come back, and nobody says that it does.
  folder.remove('gen-limit.wasm');
  await until(() => said(world, 'is not put to work'));
  assert.equal(said(world, 'is back'), false, world.stderr.join(''));
});

test('a limiter that comes takes the configuration that the one before refused', async () => {
  const folder = new Folder();
  const world = await inFolder(folder, { config: limit(1) });
  await world.edit(limit(2, { chaos: 'flood:0' }));
  assert.equal(world.stats.scopes[0]?.max, 1);
  folder.drop('gen-limit', 'gen-limit-chaos');
  await until(() => said(world, 'the plugin gen-limit is at work'));
  assert.equal(world.stats.scopes[0]?.max, 2, world.stderr.join(''));
  assert.deepEqual(world.stats.host.problems, []);
});

test('the addon\'s failure is told once', async () => {
  const folder = new Folder();
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(1) });
  world.read('a');
  world.read('b');
  await settled();
  world.gate.tell((limiter) => (limiter as never as { panic(): number }).panic());
  await settled();
  assert.equal(world.stderr.filter((line) => line.includes('the addon failed')).length, 1, world.stderr.join(''));
  assert.equal(world.backend.open.length, 2);
  await world.restart();
  await until(() => world.gate.limiter !== undefined);
  await settled();
  assert.deepEqual(told(world).plugins.map(({ name }) => name), ['budget']);
  folder.remove('budget.wasm');
  await until(() => told(world).plugins.length === 0);
  for (const session of ['c', 'd']) world.read(session);
  await settled();
  assert.equal(world.backend.open.length, 3);
});

test('a last row that goes and a first that comes have the folder as it is by then', async () => {
  const folder = new Folder();
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(9) });
  for (const session of ['a', 'b']) world.read(session);
  await settled();
  assert.deepEqual(world.backend.sessions, ['a']);
  await world.disable();
  await until(() => world.backend.open.length === 2);
  folder.settings('budget', { config: { perMinute: 0, maxWaitMs: 600_000 } });
  await world.ctx.loader.update('gen-limit', { disabled: false } as never);
  await until(() => world.gate.limiter !== undefined);
  await until(() => told(world).plugins.length === 1);
  world.read('c');
  await settled();
  assert.equal(world.backend.open.length, 2);
  await until(() => watchers() === 1);
  await world.shutDown();
  await settled();
  assert.equal(world.backend.calls.length, 2, 'who waited for a plugin reaches no backend at shutdown');
  await until(() => watchers() === 0);
});

test('a burst of drops, settings, removals, restarts and calls loses nobody', async () => {
  const folder = new Folder();
  const world = await inFolder(folder, { config: limit(2) });
  const readings: Reading[] = [];
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  world.backend.onCall = (call) => void setTimeout(() => call.end(), 15);
  for (let n = 0; n < 60; n += 1) {
    const name = ['a', 'b', 'c', 'gen-limit'][n % 4] as string;
    if (n % 3 === 0) folder.drop(name, name === 'gen-limit' ? 'gen-limit-chaos' : n % 2 === 0 ? 'budget-guard' : 'hostile');
    else if (n % 3 === 1 && name !== 'gen-limit') folder.settings(name, { config: n % 2 === 0 ? { perMinute: 600, maxWaitMs: 600_000 } : { calls: 'wait' } });
    else try { folder.remove(`${name}.wasm`); } catch { /* was not there */ }
    for (const session of ['x', 'y', 'z']) {
      const reading = world.read(`${session}${n}`);
      if (n % 5 === 0 && session === 'y') reading.controller.abort(new Error('given up'));
      else readings.push(reading);
    }
    if (n % 10 === 4) await world.restart();
    if (n % 10 === 9) await world.edit(limit(2 + (n % 3)));
    await pause(30);
  }
  for (const file of readdirSync(folder.path)) rmSync(join(folder.path, file));
  await until(() => told(world).plugins.length === 0);
  await until(() => readings.every(({ ended }) => ended));
  assert.equal(world.occupancy, 0);
  assert.equal(world.waiting, 0);
  assert.ok(world.backend.peakSessions <= 4, `${world.backend.peakSessions}`);
  assert.deepEqual(world.stderr.filter((line) => /addon failed|FAILED|panic/u.test(line)), []);
});

test('a process that has nothing but a call that waits for what lies there ends with that call', async () => {
  const folder = new Folder();
  folder.settings('hostile', { config: { calls: 'deny', n: 3 } });
  folder.drop('hostile', 'hostile');
  const script = `
    const { World, limit } = await import(${JSON.stringify(new URL('support.ts', import.meta.url).href)});
    const world = new World();
    world.backend.onCall = (call) => call.end();
    await world.start({ config: limit(1), parts: { plugins: ${JSON.stringify(folder.path)} } });
    const reading = world.read('a');
    await reading.done;
    process.stdout.write(JSON.stringify(reading.chunks.at(-1)));
  `;
  const env = { ...process.env, XDG_CACHE_HOME: join(folder.path, '..', 'cache') };
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { env });
  assert.match(stdout, /"type":"finish"/u);
});

test('settings that could not be taken are told not to be in force', async () => {
  const folder = new Folder();
  folder.settings('budget', BUDGET);
  folder.drop('budget', 'budget-guard');
  const world = await inFolder(folder, { config: limit(1) });
  const heard = async (): Promise<unknown> => {
    const ask = { id: 1, plugin: 'budget', kind: 'read-settings' as const };
    return new Promise((resolve) => {
      world.gate.tell = (operation) => void operation({ answerSettings: (_: number, section: unknown) => resolve(section) } as never);
      world.gate.onAnswers({ takeAsks: () => [ask], takeResponses: () => [] } as never);
    }).finally(() => Reflect.deleteProperty(world.gate, 'tell'));
  };
  assert.equal((await heard() as { inForce: boolean }).inForce, true);
  folder.settings('budget', { config: { perMinute: 'ten' } });
  await until(() => said(world, 'is not put to work'));
  assert.equal((await heard() as { inForce: boolean }).inForce, false);
});

test('rows that share seats and plugins go on when one of them fails, goes or comes, and none spins', async () => {
  const folder = new Folder();
  folder.settings('budget', { config: { perMinute: 900, maxWaitMs: 600_000 } });
  folder.drop('budget', 'budget-guard');
  const ceilings = [{ provider: 'box', model: '*', max: 2 }];
  const world = await Tenancy.with({}, { config: limit(9, { ceilings }), parts: { plugins: folder.path } });
  const tenant = { ...limit(9), tenant: { session: 's', name: 'ä/ü?#%' } };
  let second = await world.row('second', tenant);
  for (const session of ['a', 's', 'b']) world.read(session);
  await settled();
  assert.deepEqual(world.backend.sessions, ['a', 's']);
  folder.drop('gen-limit', 'gen-limit-chaos');
  await until(() => world.stderr.some((line) => line.includes('the plugin gen-limit is at work')));
  assert.deepEqual(world.backend.sessions, ['a', 's']);
  second.gate.tell((limiter) => (limiter as never as { panic(): number }).panic());
  await settled();
  assert.deepEqual(world.backend.sessions.toSorted(), ['a', 'b', 's'], 'its seat is another\'s');
  await world.editRow('second', { ...tenant, maxQueued: 9 });
  await until(() => second.gate.limiter !== undefined);
  for (const session of ['s', 'c']) world.read(session);
  await settled();
  assert.deepEqual(world.backend.sessions.toSorted(), ['a', 'b', 's']);
  await world.removeRow('second');
  await settled();
  second = await world.row('second', tenant);
  folder.remove('gen-limit.wasm');
  folder.remove('budget.wasm');
  await until(() => world.stderr.some((line) => line.includes('the packaged component is back')));
  for (const call of world.backend.open) call.end();
  await until(() => world.backend.open.length === 1 && world.backend.sessions[0] === 'c');
  let turns = 0;
  const { collect } = second.gate;
  second.gate.collect = function count() {
    turns += 1;
    collect.call(this);
  };
  await settled();
  await settled();
  assert.ok(turns < 3, `${turns}`);
});
