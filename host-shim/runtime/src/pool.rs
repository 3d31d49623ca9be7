//! Seats that several plugins share: a ceiling over all tenants, and whatever else a limit may span.
//!
//! A plugin says per scope what it holds, occupies and wants; a [`Pool`] says what it may hold. Each plugin still decides alone
//! who of its calls goes first, and admits only who has a seat in *all* limited scopes. The pool decides only between plugins.
//!
//! # What [`ProcessPool`] promises
//!
//! * The seats that the members of a scope hold are never more than its ceiling, the least that any member states. A ceiling
//!   that is lowered stops nobody: what is held beyond it is given back as it comes free, and nothing is granted meanwhile.
//!   Calls that run without a seat, because they began before there was a ceiling, count as if they had one.
//! * Members that want more than they hold stand in a queue, in the order of their asking. Each turn is one seat, then one goes
//!   to the end: so a seat goes round, and a member with ten thousand waiters gets as many turns as one with a single waiter.
//! * While somebody waits, every seat that comes free goes back to the pool, also if its holder has waiters of its own (the
//!   component does that, in the step that frees the seat), and seats that nobody needs are taken back.
//! * A seat that was granted is its holder's until it has been used, or is not wanted any more. So a member may hold it for a
//!   child that is about to call, and while it still waits for a seat of another scope. That cannot lock up: seats are wanted
//!   in one order of scopes everywhere, so whoever holds a later one waits for none before it.
//!
//! # What it costs, and why seats stay
//!
//! While nobody else waits a member keeps the seats it had, occupied or not. Then a call costs two looks at a mutex and no
//! further crossing into the component: what it does within its seats changes nothing for others. The other way, to hold only
//! what is occupied, would be three crossings more for every start and two for every finish, and would make every call wait
//! for its grant. The price is paid where seats are short: whoever asks first for a seat that lies idle elsewhere gets it only
//! when that member has been asked, which is why [`Pool::news`] says whom to ask.
//!
//! Bringing a need is O(log n) in members. When the first member begins to wait, all holders are marked once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::Instant;
pub use crate::bindings::exports::dsh::plugin::pools::{Grant, Need};
use crate::machine::{Claim as MachineClaim, Machine, Standing, Use};

/// Seats that nobody here or elsewhere wants stay for so long.
const LINGER_MS: Instant = 200;

/// Names a member of a pool; never used twice.
pub type MemberId = u64;

/// A pool and those who share it. No member is to be called while it is locked: each locks it by itself.
pub type SharedPool = Arc<Mutex<dyn Pool>>;

/// Shares seats between plugins.
///
/// A member brings its needs and then takes what it is given, in this order, whenever its needs have changed or the pool has
/// news for it. It applies what it took before it does anything else. Nothing here blocks: a pool that asks others far away
/// answers with what it has, and has [news](Self::has_news) later.
pub trait Pool: Send {
    /// Somebody new, who holds nothing. The name is for people.
    fn join(&mut self, name: &str) -> MemberId;

    /// A member has gone, and all its calls with it: what it held is free. Repeating it does nothing.
    fn leave(&mut self, member: MemberId);

    /// Whether the seats of such a scope come from here.
    fn serves(&self, need: &Need) -> bool;

    /// What a member needs, where that has changed; with `whole`, all that it needs: it has left every other scope.
    ///
    /// It holds what it says, but never more than it was given. Scopes that are not served are passed over.
    fn bring(&mut self, member: MemberId, needs: &[Need], whole: bool, now: Instant);

    /// What a member holds from now on, where that has changed.
    ///
    /// Seats count as given from here on, and as given back when the member says so. With `until` they end by themselves.
    fn take(&mut self, member: MemberId, now: Instant) -> Vec<Grant>;

    /// Whether a member is to bring and take: there are seats for it, or others wait for what it holds.
    fn has_news(&self, member: MemberId) -> bool;

    /// All members with news, for whoever runs several of them on one thread: what one has released only helps another that
    /// is asked to take it.
    fn news(&self) -> Vec<MemberId>;

