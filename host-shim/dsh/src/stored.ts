/**
 * The last good configuration of a row, kept in the harness's home so that a mistake in the row does not lift the limits,
 * also over a restart of the harness. Readable by its owner alone; replaced by a rename, so never half written.
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The file for one row of one profile. */
export function storedPath(baseUrl: string | undefined, row: string): string {
  return join(home(), 'gen-limit', `${encodeURIComponent(profile(baseUrl))}.${encodeURIComponent(row)}.json`);
}

/** The configuration stored there, if there is one. */
export function readStored(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** Stores a configuration. Throws if it cannot. */
export function writeStored(path: string, json: string): void {
  if (readStored(path) === json) return;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${process.pid}.tmp`;
  writeFileSync(draft, json, { mode: 0o600 });
  renameSync(draft, path);
}

/** The harness's home, found as the harness does. */
function home(): string {
  const configured = process.env['DSH_HOME']?.trim();
  if (!configured) return join(homedir(), '.dsh');
  return configured.replace(/^~(?=$|[/\\])/u, homedir());
}

/** A profile's tree has its directory for base; anything else is no profile. */
function profile(baseUrl: string | undefined): string {
  if (!baseUrl?.startsWith('file:')) return 'default';
  const directory = fileURLToPath(new URL('.', baseUrl.endsWith('/') ? baseUrl : `${baseUrl}/`));
  return basename(directory) || 'default';
}
