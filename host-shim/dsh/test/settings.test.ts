/** One document of the row and the settings, on both versions of the harness. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { Config, plain } from '../src/compat/settings.ts';
import type { Gate } from '../src/gate.ts';
import { SettingsFailure, type Settings } from '../src/settings.ts';
import { SettingsWorld, VERSIONS, type SettingsMaking } from './settings-support.ts';
import { fail, limit, settled, until } from './support.ts';

/** Expects a refusal of the settings and gives it. */
async function refused(work: Promise<unknown>, kind: SettingsFailure['kind']): Promise<SettingsFailure> {
  try {
    await work;
  } catch (error) {
    assert(error instanceof SettingsFailure);
    assert.equal(error.kind, kind);
    return error;
  }
  return assert.fail(`not refused as ${kind}`);
}

const json = (value: unknown): string => JSON.stringify(value);

/** Has the harness not begin the next `count` changes before it is let; tells how many it has been handed. */
function hold(world: SettingsWorld, count: number): { readonly handed: number; letGo(): void } {
  const { promise, resolve: letGo } = Promise.withResolvers<void>();
  const { settings } = world.ctx;
  const update = settings.update.bind(settings);
  let handed = 0;
  Object.defineProperty(settings, 'update', {
    configurable: true,
    value: async (...change: Parameters<typeof update>) => {
      handed += 1;
      if (handed <= count) await promise;
      return update(...change);
    },
  });
  return {
    get handed() {
      return handed;
    },
    letGo,
  };
}

/** B8, B16: what a limit may not be. */
const WRONG: ReadonlyArray<readonly [name: string, field: RegExp, row: unknown]> = [
  ...['abc', '2 sessions', {}, null, '', false, [], 0.4, -0.2, true, [5], '0x10', -7, 4_294_967_296].map((max) =>
    [`max ${json(max)}`, /limits\[0\]\.max/u, { provider: 'box', model: '*', max }] as const),
  ['no max', /limits\[0\]\.max/u, { provider: 'box', model: '*' }],
  ['maximum', /limits\[0\]/u, { provider: 'box', model: '*', maximum: 3 }],
  ['an empty id', /limits\[0\]\.provider/u, { provider: ' ', model: '*', max: 1 }],
  ['NUL in an id', /limits\[0\]\.provider/u, { provider: 'b\0x', model: '*', max: 1 }],
  ['a very long id', /limits\[0\]\.model/u, { provider: 'box', model: 'm'.repeat(5_000), max: 1 }],
  ['two rows for one scope', /limits\[1\]/u, undefined],
];

function wrong(row: unknown): { limits: unknown[] } {
  const good = { provider: 'box', model: '*', max: 1 };
  return { limits: row === undefined ? [good, { ...good, provider: ' box' }] : [row] };
}

