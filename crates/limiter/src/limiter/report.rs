//! What the limiter says: refusals, warnings, stats. Nothing here changes what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{Limiter, RouteIx, SessionIx, Waiter};
use crate::call::{CallId, Instant, Reason, Refusal, WaitEnded};
use crate::queue::{Kind, Rank};
use crate::scope::{CountBy, Scope, ScopeIx, ScopeKey};
use crate::stats::{
    About, Blocked, Entry, Holder, PAGE, RunTotals, ScopeStats, Stats, StatsQuery, WaiterStats,
};

/// Calls and since when, of a session on a route.
type Held = BTreeMap<(SessionIx, RouteIx), (u32, Instant)>;

/// How a scope blocks a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Paused,
    /// The pool gave fewer seats than the limit would allow.
    Pool,
    /// Spawns already let through will need the seats that are free.
    Credits,
    /// The last free seat is kept for an older waiter.
    Kept,
    Full,
}

impl Why {
    fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Pool => "pool",
            Self::Credits => "credits",
            Self::Kept => "kept",
            Self::Full => "full",
        }
    }
}

/// Refusals and warnings.
impl Limiter {
    /// The first scope that has no room for a waiter.
    fn blocker(&self, waiter: &Waiter) -> Option<(&Scope, Why)> {
        let scope = self
            .needs(waiter.kind, waiter.session, waiter.route)
            .map(|ix| &self.scopes[ix])
            .find(|scope| !scope.has_room(waiter.kind, waiter.rank, self.config.max_overtakes))?;
        let (occupancy, limit) = (scope.occupancy(), scope.limit().unwrap_or(u32::MAX));
        let why = if scope.max == Some(0) {
            Why::Paused
        } else if occupancy >= limit {
            if scope.max.is_some_and(|max| occupancy < max) { Why::Pool } else { Why::Full }
        } else if waiter.kind == Kind::Spawn && occupancy.saturating_add(scope.credits) >= limit {
            Why::Credits
        } else {
            Why::Kept
        };
        Some((scope, why))
    }

    pub(super) fn queue_full(
        &self,
        waiter: &Waiter,
        scope: &ScopeKey,
        waiting: u32,
        bound: u32,
        knob: &str,
    ) -> Refusal {
        let named = brief(scope);
        let mut message = if bound == 0 {
            format!("No seat is free for {named}, and nobody may wait for one ({knob} is 0).")
        } else {
            format!("The line for {named} is full: {waiting} wait and no more than {bound} may ({knob}).")
        };
        let blocker = self.blocker(waiter);
        if let Some((blocker, why)) = blocker {
            let _ = write!(message, " {}.", self.state_of(blocker, why));
        }
        let raise = match blocker {
            Some((scope, why)) if is_by_ceiling(scope, why) => "have the operator raise the ceiling",
            _ => "raise the limit",
        };
        let _ = write!(message, " Start fewer agents at once, {raise}, or raise {knob}.");
        Refusal { reason: Reason::QueueFull { scope: scope.to_string(), waiting, bound }, message }
    }

