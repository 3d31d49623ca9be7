import { inWorld, Holds } from '../e2e/scenario.ts';
import { SECTIONS, open } from './browser.ts';
import { test } from 'node:test';
const holds = new Holds();
test('p', () => inWorld({ script: holds.script, config: { limits: [], ...(process.env['CFG'] ? JSON.parse(process.env['CFG']) : {}) }, sections: SECTIONS }, async (world) => {
  const dsh = await world.web();
  await dsh.until('the plugin', () => /gen-limit: \d+\.\d+/.test(dsh.stderr));
  for (const [theme, locale] of [['light', 'en'], ['dark', 'zh']] as const) {
    const ui = await open(dsh, { theme, locale });
    try {
      const view = await ui.settings();
      await ui.shot('pv1');
      if (process.env['STEPS']) await import(process.env['STEPS']).then((m) => m.default(ui, view, world, dsh, holds));
    } finally { await ui.shot('pv2'); console.log(ui.errors); }
    await ui.page.close();
  }
}));
