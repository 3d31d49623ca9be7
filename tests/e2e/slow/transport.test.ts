/** The transport's real five minutes: a backend that is silent for longer, with the plugin and without it, all at once. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { PACKAGE } from '../dsh.ts';
import type { Script } from '../model-server.ts';
import { inWorld } from '../scenario.ts';

/** How long the transport waits by itself, and how late it may notice. */
const TRANSPORT_MS = 300_000;
const LATE_MS = 15_000;

const SILENCE_MS = 320_000;
const DECLARED_MS = 900_000;

const SESSIONS = ['headers', 'body'] as const;

const silent: Script = ({ session, purpose }) => {
  if (purpose === 'title') return { text: 'A title' };
  return { text: 'done', ...(session === 'headers' ? { silentMs: SILENCE_MS } : { holdMs: SILENCE_MS }) };
};

/** Has a harness with these packages ask twice; looks at the first stream of each session when both have ended. */
function heard(packages: readonly string[], look: (outcome: string | undefined, tookMs: number, what: string) => void): Promise<void> {
  return inWorld({ script: silent, packages, streamIdleTimeoutMs: DECLARED_MS }, async (world) => {
    const { server } = world;
    const dsh = await world.web();
    for (const session of SESSIONS) await dsh.prompt(`[s:${session}] work`);
    const streams = () => SESSIONS.map((session) => server.of(session, 'chat')[0]);
    const over = (): boolean => streams().every((stream) => stream?.outcome !== undefined);
    await server.until('an end of both', over, 2 * SILENCE_MS);
    for (const stream of streams()) look(stream?.outcome, (stream?.closedAt ?? 0) - (stream?.openedAt ?? 0), server.describe());
  });
}

describe('a backend that is silent for 320 s and declares 900', { concurrency: true }, () => {
  test('is heard to its end, silent before the headers or in the body', () =>
    heard([PACKAGE], (outcome, tookMs, what) => {
      assert.equal(outcome, 'completed', what);
      assert.ok(tookMs >= SILENCE_MS, what);
    }));

  test('is given up after 300 s without the plugin', () =>
    heard([], (outcome, tookMs, what) => {
      assert.equal(outcome, 'aborted', what);
      assert.ok(tookMs >= TRANSPORT_MS && tookMs < TRANSPORT_MS + LATE_MS, what);
    }));
});
