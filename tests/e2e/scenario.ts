/** The world of one test: a model server, a home, and harnesses that end with the test. */
import assert from 'node:assert/strict';

import { Dsh, HARNESS, Home, type HomeOptions, type Profile } from './dsh.ts';
import type { Harness } from './harness.ts';
import { ModelServer, type Arrival, type Reply, type Script } from './model-server.ts';
import { PATIENCE_MS } from './patience.ts';
import { gate, type Gate } from './scripts.ts';

/** The profile in which a team of agents is worked with: a headless harness ends with its root, whoever works on. */
export const TEAM: Profile = HARNESS.foreground ? 'headless' : 'web';

/** What a test works with. */
export class World {
  readonly server: ModelServer;
  readonly home: Home;
  readonly #started: Dsh[] = [];

  constructor(server: ModelServer, home: Home) {
    this.server = server;
    this.home = home;
  }

  /** Starts the web profile, on a free port unless one is given. */
  async web(port?: number): Promise<Dsh> {
    const dsh = await Dsh.web(this.home, port);
    this.#started.push(dsh);
    return dsh;
  }

  /** Answers one prompt in the headless profile; gives the process after its end. */
  async headless(prompt: string, command?: Harness['command']): Promise<Dsh> {
    const dsh = Dsh.headless(this.home, prompt, command);
    this.#started.push(dsh);
    const overdue = setTimeout(() => void dsh.stop('SIGKILL'), PATIENCE_MS);
    await dsh.exited;
    clearTimeout(overdue);
    return dsh;
  }

  /** Has a team do what is asked in the profile for teams, until all is `done`; gives the process after its end. */
  async team(prompt: string, done: () => boolean): Promise<Dsh> {
    if (HARNESS.foreground) {
      const dsh = await this.headless(prompt);
      assert.equal(await dsh.exited, 0, dsh.stderr);
      return dsh;
    }
    const dsh = await this.web();
    await dsh.prompt(prompt);
    const { server, home } = this;
    await server.until('the end of the team', () => done() && server.quiet);
    await home.traced('the end of all calls', () => home.live().length === 0);
    await dsh.stop();
    return dsh;
  }

  /** Opens `held` when `n` sessions generate at once, so that a peak does not depend on how fast they start. */
  async crowd(n: number, held: Gate): Promise<void> {
    await this.server.until(`${n} at once`, () => this.server.peakSessions >= n);
    held.open();
  }

  /** Ends the harnesses and deletes their home. */
  async end(): Promise<void> {
    await Promise.all(this.#started.map((dsh) => dsh.stop('SIGKILL')));
    await this.home.remove();
  }
}

/** What a test wants of its world. */
export interface Scenario extends Omit<HomeOptions, 'baseUrl' | 'profile'> {
  readonly script: Script;
  readonly profile?: Profile;
}

/** Runs a test in a world of its own. */
export async function inWorld(scenario: Scenario, test: (world: World) => Promise<void>): Promise<void> {
  const { script, profile = 'web', ...options } = scenario;
  const server = await ModelServer.start(script);
  try {
    const world = new World(server, await Home.make({ ...options, profile, baseUrl: server.baseUrl }));
    try {
      await test(world);
    } finally {
      await world.end();
    }
  } finally {
    await server.close();
  }
}

/** A script under which every chat stays open until the test lets its session go; titles are answered at once. */
export class Holds {
  readonly #gates = new Map<string, Gate>();

  readonly script: Script = (arrival) =>
    arrival.purpose === 'title' ? { text: 'A title' } : { text: 'done', ...this.until(arrival.session) };

  /** Part of a reply that waits until the session is let go. */
  until(session: string): Pick<Reply, 'until'> {
    return { until: this.#of(session).opened };
  }

  /** Lets a session's streams end, those to come included. */
  release(session: string): void {
    this.#of(session).open();
  }

  #of(session: string): Gate {
    const held = this.#gates.get(session) ?? gate();
    this.#gates.set(session, held);
    return held;
  }
}

/** The script of `holds`, with what `answer` has to say in place of its texts; chats are held all the same. */
export function holding(holds: Holds, answer: (arrival: Arrival) => Reply | undefined): Script {
  return (arrival) => ({ ...holds.script(arrival), ...answer(arrival) });
}

/** Two sessions that generate and two that wait, in a running harness whose limit is 2. */
export interface TwoAndTwo {
  readonly dsh: Dsh;
  /** The harness's session ids by tag. */
  readonly ids: Readonly<Record<'A' | 'B' | 'C' | 'D', string>>;
}

/** Brings A and B to generate and C and D to wait, C before D. */
export async function twoAndTwo({ server, home }: World, dsh: Dsh): Promise<TwoAndTwo> {
  const ids = { A: '', B: '', C: '', D: '' };
  for (const tag of ['A', 'B'] as const) {
    ids[tag] = await dsh.prompt(`[s:${tag}] work`);
    await server.until(`${tag} generates`, () => server.generating.includes(tag));
  }
  for (const tag of ['C', 'D'] as const) {
    ids[tag] = await dsh.prompt(`[s:${tag}] work`);
    await home.traced(`wait of ${tag}`, () => home.waiting().some((call) => call.session === ids[tag]));
  }
  return { dsh, ids };
}
