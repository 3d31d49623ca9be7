//! The state machine.

mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slab::Slab;

use crate::call::{
    AnyCall, CallId, Instant, LiveCall, Need, Outcome, Reason, Refusal, Route, Seniority, Settled, SpawnCall,
    StreamCall, Verdict, WaitingCall,
};
use crate::config::{Config, Limit};
use crate::queue::{Kind, LineIx, Queue, Rank};
use crate::scope::{Capacity, CountBy, Held, Scope, ScopeIx, ScopeKey};
use crate::stats::{Observed, RunTotals};

/// Waits ended and waiters admitted in one operation, at most.
const DECISIONS: u32 = 4_000;

type RouteIx = usize;
type SessionIx = usize;

/// A route with somebody on it.
#[derive(Debug)]
struct RouteState {
    route: Route,
    /// Every scope that contains it, in the order of scopes.
    scopes: Vec<ScopeIx>,
    /// Those of them that have a limit.
    limited: Vec<ScopeIx>,
    waiting: u32,
    /// The spawns that wait for it.
    spawns: Option<LineIx>,
    users: u32,
}

/// A session with a call.
#[derive(Debug)]
struct Session {
    name: Option<Arc<str>>,
    /// Its waiting calls, by route.
    lines: BTreeMap<RouteIx, LineIx>,
    users: u32,
}

#[derive(Debug)]
struct Live {
    session: SessionIx,
    route: RouteIx,
    since: Instant,
    within: Option<CallId>,
}

#[derive(Debug)]
struct Waiter {
    kind: Kind,
    /// Who calls; for a spawn, who spawns.
    session: SessionIx,
    route: RouteIx,
    line: LineIx,
    rank: Rank,
    since: Instant,
    within: Option<CallId>,
}

/// A spawn that was let through, remembered for its child.
#[derive(Debug)]
struct Spawn {
    route: RouteIx,
    since: Instant,
    /// Its child has not called yet and may still come in time: it counts against the next spawn.
    credit: bool,
    ended: Option<Instant>,
}

impl Spawn {
    /// The instant from which its grace runs, if one runs.
    fn timer(&self) -> Option<Instant> {
        if self.credit { Some(self.since) } else { self.ended.map(|ended| ended.max(self.since)) }
    }
}

/// Somebody who wants to start.
struct Arrival {
    id: CallId,
    kind: Kind,
    session: Option<String>,
    route: Route,
    seniority: Seniority,
    since: Instant,
    within: Option<CallId>,
    /// It has stood in line before: a child whose spawn did, or a restored waiter.
    in_line_before: bool,
}

/// The limiter. See the crate's documentation for what it promises.
///
/// Every operation takes `now` and has the same shape: it ends the waits that are due, frees what it frees, and serves
/// the line. What that decides for waiters other than the caller is handed out by [`Limiter::settled`].
#[derive(Debug, Default)]
pub struct Limiter {
    config: Config,
    now: Instant,
    newest: CallId,
    /// Decisions left in this operation.
    budget: u32,
    /// Whose verdict this operation answers, so that nobody else has to be told of it.
    arriving: Option<CallId>,

    routes: Slab<RouteState>,
    route_index: BTreeMap<Route, RouteIx>,
    sessions: Slab<Session>,
    session_index: BTreeMap<Arc<str>, SessionIx>,
    scopes: Slab<Scope>,
    scope_index: BTreeMap<ScopeKey, ScopeIx>,

    live: BTreeMap<CallId, Live>,
    waiters: BTreeMap<CallId, Waiter>,
    spawns: BTreeMap<CallId, Spawn>,
    queue: Queue,

    /// Waiters by arrival: all wait equally long, so the first is the first due, whatever the timeout is now.
    arrivals: BTreeSet<(Instant, CallId)>,
    /// Spawns by the instant from which their grace runs.
    graces: BTreeSet<(Instant, CallId)>,
    /// Pooled scopes by the end of their capacity.
    leases: BTreeSet<(Instant, ScopeIx)>,

    settled: Vec<Settled>,
    warnings: Vec<String>,
    told: BTreeMap<ScopeKey, (u32, u32)>,
    observed: Observed,
    totals: RunTotals,
}

