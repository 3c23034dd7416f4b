//! Tests of the internals: the followers of each context, and that nothing is left behind. The other tests are in
//! `tests/behaviour/go/context.rs`.

use std::pin::pin;
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::thread;

use sudog_runtime::goroutine::{num_goroutine, synctest};

use super::*;

const LONG: Duration = Duration::from_secs(1000 * 3600);

fn followers(ctx: &Context) -> usize {
    ctx.governor().expect("one that can be done").followers()
}

/// A value that is dropped when neither a parent nor an alarm keeps the context.
fn watch(ctx: &Context) -> Weak<Done> {
    Arc::downgrade(ctx.governor().expect("one that can be done"))
}

fn eventually(state: impl Fn() -> bool) {
    let begun = Instant::now();
    while !state() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        thread::yield_now();
    }
}

fn deep(root: &Context, depth: usize) -> (Context, CancelFunc) {
    let mut deepest = with_cancel(root);
    for _ in 1..depth {
        deepest = with_cancel(&deepest.0);
    }
    deepest
}

const DEEP: usize = 100_000;

/// Go: `TestParentFinishesChild`.
#[test]
fn parent_finishes_child() {
    static KEY: Key<&str> = Key::new("key");
    let (parent, cancel) = with_cancel(&background());
    let (cancel_child, _stop) = with_cancel(&parent);
    let value_child = with_value(&parent, &KEY, "value");
    let (timer_child, _stop) = with_timeout(&value_child, LONG);
    let stop = after_func(&parent, || ());
    let all = [&parent, &cancel_child, &value_child, &timer_child];
    assert!(all.iter().all(|ctx| ctx.err().is_none()));
    assert_eq!(followers(&parent), 3);
    cancel.cancel();
    assert_eq!(followers(&parent), 0);
    assert!(all.iter().all(|ctx| ctx.err() == Some(Error::Canceled)));
    assert!(!stop.stop());
    assert_eq!(with_value(&parent, &KEY, "value").err(), Some(Error::Canceled));
}

/// Go: `TestChildFinishesFirst`.
#[test]
fn child_finishes_first() {
    let (cancellable, _stop) = with_cancel(&background());
    for parent in [background(), cancellable] {
        let (child, cancel) = with_cancel(&parent);
        let linked = || parent.governor().map_or(0, |done| done.followers());
        assert_eq!(linked(), usize::from(parent.governor().is_some()));
        cancel.cancel();
        assert_eq!(linked(), 0);
        assert_eq!((child.err(), parent.err()), (Some(Error::Canceled), None));
    }
}

/// Go: `TestCancelRemoves`.
#[test]
fn cancel_removes() {
    let (ctx, _stop) = with_cancel(&background());
    assert_eq!(followers(&ctx), 0);
    let (_child, cancel) = with_cancel(&ctx);
    assert_eq!(followers(&ctx), 1);
    cancel.cancel();
    assert_eq!(followers(&ctx), 0);
    let (_child, cancel) = with_timeout(&ctx, LONG);
    assert_eq!(followers(&ctx), 1);
    cancel.cancel();
    assert_eq!(followers(&ctx), 0);
    let stop = after_func(&ctx, || ());
    assert_eq!(followers(&ctx), 1);
    assert!(stop.stop());
    assert_eq!(followers(&ctx), 0);
}

/// Go: `TestCustomContextGoroutines`. Nothing that is derived needs a goroutine.
#[test]
fn custom_context_goroutines() {
    static KEY: Key<()> = Key::new("key");
    // A bubble counts its own goroutines, and not those of other tests.
    synctest::test(|| {
        let (ctx1, cancel1) = with_cancel(&background());
        let ctx2 = with_value(&ctx1, &KEY, ());
        let (ctx3, _cancel3) = with_cancel(&ctx2);
        let (ctx4, _cancel4) = with_timeout(&ctx3, LONG);
        let (ctx5, cancel5) = with_cancel(&ctx4);
        cancel5.cancel();
        let (_ctx6, cancel6) = with_timeout(&ctx5, LONG);
        cancel6.cancel();
        let _call = after_func(&ctx4, || ());
        assert_eq!(num_goroutine(), 1);
        cancel1.cancel();
        let (ctx7, _cancel7) = with_cancel(&ctx5);
        assert_eq!(ctx7.err(), Some(Error::Canceled));
    });
}

