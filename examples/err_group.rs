//! x/sync's `errgroup` examples: "JustErrors", "Parallel" and "Pipeline".
//!
//! `cargo run --example err_group`

use std::sync::Arc;

use sudog::prelude::*;
use sudog::x::ErrGroup;

/// Shows that the first failure cancels the other goroutines.
fn just_errors() {
    let (group, ctx) = ErrGroup::with_context(&context::background());
    group.go(|| Err::<(), _>("the first failure"));
    group.go(move || {
        ctx.wait(); // until another goroutine fails
        Ok::<_, &str>(())
    });
    let error = group.wait().unwrap_err();
    println!("{error}");
    assert_eq!(error.to_string(), "the first failure");
}

/// Collects results in the order of the questions.
fn parallel() {
    let group = ErrGroup::new();
    let results = Arc::new(Mutex::new(vec![String::new(); 3]));
    for (n, kind) in ["web", "image", "video"].into_iter().enumerate() {
        let results = results.clone();
        group.go(move || {
            results.lock()[n] = format!("{kind} result");
            Ok::<_, &str>(())
        });
    }
    group.wait().expect("no error");
    assert_eq!(*results.lock(), ["web result", "image result", "video result"]);
}

/// Joins stages by channels, with any number of goroutines in the middle stage.
fn pipeline() {
    let (group, ctx) = ErrGroup::with_context(&context::background());
    let (numbers, input) = channel::<u64>(0);
    let (squares, output) = channel::<u64>(0);
    group.go(move || {
        for n in 1..=100 {
            numbers.send_limited(n, &ctx).map_err(|_| "the context is done, or no receiver is left")?;
        }
        Ok::<_, &str>(())
    });
    for _ in 0..4 {
        let (input, squares) = (input.clone(), squares.clone());
        group.go(move || {
            for n in input {
                squares.send(n * n).map_err(|_| "no receiver")?;
            }
            Ok::<_, &str>(())
        });
    }
    drop((input, squares));
    let sum: u64 = output.iter().sum();
    group.wait().expect("no error");
    println!("the sum of the first hundred squares is {sum}");
    assert_eq!(sum, 338_350);
}

fn main() {
    sudog::run(|| {
        just_errors();
        parallel();
        pipeline();
    });
}
