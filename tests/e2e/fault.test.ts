/** Whatever ends a stream gives its seat back; who may not start is told why, and never reaches the server. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { limit, type Home } from './dsh.ts';
import type { Ending } from './model-server.ts';
import { holding, Holds, inWorld, TEAM } from './scenario.ts';
import { children, fanOut, ROOT } from './scripts.ts';

const PROMPT = `[s:${ROOT}] split this up`;

/** Nothing is counted any more when the harness has gone. */
function nothingLeft(home: Home): void {
  const totals = home.trace().findLast((line) => line.event === 'stats')?.stats?.totals;
  assert.ok(totals, 'the trace ends with stats');
  assert.deepEqual([totals.live, totals.waiting], [0, 0]);
}

describe('a stream that breaks frees its seat', { concurrency: 2 }, () => {
  const broken: Record<string, Ending> = {
    'is refused with 429': { status: 429 },
    'fails with 500': { status: 500 },
    'is rejected with 400': { status: 400 },
    'is cut in the middle': 'disconnect',
  };
  for (const [how, ending] of Object.entries(broken)) {
    test(how, () => {
      const script = fanOut({ n: 4, holdMs: 80 }, ({ session, turn }) =>
        session === '02' && turn === 0 ? { text: 'half of', ending } : undefined,
      );
      return inWorld({ script, profile: TEAM, config: limit(1) }, async (world) => {
        const { server, home } = world;
        const others = children(4).filter((child) => child !== '02');
        const ended = (): boolean => server.of('02').at(-1)?.outcome !== undefined;
        await world.team(PROMPT, () => ended() && others.every((child) => server.completed(child)));
        assert.equal(server.of('02')[0]?.outcome, 'failed');
        for (const child of others) assert.ok(server.completed(child));
        assert.equal(server.peakSessions, 1);
        nothingLeft(home);
      });
    });
  }

  test('stays silent and is given up', () => {
    const holds = new Holds();
    holds.release('B');
    const silent = holding(holds, ({ session, purpose }) =>
      session === 'A' && purpose === 'chat' ? { ending: 'silence' } : undefined,
    );
    return inWorld({ script: silent, config: limit(1) }, async (world) => {
      const { server, home } = world;
      const dsh = await world.web();
      const a = await dsh.prompt('[s:A] work');
      await server.until('A is heard', () => server.of('A', 'chat').length === 1);
      const b = await dsh.prompt('[s:B] work');
      await home.traced('B in line', () => home.waiting().some(({ session }) => session === b));
      await dsh.call('session.cancel', { sessionId: a });
      await server.until('B is served', () => server.completed('B'));
      assert.equal(server.of('A', 'chat')[0]?.outcome, 'aborted');
    });
  });
});

describe('who may not start', { concurrency: 2 }, () => {
  test('is told that the line is full', () => refused({ ...limit(1), maxQueued: 0 }, 'queue-full'));

  test('is told that the wait ran out', () => refused({ ...limit(1), queueTimeoutMs: 300 }, 'queue-timeout'));

  test('is told that the model is paused, by name and with the code', () =>
    inWorld(
      { script: fanOut({ n: 1 }), profile: 'headless', config: { ...limit(0), queueTimeoutMs: 200 } },
      async (world) => {
        const dsh = await world.headless(PROMPT);
        assert.equal(await dsh.exited, 1);
        assert.match(dsh.stderr, /GEN_CAPACITY_EXCEEDED: .*mock\/model/);
        assert.deepEqual(world.server.streams, []);
      },
    ));

  /** B meets A holding the only seat and is refused. */
  function refused(config: Record<string, unknown>, reason: string): Promise<void> {
    const holds = new Holds();
    return inWorld({ script: holds.script, config }, async (world) => {
      const { server, home } = world;
      const dsh = await world.web();
      await dsh.prompt('[s:A] work');
      await server.until('A generates', () => server.generating.includes('A'));
      const b = await dsh.prompt('[s:B] work');
      await home.traced('refusal of B', (trace) =>
        trace.some((line) => line.session === b && line.result === 'refused' && line.reason === reason),
      );
      holds.release('A');
      await server.until('A is done', () => server.completed('A'));
      assert.deepEqual(server.of('B', 'chat'), []);
    });
  }
});
