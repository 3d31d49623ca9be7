/** No path skips the gate: each way the harness has of reaching a model waits at a paused limit and goes on when it is raised. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { Harness } from './harness.ts';
import { limit, until } from './support.ts';

const PATHS: Record<string, (harness: Harness) => Promise<unknown> | unknown> = {
  chat: (harness) => harness.prompt('hello'),
  'a direct stream': (harness) => harness.read(undefined).done,
  subagent: (harness) => harness.spawn('child').result,
  fork: (harness) => harness.spawn('child', harness.root, 'subagent_fork').result,
  workflow: (harness) => harness.do('workflow', { meta: { name: 'one', description: 'one child' }, script: "return await agent('child')" }).result,
  compaction: async (harness) => {
    await harness.edit({ limits: [] });
    harness.backend.onCall = (call) => call.end('a long answer '.repeat(200));
    for (const text of ['one', 'two', 'three']) await harness.prompt(text);
    harness.backend.onCall = () => undefined;
    harness.backend.calls.length = 0;
    await harness.edit(limit(0));
    return harness.ctx.compaction.compactNow(harness.root.agent as never, new AbortController().signal);
  },
  title: async (harness) => {
    // The first turn passes; only the title's own call is left to wait.
    await harness.withTitles();
    const { sessionTitle } = harness.ctx as never as { sessionTitle: { refresh(session: unknown): Promise<unknown> } };
    await harness.edit({ limits: [] });
    harness.backend.onCall = (call) => call.end('hello');
    await harness.prompt('say hello');
    await harness.grown();
    harness.backend.onCall = () => undefined;
    harness.backend.calls.length = 0;
    await harness.edit(limit(0));
    return sessionTitle.refresh(harness.root.agent.session);
  },
};

suite('paths', () => {
  for (const [path, walk] of Object.entries(PATHS)) {
    test(`${path} passes the gate`, { timeout: 60_000 }, async () => {
      const harness = await Harness.make({ config: limit(0) });
      const walked = Promise.resolve(walk(harness));
      await until(() => harness.waiting > 0);
      assert.deepEqual({ waiting: harness.waiting, calls: harness.backend.calls.length }, { waiting: 1, calls: 0 });
      harness.backend.onCall = (call) => call.end('well');
      await harness.edit(limit(1));
      await walked;
      assert.notEqual(harness.backend.calls.length, 0);
      assert.equal(harness.backend.peakSessions, 1);
      assert.equal(harness.occupancy, 0);
    });
  }
});
