/** An optional record of every decision, one JSON line each, in the file that `DSH_GEN_LIMIT_TRACE` names. */
import { appendFileSync } from 'node:fs';
import type { Limiter, Refusal } from '../../node/index.d.ts';

/** What a call is, as far as the gate cares. */
export interface CallInfo {
  readonly kind: 'stream' | 'spawn';
  readonly session: string | undefined;
  readonly provider: string | undefined;
  readonly model: string | undefined;
}

type Fields = Record<string, string | number | undefined>;

export class Trace {
  #file: string;
  #tenant: () => string | undefined;
  #calls = new Map<number, { fields: Fields; since: number }>();

  /** The trace the environment asks for, if it does. */
  static fromEnvironment(tenant?: () => string | undefined): Trace | undefined {
    const file = process.env['DSH_GEN_LIMIT_TRACE'];
    return file ? new Trace(file, tenant) : undefined;
  }

  constructor(file: string, tenant: () => string | undefined = () => undefined) {
    this.#file = file;
    this.#tenant = tenant;
  }

  admit(id: number, info: CallInfo): void {
    this.#begin('admit', id, info);
  }

  wait(id: number, info: CallInfo): void {
    this.#begin('wait', id, info);
  }

  deny(id: number, info: CallInfo, { reason }: Partial<Refusal>): void {
    this.#begin('deny', id, info, { result: 'refused', reason });
    this.#calls.delete(id);
  }

  settled(id: number, refusal: Refusal | undefined): void {
    const call = this.#calls.get(id);
    const waitedMs = refusal?.waitedMs ?? (call === undefined ? undefined : Date.now() - call.since);
    this.#write('settled', id, { result: refusal === undefined ? 'admitted' : 'refused', reason: refusal?.reason, waitedMs });
    if (refusal !== undefined) this.#calls.delete(id);
  }

  finish(id: number, outcome: number): void {
    if (!this.#calls.has(id)) return;
    this.#write('finish', id, { result: ['completed', 'cancelled', 'failed'][outcome] });
    this.#calls.delete(id);
  }

  /** The last line: everything the component and its host can tell. */
  stats(stats: unknown, limiter: Limiter): void {
    try {
      this.#append({ t: Date.now(), event: 'stats', stats, host: limiter.status() });
    } catch {
      // An addon that has panicked tells nothing any more.
    }
  }

  #begin(event: string, id: number, { kind, session, provider, model }: CallInfo, more: Fields = {}): void {
    const fields = { kind, session, route: provider === undefined ? undefined : `${provider}/${model}` };
    this.#calls.set(id, { fields, since: Date.now() });
    this.#write(event, id, more);
  }

  #write(event: string, id: number, more: Fields): void {
    this.#append({ t: Date.now(), event, id, ...this.#calls.get(id)?.fields, ...more });
  }

  /** Every tenant numbers its own calls. */
  #append(line: object): void {
    try {
      appendFileSync(this.#file, `${JSON.stringify({ ...line, tenant: this.#tenant() })}\n`);
    } catch {
      // A trace that cannot be written disturbs nobody.
    }
  }
}