    /// When to call [`tick`](Self::tick), for pools whose seats end.
    fn next_tick(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn tick(&mut self, now: Instant) {
        let _ = now;
    }

    /// Who holds what, in the order of scopes' texts.
    fn view(&self) -> Vec<ScopeView>;
}

/// Who holds what of a scope, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeView {
    /// The scope's text.
    pub scope: String,
    /// How many seats there are.
    pub ceiling: u32,
    /// Its members, in the order of their joining.
    pub members: Vec<MemberView>,
    /// What there is of a pool beyond this process, if seats come from one.
    pub supply: Option<SupplyView>,
}

/// What a process has of a pool beyond it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupplyView {
    /// Seats it holds.
    pub seats: u32,
    /// Whether other processes wait.
    pub is_contended: bool,
    /// Seats that were lost while they were held.
    pub lost: u64,
    /// Why there are no seats to be had, if so.
    pub error: Option<String>,
}

/// One member of a scope. What it occupies and wants is as of the last time it had to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// Seats it holds, or may take.
    pub held: u32,
    /// Seats in use.
    pub occupied: u32,
    /// Seats that would serve all who wait there.
    pub wanted: u32,
}

/// The pool of one process: ceilings over its plugins, and what they draw together from the pools of their machine.
#[derive(Default)]
pub struct ProcessPool {
    machine: Option<Machine>,
    last: MemberId,
    members: BTreeMap<MemberId, Member>,
    scopes: BTreeMap<Key, Scope>,
    news: BTreeSet<MemberId>,
    /// The earliest that idle seats may have to go back.
    due: Option<Instant>,
}

struct Member {
    name: String,
    scopes: BTreeSet<Key>,
}

/// What is shared: a scope, and the pool it draws from; under a ceiling all members have the scope in common, whatever each says of
/// pools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    scope: String,
    pool: Option<String>,
}

impl Key {
    fn new(need: &Need) -> Self {
        let pool = need.pool.clone().filter(|_| need.ceiling.is_none());
        Self { scope: need.scope.clone(), pool }
    }
}

#[derive(Default)]
struct Scope {
    claims: BTreeMap<MemberId, Claim>,
    /// What this process has of a pool, if there is one.
    supply: Option<Supply>,
    /// How many members state each number of seats.
    ceilings: BTreeMap<u32, usize>,
    /// Those who want more, by their place.
    queue: BTreeMap<u64, MemberId>,
    last_place: u64,
    /// Members with a seat.
    holders: BTreeSet<MemberId>,
    /// All that is [used](Claim::used).
    used: u64,
    /// Whose waiting the holders have been marked for.
    marked: Waiting,
}

/// Who waits for seats: whoever holds some while somebody else does gives back what comes free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waiting {
    #[default]
    Nobody,
    One(MemberId),
    /// Several, or there are fewer seats than are held.
    Several,
}

#[derive(Debug, Default)]
struct Claim {
    ceiling: u32,
    /// Seats it has taken and not given back.
    held: u32,
    /// Seats granted that it has not taken yet.
    offered: u32,
    occupied: u32,
    wanted: u32,
    /// Its place in the queue.
    place: Option<u64>,
    /// Whether it has been told that others wait.
    contended: bool,
}

impl Claim {
    fn given(&self) -> u32 {
        self.held.saturating_add(self.offered)
    }

    /// Seats that nobody else can have: those it may occupy, and those it does.
    fn used(&self) -> u64 {
        self.given().max(self.occupied).into()
    }
}

impl ProcessPool {
    /// A pool without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that asks a machine for the seats of scopes that name a pool.
    pub fn of_machine(machine: Machine) -> Self {
        Self { machine: Some(machine), ..Self::default() }
    }

    /// A pool of the process alone, ready to be shared.
    pub fn shared() -> SharedPool {
        Arc::new(Mutex::new(Self::new()))
    }

    fn views(&self) -> Vec<ScopeView> {
        let member = |(id, claim): (&MemberId, &Claim)| MemberView {
            name: self.members.get(id).map_or_else(String::new, |member| member.name.clone()),
            held: claim.given(),
            occupied: claim.occupied,
            wanted: claim.wanted,
        };
        let scope = |(key, scope): (&Key, &Scope)| ScopeView {
            scope: key.scope.clone(),
            ceiling: scope.ceiling(),
            members: scope.claims.iter().map(member).collect(),
            supply: scope.supply.as_ref().map(|supply| SupplyView {
                seats: supply.standing.seats,
                is_contended: supply.standing.is_contended,
                lost: supply.standing.lost,
                error: supply.standing.error.clone(),
            }),
        };
        self.scopes.iter().map(scope).collect()
    }

