/**
 * What the gate costs, on this machine and this build of the addon:
 *
 *   node host-shim/dsh/bench.ts
 *
 * For the numbers of a release, build the addon with `cargo xtask pack` first.
 */
import { createRequire } from 'node:module';
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import type * as Addon from '../node/index.d.ts';
import { PARTS, World, limit } from './test/support.ts';

const addon = createRequire(import.meta.url)(PARTS.addon) as typeof Addon;
const component = await addon.Component.load(PARTS.component);

/** The best of several rounds, in processor time: what the work costs when nothing else disturbs it. */
async function best(rounds: number, each: number, work: () => Promise<void> | void): Promise<number> {
  let least = Infinity;
  for (let round = 0; round < rounds; round += 1) {
    const begun = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(begun);
    least = Math.min(least, user + system);
  }
  return (least * 1e3) / each;
}

function say(what: string, nanoseconds: number): void {
  console.log(`${what.padEnd(72)} ${nanoseconds.toFixed(0).padStart(7)} ns`);
}

const CALLS = 20_000;
for (const [what, max] of [['without a limit', -1], ['under a limit', 1_000_000]] as const) {
  const limiter = new addon.Limiter(component, { config: JSON.stringify({ limits: [{ provider: 'box', model: '*', max }] }) });
  const cost = await best(10, CALLS, () => {
    for (let call = 0; call < CALLS; call += 1) {
      limiter.finish(Math.floor(limiter.startStream('box', 'model', 'session-0123456789abcdef', true) / 64), 0);
    }
  });
  say(`start and finish through the addon, three strings, ${what}`, cost);
}

const CHUNKS = 100_000;
const chunk: StreamChunk = { type: 'text-delta', index: 0, text: 'x' };
/** A backend that costs next to nothing, so that what is around it shows. */
const source = (chunks: number): AsyncIterable<StreamChunk> => ({
  [Symbol.asyncIterator]() {
    let left = chunks;
    const step = Promise.resolve({ done: false, value: chunk });
    const end = Promise.resolve({ done: true, value: undefined });
    return { next: () => (left-- > 0 ? step : end) } as AsyncIterator<StreamChunk>;
  },
});
const drain = async (stream: AsyncIterable<StreamChunk>): Promise<void> => {
  for await (const _ of stream);
};

const world = await World.make({ config: limit(1) });
const off = world.ctx.on('llm/stream', () => source(CHUNKS));
const bare = await best(10, CHUNKS, () => drain(source(CHUNKS)));
const gated = await best(10, CHUNKS, () => drain(world.stream('a')));
say('one chunk of a stream, without us', bare);
say('one chunk of a stream, with us', gated);
say('  the difference', gated - bare);
off();

const empty = world.ctx.on('llm/stream', () => source(0));
const whole = await best(10, CALLS, async () => {
  for (let call = 0; call < CALLS; call += 1) await drain(world.stream('a'));
});
say('one whole call through the harness\'s chain, no chunks, with us', whole);
await world.disable();
await new Promise((resolve) => setTimeout(resolve, 300));
const without = await best(10, CALLS, async () => {
  for (let call = 0; call < CALLS; call += 1) await drain(world.stream('a'));
});
say('one whole call through the harness\'s chain, no chunks, without us', without);
empty();
await world.end();
