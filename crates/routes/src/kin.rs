//! Whose child a session is.
//!
//! The limiter knows sessions by their names alone; whose child one is knows the harness. A session keeps its parent, so each
//! that the harness knows is asked about once, and only while it is with the limiter or has a descendant there is it remembered:
//! to be asked again and again for the family of one session costs a look at those who run or wait, and no question. One that
//! the harness does not know (yet) is asked about each time.

use std::collections::{BTreeMap, BTreeSet};

use limiter::Limiter;

use crate::{Host, SessionInfo};

/// How far up ancestors are followed; a harness that names a cycle must not hang us.
const DEPTH: usize = 64;
/// How many sessions are asked about in one question.
const AT_ONCE: usize = 1_000;
/// How many sessions are asked about for one request.
const IN_ALL: usize = 10_000;
/// How many sessions that are gone may be remembered.
const GONE: usize = 1_000;

/// What is known of the parents of sessions.
#[derive(Debug, Default)]
pub struct Kin {
    parents: BTreeMap<String, Option<String>>,
}

/// What can be said of a session.
enum Relation<'a> {
    Member,
    Stranger,
    /// It depends on whose child this one is.
    Unknown(&'a str),
}

impl Kin {
    /// Whether a session is this one or descends from it.
    fn relation<'a>(&'a self, session: &'a str, ancestor: &str) -> Relation<'a> {
        let mut at = session;
        for _ in 0..DEPTH {
            if at == ancestor {
                return Relation::Member;
            }
            match self.parents.get(at) {
                None => return Relation::Unknown(at),
                Some(None) => return Relation::Stranger,
                Some(Some(parent)) => at = parent,
            }
        }
        Relation::Stranger
    }

    fn learn(&mut self, known: Vec<SessionInfo>) {
        self.parents.extend(known.into_iter().map(|info| (info.id, info.parent)));
    }

    /// Forgets those who are gone, if there are many.
    fn forget(&mut self, limiter: &Limiter) {
        let present: BTreeSet<&str> = limiter.sessions().collect();
        if self.parents.len() <= 2 * present.len() + GONE {
            return;
        }
        let mut kept = BTreeMap::new();
        for session in present {
            let mut next = Some(session.to_owned());
            while let Some(at) = next.take()
                && let Some((at, parent)) = self.parents.remove_entry(&at)
            {
                next.clone_from(&parent);
                kept.insert(at, parent);
            }
        }
        self.parents = kept;
    }
}

/// Those with the limiter that are this session or descend from it.
pub struct Family {
    pub sessions: BTreeSet<String>,
    /// Whether all there are could be asked about.
    pub whole: bool,
}

/// Finds the family of a session, and asks about as few as possible. A session that the harness does not know is nobody's
/// child.
pub async fn family(host: &impl Host, ancestor: &str) -> Family {
    let mut asked = BTreeSet::new();
    loop {
        let (sessions, mut unknown) = host.kin(|kin, limiter| {
            let (mut members, mut unknown) = (BTreeSet::new(), BTreeSet::new());
            for session in limiter.sessions() {
                match kin.relation(session, ancestor) {
                    Relation::Member => drop(members.insert(session.to_owned())),
                    Relation::Unknown(missing) if !asked.contains(missing) => drop(unknown.insert(missing)),
                    Relation::Unknown(_) | Relation::Stranger => {}
                }
            }
            (members, unknown.into_iter().map(str::to_owned).collect::<Vec<_>>())
        });
        let left = IN_ALL - asked.len();
        if unknown.is_empty() || left == 0 {
            return Family { sessions, whole: unknown.is_empty() };
        }
        unknown.truncate(left.min(AT_ONCE));
        asked.extend(unknown.iter().cloned());
        let known = host.describe(unknown).await;
        host.kin(|kin, limiter| {
            kin.forget(limiter);
            kin.learn(known);
        });
    }
}
