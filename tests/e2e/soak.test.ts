/**
 * A harness at work for a long time, with everything that may happen to it: for a minute, or as many seconds as
 * `GEN_LIMIT_SOAK_SECONDS` says (`cargo xtask prove soak`: half an hour).
 *
 * Fan-outs of sessions and calls without one go to three routes under five limits, which overlap. Meanwhile streams break or are
 * given up, providers refuse, limits change through the route and in the file, the plugin is restarted and switched off, and its
 * component traps, loops and eats memory, not more often than `maxRestarts` bears. `onFailure` is `closed`, or a call in which the
 * component loops would be let through. What comes is drawn from a seed, `GEN_LIMIT_SOAK_SEED`; when it comes depends on the machine.
 *
 * The server looks at every stream that opens (`Books`); the end is that nothing is left.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

import { type Dsh, HARNESS, limit, MODEL, NAME, OTHER, PACKAGE, type Patch, PROBE, PROVIDER, ROW } from './dsh.ts';
import type { Arrival, Ending, Reply, Script, ToolCall } from './model-server.ts';
import { PATIENCE_MS } from './patience.ts';
import { built, Plugins, saidOf, told } from './plugins.ts';
import { Holds, inWorld, twoAndTwo, type World } from './scenario.ts';
import { Books, Chance, files, held, type Held, type Limits, type Scope, slope } from './soak.ts';
import { spawn } from './scripts.ts';

const SECONDS = Number(process.env['GEN_LIMIT_SOAK_SECONDS'] ?? 60);
const SEED = Number(process.env['GEN_LIMIT_SOAK_SEED'] ?? 1);

/** The third route, and one that nothing limits. */
const THIRD = 'third';
const FREE = 'free';

const ROWS: readonly Scope[] = [MODEL, OTHER, THIRD].map((model) => ({ name: model, models: [model] }));
const GROUPS: readonly Scope[] = [
  { name: 'pair', models: [OTHER, THIRD] },
  { name: 'all', models: [MODEL, OTHER, THIRD] },
];
const FIRST: Limits = { [MODEL]: 3, [OTHER]: 2, [THIRD]: 2, pair: 3, all: 5 };
const ROOMY: Limits = { [MODEL]: 20, [OTHER]: 20, [THIRD]: 20, pair: 20, all: -1 };

/** How long somebody may wait, and that a call in which the component loops is not let through. */
const PATIENT: Patch = { queueTimeoutMs: 30_000, onFailure: 'closed' };

const LIMITER = /gen-limit: \d\S+, component/;
/** What of memory is told. The heap is the harness's: it keeps every session that there was, and has no way to let one go. */
const MEMORY = { 'the heap': ({ heap }: Held) => heap, 'outside the heap': ({ rss, heap }: Held) => rss - heap };
/** By how much what is outside the heap may have grown from the second quarter of the time to the last, if that is long enough for everything to have been used by then. */
const MOST_GROWTH = 1.25;
const LONG_S = 600;
/** What of the heap may be the plugin's when everybody has left. */
const MOST_OURS = 4 << 20;
/** So many more files or threads than at first may be there at the end. */
const SPARE = 4;

/** Nothing is begun while so many calls are with the limiter. */
const ENOUGH = 24;
/** The fewest seconds between two faults: four a minute, and five are allowed. */
const FAULT_EVERY_MS = 15_000;
/** So often memory is looked at. */
const LOOKS = 40;
/** An edit of the file that has not been seen after so long is written again. */
const WRITTEN_MS = 6_000;
/** A change that was stored, or not, or will be. */
const UNANSWERED = 'the harness did not answer in time';
/** A stream without a word is given up by the harness. */
const IDLE_MS = 4_000;

function limits(now: Limits): Patch {
  return { limits: ROWS.filter(({ name }) => name in now).map(({ name }) => ({ provider: PROVIDER, model: name, max: now[name] })) };
}

function groups(now: Limits): Patch {
  const routes = (models: readonly string[]) => models.map((model) => ({ provider: PROVIDER, model }));
  return { groups: GROUPS.filter(({ name }) => name in now).map(({ name, models }) => ({ name, max: now[name], routes: routes(models) })) };
}

