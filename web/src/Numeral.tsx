/**
 * A value that is written by hand. What is in the box is the person's own until it is finished, by Enter or by leaving the box;
 * until then, and while it is not valid, nothing is stored. Escape takes it back.
 */
import { useEffect, useId, useRef, useState, type KeyboardEvent } from 'react';
import { enter, Input, keyOf } from './ui.tsx';

interface NumeralProps<T> {
  readonly label: string;
  readonly value: T;
  /** The value as a person writes it. */
  readonly write: (value: T) => string;
  /** What a text means; nothing where it means nothing. */
  readonly read: (text: string) => T | undefined;
  /** Said while the text means nothing. */
  readonly wrong: string;
  /** Said while it is not finished. */
  readonly unsaved: string;
  readonly disabled?: boolean;
  /** Begins with this text, and with the person in the box. */
  readonly begin?: string | undefined;
  readonly wide?: boolean;
  /** Something valid was finished; with what was there when it was begun. */
  readonly onFinish: (value: T, seen: T) => void;
  /** Nothing was changed after all. */
  readonly onLeave?: () => void;
  /** Whether something is being written. */
  readonly onDraft?: (writing: boolean) => void;
}

export function Numeral<T>({ label, value, write, read, wrong, unsaved, disabled = false, begin, wide = false, onFinish, onLeave, onDraft }: NumeralProps<T>) {
  const [draft, setDraft] = useState(begin);
  const seen = useRef(value);
  const id = useId();
  const understood = draft === undefined ? undefined : read(draft);
  const writing = draft !== undefined;
  const isWrong = writing && understood === undefined;
  useEffect(() => {
    onDraft?.(writing);
    return () => onDraft?.(false);
  }, [writing]);

  const edit = (text: string): void => {
    if (draft === undefined) seen.current = value;
    setDraft(text);
  };
  const finish = (): void => {
    if (draft === undefined || understood === undefined) return;
    setDraft(undefined);
    if (begin === undefined && write(understood) === write(value)) onLeave?.();
    else onFinish(understood, seen.current);
  };
  const onKey = (event: KeyboardEvent): void => {
    const key = keyOf(event);
    if (key === 'Enter') finish();
    else if (key === 'Escape' && draft !== undefined) {
      setDraft(undefined);
      onLeave?.();
      // The box may go; leaving it before that would finish it.
      if (begin !== undefined) setTimeout(enter, 0, event.currentTarget.closest('li'));
    } else return;
    // Escape would close the settings as well.
    event.stopPropagation();
  };

  return (
    <span className={`gl-numeral${wide ? ' gl-wide' : ''}`}>
      <Input
        aria-label={label}
        aria-invalid={isWrong || undefined}
        aria-describedby={draft === undefined ? undefined : id}
        inputMode={wide ? 'text' : 'numeric'}
        autoComplete="off"
        autoFocus={begin !== undefined}
        value={draft ?? write(value)}
        disabled={disabled}
        onChange={(event) => edit(event.target.value)}
        onKeyDown={onKey}
        // Who looks at another window has not left the box, nor has anybody to whom it is closed.
        onBlur={({ target }) => target !== document.activeElement && !target.disabled && finish()}
      />
      {draft !== undefined && (
        <span id={id} className={isWrong ? 'gl-note gl-error' : 'gl-note'} role={isWrong ? 'alert' : undefined}>
          {isWrong ? wrong : unsaved}
        </span>
      )}
    </span>
  );
}
