/** What the routes answer, and what is made of what they do not. */
import assert from 'node:assert/strict';
import { afterEach, suite, test } from 'node:test';

import { Failure, read } from '../src/api.ts';

const real = globalThis.fetch;
afterEach(() => {
  globalThis.fetch = real;
});

/** What comes of this answer to a look at stats. */
async function answered(answer: () => Promise<Response>): Promise<unknown> {
  globalThis.fetch = answer;
  return read.stats(false).catch((error: unknown) => error);
}

suite('an answer', () => {
  test('is taken as it is', async () => {
    const stats = { entries: [], host: { state: 'running' } };
    assert.deepEqual(await answered(async () => Response.json(stats)), stats);
  });

  test('of another version, or none at all, is a failure that says so', async () => {
    for (const body of ['{"entries":[]}', '[]', 'null', '"text"', '', '<html>']) {
      const failure = await answered(async () => new Response(body));
      assert.ok(failure instanceof Failure && /another version/u.test(failure.message), `${body}: ${String(failure)}`);
    }
  });

  test('with a refusal says what the route said, or else its status', async () => {
    const refused = await answered(async () => Response.json({ error: 'no', problems: [{ path: 'limits', message: 'x' }] }, { status: 400 }));
    assert.ok(refused instanceof Failure);
    assert.deepEqual([refused.message, refused.status, refused.problems.length], ['no', 400, 1]);
    const bare = await answered(async () => new Response('', { status: 502, statusText: 'Bad Gateway' }));
    assert.equal((bare as Failure).message, '502 Bad Gateway');
  });

  test('that never comes, or breaks off, is a failure with its cause', async () => {
    assert.match(String(await answered(() => Promise.reject(new TypeError('Failed to fetch')))), /Failed to fetch/u);
    const broken = new Response(new ReadableStream({ start: (body) => body.error(new TypeError('network error')) }));
    assert.match(String(await answered(async () => broken)), /network error/u);
  });
});
