/** Nothing is written that a person did not finish, and of two who write nobody loses anything. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limit, MODEL, OTHER, PROVIDER } from '../e2e/dsh.ts';
import { onPage, type Ui } from './browser.ts';
import { atWork, type Card, cardOf, change, limits, ROUTE } from './card.ts';

/** The `max` of our row in every change that a page asked for. */
function written({ posts }: Ui): readonly unknown[] {
  return posts.map(({ body }) => (body as { limits?: ReadonlyArray<{ max: unknown }> }).limits?.[0]?.max);
}

/** Adds a limit the way a person does: what is offered first, or what has this name. */
async function add(card: Card, scope: string, option?: string): Promise<void> {
  const { t } = card.ui;
  await card.button(t('limits.add')).click();
  const adder = card.view.getByRole('group', { name: t('limits.add'), exact: true });
  await adder.getByRole('combobox').fill(scope);
  await (option === undefined ? adder.getByRole('option').first() : adder.getByRole('option', { name: option, exact: true })).click();
  await adder.getByRole('button', { name: t('limits.add.save'), exact: true }).click();
}

test('B9 the card writes what is finished, and only that', (t) =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, async (_world, dsh) => {
    await t.test('an emptied box is told to be wrong, and writes nothing', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await card.max().fill('');
        await card.says(ui.t('limits.max.wrong', { least: 1, most: 4_294_967_295 }));
        await card.polls(3);
        await card.max().press('Enter');
        await card.max().blur();
        await card.polls(1);
        assert.equal(await card.max().inputValue(), '');
        assert.deepEqual(ui.posts, []);
        await card.max().press('Escape');
        assert.equal(await card.max().inputValue(), '2', 'Escape takes it back, and closes nothing');
        assert.deepEqual(await limits(dsh), limit(2)['limits']);
      }));

    await t.test('what is no number of seats is never written', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        for (const text of ['0', '-1', '1.5', '2e1', '0x10', 'abc', '4294967296', '  ']) {
          await card.max().fill(text);
          await card.says(ui.t('limits.max.wrong', { least: 1, most: 4_294_967_295 }));
          await card.max().press('Enter');
          await card.max().blur();
          assert.equal(await card.max().inputValue(), text);
        }
        await card.polls(1);
        assert.deepEqual(ui.posts, []);
      }));

    await t.test('12 written over 2 passes through nothing on its way', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await card.max().click();
        await card.max().selectText();
        await ui.page.keyboard.type('1');
        await card.polls(3);
        assert.equal(await card.max().inputValue(), '1');
        await ui.page.keyboard.type('2');
        await card.says(ui.t('limits.max.unsaved'));
        assert.deepEqual(ui.posts, []);
        await ui.page.keyboard.press('Enter');
        await card.occupancy(0, 12);
        await card.saved();
        assert.deepEqual(written(ui), [12]);
        assert.deepEqual(await limits(dsh), limit(12)['limits']);
      }));

    await t.test('going over the modes with the keyboard changes nothing', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        const mode = card.row().getByRole('button', { name: `${ui.t('limits.mode', { scope: ROUTE })}: ` });
        await mode.focus();
        for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'ArrowUp', 'ArrowUp', 'End']) await ui.page.keyboard.press(key);
        await card.polls(1);
        await ui.page.keyboard.press('Escape');
        await mode.waitFor();
        assert.deepEqual(ui.posts, []);
      }));

    await t.test('who looks at another window, or composes a letter, has finished nothing', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await card.max().fill('3');
        // The window loses the focus, the box keeps it.
        await card.max().evaluate((box) => box.dispatchEvent(new FocusEvent('focusout', { bubbles: true })));
        await card.max().evaluate((box) => box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, isComposing: true })));
        await card.polls(1);
        assert.deepEqual(ui.posts, []);
        assert.equal(await card.max().inputValue(), '3');
      }));

    await t.test('a double click does once', () =>
      onPage(dsh, {}, async (ui) => {
        await change(dsh, { limits: [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model, max: 2 })) });
        const card = await cardOf(ui);
        await card.occupancy(0, 2, `${PROVIDER}/${OTHER}`);
        await card.button(ui.t('limits.removeOf', { scope: ROUTE })).dblclick();
        await card.row().waitFor({ state: 'detached' });
        await card.saved();
        assert.deepEqual(await limits(dsh), [{ provider: PROVIDER, model: OTHER, max: 2 }]);
        await change(dsh, limit(2));
      }));

    await t.test('adding begins at the keyboard, and Escape ends that alone', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await card.button(ui.t('limits.add')).click();
        const adder = card.view.getByRole('group', { name: ui.t('limits.add'), exact: true });
        assert.ok(await adder.getByRole('combobox').evaluate((box) => box === document.activeElement));
        for (let pressed = 0; pressed < 2 && (await adder.count()) > 0; pressed += 1) await ui.page.keyboard.press('Escape');
        await adder.waitFor({ state: 'detached' });
        await card.occupancy(0, 2);
        assert.deepEqual(ui.posts, []);
      }));

    await t.test('two cards that add a row each lose none', () =>
      onPage(dsh, {}, (one) =>
        onPage(dsh, {}, async (two) => {
          const cards = await Promise.all([cardOf(one), cardOf(two)]);
          const scopes = [`${PROVIDER}/${OTHER}`, 'elsewhere/some'];
          await Promise.all(cards.map((card, index) => add(card, scopes[index] ?? '')));
          await Promise.all(cards.flatMap((card) => [ROUTE, ...scopes].map((scope) => card.row(scope).waitFor())));
          const stored = (await limits(dsh)).map(({ provider, model }) => `${provider}/${model}`);
          assert.deepEqual(stored.toSorted(), [ROUTE, ...scopes].toSorted());
          // The one that was quicker may have been refused nothing; the other was told and tried again.
          for (const ui of [one, two]) ui.expect(/409/);
        })));

    await t.test('a route whose name is part of another’s can be written, too', () =>
      onPage(dsh, {}, async (ui) => {
        const part = `${PROVIDER}/${OTHER.slice(0, 3)}`;
        await change(dsh, limit(2));
        const card = await cardOf(ui);
        await add(card, part, ui.t('limits.add.custom', { route: part }));
        await card.row(part).waitFor();
        await card.saved();
        assert.ok((await limits(dsh)).some(({ model }) => model === OTHER.slice(0, 3)));
      }));

    await t.test('who resumes gets what there was before, or is asked where that was not seen', async () => {
      for (const before of [-1, 4]) {
        await change(dsh, limit(before));
        await onPage(dsh, {}, async (ui) => {
          const card = await cardOf(ui);
          const [pause, resume] = (['limits.pauseOf', 'limits.resumeOf'] as const).map((word) => card.button(ui.t(word, { scope: ROUTE })));
          for (const [button, max] of [[pause, 0], [resume, before], [pause, 0]] as const) {
            await button?.click();
            await card.saved();
            assert.deepEqual(await limits(dsh), limit(max)['limits']);
          }
        });
      }
      await onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await card.button(ui.t('limits.resumeOf', { scope: ROUTE })).click();
        assert.ok(await card.max().evaluate((box) => box === document.activeElement));
        await card.polls(1);
        assert.deepEqual(await limits(dsh), limit(0)['limits'], 'nothing is known of before, nothing is written');
        await card.max().fill('6');
        await card.max().press('Enter');
        await card.occupancy(0, 6);
      });
      await change(dsh, limit(2));
    });

    for (const told of [false, true]) {
      await t.test(`who is overtaken on one row ${told ? 'and sees it while writing ' : ''}is asked, with both values`, async () => {
        await change(dsh, limit(2));
        await onPage(dsh, {}, async (ui) => {
          ui.expect(/409/);
          const card = await cardOf(ui);
          await card.max().fill('5');
          await change(dsh, limit(3));
          if (told) await card.occupancy(0, 3);
          assert.equal(await card.max().inputValue(), '5', 'what is being written stays');
          await card.max().press('Enter');
          await card.says(ui.t('conflict.set', { theirs: '3' }));
          assert.deepEqual(await limits(dsh), limit(3)['limits']);
          await ui.shots('conflict');
          await card.button(ui.t('conflict.mine', { mine: '5' })).click();
          await card.occupancy(0, 5);
          await card.saved();
          assert.deepEqual(await limits(dsh), limit(5)['limits']);

          await card.max().fill('6');
          await change(dsh, { limits: [] });
          if (told) await card.reads(1);
          assert.equal(await card.max().inputValue(), '6', 'what is being written stays, also without its row');
          await card.max().press('Enter');
          await card.says(ui.t('conflict.removed'));
          await card.button(ui.t('conflict.theirs.removed')).click();
          await card.says(ui.t('state.inactive'));
          assert.deepEqual(await limits(dsh), []);
        });
      });
    }

    await t.test('of two rows, each is saved by its own page', async () => {
      await change(dsh, { limits: [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model, max: 2 })) });
      await onPage(dsh, {}, async (ui) => {
        ui.expect(/409/);
        const card = await cardOf(ui);
        await card.max().fill('5');
        await change(dsh, { limits: [{ provider: PROVIDER, model: MODEL, max: 2 }, { provider: PROVIDER, model: OTHER, max: 7 }] });
        await card.max().press('Enter');
        await card.occupancy(0, 5);
        await card.saved();
        assert.deepEqual((await limits(dsh)).map(({ max }) => max), [5, 7]);
      });
    });
  }));
