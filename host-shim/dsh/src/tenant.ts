/**
 * What makes a row a tenant: which calls it names, what it is called, where its routes are, and what of its configuration is
 * not its own.
 *
 * # Which calls
 *
 * A row owns the calls that fulfil all of its conditions. One comes from where it stands, the others from `tenant` in its
 * configuration:
 *
 * | condition | fulfilled by the calls of |
 * |---|---|
 * | it stands in an agent preset | agents that have joined that preset, as it was when they did |
 * | `session` | that session and its descendants |
 * | `workspace` | sessions that were opened in that folder or inside it; what was opened without a folder is where its parent is |
 * | `preset` | agents that have joined the preset with that id |
 *
 * Where several rows name a call, the one that names it most closely owns it: conditions count in the order of the table, a nearer
 * scope or session before a farther one, a deeper folder before the one around it. So every call has one owner at most, and
 * which it is does not depend on the order of rows, except among rows whose conditions are the same.
 */
import { realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve, sep } from 'node:path';
import type { Context } from '@deepseek-ai/cordis';
import type { Agent } from '@deepseek-ai/dsh-agent';
import type { Session, SessionId } from '@deepseek-ai/dsh-session';
import { isObject } from './compat/legacy.ts';
import { presetOf, scopesAround, type ScopeKey } from './compat/scope.ts';

/** What a row names of the calls it wants, and what it wants to be called. */
export interface Selector {
  readonly name?: string;
  readonly preset?: string;
  readonly workspace?: string;
  readonly session?: string;
}

const KEYS = ['name', 'preset', 'workspace', 'session'] as const;

/** What a configuration says of the tenant; undefined if that cannot be read, for then nobody knows what it wants. */
export function selectorOf(config: unknown): Selector | undefined {
  const said: unknown = isObject(config) && Object.hasOwn(config, 'tenant') ? Reflect.get(config, 'tenant') : {};
  if (!isObject(said)) return undefined;
  const selector: { -readonly [key in keyof Selector]: string } = {};
  for (const [key, value] of Object.entries(said)) {
    const known = KEYS.find((one) => one === key);
    if (known === undefined || typeof value !== 'string' || value === '') return undefined;
    selector[known] = known === 'workspace' ? real(value) : value;
  }
  return selector;
}

/** Whether it names nothing, and so stands for the rest. */
export function isOpen({ preset, workspace, session }: Selector): boolean {
  return preset === undefined && workspace === undefined && session === undefined;
}

/** A folder by the name that it has without links, if it is there. */
function real(folder: string): string {
  const whole = resolve(folder.replace(/^~(?=$|[/\\])/u, () => homedir()));
  try {
    return realpathSync(whole);
  } catch {
    return whole;
  }
}

/** The folders of sessions: a header does not change, and to look at the disk for each call would be much. */
const folders = new WeakMap<Session, string>();

function folderOf(session: Session): string | undefined {
  const { cwd } = session.header;
  if (cwd === undefined) return undefined;
  let folder = folders.get(session);
  if (folder === undefined) folders.set(session, (folder = real(cwd)));
  return folder;
}

/** Where a call comes from. Each thing is looked up when a row asks for it, once. */
export class Origin {
  readonly #root: Context;
  readonly #agent: Agent | undefined;
  readonly #id: string | undefined;
  #line: readonly Member[] | undefined;
  #scopes: readonly ScopeKey[] | undefined;
  #folder: string | null | undefined;
  #preset: string | null | undefined;

  /** The session that a call names, or the agent that makes it; a call may have neither. */
  constructor(root: Context, session: string | undefined, agent?: Agent) {
    this.#root = root;
    this.#agent = agent ?? (session === undefined ? initiator(root) : undefined);
    this.#id = session ?? this.#agent?.id;
  }

