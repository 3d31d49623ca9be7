/** What a soak needs besides the world: chance that can be repeated, and the books of what the limits allow. */
import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { join } from 'node:path';

import type { Dsh, Home } from './dsh.ts';
import type { ModelServer, Stream } from './model-server.ts';

/** Chance from a seed: the same draws for the same seed (mulberry32). */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Chance of its own for a name, whenever it is asked. */
  static named(seed: number, name: string): Chance {
    const hash = [...name].reduce((sum, letter) => Math.imul(sum ^ (letter.codePointAt(0) ?? 0), 0x01000193), 0x811c9dc5 ^ seed);
    return new Chance(hash);
  }

  /** A whole number below `end`. */
  below(end: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * end);
  }

  /** Whether something comes that does in so many of a hundred cases. */
  percent(of: number): boolean {
    return this.below(100) < of;
  }

  /** One of them. */
  of<T>(all: readonly T[]): T {
    return all[this.below(all.length)] as T;
  }
}

/** A limit over some models: a row or a group. */
export interface Scope {
  readonly name: string;
  readonly models: readonly string[];
}

/** Limits by the names of their scopes; one that is missing is none. */
export type Limits = Readonly<Record<string, number>>;

/**
 * Checks at every instant that no session more generates than the limits allow.
 *
 * A limit is in force at some moment between the order to change it and the answer, and calls that it let through before are on
 * their way for a little longer. So the greater of both counts until a call that began after the answer has arrived. From then
 * on nobody new may come while as many as the limit, or more, are there. Who ran while there was no plugin is not counted.
 */
export class Books {
  /** What was wrong, in words. */
  readonly wrong: string[] = [];
  /** How often a session came to a scope, and how often that made it full. */
  readonly came = { checked: 0, full: 0 };
  readonly #scopes: readonly Scope[];
  readonly #notes: string[] = [];
  readonly #open = new Set<Stream>();
  readonly #uncounted = new Set<Stream>();
  #bounds: Limits;
  #free = false;

  constructor(server: ModelServer, scopes: readonly Scope[], limits: Limits) {
    this.#scopes = scopes;
    this.#bounds = limits;
    server.on('change', (stream) => this.#changed(stream));
  }

  /** What has been done, to be told with what was wrong after it. */
  note(what: string): void {
    this.#notes.push(`${(performance.now() / 1_000).toFixed(2)} ${what}`);
    this.#notes.splice(0, this.#notes.length - 12);
  }

  /** The old limits or these may be in force from now on. */
  widen(limits: Limits): void {
    this.#bounds = Object.fromEntries(this.#scopes.map(({ name }) => [name, Math.max(bound(this.#bounds, name), bound(limits, name))]));
  }

  /** These limits are in force, and whatever others let through has arrived. */
  settle(limits: Limits): void {
    this.#bounds = limits;
    this.#free = false;
  }

  /** From now on there may be no plugin; one that is enabled again knows nothing of those who run. */
  release(): void {
    this.#free = true;
    for (const stream of this.#open) this.#uncounted.add(stream);
  }

  #changed(stream: Stream): void {
    if (stream.outcome !== undefined) {
      this.#open.delete(stream);
      this.#uncounted.delete(stream);
      return;
    }
    if (this.#free) this.#uncounted.add(stream);
    else this.#check(stream);
    this.#open.add(stream);
  }

  #check(stream: Stream): void {
    for (const { name, models } of this.#scopes) {
      if (!models.includes(stream.model)) continue;
      const there = [...this.#open].filter((one) => models.includes(one.model) && !this.#uncounted.has(one));
      const sessions = new Set(there.map(({ session }) => session));
      if (sessions.has(stream.session)) continue;
      const most = bound(this.#bounds, name);
      this.came.checked += 1;
      if (sessions.size + 1 === most) this.came.full += 1;
      if (sessions.size + 1 > most) {
        this.wrong.push(`[s:${stream.session}] ${stream.purpose} ${stream.turn} came to ${name}, where ${[...sessions].join(' ')} generated and ${most} may, at ${(performance.now() / 1_000).toFixed(2)} after ${this.#notes.join(', ')}`);
      }
    }
  }
}

function bound(limits: Limits, name: string): number {
  const max = limits[name] ?? -1;
  return max < 0 ? Infinity : max;
}

/** What a process holds of the machine, and what memory is left to it when garbage has been collected. */
export interface Held {
  readonly atMs: number;
  readonly rss: number;
  readonly heap: number;
  /** What is open besides sockets and what the harness keeps open for every session there was: files, watches, pipes. */
  readonly files: readonly string[];
  readonly threads: number;
}

const NOT_COUNTED = /^socket:|\/sessions(\/|$)/u;

/** Looks at a harness. */
export async function held(dsh: Dsh): Promise<Held> {
  const { heapUsed } = await dsh.probe<{ heapUsed: number }>('memory', {});
  const process = `/proc/${dsh.pid}`;
  const rss = Number(/^VmRSS:\s+(\d+) kB$/mu.exec(readFileSync(`${process}/status`, 'utf8'))?.[1]) * 1_024;
  const files = readdirSync(`${process}/fd`).map((fd) => leadsTo(`${process}/fd/${fd}`)).filter((file) => !NOT_COUNTED.test(file));
  return { atMs: performance.now(), rss, heap: heapUsed, files, threads: readdirSync(`${process}/task`).length };
}

function leadsTo(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    // Closed meanwhile.
    return 'socket:';
  }
}

/** What grows in a minute, by the line that fits best. */
export function slope(samples: readonly Held[], of: (held: Held) => number): number {
  const mean = (numbers: readonly number[]): number => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  const [at, value] = [mean(samples.map(({ atMs }) => atMs)), mean(samples.map(of))];
  const over = samples.reduce((sum, one) => sum + (one.atMs - at) * (of(one) - value), 0);
  const under = samples.reduce((sum, one) => sum + (one.atMs - at) ** 2, 0);
  return under === 0 ? 0 : (over / under) * 60_000;
}

/** The files of ours in a home. */
export function files({ dir }: Home): string[] {
  return ['gen-limit', 'wasm-plugins'].flatMap((folder) => filesBelow(join(dir, folder)).map((file) => join(folder, file)));
}

function filesBelow(folder: string): string[] {
  try {
    return readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => statSync(join(folder, file)).isFile()).sort();
  } catch {
    return [];
  }
}
