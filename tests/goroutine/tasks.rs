//! Stackless goroutines, and futures on goroutines and threads.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::{Future, poll_fn};
use std::panic::{catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake as WakeTask, Waker};
use std::thread;
use std::time::Duration;

use sudog::chan::{Chan, select_async};
use sudog::context::background;
use sudog::low_level::sema::{Wake, semacquire, semacquire_async, semrelease, semrelease_many, waiters};
use sudog::runtime::{Goexit, goexit, num_goroutine};
use sudog::sync::{GoMutex, LockAsync, Mutex};
use sudog::time::{sleep, sleep_async};
use sudog::{
    JoinHandle, WaitError, WaitLimit, block_on, blocking, go, go_async, goroutine_local, on_goroutine, run, spawn,
    spawn_async,
};
use support::goroutine::{Dropped, alone, one_worker, text, until};
use support::{Watchdog, eventually};

/// Yields once: pending at the first poll, ready at the second.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

// ---- tasks ----------------------------------------------------------------------------------------------------------

#[test]
fn tasks_run() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    go_async(async { semrelease(&DONE, Wake::Normal) });
    semacquire(&DONE);
    run(|| {
        for _ in 0..1000 {
            go_async(async {
                yield_once().await;
                assert!(on_goroutine());
                go_async(async { semrelease(&DONE, Wake::Normal) });
            });
        }
        (0..1000).for_each(|_| semacquire(&DONE));
    });
}

#[test]
fn results_and_panics_of_tasks() {
    let _alone = alone();
    run(|| {
        let sum = spawn_async(async {
            let halves = [spawn_async(async { 20 }), spawn_async(async { 22 })];
            let mut sum = 0;
            for half in halves {
                sum += half.await.unwrap();
            }
            sum + spawn(|| 0).await.unwrap()
        });
        assert_eq!(sum.join().unwrap(), 42);
        let panics = spawn_async(async {
            yield_once().await;
            resume_unwind(Box::new("in a task"));
        });
        assert_eq!(text(&*panics.join().unwrap_err()), "in a task");
        assert!(spawn_async(async { goexit() }).join().unwrap_err().is::<Goexit>());
        go_async(async { goexit() }); // the process goes on
    });
}

#[test]
fn a_future_is_dropped_when_it_is_ready() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    run(|| {
        let dropped = Dropped(&DROPS);
        let handle = spawn_async(async move {
            let _dropped = dropped;
            yield_once().await;
        });
        handle.join().unwrap();
        until(|| DROPS.load(Relaxed) == 1);
    });
}

#[test]
fn tasks_are_counted() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let gate = Arc::new(AtomicU32::new(0));
        for _ in 0..10 {
            let gate = gate.clone();
            go_async(async move { semacquire_async(&gate).await });
        }
        assert_eq!(num_goroutine(), 11);
        until(|| waiters(&gate) == 10);
        assert_eq!(num_goroutine(), 11);
        semrelease_many(&gate, 10);
        until(|| num_goroutine() == 1);
    });
}

/// A task that blocks as a goroutine does blocks no worker.
#[test]
fn a_task_may_block() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let gate = Arc::new(AtomicU32::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let gate = gate.clone();
                spawn_async(async move {
                    yield_once().await;
                    semacquire(&gate);
                    sleep(Duration::from_micros(10));
                    let other = spawn(move || n).join().unwrap();
                    yield_once().await;
                    other + blocking(|| 1)
                })
            })
            .collect();
        until(|| waiters(&gate) == 50);
        semrelease_many(&gate, 50);
        assert_eq!(tasks.into_iter().map(|task| task.join().unwrap()).sum::<i32>(), 1225 + 50);
    });
}

