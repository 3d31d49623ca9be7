/**
 * Lists that change each second, and stand still under the mouse: while they are held, what goes stays where it was, marked as
 * gone, and what comes stands at the end. Let go, they are what they are now.
 */
/** One row of such a list. */
export interface Row<T> {
  readonly key: string;
  readonly value: T;
  /** Whether it is only there because the list is held. */
  readonly gone: boolean;
}

/** How many rows that are gone a held list keeps. */
export const MOST_GONE = 200;

/** The rows to show, given those shown before. */
export function steady<T>(before: ReadonlyArray<Row<T>>, now: readonly T[], keyOf: (value: T) => string, held: boolean): ReadonlyArray<Row<T>> {
  const coming = new Map(now.map((value) => [keyOf(value), value]));
  if (!held) return [...coming].map(([key, value]) => ({ key, value, gone: false }));
  const rows: Array<Row<T>> = [];
  for (const row of before) {
    const value = coming.get(row.key);
    rows.push(value === undefined ? (row.gone ? row : { ...row, gone: true }) : { key: row.key, value, gone: false });
    coming.delete(row.key);
  }
  for (const [key, value] of coming) rows.push({ key, value, gone: false });
  let surplus = rows.reduce((count, { gone }) => count + Number(gone), 0) - MOST_GONE;
  return surplus <= 0 ? rows : rows.filter(({ gone }) => !(gone && surplus-- > 0));
}

/** The first rows, up to so many that are not gone. */
export function first<T>(rows: ReadonlyArray<Row<T>>, count: number): ReadonlyArray<Row<T>> {
  let left = count;
  const end = rows.findIndex(({ gone }) => !gone && left-- === 0);
  return end < 0 ? rows : rows.slice(0, end);
}

/**
 * Which of the routes that are busy are unfolded, given which were: what was decided once stays, until a route is busy no more.
 * New ones are unfolded while there are few, those with a line before those without.
 */
export function unfolded(before: ReadonlyMap<string, boolean>, routes: ReadonlyArray<{ readonly scope: string; readonly waiting: number }>, most: number): ReadonlyMap<string, boolean> {
  const decided = new Map<string, boolean>();
  for (const { scope } of routes) {
    const open = before.get(scope);
    if (open !== undefined) decided.set(scope, open);
  }
  let room = most - [...decided.values()].filter(Boolean).length;
  for (const withLine of [true, false]) {
    for (const { scope, waiting } of routes) {
      if (decided.has(scope) || waiting > 0 !== withLine) continue;
      decided.set(scope, room > 0);
      room -= 1;
    }
  }
  return decided;
}
