/** The limits, one row each, with what goes on there now. */
import { memo, useCallback, useId, useReducer, useRef, useState } from 'react';
import type { Catalog, Group, Limit, Problem, Route, Section } from './api.ts';
import { Choice } from './Choice.tsx';
import { NONE, placeOf, problemsAt, rowsOf, type List, type Pending } from './edits.ts';
import { grouped } from './lines.ts';
import { catalog, edits, usePending, usePolled, useScope } from './live.ts';
import { Meter } from './Meter.tsx';
import { Numeral } from './Numeral.tsx';
import { recall, remember } from './paused.ts';
import { Picker } from './Picker.tsx';
import { isOffered, optionOf, optionsOf, routeOfText } from './offers.ts';
import { nameOf, routeOf, scopeOfGroup, scopeOfLimit, textOf, type Scope } from './scopes.ts';
import { Button, Input, keyOf, passOn } from './ui.tsx';
import { about, integer } from './units.ts';
import { Unsaved } from './Unsaved.tsx';
import { counted, type Translate, type Word } from './words/index.ts';
import { Wrong } from './Wrong.tsx';

const MOST = 4_294_967_295;
const BOUNDS = { least: 1, most: MOST };

type Mode = 'limited' | 'unlimited' | 'paused';

const MODES: ReadonlyArray<readonly [Mode, Word]> = [
  ['limited', 'limits.mode.limited'],
  ['unlimited', 'limits.mode.unlimited'],
  ['paused', 'limits.mode.paused'],
];

export const Limits = memo(function Limits({ section, disabled, t }: { readonly section: Section; readonly disabled: boolean; readonly t: Translate }) {
  const { value: offers, failure } = usePolled(catalog);
  const pending = usePending();
  const limits = shown('limits', section, pending);
  const groups = shown('groups', section, pending);
  /** What is being written in stays, whoever removes it meanwhile. */
  const [written, setWritten] = useState<readonly Shown[]>([]);
  const rows = [...limits, ...groups];
  rows.push(...written.filter((one) => !rows.some(isAt(one))));
  const onDraft = useCallback((row: Shown, writing: boolean) => setWritten((all) => [...all.filter((one) => !isAt(row)(one)), ...(writing ? [row] : [])]), []);
  const id = useId();
  return (
    <section className="gl-part" aria-labelledby={id}>
      <h3 id={id}>{t('limits.title')}</h3>
      <ul className="gl-rows" aria-labelledby={id}>
        {rows.map(({ list, key, row, gone, problems }) => (
          <LimitRow
            key={placeOf({ in: list, key })}
            list={list}
            rowKey={key}
            row={row}
            gone={gone}
            problems={problems}
            pending={pending.get(placeOf({ in: list, key }))}
            written={written.some(isAt({ list, key }))}
            onDraft={onDraft}
            offers={offers}
            disabled={disabled}
            t={t}
          />
        ))}
      </ul>
      <Add taken={new Set(rows.filter(({ gone }) => !gone).map(({ key }) => key))} offers={offers} disabled={disabled} t={t} />
      {failure !== undefined && <Wrong role="alert">{t('limits.catalogFailed', { error: failure.message })}</Wrong>}
      {offers?.error !== undefined && <Wrong>{t('limits.catalogFailed', { error: offers.error })}</Wrong>}
      {offers?.providers.map(({ id, error }) => error !== undefined && (
        <p key={id} className="gl-note">{t('limits.providerFailed', { provider: id, error })}</p>
      ))}
    </section>
  );
});

interface Shown {
  readonly list: List;
  readonly key: string;
  readonly row: Limit | Group;
  /** It is being removed. */
  readonly gone: boolean;
  readonly problems: readonly Problem[];
}

/** Tells the row of a place. */
function isAt({ list, key }: Pick<Shown, 'list' | 'key'>): (other: Shown) => boolean {
  return (other) => other.list === list && other.key === key;
}

/** What a person is to see: what is stored, as it will be once all edits are. */
function shown(list: List, section: Section, pending: ReadonlyMap<string, Pending>): readonly Shown[] {
  const rows = rowsOf(list, section.value);
  const edited = rows.map(({ key, row, index }) => {
    const found = pending.get(placeOf({ in: list, key }));
    // In a conflict what the person wanted stays, with what somebody else did beside it.
    const want = found === undefined ? row : found.edit.want;
    const gone = want === undefined && found?.state !== 'conflict';
    return { list, key, row: (want ?? row) as Limit | Group, gone, problems: problemsAt(section.problems, list, index) };
  });
  const keys = new Set(rows.map(({ key }) => key));
  const added = [...pending.values()].flatMap(({ edit }) =>
    edit.in !== list || keys.has(edit.key) ? [] : [{ list, key: edit.key, row: (edit.want ?? edit.seen) as Limit | Group, gone: edit.want === undefined, problems: NONE }]);
  return [...edited, ...added];
}

