//! A plugin's part in a [pool](crate::pool).
//!
//! A plugin that has [joined](Plugin::join) a pool brings it what its scopes need at the end of an operation, and takes what it
//! is given, until nothing changes; before an operation it takes what the pool has for it. Without scopes that draw from the
//! pool nothing of that happens.

use crate::log::Level;
use crate::plugin::succession::Facts;
use crate::plugin::{Plugin, Work};
use crate::pool::{MemberId, Need, SharedPool};
use crate::share::{ROUNDS, Share, endow};
use crate::{Fault, Instant};

impl Plugin {
    /// Makes it a member of a pool, under a name for people: its scopes that the pool serves hold what that gives, nothing at
    /// first. It leaves when it is dropped, with all its calls. Without a pool a ceiling holds for this plugin alone.
    ///
    /// Whatever one member does may be news for others: ask the [pool](crate::Pool::news) for whom, after each operation, and
    /// have those [collect](Self::collect_grants) it.
    pub fn join(&mut self, pool: SharedPool, name: &str, now: Instant) {
        self.prepare(now);
        let mut share = Share::join(pool, name);
        share.begin(&self.facts.needs);
        self.share = Some(share);
        let facts = self.facts.clone();
        if let Err(fault) = self.endow(&facts, now) {
            self.recover(fault, now);
        }
        self.exchange(now);
    }

    /// Leaves its pool, with all its calls. What the pool served is unlimited from then on, so this is for a plugin that decides
    /// no more.
    pub fn part(&mut self) {
        self.share = None;
    }

    /// Which member of its pool it is.
    pub fn member(&self) -> Option<MemberId> {
        self.share.as_ref().map(Share::member)
    }

    /// Takes what its pool has for it: seats, or that others wait for those it holds. Every operation begins with that; this is
    /// for when there is none.
    pub fn collect_grants(&mut self, now: Instant) {
        self.prepare(now);
        self.exchange(now);
    }

    pub(super) fn share_due(&self) -> Option<Instant> {
        self.share.as_ref().and_then(Share::next_tick)
    }

    /// Brings what changed to the pool and applies what it gives, until nothing changes. What that decides is queued.
    pub(super) fn exchange(&mut self, now: Instant) {
        for _ in 0..ROUNDS {
            let Some(share) = self.share.as_mut().filter(|share| share.is_due(self.table.is_calm())) else {
                return;
            };
            let Work::Running { instance, due } = &mut self.work else {
                return share.stand_in(self.table.live(), now);
            };
            let exchanged = instance.demand().and_then(|changed| {
                let grants = share.exchange(changed, now);
                for grant in &grants {
                    instance.capacity(grant, now)?;
                }
                if !grants.is_empty() {
                    *due = instance.tick(now)?;
                }
                Ok(grants.is_empty())
            });
            match exchanged {
                Ok(is_settled) => {
                    self.collect(now);
                    if is_settled {
                        return;
                    }
                }
                Err(fault) => {
                    let was_slow = matches!(fault, Fault::Deadline { .. });
                    self.recover(fault, now);
                    if was_slow {
                        break;
                    }
                    self.begin();
                }
            }
        }
        // The rest comes when others had their turn.
        if let Work::Running { due, .. } = &mut self.work {
            *due = Some(now);
        }
    }

    /// Says which scopes name a pool that there is none of.
    pub(super) fn tell_of_pools(&mut self) {
        let is_unserved =
            |need: &&Need| need.pool.is_some() && self.share.as_ref().is_none_or(|share| !share.serves(need));
        let unserved: Vec<&str> =
            self.facts.needs.iter().filter(is_unserved).map(|need| need.scope.as_str()).collect();
        if !unserved.is_empty() {
            let line = format!(
                "this host has no pools: {} get every seat they want, as if no pool was named",
                unserved.join(", ")
            );
            self.out.line(Level::Warn, line);
        }
    }

    /// Gives the instance at work the seats that are held for it.
    pub(super) fn endow(&mut self, facts: &Facts, now: Instant) -> Result<(), Fault> {
        let Work::Running { instance, .. } = &mut self.work else { return Ok(()) };
        endow(instance, &facts.needs, self.share.as_ref(), now)
    }
}
