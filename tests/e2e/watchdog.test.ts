/** The harness's idle watchdog watches the provider: a wait in line is no silence, and a silent provider keeps no seat. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { limit } from './dsh.ts';
import { holding, Holds, inWorld } from './scenario.ts';

const IDLE_MS = 1_000;

describe('with an idle timeout of a second', { concurrency: 2 }, () => {
  test('a wait of three seconds fails nobody', () => {
    const holds = new Holds();
    holds.release('B');
    const script = holding(holds, () => ({ chunkMs: IDLE_MS / 10 }));
    return inWorld({ script, config: limit(1), streamIdleTimeoutMs: IDLE_MS }, async (world) => {
      const { server, home } = world;
      const dsh = await world.web();
      await dsh.prompt('[s:A] work');
      await server.until('A generates', () => server.generating.includes('A'));
      const b = await dsh.prompt('[s:B] work');
      await home.traced('B in line', () => home.waiting().some(({ session }) => session === b));
      setTimeout(() => holds.release('A'), 3 * IDLE_MS);
      await server.until('B is served', () => server.completed('B'));
      for (const session of ['A', 'B']) {
        const outcomes = server.of(session, 'chat').map(({ outcome }) => outcome);
        assert.deepEqual(outcomes, ['completed'], server.describe());
      }
      const waits = home.trace().filter(({ event, session }) => event === 'settled' && session === b);
      assert.ok(waits.some(({ result, waitedMs = 0 }) => result === 'admitted' && waitedMs > IDLE_MS), JSON.stringify(waits));
      assert.equal(server.peakSessions, 1);
    });
  });

  test('a provider that stays silent is given up by the harness itself, and the line moves on', () => {
    const holds = new Holds();
    holds.release('B');
    const script = holding(holds, ({ session, purpose }) =>
      session === 'A' && purpose === 'chat' ? { ending: 'silence' } : undefined,
    );
    return inWorld({ script, config: limit(1), streamIdleTimeoutMs: IDLE_MS }, async (world) => {
      const { server } = world;
      const dsh = await world.web();
      await dsh.prompt('[s:A] work');
      await server.until('A is heard', () => server.of('A', 'chat').length > 0);
      await dsh.prompt('[s:B] work');
      await server.until('B is served', () => server.completed('B'));
      const silent = server.of('A', 'chat')[0];
      assert.equal(silent?.outcome, 'aborted');
      assert.ok((silent.closedAt ?? 0) <= (server.of('B', 'chat')[0]?.openedAt ?? 0), server.describe());
      assert.equal(server.peakSessions, 1);
    });
  });
});
