/** One row: its gate, its configuration, its routes, tied to each other and to the hub that brings it its calls. */
import type { Context } from '@deepseek-ai/cordis';
import type { Session } from '@deepseek-ai/dsh-session';
import type { Component } from '../../node/index.d.ts';
import { answer } from './asks.ts';
import { tooOld } from './compat/harness.ts';
import { presetByPlace, presetByScope, scopeAt, type ScopeKey } from './compat/scope.ts';
import { OWN, type Chain, type Dropped } from './dropped.ts';
import { Enforcement } from './enforcement.ts';
import { Gate, describe } from './gate.ts';
import { Hub, type Place, type Tenant } from './hub.ts';
import { load, packaged, type Parts } from './load.ts';
import { inWords, reporter, type Reporter } from './report.ts';
import { Requests } from './requests.ts';
import { endingOf, leave, settle, type Living } from './row.ts';
import { Document, type Settings } from './settings.ts';
import { Stored, type Standing } from './stored.ts';
import { Acquaintances, ceilingsOf, isOpen, parsed, selectorOf, withCeilings, type Selector } from './tenant.ts';
import { Trace } from './trace.ts';
import { Web } from './web.ts';

/** Mounts the plugin on a row. */
export function mount(ctx: Context, config: unknown, parts: Parts = packaged()): void {
  try {
    settle(ctx, config, () => new Plugin(ctx, parts));
  } catch (error) {
    // Whatever it is, a harness that does not start is worse.
    reporter(ctx.root)('error', `not mounted, nothing is limited: ${describe(error)}`);
  }
}

/** What a text says of the tenant. */
interface Said {
  readonly text: string;
  readonly selector: Selector | undefined;
  readonly ceilings: unknown;
}

class Plugin implements Living, Tenant, Standing {
  readonly gate: Gate;
  readonly requests: Requests;
  readonly settings: Document;
  readonly row: string;
  readonly baseUrl: string | undefined;
  scope: ScopeKey | undefined;
  preset: string | null | undefined;
  isNew: boolean;
  #web: Web;
  #enforcement: Enforcement;
  #hub: Hub;
  #say: Reporter;
  #parts: Parts;
  /** The mounting that came last. */
  #ctx: Context;
  #known: Acquaintances;
  #name: string | undefined;
  /** Of the text that decides. */
  #read: Said | undefined;
  #hasWarned = false;
  /** Ends what came out of the folder of plugins. */
  #leave: () => void = () => undefined;
  #settingsOf: (plugin: string) => Settings = () => this.settings;

