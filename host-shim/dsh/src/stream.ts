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
 * one, so the seat is free before the consumer sees `done`. What goes by is made by other plugins, so no shape of it is
 * certain: a chunk that cannot be read says nothing of an end, a step that cannot be read is one.
 *
 * # Cancellation
 *
 * A call that is aborted before or while it waits takes no seat, reaches no backend and rejects with the caller's own
 * reason. If the line reaches it in the same turn, the seat is given back before the backend is asked.
 *
 * # Context
 *
 * All steps of a backend run in one async context, the consumer's at the first of them and with the call's name in it: what
 * the backend does in it, a request or another stream, is so known to be this call's. Entering a context made once costs a
 * tenth of making one for every chunk; and making it inside one that is left again, two thirds of what `AsyncLocalStorage.run` does.
 */
import { AsyncResource, type AsyncLocalStorage } from 'node:async_hooks';
import type { StreamChunk } from '@deepseek-ai/dsh-llm';
import type { Failure } from '../../node/index.d.ts';
import { onAbort } from './aborts.ts';
import { CANCELLED, COMPLETED, FAILED, type Asked, type Decision, type Gate, type Outcome } from './gate.ts';

type Step = IteratorResult<StreamChunk, undefined>;

/** A call as what happens inside it sees it. */
export interface Running {
  /** Who let it run, and calls it by this id. */
  readonly gate: Gate;
  readonly id: number;
  readonly provider: string;
  /** Whether it has not ended; what it has begun may go on. */
  readonly live: boolean;
}

/** What a stream needs to begin. */
export interface Beginning {
  readonly gate: Gate;
  readonly provider: string;
  readonly signal: AbortSignal | undefined;
  /** Asks the gate; called at most once, when the call is about to leave. */
  readonly start: () => Asked;
  /** The rest of the harness's chain. */
  readonly next: () => AsyncIterable<StreamChunk>;
  /** Names the call to what happens inside it. */
  readonly within: AsyncLocalStorage<Running>;
}

const SHUT_DOWN = { code: 'ABORTED', message: 'the harness shuts down' };

const RESOURCE = 'GEN_LIMIT_CALL';

const DONE: Step = { done: true, value: undefined };

export class GatedStream implements AsyncIterableIterator<StreamChunk, undefined, undefined>, Running {
  #beginning: Beginning;
  #state: 'new' | 'waiting' | 'running' | 'done' = 'new';
  #id = 0;
  #inner: AsyncIterator<StreamChunk> | undefined;
  /** The method of `#inner`, which is asked for it once, like by a loop. */
  #next: AsyncIterator<StreamChunk>['next'] | undefined;
  /** The context of the backend's steps. */
  #inside: AsyncResource | undefined;
  #entering: Promise<Step> | undefined;
  /** What whoever has left is told. */
  #left: Promise<never> | Step = DONE;
  /** Ends the wait for somebody to ask. */
  #leave: () => void = () => undefined;
  #failure: Failure | undefined;
  #outcome: Outcome = COMPLETED;

  constructor(beginning: Beginning) {
    this.#beginning = beginning;
  }

  get gate(): Gate {
    return this.#beginning.gate;
  }

  get id(): number {
    return this.#id;
  }

  get provider(): string {
    return this.#beginning.provider;
  }

