/**
 * Brings the addon and the component to work, carefully: a plugin that throws while mounting stops the harness, so what is
 * wrong with them is found out after mounting, and said in a sentence that names what was found, what was expected and what to
 * do.
 *
 * Loading begins when the harness imports the plugin and goes on beside the harness's own start, on a thread of its own: when the
 * row is mounted, its calls wait for what is left of it.
 */
import { statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import manifest from '../package.json' with { type: 'json' };
import type * as Addon from '../../node/index.d.ts';
import { describe } from './gate.ts';
import type { Reporter } from './report.ts';
import { expanded, home } from './stored.ts';
import type { Scale } from './transport.ts';

/** Where the parts are, and what a test wants different. */
export interface Parts {
  readonly addon: string;
  readonly component: string;
  /** The folder of plugins; none is watched without. */
  readonly plugins?: string;
  readonly options?: Addon.Options;
  readonly transport?: Scale;
}

/** As the package ships them, beside `dist/`. */
export function packaged(): Parts {
  return {
    addon: fileURLToPath(new URL('../gen-limit.node', import.meta.url)),
    component: fileURLToPath(new URL('../gen-limit.wasm', import.meta.url)),
    ...pluginFolder(),
  };
}

/** Where plugins are dropped into; nowhere, where there is no home: this is asked before anything is mounted, and must not fail. */
function pluginFolder(): { plugins?: string } {
  try {
    const configured = process.env['DSH_GEN_LIMIT_PLUGINS']?.trim();
    return { plugins: configured ? expanded(configured) : join(home(), 'wasm-plugins') };
  } catch {
    return {};
  }
}

/** What has been brought to work. */
export interface Loaded {
  readonly addon: typeof Addon;
  readonly component: Addon.Component;
  readonly limiter: Addon.Limiter;
}

/** Begins to load them. What goes wrong is found out again, and said, when a row is mounted. */
export function prepare({ addon: path, component }: Parts = packaged()): void {
  try {
    expectFile(component);
    compile(loadAddon(path), component).catch(() => undefined);
  } catch {
    // As above.
  }
}

/** The component at work, with nothing limited yet. */
export async function load({ addon: path, component: file, options }: Parts, say: Reporter): Promise<Loaded> {
  for (const part of [path, file]) expectFile(part);
  const addon = loadAddon(path);
  const component = await compile(addon, file);
  if (component.notice !== null && !told.has(component)) say('warn', component.notice);
  told.add(component);
  return { addon, component, limiter: new addon.Limiter(component, options) };
}

/** What has been loaded, by file and time of change: a row that comes back, or a second one, does not load it again. */
const compiled = new Map<string, Promise<Addon.Component>>();

/** Those whose notice has been said. */
const told = new WeakSet<Addon.Component>();

async function compile(addon: typeof Addon, path: string): Promise<Addon.Component> {
  const key = `${path} ${statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 'missing'}`;
  const component = compiled.get(key) ?? addon.Component.load(path, true);
  compiled.set(key, component);
  try {
    return await component;
  } catch (error) {
    compiled.delete(key);
    const text = describe(error);
    throw new Error(text.includes(path) ? text : `${path}: ${text}`);
  }
}

/** Opening anything but a file may take for ever. One that is missing is told of by whoever opens it. */
function expectFile(path: string): void {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
    throw new Error(`${path}: expected a file there, found something else; ${REINSTALL}`);
  }
}

/** The addon in a file, if it is ours. */
export function loadAddon(path: string): typeof Addon {
  let loaded: unknown;
  try {
    loaded = createRequire(import.meta.url)(path);
  } catch (error) {
    throw new Error(`${path}: expected the native addon for ${platform()} there, found ${describe(error)}; ${REINSTALL}`);
  }
  if (!isAddon(loaded)) throw new Error(`${path}: expected the addon of gen-limit, found another module; ${REINSTALL}`);
  if (loaded.version() !== manifest.version) {
    throw new Error(`${path}: expected the addon of version ${manifest.version}, found ${loaded.version()}; ${REINSTALL}`);
  }
  return loaded;
}

const REINSTALL = 'install @creait/dsh-gen-limit again, for this platform';

function platform(): string {
  return `${process.platform}-${process.arch}`;
}

function isAddon(module: unknown): module is typeof Addon {
  return typeof module === 'object' && module !== null && 'Limiter' in module && 'Component' in module && 'version' in module;
}