interface LimitRowProps {
  readonly list: List;
  readonly rowKey: string;
  readonly row: Limit | Group;
  readonly gone: boolean;
  readonly problems: readonly Problem[];
  readonly pending: Pending | undefined;
  /** A number is being written in it. */
  readonly written: boolean;
  readonly onDraft: (row: Shown, writing: boolean) => void;
  readonly offers: Catalog | undefined;
  readonly disabled: boolean;
  readonly t: Translate;
}

const LimitRow = memo(function LimitRow({ list, rowKey, row, gone, problems, pending, written, onDraft, offers, disabled, t }: LimitRowProps) {
  /** A number is being written where there was none: with what it begins. */
  const [begin, setBegin] = useState<string>();
  /** What is being written is dropped with its box. */
  const [box, drop] = useReducer((count: number) => count + 1, 0);
  const scope = list === 'limits' ? scopeOfLimit(row as Limit) : scopeOfGroup(row as Group);
  const name = scope === undefined ? JSON.stringify(row) : nameOf(scope, t);
  const max = Number.isInteger(row.max) ? row.max : undefined;
  const mode: Mode = written || begin !== undefined || max === undefined || max > 0 ? 'limited' : max === 0 ? 'paused' : 'unlimited';

  const put = (want: Limit | Group | undefined, seen: Limit | Group = row): void => {
    setBegin(undefined);
    edits.submit({ in: list, key: rowKey, seen, want });
  };
  const set = (value: number, seen = row): void => {
    drop();
    if (value === 0 && max !== undefined && max > 0) remember(rowKey, max);
    put({ ...row, max: value }, seen);
  };
  /** What it was before a pause that was seen from here. */
  const before = useRef<number>();
  if (max !== undefined && max !== 0) before.current = max;
  const ask = (): void => setBegin(String(recall(rowKey) ?? ''));
  const resume = (): void => {
    // What was seen long ago may have been changed since: the person decides.
    if (before.current === undefined) ask();
    else set(before.current);
  };
  const choose = (chosen: Mode): void => {
    if (chosen === 'paused') set(0);
    else if (chosen === 'unlimited') set(-1);
    else ask();
  };

  return (
    <li className="gl-row" data-gone={gone || undefined} data-scope={rowKey}>
      <div className="gl-line">
        <div className="gl-text">
          <span className="gl-name">{name}</span>
          <Live scope={rowKey} max={max} t={t} />
          <Marks row={row} scope={scope} problems={problems} offers={offers} t={t} />
        </div>
        <div className="gl-controls">
          <Choice<Mode>
            label={t('limits.mode', { scope: name })}
            value={mode}
            options={MODES.map(([key, word]) => ({ key, text: t(word) }))}
            disabled={disabled || gone}
            onChoose={choose}
          />
          {mode === 'limited' && (
            <Numeral<Limit | Group>
              key={box}
              label={t('limits.max', { scope: name })}
              value={row}
              write={({ max }) => (typeof max === 'number' ? String(max) : JSON.stringify(max) ?? '')}
              read={(text) => {
                const value = integer(text, 1, MOST);
                return value === undefined ? undefined : { ...row, max: value };
              }}
              wrong={t('limits.max.wrong', BOUNDS)}
              unsaved={t('limits.max.unsaved')}
              begin={begin}
              disabled={disabled || gone}
              onFinish={put}
              onLeave={() => setBegin(undefined)}
              onDraft={(writing) => onDraft({ list, key: rowKey, row, gone: false, problems: NONE }, writing)}
            />
          )}
          {mode === 'paused'
            ? <Button disabled={disabled || gone} aria-label={t('limits.resumeOf', { scope: name })} onClick={resume}>{t('limits.resume')}</Button>
            : <Button disabled={disabled || gone} aria-label={t('limits.pauseOf', { scope: name })} onClick={() => set(0)}>{t('limits.pause')}</Button>}
          <Button disabled={disabled || gone} aria-label={t('limits.removeOf', { scope: name })} onClick={(event) => { passOn(event); put(undefined); }}>{t('limits.remove')}</Button>
        </div>
      </div>
      {list === 'groups' && <Routes group={row as Group} name={name} offers={offers} disabled={disabled || gone} onChange={(routes) => put({ ...row, routes } as Group)} t={t} />}
      {problems.map(({ path, message }) => <Wrong key={path}>{path}: {message}</Wrong>)}
      <Unsaved pending={pending} say={(value) => sayRow(value, maxOf(pending?.theirs) === maxOf(pending?.edit.want), t)} t={t} />
    </li>
  );
});

