//! The rules behind the limiter's own types: texts become numbers, operations become those of the [`Tables`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use limiter::config::Limit;
use limiter::{
    AnyCall, CallId, CountBy, Instant, LiveCall, Reason, Route, ScopeKey, SpawnCall, SpawnEnd, StreamCall,
    WaitEnded, WaitingCall,
};

use crate::drive::Configured;
use crate::tables::{self, Call, Knobs, Refused, Scope, Spawn, Tables};

/// The pool that a row names, and whether there is a ceiling: seats of one source are none of another.
pub type Source = (Option<String>, bool);

pub(crate) fn source(limit: &Limit) -> Source {
    (limit.pool.clone().filter(|_| limit.max.is_some()), limit.ceiling.is_some())
}

/// The answer to an arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may start.
    Admit,
    /// It waits.
    Wait(Option<Instant>, u64),
    /// It may not.
    Deny(Reason),
}

/// Waits that ended.
pub type Ended = Vec<(CallId, Result<(), Reason>)>;

/// The rules, a configuration and the names of who is there.
#[derive(Clone, Debug)]
pub struct Model {
    /// The configuration in force.
    pub config: Arc<Configured>,
    /// Who is there.
    pub tables: Tables,
    /// The names of the limited scopes.
    pub keys: Arc<Vec<ScopeKey>>,
    /// Pooled scopes that were given seats: until when, and of which source.
    pub leases: BTreeMap<ScopeKey, (Option<Instant>, Source)>,
    /// The newest id seen.
    pub newest: CallId,
    routes: Arc<Numbers<Route>>,
    sessions: Arc<Numbers<String>>,
}

/// Numbers for names, in the order in which they came up.
#[derive(Clone, Debug)]
struct Numbers<T> {
    numbers: BTreeMap<T, usize>,
    names: Vec<T>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { numbers: BTreeMap::new(), names: Vec::new() }
    }
}

impl<T: Ord + Clone> Numbers<T> {
    fn of(this: &mut Arc<Self>, name: &T) -> usize {
        this.numbers.get(name).copied().unwrap_or_else(|| {
            let this = Arc::make_mut(this);
            this.numbers.insert(name.clone(), this.names.len());
            this.names.push(name.clone());
            this.names.len() - 1
        })
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            config: Configured::new("{}"),
            tables: Tables::default(),
            keys: Arc::default(),
            leases: BTreeMap::new(),
            newest: 0,
            routes: Arc::default(),
            sessions: Arc::default(),
        }
    }
}

impl Model {
    /// The oldest waiter that no limit of 0 blocks.
    pub fn oldest_unpaused(&self) -> Option<CallId> {
        let paused = |&scope: &usize| self.tables.scopes[scope].max == 0;
        let mut waiting = self.tables.waiting.iter();
        waiting.find(|call| !self.tables.needs(call).iter().any(paused)).map(|call| call.id)
    }

    /// Whether a scope contains a route.
    fn is_in(&self, key: &ScopeKey, route: &Route) -> bool {
        match key {
            ScopeKey::Route(own) => own == route,
            ScopeKey::Group(name) => self.config.config.groups[name]
                .iter()
                .any(|own| own == route || own.provider == route.provider && own.model == "*"),
            ScopeKey::Provider(provider) => *provider == route.provider,
            ScopeKey::Everything => true,
        }
    }

    /// The limited scopes of a route, in the order of scopes.
    fn scopes_of(&self, route: &Route) -> Vec<usize> {
        (0..self.keys.len()).filter(|&scope| self.is_in(&self.keys[scope], route)).collect()
    }

    /// The number of a route.
    pub fn route(&mut self, route: &Route) -> usize {
        let number = Numbers::of(&mut self.routes, route);
        if number == self.tables.routes.len() {
            self.tables.routes.push(self.scopes_of(route));
        }
        number
    }

    /// The number of a session.
    pub fn session(&mut self, session: &String) -> usize {
        Numbers::of(&mut self.sessions, session)
    }

