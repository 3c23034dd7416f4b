//! Models of the count and the list: threads that read, write, give up at a deadline, duplicate ends and drop them.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-csp --test loom_csp`
//!
//! A fibre that is never reclaimed shows as a deadlock, a lost or doubled value by the count of drops, a missing order by
//! loom's cell in each value. Under loom a deadline has always passed already, so it races with everything that happens
//! after the parking. Threads stand for fibres, which hang and are readied by the same code, and then end themselves.
#![cfg(sudog_loom)]

#[path = "../../runtime/tests/chan_world/mod.rs"]
mod chan_world;

use std::sync::atomic::Ordering::Relaxed;

use chan_world::{Value, explore};
use loom::sync::Arc;
use loom::thread;
use sudog_csp::{End, Failed, Reclaimed, make_channel};
use sudog_runtime::Instant;
use sudog_runtime::reached::{AT_ONCE, SLEEPS, TWO_SLEEP, WOKEN_BEFORE, mark, waiting};
use sudog_runtime::sema::{Cancel, WaitLimit};

const DEAD: &str = "a call finds the channel dead";
const DROPPED_DEAD: &str = "an end of a dead channel is dropped";
const LAST: &str = "a fibre that would hang is the last";
const LEAVES: &str = "a fibre leaves at its deadline";
const MET_LATE: &str = "a fibre is met at its deadline";
const RECLAIMED: &str = "a fibre that hangs is reclaimed";
const READ: &str = "a value is read";
const HANGS_BEFORE: &str = "a fibre hangs before another waits with a deadline";
const HANGS_AFTER: &str = "a fibre hangs later";
const CANCELLED: &str = "a cancel ends a wait";
const CANCELLED_BEFORE: &str = "a cancel comes before the wait";
const MET_BEFORE: &str = "a fibre is met when the cancel has come";
const TIMED_OUT: &str = "a write gives up at its deadline";
const NOT_READ: &str = "a value comes back";

fn read(end: &mut End<Value>) -> Result<u32, Reclaimed> {
    waiting(|| end.read()).0.map(Value::read)
}

