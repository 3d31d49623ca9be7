/** Requests and questions against a component that does whatever a test wants, on the harness's own web server. */
import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import { Context } from '@deepseek-ai/cordis';
import WebServer from '@deepseek-ai/dsh-host-webserver';
import type { Ask, Limiter, Response } from '../../node/index.d.ts';
import { Gate } from '../src/gate.ts';
import { Requests, type Reply } from '../src/requests.ts';
import { Web } from '../src/web.ts';
import { fail, settled, temporary, until } from './support.ts';
import { CONFIG, STATS, Wire, ask, type Answer, type Asking } from './web-support.ts';

const ANSWERS = 32;
const PACKAGED = ['config', 'catalog', 'stats', 'metrics'].map((name) => `/api/dsh-gen-limit/${name}`);

/** A component and its addon, as far as requests go. */
class Fake {
  readonly requested: Array<{ id: number; method: string; path: string; query: string; headers: Array<[string, string]> }> = [];
  asks: Ask[] = [];
  responses: Response[] = [];
  /** What it does with a request as it comes. */
  onRequest: (id: number) => void = () => undefined;
  state = 'running';

  request(method: string, path: string, query: string, headers: Array<[string, string]>): number {
    const id = this.requested.push({ id: this.requested.length + 1, method, path, query, headers });
    this.onRequest(id);
    return id;
  }

  respond(id: number, status: number, headers: Array<[string, string]> = [], body = '{}'): void {
    this.responses.push({ id, status, headers, body: new TextEncoder().encode(body) });
  }

  pending = (): number => (this.asks.length + this.responses.length > 0 ? ANSWERS : 0);
  takeAsks = (): Ask[] => this.asks.splice(0);
  takeResponses = (): Response[] => this.responses.splice(0);
  tools = (): string[] => [];
  hooks = (): object => ({});
  decline = (id: number): number => {
    this.respond(id, 200, [], '"declined"');
    return this.pending();
  };
  status = (): object => ({ state: this.state, restarts: 6, lastError: 'it looped in /home/me', sha256: 'ab' });

  get limiter(): Limiter {
    return this as unknown as Limiter;
  }
}

interface Stage {
  readonly gate: Gate;
  readonly fake: Fake;
  readonly requests: Requests;
  readonly web: Web;
  readonly said: string[];
  readonly port: number;
  ask(path: string, asking?: Asking): Promise<Answer>;
}

const roots: Context[] = [];
afterEach(async () => {
  for (const root of roots.splice(0)) await root.fiber.dispose();
});

async function stage(serve: (ask: Ask) => Reply | Promise<Reply> = () => () => 0): Promise<Stage> {
  process.env['DSH_HOME'] = temporary();
  const root = new Context();
  roots.push(root);
  const said: string[] = [];
  const say = (_: string, message: string): void => void said.push(message);
  const gate = new Gate(say, undefined, false, () => false);
  const requests = new Requests(gate, serve);
  gate.onParting = () => requests.close();
  const web = new Web(root, gate, requests, say);
  web.move({ name: undefined, neighbours: [] });
  await root.plugin({ name: 'connection', apply: (ctx: Context) => void ctx.provide('connection', {}) });
  await root.plugin(WebServer as never, { host: '127.0.0.1', port: 0 } as never);
  await settled();
  const port = root.get('webServer')?.port ?? 0;
  return { gate, fake: new Fake(), requests, web, said, port, ask: (path, asking) => ask(port, path, asking) };
}

