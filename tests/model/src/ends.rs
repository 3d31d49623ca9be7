//! How waits, calls and credits end. What comes free is served by the rules.

use std::collections::BTreeSet;

use limiter::{CallId, Instant};

use crate::tables::{Call, Ended, Refused, Spawn, Tables};

impl Tables {
    /// §3.5, §3.7: waits that ran out, in the order of their arrival. §4.3, §4.4: graces that did.
    pub fn end_due(&mut self, now: Instant) -> Ended {
        let (timeout, grace) = (self.knobs.queue_timeout_ms, self.knobs.spawn_grace_ms);
        let is_due = |call: &&Call| timeout > 0 && call.since.saturating_add(timeout) <= now;
        let due: BTreeSet<(Instant, CallId)> =
            self.waiting.iter().filter(is_due).map(|call| (call.since, call.id)).collect();
        let mut ended = Ended::new();
        for (_, id) in due {
            let Some(at) = self.waiting.iter().position(|call| call.id == id) else { continue };
            let look = self.look();
            let blocker = look.needs[at].iter().copied().find(|&need| !self.has_room(&look, at, need));
            let blocker = blocker.map(|scope| (scope, self.occupancy(scope), self.limit(scope)));
            let call = self.waiting.remove(at);
            let late = Refused::Late { waited_ms: now - call.since, blocker };
            ended.push((call, Err(late)));
        }
        for at in 0..self.spawns.len() {
            if self.spawns[at].call.since.saturating_add(grace) <= now {
                self.end_credit(at);
            }
        }
        let from = |spawn: &Spawn| spawn.ended.map(|ended| ended.max(spawn.call.since));
        self.spawns.retain(|s| s.credit || from(s).is_none_or(|from| from.saturating_add(grace) > now));
        ended
    }

    /// §1.2, §3.8, §4.3: it ends, from wherever it is.
    pub fn finish(&mut self, id: CallId, completed: bool, now: Instant) -> Ended {
        let mut ended = self.end_due(now);
        if let Some(at) = self.live.iter().position(|call| call.id == id) {
            let call = self.live.remove(at);
            // What its session still holds is not among what the call would need.
            self.give_back(&self.needs(&call));
        }
        self.waiting.retain(|waiter| waiter.id != id);
        if let Some(at) = self.spawns.iter().position(|spawn| spawn.call.id == id) {
            self.spawns[at].ended.get_or_insert(now);
            if !completed {
                self.spawns[at].failed = true;
                self.end_credit(at);
            }
        }
        ended.extend(self.serve(now));
        ended
    }

    /// Nobody will come for this credit.
    fn end_credit(&mut self, at: usize) {
        if std::mem::take(&mut self.spawns[at].credit) {
            self.give_back(&self.routes[self.spawns[at].call.route].clone());
        }
    }

    /// §8.3: while others wait a seat that comes free goes back, if it was one of those held.
    fn give_back(&mut self, freed: &[usize]) {
        for &scope in freed {
            if self.scopes[scope].contended && self.scopes[scope].seats > self.occupancy(scope) {
                self.scopes[scope].seats -= 1;
            }
        }
    }

    /// I1, I5 and I6, said once more in their own words at each admission.
    pub fn check_admission(&self, at: usize) {
        let (look, waiter) = (self.look(), &self.waiting[at]);
        let mine = &look.needs[at];
        for &scope in mine {
            assert!(
                self.occupancy(scope) < self.limit(scope),
                "I1: {scope} is full, yet {waiter:?} is admitted"
            );
            for kept in look.kept[&scope].iter().flatten().map(|&kept| &self.waiting[kept]) {
                let younger = waiter.seniority.saturating_sub(kept.seniority);
                assert!(younger <= self.knobs.max_overtakes, "I6: {waiter:?} takes a seat kept for {kept:?}");
            }
        }
        for (older, theirs) in self.waiting.iter().zip(&look.needs).take(at) {
            let held_back_by_credits = older.is_spawn && !waiter.is_spawn;
            let subset = theirs.iter().all(|need| mine.contains(need));
            assert!(!subset || held_back_by_credits, "I5: {older:?} is passed by {waiter:?}");
        }
    }
}
