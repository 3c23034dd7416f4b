//! `sudog::csp`: the source's programs, the order in which partners run, and the reclamation of fibres.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sudog::csp::{ActiveSet, End, Failed, Reclaimed, make_channel, make_ends, spawn_fibre};
use sudog::runtime::sema::{Cancel, WaitLimit};
use sudog::runtime::{Goexit, gosched};
use sudog::{Builder, JoinHandle, Placement, Scheduler, go, run, run_local, scope, spawn, without_switching};
use support::goroutine::{Dropped, here, until};
use support::{Watchdog, eventually};

fn reclaimed<T>(handle: JoinHandle<T>) -> bool {
    handle.join().is_err_and(|payload| payload.is::<Goexit>())
}

/// Reads for ever.
fn consumer<T: Send + 'static>(mut end: End<T>, mut f: impl FnMut(T) + Send + 'static) -> JoinHandle<()> {
    spawn(move || {
        loop {
            f(end.read().unwrap());
        }
    })
}

// ---- the source's programs ----------------------------------------------------------------------------------------

#[test]
fn list_of_squares() {
    let _watchdog = Watchdog::new();
    let mut squares = Vec::new();
    let (list, results) = mpsc::channel();
    run_local(move || {
        let [mut numbers, mut input] = make_channel::<u64, 2>();
        let [mut output, results] = make_channel::<u64, 2>();
        go(move || (0..20).for_each(|n| numbers.write(n).unwrap()));
        go(move || {
            loop {
                let n = input.read().unwrap();
                output.write(n * n).unwrap();
            }
        });
        assert!(reclaimed(consumer(results, move |square| list.send(square).unwrap())));
    });
    squares.extend(results);
    assert_eq!(squares, (0..20).map(|n| n * n).collect::<Vec<_>>());
}

