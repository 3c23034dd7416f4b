//! Goroutines: the ways to start them, their ends, and `run`.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use sudog::low_level::sema::{Wake, semacquire, semrelease, semrelease_many, waiters};
use sudog::runtime::{Goexit, goexit, gosched, max_procs, num_goroutine, set_max_blocking};
use sudog::time::sleep;
use sudog::{
    Builder, JoinHandle, OnPanic, Placement, blocking, go, goroutine_local, on_goroutine, run, spawn, without_switching,
};
use support::goroutine::{Dropped, alone, here, one_worker, text, until};
use support::{Watchdog, eventually};

// ---- go -------------------------------------------------------------------------------------------------------------

/// The `go!` macro clones the variables for the goroutine; the caller keeps its own.
#[test]
fn go_with_clones() {
    let (count, values) = (Arc::new(AtomicUsize::new(0)), Arc::new([1, 2, 3]));
    run(|| {
        for _ in 0..3 {
            go!(clone count, values; count.fetch_add(values.iter().sum(), Relaxed));
            go!(clone count; move || _ = count.fetch_add(1, Relaxed));
        }
        until(|| count.load(Relaxed) == 3 * (6 + 1));
    });
    assert_eq!(values.len(), 3);
}

#[test]
fn go_from_a_thread_and_from_a_goroutine() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    go(|| semrelease(&DONE, Wake::Normal));
    semacquire(&DONE);
    run(|| {
        for _ in 0..1000 {
            go(|| go(|| semrelease(&DONE, Wake::Normal)));
        }
        (0..1000).for_each(|_| semacquire(&DONE));
    });
    assert_eq!(DONE.load(Relaxed), 0);
}

#[test]
fn go_as_a_statement() {
    let _alone = alone();
    let (sender, receiver) = channel();
    let (second, third) = (sender.clone(), sender.clone());
    go!(move || sender.send(1).unwrap());
    go!(second.send(2).unwrap());
    go!(|| _ = max_procs());
    go!({
        let doubled = 2 * 2;
        third.send(doubled).unwrap()
    });
    assert_eq!(receiver.into_iter().sum::<i32>(), 7);
}

#[test]
fn on_goroutine_or_not() {
    let _alone = alone();
    assert!(!on_goroutine());
    assert!(spawn(on_goroutine).join().unwrap());
    assert!(run(on_goroutine));
    assert!(one_worker(on_goroutine));
    assert!(run(|| without_switching(on_goroutine)), "it is one, though it may not switch");
    assert!(!run(|| blocking(on_goroutine)));
    assert!(!on_goroutine());
}

#[test]
fn closures_of_all_sizes() {
    let _alone = alone();
    let (sender, receiver) = channel::<u64>();
    // Captures that a job holds itself, captures that the job boxes, and captures that need more alignment than a word.
    #[repr(align(64))]
    struct Aligned([u8; 3]);
    let (small, large, aligned) = ([1_u8; 7], [2_u64; 512], Aligned([3; 3]));
    let [a, b, c, d] = [(); 4].map(|()| sender.clone());
    drop(sender);
    go(move || a.send(small.iter().map(|&n| u64::from(n)).sum()).unwrap());
    go(move || b.send(large.iter().sum()).unwrap());
    go(move || {
        let aligned = aligned;
        assert_eq!((&raw const aligned).addr() % 64, 0);
        c.send(aligned.0.map(u64::from).iter().sum()).unwrap();
    });
    go(|| ());
    let forty_bytes = ([4_u64; 4], d);
    go(move || forty_bytes.1.send(forty_bytes.0.iter().sum()).unwrap());
    assert_eq!(receiver.into_iter().sum::<u64>(), 7 + 1024 + 9 + 16);
}

#[test]
fn many_threads_start_goroutines() {
    const THREADS: usize = 8;
    const EACH: usize = 2_000;
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for _ in 0..EACH {
                    go(|| {
                        RUNS.fetch_add(1, Relaxed);
                        semrelease(&DONE, Wake::Normal);
                    });
                }
                (0..EACH).for_each(|_| semacquire(&DONE));
            });
        }
    });
    assert_eq!(RUNS.load(Relaxed), THREADS * EACH);
    assert_eq!(DONE.load(Relaxed), 0);
}

