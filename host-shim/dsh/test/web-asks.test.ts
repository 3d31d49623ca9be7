/** What the component asks of the harness: answered from its live services, within bounds, whatever they do. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Context } from '@deepseek-ai/cordis';
import { LlmAdapter, type LlmModelInfo, type LlmResolvedModelInfo } from '@deepseek-ai/dsh-llm';
import { SessionId, type Session } from '@deepseek-ai/dsh-session';
import SessionTitle from '@deepseek-ai/dsh-session-title';
import type { Limiter } from '../../node/index.d.ts';
import { answer } from '../src/asks.ts';
import { SettingsFailure, type Settings } from '../src/settings.ts';
import { fail, limit, settled, until } from './support.ts';
import { STATS, WebHarness, WebWorld, ask } from './web-support.ts';

const CATALOG = '/api/dsh-gen-limit/catalog';

/** Nobody streams through it; it lists whatever a test makes it. */
class Lister extends LlmAdapter {
  #list: (provider: string) => Promise<readonly LlmModelInfo[]>;

  constructor(list: (provider: string) => Promise<readonly LlmModelInfo[]>) {
    super();
    this.#list = list;
  }

  override stream(): never {
    throw new Error('not asked for');
  }

  override async resolveModel(provider: string, model: string): Promise<LlmResolvedModelInfo> {
    return { provider, id: model, name: model, context: { contextWindow: 1 } };
  }

  override listModels(provider: string): Promise<readonly LlmModelInfo[]> {
    return this.#list(provider);
  }
}

interface Listed {
  id: string;
  name: string;
  models: Array<{ id: string; name: string }>;
  error?: string;
}

async function catalog(world: WebWorld): Promise<Map<string, Listed>> {
  const { status, json } = await world.ask(CATALOG);
  assert.equal(status, 200);
  return new Map((json['providers'] as Listed[]).map((provider) => [provider.id, provider]));
}

describe('providers and models', () => {
  test('they are those that are there when somebody asks', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    assert.deepEqual([...(await catalog(world)).keys()], ['box', 'other']);
    const models = [{ id: 'a', name: 'A' }, { id: 'b', name: 'B' }];
    const handle = world.ctx.llm.registerAdapter(['new'], new Lister(async (provider) => models.map((model) => ({ provider, ...model }))));
    assert.deepEqual((await catalog(world)).get('new'), { id: 'new', name: 'new', models });
    handle();
    assert.equal((await catalog(world)).has('new'), false);
  });

  test('one that fails, hangs or lies is named, and delays nobody', async ({ mock }) => {
    const world = await WebWorld.make({ config: limit(1) });
    const faults: Readonly<Record<string, () => Promise<readonly LlmModelInfo[]>>> = {
      hangs: () => new Promise(() => undefined),
      rejects: () => Promise.reject(new Error('ENOENT: no such file, open \'/home/me/.key\'\nand more')),
      throws: () => {
        throw new TypeError('x'.repeat(100_000));
      },
      lies: async () => [{ provider: 'somebody else', id: 'm', name: 'm' }],
      nothing: () => Promise.reject(undefined),
    };
    for (const [provider, list] of Object.entries(faults)) world.ctx.llm.registerAdapter([provider], new Lister(list));
    world.ctx.llm.registerAdapter(['good'], new Lister(async (provider) => [{ provider, id: 'm', name: 'M' }]));
    mock.timers.enable({ apis: ['setTimeout'] });
    let done = false;
    const asked = catalog(world).finally(() => (done = true));
    await until(() => world.seen.length === 1);
    mock.timers.tick(1_999);
    await settled();
    assert.equal(done, false);
    mock.timers.tick(1);
    const found = await asked;
    assert.deepEqual(found.get('good')?.models, [{ id: 'm', name: 'M' }]);
    for (const provider of Object.keys(faults)) {
      assert.deepEqual(found.get(provider)?.models, [], provider);
      const error = found.get(provider)?.error ?? '';
      assert.match(error, new RegExp(`${provider}.*`, 'u'));
      assert.ok(error.length < 400, provider);
    }
    assert.match(found.get('hangs')?.error ?? '', /no list of models within 2 s/u);
    assert.match(found.get('rejects')?.error ?? '', /open …$/u);
  });

  test('a provider with very many is cut, with its names, and says so', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const many = Array.from({ length: 3_000 }, (_, n) => ({ id: `m${n}`, name: 'n'.repeat(1_000) }));
    world.ctx.llm.registerAdapter(['many'], new Lister(async (provider) => many.map((model) => ({ provider, ...model }))));
    const { models, error } = (await catalog(world)).get('many') ?? fail('not listed');
    assert.equal(models.length, 500);
    assert.equal(models[0]?.name.length, 200);
    assert.equal(error, 'many lists more than 500 models, the first 500 are told');
  });

  test('of very many providers some are told, each with its share, and the component lives', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const ids = Array.from({ length: 5_000 }, (_, n) => `p${n}`);
    const many = Array.from({ length: 100 }, (_, n) => ({ id: `m${n}`, name: 'M' }));
    world.ctx.llm.registerAdapter(ids, new Lister(async (provider) => many.map((model) => ({ provider, ...model }))));
    const { json } = await world.ask(CATALOG);
    assert.equal(json['error'], 'there are more than 200 providers, the first 200 are told');
    const providers = json['providers'] as Listed[];
    assert.equal(providers.length, 200);
    const last = providers.at(-1);
    assert.deepEqual([last?.models.length, last?.error], [25, `${last?.id} lists more than 25 models, the first 25 are told`]);
    assert.equal(world.gate.limiter?.status().restarts, 0);
  });
});

