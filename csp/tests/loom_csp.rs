//! Models of the count and the list: threads and tasks that read, write, give up, duplicate ends and drop them.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-csp --test loom_csp`
//!
//! A fibre that is never reclaimed shows as a deadlock, a lost or doubled value by the count of drops, a missing order
//! by loom's cell in each value; a missed rest of a set shows as a deadlock, too. Under loom a deadline has always
//! passed already, so the deadline races with everything that happens after the parking. Threads stand for fibres,
//! which hang and are readied by the same code.
#![cfg(sudog_loom)]

#[path = "../../runtime/tests/chan_world/mod.rs"]
mod chan_world;

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use chan_world::{READY_AT_ONCE, Value, WOKEN, explore, finish, poll_and_drop};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use sudog_csp::{ActiveSet, End, Failed, Reclaimed, make_channel};
use sudog_runtime::Instant;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AT_ONCE, SLEEPS, TWO_SLEEP, WOKEN_BEFORE, mark, waiting};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};

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
const RESTS: &str = "the end of a fibre brings rest";
const HANG_RESTS: &str = "a fibre that hangs brings rest";
const RESTED_ALREADY: &str = "a set is at rest already";
const SET_RECLAIMS: &str = "a set reclaims a fibre";
const CLOSED: &str = "a fibre of a closed set does not hang";
const TASK_MET: &str = "a task is met";
const TASK_RECLAIMED: &str = "a task is reclaimed";
const DROPPED_HANGING: &str = "a task is dropped while it hangs";
const DROPPED_MET: &str = "a task is dropped when it has been met";
const DROPPED_RECLAIMED: &str = "a task is dropped when reclaimed";
const LEAVES_DEAD: &str = "a task leaves a dead channel";
const UNREAD: &str = "a value that a dropped task was given is read";

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
        // The writer drops its end.
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

/// Drops two ends at the same time: one of the drops is the last. (In the source both load the count, and neither
/// deletes.)
#[test]
fn two_ends_are_dropped_at_a_time() {
    explore(3, &[SLEEPS, RECLAIMED, LAST], |_| {
        let [mut ours, a, b] = make_channel();
        let droppers = [a, b].map(|end| thread::spawn(move || drop(end)));
        assert_eq!(read(&mut ours), Err(Reclaimed));
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    });
}

/// Lets two readers hang, and no writer is left: the reader that hangs second ends both readers.
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
        // The reader that has read drops its end, and with that end the other reader's last partner.
        let read = readers.map(|reader| reader.join().unwrap().is_ok());
        assert!(read[0] != read[1]);
        assert_eq!(w.read.load(Relaxed), 1);
    });
}

/// Lets a reader with a deadline meet a writer: both agree on whether they have met.
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
        let (read, _) = waiting(|| ours.read_limited(Instant::now()));
        drop(ours);
        let read = match read {
            Ok(value) => {
                assert_eq!(value.read(), 3);
                mark(READ);
                true
            }
            Err(why) => {
                assert_eq!(why, Failed::GaveUp(WaitError::TimedOut));
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
        let (written, _) = waiting(|| ours.write_limited(w.value(3), Instant::now()));
        drop(ours);
        let written = match written {
            Ok(()) => {
                mark(READ);
                true
            }
            Err(failed) => {
                assert_eq!(failed.why, Failed::GaveUp(WaitError::TimedOut));
                assert_eq!(failed.value.read(), 3);
                mark(NOT_READ);
                false
            }
        };
        assert_eq!(reader.join().unwrap(), written);
    });
}

/// Lets one fibre wait with a deadline while another fibre hangs. The first fibre counts as a possible partner, so the
/// second fibre is not reclaimed, and the two meet.
#[test]
fn an_end_that_waits_with_a_deadline_counts() {
    explore(3, &[SLEEPS, HANGS_BEFORE, HANGS_AFTER, LEAVES], |w| {
        let [mut ours, mut theirs] = make_channel();
        let reader = thread::spawn(move || read(&mut theirs));
        mark(if ours.readers() == 1 { HANGS_BEFORE } else { HANGS_AFTER });
        assert!(
            waiting(|| ours.read_limited(Instant::now()))
                .0
                .is_err_and(|why| why == Failed::GaveUp(WaitError::TimedOut))
        );
        waiting(|| ours.write(w.value(4))).0.unwrap();
        assert_eq!(reader.join().unwrap(), Ok(4));
    });
}

