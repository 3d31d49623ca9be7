/** Whatever is wrong with the row or the package: it is named, the harness starts, and `onFailure` decides about calls. */
import assert from 'node:assert/strict';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { type Dsh, HARNESS, type Home, limit, MODEL, type Patch, PROVIDER, ROW } from './dsh.ts';
import { inWorld, TEAM, type World } from './scenario.ts';
import { children, fanOut, gate, ROOT } from './scripts.ts';

const PROMPT = `[s:${ROOT}] split this up`;

/** Three children that generate at once if nothing stops them. */
const script = fanOut({ n: 3, holdMs: 700 });

/** A team's run whose calls all pass: its three children end when all of them generate. */
async function unlimited(config: Patch, run: (world: World) => Promise<unknown>): Promise<void> {
  const three = gate();
  await inWorld({ script: fanOut({ n: 3, until: three.opened }), profile: TEAM, config }, async (world) => {
    await Promise.all([run(world), world.crowd(3, three)]);
  });
}

/** The three children do their work. */
function threeWork(world: World): Promise<Dsh> {
  return world.team(PROMPT, () => children(3).every((child) => world.server.completed(child)));
}

/** A headless run whose calls are refused: none reaches the server. */
async function refused(config: Patch, run: (world: World) => Promise<Dsh>): Promise<void> {
  await inWorld({ script, profile: 'headless', config: { ...config, onFailure: 'closed' } }, async (world) => {
    const dsh = await run(world);
    assert.equal(await dsh.exited, 1);
    assert.match(dsh.stderr, /GEN_LIMITER_UNAVAILABLE/);
    assert.deepEqual(world.server.streams, []);
  });
}

describe('a wrong row is named with its field, and its valid rows are in force', { concurrency: 2 }, () => {
  const good = { provider: PROVIDER, model: MODEL, max: 1 };
  const wrong: Record<string, [row: unknown, named: RegExp]> = {
    'max is text': [{ provider: 'x', model: 'y', max: '2 sessions' }, /limits\[1\]\.max/],
    'max is missing': [{ provider: 'x', model: 'y' }, /limits\[1\]\.max/],
    'a key is misspelled': [{ provider: 'x', model: 'y', max: 1, maximum: 3 }, /limits\[1\]\.maximum/],
  };
  for (const [what, [row, named]] of Object.entries(wrong)) {
    test(what, () =>
      inWorld({ script, profile: TEAM, config: { limits: [good, row] } }, async (world) => {
        const dsh = await threeWork(world);
        assert.match(dsh.stderr, named);
        assert.equal(world.server.peakSessions, 1);
      }),
    );
  }
});

test('B8, B16 whatever a row of limits may not be is named at once, each with its place', () => {
  const good = { provider: PROVIDER, model: MODEL, max: 1 };
  const other = { provider: 'x', model: 'y' };
  const no: ReadonlyArray<readonly [row: string, field: string]> = [
    ...['"abc"', '"2 sessions"', '1e400', '.inf', '.nan', '{}', 'null', '', '""', 'false', '[]', '0.4', '-0.2', 'true', '[5]', '"0x10"', '-7'].map((max) =>
      [`{provider: x, model: y, max: ${max}}`, '.max'] as const),
    [JSON.stringify(other), '.max'],
    [JSON.stringify({ ...other, maximum: 3 }), '.maximum'],
    [JSON.stringify({ ...other, provider: 'a\0b', max: 1 }), '.provider'],
    [JSON.stringify({ ...other, model: 'm'.repeat(5_000), max: 1 }), '.model'],
    [JSON.stringify({ ...other, model: '  ', max: 1 }), '.model'],
    [JSON.stringify({ ...good, provider: ` ${PROVIDER} ` }), ''],
    ['7', ''],
  ];
  const rows = [JSON.stringify(good), ...no.map(([row]) => row)];
  return inWorld({ script, profile: TEAM }, async (world) => {
    await world.home.patchText(`- id: ${ROW}\n  config:\n    limits:\n${rows.map((row) => `      - ${row}\n`).join('')}`);
    const dsh = await threeWork(world);
    for (const [index, [row, field]] of no.entries()) {
      assert.ok(dsh.stderr.includes(`limits[${index + 1}]${field}: `), `${row} as limits[${index + 1}]${field} in ${dsh.stderr}`);
    }
    assert.match(dsh.stderr, /; what is valid of it is in force$/m);
    assert.equal(world.server.peakSessions, 1);
  });
});

