/**
 * What is in force of the configuration.
 *
 * A document with a mistake changes nothing: the last one without a mistake stays in force, also over a restart of the
 * harness. Where there never was one, what is valid of it is in force. Either way the mistake is told, with row and field,
 * here and by the component's stats, until it is put right.
 *
 * Not all of it is the row's to say: what the host's row says for everybody is put in before the component sees it, whichever
 * document it is that comes to be in force. What is kept for a restart is what the row said.
 */
import type { Configured, Limiter, Problem } from '../../node/index.d.ts';
import manifest from '../package.json' with { type: 'json' };
import { type Gate, describe } from './gate.ts';
import type { Reporter } from './report.ts';
import type { Document } from './settings.ts';
import type { Stored } from './stored.ts';

export class Enforcement {
  #gate: Gate;
  #document: Document;
  #stored: Stored;
  #say: Reporter;
  #stats: () => unknown;
  /** Puts what others say for this row into a document. */
  #amend: (text: string) => string;
  /** The text that was last looked at, with what others say. */
  #given: string | undefined;
  /** The text of which everything valid is in force; none while an earlier one takes its place. */
  #inForce: string | undefined;
  /** Whether a document without a mistake is in force, and whether the newest has one. */
  #good = false;
  #wrong = false;
  /** Whether it was looked at before it was known to be what the user wants. */
  #early = false;
  /** Whether the newest came while the component was failing, and could not be taken. */
  #missed = false;
  /** The document that the component works by, as the row says it. */
  #effective: string | undefined;

  constructor(gate: Gate, document: Document, stored: Stored, stats: () => unknown, say: Reporter, amend: (text: string) => string) {
    this.#amend = amend;
    this.#gate = gate;
    this.#document = document;
    this.#stored = stored;
    this.#stats = stats;
    this.#say = say;
    document.isInForce = () => this.#inForce === document.text;
  }

  /** The document that decides: what the component works by, or while there is none, the newest. */
  get effective(): string {
    return (this.#gate.limiter === undefined ? undefined : this.#effective) ?? this.#document.text;
  }

  /** Puts the document in force in a limiter that has nothing in force yet. */
  begin(limiter: Limiter): void {
    this.#good = false;
    this.#missed = false;
    this.#apply(limiter);
  }

  /** Looks at the document again, and says whether it has changed. */
  renew(): boolean {
    const { limiter } = this.#gate;
    const { text } = this.#document;
    const amended = this.#amend(text);
    const changed = amended !== this.#given;
    if (limiter === undefined) {
      this.#given = amended;
      this.#gate.closed = this.#asksClosed(text);
    } else if (changed || this.#missed) {
      this.#enforce(limiter);
      const state = this.#gate.limiter?.status().state;
      this.#missed = this.#wrong && state !== undefined && state !== 'running';
    } else if (!this.#wrong) {
      this.#remember(text);
    }
    return changed;
  }

  /**
   * A component that is back may take what it could not take before; once, because it may have failed over just that. Says whether it
   * was asked to.
   */
  retry(): boolean {
    const { limiter } = this.#gate;
    if (!this.#missed || limiter?.status().state !== 'running') return false;
    this.#missed = false;
    this.#enforce(limiter);
    return true;
  }

  /** Another component may take what the one before it did not. Says whether it was asked to. */
  reconsider(): boolean {
    const { limiter } = this.#gate;
    if (!this.#wrong || limiter === undefined) return false;
    this.#enforce(limiter);
    return true;
  }

  /** What `onFailure` says while there is no component to judge the document: its own word, or else that of the last good one. */
  #asksClosed(text: string): boolean {
    return (onFailure(text) ?? onFailure(this.#stored.read())) === 'closed';
  }

  #enforce(limiter: Limiter): void {
    const untold = this.#wrong || this.#early;
    this.#apply(limiter);
    this.#gate.refresh();
    if (untold && !this.#wrong) this.announce(limiter);
  }

  /** Puts the document in force, or what comes nearest to it. */
  #apply(limiter: Limiter): void {
    const { text } = this.#document;
    this.#given = this.#amend(text);
    const { applied, problems } = this.#take(limiter, text);
    this.#wrong = !applied;
    this.#inForce = applied ? text : undefined;
    if (applied) {
      this.#remember(text);
    } else {
      this.#say('error', `${list(problems)}; ${this.#fallBack(limiter, text)} is in force`);
    }
  }

  /** Keeps a document for a start with a mistake; not while the settings may still say otherwise. */
  #remember(text: string): void {
    this.#early = !this.#document.known;
    if (this.#early) return;
    this.#good = true;
    try {
      this.#stored.write(text);
    } catch (error) {
      this.#say('warn', `the configuration is in force but could not be stored: ${describe(error)}`);
    }
  }

  /** Puts in force what comes nearest to a document that is wrong, and names it. */
  #fallBack(limiter: Limiter, wrong: string): string {
    if (!this.#good) {
      const stored = this.#stored.read();
      this.#good = stored !== undefined && this.#take(limiter, stored).applied;
      // Asked last, so that whoever reads stats is told what is wrong.
      if (this.#good) this.#take(limiter, wrong);
    }
    if (this.#good) return 'the last good configuration';
    if (this.#take(limiter, wrong, true).applied) {
      this.#inForce = wrong;
      return 'what is valid of it';
    }
    return this.#take(limiter, this.#document.row, true).applied ? 'what is valid of the row' : 'nothing of it';
  }

  /** Has the component take a document. One it cannot even look at is wrong like any other. */
  #take(limiter: Limiter, text: string, lenient = false): Configured {
    try {
      const configured = limiter.configure(this.#amend(text), lenient);
      if (configured.applied) {
        this.#gate.closed = onFailure(text) === 'closed';
        this.#effective = text;
      }
      return configured;
    } catch (error) {
      return { applied: false, problems: [{ path: '', message: describe(error) }] };
    }
  }

  /** Says what is limited. */
  announce(limiter: Limiter): void {
    try {
      const { scopes } = this.#stats() as { scopes?: Array<{ scope: string; max: number }> };
      const limits = scopes?.filter(({ max }) => max >= 0).map(({ scope, max }) => `${scope} max ${max}`) ?? ['its limits it does not tell'];
      const what = limits.length === 0 ? 'inactive: no limits set' : limits.join(', ');
      this.#say('info', `${manifest.version}, component ${limiter.status().sha256.slice(0, 12)}; ${what}`, true);
    } catch (error) {
      this.#say('warn', `the configuration is in force but does not tell what it limits: ${describe(error)}`);
    }
  }
}

/** The one key we read ourselves: it says what to do when there is nobody else to read it. */
function onFailure(json = ''): 'open' | 'closed' | undefined {
  try {
    const config: unknown = JSON.parse(json);
    if (typeof config !== 'object' || config === null || !('onFailure' in config)) return undefined;
    return config.onFailure === 'open' || config.onFailure === 'closed' ? config.onFailure : undefined;
  } catch {
    return undefined;
  }
}

function list(problems: readonly Problem[]): string {
  return problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ');
}