    fn leave_scope(&mut self, member: MemberId, key: &Key, now: Option<Instant>) {
        let Some(scope) = self.scopes.get_mut(key) else { return };
        scope.remove(member);
        if scope.claims.is_empty() {
            self.scopes.remove(key);
        } else {
            scope.share_out(&mut self.news, now);
        }
    }
}

impl Pool for ProcessPool {
    fn join(&mut self, name: &str) -> MemberId {
        self.last += 1;
        self.members.insert(self.last, Member { name: name.to_owned(), scopes: BTreeSet::new() });
        self.last
    }

    fn leave(&mut self, member: MemberId) {
        let Some(Member { scopes, .. }) = self.members.remove(&member) else { return };
        for key in &scopes {
            self.leave_scope(member, key, None);
        }
        self.news.remove(&member);
    }

    fn serves(&self, need: &Need) -> bool {
        need.ceiling.is_some() || need.pool.is_some() && self.machine.is_some()
    }

    fn bring(&mut self, member: MemberId, needs: &[Need], whole: bool, now: Instant) {
        let Some(Member { scopes, .. }) = self.members.get_mut(&member) else { return };
        let before = if whole { std::mem::take(scopes) } else { BTreeSet::new() };
        for need in needs {
            let machine = self.machine.as_ref();
            let pool = need.pool.as_deref().zip(machine);
            if need.ceiling.is_none() && pool.is_none() {
                continue;
            }
            let key = Key::new(need);
            scopes.insert(key.clone());
            let scope = self.scopes.entry(key).or_default();
            if let (None, Some((pool, machine))) = (&scope.supply, pool) {
                scope.supply = Some(Supply::new(machine.claim(&format!("pool {pool}"))));
            }
            scope.update(member, need);
            scope.share_out(&mut self.news, Some(now));
            self.due = self.due.into_iter().chain(scope.due()).min();
        }
        if scopes.is_empty() {
            // Nothing can be news.
            self.news.remove(&member);
        }
        let left: Vec<Key> = before.difference(scopes).cloned().collect();
        for key in left {
            self.leave_scope(member, &key, Some(now));
        }
    }

    fn take(&mut self, member: MemberId, _now: Instant) -> Vec<Grant> {
        self.news.remove(&member);
        let Some(Member { scopes, .. }) = self.members.get(&member) else { return Vec::new() };
        let mut grants = Vec::new();
        for key in scopes {
            let Some((seats, contended)) = self.scopes.get_mut(key).and_then(|scope| scope.take(member))
            else {
                continue;
            };
            grants.push(Grant { scope: key.scope.clone(), seats, until: None, contended });
        }
        grants
    }

    fn has_news(&self, member: MemberId) -> bool {
        self.news.contains(&member)
    }

    fn news(&self) -> Vec<MemberId> {
        self.news.iter().copied().collect()
    }

    fn next_tick(&self) -> Option<Instant> {
        self.due
    }

    fn tick(&mut self, now: Instant) {
        let has_news = self.machine.as_ref().is_some_and(Machine::take_news);
        if !has_news && self.due.is_none_or(|due| due > now) {
            return;
        }
        for scope in self.scopes.values_mut() {
            if scope.supply.as_ref().is_some_and(|supply| supply.is_due(now)) {
                scope.share_out(&mut self.news, Some(now));
            }
        }
        self.due = self.scopes.values().filter_map(Scope::due).min();
    }

    fn view(&self) -> Vec<ScopeView> {
        self.views()
    }
}

/// What this process has of a pool beyond it.
struct Supply {
    claim: MachineClaim,
    standing: Standing,
    /// Since when it has had more than it wants.
    idle_since: Option<Instant>,
    /// It has had more for so long that it gives back what it does not use.
    is_idle: bool,
}

