//! What comes in and what goes out: calls, verdicts, refusals.

use std::fmt;

use serde::Serialize;

/// Names one hook invocation. Minted by the host in rising order, so it is also the arrival number.
pub type CallId = u64;

/// Milliseconds on the host's clock, which never steps back. The limiter has no clock of its own.
pub type Instant = u64;

/// Orders waiters, smaller is older. Given once, kept across reconfiguration and restore.
pub type Seniority = u64;

/// The code every refusal of the limiter carries.
pub const CODE: &str = "GEN_CAPACITY_EXCEEDED";

/// A provider and a model, after the harness has chosen them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// The harness's id of the provider.
    pub provider: String,
    /// The provider's id of the model.
    pub model: String,
}

impl Route {
    /// A route from its two ids.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into() }
    }
}

/// A streaming model call about to leave for its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCall {
    /// Where it goes.
    pub route: Route,
    /// Who makes it; `None` makes the call its own session, in a name space no session id can reach.
    pub session: Option<String>,
    /// The session's first model call.
    pub first: bool,
    /// The spawn that made the session, if the host knows one; only meaningful with `first`.
    pub spawn: Option<CallId>,
    /// The live call whose stream this one is awaited by, if the host sees such nesting.
    pub within: Option<CallId>,
}

/// A spawn tool call: paced through the line of the *child's* route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnCall {
    /// The tool's name.
    pub tool: String,
    /// The session that spawns.
    pub session: Option<String>,
    /// The route the child would use; `None` passes without a credit.
    pub route: Option<Route>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end.
    Completed,
    /// It was aborted or given up.
    Cancelled,
    /// It failed.
    Failed,
}

/// The answer to a call that wants to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may start now.
    Admit,
    /// It stands in line; the decision comes out of [`Limiter::settled`](crate::Limiter::settled).
    Wait {
        /// When the wait runs out, if it does.
        deadline: Option<Instant>,
        /// Its place in the order of waiters.
        seniority: Seniority,
    },
    /// It may not start.
    Deny(Refusal),
}

/// The end of one wait: `Ok` is admission.
pub type Settled = (CallId, Result<(), Refusal>);

/// Why something may not start at all. [`fmt::Display`] is the sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The numbers, for machines.
    pub reason: Reason,
    /// The sentence, for people: scope, limit, occupancy, line, wait, what to do.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The kinds of refusal, with their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The line was full at the door.
    QueueFull {
        /// Text of the route (or `*/*` for the bound on all waiters) whose line is full.
        scope: String,
        /// How many wait.
        waiting: u32,
        /// How many may.
        bound: u32,
    },
    /// The wait ran out.
    QueueTimeout(WaitEnded),
    /// The wait ran out and the scope that blocks has a limit of 0.
    Paused(WaitEnded),
    /// The wait ran out and the scope that blocks got no seat from its pool.
    NoPoolSeat(WaitEnded),
    /// The caller broke the contract (an id in use, an id out of range).
    Other(Option<String>),
}

/// The numbers of a wait that ran out, as they were when it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitEnded {
    /// Text of the scope that blocks.
    pub scope: String,
    /// How long the wait was, in milliseconds.
    pub waited_ms: u64,
    /// Sessions that hold a seat of the scope.
    pub occupancy: u32,
    /// The scope's limit.
    pub limit: u32,
}

/// A call that was running before the state was rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveCall {
    /// Its id.
    pub id: CallId,
    /// What it is.
    pub call: AnyCall,
    /// When it was admitted.
    pub since: Instant,
    /// For a spawn whose tool call has returned: when and how.
    pub ended: Option<SpawnEnd>,
}

/// How the tool call of a spawn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnEnd {
    /// When it returned.
    pub at: Instant,
    /// Whether it completed; if it failed or was cancelled, its credit ended with it.
    pub completed: bool,
}

/// A call that was waiting before the state was rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    /// Its id.
    pub id: CallId,
    /// What it is.
    pub call: AnyCall,
    /// When it arrived.
    pub since: Instant,
    /// Its place, as first given.
    pub seniority: Seniority,
}

/// Either kind of call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyCall {
    /// A model call.
    Stream(StreamCall),
    /// A spawn.
    Spawn(SpawnCall),
}

/// What a pooled scope needs from its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Text of the scope.
    pub scope: String,
    /// The pool that its row names.
    pub pool: Option<String>,
    /// The row's own limit; the ceiling, if it has none.
    pub max: u32,
    /// What all tenants together may not exceed, if the operator says.
    pub ceiling: Option<u32>,
    /// Seats it holds of its pool, occupied or not.
    pub held: u32,
    /// Seats in use.
    pub occupied: u32,
    /// Seats that would serve everybody who may take one.
    pub wanted: u32,
}

/// What a pool gives to a pooled scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Text of the scope.
    pub scope: String,
    /// So many seats are held from now on, in place of what was held before.
    pub seats: u32,
    /// The instant at which they end, if they do.
    pub until: Option<Instant>,
    /// Others wait for seats of the pool: one that comes free goes back to it, also if somebody waits here.
    pub contended: bool,
}
