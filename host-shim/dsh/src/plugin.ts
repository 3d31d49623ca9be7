/** Ties the harness's hooks to the gate: what a row's configuration becomes, and where calls come from. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Context } from '@deepseek-ai/cordis';
import type { GenerateOptions, StreamChunk } from '@deepseek-ai/dsh-llm';
import type {} from '@deepseek-ai/dsh-agent';
import type {} from '@deepseek-ai/dsh-session';
import type {} from '@deepseek-ai/dsh-subagent';
import type {} from '@deepseek-ai/dsh-tools';
import type { Configured, Limiter, Problem } from '../../node/index.d.ts';
import manifest from '../package.json' with { type: 'json' };
import { tooOld } from './compat/harness.ts';
import { Gate, describe } from './gate.ts';
import { load, packaged, type Parts } from './load.ts';
import { reporter, type Reporter } from './report.ts';
import { isEnding, leave, settle, type Living } from './row.ts';
import { Spawns } from './spawns.ts';
import { stats } from './stats.ts';
import { Stored } from './stored.ts';
import { GatedStream } from './stream.ts';
import { Trace } from './trace.ts';

/** The largest row that is looked at, in bytes of its JSON: a hundred times what a large installation needs. */
const MAX_CONFIG = 1 << 20;

/** Mounts the plugin on a row. */
export function mount(ctx: Context, config: unknown, parts: Parts = packaged()): void {
  try {
    settle(ctx, config, () => new Plugin(ctx, config, parts));
  } catch (error) {
    // Whatever it is, a harness that does not start is worse.
    reporter(ctx.root)('error', `not mounted, nothing is limited: ${describe(error)}`);
  }
}

class Plugin implements Living {
  readonly gate: Gate;
  #spawns: Spawns;
  #say: Reporter;
  #config: string;
  #stored: Stored;
  /** Whether a configuration without a mistake is in force, and whether the newest has one. */
  #good = false;
  #wrong = false;
  /** Whether the newest came while the component was failing, and could not be taken. */
  #missed = false;
  #listeners: Array<() => unknown>;
  #within = new AsyncLocalStorage<number>();
  #parts: Parts;

