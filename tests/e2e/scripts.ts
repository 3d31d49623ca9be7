/** Scripts for the model server that more than one test, or the demo, needs. */
import type { Arrival, Reply, Script, ToolCall } from './model-server.ts';

/** Tag of the session a user starts. */
export const ROOT = '00';

/** Tag of the n-th child, counted from one. */
export function tag(n: number): string {
  return String(n).padStart(2, '0');
}

/** The call that spawns the session tagged `session`. */
export function spawn(session: string, tool: 'subagent' | 'subagent_fork' = 'subagent', background = false): ToolCall {
  return {
    name: tool,
    arguments: { description: `child ${session}`, prompt: `[s:${session}] work`, run_in_background: background },
  };
}

/** A fan-out: the root answers its first turn with `n` parallel spawns, each child with one stream. */
export interface FanOut {
  readonly n: number;
  readonly tool?: 'subagent' | 'subagent_fork';
  readonly background?: boolean;
  /** How long each child's stream stays open. */
  readonly holdMs?: number;
  /** Each child's stream stays open until this settles, too. */
  readonly until?: Promise<unknown>;
  /** How long the title's stream stays open. */
  readonly titleMs?: number;
  /** The title's stream stays open until this settles, too. */
  readonly titleUntil?: Promise<unknown>;
}

/** Answers of a fan-out; `child` may overrule what a child says. */
export function fanOut(plan: FanOut, child: (arrival: Arrival) => Reply | undefined = () => undefined): Script {
  const { holdMs = 250, until, titleMs = 0, titleUntil } = plan;
  const title: Reply = { text: 'A title', holdMs: titleMs, ...(titleUntil && { until: titleUntil }) };
  const work: Reply = { text: 'done', holdMs, ...(until && { until }) };
  return (arrival) => {
    if (arrival.purpose === 'title') return title;
    if (arrival.session !== ROOT) return child(arrival) ?? work;
    if (arrival.delegated) return { text: 'all done' };
    return {
      calls: Array.from({ length: plan.n }, (_, index) => spawn(tag(index + 1), plan.tool, plan.background)),
    };
  };
}

/** Tags of a fan-out's children. */
export function children(n: number): string[] {
  return Array.from({ length: n }, (_, index) => tag(index + 1));
}

/** A promise with its handle, to hold streams open until a test lets them go. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

/** A closed gate. */
export function gate(): Gate {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
