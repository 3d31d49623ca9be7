/** What goes wrong: parts that are missing or foreign, a component that traps, loops or eats memory, a slow start. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type * as Addon from '../../node/index.d.ts';
import { load } from '../src/load.ts';
import { PARTS, World, fail, limit, settled, temporary, until } from './support.ts';

const folder = temporary();
const CHAOS = { component: PARTS.component.replace('gen-limit.wasm', 'gen-limit-chaos.wasm') };

function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

function pipe(name: string): string {
  const path = join(folder, name);
  execFileSync('mkfifo', [path]);
  return path;
}

interface Load {
  /** Goes on, and becomes what the real one does. */
  readonly win: () => void;
  readonly lose: () => void;
}
let loads: Load[] = [];

/** The addon, with loads that end when a test says so. */
function slowAddon(): string {
  loads = [];
  const real = createRequire(import.meta.url)(PARTS.addon) as typeof Addon;
  const begin = (path: string): Promise<unknown> => new Promise((resolve, reject) => {
    loads.push({ win: () => resolve(real.Component.load(path)), lose: () => reject(new Error('not to be loaded')) });
  });
  Object.assign(globalThis, { slowAddon: { ...real, Component: { load: begin } } });
  return file('slow.cjs', 'module.exports = globalThis.slowAddon;');
}

const whole = readFileSync(PARTS.component);
const code = readFileSync(PARTS.component.replace('.wasm', '.cwasm'));

suite('parts that cannot be used', () => {
  const PARTS_WRONG: Record<string, [parts: Partial<typeof PARTS>, told: RegExp]> = {
    'a missing component': [{ component: join(folder, 'nowhere.wasm') }, /nowhere\.wasm.*cannot be read.*expected a component of package dsh:plugin/u],
    'a truncated component': [{ component: file('half.wasm', whole.subarray(0, whole.length / 2)) }, /half\.wasm.*not a valid component.*truncated/u],
    'an empty component': [{ component: file('empty.wasm', '') }, /empty\.wasm.*not WebAssembly/u],
    'a foreign file for a component': [{ component: file('page.wasm', '<!doctype html>') }, /page\.wasm.*not WebAssembly.*<!doctyp.*expected/u],
    'a core module for a component': [{ component: file('core.wasm', Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)) }, /core\.wasm.*core module, expected a component/u],
    'a pipe for a component': [{ component: pipe('pipe.wasm') }, /pipe\.wasm.*expected a file.*install/u],
    'a pipe for an addon': [{ addon: pipe('pipe.node') }, /pipe\.node.*expected a file.*install/u],
    'a missing addon': [{ addon: join(folder, 'nowhere.node') }, /nowhere\.node.*expected the native addon for [\w-]+ there.*install/u],
    'a foreign file for an addon': [{ addon: file('page.node', '<!doctype html>') }, /page\.node.*expected the native addon.*install/u],
    'another module for an addon': [{ addon: file('other.cjs', 'module.exports = {}') }, /other\.cjs.*expected the addon of gen-limit.*install/u],
    'an addon of another version': [
      { addon: file('old.cjs', 'module.exports = { Limiter: class {}, Component: class {}, version: () => "0.0.9" }') },
      /old\.cjs.*expected the addon of version 0\.1\.0, found 0\.0\.9/u,
    ],
  };
  for (const [what, [parts, told]] of Object.entries(PARTS_WRONG)) {
    test(`${what} is named, the harness starts, and onFailure decides`, async () => {
      for (const onFailure of ['open', 'closed', 'Closed']) {
        const world = await World.make({ config: limit(1, { onFailure }), parts });
        assert.match(world.stderr.join(''), told);
        world.backend.onCall = (call) => call.end();
        const { chunks, done } = world.read('a');
        assert.equal(await done, undefined);
        const last = chunks.at(-1);
        assert(last?.type === 'finish');
        if (onFailure === 'closed') {
          assert(last.reason.kind === 'error');
          assert.equal(last.reason.failure.code, 'GEN_LIMITER_UNAVAILABLE');
          assert.deepEqual(world.let, []);
        } else {
          assert.equal(last.reason.kind, 'stop');
        }
      }
    });
  }

  test('onFailure is taken live also without a component', async () => {
    const world = await World.make({ config: limit(1), parts: { component: join(folder, 'nowhere.wasm') } });
    await world.edit(limit(1, { onFailure: 'closed' }));
    await world.read('a').done;
    assert.deepEqual(world.let, []);
  });
});

