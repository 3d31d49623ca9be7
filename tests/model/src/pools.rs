//! §8: pooled scopes, what they hold and what they need.

use std::collections::{BTreeMap, BTreeSet};

use limiter::config::Limit;
use limiter::{Grant, Instant, Need, ScopeKey};

use crate::model::{Ended, Model, source};

impl Model {
    /// The pooled scopes, in the order of scopes.
    pub fn pooled(&self) -> impl Iterator<Item = &ScopeKey> {
        self.config.config.limits.iter().filter(|(_, limit)| limit.is_pooled()).map(|(key, _)| key)
    }

    /// A pool gives seats.
    pub fn capacity(&mut self, key: &ScopeKey, grant: &Grant, now: Instant) -> Ended {
        self.end_leases(now);
        let mut ended = self.tables.end_due(now);
        let limit = self.config.config.limits.get(key).filter(|limit| limit.is_pooled());
        if let Some((limit, scope)) = limit.zip(self.scope(key)) {
            self.leases.insert(key.clone(), (grant.until, source(limit)));
            let scope = &mut self.tables.scopes[scope];
            (scope.seats, scope.contended) = (grant.seats, grant.contended);
            self.end_leases(now);
        }
        ended.extend(self.tables.serve(now));
        self.told(ended)
    }

    /// Nobody is admitted on seats that have ended.
    pub(crate) fn end_leases(&mut self, now: Instant) {
        for (key, (until, _)) in &mut self.leases {
            if until.is_some_and(|until| until <= now)
                && let Ok(scope) = self.keys.binary_search(key)
            {
                *until = None;
                let scope = &mut self.tables.scopes[scope];
                (scope.seats, scope.contended) = (0, false);
            }
        }
    }

    /// What the pools have given, as a host keeps it.
    pub fn grants(&self) -> Vec<Grant> {
        let held = self.leases.iter().filter_map(|(key, (until, _))| {
            let scope = &self.tables.scopes[self.scope(key)?];
            let (seats, contended) = (scope.seats, scope.contended);
            Some(Grant { scope: key.to_string(), seats, until: *until, contended })
        });
        held.collect()
    }

    /// What each pooled scope needs.
    pub fn demand(&self) -> BTreeMap<String, Need> {
        let tables = &self.tables;
        let look = tables.look();
        let pooled = self.config.config.limits.iter().filter(|(_, limit)| limit.is_pooled());
        let need = |key: &ScopeKey, limit: &Limit, scope: usize| {
            let claims = (0..tables.waiting.len()).filter(|&at| {
                let needs = &look.needs[at];
                let room = |need: usize| tables.has_room(&look, at, need);
                let blocks = |need: usize| tables.scopes[need].seats == u32::MAX && !room(need);
                let older_by = self.newest.saturating_sub(tables.waiting[at].seniority);
                needs.contains(&scope)
                    && needs.iter().all(|&need| need >= scope || room(need))
                    && (older_by > tables.knobs.max_overtakes
                        || !needs.iter().any(|&need| need > scope && blocks(need)))
            });
            let claims: BTreeSet<_> = claims.map(|at| tables.holder(scope, &tables.waiting[at])).collect();
            let (occupied, credits) = (tables.occupancy(scope), tables.credits(scope));
            Need {
                scope: key.to_string(),
                pool: source(limit).0,
                max: limit.max.or(limit.ceiling).unwrap_or(0),
                ceiling: limit.ceiling,
                held: tables.scopes[scope].seats,
                occupied,
                wanted: (occupied + credits + claims.len() as u32).min(tables.scopes[scope].max),
            }
        };
        let needs = pooled.filter_map(|(key, limit)| Some(need(key, limit, self.scope(key)?)));
        needs.map(|need| (need.scope.clone(), need)).collect()
    }
}
