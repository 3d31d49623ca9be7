/**
 * Patience of the transport: what a provider may keep silent for, its requests may too.
 *
 * Node's `fetch` gives up an answer that stays silent for 300 s, before its headers and in its body alike, whatever idle
 * timeout the provider's settings declare. So requests made for a provider that declares a longer one get that, and a little
 * more, so that the harness's own watchdog comes first and says what happened.
 *
 * | a request | gets the timeouts of |
 * |---|---|
 * | inside a call, to the origin of its provider's `baseURL` | its provider |
 * | inside a call of a provider without a `baseURL`, which is the adapter's affair then | its provider |
 * | inside a call, to anywhere else | nobody |
 * | outside any call, to the origin of a declared `baseURL` | the most patient provider there |
 *
 * A timeout that a request already has is never shortened, and 0 is none.
 *
 * # How
 *
 * Whatever copy of undici makes a request, Node's own included, publishes it on the channel `undici:request:create` before
 * it goes anywhere, and reads its timeouts later. They are set there. So nothing of the process is replaced: dispatchers
 * keep their places, whoever installs or removes one at whatever time, a proxy keeps its requests, and to stop is to listen
 * no more. (A wrapper around the global dispatcher is lost as soon as somebody installs another, never sees a request that
 * brings its own, and cannot be taken out from under one that was put around it.) Nobody listens while no provider declares
 * a longer timeout.
 *
 * What providers declare is looked up again when something has changed that may concern it, once for all that changes
 * together, because the harness takes milliseconds to tell; a call that comes earlier looks first.
 */
import type { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Context, Fiber } from '@deepseek-ai/cordis';
import type {} from '@deepseek-ai/dsh-llm';
import type {} from '@deepseek-ai/dsh-settings';
import { describe } from './gate.ts';
import type { Reporter } from './report.ts';
import { ACTIVE } from './row.ts';
import type { Running } from './stream.ts';

const CREATED = 'undici:request:create';

/** What the transport waits for by itself, and how much longer than declared it is made to, in milliseconds. */
const DEFAULT_MS = 300_000;
const GRACE_MS = 30_000;

/** How long changes are collected before they are looked at, in milliseconds. */
const LULL_MS = 100;

/** The longest timeout that timers keep. */
const MAX_MS = 2 ** 31 - 1;

/** Other times than the real ones, for tests that cannot wait that long. */
export interface Scale {
  readonly defaultMs: number;
  readonly graceMs: number;
}

/** What a provider's settings say of its transport. */
interface Patience {
  readonly ms: number;
  /** Undefined if its calls may ask anywhere. */
  readonly origin: string | undefined;
}

/** What undici publishes, as far as it is looked at. */
interface Created {
  readonly request: {
    readonly origin: unknown;
    readonly method: string;
    readonly path: string;
    headersTimeout?: number | null;
    bodyTimeout?: number | null;
  };
}

export class Transport {
  #root: Context;
  #within: AsyncLocalStorage<Running>;
  #say: Reporter;
  #scale: Scale;
  #providers: ReadonlyMap<string, Patience> = new Map();
  #origins: ReadonlyMap<string, number> = new Map();
  /** Whether something has changed since the last look. */
  #stale = false;
  #timer: NodeJS.Timeout | undefined;
  #complaint: string | undefined;
  #listeners: Array<() => unknown>;

