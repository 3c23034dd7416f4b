//! Regressions at the edges between user code and the runtime: a commit, a local's second value, or an alarm's waker.
//! `user_code.rs` has the same places, and more, with everything that user code may do.
#![cfg(all(unix, feature = "locks", not(sudog_loom)))]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Wake as WakeTask, Waker};
use std::thread;
use std::time::{Duration, Instant};

use corosensei::{Coroutine, CoroutineResult, Yielder};
use sudog::low_level::sema::{Wake, semacquire, semrelease};
use sudog::low_level::{G, ParkResult};
use sudog::runtime::{Goexit, goexit, gosched};
use sudog::sync::{GoMutex, RwMutex, WaitGroup};
use sudog::time::{sleep, sleep_async};
use sudog::{
    Builder, JoinHandle, LocalKey, OnPanic, Placement, block_on, context, go, go_async, goroutine_local, run, spawn,
    spawn_async,
};
use support::goroutine::{alone_with, one_worker, until};
use support::{Watchdog, eventually};

/// A guard that runs a closure when it is dropped.
struct Then<F: FnMut()>(F);

impl<F: FnMut()> Drop for Then<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn here() -> Builder {
    Builder::new().on(Placement::Here)
}

/// Asserts that `f` panics, and catches the panic.
fn caught(f: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
}

/// Runs `f` on a goroutine, and on a thread that is no goroutine.
fn on_both(f: fn()) {
    run(f);
    thread::spawn(f).join().unwrap();
}

// ---- locals ---------------------------------------------------------------------------------------------------------

/// A lent value stays, whatever the destructor of another key's second value does.
#[test]
fn a_second_value_that_panics_takes_no_other_value_along() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Lent(u32);
    impl Drop for Lent {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, SeqCst);
        }
    }
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "a destructor that panics");
        }
    }
    goroutine_local! {
        static WITHIN: Cell<bool> = Cell::new(false);
        static LENT: Lent = Lent(7);
        static KEY: Bomb = {
            let first = !WITHIN.with(|within| within.replace(true));
            if first {
                KEY.with(|second| assert!(!second.0));
            }
            Bomb(first)
        };
    }
    let _watchdog = Watchdog::new();
    on_both(|| {
        let before = DROPPED.load(SeqCst);
        LENT.with(|lent| {
            caught(|| KEY.with(|_| ()));
            assert_eq!((DROPPED.load(SeqCst), lent.0), (before, 7));
            LENT.with(|again| assert!(std::ptr::eq(lent, again)));
        });
        KEY.with(|kept| assert!(!kept.0, "the first value stays"));
    });
    assert_eq!(DROPPED.load(SeqCst), 2);
}

/// A second value's destructor makes so many other locals that their map grows; all these locals stay.
#[test]
fn a_second_value_may_use_locals_as_it_is_dropped() {
    struct Grower(bool, &'static str);
    impl Drop for Grower {
        fn drop(&mut self) {
            if self.0 {
                [&A, &B, &C, &D, &E, &F, &G, &H].into_iter().for_each(|key| key.with(|cell| cell.set(cell.get() + 1)));
            }
        }
    }
    goroutine_local! {
        static WITHIN: Cell<bool> = Cell::new(false);
        static A: Cell<u32> = Cell::new(0);
        static B: Cell<u32> = Cell::new(0);
        static C: Cell<u32> = Cell::new(0);
        static D: Cell<u32> = Cell::new(0);
        static E: Cell<u32> = Cell::new(0);
        static F: Cell<u32> = Cell::new(0);
        static G: Cell<u32> = Cell::new(0);
        static H: Cell<u32> = Cell::new(0);
        static KEY: Grower = if WITHIN.with(|within| within.replace(true)) {
            Grower(false, "the first")
        } else {
            KEY.with(|_| ());
            Grower(true, "the second")
        };
    }
    let _watchdog = Watchdog::new();
    on_both(|| {
        KEY.with(|key| assert_eq!(key.1, "the first"));
        for key in [&A, &B, &C, &D, &E, &F, &G, &H] {
            assert_eq!(key.with(Cell::get), 1);
        }
        WITHIN.with(|within| assert!(within.get()));
    });
}

/// A value in a goroutine-local, which counts its drops.
struct Lent<'a>(Vec<u32>, &'a AtomicUsize);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
    }
}

