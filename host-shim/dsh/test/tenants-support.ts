/** A harness with agents, a web server and agent presets, in which there may be rows of ours anywhere. */
import { randomUUID } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Context } from '@deepseek-ai/cordis';
import type { AgentHandle } from '@deepseek-ai/dsh-agent';
import AgentPresets from '@deepseek-ai/dsh-agent-presets';
import WebServer from '@deepseek-ai/dsh-host-webserver';
import { SessionId } from '@deepseek-ai/dsh-session';
import type { Gate } from '../src/gate.ts';
import type { Requests } from '../src/requests.ts';
import { Harness } from './harness.ts';
import { fail, settled, until, type Making, type Reading, type Stats } from './support.ts';
import { ask, type Answer, type Asking } from './web-support.ts';

export interface Living {
  readonly gate: Gate;
  readonly requests: Requests;
}

/** Where a session is opened. */
export interface Opening {
  readonly preset?: string;
  readonly cwd?: string;
}

export class Tenancy extends Harness {
  #presets: Readonly<Record<string, unknown>> = {};

  /** With presets that have a row of ours each, or none where there is no configuration. */
  static async with(presets: Readonly<Record<string, unknown>>, making: Making = {}): Promise<Tenancy> {
    const tenancy = new Tenancy(making.home);
    tenancy.#presets = presets;
    await tenancy.start(making);
    return tenancy;
  }

  protected override async furnish(): Promise<void> {
    await super.furnish();
    for (const [id, config] of Object.entries(this.#presets)) this.preset(id, config);
    const roots = [{ path: join(this.home, 'presets'), trust: 'user' }];
    await this.ctx.plugin(AgentPresets as never, { default: 'none', roots, includeUserRoot: false } as never);
    await this.ctx.plugin({ name: 'connection', apply: (ctx: Context) => void ctx.provide('connection', {}) });
    await this.ctx.plugin(WebServer as never, { host: '127.0.0.1', port: 0 } as never);
  }

  /** Declares a preset; agents that join it later find it so. */
  preset(id: string, config: unknown): void {
    const folder = join(this.home, 'presets', id);
    mkdirSync(folder, { recursive: true });
    const rows = config === undefined ? [] : [{ id: 'gen-limit', name: 'cordis:gen-limit', config }];
    writeFileSync(join(folder, 'agent.cordis.yml'), JSON.stringify(rows));
  }

  /** Adds a row of the host; settles when it is at work. */
  async row(id: string, config: object): Promise<Living> {
    await this.ctx.loader.create({ id, name: 'cordis:gen-limit', config } as never);
    await settled();
    const living = this.livingOf(id);
    await living.gate.ready;
    await settled();
    return living;
  }

  livingOf(id: string): Living {
    const rows = (globalThis as never)[Symbol.for('@creait/dsh-gen-limit.rows.2')] as WeakMap<object, Living>;
    return rows.get(this.ctx.loader.resolve(id)) ?? fail(`nothing lives on ${id}`);
  }

  async editRow(id: string, config: object): Promise<void> {
    await this.ctx.loader.update(id, { config } as never);
    await settled();
  }

  /** Takes a row away; settles when it is gone. */
  async removeRow(id: string): Promise<void> {
    const { gate } = this.livingOf(id);
    await this.ctx.loader.remove(id);
    await until(() => gate.standing.state === 'stopped');
  }

  /** An agent in a preset or a folder of its own. */
  async member({ preset, cwd = process.cwd() }: Opening = {}): Promise<AgentHandle> {
    const presets = this.ctx.get('agentPresets') ?? fail('there are no presets');
    const handle = await this.ctx.agents.create({
      sessionId: SessionId(`session-${randomUUID()}`),
      meta: { cwd, ...(preset === undefined ? {} : { agentPreset: preset }) },
      agentOptions: { provider: 'box', model: 'm' },
      ...(preset === undefined ? {} : { setup: async (ctx: Context) => void (await presets.mount(ctx, preset)) }),
    });
    // The first agent of a preset brings its rows.
    if (preset !== undefined) await this.said(new RegExp(`tenant ${preset}(-\\d+)?: .*(max|inactive)|tenant ${preset}.* (limits|GEN_LIMIT)`, 'u'));
    return handle;
  }

  /** Settles when something has been said on stderr. */
  async said(what: RegExp): Promise<void> {
    await until(() => this.stderr.some((line) => what.test(line)));
  }

  /** Begins a call of an agent's session. */
  call({ agent }: AgentHandle): Reading {
    return this.read(agent.id);
  }

  get port(): number {
    return this.ctx.get('webServer')?.port ?? fail('there is no web server');
  }

  /** Asks a route of the host's row, or of a tenant. */
  ask(route: string, tenant?: string, asking?: Asking): Promise<Answer> {
    return ask(this.port, `/api/dsh-gen-limit/${tenant === undefined ? '' : `t/${encodeURIComponent(tenant)}/`}${route}`, asking);
  }

  /** The stats of the host's row, or of a tenant. */
  async statsOf(tenant?: string): Promise<Stats & { host: { tenants?: unknown } }> {
    const answer = await this.ask('stats', tenant);
    if (answer.status !== 200) throw new Error(`stats of ${tenant}: ${answer.status} ${answer.text}`);
    return answer.json as never;
  }

  /** How many calls are counted, by tenant; the host's row is `''`. */
  async live(...tenants: string[]): Promise<Record<string, number>> {
    const counts = await Promise.all(tenants.map(async (tenant) => {
      const { entries } = await this.statsOf(tenant === '' ? undefined : tenant);
      return [tenant, entries.reduce((sum, { active }) => sum + active, 0)] as const;
    }));
    return Object.fromEntries(counts);
  }

  /** How many calls were ever counted. */
  async submitted(tenant?: string): Promise<number> {
    return (await this.statsOf(tenant)).totals['submitted'] ?? NaN;
  }
}
