/** What a limit was before its pause is known again, or it is not known; nothing breaks by it. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { recall, remember } from '../src/paused.ts';

/** What a page has of a storage, or takes away. */
class PageStorage {
  readonly kept = new Map<string, string>();

  getItem(key: string): string | null {
    return this.kept.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    this.kept.set(key, value);
  }

  removeItem(key: string): void {
    this.kept.delete(key);
  }
}

/** Has the page this storage. */
function stored(get: () => unknown): void {
  Object.defineProperty(globalThis, 'localStorage', { configurable: true, get });
}

const before = Object.getOwnPropertyDescriptor(globalThis, 'localStorage');

suite('a limit before its pause', () => {
  let storage: PageStorage;

  beforeEach(() => {
    storage = new PageStorage();
    stored(() => storage);
  });

  afterEach(() => {
    if (before === undefined) delete (globalThis as { localStorage?: unknown }).localStorage;
    else Object.defineProperty(globalThis, 'localStorage', before);
  });

  test('is not known before it was remembered', () => {
    assert.equal(recall('p/m'), undefined);
  });

  test('is what was remembered last', () => {
    for (const max of [3, 1, 4_294_967_295]) {
      remember('p/m', max);
      assert.equal(recall('p/m'), max);
    }
  });

  test('is one of its scope alone', () => {
    remember('p/m', 3);
    remember('@p/m', 4);
    assert.deepEqual(['p/m', '@p/m', 'p/*', 'p', ''].map(recall), [3, 4, undefined, undefined, undefined]);
  });

  test('is kept under a name of ours, beside what others keep', () => {
    storage.setItem('p/m', '7');
    assert.equal(recall('p/m'), undefined);
    remember('p/m', 3);
    assert.equal(storage.getItem('p/m'), '7');
    assert.ok([...storage.kept.keys()].every((key) => key === 'p/m' || key.startsWith('dsh-gen-limit:')));
  });

  test('is no number that no limit is', () => {
    remember('p/m', 3);
    const [key = ''] = storage.kept.keys();
    for (const text of ['', ' ', '0', '-1', '1.5', 'abc', 'NaN', 'Infinity', '9007199254740993', 'null', '{"max":3}']) {
      storage.setItem(key, text);
      assert.equal(recall('p/m'), undefined, JSON.stringify(text));
    }
  });

  test('is not known, and hinders nobody, where a page may keep nothing', () => {
    const refuses = (): never => {
      throw new DOMException('denied', 'SecurityError');
    };
    for (const get of [() => undefined, () => null, refuses, () => ({ getItem: refuses, setItem: refuses, removeItem: refuses })]) {
      stored(get);
      remember('p/m', 3);
      assert.equal(recall('p/m'), undefined);
    }
  });
});
