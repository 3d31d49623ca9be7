/**
 * The harness's own controls, by the names that both of its versions have. Where a shell brings none, plain ones take their
 * place: what a person needs must not depend on a look.
 */
import { useEffect, type ButtonHTMLAttributes, type InputHTMLAttributes, type KeyboardEvent, type MouseEvent, type ReactNode } from 'react';
import type * as Primitives from '@deepseek-ai/dsh-client-ui-primitives';

/** What a shell may bring. */
type Brought = Partial<Pick<typeof Primitives, 'Button' | 'Input' | 'Modal'>>;

const brought: Brought = (() => {
  try {
    return require('@deepseek-ai/dsh-client-ui-primitives') as Brought;
  } catch {
    return {};
  }
})();

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  readonly variant?: Primitives.ButtonVariant;
}

/** A button of the size that rows have. */
export function Button({ variant = 'outline', onClick, ...others }: ButtonProps) {
  const rest = {
    ...others,
    // The second click of a double one would fall on what stands there since the first.
    onClick: (event: MouseEvent<HTMLButtonElement>) => {
      if (event.detail < 2) onClick?.(event);
    },
  };
  return brought.Button === undefined ? <button type="button" {...rest} /> : <brought.Button variant={variant} size="sm" {...rest} />;
}

/** The key that was pressed; none where it belongs to an input method, whose Enter and Escape are about what it composes. */
export function keyOf({ key, nativeEvent }: KeyboardEvent): string {
  return nativeEvent.isComposing ? '' : key;
}

/** Gives the focus to the first control in something. */
export function enter(element: Element | null | undefined): void {
  element?.querySelector<HTMLElement>('button, input')?.focus();
}

/** Before what was pressed goes with its item or notice: the focus goes to a neighbour, or to what follows the list. */
export function passOn({ currentTarget }: MouseEvent): void {
  const item = currentTarget.closest('li,[role=alert],[role=status]');
  enter(item?.nextElementSibling ?? item?.previousElementSibling ?? item?.parentElement?.nextElementSibling);
}

/** A line of text to write in. */
export function Input({ className = '', ...rest }: InputHTMLAttributes<HTMLInputElement>) {
  return brought.Input === undefined ? <input className={className} {...rest} /> : <brought.Input className={className} {...rest} />;
}

interface ModalProps {
  readonly title: string;
  readonly closeLabel: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

/** A dialog over the page. */
export function Modal({ children, ...rest }: ModalProps) {
  // Not every shell leads the focus in and back.
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    enter(document.querySelector('[role=dialog]'));
    return () => before?.focus();
  }, []);
  if (brought.Modal !== undefined) return <brought.Modal open className="gl-modal" {...rest}>{children}</brought.Modal>;
  const { title, closeLabel, onClose } = rest;
  return (
    <dialog ref={(dialog) => dialog?.open === false && dialog.showModal()} className="gl-modal" aria-label={title} onClose={onClose}>
      <Button onClick={onClose}>{closeLabel}</Button>
      {children}
    </dialog>
  );
}