suite('compiled code that cannot be used', () => {
  const WRONG: Record<string, [code: () => unknown, told: RegExp]> = {
    missing: [() => undefined, /missing\.cwasm: cannot be read.*works without this file.*install/u],
    changed: [() => file('changed.cwasm', code.with(100_000, 255 - (code[100_000] ?? 0))), /changed\.cwasm: has the sha256 .*expected .*install/u],
    'a pipe': [() => pipe('a pipe.cwasm'), /a pipe\.cwasm: .*expected a file.*install/u],
  };
  for (const [what, [put, told]] of Object.entries(WRONG)) {
    test(`that is ${what} is named, once, and the limit holds`, async () => {
      put();
      const component = file(`${what}.wasm`, whole);
      for (const times of [1, 0]) {
        const world = await World.make({ config: limit(1), parts: { component } });
        assert.equal(world.stderr.filter((line) => told.test(line)).length, times);
        world.read('a');
        world.read('b');
        await settled();
        assert.deepEqual(world.let, ['a']);
        await world.end();
      }
    });
  }
});

suite('an addon that fails', () => {
  for (const onFailure of ['open', 'closed']) {
    test(`after a panic onFailure decides for all, also for those who wait: ${onFailure}`, async () => {
      const world = await World.make({ config: limit(1, { onFailure }) });
      const readings = ['a', 'b', 'c'].map((session) => world.read(session));
      await settled();
      const { limiter } = world.gate;
      assert.throws(() => (limiter as unknown as { panic(): void }).panic(), { code: 'GEN_LIMIT_PANIC' });
      readings.push(world.read('d'));
      await settled();
      assert.deepEqual(world.let, onFailure === 'open' ? ['a', 'd', 'b', 'c'] : ['a']);
      assert.match(world.stderr.join(''), /GEN_LIMIT_PANIC/u);
      for (const call of world.backend.open) call.end();
      assert.deepEqual(await Promise.all(readings.map(({ done }) => done)), Array(4).fill(undefined));
    });
  }

  for (const [what, happen] of Object.entries({
    restart: (world: World) => world.restart(),
    edit: (world: World) => world.edit(limit(1, { maxQueued: 9 })),
  })) {
    test(`after the parts have been put right the next ${what} limits again`, async () => {
      const component = file(`later-${what}.wasm`, 'not yet');
      const world = await World.make({ config: limit(1), parts: { component } });
      assert.equal(world.gate.failed, true);
      writeFileSync(component, whole);
      await happen(world);
      await until(() => !world.gate.failed);
      for (const session of ['a', 'b']) world.read(session);
      await settled();
      assert.deepEqual(world.let, ['a']);
    });
  }

  test('a load that fails late harms no component that is at work', async () => {
    const component = file('raced.wasm', 'not yet');
    const addon = slowAddon();
    const world = new World();
    const started = world.start({ config: limit(1), parts: { addon, component } });
    await until(() => loads.length === 1);
    loads[0]?.lose();
    await started;
    assert.equal(world.gate.failed, true);
    // Of two that go on at once the second comes first.
    for (const n of [1, 2]) {
      utimesSync(component, n, n);
      await world.edit(limit(1, { maxQueued: n }));
    }
    writeFileSync(component, whole);
    loads[2]?.win();
    await until(() => !world.gate.failed);
    world.stderr.length = 0;
    loads[1]?.lose();
    await settled();
    assert.equal(world.gate.failed, false);
    assert.deepEqual(world.stderr, []);
    for (const session of ['a', 'b']) world.read(session);
    await settled();
    assert.deepEqual(world.let, ['a']);
  });

  test('a place to report to that fails loses no seat and no timer', async () => {
    for (const fault of ['stderr', 'logger'] as const) {
      const world = await World.make({ config: limit(1, { queueTimeoutMs: 0 }) });
      const off = world.ctx.on('llm/stream', (options, next) =>
        options.sessionId === ('outer' as never) ? (async function* () { yield* world.stream('inner'); })() : next());
      const { write } = process.stderr;
      if (fault === 'stderr') process.stderr.write = () => fail('ENOSPC');
      else world.ctx.root.logger.exporter({ export: () => fail('ENOSPC') } as never);
      // Whoever is nested is warned of.
      const outer = world.read('outer');
      await settled();
      process.stderr.write = write;
      assert.deepEqual({ waiting: world.waiting, ended: outer.ended }, { waiting: 1, ended: false }, fault);
      outer.controller.abort(new Error('enough'));
      await world.edit({});
      world.backend.onCall = (call) => call.end();
      for (const call of world.backend.open) call.end();
      await outer.done;
      assert.deepEqual(world.stats.holders, [], fault);
      off();
      await world.end();
    }
  });

  test('what is left of an addon that panicked touches nobody of its successor', async () => {
    for (const before of [1, 2, 3]) {
      const world = await World.make({ config: limit(before) });
      const old = Array.from({ length: before }, (_, n) => `old ${n}`);
      for (const session of old) world.read(session);
      await settled();
      assert.throws(() => (world.gate.limiter as unknown as { panic(): void }).panic(), { code: 'GEN_LIMIT_PANIC' });
      world.read('first to notice');
      await settled();
      await world.restart();
      await until(() => !world.gate.failed);
      const young = Array.from({ length: 2 * before }, (_, n) => `young ${n}`);
      for (const session of young) world.read(session);
      await settled();
      const counts = { occupancy: before, waiting: before };
      assert.deepEqual({ occupancy: world.occupancy, waiting: world.waiting }, counts);
      for (const session of old) world.backend.of(session).end();
      await settled();
      assert.deepEqual({ occupancy: world.occupancy, waiting: world.waiting }, counts);
      for (const session of young) {
        world.backend.of(session).end();
        await settled();
      }
      assert.equal(world.occupancy, 0);
      await world.end();
    }
  });

  test('the successor of an addon that panicked has the last good configuration in force, also under a row that is wrong', async () => {
    const world = await World.make({ config: limit(1) });
    assert.throws(() => (world.gate.limiter as unknown as { panic(): void }).panic(), { code: 'GEN_LIMIT_PANIC' });
    world.read('first to notice');
    await settled();
    await world.edit(limit('abc'));
    await until(() => !world.gate.failed);
    assert.match(world.stderr.join(''), /last good configuration is in force/u);
    for (const session of ['a', 'b']) world.read(session);
    await settled();
    assert.deepEqual({ occupancy: world.occupancy, waiting: world.waiting }, { occupancy: 1, waiting: 1 });
  });

  test('a spawn and a stream of an addon that panicked are not told to its successor', async () => {
    const world = await World.make({ config: limit(1) });
    const info = { kind: 'spawn', session: 'parent', provider: 'box', model: 'm' } as const;
    const { id } = world.gate.startTool('subagent', info);
    assert.throws(() => (world.gate.limiter as unknown as { panic(): void }).panic(), { code: 'GEN_LIMIT_PANIC' });
    world.read('first to notice');
    await settled();
    await world.restart();
    await until(() => !world.gate.failed);
    // Under the same number as the old one had, if numbers began again.
    world.gate.startTool('subagent', info);
    world.gate.startStream({ ...info, kind: 'stream', session: 'child' }, true, id, id);
    assert.deepEqual({ credits: world.stats.credits, occupancy: world.occupancy }, { credits: 1, occupancy: 1 });
  });

  test('a call that began uncounted may hold one that counts', async () => {
    const component = file('still-later.wasm', 'not yet');
    const world = await World.make({ config: limit(1), parts: { component } });
    let go = (): void => undefined;
    const gone = new Promise<void>((resolve) => (go = resolve));
    world.ctx.on('llm/stream', (options, next) => {
      if (options.sessionId !== ('outer' as never)) return next();
      return (async function* () {
        await gone;
        yield* world.stream('inner');
      })();
    });
    world.read('outer');
    writeFileSync(component, whole);
    await world.restart();
    await until(() => !world.gate.failed);
    await settled();
    world.stderr.length = 0;
    go();
    await settled();
    assert.deepEqual(world.backend.sessions, ['inner']);
    assert.deepEqual(world.stats.holders.map(({ session }) => session), ['inner']);
    assert.deepEqual(world.stderr, []);
  });
});

