/** What limits are on, as texts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { routeOf, scopeOfGroup, scopeOfLimit, scopeOfText, textOf, type Scope } from '../src/scopes.ts';

const SCOPES: readonly Scope[] = [
  { kind: 'everything' },
  ...['p', 'a/b', '100%', '@x', '%2F', 'ä', 'a@b'].flatMap((provider): Scope[] => [
    { kind: 'provider', provider },
    ...['m', 'a/b', '%', '@m', 'x*'].map((model): Scope => ({ kind: 'route', provider, model })),
    { kind: 'group', name: provider },
  ]),
  { kind: 'group', name: '*' },
];

test('every scope has a text of its own, and comes back from it', () => {
  assert.equal(new Set(SCOPES.map(textOf)).size, SCOPES.length);
  for (const scope of SCOPES) assert.deepEqual(scopeOfText(textOf(scope)), scope, textOf(scope));
});

test('the texts are those of stats', () => {
  const text = (provider: string, model: string): string => textOf(scopeOfLimit({ provider, model }) as Scope);
  assert.deepEqual([text('*', '*'), text('box', '*'), text('a/b', '@m%'), text(' box ', 'm')], ['*/*', 'box/*', 'a%2Fb/%40m%25', 'box/m']);
  assert.equal(textOf(scopeOfGroup({ name: '@a/b' }) as Scope), '@%40a%2Fb');
});

test('a row that does not say what it limits has no scope', () => {
  const rows: readonly object[] = [{}, { provider: 'p' }, { provider: 'p', model: '' }, { provider: ' ', model: 'm' }, { provider: '*', model: 'm' }, { provider: 1, model: 'm' }];
  for (const row of rows) assert.equal(scopeOfLimit(row), undefined, JSON.stringify(row));
  for (const scope of SCOPES) if (scope.kind !== 'group') assert.deepEqual(scopeOfLimit(routeOf(scope)), scope);
});
