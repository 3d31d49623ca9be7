/** What is wrong, where it is. */
import type { ReactNode } from 'react';

export function Wrong({ children, ...rest }: { readonly children: ReactNode; readonly id?: string; readonly role?: 'alert' }) {
  return <p className="gl-note gl-error" {...rest}>{children}</p>;
}
