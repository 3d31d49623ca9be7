//! The line: finds the oldest waiter that fits without looking at those that do not.
//!
//! Every waiter *needs* a list of scopes, in the one order of scopes. There is a node for each list in use and for each
//! of its suffixes; a node's parent is its list without the first scope, so the tree's root is the empty list. A node
//! orders, by seniority, the heads of the lines that need exactly its list, and what its children offer. It offers its
//! own oldest upwards if and only if its first scope has room for it. What has arrived at the root has room everywhere,
//! so the root's oldest is the next to be admitted.
//!
//! Two facts make that right. Room is monotone: where a waiter has room, an older one of its kind has, so only the
//! oldest of each kind has to be offered. And a node holds exactly the waiters that could take a seat in every scope
//! before its first one, which is the condition for a seat to be *kept* for somebody (see [`Scope::kept_for`]).
//!
//! A change touches the nodes that begin with the changed scope and their ancestors, at most one per scope of a list:
//! O(log n) in waiters, independent of how many rows, routes and blocked waiters there are.

#[cfg(feature = "audit")]
mod audit;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use slab::Slab;

use crate::call::{CallId, Seniority};
use crate::scope::{CountBy, Scope, ScopeIx, ScopeOrder};

pub(crate) type NodeIx = usize;
pub(crate) type LineIx = usize;

/// The order of waiters. Seniority first; a child may share its spawn's, a head start may tie: then the id decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub seniority: Seniority,
    pub id: CallId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Stream = 0,
    Spawn = 1,
}

const KINDS: [Kind; 2] = [Kind::Stream, Kind::Spawn];
const ROOT: NodeIx = 0;

/// Waiters that always need the same scopes: the calls of one session, or the spawns, for one route.
#[derive(Clone, Debug)]
struct Line {
    kind: Kind,
    waiters: Waiters,
    node: NodeIx,
}

/// Waiters in order. Hardly any line has more than one, so the oldest needs no place in memory of its own.
#[derive(Clone, Debug, Default)]
struct Waiters {
    first: Option<Rank>,
    /// All younger than the first.
    others: BTreeSet<Rank>,
}

impl Waiters {
    fn insert(&mut self, mut rank: Rank) {
        match &mut self.first {
            None => self.first = Some(rank),
            Some(first) => {
                if rank < *first {
                    std::mem::swap(first, &mut rank);
                }
                self.others.insert(rank);
            }
        }
    }

    fn remove(&mut self, rank: Rank) {
        if self.first == Some(rank) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(&rank);
        }
    }

    fn iter(&self) -> impl Iterator<Item = Rank> {
        self.first.into_iter().chain(self.others.iter().copied())
    }
}

#[derive(Clone, Debug)]
struct Node {
    /// The first scope of the list; the root has none.
    scope: Option<ScopeIx>,
    parent: NodeIx,
    children: BTreeMap<ScopeIx, NodeIx>,
    /// Some scope of the list has a `max` of 0, so no seat is kept for anybody here.
    paused: bool,
    /// Per kind: the oldest of each line that needs exactly this list.
    heads: [BTreeMap<Rank, LineIx>; 2],
    /// Per kind: what children offer, and which: a line that moves is for a moment offered by two.
    offers: [BTreeSet<(Rank, NodeIx)>; 2],
    /// What the parent holds of this node.
    offered: [Option<Rank>; 2],
    /// What the scope's `candidates` hold of this node.
    candidate: [Option<Rank>; 2],
}

impl Node {
    fn new(scope: Option<ScopeIx>, parent: NodeIx, paused: bool) -> Self {
        Self {
            scope,
            parent,
            children: BTreeMap::new(),
            paused,
            heads: Default::default(),
            offers: Default::default(),
            offered: [None; 2],
            candidate: [None; 2],
        }
    }

    fn oldest(&self, kind: Kind) -> Option<Rank> {
        let head = self.heads[kind as usize].keys().next();
        let offer = self.offers[kind as usize].first().map(|(rank, _)| rank);
        head.into_iter().chain(offer).min().copied()
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty()
            && self.heads.iter().all(BTreeMap::is_empty)
            && self.offers.iter().all(BTreeSet::is_empty)
    }
}

/// All lines and the tree over them.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    nodes: Slab<Node>,
    lines: Slab<Line>,
    /// Nodes whose offers may be out of date, earliest scope first, so that each is looked at once per change; some twice.
    dirty: BinaryHeap<Reverse<(ScopeOrder, NodeIx)>>,
    pub max_overtakes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        let mut nodes = Slab::new();
        let root = nodes.insert(Node::new(None, ROOT, false));
        debug_assert_eq!(root, ROOT);
        Self { nodes, lines: Slab::new(), dirty: BinaryHeap::new(), max_overtakes: 0 }
    }
}

