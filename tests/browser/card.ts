/** The card, as far as tests touch it: its words and what they stand on. */
import type { Locator } from 'playwright-core';

import { type Dsh, MODEL, type Patch, PROVIDER } from '../e2e/dsh.ts';
import { inWorld, type Scenario, type World } from '../e2e/scenario.ts';
import { SECTIONS, type Ui } from './browser.ts';

/** The text of the scope that the tests limit, and what a person reads for it. */
export const ROUTE = `${PROVIDER}/${MODEL}`;

/** A card at one of its doors. */
export class Card {
  readonly ui: Ui;
  readonly view: Locator;

  constructor(ui: Ui, view: Locator) {
    this.ui = ui;
    this.view = view;
  }

  /** The row of a scope among the limits. */
  row(scope = ROUTE): Locator {
    return this.view.locator(`.gl-rows [data-scope="${scope}"]`);
  }

  /** A busy route among those who generate and wait. */
  line(scope = ROUTE): Locator {
    return this.view.locator(`.gl-now [data-scope="${scope}"]`);
  }

  /** The box of a row. */
  max(scope = ROUTE): Locator {
    return this.view.getByRole('textbox', { name: this.ui.t('limits.max', { scope }), exact: true });
  }

  /** A button by its name. */
  button(name: string): Locator {
    return this.view.getByRole('button', { name, exact: true });
  }

  /** Waits for something that is said. */
  async says(text: string): Promise<void> {
    await this.view.getByText(text).first().waitFor();
  }

  /** Waits until something is said no more. */
  async hushes(text: string): Promise<void> {
    await this.view.getByText(text).first().waitFor({ state: 'detached' });
  }

  /** Waits until a row says how many generate there, of how many: those that there will be, while that is being saved. */
  async occupancy(occupancy: number, max: number, scope = ROUTE): Promise<void> {
    await this.row(scope).getByText(this.ui.t('limits.occupancy', { occupancy, max })).first().waitFor();
  }

  /** Waits until nothing is being saved any more. */
  async saved(): Promise<void> {
    await this.hushes(this.ui.t('write.saving'));
  }

  /** Waits for answers of stats that were asked for from now on. */
  polls(count: number): Promise<void> {
    return this.#asks('stats', count);
  }

  /** Waits until the settings have been read anew. */
  reads(count: number): Promise<void> {
    return this.#asks('config', count);
  }

  async #asks(path: string, count: number): Promise<void> {
    const asked = (): number => this.ui.asked.filter((one) => one.path.startsWith(path)).length;
    const before = asked();
    await this.ui.until(`${count} more questions`, () => asked() > before + count);
  }
}

/** Opens Settings on the card. */
export async function cardOf(ui: Ui): Promise<Card> {
  return new Card(ui, await ui.settings());
}

/** Runs a test in a world whose harness has come up with the plugin and a page. */
export async function atWork(scenario: Scenario, test: (world: World, dsh: Dsh) => Promise<void>): Promise<void> {
  await inWorld({ ...scenario, sections: { ...SECTIONS, ...scenario.sections } }, async (world) => {
    const dsh = await world.web();
    await dsh.until('the plugin', () => /gen-limit: /.test(dsh.stderr));
    await test(world, dsh);
  });
}

/** The limits as the harness has them, whoever set them. */
export async function limits(dsh: Dsh): Promise<readonly Patch[]> {
  const response = await dsh.fetch('/api/dsh-gen-limit/config');
  return ((await response.json()) as { value: { limits: readonly Patch[] } }).value.limits;
}

/** Changes the settings as somebody else does. */
export async function change(dsh: Dsh, patch: Patch): Promise<void> {
  const response = await dsh.fetch('/api/dsh-gen-limit/config', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(patch),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
}
