/** Whose a call is, where there are several rows, on the harness's own loader, agents and presets. */
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import { PARTS, limit, settled, temporary, until } from './support.ts';
import { Tenancy } from './tenants-support.ts';

/** A limit, and what the row names. */
function tenant(selector: object, max = 9): Record<string, unknown> {
  return limit(max, { tenant: selector });
}

suite('whose a call is', () => {
  test('a row in a preset owns the calls of its agents, the host\'s row the rest, and nothing is counted twice', async () => {
    const world = await Tenancy.with({ one: limit(1), two: limit(2) }, { config: limit(3) });
    const [one, two, rest] = [await world.member({ preset: 'one' }), await world.member({ preset: 'two' }), await world.member()];
    for (const agent of [one, two, rest]) world.call(agent);
    world.read('a session nobody knows');
    await settled();
    assert.deepEqual(await world.live('', 'one', 'two'), { '': 2, one: 1, two: 1 });
    assert.equal(world.backend.open.length, 4);
  });

  test('each preset\'s limit holds by itself', async () => {
    const world = await Tenancy.with({ one: limit(1), two: limit(2) }, { config: limit(1) });
    const agents = await Promise.all(['one', 'one', 'two', 'two', 'two'].map((preset) => world.member({ preset })));
    for (const agent of agents) world.call(agent);
    world.read('x');
    world.read('y');
    await settled();
    const [a, , c, d] = agents.map(({ agent }) => agent.id as string);
    assert.deepEqual(world.backend.sessions.toSorted(), [a, c, d, 'x'].toSorted());
    world.backend.of('x').end();
    await settled();
    assert.ok(world.backend.sessions.includes('y'));
    assert.equal(world.backend.open.length, 4);
  });

  test('children of a preset\'s agents are that preset\'s, their spawns too', async () => {
    const world = await Tenancy.with({ one: limit(1) }, { config: limit(9) });
    const agent = await world.member({ preset: 'one' });
    for (const prompt of ['first', 'second']) world.spawn(prompt, agent);
    await world.grown();
    assert.deepEqual(world.prompts, ['first']);
    assert.deepEqual(await world.live('', 'one'), { '': 0, one: 1 });
    assert.equal((await world.statsOf('one')).waitersTotal, 1);
    world.asked('first').end();
    await world.grown();
    assert.deepEqual(world.prompts, ['second']);
    assert.equal(await world.submitted(), 0);
  });

  test('a row that names a session owns its calls and those of its descendants', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const [named, other] = [await world.member(), await world.member()];
    await world.row('second', tenant({ session: named.agent.id }));
    world.call(named);
    world.call(other);
    world.spawn('grandchild', named);
    await world.grown();
    assert.deepEqual(await world.live('', 'second'), { '': 1, second: 2 });
  });

  test('of two sessions in one line the nearer counts', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const top = await world.member();
    await world.row('top', tenant({ session: top.agent.id }));
    world.spawn('child', top);
    await world.grown();
    const child = world.asked('child').session ?? '';
    await world.row('near', tenant({ session: child }));
    world.asked('child').end();
    await world.grown();
    world.read(child);
    await settled();
    assert.deepEqual(await world.live('', 'top', 'near'), { '': 0, top: 0, near: 1 });
  });

  test('a row that names a folder owns what was opened inside it, the deeper folder first', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const folder = (name: string): string => {
      const path = join(world.home, name);
      mkdirSync(path, { recursive: true });
      return path;
    };
    const [a, ab, deep, beside] = [folder('a'), folder('a/b'), folder('a/b/c'), folder('ab')];
    symlinkSync(ab, join(world.home, 'link'));
    await world.row('wide', tenant({ workspace: a }));
    await world.row('deep', tenant({ workspace: join(world.home, 'link') }));
    for (const cwd of [a, ab, deep, beside, world.home]) world.call(await world.member({ cwd }));
    await settled();
    assert.deepEqual(await world.live('', 'wide', 'deep'), { '': 2, wide: 1, deep: 2 });
  });

  test('a row that names a preset owns the calls of its agents', async () => {
    const world = await Tenancy.with({ bare: undefined, other: undefined }, { config: limit(9) });
    await world.row('second', tenant({ preset: 'bare' }));
    const presets = world.ctx.get('agentPresets');
    for (const preset of ['bare', 'bare', 'other']) {
      world.call(await world.ctx.agents.create({
        sessionId: `session-${Math.random()}` as never,
        agentOptions: { provider: 'box', model: 'm' },
        setup: async (ctx) => void (await presets?.mount(ctx, preset)),
      }));
    }
    await settled();
    assert.deepEqual(await world.live('', 'second'), { '': 1, second: 2 });
  });

  test('the order is preset row, session, folder, preset by name, rest, whatever was mounted first', async () => {
    const world = await Tenancy.with({ one: limit(9), bare: undefined }, { config: limit(9) });
    const cwd = join(world.home, 'w');
    mkdirSync(cwd);
    await world.row('by-preset', tenant({ preset: 'one' }));
    await world.row('by-folder', tenant({ workspace: cwd }));
    const agent = await world.member({ preset: 'one', cwd });
    const plain = await world.member({ cwd });
    await world.row('by-session', tenant({ session: plain.agent.id }));
    await world.row('also-by-session', tenant({ session: agent.agent.id }));
    const names = ['', 'by-preset', 'by-folder', 'by-session', 'also-by-session', 'one'];
    const owner = async (who: typeof agent): Promise<unknown> => {
      const reading = world.call(who);
      await settled();
      const live = await world.live(...names.filter((name) => !gone.has(name)));
      world.backend.of(who.agent.id).end();
      await reading.done;
      return Object.entries(live).filter(([, count]) => count > 0).map(([name]) => name);
    };
    const gone = new Set<string>();
    const remove = async (name: string): Promise<void> => {
      gone.add(name);
      await world.removeRow(name);
    };
    assert.deepEqual(await owner(agent), ['one']);
    assert.deepEqual(await owner(plain), ['by-session']);
    await remove('by-session');
    assert.deepEqual(await owner(plain), ['by-folder']);
    await remove('by-folder');
    assert.deepEqual(await owner(plain), ['']);
    assert.deepEqual(await owner(agent), ['one']);
  });

  test('conditions of one row hold together', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const cwd = join(world.home, 'w');
    mkdirSync(cwd);
    const [inside, outside] = [await world.member({ cwd }), await world.member()];
    await world.row('both', tenant({ workspace: cwd, session: outside.agent.id }));
    for (const agent of [inside, outside]) world.call(agent);
    await settled();
    assert.deepEqual(await world.live('', 'both'), { '': 2, both: 0 });
  });

  test('of two that name the same the first owns it all, and the other says once that it owns nothing', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    await world.row('second', limit(9));
    const told = (): number => world.stderr.filter((line) => /row second owns no calls: row gen-limit/u.test(line)).length;
    world.read('a');
    await settled();
    assert.deepEqual(await world.live('', 'second'), { '': 1, second: 0 });
    await world.editRow('second', limit(8));
    await world.row('third', tenant({ session: 'x' }));
    assert.equal(told(), 1);
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    world.read('b');
    await settled();
    assert.deepEqual(await world.live('', 'third'), { '': 1, third: 0 }, 'the second is the host\'s row now');
  });

  test('a call that is nobody\'s passes as if we were not there', async () => {
    const world = await Tenancy.with({ one: limit(0) }, { config: limit(0) });
    await world.member({ preset: 'one' });
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    const chunks: StreamChunk[] = [{ type: 'finish', reason: { kind: 'stop' } }];
    const stream = (async function* () {
      yield* chunks;
    })();
    world.backend.stream = () => stream;
    const reading = world.read('a');
    assert.equal(await reading.done, undefined);
    assert.deepEqual(reading.chunks, chunks);
    assert.equal(await world.submitted('one'), 0);
  });

  test('a call without a session belongs to whoever\'s agent makes it', async () => {
    const world = await Tenancy.with({ one: limit(9) }, { config: limit(9) });
    const { agent } = await world.member({ preset: 'one' });
    world.ctx.agents.withInitiator(agent, () => void world.read());
    world.read();
    await settled();
    assert.deepEqual(await world.live('', 'one'), { '': 1, one: 1 });
  });

  test('a row whose tenant cannot be read owns nothing, and one that had a readable one keeps it', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    await world.row('second', tenant({ session: 'a' }));
    for (const wrong of [{ sesion: 'b' }, { session: 3 }, { session: '' }, 'a', null, ['a']]) {
      // The component refuses such a document as a whole.
      await world.editRow('second', { limits: 'wrong', tenant: wrong });
      const reading = world.read('a');
      await settled();
      assert.deepEqual(await world.live('', 'second'), { '': 0, second: 1 }, JSON.stringify(wrong));
      world.backend.of('a').end();
      await reading.done;
    }
  });
});

