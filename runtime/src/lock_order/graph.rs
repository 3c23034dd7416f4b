//! The order of locks as a graph: an edge leads from a lock to another one that has been wanted while the first was
//! held. The graph has no cycle, because an edge that would close a cycle is not added.
//!
//! Source: abseil's `GraphCycles`, and Linux's lockdep, for the idea. The search is a plain depth-first search, as each
//! edge is added once.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

/// The greatest number of edges. At this number the graph forgets the oldest locks.
const MAX_EDGES: usize = 1 << 16;

/// The circumstances in which a lock was first wanted while another was held.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// The call that took the held lock.
    pub(super) held_at: &'static Location<'static>,
    /// The call that wanted the other lock.
    pub(super) wanted_at: &'static Location<'static>,
    /// The goroutine or thread.
    pub(super) by: String,
}

/// An edge of a path: the held lock, the wanted lock, and the circumstances.
pub(super) type Step = (u64, u64, Edge);

#[derive(Default)]
struct Node {
    /// The locks that come after this lock.
    after: BTreeMap<u64, Edge>,
    /// The locks that this lock comes after.
    before: BTreeSet<u64>,
}

pub(super) struct Graph {
    nodes: BTreeMap<u64, Node>,
    /// Number of edges.
    edges: usize,
    max_edges: usize,
}

impl Graph {
    pub(super) const fn new() -> Self {
        Self::with_room_for(MAX_EDGES)
    }

    const fn with_room_for(max_edges: usize) -> Self {
        Self { nodes: BTreeMap::new(), edges: 0, max_edges }
    }

    /// Adds the edge from `held` to `wanted`, unless the edge is there. Returns the path from `wanted` to `held`, and
    /// does not add the edge, if there is such a path.
    pub(super) fn add(&mut self, held: u64, wanted: u64, edge: impl FnOnce() -> Edge) -> Option<Vec<Step>> {
        if self.nodes.get(&held).is_some_and(|node| node.after.contains_key(&wanted)) {
            return None;
        }
        let path = self.path(wanted, held);
        if path.is_some() {
            return path;
        }
        while self.edges >= self.max_edges
            && let Some(&oldest) = self.nodes.keys().find(|&&lock| lock != held && lock != wanted)
        {
            self.forget(oldest);
        }
        self.nodes.entry(held).or_default().after.insert(wanted, edge());
        self.nodes.entry(wanted).or_default().before.insert(held);
        self.edges += 1;
        None
    }

    /// Returns a path from a lock to another one.
    fn path(&self, from: u64, to: u64) -> Option<Vec<Step>> {
        // The lock from which each lock was reached.
        let mut reached = BTreeMap::from([(from, from)]);
        let mut next = vec![from];
        while let Some(lock) = next.pop() {
            if lock == to {
                let mut path = Vec::new();
                let mut at = to;
                while at != from {
                    let before = reached[&at];
                    path.push((before, at, self.nodes[&before].after[&at].clone()));
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for &after in self.nodes.get(&lock).into_iter().flat_map(|node| node.after.keys()) {
                reached.entry(after).or_insert_with(|| {
                    next.push(after);
                    lock
                });
            }
        }
        None
    }

    /// Removes a lock, with its edges.
    pub(super) fn forget(&mut self, lock: u64) {
        let Some(node) = self.nodes.remove(&lock) else { return };
        self.edges -= node.after.len() + node.before.len();
        for after in node.after.keys() {
            self.change(*after, |node| _ = node.before.remove(&lock));
        }
        for before in &node.before {
            self.change(*before, |node| _ = node.after.remove(&lock));
        }
    }

    /// Changes a node, and removes the node if no edge is left.
    fn change(&mut self, lock: u64, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&lock) {
            change(node);
            if node.after.is_empty() && node.before.is_empty() {
                self.nodes.remove(&lock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge() -> Edge {
        Edge { held_at: Location::caller(), wanted_at: Location::caller(), by: String::new() }
    }

    fn add(graph: &mut Graph, held: u64, wanted: u64) -> Option<Vec<(u64, u64)>> {
        graph.add(held, wanted, edge).map(|path| path.into_iter().map(|(held, wanted, _)| (held, wanted)).collect())
    }

    #[test]
    fn an_edge_that_closes_a_cycle_is_not_added() {
        let mut graph = Graph::new();
        assert_eq!(add(&mut graph, 1, 2), None);
        assert_eq!(add(&mut graph, 2, 1), Some(vec![(1, 2)]));
        assert_eq!(add(&mut graph, 2, 1), Some(vec![(1, 2)]));
        assert_eq!(add(&mut graph, 1, 2), None);
        // Two ways lead from 1 to 4, and none from 4 to 3.
        for (held, wanted) in [(2, 4), (1, 3), (5, 4)] {
            assert_eq!(add(&mut graph, held, wanted), None);
        }
        assert_eq!(add(&mut graph, 4, 1), Some(vec![(1, 2), (2, 4)]));
        assert_eq!(add(&mut graph, 4, 3), None);
        assert_eq!(add(&mut graph, 3, 5), Some(vec![(5, 4), (4, 3)]));
        assert_eq!(graph.edges, 5);
    }

    #[test]
    fn a_forgotten_lock_has_no_past() {
        let mut graph = Graph::new();
        for (held, wanted) in [(1, 2), (2, 3)] {
            assert_eq!(add(&mut graph, held, wanted), None);
        }
        graph.forget(2);
        assert!(graph.nodes.is_empty());
        assert_eq!(graph.edges, 0);
        for (held, wanted) in [(3, 2), (2, 1), (3, 1)] {
            assert_eq!(add(&mut graph, held, wanted), None);
        }
        graph.forget(4);
        assert_eq!(graph.edges, 3);
    }

    #[test]
    fn a_full_graph_forgets_the_oldest_locks() {
        let mut graph = Graph::with_room_for(3);
        for lock in 1..100 {
            assert_eq!(add(&mut graph, lock, lock + 1), None);
            assert!(graph.edges <= 3 && graph.nodes.len() <= 6);
        }
        assert_eq!(add(&mut graph, 100, 98), Some(vec![(98, 99), (99, 100)]));
        assert_eq!(add(&mut graph, 100, 1), None, "1 has been forgotten");
    }
}
