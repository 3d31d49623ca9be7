/** The folder that a harness takes plugins from, and what it tells of them. */
import assert from 'node:assert/strict';
import { copyFile, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import type { Dsh, Home } from './dsh.ts';

/** A component as it is built, by its name. */
export function built(name: 'gen-limit' | 'gen-limit-chaos' | 'budget-guard' | 'hostile'): string {
  return fileURLToPath(new URL(`../../target/component/${name}.wasm`, import.meta.url));
}

/** The folder of plugins of a home. */
export class Plugins {
  readonly path: string;

  constructor({ dir }: Home) {
    this.path = join(dir, 'wasm-plugins');
  }

  /** Puts a copy of a component there, or bytes, in one step. */
  async drop(name: string, what: string | Uint8Array): Promise<void> {
    await this.#place(`${name}.wasm`, (draft) => (typeof what === 'string' ? copyFile(what, draft) : writeFile(draft, what)));
  }

  /** Writes a plugin's settings, in one step. */
  async settings(name: string, settings: object): Promise<void> {
    await this.#place(`${name}.json`, (draft) => writeFile(draft, JSON.stringify(settings)));
  }

  async remove(file: string): Promise<void> {
    await rm(join(this.path, file), { recursive: true, force: true });
  }

  async #place(file: string, write: (draft: string) => Promise<void>): Promise<void> {
    await mkdir(this.path, { recursive: true });
    const draft = join(this.path, `.${file}`);
    await write(draft);
    await rename(draft, join(this.path, file));
  }
}

/** Has something done, and resolves when the harness has said `what` once more than before. */
export async function saidOf(dsh: Dsh, what: string, act: () => Promise<void>): Promise<void> {
  const times = (): number => dsh.stderr.split(what).length;
  const before = times();
  await act();
  await dsh.until(`"${what}"`, () => times() > before);
}

/** What stats tell. */
export interface Told {
  readonly scopes: ReadonlyArray<{ readonly scope: string; readonly max: number; readonly occupancy: number }>;
  readonly totals: Readonly<Record<'submitted' | 'live' | 'waiting', number>>;
  readonly waitersTotal: number;
  readonly credits: number;
  readonly host: {
    readonly state: string;
    readonly restarts: number;
    readonly component: string;
    readonly plugins?: ReadonlyArray<{ readonly name: string; readonly state: string; readonly live: number; readonly waiting: number; readonly restarts: number }>;
    readonly refused?: ReadonlyArray<{ readonly file: string; readonly reason: string }>;
  };
}

/** The stats of the host's row, or of a tenant. */
export async function told(dsh: Dsh, path = '/api/dsh-gen-limit'): Promise<Told> {
  const response = await dsh.fetch(`${path}/stats?describe=false`);
  assert.equal(response.status, 200, path);
  return (await response.json()) as Told;
}
