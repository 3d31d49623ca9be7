/**
 * The stream of one model call, with the wait for its seat inside the first `next()`.
 *
 * An iterator object instead of a generator, for two reasons. A generator queues `return()` behind a pending `next()`, so a
 * consumer that walks away while waiting would stay in line; this object leaves at once. And once the call runs it hands
 * out the backend's own promises, which costs half of what re-yielding does.
 *
 * # Ends
 *
 * A call ends exactly once, by whichever comes first: the backend's `done`, a throw, `return()`, `throw()`, or its signal
 * while it waits. The reaction that frees the seat is attached to the backend's promise before the consumer can attach
 * one, so the seat is free before the consumer sees `done`.
 *
 * # Cancellation
 *
 * A call that is aborted before or while it waits takes no seat, reaches no backend and rejects with the caller's own
 * reason. If the line reaches it in the same turn, the seat is given back before the backend is asked.
 */
import type { AsyncLocalStorage } from 'node:async_hooks';
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import type { Failure } from '../../node/index.d.ts';
import { CANCELLED, COMPLETED, FAILED, type Asked, type Decision, type Gate, type Outcome } from './gate.ts';

type Step = IteratorResult<StreamChunk, undefined>;

/** What a stream needs to begin. */
export interface Beginning {
  readonly gate: Gate;
  readonly signal: AbortSignal | undefined;
  /** Asks the gate; called at most once, when the call is about to leave. */
  readonly start: () => Asked;
  /** The rest of the harness's chain. */
  readonly next: () => AsyncIterable<StreamChunk>;
  /** Names the call to streams that are awaited inside it. */
  readonly within: AsyncLocalStorage<number>;
}

const SHUT_DOWN = { code: 'ABORTED', message: 'the harness shuts down' };

const DONE: Step = { done: true, value: undefined };

export class GatedStream implements AsyncIterableIterator<StreamChunk, undefined, undefined> {
  #beginning: Beginning;
  #state: 'new' | 'waiting' | 'running' | 'done' = 'new';
  #id = 0;
  #inner: AsyncIterator<StreamChunk> | undefined;
  #entering: Promise<Step> | undefined;
  /** Ends the wait, from whatever side. */
  #leave: ((end: Promise<never> | Step) => void) | undefined;
  #failure: Failure | undefined;
  #outcome: Outcome = COMPLETED;

  constructor(beginning: Beginning) {
    this.#beginning = beginning;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Step> {
    switch (this.#state) {
      case 'running':
        return this.#advance();
      case 'new':
        return (this.#entering = this.#enter());
      case 'waiting':
        // The first step decides what this one is.
        return (this.#entering = (this.#entering ?? Promise.resolve(DONE)).then(() => this.next(), () => DONE));
      case 'done':
        return Promise.resolve(DONE);
    }
  }

  async return(): Promise<Step> {
    if (this.#state !== 'running') {
      this.#withdraw(DONE);
      return DONE;
    }
    // The backend is closed first: until then it may still be generating, and the seat is what says so.
    try {
      await this.#inner?.return?.();
      return DONE;
    } finally {
      this.#end(CANCELLED);
    }
  }

  async throw(error: unknown): Promise<Step> {
    if (this.#state === 'running' && this.#inner?.throw !== undefined) return this.#watch(this.#inner.throw(error));
    await this.return();
    throw error;
  }

  #enter(): Promise<Step> {
    const { gate, signal } = this.#beginning;
    if (signal?.aborted) {
      this.#state = 'done';
      return Promise.reject(signal.reason);
    }
    if (!gate.loading) {
      const decision = this.#ask();
      if (!(decision instanceof Promise)) return this.#decided(decision);
      return this.#wait(() => decision);
    }
    return this.#wait(async (left) => {
      await Promise.race([gate.ready, left]);
      return this.#state === 'waiting' ? this.#ask() : { kind: 'cancelled' };
    });
  }

