//! The tests of Go's `x/sync/singleflight`, over threads and over goroutines; and tests of limits, which Go does not
//! have.
#![cfg(all(unix, not(sudog_loom)))]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use sudog::runtime::{Goexit, goexit, gosched};
use sudog::sync::{SharedPanic, WaitGroup};
use sudog::time::sleep;
use sudog::x::{Flight, SingleFlight};
use sudog::{Cancel, WaitError, WaitLimit, context, go, spawn};
use support::counting::without_allocating;
use support::kinds::{Kind, Threads};
use support::{Watchdog, eventually, test_command};

support::over_threads_and_goroutines! {
    do_ do_err do_dup_suppress do_chan forget panic_do
    shared_or_not limits_of_waiters keys_do_not_wait_for_each_other everything_at_random
}

type Group = SingleFlight<&'static str, &'static str, &'static str>;

/// Returns whether exactly `n` callers wait for the only call under way.
fn waiting<K, V, E>(group: &SingleFlight<K, V, E>, n: usize) -> bool {
    format!("{group:?}") == format!("SingleFlight {{ calls: 1, waiters: {n} }}")
}

#[track_caller]
fn assert_at_rest<K, V, E>(group: &SingleFlight<K, V, E>) {
    assert_eq!(format!("{group:?}"), "SingleFlight { calls: 0, waiters: 0 }");
}

// ---- as in Go -------------------------------------------------------------------------------------------------------

/// Go: `TestDo`.
fn do_<K: Kind>() {
    let group = Group::new();
    assert_eq!(group.do_("key", || Ok("bar")), Flight { result: Ok("bar"), shared: false });
    assert_at_rest(&group);
}

/// Go: `TestDoErr`.
fn do_err<K: Kind>() {
    let group = SingleFlight::<&str, &str>::new();
    let some_error: Arc<dyn std::error::Error + Send + Sync> = Arc::from(Box::from("some error"));
    let error = group.do_("key", || Err(some_error.clone())).result.unwrap_err();
    assert!(Arc::ptr_eq(&error, &some_error));
}

/// Go: `TestDoDupSuppress`.
fn do_dup_suppress<K: Kind>() {
    const N: usize = 10;
    struct World {
        group: Group,
        begun: WaitGroup,
        calls: AtomicUsize,
        go_on: AtomicBool,
        ended: WaitGroup,
    }
    let w = Arc::new(World {
        group: Group::new(),
        begun: WaitGroup::new(),
        calls: AtomicUsize::new(0),
        go_on: AtomicBool::new(false),
        ended: WaitGroup::new(),
    });
    w.begun.add(1);
    for _ in 0..N {
        w.begun.add(1);
        w.ended.add(1);
        let w = w.clone();
        K::go(move || {
            let f = || {
                if w.calls.fetch_add(1, SeqCst) == 0 {
                    w.begun.done();
                }
                K::until(|| w.go_on.load(SeqCst));
                sleep(Duration::from_millis(10)); // let more callers arrive
                Ok("bar")
            };
            w.begun.done();
            assert_eq!(w.group.do_("key", f).result, Ok("bar"));
            w.ended.done();
        });
    }
    w.begun.wait();
    // A caller is in the function, and the others are about to call.
    w.go_on.store(true, SeqCst);
    w.ended.wait();
    let calls = w.calls.load(SeqCst);
    assert!(calls > 0 && calls < N, "{calls} calls");
}

/// Go: `TestDoChan`.
fn do_chan<K: Kind>() {
    let group = Arc::new(Group::new());
    let flights = group.do_chan("key", || Ok("bar"));
    assert_eq!((flights.capacity(), flights.recv()), (1, Ok(Flight { result: Ok("bar"), shared: false })));
    eventually(|| !waiting(&group, 0));
    assert_at_rest(&group);
}

/// Checks that calls by `do_` and by `do_chan` share one call, whichever comes first, and that a receiver may be gone.
#[test]
fn do_chan_shares() {
    let _watchdog = Watchdog::new();
    for chan_first in [true, false] {
        let world = Arc::new((Group::new(), AtomicBool::new(false)));
        let group = Arc::new(Group::new());
        let slow = {
            let world = world.clone();
            move || {
                // As a blocking call: other goroutines of the worker are waited for, and run meanwhile.
                sudog::blocking(|| eventually(|| world.1.load(SeqCst)));
                Ok("once")
            }
        };
        let never = || unreachable!("it is under way");
        let (flights, other) = if chan_first {
            let flights = group.do_chan("key", slow);
            let group = group.clone();
            (flights, thread::spawn(move || group.do_("key", never)))
        } else {
            let theirs = group.clone();
            let other = thread::spawn(move || theirs.do_("key", slow));
            eventually(|| waiting(&group, 0));
            (group.do_chan("key", never), other)
        };
        drop(group.do_chan("key", never));
        eventually(|| waiting(&group, 2));
        world.1.store(true, SeqCst);
        let both = Flight { result: Ok("once"), shared: true };
        assert_eq!((flights.recv(), other.join().unwrap()), (Ok(both.clone()), both));
        assert!(flights.recv().is_err(), "one value");
    }
}

