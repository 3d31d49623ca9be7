/** Who generates and who waits now, as the card tells it: in order, with the reason, and standing still under the mouse. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Locator } from 'playwright-core';

import { lasting } from '../../web/src/lines.ts';
import { milliseconds } from '../../web/src/units.ts';
import { type Dsh, limit, MODEL, OTHER, type Patch, PROVIDER } from '../e2e/dsh.ts';
import type { Script } from '../e2e/model-server.ts';
import { holding, Holds, type World } from '../e2e/scenario.ts';
import { children, fanOut, ROOT } from '../e2e/scripts.ts';
import { onPage, type Ui } from './browser.ts';
import { atWork, type Card, cardOf, change, ROUTE } from './card.ts';

/** For how long nothing is to happen. */
const WHILE_MS = 3_000;

/** What a session is called. */
function titled(tag: string): string {
  return `Title of ${tag}`;
}

/** Sessions by their tags, all of which have been named and have worked once: nothing of them waits but what they do next. */
interface Team {
  readonly ids: Readonly<Record<string, string>>;
  readonly holds: Holds;
  /** Has sessions work in turn: the first ones generate, up to so many, and the others wait. */
  work(tags: readonly string[], generate: number): Promise<void>;
}

/** Runs a test with a team of sessions, and a card; what is configured is so once the team is there. */
function among(tags: readonly string[], config: Patch, test: (world: World, dsh: Dsh, team: Team, card: Card) => Promise<void>): Promise<void> {
  const holds = new Holds();
  const script: Script = (arrival) => {
    if (arrival.purpose === 'title') return { text: titled(arrival.session) };
    return arrival.turn === 0 ? { text: 'done' } : holds.script(arrival);
  };
  return atWork({ script, config: { limits: [] } }, async (world, dsh) => {
    const { server, home } = world;
    const ids: Record<string, string> = {};
    for (const tag of tags) ids[tag] = await dsh.prompt(`[s:${tag}] begin`);
    const begun = (tag: string): boolean => server.completed(tag) && server.of(tag, 'title').some(({ outcome }) => outcome === 'completed');
    await server.until('the team', () => tags.every(begun));
    await home.traced('that nobody is at work', () => home.live().length === 0);
    await change(dsh, config);
    const work = async (at: readonly string[], generate: number): Promise<void> => {
      for (const [place, tag] of at.entries()) {
        await dsh.prompt(`[s:${tag}] work`, ids[tag]);
        if (place < generate) await server.until(`${tag} generates`, () => server.chatting.includes(tag));
        else await home.traced(`${tag} in line`, () => home.waiting().some(({ session }) => session === ids[tag]));
      }
    };
    await onPage(dsh, {}, async (ui) => test(world, dsh, { ids, holds, work }, await cardOf(ui)));
    await change(dsh, { limits: [] });
    for (const tag of tags) holds.release(tag);
    await server.until('the end', () => server.idle);
  });
}

/** Those who generate on a route. */
function holders({ view, ui }: Card, route = ROUTE): Locator {
  return view.getByRole('list', { name: ui.t('now.holders', { route }), exact: true }).getByRole('listitem');
}

/** Those who wait for a route. */
function waiters({ view, ui }: Card, route = ROUTE): Locator {
  return view.getByRole('list', { name: ui.t('now.waiters', { route }), exact: true }).getByRole('listitem');
}

/** Waits until each row has its parts, and there is no other. */
async function read(rows: Locator, ...parts: ReadonlyArray<ReadonlyArray<string | RegExp>>): Promise<void> {
  for (const [at, each] of parts.entries()) await each.reduce((row, hasText) => row.filter({ hasText }), rows.nth(at)).waitFor();
  await rows.nth(parts.length).waitFor({ state: 'detached' });
}

/** A text whose numbers are whatever they are. */
function some({ t }: Ui, word: Parameters<Ui['t']>[0], parameters: Readonly<Record<string, unknown>> = {}): RegExp {
  const text = t(word, { time: '\0', ...parameters });
  const time = `(?:${['unit.s', 'unit.min'].map((unit) => t(unit as 'unit.s', { n: '\\d+' })).join('|')})`;
  return new RegExp(text.replace(/[.*+?^$()|[\]\\{}]/gu, '\\$&').replace('\0', time), 'u');
}

/** A number or a time of the run. */
function total({ view, ui }: Card, word: Parameters<Ui['t']>[0]): Locator {
  return view.locator('.gl-now dl > div').filter({ has: ui.page.getByText(ui.t(word), { exact: true }) }).locator('dd');
}