// ---- spawn and join -------------------------------------------------------------------------------------------------

#[test]
fn join_returns_the_result() {
    let _alone = alone();
    assert_eq!(spawn(|| "from a thread").join().unwrap(), "from a thread");
    run(|| {
        let handles: Vec<_> = (0..100_u64).map(|n| spawn(move || n * n)).collect();
        assert_eq!(handles.into_iter().map(|handle| handle.join().unwrap()).sum::<u64>(), 328_350);
        assert_eq!(spawn(|| spawn(|| vec![1, 2]).join().unwrap()).join().unwrap(), [1, 2]);
    });
}

#[test]
fn join_returns_the_panic() {
    let _alone = alone();
    let payload = spawn(|| panic!("number {}", 7)).join().unwrap_err();
    assert_eq!(text(&*payload), "number 7");
    run(|| {
        let payload = spawn(|| std::panic::panic_any(7_u16)).join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7_u16));
        // The goroutine's locals are dropped before `join` returns.
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        let panics = spawn(|| {
            let _dropped = Dropped(&DROPS);
            resume_unwind(Box::new("quietly"));
        });
        assert!(panics.join().is_err());
        assert_eq!(DROPS.load(Relaxed), 1);
        assert_eq!(spawn(|| 1).join().unwrap(), 1, "the worker goes on");
    });
}

#[test]
fn is_finished_says_whether_join_would_wait() {
    static GATE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let handle = spawn(|| semacquire(&GATE));
    eventually(|| waiters(&GATE) == 1);
    assert!(!handle.is_finished());
    assert_eq!(format!("{handle:?}"), "JoinHandle { finished: false, .. }");
    semrelease(&GATE, Wake::Normal);
    eventually(|| handle.is_finished());
    handle.join().unwrap();
}

#[test]
fn a_handle_may_go_to_another_thread() {
    let _alone = alone();
    let (sender, receiver) = channel::<JoinHandle<u8>>();
    let joiner = thread::spawn(move || receiver.into_iter().map(|handle| handle.join().unwrap() as u32).sum::<u32>());
    (0..100).for_each(|n| sender.send(spawn(move || n)).unwrap());
    drop(sender);
    assert_eq!(joiner.join().unwrap(), 4950);
}

#[test]
fn a_dropped_handle_lets_its_goroutine_run_on() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    drop(spawn(|| semrelease(&DONE, Wake::Normal)));
    semacquire(&DONE);
    std::mem::forget(spawn(|| semrelease(&DONE, Wake::Normal)));
    semacquire(&DONE);
}

#[test]
fn the_result_of_a_goroutine_without_a_joiner_is_dropped() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    static GATE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let early = spawn(|| {
        semacquire(&GATE);
        Dropped(&DROPS)
    });
    drop(early);
    semrelease(&GATE, Wake::Normal);
    eventually(|| DROPS.load(Relaxed) == 1);
    let late = spawn(|| Dropped(&DROPS));
    eventually(|| late.is_finished());
    assert_eq!(DROPS.load(Relaxed), 1);
    drop(late);
    // The goroutine may hold the packet for a moment longer.
    eventually(|| DROPS.load(Relaxed) == 2);
}

// ---- Builder --------------------------------------------------------------------------------------------------------

#[test]
fn a_builder_says_what_it_builds() {
    let builder = Builder::new().name("x").stack_size(1 << 20).on(Placement::Here).on_panic(OnPanic::Unwind);
    assert_eq!(
        format!("{builder:?}"),
        "Builder { name: Some(\"x\"), stack_size: Some(1048576), on: Here, on_panic: Unwind }"
    );
}

#[inline(never)]
fn recurse(depth: usize) -> usize {
    let frame = std::hint::black_box([depth; 128]);
    if depth == 0 { frame[0] } else { recurse(depth - 1) + frame[127].min(1) }
}

