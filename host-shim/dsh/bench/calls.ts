/**
 * What a call, a chunk of its stream and a tool call cost, through the harness's own waterfall:
 *
 *   cargo xtask bench calls [--json]
 */
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import { Caller } from './caller.ts';
import { added, ns, ratio, tell, turns, type Taken } from './measure.ts';

const ROUNDS = 15;
const CALLS = 4_000;
const CHUNKS = 50_000;

async function* passing(next: () => AsyncIterable<StreamChunk>): AsyncIterable<StreamChunk> {
  yield* next();
}

/** So many rows, of which the last is for the route that is called. */
const rows = (count: number): unknown => ({
  limits: Array.from({ length: count }, (_, n) => ({ provider: 'box', model: n === count - 1 ? 'm' : `other-${n}`, max: 4 })),
});

const bare = await Caller.bare();
const generator = await Caller.bare();
generator.world.ctx.on('llm/stream', (_options, next) => passing(next), { prepend: true });
const listener = await Caller.bare();
listener.world.ctx.on('llm/stream', (_options, next) => next(), { prepend: true, global: true });
listener.world.ctx.on('tools/pre-execute', (_exec, next) => next(), { prepend: true, global: true });
const none = await Caller.make({});
const one = await Caller.make(rows(1));
const hundred = await Caller.make(rows(100));
const many = await Caller.make(rows(10_000));

const free = { model: 'free' };
const calls = await turns(ROUNDS, CALLS, {
  bare: () => bare.calls(CALLS),
  listener: () => listener.calls(CALLS),
  generator: () => generator.calls(CALLS),
  none: () => none.calls(CALLS),
  one: () => one.calls(CALLS),
  oneFree: () => one.calls(CALLS, free),
  hundred: () => hundred.calls(CALLS),
  many: () => many.calls(CALLS),
  manyFree: () => many.calls(CALLS, free),
});
const chunks = await turns(ROUNDS, CHUNKS, {
  bare: () => bare.calls(1, { chunks: CHUNKS }),
  generator: () => generator.calls(1, { chunks: CHUNKS }),
  ours: () => one.calls(1, { chunks: CHUNKS }),
});
const tools = await turns(ROUNDS, CALLS, {
  bare: () => bare.tools(CALLS),
  listener: () => listener.tools(CALLS),
  ours: () => one.tools(CALLS),
});

const over = (taken: Taken, base: Taken): number => taken.median - base.median;

tell([
  ns('a call, no plugin', calls.bare),
  added('  a listener that passes it on adds', calls.listener, calls.bare),
  added('  a pass-through async generator adds', calls.generator, calls.bare),
  added('  ours adds, 0 rows', calls.none, calls.bare),
  added('  ours adds, 1 row, limited', calls.one, calls.bare, 2_600),
  added('  ours adds, 1 row, a route without a limit', calls.oneFree, calls.bare),
  added('  ours adds, 100 rows, limited', calls.hundred, calls.bare),
  added('  ours adds, 10 000 rows, limited', calls.many, calls.bare),
  added('  ours adds, 10 000 rows, a route without a limit', calls.manyFree, calls.bare),
  ratio('  10 000 rows to 1 row, of what is added', over(calls.many, calls.bare) / over(calls.one, calls.bare), 1.1),
  ns('a chunk, no plugin', chunks.bare),
  added('  yield* of an async generator adds', chunks.generator, chunks.bare),
  added('  ours adds', chunks.ours, chunks.bare, 60),
  ratio('  ours to yield*, of what is added', over(chunks.ours, chunks.bare) / over(chunks.generator, chunks.bare), 0.6),
  ns('a tool call that is no spawn, no plugin', tools.bare),
  added('  a listener that passes it on adds', tools.listener, tools.bare),
  added('  ours adds', tools.ours, tools.bare, 300),
]);
process.exit();