/** What the model says; drawn by session and turn, so that it does not matter who asks first. */
const script: Script = (arrival) => {
  const chance = Chance.named(SEED, `${arrival.session} ${arrival.purpose} ${arrival.turn}`);
  if (arrival.purpose !== 'chat') return { text: 'A title', holdMs: chance.below(200) };
  const work: Reply = { text: 'done', holdMs: 20 + chance.below(300), ...(chance.percent(30) && { chunkMs: 20 }) };
  // Who asks for the third time has been treated badly enough.
  if (arrival.turn < 3 && chance.percent(18)) return { ...work, ending: ending(chance) };
  if (arrival.delegated || !chance.percent(arrival.session.startsWith('R') && !arrival.session.includes('.') ? 95 : 12)) return work;
  return { text: 'let us see', holdMs: chance.below(60), calls: calls(arrival, chance) };
};

function ending(chance: Chance): Ending {
  return chance.of<Ending>(['disconnect', 'disconnect', 'silence', { status: 429 }, { status: 500 }, { status: 400 }]);
}

function calls({ session }: Arrival, chance: Chance): readonly ToolCall[] {
  const depth = session.split('.').length;
  if (depth > 2) return [{ name: 'todo_write', arguments: { todos: [] } }];
  const n = 1 + chance.below(depth === 1 ? 6 : 2);
  return Array.from({ length: n }, (_, at) => spawn(`${session}.${at}`, chance.percent(15) ? 'subagent_fork' : 'subagent', chance.percent(25)));
}

/** Something that may happen. */
interface Happening {
  readonly weight: number;
  readonly what: string;
  /** Whether it may now; always, if not said. */
  may?(): boolean | Promise<boolean>;
  happen(): Promise<void>;
}

/** A harness that is soaked. */
class Soak {
  readonly counts: Record<string, number> = {};
  readonly samples: Held[] = [];
  readonly books: Books;
  readonly #world: World;
  readonly #dsh: Dsh;
  readonly #plugins: Plugins;
  readonly #chance = new Chance(SEED);
  readonly #sessions: string[] = [];
  readonly #direct = new Set<Promise<unknown>>();
  #now: Limits = FIRST;
  #names = 0;
  #faulted = -Infinity;

  constructor(world: World, dsh: Dsh) {
    this.#world = world;
    this.#dsh = dsh;
    this.#plugins = new Plugins(world.home);
    this.books = new Books(world.server, [...ROWS, ...GROUPS], FIRST);
  }