suite('what follows from owning', () => {
  test('an edit of what a row names is for new calls: what runs or waits stays where it is counted', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const second = await world.row('second', tenant({ session: 'a' }, 1));
    const first = world.read('a', { model: 'm' });
    await settled();
    await world.editRow('second', tenant({ session: 'b' }, 1));
    world.read('a');
    world.read('b');
    await settled();
    assert.deepEqual(await world.live('', 'second'), { '': 1, second: 1 });
    assert.equal(second.gate.limiter?.status().waiting, 1, 'the new one waits for the old one');
    world.backend.open[0]?.end();
    await first.done;
    await settled();
    assert.deepEqual(world.backend.sessions.toSorted(), ['a', 'b']);
    assert.deepEqual(await world.live('', 'second'), { '': 1, second: 1 });
  });

  test('a row that goes lets its own line go, no other', async () => {
    const world = await Tenancy.with({}, { config: limit(1) });
    await world.row('second', tenant({ session: 'a' }, 0));
    world.read('x');
    world.read('y');
    world.read('a');
    await settled();
    assert.deepEqual(world.backend.sessions, ['x']);
    await world.removeRow('second');
    await settled();
    assert.deepEqual(world.backend.sessions, ['x', 'a']);
    assert.equal(world.waiting, 1, 'what has been let go is not counted anew');
    world.read('a');
    await settled();
    assert.equal(world.waiting, 2, 'its later calls are the rest');
  });

  test('a row that is restarted keeps its calls', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    await world.row('second', tenant({ session: 'a' }, 1));
    world.read('a');
    await settled();
    await world.ctx.loader.resolve('second').fiber?.restart();
    await world.restart();
    await settled();
    assert.deepEqual(await world.live('', 'second'), { '': 0, second: 1 });
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(await world.live('', 'second'), { '': 0, second: 0 });
  });

  test('the hub ends with the last row, and a new row begins a new one', async () => {
    const hubs = (globalThis as never)[Symbol.for('@creait/dsh-gen-limit.hubs.1')] as WeakMap<object, object>;
    const world = await Tenancy.with({}, { config: limit(1) });
    await world.row('second', tenant({ session: 'a' }));
    const fiber = world.ctx.root.fiber;
    const hub = hubs.get(fiber);
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    assert.equal(hubs.get(fiber), hub);
    await world.removeRow('second');
    await until(() => !hubs.has(fiber));
    world.read('a');
    await settled();
    assert.deepEqual(world.let, ['a']);
    await world.row('third', limit(1));
    for (const session of ['b', 'c']) world.read(session);
    await settled();
    assert.deepEqual(world.let, ['a', 'b']);
  });

  test('a spawn is paced by whoever owns its parent, and its child keeps its place there', async () => {
    const world = await Tenancy.with({}, { config: limit(0) });
    const parent = await world.member();
    await world.row('second', tenant({ session: parent.agent.id }, 1));
    world.call(parent);
    await settled();
    world.spawn('child', parent);
    await settled();
    assert.equal((await world.statsOf('second')).waitersTotal, 1);
    assert.equal(world.waiting, 0);
    world.backend.of(parent.agent.id).end();
    await world.grown();
    assert.deepEqual(world.prompts, ['child']);
    assert.equal((await world.statsOf('second')).credits, 0);
  });

  test('a spawn whose child turns out to be another\'s gives its credit back, and the child joins the other line like anybody', async () => {
    const world = await Tenancy.with({}, { config: limit(1) });
    const parent = await world.member();
    // The host's row has counted more calls than the second ever will: an id of the one would be no id of the other, or a wrong one.
    for (let n = 0; n < 5; n += 1) {
      const reading = world.read('before');
      await settled();
      world.backend.of('before').end();
      await reading.done;
    }
    let go = (): void => undefined;
    const off = world.ctx.on('tools/execute', async (_exec, next) => {
      await new Promise<void>((resolve) => (go = resolve));
      return next();
    });
    world.spawn('child', parent);
    await world.grown();
    assert.equal(world.stats.credits, 1);
    await world.row('second', tenant({ session: parent.agent.id }, 1));
    world.read(parent.agent.id);
    await settled();
    go();
    await world.grown();
    assert.equal(world.stats.credits, 0);
    assert.equal((await world.statsOf('second')).waitersTotal, 1, 'the child waits behind its parent\'s own call');
    world.backend.of(parent.agent.id).end();
    await world.grown();
    assert.deepEqual(world.prompts, ['child']);
    assert.equal(await world.submitted('second'), 2);
    off();
  });

  test('a spawn whose child changes hands before it calls gives its credit back then', async () => {
    const world = await Tenancy.with({}, { config: limit(1) });
    const parent = await world.member();
    await world.row('second', tenant({ session: 'nobody' }, 0));
    const off = world.ctx.on('subagent/start', () => void world.editRow('second', tenant({ session: parent.agent.id }, 0)), { global: true });
    world.spawn('child', parent);
    await world.grown();
    assert.equal(world.stats.credits, 0);
    assert.equal((await world.statsOf('second')).waitersTotal, 1);
    off();
  });

  test('a call inside another tenant\'s call is not taken for one inside its own', async () => {
    const world = await Tenancy.with({}, { config: limit(1) });
    const cwd = join(world.home, 'w');
    mkdirSync(cwd);
    const [holder, nested] = [await world.member({ cwd }), await world.member({ cwd })];
    await world.row('second', tenant({ workspace: cwd }, 1));
    // Both are the first of their gates, so that by its number alone the one could be taken for the other.
    world.call(holder);
    await settled();
    world.backend.onCall = ({ session }) => {
      if (session === 'outer') world.call(nested);
    };
    world.read('outer');
    await settled();
    assert.equal((await world.statsOf('second')).waitersTotal, 1);
    assert.equal(world.stderr.some((line) => /inside|within|nest/iu.test(line)), false, world.stderr.join(''));
  });

  test('rows of one process compile the component once', async () => {
    const component = join(temporary(), 'gen-limit.wasm');
    copyFileSync(PARTS.component, component);
    utimesSync(component, 1, 1);
    const world = await Tenancy.with({ one: limit(1) }, { config: limit(1), parts: { component } });
    // What is there now could not be compiled again.
    writeFileSync(component, 'no component');
    utimesSync(component, 1, 1);
    await world.row('second', tenant({ session: 'a' }, 2));
    await world.member({ preset: 'one' });
    assert.equal((await world.statsOf('second')).scopes[0]?.max, 2);
    assert.equal((await world.statsOf('one')).scopes[0]?.max, 1);
  });
});

