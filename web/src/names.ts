/** What people call sessions: asked for now and then, and kept in between, since finding it is most of what a look costs. */
import type { Session, Stats } from './api.ts';

/** For how long names are good, in milliseconds; and for how long where there are sessions that were not asked for yet. */
export const GOOD_MS = 10_000;
export const STRANGE_MS = 2_000;

export class Names {
  readonly #known = new Map<string | null, Partial<Session>>();
  #askedAt = -Infinity;
  #strangers = false;

  /** Whether the next answer is to have them. */
  due(at: number): boolean {
    return Math.abs(at - this.#askedAt) >= (this.#strangers ? STRANGE_MS : GOOD_MS);
  }

  /** Keeps the names that an answer has, or gives it those that are known. */
  note(stats: Stats, named: boolean, at: number): Stats {
    const { holders = [], waiters = [] } = stats;
    if (named) {
      this.#known.clear();
      for (const { session, label, parent, root } of [...holders, ...waiters]) this.#known.set(session, { label, parent, root } as Session);
      [this.#askedAt, this.#strangers] = [at, false];
      return stats;
    }
    const call = <T extends Session>(row: T): T => {
      this.#strangers ||= row.session !== null && !this.#known.has(row.session);
      return { ...row, ...this.#known.get(row.session) };
    };
    return { ...stats, holders: holders.map(call), waiters: waiters.map(call) };
  }
}
