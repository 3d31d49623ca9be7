/** Several rows in one harness: each limits what is its own, and only that. Counted at the model server. */
import assert from 'node:assert/strict';
import { mkdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { type Dsh, HARNESS, limit, MODEL, NAME, PACKAGE, type Patch, PROBE, PROVIDER } from './dsh.ts';
import type { Arrival, ModelServer, Reply } from './model-server.ts';
import { Holds, inWorld, type World } from './scenario.ts';
import { gate, spawn, type Gate } from './scripts.ts';

const CHILDREN = 6;

/** The rows of a preset whose agents can delegate, with a limit of its own. */
function preset(max: number, config: Patch = limit(max)): Patch[] {
  return [
    { id: 'tool-subagent', name: '@deepseek-ai/dsh-tool-subagent', config: { provider: 'spawn', toolName: 'subagent' } },
    { id: 'gen-limit', name: NAME, config },
  ];
}

/** Tags of the children of a session that has split its work. */
function childrenOf(name: string): string[] {
  return Array.from({ length: CHILDREN }, (_, n) => `${name}${n}`);
}

/** A session's family: tags of its children begin with its own. */
function family({ session }: { readonly session: string }): string {
  return session.charAt(0);
}

/** A session that is one letter splits its work among children, which work until they are let go. */
function fanOuts(held: Gate): (arrival: Arrival) => Reply {
  return ({ purpose, session, delegated }) => {
    if (purpose === 'title') return { text: 'A title' };
    if (session.length > 1) return { text: 'done', holdMs: 60, until: held.opened };
    if (delegated) return { text: 'all done' };
    return { calls: Array.from({ length: CHILDREN }, (_, n) => spawn(`${session}${n}`)) };
  };
}

/** Whether a session has split its work, its children have done it, and it has heard of that and gone on. */
function isThrough(server: ModelServer, name: string): boolean {
  const heard = server.of(name).some(({ delegated, settled }) => (HARNESS.foreground ? delegated : settled >= CHILDREN));
  return heard && [name, ...childrenOf(name)].every((session) => server.completed(session));
}

/** How many sessions of each family generated at once, at most. */
function peaks(server: ModelServer): ReadonlyMap<string, number> {
  const peaks = new Map<string, number>();
  server.on('change', () => {
    const now = Map.groupBy(server.generating, (session) => family({ session }));
    for (const [name, sessions] of now) peaks.set(name, Math.max(sessions.length, peaks.get(name) ?? 0));
  });
  return peaks;
}

interface Stats {
  readonly entries: ReadonlyArray<{ readonly active: number }>;
  readonly scopes: ReadonlyArray<{ readonly max: number; readonly occupancy: number }>;
  readonly totals: Readonly<Record<'submitted' | 'live' | 'waiting', number>>;
  readonly waitersTotal: number;
  readonly host: { readonly tenants?: ReadonlyArray<{ readonly name: string; readonly path: string }> };
}

async function stats(dsh: Dsh, path = '/api/dsh-gen-limit'): Promise<Stats> {
  const response = await dsh.fetch(`${path}/stats?describe=false`);
  assert.equal(response.status, 200, path);
  return (await response.json()) as Stats;
}

/** Starts the web profile; settles when a row is at work. */
async function begun({ web }: Pick<World, 'web'>, row = /^gen-limit: \d/m): Promise<Dsh> {
  const dsh = await web();
  await dsh.until('the plugin', () => row.test(dsh.stderr));
  return dsh;
}

describe('tenants', { concurrency: 2 }, () => {
  test('two presets and the rest of the harness fan out at once, each within its own limit', () => {
    const full = gate();
    const presets = { one: preset(1), two: preset(2) };
    return inWorld({ script: fanOuts(full), presets, config: limit(3) }, async (world) => {
      const { server } = world;
      const peak = peaks(server);
      const dsh = await begun({ web: () => world.web() });
      const families = { A: { preset: 'one' }, B: { preset: 'two' }, C: {} };
      for (const [name, opening] of Object.entries(families)) await dsh.prompt(`[s:${name}] split this up`, await dsh.open(opening));

      const working = (name: string): number => server.chatting.filter((session) => session.length > 1 && session.startsWith(name)).length;
      await server.until('all seats to be taken', () => working('A') === 1 && working('B') === 2 && working('C') === 3);
      const paths = { A: '/api/dsh-gen-limit/t/one', B: '/api/dsh-gen-limit/t/two', C: '/api/dsh-gen-limit' };
      for (const [name, path] of Object.entries(paths)) {
        const { scopes, entries } = await stats(dsh, path);
        const max = { A: 1, B: 2, C: 3 }[name];
        const limited = scopes.filter((scope) => scope.max >= 0);
        assert.deepEqual(limited.map((scope) => [scope.max, scope.occupancy]), [[max, max]], name);
        assert.equal(entries.reduce((sum, { active }) => sum + active, 0), max, `${name}: nobody else's call is counted`);
      }
      assert.deepEqual((await stats(dsh)).host.tenants?.map(({ name }) => name).toSorted(), ['one', 'two']);
      full.open();

      await server.until('all children', () => server.idle && Object.keys(families).every((name) => isThrough(server, name)));
      await world.home.traced('the end of all calls', () => world.home.live().length === 0);
      assert.deepEqual(Object.fromEntries(peak), { A: 1, B: 2, C: 3 }, server.describe());
      for (const [name, path] of Object.entries(paths)) {
        const { totals } = await stats(dsh, path);
        const streams = server.streams.filter((stream) => family(stream) === name).length;
        assert.deepEqual([totals.submitted, totals.live, totals.waiting], [streams + CHILDREN, 0, 0], `${name}: streams and spawns, each once`);
      }
    });
  });

  test('a row of the host has the sessions of a folder to itself, and lets them go when it goes', () => {
    const holds = new Holds();
    return inWorld({ script: holds.script, config: limit(1) }, async (world) => {
      const { server, home } = world;
      const lab = join(await realpath(home.dir), 'lab');
      await mkdir(join(lab, 'inside'), { recursive: true });
      const own = { id: 'gen-limit', config: limit(1) };
      const row = { id: 'lab', name: NAME, config: { ...limit(1), tenant: { name: 'lab', workspace: lab } } };
      await home.patch([own, { insert: [row] }]);
      const dsh = await begun({ web: () => world.web() }, /^gen-limit: tenant lab: \d/m);
      const open = async (session: string, opening = {}): Promise<void> => void (await dsh.prompt(`[s:${session}] work`, await dsh.open(opening)));
      await open('A', { cwd: lab });
      await open('X');
      await server.until('one of each', () => server.chatting.join() === 'A,X');
      await open('B', { cwd: join(lab, 'inside') });
      await open('Y');
      const waiting = (tenant?: string): Set<unknown> => new Set(home.waiting().filter((call) => call.tenant === tenant).map(({ session }) => session));
      await home.traced('one of each to wait', () => waiting().size === 1 && waiting('lab').size === 1);
      assert.deepEqual(server.chatting, ['A', 'X']);
      await home.patch([own]);
      await server.until('the folder\'s line to be let go', () => server.chatting.join() === 'A,B,X');
      holds.release('X');
      await server.until('the other line to go on', () => server.chatting.join() === 'A,B,Y');
      for (const session of ['A', 'B', 'Y']) holds.release(session);
      await server.until('the end', () => server.idle);
    });
  });

  test('two presets stay below a ceiling together, whatever each of them may have, and both come through', () => {
    const full = gate();
    const presets = { one: preset(2), two: preset(3) };
    const config = { ceilings: [{ provider: PROVIDER, model: '*', max: 3 }] };
    return inWorld({ script: fanOuts(full), presets, config }, async (world) => {
      const { server } = world;
      const peak = peaks(server);
      const dsh = await begun({ web: () => world.web() });
      const families = { A: 'one', B: 'two' };
      await Promise.all(Object.entries(families).map(async ([name, preset]) => dsh.prompt(`[s:${name}] split this up`, await dsh.open({ preset }))));
      await server.until('all seats to be taken', () => server.chatting.filter((session) => session.length > 1).length === 3);
      full.open();
      await server.until('all children', () => server.idle && Object.keys(families).every((name) => isThrough(server, name)));
      await world.home.traced('the end of all calls', () => world.home.live().length === 0);
      assert.equal(server.peakSessions, 3, server.describe());
      assert.ok((peak.get('A') ?? 0) <= 2 && (peak.get('B') ?? 0) <= 3, JSON.stringify([...peak]));
      for (const preset of Object.values(families)) {
        const { scopes, totals } = await stats(dsh, `/api/dsh-gen-limit/t/${preset}`);
        assert.deepEqual([totals.live, totals.waiting, ...scopes.map(({ occupancy }) => occupancy)], [0, 0, ...scopes.map(() => 0)], preset);
      }
    });
  });

  test('ten thousand who wait in one preset change nothing in the other', () => {
    const full = gate();
    const many = 10_000;
    const crowded = { limits: [{ provider: PROVIDER, model: MODEL, max: 1, countBy: 'stream' }], maxQueued: 2 * many };
    const presets = { one: preset(1, crowded), two: preset(2) };
    return inWorld({ script: fanOuts(full), presets, config: limit(3), packages: [PACKAGE, PROBE] }, async (world) => {
      const { server } = world;
      const peak = peaks(server);
      const dsh = await begun({ web: () => world.web() });
      const one = await dsh.open({ preset: 'one' });
      // The first of its calls brings the preset's row; its child has the only seat then.
      await dsh.prompt('[s:A] split this up', one);
      await server.until('a child of the first', () => server.chatting.some((session) => session.length > 1));
      await dsh.probe('crowd', { provider: PROVIDER, model: MODEL, session: one, text: '[s:A-crowd] work', calls: many });
      const first = await stats(dsh, '/api/dsh-gen-limit/t/one');
      assert.ok(first.waitersTotal >= many, `${first.waitersTotal} wait`);

      await dsh.prompt('[s:B] split this up', await dsh.open({ preset: 'two' }));
      const working = (name: string): number => server.chatting.filter((session) => session.length > 1 && session.startsWith(name)).length;
      await server.until('the seats of the second', () => working('B') === 2);
      assert.equal(working('A'), 1);
      full.open();
      await server.until('the second to come through', () => isThrough(server, 'B'));
      assert.equal(peak.get('B'), 2, server.describe());
      assert.ok((await stats(dsh, '/api/dsh-gen-limit/t/one')).waitersTotal > many / 2, 'most of them still wait');
      assert.ok(await dsh.probe<number>('disperse', {}) > many / 2);
      await server.until('the first to come through', () => isThrough(server, 'A'));
      await server.until('the end', () => server.idle);
      assert.equal(peak.get('A'), 1, 'its own limit held as well');
    });
  });
});
