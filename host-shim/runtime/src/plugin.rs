//! One component at work: calls are brought to it, and told to it when they end.
//!
//! What happens when it fails is in [`faults`], how another instance takes its place in [`succession`]; [`configuration`],
//! [`requests`] and [`pools`] are what else it is there for.
//!
//! # Order
//!
//! The table is changed before the component is told that a call has ended, and after it has answered that one may start. So
//! at any moment in between a successor built from the table knows what the harness knows.

mod configuration;
mod faults;
mod pools;
mod requests;
mod role;
mod status;
mod succession;

use std::collections::BTreeMap;
use std::mem;

use serde_json::{Map, Value};

use crate::bindings::exports::dsh::plugin::lifecycle::RestoredCall;
use crate::clock::thread_cpu_ms;
use crate::config::Config;
use crate::instance::Instance;
use crate::log::LogLine;
use crate::outbox::Outbox;
use crate::share::Share;
use crate::table::{Hook, Table};
use crate::{
    CallId, Component, Fault, Instant, Limits, Mode, Outcome, Problem, Refusal, RefusalReason, Runtime,
    Settled, StartError, Started, StreamCall, ToolCall, Verdict, bound,
};

use configuration::check_size;
use faults::Faults;
use succession::{Facts, Fresh};

pub(crate) use role::Role;
pub use status::{State, Status};
pub(crate) use succession::Incoming;

/// The code of refusals that are the host's own: while the component has failed and `onFailure` is `closed`, and of calls that it
/// would keep waiting for longer, or more of them, than it may.
pub const UNAVAILABLE: &str = "GEN_LIMITER_UNAVAILABLE";

/// So many calls are restored, or waits ended, at once; at most ten milliseconds each time, with a route and a row for every call.
const PORTION: usize = 500;

/// After so many ticks in a row that were to be followed by another at once, a component is restless: it gets no more than
/// a tenth of the thread. The longest line is served in a hundred.
const RESTLESS: u32 = 256;
/// What is due within this time is due at once.
const REST_MS: u64 = 10;
/// A restless component is left alone so many times as long as it took.
const REST_FACTOR: u64 = 9;

/// A call is asked about so often.
const ATTEMPTS: u32 = 2;

/// How a plugin begins.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it may use.
    pub limits: Limits,
    /// Its configuration, a JSON object.
    pub config: String,
    /// What to do with a configuration that is wrong in places.
    pub mode: Mode,
}

/// One component at work. It may be sent, not shared: it lives where the calls are.
///
/// Operations are synchronous. After each, look at [`take_settled`](Self::take_settled) and [`next_tick`](Self::next_tick).
pub struct Plugin {
    runtime: Runtime,
    role: Role,
    component: Component,
    limits: Limits,
    config: Config,
    facts: Facts,
    /// Why the last configuration is not in force; empty if it is.
    refused: Vec<Problem>,
    work: Work,
    /// Replaced instances that still owe answers.
    retiring: Vec<Instance>,
    table: Table,
    out: Outbox,
    /// What the host tells its components of itself besides, members of a JSON object.
    host_facts: Map<String, Value>,
    faults: Faults,
    /// How often in a row it had more to do at once.
    hurried: u32,
    share: Option<Share>,
    /// There are scopes that name a pool, and nobody has been told what becomes of them.
    names_pools: bool,
}

enum Work {
    /// The component decides, and wants a tick at `due`.
    Running { instance: Box<Instance>, due: Option<Instant> },
    /// `onFailure` decides.
    Failed {
        retry_at: Instant,
        /// Whether that holds until one works again, or only until others had their turn.
        given_up: bool,
    },
}

impl Plugin {
    /// Brings a component to work under a configuration. The problems are those of [`Mode::Lenient`].
    ///
    /// # Errors
    ///
    /// If it cannot be instantiated, fails at once, or refuses the configuration.
    pub fn new(
        runtime: &Runtime,
        component: Component,
        options: Options,
        now: Instant,
    ) -> Result<(Self, Vec<Problem>), StartError> {
        Self::with_role(runtime, Role::Own, component, options, now)
    }

