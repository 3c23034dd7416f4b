//! Producers and consumers over a bounded queue, built from a mutex and two Conds. After Go's documentation of
//! `sync.Cond`; most programs would write such a queue as a buffered channel.
//!
//! `cargo run --example bounded_queue`

use std::collections::VecDeque;
use std::sync::Arc;

use sudog::prelude::*;

/// A first-in, first-out queue of at most `capacity` items.
struct BoundedQueue<T> {
    items: Mutex<VecDeque<T>>,
    capacity: usize,
    not_empty: Cond,
    not_full: Cond,
}

impl<T> BoundedQueue<T> {
    fn new(capacity: usize) -> Self {
        Self { items: Mutex::new(VecDeque::new()), capacity, not_empty: Cond::new(), not_full: Cond::new() }
    }

    /// Waits until there is room, and appends the item.
    fn push(&self, item: T) {
        let mut items = self.items.lock();
        while items.len() == self.capacity {
            self.not_full.wait(&mut items);
        }
        items.push_back(item);
        self.not_empty.signal();
    }

    /// Waits until there is an item, and removes that item.
    fn pop(&self) -> T {
        let mut items = self.items.lock();
        loop {
            if let Some(item) = items.pop_front() {
                self.not_full.signal();
                return item;
            }
            self.not_empty.wait(&mut items);
        }
    }
}

fn main() {
    let sum: u64 = sudog::run(|| {
        let queue = Arc::new(BoundedQueue::new(4));
        for first in [1, 2] {
            // One producer makes the odd numbers, the other producer the even numbers.
            go!(clone queue; (first..=100).step_by(2).for_each(|n| queue.push(n)));
        }
        let consumers = [0; 2].map(|_| {
            let queue = queue.clone();
            spawn(move || (0..50).map(|_| queue.pop()).sum::<u64>())
        });
        consumers.map(|consumer| consumer.join().unwrap()).iter().sum()
    });
    println!("the consumers' sum is {sum}");
    assert_eq!(sum, 5050);
}
