/**
 * The life of a row.
 *
 * Calls and lines belong to the row in the harness's configuration, not to one mounting of the plugin: restarting or
 * replacing the plugin must neither lose a count nor let the line through. So what is alive is kept by the row's own object,
 * on `globalThis`, where a new copy of this module finds it too; and it listens at the root of the harness, so that not even
 * a call in the few milliseconds between two mountings passes unseen.
 *
 * | what happens | what becomes of those who wait |
 * |---|---|
 * | the row is edited | they go on waiting under the new limits |
 * | restarted, replaced, without a service it needs for a while | they go on waiting |
 * | disabled, removed | they proceed: no plugin, no limit |
 * | the harness shuts down | they are cancelled, and none reaches a backend |
 *
 * The harness does not say which of these a disposal is, so we look again while it can still be any. A fibre that keeps its
 * number mounts again by itself, whenever that is. What replaces one that has lost it comes within 250 ms or not at all.
 */
import type { Context } from '@deepseek-ai/cordis';
import type { Entry } from '@deepseek-ai/cordis-plugin-loader';
import type { Gate } from './gate.ts';
import { reporter } from './report.ts';

/** Changes when `Living` does, so that copies of this module that do not fit each other keep apart. */
const ROWS = Symbol.for('@creait/dsh-gen-limit.rows.2');

/** `FiberState.ACTIVE`; a const enum of the harness, which type stripping cannot import. */
export const ACTIVE = 2;

/** How long a disposal may turn out to be the first half of a replacement, and how often we look, in milliseconds. */
const GRACE_MS = 250;
const LOOK_MS = 10;

/** What lives as long as its row. */
export interface Living {
  readonly gate: Gate;
  /** A new mounting takes over. */
  adopt(ctx: Context, config: unknown): void;
  /** The row is gone. */
  stop(): void;
}

/** With the mountings that are on the row: one, but for a module that mounts us more than once. */
type Kept = Living & { mounted?: Set<Context>; watch?: () => void };

function rows(): WeakMap<object, Kept> {
  const holder = globalThis as { [ROWS]?: WeakMap<object, Kept> };
  return (holder[ROWS] ??= new WeakMap());
}

/** The row a context belongs to: the loader's entry, or without a loader the fibre itself. */
function rowOf(ctx: Context): object {
  return ctx.fiber.entry ?? ctx.fiber;
}

/** Puts what lives on a row under this mounting, making it if there is none. */
export function settle(ctx: Context, config: unknown, make: () => Living): void {
  const row = rowOf(ctx);
  let living = rows().get(row);
  if (living === undefined) rows().set(row, (living = make()));
  living.watch?.();
  const mounted = (living.mounted ??= new Set());
  mounted.add(ctx);
  if (mounted.size > 1) reporter(ctx.root)('warn', 'mounted more than once on one row: the configuration that comes last is in force for all');
  living.adopt(ctx, config);
}

/** This mounting is disposed of. */
export function leave(ctx: Context): void {
  const row = rowOf(ctx);
  const living = rows().get(row);
  if (living === undefined) return;
  living.mounted?.delete(ctx);
  if (living.mounted?.size) return;
  const { entry } = ctx.fiber;
  let watching = true;
  let deadline = Infinity;
  const look = (): void => {
    if (!watching) return;
    const now = performance.now();
    if (ctx.fiber.uid === null) deadline = Math.min(deadline, now + GRACE_MS);
    const end = fate(ctx, entry, now >= deadline);
    if (end === 'unknown') return;
    watching = false;
    living.watch?.();
    rows().delete(row);
    if (end === 'shut down') living.gate.cancel();
    else living.gate.release();
    living.stop();
  };
  look();
  if (!watching) return;
  const timer = setInterval(look, LOOK_MS);
  // Who waits for a service to come back is no reason for a process to stay.
  if (ctx.fiber.uid !== null) timer.unref();
  // A harness that shuts down meanwhile is so only for a moment, and tells it to what its root owns.
  const forget = ctx.root.effect(() => look, 'gen-limit row');
  living.watch = () => {
    watching = false;
    delete living.watch;
    clearInterval(timer);
    void forget();
  };
}

/** Whether the whole harness is on its way out. */
export function isEnding(root: Context): boolean {
  return endingOf(root)();
}

/** The same for whoever asks for every call: the way to the root's fibre is a proxy's, and is gone once. */
export function endingOf({ fiber }: Context): () => boolean {
  return () => fiber.state !== ACTIVE;
}

/** Why a mounting was disposed of, as far as it can be told. */
function fate(ctx: Context, entry: Entry | undefined, late: boolean): 'shut down' | 'gone' | 'unknown' {
  if (isEnding(ctx.root)) return 'shut down';
  if (ctx.fiber.uid !== null) return 'unknown';
  if (entry === undefined || entry.disabled || entry.parent.tree.store[entry.options.id] !== entry) return 'gone';
  return late ? 'gone' : 'unknown';
}
