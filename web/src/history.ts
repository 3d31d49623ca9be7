/**
 * What was seen of occupancy and line since the page was opened: of the whole, and of each scope that was busy. The time in which
 * nobody looked is left out.
 *
 * A series is bounded: when it is full, every second point goes, and those to come stand twice as far apart. Its last point is
 * always of now. A scope that has been idle for a while is forgotten.
 */
import type { Stats } from './api.ts';
import { textOf } from './scopes.ts';

/** How many sessions generated and how many calls and spawns waited, at one time. */
export interface Point {
  readonly at: number;
  readonly occupancy: number;
  readonly waiting: number;
}

/** Two answers that stand further apart have a time between them of which nothing is known, in milliseconds. */
const BLIND_MS = 5_000;
/** How many points a series has at most. */
export const MOST_POINTS = 600;
/** For how long an idle scope is remembered. */
export const IDLE_MS = 120_000;

/** The series of the whole; no scope's text is empty. */
const WHOLE = '';

class Series {
  #points: Point[] = [];
  #shown: readonly Point[] | undefined;
  #step = 0;
  #busyAt: number;

  constructor(at: number) {
    this.#busyAt = at;
  }

  note(point: Point): void {
    const [previous, last] = [this.#points.at(-2), this.#points.at(-1)];
    // A clock that was set back begins anew.
    if (last !== undefined && last.at > point.at) [this.#points, this.#step, this.#busyAt] = [[], 0, point.at];
    else if (last !== undefined && previous !== undefined && last.at - previous.at < this.#step) this.#points.pop();
    this.#points.push(point);
    this.#shown = undefined;
    if (point.occupancy > 0 || point.waiting > 0) this.#busyAt = point.at;
    if (this.#points.length <= MOST_POINTS) return;
    const span = point.at - (this.#points[0]?.at ?? point.at);
    this.#points = this.#points.filter((_, index) => index % 2 === 0);
    this.#step = Math.max(2 * this.#step, (2 * span) / MOST_POINTS);
  }

  get points(): readonly Point[] {
    return (this.#shown ??= [...this.#points]);
  }

  /** For how long nobody has been there. */
  idleFor(at: number): number {
    return at - this.#busyAt;
  }
}

export class History {
  readonly #series = new Map<string, Series>();
  #lastAt = Infinity;
  #blindMs = 0;

  /** Remembers one answer. */
  note(stats: Stats, now: number): void {
    if (now - this.#lastAt > BLIND_MS) this.#blindMs += now - this.#lastAt;
    this.#lastAt = now;
    const at = now - this.#blindMs;
    const seen = new Map<string, Omit<Point, 'at'>>();
    const sum = (of: (entry: Stats['entries'][number]) => number): number => stats.entries.reduce((all, entry) => all + of(entry), 0);
    seen.set(WHOLE, {
      occupancy: stats.holdersTotal ?? sum((entry) => entry.active),
      waiting: stats.waitersTotal ?? sum((entry) => entry.waiting),
    });
    for (const { scope, occupancy, waiting } of stats.scopes ?? []) {
      if (occupancy > 0 || waiting > 0) seen.set(scope, { occupancy, waiting });
    }
    for (const { provider, model, active, waiting } of stats.entries) {
      seen.set(textOf({ kind: 'route', provider, model }), { occupancy: active, waiting });
    }
    for (const [scope, { occupancy, waiting }] of seen) {
      let series = this.#series.get(scope);
      if (series === undefined) this.#series.set(scope, (series = new Series(at)));
      series.note({ at, occupancy, waiting });
    }
    for (const [scope, series] of this.#series) {
      if (seen.has(scope)) continue;
      series.note({ at, occupancy: 0, waiting: 0 });
      if (series.idleFor(at) >= IDLE_MS) this.#series.delete(scope);
    }
  }

  /** What was seen of a scope, of the whole without one: the oldest first, the same array until more is noted. */
  points(scope: string = WHOLE): readonly Point[] {
    return this.#series.get(scope)?.points ?? NONE;
  }
}

const NONE: readonly Point[] = [];

/** The lines of a picture of points, as paths of SVG: times from left to right, numbers from the bottom up. */
export function paths(points: readonly Point[], width: number, height: number): { readonly occupancy: string; readonly waiting: string } {
  const [first, last] = [points[0], points.at(-1)];
  const most = points.reduce((found, { occupancy, waiting }) => Math.max(found, occupancy, waiting), 0);
  if (first === undefined || last === undefined) return { occupancy: '', waiting: '' };
  const span = Math.max(1, last.at - first.at);
  const round = (value: number): number => Math.round(value * 10) / 10;
  const path = (of: (point: Point) => number): string => {
    let text = '';
    let before: number | undefined;
    for (const point of points) {
      const y = round(height - (of(point) / Math.max(1, most)) * height);
      // A number holds until another is seen.
      if (y === before) continue;
      const x = round(((point.at - first.at) / span) * width);
      text += before === undefined ? `M${x} ${y}` : `H${x}V${y}`;
      before = y;
    }
    return `${text}H${width}`;
  };
  return { occupancy: path((point) => point.occupancy), waiting: path((point) => point.waiting) };
}
