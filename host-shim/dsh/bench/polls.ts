/**
 * What it costs to look at 500 who wait and 50 who run on 50 routes, with their titles, in the harness's own agents:
 *
 *   cargo xtask bench polls [--json]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { createUserMessage } from '@deepseek-ai/dsh-llm';
import { SessionId } from '@deepseek-ai/dsh-session';
import SessionTitle from '@deepseek-ai/dsh-session-title';
import type * as Addon from '../../node/index.d.ts';
import { answer } from '../src/asks.ts';
import type { Answer } from '../src/requests.ts';
import type { Settings } from '../src/settings.ts';
import { fail, until } from '../test/support.ts';
import { STATS, WebHarness } from '../test/web-support.ts';
import { added, tell, turns, type Row } from './measure.ts';

const ROUNDS = 10;
const TIMES = 20;
const ROUTES = 50;
const EACH = 11;
/** How much those who run have said: their logs are long, and grow while somebody looks. */
const SAID = 5_000;

/** Who asks as a page does, in a process of its own: a line to it is a URL, an empty line its answer. */
const PAGE = `
  const { Agent, get } = require('node:http');
  const agent = new Agent({ keepAlive: true });
  require('node:readline').createInterface(process.stdin).on('line', (url) => {
    get(url, { agent }, (response) => response.on('end', () => console.log()).resume());
  });
`;

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
const rows: Row[] = [];
const poll = async (what: string, work: () => unknown): Promise<void> => {
  const { nothing, look } = await turns(ROUNDS, TIMES, { nothing: repeat(() => undefined), look: repeat(work) });
  rows.push(added(what, look, nothing));
};
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
tell(rows);
process.exit();
