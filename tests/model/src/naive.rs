//! The rules, by definition and without any structure that would make them fast.

use std::collections::{BTreeMap, BTreeSet};

use limiter::config::Limit;
use limiter::{
    AnyCall, CallId, Config, CountBy, Grant, Instant, LiveCall, Need, Reason, Route, ScopeKey, Seniority,
    SpawnCall, SpawnEnd, StreamCall, WaitEnded, WaitingCall,
};

/// The pool that a row names, and whether there is a ceiling: seats of one source are none of another.
pub type Source = (Option<String>, bool);

fn source(limit: &Limit) -> Source {
    (limit.pool.clone().filter(|_| limit.max.is_some()), limit.ceiling.is_some())
}

/// A waiting call or spawn.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Its id.
    pub id: CallId,
    /// Its place.
    pub seniority: Seniority,
    /// When it arrived.
    pub since: Instant,
    /// What it is.
    pub call: AnyCall,
}

/// Who is there, and the rules.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The configuration in force.
    pub config: Config,
    /// Pooled scopes: what is held, and of which source.
    pub capacity: BTreeMap<ScopeKey, (Grant, Source)>,
    /// Live model calls.
    pub live: Vec<LiveCall>,
    /// Who waits.
    pub waiting: Vec<Waiter>,
    /// Spawns let through: with their credit, or remembered for the child's place.
    pub spawns: Vec<(LiveCall, bool)>,
    /// The newest id seen.
    pub newest: CallId,
}

/// The answer to an arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may start.
    Admit,
    /// It waits.
    Wait(Option<Instant>, Seniority),
    /// It may not.
    Deny(Reason),
}

/// Who holds a seat, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder<'a> {
    Session(&'a str),
    Call(CallId),
}

/// Who waits and needs what, and what is free and kept for whom, for streams and for spawns.
struct View<'a> {
    waiters: Vec<(&'a Waiter, Vec<&'a ScopeKey>)>,
    free: BTreeMap<(&'a ScopeKey, bool), u32>,
    kept: BTreeMap<(&'a ScopeKey, bool), &'a Waiter>,
    overtakes: u64,
}

impl View<'_> {
    fn has_room(&self, waiter: &Waiter, key: &ScopeKey) -> bool {
        let is_spawn = stream(&waiter.call).is_none();
        let too_young = |kept: &&Waiter| waiter.seniority.saturating_sub(kept.seniority) > self.overtakes;
        self.free[&(key, is_spawn)] > 0
            && !self.kept.get(&(key, false)).is_some_and(too_young)
            && !self.kept.get(&(key, true)).is_some_and(too_young)
    }
}

/// A wait that ended.
pub type Ended = (CallId, Result<(), Reason>);

impl Model {
    /// The oldest waiter that no limit of 0 blocks.
    pub fn oldest_unpaused(&self) -> Option<CallId> {
        let paused = |key: &&ScopeKey| self.config.limits[*key].least() == Some(0);
        self.by_age()
            .into_iter()
            .find(|waiter| !self.needs(waiter).iter().any(paused))
            .map(|waiter| waiter.id)
    }

    /// Whether a scope contains a route.
    pub fn is_in(&self, key: &ScopeKey, route: &Route) -> bool {
        match key {
            ScopeKey::Route(own) => own == route,
            ScopeKey::Group(name) => self.config.groups[name]
                .iter()
                .any(|own| own == route || own.provider == route.provider && own.model == "*"),
            ScopeKey::Provider(provider) => *provider == route.provider,
            ScopeKey::Everything => true,
        }
    }

    /// The limited scopes of a route, in the order of scopes.
    fn scopes(&self, route: &Route) -> Vec<&ScopeKey> {
        let limited = self.config.limits.iter().filter(|(_, limit)| limit.least().is_some());
        limited.map(|(key, _)| key).filter(|key| self.is_in(key, route)).collect()
    }

