/** What becomes of two that generate and two that wait when their row changes under them, in a running harness. */
import assert from 'node:assert/strict';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { type Dsh, HARNESS, limit, NAME, PACKAGE, type Patch, PROBE, ROW } from './dsh.ts';
import type { Arrival, Reply } from './model-server.ts';
import { PATIENCE_MS } from './patience.ts';
import { holding, Holds, inWorld, twoAndTwo, type World } from './scenario.ts';

const packages = [PACKAGE, PROBE];

/** The row as the patch layer of a profile has it that inserts it itself. */
function inserted(more: Patch = {}): Patch[] {
  return [{ insert: [{ id: ROW, name: NAME, config: limit(2), ...more }] }];
}

/** Runs `test` with A and B generating and C and D waiting at a limit of 2. */
async function amid(
  test: (world: World, dsh: Dsh, holds: Holds, ids: Readonly<Record<string, string>>) => Promise<void>,
  answer: (arrival: Arrival) => Reply | undefined = () => undefined,
): Promise<void> {
  const holds = new Holds();
  await inWorld({ script: holding(holds, answer), packages, patches: inserted() }, async (world) => {
    await world.home.ownRow();
    const dsh = await world.web();
    const { ids } = await twoAndTwo(world, dsh);
    assert.deepEqual(world.server.generating, ['A', 'B']);
    await test(world, dsh, holds, ids);
  });
}

/** Resolves when the row has another mounting than `before`. */
async function remounted(dsh: Dsh, before: number | null): Promise<void> {
  for (const gaveUp = AbortSignal.timeout(PATIENCE_MS); ; gaveUp.throwIfAborted()) {
    const now = await dsh.probe<number | null>('row', { id: ROW });
    if (now !== null && now !== before) return;
  }
}

/** Lets the four through one by one and checks that the line kept its order and the limit held. */
async function servedInOrder({ server }: World, holds: Holds): Promise<void> {
  holds.release('A');
  await server.until('the elder waiter takes the seat', () => server.chatting.length === 2 && server.completed('A'));
  assert.deepEqual(server.chatting, ['B', 'C'], server.describe());
  holds.release('C');
  await server.until('the next takes its place', () => server.chatting.length === 2 && server.completed('C'));
  assert.deepEqual(server.chatting, ['B', 'D'], server.describe());
  holds.release('B');
  holds.release('D');
  await server.until('all four', () => ['A', 'B', 'C', 'D'].every((session) => server.completed(session)));
  assert.equal(server.peakSessions, 2);
}

