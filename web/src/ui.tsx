/**
 * The harness's own controls, by the names that both of its versions have. Where a shell brings none, plain ones take their
 * place: what a person needs must not depend on a look.
 */
import { createPortal } from 'react-dom';
import { useEffect, type ButtonHTMLAttributes, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes } from 'react';
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
export function Button({ variant = 'outline', ...rest }: ButtonProps) {
  return brought.Button === undefined ? <button type="button" {...rest} /> : <brought.Button variant={variant} size="sm" {...rest} />;
}

/** A line of text to write in. */
export function Input({ className = '', ...rest }: InputHTMLAttributes<HTMLInputElement>) {
  return brought.Input === undefined ? <input className={className} {...rest} /> : <brought.Input className={className} {...rest} />;
}

/** One of a few words. */
export function Select({ children, ...rest }: SelectHTMLAttributes<HTMLSelectElement>) {
  return <select className="gl-select" {...rest}>{children}</select>;
}

interface ModalProps {
  readonly title: string;
  readonly closeLabel: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

/** A dialog over the page. */
export function Modal({ children, ...rest }: ModalProps) {
  if (brought.Modal !== undefined) return <brought.Modal open className="gl-modal" {...rest}>{children}</brought.Modal>;
  return <PlainModal {...rest}>{children}</PlainModal>;
}

function PlainModal({ title, closeLabel, onClose, children }: ModalProps) {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape') onClose();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [onClose]);
  return createPortal(
    <div className="gl-plain-modal" role="dialog" aria-modal="true" aria-label={title}>
      <button type="button" onClick={onClose}>{closeLabel}</button>
      {children}
    </div>,
    document.body,
  );
}
