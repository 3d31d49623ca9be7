/**
 * Walks the listener: whatever can happen to a waiting call happens at each of its await points, from the moment it asks to
 * the moment it has ended, and in between while the seat it waits for is being freed.
 */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import { Harness, type Doing } from './harness.ts';
import { World, limit, settled, until } from './support.ts';

/** The consumer whose call is disturbed. */
interface Subject {
  readonly iterator: AsyncIterator<StreamChunk>;
  readonly controller: AbortController;
}

interface Event {
  /** Does it; what it returns is waited for at the end. */
  readonly happen: (world: World, subject: Subject) => unknown;
  /** What becomes of those who wait and of calls to come. */
  readonly then: 'the subject has left' | 'the line goes on' | 'everybody proceeds' | 'nobody proceeds';
}

const EVENTS: Record<string, Event> = {
  'the consumer walks away': { happen: (_, { iterator }) => iterator.return?.(), then: 'the subject has left' },
  'the consumer throws': {
    happen: (_, { iterator }) => iterator.throw?.(new Error('thrown')).catch(() => undefined),
    then: 'the subject has left',
  },
  'the signal aborts': { happen: (_, { controller }) => controller.abort(new Error('aborted')), then: 'the subject has left' },
  'the row is edited': { happen: (world) => world.edit(limit(1, { maxQueued: 9 })), then: 'the line goes on' },
  'the plugin restarts': { happen: (world) => world.restart(), then: 'the line goes on' },
  'the plugin is replaced': { happen: (world) => world.replace(), then: 'the line goes on' },
  'the row is disabled': { happen: (world) => world.disable(), then: 'everybody proceeds' },
  'the row is removed': { happen: (world) => world.remove(), then: 'everybody proceeds' },
  'the harness shuts down': { happen: (world) => world.shutDown(), then: 'nobody proceeds' },
};

/** Where the walk begins; the subject is `b`, `c` stands behind it. */
const BEGINNINGS: Record<string, (world: World, ask: () => Subject) => Promise<Subject> | Subject> = {
  'it asks': (_world, ask) => ask(),
  'it waits and its seat is freed': async (world, ask) => {
    const subject = ask();
    world.read('c');
    await settled();
    world.backend.of('a').end();
    return subject;
  },
  'it generates': generating,
  'it ends': async (world, ask) => {
    const subject = await generating(world, ask);
    world.backend.of('b').end();
    return subject;
  },
};

async function generating(world: World, ask: () => Subject): Promise<Subject> {
  world.backend.of('a').end();
  await settled();
  const subject = ask();
  world.read('c');
  await settled();
  return subject;
}

/** More microtasks than any of these paths has; the last step is a whole turn of the event loop. */
const STEPS = 40;