    /// The same for one among others.
    pub(crate) fn with_role(
        runtime: &Runtime,
        role: Role,
        component: Component,
        options: Options,
        now: Instant,
    ) -> Result<(Self, Vec<Problem>), StartError> {
        check_size(&options.config, &options.limits).map_err(|problems| StartError::Config { problems })?;
        let config = Config::new(options.config, options.mode);
        let Fresh { instance, facts } =
            Fresh::new(runtime, &role, &component, &options.limits, &config, now)?;
        let mut plugin = Self {
            runtime: runtime.clone(),
            role,
            component,
            out: Outbox::new(options.limits.log_lines_per_second),
            limits: options.limits,
            config,
            facts: Facts::default(),
            refused: Vec::new(),
            work: Work::Running { instance, due: None },
            retiring: Vec::new(),
            table: Table::new(),
            host_facts: Map::new(),
            faults: Faults::default(),
            hurried: 0,
            share: None,
            names_pools: false,
        };
        plugin.endow(&facts, now)?;
        plugin.learn(facts);
        plugin.advance(now);
        let problems = plugin.facts.problems.clone();
        Ok((plugin, problems))
    }

    /// The tools to bring to [`start_tool`](Self::start_tool). May change with `configure`, `replace` and a recovery.
    pub fn tools(&self) -> &[String] {
        &self.facts.tools
    }

    /// The paths to bring to [`request`](Self::request), exactly; empty for a component without routes.
    pub fn paths(&self) -> &[String] {
        &self.facts.paths
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn component(&self) -> &Component {
        &self.component
    }

    /// Asks whether a model call may leave for its provider.
    pub fn start_stream(&mut self, call: StreamCall, now: Instant) -> Started {
        let id = self.table.mint();
        let verdict = self.start(id, RestoredCall::Model(bound::stream(call)), now);
        Started { id, verdict }
    }

    /// Asks whether a tool call may run.
    pub fn start_tool(&mut self, call: ToolCall, now: Instant) -> Started {
        let id = self.table.mint();
        let verdict = self.start(id, RestoredCall::Tool(bound::tool(call)), now);
        Started { id, verdict }
    }

    /// Tells that a call ended, or was given up while it waited. Repeating it, or an unknown id, does nothing.
    pub fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        let outcome = bound::outcome(outcome);
        self.prepare(now);
        // What its pool had for it came too late.
        self.out.forget(id);
        let calm = self.table.is_calm();
        let Some(hook) = self.table.finish(id, &outcome, now) else { return };
        self.tell(now, |instance| instance.finish(hook, id, &outcome, now));
        if !calm {
            self.advance(now);
        }
        self.exchange(now);
    }

    /// Does what is due at `now`. To be called when [`next_tick`](Self::next_tick) is reached; earlier does no harm.
    pub fn tick(&mut self, now: Instant) {
        if let Some(share) = &self.share {
            share.tick(now);
        }
        self.prepare(now);
        self.advance(now);
        self.exchange(now);
    }

    /// When to call [`tick`](Self::tick). An instant that has passed means at once, after other events had their turn.
    pub fn next_tick(&self) -> Option<Instant> {
        let due = match self.work {
            Work::Running { due, .. } => due,
            Work::Failed { retry_at, .. } => Some(retry_at),
        };
        [due, self.overdue_at(), self.request_overdue_at(), self.out.due(), self.share_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the call that has waited longest has waited too long.
    fn overdue_at(&self) -> Option<Instant> {
        Some(self.table.waiting_longest()?.1.saturating_add(self.limits.wait_ms?))
    }

    /// The waits that ended since the last time: every waiting id exactly once, never one that was finished.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        self.out.take_settled()
    }

    /// What the component and the host logged since the last time.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        self.out.take_log()
    }

    /// Lets everybody who waits proceed, whatever the limits: the plugin is disabled or removed.
    ///
    /// They run from then on, so that a plugin that is enabled again counts them.
    pub fn release_all(&mut self, now: Instant) {
        self.prepare(now);
        if self.release(|| Ok(()), now) {
            self.reseat(now);
        }
        self.exchange(now);
    }

    /// Takes everybody who waits out of the line and names them, oldest first: the harness shuts down.
    ///
    /// They appear in no [`take_settled`](Self::take_settled); the caller turns each into its own cancellation.
    pub fn cancel_all(&mut self, now: Instant) -> Vec<CallId> {
        self.prepare(now);
        let line = self.table.line();
        for &id in &line {
            self.table.finish(id, &Outcome::Cancelled, now);
        }
        if !line.is_empty() {
            self.reseat(now);
        }
        self.exchange(now);
        line
    }

