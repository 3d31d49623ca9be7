/** Bodies of requests: read within bounds of size and time, and cut off beyond them. */
import type { IncomingMessage, ServerResponse } from 'node:http';

/** The largest body that is read, in bytes. */
export const MAX_BODY = 1 << 20;
/** How long a body may take, in milliseconds. */
export const BODY_MS = 10_000;

/** How much of a body that nobody wants is still taken, and for how long, so that its sender gets to read why. */
const DRAIN_BYTES = 8 << 20;
const DRAIN_MS = 1_000;

/** Whether a request says that it has a body. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** The body, whole, or why it cannot be had. */
export function read(request: IncomingMessage): Promise<Buffer | 'too large' | 'too slow' | 'gone'> {
  if (Number(request.headers['content-length'] ?? 0) > MAX_BODY) return Promise.resolve('too large');
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const onData = (chunk: Buffer): void => {
      size += chunk.length;
      if (size > MAX_BODY) return done('too large');
      chunks.push(chunk);
    };
    const onEnd = (): void => done(Buffer.concat(chunks));
    const onGone = (): void => done('gone');
    const done = (end: Buffer | 'too large' | 'too slow' | 'gone'): void => {
      clearTimeout(timer);
      request.off('data', onData).off('end', onEnd).off('close', onGone);
      request.pause();
      resolve(end);
    };
    const timer = setTimeout(() => done('too slow'), BODY_MS).unref();
    // A request that breaks off says so by an error as well, to whoever listens.
    request.on('data', onData).on('end', onEnd).on('close', onGone).on('error', () => undefined);
  });
}

/** Sends a response to a request whose body has not been read, and ends the connection. */
export function cutOff(request: IncomingMessage, response: ServerResponse, body: Uint8Array): void {
  let left = DRAIN_BYTES;
  const end = (): void => {
    clearTimeout(timer);
    response.end();
  };
  const cut = (): void => {
    end();
    request.destroy();
  };
  const timer = setTimeout(cut, DRAIN_MS).unref();
  response.flushHeaders();
  response.write(body);
  request.on('error', () => undefined).once('end', end).once('close', end);
  request.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left < 0) cut();
  });
  request.resume();
}