/// What a component does, in the order in which it does it.
type Trace = Arc<Mutex<Vec<(&'static str, u64)>>>;
/// Between two channels: it starts what it consists of.
type Transducer = Box<dyn FnOnce(End<u64>, End<u64>)>;

fn transducer(name: &'static str, trace: &Trace, f: fn(u64) -> u64) -> Transducer {
    let trace = trace.clone();
    Box::new(move |mut from, mut to| {
        go(move || {
            loop {
                let n = from.read().unwrap();
                trace.lock().unwrap().push((name, n));
                to.write(f(n)).unwrap();
            }
        });
    })
}

fn connect(first: Transducer, second: Transducer) -> Transducer {
    Box::new(|from, to| {
        let [left, right] = make_channel();
        first(from, left);
        second(right, to);
    })
}

#[test]
fn pipelines_are_associative() {
    let _watchdog = Watchdog::new();
    let run_one = |left_first: bool| {
        let trace = Trace::default();
        let of = trace.clone();
        run_local(move || {
            let a = transducer("a", &of, |n| n + 1);
            let b = transducer("b", &of, |n| n * 10);
            let c = transducer("c", &of, |n| n + 7);
            let all = if left_first { connect(connect(a, b), c) } else { connect(a, connect(b, c)) };
            let [mut numbers, input] = make_channel();
            let [output, results] = make_channel();
            all(input, output);
            go(move || (0..10).for_each(|n| numbers.write(n).unwrap()));
            assert!(reclaimed(consumer(results, move |n| of.lock().unwrap().push(("consumer", n)))));
        });
        Arc::into_inner(trace).expect("all fibres have ended").into_inner().unwrap()
    };
    // A step may fall on the end of a time slice, and then another order is right too: so each way is run until it has
    // shown the usual one, and the consumer's part is compared always.
    let consumed = |trace: &[(&str, u64)]| trace.iter().filter(|(name, _)| *name == "consumer").count();
    eventually(|| {
        let (left, right) = (run_one(true), run_one(false));
        assert_eq!((consumed(&left), consumed(&right)), (10, 10));
        assert_eq!(left.len(), 40);
        left == right
    });
}

/// k workers on one scheduler, and a ring of fibres that pass a token round.
#[test]
fn process_test() {
    const RING: usize = 50;
    const ROUNDS: usize = 20;
    let watchdog = Watchdog::new();
    for workers in 1..=4 {
        let passed = AtomicUsize::new(0);
        let (passed, scheduler) = (&passed, &Scheduler::new());
        let ended = &AtomicUsize::new(0);
        thread::scope(|s| {
            // None of them is at rest before the work is there.
            let outside = scheduler.keep_alive();
            for _ in 1..workers {
                s.spawn(|| scheduler.run(|| ()));
            }
            scheduler.run(move || {
                scope(|fibres| {
                    let (mut ins, mut outs): (Vec<_>, Vec<_>) =
                        (0..RING).map(|_| make_channel::<usize, 2>()).map(|[to, from]| (from, to)).unzip();
                    outs.rotate_left(1);
                    for (i, (mut from, mut to)) in ins.drain(..).zip(outs).enumerate() {
                        fibres.go(move || {
                            let _ended = Dropped(ended);
                            if i == 0 {
                                to.write(0).unwrap();
                            }
                            // The last to have the token keeps it; its ends go, and so do all the others.
                            loop {
                                let n = from.read().unwrap();
                                passed.fetch_add(1, Relaxed);
                                if n == RING * ROUNDS {
                                    return;
                                }
                                to.write(n + 1).unwrap();
                            }
                        });
                    }
                });
                drop(outside);
            });
        });
        assert_eq!(ended.load(Relaxed), RING, "{workers} workers");
        assert_eq!(passed.load(Relaxed), RING * ROUNDS + 1, "{workers} workers");
        watchdog.pat();
    }
}

/// Two schedulers and a thread: a value goes from one to the next, and each part stays on its own thread.
#[test]
fn foreign_threads_test() {
    const VALUES: usize = 200;
    let _watchdog = Watchdog::new();
    let [mut numbers, mut input] = make_channel::<usize, 2>();
    let [mut output, mut thirds] = make_channel::<usize, 2>();
    let [mut out, mut results] = make_channel::<usize, 2>();
    let (first, second) = (Scheduler::new(), Scheduler::new());
    thread::scope(|s| {
        // The ends are of others: a scheduler does not know them, so it is told that work may come.
        let (of_first, of_second) = (first.keep_alive(), second.keep_alive());
        s.spawn(|| {
            first.run(move || {
                let home = here();
                let fibre = spawn(move || {
                    loop {
                        let n = input.read().unwrap();
                        assert_eq!(here(), home);
                        output.write(n + 1).unwrap();
                        assert_eq!(here(), home);
                    }
                });
                assert!(reclaimed(fibre));
                drop(of_first);
            });
        });
        s.spawn(|| {
            second.run(move || {
                let home = here();
                let fibre = spawn(move || {
                    loop {
                        let n = thirds.read().unwrap();
                        assert_eq!(here(), home);
                        out.write(2 * n).unwrap();
                    }
                });
                assert!(reclaimed(fibre));
                drop(of_second);
            });
        });
        s.spawn(move || (0..VALUES).for_each(|n| numbers.write(n).unwrap()));
        for n in 0..VALUES {
            assert_eq!(results.read(), Ok(2 * (n + 1)));
        }
        assert_eq!(results.read(), Err(Reclaimed), "the pipeline has been reclaimed, from the first stage to the last");
    });
}

// ---- the order in which partners run ------------------------------------------------------------------------------

/// Runs `attempt` until it has shown what it should. A step may fall on the end of a time slice, and then the order is
/// another.
fn shows(expected: &[&str], attempt: impl Fn(&Log)) {
    let mut last = Vec::new();
    for _ in 0..1000 {
        let log = Log::default();
        run_local(|| attempt(&log));
        last = std::mem::take(&mut *log.0.lock().unwrap());
        if last == expected {
            return;
        }
    }
    panic!("never {expected:?}, but {last:?}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }
}

#[test]
fn the_reader_runs_first_if_it_was_there() {
    let _watchdog = Watchdog::new();
    shows(&["write", "read", "another", "written"], |log| {
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let (a, b) = (log.clone(), log.clone());
        let reader = spawn(move || {
            theirs.read().unwrap();
            a.note("read");
        });
        until(|| ours.readers() == 1);
        go(move || b.note("another"));
        log.note("write");
        ours.write(1).unwrap();
        log.note("written");
        reader.join().unwrap();
    });
}

#[test]
fn the_reader_goes_on_if_the_writer_was_there() {
    let _watchdog = Watchdog::new();
    shows(&["read", "readers next", "written"], |log| {
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let a = log.clone();
        let writer = spawn(move || {
            theirs.write(1).unwrap();
            a.note("written");
        });
        until(|| ours.writers() == 1);
        ours.read().unwrap();
        log.note("read");
        log.note("readers next");
        writer.join().unwrap();
    });
}

/// The writer's worker has another fibre, which would run if the writer gave way.
#[test]
fn a_writer_goes_on_if_the_reader_is_foreign() {
    let _watchdog = Watchdog::new();
    let scheduler = Scheduler::new();
    thread::scope(|s| {
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let outside = scheduler.keep_alive();
        s.spawn(move || {
            for n in 0..1000 {
                assert_eq!(theirs.read(), Ok(n));
            }
        });
        scheduler.run(move || {
            let mut went_on = false;
            for n in 0..1000 {
                until(|| ours.readers() == 1);
                static OTHER_RAN: AtomicBool = AtomicBool::new(false);
                OTHER_RAN.store(false, Relaxed);
                let other = Builder::new().on(Placement::Here).spawn(|| OTHER_RAN.store(true, Relaxed));
                ours.write(n).unwrap();
                went_on |= !OTHER_RAN.load(Relaxed);
                other.join().unwrap();
            }
            // The end of a time slice may have come in some rounds, not in all of them.
            assert!(went_on);
            drop(outside);
        });
    });
}

#[test]
fn the_child_runs_first() {
    let _watchdog = Watchdog::new();
    shows(&["parent", "child", "grandchild", "queued before", "parent again"], |log| {
        let queued = log.clone();
        Builder::new().on(Placement::Here).go(move || queued.note("queued before"));
        log.note("parent");
        let of_child = log.clone();
        let child = spawn_fibre(move || {
            of_child.note("child");
            let of_grandchild = of_child.clone();
            drop(spawn_fibre(move || of_grandchild.note("grandchild")));
        });
        log.note("parent again");
        child.join().unwrap();
    });
}

#[test]
fn a_child_of_a_thread_and_one_that_fails() {
    let _watchdog = Watchdog::new();
    assert_eq!(spawn_fibre(|| 5).join().unwrap(), 5);
    assert!(spawn_fibre(|| std::panic::resume_unwind(Box::new(1))).join().is_err());
    run_local(|| {
        assert_eq!(without_switching(|| spawn_fibre(|| 6)).join().unwrap(), 6);
        assert!(spawn_fibre(|| std::panic::resume_unwind(Box::new(1))).join().is_err());
    });
}

// ---- reclamation --------------------------------------------------------------------------------------------------

#[test]
fn a_reader_that_hangs() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [ours, mut theirs] = make_channel::<u32, 2>();
        let reader = spawn(move || theirs.read());
        until(|| ours.readers() == 1);
        drop(ours);
        assert!(reclaimed(reader));
    });
}

