/**
 * What the sections share: rounds in which the cases take turns, so that whatever else the machine does is the same for all
 * of them, and the ways to tell what was measured.
 */
import { cpus, loadavg } from 'node:os';

/** Of several rounds. */
export interface Taken {
  readonly best: number;
  readonly median: number;
}

export function taken(rounds: readonly number[]): Taken {
  const sorted = rounds.toSorted((a, b) => a - b);
  return { best: sorted[0] ?? NaN, median: sorted[sorted.length >> 1] ?? NaN };
}

/** Nanoseconds of a processor that each of `times` takes. */
export async function burnt(times: number, work: () => Promise<unknown> | unknown): Promise<number> {
  const begun = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(begun);
  return ((user + system) * 1e3) / times;
}

/** What each of `times` takes, case by case; every case does its work once per round. */
export async function turns<K extends string>(rounds: number, times: number, cases: Readonly<Record<K, () => Promise<unknown> | unknown>>): Promise<Record<K, Taken>> {
  const names = Object.keys(cases) as K[];
  const all = new Map<K, number[]>(names.map((name) => [name, []]));
  // The first round is for the compiler.
  for (let round = 0; round <= rounds; round += 1) {
    for (const name of names) {
      const each = await burnt(times, cases[name]);
      if (round > 0) all.get(name)?.push(each);
    }
  }
  return Object.fromEntries(names.map((name) => [name, taken(all.get(name) ?? [])])) as Record<K, Taken>;
}

/** What a section has found out: a line each, with what is aimed at. */
export interface Row {
  readonly what: string;
  readonly unit: string;
  readonly best?: number | undefined;
  readonly median: number;
  readonly aim?: number | undefined;
}

export const ns = (what: string, { best, median }: Taken, aim?: number): Row => ({ what, unit: 'ns', best, median, aim });

/** What one case costs more than another. */
export const added = (what: string, taken: Taken, without: Taken, aim?: number): Row =>
  ns(what, { best: taken.best - without.best, median: taken.median - without.median }, aim);

export const ratio = (what: string, median: number, aim?: number): Row => ({ what, unit: '×', median, aim });

const WIDTH = 68;

/** Prints a section, as `cargo xtask bench` wants it. */
export function tell(rows: readonly Row[]): void {
  const machine = { processor: cpus()[0]?.model ?? 'unknown', cores: cpus().length, node: process.version, load: loadavg()[0] };
  if (process.argv.includes('--json')) {
    console.log(JSON.stringify({ machine, rows }, undefined, 2));
    return;
  }
  const number = (value: number | undefined): string => {
    if (value === undefined) return ''.padStart(10);
    return value.toFixed(Math.abs(value) < 10 ? 2 : 0).padStart(10);
  };
  console.log(`${machine.processor}, ${machine.cores} cores, load ${machine.load?.toFixed(1)}, Node ${machine.node}`);
  console.log(`${''.padEnd(WIDTH)} ${'best'.padStart(9)}${'median'.padStart(10)}${'aim'.padStart(10)}`);
  for (const { what, unit, best, median, aim } of rows) {
    console.log(`${what.padEnd(WIDTH)}${number(best)}${number(median)}${number(aim)} ${unit}`.trimEnd());
  }
}
