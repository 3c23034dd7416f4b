//! The treap against a model of it: a line of waiters for each address.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::G;

/// Few enough that lines grow and vanish, enough for a tree of some shape.
const ADDRS: std::ops::Range<usize> = 1..13;

#[derive(Clone, Debug)]
enum Op {
    Queue(usize, Order),
    Dequeue(usize),
    /// Of those that are queued, wherever they stand.
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

/// The lines that the treap should hold. A waiter is its index among the sudogs.
type Lines = BTreeMap<usize, VecDeque<usize>>;

fn sudog(addr: usize) -> Sudog {
    Sudog::new(G::current(), addr)
}

fn is(link: SudogRef, sudog: &Sudog) -> bool {
    std::ptr::eq::<Sudog>(&*link, sudog)
}

/// Visits the nodes in the order of the tree, checks what holds between neighbours in it, and says how deep it is.
fn walk(at: Link, parent: Link, visit: &mut impl FnMut(SudogRef)) -> usize {
    let Some(node) = at else { return 0 };
    assert_eq!(node.parent.get(), parent, "a child's parent");
    assert_ne!(node.priority.get(), 0, "a node's priority");
    assert!(parent.is_none_or(|p| p.priority.get() <= node.priority.get()), "the smallest priority is on top");
    let left = walk(node.child[0].get(), at, visit);
    visit(node);
    1 + left.max(walk(node.child[1].get(), at, visit))
}

/// All that can be said of a treap.
fn check(treap: &Treap, sudogs: &[Sudog], lines: &Lines) {
    let mut heads = Vec::new();
    walk(treap.root, None, &mut |node| heads.push(node));
    // The model's keys ascend and are distinct: so this is the order of a search tree, too.
    assert!(heads.iter().map(|head| head.addr).eq(lines.keys().copied()), "one node for each address, in order");

    let mut queued = vec![false; sudogs.len()];
    for (head, (&addr, line)) in heads.iter().zip(lines) {
        let mut at = *head;
        for (place, &waiter) in line.iter().enumerate() {
            assert!(is(at, &sudogs[waiter]), "{addr}: not {waiter} in place {place} of {line:?}");
            assert_eq!((at.addr, at.fate.get()), (addr, Fate::Queued));
            queued[waiter] = true;
            let next = at.next.get().expect("a ring");
            assert_eq!(next.prev.get(), Some(at), "{addr}: back and forth, place {place}");
            if place > 0 {
                let node = (at.priority.get(), at.parent.get(), at.child[0].get(), at.child[1].get());
                assert_eq!(node, (0, None, None, None), "{addr}: a node in place {place}");
            }
            at = next;
        }
        assert_eq!(at, *head, "{addr}: the ring closes");
    }
    for addr in ADDRS {
        assert_eq!(treap.len(addr), lines.get(&addr).map_or(0, VecDeque::len), "the length of {addr}'s line");
    }
    for (waiter, s) in sudogs.iter().enumerate().filter(|(waiter, _)| !queued[*waiter]) {
        let links = [s.next.get(), s.prev.get(), s.parent.get(), s.child[0].get(), s.child[1].get()];
        assert_eq!((links, s.priority.get()), ([None; 5], 0), "{waiter} is out, and linked");
        assert_ne!(s.fate.get(), Fate::Queued, "{waiter}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_treap_is_a_line_for_each_address(ops in prop::collection::vec(op(), 0..150)) {
        let addr_of = |op: &Op| if let Op::Queue(addr, _) = op { Some(*addr) } else { None };
        let sudogs: Vec<_> = ops.iter().filter_map(addr_of).map(sudog).collect();
        let (mut treap, mut lines, mut fresh) = (Treap::new(), Lines::new(), 0..sudogs.len());
        for op in ops {
            match op {
                Op::Queue(addr, order) => {
                    let waiter = fresh.next().expect("one for each of these");
                    // SAFETY: queued for the first time; the vector does not change, and nothing touches the links
                    // but the treap, which is dropped first and does not touch its sudogs then.
                    unsafe { treap.queue(&sudogs[waiter], order) };
                    let line = lines.entry(addr).or_default();
                    if order == Order::Fifo { line.push_back(waiter) } else { line.push_front(waiter) }
                }
                Op::Dequeue(addr) => {
                    let first = lines.get_mut(&addr).and_then(VecDeque::pop_front);
                    let got = treap.dequeue(addr, Fate::Granted);
                    assert_eq!(got.is_some(), first.is_some());
                    if let (Some(got), Some(first)) = (got, first) {
                        assert!(is(got, &sudogs[first]), "not {first}, who is the first of {addr}");
                        assert_eq!(got.fate.get(), Fate::Granted);
                    }
                }
                Op::Unlink(which) => {
                    let queued: Vec<_> = lines.values().flatten().copied().collect();
                    if !queued.is_empty() {
                        let waiter = *which.get(&queued);
                        // SAFETY: alive and still, and this thread is the only one.
                        treap.unlink(unsafe { sudogs[waiter].vouch() }, Fate::Cancelled);
                        assert_eq!(sudogs[waiter].fate.get(), Fate::Cancelled);
                        lines.values_mut().for_each(|line| line.retain(|&other| other != waiter));
                    }
                }
            }
            lines.retain(|_, line| !line.is_empty());
            check(&treap, &sudogs, &lines);
        }
    }
}

/// The worst order for a tree that does not balance itself. A depth of 64 is out of reach for a random one: the mean
/// is near 30.
#[test]
fn ten_thousand_ascending_addresses_make_no_list() {
    const N: usize = 10_000;
    const DEPTH: usize = 64;
    let sudogs: Vec<_> = (0..N).map(|i| sudog(8 * i)).collect();
    let mut treap = Treap::new();
    for sudog in &sudogs {
        // SAFETY: as in the model's test.
        unsafe { treap.queue(sudog, Order::Fifo) };
    }
    let mut nodes = 0;
    let depth = walk(treap.root, None, &mut |_| nodes += 1);
    assert_eq!(nodes, N);
    assert!(depth < DEPTH, "depth {depth}");

    for sudog in sudogs.iter().step_by(2) {
        assert!(treap.dequeue(sudog.addr, Fate::Idle).is_some_and(|s| is(s, sudog)));
    }
    let depth = walk(treap.root, None, &mut |_| nodes -= 1);
    assert_eq!(nodes, N / 2);
    assert!(depth < DEPTH, "depth {depth} after removals");
}
