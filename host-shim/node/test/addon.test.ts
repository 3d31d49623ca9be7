/** The addon alone: what crosses the boundary, and that nothing which crosses it wrongly does harm. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, suite, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type * as Addon from '../index.d.ts';

const root = new URL('../../../', import.meta.url);
const addon = createRequire(import.meta.url)(fileURLToPath(new URL('host-shim/node/gen-limit.node', root))) as typeof Addon;
const FILE = fileURLToPath(new URL('target/component/gen-limit.wasm', root));
const CODE = readFileSync(FILE.replace('.wasm', '.cwasm'));
const component = await addon.Component.load(FILE);

const WAITS = 1;
const DENIED = 2;
const SETTLED = 4;
const TICK = 8;
const LOGGED = 16;

/** Takes an answer apart. */
function read(answer: number): { id: number; bits: number } {
  return { id: Math.floor(answer / 128), bits: answer % 128 };
}

function limiter(max: number, more: object = {}): Addon.Limiter {
  const config = JSON.stringify({ limits: [{ provider: 'box', model: '*', max }], ...more });
  const made = new addon.Limiter(component, { config, manualClock: true, callMs: 10_000 });
  made.nextTick();
  made.takeLog();
  return made;
}

function start(made: Addon.Limiter, session?: string): { id: number; bits: number } {
  return read(made.startStream('box', 'm', session, true));
}

/** The waits that ended, the first so many of them, and why if they were refused. */
function taken(made: Addon.Limiter, most = Infinity): Array<{ id: number; refusal?: Addon.Refusal | null }> {
  const all = [];
  for (let told = 0; all.length < most && (told = made.nextSettled()) > 0;) {
    all.push(told % 2 === 0 ? { id: told / 2 } : { id: (told - 1) / 2, refusal: made.refusal() });
  }
  return all;
}