  /** What may happen, and how often. */
  readonly #happens: readonly Happening[] = [
    { weight: 30, what: 'fan-outs', may: () => this.#room(), happen: () => this.#fanOut() },
    { weight: 40, what: 'calls without a session', may: () => this.#room(), happen: () => this.#call() },
    { weight: 6, what: 'sessions given up', happen: () => this.#giveUp() },
    { weight: 4, what: 'crowds given up', may: () => this.#room(), happen: () => this.#crowd() },
    { weight: 8, what: 'limits changed by the route', happen: () => this.#byRoute() },
    { weight: 4, what: 'limits changed in the file', happen: () => this.#byFile() },
    { weight: 2, what: 'restarts of the plugin', happen: () => this.#restart() },
    { weight: 1, what: 'times without the plugin', happen: () => this.#without() },
    { weight: 1, what: 'components replaced', happen: () => this.#replace() },
    { weight: 6, what: 'faults of the component', may: () => performance.now() > this.#faulted + FAULT_EVERY_MS, happen: () => this.#fault() },
  ];

  /** So many seconds, and on a slow machine until everything has happened, and somebody had to wait. */
  async run(seconds: number): Promise<void> {
    await saidOf(this.#dsh, 'the plugin gen-limit is at work', () => this.#plugins.drop('gen-limit', built('gen-limit-chaos')));
    const [begun, most] = [performance.now(), seconds * 1_000];
    const sum = this.#happens.reduce((sum, { weight }) => sum + weight, 0);
    let looks = 0;
    for (let passed = 0; passed < most || !this.#isThrough(); passed = performance.now() - begun) {
      if (passed >= (looks * most) / LOOKS) {
        this.samples.push(await held(this.#dsh));
        looks += 1;
      }
      let drawn = this.#chance.below(sum);
      const missing = passed < most ? undefined : this.#happens.find(({ what }) => !(what in this.counts));
      const { what, may, happen } = missing ?? (this.#happens.find(({ weight }) => (drawn -= weight) < 0) as Happening);
      if (may !== undefined && !(await may())) {
        await this.#passing(1);
        continue;
      }
      this.#count(what);
      this.books.note(what);
      await happen();
      assert.deepEqual(this.books.wrong, [], this.#lately());
      await this.#passing(1 + this.#chance.below(4));
    }
    await this.#end();
  }

  /** Everything has happened at least once, and the limits were felt. */
  #isThrough(): boolean {
    return this.#happens.every(({ what }) => what in this.counts) && this.books.came.full > 0 && this.#waits > 0;
  }

  /** How many calls had to wait. */
  get #waits(): number {
    return this.#world.home.trace().filter(({ event }) => event === 'wait').length;
  }

  /** What it was, for people. */
  get told(): string {
    const { came, wrong } = this.books;
    const done = Object.entries(this.counts).map(([what, n]) => `${n} ${what}`).join(', ');
    const scopes = `${this.#waits} calls waited; a session came to a limited scope ${came.checked} times, made it full ${came.full} times, and exceeded it ${wrong.length} times`;
    return `${done}; ${this.#world.server.streams.length} streams; ${scopes}`;
  }

  #count(what: string): void {
    this.counts[what] = (this.counts[what] ?? 0) + 1;
  }

  /** What was decided last, for people. */
  #lately(): string {
    return this.books.wrong.length === 0 ? '' : [...this.books.wrong, ...this.#world.home.trace().slice(-80).map((line) => JSON.stringify(line).slice(0, 300))].join('\n');
  }

  #name(kind: string): string {
    this.#names += 1;
    return `${kind}${this.#names}`;
  }

  /** So many more streams open or close; none, if nothing goes on. */
  async #passing(changes: number): Promise<void> {
    const { server } = this.#world;
    for (let n = 0; n < changes && !server.idle; n += 1) await once(server, 'change');
  }

  /** Few enough calls are with the limiter to begin more. */
  async #room(): Promise<boolean> {
    const { totals } = await told(this.#dsh);
    return (totals.live ?? 0) + (totals.waiting ?? 0) < ENOUGH;
  }

  async #fanOut(): Promise<void> {
    const session = await this.#dsh.open();
    const model = this.#chance.of([MODEL, OTHER, THIRD]);
    if (model !== MODEL) await this.#dsh.call('session.selectModel', { sessionId: session, provider: PROVIDER, model });
    await this.#dsh.prompt(`[s:${this.#name('R')}] split this up`, session);
    this.#sessions.push(session);
  }

  async #call(): Promise<void> {
    const call = this.#dsh.probe('stream', { provider: PROVIDER, model: this.#chance.of([MODEL, OTHER, THIRD]), text: `[s:${this.#name('C')}] work` });
    this.#direct.add(call);
    void call.finally(() => this.#direct.delete(call)).catch(() => undefined);
  }

  async #giveUp(): Promise<void> {
    const sessionId = this.#chance.of(this.#sessions.slice(-6));
    if (sessionId !== undefined) await this.#dsh.call('session.cancel', { sessionId });
  }

  /** Calls of one session at once, all of which are given up, wherever they are then. */
  async #crowd(): Promise<void> {
    const name = this.#name('W');
    const crowd = { provider: PROVIDER, model: this.#chance.of([MODEL, OTHER, THIRD]), session: name, text: `[s:${name}] work`, calls: 2 + this.#chance.below(20) };
    await this.#dsh.probe('crowd', crowd);
    await this.#passing(this.#chance.below(4));
    await this.#dsh.probe('disperse', {});
  }

  /** Other limits for some scopes; few enough pause one. */
  #others(scopes: readonly Scope[]): Limits {
    const drawn = scopes.filter(() => this.#chance.percent(60)).map(({ name }) => [name, this.#chance.percent(5) ? 0 : 1 + this.#chance.below(5)] as const);
    return { ...this.#now, ...Object.fromEntries(drawn) };
  }

  async #byRoute(next = this.#others(ROWS)): Promise<void> {
    await this.#change(next, async () => {
      const change = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(limits(next)) };
      // A component that fails over it says so, and a harness that is slow; it may have been stored.
      for (const gaveUp = AbortSignal.timeout(PATIENCE_MS); ; gaveUp.throwIfAborted()) {
        const response = await this.#dsh.fetch('/api/dsh-gen-limit/config', change);
        const text = await response.text();
        if (response.status === 200) return;
        const isSlow = response.status === 500 && text.includes(UNANSWERED);
        assert.ok(isSlow || response.status === 503, `${response.status} ${text}`);
        this.#count(isSlow ? 'changes that the harness was slow with' : 'changes that the component failed over');
      }
    });
  }

  async #byFile(next = this.#others(GROUPS)): Promise<void> {
    await this.#change(next, () => this.#written(this.#row(next), () => this.#inForce(groups(next))));
  }

  #row(now: Limits, more: Patch = {}): Patch[] {
    return [{ insert: [{ id: ROW, name: NAME, config: { ...limits(now), ...groups(now), ...PATIENT }, ...more }] }];
  }

  async #change(next: Limits, change: () => Promise<void>): Promise<void> {
    this.books.widen(next);
    await change();
    await this.#arrived();
    this.books.settle(next);
    this.#now = next;
  }

  /** A call that begins now has come to the server. */
  async #arrived(): Promise<void> {
    await this.#dsh.probe('stream', { provider: PROVIDER, model: FREE, text: `[s:${this.#name('F')}] work` });
  }

