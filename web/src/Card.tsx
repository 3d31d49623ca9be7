/** The settings card: the same at every door. */
import { useEffect, useRef, useState, useSyncExternalStore } from 'react';
import { Limits } from './Limits.tsx';
import { catalog, config, edits, sectionOf, stats, usePolled } from './live.ts';
import { Now } from './Now.tsx';
import { Queueing } from './Queueing.tsx';
import { standardRoute } from './standard.ts';
import { States } from './States.tsx';
import type { Translate } from './words/index.ts';

export interface CardProps {
  readonly t: Translate;
  /** Whether the card says what it is; not where something around it does. */
  readonly titled?: boolean;
}

export function Card({ t, titled = true }: CardProps) {
  const known = { config: usePolled(config), stats: usePolled(stats), catalog: usePolled(catalog) };
  const [{ subscribe, get }] = useState(standardRoute);
  const standard = useSyncExternalStore(subscribe, get);
  const section = sectionOf(known.config);
  useEffect(edits.look, [section]);
  // What is being written stays where the settings are gone for a moment.
  const last = useRef(section);
  if (section !== undefined) last.current = section;
  const shown = last.current;
  const disabled = section === undefined || !section.writable;
  return (
    <div className="gl">
      {titled && <h2 className="gl-title">{t('title')}</h2>}
      {titled && <p className="gl-intro">{t('intro')}</p>}
      {known.config.value === undefined && known.config.failure === undefined && <p className="gl-note" role="status">{t('state.loading')}</p>}
      <States {...known} standard={standard} t={t} />
      {shown !== undefined && <Limits section={shown} disabled={disabled} t={t} />}
      <Now t={t} />
      {shown !== undefined && <Queueing section={shown} disabled={disabled} t={t} />}
    </div>
  );
}
