//! Three ways to stop waiting: a deadline, a context, and a try. A waiter that gives up has taken nothing.
//!
//! `cargo run --example deadlines`

use std::time::Duration;

use sudog::context::Error;
use sudog::prelude::*;
use sudog::x::Weighted;

static BALANCE: Mutex<i64> = Mutex::new(100);
static SLOTS: Weighted = Weighted::new(2);

fn main() {
    sudog::run(|| {
        let held = BALANCE.lock();
        assert!(BALANCE.try_lock().is_none());
        assert!(BALANCE.try_lock_for(Duration::from_millis(5)).is_none());
        println!("the mutex is held: the caller gave up after 5 ms");
        drop(held);
        *BALANCE.try_lock().expect("it is free") -= 1;

        let both = SLOTS.try_hold(2).expect("they are free");
        let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_millis(5));
        let _cancel = cancel.on_drop();
        assert_eq!(SLOTS.acquire(&ctx, 1), Err(Error::DeadlineExceeded));
        println!("no slot is free: the context ended the wait");
        drop(both);
        assert!(SLOTS.try_acquire(1));
    });
}