/// Go: `TestCustomContextAfterFuncUnregisterCancel`, `...Timeout`, `...AfterFunc`.
#[test]
fn custom_context_after_func_unregister() {
    let (ctx, _stop) = with_cancel(&background());
    let ((_first, cancel1), (_second, cancel2)) = (with_cancel(&ctx), with_cancel(&ctx));
    let (_third, cancel3) = with_timeout(&ctx, LONG);
    let stop = after_func(&ctx, || ());
    assert_eq!(followers(&ctx), 4);
    cancel1.cancel();
    cancel2.cancel();
    assert_eq!(followers(&ctx), 2);
    cancel3.cancel();
    assert_eq!(followers(&ctx), 1);
    assert!(stop.stop() && !stop.stop());
    assert_eq!(followers(&ctx), 0);
}

// ---- nothing is left behind -----------------------------------------------------------------------------------------

#[test]
fn what_is_dropped_leaves_its_parent_and_its_alarm() {
    let (ctx, _stop) = with_cancel(&background());
    for round in 0..100 {
        let kept = (0..round).map(|_| with_timeout(&ctx, LONG)).collect::<Vec<_>>();
        let (child, cancel) = with_timeout(&ctx, LONG);
        let done = watch(&child);
        assert_eq!(followers(&ctx), round + 1);
        drop(child);
        assert_eq!(followers(&ctx), round + 1, "it can be cancelled still");
        drop(cancel);
        assert_eq!(followers(&ctx), round);
        assert!(done.upgrade().is_none());
        drop(kept);
        assert_eq!(followers(&ctx), 0);
    }
}

#[test]
fn a_cancel_calls_off_the_alarm_of_all() {
    let (ctx, cancel) = with_timeout(&background(), LONG);
    let (child, _cancel) = with_timeout(&ctx, LONG - Duration::from_secs(1));
    let dones = [watch(&ctx), watch(&child)];
    cancel.cancel();
    assert_eq!(dones.each_ref().map(Weak::strong_count), [1, 1], "the handles'");
    drop((ctx, cancel, child, _cancel));
    assert!(dones.iter().all(|done| done.upgrade().is_none()));
}

/// A registered function keeps the contexts that lead to it, and nothing more.
#[test]
fn a_function_is_called_without_a_handle_of_the_context() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = || _ = CALLS.fetch_add(1, SeqCst);
    let (root, cancel) = with_cancel(&background());
    let (child, _) = deep(&root, 3);
    let done = watch(&child);
    let stop = after_func(&child, call);
    let stopped = after_func(&child, || unreachable!());
    drop(child);
    assert_eq!(followers(&root), 1);
    assert!(stopped.stop());
    drop((stop, stopped));
    assert_eq!(followers(&root), 1);
    cancel.cancel();
    let (late, _stop) = with_timeout(&background(), Duration::from_millis(1));
    drop(after_func(&late, call));
    let dones = [done, watch(&late)];
    drop((late, _stop));
    eventually(|| CALLS.load(SeqCst) == 2 && dones.iter().all(|done| done.upgrade().is_none()));
}

