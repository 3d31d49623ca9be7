/** Which icons are the gear, as either version of the harness draws it. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { MARK, gearOf, type Drawn } from '../src/glyph.ts';

function element(tagName: string, attributes: Readonly<Record<string, string>>, ...children: Drawn[]): Drawn {
  return { tagName, children, getAttribute: (name) => attributes[name] ?? null };
}

const SIZE = { width: '16', height: '16', viewBox: '0 0 16 16', fill: 'none' };
const filled = (d: string): Drawn => element('path', { d, fill: 'currentColor' });
const stroked = (d: string): Drawn => element('path', { d, stroke: 'currentColor' });
const [RIM, HUB] = ['M14.0861 5.51366C13.8717 5.0575Z', 'M9.13764 7.99999C9.13764 7.3715Z'];
const [HUB_STROKED, RIM_STROKED] = ['M8 9.75012C8.9665 9.75012Z', 'M13.0107 7.79377C12.9505 7.89401Z'];
const clip = element('defs', {}, element('clipPath', {}, element('rect', {})));
const ours = element('g', { [MARK]: '' }, stroked('M1 1'));

const FILLED = [element('g', { 'clip-path': 'url(#a)' }, filled(RIM), filled(HUB)), clip];
const STROKED = [stroked(HUB_STROKED), stroked(RIM_STROKED)];
const icon = (...parts: Drawn[]): Drawn => element('svg', SIZE, ...parts);

suite('the gear', () => {
  test('is known as both versions draw it, also under ours', () => {
    assert.equal(gearOf(icon(...FILLED)), 'filled');
    assert.equal(gearOf(icon(...STROKED)), 'stroked');
    assert.equal(gearOf(icon(...FILLED, ours)), 'filled');
    assert.equal(gearOf(icon(...STROKED, ours)), 'stroked');
  });

  test('has the size of a row\'s icon', () => {
    for (const more of [{ width: '14' }, { height: '18' }, { viewBox: '0 0 14 14' }]) assert.equal(gearOf(element('svg', { ...SIZE, ...more }, ...STROKED)), undefined);
    assert.equal(gearOf(element('svg', {}, ...STROKED)), undefined);
  });

  test('is nothing else', () => {
    const others: Record<string, Drawn[]> = {
      nothing: [],
      ours: [ours],
      'one path': [filled(RIM)],
      'one stroke': [stroked(RIM_STROKED)],
      'three strokes': [...STROKED, stroked('M1 1')],
      'a branch': [stroked('M1.01503 8.0001L5.6964 8Z'), stroked('M1.01221 7.9999L5.6964 8Z'), element('circle', { stroke: 'currentColor' })],
      'a hand of neither': [filled(RIM), stroked(HUB_STROKED)],
      'filled side by side': [filled(RIM), filled(HUB)],
      'colours of its own': [element('g', {}, element('path', { d: RIM, fill: 'red' }), filled(HUB))],
      'groups within groups': [element('g', {}, element('g', {}, filled(RIM), filled(HUB)))],
    };
    for (const [what, parts] of Object.entries(others)) assert.equal(gearOf(icon(...parts)), undefined, what);
  });
});
