/** What people call sessions, asked for now and then. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Stats } from '../src/api.ts';
import { GOOD_MS, Names, STRANGE_MS } from '../src/names.ts';

function of(...sessions: ReadonlyArray<readonly [session: string | null, label?: string]>): Stats {
  const holders = sessions.map(([session, label]) => ({ session, provider: 'p', model: 'm', calls: 1, heldMs: 0, ...(label !== undefined && { label, parent: 'x' }) }));
  return { entries: [], holders, waiters: [], host: { state: 'running' } };
}

const labels = (stats: Stats): Array<string | undefined> => (stats.holders ?? []).map(({ label }) => label);

suite('names', () => {
  test('are asked for at first, and kept until they are old', () => {
    const names = new Names();
    assert.ok(names.due(0));
    names.note(of(['a', 'Mend the fence'], [null]), true, 0);
    assert.ok(!names.due(GOOD_MS - 1));
    const later = names.note(of(['a'], [null]), false, 1_000);
    assert.deepEqual([labels(later), later.holders?.[0]?.parent], [['Mend the fence', undefined], 'x']);
    assert.ok(!names.due(GOOD_MS - 1), 'a call without a session has no name to ask for');
    assert.ok(names.due(GOOD_MS));
  });

  test('are asked for sooner where somebody is new, and of nobody who has none again and again', () => {
    const names = new Names();
    names.note(of(['a', 'A']), true, 0);
    assert.deepEqual(labels(names.note(of(['a'], ['b']), false, 1_000)), ['A', undefined]);
    assert.ok(!names.due(STRANGE_MS - 1));
    assert.ok(names.due(STRANGE_MS));
    names.note(of(['a', 'A'], ['b']), true, STRANGE_MS);
    names.note(of(['a'], ['b']), false, STRANGE_MS + 1_000);
    assert.ok(!names.due(STRANGE_MS + GOOD_MS - 1));
  });

  test('change nothing else of an answer, and survive a clock that is set back', () => {
    const names = new Names();
    names.note(of(['a', 'A']), true, 1_000_000);
    const bare: Stats = { entries: [], host: { state: 'failed-open' } };
    assert.deepEqual(names.note(bare, false, 1_000_001), { ...bare, holders: [], waiters: [] });
    assert.ok(names.due(0));
  });
});