#[test]
fn a_writer_that_hangs_and_its_value() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [ours, mut theirs] = make_channel::<Dropped<'static>, 2>();
        let writer = spawn(move || theirs.write(Dropped(&DROPS)).is_ok());
        until(|| ours.writers() == 1);
        assert_eq!(DROPS.load(Relaxed), 0);
        drop(ours);
        assert!(reclaimed(writer));
        assert_eq!(DROPS.load(Relaxed), 1);
    });
}

#[test]
fn three_readers_lose_the_last_writer() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [writer, a, b, c] = make_channel::<u32, 4>();
        let second = writer.dup();
        let readers = [a, b, c].map(|mut end| spawn(move || end.read()));
        until(|| writer.readers() == 3);
        drop(writer);
        for _ in 0..10 {
            gosched();
        }
        assert_eq!(second.readers(), 3, "there is a writer still");
        drop(second);
        assert!(readers.into_iter().all(reclaimed));
    });
}

#[test]
fn an_only_end_that_is_used() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        assert!(reclaimed(spawn(|| make_channel::<u32, 1>()[0].read())));
        assert!(reclaimed(spawn(|| make_channel::<u32, 1>()[0].write(1).is_ok())));
        // With a limit it is not discounted, and comes back.
        let [mut end] = make_channel::<u32, 1>();
        assert_eq!(end.read_until(Instant::now() + Duration::from_millis(1)), Err(Failed::TimedOut));
        assert!(!end.is_dead());
        assert_eq!(end.write_until(3, Instant::now()).unwrap_err().value, 3);
    });
}

#[test]
fn the_second_of_two_readers_ends_both() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let readers = make_ends::<u32>(2).into_iter().map(|mut end| spawn(move || end.read())).collect::<Vec<_>>();
        assert!(readers.into_iter().all(reclaimed));
    });
}

#[test]
fn ends_in_values_in_a_frame() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [ours, mut theirs] = make_channel::<Vec<End<Box<End<u32>>>>, 2>();
        let [inner, mut of_reader] = make_channel::<Box<End<u32>>, 2>();
        let [innermost, mut of_second] = make_channel::<u32, 2>();
        let reader = spawn(move || of_reader.read().is_ok());
        let second = spawn(move || of_second.read().is_ok());
        // Hangs with an end of the reader's channel in its value, and one of the second's in its frame.
        let writer = spawn(move || {
            let _held = innermost;
            theirs.write(vec![inner]).is_ok()
        });
        until(|| ours.writers() == 1);
        drop(ours);
        assert!(reclaimed(writer) && reclaimed(reader) && reclaimed(second));
    });
}

