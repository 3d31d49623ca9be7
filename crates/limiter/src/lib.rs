//! How many sessions may generate at once, who waits, in what order and for how long.
//!
//! # What it promises
//!
//! * Nobody is admitted into a scope at or above its limit. Limit and count are one value (`scope.rs`), read and changed in
//!   one step; a seat is counted at the instant of the decision.
//! * Work past the limit waits in line, oldest first. After every operation no waiter fits: a seat is never idle while
//!   somebody could use it, and nobody who fits is passed by a younger one.
//! * Who needs several seats gets all or none. The last free seat of a scope is kept for the oldest who could use it, so
//!   that they come to their turn whatever arrives.
//! * A wait ends exactly once: admitted, refused with its reason and numbers, or withdrawn by `finish`.
//! * `finish` is idempotent, works from any state and frees in the same step.
//!
//! # Why it holds
//!
//! Every operation has the same shape (see [`Limiter`]): end the waits that are due, free, then serve the line. Serving
//! is one loop that asks the line (`queue.rs`) for the oldest waiter that fits and admits it, until there is none. There is no
//! other way in, and nothing is decided between operations: the limiter has no clock, no I/O and no threads. Time comes
//! in as `now`, deadlines go out as data.
//!
//! # What it costs
//!
//! O(log n) in waiters per decision, independent of how many rows, routes and blocked waiters there are. Ending and
//! serving stop after 2 000 decisions per operation; [`Limiter::tick`] then answers "now", so that a host that bounds a
//! step in time is never cut short. A reconfiguration recounts everything and is linear, unless it only changes numbers: then
//! it is linear in rows. A refusal that names who holds a seat longest looks at all holders of that scope, if one came or went
//! since the last.
#![forbid(unsafe_code)]

mod call;
pub mod config;
mod limiter;
mod queue;
mod scope;
mod stats;

pub use call::*;
pub use config::Config;
#[cfg(feature = "audit")]
pub use limiter::Audit;
pub use limiter::Limiter;
pub use scope::{CountBy, ScopeKey};
pub use stats::*;