suite('a slow start', () => {
  test('calls that come while the component loads wait for it, in their order', async () => {
    const world = new World();
    // A copy is another file, so it is compiled again.
    const component = file('slow.wasm', whole);
    const started = world.start({ config: limit(1), parts: { component } });
    // The row is mounted a few turns before the component is there.
    while (world.ctx.loader?.store['gen-limit']?.fiber?.state !== (2 as never)) await new Promise(setImmediate);
    for (const session of ['a', 'b', 'c']) world.read(session);
    const gone = world.read('gone');
    const reason = new Error('no time');
    gone.controller.abort(reason);
    const left = world.stream('left')[Symbol.asyncIterator]();
    const step = left.next();
    assert.equal(world.gate.loading, true);
    assert.deepEqual(await left.return?.(), { done: true, value: undefined });
    assert.deepEqual(await step, { done: true, value: undefined });
    assert.equal(await gone.done, reason);
    assert.deepEqual(world.let, []);
    await started;
    await settled();
    assert.deepEqual(world.let, ['a']);
    assert.equal(world.waiting, 2);
    for (const session of ['a', 'b', 'c']) {
      world.backend.of(session).end();
      await settled();
    }
  });

  for (const [what, happen, through] of [
    ['a harness that shuts down while the component loads cancels those who wait for it', (world: World) => world.shutDown(), []],
    ['a row that is disabled while the component loads lets those proceed who wait for it', (world: World) => world.disable(), ['a']],
  ] as const) {
    test(what, async () => {
      const world = new World();
      const component = file(`slow-${through.length}.wasm`, whole);
      file(`slow-${through.length}.cwasm`, code);
      const started = world.start({ config: limit(0), parts: { component } });
      while (world.ctx.loader?.store['gen-limit']?.fiber?.state !== (2 as never)) await new Promise(setImmediate);
      const { gate } = world;
      world.backend.onCall = (call) => call.end();
      const a = world.read('a');
      assert.equal(gate.loading, true);
      await happen(world);
      await started;
      assert.equal(await a.done, undefined);
      assert.deepEqual(world.let, through);
      // The same file is compiled once: when it is there for us, it was there for the row that has gone.
      await load({ ...PARTS, component }, () => undefined);
      await settled();
      assert.deepEqual(world.stderr, [], 'which says nothing any more');
    });
  }
});

