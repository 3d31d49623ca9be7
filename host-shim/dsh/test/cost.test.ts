/** That nothing gets much worse without anybody noticing. The figures and their bounds are those of `bench/ratios.ts`. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const RATIOS = fileURLToPath(new URL('../bench/ratios.ts', import.meta.url));

const { stdout } = await promisify(execFile)(process.execPath, ['--single-threaded', RATIOS]);
for (const [what, ratio, bound] of JSON.parse(stdout) as Array<[what: string, ratio: number, bound: number]>) {
  test(`${what}: at most ${bound}`, (t) => {
    t.diagnostic(`${ratio.toFixed(2)}`);
    assert.ok(ratio <= bound, `${ratio.toFixed(2)} times as much, where at most ${bound} is allowed`);
  });
}
