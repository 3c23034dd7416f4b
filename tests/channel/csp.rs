//! `sudog::csp`: the source's programs, the order in which partners run, the reclamation of fibres, and active sets.
//! Tests here take turns with the tests that need the workers for themselves (`alone`).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sudog::context;
use sudog::csp::{
    self, ActiveSet, End, Failed, Reclaimed, Unwritten, make_channel, make_ends, spawn_fibre, spawn_fibre_on,
};
use sudog::low_level::sema::{self, semacquire, semrelease};
use sudog::runtime::{Goexit, goexit, gosched, max_procs};
use sudog::time::sleep;
use sudog::{
    Cancel, JoinHandle, Placement, WaitError, WaitLimit, blocking, go, run, spawn, spawn_async, without_switching,
};
use support::eventually;
use support::goroutine::{Dropped, alone, here, until};

/// Starts a fibre of the caller's set, and forgets its result.
fn fibre<T: Send + 'static>(placement: Placement, f: impl FnOnce() -> T + Send + 'static) {
    drop(spawn_fibre_on(placement, f));
}

/// Starts a fibre of the caller's set on the caller's worker, after the caller.
fn queued<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn_fibre_on(Placement::Here, f)
}

/// Returns whether the fibre's last read has failed.
fn reclaimed<T>(handle: JoinHandle<Result<T, Reclaimed>>) -> bool {
    handle.join().unwrap().is_err()
}

/// Starts a fibre that reads until no writer can come.
fn consumer<T: Send + 'static>(
    mut end: End<T>,
    mut f: impl FnMut(T) + Send + 'static,
) -> JoinHandle<Result<(), Reclaimed>> {
    queued(move || {
        loop {
            f(end.read()?);
        }
    })
}

// ---- the source's programs ----------------------------------------------------------------------------------------

#[test]
fn list_of_squares() {
    let _alone = alone();
    let mut squares = Vec::new();
    csp::run(|| {
        let [mut numbers, mut input] = make_channel::<u64, 2>();
        let [mut output, mut results] = make_channel::<u64, 2>();
        fibre(Placement::Any, move || (0..20).for_each(|n| numbers.write(n).unwrap()));
        fibre(Placement::Any, move || -> Result<(), Reclaimed> {
            loop {
                let n = input.read()?;
                output.write(n * n)?;
            }
        });
        while let Ok(square) = results.read() {
            squares.push(square);
        }
    });
    assert_eq!(squares, (0..20).map(|n| n * n).collect::<Vec<_>>());
}

