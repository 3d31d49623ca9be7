//! Sessions by name.
//!
//! Names have long beginnings in common, and a component compares them byte by byte; so they are put in the order of their
//! digests. Not into a hash table: who comes when that grows would pay for all who are there, and there is nothing secret in a
//! component that would keep names from meeting in one place. Those that do are told apart by what they are.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::SessionIx;

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    sessions: BTreeMap<(u64, Arc<str>), SessionIx>,
    /// Comes before every other name.
    first: Arc<str>,
}

impl Names {
    pub fn get(&self, name: &str) -> Option<SessionIx> {
        let digest = digest(name);
        let mut alike =
            self.sessions.range((digest, self.first.clone())..).take_while(|((d, _), _)| *d == digest);
        alike.find(|((_, other), _)| **other == *name).map(|(_, &ix)| ix)
    }

    pub fn insert(&mut self, name: Arc<str>, ix: SessionIx) {
        self.sessions.insert((digest(&name), name), ix);
    }

    pub fn remove(&mut self, name: Arc<str>) {
        self.sessions.remove(&(digest(&name), name));
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.sessions.keys().map(|(_, name)| name.as_ref())
    }
}

fn digest(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