/// Go's issue 63615, in both directions. A caller that sees the error knows that a wait whose permit is available
/// gives up. And a caller whose wait has given up sees the error.
#[test]
fn where_the_error_is_seen_waits_end() {
    for _ in 0..20 {
        let (ctx, cancel) = with_cancel(&background());
        // The cancel closes the contexts between these two.
        let children: Vec<_> = (0..1000).map(|_| with_cancel(&ctx).0).collect();
        let canceller = thread::spawn(move || cancel.cancel());
        let waits = thread::spawn({
            let ctx = ctx.clone();
            move || {
                while !ctx.limit().cancel.is_some_and(sudog_runtime::sema::Cancel::is_cancelled) {
                    std::hint::spin_loop();
                }
                assert!(ctx.err().is_some());
            }
        });
        while ctx.err().is_none() {
            std::hint::spin_loop();
        }
        assert!(ctx.limit().cancel.is_some_and(sudog_runtime::sema::Cancel::is_cancelled));
        canceller.join().unwrap();
        waits.join().unwrap();
        assert!(children.iter().all(|child| child.err().is_some()));
    }
}

/// Checks that a context leaves its parent if only the context refers to its channel.
#[test]
fn a_context_whose_channel_was_looked_at_leaves_its_parent() {
    let (root, _cancel) = with_cancel(&background());
    let (child, _) = with_timeout(&root, LONG);
    assert!(!child.done_chan().is_closed());
    let done = watch(&child);
    drop(child);
    assert_eq!(followers(&root), 0);
    assert!(done.upgrade().is_none());
    // A channel that has another reference keeps the end for as long as that reference exists.
    let (child, _) = with_cancel(&root);
    let (channel, done) = (child.done_chan().clone(), watch(&child));
    drop(child);
    assert_eq!(followers(&root), 1);
    drop(channel);
    assert_eq!(followers(&root), 0);
    assert!(done.upgrade().is_none());
    let (child, _) = with_cancel(&root);
    let channel = child.done_chan().clone();
    drop(child);
    assert_eq!(followers(&root), 1);
    drop(root);
    assert!(!channel.is_closed());
    _cancel.cancel();
    assert!(channel.is_closed());
}

/// Drops the parts that may refer to a context, in every possible order: nothing is left behind, and the remaining
/// parts learn of the parent's end.
#[test]
fn nothing_is_left_in_whatever_order_the_parts_are_dropped() {
    type Part = Box<dyn std::any::Any>;

    /// Stops the call before dropping the handle.
    struct Stops(AfterFunc);
    impl Drop for Stops {
        fn drop(&mut self) {
            assert!(self.0.stop());
        }
    }

    fn parts(root: &Context) -> (Vec<Part>, [Weak<Done>; 2]) {
        let (ctx, cancel) = with_timeout(root, LONG);
        let (child, forget) = with_cancel(&ctx);
        drop(forget);
        let dones = [watch(&ctx), watch(&child)];
        let mut future = Box::pin(ctx.done());
        let mut cx = std::task::Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut cx).is_pending());
        let (channel, child_s_channel) = (ctx.done_chan().clone(), child.done_chan().clone());
        let stops = Stops(after_func(&child, || unreachable!()));
        let all: Vec<Part> = vec![
            Box::new((ctx, cancel)),
            Box::new(child),
            Box::new(channel.clone()),
            Box::new(channel),
            Box::new(child_s_channel),
            Box::new(future),
            Box::new(stops),
        ];
        (all, dones)
    }

    let (root, cancel) = with_cancel(&background());
    let n = parts(&root).0.len();
    let mut orders = 0;
    permutations(&mut (0..n).collect(), 0, &mut |order| {
        orders += 1;
        let (all, dones) = parts(&root);
        assert_eq!(followers(&root), 1);
        let mut all: Vec<_> = all.into_iter().map(Some).collect();
        for &part in order {
            drop(all[part].take());
        }
        assert_eq!(followers(&root), 0, "{order:?}");
        assert!(dones.iter().all(|done| done.upgrade().is_none()), "{order:?}");
    });
    assert_eq!(orders, 5040);

    // A clone of a channel alone learns of the end.
    let (child, _) = with_cancel(&root);
    let (grandchild, _) = with_timeout(&child, LONG);
    let channel = grandchild.done_chan().clone();
    drop((child, grandchild));
    assert_eq!(followers(&root), 1);
    cancel.cancel();
    assert!(channel.is_closed());
}