/// Checks that a function that ends its goroutine leaves the channel closed.
#[test]
fn goexit_do_chan() {
    let _watchdog = Watchdog::new();
    let group = Arc::new(Group::new());
    assert!(group.do_chan("key", || goexit()).recv().is_err());
    eventually(|| format!("{group:?}").contains("calls: 0"));
}

/// Go: `TestPanicDoChan`, `TestPanicDoSharedByDoChan`. The test runs itself again as a child process.
#[test]
fn panic_do_chan() {
    const CHILD: &str = "SUDOG_TEST_PANIC_DO_CHAN";
    let group = Arc::new(Group::new());
    let boom = || panic!("Panicking in DoChan");
    match std::env::var(CHILD).as_deref() {
        Ok("chan") => {
            _ = group.do_chan("", boom).recv();
        }
        Ok("shared") => {
            let (theirs, go_on) = (group.clone(), Arc::new(AtomicBool::new(false)));
            let blocked = go_on.clone();
            go(move || {
                _ = catch_unwind(AssertUnwindSafe(|| {
                    theirs.do_("", || {
                        eventually(|| blocked.load(SeqCst));
                        boom()
                    })
                }));
            });
            eventually(|| waiting(&group, 0));
            let flights = group.do_chan("", || unreachable!("it is under way"));
            eventually(|| waiting(&group, 1));
            go_on.store(true, SeqCst);
            _ = flights.recv();
        }
        _ => {
            for which in ["chan", "shared"] {
                let child = test_command(module_path!(), "panic_do_chan").env(CHILD, which).output().unwrap();
                let said = String::from_utf8_lossy(&child.stderr);
                assert_eq!(child.status.code(), Some(2), "{said}");
                assert!(said.contains("panic: Panicking in DoChan"), "{said}");
            }
            return;
        }
    }
    // The unwinding panic closes the channel, a moment before the process ends.
    let _watchdog = Watchdog::new();
    eventually(|| false);
}

/// Go: `TestForget` (issue 31420). Go's test makes the later calls by `DoChan`.
fn forget<K: Kind>() {
    struct World {
        group: SingleFlight<&'static str, u32, ()>,
        go_on: [AtomicBool; 2],
        ended: [AtomicU32; 3],
    }
    let w = Arc::new(World { group: SingleFlight::new(), go_on: Default::default(), ended: Default::default() });
    let call = |which: usize| {
        let w = w.clone();
        K::go(move || {
            let f = || {
                K::until(|| w.go_on[which - 1].load(SeqCst));
                Ok(which as u32)
            };
            let flight = w.group.do_("key", f);
            w.ended[which - 1].store(flight.result.unwrap(), SeqCst);
        });
    };
    call(1);
    K::until(|| waiting(&w.group, 0));
    w.group.forget("key");
    assert_at_rest(&w.group);
    call(2);
    K::until(|| waiting(&w.group, 0));
    w.go_on[0].store(true, SeqCst);
    K::until(|| w.ended[0].load(SeqCst) == 1);
    // The end of the first call has not removed the second call from the group.
    call(3);
    K::until(|| waiting(&w.group, 1));
    w.go_on[1].store(true, SeqCst);
    K::until(|| w.ended[2].load(SeqCst) == 2 && w.ended[1].load(SeqCst) == 2);
}

/// Go: `TestPanicDo` (issue 41133).
fn panic_do<K: Kind>() {
    const N: usize = 5;
    let w = Arc::new((Group::new(), AtomicUsize::new(0), AtomicBool::new(false)));
    for _ in 0..N {
        let w = w.clone();
        K::go(move || {
            let f = || {
                K::until(|| w.2.load(SeqCst));
                panic_any("invalid memory address or nil pointer dereference")
            };
            let payload = catch_unwind(AssertUnwindSafe(|| w.0.do_("key", f))).unwrap_err();
            assert!(payload.downcast_ref::<&str>().unwrap().starts_with("invalid memory"));
            w.1.fetch_add(1, SeqCst);
        });
    }
    K::until(|| waiting(&w.0, N - 1));
    w.2.store(true, SeqCst);
    K::until(|| w.1.load(SeqCst) == N);
    assert_at_rest(&w.0);
}

