//! One component at work, and what happens when it stops working.
//!
//! # Faults
//!
//! A trap is the end of a store. The outcomes it had queued are delivered first, for they were decided. Then a new instance is
//! configured and told everything the [table](crate::table) holds, in portions that stay far below the deadline of a call. The
//! call that hit the fault is asked about once more, unless it was stopped for running too long; if that fails too, `onFailure`
//! answers this one call.
//!
//! More than `maxRestarts` instances within a minute, and `onFailure` decides for all until one works again: `open` lets
//! everybody through and keeps counting, `closed` refuses new calls and those who wait. Attempts follow with a growing pause.
//!
//! An attempt that took long is not followed by another at once: whoever loops wherever it is called would block the thread as
//! often as it may be tried, and an operation is followed by another before anything else gets to run. The next one is made when
//! the thread has had time for others; until then `onFailure` decides for who comes, and who waits goes on waiting.
//!
//! # Configurations
//!
//! A new text comes from outside, so it is tried first on an instance of its own: one that is refused, or that a component does
//! not survive, costs nobody anything. What still goes wrong with it at the instance at work is not charged to `maxRestarts`:
//! three wrong edits of a row must not lift its limits. What was wrong with the last text is kept for whoever asks, whatever
//! is in force instead.
//!
//! # Requests
//!
//! An instance that is replaced on purpose answers what it was asked before, beside its successor: whoever changes the
//! configuration by a request is told that it is in force, also where that takes a new instance. One that failed answers
//! nothing any more; its requests get 503. A fault over a request is not charged to `maxRestarts`, or somebody who only looks
//! could lift the limits; after a few of them requests are refused for a while instead.
//!
//! # Pools
//!
//! A plugin that has [joined](Plugin::join) a pool brings it what its scopes need at the end of an operation, and takes what it
//! is given, until nothing changes; before an operation it takes what the pool has for it. Without scopes that draw from the
//! pool nothing of that happens.
//!
//! # Order
//!
//! The table is changed before the component is told that a call has ended, and after it has answered that one may start. So
//! at any moment in between a successor built from the table knows what the harness knows.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use serde_json::{Map, Value, json};

use crate::ask::{Answer, Ask, AskId};
use crate::bindings::exports::dsh::plugin::lifecycle::RestoredCall;
use crate::bindings::exports::dsh::plugin::pools::Need;
use crate::clock::thread_cpu_ms;
use crate::config::{Config, OnFailure};
use crate::instance::Instance;
use crate::log::{Level, LogLine};
use crate::outbox::Outbox;
use crate::pool::{MemberId, SharedPool};
use crate::routes::{self, Request, RequestId, Response};
use crate::share::{ROUNDS, Share, endow};
use crate::table::{Hook, Table};
use crate::{
    CallId, Component, ConfigureError, Fault, Instant, Limits, Mode, Outcome, Problem, Refusal,
    RefusalReason, Runtime, Settled, StartError, Started, StreamCall, ToolCall, Verdict, bound,
};

/// The code of refusals that are the host's own: while the component has failed and `onFailure` is `closed`, and of calls that it
/// would keep waiting for longer, or more of them, than it may.
pub const UNAVAILABLE: &str = "GEN_LIMITER_UNAVAILABLE";

/// So many calls are restored at once; at most ten milliseconds each time, with a route and a row for every call.
const PORTION: usize = 500;
/// With more calls than this a configuration is applied by building a new instance, which is told of them in portions. So
/// many, each with a route and a row of its own, take less than twenty milliseconds.
const RECONFIGURE_IN_PLACE: usize = 1_000;
/// `maxRestarts` counts over this time, and the pause between attempts grows to it.
const WINDOW_MS: u64 = 60_000;
/// The first pause before an attempt.
const FIRST_PAUSE_MS: u64 = 1_000;

/// So many faults over requests within a minute, and requests are refused for the rest of it.
const ROUTE_FAULTS: usize = 3;

/// After so many ticks in a row that were to be followed by another at once, a component is restless: it gets no more than
/// a tenth of the thread. The longest line is served in a hundred.
const RESTLESS: u32 = 256;
/// What is due within this time is due at once.
const REST_MS: u64 = 10;
/// A restless component is left alone so many times as long as it took.
const REST_FACTOR: u64 = 9;

/// A call is asked about so often.
const ATTEMPTS: u32 = 2;

/// After an attempt that took long the next one follows so many times as long after the operation had begun; the fault before the
/// attempt has taken about as long as the attempt.
const GIVE_WAY_FACTOR: u64 = 4;