test('a row that is disabled while its component does not load says nothing any more', async () => {
  const world = new World();
  const started = world.start({ config: limit(0), parts: { addon: slowAddon(), component: file('never.wasm', 'not yet') } });
  await until(() => loads.length === 1);
  await world.disable();
  await started;
  loads[0]?.lose();
  await settled();
  assert.deepEqual(world.stderr, []);
});

suite('a component that fails', () => {
  // Every instance fails again after so many calls, of which it needs some to come to work.
  const FIRST = 8;

  for (const fault of ['trap', 'loop', 'eat']) {
    test(`one that ${fault}s loses no live call and no waiter, and the harness keeps answering`, async () => {
      for (let after = FIRST; after < FIRST + 6; after += 1) {
        const config = limit(2, { chaos: `${fault}-in:${after}`, maxRestarts: 50 });
        const world = await World.make({ config, parts: CHAOS, ...(fault === 'loop' ? { options: { callMs: 50 } } : {}) });
        const readings = Array.from({ length: 6 }, (_, n) => world.read(`s${n}`));
        await settled();
        const order: Array<string | undefined> = [];
        for (let turn = 0; turn < 12 && world.backend.open.length > 0; turn += 1) {
          order.push(world.backend.open[0]?.session);
          world.backend.open[0]?.end();
          await settled();
        }
        const at = `${fault} in ${after}: ${world.stderr.join('')}`;
        assert.deepEqual(await Promise.all(readings.map(({ done }) => done)), Array(6).fill(undefined), at);
        assert.deepEqual(order.toSorted(), ['s0', 's1', 's2', 's3', 's4', 's5'], at);
        const { live, waiting, restarts } = world.gate.limiter?.status() ?? assert.fail(at);
        assert.deepEqual({ live, waiting }, { live: 0, waiting: 0 }, at);
        assert.notEqual(restarts, 0, at);
        // The call that loops is not asked again: onFailure lets that one pass.
        if (fault !== 'loop') assert.equal(world.backend.peakSessions, 2, at);
      }
    });
  }

  test('an edit that cannot be taken while it is failing is taken when it is back, or told and let be', async (t) => {
    for (const [faults, max] of [[1, 3], [99, 1]] as const) {
      const config = limit(1, { chaos: `trap-in:${3 * FIRST}`, maxRestarts: 0 });
      const world = await World.make({ config, parts: CHAOS });
      const { limiter } = world.gate;
      for (let n = 0; limiter?.status().state === 'running'; n += 1) world.read(`s${n}`);
      const configure = t.mock.method(limiter as Addon.Limiter, 'configure');
      for (let n = 0; n < faults; n += 1) configure.mock.mockImplementationOnce(() => fail('out of memory'), n);
      await world.edit(limit(3));
      assert.match(world.stderr.join(''), /out of memory; the last good configuration is in force/u);
      assert.equal(configure.mock.callCount(), 1);
      world.gate.advance(60_000);
      assert.equal(limiter?.status().state, 'running');
      assert.equal(configure.mock.callCount(), 2);
      assert.equal(world.stats.scopes[0]?.max, max);
      world.gate.advance(60_000);
      assert.equal(configure.mock.callCount(), 2);
    }
  });

  for (const [onFailure, through] of [['open', 5], ['closed', 0]] as const) {
    test(`one that fails again and again leaves it to onFailure: ${onFailure}`, async () => {
      const config = limit(1, { chaos: `trap-in:${FIRST}`, maxRestarts: 1, onFailure });
      const world = await World.make({ config, parts: CHAOS });
      const readings = Array.from({ length: 20 }, (_, n) => world.read(`s${n}`));
      await settled();
      const { state } = world.gate.limiter?.status() ?? assert.fail(world.stderr.join(''));
      assert.equal(state, onFailure === 'open' ? 'failed-open' : 'failed-closed');
      const before = world.let.length;
      const later = Array.from({ length: 5 }, (_, n) => world.read(`later${n}`));
      await settled();
      assert.equal(world.let.length - before, through);
      if (onFailure === 'closed') {
        for (const { chunks } of later) {
          const [chunk] = chunks;
          assert(chunk?.type === 'finish' && chunk.reason.kind === 'error');
          assert.equal(chunk.reason.failure.code, 'GEN_LIMITER_UNAVAILABLE');
        }
      }
      assert.ok(world.stderr.some((line) => line.includes('FAILED')), world.stderr.join(''));
      world.backend.onCall = (call) => call.end();
      for (const call of world.backend.open) call.end();
      assert.deepEqual(await Promise.all(readings.map(({ done }) => done)), Array(20).fill(undefined), 'nobody is forgotten');
    });
  }
});