/// Each stage hangs on the one before: the end of the first is the end of all, one after the other.
#[test]
fn a_cascade() {
    const STAGES: usize = 100_000;
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let watchdog = Watchdog::new();
    run_local(|| {
        let [first, mut from] = make_channel::<u32, 2>();
        for _ in 0..STAGES {
            let [mut to, next] = make_channel::<u32, 2>();
            go(move || {
                let _ended = Dropped(&ENDED);
                BEGUN.fetch_add(1, Relaxed);
                loop {
                    let n = from.read().unwrap();
                    to.write(n).unwrap();
                }
            });
            from = next;
        }
        until(|| BEGUN.load(Relaxed) == STAGES);
        gosched(); // one whose time slice was over then hangs now
        assert_eq!(first.readers(), 1);
        assert_eq!(ENDED.load(Relaxed), 0);
        watchdog.pat();
        drop(first);
        assert!(reclaimed(spawn(move || from.read())), "the last one of the row");
        assert_eq!(ENDED.load(Relaxed), STAGES);
    });
}

/// The same from the other side: all hang to write.
#[test]
fn a_cascade_of_writers() {
    const STAGES: usize = 10_000;
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [last, mut to] = make_channel::<u32, 2>();
        for _ in 0..STAGES {
            let [next, from] = make_channel::<u32, 2>();
            go(move || {
                let (_ended, _from) = (Dropped(&ENDED), from);
                BEGUN.fetch_add(1, Relaxed);
                _ = to.write(1);
            });
            to = next;
        }
        until(|| BEGUN.load(Relaxed) == STAGES);
        gosched(); // as above
        assert_eq!((last.writers(), ENDED.load(Relaxed)), (1, 0));
        drop(last);
        assert!(reclaimed(spawn(move || to.write(1).is_ok())));
        assert_eq!(ENDED.load(Relaxed), STAGES);
    });
}

/// Neither count comes to zero; the scheduler is at rest, and unwinds both.
#[test]
fn a_crossing_cycle_at_rest() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    static RAN_ON: AtomicBool = AtomicBool::new(false);
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [mut a, b] = make_channel::<u32, 2>();
        let [mut c, d] = make_channel::<u32, 2>();
        go(move || {
            let (_ended, _d) = (Dropped(&ENDED), d);
            _ = a.read();
            RAN_ON.store(true, Relaxed);
        });
        go(move || {
            let (_ended, _b) = (Dropped(&ENDED), b);
            _ = c.write(1);
            RAN_ON.store(true, Relaxed);
        });
        // Both ends in one fibre.
        let [mut both, _ends] = make_channel::<u32, 2>();
        go(move || {
            let (_ended, _ends) = (Dropped(&ENDED), _ends);
            _ = both.read();
            RAN_ON.store(true, Relaxed);
        });
    });
    assert_eq!(ENDED.load(Relaxed), 3);
    assert!(!RAN_ON.load(Relaxed), "they are unwound where they hang");
}

/// The end that counts is dropped by a thread; the fibre unwinds on its own worker.
#[test]
fn a_drop_on_a_foreign_thread() {
    let _watchdog = Watchdog::new();
    let [ours, mut theirs] = make_channel::<u32, 2>();
    let scheduler = Scheduler::new();
    thread::scope(|s| {
        let outside = scheduler.keep_alive();
        s.spawn(move || {
            eventually(|| ours.readers() == 1);
            drop(ours);
        });
        scheduler.run(|| {
            struct OnHome(thread::ThreadId);
            impl Drop for OnHome {
                fn drop(&mut self) {
                    assert_eq!(here(), self.0);
                }
            }
            let home = OnHome(here());
            let reader = spawn(move || {
                let _home = home;
                theirs.read()
            });
            assert!(reclaimed(reader));
            drop(outside);
        });
    });
}

