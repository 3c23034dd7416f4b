//! The queues against a model: a queue of waiters for each address.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::G;
use crate::profile::QueuedWait;

/// The addresses: few enough that their queues grow and vanish, enough for a tree of some shape.
const ADDRS: std::ops::Range<usize> = 1..13;

#[derive(Clone, Debug)]
enum Op {
    Queue(usize, Order),
    Dequeue(usize),
    /// Any waiter that is queued, at any position.
    Unlink(Index),
}

fn op() -> impl Strategy<Value = Op> {
    let order = prop_oneof![Just(Order::Fifo), Just(Order::Lifo)];
    prop_oneof![
        3 => (ADDRS, order).prop_map(|(addr, order)| Op::Queue(addr, order)),
        1 => ADDRS.prop_map(Op::Dequeue),
        1 => any::<Index>().prop_map(Op::Unlink),
    ]
}

/// The expected queues. A waiter is represented by its index among the sudogs.
type Lines = BTreeMap<usize, VecDeque<usize>>;

fn sudog(addr: usize) -> Sudog {
    Sudog::new(G::current(), addr, QueuedWait::for_other())
}

fn is(link: SudogPtr, sudog: &Sudog) -> bool {
    std::ptr::eq::<Sudog>(&*link, sudog)
}

/// The internal structure of a queue.
trait Inspect: BucketQueue {
    /// Checks the invariants of the queue's links, and returns the waiters, queue by queue in the order of addresses.
    fn inspect(&self) -> Vec<(usize, Vec<SudogPtr>)>;
}

impl Inspect for OneLevelList {
    fn inspect(&self) -> Vec<(usize, Vec<SudogPtr>)> {
        let mut lines = BTreeMap::<usize, Vec<_>>::new();
        let (mut at, mut before) = (self.head, None);
        while let Some(s) = at {
            assert_eq!(s.prev.get(), before, "back and forth");
            lines.entry(s.addr).or_default().push(s);
            (at, before) = (s.next.get(), at);
        }
        assert_eq!(self.tail, before);
        lines.into_iter().collect()
    }
}

impl Inspect for TwoLevelList {
    fn inspect(&self) -> Vec<(usize, Vec<SudogPtr>)> {
        let mut lines = Vec::new();
        let (mut at, mut before) = (self.first, None);
        while let Some(head) = at {
            assert_eq!(head.child[0].get(), before, "back and forth");
            assert_eq!((head.priority.get(), head.parent.get()), (1, None));
            lines.push((head.addr, ring(head)));
            (at, before) = (head.child[1].get(), at);
        }
        assert_eq!(self.last, before);
        lines.sort_by_key(|&(addr, _)| addr);
        lines
    }
}

impl Inspect for Treap {
    fn inspect(&self) -> Vec<(usize, Vec<SudogPtr>)> {
        let mut lines = Vec::new();
        walk(self.root, None, &mut |head| lines.push((head.addr, ring(head))));
        assert!(lines.is_sorted_by_key(|&(addr, _)| addr), "a search tree");
        lines
    }
}

impl Inspect for RotatingTreap {
    fn inspect(&self) -> Vec<(usize, Vec<SudogPtr>)> {
        self.tree.inspect()
    }
}

/// Visits the nodes in the order of the tree, checks the invariants between neighbours, and returns the depth of the
/// tree.
fn walk(at: Link, parent: Link, visit: &mut impl FnMut(SudogPtr)) -> usize {
    let Some(node) = at else { return 0 };
    assert_eq!(node.parent.get(), parent, "a child's parent");
    assert_ne!(node.priority.get(), 0, "a node's priority");
    assert!(parent.is_none_or(|p| p.priority.get() <= node.priority.get()), "the smallest priority is on top");
    let left = walk(node.child[0].get(), at, visit);
    visit(node);
    1 + left.max(walk(node.child[1].get(), at, visit))
}

/// The sudogs of a ring, which must be closed, and whose head is its only node.
fn ring(head: SudogPtr) -> Vec<SudogPtr> {
    let mut line = vec![head];
    loop {
        let last = line[line.len() - 1];
        let next = last.next.get().expect("a ring");
        assert_eq!(next.prev.get(), Some(last), "{}: back and forth, place {}", head.addr, line.len());
        if next == head {
            return line;
        }
        let node = (next.priority.get(), next.parent.get(), next.child[0].get(), next.child[1].get());
        assert_eq!(node, (0, None, None, None), "{}: a node in place {}", head.addr, line.len());
        line.push(next);
    }
}

