/** The main job: however wide the fan-out, no more sessions than the limit generate, and all of them come through. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { type Dsh, HARNESS, limit } from './dsh.ts';
import type { ModelServer, Stream } from './model-server.ts';
import { inWorld, type Scenario, TEAM, type World } from './scenario.ts';
import { children, fanOut, gate, ROOT, spawn, tag, type FanOut } from './scripts.ts';

const PROMPT = `[s:${ROOT}] split this up`;

function allComplete(server: ModelServer, n: number): void {
  const open = children(n).filter((session) => !server.completed(session));
  assert.deepEqual(open, [], server.describe());
  const broken = server.streams.filter((stream) => stream.outcome !== 'completed');
  assert.deepEqual(broken, [], 'no stream failed or was aborted');
}

/** Has `n` children work, in `turns` streams each at least. */
async function fannedOut(world: World, n: number, turns = 1): Promise<Dsh> {
  const { server } = world;
  const done = (child: string): boolean => server.completed(child) && server.of(child, 'chat').length >= turns;
  const dsh = await world.team(PROMPT, () => children(n).every(done));
  allComplete(world.server, n);
  return dsh;
}

/** A fan-out whose streams begin to end when `peak` sessions generate at once. */
async function crowded(
  plan: FanOut,
  peak: number,
  scenario: Omit<Scenario, 'script'>,
  run: (world: World) => Promise<void>,
): Promise<void> {
  const full = gate();
  const held = { until: full.opened, ...(plan.titleMs !== undefined && { titleUntil: full.opened }) };
  await inWorld({ script: fanOut({ ...plan, ...held }), ...scenario }, async (world) => {
    await Promise.all([run(world), world.crowd(peak, full)]);
  });
}

/** The streams of children, in the order of their opening. */
function ofChildren({ streams }: ModelServer): Stream[] {
  return streams.filter(({ session }) => session !== ROOT);
}

/** The title's stream, which has ended well, and the moment it did. */
function titleOf(server: ModelServer): { readonly openedAt: number; readonly closedAt: number } {
  const [title] = server.of(ROOT, 'title');
  assert.equal(title?.outcome, 'completed', server.describe());
  assert.ok(title.closedAt !== undefined);
  return { openedAt: title.openedAt, closedAt: title.closedAt };
}

/** Whether a child generated while the title did. */
function titleMetChild(server: ModelServer): boolean {
  const title = titleOf(server);
  return ofChildren(server).some(
    ({ openedAt, closedAt = Infinity }) => openedAt < title.closedAt && closedAt > title.openedAt,
  );
}

describe('a fan-out of twelve', { concurrency: 2 }, () => {
  const twelve: FanOut = { n: 12, holdMs: 150 };

  test('peaks at twelve or more without the plugin', () =>
    crowded(twelve, 12, { profile: TEAM, packages: [] }, async (world) => {
      await fannedOut(world, 12);
      assert.ok(world.server.peakSessions >= 12, `peak ${world.server.peakSessions}`);
    }));

  for (const max of [1, 2, 3]) {
    test(`peaks at its limit of ${max}`, () =>
      crowded(twelve, max, { profile: TEAM, config: limit(max) }, async (world) => {
        const dsh = await fannedOut(world, 12);
        assert.equal(world.server.peakSessions, max);
        assert.match(dsh.stderr, new RegExp(`^gen-limit: \\S+, component [0-9a-f]+; mock/model max ${max}$`, 'm'));
      }));

    const skip = HARNESS.foreground ? false : 'all its subagents work in the background: see the case above';
    test(`peaks at its limit of ${max} in the background`, { skip }, () =>
      crowded({ ...twelve, background: true }, max, { config: limit(max) }, async (world) => {
        const { server } = world;
        const dsh = await world.web();
        await dsh.prompt(PROMPT);
        await server.until('all children', () => children(12).every((child) => server.completed(child)));
        assert.equal(server.peakSessions, max);
      }));
  }

  for (const max of [2, 3]) {
    test(`peaks at its limit of ${max} while the title takes 2.5 s`, () =>
      // Even on all seats the title leaves, the children take longer than it: a headless harness that is done aborts it.
      crowded({ ...twelve, holdMs: 600, titleMs: 2_500 }, max, { profile: TEAM, config: limit(max) }, async (world) => {
        await fannedOut(world, 12);
        assert.equal(world.server.peakSessions, max);
        assert.ok(titleMetChild(world.server), world.server.describe());
      }));
  }

  test('waits at a limit of one until the title has ended', () => {
    const met = gate();
    const script = fanOut({ ...twelve, titleUntil: met.opened });
    return inWorld({ script, profile: TEAM, config: limit(1) }, async (world) => {
      const { server, home } = world;
      const meeting = home.traced('a child in line', () => home.waiting('spawn').length > 0).then(() => {
        assert.deepEqual(server.generating, [ROOT]);
        assert.ok(server.of(ROOT, 'chat')[0]?.closedAt !== undefined, 'the title alone has the seat');
        met.open();
      });
      await Promise.all([fannedOut(world, 12), meeting]);
      const { closedAt } = titleOf(server);
      assert.ok(ofChildren(server).every(({ openedAt }) => openedAt >= closedAt), server.describe());
      assert.equal(server.peakSessions, 1);
    });
  });

  test('of forks peaks at its limit', () =>
    crowded({ ...twelve, tool: 'subagent_fork' }, 2, { profile: TEAM, config: limit(2) }, async (world) => {
      await fannedOut(world, 12);
      assert.equal(world.server.peakSessions, 2);
    }));
});

test('six children and a title that overlaps them peak at a limit of two', () =>
  crowded({ n: 6, holdMs: 200, titleMs: 800 }, 2, { profile: TEAM, config: limit(2) }, async (world) => {
    await fannedOut(world, 6);
    assert.ok(titleMetChild(world.server), world.server.describe());
    assert.equal(world.server.peakSessions, 2);
  }));

test('children of several turns give their seats back between them and peak at the limit', () => {
  const two = gate();
  const steps = fanOut({ n: 6, holdMs: 60 }, ({ turn }) =>
    turn < 4
      ? {
          calls: [{ name: 'todo_write', arguments: { todos: [] } }],
          holdMs: 40 + ((turn * 37) % 60),
          until: two.opened,
        }
      : undefined,
  );
  return inWorld({ script: steps, profile: TEAM, config: limit(2) }, async (world) => {
    await Promise.all([fannedOut(world, 6, 5), world.crowd(2, two)]);
    assert.equal(world.server.peakSessions, 2);
    for (const child of children(6)) assert.equal(world.server.of(child, 'chat').length, 5, world.server.describe());
  });
});

test('a chain three deep completes at a limit of one', () =>
  inWorld(
    {
      profile: TEAM,
      config: limit(1),
      script: ({ purpose, session, delegated }) => {
        if (purpose === 'title') return { text: 'A title' };
        const depth = Number(session);
        return depth < 3 && !delegated ? { calls: [spawn(tag(depth + 1))] } : { text: 'done' };
      },
    },
    async (world) => {
      await fannedOut(world, 3);
      assert.equal(world.server.peakSessions, 1);
    },
  ));

test('a row without limits says so and lets everything pass', () =>
  crowded({ n: 12 }, 12, { profile: TEAM }, async (world) => {
    const dsh = await fannedOut(world, 12);
    assert.match(dsh.stderr, /^gen-limit: \S+, component [0-9a-f]+; inactive: no limits set$/m);
    assert.ok(world.server.peakSessions >= 12, `peak ${world.server.peakSessions}`);
  }));
