/**
 * The browser half of the plugin: the settings card, at the doors that each version of the harness has, a row above the composer
 * while a session waits, and a glyph for our page in the settings' navigation.
 */
import { type ComponentType } from 'react';
import { Dock } from './Dock.tsx';
import { Foldable, Page, RowConfig } from './doors.tsx';
import { paintGlyph } from './glyph.ts';
import { findServices } from './standard.ts';
import { dress } from './style.ts';
import { DICTIONARIES, NAMESPACE, type Translate } from './words/index.ts';

/** Our package, our row, and our name among the harness's settings. */
const PACKAGE = '@creait/dsh-gen-limit';
const ROW = 'gen-limit';
const SETTINGS = 'dsh-gen-limit';

/** What both versions of the harness's page have in common of what we need. */
interface Shell {
  get(service: string): unknown;
  effect(run: () => () => void, label?: string): void;
  readonly locale: {
    register(namespace: string, dictionaries: typeof DICTIONARIES): () => void;
    bind(namespace: string): Translate;
  };
  readonly slots: {
    inject(slot: string, run: () => unknown): void;
    register(options: Readonly<Record<string, unknown>>, component: ComponentType<never>): unknown;
  };
}

export const inject = ['slots', 'locale'];

export const apply = (ctx: Shell): void => {
  const t = ctx.locale.bind(NAMESPACE);
  ctx.effect(() => ctx.locale.register(NAMESPACE, DICTIONARIES), 'gen-limit words');
  ctx.effect(() => dress(PACKAGE), 'gen-limit style');
  ctx.effect(() => paintGlyph(() => t('title'), document), 'gen-limit glyph');
  findServices((service) => ctx.get(service));

  const doors: ReadonlyArray<readonly [slot: string, options: object, component: ComponentType<never>]> = [
    ['settings.section', { id: SETTINGS, order: 45, label: () => t('title') }, Page],
    ['settings.plugin.item', { key: SETTINGS }, Foldable],
    ['plugins.row.config', { key: `${PACKAGE}#${ROW}` }, RowConfig],
    ['conversation.input.dock', { id: ROW, order: 15 }, Dock],
  ];
  for (const [name, options, component] of doors) {
    ctx.slots.inject(name, () => ctx.slots.register({ name, locale: NAMESPACE, ...options }, component));
  }
};