/// The steps of the components: a component's name and its value, in the order of the steps.
type Trace = Arc<Mutex<Vec<(&'static str, u64)>>>;
/// A component between two channels. The function starts the component's fibres.
type Transducer = Box<dyn FnOnce(End<u64>, End<u64>)>;

fn transducer(name: &'static str, trace: &Trace, f: fn(u64) -> u64) -> Transducer {
    let trace = trace.clone();
    Box::new(move |mut from, mut to| {
        fibre(Placement::Here, move || -> Result<(), Reclaimed> {
            loop {
                let n = from.read()?;
                trace.lock().unwrap().push((name, n));
                to.write(f(n))?;
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
    let _alone = alone();
    let run_one = |left_first: bool| {
        let trace = Trace::default();
        let of = trace.clone();
        csp::run(move || {
            let a = transducer("a", &of, |n| n + 1);
            let b = transducer("b", &of, |n| n * 10);
            let c = transducer("c", &of, |n| n + 7);
            let all = if left_first { connect(connect(a, b), c) } else { connect(a, connect(b, c)) };
            let [mut numbers, input] = make_channel();
            let [output, results] = make_channel();
            all(input, output);
            fibre(Placement::Here, move || (0..10).for_each(|n| numbers.write(n).unwrap()));
            assert!(reclaimed(consumer(results, move |n| of.lock().unwrap().push(("consumer", n)))));
        });
        Arc::into_inner(trace).expect("all fibres have ended").into_inner().unwrap()
    };
    // A step may fall on the end of a time slice, and then another order is right, too. So run both ways until their
    // orders agree, and compare the consumer's part each time.
    let consumed = |trace: &[(&str, u64)]| trace.iter().filter(|(name, _)| *name == "consumer").count();
    eventually(|| {
        let (left, right) = (run_one(true), run_one(false));
        assert_eq!((consumed(&left), consumed(&right)), (10, 10));
        assert_eq!(left.len(), 40);
        left == right
    });
}

/// Several workers serve the same set: a ring of fibres passes a token round.
#[test]
fn process_test() {
    const RING: usize = 50;
    const ROUNDS: usize = 20;
    let alone = alone();
    for workers in 1..=max_procs() {
        let passed = &*Box::leak(Box::new(AtomicUsize::new(0)));
        let ended = &*Box::leak(Box::new(AtomicUsize::new(0)));
        let threads = Arc::new(Mutex::new(BTreeSet::new()));
        let of_set = threads.clone();
        csp::run(move || {
            let (mut ins, mut outs): (Vec<_>, Vec<_>) =
                (0..RING).map(|_| make_channel::<usize, 2>()).map(|[to, from]| (from, to)).unzip();
            outs.rotate_left(1);
            for (i, (mut from, mut to)) in ins.drain(..).zip(outs).enumerate() {
                let threads = of_set.clone();
                fibre(Placement::Worker(i % workers), move || -> Result<(), Reclaimed> {
                    let _ended = Dropped(ended);
                    threads.lock().unwrap().insert(format!("{:?}", here()));
                    if i == 0 {
                        to.write(0)?;
                    }
                    // The last fibre to get the token keeps it. Its ends are dropped, and so are all the other ends,
                    // one fibre after another.
                    loop {
                        let n = from.read()?;
                        passed.fetch_add(1, Relaxed);
                        if n == RING * ROUNDS {
                            return Ok(());
                        }
                        to.write(n + 1)?;
                    }
                });
            }
        });
        assert_eq!(ended.load(Relaxed), RING, "{workers} workers");
        assert_eq!(passed.load(Relaxed), RING * ROUNDS + 1, "{workers} workers");
        assert_eq!(threads.lock().unwrap().len(), workers);
        alone.watchdog.pat();
    }
}

/// Two sets and two threads: a value goes from set to set, and each fibre stays on its own worker.
#[test]
fn foreign_threads_test() {
    const VALUES: usize = 200;
    let _alone = alone();
    let [mut numbers, mut input] = make_channel::<usize, 2>();
    let [mut output, mut thirds] = make_channel::<usize, 2>();
    let [mut out, mut results] = make_channel::<usize, 2>();
    let (mut first, mut second) = (ActiveSet::new(), ActiveSet::new());
    first.run(move || -> Result<(), Reclaimed> {
        let home = here();
        loop {
            let n = input.read()?;
            assert_eq!(here(), home);
            output.write(n + 1)?;
            assert_eq!(here(), home);
        }
    });
    second.run(move || -> Result<(), Reclaimed> {
        let home = here();
        loop {
            let n = thirds.read()?;
            assert_eq!(here(), home);
            out.write(2 * n)?;
        }
    });
    thread::scope(|s| {
        s.spawn(move || (0..VALUES).for_each(|n| numbers.write(n).unwrap()));
        for n in 0..VALUES {
            assert_eq!(results.read(), Ok(2 * (n + 1)));
        }
        assert_eq!(results.read(), Err(Reclaimed), "the pipeline has been reclaimed, from the first stage to the last");
    });
}

// ---- the order in which partners run ------------------------------------------------------------------------------

/// Runs `attempt` until the log is as expected. A step may fall on the end of a time slice, and then the order is
/// different.
fn shows(expected: &[&str], attempt: impl Fn(&Log) + Sync) {
    let mut last = Vec::new();
    for _ in 0..1000 {
        let log = Log::default();
        csp::run(|| attempt(&log));
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
    let _alone = alone();
    shows(&["write", "read", "another", "written"], |log| {
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let (a, b) = (log.clone(), log.clone());
        let reader = queued(move || {
            theirs.read().unwrap();
            a.note("read");
        });
        until(|| ours.readers() == 1);
        fibre(Placement::Here, move || b.note("another"));
        log.note("write");
        ours.write(1).unwrap();
        log.note("written");
        reader.join().unwrap();
    });
}

#[test]
fn the_reader_goes_on_if_the_writer_was_there() {
    let _alone = alone();
    shows(&["read", "readers next", "written"], |log| {
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let a = log.clone();
        let writer = queued(move || {
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

/// The writer's worker has another fibre, which would run if the writer yielded.
#[test]
fn a_writer_goes_on_if_the_reader_is_foreign() {
    static OTHER_RAN: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let [mut ours, mut theirs] = make_channel::<u32, 2>();
    let reader = thread::spawn(move || {
        for n in 0..1000 {
            assert_eq!(theirs.read(), Ok(n));
        }
    });
    csp::run(move || {
        let mut went_on = false;
        for n in 0..1000 {
            until(|| ours.readers() == 1);
            OTHER_RAN.store(false, Relaxed);
            let other = queued(|| OTHER_RAN.store(true, Relaxed));
            ours.write(n).unwrap();
            went_on |= !OTHER_RAN.load(Relaxed);
            other.join().unwrap();
        }
        // The end of a time slice may have come in some rounds, but not in all rounds.
        assert!(went_on);
    });
    reader.join().unwrap();
}

#[test]
fn the_child_runs_first() {
    let _alone = alone();
    shows(&["parent", "child", "grandchild", "queued before", "parent again"], |log| {
        let before = log.clone();
        fibre(Placement::Here, move || before.note("queued before"));
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
    let _alone = alone();
    assert_eq!(spawn_fibre(|| 5).join().unwrap(), 5);
    assert!(spawn_fibre(|| resume_unwind(Box::new(1))).join().is_err());
    csp::run(|| {
        assert_eq!(without_switching(|| spawn_fibre(|| 6)).join().unwrap(), 6);
        assert!(spawn_fibre(|| resume_unwind(Box::new(1))).join().is_err());
    });
}

// ---- reclamation by the count of ends -----------------------------------------------------------------------------

#[test]
fn a_reader_that_hangs() {
    let _alone = alone();
    csp::run(|| {
        let [ours, mut theirs] = make_channel::<u32, 2>();
        let reader = queued(move || theirs.read());
        until(|| ours.readers() == 1);
        drop(ours);
        assert!(reclaimed(reader));
    });
}

/// Goroutines of no set are reclaimed by the count of ends, too.
#[test]
fn goroutines_outside_of_sets() {
    let _alone = alone();
    let [ours, mut theirs] = make_channel::<u32, 2>();
    let reader = spawn(move || theirs.read());
    eventually(|| ours.readers() == 1);
    drop(ours);
    assert!(reclaimed(reader));
    run(|| {
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
    let _alone = alone();
    csp::run(|| {
        let [ours, mut theirs] = make_channel::<Dropped<'static>, 2>();
        let writer = queued(move || theirs.write(Dropped(&DROPS)).map_err(|Unwritten { value, why }| (value, why)));
        until(|| ours.writers() == 1);
        drop(ours);
        let (value, Reclaimed) = writer.join().unwrap().unwrap_err();
        assert_eq!(DROPS.load(Relaxed), 0);
        drop(value);
        assert_eq!(DROPS.load(Relaxed), 1);
    });
}

#[test]
fn three_readers_lose_the_last_writer() {
    let _alone = alone();
    csp::run(|| {
        let [writer, a, b, c] = make_channel::<u32, 4>();
        let second = writer.dup();
        let readers = [a, b, c].map(|mut end| queued(move || end.read()));
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
    let _alone = alone();
    csp::run(|| {
        assert_eq!(make_channel::<u32, 1>()[0].read(), Err(Reclaimed));
        assert_eq!(make_channel::<u32, 1>()[0].write(1).unwrap_err().value, 1);
        // An end that waits with a limit is not discounted, and the wait ends.
        let [mut end] = make_channel::<u32, 1>();
        assert_eq!(
            end.read_limited(Instant::now() + Duration::from_millis(1)),
            Err(Failed::GaveUp(WaitError::TimedOut))
        );
        assert!(!end.is_dead());
        assert_eq!(end.write_limited(3, Instant::now()).unwrap_err().value, 3);
    });
}

#[test]
fn the_second_of_two_readers_ends_both() {
    let _alone = alone();
    csp::run(|| {
        let readers = make_ends::<u32>(2).into_iter().map(|mut end| queued(move || end.read())).collect::<Vec<_>>();
        assert!(readers.into_iter().all(reclaimed));
    });
}

#[test]
fn ends_in_values_in_a_frame() {
    let _alone = alone();
    csp::run(|| {
        let [ours, mut theirs] = make_channel::<Vec<End<Box<End<u32>>>>, 2>();
        let [inner, mut of_reader] = make_channel::<Box<End<u32>>, 2>();
        let [innermost, mut of_second] = make_channel::<u32, 2>();
        let reader = queued(move || of_reader.read());
        let second = queued(move || of_second.read());
        // The writer hangs with an end of the reader's channel in its value, and an end of the second reader's channel
        // in its frame.
        let writer = queued(move || -> Result<(), Reclaimed> {
            let _held = innermost;
            theirs.write(vec![inner])?;
            Ok(())
        });
        until(|| ours.writers() == 1);
        drop(ours);
        assert!(reclaimed(writer) && reclaimed(reader) && reclaimed(second));
    });
}

/// Each stage hangs on the stage before: the end of the first stage ends all stages, one after the other.
#[test]
fn a_cascade() {
    const STAGES: usize = 100_000;
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let alone = alone();
    csp::run(|| {
        let [first, mut from] = make_channel::<u32, 2>();
        for _ in 0..STAGES {
            let [mut to, next] = make_channel::<u32, 2>();
            fibre(Placement::Here, move || -> Result<(), Reclaimed> {
                let _ended = Dropped(&ENDED);
                BEGUN.fetch_add(1, Relaxed);
                loop {
                    let n = from.read()?;
                    to.write(n)?;
                }
            });
            from = next;
        }
        until(|| BEGUN.load(Relaxed) == STAGES);
        gosched(); // a stage whose time slice was over hangs now
        assert_eq!(first.readers(), 1);
        assert_eq!(ENDED.load(Relaxed), 0);
        drop(first);
        assert_eq!(from.read(), Err(Reclaimed), "the last one of the row");
        assert_eq!(ENDED.load(Relaxed), STAGES);
    });
    alone.watchdog.pat();
}

/// A cascade of stages that all hang in writes, each on the stage after.
#[test]
fn a_cascade_of_writers() {
    const STAGES: usize = 10_000;
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    csp::run(|| {
        let [last, mut to] = make_channel::<u32, 2>();
        for _ in 0..STAGES {
            let [next, from] = make_channel::<u32, 2>();
            fibre(Placement::Here, move || {
                let (_ended, _from) = (Dropped(&ENDED), from);
                BEGUN.fetch_add(1, Relaxed);
                to.write(1)
            });
            to = next;
        }
        until(|| BEGUN.load(Relaxed) == STAGES);
        gosched(); // a stage whose time slice was over hangs now
        assert_eq!((last.writers(), ENDED.load(Relaxed)), (1, 0));
        drop(last);
        assert!(to.write(1).is_err());
        assert_eq!(ENDED.load(Relaxed), STAGES);
    });
}

/// A thread drops the last end that counts; the fibre returns on its own worker.
#[test]
fn a_drop_on_a_foreign_thread() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let [ours, mut theirs] = make_channel::<u32, 2>();
    let mut set = ActiveSet::new();
    set.run(move || {
        let home = here();
        assert_eq!(theirs.read(), Err(Reclaimed));
        assert_eq!(here(), home);
        ENDED.store(1, Relaxed);
    });
    assert_eq!(ours.readers(), 1);
    drop(ours);
    eventually(|| ENDED.load(Relaxed) == 1);
}

#[test]
fn threads_are_told() {
    let _alone = alone();
    let [ours, mut theirs] = make_channel::<String, 2>();
    let writer = thread::spawn(move || (theirs.write("value".into()), theirs));
    eventually(|| ours.writers() == 1);
    drop(ours);
    let (failed, mut theirs) = writer.join().unwrap();
    assert_eq!(failed.unwrap_err().value, "value");
    assert!(theirs.is_dead() && theirs.dup().is_dead());
    assert_eq!(theirs.read(), Err(Reclaimed));
    assert_eq!(theirs.read_limited(Instant::now()), Err(Failed::Reclaimed));
    let failed = theirs.write_limited("again".into(), Instant::now()).unwrap_err();
    assert_eq!((failed.value.as_str(), failed.why), ("again", Failed::Reclaimed));
}

/// A fibre that ignores `Reclaimed` goes on. Its dead channel stays dead, and other channels work.
#[test]
fn a_swallowed_end() {
    let _alone = alone();
    csp::run(|| {
        let [ours, mut theirs] = make_channel::<u32, 2>();
        let [mut to, mut from] = make_channel::<u32, 2>();
        fibre(Placement::Here, move || {
            assert_eq!(theirs.read(), Err(Reclaimed)); // the fibre hangs
            assert_eq!(theirs.read(), Err(Reclaimed));
            assert_eq!(theirs.write(1).unwrap_err().value, 1);
            assert_eq!(theirs.dup().read(), Err(Reclaimed));
            to.write(7).unwrap();
            to.write(8).unwrap();
        });
        until(|| ours.readers() == 1);
        drop(ours);
        assert_eq!((from.read(), from.read()), (Ok(7), Ok(8)));
    });
}

#[test]
fn an_end_goes_over_its_own_channel() {
    struct Carried(End<Carried>);
    let _alone = alone();
    csp::run(|| {
        let [mut writer, mut reader, cargo] = make_channel::<Carried, 3>();
        let fibre = queued(move || -> Result<(), Reclaimed> {
            let Carried(cargo) = reader.read()?;
            drop(cargo);
            assert!(reader.read().is_err()); // the writer's end is the last end that counts
            Err(Reclaimed)
        });
        writer.write(Carried(cargo)).unwrap();
        drop(writer);
        assert!(reclaimed(fibre));
    });
    // The end that is being written is the only other end. The fibre that could take it out of the frame is the fibre
    // that hangs, with both ends, until its set is dropped.
    let mut set = ActiveSet::new();
    let ended = Arc::new(());
    let witness = ended.clone();
    let [mut writer, cargo] = make_channel::<Carried, 2>();
    set.run(move || {
        let _witness = witness;
        writer.write(Carried(cargo))
    });
    assert_eq!(Arc::strong_count(&ended), 2);
    drop(set);
    assert_eq!(Arc::strong_count(&ended), 1);
}

/// A fibre gets `Reclaimed` also where a panic would end the process.
#[test]
fn a_fibre_in_a_frame_of_c() {
    extern "C" fn reads(end: &mut End<u32>) -> bool {
        end.read() == Err(Reclaimed)
    }
    let _alone = alone();
    csp::run(|| {
        let [ours, mut theirs] = make_channel::<u32, 2>();
        let fibre = queued(move || reads(&mut theirs));
        until(|| ours.readers() == 1);
        drop(ours);
        assert!(fibre.join().unwrap());
    });
}

#[test]
fn a_fibre_that_may_not_switch() {
    let _alone = alone();
    let [ours, mut theirs] = make_channel::<u32, 2>();
    let mut set = ActiveSet::new();
    set.run(move || assert_eq!(without_switching(|| theirs.read()), Err(Reclaimed)));
    assert_eq!(ours.readers(), 1, "it hangs, and counts as a fibre that does");
    drop(ours);
    drop(set);
    // The set reclaims a fibre that may not switch, too.
    let [mut inside, _outside] = make_channel::<u32, 2>();
    csp::run(move || assert_eq!(without_switching(|| inside.read()), Err(Reclaimed)));
}

/// A reader with a deadline keeps a writer's partner alive until then; afterwards the reader's end counts as before.
#[test]
fn a_wait_with_a_deadline_is_not_discounted() {
    let _alone = alone();
    csp::run(|| {
        let [mut a, mut b] = make_channel::<u32, 2>();
        let reader = queued(move || a.read());
        until(|| b.readers() == 1);
        // Both fibres want to read. Without a deadline the second read would end both.
        let soon = Instant::now() + Duration::from_millis(2);
        assert_eq!(b.read_limited(soon), Err(Failed::GaveUp(WaitError::TimedOut)));
        b.write(5).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(5));
    });
}

#[test]
fn a_wait_that_is_cancelled() {
    let _alone = alone();
    csp::run(|| {
        let stop = Arc::new(Cancel::new());
        let [probe, mut reader] = make_channel::<u32, 2>();
        let [other, mut writer] = make_channel::<u32, 2>();
        let (of_reader, of_writer) = (stop.clone(), stop.clone());
        let reader =
            queued(move || reader.read_limited(&WaitLimit { cancel: Some(&of_reader), ..WaitLimit::default() }));
        let writer = queued(move || {
            let far = Instant::now() + Duration::from_secs(3600);
            let limit = WaitLimit { cancel: Some(&of_writer), ..WaitLimit::until(far) };
            let failed = writer.write_limited(5, &limit).unwrap_err();
            (failed.value, failed.why)
        });
        until(|| (probe.readers(), other.writers()) == (1, 1));
        stop.cancel();
        assert_eq!(reader.join().unwrap(), Err(Failed::GaveUp(WaitError::Cancelled)));
        assert_eq!(writer.join().unwrap(), (5, Failed::GaveUp(WaitError::Cancelled)));

        // After a cancel, a read still meets a partner that is waiting.
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let writer = queued(move || theirs.write(6).is_ok());
        until(|| ours.writers() == 1);
        let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
        assert_eq!(ours.read_limited(&limit), Ok(6));
        assert!(writer.join().unwrap());
    });
}

#[test]
fn a_wait_with_a_context() {
    let _alone = alone();
    csp::run(|| {
        let (ctx, cancel) = context::with_cancel(&context::background());
        let [probe, mut reader] = make_channel::<u32, 2>();
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let (of_reader, of_writer) = (ctx.clone(), ctx.clone());
        let reader = queued(move || reader.read_limited(&of_reader));
        let writer = queued(move || (theirs.write_limited(5, &of_writer), theirs.write_limited(6, &of_writer)));
        assert_eq!(ours.read_limited(&ctx), Ok(5));
        until(|| (probe.readers(), ours.writers()) == (1, 1));
        cancel.cancel();
        let why = Failed::GaveUp(context::Error::Canceled);
        assert_eq!(reader.join().unwrap(), Err(why));
        assert_eq!(writer.join().unwrap(), (Ok(()), Err(Unwritten { value: 6, why })));
        assert_eq!(why.to_string(), "context canceled");
        // With a context that is done already, neither call begins, though the channel is dead.
        drop(probe);
        let [mut alone] = make_channel::<u32, 1>();
        assert_eq!((alone.read(), alone.read_limited(&ctx)), (Err(Reclaimed), Err(why)));
        assert_eq!(alone.write_limited(7, &ctx), Err(Unwritten { value: 7, why }));
    });
}

/// The two conversions of errors by which a fibre ends.
#[test]
fn errors_convert() {
    fn both(from: &mut End<u32>, to: &mut End<u32>) -> Result<(), Failed> {
        let n = from.read_limited(Instant::now() + Duration::from_secs(60))?;
        Ok(to.write_limited(n, Instant::now())?)
    }
    let _alone = alone();
    let [mut from, mut to] = make_channel::<u32, 2>();
    let [mut out, spare] = make_channel::<u32, 2>();
    let writer = thread::spawn(move || to.write(1).is_ok());
    assert_eq!(both(&mut from, &mut out), Err(Failed::GaveUp(WaitError::TimedOut)));
    assert!(writer.join().unwrap());
    assert_eq!(Failed::<WaitError>::from(Reclaimed), Failed::Reclaimed);
    drop(spare);
    assert_eq!(Reclaimed::from(out.write(1).unwrap_err()), Reclaimed);
}

// ---- tasks --------------------------------------------------------------------------------------------------------

/// Polls once.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

#[test]
fn tasks_and_fibres_share_a_channel() {
    let _alone = alone();
    let sum = run(|| {
        let [mut numbers, mut input] = make_channel::<u64, 2>();
        let [mut output, mut results] = make_channel::<u64, 2>();
        go(move || (0..100).for_each(|n| numbers.write(n).unwrap()));
        let task = spawn_async(async move {
            while let Ok(n) = input.read_async().await {
                output.write_async(n * n).await.unwrap();
            }
        });
        let mut sum = 0;
        while let Ok(n) = results.read() {
            sum += n;
        }
        task.join().unwrap();
        sum
    });
    assert_eq!(sum, (0..100).map(|n| n * n).sum());
}

/// A value that a dropped read was given belongs to the end: the next read of the end gets the value, in each form, also
/// when no writer can come.
#[test]
fn a_dropped_read_has_read_nothing() {
    let [mut ours, mut theirs] = make_channel::<String, 2>();
    for (form, text) in ["a", "b", "c"].into_iter().enumerate() {
        let mut read = Box::pin(ours.read_async());
        assert!(poll(read.as_mut(), Waker::noop()).is_pending());
        theirs.write(text.to_owned()).unwrap();
        drop(read);
        let text = Ok(text.to_owned());
        match form {
            0 => assert_eq!(ours.read(), text),
            1 => assert_eq!(ours.read_limited(Duration::ZERO), Ok("b".to_owned())),
            _ => {
                let [_, other] = make_channel::<String, 2>();
                drop(std::mem::replace(&mut theirs, other));
                assert_eq!(poll(pin!(ours.read_async()), Waker::noop()), Poll::Ready(text));
            }
        }
    }
    assert_eq!(ours.read(), Err(Reclaimed));
}

/// A dropped write drops its value. A reclaimed write returns the value. After a write that was met the reader has the value.
#[test]
fn the_value_of_a_write() {
    let value = Arc::new(());
    let [mut ours, mut theirs] = make_channel::<Arc<()>, 2>();
    drop(ours.write_async(value.clone()));
    assert_eq!(Arc::strong_count(&value), 1, "a write that was not polled");
    {
        let mut write = pin!(ours.write_async(value.clone()));
        assert!(poll(write.as_mut(), Waker::noop()).is_pending());
        assert_eq!(theirs.writers(), 1);
    }
    assert_eq!((Arc::strong_count(&value), theirs.writers()), (1, 0), "a write that hung");
    {
        let mut write = pin!(ours.write_async(value.clone()));
        assert!(poll(write.as_mut(), Waker::noop()).is_pending());
        drop(theirs.read().unwrap());
    }
    assert_eq!(Arc::strong_count(&value), 1, "a write that was met, and not polled again");
    let mut write = pin!(ours.write_async(value.clone()));
    assert!(poll(write.as_mut(), Waker::noop()).is_pending());
    drop(theirs);
    let Poll::Ready(Err(failed)) = poll(write.as_mut(), Waker::noop()) else { panic!("the channel is dead") };
    assert!(Arc::ptr_eq(&failed.value, &value));
}

type Fate = Pin<Box<dyn Future<Output = Result<u32, Reclaimed>> + Send>>;

/// A waker that counts its wake-ups, and then drops the futures of other tasks.
struct Dropper {
    woken: AtomicUsize,
    others: Mutex<Vec<Fate>>,
    panics: bool,
}

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Relaxed);
        self.others.lock().unwrap().clear();
        if self.panics {
            resume_unwind(Box::new("a waker panics"));
        }
    }
}

/// When a channel dies, the waker of a task drops all other tasks that hang there: more than a batch, some of which have
/// been taken out of the list.
#[test]
fn a_waker_that_drops_the_other_tasks() {
    for panics in [false, true] {
        let mut ends = make_ends::<u32>(101);
        let last = ends.pop().unwrap();
        let waker = Arc::new(Dropper { woken: AtomicUsize::new(0), others: Mutex::default(), panics });
        let as_waker = Waker::from(waker.clone());
        let tasks = ends.into_iter().map(|mut end| {
            let mut task: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move { end.read_async().await });
            assert!(poll(task.as_mut(), &as_waker).is_pending());
            task
        });
        let tasks: Vec<_> = tasks.collect();
        assert_eq!(last.readers(), 100);
        *waker.others.lock().unwrap() = tasks;
        let died = catch_unwind(AssertUnwindSafe(|| drop(last)));
        assert_eq!(died.is_err(), panics);
        let woken = waker.woken.load(Relaxed);
        assert!((1..=32).contains(&woken), "those of the first batch: {woken}");
    }
}

/// Each reader of a dead channel is woken, although wakers panic.
#[test]
fn wakers_that_panic() {
    let mut ends = make_ends::<u32>(71);
    let last = ends.pop().unwrap();
    let waker = Arc::new(Dropper { woken: AtomicUsize::new(0), others: Mutex::default(), panics: true });
    let as_waker = Waker::from(waker.clone());
    let mut reads: Vec<_> = ends.iter_mut().map(|end| Box::pin(end.read_async())).collect();
    assert!(reads.iter_mut().all(|read| poll(read.as_mut(), &as_waker).is_pending()));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(last))).is_err());
    assert_eq!(waker.woken.load(Relaxed), 70);
    assert!(reads.iter_mut().all(|read| poll(read.as_mut(), &as_waker) == Poll::Ready(Err(Reclaimed))));
}

/// A task keeps a duplicate of an end that may be used later, so the fibre that hangs is not reclaimed.
#[test]
fn a_task_with_another_end() {
    let [mut ours, mut theirs] = make_channel::<u32, 2>();
    let mut spare = ours.dup();
    thread::scope(|s| {
        let reader = s.spawn(|| theirs.read());
        until(|| spare.readers() == 1);
        assert!(poll(pin!(ours.read_async()), Waker::noop()).is_pending());
        spare.write(5).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(5));
    });
    // Without the duplicate, the second of two readers ends both.
    drop(spare);
    let mut read = Box::pin(ours.read_async());
    assert!(poll(read.as_mut(), Waker::noop()).is_pending());
    assert_eq!(theirs.read(), Err(Reclaimed));
    assert_eq!(poll(read.as_mut(), Waker::noop()), Poll::Ready(Err(Reclaimed)));
}

// ---- active sets --------------------------------------------------------------------------------------------------

#[test]
fn a_set_is_run_again_and_then_emptied() {
    static READ: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let mut set = ActiveSet::new();
    let [writer, mut reader] = make_channel::<usize, 2>();
    let mut second = writer.dup();
    set.run(move || -> Result<(), Reclaimed> {
        let _ended = Dropped(&ENDED);
        loop {
            READ.fetch_add(reader.read()?, Relaxed);
        }
    });
    for round in 1..=5 {
        let mut end = writer.dup();
        assert_eq!((writer.readers(), ENDED.load(Relaxed)), (1, 0), "it hangs");
        set.run(move || {
            fibre(Placement::Any, move || {
                sleep(Duration::from_millis(1)); // the run must not return earlier
                end.write(1).unwrap();
            });
        });
        assert_eq!(READ.load(Relaxed), round);
    }
    assert_eq!(format!("{set:?}"), "ActiveSet { fibres: 1, hanging: 1 }");
    // A partner outside of the set meets the fibre without a run.
    second.write(10).unwrap();
    eventually(|| READ.load(Relaxed) == 15 && writer.readers() == 1);
    drop(set);
    assert_eq!((ENDED.load(Relaxed), writer.readers()), (1, 0));
    assert!(!writer.is_dead(), "the other ends live");
}

/// No count of ends comes to zero. When the set is dropped, each fibre gets `Reclaimed` from its own read or write.
#[test]
fn a_crossing_cycle() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let cycles = || {
        let [mut a, b] = make_channel::<u32, 2>();
        let [mut c, d] = make_channel::<u32, 2>();
        fibre(Placement::Any, move || {
            let _d = d;
            assert_eq!(a.read(), Err(Reclaimed));
            ENDED.fetch_add(1, Relaxed);
        });
        fibre(Placement::Any, move || {
            let _b = b;
            assert_eq!(c.write(1).unwrap_err().value, 1);
            ENDED.fetch_add(1, Relaxed);
        });
        // A fibre that has both ends.
        let [mut both, _ends] = make_channel::<u32, 2>();
        assert_eq!(both.read(), Err(Reclaimed));
        ENDED.fetch_add(1, Relaxed);
    };
    csp::run(cycles);
    assert_eq!(ENDED.load(Relaxed), 3);
    let mut set = ActiveSet::new();
    set.run(cycles);
    assert_eq!(ENDED.load(Relaxed), 3);
    drop(set);
    assert_eq!(ENDED.load(Relaxed), 6);
}

/// A cycle in which each fibre hangs on the fibre before, the first on the last: the drop of the set ends all fibres.
#[test]
fn a_large_cycle() {
    const FIBRES: usize = 20_000;
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    csp::run(|| {
        let [first, mut from] = make_channel::<u32, 2>();
        let mut first = Some(first);
        for i in 0..FIBRES {
            let [to, next] = make_channel::<u32, 2>();
            let to = if i == FIBRES - 1 { first.take().unwrap() } else { to };
            fibre(Placement::Any, move || {
                let (_ended, _to) = (Dropped(&ENDED), to);
                from.read()
            });
            from = next;
        }
    });
    assert_eq!(ENDED.load(Relaxed), FIBRES);
}

/// A fibre that waits for something other than a channel of the module keeps its set awake.
#[test]
fn what_keeps_a_set_awake() {
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    static PERMIT: AtomicU32 = AtomicU32::new(0);
    let _alone = alone();
    let mut set = ActiveSet::new();
    let step = || _ = STEPS.fetch_add(1, Relaxed);
    let pause = Duration::from_millis(1);
    let waits: [(&str, fn()); 5] = [
        ("sleeps", || sleep(Duration::from_millis(1))),
        ("waits for a semaphore", || semacquire(&PERMIT)),
        ("is in a blocking call", || blocking(|| thread::sleep(Duration::from_millis(1)))),
        ("waits for a goroutine", || spawn(|| sleep(Duration::from_millis(1))).join().unwrap()),
        ("reads with a deadline", || {
            let [mut end, _other] = make_channel::<u32, 2>();
            assert_eq!(
                end.read_limited(Instant::now() + Duration::from_millis(1)),
                Err(Failed::GaveUp(WaitError::TimedOut))
            );
        }),
    ];
    for (n, (what, wait)) in waits.into_iter().enumerate() {
        let outside = thread::spawn(move || {
            thread::sleep(pause);
            if n == 1 {
                semrelease(&PERMIT, sema::Wake::Normal);
            }
        });
        set.run(move || {
            wait();
            step();
        });
        assert_eq!(STEPS.load(Relaxed), n + 1, "a fibre that {what}");
        outside.join().unwrap();
    }
}

/// A goroutine that a fibre starts by `go` is outside of the set.
#[test]
fn goroutines_of_fibres_are_outside() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    let _alone = alone();
    let [mut ours, mut theirs] = make_channel::<u32, 2>();
    let probe = ours.dup();
    csp::run(move || {
        go(move || {
            assert_eq!(theirs.read(), Ok(1));
            ENDED.store(true, Relaxed);
        });
    });
    eventually(|| probe.readers() == 1);
    assert!(!ENDED.load(Relaxed), "no set reclaims it");
    ours.write(1).unwrap();
    eventually(|| ENDED.load(Relaxed));
}

/// A fibre that ignores `Reclaimed` in a closed set goes on, and does not hang; the drop waits for that fibre.
#[test]
fn a_swallowed_end_in_a_closed_set() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let mut set = ActiveSet::new();
    let [mut reads, outside] = make_channel::<u32, 2>();
    let [mut met, mut partner] = make_channel::<u32, 2>();
    let writer = thread::spawn(move || partner.write(7).is_ok());
    eventually(|| met.writers() == 1);
    set.run(move || {
        assert_eq!(reads.read(), Err(Reclaimed)); // the fibre hangs
        assert_eq!(reads.read(), Err(Reclaimed));
        assert_eq!(reads.read_limited(Instant::now() + Duration::from_secs(3600)), Err(Failed::Reclaimed));
        assert_eq!(met.read(), Ok(7), "a partner that is there is met");
        // A child belongs to the closed set, too.
        let [mut a, _b] = make_channel::<u32, 2>();
        assert!(reclaimed(spawn_fibre(move || a.read())));
        sleep(Duration::from_millis(2));
        ENDED.store(1, Relaxed);
    });
    assert_eq!(outside.readers(), 1);
    drop(set);
    assert_eq!(ENDED.load(Relaxed), 1);
    assert!(writer.join().unwrap());
}

/// Reads and writes in destructors, while the set is dropped, fail at once, and no fibre waits for another.
#[test]
fn reads_in_destructors_of_a_closed_set() {
    struct ReadsOnDrop(End<u32>);
    impl Drop for ReadsOnDrop {
        fn drop(&mut self) {
            assert_eq!(self.0.read(), Err(Reclaimed));
        }
    }
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    // Another thread could serve the second destructor's read through this end.
    let [_outside, inside] = make_channel::<u32, 2>();
    csp::run(move || {
        let [mut a, b] = make_channel::<u32, 2>();
        let [mut c, d] = make_channel::<u32, 2>();
        fibre(Placement::Any, move || {
            let (_ended, _reads) = (Dropped(&ENDED), ReadsOnDrop(d));
            a.read()
        });
        let (_ended, _reads, _too) = (Dropped(&ENDED), ReadsOnDrop(b), ReadsOnDrop(inside));
        c.read()
    })
    .unwrap_err();
    assert_eq!(ENDED.load(Relaxed), 2);
}

/// A thread meets a fibre while the fibre's set is dropped: the value has a single owner, and both sides agree on the
/// meeting.
#[test]
fn a_match_against_the_drop_of_a_set() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let alone = alone();
    let mut met = 0;
    for round in 1..=300 {
        let [mut writer, mut reader] = make_channel::<Dropped<'static>, 2>();
        let thread = thread::spawn(move || {
            // Wait only for a while: the fibre may have come and ended.
            _ = (0..10_000).take_while(|_| round % 2 == 0 && writer.readers() == 0).count();
            let far = Instant::now() + Duration::from_millis(1);
            // Write with a limit every third time, because the fibre's end may be dropped earlier.
            if round % 3 == 0 {
                writer.write_limited(Dropped(&DROPS), far).is_ok()
            } else {
                writer.write(Dropped(&DROPS)).is_ok()
            }
        });
        let received = csp::run(move || {
            let soon = Instant::now() + Duration::from_micros(round);
            reader.read_limited(soon).is_ok() || reader.read().is_ok()
        });
        assert_eq!(thread.join().unwrap(), received);
        assert_eq!(DROPS.load(Relaxed), round as usize, "dropped once, met or not");
        met += u32::from(received);
        alone.watchdog.pat();
    }
    assert!(met > 0);
}

/// Fibres that hang with a limit keep their set awake. They are reclaimed all the same when a fibre of the set drops
/// the set.
#[test]
fn a_limited_wait_and_the_drop_of_a_set() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let stop = Arc::new(Cancel::new());
    let [outside, mut inside] = make_channel::<Dropped<'static>, 2>();
    let [other, mut with_deadline] = make_channel::<Dropped<'static>, 2>();
    let limits = stop.clone();
    let mut set = ActiveSet::new();
    let fibres = Arc::new(Mutex::new(Vec::new()));
    let handles = fibres.clone();
    let [mut to, mut from] = make_channel::<u32, 2>();
    let runner = thread::spawn(move || {
        set.run(move || {
            let cancelled = spawn_fibre(move || {
                let limit = WaitLimit { cancel: Some(&limits), ..WaitLimit::default() };
                inside.write_limited(Dropped(&DROPS), &limit).unwrap_err().why
            });
            let times_out = spawn_fibre(move || {
                let far = Instant::now() + Duration::from_millis(50);
                with_deadline.read_limited(far).map(drop).unwrap_err()
            });
            handles.lock().unwrap().extend([cancelled, times_out]);
            from.read()
        });
        set
    });
    eventually(|| (outside.writers(), other.readers(), to.readers()) == (1, 1, 1));
    assert!(!runner.is_finished(), "fibres with limits keep their set awake");
    to.write(1).unwrap();
    stop.cancel();
    drop(runner.join().unwrap());
    let whys = fibres.lock().unwrap().drain(..).map(|fibre| fibre.join().unwrap()).collect::<Vec<_>>();
    assert_eq!(whys, [Failed::GaveUp(WaitError::Cancelled), Failed::GaveUp(WaitError::TimedOut)]);
    assert_eq!(DROPS.load(Relaxed), 1);

    // A fibre of the set drops the set, while others wait with limits.
    let [outside, mut inside] = make_channel::<u32, 2>();
    let [other, mut with_deadline] = make_channel::<u32, 2>();
    let [mut to, mut from] = make_channel::<ActiveSet, 2>();
    static DONE: AtomicBool = AtomicBool::new(false);
    let mut set = ActiveSet::new();
    set.run(move || {
        let set = from.read().unwrap();
        let never = Cancel::new();
        let cancelled = spawn_fibre(move || {
            let limit = WaitLimit { cancel: Some(&never), ..WaitLimit::default() };
            inside.read_limited(&limit)
        });
        let times_out = spawn_fibre(move || with_deadline.read_limited(Instant::now() + Duration::from_secs(3600)));
        until(|| (outside.readers(), other.readers()) == (1, 1));
        drop(set);
        assert_eq!(cancelled.join().unwrap(), Err(Failed::Reclaimed));
        assert_eq!(times_out.join().unwrap(), Err(Failed::Reclaimed));
        DONE.store(true, Relaxed);
    });
    to.write(set).unwrap();
    eventually(|| DONE.load(Relaxed));
}

#[test]
fn a_set_that_a_fibre_of_its_own_drops() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let mut set = ActiveSet::new();
    let [_writer, mut reader] = make_channel::<usize, 2>();
    set.run(move || {
        let _ended = Dropped(&ENDED);
        reader.read()
    });
    let [mut to, mut from] = make_channel::<ActiveSet, 2>();
    set.run(move || {
        let mut set = from.read().unwrap();
        let payload = catch_unwind(AssertUnwindSafe(|| set.run(|| ()))).unwrap_err();
        assert!(support::goroutine::text(&*payload).contains("a fibre of an active set has run the set"));
        drop(set);
        ENDED.fetch_add(1, Relaxed);
    });
    to.write(set).unwrap();
    eventually(|| ENDED.load(Relaxed) == 2);
}

/// Sets that goroutines run, also goroutines of a `run`; and a set in a fibre of another set, whose number of fibres
/// does not change.
#[test]
fn a_set_that_a_goroutine_runs() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let _alone = alone();
    let three = || {
        let mut set = ActiveSet::new();
        for _ in 0..3 {
            set.run(|| _ = RUNS.fetch_add(1, Relaxed));
        }
    };
    run(three);
    assert_eq!(RUNS.load(Relaxed), 3);
    csp::run(|| {
        three();
        let [mut a, mut b] = make_channel::<u32, 2>();
        // The caller waits for a set of its own, so the caller's set is awake, and nothing reclaims the reader.
        let reader = queued(move || a.read());
        assert_eq!(csp::run(|| 5), 5);
        let [mut inner, _other] = make_channel::<u32, 2>();
        assert_eq!(csp::run(move || inner.read()), Err(Reclaimed));
        b.write(1).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(1));
    });
    assert_eq!(RUNS.load(Relaxed), 6);
    drop(ActiveSet::default());
}

