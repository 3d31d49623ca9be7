/** Where people hear of the plugin: the harness's logger, and stderr, because the shipped profiles show no log. */
import type { Context } from '@deepseek-ai/cordis';

export type Level = 'debug' | 'info' | 'warn' | 'error';

/** Says one line. */
export type Reporter = (level: Level, message: string) => void;

/** What goes to stderr as well. */
const LOUD: ReadonlySet<Level> = new Set<Level>(['warn', 'error']);

/** A reporter for one mounting of the plugin. `loud` lines go to stderr whatever their level. */
export function reporter(ctx: Context): (level: Level, message: string, loud?: boolean) => void {
  const logger = ctx.root.logger('gen-limit');
  return (level, message, loud = LOUD.has(level)) => {
    logger[level]('%s', message);
    if (loud) process.stderr.write(`gen-limit: ${message}\n`);
  };
}
