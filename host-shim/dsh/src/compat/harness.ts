/**
 * What differs between versions of the harness, and which of them this plugin knows. Everything is found by looking, never
 * by comparing versions, except the question whether this harness is too old at all.
 */
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Context } from '@deepseek-ai/cordis';
import type {} from '@deepseek-ai/dsh-agent';
import type { Session, SessionEvent } from '@deepseek-ai/dsh-session';
import type { PreToolDecision, ToolExecution } from '@deepseek-ai/dsh-tools';
import type { Refusal } from '../../../node/index.d.ts';

/** The oldest versions this plugin works with. */
export const NEEDS = { node: '22.19.0', dsh: '0.1.0-rc.8' } as const;

/** What is too old here, as a sentence; undefined if nothing is. */
export function tooOld(node = process.versions.node, dsh = dshVersion()): string | undefined {
  if (olderThan(node, NEEDS.node)) return `this is Node ${node}, gen-limit needs ${NEEDS.node} or newer`;
  if (dsh !== undefined && olderThan(dsh, NEEDS.dsh)) return `this is dsh ${dsh}, gen-limit needs ${NEEDS.dsh} or newer`;
  return undefined;
}

/** The version of the harness that was started, if its package can be found. */
function dshVersion(): string | undefined {
  try {
    let directory = dirname(realpathSync(process.argv[1] ?? ''));
    for (;;) {
      const version = versionIn(directory);
      const parent = dirname(directory);
      if (version !== undefined || parent === directory) return version;
      directory = parent;
    }
  } catch {
    return undefined;
  }
}

function versionIn(directory: string): string | undefined {
  try {
    const manifest: unknown = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
    if (typeof manifest !== 'object' || manifest === null || !('name' in manifest) || !('version' in manifest)) return undefined;
    return manifest.name === '@deepseek-ai/dsh' && typeof manifest.version === 'string' ? manifest.version : undefined;
  } catch {
    return undefined;
  }
}

/** Semantic versions' order; a pre-release is older than its release. */
export function olderThan(version: string, than: string): boolean {
  const [a, b] = [parts(version), parts(than)];
  for (let index = 0; index < Math.max(a.length, b.length); index += 1) {
    const [x, y] = [a[index], b[index]];
    if (x === y) continue;
    // Where one ends first: `1.0.0` is newer than `1.0.0-rc`, `rc` older than `rc.1`.
    if (x === undefined) return index > 3;
    if (y === undefined) return index <= 3;
    if (typeof x === typeof y) return x < y;
    return typeof x === 'number';
  }
  return false;
}

function parts(version: string): Array<number | string> {
  const [release = '', ...pre] = version.replace(/\+.*$/u, '').split('-');
  const identifiers = pre.length === 0 ? [] : pre.join('-').split('.');
  return [...release.split('.'), ...identifiers].map((part) => (/^\d+$/u.test(part) ? Number(part) : part));
}

/** Which provider and model the child of a spawn will call. */
export interface ChildRoute {
  readonly provider: string;
  readonly model: string;
}

/**
 * A subagent runtime that starts activations gives a child the route its parent called last, unless the tool call names
 * another one whole; an older one gives it the parent agent's own, not the model picked in the UI.
 */
export function childRoute({ agent, arguments: asked }: Readonly<ToolExecution>): ChildRoute | undefined {
  if (agent === undefined) return undefined;
  const own = routeOf(agent.options);
  if (!startsActivations(agent.ctx)) return own;
  return routeOf(asked) ?? routeOf(agent.session.requestHeader()?.config) ?? own;
}

function startsActivations(ctx: Context): boolean {
  const subagents: unknown = ctx.get('subagents');
  return typeof subagents === 'object' && subagents !== null && 'startActivation' in subagents;
}

/** The route that something names, if it names a whole one. */
export function routeOf(named: unknown): ChildRoute | undefined {
  if (typeof named !== 'object' || named === null || !('provider' in named) || !('model' in named)) return undefined;
  const { provider, model } = named;
  const isId = (id: unknown): id is string => typeof id === 'string' && id !== '';
  return isId(provider) && isId(model) ? { provider, model } : undefined;
}

/** What has happened in a session itself, without what a fork inherits from the one it was forked from. */
export function ownEvents(session: Session): readonly SessionEvent[] {
  const newer: { ownEvents?(): readonly SessionEvent[] } = session as object;
  return newer.ownEvents?.() ?? session.events.slice(session.header.seedLength ?? 0);
}

/** A denial that carries a code: as such where the harness has a place for it, and at the head of the reason everywhere. */
export function denied({ code, message }: Pick<Refusal, 'code' | 'message'>): PreToolDecision {
  const decision = { kind: 'deny', reason: `${code}: ${message}`, info: { name: 'GenLimitError', code } } as const;
  return decision;
}

/** A cancellation; to a harness that has no such decision, what has a reason and is no permission is a denial. */
export function cancelled(reason: string): PreToolDecision {
  const decision: { kind: string; reason: string } = { kind: 'cancel', reason };
  return decision as PreToolDecision;
}

/** Whether what others decided leaves nothing to decide: a denial or a cancellation. */
export function isFinal(decision: PreToolDecision): boolean {
  return decision.kind !== 'allow' && decision.kind !== 'ask';
}