suite('answers', () => {
  test('ids rise and a call with room has no bit set', () => {
    const made = limiter(2);
    const [a, b] = [start(made, 'a'), start(made, 'b')];
    assert.ok(b.id > a.id && a.id > 0);
    assert.deepEqual([a.bits, b.bits], [0, 0]);
  });

  test('a waiter is told of by the finish that frees its seat', () => {
    const made = limiter(1, { queueTimeoutMs: 0 });
    const [a, b, c] = [start(made, 'a'), start(made, 'b'), start(made, 'c')];
    assert.deepEqual([a.bits & WAITS, b.bits & WAITS, c.bits & WAITS], [0, WAITS, WAITS]);
    assert.deepEqual(taken(made), []);
    assert.equal(made.finish(a.id, 0) & SETTLED, SETTLED);
    assert.deepEqual(taken(made), [{ id: b.id }]);
    assert.deepEqual(taken(made), [], 'each exactly once');
  });

  test('waits that ended are taken in portions, in their order, and are told of until all are', () => {
    const made = limiter(1);
    const [busy, ...waiting] = Array.from({ length: 6 }, (_, n) => start(made, `s${n}`).id);
    made.configure(JSON.stringify({ limits: [] }), false);
    assert.equal(made.pending() & SETTLED, SETTLED);
    const portions = [2, 0, 2, 5, 5].map((most) => [taken(made, most).map(({ id }) => id), made.finish(busy ?? 0, 0) & SETTLED]);
    assert.deepEqual(portions, [[waiting.slice(0, 2), SETTLED], [[], SETTLED], [waiting.slice(2, 4), SETTLED], [waiting.slice(4), 0], [[], 0]]);
  });

  test('a refusal is fetched once, with a code, a reason and a sentence', () => {
    const made = limiter(1, { maxQueued: 0 });
    start(made, 'a');
    assert.equal(start(made, 'b').bits & DENIED, DENIED);
    const refusal = made.refusal();
    assert.equal(refusal?.code, 'GEN_CAPACITY_EXCEEDED');
    assert.equal(refusal.reason, 'queue-full');
    assert.notEqual(refusal.message, '');
    assert.equal(made.refusal(), null);
  });

  test('finishing twice, or an unknown id, does nothing', () => {
    const made = limiter(2);
    const [a, b] = [start(made, 'a'), start(made, 'b')];
    for (const id of [a.id, a.id, 0, 123_456, Number.MAX_SAFE_INTEGER]) made.finish(id, 1);
    assert.equal(made.status().live, 1);
    made.finish(b.id, 2, { code: 'RATE_LIMIT', status: 429, retryAfterMs: 2000 });
    assert.equal(made.status().live, 0);
  });

  test('the tick is told of when it changes and is due when it says', () => {
    const made = limiter(1, { queueTimeoutMs: 2_592_000_000 });
    start(made, 'a');
    assert.equal(made.nextTick(), Infinity);
    const b = start(made, 'b');
    assert.equal(b.bits & TICK, TICK);
    assert.equal(made.nextTick(), 2_592_000_000);
    assert.equal(made.pending() & TICK, 0, 'told');
    assert.equal(made.advance(2_591_999_999) & SETTLED, 0);
    assert.equal(made.nextTick(), 1);
    assert.equal(made.advance(1) & SETTLED, SETTLED);
    const [settled] = taken(made);
    assert.equal(settled?.id, b.id);
    assert.equal(settled.refusal?.reason, 'queue-timeout');
    assert.equal(settled.refusal.waitedMs, 2_592_000_000);
  });

  test('a spawn is asked about with its child\'s route, and passes without one', () => {
    const made = limiter(0);
    assert.deepEqual(made.tools().toSorted(), ['subagent', 'subagent_fork']);
    assert.equal(read(made.startTool('subagent', 'p', 'box', 'm')).bits & WAITS, WAITS);
    assert.equal(read(made.startTool('subagent', 'p')).bits & (WAITS | DENIED), 0);
  });

  test('a child takes the place of its spawn in the line', () => {
    const made = limiter(1);
    const spawn = read(made.startTool('subagent', 'p', 'box', 'm'));
    const busy = start(made, 'busy');
    start(made, 'before');
    const child = read(made.startStream('box', 'm', 'child', true, spawn.id));
    made.finish(busy.id, 0);
    assert.deepEqual(taken(made), [{ id: child.id }]);
  });

  test('a call within another is warned of', () => {
    const made = limiter(1, { queueTimeoutMs: 0 });
    const outer = start(made, 'outer');
    const inner = read(made.startStream('box', 'm', 'inner', true, undefined, outer.id));
    assert.equal(inner.bits & LOGGED, LOGGED);
    const [line] = made.takeLog();
    assert.equal(line?.level, 'warn');
    assert.match(line.message, /outer/u);
  });
});

suite('configuration', () => {
  test('a wrong row is named and what was in force stays', () => {
    const made = limiter(1);
    const { applied, problems } = made.configure(JSON.stringify({ limits: [{ provider: 'box', model: '*', max: 'abc' }] }), false);
    assert.equal(applied, false);
    assert.equal(problems[0]?.path, 'limits[0].max');
    start(made, 'a');
    assert.equal(start(made, 'b').bits & WAITS, WAITS);
  });

  test('leniently, what is valid is in force', () => {
    const made = limiter(5);
    const rows = [{ provider: 'box', model: '*', max: 1 }, { provider: 'x', model: '*', max: 'abc' }];
    const { applied, problems } = made.configure(JSON.stringify({ limits: rows }), true);
    assert.deepEqual([applied, problems.length], [true, 1]);
    start(made, 'a');
    assert.equal(start(made, 'b').bits & WAITS, WAITS);
  });

  test('a limiter that begins with a wrong configuration does not begin', () => {
    assert.throws(() => new addon.Limiter(component, { config: '{"limits": 3}' }), { code: 'GEN_LIMIT_START' });
  });
});

