/**
 * What the gate costs, on this machine and this build of the addon:
 *
 *   node host-shim/dsh/bench.ts [calls | polls]
 *
 * For the numbers of a release, build the addon with `cargo xtask pack` first.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { setImmediate } from 'node:timers/promises';
import { createUserMessage, type StreamChunk } from '@deepseek-ai/dsh-llm';
import { SessionId } from '@deepseek-ai/dsh-session';
import SessionTitle from '@deepseek-ai/dsh-session-title';
import type * as Addon from '../node/index.d.ts';
import { answer } from './src/asks.ts';
import type { Answer } from './src/requests.ts';
import type { Settings } from './src/settings.ts';
import { PARTS, World, fail, limit, until } from './test/support.ts';
import { STATS, WebHarness } from './test/web-support.ts';

const addon = createRequire(import.meta.url)(PARTS.addon) as typeof Addon;
const component = await addon.Component.load(PARTS.component);

/** The best of several rounds, in processor time: what the work costs when nothing else disturbs it. */
async function best(rounds: number, each: number, work: () => Promise<void> | void): Promise<number> {
  let least = Infinity;
  for (let round = 0; round < rounds; round += 1) {
    const begun = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(begun);
    least = Math.min(least, user + system);
  }
  return (least * 1e3) / each;
}

function say(what: string, nanoseconds: number): void {
  console.log(`${what.padEnd(72)} ${nanoseconds.toFixed(0).padStart(7)} ns`);
}

const CALLS = 20_000;
const CHUNKS = 100_000;
const chunk: StreamChunk = { type: 'text-delta', index: 0, text: 'x' };
/** A backend that costs next to nothing, so that what is around it shows. */
const source = (chunks: number): AsyncIterable<StreamChunk> => ({
  [Symbol.asyncIterator]() {
    let left = chunks;
    const step = Promise.resolve({ done: false, value: chunk });
    const end = Promise.resolve({ done: true, value: undefined });
    return { next: () => (left-- > 0 ? step : end) } as AsyncIterator<StreamChunk>;
  },
});
const drain = async (stream: AsyncIterable<StreamChunk>): Promise<void> => {
  for await (const _ of stream);
};

/** What a call and a chunk cost. */
async function calls(): Promise<void> {
  for (const [what, max] of [['without a limit', -1], ['under a limit', 1_000_000]] as const) {
    const limiter = new addon.Limiter(component, { config: JSON.stringify({ limits: [{ provider: 'box', model: '*', max }] }) });
    const cost = await best(10, CALLS, () => {
      for (let call = 0; call < CALLS; call += 1) {
        limiter.finish(Math.floor(limiter.startStream('box', 'model', 'session-0123456789abcdef', true) / 64), 0);
      }
    });
    say(`start and finish through the addon, three strings, ${what}`, cost);
  }

  const world = await World.make({ config: limit(1) });
  const off = world.ctx.on('llm/stream', () => source(CHUNKS));
  const bare = await best(10, CHUNKS, () => drain(source(CHUNKS)));
  const gated = await best(10, CHUNKS, () => drain(world.stream('a')));
  say('one chunk of a stream, without us', bare);
  say('one chunk of a stream, with us', gated);
  say('  the difference', gated - bare);
  off();

  const empty = world.ctx.on('llm/stream', () => source(0));
  const whole = await best(10, CALLS, async () => {
    for (let call = 0; call < CALLS; call += 1) await drain(world.stream('a'));
  });
  say('one whole call through the harness\'s chain, no chunks, with us', whole);
  await world.disable();
  await new Promise((resolve) => setTimeout(resolve, 300));
  const without = await best(10, CALLS, async () => {
    for (let call = 0; call < CALLS; call += 1) await drain(world.stream('a'));
  });
  say('one whole call through the harness\'s chain, no chunks, without us', without);
  empty();
  await world.end();
}

/** Who asks as a page does, in a process of its own: a line to it is a URL, an empty line its answer. */
const PAGE = `
  const { Agent, get } = require('node:http');
  const agent = new Agent({ keepAlive: true });
  require('node:readline').createInterface(process.stdin).on('line', (url) => {
    get(url, { agent }, (response) => response.on('end', () => console.log()).resume());
  });
`;

