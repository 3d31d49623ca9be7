//! What can be seen from outside. Reading changes nothing.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::call::{CallId, Instant, Reason};

/// How many admissions the wait percentiles look back on.
const WAITS: usize = 1_024;
/// How many calls the mean duration looks back on.
const DURATIONS: usize = 64;
/// How many of each kind one answer lists.
pub const PAGE: usize = 500;

/// The last `N` values, oldest overwritten first.
#[derive(Clone, Debug)]
struct Ring<const N: usize> {
    values: Vec<u32>,
    next: usize,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self { values: Vec::new(), next: 0 }
    }
}

impl<const N: usize> Ring<N> {
    fn push(&mut self, ms: u64) {
        let value = u32::try_from(ms).unwrap_or(u32::MAX);
        if self.values.len() < N {
            self.values.push(value);
        } else {
            self.values[self.next] = value;
        }
        self.next = (self.next + 1) % N;
    }

    /// Forgets them, and keeps room for a few.
    fn clear(&mut self) {
        self.values.clear();
        self.values.shrink_to(16);
        self.next = 0;
    }
}

/// What a scope, or the whole limiter, has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    waits: Ring<WAITS>,
    durations: Ring<DURATIONS>,
    pub totals: Totals,
}

impl Observed {
    /// Whether it has seen nothing.
    #[cfg(feature = "audit")]
    pub fn is_empty(&self) -> bool {
        self.waits.values.is_empty() && self.durations.values.is_empty() && self.totals == Totals::default()
    }

    /// As if it had seen nothing yet.
    pub fn forget(&mut self) {
        self.waits.clear();
        self.durations.clear();
        self.totals = Totals::default();
    }

    pub fn admitted(&mut self, waited_ms: Option<u64>) {
        self.totals.admitted += 1;
        self.waits.push(waited_ms.unwrap_or(0));
        if let Some(ms) = waited_ms {
            self.totals.waited += 1;
            self.totals.sum_wait_ms = self.totals.sum_wait_ms.saturating_add(ms);
            self.totals.max_wait_ms = self.totals.max_wait_ms.max(ms);
        }
    }

    pub fn finished(&mut self, ran_ms: u64) {
        self.durations.push(ran_ms);
    }

    pub fn refused(&mut self, reason: &Reason) {
        let refused = &mut self.totals.refused;
        *match reason {
            Reason::QueueFull { .. } => &mut refused.queue_full,
            Reason::QueueTimeout(_) => &mut refused.queue_timeout,
            Reason::Paused(_) => &mut refused.paused,
            Reason::NoPoolSeat(_) => &mut refused.no_pool_seat,
            Reason::Other(_) => &mut refused.other,
        } += 1;
    }

    pub fn waits(&self) -> Option<Waits> {
        let mut values = self.waits.values.clone();
        let last = values.len().checked_sub(1)?;
        // Nobody needs all of them in order.
        let mut at = |part: usize| u64::from(*values.select_nth_unstable((last * part).div_ceil(100)).1);
        Some(Waits { p50: at(50), p95: at(95), max: at(100), of: last + 1 })
    }

    pub fn mean_call_ms(&self) -> Option<u64> {
        let n = self.durations.values.len() as u64;
        (n > 0).then(|| self.durations.values.iter().map(|&ms| u64::from(ms)).sum::<u64>() / n)
    }
}

/// What a reader of stats asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsQuery {
    /// Only holders and waiters of this scope (its text).
    pub scope: Option<String>,
    /// Only holders and waiters of these sessions, and only the routes and scopes that those are in.
    pub sessions: Option<BTreeSet<String>>,
    /// How many of each kind to leave out at the front.
    pub offset: usize,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// The instant they are of, on the host's clock.
    pub now: Instant,
    /// Per busy route, in order: how many sessions generate and how many calls and spawns wait.
    pub entries: Vec<Entry>,
    /// Per configured scope and then per other busy one, each in the order of scopes.
    pub scopes: Vec<ScopeStats>,
    /// Who generates, longest first.
    pub holders: Vec<Holder>,
    /// Who waits, oldest first.
    pub waiters: Vec<WaiterStats>,
    /// How many busy routes there are in all, listed or not.
    pub entries_total: usize,
    /// How many configured or busy scopes there are in all, listed or not.
    pub scopes_total: usize,
    /// How many holders there are in all, listed or not.
    pub holders_total: usize,
    /// How many waiters there are in all, listed or not.
    pub waiters_total: usize,
    /// Whether more follow after those listed.
    pub truncated: bool,
    /// Spawns let through whose child has not called yet.
    pub credits: usize,
    /// Wait percentiles of all routes together.
    pub wait_ms: Option<Waits>,
    /// The run in numbers.
    pub totals: RunTotals,
}

