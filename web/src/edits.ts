/**
 * What a person changes, from the moment it is finished until it is stored.
 *
 * An edit says what it is about (a row by its scope, a field by its name), what the person saw there, and what it shall be. It is
 * laid over the settings as they are at the moment of writing, and written with their revision, so that of two cards neither
 * takes back what the other did. Where somebody else changed the very same row or field meanwhile, nothing is written; the person
 * decides. Edits that could not be stored stay until they are tried again or taken back; nothing else takes them along.
 */
import { type Config, type Group, type Limit, type Problem, Failure, type Section } from './api.ts';
import { same } from './same.ts';
import { scopeOfGroup, scopeOfLimit, textOf } from './scopes.ts';

/** The keys that hold rows. */
export type List = 'limits' | 'groups';
/** The keys that hold one value. */
export type Field = Exclude<keyof Config, List>;

/** One finished edit. */
export type Edit =
  | { readonly in: List; readonly key: string; readonly seen: Limit | Group | undefined; readonly want: Limit | Group | undefined }
  | { readonly in: 'fields'; readonly key: Field; readonly seen: unknown; readonly want: unknown };

/** Where an edit is shown. */
export function placeOf(edit: Pick<Edit, 'in' | 'key'>): string {
  return `${edit.in}:${edit.key}`;
}

/** What became of edits that are not stored. */
export interface Pending {
  readonly edit: Edit;
  readonly state: 'saving' | 'failed' | 'conflict';
  /** Why it is not stored. */
  readonly error?: string;
  /** What somebody else made of it; nothing where it was removed. */
  readonly theirs?: unknown;
}

/** A row with what names it. */
export interface Row<T> {
  /** Names the row among all of its list, whatever stands in it. */
  readonly key: string;
  readonly row: T;
  readonly index: number;
}

/** The rows of a list by their keys: the scope's text, or for a row without one, or a second one of a scope, its number. */
export function rowsOf<L extends List>(list: L, config: Config): ReadonlyArray<Row<L extends 'limits' ? Limit : Group>> {
  const rows: unknown = config[list];
  if (!Array.isArray(rows)) return [];
  const taken = new Set<string>();
  return rows.map((row: unknown, index) => {
    const found = Object(row) as Partial<Limit & Group>;
    const scope = list === 'limits' ? scopeOfLimit(found) : scopeOfGroup(found);
    const text = scope === undefined ? `#${index}` : textOf(scope);
    const key = taken.has(text) ? `${text}#${index}` : text;
    taken.add(key);
    return { key, row: (row ?? {}) as L extends 'limits' ? Limit : Group, index };
  });
}

/** What stands where an edit belongs. */
export function valueAt(config: Config, { in: list, key }: Pick<Edit, 'in' | 'key'>): unknown {
  if (list === 'fields') return config[key as Field];
  return rowsOf(list, config).find((row) => row.key === key)?.row;
}

/** The keys to replace so that the edits hold. */
export function patchOf(config: Config, edits: readonly Edit[]): Config {
  const patch: Record<string, unknown> = {};
  for (const edit of edits) patch[edit.in === 'fields' ? edit.key : edit.in] = edit.want;
  for (const list of ['limits', 'groups'] as const) {
    if (!(list in patch)) continue;
    // All of them are about the rows as they are now: where one goes, the keys of those behind it may be others.
    const wanted = new Map(edits.filter((edit) => edit.in === list).map(({ key, want }) => [key, want]));
    const next = rowsOf(list, config).map(({ key, row }): unknown => {
      const want = wanted.has(key) ? wanted.get(key) : row;
      wanted.delete(key);
      return want;
    });
    patch[list] = [...next, ...wanted.values()].filter((row) => row !== undefined);
  }
  return patch as Config;
}

/** What the edits need of the world. */
export interface Store {
  /** The settings as they were last read. */
  section(): Section | undefined;
  /** They are this now. */
  know(section: Section): void;
  write(patch: Config, revision: string | null): Promise<Section>;
}

/** How often a write is tried anew after somebody else was quicker with something else. */
const TRIES = 5;

export class Edits {
  readonly #store: Store;
  readonly #listeners = new Set<() => void>();
  #pending: ReadonlyMap<string, Pending> = new Map();
  #writing = false;

  constructor(store: Store) {
    this.#store = store;
  }

  /** What is not stored, by its place; the same object until something else is. */
  readonly get = (): ReadonlyMap<string, Pending> => this.#pending;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Stores an edit. */
  readonly submit = (edit: Edit): void => {
    // Who edits again what is not stored yet has seen the own edit, not the settings.
    const before = this.#pending.get(placeOf(edit))?.edit;
    this.submitAll([before === undefined ? edit : since(edit, before.seen)]);
  };

  /** Stores edits that hold only together. */
  readonly submitAll = (edits: readonly Edit[]): void => {
    for (const edit of edits) this.#put({ edit, state: 'saving' });
    void this.#write();
  };

