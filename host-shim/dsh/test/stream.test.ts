/** The stream seam: one call from its first `next()` to its end, against the real LLM service and a backend of ours. */
import assert from 'node:assert/strict';
import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { getEventListeners } from 'node:events';
import { suite, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import { FAILED, Gate } from '../src/gate.ts';
import { GatedStream } from '../src/stream.ts';
import { World, limit, settled, until } from './support.ts';

function finish(chunks: StreamChunk[]): { kind: string; code?: string; message?: string } {
  const chunk = chunks.at(-1);
  assert.equal(chunk?.type, 'finish');
  assert(chunk?.type === 'finish');
  const { reason } = chunk;
  return 'failure' in reason ? { kind: reason.kind, ...reason.failure } : { kind: reason.kind };
}

suite('line', () => {
  test('a call with room is admitted at once', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    await settled();
    assert.deepEqual(world.backend.sessions, ['a']);
    assert.equal(world.occupancy, 1);
  });

  test('a claim counts before the next is looked at: eight at once at limit 1, one runs', async () => {
    const world = await World.make({ config: limit(1) });
    for (let n = 0; n < 8; n += 1) world.read(`s${n}`);
    await settled();
    assert.deepEqual(world.backend.sessions, ['s0']);
    assert.equal(world.waiting, 7);
  });

  test('waiters are served first in, first out', async () => {
    const world = await World.make({ config: limit(1) });
    for (const session of ['a', 'b', 'c', 'd']) world.read(session);
    const order: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      await settled();
      assert.equal(world.backend.open.length, 1);
      order.push(world.backend.open[0]?.session ?? '');
      world.backend.open[0]?.end();
    }
    assert.deepEqual(order, ['a', 'b', 'c', 'd']);
  });

  test('B1 one freed seat lets exactly one of five waiters run', async () => {
    const world = await World.make({ config: limit(1) });
    for (const session of ['a', 'b', 'c', 'd', 'e', 'f']) world.read(session);
    await settled();
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['b']);
    assert.equal(world.waiting, 4);
  });

  for (const max of [1, 2, 3]) {
    test(`B1 twelve sessions of twenty short streams peak at ${max} at limit ${max}`, async () => {
      const world = await World.make({ config: limit(max) });
      // Whoever generates ends at a turn of chance; the chance is the same in every run.
      let seed = max;
      const chance = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
      let left = 12 * 20;
      const session = async (name: string): Promise<void> => {
        for (let n = 0; n < 20; n += 1) {
          assert.equal(await world.read(name).done, undefined);
          left -= 1;
        }
      };
      const sessions = Array.from({ length: 12 }, (_, n) => session(`s${n}`));
      while (left > 0) {
        await settled();
        for (const call of world.backend.open) if (chance() < 0.5) call.end();
      }
      await Promise.all(sessions);
      assert.equal(world.backend.peakSessions, max);
      assert.equal(world.backend.calls.length, 240);
      assert.equal(world.occupancy, 0);
    });
  }

  test('nobody overtakes: an arrival stands behind those who wait', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    world.read('b');
    await settled();
    world.backend.of('a').end();
    world.read('c');
    await settled();
    assert.deepEqual(world.backend.sessions, ['b']);
  });

  test('timeout 0 arms nothing and waits for ever', async () => {
    const world = await World.make({ config: limit(1, { queueTimeoutMs: 0 }) });
    world.read('a');
    const b = world.read('b');
    await settled();
    assert.equal(world.gate.limiter?.nextTick(), Infinity);
    world.gate.advance(365 * 86_400_000);
    await settled();
    assert.equal(b.ended, false);
    assert.equal(world.waiting, 1);
  });

  test('a timed-out waiter is gone, the next release goes to a live one', async () => {
    const world = await World.make({ config: limit(1, { queueTimeoutMs: 1000 }) });
    world.read('a');
    const b = world.read('b');
    await settled();
    world.gate.advance(600);
    const c = world.read('c');
    await settled();
    world.gate.advance(400);
    await settled();
    assert.equal(b.ended, true);
    assert.equal(finish(b.chunks).code, 'GEN_CAPACITY_EXCEEDED');
    assert.equal(c.ended, false);
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['c']);
  });

  for (const wait of [2_147_483_648, 9_999_999_999, 30 * 86_400_000]) {
    test(`B10 a timeout of ${wait} ms waits that long, and no timer is asked for more than it holds`, async (t) => {
      const timer = t.mock.method(globalThis, 'setTimeout');
      const world = await World.make({ config: limit(1, { queueTimeoutMs: wait }) });
      world.read('a');
      const b = world.read('b');
      await settled();
      world.gate.advance(wait - 1);
      await settled();
      assert.equal(b.ended, false);
      world.gate.advance(1);
      await settled();
      assert.equal(finish(b.chunks).code, 'GEN_CAPACITY_EXCEEDED');
      const delays = timer.mock.calls.map(({ arguments: [, delay] }) => delay ?? 0);
      assert.ok(delays.length > 0 && delays.every((delay) => delay <= 2 ** 31 - 1), delays.join());
    });
  }

  test('B10 a wait longer than a timer holds is continued when the timer fires', async (t) => {
    const world = await World.make({ config: limit(1, { queueTimeoutMs: 2 ** 31 + 1000 }) });
    t.mock.timers.enable({ apis: ['setTimeout'] });
    world.read('a');
    const b = world.read('b');
    await settled();
    const timer = t.mock.method(globalThis, 'setTimeout');
    t.mock.timers.tick(2 ** 31 - 1);
    assert.equal(b.ended, false);
    assert.equal(timer.mock.callCount(), 1, 'set anew');
  });

  test('the timer keeps the process alive while somebody waits, and only then', async () => {
    const world = await World.make({ config: limit(1, { spawnGraceMs: 1_000_000, queueTimeoutMs: 2_000_000 }) });
    const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    const before = timers();
    // The credit of a spawn ends before any wait does: there is something to look at all the time.
    world.gate.startTool('subagent', { kind: 'spawn', session: 'parent', provider: 'box', model: 'm' });
    world.read('a');
    for (const end of ['abort', 'admission'] as const) {
      const b = world.read('b');
      await settled();
      assert.equal(timers() - before, 1, `before the ${end}`);
      if (end === 'abort') b.controller.abort(new Error('enough'));
      else world.backend.of('a').end();
      await settled();
      assert.deepEqual({ waiting: world.waiting, credits: world.stats.credits }, { waiting: 0, credits: 1 });
      assert.equal(timers() - before, 0, `after the ${end}`);
    }
  });

  test('a full line refuses at the door', async () => {
    const world = await World.make({ config: limit(1, { maxQueued: 2 }) });
    for (const session of ['a', 'b', 'c']) world.read(session);
    const d = world.read('d');
    await settled();
    assert.equal(d.ended, true);
    assert.equal(finish(d.chunks).code, 'GEN_CAPACITY_EXCEEDED');
    assert.equal(world.waiting, 2);
  });

  test('a raised limit serves the line at once', async () => {
    const world = await World.make({ config: limit(1) });
    for (const session of ['a', 'b', 'c', 'd']) world.read(session);
    await settled();
    await world.edit(limit(3));
    assert.deepEqual(world.backend.sessions, ['a', 'b', 'c']);
  });

  test('a removed limit serves the whole line', async () => {
    const world = await World.make({ config: limit(1) });
    for (const session of ['a', 'b', 'c', 'd']) world.read(session);
    await settled();
    await world.edit({ limits: [] });
    assert.equal(world.backend.open.length, 4);
  });

  test('B3 a limit set while five run admits nobody until fewer than it run', async () => {
    const world = await World.make({ config: { limits: [] } });
    for (let n = 0; n < 5; n += 1) world.read(`s${n}`);
    await settled();
    await world.edit(limit(2));
    world.read('new');
    await settled();
    for (const n of [0, 1, 2]) {
      world.backend.of(`s${n}`).end();
      await settled();
      assert.equal(world.backend.sessions.includes('new'), false, `with ${4 - n} running`);
    }
    world.backend.of('s3').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['s4', 'new']);
  });

  test('B5 a limit lowered from 3 to 1 lets the next start when nobody runs, one at a time', async () => {
    const world = await World.make({ config: limit(3) });
    for (let n = 0; n < 7; n += 1) world.read(`s${n}`);
    await settled();
    await world.edit(limit(1));
    for (const n of [0, 1]) {
      world.backend.of(`s${n}`).end();
      await settled();
      assert.equal(world.backend.open.length, 2 - n, 'stops nobody, admits nobody');
    }
    for (const [ending, starting] of [['s2', 's3'], ['s3', 's4'], ['s4', 's5'], ['s5', 's6']] as const) {
      world.backend.of(ending).end();
      await settled();
      assert.deepEqual(world.backend.sessions, [starting]);
    }
  });

  test('B13 timed-out waiters leave nothing in stats, a running stream is always there', async () => {
    const world = await World.make({ config: { limits: [{ provider: '*', model: '*', max: 1 }], queueTimeoutMs: 10 } });
    world.read('runner', { model: 'kept' });
    await settled();
    for (let n = 0; n < 1000; n += 1) world.read(`s${n}`, { model: `m${n}` });
    await settled();
    assert.equal(world.stats.waitersTotal, 1000);
    world.gate.advance(10);
    await settled();
    const { entries, waitersTotal, holders } = world.stats;
    assert.equal(waitersTotal, 0);
    assert.deepEqual(entries, [{ provider: 'box', model: 'kept', active: 1, waiting: 0 }]);
    assert.deepEqual(holders.map(({ session }) => session), ['runner']);
  });

  test('a drained line leaves nothing behind', async () => {
    const world = await World.make({ config: limit(2) });
    world.backend.onCall = (call) => call.end();
    await Promise.all(Array.from({ length: 50 }, (_, n) => world.read(`s${n}`).done));
    await settled();
    const { entries, holdersTotal, waitersTotal } = world.stats;
    assert.deepEqual({ entries, holdersTotal, waitersTotal }, { entries: [], holdersTotal: 0, waitersTotal: 0 });
    const { live, waiting } = world.gate.limiter?.status() ?? {};
    assert.deepEqual({ live, waiting }, { live: 0, waiting: 0 });
  });

  test('all limits on a route apply together: a model of its own does not evade its provider', async () => {
    const limits = [{ provider: 'box', model: '*', max: 1 }, { provider: 'box', model: 'm', max: 5 }];
    const world = await World.make({ config: { limits } });
    world.read('a');
    world.read('b', { model: 'other' });
    world.read('c');
    await settled();
    assert.deepEqual(world.backend.sessions, ['a']);
  });
});