/// The main fibre of a single run borrows, is reclaimed, returns, panics, and exits.
#[test]
fn the_main_fibre_of_a_run() {
    let _alone = alone();
    assert_eq!(csp::run(|| make_channel::<u32, 1>()[0].read()), Err(Reclaimed));
    let mut borrowed = vec![1];
    let [mut hangs, other] = make_channel::<u32, 2>();
    let both = (&mut borrowed, &other);
    assert_eq!(csp::run(|| (both.0.push(2), hangs.read()).1), Err(Reclaimed));
    assert_eq!((borrowed, other.readers()), (vec![1, 2], 0));

    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let fails = |ends: fn()| {
        let payload = catch_unwind(|| {
            csp::run(move || {
                fibre(Placement::Any, || {
                    let _ended = Dropped(&ENDED);
                    let [mut end, _other] = make_channel::<u32, 2>();
                    end.read()
                });
                ends();
            });
        });
        payload.unwrap_err()
    };
    assert!(fails(|| resume_unwind(Box::new(5))).is::<i32>());
    assert!(fails(|| goexit()).is::<Goexit>());
    assert_eq!(ENDED.load(Relaxed), 2, "the set is emptied first");
}

/// A closure that is dropped without having run counts as a fibre that has ended: its ends are dropped.
#[test]
fn fibres_that_never_began() {
    let _alone = alone();
    csp::run(|| {
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let nowhere = Placement::Worker(usize::MAX);
        let placed = catch_unwind(AssertUnwindSafe(|| drop(spawn_fibre_on(nowhere, move || theirs.read()))));
        assert!(placed.is_err());
        assert_eq!(ours.read(), Err(Reclaimed));
        // The caller is still a fibre of the set.
        let [mut hangs, _other] = make_channel::<u32, 2>();
        assert_eq!(hangs.read(), Err(Reclaimed));
    });
}

