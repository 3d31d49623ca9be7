/**
 * The component's routes on the harness's web server.
 *
 * They belong to the row like everything else: they are there from the moment the harness serves, before the component is, and
 * between two mountings; they go with the row. Without a component the host answers for it: stats say why, the others
 * that they cannot.
 *
 * The paths that a component names are those of the host's row; every other tenant has them under a name of its own, of which
 * its component knows nothing. The host's row alone hears that there are others.
 *
 * # Order
 *
 * The [fence](fence.ts) comes first and depends on the request alone, then the harness's login, then type and size of the
 * body, then the component, which knows its methods. A component gets no credentials, and what it answers comes out as data: it
 * sets no cookies, opens the route to no other origin, and runs no script in the harness's.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Context } from '@deepseek-ai/cordis';
import type {} from '@deepseek-ai/dsh-host-webserver';
import type { Response, Status } from '../../node/index.d.ts';
import { BODY_MS, MAX_BODY, cutOff, hasBody, read } from './body.ts';
import { isObject } from './compat/legacy.ts';
import { CONNECTION, loginRejection } from './compat/login.ts';
import { fence } from './fence.ts';
import { describe, type Gate } from './gate.ts';
import { inWords, type Reporter } from './report.ts';
import { STATS, type Answer, type Requests } from './requests.ts';
import { parsed, pathOf } from './tenant.ts';
import { isToken, writeToken } from './token.ts';

/** Where the packaged component answers. Any component's own paths are served once it is there. */
const PACKAGED = ['config', 'catalog', 'stats', 'metrics'].map((name) => `/api/dsh-gen-limit/${name}`);

/**
 * Where the harness itself answers, below `/api/`. A route of ours comes before its own, so what was dropped in under such a name could
 * hear what is meant for the harness.
 */
const HARNESS = new Set([
  'account', 'agent', 'application', 'assistant', 'client', 'command', 'commands', 'compaction', 'connection', 'cordis', 'credentials', 'fetch',
  'fs', 'gateway', 'goals', 'image', 'job', 'jobs', 'llm', 'locale', 'login', 'plan', 'plugin', 'plugins', 'rpc', 'schedule', 'session', 'sessions',
  'settings', 'slash', 'source', 'speech', 'step', 'subagent', 'subagents', 'task', 'team', 'terminal', 'text', 'theme', 'todo', 'tool', 'tools',
  'turn', 'user', 'workflow', 'workspace',
]);

/**
 * How many requests are worked on at once, less than the runtime holds open; and how many of one path, so that those that wait
 * for somebody leave a place to stats and metrics.
 */
const MAX_AT_ONCE = 30;
const MAX_OF_A_PATH = 7;

/** What the component is told of a request's headers: nothing that lets anybody in anywhere. */
const TOLD = ['accept', 'accept-language', 'content-type', 'if-match', 'if-modified-since', 'if-none-match'];
/** What it may say in headers of an answer. */
const SAID = new Set([
  'allow', 'cache-control', 'content-disposition', 'content-language', 'content-type', 'etag', 'last-modified', 'retry-after', 'vary',
]);
/** What every answer says. */
const ALWAYS: ReadonlyArray<readonly [string, string]> = [
  ['cross-origin-resource-policy', 'same-origin'],
  ['content-security-policy', "default-src 'none'; frame-ancestors 'none'; sandbox"],
  ['x-content-type-options', 'nosniff'],
];

type Reply = Pick<Response, 'status' | 'headers' | 'body'>;

/** Another tenant, and where its routes are. */
export interface Neighbour {
  readonly name: string;
  readonly path: string;
}

/** Where a row is served. */
export interface Address {
  /** The tenant's name; none for the row that the paths themselves belong to. */
  readonly name: string | undefined;
  /** Who else there is to tell of. */
  readonly neighbours: readonly Neighbour[];
}

export class Web {
  #gate: Gate;
  #requests: Requests;
  #say: Reporter;
  #paths = new Set(PACKAGED);
  #address: Address | undefined;
  /** Where there is a web server now. */
  #server: Context | undefined;
  #routes = new Map<string, () => void>();
  #dispose: () => unknown;
  /** The requests that are worked on, by path. */
  #atOnce = new Map<string, number>();

