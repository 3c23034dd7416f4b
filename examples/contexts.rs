//! The examples of Go's package `context`: "WithCancel", "WithDeadline", "WithTimeout", "WithValue", "AfterFunc" (cond,
//! merge).
//!
//! `cargo run --example contexts`

use std::time::Duration;

use sudog::chan::{Chan, select};
use sudog::context::{Error, Key};
use sudog::prelude::*;
use sudog::synctest;
use sudog::time::now;

/// Ends a goroutine that is no longer needed, so that the goroutine does not leak.
fn with_cancel() {
    let generate = |ctx: &Context| {
        let (numbers, ctx) = (Chan::new(0), ctx.clone());
        let out = numbers.clone();
        go!({
            let mut n = 1;
            loop {
                let goes_on = select! {
                    recv(ctx.done_chan()) => false,
                    send(out, n) => true,
                };
                if !goes_on {
                    return;
                }
                n += 1;
            }
        });
        numbers
    };
    let (ctx, cancel) = context::with_cancel(&context::background());
    let first: Vec<u32> = generate(&ctx).iter().take(5).collect();
    cancel.cancel();
    assert_eq!(first, [1, 2, 3, 4, 5]);
}

fn with_timeout() {
    let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
    let _cancel = cancel.on_drop();
    let never = Chan::<()>::new(0);
    let why = select! {
        recv(never) => None,
        recv(ctx.done_chan()) => ctx.err(),
    };
    println!("{}", why.expect("an error"));
    assert_eq!(why, Some(Error::DeadlineExceeded));
}

fn with_value() {
    static LANGUAGE: Key<&str> = Key::new("language");
    static COLOUR: Key<&str> = Key::new("colour");
    let ctx = context::with_value(&context::background(), &LANGUAGE, "Go");
    assert_eq!((ctx.value(&LANGUAGE), ctx.value(&COLOUR)), (Some(&"Go"), None));
}

/// Merges two contexts into a context that is done when either of the two is done.
fn merge() {
    let (one, cancel_one) = context::with_cancel(&context::background());
    let (other, _cancel_other) = context::with_cancel(&context::background());
    let (merged, cancel) = context::with_cancel_cause(&other);
    let _stop = context::after_func(&one, move || cancel.cancel("the other one"));
    cancel_one.cancel();
    let begun = now();
    assert_eq!(merged.wait(), Error::Canceled);
    assert_eq!(now(), begun);
    println!("{}", merged.cause().expect("a cause"));
}

fn main() {
    // Run in a bubble: there, a goroutine that is left behind is an error, and the error names the goroutine.
    synctest::test(|| {
        with_cancel();
        with_timeout();
        with_value();
        merge();
    });
}
