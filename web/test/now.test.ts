/** What is said of lines. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Holder, ScopeStats, Stats, Waiter } from '../src/api.ts';
import { fate, grouped, lasting, linesOf, reason, routeName, sessionName, startsIn } from '../src/lines.ts';
import { translate } from './words.ts';

const t = translate('en');
let ids = 0;

function holder(more: Partial<Holder> = {}): Holder {
  return { session: 's', provider: 'p', model: 'm', calls: 1, heldMs: 0, ...more };
}

type Blocked = NonNullable<Waiter['blockedBy']>;

function blocked(why: Blocked['why'], limit = 1, scope = 'p/m'): Blocked {
  return { scope, why, limit, occupancy: limit };
}

function waiter(more: Partial<Waiter> = {}): Waiter {
  ids += 1;
  return { id: ids, kind: 'stream', session: 's', provider: 'p', model: 'm', position: 1, waitedMs: 0, blockedBy: blocked('full'), ...more };
}

function scope(text: string, more: Partial<ScopeStats> = {}): ScopeStats {
  const totals = { admitted: 0, waited: 0, refused: { queueFull: 0, queueTimeout: 0, paused: 0, noPoolSeat: 0, other: 0 }, cancelled: 0 };
  return { scope: text, configured: true, max: 1, occupancy: 0, credits: 0, waiting: 0, oldestWaitMs: null, waitMs: null, meanCallMs: null, totals, ...more };
}

function stats(more: Partial<Stats>): Stats {
  return { now: 1_000, entries: [], host: { state: 'running' }, ...more };
}

suite('lines', () => {
  test('have those of their route alone, in the order of stats', () => {
    const entries = [{ provider: 'p', model: 'm', active: 1, waiting: 1 }, { provider: 'p', model: 'n/1', active: 0, waiting: 1 }];
    const [first, second] = linesOf(stats({ entries, holders: [holder()], waiters: [waiter(), waiter({ model: 'n/1' })], scopes: [scope('p/n%2F1')] }));
    assert.deepEqual([first?.scope, first?.holders.length, first?.waiters.length, first?.numbers], ['p/m', 1, 1, undefined]);
    assert.deepEqual([second?.scope, second?.holders.length, second?.waiters.length, second?.numbers?.max], ['p/n%2F1', 0, 1, 1]);
    assert.equal(routeName(second?.scope ?? ''), 'p/n/1');
  });

  test('name calls without a session by when they began, so that each keeps its name', () => {
    const entries = [{ provider: 'p', model: 'm', active: 3, waiting: 0 }];
    const keys = (now: number, ...began: number[]): string[] => {
      const holders = began.map((at) => holder({ session: null, heldMs: now - at }));
      return linesOf(stats({ now, entries, holders })).flatMap((line) => line.holders.map(({ key }) => key));
    };
    const before = keys(1_000, 100, 100, 300);
    assert.equal(new Set(before).size, 3);
    assert.deepEqual(keys(2_000, 100, 100, 300), before);
    assert.deepEqual(keys(2_000, 100, 300), [before[0], before[2]]);
  });

  test('say of a call in line no more that it started where its session generates', () => {
    const [line] = linesOf(stats({ entries: [{ provider: 'p', model: 'm', active: 1, waiting: 0 }], holders: [holder({ session: 'a' }), holder({ session: null })] }));
    assert.ok(line);
    assert.equal(fate(waiter({ session: 'a' }), line), 'now.started');
    for (const gone of [waiter({ session: 'b' }), waiter({ session: null }), waiter({ session: 'a', kind: 'spawn' })]) assert.equal(fate(gone, line), 'now.gone');
  });
});

suite('the estimated start', () => {
  const starts = (waiters: readonly Waiter[], ...scopes: readonly ScopeStats[]): Array<number | undefined> => {
    const found = startsIn(stats({ waiters, scopes }));
    return waiters.map(({ id }) => found.get(id));
  };

  test('is as many calls away as the limit lets through at once', () => {
    const line = (limit: number): Waiter[] => [1, 2, 3, 4].map((position) => waiter({ position, blockedBy: blocked('full', limit) }));
    const mean = scope('p/m', { meanCallMs: 10_000 });
    assert.deepEqual(starts(line(1), mean), [10_000, 20_000, 30_000, 40_000]);
    assert.deepEqual(starts(line(2), mean), [10_000, 10_000, 20_000, 20_000]);
  });

  test('is the sooner the longer those who generate have been at it', () => {
    const waiters = [1, 2, 3, 4].map((position) => waiter({ position, blockedBy: blocked('full', 2) }));
    const of = (...heldMs: number[]): Array<number | undefined> => {
      const found = startsIn(stats({ waiters, scopes: [scope('p/m', { meanCallMs: 10_000 })], holders: [holder({ model: 'other' }), ...heldMs.toSorted((a, b) => b - a).map((held) => holder({ heldMs: held }))] }));
      return waiters.map(({ id }) => found.get(id));
    };
    assert.deepEqual(of(2_000, 7_000), [3_000, 8_000, 13_000, 18_000]);
    assert.deepEqual(of(60_000, 60_000), [0, 0, 10_000, 10_000], 'longer than usual: any time now');
    assert.deepEqual(of(9_000, 5_000, 1_000), [5_000, 9_000, 15_000, 19_000], 'of three at a limit of two, two have to end first');
    const wide = waiter({ blockedBy: blocked('full', 1, 'p/*') });
    assert.equal(startsIn(stats({ waiters: [wide], scopes: [scope('p/*', { meanCallMs: 10_000 })], holders: [holder({ model: 'other', heldMs: 4_000 })] })).get(wide.id), 6_000);
  });

  test('counts those of other routes that wait for the same scope', () => {
    const blockedBy = blocked('full', 1, 'p/*');
    const line = [waiter({ blockedBy }), waiter({ model: 'n', blockedBy }), waiter({ position: 2, blockedBy })];
    assert.deepEqual(starts(line, scope('p/*', { meanCallMs: 1_000 })), [1_000, 2_000, 3_000]);
  });

  test('counts those that are not listed by the place in line', () => {
    assert.deepEqual(starts([waiter({ position: 40, blockedBy: blocked('full', 4) })], scope('p/m', { meanCallMs: 1_000 })), [10_000]);
  });

  test('is not given where nothing can be said', () => {
    assert.deepEqual(starts([waiter()], scope('p/m')), [undefined], 'no call has ended yet');
    assert.deepEqual(starts([waiter()]), [undefined], 'a scope that is not listed');
    assert.deepEqual(starts([waiter({ blockedBy: null })], scope('p/m', { meanCallMs: 1_000 })), [undefined]);
    assert.deepEqual(starts([waiter({ blockedBy: blocked('full', 0) })], scope('p/m', { meanCallMs: 1_000 })), [undefined]);
    for (const why of ['paused', 'pool'] as const) assert.deepEqual(starts([waiter({ blockedBy: blocked(why) })], scope('p/m', { meanCallMs: 1_000 })), [undefined]);
  });
});

suite('words', () => {
  test('a session has its title, else enough of its id to tell it from others; a call without one says so', () => {
    assert.equal(sessionName({ session: 'abc', label: 'Mend the fence' }, t), 'Mend the fence');
    assert.equal(sessionName({ session: 'abc', label: '' }, t), 'session abc');
    const [a, b] = ['019ad0c2-77a1-7000-8000-000000000001', '019ad0c2-77a1-7000-8000-000000000002'].map((session) => sessionName({ session }, t));
    assert.notEqual(a, b);
    assert.ok((a ?? '').length < 20);
    assert.equal(sessionName({ session: null }, t), 'a call without a session');
  });

  test('each reason names its scope as people do', () => {
    for (const why of ['full', 'paused', 'pool', 'credits', 'kept'] as const) {
      for (const language of ['en', 'zh'] as const) {
        const text = reason({ blockedBy: blocked(why, 2, '@night') }, translate(language));
        assert.match(text, /night/u, `${language} ${why}`);
        assert.doesNotMatch(text, /[@{}]/u, `${language} ${why}`);
      }
    }
    assert.match(reason({ blockedBy: blocked('full', 1_234) }, t), /p\/m is full, limit 1\u202f234/u);
    assert.equal(reason({ blockedBy: null }, t), 'starts next');
  });

  test('a reason that a later version may have is still one', () => {
    assert.equal(reason({ blockedBy: blocked('asleep' as never, 2) }, t), 'p/m is full, limit 2');
  });

  test('digits stand in groups of three', () => {
    assert.deepEqual([0, 999, 1_234, 200_000, 4_294_967_295].map(grouped), ['0', '999', '1\u202f234', '200\u202f000', '4\u202f294\u202f967\u202f295']);
  });

  test('milliseconds are told of what is shorter than a second', () => {
    assert.deepEqual([0, 939, 1_000, 90_500].map((ms) => lasting(ms, t)), ['0 s', '939 ms', '1 s', '1 min 30 s']);
  });
});
