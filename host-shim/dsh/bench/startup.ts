/**
 * How long it takes from a harness that mounts the plugin to limits that hold, of the package that was packed last:
 *
 *   cargo xtask bench startup [--json]
 *
 * Each run is a process of its own, and those with code that was delivered, kept or is yet to be made take turns, so that
 * whatever else the machine does is the same for all three.
 */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Context } from '@deepseek-ai/cordis';
import { Loader } from '@deepseek-ai/cordis-plugin-loader';
import LlmRuntime, { LlmAdapter, type GenerateOptions, type LlmResolvedModelInfo, type StreamChunk } from '@deepseek-ai/dsh-llm';
import type * as Addon from '../../node/index.d.ts';

const RUNS = 15;

/** Where the code comes from. */
const SOURCES = ['precompiled', 'cached', 'compiled'] as const;
type Source = (typeof SOURCES)[number];

/** What one process measures, in milliseconds. */
interface Parts {
  readonly addon: number;
  readonly engine: number;
  readonly component: number;
  readonly instance: number;
}
interface Start {
  /** From the mounting of the row to the first call at the backend, while a second waits. */
  readonly enforcing: number;
  /** How much of that the plugin's own mounting takes, which the harness waits for. */
  readonly mounting: number;
}

/** A plugin that is dropped into the folder: from then to its being asked about the next call. */
interface Drop {
  readonly renamed: number;
  readonly written: number;
  readonly cached: number;
  /** The longest time that the event loop was kept from other work. */
  readonly blocked: number;
}

/** What it is supposed to take, in milliseconds. */
const BOUNDS = { precompiled: 15, renamed: 500, written: 1_000, cached: 15, blocked: 20 };

/** What is dropped in. */
const DROPPED = fileURLToPath(new URL('../../../target/component/budget-guard.wasm', import.meta.url));

const stage = fileURLToPath(new URL('../../../target/package/stage', import.meta.url));
const PARTS = ['gen-limit.node', 'gen-limit.wasm', 'gen-limit.cwasm'];

/** The parts alone. */
async function parts(folder: string, source: Source): Promise<Parts> {
  const times: number[] = [performance.now()];
  const lap = (): void => void times.push(performance.now());
  const addon = createRequire(import.meta.url)(join(folder, 'gen-limit.node')) as typeof Addon;
  lap();
  // A load begins with the engine, and this one ends there.
  await addon.Component.load(join(folder, 'nothing.wasm')).catch(() => undefined);
  lap();
  const component = await addon.Component.load(join(folder, 'gen-limit.wasm'), true);
  lap();
  new addon.Limiter(component, { config: '{}' });
  lap();
  if (component.source !== source) throw new Error(`expected ${source} code, found it ${component.source}: ${component.notice}`);
  const [begun = 0, ...laps] = times;
  const [loaded = 0, engine = 0, ready = 0, made = 0] = laps;
  return { addon: loaded - begun, engine: engine - loaded, component: ready - engine, instance: made - ready };
}

/** Answers with one chunk, at once. */
class Backend extends LlmAdapter {
  arrived = 0;

  override async *stream(_options: GenerateOptions): AsyncIterable<StreamChunk> {
    this.arrived += 1;
    yield { type: 'text-delta', index: 0, text: 'x' };
    await new Promise(() => undefined);
  }

  override async resolveModel(provider: string, model: string): Promise<LlmResolvedModelInfo> {
    return { provider, id: model, name: model, context: { contextWindow: 100_000 } };
  }
}

/** The whole plugin, as packed, on the harness's own Cordis. */
async function start(folder: string): Promise<Start> {
  const backend = new Backend();
  const ctx = new Context();
  await ctx.plugin(Loader as never, {} as never);
  await ctx.plugin(LlmRuntime);
  ctx.llm.registerAdapter(['box'], backend);
  const plugin = (await import(join(folder, 'dist/index.js'))) as { apply: (ctx: Context, config: unknown) => void; Config: unknown };
  let begun = 0;
  let mounting = 0;
  const { promise: enforcing, resolve } = Promise.withResolvers<number>();
  const call = (session: string): AsyncIterator<StreamChunk> =>
    ctx.llm.stream({ provider: 'box', model: 'm', messages: [], sessionId: session as never })[Symbol.asyncIterator]();
  const apply = (inner: Context, config: unknown): void => {
    begun = performance.now();
    plugin.apply(inner, config);
    mounting = performance.now() - begun;
    void call('first').next().then(() => resolve(performance.now() - begun));
    void call('second').next();
  };
  ctx.loader.builtins['gen-limit'] = { name: 'gen-limit', Config: plugin.Config, apply } as never;
  await ctx.loader.create({ id: 'gen-limit', name: 'cordis:gen-limit', config: { limits: [{ provider: 'box', model: '*', max: 1 }] } } as never);
  const took = await enforcing;
  if (backend.arrived !== 1) throw new Error(`${backend.arrived} calls at a limit of 1`);
  return { enforcing: took, mounting };
}

