/**
 * Unpacks dsh 0.2.1's executable: `node unpack.ts EXECUTABLE FOLDER`.
 *
 * The executable is a Node whose application is one blob in a note of the ELF file: a header, the main script, and
 * assets by name. One asset is the files of the application one after another, another says where each begins. Only
 * from such a tree does the harness serve its page: in the executable it does not find one of its own packages, which
 * lies inside the folder of another and is copied to where it is looked for.
 */
import { cpSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const NOTE = Buffer.from('NODE_SEA_BLOB\0\0\0', 'latin1');
/** What the blob begins with. */
const MAGIC = 0x143da20;
/** Magic number, flags, and a byte for how the script is to be run. */
const HEADER = 9;

const PACKAGES = 'node/node_modules/@deepseek-ai/dsh/node_modules/@deepseek-ai';
const MISPLACED = 'dsh-host-directory-picker';

interface Manifest {
  /** Begin and length of each file, by its path. */
  readonly offsets: Readonly<Record<string, readonly [number, number]>>;
}

/** The assets of an executable, by their names. */
function assets(executable: Buffer): Map<string, Buffer> {
  const blob = executable.lastIndexOf(NOTE) + NOTE.length;
  if (blob < NOTE.length || executable.readUInt32LE(blob) !== MAGIC) throw new Error('this is no executable that could be unpacked');
  let at = blob + HEADER;
  const number = (): number => {
    at += 8;
    return Number(executable.readBigUInt64LE(at - 8));
  };
  const bytes = (): Buffer => {
    const length = number();
    at += length;
    return executable.subarray(at - length, at);
  };
  bytes();
  bytes();
  return new Map(Array.from({ length: number() }, () => [bytes().toString(), bytes()]));
}

/** Unpacks; the folder is there only when it is whole. */
function unpack(executable: string, folder: string): void {
  const found = assets(readFileSync(executable));
  const [manifest, archive] = [found.get('__pkg_manifest__'), found.get('__pkg_archive__')];
  if (manifest === undefined || archive === undefined) throw new Error(`${executable} has no files in it`);
  const fresh = `${folder}.partial`;
  rmSync(fresh, { recursive: true, force: true });
  for (const [path, [begin, length]] of Object.entries((JSON.parse(manifest.toString()) as Manifest).offsets)) {
    const file = join(fresh, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, archive.subarray(begin, begin + length));
  }
  const nested = join(fresh, PACKAGES, `${MISPLACED}-native/node_modules/@deepseek-ai`, MISPLACED);
  cpSync(nested, join(fresh, PACKAGES, MISPLACED), { recursive: true });
  renameSync(fresh, folder);
}

const [executable, folder] = process.argv.slice(2);
if (executable === undefined || folder === undefined) throw new Error('usage: unpack.ts EXECUTABLE FOLDER');
unpack(executable, folder);
