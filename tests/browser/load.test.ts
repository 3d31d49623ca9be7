/** Many wait in many lines: the page stays quick, and looking costs the harness next to nothing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { PACKAGE, PROBE, PROVIDER } from '../e2e/dsh.ts';
import { gate } from '../e2e/scripts.ts';
import { onPage, type Ui } from './browser.ts';
import { atWork, Card } from './card.ts';

const ROUTES = 50;
const WAITERS = 500;

/** How long a task of the page may take, in milliseconds. */
const TASK_MS = 50;
/** How much of a processor looking may cost the harness. */
const SHARE = 0.01;
/** What the harness takes at most while nobody looks, on a machine that is left alone. Where it takes more, everything does. */
const IDLE_SHARE = 0.005;

/** For how long each is looked at, in milliseconds. */
const WHILE_MS = 10_000;
/** Long enough for everything that is asked now and then, and for a processor time that is told in hundredths of a second. */
const TURN_MS = 10_000;
const TURNS = 3;
const SETTLE_MS = 1_500;

const models = Array.from({ length: ROUTES }, (_, index) => `model-${String(index + 1).padStart(2, '0')}`);

/** How long the tasks of the page were in a trace, the longest first: in time of the processor, whoever else wants it. */
async function traced({ page }: Ui, ms: number): Promise<number[]> {
  const browser = page.context().browser();
  await browser?.startTracing(page, { categories: ['toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline'] });
  await page.waitForTimeout(ms);
  const trace = JSON.parse(String(await browser?.stopTracing())) as { traceEvents: TraceEvent[] };
  const threads = new Set(trace.traceEvents.filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain').map(threadOf));
  const tasks = trace.traceEvents.filter((event) => event.name.endsWith('RunTask') && event.tdur !== undefined && threads.has(threadOf(event)));
  return tasks.map(({ tdur = 0 }) => tdur / 1_000).sort((a, b) => b - a);
}

interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  /** Time of the thread, in microseconds. */
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

function threadOf({ pid, tid }: TraceEvent): string {
  return `${pid}:${tid}`;
}

test('500 in line for 50 models', (t) => {
  const held = gate();
  const config = { limits: models.map((model) => ({ provider: PROVIDER, model, max: 1 })), queueTimeoutMs: 0 };
  return atWork({ script: () => ({ text: 'done', until: held.opened }), packages: [PACKAGE, PROBE], models, config }, async ({ server, home }, dsh) => {
    const streams = models.flatMap((model) => Array.from({ length: WAITERS / ROUTES + 1 }, () => dsh.probe('stream', { provider: PROVIDER, model, text: '[s:direct] work' })));
    await server.until('one of each', () => server.streams.length === ROUTES);
    await home.traced('all in line', () => home.waiting().length === WAITERS);

    await t.test('the page is never held up for long', () =>
      onPage(dsh, {}, async (ui) => {
        const card = new Card(ui, await ui.settings());
        await card.says(ui.t('limits.waiting.other', { n: WAITERS / ROUTES }));
        await card.polls(2);
        const tasks = await traced(ui, WHILE_MS);
        t.diagnostic(`the longest of ${tasks.length} tasks within ${WHILE_MS} ms: ${tasks.slice(0, 3).map((ms) => `${ms.toFixed(1)} ms`).join(', ')}`);
        assert.ok(tasks.length > 100, 'the trace has the tasks');
        assert.deepEqual(tasks.filter((ms) => ms >= TASK_MS), []);
        await ui.shot('crowd');
      }));

    await t.test('looking costs the harness less than a hundredth of a processor', () =>
      onPage(dsh, {}, async (ui) => {
        const card = new Card(ui, await ui.settings());
        await card.polls(2);
        // In turns; of each the cheapest counts, since whatever else the machine does only adds.
        const used = { hidden: Infinity, visible: Infinity };
        for (let turn = 0; turn < TURNS; turn += 1) {
          for (const state of ['hidden', 'visible'] as const) {
            await ui.see(state);
            // What is asked for once, when a page is seen again, is no polling.
            await ui.page.waitForTimeout(SETTLE_MS);
            const before = dsh.cpuMs;
            await ui.page.waitForTimeout(TURN_MS);
            used[state] = Math.min(used[state], (dsh.cpuMs - before) / TURN_MS);
          }
        }
        t.diagnostic(`of a processor: ${(100 * used.hidden).toFixed(2)} % while nobody looks, ${(100 * used.visible).toFixed(2)} % while somebody does`);
        assert.ok(used.visible - used.hidden < SHARE * Math.max(1, used.hidden / IDLE_SHARE), JSON.stringify(used));
      }));

    held.open();
    await Promise.all(streams);
  });
});
