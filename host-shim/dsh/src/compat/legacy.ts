/**
 * The section that dsh 0.1 kept for us in `settings.yaml`.
 *
 * When 0.2 starts for the first time it moves the sections of that file into the rows of the same id, drops the others,
 * ours among them because our row has another id, and renames the file. So we read our section ourselves.
 */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { home } from '../stored.ts';
import { NAMESPACE } from './settings.ts';

/** The harness renames the first to the second at some moment of its start, so in this order one of them is found. */
const NAMES = ['settings.yaml', 'settings.yaml.imported'];

/** That section; undefined if there is none. Throws if there is something that cannot be read. */
export function legacySection(): object | undefined {
  for (const name of NAMES) {
    const path = join(home(), name);
    // Reading anything but a file may take for ever.
    if (!statSync(path, { throwIfNoEntry: false })?.isFile()) continue;
    const document: unknown = parse(readFileSync(path, 'utf8'));
    const section: unknown = isObject(document) ? Reflect.get(document, NAMESPACE) : undefined;
    if (isObject(section)) return section;
  }
  return undefined;
}

/** What YAML and JSON call a map. */
export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/*! Contains yaml (https://eemeli.org/yaml).
 *
 * Copyright Eemeli Aro <eemeli@gmail.com>
 *
 * Permission to use, copy, modify, and/or distribute this software for any purpose
 * with or without fee is hereby granted, provided that the above copyright notice
 * and this permission notice appear in all copies.
 *
 * THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
 * REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
 * FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
 * INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS
 * OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
 * TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
 * THIS SOFTWARE.
 */
