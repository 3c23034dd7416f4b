//! Go by Example: "Stateful Goroutines". The state belongs to a single goroutine, and the other goroutines ask that
//! goroutine by channels; "share memory by communicating".
//!
//! `cargo run --example stateful_goroutines`

use std::collections::HashMap;

use sudog::chan::{Chan, select};
use sudog::prelude::*;

struct Read {
    key: u32,
    answer: Chan<u32>,
}

struct Write {
    key: u32,
    value: u32,
    answer: Chan<bool>,
}

fn main() {
    let (reads, writes) = (Chan::<Read>::new(0), Chan::<Write>::new(0));
    let done = sudog::run(|| {
        go!(clone reads, writes; {
            let mut state = HashMap::new();
            loop {
                select! {
                    recv(reads) -> request => match request {
                        Some(Read { key, answer }) => answer.send(state.get(&key).copied().unwrap_or(0)),
                        None => return,
                    },
                    recv(writes) -> request => match request {
                        Some(Write { key, value, answer }) => {
                            state.insert(key, value);
                            answer.send(true);
                        }
                        None => return,
                    },
                }
            }
        });
        let writers: Vec<_> = (0..10)
            .map(|key| {
                let writes = writes.clone();
                spawn(move || {
                    let answer = Chan::new(0);
                    (1..=100)
                        .filter(|&value| {
                            writes.send(Write { key, value, answer: answer.clone() });
                            answer.recv().expect("an answer")
                        })
                        .count()
                })
            })
            .collect();
        let readers: Vec<_> = (0..100)
            .map(|n| {
                let reads = reads.clone();
                spawn(move || {
                    let answer = Chan::new(0);
                    let mut last = 0;
                    for _ in 0..10 {
                        reads.send(Read { key: n % 10, answer: answer.clone() });
                        let value = answer.recv().expect("an answer");
                        assert!(value >= last, "a writer writes greater and greater values");
                        last = value;
                    }
                    10
                })
            })
            .collect();
        let writes: usize = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
        let reads: usize = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        (reads, writes)
    });
    println!("{} reads, {} writes", done.0, done.1);
    assert_eq!(done, (1000, 1000));
}
