/** What a user stores for the plugin: in the settings of dsh 0.1, in the row of 0.2, and on the way from one to the other. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { type Dsh, HARNESS, type Home, limit, MODEL, type Patch, PROVIDER } from './dsh.ts';
import { PATIENCE_MS } from './patience.ts';
import { Holds, inWorld, type World } from './scenario.ts';

const TAKEN = 'took what dsh 0.1 stored in settings.yaml over into the row';
const OLD = HARNESS.version.startsWith('0.1');

/** Stores our section as dsh 0.1 does, beside what else the file has. */
async function store({ dir }: Home, section: string): Promise<void> {
  const file = join(dir, 'settings.yaml');
  const others = Object.entries(JSON.parse(await readFile(file, 'utf8')) as Patch).map(([name, value]) => `${name}: ${JSON.stringify(value)}\n`);
  await writeFile(file, `${others.join('')}# ours\ndsh-gen-limit:\n${section}`);
}

async function start(world: World): Promise<Dsh> {
  const dsh = await world.web();
  await dsh.until('the plugin', () => /gen-limit: \d+\.\d+/.test(dsh.stderr));
  return dsh;
}

interface Config {
  readonly value: { readonly limits: ReadonlyArray<{ readonly max: unknown }>; readonly [key: string]: unknown };
  readonly problems: ReadonlyArray<{ readonly path: string }>;
}

async function config(dsh: Dsh, patch?: Patch): Promise<Config> {
  const post = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(patch) };
  const response = await dsh.fetch('/api/dsh-gen-limit/config', patch === undefined ? {} : post);
  assert.equal(response.status, 200);
  return (await response.json()) as Config;
}

/** The limits in force, by scope. */
async function inForce(dsh: Dsh): Promise<Record<string, number>> {
  const response = await dsh.fetch('/api/dsh-gen-limit/stats');
  const { scopes } = (await response.json()) as { scopes: Array<{ scope: string; max: number; configured: boolean }> };
  return Object.fromEntries(scopes.filter(({ configured }) => configured).map(({ scope, max }) => [scope, max]));
}

const ROUTE = `${PROVIDER}/${MODEL}`;
const row = (max: unknown, model: string = MODEL): string => `{provider: ${PROVIDER}, model: ${model}, max: ${max}}`;