/// Calls `f` with each order of `items[from..]` behind `items[..from]`.
fn permutations(items: &mut Vec<usize>, from: usize, f: &mut impl FnMut(&[usize])) {
    if from == items.len() {
        return f(items);
    }
    for at in from..items.len() {
        items.swap(from, at);
        permutations(items, from + 1, f);
        items.swap(from, at);
    }
}

/// Drops the last handle of a channel and the last handle of its context at once, while the parent ends.
#[test]
fn the_channel_and_its_context_are_dropped_at_once() {
    let mut closed = 0;
    for round in 0..2000 {
        let (root, cancel) = with_cancel(&background());
        let (child, _) = with_cancel(&root);
        let (channel, done) = (child.done_chan().clone(), watch(&child));
        let barrier = std::sync::Barrier::new(3);
        thread::scope(|s| {
            s.spawn(|| {
                barrier.wait();
                drop(child);
            });
            s.spawn(|| {
                barrier.wait();
                drop(channel);
            });
            barrier.wait();
            if round % 2 == 0 {
                cancel.cancel();
                closed += 1;
            }
        });
        assert_eq!(followers(&root), 0);
        assert!(done.upgrade().is_none());
    }
    assert_eq!(closed, 1000);
}

/// Causes whose destructors panic: the first panic goes on, and all of them are dropped.
#[test]
fn causes_that_panic_are_all_dropped() {
    #[derive(Debug)]
    struct Bomb(&'static AtomicU32);
    impl std::fmt::Display for Bomb {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.pad("a bomb")
        }
    }
    impl std::error::Error for Bomb {}
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            panic!("by intention");
        }
    }
    static DROPS: AtomicU32 = AtomicU32::new(0);
    let (root, cancel) = with_cancel(&background());
    for _ in 0..3 {
        let (child, _) = with_deadline_cause(&root, now() + LONG, Bomb(&DROPS));
        after_func(&child, || ());
    }
    assert_eq!(followers(&root), 3);
    assert!(std::panic::catch_unwind(|| cancel.cancel()).is_err());
    assert_eq!(DROPS.load(SeqCst), 3);
}

/// Counts how many times it is dropped.
struct Counted<'a>(&'a AtomicU32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Checks that the last handle lets go of the parent, though a function still waits for the end of the context.
#[test]
fn a_function_does_not_keep_the_values_of_the_ancestors() {
    static KEY: Key<Counted<'static>> = Key::new("counted");
    static DROPS: AtomicU32 = AtomicU32::new(0);
    let (root, cancel) = with_cancel(&background());
    let (child, forget) = with_cancel(&with_value(&root, &KEY, Counted(&DROPS)));
    let stop = after_func(&child, || ());
    drop(forget);
    assert!(child.value(&KEY).is_some());
    assert_eq!(DROPS.load(SeqCst), 0);
    drop(child);
    assert_eq!((DROPS.load(SeqCst), followers(&root)), (1, 1));
    cancel.cancel();
    assert!(!stop.stop());
}

/// A destructor that panics half-way through a line: the rest of the line is dropped.
#[test]
fn a_value_that_panics_keeps_none_of_its_ancestors() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("by intention");
        }
    }
    static PANICS: Key<Panics> = Key::new("panics");
    static KEY: Key<Counted<'static>> = Key::new("counted");
    static DROPS: AtomicU32 = AtomicU32::new(0);
    let (root, _cancel) = with_cancel(&background());
    let (above, _) = with_cancel(&with_value(&root, &KEY, Counted(&DROPS)));
    let (below, _) = with_cancel(&with_value(&above, &PANICS, Panics));
    drop(above);
    assert_eq!(followers(&root), 1);
    assert!(std::panic::catch_unwind(|| drop(below)).is_err());
    assert_eq!((DROPS.load(SeqCst), followers(&root)), (1, 0));
}

