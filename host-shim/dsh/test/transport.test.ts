/** Real servers that keep silent, real `fetch`, with a transport that gives up after 0.3 instead of 300 s. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { channel } from 'node:diagnostics_channel';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect, promisify } from 'node:util';
import {
  CREATED, CUT, ENDLESS_MS, GRACE_MS, LONG_MS, NS, PATIENT_MS, Proxy, Silent, WHOLE, Wired, dispatchers, get, hasten, install, listened,
  silences, timeouts, type Dispatcher,
} from './transport-support.ts';
import { Config } from '../src/compat/settings.ts';
import { until } from './support.ts';

const patient = (baseURL?: string, streamIdleTimeoutMs: unknown = PATIENT_MS): Record<string, unknown> =>
  ({ streamIdleTimeoutMs, ...(baseURL === undefined ? {} : { baseURL }) });

/** What everybody gets who is not waited for. */
const UNTOUCHED = [[undefined, undefined]] as const;
const waits = (declared: number) => [[declared + GRACE_MS, declared + GRACE_MS]] as const;

let a: Silent;
let b: Silent;

before(async () => {
  await hasten();
  [a, b] = [await Silent.start(), await Silent.start()];
});

after(() => {
  a.stop();
  b.stop();
});

const waitFor = ({ origin }: Silent): Promise<string[]> => silences(origin, LONG_MS);
const waitInVain = ({ origin }: Silent): Promise<string[]> => silences(origin, ENDLESS_MS);

describe('patience', () => {
  test('a call waits for its own provider, before the headers and in the body, and for nobody else', async () => {
    const world = await Wired.with({ box: patient(`${a.origin}/v1`) });
    const [own, elsewhere, others] = await world.inside('box', () =>
      Promise.all([waitFor(a), waitInVain(b), world.inside('other', () => waitInVain(a))]));
    assert.deepEqual({ own, elsewhere, others }, { own: WHOLE, elsewhere: CUT, others: CUT });
  });

  test('without us, and without a declaration, silence ends a request', async () => {
    assert.deepEqual(await waitInVain(a), CUT);
    const world = await Wired.with({ box: { baseURL: a.origin } });
    assert.deepEqual(await world.inside('box', () => waitInVain(a)), CUT);
  });

  test('a call of a provider without an address waits wherever it asks', async () => {
    const world = await Wired.with({ box: patient() });
    const [calls, nobodys] = await Promise.all([world.inside('box', () => Promise.all([waitFor(a), waitFor(b)])), waitInVain(a)]);
    assert.deepEqual({ calls, nobodys }, { calls: [WHOLE, WHOLE], nobodys: CUT });
  });

  test('outside any call a declared address is waited for', async () => {
    const world = await Wired.with({ box: patient(`${a.origin}/v1`) });
    await until(listened);
    assert.deepEqual(await Promise.all([waitFor(a), waitInVain(b)]), [WHOLE, CUT]);
    assert.equal(world.backend.calls.length, 0);
  });

  test('a request made late in a call is as patient as one made at its start', async () => {
    const world = await Wired.with({ box: patient(a.origin) });
    const ends: string[][] = [];
    const off = world.ctx.on('llm/stream', async function* () {
      yield { type: 'text-delta', index: 0, text: 'x' };
      await new Promise(setImmediate);
      yield { type: 'text-delta', index: 0, text: 'y' };
      ends.push(await waitFor(a));
    });
    await world.read('s').done;
    off();
    assert.deepEqual(ends, [WHOLE]);
  });

  test('what a call has left behind is no call any more', async () => {
    const world = await Wired.with({ box: patient() });
    let later: Promise<unknown> = Promise.resolve();
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    await world.inside('box', async () => void (later = ended.then(() => timeouts(() => get(b.origin)))));
    end();
    assert.deepEqual(await later, UNTOUCHED);
  });
});

