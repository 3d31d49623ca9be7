/**
 * The page of a running harness in a real Chromium, as a person has it before them.
 *
 * One Chromium serves all tests of a file; each page is a profile of its own, logged in. Language and theme are the
 * browser's own: until a person chooses one, both versions of the harness follow it.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';

import { chromium, type Browser, type BrowserContext, type Locator, type Page, type Request } from 'playwright-core';

import { type Dsh, HARNESS, NAME, ROW } from '../e2e/dsh.ts';
import type { Sections } from '../e2e/harness.ts';
import { PATIENCE_MS } from '../e2e/patience.ts';
import { DICTIONARIES, type Word } from '../../web/src/words/index.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

export type Locale = keyof typeof DICTIONARIES;
export const LOCALES = Object.keys(DICTIONARIES) as readonly Locale[];
export type Theme = 'light' | 'dark';
export const THEMES: readonly Theme[] = ['light', 'dark'];

/** Each language and each theme, in few pages. */
export const LOOKS = [{ locale: 'en', theme: 'light' }, { locale: 'zh', theme: 'dark' }] as const;

/** How a person looks at the page. */
export interface Look {
  readonly locale: Locale;
  readonly theme: Theme;
  readonly width: number;
  readonly height: number;
}

const USUAL: Look = { locale: 'en', theme: 'light', width: 1280, height: 900 };

/** What the two versions of the harness have in different places, or call differently. */
interface Shell {
  /** Settings under which the page comes up without its notice for newcomers. */
  readonly sections: Sections;
  /** Resolves when a page that is being opened has come up. */
  ready(page: Page): Promise<unknown>;
  openSettings(page: Page, words: ShellWords): Promise<void>;
  /** Opens the second door; gives the view behind it. */
  openDoor(page: Page, words: ShellWords): Promise<Locator>;
}

interface ShellWords {
  readonly settings: string;
  readonly plugins: string;
}

const WORDS: Readonly<Record<Locale, ShellWords>> = {
  en: { settings: 'Settings', plugins: 'Plugins' },
  zh: { settings: '设置', plugins: '插件' },
};

const rc8: Shell = {
  sections: { 'ui-onboarding': { welcomeNoticeVersion: '2026-08-13.1' } },
  ready: (page) => page.locator('[data-slot="settings.trigger"]').waitFor(),
  openSettings: (page) => page.locator('button:has([data-slot="settings.trigger"])').click(),
  async openDoor(page, words) {
    await this.openSettings(page, words);
    await page.getByRole('dialog').getByRole('button', { name: words.plugins, exact: true }).click();
    const item = page.locator('[data-slot="settings.plugin.item"] > .gl-plugin');
    await item.getByRole('button').first().click();
    return item;
  },
};

const v021: Shell = {
  sections: { 'ui-settings-general': { welcomeNoticeVersion: '2026-09-28.1' } },
  // It looks once whether a newcomer has a model, and closes Settings for that.
  ready: (page) => page.waitForResponse((response) => response.url().endsWith('/api/llm/listConfigurableProviders')),
  async openSettings(page, { settings }) {
    await page.locator('[data-slot="settings.launcher"] button').click();
    await page.getByRole('menuitem', { name: settings, exact: true }).click();
  },
  async openDoor(page, { plugins }) {
    await page.getByRole('button', { name: plugins, exact: true }).click();
    await page.locator(`[data-plugin-package="${NAME}"] button`).first().click();
    await page.locator(`[data-plugin-row$=":${ROW}"] button`).first().click();
    return page.locator('[data-plugin-config] [data-slot="plugins.row.config"]');
  },
};

/** Whether this is the older version; what differs by it differs in the harness. */
export const OLDER = HARNESS.version.startsWith('0.1');

const shell = OLDER ? rc8 : v021;

/** What a home needs so that its page comes up as it does every day. */
export const SECTIONS = shell.sections;

/** One request of the page to our routes. */
export interface Asked {
  readonly at: number;
  readonly method: string;
  /** After the prefix of our routes. */
  readonly path: string;
  readonly body: unknown;
}

const PREFIX = '/api/dsh-gen-limit/';

