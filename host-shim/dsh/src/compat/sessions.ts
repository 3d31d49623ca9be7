/**
 * The harness's sessions, looked up for every call.
 *
 * To ask a context for a service and the service for something goes through several proxies, which takes longer than all that
 * is decided of the call. So the service is kept without them, until it is another or has gone.
 */
import type { Context } from '@deepseek-ai/cordis';
import type { Session, SessionId } from '@deepseek-ai/dsh-session';

/** Under which Cordis tells what a proxy of its stands for. */
const ORIGINAL = Symbol.for('cordis.original');

export class Sessions {
  readonly #root: Context;
  /** Null if it has to be asked for. */
  #service: { get(id: SessionId): Session | undefined } | undefined | null = null;
  /** Ends it. */
  readonly stop: () => unknown;

  constructor(root: Context) {
    this.#root = root;
    // The first of those who are told: one of the others may bring a call at once.
    this.stop = root.on('internal/service', (name) => {
      if (name === 'sessions') this.#service = null;
    }, { prepend: true, global: true });
  }

  get(id: string | undefined): Session | undefined {
    if (id === undefined) return undefined;
    if (this.#service === null) {
      const found = this.#root.get('sessions');
      this.#service = (found as { [ORIGINAL]?: typeof found } | undefined)?.[ORIGINAL] ?? found;
    }
    return this.#service?.get(id as SessionId);
  }
}
