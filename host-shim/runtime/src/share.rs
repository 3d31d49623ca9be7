//! One plugin's part in a [pool](crate::pool): what it holds, kept where no component can lose it.
//!
//! An instance forgets what it was given when it dies. Its successor gets the same seats before it is told of any call, so it
//! admits nobody too many, and the pool need not even know.
//!
//! While there is no component, nobody counts per scope. Then the seats held last stay held, as many of them as calls run
//! at most: what was admitted within the ceiling stays within it, what `onFailure: open` lets through beyond that counts
//! nowhere until an instance works again, and nothing is held for calls that have ended.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use crate::instance::Instance;
use crate::pool::{Grant, MemberId, Need, Pool, SharedPool};
use crate::{Fault, Instant};

/// So often needs and grants go to and fro in one operation; what is left then is due at once. Each round is a seat of a
/// further scope for somebody, or another plugin's doing at the same time.
pub(crate) const ROUNDS: usize = 32;

pub(crate) struct Share {
    pool: SharedPool,
    member: MemberId,
    /// Per scope, what was said of it last and what was taken.
    scopes: BTreeMap<String, Held>,
    /// There is another instance or configuration: what comes next is all there is.
    whole: bool,
    /// Whatever the component does within its seats concerns nobody else.
    quiet: bool,
}

struct Held {
    need: Need,
    grant: Grant,
}

impl Held {
    fn new(need: Need) -> Self {
        let grant = Grant { scope: need.scope.clone(), seats: 0, until: None, contended: false };
        Self { need, grant }
    }

    fn is_quiet(&self) -> bool {
        let Self { need, grant } = self;
        !grant.contended && grant.until.is_none() && need.occupied.max(need.wanted) <= grant.seats
    }
}

impl Share {
    pub(crate) fn join(pool: SharedPool, name: &str) -> Self {
        let member = locked(&pool).join(name);
        Self { pool, member, scopes: BTreeMap::new(), whole: true, quiet: false }
    }

    fn pool(&self) -> MutexGuard<'_, dyn Pool + 'static> {
        locked(&self.pool)
    }

    pub(crate) fn member(&self) -> MemberId {
        self.member
    }

    pub(crate) fn serves(&self, need: &Need) -> bool {
        self.pool().serves(need)
    }

    pub(crate) fn has_news(&self) -> bool {
        self.pool().has_news(self.member)
    }

    /// Whether the pool has to be told of something, or has something to tell, whatever the component has done since.
    pub(crate) fn is_owing(&self) -> bool {
        self.whole || !self.scopes.is_empty() && self.has_news()
    }

    /// Whether the component has to be asked what it needs. Without waiters it need not be while all is quiet.
    pub(crate) fn is_due(&self, calm: bool) -> bool {
        let is_concerned = !self.scopes.is_empty();
        self.is_owing() || is_concerned && !(self.quiet && calm)
    }

    pub(crate) fn next_tick(&self) -> Option<Instant> {
        self.pool().next_tick()
    }

    pub(crate) fn tick(&self, now: Instant) {
        self.pool().tick(now);
    }

    /// An instance begins, or goes on under another configuration: these are all its needs.
    pub(crate) fn begin(&mut self, needs: &[Need]) {
        let served: Vec<Need> = needs.iter().filter(|need| self.serves(need)).cloned().collect();
        let mut before = std::mem::take(&mut self.scopes);
        let has_needed = !before.is_empty();
        for need in served {
            let scope = need.scope.clone();
            let held = match before.remove(&scope) {
                Some(Held { grant, .. }) => Held { need, grant },
                None => Held::new(need),
            };
            self.scopes.insert(scope, held);
        }
        // Who needs nothing, and needed nothing, has nothing to say.
        self.whole = has_needed || !self.scopes.is_empty();
    }

    /// Brings what changed and takes what is given: to be applied, then brought again, until nothing is.
    pub(crate) fn exchange(&mut self, changed: Vec<Need>, now: Instant) -> Vec<Grant> {
        if changed.is_empty() && !self.is_owing() {
            return Vec::new();
        }
        for need in &changed {
            if let Some(held) = self.scopes.get_mut(&need.scope) {
                // It may have given some back, or their time is over.
                held.grant.seats = held.grant.seats.min(need.held);
                held.need = need.clone();
            }
        }
        let needs =
            if self.whole { self.scopes.values().map(|held| held.need.clone()).collect() } else { changed };
        let grants = {
            let mut pool = self.pool();
            pool.bring(self.member, &needs, self.whole, now);
            pool.take(self.member, now)
        };
        self.whole = false;
        for grant in &grants {
            if let Some(held) = self.scopes.get_mut(&grant.scope) {
                held.grant = grant.clone();
            }
        }
        self.quiet = grants.is_empty() && self.scopes.values().all(Held::is_quiet);
        grants
    }

    /// There is no component, and at most `live` calls run.
    pub(crate) fn stand_in(&mut self, live: usize, now: Instant) {
        let live = u32::try_from(live).unwrap_or(u32::MAX);
        for _ in 0..ROUNDS {
            let mut changed = Vec::new();
            for Held { need, grant } in self.scopes.values() {
                let occupied = need.occupied.max(grant.seats).min(live);
                let held = grant.seats.min(occupied);
                if (held, occupied, occupied) != (need.held, need.occupied, need.wanted) {
                    changed.push(Need { held, occupied, wanted: occupied, ..need.clone() });
                }
            }
            if self.exchange(changed, now).is_empty() {
                return;
            }
        }
    }
}

/// A panic in another member's thread has left nothing half done: seats are counted in one step.
fn locked(pool: &SharedPool) -> MutexGuard<'_, dyn Pool + 'static> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool().leave(self.member);
    }
}

/// Gives an instance the seats that are held for its scopes, and to those that no pool serves all that they want.
pub(crate) fn endow(
    instance: &mut Instance,
    needs: &[Need],
    share: Option<&Share>,
    now: Instant,
) -> Result<(), Fault> {
    for need in needs {
        let unshared = Grant { scope: need.scope.clone(), seats: u32::MAX, until: None, contended: false };
        let grant = match share {
            Some(share) if share.serves(need) => match share.scopes.get(&need.scope) {
                Some(held) => held.grant.clone(),
                None => continue,
            },
            _ => unshared,
        };
        instance.capacity(&grant, now)?;
    }
    Ok(())
}
