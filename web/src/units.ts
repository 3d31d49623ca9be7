/** Durations as people read and write them. */
import type { Translate, Word } from './words/index.ts';

const UNITS = [
  ['unit.d', 86_400_000],
  ['unit.h', 3_600_000],
  ['unit.min', 60_000],
  ['unit.s', 1_000],
  ['unit.ms', 1],
] as const satisfies ReadonlyArray<readonly [Word, number]>;

/** How units are written, in any language of ours. */
const WRITTEN: Readonly<Record<string, number>> = {
  d: 86_400_000, day: 86_400_000, days: 86_400_000, 天: 86_400_000, 日: 86_400_000,
  h: 3_600_000, hr: 3_600_000, hour: 3_600_000, hours: 3_600_000, 小时: 3_600_000, 时: 3_600_000,
  m: 60_000, min: 60_000, mins: 60_000, minute: 60_000, minutes: 60_000, 分钟: 60_000, 分: 60_000,
  s: 1_000, sec: 1_000, secs: 1_000, second: 1_000, seconds: 1_000, 秒: 1_000, 秒钟: 1_000,
  ms: 1, 毫秒: 1,
};

/** Exactly this long, in whole units: `1 min 30 s`. */
export function exactly(ms: number, t: Translate): string {
  const parts: string[] = [];
  let rest = ms;
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count === 0) continue;
    parts.push(t(unit, { n: count }));
    rest -= count * size;
  }
  return parts.length === 0 ? t('unit.s', { n: 0 }) : parts.join(' ');
}

/** About this long, in the two greatest units: `1 h 5 min`, `14 s`. */
export function about(ms: number, t: Translate): string {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return t('unit.s', { n: seconds });
  const minutes = Math.floor(seconds / 60);
  const second = (count: number, unit: Word): string => (count === 0 ? '' : ` ${t(unit, { n: count })}`);
  if (minutes < 60) return t('unit.min', { n: minutes }) + second(seconds % 60, 'unit.s');
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return t('unit.h', { n: hours }) + second(minutes % 60, 'unit.min');
  return t('unit.d', { n: Math.floor(hours / 24) }) + second(hours % 24, 'unit.h');
}

/** What a person wrote, in milliseconds; a number alone is seconds. Nothing where it is no duration. */
export function milliseconds(text: string): number | undefined {
  const trimmed = text.trim().toLowerCase();
  if (/^\d+(?:\.\d+)?$/u.test(trimmed)) return whole(Number(trimmed) * 1_000);
  const part = /(\d+(?:\.\d+)?)\s*([a-z]+|[天日小时分钟秒毫]+)\s*/uy;
  let sum = 0;
  while (part.lastIndex < trimmed.length) {
    const found = part.exec(trimmed);
    const size = found?.[2] === undefined ? undefined : WRITTEN[found[2]];
    if (found === null || size === undefined) return undefined;
    sum += Number(found[1]) * size;
  }
  return trimmed === '' ? undefined : whole(sum);
}

function whole(ms: number): number | undefined {
  const rounded = Math.round(ms);
  return Number.isSafeInteger(rounded) ? rounded : undefined;
}

/** What a person wrote as a whole number; nothing where it is none, or out of bounds. */
export function integer(text: string, least: number, most: number): number | undefined {
  const trimmed = text.trim();
  if (!/^\d+$/u.test(trimmed)) return undefined;
  const value = Number(trimmed);
  return value >= least && value <= most ? value : undefined;
}
