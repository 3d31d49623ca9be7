/**
 * What many who wait cost: to come, to be let in, to leave from anywhere, together, or because their time is up:
 *
 *   cargo xtask bench waiters [--json]
 *
 * Each waits as the harness's own calls do, in the first step of a stream. How long the event loop is blocked is measured in
 * what the process burns between two of its turns: on a busy machine a wall's time would be somebody else's.
 */
import { setMaxListeners } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { fail } from '../test/support.ts';
import { Caller } from './caller.ts';
import { Crowd, PORTION, spend, type Spent } from './crowd.ts';
import { tell, type Row } from './measure.ts';

const SIZES = [1_000, 10_000, 100_000];
/** So many run at a time. */
const SEATS = 100;
const TIMEOUT_MS = 60_000;

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

const settings = (max: number): unknown => ({
  limits: [{ provider: 'box', model: 'm', max }],
  maxWaiting: 200_000,
  maxQueued: 200_000,
  queueTimeoutMs: TIMEOUT_MS,
});

const shuffled = <T>(items: readonly T[]): T[] => {
  // The same order each time.
  let seed = 1;
  const keyed = items.map((item) => [(seed = (seed * 48_271) % 2_147_483_647), item] as const);
  return keyed.sort(([a], [b]) => a - b).map(([, item]) => item);
};

async function measure(count: number): Promise<Row[]> {
  const caller = await Caller.make(settings(SEATS), { manualClock: true, callMs: 1_000 });
  const { world } = caller;
  const waiting = (): number => world.gate.limiter?.status().waiting ?? fail('no component decides');
  const shared = new AbortController();
  setMaxListeners(0, shared.signal);
  const crowd = async (signalOf: (n: number) => AbortSignal): Promise<Crowd> => {
    const crowd = await Crowd.make(caller, SEATS);
    await crowd.come(count, signalOf);
    if (waiting() !== count) fail(`${waiting()} wait, not ${count}`);
    return crowd;
  };
  const rows: Row[] = [];
  const told = (what: string, { ms, blocked }: Spent, aims: { ms?: number | undefined; blocked?: number } = {}): void => {
    rows.push({ what: `${count} ${what}`, unit: 'ms', median: ms, aim: count === SIZES.at(-1) ? aims.ms : undefined });
    rows.push({ what: '  each', unit: 'µs', median: (ms * 1e3) / count });
    rows.push({ what: '  the event loop is blocked for at most', unit: 'ms', median: blocked, aim: aims.blocked });
  };

  const controllers = Array.from({ length: count }, () => new AbortController());
  gc();
  const before = process.memoryUsage.rss();
  // The first of this size, or what it takes would be there already.
  const first = await crowd((n) => controllers[n]?.signal ?? fail('nobody'));
  gc();
  rows.push({ what: `${count} take, resident, each`, unit: 'B', median: (process.memoryUsage.rss() - before) / count, aim: 2_048 });
  await first.empty();
  let those: Crowd | undefined;
  told('come and wait', await spend(async () => (those = await crowd((n) => controllers[n]?.signal ?? fail('nobody')))));
  told(`are let in as ${SEATS} at a time end`, await spend(() => those?.empty()), { ms: 400, blocked: 20 });

  those = await crowd((n) => controllers[n]?.signal ?? fail('nobody'));
  told('are let in by one release', await spend(() => world.edit(settings(-1)), () => (those?.running ?? 0) >= count), { ms: 400, blocked: 20 });
  await those.empty();
  await world.edit(settings(SEATS));

  those = await crowd((n) => controllers[n]?.signal ?? fail('nobody'));
  told('leave, each by a signal of its own, from anywhere in the line', await spend(async () => {
    for (const [n, controller] of shuffled(controllers).entries()) {
      controller.abort();
      if (n % PORTION === PORTION - 1) await setImmediate();
    }
  }, () => those?.done === count));
  await those.empty();

  those = await crowd(() => shared.signal);
  told('leave by one signal', await spend(() => shared.abort(), () => those?.done === count), { ms: 1_000 });
  await those.empty();

  const later = new AbortController();
  setMaxListeners(0, later.signal);
  those = await crowd(() => later.signal);
  told('are refused at once because their time is up', await spend(() => world.gate.advance(TIMEOUT_MS), () => those?.done === count), { ms: 1_000, blocked: 20 });
  await those.empty();
  await world.end();
  return rows;
}

const rows: Row[] = [];
for (const count of SIZES) rows.push(...(await measure(count)));
tell(rows);
process.exit();