/** A plugin in the folder, of which nothing is kept at first. */
async function drop(folder: string): Promise<Drop> {
  const addon = createRequire(import.meta.url)(join(folder, 'gen-limit.node')) as typeof Addon;
  const limiter = new addon.Limiter(await addon.Component.load(join(folder, 'gen-limit.wasm'), true), { config: '{}' });
  const plugins = mkdtempSync(join(tmpdir(), 'gen-limit-drop-'));
  let atWork: (time: number) => void = () => undefined;
  const watched = new addon.PluginFolder(plugins, () => {
    for (const { kind, name, component, reason } of watched.takeChanges()) {
      if (kind !== 'loaded' || component === undefined) throw new Error(reason ?? `${name}: ${kind}`);
      limiter.put(name, component);
      atWork(performance.now());
    }
  }, { cached: true });
  let blocked = 0;
  let looked = performance.now();
  const looking = setInterval(() => {
    const now = performance.now();
    blocked = Math.max(blocked, now - looked);
    looked = now;
  }, 1);
  const time = async (place: () => void): Promise<number> => {
    const done = new Promise<number>((resolve) => (atWork = resolve));
    const begun = performance.now();
    place();
    return (await done) - begun;
  };
  const rename = (name: string) => (): void => {
    const draft = join(plugins, `.${name}`);
    copyFileSync(DROPPED, draft);
    renameSync(draft, join(plugins, `${name}.wasm`));
  };
  try {
    // Otherwise it would be found by the first look.
    while (watched.standing()?.seen !== true) await new Promise((resolve) => setTimeout(resolve, 1));
    const renamed = await time(rename('one'));
    const cached = await time(rename('two'));
    // Other bytes, and the same plugin: with a section that means nothing.
    const bytes = Buffer.concat([readFileSync(DROPPED), Buffer.from([0, 3, 1, 0x78, 0])]);
    const written = await time(() => writeFileSync(join(plugins, 'three.wasm'), bytes));
    return { renamed, written, cached, blocked };
  } finally {
    clearInterval(looking);
    rmSync(plugins, { recursive: true, force: true });
  }
}

/** A process that measures once. */
async function child<T>(what: 'parts' | 'start' | 'drop', folder: string, source: Source, cache: string, home: string): Promise<T> {
  const args = [fileURLToPath(import.meta.url), what, folder, source];
  const env = { ...process.env, XDG_CACHE_HOME: cache, DSH_HOME: home };
  const { stdout } = await promisify(execFile)(process.execPath, args, { env });
  return JSON.parse(stdout) as T;
}

interface Taken {
  readonly best: number;
  readonly median: number;
}

function taken(times: readonly number[]): Taken {
  const sorted = times.toSorted((a, b) => a - b);
  const rounded = (ms = NaN): number => Math.round(ms * 100) / 100;
  return { best: rounded(sorted[0]), median: rounded(sorted[sorted.length >> 1]) };
}