impl Supply {
    fn new(claim: MachineClaim) -> Self {
        Self { claim, standing: Standing::default(), idle_since: None, is_idle: false }
    }

    /// When idle seats go back.
    fn due(&self) -> Option<Instant> {
        self.idle_since.filter(|_| !self.is_idle).map(|since| since + LINGER_MS)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.claim.has_news() || self.due().is_some_and(|due| due <= now)
    }

    /// Seats for this process, of which so many are used. What comes free while others wait is not for those who wait here.
    fn room(&self, used: u64) -> u64 {
        let Standing { seats, fresh, is_contended, .. } = self.standing;
        if is_contended { u64::from(seats).min(used + u64::from(fresh)) } else { seats.into() }
    }
}

impl Scope {
    /// The lowest of its members counts.
    fn ceiling(&self) -> u32 {
        self.ceilings.keys().next().copied().unwrap_or(0)
    }

    /// When idle seats go back to the pool beyond.
    fn due(&self) -> Option<Instant> {
        self.supply.as_ref().and_then(Supply::due)
    }

    /// How many seats there are for this process.
    fn seats(&self) -> u32 {
        self.supply.as_ref().map_or(u32::MAX, |supply| supply.standing.seats).min(self.ceiling())
    }

    /// How much more is used than there is.
    fn excess(&self) -> u32 {
        u32::try_from(self.used.saturating_sub(self.seats().into())).unwrap_or(u32::MAX)
    }

    fn waiting(&self) -> Waiting {
        let mut queue = self.queue.values();
        let is_wanted_back =
            self.supply.as_ref().is_some_and(|supply| supply.standing.is_contended || supply.is_idle);
        match (queue.next(), queue.next()) {
            _ if self.excess() > 0 || is_wanted_back => Waiting::Several,
            (None, _) => Waiting::Nobody,
            (Some(one), None) => Waiting::One(*one),
            (Some(_), Some(_)) => Waiting::Several,
        }
    }

    fn update(&mut self, member: MemberId, need: &Need) {
        let own = need.pool.as_ref().map(|_| need.max);
        let ceiling = own.into_iter().chain(need.ceiling).min().unwrap_or(u32::MAX);
        let lowest = self.ceiling();
        let claim = self.claims.entry(member).or_insert_with(|| {
            *self.ceilings.entry(ceiling).or_default() += 1;
            Claim { ceiling, ..Claim::default() }
        });
        let (used, stated) = (claim.used(), std::mem::replace(&mut claim.ceiling, ceiling));
        // Whatever it says: nobody helps himself.
        claim.held = claim.held.min(need.held);
        (claim.occupied, claim.wanted) = (need.occupied, need.wanted);
        self.used = self.used - used + claim.used();
        if stated != ceiling {
            self.uncount_ceiling(stated);
            *self.ceilings.entry(ceiling).or_default() += 1;
        }
        if self.ceiling() == lowest {
            self.requeue(member);
        } else {
            self.requeue_all();
        }
    }

    fn remove(&mut self, member: MemberId) {
        let lowest = self.ceiling();
        let Some(claim) = self.claims.remove(&member) else { return };
        self.used -= claim.used();
        self.holders.remove(&member);
        if let Some(place) = claim.place {
            self.queue.remove(&place);
        }
        self.uncount_ceiling(claim.ceiling);
        if self.ceiling() != lowest {
            self.requeue_all();
        }
    }

    fn uncount_ceiling(&mut self, ceiling: u32) {
        if let Some(count) = self.ceilings.get_mut(&ceiling) {
            *count -= 1;
            if *count == 0 {
                self.ceilings.remove(&ceiling);
            }
        }
    }

    fn requeue_all(&mut self) {
        let members: Vec<MemberId> = self.claims.keys().copied().collect();
        for member in members {
            self.requeue(member);
        }
    }

    /// Puts a member into the queue, or takes it out of it, as it wants. One that is there keeps its place.
    fn requeue(&mut self, member: MemberId) {
        let ceiling = self.ceiling();
        let Some(claim) = self.claims.get_mut(&member) else { return };
        if claim.given() > 0 {
            self.holders.insert(member);
        } else {
            self.holders.remove(&member);
        }
        match (claim.wanted.min(ceiling) > claim.given(), claim.place) {
            (true, None) => {
                self.last_place += 1;
                claim.place = Some(self.last_place);
                self.queue.insert(self.last_place, member);
            }
            (false, Some(place)) => {
                claim.place = None;
                self.queue.remove(&place);
            }
            _ => {}
        }
    }