for (const version of VERSIONS) {
  suite(`settings, dsh ${version}`, () => {
    const make = (making: SettingsMaking = {}): Promise<SettingsWorld> => SettingsWorld.make({ version, config: limit(2), ...making });

    test('what the row seeds is the document until the user changes something', async () => {
      const world = await make();
      const { revision, ...section } = await world.settings.read();
      const user = version === '0.1' ? {} : limit(2);
      const base = version === '0.1' ? limit(2) : { limits: [] };
      assert.deepEqual(section, { value: json(limit(2)), base: json(base), user: json(user), inForce: true, writable: true });
      assert.match(revision ?? '', /^[0-9a-f]{8}\.0$/u);
      assert.equal(world.max, 2);
    });

    test('a change is in force when it resolves; keys that are absent from it stay', async () => {
      const world = await make();
      const section = await world.settings.update(json({ queueTimeoutMs: 5_000 }));
      assert.deepEqual(JSON.parse(section.value), limit(2, { queueTimeoutMs: 5_000 }));
      const { value } = await world.settings.update(json(limit(1)), section.revision);
      assert.equal(world.max, 1);
      assert.deepEqual(JSON.parse(value), limit(1, { queueTimeoutMs: 5_000 }));
      assert.deepEqual(JSON.parse((await world.settings.update(json({ limits: [] }))).value), { limits: [], queueTimeoutMs: 5_000 });
      assert.equal(world.max, undefined);
    });

    test('B3, B5 lowered to 1 while five generate: nobody new until none is left above it; raised to 3: three at once', async () => {
      const world = await make({ config: {} });
      for (const session of ['a', 'b', 'c', 'd', 'e']) world.read(session);
      await settled();
      await world.settings.update(json(limit(1)));
      for (const session of ['f', 'g', 'h', 'i']) world.read(session);
      for (const session of ['a', 'b', 'c', 'd']) {
        await settled();
        assert.equal(world.waiting, 4);
        world.backend.of(session).end();
      }
      await settled();
      assert.deepEqual(world.backend.sessions, ['e']);
      world.backend.of('e').end();
      await settled();
      assert.deepEqual(world.backend.sessions, ['f']);
      await world.settings.update(json(limit(3)));
      await settled();
      assert.deepEqual(world.backend.sessions, ['f', 'g', 'h']);
      assert.equal(world.waiting, 1);
    });

    test('B9 two writers with the same revision: the second is told of the conflict and shown what it is now', async () => {
      const world = await make();
      const { revision } = await world.settings.read();
      const answers = [1, 3].map((max) => world.settings.update(json(limit(max)), revision));
      const first = await answers[0];
      const { section } = await refused(answers[1] as Promise<unknown>, 'conflict');
      assert.deepEqual(section, first);
      assert.equal(world.max, 1);
      await world.settings.update(json(limit(3)), section?.revision);
      assert.equal(world.max, 3);
    });

    test('a revision is good for one run of the settings, and what is no revision for none', async () => {
      const world = await make();
      const { revision = '' } = await world.settings.read();
      await world.withdraw();
      await world.provide(version);
      const now = (await world.settings.read()).revision ?? '';
      assert.equal(now.split('.')[1], revision.split('.')[1], 'counted from 0 again');
      for (const stale of [revision, '', '.', '0', 'x.0', `${now}x`, now.split('.')[0] ?? '']) {
        await refused(world.settings.update(json(limit(1)), stale), 'conflict');
      }
      assert.equal(world.max, 2);
      await world.settings.update(json(limit(1)), now);
      assert.equal(world.max, 1);
    });

    test('B9 of many writers with the same revision one is taken, the others are told without being handed to the harness', async () => {
      const world = await make();
      const held = hold(world, 1);
      const { revision } = await world.settings.read();
      const first = world.settings.update(json(limit(1)), revision);
      const others = Array.from({ length: 9 }, () => refused(world.settings.update(json(limit(3)), revision), 'conflict'));
      await refused(world.settings.update(json(limit(3)), revision?.replace(/\d+$/u, '9')), 'conflict');
      held.letGo();
      const section = await first;
      for (const { section: shown } of await Promise.all(others)) assert.deepEqual(shown, section);
      assert.equal(held.handed, 1);
      assert.equal(world.max, 1);
    });

    test('a change that does not get its turn in time is never made', async (t) => {
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const world = await make();
      const held = hold(world, 1);
      const first = world.settings.update(json(limit(1)));
      const others = Array.from({ length: 30 }, () => refused(world.settings.update(json(limit(3))), 'unavailable'));
      await settled();
      t.mock.timers.tick(5_000);
      await Promise.all(others);
      held.letGo();
      await first;
      await settled();
      assert.equal(held.handed, 1);
      assert.equal(world.max, 1);
      await world.settings.update(json(limit(3)));
      assert.equal(world.max, 3);
    });

    test('a change that the harness never answers keeps others waiting for a while', async (t) => {
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const world = await make();
      const held = hold(world, 1);
      const lost = refused(world.settings.update(json(limit(1))), 'other');
      await settled();
      t.mock.timers.tick(4_000);
      const next = world.settings.update(json(limit(3)));
      await settled();
      t.mock.timers.tick(3_999);
      await settled();
      assert.equal(held.handed, 1);
      t.mock.timers.tick(1);
      assert.match((await lost).message, /did not answer in time; what became of the change is seen by reading again/u);
      await next;
      assert.equal(world.max, 3);
    });

    test('a change that the harness never answers keeps nobody waiting at the settings that come after', async () => {
      const world = await make();
      hold(world, 1);
      void world.settings.update(json(limit(1))).catch(() => undefined);
      await settled();
      await world.withdraw();
      await world.provide(version);
      await world.settings.update(json(limit(3)));
      assert.equal(world.max, 3);
    });

    test('two changes that are too much together: the second is refused and not stored', async () => {
      const world = await make();
      const names = (count: number, length: number): string[] => Array.from({ length: count }, () => 'x'.repeat(length));
      for (const [list, told] of [[names(600, 1_000), /\d{7} bytes, more than the 1048576/u], [names(60_000, 1), /1200\d\d values, more than the 100000/u]] as const) {
        const writes = ['limits', 'groups'].map((key) => world.settings.update(json({ [key]: list })));
        const before = await writes[0];
        assert.match((await refused(writes[1] as Promise<unknown>, 'invalid')).message, told);
        assert.deepEqual(await world.settings.read(), before);
        await world.settings.update(json({ ...limit(2), groups: [] }));
      }
    });

    test('a document that is too large is told of in stats', async () => {
      const world = await make();
      await world.change({ groups: ['x'.repeat(1 << 20)] });
      assert.match(world.stats.host.problems.map(({ message }) => message).join(), /has \d{7} bytes, more than the 1048576/u);
      assert.match(world.told, /bytes.*the last good configuration is in force/u);
      assert.equal(world.max, 2);
    });

    test('what is no change is refused', async () => {
      const world = await make();
      for (const text of ['', '3', 'null', '[]', '{"limits": ']) await refused(world.settings.update(text), 'invalid');
      assert.equal(world.max, 2);
    });

    test('without settings the row is in force and there is nothing to read or change', async () => {
      const world = await SettingsWorld.make({ config: limit(2) });
      assert.equal(world.max, 2);
      await refused(world.settings.read(), 'unavailable');
      await refused(world.settings.update('{}'), 'unavailable');
    });

    test('settings that come late are heard, and leave everything in force when they go', async () => {
      const world = await SettingsWorld.make({ config: limit(2) });
      world.read('a');
      await settled();
      await world.provide(version);
      assert.deepEqual(JSON.parse((await world.settings.update(json(limit(1)))).value), limit(1));
      await world.withdraw();
      assert.equal(world.max, 1);
      await refused(world.settings.read(), 'unavailable');
      await world.provide(version);
      assert.equal(world.max, 1);
      assert.deepEqual(JSON.parse((await world.settings.read()).value), limit(1));
      assert.equal(world.occupancy, 1);
      assert.equal(world.stderr.length, 1, world.told);
    });

    test('settings that are read-only say so and are not written', async () => {
      const world = await make();
      Object.defineProperty(world.ctx.settings, 'writable', { value: false });
      assert.equal((await world.settings.read()).writable, false);
      await refused(world.settings.update(json(limit(1))), 'read-only');
      assert.equal(world.max, 2);
    });

    test('what the harness says when it cannot store is passed on, and nothing is in force of it', async () => {
      const world = await make();
      if (world.forms !== undefined) world.forms.broken = new Error('EROFS: read-only file system');
      else Object.defineProperty(world.ctx.settings, 'persist', { value: async () => Promise.reject(new Error('EROFS: read-only file system')) });
      const { message } = await refused(world.settings.update(json(limit(1))), 'other');
      assert.match(message, /EROFS/u);
      assert.equal(world.max, 2);
    });

    test('B8, B16 a wrong limit that comes through the harness changes nothing and is told with row and field', async () => {
      const world = await make();
      for (const [name, field, row] of WRONG) {
        world.stderr.length = 0;
        await world.change(wrong(row));
        assert.match(world.told, field, name);
        assert.match(world.told, /the last good configuration is in force/u, name);
        assert.equal(world.max, 2, name);
        assert.match(world.stats.host.problems.map(({ path }) => path).join(), field, name);
        assert.deepEqual(JSON.parse((await world.settings.read()).value), wrong(row), 'and shown as it is');
      }
      assert.equal((await world.settings.read()).inForce, false);
      await world.change(limit(3));
      assert.equal(world.max, 3);
      assert.deepEqual(world.stats.host.problems, []);
      assert.equal((await world.settings.read()).inForce, true);
    });

    test('a key that nobody knows is told of', async () => {
      const world = await make();
      await world.change({ queuTimeoutMs: 3 });
      assert.match(world.told, /queuTimeoutMs.*the last good configuration is in force/u);
    });

    test('the same document again is no edit', async () => {
      const world = await make();
      await world.change(limit('abc'));
      world.stderr.length = 0;
      await world.restart();
      await settled();
      assert.deepEqual(world.stderr, []);
    });

    test('after an edit of the row the settings are those of the new row', async () => {
      const world = await make();
      await world.edit(limit(3));
      assert.equal(world.max, 3);
      const { value, base, revision } = await world.settings.read();
      assert.deepEqual(JSON.parse(value), limit(3));
      assert.deepEqual(JSON.parse(base), version === '0.1' ? limit(3) : { limits: [] });
      assert.deepEqual(world.ctx.settings.describe().map((descriptor) => descriptor.value), [limit(3)], 'for the harness too');
      await world.settings.update(json(limit(1)), revision);
      assert.equal(world.max, 1);
      await world.edit(limit(2, { maxQueued: 1 }));
      const { value: again } = await world.settings.read();
      assert.deepEqual(JSON.parse(again), limit(version === '0.1' ? 1 : 2, { maxQueued: 1 }), 'what the user stored lies over it');
    });
  });
}

