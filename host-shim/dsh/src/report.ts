/** Where people hear of the plugin: the harness's logger, and stderr, because the shipped profiles show no log. */
import type { Context } from '@deepseek-ai/cordis';

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

function attempt(tell: () => unknown): void {
  try {
    tell();
  } catch {
    // There is nobody left to tell.
  }
}
