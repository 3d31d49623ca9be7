/** What all mounted views of the card share: one poller of each kind, and what was seen since the page was opened. */
import { useSyncExternalStore } from 'react';
import { change, read, type Catalog, type ScopeStats, type Section, type Stats, type Unavailable } from './api.ts';
import { Edits, type Pending } from './edits.ts';
import { History } from './history.ts';
import { Names } from './names.ts';
import { Poller, type Polled } from './poller.ts';

const history = new History();

const names = new Names();

export const stats = new Poller<Stats>(async (signal) => {
  const named = names.due(Date.now());
  const answer = await read.stats(named, signal);
  const at = Date.now();
  history.note(answer, at);
  return names.note(answer, named, at);
}, 1_000);

/** Changes by other pages and in files are seen after this time, too. */
export const config = new Poller<Section | Unavailable>((signal) => read.config(signal), 5_000);

export const catalog = new Poller<Catalog>((signal) => read.catalog(signal), 30_000);

/** What goes on in a scope; nothing where that is not known. */
export function useScope(scope: string): Pick<ScopeStats, 'occupancy' | 'waiting' | 'oldestWaitMs'> | undefined {
  const { value } = usePolled(stats);
  const { scopes, scopesTotal = 0 } = value ?? {};
  if (scopes === undefined) return undefined;
  // They are looked up once in each answer.
  if (value !== looked.at) looked = { at: value, scopes: new Map(scopes.map((one) => [one.scope, one])) };
  return looked.scopes.get(scope) ?? (scopes.length < scopesTotal ? undefined : { occupancy: 0, waiting: 0, oldestWaitMs: null });
}

let looked: { readonly at: Stats | undefined; readonly scopes: ReadonlyMap<string, ScopeStats> } = { at: undefined, scopes: new Map() };

/** What is changed and not stored yet. */
export const edits = new Edits({
  section: () => sectionOf(config.get()),
  know: config.set,
  write: change,
});

/** The settings, where there are any. */
export function sectionOf({ value }: Polled<Section | Unavailable>): Section | undefined {
  return value?.status === 'ok' ? value : undefined;
}

/** Follows what is not stored, by its place. */
export function usePending(): ReadonlyMap<string, Pending> {
  return useSyncExternalStore(edits.subscribe, edits.get);
}

/** Follows a poller while mounted. */
export function usePolled<T>(poller: Poller<T>): Polled<T> {
  return useSyncExternalStore(poller.subscribe, poller.get);
}

/** What was seen of occupancy and line, the oldest first; a new object with every answer of `stats`. */
export function useHistory(): History {
  usePolled(stats);
  return history;
}