    fn holders(&self, key: &ScopeKey) -> BTreeSet<Holder<'_>> {
        let inside =
            self.live.iter().filter(|live| route(&live.call).is_some_and(|route| self.is_in(key, route)));
        inside.map(|live| self.holder(key, &live.call, live.id)).collect()
    }

    fn holder<'a>(&self, key: &ScopeKey, call: &'a AnyCall, id: CallId) -> Holder<'a> {
        match (stream(call).and_then(|call| call.session.as_deref()), self.count_by(key)) {
            (Some(session), CountBy::Session) => Holder::Session(session),
            _ => Holder::Call(id),
        }
    }

    fn count_by(&self, key: &ScopeKey) -> CountBy {
        self.config.limits.get(key).map_or(CountBy::Session, |limit| limit.count_by)
    }

    /// Seats held in a scope.
    pub fn occupancy(&self, key: &ScopeKey) -> u32 {
        self.holders(key).len() as u32
    }

    /// Credits in a scope.
    pub fn credits(&self, key: &ScopeKey) -> u32 {
        self.spawns
            .iter()
            .filter(|(spawn, credit)| *credit && route(&spawn.call).is_some_and(|r| self.is_in(key, r)))
            .count() as u32
    }

    /// The limit in force.
    pub fn limit(&self, key: &ScopeKey) -> u32 {
        let limit = &self.config.limits[key];
        let max = limit.least().unwrap_or(u32::MAX);
        if limit.is_pooled() { max.min(self.held(key)) } else { max }
    }

    /// Seats held of a pool.
    fn held(&self, key: &ScopeKey) -> u32 {
        self.capacity.get(key).map_or(0, |(grant, _)| grant.seats)
    }

    /// A seat, or what was promised to a child, has come free: while others wait it goes back, if it was one of those held.
    fn give_back(&mut self, keys: Vec<ScopeKey>) {
        for key in keys {
            let occupancy = self.occupancy(&key);
            if let Some((grant, _)) = self.capacity.get_mut(&key)
                && grant.contended
                && grant.seats > occupancy
            {
                grant.seats -= 1;
            }
        }
    }

    fn needs(&self, waiter: &Waiter) -> Vec<&ScopeKey> {
        let Some(route) = route(&waiter.call) else { return Vec::new() };
        let held = |key: &&&ScopeKey| {
            stream(&waiter.call).is_some()
                && self.holders(key).contains(&self.holder(key, &waiter.call, waiter.id))
        };
        self.scopes(route).iter().filter(|key| !held(key)).copied().collect()
    }

    /// What decides who fits: computed scope by scope, in the order of scopes.
    fn view(&self) -> View<'_> {
        let waiters: Vec<(&Waiter, Vec<&ScopeKey>)> =
            self.by_age().into_iter().map(|w| (w, self.needs(w))).collect();
        let mut view = View {
            waiters,
            free: BTreeMap::new(),
            kept: BTreeMap::new(),
            overtakes: self.config.max_overtakes,
        };
        for (key, _) in self.config.limits.iter().filter(|(_, limit)| limit.least().is_some()) {
            let occupancy = self.occupancy(key);
            for (is_spawn, used) in [(false, occupancy), (true, occupancy + self.credits(key))] {
                view.free.insert((key, is_spawn), self.limit(key).saturating_sub(used));
            }
            let paused = |need: &&ScopeKey| self.config.limits[*need].least() == Some(0);
            let candidate = |waiter: &Waiter, needs: &[&ScopeKey]| {
                let before: Vec<_> = needs.iter().take_while(|need| **need != key).collect();
                needs.contains(&key)
                    && !needs.iter().any(paused)
                    && before.iter().all(|need| view.has_room(waiter, need))
            };
            let candidates: Vec<&Waiter> = view
                .waiters
                .iter()
                .filter(|(waiter, needs)| candidate(waiter, needs))
                .map(|(w, _)| *w)
                .collect();
            for is_spawn in [false, true] {
                let first = candidates.iter().find(|waiter| !is_spawn || stream(&waiter.call).is_none());
                if let Some(first) = first.filter(|_| view.free[&(key, is_spawn)] == 1) {
                    view.kept.insert((key, is_spawn), first);
                }
            }
        }
        view
    }

    fn by_age(&self) -> Vec<&Waiter> {
        let mut waiters: Vec<&Waiter> = self.waiting.iter().collect();
        waiters.sort_by_key(|waiter| (waiter.seniority, waiter.id));
        waiters
    }

    /// The oldest waiter that fits.
    pub fn next(&self) -> Option<CallId> {
        let view = self.view();
        let fits =
            |(waiter, needs): &&(&Waiter, Vec<&ScopeKey>)| needs.iter().all(|key| view.has_room(waiter, key));
        view.waiters.iter().find(fits).map(|(waiter, _)| waiter.id)
    }

    /// Admits the oldest that fits, until none does.
    pub fn serve(&mut self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        while let Some(id) = self.next() {
            let waiter = self.take(id).unwrap_or_else(|| unreachable!());
            self.check_admission(&waiter);
            let live = LiveCall { id, call: waiter.call, since: now, ended: None };
            if stream(&live.call).is_some() {
                self.live.push(live);
            } else {
                self.spawns.push((live, true));
            }
            ended.push((id, Ok(())));
        }
        ended
    }

    /// I1, I5 and I6, said once more in their own words at each admission. `waiter` has just left the line.
    fn check_admission(&self, waiter: &Waiter) {
        let view = self.view();
        let is_spawn = |waiter: &Waiter| stream(&waiter.call).is_none();
        let mine = self.needs(waiter);
        for key in &mine {
            assert!(self.occupancy(key) < self.limit(key), "I1: {key} is full, yet {waiter:?} is admitted");
            for kept in [false, true].into_iter().filter_map(|for_spawn| view.kept.get(&(*key, for_spawn))) {
                let younger = waiter.seniority.saturating_sub(kept.seniority);
                assert!(younger <= view.overtakes, "I6: {waiter:?} takes the seat of {key} from {kept:?}");
            }
        }
        for (older, theirs) in
            view.waiters.iter().filter(|(w, _)| (w.seniority, w.id) < (waiter.seniority, waiter.id))
        {
            let held_back_by_credits = is_spawn(older) && !is_spawn(waiter);
            let subset = theirs.iter().all(|need| mine.contains(need));
            assert!(!subset || held_back_by_credits, "I5: {older:?} is passed by {waiter:?}");
        }
    }

    /// Ends the waits that are due, leases and graces that ran out.
    pub fn end_due(&mut self, now: Instant) -> Vec<Ended> {
        self.end_leases(now);
        let mut ended = Vec::new();
        let timeout = self.config.queue_timeout_ms;
        let mut due: Vec<(Instant, CallId)> = self.waiting.iter().map(|w| (w.since, w.id)).collect();
        due.sort_unstable();
        due.retain(|(since, _)| timeout > 0 && since.saturating_add(timeout) <= now);
        for (_, id) in due {
            let reason = self.timeout_reason(id, now);
            self.take(id);
            ended.push((id, Err(reason)));
        }
        let grace = self.config.spawn_grace_ms;
        let over = |(spawn, credit): &(LiveCall, bool)| *credit && spawn.since.saturating_add(grace) <= now;
        while let Some(at) = self.spawns.iter().position(over) {
            self.end_credit(at);
        }
        self.spawns.retain(|(spawn, credit)| {
            *credit || spawn.ended.is_none_or(|end| end.at.max(spawn.since).saturating_add(grace) > now)
        });
        ended
    }

    /// Nobody will come for this credit.
    fn end_credit(&mut self, at: usize) {
        let (spawn, credit) = &mut self.spawns[at];
        if std::mem::take(credit) {
            let route = route(&spawn.call).cloned();
            let keys = self.capacity.keys();
            let keys = keys.filter(|key| route.as_ref().is_some_and(|route| self.is_in(key, route)));
            self.give_back(keys.cloned().collect());
        }
    }

    fn end_leases(&mut self, now: Instant) {
        for (grant, _) in self.capacity.values_mut() {
            if grant.until.is_some_and(|until| until <= now) {
                (grant.seats, grant.until, grant.contended) = (0, None, false);
            }
        }
    }

    fn timeout_reason(&self, id: CallId, now: Instant) -> Reason {
        let waiter = self.waiting.iter().find(|w| w.id == id).unwrap_or_else(|| unreachable!());
        let view = self.view();
        let needs = self.needs(waiter);
        let waited_ms = now - waiter.since;
        let Some(key) = needs.iter().find(|key| !view.has_room(waiter, key)) else {
            let scope =
                route(&waiter.call).map(|r| ScopeKey::Route(r.clone()).to_string()).unwrap_or_default();
            return Reason::QueueTimeout(WaitEnded { scope, waited_ms, occupancy: 0, limit: 0 });
        };
        let (occupancy, limit) = (self.occupancy(key), self.limit(key));
        let ended = WaitEnded { scope: key.to_string(), waited_ms, occupancy, limit };
        let max = self.config.limits[*key].least();
        if max == Some(0) {
            Reason::Paused(ended)
        } else if occupancy >= limit && Some(occupancy) < max {
            Reason::NoPoolSeat(ended)
        } else {
            Reason::QueueTimeout(ended)
        }
    }

    /// Somebody arrives: it joins the line, the line is served, and if it still waits the bounds decide.
    pub fn arrive(&mut self, id: CallId, call: AnyCall, now: Instant) -> (Answer, Vec<Ended>) {
        let mut ended = self.end_due(now);
        self.newest = self.newest.max(id);
        let (mut seniority, mut in_line_before) = (id, false);
        if let AnyCall::Stream(StreamCall { session, first, spawn, .. }) = &call {
            let spawn = spawn.filter(|spawn| *first && self.spawns.iter().any(|(s, _)| s.id == *spawn));
            if let Some(spawn) = spawn {
                self.spawns.retain(|(s, _)| s.id != spawn);
                (seniority, in_line_before) = (spawn, true);
            } else if session.is_some() && !first {
                seniority = id.saturating_sub(self.config.head_start);
            }
        }
        let Some(route) = route(&call).cloned() else {
            ended.extend(self.serve(now));
            return (Answer::Admit, ended);
        };
        self.waiting.push(Waiter { id, seniority, since: now, call });
        ended.extend(self.serve(now));
        if !self.waiting.iter().any(|w| w.id == id) {
            ended.retain(|(ended, _)| *ended != id);
            return (Answer::Admit, ended);
        }
        let all = self.waiting.len() as u32 - 1;
        let here = self.waiting.iter().filter(|w| self::route(&w.call) == Some(&route)).count() as u32 - 1;
        let full =
            |key: ScopeKey, waiting, bound| Reason::QueueFull { scope: key.to_string(), waiting, bound };
        let reason = if all >= self.config.max_waiting {
            full(ScopeKey::Everything, all, self.config.max_waiting)
        } else if here >= self.config.max_queued && !in_line_before {
            full(ScopeKey::Route(route), here, self.config.max_queued)
        } else {
            return (Answer::Wait(self.deadline(now), seniority), ended);
        };
        self.take(id);
        ended.extend(self.serve(now));
        (Answer::Deny(reason), ended)
    }

    fn deadline(&self, since: Instant) -> Option<Instant> {
        let timeout = self.config.queue_timeout_ms;
        (timeout > 0).then(|| since.saturating_add(timeout))
    }

    /// A call ends, from wherever it is.
    pub fn finish(&mut self, id: CallId, completed: bool, now: Instant) -> Vec<Ended> {
        let mut ended = self.end_due(now);
        let before: Vec<(ScopeKey, u32)> =
            self.capacity.keys().map(|key| (key.clone(), self.occupancy(key))).collect();
        self.live.retain(|live| live.id != id);
        let freed = before.into_iter().filter(|(key, occupancy)| self.occupancy(key) < *occupancy);
        self.give_back(freed.map(|(key, _)| key).collect());
        self.take(id);
        if let Some(at) = self.spawns.iter().position(|(spawn, _)| spawn.id == id) {
            let end = self.spawns[at].0.ended.get_or_insert(SpawnEnd { at: now, completed });
            end.completed &= completed;
            if !completed {
                self.end_credit(at);
            }
        }
        ended.extend(self.serve(now));
        ended
    }

    /// Time passes.
    pub fn tick(&mut self, now: Instant) -> (Option<Instant>, Vec<Ended>) {
        let mut ended = self.end_due(now);
        ended.extend(self.serve(now));
        let waits = self.waiting.iter().filter_map(|w| self.deadline(w.since));
        let grace = self.config.spawn_grace_ms;
        let graces = self.spawns.iter().filter_map(|(spawn, credit)| {
            let from =
                if *credit { Some(spawn.since) } else { spawn.ended.map(|end| end.at.max(spawn.since)) };
            from.map(|from| from.saturating_add(grace))
        });
        let leases = self.capacity.values().filter_map(|(grant, _)| grant.until);
        (waits.chain(graces).chain(leases).min().map(|due| due.max(now)), ended)
    }

    /// Another configuration is in force.
    pub fn configure(&mut self, config: Config, now: Instant) -> Vec<Ended> {
        self.config = config;
        let limits = &self.config.limits;
        self.capacity
            .retain(|key, (_, of)| limits.get(key).is_some_and(|l| l.is_pooled() && source(l) == *of));
        let mut ended = self.end_due(now);
        ended.extend(self.serve(now));
        ended
    }

    /// A pool gives seats.
    pub fn capacity(&mut self, key: &ScopeKey, grant: Grant, now: Instant) -> Vec<Ended> {
        let mut ended = self.end_due(now);
        if let Some(limit) = self.config.limits.get(key).filter(|limit| limit.is_pooled()) {
            self.capacity.insert(key.clone(), (grant, source(limit)));
            self.end_leases(now);
        }
        ended.extend(self.serve(now));
        ended
    }

    /// What each pooled scope needs.
    pub fn demand(&self) -> BTreeMap<String, Need> {
        let view = self.view();
        let blocks =
            |need: &&ScopeKey, waiter| !self.config.limits[*need].is_pooled() && !view.has_room(waiter, need);
        let pooled = self.config.limits.iter().filter(|(_, limit)| limit.is_pooled());
        pooled
            .map(|(key, limit)| {
                let claims: BTreeSet<Holder> = view
                    .waiters
                    .iter()
                    .filter_map(|(waiter, needs)| {
                        let at = needs.iter().position(|need| *need == key)?;
                        let before = needs[..at].iter().all(|need| view.has_room(waiter, need));
                        let after = !needs[at + 1..].iter().any(|need| blocks(need, waiter));
                        let old = self.newest.saturating_sub(waiter.seniority) > self.config.max_overtakes;
                        (before && (after || old)).then(|| self.holder(key, &waiter.call, waiter.id))
                    })
                    .collect();
                let occupied = self.occupancy(key);
                let wanted = occupied + self.credits(key) + claims.len() as u32;
                let need = Need {
                    scope: key.to_string(),
                    pool: source(limit).0,
                    max: limit.max.or(limit.ceiling).unwrap_or(0),
                    ceiling: limit.ceiling,
                    held: self.held(key),
                    occupied,
                    wanted: wanted.min(limit.least().unwrap_or(0)),
                };
                (key.to_string(), need)
            })
            .collect()
    }

    /// What a host would bring back after a fault: all that runs, all that waits, oldest first.
    pub fn tables(&self) -> (Vec<LiveCall>, Vec<WaitingCall>) {
        let mut live: Vec<LiveCall> = self.live.clone();
        live.extend(self.spawns.iter().map(|(spawn, _)| spawn.clone()));
        let waiting = self.by_age().into_iter().map(|w| WaitingCall {
            id: w.id,
            call: w.call.clone(),
            since: w.since,
            seniority: w.seniority,
        });
        (live, waiting.collect())
    }

    fn take(&mut self, id: CallId) -> Option<Waiter> {
        let at = self.waiting.iter().position(|waiter| waiter.id == id)?;
        Some(self.waiting.remove(at))
    }
}

/// The model call, if it is one.
pub fn stream(call: &AnyCall) -> Option<&StreamCall> {
    match call {
        AnyCall::Stream(call) => Some(call),
        AnyCall::Spawn(_) => None,
    }
}

/// Where it goes.
pub fn route(call: &AnyCall) -> Option<&Route> {
    match call {
        AnyCall::Stream(call) => Some(&call.route),
        AnyCall::Spawn(SpawnCall { route, .. }) => route.as_ref(),
    }
}
