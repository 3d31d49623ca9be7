/**
 * An honest mock of a model provider.
 *
 * It speaks enough of OpenAI's streaming chat completions for the harness to work against it, on 127.0.0.1, and
 * generates nothing: every answer comes from a script. What is real is what it counts. A stream is *open* from the
 * moment its request has arrived until its last byte is handed over or its client is gone, so peaks, completed and
 * failed streams are what a provider would have seen, whatever the plugin under test believes.
 *
 * A request belongs to the session named by the last `[s:NN]` tag in what its users wrote. Titles and summaries quote
 * the prompt they are about, forks end with their own, so all of them find their session too.
 */
import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import { PATIENCE_MS } from './patience.ts';

/** What a request is for, as far as its instructions tell. */
export type Purpose = 'chat' | 'title' | 'compaction';

/** One request, as the script sees it. */
export interface Arrival {
  readonly id: number;
  readonly session: string;
  readonly purpose: Purpose;
  readonly model: string;
  /** How many requests of this session and purpose came before. */
  readonly turn: number;
  /** Whether the conversation already holds a tool call of the model's. */
  readonly delegated: boolean;
  /** What the tools it called have answered. */
  readonly results: readonly string[];
  /** How many of its subagents it knows to have ended in the background. */
  readonly settled: number;
  /** Names of the tools on offer. */
  readonly tools: readonly string[];
}

/** A tool call to answer with. */
export interface ToolCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** How an answer ends. */
export type Ending =
  | 'complete'
  /** The connection is cut in the middle of the stream. */
  | 'disconnect'
  /** Nothing ever comes, not even headers. */
  | 'silence'
  /** An HTTP error instead of a stream. */
  | { readonly status: number };

/** A scripted answer. */
export interface Reply {
  readonly text?: string;
  readonly calls?: readonly ToolCall[];
  /** For how long nothing comes, not even headers. */
  readonly silentMs?: number;
  /** How long the stream stays open after its first words. */
  readonly holdMs?: number;
  /** The stream stays open until this settles. */
  readonly until?: Promise<unknown>;
  /** While the stream stays open, a piece of text comes this often. */
  readonly chunkMs?: number;
  readonly ending?: Ending;
  /** What the answer reports as the size of its prompt. */
  readonly promptTokens?: number;
}

/** Decides the answer to each request. */
export type Script = (arrival: Arrival) => Reply;

/** One stream, from its opening to its end. */
export interface Stream extends Arrival {
  readonly openedAt: number;
  closedAt?: number;
  /** `aborted`: the client went away; `failed`: the script broke it. */
  outcome?: 'completed' | 'failed' | 'aborted';
}

interface Message {
  readonly role: string;
  readonly content?: string | readonly { readonly text?: string }[] | null;
  readonly tool_calls?: readonly unknown[];
}

interface ChatRequest {
  readonly model: string;
  readonly stream?: boolean;
  readonly messages: readonly Message[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
}

/** Counts and answers. Emits `change` after every open and close. */
export class ModelServer extends EventEmitter<{ change: [Stream] }> {
  /** Every stream so far, in the order of opening. */
  readonly streams: Stream[] = [];
  /** Greatest number of distinct sessions that were open at once. */
  peakSessions = 0;
  /** Greatest number of streams that were open at once. */
  peakStreams = 0;

  readonly #open = new Set<Stream>();
  readonly #server: Server;
  readonly #script: Script;