/// Go: `TestGoexitDo`, over goroutines only.
#[test]
fn goexit_do() {
    const N: usize = 5;
    let _watchdog = Watchdog::new();
    let w = Arc::new((Group::new(), AtomicBool::new(false)));
    let callers: Vec<_> = (0..N)
        .map(|_| {
            let w = w.clone();
            spawn(move || {
                let f = || {
                    while !w.1.load(SeqCst) {
                        gosched();
                    }
                    goexit()
                };
                w.0.do_("key", f);
            })
        })
        .collect();
    eventually(|| waiting(&w.0, N - 1));
    // A thread cannot end as a goroutine does.
    let outside = w.clone();
    let thread = thread::spawn(move || outside.0.do_("key", || unreachable!()));
    eventually(|| waiting(&w.0, N));
    w.1.store(true, SeqCst);
    for caller in callers {
        assert!(caller.join().unwrap_err().is::<Goexit>());
    }
    let said = "singleflight: the function of a shared call has ended its goroutine";
    assert_eq!(thread.join().unwrap_err().downcast_ref::<&str>(), Some(&said));
    assert_at_rest(&w.0);
}

/// Go: `TestPanicErrorUnwrap`: the payload of the panic can be read, whether the payload is an error or not.
#[test]
fn panic_error_unwrap() {
    #[derive(Debug)]
    struct ErrValue;
    impl fmt::Display for ErrValue {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("error value")
        }
    }
    impl std::error::Error for ErrValue {}
    let group = SingleFlight::<_, (), ()>::new();
    let payload = catch_unwind(|| group.do_("", || panic_any(ErrValue))).unwrap_err();
    let shared = payload.downcast_ref::<SharedPanic>().unwrap();
    assert_eq!(shared.downcast_ref::<ErrValue>().unwrap().to_string(), "error value");
    let payload = catch_unwind(|| group.do_("", || resume_unwind(Box::new("string value")))).unwrap_err();
    assert!(payload.is::<&str>());
}

// ---- not in Go ------------------------------------------------------------------------------------------------------

struct World {
    group: Group,
    go_on: AtomicBool,
    ended: AtomicUsize,
    stop: Cancel,
}

impl World {
    /// Starts a call for "key" that returns "bar" once `go_on` is set.
    fn with_call<K: Kind>(shared: bool) -> Arc<Self> {
        let w = Arc::new(Self {
            group: Group::new(),
            go_on: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
            stop: Cancel::new(),
        });
        let caller = w.clone();
        K::go(move || {
            let f = || {
                K::until(|| caller.go_on.load(SeqCst));
                Ok("bar")
            };
            assert_eq!(caller.group.do_("key", f), Flight { result: Ok("bar"), shared });
            caller.ended.fetch_add(1, SeqCst);
        });
        K::until(|| waiting(&w.group, 0));
        w
    }
}

fn shared_or_not<K: Kind>() {
    for sharers in [0, 1, K::MANY] {
        let w = World::with_call::<K>(sharers > 0);
        for _ in 0..sharers {
            let w = w.clone();
            K::go(move || {
                assert_eq!(w.group.do_("key", || unreachable!()), Flight { result: Ok("bar"), shared: true });
                w.ended.fetch_add(1, SeqCst);
            });
        }
        K::until(|| waiting(&w.group, sharers));
        w.go_on.store(true, SeqCst);
        K::until(|| w.ended.load(SeqCst) == sharers + 1);
        assert_at_rest(&w.group);
    }
}

