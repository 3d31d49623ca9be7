/** The plugin's routes in a running harness: what they answer, to whom, and to whom not. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { type Dsh, limit, MODEL, PACKAGE, PROBE, PROVIDER, ROW } from './dsh.ts';
import { PATIENCE_MS } from './patience.ts';
import { Holds, inWorld, type World } from './scenario.ts';
import { children, fanOut, gate, ROOT } from './scripts.ts';

const route = (name: string): string => `/api/dsh-gen-limit/${name}`;
const ROUTES = ['config', 'catalog', 'stats', 'metrics'].map(route);

/** Whether the harness itself asks for a login. */
async function asksForLogin(dsh: Dsh): Promise<boolean> {
  return (await fetch(dsh.origin)).status === 401;
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Sends exactly this; gives what comes back until the other side closes the connection. */
async function raw(dsh: Dsh, content: string, more?: string): Promise<Answer> {
  const socket = connect(Number(new URL(dsh.origin).port), '127.0.0.1');
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => (text += chunk)).on('error', () => undefined);
  const overdue = setTimeout(() => socket.destroy(), PATIENCE_MS);
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(content, 'latin1');
  while (more !== undefined && !socket.destroyed && socket.writable) {
    if (!socket.write(more, 'latin1')) await Promise.race([once(socket, 'drain').catch(() => undefined), closed]);
  }
  await closed;
  clearTimeout(overdue);
  return { status: Number(/^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1]), text };
}

