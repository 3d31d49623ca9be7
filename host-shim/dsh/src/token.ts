/**
 * The token by which programs of this user ask without a browser's login: `$DSH_HOME/gen-limit/token`.
 *
 * Random and new with each process that serves routes, readable by its owner alone, replaced by a rename. Rows of one process
 * share it. Processes that share a home share the file: the one that began last has written it, and what it says now holds for
 * all of them, because each looks there whenever somebody presents a token. So whoever can read the file can ask all of them,
 * a process that ends takes nothing away from the others, and taking the file away shuts out who only has a token.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { home } from './stored.ts';

const BYTES = 32;
/** A file that is longer is not what we wrote. */
const MAX_FILE = 1024;

/** The files this process has written; also another copy of this module knows them. */
const WRITTEN = Symbol.for('@creait/dsh-gen-limit.tokens.1');

/** Writes a new token, unless this process has. Throws if it cannot. */
export function writeToken(): void {
  const holder = globalThis as { [WRITTEN]?: Set<string> };
  const written = (holder[WRITTEN] ??= new Set());
  const path = file();
  if (written.has(path)) return;
  const folder = dirname(path);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  chmodSync(folder, 0o700);
  const draft = `${path}.${randomBytes(8).toString('hex')}.tmp`;
  try {
    writeFileSync(draft, randomBytes(BYTES).toString('base64url'), { flag: 'wx', mode: 0o600 });
    renameSync(draft, path);
  } finally {
    rmSync(draft, { force: true });
  }
  written.add(path);
}

/** Whether this is the token that the file has now. Takes as long whatever it is. */
export function isToken(presented: string): boolean {
  const token = readToken();
  return token !== undefined && timingSafeEqual(digest(presented), digest(token));
}

function readToken(): string | undefined {
  try {
    const path = file();
    const stat = statSync(path);
    // Reading anything but a file may take for ever, and one that others can read is no secret.
    if (!stat.isFile() || stat.size > MAX_FILE || (process.platform !== 'win32' && (stat.mode & 0o077) !== 0)) return undefined;
    return readFileSync(path, 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Throws where there is no home. */
function file(): string {
  return join(home(), 'gen-limit', 'token');
}