impl Queue {
    /// Everybody leaves; the rules stay.
    pub fn clear(&mut self) {
        *self = Self { max_overtakes: self.max_overtakes, ..Self::default() };
    }

    /// A new, empty line whose waiters need these scopes.
    pub fn open(&mut self, kind: Kind, needs: &[ScopeIx], scopes: &mut Slab<Scope>) -> LineIx {
        let node = self.node(needs, scopes);
        self.lines.insert(Line { kind, waiters: Waiters::default(), node })
    }

    /// A waiter joins a line at its place.
    pub fn join(&mut self, line: LineIx, rank: Rank, scopes: &Slab<Scope>) {
        self.change(line, scopes, |waiters| {
            waiters.insert(rank);
        });
    }

    /// A waiter leaves a line from any place; `true` if the line is gone with it.
    pub fn leave(&mut self, line: LineIx, rank: Rank, scopes: &Slab<Scope>) -> bool {
        self.change(line, scopes, |waiters| {
            waiters.remove(rank);
        });
        let empty = self.lines[line].waiters.first.is_none();
        if empty {
            self.lines.remove(line);
        }
        empty
    }

    /// The waiters of a line now need these scopes.
    pub fn place(&mut self, line: LineIx, needs: &[ScopeIx], scopes: &mut Slab<Scope>) {
        let to = self.node(needs, scopes);
        let Line { kind, ref waiters, ref mut node } = self.lines[line];
        if to == *node {
            return;
        }
        let from = std::mem::replace(node, to);
        if let Some(head) = waiters.first {
            self.nodes[from].heads[kind as usize].remove(&head);
            self.nodes[to].heads[kind as usize].insert(head, line);
        }
        self.mark(from, scopes);
        self.mark(to, scopes);
    }

    /// The limit, occupancy, credits or capacity of a scope changed.
    pub fn touch(&mut self, scope: &Scope) {
        self.dirty.extend(scope.nodes.iter().map(|&node| Reverse((scope.order.clone(), node))));
    }

    /// Brings all offers up to date.
    pub fn flush(&mut self, scopes: &mut Slab<Scope>) {
        while let Some(next) = self.dirty.pop() {
            if self.dirty.peek() != Some(&next) {
                self.refresh(next.0.1, scopes);
            }
        }
    }

    /// The oldest waiter that fits. Only right after [`Queue::flush`].
    pub fn oldest(&self) -> Option<CallId> {
        debug_assert!(self.dirty.is_empty(), "asked for the oldest before a flush");
        KINDS.iter().filter_map(|&kind| self.nodes[ROOT].oldest(kind)).min().map(|rank| rank.id)
    }

    /// Waiters of a line, oldest first.
    pub fn waiters(&self, line: LineIx) -> impl Iterator<Item = Rank> {
        self.lines[line].waiters.iter()
    }

    /// Visits those who need `scope` and could take a seat in every needed scope before it: of each session its oldest
    /// or, where every call is counted, all; each list oldest first. `visit` answers whether to go on with this list and kind.
    pub fn claimants(&self, scope: ScopeIx, scopes: &Slab<Scope>, visit: &mut impl FnMut(&Claimant) -> bool) {
        for &node in &scopes[scope].nodes {
            let mut after = Vec::new();
            let mut up = self.nodes[node].parent;
            while let Some(scope) = self.nodes[up].scope {
                after.push(scope);
                up = self.nodes[up].parent;
            }
            // The calls of a session may share a seat, spawns never do.
            let one_per_session = scopes[scope].count_by == CountBy::Session;
            self.claimants_below(node, one_per_session, &mut Vec::new(), &after, scopes, visit);
        }
    }

