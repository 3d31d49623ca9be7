/**
 * How long it takes from a harness that mounts the plugin to limits that hold, of the package that was packed last:
 *
 *   cargo xtask bench startup [--json]
 *
 * Each run is a process of its own, and those with code that was delivered, kept or is yet to be made take turns, so that
 * whatever else the machine does is the same for all three.
 */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
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
  /** The longest time that the event loop was kept from other work. */
  readonly blocked: number;
}

/** What it is supposed to take, in milliseconds. */
const BOUNDS = { precompiled: 15, cached: 15, compiled: 500, blocked: 20 };

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
  let blocked = 0;
  let looked = 0;
  const look = (): void => {
    const now = performance.now();
    blocked = Math.max(blocked, now - looked);
    looked = now;
  };
  const { promise: enforcing, resolve } = Promise.withResolvers<number>();
  const call = (session: string): AsyncIterator<StreamChunk> =>
    ctx.llm.stream({ provider: 'box', model: 'm', messages: [], sessionId: session as never })[Symbol.asyncIterator]();
  const apply = (inner: Context, config: unknown): void => {
    begun = looked = performance.now();
    const looking = setInterval(look, 1);
    plugin.apply(inner, config);
    mounting = performance.now() - begun;
    void call('first').next().then(() => {
      resolve(performance.now() - begun);
      look();
      clearInterval(looking);
    });
    void call('second').next();
  };
  ctx.loader.builtins['gen-limit'] = { name: 'gen-limit', Config: plugin.Config, apply } as never;
  await ctx.loader.create({ id: 'gen-limit', name: 'cordis:gen-limit', config: { limits: [{ provider: 'box', model: '*', max: 1 }] } } as never);
  const took = await enforcing;
  if (backend.arrived !== 1) throw new Error(`${backend.arrived} calls at a limit of 1`);
  return { enforcing: took, mounting, blocked };
}

/** A process that measures once. */
async function child<T>(what: 'parts' | 'start', folder: string, source: Source, cache: string, home: string): Promise<T> {
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
    const runs = { parts: [] as Array<[Source, Parts]>, start: [] as Array<[Source, Start]> };
    for (let run = 0; run < RUNS; run += 1) {
      for (const source of SOURCES) {
        const from = source === 'precompiled' ? stage : plain;
        const cache = (what: string): string => (source === 'cached' ? kept : join(folder, `none-${run}-${source}-${what}`));
        runs.parts.push([source, await child<Parts>('parts', from, source, cache('parts'), home)]);
        runs.start.push([source, await child<Start>('start', from, source, cache('start'), home)]);
      }
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
        blocked: bySource(runs.start, ({ blocked }) => blocked),
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
    ['                         from the cache', ms.component.cached, bounds.cached],
    ['                         compiled', ms.component.compiled, bounds.compiled],
    ['an instance is made', ms.instance],
    ['mounted and enforcing, precompiled', ms.enforcing.precompiled, bounds.precompiled],
    ['                       from the cache', ms.enforcing.cached],
    ['                       compiled', ms.enforcing.compiled],
    ['of that the event loop is blocked for at most', ms.blocked.compiled, bounds.blocked],
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
if (what === 'parts' || what === 'start') {
  process.stdout.write(JSON.stringify(what === 'parts' ? await parts(folder, source as Source) : await start(folder)));
  process.exit();
}
const measured = await measure();
console.log(what === '--json' ? JSON.stringify(measured, undefined, 2) : table(measured));
