/**
 * Who owns a call.
 *
 * Nothing in the harness keeps the calls of one row from another: whoever listens to `llm/stream` hears them all. So there is
 * one listener in a harness, however many rows there are, and it hands every call to the one row that owns it, or to none:
 *
 * | rows | own |
 * |---|---|
 * | inside an agent preset | the calls of that preset's agents |
 * | of the host, with a `tenant` that names a session, a folder or a preset | the calls it names |
 * | of the host, without | the rest |
 *
 * In this order, which [tenant.ts](tenant.ts) has in detail. Among rows that name the same the first that was mounted owns it all, and
 * the others say once that they own nothing. A call that is nobody's passes as if we were not there.
 *
 * # What follows from owning
 *
 * The owner's gate counts the call, alone, and is told of its end, whatever has become of rows and their conditions meanwhile:
 * those decide about new calls only. A row that goes lets its calls go, like the only row there is; the calls that follow belong to
 * whoever names them now. Ids of calls mean something to the gate that gave them and to no other, so what runs keeps its gate
 * beside its id.
 *
 * # The host's row
 *
 * One row speaks for the operator: the first of the host's without conditions, or if all have some, the first of the host's. It has the
 * routes without a name, and its `ceilings` are everybody's. The harness's settings belong to the first of the host's that has no
 * conditions where it stands: those that a user adds in the settings do not take them away, or there would be no way back.
 *
 * # Life
 *
 * It is made by the first row of a harness and ends with the last. It lives at the root, on `globalThis`, where another copy of this
 * module finds it too: what it is to hear in the few milliseconds between two mountings it hears.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Context } from '@deepseek-ai/cordis';
import type { GenerateOptions, StreamChunk } from '@deepseek-ai/dsh-llm';
import type { Agent } from '@deepseek-ai/dsh-agent';
import type { Session } from '@deepseek-ai/dsh-session';
import type {} from '@deepseek-ai/dsh-subagent';
import type {} from '@deepseek-ai/dsh-tools';
import type * as Addon from '../../node/index.d.ts';
import type { ScopeKey } from './compat/scope.ts';
import { Sessions } from './compat/sessions.ts';
import { Dropped } from './dropped.ts';
import { describe, type Gate } from './gate.ts';
import { reporter } from './report.ts';
import { Spawns } from './spawns.ts';
import { GatedStream, type Running } from './stream.ts';
import { closeness, isCloser, isOpen, Origin, pathOf, segment, type Closeness, type Selector } from './tenant.ts';
import { Transport, type Scale } from './transport.ts';
import type { Address, Neighbour } from './web.ts';

/** Changes when `Hub` or `Tenant` does, so that copies of this module that do not fit each other keep apart. */
const HUBS = Symbol.for('@creait/dsh-gen-limit.hubs.1');

/** How often everybody is asked at a time. A round is a seat that goes on to somebody whom it lets give up another. */
const MAX_ROUNDS = 64;

/** Before whatever anybody else does about it, wherever it happens. */
const FIRST = { prepend: true, global: true };

/** A row, as far as it matters whose a call is. */
export interface Tenant {
  readonly gate: Gate;
  /** The row's id. */
  readonly row: string;
  /** The scope it stands in; none for a row of the host. */
  readonly scope: ScopeKey | undefined;
  /** The preset that is the scope of; null if it is one that is not known. */
  readonly preset: string | null | undefined;
  /** Whether that may still become known. */
  readonly isNew: boolean;
  /** Whether the row, as it stands, names nothing. */
  readonly isPlain: boolean;
  /** What it names of the calls there are; undefined as long as that cannot be read. */
  readonly selector: Selector | undefined;
  /** What it says of ceilings. */
  readonly ceilings: unknown;
  /** One of its calls leaves, of a session if the harness has one for it. */
  called(session: Session | undefined): void;
  /** Where it is served, and whether it is the host's row, is settled anew; for a moment it may be served nowhere. */
  place(place: Place | undefined): void;
  /** It owns nothing, because somebody else does. */
  overshadowed(by: Tenant): void;
}