#[test]
fn stacks_of_many_sizes() {
    let _alone = alone();
    let _ = recurse(1);
    run(|| {
        for (stack_size, depth) in [(0, 1), (1, 1), (64 << 10, 10), (256 << 10, 50), (16 << 20, 6_000)] {
            let handle = Builder::new().stack_size(stack_size).spawn(move || {
                gosched();
                recurse(depth)
            });
            assert_eq!(handle.join().unwrap(), depth, "{stack_size}");
        }
    });
    assert_eq!(Builder::new().name("main").stack_size(16 << 20).run(|| recurse(6_000)), 6_000);
    assert_eq!(Builder::new().name("as main has it").run(|| recurse(3_000)), 3_000);
}

#[test]
fn here_is_the_callers_worker() {
    let _alone = alone();
    run(|| {
        for _ in 0..100 {
            assert_eq!(Builder::new().on(Placement::Here).spawn(here).join().unwrap(), here());
        }
    });
    // No goroutine calls, so `Here` means any worker.
    Builder::new().on(Placement::Here).spawn(|| ()).join().unwrap();
}

#[test]
fn a_worker_by_its_number() {
    let _alone = alone();
    let mut seen = HashSet::new();
    run(|| {
        for index in 0..max_procs() {
            let on = || Builder::new().on(Placement::Worker(index));
            let threads = [(); 3].map(|()| on().spawn(here).join().unwrap());
            assert_eq!(threads, [threads[0]; 3]);
            assert!(seen.insert(threads[0]), "one worker, one thread");
        }
    });
}

/// A main goroutine begins on the worker that its builder names.
#[test]
fn a_main_goroutine_on_a_worker() {
    let _alone = alone();
    for _ in 0..100 {
        for index in 0..max_procs() {
            let on = || Builder::new().on(Placement::Worker(index));
            let (main, other) = on().run(|| (here(), on().spawn(here).join().unwrap()));
            assert_eq!(main, other);
        }
    }
    let nowhere = || Builder::new().on(Placement::Worker(256)).run(|| ());
    assert!(text(&*catch_unwind(nowhere).unwrap_err()).starts_with("no worker 256: "));
}

/// A spawn on a worker that is still starting waits for that worker, whichever thread has started the worker, and
/// whenever the worker comes.
#[test]
fn a_worker_that_is_still_coming() {
    const PROCS: usize = 4;
    let alone = alone();
    let before = sudog::runtime::set_max_procs(PROCS);
    for _ in 0..300 {
        run(|| {
            let on = |index| Builder::new().on(Placement::Worker(index)).spawn(move || index);
            let handles = [1, 3, 2, 0].map(on);
            assert_eq!(handles.map(|handle| handle.join().unwrap()), [1, 3, 2, 0]);
        });
        alone.watchdog.pat();
    }
    sudog::runtime::set_max_procs(before);
}

#[test]
fn a_worker_that_does_not_exist() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let on_256 = || {
        let dropped = Dropped(&DROPS);
        Builder::new().on(Placement::Worker(256)).go(move || drop(dropped));
    };
    let refused = |outcome: thread::Result<()>| {
        let payload = outcome.unwrap_err();
        assert!(text(&*payload).starts_with("no worker 256: "), "{}", text(&*payload));
    };
    refused(catch_unwind(on_256));
    assert_eq!(DROPS.load(Relaxed), 1);
    run(|| refused(catch_unwind(on_256)));
    assert_eq!(DROPS.load(Relaxed), 2);
    run(|| assert!(catch_unwind(|| Builder::new().on(Placement::Worker(usize::MAX)).spawn(|| ())).is_err()));
    assert!(run(|| spawn(|| true).join().unwrap()), "all goes on");
}

