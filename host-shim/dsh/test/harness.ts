/** The real agent stack around the gate: agents, tools, subagents, workflows, titles and compaction, as dsh mounts them. */
import { randomUUID } from 'node:crypto';
import AgentRegistry, { type AgentHandle } from '@deepseek-ai/dsh-agent';
import AgentLoop from '@deepseek-ai/dsh-agent-loop';
import CompactionBasic from '@deepseek-ai/dsh-compaction-basic';
import JobsLocal from '@deepseek-ai/dsh-jobs-local';
import { CallId, createUserMessage } from '@deepseek-ai/dsh-llm';
import SessionStore, { SessionId } from '@deepseek-ai/dsh-session';
import SessionTitle from '@deepseek-ai/dsh-session-title';
import * as titles from '@deepseek-ai/dsh-session-title-first-prompt-llm';
import SubagentRuntime from '@deepseek-ai/dsh-subagent';
import * as fork from '@deepseek-ai/dsh-subagent-fork-in-process';
import * as spawn from '@deepseek-ai/dsh-subagent-spawn-in-process';
import SystemPrompt from '@deepseek-ai/dsh-system-prompt';
import TokenMeter from '@deepseek-ai/dsh-token-meter';
import * as jobsTool from '@deepseek-ai/dsh-tool-jobs';
import * as subagentTool from '@deepseek-ai/dsh-tool-subagent';
import * as workflowTool from '@deepseek-ai/dsh-tool-workflow';
import ToolRuntime, { defineContentToolFixture, type ToolExecutionResult } from '@deepseek-ai/dsh-tools';
import WorkflowEngine from '@deepseek-ai/dsh-workflow-worker-thread';
import { type Call, World, fail, settled, type Making } from './support.ts';

/** A tool call on its way. */
export interface Doing {
  readonly result: Promise<ToolExecutionResult>;
  readonly controller: AbortController;
  ended: boolean;
}

export class Harness extends World {
  #root: AgentHandle | undefined;

  static override async make(making: Making = {}): Promise<Harness> {
    const harness = new Harness(making.home);
    await harness.start(making);
    harness.#root = await harness.agent();
    return harness;
  }

  protected override async furnish(): Promise<void> {
    const { ctx } = this;
    // Configurations are what the shipped profile sets; what it leaves out, the packages' own schemas fill in.
    const mount = async (plugin: unknown, config: object = {}): Promise<void> => {
      await ctx.plugin(plugin as never, config as never);
    };
    await mount(SessionStore);
    await mount(AgentRegistry);
    await mount(SystemPrompt);
    await mount(ToolRuntime);
    await mount(AgentLoop);
    await mount(JobsLocal);
    await mount(jobsTool);
    await mount(SubagentRuntime);
    await mount(spawn, { providerName: 'spawn' });
    await mount(fork, { providerName: 'fork' });
    await mount(subagentTool, { provider: 'spawn', toolName: 'subagent', maxDepth: 8 });
    await mount(subagentTool, { provider: 'fork', toolName: 'subagent_fork', maxDepth: 8 });
    await mount(WorkflowEngine, { provider: 'spawn' });
    await mount(workflowTool);
    await mount(TokenMeter);
    await mount(CompactionBasic);
    ctx.tools.register(defineContentToolFixture({
      name: 'echo',
      description: 'says it again',
      parameters: {},
      execute: async () => [{ type: 'text', text: 'echo' }],
    }));
  }

  /** Mounts what asks for titles; by default nobody does, so that calls are those a test makes. */
  async withTitles(): Promise<void> {
    await this.ctx.plugin(SessionTitle as never, { fallbackMaxWords: 5, fallbackMaxBytes: 40, maxTitleBytes: 80 } as never);
    const config = { targetWords: 5, targetCjkCharacters: 10, maxInputBytes: 4096, maxOutputTokens: 64, timeoutMs: 60_000 };
    await this.ctx.plugin(titles as never, config as never);
  }

  get root(): AgentHandle {
    return this.#root ?? fail('the harness has not started');
  }

  /** An agent on the provider that tests limit, or another one. */
  async agent(provider = 'box'): Promise<AgentHandle> {
    return this.ctx.agents.create({
      sessionId: SessionId(`session-${randomUUID()}`),
      meta: { cwd: process.cwd() },
      agentOptions: { provider, model: 'm' },
    });
  }

  /** Has an agent say something; settles when it is idle again. */
  async prompt(text: string, { agent } = this.root): Promise<void> {
    agent.followup(createUserMessage({ content: [{ type: 'text', text }], source: { kind: 'user' } }));
    await agent.whenIdle();
  }

  /** Runs one tool call as the loop does, beside whatever else runs. */
  do(name: string, args: object = {}, { agent } = this.root): Doing {
    const controller = new AbortController();
    const call = { callId: CallId(randomUUID()), name, arguments: args, agent, signal: controller.signal };
    const doing: Doing = { controller, ended: false, result: this.ctx.tools.execute(call) };
    void doing.result.then(() => (doing.ended = true));
    return doing;
  }

  /** Spawns a child with a prompt of its own. */
  spawn(prompt: string, handle = this.root, tool = 'subagent'): Doing {
    return this.do(tool, { description: prompt, prompt }, handle);
  }

  /** The prompts of those who generate. */
  get prompts(): string[] {
    return this.backend.open.map(({ prompt }) => prompt);
  }

  /** The open call that was prompted so. */
  asked(prompt: string): Call {
    return this.backend.open.find((call) => call.prompt === prompt) ?? fail(`nobody works on "${prompt}"; open: ${this.prompts.join(', ')}`);
  }

  /** Children take a few turns of the event loop from their spawn to their first call. */
  async grown(): Promise<void> {
    for (let turn = 0; turn < 8; turn += 1) await settled();
  }
}
