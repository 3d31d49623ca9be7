/**
 * Agent presets: which of them a row stands in, and which of them an agent has joined.
 *
 * The harness mounts a preset once, under a scope of its own, and makes the scope of every agent that joins it a child of that.
 * What scopes there are is known to one module of the harness alone. It is looked for where the harness's packages are, and
 * before anything is mounted, so that nobody has to wait to know whose a call is. Without it there are no presets for us.
 */
import { existsSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Context } from '@deepseek-ai/cordis';
import type {} from '@deepseek-ai/dsh-agent-presets';
import type { ScopeKey } from '@deepseek-ai/dsh-scope';

export type { ScopeKey } from '@deepseek-ai/dsh-scope';

type Scopes = typeof import('@deepseek-ai/dsh-scope');

/** By a name that no bundler follows: a copy of it would know nothing of the harness's scopes. */
const MODULE = '@deepseek-ai/dsh-scope';

async function find(): Promise<Partial<Scopes>> {
  try {
    return (await import(MODULE)) as Partial<Scopes>;
  } catch {
    return {};
  }
}

const { scopeOf, scopeChainOf, createScope } = await find();

/** The scope that a context stands in; none for what belongs to the host. */
export function scopeAt(ctx: Context): ScopeKey | undefined {
  return scopeOf?.(ctx);
}

/** The scopes around an agent, its own first, then what it has joined. */
export function scopesAround(agent: Context): readonly ScopeKey[] {
  return scopeChainOf?.(scopeOf?.(agent)) ?? [];
}

/** The preset that an agent has joined. */
export function presetOf(root: Context, agent: Context): string | undefined {
  try {
    return root.get('agentPresets')?.composedPreset(agent);
  } catch {
    return undefined;
  }
}

/** What dsh 0.1 keeps a preset in: a folder with its id for a name and this file in it. */
const COMPOSITION = 'agent.cordis.yml';

/** How often it is asked which preset a row stands in, and for how long, in milliseconds. */
const LOOK_MS = 10;
const PATIENCE_MS = 10_000;

/** The preset that a row stands in, where its place tells. */
export function presetByPlace({ baseUrl }: Context): string | undefined {
  try {
    const folder = baseUrl?.startsWith('file:') ? fileURLToPath(new URL('.', baseUrl)) : undefined;
    return folder !== undefined && existsSync(join(folder, COMPOSITION)) ? basename(folder) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The preset that a row stands in; undefined if nobody tells. 0.2 tells the preset of an agent alone, and only when all rows of the preset
 * are there, which is before any agent can join it.
 */
export async function presetByScope(ctx: Context): Promise<string | undefined> {
  const end = performance.now() + PATIENCE_MS;
  while (ctx.root.get('agentPresets') !== undefined && performance.now() < end) {
    const preset = askAsAgent(ctx);
    if (preset !== undefined) return preset;
    await setTimeout(LOOK_MS, undefined, { ref: false });
  }
  return undefined;
}

/** Joins the preset around a row for a moment, as an agent does, and asks. */
function askAsAgent(ctx: Context): string | undefined {
  const parent = scopeAt(ctx);
  if (parent === undefined || createScope === undefined) return undefined;
  try {
    const scope = createScope(ctx, {}, { parent });
    try {
      return presetOf(ctx.root, scope.ctx);
    } finally {
      void scope.dispose();
    }
  } catch {
    // The row is between two mountings, or gone.
    return undefined;
  }
}
