/** A world with the harness's own web server, and clients that say exactly what they are told to. */
import { once } from 'node:events';
import { request as httpRequest, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Context, Fiber } from '@deepseek-ai/cordis';
import WebServer from '@deepseek-ai/dsh-host-webserver';
import type { IncomingMessage } from 'node:http';
import { Harness } from './harness.ts';
import { World, fail, type Making } from './support.ts';

export const STATS = '/api/dsh-gen-limit/stats';
export const CONFIG = '/api/dsh-gen-limit/config';

/** An answer. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

/** What a request is made of, where it is not a plain GET. */
export interface Asking {
  readonly method?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
}

/** Asks as Node's own client does, on a connection of its own. */
export async function ask(port: number, path: string, { method = 'GET', headers = {}, body }: Asking = {}): Promise<Answer> {
  const request = httpRequest({ port, path, method, headers, host: '127.0.0.1', agent: false });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const content = await text(response);
  const json = (): Record<string, unknown> => JSON.parse(content) as Record<string, unknown>;
  return { status: response.statusCode ?? 0, headers: response.headers, text: content, get json() { return json(); } };
}

/** A bare connection; what comes back is kept, and whether it has been closed. */
export class Wire {
  readonly socket: Socket;
  received = '';
  readonly closed: Promise<void>;

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.setEncoding('latin1').on('data', (chunk: string) => (this.received += chunk)).on('error', () => undefined);
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  write(content: string): this {
    this.socket.write(content, 'latin1');
    return this;
  }

  /** Sends without an end, as fast as it is taken, until the connection is closed. */
  async flood(chunk: string): Promise<number> {
    let sent = 0;
    const { socket } = this;
    while (!socket.destroyed && socket.writable) {
      sent += chunk.length;
      if (!socket.write(chunk, 'latin1')) await Promise.race([once(socket, 'drain').catch(() => undefined), this.closed]);
    }
    return sent;
  }

  get status(): number {
    return Number(/^HTTP\/1\.1 (\d{3})/u.exec(this.received)?.[1] ?? fail(`no answer: ${JSON.stringify(this.received)}`));
  }
}

/** What is asked of a login, in the shape of the harness that has one. */
export interface Connection {
  requestRejection?: (request: IncomingMessage) => unknown;
}

export class WebWorld extends World {
  /** The service as rc.8 has it, without a login; a test may give it one. */
  readonly connection: Connection = {};
  /** The requests that got as far as the component, as `METHOD path`. */
  readonly seen: string[] = [];
  #server: Fiber | undefined;

  static override async make(making: Making = {}): Promise<WebWorld> {
    const world = new WebWorld(making.home);
    await world.start(making);
    const { requests } = world.living;
    const send = requests.send.bind(requests);
    requests.send = (request) => {
      world.seen.push(`${request.method} ${request.path}`);
      return send(request);
    };
    return world;
  }

  protected override async furnish(): Promise<void> {
    const { connection } = this;
    await this.ctx.plugin({ name: 'connection', apply: (ctx: Context) => void ctx.provide('connection', connection) });
    await this.serve();
  }

  /** Mounts the web server. */
  async serve(): Promise<void> {
    this.#server = await this.ctx.plugin(WebServer as never, { host: '127.0.0.1', port: 0 } as never);
  }

  /** Takes it away. */
  async unserve(): Promise<void> {
    await this.#server?.dispose();
  }

  get port(): number {
    return this.ctx.get('webServer')?.port ?? fail('there is no web server');
  }

  ask(path: string, asking?: Asking): Promise<Answer> {
    return ask(this.port, path, asking);
  }

  wire(): Wire {
    return new Wire(this.port);
  }
}

/** The agent stack with a web server. */
export class WebHarness extends Harness {
  protected override async furnish(): Promise<void> {
    await super.furnish();
    await this.ctx.plugin({ name: 'connection', apply: (ctx: Context) => void ctx.provide('connection', {}) });
    await this.ctx.plugin(WebServer as never, { host: '127.0.0.1', port: 0 } as never);
  }

  get port(): number {
    return this.ctx.get('webServer')?.port ?? fail('there is no web server');
  }
}