#[test]
fn a_value_goes_from_the_writer_to_the_reader() {
    explore(4, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, RECLAIMED, LAST], |w| {
        let [mut ours, mut theirs] = make_channel();
        let writer = thread::spawn({
            let w = w.clone();
            move || {
                for n in 1..=2 {
                    waiting(|| theirs.write(w.value(n))).0.unwrap();
                }
            }
        });
        assert_eq!(read(&mut ours), Ok(1));
        assert_eq!(read(&mut ours), Ok(2));
        // The writer's end goes.
        assert_eq!(read(&mut ours), Err(Reclaimed));
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_and_the_last_end() {
    explore(4, &[SLEEPS, WOKEN_BEFORE, RECLAIMED, LAST, DROPPED_DEAD], |_| {
        let [mut ours, theirs] = make_channel();
        let dropper = thread::spawn(move || drop(theirs));
        assert_eq!(read(&mut ours), Err(Reclaimed));
        dropper.join().unwrap();
    });
}

#[test]
fn a_writer_and_the_last_end() {
    explore(4, &[SLEEPS, RECLAIMED, LAST], |w| {
        let [mut ours, theirs] = make_channel();
        let dropper = thread::spawn(move || drop(theirs));
        let failed = waiting(|| ours.write(w.value(7))).0.unwrap_err();
        assert_eq!(failed.value.read(), 7);
        dropper.join().unwrap();
    });
}

/// Two ends go at the same time: one of them is the last. (In the source both load the count, and neither deletes.)
#[test]
fn two_ends_are_dropped_at_a_time() {
    explore(3, &[SLEEPS, RECLAIMED, LAST], |_| {
        let [mut ours, a, b] = make_channel();
        let droppers = [a, b].map(|end| thread::spawn(move || drop(end)));
        assert_eq!(read(&mut ours), Err(Reclaimed));
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    });
}

/// Whichever hangs second ends both.
#[test]
fn two_readers_without_a_writer() {
    explore(4, &[SLEEPS, RECLAIMED, LAST, DEAD, DROPPED_DEAD], |_| {
        let [mut a, mut b] = make_channel();
        let other = thread::spawn(move || {
            assert_eq!(read(&mut b), Err(Reclaimed));
            assert_eq!(read(&mut b), Err(Reclaimed));
        });
        assert_eq!(read(&mut a), Err(Reclaimed));
        other.join().unwrap();
    });
}

#[test]
fn two_readers_and_a_value() {
    explore(2, &[SLEEPS, TWO_SLEEP, RECLAIMED, LAST], |w| {
        let [a, b, mut writer] = make_channel();
        let readers = [a, b].map(|mut end| thread::spawn(move || read(&mut end)));
        waiting(|| writer.write(w.value(1))).0.unwrap();
        drop(writer);
        // The one that has read goes, and with it the other's last partner.
        let read = readers.map(|reader| reader.join().unwrap().is_ok());
        assert!(read[0] != read[1]);
        assert_eq!(w.read.load(Relaxed), 1);
    });
}

/// A reader and a writer, of which one has a deadline: both know alike whether they have met.
#[test]
fn a_reader_with_a_deadline() {
    explore(4, &[SLEEPS, LEAVES, MET_LATE, RECLAIMED, READ, NOT_READ], |w| {
        let [mut ours, mut theirs] = make_channel();
        let writer = thread::spawn({
            let w = w.clone();
            move || match waiting(|| theirs.write(w.value(3))).0 {
                Ok(()) => true,
                Err(failed) => {
                    assert_eq!(failed.value.read(), 3);
                    false
                }
            }
        });
        let (read, _) = waiting(|| ours.read_until(Instant::now()));
        drop(ours);
        let read = match read {
            Ok(value) => {
                assert_eq!(value.read(), 3);
                mark(READ);
                true
            }
            Err(why) => {
                assert_eq!(why, Failed::TimedOut);
                mark(NOT_READ);
                false
            }
        };
        assert_eq!(writer.join().unwrap(), read);
    });
}

#[test]
fn a_writer_with_a_deadline() {
    explore(4, &[SLEEPS, LEAVES, MET_LATE, RECLAIMED, READ, NOT_READ], |w| {
        let [mut ours, mut theirs] = make_channel();
        let reader = thread::spawn(move || read(&mut theirs).is_ok());
        let (written, _) = waiting(|| ours.write_until(w.value(3), Instant::now()));
        drop(ours);
        let written = match written {
            Ok(()) => {
                mark(READ);
                true
            }
            Err(failed) => {
                assert_eq!(failed.why, Failed::TimedOut);
                assert_eq!(failed.value.read(), 3);
                mark(NOT_READ);
                false
            }
        };
        assert_eq!(reader.join().unwrap(), written);
    });
}

/// A wait with a deadline is counted: a fibre that hangs meanwhile is not reclaimed, and then is met.
#[test]
fn an_end_that_waits_with_a_deadline_counts() {
    explore(3, &[SLEEPS, HANGS_BEFORE, HANGS_AFTER, LEAVES], |w| {
        let [mut ours, mut theirs] = make_channel();
        let reader = thread::spawn(move || read(&mut theirs));
        mark(if ours.readers() == 1 { HANGS_BEFORE } else { HANGS_AFTER });
        assert!(waiting(|| ours.read_until(Instant::now())).0.is_err_and(|why| why == Failed::TimedOut));
        waiting(|| ours.write(w.value(4))).0.unwrap();
        assert_eq!(reader.join().unwrap(), Ok(4));
    });
}

/// A cancel, a partner and a wait: the reader and the writer know alike whether they have met.
#[test]
fn a_reader_that_is_cancelled() {
    explore(3, &[SLEEPS, READ, CANCELLED, CANCELLED_BEFORE, MET_BEFORE, RECLAIMED], |w| {
        let [mut ours, mut theirs] = make_channel();
        let stop = Arc::new(Cancel::new());
        let canceller = thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        let writer = thread::spawn({
            let w = w.clone();
            move || waiting(|| theirs.write(w.value(3))).0.is_ok()
        });
        let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
        let (read, _) = waiting(|| ours.read_limited(&limit));
        drop(ours);
        let read = match read {
            Ok(value) => {
                assert_eq!(value.read(), 3);
                mark(READ);
                true
            }
            Err(why) => {
                assert_eq!(why, Failed::Cancelled);
                false
            }
        };
        assert_eq!(writer.join().unwrap(), read);
        canceller.join().unwrap();
    });
}

/// All three at once: a deadline, which has passed always, a cancel, and a partner.
#[test]
fn a_writer_with_a_deadline_that_is_cancelled() {
    explore(3, &[SLEEPS, READ, CANCELLED, TIMED_OUT, CANCELLED_BEFORE], |w| {
        let [mut ours, mut theirs] = make_channel();
        let stop = Arc::new(Cancel::new());
        let canceller = thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        let reader = thread::spawn(move || read(&mut theirs).is_ok());
        let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::until(Instant::now()) };
        let (written, _) = waiting(|| ours.write_limited(w.value(3), &limit));
        drop(ours);
        let written = match written {
            Ok(()) => {
                mark(READ);
                true
            }
            Err(failed) => {
                assert_eq!(failed.value.read(), 3);
                match failed.why {
                    Failed::TimedOut => mark(TIMED_OUT),
                    Failed::Cancelled => {}
                    Failed::Reclaimed => unreachable!("its end counts"),
                }
                false
            }
        };
        assert_eq!(reader.join().unwrap(), written);
        canceller.join().unwrap();
    });
}

/// The duplicate is made before its original goes, so there is an end that counts at all times.
#[test]
fn a_duplicate_serves_the_reader() {
    explore(3, &[SLEEPS, AT_ONCE, WOKEN_BEFORE], |w| {
        let [mut ours, theirs] = make_channel();
        let other = thread::spawn({
            let w = w.clone();
            move || {
                let mut dup = theirs.dup();
                drop(theirs);
                waiting(|| dup.write(w.value(9))).0.unwrap();
            }
        });
        assert_eq!(read(&mut ours), Ok(9));
        other.join().unwrap();
    });
}

/// A hangs on a channel whose other end is in the value of B, which hangs on another: when that goes, all go.
#[test]
fn a_cascade_through_a_value() {
    explore(3, &[SLEEPS, TWO_SLEEP, RECLAIMED], |_| {
        let [mut a, inner] = make_channel::<Value, 2>();
        let [outer, mut b] = make_channel::<End<Value>, 2>();
        let reader = thread::spawn(move || assert_eq!(read(&mut a), Err(Reclaimed)));
        let writer = thread::spawn(move || assert!(waiting(|| b.write(inner)).0.is_err()));
        drop(outer);
        writer.join().unwrap();
        reader.join().unwrap();
    });
}
