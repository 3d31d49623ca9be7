/** The card looks like a page of the older harness: its rows, its letters, its controls. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Locator } from 'playwright-core';

import { limit } from '../e2e/dsh.ts';
import { OLDER, onPage, THEMES, type Ui } from './browser.ts';
import { atWork, cardOf } from './card.ts';

type Style = Readonly<Record<string, string>>;

const LETTERS = ['font-family', 'font-size', 'font-weight', 'line-height'];
const ROW = ['padding', 'border-bottom', 'border-radius', 'background-color'];
const CONTROL = [...LETTERS, 'color', 'background-color', 'border', 'border-radius', 'height', 'padding', 'gap'];

/** How something is drawn. */
function drawn(part: Locator, properties: readonly string[]): Promise<Style> {
  return part.first().evaluate((element, names) => {
    const style = getComputedStyle(element);
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name)]));
  }, properties);
}

/** The classes by which the harness's own button is drawn. */
async function classes(button: Locator): Promise<readonly string[]> {
  return ((await button.first().getAttribute('class')) ?? '').split(' ').filter((name) => name.startsWith('_'));
}

/** Goes to a page of Settings by its place. */
function general({ page }: Ui): Promise<void> {
  return page.getByRole('dialog').getByRole('navigation').getByRole('button').first().click();
}

test('a row is drawn as the harness draws its own', { skip: OLDER ? false : 'the newer harness draws in other measures' }, (t) =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, async (_world, dsh) => {
    for (const theme of THEMES) {
      await t.test(theme, () =>
        onPage(dsh, { theme }, async (ui) => {
          const card = await cardOf(ui);
          await card.occupancy(0, 2);
          const queueing = card.view.locator('.gl-row:not(:last-child)').last();
          const ours = {
            // One that has a sentence below its title, as the harness's has.
            row: await drawn(queueing, ROW),
            name: await drawn(queueing.locator('.gl-name'), [...LETTERS, 'color']),
            hint: await drawn(queueing.locator('.gl-hint'), LETTERS),
            gap: await drawn(queueing.locator(':has(> .gl-name)'), ['gap']),
            between: await drawn(queueing.locator('> :first-child'), ['column-gap', 'align-items']),
            selector: await drawn(card.view.locator('.gl-selector'), CONTROL),
            button: await classes(card.button(ui.t('limits.add'))),
          };
          await general(ui);
          const page = ui.page.locator('[data-slot="settings.general.item"]');
          const row = page.locator('[class$="_row"]:has([class$="_desc"])').first();
          const theirs = {
            row: await drawn(row, ROW),
            name: await drawn(row.locator('[class$="_title"]'), [...LETTERS, 'color']),
            hint: await drawn(row.locator('[class$="_desc"]'), LETTERS),
            gap: await drawn(row.locator('[class$="_rowText"]'), ['gap']),
            between: await drawn(row, ['column-gap', 'align-items']),
            selector: await drawn(page.locator('[class$="_selector"]'), CONTROL),
            button: await classes(ui.page.locator('[data-slot="settings.action"] button')),
          };
          assert.deepEqual(ours, theirs);
        }));
    }
  }));
