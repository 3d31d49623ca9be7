/** The harness's own login, where it has one. */
import type { IncomingMessage } from 'node:http';
import type { Context } from '@deepseek-ai/cordis';

/**
 * The service that an application served over HTTP has. Older ones have no login to it; without it nobody can tell whether
 * there is one, so nothing is served.
 */
export const CONNECTION = 'connection';

interface Connection {
  requestRejection?(request: IncomingMessage): unknown;
}

/** Why the harness's login does not let a request in; undefined if it does, or if there is none. What it cannot say is no. */
export function loginRejection(ctx: Context, request: IncomingMessage): 401 | 403 | undefined {
  const connection = ctx.get(CONNECTION as string) as Connection | null | undefined;
  if (connection === undefined || connection === null) return 401;
  if (typeof connection.requestRejection !== 'function') return undefined;
  try {
    const rejection = connection.requestRejection(request);
    return rejection === undefined || rejection === 401 ? rejection : 403;
  } catch {
    return 403;
  }
}
