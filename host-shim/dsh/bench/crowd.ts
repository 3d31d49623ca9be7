/** Many who call at once, and what it takes until something is done with them. */
import { setImmediate } from 'node:timers/promises';
import { fail } from '../test/support.ts';
import type { Caller } from './caller.ts';

/** Those who come or leave by themselves do so this many in a turn of the event loop. */
export const PORTION = 500;

export class Crowd {
  readonly #caller: Caller;
  /** Calls that run, by how to end them. */
  #running: Array<() => void> = [];
  #all = 0;
  /** Those that have ended. */
  done = 0;

  private constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Those who take all the seats there are. */
  static async make(caller: Caller, seats: number): Promise<Crowd> {
    const crowd = new Crowd(caller);
    for (let n = 0; n < seats; n += 1) crowd.#call(`first-${n}`, new AbortController().signal);
    await setImmediate();
    return crowd.#running.length === seats ? crowd : fail('not every seat is taken');
  }

  /** How many have reached the backend and not been ended. */
  get running(): number {
    return this.#running.length;
  }

  #call(session: string, signal: AbortSignal): void {
    this.#all += 1;
    const ended = (): void => void (this.done += 1);
    const next = (): unknown => ({
      [Symbol.asyncIterator]: () => ({ next: () => new Promise((resolve) => this.#running.push(() => resolve({ done: true, value: undefined }))) }),
    });
    const iterator = this.#caller.stream(session, { signal, next })[Symbol.asyncIterator]();
    iterator.next().then(ended, ended);
  }

  /** So many more come. */
  async come(count: number, signalOf: (n: number) => AbortSignal): Promise<void> {
    for (let n = 0; n < count; n += 1) {
      this.#call(`session-${String(n).padStart(8, '0')}-0123456789abcdef`, signalOf(n));
      if (n % PORTION === PORTION - 1) await setImmediate();
    }
  }

  /** All that run end, turn by turn, until nobody is there. */
  async empty(): Promise<void> {
    while (this.done < this.#all) {
      for (const end of this.#running.splice(0)) end();
      await setImmediate();
    }
  }
}

/** Milliseconds of a processor, and the most that one turn of the event loop took of them. */
export interface Spent {
  readonly ms: number;
  readonly blocked: number;
}

/** Turns the event loop until all is done. */
export async function spend(work: () => Promise<unknown> | unknown, isDone: () => boolean = () => true): Promise<Spent> {
  const burnt = (): number => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e3;
  };
  const begun = burnt();
  let blocked = 0;
  let looked = begun;
  let working = true;
  const look = (): void => {
    const now = burnt();
    blocked = Math.max(blocked, now - looked);
    looked = now;
  };
  void Promise.resolve(work()).then(() => (working = false));
  look();
  while (working || !isDone()) {
    await setImmediate();
    look();
  }
  return { ms: looked - begun, blocked };
}
