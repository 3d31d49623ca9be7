/** A harness that is brought calls, by its own waterfall; at the end of it stands a backend that costs next to nothing. */
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import type { Options } from '../../node/index.d.ts';
import { World } from '../test/support.ts';

const chunk: StreamChunk = { type: 'text-delta', index: 0, text: 'x' };
const step = Promise.resolve({ done: false, value: chunk });
const end = Promise.resolve({ done: true, value: undefined });

/** A stream of so many chunks. */
function source(chunks: number): AsyncIterable<StreamChunk> {
  let left = chunks;
  const iterator = { next: () => (left-- > 0 ? step : end), [Symbol.asyncIterator]: () => iterator };
  return iterator as AsyncIterable<StreamChunk>;
}

async function drain(stream: AsyncIterable<StreamChunk>): Promise<void> {
  for await (const _ of stream);
}

type Waterfall = (event: string, argument: object, next: () => unknown) => never;

export class Caller {
  readonly world: World;
  readonly #waterfall: Waterfall;

  private constructor(world: World) {
    this.world = world;
    this.#waterfall = world.ctx.waterfall.bind(world.ctx) as unknown as Waterfall;
  }

  static async make(config: unknown, options: Options = {}): Promise<Caller> {
    return new Caller(await World.make({ config, options: { manualClock: false, ...options } }));
  }

  /** One without the plugin. */
  static async bare(): Promise<Caller> {
    const caller = await Caller.make({});
    await caller.world.remove();
    await new Promise((resolve) => setTimeout(resolve, 300));
    return caller;
  }

  /** A call that is about to begin. */
  stream(sessionId: string, { model = 'm', signal, next = () => source(0) }: { model?: string; signal?: AbortSignal; next?: () => unknown } = {}): AsyncIterable<StreamChunk> {
    return this.#waterfall('llm/stream', { provider: 'box', model, messages: [], sessionId, signal }, next);
  }

  /** Calls of one session, one after the other. */
  async calls(count: number, { chunks = 0, model = 'm' } = {}): Promise<void> {
    for (let call = 0; call < count; call += 1) await drain(this.stream('session-0123456789abcdef', { model, next: () => source(chunks) }));
  }

  /** Calls of a tool that spawns nobody. */
  async tools(count: number): Promise<void> {
    const exec = { name: 'read', arguments: {}, agent: undefined, signal: new AbortController().signal };
    const allow = Promise.resolve({ kind: 'allow' });
    const result = Promise.resolve({});
    for (let call = 0; call < count; call += 1) {
      await this.#waterfall('tools/pre-execute', exec, () => allow);
      await this.#waterfall('tools/execute', exec, () => result);
    }
  }
}