    /// For tests: that a store without calls holds nothing.
    ///
    /// # Panics
    ///
    /// If it does.
    #[doc(hidden)]
    pub fn assert_store_is_empty(&mut self) {
        if let Work::Running { instance, .. } = &mut self.work {
            instance.assert_empty();
        }
    }
}

/// Calls.
impl Plugin {
    /// Asks about a call under an id that nothing else of this plugin has had.
    pub(crate) fn start(&mut self, id: CallId, call: RestoredCall, now: Instant) -> Verdict {
        if mem::take(&mut self.names_pools) {
            self.tell_of_pools();
        }
        let verdict = self.decide(id, call, now);
        self.exchange(now);
        // Its pool had a seat for it.
        let is_over = matches!(verdict, Verdict::Wait { .. }) && self.out.take_admission(id);
        if is_over { Verdict::Admit } else { verdict }
    }

    fn decide(&mut self, id: CallId, call: RestoredCall, now: Instant) -> Verdict {
        self.prepare(now);
        let mut attempts = ATTEMPTS;
        loop {
            let Work::Running { instance, .. } = &mut self.work else {
                break self.decide_alone(id, call, now);
            };
            let answer = match &call {
                RestoredCall::Model(call) => instance.start_stream(id, call, now),
                RestoredCall::Tool(call) => instance.start_tool(id, call, now),
            };
            match answer {
                Ok(Verdict::Wait { .. }) if self.table.waiting() >= self.limits.waits => {
                    let hook = Hook::of(&call);
                    let verdict = Verdict::Deny(kept_waiting(format!(
                        "The plugin keeps {} calls waiting, and may keep no more. Start fewer agents at once.",
                        self.limits.waits
                    )));
                    self.record(id, call, &verdict, now);
                    self.tell(now, |instance| instance.finish(hook, id, &Outcome::Cancelled, now));
                    self.advance(now);
                    break verdict;
                }
                Ok(verdict) => {
                    let is_stream = matches!(call, RestoredCall::Model(_));
                    self.record(id, call, &verdict, now);
                    self.collect(now);
                    if !(is_stream && matches!(verdict, Verdict::Admit)) {
                        self.advance(now);
                    }
                    break verdict;
                }
                Err(fault) => {
                    attempts -= 1;
                    if attempts == 0 || matches!(fault, Fault::Deadline { .. }) {
                        // It is let through before a successor is told who runs.
                        self.faults.last = Some(fault.clone());
                        let verdict = self.decide_alone(id, call, now);
                        self.recover(fault, now);
                        break verdict;
                    }
                    self.recover(fault, now);
                    self.begin();
                }
            }
        }
    }

    /// A call that runs or waits, as it was brought.
    pub(crate) fn call(&self, id: CallId) -> Option<&RestoredCall> {
        self.table.call(id)
    }

    /// Every call that runs or waits, and since when.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (CallId, &RestoredCall, Instant)> {
        self.table.calls()
    }

    /// Takes over calls that run, which were decided without it.
    ///
    /// # Errors
    ///
    /// If it fails over them; then it has to be recovered or dropped.
    pub(crate) fn adopt(
        &mut self,
        calls: BTreeMap<CallId, (RestoredCall, Instant)>,
        now: Instant,
    ) -> Result<(), Fault> {
        self.prepare(now);
        if calls.is_empty() {
            return Ok(());
        }
        for (id, (call, since)) in calls {
            self.table.admit(id, call, since);
        }
        self.try_reseat(now)
    }

    /// Lets everybody who waits proceed and answers what is open; nothing is brought to it any more.
    pub(crate) fn dissolve(&mut self, now: Instant) {
        self.release(|| Ok(()), now);
        self.bury_failed(now);
        for mut retiring in mem::take(&mut self.retiring) {
            self.out.fail_open_requests(retiring.state());
        }
    }

    /// Takes what the component has decided and said.
    fn collect(&mut self, now: Instant) {
        if let Work::Running { instance, .. } = &mut self.work {
            self.out.collect(instance.state(), &mut self.table, now);
        }
    }

    /// Enters a call into the table as it was decided.
    fn record(&mut self, id: CallId, call: RestoredCall, verdict: &Verdict, now: Instant) {
        let child_of = match &call {
            RestoredCall::Model(StreamCall { first: true, spawn, .. }) => *spawn,
            _ => None,
        };
        match verdict {
            Verdict::Admit => self.table.admit(id, call, now),
            Verdict::Wait { seniority, .. } => self.table.enqueue(id, call, *seniority, now),
            Verdict::Deny(_) => {}
        }
        if let Some(spawn) = child_of {
            self.table.child_came(spawn);
        }
    }

    /// Ends all waits alike. Whether there were any.
    fn release(&mut self, result: impl Fn() -> Result<(), Refusal>, now: Instant) -> bool {
        let line = self.table.line();
        for &id in &line {
            self.out.settle(id, result(), &mut self.table, now);
        }
        !line.is_empty()
    }
}