suite('settings of dsh 0.1', () => {
  const section = (yaml: string): string => `# mine\nother: {a: 1} # theirs\ndsh-gen-limit:\n${yaml}`;
  const make = (file: string, making: SettingsMaking = {}): Promise<SettingsWorld> =>
    SettingsWorld.make({ version: '0.1', config: limit(2), file, ...making });

  test('what the user stored is in force from the first call, over the row', async () => {
    const world = await make(section('  limits: [{provider: box, model: "*", max: 1}]\n'));
    assert.match(world.told, /^gen-limit: [^\n]* box\/\* max 1\n$/u);
    const { value, base, user } = await world.settings.read();
    assert.deepEqual([value, base, user].map((text) => JSON.parse(text)), [limit(1), limit(2), limit(1)]);
  });

  test('an edit of the file is in force as soon as the harness tells, and removing the section gives the row back', async () => {
    const world = await make('');
    world.read('a');
    world.read('b');
    await settled();
    await world.editFile(section('  limits: [{provider: box, model: "*", max: 1}]\n'));
    assert.equal(world.max, 1);
    for (const [name, field, row] of WRONG) {
      world.stderr.length = 0;
      await world.editFile(`# mine\ndsh-gen-limit: ${json(wrong(row))}\n`);
      assert.match(world.told, field, name);
      assert.match(world.told, /the last good configuration is in force/u, name);
      assert.equal(world.max, 1, name);
    }
    await world.editFile('dsh-gen-limit: 3\n');
    assert.equal(world.max, 1, 'the harness does not even tell');
    await world.editFile('# nothing\n');
    assert.equal(world.max, 2);
    assert.equal(world.occupancy, 2);
  });

  test('what JSON cannot say, but YAML can, changes nothing', async () => {
    const world = await make('');
    const row = (max: string): string => section(`  limits: [{provider: box, model: "*", max: ${max}}]\n`);
    for (const [max, told] of [['1e400', 'Infinity'], ['.nan', 'NaN']] as const) {
      await world.editFile(row(max));
      assert.match(world.told, new RegExp(`limits\\[0\\]\\.max: .*"${told}"; the last good configuration is in force`, 'u'));
      assert.equal(world.max, 2);
      assert.equal(JSON.parse((await world.settings.read()).user).limits[0].max, told);
    }
    await world.editFile(section('  limits: &itself [*itself]\n'));
    assert.equal(world.max, 2, 'the harness does not even tell');
    assert.match((await world.settings.read()).user, /contains itself/u);
    await world.editFile(row('1'));
    assert.equal(world.max, 1);
    assert.deepEqual(world.stats.host.problems, []);
  });

  test('the file keeps its comments when we write', async () => {
    const world = await make(section('  # why one\n  limits: [{provider: box, model: "*", max: 1}]\n  queueTimeoutMs: 5000 # five\n'));
    await world.settings.update(json({ ...limit(3), maxQueued: 3 }));
    for (const comment of ['# mine', '# theirs', '# why one', '# five']) assert(world.file.includes(comment), `${comment} in ${world.file}`);
    assert.match(world.file, /max: 3/u);
  });

  test('what an older plugin stored stops nothing: the rest is in force, and log, stats and section say what to mend', async () => {
    const rows = ['{provider: box, model: "*", max: 1}', '{provider: other, model: m, max: abc}', '{provider: other, model: n, max: -7}'];
    const world = await make(section(`  limits: [${rows.join(', ')}]\n  queueTimeoutMs: 5000\n`));
    assert.equal(world.max, 1);
    assert.match(world.told, /limits\[1\]\.max: .*"abc".*limits\[2\]\.max: .*-7.*; what is valid of it is in force/u);
    assert.deepEqual(world.stats.host.problems.map(({ path }) => path), ['limits[1].max', 'limits[2].max']);
    assert.equal((await world.settings.update(json({ maxQueued: 1 }))).inForce, true, 'as far as it is valid');
    for (const session of ['a', 'b', 'c']) world.read(session);
    await settled();
    assert.deepEqual({ let: world.let, waiting: world.waiting }, { let: ['a'], waiting: 1 }, 'other keys can be changed all the same');
    await world.settings.update(json(limit(2)));
    assert.deepEqual(world.stats.host.problems, []);
  });

  test('a wrong section at a start: the last good document is in force, not the row', async () => {
    const first = await make(section('  limits: [{provider: box, model: "*", max: 1}]\n'), { config: { limits: [] } });
    await first.end();
    for (const file of [section('  limits: [{provider: box, model: "*", max: one}]\n'), 'dsh-gen-limit:\n', 'dsh-gen-limit: 3\n']) {
      const world = await make(file, { config: { limits: [] }, home: first.home });
      assert.equal(world.max, 1, file);
      assert.match(world.told, /the last good configuration is in force/u);
      assert.deepEqual(JSON.parse(readFileSync(join(first.home, 'gen-limit', 'default.gen-limit.json'), 'utf8')), limit(1));
      await world.end();
    }
  });

  test('what is no section at all leaves the row in force where there was nothing before, and is taken when it is put right', async (t) => {
    t.mock.timers.enable({ apis: ['setInterval'] });
    const world = await make('dsh-gen-limit:\n');
    assert.match(world.told, /settings section "dsh-gen-limit" must be an object.*\n.*expected an object.*what is valid of the row is in force/u);
    assert.equal(world.max, 2);
    await refused(world.settings.update(json(limit(1))), 'unavailable');
    const lines = world.stderr.length;
    t.mock.timers.tick(10_000);
    await settled();
    assert.equal(world.stderr.length, lines, 'told once');
    // The harness is told by the file; we have to ask.
    await world.editFile('dsh-gen-limit: {limits: [{provider: box, model: "*", max: 1}]}\n');
    t.mock.timers.tick(1_000);
    assert.equal(world.max, 1);
    await world.settings.update(json(limit(3)));
    assert.equal(world.max, 3);
  });

  /** A start in a harness whose other plugins take for ever to be mounted; the user has stored 1, the row says 3. */
  async function unfinished(t: TestContext): Promise<{ world: SettingsWorld; started: Promise<void>; finish: () => void }> {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { promise, resolve: finish } = Promise.withResolvers<void>();
    class Unfinished extends SettingsWorld {
      protected override async furnish(): Promise<void> {
        t.mock.method(this.ctx.loader, 'await', () => promise);
      }
    }
    const world = new Unfinished({});
    world.file = section('  limits: [{provider: box, model: "*", max: 1}]\n');
    const started = world.start({ config: limit(3) });
    await until(() => world.begun);
    world.read('a');
    world.read('b');
    await settled();
    assert.deepEqual(world.let, [], 'nobody is let through before it is known what is limited');
    return { world, started, finish };
  }

  test('a start waits for the settings', async (t) => {
    const { world, started } = await unfinished(t);
    await world.provide('0.1');
    await started;
    await settled();
    assert.deepEqual(world.let, ['a']);
    assert.match(world.told, /^gen-limit: [^\n]* box\/\* max 1\n$/u);
  });

  test('a start waits for five seconds at most, and does not take the row for the last word', async (t) => {
    const { world, started } = await unfinished(t);
    t.mock.timers.tick(5_000);
    await started;
    assert.equal(world.max, 3);
    const stored = join(world.home, 'gen-limit', 'default.gen-limit.json');
    assert.equal(existsSync(stored), false);
    await world.provide('0.1');
    assert.equal(world.max, 1);
    assert.match(world.told, /^gen-limit: [^\n]* box\/\* max 3\ngen-limit: [^\n]* box\/\* max 1\n$/u);
    assert.deepEqual(JSON.parse(readFileSync(stored, 'utf8')), limit(1));
  });

  test('when everything is mounted and there are no settings, the row is the last word', async (t) => {
    const { world, started, finish } = await unfinished(t);
    t.mock.timers.tick(5_000);
    await started;
    finish();
    await settled();
    assert.deepEqual(JSON.parse(readFileSync(join(world.home, 'gen-limit', 'default.gen-limit.json'), 'utf8')), limit(3));
    assert.equal(world.stderr.length, 1, world.told);
  });

  test('a change in the middle of an edit of the row is stored and shown, or can be made again', async () => {
    for (const act of ['edit', 'restart'] as const) {
      const world = await make('');
      const before = world.file;
      const changed = refused(world.settings.update(json(limit(1))), 'unavailable');
      await (act === 'edit' ? world.edit(limit(3)) : world.restart());
      await changed;
      await settled();
      assert.equal(world.file, before, act);
      await world.settings.update(json(limit(1)));
      assert.equal(world.max, 1, act);
      await world.end();
    }
  });

  test('a second row keeps away from the settings, and has them when the first has gone', async () => {
    const world = await make('');
    await world.ctx.loader.create({ id: 'second', name: 'cordis:gen-limit', config: limit(5) } as never);
    await until(() => world.told.includes('max 5'));
    await world.settings.update(json(limit(1)));
    assert.equal(world.max, 1);
    const rows = (globalThis as never)[Symbol.for('@creait/dsh-gen-limit.rows.2')] as WeakMap<object, { settings: Settings; gate: Gate }>;
    const second = rows.get(world.ctx.loader.resolve('second')) ?? fail('there is no second row');
    await refused(second.settings.update(json(limit(2))), 'read-only');
    const { value, user, writable } = await second.settings.read();
    assert.deepEqual([JSON.parse(value), user, writable], [limit(5), '{}', false]);
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    await settled();
    assert.deepEqual(JSON.parse((await second.settings.read()).value), limit(1), 'what the user set');
    await second.settings.update(json(limit(2)));
    assert.deepEqual(JSON.parse((await second.settings.read()).value), limit(2));
    assert.doesNotMatch(world.told, /another row has the settings/u);
  });

  test('a row that a user gives conditions in the settings keeps the settings, so that they can be taken back', async () => {
    const world = await make('');
    await world.settings.update(json({ tenant: { session: 'a' } }));
    await world.settings.update(json({ tenant: { session: 'b' }, ...limit(1) }));
    await settled();
    const { writable, value } = await world.settings.read();
    assert.deepEqual([writable, JSON.parse(value), world.max], [true, { tenant: { session: 'b' }, ...limit(1) }, 1]);
  });
});