  constructor(ctx: Context, parts: Parts) {
    const { root } = ctx;
    this.#ctx = ctx;
    this.#parts = parts;
    this.#say = reporter(root, () => this.#name);
    // The profile's own rows are all included by one; its name says nothing.
    this.row = ctx.fiber.entry?.id.replace(/^include:/u, '') ?? 'gen-limit';
    this.baseUrl = ctx.baseUrl;
    this.scope = scopeAt(ctx);
    this.preset = this.scope === undefined ? undefined : (presetByPlace(ctx) ?? null);
    this.isNew = this.preset === null;
    this.settings = new Document(new Stored(this, 'taken-over'), this.#say);
    const trace = Trace.fromEnvironment(() => this.#name);
    this.gate = new Gate(this.#say, trace, false, endingOf(root));
    this.#hub = Hub.of(root, parts.transport);
    this.#known = new Acquaintances(root);
    const isKnown = (session: Session): boolean => this.#hub.isAlone || this.#known.has(session);
    this.requests = new Requests(this.gate, (ask) => answer(ask, root, ask.plugin === OWN ? this.settings : this.#settingsOf(ask.plugin), isKnown));
    const stats = (): unknown => this.requests.stats();
    this.#enforcement = new Enforcement(this.gate, this.settings, new Stored(this), stats, this.#say, (text) => this.#amend(text));
    this.settings.onChange = () => this.#changed();
    this.settings.hasSettings = () => this.#hub.withSettings === this;
    this.gate.onLog = () => {
      if (this.#enforcement.retry()) this.#hub.renew();
    };
    this.gate.onParting = (limiter) => {
      this.#leave();
      limiter.part();
      this.gate.onNews();
      trace?.stats(this.requests.stats(), limiter);
      this.requests.close();
    };
    this.#web = new Web(root, this.gate, this.requests, this.#say);
    this.#hub.join(this);
    void this.#load();
  }

  adopt(ctx: Context, config: unknown): void {
    this.#ctx = ctx;
    this.scope = scopeAt(ctx);
    this.settings.follow(ctx, config);
    this.#changed(true);
    ctx.effect(() => () => leave(ctx), 'gen-limit row');
  }

  stop(): void {
    this.#web.stop();
    this.#hub.leave(this);
  }

  get selector(): Selector | undefined {
    return this.#said.selector;
  }

  get ceilings(): unknown {
    return this.#said.ceilings;
  }

  get isPlain(): boolean {
    const selector = selectorOf(parsed(this.settings.row));
    return selector !== undefined && isOpen(selector);
  }

  get #said(): Said {
    const text = this.#enforcement.effective;
    if (this.#read?.text === text) return this.#read;
    const config = parsed(text);
    return (this.#read = { text, selector: selectorOf(config), ceilings: ceilingsOf(config) });
  }

  called(session: Session | undefined): void {
    this.#known.add(session);
  }

  place(place: Place | undefined): void {
    this.#name = place?.name;
    this.#web.move(place);
    if (place === undefined) return;
    this.settings.reconsider();
    if (this.#enforcement.renew()) this.#hub.renew();
  }

  overshadowed(by: Tenant): void {
    this.#say('warn', `row ${this.row} owns no calls: row ${by.row}, which was mounted before it, names the same`);
  }

  /** Ceilings are the operator's, whatever a row says. */
  #amend(text: string): string {
    const { host } = this.#hub;
    if (host === this) return text;
    const isSettled = host !== undefined || this.scope !== undefined;
    if (isSettled && !this.#hasWarned && ceilingsOf(parsed(text)) !== undefined) {
      this.#hasWarned = true;
      this.#say('warn', `row ${this.row}: ceilings are those of the host's row; what this one says of them is not in force`);
    }
    return withCeilings(text, host?.ceilings);
  }

  async #load(): Promise<void> {
    try {
      const old = tooOld();
      if (old !== undefined) throw new Error(old);
      const [{ addon, component, limiter }] = await Promise.all([load(this.#parts, this.#say), this.#ready()]);
      // Meanwhile the row may have gone, or another load come first.
      if (!this.gate.loading && !this.gate.failed) return;
      const { plugins } = this.#parts;
      const dropped = plugins === undefined ? undefined : this.#hub.dropped(addon, plugins);
      await dropped?.ready();
      // As above.
      if (!this.gate.loading && !this.gate.failed) return;
      this.gate.open(limiter);
      // A limiter in the folder judges the configuration in the packaged one's place.
      if (dropped !== undefined) this.#join(dropped, component);
      this.#enforcement.begin(limiter);
      this.gate.refresh();
      this.#hub.share(this, addon, this.#name ?? this.row);
      this.#web.serve(limiter.paths());
      this.#hub.renew();
      this.#enforcement.announce(limiter);
    } catch (error) {
      // As above: this failure is nobody's any more.
      if (!this.gate.loading && !this.gate.failed) return;
      this.gate.fail(describe(error));
      const effect = this.gate.closed ? 'are refused' : 'pass unlimited';
      this.#say('error', `${describe(error)}; until that is put right and the plugin restarted or its row edited, calls ${effect}`);
    }
  }

  /** What has been dropped into the folder is for this row's chain as well. */
  #join(dropped: Dropped, packaged: Component): void {
    const { gate } = this;
    const chain: Chain = {
      packaged,
      say: this.#say,
      change: (operation) => {
        let failure: string | undefined;
        gate.tell((limiter) => {
          try {
            return operation(limiter);
          } catch (error) {
            failure = describe(error);
            return limiter.pending();
          }
        });
        return failure;
      },
      replaced: () => {
        if (this.#enforcement.reconsider()) this.#hub.renew();
      },
      changed: () => {
        const refused = dropped.refused(chain).map(({ file, reason }) => ({ file, reason: inWords(reason) }));
        gate.tell((limiter) => {
          limiter.tellOfHost(JSON.stringify({ refused }));
          this.#web.serve(limiter.paths());
          return limiter.pending();
        });
        gate.refresh();
      },
    };
    this.#leave = () => dropped.leave(chain);
    this.#settingsOf = (plugin) => dropped.settingsOf(plugin, chain);
    dropped.join(chain);
  }

  /** The configuration is known, and whose it is. */
  async #ready(): Promise<void> {
    await this.settings.ready;
    if (!this.isNew) return;
    this.preset = (await presetByScope(this.#ctx)) ?? null;
    this.isNew = false;
    this.#hub.renew();
  }

  /** The configuration may have changed; whoever mounts us again may have put right what kept the component from coming up. */
  #changed(mounted = false): void {
    const changed = this.#enforcement.renew();
    this.#hub.renew();
    if (this.gate.failed && (changed || mounted)) void this.#load();
  }
}