  /** The session and its ancestors, nearest first; of one that is not there any more only its id is known. */
  get line(): readonly Member[] {
    return (this.#line ??= [...ancestry(this.#root, this.#id)]);
  }

  /** The scopes around its agent, or around the nearest ancestor that has one. */
  get scopes(): readonly ScopeKey[] {
    return (this.#scopes ??= this.#agentCtx === undefined ? [] : scopesAround(this.#agentCtx));
  }

  /** The folder it was opened in. */
  get folder(): string | undefined {
    if (this.#folder === undefined) this.#folder = first(this.line, ({ session }) => session && folderOf(session)) ?? null;
    return this.#folder ?? undefined;
  }

  /** The preset it runs on. */
  get preset(): string | undefined {
    if (this.#preset === undefined) {
      const joined = this.#agentCtx === undefined ? undefined : presetOf(this.#root, this.#agentCtx);
      this.#preset = joined ?? first(this.line, ({ session }) => session?.header.agentPreset) ?? null;
    }
    return this.#preset ?? undefined;
  }

  get #agentCtx(): Context | undefined {
    if (this.#agent !== undefined) return this.#agent.ctx;
    const agents = this.#root.get('agents');
    return first(this.line, ({ id }) => agents?.get(id as SessionId))?.ctx;
  }
}

/** One of a line of ancestors. */
interface Member {
  readonly id: string;
  readonly session: Session | undefined;
}

/** A session and its ancestors, nearest first. */
export function* ancestry(root: Context, id: string | undefined): Generator<Member> {
  const sessions = root.get('sessions');
  const met = new Set<string>();
  for (let next = id; next !== undefined && !met.has(next); ) {
    const session = sessions?.get(next as SessionId);
    met.add(next);
    yield { id: next, session };
    next = session?.header.parentSession;
  }
}

function first<T, U>(items: readonly T[], pick: (item: T) => U | undefined): U | undefined {
  for (const item of items) {
    const picked = pick(item);
    if (picked !== undefined) return picked;
  }
  return undefined;
}

/** Who makes a call that names no session. */
function initiator(root: Context): Agent | undefined {
  try {
    return root.get('agents')?.currentInitiator();
  } catch {
    // On its way out it answers nobody.
    return undefined;
  }
}

/** How closely a selector names a call, to be compared by `isCloser`; undefined if it does not. */
export type Closeness = readonly [session: number, folder: number, preset: number];

export function closeness({ session, workspace, preset }: Selector, origin: Origin): Closeness | undefined {
  let generations = Infinity;
  if (session !== undefined) {
    generations = origin.line.findIndex(({ id }) => id === session);
    if (generations < 0) return undefined;
  }
  if (workspace !== undefined && !isInside(origin.folder, workspace)) return undefined;
  if (preset !== undefined && origin.preset !== preset) return undefined;
  return [-generations, workspace?.length ?? -1, preset === undefined ? 0 : 1];
}

export function isCloser(one: Closeness, than: Closeness): boolean {
  const at = one.findIndex((value, index) => value !== than[index]);
  return at >= 0 && (one[at] ?? 0) > (than[at] ?? 0);
}

function isInside(folder: string | undefined, around: string): boolean {
  if (folder === undefined) return false;
  return folder === around || folder.startsWith(around.endsWith(sep) ? around : `${around}${sep}`);
}

/** A name that can be part of a path. */
export function segment(name: string): string {
  const whole = name.toWellFormed();
  // A dot is a place of its own in a path, however it is written.
  return /^\.{0,2}$/u.test(whole) ? 'tenant' : whole;
}

/** Where a path of a component's is served for a tenant that the paths themselves do not belong to. */
export function pathOf(path: string, name: string): string {
  const [, before, rest] = /^(\/api\/[^/]+)(\/.*)?$/u.exec(path) ?? [undefined, path, ''];
  return `${before}/t/${encodeURIComponent(name)}${rest ?? ''}`;
}

/**
 * A configuration with the ceilings of the host's row, and no others: a tenant does not set limits over its neighbours. What is no
 * configuration at all is left for whoever judges it.
 */
export function withCeilings(text: string, ceilings: unknown): string {
  const config = parsed(text);
  if (!isObject(config)) return text;
  const { ceilings: own, ...rest } = config as { ceilings?: unknown };
  if (ceilings === undefined) return own === undefined ? text : JSON.stringify(rest);
  return JSON.stringify({ ...rest, ceilings });
}

/** The ceilings that a configuration states; undefined if it states none. */
export function ceilingsOf(config: unknown): unknown {
  return isObject(config) && Object.hasOwn(config, 'ceilings') ? Reflect.get(config, 'ceilings') : undefined;
}

/** What a text says, if it is JSON. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The sessions that a tenant may hear of: those that have called through it, their descendants and their ancestors. */
export class Acquaintances {
  readonly #root: Context;
  readonly #called = new WeakSet<Session>();
  readonly #above = new WeakSet<Session>();

  constructor(root: Context) {
    this.#root = root;
  }

  /** A session calls. */
  add(session: Session | undefined): void {
    if (session === undefined || this.#called.has(session)) return;
    this.#called.add(session);
    for (const { session: ancestor } of ancestry(this.#root, session.header.parentSession)) {
      if (ancestor !== undefined) this.#above.add(ancestor);
    }
  }

  has(session: Session): boolean {
    if (this.#above.has(session)) return true;
    for (const member of ancestry(this.#root, session.id)) {
      if (member.session !== undefined && this.#called.has(member.session)) return true;
    }
    return false;
  }
}