/** What is wrong with an installed package, and how it is named. */
interface Fault {
  readonly part: 'gen-limit.wasm' | 'gen-limit.node';
  /** What stands in place of the part, made from it; without this nothing does. */
  readonly instead?: (part: Buffer) => Buffer;
  readonly named: RegExp;
}

const faults: Record<string, Fault> = {
  'no component': { part: 'gen-limit.wasm', named: /cannot be read.*expected a component/ },
  'half a component': {
    part: 'gen-limit.wasm',
    instead: (whole) => whole.subarray(0, whole.length / 2),
    named: /not a valid component/,
  },
  'a core module for a component': {
    part: 'gen-limit.wasm',
    instead: () => Buffer.from('\0asm\x01\0\0\0', 'latin1'),
    named: /core module, expected a component/,
  },
  'text for a component': {
    part: 'gen-limit.wasm',
    instead: () => Buffer.from('hello'),
    named: /not WebAssembly.*expected/,
  },
  'no addon': { part: 'gen-limit.node', named: /expected the native addon/ },
  'text for an addon': {
    part: 'gen-limit.node',
    instead: () => Buffer.from('hello'),
    named: /expected the native addon/,
  },
};

async function breakPackage(home: Home, { part, instead }: Fault): Promise<void> {
  const path = join(home.installed, part);
  const whole = await readFile(path);
  await rm(path);
  if (instead !== undefined) await writeFile(path, instead(whole));
}

describe('a part of the package is wrong: it is named and calls pass unlimited', { concurrency: 2 }, () => {
  for (const [what, fault] of Object.entries(faults)) {
    test(what, () =>
      unlimited(limit(1), async (world) => {
        await breakPackage(world.home, fault);
        const dsh = await threeWork(world);
        const line = dsh.stderr.split('\n').find((text) => text.startsWith('gen-limit: ')) ?? '';
        assert.match(line, fault.named);
        assert.ok(line.includes(join(world.home.installed, fault.part)), `the file is named: ${line}`);
      }),
    );
  }
});

describe('a part of the package is wrong and onFailure is closed: calls are refused', { concurrency: 2 }, () => {
  for (const what of ['no component', 'text for a component', 'no addon']) {
    test(what, () =>
      refused(limit(1), async (world) => {
        await breakPackage(world.home, faults[what] as Fault);
        return world.headless(PROMPT);
      }),
    );
  }
});

describe('a harness that is too old is named with the version it needs', { concurrency: 2 }, () => {
  const skip = HARNESS.command.length === 1 ? 'an executable in one piece cannot pretend to be of another version' : false;

  async function onOldHarness(world: World): Promise<Dsh> {
    const dsh = await world.headless(PROMPT, await pretending(world.home, '0.1.0-rc.7'));
    assert.match(dsh.stderr, /gen-limit: .*dsh 0\.1\.0-rc\.7.*0\.1\.0-rc\.8/);
    return dsh;
  }

  test('and calls pass unlimited', { skip }, () =>
    unlimited(limit(1), async (world) => {
      const dsh = await onOldHarness(world);
      assert.equal(await dsh.exited, 0, dsh.stderr);
    }));

  test('and calls are refused when onFailure is closed', { skip }, () => refused(limit(1), onOldHarness));
});

/** An entry point of the harness in a package that says it is of another version. */
async function pretending(home: Home, version: string): Promise<readonly [string, string]> {
  const folder = join(home.dir, 'old-dsh');
  await mkdir(folder);
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name: '@deepseek-ai/dsh', version, type: 'module' }));
  const bin = join(folder, 'bin.js');
  await writeFile(bin, `import ${JSON.stringify(pathToFileURL(HARNESS.command.at(-1) as string).href)};\n`);
  return [process.execPath, bin];
}