/** A page, and what happens on it. */
export class Ui {
  readonly page: Page;
  readonly look: Look;
  /** What it asked of our routes, the oldest first. */
  readonly asked: Asked[] = [];
  /** What went wrong on it. */
  readonly errors: string[] = [];
  readonly #context: BrowserContext;
  readonly #expected: RegExp[] = [];

  constructor(context: BrowserContext, page: Page, look: Look) {
    this.#context = context;
    this.page = page;
    this.look = look;
    page.setDefaultTimeout(PATIENCE_MS / 8);
    page.on('pageerror', (error) => this.errors.push(error.stack ?? error.message));
    page.on('console', (message) => {
      if (message.type() === 'error') this.errors.push(`${message.text()} (${message.location().url})`);
    });
    page.on('request', (request) => this.#note(request));
  }

  /** The words of the card, as this page says them. */
  readonly t = (word: Word, parameters: Readonly<Record<string, unknown>> = {}): string =>
    DICTIONARIES[this.look.locale][word].replace(/\{(\w+)\}/gu, (all, name: string) => String(parameters[name] ?? all));

  /** What was posted to the settings. */
  get posts(): readonly Asked[] {
    return this.asked.filter(({ method }) => method === 'POST');
  }

  /** Opens Settings on our section; gives the view. */
  async settings(): Promise<Locator> {
    await shell.openSettings(this.page, WORDS[this.look.locale]);
    await this.navigation.click();
    const view = this.page.locator('[data-slot="settings.section"]');
    await view.getByText(this.t('intro')).waitFor();
    return view;
  }

  /** Our row in the navigation of Settings. */
  get navigation(): Locator {
    return this.page.getByRole('dialog').getByRole('button', { name: this.t('title'), exact: true });
  }

  /** Opens the harness's page of our plugin; gives our view on it. */
  async door(): Promise<Locator> {
    const view = await shell.openDoor(this.page, WORDS[this.look.locale]);
    await view.locator('.gl').waitFor();
    return view;
  }

  /** Goes to a session, by its title. */
  async session(title: string): Promise<void> {
    const tree = this.page.getByRole('tree');
    const session = tree.getByText(title, { exact: true });
    // Sessions of no workspace are in a group of their own, closed at first.
    await tree.getByRole('treeitem').first().waitFor();
    if (!(await session.isVisible())) await tree.getByRole('treeitem', { expanded: false }).first().click();
    await session.click();
  }

  /** Presses Tab until something has the focus. */
  async tabTo(target: Locator): Promise<void> {
    for (let pressed = 0; pressed < 100; pressed += 1) {
      if (await target.evaluate((element) => element === document.activeElement).catch(() => false)) return;
      await this.page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not come to ${target}`);
  }

  /** Makes the page one that nobody sees, or one that is seen. */
  async see(state: 'hidden' | 'visible'): Promise<void> {
    await this.page.evaluate((to) => {
      Object.defineProperty(document, 'visibilityState', { configurable: true, value: to });
      document.dispatchEvent(new Event('visibilitychange'));
    }, state);
  }

  /** What is so wrong that it keeps people out, by the rules of axe. */
  async axe(selector: string): Promise<readonly string[]> {
    await this.page.evaluate(AXE);
    return this.page.evaluate(async (within) => {
      const { axe } = globalThis as unknown as { axe: typeof import('axe-core') };
      const { violations } = await axe.run(within, { resultTypes: ['violations'] });
      const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      return grave.map(({ id, help, nodes }) => `${id}: ${help}\n${nodes.map((node) => `  ${node.html}\n  ${node.failureSummary}`).join('\n')}`);
    }, selector);
  }

  /** Keeps a picture of the page, or of a part of it. */
  async shot(name: string, part: Page | Locator = this.page, theme = this.look.theme): Promise<void> {
    const folder = join(root, 'target/screenshots', HARNESS.version);
    mkdirSync(folder, { recursive: true });
    await part.screenshot({ path: join(folder, `${name}-${this.look.locale}-${theme}.png`) });
  }

  /** Keeps a picture of the page in each theme. */
  async shots(name: string): Promise<void> {
    for (const colorScheme of THEMES) {
      await this.page.emulateMedia({ colorScheme });
      await this.shot(name, this.page, colorScheme);
    }
    await this.page.emulateMedia({ colorScheme: this.look.theme });
  }

  /** Loads the page anew, with our script asking for a module that the page does not have in place of this one. */
  async without(module: string): Promise<void> {
    // The script may come together with those of others.
    await this.page.route(new RegExp(`/plugins/.*${NAME}/client\\.js`, 'u'), async (route) => {
      const response = await route.fetch();
      const [before, own = '', ...after] = (await response.text()).split(`id:"${NAME}"`);
      assert.ok(own.includes(module) && after.length === 0, 'the script asks for it');
      await route.fulfill({ response, body: `${before}id:"${NAME}"${own.replace(module, `${module}-of-nobody`)}` });
    });
    await Promise.all([shell.ready(this.page), this.page.reload()]);
  }

  /** Makes errors like this one no reason to fail. */
  expect(error: RegExp): void {
    this.#expected.push(error);
  }

  /** Resolves when `reached` holds, looking after every request and answer of the page. */
  async until(what: string, reached: () => boolean): Promise<void> {
    const gaveUp = performance.now() + PATIENCE_MS / 8;
    while (!reached()) {
      const left = gaveUp - performance.now();
      if (left <= 0) throw new Error(`page: no ${what}; it asked\n${this.asked.map((one) => JSON.stringify(one)).join('\n')}`);
      await this.page.waitForEvent('requestfinished', { timeout: left }).catch(() => undefined);
    }
  }

  /** Closes the page; fails if something unexpected went wrong on it. */
  async close(): Promise<void> {
    await this.#context.close();
    const unexpected = this.errors.filter((error) => !this.#expected.some((expected) => expected.test(error)));
    assert.deepEqual(unexpected, [], 'what went wrong on the page');
  }

  #note(request: Request): void {
    const { pathname, search } = new URL(request.url());
    if (!pathname.startsWith(PREFIX)) return;
    const body: unknown = request.postData() === null ? undefined : request.postDataJSON();
    this.asked.push({ at: performance.now(), method: request.method(), path: pathname.slice(PREFIX.length) + search, body });
  }
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let launched: Promise<Browser> | undefined;

after(async () => {
  await (await launched)?.close();
});

/** The Chromium of this file. */
function browser(): Promise<Browser> {
  const executablePath = process.env['GEN_LIMIT_CHROMIUM'] ?? 'chromium';
  // Root's Chromium has no sandbox, and nothing of this is to reach out of the machine.
  launched ??= chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  return launched;
}

/** Opens the page of a running harness. */
export async function open(dsh: Dsh, look: Partial<Look> = {}): Promise<Ui> {
  const all = { ...USUAL, ...look };
  const context = await (await browser()).newContext({
    locale: all.locale === 'zh' ? 'zh-CN' : 'en-US',
    colorScheme: all.theme,
    viewport: { width: all.width, height: all.height },
    reducedMotion: 'reduce',
  });
  const login = dsh.loggedIn['cookie']?.split('; ') ?? [];
  await context.addCookies(
    login.map((cookie) => {
      const [name = '', ...value] = cookie.split('=');
      return { name, value: value.join('='), url: dsh.origin };
    }),
  );
  const ui = new Ui(context, await context.newPage(), all);
  await Promise.all([shell.ready(ui.page), ui.page.goto(dsh.origin)]);
  return ui;
}

/** Opens the page for a test, and closes it after the test. */
export async function onPage(dsh: Dsh, look: Partial<Look>, test: (ui: Ui) => Promise<void>): Promise<void> {
  const ui = await open(dsh, look);
  try {
    await test(ui);
  } catch (error) {
    await ui.shot('failed');
    throw error;
  }
  await ui.close();
}

/** Opens the page for a test in each language. */
export async function inEachLanguage(t: TestContext, dsh: Dsh, test: (ui: Ui) => Promise<void>): Promise<void> {
  for (const locale of LOCALES) await t.test(locale, () => onPage(dsh, { locale }, test));
}
