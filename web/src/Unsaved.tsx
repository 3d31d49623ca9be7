/** What became of an edit that is not stored, where it was made. */
import { placeOf, type Pending } from './edits.ts';
import { edits } from './live.ts';
import { Button } from './ui.tsx';
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
  if (state === 'saving') return <p className="gl-note" role="status">{t('write.saving')}</p>;
  if (state === 'failed') {
    return (
      <div className="gl-unsaved" role="alert">
        <Wrong>{t('write.failed', { error: error ?? '' })}</Wrong>
        <Button onClick={edits.again}>{t('write.again')}</Button>
        <Button onClick={() => edits.discard(place)}>{t('write.discard')}</Button>
      </div>
    );
  }
  return (
    <div className="gl-unsaved" role="alert">
      <Wrong>{theirs === undefined ? t('conflict.removed') : t('conflict.set', { theirs: say(theirs) })}</Wrong>
      <Button onClick={() => edits.insist(place)}>{edit.want === undefined ? t('conflict.mine.remove') : t('conflict.mine', { mine: say(edit.want) })}</Button>
      <Button onClick={() => edits.discard(place)}>{theirs === undefined ? t('conflict.theirs.removed') : t('conflict.theirs', { theirs: say(theirs) })}</Button>
    </div>
  );
}
