//! What a limit counts. Limit, occupancy and credits live in one type so that they cannot drift apart.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::call::{CallId, Instant, Route};
use crate::queue::{Kind, NodeIx, Rank};
use crate::stats::Observed;

/// Index of a scope in the limiter's slab.
pub(crate) type ScopeIx = usize;

/// The place of a scope in the order of scopes: a [`ScopeKey`]'s, with what cannot meet in one list folded together.
pub(crate) type ScopeOrder = (u8, Option<Arc<str>>);

/// Names a scope. The derived order is the order in which seats are taken: route, groups by name, provider, everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScopeKey {
    /// One route.
    Route(Route),
    /// A named group of routes.
    Group(String),
    /// All models of a provider.
    Provider(String),
    /// All routes.
    Everything,
}

impl ScopeKey {
    fn order(&self) -> ScopeOrder {
        match self {
            Self::Route(_) => (0, None),
            Self::Group(name) => (1, Some(name.as_str().into())),
            Self::Provider(_) => (2, None),
            Self::Everything => (3, None),
        }
    }

    /// Reads what [`fmt::Display`] wrote; `None` if it is no scope's text.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix('@') {
            return Some(Self::Group(unescape(name)?));
        }
        let (provider, model) = text.split_once('/')?;
        match (provider, model) {
            ("*", "*") => Some(Self::Everything),
            ("*" | "", _) | (_, "") => None,
            (provider, "*") => Some(Self::Provider(unescape(provider)?)),
            (provider, model) => Some(Self::Route(Route::new(unescape(provider)?, unescape(model)?))),
        }
    }
}

/// `provider/model`, `provider/*`, `*/*` or `@group`; two scopes never share a text.
impl fmt::Display for ScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(route) => write!(f, "{}/{}", Escaped(&route.provider), Escaped(&route.model)),
            Self::Group(name) => write!(f, "@{}", Escaped(name)),
            Self::Provider(provider) => write!(f, "{}/*", Escaped(provider)),
            Self::Everything => f.write_str("*/*"),
        }
    }
}

/// An id with what has a meaning in scope texts percent-escaped: `/`, `%`, a leading `@`, and an id that is just `*`.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == "*" {
            return f.write_str("%2A");
        }
        for (at, c) in self.0.char_indices() {
            match c {
                '/' => f.write_str("%2F")?,
                '%' => f.write_str("%25")?,
                '@' if at == 0 => f.write_str("%40")?,
                c => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        out.push(match after.get(..2)? {
            "2F" => '/',
            "25" => '%',
            "40" => '@',
            "2A" => '*',
            _ => return None,
        });
        rest = &after[2..];
    }
    out.push_str(rest);
    Some(out)
}

/// What a seat of a scope is given to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountBy {
    /// A session with at least one live call holds one seat.
    #[default]
    Session,
    /// Every live call holds a seat.
    Stream,
}

/// The seats a pooled scope holds at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub seats: u32,
    /// The instant at which they end.
    pub until: Option<Instant>,
    /// Others wait for seats: one that comes free here is given back.
    pub contended: bool,
    pub source: Source,
}

/// Where seats come from: the pool that the row names, and whether there is a ceiling. Seats of one are none of another.
pub(crate) type Source = (Option<String>, bool);

impl Capacity {
    /// None held.
    pub fn none(source: Source) -> Self {
        Self { seats: 0, until: None, contended: false, source }
    }
}

/// One holder of a seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Its live calls in this scope; the seat is free when they are 0.
    pub calls: u32,
    pub since: Instant,
}

/// A table that keeps its place in memory when the last holder goes: the next is about to come.
pub(crate) type Holders = HashMap<u64, Held, BuildHasherDefault<Spread>>;

/// Hashes what nobody outside can choose: session indices and the host's call ids.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, n: u64) {
        // An odd number, whose high bits depend on all of n; the table looks at both ends.
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One scope: its limit and everything that is counted against it.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub key: ScopeKey,
    pub order: ScopeOrder,
    /// Whether the configuration names it.
    pub configured: bool,
    /// The configured limit, the least of `own` and `ceiling`; `None` is unlimited.
    pub max: Option<u32>,
    /// The `max` of its own row.
    pub own: Option<u32>,
    /// What all tenants together may not exceed.
    pub ceiling: Option<u32>,
    pub count_by: CountBy,
    /// `Some` if seats come from a pool that others draw from too.
    pub capacity: Option<Capacity>,
    /// By session index or call id, as `count_by` says.
    pub holders: Holders,
    /// Who of them has held longest, if somebody has asked since one came or went: whoever is refused is told, and thousands may
    /// be refused at once.
    pub longest: Cell<Option<u64>>,
    /// Spawns that were let through and whose child has not called yet.
    pub credits: u32,
    /// Busy routes that lie in this scope.
    pub routes: u32,
    /// Idle routes that are kept and lie in this scope.
    pub idle: u32,
    /// Nodes of the line that begin with this scope.
    pub nodes: BTreeSet<NodeIx>,
    /// Per kind: the oldest waiter of each such node that no limit of 0 blocks.
    pub candidates: [BTreeSet<(Rank, NodeIx)>; 2],
    pub observed: Observed,
}