#[test]
fn a_panic_may_end_the_goroutine_alone() {
    static GATE: AtomicU32 = AtomicU32::new(0);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let lenient = || Builder::new().on_panic(OnPanic::Unwind);
    lenient().go(|| {
        let _dropped = Dropped(&DROPS);
        panic!("nobody minds");
    });
    eventually(|| DROPS.load(Relaxed) == 1);
    // Test a handle that is dropped before the panic, and a handle that is dropped after the panic.
    drop(lenient().spawn(|| {
        let _dropped = Dropped(&DROPS);
        semacquire(&GATE);
        panic!("nobody minds");
    }));
    semrelease(&GATE, Wake::Normal);
    eventually(|| DROPS.load(Relaxed) == 2);
    let handle = lenient().spawn(|| panic!("nobody minds"));
    eventually(|| handle.is_finished());
    drop(handle);
    assert_eq!(spawn(|| 1).join().unwrap(), 1);
}

// ---- goexit, gosched, num_goroutine ---------------------------------------------------------------------------------

#[test]
fn goexit_runs_destructors_and_ends_the_goroutine() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    static AFTER: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    #[allow(unreachable_code)]
    let leaves = || {
        let _outer = Dropped(&DROPS);
        let inner = || {
            let _inner = Dropped(&DROPS);
            goexit();
        };
        inner();
        AFTER.store(true, Relaxed);
    };
    run(|| {
        assert!(spawn(leaves).join().unwrap_err().is::<Goexit>());
        assert_eq!(DROPS.load(Relaxed), 2);
        go(leaves); // the process goes on
        until(|| DROPS.load(Relaxed) == 4);
    });
    assert!(!AFTER.load(Relaxed));
}

#[test]
fn goexit_can_be_caught_and_resumed() {
    let _alone = alone();
    let caught = spawn(|| {
        let payload = catch_unwind(|| goexit()).unwrap_err();
        assert!(payload.is::<Goexit>());
        gosched(); // the goroutine goes on as a goroutine
        resume_unwind(payload)
    });
    assert!(caught.join().unwrap_err().is::<Goexit>());
    assert!(spawn(|| catch_unwind(|| goexit()).is_err()).join().unwrap());
}

#[test]
fn goexit_is_for_goroutines() {
    let payload = catch_unwind(|| goexit()).unwrap_err();
    assert_eq!(text(&*payload), "goexit was called outside of a goroutine");
}

#[test]
fn gosched_lets_others_run() {
    let _watchdog = Watchdog::new();
    gosched(); // as a thread
    one_worker(|| {
        let turns = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let turns = turns.clone();
            go(move || {
                for _ in 0..10 {
                    turns.fetch_add(1, Relaxed);
                    gosched();
                }
            });
        }
        until(|| turns.load(Relaxed) == 100);
    });
}

#[test]
fn num_goroutine_counts_those_that_have_not_ended() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        assert_eq!(num_goroutine(), 1);
        let gate = Arc::new(AtomicU32::new(0));
        for round in 1..4 {
            for _ in 0..10 {
                let gate = gate.clone();
                go(move || semacquire(&gate));
            }
            assert_eq!(num_goroutine(), 11, "started or not");
            until(|| waiters(&gate) == 10);
            assert_eq!(num_goroutine(), 11);
            semrelease_many(&gate, 10);
            until(|| num_goroutine() == 1);
            // Test all ways to end: by `goexit`, and by panics with and without a handle.
            go(|| goexit());
            Builder::new().on_panic(OnPanic::Unwind).go(|| resume_unwind(Box::new(())));
            spawn(|| resume_unwind(Box::new(()))).join().unwrap_err();
            until(|| num_goroutine() == 1);
            assert!(round < 4);
        }
    });
}

// ---- run ------------------------------------------------------------------------------------------------------------

#[test]
fn run_returns_and_borrows() {
    let _alone = alone();
    let mut log = vec![1];
    let result = run(|| {
        log.push(2);
        let worker = here();
        sleep(Duration::from_micros(1));
        spawn(|| ()).join().unwrap();
        assert_eq!(here(), worker, "from beginning to end");
        3
    });
    assert_eq!((result, &log[..]), (3, &[1, 2][..]));
}

#[test]
fn run_panics_as_its_main_does() {
    let _alone = alone();
    let payload = catch_unwind(|| run(|| panic!("main"))).unwrap_err();
    assert_eq!(text(&*payload), "main");
    let payload = catch_unwind(|| Builder::new().run(|| resume_unwind(Box::new(5_i8)))).unwrap_err();
    assert!(payload.is::<i8>());
    assert_eq!(run(|| 1), 1);
}