suite('walk', () => {
  for (const [beginning, begin] of Object.entries(BEGINNINGS)) {
    for (const [name, { happen, then }] of Object.entries(EVENTS)) {
      test(`${name} at any point after ${beginning}: ${then}`, async () => {
        for (let step = 0; step <= STEPS; step += 1) {
          const world = await World.make({ config: limit(1) });
          world.read('a');
          await settled();
          const ask = (): Subject => {
            const controller = new AbortController();
            const iterator = world.stream('b', { signal: controller.signal })[Symbol.asyncIterator]();
            // Reads to the end, as a loop does, and is not surprised by an abort.
            const read = (): Promise<unknown> => iterator.next().then(({ done }) => done || read(), () => undefined);
            void read();
            return { controller, iterator };
          };
          const subject = await begin(world, ask);
          if (step === STEPS) await settled();
          else for (let microtask = 0; microtask < step; microtask += 1) await undefined;

          const reached = (session: string): number => world.let.filter((call) => call === session).length;
          const before = { b: reached('b'), c: reached('c') };
          const { gate } = world;
          const happened = happen(world, subject);
          if (then === 'everybody proceeds') await until(() => gate.limiter === undefined);
          else await settled();
          const waits = beginning === 'it asks' && before.b === 0;
          const ends = beginning === 'it ends';
          const at = `${step} microtasks on`;
          switch (then) {
            case 'the subject has left':
              assert.equal(reached('b'), before.b, `${at}: b is not let go afterwards`);
              // A backend that has been asked ends in its own time, and holds the seat that long.
              if (before.b === 0) assert.equal(world.backend.sessions.includes('b'), false, `${at}: b does not generate`);
              assert.deepEqual({ open: world.backend.open.length, occupancy: world.occupancy }, { open: 1, occupancy: 1 }, at);
              break;
            case 'the line goes on':
              assert.deepEqual(world.backend.sessions, waits ? ['a'] : ends ? ['c'] : ['b'], `${at}: one generates`);
              assert.equal(world.occupancy, 1, at);
              break;
            case 'everybody proceeds':
              assert.deepEqual(world.backend.sessions, waits ? ['a', 'b'] : ends ? ['c'] : ['b', 'c'], `${at}: all generate`);
              break;
            case 'nobody proceeds':
              assert.deepEqual({ b: reached('b'), c: reached('c') }, before, `${at}: none is let go afterwards`);
              break;
          }
          world.backend.onCall = (call) => call.end();
          for (let turn = 0; turn < 4; turn += 1) {
            for (const call of world.backend.open) call.end();
            await settled();
          }
          await happened;
          assert.deepEqual(world.backend.open, [], `${at}: everybody ends`);
          const { limiter } = world.gate;
          if (limiter !== undefined) {
            const { live, waiting } = limiter.status();
            assert.deepEqual({ live, waiting, occupancy: world.occupancy }, { live: 0, waiting: 0, occupancy: 0 }, at);
          }
        }
      });
    }
  }
});

suite('walk of a spawn', () => {
  const SPAWN_EVENTS: Record<string, { happen: (harness: Harness, doing: Doing) => unknown; then: 'no child' | 'a child' }> = {
    'its signal aborts': { happen: (_, { controller }) => controller.abort(new Error('aborted')), then: 'no child' },
    'the row is edited': { happen: (harness) => harness.edit(limit(1, { maxQueued: 9 })), then: 'a child' },
    'the plugin restarts': { happen: (harness) => harness.restart(), then: 'a child' },
    'the plugin is replaced': { happen: (harness) => harness.replace(), then: 'a child' },
    'the row is disabled': { happen: (harness) => harness.disable(), then: 'a child' },
    'the row is removed': { happen: (harness) => harness.remove(), then: 'a child' },
    'the harness shuts down': {
      // As newer harnesses do: first the plugins are told, then the agents.
      happen: async (harness, { controller }) => {
        const down = harness.shutDown();
        await settled();
        controller.abort(new Error('shutting down'));
        await down;
      },
      then: 'no child',
    },
  };

  for (const [name, { happen, then }] of Object.entries(SPAWN_EVENTS)) {
    test(`${name} at any point after its seat is freed: ${then}`, { timeout: 60_000 }, async () => {
      for (let step = 0; step <= STEPS; step += 4) {
        const harness = await Harness.make({ config: limit(1) });
        let bodies = 0;
        harness.ctx.on('tools/execute', (_exec, next) => {
          bodies += 1;
          return next();
        });
        harness.read('busy');
        await settled();
        harness.backend.onCall = (call) => call.end();
        const doing = harness.spawn('child');
        await settled();
        assert.equal(harness.waiting, 1);
        harness.backend.of('busy').end();
        for (let microtask = 0; microtask < step; microtask += 1) await undefined;

        // Once its body runs, the spawn is the harness's affair, and so is its end.
        if (bodies > 0 && then === 'no child') break;
        const happened = happen(harness, doing);
        const result = await doing.result;
        await happened;
        await harness.grown();
        const at = `${step} microtasks on`;
        assert.equal(result.isError, then === 'no child', at);
        assert.equal(harness.let.length, then === 'no child' ? 1 : 2, `${at}: beside the busy one`);
        const { limiter } = harness.gate;
        if (limiter !== undefined) {
          const { credits, waitersTotal, holdersTotal } = harness.stats;
          assert.deepEqual({ credits, waitersTotal, holdersTotal }, { credits: 0, waitersTotal: 0, holdersTotal: 0 }, at);
        }
        await harness.end();
      }
    });
  }
});
