#!/usr/bin/env node
/**
 * What can be asked of the package without a harness: `npx @creait/dsh-gen-limit <command>`.
 *
 * A command is a row of the table below. It prints what it answers to stdout, lines for people or with `--json` one document
 * for programs. What is wrong it says on stderr, or as the `error` of that document.
 */
import { parseArgs } from 'node:util';
import manifest from '../package.json' with { type: 'json' };
import type * as Addon from '../../node/index.d.ts';
import { describe } from './gate.ts';
import { loadAddon, packaged } from './load.ts';

/** How it ends. */
const FINE = 0;
const REFUSED = 1;
const MISUSED = 2;
const NO_ADDON = 3;

interface Command {
  /** What stands after its name. */
  readonly operands: readonly string[];
  readonly help: string;
  /** Answers; what it throws is why the answer is no. */
  run(operands: readonly string[], addon: () => typeof Addon): Promise<Answer>;
}

interface Answer {
  readonly document: unknown;
  readonly lines: readonly string[];
}

const COMMANDS: Readonly<Record<string, Command>> = {
  inspect: {
    operands: ['FILE'],
    help: 'what a .wasm is and wants, or why it would not be loaded; nothing of it is run',
    async run([file = ''], addon) {
      const { inspect } = addon();
      const found = await inspect(file);
      return { document: found, lines: inspection(found) };
    },
  },
};

/** The addon is missing, or for another platform. */
class NoAddon extends Error {}

function inspection({ file, sha256, size, world, imports, exports, producers }: Addon.Inspected): string[] {
  const listed = (names: readonly string[]): string => (names.length === 0 ? 'nothing' : names.join(', '));
  const rows = [
    ['file', file],
    ['sha256', sha256],
    ['size', `${size} bytes`],
    ['world', `dsh:plugin/${world}`],
    ['imports', `${listed(imports)} (host interfaces only, no WASI)`],
    ['exports', listed(exports)],
    ...producers,
  ] as const;
  return rows.map(([what, value]) => `${what.padEnd(12)} ${value}`);
}

function help(): string {
  const commands = Object.entries(COMMANDS).map(([name, { operands, help }]) => [[name, ...operands].join(' '), help] as const);
  const width = Math.max(...commands.map(([usage]) => usage.length));
  return [
    `Usage: npx ${manifest.name} <command> [--json]`,
    '',
    ...commands.map(([usage, text]) => `  ${usage.padEnd(width)}  ${text}`),
    '',
    '  --json     the answer as one JSON document; what is wrong as its `error`',
    '  --help     this',
    '  --version  the version of the package',
    '',
    `Ends with ${FINE} if all is well, ${REFUSED} if the file would be refused, ${MISUSED} if the command is not understood, ${NO_ADDON} if there is no`,
    'addon for this platform.',
    '',
  ].join('\n');
}

function addon(): typeof Addon {
  try {
    return loadAddon(packaged().addon);
  } catch (error) {
    throw new NoAddon(describe(error));
  }
}

async function main(words: string[]): Promise<number> {
  const misused = (why: string): number => {
    process.stderr.write(`${why}\n\n${help()}`);
    return MISUSED;
  };
  const options = { json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' }, version: { type: 'boolean' } } as const;
  let asked;
  try {
    asked = parseArgs({ args: words, options, allowPositionals: true });
  } catch (error) {
    return misused(describe(error));
  }
  const { values, positionals: [name, ...operands] } = asked;
  if (values.help) process.stdout.write(help());
  if (values.version) process.stdout.write(`${manifest.version}\n`);
  if (values.help || values.version) return FINE;
  if (name === undefined) return misused('which command?');
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command === undefined) return misused(`no command is called ${name}`);
  if (operands.length !== command.operands.length) return misused(`expected: ${[name, ...command.operands].join(' ')}`);
  try {
    const { document, lines } = await command.run(operands, addon);
    process.stdout.write(`${values.json ? JSON.stringify(document, undefined, 2) : lines.join('\n')}\n`);
    return FINE;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    if (values.json) process.stdout.write(`${JSON.stringify({ error: why }, undefined, 2)}\n`);
    else process.stderr.write(`${why}\n`);
    return error instanceof NoAddon ? NO_ADDON : REFUSED;
  }
}

process.exitCode = await main(process.argv.slice(2));