thread_local! {
    /// A coroutine of another library: it may outlive the goroutine in which it began.
    static FOREIGN: RefCell<Option<Coroutine<(), (), ()>>> = const { RefCell::new(None) };
}

/// Begins a coroutine that is suspended while it uses a local, and leaves the coroutine in `FOREIGN`.
fn suspend_inside(key: &'static LocalKey<Lent<'static>>) {
    let mut foreign = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
        key.with(|value| {
            // The check also runs if the coroutine is dropped while it is suspended.
            let _check = Then(|| {
                assert_eq!(value.1.load(SeqCst), 0, "the value was dropped while it was lent");
                assert_eq!(value.0, [1, 2, 3]);
            });
            yielder.suspend(());
        });
    });
    assert!(matches!(foreign.resume(()), CoroutineResult::Yield(())));
    FOREIGN.with(|place| *place.borrow_mut() = Some(foreign));
}

/// Begins a coroutine of another library in a goroutine, suspends the coroutine inside `wait`, and ends the goroutine and its
/// stack. Then resumes the coroutine in another goroutine.
fn outlives_its_goroutine(wait: fn(&Yielder<(), ()>)) -> thread::Result<()> {
    run(|| {
        let begin = move || {
            let mut foreign = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| wait(yielder));
            assert!(matches!(foreign.resume(()), CoroutineResult::Yield(())));
            FOREIGN.set(Some(foreign));
        };
        // A stack of another size than the default is unmapped when the goroutine has ended.
        Builder::new().on(Placement::Here).stack_size(64 << 10).spawn(begin).join().unwrap();
        gosched();
        let mut foreign = FOREIGN.take().unwrap();
        catch_unwind(AssertUnwindSafe(|| _ = foreign.resume(())))
    })
}

#[test]
fn a_block_on_that_outlives_its_goroutine_touches_nothing() {
    let _watchdog = Watchdog::new();
    let ended = outlives_its_goroutine(|yielder| {
        block_on(std::future::poll_fn(|_| {
            yielder.suspend(());
            Poll::Ready(())
        }));
    });
    ended.unwrap();
}

#[test]
fn a_park_that_outlives_its_goroutine_panics() {
    let _watchdog = Watchdog::new();
    let ended = outlives_its_goroutine(|yielder| {
        _ = G::current().park(Some(Instant::now() + Duration::from_secs(1)), || yielder.suspend(()));
    });
    assert_eq!(
        ended.unwrap_err().downcast_ref::<&str>(),
        Some(&"a G was parked by another than the goroutine that it stands for")
    );
}

/// The frames of a coroutine of another library are not nested in the frames of the goroutine that began the coroutine.
#[test]
fn a_local_that_a_foreign_coroutine_uses_is_not_dropped() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static LENT: Lent<'static> = Lent(vec![1, 2, 3], &DROPS);
    }
    let _watchdog = Watchdog::new();
    let resume = || {
        let mut foreign = FOREIGN.take().unwrap();
        assert_eq!(DROPS.load(SeqCst), 0, "the value was dropped while it was lent");
        assert!(matches!(foreign.resume(()), CoroutineResult::Return(())));
    };
    run(|| {
        Builder::new().on(Placement::Here).spawn(|| suspend_inside(&LENT)).join().unwrap();
        resume(); // in another goroutine
        resume_in_next(&LENT, resume);
    });
    // A task's locals last for a single poll.
    one_worker(move || {
        spawn_async(async { suspend_inside(&LENT) }).join().unwrap();
        resume();
    });
    // A thread has locals of its own. `FOREIGN` is destroyed after these locals, because `FOREIGN` was used first.
    thread::spawn(|| {
        FOREIGN.with(|_| ());
        suspend_inside(&LENT);
    })
    .join()
    .unwrap();
    assert_eq!(DROPS.load(SeqCst), 0);
}

