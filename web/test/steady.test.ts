/** Lists that stand still while somebody is at them. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { MOST_GONE, first, steady, unfolded, type Row } from '../src/steady.ts';

const keyOf = (value: string): string => value.slice(0, 1);
const keys = (rows: ReadonlyArray<Row<string>>): string => rows.map(({ key, gone }) => (gone ? `(${key})` : key)).join('');

/** Shows lists one after the other, held or not. */
function shown(...steps: ReadonlyArray<readonly [now: string, held: boolean]>): string {
  let rows: ReadonlyArray<Row<string>> = [];
  for (const [now, held] of steps) rows = steady(rows, [...now], keyOf, held);
  return keys(rows);
}

suite('a steady list', () => {
  test('is what it is now while nobody holds it', () => {
    assert.equal(shown(['abc', false], ['cdb', false]), 'cdb');
  });

  test('keeps what goes in place while held, and puts what comes at the end', () => {
    assert.equal(shown(['abc', false], ['dcb', true]), '(a)bcd');
    assert.equal(shown(['abc', false], ['c', true], ['ec', true]), '(a)(b)ce');
  });

  test('takes back what comes back, where it was', () => {
    assert.equal(shown(['abc', false], ['bc', true], ['abc', true]), 'abc');
  });

  test('is settled when it is let go', () => {
    assert.equal(shown(['abc', false], ['d', true], ['d', false]), 'd');
  });

  test('shows the values of now, and the last ones of what has gone', () => {
    const before = steady([], ['a1', 'b1'], keyOf, false);
    const rows = steady(steady(before, ['b2'], keyOf, true), ['b3'], keyOf, true);
    assert.deepEqual(rows.map(({ value }) => value), ['a1', 'b3']);
  });

  test('is the same when the same is shown again', () => {
    const before = steady([], ['a', 'b', 'c'], keyOf, false);
    const once = steady(before, ['c', 'd'], keyOf, true);
    assert.deepEqual(steady(once, ['c', 'd'], keyOf, true), once);
  });

  test('names a key once, whatever comes', () => {
    assert.equal(shown(['aab', false]), 'ab');
    assert.equal(shown(['ab', true], ['bba', true]), 'ab');
  });

  test('lets the oldest go when too many are gone', () => {
    let rows: ReadonlyArray<Row<string>> = [];
    for (let n = 0; n < 3 * MOST_GONE; n += 1) rows = steady(rows, [`n${n}`], (value) => value, true);
    assert.equal(rows.length, MOST_GONE + 1);
    assert.equal(rows[0]?.key, `n${2 * MOST_GONE - 1}`);
  });
});

suite('the first of a list', () => {
  test('are so many that are there, and what is gone between them', () => {
    const rows = steady(steady([], [...'abcdef'], keyOf, false), [...'bdefg'], keyOf, true);
    assert.equal(keys(rows), '(a)b(c)defg');
    assert.equal(keys(first(rows, 2)), '(a)b(c)d');
    assert.equal(keys(first(rows, 9)), '(a)b(c)defg');
    assert.equal(keys(first(rows, 0)), '(a)');
  });
});

suite('routes', () => {
  const routes = (...names: string[]): Array<{ scope: string; waiting: number }> => names.map((name) => ({ scope: name.slice(0, 1), waiting: name.length - 1 }));
  const open = (map: ReadonlyMap<string, boolean>): string => [...map].filter(([, is]) => is).map(([scope]) => scope).sort().join('');

  test('are unfolded while there are few, those with a line first', () => {
    assert.equal(open(unfolded(new Map(), routes('a', 'b', 'c!', 'd!!'), 3)), 'acd');
    assert.equal(open(unfolded(new Map(), routes('a', 'b'), 3)), 'ab');
  });

  test('stay as they were when others come, or get a line', () => {
    const before = unfolded(new Map(), routes('c', 'd'), 2);
    assert.equal(open(unfolded(before, routes('a!', 'b!', 'c', 'd'), 2)), 'cd');
    const after = unfolded(unfolded(new Map(), routes('a', 'b', 'c'), 2), routes('a', 'b', 'c!'), 2);
    assert.equal(open(after), 'ab');
  });

  test('stay as somebody turned them, until they are busy no more', () => {
    const turned = new Map([['a', false], ['b', true], ['c', true]]);
    const after = unfolded(turned, routes('a', 'b', 'c'), 2);
    assert.equal(open(after), 'bc');
    assert.deepEqual([...unfolded(after, routes('b'), 2).keys()], ['b']);
    assert.equal(open(unfolded(unfolded(after, [], 2), routes('a'), 2)), 'a');
  });
});