suite('where tenants are', () => {
  test('each has routes of its own, and the host\'s row tells of them', async () => {
    const world = await Tenancy.with({ one: limit(1) }, { config: limit(3) });
    await world.member({ preset: 'one' });
    await world.row('second', tenant({ name: 'Büro 1/x', session: 'a' }, 2));
    const max = async (name?: string): Promise<number | undefined> => (await world.statsOf(name)).scopes[0]?.max;
    assert.deepEqual([await max(), await max('one'), await max('Büro 1/x')], [3, 1, 2]);
    assert.deepEqual((await world.statsOf()).host.tenants, [
      { name: 'one', path: '/api/dsh-gen-limit/t/one' },
      { name: 'Büro 1/x', path: '/api/dsh-gen-limit/t/B%C3%BCro%201%2Fx' },
    ]);
    assert.equal((await world.statsOf('one')).host.tenants, undefined);
    for (const route of ['config', 'catalog', 'stats', 'metrics']) assert.equal((await world.ask(route, 'one')).status, 200, route);
  });

  test('a name in use gets a number, said once', async () => {
    const world = await Tenancy.with({}, { config: limit(3) });
    await world.row('second', tenant({ name: 'vip', session: 'a' }, 1));
    await world.row('third', tenant({ name: 'vip', session: 'b' }, 2));
    await world.editRow('third', tenant({ name: 'vip', session: 'c' }, 2));
    assert.equal((await world.statsOf('vip-2')).scopes[0]?.max, 2);
    assert.equal(world.stderr.filter((line) => /is called vip already, so this one is vip-2/u.test(line)).length, 1);
    await world.removeRow('second');
    assert.equal((await world.statsOf('vip')).scopes[0]?.max, 2);
    assert.equal((await world.ask('stats', 'vip-2')).status, 404);
  });

  test('who takes another\'s name does not keep it from its new one', async () => {
    const world = await Tenancy.with({}, { config: limit(3) });
    await world.row('second', tenant({ name: 'a', session: 'a' }, 1));
    await world.row('third', tenant({ name: 'b', session: 'b' }, 2));
    await world.editRow('second', tenant({ name: 'b', session: 'a' }, 1));
    const max = async (name: string): Promise<number | undefined> => (await world.statsOf(name)).scopes[0]?.max;
    assert.deepEqual([await max('b'), await max('b-2')], [1, 2]);
    assert.equal((await world.ask('stats', 'a')).status, 404);
    assert.equal(world.stderr.some((line) => /is not served/u.test(line)), false);
  });

  test('names that are no part of a path are not used as such', async () => {
    const world = await Tenancy.with({}, { config: limit(3) });
    await world.row('second', tenant({ name: '..', session: 'a' }));
    await world.row('third', tenant({ name: '\ud800', session: 'b' }));
    assert.deepEqual((await world.statsOf()).host.tenants, [
      { name: 'tenant', path: '/api/dsh-gen-limit/t/tenant' },
      { name: '\ufffd', path: '/api/dsh-gen-limit/t/%EF%BF%BD' },
    ]);
    assert.equal((await world.ask('stats', '\ufffd')).status, 200);
  });

  test('the routes without a name are those of the host\'s row without conditions, however late it comes', async () => {
    const world = await Tenancy.with({}, { config: tenant({ session: 'a' }, 1) });
    assert.equal((await world.statsOf()).scopes[0]?.max, 1);
    await world.row('second', limit(2));
    assert.equal((await world.statsOf()).scopes[0]?.max, 2);
    assert.equal((await world.statsOf('gen-limit')).scopes[0]?.max, 1);
    await world.removeRow('second');
    assert.equal((await world.statsOf()).scopes[0]?.max, 1);
    assert.equal((await world.ask('stats', 'gen-limit')).status, 404);
    assert.equal(world.stderr.some((line) => /is not served/u.test(line)), false);
  });

  test('without a row of the host there are no routes without a name', async () => {
    const world = await Tenancy.with({ one: limit(1) }, { config: limit(3) });
    await world.member({ preset: 'one' });
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    assert.equal((await world.ask('stats')).status, 404);
    assert.equal((await world.ask('stats', 'one')).status, 200);
  });

  test('the settings of a tenant can be read there, and not changed', async () => {
    const world = await Tenancy.with({ one: limit(1) }, { config: limit(3) });
    await world.member({ preset: 'one' });
    const read = await world.ask('config', 'one');
    assert.deepEqual([read.status, read.json['value'], read.json['base'], read.json['writable']], [200, limit(1), limit(1), false]);
    const post = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(limit(2)) };
    const written = await world.ask('config', 'one', post);
    assert.ok(written.status >= 400, written.text);
    assert.deepEqual((await world.ask('config', 'one')).json['value'], limit(1));
  });

  test('what is told of a tenant on stderr and in its file is told by name, and kept apart', async () => {
    const world = await Tenancy.with({ one: limit(1), two: limit(2) }, { config: limit(3) });
    for (const preset of ['one', 'two']) await world.member({ preset });
    assert.deepEqual(
      world.stderr.map((line) => line.replace(/0\.1\.0, component \w+/u, '…')),
      ['gen-limit: …; box/* max 3\n', 'gen-limit: tenant one: …; box/* max 1\n', 'gen-limit: tenant two: …; box/* max 2\n'],
    );
    const folder = join(world.home, 'gen-limit');
    const stored = readdirSync(folder).filter((name) => name.endsWith('.json')).toSorted();
    assert.deepEqual(stored, ['@one.gen-limit.json', '@two.gen-limit.json', 'default.gen-limit.json']);
    assert.deepEqual(JSON.parse(readFileSync(join(folder, '@two.gen-limit.json'), 'utf8')), limit(2));
  });

  test('a preset that is edited is another one for those who join it later, beside the one that others run on', async () => {
    const world = await Tenancy.with({ one: limit(1) }, { config: limit(9) });
    const before = await world.member({ preset: 'one' });
    world.preset('one', limit(2, { maxQueued: 3 }));
    const after = await world.member({ preset: 'one' });
    await world.said(/tenant one-2: .*max 2/u);
    for (const agent of [before, after]) world.call(agent);
    await settled();
    assert.deepEqual(await world.live('', 'one', 'one-2'), { '': 0, one: 1, 'one-2': 1 });
  });

  test('a tenant hears of its own sessions, their descendants and ancestors, and of no other', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const [top, other] = [await world.member(), await world.member()];
    const child = async (parent: string, prompt: string): Promise<string> => {
      const handle = { agent: world.ctx.agents.get(parent as never) ?? assert.fail(parent) } as never;
      world.spawn(prompt, handle);
      await world.grown();
      return world.asked(prompt).session ?? assert.fail(prompt);
    };
    const own = await child(top.agent.id, 'own');
    const beside = await child(top.agent.id, 'beside');
    const below = await child(own, 'below');
    const second = await world.row('second', tenant({ session: own }));
    /** What a component that asks about everybody is told. */
    const hears = ({ gate }: typeof second): string[] => {
      const limiter = gate.limiter ?? assert.fail('no component');
      const sessions = [top.agent.id, own, beside, below, other.agent.id];
      const heard: string[] = [];
      const curious = {
        takeAsks: () => [{ id: 1, plugin: 'gen-limit', kind: 'describe-sessions' as const, sessions }],
        takeResponses: () => [],
      };
      gate.tell = (operation) => void operation({ answerSessions: (_: number, found: Array<{ id: string }>) => heard.push(...found.map(({ id }) => id)) } as never);
      gate.onAnswers({ ...curious } as never);
      Reflect.deleteProperty(gate, 'tell');
      assert.ok(limiter);
      return heard;
    };
    assert.deepEqual(hears(second), [], 'before any call of its own');
    world.read(own);
    await settled();
    assert.deepEqual(hears(second).toSorted(), [top.agent.id, own, below].toSorted());
    assert.deepEqual(hears(world.livingOf('gen-limit')).toSorted(), [top.agent.id, own, beside, below].toSorted(), 'those that were its own, with whoever descends from them');
    await world.removeRow('second');
    assert.equal(hears(world.livingOf('gen-limit')).length, 5, 'alone there is nobody to keep apart');
  });
});

