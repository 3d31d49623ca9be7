/** What a limit counts, as a text and as the words for it. */
import type { Group, Limit, Route } from './api.ts';
import type { Translate } from './words/index.ts';

/** A scope. */
export type Scope =
  | { readonly kind: 'everything' }
  | { readonly kind: 'provider'; readonly provider: string }
  | { readonly kind: 'route'; readonly provider: string; readonly model: string }
  | { readonly kind: 'group'; readonly name: string };

/** What a row limits; nothing where the row does not say. */
export function scopeOfLimit({ provider, model }: Partial<Limit>): Scope | undefined {
  if (typeof provider !== 'string' || typeof model !== 'string') return undefined;
  const [p, m] = [provider.trim(), model.trim()];
  if (p === '' || m === '') return undefined;
  if (p === '*') return m === '*' ? { kind: 'everything' } : undefined;
  return m === '*' ? { kind: 'provider', provider: p } : { kind: 'route', provider: p, model: m };
}

/** What a group limits. */
export function scopeOfGroup({ name }: Partial<Group>): Scope | undefined {
  return typeof name === 'string' && name.trim() !== '' ? { kind: 'group', name: name.trim() } : undefined;
}

/** The ids of a limit's row. */
export function routeOf(scope: Exclude<Scope, { kind: 'group' }>): Route {
  switch (scope.kind) {
    case 'everything':
      return { provider: '*', model: '*' };
    case 'provider':
      return { provider: scope.provider, model: '*' };
    case 'route':
      return { provider: scope.provider, model: scope.model };
  }
}

/** The text by which stats name it: no two scopes share one. */
export function textOf(scope: Scope): string {
  switch (scope.kind) {
    case 'everything':
      return '*/*';
    case 'provider':
      return `${escape(scope.provider)}/*`;
    case 'route':
      return `${escape(scope.provider)}/${escape(scope.model)}`;
    case 'group':
      return `@${escape(scope.name)}`;
  }
}

/** The scope of a text; nothing where it is none. */
export function scopeOfText(text: string): Scope | undefined {
  if (text.startsWith('@')) return { kind: 'group', name: unescape(text.slice(1)) };
  const [provider, model, more] = text.split('/');
  if (provider === undefined || model === undefined || more !== undefined) return undefined;
  if (provider === '*') return model === '*' ? { kind: 'everything' } : undefined;
  if (model === '*') return { kind: 'provider', provider: unescape(provider) };
  return { kind: 'route', provider: unescape(provider), model: unescape(model) };
}

/** What people call it. */
export function nameOf(scope: Scope, t: Translate): string {
  switch (scope.kind) {
    case 'everything':
      return t('scope.everything');
    case 'provider':
      return t('scope.provider', { provider: scope.provider });
    case 'route':
      return `${scope.provider}/${scope.model}`;
    case 'group':
      return t('scope.group', { name: scope.name });
  }
}

/** What people call the scope of a text. */
export function nameOfText(text: string, t: Translate): string {
  const scope = scopeOfText(text);
  return scope === undefined ? text : nameOf(scope, t);
}

function escape(id: string): string {
  if (id === '*') return '%2A';
  return id.replace(/[/%]|^@/gu, (found) => (found === '/' ? '%2F' : found === '%' ? '%25' : '%40'));
}

function unescape(text: string): string {
  return text.replace(/%(2F|25|40|2A)/gu, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}