    /// Another configuration is in force. Whoever is there is counted in the scopes that contain their route now, because
    /// that is worked out from the route whenever it is asked.
    pub fn configure(&mut self, config: Arc<Configured>, now: Instant) -> Ended {
        let before: BTreeMap<ScopeKey, Scope> =
            self.keys.iter().cloned().zip(std::mem::take(&mut self.tables.scopes)).collect();
        self.config = config;
        let limits = &self.config.config.limits;
        self.leases.retain(|key, (_, of)| limits.get(key).is_some_and(|l| l.is_pooled() && source(l) == *of));
        let limited = limits.iter().filter_map(|(key, limit)| Some((key, limit, limit.least()?)));
        for (key, limit, max) in limited.clone() {
            let mut scope =
                Scope { max, by_call: limit.count_by == CountBy::Stream, seats: u32::MAX, contended: false };
            if limit.is_pooled() {
                let held = before.get(key).filter(|_| self.leases.contains_key(key));
                (scope.seats, scope.contended) = held.map_or((0, false), |held| (held.seats, held.contended));
            }
            self.tables.scopes.push(scope);
        }
        self.keys = Arc::new(limited.map(|(key, ..)| key.clone()).collect());
        self.tables.routes = self.routes.names.iter().map(|route| self.scopes_of(route)).collect();
        let config = &self.config.config;
        self.tables.knobs = Knobs {
            queue_timeout_ms: config.queue_timeout_ms,
            spawn_grace_ms: config.spawn_grace_ms,
            max_overtakes: config.max_overtakes,
            head_start: config.head_start,
            max_queued: config.max_queued,
            max_waiting: config.max_waiting,
        };
        self.end_leases(now);
        let mut ended = self.tables.end_due(now);
        ended.extend(self.tables.serve(now));
        self.told(ended)
    }

    /// Somebody arrives.
    pub fn arrive(&mut self, id: CallId, call: &AnyCall, now: Instant) -> (Answer, Ended) {
        self.end_leases(now);
        self.newest = self.newest.max(id);
        let Some(route) = route(call).cloned() else {
            let mut ended = self.tables.end_due(now);
            ended.extend(self.tables.serve(now));
            return (Answer::Admit, self.told(ended));
        };
        let (session, begun, spawn) = match call {
            AnyCall::Stream(StreamCall { session, first, spawn, .. }) => {
                (session, session.is_some() && !first, spawn.filter(|_| *first))
            }
            AnyCall::Spawn(SpawnCall { session, .. }) => (session, false, None),
        };
        let session = session.as_ref().map(|session| self.session(session));
        let route = self.route(&route);
        let is_spawn = matches!(call, AnyCall::Spawn(_));
        let arrival = Call { id, is_spawn, session, route, seniority: id, since: now };
        let ended = self.tables.arrive(arrival, begun, spawn, now);
        let mut ended = self.told(ended);
        let own = ended.iter().position(|(ended, _)| *ended == id).map(|at| ended.remove(at).1);
        let waiter = self.tables.waiting.iter().find(|waiter| waiter.id == id);
        let answer = match (own, waiter) {
            (Some(Err(reason)), _) => Answer::Deny(reason),
            (None, Some(waiter)) => Answer::Wait(self.deadline(waiter), waiter.seniority),
            _ => Answer::Admit,
        };
        (answer, ended)
    }

    /// A call ends, from wherever it is.
    pub fn finish(&mut self, id: CallId, completed: bool, now: Instant) -> Ended {
        self.end_leases(now);
        let ended = self.tables.finish(id, completed, now);
        self.told(ended)
    }

    /// Time passes; the answer is when to come again.
    pub fn tick(&mut self, now: Instant) -> (Option<Instant>, Ended) {
        self.end_leases(now);
        let mut ended = self.tables.end_due(now);
        ended.extend(self.tables.serve(now));
        let ended = self.told(ended);
        let waits = self.tables.waiting.iter().filter_map(|waiter| self.deadline(waiter));
        let graces = self.tables.spawns.iter().filter_map(|spawn| self.grace(spawn));
        let leases = self.leases.values().filter_map(|(until, _)| *until);
        (waits.chain(graces).chain(leases).min().map(|due| due.max(now)), ended)
    }

    /// When a spawn's credit, or what is remembered of it, runs out.
    pub(crate) fn grace(&self, spawn: &Spawn) -> Option<Instant> {
        let since = spawn.call.since;
        let from = if spawn.credit { Some(since) } else { spawn.ended.map(|ended| ended.max(since)) };
        from.map(|from| from.saturating_add(self.tables.knobs.spawn_grace_ms))
    }

    /// The number of a limited scope.
    pub(crate) fn scope(&self, key: &ScopeKey) -> Option<usize> {
        self.keys.binary_search(key).ok()
    }

    fn deadline(&self, waiter: &Call) -> Option<Instant> {
        let timeout = self.tables.knobs.queue_timeout_ms;
        (timeout > 0).then(|| waiter.since.saturating_add(timeout))
    }

