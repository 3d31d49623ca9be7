/** The main job: however wide the fan-out, no more sessions than the limit generate, and all of them come through. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { type Dsh, limit } from './dsh.ts';
import type { ModelServer } from './model-server.ts';
import { inWorld, type World } from './scenario.ts';
import { children, fanOut, ROOT, spawn, tag, type FanOut } from './scripts.ts';

const PROMPT = `[s:${ROOT}] split this up`;

function allComplete(server: ModelServer, n: number): void {
  const open = children(n).filter((session) => !server.completed(session));
  assert.deepEqual(open, [], server.describe());
  const broken = server.streams.filter((stream) => stream.outcome !== 'completed');
  assert.deepEqual(broken, [], 'no stream failed or was aborted');
}

async function foreground(world: World, n: number): Promise<Dsh> {
  const dsh = await world.headless(PROMPT);
  assert.equal(await dsh.exited, 0, dsh.stderr);
  allComplete(world.server, n);
  return dsh;
}

describe('a fan-out of twelve', { concurrency: 2 }, () => {
  const twelve: FanOut = { n: 12, holdMs: 150 };

  test('peaks at twelve or more without the plugin', () =>
    inWorld({ script: fanOut({ ...twelve, holdMs: 1_500 }), profile: 'headless', packages: [] }, async (world) => {
      await foreground(world, 12);
      assert.ok(world.server.peakSessions >= 12, `peak ${world.server.peakSessions}`);
    }));

  for (const max of [1, 2, 3]) {
    test(`peaks at its limit of ${max}`, () =>
      inWorld({ script: fanOut(twelve), profile: 'headless', config: limit(max) }, async (world) => {
        const dsh = await foreground(world, 12);
        assert.equal(world.server.peakSessions, max);
        assert.match(dsh.stderr, new RegExp(`^gen-limit: \\S+, component [0-9a-f]+; mock/model max ${max}$`, 'm'));
      }));

    test(`peaks at its limit of ${max} in the background`, () =>
      inWorld({ script: fanOut({ ...twelve, background: true }), config: limit(max) }, async (world) => {
        const { server } = world;
        const dsh = await world.web();
        await dsh.prompt(PROMPT);
        await server.until('all children', () => children(12).every((child) => server.completed(child)), 60_000);
        assert.equal(server.peakSessions, max);
      }));

    test(`peaks at its limit of ${max} while the title takes 2.5 s`, () =>
      inWorld({ script: fanOut({ ...twelve, titleMs: 2_500 }), profile: 'headless', config: limit(max) }, async (world) => {
        await foreground(world, 12);
        assert.equal(world.server.peakSessions, max);
        assert.equal(world.server.of(ROOT, 'title')[0]?.outcome, 'completed');
      }));
  }

  test('of forks peaks at its limit', () =>
    inWorld({ script: fanOut({ ...twelve, tool: 'subagent_fork' }), profile: 'headless', config: limit(2) }, async (world) => {
      await foreground(world, 12);
      assert.equal(world.server.peakSessions, 2);
    }));
});

test('six children and a title that overlaps them peak at a limit of two', () =>
  inWorld({ script: fanOut({ n: 6, holdMs: 200, titleMs: 800 }), profile: 'headless', config: limit(2) }, async (world) => {
    await foreground(world, 6);
    assert.equal(world.server.peakSessions, 2);
    assert.ok(world.server.peakStreams >= 2);
  }));

test('children of several turns give their seats back between them and peak at the limit', () => {
  const steps = fanOut({ n: 6, holdMs: 60 }, ({ turn }) =>
    turn < 4
      ? { calls: [{ name: 'todo_write', arguments: { todos: [] } }], holdMs: 40 + ((turn * 37) % 60) }
      : undefined,
  );
  return inWorld({ script: steps, profile: 'headless', config: limit(2) }, async (world) => {
    await foreground(world, 6);
    assert.equal(world.server.peakSessions, 2);
    for (const child of children(6)) assert.equal(world.server.of(child, 'chat').length, 5, world.server.describe());
  });
});

test('a chain three deep completes at a limit of one', () =>
  inWorld(
    {
      profile: 'headless',
      config: limit(1),
      script: ({ purpose, session, delegated }) => {
        if (purpose === 'title') return { text: 'A title' };
        const depth = Number(session);
        return depth < 3 && !delegated ? { calls: [spawn(tag(depth + 1))] } : { text: 'done' };
      },
    },
    async (world) => {
      await foreground(world, 3);
      assert.equal(world.server.peakSessions, 1);
    },
  ));

test('a row without limits says so and lets everything pass', () =>
  inWorld({ script: fanOut({ n: 12, holdMs: 1_500 }), profile: 'headless' }, async (world) => {
    const dsh = await foreground(world, 12);
    assert.match(dsh.stderr, /^gen-limit: \S+, component [0-9a-f]+; inactive: no limits set$/m);
    assert.ok(world.server.peakSessions >= 12, `peak ${world.server.peakSessions}`);
  }));
