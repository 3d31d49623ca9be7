/** Where the card is found, in both versions of the harness. */
import { test } from 'node:test';

import { limit } from '../e2e/dsh.ts';
import { LOCALES, onPage } from './browser.ts';
import { atWork, Card, cardOf } from './card.ts';

test('the card is a section of Settings, and is on the harness’s page of its plugin', (t) =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, async (_world, dsh) => {
    for (const locale of LOCALES) {
      await t.test(`in Settings (${locale})`, () =>
        onPage(dsh, { locale }, async (ui) => {
          const card = await cardOf(ui);
          await card.occupancy(0, 2);
        }));

      await t.test(`with its plugin (${locale})`, () =>
        onPage(dsh, { locale }, async (ui) => {
          const card = new Card(ui, await ui.door());
          await card.occupancy(0, 2);
        }));
    }
  }));
