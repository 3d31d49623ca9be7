/**
 * The configuration of a row: one document, made of what the row says and what the user's settings say over it.
 *
 * # Where it comes from
 *
 * The row is always there. Over it lies what the user stored, key by key: on dsh 0.1 the section of the harness's
 * settings; on 0.2, where the stored document is the row itself, nothing, except for as long as it takes a section that 0.1
 * stored to be taken over into the row. `text` is the whole, and nobody else puts it together.
 *
 * One row of a harness has the settings, the host's own. The harness knows our section by one name, and on 0.2 rows of presets by the
 * ids of others; so all other rows keep away from both, are what they say where they stand, and are only to be read here.
 *
 * # When it is known
 *
 * The harness mounts rows in any order, so what the user stored may come later than we do. Until the settings have come,
 * or everything is mounted and there are none, the document is not `known`: nobody should begin with it who can wait, or
 * remember it as good. Settings that go away leave everything as it was: a service that is replaced lifts no limit.
 *
 * # How it is changed
 *
 * One change after the other. Whoever does not get a turn in time is told so, and that change is never made; only of one
 * that has been handed to the harness can it be unknown what became of it. Such a one keeps the others waiting for a
 * while, not for ever, and not beyond the settings it was handed to.
 */
import { randomUUID } from 'node:crypto';
import type { Context, Fiber } from '@deepseek-ai/cordis';
import type {} from '@deepseek-ai/cordis-plugin-loader';
import type { Section, SettingsError } from '../../node/index.d.ts';
import { isObject, legacySection } from './compat/legacy.ts';
import { NAMESPACE, described, onRowEdit, plain, take, type Place, type Service } from './compat/settings.ts';
import { describe } from './gate.ts';
import type { Reporter } from './report.ts';
import type { Stored } from './stored.ts';
import { within } from './within.ts';

/** Our own section of the settings, whatever the harness's version. */
export interface Settings {
  /** The section as it is. Rejects with a `SettingsFailure`. */
  read(): Promise<Section>;
  /**
   * Changes keys of what the user stored, if it is still what `revision` names. Resolves after the harness has told of the
   * new configuration. Rejects with a `SettingsFailure`; one that is `unavailable` has stored nothing. Always settles.
   */
  update(patch: string, revision?: string): Promise<Section>;
}

/** Why the settings could not be read or changed. */
export class SettingsFailure extends Error {
  readonly kind: SettingsError['kind'];
  readonly section: Section | undefined;

  constructor(kind: SettingsError['kind'], message: string, section?: Section) {
    super(message);
    this.kind = kind;
    this.section = section;
  }
}

/** How long a start waits for the settings while other plugins are still being mounted, in milliseconds. */
const PATIENCE_MS = 5_000;
/** How often we try for our place again where somebody else has it, or what is stored there cannot be read. */
const RETRY_MS = 1_000;
/** How long a change waits for its turn, in milliseconds. */
const TURN_MS = 5_000;
/** How long the harness has to store one. It may have to wait until it sees the file change. */
const STORE_MS = 8_000;
/** The largest document that the component looks at: bytes of its JSON, and characters there that begin another value. */
const MAX_BYTES = 1 << 20;
const MAX_VALUES = 100_000;

/** Our place among the settings, while there are any. */
interface Open extends Place {
  readonly service: Service;
  /** Names this opening: revisions are counted from 0 in each, and those of an earlier one must not be taken for ours. */
  readonly epoch: string;
  /** Settles when the next change may be made. */
  turn: Promise<unknown>;
}

export class Document implements Settings {
  /** Settles as soon as the document is known, or after a while: a harness may wait for us to go on. */
  readonly ready: Promise<void>;
  /** Called after it changed, or became known. */
  onChange: () => void = () => undefined;
  /** Whether what is valid of it is in force: whoever enforces it knows. */
  isInForce: () => boolean = () => false;
  /** Whether this row is the one that has the settings. */
  hasSettings: () => boolean = () => true;
  #known = false;
  #setKnown: () => void = () => undefined;
  #row: unknown;
  /** What lies over the row. What is no object takes its place, as in the harness's own merging. */
  #user: unknown;
  /** What 0.1 stored, until it is in the row. */
  #legacy: object | undefined;
  /** Whether the harness did not let it be written there: then an edit of the row is the user's answer. */
  #stuck = false;
  #open: Open | undefined;
  #fiber: Fiber | undefined;
  /** Whether it had the settings when they came, or were looked for. */
  #had = false;
  /** How often the row has changed. */
  #edits = 0;
  #taken: Stored;
  #say: Reporter;

