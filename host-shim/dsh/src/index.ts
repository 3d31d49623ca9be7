/**
 * Limits how many sessions generate at once against each provider and model.
 *
 * @module @creait/dsh-gen-limit
 */
import type { Context } from '@deepseek-ai/cordis';
import { prepare } from './load.ts';
import { mount } from './plugin.ts';

export { Config } from './compat/settings.ts';

/** The plugin's name in the harness's diagnostics. */
export const name = 'gen-limit';

/** Mounts the plugin on a row. Never throws: what is wrong is reported, and `onFailure` decides about calls. */
export const apply = (ctx: Context, config: unknown): void => mount(ctx, config);

prepare();
