/**
 * The gate: what stands between a hook of the harness and the component.
 *
 * It hands calls to the addon, keeps who waits for what it will say, and sets the one timer the component asks for. It
 * belongs to a row, not to a mounting of the plugin, so that calls and lines survive a restart (see `row.ts`).
 *
 * # Who decides
 *
 * The component, once it is there. Until then calls wait (`ready`). If it cannot be brought to work, `onFailure` decides:
 * calls pass uncounted or are refused. A gate that is `released` lets everybody pass, one that is `cancelled` nobody.
 *
 * # Order
 *
 * Every operation is one synchronous step: ask the addon, fetch the waits that ended, wake their calls. A call that is
 * woken is already counted, so nothing can take its seat before it moves; a call that is given up between the two ends by
 * the same `finish` as any other.
 *
 * Where thousands are woken at once, a portion is in every turn of the event loop, in their order: whatever else the process has to do
 * goes on meanwhile. Those who are yet to be woken have their seats, or none, already.
 */
import type { Failure, Limiter, Refusal } from '../../node/index.d.ts';
import type { Reporter } from './report.ts';
import type { CallInfo, Trace } from './trace.ts';

/** How a call ended, as the addon counts it. */
export const COMPLETED = 0;
export const CANCELLED = 1;
export const FAILED = 2;
export type Outcome = typeof COMPLETED | typeof CANCELLED | typeof FAILED;

// The answer of the addon: `id * SPAN + bits`.
const SPAN = 128;
const WAITS = 1;
const DENIED = 2;
const SETTLED = 4;
const TICK = 8;
const LOGGED = 16;
const ANSWERS = 32;
const NEWS = 64;

/** So many are woken in a turn of the event loop. What each then does takes far longer than to wake it. */
const PORTION = 50;

/** The longest delay `setTimeout` keeps; a longer one would fire at once. */
const MAX_DELAY = 2 ** 31 - 1;

/** The id of a call that passes without being counted: no component ever gives it. */
const UNCOUNTED = 0;

/** The code of a refusal while there is no component to decide. */
const UNAVAILABLE = 'GEN_LIMITER_UNAVAILABLE';

/** What becomes of a call that wants to start. */
export type Decision =
  | { readonly kind: 'admitted' }
  | { readonly kind: 'refused'; readonly refusal: Pick<Refusal, 'code' | 'message'> }
  /** The call was given up, or the harness shuts down. */
  | { readonly kind: 'cancelled' };

/** A call the gate has been asked about: decided, or a promise of the decision. */
export interface Asked {
  readonly id: number;
  readonly decision: Decision | Promise<Decision>;
}

/** What the gate does with calls when the component does not decide. */
type Mode = 'loading' | 'component' | 'open' | 'closed' | 'released' | 'cancelled';

const ADMITTED: Decision = { kind: 'admitted' };
const CALLED_OFF: Decision = { kind: 'cancelled' };

export class Gate {
  /** Calls wait for this before they ask. Settles when it is known who decides. */
  readonly ready: Promise<void>;
  /** The names of the tools to bring to `startTool`. */
  tools: ReadonlySet<string> = new Set();
  /** Called when something was logged: how the component is doing may have changed. */
  onLog: () => void = () => undefined;
  /** Called when the component asks something or has answered a request. */
  onAnswers: (limiter: Limiter) => void = () => undefined;
  /** Called when what happened here is news for those who share seats with it. */
  onNews: () => void = () => undefined;
  /** Called when the component decides no longer, while it still can be asked something. */
  onParting: (limiter: Limiter) => void = () => undefined;

