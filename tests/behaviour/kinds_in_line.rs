//! Threads, goroutines and async tasks in the same queues, of semaphores and of mutexes; and the state that waiters
//! leave behind when they leave a queue.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Wake as _, Waker};
use std::thread;
use std::time::Duration;

use sudog::low_level::policy::{self, Policy, SpinStrategy};
use sudog::low_level::sema::{self, Acquire, Order, Wake};
use sudog::low_level::{AsyncSemaphore, RawLock, RuntimeSema, Semaphore};
use sudog::runtime::gosched;
use sudog::study::SemTable;
use sudog::sync::{GoMutex, LockAsync, Mutex, MutexGuard};
use sudog::{go, run, spawn, spawn_async};
use sudog_runtime::goroutine;
use support::goroutine::one_worker;
use support::{Watchdog, eventually};

/// A table with a single bucket: all semaphores collide.
static TABLE: SemTable<1> = SemTable::new();

/// The lock of a test that looks at the table as a whole, or runs the runtime's own workers: such tests run one at a
/// time.
static ALONE: StdMutex<()> = StdMutex::new(());

fn alone() -> impl Drop {
    ALONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

// ---- semaphores -----------------------------------------------------------------------------------------------------

#[test]
fn all_kinds_are_served_in_the_order_in_which_they_came() {
    let _watchdog = Watchdog::new();
    for wake in [Wake::Normal, Wake::Handoff] {
        static SERVED: StdMutex<Vec<usize>> = StdMutex::new(Vec::new());
        let permits: &'static AtomicU32 = Box::leak(Box::default());
        let serve = |who| SERVED.lock().unwrap().push(who);
        thread::scope(|s| {
            s.spawn(move || {
                run(|| {
                    while TABLE.waiters(permits) == 0 {
                        gosched(); // queue behind the thread
                    }
                    go(move || {
                        TABLE.acquire(permits, Order::Fifo);
                        serve(1);
                    });
                })
            });
            s.spawn(|| {
                TABLE.acquire(permits, Order::Fifo);
                serve(0);
            });
            eventually(|| TABLE.waiters(permits) == 2);
            let mut task = pin!(TABLE.acquire_async(permits, Order::Fifo));
            assert!(poll(&mut task).is_pending());
            let mut first = pin!(TABLE.acquire_async(permits, Order::Lifo));
            assert!(poll(&mut first).is_pending());
            assert_eq!(TABLE.waiters(permits), 4);
            for served in 0..4 {
                TABLE.release(permits, wake);
                match served {
                    0 => assert_eq!(poll(&mut first).map(|()| serve(9)), Poll::Ready(())),
                    3 => assert_eq!(poll(&mut task).map(|()| serve(2)), Poll::Ready(())),
                    _ => eventually(|| SERVED.lock().unwrap().len() > served),
                }
            }
        });
        assert_eq!(std::mem::take(&mut *SERVED.lock().unwrap()), [9, 0, 1, 2]);
        assert_eq!(permits.load(Relaxed), 0);
    }
}

#[test]
fn a_task_that_is_beaten_to_its_permit_goes_back_to_the_front() {
    let permits = AtomicU32::new(0);
    let mut tasks = [(); 2].map(|()| Box::pin(TABLE.acquire_async(&permits, Order::Fifo)));
    for task in &mut tasks {
        assert!(poll_once(task.as_mut()).is_pending());
    }
    let [first, second] = &mut tasks;
    for _ in 0..3 {
        TABLE.release(&permits, Wake::Normal);
        TABLE.acquire(&permits, Order::Fifo);
        assert!(poll_once(first.as_mut()).is_pending());
        assert_eq!(TABLE.waiters(&permits), 2);
    }
    TABLE.release(&permits, Wake::Normal);
    assert!(poll_once(second.as_mut()).is_pending());
    assert!(poll_once(first.as_mut()).is_ready());
}

#[test]
fn a_drop_leaves_the_line_or_passes_on() {
    let permits = AtomicU32::new(0);
    let mut tasks = [(); 4].map(|()| Box::pin(TABLE.acquire_async(&permits, Order::Fifo)));
    for task in &mut tasks {
        assert!(poll_once(task.as_mut()).is_pending());
    }
    let [first, second, third, fourth] = tasks;
    drop(second);
    assert_eq!(TABLE.waiters(&permits), 3);
    TABLE.release(&permits, Wake::Handoff);
    drop(first); // the dropped future had been granted a permit
    assert_eq!((TABLE.waiters(&permits), permits.load(Relaxed)), (1, 0), "the grant goes to the next");
    TABLE.release(&permits, Wake::Normal);
    drop(fourth); // the dropped future had been woken: no other waiter is left to be woken in its stead
    assert_eq!((TABLE.waiters(&permits), permits.load(Relaxed)), (0, 1));
    assert!({ third }.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert!(TABLE.acquire_async(&permits, Order::Fifo).poll_now().is_ready());
}

trait PollNow: Future + Sized {
    fn poll_now(self) -> Poll<Self::Output> {
        poll_once(pin!(self))
    }
}

impl<F: Future> PollNow for F {}

#[test]
#[should_panic = "a future was polled after it was ready"]
fn a_future_is_polled_once_too_often() {
    let permits = AtomicU32::new(1);
    let mut task = pin!(TABLE.acquire_async(&permits, Order::Fifo));
    assert!(poll(&mut task).is_ready());
    let _ = poll(&mut task);
}

/// Drops other futures of a line in a waker. One release has unlinked both the woken future and the dropped futures,
/// and each drop waits until the release has readied the dropped future.
#[test]
fn a_waker_may_drop_another_task() {
    struct DropOthers(StdMutex<Vec<Pin<Box<Acquire<'static>>>>>);
    impl std::task::Wake for DropOthers {
        fn wake(self: Arc<Self>) {
            let others = std::mem::take(&mut *self.0.lock().unwrap());
            drop(others);
        }
    }
    let _watchdog = Watchdog::new();
    let permits: &'static AtomicU32 = Box::leak(Box::default());
    let waker = Arc::new(DropOthers(StdMutex::default()));
    let mut first = Box::pin(TABLE.acquire_async(permits, Order::Fifo));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker.clone().into())).is_pending());
    for _ in 0..40 {
        let mut other = Box::pin(TABLE.acquire_async(permits, Order::Fifo));
        assert!(poll_once(other.as_mut()).is_pending());
        waker.0.lock().unwrap().push(other);
    }
    TABLE.release_many(permits, 41);
    assert!(poll_once(first.as_mut()).is_ready());
    assert_eq!((TABLE.waiters(permits), permits.load(Relaxed)), (0, 40));
}