describe('sessions', () => {
  interface Described {
    session: string | null;
    label?: string;
    parent?: string;
    root?: string;
  }

  test('holders and waiters carry title, parent and root', async () => {
    const world = new WebHarness();
    await world.start({ config: limit(1) });
    await world.ctx.plugin(SessionTitle as never, { fallbackMaxWords: 3, fallbackMaxBytes: 40, maxTitleBytes: 80 } as never);
    const root = await world.agent();
    const { id } = root.agent;
    const stats = async (): Promise<{ holders: Described[]; waiters: Described[] }> =>
      (await ask(world.port, STATS)).json as never;
    const told = ({ session, label, parent, root }: Described): unknown[] => [session, label, parent, root];
    const prompted = world.prompt('Find the leak in the parser', root);
    await until(() => world.backend.open.length === 1);
    const first = world.spawn('count the beans', root);
    await until(() => world.waiting === 1);
    const before = await stats();
    assert.deepEqual(before.holders.map(told), [[id, 'Find the leak', undefined, id]]);
    assert.deepEqual(before.waiters.map(told), [[id, 'Find the leak', undefined, id]]);
    world.backend.open[0]?.end();
    await prompted;
    await until(() => world.prompts.includes('count the beans'));
    const child = world.asked('count the beans').session;
    const { holders } = await stats();
    assert.deepEqual(holders.map(({ session, parent, root }) => [session, parent, root]), [[child, id, id]]);
    assert.match(String(holders[0]?.label), /^count the/u);
    world.backend.open[0]?.end();
    await first.result;
  });

  test('of a session what it spawned is told, and of nobody else', async () => {
    const world = new WebHarness();
    await world.start({ config: limit(1) });
    const root = await world.agent();
    const other = await world.agent();
    const of = async (session: string): Promise<Record<'holders' | 'waiters', Described[]>> =>
      (await ask(world.port, `${STATS}?session=${session}`)).json as never;
    const sessions = (rows: readonly Described[]): unknown[] => rows.map(({ session }) => session);
    const work = world.spawn('count the beans', root);
    await until(() => world.prompts.includes('count the beans'));
    const child = world.asked('count the beans').session;
    const prompted = world.prompt('and you?', other);
    await until(() => world.waiting === 1);
    const [mine, theirs] = [await of(root.agent.id), await of(other.agent.id)];
    assert.deepEqual([sessions(mine.holders), sessions(mine.waiters)], [[child], []]);
    assert.deepEqual([sessions(theirs.holders), sessions(theirs.waiters)], [[], [other.agent.id]]);
    world.backend.onCall = (call) => call.end();
    world.backend.open[0]?.end();
    await Promise.all([work.result, prompted]);
  });

  const replied = (root: Context, ids: readonly string[]): unknown => {
    let told: unknown;
    const limiter = { answerSessions: (_: number, sessions: unknown) => ((told = sessions), 0) } as unknown as Limiter;
    const reply = answer({ id: 1, plugin: 'gen-limit', kind: 'describe-sessions', sessions: [...ids] }, root, NOBODY);
    assert.ok(typeof reply === 'function');
    reply(limiter);
    return told;
  };

  /** A harness with these sessions. */
  const rootWith = (sessions: Readonly<Record<string, object>>, services: Record<string, unknown> = {}): Context => {
    const all: Record<string, unknown> = { sessions: { get: (id: string) => sessions[id] }, ...services };
    return { get: (name: string) => all[name] } as unknown as Context;
  };
  const session = (id: string, parentSession?: string, more: object = {}): object => ({ id: SessionId(id), header: { parentSession }, events: [], ...more });

  test('a child without a title is called what it was spawned for, by its own record', () => {
    const descriptor = (label: string): object => ({ type: 'subagent/descriptor', data: { label } });
    const root = rootWith({
      top: session('top'),
      old: session('old', 'top', { header: { parentSession: 'top', seedLength: 1 }, events: [descriptor('inherited'), descriptor('own')] }),
      new: session('new', 'top', { events: undefined, ownEvents: () => [descriptor('of 0.2')] }),
      titled: session('titled', 'top', { title: 'A title', events: [descriptor('own')] }),
    }, { sessionTitle: { get: ({ title }: Session & { title?: string }) => (title === undefined ? undefined : { title }) } });
    assert.deepEqual(replied(root, ['top', 'old', 'new', 'titled', 'unknown']), [
      { id: 'top', root: 'top' },
      { id: 'old', label: 'own', parent: 'top', root: 'top' },
      { id: 'new', label: 'of 0.2', parent: 'top', root: 'top' },
      { id: 'titled', label: 'A title', parent: 'top', root: 'top' },
    ]);
  });

  test('a log is read for its title when it has grown, and the less often the longer it is looked at', ({ mock }) => {
    let now = 1_000;
    mock.method(performance, 'now', () => now);
    const busy = { ...session('busy'), title: 'First', seq: 1 };
    let reads = 0;
    const root = rootWith({ busy }, { sessionTitle: { get: ({ title }: typeof busy) => (reads++, { title }) } });
    const label = (): unknown => (replied(root, ['busy']) as Array<{ label?: string }>)[0]?.label;
    assert.deepEqual([label(), reads], ['First', 1]);
    Object.assign(busy, { title: 'Second' });
    now += 60_000;
    assert.deepEqual([label(), reads], ['First', 1], 'where nothing was added there is nothing new');
    busy.seq += 1;
    assert.deepEqual([label(), reads], ['Second', 2]);
    for (const [restMs, expected] of [[2_000, 3], [4_000, 4], [8_000, 5], [10_000, 6], [10_000, 7]] as const) {
      busy.seq += 1;
      now += restMs - 1;
      label();
      assert.equal(reads, expected - 1);
      now += 1;
      label();
      assert.equal(reads, expected);
    }
  });

  test('ancestors that are gone or go round in circles have no root', () => {
    const root = rootWith({ a: session('a', 'gone'), b: session('b', 'c'), c: session('c', 'b'), d: session('d', 'e'), e: session('e', 'f'), f: session('f') });
    assert.deepEqual(replied(root, ['a', 'b', 'd']), [{ id: 'a', parent: 'gone' }, { id: 'b', parent: 'c' }, { id: 'd', parent: 'e', root: 'f' }]);
  });

  test('services that are not there or throw leave sessions out', () => {
    const throwing = { get: () => assert.fail('broken') };
    assert.deepEqual(replied({ get: () => undefined } as unknown as Context, ['a']), []);
    assert.deepEqual(replied(rootWith({}, { sessions: throwing }), ['a']), []);
    assert.deepEqual(replied(rootWith({ a: session('a') }, { sessionTitle: throwing }), ['a']), []);
  });

  test('no more are described than anybody shows, nor at length', () => {
    const ids = Array.from({ length: 5_000 }, (_, n) => `s${n}`);
    const root = rootWith(Object.fromEntries(ids.map((id) => [id, session(id)])), { sessionTitle: { get: () => ({ title: 't'.repeat(10_000) }) } });
    const told = replied(root, ids) as Array<{ label: string }>;
    assert.equal(told.length, 2_000);
    assert.ok(told.every(({ label }) => label.length === 200));
  });
});