impl Limiter {
    /// A limiter that limits nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a configuration in force, live: everybody who runs or waits is counted in the scopes that contain their
    /// route now. Nobody is stopped and nobody loses their place. Linear in who is there.
    pub fn configure(&mut self, config: Config, now: Instant) {
        if self.totals.since == 0 {
            self.totals.since = now;
        }
        self.queue.max_overtakes = config.max_overtakes;
        self.config = config;
        self.begin_at(now);
        self.recount();
        self.end_due_waits();
        self.run_out_graces();
        self.told.clear();
        self.serve();
    }

    /// A model call wants to start.
    pub fn start_stream(&mut self, id: CallId, call: StreamCall, now: Instant) -> Verdict {
        self.begin(now);
        if let Some(refused) = self.check_new(id) {
            return refused;
        }
        // Its spawn's place is the child's own now.
        let spawned = call.spawn.filter(|&spawn| call.first && self.forget_spawn(spawn));
        let begun = call.session.is_some() && !call.first;
        let head_start = if begun { self.config.head_start } else { 0 };
        self.arrive(Arrival {
            id,
            kind: Kind::Stream,
            session: call.session,
            route: call.route,
            seniority: spawned.unwrap_or(id.saturating_sub(head_start)),
            since: self.now,
            within: call.within,
            in_line_before: spawned.is_some(),
        })
    }

    /// A spawn tool call wants to run. It takes no seat; let through, it leaves a credit until its child calls.
    pub fn start_spawn(&mut self, id: CallId, call: SpawnCall, now: Instant) -> Verdict {
        self.begin(now);
        if let Some(refused) = self.check_new(id) {
            return refused;
        }
        let Some(route) = call.route else {
            self.totals.finished += 1;
            self.observed.admitted(None);
            self.serve();
            return Verdict::Admit;
        };
        self.arrive(Arrival {
            id,
            kind: Kind::Spawn,
            session: call.session,
            route,
            seniority: id,
            since: self.now,
            within: None,
            in_line_before: false,
        })
    }

    /// A call ended, was aborted, or gave up waiting. Repeating it, or an unknown id, does nothing.
    pub fn finish(&mut self, id: CallId, outcome: Outcome, now: Instant) {
        self.begin(now);
        if let Some(live) = self.live.remove(&id) {
            let ran_ms = self.now.saturating_sub(live.since);
            for at in 0..self.routes[live.route].scopes.len() {
                let scope = self.routes[live.route].scopes[at];
                self.scopes[scope].observed.finished(ran_ms);
            }
            self.observed.finished(ran_ms);
            self.uncount(live.session, live.route, id);
            self.totals.finished += 1;
            self.release(live.session, live.route);
        } else if let Some(waiter) = self.withdraw(id) {
            self.observe(waiter.route, |observed| observed.totals.cancelled += 1);
            self.release(waiter.session, waiter.route);
        } else {
            self.spawn_ended(id, self.now);
            if outcome != Outcome::Completed {
                self.end_credit(id);
            }
        }
        self.serve();
    }

