/** What a person does with the card, from the first limit to its removal, and what the provider sees of it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limit } from '../e2e/dsh.ts';
import { Holds } from '../e2e/scenario.ts';
import { children, fanOut, ROOT } from '../e2e/scripts.ts';
import { onPage } from './browser.ts';
import { atWork, cardOf, limits, ROUTE } from './card.ts';

test('a limit is set, watched, raised, paused, resumed and removed, each at once', () => {
  const holds = new Holds();
  const team = children(8);
  return atWork({ script: fanOut({ n: 8, background: true }, holds.script) }, (world, dsh) =>
    onPage(dsh, {}, async (ui) => {
      const { server } = world;
      const card = await cardOf(ui);
      const generate = (...tags: readonly string[]): Promise<void> =>
        server.until(`${tags.join()} at once`, () => server.chatting.join() === tags.join());
      await card.says(ui.t('state.inactive'));
      await card.button(ui.t('state.inactive.add', { route: ROUTE })).click();
      await card.hushes(ui.t('state.inactive'));
      await card.saved();
      assert.equal(await card.max().inputValue(), '1');
      assert.deepEqual(await limits(dsh), limit(1)['limits']);

      await dsh.prompt(`[s:${ROOT}] split this up`);
      await generate('01');
      await card.occupancy(1, 1);
      await card.row().getByText(ui.t('limits.waiting.one', { n: 1 })).first().waitFor();
      await ui.shot('walk-full');

      await card.max().fill('3');
      await card.max().press('Enter');
      await generate('01', '02', '03');
      await card.occupancy(3, 3);

      await card.button(ui.t('limits.pauseOf', { scope: ROUTE })).click();
      await card.button(ui.t('limits.resumeOf', { scope: ROUTE })).waitFor();
      await card.row().getByText(ui.t('limits.running', { occupancy: 3 })).first().waitFor();
      for (const tag of ['01', '02', '03']) holds.release(tag);
      await generate();
      await card.row().getByText(ui.t('limits.running', { occupancy: 0 })).first().waitFor();
      assert.deepEqual(server.chatting, [], 'nobody begins while it is paused');
      await ui.shot('walk-paused');

      await card.button(ui.t('limits.resumeOf', { scope: ROUTE })).click();
      await generate('04', '05', '06');
      await card.occupancy(3, 3);

      await card.button(ui.t('limits.removeOf', { scope: ROUTE })).click();
      await generate('04', '05', '06', '07', '08');
      await card.says(ui.t('state.inactive'));
      assert.deepEqual(await limits(dsh), []);
      for (const tag of team) holds.release(tag);
      await server.until('the end', () => team.every((tag) => server.completed(tag)));
    }));
});
