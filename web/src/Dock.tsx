/** A row above the composer of a session, while something of it waits. */
import { useEffect, useMemo, useState } from 'react';
import { read, type Stats } from './api.ts';
import { Card } from './Card.tsx';
import { Icon } from './Icon.tsx';
import { usePolled } from './live.ts';
import { told } from './own.ts';
import { Poller } from './poller.ts';
import { Modal } from './ui.tsx';
import type { Translate } from './words/index.ts';

/** What was seen, and when. */
interface Seen {
  readonly stats: Stats;
  readonly at: number;
}

/** For how long what was seen is told, while no answer comes. */
const FRESH_MS = 5_000;
/** How many sessions keep a poller. */
const MOST_POLLERS = 32;

const pollers = new Map<string, Poller<Seen>>();

/** One poller for all views of a session. */
function pollerOf(session: string): Poller<Seen> {
  const known = pollers.get(session);
  if (known !== undefined) return known;
  const poller = new Poller<Seen>(async (signal) => ({ stats: await read.statsOf(session, signal), at: Date.now() }), 1_000);
  for (const oldest of pollers.keys()) {
    if (pollers.size < MOST_POLLERS) break;
    pollers.delete(oldest);
  }
  pollers.set(session, poller);
  return poller;
}

export function Dock({ sessionId, t }: { readonly sessionId: string; readonly t: Translate }) {
  const { value } = usePolled(useMemo(() => pollerOf(sessionId), [sessionId]));
  const [open, setOpen] = useState(false);
  // What was seen when the session was last looked at is no news.
  const waits = value === undefined || Date.now() - value.at > FRESH_MS ? undefined : told(sessionId, value.stats, t);
  return (
    <>
      {waits !== undefined && (
        <div className="gl-dock">
          <button type="button" className="gl-dock-row" aria-haspopup="dialog" onClick={() => setOpen(true)}>
            <Icon shape="clock" />
            <span className="gl-dock-text">{waits.text}</span>
          </button>
          <Announced text={waits.announced} />
        </div>
      )}
      {open && <Modal title={t('title')} closeLabel={t('close')} onClose={() => setOpen(false)}><Card t={t} titled={false} /></Modal>}
    </>
  );
}

/** Says a text once; what listens to a page hears only what changes in it. */
function Announced({ text }: { readonly text: string }) {
  const [said, say] = useState('');
  useEffect(() => say(text), [text]);
  return <span className="gl-hidden" role="status">{said}</span>;
}
