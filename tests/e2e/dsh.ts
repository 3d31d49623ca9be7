/**
 * Drives a real harness: a home of its own under the system's temporary folder, our package installed the way a user
 * installs it, `dsh` as a child process.
 */
import { spawn, execFile, type ChildProcess } from 'node:child_process';
import { createHash, randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync, watch } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as pass } from 'node:timers/promises';
import { promisify } from 'node:util';

import { HARNESS, HARNESS_NAME, type Harness, type Patch, type Sections } from './harness.ts';
import { PATIENCE_MS } from './patience.ts';

export { HARNESS, HARNESS_NAME, type Patch } from './harness.ts';

/** The shipped profiles: one answers a prompt and exits, the other serves its API. */
export type Profile = 'headless' | 'web';

/** The route of the tests, and another model of the same provider. */
export const PROVIDER = 'mock';
export const MODEL = 'model';
export const OTHER = 'other';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** The package under test: the one that `cargo xtask pack` makes, or the one that the environment names. */
export const PACKAGE = process.env['GEN_LIMIT_PACKAGE'] ?? join(root, 'target/package/creait-dsh-gen-limit.tgz');

/** The component that is packed. */
export const COMPONENT = join(root, 'target/component/gen-limit.wasm');

/** The component with faults on demand, for tests of what follows from them. */
export const CHAOS = join(root, 'target/component/gen-limit-chaos.wasm');

/** Another plugin for the folder: a budget of calls a minute. */
export const BUDGET = join(root, 'target/component/budget-guard.wasm');

/** A plugin of the tests that makes requests give up after a second of silence. */
export const HASTY = join(root, 'tests/e2e/fixtures/hasty');

/** A plugin of the tests, for what cannot be done from outside the harness. */
export const PROBE = join(root, 'tests/e2e/fixtures/probe');

/** Our package's name, and the id of its row. */
export const NAME = '@creait/dsh-gen-limit';
export const ROW = 'gen-limit';

/** A limit on the mock's model. */
export function limit(max: number): Patch {
  return { limits: [{ provider: PROVIDER, model: MODEL, max }] };
}

/** What a home is made of. */
export interface HomeOptions {
  readonly baseUrl: string;
  readonly profile: Profile;
  /** Tarballs and folders to install; our package unless told otherwise. */
  readonly packages?: readonly string[];
  /** Configuration of our row; without it the row stands as the package inserts it. */
  readonly config?: Patch;
  /** More entries of the patch layer. */
  readonly patches?: readonly Patch[];
  /** Agent presets, and the rows of each. */
  readonly presets?: Readonly<Record<string, readonly Patch[]>>;
  readonly contextWindow?: number;
  /** The models of the provider; two unless told otherwise. */
  readonly models?: readonly string[];
  /** How long the provider may send nothing before the harness gives its stream up. */
  readonly streamIdleTimeoutMs?: number;
  /** More settings of the harness. */
  readonly sections?: Sections;
  /** What the harness finds in its environment besides. */
  readonly env?: NodeJS.ProcessEnv;
}

/** A harness home. */
export class Home {
  readonly dir: string;
  readonly profile: Profile;
  readonly env: NodeJS.ProcessEnv;
  /** What the patch layer begins with: what the harness needs of it to reach the model server. */
  readonly #base: readonly Patch[];
  #isPatched = false;

  private constructor(dir: string, { profile, env = {} }: HomeOptions, base: readonly Patch[]) {
    this.dir = dir;
    this.profile = profile;
    this.env = env;
    this.#base = base;
  }

  /** A fresh home: settings for the mock provider, packages installed, row configured. */
  static async make(options: HomeOptions): Promise<Home> {
    const installed = await template(options.profile, options.packages ?? [PACKAGE]);
    const dir = await mkdtemp(join(tmpdir(), 'dsh-e2e-'));
    const { settings, patches } = HARNESS.configure(sections(options));
    const home = new Home(dir, options, patches);
    await cp(installed, dir, { recursive: true, verbatimSymlinks: true });
    await mkdir(home.workspace);
    await mkdir(join(dir, 'tmp'), { recursive: true });
    await writeFile(join(dir, 'settings.yaml'), JSON.stringify(settings));
    const own = options.config === undefined ? [] : [{ id: ROW, config: options.config }];
    const presets = Object.entries(options.presets ?? {}).map(([id, rows]) => HARNESS.preset(id, rows));
    for (const [path, text] of presets.flatMap(({ files }) => Object.entries(files))) {
      await mkdir(join(dir, dirname(path)), { recursive: true });
      await writeFile(join(dir, path), text);
    }
    await home.patch([...own, ...presets.flatMap(({ patches }) => patches), ...(options.patches ?? [])]);
    return home;
  }

