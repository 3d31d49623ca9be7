/** A small line drawing, in the harness's hand. */
const SHAPES = {
  down: 'm3.5 5.3 3.5 3.4 3.5-3.4',
  right: 'm5.3 3.5 3.4 3.5-3.4 3.5',
  clock: 'M7 1.4a5.6 5.6 0 1 1 0 11.2A5.6 5.6 0 0 1 7 1.4Zm0 2.5V7l2.1 1.5',
} as const;

export function Icon({ shape }: { readonly shape: keyof typeof SHAPES }) {
  return <svg aria-hidden="true" width="14" height="14" viewBox="0 0 14 14" fill="none" stroke="currentColor" strokeWidth="1.3"><path d={SHAPES[shape]} /></svg>;
}
