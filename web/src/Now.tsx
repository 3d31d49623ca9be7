/** Who generates and who waits now, why, and about for how long. */
import { memo, useCallback, useEffect, useId, useMemo, useReducer, useRef, useState, type ReactNode } from 'react';
import type { Holder, Refused, Stats, Waiter } from './api.ts';
import { useHold, useSteady } from './hold.ts';
import { Icon } from './Icon.tsx';
import { fate, grouped, lasting, linesOf, reason, routeName, sessionName, startsIn, type Held, type Line } from './lines.ts';
import { stats, useHistory, usePolled } from './live.ts';
import { Sparkline } from './Sparkline.tsx';
import { first, unfolded, type Row } from './steady.ts';
import { Button } from './ui.tsx';
import { about } from './units.ts';
import { counted, ordinal, type Translate, type Word } from './words/index.ts';

/** How many routes are unfolded by themselves. */
const MOST_UNFOLDED = 6;
/** How many of a route's waiters are shown at first, and how many that generate. */
const FEW = 5;

export function Now({ t }: { readonly t: Translate }) {
  const { value, failure } = usePolled(stats);
  const id = useId();
  if (value === undefined) return null;
  return (
    <section className="gl-part gl-now" aria-labelledby={id} data-stale={failure !== undefined || undefined}>
      <h3 id={id}>{t('now.title')}</h3>
      {value.scopes === undefined ? <p className="gl-note">{t('now.unknown')}</p> : <Routes value={value} t={t} />}
      <Totals value={value} t={t} />
    </section>
  );
}

function Routes({ value, t }: { readonly value: Stats; readonly t: Translate }) {
  const history = useHistory();
  const hold = useHold();
  const lines = useMemo(() => linesOf(value), [value]);
  const starts = useMemo(() => startsIn(value), [value]);
  const rows = useSteady(lines, scopeOf, hold.held);
  const { open, turn } = useUnfolded(rows);
  const { holders = [], waiters = [], holdersTotal = holders.length, waitersTotal = waiters.length, credits = 0 } = value;
  const [shown, total] = [holders.length + waiters.length, holdersTotal + waitersTotal];
  const idle = lines.length === 0;
  return (
    <>
      <div className="gl-whole">
        <p className="gl-numbers">{idle ? t('now.idle') : numbers(holdersTotal, waitersTotal, undefined, t)}</p>
        <Sparkline points={history.points()} name={t('now.whole')} t={t} />
      </div>
      {credits > 0 && lines.every(({ numbers }) => (numbers?.credits ?? 0) === 0) && <p className="gl-note">{counted(t, 'now.credits', credits)}</p>}
      {shown < total && <p className="gl-note">{t('now.cut', { shown: grouped(shown), total: grouped(total) })}</p>}
      <div {...hold.props}>
        {rows.length > 0 && (
          <ul className="gl-busy" role="list" aria-label={t('now.routes')}>
            {rows.map(({ key, value, gone }) => {
              const line = gone ? left(value) : value;
              const isOpen = open.get(key) === true;
              return (
                <RouteItem key={key} scope={key} text={gone ? t('now.gone') : textOfLine(line, isOpen, t)} gone={gone} open={isOpen} turn={turn} spark={isOpen && <Sparkline points={history.points(key)} name={routeName(key)} t={t} />}>
                  {isOpen && <People line={line} held={hold.held} starts={starts} t={t} />}
                </RouteItem>
              );
            })}
          </ul>
        )}
      </div>
    </>
  );
}

const scopeOf = ({ scope }: Line): string => scope;

/** A route that is busy no more. */
function left(line: Line): Line {
  return { ...line, active: 0, waiting: 0, holders: [], waiters: [], numbers: undefined };
}

/** Which routes are unfolded, and what turns one over. */
function useUnfolded(rows: ReadonlyArray<Row<Line>>): { readonly open: ReadonlyMap<string, boolean>; readonly turn: (scope: string) => void } {
  const decided = useRef<ReadonlyMap<string, boolean>>(new Map());
  const [, again] = useReducer((count: number) => count + 1, 0);
  const open = unfolded(decided.current, rows.map(({ value }) => value), MOST_UNFOLDED);
  useEffect(() => {
    decided.current = open;
  });
  const turn = useCallback((scope: string) => {
    decided.current = new Map(decided.current).set(scope, decided.current.get(scope) !== true);
    again();
  }, []);
  return { open, turn };
}

