/** A component that misbehaves inside a real harness: nothing is lost, and the harness keeps answering. */
import assert from 'node:assert/strict';
import { copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { CHAOS, limit } from './dsh.ts';
import { inWorld, TEAM, type World } from './scenario.ts';
import { children, fanOut, gate, ROOT } from './scripts.ts';

const PROMPT = `[s:${ROOT}] split this up`;

/** A headless fan-out of eight with the faulty component at a limit of 2; the children start to end when two generate. */
async function withChaos(chaos: string, test: (world: World, stderr: string) => void): Promise<void> {
  const config = { ...limit(2), maxRestarts: 1_000, chaos };
  const two = gate();
  const script = fanOut({ n: 8, holdMs: 200, until: two.opened });
  await inWorld({ script, profile: TEAM, config }, async (world) => {
    await copyFile(CHAOS, join(world.home.installed, 'gen-limit.wasm'));
    const served = (child: string): boolean => world.server.completed(child);
    const [dsh] = await Promise.all([world.team(PROMPT, () => children(8).every(served)), world.crowd(2, two)]);
    const unserved = children(8).filter((child) => !served(child));
    assert.deepEqual(unserved, [], world.server.describe());
    test(world, dsh.stderr);
  });
}

describe('a component that fails again and again', { concurrency: 2 }, () => {
  for (const calls of [7, 12, 20]) {
    test(`a trap at every ${calls}th call loses neither those who run nor those who wait`, () =>
      withChaos(`trap-in:${calls}`, ({ server, home }, stderr) => {
        assert.match(stderr, /gen-limit: .*trap/i);
        assert.equal(server.peakSessions, 2);
        assert.ok(home.trace().some((line) => line.event === 'wait'), 'somebody waited');
      }));
  }

  // The product lets a call have 80 ms of a processor, which an eater may use up before its memory runs out.
  const stopped: Record<string, [chaos: string, named: RegExp]> = {
    'loops endlessly': ['loop-in:9', /stopped: .*longer than 80 ms/],
    'eats memory': ['eat-in:9', /stopped: .*(memory|longer than 80 ms)/],
  };
  for (const [what, [chaos, named]] of Object.entries(stopped)) {
    test(`one that ${what} is stopped and replaced, and the harness goes on`, () =>
      withChaos(chaos, (_world, stderr) => {
        assert.match(stderr, named);
        assert.match(stderr, /the component was replaced/);
      }));
  }
});