interface Numbers {
  readonly scopes: ReadonlyArray<{ readonly scope: string; readonly meanCallMs: number | null }>;
  readonly totals: { readonly admitted: number; readonly waited: number; readonly refused: Readonly<Record<string, number>>; readonly cancelled: number };
}

async function stats(dsh: Dsh): Promise<Numbers> {
  return (await (await dsh.fetch('/api/dsh-gen-limit/stats')).json()) as Numbers;
}

test('of a busy route it is told who generates and who waits, in order, why and about how long; of the run, the numbers', () =>
  among(['A', 'B', 'C', 'D'], { ...limit(1), maxQueued: 2 }, async (world, dsh, { ids, holds, work }, card) => {
    const { server, home } = world;
    const { t } = card.ui;
    const why = t('reason.full', { scope: ROUTE, max: 1 });
    await card.says(t('now.idle'));
    const before = await stats(dsh);

    await work(['A', 'B', 'C'], 1);
    await read(holders(card), [titled('A'), some(card.ui, 'now.for')]);
    await read(waiters(card), [t('ordinal.one', { n: 1 }), titled('B'), some(card.ui, 'now.for'), why], [t('ordinal.two', { n: 2 }), titled('C'), some(card.ui, 'now.for'), why]);
    for (const part of [t('limits.occupancy', { occupancy: 1, max: 1 }), t('limits.waiting.other', { n: 2 }), some(card.ui, 'limits.oldest')]) {
      await card.line().getByRole('button').first().filter({ hasText: part }).waitFor();
    }
    await card.line().getByRole('img', { name: some(card.ui, 'now.spark', { name: ROUTE, generating: 1, waiting: 2 }) }).waitFor();
    await card.view.getByRole('img', { name: some(card.ui, 'now.spark', { name: t('now.whole'), generating: 1, waiting: 2 }) }).waitFor();
    assert.equal(await waiters(card).filter({ hasText: '≈' }).count(), 0, 'no call has ended under the limit');

    const d = await dsh.prompt('[s:D] work', ids['D']);
    await home.traced('refusal of D', (trace) => trace.some(({ session, result }) => session === d && result === 'refused'));
    holds.release('A');
    await server.until('B generates', () => server.chatting.join() === 'B');
    const mean = (await stats(dsh)).scopes.find(({ scope }) => scope === ROUTE)?.meanCallMs ?? 0;
    assert.ok(mean > 0);
    await read(holders(card), [titled('B')]);
    await read(waiters(card), [t('ordinal.one', { n: 1 }), titled('C'), why, '≈']);
    const [, start = ''] = new RegExp(t('now.estimate', { time: '(.+)' }), 'u').exec(await waiters(card).innerText()) ?? [];
    const startMs = milliseconds(start) ?? 0;
    assert.ok(startMs >= 1_000 && startMs <= Math.max(1_000, mean), `in ${start}, when B is through; calls have taken ${mean} ms`);
    await card.ui.shot('now');

    await dsh.call('session.cancel', { sessionId: ids['C'] });
    await waiters(card).first().waitFor({ state: 'detached' });
    const { totals } = await stats(dsh);
    const refused = home.trace().filter(({ result, reason }) => result === 'refused' && reason === 'queue-full').length;
    assert.deepEqual(
      [totals.admitted - before.totals.admitted, totals.waited, totals.refused, totals.cancelled],
      [2, 1, { ...before.totals.refused, queueFull: refused }, 1],
      'A and B began, B after a wait; D found the line full, C was given up',
    );
    await total(card, 'now.cancelled').getByText('1', { exact: true }).waitFor();
    assert.equal(await total(card, 'now.admitted').innerText(), String(server.streams.length), 'each of which the provider has seen');
    assert.equal(await total(card, 'now.waited').innerText(), '1');
    assert.equal(await total(card, 'now.refused').innerText(), `${refused} (${t('now.refused.queueFull', { n: refused })})`);
    const waited = home.trace().find(({ session, result, event }) => event === 'settled' && session === ids['B'] && result === 'admitted')?.waitedMs;
    assert.ok(waited !== undefined);
    assert.equal(await total(card, 'now.p50').innerText(), lasting(0, t), 'most waited for nothing');
    assert.equal(await total(card, 'now.p95').innerText(), lasting(waited, t), 'the one that waited');
  }));