/// Many threads clone and drop handles: the last handle lets go of the parent, once.
#[test]
fn many_threads_share_the_handles() {
    static KEY: Key<Counted<'static>> = Key::new("counted");
    static DROPS: AtomicU32 = AtomicU32::new(0);
    for round in 1..=200 {
        let (child, _) = with_cancel(&with_value(&background(), &KEY, Counted(&DROPS)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let child = child.clone();
                thread::spawn(move || {
                    for _ in 0..50 {
                        assert!(child.clone().value(&KEY).is_some());
                    }
                })
            })
            .collect();
        drop(child);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(DROPS.load(SeqCst), round);
    }
}

#[test]
fn a_function_that_is_stopped_keeps_nothing() {
    let (root, _cancel) = with_cancel(&background());
    let (child, _) = deep(&root, 3);
    let (timed, _) = with_timeout(&child, LONG);
    let dones = [watch(&child), watch(&timed)];
    let stop = after_func(&timed, || unreachable!());
    drop((child, timed));
    assert_eq!(followers(&root), 1);
    assert!(stop.stop());
    assert_eq!(followers(&root), 0);
    drop(stop);
    assert!(dones.iter().all(|done| done.upgrade().is_none()));
}

/// A context that ends by its own alarm, and was the only user of its ancestors, releases them.
#[test]
fn a_function_that_is_called_keeps_nothing() {
    let (root, _cancel) = with_cancel(&background());
    let (child, _) = deep(&root, 3);
    let (timed, _) = with_timeout(&child, Duration::from_millis(1));
    let dones = [watch(&child), watch(&timed)];
    drop(after_func(&timed, || ()));
    drop((child, timed));
    eventually(|| followers(&root) == 0 && dones.iter().all(|done| done.upgrade().is_none()));
}

#[test]
fn a_future_follows_from_its_first_poll_to_its_end() {
    let (ctx, cancel) = with_cancel(&background());
    let mut cx = std::task::Context::from_waker(Waker::noop());
    {
        let mut future = pin!(ctx.done());
        assert_eq!(followers(&ctx), 0);
        for _ in 0..2 {
            assert_eq!(future.as_mut().poll(&mut cx), Poll::Pending);
            assert_eq!(followers(&ctx), 1);
        }
    }
    assert_eq!(followers(&ctx), 0);
    let mut future = pin!(ctx.done());
    assert_eq!(future.as_mut().poll(&mut cx), Poll::Pending);
    cancel.cancel();
    assert_eq!(future.as_mut().poll(&mut cx), Poll::Ready(Error::Canceled));
}

/// Checks that a second stop by a handle stops no other follower that has taken the place of that handle in the slab.
#[test]
fn a_place_that_is_taken_again_is_not_mistaken() {
    let (ctx, _cancel) = with_cancel(&background());
    let first = after_func(&ctx, || ());
    assert!(first.stop());
    let second = after_func(&ctx, || ());
    assert!(!first.stop());
    assert!(second.stop());
    // Insert many followers, and then few.
    let many: Vec<_> = (0..100).map(|_| after_func(&ctx, || ())).collect();
    assert!(many.iter().all(AfterFunc::stop));
    let third = after_func(&ctx, || ());
    assert!(!many.iter().any(AfterFunc::stop));
    assert!(third.stop());
}

// ---- depth ----------------------------------------------------------------------------------------------------------