describe('what a user stored', { concurrency: 2 }, () => {
  test('B18 what dsh 0.1 stored is in force from the first call, and what is changed or removed later stays so', () => {
    const holds = new Holds();
    return inWorld({ script: holds.script }, async (world) => {
      const { home, server } = world;
      await store(home, `  limits: [${row(1)}] # one\n  queueTimeoutMs: 90000\n`);
      const first = await start(world);
      assert.deepEqual(await inForce(first), { [ROUTE]: 1 });
      await first.prompt('[s:A] work');
      await server.until('A', () => server.chatting.includes('A'));
      const waiting = await first.prompt('[s:B] work');
      await home.traced('wait of B', () => home.waiting().some(({ session }) => session === waiting));
      if (!OLD) await first.until('the takeover', () => first.stderr.includes(TAKEN));
      assert.equal(first.stderr.includes(TAKEN), !OLD);
      assert.deepEqual(server.chatting, ['A'], 'nobody was let through for it');
      for (const tag of ['A', 'B']) holds.release(tag);
      await server.until('both', () => server.completed('B'));
      await first.stop();

      const second = await start(world);
      assert.equal((await config(second)).value['queueTimeoutMs'], 90_000);
      await config(second, { limits: [] });
      await second.stop();

      const third = await start(world);
      assert.deepEqual(await inForce(third), {});
      for (const { stderr } of [second, third]) assert.ok(!stderr.includes(TAKEN), stderr);
    });
  });

  test('what an older plugin stored stops nothing: the rest is in force, and everybody says what to mend', () =>
    inWorld({ script: () => ({ text: 'done' }) }, async (world) => {
      await store(world.home, `  limits: [${row(2)}, ${row('abc', 'm')}, ${row(-7, 'n')}]\n`);
      const dsh = await start(world);
      assert.deepEqual(await inForce(dsh), { [ROUTE]: 2 });
      assert.match(dsh.stderr, /gen-limit: limits\[1\]\.max: .*"abc".*limits\[2\]\.max: .*-7.*what is valid of it is in force/);
      assert.deepEqual((await config(dsh)).problems.map(({ path }) => path), ['limits[1].max', 'limits[2].max']);
      // Other keys can be changed meanwhile.
      const { value, problems } = await config(dsh, { maxQueued: 3 });
      assert.deepEqual([value['maxQueued'], problems.length], [3, 2]);
      assert.deepEqual((await config(dsh, limit(1))).problems, []);
      assert.deepEqual(await inForce(dsh), { [ROUTE]: 1 });
    }));

  test('a mistake that comes through the harness changes nothing, also over a restart, until it is put right', () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await start(world);
      const ns = HARNESS.section;
      const set = (max: unknown) => ({ limits: [{ provider: PROVIDER, model: MODEL, max }] });
      await dsh.call('settings.update', { ns, patch: set(3) });
      assert.deepEqual(await inForce(dsh), { [ROUTE]: 3 });
      const one = { provider: PROVIDER, model: MODEL };
      const wrong: ReadonlyArray<readonly [limits: readonly Patch[], ...paths: string[]]> = [
        [[{ ...one, maximum: 3 }], 'limits[0].maximum', 'limits[0].max'],
        [[{ ...one, max: 1 }, { ...one, provider: ` ${PROVIDER}`, max: 2 }], 'limits[1]'],
        [[{ ...one, provider: 'a\0b', max: 1 }], 'limits[0].provider'],
        [[{ ...one, model: 'm'.repeat(5_000), max: 1 }], 'limits[0].model'],
        ...['abc', '2 sessions', null, '', false, true, 0.4, -0.2, -7, 4_294_967_296, {}, [], [5], '0x10'].map((max) =>
          [[{ ...one, max }], 'limits[0].max'] as const),
        [[one], 'limits[0].max'],
      ];
      for (const [limits, ...paths] of wrong) {
        await dsh.call('settings.update', { ns, patch: { limits } });
        assert.deepEqual(await inForce(dsh), { [ROUTE]: 3 }, JSON.stringify(limits));
        const { value, problems } = await config(dsh);
        assert.deepEqual([value.limits, problems.map(({ path }) => path)], [limits, paths]);
      }
      const told = (): number | undefined => dsh.stderr.match(/limits\[[01]\].*: .*the last good configuration is in force/g)?.length;
      await dsh.until('each to be told once', () => told() === wrong.length);
      await dsh.stop();

      const again = await start(world);
      assert.deepEqual(await inForce(again), { [ROUTE]: 3 });
      assert.match(again.stderr, /limits\[0\]\.max: .*the last good configuration is in force/);
      await again.call('settings.update', { ns, patch: set(1) });
      assert.deepEqual(await inForce(again), { [ROUTE]: 1 });
      assert.deepEqual((await config(again)).problems, []);
      // What the harness itself tells of us is whole.
      const { namespaces } = await again.call<{ namespaces: Array<{ ns: string; value: unknown }> }>('settings.describe', {});
      assert.deepEqual(namespaces.find((one) => one.ns === ns)?.value, set(1));
    }));

  test('an edit of the file of dsh 0.1 is live, and keeps its comments when we write', { skip: OLD ? false : 'dsh 0.2 has none' }, () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await start(world);
      const becomes = async (max: number): Promise<void> => {
        const overdue = AbortSignal.timeout(PATIENCE_MS);
        while ((await inForce(dsh))[ROUTE] !== max) overdue.throwIfAborted();
      };
      await store(world.home, `  # because of the box\n  limits: [${row(1)}]\n  queueTimeoutMs: 90000 # patient\n`);
      await becomes(1);
      await config(dsh, limit(3));
      await becomes(3);
      const text = await readFile(join(world.home.dir, 'settings.yaml'), 'utf8');
      for (const comment of ['# ours', '# because of the box', '# patient']) assert.ok(text.includes(comment), text);
      assert.match(text, /max: 3/);
    }));
});
