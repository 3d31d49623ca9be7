//! What goes in and what comes out: the contract's own records, and the few shapes that only a host has.

pub use crate::bindings::dsh::plugin::types::{
    CallId, Failure, Instant, LineFull, Outcome, Refusal, RefusalReason, Route, StreamCall, ToolCall,
    WaitEnded,
};
pub use crate::bindings::exports::dsh::plugin::lifecycle::{Mode, Problem};

/// The answer to a call that wants to start.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It may start now.
    Admit,
    /// It stands in line; the decision comes out of [`take_settled`](crate::Plugin::take_settled).
    Wait {
        /// When the wait runs out, if it does.
        deadline: Option<Instant>,
        /// Its place, smaller is older.
        seniority: u64,
    },
    /// It may not start.
    Deny(Refusal),
}

/// A call that has been asked about.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its id, for [`finish`](crate::Plugin::finish).
    pub id: CallId,
    /// What was decided.
    pub verdict: Verdict,
}

/// The end of one wait: `Ok` is admission.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Whose.
    pub id: CallId,
    /// How it ended.
    pub result: Result<(), Refusal>,
}