  #mode: Mode = 'loading';
  /** Why there was no component to be had. */
  #reason = '';
  #setReady: () => void;
  #limiter: Limiter | undefined;
  #hooks: ReturnType<Limiter['hooks']> | undefined;
  /**
   * The calls up to this one are none of the limiter's: they passed uncounted, or another limiter counted them. Every limiter
   * numbers its calls from 1, and what is left of a dead one must not be taken for its successor's.
   */
  #foreign = UNCOUNTED;
  #newest = UNCOUNTED;
  #waiting = new Map<number, (decision: Decision) => void>();
  #timer: NodeJS.Timeout | undefined;
  /** There are more to be woken than were. */
  #waking: NodeJS.Immediate | undefined;
  #trace: Trace | undefined;
  #report: Reporter;
  #broken = false;
  /** What `onFailure` says. */
  #closed: boolean;

  /** Whether the harness shuts down: known a few turns before this gate is told. */
  #ending: () => boolean;

  constructor(report: Reporter, trace: Trace | undefined, closed: boolean, ending: () => boolean) {
    this.#report = report;
    this.#ending = ending;
    this.#trace = trace;
    this.#closed = closed;
    this.#setReady = () => undefined;
    this.ready = new Promise((resolve) => (this.#setReady = resolve));
  }

  /** Whether calls still have to wait for `ready`. */
  get loading(): boolean {
    return this.#mode === 'loading';
  }

  /** Whether nobody may go to a backend any more, whatever was decided. */
  get cancelled(): boolean {
    return this.#mode === 'cancelled' || this.#ending();
  }

  /** The addon, while the component decides. */
  get limiter(): Limiter | undefined {
    return this.#limiter;
  }

  /** Whether calls are refused when no component decides. */
  get closed(): boolean {
    return this.#closed;
  }

  set closed(closed: boolean) {
    this.#closed = closed;
    if (this.failed) this.#mode = closed ? 'closed' : 'open';
  }

  /** Whether there was no component to be had: it may be tried again. */
  get failed(): boolean {
    return this.#mode === 'open' || this.#mode === 'closed';
  }

  /** How it stands while no component decides, for whoever asks. */
  get standing(): { readonly state: string; readonly reason: string } {
    switch (this.#mode) {
      case 'loading':
      case 'component':
        return { state: 'loading', reason: 'the component is being loaded' };
      case 'open':
        return { state: 'failed-open', reason: this.#reason };
      case 'closed':
        return { state: 'failed-closed', reason: this.#reason };
      case 'released':
      case 'cancelled':
        return { state: 'stopped', reason: 'the plugin has been stopped' };
    }
  }

  /** The component is there and decides. What `onFailure` let pass before stays uncounted. */
  open(limiter: Limiter): void {
    if (!this.loading && !this.failed) return;
    this.#hooks = limiter.hooks();
    this.#limiter = limiter;
    this.#broken = false;
    this.#foreign = this.#newest;
    this.#mode = 'component';
    this.refresh();
    this.#setReady();
  }

  /** There is no component, or none any more: `onFailure` decides, also for those who wait. */
  fail(reason: string): void {
    this.#reason = reason;
    if (this.#mode !== 'loading' && this.#mode !== 'component') return;
    this.#leaveTo(this.#closed ? 'closed' : 'open');
  }

  /** Asks the component again for what may have changed with its configuration. */
  refresh(): void {
    this.#operate((limiter) => {
      this.tools = new Set(limiter.tools());
      return limiter.pending();
    });
  }

  /** Asks whether a model call may leave. Not while `loading`. */
  startStream(info: CallInfo, first: boolean, spawn?: number, within?: number, purpose?: string): Asked {
    const limiter = this.#limiter;
    const hooks = this.#hooks;
    if (limiter === undefined || hooks === undefined) return { id: UNCOUNTED, decision: this.#withoutComponent() };
    try {
      const { provider, model, session } = info;
      return this.#started(limiter, hooks.startStream(provider ?? '', model ?? '', session, first, this.#own(spawn), this.#own(within), purpose), info);
    } catch (error) {
      return this.#undecided(error);
    }
  }

  /** Asks whether a spawn may run. Not while `loading`. */
  startTool(tool: string, info: CallInfo): Asked {
    const limiter = this.#limiter;
    if (limiter === undefined) return { id: UNCOUNTED, decision: this.#withoutComponent() };
    try {
      return this.#started(limiter, limiter.startTool(tool, info.session, info.provider, info.model), info);
    } catch (error) {
      return this.#undecided(error);
    }
  }

  #started(limiter: Limiter, answer: number, info: CallInfo): Asked {
    const bits = answer % SPAN;
    const id = (this.#newest = this.#foreign + (answer - bits) / SPAN);
    const decision = this.#decision(limiter, id, bits, info);
    // What this call has set off is told after the call itself is known, so nobody is settled before it waits.
    this.#serve(bits);
    return { id, decision };
  }

  #undecided(error: unknown): Asked {
    this.#complain(error);
    return { id: UNCOUNTED, decision: this.#closed ? unavailable() : ADMITTED };
  }

  #decision(limiter: Limiter, id: number, bits: number, info: CallInfo): Decision | Promise<Decision> {
    if ((bits & WAITS) !== 0) {
      this.#trace?.wait(id, info);
      // A process in which somebody waits has something to live for.
      this.#timer?.ref();
      return new Promise((resolve) => this.#waiting.set(id, resolve));
    }
    if ((bits & DENIED) !== 0) {
      const refusal = refusalOf(limiter);
      this.#trace?.deny(id, info, refusal);
      return { kind: 'refused', refusal };
    }
    this.#trace?.admit(id, info);
    return ADMITTED;
  }

  #withoutComponent(): Decision {
    if (this.#ending()) return CALLED_OFF;
    switch (this.#mode) {
      case 'closed':
        return unavailable();
      case 'cancelled':
        return CALLED_OFF;
      default:
        return ADMITTED;
    }
  }

  /** Tells that a call ended or was given up, at whatever point. Repeating it does nothing. */
  finish(id: number, outcome: Outcome, failure?: Failure): void {
    this.#leave(id)?.(CALLED_OFF);
    this.#trace?.finish(id, outcome);
    const own = this.#own(id);
    const hooks = this.#hooks;
    if (own === undefined || hooks === undefined) return;
    try {
      this.#serve(failure === undefined ? hooks.finish(own, outcome) : told(hooks, own, outcome, failure));
    } catch (error) {
      this.#complain(error);
    }
  }

  /** What the limiter calls a call, if it is one of its own. */
  #own(id: number | undefined): number | undefined {
    return id === undefined || id <= this.#foreign ? undefined : id - this.#foreign;
  }

  /** Brings the addon a request, or the answer to a question of the component's: whatever may let it ask or answer. */
  tell(operation: (limiter: Limiter) => number): void {
    this.#operate(operation);
  }

  /** Takes note of what those who share seats with it have done. */
  collect(): void {
    this.#operate((limiter) => limiter.collect());
  }

  /** Moves a manual clock on. */
  advance(ms: number): void {
    // What was due at a later time may be due at the same time now, and the timer knows nothing of it.
    this.#operate((limiter) => limiter.advance(ms) | TICK);
  }

  #operate(operation: (limiter: Limiter) => number): void {
    const limiter = this.#limiter;
    if (limiter === undefined) return;
    try {
      this.#serve(operation(limiter));
    } catch (error) {
      this.#complain(error);
    }
  }

  /** Fetches what the addon says there is. */
  #serve(bits: number): void {
    const limiter = this.#limiter;
    if (limiter === undefined || (bits & (SETTLED | TICK | LOGGED | ANSWERS | NEWS)) === 0) return;
    if ((bits & SETTLED) !== 0 && this.#waking === undefined) this.#wake(limiter);
    if ((bits & TICK) !== 0) this.#schedule();
    if ((bits & LOGGED) !== 0) {
      for (const { level, message } of limiter.takeLog()) this.#report(level, message);
      this.onLog();
    }
    if ((bits & ANSWERS) !== 0) this.onAnswers(limiter);
    if ((bits & NEWS) !== 0) this.onNews();
  }

  #wake(limiter: Limiter): void {
    for (let taken = 0; taken < PORTION; taken += 1) {
      const told = this.#hooks?.nextSettled() ?? 0;
      if (told === 0) return;
      const isRefused = told % 2 === 1;
      const id = this.#foreign + (told - Number(isRefused)) / 2;
      const refusal = isRefused ? refusalOf(limiter) : undefined;
      const resolve = this.#leave(id);
      // It may have left since.
      if (resolve === undefined) continue;
      this.#trace?.settled(id, refusal);
      resolve(refusal === undefined ? ADMITTED : { kind: 'refused', refusal });
    }
    this.#waking = setImmediate(() => {
      this.#waking = undefined;
      this.#operate((limiter) => limiter.pending());
    });
  }