    /// Ends the waits that are due and serves the line. The answer is when to call again; `now` means there is more to
    /// do.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        self.begin(now);
        self.serve();
        if self.queue.oldest().is_some() {
            return Some(self.now);
        }
        let wait = self.arrivals.first().and_then(|&(since, _)| self.deadline(since));
        let grace = self.graces.first().map(|&(from, _)| from.saturating_add(self.config.spawn_grace_ms));
        let lease = self.leases.first().map(|&(until, _)| until);
        [wait, grace, lease].into_iter().flatten().min().map(|due| due.max(self.now))
    }

    /// Brings back who was there before the state was lost: first all that ran, then all that waited, oldest first, in
    /// as many portions as the host likes. Serves first and ends due waits after. Answers for the waiting ones.
    pub fn restore(
        &mut self,
        live: Vec<LiveCall>,
        waiting: Vec<WaitingCall>,
        now: Instant,
    ) -> Vec<(CallId, Verdict)> {
        self.begin_at(now);
        self.told.clear();
        for LiveCall { id, call, since, ended } in live {
            if self.is_known(id) {
                continue;
            }
            self.submitted(id);
            match call {
                AnyCall::Stream(call) => {
                    let (session, route) = (self.session(call.session), self.route(call.route));
                    self.run(id, session, route, since, call.within);
                }
                AnyCall::Spawn(SpawnCall { route: None, .. }) => self.totals.finished += 1,
                AnyCall::Spawn(SpawnCall { route: Some(route), .. }) => {
                    let route = self.route(route);
                    self.let_through(id, route, since);
                    if let Some(ended) = ended {
                        self.spawn_ended(id, ended);
                    }
                }
            }
        }
        let restored: Vec<CallId> = waiting.iter().map(|waiting| waiting.id).collect();
        for WaitingCall { id, call, since, seniority } in waiting {
            if self.is_known(id) {
                continue;
            }
            self.submitted(id);
            let (kind, session, route, within) = match call {
                AnyCall::Stream(call) => (Kind::Stream, call.session, call.route, call.within),
                AnyCall::Spawn(SpawnCall { route: None, .. }) => {
                    self.totals.finished += 1;
                    continue;
                }
                AnyCall::Spawn(SpawnCall { session, route: Some(route), .. }) => {
                    (Kind::Spawn, session, route, None)
                }
            };
            self.enqueue(Arrival {
                id,
                kind,
                session,
                route,
                seniority,
                since,
                within,
                in_line_before: true,
            });
        }
        let others = std::mem::take(&mut self.settled);
        self.serve();
        self.end_due_waits();
        self.run_out_graces();
        self.serve();
        let decided: BTreeMap<CallId, Result<(), Refusal>> =
            std::mem::replace(&mut self.settled, others).into_iter().collect();
        let mut answers = Vec::with_capacity(restored.len());
        for id in restored {
            answers.push((
                id,
                match (decided.get(&id), self.waiters.get(&id)) {
                    (Some(Err(refusal)), _) => Verdict::Deny(refusal.clone()),
                    (None, Some(waiter)) => Verdict::Wait {
                        deadline: self.deadline(waiter.since),
                        seniority: waiter.rank.seniority,
                    },
                    _ => Verdict::Admit,
                },
            ));
        }
        // Those of earlier portions are told in the ordinary way.
        let answered: BTreeSet<CallId> = answers.iter().map(|(id, _)| *id).collect();
        self.settled.extend(decided.into_iter().filter(|(id, _)| !answered.contains(id)));
        answers
    }

    /// What was decided for waiters since the last time this was asked. Each wait comes out once, and not at all if
    /// `finish` ended it.
    pub fn settled(&mut self) -> std::vec::Drain<'_, Settled> {
        self.settled.drain(..)
    }

    /// What a person should be told, each thing once.
    pub fn warnings(&mut self) -> std::vec::Drain<'_, String> {
        self.warnings.drain(..)
    }

    /// The tools whose calls are spawns.
    pub fn tools(&self) -> &[String] {
        &self.config.spawn_tools
    }
}

/// Pools.
impl Limiter {
    /// What the pooled scopes need, where that changed since the last answer; whole after a reconfiguration and a
    /// restore.
    pub fn demand(&mut self) -> Vec<Need> {
        let limits = self.config.limits.iter();
        let pooled: Vec<ScopeKey> =
            limits.filter(|(_, limit)| limit.is_pooled()).map(|(key, _)| key.clone()).collect();
        let mut needs = Vec::new();
        for key in pooled {
            let scope = self.scope(&key);
            let need = (self.scopes[scope].occupancy(), self.wanted(scope));
            if self.told.insert(key.clone(), need) != Some(need) {
                needs.push(Need { scope: key.to_string(), occupied: need.0, wanted: need.1 });
            }
        }
        needs
    }