#[test]
fn run_inside_a_goroutine_is_a_call() {
    let _alone = alone();
    run(|| {
        let me = here();
        assert_eq!(run(|| run(here)), me);
        assert_eq!(Builder::new().name("inner").run(|| 4), 4);
        assert!(catch_unwind(|| run(|| resume_unwind(Box::new(())))).is_err());
    });
    assert_eq!(one_worker(|| run(|| 4)), 4);
}

#[test]
fn run_on_many_threads_at_once() {
    const THREADS: usize = 8;
    let _alone = alone();
    let (ring, barrier) = (&<[AtomicU32; THREADS]>::default(), &Barrier::new(THREADS));
    thread::scope(|s| {
        for me in 0..THREADS {
            s.spawn(move || {
                for round in 0..50 {
                    barrier.wait();
                    let sum = run(|| {
                        let helpers: Vec<_> = (0..10_usize).map(|n| spawn(move || n)).collect();
                        // A token goes round, from main goroutine to main goroutine.
                        if me == round % THREADS {
                            semrelease(&ring[me], Wake::Normal);
                        }
                        semacquire(&ring[me]);
                        semrelease(&ring[(me + 1) % THREADS], Wake::Handoff);
                        if me == round % THREADS {
                            semacquire(&ring[me]);
                        }
                        helpers.into_iter().map(|helper| helper.join().unwrap()).sum::<usize>()
                    });
                    assert_eq!(sum, 45);
                }
            });
        }
    });
    assert!(ring.iter().all(|permits| permits.load(Relaxed) == 0));
}

#[test]
fn those_on_other_workers_go_on_when_run_returns() {
    static GATE: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let handle = spawn(|| {
        semacquire(&GATE);
        here()
    });
    eventually(|| waiters(&GATE) == 1); // the goroutine has started, on another thread
    run(|| spawn(|| ()).join().unwrap());
    semrelease(&GATE, Wake::Normal);
    assert_ne!(handle.join().unwrap(), here());
}

// ---- blocking -------------------------------------------------------------------------------------------------------

#[test]
fn blocking_borrows_and_returns() {
    let _alone = alone();
    let mut log = Vec::new();
    run(|| {
        let me = here();
        for round in 0..100 {
            let thread = blocking(|| {
                log.push(round);
                here()
            });
            assert_ne!(thread, me);
            assert_eq!(here(), me);
        }
        assert_eq!(blocking(|| blocking(|| 5)), 5);
    });
    assert_eq!(log, (0..100).collect::<Vec<_>>());
    let me = here();
    assert_eq!(blocking(here), me, "a thread makes the call itself");
    assert!(run(|| without_switching(|| blocking(here) == here())), "and a goroutine that may not switch");
}

#[test]
fn blocking_lets_others_run() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        let (sender, receiver) = sync_channel(0);
        let (done, wait) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (d, w) = (done.clone(), wait.clone());
        go(move || {
            semacquire(&w);
            blocking(|| sender.send(6).unwrap()); // meets the other call
            semrelease(&d, Wake::Normal);
        });
        semrelease(&wait, Wake::Normal);
        assert_eq!(blocking(move || receiver.recv().unwrap()), 6);
        semacquire(&done);
    });
}

#[test]
fn blocking_panics_as_its_closure_does() {
    let _alone = alone();
    let panics = || catch_unwind(|| blocking(|| -> u8 { resume_unwind(Box::new("from the call")) })).unwrap_err();
    assert_eq!(text(&*panics()), "from the call");
    run(|| {
        let (sender, _) = channel::<u8>();
        assert_eq!(text(&*panics()), "from the call");
        assert!(catch_unwind(AssertUnwindSafe(|| blocking(|| sender.send(1).unwrap()))).is_err());
        assert_eq!(blocking(|| 2), 2);
    });
}

