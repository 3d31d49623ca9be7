/**
 * The plugin's routes, as a page of the harness sees them. What they answer is described in `docs/openapi.json`; here stands
 * what the card reads of it.
 */

/** One limit as it is configured. What a person stored may be anything; only a valid row is in force. */
export interface Limit {
  readonly provider: string;
  readonly model: string;
  readonly max: number;
  readonly countBy?: CountBy;
  readonly pool?: string;
}

/** One limit over several routes. */
export interface Group {
  readonly name: string;
  readonly routes: readonly Route[];
  readonly max: number;
  readonly countBy?: CountBy;
  readonly pool?: string;
}

/** A provider's id and a model's id; `*` for all models of the provider. */
export interface Route {
  readonly provider: string;
  readonly model: string;
}

export type CountBy = 'session' | 'stream';

/** The configuration, by its keys. */
export interface Config {
  readonly limits?: readonly Limit[];
  readonly groups?: readonly Group[];
  readonly queueTimeoutMs?: number;
  readonly maxQueued?: number;
  readonly maxWaiting?: number;
  readonly countBy?: CountBy;
  readonly headStart?: number;
  readonly maxOvertakes?: number;
  readonly spawnTools?: readonly string[];
  readonly spawnGraceMs?: number;
  readonly onFailure?: 'open' | 'closed';
  readonly maxRestarts?: number;
}

/** What is wrong with one value, and what would be right. */
export interface Problem {
  /** Row and field, such as `limits[2].max`; empty for the whole. */
  readonly path: string;
  readonly message: string;
}

/** The configuration as it is stored and in force. */
export interface Section {
  readonly status: 'ok';
  readonly value: Config;
  readonly writable: boolean;
  readonly revision: string | null;
  readonly inForce: boolean;
  readonly problems: readonly Problem[];
}

/** There is no settings service. */
export interface Unavailable {
  readonly status: 'unavailable';
}

export interface Catalog {
  readonly providers: readonly Provider[];
  readonly error?: string;
}

export interface Provider {
  readonly id: string;
  readonly name: string;
  readonly models: ReadonlyArray<{ readonly id: string; readonly name: string }>;
  readonly error?: string;
}

/** Waits that ended in admission, in milliseconds. */
export interface Waits {
  readonly p50: number;
  readonly p95: number;
  readonly max: number;
  readonly of: number;
}

export interface Refused {
  readonly queueFull: number;
  readonly queueTimeout: number;
  readonly paused: number;
  readonly noPoolSeat: number;
  readonly other: number;
}

export interface Totals {
  readonly admitted: number;
  readonly waited: number;
  readonly refused: Refused;
  readonly cancelled: number;
}

export interface ScopeStats {
  readonly scope: string;
  readonly configured: boolean;
  /** −1 is none, 0 a pause. */
  readonly max: number;
  readonly occupancy: number;
  readonly credits: number;
  readonly waiting: number;
  readonly oldestWaitMs: number | null;
  readonly waitMs: Waits | null;
  readonly meanCallMs: number | null;
  readonly totals: Totals;
}

/** A session, and what people call it. */
export interface Session {
  readonly session: string | null;
  readonly label?: string;
  readonly parent?: string;
  readonly root?: string;
  readonly provider: string;
  readonly model: string;
}

/** A session that generates. */
export interface Holder extends Session {
  readonly calls: number;
  readonly heldMs: number;
}

/** A call or a spawn in line. */
export interface Waiter extends Session {
  readonly id: number;
  readonly kind: 'stream' | 'spawn';
  /** Among those who wait for the same route, from 1. */
  readonly position: number;
  readonly waitedMs: number;
  /** The scope that blocks it and how, with the limit there and how many seats are held. */
  readonly blockedBy: {
    readonly scope: string;
    readonly why: 'full' | 'paused' | 'pool' | 'credits' | 'kept';
    readonly limit: number;
    readonly occupancy: number;
  } | null;
}

