//! The memory of pending timers, delayed calls and contexts, and that none of this memory is left after their drops, in
//! whatever order. These tests need a process of their own, because they count the bytes of all threads.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Waker};
use std::time::Duration;

use sudog::chan::{Chan, select};
use sudog::context::{self, Context, after_func as after_context, background, with_cancel, with_timeout};
use sudog::runtime::num_goroutine;
use sudog::time::{Ticker, Timer, after, after_func};
use sudog_runtime::chan::RecvStream;
use support::counting::bytes;
use support::{Watchdog, eventually};

const HOUR: Duration = Duration::from_secs(3600);
const N: usize = 30_000;
/// The bytes that are allowed for one-time allocations: room of tables, threads.
const ONCE: isize = 20 << 10;

/// Asserts that each of `N` results of `make` uses at most `limit` bytes while pending, and that all bytes are freed
/// after the drops.
///
/// The bytes of goroutines' stacks are not counted, so the number of goroutines is checked, too.
fn pending<T>(what: &str, limit: isize, mut make: impl FnMut() -> T) {
    let before = bytes();
    let goroutines = num_goroutine();
    let mut all = Vec::with_capacity(N);
    all.extend((0..N).map(|_| make()));
    let each = (bytes() - before) / N as isize;
    println!("{what}: {each} bytes each");
    assert!(each <= limit, "{what}: {each} bytes each");
    assert_eq!(num_goroutine(), goroutines, "{what}");
    drop(all);
    is_flat(what, before);
}

/// Asserts that many rounds in a row leave no memory behind.
fn leaves_nothing(what: &str, n: usize, mut round: impl FnMut()) {
    round();
    let before = bytes();
    (0..n).for_each(|_| round());
    is_flat(what, before);
}

#[track_caller]
fn is_flat(what: &str, before: isize) {
    // Other threads may still be freeing memory.
    eventually(|| bytes() - before < ONCE);
    println!("{what}: {} bytes are left", bytes() - before);
}

/// Polls once, with a waker that does nothing, but that the runtime does not know as a no-op waker.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>) {
    struct Nothing;
    impl std::task::Wake for Nothing {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    let waker = Waker::from(std::sync::Arc::new(Nothing));
    assert!(future.poll(&mut TaskContext::from_waker(&waker)).is_pending());
}

struct Stops(sudog::time::AfterFunc);

impl Drop for Stops {
    fn drop(&mut self) {
        assert!(self.0.stop());
    }
}

/// Checks each pending object against its limit.
fn each_costs_little() {
    let (server, _cancel) = with_cancel(&background());
    pending("time::after", 256, || after(HOUR));
    pending("Ticker", 256, || Ticker::new(HOUR));
    pending("after_func", 256, || Stops(after_func(HOUR, || ())));
    pending("after_func at the end of time", 256, || Stops(after_func(Duration::MAX, || ())));
    pending("a timer's future", 1024, || {
        let timer: &'static Timer = Box::leak(Box::new(after(HOUR)));
        let mut future = timer.recv_async();
        poll(Pin::new(&mut future));
        OnDrop(Some((future, timer)))
    });
    pending("with_cancel", 512, || with_cancel(&server));
    pending("with_timeout", 768, || with_timeout(&server, HOUR));
    pending("context::after_func", 256, || StopsContext(after_context(&server, || ())));
    pending("a clone of done_chan()", 768, || {
        let (request, _) = with_cancel(&server);
        request.done_chan().clone()
    });
    pending("a stream of done_chan()", 1024, || {
        let (request, _) = with_cancel(&server);
        Box::pin(RecvStream::new(request.done_chan().clone()))
    });
    pending("done()", 1024, || {
        let (request, _) = with_cancel(&server);
        let mut done = Box::pin(request.done());
        poll(done.as_mut());
        done
    });
}

/// A guard that drops a future and then frees the leaked timer of that future.
struct OnDrop(Option<(sudog::time::TimerFuture<'static>, &'static Timer)>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some((future, timer)) = self.0.take() {
            drop(future);
            // SAFETY: `timer` came from `Box::leak`, and its only borrower, `future`, has been dropped.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(timer).cast_mut()) });
        }
    }
}

struct StopsContext(context::AfterFunc);

impl Drop for StopsContext {
    fn drop(&mut self) {
        assert!(self.0.stop());
    }
}

/// Makes and drops objects under a parent and beside a clock, which both stay: no memory is left.
fn nothing_is_left() {
    let (server, _cancel) = with_cancel(&background());
    leaves_nothing("after_func and stop", 300_000, || assert!(after_func(HOUR, || ()).stop()));
    leaves_nothing("a select beside after", N, || {
        let ready = Chan::new(1);
        ready.send(());
        select! { recv(ready) => {}, recv(after(HOUR)) => unreachable!() }
    });
    leaves_nothing("a timer's future that is dropped", N, || {
        let timer = after(HOUR);
        poll(Pin::new(&mut timer.recv_async()));
    });
    leaves_nothing("a timer that is reset and stopped", N, || {
        let timer = after(HOUR);
        let mut future = timer.recv_async();
        poll(Pin::new(&mut future));
        assert!(timer.reset(2 * HOUR) && timer.stop());
    });
    type Drops = fn(Context, context::CancelFunc);
    let orders: [(&str, Drops); 5] = [
        ("context, cancel, channel", |ctx, cancel| {
            let done = ctx.done_chan().clone();
            drop(ctx);
            drop(cancel);
            drop(done);
        }),
        ("channel, context", |ctx, cancel| {
            let done = ctx.done_chan().clone();
            drop(cancel);
            drop(done);
            drop(ctx);
        }),
        ("context, child's channel", |ctx, _cancel| {
            let (child, forget) = with_timeout(&ctx, HOUR / 2);
            let (done, theirs) = (ctx.done_chan().clone(), child.done_chan().clone());
            drop((forget, ctx, child));
            drop(done);
            drop(theirs);
        }),
        ("context, stream, call", |ctx, cancel| {
            let mut done = Box::pin(RecvStream::new(ctx.done_chan().clone()));
            let waker = Waker::noop();
            use futures_core::Stream;
            assert!(done.as_mut().poll_next(&mut TaskContext::from_waker(waker)).is_pending());
            let call = after_context(&ctx, || unreachable!());
            drop((ctx, cancel));
            assert!(call.stop());
            drop(done);
            drop(call);
        }),
        ("context, future, channel", |ctx, cancel| {
            let mut done = Box::pin(ctx.done());
            poll(done.as_mut());
            let channel = ctx.done_chan().clone();
            drop((ctx, cancel));
            drop(done);
            drop(channel);
        }),
    ];
    for (what, drops) in orders {
        leaves_nothing(what, N, || {
            let (request, cancel) = with_timeout(&server, HOUR);
            drops(request, cancel);
        });
    }
}

/// A single test, because it counts the bytes of all threads.
#[test]
fn memory() {
    let watchdog = Watchdog::new();
    let checks = || {
        each_costs_little();
        watchdog.pat();
        nothing_is_left();
        watchdog.pat();
    };
    checks(); // on a thread; below, on a goroutine
    sudog::run(checks);
}