/** What the others make of a row. */
export interface Place extends Address {
  /** The ceilings that hold for everybody. */
  readonly ceilings: unknown;
  /** Whether it has the harness's settings. */
  readonly hasSettings: boolean;
}

export class Hub {
  readonly #root: Context;
  /** In the order of their mounting. */
  #tenants: Tenant[] = [];
  /** Those that may own something, by the scope they stand in. */
  #owners = new Map<ScopeKey | undefined, ReadonlyArray<readonly [Tenant, Selector]>>();
  /** The one that has the whole harness, if one has: then there is nothing to look up. */
  #sole: Tenant | undefined;
  #host: Tenant | undefined;
  #places = new Map<Tenant, Place>();
  /** What each was told about who overshadows it. */
  #told = new WeakMap<Tenant, Tenant>();
  /** The names that were said to be taken. */
  #renamed = new Set<string>();
  #settling = false;
  #again = false;
  readonly #within = new AsyncLocalStorage<Running>();
  readonly #spawns: Spawns;
  readonly #sessions: Sessions;
  readonly #transport: Transport;
  #dropped: Dropped | undefined;
  #pool: Addon.Pool | undefined;
  /** What was said to be wrong with pools, by scope. */
  #poolErrors: ReadonlyMap<string, string> = new Map();
  #news = false;
  #spreading = false;
  readonly #listeners: Array<() => unknown>;

  /** The hub of a harness. */
  static of(root: Context, transport?: Scale): Hub {
    const holder = globalThis as { [HUBS]?: WeakMap<object, Hub> };
    const hubs = (holder[HUBS] ??= new WeakMap());
    const hub = hubs.get(root.fiber) ?? new Hub(root, transport);
    hubs.set(root.fiber, hub);
    return hub;
  }

  private constructor(root: Context, transport: Scale | undefined) {
    this.#root = root;
    this.#sessions = new Sessions(root);
    this.#spawns = new Spawns(() => this.#listenToEnds(root));
    this.#transport = new Transport(root, this.#within, reporter(root), transport);
    this.#listeners = this.#listen(root);
  }

  /** The row that speaks for the operator. */
  get host(): Tenant | undefined {
    return this.#host;
  }

  /** The row that has the harness's settings. */
  get withSettings(): Tenant | undefined {
    return this.#tenants.find(({ scope, isPlain }) => scope === undefined && isPlain);
  }

  /** Whether there is one row only, and so nothing to keep apart. */
  get isAlone(): boolean {
    return this.#tenants.length < 2;
  }

