//! The host's table of calls: the truth that survives any component.
//!
//! Every call that was admitted and has not finished, and every call that waits, is here under the id the host minted for it.
//! A component can be thrown away at any moment and its successor told all of it. Nothing is believed that does not fit the
//! table: a decision for a call that is not waiting is dropped, so each wait ends once, and never after its call has finished.
//!
//! # Spawns
//!
//! A finished spawn is still news for a successor: its child may be on its way and has its place. It stays until the child's
//! first call has come, or until `spawnGraceMs` after the tool call ended, however it ended. A spawn whose child has come is
//! remembered only to pass on its `finish`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::bindings::exports::dsh::plugin::lifecycle::{LiveCall, RestoredCall, SpawnEnd, WaitingCall};
use crate::{CallId, Instant, Outcome};

pub(crate) struct Table {
    next: CallId,
    calls: BTreeMap<CallId, Entry>,
    /// Those of them that wait, and since when.
    waiting: BTreeSet<(Instant, CallId)>,
    /// Live calls whose `finish` has not come.
    live: usize,
    /// Spawns a successor would have to be told about.
    spawns: usize,
    /// Finished spawns in the order of their ending.
    ended: VecDeque<(Instant, CallId)>,
}

struct Entry {
    call: RestoredCall,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting {
        since: Instant,
        seniority: u64,
    },
    Live {
        since: Instant,
    },
    /// A spawn whose child has called, while its tool call goes on.
    Parent,
    /// A spawn whose tool call has returned and whose child has not called.
    Ended {
        since: Instant,
        at: Instant,
        completed: bool,
    },
}

/// Which hook a call came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Stream,
    Tool,
}

