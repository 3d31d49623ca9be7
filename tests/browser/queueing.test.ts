/** What else there is to set: how long one waits, how many do, groups, and limits on what nobody offers. Each is stored as it is meant. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Locator } from 'playwright-core';

import { exactly } from '../../web/src/units.ts';
import { type Dsh, limit, MODEL, OTHER, PACKAGE, type Patch, PROBE, PROVIDER } from '../e2e/dsh.ts';
import { Holds } from '../e2e/scenario.ts';
import { onPage } from './browser.ts';
import { atWork, type Card, cardOf, change, limits, ROUTE } from './card.ts';

const OTHER_ROUTE = `${PROVIDER}/${OTHER}`;

/** The settings as the harness has them. */
async function stored(dsh: Dsh): Promise<Patch> {
  return ((await (await dsh.fetch('/api/dsh-gen-limit/config')).json()) as { value: Patch }).value;
}

/** A box by its name. */
function box(card: Card, name: string): Locator {
  return card.view.getByRole('textbox', { name, exact: true });
}

/** A choice by its name and what is chosen. */
function choice(card: Card, name: string, chosen: string): Locator {
  return card.view.getByRole('button', { name: `${name}: ${chosen}`, exact: true });
}

/** Waits until the page has written so often, and all of it is stored. */
async function written(card: Card, times: number): Promise<void> {
  await card.ui.until(`write ${times}`, () => card.ui.posts.length >= times);
  await card.saved();
  assert.equal(card.ui.posts.length, times, JSON.stringify(card.ui.posts));
}

/** Writes a text and finishes it. */
async function write(where: Locator, text: string): Promise<void> {
  await where.fill(text);
  await where.press('Enter');
}

/** Writes texts that mean nothing: it is said what would be right, and nothing is stored. */
async function refused(card: Card, where: Locator, texts: readonly string[], wrong: string): Promise<void> {
  const before = card.ui.posts.length;
  const was = await where.inputValue();
  for (const text of texts) {
    await where.fill(text);
    await card.says(wrong);
    await where.press('Enter');
    await where.blur();
    assert.equal(await where.inputValue(), text, 'it stays as it was written');
    await where.press('Escape');
    await card.hushes(wrong);
    assert.equal(await where.inputValue(), was);
  }
  await card.polls(1);
  assert.equal(card.ui.posts.length, before, `none of ${JSON.stringify(texts)} is written`);
}