#[test]
fn threads_are_told() {
    let _watchdog = Watchdog::new();
    let [ours, mut theirs] = make_channel::<String, 2>();
    let writer = thread::spawn(move || (theirs.write("value".into()), theirs));
    eventually(|| ours.writers() == 1);
    drop(ours);
    let (failed, mut theirs) = writer.join().unwrap();
    assert_eq!(failed.unwrap_err().value, "value");
    assert!(theirs.is_dead() && theirs.dup().is_dead());
    assert_eq!(theirs.read(), Err(Reclaimed));
    assert_eq!(theirs.read_until(Instant::now()), Err(Failed::Reclaimed));
    let failed = theirs.write_until("again".into(), Instant::now()).unwrap_err();
    assert_eq!((failed.value.as_str(), failed.why), ("again", Failed::Reclaimed));
}

/// A fibre that asks to be told goes on, and is not condemned.
#[test]
fn fibres_that_are_told() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [ours, mut theirs] = make_channel::<u32, 2>();
        let [other, mut end] = make_channel::<u32, 2>();
        let [mut from, mut to] = make_channel::<u32, 2>();
        let reader = spawn(move || {
            assert_eq!(theirs.read_or_err(), Err(Reclaimed)); // it hangs
            assert_eq!(theirs.read_or_err(), Err(Reclaimed)); // the channel is dead
            to.write(7).unwrap();
        });
        let writer = spawn(move || end.write_or_err(8).unwrap_err().value);
        until(|| (ours.readers(), other.writers()) == (1, 1));
        drop((ours, other));
        assert_eq!(from.read(), Ok(7));
        reader.join().unwrap();
        assert_eq!(writer.join().unwrap(), 8);
    });
}

/// It gets its end again at its next operation, on whatever channel.
#[test]
fn a_swallowed_exit() {
    static SWALLOWED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [mut alive, mut partner] = make_channel::<u32, 2>();
        let fibre = spawn(move || {
            let [mut end] = make_channel::<u32, 1>();
            for _ in 0..3 {
                let caught = catch_unwind(AssertUnwindSafe(|| end.read()));
                assert!(caught.is_err_and(|payload| payload.is::<Goexit>()));
                SWALLOWED.fetch_add(1, Relaxed);
            }
            _ = alive.write(1); // there is a reader
            unreachable!("a fibre that was reclaimed goes on");
        });
        // The fibre's end of the channel goes with the fibre, so the reader ends too.
        let reader = spawn(move || partner.read());
        assert!(reclaimed(fibre) && reclaimed(reader));
        assert_eq!(SWALLOWED.load(Relaxed), 3);
        // The next goroutine on that stack is not condemned.
        let [mut a, mut b] = make_channel::<u32, 2>();
        let next = spawn(move || a.write(1).is_ok());
        assert_eq!(b.read(), Ok(1));
        assert!(next.join().unwrap());
    });
}

#[test]
fn an_end_goes_over_its_own_channel() {
    struct Carried(End<Carried>);
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [mut writer, mut reader, cargo] = make_channel::<Carried, 3>();
        let fibre = spawn(move || {
            let Carried(cargo) = reader.read().unwrap();
            drop(cargo);
            reader.read().is_ok() // the writer's end is the last one that counts
        });
        writer.write(Carried(cargo)).unwrap();
        drop(writer);
        assert!(reclaimed(fibre));

        // The end that is being written is the only other one. Nothing can take it out of the frame: that is a fibre
        // with both ends, which waits until its scheduler is at rest.
        let [mut writer, cargo] = make_channel::<Carried, 2>();
        let ended = Arc::new(());
        let witness = ended.clone();
        go(move || {
            let _witness = witness;
            _ = writer.write(Carried(cargo));
        });
        gosched();
        assert_eq!(Arc::strong_count(&ended), 2);
    });
}

/// A destructor that reads or writes, when its fibre is unwound.
#[test]
fn reads_and_writes_in_destructors() {
    struct WritesOnDrop(End<u32>, Arc<Mutex<Vec<bool>>>);
    impl Drop for WritesOnDrop {
        fn drop(&mut self) {
            let written = self.0.write(7).is_ok();
            self.1.lock().unwrap().push(written);
        }
    }
    let _watchdog = Watchdog::new();
    run_local(|| {
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let [mut ours, theirs, spare, probe] = make_channel::<u32, 4>();
        let (met, alone) = (WritesOnDrop(theirs, outcomes.clone()), WritesOnDrop(spare, outcomes.clone()));
        let [hangs_on, mut end] = make_channel::<u32, 2>();
        let fibre = spawn(move || {
            // Dropped in the reverse order: the one of them that comes first meets the reader.
            let (_second, _first) = (alone, met);
            end.read()
        });
        until(|| hangs_on.readers() == 1);
        let reader = spawn(move || (ours.read(), ours));
        until(|| probe.readers() == 1);
        drop(hangs_on);
        assert!(reclaimed(fibre));
        let (read, _ours) = reader.join().unwrap();
        assert_eq!(read, Ok(7));
        // The other one had no partner, and did not keep its worker waiting for one.
        assert_eq!(*outcomes.lock().unwrap(), [true, false]);
    });
}

