/**
 * The plugins that somebody has dropped into a folder.
 *
 * One folder is watched in a harness, however many rows there are, and every row's limiter gets each of its plugins for its own
 * chain: one instance for every tenant. What is wrong with a file is said once, with what is wrong with it in a chain: one that is
 * whole may still refuse its configuration.
 *
 * A component may take as long over its start as it may over any call, in each chain anew. So other events have their turn between
 * two chains as soon as that takes time.
 *
 * # At a start
 *
 * What lies in the folder when the harness starts has a say in the first call: calls wait for it, but for no longer than they wait
 * for anything that may never come. Whoever has an empty folder waits for nothing.
 *
 * # The packaged component
 *
 * A `gen-limit.wasm` in the folder takes the place of the packaged component, under the configuration of the row; when it goes, the
 * packaged one is back. `gen-limit.json` sets the limits of either.
 */
import { readdirSync } from 'node:fs';
import type * as Addon from '../../node/index.d.ts';
import { describe } from './gate.ts';
import type { Reporter } from './report.ts';
import { SettingsFailure, type Settings } from './settings.ts';
import { within } from './within.ts';

/** The name of the limiter's own among the plugins of a chain. */
export const OWN = 'gen-limit';

/** How long a start waits for what lies in the folder, in milliseconds. */
const PATIENCE_MS = 3_000;

/** So long chains are changed one after the other, in milliseconds, before other events have their turn. */
const SLICE_MS = 15;

/** What can be interrupted for others. */
type Step = Generator<undefined, void>;

/** A plugin as the folder has it. */
interface Found {
  /** None: the packaged one. */
  readonly component: Addon.Component | undefined;
  readonly config: string | undefined;
  readonly limits: string | undefined;
}

/** What is wrong with a file. */
export interface Refused {
  readonly file: string;
  readonly reason: string;
}

/** A row's chain. */
export interface Chain {
  /** Has the limiter do something that may fail by itself, and gives how it failed. */
  change(operation: (limiter: Addon.Limiter) => number): string | undefined;
  /** The packaged component. */
  readonly packaged: Addon.Component;
  /** Says something of this row. */
  readonly say: Reporter;
  /** Its limiter's own component is another one. */
  replaced(): void;
  /** Its plugins have changed, or what is wrong with the files. */
  changed(): void;
}

/** How the plugins stand in a chain. */
interface Standing {
  readonly atWork: Set<string>;
  /** What is wrong with a plugin that could not be put there, though its files are fine by themselves. */
  readonly failed: Map<string, Refused>;
}

export class Dropped {
  readonly #path: string;
  readonly #say: Reporter;
  readonly #folder: Addon.PluginFolder;
  readonly #found = new Map<string, Found>();
  readonly #chains = new Map<Chain, Standing>();
  /** Those that were said to be at work. */
  readonly #said = new WeakSet<Found>();
  /** What is wrong with the folder. */
  #trouble: string | undefined;
  /** Settles when all that lay in the folder has been looked at. */
  readonly #looked: Promise<void>;
  #setLooked: () => void = () => undefined;
  /** What is to be done still, in this order. */
  #work: Step[] = [];

  constructor(addon: typeof Addon, path: string, say: Reporter) {
    this.#path = path;
    this.#say = say;
    this.#looked = new Promise((resolve) => (this.#setLooked = resolve));
    this.#folder = new addon.PluginFolder(path, () => this.#take(), { cached: true });
  }

