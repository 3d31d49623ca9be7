/** Limits changed through the plugin's own route while a harness is at work. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { type Dsh, type Home, limit, MODEL, OTHER, type Patch, PROVIDER, ROW } from './dsh.ts';
import { PATIENCE_MS } from './patience.ts';
import { holding, Holds, inWorld, type Scenario, type World } from './scenario.ts';

const CONFIG = '/api/dsh-gen-limit/config';

interface Section {
  readonly value: Patch;
  readonly user: Patch;
  readonly writable: boolean;
  readonly revision: string;
  readonly problems: ReadonlyArray<{ readonly path: string }>;
}

async function section(dsh: Dsh): Promise<Section> {
  const response = await dsh.fetch(CONFIG);
  assert.equal(response.status, 200);
  return (await response.json()) as Section;
}

/** Posts a change; a text as it stands. */
async function post(dsh: Dsh, patch: unknown): Promise<{ readonly status: number; readonly answer: Record<string, unknown> }> {
  const body = typeof patch === 'string' ? patch : JSON.stringify(patch);
  const response = await dsh.fetch(CONFIG, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  return { status: response.status, answer: (await response.json()) as Record<string, unknown> };
}

async function change(dsh: Dsh, patch: Patch): Promise<Section> {
  const { status, answer } = await post(dsh, patch);
  assert.equal(status, 200, JSON.stringify(answer));
  return answer as unknown as Section;
}

/** A harness at work, with the settings there to be changed; titles are answered at once unless they are held, too. */
async function amid(
  { titles = 'answered', ...scenario }: Omit<Scenario, 'script'> & { readonly titles?: 'answered' | 'held' },
  test: (world: World, dsh: Dsh, holds: Holds) => Promise<void>,
): Promise<void> {
  const holds = new Holds();
  const script = titles === 'held' ? holding(holds, ({ session }) => holds.until(session)) : holds.script;
  await inWorld({ script, ...scenario }, async (world) => {
    const dsh = await world.web();
    await dsh.until('the plugin', () => /gen-limit: \d+\.\d+/.test(dsh.stderr));
    await test(world, dsh, holds);
  });
}

/** Has sessions generate. */
async function generate({ server }: World, dsh: Dsh, tags: readonly string[]): Promise<void> {
  await Promise.all(tags.map((tag) => dsh.prompt(`[s:${tag}] work`)));
  await server.until(`${tags.join(', ')} at once`, () => tags.every((tag) => server.chatting.includes(tag)));
}

/** Brings sessions to wait, in this order. */
async function wait({ home }: World, dsh: Dsh, tags: readonly string[]): Promise<void> {
  for (const tag of tags) {
    const id = await dsh.prompt(`[s:${tag}] work`);
    await home.traced(`wait of ${tag}`, () => home.waiting().some((call) => call.session === id));
  }
}

/** The files that a user may have written in, and that this harness still has. */
function files(home: Home): readonly string[] {
  return [join(home.dir, 'settings.yaml'), join(home.profileDir, 'cordis.patch.yml')].filter(existsSync);
}

describe('a limit changed through the route', { concurrency: 2 }, () => {
  test('B3 set to 1 while five generate: nobody new until none is left above it; raised to 3: three at once', () =>
    amid({ config: { limits: [] } }, async (world, dsh, holds) => {
      const { server } = world;
      const five = ['A', 'B', 'C', 'D', 'E'];
      await generate(world, dsh, five);
      // Longer than a timer of Node's holds: one that ran out at once would let nobody wait.
      const patient = { ...limit(1), queueTimeoutMs: 9_999_999_999 };
      assert.deepEqual((await change(dsh, patient)).value, patient);
      await wait(world, dsh, ['F', 'G', 'H', 'I']);
      for (const [index, tag] of five.entries()) {
        assert.deepEqual(server.chatting, five.slice(index), server.describe());
        holds.release(tag);
        await server.until(`the end of ${tag}`, () => server.completed(tag));
      }
      await server.until('one of those that waited', () => server.chatting.length === 1);
      assert.deepEqual(server.chatting, ['F']);
      await change(dsh, limit(3));
      await server.until('three at once', () => server.chatting.length === 3);
      assert.deepEqual(server.chatting, ['F', 'G', 'H']);
      for (const tag of ['F', 'G', 'H', 'I']) holds.release(tag);
      await server.until('all', () => server.completed('I'));
    }));

  test('a bad one stores nothing and names the field; of two writers with one revision the second is told', () =>
    amid({ config: limit(2) }, async ({ home }, dsh) => {
      const before = await section(dsh);
      const stored = (): Promise<string[]> => Promise.all(files(home).map((file) => readFile(file, 'utf8')));
      const untouched = await stored();
      const row = { provider: PROVIDER, model: MODEL };
      const bad: ReadonlyArray<readonly [patch: unknown, named: RegExp]> = [
        ...['abc', '2 sessions', {}, null, '', false, [], 0.4, -0.2, true, [5], '0x10', -7].map((max) =>
          [{ limits: [{ ...row, max }] }, /limits\[0\]\.max/] as const),
        [{ limits: [row] }, /limits\[0\]\.max/],
        [{ limits: [{ ...row, max: 1, maximum: 3 }] }, /limits\[0\]\.maximum/],
        [{ limits: [{ ...row, max: 1 }, { ...row, max: 2 }] }, /limits\[1\]/],
        [`{"limits":[{"provider":"${PROVIDER}","model":"${MODEL}","max":1e400}]}`, /limits\[0\]\.max/],
        [{ limits: [{ ...row, max: 1 }, { ...row, provider: ` ${PROVIDER}`, max: 2 }] }, /limits\[1\]/],
        [{ limits: [{ provider: 'a\0b', model: MODEL, max: 1 }] }, /limits\[0\]\.provider/],
        [{ limits: [{ provider: PROVIDER, model: 'm'.repeat(5_000), max: 1 }] }, /limits\[0\]\.model/],
        [{ limits: 1 }, /limits/],
        [{ maxQueued: 'many' }, /maxQueued/],
        [{ limit: [] }, /limit/],
        [{}, /at least one of/],
      ];
      for (const [patch, named] of bad) {
        const { status, answer } = await post(dsh, patch);
        assert.equal(status, 400, JSON.stringify(patch));
        assert.match(JSON.stringify(answer), named);
      }
      assert.deepEqual(await section(dsh), before);
      assert.deepEqual(await stored(), untouched);
      await change(dsh, { ...limit(1), revision: before.revision });
      const second = await post(dsh, { ...limit(7), revision: before.revision });
      assert.equal(second.status, 409);
      const now = await section(dsh);
      assert.deepEqual(second.answer['section'], { status: 'ok', ...now });
      assert.deepEqual(now.value['limits'], limit(1)['limits']);
      const both = await Promise.all([7, 8].map((max) => post(dsh, { ...limit(max), revision: now.revision })));
      assert.deepEqual(both.map(({ status }) => status).toSorted(), [200, 409], 'also at the same moment');
    }));

  test('what a user wrote around it stays, and it outlives the harness', () =>
    amid({ config: limit(2) }, async (world, dsh) => {
      await dsh.stop();
      for (const file of files(world.home)) {
        const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
        await writeFile(file, `# a word of the user's\n${lines.map((line, n) => `${line} # line ${n}\n# after ${n}\n`).join('')}`);
      }
      const comments = async (): Promise<string[]> =>
        (await Promise.all(files(world.home).map((file) => readFile(file, 'utf8')))).flatMap((text) => text.match(/# .*/g) ?? []);
      const words = await comments();
      const again = await world.web();
      await again.until('the plugin', () => /gen-limit: \d+\.\d+/.test(again.stderr));
      await change(again, { maxQueued: 7 });
      const texts = await Promise.all(files(world.home).map((file) => readFile(file, 'utf8')));
      assert.deepEqual(await comments(), words, texts.join('\n---\n'));
      assert.ok(texts.some((text) => /maxQueued["']?: 7/.test(text)), texts.join('\n---\n'));
      const { revision } = await section(again);
      await again.stop();
      const third = await world.web();
      await third.until('the plugin', () => /gen-limit: \d+\.\d+/.test(third.stderr));
      const kept = await section(third);
      assert.deepEqual([kept.value['maxQueued'], kept.value['limits']], [7, limit(2)['limits']]);
      assert.equal((await post(third, { maxQueued: 8, revision })).status, 409, 'a revision ends with its process');
    }));

  test('a group counts over its models, and lets its line go with it', () =>
    amid({ config: { limits: [] } }, async (world, dsh) => {
      const { server, home } = world;
      const routes = [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model }));
      await change(dsh, { groups: [{ name: 'box', max: 1, routes }] });
      await generate(world, dsh, ['A']);
      const b = await dsh.open();
      await dsh.call('session.selectModel', { sessionId: b, provider: PROVIDER, model: OTHER });
      await dsh.prompt('[s:B] work', b);
      await home.traced('B in line', () => home.waiting().some(({ session }) => session === b));
      assert.deepEqual(server.chatting, ['A']);
      await change(dsh, { groups: [] });
      await server.until('both', () => server.chatting.length === 2);
      assert.equal(server.of('B', 'chat')[0]?.model, OTHER);
    }));

  test('counted by stream, a session waits for itself', () =>
    amid({ config: { ...limit(1), countBy: 'stream' }, titles: 'held' }, async ({ server, home }, dsh, holds) => {
      const a = await dsh.prompt('[s:A] work');
      await home.traced('its turn or its title in line', () => home.waiting('stream').some(({ session }) => session === a));
      await server.until('the other', () => server.streams.length > 0);
      assert.equal(server.streams.length, 1, server.describe());
      await change(dsh, { countBy: 'session' });
      await server.until('both at once', () => server.peakStreams === 2);
      assert.deepEqual(server.generating, ['A']);
      holds.release('A');
      await server.until('its end', () => server.completed('A') && server.idle);
    }));

  test('an edit of the file and one through the route see each other', () =>
    amid({ config: limit(2) }, async ({ home }, dsh) => {
      const { revision } = await change(dsh, { maxQueued: 7 });
      await home.patch([{ id: ROW, config: { ...limit(4), maxQueued: 7 } }]);
      const overdue = AbortSignal.timeout(PATIENCE_MS);
      const max = async (): Promise<unknown> => ((await section(dsh)).value['limits'] as Array<{ max: number }>)[0]?.max;
      while ((await max()) !== 4) overdue.throwIfAborted();
      assert.equal((await section(dsh)).value['maxQueued'], 7);
      assert.equal((await post(dsh, { ...limit(1), revision })).status, 409, 'who wrote before the edit has not seen it');
      assert.equal(await max(), 4);
    }));
});
