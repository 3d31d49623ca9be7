/** What became of an edit that is not stored, where it was made. */
import { placeOf, type Pending } from './edits.ts';
import { edits } from './live.ts';
import { Button, passOn } from './ui.tsx';
import type { Translate } from './words/index.ts';
import { Wrong } from './Wrong.tsx';

interface UnsavedProps {
  readonly pending: Pending | undefined;
  /** A value in words. */
  readonly say: (value: unknown) => string;
  readonly t: Translate;
}

export function Unsaved({ pending, say, t }: UnsavedProps) {
  if (pending === undefined) return null;
  const { edit, state, error, theirs } = pending;
  const place = placeOf(edit);
  const decision = (text: string, decide: (place: string) => void) => <Button onClick={(event) => { passOn(event); decide(place); }}>{text}</Button>;
  if (state === 'saving') return <p className="gl-note" role="status">{t('write.saving')}</p>;
  if (state === 'failed') {
    return (
      <div className="gl-unsaved" role="alert">
        <Wrong>{t('write.failed', { error: error ?? '' })}</Wrong>
        {decision(t('write.again'), edits.again)}
        {decision(t('write.discard'), edits.discard)}
      </div>
    );
  }
  return (
    <div className="gl-unsaved" role="alert">
      <Wrong>{theirs === undefined ? t('conflict.removed') : t('conflict.set', { theirs: say(theirs) })}</Wrong>
      {decision(edit.want === undefined ? t('conflict.mine.remove') : t('conflict.mine', { mine: say(edit.want) }), edits.insist)}
      {decision(theirs === undefined ? t('conflict.theirs.removed') : t('conflict.theirs', { theirs: say(theirs) }), edits.discard)}
    </div>
  );
}
