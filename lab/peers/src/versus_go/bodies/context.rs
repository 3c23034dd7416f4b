//! Contexts.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sudog_runtime::chan::select;
use sudog_runtime::goroutine::max_procs;
use sudog_sync::WaitGroup;
use sudog_sync::context::{CancelFunc, Context, Error, Key, background, with_cancel, with_timeout, with_value};

use super::round::Round;
use super::shared;
use crate::rounds::{Rounds, WORK, steps};

const HOUR: Duration = Duration::from_secs(3600);

/// Measures children of a single context that come and go.
pub fn common_parent_cancel(round: &mut Round) {
    static KEY: Key<&str> = Key::new("key");
    let (parent, _cancel) = with_cancel(&with_value(&background(), &KEY, "value"));
    round.divide(move |_, portion| {
        let mut x = 1;
        portion.each(|| {
            let (ctx, cancel) = with_cancel(&parent);
            assert_eq!(ctx.value(&KEY), Some(&"value"));
            x = steps(WORK, x);
            cancel.cancel();
            x = steps(WORK, x);
        });
        black_box(x);
    });
}

/// Measures ten contexts with a timeout that come and go, beside others that stay.
pub fn with_timeouts(round: &mut Round, others: usize) {
    let (others, procs) = (others.min(round.count), max_procs());
    let cancels = shared(Mutex::new(Vec::new()));
    let made = Arc::new(WaitGroup::new());
    for _ in 0..procs {
        made.go(move || {
            let own: Vec<CancelFunc> = (0..others / procs).map(|_| with_timeout(&background(), HOUR).1).collect();
            cancels.lock().unwrap().push(own);
        });
    }
    made.wait();
    round.divide(|_, portion| {
        let mut own = Vec::with_capacity(10);
        portion.each(|| {
            own.extend((0..10).map(|_| with_timeout(&background(), HOUR).1));
            own.iter().for_each(CancelFunc::cancel);
            own.clear();
        });
    });
    std::mem::take(&mut *cancels.lock().unwrap()).iter().flatten().for_each(CancelFunc::cancel);
}

fn chain(root: &Context, depth: usize) {
    let mut ctx = root.clone();
    for _ in 0..depth {
        ctx = with_cancel(&ctx).0;
    }
    black_box(&ctx);
}

/// Measures making a line of contexts whose root is never done.
pub fn cancel_tree_background(round: &mut Round, depth: usize) {
    for _ in 0..round.n {
        chain(&background(), depth);
    }
}

/// Measures making a line of contexts, and cancelling the root.
pub fn cancel_tree_open(round: &mut Round, depth: usize) {
    for _ in 0..round.n {
        let (ctx, cancel) = with_cancel(&background());
        chain(&ctx, depth);
        cancel.cancel();
    }
}

/// Measures making a line of contexts whose root has been cancelled.
pub fn cancel_tree_closed(round: &mut Round, depth: usize) {
    for _ in 0..round.n {
        let (ctx, cancel) = with_cancel(&background());
        cancel.cancel();
        chain(&ctx, depth);
    }
}

/// Measures asking why a cancelled context is done.
pub fn err_canceled(round: &mut Round) {
    let (ctx, cancel) = with_cancel(&background());
    cancel.cancel();
    for _ in 0..round.n {
        assert_eq!(black_box(&ctx).err(), Some(Error::Canceled));
    }
}

/// Measures asking why a context is done that is not done.
pub fn err_ok(round: &mut Round) {
    let (ctx, _cancel) = with_cancel(&background());
    for _ in 0..round.n {
        assert_eq!(black_box(&ctx).err(), None);
    }
}

/// Selects on the context's channel, without waiting.
fn look_at_done(ctx: &Context) {
    select! {
        recv(ctx.done_chan()) -> _ => (),
        default => (),
    }
}

/// Measures a select on the channel of a context that has been cancelled.
pub fn check_canceled_done(round: &mut Round) {
    let (ctx, cancel) = with_cancel(&background());
    cancel.cancel();
    for _ in 0..round.n {
        look_at_done(black_box(&ctx));
    }
}

/// Measures a select on the channel of a context that has not been cancelled, which all goroutines share.
pub fn context_cancel_done(round: &mut Round) {
    let (ctx, cancel) = with_cancel(&background());
    round.divide(move |_, portion| portion.each(|| look_at_done(&ctx)));
    drop(cancel);
}

static KEYS: [Key<usize>; 100] = [const { Key::new("i") }; 100];
static ABSENT: Key<usize> = Key::new("absent");

fn deep(depth: usize) -> Context {
    (0..depth).fold(background(), |ctx, i| with_value(&ctx, &KEYS[i], i))
}

/// Measures looking for a value that no context in a line has, each time by a new goroutine.
pub fn deep_value_new(round: &mut Round, depth: usize) {
    let ctx = deep(depth);
    round.reset_timer();
    for _ in 0..round.n {
        let (done, ctx) = (Arc::new(WaitGroup::new()), ctx.clone());
        done.go(move || _ = black_box(ctx.value(&ABSENT)));
        done.wait();
    }
}

/// Measures looking for a value that no context in a line has, by the same goroutine.
pub fn deep_value_same(round: &mut Round, depth: usize) {
    let ctx = deep(depth);
    round.reset_timer();
    for _ in 0..round.n {
        black_box(black_box(&ctx).value(&ABSENT));
    }
}
