/**
 * Plugins that do what no plugin should are dropped into a running harness, one after the other, while calls go through: the
 * harness stays responsive, and its calls are decided as the limits say.
 *
 * # What responsive means
 *
 * A timer in the harness's own event loop is never late by more than 150 ms for what its thread did meanwhile. What it is late
 * because the machine gave the processor to others is the machine's: the thread burns nothing then.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readFile, rename, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { type Dsh, limit, MODEL, NAME, PACKAGE, PROBE, PROVIDER, ROW } from './dsh.ts';
import type { Script } from './model-server.ts';
import { built, Plugins, saidOf, told } from './plugins.ts';
import { inWorld, type World } from './scenario.ts';

/** The most that the harness's event loop may be late by what happens in it, in milliseconds. */
const MOST_MS = 150;

const MAX = 2;
/** Other rows of ours. */
const ROWS = ['second', 'third'];
const CALLERS = 4;
/** So many calls have to end while a plugin misbehaves. */
const CALLS = 6;

/** What a plugin does, and what becomes of calls and requests. */
interface Case {
  /** Its configuration. */
  readonly config: object;
  /** The limits of its instance, where the usual ones would take long. */
  readonly limits?: object;
  /** What is said once it is there; that it is at work unless told otherwise. */
  readonly said?: string;
  /** What is said of it besides. */
  readonly words?: RegExp;
  /** Whether calls may be refused, on its word or for what it does. */
  readonly refuses?: boolean;
  /** How its path is answered, if it is asked. */
  readonly answers?: number;
}

const AT_WORK = 'the plugin hostile is at work';
const REFUSED = 'the plugin hostile is not put to work';
const LONG = /ran longer than \d+ ms/;

const CASES: Readonly<Record<string, Case>> = {
  'loops when a call starts': { config: { do: 'loop', in: 'start' }, words: LONG },
  'loops when a call starts, and refuses all then': { config: { do: 'loop', in: 'start', onFailure: 'closed' }, refuses: true, words: LONG },
  'loops when a call ends': { config: { do: 'loop', in: 'finish' }, words: LONG },
  'loops in time': { config: { do: 'loop', in: 'tick', after: 3, calls: 'wait', restless: true }, limits: { waitMs: 200 }, refuses: true, words: LONG },
  'loops when it is told who runs': { config: { do: 'loop', in: 'restore' }, said: REFUSED, words: LONG },
  'loops over its configuration': { config: { do: 'loop', in: 'configure' }, said: REFUSED, words: LONG },
  'loops when it is asked': { config: { do: 'loop', in: 'route' }, answers: 503, words: LONG },
  'loops wherever it is called': { config: { do: 'loop', in: '*', after: 6 }, words: LONG },
  'eats memory': { config: { do: 'eat', in: 'start' }, words: /more than the 67108864 it may have/ },
  'recurses without end': { config: { do: 'recurse', in: 'start' }, words: /trapped: / },
  'traps when a call starts': { config: { do: 'trap', in: 'start' }, words: /trapped: .*`unreachable`/ },
  'traps wherever it is called': { config: { do: 'trap', in: '*', after: 6 }, words: /trapped: .*`unreachable`/ },
  'floods the log': { config: { do: 'flood', in: 'start', n: 100_000, line: 100 }, words: /logged too much: \d+ lines dropped/ },
  'makes a million futures': { config: { do: 'futures', in: 'start', n: 1_000_000 }, words: /handle limit exceeded/ },
  'asks the harness without end': { config: { do: 'ask', in: 'start', n: 10_000 }, words: /trapped: / },
  'keeps everybody waiting': { config: { calls: 'mute' }, limits: { waitMs: 200 }, refuses: true },
  'keeps more waiting than it may': { config: { calls: 'mute' }, limits: { waits: 1, handles: 1, waitMs: 200 }, refuses: true, words: /trapped: / },
  'refuses in a megabyte of words': { config: { calls: 'deny', n: 2_000_000 }, refuses: true, words: /too much data/ },
  'always has more to do': { config: { restless: true } },
  'yields for ever when it is asked': { config: { route: 'yield' }, limits: { requestMs: 300 }, answers: 503, words: LONG },
  'never answers': { config: { route: 'hang' }, limits: { requestMs: 300 }, answers: 503, words: /not answered within 300 ms/ },
  'answers more than it may': { config: { size: 4_500_000 }, answers: 502 },
  'names more tools than it may': { config: { tools: 10_000, name: 100 }, said: REFUSED, words: /too much data/ },
  'wants more seats than there are': { config: { needs: 1_000, name: 10 } },
};