    /// The host holds this many seats for a pooled scope until then. A scope that is not pooled is none of its business.
    pub fn capacity(&mut self, scope: &str, seats: u32, until: Option<Instant>, now: Instant) {
        self.begin(now);
        let key = ScopeKey::parse(scope);
        if let Some(key) = key.filter(|key| self.config.limits.get(key).is_some_and(Limit::is_pooled)) {
            let ix = self.scope(&key);
            if let Some(Capacity { until: Some(until), .. }) = self.scopes[ix].capacity {
                self.leases.remove(&(until, ix));
            }
            self.scopes[ix].capacity = Some(Capacity { seats, until });
            if let Some(until) = until {
                self.leases.insert((until, ix));
            }
            self.end_leases();
            self.queue.touch(ix, &self.scopes);
        }
        self.serve();
    }

    fn end_leases(&mut self) {
        while let Some(&(until, scope)) = self.leases.first().filter(|(until, _)| *until <= self.now) {
            self.leases.remove(&(until, scope));
            self.scopes[scope].capacity = Some(Capacity { seats: 0, until: None });
            self.queue.touch(scope, &self.scopes);
        }
    }

    /// Seats that would serve everybody who may take one here: in every scope before this one there is room for them,
    /// and no unpooled scope after it blocks, or they are so old that seats are kept for them.
    fn wanted(&self, ix: ScopeIx) -> u32 {
        let scope = &self.scopes[ix];
        let Some(max) = scope.max else { return 0 };
        let base = scope.occupancy().saturating_add(scope.credits);
        let mut claims = BTreeSet::new();
        let oldest_young = self.newest.saturating_sub(self.config.max_overtakes);
        self.queue.claimants(ix, &self.scopes, &mut |claimant| {
            let blocked_after = claimant.after.iter().any(|&after| {
                let after = &self.scopes[after];
                after.capacity.is_none()
                    && !after.has_room(claimant.kind, claimant.rank, self.config.max_overtakes)
            });
            if blocked_after && claimant.rank.seniority >= oldest_young {
                return false;
            }
            let waiter = &self.waiters[&claimant.rank.id];
            claims.insert(match (claimant.kind, scope.count_by) {
                (Kind::Stream, CountBy::Session) => (Kind::Stream as u8, waiter.session as u64),
                (kind, _) => (2 + kind as u8, claimant.rank.id),
            });
            base.saturating_add(claims.len() as u32) < max
        });
        base.saturating_add(claims.len() as u32).min(max)
    }
}

/// Starting and ending.
impl Limiter {
    fn begin(&mut self, now: Instant) {
        self.begin_at(now);
        self.end_due_waits();
        self.run_out_graces();
    }

    fn begin_at(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.budget = DECISIONS;
        self.end_leases();
    }

    fn is_known(&self, id: CallId) -> bool {
        self.live.contains_key(&id) || self.waiters.contains_key(&id) || self.spawns.contains_key(&id)
    }

    fn submitted(&mut self, id: CallId) {
        self.newest = self.newest.max(id);
        self.totals.submitted += 1;
    }

    fn check_new(&mut self, id: CallId) -> Option<Verdict> {
        if self.is_known(id) {
            let message = format!("call id {id} is in use; the host must mint a new one for every call");
            self.serve();
            return Some(Verdict::Deny(Refusal { reason: Reason::Other(Some("id-in-use".into())), message }));
        }
        self.submitted(id);
        None
    }

    fn arrive(&mut self, arrival: Arrival) -> Verdict {
        let Arrival { id, in_line_before, .. } = arrival;
        self.arriving = Some(id);
        self.enqueue(arrival);
        self.serve();
        self.arriving = None;
        let Some(waiter) = self.waiters.get(&id) else { return Verdict::Admit };
        let (route, waiting) = (waiter.route, self.waiters.len() as u32 - 1);
        let queued = self.routes[route].waiting - 1;
        let full = if waiting >= self.config.max_waiting {
            Some((ScopeKey::Everything, waiting, self.config.max_waiting, "maxWaiting"))
        } else if queued >= self.config.max_queued && !in_line_before {
            Some((
                ScopeKey::Route(self.routes[route].route.clone()),
                queued,
                self.config.max_queued,
                "maxQueued",
            ))
        } else {
            None
        };
        if let Some((scope, waiting, bound, knob)) = full {
            let refusal = self.queue_full(waiter, &scope, waiting, bound, knob);
            return self.refuse_at_the_door(id, refusal);
        }
        let verdict =
            Verdict::Wait { deadline: self.deadline(waiter.since), seniority: waiter.rank.seniority };
        self.warn_of_nesting(id);
        verdict
    }

