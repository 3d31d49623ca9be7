//! Whether everything that is kept for speed is what it is defined to be: then what the limiter will do follows from who is
//! there, and two limiters with the same people under the same configuration are the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{Limiter, Spawn};
use crate::call::{CallId, Instant, Seniority};
use crate::queue::{Kind, LineIx};
use crate::scope::{ScopeIx, ScopeKey};

/// Who is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Who runs, by id.
    pub live: Vec<CallId>,
    /// Who waits, oldest first: place, id, since when.
    pub waiting: Vec<(Seniority, CallId, Instant)>,
    /// Spawns that are remembered, by id; whether each has its credit, and when its grace runs out.
    pub spawns: Vec<(CallId, bool, Option<Instant>)>,
    /// What was given to pooled scopes: seats, until when, and whether others wait.
    pub seats: Vec<(ScopeKey, u32, Option<Instant>, bool)>,
}

impl Limiter {
    /// Who is there. Panics where something that is kept for speed differs from its definition (I3, I4, I7 among them).
    pub fn audit(&self) -> Audit {
        self.audit_counts();
        self.audit_registry();
        self.queue.audit(&self.scopes, &self.lines());
        assert_eq!(self.queue.max_overtakes, self.config.max_overtakes);

        let arrivals = self.waiters.iter().map(|(&id, waiter)| (waiter.since, id));
        assert_eq!(self.arrivals, arrivals.collect(), "arrivals");
        let graces = self.spawns.iter().filter_map(|(&id, spawn)| Some((spawn.timer()?, id)));
        assert_eq!(self.graces, graces.collect(), "graces");
        let capacities = || {
            let scopes = self.pooled.iter().map(|&ix| (ix, &self.scopes[ix]));
            scopes.filter_map(|(ix, scope)| Some((ix, &scope.key, scope.capacity.as_ref()?)))
        };
        assert_eq!(
            self.leases,
            capacities().filter_map(|(ix, _, held)| Some((held.until?, ix))).collect(),
            "leases"
        );

        let mut waiting: Vec<_> =
            self.waiters.values().map(|w| (w.rank.seniority, w.rank.id, w.since)).collect();
        waiting.sort_unstable();
        let grace = |spawn: &Spawn| Some(spawn.timer()?.saturating_add(self.config.spawn_grace_ms));
        Audit {
            live: self.live.keys().copied().collect(),
            waiting,
            spawns: self.spawns.iter().map(|(&id, spawn)| (id, spawn.credit, grace(spawn))).collect(),
            seats: capacities()
                .map(|(_, key, held)| (key.clone(), held.seats, held.until, held.contended))
                .collect(),
        }
    }

    fn audit_counts(&self) {
        let mut holders: BTreeMap<(ScopeIx, u64), u32> = BTreeMap::new();
        for (&id, live) in &self.live {
            for &scope in &self.routes[live.route].scopes {
                *holders.entry((scope, self.scopes[scope].holder(live.session, id))).or_default() += 1;
            }
        }
        let kept = self.scopes.iter().flat_map(|(ix, scope)| {
            scope.holders.iter().map(move |(&holder, held)| ((ix, holder), held.calls))
        });
        assert_eq!(kept.collect::<BTreeMap<_, _>>(), holders, "I3: seats are the union over live calls");
        for (ix, scope) in &self.scopes {
            let inside = |spawn: &&Spawn| spawn.credit && self.routes[spawn.route].scopes.contains(&ix);
            let credits = self.spawns.values().filter(inside).count();
            assert_eq!(scope.credits as usize, credits, "credits of {}", scope.key);
        }
        let greatest =
            [self.live.keys().next_back(), self.waiters.keys().next_back(), self.spawns.keys().next_back()];
        assert!(
            greatest.into_iter().flatten().all(|&id| id <= self.newest),
            "{greatest:?}, after {}",
            self.newest
        );
        let there = self.live.len() + self.waiters.len() + self.spawns.len();
        let seen = self.observed.totals;
        assert_eq!(
            self.totals.submitted,
            there as u64 + self.totals.finished + seen.refused.sum() + seen.cancelled,
            "I4: the books balance"
        );
    }