/// Releases more permits than one hold of the bucket's lock can serve; no more waiters are woken than there are
/// permits.
#[test]
fn a_release_of_many_wakes_as_many() {
    let permits = AtomicU32::new(0);
    let mut tasks: Vec<_> = (0..101).map(|_| Box::pin(TABLE.acquire_async(&permits, Order::Fifo))).collect();
    assert!(tasks.iter_mut().all(|task| poll_once(task.as_mut()).is_pending()));
    for (released, left) in [(1, 100), (32, 68), (67, 1)] {
        TABLE.release_many(&permits, released);
        assert_eq!(TABLE.waiters(&permits), left);
    }
    let ready = tasks.iter_mut().filter_map(|task| poll_once(task.as_mut()).is_ready().then_some(())).count();
    assert_eq!((ready, permits.load(Relaxed)), (100, 0));
}

/// Grants many permits at once: a waiter that has been granted a permit has that permit, though the counter stays at 0.
#[test]
fn a_grant_of_many_is_for_as_many() {
    let permits = AtomicU32::new(0);
    let mut tasks: Vec<_> = (0..101).map(|_| Box::pin(TABLE.acquire_async(&permits, Order::Fifo))).collect();
    assert!(tasks.iter_mut().all(|task| poll_once(task.as_mut()).is_pending()));
    for (granted, left) in [(0, 101), (1, 100), (32, 68), (67, 1), (5, 0)] {
        TABLE.grant_many(&permits, granted);
        assert_eq!((TABLE.waiters(&permits), permits.load(Relaxed)), (left, if left == 0 { 4 } else { 0 }));
    }
    // A future that is dropped gives its grant back.
    drop(tasks.pop());
    assert_eq!(permits.load(Relaxed), 5);
    assert!(tasks.iter_mut().all(|task| poll_once(task.as_mut()).is_ready()));
    assert_eq!(permits.load(Relaxed), 5);
}

