/** A folder of plugins, and a harness that watches it. */
import { copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { World, temporary, type Making } from './support.ts';

const built = (name: string): string => fileURLToPath(new URL(`../../../target/component/${name}.wasm`, import.meta.url));

/** A folder of plugins. */
export class Folder {
  readonly path = join(temporary(), 'wasm-plugins');

  constructor() {
    mkdirSync(this.path);
  }

  #place(file: string, write: (draft: string) => void): void {
    const draft = join(this.path, `.${file}`);
    write(draft);
    renameSync(draft, join(this.path, file));
  }

  drop(name: string, source: string): void {
    this.#place(`${name}.wasm`, (draft) => copyFileSync(built(source), draft));
  }

  settings(name: string, settings: unknown): void {
    this.#place(`${name}.json`, (draft) => writeFileSync(draft, JSON.stringify(settings)));
  }

  write(file: string, text: string): void {
    this.#place(file, (draft) => writeFileSync(draft, text));
  }

  remove(file: string): void {
    rmSync(join(this.path, file));
  }
}

export async function inFolder(folder: Folder, making: Making = {}): Promise<World> {
  return World.make({ ...making, parts: { ...making.parts, plugins: folder.path } });
}

export function said(world: World, words: string): boolean {
  return world.stderr.some((line) => line.includes(words));
}

interface Told {
  host: { plugins: Array<{ name: string; live: number; waiting: number; state: string }>; refused: Array<{ file: string; reason: string }>; component: string };
}

export const told = (world: World): Told['host'] => (world.stats as unknown as Told).host;

export const BUDGET = { config: { perMinute: 1, maxWaitMs: 600_000 } };
