//! Pooled scopes: what they need from their pool, and what it gave.

use std::collections::BTreeSet;

use super::Limiter;
use crate::call::{Instant, Need};
use crate::config::Limit;
use crate::queue::Kind;
use crate::scope::{Capacity, CountBy, ScopeIx, ScopeKey};

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

    pub(super) fn end_leases(&mut self) {
        while let Some(&(until, scope)) = self.leases.first().filter(|(until, _)| *until <= self.now) {
            self.leases.remove(&(until, scope));
            self.scopes[scope].capacity = Some(Capacity { seats: 0, until: None });
            self.queue.touch(scope, &self.scopes);
        }
    }

    /// Seats that would serve everybody who may take one here: in every scope before this one there is room for them,
    /// and no unpooled scope after it blocks, or they are so old that seats are kept for them.
    pub(super) fn wanted(&self, ix: ScopeIx) -> u32 {
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