fn limits_of_waiters<K: Kind>() {
    let w = World::with_call::<K>(true);
    let soon = || Instant::now() + Duration::from_millis(1);
    assert_eq!(w.group.do_limited("key", || unreachable!(), soon()).ok(), None);
    assert_eq!(w.group.do_limited("key", || unreachable!(), &WaitLimit::until(soon())), Err(WaitError::TimedOut));
    let (ctx, cancel) = context::with_cancel(&context::background());
    let (stopped, its_ctx) = (w.clone(), ctx.clone());
    K::go(move || {
        let limit = WaitLimit { cancel: Some(&stopped.stop), ..WaitLimit::default() };
        assert_eq!(stopped.group.do_limited("key", || unreachable!(), &limit), Err(WaitError::Cancelled));
        assert_eq!(stopped.group.do_limited("key", || unreachable!(), &its_ctx), Err(context::Error::Canceled));
        stopped.ended.fetch_add(1, SeqCst);
    });
    K::until(|| waiting(&w.group, 1));
    w.stop.cancel();
    K::until(|| waiting(&w.group, 1));
    cancel.cancel();
    K::until(|| w.ended.load(SeqCst) == 1);
    assert!(waiting(&w.group, 0));
    w.go_on.store(true, SeqCst);
    K::until(|| w.ended.load(SeqCst) == 2);
    // A cancelled caller does not run its function.
    assert_eq!(w.group.do_limited("key", || unreachable!(), &ctx), Err(context::Error::Canceled));
    // The caller that runs its function has no limit other than a cancel.
    assert_eq!(w.group.do_limited("key", || Ok("late"), Instant::now()).unwrap().result, Ok("late"));
    assert_at_rest(&w.group);
}

/// Checks that a function may call for another key, and may forget its own key and call for that key anew.
fn keys_do_not_wait_for_each_other<K: Kind>() {
    let group = Group::new();
    let flight = group.do_("one", || {
        group.do_("two", || Ok("two")).result?;
        group.forget("one");
        group.do_("one", || Ok("one")).result
    });
    assert_eq!(flight.result, Ok("one"));
    assert_at_rest(&group);
}

/// Checks that every caller gets the result that was made for its key, and that no two calls for one key run at once.
fn everything_at_random<K: Kind>() {
    const TASKS: usize = 10;
    const KEYS: usize = 3;
    struct World {
        group: SingleFlight<usize, usize, usize>,
        inside: [AtomicUsize; KEYS],
        ended: AtomicUsize,
    }
    let watchdog = Arc::new(Watchdog::new());
    let w = Arc::new(World { group: SingleFlight::new(), inside: Default::default(), ended: AtomicUsize::new(0) });
    for task in 0..TASKS {
        let (w, watchdog) = (w.clone(), watchdog.clone());
        K::go(move || {
            for round in 0..300 {
                watchdog.pat();
                let (key, what) = ((task + round) % KEYS, (task * 7 + round) % 4);
                let f = || {
                    assert_eq!(w.inside[key].fetch_add(1, SeqCst), 0, "two calls at once");
                    K::gosched();
                    w.inside[key].fetch_sub(1, SeqCst);
                    match what {
                        0 => Err(key),
                        1 => resume_unwind(Box::new(key)),
                        _ => Ok(key),
                    }
                };
                let call = || match round % 5 {
                    0 => w.group.do_limited(key, f, Instant::now() + Duration::from_micros(round as u64 % 40)).ok(),
                    _ => Some(w.group.do_(key, f)),
                };
                match catch_unwind(AssertUnwindSafe(call)) {
                    Ok(None) => assert_eq!(round % 5, 0),
                    Ok(Some(Flight { result: Ok(got) | Err(got), .. })) => assert_eq!(got, key),
                    Err(payload) => {
                        let shared = payload.downcast::<SharedPanic>().unwrap();
                        assert_eq!(shared.downcast_ref::<usize>(), Some(&key));
                    }
                }
            }
            w.ended.fetch_add(1, SeqCst);
        });
    }
    K::until(|| w.ended.load(SeqCst) == TASKS);
    assert_at_rest(&w.group);
}

/// Checks that an unshared result is not cloned, and that a shared result is cloned once for each caller.
#[test]
fn clones() {
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Relaxed);
            Self(self.0.clone())
        }
    }
    let _watchdog = Watchdog::new();
    let clones = Arc::new(AtomicUsize::new(0));
    let group = SingleFlight::<(), Counted, ()>::new();
    drop(group.do_((), || Ok(Counted(clones.clone()))));
    assert_eq!(clones.load(Relaxed), 0);
    let flight = || {
        group.do_((), || {
            eventually(|| waiting(&group, 1));
            Ok(Counted(clones.clone()))
        })
    };
    thread::scope(|s| {
        s.spawn(flight);
        s.spawn(flight);
    });
    assert_eq!((clones.load(Relaxed), Arc::strong_count(&clones)), (2, 1));
}

#[test]
fn a_share_allocates_nothing() {
    let _watchdog = Watchdog::new();
    let w = World::with_call::<Threads>(true);
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| assert!(without_allocating(|| w.group.do_("key", || unreachable!())).shared));
        }
        assert!(without_allocating(|| w.group.do_limited("key", || unreachable!(), Instant::now())).is_err());
        eventually(|| waiting(&w.group, 3));
        w.go_on.store(true, SeqCst);
    });
}
