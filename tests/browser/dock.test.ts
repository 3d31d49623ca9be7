/** The row above the composer of a session that waits, or whose subagents do. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { limit, MODEL, PROVIDER } from '../e2e/dsh.ts';
import { holding, Holds } from '../e2e/scenario.ts';
import { fanOut, ROOT } from '../e2e/scripts.ts';
import { LOOKS, onPage, type Ui } from './browser.ts';
import { atWork, change, ROUTE } from './card.ts';

/** By what the session that waits is found: its title waits, too. */
const WAITING = '[s:B] work';

/** For how long nothing is to happen. */
const WHILE_MS = 3_000;

function dock({ page }: Ui) {
  return page.locator('.gl-dock button');
}

/** How often the page asks for stats in a while. */
async function asks(ui: Ui): Promise<number> {
  const before = ui.asked.length;
  await ui.page.waitForTimeout(WHILE_MS);
  return ui.asked.slice(before).filter(({ path }) => path.startsWith('stats')).length;
}

test('what of a session waits is told above its composer, while it waits', (t) => {
  const holds = new Holds();
  const titled = holding(holds, ({ purpose, session }) => (purpose === 'title' ? { text: `Title ${session}` } : undefined));
  const team = fanOut({ n: 3, background: true }, titled);
  const script: typeof team = (arrival) => (arrival.session === ROOT && arrival.purpose === 'chat' ? team(arrival) : titled(arrival));
  return atWork({ script, config: { ...limit(1), queueTimeoutMs: 0 } }, async ({ server, home }, dsh) => {
    await dsh.prompt(`[s:${ROOT}] split this up`);
    await server.until('the first of the team', () => server.chatting.includes('01'));
    const second = await dsh.prompt('[s:B] work');
    await home.traced('wait of B', () => home.waiting('stream').some(({ session }) => session === second));
    await home.traced('wait of a spawn', () => home.waiting('spawn').length > 0);
    await server.until('the title', () => server.of(ROOT, 'title').some(({ outcome }) => outcome === 'completed'));

    for (const look of LOOKS) {
      await t.test(`it says what waits, and where (${look.locale}, ${look.theme})`, () =>
        onPage(dsh, look, async (ui) => {
          await ui.session(WAITING);
          const said = await dock(ui).innerText();
          for (const part of [ui.t('dock.waiting', { route: ROUTE }), ui.t('dock.limit', { max: 1 })]) assert.ok(said.includes(part), said);
          await ui.shot('dock');
          assert.deepEqual(await ui.axe('.gl-dock'), []);
          await ui.session(`Title ${ROOT}`);
          await dock(ui).getByText(ui.t('dock.children.one', { n: 1, route: ROUTE })).waitFor();
          await ui.shot('dock-children');
        }));
    }

    await t.test('it stands in the column of the composer', () =>
      onPage(dsh, {}, async (ui) => {
        await ui.session(WAITING);
        const row = await dock(ui).boundingBox();
        const composer = await ui.page.getByRole('textbox').last().evaluate((input) => {
          // The card around the box to write in is the first thing above it that is rounded.
          let at: Element | null = input;
          while (at !== null && Number.parseFloat(getComputedStyle(at).borderTopLeftRadius) < 8) at = at.parentElement;
          const { left, right, top } = (at ?? input).getBoundingClientRect();
          return { left, right, top };
        });
        assert.ok(row !== null);
        assert.ok(row.x >= composer.left && row.x + row.width <= composer.right, JSON.stringify({ row, composer }));
        assert.ok(row.y + row.height <= composer.top, JSON.stringify({ row, composer }));
      }));

    await t.test('a click on it opens the card; Escape closes it', () =>
      onPage(dsh, {}, async (ui) => {
        await ui.session(WAITING);
        await dock(ui).click();
        const dialog = ui.page.getByRole('dialog', { name: ui.t('title') });
        await dialog.locator(`.gl-rows [data-scope="${ROUTE}"]`).waitFor();
        assert.ok(await dialog.evaluate((one) => one.contains(document.activeElement)), 'the focus goes in');
        assert.deepEqual(await ui.axe('[role=dialog]'), []);
        await ui.shots('dock-card');
        await ui.page.keyboard.press('Escape');
        await dialog.waitFor({ state: 'detached' });
        assert.ok(await dock(ui).evaluate((row) => row.contains(document.activeElement)), 'and back to what opened it');
      }));

    await t.test('it asks once a second, and only while somebody sees it', () =>
      onPage(dsh, {}, async (ui) => {
        assert.equal(await asks(ui), 0, 'no session is open');
        await ui.session(WAITING);
        await dock(ui).waitFor();
        const often = await asks(ui);
        assert.ok(often >= 2 && often <= 4, `${often} in ${WHILE_MS} ms`);
        await ui.see('hidden');
        assert.equal(await asks(ui), 0, 'nobody sees the page');
        await ui.see('visible');
        await ui.until('a question', () => ui.asked.at(-1)?.path.startsWith('stats') === true);
      }));

    await t.test('it is gone when the wait is over', () =>
      onPage(dsh, {}, async (ui) => {
        await ui.session(WAITING);
        await dock(ui).waitFor();
        await change(dsh, { limits: [{ provider: PROVIDER, model: MODEL, max: 2 }] });
        await server.until('B', () => server.chatting.includes('B'));
        await dock(ui).waitFor({ state: 'detached' });
      }));

    await change(dsh, { limits: [] });
    for (const tag of ['01', '02', '03', 'B']) holds.release(tag);
    await server.until('the end', () => ['01', '02', '03', 'B'].every((tag) => server.completed(tag)));
  });
});