#[test]
fn a_crowd_of_tasks_at_a_semaphore_and_a_mutex() {
    const TASKS: u32 = 200;
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    let alone = alone();
    let shared =
        Arc::new((AtomicU32::new(2), Mutex::new(0_u32), GoMutex::<sudog::low_level::RuntimeSema>::const_new()));
    run(|| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|n| {
                let shared = shared.clone();
                spawn_async(async move {
                    for _ in 0..50 {
                        semacquire_async(&shared.0).await;
                        assert!(INSIDE.fetch_add(1, Relaxed) < 2);
                        if n % 3 == 0 {
                            yield_once().await;
                        }
                        INSIDE.fetch_sub(1, Relaxed);
                        semrelease(&shared.0, if n % 2 == 0 { Wake::Normal } else { Wake::Handoff });
                        if n % 2 == 0 {
                            *shared.1.lock() += 1;
                        } else {
                            *shared.1.lock_async().await += 1;
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
    alone.watchdog.pat();
    assert_eq!((shared.0.load(Relaxed), *shared.1.lock()), (2, TASKS * 50));
}

/// Futures that are dropped while they wait take nothing with them.
#[test]
fn futures_that_give_up() {
    let alone = alone();
    run(|| {
        let sema = Arc::new(AtomicU32::new(1));
        let tasks: Vec<_> = (0..100_u64)
            .map(|n| {
                let sema = sema.clone();
                spawn_async(async move {
                    let mut got = 0;
                    for round in 0..50 {
                        let mut acquire = Box::pin(semacquire_async(&sema));
                        let mut limit = Box::pin(sleep_async(Duration::from_micros((n * 31 + round * 7) % 50)));
                        let in_time = poll_fn(|cx| {
                            if acquire.as_mut().poll(cx).is_ready() {
                                Poll::Ready(true)
                            } else {
                                limit.as_mut().poll(cx).map(|()| false)
                            }
                        })
                        .await;
                        drop(acquire);
                        if in_time {
                            got += 1;
                            yield_once().await;
                            semrelease(&sema, if round % 2 == 0 { Wake::Normal } else { Wake::Handoff });
                        }
                    }
                    got
                })
            })
            .collect();
        let got: u32 = tasks.into_iter().map(|task| task.join().unwrap()).sum();
        println!("{got} of 5000 in time");
        assert_eq!((sema.load(Relaxed), waiters(&sema)), (1, 0));
    });
    alone.watchdog.pat();
}

#[test]
fn a_hundred_thousand_tasks_wait() {
    const CROWD: u32 = 100_000;
    static GATE: AtomicU32 = AtomicU32::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);
    let alone = alone();
    run(|| {
        for _ in 0..CROWD {
            go_async(async {
                semacquire_async(&GATE).await;
                DONE.fetch_add(1, Relaxed);
            });
        }
        while waiters(&GATE) < CROWD as usize {
            sleep(Duration::from_millis(1));
        }
        alone.watchdog.pat();
        semrelease_many(&GATE, CROWD);
        until(|| DONE.load(Relaxed) == CROWD);
    });
    assert_eq!(GATE.load(Relaxed), 0);
}

/// Locals that live for a single poll.
#[test]
fn locals_of_a_poll() {
    static MAKES: AtomicUsize = AtomicUsize::new(0);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static LOCAL: Dropped<'static> = {
            MAKES.fetch_add(1, Relaxed);
            Dropped(&DROPS)
        };
    }
    let _alone = alone();
    // Use a single worker; with more, another worker may begin the next poll before the locals of the last poll have
    // been dropped.
    one_worker(|| {
        let task = spawn_async(async {
            LOCAL.with(|_| ());
            assert_eq!(DROPS.load(Relaxed), 0);
            yield_once().await;
            assert_eq!(DROPS.load(Relaxed), 1);
            LOCAL.with(|_| ());
        });
        task.join().unwrap();
        until(|| DROPS.load(Relaxed) == 2);
    });
    // On any worker, each poll makes locals of its own, and all locals are dropped.
    run(|| {
        let task = spawn_async(async {
            for n in 3..=20 {
                LOCAL.with(|_| ());
                LOCAL.with(|_| ());
                assert_eq!(MAKES.load(Relaxed), n);
                yield_once().await;
            }
        });
        task.join().unwrap();
        until(|| DROPS.load(Relaxed) == 20);
    });
}

// ---- handles as futures ---------------------------------------------------------------------------------------------

#[test]
fn a_handle_is_a_future() {
    let _alone = alone();
    assert_eq!(block_on(spawn(|| 1)).unwrap(), 1);
    run(|| {
        assert_eq!(block_on(spawn(|| 2)).unwrap(), 2);
        assert!(block_on(spawn(|| goexit())).unwrap_err().is::<Goexit>());
        let gate = Arc::new(AtomicU32::new(0));
        let (wait, post) = (gate.clone(), gate);
        let slow = spawn(move || {
            semacquire(&wait);
            3
        });
        let waits = spawn_async(async move { slow.await.unwrap() });
        semrelease(&post, Wake::Normal);
        assert_eq!(waits.join().unwrap(), 3);
    });
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Counting(AtomicUsize);

impl WakeTask for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_handle_wakes_the_task_that_polled_it_last() {
    static GATE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let mut handle = pin!(spawn(|| semacquire(&GATE)));
    let counts = [Arc::new(Counting::default()), Arc::new(Counting::default())];
    for count in &counts {
        let waker = Waker::from(count.clone());
        assert!(handle.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    semrelease(&GATE, Wake::Normal);
    eventually(|| counts[1].0.load(Relaxed) == 1);
    assert_eq!(counts[0].0.load(Relaxed), 0);
    assert!(handle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let again = catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = handle.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }));
    assert!(again.is_err(), "polled after it was ready");
}

#[test]
fn a_handle_may_be_polled_and_then_joined() {
    let _alone = alone();
    run(|| {
        for _ in 0..200 {
            let mut handle = spawn(|| 7);
            let count = Arc::new(Counting::default());
            let waker = Waker::from(count);
            match Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => assert_eq!(result.unwrap(), 7),
                Poll::Pending => assert_eq!(handle.join().unwrap(), 7),
            }
        }
    });
}

// ---- block_on -------------------------------------------------------------------------------------------------------

#[test]
fn block_on_anywhere() {
    let _alone = alone();
    let future = || async {
        yield_once().await;
        let (sender, receiver) = channel();
        let (woken, mut sent) = (Arc::new(AtomicBool::new(false)), false);
        // Another thread wakes the task, late.
        poll_fn(move |cx| {
            if !std::mem::replace(&mut sent, true) {
                sender.send(cx.waker().clone()).unwrap();
                let receiver: &std::sync::mpsc::Receiver<Waker> = &receiver;
                let (waker, woken) = (receiver.recv().unwrap(), woken.clone());
                thread::spawn(move || {
                    woken.store(true, Relaxed);
                    waker.wake_by_ref();
                    waker.wake();
                });
            }
            if woken.load(Relaxed) { Poll::Ready(5) } else { Poll::Pending }
        })
        .await
    };
    assert_eq!(block_on(future()), 5);
    assert_eq!(run(|| block_on(future())), 5);
    assert_eq!(run(|| spawn(move || block_on(future())).join().unwrap()), 5);
    assert_eq!(block_on(async { block_on(future()) }), 5);
    // The future need not be Send, and may borrow.
    let local = 1;
    assert_eq!(
        run(|| {
            let rc = std::rc::Rc::new(&local);
            block_on(async { **rc })
        }),
        1
    );
}

#[test]
fn block_on_lets_others_run() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let sema = Arc::new(AtomicU32::new(0));
        let post = sema.clone();
        go(move || semrelease(&post, Wake::Handoff));
        block_on(semacquire_async(&sema));
    });
}

