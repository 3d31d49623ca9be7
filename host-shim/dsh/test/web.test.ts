/** Routes on the harness's own web server: where they are, who gets in, what comes out. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { MAX_BODY } from '../src/body.ts';
import { limit, settled, temporary, until } from './support.ts';
import { CONFIG, STATS, WebWorld } from './web-support.ts';

const PATHS = ['config', 'catalog', 'stats', 'metrics'].map((name) => `/api/dsh-gen-limit/${name}`);
const JSON_BODY = { 'content-type': 'application/json' };

describe('where routes are', () => {
  test('the component answers, and what it knows of its host comes along', async () => {
    const world = await WebWorld.make({ config: limit(2) });
    world.read('a');
    await settled();
    const answer = await world.ask(STATS);
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.json['entries'], [{ provider: 'box', model: 'm', active: 1, waiting: 0 }]);
    assert.equal((answer.json['host'] as Record<string, unknown>)['state'], 'running');
    assert.match(String(answer.headers['content-type']), /^application\/json/u);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.equal(answer.headers['access-control-allow-origin'], undefined);
  });

  test('a restarted or replaced row answers all the time, with its counts', async () => {
    const world = await WebWorld.make({ config: limit(2) });
    world.read('a');
    await settled();
    for (const change of [() => world.restart(), () => world.replace()]) {
      const changing = change();
      const between = await world.ask(STATS);
      await changing;
      for (const answer of [between, await world.ask(STATS)]) {
        assert.deepEqual(answer.json['entries'], [{ provider: 'box', model: 'm', active: 1, waiting: 0 }]);
      }
    }
  });

  for (const end of ['disable', 'remove'] as const) {
    test(`after ${end} the routes are gone`, async () => {
      const world = await WebWorld.make({ config: limit(1) });
      const { gate } = world;
      await world[end]();
      await until(() => gate.limiter === undefined);
      for (const path of PATHS) assert.equal((await world.ask(path)).status, 404, path);
    });
  }

  test('a row that is enabled again answers again', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const { gate } = world;
    await world.disable();
    await until(() => gate.limiter === undefined);
    await world.ctx.loader.update('gen-limit', { disabled: null } as never);
    await until(() => world.gate !== gate && world.gate.limiter !== undefined);
    assert.equal((await world.ask(STATS)).status, 200);
  });

  test('routes come and go with the web server', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    await world.unserve();
    await world.serve();
    assert.equal((await world.ask(STATS)).status, 200);
    await world.unserve();
    const { gate } = world;
    await world.disable();
    await until(() => gate.limiter === undefined);
    await world.serve();
    assert.equal((await world.ask(STATS)).status, 404);
  });

  test('without a web server nothing is written and nothing is wrong', async () => {
    class Headless extends WebWorld {
      protected override async furnish(): Promise<void> {}
    }
    const world = new Headless();
    await world.start({ config: limit(1) });
    assert.deepEqual(readdirSync(join(world.home, 'gen-limit')).filter((name) => name.startsWith('token')), []);
    assert.equal(world.stderr.some((line) => /route|token/u.test(line)), false);
  });

  test('of two rows the first answers, the second under a name, and in its place when that has gone', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    await world.ctx.loader.create({ id: 'second', name: 'cordis:gen-limit', config: limit(7) } as never);
    await until(() => world.stderr.some((line) => /max 7/u.test(line)));
    const named = PATHS.map((path) => path.replace('dsh-gen-limit/', 'dsh-gen-limit/t/second/'));
    const max = async (path: string): Promise<unknown> => ((await world.ask(path)).json['scopes'] as Array<{ max: number }>)[0]?.max;
    assert.deepEqual([await max(STATS), await max(named[2] ?? '')], [1, 7]);
    const { gate } = world;
    await world.remove();
    await until(() => gate.limiter === undefined);
    assert.equal(await max(STATS), 7);
    for (const path of named) assert.equal((await world.ask(path)).status, 404, path);
    await world.ctx.loader.remove('second');
    while ((await world.ask(STATS)).status !== 404);
    for (const path of PATHS) assert.equal((await world.ask(path)).status, 404, path);
    assert.equal(world.stderr.some((line) => /not served/u.test(line)), false, world.stderr.join(''));
  });

  test('a path that somebody else serves is told of, the others are served', async () => {
    class Occupied extends WebWorld {
      protected override async furnish(): Promise<void> {
        await super.furnish();
        const handler = (_: unknown, response: { end(text: string): void }): void => response.end('mine');
        this.ctx.get('webServer')?.register({ kind: 'exact', path: CONFIG, handler });
      }
    }
    const world = new Occupied();
    await world.start({ config: limit(1) });
    assert.equal((await world.ask(CONFIG)).text, 'mine');
    assert.equal((await world.ask(STATS)).status, 200);
    assert.equal(world.stderr.join('').match(/config is not served: webserver: duplicate/gu)?.length, 1);
    await world.remove();
    assert.equal((await world.ask(CONFIG)).text, 'mine');
  });
});

describe('without a component', () => {
  const missing = { component: join(temporary(), 'missing.wasm') };

  test('stats say so, and the others that they cannot answer; no path of a file is told', async () => {
    const world = await WebWorld.make({ config: limit(1), parts: missing });
    const stats = await world.ask(STATS);
    assert.equal(stats.status, 200);
    assert.deepEqual(stats.json['entries'], []);
    const { state, reason } = stats.json['host'] as Record<string, string>;
    assert.equal(state, 'failed-open');
    assert.match(reason ?? '', /^GEN_LIMIT_LOAD: … /u);
    for (const path of PATHS.filter((path) => path !== STATS)) {
      const answer = await world.ask(path);
      assert.equal(answer.status, 503, path);
      assert.match(String(answer.json['error']), /GEN_LIMIT_LOAD: … /u);
      assert.doesNotMatch(answer.text, /\/tmp|\/gen-limit-|missing\.wasm/u);
    }
    assert.equal((await world.ask(STATS, { method: 'POST' })).status, 503);
  });

  test('onFailure shows', async () => {
    const world = await WebWorld.make({ config: limit(1, { onFailure: 'closed' }), parts: missing });
    assert.equal(((await world.ask(STATS)).json['host'] as Record<string, string>)['state'], 'failed-closed');
  });

  test('an addon that panics is told of, and the harness goes on', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    assert.throws(() => (world.gate.limiter as unknown as { panic(): void }).panic(), { code: 'GEN_LIMIT_PANIC' });
    const answers = await Promise.all(PATHS.map((path) => world.ask(path)));
    assert.deepEqual(answers.map(({ status }) => status), [503, 503, 200, 503]);
    assert.deepEqual(answers[2]?.json['entries'], []);
    assert.match(answers[2]?.text ?? '', /failed-open.*panic/u);
  });
});

describe('the fence, over a socket', () => {
  const refusals: Readonly<Record<string, [string, number]>> = {
    'a foreign Host': ['GET {} HTTP/1.1\r\nHost: evil.com\r\n\r\n', 403],
    'no Host': ['GET {} HTTP/1.0\r\n\r\n', 403],
    'a foreign Origin': ['GET {} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\n\r\n', 403],
    'an unparsable Origin': ['GET {} HTTP/1.1\r\nHost: localhost\r\nOrigin: ]\r\n\r\n', 403],
    'a page of another site': ['GET {} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n', 403],
    'an absolute address elsewhere': ['GET http://evil.com{} HTTP/1.1\r\nHost: evil.com\r\n\r\n', 403],
    'a preflight of a foreign page': [
      'OPTIONS {} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.com\r\nAccess-Control-Request-Method: POST\r\n\r\n', 403],
    'a foreign POST': ['POST {} HTTP/1.1\r\nHost: evil.com\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}', 403],
    'a POST of text/plain': ['POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}', 415],
    'a POST that says no type': ['POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}', 415],
    'a wrong token': ['GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n', 401],
  };

  test('whoever fails it gets nothing, and the component never hears of it', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    for (const [what, [request, status]] of Object.entries(refusals)) {
      for (const path of PATHS) {
        const wire = world.wire().write(request.replace('{}', path));
        await until(() => /\r\n\r\n.*\}$/su.test(wire.received));
        assert.equal(wire.status, status, `${what}: ${wire.received}`);
        assert.doesNotMatch(wire.received, /entries|scopes|access-control/iu, what);
        wire.socket.destroy();
      }
    }
    assert.deepEqual(world.seen, []);
    assert.equal((await world.ask(STATS)).status, 200);
  });

  test('the page of the harness itself gets in', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const headers = { host: `localhost:${world.port}`, origin: `http://localhost:${world.port}`, 'sec-fetch-site': 'same-origin' };
    assert.equal((await world.ask(STATS, { headers })).status, 200);
  });
});

describe('the login of the harness', () => {
  test('what it refuses is refused, whatever else is wrong with the request', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    for (const [rejection, status] of [[401, 401], [403, 403], [500, 403], [null, 403]] as const) {
      world.connection.requestRejection = () => rejection;
      const asked = await Promise.all([
        world.ask(STATS),
        world.ask(STATS, { method: 'DELETE' }),
        world.ask(CONFIG, { method: 'POST', headers: { 'content-type': 'text/plain' }, body: 'x' }),
      ]);
      assert.deepEqual(asked.map((answer) => answer.status), [status, status, status]);
      assert.equal(asked[0].headers['www-authenticate'], status === 401 ? 'Bearer realm="gen-limit"' : undefined);
    }
    assert.deepEqual(world.seen, []);
  });

  test('it is asked with the request, as a method of its service', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const asked: unknown[] = [];
    world.connection.requestRejection = function (this: unknown, { url }) {
      asked.push([this === world.connection || typeof this === 'object', url]);
      return undefined;
    };
    assert.equal((await world.ask(`${STATS}?scope=box%2F*`)).status, 200);
    assert.deepEqual(asked, [[true, `${STATS}?scope=box%2F*`]]);
  });

  test('one that throws lets nobody in', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    world.connection.requestRejection = () => {
      throw new Error('no idea');
    };
    assert.equal((await world.ask(STATS)).status, 403);
  });

  test('without the service that has it nothing is served', async () => {
    class Unconnected extends WebWorld {
      protected override furnish(): Promise<void> {
        return this.serve();
      }
    }
    const world = new Unconnected();
    await world.start({ config: limit(1) });
    assert.equal((await world.ask(STATS)).status, 404);
  });
});

describe('the token', () => {
  const file = (world: WebWorld): string => join(world.home, 'gen-limit', 'token');
  const bearer = (token: string): { headers: { authorization: string } } => ({ headers: { authorization: `Bearer ${token}` } });

  test('it is there for the owner alone, random, and stands in for a login', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    world.connection.requestRejection = () => 401;
    const token = readFileSync(file(world), 'utf8');
    assert.match(token, /^[\w-]{43}$/u);
    assert.equal(statSync(file(world)).mode & 0o777, 0o600);
    assert.equal(statSync(join(world.home, 'gen-limit')).mode & 0o777, 0o700);
    assert.deepEqual(readdirSync(join(world.home, 'gen-limit')).filter((name) => name.endsWith('.tmp')), []);
    assert.equal((await world.ask(STATS)).status, 401);
    assert.equal((await world.ask(STATS, bearer(token))).status, 200);
    assert.equal((await world.ask(STATS, bearer(`${token.slice(0, -1)}!`))).status, 401);
    const other = await WebWorld.make({ config: limit(1) });
    assert.notEqual(readFileSync(file(other), 'utf8'), token);
  });

  test('a folder that was open to others is closed', async () => {
    const home = temporary();
    mkdirSync(join(home, 'gen-limit'), { mode: 0o777 });
    chmodSync(join(home, 'gen-limit'), 0o777);
    await WebWorld.make({ config: limit(1), home });
    assert.equal(statSync(join(home, 'gen-limit')).mode & 0o777, 0o700);
  });

  test('rows, restarts and web servers of one process share it', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const token = readFileSync(file(world), 'utf8');
    await world.ctx.loader.create({ id: 'second', name: 'cordis:gen-limit', config: limit(2) } as never);
    await world.restart();
    await world.unserve();
    await world.serve();
    assert.equal(readFileSync(file(world), 'utf8'), token);
    assert.equal((await world.ask(STATS, bearer(token))).status, 200);
  });

  test('what another process of the same home has written holds here as well, and only that', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const token = readFileSync(file(world), 'utf8');
    writeFileSync(file(world), 'newer\n');
    assert.equal((await world.ask(STATS, bearer(token))).status, 401);
    assert.equal((await world.ask(STATS, bearer('newer'))).status, 200);
  });

  test('a file that others can read, that is empty, none or no file is no token', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    chmodSync(file(world), 0o644);
    assert.equal((await world.ask(STATS, bearer(readFileSync(file(world), 'utf8')))).status, 401);
    writeFileSync(file(world), '');
    chmodSync(file(world), 0o600);
    assert.equal((await world.ask(STATS, bearer(''))).status, 401);
    rmSync(file(world));
    assert.equal((await world.ask(STATS, bearer('x'))).status, 401);
    mkdirSync(file(world));
    assert.equal((await world.ask(STATS, bearer('x'))).status, 401);
    assert.equal((await world.ask(STATS)).status, 200);
  });

  test('a home that cannot be written costs the token and nothing else', async () => {
    const home = join(temporary(), 'file');
    writeFileSync(home, '');
    const world = await WebWorld.make({ config: limit(1), home });
    assert.equal((await world.ask(STATS)).status, 200);
    assert.match(world.stderr.join(''), /no token could be written/u);
  });
});

describe('bodies', () => {
  const post = (length: number): string =>
    `POST ${CONFIG} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
  const chunked = `POST ${CONFIG} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;

  test('up to 1 MiB reaches the component, one byte more does not', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const most = await world.ask(CONFIG, { method: 'POST', headers: JSON_BODY, body: ' '.repeat(MAX_BODY) });
    assert.notEqual(most.status, 413);
    assert.deepEqual(world.seen, [`POST ${CONFIG}`]);
    const more = await world.ask(CONFIG, { method: 'POST', headers: JSON_BODY, body: ' '.repeat(MAX_BODY + 1) });
    assert.equal(more.status, 413);
    assert.equal(more.headers.connection, 'close');
    assert.deepEqual(world.seen, [`POST ${CONFIG}`]);
  });

  test('one that only says that it is too large is not waited for', async ({ mock }) => {
    const world = await WebWorld.make({ config: limit(1) });
    mock.timers.enable({ apis: ['setTimeout'] });
    const wire = world.wire().write(post(MAX_BODY + 1));
    await until(() => wire.received.endsWith('}'));
    assert.equal(wire.status, 413);
    mock.timers.tick(1_000);
    await wire.closed;
  });

  test('an endless one is answered 413 and cut off', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const wire = world.wire().write(chunked);
    await wire.flood(`10000\r\n${'x'.repeat(0x10000)}\r\n`);
    await wire.closed;
    assert.equal(wire.status, 413);
    assert.deepEqual(world.seen, []);
    assert.equal((await world.ask(STATS)).status, 200);
  });

  test('an endless one from a stranger is not read before he is refused, and cut off', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const wire = world.wire().write(chunked.replace('localhost', 'evil.com'));
    await wire.flood(`10000\r\n${'x'.repeat(0x10000)}\r\n`);
    await wire.closed;
    assert.equal(wire.status, 403);
  });

  test('an endless one behind a GET changes nothing, and is cut off', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const wire = world.wire().write(chunked.replace('POST', 'GET').replace(CONFIG, STATS));
    await wire.flood(`10000\r\n${'x'.repeat(0x10000)}\r\n`);
    await wire.closed;
    assert.equal(wire.status, 200);
  });

  test('one that nobody reads does not cost the answer, however long that is', async () => {
    const world = await WebWorld.make({ config: { limits: Array.from({ length: 20_000 }, (_, n) => ({ provider: `p${n}`, model: 'm', max: 1 })) } });
    const plain = await world.ask(STATS);
    assert.ok(plain.text.length > 1 << 17, `${plain.text.length}`);
    const answer = await world.ask(STATS, { headers: { 'content-length': 2 }, body: '{}' });
    assert.deepEqual([answer.status, answer.headers.connection, answer.json['scopes']], [200, 'close', plain.json['scopes']]);
    const head = await world.ask(STATS, { method: 'HEAD', headers: { 'content-length': 2 }, body: '{}' });
    assert.deepEqual([head.status, head.text], [200, '']);
  });

  test('one that takes too long is answered 408 and cut off', async ({ mock }) => {
    const world = await WebWorld.make({ config: limit(1) });
    mock.timers.enable({ apis: ['setTimeout'] });
    const wire = world.wire().write(post(10)).write('{');
    await until(() => {
      mock.timers.tick(1_000);
      return wire.received !== '';
    });
    assert.equal(wire.status, 408);
    await until(() => {
      mock.timers.tick(1_000);
      return wire.socket.destroyed;
    });
    assert.deepEqual(world.seen, []);
  });

  test('types: JSON with whatever parameters, nothing else, nothing packed', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const status = async (headers: Record<string, string>, body = '{}'): Promise<number> =>
      (await world.ask(CONFIG, { method: 'POST', headers, body })).status;
    for (const type of ['application/json', 'Application/JSON', 'application/json; charset=utf-8', 'application/json ;x=y']) {
      assert.notEqual(await status({ 'content-type': type }), 415, type);
    }
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/jsonp', 'x/application/json', '']) {
      assert.equal(await status({ 'content-type': type }), 415, type);
    }
    assert.equal(await status({}), 415, 'none');
    assert.equal(await status({ ...JSON_BODY, 'content-encoding': 'gzip' }), 415, 'packed');
    assert.equal(await status({ 'content-type': 'text/plain' }, ''), 415, 'no body, but a type');
  });

  test('requests that break off leave nothing open', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    for (let round = 0; round < 100; round += 1) {
      const wire = world.wire().write(post(1000)).write('{"limits"');
      await once(wire.socket, 'connect');
      wire.socket.destroy();
    }
    const answers = await Promise.all(Array.from({ length: 7 }, () => world.ask(CONFIG)));
    assert.ok(answers.every(({ status }) => status === 200));
  });
});

describe('methods', () => {
  test('HEAD is a GET without a body', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const [get, head] = [await world.ask(STATS), await world.ask(STATS, { method: 'HEAD' })];
    assert.deepEqual([head.status, head.text], [200, '']);
    assert.equal(head.headers['content-type'], get.headers['content-type']);
    assert.ok(Number(head.headers['content-length']) > 0);
  });

  test('OPTIONS says what is allowed, others that they are not', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const options = await world.ask(STATS, { method: 'OPTIONS' });
    assert.deepEqual([options.status, options.headers['allow'], options.text], [204, 'GET, HEAD, OPTIONS', '']);
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'TRACE', 'PROPFIND']) {
      const answer = await world.ask(STATS, { method });
      assert.deepEqual([answer.status, answer.headers['allow']], [405, 'GET, HEAD, OPTIONS'], method);
    }
  });

  test('a connection is kept for the next request', async () => {
    const world = await WebWorld.make({ config: limit(1) });
    const wire = world.wire();
    for (let count = 1; count <= 3; count += 1) {
      wire.write(`GET ${STATS} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
      await until(() => wire.received.split('HTTP/1.1 200').length === count + 1);
    }
    wire.socket.destroy();
  });
});
