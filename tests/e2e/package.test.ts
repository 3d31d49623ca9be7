/** What the package holds belongs together, works from an empty folder, and compiles nothing when a harness starts. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import type * as Addon from '../../host-shim/node/index.d.ts';

import { COMPONENT, NAME, PACKAGE } from './dsh.ts';
import { inWorld, type World } from './scenario.ts';
import { fanOut, ROOT } from './scripts.ts';

const BUDGET = join(dirname(COMPONENT), 'budget-guard.wasm');

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(folder: string, program: string, ...args: string[]): Promise<Ended> {
  try {
    return { code: 0, ...(await promisify(execFile)(program, args, { cwd: folder })) };
  } catch (error) {
    return error as Ended;
  }
}

describe('installed into an empty folder', () => {
  let folder = '';
  let installed = '';
  const npx = (...args: string[]): Promise<Ended> => run(folder, 'npx', '--no-install', NAME, ...args);

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'gen-limit-package-'));
    installed = join(folder, 'node_modules', NAME);
    const { code, stderr } = await run(folder, 'npm', 'install', '--offline', '--no-audit', '--no-fund', PACKAGE);
    assert.equal(code, 0, stderr);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  test('the component comes with its code, and the addon knows both', async () => {
    const { Component } = createRequire(import.meta.url)(join(installed, 'gen-limit.node')) as typeof Addon;
    const path = join(installed, 'gen-limit.wasm');
    const component = await Component.load(path);
    assert.deepEqual([component.source, component.notice], ['precompiled', null]);
    const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
    const [wasm, code, addon] = await Promise.all(['wasm', 'cwasm', 'node'].map((kind) => readFile(join(installed, `gen-limit.${kind}`))));
    assert.ok(wasm && code && addon);
    assert.equal(component.sha256, digest(wasm));
    assert.ok(addon.includes(`${digest(wasm)} ${digest(code)}`), 'the digests are compiled in');
  });

  test('a file is inspected, in lines and as a document', async () => {
    const inspected = await npx('inspect', BUDGET);
    assert.equal(inspected.code, 0, inspected.stderr);
    const sha256 = createHash('sha256').update(await readFile(BUDGET)).digest('hex');
    for (const line of [
      `file         ${BUDGET}`,
      `sha256       ${sha256}`,
      'world        dsh:plugin/hooks',
      'imports      dsh:plugin/types@0.1.0 (host interfaces only, no WASI)',
    ]) {
      assert.ok(inspected.stdout.split('\n').includes(line), `${line}\n${inspected.stdout}`);
    }
    assert.match(inspected.stdout, /^exports {6}.*dsh:plugin\/llm-stream@0\.1\.0/m);
    assert.match(inspected.stdout, /^processed-by wit-component /m);
    const document = JSON.parse((await npx('inspect', BUDGET, '--json')).stdout) as Addon.Inspected;
    assert.deepEqual([document.sha256, document.world], [sha256, 'hooks']);
  });

  test('what would be refused is refused with one sentence', async () => {
    await writeFile(join(folder, 'page.wasm'), '<!doctype html>');
    const refused = await npx('inspect', 'page.wasm');
    assert.deepEqual([refused.code, refused.stdout], [1, '']);
    assert.match(refused.stderr, /^page\.wasm: the file is not WebAssembly.*\n$/);
    const document = await npx('inspect', 'page.wasm', '--json');
    assert.equal(document.code, 1);
    assert.match((JSON.parse(document.stdout) as { error: string }).error, /not WebAssembly/);
  });

  test('what is not understood is answered with what would be', async () => {
    const help = await npx('--help');
    assert.equal(help.code, 0);
    assert.match(help.stdout, /inspect FILE/);
    for (const words of [[], ['inspekt', 'x'], ['inspect'], ['inspect', 'a', 'b'], ['inspect', 'a', '--jason']]) {
      const { code, stderr } = await npx(...words);
      assert.equal(code, 2, words.join(' '));
      assert.ok(stderr.includes(help.stdout), stderr);
    }
  });

  test('where there is no addon for the platform it says so', async () => {
    const addon = join(installed, 'gen-limit.node');
    // This process has it mapped, so it is moved and not written to.
    await rename(addon, `${addon}.whole`);
    try {
      await writeFile(addon, 'of another platform');
      const { code, stderr } = await npx('inspect', BUDGET);
      assert.equal(code, 3, stderr);
      assert.match(stderr, /expected the native addon for .* there.*install @creait\/dsh-gen-limit again/);
    } finally {
      await rename(`${addon}.whole`, addon);
    }
  });
});

describe('a harness that starts', { concurrency: 2 }, () => {
  /** One agent works in a harness whose user has an empty cache; what the plugin says. */
  async function start(spoil: (world: World) => Promise<unknown>): Promise<{ stderr: string; compiled: boolean }> {
    const caches = await mkdtemp(join(tmpdir(), 'gen-limit-caches-'));
    try {
      const said = { stderr: '' };
      await inWorld({ script: fanOut({ n: 1 }), profile: 'headless', env: { XDG_CACHE_HOME: caches } }, async (world) => {
        await spoil(world);
        const dsh = await world.headless(`[s:${ROOT}] work`);
        assert.equal(await dsh.exited, 0, dsh.stderr);
        said.stderr = dsh.stderr;
      });
      return { ...said, compiled: existsSync(join(caches, 'dsh-gen-limit')) };
    } finally {
      await rm(caches, { recursive: true, force: true });
    }
  }

  test('compiles nothing', async () => {
    const { stderr, compiled } = await start(async () => undefined);
    assert.equal(compiled, false);
    assert.match(stderr, /^gen-limit: .*, component [0-9a-f]{12}; inactive/m);
    assert.doesNotMatch(stderr, /cwasm/);
  });

  test('compiles, and says so, what it has no use for the code of', async () => {
    const { stderr, compiled } = await start(({ home }) => copyFile(BUDGET, join(home.installed, 'gen-limit.cwasm')));
    assert.equal(compiled, true);
    assert.match(stderr, /^gen-limit: .*gen-limit\.cwasm: has the sha256 .*install the package again$/m);
    assert.match(stderr, /^gen-limit: .*, component [0-9a-f]{12}; inactive/m);
  });

  test('compiles another component that was put in the place of ours, and runs that', async () => {
    const { stderr, compiled } = await start(({ home }) => copyFile(COMPONENT.replace('gen-limit.wasm', 'gen-limit-chaos.wasm'), join(home.installed, 'gen-limit.wasm')));
    assert.equal(compiled, true);
    assert.doesNotMatch(stderr, /cwasm/);
    assert.match(stderr, /^gen-limit: .*, component [0-9a-f]{12}; inactive/m);
  });
});