/// The same when the scheduler is at rest: the fibres that are unwound do not wait for each other.
#[test]
fn reads_in_destructors_at_rest() {
    struct ReadsOnDrop(End<u32>);
    impl Drop for ReadsOnDrop {
        fn drop(&mut self) {
            assert_eq!(self.0.read(), Err(Reclaimed));
        }
    }
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    // Through this end the second destructor could be served: so it would hang, and the scheduler would not end.
    let [_outside, inside] = make_channel::<u32, 2>();
    run_local(|| {
        let [mut a, b] = make_channel::<u32, 2>();
        let [mut c, d] = make_channel::<u32, 2>();
        go(move || {
            let (_ended, _reads) = (Dropped(&ENDED), ReadsOnDrop(d));
            _ = a.read();
        });
        go(move || {
            let (_ended, _reads, _too) = (Dropped(&ENDED), ReadsOnDrop(b), ReadsOnDrop(inside));
            _ = c.read();
        });
    });
    assert_eq!(ENDED.load(Relaxed), 2);
}

/// A thread meets a fibre while the fibre's scheduler comes to rest: the value has one owner, whichever is first.
#[test]
fn a_match_against_the_end_of_the_scheduler() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let watchdog = Watchdog::new();
    for round in 1..=300 {
        let [mut writer, mut reader] = make_channel::<Dropped<'static>, 2>();
        let received = AtomicUsize::new(0);
        let written = thread::scope(|s| {
            let thread = s.spawn(move || {
                // For a while only: the fibre may have been, and gone.
                _ = (0..10_000).take_while(|_| round % 2 == 0 && writer.readers() == 0).count();
                let far = Instant::now() + Duration::from_millis(1);
                // Every other time with a limit, for the fibre's end may be gone before.
                if round % 3 == 0 {
                    writer.write_until(Dropped(&DROPS), far).is_ok()
                } else {
                    writer.write(Dropped(&DROPS)).is_ok()
                }
            });
            run_local(|| {
                scope(|fibres| {
                    let received = &received;
                    fibres.go(move || {
                        if reader.read_until(Instant::now() + Duration::from_micros(round)).is_ok() {
                            received.fetch_add(1, Relaxed);
                        } else {
                            _ = reader.read();
                            received.fetch_add(1, Relaxed);
                        }
                    });
                });
            });
            thread.join().unwrap()
        });
        assert_eq!(DROPS.load(Relaxed), round as usize, "dropped once, met or not");
        assert!(received.load(Relaxed) <= usize::from(written));
        watchdog.pat();
    }
}

#[test]
fn a_main_goroutine_is_reclaimed_too() {
    let _watchdog = Watchdog::new();
    let ended = catch_unwind(|| run_local(|| make_channel::<u32, 1>()[0].read()));
    let payload = ended.expect_err("its main goroutine has no result");
    assert!(support::goroutine::text(&*payload).contains("main goroutine"));
}

/// The ends of closures that are dropped, not run.
#[test]
fn fibres_that_never_began() {
    let _watchdog = Watchdog::new();
    let [mut ours, mut theirs] = make_channel::<u32, 2>();
    run(|| {
        Builder::new().on(Placement::Here).go(move || {
            _ = theirs.write(1);
            unreachable!("`run` has returned before");
        });
    });
    assert_eq!(ours.read(), Err(Reclaimed));
}

/// A fibre that cannot be unwound where it hangs is told, as a thread is; and a frame of C is not passed.
#[test]
fn a_fibre_in_a_frame_of_c() {
    extern "C" fn reads(end: &mut End<u32>) -> bool {
        end.read() == Err(Reclaimed)
    }
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [ours, mut theirs] = make_channel::<u32, 2>();
        let told = Arc::new(AtomicBool::new(false));
        let of_fibre = told.clone();
        let fibre = spawn(move || {
            of_fibre.store(reads(&mut theirs), Relaxed);
            theirs.read()
        });
        until(|| ours.readers() == 1);
        drop(ours);
        assert!(reclaimed(fibre));
        assert!(told.load(Relaxed));
    });
}