  /** The person's own decision in a conflict: what somebody else did is seen, and overruled. */
  readonly insist = (place: string): void => {
    const found = this.#pending.get(place);
    if (found !== undefined) this.submitAll([since(found.edit, found.theirs)]);
  };

  /** Takes an edit back. */
  readonly discard = (place: string): void => {
    this.#drop([place]);
  };

  /** The settings were read anew: what is in conflict with them now, and with what, and what is no more? */
  readonly look = (): void => {
    void this.#write();
  };

  /** Tries again what failed. */
  readonly again = (): void => {
    this.submitAll([...this.#pending.values()].filter(({ state }) => state === 'failed').map(({ edit }) => edit));
  };

  async #write(): Promise<void> {
    // What is on its way is not judged by settings that may have it already.
    if (this.#writing) return;
    this.#writing = true;
    try {
      for (let tries = 1; ; ) {
        const edits = this.#ready();
        const section = this.#store.section();
        if (section === undefined || edits.length === 0) return;
        try {
          this.#store.know(await this.#store.write(patchOf(section.value, edits), section.revision));
          for (const edit of edits) this.#stored(edit);
        } catch (error) {
          const failure = error instanceof Failure ? error : new Failure(String(error));
          if (failure.status === 409 && failure.section !== undefined) {
            this.#store.know(failure.section);
            if (tries++ < TRIES) continue;
          }
          this.#fail(section.value, edits, failure);
        }
        tries = 1;
      }
    } finally {
      this.#writing = false;
    }
  }

  /** What is to be written now: conflicts are found and set aside, what holds already is done. */
  #ready(): readonly Edit[] {
    const config = this.#store.section()?.value;
    if (config === undefined) return [];
    for (const [place, { edit, state }] of this.#pending) {
      const now = valueAt(config, edit);
      if (same(now, edit.want)) this.#drop([place]);
      else if (!same(now, edit.seen)) this.#put({ edit, state: 'conflict', theirs: now });
      else if (state === 'conflict') this.#put({ edit, state: 'saving' });
    }
    return [...this.#pending.values()].filter(({ state }) => state === 'saving').map(({ edit }) => edit);
  }

  /** What was edited again while it was written stays, and begins from what is stored now. */
  #stored(edit: Edit): void {
    const found = this.#pending.get(placeOf(edit));
    if (found?.edit === edit) this.#drop([placeOf(edit)]);
    else if (found !== undefined) this.#put({ ...found, edit: since(found.edit, edit.want) });
  }

  #fail(config: Config, edits: readonly Edit[], failure: Failure): void {
    const patch = patchOf(config, edits);
    for (const edit of edits) {
      if (this.#pending.get(placeOf(edit))?.edit !== edit) continue;
      this.#put({ edit, state: 'failed', error: why(patch, edit, failure) });
    }
  }

  #put(pending: Pending): void {
    this.#tell(new Map(this.#pending).set(placeOf(pending.edit), pending));
  }

  #drop(places: readonly string[]): void {
    const rest = new Map(this.#pending);
    for (const place of places) rest.delete(place);
    if (rest.size !== this.#pending.size) this.#tell(rest);
  }

  #tell(pending: ReadonlyMap<string, Pending>): void {
    this.#pending = pending;
    for (const listener of [...this.#listeners]) listener();
  }
}

/** The edit of somebody who saw this. */
function since(edit: Edit, seen: unknown): Edit {
  return { ...edit, seen } as Edit;
}

/** Why an edit was not stored: what is wrong with its own value, or else all that was wrong. */
function why(patch: Config, edit: Edit, { message, problems }: Failure): string {
  const own = problems.filter(({ path }) => belongs(patch, edit, path));
  const told = own.length > 0 ? own : problems;
  return told.length === 0 ? message : told.map(({ path, message }) => `${path}: ${message}`).join('; ');
}

function belongs(patch: Config, edit: Edit, path: string): boolean {
  if (edit.in === 'fields') return path === edit.key || path.startsWith(`${edit.key}[`);
  return rowsOf(edit.in, patch).some(({ key, index }) => key === edit.key && rowPath(path) === `${edit.in}[${index}]`);
}

/** The row that a problem is in, such as `limits[2]`; the whole path where it is in none. */
export function rowPath(path: string): string {
  return /^(?:limits|groups)\[\d+\]/u.exec(path)?.[0] ?? path;
}

/** What of the problems is in a row. */
export function problemsAt(problems: readonly Problem[], list: List, index: number): readonly Problem[] {
  const found = problems.filter(({ path }) => rowPath(path) === `${list}[${index}]`);
  return found.length === 0 ? NONE : found;
}

/** The same where there are none, so that a row is drawn again only when it is another. */
export const NONE: readonly Problem[] = [];
