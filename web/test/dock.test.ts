/** What is told above a session's composer. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Stats, Waiter } from '../src/api.ts';
import { told } from '../src/own.ts';
import { translate } from './words.ts';

const t = translate('en');
type Blocked = NonNullable<Waiter['blockedBy']>;
let ids = 0;

function blocked(why: Blocked['why'], limit = 1): Blocked {
  return { scope: 'mock/mock-1', why, limit, occupancy: limit };
}

function waiter(more: Partial<Waiter> = {}): Waiter {
  ids += 1;
  return { id: ids, kind: 'stream', session: 'me', provider: 'mock', model: 'mock-1', position: 2, waitedMs: 14_400, blockedBy: blocked('full'), ...more };
}

function of(...waiters: Waiter[]): Stats {
  return { entries: [], waiters, host: { state: 'running' } };
}

const text = (stats: Stats): string | undefined => told('me', stats, t)?.text;
/** A call of a subagent, of one of its own unless told otherwise. */
const child = (model: string, session = `child ${ids}`): Waiter => waiter({ session, parent: 'me', model });

suite('above the composer', () => {
  test('nothing is told of a session of which nothing waits', () => {
    assert.equal(told('me', { entries: [], host: { state: 'running' } }, t), undefined);
    assert.equal(told('me', of(), t), undefined);
  });

  test('a call of its own has route, place, time and limit', () => {
    assert.equal(text(of(waiter())), 'Waiting for mock/mock-1 · 2nd in line · 14 s · limit 1');
  });

  test('the one that waits longest is told of', () => {
    assert.match(text(of(waiter({ waitedMs: 20_000, position: 1 }), waiter())) ?? '', /1st in line · 20 s/u);
  });

  test('what is no full limit is told of in other words', () => {
    const last = (why: Blocked['why'], limit = 1): string | undefined => text(of(waiter({ blockedBy: blocked(why, limit) })))?.split(' · ').at(-1);
    assert.equal(last('paused', 0), 'paused');
    assert.equal(last('pool'), 'no seat from the pool of mock/mock-1');
    assert.equal(last('credits'), 'seats promised to spawned subagents, mock/mock-1');
    assert.equal(last('kept'), 'the last seat is kept for an older one, mock/mock-1');
    assert.equal(last('full', 0), 'paused', 'a limit of 0 is a pause, whatever it is called');
    assert.equal(last('asleep' as never), 'mock/mock-1 is full, limit 1', 'what a later version may have');
    assert.match(text(of(waiter({ blockedBy: null }))) ?? '', /· 14 s$/u);
  });

  test('spawns and calls of subagents are counted together', () => {
    const spawn = waiter({ kind: 'spawn' });
    assert.equal(text(of(spawn, child('mock-1'), child('mock-1'), child('mock-1'))), '4 subagents waiting in line for mock/mock-1');
    assert.equal(text(of(spawn)), '1 subagent waiting in line for mock/mock-1');
  });

  test('a subagent is one, however many calls it makes', () => {
    const [nameless, another] = [waiter({ session: null }), waiter({ session: null })];
    assert.equal(text(of(child('mock-1', 'a'), child('mock-1', 'b'), child('mock-1', 'a'), nameless, another)), '4 subagents waiting in line for mock/mock-1');
    assert.equal(text(of(child('x', 'a'), child('x', 'a'), child('y', 'b'), child('y', 'c'))), '2 subagents waiting in line for mock/y, and 1 more');
  });

  test('of several routes the one is named that most wait for', () => {
    assert.equal(text(of(child('a'), child('b'), child('b'), child('c'))), '2 subagents waiting in line for mock/b, and 2 more');
  });

  test('a call of its own and subagents are both told of', () => {
    assert.match(text(of(child('mock-1'), waiter())) ?? '', /^Waiting for mock\/mock-1 .* limit 1 · 1 subagent waiting in line for mock\/mock-1$/u);
  });

  test('what is announced changes with what waits for which route alone', () => {
    const first = told('me', of(waiter(), child('mock-1')), t);
    const later = told('me', of(waiter({ position: 1, waitedMs: 99_000 }), child('mock-1'), child('mock-1')), t);
    assert.notEqual(first?.text, later?.text);
    assert.equal(first?.announced, later?.announced);
    assert.doesNotMatch(first?.announced ?? '', /\d+ s|\dst|\dnd/u);
    assert.notEqual(told('me', of(child('mock-1')), t)?.announced, first?.announced);
  });

  test('it is told in both languages', () => {
    assert.equal(told('me', of(waiter()), translate('zh'))?.text, '正在等待 mock/mock-1 · 排在第 2 位 · 14 秒 · 上限 1');
  });
});
