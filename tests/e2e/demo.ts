/**
 * A fan-out in a real harness, drawn as it happens: who generates, who waits, and in what place.
 *
 * The bars come from the model server (generating, done) and from the plugin's trace (waiting, place in line); the
 * peaks and the completed and failed sessions of the summary are counted by the server alone.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { Dsh, HARNESS, HARNESS_NAME, Home, limit as limitTo, MODEL, PROVIDER } from './dsh.ts';
import { ModelServer, type Stream } from './model-server.ts';
import { PATIENCE_MS } from './patience.ts';
import { children, fanOut, ROOT } from './scripts.ts';

const USAGE = `Usage: cargo xtask demo [options]

  --harness V      on that version of the harness (default 0.1.0; also 0.2.1)
  --limit N        sessions that may generate at once (default 2)
  --fanout N       subagents (default 12)
  --background     as background subagents, in the web profile driven through its API
  --hold MS        how long each subagent generates (default 800)
  --title-hold MS  how long the session title takes (default 0)
  --no-plugin      the same without the plugin
  --json           end with one line of JSON
`;

/** What the command line asks for. */
interface Plan {
  readonly limit: number | undefined;
  readonly fanout: number;
  readonly background: boolean;
  readonly holdMs: number;
  readonly titleMs: number;
  readonly json: boolean;
}

/** One row of the picture. */
interface Bar {
  readonly session: string;
  askedAt?: number;
  spans: { from: number; to?: number }[];
  state: 'idle' | 'waiting' | 'generating' | 'done' | 'failed';
  place: number;
}

/** The state of a run, put together from the server's record and the trace. */
class Picture {
  readonly plan: Plan;
  readonly #server: ModelServer;
  readonly #home: Home;

  constructor(plan: Plan, server: ModelServer, home: Home) {
    this.plan = plan;
    this.#server = server;
    this.#home = home;
  }

  /** When the first request came, or now. */
  get start(): number {
    return this.#server.streams[0]?.openedAt ?? Date.now();
  }

  /** All rows, the root first. */
  get bars(): Bar[] {
    const streams = Map.groupBy(this.#server.streams, (stream) => stream.session);
    const asked = this.#server.of(ROOT, 'chat')[0]?.closedAt;
    const bars = [ROOT, ...children(this.plan.fanout)].map((session) =>
      bar(session, streams.get(session) ?? [], session === ROOT ? undefined : asked),
    );
    this.#line(bars).forEach((waiting, index) => {
      waiting.state = 'waiting';
      waiting.place = index + 1;
    });
    return bars;
  }

  /**
   * Who waits, in order: first those at the gate, in the order of their ids; then the children whose spawns the
   * harness has not yet asked for, because it asks for one at a time.
   */
  #line(bars: Bar[]): Bar[] {
    const trace = this.#home.trace();
    const root = trace.find((line) => line.session !== undefined)?.session;
    const spawns = [...new Set(trace.filter((line) => line.kind === 'spawn').map((line) => line.id))];
    const line = new Set<Bar>();
    for (const { id, kind, session } of this.#home.waiting()) {
      const index = kind === 'spawn' ? 1 + spawns.indexOf(id) : session === root ? 0 : -1;
      const one = bars[index];
      if (one !== undefined && one.state !== 'generating') line.add(one);
    }
    for (const one of bars) if (one.askedAt !== undefined && one.spans.length === 0) line.add(one);
    return [...line];
  }
}

function bar(session: string, streams: readonly Stream[], askedAt: number | undefined): Bar {
  const spans = streams.map(({ openedAt, closedAt }) => ({
    from: openedAt,
    ...(closedAt !== undefined && { to: closedAt }),
  }));
  const last = streams.at(-1);
  const open = streams.some((stream) => stream.closedAt === undefined);
  const ended = session === ROOT ? undefined : last?.outcome;
  const state = open ? 'generating' : ended === undefined ? 'idle' : ended === 'completed' ? 'done' : 'failed';
  return { session, spans, state, place: 0, ...(askedAt !== undefined && { askedAt }) };
}

/** Widest and narrowest that the bars may be, and what stands beside them on a line. */
const WIDEST = 48;
const NARROWEST = 8;
const BESIDE = 32;

const INK = { idle: '2', waiting: '33', generating: '36', done: '32', failed: '31' } as const;

/** What a picture is drawn on. */
interface Paper {
  readonly ink: (code: string, text: string) => string;
  readonly columns: number;
  readonly rows: number;
}

const PLAIN: Paper = { ink: (_, text) => text, columns: Infinity, rows: Infinity };

