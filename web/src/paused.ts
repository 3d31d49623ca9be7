/** What a limit was before it was paused, so that it can be resumed, also after the page was loaded anew. */

const KEY = 'dsh-gen-limit:before-pause:';

export function remember(scope: string, max: number): void {
  try {
    localStorage.setItem(KEY + scope, String(max));
  } catch {
    // Without storage the person is asked for the number.
  }
}

export function recall(scope: string): number | undefined {
  try {
    const max = Number(localStorage.getItem(KEY + scope));
    return Number.isSafeInteger(max) && max > 0 ? max : undefined;
  } catch {
    return undefined;
  }
}