suite('requests', () => {
  const ask = (made: Addon.Limiter, method: string, path: string, query = ''): { status: number; body: unknown } => {
    const id = made.request(method, path, query, [['accept', 'application/json']], new Uint8Array());
    made.turn();
    for (const { id: asked, sessions } of made.takeAsks()) {
      made.answerSessions(asked, (sessions ?? []).map((session) => ({ id: session, label: `title of ${session}` })));
    }
    const response = made.takeResponses().find((response) => response.id === id);
    assert.ok(response);
    return { status: response.status, body: JSON.parse(Buffer.from(response.body).toString()) };
  };

  test('stats are answered, with what the host knows', () => {
    const made = limiter(1);
    start(made, 'a');
    const { status, body } = ask(made, 'GET', '/api/dsh-gen-limit/stats') as {
      status: number;
      body: { entries: unknown; holders: Array<{ session: string; label: string }>; host: { state: string } };
    };
    assert.equal(status, 200);
    assert.deepEqual(body.holders.map(({ session, label }) => [session, label]), [['a', 'title of a']]);
    assert.deepEqual(body.entries, [{ provider: 'box', model: 'm', active: 1, waiting: 0 }]);
    assert.equal(body.host.state, 'running');
  });

  test('other methods, paths and queries are refused with their own status', () => {
    const made = limiter(1);
    assert.equal(ask(made, 'POST', '/api/dsh-gen-limit/stats').status, 405);
    assert.equal(ask(made, 'GET', '/api/dsh-gen-limit/nothing').status, 404);
    assert.equal(ask(made, 'GET', '/api/dsh-gen-limit/stats', 'offset=-1').status, 400);
  });
});

suite('files', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gen-limit-files-'));
  after(() => rmSync(folder, { recursive: true }));
  const whole = readFileSync(FILE);
  const WRONG: Record<string, [content: Uint8Array | string | undefined, told: RegExp]> = {
    missing: [undefined, /cannot be read.*expected/u],
    truncated: [whole.subarray(0, whole.length - 1000), /not a valid component/u],
    foreign: ['#!/bin/sh', /not WebAssembly.*#!\/bin\/.*expected/u],
    core: [Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0), /core module, expected a component/u],
  };
  for (const [what, [content, told]] of Object.entries(WRONG)) {
    test(`a ${what} file is named with what was found and what was expected`, async () => {
      const path = join(folder, `${what}.wasm`);
      if (content !== undefined) writeFileSync(path, content);
      const error: unknown = await addon.Component.load(path).catch((error: unknown) => error);
      assert(error instanceof Error && 'code' in error);
      assert.equal(error.code, 'GEN_LIMIT_LOAD');
      assert.match(error.message, told);
    });
  }

  /** The component in a folder of its own, with what is said to be its code. */
  function delivered(name: string, code?: Uint8Array): string {
    const beside = join(folder, name);
    mkdirSync(beside);
    writeFileSync(join(beside, 'gen-limit.wasm'), whole);
    if (code !== undefined) writeFileSync(join(beside, 'gen-limit.cwasm'), code);
    return join(beside, 'gen-limit.wasm');
  }

  test('the component that ships is not compiled, and works', () => {
    assert.deepEqual([component.source, component.notice], ['precompiled', null]);
    assert.equal(new addon.Limiter(component, { config: '{}' }).status().state, 'running');
  });

  for (const [what, code, named] of [
    ['missing', undefined, /gen-limit\.cwasm: cannot be read/u],
    ['cut short', CODE.subarray(0, -1), /gen-limit\.cwasm: has the sha256 [0-9a-f]{64}, expected/u],
    ['another file', whole, /has the sha256/u],
  ] as const) {
    test(`code beside it that is ${what} is named, and it is compiled`, async () => {
      const loaded = await addon.Component.load(delivered(`code ${what}`, code));
      assert.equal(loaded.source, 'compiled');
      assert.match(loaded.notice ?? '', named);
      assert.equal(loaded.sha256, component.sha256);
    });
  }

  test('code beside another component is not looked at', async () => {
    const path = delivered('other', CODE);
    writeFileSync(path, Buffer.concat([whole, Buffer.from([0, 2, 1, 120])]));
    const loaded = await addon.Component.load(path);
    assert.deepEqual([loaded.source, loaded.notice], ['compiled', null]);
  });

  test('what was compiled before comes from the cache, and is the same', async (t) => {
    const before = process.env['XDG_CACHE_HOME'];
    t.after(() => {
      if (before === undefined) delete process.env['XDG_CACHE_HOME'];
      else process.env['XDG_CACHE_HOME'] = before;
    });
    process.env['XDG_CACHE_HOME'] = join(folder, 'cache');
    const file = delivered('cached');
    const [first, second, without] = [await addon.Component.load(file, true), await addon.Component.load(file, true), await addon.Component.load(file)];
    assert.deepEqual([first.source, second.source, without.source], ['compiled', 'cached', 'compiled']);
    assert.equal(second.sha256, component.sha256);
    assert.equal(new addon.Limiter(second, { config: '{}' }).status().state, 'running');
  });

  test('a component tells its digest and size', () => {
    assert.match(component.sha256, /^[0-9a-f]{64}$/u);
    assert.equal(component.size, whole.length);
  });
});