describe('two generate, two wait', { concurrency: 2 }, () => {
  test('raising the limit serves the line at once, lowering it admits nobody until there is room', () =>
    amid(async ({ server, home }, _dsh, holds, ids) => {
      await home.patch(inserted({ config: limit(3) }));
      await server.until('C generates', () => server.generating.length === 3);
      assert.deepEqual(server.generating, ['A', 'B', 'C']);
      await home.patch(inserted({ config: limit(1) }));
      // The row is in force when its configuration has been stored.
      await home.stored('limit of 1', (config) => JSON.stringify(config).includes('"max":1'));
      for (const session of ['A', 'B'] as const) {
        holds.release(session);
        await home.traced(`the end of ${session}`, (trace) =>
          trace.some((line) => line.event === 'finish' && line.kind === 'stream' && line.session === ids[session]),
        );
        await server.until(`${session} is done`, () => server.completed(session));
      }
      assert.ok(home.waiting().every(({ session }) => session === ids['D']));
      assert.deepEqual(server.generating, ['C']);
      holds.release('C');
      await server.until('D generates', () => server.generating.includes('D'));
      assert.deepEqual(server.generating, ['D']);
    }));

  test('a restarted plugin keeps counts and line', () =>
    amid(async (world, dsh, holds) => {
      if (HARNESS.remounts) {
        const before = await dsh.probe<number | null>('row', { id: ROW });
        await world.home.patch(inserted({ inject: ['timer'] }));
        await remounted(dsh, before);
      } else {
        await dsh.probe('restart', { id: ROW });
      }
      assert.deepEqual(world.server.generating, ['A', 'B']);
      await servedInOrder(world, holds);
    }));

  const skip = HARNESS.remounts ? false : 'a running row keeps its module until the harness starts again';
  test('a new version of the package keeps counts and line', { skip }, () =>
    amid(async (world, dsh, holds) => {
      const { home } = world;
      const next = join(home.dir, 'next');
      await cp(home.installed, next, { recursive: true, dereference: true });
      const manifest = JSON.parse(await readFile(join(next, 'package.json'), 'utf8')) as { version: string };
      await writeFile(join(next, 'package.json'), JSON.stringify({ ...manifest, version: '99.0.0' }));
      const before = await dsh.probe<number | null>('row', { id: ROW });
      await home.patch(inserted({ name: join(next, 'dist/index.js') }));
      await remounted(dsh, before);
      assert.deepEqual(world.server.generating, ['A', 'B']);
      await servedInOrder(world, holds);
    }));

  for (const [what, patch] of Object.entries({
    'a disabled plugin': inserted({ disabled: true }),
    'a removed row': [],
  })) {
    test(`${what} lets the waiters proceed and limits nobody who comes later`, () =>
      amid(async ({ server, home }, dsh) => {
        await home.patch(patch);
        await server.until('all four generate', () => server.generating.length === 4);
        await dsh.prompt('[s:E] work');
        await server.until('a fifth generates', () => server.generating.includes('E'));
        assert.deepEqual(server.generating, ['A', 'B', 'C', 'D', 'E']);
      }));
  }

  test('a harness that shuts down sends no waiter to the backend', () =>
    amid(async ({ server }, dsh) => {
      await dsh.stop('SIGINT');
      assert.deepEqual([...server.of('C'), ...server.of('D')], []);
      await server.until('A and B are cut off', () => server.idle);
    }));

  test('a row turned wrong leaves its last good limits in force, also over a restart of the harness', () =>
    amid(async (world, dsh, holds) => {
      await world.home.patch(inserted({ config: { limits: [{ provider: 'mock', model: 'model', max: 'many' }] } }));
      await dsh.until('the mistake is named', () => /limits\[0\]\.max/.test(dsh.stderr));
      await servedInOrder(world, holds);
      await dsh.stop();
      const again = await world.web();
      await again.until('the mistake is named again', () => /limits\[0\]\.max/.test(again.stderr));
      for (const session of ['E', 'F', 'G']) {
        const id = await again.prompt(`[s:${session}] work`);
        if (session === 'G') await world.home.traced('G in line', () => world.home.waiting().some((call) => call.session === id));
        else await world.server.until(session, () => world.server.generating.includes(session));
      }
      assert.deepEqual(world.server.of('G'), []);
    }));
});

describe('two generate, two wait: one of them is gone', { concurrency: 2 }, () => {
  test('a waiter that is given up leaves the line, a holder that is given up frees its seat', () =>
    amid(async ({ server, home }, dsh, holds, ids) => {
      await dsh.call('session.cancel', { sessionId: ids['C'] });
      await home.traced('withdrawal of C', (trace) =>
        trace.some((line) => line.event === 'finish' && line.session === ids['C'] && line.result === 'cancelled'),
      );
      await dsh.call('session.cancel', { sessionId: ids['A'] });
      await server.until('D takes the seat', () => server.chatting.includes('D'));
      assert.deepEqual(server.chatting, ['B', 'D']);
      holds.release('B');
      holds.release('D');
      await server.until('both', () => server.completed('B') && server.completed('D') && server.idle);
      assert.deepEqual(server.of('C', 'chat'), []);
    }));

  test('a stream that breaks hands its seat to the line, and its retry stands behind it', () =>
    amid(
      async ({ server }, _dsh, holds) => {
        holds.release('A');
        await server.until('C takes the seat', () => server.chatting.includes('C'));
        assert.equal(server.of('A', 'chat')[0]?.outcome, 'failed');
        assert.deepEqual(server.chatting, ['B', 'C']);
        holds.release('B');
        await server.until('D comes before the retry', () => server.chatting.includes('D'));
        assert.deepEqual(server.chatting, ['C', 'D']);
        holds.release('C');
        holds.release('D');
        await server.until('the retry', () => server.completed('A') && server.idle);
        assert.equal(server.peakSessions, 2);
      },
      ({ session, purpose, turn }) =>
        session === 'A' && purpose === 'chat' && turn === 0 ? { text: 'half', ending: 'disconnect' } : undefined,
    ));
});