    fn claimants_below(
        &self,
        node: NodeIx,
        one_per_session: bool,
        before: &mut Vec<ScopeIx>,
        after: &[ScopeIx],
        scopes: &Slab<Scope>,
        visit: &mut impl FnMut(&Claimant) -> bool,
    ) {
        for kind in KINDS {
            'lines: for (&head, &line) in &self.nodes[node].heads[kind as usize] {
                let take = if kind == Kind::Stream && one_per_session { 1 } else { usize::MAX };
                for rank in self.waiters(line).take(take) {
                    let passes = |scope: &ScopeIx| scopes[*scope].has_room(kind, rank, self.max_overtakes);
                    if !before.iter().all(passes) || !visit(&Claimant { kind, rank, after }) {
                        // Room is monotone: nobody younger of this kind passes either. Spawns of another line may be older.
                        if rank == head {
                            break 'lines;
                        }
                        break;
                    }
                }
            }
        }
        for (&scope, &child) in &self.nodes[node].children {
            if KINDS.iter().any(|&kind| self.nodes[child].offered[kind as usize].is_some()) {
                before.push(scope);
                self.claimants_below(child, one_per_session, before, after, scopes, visit);
                before.pop();
            }
        }
    }

    /// Gives back what a long line needed.
    pub fn shrink(&mut self) {
        self.lines.shrink_to_fit();
        self.nodes.shrink_to_fit();
        self.dirty.shrink_to_fit();
    }

    /// Changes a line and keeps its head, if that changed, in step at its node.
    fn change(&mut self, line: LineIx, scopes: &Slab<Scope>, change: impl FnOnce(&mut Waiters)) {
        let Line { kind, ref mut waiters, node } = self.lines[line];
        let before = waiters.first;
        change(waiters);
        let after = waiters.first;
        if before == after {
            return;
        }
        let heads = &mut self.nodes[node].heads[kind as usize];
        let oldest = heads.first_key_value().map(|(&head, _)| head);
        if let Some(head) = before {
            heads.remove(&head);
        }
        if let Some(head) = after {
            heads.insert(head, line);
        }
        // Who comes or goes behind the oldest of a node changes nothing for anybody.
        if oldest != heads.first_key_value().map(|(&head, _)| head) {
            self.mark(node, scopes);
        }
    }

    /// The node of a list, made with its suffixes if need be.
    fn node(&mut self, needs: &[ScopeIx], scopes: &mut Slab<Scope>) -> NodeIx {
        let mut at = ROOT;
        for &scope in needs.iter().rev() {
            at = if let Some(&child) = self.nodes[at].children.get(&scope) {
                child
            } else {
                let paused = self.nodes[at].paused || scopes[scope].max == Some(0);
                let child = self.nodes.insert(Node::new(Some(scope), at, paused));
                self.nodes[at].children.insert(scope, child);
                scopes[scope].nodes.insert(child);
                // Looked at once, so that it goes away again if nobody stays.
                self.mark(child, scopes);
                child
            };
        }
        at
    }

    fn mark(&mut self, node: NodeIx, scopes: &Slab<Scope>) {
        if let Some(scope) = self.nodes[node].scope {
            self.dirty.push(Reverse((scopes[scope].order.clone(), node)));
        }
    }

    fn refresh(&mut self, ix: NodeIx, scopes: &mut Slab<Scope>) {
        let max_overtakes = self.max_overtakes;
        let node = &mut self.nodes[ix];
        let Some(at) = node.scope else { return };
        let parent = node.parent;
        let scope = &mut scopes[at];

        let kept = KINDS.map(|kind| scope.kept_for(kind));
        for kind in KINDS {
            let oldest = if node.paused { None } else { node.oldest(kind) };
            let candidate = std::mem::replace(&mut node.candidate[kind as usize], oldest);
            if candidate != oldest {
                let candidates = &mut scope.candidates[kind as usize];
                candidate.map(|rank| candidates.remove(&(rank, ix)));
                oldest.map(|rank| candidates.insert((rank, ix)));
            }
        }

        let mut changed = false;
        for kind in KINDS {
            let k = kind as usize;
            let offer = self.nodes[ix].oldest(kind).filter(|&rank| scope.has_room(kind, rank, max_overtakes));
            let offered = std::mem::replace(&mut self.nodes[ix].offered[k], offer);
            if offered != offer {
                let offers = &mut self.nodes[parent].offers[k];
                offered.map(|rank| offers.remove(&(rank, ix)));
                offer.map(|rank| offers.insert((rank, ix)));
                changed = true;
            }
        }

        let kept_changed = kept != KINDS.map(|kind| scope.kept_for(kind));
        if self.nodes[ix].is_empty() {
            scope.nodes.remove(&ix);
            self.nodes.remove(ix);
            self.nodes[parent].children.remove(&at);
            changed = true;
        }
        if changed {
            self.mark(parent, scopes);
        }
        if kept_changed {
            // It is kept for somebody else now: what the scope's other nodes may offer has changed too.
            let scope = &scopes[at];
            let others = scope.nodes.iter().filter(|&&other| other != ix);
            self.dirty.extend(others.map(|&other| Reverse((scope.order.clone(), other))));
        }
    }
}

/// A waiter that could take a seat in every scope it needs before the one asked about.
pub(crate) struct Claimant<'a> {
    pub kind: Kind,
    pub rank: Rank,
    /// The scopes it needs after that one.
    pub after: &'a [ScopeIx],
}