/// Resumes the coroutine in another goroutine, which has locals of its own. These are dropped as usual.
fn resume_in_next(key: &'static LocalKey<Lent<'static>>, resume: impl Fn() + Copy + Send + 'static) {
    static OWN: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static OTHER: Lent<'static> = Lent(vec![], &OWN);
    }
    Builder::new().on(Placement::Here).spawn(move || suspend_inside(key)).join().unwrap();
    let next = move || {
        OTHER.with(|_| ());
        resume();
    };
    Builder::new().on(Placement::Here).spawn(next).join().unwrap();
    assert_eq!(OWN.load(SeqCst), 1);
}

/// A coroutine that has returned no longer uses its local, nor does a coroutine that is dropped before the goroutine
/// ends.
#[test]
fn a_local_that_a_foreign_coroutine_has_used_is_dropped() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static LENT: Lent<'static> = Lent(vec![1, 2, 3], &DROPS);
    }
    let _watchdog = Watchdog::new();
    run(|| {
        for resumes in [true, false] {
            let end = move || {
                suspend_inside(&LENT);
                let mut foreign = FOREIGN.take().unwrap();
                if resumes {
                    foreign.resume(());
                }
                drop(foreign);
                assert_eq!(DROPS.load(SeqCst), 0);
            };
            spawn(end).join().unwrap();
            assert_eq!(DROPS.swap(0, SeqCst), 1);
        }
    });
}

// ---- the commit of a park -------------------------------------------------------------------------------------------

/// Waits for a permit that is released only after `early` would have ended the wait.
fn a_wait_without_deadline(early: Duration) {
    let shared = Arc::new((AtomicU32::new(0), AtomicBool::new(false)));
    let releaser = shared.clone();
    here().go(move || {
        sleep(early * 3);
        releaser.1.store(true, SeqCst);
        semrelease(&releaser.0, Wake::Normal);
    });
    semacquire(&shared.0);
    assert!(shared.1.load(SeqCst), "the wait has ended before anybody has released");
}

#[test]
fn a_commit_that_panics_leaves_no_timer() {
    let _watchdog = Watchdog::new();
    const SOON: Duration = Duration::from_millis(20);
    run(|| {
        let waits = here().spawn(|| {
            let deadline = Instant::now() + SOON;
            caught(|| _ = G::current().park(Some(deadline), || panic!("the commit")));
            a_wait_without_deadline(SOON);
        });
        waits.join().unwrap();
    });
}

/// A goroutine's stack with a size of its own is unmapped as soon as the goroutine has ended.
#[test]
fn a_goroutine_ends_while_the_deadline_of_its_failed_park_is_to_come() {
    let _watchdog = Watchdog::new();
    const SOON: Duration = Duration::from_millis(20);
    let ways: [fn(); 2] = [|| panic!("the commit"), || goexit()];
    for way in ways {
        run(move || {
            let ends = here().stack_size(64 << 10).on_panic(OnPanic::Unwind).spawn(move || {
                G::current().park(Some(Instant::now() + SOON), way);
            });
            assert!(ends.join().is_err());
            sleep(SOON * 2);
        });
    }
}

#[test]
fn a_commit_may_end_its_goroutine() {
    let _watchdog = Watchdog::new();
    const SOON: Duration = Duration::from_millis(20);
    run(|| {
        let ends = here().spawn(|| {
            G::current().park(Some(Instant::now() + SOON), || goexit());
        });
        assert!(ends.join().unwrap_err().is::<Goexit>());
        // The next goroutine has the same stack, by all likelihood.
        here().spawn(|| a_wait_without_deadline(SOON)).join().unwrap();
    });
}