  constructor(root: Context, within: AsyncLocalStorage<Running>, say: Reporter, scale = { defaultMs: DEFAULT_MS, graceMs: GRACE_MS }) {
    this.#root = root;
    this.#within = within;
    this.#say = say;
    this.#scale = scale;
    const changed = (): void => this.#changed();
    const all = { global: true };
    this.#listeners = [
      root.on('llm/adapters-updated', changed, all),
      // The first of these two is 0.1's alone.
      root.on('settings/updated', changed, all),
      root.on('settings/document-updated', changed, all),
      // Who brings providers or settings has brought them when it has come up, and tells nobody.
      root.on('internal/status', (fiber) => bringsProviders(fiber) && changed(), all),
    ];
    changed();
  }

  /** To be called before a call asks its backend: what has changed is in force for it. */
  renew(): void {
    if (!this.#stale) return;
    clearTimeout(this.#timer);
    this.#look();
    // By now also what the look itself has changed: the harness numbers what it has not been asked for before.
    this.#stale = false;
  }

  stop(): void {
    for (const stop of this.#listeners) stop();
    clearTimeout(this.#timer);
    this.#stale = false;
    this.#follow(new Map());
  }

  #changed(): void {
    if (this.#stale) return;
    this.#stale = true;
    this.#timer = setTimeout(() => this.renew(), LULL_MS).unref();
  }

  #look(): void {
    try {
      this.#follow(new Map(patient(this.#root, this.#scale)));
      this.#complaint = undefined;
    } catch (error) {
      const complaint = describe(error);
      if (complaint !== this.#complaint) this.#say('warn', `what providers declare as streamIdleTimeoutMs cannot be read, it stays as it was: ${complaint}`);
      this.#complaint = complaint;
    }
  }

  #follow(providers: ReadonlyMap<string, Patience>): void {
    const listened = this.#providers.size > 0;
    const origins = new Map<string, number>();
    for (const { origin, ms } of providers.values()) {
      if (origin !== undefined) origins.set(origin, Math.max(ms, origins.get(origin) ?? 0));
    }
    this.#providers = providers;
    this.#origins = origins;
    const listens = providers.size > 0;
    if (listens && !listened) subscribe(CREATED, this.#created);
    if (!listens && listened) unsubscribe(CREATED, this.#created);
  }

  #created = (message: unknown): void => {
    try {
      const { request } = message as Created;
      // How long a proxy takes to open a tunnel says nothing of the provider.
      if (request.method === 'CONNECT') return;
      // A proxy that makes no tunnel is asked for the whole URL.
      const ms = this.#patience(request.path.startsWith('/') ? request.origin : request.path);
      if (ms === undefined) return;
      request.headersTimeout = longer(request.headersTimeout, ms);
      request.bodyTimeout = longer(request.bodyTimeout, ms);
    } catch {
      // Anybody may publish here, anything; and what is thrown here ends the process.
    }
  };

  /** What a request to an origin gets, from where it is made. */
  #patience(to: unknown): number | undefined {
    const call = this.#within.getStore();
    if (!call?.live) return this.#origins.get(originOf(to) ?? '');
    const patience = this.#providers.get(call.provider);
    if (patience?.origin !== undefined && patience.origin !== originOf(to)) return undefined;
    return patience?.ms;
  }
}

function bringsProviders({ state, inject }: Fiber): boolean {
  return state === ACTIVE && ('llm' in inject || 'settings' in inject);
}

/** The providers that declare more than the transport waits for by itself. */
function* patient(root: Context, { defaultMs, graceMs }: Scale): Generator<[string, Patience]> {
  const [llm, settings] = [root.get('llm'), root.get('settings')];
  if (llm === undefined || settings === undefined) return;
  const sections = new Map(settings.describe().map(({ ns, value }) => [String(ns), value]));
  for (const { provider, settingsNs, settingsPath } of llm.listConfigurableProviders()) {
    const profile = settingsPath.reduce(member, sections.get(settingsNs));
    const declared = member(profile, 'streamIdleTimeoutMs');
    if (typeof declared !== 'number' || !(declared > defaultMs)) continue;
    const baseURL = member(profile, 'baseURL') ?? undefined;
    const origin = originOf(baseURL);
    // A `baseURL` that cannot be read leads nowhere.
    if (baseURL === undefined || origin !== undefined) yield [provider, { ms: Math.min(declared + graceMs, MAX_MS), origin }];
  }
}

function member(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? (value as Record<string, unknown>)[key] : undefined;
}

/** The origin of a URL, its port written only where it is not the scheme's own. */
function originOf(url: unknown): string | undefined {
  const origin = URL.parse(String(url))?.origin;
  return origin === 'null' ? undefined : origin;
}

function longer(timeout: number | null | undefined, ms: number): number {
  return timeout === 0 ? 0 : Math.max(timeout ?? 0, ms);
}
