/** The life of a row and what its configuration becomes, on the harness's own loader. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import os from 'node:os';
import { join } from 'node:path';
import { format } from 'node:util';
import { suite, test, type TestContext } from 'node:test';
import type { Context, Fiber } from '@deepseek-ai/cordis';
import { PARTS, World, limit, settled, until, type Reading } from './support.ts';

/** Two that generate and two that wait, at limit 2. */
async function busy(): Promise<{ world: World; readings: Reading[] }> {
  const world = await World.make({ config: limit(2) });
  const readings = ['a', 'b', 'c', 'd'].map((session) => world.read(session));
  await settled();
  assert.deepEqual(world.backend.sessions, ['a', 'b']);
  return { world, readings };
}

/** Takes over the time for which a disposal is watched. */
function patience({ mock }: TestContext): (ms: number) => Promise<void> {
  mock.timers.enable({ apis: ['setInterval'] });
  let now = performance.now();
  mock.method(performance, 'now', () => now);
  return async (ms) => {
    now += ms;
    mock.timers.tick(ms);
    await settled();
  };
}

suite('life of a row', () => {
  const CARRIED: Record<string, (world: World) => Promise<unknown>> = {
    edited: (world) => world.edit(limit(2, { maxQueued: 10 })),
    restarted: (world) => world.restart(),
    replaced: (world) => world.replace(),
    'restarted twice at once': (world) => Promise.all([world.restart(), world.restart()]),
  };
  for (const [what, happen] of Object.entries(CARRIED)) {
    test(`B4 ${what} while two run and two wait: counts and line survive`, async () => {
      const { world, readings } = await busy();
      const happened = happen(world);
      // Also whoever comes in the middle of it.
      readings.push(world.read('e'));
      await happened;
      await settled();
      assert.deepEqual(world.backend.sessions, ['a', 'b']);
      assert.deepEqual({ occupancy: world.occupancy, waiting: world.waiting }, { occupancy: 2, waiting: 3 });
      const order: Array<string | undefined> = [];
      while (world.backend.open.length > 0) {
        order.push(world.backend.open[0]?.session);
        world.backend.open[0]?.end();
        await settled();
      }
      assert.deepEqual(order, ['a', 'b', 'c', 'd', 'e']);
      assert.equal(world.stderr.length, 1, 'and nothing to tell');
      assert.deepEqual(await Promise.all(readings.map(({ done }) => done)), Array(5).fill(undefined));
      assert.equal(world.occupancy, 0);
    });
  }

  test('an edit is taken live: the plugin is not unloaded for it', async () => {
    const world = await World.make({ config: limit(1) });
    let unloaded = 0;
    world.ctx.on('internal/status', (fiber) => {
      if (fiber.uid === world.entry.fiber?.uid && fiber.state === (5 as never)) unloaded += 1;
    });
    await world.edit(limit(2));
    assert.equal(unloaded, 0);
    assert.equal(world.stats.scopes[0]?.max, 2);
    await world.restart();
    await world.edit(limit(3));
    assert.equal(unloaded, 1, 'by the restart');
    assert.equal(world.stats.scopes[0]?.max, 3, 'an edit after a restart arrives once and whole');
  });

  for (const [what, happen] of Object.entries({
    disabled: (world: World) => world.disable(),
    removed: (world: World) => world.remove(),
  })) {
    test(`B4 ${what} while two run and two wait: everybody proceeds, and later calls are not limited`, async () => {
      const { world } = await busy();
      const { gate } = world;
      await happen(world);
      await until(() => gate.limiter === undefined);
      world.read('e');
      await settled();
      assert.deepEqual(world.backend.sessions, ['a', 'b', 'c', 'd', 'e']);
      assert.equal(gate.limiter, undefined);
    });
  }

  test('a row whose module mounts us twice is limited until the last mounting goes', async (t) => {
    const pass = patience(t);
    for (const order of [[0, 1], [1, 0]]) {
      const world = new World();
      const mountings: Fiber[] = [];
      // A module that wraps ours: every mounting inside it is on its own row.
      world.wrap = async (ctx, plugin) => {
        for (const again of [false, true]) {
          mountings.push(await ctx.plugin({ ...plugin, name: `gen-limit ${again}` } as never, limit(1) as never));
        }
      };
      await world.start({});
      assert.equal(world.stderr.filter((line) => line.includes('more than once')).length, 1, world.stderr.join(''));
      for (const session of ['a', 'b']) world.read(session);
      await settled();
      assert.deepEqual(world.let, ['a']);
      const { gate } = world;
      await mountings[order[0] ?? 0]?.dispose();
      await pass(250);
      assert.deepEqual({ let: world.let, waiting: world.waiting }, { let: ['a'], waiting: 1 });
      await world.disable();
      await until(() => gate.limiter === undefined);
      assert.deepEqual(world.let, ['a', 'b']);
      await world.end();
    }
  });

  test('a row that is disabled and enabled limits again', async () => {
    const { world } = await busy();
    const { gate } = world;
    await world.disable();
    await until(() => gate.limiter === undefined);
    for (const call of world.backend.open) call.end();
    await settled();
    await world.ctx.loader.update('gen-limit', { disabled: null } as never);
    await world.gate.ready;
    for (const session of ['e', 'f', 'g']) world.read(session);
    await settled();
    assert.deepEqual(world.backend.sessions, ['e', 'f']);
  });

  test('B4 shut down while two run and two wait: they are cancelled and none reaches the backend', async () => {
    const { world, readings } = await busy();
    await world.shutDown();
    await settled();
    assert.deepEqual(world.let, ['a', 'b']);
    for (const { done, chunks } of readings.slice(2)) {
      assert.equal(await done, undefined);
      assert.equal(chunks.length, 1);
      const [chunk] = chunks;
      assert(chunk?.type === 'finish');
      assert.equal(chunk.reason.kind, 'aborted');
    }
  });

  /** A world whose row needs a service, which has gone away and not come back for a long time. */
  async function without(t: TestContext): Promise<{ world: World; provide: () => Promise<Fiber> }> {
    const pass = patience(t);
    const world = new World();
    const provide = async (): Promise<Fiber> =>
      world.ctx.plugin({ name: 'provider', apply: (ctx: Context) => void ctx.reflect.provide('flaky', {}) } as never, {} as never);
    world.wrap = async (ctx, plugin) => {
      await ctx.plugin({ ...plugin, inject: ['flaky'] } as never, limit(1) as never);
    };
    const service = await provide();
    await world.start({});
    for (const session of ['a', 'b']) world.read(session);
    await settled();
    await service.dispose();
    await pass(10_000);
    assert.deepEqual({ let: world.let, waiting: world.waiting }, { let: ['a'], waiting: 1 });
    return { world, provide };
  }

  test('B4 a restart may take as long as it takes: counts and line survive', async (t) => {
    const { world, provide } = await without(t);
    await provide();
    await settled();
    world.read('c');
    await settled();
    assert.deepEqual({ let: world.let, waiting: world.waiting }, { let: ['a'], waiting: 2 });
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.let, ['a', 'b']);
  });

  test('B4 disabled in the middle of a long restart: everybody proceeds', async (t) => {
    const { world } = await without(t);
    await world.disable();
    t.mock.timers.tick(10);
    await settled();
    assert.deepEqual(world.let, ['a', 'b']);
  });

  test('B4 shut down in the middle of a long restart: those who wait are cancelled', async (t) => {
    const { world } = await without(t);
    const c = world.read('c');
    await settled();
    await world.shutDown();
    await settled();
    assert.equal(await c.done, undefined);
    assert(c.chunks[0]?.type === 'finish');
    assert.equal(c.chunks[0].reason.kind, 'aborted');
    assert.deepEqual(world.let, ['a']);
  });

  test('what may be the first half of a replacement is waited for, for at most 250 ms', async (t) => {
    const { world } = await busy();
    const pass = patience(t);
    // What the loader does first when a row's module changes.
    await world.entry._dispose();
    await pass(240);
    assert.deepEqual(world.backend.sessions, ['a', 'b']);
    await pass(10);
    assert.deepEqual(world.backend.sessions, ['a', 'b', 'c', 'd']);
  });
});