test('how long one waits and how many do is written as people do, and in force at once', (t) => {
  const holds = new Holds();
  return atWork({ script: holds.script, config: limit(1) }, async ({ server, home }, dsh) => {
    await t.test('a duration is stored in milliseconds', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        const wait = box(card, ui.t('queueing.timeout'));
        assert.equal(await wait.inputValue(), exactly(120_000, ui.t), 'the standard, where nothing is set');
        const durations = [['90 s', 90_000], ['2 min', 120_000], ['1 h 30 min', 5_400_000], ['1.5 min', 90_000], ['45', 45_000], ['250ms', 250], ['0', 0]] as const;
        for (const [at, [text, ms]] of durations.entries()) {
          await wait.fill(text);
          await card.says(ui.t('limits.max.unsaved'));
          await wait.press('Enter');
          await written(card, at + 1);
          assert.equal((await stored(dsh))['queueTimeoutMs'], ms, text);
          assert.equal(await wait.inputValue(), exactly(ms, ui.t));
        }
        await write(wait, '0 min');
        await card.polls(1);
        await written(card, durations.length);
      }));

    await t.test('what is no duration writes nothing, and says what is right', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await refused(card, box(card, ui.t('queueing.timeout')), ['soon', '-1 s', '', '5 weeks'], ui.t('queueing.timeout.wrong'));
      }));

    await t.test('the line has its bounds', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        const line = box(card, ui.t('queueing.queued'));
        assert.equal(await line.inputValue(), '64', 'the standard, where nothing is set');
        await refused(card, line, ['200001', '-1', '1.5', ''], ui.t('limits.max.wrong', { least: 0, most: 200_000 }));
        for (const [at, n] of [200_000, 0].entries()) {
          await write(line, String(n));
          await written(card, at + 1);
          assert.equal((await stored(dsh))['maxQueued'], n);
          assert.equal(await line.inputValue(), String(n));
        }
      }));

    await t.test('whoever comes next is let in or refused by it', async () => {
      await change(dsh, { queueTimeoutMs: 120_000, maxQueued: 64 });
      await onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        const [wait, line] = [box(card, ui.t('queueing.timeout')), box(card, ui.t('queueing.queued'))];
        const refusal = (session: string, why: string): Promise<void> =>
          home.traced(`${why} of ${session}`, (trace) => trace.some((line) => line.session === session && line.result === 'refused' && line.reason === why));
        await dsh.prompt('[s:A] work');
        await server.until('A generates', () => server.chatting.includes('A'));
        await write(line, '0');
        await written(card, 1);
        await refusal(await dsh.prompt('[s:B] work'), 'queue-full');
        await write(line, '9');
        await written(card, 2);
        await write(wait, '300 ms');
        await written(card, 3);
        await refusal(await dsh.prompt('[s:C] work'), 'queue-timeout');
        await write(wait, '0');
        await written(card, 4);
        const d = await dsh.prompt('[s:D] work');
        await home.traced('D in line', () => home.waiting().some(({ session }) => session === d));
        holds.release('A');
        await server.until('D generates', () => server.chatting.includes('D'));
        assert.deepEqual(['B', 'C'].flatMap((tag) => server.of(tag)), []);
        holds.release('D');
        await server.until('the end', () => server.idle);
      });
    });

    await t.test('who is overtaken on it is asked, with both values', async () => {
      await change(dsh, { queueTimeoutMs: 120_000 });
      await onPage(dsh, {}, async (ui) => {
        ui.expect(/409/);
        const card = await cardOf(ui);
        const wait = box(card, ui.t('queueing.timeout'));
        for (const [mine, theirs, insist] of [[300_000, 60_000, true], [7_000, 90_000, false]] as const) {
          await wait.fill(exactly(mine, ui.t));
          await change(dsh, { queueTimeoutMs: theirs });
          await wait.press('Enter');
          await card.says(ui.t('conflict.set', { theirs: exactly(theirs, ui.t) }));
          assert.equal((await stored(dsh))['queueTimeoutMs'], theirs, 'nothing is taken back unseen');
          const decision = insist ? ui.t('conflict.mine', { mine: exactly(mine, ui.t) }) : ui.t('conflict.theirs', { theirs: exactly(theirs, ui.t) });
          await card.button(decision).click();
          await card.hushes(ui.t('conflict.set', { theirs: exactly(theirs, ui.t) }));
          await card.saved();
          const left = insist ? mine : theirs;
          assert.equal((await stored(dsh))['queueTimeoutMs'], left);
          assert.equal(await wait.inputValue(), exactly(left, ui.t));
        }
      });
    });
  });
});

