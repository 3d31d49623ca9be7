/** The two languages say the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { DICTIONARIES, counted, ordinal, type Word } from '../src/words/index.ts';
import { translate } from './words.ts';

test('every word has the same parameters in both languages', () => {
  const parameters = (text: string): string[] => [...text.matchAll(/\{(\w+)\}/gu)].map(([, name]) => name ?? '').sort();
  for (const word of Object.keys(DICTIONARIES.en) as Word[]) {
    const [en, zh] = [parameters(DICTIONARIES.en[word]), parameters(DICTIONARIES.zh[word])];
    // A form for one thing may leave the number out.
    if (word.endsWith('.one')) assert.ok(en.every((name) => zh.includes(name)), word);
    else assert.deepEqual(en, zh, word);
  }
});

test('numbers of things and places in line have their forms', () => {
  const t = translate('en');
  assert.deepEqual([1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map((n) => ordinal(t, n)), ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '22nd', '101st', '111th']);
  assert.equal(ordinal(translate('zh'), 2), '第 2 位');
  assert.match(counted(t, 'now.credits', 1), /1 subagent let/);
  assert.match(counted(t, 'now.credits', 2), /2 subagents let/);
});
