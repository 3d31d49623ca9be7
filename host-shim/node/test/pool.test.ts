/** Pools of a machine: what one process lets go of, another is told of. Locks hold between pools of one process as well. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type * as Addon from '../index.d.ts';

const root = new URL('../../../', import.meta.url);
const ADDON = fileURLToPath(new URL('host-shim/node/gen-limit.node', root));
const addon = createRequire(import.meta.url)(ADDON) as typeof Addon;
const FILE = fileURLToPath(new URL('target/component/gen-limit.wasm', root));
const component = await addon.Component.load(FILE);

const WAITS = 1;

const folders = mkdtempSync(join(tmpdir(), 'gen-limit-pools-'));
after(() => rmSync(folders, { recursive: true, force: true }));

const CONFIG = JSON.stringify({ limits: [{ provider: 'box', model: '*', max: 1, pool: 'gpu' }] });

/** A process with one limiter, which does what the plugin does. */
class Process {
  readonly pool: Addon.Pool;
  readonly limiter = new addon.Limiter(component, { config: CONFIG });
  #woken = Promise.withResolvers<void>();

  constructor(folder: string) {
    this.pool = new addon.Pool(() => {
      this.pool.tick();
      this.limiter.collect();
      this.#woken.resolve();
      this.#woken = Promise.withResolvers();
    }, folder);
    this.limiter.join(this.pool, 'somebody');
  }

  start(session: string): { id: number; waits: boolean } {
    const answer = this.limiter.startStream('box', 'm', session, true);
    return { id: Math.floor(answer / 128), waits: answer % 2 === WAITS };
  }

  /** The next wait that ends well. */
  async admitted(): Promise<number> {
    for (;;) {
      const told = this.limiter.nextSettled();
      if (told > 0) return told / 2;
      await this.#woken.promise;
    }
  }
}

suite('a pool of the machine', () => {
  test('one seat goes from process to process', async () => {
    const [a, b] = ['', ''].map(() => new Process(join(folders, 'one'))) as [Process, Process];
    const first = a.start('a');
    const second = b.start('b');
    assert.deepEqual([first.waits, second.waits], [false, true]);
    a.limiter.finish(first.id, 0);
    assert.equal(await b.admitted(), second.id);
    const third = a.start('c');
    assert.equal(third.waits, true);
    assert.deepEqual(b.pool.view().map(({ scope, seats }) => ({ scope, seats })), [{ scope: 'box/*', seats: 1 }]);
    b.limiter.finish(second.id, 0);
    assert.equal(await a.admitted(), third.id);
    a.limiter.part();
    assert.equal(b.start('d').waits, false, 'whoever parts lets go of everything');
  });

  test('where no lock can be kept a process has all seats for itself and says why', () => {
    const folder = join(folders, 'open');
    mkdirSync(folder);
    chmodSync(folder, 0o777);
    const [a, b] = ['', ''].map(() => new Process(folder)) as [Process, Process];
    assert.deepEqual([a.start('a').waits, a.start('b').waits, b.start('c').waits], [false, true, false]);
    assert.match(a.pool.view()[0]?.error ?? '', /open: .*nobody else can write to; its limit holds for this process alone$/);
  });

  test('nothing is made before a seat is wanted', () => {
    const folder = join(folders, 'none');
    const idle = new Process(folder);
    assert.deepEqual([existsSync(folder), idle.pool.view()], [false, [{ scope: 'box/*', seats: 0, contended: false, lost: 0 }]]);
    idle.start('a');
    assert.ok(existsSync(folder));
  });

  test('it keeps no process alive', async () => {
    const program = `
      const addon = require(${JSON.stringify(ADDON)});
      void addon.Component.load(${JSON.stringify(FILE)}).then((component) => {
        const pool = new addon.Pool(() => undefined, ${JSON.stringify(join(folders, 'alive'))});
        const limiter = new addon.Limiter(component, { config: ${JSON.stringify(CONFIG)} });
        limiter.join(pool, 'somebody');
        limiter.startStream('box', 'm', 'a', true);
      });`;
    await promisify(execFile)(process.execPath, ['-e', program], { timeout: 20_000 });
  });

  test('wrong arguments are named', () => {
    const Pool = addon.Pool as unknown as new (...args: unknown[]) => Addon.Pool;
    assert.throws(() => new Pool(), /onNews/);
    assert.throws(() => new Pool(() => undefined, 5), /folder/);
  });
});