    fn refuse_at_the_door(&mut self, id: CallId, refusal: Refusal) -> Verdict {
        if let Some(waiter) = self.withdraw(id) {
            self.observe(waiter.route, |observed| observed.refused(&refusal.reason));
            self.release(waiter.session, waiter.route);
        }
        // A seat may have been kept for it.
        self.serve();
        Verdict::Deny(refusal)
    }

    fn enqueue(&mut self, arrival: Arrival) {
        let Arrival { id, kind, session, route, seniority, since, within, .. } = arrival;
        let (session, route) = (self.session(session), self.route(route));
        let rank = Rank { seniority, id };
        let line = self.line(kind, session, route);
        self.queue.join(line, rank, &self.scopes);
        self.routes[route].waiting += 1;
        self.arrivals.insert((since, id));
        self.waiters.insert(id, Waiter { kind, session, route, line, rank, since, within });
    }

    /// The line of a session, or of the spawns, for a route.
    fn line(&mut self, kind: Kind, session: SessionIx, route: RouteIx) -> LineIx {
        let known = match kind {
            Kind::Stream => self.sessions[session].lines.get(&route).copied(),
            Kind::Spawn => self.routes[route].spawns,
        };
        known.unwrap_or_else(|| {
            let needs = self.needs(kind, session, route);
            let line = self.queue.open(kind, &needs, &mut self.scopes);
            match kind {
                Kind::Stream => _ = self.sessions[session].lines.insert(route, line),
                Kind::Spawn => self.routes[route].spawns = Some(line),
            }
            line
        })
    }

    /// The limited scopes a waiter has to get a seat in.
    fn needs(&self, kind: Kind, session: SessionIx, route: RouteIx) -> Vec<ScopeIx> {
        let held = |scope: &&ScopeIx| {
            let scope = &self.scopes[**scope];
            kind == Kind::Stream
                && scope.count_by == CountBy::Session
                && scope.holders.contains_key(&(session as u64))
        };
        self.routes[route].limited.iter().filter(|scope| !held(scope)).copied().collect()
    }

    /// Admits the oldest waiter that fits, then the next, until none fits.
    fn serve(&mut self) {
        self.queue.flush(&mut self.scopes);
        while self.budget > 0
            && let Some(id) = self.queue.oldest()
        {
            self.budget -= 1;
            self.admit(id);
            self.queue.flush(&mut self.scopes);
        }
        self.shrink();
    }

    fn admit(&mut self, id: CallId) {
        let Some(waiter) = self.withdraw(id) else {
            debug_assert!(false, "the line offered {id}, which does not wait");
            return;
        };
        let at_once = self.arriving == Some(id);
        let wait = (!at_once).then(|| self.now.saturating_sub(waiter.since));
        self.observe(waiter.route, |observed| observed.admitted(wait));
        match waiter.kind {
            Kind::Stream => self.run(id, waiter.session, waiter.route, self.now, waiter.within),
            Kind::Spawn => {
                self.release_session(waiter.session);
                self.let_through(id, waiter.route, self.now);
            }
        }
        if !at_once {
            self.settled.push((id, Ok(())));
        }
    }

    /// Takes a waiter out of the line, from any place. Its session and route stay referred to.
    fn withdraw(&mut self, id: CallId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.arrivals.remove(&(waiter.since, id));
        self.routes[waiter.route].waiting -= 1;
        if self.queue.leave(waiter.line, waiter.rank, &self.scopes) {
            match waiter.kind {
                Kind::Stream => _ = self.sessions[waiter.session].lines.remove(&waiter.route),
                Kind::Spawn => self.routes[waiter.route].spawns = None,
            }
        }
        Some(waiter)
    }

    fn deadline(&self, since: Instant) -> Option<Instant> {
        (self.config.queue_timeout_ms > 0).then(|| since.saturating_add(self.config.queue_timeout_ms))
    }