const ABSENT: &str = "the component has failed and is not back yet";

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

/// As what a plugin is spoken of, and where it may serve.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// The one the host itself brings: the limiter, whose paths are its own affair.
    Own,
    /// One that somebody added under this name.
    Added(String),
}

impl Role {
    fn subject(&self) -> String {
        match self {
            Self::Own => "the limiter".into(),
            Self::Added(name) => format!("the plugin {name}"),
        }
    }

    /// What becomes of calls without it, if they pass.
    fn without(&self) -> &'static str {
        match self {
            Self::Own => "open: calls pass WITHOUT LIMITS",
            Self::Added(_) => "open: calls pass without being asked about there",
        }
    }

    /// What is so again when it is back.
    fn again(&self) -> &'static str {
        match self {
            Self::Own => "limits hold again",
            Self::Added(_) => "it decides again",
        }
    }

    /// Why it may not serve a path.
    fn objection(&self, path: &str) -> Option<String> {
        let Self::Added(name) = self else { return None };
        let own = format!("/api/{name}/");
        let is_own = path
            .strip_prefix(&own)
            .is_some_and(|rest| !rest.is_empty() && !rest.split('/').any(|part| part == ".."));
        (!is_own).then(|| {
            format!("the plugin wants to serve {path:?}; a plugin of this name serves below {own} alone")
        })
    }
}

/// Whether the component decides, or `onFailure` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The component decides.
    Running,
    /// It failed too often: calls pass until it is back.
    FailedOpen,
    /// It failed too often: calls are refused until it is back.
    FailedClosed,
}

impl State {
    /// `running`, `failed-open` or `failed-closed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::FailedOpen => "failed-open",
            Self::FailedClosed => "failed-closed",
        }
    }
}

/// How a plugin is doing.
#[derive(Clone, Debug)]
pub struct Status {
    /// Who decides.
    pub state: State,
    /// What `onFailure` says of calls that no component can decide.
    pub policy: OnFailure,
    /// Instances built after faults, since the beginning.
    pub restarts: u64,
    /// The last fault, if there was one.
    pub last_error: Option<String>,
    /// Digest of the component's file.
    pub sha256: String,
    /// Calls that run, tool calls included.
    pub live: usize,
    /// Calls that wait.
    pub waiting: usize,
    /// Memory of the instance, in bytes; 0 without one.
    pub memory_bytes: usize,
    /// What is wrong with the last configuration that was brought: if it was refused, why, whatever is in force instead.
    pub problems: Vec<Problem>,
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

/// What an instance said about itself once it was configured.
#[derive(Clone, Default)]
struct Facts {
    problems: Vec<Problem>,
    tools: Vec<String>,
    paths: Vec<String>,
    /// What its pooled scopes need, all of them, as it was then.
    needs: Vec<Need>,
}

/// A configured instance that has been told of no call.
struct Fresh {
    instance: Box<Instance>,
    facts: Facts,
}

#[derive(Default)]
struct Faults {
    /// When instances were tried after faults, within the window.
    recent: VecDeque<Instant>,
    /// When requests brought faults about, within the window.
    over_requests: VecDeque<Instant>,
    /// How many were brought to work.
    restarts: u64,
    last: Option<Fault>,
    /// The next pause between attempts.
    pause_ms: u64,
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

