//! Stage 2, *interleaving*: 100 programs share a driver, which resumes each of them for one step in turn.

use std::cell::Cell;
use std::collections::{LinkedList, VecDeque};
use std::rc::Rc;

use super::continuation::{Count, Frame};

const FIBRES: u64 = 100;

fn programs(calls: u64, sum: &Rc<Cell<u64>>) -> impl Iterator<Item = Frame> {
    let sum = sum.clone();
    (0..FIBRES).map(move |_| Count::frame(calls, &sum))
}

/// The queue is a list that allocates a node for each push, as the source says of C++'s queue.
pub fn list(calls: u64) -> u64 {
    let sum = Rc::default();
    let mut queue: LinkedList<Frame> = programs(calls, &sum).collect();
    while let Some(frame) = queue.pop_front() {
        queue.extend(frame.resume());
    }
    sum.get()
}

/// The queue is an array that is used in a circle.
pub fn array(calls: u64) -> u64 {
    let sum = Rc::default();
    let mut queue: VecDeque<Frame> = programs(calls, &sum).collect();
    while let Some(frame) = queue.pop_front() {
        queue.extend(frame.resume());
    }
    sum.get()
}