impl Scope {
    pub fn new(key: ScopeKey) -> Self {
        Self {
            order: key.order(),
            key,
            configured: false,
            max: None,
            own: None,
            ceiling: None,
            count_by: CountBy::Session,
            capacity: None,
            holders: Holders::default(),
            longest: Cell::new(None),
            credits: 0,
            routes: 0,
            idle: 0,
            nodes: BTreeSet::new(),
            candidates: [BTreeSet::new(), BTreeSet::new()],
            observed: Observed::default(),
        }
    }

    /// Who holds the seat of this call.
    pub fn holder(&self, session: usize, call: CallId) -> u64 {
        match self.count_by {
            CountBy::Session => session as u64,
            CountBy::Stream => call,
        }
    }

    /// The seat of this holder comes free.
    pub fn remove(&mut self, holder: u64) {
        /// Room for so many stays when all have gone.
        const KEPT: usize = 16;
        self.holders.remove(&holder);
        self.longest.set(None);
        let (len, room) = (self.holders.len(), self.holders.capacity());
        if room > KEPT && len < room / 8 {
            self.holders.shrink_to(2 * len);
        }
    }

    /// Who has held a seat longest, and since when.
    pub fn longest(&self) -> Option<(u64, Instant)> {
        let longest = self.longest.get().or_else(|| self.longest_anew());
        self.longest.set(longest);
        longest.and_then(|holder| Some((holder, self.holders.get(&holder)?.since)))
    }

    fn longest_anew(&self) -> Option<u64> {
        self.holders.iter().map(|(&holder, held)| (held.since, holder)).min().map(|(_, holder)| holder)
    }

    pub fn occupancy(&self) -> u32 {
        self.holders.len() as u32
    }

    /// The limit in force: `max`, or what the pool gave if that is less.
    pub fn limit(&self) -> Option<u32> {
        match (self.max, &self.capacity) {
            (Some(max), Some(capacity)) => Some(max.min(capacity.seats)),
            (max, _) => max,
        }
    }

    /// A seat has come free, or is promised to nobody any more: while others wait for seats of the pool it goes back in the
    /// same step, whoever waits here. The next may be ours again, at our turn.
    pub fn give_back(&mut self) {
        let occupancy = self.occupancy();
        if let Some(capacity) = self.capacity.as_mut().filter(|capacity| capacity.contended)
            // Of those that run without a seat none can be given back.
            && capacity.seats > occupancy
        {
            capacity.seats -= 1;
        }
    }

    /// Whether it is the ceiling that limits, not the row of its own.
    pub fn is_ceiling_least(&self) -> bool {
        self.ceiling.is_some_and(|ceiling| self.own.is_none_or(|own| ceiling < own))
    }

    /// Seats that are left for one more waiter of this kind: a spawn also counts those already let through.
    fn free(&self, kind: Kind) -> u32 {
        let used = match kind {
            Kind::Stream => self.occupancy(),
            Kind::Spawn => self.occupancy().saturating_add(self.credits),
        };
        self.limit().map_or(u32::MAX, |limit| limit.saturating_sub(used))
    }

    /// For whom the last free seat is kept, if it has come to that: the oldest waiter that could use it. Spawns already let
    /// through are as good as seats to the next spawn, so the last that is left for spawns is kept for the oldest spawn; from
    /// streams as well, even where credits leave more to them.
    pub fn kept_for(&self, kind: Kind) -> Option<Rank> {
        if self.free(kind) != 1 {
            return None;
        }
        let spawn = self.candidates[Kind::Spawn as usize].first();
        match kind {
            Kind::Spawn => spawn,
            Kind::Stream => self.candidates[Kind::Stream as usize].first().into_iter().chain(spawn).min(),
        }
        .map(|(rank, _)| *rank)
    }

    /// Whether a waiter of this kind and rank could take a seat here now.
    pub fn has_room(&self, kind: Kind, rank: Rank, max_overtakes: u64) -> bool {
        let kept_for_older = |kind| {
            let kept: Option<Rank> = self.kept_for(kind);
            kept.is_some_and(|kept| rank.seniority > kept.seniority.saturating_add(max_overtakes))
        };
        self.free(kind) > 0 && !kept_for_older(Kind::Stream) && !kept_for_older(Kind::Spawn)
    }
}
