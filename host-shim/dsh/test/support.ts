/**
 * A small harness made of the real one's parts: Cordis, its loader and the LLM service. What is counted is counted at the
 * backend, an adapter of ours that keeps every stream open until a test ends it.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Context } from '@deepseek-ai/cordis';
import { Loader, type Entry } from '@deepseek-ai/cordis-plugin-loader';
import LlmRuntime, { CallId, LlmAdapter, type GenerateOptions, type LlmResolvedModelInfo, type StreamChunk } from '@deepseek-ai/dsh-llm';
import type { Options } from '../../node/index.d.ts';
import type { Gate } from '../src/gate.ts';
import { Config } from '../src/index.ts';
import type { Parts } from '../src/load.ts';
import { mount } from '../src/plugin.ts';
import type { Requests } from '../src/requests.ts';

const root = new URL('../../../', import.meta.url);

/** The parts as they are built. */
export const PARTS: Parts = {
  addon: fileURLToPath(new URL('host-shim/node/gen-limit.node', root)),
  component: fileURLToPath(new URL('target/component/gen-limit.wasm', root)),
};

const folders: string[] = [];
process.once('exit', () => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));

/** A folder that is gone when the tests are. */
export function temporary(): string {
  const folder = mkdtempSync(join(tmpdir(), 'gen-limit-'));
  folders.push(folder);
  return folder;
}

/** One call at the backend. */
export class Call {
  readonly session: string | undefined;
  readonly model: string;
  readonly options: GenerateOptions;
  open = true;
  /** Does not hear its signal. */
  deaf = false;
  #steps: Array<{ chunk: StreamChunk } | { error: unknown } | 'end'> = [];
  #wake: () => void = () => undefined;

  constructor(options: GenerateOptions) {
    this.options = options;
    this.session = options.sessionId;
    this.model = options.model;
  }