#[test]
fn a_fibre_that_may_not_switch() {
    let _watchdog = Watchdog::new();
    let [ours, mut theirs] = make_channel::<u32, 2>();
    let dropper = thread::spawn(move || {
        eventually(|| ours.readers() == 1);
        drop(ours);
    });
    run_local(|| {
        let fibre = spawn(move || without_switching(|| theirs.read()));
        assert!(reclaimed(fibre));
    });
    dropper.join().unwrap();
}

/// A value whose destructor panics, of a writer that is unwound with its scheduler.
#[test]
fn a_value_that_panics_when_it_is_dropped_at_rest() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Relaxed);
            std::panic::resume_unwind(Box::new(()));
        }
    }
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [mut a, b] = make_channel::<Panics, 2>();
        go(move || {
            let _b = b;
            _ = a.write(Panics);
        });
    });
    assert_eq!(DROPS.load(Relaxed), 1);
}

/// A reader with a deadline keeps a writer's partner alive until then; afterwards its end counts as before.
#[test]
fn a_wait_with_a_deadline_is_not_discounted() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let [a, mut b] = make_channel::<u32, 2>();
        let reader = spawn({
            let mut a = a;
            move || a.read()
        });
        until(|| b.readers() == 1);
        // Both want to read. Without a deadline the second would end both.
        let soon = Instant::now() + Duration::from_millis(2);
        assert_eq!(b.read_until(soon), Err(Failed::TimedOut));
        b.write(5).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(5));
    });
}

#[test]
fn a_wait_that_is_cancelled() {
    let _watchdog = Watchdog::new();
    run_local(|| {
        let stop = Arc::new(Cancel::new());
        let [probe, mut reader] = make_channel::<u32, 2>();
        let [other, mut writer] = make_channel::<u32, 2>();
        let (of_reader, of_writer) = (stop.clone(), stop.clone());
        let reader =
            spawn(move || reader.read_limited(&WaitLimit { cancel: Some(&of_reader), ..WaitLimit::default() }));
        let writer = spawn(move || {
            let far = Instant::now() + Duration::from_secs(3600);
            let limit = WaitLimit { cancel: Some(&of_writer), ..WaitLimit::until(far) };
            let failed = writer.write_limited(5, &limit).unwrap_err();
            (failed.value, failed.why)
        });
        until(|| (probe.readers(), other.writers()) == (1, 1));
        stop.cancel();
        assert_eq!(reader.join().unwrap(), Err(Failed::Cancelled));
        assert_eq!(writer.join().unwrap(), (5, Failed::Cancelled));

        // Cancelled before: a partner that is there is met all the same.
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let writer = spawn(move || theirs.write(6).is_ok());
        until(|| ours.writers() == 1);
        let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
        assert_eq!(ours.read_limited(&limit), Ok(6));
        assert!(writer.join().unwrap());
    });
}

/// Fibres that wait for a cancel that never comes are unwound when their scheduler is at rest, and leave both lists.
#[test]
fn a_limited_wait_at_rest() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    let stop = Arc::new(Cancel::new());
    let [outside, mut inside] = make_channel::<Dropped<'static>, 2>();
    run_local(|| {
        let stop = stop.clone();
        go(move || {
            let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
            _ = inside.write_limited(Dropped(&ENDED), &limit);
            unreachable!("it is unwound where it hangs");
        });
    });
    assert_eq!(ENDED.load(Relaxed), 1);
    stop.cancel();
    assert_eq!(outside.writers(), 0);
    assert!(outside.same_channel(&outside.dup()));
}

// ---- a scheduler that is run again --------------------------------------------------------------------------------

#[test]
fn a_set_is_run_again_and_then_emptied() {
    static READ: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    let mut set = ActiveSet::new();
    let [writer, mut reader] = make_channel::<usize, 2>();
    let mut second = writer.dup();
    set.run(move || {
        let _ended = Dropped(&ENDED);
        loop {
            READ.fetch_add(reader.read().unwrap(), Relaxed);
        }
    });
    for round in 1..=5 {
        let mut end = writer.dup();
        assert_eq!((writer.readers(), ENDED.load(Relaxed)), (1, 0), "it hangs");
        set.run(move || {
            go(move || {
                sudog::time::sleep(Duration::from_millis(1)); // a run does not return before
                end.write(1).unwrap();
            });
        });
        assert_eq!(READ.load(Relaxed), round);
    }
    // A partner outside meets it without a run.
    second.write(10).unwrap();
    eventually(|| READ.load(Relaxed) == 15 && writer.readers() == 1);
    drop(set);
    assert_eq!((ENDED.load(Relaxed), writer.readers()), (1, 0));
}

