/** What a person has to know before anything else: what does not work, and what to do. */
import type { ReactNode } from 'react';
import type { Catalog, Host, Section, Stats, Unavailable } from './api.ts';
import { rowPath, rowsOf, type Edit } from './edits.ts';
import { edits, stats as asked } from './live.ts';
import { routeInUse } from './offers.ts';
import type { Polled } from './poller.ts';
import { nameOf, routeOf, textOf } from './scopes.ts';
import { Button, passOn } from './ui.tsx';
import { about } from './units.ts';
import type { Translate } from './words/index.ts';

interface StatesProps {
  readonly config: Polled<Section | Unavailable>;
  readonly stats: Polled<Stats>;
  readonly catalog: Polled<Catalog>;
  /** The harness's own default model, if it tells. */
  readonly standard: { provider?: unknown; model?: unknown } | undefined;
  readonly t: Translate;
}

export function States({ config, stats, catalog, standard, t }: StatesProps) {
  const section = config.value?.status === 'ok' ? config.value : undefined;
  return (
    <>
      <Unreachable config={config} stats={stats} t={t} />
      {stats.value !== undefined && <Component host={stats.value.host} t={t} />}
      {stats.value !== undefined && <Plugins host={stats.value.host} t={t} />}
      {config.value?.status === 'unavailable' && <Banner kind="warn">{t('state.unavailable')}</Banner>}
      {section !== undefined && !section.writable && <Banner kind="quiet">{t('state.readOnly')}</Banner>}
      {section !== undefined && section.problems.length > 0 && <Problems section={section} t={t} />}
      {section !== undefined && config.failure === undefined && isInactive(section) && <Inactive section={section} stats={stats.value} catalog={catalog.value} standard={standard} t={t} />}
    </>
  );
}

/** Whether nothing is limited. */
export function isInactive({ value, problems }: Section): boolean {
  return problems.length === 0 && rowsOf('limits', value).length === 0 && rowsOf('groups', value).length === 0;
}

interface BannerProps {
  readonly kind: 'error' | 'warn' | 'quiet';
  readonly children: ReactNode;
}

function Banner({ kind, children }: BannerProps) {
  return <div className="gl-banner" data-kind={kind} role={kind === 'error' ? 'alert' : 'status'}>{children}</div>;
}

/** Nobody answers, or with a failure; or the settings alone cannot be read. */
function Unreachable({ config, stats, t }: Pick<StatesProps, 'config' | 'stats' | 't'>) {
  if (stats.failure === undefined) {
    // Without a limiter nobody answers for the settings; that is told already.
    if (config.failure === undefined || stats.value?.host.state !== 'running') return null;
    return <Banner kind="error">{t('state.unread', { error: config.failure.message })}</Banner>;
  }
  return (
    <>
      <Banner kind="error">{t('state.unreachable', { error: stats.failure.message })}</Banner>
      {/* Beside what is announced, since it changes each second. */}
      {asked.answeredAt !== undefined && <p className="gl-note">{t('state.stale', { time: about(Date.now() - asked.answeredAt, t) })}</p>}
    </>
  );
}

/** How the component does. */
function Component({ host, t }: { readonly host: Host; readonly t: Translate }) {
  const reason = host.reason ?? host.lastError ?? '';
  const restarts = host.restarts ?? 0;
  switch (host.state) {
    case 'failed-open':
      return <Banner kind="error">{t('state.open', { reason })}</Banner>;
    case 'failed-closed':
      return <Banner kind="error">{t('state.closed', { reason })}</Banner>;
    case 'starting':
      return <Banner kind="quiet">{t('state.starting')}</Banner>;
    case 'running':
      return restarts === 0 ? null : <Banner kind="warn">{t('state.restarted', { n: restarts, reason })}</Banner>;
  }
}

/** What was dropped in: what is not used of it, what has failed, and who waits there and so in none of the lines below. */
function Plugins({ host: { plugins = [], refused = [] }, t }: { readonly host: Host; readonly t: Translate }) {
  const failed = plugins.filter(({ state }) => state !== 'running');
  return (
    <>
      {refused.length > 0 && <Banner kind="warn"><p>{t('state.refused')}</p><ul>{refused.map(({ reason }) => <li key={reason}>{reason}</li>)}</ul></Banner>}
      {failed.map(({ name, lastError }) => <Banner key={name} kind="warn">{t('state.plugin', { name, reason: lastError })}</Banner>)}
      {plugins.map(({ name, waiting }) => waiting > 0 && <Banner key={name} kind="quiet">{t('state.plugin.waits', { name, n: waiting })}</Banner>)}
    </>
  );
}

/** What is stored and not valid. What belongs to a row or a field is told there. */
function Problems({ section, t }: { readonly section: Section; readonly t: Translate }) {
  const invalid = new Set(section.problems.map(({ path }) => rowPath(path)));
  const bad: Edit[] = (['limits', 'groups'] as const).flatMap((list) =>
    rowsOf(list, section.value)
      .filter(({ index }) => invalid.has(`${list}[${index}]`))
      .map(({ key, row }): Edit => ({ in: list, key, seen: row, want: undefined })));
  return (
    <Banner kind="error">
      <p>{t(section.inForce ? 'state.partly' : 'state.notInForce')}</p>
      <ul>{section.problems.map(({ path, message }) => <li key={path}>{path === '' ? message : `${path}: ${message}`}</li>)}</ul>
      {section.writable && bad.length > 0 && <Button onClick={(event) => { passOn(event); edits.submitAll(bad); }}>{t('state.repair')}</Button>}
    </Banner>
  );
}

interface InactiveProps extends Pick<StatesProps, 'standard' | 't'> {
  readonly section: Section;
  readonly stats: Stats | undefined;
  readonly catalog: Catalog | undefined;
}

function Inactive({ section, stats, catalog, standard, t }: InactiveProps) {
  const route = routeInUse(stats, standard, catalog);
  return (
    <Banner kind="quiet">
      <p>{t('state.inactive')}</p>
      {route !== undefined && (
        <Button
          variant="primary"
          disabled={!section.writable}
          onClick={(event) => {
            passOn(event);
            edits.submit({ in: 'limits', key: textOf(route), seen: undefined, want: { ...routeOf(route), max: 1 } });
          }}
        >
          {t('state.inactive.add', { route: nameOf(route, t) })}
        </Button>
      )}
    </Banner>
  );
}