#[test]
fn a_future_that_panics_in_block_on() {
    let _alone = alone();
    let panics = || block_on(async { resume_unwind(Box::new("here")) });
    assert_eq!(text(&*catch_unwind(panics).unwrap_err()), "here");
    assert_eq!(text(&*run(|| catch_unwind(panics).unwrap_err())), "here");
}

/// Wakers outlive the tasks that they woke, on whatever thread.
#[test]
fn wakers_that_outlive_their_tasks() {
    let _alone = alone();
    let (sender, receiver) = channel::<Waker>();
    let waker_of = |sender: std::sync::mpsc::Sender<Waker>| {
        let mut polls = 0;
        poll_fn(move |cx| {
            sender.send(cx.waker().clone()).unwrap();
            polls += 1;
            if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    let foreign = thread::spawn(move || {
        let mut kept = Vec::new();
        for waker in receiver {
            waker.wake_by_ref();
            let clones = vec![waker.clone(); 3];
            clones.into_iter().for_each(Waker::wake);
            kept.push(waker);
        }
        kept
    });
    run(|| {
        for _ in 0..300 {
            let handle = spawn_async(waker_of(sender.clone()));
            block_on(waker_of(sender.clone()));
            handle.join().unwrap();
        }
    });
    run(|| {
        let handles: Vec<_> = (0..300).map(|_| spawn_async(waker_of(sender.clone()))).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    drop(sender);
    let kept = foreign.join().unwrap();
    assert!(kept.len() >= 900);
    kept.into_iter().for_each(Waker::wake);
}

/// Starts tasks whose futures are never ready. Most of the futures keep no waker. Each future owns a `G`.
fn endless<G: Send + 'static>(mut guard: impl FnMut() -> G) -> Vec<JoinHandle<()>> {
    let guards: [_; 9] = std::array::from_fn(|_| guard());
    let [a, b, c, d, e, f, g, h, i] = guards;
    let held = Arc::new(Mutex::new(()));
    vec![
        spawn_async(async move {
            let _guard = a;
            std::future::pending::<()>().await;
        }),
        spawn_async(async move {
            let _guard = b;
            sleep_async(Duration::MAX).await;
        }),
        spawn_async(async move {
            let _guard = c;
            Chan::<u8>::nil().recv_async().await;
        }),
        spawn_async(async move {
            let _guard = d;
            Chan::<u8>::nil().send_async(1).await;
        }),
        spawn_async(async move {
            let _guard = e;
            background().done().await;
        }),
        spawn_async(async move {
            let _guard = f;
            select_async! { recv(Chan::<u8>::nil()) => {} }
        }),
        spawn_async(async move {
            let _guard = g;
            select_async! { recv(Chan::<u8>::nil()) => {}, default(Duration::MAX) => {} }
        }),
        // A goroutine keeps a waker for a while, and drops that waker.
        spawn_async(async move {
            let _guard = h;
            let mut keeps = false;
            poll_fn(move |cx| {
                if !std::mem::replace(&mut keeps, true) {
                    let waker = cx.waker().clone();
                    spawn(move || drop(waker));
                }
                Poll::<()>::Pending
            })
            .await;
        }),
        // The task itself keeps the guard whose drop would wake the task.
        spawn_async(async move {
            let _guard = i;
            let held = held;
            std::mem::forget(held.lock_async().await);
            drop(held.lock_async().await);
        }),
    ]
}

/// A task that waits for ever stays, like a goroutine, whether or not anything keeps a waker of the task.
#[test]
fn a_task_that_waits_for_ever_stays() {
    let _alone = alone();
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let look = |handles: &mut [JoinHandle<()>]| {
        for handle in &mut *handles {
            let soon = WaitLimit::until(std::time::Instant::now() + Duration::from_millis(5));
            assert!(matches!(handle.join_limited(&soon), Err(WaitError::TimedOut)));
        }
        assert!(!handles.iter().any(JoinHandle::is_finished));
        assert_eq!(dropped.load(Relaxed), 0);
    };
    let mut handles = endless(|| Guard(dropped.clone()));
    look(&mut handles);
    run(|| look(&mut endless(|| Guard(dropped.clone()))));
    assert!(!handles.iter().any(JoinHandle::is_finished));
}

/// A task that is woken in vain stays, and the last wake-up finds that task.
#[test]
fn a_task_whose_waker_is_dropped_can_still_be_woken() {
    let _alone = alone();
    run(|| {
        let wakers = Chan::new(1);
        let sender = wakers.clone();
        let ready = Arc::new(AtomicBool::new(false));
        let is_ready = ready.clone();
        let task = spawn_async(poll_fn(move |cx| {
            if is_ready.load(Relaxed) {
                return Poll::Ready(5);
            }
            sender.send(cx.waker().clone());
            Poll::Pending
        }));
        let next = || wakers.recv().unwrap();
        for _ in 0..100 {
            let waker = next();
            drop(waker.clone());
            waker.wake(); // wakes by the last waker
        }
        let last = next();
        ready.store(true, Relaxed);
        last.wake();
        assert_eq!(task.join().unwrap(), 5);
    });
}
