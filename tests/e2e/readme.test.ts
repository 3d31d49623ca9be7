/** What the README tells people to write works as written. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { inWorld } from './scenario.ts';
import { fanOut, ROOT } from './scripts.ts';

const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8');

test('the configuration of the README puts its limit in force', async () => {
  const patch = /```yaml\n(?<yaml>[^`]*id: gen-limit[^`]*)```/.exec(readme)?.groups?.['yaml'];
  assert.ok(patch, 'the README shows a configuration of the row');
  await inWorld({ script: fanOut({ n: 1 }), profile: 'headless' }, async (world) => {
    await world.home.patchText(patch);
    const dsh = await world.headless(`[s:${ROOT}] work`);
    assert.equal(await dsh.exited, 0, dsh.stderr);
    assert.match(dsh.stderr, /^gen-limit: .*; my-box\/\* max 2$/m);
  });
});

test('the tenants of the README have limits of their own', async () => {
  const patch = /```yaml\n(?<yaml>[^`]*tenant:[^`]*)```/.exec(readme)?.groups?.['yaml'];
  assert.ok(patch, 'the README shows two rows');
  await inWorld({ script: () => ({ text: 'done' }) }, async (world) => {
    await world.home.patchText(patch);
    const dsh = await world.web();
    await dsh.until('both rows', () => (dsh.stderr.match(/^gen-limit: .*; my-box/gm)?.length ?? 0) === 2);
    assert.match(dsh.stderr, /^gen-limit: \d\S+ component .*; my-box\/\* max 2$/m);
    assert.match(dsh.stderr, /^gen-limit: tenant lab: .*; my-box\/\* max 1$/m);
  });
});

test('the commands of the README ask and change a running plugin', async () => {
  const commands = /```sh\n(?<sh>base=[^`]*)```/.exec(readme)?.groups?.['sh'];
  assert.ok(commands, 'the README shows how to ask');
  await inWorld({ script: () => ({ text: 'done' }) }, async (world) => {
    const { home } = world;
    const dsh = await world.web();
    await dsh.until('the plugin', () => /gen-limit: \d+\.\d+/.test(dsh.stderr));
    const here = commands.replace('http://127.0.0.1:3080', dsh.origin).replace('~/.dsh', home.dir);
    const { stdout } = await promisify(execFile)('bash', ['-euc', here.replaceAll('curl ', 'curl -fsS -w "\\n" ')]);
    const [stats, config] = stdout.trim().split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
    assert.deepEqual(stats?.['entries'], []);
    assert.deepEqual(config?.['problems'], []);
    const limits = [{ provider: 'my-box', model: '*', max: 1 }];
    assert.deepEqual((config?.['value'] as { limits: unknown }).limits, limits);
  });
});