    /// Replaces the whole configuration, for those who wait too. Answers with the problems of [`Mode::Lenient`].
    ///
    /// While the component has failed this is an attempt to bring it back under the new configuration.
    ///
    /// [`Status::problems`] speaks of the configuration brought last. Whoever falls back to an older one after a refusal, and
    /// wants the refused one listed as long as that is in force, brings the refused one once more.
    ///
    /// # Errors
    ///
    /// If its text is too long, or the component refuses it or fails over it; that is not charged to `maxRestarts`. What was in force still is; but `onFailure` and `maxRestarts` are taken
    /// over while there is no component to judge the rest.
    pub fn configure(
        &mut self,
        json: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<Vec<Problem>, ConfigureError> {
        self.prepare(now);
        let result = self.bring(json, mode, now);
        self.refused = match &result {
            Ok(_) => Vec::new(),
            Err(ConfigureError::Refused { problems }) => problems.clone(),
            Err(error @ ConfigureError::Fault(_)) => vec![whole_text(error.to_string())],
        };
        result
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

    fn share_due(&self) -> Option<Instant> {
        self.share.as_ref().and_then(Share::next_tick)
    }

    /// Makes it a member of a pool, under a name for people: its scopes that the pool serves hold what that gives, nothing at
    /// first. It leaves when it is dropped, with all its calls. Without a pool a ceiling holds for this plugin alone.
    ///
    /// Whatever one member does may be news for others: ask the [pool](crate::Pool::news) for whom, after each operation, and
    /// have those [collect](Self::collect_grants) it.
    pub fn join(&mut self, pool: SharedPool, name: &str, now: Instant) {
        self.prepare(now);
        let mut share = Share::join(pool, name);
        share.begin(&self.facts.needs);
        self.share = Some(share);
        let facts = self.facts.clone();
        if let Err(fault) = self.endow(&facts, now) {
            self.recover(fault, now);
        }
        self.exchange(now);
    }

    /// Leaves its pool, with all its calls. What the pool served is unlimited from then on, so this is for a plugin that decides
    /// no more.
    pub fn part(&mut self) {
        self.share = None;
    }

    /// Which member of its pool it is.
    pub fn member(&self) -> Option<MemberId> {
        self.share.as_ref().map(Share::member)
    }

    /// Takes what its pool has for it: seats, or that others wait for those it holds. Every operation begins with that; this is
    /// for when there is none.
    pub fn collect_grants(&mut self, now: Instant) {
        self.prepare(now);
        self.exchange(now);
    }

    /// When the call that has waited longest has waited too long.
    fn overdue_at(&self) -> Option<Instant> {
        Some(self.table.waiting_longest()?.1.saturating_add(self.limits.wait_ms?))
    }

    /// When the request that has been open longest has been so for too long.
    fn request_overdue_at(&self) -> Option<Instant> {
        let most = self.limits.request_ms?;
        let working = match &self.work {
            Work::Running { instance, .. } => Some(&**instance),
            Work::Failed { .. } => None,
        };
        let opened = working.into_iter().chain(&self.retiring).filter_map(Instance::oldest_request);
        opened.min().map(|at| at.saturating_add(most))
    }

    /// The waits that ended since the last time: every waiting id exactly once, never one that was finished.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        self.out.take_settled()
    }

    /// What the component and the host logged since the last time.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        self.out.take_log()
    }

    /// Hands a request to the component. The answer comes out of [`take_responses`](Self::take_responses), as a rule at once.
    pub fn request(&mut self, request: Request, now: Instant) -> RequestId {
        self.prepare(now);
        let id = routes::mint();
        let (size, most) = (request.size(), self.limits.request_bytes);
        if size > most {
            let error = format!("the request has {size} bytes, more than the {most} it may have");
            self.out.respond(id, routes::refusal(413, &error));
            return id;
        }
        if let Some((status, error)) = self.refuses_requests(now) {
            self.out.respond(id, routes::refusal(status, error));
            return id;
        }
        // What the component answers is as of now.
        self.advance(now);
        let mut status = self.host_facts.clone();
        status.extend(self.status().to_object());
        let status = Value::Object(status).to_string();
        match &mut self.work {
            Work::Running { instance, .. } => {
                let opened = instance.open(id, request, status, now).and_then(|()| instance.turn());
                self.conclude(opened, now);
            }
            Work::Failed { .. } => self.out.respond(id, routes::refusal(503, ABSENT)),
        }
        id
    }

    fn refuses_requests(&mut self, now: Instant) -> Option<(u16, &'static str)> {
        let open = self.instances().map(|instance| instance.state().open.len()).sum::<usize>();
        match &self.work {
            Work::Failed { .. } => Some((503, ABSENT)),
            Work::Running { instance, .. } if !instance.has_routes() => {
                Some((404, "the component serves no paths"))
            }
            Work::Running { .. } if open >= self.limits.open_requests => {
                Some((503, "too many requests are open"))
            }
            Work::Running { .. } if self.faults.over_requests(now) >= ROUTE_FAULTS => {
                Some((503, "the component failed over requests too often, it is asked again in a minute"))
            }
            Work::Running { .. } => None,
        }
    }

    /// What the component asks of the harness since the last time. Each question is to be [answered](Self::answer), or the
    /// request it was asked for stays open.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        self.instances().flat_map(|instance| instance.state().asks.take()).collect()
    }

    /// Answers a question of the component's and lets it go on.
    ///
    /// An answer to a question that is not open does nothing: whoever asked may have failed meanwhile. Nor does one of another
    /// kind than was asked for.
    pub fn answer(&mut self, id: AskId, answer: Answer, now: Instant) {
        self.prepare(now);
        if let Some(at) = self.retiring.iter_mut().position(|one| one.state().asks.is_open(id)) {
            let answered = self.retiring[at].answer(id, answer);
            self.retire(at, answered, now);
        } else if let Work::Running { instance, .. } = &mut self.work {
            let answered = instance.answer(id, answer);
            self.conclude(answered, now);
        }
    }

