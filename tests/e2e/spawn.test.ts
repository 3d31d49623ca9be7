/** Spawn tool calls: on whose route they wait, how a refusal is told, and what the harness refuses by itself. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { zstdDecompressSync } from 'node:zlib';

import { type Dsh, HARNESS, type Home, limit, MODEL, OTHER, type Patch, PROVIDER } from './dsh.ts';
import type { Script, ToolCall } from './model-server.ts';
import { holding, Holds, inWorld, type World } from './scenario.ts';
import { children, fanOut, gate, ROOT, spawn } from './scripts.ts';

const own = HARNESS.foreground && 'its subagents have the route of their parent, whatever the tool call says';
const cap = HARNESS.foreground && 'it has no limit of its own on subagents';
const codes = HARNESS.foreground && 'it has no place for the code of a denied tool call but its text';

/** A call of the tool that spawns `child`; on the route it names, if it names one. */
function child(route: { provider?: string; model?: string } = {}): ToolCall {
  const { name, arguments: asked } = spawn('child');
  return { name, arguments: { ...asked, ...route } };
}

/** The routes on which the spawns and the children of the trace were let through. */
function routes(home: Home): { readonly spawns: string[]; readonly streams: string[] } {
  const trace = home.trace();
  const parent = trace.find(({ kind }) => kind === 'spawn')?.session;
  const of = (wanted: 'spawn' | 'stream'): string[] => {
    const begun = trace.filter(({ event, kind, session }) =>
      (event === 'admit' || event === 'wait') && kind === wanted && (wanted === 'spawn' || session !== parent));
    return begun.map(({ route }) => route ?? '');
  };
  return { spawns: of('spawn'), streams: of('stream') };
}

/** Has a session whose model was picked in the UI spawn a child. */
async function spawns(call: ToolCall, picked: string, run: (world: World) => Promise<void>): Promise<void> {
  const holds = new Holds();
  holds.release('child');
  holds.release('B');
  const script = holding(holds, ({ session, purpose, delegated }) =>
    session === 'B' && purpose === 'chat' && !delegated ? { calls: [call] } : undefined,
  );
  const allowedModels = [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model }));
  const sections = { 'subagent-model-selection-settings': { enabled: true, allowedModels } };
  const limits = [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model, max: 1 }));
  await inWorld({ script, config: { limits }, sections }, async (world) => {
    const dsh = await world.web();
    const b = await dsh.open();
    await dsh.call('session.selectModel', { sessionId: b, provider: PROVIDER, model: picked });
    await dsh.prompt('[s:B] delegate', b);
    await world.server.until('the child', () => world.server.completed('child'));
    await run(world);
  });
}

test('a spawn is paced on the route of its child when another model was picked', () =>
  spawns(child(), OTHER, async ({ home, server }) => {
    assert.equal(server.of('B', 'chat')[0]?.model, OTHER);
    const { spawns, streams } = routes(home);
    assert.deepEqual(spawns, [`${PROVIDER}/${server.of('child')[0]?.model}`]);
    assert.deepEqual(streams, spawns);
  }));

test('a spawn is paced on the route that the tool call names', { skip: own }, () =>
  spawns(child({ provider: PROVIDER, model: OTHER }), MODEL, async ({ home, server }) => {
    assert.equal(server.of('B', 'chat')[0]?.model, MODEL);
    assert.equal(server.of('child')[0]?.model, OTHER);
    assert.deepEqual(routes(home), { spawns: [`${PROVIDER}/${OTHER}`], streams: [`${PROVIDER}/${OTHER}`] });
  }));

/** Has B call for a child while A holds the only seat. */
async function waiting(config: Patch, run: (world: World, dsh: Dsh, holds: Holds, told: () => readonly string[]) => Promise<void>): Promise<void> {
  const holds = new Holds();
  let told: readonly string[] = [];
  const script = holding(holds, ({ session, purpose, delegated, results }) => {
    if (session !== 'B' || purpose !== 'chat') return undefined;
    told = results;
    return delegated ? undefined : { calls: [child()] };
  });
  await inWorld({ script, config }, async (world) => {
    const { server, home } = world;
    const dsh = await world.web();
    const b = await dsh.prompt('[s:B] delegate');
    await server.until('B generates', () => server.generating.includes('B'));
    const a = await dsh.prompt('[s:A] work');
    await home.traced('A in line', () => home.waiting().some(({ session }) => session === a));
    holds.release('B');
    await home.traced('the spawn in line', (trace) => trace.some(({ event, kind, session }) => event === 'wait' && kind === 'spawn' && session === b));
    await run(world, dsh, holds, () => told);
  });
}