/** The head of a request, on a connection that is closed after it. */
function head(method: string, path: string, headers: Readonly<Record<string, string>>): string {
  const lines = Object.entries({ ...headers, connection: 'close' }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`;
}

/** The headers of one who has logged in and asks from this machine. */
function own(dsh: Dsh): Record<string, string> {
  return { host: new URL(dsh.origin).host, ...dsh.loggedIn };
}

async function served(world: World): Promise<Dsh> {
  const dsh = await world.web();
  // The address is printed before every plugin has come up.
  await dsh.until('the plugin', () => /gen-limit: \d+\.\d+/.test(dsh.stderr));
  return dsh;
}

async function json(dsh: Dsh, path: string): Promise<Record<string, unknown>> {
  const response = await dsh.fetch(path);
  assert.equal(response.status, 200, path);
  return (await response.json()) as Record<string, unknown>;
}

describe('routes', { concurrency: 2 }, () => {
  test('whoever is in gets answers: what is in force, what there is, how it goes', () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await served(world);
      const config = await json(dsh, route('config'));
      assert.equal(config['status'], 'ok');
      assert.deepEqual((config['value'] as { limits: unknown }).limits, limit(2)['limits']);
      const { providers } = (await json(dsh, route('catalog'))) as { providers: Array<{ id: string; models: Array<{ id: string }> }> };
      const mock = providers.find(({ id }) => id === PROVIDER);
      assert.ok(mock?.models.some(({ id }) => id === MODEL), JSON.stringify(providers));
      const stats = (await json(dsh, route('stats'))) as { scopes: Array<{ scope: string; max: number }>; host: { state: string } };
      assert.deepEqual(stats.scopes.map(({ scope, max }) => [scope, max]), [[`${PROVIDER}/${MODEL}`, 2]]);
      assert.equal(stats.host.state, 'running');
      const metrics = await dsh.fetch(route('metrics'));
      assert.match(metrics.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
      assert.match(await metrics.text(), /^gen_limit_/m);
      const denied = await dsh.fetch(route('stats'), { method: 'DELETE' });
      assert.deepEqual([denied.status, denied.headers.get('allow')], [405, 'GET, HEAD, OPTIONS']);
    }));

  test('strangers get nothing, whatever they try', () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await served(world);
      const { host = '', ...login } = own(dsh);
      const body = '{"limits":[]}';
      const post = { 'content-type': 'application/json', 'content-length': String(body.length) };
      const tries: ReadonlyArray<readonly [string, number, string, Readonly<Record<string, string>>, string?]> = [
        ['another Host', 403, 'GET', { ...login, host: 'evil.com' }],
        ['a page of another origin', 403, 'GET', { ...login, host, origin: 'http://evil.com' }],
        ['a page of another port', 403, 'GET', { ...login, host, origin: 'http://127.0.0.1:1' }],
        ['a page without an origin', 403, 'GET', { ...login, host, origin: 'null' }],
        ['a page of another site', 403, 'GET', { ...login, host, 'sec-fetch-site': 'cross-site' }],
        ['a preflight', 403, 'OPTIONS', { ...login, host, origin: 'http://evil.com', 'access-control-request-method': 'POST' }],
        ['a POST by another Host', 403, 'POST', { ...login, ...post, host: 'evil.com' }, body],
        ['a POST of another origin', 403, 'POST', { ...login, ...post, host, origin: 'http://evil.com' }, body],
        ['a form', 415, 'POST', { ...login, ...post, host, 'content-type': 'text/plain' }, body],
        ['a wrong token', 401, 'GET', { ...login, host, authorization: 'Bearer wrong' }],
        ...((await asksForLogin(dsh)) ? [
          ['no login', 401, 'GET', { host }] as const,
          ['another login', 401, 'GET', { host, cookie: `${login['cookie']?.split('=')[0]}=v1.e30.x` }] as const,
          ['a POST without a login', 401, 'POST', { ...post, host }, body] as const,
        ] : []),
      ];
      for (const [what, status, method, headers, content = ''] of tries) {
        for (const path of ROUTES) {
          const answer = await raw(dsh, head(method, path, headers) + content);
          assert.equal(answer.status, status, `${what}, ${path}: ${answer.text}`);
          assert.doesNotMatch(answer.text, /"(?:value|providers|scopes)"|gen_limit_|access-control/i, what);
        }
      }
      const { value } = (await json(dsh, route('config'))) as { value: { limits: unknown } };
      assert.deepEqual(value.limits, limit(2)['limits']);
    }));

  test('an endless body is cut off, before a login as after it, and the harness goes on', () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await served(world);
      const chunked = { 'content-type': 'application/json', 'transfer-encoding': 'chunked' };
      const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`;
      assert.equal((await raw(dsh, head('POST', route('config'), { ...own(dsh), ...chunked }), chunk)).status, 413);
      assert.equal((await raw(dsh, head('POST', route('config'), { host: 'evil.com', ...chunked }), chunk)).status, 403);
      assert.equal((await json(dsh, route('config')))['status'], 'ok');
    }));

  test('a program brings the token of the home, from this machine only', () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await served(world);
      const file = join(world.home.dir, 'gen-limit/token');
      const { mode } = await stat(file);
      assert.equal(mode & 0o777, 0o600);
      const authorization = `Bearer ${await readFile(file, 'utf8')}`;
      const { host = '' } = own(dsh);
      assert.match((await raw(dsh, head('GET', route('metrics'), { host, authorization }))).text, /gen_limit_/);
      assert.equal((await raw(dsh, head('GET', route('metrics'), { host: 'evil.com', authorization }))).status, 403);
      await dsh.stop();
      const again = await served(world);
      const [old, now] = [authorization, `Bearer ${await readFile(file, 'utf8')}`];
      const status = async (authorization: string): Promise<number> =>
        (await raw(again, head('GET', route('metrics'), { host: own(again)['host'] ?? '', authorization }))).status;
      assert.deepEqual([await status(old), await status(now)], [401, 200], 'new at each start');
    }));

  test('a provider that does not tell its models is named and hides nobody else', () =>
    inWorld({ script: () => ({ text: 'done' }), packages: [PACKAGE, PROBE], config: limit(2) }, async (world) => {
      const dsh = await served(world);
      await dsh.probe('providers', { hangs: 'silent', fails: 'broken' });
      const { providers } = (await json(dsh, route('catalog'))) as { providers: Array<{ id: string; models: unknown[]; error?: string }> };
      const found = Object.fromEntries(providers.map(({ id, models, error }) => [id, [models.length, error]]));
      assert.deepEqual(found['silent'], [0, 'silent: no list of models within 2 s']);
      assert.deepEqual(found['broken'], [0, 'broken: cannot open …']);
      assert.deepEqual(found[PROVIDER], [2, undefined]);
    }));

  test('who holds a seat is named, with parent and root', () => {
    const held = gate();
    const script = fanOut({ n: 2, background: true, until: held.opened });
    return inWorld({ script, config: limit(2) }, async (world) => {
      const dsh = await served(world);
      const root = await dsh.prompt(`[s:${ROOT}] delegate`);
      await world.server.until('both children', () => children(2).every((child) => world.server.generating.includes(child)));
      const { holders } = (await json(dsh, route('stats'))) as { holders: Array<Record<'session' | 'label' | 'parent' | 'root', string>> };
      const found = holders.filter(({ parent }) => parent === root);
      assert.equal(found.length, 2, JSON.stringify(holders));
      assert.ok(found.every((holder) => holder.root === root && typeof holder.label === 'string'), JSON.stringify(holders));
      held.open();
      await world.server.until('the end', () => children(2).every((child) => world.server.completed(child)));
    });
  });

  test('without a component the host answers for it', () => {
    const holds = new Holds();
    return inWorld({ script: holds.script, config: limit(2) }, async (world) => {
      await writeFile(join(world.home.installed, 'gen-limit.wasm'), 'no component');
      const dsh = await world.web();
      await dsh.until('the failure', () => /gen-limit: .*calls pass unlimited/.test(dsh.stderr));
      const stats = (await json(dsh, route('stats'))) as { entries: unknown[]; host: { state: string; reason: string } };
      assert.deepEqual([stats.entries, stats.host.state], [[], 'failed-open']);
      assert.match(stats.host.reason, /GEN_LIMIT_LOAD.*not WebAssembly/);
      assert.equal(JSON.stringify(stats).includes(world.home.dir), false);
      for (const path of ROUTES.filter((path) => path !== route('stats'))) assert.equal((await dsh.fetch(path)).status, 503, path);
    });
  });

  test('a row that is switched off takes its routes with it', () =>
    inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
      const dsh = await served(world);
      await json(dsh, route('stats'));
      await world.home.patch([{ id: ROW, disabled: true }]);
      const overdue = AbortSignal.timeout(PATIENCE_MS);
      while ((await dsh.fetch(route('stats'))).status === 200) overdue.throwIfAborted();
      for (const path of ROUTES) assert.notEqual((await dsh.fetch(path)).status, 200, path);
    }));
});