    fn end_due_waits(&mut self) {
        while self.budget > 0
            && let Some(&(since, id)) = self.arrivals.first()
            && self.deadline(since).is_some_and(|due| due <= self.now)
        {
            self.budget -= 1;
            // The refusal quotes the numbers of now, so the line has to be up to date.
            self.queue.flush(&mut self.scopes);
            let refusal = self.wait_ended(&self.waiters[&id]);
            if let Some(waiter) = self.withdraw(id) {
                self.observe(waiter.route, |observed| observed.refused(&refusal.reason));
                self.release(waiter.session, waiter.route);
            }
            self.settled.push((id, Err(refusal)));
        }
    }
}

/// Counting.
impl Limiter {
    /// A call is live from now on.
    fn run(
        &mut self,
        id: CallId,
        session: SessionIx,
        route: RouteIx,
        since: Instant,
        within: Option<CallId>,
    ) {
        self.live.insert(id, Live { session, route, since, within });
        self.count(session, route, id, since);
    }

    fn count(&mut self, session: SessionIx, route: RouteIx, id: CallId, since: Instant) {
        for at in 0..self.routes[route].scopes.len() {
            let ix = self.routes[route].scopes[at];
            let scope = &mut self.scopes[ix];
            let holder = scope.holder(session, id);
            let held = scope.holders.entry(holder).or_insert(Held { calls: 0, since });
            held.calls += 1;
            held.since = held.since.min(since);
            if held.calls == 1 && scope.max.is_some() {
                self.queue.touch(ix, &self.scopes);
            }
        }
        self.replace_lines(session);
    }

    fn uncount(&mut self, session: SessionIx, route: RouteIx, id: CallId) {
        for at in 0..self.routes[route].scopes.len() {
            let ix = self.routes[route].scopes[at];
            let scope = &mut self.scopes[ix];
            let holder = scope.holder(session, id);
            let Some(held) = scope.holders.get_mut(&holder) else {
                debug_assert!(false, "{} does not count call {id}", scope.key);
                continue;
            };
            held.calls -= 1;
            if held.calls == 0 {
                scope.holders.remove(&holder);
                if scope.max.is_some() {
                    self.queue.touch(ix, &self.scopes);
                }
            }
        }
        self.replace_lines(session);
    }

    /// What a session holds changed, so its waiting calls may need other scopes.
    fn replace_lines(&mut self, session: SessionIx) {
        let lines: Vec<(RouteIx, LineIx)> =
            self.sessions[session].lines.iter().map(|(&route, &line)| (route, line)).collect();
        for (route, line) in lines {
            let needs = self.needs(Kind::Stream, session, route);
            self.queue.place(line, &needs, &mut self.scopes);
        }
    }

    /// A spawn has got through: it leaves a credit.
    fn let_through(&mut self, id: CallId, route: RouteIx, since: Instant) {
        self.spawns.insert(id, Spawn { route, since, credit: true, ended: None });
        self.count_credit(route, 1);
        self.time_grace(id);
    }

    fn count_credit(&mut self, route: RouteIx, change: i32) {
        for at in 0..self.routes[route].scopes.len() {
            let ix = self.routes[route].scopes[at];
            let scope = &mut self.scopes[ix];
            debug_assert!(change > 0 || scope.credits > 0, "{} has no credit to end", scope.key);
            scope.credits = scope.credits.saturating_add_signed(change);
            if scope.max.is_some() {
                self.queue.touch(ix, &self.scopes);
            }
        }
    }

    /// Ends a spawn's credit, if it still has one, and lets the grace run from its end, if that has come.
    fn end_credit(&mut self, id: CallId) {
        let Some(spawn) = self.spawns.get_mut(&id) else { return };
        if std::mem::take(&mut spawn.credit) {
            self.graces.remove(&(spawn.since, id));
            let route = spawn.route;
            self.count_credit(route, -1);
        }
        self.time_grace(id);
    }

    /// The tool call has returned; its child may still come.
    fn spawn_ended(&mut self, id: CallId, at: Instant) {
        if let Some(spawn) = self.spawns.get_mut(&id) {
            spawn.ended.get_or_insert(at);
            self.time_grace(id);
        }
    }