/** How many generate and wait. */
function numbers(active: number, waiting: number, max: number | undefined, t: Translate): string {
  const parts = [max === undefined || max < 1 ? t('limits.running', { occupancy: grouped(active) }) : t('limits.occupancy', { occupancy: grouped(active), max: grouped(max) })];
  if (max === 0) parts.push(t('limits.mode.paused'));
  if (waiting > 0) parts.push(counted(t, 'limits.waiting', waiting, { n: grouped(waiting) }));
  return parts.join(' · ');
}

/** A busy route in numbers, with its oldest wait where there is room. */
function textOfLine({ active, waiting, numbers: known }: Line, isOpen: boolean, t: Translate): string {
  const text = numbers(active, waiting, known?.max, t);
  const oldest = known?.oldestWaitMs ?? null;
  return !isOpen || oldest === null ? text : `${text} · ${t('limits.oldest', { time: about(oldest, t) })}`;
}

interface RouteItemProps {
  readonly scope: string;
  readonly text: string;
  readonly gone: boolean;
  readonly open: boolean;
  readonly turn: (scope: string) => void;
  readonly spark: ReactNode;
  readonly children: ReactNode;
}

/** One busy route. A folded one has no children, and is drawn again only when its numbers are others. */
const RouteItem = memo(function RouteItem({ scope, text, gone, open, turn, spark, children }: RouteItemProps) {
  return (
    <li className="gl-route" data-scope={scope} data-gone={gone || undefined}>
      <div className="gl-route-top">
        <button type="button" className="gl-head" aria-expanded={open} onClick={() => turn(scope)}>
          <Icon shape={open ? 'down' : 'right'} />
          <span className="gl-name">{routeName(scope)}</span>
          <span className="gl-numbers">{text}</span>
        </button>
        {spark}
      </div>
      {children}
    </li>
  );
});

interface PeopleProps {
  readonly line: Line;
  readonly held: boolean;
  readonly starts: ReadonlyMap<number, number>;
  readonly t: Translate;
}

/** Who generates on a route, and who waits for it. */
function People({ line, held, starts, t }: PeopleProps) {
  const route = routeName(line.scope);
  const holders = useSteady(line.holders, keyOfHolder, held);
  const waiters = useSteady(line.waiters, keyOfWaiter, held);
  const { credits = 0 } = line.numbers ?? {};
  return (
    <>
      {credits > 0 && <p className="gl-note">{counted(t, 'now.credits', credits)}</p>}
      <Few rows={holders} total={line.active} name={t('now.holders', { route })} t={t}>
        {(row) => <HolderRow key={row.key} {...holderTexts(row, t)} gone={row.gone} />}
      </Few>
      <Few rows={waiters} total={line.waiting} name={t('now.waiters', { route })} ordered t={t}>
        {(row) => <WaiterRow key={row.key} {...waiterTexts(row, line, starts, t)} gone={row.gone} t={t} />}
      </Few>
    </>
  );
}

const keyOfHolder = ({ key }: Held): string => key;
const keyOfWaiter = ({ id }: Waiter): string => String(id);

interface FewProps<T> {
  readonly rows: ReadonlyArray<Row<T>>;
  /** How many there are, listed or not. */
  readonly total: number;
  readonly name: string;
  readonly ordered?: boolean;
  readonly t: Translate;
  readonly children: (row: Row<T>) => JSX.Element;
}

/** The first of a list, and all of it on demand. */
function Few<T>({ rows, total, name, ordered = false, t, children }: FewProps<T>) {
  const [all, setAll] = useState(false);
  if (rows.length === 0) return null;
  const listed = rows.reduce((count, { gone }) => count + Number(!gone), 0);
  const turn = t(all ? 'now.fewer' : 'now.all', { n: grouped(listed) });
  const List = ordered ? 'ol' : 'ul';
  return (
    <>
      <List className="gl-people" role="list" aria-label={name}>{(all ? rows : first(rows, FEW)).map(children)}</List>
      {(listed > FEW || listed < total) && (
        <p className="gl-more">
          {listed > FEW && <Button variant="ghost" aria-expanded={all} aria-label={`${turn}: ${name}`} onClick={() => setAll(!all)}>{turn}</Button>}
          {listed < total && <span className="gl-note">{t('now.cut', { shown: grouped(listed), total: grouped(total) })}</span>}
        </p>
      )}
    </>
  );
}

interface HolderTexts {
  readonly id: string | undefined;
  readonly name: string;
  readonly marks: string;
  readonly time: string;
}