/** A moment in which the event loop was late, and what its thread had spent on a processor since the one before. */
interface Late {
  readonly at: number;
  readonly ms: number;
  readonly burntMs: number;
}

/** Calls that come again and again, a few at once. */
class Traffic {
  /** How those ended that have. */
  readonly ends: string[] = [];
  readonly #dsh: Dsh;
  readonly #callers: ReadonlyArray<Promise<void>>;
  #stopped = false;
  #failure: unknown;
  #heard: () => void = () => undefined;

  constructor(dsh: Dsh) {
    this.#dsh = dsh;
    this.#callers = Array.from({ length: CALLERS }, (_, n) => this.#call(n).catch((error: unknown) => this.#failed(error)));
  }

  async #call(n: number): Promise<void> {
    while (!this.#stopped) {
      const finish = await this.#dsh.probe<{ kind: string; message?: string }>('stream', { provider: PROVIDER, model: MODEL, text: `[s:${n}] work` });
      this.ends.push(finish.kind);
      this.#heard();
    }
  }

  #failed(error: unknown): void {
    this.#failure ??= error;
    this.#heard();
  }

  /** Resolves when so many more calls have ended. */
  async more(calls: number): Promise<void> {
    const enough = this.ends.length + calls;
    while (this.ends.length < enough) {
      if (this.#failure !== undefined) throw this.#failure;
      await new Promise<void>((resolve) => (this.#heard = resolve));
    }
  }

  /** Begins no more calls; resolves when those that have begun have ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#callers);
  }
}

/** Resolves when there is nothing more to tell of any file. */
async function forgotten(dsh: Dsh, traffic: Traffic): Promise<void> {
  while (((await told(dsh)).host.refused ?? []).length > 0) await traffic.more(1);
}

const script: Script = () => ({ text: 'done', holdMs: 30 });

/** A harness with calls going through, all of which are served as soon as the limit lets them; looks after its event loop. */
async function amidCalls(t: TestContext, run: (world: World, dsh: Dsh, traffic: Traffic, plugins: Plugins, during: (what: string) => Promise<void>) => Promise<void>): Promise<void> {
  await inWorld({ script, config: limit(MAX), packages: [PACKAGE, PROBE] }, async (world) => {
    const { server, home } = world;
    // Rows without calls have their chains too.
    await home.patch([{ id: ROW, config: limit(MAX) }, { insert: ROWS.map((id) => ({ id, name: NAME, config: { ...limit(MAX), tenant: { session: id } } })) }]);
    const dsh = await world.web();
    await dsh.until('the limiters', () => [/gen-limit: \d\S+, component/, ...ROWS.map((id) => new RegExp(`tenant ${id}: .* component`))].every((words) => words.test(dsh.stderr)));
    const traffic = new Traffic(dsh);
    // What a start leaves to be done and to be compiled is done.
    await traffic.more(20);
    await dsh.probe<Late[]>('loop', {});
    const worst: string[] = [];
    const during = async (what: string): Promise<void> => {
      const late = await dsh.probe<Late[]>('loop', {});
      const most = (of: (one: Late) => number): number => Math.round(Math.max(0, ...late.map(of)));
      t.diagnostic(`${what}: late by ${most(({ burntMs }) => burntMs)} ms, with what others did by ${most(({ ms }) => ms)} ms`);
      if (most(({ burntMs }) => burntMs) > MOST_MS) worst.push(`${what}: ${JSON.stringify(late)}`);
    };
    await traffic.more(CALLS);
    await during('before');
    await run(world, dsh, traffic, new Plugins(home), during);
    await traffic.more(CALLS);
    await traffic.stop();
    await during('after');
    assert.deepEqual(worst, []);
    await server.until('the end', () => server.idle);
    await home.traced('the end of all calls', () => home.live().length === 0 && home.waiting().length === 0);
    assert.equal(server.peakSessions, MAX);
    const { host, scopes, totals, waitersTotal } = await told(dsh);
    assert.deepEqual([host.state, host.restarts, host.plugins, host.refused], ['running', 0, [], []]);
    assert.deepEqual([scopes.map(({ occupancy }) => occupancy), totals.live, waitersTotal], [scopes.map(() => 0), 0, 0]);
  });
}

test('whatever a plugin does, the harness is responsive and its calls are decided', (t) =>
  amidCalls(t, async (_world, dsh, traffic, plugins, during) => {
    for (const [what, { config, limits, said = AT_WORK, words, refuses = false, answers }] of Object.entries(CASES)) {
      const [begun, heard] = [traffic.ends.length, dsh.stderr.length];
      await plugins.settings('hostile', { config, ...(limits && { limits }) });
      await saidOf(dsh, said, () => plugins.drop('hostile', built('hostile')));
      if (answers !== undefined) {
        const statuses = await Promise.all(Array.from({ length: 3 }, async () => (await dsh.fetch('/api/hostile/x')).status));
        assert.deepEqual(statuses, statuses.map(() => answers), what);
      }
      await traffic.more(CALLS);
      await saidOf(dsh, 'the plugin hostile is gone', async () => {
        for (const file of ['hostile.wasm', 'hostile.json']) await plugins.remove(file);
      });
      await traffic.more(CALLERS);
      await during(what);
      const kinds = new Set(traffic.ends.slice(begun));
      if (!refuses) assert.deepEqual([...kinds], ['stop'], what);
      if (words !== undefined) assert.match(dsh.stderr.slice(heard), words, what);
    }
  }));

/** A component with one text in place of another of the same length. */
async function patched(from: string, to: string): Promise<Uint8Array> {
  assert.equal(from.length, to.length);
  return Buffer.from((await readFile(built('hostile'))).toString('latin1').replaceAll(from, to), 'latin1');
}

test('what is no plugin is refused with what it is, and nobody waits for it', (t) =>
  amidCalls(t, async (_world, dsh, traffic, plugins, during) => {
    await mkdir(plugins.path, { recursive: true });
    const file = (name: string): string => join(plugins.path, name);
    const whole = await readFile(built('hostile'));
    const files: Record<string, [make: () => Promise<void>, words: RegExp]> = {
      'text.wasm': [() => plugins.drop('text', Buffer.from('not wasm at all')), /begins with `not wasm`/],
      'empty-module.wasm': [() => plugins.drop('empty-module', Buffer.from('\0asm\x01\0\0\0')), /core module/],
      'wasi.wasm': [async () => plugins.drop('wasi', await patched('dsh:plugin/log@0.1.0', 'wasi:cli/stdin@0.2.0')), /wasi:cli\/stdin@0\.2\.0/],
      'later.wasm': [async () => plugins.drop('later', await patched('@0.1.0', '@0.9.0')), /0\.9\.0/],
      'half.wasm': [() => plugins.drop('half', whole.subarray(0, whole.length / 2)), /half\.wasm/],
      'Not A Name.wasm': [() => plugins.drop('Not A Name', whole), /name/],
      'folder.wasm': [async () => void (await mkdir(file('folder.wasm'))), /folder/],
      'pipe.wasm': [async () => {
        execFileSync('mkfifo', [file('.pipe')]);
        await rename(file('.pipe'), file('pipe.wasm'));
      }, /it is a pipe/],
      'large.wasm': [async () => {
        await writeFile(file('.large'), '');
        await truncate(file('.large'), 200_000_000);
        await rename(file('.large'), file('large.wasm'));
      }, /200.?000.?000|large/],
    };
    for (const [name, [make, words]] of Object.entries(files)) {
      await saidOf(dsh, name, make);
      const { refused = [] } = (await told(dsh)).host;
      assert.match(refused.find((one) => one.file === name)?.reason ?? '', words, name);
      await traffic.more(CALLERS);
      await during(name);
      await plugins.remove(name);
      await forgotten(dsh, traffic);
    }
    assert.deepEqual([...new Set(traffic.ends)], ['stop']);
  }));
