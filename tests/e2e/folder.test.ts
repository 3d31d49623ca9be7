/** Plugins are dropped into a running harness, replaced and removed, while a fan-out goes on: counted at the model server. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { type Dsh, HARNESS, limit } from './dsh.ts';
import type { ModelServer } from './model-server.ts';
import { built, Plugins, saidOf, told } from './plugins.ts';
import { Holds, inWorld, type World } from './scenario.ts';
import { children, fanOut, ROOT } from './scripts.ts';

const PROMPT = `[s:${ROOT}] split this up`;

/** What is said when a plugin is at work, has gone, and when the packaged limiter is back. */
const GUARD = 'the plugin budget-guard is at work';
const GONE = 'the plugin budget-guard is gone';
const REPLACED = 'the plugin gen-limit is at work';
const BACK = 'the packaged component is back';

const GENEROUS = { config: { perMinute: 1_000, maxWaitMs: 600_000 } };
const TIGHT = { config: { perMinute: 1, maxWaitMs: 600_000 } };

/** The children that generate, oldest first. */
function working({ streams }: ModelServer): string[] {
  return streams.filter(({ session, outcome }) => session !== ROOT && outcome === undefined).map(({ session }) => session);
}

/** Every child was served, each exactly once, never more at once than the limit; and nothing is counted any more. */
async function allServed({ server, home }: World, dsh: Dsh, n: number, max: number): Promise<void> {
  const heard = (): boolean => (HARNESS.foreground ? server.idle && server.completed(ROOT) && server.of(ROOT, 'chat').length > 1 : server.quiet);
  await server.until('all children', () => children(n).every((child) => server.completed(child)) && heard());
  await home.traced('the end of all calls', () => home.live().length === 0 && home.waiting().length === 0);
  assert.deepEqual(children(n).map((child) => server.of(child, 'chat').length), children(n).map(() => 1), server.describe());
  assert.deepEqual(server.streams.filter(({ outcome }) => outcome !== 'completed'), [], 'none failed or was aborted');
  assert.equal(server.peakSessions, max, server.describe());
  const { scopes, totals, waitersTotal, credits } = await told(dsh);
  assert.deepEqual(scopes.map(({ occupancy }) => occupancy), scopes.map(() => 0));
  assert.deepEqual([totals.live, totals.waiting, waitersTotal, credits], [0, 0, 0, 0]);
}

describe('a fan-out goes on, within its limit and to its end', { concurrency: 2 }, () => {
  test('while a plugin is dropped, set, and removed, and the limiter itself is replaced and given back', () => {
    const holds = new Holds();
    const script = fanOut({ n: 8 }, ({ session }) => ({ text: 'done', ...holds.until(session) }));
    return inWorld({ script, config: limit(2) }, async (world) => {
      const { server, home } = world;
      const plugins = new Plugins(home);
      const dsh = await world.web();
      await dsh.until('the limiter', () => /gen-limit: \S+, component/.test(dsh.stderr));
      const packaged = (await told(dsh)).host.component;
      const occupancy = async (): Promise<number[]> => (await told(dsh)).scopes.filter(({ max }) => max >= 0).map((scope) => scope.occupancy);
      /** The oldest child ends; gives who is left. */
      const end = (): string[] => {
        const [oldest, ...others] = working(server);
        holds.release(oldest ?? assert.fail('nobody generates'));
        return others;
      };
      /** The oldest child ends, and another one begins. */
      const next = async (): Promise<void> => {
        const left = end();
        await server.until('the next child', () => working(server).length === 2 && working(server).includes(left[0] ?? '') && working(server).at(-1) !== left[0]);
      };

      await dsh.prompt(PROMPT);
      await server.until('two children', () => working(server).length === 2);
      await home.traced('another one in line', () => home.waiting('spawn').length > 0);

      await plugins.settings('budget-guard', GENEROUS);
      await saidOf(dsh, GUARD, () => plugins.drop('budget-guard', built('budget-guard')));
      const [guard] = (await told(dsh)).host.plugins ?? [];
      assert.deepEqual([guard?.name, guard?.state, guard?.live, guard?.waiting], ['budget-guard', 'running', 2, 0], 'it is told who runs');
      assert.deepEqual(await occupancy(), [2]);
      await next();

      await saidOf(dsh, GUARD, () => plugins.settings('budget-guard', TIGHT));
      end();
      await home.traced('somebody to wait for the budget', () => home.waiting('stream').length > 0);
      assert.equal(working(server).length, 1);
      await saidOf(dsh, GUARD, () => plugins.settings('budget-guard', GENEROUS));
      await server.until('the one who waited', () => working(server).length === 2);

      await saidOf(dsh, REPLACED, () => plugins.drop('gen-limit', built('gen-limit-chaos')));
      assert.notEqual((await told(dsh)).host.component, packaged);
      assert.deepEqual(await occupancy(), [2], 'it counts those whom it did not admit');
      await next();

      await saidOf(dsh, BACK, () => plugins.remove('gen-limit.wasm'));
      assert.equal((await told(dsh)).host.component, packaged);
      assert.deepEqual(await occupancy(), [2]);
      await next();

      await saidOf(dsh, GONE, () => plugins.remove('budget-guard.wasm'));
      assert.deepEqual((await told(dsh)).host.plugins, []);
      await next();

      for (const child of children(8)) holds.release(child);
      await allServed(world, dsh, 8, 2);
      assert.equal((await told(dsh)).host.restarts, 0);
    });
  });

  test('while all of that happens again and again, whoever comes and goes meanwhile', () => {
    const script = fanOut({ n: 24, holdMs: 120 });
    return inWorld({ script, config: limit(2) }, async (world) => {
      const { server } = world;
      const plugins = new Plugins(world.home);
      const dsh = await world.web();
      await dsh.until('the limiter', () => /gen-limit: \S+, component/.test(dsh.stderr));
      await plugins.settings('budget-guard', GENEROUS);
      await dsh.prompt(PROMPT);
      await server.until('two children', () => working(server).length === 2);
      let rounds = 0;
      for (; !server.completed('24'); rounds += 1) {
        await saidOf(dsh, GUARD, () => plugins.drop('budget-guard', built('budget-guard')));
        await saidOf(dsh, REPLACED, () => plugins.drop('gen-limit', built('gen-limit-chaos')));
        await saidOf(dsh, GUARD, () => plugins.settings('budget-guard', { config: { perMinute: 900 + rounds, maxWaitMs: 600_000 } }));
        await saidOf(dsh, BACK, () => plugins.remove('gen-limit.wasm'));
        await saidOf(dsh, GONE, () => plugins.remove('budget-guard.wasm'));
      }
      await allServed(world, dsh, 24, 2);
      assert.ok(rounds > 0);
    });
  });
});