  constructor(root: Context, gate: Gate, requests: Requests, say: Reporter) {
    this.#gate = gate;
    this.#requests = requests;
    this.#say = say;
    const fiber = root.inject(['webServer', CONNECTION], (ctx) => this.#open(ctx));
    this.#dispose = () => fiber.dispose();
  }

  /** The component is there and names its paths. */
  serve(paths: readonly string[]): void {
    this.#paths = new Set([...PACKAGED, ...paths]);
    for (const [path, leave] of this.#routes) {
      if (this.#paths.has(path)) continue;
      leave();
      this.#routes.delete(path);
    }
    this.#register();
  }

  /** Is to serve there and nowhere else; without an address nowhere at all. */
  move(address: Address | undefined): void {
    const stays = address?.name === this.#address?.name && (address === undefined) === (this.#address === undefined);
    this.#address = address;
    if (stays) return;
    this.#leave();
    this.#register();
  }

  /** The row is gone. */
  stop(): void {
    this.#close();
    void this.#dispose();
  }

  #open(ctx: Context): void {
    this.#server = ctx;
    ctx.effect(() => () => this.#close(), 'gen-limit routes');
    try {
      writeToken();
    } catch (error) {
      this.#say('warn', `no token could be written, so only the harness's own page is answered: ${describe(error)}`);
    }
    this.#register();
  }

  #close(): void {
    this.#server = undefined;
    this.#leave();
  }

  #leave(): void {
    for (const leave of this.#routes.values()) leave();
    this.#routes.clear();
  }

  #register(): void {
    const [ctx, address] = [this.#server, this.#address];
    if (ctx === undefined || address === undefined) return;
    for (const path of this.#paths) {
      if (this.#routes.has(path)) continue;
      const served = address.name === undefined ? path : pathOf(path, address.name);
      const handler = (request: IncomingMessage, response: ServerResponse): Promise<void> => this.#handle(ctx, path, request, response);
      try {
        if (HARNESS.has(path.split('/')[2] ?? '')) throw new Error('the harness answers there itself; give the plugin another name');
        this.#routes.set(path, ctx.webServer.register({ kind: 'exact', path: served, handler }));
      } catch (error) {
        // Told once for each web server.
        this.#routes.set(path, () => undefined);
        this.#say('warn', `${served} is not served: ${describe(error)}`);
      }
    }
  }

  async #handle(ctx: Context, path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Behind an answer that ends its connection there is none.
    if (ending.has(request.socket)) return;
    this.#count(path, 1);
    try {
      const reply = await this.#reply(ctx, path, request);
      if (reply !== undefined) send(request, response, reply);
    } catch (error) {
      this.#say('error', `${path}: ${describe(error)}`);
      if (response.headersSent) response.destroy();
      else send(request, response, failure(500, 'this request could not be answered; why is told on the harness\'s stderr'));
    } finally {
      this.#count(path, -1);
    }
  }

  #count(path: string, more: number): void {
    this.#atOnce.set(path, (this.#atOnce.get(path) ?? 0) + more);
  }

  /** Whether this is one too many. */
  #isCrowded(path: string): boolean {
    const all = [...this.#atOnce.values()].reduce((sum, count) => sum + count);
    return all > MAX_AT_ONCE || (this.#atOnce.get(path) ?? 0) > MAX_OF_A_PATH;
  }

  /** The answer to a request; none to one that has gone. */
  async #reply(ctx: Context, path: string, request: IncomingMessage): Promise<Reply | undefined> {
    const { socket, headersDistinct: headers } = request;
    const facts = { peer: socket.remoteAddress, encrypted: 'encrypted' in socket, headers };
    const refused = fence(facts, { isToken, login: () => loginRejection(ctx, request) });
    if (refused !== undefined) {
      return failure(refused.status, refused.error, refused.status === 401 ? [['www-authenticate', 'Bearer realm="gen-limit"']] : []);
    }
    if (this.#isCrowded(path)) return failure(503, 'too many requests at once', [['retry-after', '1']]);
    const body = await bodyOf(request);
    if (!(body instanceof Uint8Array)) return body;
    const told = TOLD.flatMap((name) => headers[name]?.map((value) => [name, value] as const) ?? []);
    const method = request.method ?? 'GET';
    const answer = await this.#requests.send({ method: method === 'HEAD' ? 'GET' : method, path, query: queryOf(request), headers: told, body });
    const reply = this.#fromComponent(answer, method);
    if (path !== STATS || (method !== 'GET' && method !== 'HEAD')) return reply;
    return this.#withNeighbours(this.#withoutComponent() ?? reply);
  }

  /** Stats with what their component does not know of: who else there is. */
  #withNeighbours(reply: Reply): Reply {
    const tenants = this.#address?.neighbours ?? [];
    if (tenants.length === 0 || reply.status !== 200) return reply;
    const stats = parsed(new TextDecoder().decode(reply.body));
    if (!isObject(stats) || !('host' in stats) || !isObject(stats.host)) return reply;
    return { ...reply, body: encoded({ ...stats, host: { ...stats.host, tenants } }) };
  }

