/** The trace: one line for each decision, in order, and everything at the end. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { World, limit, settled, temporary, until } from './support.ts';

test('a trace has one line for each decision and the stats at its end', async () => {
  const file = join(temporary(), 'trace.jsonl');
  process.env['DSH_GEN_LIMIT_TRACE'] = file;
  const world = await World.make({ config: limit(1, { maxQueued: 2, queueTimeoutMs: 500 }) });
  delete process.env['DSH_GEN_LIMIT_TRACE'];
  for (const session of ['a', 'b', 'c', 'd']) world.read(session);
  await settled();
  world.backend.of('a').end();
  await settled();
  world.gate.advance(500);
  await settled();
  await world.end();
  const lines = readFileSync(file, 'utf8').trim().split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
  const told = lines.map(({ event, session, result, reason }) => [event, session, result, reason].filter(Boolean).join(' '));
  assert.deepEqual(told, [
    'admit a', 'wait b', 'wait c', 'deny d refused queue-full',
    'finish a completed', 'settled b admitted', 'settled c refused queue-timeout',
    'finish b completed', 'stats',
  ]);
  for (const line of lines.slice(0, -1)) {
    assert.equal(typeof line['id'], 'number');
    assert.equal(line['kind'], 'stream');
    assert.equal(line['route'], 'box/m');
    assert.ok(Math.abs(Number(line['t']) - Date.now()) < 60_000);
  }
  assert.equal(lines[6]?.['waitedMs'], 500);
  const { stats, host } = lines.at(-1) as { stats: { totals: Record<string, number> }; host: { sha256: string } };
  assert.equal(stats.totals['waited'], 1);
  assert.match(host.sha256, /^[0-9a-f]{64}$/u);
});

test('a call that outlives the limit is traced to its end', async () => {
  const file = join(temporary(), 'trace.jsonl');
  process.env['DSH_GEN_LIMIT_TRACE'] = file;
  const world = await World.make({ config: limit(1) });
  delete process.env['DSH_GEN_LIMIT_TRACE'];
  for (const session of ['a', 'b']) world.read(session);
  await settled();
  const { gate } = world;
  await world.disable();
  await until(() => gate.limiter === undefined);
  for (const call of world.backend.open) call.end();
  await settled();
  const lines = readFileSync(file, 'utf8').trim().split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.deepEqual(lines.map(({ event, session }) => [event, session].filter(Boolean).join(' ')), [
    'admit a', 'wait b', 'stats', 'finish a', 'finish b',
  ]);
});
