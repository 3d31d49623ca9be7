/**
 * A reporter for the test runner: one line for each case, `file, case, outcome, reason` with tabs between, for the table
 * in which `cargo xtask test` sets the harnesses side by side.
 */
import { basename } from 'node:path';
import type { TestEvent } from 'node:test/reporters';

interface Case {
  readonly name: string;
  readonly outcome: 'pass' | 'fail' | 'skip';
  readonly reason: string;
}

/** Reports. A suite is told after its cases; so each level keeps what has been told and has no suite yet. */
export default async function* cases(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const levels = new Map<string, Case[][]>();
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const { file = '', name, nesting, skip } = data;
    const told = levels.get(file) ?? [];
    levels.set(file, told);
    const within = told[nesting + 1] ?? [];
    told.length = nesting + 1;
    const outcome = skip !== undefined ? 'skip' : type === 'test:pass' ? 'pass' : 'fail';
    const reason = typeof skip === 'string' ? skip : '';
    const own = within.length === 0 ? [{ name, outcome, reason } as const] : within.map((one) => ({ ...one, name: `${name} › ${one.name}` }));
    (told[nesting] ??= []).push(...own);
    if (nesting > 0) continue;
    for (const one of own) yield `${[basename(file, '.test.ts'), one.name, one.outcome, one.reason].map(plain).join('\t')}\n`;
    told.length = 0;
  }
}

function plain(text: string): string {
  return text.replace(/\s+/gu, ' ');
}
