/** Durations and numbers as people write them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { about, exactly, integer, milliseconds } from '../src/units.ts';
import { translate } from './words.ts';

describe('a duration', () => {
  for (const language of ['en', 'zh'] as const) {
    test(`written in ${language} is read as the same`, () => {
      const t = translate(language);
      const durations = [1, 999, 1_000, 1_500, 59_000, 60_000, 90_000, 120_000, 3_600_000, 5_400_000, 86_400_000, 30 * 86_400_000, 2 ** 31, 9_999_999_999, Number.MAX_SAFE_INTEGER];
      for (const ms of durations) assert.equal(milliseconds(exactly(ms, t)), ms, exactly(ms, t));
      assert.equal(milliseconds(exactly(0, t)), 0);
    });
  }

  test('is read however a person writes it, a number alone as seconds', () => {
    const read = { '90': 90_000, '0': 0, '90s': 90_000, '2 min': 120_000, '2m': 120_000, '1 h 30 min': 5_400_000, '1h30m': 5_400_000, '1.5 h': 5_400_000, '500 ms': 500, ' 2 MIN ': 120_000, '2 分钟': 120_000, '1小时30分': 5_400_000, '3 hours': 10_800_000 };
    for (const [text, ms] of Object.entries(read)) assert.equal(milliseconds(text), ms, text);
  });

  test('is nothing where the text is none', () => {
    for (const text of ['', ' ', 'abc', '-1', '2 x', 'min', '1e3', '2 min x', '0x10', 'NaN', '1 2', '999999999999999999 d']) {
      assert.equal(milliseconds(text), undefined, text);
    }
  });

  test('is told about in its two greatest units', () => {
    const t = translate('en');
    const told = { 0: '0 s', 999: '0 s', 14_900: '14 s', 60_000: '1 min', 61_000: '1 min 1 s', 3_600_000: '1 h', 3_660_000: '1 h 1 min', 90_000_000: '1 d 1 h' };
    for (const [ms, text] of Object.entries(told)) assert.equal(about(Number(ms), t), text);
  });
});

test('a number is whole and within its bounds, or nothing', () => {
  for (const text of ['', 'abc', '2 sessions', '1e400', '0.4', '-0.2', '-1', '0x10', '0', '4294967296', '１']) assert.equal(integer(text, 1, 4_294_967_295), undefined, text);
  assert.equal(integer(' 12 ', 1, 4_294_967_295), 12);
  assert.equal(integer('4294967295', 1, 4_294_967_295), 4_294_967_295);
});
