/** What can be limited, as the harness's catalog has it. */
import type { Catalog, Stats } from './api.ts';
import type { Option } from './Picker.tsx';
import { nameOf, textOf, type Scope } from './scopes.ts';
import type { Translate } from './words/index.ts';

type Route = Extract<Scope, { kind: 'route' }>;
type Single = Exclude<Scope, { kind: 'group' }>;

/** Everything, then each provider with its models. */
export function optionsOf(catalog: Catalog | undefined, t: Translate): ReadonlyArray<Option<Single>> {
  const providers = catalog?.providers ?? [];
  return [
    optionOf({ kind: 'everything' }, t),
    ...providers.flatMap(({ id: provider, name, models }) => [
      { ...optionOf({ kind: 'provider', provider }, t), ...also(name, provider) },
      ...models.map(({ id: model, name }) => ({ ...optionOf({ kind: 'route', provider, model }, t), ...also(name, model) })),
    ]),
  ];
}

export function optionOf(scope: Single, t: Translate): Option<Single> {
  return { key: textOf(scope), text: nameOf(scope, t), value: scope };
}

function also(name: string, id: string): { also?: string } {
  return name === id || name === '' ? {} : { also: name };
}

/** The route that a person writes as `provider/model`; `*` as model is all of the provider's. */
export function routeOfText(text: string): Single | undefined {
  const at = text.indexOf('/');
  if (at < 1) return undefined;
  const [provider, model] = [text.slice(0, at).trim(), text.slice(at + 1).trim()];
  if (provider === '' || model === '' || provider === '*') return undefined;
  return model === '*' ? { kind: 'provider', provider } : { kind: 'route', provider, model };
}

/** Whether the catalog has it, or cannot say that it does not. */
export function isOffered(scope: Scope, catalog: Catalog | undefined): boolean {
  if (catalog === undefined || catalog.error !== undefined || scope.kind === 'everything' || scope.kind === 'group') return true;
  const provider = catalog.providers.find(({ id }) => id === scope.provider);
  if (provider === undefined) return false;
  return scope.kind === 'provider' || provider.error !== undefined || provider.models.some(({ id }) => id === scope.model);
}

/** The route to begin with: the busiest one, else the harness's default, else the first that is offered. */
export function routeInUse(stats: Stats | undefined, standard: { provider?: unknown; model?: unknown } | undefined, catalog: Catalog | undefined): Route | undefined {
  const busiest = (stats?.entries ?? []).toSorted((a, b) => b.active + b.waiting - a.active - a.waiting)[0];
  if (busiest !== undefined) return { kind: 'route', provider: busiest.provider, model: busiest.model };
  const { provider, model } = standard ?? {};
  if (typeof provider === 'string' && typeof model === 'string') return { kind: 'route', provider, model };
  for (const { id, models } of catalog?.providers ?? []) {
    if (models[0] !== undefined) return { kind: 'route', provider: id, model: models[0].id };
  }
  return undefined;
}
