/** What the demonstration says at its end can be read by a program, and is true. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { COMPONENT, HARNESS_NAME } from './dsh.ts';
import { PATIENCE_MS } from './patience.ts';

const DEMO = fileURLToPath(new URL('demo.ts', import.meta.url));

test('the demo at a limit of one ends with a line of JSON that tells what happened', async () => {
  const options = ['--limit', '1', '--fanout', '3', '--hold', '100', '--json'];
  // Any exit code but 0 rejects, with what the demo wrote to stderr. An interrupted demo cleans up after itself.
  const { stdout } = await promisify(execFile)(process.execPath, [DEMO, ...options], {
    timeout: PATIENCE_MS,
    killSignal: 'SIGINT',
  });
  const { waited, max_wait_ms, ...told } = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Record<string, unknown>;
  assert.ok(Number.isInteger(waited) && Number(waited) > 0, `waited: ${String(waited)}`);
  assert.ok(Number.isInteger(max_wait_ms) && Number(max_wait_ms) > 0, `max_wait_ms: ${String(max_wait_ms)}`);
  const { peak_streams, ...certain } = told;
  // A session overlaps its own title, so there may be more streams than sessions.
  assert.ok(peak_streams === 1 || peak_streams === 2, `peak_streams: ${String(peak_streams)}`);
  assert.deepEqual(certain, {
    harness: HARNESS_NAME,
    limit: 1,
    fanout: 3,
    peak_sessions: 1,
    completed: 3,
    failed: 0,
    component_sha256: createHash('sha256').update(await readFile(COMPONENT)).digest('hex'),
  });
});
