//! Pooled scopes: what they need from their pool, and what it gave.
//!
//! A seat that was given stays until it is taken back, so while nobody else waits a pool costs a call nothing. While
//! somebody does (`contended`), a seat that comes free goes back in the step that frees it, before the line here is served:
//! whoever runs the pool could only take it after the next of this line had taken it. It is one seat for each that came free,
//! so that those that are promised to a child, or held by a waiter that still lacks another scope's, stay where they are.

use std::collections::BTreeSet;

use super::Limiter;
use crate::call::{Grant, Instant, Need};
use crate::config::Limit;
use crate::queue::Kind;
use crate::scope::{Capacity, CountBy, ScopeIx, ScopeKey};

/// Seats held, occupied and wanted.
pub(super) type Said = (u32, u32, u32);

impl Limiter {
    /// What the pooled scopes need, where that changed since the last answer; whole after a reconfiguration and a
    /// restore. Linear in pooled scopes.
    pub fn demand(&mut self) -> Vec<Need> {
        let mut needs = Vec::new();
        for &ix in &self.pooled {
            let scope = &self.scopes[ix];
            let held = scope.capacity.as_ref().map_or(0, |capacity| capacity.seats);
            let said = (held, scope.occupancy(), self.wanted(ix));
            if self.told.insert(ix, said) == Some(said) {
                continue;
            }
            let (held, occupied, wanted) = said;
            let pool = scope.capacity.as_ref().and_then(|capacity| capacity.source.0.clone());
            let max = scope.own.or(scope.ceiling).unwrap_or(u32::MAX);
            let (scope, ceiling) = (scope.key.to_string(), scope.ceiling);
            needs.push(Need { scope, pool, max, ceiling, held, occupied, wanted });
        }
        needs
    }

    pub(super) fn find_pooled(&mut self) {
        let pooled = self.config.limits.iter().filter(|(_, limit)| limit.is_pooled());
        let pooled: Vec<ScopeKey> = pooled.map(|(key, _)| key.clone()).collect();
        self.pooled = pooled.iter().map(|key| self.scope(key)).collect();
    }

    /// The host holds so many seats for a pooled scope. A scope that is not pooled is none of its business.
    pub fn capacity(&mut self, grant: &Grant, now: Instant) {
        self.begin(now);
        let key = ScopeKey::parse(&grant.scope);
        if let Some(key) = key.filter(|key| self.config.limits.get(key).is_some_and(Limit::is_pooled)) {
            let ix = self.scope(&key);
            if let Some(held) = &mut self.scopes[ix].capacity {
                if let Some(until) = held.until {
                    self.leases.remove(&(until, ix));
                }
                (held.seats, held.until, held.contended) = (grant.seats, grant.until, grant.contended);
                if let Some(until) = grant.until {
                    self.leases.insert((until, ix));
                }
            }
            self.end_leases();
            self.queue.touch(&self.scopes[ix]);
        }
        self.serve();
    }

    pub(super) fn end_leases(&mut self) {
        while let Some(&(until, scope)) = self.leases.first().filter(|(until, _)| *until <= self.now) {
            self.leases.remove(&(until, scope));
            let held = self.scopes[scope].capacity.take();
            self.scopes[scope].capacity = held.map(|held| Capacity::none(held.source));
            self.queue.touch(&self.scopes[scope]);
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
