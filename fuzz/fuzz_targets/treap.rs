//! The treap of the semaphore table against a model: a queue of waiters for each address.
//!
//! The treap itself is private. It is reached in two ways: by the detached queue for benchmarks, whose addresses are the
//! input's, so that an input always makes the same tree; and by a table with one bucket, where a future that is dropped
//! leaves the middle of its queue.
#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Waker};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sudog::low_level::sema::{Acquire, Order, Wake};
use sudog::study::SemTable;
use sudog::study::queue::Treap;
use sudog_runtime::sema::testing::DetachedQueue;

const SEMAPHORES: usize = 24;

#[derive(Arbitrary, Debug)]
enum Input {
    Detached(Vec<u8>, Vec<Step>),
    Table(Vec<Op>),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Queue(u8, bool),
    Dequeue(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    /// Polls a new future, which takes a permit or joins the back or the front of the queue.
    Acquire(u8, bool),
    Release(u8),
    Handoff(u8),
    Grant(u8),
    /// Polls a future that has not ended.
    Poll(u8),
    /// Drops a future that has not ended.
    Drop(u8),
}

fn order(front: bool) -> Order {
    if front { Order::Lifo } else { Order::Fifo }
}

fn add<T>(line: &mut VecDeque<T>, waiter: T, front: bool) {
    if front { line.push_front(waiter) } else { line.push_back(waiter) }
}

fn detached(addrs: &[u8], steps: &[Step]) {
    let addr = |of: u8| 8 * usize::from(of);
    let mut queue = DetachedQueue::<Treap>::of(addrs.iter().map(|&of| addr(of)));
    let mut model = BTreeMap::<u8, VecDeque<usize>>::new();
    for &step in steps {
        match step {
            Step::Queue(waiter, front) if !addrs.is_empty() => {
                let waiter = usize::from(waiter) % addrs.len();
                queue.queue_one(waiter, order(front));
                let line = model.entry(addrs[waiter]).or_default();
                if !line.contains(&waiter) {
                    add(line, waiter, front);
                }
            }
            Step::Queue(..) => {}
            Step::Dequeue(of) => {
                // Choose an address of the list, so that there often is a waiter.
                let of = addrs.get(usize::from(of) % addrs.len().max(1)).copied().unwrap_or(of);
                assert_eq!(queue.dequeue(addr(of)), model.get_mut(&of).and_then(VecDeque::pop_front));
            }
        }
    }
    for (of, line) in model {
        for waiter in line {
            assert_eq!(queue.dequeue(addr(of)), Some(waiter));
        }
        assert_eq!(queue.dequeue(addr(of)), None);
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Queued,
    Woken,
    Granted,
}

/// The expected state of a semaphore: its permits, and its waiters by number.
#[derive(Default)]
struct Semaphore {
    permits: u32,
    line: VecDeque<usize>,
}

struct Waiting<'a> {
    number: usize,
    of: usize,
    state: State,
    future: Pin<Box<Acquire<'a, Treap>>>,
}

impl Semaphore {
    fn take(&mut self) -> bool {
        let takes = self.permits > 0;
        self.permits -= u32::from(takes);
        takes
    }

    /// Takes the first waiter out of the queue, and notes how.
    fn wake(&mut self, state: State, waiting: &mut [Waiting<'_>]) -> bool {
        let Some(first) = self.line.pop_front() else { return false };
        waiting.iter_mut().find(|waiter| waiter.number == first).expect("it waits").state = state;
        true
    }

    fn grant(&mut self, waiting: &mut [Waiting<'_>]) {
        if !self.wake(State::Granted, waiting) {
            self.permits += 1;
        }
    }
}

fn table(ops: &[Op]) {
    let table = SemTable::<1, Treap>::const_new();
    let counts: [AtomicU32; SEMAPHORES] = Default::default();
    let mut model: [Semaphore; SEMAPHORES] = Default::default();
    let mut waiting = Vec::<Waiting<'_>>::new();
    let mut cx = Context::from_waker(Waker::noop());
    for (number, &op) in ops.iter().enumerate() {
        let semaphore = |of: u8| usize::from(of) % SEMAPHORES;
        match op {
            Op::Acquire(of, front) => {
                let of = semaphore(of);
                let mut future = Box::pin(table.acquire_async(&counts[of], order(front)));
                let took = future.as_mut().poll(&mut cx).is_ready();
                assert_eq!(took, model[of].take());
                if !took {
                    add(&mut model[of].line, number, front);
                    waiting.push(Waiting { number, of, state: State::Queued, future });
                }
            }
            Op::Release(of) => {
                let of = semaphore(of);
                table.release(&counts[of], Wake::Normal);
                model[of].permits += 1;
                model[of].wake(State::Woken, &mut waiting);
            }
            Op::Handoff(of) | Op::Grant(of) => {
                let wake = if matches!(op, Op::Grant(_)) { Wake::Grant } else { Wake::Handoff };
                table.release(&counts[semaphore(of)], wake);
                model[semaphore(of)].grant(&mut waiting);
            }
            Op::Poll(which) if !waiting.is_empty() => {
                let which = usize::from(which) % waiting.len();
                let waiter = &mut waiting[which];
                let semaphore = &mut model[waiter.of];
                let ends = match waiter.state {
                    State::Queued => false,
                    State::Granted => true,
                    State::Woken => semaphore.take(),
                };
                assert_eq!(waiter.future.as_mut().poll(&mut cx).is_ready(), ends, "{:?}", waiter.state);
                if ends {
                    waiting.swap_remove(which);
                } else if waiter.state == State::Woken {
                    // A newcomer has taken the permit: the waiter returns to the front.
                    waiter.state = State::Queued;
                    semaphore.line.push_front(waiter.number);
                }
            }
            Op::Drop(which) if !waiting.is_empty() => {
                let waiter = waiting.swap_remove(usize::from(which) % waiting.len());
                let (number, of, state) = (waiter.number, waiter.of, waiter.state);
                drop(waiter);
                match state {
                    State::Queued => model[of].line.retain(|&other| other != number),
                    State::Granted => model[of].grant(&mut waiting),
                    State::Woken => _ = model[of].wake(State::Woken, &mut waiting),
                }
            }
            Op::Poll(_) | Op::Drop(_) => {}
        }
        for (count, expected) in counts.iter().zip(&model) {
            assert_eq!((count.load(SeqCst), table.waiters(count)), (expected.permits, expected.line.len()));
        }
    }
}

fuzz_target!(|input: Input| {
    match input {
        Input::Detached(addrs, steps) => detached(&addrs, &steps),
        Input::Table(ops) => table(&ops),
    }
});
