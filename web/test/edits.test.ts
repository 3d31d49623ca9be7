/** What a person changes is stored, or the person is told; nobody's change is taken back unseen. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Failure, type Config, type Limit, type Section } from '../src/api.ts';
import { Edits, patchOf, placeOf, rowsOf, type Edit } from '../src/edits.ts';
import { same } from '../src/same.ts';

const row = (model: string, max: number): Limit => ({ provider: 'box', model, max });
const key = (model: string): string => `box/${model}`;
const put = (model: string, seen: number | undefined, want: number | undefined): Edit => ({
  in: 'limits',
  key: key(model),
  seen: seen === undefined ? undefined : row(model, seen),
  want: want === undefined ? undefined : row(model, want),
});

/** The settings of a harness, and the cards that look at them. */
class Host {
  value: Config;
  revision = 0;
  readonly written: Config[] = [];
  /** Answers with this instead. */
  failure: Failure | undefined;
  /** What it does not take. */
  refuses: (patch: Config) => boolean = () => false;

  constructor(value: Config) {
    this.value = value;
  }

  section(): Section {
    return { status: 'ok', value: this.value, writable: true, revision: String(this.revision), inForce: true, problems: [] };
  }

  async write(patch: Config, revision: string | null): Promise<Section> {
    await Promise.resolve();
    if (this.failure !== undefined) throw this.failure;
    if (revision !== String(this.revision)) throw new Failure('somebody else was quicker', 409, { section: this.section() });
    if (this.refuses(patch)) throw new Failure('not valid', 400);
    this.written.push(patch);
    this.value = { ...this.value, ...patch };
    this.revision += 1;
    return this.section();
  }

  /** A card, with what it has read last. */
  card(): { edits: Edits; read: () => void; settled: () => Promise<void> } {
    let known = this.section();
    const edits = new Edits({ section: () => known, know: (section) => (known = section), write: (patch, revision) => this.write(patch, revision) });
    const settled = async (): Promise<void> => {
      while ([...edits.get().values()].some(({ state }) => state === 'saving')) await new Promise((resolve) => edits.subscribe(() => resolve(undefined)));
    };
    return { edits, read: () => (known = this.section()), settled };
  }
}

/** Somebody who writes 7 where there was 1, and finds that somebody else has made it 5. */
async function overtaken(): Promise<{ host: Host; card: ReturnType<Host['card']>; becomes: (max: number) => void }> {
  const host = new Host({ limits: [row('a', 1)] });
  const card = host.card();
  const becomes = (max: number): void => {
    host.value = { limits: [row('a', max)] };
    card.read();
  };
  becomes(5);
  card.edits.submit(put('a', 1, 7));
  await card.settled();
  return { host, card, becomes };
}

const maxima = ({ value }: Host): Record<string, number> => Object.fromEntries((value.limits ?? []).map(({ model, max }) => [model, max]));