/** What it costs to look at 500 who wait and 50 who run on 50 routes, with their titles, in the harness's own agents. */
async function polls(): Promise<void> {
  const ROUTES = 50;
  const EACH = 11;
  /** How much those who run have said: their logs are long, and grow while somebody looks. */
  const SAID = 5_000;
  const world = new WebHarness();
  await world.start({ config: { limits: Array.from({ length: ROUTES }, (_, n) => ({ provider: 'box', model: `m${n}`, max: 1 })) } });
  await world.ctx.plugin(SessionTitle as never, { fallbackMaxWords: 5, fallbackMaxBytes: 40, maxTitleBytes: 80 } as never);
  const roots: string[] = [];
  for (let n = 0; n < ROUTES * EACH; n += 1) {
    const id = SessionId(`session-${String(n).padStart(4, '0')}-0123456789abcdef`);
    // Every eleventh is a root with ten children.
    const parentSession = n % EACH === 0 ? undefined : roots.at(-1);
    if (parentSession === undefined) roots.push(id);
    const meta = { cwd: process.cwd(), ...(parentSession === undefined ? {} : { parentSession: SessionId(parentSession) }) };
    const { agent } = await world.ctx.agents.create({ sessionId: id, meta, agentOptions: { provider: 'box', model: `m${n % ROUTES}` } });
    agent.followup(createUserMessage({ content: [{ type: 'text', text: `Look into matter ${n} of the list` }], source: { kind: 'user' } }));
  }
  await until(() => world.waiting === ROUTES * (EACH - 1));
  const talk = (chunks: number): void => world.backend.open.forEach((call) => Array.from({ length: chunks }, () => call.say('x')));
  talk(SAID);
  await until(() => world.ctx.sessions.get(SessionId(roots[0] ?? ''))?.events.length! > SAID);

  const { requests } = world.living;
  const sent = (query: string): Promise<Answer> => requests.send({ method: 'GET', path: STATS, query, headers: [], body: new Uint8Array() });
  const size = async (query: string): Promise<string> => {
    const given = await sent(query);
    return typeof given === 'object' ? `${(given.body.length / 1024).toFixed(0)} KiB` : fail(given);
  };
  const TIMES = 20;
  const repeat = (work: () => Promise<unknown> | unknown) => async (): Promise<void> => {
    for (let n = 0; n < TIMES; n += 1) {
      talk(1);
      await work();
      // Whoever said something has been heard.
      await setImmediate();
    }
  };
  const page = spawn(process.execPath, ['-e', PAGE], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ids = Array.from(world.ctx.sessions.list(), ({ id }) => id);
  const nothing = await best(10, TIMES, repeat(() => undefined));
  const poll = async (what: string, work: () => unknown): Promise<void> => say(what, (await best(10, TIMES, repeat(work))) - nothing);
  for (const [what, query] of [['of all', ''], ['of all, without titles', 'describe=false'], ['of one session', `session=${roots[0]}`], ['of an idle session', 'session=nobody']] as const) {
    await poll(`one look ${what}, ${await size(query)}, asked for by a page`, async () => {
      page.stdin.write(`http://127.0.0.1:${world.port}${STATS}?${query}\n`);
      await once(page.stdout, 'data');
    });
    await poll('  of that, without HTTP', () => sent(query));
  }
  page.stdin.end();
  const nowhere: Settings = { read: () => fail('read'), update: () => fail('updated') };
  const told = { answerSessions: () => 0 } as unknown as Addon.Limiter;
  await poll('what 550 sessions are called, as the harness tells us', async () => {
    (await answer({ id: 1, plugin: 'gen-limit', kind: 'describe-sessions', sessions: ids }, world.ctx, nowhere))(told);
  });
  await poll('a request that is refused at once, without HTTP', () => sent('nothing=known'));
  await world.end();
}

const [which = 'all'] = process.argv.slice(2);
if (which !== 'polls') await calls();
if (which !== 'calls') await polls();
process.exit();
