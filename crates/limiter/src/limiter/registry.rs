//! Routes, sessions and scopes exist while somebody refers to them.
//!
//! A call of a session that has no other would make its route and the scopes around it, and unmake them when it ends. So a few
//! routes that nobody is on stay, with their scopes, for whoever comes next. Nothing can be seen of them: an idle route is what
//! a new one would be, and of a scope that is neither configured nor busy, what it has seen is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Limiter, RouteIx, RouteState, Session, SessionIx};
use crate::call::{Instant, Route};
use crate::config::{Config, Limit};
use crate::scope::{Capacity, CountBy, Scope, ScopeIx, ScopeKey};

/// How many routes are kept that nobody is on.
pub(super) const IDLE: usize = 8;

impl Limiter {
    pub(super) fn session(&mut self, name: Option<String>) -> SessionIx {
        let known = name.as_ref().and_then(|name| self.session_index.get(name));
        let ix = known.unwrap_or_else(|| {
            let name: Option<Arc<str>> = name.map(Into::into);
            let ix = self.sessions.insert(Session { name: name.clone(), lines: Vec::new(), users: 0 });
            if let Some(name) = name {
                self.session_index.insert(name, ix);
            }
            ix
        });
        self.sessions[ix].users += 1;
        ix
    }

    pub(super) fn route(&mut self, route: Route) -> RouteIx {
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
            self.idle.push(ix);
            ix
        });
        if self.routes[ix].users == 0 {
            self.idle.retain(|&idle| idle != ix);
            for &scope in &self.routes[ix].scopes {
                self.scopes[scope].idle -= 1;
                self.scopes[scope].routes += 1;
            }
        }
        self.routes[ix].users += 1;
        ix
    }

    /// The scopes that contain an idle route, in the order of scopes, and those of them that have a limit.
    pub(super) fn scopes_of(&mut self, route: &Route) -> (Vec<ScopeIx>, Vec<ScopeIx>) {
        let mut keys = vec![ScopeKey::Route(route.clone())];
        keys.extend(self.config.groups_of(route).into_iter().map(ScopeKey::Group));
        keys.extend([ScopeKey::Provider(route.provider.clone()), ScopeKey::Everything]);
        let scopes: Vec<ScopeIx> = keys.iter().map(|key| self.scope(key)).collect();
        for &scope in &scopes {
            self.scopes[scope].idle += 1;
        }
        let limited = scopes.iter().copied().filter(|&scope| self.scopes[scope].max.is_some()).collect();
        (scopes, limited)
    }

    /// A scope nobody has been counted in.
    pub(super) fn new_scope(&self, key: &ScopeKey) -> Scope {
        let mut scope = Scope::new(key.clone());
        apply(self.config.limits.get(key), &mut scope);
        scope
    }

    pub(super) fn scope(&mut self, key: &ScopeKey) -> ScopeIx {
        self.scope_index.get(key).copied().unwrap_or_else(|| {
            let ix = self.scopes.insert(self.new_scope(key));
            self.scope_index.insert(key.clone(), ix);
            ix
        })
    }

    pub(super) fn release(&mut self, session: SessionIx, route: RouteIx) {
        self.release_session(session);
        self.release_route(route);
    }

    pub(super) fn release_session(&mut self, ix: SessionIx) {
        self.sessions[ix].users -= 1;
        if self.sessions[ix].users == 0
            && let Some(name) = self.sessions.remove(ix).name
        {
            self.session_index.remove(name);
        }
    }

    pub(super) fn release_route(&mut self, ix: RouteIx) {
        self.routes[ix].users -= 1;
        if self.routes[ix].users == 0 {
            for &scope in &self.routes[ix].scopes {
                let scope = &mut self.scopes[scope];
                scope.routes -= 1;
                scope.idle += 1;
                if scope.routes == 0 && !scope.configured {
                    scope.observed.forget();
                }
            }
            self.idle.push(ix);
            if self.idle.len() > IDLE {
                self.forget_route(0);
            }
        }
    }

    /// An idle route goes, and with it the scopes that contain nothing else, unless they are configured.
    fn forget_route(&mut self, at: usize) {
        let state = self.routes.remove(self.idle.remove(at));
        self.route_index.remove(&state.route);
        for ix in state.scopes {
            let scope = &mut self.scopes[ix];
            scope.idle -= 1;
            if scope.routes + scope.idle == 0 && !scope.configured {
                debug_assert!(scope.holders.is_empty() && scope.credits == 0 && scope.nodes.is_empty());
                self.scope_index.remove(&scope.key);
                self.scopes.remove(ix);
            }
        }
    }

    fn forget_idle_routes(&mut self) {
        while !self.idle.is_empty() {
            self.forget_route(self.idle.len() - 1);
        }
    }

    /// Everybody is counted again, unless it would come to the same: where the same scopes are limited as before and none is
    /// paused or not any more, nobody needs other scopes than before, and it is enough to look again at whoever needs those
    /// whose numbers changed.
    pub(super) fn put_in_force(&mut self, config: Config) {
        let counts_alike = config.counts_like(&self.config);
        let overtakes_alike = config.max_overtakes == self.config.max_overtakes;
        self.queue.max_overtakes = config.max_overtakes;
        self.config = config;
        if !counts_alike {
            self.recount();
            self.find_pooled();
            return;
        }
        for (_, scope) in &mut self.scopes {
            let Some(limit) = self.config.limits.get(&scope.key) else { continue };
            if !overtakes_alike || limit.max != scope.own || limit.ceiling != scope.ceiling {
                apply(Some(limit), scope);
                self.queue.touch(scope);
            }
        }
    }

    /// Counts everybody again, in the scopes that contain their route now.
    fn recount(&mut self) {
        self.forget_idle_routes();
        self.queue.clear();
        let mut held_since: BTreeMap<(ScopeIx, u64), Instant> = BTreeMap::new();
        for (ix, scope) in &mut self.scopes {
            held_since.extend(scope.holders.iter().map(|(&holder, held)| ((ix, holder), held.since)));
            let seen = std::mem::take(&mut scope.observed);
            let capacity = scope.capacity.take();
            *scope = Scope { observed: seen, capacity, ..Scope::new(scope.key.clone()) };
            apply(self.config.limits.get(&scope.key), scope);
        }
        let routes: Vec<RouteIx> = self.routes.iter().map(|(ix, _)| ix).collect();
        for ix in routes {
            let route = self.routes[ix].route.clone();
            let (scopes, limited) = self.scopes_of(&route);
            for &scope in &scopes {
                self.scopes[scope].idle -= 1;
                self.scopes[scope].routes += 1;
            }
            let state = &mut self.routes[ix];
            (state.scopes, state.limited, state.spawns) = (scopes, limited, None);
        }
        let idle: Vec<ScopeIx> = self
            .scopes
            .iter()
            .filter(|(_, scope)| scope.routes == 0 && !scope.configured)
            .map(|(ix, _)| ix)
            .collect();
        for ix in idle {
            let scope = self.scopes.remove(ix);
            self.scope_index.remove(&scope.key);
        }
        let scopes = &self.scopes;
        self.leases.retain(|&(until, ix)| {
            let held = scopes.get(ix).and_then(|scope| scope.capacity.as_ref());
            held.is_some_and(|held| held.until == Some(until))
        });

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
        let waiting: Vec<_> = self.waiters.values().map(|w| (w.kind, w.session, w.route, w.rank)).collect();
        for (kind, session, route, rank) in waiting {
            let at = self.line(kind, session, route);
            self.queue.join(at, rank, &self.scopes);
        }
        self.queue.flush(&mut self.scopes);
    }

    /// Gives memory back when everybody has gone.
    pub(super) fn shrink(&mut self) {
        if self.routes.len() == self.idle.len() && self.routes.capacity() + self.sessions.capacity() > 1_024 {
            self.forget_idle_routes();
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
    scope.configured = limit.is_some();
    scope.max = limit.and_then(Limit::least);
    scope.own = limit.and_then(|limit| limit.max);
    scope.ceiling = limit.and_then(|limit| limit.ceiling);
    scope.count_by = limit.map_or(CountBy::Session, |limit| limit.count_by);
    let held = scope.capacity.take();
    scope.capacity = limit.filter(|limit| limit.is_pooled()).map(|limit| {
        let source = (limit.pool().map(str::to_owned), limit.ceiling.is_some());
        held.filter(|held| held.source == source).unwrap_or_else(|| Capacity::none(source))
    });
}
