/** What of a session waits, told above its composer. */
import type { Stats, Waiter } from './api.ts';
import { grouped, reason } from './lines.ts';
import { about } from './units.ts';
import { counted, ordinal, type Translate } from './words/index.ts';

/** What is told. */
export interface Told {
  /** The row: what changes each second, too. */
  readonly text: string;
  /** What is said when it begins: nothing that changes while one waits. */
  readonly announced: string;
}

/** What of a session waits, by the stats of it and of what it spawned; nothing where nothing does. */
export function told(session: string, { waiters = [] }: Stats, t: Translate): Told | undefined {
  // The oldest come first.
  const own = waiters.find((waiter) => isOwn(waiter, session));
  const spawned = mostOf(waiters.filter((waiter) => !isOwn(waiter, session)));
  const parts: string[] = [];
  const announced: string[] = [];
  if (own !== undefined) {
    const route = routeOf(own);
    parts.push(t('dock.waiting', { route }), t('dock.position', { ordinal: ordinal(t, own.position) }), about(own.waitedMs, t), ...block(own, t));
    announced.push(t('dock.waiting', { route }));
  }
  if (spawned !== undefined) {
    const { route, count, more } = spawned;
    const text = counted(t, 'dock.children', count, { n: grouped(count), route });
    parts.push(more === 0 ? text : t('dock.more', { text, n: grouped(more) }));
    announced.push(t('dock.children.begin', { route }));
  }
  return parts.length === 0 ? undefined : { text: parts.join(' · '), announced: announced.join(' · ') };
}

function isOwn({ kind, session }: Waiter, own: string): boolean {
  return kind === 'stream' && session === own;
}

/** What blocks, in a few words. */
function block(waiter: Waiter, t: Translate): readonly string[] {
  const { blockedBy } = waiter;
  if (blockedBy === null) return [];
  const { why, limit } = blockedBy;
  if (limit === 0 || why === 'paused') return [t('limits.mode.paused').toLowerCase()];
  return [why === 'full' ? t('dock.limit', { max: grouped(limit) }) : reason(waiter, t)];
}

function routeOf({ provider, model }: Waiter): string {
  return `${provider}/${model}`;
}

/** The route that most subagents wait for, how many do, and how many more wait for others; one counts once, however many calls it makes. */
function mostOf(waiters: readonly Waiter[]): { readonly route: string; readonly count: number; readonly more: number } | undefined {
  const routes = new Map<string, Set<string | number>>();
  for (const waiter of waiters) {
    const route = routeOf(waiter);
    const who = routes.get(route) ?? new Set();
    routes.set(route, who.add((waiter.kind === 'stream' ? waiter.session : undefined) ?? waiter.id));
  }
  const [most, ...others] = [...routes].toSorted(([, a], [, b]) => b.size - a.size);
  return most === undefined ? undefined : { route: most[0], count: most[1].size, more: others.reduce((sum, [, who]) => sum + who.size, 0) };
}