describe('edits', () => {
  test('a row is added, changed and removed; the others stay as they are', async () => {
    const host = new Host({ limits: [row('a', 1), { ...row('b', 2), pool: 'p' }] });
    const { edits, settled } = host.card();
    edits.submit(put('c', undefined, 3));
    await settled();
    edits.submit(put('a', 1, 5));
    await settled();
    edits.submit({ in: 'limits', key: key('b'), seen: { ...row('b', 2), pool: 'p' }, want: undefined });
    await settled();
    assert.deepEqual(host.value.limits, [row('a', 5), row('c', 3)]);
    assert.equal(edits.get().size, 0);
  });

  test('of two cards that add a row each, both rows survive', async () => {
    const host = new Host({ limits: [] });
    const [one, two] = [host.card(), host.card()];
    one.edits.submit(put('a', undefined, 1));
    two.edits.submit(put('b', undefined, 2));
    await Promise.all([one.settled(), two.settled()]);
    assert.deepEqual(maxima(host), { a: 1, b: 2 });
  });

  test('two who change the same row: the second is told, and decides', async () => {
    for (const decision of ['insist', 'discard'] as const) {
      const host = new Host({ limits: [row('a', 1)] });
      const [one, two] = [host.card(), host.card()];
      one.edits.submit(put('a', 1, 5));
      await one.settled();
      two.edits.submit(put('a', 1, 7));
      await two.settled();
      const place = placeOf(put('a', 1, 7));
      const pending = two.edits.get().get(place);
      assert.deepEqual([pending?.state, pending?.theirs, pending?.edit.want], ['conflict', row('a', 5), row('a', 7)]);
      assert.deepEqual(maxima(host), { a: 5 });
      two.edits[decision](place);
      await two.settled();
      assert.deepEqual([maxima(host), two.edits.get().size], [{ a: decision === 'insist' ? 7 : 5 }, 0]);
    }
  });

  test('a conflict is seen also by somebody who has read anew in between', async () => {
    const { host, card } = await overtaken();
    assert.equal(card.edits.get().get('limits:box/a')?.state, 'conflict');
    assert.deepEqual(host.written, []);
  });

  test('what is in conflict follows what is read: also its end', async () => {
    const { card, becomes } = await overtaken();
    becomes(6);
    card.edits.look();
    assert.deepEqual(card.edits.get().get('limits:box/a')?.theirs, row('a', 6));
    becomes(7);
    card.edits.look();
    assert.equal(card.edits.get().size, 0, 'somebody did it');
  });

  test('a conflict that ends because somebody took theirs back is stored after all', async () => {
    const { host, card, becomes } = await overtaken();
    becomes(1);
    card.edits.look();
    await card.settled();
    assert.deepEqual([maxima(host), card.edits.get().size], [{ a: 7 }, 0]);
  });

  test('one’s own write is nobody else’s, also where it is read before its answer comes', async () => {
    const host = new Host({ limits: [row('a', 1)] });
    const card = host.card();
    card.edits.submit(put('a', 1, 2));
    card.edits.submit(put('a', 2, 3));
    host.value = { limits: [row('a', 2)] };
    card.read();
    card.edits.look();
    assert.equal(card.edits.get().get('limits:box/a')?.state, 'saving');
    host.value = { limits: [row('a', 1)] };
    await card.settled();
    assert.deepEqual([maxima(host), card.edits.get().size], [{ a: 3 }, 0]);
  });

  test('one who changes what another removed is told', async () => {
    const host = new Host({ limits: [row('a', 1)] });
    const card = host.card();
    host.value = { limits: [] };
    host.revision += 1;
    card.edits.submit(put('a', 1, 7));
    await card.settled();
    const pending = card.edits.get().get('limits:box/a');
    assert.deepEqual([pending?.state, pending?.theirs], ['conflict', undefined]);
    card.edits.insist('limits:box/a');
    await card.settled();
    assert.deepEqual(maxima(host), { a: 7 });
  });

  test('what somebody else did the same way is no conflict', async () => {
    const host = new Host({ limits: [row('a', 1)] });
    const [one, two] = [host.card(), host.card()];
    one.edits.submit(put('a', 1, undefined));
    await one.settled();
    two.edits.submit(put('a', 1, undefined));
    await two.settled();
    assert.deepEqual([maxima(host), two.edits.get().size], [{}, 0]);
  });

  test('edits that come while one is written are written after it, in one go', async () => {
    const host = new Host({ limits: [row('a', 1)] });
    const { edits, settled } = host.card();
    edits.submit(put('a', 1, 2));
    edits.submit(put('a', 2, 3));
    edits.submit(put('b', undefined, 4));
    edits.submit({ in: 'fields', key: 'maxQueued', seen: undefined, want: 9 });
    await settled();
    assert.deepEqual(host.written.map((patch) => Object.keys(patch)), [['limits'], ['limits', 'maxQueued']]);
    assert.deepEqual([maxima(host), host.value.maxQueued, edits.get().size], [{ a: 3, b: 4 }, 9, 0]);
  });

  test('what could not be stored says why, and stays until it is tried again; nothing else takes it along', async () => {
    const host = new Host({ limits: [row('a', 1)] });
    const { edits, settled } = host.card();
    const problems = [{ path: 'limits[0].max', message: 'too much' }, { path: 'limits[1].max', message: 'too little' }];
    host.failure = new Failure('not valid', 400, { problems });
    edits.submit(put('a', 1, 2));
    edits.submit(put('b', undefined, 3));
    await settled();
    assert.equal(edits.get().get('limits:box/a')?.error, 'limits[0].max: too much');
    host.failure = undefined;
    edits.submit({ in: 'fields', key: 'maxQueued', seen: undefined, want: 9 });
    await settled();
    assert.deepEqual([maxima(host), host.value.maxQueued], [{ a: 1 }, 9]);
    assert.deepEqual([...edits.get().values()].map(({ state }) => state), ['failed', 'failed']);
    edits.again();
    await settled();
    assert.deepEqual([maxima(host), edits.get().size], [{ a: 2, b: 3 }, 0]);
  });

  test('what is taken back while something else is written is not stored', async () => {
    const host = new Host({ limits: [row('a', 1)] });
    const { edits, settled } = host.card();
    host.failure = new Failure('Failed to fetch');
    edits.submit(put('a', 1, 9));
    await settled();
    host.failure = undefined;
    edits.submit(put('b', undefined, 3));
    edits.discard('limits:box/a');
    await settled();
    assert.deepEqual([maxima(host), edits.get().size], [{ a: 1, b: 3 }, 0]);
  });

  test('whoever goes on editing while nothing can be stored is told of every edit', async () => {
    const host = new Host({ limits: [] });
    let next = 0;
    const edits: Edits = new Edits({
      section: () => host.section(),
      know: () => undefined,
      write: async () => {
        if (next < 10) edits.submit(put(`m${next++}`, undefined, 1));
        throw new Failure('signal timed out');
      },
    });
    edits.submit(put('first', undefined, 1));
    while ([...edits.get().values()].some(({ state }) => state === 'saving')) await new Promise((resolve) => edits.subscribe(() => resolve(undefined)));
    assert.deepEqual(new Set([...edits.get().values()].map(({ state }) => state)), new Set(['failed']));
    assert.equal(edits.get().size, 11);
  });

  test('who overrules somebody overrules what was seen of it, not what has come since', async () => {
    const { host, card, becomes } = await overtaken();
    becomes(6);
    card.edits.insist('limits:box/a');
    await card.settled();
    assert.deepEqual([maxima(host), card.edits.get().get('limits:box/a')?.theirs], [{ a: 6 }, row('a', 6)]);
    card.edits.insist('limits:box/a');
    await card.settled();
    assert.deepEqual(maxima(host), { a: 7 });
  });

  test('while nobody answers nothing is lost; trying again stores it', async () => {
    const host = new Host({ limits: [] });
    const { edits, settled } = host.card();
    host.failure = new Failure('Failed to fetch');
    edits.submit(put('a', undefined, 1));
    await settled();
    assert.deepEqual([edits.get().get('limits:box/a')?.state, edits.get().get('limits:box/a')?.error], ['failed', 'Failed to fetch']);
    host.failure = undefined;
    edits.again();
    await settled();
    assert.deepEqual(maxima(host), { a: 1 });
  });

  test('somebody who is always quicker stops nobody for ever', async () => {
    const host = new Host({ limits: [] });
    const { edits, settled } = host.card();
    host.failure = new Failure('quicker', 409, { section: host.section() });
    edits.submit(put('a', undefined, 1));
    await settled();
    assert.equal(edits.get().get('limits:box/a')?.state, 'failed');
  });
});