/// Checks all properties of a queue.
fn check(queue: &impl Inspect, sudogs: &[Sudog], lines: &Lines) {
    let got = queue.inspect();
    assert!(got.iter().map(|(addr, _)| addr).eq(lines.keys()), "one line for each address");
    let mut queued = vec![false; sudogs.len()];
    for ((addr, got), line) in got.iter().zip(lines.values()) {
        assert_eq!(got.len(), line.len(), "the line of {addr}");
        for (place, (s, &waiter)) in got.iter().zip(line).enumerate() {
            assert!(is(*s, &sudogs[waiter]), "{addr}: not {waiter} in place {place} of {line:?}");
            assert_eq!((s.addr, s.outcome.get()), (*addr, WaitOutcome::Queued));
            queued[waiter] = true;
        }
    }
    for addr in ADDRS {
        assert_eq!(queue.len(addr), lines.get(&addr).map_or(0, VecDeque::len), "the length of {addr}'s line");
    }
    for (waiter, s) in sudogs.iter().enumerate().filter(|(waiter, _)| !queued[*waiter]) {
        let links = [s.next.get(), s.prev.get(), s.parent.get(), s.child[0].get(), s.child[1].get()];
        assert_eq!((links, s.priority.get()), ([None; 5], 0), "{waiter} is out, and linked");
        assert_ne!(s.outcome.get(), WaitOutcome::Queued, "{waiter}");
    }
}

fn is_a_line_for_each_address<Q: Inspect>(ops: Vec<Op>) {
    let addr_of = |op: &Op| if let Op::Queue(addr, _) = op { Some(*addr) } else { None };
    let sudogs: Vec<_> = ops.iter().filter_map(addr_of).map(sudog).collect();
    let (mut queue, mut lines, mut fresh) = (Q::EMPTY, Lines::new(), 0..sudogs.len());
    for op in ops {
        match op {
            Op::Queue(addr, order) => {
                let waiter = fresh.next().expect("one for each of these");
                // SAFETY: the sudog is queued for the first time; the vector does not change; and only the queue
                // accesses the links. The queue is dropped first and does not access its sudogs then.
                unsafe { queue.queue(&sudogs[waiter], order) };
                let line = lines.entry(addr).or_default();
                if order == Order::Fifo { line.push_back(waiter) } else { line.push_front(waiter) }
            }
            Op::Dequeue(addr) => {
                let first = lines.get_mut(&addr).and_then(VecDeque::pop_front);
                let got = queue.dequeue(addr, WaitOutcome::Granted);
                assert_eq!(got.is_some(), first.is_some());
                if let (Some(got), Some(first)) = (got, first) {
                    assert!(is(got, &sudogs[first]), "not {first}, the first of {addr}");
                    assert_eq!(got.outcome.get(), WaitOutcome::Granted);
                }
            }
            Op::Unlink(which) => {
                let queued: Vec<_> = lines.values().flatten().copied().collect();
                if !queued.is_empty() {
                    let waiter = *which.get(&queued);
                    // SAFETY: the sudog is alive and does not move, and this thread is the only thread; the sudog is
                    // queued, as the model says.
                    unsafe { queue.unlink(sudogs[waiter].as_queued(), WaitOutcome::Cancelled) };
                    assert_eq!(sudogs[waiter].outcome.get(), WaitOutcome::Cancelled);
                    lines.values_mut().for_each(|line| line.retain(|&other| other != waiter));
                }
            }
        }
        lines.retain(|_, line| !line.is_empty());
        check(&queue, &sudogs, &lines);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_one_level_list_is_a_line_for_each_address(ops in prop::collection::vec(op(), 0..150)) {
        is_a_line_for_each_address::<OneLevelList>(ops);
    }

    #[test]
    fn a_two_level_list_is_a_line_for_each_address(ops in prop::collection::vec(op(), 0..150)) {
        is_a_line_for_each_address::<TwoLevelList>(ops);
    }

    #[test]
    fn a_treap_is_a_line_for_each_address(ops in prop::collection::vec(op(), 0..150)) {
        is_a_line_for_each_address::<Treap>(ops);
    }

    #[test]
    fn a_rotating_treap_is_a_line_for_each_address(ops in prop::collection::vec(op(), 0..150)) {
        is_a_line_for_each_address::<RotatingTreap>(ops);
    }
}

#[test]
fn ascending_addresses_make_no_list_of_a_treap() {
    ten_thousand_ascending_addresses_make_no_list::<Treap>(|treap| treap.root);
    ten_thousand_ascending_addresses_make_no_list::<RotatingTreap>(|treap| treap.tree.root);
}

/// Inserts in the worst order for a tree without balancing. A random tree does not reach a depth of 64: the mean is
/// near 30.
fn ten_thousand_ascending_addresses_make_no_list<Q: BucketQueue>(root: fn(&Q) -> Link) {
    const N: usize = 10_000;
    const DEPTH: usize = 64;
    let sudogs: Vec<_> = (0..N).map(|i| sudog(8 * i)).collect();
    let mut treap = Q::EMPTY;
    for sudog in &sudogs {
        // SAFETY: the sudog is queued for the first time; the vector does not change; and only the queue accesses the
        // links.
        unsafe { treap.queue(sudog, Order::Fifo) };
    }
    let mut nodes = 0;
    let depth = walk(root(&treap), None, &mut |_| nodes += 1);
    assert_eq!(nodes, N);
    assert!(depth < DEPTH, "depth {depth}");

    for sudog in sudogs.iter().step_by(2) {
        assert!(treap.dequeue(sudog.addr, WaitOutcome::Idle).is_some_and(|s| is(s, sudog)));
    }
    let depth = walk(root(&treap), None, &mut |_| nodes -= 1);
    assert_eq!(nodes, N / 2);
    assert!(depth < DEPTH, "depth {depth} after removals");
}
