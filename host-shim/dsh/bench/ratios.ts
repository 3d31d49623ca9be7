/**
 * What may not get worse unseen, in a few seconds: `test/cost.test.ts` runs it in a process of its own, because the test runner
 * follows every promise.
 *
 * Every figure is a ratio to what the same rounds measure beside it, the least of several rounds in what the process burns. So
 * neither a slow machine nor a busy one changes it much; nor does the engine's compiler, which has no threads of its own here: on
 * a busy machine they would come late in some runs. A bound lies about where the figure would be if ours took
 * twice as long; of what grows with the size of a crowd, three times.
 */
import { setImmediate } from 'node:timers/promises';
import { Caller } from './caller.ts';
import { Crowd, PORTION, spend } from './crowd.ts';
import { burnt } from './measure.ts';

/** Many and short: in some of them nobody disturbs. */
const ROUNDS = 40;
const CALLS = 250;
const CHUNKS = 5_000;
const FEW = 500;
const MANY = 4_000;
const TIMEOUT_MS = 60_000;

/** The least that each of `times` burns, case by case; the cases take turns. */
async function least<K extends string>(times: number, cases: Readonly<Record<K, () => unknown>>): Promise<Record<K, number>> {
  const best: Partial<Record<K, number>> = {};
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const name of Object.keys(cases) as K[]) best[name] = Math.min(best[name] ?? Infinity, await burnt(times, cases[name]));
  }
  return best as Record<K, number>;
}

const settings = (max: number, rows = 1): object => ({
  limits: Array.from({ length: rows }, (_, n) => ({ provider: 'box', model: n === 0 ? 'm' : `other-${n}`, max })),
  maxWaiting: 200_000,
  maxQueued: 200_000,
  queueTimeoutMs: TIMEOUT_MS,
});

const generator = await Caller.bare();
generator.world.ctx.on('llm/stream', async function* (_options, next) {
  yield* next();
}, { prepend: true });
const listener = await Caller.bare();
listener.world.ctx.on('tools/pre-execute', (_exec, next) => next(), { prepend: true, global: true });
const ours = await Caller.make(settings(4));
const many = await Caller.make(settings(4, 10_000));

const calls = await least(CALLS, {
  generator: () => generator.calls(CALLS),
  ours: () => ours.calls(CALLS),
  many: () => many.calls(CALLS),
});
const chunks = await least(CHUNKS, {
  generator: () => generator.calls(1, { chunks: CHUNKS }),
  ours: () => ours.calls(1, { chunks: CHUNKS }),
});
const tools = await least(CALLS, { listener: () => listener.tools(CALLS), ours: () => ours.tools(CALLS) });

/** What each of so many who wait costs, in calls that need not. */
async function crowded(count: number): Promise<Record<'come' | 'drain' | 'leave' | 'expire', number>> {
  const caller = await Caller.make(settings(10), { manualClock: true, callMs: 10_000 });
  const best = { come: Infinity, drain: Infinity, leave: Infinity, expire: Infinity };
  const note = (what: keyof typeof best, ms: number): void => void (best[what] = Math.min(best[what], (ms * 1e6) / count / calls.ours));
  const round = async (end: keyof typeof best, work: (crowd: Crowd, controllers: readonly AbortController[]) => Promise<unknown> | unknown): Promise<void> => {
    const controllers = Array.from({ length: count }, () => new AbortController());
    const crowd = await Crowd.make(caller, 10);
    note('come', (await spend(() => crowd.come(count, (n) => controllers[n]?.signal as AbortSignal))).ms);
    note(end, (await spend(() => work(crowd, controllers), () => crowd.done >= count)).ms);
    await crowd.empty();
  };
  for (let n = 0; n < (count === FEW ? 5 : 2); n += 1) {
    await round('drain', (crowd) => crowd.empty());
    await round('leave', async (_crowd, controllers) => {
      // The youngest first: from an end of the line where nobody is let in.
      for (const [n, controller] of controllers.toReversed().entries()) {
        controller.abort();
        if (n % PORTION === PORTION - 1) await setImmediate();
      }
    });
    await round('expire', () => caller.world.gate.advance(TIMEOUT_MS));
  }
  return best;
}

const [few, crowd] = [await crowded(FEW), await crowded(MANY)];
console.log(JSON.stringify([
  ['a call, to one through a pass-through generator', calls.ours / calls.generator, 4.5],
  ['a call with 10 000 rows, to one with 1', calls.many / calls.ours, 1.5],
  ['a chunk, to one through yield*', chunks.ours / chunks.generator, 1.15],
  ['a tool call that is no spawn, to one with a listener that passes it on', tools.ours / tools.listener, 1.4],
  ['one that comes to wait, to a call', crowd.come, 2.2],
  ['one that waits and is let in, to a call', crowd.drain, 2.6],
  ['one that waits and leaves, to a call', crowd.leave, 2.6],
  ['one whose time is up, to a call', crowd.expire, 1.6],
  ...Object.entries(few).map(([what, cost]) => [`${what}: each of ${MANY} to each of ${FEW}`, crowd[what as keyof typeof crowd] / cost, 3]),
]));
process.exit();
