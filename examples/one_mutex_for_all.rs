//! A thread, a goroutine and an async task wait in the queue of the same mutex.
//!
//! `cargo run --example one_mutex_for_all`

use std::thread;

use sudog::prelude::*;

static LOG: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn main() {
    let thread = thread::spawn(|| LOG.lock().push("a thread"));
    sudog::run(|| {
        let goroutine = spawn(|| LOG.lock().push("a goroutine"));
        let task = sudog::spawn_async(async { LOG.lock_async().await.push("an async task") });
        goroutine.join().unwrap();
        task.join().unwrap();
    });
    thread.join().unwrap();
    println!("{:?} had the mutex", LOG.lock());
    assert_eq!(LOG.lock().len(), 3);
}