suite('B18 what dsh 0.1 stored, on 0.2', () => {
  const FILE = 'dsh-gen-limit:\n  limits: [{provider: box, model: "*", max: 1}] # one\n  queueTimeoutMs: 9000\n';
  const TAKEN = 'took what dsh 0.1 stored in settings.yaml over into the row';
  const make = (making: SettingsMaking = {}): Promise<SettingsWorld> =>
    SettingsWorld.make({ version: '0.2', config: { limits: [] }, ...making });
  const taken = (world: SettingsWorld): Promise<void> => until(() => world.told.includes(TAKEN));
  const imported = (home: string): void => renameSync(join(home, 'settings.yaml'), join(home, 'settings.yaml.imported'));

  test('it is taken over into the row, once, and told in one line', async () => {
    const first = await make({ file: FILE });
    assert.equal(first.max, 1, 'from the first call');
    await taken(first);
    assert.equal(first.told.split(TAKEN).length, 2, first.told);
    const config = first.entry.options.config;
    assert.deepEqual(config, limit(1, { queueTimeoutMs: 9_000 }));
    imported(first.home);
    await first.end();
    const second = await make({ home: first.home, config });
    assert.equal(second.max, 1);
    await second.settings.update(json({ limits: [] }));
    await second.end();
    const third = await make({ home: first.home });
    assert.equal(third.max, undefined, 'what the user removed stays removed');
    for (const { told } of [second, third]) assert(!told.includes(TAKEN), told);
  });

  test('it is found after the harness has put the file away, also by another profile', async () => {
    const world = new SettingsWorld({ version: '0.2' });
    world.file = FILE;
    imported(world.home);
    await world.start({ config: { limits: [] } });
    await taken(world);
    assert.equal(world.max, 1);
    assert.equal(statSync(join(world.home, 'gen-limit', 'default.gen-limit.taken-over')).mode & 0o777, 0o600);
  });

  test('a newer one is taken over again: somebody went back to 0.1 and changed it there', async () => {
    const first = await make({ file: FILE });
    await taken(first);
    await first.end();
    const second = await make({ home: first.home, file: FILE.replace('max: 1', 'max: 3'), config: limit(1) });
    await taken(second);
    assert.equal(second.max, 3);
  });

  test('a change that comes before it is in the row takes it along, and is not undone by it', async (t) => {
    const { promise: mounted, resolve: finish } = Promise.withResolvers<void>();
    class Unfinished extends SettingsWorld {
      protected override async furnish(): Promise<void> {
        t.mock.method(this.ctx.loader, 'await', () => mounted);
        await super.furnish();
      }
    }
    const world = new Unfinished({ version: '0.2' });
    world.file = FILE;
    await world.start({ config: { limits: [] } });
    const changed = world.settings.update(json(limit(3)));
    finish();
    await changed;
    await settled();
    await settled();
    assert.deepEqual(world.entry.options.config, limit(3, { queueTimeoutMs: 9_000 }));
    assert.equal(world.told.split(TAKEN).length, 2, world.told);
  });

  test('where it cannot be written it is in force until the row is edited', async () => {
    const world = new SettingsWorld({ version: '0.2' });
    world.file = FILE;
    const provide = world.provide.bind(world);
    world.provide = async (version) => {
      await provide(version);
      if (world.forms !== undefined) world.forms.broken = new Error('EROFS');
    };
    await world.start({ config: { limits: [] } });
    assert.match(world.told, /what dsh 0\.1 stored is in force until the row is edited.*EROFS/u);
    assert.equal(world.max, 1);
    world.forms?.edit(limit(3));
    assert.equal(world.max, 3);
    const { home } = world;
    await world.end();
    const again = await make({ home, config: limit(3) });
    assert.equal(again.max, 3);
  });

  test('what is wrong in it stops nothing, and is told', async () => {
    const world = await make({ file: FILE.replace('}]', '}, {provider: other, model: m, max: -7}]') });
    assert.equal(world.max, 1);
    assert.match(world.told, /limits\[1\]\.max.*-7.*what is valid of it is in force/u);
  });

  test('a file that cannot be read is told of', async () => {
    const world = await make({ file: 'dsh-gen-limit: [' });
    assert.match(world.told, /what dsh 0\.1 stored could not be read/u);
    assert.equal(existsSync(join(world.home, 'gen-limit', 'default.gen-limit.taken-over')), false);
  });

  test('a file without our section, or with none to speak of, is left alone', async () => {
    for (const file of ['', 'other: {}\n', 'dsh-gen-limit:\n', 'dsh-gen-limit: 3\n', '- 1\n']) {
      const world = await make({ file, config: limit(2) });
      assert.equal(world.max, 2);
      assert.equal(world.stderr.length, 1, world.told);
      await world.end();
    }
  });
});

suite('the schema', () => {
  test('lets everything pass, live', () => {
    const circle: unknown[] = [];
    circle.push(circle);
    for (const value of [undefined, null, 3, 'limits', [1], { maximum: 3 }, new Date(0), circle]) {
      const result = Config['~standard'].validate(value);
      assert.equal(plain(result.value), value);
      assert.equal(Config.simplify(result.value), value);
      assert.equal(Config(value), value);
    }
  });
});
