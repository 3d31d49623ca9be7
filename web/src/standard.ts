/** The model that the harness itself begins with, where its page knows it. */

/** What follows it. */
export interface Standard {
  readonly get: () => { readonly provider?: unknown; readonly model?: unknown } | undefined;
  readonly subscribe: (listener: () => void) => () => void;
}

/** The harness's own view of its settings, as both versions have it. */
interface Described {
  getSnapshot(): { readonly view?: { readonly namespaces: ReadonlyArray<{ readonly ns: string; readonly value?: unknown }> } | undefined };
  subscribe(listener: () => void): () => void;
  ensure?(): Promise<void>;
}

let services: (name: string) => unknown = () => undefined;

/** Where services of the page are found; looked up each time that a card is mounted. */
export function findServices(get: (name: string) => unknown): void {
  services = get;
}

/** Begins to follow it. */
export function standardRoute(): Standard {
  for (const name of ['settingsScope', 'configForms']) {
    const found = services(name) as { describe?(): Described } | undefined;
    const face = found?.describe?.();
    if (face === undefined) continue;
    void face.ensure?.();
    return {
      get: () => face.getSnapshot().view?.namespaces.find(({ ns }) => ns === 'agent-default-model')?.value as ReturnType<Standard['get']>,
      subscribe: (listener) => face.subscribe(listener),
    };
  }
  return { get: () => undefined, subscribe: () => () => undefined };
}
