/**
 * Signals that many listen to.
 *
 * For every listener that is added to a signal the platform looks through all that are there already, so a fan-out of
 * thousands on one signal would spend its time there. We listen to each signal once, however many are to hear of it.
 */
const LISTENING = new WeakMap<AbortSignal, Listening>();

class Listening {
  readonly listeners = new Set<() => void>();
  readonly #signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    LISTENING.set(signal, this);
    signal.addEventListener('abort', this, { once: true });
  }

  handleEvent(): void {
    for (const listener of this.listeners) listener();
  }

  /** A signal that nobody listens to may go, also one that was made of others. */
  remove(listener: () => void): void {
    this.listeners.delete(listener);
    if (this.listeners.size > 0) return;
    LISTENING.delete(this.#signal);
    this.#signal.removeEventListener('abort', this);
  }
}

/** Has a listener called when a signal that has not been aborted is. Gives how to stop that. A listener may not throw. */
export function onAbort(signal: AbortSignal | undefined, listener: () => void): () => void {
  if (signal === undefined) return () => undefined;
  const listening = LISTENING.get(signal) ?? new Listening(signal);
  listening.listeners.add(listener);
  return () => listening.remove(listener);
}
