/** What can be limited, by what the harness offers. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Catalog, Provider, Stats } from '../src/api.ts';
import { isOffered, optionOf, optionsOf, routeInUse, routeOfText } from '../src/offers.ts';
import type { Scope } from '../src/scopes.ts';
import { translate } from './words.ts';

const t = translate('en');

function provider(id: string, models: readonly string[], more: Partial<Provider> = {}): Provider {
  return { id, name: id, models: models.map((model) => ({ id: model, name: model })), ...more };
}

const EVERYTHING: Scope = { kind: 'everything' };
const route = (of: string, model: string): Scope => ({ kind: 'route', provider: of, model });
const all = (of: string): Scope => ({ kind: 'provider', provider: of });

suite('the options', () => {
  const texts = (catalog: Catalog | undefined, language: 'en' | 'zh' = 'en'): string[] => optionsOf(catalog, translate(language)).map(({ text }) => text);

  test('are everything, then each provider before its models, in the order of the catalog', () => {
    const catalog = { providers: [provider('q', ['z', 'a']), provider('p', [])] };
    assert.deepEqual(texts(catalog), [t('scope.everything'), t('scope.provider', { provider: 'q' }), 'q/z', 'q/a', t('scope.provider', { provider: 'p' })]);
    assert.equal(texts(catalog, 'zh')[0], translate('zh')('scope.everything'));
  });

  test('are everything where no catalog is known', () => {
    for (const catalog of [undefined, { providers: [] }, { providers: [], error: 'none' }]) assert.deepEqual(texts(catalog), [t('scope.everything')]);
  });

  test('are found by their names as well, where those say more than the ids', () => {
    const models = [{ id: 'm', name: 'Model One' }, { id: 'n', name: 'n' }, { id: 'o', name: '' }];
    const options = optionsOf({ providers: [{ id: 'p', name: 'Provider', models }, { id: 'q', name: '', models: [] }] }, t);
    assert.deepEqual(options.map(({ also }) => also), [undefined, 'Provider', 'Model One', undefined, undefined, undefined]);
    assert.ok(options.every((option) => !('also' in option) || option.also !== undefined));
  });

  test('have keys that no two share, and scopes that say what is limited', () => {
    const options = optionsOf({ providers: [provider('p', ['a/b', '*']), provider('p/a', ['b'])] }, t);
    assert.equal(new Set(options.map(({ key }) => key)).size, options.length);
    assert.deepEqual(options.map(({ value }) => value), [EVERYTHING, all('p'), route('p', 'a/b'), route('p', '*'), all('p/a'), route('p/a', 'b')]);
    assert.deepEqual(optionOf({ kind: 'route', provider: 'p', model: 'a/b' }, t), { key: 'p/a%2Fb', text: 'p/a/b', value: route('p', 'a/b') });
  });
});

suite('what is written by hand', () => {
  const cases: ReadonlyArray<readonly [text: string, scope: Scope | undefined]> = [
    ['p/m', route('p', 'm')],
    ['  p / m  ', route('p', 'm')],
    ['p/vendor/m', route('p', 'vendor/m')],
    ['p/*', all('p')],
    ['p/m*', route('p', 'm*')],
    ['by hand/any model', route('by hand', 'any model')],
    ['', undefined],
    ['p', undefined],
    ['p/', undefined],
    ['p/ ', undefined],
    ['/m', undefined],
    [' /m', undefined],
    ['/', undefined],
    ['*', undefined],
    ['*/m', undefined],
    ['*/*', undefined],
  ];
  for (const [text, scope] of cases) {
    test(`${JSON.stringify(text)} is ${scope === undefined ? 'no route' : JSON.stringify(scope)}`, () => assert.deepEqual(routeOfText(text), scope));
  }
});

suite('what is not offered', () => {
  const catalog: Catalog = { providers: [provider('p', ['m']), provider('silent', [], { error: 'no list' }), provider('half', ['m'], { error: 'no more' })] };
  const cases: ReadonlyArray<readonly [what: string, scope: Scope, offered: boolean]> = [
    ['a model that is listed is offered', route('p', 'm'), true],
    ['one that is not listed is not', route('p', 'n'), false],
    ['nor is one by its beginning', route('p', ''), false],
    ['a provider that is listed is offered', all('p'), true],
    ['also one that cannot list its models', all('silent'), true],
    ['and it may have any model', route('silent', 'm'), true],
    ['besides those that it could list', route('half', 'n'), true],
    ['a provider that is not listed is not offered', all('q'), false],
    ['nor is any model of it', route('q', 'm'), false],
    ['everything always is', EVERYTHING, true],
    ['so is a group', { kind: 'group', name: 'q' }, true],
  ];
  for (const [what, scope, offered] of cases) test(what, () => assert.equal(isOffered(scope, catalog), offered));

  test('cannot be told without a catalog, or with one that failed', () => {
    for (const unknown of [undefined, { providers: [], error: 'none today' }, { ...catalog, error: 'not all' }]) {
      for (const [, scope] of cases) assert.ok(isOffered(scope, unknown), JSON.stringify(scope));
    }
  });
});

suite('the route to begin with', () => {
  const stats = (...entries: ReadonlyArray<readonly [model: string, active: number, waiting: number]>): Stats => ({
    now: 0,
    entries: entries.map(([model, active, waiting]) => ({ provider: 'busy', model, active, waiting })),
    host: { state: 'running' },
  });
  const standard = { provider: 'standard', model: 'usual' };
  const catalog: Catalog = { providers: [provider('empty', []), provider('p', ['first', 'second'])] };

  test('is the one that most generate on or wait for', () => {
    assert.deepEqual(routeInUse(stats(['a', 2, 0], ['b', 1, 2], ['c', 0, 1]), standard, catalog), route('busy', 'b'));
    assert.deepEqual(routeInUse(stats(['a', 0, 3], ['b', 2, 0]), undefined, undefined), route('busy', 'a'));
  });

  test('is of equals the first', () => {
    assert.deepEqual(routeInUse(stats(['a', 1, 1], ['b', 2, 0]), standard, catalog), route('busy', 'a'));
  });

  test('does not change the order of what it looks at', () => {
    const seen = stats(['a', 1, 0], ['b', 2, 0]);
    routeInUse(seen, standard, catalog);
    assert.deepEqual(seen.entries.map(({ model }) => model), ['a', 'b']);
  });

  test('is the standard of the harness where nobody is at work', () => {
    for (const idle of [stats(), undefined]) assert.deepEqual(routeInUse(idle, standard, catalog), route('standard', 'usual'));
  });

  test('is the first that is offered where there is no whole standard', () => {
    for (const none of [undefined, {}, { provider: 'standard' }, { model: 'usual' }, { provider: 1, model: 'usual' }, { provider: 'standard', model: null }]) {
      assert.deepEqual(routeInUse(stats(), none, catalog), route('p', 'first'));
    }
  });

  test('is none where there is nothing', () => {
    for (const nothing of [undefined, { providers: [] }, { providers: [provider('empty', [])] }]) assert.equal(routeInUse(undefined, undefined, nothing), undefined);
  });
});
