/**
 * What the component can ask of the harness: its own section of the settings, providers and their models, what people call a
 * session. Everything is looked up at the moment it is asked for, and everything is answered within a bound, because
 * until then a request stays open.
 */
import type { Context } from '@deepseek-ai/cordis';
import type { Session, SessionId } from '@deepseek-ai/dsh-session';
import type {} from '@deepseek-ai/dsh-llm';
import type {} from '@deepseek-ai/dsh-session-title';
import type {} from '@deepseek-ai/dsh-subagent';
import type { Ask, Model, Section, SessionInfo, SettingsError } from '../../node/index.d.ts';
import { ownEvents } from './compat/harness.ts';
import { inWords } from './report.ts';
import type { Reply } from './requests.ts';
import { SettingsFailure, type Settings } from './settings.ts';
import { within } from './within.ts';

/** How long a provider has to list its models, in milliseconds. */
const LIST_MS = 2_000;
/**
 * How many providers are told of, how many models of one, and how many models in all, in equal shares where there are many
 * providers. A component hears of one more, so that it can say that there are more.
 */
const MAX_PROVIDERS = 200;
const MAX_MODELS = 500;
const MAX_MODELS_IN_ALL = 5_000;
/** How many sessions it hears of. */
const MAX_SESSIONS = 2_000;
/** How much of a name is told, in characters. */
const MAX_NAME = 200;
/** How far up a session's ancestors are followed. */
const MAX_DEPTH = 64;

/** How soon a title is looked for again in a log that grows, and how late, in milliseconds. */
const TITLE_SOONEST_MS = 1_000;
const TITLE_LATEST_MS = 10_000;

/** Answers what a component asks. Sessions that are not for it to hear of are as good as unknown. */
export function answer(
  ask: Ask,
  root: Context,
  settings: Settings,
  isKnown: (session: Session) => boolean = () => true,
): Reply | Promise<Reply> {
  const { id, kind } = ask;
  switch (kind) {
    case 'read-settings':
      return section(id, () => settings.read());
    case 'update-settings':
      return section(id, () => settings.update(ask.json ?? '{}', ask.revision));
    case 'list-providers':
      return providers(id, root);
    case 'list-models':
      return models(id, root, ask.provider ?? '');
    case 'describe-sessions':
      return (limiter) => limiter.answerSessions(id, sessions(root, ask.sessions ?? [], isKnown));
  }
}

async function section(id: number, work: () => Promise<Section>): Promise<Reply> {
  try {
    const found = await work();
    return (limiter) => limiter.answerSettings(id, found);
  } catch (error) {
    const failure = settingsError(error);
    return (limiter) => limiter.answerSettings(id, undefined, failure);
  }
}

function settingsError(error: unknown): SettingsError {
  const message = inWords(error);
  if (!(error instanceof SettingsFailure)) return { kind: 'other', message };
  return { kind: error.kind, message, ...(error.section === undefined ? {} : { section: error.section }) };
}

function providers(id: number, root: Context): Reply {
  try {
    const found = (root.get('llm')?.listProviders() ?? []).slice(0, MAX_PROVIDERS + 1).map(named);
    return (limiter) => limiter.answerProviders(id, found);
  } catch {
    return (limiter) => limiter.decline(id);
  }
}

async function models(id: number, root: Context, provider: string): Promise<Reply> {
  try {
    const list = async (): Promise<readonly Model[]> => {
      const llm = root.get('llm');
      if (llm === undefined) throw new Error('this harness has no llm service');
      return llm.listModels(provider);
    };
    const found = await within(LIST_MS, list, new Error(`no list of models within ${LIST_MS / 1000} s`));
    const told = found.slice(0, share(root) + 1).map(named);
    return (limiter) => limiter.answerModels(id, told);
  } catch (error) {
    return (limiter) => limiter.answerModels(id, undefined, `${provider}: ${inWords(error)}`);
  }
}

/** How many models are told of each provider. */
function share(root: Context): number {
  const providers = Math.min(root.get('llm')?.listProviders().length ?? 0, MAX_PROVIDERS);
  return Math.min(MAX_MODELS, Math.floor(MAX_MODELS_IN_ALL / Math.max(providers, 1)));
}

/** Ids are whole, or they would name something else. */
function named({ id, name }: Model): Model {
  return { id, name: name.slice(0, MAX_NAME) };
}

/** The harness as one question sees it. Every look at a service costs more than what is done with it, so each is taken once. */
interface Known {
  readonly find: (id: string) => Session | undefined;
  readonly titleOf: (session: Session) => string | undefined;
}

function sessions(root: Context, ids: readonly string[], isKnown: (session: Session) => boolean): SessionInfo[] {
  const [store, titles] = [root.get('sessions'), root.get('sessionTitle')];
  const found = new Map<string, Session | undefined>();
  const find = (id: string): Session | undefined => {
    if (!found.has(id)) found.set(id, store?.get(id as SessionId));
    return found.get(id);
  };
  const known: Known = { find, titleOf: (session) => titles?.get(session)?.title };
  return ids.slice(0, MAX_SESSIONS).flatMap((id) => {
    try {
      const session = find(id);
      return session === undefined || !isKnown(session) ? [] : [described(known, session)];
    } catch {
      return [];
    }
  });
}

function described(known: Known, session: Session): SessionInfo {
  const label = labelOf(known, session);
  const parent = session.header.parentSession;
  const top = topOf(known, session);
  return {
    id: session.id,
    ...(label ? { label } : {}),
    ...(parent === undefined ? {} : { parent }),
    ...(top === undefined ? {} : { root: top }),
  };
}

interface Label {
  readonly text: string | undefined;
  /** The length of the log that it was found in. */
  readonly seq: number;
  readonly until: number;
  readonly restMs: number;
}

const labels = new WeakMap<Session, Label>();

/**
 * What people call it. To look for a title is to read the whole log, of which the harness makes a copy for everybody who reads:
 * whoever shows hundreds of sessions every second would feel it. So it is looked for when the log has grown, and then the less
 * often the longer the session has been looked at.
 */
function labelOf(known: Known, session: Session): string | undefined {
  const now = performance.now();
  const last = labels.get(session);
  if (last !== undefined && (last.seq === session.seq || now < last.until)) return last.text;
  const restMs = last === undefined ? TITLE_SOONEST_MS : Math.min(2 * last.restMs, TITLE_LATEST_MS);
  const text = foundLabel(known, session)?.slice(0, MAX_NAME);
  labels.set(session, { text, seq: session.seq, until: now + restMs, restMs });
  return text;
}

/** Its title, or what it was spawned for. */
function foundLabel({ titleOf }: Known, session: Session): string | undefined {
  const title = titleOf(session);
  if (title || session.header.parentSession === undefined) return title;
  return ownEvents(session).find((event) => event.type === 'subagent/descriptor')?.data.label;
}

/** The root of its tree; unknown where an ancestor is not there any more. */
function topOf({ find }: Known, session: Session): string | undefined {
  let top: Session | undefined = session;
  for (let depth = 0; top !== undefined && depth < MAX_DEPTH; depth += 1) {
    const parent: string | undefined = top.header.parentSession;
    if (parent === undefined) return top.id;
    top = find(parent);
  }
  return undefined;
}