/// One busy route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The provider's id.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Distinct sessions with a live call.
    pub active: u32,
    /// Calls and spawns that wait.
    pub waiting: u32,
}

/// One scope.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeStats {
    /// Its text.
    pub scope: String,
    /// Whether the configuration names it; it is then kept, and its totals with it, while nobody is there.
    pub configured: bool,
    /// The limit of its own row; -1 is unlimited, 0 paused.
    pub max: i64,
    /// What all tenants together may not exceed, if the operator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<u32>,
    /// `session` or `stream`.
    pub count_by: &'static str,
    /// Seats held.
    pub occupancy: u32,
    /// Spawns let through whose child has not called yet.
    pub credits: u32,
    /// For pooled scopes: the seats held of the pool, or of the ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_seats: Option<u32>,
    /// The waiter the last free seat is kept for.
    pub kept_for: Option<CallId>,
    /// Waiters for routes of this scope.
    pub waiting: u32,
    /// How long the oldest of them has waited, in milliseconds.
    pub oldest_wait_ms: Option<u64>,
    /// Wait percentiles over the last 1024 admissions.
    pub wait_ms: Option<Waits>,
    /// Mean duration of the last 64 calls, in milliseconds.
    pub mean_call_ms: Option<u64>,
    /// The scope's run in numbers.
    pub totals: Totals,
}

/// Percentiles of waits, in milliseconds; those admitted at once count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Waits {
    /// The median.
    pub p50: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The longest.
    pub max: u64,
    /// Over how many admissions.
    pub of: usize,
}

/// Numbers since the state was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Calls and spawns admitted, at once or after a wait.
    pub admitted: u64,
    /// Of those, the ones that waited.
    pub waited: u64,
    /// All waits that ended in admission together, in milliseconds.
    pub sum_wait_ms: u64,
    /// The longest wait that ended in admission, in milliseconds.
    pub max_wait_ms: u64,
    /// Refused, by reason.
    pub refused: Refused,
    /// Withdrawn while waiting.
    pub cancelled: u64,
}

/// Refusals by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The line was full.
    pub queue_full: u64,
    /// The wait ran out.
    pub queue_timeout: u64,
    /// The wait ran out at a limit of 0.
    pub paused: u64,
    /// The wait ran out without a seat from the pool.
    pub no_pool_seat: u64,
    /// The caller broke the contract.
    pub other: u64,
}

impl Refused {
    /// Each reason by its name, and how often it was.
    pub fn by_reason(&self) -> [(&'static str, u64); 5] {
        [
            ("queue-full", self.queue_full),
            ("queue-timeout", self.queue_timeout),
            ("paused", self.paused),
            ("no-pool-seat", self.no_pool_seat),
            ("other", self.other),
        ]
    }

    /// All of them.
    pub fn sum(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }
}

/// The whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTotals {
    /// When counting began; a rebuild after a fault begins anew.
    pub since: Instant,
    /// Calls and spawns that asked, restored ones included.
    pub submitted: u64,
    /// Model calls that run now.
    pub live: u64,
    /// Calls and spawns that wait now.
    pub waiting: u64,
    /// Spawns let through that are still remembered.
    pub spawned: u64,
    /// Calls and spawns that have come to their end.
    pub finished: u64,
    /// What happened to those that asked.
    #[serde(flatten)]
    pub totals: Totals,
}

/// What people call a session, and whose child it is. The limiter does not know: whoever shows its stats adds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session that spawned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The root of its tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

/// One session that generates on one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The session, if the harness named one.
    pub session: Option<String>,
    /// What people call it.
    #[serde(flatten)]
    pub about: About,
    /// The provider's id.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Live calls.
    pub calls: u32,
    /// For how long without a gap, in milliseconds.
    pub held_ms: u64,
}

/// One waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaiterStats {
    /// The call.
    pub id: CallId,
    /// `stream` or `spawn`.
    pub kind: &'static str,
    /// Who waits; for a spawn, who spawns.
    pub session: Option<String>,
    /// What people call it.
    #[serde(flatten)]
    pub about: About,
    /// The provider's id.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Its position among those who wait for the same route, from 1.
    pub position: u32,
    /// How long it has waited, in milliseconds.
    pub waited_ms: u64,
    /// The scope that blocks it, how, and the numbers of that scope.
    pub blocked_by: Option<Blocked>,
}

/// What blocks a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// The scope's text.
    pub scope: String,
    /// How it blocks: `full`, `paused`, `pool` (others hold the seats of its pool, or of the ceiling), `credits` (spawns already let through) or `kept` (its last free seat is kept
    /// for an older waiter).
    pub why: &'static str,
    /// Its limit of now; of a pooled scope, what its pool allows.
    pub limit: u32,
    /// Seats held in it.
    pub occupancy: u32,
}