/** Has a spawn wait until it is refused. */
function refused(run: (world: World, results: readonly string[]) => Promise<void>): Promise<void> {
  return waiting({ ...limit(1), queueTimeoutMs: 3_000 }, async (world, dsh, holds, told) => {
    const { server, home } = world;
    await home.traced('the refusal', (trace) =>
      trace.some(({ event, kind, result }) => event === 'settled' && kind === 'spawn' && result === 'refused'),
    );
    holds.release('A');
    await server.until('B is told', () => server.of('B', 'chat').length === 2 && server.completed('B'));
    await dsh.stop();
    await run(world, told());
  });
}

test('a refused spawn comes back to the model with the code and what to do', () =>
  refused(async ({ server }, results) => {
    assert.equal(results.length, 1);
    assert.match(results[0] ?? '', /GEN_CAPACITY_EXCEEDED: .*mock\/model/);
    assert.deepEqual(server.of('child'), []);
  }));

/** The errors of tool calls, as the harness has put them down in its sessions. */
function errors(home: Home): unknown[] {
  const folder = join(home.dir, 'sessions');
  const logs = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.jsonl.zstd'));
  const lines = logs.flatMap((name) => zstdDecompressSync(readFileSync(join(folder, name))).toString().split('\n'));
  const results = lines.filter((line) => line.startsWith('{"type":"tool/result"'));
  return results.map((line) => (JSON.parse(line) as { data: { error?: unknown } }).data.error);
}

test('a refused spawn has its code in the session as a code', { skip: codes }, () =>
  refused(async ({ home }) => {
    assert.deepEqual(errors(home), [{ name: 'GenLimitError', code: 'GEN_CAPACITY_EXCEEDED' }]);
  }));

test('a spawn that waits when the harness shuts down makes no child, and is cancelled where that can be said', () =>
  waiting(limit(1), async ({ server, home }, dsh) => {
    await dsh.stop('SIGINT');
    assert.deepEqual(server.of('child'), []);
    if (!HARNESS.foreground) assert.deepEqual(errors(home), [{ name: 'AbortError', code: 'ABORTED_BEFORE_DISPATCH' }]);
  }));

test('what the harness itself refuses costs no seat and is told in its own words', { skip: cap }, () => {
  const held = gate();
  let results: readonly string[] = [];
  const answer = fanOut({ n: 6, until: held.opened });
  const script: Script = (arrival) => {
    if (arrival.session === ROOT && arrival.purpose === 'chat') results = arrival.results;
    return answer(arrival);
  };
  // A credit that the harness's refusal left behind would hold the next spawn up for good.
  const config = { ...limit(3), queueTimeoutMs: 0, spawnGraceMs: 3_600_000 };
  return inWorld({ script, config, sections: { subagent: { maxActiveSubagents: 2 } } }, async (world) => {
    const { server, home } = world;
    const dsh = await world.web();
    await dsh.prompt(`[s:${ROOT}] split this up`);
    await server.until('two children and the root again', () => results.length === 6 && children(2).every((one) => server.generating.includes(one)));
    const limited = results.filter((text) => /active child limit: 2/.test(text));
    assert.equal(limited.length, 4, results.join('\n'));
    assert.ok(results.every((text) => !text.includes('GEN_CAPACITY')), results.join('\n'));
    assert.equal(home.trace().filter(({ event, kind, result }) => event === 'finish' && kind === 'spawn' && result === 'failed').length, 4);
    held.open();
    await server.until('both', () => children(2).every((one) => server.completed(one)));
    assert.deepEqual(children(6).filter((one) => server.of(one).length > 0), children(2));
  });
});