/// Checks that a release wakes the waker of the last poll, and that the earlier wakers are dropped.
#[test]
fn the_last_waker_is_woken() {
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let permits = AtomicU32::new(0);
    let (one, two) = (Arc::<Count>::default(), Arc::<Count>::default());
    let mut task = pin!(TABLE.acquire_async(&permits, Order::Fifo));
    for waker in [&one, &one, &two] {
        assert!(task.as_mut().poll(&mut Context::from_waker(&waker.clone().into())).is_pending());
    }
    assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (1, 2));
    TABLE.release(&permits, Wake::Normal);
    assert_eq!((one.0.load(Relaxed), two.0.load(Relaxed)), (0, 1));
    assert_eq!(Arc::strong_count(&two), 1);
    two.wake_by_ref();
    assert!(poll(&mut task).is_ready());
}

// ---- mutexes --------------------------------------------------------------------------------------------------------

/// A policy under which a waiter starves as soon as it has slept and lost the race, and under which no thread watches.
enum AtOnce {}
impl Policy for AtOnce {
    const THRESHOLD: Duration = Duration::from_nanos(1);
    const STRATEGY: SpinStrategy = SpinStrategy::Spin { rounds: 0, pauses: 0 };
}

type Bare = GoMutex<RuntimeSema, AtOnce>;

#[track_caller]
fn assert_state<P: Policy>(mutex: &GoMutex<RuntimeSema, P>, locked: bool, woken: bool, starving: bool, waiters: u32) {
    let state = format!("GoMutex {{ locked: {locked}, woken: {woken}, starving: {starving}, waiters: {waiters}, .. }}");
    assert_eq!(format!("{mutex:?}"), state);
}

#[test]
fn a_task_goes_through_all_the_states() {
    let mutex = Bare::const_new();
    assert!(mutex.lock_async().poll_now().is_ready());
    let mut task = pin!(mutex.lock_async());
    assert!(poll(&mut task).is_pending());
    assert_state(&mutex, true, false, false, 1);
    mutex.unlock();
    assert_state(&mutex, false, true, false, 0);
    assert!(mutex.try_lock(), "in normal mode a newcomer may overtake");
    assert!(poll(&mut task).is_pending());
    assert_state(&mutex, true, false, true, 1);
    mutex.unlock();
    assert_state(&mutex, false, false, true, 1);
    assert!(!mutex.try_lock(), "a newcomer overtook one who starves");
    assert!(poll(&mut task).is_ready());
    assert_state(&mutex, true, false, false, 0);
    mutex.unlock();
    assert_state(&mutex, false, false, false, 0);
}

/// Drops a task at each stage of its wait, with and without another task in line behind it.
#[test]
fn a_task_that_is_dropped_passes_on_what_it_has() {
    for another in [false, true] {
        for dropped_after in 0..5 {
            let mutex = Bare::const_new();
            mutex.lock();
            let mut task = Box::pin(mutex.lock_async());
            let mut behind = pin!(mutex.lock_async());
            if dropped_after > 0 {
                assert!(poll_once(task.as_mut()).is_pending());
            }
            if another {
                assert!(poll(&mut behind).is_pending());
            }
            let mut locked = true;
            if dropped_after > 1 {
                mutex.unlock(); // wakes the task or the other task
                locked = false;
            }
            if dropped_after > 2 {
                assert!(mutex.try_lock());
                assert!(poll_once(task.as_mut()).is_pending()); // the task has lost, and starves
                locked = true;
            }
            if dropped_after > 3 {
                mutex.unlock(); // hands the mutex to the task
                locked = false;
            }
            drop(task);
            if locked {
                mutex.unlock();
            }
            if another {
                assert!(poll(&mut behind).is_ready(), "after {dropped_after}");
                mutex.unlock();
            }
            assert_state(&mutex, false, false, false, 0);
        }
    }
}