describe('before the component is there', () => {
  test('stats say that it is being loaded, the others that they cannot answer', async () => {
    const { gate, fake, ask } = await stage();
    const stats = await ask(STATS);
    assert.deepEqual([stats.status, stats.json], [200, { entries: [], host: { state: 'loading', reason: 'the component is being loaded' } }]);
    const config = await ask(CONFIG);
    assert.equal(config.status, 503);
    assert.match(config.text, /being loaded/u);
    fake.onRequest = (id) => fake.respond(id, 200, [], '{"entries":["x"]}');
    gate.open(fake.limiter);
    assert.deepEqual((await ask(STATS)).json, { entries: ['x'] });
  });

  test('a component brings paths of its own', async () => {
    const { gate, fake, web, ask } = await stage();
    assert.equal((await ask('/api/other')).status, 404);
    fake.onRequest = (id) => fake.respond(id, 200);
    gate.open(fake.limiter);
    web.serve(['/api/other', STATS]);
    assert.equal((await ask('/api/other?a=%20b&c#d')).status, 200);
    assert.deepEqual(fake.requested.map(({ path, query }) => [path, query]), [['/api/other', 'a=%20b&c']]);
    web.stop();
    for (const path of ['/api/other', STATS, CONFIG]) assert.equal((await ask(path)).status, 404);
  });
});

describe('a component that has failed', () => {
  test('stats tell what the host knows, whatever the component says', async () => {
    const { gate, fake, ask } = await stage();
    gate.open(fake.limiter);
    fake.state = 'failed-open';
    fake.onRequest = (id) => fake.respond(id, 503, [], '{"error":"not back yet"}');
    const stats = await ask(STATS);
    assert.equal(stats.status, 200);
    assert.deepEqual(stats.json, { entries: [], host: { state: 'failed-open', restarts: 6, lastError: 'it looped in …', component: 'ab', reason: 'it looped in …' } });
    assert.deepEqual([(await ask(CONFIG)).status, (await ask(STATS, { method: 'PUT' })).status], [503, 503]);
  });

  test('who waits for an answer gets 503 as soon as the component is gone', async () => {
    const { gate, fake, ask } = await stage();
    gate.open(fake.limiter);
    const asked = ask(CONFIG);
    await until(() => fake.requested.length === 1);
    gate.release();
    assert.equal((await asked).status, 503);
    assert.equal((await ask(CONFIG)).status, 503);
  });
});

