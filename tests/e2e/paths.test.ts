/**
 * Every way a harness reaches a model passes the gate: with the only seat taken, nothing of it arrives at the server
 * until the seat is given back.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { limit, MODEL, PACKAGE, PROBE, PROVIDER } from './dsh.ts';
import type { Arrival, Reply, ToolCall } from './model-server.ts';
import { holding, Holds, inWorld, type World } from './scenario.ts';
import { spawn } from './scripts.ts';

/** Lets A take the only seat. */
async function takeSeat(world: World) {
  const dsh = await world.web();
  await dsh.prompt('[s:A] work');
  await world.server.until('A generates', () => world.server.generating.includes('A'));
  return dsh;
}

/** Lets B make a tool call whose execution meets A holding the only seat; gives what then stands in line. */
async function toolCallMeetsFullHouse(call: ToolCall, kind: 'stream' | 'spawn'): Promise<void> {
  const holds = new Holds();
  holds.release('child');
  const script = holding(holds, ({ session, purpose, delegated }) =>
    session === 'B' && purpose === 'chat' && !delegated ? { calls: [call] } : undefined,
  );
  await inWorld({ script, config: limit(1) }, async (world) => {
    const { server, home } = world;
    const dsh = await world.web();
    const b = await dsh.prompt('[s:B] delegate');
    await server.until('B generates', () => server.generating.includes('B'));
    const a = await dsh.prompt('[s:A] work');
    await home.traced('wait of A', () => home.waiting().some((waiting) => waiting.session === a));
    holds.release('B');
    await server.until('A generates', () => server.generating.includes('A'));
    await home.traced('the delegated work in line', () =>
      home.waiting(kind).some(({ session }) => (kind === 'spawn' ? session === b : session !== a && session !== b)),
    );
    assert.deepEqual(server.of('child'), []);
    assert.deepEqual(server.generating, ['A']);
    holds.release('A');
    await server.until('the child', () => server.completed('child'));
    await server.until('B reports', () => server.of('B', 'chat').length >= 2);
    assert.equal(server.peakSessions, 1);
  });
}

describe('with the only seat taken', { concurrency: 2 }, () => {
  test('a chat and its title wait', () => {
    const holds = new Holds();
    return inWorld({ script: holds.script, config: limit(1) }, async (world) => {
      const { server, home } = world;
      const dsh = await takeSeat(world);
      const b = await dsh.prompt('[s:B] work');
      await home.traced('chat and title of B in line', () =>
        home.waiting('stream').filter(({ session }) => session === b).length === 2,
      );
      assert.deepEqual(server.of('B'), []);
      holds.release('B');
      holds.release('A');
      await server.until('B', () => server.completed('B') && server.of('B', 'title')[0]?.outcome === 'completed');
      assert.equal(server.peakSessions, 1);
    });
  });

  test('a subagent waits', () => toolCallMeetsFullHouse(spawn('child'), 'spawn'));

  test('a forked subagent waits', () => toolCallMeetsFullHouse(spawn('child', 'subagent_fork'), 'spawn'));

  test('an agent of a workflow waits', () =>
    toolCallMeetsFullHouse(
      {
        name: 'workflow',
        arguments: { meta: { name: 'one', description: 'one agent' }, script: 'return await agent("[s:child] work")' },
      },
      'stream',
    ));

  test('a compaction waits', () => {
    const holds = new Holds();
    holds.release('B');
    const words = 'word '.repeat(30_000);
    const long = ({ session, purpose }: Arrival): Reply | undefined => {
      if (purpose === 'compaction') return { text: '[s:B] in short' };
      return session === 'B' && purpose === 'chat' ? { text: words, promptTokens: 90_000 } : undefined;
    };
    return inWorld({ script: holding(holds, long), config: limit(1), contextWindow: 100_000 }, async (world) => {
      const { server, home } = world;
      const dsh = await world.web();
      const b = await dsh.prompt('[s:B] a long story');
      await server.until('the story', () => server.completed('B') && server.idle);
      const a = await dsh.prompt('[s:A] work');
      await server.until('A generates', () => server.generating.includes('A'));
      await dsh.prompt('[s:B] go on', b);
      await home.traced('B in line', () => home.waiting('stream').some(({ session }) => session !== a));
      assert.deepEqual(server.of('B', 'compaction'), []);
      holds.release('A');
      await server.until('the compaction and the chat after it', () =>
        server.of('B', 'compaction')[0]?.outcome === 'completed' && server.of('B', 'chat')[1]?.outcome === 'completed',
      );
      assert.equal(server.peakSessions, 1);
    });
  });

  test('a call without a session waits', () => {
    const holds = new Holds();
    return inWorld({ script: holds.script, config: limit(1), packages: [PACKAGE, PROBE] }, async (world) => {
      const { server, home } = world;
      const dsh = await takeSeat(world);
      const finish = dsh.probe('stream', { provider: PROVIDER, model: MODEL, text: '[s:direct] work' });
      await home.traced('the call in line', () => home.waiting('stream').some(({ session }) => session === undefined));
      assert.deepEqual(server.of('direct'), []);
      holds.release('direct');
      holds.release('A');
      assert.deepEqual(await finish, { kind: 'stop' });
      assert.equal(server.peakSessions, 1);
    });
  });
});