suite('ceilings', () => {
  const ceilings = [{ provider: 'box', model: '*', max: 3 }];
  /** What a row's component was told last. */
  const told = (living: { gate: { limiter: unknown } }): (() => unknown) => {
    let last: unknown;
    const limiter = living.gate.limiter as { configure(json: string, lenient: boolean): unknown };
    const configure = limiter.configure.bind(limiter);
    limiter.configure = (json, lenient) => {
      last = JSON.parse(json);
      return configure(json, lenient);
    };
    return () => last;
  };

  test('those of the host\'s row are everybody\'s, and renewed with it', async () => {
    const world = await Tenancy.with({}, { config: limit(9) });
    const second = told(await world.row('second', tenant({ session: 'a' })));
    await world.edit(limit(9, { ceilings }));
    assert.deepEqual(second(), { ...tenant({ session: 'a' }), ceilings });
    await world.edit(limit(9));
    assert.deepEqual(second(), tenant({ session: 'a' }));
    await world.editRow('second', { ...tenant({ session: 'b' }), ceilings });
    assert.deepEqual(second(), tenant({ session: 'b' }), 'nor does it set any where there are none');
  });

  test('a tenant that comes later has them, and what it says itself is not in force, said once', async () => {
    const world = await Tenancy.with({}, { config: limit(9, { ceilings }) });
    const second = told(await world.row('second', { ...tenant({ session: 'a' }), ceilings: [] }));
    await world.editRow('second', { ...tenant({ session: 'b' }), ceilings: [] });
    assert.deepEqual(second(), { ...tenant({ session: 'b' }), ceilings });
    assert.equal(world.stderr.filter((line) => /ceilings are those of the host's row/u.test(line)).length, 1);
    assert.deepEqual((await world.ask('config', 'second')).json['value'], { ...tenant({ session: 'b' }), ceilings: [] }, 'its own words are kept');
  });

  test('who becomes the host\'s row says its own', async () => {
    const world = await Tenancy.with({}, { config: limit(9, { ceilings }) });
    const own = [{ provider: 'box', model: '*', max: 7 }];
    await world.row('second', limit(5, { ceilings: own }));
    const third = told(await world.row('third', tenant({ session: 'a' })));
    const second = told(world.livingOf('second'));
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    await settled();
    assert.deepEqual(second(), limit(5, { ceilings: own }));
    assert.deepEqual(third(), { ...tenant({ session: 'a' }), ceilings: own });
  });

  /** Sessions of the host's row and of the preset `one`, each with a call that wants to start. */
  const both = async (world: Tenancy, calls: number): Promise<void> => {
    for (let n = 0; n < calls; n += 1) {
      world.read(`host ${n}`);
      world.call(await world.member({ preset: 'one' }));
      await settled();
    }
  };
  /** Whose a session is. */
  const ownerOf = (session?: string): string => (session?.startsWith('host') ? 'host' : 'one');
  const ceiling = (max: number): Record<string, unknown> => limit(9, { ceilings: [{ provider: 'box', model: '*', max }] });
  /** The call that runs longest ends. */
  const end = async (world: Tenancy, of?: string): Promise<void> => {
    const oldest = world.backend.open.find(({ session }) => of === undefined || ownerOf(session) === of);
    (oldest ?? assert.fail('nobody generates')).end();
    await settled();
  };

  test('two rows hold no more than a ceiling together, take turns, and all come through', async () => {
    const world = await Tenancy.with({ one: limit(9) }, { config: ceiling(2) });
    await both(world, 4);
    for (let left = 8; left > 0; left -= 1) {
      assert.equal(world.backend.open.length, Math.min(2, left));
      await end(world);
    }
    assert.equal(world.backend.peakSessions, 2);
    assert.deepEqual(world.let.map(ownerOf), ['host', 'one', 'host', 'one', 'host', 'one', 'host', 'one']);
    assert.deepEqual(await world.live('', 'one'), { '': 0, one: 0 });
  });

  test('a row has the seats of a ceiling that nobody else wants, and each keeps its own limit', async () => {
    const world = await Tenancy.with({ one: limit(2) }, { config: ceiling(4) });
    for (const session of ['host 0', 'host 1', 'host 2']) world.read(session);
    for (let n = 0; n < 4; n += 1) world.call(await world.member({ preset: 'one' }));
    await settled();
    assert.deepEqual(await world.live('', 'one'), { '': 3, one: 1 });
    for (const live of [2, 1]) {
      await end(world, 'host');
      assert.deepEqual(await world.live('', 'one'), { '': live, one: 2 });
    }
    assert.equal(world.backend.peakSessions, 4);
  });

  test('a row that goes frees the seats that it held of a ceiling', async () => {
    const world = await Tenancy.with({}, { config: ceiling(2) });
    const parent = await world.member();
    const second = await world.row('second', tenant({ session: parent.agent.id }));
    world.call(parent);
    world.read('host 0');
    world.read('host 1');
    await settled();
    assert.deepEqual(await world.live('', 'second'), { '': 1, second: 1 });
    await world.ctx.loader.update('second', { disabled: true } as never);
    await until(() => second.gate.standing.state === 'stopped');
    assert.deepEqual(await world.live(''), { '': 2 });
    assert.equal(world.backend.open.length, 3, 'what runs goes on, and is nobody\'s any more');
  });

  test('a ceiling is raised, lowered, removed and set again while calls run and wait', async () => {
    const world = await Tenancy.with({ one: limit(9) }, { config: ceiling(1) });
    await both(world, 4);
    const running = async (): Promise<number> => Object.values(await world.live('', 'one')).reduce((sum, live) => sum + live);
    assert.equal(await running(), 1);
    await world.edit(ceiling(4));
    assert.equal(await running(), 4);
    await world.edit(ceiling(2));
    assert.equal(await running(), 4, 'who runs is not stopped');
    await end(world);
    await end(world);
    assert.equal(await running(), 2, 'and nobody follows before there is room');
    await end(world);
    assert.equal(await running(), 2);
    await world.edit(limit(9));
    assert.equal(await running(), 5, 'all that are left');
    await world.edit(ceiling(1));
    world.read('host 9');
    await settled();
    for (let left = 5; left > 1; left -= 1) {
      assert.equal(await running(), left);
      await end(world);
    }
    assert.ok(!world.let.includes('host 9'));
    await end(world);
    assert.ok(world.let.includes('host 9'));
  });
});