  #push(...steps: Array<{ chunk: StreamChunk } | { error: unknown } | 'end'>): void {
    this.#steps.push(...steps);
    this.#wake();
  }

  say(text: string): void {
    this.#push({ chunk: { type: 'text-delta', index: 0, text } });
  }

  end(text = 'done'): void {
    const block = { type: 'text', text } as const;
    this.#push(
      { chunk: { type: 'block-start', index: 0, blockType: 'text' } },
      { chunk: { type: 'block-end', index: 0, block } },
      { chunk: { type: 'finish', reason: { kind: 'stop' } } },
      'end',
    );
  }

  /** Ends with tool calls, as a model does that wants something done. */
  ask(...tools: Array<{ name: string; arguments: unknown }>): void {
    tools.forEach((tool, index) => {
      const block = { type: 'tool-call', id: CallId(randomUUID()), name: tool.name, arguments: JSON.stringify(tool.arguments) } as const;
      this.#push({ chunk: { type: 'block-start', index, blockType: 'tool-call' } }, { chunk: { type: 'block-end', index, block } });
    });
    this.#push({ chunk: { type: 'finish', reason: { kind: 'tool-calls' } } }, 'end');
  }

  /** The last thing a person or a parent asked for. */
  get prompt(): string {
    const asked = this.options.messages.findLast(({ source }) => source?.kind === 'user');
    return asked?.content.map((block) => (block.type === 'text' ? block.text : '')).join('') ?? '';
  }

  fail(error: unknown): void {
    this.#push({ error });
  }

  async *chunks(): AsyncGenerator<StreamChunk, undefined> {
    const { signal } = this.options;
    const onAbort = (): void => {
      if (!this.deaf) this.fail(signal?.reason);
    };
    signal?.addEventListener('abort', onAbort);
    try {
      signal?.throwIfAborted();
      for (;;) {
        const step = this.#steps.shift();
        if (step === undefined) await new Promise<void>((resolve) => (this.#wake = resolve));
        else if (step === 'end') return undefined;
        else if ('error' in step) throw step.error;
        else yield step.chunk;
      }
    } finally {
      this.open = false;
      signal?.removeEventListener('abort', onAbort);
    }
  }
}

/** The world's end: what really generates. */
export class Backend extends LlmAdapter {
  readonly calls: Call[] = [];
  peakSessions = 0;
  /** What to do with a call as it arrives, instead of keeping it open. */
  onCall: (call: Call) => void = () => undefined;

  override stream(options: GenerateOptions): AsyncIterable<StreamChunk> {
    const call = new Call(options);
    this.calls.push(call);
    this.peakSessions = Math.max(this.peakSessions, new Set(this.open.map((call) => call.session ?? call)).size);
    this.onCall(call);
    return call.chunks();
  }

  override async resolveModel(provider: string, model: string): Promise<LlmResolvedModelInfo> {
    return { provider, id: model, name: model, context: { contextWindow: 100_000 } };
  }

  get open(): Call[] {
    return this.calls.filter(({ open }) => open);
  }

  /** The sessions that generate now. */
  get sessions(): Array<string | undefined> {
    return this.open.map(({ session }) => session);
  }

  /** The open call of a session. */
  of(session: string): Call {
    const call = this.open.find((call) => call.session === session);
    if (call === undefined) throw new Error(`${session} does not generate; ${this.sessions.join(', ') || 'nobody'} does`);
    return call;
  }
}

/** One consumer and what it got. */
export interface Reading {
  readonly chunks: StreamChunk[];
  /** Settles when the stream has ended, with what it threw if it did. */
  readonly done: Promise<unknown>;
  readonly controller: AbortController;
  ended: boolean;
}

/** What the component tells of itself, as far as tests look at it. */
export interface Stats {
  entries: Array<{ provider: string; model: string; active: number; waiting: number }>;
  scopes: Array<{ scope: string; max: number; occupancy: number; credits: number; waiting: number }>;
  holders: Array<{ session: string | null }>;
  waiters: Array<{ session: string | null }>;
  holdersTotal: number;
  waitersTotal: number;
  credits: number;
  totals: Record<string, number>;
  host: { problems: Array<{ path: string; message: string }> };
}

/** A limit on the provider every test calls. */
export function limit(max: unknown, more: Record<string, unknown> = {}): Record<string, unknown> {
  return { limits: [{ provider: 'box', model: '*', max }], ...more };
}

/** What a world is made with. */
export interface Making {
  readonly config?: unknown;
  readonly parts?: Partial<Parts>;
  readonly options?: Options;
  /** Keeps the home of an earlier world. */
  readonly home?: string;
}

/** Those that have not been ended yet. */
const worlds = new Set<World>();

// The bench makes worlds as well, and the test runner would slow every promise it counts.
if (process.argv[1]?.endsWith('.test.ts')) {
  afterEach(async () => {
    for (const world of [...worlds].toReversed()) await world.end();
  });
}

/** A harness with our plugin on one row. */
export class World {
  readonly ctx = new Context();
  readonly backend = new Backend();
  readonly home: string;
  readonly stderr: string[] = [];
  /** The sessions of the calls that our plugin let go on, in order. */
  readonly let: Array<string | undefined> = [];
  /** A module around the plugin, in its place on the row. */
  wrap: ((ctx: Context, plugin: object) => Promise<void>) | undefined;
  #entry: Entry | undefined;
  #living: { gate: Gate; requests: Requests } | undefined;
  #write = process.stderr.write;

  static async make(making: Making = {}): Promise<World> {
    const world = new World(making.home);
    await world.start(making);
    return world;
  }

  constructor(home = temporary()) {
    this.home = home;
    worlds.add(this);
    process.env['DSH_HOME'] = home;
    process.stderr.write = ((text: unknown) => {
      this.stderr.push(String(text));
      return true;
    }) as typeof process.stderr.write;
  }

  async start({ config, parts, options }: Making): Promise<void> {
    await this.ctx.plugin(Loader as never, {} as never);
    await this.ctx.plugin(LlmRuntime);
    this.ctx.llm.registerAdapter(['box', 'other'], this.backend);
    await this.furnish();
    // A busy machine may keep a test from running for longer than a call is given; only what loops is to be stopped.
    const used = { ...PARTS, options: { manualClock: true, callMs: 10_000, ...options }, ...parts };
    // Two modules with the same plugin: what a replaced module is.
    for (const name of ['gen-limit', 'gen-limit-new']) {
      const plugin = { name: 'gen-limit', Config, apply: (ctx: Context, config: unknown) => mount(ctx, config, used) };
      const { wrap } = this;
      this.ctx.loader.builtins[name] = wrap === undefined ? plugin : { name: 'wrapped', apply: (ctx: Context) => wrap(ctx, plugin) };
    }
    this.ctx.on('llm/stream', ({ sessionId }, next) => {
      this.let.push(sessionId);
      return next();
    });
    await this.ctx.loader.create({ id: 'gen-limit', name: 'cordis:gen-limit', config } as never);
    this.#entry = this.ctx.loader.resolve('gen-limit');
    await this.gate.ready;
    // What is said once it is ready is said in the same turn.
    await setImmediate();
  }

  /** Mounts what else the harness is to have. */
  protected async furnish(): Promise<void> {}

  get entry(): Entry {
    return this.#entry ?? fail('the harness has not started');
  }

  /** What lives on the row; also after the row is gone. */
  get living(): { gate: Gate; requests: Requests } {
    const rows = (globalThis as never)[Symbol.for('@creait/dsh-gen-limit.rows.2')] as WeakMap<object, { gate: Gate; requests: Requests }>;
    return (this.#living = rows.get(this.entry) ?? this.#living) ?? fail('nothing lives on the row');
  }

  get gate(): Gate {
    return this.living.gate;
  }

  get stats(): Stats {
    const { gate, requests } = this.living;
    return gate.limiter === undefined ? fail('the component is not at work') : (requests.stats() as Stats);
  }

  /** Seats held of the limit that `limit()` sets. */
  get occupancy(): number {
    return this.stats.scopes.find(({ scope }) => scope === 'box/*')?.occupancy ?? 0;
  }

  get waiting(): number {
    return this.stats.waitersTotal;
  }

  /** Begins to read a stream, as the harness's loop does. */
  read(session?: string, more: Partial<GenerateOptions> = {}): Reading {
    const controller = new AbortController();
    const reading: Reading = { chunks: [], controller, ended: false, done: Promise.resolve() };
    const stream = this.stream(session, { signal: controller.signal, ...more });
    const read = async (): Promise<unknown> => {
      try {
        for await (const chunk of stream) reading.chunks.push(chunk);
        return undefined;
      } catch (error) {
        return error;
      } finally {
        reading.ended = true;
      }
    };
    return Object.assign(reading, { done: read() });
  }

  stream(session?: string, more: Partial<GenerateOptions> = {}): AsyncIterable<StreamChunk> {
    const of = session === undefined ? {} : { sessionId: session as never };
    return this.ctx.llm.stream({ provider: 'box', model: 'm', messages: [], ...of, ...more });
  }

  async edit(config: unknown): Promise<void> {
    await this.ctx.loader.update('gen-limit', { config } as never);
    await settled();
  }

  async restart(): Promise<void> {
    await this.entry.fiber?.restart();
  }

  async replace(): Promise<void> {
    await this.entry.update({ name: 'cordis:gen-limit-new' });
  }

  async disable(): Promise<void> {
    await this.ctx.loader.update('gen-limit', { disabled: true } as never);
  }

  async remove(): Promise<void> {
    await this.ctx.loader.remove('gen-limit');
  }

  async shutDown(): Promise<void> {
    await this.ctx.fiber.dispose();
  }

  /** Ends every call, also those that come to run meanwhile, and the harness. Done after each test by itself. */
  async end(): Promise<void> {
    if (!worlds.delete(this)) return;
    process.stderr.write = this.#write;
    this.backend.onCall = (call) => call.end();
    for (const call of this.backend.open) call.end();
    await settled();
    await this.shutDown();
  }
}

/** Lets everything happen that needs no time. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await setImmediate();
}

/** Lets the event loop turn until something is so; what never becomes so fails the test by its timeout. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await setImmediate();
  await settled();
}

export function fail(message: string): never {
  throw new Error(message);
}
