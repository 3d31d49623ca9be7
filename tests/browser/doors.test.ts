/** Where the card is found, in both versions of the harness. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limit } from '../e2e/dsh.ts';
import { LOOKS, onPage } from './browser.ts';
import { atWork, Card, cardOf, limits, ROUTE } from './card.ts';

test('the card is a section of Settings, and is on the harness’s page of its plugin', (t) =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, async (_world, dsh) => {
    await t.test('in Settings', () =>
      onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        await card.occupancy(0, 2);
      }));

    await t.test('with its plugin', () =>
      onPage(dsh, {}, async (ui) => {
        const card = new Card(ui, await ui.door());
        await card.occupancy(0, 2);
      }));
  }));

test('our page has a glyph of its own in the navigation, and nothing else has it', (t) =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, async (_world, dsh) => {
    for (const look of LOOKS) {
      await t.test(`once, also after the navigation was drawn again (${look.locale})`, () =>
        onPage(dsh, look, async (ui) => {
          await ui.settings();
          const glyphs = ui.page.locator('[data-gl-glyph]');
          const own = ui.navigation.locator('[data-gl-glyph]');
          await own.waitFor();
          assert.equal(await glyphs.count(), 1);
          assert.equal(await ui.navigation.locator('svg > :not([data-gl-glyph]):visible').count(), 0, 'the gear is not seen');
          await ui.page.getByRole('dialog').getByRole('navigation').getByRole('button').first().click();
          await ui.navigation.click();
          await ui.page.keyboard.press('Escape');
          await ui.page.getByRole('dialog').waitFor({ state: 'detached' });
          await ui.settings();
          await own.waitFor();
          assert.equal(await glyphs.count(), 1);
          await ui.shot('navigation', ui.page.getByRole('dialog').getByRole('navigation'));
        }));
    }

    await t.test('a row that is drawn in another way is left as it is', () =>
      onPage(dsh, {}, async (ui) => {
        await ui.settings();
        await ui.navigation.locator('[data-gl-glyph]').waitFor();
        await ui.navigation.evaluate((row) => {
          row.querySelector('svg')?.setAttribute('viewBox', '0 0 20 20');
          row.append('');
        });
        await ui.navigation.locator('[data-gl-glyph]').waitFor({ state: 'detached' });
        assert.ok((await ui.navigation.locator('svg > :visible').count()) > 0);
      }));
  }));

test('where a page brings no controls of the harness, plain ones take their place', () =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, (_world, dsh) =>
    onPage(dsh, {}, async (ui) => {
      await ui.without('@deepseek-ai/dsh-client-ui-primitives');
      const card = await cardOf(ui);
      assert.equal(await card.button(ui.t('limits.add')).getAttribute('class'), null, 'a button that is not the harness’s');
      await card.max().fill('3');
      await card.max().press('Enter');
      await card.occupancy(0, 3);
      await card.saved();
      await card.button(ui.t('limits.pauseOf', { scope: ROUTE })).click();
      await card.button(ui.t('limits.resumeOf', { scope: ROUTE })).waitFor();
      await card.saved();
      assert.deepEqual(await limits(dsh), limit(0)['limits']);
      assert.deepEqual(await ui.axe('.gl'), []);
      await ui.shot('plain');
    })));
