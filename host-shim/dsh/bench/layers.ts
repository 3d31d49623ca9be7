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
const LIMITS = { limits: [{ provider: 'box', model: 'm', max: 2 }] };
const SESSION = 'a-session-of-usual-length-0001';

const [program] = process.argv.slice(2).filter((argument) => argument !== '--json');
const below = JSON.parse(execFileSync(program ?? fail('which program?'), { encoding: 'utf8' })) as Array<Taken & { what: string }>;

const addon = createRequire(import.meta.url)(PARTS.addon) as typeof Addon;
const limiter = new addon.Limiter(await addon.Component.load(PARTS.component, true), { config: JSON.stringify(LIMITS) });
const hooks = limiter.hooks();
const repeat = (work: () => unknown) => (): void => {
  for (let call = 0; call < CALLS; call += 1) work();
};
const bare = await Caller.bare();
const listener = await Caller.bare();
listener.world.ctx.on('llm/stream', (_options, next) => next(), { prepend: true, global: true });
const ours = await Caller.make(LIMITS);

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
});

tell([
  ...below.map((taken) => ns(taken.what, taken)),
  ns('napi: one call of the addon that does nothing', above.crossing),
  ns('the addon: one end of a call that nobody knows', above.nobody),
  ns('the addon', above.addon),
  ns('the harness\'s waterfall, no plugin', above.bare),
  ns('the harness\'s waterfall, a listener that passes on', above.listener),
  ns('the harness\'s waterfall, ours', above.ours),
]);
process.exit();
