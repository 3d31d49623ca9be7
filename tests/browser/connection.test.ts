/** A card that has lost its harness says so, keeps what it knows, and goes on when the harness is back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type Dsh, limit } from '../e2e/dsh.ts';
import { inEachLanguage, onPage, type Ui } from './browser.ts';
import { atWork, cardOf, change, limits, ROUTE } from './card.ts';

/** How a page tells that nobody answers, up to what comes of the cause. */
function unreachable(ui: Ui): string {
  return ui.t('state.unreachable').split('{error}')[0] ?? '';
}

/** Looks at a page that loses its harness and finds it again. */
async function cutOff(dsh: Dsh, ui: Ui): Promise<void> {
  ui.expect(/net::ERR_|Failed to fetch/);
  const card = await cardOf(ui);
  await card.occupancy(0, 2);
  await ui.page.route('**/api/dsh-gen-limit/**', (route) => route.abort());
  await card.says(unreachable(ui));
  await card.row().waitFor();
  await card.max().fill('3');
  await card.max().press('Enter');
  await card.says(ui.t('write.failed').split('{error}')[0] ?? '');
  await ui.shots('unreachable');
  await ui.page.unroute('**/api/dsh-gen-limit/**');
  await card.hushes(unreachable(ui));
  assert.deepEqual(await limits(dsh), limit(2)['limits'], 'nothing is written behind a person’s back');
  await card.button(ui.t('write.again')).click();
  await card.occupancy(0, 3);
  await card.saved();
  assert.deepEqual(await limits(dsh), limit(3)['limits']);
}

test('answers that stop and come again', (t) =>
  atWork({ script: () => ({ text: 'done' }) }, (_world, dsh) =>
    inEachLanguage(t, dsh, async (ui) => {
      await change(dsh, limit(2));
      await cutOff(dsh, ui);
    })));

test('a harness that is started again', () =>
  atWork({ script: () => ({ text: 'done' }), config: limit(2) }, (world, dsh) =>
    onPage(dsh, {}, async (ui) => {
      ui.expect(/net::ERR_|Failed to fetch|WebSocket|EventSource|40[149]|503/);
      const card = await cardOf(ui);
      await card.occupancy(0, 2);
      await card.max().fill('4');
      await dsh.stop();
      await card.says(unreachable(ui));
      assert.equal(await card.max().inputValue(), '4', 'what is being written stays');
      const again = await world.web(Number(new URL(dsh.origin).port));
      await again.until('the plugin', () => /gen-limit: /.test(again.stderr));
      await card.hushes(unreachable(ui));
      await card.occupancy(0, 2);
      // The revision that the page knew ended with its process; who wrote nothing else is not asked.
      await card.max().press('Enter');
      await card.occupancy(0, 4);
      await card.saved();
      assert.deepEqual(await limits(again), limit(4)['limits']);
      await card.row(ROUTE).waitFor();
    })));