  constructor(taken: Stored, say: Reporter) {
    this.#taken = taken;
    this.#say = say;
    this.ready = new Promise((resolve) => (this.#setKnown = resolve));
  }

  /** The whole document, as text for the component. */
  get text(): string {
    return toJson(merge(this.#row ?? {}, this.#legacy ?? this.#user));
  }

  /** What of it is left without what the user stored. */
  get row(): string {
    return toJson(this.#row ?? {});
  }

  /** Whether it is what the user wants, as far as it can be known. */
  get known(): boolean {
    return this.#known;
  }

  /** Follows the row and the settings as a mounting sees them, until it is disposed of. */
  follow(ctx: Context, config: unknown): void {
    this.#row = plain(config);
    // Who has the settings may depend on what rows say, so they are told first.
    this.onChange();
    onRowEdit(ctx, (row) => {
      this.#row = row;
      this.#edits += 1;
      if (this.#stuck) this.#inherited();
      this.onChange();
      // A section is registered together with what it lies over.
      if (this.#open?.over === true) void this.#fiber?.restart().catch(() => undefined);
    });
    this.#had = this.hasSettings();
    this.#fiber = ctx.inject(['settings'], (inner) => this.#attach(inner));
    if (!this.#known) this.#settle(ctx.root);
  }

  /** Another row may have the settings now, or this one. */
  reconsider(): void {
    if (this.#fiber === undefined || this.#had === this.hasSettings()) return;
    this.#had = !this.#had;
    if (!this.#had) this.#user = this.#legacy = undefined;
    void this.#fiber.restart().catch(() => undefined);
    if (!this.#had) this.onChange();
  }

  /** Without settings the document is known when everything is mounted. */
  #settle(root: Context): void {
    void mounted(root).then(() => this.#know());
    setTimeout(() => this.#setKnown(), PATIENCE_MS).unref();
  }

  #know(): void {
    this.#known = true;
    this.#setKnown();
    this.onChange();
  }

  /** The settings have come. Never throws: the harness would give the row up. */
  #attach(ctx: Context): void {
    if (!this.#had) return this.#know();
    let told: string | undefined;
    const attempt = (): boolean => {
      try {
        this.#begin(ctx);
        return true;
      } catch (error) {
        const message = describe(error);
        if (message !== told) this.#say('error', `${message}; until that is put right the settings of this row cannot be changed`);
        told = message;
        return false;
      }
    };
    const begun = attempt();
    this.#know();
    if (begun) return;
    const timer = setInterval(() => {
      if (!attempt()) return;
      clearInterval(timer);
      this.onChange();
    }, RETRY_MS).unref();
    ctx.effect(() => () => clearInterval(timer), 'gen-limit settings');
  }

  #begin(ctx: Context): void {
    const service: Service = ctx.settings;
    let place: Place | undefined;
    try {
      place = take(ctx, service, this.#row, () => {
        this.#look();
        this.onChange();
      });
    } catch (error) {
      // What is stored there is no section; what it is, the harness does not tell.
      if (this.#open === undefined && described(service, NAMESPACE) === undefined) this.#user = null;
      throw error;
    }
    if (place === undefined) return;
    const open = { ...place, service, epoch: randomUUID().slice(0, 8), turn: Promise.resolve() };
    this.#open = open;
    ctx.effect(() => () => {
      if (this.#open === open) this.#open = undefined;
    }, 'gen-limit settings');
    this.#look();
    if (!open.over) this.#inherit(ctx.root);
  }

  /** Looks at what the user stored over the row. */
  #look(): void {
    if (this.#open?.over === true) this.#user = described(this.#open.service, this.#open.ns)?.user;
  }

  /** What 0.1 stored is in force at once, and in the row as soon as the harness can write it there. */
  #inherit(root: Context): void {
    try {
      const section = legacySection();
      if (section === undefined || this.#taken.read() === JSON.stringify(section)) return;
      this.#legacy = section;
    } catch (error) {
      this.#say('warn', `what dsh 0.1 stored could not be read and is not taken over: ${describe(error)}`);
      return;
    }
    void mounted(root).then(async () => {
      try {
        await this.#write(this.#opened());
      } catch (error) {
        if (this.#legacy === undefined) return;
        this.#stuck = true;
        this.#say('warn', `what dsh 0.1 stored is in force until the row is edited, but could not be written there: ${describe(error)}`);
      }
    });
  }

  async read(): Promise<Section> {
    return this.#had ? this.#section(this.#opened()) : this.#readOnly();
  }

  async update(patch: string, revision?: string): Promise<Section> {
    if (!this.#had) throw new SettingsFailure('read-only', 'the configuration of this tenant is changed where its row stands');
    const open = this.#opened();
    const change = fromJson(patch);
    if (!isObject(change)) throw new SettingsFailure('invalid', `expected an object of keys to change, found ${patch.slice(0, 40)}`);
    if (!open.service.writable) throw new SettingsFailure('read-only', 'this harness does not let its settings be changed');
    const [, epoch, count] = revision?.match(/^([0-9a-f]+)\.(\d+)$/u) ?? [];
    if (revision !== undefined && epoch !== open.epoch) throw this.#conflict(open);
    await this.#write(open, change, count === undefined ? undefined : Number(count));
    try {
      return await this.read();
    } catch {
      throw new SettingsFailure('other', 'it is stored, but the settings went away meanwhile; what it is now is seen by reading again');
    }
  }

  /** Makes one change after the other: what 0.1 stored goes before what the user changes, or with it. */
  #write(open: Open, change?: object, revision?: number): Promise<void> {
    const { turn } = open;
    const written = this.#expect(open, revision)
      .then(() => within(TURN_MS, () => turn, new SettingsFailure('unavailable', 'others are being stored; nothing was, try again')))
      .then(() => within(STORE_MS, () => this.#store(open, change, revision), new SettingsFailure('other', UNANSWERED)));
    open.turn = Promise.allSettled([turn, written]);
    return written;
  }

  async #store(open: Open, change: object | undefined, revision: number | undefined): Promise<void> {
    await this.#expect(open, revision);
    const legacy = this.#legacy;
    if (legacy === undefined && change === undefined) return;
    if (change !== undefined) checkSize(toJson(merge(merge(this.#row ?? {}, legacy ?? this.#user), change)));
    try {
      await open.service.update(open.ns, { ...legacy, ...change }, revision);
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'SETTINGS_CONFLICT') throw this.#conflict(open);
      // It was not its turn yet in the harness, which drops what was to be stored for somebody who is gone.
      if (open !== this.#open) throw gone();
      throw new SettingsFailure('other', describe(error));
    }
    if (legacy !== undefined) {
      this.#inherited();
      this.#say('info', 'took what dsh 0.1 stored in settings.yaml over into the row', true);
    }
    this.#look();
    this.onChange();
  }

  /** From now on the row says it, and what the user changes or removes there stays so. */
  #inherited(): void {
    const section = this.#legacy;
    this.#legacy = undefined;
    this.#stuck = false;
    try {
      this.#taken.write(JSON.stringify(section));
    } catch (error) {
      this.#say('warn', `that could not be noted, so the next start will do it again: ${describe(error)}`);
    }
  }

  /** Rejects if the settings are not there any more, or not what a change is meant for. */
  async #expect(open: Open, revision: number | undefined): Promise<void> {
    if (open !== this.#open) throw gone();
    if (revision !== undefined && described(open.service, open.ns)?.revision !== revision) throw this.#conflict(open);
  }

  #opened(): Open {
    const open = this.#open;
    if (open === undefined) throw gone();
    return open;
  }

  #section({ service, ns, epoch }: Open): Section {
    const descriptor = described(service, ns);
    if (descriptor === undefined) throw gone();
    const { base = {}, user = {}, revision } = descriptor;
    return {
      value: this.text,
      base: toJson(base),
      user: toJson(user),
      inForce: this.isInForce(),
      writable: service.writable,
      revision: `${epoch}.${revision}`,
    };
  }

  /** Of a row without settings there is nothing but the row. */
  #readOnly(): Section {
    const text = this.row;
    return { value: this.text, base: text, user: '{}', inForce: this.isInForce(), writable: false, revision: `row.${this.#edits}` };
  }

  #conflict(open: Open): SettingsFailure {
    return new SettingsFailure('conflict', 'it was changed since it was read', this.#section(open));
  }
}

const UNANSWERED = 'the harness did not answer in time; what became of the change is seen by reading again';

function gone(): SettingsFailure {
  return new SettingsFailure('unavailable', 'there are no settings for this row now');
}

/** Refuses what would be stored but could never be in force. */
function checkSize(json: string): void {
  const bytes = Buffer.byteLength(json);
  const values = json.match(/[,[{]/gu)?.length ?? 0;
  if (bytes <= MAX_BYTES && values <= MAX_VALUES) return;
  const found = bytes > MAX_BYTES ? `${bytes} bytes, more than the ${MAX_BYTES}` : `${values} values, more than the ${MAX_VALUES}`;
  throw new SettingsFailure('invalid', `with this change the configuration would have ${found} it may have`);
}

/** Settles when everything is mounted, or has failed to be. */
async function mounted(root: Context): Promise<void> {
  try {
    await root.get('loader')?.await();
  } catch {
    // What failed is the harness's to tell.
  }
}

/** One layer over another, as the harness lays them. */
function merge(under: unknown, over: unknown): unknown {
  if (over === undefined) return under;
  return isObject(under) && isObject(over) ? { ...under, ...over } : over;
}

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A configuration as text for the component. What JSON cannot say becomes text too, so that it is seen. */
function toJson(config: unknown): string {
  const visible = (_key: string, value: unknown): unknown => {
    if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
    return typeof value === 'bigint' || typeof value === 'symbol' || typeof value === 'function' ? String(value) : value;
  };
  try {
    return JSON.stringify(config, visible);
  } catch {
    // YAML can say so.
    return '"something that contains itself"';
  }
}