/// Lets a cancel, a partner and a wait race: the reader and the writer agree on whether they have met.
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
                assert_eq!(why, Failed::GaveUp(WaitError::Cancelled));
                false
            }
        };
        assert_eq!(writer.join().unwrap(), read);
        canceller.join().unwrap();
    });
}

/// Lets a deadline, a cancel and a partner race. The deadline has passed before the wait begins.
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
                    Failed::GaveUp(WaitError::TimedOut) => mark(TIMED_OUT),
                    Failed::GaveUp(WaitError::Cancelled) => {}
                    Failed::Reclaimed => unreachable!("its end counts"),
                }
                false
            }
        };
        assert_eq!(reader.join().unwrap(), written);
        canceller.join().unwrap();
    });
}

/// Makes a duplicate before its original is dropped, so there is an end that counts at all times.
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

/// Lets fibre B hang while it writes a value to a second channel. The value contains the only other end of the first
/// channel, on which fibre A hangs. When the second channel ends, both fibres end.
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

// ---- tasks --------------------------------------------------------------------------------------------------------------

/// Lets a task read from a thread until the thread's end is gone: no wake-up is lost, and the task is reclaimed.
#[test]
fn a_task_reads_until_it_is_reclaimed() {
    explore(3, &[READY_AT_ONCE, WOKEN, TASK_MET, TASK_RECLAIMED, SLEEPS, LAST, DEAD], |w| {
        let [mut ours, mut theirs] = make_channel::<Value, 2>();
        let value = w.value(1);
        let writer = thread::spawn(move || waiting(|| theirs.write(value)).0.unwrap());
        assert_eq!(finish(pin!(ours.read_async())).map(Value::read), Ok(1));
        assert_eq!(finish(pin!(ours.read_async())).map(Value::read), Err(Reclaimed));
        assert_eq!(finish(pin!(ours.read_async())).map(Value::read), Err(Reclaimed));
        writer.join().unwrap();
    });
}

/// Lets a task write twice. A thread reads the first value, and is gone then, so the task gets the second value back.
#[test]
fn a_task_writes_until_it_is_reclaimed() {
    explore(3, &[READY_AT_ONCE, WOKEN, TASK_MET, TASK_RECLAIMED, SLEEPS, LAST], |w| {
        let [mut ours, mut theirs] = make_channel::<Value, 2>();
        let reader = thread::spawn(move || assert_eq!(read(&mut theirs), Ok(1)));
        finish(pin!(ours.write_async(w.value(1)))).unwrap();
        assert_eq!(finish(pin!(ours.write_async(w.value(2)))).unwrap_err().value.read(), 2);
        reader.join().unwrap();
    });
}

/// Drops a task that reads while a thread writes. The dropped task has read nothing: the next read of the same end gets
/// the value.
#[test]
fn a_task_that_reads_is_dropped() {
    explore(3, &[DROPPED_HANGING, DROPPED_MET, UNREAD, SLEEPS, WOKEN], |w| {
        let [mut ours, mut theirs] = make_channel::<Value, 2>();
        let value = w.value(1);
        let writer = thread::spawn(move || waiting(|| theirs.write(value)).0.is_ok());
        let first = poll_and_drop(pin!(ours.read_async()));
        let read = first.unwrap_or_else(|| finish(pin!(ours.read_async())));
        assert_eq!(writer.join().unwrap(), read.map(Value::read).is_ok());
    });
}

/// Drops a task that writes while a thread reads: both agree on whether they have met.
#[test]
fn a_task_that_writes_is_dropped() {
    explore(3, &[DROPPED_HANGING, DROPPED_MET, SLEEPS, RECLAIMED, READ, NOT_READ], |w| {
        let [mut ours, mut theirs] = make_channel::<Value, 2>();
        let reader = thread::spawn(move || read(&mut theirs).is_ok());
        _ = poll_and_drop(pin!(ours.write_async(w.value(1))));
        drop(ours);
        let read = reader.join().unwrap();
        mark(if read { READ } else { NOT_READ });
        assert_eq!(w.read.load(Relaxed), u32::from(read));
    });
}