describe('timeouts', () => {
  const inside = (world: Wired, provider = 'box', url = `${a.origin}/`): Promise<unknown> =>
    timeouts(() => world.inside(provider, () => get(url)));

  test('are what is declared and the grace', async () => {
    const world = await Wired.with({ box: patient(a.origin, 5_000) });
    assert.deepEqual(await inside(world), waits(5_000));
  });

  for (const [box, other] of [[5_000, 7_000], [7_000, 5_000]] as const) {
    test(`of providers that share an address, ${box} and ${other}, are their own in a call and the longest outside`, async () => {
      const world = await Wired.with({ box: patient(`${a.origin}/v1`, box), other: patient(`${a.origin}/v2`, other) });
      assert.deepEqual(await inside(world, 'box'), waits(box));
      assert.deepEqual(await inside(world, 'other'), waits(other));
      assert.deepEqual(await timeouts(() => get(a.origin)), waits(7_000));
    });
  }

  test('are those of the inner call where calls nest', async () => {
    const world = await Wired.with({ box: patient(a.origin, 5_000), other: patient(a.origin, 7_000) });
    assert.deepEqual(await world.inside('box', () => inside(world, 'other')), waits(7_000));
  });

  test('stay below what a timer can keep', async () => {
    const world = await Wired.with({ box: patient(a.origin, 2 ** 31 - 1) });
    assert.deepEqual(await inside(world), [[2 ** 31 - 1, 2 ** 31 - 1]]);
  });

  for (const declared of [300, 299, 0, -1, Number.NaN, '5000', null, true, [5_000], { ms: 5_000 }]) {
    test(`are untouched where ${inspect(declared)} is declared`, async () => {
      const world = await Wired.with({ box: patient(a.origin, declared) });
      assert.deepEqual(await inside(world), UNTOUCHED);
      assert.equal(listened(), false);
    });
  }

  for (const address of ['', 'no address', 'http://', '/v1', 'data:,x', 7, {}]) {
    test(`are untouched where the address is ${inspect(address)}`, async () => {
      const world = await Wired.with({ box: { baseURL: address, streamIdleTimeoutMs: PATIENT_MS } });
      assert.deepEqual(await inside(world), UNTOUCHED);
    });
  }

  for (const [declared, asked] of [
    ['https://model.example:443/v1', 'https://model.example/v1/chat'],
    ['https://model.example/v1', 'https://model.example:443/v1/chat'],
    ['HTTP://Model.Example:80', 'http://model.example/'],
  ] as const) {
    test(`of ${declared} are those of ${asked}`, async () => {
      const world = await Wired.with({ box: patient(declared, 5_000) });
      const nowhere = lineless();
      const ask = (url: string) => () => fetch(url, { dispatcher: nowhere } as never).catch(() => undefined);
      assert.deepEqual(await timeouts(() => world.inside('box', ask(asked))), waits(5_000));
      assert.deepEqual(await timeouts(ask(asked)), waits(5_000));
      assert.deepEqual(await timeouts(ask(asked.replace(/example(:443)?/u, 'example:8443'))), UNTOUCHED);
    });
  }

  test('that a request has are made longer, never shorter', async () => {
    const world = await Wired.with({ box: patient(a.origin, 5_000) });
    const ask = (headersTimeout: number, bodyTimeout: number) =>
      timeouts(() => world.inside('box', () => dispatch({ method: 'GET', path: '/', headersTimeout, bodyTimeout })));
    assert.deepEqual(await ask(0, 0), [[0, 0]]);
    assert.deepEqual(await ask(6_000, 4_000), [[6_000, 5_000 + GRACE_MS]]);
  });

  test('of a request that opens a tunnel are its own', async () => {
    const world = await Wired.with({ box: patient() });
    const open = () => world.inside('box', () => dispatch({ method: 'CONNECT', path: 'model.example:443' }));
    assert.deepEqual(await timeouts(open), UNTOUCHED);
  });

  test('of a request that a proxy gets are those of whom it is for', async () => {
    const world = await Wired.with({ box: patient('http://model.example/v1', 5_000), other: patient(a.origin, 7_000) });
    const ask = (provider: string) =>
      timeouts(() => world.inside(provider, () => dispatch({ method: 'GET', path: 'http://model.example/v1/chat' })));
    assert.deepEqual(await ask('box'), waits(5_000));
    assert.deepEqual(await ask('other'), UNTOUCHED);
  });
});

