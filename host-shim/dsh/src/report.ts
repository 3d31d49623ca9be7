/** Where people hear of the plugin: the harness's logger, and stderr, because the shipped profiles show no log. */
import type { Context } from '@deepseek-ai/cordis';
import { describe } from './gate.ts';

export type Level = 'debug' | 'info' | 'warn' | 'error';

/** Says one line; a loud one goes to stderr as well. Warnings and errors are loud by themselves. */
export type Reporter = (level: Level, message: string, loud?: boolean) => void;

/** The reporter of one harness, or of one tenant in it. It never throws: a call must not fail for want of a place to tell of it. */
export function reporter(root: Context, tenant: () => string | undefined = () => undefined): Reporter {
  const logger = root.logger('gen-limit');
  return (level, message, loud = level === 'warn' || level === 'error') => {
    const name = tenant();
    const line = name === undefined ? message : `tenant ${name}: ${message}`;
    attempt(() => logger[level]('%s', line));
    if (loud) attempt(() => process.stderr.write(`gen-limit: ${line}\n`));
  };
}

/** The most that is told of one error over HTTP, in characters. */
const MAX_WORDS = 300;

/** How much of an error is looked at, in characters. */
const MAX_READ = 4 * MAX_WORDS;

/** A word; what stands in quotation marks is one, whatever is in it, and an apostrophe is no such mark. */
const WORD = /(?:(?<![\p{L}\p{N}])(['"`])(?:(?!\1).|\1(?=[\p{L}\p{N}]))*(?:\1|$)|\S)+/gsu;
/** The address of a server at the end of a word, with whatever it is asked and whoever asks. */
const ADDRESS = /\b((?:http|ws)s?:\/\/)(?:[^@/?#\\]*@)?((?:[\p{L}\p{N}._-]+|\[[\da-f:.]+\])(?::\d+)?)(?:[/?#\\][^@]*|[^@/?#\\\p{L}\p{N}]*)$/iu;

/** An interface, or some of a package's, as a contract names it: what a plugin that is refused wants or is offered. */
const INTERFACE = /^[`'"(]?[a-z][a-z\d-]*:[a-z][a-z\d-]*\/(?:\{[a-z\d-]+,?|[a-z\d-]+@\d+(?:\.\d+)+)[`'"),.;:]*$/u;

/** An error for whoever asks over HTTP: one line, not long, no path of a file, and of an address only whose it is. */
export function inWords(error: unknown): string {
  const line = describe(error);
  const read = line.length > MAX_READ ? line.slice(0, MAX_READ).replace(/\S*$/u, '…') : line;
  const words = read.replace(WORD, (word) => {
    if (!/[/\\]/u.test(word) || INTERFACE.test(word)) return word;
    const [, scheme, host] = ADDRESS.exec(word) ?? [];
    return host === undefined ? '…' : `${scheme}${host}`;
  });
  return words.length > MAX_WORDS ? `${words.slice(0, MAX_WORDS - 1)}…` : words;
}

function attempt(tell: () => unknown): void {
  try {
    tell();
  } catch {
    // There is nobody left to tell.
  }
}
