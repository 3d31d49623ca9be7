//! What the rules speak of: who is there, and what is limited.

use std::collections::BTreeMap;

use limiter::{CallId, Instant, Seniority};

/// Who is there, under which limits.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// What is limited, in the order in which seats are taken.
    pub scopes: Vec<Scope>,
    /// For each route, those of the scopes that contain it, in the same order.
    pub routes: Vec<Vec<usize>>,
    /// The other settings.
    pub knobs: Knobs,
    /// Who runs.
    pub live: Vec<Call>,
    /// Who waits, oldest first.
    pub waiting: Vec<Call>,
    /// Spawns that were let through and are remembered.
    pub spawns: Vec<Spawn>,
}

/// A limited scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The least of the row's limit and the ceiling.
    pub max: u32,
    /// Whether each call is a holder of its own.
    pub by_call: bool,
    /// Seats held of a pool or a ceiling; `u32::MAX` where there is none.
    pub seats: u32,
    /// Whether others wait for those seats.
    pub contended: bool,
}

/// What else is configured, by its name there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    pub queue_timeout_ms: u64,
    pub spawn_grace_ms: u64,
    pub max_overtakes: u64,
    pub head_start: u64,
    pub max_queued: u32,
    pub max_waiting: u32,
}

/// A call, or a spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// Whether it is a spawn.
    pub is_spawn: bool,
    /// Who calls, by number.
    pub session: Option<usize>,
    /// Where it goes, by number.
    pub route: usize,
    /// Its place.
    pub seniority: Seniority,
    /// When it arrived; once admitted, when that was.
    pub since: Instant,
}

/// A spawn that was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// The spawn.
    pub call: Call,
    /// Its child may still come.
    pub credit: bool,
    /// When its tool call returned.
    pub ended: Option<Instant>,
    /// Whether that failed.
    pub failed: bool,
}

/// Why somebody may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// So many wait already, for the route or everywhere.
    Full {
        /// Whether all waiters are meant.
        everywhere: bool,
        /// How many they are.
        waiting: u32,
    },
    /// The wait ran out.
    Late {
        /// How long it was.
        waited_ms: u64,
        /// Which scope blocked, with its occupancy and limit.
        blocker: Option<(usize, u32, u32)>,
    },
}

/// Who was admitted and who was refused, in that order.
pub type Ended = Vec<(Call, Result<(), Refused>)>;

/// What the decision is made from: per waiter what it needs, and per needed scope what is free for streams and for spawns
/// and which waiter the last of that is kept for.
#[derive(Debug)]
pub struct Look {
    pub needs: Vec<Vec<usize>>,
    pub free: BTreeMap<usize, [u32; 2]>,
    pub kept: BTreeMap<usize, [Option<usize>; 2]>,
}