suite('hooks', () => {
  test('they are the limiter\'s own, whoever they are called on', () => {
    const made = limiter(1);
    const { startStream, finish } = made.hooks();
    const [a, b] = [read(startStream('box', 'm', 'a', false)), start(made, 'b')];
    assert.deepEqual([a.bits & WAITS, b.bits & WAITS], [0, WAITS]);
    assert.equal(finish.call(limiter(1), a.id, 0) & SETTLED, SETTLED);
    assert.deepEqual(taken(made), [{ id: b.id }]);
    made.finish(b.id, 0);
    assert.equal(made.status().live, 0);
  });

  test('they outlive the limiter\'s object, and each other', async () => {
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as () => void;
    let { startStream, finish }: Partial<ReturnType<Addon.Limiter['hooks']>> = limiter(1).hooks();
    const collect = async (): Promise<void> => {
      for (let n = 0; n < 3; n += 1) {
        gc();
        await setImmediate();
      }
    };
    await collect();
    const a = read(startStream('box', 'm', 'a', false));
    const b = read(startStream('box', 'm', 'b', false));
    startStream = undefined;
    await collect();
    assert.equal(b.bits & WAITS, WAITS);
    assert.equal(finish(a.id, 0) & SETTLED, SETTLED);
    finish = undefined;
    await collect();
  });

  test('what an argument throws is thrown, and nothing has happened', () => {
    const made = limiter(1);
    const { id } = start(made, 'a');
    const failure = { get code(): string { throw new RangeError('not to be read'); } };
    assert.throws(() => made.hooks().finish(id, 2, failure));
    assert.equal(made.status().live, 1);
    made.hooks().finish(id, 2);
    assert.equal(made.status().live, 0);
  });
});