  /** The folder agents work in. */
  get workspace(): string {
    return join(this.dir, 'workspace');
  }

  /** The profile's folder. */
  get profileDir(): string {
    return join(this.dir, 'profiles', this.profile);
  }

  /** Our package as installed in the profile. */
  get installed(): string {
    return join(this.profileDir, 'node_modules', NAME);
  }

  /** Replaces the profile's patch layer in one step; a running harness takes it up by itself. */
  patch(entries: readonly Patch[]): Promise<void> {
    return this.patchText(list(entries));
  }

  /**
   * The same with the text of the entries.
   *
   * dsh 0.1 is told of changes by chokidar, which drops one that comes within 50 ms of one that it has told of. Whatever was waited for
   * since the last change, that has been told of by now.
   */
  async patchText(entries: string): Promise<void> {
    if (this.#isPatched) await pass(100);
    this.#isPatched = true;
    const file = join(this.profileDir, 'cordis.patch.yml');
    const text = `${list(this.#base)}${entries}`;
    await writeFile(`${file}.next`, text === '' ? '[]' : text);
    await rename(`${file}.next`, file);
  }

  /** Turns our bundle's row into one that the patch layer inserts, so that it can be renamed and taken out. */
  async ownRow(): Promise<void> {
    const file = join(this.profileDir, 'package.json');
    const manifest = JSON.parse(await readFile(file, 'utf8')) as { dsh: { profile: { bundles: string[] } } };
    manifest.dsh.profile.bundles = manifest.dsh.profile.bundles.filter((bundle) => bundle !== NAME);
    await writeFile(file, JSON.stringify(manifest));
  }

  /** Where the plugin writes what it decides. */
  get traceFile(): string {
    return join(this.dir, 'trace.jsonl');
  }

  /** The plugin's trace so far. */
  trace(): TraceLine[] {
    if (!existsSync(this.traceFile)) return [];
    // The last line may be in the middle of being written.
    const lines = readFileSync(this.traceFile, 'utf8').split('\n').slice(0, -1);
    return lines.map((line) => JSON.parse(line) as TraceLine);
  }

  /** Resolves when the trace is as wanted, looking after every line. */
  traced(what: string, reached: (trace: TraceLine[]) => boolean): Promise<void> {
    const describe = (): string => this.trace().map((line) => `  ${JSON.stringify(line)}`).join('\n');
    return watched(this.dir, what, () => reached(this.trace()), describe);
  }

  /** Resolves when the configuration that the plugin keeps as its last good one is as wanted. */
  async stored(what: string, reached: (config: unknown) => boolean): Promise<void> {
    const folder = join(this.dir, 'gen-limit');
    const read = (): string => {
      const file = readdirSync(folder).find((name) => name.startsWith(`${this.profile}.`) && name.endsWith('.json'));
      return file === undefined ? 'null' : readFileSync(join(folder, file), 'utf8');
    };
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await watched(folder, what, () => reached(JSON.parse(read())), read);
  }

  /** The calls that stand in line, oldest first. */
  waiting(kind?: TraceLine['kind']): TraceLine[] {
    const line = new Map<string, TraceLine>();
    for (const entry of this.trace()) {
      if (entry.event === 'wait') line.set(nameOf(entry), entry);
      else if (entry.event === 'settled' || entry.event === 'finish') line.delete(nameOf(entry));
    }
    return [...line.values()].filter((entry) => kind === undefined || entry.kind === kind);
  }

  /** The streams that have been let through and have not ended. */
  live(): TraceLine[] {
    const live = new Map<string, TraceLine>();
    for (const entry of this.trace()) {
      if (entry.kind !== 'stream') continue;
      if (entry.event === 'admit' || (entry.event === 'settled' && entry.result === 'admitted')) live.set(nameOf(entry), entry);
      else if (entry.event === 'finish') live.delete(nameOf(entry));
    }
    return [...live.values()];
  }

  /** Deletes the home. */
  async remove(): Promise<void> {
    await rm(this.dir, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** One line of the plugin's trace. */
export interface TraceLine {
  readonly t: number;
  readonly event: 'admit' | 'wait' | 'settled' | 'deny' | 'finish' | 'stats';
  readonly id?: number;
  /** Whose call it is, where that is not the host's row. */
  readonly tenant?: string;
  readonly kind?: 'stream' | 'spawn';
  readonly session?: string;
  readonly route?: string;
  readonly result?: string;
  readonly reason?: string;
  readonly waitedMs?: number;
  /** The component's whole answer, on the last line. */
  readonly stats?: { readonly totals: Readonly<Record<'waited' | 'maxWaitMs' | 'live' | 'waiting', number>> };
  readonly host?: Readonly<Record<string, unknown>>;
}

/** What names a call among those of all tenants. */
function nameOf({ tenant = '', id }: TraceLine): string {
  return `${id} ${tenant}`;
}

/** A harness process. Emits `line` for each line it writes to stderr or stdout. */
export class Dsh extends EventEmitter<{ line: [string] }> {
  stdout = '';
  stderr = '';
  readonly exited: Promise<number>;

  readonly #child: ChildProcess;
  readonly #workspace: string;
  /** Where the web profile listens. */
  #origin = '';
  /** What makes a request one of somebody who has logged in. */
  #headers: Readonly<Record<string, string>> = {};

  private constructor(home: Home, args: readonly string[], [program, ...before] = HARNESS.command) {
    super();
    this.setMaxListeners(0);
    this.#workspace = home.workspace;
    this.#child = spawn(program, [...before, ...args], {
      cwd: home.workspace,
      env: { ...environment(home.dir), DSH_GEN_LIMIT_TRACE: home.traceFile, ...home.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    for (const name of ['stdout', 'stderr'] as const) {
      this.#child[name]?.setEncoding('utf8').on('data', (text: string) => {
        this[name] += text;
        this.emit('line', text);
      });
    }
    this.exited = once(this.#child, 'close').then(([code, signal]) => (code ?? `${signal}`) as number);
    void this.exited.then(() => this.emit('line', ''));
  }

  /** Answers one prompt and exits. */
  static headless(home: Home, prompt: string, command?: Harness['command']): Dsh {
    return new Dsh(home, ['--profile', 'headless', prompt], command);
  }

  /** Serves the web profile, on a free port unless one is given. */
  static async web(home: Home, port = 0): Promise<Dsh> {
    const dsh = new Dsh(home, ['web', '--no-open', '--port', String(port)]);
    const printed = (): string | undefined => /^dsh web: (\S+)$/m.exec(dsh.stdout + dsh.stderr)?.[1];
    await dsh.until('the address of the web profile', () => printed() !== undefined);
    const address = printed() ?? '';
    dsh.#origin = new URL(address).origin;
    dsh.#headers = await HARNESS.login(address);
    return dsh;
  }

  /** Where the web profile listens. */
  get origin(): string {
    return this.#origin;
  }

  /** The process. */
  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** How much of a processor it has used so far, in milliseconds; Linux tells in hundredths of a second. */
  get cpuMs(): number {
    const fields = readFileSync(`/proc/${this.pid}/stat`, 'utf8').replace(/^.*\) /su, '').split(' ');
    return (Number(fields[11]) + Number(fields[12])) * 10;
  }

  /** The headers of somebody who has logged in. */
  get loggedIn(): Readonly<Record<string, string>> {
    return this.#headers;
  }

  /** Makes a request of somebody who has logged in. */
  fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    for (const [name, value] of Object.entries(this.#headers)) headers.set(name, value);
    // A harness under load closes a connection that was idle for long just as the next request is on its way.
    headers.set('connection', 'close');
    return fetch(new URL(path, this.#origin), { ...init, headers }).catch((cause: unknown) => {
      throw new Error(`dsh does not answer ${path}\n${this.stdout}\n${this.stderr}`, { cause });
    });
  }

  /** Resolves when `reached` holds, looking after every output. */
  async until(what: string, reached: () => boolean): Promise<void> {
    const gaveUp = AbortSignal.timeout(PATIENCE_MS);
    while (!reached()) {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
        await this.exited;
        if (reached()) return;
        throw new Error(`dsh ended before ${what}\n${this.stdout}\n${this.stderr}`);
      }
      try {
        await once(this, 'line', { signal: gaveUp });
      } catch (cause) {
        throw new Error(`dsh: no ${what} within ${PATIENCE_MS} ms\n${this.stdout}\n${this.stderr}`, { cause });
      }
    }
  }

  /** Asks the probe. */
  async probe<T>(path: 'stream' | 'row' | 'restart' | 'settings' | 'fetch' | 'within' | 'providers' | 'crowd' | 'disperse' | 'memory' | 'loop', payload: unknown): Promise<T> {
    const response = await this.fetch(`/api/probe/${path}`, { method: 'POST', body: JSON.stringify(payload) });
    return (await response.json()) as T;
  }

  /** Calls a method of the web profile's API, by its name of 0.1. */
  async call<T>(method: string, payload: object): Promise<T> {
    const request = HARNESS.request(method, payload);
    const response = await this.fetch(`/api/${request.method}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ type: 'client-request', rpcId: randomUUID(), ...request }),
    });
    const text = await response.text();
    const answer = JSON.parse(text) as { result?: { ok?: boolean; value?: T } };
    if (answer.result?.value === undefined) throw new Error(`${method}: ${response.status} ${text}`);
    return answer.result.value;
  }

  /** Opens a session, in a preset and a folder of its own if they are named; gives the harness's id of it. */
  async open({ preset, cwd = this.#workspace }: { readonly preset?: string; readonly cwd?: string } = {}): Promise<string> {
    const named = preset === undefined ? {} : { agentPreset: preset };
    return (await this.call<{ sessionId: string }>('session.create', { cwd, ...named })).sessionId;
  }

  /** Sends a prompt to a session, or to one that it opens; gives the harness's id of it. */
  async prompt(text: string, session?: string): Promise<string> {
    const sessionId = session ?? (await this.open());
    await this.call('session.prompt', { sessionId, mode: 'queue', content: [{ type: 'text', text }] });
    return sessionId;
  }

  /** Sends a signal and waits for the end. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number> {
    this.#child.kill(signal);
    const forced = setTimeout(() => this.#child.kill('SIGKILL'), 30_000);
    const code = await this.exited;
    clearTimeout(forced);
    return code;
  }
}

/** Resolves when `reached` holds, looking whenever something in the folder changes. */
async function watched(folder: string, what: string, reached: () => boolean, describe: () => string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const watcher = watch(folder, () => reached() && resolve());
  const gaveUp = () => reject(new Error(`no ${what} within ${PATIENCE_MS} ms\n${describe()}`));
  const patience = setTimeout(gaveUp, PATIENCE_MS);
  try {
    if (!reached()) await promise;
  } finally {
    clearTimeout(patience);
    watcher.close();
  }
}

/** The environment of every child process: this Node and pnpm, nothing of the user's harness. */
function environment(home: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    PATH: [dirname(process.execPath), process.env['PATH'] ?? ''].join(delimiter),
    DSH_HOME: home,
    // What the harness leaves in its temporary folder goes with the home.
    TMPDIR: join(home, 'tmp'),
    DSH_TELEMETRY_DISABLED: '1',
    // Workflows run in a sandbox, for which not every machine has what it takes; the agents of tests touch nothing.
    DSH_PERMISSION_MODE: 'danger-full-access',
    E2E_KEY: 'none',
    pnpm_config_fetch_retries: '0',
  };
}

/** The entries of a YAML list, which may be JSON each. */
function list(entries: readonly Patch[]): string {
  return entries.map((entry) => `- ${JSON.stringify(entry)}\n`).join('');
}

function sections({ baseUrl, contextWindow = 100_000, models = [MODEL, OTHER], streamIdleTimeoutMs = 300_000, sections: more }: HomeOptions): Sections {
  return {
    'llm-pi-ai': {
      providers: {
        [PROVIDER]: {
          api: 'openai-completions',
          baseURL: baseUrl,
          apiKeyEnv: 'E2E_KEY',
          streamIdleTimeoutMs,
          models: models.map((id) => ({ id, contextWindow, maxTokens: 1_000 })),
        },
      },
    },
    'agent-default-model': { provider: PROVIDER, model: MODEL },
    // The harness itself starts at most ten tool calls of one message at once; here only our limits may bind.
    'agent-loop': { maxParallelToolCalls: 64 },
    ...more,
  };
}

const templates = new Map<string, Promise<string>>();

/**
 * A home with the packages installed, for tests to copy. Kept under `target/` by the content of what is installed, so
 * that every test process, and the next run, finds it.
 */
async function template(profile: Profile, packages: readonly string[]): Promise<string> {
  const hash = createHash('sha256').update(HARNESS_NAME).update(process.version);
  for (const path of packages) {
    const files = statSync(path).isDirectory() ? readdirSync(path).map((name) => join(path, name)) : [path];
    for (const file of files) hash.update(await readFile(file));
  }
  const folder = join(root, 'target/e2e', `${profile}-${hash.digest('hex').slice(0, 16)}`);
  const made = templates.get(folder) ?? install(folder, profile, packages);
  templates.set(folder, made);
  return made;
}

async function install(folder: string, profile: Profile, packages: readonly string[]): Promise<string> {
  if (existsSync(folder)) return folder;
  const fresh = `${folder}-${process.pid}`;
  const [program, ...before] = HARNESS.command;
  const dsh = (...args: string[]) =>
    promisify(execFile)(program, [...before, ...args], { env: environment(fresh), cwd: fresh });
  await mkdir(join(fresh, 'tmp'), { recursive: true });
  await dsh('--profile', profile, '--dump-default-config');
  for (const path of packages) await dsh('plugin', '--profile', profile, 'add', `file:${path}`);
  // Another process may have been quicker; then its folder stands and this one goes.
  await rename(fresh, folder).catch(() => rm(fresh, { recursive: true, force: true }));
  return folder;
}
