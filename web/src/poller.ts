/**
 * Asks again and again, while somebody looks: from the first subscriber to the last one's leaving, and not while the page is
 * hidden. One answer is waited for at a time. What was known stays known when an answer fails, with the failure beside it.
 */

import { same } from './same.ts';

/** What is known. */
export interface Polled<T> {
  readonly value?: T;
  /** Why the last question has no answer. */
  readonly failure?: Error;
}

/** What a poller needs of the world. */
export interface World {
  /** The time, in milliseconds. */
  now(): number;
  /** Runs something later; gives what keeps it from running. */
  after(ms: number, run: () => void): () => void;
  visible(): boolean;
  /** Tells of pages that are hidden or shown; gives what ends the telling. */
  onVisibility(changed: () => void): () => void;
}

/** The page. */
export const PAGE: World = {
  now: () => Date.now(),
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  visible: () => document.visibilityState !== 'hidden',
  onVisibility(changed) {
    document.addEventListener('visibilitychange', changed);
    return () => document.removeEventListener('visibilitychange', changed);
  },
};

export class Poller<T> {
  readonly #read: (signal: AbortSignal) => Promise<T>;
  readonly #everyMs: number;
  readonly #world: World;
  readonly #listeners = new Set<() => void>();
  #known: Polled<T> = {};
  #asking: AbortController | undefined;
  #cancel: (() => void) | undefined;
  #unwatch: (() => void) | undefined;
  #answeredAt: number | undefined;

  constructor(read: (signal: AbortSignal) => Promise<T>, everyMs: number, world: World = PAGE) {
    this.#read = read;
    this.#everyMs = everyMs;
    this.#world = world;
  }

  /** What is known now; the same object until something else is. */
  readonly get = (): Polled<T> => this.#known;

  /** When the last answer came, also one that was no news. */
  get answeredAt(): number | undefined {
    return this.#answeredAt;
  }

  /** Tells of every answer and failure; gives what ends it. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) {
      this.#unwatch = this.#world.onVisibility(() => this.#attend());
      this.#attend();
    }
    return () => {
      if (!this.#listeners.delete(listener) || this.#listeners.size > 0) return;
      this.#unwatch?.();
      this.#rest();
    };
  };

  /** Knows better than the last answer, and than one that is under way. */
  readonly set = (value: T): void => {
    this.#asking?.abort();
    this.#asking = undefined;
    this.#tell({ value });
    this.#attend();
  };

  #attend(): void {
    if (this.#listeners.size === 0) return;
    if (!this.#world.visible()) this.#rest();
    else if (this.#asking === undefined && this.#cancel === undefined) void this.#ask();
  }

  #rest(): void {
    this.#asking?.abort();
    this.#asking = undefined;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  async #ask(): Promise<void> {
    const asking = new AbortController();
    this.#asking = asking;
    // From question to question, unless the answer takes longer.
    let due = false;
    this.#cancel = this.#world.after(this.#everyMs, () => {
      due = true;
      this.#cancel = undefined;
      if (this.#asking === undefined) void this.#ask();
    });
    let known: Polled<T>;
    try {
      known = { value: await this.#read(asking.signal) };
    } catch (error) {
      const { value } = this.#known;
      const failure = error instanceof Error ? error : new Error(String(error));
      known = value === undefined ? { failure } : { value, failure };
    }
    // Whoever was told to stop has nothing to say any more.
    if (this.#asking !== asking) return;
    this.#asking = undefined;
    this.#tell(known);
    if (due && this.#listeners.size > 0 && this.#asking === undefined) void this.#ask();
  }

  #tell(known: Polled<T>): void {
    if (known.failure === undefined) this.#answeredAt = this.#world.now();
    // No news is not told.
    if (known.failure === this.#known.failure && same(known.value, this.#known.value)) return;
    this.#known = known;
    for (const listener of [...this.#listeners]) listener();
  }
}