    /// I7: routes, sessions and scopes are there while somebody refers to them.
    fn audit_registry(&self) {
        let calls = self.live.values().map(|live| (Some(live.session), live.route));
        let waiters = self.waiters.values().map(|waiter| (Some(waiter.session), waiter.route));
        let there: Vec<_> =
            calls.chain(waiters).chain(self.spawns.values().map(|spawn| (None, spawn.route))).collect();
        for (ix, route) in &self.routes {
            let users = there.iter().filter(|(_, route)| *route == ix).count();
            assert_eq!(route.users as usize, users, "users of {:?}", route.route);
            let idle = self.idle.iter().filter(|idle| **idle == ix).count();
            assert_eq!(
                idle,
                usize::from(users == 0),
                "a route is idle if nobody is on it: {:?}",
                route.route
            );
            assert_eq!(
                route.spawns.is_some(),
                self.waiters.values().any(|w| w.kind == Kind::Spawn && w.route == ix)
            );
            assert_eq!(self.route_index.get(&route.route), Some(&ix));
            let waiting = self.waiters.values().filter(|waiter| waiter.route == ix).count();
            assert_eq!(route.waiting as usize, waiting, "waiters of {:?}", route.route);
            let mut keys = vec![ScopeKey::Route(route.route.clone())];
            keys.extend(self.config.groups_of(&route.route).into_iter().map(ScopeKey::Group));
            keys.extend([ScopeKey::Provider(route.route.provider.clone()), ScopeKey::Everything]);
            assert_eq!(
                route.scopes,
                keys.iter().map(|key| self.scope_index[key]).collect::<Vec<_>>(),
                "scopes of {:?}",
                route.route
            );
            let limited = route.scopes.iter().filter(|scope| self.scopes[**scope].max.is_some());
            assert!(route.limited.iter().eq(limited), "limits of {:?}", route.route);
        }
        assert_eq!(self.route_index.len(), self.routes.len());
        assert!(self.idle.len() <= super::registry::IDLE, "too many idle routes");
        for (ix, session) in &self.sessions {
            let users = there.iter().filter(|(session, _)| *session == Some(ix)).count();
            assert!(users > 0 && session.users as usize == users, "users of {:?}", session.name);
            let routes: BTreeSet<_> = session.lines.iter().map(|&(route, _)| route).collect();
            let waits = self.waiters.values().filter(|w| w.kind == Kind::Stream && w.session == ix);
            assert_eq!(routes, waits.map(|w| w.route).collect(), "lines of {:?}", session.name);
            assert_eq!(routes.len(), session.lines.len(), "one line per route of {:?}", session.name);
            assert!(session.name.as_ref().is_none_or(|name| self.session_index.get(name) == Some(ix)));
        }
        assert_eq!(
            self.session_index.iter().count(),
            self.sessions.iter().filter(|(_, session)| session.name.is_some()).count()
        );
        for (ix, scope) in &self.scopes {
            let routes = self.routes.iter().filter(|(_, route)| route.scopes.contains(&ix));
            let (busy, idle): (Vec<_>, Vec<_>) = routes.partition(|(_, route)| route.users > 0);
            let kept = (scope.routes as usize, scope.idle as usize);
            assert_eq!(kept, (busy.len(), idle.len()), "busy and idle routes of {}", scope.key);
            let limit = self.config.limits.get(&scope.key);
            let longest = scope.holders.iter().min_by_key(|&(&holder, held)| (held.since, holder));
            let told = scope.longest.get();
            assert!(
                told.is_none() || told == longest.map(|(&holder, _)| holder),
                "who holds {} longest",
                scope.key
            );
            assert_eq!(scope.configured, limit.is_some(), "whether {} is configured", scope.key);
            assert!(kept != (0, 0) || scope.configured, "nobody is in {}", scope.key);
            if scope.routes == 0 && !scope.configured {
                assert!(scope.observed.is_empty(), "what {} has seen is forgotten", scope.key);
            }
            let numbers = limit.map(|limit| (limit.max, limit.ceiling, limit.count_by)).unwrap_or_default();
            assert_eq!((scope.own, scope.ceiling, scope.count_by), numbers, "numbers of {}", scope.key);
            let source = limit.filter(|limit| limit.is_pooled());
            let source = source.map(|limit| (limit.pool().map(str::to_owned), limit.ceiling.is_some()));
            assert_eq!(
                scope.capacity.as_ref().map(|held| held.source.clone()),
                source,
                "pool of {}",
                scope.key
            );
            assert_eq!(scope.max, limit.and_then(crate::config::Limit::least), "limit of {}", scope.key);
            assert_eq!(self.scope_index.get(&scope.key), Some(&ix));
        }
        assert_eq!(self.scope_index.len(), self.scopes.len());
        let pooled = self.config.limits.iter().filter(|(_, limit)| limit.is_pooled());
        assert!(self.pooled.iter().map(|&ix| &self.scopes[ix].key).eq(pooled.map(|(key, _)| key)), "pooled");
    }

    /// The lines there are to be, by definition.
    fn lines(&self) -> BTreeMap<LineIx, (Kind, Vec<ScopeIx>, BTreeSet<crate::queue::Rank>)> {
        let mut lines = BTreeMap::new();
        for waiter in self.waiters.values() {
            let line = match waiter.kind {
                Kind::Stream => {
                    let line = self.sessions[waiter.session].line(waiter.route);
                    line.expect("a call waits, so there is a line")
                }
                Kind::Spawn => self.routes[waiter.route].spawns.expect("a spawn waits, so there is a line"),
            };
            let needs = self.needs(waiter.kind, waiter.session, waiter.route).collect();
            let (_, _, ranks) = lines.entry(line).or_insert((waiter.kind, needs, BTreeSet::new()));
            ranks.insert(waiter.rank);
        }
        lines
    }
}