  /** Settles when what lay in the folder at the start has been looked at. Never fails, and never takes for ever. */
  async ready(): Promise<void> {
    if (!hasPlugins(this.#path)) return;
    // Who waits for this has nothing else to live for: a folder keeps no process alive.
    const alive = setTimeout(() => undefined, PATIENCE_MS);
    try {
      await within(PATIENCE_MS, () => this.#looked, new Error('late'));
    } catch {
      this.#say('warn', `${this.#path}: what lies there is not loaded after ${PATIENCE_MS / 1000} s; calls pass without it until it is`);
    } finally {
      clearTimeout(alive);
    }
  }

  /** A chain is there: what has been found is put into it. */
  join(chain: Chain): void {
    this.#chains.set(chain, { atWork: new Set(), failed: new Map() });
    for (const name of this.#found.keys()) if (this.#put(chain, name)) this.#announce(name);
    chain.changed();
  }

  /** A chain is gone. */
  leave(chain: Chain): void {
    this.#chains.delete(chain);
  }

  /** What is wrong with the files, and with what was made of them in a chain. */
  refused(chain: Chain): Refused[] {
    const unused = this.#folder.entries().filter(({ state }) => state === 'refused' || state === 'idle');
    const files = unused.map(({ file, state, reason = '' }) => ({ file, reason: state === 'idle' ? `${file}: ${reason}` : reason }));
    return [...files, ...(this.#chains.get(chain)?.failed.values() ?? [])];
  }

  /** The settings of a plugin, which is its file. */
  settingsOf(name: string, chain: Chain): Settings {
    const value = this.#found.get(name)?.config ?? '{}';
    const section = { value, base: value, user: '{}', inForce: !this.#chains.get(chain)?.failed.has(name), writable: false };
    return {
      read: async () => section,
      update: async () => {
        throw new SettingsFailure('read-only', `the settings of this plugin are its file ${name}.json`);
      },
    };
  }

  stop(): void {
    this.#folder.close();
    this.#work = [];
    this.#setLooked();
  }

  #take(): void {
    this.#work.push(this.#apply());
    if (this.#work.length === 1) this.#go();
  }

  /** Goes on with what is to be done until others are to have their turn. Nobody is there to catch what this throws. */
  #go(): void {
    const end = performance.now() + SLICE_MS;
    for (let work = this.#work[0]; work !== undefined; work = this.#work[0]) {
      try {
        if (work.next().done === true) this.#work.shift();
      } catch (error) {
        this.#work.shift();
        this.#say('error', `${this.#path}: ${describe(error)}; plugins stay as they are`);
      }
      if (performance.now() < end || this.#work.length === 0) continue;
      setImmediate(() => this.#go());
      return;
    }
  }

  /** Does what has changed, a chain at a time. */
  *#apply(): Step {
    const changes = this.#folder.takeChanges();
    for (const change of changes) yield* this.#change(change);
    for (const chain of this.#chains.keys()) chain.changed();
    const standing = this.#folder.standing();
    if (standing?.trouble !== undefined && standing.trouble !== this.#trouble) this.#say('warn', standing.trouble);
    this.#trouble = standing?.trouble;
    if (standing?.seen ?? true) this.#setLooked();
  }

  *#change({ kind, name, component, config, limits, reason }: Addon.PluginChange): Step {
    if (kind === 'refused') {
      this.#say('error', `${this.#path}: ${reason}`);
      // It is about files that are not there any more.
      for (const { failed } of this.#chains.values()) failed.delete(name);
      return;
    }
    if (kind === 'removed') {
      if (!this.#found.delete(name)) return;
      let everywhere = true;
      yield* this.#inEach((chain) => (everywhere = this.#remove(chain, name) && everywhere));
      if (!everywhere) return;
      this.#say('info', name === OWN ? `${name}.wasm is gone, the packaged component is back` : `the plugin ${name} is gone`, true);
      return;
    }
    this.#found.set(name, { component, config, limits });
    let everywhere = this.#chains.size > 0;
    yield* this.#inEach((chain) => (everywhere = this.#put(chain, name) && everywhere));
    if (everywhere) this.#announce(name);
  }

  /** Says once that a plugin is at work. */
  #announce(name: string): void {
    const found = this.#found.get(name);
    if (found === undefined || this.#said.has(found)) return;
    this.#said.add(found);
    const { component, limits } = found;
    const what = component === undefined ? `${limits === undefined ? 'the usual' : 'other'} limits` : `component ${component.sha256.slice(0, 12)}`;
    this.#say('info', `the plugin ${name} is at work: ${what}`, true);
  }

  /** The chains that are there now; one that comes meanwhile gets what has been found when it joins. */
  *#inEach(change: (chain: Chain) => unknown): Step {
    for (const chain of [...this.#chains.keys()]) {
      if (!this.#chains.has(chain)) continue;
      change(chain);
      yield;
    }
  }

  /** Puts a plugin into a chain, and says whether it is there. Where it cannot be, what was there before stays. */
  #put(chain: Chain, name: string): boolean {
    const { component = chain.packaged, config, limits } = this.#found.get(name) ?? NOTHING;
    // The limiter's own configuration is the row's; any other's is what its file says, which may be nothing any more.
    const shall = config ?? (name === OWN ? undefined : '{}');
    const failure = chain.change((limiter) => limiter.put(name, component, shall, limits));
    const { atWork, failed } = this.#chains.get(chain) ?? { atWork: new Set(), failed: new Map() };
    if (failure === undefined) {
      failed.delete(name);
      atWork.add(name);
      if (name === OWN) chain.replaced();
      return true;
    }
    // What a plugin says of its configuration is about the file that has it.
    const file = config !== undefined && failure.includes('the configuration is refused') ? `${name}.json` : `${name}.wasm`;
    const stays = atWork.has(name) || name === OWN ? 'what was at work before stays' : 'calls pass without it';
    const reason = `${file}: the plugin ${name} is not put to work: ${failure}; ${stays}`;
    failed.set(name, { file, reason });
    chain.say('error', `${this.#path}: ${reason}`);
    return false;
  }

  #remove(chain: Chain, name: string): boolean {
    const { atWork, failed } = this.#chains.get(chain) ?? { atWork: new Set(), failed: new Map() };
    failed.delete(name);
    if (name === OWN) return this.#put(chain, name);
    atWork.delete(name);
    return chain.change((limiter) => limiter.remove(name)) === undefined;
  }
}

const NOTHING: Found = { component: undefined, config: undefined, limits: undefined };

/** Whether there is anything to wait for. */
function hasPlugins(path: string): boolean {
  try {
    return readdirSync(path).some((file) => file.endsWith('.wasm'));
  } catch {
    return false;
  }
}
