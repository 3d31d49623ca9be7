/**
 * Open requests, and what the component asks of the harness for them. The one place that takes responses and questions.
 *
 * A request is open from the moment the component is told of it until it has answered, is gone, or has taken too long; the
 * component is not told of the end of a request that nobody waits for any more, its answer is dropped. What it asks is
 * handed on and answered whenever the answer comes; an answer that is there at once lets the component answer in the same
 * step, so that what needs nothing slow can be had without waiting.
 */
import type { Ask, Limiter, Response } from '../../node/index.d.ts';
import type { Gate } from './gate.ts';

/** How long the component has for an answer, in milliseconds: longer than everything it can ask for. */
const ANSWER_MS = 15_000;

/** Where stats are; the host answers there itself when there is no component. */
export const STATS = '/api/dsh-gen-limit/stats';

/** What the component is told of a request. */
export interface Request {
  readonly method: string;
  readonly path: string;
  /** What follows the `?`. */
  readonly query: string;
  readonly headers: ReadonlyArray<readonly [string, string]>;
  readonly body: Uint8Array;
}

/** An answer, or why there is none: no component is there to give it, or it takes too long. */
export type Answer = Response | 'absent' | 'late';

/** Puts the answer to a question. */
export type Reply = (limiter: Limiter) => number;

export class Requests {
  #gate: Gate;
  #serve: (ask: Ask) => Reply | Promise<Reply>;
  #open = new Map<number, (answer: Answer) => void>();

  constructor(gate: Gate, serve: (ask: Ask) => Reply | Promise<Reply>) {
    this.#gate = gate;
    this.#serve = serve;
    gate.onAnswers = (limiter) => this.#take(limiter);
  }

  /** Hands a request to the component. Always settles. */
  send(request: Request): Promise<Answer> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => leave('late'), ANSWER_MS).unref();
      const leave = this.#begin(request, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
    });
  }

  /** The component's stats as they are now, or why there are none. Without what people call a session, nothing slow is asked for. */
  stats(query = 'describe=false'): unknown {
    let answer: Answer | undefined;
    const request = { method: 'GET', path: STATS, query, headers: [], body: new Uint8Array() };
    this.#begin(request, (given) => (answer ??= given))('late');
    if (typeof answer !== 'object') return { error: `the component did not answer: ${answer}` };
    return JSON.parse(new TextDecoder().decode(answer.body)) as unknown;
  }

  /** There is no component any more that could answer. */
  close(): void {
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const settle of open) settle('absent');
  }

  /** Begins a request; gives what ends it, unless it has ended. */
  #begin({ method, path, query, headers, body }: Request, settle: (answer: Answer) => void): (answer: Answer) => void {
    let begun: number | undefined;
    this.#gate.tell((limiter) => {
      const id = (begun = limiter.request(method, path, query, headers.map(([name, value]) => [name, value]), body));
      this.#open.set(id, settle);
      return limiter.pending();
    });
    if (begun === undefined) settle('absent');
    return (answer) => {
      if (begun === undefined || this.#open.get(begun) !== settle) return;
      this.#open.delete(begun);
      settle(answer);
    };
  }

  #take(limiter: Limiter): void {
    for (const ask of limiter.takeAsks()) this.#answer(ask);
    for (const response of limiter.takeResponses()) {
      const settle = this.#open.get(response.id);
      this.#open.delete(response.id);
      settle?.(response);
    }
  }

  #answer(ask: Ask): void {
    const reply = this.#serve(ask);
    const put = (reply: Reply): void => this.#put(ask, reply);
    if (reply instanceof Promise) void reply.then(put, () => put((limiter) => limiter.decline(ask.id)));
    else put(reply);
  }

  /** Puts an answer. One that cannot be put, for it is of a wrong type somewhere, is none: no question stays open. */
  #put({ id }: Ask, reply: Reply): void {
    this.#gate.tell((limiter) => {
      try {
        return reply(limiter);
      } catch {
        return limiter.decline(id);
      }
    });
  }
}