async function measure() {
  const folder = mkdtempSync(join(tmpdir(), 'gen-limit-bench-'));
  try {
    const home = join(folder, 'home');
    // Without the delivered code, so that the cache is asked.
    const plain = join(folder, 'plain');
    mkdirSync(join(plain, 'dist'), { recursive: true });
    for (const name of ['gen-limit.node', 'gen-limit.wasm', 'dist/index.js', 'package.json']) copyFileSync(join(stage, name), join(plain, name));
    const kept = join(folder, 'kept');
    await child('parts', plain, 'compiled', kept, home);
    const runs = { parts: [] as Array<[Source, Parts]>, start: [] as Array<[Source, Start]>, drop: [] as Drop[] };
    for (let run = 0; run < RUNS; run += 1) {
      for (const source of SOURCES) {
        const from = source === 'precompiled' ? stage : plain;
        const cache = (what: string): string => (source === 'cached' ? kept : join(folder, `none-${run}-${source}-${what}`));
        runs.parts.push([source, await child<Parts>('parts', from, source, cache('parts'), home)]);
        runs.start.push([source, await child<Start>('start', from, source, cache('start'), home)]);
      }
      runs.drop.push(await child<Drop>('drop', stage, 'precompiled', join(folder, `none-${run}-drop`), home));
    }
    const part = (name: keyof Parts): Taken => taken(runs.parts.map(([, times]) => times[name]));
    const bySource = <T>(all: Array<[Source, T]>, time: (one: T) => number) =>
      Object.fromEntries(SOURCES.map((source) => [source, taken(all.filter(([of]) => of === source).map(([, one]) => time(one)))])) as Record<Source, Taken>;
    return {
      machine: { processor: cpus()[0]?.model ?? 'unknown', cores: cpus().length, node: process.version, load: loadavg()[0] },
      runs: RUNS,
      bytes: Object.fromEntries(PARTS.map((name) => [name, statSync(join(stage, name)).size])),
      milliseconds: {
        addon: part('addon'),
        engine: part('engine'),
        component: bySource(runs.parts, ({ component }) => component),
        instance: part('instance'),
        enforcing: bySource(runs.start, ({ enforcing }) => enforcing),
        mounting: bySource(runs.start, ({ mounting }) => mounting),
        dropped: {
          renamed: taken(runs.drop.map(({ renamed }) => renamed)),
          written: taken(runs.drop.map(({ written }) => written)),
          cached: taken(runs.drop.map(({ cached }) => cached)),
          blocked: taken(runs.drop.map(({ blocked }) => blocked)),
        },
      },
      bounds: BOUNDS,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function table({ machine, runs, bytes, milliseconds: ms, bounds }: Awaited<ReturnType<typeof measure>>): string {
  const rows: Array<[what: string, taken: Taken, bound?: number]> = [
    ['the addon is loaded', ms.addon],
    ['the engine is made', ms.engine],
    ['the component is loaded, precompiled', ms.component.precompiled],
    ['                         from the cache', ms.component.cached],
    ['                         compiled', ms.component.compiled],
    ['an instance is made', ms.instance],
    ['mounted and enforcing, precompiled', ms.enforcing.precompiled, bounds.precompiled],
    ['                       from the cache', ms.enforcing.cached],
    ['                       compiled', ms.enforcing.compiled],
    ['dropped in by a rename, compiled', ms.dropped.renamed, bounds.renamed],
    ['                        from the cache', ms.dropped.cached, bounds.cached],
    ['           written in place, compiled', ms.dropped.written, bounds.written],
    ['meanwhile the event loop is blocked for at most', ms.dropped.blocked, bounds.blocked],
  ];
  const number = (ms: number): string => ms.toFixed(1).padStart(9);
  return [
    `${machine.processor}, ${machine.cores} cores, load ${machine.load?.toFixed(1)}, Node ${machine.node}; milliseconds, ${runs} runs each`,
    `${''.padEnd(48)}${'best'.padStart(9)}${'median'.padStart(9)}${'aim'.padStart(9)}`,
    ...rows.map(([what, { best, median }, bound]) => `${what.padEnd(48)}${number(best)}${number(median)}${bound === undefined ? '' : `${bound}`.padStart(9)}`.trimEnd()),
    ...Object.entries(bytes).map(([name, size]) => `${name.padEnd(48)}${`${(size / 1e6).toFixed(2)} MB`.padStart(9)}`),
  ].join('\n');
}

const [what, folder = '', source] = process.argv.slice(2);
const ONCE: Record<string, (() => Promise<unknown>) | undefined> = {
  parts: () => parts(folder, source as Source),
  start: () => start(folder),
  drop: () => drop(folder),
};
const once = ONCE[what ?? ''];
if (once !== undefined) {
  process.stdout.write(JSON.stringify(await once()));
  process.exit();
}
const measured = await measure();
console.log(what === '--json' ? JSON.stringify(measured, undefined, 2) : table(measured));