  /** Somebody waits no longer. Gives how to say what became of it, if it was somebody. */
  #leave(id: number): ((decision: Decision) => void) | undefined {
    const resolve = this.#waiting.get(id);
    if (resolve !== undefined && this.#waiting.delete(id) && this.#waiting.size === 0) this.#timer?.unref();
    return resolve;
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const delay = this.#hooks?.nextTick() ?? Infinity;
    if (delay === Infinity) return;
    // An early tick does no harm: a wait longer than a timer holds is cut into several.
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      // The addon need not tell what has not changed: the wait that goes on is looked at all the same.
      this.#operate((limiter) => limiter.tick() | TICK);
    }, Math.min(delay, MAX_DELAY));
    if (this.#waiting.size === 0) this.#timer.unref();
  }

  /** The row is gone: no plugin, no limit. Everybody who waits proceeds. */
  release(): void {
    this.#leaveTo('released');
  }

  /** The harness shuts down: nobody who waits may reach a backend any more. */
  cancel(): void {
    this.#leaveTo('cancelled');
  }

  /** Parts with the component, for everybody. */
  #leaveTo(mode: Exclude<Mode, 'loading' | 'component'>): void {
    if (this.#mode === 'released' || this.#mode === 'cancelled') return;
    this.#mode = mode;
    if (this.#limiter !== undefined) this.onParting(this.#limiter);
    this.#limiter = undefined;
    this.#hooks = undefined;
    clearTimeout(this.#timer);
    clearImmediate(this.#waking);
    this.#waking = undefined;
    this.#setReady();
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    const decision = this.#withoutComponent();
    for (const resolve of waiting) resolve(decision);
  }

  /** A fault of the addon itself. One call it cannot decide is `onFailure`'s; after a panic it decides none. */
  #complain(error: unknown): void {
    const panicked = error instanceof Error && 'code' in error && error.code === 'GEN_LIMIT_PANIC';
    // Who parts with it finds it so once more.
    if (panicked ? this.failed : this.#broken) return;
    this.#broken = true;
    if (panicked) this.fail(describe(error));
    const effect = this.#closed ? 'are refused' : 'pass uncounted';
    this.#report('error', `the addon failed: ${describe(error)}; calls it cannot decide ${effect}`);
  }
}

function refusalOf(limiter: Limiter): Refusal {
  return limiter.refusal() ?? { code: UNAVAILABLE, reason: 'other', message: 'refused without a reason' };
}

/** The seat matters more than why the call failed. */
function told(hooks: Pick<Limiter, 'finish'>, id: number, outcome: Outcome, failure: Failure): number {
  try {
    return hooks.finish(id, outcome, failure);
  } catch {
    return hooks.finish(id, outcome);
  }
}

function unavailable(): Decision {
  const message = 'gen-limit has no component to decide and its onFailure is "closed"; why is told on the harness\'s stderr';
  return { kind: 'refused', refusal: { code: UNAVAILABLE, message } };
}

/** An error in one line, with its code if it has one. */
export function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'code' in error && typeof error.code === 'string' ? `${error.code}: ` : '';
  return `${code}${error.message}`.split('\n', 1)[0] ?? '';
}
