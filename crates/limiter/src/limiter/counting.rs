//! Counting: who holds what, and the credits of spawns. Every change of a count tells the queue in the same step.

use super::{Limiter, Live, RouteIx, SessionIx, Spawn};
use crate::call::{CallId, Instant, SpawnEnd};
use crate::queue::Kind;
use crate::scope::{Held, ScopeIx};
use crate::stats::Observed;

impl Limiter {
    /// A call is live from now on.
    pub(super) fn run(
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

    pub(super) fn count(&mut self, session: SessionIx, route: RouteIx, id: CallId, since: Instant) {
        for at in 0..self.routes[route].scopes.len() {
            let ix = self.routes[route].scopes[at];
            let scope = &mut self.scopes[ix];
            let holder = scope.holder(session, id);
            let held = scope.holders.entry(holder).or_insert(Held { calls: 0, since });
            held.calls += 1;
            held.since = held.since.min(since);
            scope.longest.set(None);
            if held.calls == 1 && scope.max.is_some() {
                self.queue.touch(scope);
            }
        }
        self.replace_lines(session);
    }

    pub(super) fn uncount(&mut self, session: SessionIx, route: RouteIx, id: CallId) {
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
                scope.remove(holder);
                scope.give_back();
                if scope.max.is_some() {
                    self.queue.touch(scope);
                }
            }
        }
        self.replace_lines(session);
    }

    /// What a session holds changed, so its waiting calls may need other scopes.
    pub(super) fn replace_lines(&mut self, session: SessionIx) {
        for at in 0..self.sessions[session].lines.len() {
            let (route, line) = self.sessions[session].lines[at];
            let needs: Vec<ScopeIx> = self.needs(Kind::Stream, session, route).collect();
            self.queue.place(line, &needs, &mut self.scopes);
        }
    }

    /// A spawn has got through: it leaves a credit.
    pub(super) fn let_through(&mut self, id: CallId, route: RouteIx, since: Instant) {
        self.spawns.insert(id, Spawn { route, since, credit: true, ended: None });
        self.count_credit(route, 1);
        self.time_grace(id);
    }

    pub(super) fn count_credit(&mut self, route: RouteIx, change: i32) {
        for at in 0..self.routes[route].scopes.len() {
            let ix = self.routes[route].scopes[at];
            let scope = &mut self.scopes[ix];
            debug_assert!(change > 0 || scope.credits > 0, "{} has no credit to end", scope.key);
            scope.credits = scope.credits.saturating_add_signed(change);
            if scope.max.is_some() {
                self.queue.touch(scope);
            }
        }
    }

    /// Ends a spawn's credit, if it still has one, and lets the grace run from its end, if that has come.
    pub(super) fn end_credit(&mut self, id: CallId) {
        let Some(spawn) = self.spawns.get_mut(&id) else { return };
        if std::mem::take(&mut spawn.credit) {
            self.graces.remove(&(spawn.since, id));
            let route = spawn.route;
            self.count_credit(route, -1);
        }
        self.time_grace(id);
    }

    /// Nobody will come for this credit: what was promised to it is free.
    pub(super) fn give_up_credit(&mut self, id: CallId) {
        let Some(route) = self.spawns.get(&id).filter(|spawn| spawn.credit).map(|spawn| spawn.route) else {
            return;
        };
        self.end_credit(id);
        for at in 0..self.routes[route].scopes.len() {
            let ix = self.routes[route].scopes[at];
            self.scopes[ix].give_back();
            self.queue.touch(&self.scopes[ix]);
        }
    }

    /// The tool call has returned; its child may still come.
    pub(super) fn spawn_ended(&mut self, id: CallId, SpawnEnd { at, completed }: SpawnEnd) {
        let Some(spawn) = self.spawns.get_mut(&id) else { return };
        spawn.ended.get_or_insert(at);
        if completed {
            self.time_grace(id);
        } else {
            self.end_credit(id);
        }
    }

    pub(super) fn time_grace(&mut self, id: CallId) {
        if let Some(from) = self.spawns.get(&id).and_then(Spawn::timer) {
            self.graces.insert((from, id));
        }
    }

    pub(super) fn run_out_graces(&mut self) {
        while let Some(&(from, id)) = self.graces.first()
            && from.saturating_add(self.config.spawn_grace_ms) <= self.now
        {
            self.graces.remove(&(from, id));
            if self.spawns.get(&id).is_some_and(|spawn| spawn.credit) {
                self.give_up_credit(id);
            } else {
                self.forget_spawn(id);
            }
        }
    }

    /// Whether there was one to forget.
    pub(super) fn forget_spawn(&mut self, id: CallId) -> bool {
        self.end_credit(id);
        let Some(spawn) = self.spawns.remove(&id) else { return false };
        if let Some(from) = spawn.timer() {
            self.graces.remove(&(from, id));
        }
        self.totals.finished += 1;
        self.release_route(spawn.route);
        true
    }

    pub(super) fn observe(&mut self, route: RouteIx, mut see: impl FnMut(&mut Observed)) {
        for &scope in &self.routes[route].scopes {
            see(&mut self.scopes[scope].observed);
        }
        see(&mut self.observed);
    }
}