/// Fibres that panic are no longer counted, and the next goroutine on their stack belongs to no set.
#[test]
fn fibres_that_panic_and_the_next_on_their_stack() {
    let _alone = alone();
    for _ in 0..20 {
        csp::run(|| {
            assert!(queued(|| resume_unwind(Box::new(1))).join().is_err());
            assert!(queued(|| goexit()).join().is_err());
        });
        let [mut ours, mut theirs] = make_channel::<u32, 2>();
        let outside = spawn(move || theirs.read());
        eventually(|| ours.readers() == 1);
        ours.write(1).unwrap();
        assert_eq!(outside.join().unwrap(), Ok(1));
    }
}

/// A step of a fibre. The fibres of a set take any steps with ends of a few channels: no value is lost or doubled, and
/// all fibres end.
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
        let _alone = alone();
        [&MADE, &DROPPED, &ENDED].iter().for_each(|count| count.store(0, SeqCst));
        let count = programs.len();
        let channels: Vec<_> = (0..4).map(|_| make_ends::<Cargo<'static>>(count)).collect();
        let mut hands: Vec<Vec<Option<End<_>>>> = (0..count).map(|_| Vec::new()).collect();
        for channel in channels {
            channel.into_iter().zip(&mut hands).for_each(|(end, hand)| hand.push(Some(end)));
        }
        csp::run(move || {
            for (program, hand) in programs.into_iter().zip(hands) {
                fibre(Placement::Any, move || {
                    let _ended = Dropped(&ENDED);
                    play(program, hand);
                });
            }
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
                    Act::ReadUntil(i, t) => drop(hand[i].as_mut().map(|end| end.read_limited(at(t)))),
                    Act::WriteUntil(i, t) => drop(hand[i].as_mut().map(|end| end.write_limited(cargo(None), at(t)))),
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