/// A commit waits as long as it likes, and the other goroutines go on; then the deadline of the park still counts.
#[test]
fn a_commit_may_wait() {
    let watchdog = Watchdog::new();
    let waits: [fn(); 4] = [
        gosched,
        || sleep(Duration::from_millis(1)),
        || here().spawn(|| ()).join().unwrap(),
        || {
            assert_eq!(
                G::current().park(Some(Instant::now() + Duration::from_millis(1)), gosched),
                ParkResult::TimedOut
            )
        },
    ];
    for wait in waits {
        run(move || {
            let until = Instant::now() + Duration::from_millis(5);
            assert_eq!(G::current().park(Some(until), wait), ParkResult::TimedOut);
            assert!(Instant::now() >= until);
            a_wait_without_deadline(Duration::from_millis(5));
        });
        watchdog.pat();
    }
}

// ---- alarms ---------------------------------------------------------------------------------------------------------

/// A value whose destructor sets the flag, and blocks its thread until the sender is dropped.
struct Blocks(Receiver<()>, Arc<AtomicBool>);

impl Drop for Blocks {
    fn drop(&mut self) {
        self.1.store(true, SeqCst);
        let _ = self.0.recv();
    }
}

/// A waker of another executor, which blocks the thread that wakes.
struct WakesAndBlocks(std::sync::Mutex<Option<Blocks>>);

impl WakeTask for WakesAndBlocks {
    fn wake(self: Arc<Self>) {
        let blocks = self.0.lock().unwrap().take();
        drop(blocks);
    }
}

/// A destructor or a waker blocks its thread, and meanwhile the other alarms go off.
#[test]
fn a_destructor_that_blocks_its_thread_holds_up_no_other_alarm() {
    let watchdog = Watchdog::new();
    // The destructor belongs to a task that sleeps, or to a function of a context, or to a waker, which an alarm's own thread calls.
    let ways: [fn(Blocks) -> Box<dyn Send>; 3] = [
        |blocks| {
            let polled = Arc::new(AtomicBool::new(false));
            let is_polled = polled.clone();
            go_async(async move {
                let _blocks = blocks;
                is_polled.store(true, SeqCst);
                sleep_async(Duration::from_millis(20)).await;
            });
            until(|| polled.load(SeqCst));
            Box::new(())
        },
        |blocks| {
            let (ctx, cancel) = context::with_timeout(&context::background(), Duration::from_millis(20));
            let called = context::after_func(&ctx, move || drop(blocks));
            Box::new((ctx, cancel, called))
        },
        |blocks| {
            let mut sleep = Box::pin(sleep_async(Duration::from_millis(20)));
            let waker = Waker::from(Arc::new(WakesAndBlocks(std::sync::Mutex::new(Some(blocks)))));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            Box::new(sleep)
        },
    ];
    for way in ways {
        let (sender, receiver) = channel();
        let blocked = Arc::new(AtomicBool::new(false));
        let is_blocked = blocked.clone();
        let kept = run(move || way(Blocks(receiver, is_blocked)));
        eventually(|| blocked.load(SeqCst));
        for _ in 0..3 {
            block_on(sleep_async(Duration::from_millis(1)));
        }
        let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
        ctx.wait();
        assert_eq!(block_on(ctx.done()), context::Error::DeadlineExceeded);
        drop(sender);
        drop(kept);
        watchdog.pat();
    }
}

// ---- destructors ----------------------------------------------------------------------------------------------------

/// A reader of the same worker has been let in, but has not run yet. The writer's deadline counts all the same.
#[test]
fn a_deadline_for_writing_counts_in_a_destructor_during_a_panic() {
    let _alone = alone_with(1);
    let tried = Arc::new(AtomicBool::new(false));
    let has_tried = tried.clone();
    run(move || {
        let lock = Arc::new(RwMutex::new(0));
        let panics = here().on_panic(OnPanic::Unwind).spawn(move || {
            let write = lock.write();
            let reads = lock.clone();
            go(move || _ = *reads.read());
            (0..10).for_each(|_| gosched()); // the reader waits by now
            let _tidies = Then(|| {
                assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
                has_tried.store(true, SeqCst);
            });
            drop(write);
            panic!("after the write");
        });
        assert!(panics.join().is_err());
    });
    assert!(tried.load(SeqCst));
}