/// Runs all kinds of contenders at once, some of which give up. A count checks exclusion; the watchdog checks wake-ups.
fn hammer<P: Policy>(mutex: &'static GoMutex<RuntimeSema, P>) {
    const EACH: u64 = 300;
    let _alone = alone();
    let watchdog = Watchdog::new();
    let (inside, turns): (&AtomicU64, &AtomicU64) = (Box::leak(Box::default()), Box::leak(Box::default()));
    let turn = move |got: bool, pause: bool| {
        if got {
            let n = inside.load(Relaxed);
            if pause {
                gosched();
            }
            inside.store(n + 1, Relaxed);
            turns.fetch_add(1, Relaxed);
            mutex.unlock();
        }
    };
    let by_blocking = move |who: u64| {
        for i in 0..EACH {
            if (who + i).is_multiple_of(3) {
                turn(mutex.try_lock_for(Duration::from_micros(i % 50)), i % 16 == 0);
            } else {
                mutex.lock();
                turn(true, i % 16 == 0);
            }
        }
    };
    let by_polling = move |who: u64| async move {
        for i in 0..EACH {
            if (who + i).is_multiple_of(3) {
                let polls = i % 4;
                let mut left = polls;
                let mut lock = pin!(mutex.lock_async());
                let got = std::future::poll_fn(|cx| {
                    if lock.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(true);
                    }
                    left = left.saturating_sub(1);
                    if left == 0 { Poll::Ready(false) } else { Poll::Pending }
                });
                let got = got.await;
                turn(got, false);
            } else {
                mutex.lock_async().await;
                turn(true, false);
            }
        }
    };
    thread::scope(|s| {
        for who in 0..2 {
            s.spawn(move || by_blocking(who));
        }
        goroutine::run(|| {
            let goroutines: Vec<_> = (0..20).map(|who| spawn(move || by_blocking(who))).collect();
            let tasks: Vec<_> = (0..20).map(|who| spawn_async(by_polling(who))).collect();
            by_blocking(0);
            for handle in goroutines.into_iter().chain(tasks) {
                handle.join().unwrap();
                watchdog.pat();
            }
        });
    });
    assert_eq!(inside.load(Relaxed), turns.load(Relaxed));
    assert_state(mutex, false, false, false, 0);
}

#[test]
fn all_kinds_at_once_by_the_policy_for_threads() {
    static MUTEX: GoMutex = GoMutex::new();
    hammer(&MUTEX);
}

#[test]
fn all_kinds_at_once_by_gos_policy() {
    static MUTEX: GoMutex<RuntimeSema, policy::Go> = GoMutex::const_new();
    hammer(&MUTEX);
}

#[test]
fn all_kinds_at_once_with_starvation_at_once() {
    static MUTEX: Bare = GoMutex::const_new();
    hammer(&MUTEX);
}

/// Runs on one worker: without giving way, an owner that locks again and again would never let the waiter run that its
/// unlock has woken.
#[test]
fn a_goroutine_that_hogs_a_mutex_gives_way() {
    fn check<P: Policy>(mutex: &'static GoMutex<RuntimeSema, P>) {
        let _watchdog = Watchdog::new();
        let over: &AtomicBool = Box::leak(Box::default());
        one_worker(|| {
            go(|| {
                mutex.lock();
                over.store(true, Relaxed);
                mutex.unlock();
            });
            mutex.lock();
            while mutex.waiters() == 0 {
                gosched();
            }
            while !over.load(Relaxed) {
                mutex.unlock();
                mutex.lock();
            }
            mutex.unlock();
        });
        assert_state(mutex, false, false, false, 0);
    }
    static THREADS: GoMutex = GoMutex::new();
    static GO: GoMutex<RuntimeSema, policy::Go> = GoMutex::const_new();
    check(&THREADS);
    check(&GO);
}