/** What goes on there. */
function Live({ scope, max, t }: { readonly scope: string; readonly max: number | undefined; readonly t: Translate }) {
  const now = useScope(scope);
  if (now === undefined) return <span className="gl-live">–</span>;
  const { occupancy, waiting, oldestWaitMs } = now;
  const limited = max !== undefined && max > 0;
  const running = limited ? t('limits.occupancy', { occupancy: grouped(occupancy), max: grouped(max) }) : t('limits.running', { occupancy: grouped(occupancy) });
  return (
    <span className="gl-live">
      {limited && <Meter occupancy={occupancy} max={max} label={running} />}
      <span>{running}</span>
      {waiting > 0 && <span>{counted(t, 'limits.waiting', waiting, { n: grouped(waiting) })}</span>}
      {waiting > 0 && oldestWaitMs !== null && <span>{t('limits.oldest', { time: about(oldestWaitMs, t) })}</span>}
    </span>
  );
}

/** What is particular about a row. */
function Marks({ row, scope, problems, offers, t }: Pick<LimitRowProps, 'row' | 'problems' | 'offers' | 't'> & { readonly scope: Scope | undefined }) {
  const marks = [
    ...(problems.length > 0 ? [t('limits.invalid')] : []),
    ...(scope !== undefined && !isOffered(scope, offers) ? [t('limits.notOffered')] : []),
    ...(row.countBy === 'stream' ? [t('limits.perStream')] : []),
    ...(typeof row.pool === 'string' ? [t('limits.pool', { pool: row.pool })] : []),
  ];
  return marks.length === 0 ? null : <span className="gl-marks">{marks.map((mark) => <span key={mark} className="gl-mark">{mark}</span>)}</span>;
}

function maxOf(row: unknown): unknown {
  return (row as Partial<Limit> | null | undefined)?.max;
}

/** A row in words: its number, or all of it where the number is not what differs. */
function sayRow(row: unknown, whole: boolean, t: Translate): string {
  const max = maxOf(row);
  const text = max === -1 ? t('limits.mode.unlimited') : max === 0 ? t('limits.mode.paused') : typeof max === 'number' ? String(max) : JSON.stringify(row);
  const { routes, countBy, pool } = Object(row) as Partial<Group>;
  return whole ? [text, ...(Array.isArray(routes) ? routes : []).map((route) => nameOfRoute(route, t)), countBy, pool].filter(Boolean).join(', ') : text;
}

interface RoutesProps {
  readonly group: Group;
  readonly name: string;
  readonly offers: Catalog | undefined;
  readonly disabled: boolean;
  readonly onChange: (routes: readonly Route[]) => void;
  readonly t: Translate;
}

/** The routes of a group. */
function Routes({ group, name, offers, disabled, onChange, t }: RoutesProps) {
  const routes = Array.isArray(group.routes) ? group.routes : [];
  const keys = new Set(routes.map((route) => keyOfRoute(route)));
  return (
    <details className="gl-routes">
      <summary>{t('limits.routes')} · {routes.length}</summary>
      <ul aria-label={`${t('limits.routes')}: ${name}`}>
        {routes.map((route, index) => {
          const text = nameOfRoute(route, t);
          return (
            <li key={index}>
              <span>{text}</span>
              <Button
                disabled={disabled || routes.length === 1}
                aria-label={`${t('limits.remove')}: ${text}`}
                onClick={(event) => { passOn(event); onChange(routes.toSpliced(index, 1)); }}
              >
                {t('limits.remove')}
              </Button>
            </li>
          );
        })}
      </ul>
      {!disabled && <ScopePicker label={`${t('limits.add.save')}: ${name}`} taken={keys} ofGroup offers={offers} onPick={(scope) => onChange([...routes, routeOf(scope)])} t={t} />}
    </details>
  );
}

/** What a limit of one row can be on. */
type Single = Exclude<Scope, { kind: 'group' }>;

interface ScopePickerProps {
  readonly label: string;
  readonly taken: ReadonlySet<string>;
  /** A group is of models, not of everything. */
  readonly ofGroup: boolean;
  readonly offers: Catalog | undefined;
  readonly autoFocus?: boolean;
  readonly onPick: (scope: Single) => void;
  readonly t: Translate;
}

/** Finds what is to be limited. */
function ScopePicker({ label, taken, ofGroup, offers, autoFocus = false, onPick, t }: ScopePickerProps) {
  return (
    <Picker<Single>
      label={label}
      placeholder={t('limits.add.find')}
      none={t('limits.add.none')}
      options={optionsOf(offers, t).filter(({ key, value }) => !taken.has(key) && !(ofGroup && value.kind === 'everything'))}
      custom={(text) => {
        const scope = routeOfText(text);
        if (scope === undefined || taken.has(textOf(scope))) return undefined;
        return { ...optionOf(scope, t), text: t('limits.add.custom', { route: nameOf(scope, t) }) };
      }}
      t={t}
      autoFocus={autoFocus}
      onPick={onPick}
    />
  );
}

