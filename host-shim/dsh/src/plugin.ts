/** Ties the harness's hooks to the gate: what a row's configuration becomes, and where calls come from. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Context } from '@deepseek-ai/cordis';
import type { GenerateOptions, StreamChunk } from '@deepseek-ai/dsh-llm';
import type {} from '@deepseek-ai/dsh-agent';
import type {} from '@deepseek-ai/dsh-session';
import type {} from '@deepseek-ai/dsh-subagent';
import type {} from '@deepseek-ai/dsh-tools';
import { answer } from './asks.ts';
import { tooOld } from './compat/harness.ts';
import { Enforcement } from './enforcement.ts';
import { Gate, describe } from './gate.ts';
import { load, packaged, type Parts } from './load.ts';
import { reporter, type Reporter } from './report.ts';
import { Requests } from './requests.ts';
import { isEnding, leave, settle, type Living } from './row.ts';
import { Document } from './settings.ts';
import { Spawns } from './spawns.ts';
import { Stored } from './stored.ts';
import { GatedStream, type Running } from './stream.ts';
import { Trace } from './trace.ts';
import { Transport } from './transport.ts';
import { Web } from './web.ts';

/** Mounts the plugin on a row. */
export function mount(ctx: Context, config: unknown, parts: Parts = packaged()): void {
  try {
    settle(ctx, config, () => new Plugin(ctx, parts));
  } catch (error) {
    // Whatever it is, a harness that does not start is worse.
    reporter(ctx.root)('error', `not mounted, nothing is limited: ${describe(error)}`);
  }
}

class Plugin implements Living {
  readonly gate: Gate;
  readonly requests: Requests;
  #web: Web;
  readonly settings: Document;
  #enforcement: Enforcement;
  #spawns: Spawns;
  #transport: Transport;
  #say: Reporter;
  #listeners: Array<() => unknown>;
  #within = new AsyncLocalStorage<Running>();
  #parts: Parts;

  constructor(ctx: Context, parts: Parts) {
    const { root } = ctx;
    this.#parts = parts;
    this.#say = reporter(root);
    // The profile's own rows are all included by one; its name says nothing.
    const row = ctx.fiber.entry?.id.replace(/^include:/u, '') ?? 'gen-limit';
    this.settings = new Document(new Stored(ctx.baseUrl, row, 'taken-over'), this.#say);
    const trace = Trace.fromEnvironment();
    this.gate = new Gate(this.#say, trace, false, () => isEnding(root));
    this.requests = new Requests(this.gate, (ask) => answer(ask, root, this.settings));
    this.#enforcement = new Enforcement(this.gate, this.settings, new Stored(ctx.baseUrl, row), () => this.requests.stats(), this.#say);
    this.settings.onChange = () => this.#changed();
    this.gate.onLog = () => this.#enforcement.retry();
    this.gate.onParting = (limiter) => {
      trace?.stats(this.requests.stats(), limiter);
      this.requests.close();
    };
    this.#web = new Web(root, this.gate, this.requests, this.#say);
    this.#spawns = new Spawns(this.gate);
    this.#transport = new Transport(root, this.#within, this.#say, parts.transport);
    this.#listeners = this.#listen(root);
    void this.#load();
  }

  adopt(ctx: Context, config: unknown): void {
    this.settings.follow(ctx, config);
    this.#changed(true);
    ctx.effect(() => () => leave(ctx), 'gen-limit row');
  }

  stop(): void {
    for (const stop of this.#listeners) stop();
    this.#web.stop();
    this.#transport.stop();
  }

  async #load(): Promise<void> {
    try {
      const old = tooOld();
      if (old !== undefined) throw new Error(old);
      const [limiter] = await Promise.all([load(this.#parts), this.settings.ready]);
      // Meanwhile the row may have gone, or another load come first.
      if (!this.gate.loading && !this.gate.failed) return;
      this.#enforcement.begin(limiter);
      this.gate.open(limiter);
      this.#web.serve(limiter.paths());
      this.#enforcement.announce(limiter);
    } catch (error) {
      // As above: this failure is nobody's any more.
      if (!this.gate.loading && !this.gate.failed) return;
      this.gate.fail(describe(error));
      const effect = this.gate.closed ? 'are refused' : 'pass unlimited';
      this.#say('error', `${describe(error)}; until that is put right and the plugin restarted or its row edited, calls ${effect}`);
    }
  }

  /** The configuration may have changed; whoever mounts us again may have put right what kept the component from coming up. */
  #changed(mounted = false): void {
    const changed = this.#enforcement.renew();
    if (this.gate.failed && (changed || mounted)) void this.#load();
  }

  /** Listens at the root, so that calls are seen also while the plugin is between two mountings. */
  #listen(root: Context): Array<() => unknown> {
    const { gate } = this;
    const spawns = this.#spawns;
    const first = { prepend: true, global: true };
    return [
      root.on('llm/stream', (options, next) => this.#stream(root, options, next), first),
      root.on('tools/pre-execute', (exec, next) =>
        gate.loading || gate.tools.has(exec.name) ? spawns.preExecute(exec, next) : next(), first),
      // The earlier of these two counts: the first never comes for a call that was stopped before its body, the second only
      // after those of the calls before it.
      root.on('tools/execute', (exec, next) => (spawns.runs(exec) ? spawns.execute(exec, next) : next()), first),
      root.on('tools/result', (exec, result) => void spawns.ended(exec, result), first),
      root.on('subagent/start', ({ id }) => {
        const session = root.get('sessions')?.get(id);
        const { provider, model } = root.get('agents')?.get(id)?.options ?? {};
        const route = provider === undefined || model === undefined ? undefined : { provider, model };
        spawns.started(id, session?.header.parentSession, route, session);
      }, first),
      root.on('subagent/end', ({ id }) => spawns.stopped(id), first),
    ];
  }

  #stream(root: Context, options: GenerateOptions, next: () => AsyncIterable<StreamChunk>): AsyncIterable<StreamChunk> {
    const { provider, model, sessionId, signal, purpose } = options;
    return new GatedStream({
      gate: this.gate,
      provider,
      within: this.#within,
      signal,
      next: () => {
        this.#transport.renew();
        return next();
      },
      start: () => {
        const session = sessionId === undefined ? undefined : root.get('sessions')?.get(sessionId);
        const { first, spawn } = this.#spawns.calls(sessionId, session);
        const info = { kind: 'stream', session: sessionId, provider, model } as const;
        return this.gate.startStream(info, first, spawn, this.#within.getStore()?.id, purpose);
      },
    });
  }
}