    /// The refusal of a wait that ran out, with the numbers of now.
    pub(super) fn wait_ended(&self, waiter: &Waiter) -> Refusal {
        let waited_ms = self.now.saturating_sub(waiter.since);
        let time = seconds(waited_ms);
        let route = &self.routes[waiter.route];
        let in_line = route.waiting - 1;
        let Some((scope, why)) = self.blocker(waiter) else {
            // It fits, but more was due in one step than one step decides.
            let scope = ScopeKey::Route(route.route.clone()).to_string();
            let message =
                format!("Waited {time} for {}; its turn came too late. Raise queueTimeoutMs.", brief(&scope));
            let ended = WaitEnded { scope, waited_ms, occupancy: 0, limit: 0 };
            return Refusal { reason: Reason::QueueTimeout(ended), message };
        };
        let mut message =
            format!("Waited {time} for a seat of {}. {}", brief(&scope.key), self.state_of(scope, why));
        let _ = match in_line {
            0 => write!(message, "; nobody else is in line."),
            n => write!(message, "; {n} more in line."),
        };
        if let Some(holder) = self.nested_in(waiter) {
            let who = self.name(holder);
            let _ = write!(
                message,
                " The stream of {who} waits for this call itself and holds the seat meanwhile."
            );
        }
        message.push_str(match why {
            Why::Paused if is_by_ceiling(scope, why) => " The operator lifts it by raising the ceiling.",
            _ if is_by_ceiling(scope, why) => {
                " Start fewer agents at once, have the operator raise the ceiling, or raise queueTimeoutMs."
            }
            Why::Paused => " Set its max above 0, or to -1 for no limit, to let calls through.",
            Why::Pool => {
                " Others that share the pool hold its seats; raise max everywhere, or queueTimeoutMs."
            }
            _ => " Start fewer agents at once, raise the limit, or raise queueTimeoutMs.",
        });
        let ended = WaitEnded {
            scope: scope.key.to_string(),
            waited_ms,
            occupancy: scope.occupancy(),
            limit: scope.limit().unwrap_or(u32::MAX),
        };
        let reason = match why {
            Why::Paused => Reason::Paused(ended),
            Why::Pool => Reason::NoPoolSeat(ended),
            Why::Full | Why::Credits | Why::Kept => Reason::QueueTimeout(ended),
        };
        Refusal { reason, message }
    }

    /// A call that waits for a seat which is held by the very stream that waits for the call can only run out. Said at
    /// once, since with a timeout of 0 it hangs for ever.
    pub(super) fn warn_of_nesting(&mut self, id: CallId) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        let Some((holder, (scope, _))) = self.nested_in(waiter).zip(self.blocker(waiter)) else { return };
        let end = match self.config.queue_timeout_ms {
            0 => "queueTimeoutMs is 0, so it waits for ever".to_owned(),
            ms => format!("it is refused after {}", seconds(ms)),
        };
        let warning = format!(
            "{} waits for a seat of {}, which {} holds while its own stream waits for that call: {end}. Raise the limit of \
             {} above the depth of nesting.",
            self.name(waiter.session),
            brief(&scope.key),
            self.name(holder),
            brief(&scope.key),
        );
        self.warnings.push(warning);
    }

    /// The session whose stream this call is awaited by, if it holds a seat of the scope that blocks the call.
    fn nested_in(&self, waiter: &Waiter) -> Option<SessionIx> {
        /// Deeper nesting is not looked into; a host that names a cycle must not hang us.
        const DEPTH: usize = 64;
        let within = waiter.within?;
        let (scope, _) = self.blocker(waiter)?;
        std::iter::successors(Some(within), |outer| self.live.get(outer)?.within)
            .take(DEPTH)
            .filter_map(|outer| self.live.get(&outer).map(|live| (outer, live.session)))
            .find(|&(outer, session)| scope.holders.contains_key(&scope.holder(session, outer)))
            .map(|(_, session)| session)
    }

    fn state_of(&self, scope: &Scope, why: Why) -> String {
        let (key, occupancy, limit) =
            (brief(&scope.key), scope.occupancy(), scope.limit().unwrap_or(u32::MAX));
        match why {
            Why::Paused if scope.is_ceiling_least() => format!("{key} is paused for all tenants (ceiling 0)"),
            Why::Paused => format!("{key} is paused (max 0)"),
            Why::Pool => match scope.ceiling {
                Some(ceiling) => format!(
                    "{limit} of the {ceiling} seats that all tenants share (the ceiling) are held here, others hold the rest"
                ),
                None => format!("Its pool gave {limit} of {} seats", scope.max.unwrap_or(u32::MAX)),
            },
            Why::Credits => format!(
                "{occupancy} of {limit} in use and {} promised to agents that are starting",
                scope.credits
            ),
            Why::Kept => format!("{occupancy} of {limit} in use, the last seat is kept for an older waiter"),
            Why::Full => {
                let mut text = format!("{occupancy} of {limit} in use");
                if let Some((holder, since)) = scope.longest() {
                    let session = match scope.count_by {
                        CountBy::Session => Some(holder as SessionIx),
                        CountBy::Stream => self.live.get(&holder).map(|live| live.session),
                    };
                    let who = session.map_or_else(|| "a call".into(), |session| self.name(session));
                    let since = seconds(self.now.saturating_sub(since));
                    let _ = write!(text, ", longest by {who} for {since}");
                }
                if scope.is_ceiling_least() {
                    text.push_str("; that is the ceiling over all tenants");
                }
                text
            }
        }
    }

    fn name(&self, session: SessionIx) -> String {
        match &self.sessions[session].name {
            Some(name) => format!("session {:?}", brief(name)),
            None => "a call without a session".into(),
        }
    }
}

