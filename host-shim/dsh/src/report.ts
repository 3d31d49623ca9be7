/** Where people hear of the plugin: the harness's logger, and stderr, because the shipped profiles show no log. */
import type { Context } from '@deepseek-ai/cordis';
import { describe } from './gate.ts';

export type Level = 'debug' | 'info' | 'warn' | 'error';

/** Says one line; a loud one goes to stderr as well. Warnings and errors are loud by themselves. */
export type Reporter = (level: Level, message: string, loud?: boolean) => void;

/** The reporter of one harness. It never throws: a call must not fail for want of a place to tell of it. */
export function reporter(root: Context): Reporter {
  const logger = root.logger('gen-limit');
  return (level, message, loud = level === 'warn' || level === 'error') => {
    attempt(() => logger[level]('%s', message));
    if (loud) attempt(() => process.stderr.write(`gen-limit: ${message}\n`));
  };
}

/** The most that is told of one error over HTTP, in characters. */
const MAX_WORDS = 300;

/** An error for whoever asks over HTTP: one line, not long, and of a path only what it leads to. */
export function inWords(error: unknown): string {
  const paths = /(?<![\w/\\.:*-])(?:file:\/\/|~|[a-z]:)?(?:[/\\][^\s/\\'"`:;,()<>]+)*[/\\](?=[^\s/\\'"`:;,()<>])/giu;
  const words = describe(error).slice(0, 4 * MAX_WORDS).replace(paths, '');
  return words.length > MAX_WORDS ? `${words.slice(0, MAX_WORDS - 1)}…` : words;
}

function attempt(tell: () => unknown): void {
  try {
    tell();
  } catch {
    // There is nobody left to tell.
  }
}