function keyOfRoute(route: Route): string {
  const scope = scopeOfLimit(Object(route) as Partial<Limit>);
  return scope === undefined ? JSON.stringify(route) : textOf(scope);
}

function nameOfRoute(route: Route, t: Translate): string {
  const scope = scopeOfLimit(Object(route) as Partial<Limit>);
  return scope === undefined ? JSON.stringify(route) : nameOf(scope, t);
}

interface AddProps {
  /** What has a limit already. */
  readonly taken: ReadonlySet<string>;
  readonly offers: Catalog | undefined;
  readonly disabled: boolean;
  readonly t: Translate;
}

/** Adds a limit, or a group. */
function Add({ taken, offers, disabled, t }: AddProps) {
  const [[adding, begun], setAdding] = useState<readonly [now?: List | undefined, last?: List]>([]);
  if (adding !== undefined) return <Adder list={adding} taken={taken} offers={offers} onDone={() => setAdding([undefined, adding])} t={t} />;
  const button = (list: List, word: Word) => <Button disabled={disabled} autoFocus={begun === list} onClick={() => setAdding([list])}>{t(word)}</Button>;
  return <div className="gl-actions">{button('limits', 'limits.add')}{button('groups', 'limits.add.group')}</div>;
}

interface AdderProps extends Omit<AddProps, 'disabled'> {
  readonly list: List;
  readonly onDone: () => void;
}

function Adder({ list, taken, offers, onDone, t }: AdderProps) {
  const [name, setName] = useState('');
  const [chosen, setChosen] = useState<readonly Single[]>([]);
  const [max, setMax] = useState('1');
  const ofGroup = list === 'groups';
  const value = integer(max, 1, MOST);
  const scope = ofGroup ? scopeOfGroup({ name }) : chosen[0];
  const key = scope === undefined ? undefined : textOf(scope);
  const isTaken = key !== undefined && taken.has(key);
  const [first] = chosen;
  const add = (): void => {
    if (key === undefined || value === undefined || first === undefined || isTaken) return;
    const want = ofGroup ? { name: name.trim(), routes: chosen.map(routeOf), max: value } : { ...routeOf(first), max: value };
    edits.submit({ in: list, key, seen: undefined, want });
    onDone();
  };
  const isWrong = value === undefined;
  return (
    <div
      className="gl-add"
      role="group"
      aria-label={t(ofGroup ? 'limits.add.group' : 'limits.add')}
      onKeyDown={(event) => {
        if (keyOf(event) !== 'Escape') return;
        event.stopPropagation();
        onDone();
      }}
    >
      {ofGroup && <Input aria-label={t('limits.add.groupName')} placeholder={t('limits.add.groupName')} autoComplete="off" autoFocus value={name} onChange={(event) => setName(event.target.value)} />}
      {(ofGroup || first === undefined) && (
        <ScopePicker
          label={t(ofGroup ? 'limits.add.groupRoutes' : 'limits.add.what')}
          taken={ofGroup ? new Set(chosen.map(textOf)) : taken}
          ofGroup={ofGroup}
          offers={offers}
          autoFocus={!ofGroup}
          onPick={(picked) => setChosen([...chosen, picked])}
          t={t}
        />
      )}
      <ul className="gl-chosen" aria-label={t(ofGroup ? 'limits.add.groupRoutes' : 'limits.add.what')}>
        {chosen.map((picked, index) => (
          <li key={textOf(picked)}>
            <span>{nameOf(picked, t)}</span>
            <Button aria-label={`${t('limits.remove')}: ${nameOf(picked, t)}`} onClick={(event) => { passOn(event); setChosen(chosen.toSpliced(index, 1)); }}>{t('limits.remove')}</Button>
          </li>
        ))}
      </ul>
      <span className="gl-numeral">
        <Input
          // What was found leaves the number to be written.
          key={chosen.length}
          autoFocus={!ofGroup && first !== undefined}
          aria-label={t('limits.mode.limited')}
          aria-invalid={isWrong || undefined}
          inputMode="numeric"
          autoComplete="off"
          value={max}
          onChange={(event) => setMax(event.target.value)}
          onKeyDown={(event) => {
            if (keyOf(event) !== 'Enter') return;
            // It would press what has the focus then.
            event.preventDefault();
            add();
          }}
        />
        {isWrong && <Wrong role="alert">{t('limits.max.wrong', BOUNDS)}</Wrong>}
      </span>
      <Button variant="primary" disabled={key === undefined || isWrong || first === undefined || isTaken} onClick={add}>{t('limits.add.save')}</Button>
      <Button onClick={onDone}>{t('limits.add.cancel')}</Button>
      {isTaken && <Wrong role="alert">{t('limits.add.taken')}</Wrong>}
    </div>
  );
}