  get live(): boolean {
    return this.#state === 'running';
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Step> {
    switch (this.#state) {
      case 'running':
        return this.#step(this.#next);
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
    const inner = this.#inner;
    if (this.#state === 'running' && inner?.throw !== undefined) return this.#step(() => inner.throw?.(error));
    await this.return();
    throw error;
  }

  #enter(): Promise<Step> {
    const { gate, signal } = this.#beginning;
    if (signal?.aborted) {
      this.#state = 'done';
      return Promise.reject(signal.reason);
    }
    const decision = gate.loading ? this.#askWhenReady() : this.#ask();
    return decision instanceof Promise ? this.#wait(decision) : this.#decided(decision);
  }

  async #askWhenReady(): Promise<Decision> {
    await Promise.race([this.#beginning.gate.ready, new Promise<void>((resolve) => (this.#leave = resolve))]);
    return this.#state === 'waiting' ? this.#ask() : { kind: 'cancelled' };
  }

  #ask(): Decision | Promise<Decision> {
    try {
      const { id, decision } = this.#beginning.start();
      this.#id = id;
      return decision;
    } catch (error) {
      return rejection(error);
    }
  }

  /** Stands in line. An async function, so that it goes on in the caller's own async context. */
  async #wait(decided: Promise<Decision>): Promise<Step> {
    const { signal } = this.#beginning;
    this.#state = 'waiting';
    const stop = onAbort(signal, () => this.#withdraw(rejection(signal?.reason)));
    let decision: Decision | undefined;
    try {
      decision = await decided;
    } catch (error) {
      this.#withdraw(rejection(error));
    } finally {
      // From here on the signal is the backend's affair.
      stop();
    }
    // Whoever left in the same turn as the line reached it has left.
    return this.#state === 'waiting' && decision !== undefined ? this.#decided(decision) : this.#left;
  }

  /** Leaves for good, whatever has been promised meanwhile. */
  #withdraw(end: Promise<never> | Step): void {
    this.#left = end;
    this.#end(CANCELLED);
    this.#leave();
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
    const { next, within } = this.#beginning;
    this.#state = 'running';
    try {
      new AsyncResource(RESOURCE).runInAsyncScope(() => {
        within.enterWith(this);
        this.#inside = new AsyncResource(RESOURCE);
        this.#inner = next()[Symbol.asyncIterator]();
        this.#next = this.#inner.next;
      });
    } catch (error) {
      this.#end(FAILED);
      return rejection(error);
    }
    return this.#step(this.#next);
  }

  /** Has the backend take a step, and looks at it before the consumer can. */
  #step(take: (() => Promise<IteratorResult<StreamChunk>> | undefined) | undefined): Promise<Step> {
    try {
      const promise = Promise.resolve(this.#inside?.runInAsyncScope(take as () => Promise<IteratorResult<StreamChunk>>, this.#inner) ?? DONE);
      promise.then(this.#saw, this.#fell);
      return promise as Promise<Step>;
    } catch (error) {
      this.#end(FAILED);
      return rejection(error);
    }
  }

  // Every chunk passes here, so what nearly all of them have is read where it is known by name.
  #saw = (step: unknown): void => {
    let done: unknown = UNREADABLE;
    let type: unknown;
    try {
      if (isObject(step)) done = (step as { done?: unknown }).done;
      if (!done) type = (step as { value?: { type?: unknown } }).value?.type;
    } catch {
      // Then it is unreadable, or says nothing of an end.
    }
    if (done === UNREADABLE) return this.#end(FAILED);
    if (done) return this.#end(this.#outcome, this.#failure);
    if (type === 'finish') this.#sawFinish(read(read(step, 'value'), 'reason'));
  };

  #sawFinish(reason: unknown): void {
    const kind = read(reason, 'kind');
    if (kind === 'error') {
      this.#outcome = FAILED;
      this.#failure = failure(read(reason, 'failure'));
    } else if (kind === 'aborted') {
      this.#outcome = CANCELLED;
    }
  }

  #fell = (): void => this.#end(this.#beginning.signal?.aborted ? CANCELLED : FAILED);

  #end(outcome: Outcome, failure?: Failure): void {
    if (this.#state === 'done') return;
    this.#state = 'done';
    this.#beginning.gate.finish(this.#id, outcome, failure);
  }
}

const UNREADABLE = Symbol('unreadable');

function isObject(value: unknown): value is object {
  return Object(value) === value;
}

/** A property of what should be an object. */
function read(object: unknown, key: string): unknown {
  try {
    return isObject(object) ? (object as Record<string, unknown>)[key] : UNREADABLE;
  } catch {
    return UNREADABLE;
  }
}

/** What a failed call tells of the provider, as far as it can be understood. */
function failure(told: unknown): Failure | undefined {
  const code = read(told, 'code');
  if (typeof code !== 'string') return undefined;
  const status = read(told, 'status');
  const retryAfterMs = read(told, 'providerRetryAfterMs');
  return { code, ...(isAmount(status) ? { status } : {}), ...(isAmount(retryAfterMs) ? { retryAfterMs } : {}) };
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

/** A rejection somebody may never look at. */
function rejection(reason: unknown): Promise<never> {
  const promise = Promise.reject<never>(reason);
  promise.catch(() => undefined);
  return promise;
}