describe('settings', () => {
  test('count as they are when a call asks', async () => {
    const world = await Wired.with({ box: patient(a.origin, 5_000) });
    const now = (): Promise<unknown> => timeouts(() => world.inside('box', () => get(a.origin)));
    assert.deepEqual(await now(), waits(5_000));
    await world.declare({ box: patient(a.origin, 6_000) });
    assert.deepEqual(await now(), waits(6_000));
    await world.declare({ box: patient(b.origin, 6_000) });
    assert.deepEqual(await now(), UNTOUCHED);
    await world.declare({});
    assert.deepEqual(await now(), UNTOUCHED);
  });

  test('are followed without any call, and cost nothing while nobody is patient', async () => {
    const world = await Wired.with({ box: { baseURL: a.origin } });
    assert.equal(listened(), false);
    await world.declare({ box: patient(a.origin) });
    await until(listened);
    await world.declare({ box: {} });
    await until(() => !listened());
  });

  test('of an adapter that comes later are found, and gone when it is', async () => {
    const world = await Wired.with({});
    const fiber = await world.ctx.plugin({
      name: 'late',
      inject: ['llm', 'settings'],
      apply: (ctx: Wired['ctx']) => {
        ctx.llm.registerConfigurableProviders([{ provider: 'late', displayName: 'late', settingsNs: NS, settingsPath: [] }]);
      },
    });
    await world.ctx.settings.replace(NS, patient(a.origin));
    await until(listened);
    await fiber.dispose();
    await until(() => !listened());
  });

  test('that come after their provider, as an adapter of 0.1 brings them, are found', async () => {
    const world = await Wired.with({});
    const { settings } = world.ctx;
    const looked = once(settings);
    await world.ctx.plugin({
      name: 'slow',
      inject: ['llm'],
      apply: async (ctx: Wired['ctx']) => {
        ctx.llm.registerConfigurableProviders([{ provider: 'slow', displayName: 'slow', settingsNs: 'slow', settingsPath: [] }]);
        // By now the provider has been looked for in vain.
        await looked;
        ctx.inject(['settings'], (inner) => void inner.settings.register('slow' as never, Config as never, { base: patient(a.origin) }));
      },
    });
    await until(listened);
  });

  test('that cannot be read leave everything as it was, and are told of once', async () => {
    const world = await Wired.with({ box: patient(a.origin, 5_000) });
    const now = (): Promise<unknown> => timeouts(() => world.inside('box', () => get(a.origin)));
    assert.deepEqual(await now(), waits(5_000));
    const describe = world.ctx.settings.describe;
    world.ctx.settings.describe = () => assert.fail('broken');
    try {
      for (const round of [6_000, 7_000]) {
        await world.declare({ box: patient(a.origin, round) });
        assert.deepEqual(await now(), waits(5_000));
      }
    } finally {
      world.ctx.settings.describe = describe;
    }
    assert.equal(world.stderr.filter((line) => line.includes('streamIdleTimeoutMs') && line.includes('broken')).length, 1);
  });
});

