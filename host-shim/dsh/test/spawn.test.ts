/** The spawn seam: tool calls of real agents that make real children. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { PreToolDecision, ToolExecutionResult } from '@deepseek-ai/dsh-tools';
import { Harness } from './harness.ts';
import { limit, settled, until } from './support.ts';

function text({ content }: ToolExecutionResult): string {
  return content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}

suite('spawn', () => {
  test('three spawns and their three children fit a limit of three', async () => {
    const harness = await Harness.make({ config: limit(3) });
    for (const prompt of ['one', 'two', 'three']) harness.spawn(prompt);
    await harness.grown();
    assert.deepEqual(harness.prompts.toSorted(), ['one', 'three', 'two']);
    assert.equal(harness.occupancy, 3);
    assert.deepEqual({ credits: harness.stats.credits, waiting: harness.waiting }, { credits: 0, waiting: 0 });
  });

  test('a spawn waits at capacity and passes when a seat is freed', async () => {
    const harness = await Harness.make({ config: limit(1) });
    harness.read('busy');
    const doing = harness.spawn('child');
    await harness.grown();
    assert.deepEqual(harness.backend.sessions, ['busy']);
    assert.equal(harness.waiting, 1);
    harness.backend.of('busy').end();
    await harness.grown();
    harness.asked('child').end('my answer');
    assert.match(text(await doing.result), /my answer/u);
    assert.equal(harness.occupancy, 0);
  });

  test('a spawn is denied only after its wait, with the code in the reason', async () => {
    const harness = await Harness.make({ config: limit(1, { queueTimeoutMs: 1000 }) });
    harness.read('busy');
    const doing = harness.spawn('child');
    await harness.grown();
    harness.gate.advance(999);
    await harness.grown();
    assert.equal(doing.ended, false);
    harness.gate.advance(1);
    const result = await doing.result;
    assert.equal(result.isError, true);
    assert.match(text(result), /GEN_CAPACITY_EXCEEDED/u);
    assert.deepEqual(harness.backend.sessions, ['busy']);
  });

  test('other tools are untouched, also when everything is paused', async () => {
    const harness = await Harness.make({ config: limit(0) });
    assert.equal(text(await harness.do('echo').result), 'echo');
  });

  test('a spawn onto a route without a limit is never gated', async () => {
    const harness = await Harness.make({ config: limit(0) });
    const free = await harness.agent('other');
    for (let n = 0; n < 5; n += 1) harness.spawn(`free ${n}`, free);
    await harness.grown();
    assert.equal(harness.backend.open.length, 5);
  });

  test('the tools that are paced are those that the configuration names now', async () => {
    const harness = await Harness.make({ config: limit(0, { spawnTools: [] }) });
    assert.equal(text(await harness.do('echo').result), 'echo');
    await harness.edit(limit(0, { spawnTools: ['echo'] }));
    const paced = harness.do('echo');
    await harness.grown();
    assert.deepEqual({ ended: paced.ended, waiting: harness.waiting }, { ended: false, waiting: 1 });
    await harness.edit(limit(0, { spawnTools: ['subagent'] }));
    assert.equal(text(await harness.do('echo').result), 'echo');
    assert.equal(paced.ended, false, 'who stands in line goes on waiting');
    await harness.edit(limit(1));
    assert.equal(text(await paced.result), 'echo');
  });

  test('B11 of eight spawns at once at limit 1 one passes, then one for each freed seat', async () => {
    const harness = await Harness.make({ config: limit(1) });
    const doings = Array.from({ length: 8 }, (_, n) => harness.spawn(`child ${n}`));
    const order: string[] = [];
    for (let n = 0; n < 8; n += 1) {
      await harness.grown();
      assert.equal(harness.backend.open.length, 1);
      assert.equal(harness.waiting, 7 - n);
      order.push(...harness.prompts);
      harness.backend.open[0]?.end();
    }
    await Promise.all(doings.map(({ result }) => result));
    assert.deepEqual(order, Array.from({ length: 8 }, (_, n) => `child ${n}`));
    assert.equal(harness.backend.peakSessions, 1);
  });

  test('B11 a child does not wait again behind those who came after its spawn', async () => {
    const harness = await Harness.make({ config: limit(1) });
    harness.read('first');
    await settled();
    harness.spawn('child');
    await settled();
    harness.read('second');
    harness.read('third');
    await settled();
    // The spawn passes and leaves a credit, which delays no stream: the second takes the seat before the child is there.
    harness.backend.of('first').end();
    await harness.grown();
    assert.deepEqual(harness.backend.sessions, ['second']);
    harness.backend.of('second').end();
    await harness.grown();
    assert.deepEqual(harness.prompts, ['child'], 'older by its spawn than the third');
  });

  test('an aborted spawn leaves the line and is reported as the harness\'s own cancellation', async () => {
    const harness = await Harness.make({ config: limit(1) });
    harness.read('busy');
    const doing = harness.spawn('child');
    await settled();
    assert.equal(harness.waiting, 1);
    doing.controller.abort(new Error('stop'));
    const result = await doing.result;
    assert.equal(harness.waiting, 0);
    assert.doesNotMatch(text(result), /GEN_CAPACITY/u);
    assert.match(text(result), /abort/iu);
    harness.backend.of('busy').end();
    await harness.grown();
    assert.equal(harness.backend.calls.length, 1);
  });

  test('a spawn that is aborted already takes no place and makes no child', async () => {
    const harness = await Harness.make({ config: limit(1) });
    const doing = harness.spawn('child');
    doing.controller.abort(new Error('at once'));
    await doing.result;
    await harness.grown();
    assert.deepEqual({ calls: harness.backend.calls.length, credits: harness.stats.credits }, { calls: 0, credits: 0 });
  });

  test('a spawn that another plugin denies takes no place', async () => {
    const harness = await Harness.make({ config: limit(0) });
    const off = harness.ctx.on('tools/pre-execute', async () => ({ kind: 'deny', reason: 'not today' }));
    assert.match(text(await harness.spawn('child').result), /not today/u);
    assert.equal(harness.waiting, 0);
    off();
  });

  test('a spawn that another plugin cancels takes no place and stays cancelled', async () => {
    const harness = await Harness.make({ config: limit(0) });
    const cancel = { kind: 'cancel', reason: 'never mind' } as unknown as PreToolDecision;
    const off = harness.ctx.on('tools/pre-execute', async () => cancel);
    const seen: unknown[] = [];
    const look = harness.ctx.on('tools/pre-execute', async (_exec, next) => {
      const decision = await next();
      seen.push(decision);
      return decision;
    }, { prepend: true });
    assert.equal((await harness.spawn('child').result).isError, true);
    assert.deepEqual(seen, [cancel]);
    assert.equal(harness.waiting, 0);
    look();
    off();
  });

  test('a denial carries its code as a code, for harnesses that have a place for it', async () => {
    const harness = await Harness.make({ config: limit(0, { maxQueued: 0 }) });
    const seen: unknown[] = [];
    const off = harness.ctx.on('tools/pre-execute', async (_exec, next) => {
      const decision = await next();
      if ('info' in decision) seen.push(decision.info);
      return decision;
    }, { prepend: true });
    await harness.spawn('child').result;
    assert.deepEqual(seen, [{ name: 'GenLimitError', code: 'GEN_CAPACITY_EXCEEDED' }]);
    off();
  });

  test('a spawn that is stopped before its body gives its credit back', async () => {
    const harness = await Harness.make({ config: limit(1) });
    const off = harness.ctx.tools.guard(({ name }) => (name === 'subagent' ? 'guarded' : undefined));
    assert.match(text(await harness.spawn('child').result), /guarded/u);
    assert.equal(harness.stats.credits, 0);
    off();
  });

  test('a spawn that fails in its body gives its credit back', async () => {
    const harness = await Harness.make({ config: limit(1) });
    const off = harness.ctx.on('tools/execute', () => Promise.reject(new Error('no child today')));
    assert.match(text(await harness.spawn('child').result), /no child/u);
    assert.equal(harness.stats.credits, 0);
    off();
  });

  test('a background spawn leaves its credit to its child', async () => {
    const harness = await Harness.make({ config: limit(2) });
    const doings = ['one', 'two', 'three'].map((prompt) =>
      harness.do('subagent', { description: prompt, prompt, run_in_background: true }));
    await harness.grown();
    assert.deepEqual(harness.prompts.toSorted(), ['one', 'two']);
    assert.deepEqual(doings.map(({ ended }) => ended), [true, true, false], 'the third waits for a seat');
    harness.asked('one').end();
    await harness.grown();
    assert.deepEqual(harness.prompts.toSorted(), ['three', 'two']);
  });

  test('a fork is paced like a spawn', async () => {
    const harness = await Harness.make({ config: limit(1) });
    for (const prompt of ['one', 'two']) harness.spawn(prompt, harness.root, 'subagent_fork');
    await harness.grown();
    assert.deepEqual(harness.prompts, ['one']);
    assert.equal(harness.waiting, 1);
  });

  test('a chain of three generations completes at limit 1: a parent that waits holds no seat', async () => {
    const harness = await Harness.make({ config: limit(1) });
    harness.backend.onCall = (call) => {
      const depth = /^depth (\d)$/u.exec(call.prompt)?.[1];
      const answered = call.options.messages.some(({ source }) => source?.kind === 'tool');
      if (depth === undefined || answered || depth === '3') return call.end(`answer of depth ${depth}`);
      const prompt = `depth ${Number(depth) + 1}`;
      call.ask({ name: 'subagent', arguments: { description: prompt, prompt } });
    };
    await harness.prompt('depth 0');
    assert.equal(new Set(harness.backend.calls.map(({ session }) => session)).size, 4);
    assert.equal(harness.backend.peakSessions, 1);
    assert.equal(harness.occupancy, 0);
  });

  test('B2 six children and a title beside them peak at two sessions at limit 2', async () => {
    const harness = await Harness.make({ config: limit(2) });
    await harness.withTitles();
    const tools = Array.from({ length: 6 }, (_, n) => ({ name: 'subagent', arguments: { description: `${n}`, prompt: `child ${n}` } }));
    const first = harness.prompt('fan out');
    let steps = 0;
    for (let idle = 0; idle < 20; ) {
      await harness.grown();
      const { open } = harness.backend;
      idle = open.length === 0 ? idle + 1 : 0;
      for (const call of open) {
        const root = call.session === harness.root.agent.id;
        if (root && call.options.purpose === undefined && steps++ === 0) call.ask(...tools);
        else call.end();
      }
    }
    await first;
    assert.equal(new Set(harness.backend.calls.map(({ session }) => session)).size, 7);
    assert.ok(harness.backend.calls.some(({ options }) => options.purpose === 'session-title'));
    assert.equal(harness.backend.peakSessions, 2);
  });

  test('B4 a spawn that waits goes on waiting over a restart, and its child inherits its place', async () => {
    const harness = await Harness.make({ config: limit(1) });
    harness.read('busy');
    await settled();
    harness.spawn('child');
    await settled();
    await harness.restart();
    assert.equal(harness.waiting, 1);
    harness.backend.of('busy').end();
    await harness.grown();
    assert.deepEqual(harness.prompts, ['child']);
  });

  test('B4 a spawn that waits proceeds when the row is disabled', async () => {
    const harness = await Harness.make({ config: limit(0) });
    harness.spawn('child');
    await settled();
    const { gate } = harness;
    await harness.disable();
    await until(() => gate.limiter === undefined);
    await until(() => harness.backend.open.length > 0);
    assert.deepEqual(harness.prompts, ['child']);
  });

  test('B4 a spawn that waits makes no child when the harness shuts down', async () => {
    const harness = await Harness.make({ config: limit(0) });
    const doing = harness.spawn('child');
    await settled();
    await harness.shutDown();
    assert.equal((await doing.result).isError, true);
    await harness.grown();
    assert.deepEqual(harness.let, []);
  });

  test('children that start in another order than their spawns fit all the same', async () => {
    const harness = await Harness.make({ config: limit(3) });
    // The first two spawns reach their bodies after the third.
    const held: Array<() => void> = [];
    const off = harness.ctx.on('tools/execute', async (exec, next) => {
      if ((exec.arguments as { prompt: string }).prompt !== 'three') await new Promise<void>((resolve) => held.push(resolve));
      return next();
    });
    for (const prompt of ['one', 'two', 'three', 'four']) harness.spawn(prompt);
    await harness.grown();
    assert.deepEqual(harness.prompts, ['three']);
    for (const go of held.toReversed()) go();
    await harness.grown();
    assert.deepEqual(harness.prompts.toSorted(), ['one', 'three', 'two']);
    assert.deepEqual({ occupancy: harness.occupancy, waiting: harness.waiting, credits: harness.stats.credits }, { occupancy: 3, waiting: 1, credits: 0 });
    off();
  });
});
