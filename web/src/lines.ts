/** What stats say of each busy route: who generates there, who waits there, and about when it is their turn. */
import type { Holder, ScopeStats, Stats, Waiter } from './api.ts';
import { nameOfText, scopeOfText, textOf } from './scopes.ts';
import { about, exactly } from './units.ts';
import type { Translate } from './words/index.ts';

/** A holder with what names it among those of its route, also where its session has no id: when it began. */
export interface Held extends Holder {
  readonly key: string;
}

/** A busy route. */
export interface Line {
  /** Its scope's text. */
  readonly scope: string;
  readonly active: number;
  readonly waiting: number;
  /** Those of them that are listed. */
  readonly holders: readonly Held[];
  readonly waiters: readonly Waiter[];
  /** The numbers of its scope, if they are listed. */
  readonly numbers: ScopeStats | undefined;
}

/** The busy routes, in the order of stats. */
export function linesOf(stats: Stats): readonly Line[] {
  const holders = byRoute(keyed(stats));
  const waiters = byRoute(stats.waiters ?? []);
  const numbers = new Map(stats.scopes?.map((scope) => [scope.scope, scope]));
  return stats.entries.map(({ provider, model, active, waiting }) => {
    const scope = textOf({ kind: 'route', provider, model });
    return { scope, active, waiting, holders: holders.get(scope) ?? [], waiters: waiters.get(scope) ?? [], numbers: numbers.get(scope) };
  });
}

function keyed({ now = 0, holders = [] }: Stats): readonly Held[] {
  const twins = new Map<string, number>();
  return holders.map((holder) => {
    if (holder.session !== null) return { ...holder, key: `session ${holder.session}` };
    const began = `call ${now - holder.heldMs} ${textOf({ kind: 'route', ...holder })}`;
    const twin = twins.get(began) ?? 0;
    twins.set(began, twin + 1);
    return { ...holder, key: `${began} ${twin}` };
  });
}

function byRoute<T extends { readonly provider: string; readonly model: string }>(rows: readonly T[]): ReadonlyMap<string, T[]> {
  const routes = new Map<string, T[]>();
  for (const row of rows) {
    add(routes, textOf({ kind: 'route', provider: row.provider, model: row.model }), row);
  }
  return routes;
}

/** Adds to the list of a name. */
function add<T>(lists: Map<string, T[]>, name: string, value: T): void {
  const found = lists.get(name);
  if (found === undefined) lists.set(name, [value]);
  else found.push(value);
}

/**
 * In how many milliseconds waiters are likely to start, by their ids: one after the other of those whom the same scope blocks
 * gets a seat there, and every seat comes free when its holder has taken as long as calls there took lately. Nothing is said of
 * those who wait for a pause to end or for seats of a pool, nor where no call has ended yet.
 */
export function startsIn({ scopes, holders = [], waiters = [] }: Stats): ReadonlyMap<number, number> {
  const means = new Map(scopes?.map(({ scope, meanCallMs }) => [scope, meanCallMs]));
  const held = heldIn(holders);
  const places = new Map<string, number>();
  const starts = new Map<number, number>();
  for (const { id, position, blockedBy } of waiters) {
    if (blockedBy === null) continue;
    const { scope, why, limit } = blockedBy;
    const mean = means.get(scope) ?? null;
    if (limit < 1 || mean === null || why === 'paused' || why === 'pool') continue;
    const place = (places.get(scope) ?? 0) + 1;
    places.set(scope, place);
    const before = Math.max(place, position) - 1;
    // Of a seat whose holder is not known nothing is known but how long calls take. Those above the limit have to end first.
    const seats = held.get(scope) ?? [];
    const heldMs = seats[Math.max(0, seats.length - limit) + (before % limit)] ?? 0;
    starts.set(id, Math.max(0, mean - heldMs) + Math.floor(before / limit) * mean);
  }
  return starts;
}

/** For how long those who generate have, by the scopes that tell which routes they have; the longest first, as in stats. */
function heldIn(holders: readonly Holder[]): ReadonlyMap<string, number[]> {
  const held = new Map<string, number[]>();
  for (const holder of holders) {
    for (const kind of ['route', 'provider', 'everything'] as const) add(held, textOf({ kind, ...holder }), holder.heldMs);
  }
  return held;
}

/** What people call the session of a holder or waiter. */
export function sessionName({ session, label }: { readonly session: string | null; readonly label?: string }, t: Translate): string {
  if (label !== undefined && label !== '') return label;
  return session === null ? t('now.session.none') : t('now.session', { id: brief(session) });
}

/** Enough of an id to tell it from others; the ends of ids differ where their beginnings are times. */
function brief(id: string): string {
  return id.length <= 12 ? id : `…${id.slice(-8)}`;
}

/** Why somebody waits. */
export function reason({ blockedBy }: Pick<Waiter, 'blockedBy'>, t: Translate): string {
  if (blockedBy === null) return t('reason.next');
  // Who wrote the stats may know of more reasons than we do.
  return t(REASONS[blockedBy.why] ?? 'reason.full', { scope: nameOfText(blockedBy.scope, t), max: grouped(blockedBy.limit) });
}

const REASONS = {
  full: 'reason.full',
  paused: 'reason.paused',
  pool: 'reason.pool',
  credits: 'reason.credits',
  kept: 'reason.kept',
} as const;

/** What became of a waiter that is in line no more, as far as it can be told. */
export function fate({ kind, session }: Waiter, line: Pick<Line, 'holders'>): 'now.started' | 'now.gone' {
  return kind === 'stream' && session !== null && line.holders.some((holder) => holder.session === session) ? 'now.started' : 'now.gone';
}

/** A route as people write it. */
export function routeName(scope: string): string {
  const found = scopeOfText(scope);
  return found?.kind === 'route' ? `${found.provider}/${found.model}` : scope;
}

/** A number whose digits stand in groups of three. */
export function grouped(n: number): string {
  return String(n).replace(/\B(?=(?:\d{3})+$)/gu, '\u202f');
}

/** A time, of which milliseconds matter only while there is nothing greater. */
export function lasting(ms: number, t: Translate): string {
  return ms < 1_000 ? exactly(Math.round(ms), t) : about(ms, t);
}