test('what is rarely turned is stored as well, each by itself', () =>
  atWork({ script: () => ({ text: 'done' }), config: limit(1) }, async (_world, dsh) => {
    await onPage(dsh, {}, async (ui) => {
      const { t } = ui;
      const card = await cardOf(ui);
      assert.equal(await box(card, t('queueing.headStart')).isVisible(), false, 'it is not in the way');
      await card.view.getByText(t('queueing.advanced')).click();
      let times = 0;
      const stores = async (patch: Patch): Promise<void> => {
        times += 1;
        await written(card, times);
        const { revision: _revision, ...body } = ui.posts.at(-1)?.body as Patch;
        assert.deepEqual(body, patch);
        const now = await stored(dsh);
        for (const [key, value] of Object.entries(patch)) assert.deepEqual(now[key], value);
      };
      const numbers = [['queueing.waiting', 'maxWaiting', 1_000], ['queueing.headStart', 'headStart', 3], ['queueing.overtakes', 'maxOvertakes', 0], ['queueing.restarts', 'maxRestarts', 7]] as const;
      for (const [name, key, n] of numbers) {
        await write(box(card, t(name)), String(n));
        await stores({ [key]: n });
      }
      await write(box(card, t('queueing.grace')), '5 s');
      await stores({ spawnGraceMs: 5_000 });
      await write(box(card, t('queueing.tools')), ' subagent, todo_write，other ,');
      await stores({ spawnTools: ['subagent', 'todo_write', 'other'] });
      await choice(card, t('queueing.countBy'), t('queueing.countBy.session')).click();
      await card.view.getByRole('option', { name: t('queueing.countBy.stream'), exact: true }).click();
      await stores({ countBy: 'stream' });
      await choice(card, t('queueing.failure'), t('queueing.failure.open')).click();
      await card.view.getByRole('option', { name: t('queueing.failure.closed'), exact: true }).click();
      await stores({ onFailure: 'closed' });
    });
    await onPage(dsh, { locale: 'zh' }, async (ui) => {
      const { t } = ui;
      const card = await cardOf(ui);
      await card.view.getByText(t('queueing.advanced')).click();
      await choice(card, t('queueing.countBy'), t('queueing.countBy.stream')).waitFor();
      await choice(card, t('queueing.failure'), t('queueing.failure.closed')).waitFor();
      const shown = await Promise.all((['queueing.waiting', 'queueing.headStart', 'queueing.overtakes', 'queueing.restarts', 'queueing.grace', 'queueing.tools'] as const).map((name) => box(card, t(name)).inputValue()));
      assert.deepEqual(shown, ['1000', '3', '0', '7', exactly(5_000, t), 'subagent, todo_write, other']);
    });
  }));

test('a group is made of models, changed and removed, each at once', () =>
  atWork({ script: () => ({ text: 'done' }), config: { limits: [] } }, (_world, dsh) =>
    onPage(dsh, {}, async (ui) => {
      const { t } = ui;
      const card = await cardOf(ui);
      const scope = '@night shift';
      const name = t('scope.group', { name: 'night shift' });
      const [model, other] = [MODEL, OTHER].map((one) => ({ provider: PROVIDER, model: one }));
      const groups = async (): Promise<unknown> => (await stored(dsh))['groups'];
      const adder = card.view.getByRole('group', { name: t('limits.add.group'), exact: true });
      const pick = async (finder: Locator, route: string): Promise<void> => {
        await finder.fill(route);
        await card.view.getByRole('option', { name: route, exact: true }).click();
      };

      await card.button(t('limits.add.group')).click();
      const save = adder.getByRole('button', { name: t('limits.add.save'), exact: true });
      await adder.getByRole('textbox', { name: t('limits.add.groupName'), exact: true }).fill('night shift');
      assert.equal(await save.isDisabled(), true, 'a group has models');
      const finder = adder.getByRole('combobox', { name: t('limits.add.groupRoutes'), exact: true });
      await finder.click();
      await card.view.getByRole('option', { name: ROUTE, exact: true }).waitFor();
      assert.equal(await card.view.getByRole('option', { name: t('scope.everything'), exact: true }).count(), 0, 'nor is it of everything');
      await pick(finder, ROUTE);
      await pick(finder, OTHER_ROUTE);
      await adder.getByRole('textbox', { name: t('limits.mode.limited'), exact: true }).fill('3');
      await save.click();
      await card.occupancy(0, 3, scope);
      await written(card, 1);
      assert.deepEqual(await groups(), [{ name: 'night shift', max: 3, routes: [model, other] }]);
      await card.hushes(t('state.inactive'));

      await card.row(scope).locator('summary').click();
      const remove = (route: string): Locator => card.row(scope).getByRole('button', { name: `${t('limits.remove')}: ${route}`, exact: true });
      await remove(OTHER_ROUTE).click();
      await remove(OTHER_ROUTE).waitFor({ state: 'detached' });
      await written(card, 2);
      assert.deepEqual(await groups(), [{ name: 'night shift', max: 3, routes: [model] }]);
      assert.equal(await remove(ROUTE).isDisabled(), true, 'the last one goes with the group');

      await pick(card.row(scope).getByRole('combobox', { name: `${t('limits.add.save')}: ${name}`, exact: true }), OTHER_ROUTE);
      await written(card, 3);
      assert.deepEqual(await groups(), [{ name: 'night shift', max: 3, routes: [model, other] }]);

      await write(card.max(name), '5');
      await card.occupancy(0, 5, scope);
      await written(card, 4);
      assert.deepEqual(await groups(), [{ name: 'night shift', max: 5, routes: [model, other] }]);

      await card.button(t('limits.add.group')).click();
      await adder.getByRole('textbox', { name: t('limits.add.groupName'), exact: true }).fill(' night shift ');
      await pick(finder, ROUTE);
      await card.says(t('limits.add.taken'));
      assert.equal(await save.isDisabled(), true);
      await adder.getByRole('button', { name: t('limits.add.cancel'), exact: true }).click();

      await card.button(t('limits.removeOf', { scope: name })).click();
      await card.row(scope).waitFor({ state: 'detached' });
      await card.says(t('state.inactive'));
      await written(card, 5);
      assert.deepEqual(await groups(), []);
      assert.deepEqual(await limits(dsh), []);
    })));