  #fromComponent(answer: Answer, method: string): Reply {
    if (answer === 'late') return failure(504, 'the component did not answer in time');
    if (answer === 'absent') return failure(503, `there is no component to answer: ${inWords(this.#gate.standing.reason)}`);
    const headers = answer.headers.filter(([name]) => SAID.has(name)).map(([name, value]): [string, string] => [name, name === 'allow' ? alsoAllowed(value) : value]);
    if (answer.status < 200 || answer.status > 599) return failure(502, `the component answered with status ${answer.status}`);
    if (method === 'OPTIONS' && answer.status === 405) return { status: 204, headers: headers.filter(([name]) => name === 'allow'), body: new Uint8Array() };
    return { status: answer.status, headers, body: answer.body };
  }

  /** What the host itself can tell, where the component does not decide. */
  #withoutComponent(): Reply | undefined {
    const status = this.#status();
    if (status?.state === 'running') return undefined;
    const { state, reason } = this.#gate.standing;
    if (status === undefined) return json(200, { entries: [], host: { state, reason: inWords(reason) } });
    // By the names that stats have for it while there is a component.
    const { sha256: component, lastError: fault = 'the component has failed', ...known } = status;
    const lastError = inWords(fault);
    return json(200, { entries: [], host: { ...known, component, lastError, reason: lastError } });
  }

  #status(): Status | undefined {
    try {
      return this.#gate.limiter?.status();
    } catch {
      return undefined;
    }
  }
}

/** Connections that end with the answer they are getting. */
const ending = new WeakSet<object>();

/** The body of a request that may have one, or the answer that it gets instead. */
async function bodyOf(request: IncomingMessage): Promise<Uint8Array | Reply | undefined> {
  const { method = 'GET', headers } = request;
  if (['GET', 'HEAD', 'OPTIONS', 'TRACE'].includes(method)) return new Uint8Array();
  const type = headers['content-type'];
  if (method === 'POST' && (hasBody(request) || type !== undefined) && !/^application\/json\s*(?:;|$)/iu.test(type ?? '')) {
    return failure(415, 'the body has to be application/json, and content-type has to say so');
  }
  if (headers['content-encoding'] !== undefined && headers['content-encoding'] !== 'identity') {
    return failure(415, 'a body in a content-encoding is not read');
  }
  const body = await read(request);
  switch (body) {
    case 'too large':
      return failure(413, `the body has more than ${MAX_BODY} bytes`);
    case 'too slow':
      return failure(408, `the body took more than ${BODY_MS / 1000} s`);
    case 'gone':
      return undefined;
    default:
      return body;
  }
}

/** What follows the `?`, as it came. */
function queryOf({ url = '' }: IncomingMessage): string {
  return /\?([^#]*)/u.exec(url)?.[1] ?? '';
}

/** What the host adds to what a component allows. */
function alsoAllowed(allow: string): string {
  const methods = new Set(allow.split(',').map((method) => method.trim()).filter(Boolean));
  if (methods.has('GET')) methods.add('HEAD');
  return [...methods.add('OPTIONS')].join(', ');
}

function failure(status: number, error: string, headers: Array<[string, string]> = []): Reply {
  const reply = json(status, { error });
  return { ...reply, headers: [...reply.headers, ...headers] };
}

function json(status: number, value: unknown): Reply {
  const headers: Array<[string, string]> = [['content-type', 'application/json; charset=utf-8'], ['cache-control', 'no-store']];
  return { status, headers, body: encoded(value) };
}

function encoded(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

function send(request: IncomingMessage, response: ServerResponse, { status, headers, body }: Reply): void {
  // Whoever has gone is not answered.
  if (response.destroyed) return;
  for (const [name, value] of [...ALWAYS, ...headers]) response.setHeader(name, value);
  response.statusCode = status;
  const bare = status === 204 || status === 304;
  if (!bare) response.setHeader('content-length', body.length);
  const sent = bare || request.method === 'HEAD' ? new Uint8Array() : body;
  if (!hasBody(request) || request.complete) {
    response.end(sent);
    return;
  }
  response.setHeader('connection', 'close');
  ending.add(request.socket);
  cutOff(request, response, sent);
}
