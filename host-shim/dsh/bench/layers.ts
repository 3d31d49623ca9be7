/**
 * Where the time of a call goes, from the limiter alone to the harness's waterfall around the plugin:
 *
 *   cargo xtask bench layers [--json]
 *
 * What is below the addon is measured by a program of its own, `tests/component/examples/layers.rs`, which is the argument.
 */
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import type * as Addon from '../../node/index.d.ts';
import { PARTS, fail } from '../test/support.ts';
import { Caller } from './caller.ts';
import { ns, tell, turns, type Taken } from './measure.ts';

const ROUNDS = 15;
const CALLS = 4_000;
/** So many stand in line. */
const LINE = 1_000;
const LIMITS = { limits: [{ provider: 'box', model: 'm', max: 2 }] };
/** How what is told of them begins. */
const WAITS = 'one that waits:';
const SESSION = 'a-session-of-usual-length-0001';

const [program] = process.argv.slice(2).filter((argument) => argument !== '--json');
const below = JSON.parse(execFileSync(program ?? fail('which program?'), { encoding: 'utf8' })) as Array<Taken & { what: string }>;

const addon = createRequire(import.meta.url)(PARTS.addon) as typeof Addon;
const component = await addon.Component.load(PARTS.component, true);
const limiter = new addon.Limiter(component, { config: JSON.stringify(LIMITS) });
const hooks = limiter.hooks();
const repeat = (work: () => unknown) => (): void => {
  for (let call = 0; call < CALLS; call += 1) work();
};
const bare = await Caller.bare();
const listener = await Caller.bare();
listener.world.ctx.on('llm/stream', (_options, next) => next(), { prepend: true, global: true });
const ours = await Caller.make(LIMITS);

const LONG = { limits: [{ provider: 'box', model: 'm', max: 1 }], maxWaiting: 100_000, maxQueued: 100_000 };
const session = (n: number): string => `a-session-of-usual-length-${String(n).padStart(8, '0')}`;

/** A line where for everybody who comes the first is let in, at the addon. */
function addonLine(): () => void {
  const limiter = new addon.Limiter(component, { config: JSON.stringify(LONG) });
  const hooks = limiter.hooks();
  const ids: number[] = [];
  let comers = 0;
  const come = (): void => void ids.push(Math.floor(hooks.startStream('box', 'm', session((comers += 1)), false, undefined, undefined, 'conversation') / 128));
  for (let n = 0; n <= LINE; n += 1) come();
  let first = 0;
  return () => {
    come();
    hooks.nextTick();
    hooks.finish(ids[first] ?? fail('nobody'), 0);
    first += 1;
    if (hooks.nextSettled() !== (ids[first] ?? 0) * 2 || hooks.nextSettled() !== 0) fail('somebody else was let in');
    hooks.nextTick();
  };
}

/** The same through the harness's waterfall. */
async function line(): Promise<() => Promise<void>> {
  const caller = await Caller.make(LONG);
  const ends: Array<() => void> = [];
  let comers = 0;
  const next = (): unknown => ({ [Symbol.asyncIterator]: () => ({ next: () => new Promise((resolve) => ends.push(() => resolve({ done: true, value: undefined }))) }) });
  const come = (): void => void caller.stream(session((comers += 1)), { signal: new AbortController().signal, next })[Symbol.asyncIterator]().next();
  for (let n = 0; n <= LINE; n += 1) come();
  let ended = 0;
  return async () => {
    for (let n = 0; n < CALLS; n += 1) {
      come();
      // Whoever is let in comes to the backend a few microtasks later.
      while (ends[ended] === undefined) await undefined;
      ends[ended]?.();
      ended += 1;
    }
  };
}

const above = await turns(ROUNDS, CALLS, {
  crossing: repeat(() => addon.version()),
  nobody: repeat(() => hooks.finish(0, 0)),
  addon: repeat(() => {
    const answer = hooks.startStream('box', 'm', SESSION, false, undefined, undefined, 'conversation');
    hooks.finish((answer - (answer % 128)) / 128, 0);
  }),
  bare: () => bare.calls(CALLS),
  listener: () => listener.calls(CALLS),
  ours: () => ours.calls(CALLS),
  addonLine: repeat(addonLine()),
  line: await line(),
});
const [calls, waits] = [below.filter(({ what }) => !what.startsWith(WAITS)), below.filter(({ what }) => what.startsWith(WAITS))];

tell([
  ...calls.map((taken) => ns(taken.what, taken)),
  ns('napi: one call of the addon that does nothing', above.crossing),
  ns('the addon: one end of a call that nobody knows', above.nobody),
  ns('the addon', above.addon),
  ns('the harness\'s waterfall, no plugin', above.bare),
  ns('the harness\'s waterfall, a listener that passes on', above.listener),
  ns('the harness\'s waterfall, ours', above.ours),
  ...waits.map((taken) => ns(taken.what, taken)),
  ns(`${WAITS} the addon`, above.addonLine),
  ns(`${WAITS} the harness's waterfall, ours`, above.line),
]);
process.exit();
