/** Backends that keep silent, a transport that gives up early, and a harness whose providers declare things. */
import { channel, subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { SettingsProvider, type SettingsNamespace } from '@deepseek-ai/dsh-settings';
import { Config } from '../src/compat/settings.ts';
import { World, fail, type Making } from './support.ts';

/** What the transport waits for by itself here, instead of the 300 s that nobody has time for. Its timers are up to 1 s late. */
export const DEFAULT_MS = 300;
/** What a patient provider declares, longer than any test. */
export const PATIENT_MS = 120_000;
export const GRACE_MS = 30;

export const CREATED = 'undici:request:create';

type Slots = Record<symbol, Dispatcher | undefined>;

/** A dispatcher, as far as tests deal with it. */
export interface Dispatcher {
  dispatch(options: object, handler: object): boolean;
  close(): Promise<void>;
}

type Kind = new (options: object) => Dispatcher;

/** Where Node and undici keep the dispatcher of `fetch`. */
export const SLOTS = [Symbol.for('undici.globalDispatcher.1'), Symbol.for('undici.globalDispatcher.2')] as const;

/** The dispatchers of the process. */
export function dispatchers(): Array<Dispatcher | undefined> {
  return SLOTS.map((slot) => (globalThis as never as Slots)[slot]);
}

/** Puts a dispatcher in the place of the one there is; gives what puts the old one back. */
export function install(make: (kind: Kind, old: Dispatcher) => Dispatcher): () => void {
  const slots = globalThis as never as Slots;
  const [first, second] = dispatchers();
  const newest = second ?? first ?? fail('fetch has not made its dispatcher');
  const made = make(newest.constructor as Kind, newest);
  // Where there are two kinds, the first is a shell of the second.
  const Shell = first?.constructor as new (of: Dispatcher) => Dispatcher;
  slots[SLOTS[0]] = second === undefined || first?.constructor === second.constructor ? made : new Shell(made);
  if (second !== undefined) slots[SLOTS[1]] = made;
  return () => {
    slots[SLOTS[0]] = first;
    if (second !== undefined) slots[SLOTS[1]] = second;
  };
}

/** Makes `fetch` give up after `DEFAULT_MS`, with the dispatcher that Node itself would use. */
export async function hasten(): Promise<void> {
  await fetch('data:,');
  // In a tunnel, because a proxy that is asked for whole URLs is not always told these timeouts.
  install((Kind) => new Kind({ headersTimeout: DEFAULT_MS, bodyTimeout: DEFAULT_MS, proxyTunnel: true }));
}

/** A backend: `/headers/9` keeps silent for 9 ms before them, `/body/9` in the middle of its body, `/` not at all. */
export class Silent {
  #server: Server;
  private constructor() {
    this.#server = createServer(({ url = '' }, response) => {
      const [, place, silence = 0] = url.split('/');
      if (place === 'body') response.write('half');
      const timer = setTimeout(() => response.end('whole'), Number(silence));
      response.once('close', () => clearTimeout(timer));
    });
  }

  static async start(): Promise<Silent> {
    const silent = new Silent();
    silent.#server.listen(0, '127.0.0.1');
    await once(silent.#server, 'listening');
    return silent;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** A proxy whose tunnels all lead to the same backend. */
export class Proxy {
  #server: Server;
  /** The hosts it was asked for. */
  readonly hosts: string[] = [];

  private constructor({ origin }: Silent) {
    const { hostname, port } = new URL(origin);
    this.#server = createServer().on('connect', ({ url = '' }, client) => {
      this.hosts.push(url.replace(/:80$/u, ''));
      const backend = connect(Number(port), hostname, () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n');
        client.pipe(backend).pipe(client);
      });
      client.once('error', () => backend.destroy()).once('close', () => backend.destroy());
      backend.once('error', () => client.destroy());
    });
  }

  static async start(backend: Silent): Promise<Proxy> {
    const proxy = new Proxy(backend);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** How two requests end that hear nothing for a while, before the headers and in the body. */
export function silences(origin: string, ms: number): Promise<string[]> {
  return Promise.all([get(`${origin}/headers/${ms}`), get(`${origin}/body/${ms}`)]);
}

/** What becomes of them when they are waited for, and when they are not. */
export const WHOLE = ['whole', 'whole'];
export const CUT = ['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'];

/** The silence that shows that somebody waits, and the one that shows that nobody does: well before and after. */
export const LONG_MS = 2_000;
export const ENDLESS_MS = 15_000;

/** How a request ends: `whole`, or the code of the timeout that cut it off. */
export async function get(url: string): Promise<string> {
  try {
    const text = await (await fetch(url)).text();
    return text.endsWith('whole') ? 'whole' : text;
  } catch (error) {
    const { cause } = error as { cause?: { code?: string } };
    return cause?.code ?? String(error);
  }
}

/** Whether anybody listens to the requests of the process. */
export function listened(): boolean {
  return channel(CREATED).hasSubscribers;
}

/** The timeouts of the requests that `work` makes, for headers and body. */
export async function timeouts(work: () => unknown): Promise<Array<readonly [unknown, unknown]>> {
  const created: Array<{ headersTimeout?: unknown; bodyTimeout?: unknown }> = [];
  const note = (message: unknown): void => void created.push((message as { request: object }).request);
  subscribe(CREATED, note);
  try {
    await work();
  } finally {
    unsubscribe(CREATED, note);
  }
  return created.map(({ headersTimeout, bodyTimeout }) => [headersTimeout, bodyTimeout]);
}

/** Provider settings that live in memory; the rest is the harness's own. */
class Settings extends SettingsProvider {
  static document: Record<string, unknown> = {};
  readonly writable = true;

  protected override load(): Promise<Record<string, unknown>> {
    return Promise.resolve(Settings.document);
  }

  protected override persist(): Promise<void> {
    return Promise.resolve();
  }
}

/** What the settings of providers say, by provider. */
export type Declared = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/** Where they say it. */
export const NS = 'wire' as SettingsNamespace;

/** A harness with providers that declare. */
export class Wired extends World {
  #declared: Declared;
  /** What calls do at their backend, by session. */
  #works = new Map<string, () => Promise<void>>();
  #sessions = 0;

  static async with(declared: Declared, making: Making = {}): Promise<Wired> {
    const world = new Wired(declared);
    world.backend.onCall = (call) => {
      void world.#works.get(call.session ?? '')?.().finally(() => call.end());
    };
    await world.start({ ...making, parts: { transport: { defaultMs: DEFAULT_MS, graceMs: GRACE_MS }, ...making.parts } });
    return world;
  }

  constructor(declared: Declared) {
    super();
    this.#declared = declared;
  }

  protected override async furnish(): Promise<void> {
    Settings.document = { [NS]: { providers: this.#declared } };
    await this.ctx.plugin(Settings as never, {} as never);
    // As the adapters of the harness do it: the directory first, the section once there are settings.
    await this.ctx.plugin({
      name: 'wire',
      inject: ['llm'],
      apply: (ctx: World['ctx']) => {
        const entries = ['box', 'other'].map((provider) => ({
          provider, displayName: provider, settingsNs: NS, settingsPath: ['providers', provider],
        }));
        ctx.llm.registerConfigurableProviders(entries);
        ctx.inject(['settings'], (inner) => void inner.settings.register(NS, Config as never));
      },
    });
  }

  /** Stores what the providers declare from now on. */
  async declare(declared: Declared): Promise<void> {
    await this.ctx.settings.replace(NS, { providers: declared });
  }

  /** Does something as the adapter of a provider does it, in a call. */
  async inside<T>(provider: string, work: () => Promise<T>): Promise<T> {
    const session = `s${(this.#sessions += 1)}`;
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#works.set(session, () => work().then(resolve, reject));
    const reading = this.read(session, { provider });
    const result = await promise;
    await reading.done;
    return result;
  }
}
