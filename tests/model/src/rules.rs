//! The rules, by definition: who is admitted, who waits, in which order, who is refused. `docs/semantics.md` says the same in
//! words; the numbers here are its sections. Nothing is kept that could be worked out, so nothing can be out of date.

use std::collections::{BTreeMap, BTreeSet};

use limiter::{CallId, Instant};

use crate::tables::{Call, Ended, Look, Refused, Spawn, Tables};

impl Tables {
    /// §1.2: a seat is a session's, or a call's where calls are counted. A call without a session is its own.
    pub fn holder(&self, scope: usize, call: &Call) -> (Option<usize>, CallId) {
        let session = call.session.filter(|_| !call.is_spawn && !self.scopes[scope].by_call);
        (session, if session.is_some() { 0 } else { call.id })
    }

    fn holders(&self, scope: usize) -> impl Iterator<Item = (Option<usize>, CallId)> {
        let inside = self.live.iter().filter(move |call| self.routes[call.route].contains(&scope));
        inside.map(move |call| self.holder(scope, call))
    }

    /// §1.2
    pub fn occupancy(&self, scope: usize) -> u32 {
        self.holders(scope).collect::<BTreeSet<_>>().len() as u32
    }

    /// §4.2
    pub fn credits(&self, scope: usize) -> u32 {
        let inside = |spawn: &&Spawn| spawn.credit && self.routes[spawn.call.route].contains(&scope);
        self.spawns.iter().filter(inside).count() as u32
    }

    /// §2.1, §8.1
    pub fn limit(&self, scope: usize) -> u32 {
        self.scopes[scope].max.min(self.scopes[scope].seats)
    }

    /// §3.2: what its session does not hold. §4.1: a spawn needs all.
    pub fn needs(&self, call: &Call) -> Vec<usize> {
        let holds = |scope: usize| self.holders(scope).any(|holder| holder == self.holder(scope, call));
        self.routes[call.route].iter().copied().filter(|&scope| !holds(scope)).collect()
    }

    /// §3.3: for whom the last free seat is kept, scope by scope, since who is a candidate depends on the scopes before.
    pub fn look(&self) -> Look {
        let needs: Vec<Vec<usize>> = self.waiting.iter().map(|call| self.needs(call)).collect();
        let needed: BTreeSet<usize> = needs.iter().flatten().copied().collect();
        let mut look = Look { needs, free: BTreeMap::new(), kept: BTreeMap::new() };
        for scope in needed {
            let left = self.limit(scope).saturating_sub(self.occupancy(scope));
            let free = [left, left.saturating_sub(self.credits(scope))];
            let is_candidate = |&at: &usize| {
                let needs = &look.needs[at];
                needs.contains(&scope)
                    && needs.iter().all(|&need| need >= scope || self.has_room(&look, at, need))
                    && needs.iter().all(|&need| self.scopes[need].max > 0)
            };
            let candidates: Vec<usize> = (0..self.waiting.len()).filter(is_candidate).collect();
            let stream = candidates.iter().copied().find(|_| free[0] == 1);
            let spawn = candidates.iter().copied().find(|&at| free[1] == 1 && self.waiting[at].is_spawn);
            look.free.insert(scope, free);
            look.kept.insert(scope, [stream, spawn]);
        }
        look
    }

    /// §3.3, and for spawns §4.2.
    pub fn has_room(&self, look: &Look, at: usize, scope: usize) -> bool {
        let waiter = &self.waiting[at];
        let younger = |than: usize| waiter.seniority.saturating_sub(self.waiting[than].seniority);
        look.free[&scope][usize::from(waiter.is_spawn)] > 0
            && look.kept[&scope].iter().flatten().all(|&kept| younger(kept) <= self.knobs.max_overtakes)
    }

    /// §3.2: the oldest that fits.
    pub fn next(&self) -> Option<usize> {
        let look = self.look();
        (0..self.waiting.len()).find(|&at| look.needs[at].iter().all(|&need| self.has_room(&look, at, need)))
    }

    /// §3.2: it is admitted, then the next. §4.2: a spawn takes no seat and leaves a credit.
    pub fn serve(&mut self, now: Instant) -> Ended {
        let mut ended = Ended::new();
        while let Some(at) = self.next() {
            self.check_admission(at);
            let call = Call { since: now, ..self.waiting.remove(at) };
            ended.push((call.clone(), Ok(())));
            if call.is_spawn {
                self.spawns.push(Spawn { call, credit: true, ended: None, failed: false });
            } else {
                self.live.push(call);
            }
        }
        ended
    }

    /// An arrival is served like every waiter. `begun` says that its session has called before, `spawn` whose child it is.
    pub fn arrive(&mut self, mut call: Call, begun: bool, spawn: Option<CallId>, now: Instant) -> Ended {
        let mut ended = self.end_due(now);
        // §4.4: a child has its spawn's place. §3.1: a head start.
        let spawn = self.spawns.iter().position(|known| Some(known.call.id) == spawn);
        if let Some(at) = spawn {
            call.seniority = self.spawns.remove(at).call.id;
        } else if begun {
            call.seniority = call.id.saturating_sub(self.knobs.head_start);
        }
        let (id, route, rank) = (call.id, call.route, (call.seniority, call.id));
        let place = self.waiting.partition_point(|other| (other.seniority, other.id) < rank);
        self.waiting.insert(place, call);
        ended.extend(self.serve(now));
        let Some(at) = self.waiting.iter().position(|waiter| waiter.id == id) else { return ended };
        // §3.6: who cannot be served has to fit into the line.
        let all = self.waiting.len() as u32 - 1;
        let here = self.waiting.iter().filter(|other| other.route == route).count() as u32 - 1;
        let everywhere = all >= self.knobs.max_waiting;
        if everywhere || here >= self.knobs.max_queued && spawn.is_none() {
            let waiting = if everywhere { all } else { here };
            ended.push((self.waiting.remove(at), Err(Refused::Full { everywhere, waiting })));
            ended.extend(self.serve(now));
        }
        ended
    }
}