test('what is not offered keeps its limit, and who cannot list models is named', (t) => {
  const some = { provider: 'elsewhere', model: 'some', max: 2 };
  const config = { limits: [...(limit(1)['limits'] as Patch[]), some, { provider: 'broken', model: 'any', max: 1 }] };
  return atWork({ script: () => ({ text: 'done' }), config, packages: [PACKAGE, PROBE] }, async (_world, dsh) => {
    await dsh.probe('providers', { hangs: 'silent', fails: 'broken' });

    await t.test('of each provider by itself', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        const mark = (scope: string): Locator => card.row(scope).getByText(ui.t('limits.notOffered'), { exact: true });
        const { providers } = (await (await dsh.fetch('/api/dsh-gen-limit/catalog')).json()) as { providers: ReadonlyArray<{ id: string; error?: string }> };
        const failed = providers.filter(({ error }) => error !== undefined);
        assert.deepEqual(failed.map(({ id }) => id).toSorted(), ['broken', 'silent']);
        for (const { id, error } of failed) await card.says(ui.t('limits.providerFailed', { provider: id, error }));
        await mark('elsewhere/some').waitFor();
        for (const scope of [ROUTE, 'broken/any']) assert.equal(await mark(scope).count(), 0, `${scope} is offered, or may be`);
        await ui.shot('not-offered');

        await write(card.max('elsewhere/some'), '4');
        await card.occupancy(0, 4, 'elsewhere/some');
        await written(card, 1);
        assert.deepEqual(await limits(dsh), config.limits.map((one) => (one === some ? { ...some, max: 4 } : one)));
        await mark('elsewhere/some').waitFor();
      }));

    await t.test('of all of them', () =>
      onPage(dsh, {}, async (ui) => {
        ui.expect(/503/);
        await ui.page.route('**/api/dsh-gen-limit/catalog', (route) => route.fulfill({ status: 503, json: { error: 'no models today' } }));
        const card = await cardOf(ui);
        await card.says(ui.t('limits.catalogFailed', { error: 'no models today' }));
        await card.row('elsewhere/some').waitFor();
        assert.equal(await card.view.getByText(ui.t('limits.notOffered'), { exact: true }).count(), 0, 'nobody can say so');
        await card.button(ui.t('limits.add')).click();
        const adder = card.view.getByRole('group', { name: ui.t('limits.add'), exact: true });
        await adder.getByRole('combobox').fill('by hand/any model');
        await adder.getByRole('option', { name: ui.t('limits.add.custom', { route: 'by hand/any model' }), exact: true }).click();
        await adder.getByRole('button', { name: ui.t('limits.add.save'), exact: true }).click();
        await card.row('by hand/any model').waitFor();
        await written(card, 1);
        assert.deepEqual((await limits(dsh)).at(-1), { provider: 'by hand', model: 'any model', max: 1 });
      }));
  });
});
