/** What a person has to know before anything else, in the states that a harness and its settings can be in. */
import assert from 'node:assert/strict';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { BUDGET, CHAOS, type Dsh, HARNESS, limit, MODEL, OTHER, type Patch, PROVIDER } from '../e2e/dsh.ts';
import { inWorld, type World } from '../e2e/scenario.ts';
import { inEachLanguage, onPage, SECTIONS, type Ui } from './browser.ts';
import { atWork, type Card, cardOf, limits, ROUTE } from './card.ts';

const script = () => ({ text: 'done' });

/** A sentence up to what it quotes. */
function begin(sentence: string): string {
  return sentence.split('{')[0] ?? '';
}

/** Looks at a harness whose component is no component. */
function withoutComponent(t: TestContext, config: Patch, test: (ui: Ui, card: Card) => Promise<void>): Promise<void> {
  return inWorld({ script, config, sections: SECTIONS }, async (world: World) => {
    await writeFile(join(world.home.installed, 'gen-limit.wasm'), 'no component');
    const dsh = await world.web();
    await dsh.until('the failure', () => /gen-limit: .*not WebAssembly/.test(dsh.stderr));
    await inEachLanguage(t, dsh, async (ui) => {
      ui.expect(/503/);
      const card = await cardOf(ui);
      await test(ui, card);
      await card.hushes(begin(ui.t('state.unreachable')));
    });
  });
}

/** Lets a page believe this of the settings. */
async function told(ui: Ui, change: (section: Patch) => Patch): Promise<void> {
  await ui.page.route('**/api/dsh-gen-limit/config', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: change((await response.json()) as Patch) });
  });
}

/** Sets rows through the harness itself, which does not judge them. */
async function store(dsh: Dsh, rows: readonly Patch[]): Promise<void> {
  await dsh.call('settings.update', { ns: HARNESS.section, patch: { limits: rows } });
}

test('where nothing is limited, one sentence says so, and one button limits the route in use', (t) =>
  atWork({ script, config: { limits: [] } }, (_world, dsh) =>
    inEachLanguage(t, dsh, async (ui) => {
      const card = await cardOf(ui);
      await card.says(ui.t('state.inactive'));
      await card.button(ui.t('state.inactive.add', { route: ROUTE })).waitFor();
      await ui.shots('inactive');
    })));

test('a limiter that fails open or closed says which, and why', async (t) => {
  await t.test('open', (t) =>
    withoutComponent(t, limit(2), async (ui, card) => {
      await card.says(begin(ui.t('state.open')));
      await card.says('not WebAssembly');
      await ui.shots('failed-open');
    }));
  await t.test('closed', (t) =>
    withoutComponent(t, { ...limit(2), onFailure: 'closed' }, async (ui, card) => {
      await card.says(begin(ui.t('state.closed')));
      await ui.shots('failed-closed');
    }));
});

test('a limiter that was restarted says how often', (t) =>
  inWorld({ script, config: { ...limit(2), maxRestarts: 1_000, chaos: 'trap-in:12' }, sections: SECTIONS }, async (world) => {
    await copyFile(CHAOS, join(world.home.installed, 'gen-limit.wasm'));
    const dsh = await world.web();
    await dsh.until('the plugin', () => /gen-limit: /.test(dsh.stderr));
    for (const tag of ['A', 'B', 'C']) await dsh.prompt(`[s:${tag}] work`);
    await dsh.until('a fault', () => /the component was replaced/.test(dsh.stderr));
    await inEachLanguage(t, dsh, async (ui) => {
      ui.expect(/50\d/);
      const card = await cardOf(ui);
      await card.view.getByText(new RegExp(ui.t('state.restarted', { n: '[1-9]\\d*', reason: '.*trap' }), 'u')).waitFor();
      await ui.shots('restarted');
    });
  }));

test('what is not used of the plugin folder is named, and that somebody waits for a plugin is said', (t) =>
  inWorld({ script, config: limit(2), sections: SECTIONS }, async (world) => {
    const folder = join(world.home.dir, 'wasm-plugins');
    await mkdir(folder);
    await writeFile(join(folder, 'broken.wasm'), 'no component');
    await writeFile(join(folder, 'budget.json'), JSON.stringify({ config: { perMinute: 0, maxWaitMs: 600_000 } }));
    await copyFile(BUDGET, join(folder, 'budget.wasm'));
    const dsh = await world.web();
    await dsh.until('the plugin', () => /the plugin budget is at work/.test(dsh.stderr));
    await dsh.prompt('[s:A] work');
    await inEachLanguage(t, dsh, async (ui) => {
      const card = await cardOf(ui);
      await card.says(ui.t('state.refused'));
      await card.says('broken.wasm');
      await card.view.getByText(new RegExp(ui.t('state.plugin.waits', { name: 'budget', n: '[1-9]' }), 'u')).waitFor();
      await ui.shots('plugins');
    });
  }));

