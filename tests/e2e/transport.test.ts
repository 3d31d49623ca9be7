/**
 * A provider that declares how long it may be silent is waited for that long. Here the transport gives up after a second,
 * by a plugin of the tests; with the real five minutes the same is shown by `slow/transport.test.ts`.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';

import { type Dsh, HASTY, Home, MODEL, PACKAGE, PROBE, PROVIDER } from './dsh.ts';
import { ModelServer, type Script, type Stream } from './model-server.ts';
import { Proxy } from './proxy.ts';
import { inWorld, World } from './scenario.ts';

const DECLARED_MS = 900_000;

/** A provider that the adapter knows the address of, so that its settings have none. */
const CATALOG = 'openai';

/** How a request ends that is not waited for. */
const CUT = 'UND_ERR_HEADERS_TIMEOUT';

/** Long enough to show that somebody waits, and that nobody does, on a slow machine too. */
const SILENCE_MS = 4_000;
const ENDLESS_MS = 60_000;

/** Silent before the headers, or in the body after the first words; the session says where, and whether anybody should hear the end. */
const silent: Script = ({ session, purpose }) => {
  if (purpose === 'title') return { text: 'A title' };
  const ms = session.startsWith('endless') ? ENDLESS_MS : SILENCE_MS;
  return { text: 'done', ...(session.includes('headers') ? { silentMs: ms } : { holdMs: ms }) };
};

/** Opens sessions; gives how the first stream of each ended. */
async function firsts({ server }: World, dsh: Dsh, sessions: readonly string[]): Promise<Array<Stream['outcome']>> {
  for (const session of sessions) await dsh.prompt(`[s:${session}] work`);
  const first = (session: string): Stream['outcome'] => server.of(session, 'chat')[0]?.outcome;
  await server.until('an end of each', () => sessions.every((session) => first(session) !== undefined));
  return sessions.map(first);
}

describe('a provider that declares a long idle timeout', { concurrency: 2 }, () => {
  test('is waited for, before the headers and in the body', () =>
    inWorld({ script: silent, packages: [PACKAGE, HASTY], streamIdleTimeoutMs: DECLARED_MS }, async (world) => {
      const dsh = await world.web();
      assert.deepEqual(await firsts(world, dsh, ['headers', 'body']), ['completed', 'completed'], world.server.describe());
    }));

  test('is not waited for without the plugin', () =>
    inWorld({ script: silent, packages: [HASTY], streamIdleTimeoutMs: DECLARED_MS }, async (world) => {
      const dsh = await world.web();
      assert.deepEqual(await firsts(world, dsh, ['endless-headers', 'endless-body']), ['aborted', 'aborted'], world.server.describe());
    }));

  test('is waited for from when it declares it, and only as long as it does', () =>
    inWorld({ script: silent, packages: [PACKAGE, HASTY, PROBE] }, async (world) => {
      const dsh = await world.web();
      const declare = (streamIdleTimeoutMs: number): Promise<unknown> =>
        dsh.probe('settings', { ns: 'llm-pi-ai', patch: { providers: { [PROVIDER]: { streamIdleTimeoutMs } } } });
      assert.deepEqual(await firsts(world, dsh, ['endless-headers-1', 'endless-body-1']), ['aborted', 'aborted'], world.server.describe());
      await declare(DECLARED_MS);
      assert.deepEqual(await firsts(world, dsh, ['headers', 'body']), ['completed', 'completed'], world.server.describe());
      await declare(300_000);
      assert.deepEqual(await firsts(world, dsh, ['endless-headers-2', 'endless-body-2']), ['aborted', 'aborted'], world.server.describe());
    }));

  test('is waited for where its address is, or wherever its calls ask if it has none', async () => {
    const elsewhere = createServer((_request, response) => void setTimeout(() => response.end('whole'), SILENCE_MS));
    elsewhere.listen(0, '127.0.0.1');
    await once(elsewhere, 'listening');
    const url = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}/`;
    try {
      await inWorld({ script: silent, packages: [PACKAGE, HASTY, PROBE], streamIdleTimeoutMs: DECLARED_MS }, async (world) => {
        const dsh = await world.web();
        const providers = { [CATALOG]: { apiKeyEnv: 'E2E_KEY', streamIdleTimeoutMs: DECLARED_MS } };
        await dsh.probe('settings', { ns: 'llm-pi-ai', patch: { providers } });
        const within = (provider: string, model: string): Promise<unknown> => dsh.probe('within', { provider, model, url });
        const ends = await Promise.all([within(PROVIDER, MODEL), within(CATALOG, 'gpt-4o'), dsh.probe('fetch', { url })]);
        assert.deepEqual(ends, [{ ended: CUT }, { text: 'whole' }, { ended: CUT }]);
      });
    } finally {
      elsewhere.closeAllConnections();
      elsewhere.close();
    }
  });

  test('is waited for through a proxy, which everybody else goes through as well', async () => {
    const server = await ModelServer.start(silent);
    const proxy = await Proxy.start(server.baseUrl);
    const world = new World(server, await Home.make({
      profile: 'web',
      packages: [PACKAGE, HASTY, PROBE],
      baseUrl: 'http://model.test/v1',
      streamIdleTimeoutMs: DECLARED_MS,
      env: proxy.env,
    }));
    try {
      const dsh = await world.web();
      assert.deepEqual(await firsts(world, dsh, ['headers', 'body']), ['completed', 'completed'], server.describe());
      assert.deepEqual(await dsh.probe('fetch', { url: 'http://elsewhere.test/' }), { text: '' });
      assert.deepEqual(new Set(proxy.hosts), new Set(['model.test', 'elsewhere.test']));
    } finally {
      await world.end();
      await proxy.close();
      await server.close();
    }
  });
});
