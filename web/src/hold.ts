/** What a list that is shown steadily needs of React: whether somebody is at it, and what it showed before. */
import { useCallback, useEffect, useMemo, useRef, useState, type FocusEvent, type RefObject } from 'react';
import { steady, type Row } from './steady.ts';

/** The rows of a list that is shown steadily. */
export function useSteady<T>(now: readonly T[], keyOf: (value: T) => string, held: boolean): ReadonlyArray<Row<T>> {
  const shown = useRef<ReadonlyArray<Row<T>>>([]);
  const rows = useMemo(() => steady(shown.current, now, keyOf, held), [now, keyOf, held]);
  useEffect(() => {
    shown.current = rows;
  }, [rows]);
  return rows;
}

/** Whether somebody points into an element or has the keyboard's focus there. */
export interface Hold {
  readonly held: boolean;
  /** For the element. */
  readonly props: {
    readonly ref: RefObject<HTMLDivElement>;
    readonly onPointerEnter: () => void;
    readonly onPointerLeave: () => void;
    readonly onFocus: (event: FocusEvent) => void;
    readonly onBlur: () => void;
  };
}

export function useHold(): Hold {
  const ref = useRef<HTMLDivElement>(null);
  const [pointed, setPointed] = useState(false);
  const [focused, setFocused] = useState(false);
  const onPointerEnter = useCallback(() => setPointed(true), []);
  const onPointerLeave = useCallback(() => setPointed(false), []);
  // A click leaves a focus behind that nobody looks at.
  const onFocus = useCallback((event: FocusEvent) => setFocused(event.target.matches(':focus-visible')), []);
  const onBlur = useCallback(() => setFocused(false), []);
  // What is under the mouse or has the focus, and is removed, does not always tell that it lost it.
  useEffect(() => {
    if (pointed && ref.current?.matches(':hover') !== true) setPointed(false);
    if (focused && ref.current?.contains(document.activeElement) !== true) setFocused(false);
  });
  return { held: pointed || focused, props: { ref, onPointerEnter, onPointerLeave, onFocus, onBlur } };
}
