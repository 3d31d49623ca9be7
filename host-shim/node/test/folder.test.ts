/** A watched folder through the addon: what has changed arrives on the main thread, which is not held up, nor the process kept alive. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { after, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import type * as Addon from '../index.d.ts';

const root = new URL('../../../', import.meta.url);
const FILE = fileURLToPath(new URL('host-shim/node/gen-limit.node', root));
const addon = createRequire(import.meta.url)(FILE) as typeof Addon;
const built = (name: string) => fileURLToPath(new URL(`target/component/${name}`, root));
const BUDGET = built('budget-guard.wasm');
const LIMITER = built('gen-limit.wasm');

const place = mkdtempSync(join(tmpdir(), 'gen-limit-folder-'));
after(() => rmSync(place, { recursive: true }));

/** A watched folder, and what it tells of one by one. */
class Watched {
  readonly path: string;
  readonly folder: Addon.PluginFolder;
  #changes: Addon.PluginChange[] = [];
  #tell = () => {};

  constructor(name: string, options?: Addon.PluginFolderOptions) {
    this.path = join(place, name);
    mkdirSync(this.path);
    this.folder = new addon.PluginFolder(
      this.path,
      () => {
        this.#changes.push(...this.folder.takeChanges());
        this.#tell();
      },
      options,
    );
  }