/// Time.
impl Plugin {
    /// What every operation begins with.
    fn prepare(&mut self, now: Instant) {
        self.out.pass(now);
        self.table.forget_ended(now, self.config.spawn_grace_ms);
        self.begin();
        self.end_overdue(now);
        self.end_overdue_requests(now);
        match self.work {
            Work::Failed { retry_at, given_up: true } if retry_at <= now => self.retry(now),
            Work::Failed { retry_at, given_up: false } if retry_at <= now => self.try_successors(now),
            Work::Failed { .. } | Work::Running { .. } => {}
        }
        if self.share.as_ref().is_some_and(Share::is_owing) {
            self.exchange(now);
        }
    }

    /// Lets the instance at work burn as much as an operation may, from here on.
    fn begin(&mut self) {
        if let Work::Running { instance, .. } = &mut self.work {
            instance.begin();
        }
    }

    /// Ends waits that the component should have ended long ago. What is left over is due at once.
    fn end_overdue(&mut self, now: Instant) {
        for _ in 0..PORTION {
            if self.overdue_at().is_none_or(|at| at > now) {
                return;
            }
            let Some((id, since, hook)) = self.table.waiting_longest() else { return };
            let refusal = kept_waiting(format!(
                "The plugin has not decided for {} s, longer than it may keep anybody waiting. Try again, or remove the plugin.",
                now.saturating_sub(since) / 1_000
            ));
            self.out.settle(id, Err(refusal), &mut self.table, now);
            if !self.tell(now, |instance| instance.finish(hook, id, &Outcome::Cancelled, now)) {
                return;
            }
        }
    }

    /// What every operation ends with, unless nobody can be concerned.
    fn advance(&mut self, now: Instant) {
        let Work::Running { instance, due } = &mut self.work else { return };
        let is_restless = self.hurried >= RESTLESS;
        let began = if is_restless { thread_cpu_ms() } else { 0 };
        match instance.tick(now) {
            Ok(next) => {
                let soon = now.saturating_add(REST_MS);
                self.hurried =
                    if next.is_some_and(|next| next < soon) { self.hurried.saturating_add(1) } else { 0 };
                *due = next;
                if is_restless {
                    let rest = (REST_FACTOR * (thread_cpu_ms() - began)).max(REST_MS);
                    *due = next.map(|next| next.max(now.saturating_add(rest)));
                }
                self.out.collect(instance.state(), &mut self.table, now);
            }
            Err(fault) => self.recover(fault, now),
        }
    }

    /// Calls the component, if there is one, for something the table already knows. Whether it survived that.
    fn tell(&mut self, now: Instant, call: impl FnOnce(&mut Instance) -> Result<(), Fault>) -> bool {
        let Work::Running { instance, .. } = &mut self.work else { return true };
        match call(instance) {
            Ok(()) => {
                self.out.collect(instance.state(), &mut self.table, now);
                true
            }
            Err(fault) => {
                self.recover(fault, now);
                false
            }
        }
    }
}

/// The refusal of a call that the component would have kept waiting for longer than it may.
fn kept_waiting(message: String) -> Refusal {
    Refusal { code: UNAVAILABLE.into(), reason: RefusalReason::Other(None), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_may_be_sent_and_a_component_shared() {
        fn may_be_sent<T: Send>() {}
        fn may_be_shared<T: Send + Sync + Clone>() {}
        may_be_sent::<Plugin>();
        may_be_shared::<Runtime>();
        may_be_shared::<Component>();
    }
}
