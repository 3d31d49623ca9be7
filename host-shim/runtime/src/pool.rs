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

/// Names a member of a pool; never used twice.
pub type MemberId = u64;

/// A pool and those who share it.
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

/// The pool of one process: ceilings over its plugins.
#[derive(Debug, Default)]
pub struct ProcessPool {
    last: MemberId,
    members: BTreeMap<MemberId, Member>,
    scopes: BTreeMap<String, Scope>,
    news: BTreeSet<MemberId>,
}

#[derive(Debug)]
struct Member {
    name: String,
    scopes: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Scope {
    claims: BTreeMap<MemberId, Claim>,
    /// How many members state each ceiling.
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

    /// The same, ready to be shared.
    pub fn shared() -> SharedPool {
        Arc::new(Mutex::new(Self::new()))
    }

    /// Who holds what.
    pub fn view(&self) -> Vec<ScopeView> {
        let member = |(id, claim): (&MemberId, &Claim)| MemberView {
            name: self.members.get(id).map_or_else(String::new, |member| member.name.clone()),
            held: claim.given(),
            occupied: claim.occupied,
            wanted: claim.wanted,
        };
        let scope = |(text, scope): (&String, &Scope)| ScopeView {
            scope: text.clone(),
            ceiling: scope.ceiling(),
            members: scope.claims.iter().map(member).collect(),
        };
        self.scopes.iter().map(scope).collect()
    }

    fn leave_scope(&mut self, member: MemberId, text: &str) {
        let Some(scope) = self.scopes.get_mut(text) else { return };
        scope.remove(member);
        if scope.claims.is_empty() {
            self.scopes.remove(text);
        } else {
            scope.share_out(&mut self.news);
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
        for scope in &scopes {
            self.leave_scope(member, scope);
        }
        self.news.remove(&member);
    }

    fn serves(&self, need: &Need) -> bool {
        need.ceiling.is_some()
    }

    fn bring(&mut self, member: MemberId, needs: &[Need], whole: bool, _now: Instant) {
        let Some(Member { scopes, .. }) = self.members.get_mut(&member) else { return };
        let before = if whole { std::mem::take(scopes) } else { BTreeSet::new() };
        for need in needs {
            let Some(ceiling) = need.ceiling else { continue };
            scopes.insert(need.scope.clone());
            let scope = match self.scopes.get_mut(&need.scope) {
                Some(scope) => scope,
                None => self.scopes.entry(need.scope.clone()).or_default(),
            };
            scope.update(member, need, ceiling);
            scope.share_out(&mut self.news);
        }
        let left: Vec<String> = before.difference(scopes).cloned().collect();
        for text in left {
            self.leave_scope(member, &text);
        }
    }

    fn take(&mut self, member: MemberId, _now: Instant) -> Vec<Grant> {
        self.news.remove(&member);
        let Some(Member { scopes, .. }) = self.members.get(&member) else { return Vec::new() };
        let mut grants = Vec::new();
        for text in scopes {
            let Some((seats, contended)) = self.scopes.get_mut(text).and_then(|scope| scope.take(member)) else {
                continue;
            };
            grants.push(Grant { scope: text.clone(), seats, until: None, contended });
        }
        grants
    }

    fn has_news(&self, member: MemberId) -> bool {
        self.news.contains(&member)
    }

    fn news(&self) -> Vec<MemberId> {
        self.news.iter().copied().collect()
    }
}

impl Scope {
    /// The lowest of its members counts.
    fn ceiling(&self) -> u32 {
        self.ceilings.keys().next().copied().unwrap_or(0)
    }

    /// How much more is used than there is.
    fn excess(&self) -> u32 {
        u32::try_from(self.used.saturating_sub(self.ceiling().into())).unwrap_or(u32::MAX)
    }

    fn waiting(&self) -> Waiting {
        let mut queue = self.queue.values();
        match (queue.next(), queue.next()) {
            _ if self.excess() > 0 => Waiting::Several,
            (None, _) => Waiting::Nobody,
            (Some(one), None) => Waiting::One(*one),
            (Some(_), Some(_)) => Waiting::Several,
        }
    }

    fn update(&mut self, member: MemberId, need: &Need, ceiling: u32) {
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

    /// Gives what is free, one seat a turn, and marks those who have something to learn.
    fn share_out(&mut self, news: &mut BTreeSet<MemberId>) {
        let ceiling = self.ceiling();
        while let Some((&place, &member)) = self.queue.first_key_value() {
            let free = u64::from(ceiling).checked_sub(self.used);
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
        let waiting = self.waiting();
        if std::mem::replace(&mut self.marked, waiting) != waiting {
            let told = |member: &&MemberId| self.claims.get(member).is_some_and(|claim| claim.contended);
            let unaware = self.holders.iter().filter(|member| waiting.is_other(**member) && !told(member));
            news.extend(unaware);
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