/// Uses a small stack: a recursive drop would overflow it.
#[test]
fn a_child_of_one_that_has_ended_has_ended() {
    let (parent, cancel) = with_cancel_cause(&background());
    cancel.cancel("enough");
    let (child, _cancel) = with_cancel(&parent);
    let (timed, stop) = with_timeout(&child, LONG);
    for ctx in [&child, &timed] {
        assert_eq!((ctx.err(), ctx.wait()), (Some(Error::Canceled), Error::Canceled));
        assert_eq!(ctx.cause().unwrap().to_string(), "enough");
        assert!(ctx.limit().cancel.unwrap().is_cancelled() && ctx.done_chan().is_closed());
    }
    stop.cancel(); // does not wait for anything
    assert_eq!((followers(&parent), followers(&child)), (0, 0));
    let gone = [watch(&child), watch(&timed)];
    drop((child, _cancel, timed, stop));
    assert!(gone.iter().all(|done| done.strong_count() == 0), "no list and no alarm keeps it");
}

/// A context never has an error and an open channel at the same time. This test looks when the parent's follower has
/// been told and the child's channel has not been reached.
#[test]
fn where_the_error_is_seen_the_channel_is_closed() {
    struct Look {
        child: Context,
        seen: AtomicU32,
    }
    impl std::task::Wake for Look {
        fn wake(self: Arc<Self>) {
            assert_eq!(self.child.err(), Some(Error::Canceled));
            self.seen.store(1 + u32::from(self.child.done_chan().is_closed()), SeqCst);
        }
    }
    let (parent, cancel) = with_cancel(&background());
    let (child, _cancel) = with_cancel(&parent);
    assert!(!child.done_chan().is_closed());
    let look = Arc::new(Look { child, seen: AtomicU32::new(0) });
    let mut done = pin!(parent.done());
    assert!(done.as_mut().poll(&mut std::task::Context::from_waker(&Waker::from(look.clone()))).is_pending());
    cancel.cancel();
    assert_eq!(look.seen.load(SeqCst), 2);
}

fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(128 << 10).spawn(f).unwrap().join().unwrap();
}

#[test]
fn a_deep_line_is_cancelled_and_dropped() {
    on_a_small_stack(|| {
        let (root, cancel) = with_cancel(&background());
        let (deepest, _) = deep(&root, DEEP);
        cancel.cancel();
        assert_eq!(deepest.err(), Some(Error::Canceled));
    });
}

#[test]
fn a_deep_line_is_dropped_from_either_end() {
    static KEY: Key<u32> = Key::new("key");
    on_a_small_stack(|| {
        let root = with_value(&background(), &KEY, 7);
        let (root, cancel) = with_timeout(&root, LONG);
        let (deepest, _) = deep(&root, DEEP);
        assert_eq!(deepest.value(&KEY), Some(&7));
        assert!(deepest.to_string().ends_with(".WithCancel.WithCancel"));
        let done = watch(&root);
        drop((root, cancel));
        assert!(done.upgrade().is_some());
        drop(deepest);
        assert!(done.upgrade().is_none());
    });
}

/// A chain of contexts that is kept for a function at its end, and that no handle can cancel once its root is dropped.
#[test]
fn a_deep_unused_chain_is_dropped() {
    on_a_small_stack(|| {
        let (root, cancel) = with_cancel(&background());
        let (deepest, _) = deep(&root, DEEP);
        let witness = Arc::new(());
        let theirs = witness.clone();
        drop(after_func(&deepest, move || drop(theirs)));
        let done = watch(&deepest);
        drop((root, deepest));
        assert!(done.upgrade().is_some() && Arc::strong_count(&witness) == 2);
        drop(cancel);
        assert!(done.upgrade().is_none() && Arc::strong_count(&witness) == 1);
    });
}

#[test]
fn a_deep_line_is_left_upwards_when_its_function_is_stopped() {
    on_a_small_stack(|| {
        let (root, _cancel) = with_cancel(&background());
        let (deepest, _) = deep(&root, DEEP);
        let stop = after_func(&deepest, || ());
        drop(deepest);
        assert_eq!(followers(&root), 1);
        assert!(stop.stop());
        assert_eq!(followers(&root), 0);
    });
}
