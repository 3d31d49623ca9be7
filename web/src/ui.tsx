/**
 * The harness's own controls, by the names that both of its versions have. Where a shell brings none, plain ones take their
 * place: what a person needs must not depend on a look.
 */
import type { ButtonHTMLAttributes, InputHTMLAttributes, ReactNode } from 'react';
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

interface ModalProps {
  readonly title: string;
  readonly closeLabel: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

/** A dialog over the page. */
export function Modal({ children, ...rest }: ModalProps) {
  if (brought.Modal !== undefined) return <brought.Modal open className="gl-modal" {...rest}>{children}</brought.Modal>;
  const { title, closeLabel, onClose } = rest;
  return (
    <dialog ref={(dialog) => dialog?.open === false && dialog.showModal()} className="gl-modal" aria-label={title} onClose={onClose}>
      <Button onClick={onClose}>{closeLabel}</Button>
      {children}
    </dialog>
  );
}