// ---- wakers whose destructors panic ---------------------------------------------------------------------------------

/// A waker that panics when its last reference is dropped.
struct PanicsWhenDropped;

impl WakeTask for PanicsWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a waker's destructor");
    }
}

/// Polls the future once, so that the future waits, and drops the future.
fn drop_with_a_waker_that_panics<F: Future>(future: F) {
    let mut future = Box::pin(future);
    let waker = Waker::from(Arc::new(PanicsWhenDropped));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker); // the future has the last reference
    assert!(catch_unwind(AssertUnwindSafe(|| drop(future))).is_err());
}

#[test]
fn a_future_whose_waker_panics_when_it_is_dropped_has_left() {
    let _watchdog = Watchdog::new();
    let group = WaitGroup::new();
    group.add(1);
    drop_with_a_waker_that_panics(group.wait_async());
    group.done();
    group.add(1);
    assert!(group.wait_limited(Instant::now()).is_err(), "a task is left");
    group.done();
    group.wait();

    let mutex = GoMutex::new();
    mutex.lock();
    drop_with_a_waker_that_panics(mutex.lock_async());
    let state = format!("{mutex:?}");
    assert!(state.contains("waiters: 0"), "a contender is left: {state}");
}

// ---- a run whose caller may not switch ------------------------------------------------------------------------------

/// A thread that must not switch begins a `run`: the goroutines of the `run` may switch.
#[test]
fn a_run_within_without_switching_switches() {
    let _watchdog = Watchdog::new();
    sudog::without_switching(|| {
        assert_eq!(one_worker(|| spawn(|| 1).join().unwrap()), 1);
        assert_eq!(run(|| spawn(|| 2).join().unwrap()), 2);
    });
    assert_eq!(run(|| spawn(|| 3).join().unwrap()), 3);
}

// ---- the waker of a handle ------------------------------------------------------------------------------------------

/// A waker that runs a closure when it wakes.
struct Wakes<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> WakeTask for Wakes<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(Wakes(f)).into()
}

/// Polls a handle whose goroutine has not ended.
fn poll_early<T>(handle: &mut JoinHandle<T>, waker: &Waker) {
    assert!(matches!(Pin::new(handle).poll(&mut Context::from_waker(waker)), Poll::Pending));
}

#[test]
fn a_waker_of_a_handle_may_panic() {
    let _watchdog = Watchdog::new();
    run(|| {
        let go_on = Arc::new(AtomicU32::new(0));
        let waits = go_on.clone();
        let mut handle = here().spawn(move || {
            semacquire(&waits);
            42
        });
        poll_early(&mut handle, &waker(|| panic!("a waker")));
        semrelease(&go_on, Wake::Normal);
        assert_eq!(handle.join().unwrap(), 42);
        here().spawn(|| ()).join().unwrap();
    });
}

/// The waker waits for a goroutine of the same worker, and that goroutine has its turn.
#[test]
fn a_waker_of_a_handle_may_wait() {
    let _watchdog = Watchdog::new();
    run(|| {
        let [go_on, asked, answered, woken] = [(); 4].map(|()| Arc::new(AtomicU32::new(0)));
        let (waits, asks, answers, wakes) = (go_on.clone(), asked.clone(), answered.clone(), woken.clone());
        let mut handle = here().spawn(move || semacquire(&waits));
        poll_early(
            &mut handle,
            &waker(move || {
                semrelease(&asked, Wake::Normal);
                semacquire(&answered);
                semrelease(&wakes, Wake::Normal);
            }),
        );
        here().go(move || {
            semacquire(&asks);
            semrelease(&answers, Wake::Normal);
        });
        semrelease(&go_on, Wake::Normal);
        handle.join().unwrap();
        semacquire(&woken);
        spawn(|| ()).join().unwrap();
    });
}