  #ask(): Decision | Promise<Decision> {
    const { id, decision } = this.#beginning.start();
    this.#id = id;
    return decision;
  }

  /** Stands in line. An async function, so that it goes on in the caller's own async context. */
  async #wait(decide: (left: Promise<unknown>) => Promise<Decision>): Promise<Step> {
    const { signal } = this.#beginning;
    const left = new Promise<Step>((resolve) => (this.#leave = resolve));
    const onAbort = (): void => this.#withdraw(rejection(signal?.reason));
    this.#state = 'waiting';
    signal?.addEventListener('abort', onAbort, { once: true });
    const end = await Promise.race([decide(left), left]);
    // From here on the signal is the backend's affair.
    signal?.removeEventListener('abort', onAbort);
    // Whoever left in the same turn as the line reached it has left.
    return this.#state === 'waiting' && 'kind' in end ? this.#decided(end) : left;
  }

  /** Leaves for good, whatever has been promised meanwhile. */
  #withdraw(end: Promise<never> | Step): void {
    this.#end(CANCELLED);
    this.#leave?.(end);
  }

  #decided(decision: Decision): Promise<Step> {
    switch (decision.kind) {
      case 'admitted':
        // Admitted, and then the harness began to shut down before it was this call's turn.
        if (!this.#beginning.gate.cancelled) return this.#run();
        this.#end(CANCELLED);
        return this.#lastChunk('aborted', SHUT_DOWN);
      case 'refused':
        return this.#lastChunk('error', decision.refusal);
      case 'cancelled':
        return this.#lastChunk('aborted', SHUT_DOWN);
    }
  }

  /** Ends with a chunk, because a throw would lose the code and skip the harness's error hook. */
  #lastChunk(kind: 'error' | 'aborted', { code, message }: { code: string; message: string }): Promise<Step> {
    this.#state = 'done';
    return Promise.resolve({ done: false, value: { type: 'finish', reason: { kind, failure: { message, code } } } });
  }

  #run(): Promise<Step> {
    const { next } = this.#beginning;
    this.#state = 'running';
    try {
      this.#inner = this.#inside(() => next()[Symbol.asyncIterator]());
    } catch (error) {
      this.#end(FAILED);
      return rejection(error);
    }
    return this.#advance();
  }

  #advance(): Promise<Step> {
    try {
      return this.#watch(this.#inside(() => this.#inner?.next() ?? Promise.resolve(DONE)));
    } catch (error) {
      this.#end(FAILED);
      return rejection(error);
    }
  }

  #inside<T>(work: () => T): T {
    return this.#beginning.within.run(this.#id, work);
  }

  /** Looks at a step before its consumer can. */
  #watch(step: Promise<IteratorResult<StreamChunk>>): Promise<Step> {
    const promise = Promise.resolve(step);
    promise.then(this.#saw, this.#fell);
    return promise as Promise<Step>;
  }

  #saw = (step: IteratorResult<StreamChunk>): void => {
    if (step.done) return this.#end(this.#outcome, this.#failure);
    const chunk = step.value;
    if (chunk.type !== 'finish') return;
    if (chunk.reason.kind === 'error') {
      const { code, status, providerRetryAfterMs } = chunk.reason.failure;
      this.#outcome = FAILED;
      this.#failure = {
        code,
        ...(status === undefined ? {} : { status }),
        ...(providerRetryAfterMs === undefined ? {} : { retryAfterMs: providerRetryAfterMs }),
      };
    } else if (chunk.reason.kind === 'aborted') {
      this.#outcome = CANCELLED;
    }
  };

  #fell = (): void => this.#end(this.#beginning.signal?.aborted ? CANCELLED : FAILED);

  #end(outcome: Outcome, failure?: Failure): void {
    if (this.#state === 'done') return;
    this.#state = 'done';
    this.#beginning.gate.finish(this.#id, outcome, failure);
  }
}

/** A rejection somebody may never look at. */
function rejection(reason: unknown): Promise<never> {
  const promise = Promise.reject<never>(reason);
  promise.catch(() => undefined);
  return promise;
}