suite('stream', () => {
  test('B2 a session that overlaps its calls counts once, until its last call ends', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    await settled();
    world.read('a', { purpose: 'session-title' } as never);
    world.read('b');
    await settled();
    assert.deepEqual(world.backend.sessions, ['a', 'a']);
    assert.equal(world.occupancy, 1);
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['a'], 'the seat is still held');
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['b']);
  });

  test('B6 a second waiter of a session is admitted with the first, without a second seat', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    world.read('b');
    world.read('c');
    world.read('b');
    await settled();
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['b', 'b']);
    assert.equal(world.occupancy, 1);
    world.backend.of('b').end();
    await settled();
    assert.equal(world.occupancy, 1, 'no undercount');
    assert.deepEqual(world.backend.sessions, ['b']);
  });

  test('a call without a session id is its own session', async () => {
    const world = await World.make({ config: limit(2) });
    for (let n = 0; n < 4; n += 1) world.read();
    await settled();
    assert.equal(world.backend.open.length, 2);
    assert.equal(world.occupancy, 2);
  });

  test('the seat is free before the consumer sees the end', async () => {
    const world = await World.make({ config: limit(1) });
    const iterator = world.stream('a')[Symbol.asyncIterator]();
    world.backend.onCall = (call) => call.end();
    for (let step = await iterator.next(); !step.done; step = await iterator.next()) assert.equal(world.occupancy, 1);
    assert.equal(world.occupancy, 0);
  });

  test('a provider that throws a hundred times in a row leaves occupancy 0', async () => {
    const world = await World.make({ config: limit(1) });
    for (let n = 0; n < 100; n += 1) {
      world.backend.onCall = (call) => {
        if (n % 2 === 0) call.say('a little');
        call.fail(new Error('disconnected'));
      };
      const { chunks, done } = world.read(`s${n}`);
      assert.equal(await done, undefined);
      assert.equal(finish(chunks).kind, 'error');
    }
    assert.equal(world.occupancy, 0);
  });

  for (const phase of ['at its call', 'at its iterator', 'at its first step', 'at a later step'] as const) {
    test(`a middleware that throws ${phase} gives the seat back, a hundred times in a row`, async () => {
      const world = await World.make({ config: limit(1) });
      const error = new Error(phase);
      const rest: AsyncIterable<StreamChunk> = {
        [Symbol.asyncIterator]() {
          if (phase === 'at its iterator') throw error;
          let step = 0;
          return {
            next() {
              step += 1;
              if (phase === 'at its first step') throw error;
              if (step === 2) return Promise.reject(error);
              return Promise.resolve({ done: false, value: { type: 'text-delta', index: 0, text: '' } });
            },
          };
        },
      };
      const off = world.ctx.on('llm/stream', () => {
        if (phase === 'at its call') throw error;
        return rest;
      });
      for (let n = 0; n < 100; n += 1) assert.equal(await world.read(`s${n}`).done, error);
      assert.equal(world.occupancy, 0);
      off();
    });
  }

  /** What other plugins may hand on although no type allows it. */
  const TRAP = { get type(): never { throw new Error('do not look'); } };
  const FAILURES: Record<string, unknown> = {
    'no failure': undefined, 'a failure that is null': null, 'a failure that is text': '429', 'no code': { message: 'm' },
    'a code that is a number': { code: 429 }, 'a status that is text': { code: 'X', status: '429' },
    'a status that is null': { code: 'X', status: null, providerRetryAfterMs: null },
    'a status that is no number': { code: 'X', status: NaN, providerRetryAfterMs: Infinity },
    'a status below zero': { code: 'X', status: -1, providerRetryAfterMs: -5 },
    'a status that is no integer': { code: 'X', status: 429.5, providerRetryAfterMs: 0.1 },
    'numbers beyond any': { code: 'X', status: 1e300, providerRetryAfterMs: 1e300 },
  };
  const STEPS: Array<[string, unknown]> = [
    ...Object.entries(FAILURES).map(([what, failure]): [string, unknown] =>
      [`a failed end with ${what}`, { done: false, value: { type: 'finish', reason: { kind: 'error', failure } } }]),
    ['an end without a reason', { done: false, value: { type: 'finish' } }],
    ['an end for the reason null', { done: false, value: { type: 'finish', reason: null } }],
    ['a chunk that is undefined', { done: false, value: undefined }],
    ['a chunk that is text', { done: false, value: 'text' }],
    ['a chunk that throws when it is looked at', { done: false, value: TRAP }],
    ['a step that is null', null],
    ['a step that is undefined', undefined],
    ['a step that is a number', 7],
    ['a step that throws when it is looked at', { get done(): never { throw new Error('do not look'); } }],
  ];
  for (const [what, step] of STEPS) {
    test(`${what} gives the seat back and harms nobody`, async (t) => {
      const world = await World.make({ config: limit(1) });
      const rejected = t.mock.fn();
      process.on('unhandledRejection', rejected);
      const steps = [Promise.resolve(step), Promise.resolve({ done: true, value: undefined })];
      const off = world.ctx.on('llm/stream', () => ({ [Symbol.asyncIterator]: () => ({ next: () => steps.shift() }) }) as never);
      await world.read('a').done;
      off();
      await settled();
      process.off('unhandledRejection', rejected);
      assert.equal(rejected.mock.callCount(), 0);
      assert.equal(world.occupancy, 0);
      world.read('b');
      await settled();
      assert.deepEqual(world.backend.sessions, ['b']);
    });
  }

  for (const done of [{ done: false }, {}]) {
    test(`a failure is told as one, from a step that ${'done' in done ? 'says that it is not the last' : 'says nothing of that'}`, async (t) => {
      const world = await World.make({ config: limit(1) });
      const finished = t.mock.method(world.gate, 'finish');
      const failure = { code: 'HTTP_429', status: 429 };
      const steps: object[] = [{ ...done, value: { type: 'finish', reason: { kind: 'error', failure } } }, { done: true, value: undefined }];
      const off = world.ctx.on('llm/stream', () => ({ [Symbol.asyncIterator]: () => ({ next: () => Promise.resolve(steps.shift()) }) }) as never);
      await world.read('a').done;
      off();
      assert.deepEqual(finished.mock.calls.map(({ arguments: [, ...told] }) => told), [[FAILED, failure]]);
    });
  }

  test('a seat is free also if the component is told of a failure it cannot take', async () => {
    const world = await World.make({ config: limit(1) });
    const info = { kind: 'stream', session: 'a', provider: 'box', model: 'm' } as const;
    const { id } = world.gate.startStream(info, true);
    assert.equal(world.occupancy, 1);
    world.gate.finish(id, 2, { code: 429 } as never);
    assert.equal(world.occupancy, 0);
  });

  for (const fault of ['throws', 'rejects'] as const) {
    test(`a backend that ${fault} when it is thrown into gives the seat back`, async () => {
      const world = await World.make({ config: limit(1) });
      const error = new Error('theirs');
      const off = world.ctx.on('llm/stream', () => ({
        [Symbol.asyncIterator]: () => ({
          next: () => Promise.resolve({ done: false, value: { type: 'text-delta', index: 0, text: '' } }),
          throw() {
            if (fault === 'throws') throw error;
            return Promise.reject(error);
          },
        }),
      }) as never);
      const iterator = world.stream('a')[Symbol.asyncIterator]();
      await iterator.next();
      assert.equal(world.occupancy, 1);
      await assert.rejects(Promise.resolve(iterator.throw?.(new Error('mine'))), error);
      assert.equal(world.occupancy, 0);
      off();
    });
  }

  for (const loading of [false, true]) {
    test(`a call that cannot be asked about rejects and leaves nothing behind${loading ? ', also after it waited for the component' : ''}`, async () => {
      const gate = new Gate(() => undefined, undefined, false, () => false);
      if (!loading) gate.release();
      const error = new Error('no such session');
      const { signal } = new AbortController();
      const stream = new GatedStream({
        gate, signal, provider: 'box', within: new AsyncLocalStorage(),
        start: () => { throw error; },
        next: () => assert.fail('the backend was reached'),
      });
      const step = stream.next();
      gate.release();
      await assert.rejects(step, error);
      assert.equal(getEventListeners(signal, 'abort').length, 0);
      assert.deepEqual(await stream.next(), { done: true, value: undefined });
    });
  }

  test('a consumer that breaks off closes the backend and gives the seat back', async () => {
    const world = await World.make({ config: limit(1) });
    world.backend.onCall = (call) => call.say('hello');
    for await (const _ of world.stream('a')) break;
    assert.equal(world.backend.open.length, 0);
    assert.equal(world.occupancy, 0);
  });

  test('a consumer that throws into the stream gives the seat back', async () => {
    const world = await World.make({ config: limit(1) });
    world.backend.onCall = (call) => call.say('hello');
    const iterator = world.stream('a')[Symbol.asyncIterator]();
    await iterator.next();
    await assert.rejects(iterator.throw?.(new Error('mine')) ?? Promise.resolve(), /mine/u);
    assert.equal(world.occupancy, 0);
  });

  test('a refusal is exactly one terminal chunk with the code', async () => {
    const world = await World.make({ config: limit(1, { maxQueued: 0 }) });
    world.read('a');
    await settled();
    const { chunks, done } = world.read('b');
    assert.equal(await done, undefined);
    assert.equal(chunks.length, 1);
    const { kind, code } = finish(chunks);
    assert.deepEqual({ kind, code }, { kind: 'error', code: 'GEN_CAPACITY_EXCEEDED' });
  });

  test('reasons distinguish a full line, a wait that ran out and a paused limit', async () => {
    const texts: string[] = [];
    for (const config of [limit(1, { maxQueued: 0 }), limit(1, { queueTimeoutMs: 5 }), limit(0, { queueTimeoutMs: 5 })]) {
      const world = await World.make({ config });
      world.read('a');
      const { chunks } = world.read('b');
      await settled();
      world.gate.advance(5);
      await settled();
      texts.push(finish(chunks).message ?? '');
    }
    assert.equal(new Set(texts).size, 3);
    for (const text of texts) assert.match(text, /box\/\*|box\/m/u);
  });

  test('B14 a wait that ran out quotes the numbers of now', async () => {
    const world = await World.make({ config: limit(5, { queueTimeoutMs: 1000 }) });
    for (let n = 0; n < 5; n += 1) world.read(`s${n}`);
    const late = world.read('late');
    await settled();
    await world.edit(limit(3, { queueTimeoutMs: 1000 }));
    world.backend.of('s0').end();
    await settled();
    world.gate.advance(1000);
    await settled();
    const { message } = finish(late.chunks);
    assert.match(message ?? '', /4 of 3|4\/3|\b4\b.*\b3\b|\b3\b.*\b4\b/u);
  });

  test('B14 a shortened timeout applies to those in line, counted from their arrival', async () => {
    const world = await World.make({ config: limit(1, { queueTimeoutMs: 60_000 }) });
    world.read('a');
    const b = world.read('b');
    await settled();
    world.gate.advance(5000);
    await world.edit(limit(1, { queueTimeoutMs: 4000 }));
    assert.equal(b.ended, true);
  });

  test('an abort while waiting rejects with the caller\'s own reason and leaves the line', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    const b = world.read('b');
    const c = world.read('c');
    await settled();
    const reason = new Error('changed my mind');
    b.controller.abort(reason);
    assert.equal(await b.done, reason);
    assert.deepEqual(b.chunks, []);
    assert.equal(world.waiting, 1);
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.sessions, ['c']);
    assert.equal(c.ended, false);
  });

  test('B12 a call that is aborted already takes no seat and reaches no backend, also when the line is full', async () => {
    const world = await World.make({ config: limit(1, { maxQueued: 0 }) });
    for (const busy of [false, true]) {
      if (busy) world.read('a');
      await settled();
      const reason = new Error('too late');
      assert.equal(await world.read('b', { signal: AbortSignal.abort(reason) }).done, reason);
      assert.equal(world.occupancy, busy ? 1 : 0);
    }
    assert.deepEqual(world.backend.calls.map(({ session }) => session), ['a']);
  });

  for (const waited of [false, true]) {
    test(`a late abort is the backend's affair and does nothing to the line${waited ? ', also after a wait' : ''}`, async () => {
      const world = await World.make({ config: limit(1) });
      if (waited) world.read('before');
      const a = world.read('a');
      world.read('b');
      await settled();
      if (waited) world.backend.of('before').end();
      await settled();
      // A backend that takes its time: until it has ended, it generates and its seat is held.
      const call = world.backend.of('a');
      call.deaf = true;
      a.controller.abort(new Error('late'));
      await settled();
      assert.deepEqual(world.backend.sessions, ['a']);
      assert.equal(world.occupancy, 1);
      call.fail(new Error('late'));
      await a.done;
      await settled();
      assert.deepEqual(world.backend.sessions, ['b']);
      assert.equal(finish(a.chunks).kind, 'aborted');
    });
  }

  test('an abort in the turn in which the line reaches the call gives the seat to the next', async () => {
    const world = await World.make({ config: limit(1) });
    const a = world.stream('a')[Symbol.asyncIterator]();
    const running = a.next();
    const b = world.read('b');
    world.read('c');
    await settled();
    // Freed, promised to b, and b aborted, all before b's own turn.
    world.backend.of('a').say('x');
    await running;
    const freed = a.return?.();
    await Promise.resolve().then(() => Promise.resolve());
    b.controller.abort(new Error('now'));
    await freed;
    await settled();
    assert.deepEqual(world.backend.sessions, ['c']);
    assert.equal(world.occupancy, 1);
  });

  test('thousands who wait on one signal leave together, each with its reason', async () => {
    const world = await World.make({ config: limit(1, { maxQueued: 5_000 }) });
    const controller = new AbortController();
    const { signal } = controller;
    world.read('runs');
    const waiting = Array.from({ length: 5_000 }, (_, n) => world.read(`s${n}`, { signal }));
    await settled();
    assert.equal(world.waiting, 5_000);
    assert.equal(getEventListeners(signal, 'abort').length, 1, 'one is heard by all of them');
    const reason = new Error('all of you');
    controller.abort(reason);
    const ends = await Promise.all(waiting.map(({ done }) => done));
    assert(ends.every((end) => end === reason));
    assert.equal(world.waiting, 0);
    assert.equal(getEventListeners(signal, 'abort').length, 0);
    assert.deepEqual(world.backend.sessions, ['runs']);
  });

  test('who walks away from a signal leaves the others who wait on it listening', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('runs');
    const controller = new AbortController();
    const { signal } = controller;
    const streams = ['a', 'b'].map((session) => world.stream(session, { signal })[Symbol.asyncIterator]());
    const [a, b] = streams.map((stream) => stream.next());
    await streams[0]?.return?.();
    assert.deepEqual(await a, { done: true, value: undefined });
    assert.equal(world.waiting, 1);
    controller.abort(new Error('enough'));
    await assert.rejects(b ?? assert.fail(), /enough/);
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  });

  suite('thousands who are let in at once', () => {
    const COUNT = 2_000;
    const crowd = async (config: object = {}) => {
      const world = await World.make({ config: limit(1, { maxQueued: COUNT, ...config }) });
      world.read('runs');
      const waiting = Array.from({ length: COUNT }, (_, n) => world.read(`s${n}`));
      await settled();
      assert.equal(world.waiting, COUNT);
      return { world, waiting, names: ['runs', ...waiting.map((_, n) => `s${n}`)] };
    };

    test('come to the backend turn by turn of the event loop, in their order, and count from the beginning', async () => {
      const { world, names } = await crowd();
      await world.edit(limit(COUNT + 1));
      assert.deepEqual([world.waiting, world.occupancy], [0, COUNT + 1], 'all have their seats');
      assert.ok(world.backend.calls.length < COUNT / 2);
      let most = 0;
      for (let before = world.backend.calls.length; before <= COUNT; before = world.backend.calls.length) {
        await setImmediate();
        assert.ok(world.backend.calls.length > before, 'every turn lets some of them in');
        most = Math.max(most, world.backend.calls.length - before);
      }
      assert.ok(most < 200, `${most} in one turn`);
      assert.deepEqual(world.backend.sessions, names);
    });

    test('may leave until then, and never get there', async () => {
      const { world, waiting, names } = await crowd();
      await world.edit(limit(COUNT + 1));
      const leaves = (n: number): boolean => n > COUNT / 2 && n % 3 === 0;
      for (const [n, { controller }] of waiting.entries()) if (leaves(n)) controller.abort();
      const others = names.filter((_, n) => !leaves(n - 1));
      assert.equal(world.occupancy, others.length, 'their seats are free at once');
      await until(() => world.backend.calls.length === others.length);
      assert.deepEqual(world.backend.sessions, others);
      assert.equal(world.waiting, 0);
    });

    test('are let go when the plugin goes, or stopped with the harness, all of them', async () => {
      const { world } = await crowd();
      await world.edit(limit(COUNT + 1));
      assert.ok(world.backend.calls.length < COUNT);
      await world.remove();
      await until(() => world.backend.calls.length === COUNT + 1);
      const { world: other, waiting } = await crowd();
      await other.edit(limit(COUNT + 1));
      const arrived = other.backend.calls.length;
      other.gate.cancel();
      await Promise.all(waiting.slice(arrived).map(({ done }) => done));
      assert.equal(other.backend.calls.length, arrived);
    });

    test('are refused turn by turn when their time is up', async () => {
      const { world, waiting } = await crowd({ queueTimeoutMs: 1_000 });
      world.gate.advance(1_000);
      assert.equal(world.waiting, 0);
      await settled();
      assert.ok(waiting.filter(({ ended }) => ended).length < COUNT / 2);
      const ends = await Promise.all(waiting.map(async ({ done, chunks }) => (await done, finish(chunks).code)));
      assert.ok(ends.every((code) => code === 'GEN_CAPACITY_EXCEEDED'));
      assert.deepEqual(world.backend.sessions, ['runs']);
    });
  });

  test('no listener stays on a signal that outlives its calls', async () => {
    const world = await World.make({ config: limit(1) });
    const { signal } = new AbortController();
    let listening = 0;
    const add = signal.addEventListener.bind(signal);
    const remove = signal.removeEventListener.bind(signal);
    signal.addEventListener = ((...args: Parameters<typeof add>) => ((listening += 1), add(...args))) as typeof add;
    signal.removeEventListener = ((...args: Parameters<typeof remove>) => ((listening -= 1), remove(...args))) as typeof remove;
    world.backend.onCall = (call) => call.end();
    await Promise.all(Array.from({ length: 100 }, (_, n) => world.read(`s${n}`, { signal }).done));
    assert.equal(listening, 0);
  });

  test('B12 a consumer that walks away while waiting settles at once and frees its place', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    await settled();
    const iterator = world.stream('b')[Symbol.asyncIterator]();
    const step = iterator.next();
    await settled();
    assert.equal(world.waiting, 1);
    assert.deepEqual(await iterator.return?.(), { done: true, value: undefined });
    assert.deepEqual(await step, { done: true, value: undefined });
    assert.equal(world.waiting, 0);
    world.backend.of('a').end();
    await settled();
    assert.equal(world.backend.calls.length, 1, 'the backend is never called');
  });

  test('B12 behind another plugin\'s generator the return is queued, the signal works at once', async () => {
    const world = await World.make({ config: limit(1) });
    // Mounted later and in front of ours: what the harness cannot keep a plugin from.
    const off = world.ctx.on('llm/stream', async function* (_options, next) {
      yield* next();
    }, { prepend: true, global: true });
    world.read('a');
    await settled();
    const controller = new AbortController();
    const iterator = world.stream('b', { signal: controller.signal })[Symbol.asyncIterator]();
    const step = iterator.next();
    step.catch(() => undefined);
    await settled();
    let returned = false;
    void iterator.return?.().then(() => (returned = true));
    await settled();
    assert.equal(returned, false);
    controller.abort(new Error('stop'));
    await assert.rejects(step, /stop/u);
    await settled();
    assert.deepEqual({ returned, waiting: world.waiting }, { returned: true, waiting: 0 });
    off();
  });

  test('a withdrawn call never starts', async () => {
    const world = await World.make({ config: limit(1) });
    world.read('a');
    const gone = Array.from({ length: 10 }, (_, n) => world.read(`gone${n}`));
    world.read('last');
    await settled();
    for (const { controller } of gone) controller.abort(new Error('gone'));
    world.backend.of('a').end();
    await settled();
    assert.deepEqual(world.backend.calls.map(({ session }) => session), ['a', 'last']);
  });

  test('a stream closed from another task gives its seat back: the id decides', async () => {
    const world = await World.make({ config: limit(1) });
    world.backend.onCall = (call) => call.say('x');
    // A task that began before the stream did, and knows nothing of it.
    const other = new AsyncResource('another task');
    const iterator = world.stream('a')[Symbol.asyncIterator]();
    await iterator.next();
    assert.equal(world.occupancy, 1);
    await other.runInAsyncScope(() => iterator.return?.());
    assert.equal(world.occupancy, 0);
  });

  test('ending a stream twice frees one seat', async () => {
    const world = await World.make({ config: limit(2) });
    world.backend.onCall = (call) => call.say('x');
    const [a, again] = [world.stream('a')[Symbol.asyncIterator](), world.stream('a')[Symbol.asyncIterator]()];
    await Promise.all([a.next(), again.next()]);
    world.read('b');
    await settled();
    await a.return?.();
    await a.return?.();
    assert.equal(world.occupancy, 2, 'the other stream of the session still holds its seat');
    await again.return?.();
    assert.equal(world.occupancy, 1);
  });

  test('B16 ids with control characters or leading blanks never share a key with another route', async () => {
    const limits = [{ provider: 'box', model: 'm', max: 1 }];
    const world = await World.make({ config: { limits } });
    for (const model of ['m', 'm\u0000', 'm\u0000x', ` ${'m'.repeat(5000)}`, 'm'.repeat(5000)]) world.read(`of ${model}`, { model });
    await settled();
    assert.equal(world.backend.open.length, 5);
    world.read('second', { model: 'm' });
    await settled();
    assert.equal(world.backend.open.length, 5);
    assert.equal(world.waiting, 1);
  });

  test('B7 a stream that awaits another session\'s stream ends by its timeout, the text naming the holder', async () => {
    const world = await World.make({ config: limit(1, { queueTimeoutMs: 1000 }) });
    let inner: StreamChunk[] | undefined;
    const off = world.ctx.on('llm/stream', (options, next) => {
      if (options.sessionId !== ('outer' as never)) return next();
      return (async function* () {
        inner = [];
        for await (const chunk of world.stream('inner')) inner.push(chunk);
        yield* next();
      })();
    });
    world.read('outer');
    await settled();
    world.gate.advance(1000);
    await settled();
    const { code, message } = finish(inner ?? []);
    assert.equal(code, 'GEN_CAPACITY_EXCEEDED');
    assert.match(message ?? '', /outer/u);
    assert.deepEqual(world.backend.sessions, ['outer']);
    off();
  });

  for (const step of ['first', 'later'] as const) {
    test(`B7 with timeout 0 a nested call that waits at a ${step} step is warned of, naming holder and waiter`, async () => {
      const world = await World.make({ config: limit(1, { queueTimeoutMs: 0 }) });
      const off = world.ctx.on('llm/stream', (options, next) => {
        if (options.sessionId !== ('outer' as never)) return next();
        return (async function* () {
          if (step === 'later') yield { type: 'text-delta', index: 0, text: 'first' } as const;
          yield* world.stream('inner');
          yield* next();
        })();
      });
      const outer = world.read('outer');
      await settled();
      const warning = world.stderr.find((line) => line.includes('inner') && line.includes('outer'));
      assert.ok(warning, world.stderr.join(''));
      outer.controller.abort();
      off();
    });
  }
});
