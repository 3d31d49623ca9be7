/** Where the parts are looked for. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { packaged } from '../src/load.ts';

const { DSH_HOME, DSH_GEN_LIMIT_PLUGINS } = process.env;

afterEach(() => {
  for (const [name, value] of Object.entries({ DSH_HOME, DSH_GEN_LIMIT_PLUGINS })) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});

test('plugins are dropped into the home, or where a variable says', () => {
  process.env['DSH_HOME'] = '/somewhere';
  delete process.env['DSH_GEN_LIMIT_PLUGINS'];
  assert.equal(packaged().plugins, join('/somewhere', 'wasm-plugins'));
  process.env['DSH_GEN_LIMIT_PLUGINS'] = '~/plugins';
  assert.equal(packaged().plugins, join(homedir(), 'plugins'));
});

test('where there is no home at all there is no folder, and nothing fails', { skip: process.getuid?.() !== 0 && 'only root can be somebody whom nobody knows' }, () => {
  const script = `
    import { packaged } from ${JSON.stringify(new URL('../src/load.ts', import.meta.url).href)};
    process.setuid(54_321);
    process.stdout.write(String(packaged().plugins));
  `;
  const said = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { env: {}, encoding: 'utf8' });
  assert.equal(said, 'undefined');
});
