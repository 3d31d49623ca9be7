/** Where the card stands on the pages of the harness. */
import { useId, useState } from 'react';
import { Card } from './Card.tsx';
import { Icon } from './Icon.tsx';
import type { Translate } from './words/index.ts';

interface DoorProps {
  readonly t: Translate;
}

/** A page of the settings. */
export function Page({ t }: DoorProps) {
  return <Card t={t} />;
}

/** One of the cards of plugins, dsh 0.1: opened in place. */
export function Foldable({ t }: DoorProps) {
  const [open, setOpen] = useState(false);
  const id = useId();
  return (
    <li className="gl-plugin">
      <button type="button" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        <span className="gl-plugin-text">
          <span className="gl-plugin-name">{t('title')}</span>
          <span className="gl-plugin-summary">{t('intro')}</span>
        </span>
        <Icon shape="down" />
      </button>
      {open && <div id={id}><Card t={t} titled={false} /></div>}
    </li>
  );
}

/** The configuration of our row, dsh 0.2: a line on the list, the card on the page. */
export function RowConfig({ t, view }: DoorProps & { readonly view?: 'summary' | 'page' }) {
  return view === 'summary' ? <>{t('intro')}</> : <Card t={t} titled={false} />;
}
