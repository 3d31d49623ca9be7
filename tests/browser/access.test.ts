/** Everybody can use the card: with a keyboard alone, with a screen reader, on a narrow screen. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limit, MODEL, OTHER, PROVIDER } from '../e2e/dsh.ts';
import { Holds } from '../e2e/scenario.ts';
import { LOCALES, LOOKS, onPage, THEMES } from './browser.ts';
import { atWork, Card, cardOf, limits, ROUTE } from './card.ts';

const GROUP = { name: 'box', max: 3, routes: [MODEL, OTHER].map((model) => ({ provider: PROVIDER, model })) };
const FULL = {
  limits: [...(limit(1)['limits'] as object[]), { provider: PROVIDER, model: '*', max: -1 }, { provider: 'elsewhere', model: '*', max: 0 }],
  groups: [GROUP],
};

test('at both doors nothing keeps anybody out, in any language and theme', (t) => {
  const holds = new Holds();
  return atWork({ script: holds.script, config: FULL }, async ({ server, home }, dsh) => {
    await dsh.prompt('[s:A] work');
    await server.until('A', () => server.chatting.includes('A'));
    for (const tag of ['B', 'C']) await dsh.prompt(`[s:${tag}] work`);
    await home.traced('two that wait', () => home.waiting('stream').length >= 2);
    for (const locale of LOCALES) {
      for (const theme of THEMES) {
        await t.test(`in Settings (${locale}, ${theme})`, () =>
          onPage(dsh, { locale, theme }, async (ui) => {
            const card = await cardOf(ui);
            await card.occupancy(1, 1);
            await card.line().waitFor();
            await ui.shot('busy');
            // All there is to see is open.
            await card.view.getByText(ui.t('queueing.advanced')).click();
            await card.row('@box').locator('summary').click();
            await card.button(ui.t('limits.add')).click();
            await card.view.getByRole('combobox').last().click();
            await card.view.getByRole('option').first().waitFor();
            assert.deepEqual(await ui.axe('.gl'), []);
            await ui.shot('open');
            await card.view.getByText(ui.t('queueing.advanced')).scrollIntoViewIfNeeded();
            await ui.shot('queueing');
          }));
      }
    }

    for (const look of LOOKS) {
      await t.test(`with its plugin (${look.locale}, ${look.theme})`, () =>
        onPage(dsh, look, async (ui) => {
          const card = new Card(ui, await ui.door());
          await card.occupancy(1, 1);
          await card.line().waitFor();
          assert.deepEqual(await ui.axe('.gl'), []);
          await ui.shot('door');
        }));
    }

    for (const locale of LOCALES) {
      for (const door of [false, true]) {
        await t.test(`on a screen of 360 nothing is wider than its place ${door ? 'with its plugin' : 'in Settings'} (${locale})`, () =>
          onPage(dsh, { locale, theme: door ? 'dark' : 'light' }, async (ui) => {
            const card = new Card(ui, door ? await ui.door() : await ui.settings());
            await card.view.getByText(ui.t('queueing.advanced')).click();
            await card.row('@box').locator('summary').click();
            await card.button(ui.t('limits.add')).click();
            await ui.page.setViewportSize({ width: 360, height: 800 });
            await card.polls(1);
            const wide = await card.view.locator('.gl').evaluate((card) => {
              const place = card.getBoundingClientRect();
              const beyond = (element: Element): boolean => {
                const { right, width } = element.getBoundingClientRect();
                return width > 1 && right > place.right + 1 && getComputedStyle(element).position !== 'absolute';
              };
              const found = [...card.querySelectorAll('*')].filter(beyond).map((element) => element.outerHTML.slice(0, 200));
              return { found, scrolls: card.scrollWidth - card.clientWidth, page: document.documentElement.scrollWidth };
            });
            await ui.shot(door ? 'narrow-door' : 'narrow');
            assert.deepEqual(wide, { found: [], scrolls: 0, page: 360 });
          }));
      }
    }
  });
});

test('a keyboard is enough', () =>
  atWork({ script: () => ({ text: 'done' }), config: { limits: [] } }, (_world, dsh) =>
    onPage(dsh, {}, async (ui) => {
      const { keyboard } = ui.page;
      const card = await cardOf(ui);
      const press = async (name: string): Promise<void> => {
        await ui.tabTo(card.button(name));
        await keyboard.press('Enter');
      };
      await ui.navigation.focus();
      await press(ui.t('state.inactive.add', { route: ROUTE }));
      await card.occupancy(0, 1);

      await ui.tabTo(card.max());
      await keyboard.press('Control+a');
      await keyboard.type('4');
      await keyboard.press('Enter');
      await card.occupancy(0, 4);

      await ui.tabTo(card.row().getByRole('button', { name: `${ui.t('limits.mode', { scope: ROUTE })}: ` }));
      for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await keyboard.press(key);
      await card.row().getByText(ui.t('limits.running', { occupancy: 0 })).first().waitFor();
      await card.saved();
      assert.deepEqual(await limits(dsh), limit(-1)['limits']);

      await press(ui.t('limits.pauseOf', { scope: ROUTE }));
      await card.button(ui.t('limits.resumeOf', { scope: ROUTE })).waitFor();

      await press(ui.t('limits.add'));
      await keyboard.type('other');
      for (const key of ['ArrowDown', 'Enter']) await keyboard.press(key);
      await ui.tabTo(card.button(ui.t('limits.add.save')));
      await keyboard.press('Enter');
      await card.row(`${PROVIDER}/${OTHER}`).waitFor();
      await card.saved();
      assert.deepEqual((await limits(dsh)).map(({ model, max }) => [model, max]), [[MODEL, 0], [OTHER, 1]]);

      await press(ui.t('limits.removeOf', { scope: ROUTE }));
      await card.row().waitFor({ state: 'detached' });
      await card.saved();
      assert.deepEqual((await limits(dsh)).map(({ model }) => model), [OTHER]);
    })));