    /// In the limiter's words.
    pub(crate) fn told(&self, ended: tables::Ended) -> Ended {
        ended
            .into_iter()
            .map(|(call, result)| (call.id, result.map_err(|refused| self.reason(&call, refused))))
            .collect()
    }

    fn reason(&self, call: &Call, refused: Refused) -> Reason {
        let own = || ScopeKey::Route(self.routes.names[call.route].clone()).to_string();
        match refused {
            Refused::Full { everywhere: true, waiting } => {
                let scope = ScopeKey::Everything.to_string();
                Reason::QueueFull { scope, waiting, bound: self.tables.knobs.max_waiting }
            }
            Refused::Full { everywhere: false, waiting } => {
                Reason::QueueFull { scope: own(), waiting, bound: self.tables.knobs.max_queued }
            }
            Refused::Late { waited_ms, blocker: None } => {
                Reason::QueueTimeout(WaitEnded { scope: own(), waited_ms, occupancy: 0, limit: 0 })
            }
            Refused::Late { waited_ms, blocker: Some((scope, occupancy, limit)) } => {
                let max = self.tables.scopes[scope].max;
                let scope = self.keys[scope].to_string();
                let ended = WaitEnded { scope, waited_ms, occupancy, limit };
                if max == 0 {
                    Reason::Paused(ended)
                } else if occupancy >= limit && occupancy < max {
                    Reason::NoPoolSeat(ended)
                } else {
                    Reason::QueueTimeout(ended)
                }
            }
        }
    }

    /// What a host would bring back after a fault: all that runs, all that waits, oldest first.
    pub fn known(&self) -> (Vec<LiveCall>, Vec<WaitingCall>) {
        let running =
            |call: &Call, ended| LiveCall { id: call.id, call: self.call(call), since: call.since, ended };
        let live = self.tables.live.iter().map(|call| running(call, None));
        let spawns = self.tables.spawns.iter().map(|spawn| {
            running(&spawn.call, spawn.ended.map(|at| SpawnEnd { at, completed: !spawn.failed }))
        });
        let waiting = self.tables.waiting.iter().map(|call| WaitingCall {
            id: call.id,
            call: self.call(call),
            since: call.since,
            seniority: call.seniority,
        });
        (live.chain(spawns).collect(), waiting.collect())
    }

    fn call(&self, call: &Call) -> AnyCall {
        let route = self.routes.names[call.route].clone();
        let session = call.session.map(|session| self.sessions.names[session].clone());
        if call.is_spawn {
            return AnyCall::Spawn(SpawnCall { tool: "subagent".into(), session, route: Some(route) });
        }
        AnyCall::Stream(StreamCall { route, session, first: false, spawn: None, within: None })
    }

    /// The state was lost and is restored. A credit runs from its spawn's admission; one that ran out under a shorter grace
    /// runs on under a longer. Of those that have come and gone nobody knows any more.
    pub fn rebuilt(&mut self, now: Instant) {
        let grace = self.tables.knobs.spawn_grace_ms;
        for spawn in &mut self.tables.spawns {
            spawn.credit = !spawn.failed && spawn.call.since.saturating_add(grace) > now;
        }
        let Tables { live, waiting, spawns, .. } = &self.tables;
        let there = live.iter().chain(waiting).chain(spawns.iter().map(|spawn| &spawn.call));
        self.newest = there.map(|call| call.id).max().unwrap_or(0);
    }

    /// Seats in use and credits of any scope, limited or not, as stats tell them.
    pub fn counts(&self, key: &ScopeKey) -> (u32, u32) {
        let by_call =
            self.config.config.limits.get(key).is_some_and(|limit| limit.count_by == CountBy::Stream);
        let inside = |call: &&Call| self.is_in(key, &self.routes.names[call.route]);
        let holder = |call: &Call| match call.session.filter(|_| !by_call) {
            Some(session) => (0, session as u64),
            None => (1, call.id),
        };
        let holders: BTreeSet<_> = self.tables.live.iter().filter(inside).map(holder).collect();
        let credits = self.tables.spawns.iter().filter(|spawn| spawn.credit).map(|spawn| &spawn.call);
        (holders.len() as u32, credits.filter(inside).count() as u32)
    }
}

/// Where it goes.
fn route(call: &AnyCall) -> Option<&Route> {
    match call {
        AnyCall::Stream(call) => Some(&call.route),
        AnyCall::Spawn(SpawnCall { route, .. }) => route.as_ref(),
    }
}
