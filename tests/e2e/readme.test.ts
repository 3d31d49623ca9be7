/** What the README tells people to write works as written. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { inWorld } from './scenario.ts';
import { fanOut, ROOT } from './scripts.ts';

test('the configuration of the README puts its limit in force', async () => {
  const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8');
  const patch = /```yaml\n(?<yaml>[^`]*id: gen-limit[^`]*)```/.exec(readme)?.groups?.['yaml'];
  assert.ok(patch, 'the README shows a configuration of the row');
  await inWorld({ script: fanOut({ n: 1 }), profile: 'headless' }, async (world) => {
    await world.home.patchText(patch);
    const dsh = await world.headless(`[s:${ROOT}] work`);
    assert.equal(await dsh.exited, 0, dsh.stderr);
    assert.match(dsh.stderr, /^gen-limit: .*; my-box\/\* max 2$/m);
  });
});
