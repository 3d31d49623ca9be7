/** Asks while somebody looks, and only then. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Poller, type World } from '../src/poller.ts';

/** A page with a clock that the test turns. */
class Page implements World {
  #now = 0;
  #timers: Array<{ at: number; run: () => void }> = [];
  #shown = true;
  readonly watchers = new Set<() => void>();

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run };
    this.#timers.push(timer);
    return () => (this.#timers = this.#timers.filter((one) => one !== timer));
  }

  visible(): boolean {
    return this.#shown;
  }

  onVisibility(changed: () => void): () => void {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  }

  show(shown: boolean): void {
    this.#shown = shown;
    for (const changed of this.watchers) changed();
  }

  /** Lets time pass, and everything happen that is due. */
  async pass(ms: number): Promise<void> {
    const until = this.#now + ms;
    for (;;) {
      await new Promise(setImmediate);
      const next = this.#timers.filter(({ at }) => at <= until).toSorted((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#now = next.at;
      this.#timers = this.#timers.filter((one) => one !== next);
      next.run();
    }
    this.#now = until;
    await new Promise(setImmediate);
  }

  get idle(): boolean {
    return this.#timers.length === 0;
  }
}

const looking = (): void => undefined;

describe('a poller', () => {
  test('asks once a second from the first look to the end of the last', async () => {
    const page = new Page();
    let asked = 0;
    const poller = new Poller(async () => (asked += 1), 1_000, page);
    await page.pass(5_000);
    assert.equal(asked, 0);
    const [leave, leaveToo] = [poller.subscribe(looking), poller.subscribe(() => undefined)];
    await page.pass(3_500);
    assert.equal(asked, 4, 'at once, and at each second');
    leave();
    await page.pass(1_000);
    assert.equal(asked, 5);
    leaveToo();
    await page.pass(10_000);
    assert.deepEqual([asked, page.idle, page.watchers.size], [5, true, 0]);
    assert.equal(poller.get().value, 5);
  });

  test('rests while the page is hidden, and asks at once when it is shown', async () => {
    const page = new Page();
    let asked = 0;
    const poller = new Poller(async () => (asked += 1), 1_000, page);
    poller.subscribe(looking);
    await page.pass(500);
    page.show(false);
    await page.pass(60_000);
    assert.equal(asked, 1);
    page.show(true);
    await page.pass(0);
    assert.equal(asked, 2);
  });

  test('waits for one answer at a time, and asks as soon as a late one is there', async () => {
    const page = new Page();
    const answers: Array<(value: number) => void> = [];
    const poller = new Poller(() => new Promise<number>((resolve) => answers.push(resolve)), 1_000, page);
    poller.subscribe(looking);
    await page.pass(5_000);
    assert.equal(answers.length, 1);
    answers[0]?.(1);
    await page.pass(0);
    assert.equal(answers.length, 2);
    assert.equal(poller.get().value, 1);
  });

  test('keeps what it knows when an answer fails, and says that it failed', async () => {
    const page = new Page();
    let failing = false;
    const poller = new Poller(async () => {
      if (failing) throw new Error('gone');
      return 'known';
    }, 1_000, page);
    poller.subscribe(looking);
    await page.pass(0);
    failing = true;
    await page.pass(1_000);
    assert.deepEqual([poller.get().value, poller.get().failure?.message], ['known', 'gone']);
    assert.equal(poller.answeredAt, 0, 'what is known is of then');
    failing = false;
    await page.pass(1_000);
    assert.deepEqual(poller.get(), { value: 'known' });
    assert.equal(poller.answeredAt, 2_000);
  });

  test('knows when it was answered last, by what is no news as well, and by whoever looked before', async () => {
    const page = new Page();
    const poller = new Poller(async () => 'the same', 1_000, page);
    poller.subscribe(looking)();
    assert.equal(poller.answeredAt, undefined);
    const leave = poller.subscribe(looking);
    await page.pass(2_500);
    leave();
    await page.pass(60_000);
    assert.equal(poller.answeredAt, 2_000);
  });

  test('what is known better is not undone by an answer that was under way, and it goes on asking', async () => {
    const page = new Page();
    const answers: Array<(value: string) => void> = [];
    const poller = new Poller(() => new Promise<string>((resolve) => answers.push(resolve)), 1_000, page);
    poller.subscribe(looking);
    await page.pass(1_500);
    poller.set('new');
    answers[0]?.('old');
    await page.pass(0);
    assert.equal(poller.get().value, 'new');
    assert.equal(answers.length, 2);
    answers[1]?.('newer');
    await page.pass(0);
    assert.equal(poller.get().value, 'newer');
  });
});