suite('configuration', () => {
  const stored = (world: World): string => join(world.home, 'gen-limit', 'default.gen-limit.json');

  test('one line at the start says what is enforced', async () => {
    const limits = [{ provider: 'box', model: '*', max: 1 }, { provider: 'box', model: 'm', max: 3 }, { provider: 'x', model: 'y', max: -1 }];
    const world = await World.make({ config: { limits } });
    assert.equal(world.stderr.length, 1);
    assert.match(world.stderr[0] ?? '', /^gen-limit: 0\.1\.0, component [0-9a-f]{12}; .*box\/m max 3.*box\/\* max 1\n$/u);
    assert.doesNotMatch(world.stderr[0] ?? '', /x\/y/u);
  });

  test('the harness\'s logger is told the same as stderr', async () => {
    const world = await World.make({ config: limit('one') });
    const logged: string[] = [];
    world.ctx.root.logger.exporter({ export: (message) => void logged.push(`${message.name}: ${format(...message.args)}`) });
    world.stderr.length = 0;
    await world.edit(limit('two'));
    await world.edit(limit(2));
    assert.deepEqual(logged.map((line) => `${line}\n`), world.stderr);
    assert.match(logged.at(-1) ?? '', /^gen-limit: 0\.1\.0, component [0-9a-f]{12}; box\/\* max 2$/u);
  });

  test('one line at the start says that nothing is enforced', async () => {
    for (const config of [undefined, {}, { limits: [] }]) {
      const world = await World.make({ config });
      assert.match(world.stderr.join(''), /^gen-limit: 0\.1\.0, component [0-9a-f]{12}; inactive: no limits set\n$/u);
    }
  });

  const WRONG: Array<[string, unknown]> = [
    ['"abc"', 'abc'], ['"2 sessions"', '2 sessions'], ['1e400', Infinity], ['{}', {}], ['null', null], ['""', ''], ['false', false],
    ['[]', []], ['0.4', 0.4], ['-0.2', -0.2], ['true', true], ['[5]', [5]], ['"0x10"', '0x10'], ['NaN', NaN], ['-2', -2],
    ['4294967296', 4_294_967_296],
  ];
  test('a wrong max is told with row and field and changes nothing', async () => {
    const world = await World.make({ config: limit(1) });
    for (const [name, max] of WRONG) {
      world.stderr.length = 0;
      await world.edit(limit(max));
      assert.match(world.stderr.join(''), /limits\[0\]\.max/u, name);
      assert.match(world.stderr.join(''), /last good configuration/u, name);
      assert.equal(world.stats.scopes[0]?.max, 1, name);
    }
    for (const row of [{ provider: 'box', model: '*' }, { provider: 'box', model: '*', maximum: 3 }]) {
      world.stderr.length = 0;
      await world.edit({ limits: [row] });
      assert.match(world.stderr.join(''), /limits\[0\]/u);
      assert.equal(world.stats.scopes[0]?.max, 1);
    }
    assert.deepEqual(JSON.parse(readFileSync(stored(world), 'utf8')), limit(1));
  });

  test('what JSON cannot say is shown as it was written', async () => {
    const world = await World.make({ config: limit(1) });
    await world.edit(limit(Infinity));
    assert.match(world.stderr.join(''), /Infinity/u);
  });

  test('B10 two rows for one scope are an error', async () => {
    const world = await World.make({ config: { limits: [...limit(1)['limits'] as never[], ...limit(2)['limits'] as never[]] } });
    assert.match(world.stderr.join(''), /limits\[1\]/u);
  });

  test('without a last good configuration the valid rows are in force', async () => {
    const config = { limits: [{ provider: 'box', model: '*', max: 1 }, { provider: 'other', model: '*', max: 'two' }] };
    const world = await World.make({ config });
    assert.match(world.stderr.join(''), /limits\[1\]\.max.*what is valid of it is in force/u);
    for (const session of ['a', 'b']) world.read(session);
    await settled();
    assert.deepEqual(world.backend.sessions, ['a']);
  });

  test('a configuration that is no object at all does not keep the harness from starting', async () => {
    for (const config of ['limits', 3, [1], true]) {
      const world = await World.make({ config });
      world.backend.onCall = (call) => call.end();
      assert.equal(await world.read('a').done, undefined);
      assert.notEqual(world.stderr.length, 0);
    }
  });

  test('the last good configuration survives a restart of the harness and is its owner\'s alone', async () => {
    const first = await World.make({ config: limit(1) });
    assert.equal(statSync(stored(first)).mode & 0o777, 0o600);
    await first.end();
    const world = await World.make({ config: limit('one'), home: first.home });
    assert.match(world.stderr.join(''), /limits\[0\]\.max.*last good configuration is in force/u);
    for (const session of ['a', 'b']) world.read(session);
    await settled();
    assert.deepEqual(world.backend.sessions, ['a']);
  });

  test('whoever asks for stats is told what is wrong with the row, until it is put right', async () => {
    const wrong = (world: World): string[] => world.stats.host.problems.map(({ path }) => path);
    const live = await World.make({ config: limit(1) });
    assert.deepEqual(wrong(live), []);
    await live.edit(limit('one'));
    assert.deepEqual(wrong(live), ['limits[0].max']);
    await live.edit(limit(2));
    assert.deepEqual(wrong(live), []);
    await live.end();
    const restarted = await World.make({ config: limit('two'), home: live.home });
    assert.equal(restarted.stats.scopes[0]?.max, 2, 'the last good one is in force');
    assert.deepEqual(wrong(restarted), ['limits[0].max']);
    const lenient = await World.make({ config: limit('three') });
    assert.deepEqual(wrong(lenient), ['limits[0].max']);
  });

  test('a last good configuration that has been damaged is not used', async () => {
    const first = await World.make({ config: limit(1) });
    await first.end();
    writeFileSync(stored(first), '{"limits": [{"prov');
    const world = await World.make({ config: limit('one'), home: first.home });
    assert.match(world.stderr.join(''), /what is valid of it is in force/u);
  });

  test('a row that is right again is taken and told', async () => {
    const world = await World.make({ config: limit('one') });
    for (const max of [1, 2]) {
      world.stderr.length = 0;
      await world.edit(limit(max));
      assert.match(world.stderr.join(''), new RegExp(`^gen-limit: 0\\.1\\.0, component .*box/\\* max ${max}\n$`, 'u'));
      await world.edit(limit('wrong again'));
    }
    await world.edit(limit(3));
    world.stderr.length = 0;
    await world.edit(limit(4));
    assert.deepEqual(world.stderr, [], 'an edit without a mistake needs no words');
  });

  test('a row the component faults over, or that is too large to look at, leaves the last good configuration in force', async () => {
    const rows = Array.from({ length: 40_000 }, (_, n) => ({ provider: `p${n}`, model: 'm', max: 1 }));
    const FAULTY: Array<[unknown, RegExp]> = [
      [limit(5, { chaos: 'trap-in:1' }), /last good configuration is in force/u],
      [{ limits: rows }, /has \d{7} bytes, more than the 1048576.*last good configuration is in force/u],
    ];
    const parts = { component: PARTS.component.replace('gen-limit.wasm', 'gen-limit-chaos.wasm') };
    for (const [config, told] of FAULTY) {
      const first = await World.make({ config: limit(1), parts });
      await first.edit(config);
      assert.match(first.stderr.join(''), told);
      assert.equal(first.stats.scopes[0]?.max, 1, 'over an edit');
      await first.end();
      const world = await World.make({ config, home: first.home, parts });
      assert.match(world.stderr.join(''), told);
      for (const session of ['a', 'b']) world.read(session);
      await settled();
      assert.deepEqual(world.let, ['a'], 'over a restart of the harness');
      await world.edit(limit(2));
      assert.deepEqual(world.let, ['a', 'b']);
    }
  });

  test('a row the component faults over limits nothing where there was nothing before, and the next one is taken', async () => {
    const parts = { component: PARTS.component.replace('gen-limit.wasm', 'gen-limit-chaos.wasm') };
    const world = await World.make({ config: limit(1, { chaos: 'trap-in:1' }), parts });
    assert.match(world.stderr.join(''), /nothing of it is in force/u);
    for (const session of ['a', 'b']) world.read(session);
    await settled();
    assert.deepEqual(world.let, ['a', 'b']);
    await world.edit(limit(2));
    assert.equal(world.occupancy, 2);
    world.read('c');
    await settled();
    assert.deepEqual(world.let, ['a', 'b']);
  });

  for (const onFailure of ['open', 'closed'] as const) {
    const other = onFailure === 'open' ? 'closed' : 'open';
    test(`onFailure is that of what is in force, not of a row that is wrong: ${onFailure}`, async () => {
      const world = await World.make({ config: limit(1, { onFailure }) });
      for (const wrong of [other, 'Closed', 3]) {
        await world.edit(limit('abc', { onFailure: wrong }));
        assert.equal(world.gate.closed, onFailure === 'closed', String(wrong));
      }
      assert.throws(() => (world.gate.limiter as unknown as { panic(): void }).panic(), { code: 'GEN_LIMIT_PANIC' });
      world.read('a');
      await settled();
      assert.deepEqual(world.let, onFailure === 'open' ? ['a'] : []);
    });
  }

  test('without a component a row that does not say onFailure leaves it at the last good one\'s', async () => {
    const first = await World.make({ config: limit(1, { onFailure: 'closed' }) });
    await first.end();
    for (const [says, through] of [['Closed', []], [undefined, []], ['closed', []], ['open', ['a']]] as const) {
      const config = limit('abc', says === undefined ? {} : { onFailure: says });
      const world = await World.make({ config, home: first.home, parts: { component: join(first.home, 'nowhere.wasm') } });
      world.read('a');
      await settled();
      assert.deepEqual(world.let, through, says);
    }
  });

  test('what is stored is a file or nothing: a pipe in its place is not waited for', async () => {
    const first = await World.make({ config: limit(1) });
    await first.end();
    rmSync(stored(first));
    execFileSync('mkfifo', [stored(first)]);
    const world = await World.make({ config: limit('one'), home: first.home });
    assert.match(world.stderr.join(''), /what is valid of it is in force/u);
    await world.edit(limit(1));
    assert.deepEqual(JSON.parse(readFileSync(stored(world), 'utf8')), limit(1));
  });

  test('where nobody has a home the row is in force and not stored', async (t) => {
    const nobody = (): never => {
      throw new Error('no such user');
    };
    t.mock.method(os, 'homedir', nobody);
    syncBuiltinESMExports();
    try {
      const world = await World.make({ config: limit(1) });
      assert.deepEqual(JSON.parse(readFileSync(stored(world), 'utf8')), limit(1), 'DSH_HOME is home enough');
      const homeless = await World.make({ config: limit(1), home: '~/dsh' });
      assert.equal(homeless.stats.scopes[0]?.max, 1);
      assert.deepEqual(homeless.stderr.filter((line) => line.includes('could not be stored')).length, 1, homeless.stderr.join(''));
    } finally {
      t.mock.restoreAll();
      syncBuiltinESMExports();
    }
  });

  test('a home that cannot be written is told and limits nothing less', async () => {
    const world = await World.make({ config: limit(1) });
    // A file where the folder should be cannot be written into, not even by root.
    const other = join(world.home, 'file');
    writeFileSync(other, '');
    chmodSync(other, 0o400);
    const second = await World.make({ config: limit(1), home: other });
    assert.match(second.stderr.join(''), /could not be stored/u);
    assert.equal(second.stats.scopes[0]?.max, 1);
  });
});
