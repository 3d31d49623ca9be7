/**
 * The harnesses under test, and all that differs between them.
 *
 * A process tests one of them: the one that `GEN_LIMIT_HARNESS` names by its version or the beginning of it.
 */
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** One entry of a profile's patch layer. */
export type Patch = Readonly<Record<string, unknown>>;

/** What the harness is told of models and limits of its own: settings by their sections. */
export type Sections = Readonly<Record<string, Patch>>;

/** A version of the harness, and how one talks to it. */
export interface Harness {
  readonly version: string;
  /** The program that is started, and what comes before the harness's own arguments. */
  readonly command: readonly [program: string, ...before: string[]];
  /** Our section's name among its settings. */
  readonly section: string;
  /** Whether a tool call can wait for its subagent; else all of them work in the background. */
  readonly foreground: boolean;
  /** Whether a running row takes up another module, or other services, when they are written into its entry. */
  readonly remounts: boolean;
  /** What stands in the home's `settings.yaml`, and what in the profile's patch layer, to set these sections. */
  configure(sections: Sections): { readonly settings: Sections; readonly patches: readonly Patch[] };
  /** How an agent preset is declared: files in the home by their paths there, and entries of the patch layer. */
  preset(id: string, plugins: readonly Patch[]): { readonly files: Readonly<Record<string, string>>; readonly patches: readonly Patch[] };
  /** How a method of the web profile's API is called; methods go by the names of 0.1. */
  request(method: string, payload: object): { readonly method: string; readonly payload: unknown };
  /** The headers of one who has logged in at the address that `dsh web` prints. */
  login(address: string): Promise<Readonly<Record<string, string>>>;
}

const root = fileURLToPath(new URL('../..', import.meta.url));

const package8 = join(root, 'node_modules/@deepseek-ai/dsh');

/** From npm, with the JavaScript workspace; runs on our Node. */
const rc8: Harness = {
  version: (JSON.parse(readFileSync(join(package8, 'package.json'), 'utf8')) as { version: string }).version,
  command: [process.execPath, join(package8, 'lib/bin.js')],
  section: 'dsh-gen-limit',
  foreground: true,
  remounts: true,
  configure: (sections) => ({ settings: sections, patches: [] }),
  preset: (id, plugins) => ({ files: { [`.agent-presets/${id}/agent.cordis.yml`]: JSON.stringify(plugins) }, patches: [] }),
  request: (method, payload) => ({ method, payload }),
  login: async () => ({}),
};

/** The files of that executable, unpacked; only from them does it serve its page. */
const tree = process.env['GEN_LIMIT_DSH_TREE'];

/** From PyPI, a single executable with a Node of its own. */
const v021: Harness = {
  version: '0.2.1-rc.2',
  command:
    tree === undefined
      ? [join(root, 'target/tools/dsh-0.2.1-rc.2/deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-linux-x64')]
      : [process.execPath, join(tree, 'node/runtime-bootstrap.mjs')],
  section: 'gen-limit',
  foreground: false,
  remounts: false,
  configure: (sections) => {
    // By itself it rejects the ninth subagent that is active at once, and a subagent's own; here only our limits may bind.
    const all = { ...sections, subagent: { maxActiveSubagents: 1_000, maxDepth: 8, ...sections['subagent'] } };
    return { settings: {}, patches: Object.entries(all).map(([id, config]) => ({ id, config })) };
  },
  preset: (id, plugins) => {
    const row = { id: `preset-${id}`, name: '@deepseek-ai/dsh-agent-preset', config: { id, plugins } };
    return { files: {}, patches: [{ insert: [row] }] };
  },
  request: (method, payload) => {
    if (method.startsWith('settings.')) return { method: method.replace('.', '/'), payload: { args: payload } };
    const request = method === 'session.prompt' ? { requestId: randomUUID(), ...payload } : payload;
    return { method: method.replace('.', '/'), payload: { args: { request } } };
  },
  login: async (address) => {
    const { headers } = await fetch(address, { redirect: 'manual', headers: { connection: 'close' } });
    const cookies = headers.getSetCookie().map((cookie) => cookie.split(';')[0]);
    if (cookies.length === 0) throw new Error(`${address} sets no cookie`);
    return { cookie: cookies.join('; ') };
  },
};

/** All that are known. */
export const HARNESSES: readonly Harness[] = [rc8, v021];

/** The harness of a version, which may be told by its beginning. */
export function harness(version: string): Harness {
  const found = HARNESSES.find((one) => one.version.startsWith(version));
  if (found === undefined) throw new Error(`no dsh ${version} is known, only ${HARNESSES.map((one) => one.version).join(' and ')}`);
  const program = found.command.at(-1) as string;
  if (!existsSync(program)) throw new Error(`dsh ${found.version} is not installed at ${program}; cargo xtask test installs it`);
  return found;
}

/** The harness under test. */
export const HARNESS = harness(process.env['GEN_LIMIT_HARNESS'] ?? rc8.version);

/** Its name, with its version. */
export const HARNESS_NAME = `dsh ${HARNESS.version}`;
