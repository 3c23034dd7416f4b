//! Goroutines, a wait group and a mutex: the first program.
//!
//! `cargo run --example hello_goroutines`

use std::sync::Arc;

use sudog::prelude::*;

static WORDS: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn main() {
    sudog::run(|| {
        let done = Arc::new(WaitGroup::new());
        for word in ["goroutines", "in", "Rust"] {
            done.go(move || WORDS.lock().push(word));
        }
        done.wait();

        let letters = spawn(|| WORDS.lock().iter().map(|word| word.len()).sum::<usize>());
        println!("{} letters", letters.join().unwrap());
    });
    assert_eq!(WORDS.lock().len(), 3);
}