function holderTexts({ value, gone }: Row<Held>, t: Translate): HolderTexts {
  return {
    id: value.session ?? undefined,
    name: sessionName(value, t),
    marks: [...childMark(value, t), ...(value.calls > 1 ? [t('now.calls', { n: value.calls })] : [])].join(' · '),
    time: gone ? t('now.gone') : t('now.for', { time: about(value.heldMs, t) }),
  };
}

function childMark({ parent }: Pick<Holder, 'parent'>, t: Translate): readonly string[] {
  return parent === undefined ? [] : [t('now.subagent')];
}

const HolderRow = memo(function HolderRow({ id, name, marks, time, gone }: HolderTexts & { readonly gone: boolean }) {
  return (
    <li className="gl-person" data-gone={gone || undefined}>
      <span className="gl-place" aria-hidden="true"><span className="gl-dot" /></span>
      <span className="gl-about">
        <span className="gl-who" title={id}>{name}</span>
        {marks !== '' && <span className="gl-mark">{marks}</span>}
        <span className="gl-time">{time}</span>
      </span>
    </li>
  );
});

interface WaiterTexts {
  readonly id: string | undefined;
  readonly place: string;
  readonly name: string;
  readonly mark: string;
  readonly time: string;
  readonly why: string;
  readonly start: string;
}

function waiterTexts({ value, gone }: Row<Waiter>, line: Line, starts: ReadonlyMap<number, number>, t: Translate): WaiterTexts {
  const session = sessionName(value, t);
  const spawn = value.kind === 'spawn';
  const start = gone ? undefined : starts.get(value.id);
  return {
    id: value.session ?? undefined,
    place: gone ? '' : ordinal(t, value.position),
    name: spawn ? t('now.spawn', { session }) : session,
    mark: spawn ? '' : childMark(value, t).join(),
    time: gone ? t(fate(value, line)) : t('now.for', { time: about(value.waitedMs, t) }),
    why: gone ? '' : reason(value, t),
    start: start === undefined ? '' : about(Math.max(1_000, start), t),
  };
}

const WaiterRow = memo(function WaiterRow({ id, place, name, mark, time, why, start, gone, t }: WaiterTexts & { readonly gone: boolean; readonly t: Translate }) {
  return (
    <li className="gl-person" data-gone={gone || undefined}>
      <span className="gl-place">{place}</span>
      <span className="gl-about">
        <span className="gl-who" title={id}>{name}</span>
        {mark !== '' && <span className="gl-mark">{mark}</span>}
        <span className="gl-time">{time}</span>
        {why !== '' && <span className="gl-why">{why}</span>}
      </span>
      {start !== '' && <span className="gl-start">{t('now.estimate', { time: start })}</span>}
    </li>
  );
});

const REFUSED: Readonly<Record<keyof Refused, Word>> = {
  queueFull: 'now.refused.queueFull',
  queueTimeout: 'now.refused.queueTimeout',
  paused: 'now.refused.paused',
  noPoolSeat: 'now.refused.noPoolSeat',
  other: 'now.refused.other',
};

/** The run in numbers. */
function Totals({ value: { now = 0, totals, waitMs }, t }: { readonly value: Stats; readonly t: Translate }) {
  const id = useId();
  if (totals === undefined) return null;
  const { admitted, waited, refused, cancelled, since } = totals;
  const reasons = (Object.keys(REFUSED) as Array<keyof Refused>).filter((why) => refused[why] > 0);
  const of = (why: keyof Refused): string => t(REFUSED[why], { n: grouped(refused[why]) });
  const all = grouped(reasons.reduce((sum, why) => sum + refused[why], 0));
  const facts: ReadonlyArray<readonly [word: Word, text: string]> = [
    ['now.admitted', grouped(admitted)],
    ['now.waited', grouped(waited)],
    ['now.refused', reasons.length === 0 ? all : `${all} (${reasons.map(of).join(', ')})`],
    ['now.cancelled', grouped(cancelled)],
    ...(waitMs === null || waitMs === undefined ? [] : [['now.p50', lasting(waitMs.p50, t)], ['now.p95', lasting(waitMs.p95, t)]] as const),
  ];
  return (
    <div className="gl-totals">
      <h4 id={id}>{t('now.totals.of', { time: about(Math.max(0, now - since), t) })}</h4>
      <dl aria-labelledby={id}>{facts.map(([word, text]) => <div key={word}><dt>{t(word)}</dt><dd>{text}</dd></div>)}</dl>
    </div>
  );
}