#[test]
fn a_thousand_blocking_calls() {
    static SUM: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    run(|| {
        let handles: Vec<_> = (0..1000)
            .map(|n| {
                spawn(move || {
                    let mut here = 0;
                    blocking(|| here += n);
                    SUM.fetch_add(here, Relaxed);
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    assert_eq!(SUM.load(Relaxed), 499_500);
}

/// A `run` ends while goroutines are blocked in calls. In Go, too, the process ends with main, whatever its goroutines
/// read.
#[test]
fn a_run_ends_though_its_calls_do_not_return() {
    use std::io::{Read, pipe};
    const CALLS: usize = 600; // more than the 512 threads for blocking calls
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let (reader, writer) = pipe().unwrap();
    let reader = Arc::new(reader);
    run(move || {
        for _ in 0..CALLS {
            let reader = reader.clone();
            go(move || {
                let _ended = Dropped(&ENDED);
                blocking(|| {
                    BEGUN.fetch_add(1, Relaxed);
                    _ = (&*reader).read(&mut [0; 1]);
                });
            });
        }
        until(|| BEGUN.load(Relaxed) == 512);
    });
    assert_eq!(ENDED.load(Relaxed), 0);
    drop(writer);
    eventually(|| ENDED.load(Relaxed) == CALLS);
}

#[test]
fn the_limit_of_blocking_calls() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let before = set_max_blocking(1);
    let call = || {
        spawn(|| {
            blocking(|| {
                BEGUN.fetch_add(1, Relaxed);
                eventually(|| OVER.load(Relaxed));
            });
        })
    };
    run(move || {
        let first = call();
        until(|| BEGUN.load(Relaxed) == 1);
        let others = [call(), call()];
        (0..10).for_each(|_| gosched());
        assert_eq!(BEGUN.load(Relaxed), 1, "they wait for the thread");
        assert_eq!(set_max_blocking(3), 1);
        until(|| BEGUN.load(Relaxed) == 3); // without a new call
        OVER.store(true, Relaxed);
        first.join().unwrap();
        others.into_iter().for_each(|call| call.join().unwrap());
    });
    assert_eq!(set_max_blocking(before), 3);
    assert!(catch_unwind(|| set_max_blocking(0)).is_err());
}

// ---- goroutine_local, without_switching, values across waits
// ---------------------------------------------------------

goroutine_local! {
    static NUMBER: Cell<u32> = Cell::new(100);
    static NAMES: RefCell<Vec<String>> = RefCell::default();
    static COUNTED: Dropped<'static> = Dropped(&LOCAL_DROPS);
    static NESTED: u32 = NUMBER.with(Cell::get) + 1;
}

static LOCAL_DROPS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_local_is_the_goroutines_own() {
    let _watchdog = Watchdog::new();
    NUMBER.with(|n| n.set(1)); // the value of the thread
    one_worker(|| {
        assert_eq!(NUMBER.with(Cell::get), 100);
        for round in 0..3 {
            let handles: Vec<_> = (0..20)
                .map(|n| {
                    spawn(move || {
                        assert_eq!(NUMBER.with(Cell::get), 100, "nothing is left of whoever had this stack before");
                        NUMBER.with(|number| {
                            number.set(n);
                            for _ in 0..5 {
                                gosched(); // switch inside: the reference must stay valid
                                number.set(number.get() + 1);
                            }
                        });
                        NAMES.with(|names| names.borrow_mut().push(n.to_string()));
                        gosched();
                        assert_eq!(NESTED.with(|&n| n), n + 6);
                        NAMES.with(|names| assert_eq!(*names.borrow(), [n.to_string()]));
                        NUMBER.with(Cell::get)
                    })
                })
                .collect();
            let sum: u32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            assert_eq!(sum, 190 + 100, "{round}");
        }
        assert_eq!(NUMBER.with(Cell::get), 100);
    });
    assert_eq!(NUMBER.with(Cell::get), 1);
    assert_eq!(thread::spawn(|| NUMBER.with(Cell::get)).join().unwrap(), 100);
    assert_eq!(format!("{NUMBER:?}"), "LocalKey { .. }");
}

#[test]
fn a_local_is_dropped_with_its_goroutine() {
    let _watchdog = Watchdog::new();
    one_worker(|| {
        for _ in 0..3 {
            go(|| COUNTED.with(|_| ()));
            go(|| COUNTED.with(|_| goexit()));
            spawn(|| COUNTED.with(|_| resume_unwind(Box::new(())))).join().unwrap_err();
        }
        until(|| LOCAL_DROPS.load(Relaxed) == 9);
    });
    assert_eq!(LOCAL_DROPS.load(Relaxed), 9);
    run(|| {
        COUNTED.with(|_| ());
        spawn(|| COUNTED.with(|_| ())).join().unwrap();
        until(|| LOCAL_DROPS.load(Relaxed) == 10);
    });
    assert_eq!(LOCAL_DROPS.load(Relaxed), 11, "main's too");
}

#[test]
fn no_other_runs_while_switching_is_forbidden() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    one_worker(|| {
        go(|| _ = RUNS.fetch_add(1, Relaxed));
        let permits = AtomicU32::new(0);
        without_switching(|| {
            gosched();
            sleep(Duration::from_micros(10));
            without_switching(gosched);
            gosched();
            thread::scope(|s| {
                s.spawn(|| {
                    eventually(|| waiters(&permits) == 1);
                    semrelease(&permits, Wake::Handoff);
                });
                semacquire(&permits); // blocks the thread
            });
            assert_eq!(RUNS.load(Relaxed), 0);
        });
        assert!(catch_unwind(|| without_switching(|| resume_unwind(Box::new(())))).is_err());
        until(|| RUNS.load(Relaxed) == 1);
    });
}

#[test]
fn what_is_not_send_stays_across_waits() {
    static STEP: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let stays = || {
        let (me, rc) = (here(), Rc::new(Cell::new(0)));
        let add = |n| rc.set(rc.get() + n);
        gosched();
        add(1);
        let other = rc.clone();
        sleep(Duration::from_micros(50));
        other.set(other.get() + 1);
        semacquire(&STEP);
        add(1);
        blocking(|| ());
        add(1);
        drop(other);
        assert_eq!(here(), me);
        (rc.get(), Rc::strong_count(&rc))
    };
    run(|| {
        let handles: Vec<_> = (0..50).map(|_| spawn(stays)).collect();
        semrelease_many(&STEP, 50);
        handles.into_iter().for_each(|handle| assert_eq!(handle.join().unwrap(), (4, 1)));
    });
}

/// A worker that `set_max_procs` has taken out, and that sleeps, runs goroutines again after it has been let in again.
#[test]
fn a_worker_that_was_taken_out_is_let_in_again() {
    let alone = alone();
    let before = sudog::runtime::set_max_procs(2);
    run(|| {
        for _ in 0..20 {
            sudog::runtime::set_max_procs(2);
            let begun = Arc::new(AtomicBool::new(false));
            let other = begun.clone();
            go(move || other.store(true, std::sync::atomic::Ordering::Release));
            // Spin, which is not a wait that the runtime knows of.
            while !begun.load(std::sync::atomic::Ordering::Acquire) {
                std::hint::spin_loop();
            }
            sudog::runtime::set_max_procs(1);
            // Let the worker fall asleep. If the worker is still awake, this round tests nothing.
            thread::sleep(Duration::from_millis(1));
            alone.watchdog.pat();
        }
    });
    sudog::runtime::set_max_procs(before);
}

/// A worker that is stuck outside of the runtime gives up its goroutines that have not begun.
#[test]
fn a_stuck_worker_gives_up_what_has_not_begun() {
    let _alone = alone();
    let before = sudog::runtime::set_max_procs(3);
    run(|| {
        Builder::new()
            .name("stuck")
            .spawn(|| {
                let begun = Arc::new(AtomicBool::new(false));
                let other = begun.clone();
                go(move || other.store(true, std::sync::atomic::Ordering::Release));
                // Spin, which is not a wait that the runtime knows of.
                while !begun.load(std::sync::atomic::Ordering::Acquire) {
                    thread::yield_now();
                }
            })
            .join()
            .unwrap();
    });
    sudog::runtime::set_max_procs(before);
}
