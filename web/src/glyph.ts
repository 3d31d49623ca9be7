/**
 * The glyph of our page in the navigation of the harness's settings. The harness has glyphs for its own pages and a gear for all
 * others; ours gets a branch. Where anything is not drawn as is known of the harness, it is left alone.
 */

/** What is looked at of an element that draws. */
export interface Drawn {
  readonly tagName: string;
  getAttribute(name: string): string | null;
  readonly children: Iterable<Drawn>;
}

/** How a version of the harness draws. */
export type Hand = 'filled' | 'stroked';

/** Marks what is ours. */
export const MARK = 'data-gl-glyph';

const BRANCH =
  'M5.7 3.5a1.7 1.7 0 1 1-3.4 0 1.7 1.7 0 0 1 3.4 0ZM5.7 12.5a1.7 1.7 0 1 1-3.4 0 1.7 1.7 0 0 1 3.4 0ZM13.7 3.5a1.7 1.7 0 1 1-3.4 0 1.7 1.7 0 0 1 3.4 0ZM4 5.2v5.6M12 5.2c0 3.4-6.3 1.6-7.6 5.7';
/** Of strokes in either hand; a stroked icon has it on its whole. */
const WIDTH = '1.3';

/** How an icon draws the gear; nothing where it is no gear. What we drew there does not count. */
export function gearOf(svg: Drawn): Hand | undefined {
  if (svg.getAttribute('width') !== '16' || svg.getAttribute('height') !== '16' || svg.getAttribute('viewBox') !== '0 0 16 16') return undefined;
  const parts = drawn(svg);
  const [only] = parts;
  const paths = parts.length === 1 && only !== undefined && tag(only) === 'g' ? drawn(only) : parts;
  // A rim and a hub: filled in one group, stroked side by side.
  const hand = parts.length === 1 ? 'filled' : 'stroked';
  const isWhole = paths.length === 2 && paths.every((path) => tag(path) === 'path' && path.getAttribute(hand === 'filled' ? 'fill' : 'stroke') === 'currentColor');
  return isWhole ? hand : undefined;
}

/** The visible parts of it that are not ours. */
function drawn(element: Drawn): readonly Drawn[] {
  return [...element.children].filter((child) => tag(child) !== 'defs' && child.getAttribute(MARK) === null);
}

function tag({ tagName }: Drawn): string {
  return tagName.toLowerCase();
}

/** Paints our row whenever the navigation is there; gives what ends that and takes it back. */
export function paintGlyph(label: () => string, document: Document): () => void {
  const view = document.defaultView;
  if (view === null) return () => undefined;
  let frame: number | undefined;
  const paint = (): void => {
    frame = undefined;
    const rows = [...document.getElementsByTagName('nav')].flatMap((nav) => (nav.closest('[role="dialog"]') === null ? [] : iconsOf(nav, label())));
    for (const mark of document.querySelectorAll<SVGElement>(`[${MARK}]`)) {
      if (!rows.some((row) => row.contains(mark))) takeBack(mark);
    }
    for (const row of rows) draw(row);
  };
  const look = (): void => {
    frame ??= view.requestAnimationFrame(paint);
  };
  const observer = new view.MutationObserver(look);
  observer.observe(document.body, { childList: true, subtree: true, characterData: true });
  look();
  return () => {
    observer.disconnect();
    if (frame !== undefined) view.cancelAnimationFrame(frame);
    for (const mark of document.querySelectorAll<SVGElement>(`[${MARK}]`)) takeBack(mark);
  };
}

/** The icon of the one row that has our label. */
function iconsOf(nav: HTMLElement, label: string): readonly SVGSVGElement[] {
  const rows = [...nav.querySelectorAll('button')].filter((button) => [...button.querySelectorAll('span')].some((span) => span.textContent === label));
  const [row] = rows;
  if (row === undefined || rows.length > 1) return [];
  const icons = row.querySelectorAll('svg');
  return icons.length === 1 ? [...icons] : [];
}

/** The harness's own parts stay where it put them, unseen. */
function draw(icon: SVGSVGElement): void {
  const hand = gearOf(icon);
  const mark = icon.querySelector<SVGElement>(`[${MARK}]`);
  if (hand === undefined) return mark === null ? undefined : takeBack(mark);
  for (const part of partsOf(icon)) part.style.display = 'none';
  if (mark !== null) return;
  const document = icon.ownerDocument;
  const group = document.createElementNS(icon.namespaceURI, 'g');
  group.setAttribute(MARK, '');
  const path = document.createElementNS(icon.namespaceURI, 'path');
  for (const [name, value] of Object.entries({ d: BRANCH, fill: 'none', stroke: 'currentColor', ...(hand === 'filled' ? { 'stroke-width': WIDTH } : {}) })) path.setAttribute(name, value);
  group.append(path);
  icon.append(group);
}

function takeBack(mark: SVGElement): void {
  const icon = mark.parentElement;
  mark.remove();
  if (icon === null) return;
  for (const part of partsOf(icon)) {
    part.style.removeProperty('display');
    if (part.getAttribute('style') === '') part.removeAttribute('style');
  }
}

function partsOf(icon: Element): readonly SVGElement[] {
  return ([...icon.children] as SVGElement[]).filter((child) => child.getAttribute(MARK) === null);
}