    /// Whether there is anything to take by [`take_asks`](Self::take_asks) or [`take_responses`](Self::take_responses).
    pub fn has_answers(&mut self) -> bool {
        self.out.has_responses() || self.instances().any(|instance| instance.state().asks.is_queued())
    }

    /// Lets open requests go on. There is nothing to do while none is open.
    pub fn turn(&mut self, now: Instant) {
        self.prepare(now);
        for at in (0..self.retiring.len()).rev() {
            let turned = self.retiring[at].turn();
            self.retire(at, turned, now);
        }
        if let Work::Running { instance, .. } = &mut self.work
            && !instance.state().open.is_empty()
        {
            let turned = instance.turn();
            self.conclude(turned, now);
        }
    }

    /// The instance at work, then those that are retiring.
    fn instances(&mut self) -> impl Iterator<Item = &mut Instance> {
        let working = match &mut self.work {
            Work::Running { instance, .. } => Some(&mut **instance),
            Work::Failed { .. } => None,
        };
        working.into_iter().chain(&mut self.retiring)
    }

    /// Takes what the instance at work has answered.
    fn conclude(&mut self, turned: Result<(), Fault>, now: Instant) {
        match turned {
            Ok(()) => self.collect(now),
            Err(fault) => {
                self.faults.over_requests.push_back(now);
                self.recover_uncharged(fault, now);
            }
        }
    }

    /// Takes what a retiring instance has answered, and lets it go when that was all.
    fn retire(&mut self, at: usize, turned: Result<(), Fault>, now: Instant) {
        let state = self.retiring[at].state();
        self.out.collect_answers(state, now);
        if let Err(fault) = turned {
            self.out.fail_open_requests(state);
            self.out.line(Level::Error, format!("a component that had been replaced failed: {fault}"));
        }
        if self.retiring[at].state().open.is_empty() {
            self.retiring.swap_remove(at);
        }
    }

    /// The answers since the last time, to each request exactly once.
    pub fn take_responses(&mut self) -> Vec<(RequestId, Response)> {
        self.out.take_responses()
    }

    /// Puts another component in this one's place. Calls, lines and seniority carry over; open requests are still
    /// answered by the old one.
    ///
    /// # Errors
    ///
    /// If the new one cannot be brought to work; the old one goes on.
    pub fn replace(&mut self, component: Component, now: Instant) -> Result<(), StartError> {
        self.replace_under(component, self.limits.clone(), None, now)
    }

    /// The same under other limits and, if one is given, another configuration.
    pub(crate) fn replace_under(
        &mut self,
        component: Component,
        limits: Limits,
        config: Option<(String, Mode)>,
        now: Instant,
    ) -> Result<(), StartError> {
        self.prepare(now);
        let is_brought = config.is_some();
        let config = match config {
            Some((json, mode)) => {
                check_size(&json, &limits).map_err(|problems| StartError::Config { problems })?;
                Config::new(json, mode)
            }
            None => self.config.clone(),
        };
        let fresh = Fresh::new(&self.runtime, &self.role, &component, &limits, &config, now)?;
        let before = mem::replace(&mut self.limits, limits);
        if let Err(fault) = self.take_over(fresh, now) {
            self.limits = before;
            self.recover_uncharged(fault.clone(), now);
            return Err(fault.into());
        }
        self.component = component;
        self.config = config;
        self.out.set_lines_per_second(self.limits.log_lines_per_second);
        self.faults.recent.clear();
        if is_brought {
            self.refused.clear();
        }
        self.exchange(now);
        Ok(())
    }