  private constructor(script: Script) {
    super();
    this.setMaxListeners(0);
    this.#script = script;
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  /** Listens on a free port of the loopback. */
  static async start(script: Script): Promise<ModelServer> {
    const server = new ModelServer(script);
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    return server;
  }

  /** What a provider's `baseURL` has to be. */
  get baseUrl(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`;
  }

  /** The sessions that generate now. */
  get generating(): string[] {
    return [...new Set([...this.#open].map((stream) => stream.session))].sort();
  }

  /** The sessions that have a chat open now. */
  get chatting(): string[] {
    const chats = [...this.#open].filter((stream) => stream.purpose === 'chat');
    return [...new Set(chats.map((stream) => stream.session))].sort();
  }

  /** Whether no stream is open. */
  get idle(): boolean {
    return this.#open.size === 0;
  }

  /** Streams of a session, of one purpose or all. */
  of(session: string, purpose?: Purpose): Stream[] {
    return this.streams.filter(
      (stream) => stream.session === session && (purpose === undefined || stream.purpose === purpose),
    );
  }

  /** Whether no stream is open, and every end of a subagent has come to the session that it worked for. */
  get quiet(): boolean {
    const heard = new Map<string, number>();
    for (const { session, settled } of this.streams) heard.set(session, Math.max(settled, heard.get(session) ?? 0));
    const children = heard.size - 1;
    return this.idle && [...heard.values()].reduce((all, settled) => all + settled, 0) >= children;
  }

  /** Whether a session has been answered in full, and its last answer was. */
  completed(session: string): boolean {
    return this.of(session, 'chat').at(-1)?.outcome === 'completed';
  }

  /** Resolves when `reached` holds, looking after every change; names what it waited for when it gives up. */
  async until(what: string, reached: () => boolean, patienceMs = PATIENCE_MS): Promise<void> {
    const gaveUp = AbortSignal.timeout(patienceMs);
    while (!reached()) {
      try {
        await once(this, 'change', { signal: gaveUp });
      } catch (cause) {
        throw new Error(`model server: ${what} did not come within ${patienceMs} ms\n${this.describe()}`, { cause });
      }
    }
  }

  /** The whole record, for people. */
  describe(): string {
    const start = this.streams[0]?.openedAt ?? 0;
    return this.streams
      .map(
        ({ session, purpose, turn, openedAt, closedAt, outcome }) =>
          `  [s:${session}] ${purpose} ${turn}: ${(openedAt - start).toFixed()} to ${closedAt === undefined ? 'now' : `${(closedAt - start).toFixed()} ms, ${outcome}`}`,
      )
      .join('\n');
  }

  /** Cuts what is open and stops listening. */
  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await read(request);
    if (request.method !== 'POST' || !request.url?.endsWith('/chat/completions')) {
      response.writeHead(404).end();
      return;
    }
    const asked = JSON.parse(body) as ChatRequest;
    // A client that gives one stream up and opens another has done so in that order; let the first be noticed first. A connection
    // whose client has gone is closed within three turns of the loop.
    for (let turns = 0; turns < 8; turns += 1) await new Promise(setImmediate);
    if (response.destroyed) return;
    const stream = this.#opened(asked);
    response.once('close', () => this.#closed(stream, 'aborted'));
    const reply = this.#script(stream);
    const ending = reply.ending ?? 'complete';
    if (typeof ending === 'object') {
      await held(reply, response);
      this.#closed(stream, 'failed');
      response.writeHead(ending.status, { 'content-type': 'application/json', 'retry-after': '1' });
      response.end(JSON.stringify({ error: { message: `scripted ${ending.status}`, type: 'scripted' } }));
      return;
    }
    if (ending === 'silence') return;
    await held({ holdMs: reply.silentMs ?? 0 }, response);
    if (response.destroyed) return;
    const head = { id: `answer-${stream.id}`, object: 'chat.completion.chunk', created: 0, model: asked.model };
    const send = (delta: object, finish: string | null = null, usage?: object): void => {
      const choices = usage === undefined ? [{ index: 0, delta, finish_reason: finish }] : [];
      response.write(`data: ${JSON.stringify({ ...head, choices, ...(usage && { usage }) })}\n\n`);
    };
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    send({ role: 'assistant', content: reply.text ?? '' });
    const pieces =
      reply.chunkMs === undefined
        ? undefined
        : setInterval(() => response.destroyed || send({ content: '.' }), reply.chunkMs);
    await held(reply, response);
    clearInterval(pieces);
    if (response.destroyed) return;
    if (ending === 'disconnect') {
      this.#closed(stream, 'failed');
      response.destroy();
      return;
    }
    if (reply.calls !== undefined) {
      send({
        tool_calls: reply.calls.map(({ name, arguments: args }, index) => ({
          index,
          id: `call-${stream.id}-${index}`,
          type: 'function',
          function: { name, arguments: JSON.stringify(args) },
        })),
      });
    }
    send({}, reply.calls === undefined ? 'stop' : 'tool_calls');
    const promptTokens = reply.promptTokens ?? 100;
    send({}, null, { prompt_tokens: promptTokens, completion_tokens: 5, total_tokens: promptTokens + 5 });
    this.#closed(stream, 'completed');
    response.end('data: [DONE]\n\n');
  }

  #opened(asked: ChatRequest): Stream {
    const session = tagOf(asked.messages);
    const purpose = purposeOf(asked.messages);
    const stream: Stream = {
      id: this.streams.length,
      session,
      purpose,
      model: asked.model,
      turn: this.of(session, purpose).length,
      delegated: asked.messages.some((message) => (message.tool_calls?.length ?? 0) > 0),
      results: asked.messages.filter(({ role }) => role === 'tool').map(textOf),
      settled: settledIn(asked.messages),
      tools: (asked.tools ?? []).map((tool) => tool.function.name),
      openedAt: now(),
    };
    this.streams.push(stream);
    this.#open.add(stream);
    this.peakStreams = Math.max(this.peakStreams, this.#open.size);
    this.peakSessions = Math.max(this.peakSessions, this.generating.length);
    this.emit('change', stream);
    return stream;
  }

  #closed(stream: Stream, outcome: NonNullable<Stream['outcome']>): void {
    if (!this.#open.delete(stream)) return;
    stream.closedAt = now();
    stream.outcome = outcome;
    this.emit('change', stream);
  }
}

/** The time, fine enough that no two events of the server have the same. */
function now(): number {
  return performance.timeOrigin + performance.now();
}

async function read(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

/** Waits as the script says, or until the client is gone. */
async function held(reply: Reply, response: ServerResponse): Promise<void> {
  const gone = new Promise((resolve) => response.once('close', resolve));
  const time = new Promise((resolve) => setTimeout(resolve, reply.holdMs ?? 0));
  await Promise.race([gone, Promise.all([time, reply.until])]);
}

function textOf(message: Message): string {
  if (typeof message.content === 'string') return message.content;
  return (message.content ?? []).map((part) => part.text ?? '').join('\n');
}

function tagOf(messages: readonly Message[]): string {
  const users = messages.filter((message) => message.role === 'user').map(textOf);
  return [...users.join('\n').matchAll(/\[s:([^\]\s]+)\]/g)].at(-1)?.[1] ?? '?';
}

function settledIn(messages: readonly Message[]): number {
  const told = messages.filter(({ role }) => role === 'user').map(textOf).join('\n');
  return new Set([...told.matchAll(SETTLED)].map(([, subagent]) => subagent)).size;
}

function purposeOf(messages: readonly Message[]): Purpose {
  if (messages.some(({ role, ...rest }) => role !== 'user' && textOf({ role, ...rest }).includes(TITLE))) return 'title';
  const last = messages.at(-1);
  return last !== undefined && textOf(last).includes(COMPACTION) ? 'compaction' : 'chat';
}

/** The harness's own instructions, by which its auxiliary calls are told from chats. */
const TITLE = 'Create a concise title for an AI coding-assistant session';
const COMPACTION = 'You are now acting as a compaction engine';

/** The line by which a session is told of the end of a subagent. */
const SETTLED = /^Background subagent (\S+) /gm;