describe('rows', () => {
  test('each has a key of its own, whatever stands in it', () => {
    const limits: readonly unknown[] = [row('a', 1), row('a', 2), null, 'x', {}, { provider: 'p' }, row('b', 3)];
    const rows = rowsOf('limits', { limits } as Config);
    assert.equal(new Set(rows.map(({ key }) => key)).size, limits.length);
    assert.deepEqual(rows.map(({ index }) => index), limits.map((_, index) => index));
    assert.deepEqual(rowsOf('limits', { limits: 'many' } as unknown as Config), []);
  });

  test('a bad one can be removed and leaves the others', () => {
    const limits: readonly unknown[] = [row('a', 1), { provider: 'p' }, row('b', 3)];
    const bad = rowsOf('limits', { limits } as Config)[1];
    assert.ok(bad);
    const patch = patchOf({ limits } as Config, [{ in: 'limits', key: bad.key, seen: bad.row, want: undefined }]);
    assert.deepEqual(patch.limits, [row('a', 1), row('b', 3)]);
  });

  test('of several without a name each is removed or changed itself, whatever goes before it', () => {
    const limits: readonly unknown[] = [{ x: 0 }, null, row('a', 1), { x: 3 }, row('a', 2), 'x', row('a', 3)];
    const config = { limits } as Config;
    const wants = new Map<string, Limit | undefined>([['#0', undefined], ['#1', undefined], ['#3', row('d', 3)], ['#5', undefined], ['box/a#4', undefined], ['box/a#6', row('e', 4)], ['box/f', row('f', 5)]]);
    const rows = new Map(rowsOf('limits', config).map(({ key, row }) => [key, row]));
    const patch = patchOf(config, [...wants].map(([key, want]): Edit => ({ in: 'limits', key, seen: rows.get(key), want })));
    assert.deepEqual(patch, { limits: [row('a', 1), row('d', 3), row('e', 4), row('f', 5)] });
  });

  test('values are the same by what they say', () => {
    assert.ok(same({ a: 1, b: [1, { c: 2 }] }, { b: [1, { c: 2 }], a: 1 }));
    for (const other of [{ a: 1 }, { a: 1, b: [1] }, null, [], { a: 1, b: [1, { c: 3 }] }]) assert.ok(!same({ a: 1, b: [1, { c: 2 }] }, other));
  });
});
