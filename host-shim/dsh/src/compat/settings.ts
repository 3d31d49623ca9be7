/**
 * How the harness keeps what a user sets for a plugin.
 *
 * | dsh | what the user stores | how a change is told |
 * |---|---|---|
 * | 0.1 | a section of `settings.yaml` that the plugin registers; it lies over the row | to the section's watcher |
 * | 0.2 | the row itself, if the plugin exports a `Config` with fields that are live | `loader/volatile-update` |
 *
 * Both ask for a schemastery schema. Ours is made by hand, because a package without dependencies has no schemastery, and
 * lets everything pass: there is one parser, the component's, and a schema that refuses would hide what is wrong, or keep
 * the plugin from mounting. For 0.2 the whole configuration is one live value, so that a misspelled key arrives like any
 * other and is told of. On 0.1 the same value is simply read once.
 */
import type { Context } from '@deepseek-ai/cordis';
import type { SettingsDescriptor, SettingsNamespace, SettingsProvider } from '@deepseek-ai/dsh-settings';

declare module '@deepseek-ai/cordis' {
  interface Events {
    /** 0.2: live fields of a row have changed. */
    'loader/volatile-update'(paths: readonly string[][]): void;
  }
}

/** The name of our section where the harness has sections. */
export const NAMESPACE = 'dsh-gen-limit' as SettingsNamespace;

/** The harness's settings, as far as its versions agree. */
export type Service = Pick<SettingsProvider, 'describe' | 'update' | 'writable'> & Partial<Pick<SettingsProvider, 'register'>>;

/** Where the harness keeps what the user sets for us. */
export interface Place {
  readonly ns: SettingsNamespace;
  /** Whether it lies over the row; otherwise it is the row. */
  readonly over: boolean;
}

/** Takes our place among the settings, for as long as the context lives. Throws if somebody has it, or what is there is no section. */
export function take(ctx: Context, service: Service, base: unknown, changed: () => void): Place | undefined {
  const row = ctx.fiber.entry?.options.id;
  if (service.register === undefined) return row === undefined ? undefined : { ns: row as SettingsNamespace, over: false };
  if (described(service, NAMESPACE) !== undefined) throw new Error(`another row has the settings "${NAMESPACE}" already`);
  service.register(NAMESPACE, Config as never, { base: base as object }).watch(changed);
  return { ns: NAMESPACE, over: true };
}

/** What the settings tell of a place. */
export function described(service: Service, ns: SettingsNamespace): SettingsDescriptor | undefined {
  return service.describe().find((descriptor) => descriptor.ns === ns);
}

/** Tells of edits of the row that the harness makes without restarting us. */
export function onRowEdit(ctx: Context, changed: (config: unknown) => void): void {
  ctx.on('internal/update', (next) => {
    // Not calling the rest of the chain keeps the harness from restarting us for an edit; this is what else the rest does.
    ctx.fiber.config = next;
    changed(plain(next));
  });
  ctx.on('loader/volatile-update', () => changed(plain(ctx.fiber.config)));
}

/** How the harness writes to a live value, whichever copy of its library it has. */
const WRITE = Symbol.for('cosmokit.volatile.write');

/** A row's configuration as it is now, whether it is live or not. */
export function plain(config: unknown): unknown {
  return isLive(config) ? config.get() : config;
}

function isLive(config: unknown): config is { get(): unknown } {
  return typeof config === 'object' && config !== null && WRITE in config;
}

function live(config: unknown): unknown {
  let current = config;
  return Object.freeze({ get: () => current, [WRITE]: (next: unknown) => void (current = next) });
}

/** Any value at all, live. */
export const Config = Object.assign((value: unknown): unknown => value, {
  [Symbol.for('schemastery')]: true,
  type: 'any',
  meta: { volatile: true },
  '~standard': { version: 1, vendor: 'schemastery', validate: (value: unknown) => ({ value: live(value) }) } as const,
  /** As schemastery writes `any`. */
  toJSON: () => ({ uid: 0, refs: { 0: { type: 'any', meta: { volatile: true } } } }),
  /** What is stored of a value. */
  simplify: plain,
});