suite('harm', () => {
  const made = limiter(1);
  const anything = made as unknown as Record<string, (...args: unknown[]) => unknown>;
  const hooks = made.hooks() as unknown as typeof anything;
  const WRONG: Array<[method: string, ...args: unknown[]]> = [
    ['startStream'], ['startStream', 1, 'm', 's', true], ['startStream', 'p', null, 's', true], ['startStream', 'p', 'm', {}, true],
    ['startStream', 'p', 'm', 's', 'yes'], ['startStream', 'p', 'm', 's', true, -1], ['startStream', 'p', 'm', 's', true, 1.5],
    ['startStream', 'p', 'm', 's', true, NaN], ['startStream', 'p', 'm', 's', true, 1n], ['startStream', 'p', 'm', 's', true, 1, Infinity],
    ['startStream', 'p', 'm', 's', true, 1, 1, Symbol('purpose')], ['startTool', 3, 's'], ['startTool', 't', 's', 'p'], ['startTool', 't', 's', undefined, 'm'],
    ['finish'], ['finish', 'one', 0], ['finish', -1, 0], ['finish', 2 ** 53, 0], ['finish', 1, 3], ['finish', 1, '0'], ['finish', 1, 2, 'failure'],
    ['configure'], ['configure', {}, false], ['configure', '{}', 1], ['request', 'GET'], ['request', 'GET', '/', '', [['one']], new Uint8Array()],
    ['request', 'GET', '/', '', [], 'body'], ['replace', {}], ['advance', -1], ['advance', 'long'],
  ];
  for (const [method, ...args] of WRONG) {
    test(`${method}(${args.map((arg) => (typeof arg === 'object' ? JSON.stringify(arg) : String(arg))).join(', ')}) is refused with a code`, () => {
      assert.throws(() => anything[method]?.(...args), { code: 'GEN_LIMIT_BAD_ARGUMENT' });
      if (method in hooks) assert.throws(() => hooks[method]?.(...args), { code: 'GEN_LIMIT_BAD_ARGUMENT' });
    });
  }

  test('nothing that was refused has been counted', () => {
    const { live, waiting } = made.status();
    assert.deepEqual({ live, waiting }, { live: 0, waiting: 0 });
  });

  test('the machine\'s clock cannot be moved', () => {
    assert.throws(() => new addon.Limiter(component).advance(1), { code: 'GEN_LIMIT_BAD_ARGUMENT' });
  });

  test('a limiter cannot be made of anything else, nor its methods be lent', () => {
    assert.throws(() => new addon.Limiter({} as never), { code: 'GEN_LIMIT_BAD_ARGUMENT' });
    assert.throws(() => new addon.Limiter(component, { memoryBytes: 0.5 }), { code: 'GEN_LIMIT_BAD_ARGUMENT' });
    assert.throws(() => addon.Limiter.prototype.tick.call({} as never), TypeError);
  });

  test('a panic becomes an error, for that limiter alone', () => {
    const broken = limiter(1);
    const whole = limiter(1);
    const { panic } = broken as unknown as { panic?: () => number };
    assert.ok(panic, 'this is a build with debug assertions');
    assert.throws(() => panic.call(broken), { code: 'GEN_LIMIT_PANIC', message: /on request/u });
    assert.throws(() => start(broken, 'a'), { code: 'GEN_LIMIT_PANIC' });
    assert.throws(() => broken.hooks().finish(1, 0), { code: 'GEN_LIMIT_PANIC' });
    assert.equal(start(whole, 'a').bits, 0);
  });

  test('odd strings arrive as they are or readably changed', () => {
    const odd = limiter(1, { limits: [] });
    for (const session of ['', '\u0000', 'a'.repeat(100_000), '\ud800', '💥', '../..', '{"a":1}']) {
      const { id } = read(odd.startStream('box', session, session, true));
      odd.finish(id, 0);
    }
    assert.equal(odd.status().live, 0);
  });
});

suite('a component that fails', async () => {
  const chaos = await addon.Component.load(FILE.replace('gen-limit.wasm', 'gen-limit-chaos.wasm'));

  for (const fault of ['trap', 'loop', 'eat']) {
    test(`one that ${fault}s is replaced, and every call is still known`, () => {
      const config = JSON.stringify({ limits: [{ provider: 'box', model: '*', max: 1 }], chaos: `${fault}-in:10`, maxRestarts: 20 });
      const made = new addon.Limiter(chaos, { config, manualClock: true, callMs: fault === 'loop' ? 50 : 10_000 });
      const ids = Array.from({ length: 12 }, (_, n) => start(made, `s${n}`).id);
      assert.deepEqual(ids, [...ids].sort((a, b) => a - b));
      const { restarts, live, waiting, lastError } = made.status();
      assert.ok(restarts > 0);
      assert.equal(live + waiting, 12);
      assert.ok(lastError);
      for (const id of ids) made.finish(id, 0);
      assert.deepEqual({ live: made.status().live, waiting: made.status().waiting }, { live: 0, waiting: 0 });
    });
  }

  test('another component takes over with all calls', () => {
    const made = limiter(1);
    const [, b] = [start(made, 'a'), start(made, 'b')];
    made.replace(chaos);
    assert.equal(made.status().sha256, chaos.sha256);
    assert.deepEqual({ live: made.status().live, waiting: made.status().waiting }, { live: 1, waiting: 1 });
    assert.ok(start(made, 'c').id > b.id);
  });
});