test('the rows stand still under the mouse, and are what they are now without it', () =>
  among(['A', 'B', 'C', 'D', 'E'], limit(1), async ({ server, home }, dsh, { ids, holds, work }, card) => {
    const { t, page } = card.ui;
    await work(['A', 'B', 'C', 'D'], 1);
    await read(waiters(card), [titled('B')], [titled('C')], [titled('D')]);
    await waiters(card).nth(1).getByText(titled('C')).hover();

    await dsh.call('session.cancel', { sessionId: ids['B'] });
    await read(waiters(card), [titled('B'), t('now.gone')], [t('ordinal.one', { n: 1 }), titled('C')], [t('ordinal.two', { n: 2 }), titled('D')]);
    holds.release('A');
    await server.until('C generates', () => server.chatting.join() === 'C');
    await work(['E'], 0);
    await read(waiters(card), [titled('B'), t('now.gone')], [titled('C'), t('now.started')], [t('ordinal.one', { n: 1 }), titled('D')], [t('ordinal.two', { n: 2 }), titled('E')]);
    await read(holders(card), [titled('A'), t('now.gone')], [titled('C'), some(card.ui, 'now.for')]);
    for (const rows of [waiters(card).nth(0), waiters(card).nth(1), holders(card).nth(0)]) assert.notEqual(await rows.getAttribute('data-gone'), null);
    assert.equal(await waiters(card).nth(2).getAttribute('data-gone'), null);
    await card.polls(2);
    assert.equal(await waiters(card).count(), 4, 'for as long as the mouse is there');
    await card.ui.shot('now-held');

    await page.mouse.move(1, 1);
    await waiters(card).nth(2).waitFor({ state: 'detached' });
    await read(waiters(card), [t('ordinal.one', { n: 1 }), titled('D')], [t('ordinal.two', { n: 2 }), titled('E')]);
    await read(holders(card), [titled('C')]);

    // A route on which nobody is any more stays as well.
    await waiters(card).first().getByText(titled('D')).hover();
    await change(dsh, { limits: [] });
    for (const tag of ['C', 'D', 'E']) holds.release(tag);
    await server.until('the end', () => server.idle);
    await home.traced('that nobody is at work', () => home.live().length === 0);
    await card.line().getByRole('button').filter({ hasText: t('now.gone') }).first().waitFor();
    await page.mouse.move(1, 1);
    await card.line().waitFor({ state: 'detached' });
  }));

test('the rows are let go also where what was under the mouse goes with its row', () =>
  among(['A', 'B', 'C'], limit(1), async (_world, dsh, { ids, work }, card) => {
    const { t, page } = card.ui;
    await work(['A', 'B', 'C'], 1);
    await read(waiters(card), [titled('B')], [titled('C')]);
    await waiters(card).first().getByText(t('reason.full', { scope: ROUTE, max: 1 })).hover();
    await dsh.call('session.cancel', { sessionId: ids['B'] });
    await read(waiters(card), [titled('B'), t('now.gone')], [titled('C')]);
    await page.mouse.move(1, 1);
    await waiters(card).nth(1).waitFor({ state: 'detached' });
    await read(waiters(card), [t('ordinal.one', { n: 1 }), titled('C')]);
  }));

test('a route is folded and unfolded, by mouse and by keyboard, and stays as it was left', () =>
  among(['A', 'B'], limit(1), async (_world, dsh, { ids, work }, card) => {
    const { t, page } = card.ui;
    await work(['A', 'B'], 1);
    const head = card.line().getByRole('button').first();
    const expanded = (to: boolean): Promise<void> => card.line().locator(`button[aria-expanded="${to}"]`).first().waitFor();
    await read(waiters(card), [titled('B')]);

    await head.click();
    await expanded(false);
    await card.polls(1);
    await expanded(false);
    assert.equal(await waiters(card).count() + (await holders(card).count()), 0);
    const text = await head.innerText();
    for (const part of [ROUTE, t('limits.occupancy', { occupancy: 1, max: 1 }), t('limits.waiting.one', { n: 1 })]) assert.ok(text.includes(part), text);
    await head.click();
    await expanded(true);
    await read(waiters(card), [titled('B')]);

    await page.mouse.move(1, 1);
    await card.ui.navigation.focus();
    await card.ui.tabTo(head);
    for (const [key, to] of [['Enter', false], ['Enter', true], [' ', false], [' ', true]] as const) {
      await page.keyboard.press(key);
      await expanded(to);
      assert.ok(await head.evaluate((element) => element === document.activeElement), `the focus stays where it was pressed (${JSON.stringify(key)})`);
    }

    // Who is there with the keyboard is not moved under either.
    await dsh.call('session.cancel', { sessionId: ids['B'] });
    await read(waiters(card), [titled('B'), t('now.gone')]);
    await card.ui.navigation.focus();
    await waiters(card).first().waitFor({ state: 'detached' });
  }));