    /// Gives what is free, gets what is lacking, and marks those who have something to learn.
    fn share_out(&mut self, news: &mut BTreeSet<MemberId>, now: Option<Instant>) {
        loop {
            if let Some(supply) = &mut self.supply {
                supply.standing = supply.claim.standing();
            }
            self.hand_out(news);
            if !self.settle(now) {
                break;
            }
        }
        let waiting = self.waiting();
        if std::mem::replace(&mut self.marked, waiting) != waiting {
            let told = |member: &&MemberId| self.claims.get(member).is_some_and(|claim| claim.contended);
            let unaware = self.holders.iter().filter(|member| waiting.is_other(**member) && !told(member));
            news.extend(unaware);
        }
    }

    /// Tells the pool beyond what is used and wanted here; `true` if there is more to hand out.
    fn settle(&mut self, now: Option<Instant>) -> bool {
        let max = self.ceiling();
        let Some(supply) = &mut self.supply else { return false };
        let wanted: u64 = self.claims.values().map(|claim| u64::from(claim.wanted.max(claim.occupied))).sum();
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(max);
        let used = u32::try_from(self.used).unwrap_or(u32::MAX);
        if wanted >= supply.standing.seats {
            (supply.idle_since, supply.is_idle) = (None, false);
        } else if let Some(now) = now {
            let since = *supply.idle_since.get_or_insert(now);
            supply.is_idle = now >= since + LINGER_MS;
        }
        let is_more =
            supply.claim.settle(Use { used, wanted, max, is_idle: supply.is_idle }, &supply.standing);
        supply.standing = supply.claim.standing();
        is_more
    }

    /// Gives what is free, one seat a turn.
    fn hand_out(&mut self, news: &mut BTreeSet<MemberId>) {
        let ceiling = self.ceiling();
        let room = self.supply.as_ref().map_or(u64::MAX, |supply| supply.room(self.used)).min(ceiling.into());
        while let Some((&place, &member)) = self.queue.first_key_value() {
            let free = room.checked_sub(self.used);
            let (Some(free), Some(claim)) = (free, self.claims.get_mut(&member)) else { break };
            let lacks = claim.wanted.min(ceiling) - claim.given();
            // Calls that run without a seat are counted already: to give them theirs takes from nobody.
            let uncovered = claim.occupied.saturating_sub(claim.given()).min(lacks);
            let turn = match (uncovered, u32::try_from(free).unwrap_or(u32::MAX)) {
                (0, 0) => break,
                (0, free) if self.queue.len() == 1 => lacks.min(free),
                (0, _) => 1,
                (uncovered, _) => uncovered,
            };
            let used = claim.used();
            claim.offered += turn;
            self.used = self.used - used + claim.used();
            // To the end, if it wants still more.
            claim.place = None;
            self.queue.remove(&place);
            self.requeue(member);
            news.insert(member);
        }
    }

    /// What a member holds from now on and whether others wait, if either is news.
    fn take(&mut self, member: MemberId) -> Option<(u32, bool)> {
        let contended = self.waiting().is_other(member);
        let excess = self.excess();
        let claim = self.claims.get_mut(&member)?;
        let keep = if contended {
            // What nobody needs, and of what is too much whatever is not in use. It counts until it has been given back.
            let needed = claim.held.min(claim.wanted.max(claim.occupied));
            needed.min(claim.held.saturating_sub(excess).max(claim.occupied))
        } else {
            claim.held
        };
        let seats = keep.saturating_add(claim.offered);
        let is_news = seats != claim.held || contended != claim.contended;
        claim.held = claim.given();
        (claim.offered, claim.contended) = (0, contended);
        is_news.then_some((seats, contended))
    }
}