    fn time_grace(&mut self, id: CallId) {
        if let Some(from) = self.spawns.get(&id).and_then(Spawn::timer) {
            self.graces.insert((from, id));
        }
    }

    fn run_out_graces(&mut self) {
        while let Some(&(from, id)) = self.graces.first()
            && from.saturating_add(self.config.spawn_grace_ms) <= self.now
        {
            self.graces.remove(&(from, id));
            if self.spawns.get(&id).is_some_and(|spawn| spawn.credit) {
                self.end_credit(id);
            } else {
                self.forget_spawn(id);
            }
        }
    }

    /// Whether there was one to forget.
    fn forget_spawn(&mut self, id: CallId) -> bool {
        self.end_credit(id);
        let Some(spawn) = self.spawns.remove(&id) else { return false };
        if let Some(from) = spawn.timer() {
            self.graces.remove(&(from, id));
        }
        self.totals.finished += 1;
        self.release_route(spawn.route);
        true
    }

    fn observe(&mut self, route: RouteIx, mut see: impl FnMut(&mut Observed)) {
        for &scope in &self.routes[route].scopes {
            see(&mut self.scopes[scope].observed);
        }
        see(&mut self.observed);
    }
}

/// Routes, sessions and scopes exist while somebody refers to them.
impl Limiter {
    fn session(&mut self, name: Option<String>) -> SessionIx {
        let name: Option<Arc<str>> = name.map(Into::into);
        let known = name.as_ref().and_then(|name| self.session_index.get(name).copied());
        let ix = known.unwrap_or_else(|| {
            let ix = self.sessions.insert(Session { name: name.clone(), lines: BTreeMap::new(), users: 0 });
            if let Some(name) = name {
                self.session_index.insert(name, ix);
            }
            ix
        });
        self.sessions[ix].users += 1;
        ix
    }

    fn route(&mut self, route: Route) -> RouteIx {
        let ix = self.route_index.get(&route).copied().unwrap_or_else(|| {
            let (scopes, limited) = self.scopes_of(&route);
            let ix = self.routes.insert(RouteState {
                route: route.clone(),
                scopes,
                limited,
                waiting: 0,
                spawns: None,
                users: 0,
            });
            self.route_index.insert(route, ix);
            ix
        });
        self.routes[ix].users += 1;
        ix
    }

    /// The scopes that contain a route, in the order of scopes, and those of them that have a limit.
    fn scopes_of(&mut self, route: &Route) -> (Vec<ScopeIx>, Vec<ScopeIx>) {
        let mut keys = vec![ScopeKey::Route(route.clone())];
        keys.extend(self.config.groups_of(route).into_iter().map(ScopeKey::Group));
        keys.extend([ScopeKey::Provider(route.provider.clone()), ScopeKey::Everything]);
        let scopes: Vec<ScopeIx> = keys.iter().map(|key| self.scope(key)).collect();
        for &scope in &scopes {
            self.scopes[scope].routes += 1;
        }
        let limited = scopes.iter().copied().filter(|&scope| self.scopes[scope].max.is_some()).collect();
        (scopes, limited)
    }

    fn scope(&mut self, key: &ScopeKey) -> ScopeIx {
        self.scope_index.get(key).copied().unwrap_or_else(|| {
            let mut scope = Scope::new(key.clone());
            apply(self.config.limits.get(key), &mut scope);
            let ix = self.scopes.insert(scope);
            self.scope_index.insert(key.clone(), ix);
            ix
        })
    }

    fn release(&mut self, session: SessionIx, route: RouteIx) {
        self.release_session(session);
        self.release_route(route);
    }

    fn release_session(&mut self, ix: SessionIx) {
        self.sessions[ix].users -= 1;
        if self.sessions[ix].users == 0
            && let Some(name) = self.sessions.remove(ix).name
        {
            self.session_index.remove(&name);
        }
    }

    fn release_route(&mut self, ix: RouteIx) {
        self.routes[ix].users -= 1;
        if self.routes[ix].users == 0 {
            // Its last line may have left nodes behind that still name the scopes.
            self.queue.flush(&mut self.scopes);
            let state = self.routes.remove(ix);
            self.route_index.remove(&state.route);
            self.release_scopes(&state.scopes);
        }
    }

