//! Every list, offer and candidate against its definition.

use std::collections::{BTreeMap, BTreeSet};

use slab::Slab;

use super::{KINDS, Kind, LineIx, NodeIx, Queue, ROOT, Rank};
use crate::scope::{Scope, ScopeIx};

/// What a line is defined to be: its kind, the scopes its waiters need, and they.
pub(crate) type Expected = (Kind, Vec<ScopeIx>, BTreeSet<Rank>);

impl Queue {
    /// Panics where something differs from what it is defined to be for these lines.
    pub fn audit(&self, scopes: &Slab<Scope>, expected: &BTreeMap<LineIx, Expected>) {
        assert!(self.dirty.is_empty(), "something was not looked at");
        let lines = self
            .lines
            .iter()
            .map(|(ix, line)| (ix, (line.kind, self.path(line.node), line.waiters.iter().collect())));
        assert_eq!(&lines.collect::<BTreeMap<_, _>>(), expected, "lines");
        for (_, line) in &self.lines {
            assert!(line.waiters.iter().is_sorted(), "the first of a line is its oldest");
        }

        for (ix, node) in &self.nodes {
            let path = self.path(ix);
            let is_used = !node.children.is_empty() || node.heads.iter().any(|heads| !heads.is_empty());
            assert!(ix == ROOT || is_used, "nobody waits at {path:?}");
            assert_eq!(
                node.paused,
                path.iter().any(|&scope| scopes[scope].max == Some(0)),
                "paused {path:?}"
            );
            let children = self.nodes.iter().filter(|(child, node)| *child != ROOT && node.parent == ix);
            let children: Vec<(ScopeIx, NodeIx)> =
                children.map(|(child, node)| (node.scope.unwrap_or(usize::MAX), child)).collect();
            assert_eq!(node.children, children.iter().copied().collect(), "children of {path:?}");
            for kind in KINDS {
                let k = kind as usize;
                let lines = self.lines.iter().filter(|(_, line)| line.node == ix && line.kind == kind);
                let heads: BTreeMap<Rank, LineIx> =
                    lines.filter_map(|(ix, line)| Some((line.waiters.first?, ix))).collect();
                assert_eq!(node.heads[k], heads, "heads at {path:?}");
                let offers = children.iter().filter_map(|&(_, at)| Some((self.nodes[at].offered[k]?, at)));
                assert_eq!(node.offers[k], offers.collect(), "offers to {path:?}");
                let Some(scope) = node.scope else { continue };
                let oldest = node.oldest(kind);
                let candidate = oldest.filter(|_| !node.paused);
                assert_eq!(node.candidate[k], candidate, "candidate of {path:?}");
                let has_room = |&rank: &Rank| scopes[scope].has_room(kind, rank, self.max_overtakes);
                assert_eq!(node.offered[k], oldest.filter(has_room), "what {path:?} offers");
            }
            assert!(ix == ROOT || !node.is_empty(), "nobody needs {path:?}");
        }
        for (ix, scope) in scopes {
            let nodes: Vec<NodeIx> =
                self.nodes.iter().filter(|(_, node)| node.scope == Some(ix)).map(|(ix, _)| ix).collect();
            assert_eq!(scope.nodes, nodes.iter().copied().collect(), "nodes of {}", scope.key);
            for kind in KINDS {
                let k = kind as usize;
                let candidates = nodes.iter().filter_map(|&at| Some((self.nodes[at].candidate[k]?, at)));
                assert_eq!(scope.candidates[k], candidates.collect(), "candidates for {}", scope.key);
            }
        }
    }

    /// The list of scopes that a node stands for.
    fn path(&self, node: NodeIx) -> Vec<ScopeIx> {
        let up = std::iter::successors(Some(node), |&at| Some(self.nodes[at].parent));
        up.map_while(|at| self.nodes[at].scope).collect()
    }
}
