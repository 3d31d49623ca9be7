/** Finds something by writing a part of its name, among as many as there are. */
import { useId, useState, type KeyboardEvent } from 'react';
import type { Translate } from './words/index.ts';
import { Input, keyOf } from './ui.tsx';

/** What can be picked. */
export interface Option<T> {
  readonly key: string;
  readonly text: string;
  /** What else it is known by. */
  readonly also?: string;
  readonly value: T;
}

/** How many are shown at once. */
const SHOWN = 50;

interface PickerProps<T> {
  readonly label: string;
  readonly placeholder: string;
  readonly none: string;
  readonly options: ReadonlyArray<Option<T>>;
  /** What the text itself means; it can be picked where it is none of the options. */
  readonly custom?: (text: string) => Option<T> | undefined;
  readonly t: Translate;
  readonly autoFocus?: boolean;
  readonly onPick: (value: T) => void;
}

export function Picker<T>({ label, placeholder, none, options, custom, t, autoFocus = false, onPick }: PickerProps<T>) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const [open, setOpen] = useState(autoFocus);
  const id = useId();

  const found = matching(options, text);
  const shown = found.slice(0, SHOWN);
  const own = custom?.(text.trim());
  if (own !== undefined && !found.some(({ key }) => key === own.key)) shown.push(own);
  const more = found.length - Math.min(found.length, SHOWN);

  const pick = (option: Option<T> | undefined): void => {
    if (option === undefined) return;
    setText('');
    setOpen(false);
    setAt(0);
    onPick(option.value);
  };
  const onKey = (event: KeyboardEvent): void => {
    const last = Math.max(0, shown.length - 1);
    switch (keyOf(event)) {
      case 'ArrowDown':
        setAt(open ? Math.min(at + 1, last) : at);
        setOpen(true);
        break;
      case 'ArrowUp':
        setAt(Math.max(at - 1, 0));
        break;
      case 'Enter':
        if (open) pick(shown[at]);
        break;
      case 'Escape':
        // Only what is open is closed.
        if (!open) return;
        setOpen(false);
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <span className="gl-picker">
      <Input
        role="combobox"
        aria-label={label}
        aria-expanded={open}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        {...(open && shown.length > 0 ? { 'aria-activedescendant': `${id}-${at}` } : {})}
        autoComplete="off"
        spellCheck={false}
        placeholder={placeholder}
        value={text}
        autoFocus={autoFocus}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
          setOpen(true);
        }}
        onClick={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKey}
      />
      <ul id={`${id}-list`} className="gl-options" role="listbox" aria-label={label} hidden={!open}>
        {open && shown.map((option, index) => (
          <li
            key={option.key}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at}
            data-at={index === at || undefined}
            ref={index === at ? intoView : null}
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => pick(option)}
          >
            {option.text}
            {option.also !== undefined && <small>{option.also}</small>}
          </li>
        ))}
        {open && (more > 0 || shown.length === 0) && (
          <li className="gl-quiet" role="option" aria-selected={false} aria-disabled="true">{more > 0 ? t('limits.add.more', { n: more }) : none}</li>
        )}
      </ul>
    </span>
  );
}

function intoView(element: HTMLElement | null): void {
  element?.scrollIntoView?.({ block: 'nearest' });
}

/** What has all the words of a text in its names. */
function matching<T>(options: ReadonlyArray<Option<T>>, text: string): ReadonlyArray<Option<T>> {
  const words = text.toLowerCase().split(/\s+/u).filter(Boolean);
  if (words.length === 0) return options;
  return options.filter(({ text, also = '' }) => {
    const names = `${text} ${also}`.toLowerCase();
    return words.every((word) => names.includes(word));
  });
}