impl Hook {
    pub(crate) fn of(call: &RestoredCall) -> Self {
        match call {
            RestoredCall::Model(_) => Self::Stream,
            RestoredCall::Tool(_) => Self::Tool,
        }
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            next: 1,
            calls: BTreeMap::new(),
            waiting: BTreeSet::new(),
            live: 0,
            spawns: 0,
            ended: VecDeque::new(),
        }
    }

    pub(crate) fn mint(&mut self) -> CallId {
        let id = self.next;
        self.next += 1;
        id
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The call that has waited longest, since when, and its hook.
    pub(crate) fn waiting_longest(&self) -> Option<(CallId, Instant, Hook)> {
        let &(since, id) = self.waiting.first()?;
        Some((id, since, Hook::of(&self.calls.get(&id)?.call)))
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// How many calls a successor would have to be told about.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether the passing of time or the end of a call can change anything in the component.
    pub(crate) fn is_calm(&self) -> bool {
        self.waiting.is_empty() && self.spawns == 0
    }

    pub(crate) fn admit(&mut self, id: CallId, call: RestoredCall, now: Instant) {
        self.live += 1;
        self.spawns += usize::from(Hook::of(&call) == Hook::Tool);
        self.calls.insert(id, Entry { call, stage: Stage::Live { since: now } });
    }

    pub(crate) fn enqueue(&mut self, id: CallId, call: RestoredCall, seniority: u64, now: Instant) {
        self.waiting.insert((now, id));
        self.calls.insert(id, Entry { call, stage: Stage::Waiting { since: now, seniority } });
    }

    /// The first call of a spawn's child has come.
    pub(crate) fn child_came(&mut self, spawn: CallId) {
        let Some(entry) = self.calls.get_mut(&spawn) else { return };
        if Hook::of(&entry.call) != Hook::Tool {
            return;
        }
        match entry.stage {
            Stage::Live { .. } => {
                entry.stage = Stage::Parent;
                self.spawns -= 1;
            }
            Stage::Ended { .. } => {
                self.calls.remove(&spawn);
                self.spawns -= 1;
            }
            Stage::Waiting { .. } | Stage::Parent => {}
        }
    }

    /// A wait ended in the component. Whether anybody was waiting under this id.
    pub(crate) fn settle(&mut self, id: CallId, admitted: bool, now: Instant) -> bool {
        let Some(entry) = self.calls.get_mut(&id) else { return false };
        let Stage::Waiting { since, .. } = entry.stage else { return false };
        self.waiting.remove(&(since, id));
        if admitted {
            entry.stage = Stage::Live { since: now };
            self.live += 1;
            self.spawns += usize::from(Hook::of(&entry.call) == Hook::Tool);
        } else {
            self.calls.remove(&id);
        }
        true
    }

    /// A call ended or was given up. The hook to tell; none if nobody remembers the id.
    pub(crate) fn finish(&mut self, id: CallId, outcome: &Outcome, now: Instant) -> Option<Hook> {
        let done = matches!(outcome, Outcome::Completed);
        let entry = self.calls.get_mut(&id)?;
        let hook = Hook::of(&entry.call);
        match &mut entry.stage {
            &mut Stage::Waiting { since, .. } => {
                self.waiting.remove(&(since, id));
            }
            &mut Stage::Live { since } if hook == Hook::Tool => {
                self.live -= 1;
                entry.stage = Stage::Ended { since, at: now, completed: done };
                self.ended.push_back((now, id));
                return Some(hook);
            }
            Stage::Live { .. } | Stage::Parent => self.live -= 1,
            // A repetition; it may say of a returned tool call that it failed after all.
            Stage::Ended { completed, .. } => {
                *completed = *completed && done;
                return Some(hook);
            }
        }
        self.calls.remove(&id);
        Some(hook)
    }

    /// Forgets the spawns nobody can ask about any more.
    pub(crate) fn forget_ended(&mut self, now: Instant, grace_ms: u64) {
        while let Some(&(at, id)) = self.ended.front() {
            if at.saturating_add(grace_ms) > now {
                return;
            }
            self.ended.pop_front();
            if self.calls.get(&id).is_some_and(|entry| matches!(entry.stage, Stage::Ended { .. })) {
                self.calls.remove(&id);
                self.spawns -= 1;
            }
        }
    }

    /// Everybody who waits, oldest first.
    pub(crate) fn line(&self) -> Vec<CallId> {
        let mut line: Vec<(u64, CallId)> = self
            .waiting
            .iter()
            .filter_map(|(_, id)| match self.calls.get(id)?.stage {
                Stage::Waiting { seniority, .. } => Some((seniority, *id)),
                _ => None,
            })
            .collect();
        line.sort_unstable();
        line.into_iter().map(|(_, id)| id).collect()
    }

    /// The ids of what runs, as far as a successor has to know it.
    pub(crate) fn running(&self) -> Vec<CallId> {
        self.calls
            .iter()
            .filter(|(_, entry)| matches!(entry.stage, Stage::Live { .. } | Stage::Ended { .. }))
            .map(|(&id, _)| id)
            .collect()
    }

    /// A call that runs or waits, as it was brought.
    pub(crate) fn call(&self, id: CallId) -> Option<&RestoredCall> {
        let entry = self.calls.get(&id)?;
        matches!(entry.stage, Stage::Live { .. } | Stage::Waiting { .. }).then_some(&entry.call)
    }

    /// Every call that runs or waits, and since when.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (CallId, &RestoredCall, Instant)> {
        self.calls.iter().filter_map(|(&id, Entry { call, stage })| match stage {
            Stage::Live { since } | Stage::Waiting { since, .. } => Some((id, call, *since)),
            Stage::Parent | Stage::Ended { .. } => None,
        })
    }

    /// A running call as a successor is told of it; none if it has ended meanwhile.
    pub(crate) fn live_call(&self, id: CallId) -> Option<LiveCall> {
        let entry = self.calls.get(&id)?;
        let (since, ended) = match entry.stage {
            Stage::Live { since } => (since, None),
            Stage::Ended { since, at, completed } => (since, Some(SpawnEnd { at, completed })),
            Stage::Waiting { .. } | Stage::Parent => return None,
        };
        Some(LiveCall { id, call: entry.call.clone(), since, ended })
    }

    /// A waiting call as a successor is told of it; none if its wait has ended meanwhile.
    pub(crate) fn waiting_call(&self, id: CallId) -> Option<WaitingCall> {
        let entry = self.calls.get(&id)?;
        let Stage::Waiting { since, seniority } = entry.stage else { return None };
        Some(WaitingCall { id, call: entry.call.clone(), since, seniority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Route, StreamCall, ToolCall};

    const GRACE: u64 = 10_000;

    fn spawn() -> RestoredCall {
        let route = Some(Route { provider: "p".into(), model: "m".into() });
        RestoredCall::Tool(ToolCall { tool: "subagent".into(), session: None, route, extra: Vec::new() })
    }

    fn stream() -> RestoredCall {
        RestoredCall::Model(StreamCall {
            route: Route { provider: "p".into(), model: "m".into() },
            session: None,
            root: None,
            parent: None,
            first: false,
            spawn: None,
            purpose: "conversation".into(),
            extra: Vec::new(),
        })
    }

    #[test]
    fn a_finished_call_leaves_nothing() {
        let mut table = Table::new();
        let id = table.mint();
        table.admit(id, stream(), 0);
        assert_eq!(table.finish(id, &Outcome::Completed, 1), Some(Hook::Stream));
        assert_eq!(table.finish(id, &Outcome::Completed, 1), None);
        assert_eq!((table.len(), table.live(), table.is_calm()), (0, 0, true));
    }

    #[test]
    fn a_wait_ends_once_and_never_after_its_call_has_finished() {
        let mut table = Table::new();
        let (a, b) = (table.mint(), table.mint());
        table.enqueue(a, stream(), a, 0);
        table.enqueue(b, stream(), b, 0);
        assert!(table.settle(a, true, 1));
        assert!(!table.settle(a, true, 1));
        table.finish(b, &Outcome::Cancelled, 1);
        assert!(!table.settle(b, true, 1));
        assert_eq!((table.len(), table.waiting(), table.live()), (1, 0, 1));
    }

    #[test]
    fn a_returned_spawn_is_kept_for_the_grace_after_its_end() {
        let mut table = Table::new();
        let id = table.mint();
        table.admit(id, spawn(), 0);
        table.finish(id, &Outcome::Completed, 50_000);
        table.forget_ended(50_000 + GRACE - 1, GRACE);
        assert_eq!(
            table.live_call(id).map(|call| (call.since, call.ended.map(|end| end.at))),
            Some((0, Some(50_000)))
        );
        assert_eq!(table.live(), 0);
        table.forget_ended(50_000 + GRACE, GRACE);
        assert!(table.live_call(id).is_none());
        assert_eq!((table.len(), table.is_calm()), (0, true));
    }

    #[test]
    fn a_childs_first_call_ends_the_keeping_of_its_spawn() {
        let mut table = Table::new();
        let (running, returned) = (table.mint(), table.mint());
        for id in [running, returned] {
            table.admit(id, spawn(), 0);
        }
        table.finish(returned, &Outcome::Completed, 1);
        table.child_came(running);
        table.child_came(returned);
        assert!(table.running().is_empty());
        assert!(table.is_calm());
        assert_eq!(
            table.finish(running, &Outcome::Completed, 2),
            Some(Hook::Tool),
            "its end is still passed on"
        );
        assert_eq!((table.len(), table.live()), (0, 0));
    }

    #[test]
    fn the_line_is_in_order_of_seniority() {
        let mut table = Table::new();
        for seniority in [9, 3, 7] {
            let id = table.mint();
            table.enqueue(id, stream(), seniority, 0);
        }
        assert_eq!(table.line(), [2, 3, 1]);
    }

    #[test]
    fn who_has_waited_longest_is_not_always_who_was_minted_first() {
        let mut table = Table::new();
        let (elsewhere, here) = (table.mint(), table.mint());
        table.enqueue(here, stream(), here, 10);
        table.enqueue(elsewhere, stream(), elsewhere, 20);
        assert_eq!(table.waiting_longest(), Some((here, 10, Hook::Stream)));
    }

    #[test]
    fn who_has_waited_longest_is_known_whoever_leaves() {
        let mut table = Table::new();
        let [a, b, c] = [10, 20, 30].map(|since| {
            let id = table.mint();
            table.enqueue(id, stream(), 100 - id, since);
            id
        });
        assert_eq!(table.waiting_longest(), Some((a, 10, Hook::Stream)));
        table.finish(a, &Outcome::Cancelled, 40);
        assert_eq!(table.waiting_longest(), Some((b, 20, Hook::Stream)));
        table.settle(b, true, 40);
        assert_eq!(table.waiting_longest(), Some((c, 30, Hook::Stream)));
        table.settle(c, false, 40);
        assert_eq!((table.waiting_longest(), table.waiting()), (None, 0));
    }
}