impl Waiting {
    /// Whether somebody else than this member waits.
    fn is_other(self, member: MemberId) -> bool {
        match self {
            Self::Nobody => false,
            Self::One(one) => one != member,
            Self::Several => true,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SCOPE: &str = "p/m";

    /// A member of one scope as a plugin is one: it admits within what it holds, and gives back what comes free while others
    /// wait.
    pub(crate) struct Member {
        id: MemberId,
        /// The pool that its row names; without, it has a ceiling.
        pool: Option<String>,
        pub(crate) ceiling: u32,
        held: u32,
        contended: bool,
        pub(crate) running: u32,
        pub(crate) waiting: u32,
        /// How many it has admitted, ever.
        pub(crate) admitted: u32,
    }

    impl Member {
        fn new(pool: &mut ProcessPool, ceiling: u32) -> Self {
            Self::of(pool, None, ceiling)
        }

        pub(crate) fn of(pool: &mut ProcessPool, name: Option<&str>, ceiling: u32) -> Self {
            let mut me = Self {
                id: pool.join("somebody"),
                pool: name.map(str::to_owned),
                ceiling,
                held: 0,
                contended: false,
                running: 0,
                waiting: 0,
                admitted: 0,
            };
            me.exchange(pool, 0);
            me
        }

        fn need(&self) -> Need {
            Need {
                scope: SCOPE.into(),
                pool: self.pool.clone(),
                max: self.ceiling,
                ceiling: if self.pool.is_none() { Some(self.ceiling) } else { None },
                held: self.held,
                occupied: self.running,
                wanted: (self.running + self.waiting).min(self.ceiling),
            }
        }

        pub(crate) fn exchange(&mut self, pool: &mut ProcessPool, now: Instant) {
            loop {
                pool.bring(self.id, &[self.need()], true, now);
                let grants = pool.take(self.id, now);
                if grants.is_empty() {
                    return;
                }
                for Grant { seats, contended, .. } in grants {
                    (self.held, self.contended) = (seats, contended);
                }
                self.serve();
            }
        }

        fn serve(&mut self) {
            let free = self.held.min(self.ceiling).saturating_sub(self.running).min(self.waiting);
            self.waiting -= free;
            self.running += free;
            self.admitted += free;
        }

        pub(crate) fn ask(&mut self, pool: &mut ProcessPool) {
            self.waiting += 1;
            self.serve();
            self.exchange(pool, 0);
        }

        pub(crate) fn end(&mut self, pool: &mut ProcessPool) {
            if self.running == 0 {
                return;
            }
            self.running -= 1;
            if self.contended && self.held > self.running {
                self.held -= 1;
            }
            self.serve();
            self.exchange(pool, 0);
        }

        pub(crate) fn give_up(&mut self, pool: &mut ProcessPool) {
            self.waiting = self.waiting.saturating_sub(1);
            self.exchange(pool, 0);
        }
    }

    fn members<const N: usize>(pool: &mut ProcessPool, ceiling: u32) -> [Member; N] {
        std::array::from_fn(|_| Member::new(pool, ceiling))
    }

    /// Whoever has news is asked, until nobody has any.
    fn spread(pool: &mut ProcessPool, members: &mut [Member]) {
        for _ in 0..1_000 {
            let news = pool.news();
            if news.is_empty() {
                return;
            }
            for member in members.iter_mut().filter(|member| news.contains(&member.id)) {
                member.exchange(pool, 0);
            }
        }
        panic!("there is news for ever");
    }

    fn running(members: &[Member]) -> u32 {
        members.iter().map(|member| member.running).sum()
    }

    #[test]
    fn seats_go_to_whoever_asks_and_stay_while_nobody_else_does() {
        let mut pool = ProcessPool::new();
        let [mut a] = members(&mut pool, 2);
        a.ask(&mut pool);
        a.ask(&mut pool);
        a.ask(&mut pool);
        assert_eq!((a.running, a.waiting), (2, 1));
        a.end(&mut pool);
        assert_eq!((a.running, a.held), (2, 2), "it serves its own line at once");
        a.end(&mut pool);
        a.end(&mut pool);
        assert_eq!((a.running, a.held, pool.news()), (0, 2, vec![]));
    }

    #[test]
    fn a_seat_that_lies_idle_goes_to_another_as_soon_as_its_holder_is_asked() {
        let mut pool = ProcessPool::new();
        let [mut a, mut b] = members(&mut pool, 1);
        a.ask(&mut pool);
        a.end(&mut pool);
        b.ask(&mut pool);
        assert_eq!((b.running, pool.news()), (0, vec![a.id]));
        a.exchange(&mut pool, 0);
        assert_eq!((a.held, pool.news()), (0, vec![b.id]));
        b.exchange(&mut pool, 0);
        assert_eq!(b.running, 1);
    }

    #[test]
    fn seats_go_round_however_long_a_line_is() {
        let mut pool = ProcessPool::new();
        let mut all: [Member; 3] = members(&mut pool, 2);
        for _ in 0..100 {
            all[0].ask(&mut pool);
        }
        for _ in 0..10 {
            all[1].ask(&mut pool);
            all[2].ask(&mut pool);
        }
        spread(&mut pool, &mut all);
        let before = all.each_ref().map(|member| member.admitted);
        for _ in 0..15 {
            let at = all.iter().position(|member| member.running > 0).expect("seats are never idle");
            all[at].end(&mut pool);
            spread(&mut pool, &mut all);
            assert_eq!(running(&all), 2);
        }
        let turns: Vec<u32> =
            all.iter().zip(before).map(|(member, before)| member.admitted - before).collect();
        assert_eq!(turns, [5, 5, 5]);
    }

    #[test]
    fn a_lowered_ceiling_stops_nobody_and_a_raised_one_is_used_at_once() {
        let mut pool = ProcessPool::new();
        let mut all: [Member; 2] = members(&mut pool, 4);
        for _ in 0..3 {
            for member in &mut all {
                member.ask(&mut pool);
            }
            spread(&mut pool, &mut all);
        }
        assert_eq!(running(&all), 4);
        all[0].ceiling = 2;
        all[0].exchange(&mut pool, 0);
        spread(&mut pool, &mut all);
        assert_eq!(running(&all), 4, "the lowest counts, and stops nobody");
        for left in [3, 2, 2] {
            let at = all.iter().position(|member| member.running > 1).unwrap_or(0);
            all[at].end(&mut pool);
            spread(&mut pool, &mut all);
            assert_eq!(running(&all), left);
        }
        all[0].ceiling = 4;
        all[0].exchange(&mut pool, 0);
        spread(&mut pool, &mut all);
        assert_eq!(running(&all) + all.iter().map(|member| member.waiting).sum::<u32>(), 3);
        assert_eq!(all.iter().map(|member| member.waiting).sum::<u32>(), 0);
    }

    #[test]
    fn who_runs_without_a_seat_is_counted_before_anybody_new() {
        let mut pool = ProcessPool::new();
        let mut all: [Member; 2] = members(&mut pool, 3);
        all[0].running = 5;
        all[0].exchange(&mut pool, 0);
        all[1].ask(&mut pool);
        for left in [4, 3, 2] {
            assert_eq!(all[1].running, 0);
            all[0].end(&mut pool);
            spread(&mut pool, &mut all);
            assert_eq!(all[0].running, left);
        }
        assert_eq!((all[1].running, running(&all)), (1, 3));
    }

    #[test]
    fn a_member_that_leaves_frees_all_it_had() {
        let mut pool = ProcessPool::new();
        let mut all: [Member; 2] = members(&mut pool, 2);
        for _ in 0..2 {
            all[0].ask(&mut pool);
            all[1].ask(&mut pool);
        }
        spread(&mut pool, &mut all);
        pool.leave(all[0].id);
        pool.leave(all[0].id);
        spread(&mut pool, &mut all[1..]);
        assert_eq!((all[1].running, all[1].waiting), (2, 0));
        pool.leave(all[1].id);
        assert!(pool.view().is_empty() && pool.news().is_empty() && !pool.has_news(all[1].id));
    }

    #[test]
    fn a_scope_that_a_member_does_not_state_any_more_is_left() {
        let mut pool = ProcessPool::new();
        let [mut a, mut b] = members(&mut pool, 1);
        a.ask(&mut pool);
        b.ask(&mut pool);
        pool.bring(a.id, &[], true, 0);
        spread(&mut pool, std::slice::from_mut(&mut b));
        assert_eq!(b.running, 1);
    }

    #[test]
    fn nobody_helps_himself() {
        let mut pool = ProcessPool::new();
        let [a, mut b] = members(&mut pool, 2);
        pool.bring(a.id, &[Need { held: 2, ..a.need() }], false, 0);
        b.ask(&mut pool);
        b.ask(&mut pool);
        assert_eq!(b.running, 2, "what a says it holds it was never given");
        let unserved = Need { ceiling: None, ..a.need() };
        assert!(!pool.serves(&unserved));
        pool.bring(a.id, &[Need { wanted: 1, ..unserved }], false, 0);
        assert!(!pool.has_news(a.id));
    }

    #[test]
    fn who_holds_what_is_told() {
        let mut pool = ProcessPool::new();
        let [mut a, mut b] = members(&mut pool, 1);
        a.ask(&mut pool);
        b.ask(&mut pool);
        let member = |held, occupied, wanted| MemberView { name: "somebody".into(), held, occupied, wanted };
        let view = ScopeView {
            scope: SCOPE.into(),
            ceiling: 1,
            members: vec![member(1, 1, 1), member(0, 0, 1)],
            supply: None,
        };
        assert_eq!(pool.view(), [view]);
    }

    /// A generator good enough for tests, and the same everywhere.
    struct Dice(u64);

    impl Dice {
        fn throw(&mut self, sides: u32) -> u32 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as u32 % sides
        }
    }

    #[test]
    fn whatever_happens_no_ceiling_is_exceeded_nobody_starves_and_every_seat_returns() {
        for seed in 1..=3_000u64 {
            let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let ceiling = 1 + dice.throw(4);
            let mut pool = ProcessPool::new();
            let mut all: Vec<Member> =
                (0..2 + dice.throw(3)).map(|_| Member::new(&mut pool, ceiling)).collect();
            for _ in 0..120 {
                let at = dice.throw(all.len() as u32) as usize;
                match dice.throw(20) {
                    0..=7 => all[at].ask(&mut pool),
                    8..=14 => all[at].end(&mut pool),
                    15 => all[at].give_up(&mut pool),
                    16 if all.len() > 1 => {
                        let gone = all.swap_remove(at);
                        pool.leave(gone.id);
                    }
                    17 if all.len() < 6 => all.push(Member::new(&mut pool, ceiling)),
                    // Not always at once: who is not asked keeps what it has a while longer.
                    _ => spread(&mut pool, &mut all),
                }
                assert!(running(&all) <= ceiling, "seed {seed}: {:?}", pool.view());
                let given: u32 = pool.view().iter().flat_map(|scope| &scope.members).map(|m| m.held).sum();
                assert!(given <= ceiling, "seed {seed}: {:?}", pool.view());
            }
            // Whoever waits comes in while calls end, whatever arrives elsewhere.
            spread(&mut pool, &mut all);
            let starving = dice.throw(all.len() as u32) as usize;
            let mut idle = 0;
            while all[starving].waiting > 0 {
                let before = all[starving].admitted;
                for at in 0..all.len() {
                    if at != starving {
                        all[at].ask(&mut pool);
                    }
                    all[at].end(&mut pool);
                    spread(&mut pool, &mut all);
                }
                // In each round a seat goes one turn further at least.
                idle = if all[starving].admitted > before { 0 } else { idle + 1 };
                assert!(idle <= all.len(), "seed {seed}: nobody is served there");
            }
            while running(&all) > 0 {
                for member in &mut all {
                    member.end(&mut pool);
                }
                spread(&mut pool, &mut all);
                assert!(running(&all) <= ceiling, "seed {seed}");
            }
            assert!(all.iter().all(|member| member.waiting == 0), "seed {seed}: {:?}", pool.view());
            let used: u64 = pool.scopes.values().map(|scope| scope.used).sum();
            let held: u32 = all.iter().map(|member| member.held).sum();
            assert_eq!(used, u64::from(held), "seed {seed}");
            for member in &all {
                pool.leave(member.id);
            }
            assert!(pool.scopes.is_empty() && pool.members.is_empty() && pool.news.is_empty());
        }
    }
}