/** The picture as lines of text. */
function draw(picture: Picture, now: number, { ink, columns, rows }: Paper): string[] {
  const { limit, fanout, background } = picture.plan;
  const { start } = picture;
  const width = Math.max(NARROWEST, Math.min(WIDEST, columns - BESIDE));
  const perCell = Math.max(now - start, 4_000) / width;
  const bars = picture.bars;
  const generating = bars.filter((one) => one.state === 'generating').length;
  // A child that nobody has asked for yet has nothing to show.
  const above = bars.filter((one) => one.state !== 'waiting' && (one.state !== 'idle' || one.session === ROOT));
  const below = bars.filter((one) => one.state === 'waiting').sort((a, b) => a.place - b.place);
  const row = (one: Bar): string => {
    const cells = Array.from({ length: width }, (_, cell) => {
      const from = start + cell * perCell;
      const to = from + perCell;
      if (from > now) return ' ';
      if (one.spans.some((span) => span.from < to && (span.to ?? now) >= from)) return '█';
      const firstAt = one.spans[0]?.from ?? now;
      return one.askedAt !== undefined && one.askedAt < to && firstAt >= from ? '░' : ' ';
    });
    const line = cells.join('').replace(/░+|█+/g, (run) => ink(run.startsWith('█') ? INK.generating : INK.waiting, run));
    const idle = one.spans.length === 0 ? 'starting' : 'idle';
    const words = one.state === 'waiting' ? `waiting, ${ordinal(one.place)} in line` : one.state === 'idle' ? idle : one.state;
    return `  ${one.session === ROOT ? 'root' : `s:${one.session}`.padEnd(4)} ${line} ${ink(INK[one.state], words)}`;
  };
  // On a low terminal the oldest that are done and the last that wait go first.
  const spare = Math.max(0, bars.length + 7 - rows);
  const done = above.filter((one) => one.state === 'done');
  const hiddenAbove = Math.min(spare, done.length);
  const hiddenBelow = Math.min(spare - hiddenAbove, below.length);
  const hidden = new Set(done.slice(0, hiddenAbove));
  const cap = limit === undefined ? 'no limit' : `limit ${limit}`;
  const rule = ` ${cap}: ${generating} generating, ${below.length} waiting `;
  return [
    `${HARNESS_NAME}, ${fanout} ${background ? 'background ' : ''}subagents, ${cap} on ${PROVIDER}/${MODEL}, ${((now - start) / 1_000).toFixed(1)} s`,
    '',
    ...(hiddenAbove > 0 ? [`  … ${hiddenAbove} done`] : []),
    ...above.filter((one) => !hidden.has(one)).map(row),
    ink('1', `  ──${rule}${'─'.repeat(Math.max(0, width + 20 - rule.length))}`),
    ...below.slice(0, below.length - hiddenBelow).map(row),
    ...(hiddenBelow > 0 ? [`  … ${hiddenBelow} more waiting`] : []),
  ];
}

function ordinal(n: number): string {
  const teen = n % 100 > 10 && n % 100 < 14;
  return `${n}${teen ? 'th' : (['th', 'st', 'nd', 'rd'][n % 10] ?? 'th')}`;
}

/** Redraws in place on a terminal; elsewhere says each change once. */
class Screen {
  readonly #picture: Picture;
  readonly #live = process.stdout.isTTY;
  #height = 0;
  readonly #said = new Map<string, Bar['state']>();

  constructor(picture: Picture) {
    this.#picture = picture;
  }