  constructor(ctx: Context, config: unknown, parts: Parts) {
    const { root } = ctx;
    this.#parts = parts;
    this.#say = reporter(root);
    // The profile's own rows are all included by one; its name says nothing.
    this.#stored = new Stored(ctx.baseUrl, ctx.fiber.entry?.id.replace(/^include:/u, '') ?? 'gen-limit');
    this.#config = toJson(config);
    this.gate = new Gate(this.#say, Trace.fromEnvironment(), this.#asksClosed(), () => isEnding(root));
    this.gate.onLog = () => this.#retry();
    this.#spawns = new Spawns(this.gate);
    this.#listeners = this.#listen(root);
    void this.#load();
  }

  adopt(ctx: Context, config: unknown): void {
    this.#configure(config);
    // Not calling the rest of the chain keeps the harness from restarting us for an edit.
    const stop = ctx.on('internal/update', (next) => this.#configure(next));
    ctx.effect(() => () => {
      stop();
      leave(ctx);
    }, 'gen-limit row');
  }

  stop(): void {
    for (const stop of this.#listeners) stop();
  }

  async #load(): Promise<void> {
    try {
      const old = tooOld();
      if (old !== undefined) throw new Error(old);
      const limiter = await load(this.#parts);
      // Meanwhile the row may have gone, or another load come first.
      if (!this.gate.loading && !this.gate.failed) return;
      // What another one had in force is not in force in this one.
      this.#good = false;
      this.#apply(limiter);
      this.gate.open(limiter);
      this.#announce(limiter);
    } catch (error) {
      // As above: this failure is nobody's any more.
      if (!this.gate.loading && !this.gate.failed) return;
      this.gate.fail();
      const effect = this.gate.closed ? 'are refused' : 'pass unlimited';
      this.#say('error', `${describe(error)}; until that is put right and the plugin restarted or its row edited, calls ${effect}`);
    }
  }

  #configure(config: unknown): void {
    this.#config = toJson(config);
    const { limiter } = this.gate;
    if (limiter === undefined) {
      this.gate.closed = this.#asksClosed();
      // Whoever restarts or edits a plugin that could not load may have put it right.
      if (this.gate.failed) void this.#load();
      return;
    }
    this.#enforce(limiter);
    const state = this.gate.limiter?.status().state;
    this.#missed = this.#wrong && state !== undefined && state !== 'running';
  }

  /** A component that is back may take what it could not take before; once, because it may have failed over just that. */
  #retry(): void {
    const { limiter } = this.gate;
    if (!this.#missed || limiter?.status().state !== 'running') return;
    this.#missed = false;
    this.#enforce(limiter);
  }

  #enforce(limiter: Limiter): void {
    const wasWrong = this.#wrong;
    this.#apply(limiter);
    this.gate.refresh();
    if (wasWrong && !this.#wrong) this.#announce(limiter);
  }

  /** What `onFailure` says while there is no component to judge the row: its own word, or else that of the last good one. */
  #asksClosed(): boolean {
    return (onFailure(this.#config) ?? onFailure(this.#stored.read())) === 'closed';
  }

  /** Puts the row's configuration in force, or what comes nearest to it. */
  #apply(limiter: Limiter): void {
    const { applied, problems } = this.#take(limiter, this.#config);
    this.#wrong = !applied;
    if (!applied) {
      this.#say('error', `${list(problems)}; ${this.#fallBack(limiter)} is in force`);
      return;
    }
    this.#good = true;
    try {
      this.#stored.write(this.#config);
    } catch (error) {
      this.#say('warn', `the configuration is in force but could not be stored: ${describe(error)}`);
    }
  }

  /** Puts in force what comes nearest to a row that is wrong, and names it. */
  #fallBack(limiter: Limiter): string {
    if (!this.#good) {
      const stored = this.#stored.read();
      this.#good = stored !== undefined && this.#take(limiter, stored).applied;
      // Asked last, so that whoever reads stats is told what is wrong with the row.
      if (this.#good) this.#take(limiter, this.#config);
    }
    if (this.#good) return 'the last good configuration';
    return this.#take(limiter, this.#config, true).applied ? 'what is valid of the row' : 'nothing of it';
  }

  /** Has the component take a configuration. One it cannot even look at is wrong like any other. */
  #take(limiter: Limiter, json: string, lenient = false): Configured {
    try {
      const size = Buffer.byteLength(json);
      if (size > MAX_CONFIG) throw new Error(`the row has ${size} bytes as JSON, more than the ${MAX_CONFIG} that are looked at`);
      const configured = limiter.configure(json, lenient);
      if (configured.applied) this.gate.closed = onFailure(json) === 'closed';
      return configured;
    } catch (error) {
      return { applied: false, problems: [{ path: '', message: describe(error) }] };
    }
  }

  #announce(limiter: Limiter): void {
    try {
      const { scopes } = stats(limiter) as { scopes?: Array<{ scope: string; max: number }> };
      const limits = scopes?.filter(({ max }) => max >= 0).map(({ scope, max }) => `${scope} max ${max}`) ?? ['its limits it does not tell'];
      const what = limits.length === 0 ? 'inactive: no limits set' : limits.join(', ');
      this.#say('info', `${manifest.version}, component ${limiter.status().sha256.slice(0, 12)}; ${what}`, true);
    } catch (error) {
      this.#say('warn', `the configuration is in force but does not tell what it limits: ${describe(error)}`);
    }
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
      within: this.#within,
      signal,
      next,
      start: () => {
        const session = sessionId === undefined ? undefined : root.get('sessions')?.get(sessionId);
        const { first, spawn } = this.#spawns.calls(sessionId, session);
        const info = { kind: 'stream', session: sessionId, provider, model } as const;
        return this.gate.startStream(info, first, spawn, this.#within.getStore(), purpose);
      },
    });
  }
}

/** The one key we read ourselves: it says what to do when there is nobody else to read it. */
function onFailure(json = ''): 'open' | 'closed' | undefined {
  try {
    const config: unknown = JSON.parse(json);
    if (typeof config !== 'object' || config === null || !('onFailure' in config)) return undefined;
    return config.onFailure === 'open' || config.onFailure === 'closed' ? config.onFailure : undefined;
  } catch {
    return undefined;
  }
}

/** The row's configuration as text for the component. What JSON cannot say becomes text too, so that it is seen. */
function toJson(config: unknown): string {
  const visible = (_key: string, value: unknown): unknown => {
    if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
    return typeof value === 'bigint' || typeof value === 'symbol' || typeof value === 'function' ? String(value) : value;
  };
  return JSON.stringify(config ?? {}, visible);
}

function list(problems: readonly Problem[]): string {
  return problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ');
}
