/**
 * Worlds whose harness has settings: on 0.1 the real ones, stored in a real file; on 0.2, whose packages npm does not have,
 * what its settings and its loader do about one row, in small.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Context, Service, type Fiber } from '@deepseek-ai/cordis';
import type { SettingsDescriptor, SettingsNamespace } from '@deepseek-ai/dsh-settings';
import FileSettings from '@deepseek-ai/dsh-settings-file';
import { Config, NAMESPACE } from '../src/compat/settings.ts';
import type { Settings } from '../src/settings.ts';
import { World, fail, settled, type Making } from './support.ts';

export type Version = '0.1' | '0.2';
export const VERSIONS: readonly Version[] = ['0.1', '0.2'];

const WRITE = Symbol.for('cosmokit.volatile.write');

/** The settings of 0.2: forms over rows. */
class RowSettings extends Service {
  writable = true;
  /** Fails the next writes. */
  broken: Error | undefined;
  // Not private to the language: the harness hands services out through proxies.
  readonly world: SettingsWorld;
  revision = 0;
  writing: Promise<unknown> = Promise.resolve();

  constructor(ctx: Context, { world }: { world: SettingsWorld }) {
    super(ctx, 'settings');
    this.world = world;
    world.forms = this;
  }

  describe(): SettingsDescriptor[] {
    const { fiber, options } = this.world.entry;
    if (fiber?.state !== (2 as never)) return [];
    const value = (fiber.config as { get(): unknown }).get();
    const form = { schema: Config.toJSON(), revision: this.revision, applies: 'live' as const, base: { limits: [] } };
    return [{ ...form, ns: options.id as SettingsNamespace, value, user: structuredClone(options.config) }];
  }

  /** One write at a time. */
  update(ns: string, patch: object, expected?: number): Promise<void> {
    const written = this.writing.then(() => this.write(ns, patch, expected));
    this.writing = written.catch(() => undefined);
    return written;
  }

  async write(ns: string, patch: object, expected?: number): Promise<void> {
    if (this.broken !== undefined) throw this.broken;
    const { options } = this.world.entry;
    if (ns !== options.id) throw new Error(`No configurable plugin entry "${ns}"`);
    if (expected !== undefined && expected !== this.revision) {
      throw Object.assign(new Error('changed since it was read'), { code: 'SETTINGS_CONFLICT' });
    }
    await settled();
    this.edit({ ...(options.config as object), ...patch });
  }

  /** What the loader does when only live values of a row changed. */
  edit(config: unknown): void {
    const { entry } = this.world;
    const fiber = entry.fiber ?? fail('the row is not mounted');
    entry.options.config = config;
    // For when it is mounted again.
    Reflect.set(fiber, '_config', config);
    this.revision += 1;
    const candidate = Config['~standard'].validate(config).value as { get(): unknown };
    (fiber.config as { [WRITE](value: unknown): void })[WRITE](candidate.get());
    const self = Object.create(fiber.ctx) as Context;
    Reflect.set(self, Context.filter, (owner: Context) => owner.fiber.uid === fiber.uid);
    fiber.ctx.emit(self, 'loader/volatile-update', [[]]);
  }
}

/** With the text of the settings file there is when the harness starts. */
export interface SettingsMaking extends Making {
  readonly version?: Version;
  readonly file?: string;
}

export class SettingsWorld extends World {
  /** On 0.2, the settings. */
  forms: RowSettings | undefined;
  readonly #version: Version | undefined;
  #service: Fiber | undefined;

  static override async make(making: SettingsMaking = {}): Promise<SettingsWorld> {
    const world = new SettingsWorld(making);
    if (making.file !== undefined) world.file = making.file;
    await world.start(making);
    return world;
  }

  constructor({ home, version }: SettingsMaking) {
    super(home);
    this.#version = version;
  }

  protected override async furnish(): Promise<void> {
    if (this.#version !== undefined) await this.provide(this.#version);
  }

  /** Mounts the settings. */
  async provide(version: Version): Promise<void> {
    const { ctx } = this;
    if (version === '0.1') this.#service = await ctx.plugin(FileSettings as never, { watch: false } as never);
    else this.#service = await ctx.plugin(RowSettings as never, { world: this } as never);
    await settled();
  }

  /** Takes them away. */
  async withdraw(): Promise<void> {
    await this.#service?.dispose();
    await settled();
  }

  /** Whether our plugin is mounted; the start may still go on. */
  get begun(): boolean {
    return this.ctx.get('loader')?.store['gen-limit']?.fiber?.state === (2 as never);
  }

  get settings(): Settings {
    return (this.living as unknown as { settings: Settings }).settings;
  }

  /** Changes the settings as the harness's own API does. */
  async change(patch: object): Promise<void> {
    await this.ctx.settings.update(this.#version === '0.2' ? ('gen-limit' as SettingsNamespace) : NAMESPACE, patch);
    await settled();
  }

  /** Somebody edits the file, and the harness sees it: what its watcher calls, without the wait for the watcher. */
  async editFile(text: string): Promise<void> {
    this.file = text;
    await (this.ctx.settings as unknown as { refresh(): Promise<void> }).refresh();
    await settled();
  }

  /** The text of the settings file. */
  get file(): string {
    return readFileSync(join(this.home, 'settings.yaml'), 'utf8');
  }

  set file(text: string) {
    writeFileSync(join(this.home, 'settings.yaml'), text);
  }

  /** What is in force of the limit on the provider every test calls. */
  get max(): number | undefined {
    return this.stats.scopes.find(({ scope }) => scope === 'box/*')?.max;
  }

  get told(): string {
    return this.stderr.join('');
  }
}
