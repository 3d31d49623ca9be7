/**
 * Has Schemathesis ask the plugin's routes in a running harness whatever the description of them allows, and much that it
 * does not. Arguments are handed on; the exit code is Schemathesis' own.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { limit } from './dsh.ts';
import { inWorld } from './scenario.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const program = process.env['SCHEMATHESIS'] ?? join(root, 'target/tools/schemathesis/bin/schemathesis');
const description = join(root, 'docs/openapi.json');

await inWorld({ script: () => ({ text: 'done' }), config: limit(2) }, async (world) => {
  const dsh = await world.web();
  await dsh.until('the plugin', () => /gen-limit: \d+\.\d+/.test(dsh.stderr));
  const token = await readFile(join(world.home.dir, 'gen-limit/token'), 'utf8');
  const headers = ['--header', `Authorization: Bearer ${token}`];
  const args = ['run', description, '--url', dsh.origin, ...headers, '--no-color', '--generation-database', 'none', ...process.argv.slice(2)];
  const run = spawn(program, args, { cwd: root, stdio: 'inherit' });
  const [code] = (await once(run, 'close')) as [number | null];
  process.exitCode = code ?? 1;
  // What the component does not survive is hidden by its successor.
  const { host } = (await (await dsh.fetch('/api/dsh-gen-limit/stats')).json()) as { host: { state: string; restarts: number } };
  if (host.state === 'running' && host.restarts === 0) return;
  console.error(`the component had to be built anew: ${JSON.stringify(host)}`);
  process.exitCode ||= 1;
});