describe('a component that does not answer', () => {
  test('it is given up after a bound, and a late answer reaches nobody', async ({ mock }) => {
    const { gate, fake, ask } = await stage();
    gate.open(fake.limiter);
    mock.timers.enable({ apis: ['setTimeout'] });
    const asked = ask(CONFIG);
    await until(() => fake.requested.length === 1);
    mock.timers.tick(14_999);
    await settled();
    let answered = false;
    void asked.then(() => (answered = true));
    await settled();
    assert.equal(answered, false);
    mock.timers.tick(1);
    assert.equal((await asked).status, 504);
    fake.onRequest = (id) => {
      fake.respond(1, 200, [], '"of the first"');
      fake.respond(id, 200, [], '"of the second"');
    };
    assert.equal((await ask(CONFIG)).text, '"of the second"');
  });

  test('whoever leaves while it thinks is not answered, and nobody minds', async () => {
    const { gate, fake, ask, port } = await stage();
    gate.open(fake.limiter);
    const wire = new Wire(port).write(`GET ${CONFIG} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    await until(() => fake.requested.length === 1);
    wire.socket.destroy();
    await wire.closed;
    await settled();
    fake.onRequest = (id) => {
      fake.respond(1, 200, [], 'x'.repeat(1 << 20));
      fake.respond(id, 200, [], '"the next"');
    };
    assert.equal((await ask(CONFIG)).text, '"the next"');
  });

  test('an addon that throws is a 503, not the end of the harness', async () => {
    const { gate, fake, ask, said } = await stage();
    gate.open(fake.limiter);
    fake.onRequest = () => {
      throw new Error('out of order');
    };
    assert.equal((await ask(CONFIG)).status, 503);
    assert.match(said.join('\n'), /out of order/u);
  });
});

describe('what a component may say', () => {
  test('data, in headers that concern it', async () => {
    const { gate, fake, ask } = await stage();
    gate.open(fake.limiter);
    fake.onRequest = (id) => fake.respond(id, 200, [
      ['content-type', 'text/html'], ['set-cookie', 'a=b'], ['access-control-allow-origin', '*'], ['location', 'http://evil.com'],
      ['content-security-policy', "default-src *"], ['connection', 'upgrade'], ['content-length', '1'], ['etag', '"1"'],
    ], '<script>');
    const answer = await ask(CONFIG);
    assert.equal(answer.text, '<script>');
    const { headers } = answer;
    assert.deepEqual([headers['content-type'], headers['etag']], ['text/html', '"1"']);
    for (const name of ['set-cookie', 'access-control-allow-origin', 'location']) assert.equal(headers[name], undefined, name);
    assert.match(String(headers['content-security-policy']), /default-src 'none'.*sandbox/u);
  });

  test('nothing that is no answer', async () => {
    const { gate, fake, ask, said } = await stage();
    gate.open(fake.limiter);
    for (const status of [0, 99, 101, 199, 600, 65_535]) {
      fake.onRequest = (id) => fake.respond(id, status);
      assert.equal((await ask(CONFIG)).status, 502, String(status));
    }
    fake.onRequest = (id) => fake.respond(id, 200, [['etag', 'a\r\nset-cookie: b']]);
    const answer = await ask(CONFIG);
    assert.deepEqual([answer.status, answer.headers['set-cookie'], answer.headers['etag']], [500, undefined, undefined]);
    assert.equal(said.length, 1);
    fake.onRequest = (id) => fake.respond(id, 204, [], 'a body that cannot be');
    assert.deepEqual([(await ask(CONFIG)).status, (await ask(CONFIG)).text], [204, '']);
  });

  test('it is told nothing that lets anybody in', async () => {
    const { gate, fake, ask } = await stage();
    gate.open(fake.limiter);
    fake.onRequest = (id) => fake.respond(id, 200);
    const headers = { cookie: 'dsh-auth=secret', authorization: 'Basic secret', accept: 'text/plain', 'if-none-match': '"1"', host: 'localhost' };
    assert.equal((await ask(CONFIG, { headers })).status, 200);
    assert.deepEqual(fake.requested[0]?.headers, [['accept', 'text/plain'], ['if-none-match', '"1"']]);
  });
});

describe('questions', () => {
  const answered = (fake: Fake, id: number) => (): number => {
    fake.respond(id, 200, [], `"answered ${id}"`);
    return fake.pending();
  };

  test('one that is answered at once is answered in the same step, also for the stats of the host', async () => {
    const fake = new Fake();
    const { gate, requests, ask } = await stage(({ id }) => answered(fake, id));
    gate.open(fake.limiter);
    fake.onRequest = (id) => void fake.asks.push({ id, plugin: 'gen-limit', kind: 'describe-sessions', sessions: [] });
    assert.equal(requests.stats(), 'answered 1');
    assert.equal((await ask(CONFIG)).text, '"answered 2"');
  });

  test('answers come in any order, each to the request it was asked for', async () => {
    const fake = new Fake();
    const waiting: Array<() => void> = [];
    const { gate, requests, ask } = await stage(({ id }) => new Promise((resolve) => waiting.push(() => resolve(answered(fake, id)))));
    gate.open(fake.limiter);
    fake.onRequest = (id) => void fake.asks.push({ id, plugin: 'gen-limit', kind: 'list-models', provider: 'box' });
    const asked = [];
    for (let count = 1; count <= 3; count += 1) {
      asked.push(ask(CONFIG));
      await until(() => waiting.length === count);
    }
    assert.deepEqual(requests.stats(), { error: 'the component did not answer: late' });
    for (const answer of waiting.toReversed()) {
      answer();
      await settled();
    }
    assert.deepEqual((await Promise.all(asked)).map(({ text }) => text), ['"answered 1"', '"answered 2"', '"answered 3"']);
  });

  test('an answer for a component that is gone is nobody\'s', async () => {
    const fake = new Fake();
    let answer = (): void => undefined;
    const { gate, ask, said } = await stage(({ id }) => new Promise((resolve) => (answer = () => resolve(answered(fake, id)))));
    gate.open(fake.limiter);
    fake.onRequest = (id) => void fake.asks.push({ id, plugin: 'gen-limit', kind: 'read-settings' });
    const asked = ask(CONFIG);
    await until(() => fake.requested.length === 1);
    gate.release();
    assert.equal((await asked).status, 503);
    answer();
    await settled();
    assert.deepEqual([fake.responses, said], [[], []]);
  });

  test('an answer that cannot be put, or never comes, is declined', async () => {
    const fake = new Fake();
    let serve = (): Reply | Promise<Reply> => fail('not asked yet');
    const { gate, ask, said } = await stage(() => serve());
    gate.open(fake.limiter);
    fake.onRequest = (id) => void fake.asks.push({ id, plugin: 'gen-limit', kind: 'list-models', provider: 'box' });
    const wrong: Reply = () => fail('of a wrong type');
    for (const way of [() => wrong, async () => wrong, () => Promise.reject(undefined)]) {
      serve = way;
      assert.equal((await ask(CONFIG)).text, '"declined"');
    }
    assert.deepEqual(said, []);
  });
});

describe('many at once', () => {
  test('those that wait keep nobody from the other paths, and there are less than the runtime holds', async () => {
    const { gate, fake, web, ask } = await stage();
    gate.open(fake.limiter);
    const own = Array.from({ length: 4 }, (_, n) => `/api/own-${n}`);
    web.serve(own);
    const slow = [...PACKAGED.filter((path) => path !== STATS), ...own];
    const asked = slow.flatMap((path) => Array.from({ length: 10 }, () => ask(path)));
    await until(() => fake.requested.length === 30);
    const refused: Answer[] = [];
    for (const answer of asked) void answer.then((answer) => answer.status === 503 && refused.push(answer));
    await until(() => refused.length === asked.length - 30);
    assert.ok(refused.every(({ headers }) => headers['retry-after'] === '1'));
    for (const path of slow) assert.ok(fake.requested.filter((request) => request.path === path).length <= 7, path);
    for (const { id } of fake.requested) fake.respond(id, 200);
    gate.tell((limiter) => limiter.pending());
    assert.equal((await Promise.all(asked)).filter(({ status }) => status === 200).length, 30);
  });

  test('stats have a place beside everything else of the packaged component', async () => {
    const { gate, fake, ask } = await stage();
    gate.open(fake.limiter);
    const slow = PACKAGED.filter((path) => path !== STATS);
    const asked = slow.flatMap((path) => Array.from({ length: 32 }, () => ask(path)));
    await until(() => fake.requested.length === 7 * slow.length);
    fake.onRequest = (id) => fake.respond(id, 200, [], '"stats"');
    assert.equal((await ask(STATS)).text, '"stats"');
    gate.release();
    assert.ok((await Promise.all(asked)).every(({ status }) => status === 503));
  });
});

describe('a connection that ends', () => {
  test('what is sent behind a refused request never reaches the component', async () => {
    const { gate, fake, port } = await stage();
    gate.open(fake.limiter);
    fake.onRequest = (id) => fake.respond(id, 200);
    const json = 'Content-Type: application/json\r\nContent-Length: 13';
    const wire = new Wire(port).write(`POST ${CONFIG} HTTP/1.1\r\nHost: evil.com\r\n${json}\r\n\r\n{"limits":[]}`
      + `POST ${CONFIG} HTTP/1.1\r\nHost: localhost\r\n${json}\r\n\r\n{"limits":[]}`);
    await wire.closed;
    assert.deepEqual([wire.status, fake.requested], [403, []]);
  });
});