const NOBODY: Settings = { read: () => assert.fail('read'), update: () => assert.fail('updated') };

describe('settings', () => {
  const SECTION = { value: '{}', base: '{}', user: '{}', inForce: true, writable: true, revision: 'r' };
  const NOWHERE = { get: () => undefined } as unknown as Context;

  async function replied(settings: Partial<Settings>, change?: { json: string; revision?: string }): Promise<unknown[]> {
    const told: unknown[] = [];
    const limiter = { answerSettings: (...given: unknown[]) => (told.push(...given), 0) } as unknown as Limiter;
    const asked = change === undefined ? ({ id: 7, plugin: 'gen-limit', kind: 'read-settings' } as const) : ({ id: 7, plugin: 'gen-limit', kind: 'update-settings', ...change } as const);
    const reply = await answer(asked, NOWHERE, { ...NOBODY, ...settings });
    reply(limiter);
    return told;
  }

  test('a section is handed on, and a change with its revision', async () => {
    assert.deepEqual(await replied({ read: async () => SECTION }), [7, SECTION]);
    const given: unknown[] = [];
    const update = async (...change: unknown[]): Promise<typeof SECTION> => (given.push(...change), SECTION);
    assert.deepEqual(await replied({ update }, { json: '{"maxQueued":1}', revision: 'r' }), [7, SECTION]);
    assert.deepEqual(given, ['{"maxQueued":1}', 'r']);
  });

  test('each failure keeps its kind, a conflict its section, and none tells where files are', async () => {
    for (const kind of ['read-only', 'unavailable', 'invalid', 'other'] as const) {
      const read = (): Promise<never> => Promise.reject(new SettingsFailure(kind, 'EACCES: /root/.dsh/settings.yaml'));
      assert.deepEqual(await replied({ read }), [7, undefined, { kind, message: 'EACCES: …' }]);
    }
    const read = (): Promise<never> => Promise.reject(new SettingsFailure('conflict', 'changed', SECTION));
    assert.deepEqual(await replied({ read }), [7, undefined, { kind: 'conflict', message: 'changed', section: SECTION }]);
  });

  test('whatever else is thrown is another failure', async () => {
    for (const thrown of [new Error('at /a/b/c.js'), 'at /a/b/c.js']) {
      const failing = (): never => {
        throw thrown;
      };
      assert.deepEqual(await replied({ read: failing }), [7, undefined, { kind: 'other', message: 'at …' }]);
    }
  });
});