  /** Shows the picture of now. */
  show(): void {
    const now = Date.now();
    if (!this.#live) {
      this.#say(now);
      return;
    }
    const { columns, rows } = process.stdout;
    const ink = (code: string, text: string): string => `\u001b[${code}m${text}\u001b[0m`;
    const lines = draw(this.#picture, now, { ink, columns, rows });
    const up = this.#height === 0 ? '' : `\u001b[${this.#height}A`;
    process.stdout.write(`${up}${lines.map((line) => `${line}\u001b[K`).join('\n')}\n\u001b[J`);
    this.#height = lines.length;
  }

  /** Leaves the finished picture behind. */
  end(): void {
    this.show();
    if (!this.#live) process.stdout.write(`\n${draw(this.#picture, Date.now(), PLAIN).join('\n')}\n`);
  }

  #say(now: number): void {
    for (const { session, state, place } of this.#picture.bars) {
      if (state === 'idle' || this.#said.get(session) === state) continue;
      this.#said.set(session, state);
      const what = state === 'waiting' ? `waits, ${ordinal(place)} in line` : state;
      console.log(`${((now - this.#picture.start) / 1_000).toFixed(1).padStart(5)} s  [s:${session}] ${what}`);
    }
  }
}

/** The last line of `--json`. */
interface Summary {
  harness: string;
  limit: number | null;
  fanout: number;
  peak_sessions: number;
  peak_streams: number;
  completed: number;
  failed: number;
  waited: number;
  max_wait_ms: number;
  component_sha256: string | null;
}

async function run(plan: Plan): Promise<Summary> {
  const server = await ModelServer.start(
    fanOut({ n: plan.fanout, holdMs: plan.holdMs, titleMs: plan.titleMs, background: plan.background }),
  );
  try {
    return await against(server, plan);
  } finally {
    await server.close();
  }
}

async function against(server: ModelServer, plan: Plan): Promise<Summary> {
  const home = await Home.make({
    baseUrl: server.baseUrl,
    profile: plan.background ? 'web' : 'headless',
    ...(plan.limit === undefined ? { packages: [] } : { config: limitTo(plan.limit) }),
  });
  const tags = children(plan.fanout);
  const picture = new Picture(plan, server, home);
  const screen = new Screen(picture);
  const drawing = setInterval(() => screen.show(), 100);
  let dsh: Dsh | undefined;
  process.once('SIGINT', () => {
    clearInterval(drawing);
    void dsh?.stop().then(() => home.remove()).finally(() => process.exit(130));
  });
  try {
    const prompt = `[s:${ROOT}] Split this into ${plan.fanout} pieces.`;
    if (plan.background) {
      dsh = await Dsh.web(home);
      await dsh.prompt(prompt);
      // The end of each child comes back to the root as a message, so the root speaks last.
      const patience = PATIENCE_MS + (plan.fanout * plan.holdMs * 2) / (plan.limit ?? 1);
      await server.until('the end', () => tags.every((one) => server.completed(one)) && server.idle, patience);
      await dsh.stop();
    } else {
      dsh = Dsh.headless(home, prompt);
      const code = await dsh.exited;
      if (code !== 0) console.error(`dsh exited with ${code}\n${dsh.stderr}`);
    }
    clearInterval(drawing);
    screen.end();
    const completed = tags.filter((one) => server.completed(one)).length;
    const totals = totalsOf(home);
    return {
      harness: HARNESS_NAME,
      limit: plan.limit ?? null,
      fanout: plan.fanout,
      peak_sessions: server.peakSessions,
      peak_streams: server.peakStreams,
      completed,
      failed: plan.fanout - completed,
      waited: totals.waited,
      max_wait_ms: totals.maxWaitMs,
      component_sha256: plan.limit === undefined ? null : await digest(home),
    };
  } finally {
    clearInterval(drawing);
    await dsh?.stop();
    await home.remove();
  }
}

/** What the plugin's own statistics say about waiting. */
function totalsOf(home: Home): { waited: number; maxWaitMs: number } {
  return home.trace().findLast((line) => line.event === 'stats')?.stats?.totals ?? { waited: 0, maxWaitMs: 0 };
}

async function digest(home: Home): Promise<string> {
  const component = await readFile(join(home.installed, 'gen-limit.wasm'));
  return createHash('sha256').update(component).digest('hex');
}

function plan(): Plan {
  const { values } = parseArgs({
    options: {
      limit: { type: 'string', default: '2' },
      fanout: { type: 'string', default: '12' },
      background: { type: 'boolean', default: false },
      hold: { type: 'string', default: '800' },
      'title-hold': { type: 'string', default: '0' },
      'no-plugin': { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    process.exit(0);
  }
  const number = (name: 'limit' | 'fanout' | 'hold' | 'title-hold', least: number): number => {
    const value = Number(values[name]);
    if (!Number.isInteger(value) || value < least) throw new Error(`--${name} has to be a whole number from ${least}`);
    return value;
  };
  return {
    limit: values['no-plugin'] ? undefined : number('limit', 1),
    fanout: number('fanout', 1),
    // Where subagents cannot be waited for, there is no other way.
    background: values.background || !HARNESS.foreground,
    holdMs: number('hold', 0),
    titleMs: number('title-hold', 0),
    json: values.json,
  };
}

try {
  const asked = plan();
  const summary = await run(asked);
  const { limit, completed, failed, waited } = summary;
  console.log(
    `\n${completed} of ${summary.fanout} completed, ${failed} failed; at most ${summary.peak_sessions} ${summary.peak_sessions === 1 ? 'session' : 'sessions'} (${summary.peak_streams} ${summary.peak_streams === 1 ? 'stream' : 'streams'}) at once` +
      (limit === null ? ', without the plugin' : `, limit ${limit}; ${waited} waited in line, the longest ${summary.max_wait_ms} ms`),
  );
  if (asked.json) console.log(JSON.stringify(summary));
  process.exitCode = failed === 0 && (limit === null || summary.peak_sessions <= limit) ? 0 : 1;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
