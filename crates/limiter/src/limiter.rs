//! The state machine.

#[cfg(feature = "audit")]
mod audit;
mod counting;
mod names;
mod pools;
mod registry;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slab::Slab;

use self::names::Names;
use crate::call::{
    AnyCall, CallId, Instant, LiveCall, Outcome, Reason, Refusal, Route, Seniority, Settled, SpawnCall,
    SpawnEnd, StreamCall, Verdict, WaitingCall,
};
use crate::config::Config;
use crate::queue::{Kind, LineIx, Queue, Rank};
use crate::scope::{CountBy, Scope, ScopeIx, ScopeKey};
use crate::stats::{Observed, RunTotals};

/// Waits ended and waiters admitted in one operation, at most.
const DECISIONS: u32 = 2_000;

#[cfg(feature = "audit")]
pub use audit::Audit;

type RouteIx = usize;
type SessionIx = usize;

/// A route with somebody on it, or an idle one that is kept.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
struct Session {
    name: Option<Arc<str>>,
    /// The lines of its waiting calls, one per route: hardly ever more than one.
    lines: Vec<(RouteIx, LineIx)>,
    users: u32,
}

impl Session {
    fn line(&self, route: RouteIx) -> Option<LineIx> {
        self.lines.iter().find(|(to, _)| *to == route).map(|&(_, line)| line)
    }
}

#[derive(Clone, Debug)]
struct Live {
    session: SessionIx,
    route: RouteIx,
    since: Instant,
    within: Option<CallId>,
}

#[derive(Clone, Debug)]
struct Waiter {
    kind: Kind,
    /// Who calls; for a spawn, who spawns.
    session: SessionIx,
    route: RouteIx,
    rank: Rank,
    since: Instant,
    within: Option<CallId>,
}

/// A spawn that was let through, remembered for its child.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, Default)]
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
    /// The routes that nobody is on, longest idle first; few.
    idle: Vec<RouteIx>,
    sessions: Slab<Session>,
    session_index: Names,
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
    /// The pooled scopes, in the order of scopes.
    pooled: Vec<ScopeIx>,

    settled: Vec<Settled>,
    warnings: Vec<String>,
    /// Per pooled scope, what was last said of it.
    told: BTreeMap<ScopeIx, pools::Said>,
    observed: Observed,
    totals: RunTotals,
}

impl Limiter {
    /// A limiter that limits nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a configuration in force, live: everybody who runs or waits is counted in the scopes that contain their
    /// route now. Nobody is stopped and nobody loses their place. Linear in who is there, unless all that changed are
    /// numbers.
    pub fn configure(&mut self, config: Config, now: Instant) {
        if self.totals.since == 0 {
            self.totals.since = now;
        }
        self.begin_at(now);
        self.put_in_force(config);
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
            let completed = outcome == Outcome::Completed;
            if !completed {
                self.give_up_credit(id);
            }
            self.spawn_ended(id, SpawnEnd { at: self.now, completed });
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
                    if since.saturating_add(self.config.spawn_grace_ms) <= self.now {
                        // It ended before; there is nothing to give back again.
                        self.end_credit(id);
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
            let waiter = self.waiter(Arrival {
                id,
                kind,
                session,
                route,
                seniority,
                since,
                within,
                in_line_before: true,
            });
            self.join(waiter);
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
        id <= self.newest
            && (self.live.contains_key(&id)
                || self.waiters.contains_key(&id)
                || self.spawns.contains_key(&id))
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
        let in_line_before = arrival.in_line_before;
        let waiter = self.waiter(arrival);
        let id = waiter.rank.id;
        if self.fits(&waiter) {
            self.let_in(&waiter, None);
            self.serve();
            return Verdict::Admit;
        }
        self.join(waiter);
        self.arriving = Some(id);
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

    fn waiter(&mut self, arrival: Arrival) -> Waiter {
        let Arrival { id, kind, session, route, seniority, since, within, .. } = arrival;
        let (session, route) = (self.session(session), self.route(route));
        Waiter { kind, session, route, rank: Rank { seniority, id }, since, within }
    }

    /// Whether somebody new has room at once. While the line has not been served to its end, only who needs nothing has.
    fn fits(&mut self, waiter: &Waiter) -> bool {
        self.queue.flush(&mut self.scopes);
        let served = self.queue.oldest().is_none();
        let has_room =
            |scope: ScopeIx| self.scopes[scope].has_room(waiter.kind, waiter.rank, self.config.max_overtakes);
        self.needs(waiter.kind, waiter.session, waiter.route).all(|scope| served && has_room(scope))
    }

    fn join(&mut self, waiter: Waiter) {
        let line = self.line(waiter.kind, waiter.session, waiter.route);
        self.queue.join(line, waiter.rank, &self.scopes);
        self.routes[waiter.route].waiting += 1;
        self.arrivals.insert((waiter.since, waiter.rank.id));
        self.waiters.insert(waiter.rank.id, waiter);
    }

    /// The line of a session, or of the spawns, for a route.
    fn line(&mut self, kind: Kind, session: SessionIx, route: RouteIx) -> LineIx {
        let known = match kind {
            Kind::Stream => self.sessions[session].line(route),
            Kind::Spawn => self.routes[route].spawns,
        };
        known.unwrap_or_else(|| {
            let needs: Vec<ScopeIx> = self.needs(kind, session, route).collect();
            let line = self.queue.open(kind, &needs, &mut self.scopes);
            match kind {
                Kind::Stream => self.sessions[session].lines.push((route, line)),
                Kind::Spawn => self.routes[route].spawns = Some(line),
            }
            line
        })
    }

    /// The limited scopes a waiter has to get a seat in.
    fn needs(&self, kind: Kind, session: SessionIx, route: RouteIx) -> impl Iterator<Item = ScopeIx> {
        let held = move |scope: ScopeIx| {
            let scope = &self.scopes[scope];
            kind == Kind::Stream
                && scope.count_by == CountBy::Session
                && scope.holders.contains_key(&(session as u64))
        };
        self.routes[route].limited.iter().copied().filter(move |&scope| !held(scope))
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
        if self.arriving == Some(id) {
            self.let_in(&waiter, None);
        } else {
            let wait = self.now.saturating_sub(waiter.since);
            self.let_in(&waiter, Some(wait));
            self.settled.push((id, Ok(())));
        }
    }

    fn let_in(&mut self, waiter: &Waiter, wait: Option<u64>) {
        let Waiter { kind, session, route, rank, within, .. } = *waiter;
        self.observe(route, |observed| observed.admitted(wait));
        match kind {
            Kind::Stream => self.run(rank.id, session, route, self.now, within),
            Kind::Spawn => {
                self.release_session(session);
                self.let_through(rank.id, route, self.now);
            }
        }
    }

    /// Takes a waiter out of the line, from any place. Its session and route stay referred to.
    fn withdraw(&mut self, id: CallId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.arrivals.remove(&(waiter.since, id));
        self.routes[waiter.route].waiting -= 1;
        let line = self.line(waiter.kind, waiter.session, waiter.route);
        if self.queue.leave(line, waiter.rank, &self.scopes) {
            match waiter.kind {
                Kind::Stream => {
                    self.sessions[waiter.session].lines.retain(|&(route, _)| route != waiter.route);
                }
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