    /// An idle scope goes, unless it is configured: then what it has seen is kept.
    fn release_scopes(&mut self, scopes: &[ScopeIx]) {
        for &ix in scopes {
            let scope = &mut self.scopes[ix];
            scope.routes -= 1;
            if scope.routes == 0 && !self.config.limits.contains_key(&scope.key) {
                debug_assert!(scope.holders.is_empty() && scope.credits == 0 && scope.nodes.is_empty());
                self.scope_index.remove(&scope.key);
                self.scopes.remove(ix);
            }
        }
    }

    /// Counts everybody again, in the scopes that contain their route now.
    fn recount(&mut self) {
        self.queue.clear();
        let mut held_since: BTreeMap<(ScopeIx, u64), Instant> = BTreeMap::new();
        for (ix, scope) in &mut self.scopes {
            held_since.extend(scope.holders.iter().map(|(&holder, held)| ((ix, holder), held.since)));
            let seen = std::mem::take(&mut scope.observed);
            let capacity = scope.capacity;
            *scope = Scope { observed: seen, capacity, ..Scope::new(scope.key.clone()) };
            apply(self.config.limits.get(&scope.key), scope);
        }
        let routes: Vec<RouteIx> = self.routes.iter().map(|(ix, _)| ix).collect();
        for ix in routes {
            let route = self.routes[ix].route.clone();
            let (scopes, limited) = self.scopes_of(&route);
            let state = &mut self.routes[ix];
            (state.scopes, state.limited, state.spawns) = (scopes, limited, None);
        }
        let idle: Vec<ScopeIx> = self
            .scopes
            .iter()
            .filter(|(_, scope)| scope.routes == 0 && !self.config.limits.contains_key(&scope.key))
            .map(|(ix, _)| ix)
            .collect();
        for ix in idle {
            let scope = self.scopes.remove(ix);
            self.scope_index.remove(&scope.key);
        }
        let scopes = &self.scopes;
        self.leases.retain(|&(_, ix)| scopes.get(ix).is_some_and(|scope| scope.capacity.is_some()));

        for (_, session) in &mut self.sessions {
            session.lines.clear();
        }
        let live: Vec<_> = self.live.iter().map(|(&id, l)| (id, l.session, l.route, l.since)).collect();
        for (id, session, route, since) in live {
            self.count(session, route, id, since);
        }
        for (ix, scope) in &mut self.scopes {
            for (&holder, held) in &mut scope.holders {
                if let Some(&since) =
                    held_since.get(&(ix, holder)).filter(|_| scope.count_by == CountBy::Session)
                {
                    held.since = since;
                }
            }
        }
        let credits: Vec<RouteIx> = self.spawns.values().filter(|s| s.credit).map(|s| s.route).collect();
        for route in credits {
            self.count_credit(route, 1);
        }
        for (id, mut waiter) in std::mem::take(&mut self.waiters) {
            waiter.line = self.line(waiter.kind, waiter.session, waiter.route);
            self.queue.join(waiter.line, waiter.rank, &self.scopes);
            self.waiters.insert(id, waiter);
        }
        self.queue.flush(&mut self.scopes);
    }

    /// Gives memory back when everybody has gone.
    fn shrink(&mut self) {
        if self.routes.is_empty() && self.routes.capacity() + self.sessions.capacity() > 1_024 {
            self.routes.shrink_to_fit();
            self.sessions.shrink_to_fit();
            self.scopes.shrink_to_fit();
            self.queue.shrink();
            self.settled.shrink_to_fit();
        }
    }
}

/// Puts a limit, or none, on a scope.
fn apply(limit: Option<&Limit>, scope: &mut Scope) {
    scope.max = limit.and_then(|limit| limit.max);
    scope.count_by = limit.map_or(CountBy::Session, |limit| limit.count_by);
    let pooled = limit.is_some_and(Limit::is_pooled);
    scope.capacity = pooled.then(|| scope.capacity.unwrap_or(Capacity { seats: 0, until: None }));
}
