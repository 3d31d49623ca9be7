/** How long one may wait, how many may, and what else there is to turn. */
import { memo, useId, type ReactNode } from 'react';
import type { Config, Section } from './api.ts';
import { Choice } from './Choice.tsx';
import { placeOf, type Field } from './edits.ts';
import { edits, usePending } from './live.ts';
import { Numeral } from './Numeral.tsx';
import { exactly, integer, milliseconds } from './units.ts';
import { Unsaved } from './Unsaved.tsx';
import type { Translate, Word } from './words/index.ts';
import { Wrong } from './Wrong.tsx';

/** What holds where nothing is set. */
const STANDARD = {
  queueTimeoutMs: 120_000,
  maxQueued: 64,
  maxWaiting: 50_000,
  countBy: 'session',
  headStart: 0,
  maxOvertakes: 64,
  spawnTools: ['subagent', 'subagent_fork'],
  spawnGraceMs: 10_000,
  onFailure: 'open',
  maxRestarts: 5,
} as const satisfies Config;

const MOST = 4_294_967_295;

interface QueueingProps {
  readonly section: Section;
  readonly disabled: boolean;
  readonly t: Translate;
}

export const Queueing = memo(function Queueing({ section, disabled, t }: QueueingProps) {
  const pending = usePending();
  const duration = (ms: unknown): string => (Number.isInteger(ms) && Number(ms) >= 0 ? exactly(Number(ms), t) : said(ms));

  const row = <F extends Field>(field: F, title: Word, hint: string, say: (value: unknown) => string, control: (value: Config[F], finish: (value: unknown, seen?: unknown) => void) => ReactNode) => {
    const place = placeOf({ in: 'fields', key: field });
    const found = pending.get(place);
    const stored = section.value[field];
    const value = (found === undefined ? stored : found.edit.want) ?? STANDARD[field];
    const finish = (want: unknown, seen: unknown = value): void => {
      // Nothing is stored where the standard holds.
      edits.submit({ in: 'fields', key: field, seen: stored === undefined ? undefined : seen, want });
    };
    const problems = section.problems.filter(({ path }) => path === field || path.startsWith(`${field}[`));
    return (
      <div className="gl-row" key={field}>
        <div className="gl-line">
          <div className="gl-text">
            <span className="gl-name">{t(title)}</span>
            <span className="gl-hint">{hint}</span>
          </div>
          <div className="gl-controls">{control(value as Config[F], finish)}</div>
        </div>
        {problems.map(({ path, message }) => <Wrong key={path}>{path}: {message}</Wrong>)}
        <Unsaved pending={found} say={say} t={t} />
      </div>
    );
  };

  const number = (field: Field, title: Word, hint: string, least: number, most: number): ReactNode =>
    row(field, title, hint, said, (value, finish) => (
      <Numeral<unknown>
        label={t(title)}
        value={value}
        write={said}
        read={(text) => integer(text, least, most)}
        wrong={t('limits.max.wrong', { least, most })}
        unsaved={t('limits.max.unsaved')}
        disabled={disabled}
        onFinish={finish}
      />
    ));

  const time = (field: Field, title: Word, hint: string): ReactNode =>
    row(field, title, hint, duration, (value, finish) => (
      <Numeral<unknown>
        label={t(title)}
        value={value}
        write={duration}
        read={milliseconds}
        wrong={t('queueing.timeout.wrong')}
        unsaved={t('limits.max.unsaved')}
        wide
        disabled={disabled}
        onFinish={finish}
      />
    ));

  const word = <K extends string>(field: Field, title: Word, hint: Word, words: Readonly<Record<K, Word>>): ReactNode => {
    const options = (Object.keys(words) as K[]).map((key) => ({ key, text: t(words[key]) }));
    const say = (value: unknown): string => options.find(({ key }) => key === value)?.text ?? said(value);
    return row(field, title, t(hint), say, (value, finish) => (
      <Choice<K> label={t(title)} value={value as unknown as K} options={options} disabled={disabled} onChoose={(key) => finish(key)} />
    ));
  };
  const id = useId();

  return (
    <section className="gl-part" aria-labelledby={id}>
      <h3 id={id}>{t('queueing.title')}</h3>
      {time('queueTimeoutMs', 'queueing.timeout', t('queueing.timeout.hint', { standard: exactly(STANDARD.queueTimeoutMs, t) }))}
      {number('maxQueued', 'queueing.queued', t('queueing.queued.hint', { standard: STANDARD.maxQueued }), 0, 200_000)}
      <details className="gl-advanced">
        <summary>{t('queueing.advanced')}</summary>
        {number('maxWaiting', 'queueing.waiting', t('queueing.waiting.hint'), 0, 200_000)}
        {word('countBy', 'queueing.countBy', 'queueing.countBy.hint', { session: 'queueing.countBy.session', stream: 'queueing.countBy.stream' })}
        {number('headStart', 'queueing.headStart', t('queueing.headStart.hint'), 0, MOST)}
        {number('maxOvertakes', 'queueing.overtakes', t('queueing.overtakes.hint'), 0, MOST)}
        {row('spawnTools', 'queueing.tools', t('queueing.tools.hint'), list, (value, finish) => (
          <Numeral<unknown>
            label={t('queueing.tools')}
            value={value}
            write={list}
            read={(text) => text.split(/[,，]/u).map((name) => name.trim()).filter(Boolean)}
            wrong=""
            unsaved={t('limits.max.unsaved')}
            wide
            disabled={disabled}
            onFinish={finish}
          />
        ))}
        {time('spawnGraceMs', 'queueing.grace', t('queueing.grace.hint'))}
        {word('onFailure', 'queueing.failure', 'queueing.failure.hint', { open: 'queueing.failure.open', closed: 'queueing.failure.closed' })}
        {number('maxRestarts', 'queueing.restarts', t('queueing.restarts.hint'), 0, MOST)}
      </details>
    </section>
  );
});

/** What a person stored, whatever it is. */
function said(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : JSON.stringify(value) ?? '';
}

function list(value: unknown): string {
  return Array.isArray(value) ? value.join(', ') : said(value);
}
