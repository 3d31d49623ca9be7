/**
 * The last good configuration of a row, kept in the harness's home so that a mistake in the row does not lift the limits,
 * also over a restart of the harness. Readable by its owner alone; replaced by a rename, so never half written.
 */
import { mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What a row belongs to, and what it is called there. Ids of rows are not the only ones of their kind. */
export interface Standing {
  readonly baseUrl: string | undefined;
  readonly row: string;
  /** The preset that it stands in, if it does; null as long as it is not known which. */
  readonly preset: string | null | undefined;
}

/** The place for one text of one row. */
export class Stored {
  #of: Standing;
  #suffix: string;

  constructor(of: Standing, suffix = 'json') {
    this.#of = of;
    this.#suffix = suffix;
  }

  /** The text stored there, if there is one. */
  read(): string | undefined {
    try {
      const path = this.#path();
      // Reading anything but a file may take for ever.
      return statSync(path).isFile() ? readFileSync(path, 'utf8') : undefined;
    } catch {
      return undefined;
    }
  }

  /** Stores a text. Throws if it cannot. */
  write(text: string): void {
    if (this.read() === text) return;
    const path = this.#path();
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const draft = `${path}.${process.pid}.tmp`;
    writeFileSync(draft, text, { mode: 0o600 });
    renameSync(draft, path);
  }

  /** Throws where there is no home, or no place in it that is this row's alone. */
  #path(): string {
    const { baseUrl, row, preset } = this.#of;
    if (preset === null) throw new Error('it is not known yet which preset the row stands in');
    // No profile's name begins so.
    const owner = preset === undefined ? encodeURIComponent(profile(baseUrl)) : `@${encodeURIComponent(preset)}`;
    return join(home(), 'gen-limit', `${owner}.${encodeURIComponent(row)}.${this.#suffix}`);
  }
}

/** The harness's home, found as the harness does. */
export function home(): string {
  const configured = process.env['DSH_HOME']?.trim();
  return configured ? expanded(configured) : join(homedir(), '.dsh');
}

/** A path that may begin with `~`. Who has no home is asked for it only if it must be. */
export function expanded(path: string): string {
  return path.replace(/^~(?=$|[/\\])/u, () => homedir());
}

/** A profile's tree has its directory for base; anything else is no profile. */
function profile(baseUrl: string | undefined): string {
  if (!baseUrl?.startsWith('file:')) return 'default';
  const directory = fileURLToPath(new URL('.', baseUrl.endsWith('/') ? baseUrl : `${baseUrl}/`));
  return basename(directory) || 'default';
}