describe('the process', () => {
  test('keeps its dispatchers, whatever comes and goes', async () => {
    const found = dispatchers();
    const world = await Wired.with({ box: patient(a.origin) });
    await until(listened);
    assert.deepEqual(dispatchers(), found);
    await world.remove();
    await until(() => !listened());
    assert.deepEqual(dispatchers(), found);
    assert.deepEqual(await waitInVain(a), CUT);
  });

  test('has nobody listening after a shutdown', async () => {
    const world = await Wired.with({ box: patient(a.origin) });
    await until(listened);
    await world.end();
    await until(() => !listened());
  });

  for (const first of [0, 1]) {
    test(`serves two of us until both are gone, the ${first === 0 ? 'older' : 'younger'} first`, async () => {
      const worlds = [await Wired.with({ box: patient(a.origin, 5_000) }), await Wired.with({ box: patient(a.origin, 7_000) })];
      const now = (): Promise<unknown> => timeouts(() => get(a.origin));
      await until(listened);
      for (const world of worlds) await world.inside('box', () => get(a.origin));
      assert.deepEqual(await now(), waits(7_000));
      const [gone, left] = first === 0 ? worlds : worlds.toReversed();
      await gone?.end();
      assert.deepEqual(await now(), waits(first === 0 ? 7_000 : 5_000));
      await left?.end();
      assert.deepEqual(await now(), UNTOUCHED);
    });
  }

  test('may put dispatchers around each other before and after us, and take them away in any order', async () => {
    const seen: string[] = [];
    /** As a plugin does it that wants to see requests; what it puts back is what it found. */
    const around = (name: string): (() => void) => install((_, old) => Object.create(old, {
      dispatch: {
        value: (options: object, handler: object) => {
          seen.push(name);
          return old.dispatch(options, handler);
        },
      },
    }) as Dispatcher);
    const through = async (): Promise<string[]> => {
      seen.length = 0;
      assert.deepEqual(await timeouts(() => world.inside('box', () => get(a.origin))), waits(5_000));
      return [...seen];
    };
    const below = around('below');
    const world = await Wired.with({ box: patient(a.origin, 5_000) });
    const above = around('above');
    try {
      assert.deepEqual(await through(), ['above', 'below']);
      assert.deepEqual(await world.inside('box', () => waitFor(a)), WHOLE);
      below();
      assert.deepEqual(await through(), []);
      above();
      assert.deepEqual(await through(), ['below']);
      await world.remove();
      await until(() => !listened());
      assert.deepEqual(await waitInVain(a), CUT);
    } finally {
      above();
      below();
    }
  });

  test('keeps its proxy, for the patient and for everybody else', async () => {
    const proxy = await Proxy.start(a);
    try {
      const script = fileURLToPath(new URL('transport-proxy.ts', import.meta.url));
      const env = { ...process.env, NODE_USE_ENV_PROXY: '1', HTTP_PROXY: proxy.url, http_proxy: proxy.url, NO_PROXY: '', no_proxy: '' };
      const { stdout } = await promisify(execFile)(process.execPath, [script], { env, timeout: 120_000, killSignal: 'SIGKILL' });
      const { kind, ...ends } = JSON.parse(stdout) as { kind: string };
      assert.deepEqual(ends, { own: WHOLE, elsewhere: CUT, outside: WHOLE, without: CUT, kept: true });
      assert.match(kind, /EnvHttpProxyAgent|Dispatcher1Wrapper/u);
      // Nobody has a name of its own here: what was answered came through the proxy.
      assert.deepEqual(new Set(proxy.hosts), new Set(['model.test', 'other.test']));
    } finally {
      proxy.stop();
    }
  });

  test('is not ended by what others publish', async () => {
    const world = await Wired.with({ box: patient() });
    await until(listened);
    await world.inside('box', async () => {
      for (const message of [undefined, null, 'x', {}, { request: null }, { request: Object.freeze({ origin: a.origin, method: 'GET' }) }]) {
        channel(CREATED).publish(message);
      }
    });
    // What a listener throws comes in a later turn.
    await until(() => true);
  });

  test('is not changed by importing us', async () => {
    const entry = fileURLToPath(new URL('../src/index.ts', import.meta.url));
    const script = `
      const look = () => JSON.stringify([
        Object.getOwnPropertySymbols(globalThis).map(String), Object.getOwnPropertyNames(globalThis), process.env,
        process.eventNames().map(String), process._getActiveHandles().length,
      ]);
      const before = look();
      await import(${JSON.stringify(entry)});
      console.log(before === look());`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
    assert.equal(stdout.trim(), 'true');
  });
});

/** Settles when the settings have been asked what they are. */
function once(settings: Wired['ctx']['settings']): Promise<void> {
  const { describe: tell } = settings;
  return new Promise((resolve) => {
    settings.describe = (options) => {
      settings.describe = tell;
      setImmediate(resolve);
      return tell.call(settings, options);
    };
  });
}

/** Asks the first backend without `fetch`, until it ends in whatever way. */
function dispatch(options: object): Promise<void> {
  return new Promise((resolve) => {
    const go = (): boolean => true;
    const end = (): void => resolve();
    const handler = { onConnect: go, onHeaders: go, onData: go, onUpgrade: end, onComplete: end, onError: end };
    dispatchers()[0]?.dispatch({ origin: a.origin, ...options }, handler);
  });
}

/** A dispatcher that reaches nobody, so that names need not be anybody's. */
function lineless(): Dispatcher {
  let made: Dispatcher | undefined;
  install((Kind) => (made = new Kind({ connect: (_: unknown, done: (error: Error) => void) => done(new Error('no line')) })))();
  return made ?? assert.fail('no dispatcher');
}