/// Drops a task that hangs while its channel dies.
#[test]
fn a_task_is_dropped_and_the_channel_dies() {
    explore(3, &[DROPPED_HANGING, DROPPED_RECLAIMED, LAST, DEAD], |_| {
        let [mut ours, theirs] = make_channel::<Value, 2>();
        let dropper = thread::spawn(move || drop(theirs));
        if let Some(read) = poll_and_drop(pin!(ours.read_async())) {
            assert_eq!(read.map(Value::read), Err(Reclaimed));
        }
        dropper.join().unwrap();
        assert!(finish(pin!(ours.read_async())).is_err());
    });
}

/// Lets two tasks hang on a channel that dies, and drops the second task. The death readies the tasks in two batches, and
/// the drop may come between these batches.
#[test]
fn a_task_is_dropped_between_two_batches() {
    explore(3, &[DROPPED_HANGING, DROPPED_RECLAIMED, LEAVES_DEAD, TASK_RECLAIMED, WOKEN], |_| {
        let [mut a, mut b, last] = make_channel::<Value, 3>();
        let mut first = pin!(a.read_async());
        let mut second = Box::pin(b.read_async());
        let pending = |poll: Poll<_>| assert!(poll.is_pending());
        pending(first.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        pending(second.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        let dropper = thread::spawn(move || drop(last));
        drop(second);
        drop(b);
        assert!(finish(first).is_err());
        dropper.join().unwrap();
    });
}

// ---- active sets: threads stand for their fibres ------------------------------------------------------------------------

/// A thread that runs a fibre of the set. The fibre ends with the thread's closure.
fn fibre(set: &ActiveSet, f: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
    thread::spawn(set.fibre(f))
}

/// Drops a set. The drop must wait until the fibres of the set have ended, as `ended` then shows. Relaxed: the set's
/// lock orders.
fn drop_and_expect(set: ActiveSet, ended: &AtomicU32, expected: u32) {
    drop(set);
    assert_eq!(ended.load(Relaxed), expected, "the set waits for its fibres");
}

/// Runs two fibres. The first hangs, meets the second, and hangs again; the second ends. The runner is woken only when the
/// set is at rest, and the drop of the set reclaims the fibre that hangs.
#[test]
fn rest_by_a_meeting_a_hang_and_an_end() {
    explore(3, &[SLEEPS, TWO_SLEEP, RESTS, HANG_RESTS, RESTED_ALREADY, SET_RECLAIMS, RECLAIMED, READ], |w| {
        let mut set = ActiveSet::new();
        let [mut reader, mut writer, spare] = make_channel();
        let (read_one, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (of_reader, ends) = (read_one.clone(), ended.clone());
        let reads = fibre(&set, move || {
            assert_eq!(read(&mut reader), Ok(1));
            mark(READ);
            of_reader.store(1, Relaxed);
            assert_eq!(read(&mut reader), Err(Reclaimed));
            assert_eq!(read(&mut reader), Err(Reclaimed), "in a closed set no fibre hangs");
            ends.fetch_add(1, Relaxed);
        });
        let value = w.value(1);
        let ends = ended.clone();
        let writes = fibre(&set, move || {
            waiting(|| writer.write(value)).0.unwrap();
            drop(writer);
            ends.fetch_add(1, Relaxed);
        });
        set.wait_for_rest();
        assert_eq!(read_one.load(Relaxed), 1, "rest before a fibre that was met has gone on");
        assert_eq!((ended.load(Relaxed), spare.readers()), (1, 1), "rest before the fibre hangs");
        drop_and_expect(set, &ended, 2);
        assert_eq!(spare.readers(), 0);
        reads.join().unwrap();
        writes.join().unwrap();
    });
}

/// Lets a partner outside meet a fibre of the set while the set is dropped: the value has a single owner, and the
/// fibre a single waker.
#[test]
fn a_partner_outside_and_the_drop_of_the_set() {
    explore(3, &[SLEEPS, SET_RECLAIMS, RECLAIMED, READ, NOT_READ, CLOSED], |w| {
        let set = ActiveSet::new();
        let [mut inside, mut outside] = make_channel();
        let (ended, has_read) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (ends, reads) = (ended.clone(), has_read.clone());
        let reader = fibre(&set, move || {
            if read(&mut inside).is_ok() {
                mark(READ);
                reads.store(1, Relaxed);
            }
            drop(inside);
            ends.fetch_add(1, Relaxed);
        });
        let value = w.value(1);
        let writer = thread::spawn(move || waiting(|| outside.write(value)).0.is_ok());
        drop_and_expect(set, &ended, 1);
        reader.join().unwrap();
        let written = writer.join().unwrap();
        if !written {
            mark(NOT_READ);
        }
        assert_eq!(written, has_read.load(Relaxed) == 1);
    });
}

/// Drops a set of two fibres, each of which has the end for which the other fibre waits. The count of ends does not show
/// that both wait in vain. The drop of the set ends each fibre once.
#[test]
fn a_crossing_cycle_and_the_drop_of_the_set() {
    explore(3, &[SLEEPS, TWO_SLEEP, SET_RECLAIMS, RECLAIMED, CLOSED, LAST], |w| {
        let set = ActiveSet::new();
        let [mut a, b] = make_channel::<Value, 2>();
        let [mut c, d] = make_channel::<Value, 2>();
        let ended = Arc::new(AtomicU32::new(0));
        let (ends, also) = (ended.clone(), ended.clone());
        let value = w.value(1);
        let first = fibre(&set, move || {
            let _d = d;
            assert_eq!(read(&mut a), Err(Reclaimed));
            ends.fetch_add(1, Relaxed);
        });
        let second = fibre(&set, move || {
            let _b = b;
            assert_eq!(waiting(|| c.write(value)).0.unwrap_err().value.read(), 1);
            also.fetch_add(1, Relaxed);
        });
        drop_and_expect(set, &ended, 2);
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// Lets the channel of a fibre die while the set is dropped: either the death or the drop readies the fibre.
#[test]
fn the_death_of_a_channel_and_the_drop_of_the_set() {
    explore(4, &[SLEEPS, SET_RECLAIMS, RECLAIMED, CLOSED, LAST, DROPPED_DEAD], |_| {
        let set = ActiveSet::new();
        let [mut inside, outside] = make_channel::<Value, 2>();
        let ended = Arc::new(AtomicU32::new(0));
        let ends = ended.clone();
        let reader = fibre(&set, move || {
            assert_eq!(read(&mut inside), Err(Reclaimed));
            ends.fetch_add(1, Relaxed);
        });
        let dropper = thread::spawn(move || drop(outside));
        drop_and_expect(set, &ended, 1);
        reader.join().unwrap();
        dropper.join().unwrap();
    });
}

/// Lets a thread drop the last end of a channel on which fibres of a set hang. The set is at rest only when these fibres
/// have ended.
#[test]
fn the_death_of_a_channel_and_rest() {
    explore(3, &[SLEEPS, RECLAIMED, LAST, RESTS, RESTED_ALREADY], |_| {
        let mut set = ActiveSet::new();
        let [mut inside, outside] = make_channel::<Value, 2>();
        let ended = Arc::new(AtomicU32::new(0));
        let ends = ended.clone();
        let reader = fibre(&set, move || {
            assert_eq!(read(&mut inside), Err(Reclaimed));
            ends.fetch_add(1, Relaxed);
        });
        drop(outside);
        set.wait_for_rest();
        assert_eq!(ended.load(Relaxed), 1, "rest before a fibre that was reclaimed has gone on");
        reader.join().unwrap();
    });
}

/// Drops a set with a fibre that waits with a deadline. That fibre keeps the set from being at rest. The drop does not
/// wait for the deadline, and the fibre leaves its wait once.
#[test]
fn a_deadline_and_the_drop_of_the_set() {
    explore(4, &[LEAVES, SET_RECLAIMS, MET_LATE, RECLAIMED, CLOSED, TIMED_OUT], |_| {
        let set = ActiveSet::new();
        let [mut inside, outside] = make_channel::<Value, 2>();
        let ended = Arc::new(AtomicU32::new(0));
        let ends = ended.clone();
        let reader = fibre(&set, move || {
            match waiting(|| inside.read_limited(Instant::now())).0.err() {
                Some(Failed::GaveUp(WaitError::TimedOut)) => mark(TIMED_OUT),
                why => assert_eq!(why, Some(Failed::Reclaimed)),
            }
            ends.fetch_add(1, Relaxed);
        });
        drop_and_expect(set, &ended, 1);
        assert_eq!(outside.readers(), 0);
        reader.join().unwrap();
    });
}

/// Lets a cancel and the drop of the set race: one of them readies the fibre, and the fibre knows which.
#[test]
fn a_cancel_and_the_drop_of_the_set() {
    explore(3, &[SLEEPS, SET_RECLAIMS, CANCELLED, CANCELLED_BEFORE, RECLAIMED], |_| {
        let set = ActiveSet::new();
        let [mut inside, outside] = make_channel::<Value, 2>();
        let stop = Arc::new(Cancel::new());
        let ended = Arc::new(AtomicU32::new(0));
        let (ends, of_fibre) = (ended.clone(), stop.clone());
        let reader = fibre(&set, move || {
            let limit = WaitLimit { cancel: Some(&of_fibre), ..WaitLimit::default() };
            let why = waiting(|| inside.read_limited(&limit)).0.err();
            assert!(matches!(why, Some(Failed::GaveUp(WaitError::Cancelled) | Failed::Reclaimed)), "{why:?}");
            ends.fetch_add(1, Relaxed);
        });
        let canceller = thread::spawn(move || stop.cancel());
        drop_and_expect(set, &ended, 1);
        assert_eq!(outside.readers(), 0);
        reader.join().unwrap();
        canceller.join().unwrap();
    });
}

/// Checks that a fibre that waits with a deadline does not hang: the set is at rest only when the wait is over.
#[test]
fn a_deadline_keeps_a_set_awake() {
    explore(4, &[SLEEPS, LEAVES, RESTS, RESTED_ALREADY], |_| {
        let mut set = ActiveSet::new();
        let [mut inside, _outside] = make_channel::<Value, 2>();
        let came_back = Arc::new(AtomicU32::new(0));
        let comes = came_back.clone();
        let reader = fibre(&set, move || {
            assert!(waiting(|| inside.read_limited(Instant::now())).0.is_err());
            comes.store(1, Relaxed);
        });
        set.wait_for_rest();
        assert_eq!(came_back.load(Relaxed), 1);
        reader.join().unwrap();
    });
}

/// Drops the closure of a fibre that has not begun. The closure has counted as a fibre until then.
#[test]
fn a_fibre_that_never_begins() {
    explore(3, &[SLEEPS, RESTS, RESTED_ALREADY], |_| {
        let mut set = ActiveSet::new();
        let never = set.fibre(|| ());
        let dropper = thread::spawn(move || drop(never));
        set.wait_for_rest();
        dropper.join().unwrap();
    });
}

/// Lets a fibre hang until a partner outside the set meets it, and then end. The set is at rest twice, and the runner is
/// woken at either rest.
#[test]
fn a_partner_outside_and_rest() {
    explore(4, &[SLEEPS, TWO_SLEEP, RESTS, HANG_RESTS, RESTED_ALREADY], |w| {
        let mut set = ActiveSet::new();
        let [mut inside, mut outside] = make_channel();
        let reader = fibre(&set, move || assert_eq!(read(&mut inside), Ok(1)));
        let value = w.value(1);
        let writer = thread::spawn(move || waiting(|| outside.write(value)).0.unwrap());
        set.wait_for_rest();
        set.wait_for_rest();
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// Lets a fibre of each of two sets hang on the same channel. The drop of the first set reclaims the fibre of that set.
/// The other fibre meets a partner.
#[test]
fn two_sets_on_one_channel() {
    explore(3, &[SLEEPS, TWO_SLEEP, SET_RECLAIMS, CLOSED], |w| {
        let (ours, mut theirs) = (ActiveSet::new(), ActiveSet::new());
        let [mut a, mut b, mut outside] = make_channel();
        let ended = Arc::new(AtomicU32::new(0));
        let ends = ended.clone();
        let first = fibre(&ours, move || {
            assert_eq!(read(&mut a), Err(Reclaimed));
            ends.fetch_add(1, Relaxed);
        });
        let second = fibre(&theirs, move || assert_eq!(read(&mut b), Ok(1)));
        drop_and_expect(ours, &ended, 1);
        waiting(|| outside.write(w.value(1))).0.unwrap();
        theirs.wait_for_rest();
        first.join().unwrap();
        second.join().unwrap();
    });
}