test('settings that cannot be changed', (t) =>
  atWork({ script, config: limit(2) }, async (_world, dsh) => {
    await t.test('read only: it is said, and nothing can be pressed or written', (t) =>
      inEachLanguage(t, dsh, async (ui) => {
        await told(ui, (section) => ({ ...section, writable: false }));
        const card = await cardOf(ui);
        await card.says(ui.t('state.readOnly'));
        await card.view.getByText(ui.t('queueing.advanced')).click();
        const buttons = [ui.t('limits.add'), ui.t('limits.add.group')].map((name) => card.button(name));
        const controls = card.view.locator('input, .gl-rows button, .gl-selector');
        assert.ok((await controls.count()) >= 8);
        for (const button of buttons) assert.equal(await button.isDisabled(), true);
        for (const control of await controls.all()) assert.equal(await control.isDisabled(), true, await control.evaluate((one) => one.outerHTML));
        await ui.shots('read-only');
      }));

    await t.test('none: what is in force is still seen', (t) =>
      inEachLanguage(t, dsh, async (ui) => {
        await told(ui, () => ({ status: 'unavailable' }));
        const card = await cardOf(ui);
        await card.says(ui.t('state.unavailable'));
        await card.says(ui.t('now.title'));
        await ui.shots('unavailable');
      }));

    await t.test('gone for a moment: what is being written stays, and so it does where they cannot be read', () =>
      onPage(dsh, {}, async (ui) => {
        ui.expect(/500/);
        const card = await cardOf(ui);
        await card.occupancy(0, 2);
        await card.max().fill('7');
        await told(ui, () => ({ status: 'unavailable' }));
        await card.says(ui.t('state.unavailable'));
        assert.deepEqual([await card.max().inputValue(), await card.max().isDisabled()], ['7', true]);
        await ui.page.unrouteAll({ behavior: 'wait' });
        await ui.page.route('**/api/dsh-gen-limit/config', (route) => route.fulfill({ status: 500, json: { error: 'no reason' } }));
        await card.says(ui.t('state.unread', { error: 'no reason' }));
        await card.hushes(begin(ui.t('state.unreachable')));
        assert.equal(await card.max().inputValue(), '7');
        await ui.page.unrouteAll({ behavior: 'wait' });
        await card.hushes(ui.t('state.unread', { error: 'no reason' }));
        assert.deepEqual(await limits(dsh), limit(2)['limits']);
        await card.max().press('Enter');
        await card.occupancy(0, 7);
        await card.saved();
        assert.deepEqual(await limits(dsh), limit(7)['limits']);
      }));

    await t.test('what goes on is not said where stats do not say it', () =>
      onPage(dsh, {}, async (ui) => {
        await ui.page.route('**/api/dsh-gen-limit/stats*', (route) => route.fulfill({ json: { entries: [], host: { state: 'failed-open', reason: 'gone' } } }));
        const card = await cardOf(ui);
        await card.says(begin(ui.t('state.open')));
        assert.equal(await card.row().locator('[role=meter]').count(), 0);
        await card.row().getByText('–', { exact: true }).waitFor();
      }));
  }));

test('rows that are not valid are named, and can be removed together', (t) =>
  atWork({ script, config: { limits: [] } }, async (_world, dsh) => {
    const good = { provider: PROVIDER, model: MODEL, max: 3 };
    const bad = { provider: PROVIDER, model: OTHER, max: 'abc' };
    await store(dsh, [good]);
    await t.test('they are not in force, nor is what came with them', (t) =>
      inEachLanguage(t, dsh, async (ui) => {
        await store(dsh, [{ ...good, max: 4 }, bad]);
        const card = await cardOf(ui);
        await card.says(ui.t('state.notInForce'));
        await card.says('limits[1].max');
        await card.row(`${PROVIDER}/${OTHER}`).getByText(ui.t('limits.invalid')).first().waitFor();
        await ui.shots('not-in-force');
        await card.button(ui.t('state.repair')).click();
        await card.hushes(ui.t('state.notInForce'));
        await card.occupancy(0, 4);
        assert.deepEqual(await limits(dsh), [{ ...good, max: 4 }]);
      }));

    await t.test('one can be put right where it stands', async () => {
      await store(dsh, [good, bad]);
      await onPage(dsh, {}, async (ui) => {
        const card = await cardOf(ui);
        const box = card.max(`${PROVIDER}/${OTHER}`);
        assert.equal(await box.inputValue(), '"abc"');
        await box.fill('7');
        await box.press('Enter');
        await card.hushes(ui.t('state.notInForce'));
        await card.occupancy(0, 7, `${PROVIDER}/${OTHER}`);
        await card.row(ROUTE).waitFor();
      });
      assert.deepEqual(await limits(dsh), [good, { ...bad, max: 7 }]);
    });
  }));
