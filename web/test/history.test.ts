/** What is remembered of occupancy and line. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Stats } from '../src/api.ts';
import { History, IDLE_MS, MOST_POINTS, paths } from '../src/history.ts';

/** Stats of routes of one provider: how many generate and wait, by model. */
function of(routes: Readonly<Record<string, readonly [active: number, waiting: number]>>): Stats {
  return {
    entries: Object.entries(routes).map(([model, [active, waiting]]) => ({ provider: 'p', model, active, waiting })),
    host: { state: 'running' },
  };
}

suite('a history', () => {
  test('tells of the whole and of each busy route, the oldest first', () => {
    const history = new History();
    history.note(of({ a: [1, 0], b: [2, 3] }), 1_000);
    history.note(of({ a: [1, 4] }), 2_000);
    assert.deepEqual(history.points(), [{ at: 1_000, occupancy: 3, waiting: 3 }, { at: 2_000, occupancy: 1, waiting: 4 }]);
    assert.deepEqual(history.points('p/b'), [{ at: 1_000, occupancy: 2, waiting: 3 }, { at: 2_000, occupancy: 0, waiting: 0 }]);
    assert.deepEqual(history.points('p/c'), []);
  });

  test('tells of wider scopes by their own numbers, and of the whole by those that are never cut', () => {
    const scope = { configured: true, max: 2, credits: 0, oldestWaitMs: null, waitMs: null, meanCallMs: null, totals: undefined as never };
    const history = new History();
    history.note({ ...of({ a: [1, 0] }), scopes: [{ ...scope, scope: 'p/*', occupancy: 2, waiting: 5 }], holdersTotal: 700, waitersTotal: 900 }, 1_000);
    assert.deepEqual(history.points('p/*'), [{ at: 1_000, occupancy: 2, waiting: 5 }]);
    assert.deepEqual(history.points(), [{ at: 1_000, occupancy: 700, waiting: 900 }]);
  });

  test('stays bounded and in order, reaches from the first second to this one, and its points stand evenly', () => {
    const history = new History();
    for (let second = 0; second < 20_000; second += 1) {
      history.note(of({ a: [second % 7, 1] }), second * 1_000);
      if (second % 997 !== 0) continue;
      const points = history.points('p/a');
      assert.ok(points.length <= MOST_POINTS);
      assert.equal(points[0]?.at, 0);
      assert.deepEqual(points.at(-1), { at: second * 1_000, occupancy: second % 7, waiting: 1 });
      const gaps = points.slice(1, -1).map(({ at }, index) => at - (points[index]?.at ?? 0));
      assert.ok(Math.min(...gaps) > 0);
      assert.ok(Math.max(...gaps) <= 2 * Math.min(...gaps), `between ${Math.min(...gaps)} and ${Math.max(...gaps)}`);
    }
    assert.ok(history.points('p/a').length > MOST_POINTS / 4);
  });

  test('forgets a route that has been idle for long, and not one that comes back before', () => {
    const history = new History();
    history.note(of({ a: [1, 0], b: [1, 0] }), 0);
    for (let at = 1_000; at < IDLE_MS; at += 1_000) history.note(of({}), at);
    history.note(of({ b: [1, 0] }), IDLE_MS - 1);
    history.note(of({}), IDLE_MS);
    assert.deepEqual(history.points('p/a'), []);
    assert.equal(history.points('p/b')[0]?.at, 0);
    assert.equal(history.points()[0]?.at, 0, 'the whole is never forgotten');
  });

  test('leaves out the time in which nobody looked', () => {
    const history = new History();
    for (const at of [0, 1_000, 3_600_000, 3_601_000]) history.note(of({ a: [1, at / 1_000] }), at);
    assert.deepEqual(history.points('p/a').map(({ at, waiting }) => [at, waiting]), [[0, 0], [1_000, 1], [1_000, 3_600], [2_000, 3_601]]);
  });

  test('begins anew when the clock was set back', () => {
    const history = new History();
    history.note(of({ a: [1, 0] }), 5_000);
    history.note(of({ a: [2, 0] }), 4_000);
    history.note(of({ a: [3, 0] }), 5_000);
    assert.deepEqual(history.points('p/a').map(({ at, occupancy }) => [at, occupancy]), [[4_000, 2], [5_000, 3]]);
  });

  test('gives the same array until more is noted, and never changes one that it gave', () => {
    const history = new History();
    history.note(of({ a: [1, 0] }), 0);
    const before = history.points('p/a');
    assert.equal(history.points('p/a'), before);
    history.note(of({ a: [1, 0] }), 1_000);
    assert.notEqual(history.points('p/a'), before);
    assert.equal(before.length, 1);
  });
});

suite('its picture', () => {
  test('has steps that hold until another number is seen, and reaches its edges', () => {
    const points = [[0, 2, 0], [10, 2, 4], [20, 1, 4]].map(([at = 0, occupancy = 0, waiting = 0]) => ({ at, occupancy, waiting }));
    assert.deepEqual(paths(points, 100, 20), { occupancy: 'M0 10H100V15H100', waiting: 'M0 20H50V0H100' });
  });

  test('is flat at the bottom where nobody was, and none without points', () => {
    assert.deepEqual(paths([{ at: 5, occupancy: 0, waiting: 0 }], 100, 20), { occupancy: 'M0 20H100', waiting: 'M0 20H100' });
    assert.equal(paths([], 100, 20).occupancy, '');
  });
});
