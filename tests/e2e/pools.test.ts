/** One limit for several harnesses on a machine: a row that names a pool shares its seats with every process that names it. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pass } from 'node:timers/promises';

import { Dsh, Home, MODEL, PROVIDER, type HomeOptions } from './dsh.ts';
import { ModelServer, type Script } from './model-server.ts';
import { spawn } from './scripts.ts';

const MAX = 3;
const WIDTH = 8;

/** Several harnesses with homes of their own, before one model server. */
class Machine {
  readonly server: ModelServer;
  readonly #pools: string;
  readonly #homes: Home[] = [];
  readonly #started: Dsh[] = [];

  private constructor(server: ModelServer, pools: string) {
    this.server = server;
    this.#pools = pools;
  }

  static async run(test: (machine: Machine) => Promise<void>): Promise<void> {
    const machine = new Machine(await ModelServer.start(script), await mkdtemp(join(tmpdir(), 'dsh-pools-')));
    try {
      await test(machine);
    } finally {
      await Promise.all(machine.#started.map((dsh) => dsh.stop('SIGKILL')));
      await Promise.all(machine.#homes.map((home) => home.remove()));
      await machine.server.close();
      await rm(machine.#pools, { recursive: true, force: true });
    }
  }

  async home(): Promise<Home> {
    const config = { limits: [{ provider: PROVIDER, model: MODEL, max: MAX, pool: 'gpu' }] };
    const env = { DSH_GEN_LIMIT_POOLS: this.#pools };
    const options: HomeOptions = { baseUrl: this.server.baseUrl, profile: 'web', config, env };
    const home = await Home.make(options);
    this.#homes.push(home);
    return home;
  }

  async start(home: Home): Promise<Dsh> {
    const dsh = await Dsh.web(home);
    this.#started.push(dsh);
    return dsh;
  }

  /** The sessions of a team that have come through. */
  through(team: string): number {
    return sessions(team).filter((session) => this.server.completed(session)).length;
  }

  async allThrough(teams: readonly string[]): Promise<void> {
    const done = (): boolean => this.server.idle && teams.every((team) => this.through(team) === WIDTH);
    await this.server.until(`the end of the teams ${teams.join(', ')}`, done);
  }
}

/** The sessions that a team's root spawns. */
function sessions(team: string): string[] {
  return Array.from({ length: WIDTH }, (_, index) => `${team}${index + 1}`);
}

/** A root whose name ends in 0 has its team work, once. */
const script: Script = ({ purpose, session, delegated }) => {
  if (purpose === 'title') return { text: 'A title' };
  if (!session.endsWith('0')) return { text: 'done', holdMs: 150 };
  if (delegated) return { text: 'all done' };
  return { calls: sessions(session.slice(0, -1)).map((child) => spawn(child)) };
};

test('four harnesses that fan out to eight each generate three at a time, and all come through', () =>
  Machine.run(async (machine) => {
    const teams = ['a', 'b', 'c', 'd'];
    const all = await Promise.all(teams.map(async () => machine.start(await machine.home())));
    await Promise.all(all.map((dsh, at) => dsh.prompt(`[s:${teams[at]}0] split this up`)));
    await machine.allThrough(teams);
    assert.equal(machine.server.peakSessions, MAX, machine.server.describe());
  }));

test('who is killed lets go of its seats, who is stopped keeps them and holds nobody else up, and the limit holds throughout', () =>
  Machine.run(async (machine) => {
    const { server } = machine;
    const teams = ['a', 'b', 'c', 'd'];
    const homes = await Promise.all(teams.map(() => machine.home()));
    const all = await Promise.all(homes.map((home) => machine.start(home)));
    const [killed, stopped] = all as [Dsh, Dsh, Dsh, Dsh];
    await Promise.all(all.map((dsh, at) => dsh.prompt(`[s:${teams[at]}0] split this up`)));

    await server.until('a seat of the first', () => server.generating.some((session) => /^a[1-8]$/.test(session)));
    await killed.stop('SIGKILL');
    const left = server.streams.length;
    await server.until('three of others', () => server.generating.length === MAX && server.streams.length > left);

    process.kill(stopped.pid, 'SIGSTOP');
    await pass(5_000);
    process.kill(stopped.pid, 'SIGCONT');
    const again = await machine.start(homes[0] as Home);
    await again.prompt('[s:e0] split this up');
    await machine.allThrough(['b', 'c', 'd', 'e']);
    assert.equal(server.peakSessions, MAX, server.describe());
  }));