test('subagents are told as such, and the spawn in line by who spawns', () => {
  const holds = new Holds();
  const script = holding(holds, ({ purpose, session }) => (purpose === 'title' ? { text: titled(session) } : undefined));
  const team = fanOut({ n: 2, background: true }, script);
  return atWork({ script: (arrival) => (arrival.purpose === 'title' ? script(arrival) : team(arrival)), config: limit(1) }, async ({ server, home }, dsh) => {
    await dsh.prompt(`[s:${ROOT}] split this up`);
    await server.until('the first', () => server.chatting.join() === '01');
    await home.traced('the other in line', () => home.waiting('spawn').length === 1);
    await onPage(dsh, {}, async (ui) => {
      const card = await cardOf(ui);
      const { t } = ui;
      await read(holders(card).filter({ hasText: t('now.subagent') }), [/(?:child |s:)01/u, some(ui, 'now.for')]);
      await read(waiters(card), [t('ordinal.one', { n: 1 }), t('now.spawn', { session: titled(ROOT) }), t('reason.full', { scope: ROUTE, max: 1 })]);
      await ui.shot('now-spawns');
    });
    await change(dsh, { limits: [] });
    for (const tag of children(2)) holds.release(tag);
    await server.until('the end', () => children(2).every((tag) => server.completed(tag)));
  });
});

test('seats that are promised to subagents are counted, and named as what a spawn waits for', () => {
  // A tool that starts no subagent leaves the seat promised for as long as may be.
  const script: Script = ({ purpose, session, delegated }) => {
    if (purpose === 'title') return { text: titled(session) };
    return delegated ? { text: 'done' } : { calls: Array.from({ length: 3 }, () => ({ name: 'todo_write', arguments: { todos: [] } })) };
  };
  return atWork({ script, config: { ...limit(2), spawnTools: ['todo_write'], spawnGraceMs: 600_000 } }, async ({ server, home }, dsh) => {
    await dsh.prompt('[s:A] delegate');
    await home.traced('a spawn in line', () => home.waiting('spawn').length === 1);
    await onPage(dsh, {}, async (ui) => {
      const card = await cardOf(ui);
      await card.line().getByText(ui.t('now.credits.other', { n: 2 }), { exact: true }).waitFor();
      await read(waiters(card), [ui.t('ordinal.one', { n: 1 }), ui.t('now.spawn', { session: titled('A') }), ui.t('reason.credits', { scope: ROUTE })]);
      await change(dsh, { limits: [] });
      await server.until('the end', () => server.of('A', 'chat').length === 2 && server.completed('A'));
      // Nobody generates or waits there any more; what is promised is still told.
      await card.view.getByText(ui.t('now.credits.other', { n: 3 }), { exact: true }).waitFor();
    });
  });
});

test('stats are asked for once a second while somebody sees them, and else not at all', () =>
  atWork({ script: () => ({ text: 'done' }), config: { limits: [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model, max: 1 })) } }, (_world, dsh) =>
    onPage(dsh, {}, async (ui) => {
      const polls = (): readonly number[] => ui.asked.filter(({ path }) => path.startsWith('stats')).map(({ at }) => at);
      const silence = async (why: string): Promise<void> => {
        const before = ui.asked.length;
        await ui.page.waitForTimeout(WHILE_MS);
        assert.deepEqual(ui.asked.slice(before), [], why);
      };
      const rate = async (card: Card): Promise<void> => {
        const before = polls().length;
        await card.polls(4);
        const [first = 0, ...more] = polls().slice(before);
        const every = ((more.at(-1) ?? 0) - first) / more.length;
        assert.ok(every > 900 && every < 1_500, `one in ${every} ms`);
      };
      await silence('nothing of ours is open');
      const card = await cardOf(ui);
      await card.occupancy(0, 1);
      await rate(card);
      await ui.see('hidden');
      await silence('nobody sees the page');
      await ui.see('visible');
      await card.polls(1);
      // The sections stand beside each other.
      await ui.navigation.locator('..').getByRole('button').first().click();
      await card.view.locator('.gl').waitFor({ state: 'detached' });
      await silence('another section is chosen');
      await ui.navigation.click();
      await card.polls(1);
      await ui.page.keyboard.press('Escape');
      await ui.page.getByRole('dialog').waitFor({ state: 'detached' });
      await silence('Settings is closed');
      await (await cardOf(ui)).polls(1);
    })));