  async #restart(): Promise<void> {
    await this.#dsh.probe('restart', { id: ROW });
    await this.#serving();
  }

  async #without(): Promise<void> {
    this.books.release();
    await this.#written(this.#row(this.#now, { disabled: true }), async () => !(await this.#isMounted()));
    await this.#call();
    await this.#passing(4);
    await this.#written(this.#row(this.#now), () => this.#isMounted());
    await this.#serving();
    // A call that passed the hook before may be slow in the harness.
    for (let n = 0; n < 3; n += 1) await this.#arrived();
    this.books.settle(this.#now);
  }

  async #isMounted(): Promise<boolean> {
    return (await this.#dsh.probe<number | null>('row', { id: ROW })) !== null;
  }

  async #inForce(wanted: Patch): Promise<boolean> {
    const response = await this.#dsh.fetch('/api/dsh-gen-limit/config');
    const { value, inForce } = (await response.json()) as { value?: Patch; inForce?: boolean };
    return inForce === true && isDeepStrictEqual({ ...value, ...wanted }, value);
  }

  /** The file says so, and is read: the harness may miss an edit that comes right after another. */
  async #written(rows: Patch[], isRead: () => Promise<boolean>): Promise<void> {
    for (const gaveUp = AbortSignal.timeout(PATIENCE_MS); ; gaveUp.throwIfAborted()) {
      await this.#world.home.patch(rows);
      for (const again = performance.now() + WRITTEN_MS; performance.now() < again; ) if (await isRead()) return;
    }
  }

  /** The plugin answers, with a component that works. */
  async #serving(): Promise<void> {
    for (const gaveUp = AbortSignal.timeout(PATIENCE_MS); ; gaveUp.throwIfAborted()) {
      const response = await this.#dsh.fetch('/api/dsh-gen-limit/stats?describe=false');
      const text = await response.text();
      if (response.status === 200 && text.includes('"state":"running"')) return;
    }
  }

  async #replace(): Promise<void> {
    await saidOf(this.#dsh, 'the packaged component is back', () => this.#plugins.remove('gen-limit.wasm'));
    await this.#passing(8);
    await saidOf(this.#dsh, 'the plugin gen-limit is at work', () => this.#plugins.drop('gen-limit', built('gen-limit-chaos')));
  }

  /** One of the next calls of the component fails, whichever it is. */
  async #fault(): Promise<void> {
    const order = `${this.#chance.of(['trap', 'trap', 'trap', 'loop', 'eat'])}-in:${1 + this.#chance.below(30)}`;
    this.books.note(order);
    const failures = (): number => this.#dsh.stderr.split('the component failed').length;
    const before = failures();
    await (await this.#dsh.fetch(`/api/dsh-gen-limit/stats?chaos=${order}`)).text();
    while (failures() === before) await this.#arrived();
    this.#faulted = performance.now();
    this.#count(order.replace(/:.*/u, ''));
  }

  /** Everybody gets to the end. */
  async #end(): Promise<void> {
    await this.#byRoute({ ...ROOMY, pair: this.#now['pair'] ?? -1, all: this.#now['all'] ?? -1 });
    await this.#byFile(ROOMY);
    for (const sessionId of this.#sessions) await this.#dsh.call('session.cancel', { sessionId });
    await Promise.allSettled(this.#direct);
    for (const gaveUp = AbortSignal.timeout(PATIENCE_MS); ; ) {
      const left = await this.#left();
      if (left === undefined && this.#world.server.idle) break;
      if (gaveUp.aborted) assert.fail(`left at the end: ${left}\n${this.#world.server.generating.join(' ')}`);
    }
    this.samples.push(await held(this.#dsh));
  }

  /** What of the heap there is no more when the plugin is not. */
  async ours(): Promise<number> {
    const { heap } = await held(this.#dsh);
    await this.#written(this.#row(this.#now, { disabled: true }), async () => !(await this.#isMounted()));
    return heap - (await held(this.#dsh)).heap;
  }

  /** Who is still with the limiter, if anybody is. */
  async #left(): Promise<string | undefined> {
    const { host, scopes, totals, waitersTotal, credits } = await told(this.#dsh);
    assert.equal(host.state, 'running');
    const numbers = { live: totals.live, waiting: totals.waiting, waitersTotal, credits, ...Object.fromEntries(scopes.map(({ scope, occupancy }) => [scope, occupancy])) };
    return Object.values(numbers).every((number) => number === 0) ? undefined : JSON.stringify(numbers);
  }
}

test(`a soak of ${SECONDS} s from seed ${SEED}`, { timeout: (SECONDS + 240) * 1_000 }, (t) => {
  const config = { ...limits(FIRST), ...groups(FIRST), ...PATIENT };
  const patches = [{ insert: [{ id: ROW, name: NAME, config }] }];
  const scenario = { script, patches, models: [MODEL, OTHER, THIRD, FREE], packages: [PACKAGE, PROBE], streamIdleTimeoutMs: IDLE_MS };
  return inWorld(scenario, async (world) => {
    const { home } = world;
    await home.ownRow();
    const dsh = await world.web();
    await dsh.until('the limiter', () => LIMITER.test(dsh.stderr));
    const soak = new Soak(world, dsh);
    const before = files(home);
    try {
      await soak.run(SECONDS);
    } finally {
      for (const line of [`dsh ${HARNESS.version}: ${soak.told}`, ...memory(soak.samples)]) t.diagnostic(line);
    }
    const [first, last] = [soak.samples[0], soak.samples.at(-1)] as [Held, Held];
    t.diagnostic(`${first.files.length} files and ${first.threads} threads at first, ${last.files.length} and ${last.threads} at the end`);
    const [early, late] = quarters(soak.samples).map((samples) => least(samples, MEMORY['outside the heap'])) as [number, number];
    assert.ok(SECONDS < LONG_S || late <= MOST_GROWTH * early, 'memory grows');
    const ours = await soak.ours();
    t.diagnostic(`${mb(ours)} of the heap were the plugin's`);
    assert.ok(ours < MOST_OURS, 'the plugin keeps what it should not');
    const more = last.files.filter((file) => !first.files.includes(file));
    assert.ok(last.files.length <= first.files.length + SPARE && last.threads <= first.threads + SPARE, `files or threads are left open: ${more.join(' ')}`);
    const left = [...before, 'wasm-plugins/gen-limit.wasm'];
    assert.deepEqual(files(home), left);
    await dsh.stop();
    assert.deepEqual(files(home), left);
  });
});

/** A and B generate, C and D wait; then the component fails whatever is done, until the row is put right. */
async function failing(onFailure: 'open' | 'closed', test: (world: World, dsh: Dsh, holds: Holds, ids: Readonly<Record<string, string>>) => Promise<void>): Promise<void> {
  const holds = new Holds();
  const row = (more: Patch): Patch[] => [{ insert: [{ id: ROW, name: NAME, config: { ...limit(2), onFailure, maxRestarts: 2, ...more } }] }];
  await inWorld({ script: holds.script, patches: row({}) }, async (world) => {
    const { home } = world;
    await home.ownRow();
    const dsh = await world.web();
    await dsh.until('the limiter', () => LIMITER.test(dsh.stderr));
    await saidOf(dsh, 'the plugin gen-limit is at work', () => new Plugins(home).drop('gen-limit', built('gen-limit-chaos')));
    const { ids } = await twoAndTwo(world, dsh);
    await home.patch(row({ chaos: 'trap-in:4' }));
    await home.stored('the row that fails', (config) => JSON.stringify(config).includes('trap-in'));
    const e = await dsh.prompt('[s:E] work');
    await dsh.until('the component is given up', () => dsh.stderr.includes('has FAILED more often than maxRestarts (2)'));
    await test(world, dsh, holds, { ...ids, E: e });
  });
}

describe('a component that fails more often than it may', { concurrency: 2 }, () => {
  test('under `open` everybody passes, and counts again when it is back', () =>
    failing('open', async ({ server, home }, dsh, holds) => {
      await server.until('all five', () => server.chatting.join('') === 'ABCDE');
      assert.equal((await told(dsh)).host.state, 'failed-open');
      await saidOf(dsh, 'is BACK', () => home.patch([{ insert: [{ id: ROW, name: NAME, config: limit(2) }] }]));
      const f = await dsh.prompt('[s:F] work');
      await home.traced('F in line', () => home.waiting().some(({ session }) => session === f));
      for (const session of ['A', 'B', 'C', 'D']) {
        assert.ok(!server.chatting.includes('F'), server.describe());
        holds.release(session);
        await server.until(`the end of ${session}`, () => server.completed(session));
      }
      await server.until('F', () => server.chatting.join('') === 'EF');
      for (const session of ['E', 'F']) holds.release(session);
      await server.until('the end', () => server.idle);
    }));

  test('under `closed` who waits and who comes is refused, who runs is not', () =>
    failing('closed', async ({ server, home }, dsh, holds, ids) => {
      for (const session of ['C', 'D', 'E']) {
        await home.traced(`refusal of ${session}`, (trace) => trace.some((line) => line.session === ids[session] && line.result === 'refused'));
      }
      assert.deepEqual(server.chatting, ['A', 'B']);
      await saidOf(dsh, 'is BACK', () => home.patch([{ insert: [{ id: ROW, name: NAME, config: limit(2) }] }]));
      const f = await dsh.prompt('[s:F] work');
      await home.traced('F in line', () => home.waiting().some(({ session }) => session === f));
      holds.release('A');
      await server.until('F', () => server.chatting.join('') === 'BF');
      for (const session of ['B', 'F']) holds.release(session);
      await server.until('the end', () => server.idle);
      assert.equal(server.peakSessions, 2);
      for (const session of ['C', 'D', 'E']) assert.deepEqual(server.of(session, 'chat'), []);
    }));
});

/** What was seen in the second quarter of the time, when everything has been used once, and in the last; not at the end, when nothing is done. */
function quarters(samples: readonly Held[]): ReadonlyArray<readonly Held[]> {
  const quarter = Math.floor(samples.length / 4);
  return [samples.slice(quarter, 2 * quarter), samples.slice(-quarter - 1, -1)];
}

function least(samples: readonly Held[], of: (held: Held) => number): number {
  return Math.min(...samples.map(of));
}

/** What became of memory. */
function memory(samples: readonly Held[]): string[] {
  const half = samples.slice(samples.length / 2);
  const [early, late] = quarters(samples) as [Held[], Held[]];
  return Object.entries(MEMORY).map(([what, of]) => {
    const [first, last] = [samples[0], samples.at(-1)].map((held) => (held === undefined ? '?' : mb(of(held))));
    return `${what}: ${first} at first, ${mb(least(early, of))} in the second quarter, ${mb(least(late, of))} in the last, ${last} at the end; ${mb(slope(half, of))} a minute in the second half`;
  });
}

function mb(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