#[test]
#[allow(clippy::await_holding_lock)] // the test checks that a guard may be held across an await
fn a_guard_from_a_task() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    static TOTAL: Mutex<u64> = Mutex::new(0);
    let _alone = alone();
    let _watchdog = Watchdog::new();
    goroutine::run(|| {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                spawn_async(is_send(async {
                    for _ in 0..20 {
                        let mut total: MutexGuard<'_, u64> = TOTAL.lock_async().await;
                        let seen = *total;
                        std::future::ready(()).await; // a guard may be held across a wait
                        *total = seen + 1;
                    }
                }))
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    assert_eq!(*TOTAL.lock(), 1000);
    let mut waits = pin!(TOTAL.lock_async());
    let guard = TOTAL.lock();
    assert!(poll(&mut waits).is_pending());
    drop(guard);
    match poll(&mut waits) {
        Poll::Ready(guard) => assert_eq!(*guard, 1000),
        Poll::Pending => panic!("woken, and the mutex is free"),
    }
    assert!(!TOTAL.is_locked());
}

/// The runtime's semaphore, which also records the semaphore that a waiter used last, so that a test can see that
/// queue.
struct SeenSema(AtomicU32);

static LINE: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

impl SeenSema {
    fn seen(&self) -> &AtomicU32 {
        LINE.store((&raw const self.0).cast_mut(), Relaxed);
        &self.0
    }

    /// The number of waiters in the recorded queue.
    fn waiters() -> usize {
        // SAFETY: `LINE` is null, or the address of the count of a semaphore that the test has leaked.
        unsafe { LINE.load(Relaxed).as_ref() }.map_or(0, sema::waiters)
    }
}

// SAFETY: each method calls the function of the runtime's semaphore on the same count, so the contract of `Semaphore`
// holds as for the runtime's semaphore.
unsafe impl Semaphore for SeenSema {
    const LIFO: bool = true;
    const FIFO: bool = true;
    const HANDOFF: bool = true;
    const DEADLINES: bool = false;

    fn new(permits: u32) -> Self {
        Self(AtomicU32::new(permits))
    }

    fn acquire(&self, order: Order) {
        sema::semacquire_mutex(self.seen(), order);
    }

    fn try_acquire(&self) -> bool {
        sema::try_semacquire(&self.0)
    }

    fn release(&self, wake: Wake) {
        sema::semrelease(&self.0, wake);
    }
}

// SAFETY: `acquire_async` returns the future of the runtime's semaphore on the same count, so the contract of
// `AsyncSemaphore` holds as for the runtime's semaphore.
unsafe impl AsyncSemaphore for SeenSema {
    type Acquire<'a> = Acquire<'a>;

    fn acquire_async(&self, order: Order) -> Acquire<'_> {
        sema::semacquire_mutex_async(self.seen(), order)
    }
}

/// Checks that threads, goroutines and tasks that contend for one mutex get it in the order in which they arrived: no
/// newcomer arrives meanwhile, so normal mode is first in, first out.
#[test]
fn one_mutex_serves_all_kinds_in_the_order_in_which_they_came() {
    const N: usize = 12;
    static SERVED: StdMutex<Vec<usize>> = StdMutex::new(Vec::new());
    let _alone = alone();
    let _watchdog = Watchdog::new();
    let mutex: &'static GoMutex<SeenSema, policy::Go> = Box::leak(Box::new(RawLock::new()));
    let serve = |who| {
        SERVED.lock().unwrap().push(who);
        mutex.unlock();
    };
    mutex.lock();
    let mut threads = Vec::new();
    for who in 0..N {
        match who % 3 {
            0 => threads.push(thread::spawn(move || {
                mutex.lock();
                serve(who);
            })),
            1 => go(move || {
                mutex.lock();
                serve(who);
            }),
            _ => goroutine::go_async(async move {
                mutex.lock_async().await;
                serve(who);
            }),
        }
        eventually(|| SeenSema::waiters() == who + 1);
    }
    mutex.unlock();
    threads.into_iter().for_each(|it| it.join().unwrap());
    eventually(|| SERVED.lock().unwrap().len() == N);
    assert_eq!(*SERVED.lock().unwrap(), (0..N).collect::<Vec<_>>());
}