/// Whether it is what all tenants share that blocks, not this one's own limit.
fn is_by_ceiling(scope: &Scope, why: Why) -> bool {
    match why {
        Why::Pool => scope.ceiling.is_some(),
        Why::Paused | Why::Full => scope.is_ceiling_least(),
        Why::Credits | Why::Kept => false,
    }
}

/// A name as a sentence bears it, whatever its length.
fn brief(name: &impl ToString) -> String {
    const LONGEST: usize = 80;
    let mut text = name.to_string();
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

/// Stats.
impl Limiter {
    /// The sessions that run, wait or have calls that are remembered, by name; in no order.
    pub fn sessions(&self) -> impl Iterator<Item = &str> {
        self.session_index.iter()
    }

    /// Who runs, who waits and why. Reading changes nothing.
    pub fn stats(&self, query: &StatsQuery, now: Instant) -> Stats {
        let now = self.now.max(now);
        let scope = query.scope.as_deref().map(ScopeKey::parse);
        let in_scope = |route: RouteIx| match &scope {
            None => true,
            Some(None) => false,
            Some(Some(key)) => self.routes[route].scopes.iter().any(|&scope| self.scopes[scope].key == *key),
        };
        let sessions: Option<BTreeSet<SessionIx>> = query
            .sessions
            .as_ref()
            .map(|names| names.iter().filter_map(|name| self.session_index.get(name)).collect());
        let listed = |session: SessionIx, route: RouteIx| {
            sessions.as_ref().is_none_or(|sessions| sessions.contains(&session)) && in_scope(route)
        };
        let held = self.held(&listed);
        let waiting = self.waiters.values().filter(|waiter| listed(waiter.session, waiter.route));
        let waiting: Vec<(Rank, RouteIx)> = waiting.map(|waiter| (waiter.rank, waiter.route)).collect();
        let routes: Option<BTreeSet<RouteIx>> = sessions.is_some().then(|| {
            held.keys().map(|&(_, route)| route).chain(waiting.iter().map(|&(_, route)| route)).collect()
        });
        let (entries, entries_total) = self.entries(query.offset, routes.as_ref());
        let (scopes, scopes_total) = self.scope_page(query.offset, routes.as_ref(), now);
        let (holders, holders_total) = self.holders(query.offset, now, held);
        let (waiters, waiters_total) = self.waiter_page(query.offset, now, waiting);
        let end = query.offset.saturating_add(PAGE);
        Stats {
            now,
            truncated: [entries_total, scopes_total, holders_total, waiters_total]
                .iter()
                .any(|&total| total > end),
            entries,
            scopes,
            holders,
            waiters,
            entries_total,
            scopes_total,
            holders_total,
            waiters_total,
            credits: self.spawns.values().filter(|spawn| spawn.credit).count(),
            wait_ms: self.observed.waits(),
            totals: RunTotals {
                live: self.live.len() as u64,
                waiting: self.waiters.len() as u64,
                spawned: self.spawns.len() as u64,
                totals: self.observed.totals,
                ..self.totals
            },
        }
    }

    fn entries(&self, offset: usize, among: Option<&BTreeSet<RouteIx>>) -> (Vec<Entry>, usize) {
        let routes = self.route_index.values().filter(|ix| among.is_none_or(|among| among.contains(ix)));
        let busy = routes.map(|&ix| &self.routes[ix]).filter_map(|state| {
            let scope = &self.scopes[state.scopes[0]];
            let active = match scope.count_by {
                CountBy::Session => scope.occupancy(),
                CountBy::Stream => {
                    let calls = scope.holders.keys().filter_map(|call| self.live.get(call));
                    calls.map(|live| live.session).collect::<BTreeSet<_>>().len() as u32
                }
            };
            (active + state.waiting > 0).then_some((state, active))
        });
        let total = busy.clone().count();
        let page = busy.skip(offset).take(PAGE).map(|(state, active)| Entry {
            provider: state.route.provider.clone(),
            model: state.route.model.clone(),
            active,
            waiting: state.waiting,
        });
        (page.collect(), total)
    }

    /// Configured scopes first, then what else is busy, each in the order of scopes.
    fn scope_page(
        &self,
        offset: usize,
        among: Option<&BTreeSet<RouteIx>>,
        now: Instant,
    ) -> (Vec<ScopeStats>, usize) {
        let mut waiting: BTreeMap<ScopeIx, (u32, Instant)> = BTreeMap::new();
        for (route, (count, oldest)) in self.waiting_by_route() {
            for &scope in &self.routes[route].scopes {
                let (all, since) = waiting.entry(scope).or_insert((0, oldest));
                *all += count;
                *since = oldest.min(*since);
            }
        }
        let limited = |key: &&ScopeKey| self.config.limits.contains_key(*key);
        let keys: Vec<&ScopeKey> = match among {
            None => {
                // Those of idle routes only are as good as gone.
                let busy = self.scope_index.iter().filter(|(_, ix)| self.scopes[**ix].routes > 0);
                let unlimited = busy.map(|(key, _)| key).filter(|key| !limited(key));
                self.config.limits.keys().chain(unlimited).collect()
            }
            Some(routes) => {
                let scopes = routes.iter().flat_map(|&route| &self.routes[route].scopes);
                let mut keys: Vec<_> = scopes.map(|&scope| &self.scopes[scope].key).collect();
                keys.sort_unstable_by_key(|key| (!limited(key), *key));
                keys.dedup();
                keys
            }
        };
        let page = keys.iter().skip(offset).take(PAGE).map(|&key| match self.scope_index.get(key) {
            Some(ix) => self.scope_stats(&self.scopes[*ix], waiting.get(ix).copied(), now),
            None => self.scope_stats(&self.new_scope(key), None, now),
        });
        (page.collect(), keys.len())
    }

    fn scope_stats(&self, scope: &Scope, waiting: Option<(u32, Instant)>, now: Instant) -> ScopeStats {
        ScopeStats {
            scope: scope.key.to_string(),
            configured: self.config.limits.contains_key(&scope.key),
            max: scope.own.map_or(-1, i64::from),
            ceiling: scope.ceiling,
            count_by: match scope.count_by {
                CountBy::Session => "session",
                CountBy::Stream => "stream",
            },
            occupancy: scope.occupancy(),
            credits: scope.credits,
            pool_seats: scope.capacity.as_ref().map(|capacity| capacity.seats),
            kept_for: scope.kept_for(Kind::Stream).map(|rank| rank.id),
            waiting: waiting.map_or(0, |(count, _)| count),
            oldest_wait_ms: waiting.map(|(_, since)| now.saturating_sub(since)),
            wait_ms: scope.observed.waits(),
            mean_call_ms: scope.observed.mean_call_ms(),
            totals: scope.observed.totals,
        }
    }

    /// How many wait for each route, and since when the oldest of them does.
    fn waiting_by_route(&self) -> impl Iterator<Item = (RouteIx, (u32, Instant))> {
        let mut waiting: Vec<Option<(u32, Instant)>> = vec![None; self.routes.capacity()];
        for waiter in self.waiters.values() {
            let (count, oldest) = waiting[waiter.route].get_or_insert((0, waiter.since));
            *count += 1;
            *oldest = waiter.since.min(*oldest);
        }
        waiting.into_iter().enumerate().filter_map(|(route, waiting)| waiting.map(|waiting| (route, waiting)))
    }

    /// Who holds on where, with how many calls and since when.
    fn held(&self, listed: &dyn Fn(SessionIx, RouteIx) -> bool) -> Held {
        let mut held = Held::new();
        for live in self.live.values().filter(|live| listed(live.session, live.route)) {
            let (calls, _) = held.entry((live.session, live.route)).or_insert((0, live.since));
            *calls += 1;
        }
        for ((session, route), (_, since)) in &mut held {
            // The route's own scope knows since when the session has held on without a gap.
            let scope = &self.scopes[self.routes[*route].scopes[0]];
            if let (CountBy::Session, Some(held)) = (scope.count_by, scope.holders.get(&(*session as u64))) {
                *since = held.since;
            }
        }
        held
    }

    fn holders(&self, offset: usize, now: Instant, held: Held) -> (Vec<Holder>, usize) {
        let mut held: Vec<_> = held.into_iter().collect();
        held.sort_by_key(|&(key, (_, since))| (since, key));
        let total = held.len();
        let page =
            held.into_iter().skip(offset).take(PAGE).map(|((session, route), (calls, since))| Holder {
                session: self.session_name(session),
                about: About::default(),
                provider: self.routes[route].route.provider.clone(),
                model: self.routes[route].route.model.clone(),
                calls,
                held_ms: now.saturating_sub(since),
            });
        (page.collect(), total)
    }

    fn waiter_page(
        &self,
        offset: usize,
        now: Instant,
        mut waiting: Vec<(Rank, RouteIx)>,
    ) -> (Vec<WaiterStats>, usize) {
        let total = waiting.len();
        let end = offset.saturating_add(PAGE).min(total);
        // A line may be long and is asked about often: only what is listed is put in order.
        if end < total {
            waiting.select_nth_unstable(end);
            waiting.truncate(end);
        }
        waiting.sort_unstable();
        waiting.drain(..offset.min(end));
        let page = self.positions(&waiting).into_iter().zip(waiting).map(|(position, (rank, route))| {
            let waiter = &self.waiters[&rank.id];
            let route = &self.routes[route].route;
            WaiterStats {
                id: rank.id,
                kind: match waiter.kind {
                    Kind::Stream => "stream",
                    Kind::Spawn => "spawn",
                },
                session: self.session_name(waiter.session),
                about: About::default(),
                provider: route.provider.clone(),
                model: route.model.clone(),
                position,
                waited_ms: now.saturating_sub(waiter.since),
                blocked_by: self.blocker(waiter).map(|(scope, why)| Blocked {
                    scope: scope.key.to_string(),
                    why: why.name(),
                    limit: scope.limit().unwrap_or(u32::MAX),
                    occupancy: scope.occupancy(),
                }),
            }
        });
        (page.collect(), total)
    }

    /// The position of each of these waiters, which are in order, among all who wait for its route; from 1. One look at
    /// everybody who waits.
    fn positions(&self, page: &[(Rank, RouteIx)]) -> Vec<u32> {
        let mut lines: BTreeMap<RouteIx, Vec<(Rank, usize)>> = BTreeMap::new();
        for (at, &(rank, route)) in page.iter().enumerate() {
            lines.entry(route).or_default().push((rank, at));
        }
        // How many there are from the one listed before up to each.
        let mut positions = vec![0; page.len()];
        for waiter in self.waiters.values() {
            let Some(line) = lines.get(&waiter.route) else { continue };
            let next = line.partition_point(|&(rank, _)| rank < waiter.rank);
            if let Some(&(_, at)) = line.get(next) {
                positions[at] += 1;
            }
        }
        for line in lines.values() {
            let mut before = 0;
            for &(_, at) in line {
                positions[at] += before;
                before = positions[at];
            }
        }
        positions
    }

    fn session_name(&self, session: SessionIx) -> Option<String> {
        self.sessions[session].name.as_deref().map(str::to_owned)
    }
}
