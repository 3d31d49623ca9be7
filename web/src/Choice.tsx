/** One of a few words, chosen on purpose: going over them with the keyboard changes nothing, only Enter or a click does. */
import { useEffect, useId, useRef, useState, type KeyboardEvent } from 'react';
import { Icon } from './Icon.tsx';

interface ChoiceProps<K extends string> {
  readonly label: string;
  readonly value: K;
  readonly options: ReadonlyArray<{ readonly key: K; readonly text: string }>;
  readonly disabled?: boolean;
  readonly onChoose: (key: K) => void;
}

export function Choice<K extends string>({ label, value, options, disabled = false, onChoose }: ChoiceProps<K>) {
  const [at, setAt] = useState<number>();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const id = useId();
  const open = at !== undefined;
  useEffect(() => {
    if (open) list.current?.focus();
  }, [open]);

  const current = Math.max(0, options.findIndex(({ key }) => key === value));
  const close = (): void => {
    setAt(undefined);
    button.current?.focus();
  };
  const choose = (index: number | undefined): void => {
    const chosen = index === undefined ? undefined : options[index];
    close();
    if (chosen !== undefined && chosen.key !== value) onChoose(chosen.key);
  };
  const onButtonKey = (event: KeyboardEvent): void => {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    event.preventDefault();
    setAt(current);
  };
  const onKey = (event: KeyboardEvent): void => {
    const last = options.length - 1;
    const to = { ArrowDown: Math.min((at ?? 0) + 1, last), ArrowUp: Math.max((at ?? 0) - 1, 0), Home: 0, End: last }[event.key];
    if (to !== undefined) setAt(to);
    else if (event.key === 'Enter' || event.key === ' ') choose(at);
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
    // Escape would close the settings as well.
    event.stopPropagation();
  };

  return (
    <span className="gl-choice">
      <button
        ref={button}
        type="button"
        className="gl-selector"
        aria-haspopup="listbox"
        aria-expanded={open}
        aria-label={`${label}: ${options[current]?.text ?? ''}`}
        disabled={disabled}
        // The list would lose the focus, and open again.
        onMouseDown={(event) => open && event.preventDefault()}
        onClick={() => (open ? close() : setAt(current))}
        onKeyDown={onButtonKey}
      >
        {options[current]?.text}
        <Icon shape="down" />
      </button>
      {open && (
        <ul
          ref={list}
          className="gl-options"
          role="listbox"
          tabIndex={-1}
          aria-label={label}
          aria-activedescendant={`${id}-${at}`}
          onKeyDown={onKey}
          onBlur={() => setAt(undefined)}
        >
          {options.map(({ key, text }, index) => (
            <li
              key={key}
              id={`${id}-${index}`}
              role="option"
              aria-selected={key === value}
              data-at={index === at || undefined}
              // The list keeps the focus until something is chosen.
              onMouseDown={(event) => event.preventDefault()}
              onMouseEnter={() => setAt(index)}
              onClick={() => choose(index)}
            >
              {text}
            </li>
          ))}
        </ul>
      )}
    </span>
  );
}
