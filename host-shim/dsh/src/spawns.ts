/**
 * Spawn tool calls: paced through the same line as the streams, and tied to the children they make.
 *
 * The harness tells nobody which tool call made a child. When a child starts, the oldest outstanding spawn of its parent
 * and route is taken for the one; children of one parent are alike to the line, so a mix-up among them changes nothing. A
 * child that no tool call made (a workflow's) may take the credit of a spawn that waits beside it, which is harmless too.
 *
 * # Whose spawn it is
 *
 * A spawn is paced by whoever owns its parent's calls, because before there is a child nothing else is known of it, and a child
 * joins its parent's preset, descends from its sessions and works in its folder. Should the child's calls belong to somebody else
 * all the same, the credit is given back as soon as that is seen, and the child calls there like anybody: the name of a
 * spawn means nothing to a gate that did not give it.
 */
import type { Session } from '@deepseek-ai/dsh-session';
import type { PreToolDecision, ToolExecution, ToolExecutionResult } from '@deepseek-ai/dsh-tools';
import { onAbort } from './aborts.ts';
import { cancelled, childRoute, denied, isFinal, ownEvents, type ChildRoute } from './compat/harness.ts';
import { CANCELLED, COMPLETED, FAILED, type Decision, type Gate } from './gate.ts';

/** How long a spawn whose tool call has returned is looked for by a child, in milliseconds. */
const BACKGROUND_START_MS = 60_000;

interface Spawn {
  /** Who let it through, and calls it by this id. */
  readonly gate: Gate;
  readonly id: number;
  readonly parent: string | undefined;
  readonly route: ChildRoute | undefined;
  /** When its tool call returned. */
  ended?: number;
}

export class Spawns {
  /** Spawns that run, by their tool call. */
  #running = new WeakMap<object, Spawn>();
  #count = 0;
  readonly #listen: () => () => void;
  #stopListening: () => void = () => undefined;
  /** Spawns that have no child yet, oldest first. */
  #childless: Spawn[] = [];
  /** The spawn of each child that has not called yet. */
  #children = new Map<string, Spawn>();
  /** Sessions that have called. */
  #begun = new WeakSet<Session>();

  /** Told how to listen to the ends of tool calls, which is done while spawns run: every other tool call would pay for it. */
  constructor(listen: () => () => void) {
    this.#listen = listen;
  }

  /** Has a gate decide about a tool call that all others allow. */
  async preExecute(gate: Gate, exec: ToolExecution, next: () => Promise<PreToolDecision>): Promise<PreToolDecision> {
    const decision = await next();
    if (isFinal(decision) || exec.signal.aborted) return decision;
    const end = await this.#enter(gate, exec);
    switch (end.kind) {
      case 'admitted':
        return decision;
      case 'refused':
        return denied(end.refusal);
      case 'cancelled':
        // The harness looks at the signal after its gates and reports the cancellation itself; at shutdown there is none.
        return exec.signal.aborted ? decision : cancelled('the harness shuts down');
    }
  }

  async #enter(gate: Gate, exec: ToolExecution): Promise<Decision> {
    const { signal } = exec;
    let stop = (): void => undefined;
    const left = new Promise<Decision>((resolve) => (stop = onAbort(signal, () => resolve({ kind: 'cancelled' }))));
    try {
      if (gate.loading) {
        await Promise.race([gate.ready, left]);
        if (signal.aborted) return { kind: 'cancelled' };
      }
      if (!gate.tools.has(exec.name)) return { kind: 'admitted' };
      const route = childRoute(exec);
      const parent = exec.agent?.id;
      const info = { kind: 'spawn', session: parent, provider: route?.provider, model: route?.model } as const;
      const { id, decision } = gate.startTool(exec.name, info);
      const end = await Promise.race([decision, left]);
      if (signal.aborted || end.kind === 'cancelled' || gate.cancelled) {
        gate.finish(id, CANCELLED);
        return { kind: 'cancelled' };
      }
      if (end.kind === 'admitted') {
        const spawn: Spawn = { gate, id, parent, route };
        this.#running.set(exec, spawn);
        if (this.#count === 0) this.#stopListening = this.#listen();
        this.#count += 1;
        this.#expire();
        this.#childless.push(spawn);
      }
      return end;
    } finally {
      stop();
    }
  }

  /** Whether a tool call is a spawn that was let through. */
  runs(exec: object): boolean {
    return this.#running.has(exec);
  }

  /** Runs a spawn's body and takes note of its end. */
  async execute(exec: Readonly<ToolExecution>, next: () => Promise<ToolExecutionResult>): Promise<ToolExecutionResult> {
    const result = await next();
    this.ended(exec, result);
    return result;
  }

  /** The tool call has ended, however far it got. */
  ended(exec: Readonly<ToolExecution>, result: Readonly<ToolExecutionResult>): void {
    const spawn = this.#running.get(exec);
    if (spawn === undefined) return;
    this.#running.delete(exec);
    this.#count -= 1;
    if (this.#count === 0) this.stop();
    spawn.ended = performance.now();
    const outcome = exec.signal.aborted ? CANCELLED : result.isError ? FAILED : COMPLETED;
    if (outcome !== COMPLETED) this.#forget(spawn);
    spawn.gate.finish(spawn.id, outcome);
  }

  /** Hears of no end any more. */
  stop(): void {
    this.#stopListening();
    this.#stopListening = () => undefined;
  }

  /** A child has been made, whose calls will go to a gate, or to none. */
  started(gate: Gate | undefined, child: string, parent: string | undefined, route: ChildRoute | undefined, session: Session | undefined): void {
    if (session !== undefined && this.#hasBegun(session)) return;
    this.#expire();
    const fits = (spawn: Spawn): boolean =>
      spawn.parent === parent && (route === undefined || spawn.route === undefined ||
        (spawn.route.provider === route.provider && spawn.route.model === route.model));
    const spawn = this.#childless.find((spawn) => spawn.gate === gate && fits(spawn)) ?? this.#childless.find(fits);
    if (spawn === undefined) return;
    this.#forget(spawn);
    if (spawn.gate === gate) this.#children.set(child, spawn);
    else spawn.gate.finish(spawn.id, CANCELLED);
  }

  /** A child is done, perhaps without ever having called. */
  stopped(child: string): void {
    this.#children.delete(child);
  }

  /** What is known of a session that calls now, by way of a gate: whether it is its first call, and the spawn that made it. */
  calls(gate: Gate, id: string | undefined, session: Session | undefined): { first: boolean; spawn: number | undefined } {
    const spawn = id === undefined ? undefined : this.#children.get(id);
    if (id !== undefined) this.#children.delete(id);
    const first = session === undefined || !this.#hasBegun(session);
    if (session !== undefined) this.#begun.add(session);
    if (spawn === undefined || spawn.gate === gate) return { first, spawn: spawn?.id };
    spawn.gate.finish(spawn.id, CANCELLED);
    return { first, spawn: undefined };
  }

  /** Whether a session has called before, in this process or, if it was resumed, in an earlier one. */
  #hasBegun(session: Session): boolean {
    if (this.#begun.has(session)) return true;
    return ownEvents(session).some(({ type }) => type === 'assistant/message');
  }

  /** Gives up those whose child has not come in a long time. */
  #expire(): void {
    const oldest = performance.now() - BACKGROUND_START_MS;
    this.#childless = this.#childless.filter(({ ended }) => ended === undefined || ended > oldest);
  }

  #forget(spawn: Spawn): void {
    this.#childless = this.#childless.filter((other) => other !== spawn);
  }
}