export interface Host {
  readonly state: 'running' | 'failed-open' | 'failed-closed' | 'starting';
  readonly policy?: 'open' | 'closed';
  readonly restarts?: number;
  readonly lastError?: string | null;
  readonly reason?: string;
  /** The plugins that decide before the limiter. */
  readonly plugins?: ReadonlyArray<{ readonly name: string; readonly state: string; readonly waiting: number; readonly lastError: string | null }>;
  /** Files of the plugin folder that are not used. */
  readonly refused?: ReadonlyArray<{ readonly file: string; readonly reason: string }>;
}

/** What runs and waits now. Without a component there is only the host to tell of. */
export interface Stats {
  readonly now?: number;
  readonly entries: ReadonlyArray<{ readonly provider: string; readonly model: string; readonly active: number; readonly waiting: number }>;
  readonly scopes?: readonly ScopeStats[];
  readonly holders?: readonly Holder[];
  readonly waiters?: readonly Waiter[];
  readonly scopesTotal?: number;
  readonly holdersTotal?: number;
  readonly waitersTotal?: number;
  readonly truncated?: boolean;
  readonly credits?: number;
  readonly waitMs?: Waits | null;
  readonly totals?: Totals & { readonly since: number; readonly live: number; readonly waiting: number };
  readonly host: Host;
}

/** Why there is no answer. Status 0: nobody answered. */
export class Failure extends Error {
  readonly status: number;
  readonly problems: readonly Problem[];
  /** What the settings are now, where somebody else was quicker. */
  readonly section: Section | undefined;

  constructor(message: string, status = 0, body: { problems?: readonly Problem[]; section?: Section } = {}) {
    super(message);
    this.status = status;
    this.problems = body.problems ?? [];
    this.section = body.section;
  }
}

const BASE = '/api/dsh-gen-limit';
/** How long an answer may take; a write takes up to 13 seconds before the harness gives it up. */
const PATIENCE_MS = 10_000;
const WRITE_MS = 20_000;

export const read = {
  config: (signal?: AbortSignal) => ask<Section | Unavailable>('config', 'status', signal),
  catalog: (signal?: AbortSignal) => ask<Catalog>('catalog', 'providers', signal),
  /** With what people call the sessions, or without: that is most of the cost. */
  stats: (named: boolean, signal?: AbortSignal) => ask<Stats>(`stats?describe=${named}`, 'host', signal),
  /** Of a session and of what it spawned alone. */
  statsOf: (session: string, signal?: AbortSignal) => ask<Stats>(`stats?describe=false&session=${encodeURIComponent(session)}`, 'host', signal),
};

/** Replaces these keys, if the settings are still those of the revision. */
export function change(patch: Config, revision: string | null): Promise<Section> {
  return ask<Section>('config', 'status', undefined, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...patch, revision }),
  });
}

/** The answer to a request, if it has what tells it from answers of another version. */
async function ask<T>(path: string, has: keyof T & string, signal?: AbortSignal, init: RequestInit = {}): Promise<T> {
  const overdue = AbortSignal.timeout(init.method === undefined ? PATIENCE_MS : WRITE_MS);
  const until = signal === undefined ? overdue : AbortSignal.any([signal, overdue]);
  let response: Response;
  let body: unknown;
  try {
    response = await fetch(`${BASE}/${path}`, { ...init, signal: until, cache: 'no-store' });
    body = await response.json().catch((cause: Error) => {
      if (cause.name !== 'SyntaxError') throw cause;
    });
  } catch (cause) {
    throw new Failure(cause instanceof Error ? cause.message : String(cause));
  }
  if (response.ok && (Object(body) as T)[has] !== undefined) return body as T;
  const told = Object(body) as { error?: string; problems?: readonly Problem[]; section?: Section };
  throw new Failure(told.error ?? (response.ok ? 'an answer of another version; load the page anew' : `${response.status} ${response.statusText}`), response.status, told);
}
