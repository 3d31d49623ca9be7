/** Asks the component's own stats route. */
import type { Limiter } from '../../node/index.d.ts';

const PATH = '/api/dsh-gen-limit/stats';
/** Turns an open request gets before it is given up: the answer needs nothing from outside, so one is enough. */
const TURNS = 3;

/** The component's stats as it tells them, or why it does not. */
export function stats(limiter: Limiter, query = ''): unknown {
  const id = limiter.request('GET', PATH, query, [], new Uint8Array());
  for (let turn = 0; turn < TURNS; turn += 1) {
    const response = limiter.takeResponses().find((response) => response.id === id);
    if (response !== undefined) return JSON.parse(new TextDecoder().decode(response.body)) as unknown;
    limiter.turn();
  }
  return { error: 'the component did not answer' };
}