  /** The next change; something else keeps the process alive meanwhile. */
  async next(): Promise<Addon.PluginChange> {
    const alive = setInterval(() => {}, 60_000);
    while (this.#changes.length === 0) await new Promise<void>((tell) => (this.#tell = tell));
    clearInterval(alive);
    return this.#changes.shift()!;
  }

  /** Renames a copy into place. */
  drop(file: string, from: string): void {
    copyFileSync(from, join(this.path, '.next'));
    renameSync(join(this.path, '.next'), join(this.path, file));
  }
}

suite('a folder', () => {
  test('what is dropped in arrives as a component that works, and the event loop goes on', async () => {
    const watched = new Watched('drop');
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    const begun = performance.now();
    watched.drop('budget.wasm', BUDGET);
    const change = await watched.next();
    const took = performance.now() - begun;
    delay.disable();
    console.log(`told of after ${took.toFixed(0)} ms; the event loop was late by ${(delay.max / 1e6).toFixed(1)} ms at most`);
    assert.deepEqual([change.kind, change.name], ['loaded', 'budget']);
    assert.deepEqual([change.componentChanged, change.settingsChanged], [true, true]);
    assert.ok(change.component instanceof addon.Component);
    assert.equal(change.component.size, readFileSync(BUDGET).length);
    const [entry] = watched.folder.entries();
    assert.deepEqual([entry?.file, entry?.plugin, entry?.state, entry?.world], ['budget.wasm', 'budget', 'loaded', 'hooks']);
    assert.equal(entry?.sha256, change.component.sha256);
    const limiter = new addon.Limiter(change.component);
    assert.equal(limiter.startStream('box', 'm', 'a', true) & 3, 0, 'admitted');
    watched.folder.close();
  });

  test('settings, refusals and removals are told of', async () => {
    const watched = new Watched('changes');
    writeFileSync(join(watched.path, 'budget.json'), '{"config": {"perMinute": 2}, "limits": {}}');
    watched.drop('budget.wasm', BUDGET);
    const loaded = await watched.next();
    assert.deepEqual([loaded.kind, loaded.config, loaded.limits], ['loaded', '{"perMinute": 2}', '{}']);
    writeFileSync(join(watched.path, 'budget.json'), '{"cofnig": {}}');
    const refused = await watched.next();
    assert.deepEqual([refused.kind, refused.name, refused.file], ['refused', 'budget', 'budget.json']);
    assert.match(refused.reason ?? '', /^budget\.json: .*cofnig/u);
    assert.deepEqual(
      watched.folder.entries().map(({ state }) => state),
      ['refused', 'loaded'],
    );
    rmSync(join(watched.path, 'budget.json'));
    const again = await watched.next();
    assert.deepEqual([again.kind, again.config, again.componentChanged, again.settingsChanged], ['loaded', undefined, false, true]);
    rmSync(join(watched.path, 'budget.wasm'));
    assert.deepEqual(await watched.next(), { kind: 'removed', name: 'budget' });
    writeFileSync(join(watched.path, 'gen-limit.json'), '{"limits": {"memoryBytes": 1000000}}');
    const settings = await watched.next();
    assert.deepEqual([settings.kind, settings.name, settings.limits], ['settings', 'gen-limit', '{"memoryBytes": 1000000}']);
    watched.folder.close();
  });

  test('it stands as it is, and after its end there is none', async () => {
    const watched = new Watched('standing');
    watched.drop('budget.wasm', BUDGET);
    await watched.next();
    assert.deepEqual(watched.folder.standing(), { path: watched.path, seen: true, exists: true });
    watched.folder.close();
    watched.folder.close();
    assert.deepEqual([watched.folder.takeChanges(), watched.folder.entries(), watched.folder.standing()], [[], [], null]);
  });

  test('wrong arguments are named', () => {
    const Folder = addon.PluginFolder as unknown as new (...args: unknown[]) => Addon.PluginFolder;
    for (const [args, name] of [
      [[], 'path'],
      [[3, () => {}], 'path'],
      [[place], 'onChange'],
      [[place, 'no'], 'onChange'],
      [[place, () => {}, { settleMs: -1 }], 'options.settleMs'],
      [[place, () => {}, { maxPlugins: 1.5 }], 'options.maxPlugins'],
    ] as const) {
      assert.throws(() => new Folder(...args), { code: 'GEN_LIMIT_BAD_ARGUMENT', message: new RegExp(`^${name}: `, 'u') });
    }
  });

  const script = `const { PluginFolder } = process.getBuiltinModule('node:module').createRequire(${JSON.stringify(FILE)})(${JSON.stringify(FILE)});
globalThis.folder = new PluginFolder(${JSON.stringify(place)}, () => {});`;

  test('it keeps no process alive', async () => {
    const begun = performance.now();
    await promisify(execFile)(process.execPath, ['-e', script], { timeout: 60_000 });
    console.log(`gone after ${(performance.now() - begun).toFixed(0)} ms`);
  });

  test('it goes with its thread, also while it compiles', async () => {
    const busy = join(place, 'busy');
    mkdirSync(busy);
    for (const name of ['a', 'b', 'c']) copyFileSync(LIMITER, join(busy, `${name}.wasm`));
    for (let n = 0; n < 3; n++) {
      const worker = new Worker(`${script.replace(JSON.stringify(place), JSON.stringify(busy))}\nsetInterval(() => {}, 1000);`, { eval: true });
      await new Promise((resolve, reject) => worker.once('online', resolve).once('error', reject));
      await worker.terminate();
    }
    await promisify(execFile)(process.execPath, ['-e', `${script.replace(JSON.stringify(place), JSON.stringify(busy))}\nsetTimeout(process.exit, 300);`]);
  });
});

suite('inspecting', () => {
  test('tells what a component is', async () => {
    const found = await addon.inspect(LIMITER);
    assert.deepEqual([found.file, found.size, found.world], [LIMITER, readFileSync(LIMITER).length, 'plugin']);
    assert.match(found.sha256, /^[0-9a-f]{64}$/u);
    assert.ok(found.imports.every((name) => name.startsWith('dsh:plugin/')), String(found.imports));
    assert.ok(found.exports.includes('dsh:plugin/routes@0.1.0'), String(found.exports));
    assert.ok(found.producers.some(([part, made]) => part === 'processed-by' && made.startsWith('wit-component ')));
    assert.equal((await addon.inspect(BUDGET)).world, 'hooks');
  });

  test('refuses with one sentence that names the file', async () => {
    const file = join(place, 'wrong.wasm');
    writeFileSync(file, '<html>');
    for (const [path, says] of [
      [file, 'begins with `<html>`'],
      [join(place, 'nowhere.wasm'), 'cannot be read'],
      [place, 'it is a folder'],
    ] as const) {
      await assert.rejects(addon.inspect(path), ({ code, message }) => {
        assert.equal(code, 'GEN_LIMIT_LOAD');
        assert.ok(message.startsWith(`${path}: `) && message.includes(says) && !message.includes('\n'), message);
        return true;
      });
    }
    assert.throws(() => addon.inspect(3 as never), { code: 'GEN_LIMIT_BAD_ARGUMENT' });
  });
});