#[test]
fn a_set_that_a_fibre_of_its_own_drops() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    let mut set = ActiveSet::new();
    let [_writer, mut reader] = make_channel::<usize, 2>();
    set.run(move || {
        let _ended = Dropped(&ENDED);
        _ = reader.read();
    });
    let [mut to, mut from] = make_channel::<ActiveSet, 2>();
    set.run(move || drop(from.read().unwrap()));
    to.write(set).unwrap();
    eventually(|| ENDED.load(Relaxed) == 1);
}

/// One from a goroutine, whose worker goes on meanwhile.
#[test]
fn a_set_that_a_goroutine_runs() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let _watchdog = Watchdog::new();
    run(|| {
        let mut set = ActiveSet::new();
        for _ in 0..3 {
            set.run(|| _ = RUNS.fetch_add(1, Relaxed));
        }
        drop(set);
        assert_eq!(RUNS.load(Relaxed), 3);
    });
}

/// Fibres of two workers do whatever they like with ends of a few channels. No value is lost or doubled, and all end.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read(usize),
    Write(usize),
    ReadUntil(usize, u64),
    WriteUntil(usize, u64),
    Drop(usize),
    Dup(usize),
    Send(usize, usize),
    Yield,
}

fn act() -> impl Strategy<Value = Act> {
    let end = 0..4_usize;
    prop_oneof![
        4 => end.clone().prop_map(Act::Read),
        4 => end.clone().prop_map(Act::Write),
        1 => (end.clone(), 0..300_u64).prop_map(|(i, t)| Act::ReadUntil(i, t)),
        1 => (end.clone(), 0..300_u64).prop_map(|(i, t)| Act::WriteUntil(i, t)),
        2 => end.clone().prop_map(Act::Drop),
        1 => end.clone().prop_map(Act::Dup),
        2 => (end.clone(), end).prop_map(|(i, j)| Act::Send(i, j)),
        2 => Just(Act::Yield),
    ]
}

/// A value, which may hold an end of any channel.
struct Cargo<'a> {
    _end: Option<End<Cargo<'a>>>,
    _dropped: Dropped<'a>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fibres_do(programs in prop::collection::vec(prop::collection::vec(act(), 0..12), 1..8)) {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let _watchdog = Watchdog::new();
        [&MADE, &DROPPED, &ENDED].iter().for_each(|count| count.store(0, SeqCst));
        let count = programs.len();
        let scheduler = Scheduler::new();
        let channels: Vec<_> = (0..4).map(|_| make_ends::<Cargo<'static>>(count)).collect();
        let mut hands: Vec<Vec<Option<End<_>>>> = (0..count).map(|_| Vec::new()).collect();
        for channel in channels {
            channel.into_iter().zip(&mut hands).for_each(|(end, hand)| hand.push(Some(end)));
        }
        thread::scope(|s| {
            let outside = scheduler.keep_alive();
            s.spawn(|| scheduler.run(|| ()));
            scheduler.run(move || {
                for (program, hand) in programs.into_iter().zip(hands) {
                    go(move || {
                        let _ended = Dropped(&ENDED);
                        play(program, hand);
                    });
                }
                drop(outside);
            });
        });
        prop_assert_eq!(ENDED.load(SeqCst), count);
        prop_assert_eq!(MADE.load(SeqCst), DROPPED.load(SeqCst));

        fn cargo(end: Option<End<Cargo<'static>>>) -> Cargo<'static> {
            MADE.fetch_add(1, SeqCst);
            Cargo { _end: end, _dropped: Dropped(&DROPPED) }
        }

        fn play(program: Vec<Act>, mut hand: Vec<Option<End<Cargo<'static>>>>) {
            let at = |t| Instant::now() + Duration::from_micros(t);
            for act in program {
                match act {
                    Act::Read(i) => drop(hand[i].as_mut().map(|end| end.read())),
                    Act::Write(i) => drop(hand[i].as_mut().map(|end| end.write(cargo(None)))),
                    Act::ReadUntil(i, t) => drop(hand[i].as_mut().map(|end| end.read_until(at(t)))),
                    Act::WriteUntil(i, t) => drop(hand[i].as_mut().map(|end| end.write_until(cargo(None), at(t)))),
                    Act::Drop(i) => drop(hand[i].take()),
                    Act::Dup(i) => {
                        let dup = hand[i].as_ref().map(End::dup);
                        hand.push(dup);
                    }
                    Act::Send(i, j) => {
                        let sent = hand[j].take();
                        drop(hand[i].as_mut().map(|end| end.write(cargo(sent))));
                    }
                    Act::Yield => gosched(),
                }
            }
        }
    }
}