    /// Tells the component of its host, with every request, what the host does not know by itself: members of `host-status`.
    pub fn tell_of_host(&mut self, facts: Map<String, Value>) {
        self.host_facts = facts;
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a question of its is open.
    pub(crate) fn has_asked(&mut self, id: AskId) -> bool {
        self.instances().any(|instance| instance.state().asks.is_open(id))
    }

    pub(crate) fn component(&self) -> &Component {
        &self.component
    }

    /// Puts an instance with other limits in this one's place, the way [`replace`](Self::replace) does.
    ///
    /// # Errors
    ///
    /// If it cannot be brought to work within them; the old one goes on, within the old ones.
    pub fn set_limits(&mut self, limits: Limits, now: Instant) -> Result<(), StartError> {
        self.replace_under(self.component.clone(), limits, None, now)
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

    /// How it is doing.
    pub fn status(&self) -> Status {
        let (state, memory_bytes) = match &self.work {
            Work::Running { instance, .. } => (State::Running, instance.memory_bytes()),
            Work::Failed { .. } => (
                match self.config.on_failure {
                    OnFailure::Open => State::FailedOpen,
                    OnFailure::Closed => State::FailedClosed,
                },
                0,
            ),
        };
        Status {
            state,
            policy: self.config.on_failure,
            restarts: self.faults.restarts,
            last_error: self.faults.last.as_ref().map(Fault::to_string),
            sha256: self.component.sha256().to_owned(),
            live: self.table.live(),
            waiting: self.table.waiting(),
            memory_bytes,
            problems: if self.refused.is_empty() { &self.facts.problems } else { &self.refused }.clone(),
        }
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

    /// What `onFailure` says about one call.
    fn decide_alone(&mut self, id: CallId, call: RestoredCall, now: Instant) -> Verdict {
        let verdict = match self.config.on_failure {
            OnFailure::Open => Verdict::Admit,
            OnFailure::Closed => Verdict::Deny(self.unavailable()),
        };
        self.record(id, call, &verdict, now);
        verdict
    }

    fn unavailable(&self) -> Refusal {
        let why = self.faults.last.as_ref().map(Fault::to_string);
        let because = why.as_deref().map_or(String::new(), |why| format!(" ({why})"));
        Refusal {
            code: UNAVAILABLE.into(),
            reason: RefusalReason::Other(why),
            message: format!(
                "{} has failed{because} and `onFailure` is \"closed\": nothing starts until it is back. Set `onFailure` to \
                 \"open\" to let calls pass without limits meanwhile.",
                capitalised(&self.role.subject())
            ),
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

/// Time and configuration.
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

    /// Brings what changed to the pool and applies what it gives, until nothing changes. What that decides is queued.
    fn exchange(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            let Some(share) = self.share.as_mut().filter(|share| share.is_due(self.table.is_calm())) else {
                return;
            };
            let Work::Running { instance, due } = &mut self.work else {
                return share.stand_in(self.table.live(), now);
            };
            let exchanged = instance.demand().and_then(|changed| {
                let grants = share.exchange(changed, now);
                for grant in &grants {
                    instance.capacity(grant, now)?;
                }
                if !grants.is_empty() {
                    *due = instance.tick(now)?;
                }
                Ok(grants.is_empty())
            });
            match exchanged {
                Ok(is_settled) => {
                    self.collect(now);
                    if is_settled {
                        return;
                    }
                }
                Err(fault) => {
                    let was_slow = matches!(fault, Fault::Deadline { .. });
                    self.recover(fault, now);
                    if was_slow {
                        break;
                    }
                    self.begin();
                }
            }
        }
        // The rest comes when others had their turn.
        if let Work::Running { due, .. } = &mut self.work {
            *due = Some(now);
        }
    }

    /// Gives the instance at work the seats that are held for it.
    fn endow(&mut self, facts: &Facts, now: Instant) -> Result<(), Fault> {
        let Work::Running { instance, .. } = &mut self.work else { return Ok(()) };
        endow(instance, &facts.needs, self.share.as_ref(), now)
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

    /// Answers for instances that should have answered long ago, and are replaced or let go for it.
    fn end_overdue_requests(&mut self, now: Instant) {
        let Some(most) = self.limits.request_ms else { return };
        let is_overdue =
            |instance: &Instance| instance.oldest_request().is_some_and(|at| at.saturating_add(most) <= now);
        let overdue = || Err(Fault::Exceeded(format!("a request was not answered within {most} ms")));
        for at in (0..self.retiring.len()).rev() {
            if is_overdue(&self.retiring[at]) {
                self.retire(at, overdue(), now);
            }
        }
        if let Work::Running { instance, .. } = &self.work
            && is_overdue(instance)
        {
            self.conclude(overdue(), now);
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

    fn bring(&mut self, json: &str, mode: Mode, now: Instant) -> Result<Vec<Problem>, ConfigureError> {
        check_size(json, &self.limits).map_err(|problems| ConfigureError::Refused { problems })?;
        let config = Config::new(json, mode);
        let facts = match self.work {
            Work::Running { .. } if self.table.len() <= RECONFIGURE_IN_PLACE => {
                self.configure_in_place(&config, now)?
            }
            _ => self.configure_by_rebuild(&config, now)?,
        };
        self.config = config;
        self.learn(facts);
        self.begin();
        self.advance(now);
        self.exchange(now);
        Ok(self.facts.problems.clone())
    }

    fn configure_in_place(&mut self, config: &Config, now: Instant) -> Result<Facts, ConfigureError> {
        Fresh::new(&self.runtime, &self.role, &self.component, &self.limits, config, now)?;
        let mut attempts = ATTEMPTS;
        loop {
            let Work::Running { instance, .. } = &mut self.work else {
                return Err(ConfigureError::Fault(self.last_fault()));
            };
            let configured = Facts::of(instance, &self.role, config, now).and_then(|answer| {
                if let Ok(facts) = &answer {
                    endow(instance, &facts.needs, self.share.as_ref(), now)?;
                }
                Ok(answer)
            });
            match configured {
                Ok(Ok(facts)) => {
                    self.out.collect(instance.state(), &mut self.table, now);
                    return Ok(facts);
                }
                Ok(Err(problems)) => return Err(ConfigureError::Refused { problems }),
                Err(fault) => {
                    attempts -= 1;
                    self.recover_uncharged(fault.clone(), now);
                    if attempts == 0 || matches!(fault, Fault::Deadline { .. }) {
                        return Err(ConfigureError::Fault(fault));
                    }
                }
            }
        }
    }

    fn configure_by_rebuild(&mut self, config: &Config, now: Instant) -> Result<Facts, ConfigureError> {
        let failed = matches!(self.work, Work::Failed { given_up: true, .. });
        let fresh = match Fresh::new(&self.runtime, &self.role, &self.component, &self.limits, config, now) {
            Ok(fresh) => fresh,
            Err(error) => {
                if failed && matches!(error, StartError::Fault(_)) {
                    self.config.on_failure = config.on_failure;
                    self.config.max_restarts = config.max_restarts;
                }
                return Err(error.into());
            }
        };
        let facts = fresh.facts.clone();
        self.take_over(fresh, now).inspect_err(|fault| self.recover_uncharged(fault.clone(), now))?;
        if failed {
            self.back();
        }
        Ok(facts)
    }

    /// Takes note of what an instance said about itself.
    fn learn(&mut self, facts: Facts) {
        let named = facts.named();
        if named != self.facts.named() && !named.is_empty() {
            self.out.line(
                Level::Warn,
                format!(
                    "this host has no pools: {} get every seat they want, as if no pool was named",
                    named.join(", ")
                ),
            );
        }
        if let Some(share) = &mut self.share {
            share.begin(&facts.needs);
        }
        self.facts = facts;
    }
}

/// Faults.
impl Plugin {
    /// Buries the instance that hit a fault and brings another to work, or gives up.
    pub(crate) fn recover(&mut self, fault: Fault, now: Instant) {
        self.bury_failed(now);
        self.note(fault);
        self.try_successors(now);
    }

    /// Tries to bring a successor to work as often as it may be tried. After an attempt that took long others are to have their
    /// turn before the next, and meanwhile `onFailure` decides for who comes, not for who waits.
    fn try_successors(&mut self, now: Instant) {
        while self.faults.begin_attempt(now, self.config.max_restarts) {
            let began = thread_cpu_ms();
            match self.rebuild(now) {
                Ok(()) => return self.say_replaced(),
                Err(fault) => self.note(fault),
            }
            let took = thread_cpu_ms() - began;
            if took >= self.limits.call_ms / 2 {
                let retry_at = now.saturating_add(took.saturating_mul(GIVE_WAY_FACTOR));
                self.work = Work::Failed { retry_at, given_up: false };
                return;
            }
        }
        self.give_up(now);
    }

    /// The same for a fault that a new component or configuration, or a request, brought about: the first attempt under what is
    /// in force is free.
    fn recover_uncharged(&mut self, fault: Fault, now: Instant) {
        self.bury_failed(now);
        self.note(fault);
        match self.rebuild(now) {
            Ok(()) => self.say_replaced(),
            Err(fault) => self.recover(fault, now),
        }
    }

    fn say_replaced(&mut self) {
        self.out.line(
            Level::Warn,
            format!(
                "the component was replaced: {} running and {} waiting calls carried over",
                self.table.live(),
                self.table.waiting()
            ),
        );
    }

    /// Lets `onFailure` decide for all.
    fn give_up(&mut self, now: Instant) {
        let retry_at = now.saturating_add(self.faults.next_pause());
        self.work = Work::Failed { retry_at, given_up: true };
        let (meaning, refusal) = match self.config.on_failure {
            OnFailure::Open => (self.role.without(), None),
            OnFailure::Closed => ("closed: calls are REFUSED", Some(self.unavailable())),
        };
        self.release(|| refusal.clone().map_or(Ok(()), Err), now);
        self.out.line(
            Level::Error,
            format!(
                "{} has FAILED more often than maxRestarts ({}) allows within a minute; onFailure is {meaning} until it is back, \
                 next attempt in {} ms",
                self.role.subject(),
                self.config.max_restarts,
                retry_at - now
            ),
        );
    }

    /// One attempt out of the failed state.
    fn retry(&mut self, now: Instant) {
        self.faults.recent.push_back(now);
        match self.rebuild(now) {
            Ok(()) => self.back(),
            Err(fault) => {
                self.note(fault);
                let retry_at = now.saturating_add(self.faults.next_pause());
                self.work = Work::Failed { retry_at, given_up: true };
            }
        }
    }

    fn back(&mut self) {
        self.out.line(
            Level::Warn,
            format!(
                "{} is BACK: {}, {} running calls are counted",
                self.role.subject(),
                self.role.again(),
                self.table.live()
            ),
        );
    }

    /// A new instance of the component in force, under the configuration in force.
    fn rebuild(&mut self, now: Instant) -> Result<(), Fault> {
        let fresh =
            match Fresh::new(&self.runtime, &self.role, &self.component, &self.limits, &self.config, now) {
                Ok(fresh) => fresh,
                Err(StartError::Fault(fault)) => return Err(fault),
                Err(refused @ StartError::Config { .. }) => return Err(Fault::Trap(refused.to_string())),
            };
        self.take_over(fresh, now)?;
        self.faults.restarts += 1;
        Ok(())
    }

    /// The same, for a change to the table that the component is best told of as a whole.
    fn reseat(&mut self, now: Instant) {
        if let Err(fault) = self.try_reseat(now) {
            self.recover(fault, now);
        }
    }

    fn try_reseat(&mut self, now: Instant) -> Result<(), Fault> {
        if matches!(self.work, Work::Failed { .. }) {
            return Ok(());
        }
        match Fresh::new(&self.runtime, &self.role, &self.component, &self.limits, &self.config, now) {
            Ok(fresh) => self.take_over(fresh, now),
            Err(error) => Err(Fault::Trap(error.to_string())),
        }
    }

    /// Puts a fresh instance to work in the place of what was there.
    ///
    /// It is told of everything in the table. What it decides on the way is in force even if it fails before the end; then
    /// nothing is at work.
    fn take_over(&mut self, fresh: Fresh, now: Instant) -> Result<(), Fault> {
        self.bury(now, |me, mut instance| {
            if !instance.state().open.is_empty() {
                me.retiring.push(*instance);
            }
        });
        let Fresh { mut instance, facts } = fresh;
        let endowed = endow(&mut instance, &facts.needs, self.share.as_ref(), now);
        let due = endowed.and_then(|()| self.restore(&mut instance, now));
        self.out.collect(instance.state(), &mut self.table, now);
        self.work = Work::Running { due: due?, instance };
        self.learn(facts);
        Ok(())
    }

    fn restore(&mut self, instance: &mut Instance, now: Instant) -> Result<Option<Instant>, Fault> {
        // What it burnt while it was configured counts on: it is one operation.
        instance.grant(self.table.len().div_ceil(PORTION) as u64);
        for portion in self.table.running().chunks(PORTION) {
            let live: Vec<_> = portion.iter().filter_map(|&id| self.table.live_call(id)).collect();
            instance.restore(&live, &[], now)?;
        }
        for portion in self.table.line().chunks(PORTION) {
            let waiting: Vec<_> = portion.iter().filter_map(|&id| self.table.waiting_call(id)).collect();
            for (id, verdict) in instance.restore(&[], &waiting, now)? {
                match verdict {
                    Verdict::Admit => self.out.settle(id, Ok(()), &mut self.table, now),
                    Verdict::Deny(refusal) => self.out.settle(id, Err(refusal), &mut self.table, now),
                    Verdict::Wait { .. } => {}
                }
            }
            self.out.collect(instance.state(), &mut self.table, now);
        }
        instance.tick(now)
    }

    /// Takes the instance at work from its place, and what it has decided.
    fn bury(&mut self, now: Instant, remains: impl FnOnce(&mut Self, Box<Instance>)) {
        let nobody = Work::Failed { retry_at: now, given_up: true };
        if let Work::Running { mut instance, .. } = mem::replace(&mut self.work, nobody) {
            self.out.collect(instance.state(), &mut self.table, now);
            remains(self, instance);
        }
    }

    /// The same for one that has hit a fault.
    fn bury_failed(&mut self, now: Instant) {
        self.bury(now, |me, mut instance| me.out.fail_open_requests(instance.state()));
    }

    fn note(&mut self, fault: Fault) {
        self.out.line(Level::Error, format!("the component failed: {fault}"));
        self.faults.last = Some(fault);
    }

    fn last_fault(&self) -> Fault {
        self.faults.last.clone().unwrap_or_else(|| Fault::Trap("unknown".into()))
    }
}

impl Fresh {
    fn new(
        runtime: &Runtime,
        role: &Role,
        component: &Component,
        limits: &Limits,
        config: &Config,
        now: Instant,
    ) -> Result<Self, StartError> {
        let mut instance = Box::new(Instance::new(runtime, component, limits).map_err(Fault::from)?);
        match Facts::of(&mut instance, role, config, now)? {
            Ok(facts) => Ok(Self { instance, facts }),
            Err(problems) => Err(StartError::Config { problems }),
        }
    }
}

impl Facts {
    /// Configures an instance and asks what follows from it. The inner error is its refusal.
    fn of(
        instance: &mut Instance,
        role: &Role,
        config: &Config,
        now: Instant,
    ) -> Result<Result<Self, Vec<Problem>>, Fault> {
        let problems = match instance.configure(&config.json, config.mode, now)? {
            Ok(problems) => problems,
            Err(problems) => return Ok(Err(problems)),
        };
        let needs = instance.demand()?;
        let paths = instance.paths()?;
        if let Some(objection) = paths.iter().find_map(|path| role.objection(path)) {
            return Ok(Err(vec![whole_text(objection)]));
        }
        Ok(Ok(Self { problems, tools: instance.tools()?, paths, needs }))
    }

    /// The scopes that name a pool.
    fn named(&self) -> Vec<&str> {
        let named = self.needs.iter().filter(|need| need.pool.is_some());
        named.map(|need| need.scope.as_str()).collect()
    }
}

impl Faults {
    /// How many requests have brought about within the window.
    fn over_requests(&mut self, now: Instant) -> usize {
        while self.over_requests.front().is_some_and(|&at| at.saturating_add(WINDOW_MS) <= now) {
            self.over_requests.pop_front();
        }
        self.over_requests.len()
    }

    /// Whether one more instance may be tried now; counts it.
    fn begin_attempt(&mut self, now: Instant, max_restarts: u64) -> bool {
        while self.recent.front().is_some_and(|&at| at.saturating_add(WINDOW_MS) <= now) {
            self.recent.pop_front();
        }
        if self.recent.is_empty() {
            self.pause_ms = FIRST_PAUSE_MS;
        }
        if self.recent.len() as u64 >= max_restarts {
            return false;
        }
        self.recent.push_back(now);
        true
    }

    fn next_pause(&mut self) -> u64 {
        let pause = self.pause_ms.clamp(FIRST_PAUSE_MS, WINDOW_MS);
        self.pause_ms = (pause * 2).min(WINDOW_MS);
        pause
    }
}

impl Status {
    /// What a component is told of its host, and whoever asks for stats.
    pub fn to_object(&self) -> Map<String, Value> {
        let problem = |p: &Problem| json!({ "path": p.path, "message": p.message });
        let members = [
            ("state", json!(self.state.as_str())),
            ("policy", json!(self.policy.as_str())),
            ("restarts", json!(self.restarts)),
            ("lastError", json!(self.last_error)),
            ("component", json!(self.sha256)),
            ("live", json!(self.live)),
            ("waiting", json!(self.waiting)),
            ("memoryBytes", json!(self.memory_bytes)),
            ("problems", self.problems.iter().map(problem).collect()),
        ];
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// A sentence's first word in capitals.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The refusal of a call that the component would have kept waiting for longer than it may.
fn kept_waiting(message: String) -> Refusal {
    Refusal { code: UNAVAILABLE.into(), reason: RefusalReason::Other(None), message }
}

/// Refuses a configuration that is too long to be brought to anybody.
fn check_size(json: &str, limits: &Limits) -> Result<(), Vec<Problem>> {
    let (size, most) = (json.len(), limits.config_bytes);
    if size <= most {
        return Ok(());
    }
    Err(vec![whole_text(format!("has {size} bytes, more than the {most} a configuration may have"))])
}

/// A problem with a configuration as a whole.
fn whole_text(message: String) -> Problem {
    Problem { path: String::new(), message }
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