  /** What has been dropped into the folder of plugins, from the first time that somebody asks. */
  dropped(addon: typeof Addon, path: string): Dropped | undefined {
    try {
      return (this.#dropped ??= new Dropped(addon, path, reporter(this.#root)));
    } catch (error) {
      reporter(this.#root)('error', `no plugin is loaded from a folder: ${describe(error)}`);
      return undefined;
    }
  }

  /** A row's limiter is there: it shares the seats of ceilings with the other rows, and those of named pools with other processes. */
  share(tenant: Tenant, addon: typeof Addon, name: string): void {
    const pool = (this.#pool ??= new addon.Pool(() => this.#wake(), process.env['DSH_GEN_LIMIT_POOLS']?.trim() || undefined));
    tenant.gate.onNews = () => this.#spread();
    tenant.gate.tell((limiter) => limiter.join(pool, name));
  }

  /** Another process has let go of seats, or waits for those that are held here. */
  #wake(): void {
    this.#pool?.tick();
    this.#spread();
    const errors = new Map<string, string>();
    for (const { scope, error } of this.#pool?.view() ?? []) if (error !== undefined) errors.set(scope, error);
    for (const [scope, error] of errors) {
      if (this.#poolErrors.get(scope) !== error) reporter(this.#root)('warn', `the pool of ${scope}: ${error}`);
    }
    for (const scope of this.#poolErrors.keys()) {
      if (!errors.has(scope)) reporter(this.#root)('info', `the pool of ${scope} can be used again`, true);
    }
    this.#poolErrors = errors;
  }

  /** Seats have come free for somebody, or are wanted back: everybody is asked, until that is news for nobody any more. */
  #spread(): void {
    this.#news = true;
    if (this.#spreading) return;
    this.#spreading = true;
    try {
      for (let round = 0; this.#news && round < MAX_ROUNDS; round += 1) {
        this.#news = false;
        for (const { gate } of this.#tenants) gate.collect();
      }
    } finally {
      this.#spreading = false;
    }
    // Whatever it is that does not come to an end, others have their turn.
    if (this.#news) setImmediate(() => this.#spread());
  }

  /** A row is there. */
  join(tenant: Tenant): void {
    this.#tenants.push(tenant);
  }

  /** A row is gone. */
  leave(tenant: Tenant): void {
    this.#tenants = this.#tenants.filter((other) => other !== tenant);
    this.#places.delete(tenant);
    this.renew();
    if (this.#tenants.length > 0) return;
    for (const stop of this.#listeners) stop();
    this.#spawns.stop();
    this.#sessions.stop();
    this.#transport.stop();
    this.#dropped?.stop();
    (globalThis as { [HUBS]?: WeakMap<object, Hub> })[HUBS]?.delete(this.#root.fiber);
  }

  /** What a row says of itself may have changed. Who is told of it may change something in turn. */
  renew(): void {
    this.#again = true;
    if (this.#settling) return;
    this.#settling = true;
    try {
      while (this.#again) {
        this.#again = false;
        this.#sort();
        this.#settle();
      }
    } finally {
      this.#settling = false;
    }
  }

  /** Looks who owns what. */
  #sort(): void {
    const owners = new Map<ScopeKey | undefined, Array<readonly [Tenant, Selector]>>();
    const open = this.#tenants.filter(({ scope, selector }) => scope === undefined && selector !== undefined && isOpen(selector));
    this.#host = open[0] ?? this.#tenants.find(({ scope }) => scope === undefined);
    for (const tenant of this.#tenants) {
      const { scope, selector } = tenant;
      if (selector === undefined) continue;
      const beside = owners.get(scope) ?? [];
      owners.set(scope, beside);
      const first = beside.find(([, other]) => isSame(other, selector))?.[0];
      if (first === undefined) {
        beside.push([tenant, selector]);
        this.#told.delete(tenant);
      } else if (this.#told.get(tenant) !== first) {
        this.#told.set(tenant, first);
        tenant.overshadowed(first);
      }
    }
    this.#owners = owners;
    const [first, ...others] = [...owners.values()].flat();
    this.#sole = first !== undefined && others.length === 0 && first[0].scope === undefined && isOpen(first[1]) ? first[0] : undefined;
  }

  /** Tells everybody its place. Whoever moves leaves before anybody comes. */
  #settle(): void {
    const places = this.#newPlaces();
    const moving = [...places].filter(([tenant, place]) => !isSamePlace(this.#places.get(tenant), place));
    for (const [tenant, { name }] of moving) {
      const old = this.#places.get(tenant);
      if (old !== undefined && old.name !== name) tenant.place(undefined);
    }
    this.#places = places;
    for (const [tenant, place] of moving) tenant.place(place);
  }

  #newPlaces(): Map<Tenant, Place> {
    const neighbours: Neighbour[] = [];
    const taken = new Set<string>();
    const [host, withSettings] = [this.#host, this.withSettings];
    const ceilings = host?.ceilings;
    const places = new Map<Tenant, Place>();
    for (const tenant of this.#tenants) {
      if (tenant === host || tenant.isNew) continue;
      const name = this.#name(tenant, taken);
      taken.add(name);
      neighbours.push({ name, path: pathOf('/api/dsh-gen-limit', name) });
      places.set(tenant, { name, neighbours: [], ceilings, hasSettings: tenant === withSettings });
    }
    if (host !== undefined) places.set(host, { name: undefined, neighbours, ceilings, hasSettings: host === withSettings });
    return places;
  }

  /** What a tenant is called: as it says, or by its preset, or by its row; with a number where another is called so. */
  #name({ selector, preset, row }: Tenant, taken: ReadonlySet<string>): string {
    const wanted = segment(selector?.name ?? preset ?? row);
    let name = wanted;
    for (let number = 2; taken.has(name); number += 1) name = `${wanted}-${number}`;
    if (name !== wanted && !this.#renamed.has(name)) {
      this.#renamed.add(name);
      reporter(this.#root)('warn', `another tenant is called ${wanted} already, so this one is ${name}; a name of its own is set by tenant.name`);
    }
    return name;
  }

  /** Who owns the calls of a session, or of an agent. */
  #owner(session: string | undefined, agent?: Agent): Tenant | undefined {
    if (this.#sole !== undefined) return this.#sole;
    const origin = new Origin(this.#root, session, agent);
    for (const scope of origin.scopes) {
      const owner = closest(this.#owners.get(scope) ?? [], origin);
      if (owner !== undefined) return owner;
    }
    return closest(this.#owners.get(undefined) ?? [], origin);
  }

  #listen(root: Context): Array<() => unknown> {
    const spawns = this.#spawns;
    return [
      root.on('llm/stream', (options, next) => this.#stream(options, next), FIRST),
      root.on('tools/pre-execute', (exec, next) => {
        const gate = this.#owner(exec.agent?.id, exec.agent)?.gate;
        return gate?.loading || gate?.tools.has(exec.name) ? spawns.preExecute(gate, exec, next) : next();
      }, FIRST),
      root.on('subagent/start', ({ id }) => {
        const session = this.#sessions.get(id);
        const agent = root.get('agents')?.get(id);
        const { provider, model } = agent?.options ?? {};
        const route = provider === undefined || model === undefined ? undefined : { provider, model };
        spawns.started(this.#owner(id, agent)?.gate, id, session?.header.parentSession, route, session);
      }, FIRST),
      root.on('subagent/end', ({ id }) => spawns.stopped(id), FIRST),
    ];
  }

  /**
   * The earlier of these two counts: the first never comes for a call that was stopped before its body, the second only after
   * those of the calls before it.
   */
  #listenToEnds(root: Context): () => void {
    const spawns = this.#spawns;
    const stops = [
      root.on('tools/execute', (exec, next) => (spawns.runs(exec) ? spawns.execute(exec, next) : next()), FIRST),
      root.on('tools/result', (exec, result) => void spawns.ended(exec, result), FIRST),
    ];
    return () => stops.forEach((stop) => void stop());
  }

  #stream(options: GenerateOptions, next: () => AsyncIterable<StreamChunk>): AsyncIterable<StreamChunk> {
    const { provider, model, sessionId, signal, purpose } = options;
    const tenant = this.#owner(sessionId);
    const asked = (): AsyncIterable<StreamChunk> => {
      this.#transport.renew();
      return next();
    };
    if (tenant === undefined) return asked();
    const { gate } = tenant;
    return new GatedStream({
      gate,
      provider,
      within: this.#within,
      signal,
      next: asked,
      start: () => {
        const session = this.#sessions.get(sessionId);
        const { first, spawn } = this.#spawns.calls(gate, sessionId, session);
        const around = this.#within.getStore();
        tenant.called(session);
        const info = { kind: 'stream', session: sessionId, provider, model } as const;
        return gate.startStream(info, first, spawn, around?.gate === gate ? around.id : undefined, purpose);
      },
    });
  }
}

/** Who of several names a call most closely; the first among equals. */
function closest(tenants: ReadonlyArray<readonly [Tenant, Selector]>, origin: Origin): Tenant | undefined {
  let best: { readonly tenant: Tenant; readonly close: Closeness } | undefined;
  for (const [tenant, selector] of tenants) {
    const close = closeness(selector, origin);
    if (close !== undefined && (best === undefined || isCloser(close, best.close))) best = { tenant, close };
  }
  return best?.tenant;
}

/** Whether two name the same calls. */
function isSame(one: Selector, other: Selector): boolean {
  return one.session === other.session && one.workspace === other.workspace && one.preset === other.preset;
}

function isSamePlace(one: Place | undefined, other: Place): boolean {
  if (one === undefined || one.name !== other.name || one.hasSettings !== other.hasSettings) return false;
  if (JSON.stringify(one.ceilings) !== JSON.stringify(other.ceilings)) return false;
  const told = ({ neighbours }: Place): string => neighbours.map(({ path }) => path).join(' ');
  return told(one) === told(other);
}
