//! Models of channels: threads and tasks that send, receive, close and give up.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_chan`
//!
//! A lost wake-up shows as a deadlock, a lost or doubled value by the count of drops, a missing order by loom's cell in
//! each value. Under loom a deadline has always passed already, so the deadline races with everything that happens
//! after the parking.
#![cfg(sudog_loom)]

mod chan_world;

use std::pin::pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use chan_world::{READY_AT_ONCE, Value, WOKEN, explore, finish, poll_and_drop};
use loom::sync::Arc;
use sudog_runtime::chan::{Chan, RecvLimitedError, SendLimitedError, TryRecvError, channel};
use sudog_runtime::model::each_site;
use sudog_runtime::model::thread;
use sudog_runtime::reached::{
    AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, mark, must_reach, waiting,
};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit};
use sudog_runtime::{AtomicU32, Instant};

const RECEIVED: &str = "a receive returns a value";
const CLOSED: &str = "a receive returns because of a close";
const SENT: &str = "a send succeeds";
const SEND_FAILS: &str = "a send fails because of a close";
const CANCELLED: &str = "a cancel ends a wait";
const CANCELLED_BEFORE: &str = "a cancel comes before the wait";
const READY_WHEN_CANCELLED: &str = "a case is ready when the cancel comes";
const RECEIVER_LEAVES: &str = "a receiver that gives up leaves its queue";
const SENDER_LEAVES: &str = "a sender that gives up leaves its queue";
const TO_THE_NEXT: &str = "a value that is given back goes to the next receiver";
const STAYS: &str = "a value that is given back stays in the channel";
const TAKEN_FROM_A_TASK: &str = "a value that a task holds is taken as the channel is closed";
const PLACE_GOES_ON: &str = "a place that is given up goes to the next sender";

#[test]
fn a_value_goes_from_the_sender_to_the_receiver() {
    for capacity in [0, 1] {
        explore(4, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], move |w| {
            let ch = Chan::new(capacity);
            let sender = thread::spawn({
                let (ch, w) = (ch.clone(), w.clone());
                move || waiting(|| ch.send(w.value(7))).0
            });
            let (value, _) = waiting(|| ch.recv());
            assert_eq!(value.map(|value| value.read()), Some(7));
            sender.join().unwrap();
        });
    }
}

/// The receive happens before the send of its value returns.
#[test]
fn without_capacity_a_send_sees_what_its_receiver_did_before() {
    explore(4, &[SLEEPS, WOKEN_BEFORE], |w| {
        let ch = Chan::new(0);
        let receiver = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || {
                w.read.store(5, Relaxed);
                let value: Option<u32> = waiting(|| ch.recv()).0;
                assert_eq!(value, Some(1));
            }
        });
        waiting(|| ch.send(1));
        assert_eq!(w.read.load(Relaxed), 5);
        receiver.join().unwrap();
    });
}

/// More values than slots: the second sender waits, and its value takes the slot that the receive has emptied.
#[test]
fn values_are_received_in_the_order_of_the_sends() {
    for capacity in [0, 1] {
        explore(4, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], move |w| {
            let ch = Chan::new(capacity);
            let sender = thread::spawn({
                let (ch, w) = (ch.clone(), w.clone());
                move || {
                    for n in 1..=3 {
                        waiting(|| ch.send(w.value(n)));
                    }
                }
            });
            for n in 1..=3 {
                assert_eq!(waiting(|| ch.recv()).0.unwrap().read(), n);
            }
            sender.join().unwrap();
        });
    }
}

#[test]
fn two_senders_and_a_receiver() {
    explore(2, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], |w| {
        let ch = Chan::new(0);
        let senders = [1, 2].map(|n| {
            let (ch, w) = (ch.clone(), w.clone());
            thread::spawn(move || waiting(|| ch.send(w.value(n))).0)
        });
        for _ in 0..2 {
            waiting(|| ch.recv()).0.unwrap().read();
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(w.read.load(Relaxed), 3);
    });
}

#[test]
fn two_receivers_and_a_sender() {
    for capacity in [0, 1] {
        explore(2, &[AT_ONCE, SLEEPS, WOKEN_BEFORE, TWO_SLEEP], move |w| {
            let ch = Chan::new(capacity);
            let receivers = [(); 2].map(|()| {
                let ch = ch.clone();
                thread::spawn(move || _ = waiting(|| ch.recv()).0.map(Value::read))
            });
            for n in 1..=2 {
                waiting(|| ch.send(w.value(n)));
            }
            receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
            assert_eq!(w.read.load(Relaxed), 3);
        });
    }
}

/// A thread and a task wait; both learn of the close.
#[test]
fn a_close_ends_all_receives() {
    explore(2, &[AT_ONCE, SLEEPS, READY_AT_ONCE, WOKEN, WOKEN_BEFORE], |_| {
        let ch = Chan::<u32>::new(0);
        let thread = thread::spawn({
            let ch = ch.clone();
            move || assert_eq!(waiting(|| ch.recv()).0, None)
        });
        let task = thread::spawn({
            let ch = ch.clone();
            move || assert_eq!(finish(pin!(ch.recv_async())), None)
        });
        ch.close();
        thread.join().unwrap();
        task.join().unwrap();
    });
}

/// A receive after the close gets the values sent before; a send that waits gets its value back.
#[test]
fn a_close_ends_sends_and_keeps_values() {
    explore(3, &[SENT, SEND_FAILS, RECEIVED, CLOSED, SLEEPS, AT_ONCE], |w| {
        let (tx, rx) = channel(0);
        let sender = thread::spawn({
            let (tx, w) = (tx.clone(), w.clone());
            move || {
                let sent = waiting(|| tx.send(w.value(1))).0.is_ok();
                mark(if sent { SENT } else { SEND_FAILS });
                sent
            }
        });
        let receiver = thread::spawn(move || {
            let received = waiting(|| rx.recv()).0.map(Value::read);
            mark(if received.is_ok() { RECEIVED } else { CLOSED });
            received.is_ok()
        });
        tx.close();
        assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
    });
}

#[test]
fn the_last_sender_and_a_receiver() {
    for capacity in [0, 1] {
        explore(4, &[SLEEPS, AT_ONCE], move |w| {
            let (tx, rx) = channel(capacity);
            let sender = thread::spawn({
                let w = w.clone();
                move || waiting(|| tx.send(w.value(1))).0.unwrap()
            });
            assert_eq!(waiting(|| rx.recv()).0.unwrap().read(), 1);
            assert!(waiting(|| rx.recv()).0.is_err());
            sender.join().unwrap();
        });
    }
}

#[test]
fn the_last_receiver_and_a_sender() {
    for capacity in [0, 1] {
        let states: &[_] = if capacity == 0 { &[SEND_FAILS, SLEEPS] } else { &[SEND_FAILS, SENT, SLEEPS] };
        explore(4, states, move |w| {
            let (tx, rx) = channel(capacity);
            let sender = thread::spawn({
                let w = w.clone();
                move || {
                    for n in 1..=2 {
                        match waiting(|| tx.send(w.value(n))).0 {
                            Ok(()) => mark(SENT),
                            Err(error) => {
                                mark(SEND_FAILS);
                                assert_eq!(error.into_inner().read(), n);
                            }
                        }
                    }
                }
            });
            drop(rx);
            sender.join().unwrap();
        });
    }
}

/// The value stays with its sender until a receiver has taken the value, whatever the clock says.
#[test]
fn a_receive_that_times_out_takes_nothing() {
    for capacity in [0, 1] {
        explore(4, &[TIME_IS_UP, TOO_LATE_AND_WOKEN, RECEIVED, AT_ONCE], move |w| {
            let (tx, rx) = channel(capacity);
            let sender = thread::spawn({
                let w = w.clone();
                move || waiting(|| tx.send(w.value(1))).0.unwrap()
            });
            let value = match waiting(|| rx.recv_limited(Instant::now())).0 {
                Ok(value) => {
                    mark(RECEIVED);
                    value
                }
                Err(why) => {
                    assert_eq!(why, RecvLimitedError::GaveUp(WaitError::TimedOut));
                    waiting(|| rx.recv()).0.unwrap()
                }
            };
            assert_eq!(value.read(), 1);
            sender.join().unwrap();
        });
    }
}

#[test]
fn a_send_that_times_out_keeps_its_value() {
    explore(4, &[TIME_IS_UP, TOO_LATE_AND_WOKEN, SENT, AT_ONCE], |w| {
        let (tx, rx) = channel::<Value>(0);
        let receiver = thread::spawn(move || waiting(|| rx.recv()).0.unwrap().read());
        match waiting(|| tx.send_limited(w.value(1), Instant::now())).0 {
            Ok(()) => mark(SENT),
            Err(SendLimitedError::Closed(_)) => unreachable!(),
            Err(error) => waiting(|| tx.send(error.into_inner())).0.unwrap(),
        }
        assert_eq!(receiver.join().unwrap(), 1);
    });
}

/// A receive that a cancel may end has either the value or nothing.
#[test]
fn a_receive_that_is_cancelled_takes_nothing() {
    explore(3, &[CANCELLED, CANCELLED_BEFORE, READY_WHEN_CANCELLED, RECEIVED, SLEEPS], |w| {
        let (tx, rx) = channel(0);
        let stop = Arc::new(Cancel::new());
        let sender = thread::spawn({
            let w = w.clone();
            move || waiting(|| tx.send(w.value(1))).0.unwrap()
        });
        let canceller = thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
        let (over, waited) = waiting(|| rx.recv_limited(&limit));
        let value = match over {
            Ok(value) => {
                mark(RECEIVED);
                value
            }
            Err(why) => {
                assert_eq!(why, RecvLimitedError::GaveUp(WaitError::Cancelled));
                mark(if waited { CANCELLED } else { CANCELLED_BEFORE });
                waiting(|| rx.recv()).0.unwrap()
            }
        };
        assert_eq!(value.read(), 1);
        sender.join().unwrap();
        canceller.join().unwrap();
    });
}

#[test]
fn a_send_that_is_cancelled_keeps_its_value() {
    explore(3, &[CANCELLED, CANCELLED_BEFORE, READY_WHEN_CANCELLED, SENT, SLEEPS], |w| {
        let (tx, rx) = channel::<Value>(0);
        let stop = Arc::new(Cancel::new());
        let receiver = thread::spawn(move || waiting(|| rx.recv()).0.unwrap().read());
        let canceller = thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
        let (over, waited) = waiting(|| tx.send_limited(w.value(1), &limit));
        match over {
            Ok(()) => mark(SENT),
            Err(error) => {
                mark(if waited { CANCELLED } else { CANCELLED_BEFORE });
                tx.send(error.into_inner()).unwrap();
            }
        }
        assert_eq!(receiver.join().unwrap(), 1);
        canceller.join().unwrap();
    });
}

/// A receive that begins after the cancel gets nothing from a send that the cancel ends. Timers rely on this.
#[test]
fn a_cancelled_send_serves_no_later_receive() {
    const FOUND_LATE: &str = "a select finds under its locks that it is cancelled";
    explore(3, &[CANCELLED, CANCELLED_BEFORE, FOUND_LATE, TIME_IS_UP], |w| {
        let (tx, rx) = channel::<Value>(0);
        let stop = Arc::new(Cancel::new());
        let sender = thread::spawn({
            let (w, stop) = (w.clone(), stop.clone());
            move || {
                let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
                let (over, waited) = waiting(|| tx.send_limited(w.value(1), &limit));
                mark(if waited { CANCELLED } else { CANCELLED_BEFORE });
                assert_eq!(over.unwrap_err().into_inner().read(), 1);
                tx
            }
        });
        stop.cancel();
        let (received, _) = waiting(|| rx.recv_limited(Instant::now()));
        assert_eq!(received.map(|_| ()), Err(RecvLimitedError::GaveUp(WaitError::TimedOut)));
        drop(sender.join().unwrap());
    });
}

#[test]
fn tasks_send_and_receive() {
    for capacity in [0, 1] {
        explore(4, &[READY_AT_ONCE, WOKEN], move |w| {
            let ch = Chan::new(capacity);
            let sender = thread::spawn({
                let (ch, w) = (ch.clone(), w.clone());
                move || {
                    finish(pin!(ch.send_async(w.value(1))));
                    finish(pin!(ch.send_async(w.value(2))));
                }
            });
            for n in 1..=2 {
                assert_eq!(finish(pin!(ch.recv_async())).unwrap().read(), n);
            }
            sender.join().unwrap();
        });
    }
}

/// A receive that is dropped takes no value with it: a value that the receive had been given goes to the next receiver,
/// which may wait already, or is yet to come.
#[test]
fn a_receive_that_is_dropped_loses_no_value() {
    for capacity in [0, 1] {
        let states = &[RECEIVER_LEAVES, TO_THE_NEXT, STAYS, SLEEPS, AT_ONCE, RECEIVED];
        explore(3, states, move |w| {
            let ch = Chan::new(capacity);
            let hasty = thread::spawn({
                let ch = ch.clone();
                move || {
                    let value = poll_and_drop(pin!(ch.recv_async()));
                    value.is_some_and(|value: Option<Value>| {
                        mark(RECEIVED);
                        value.unwrap().read();
                        true
                    })
                }
            });
            let patient = thread::spawn({
                let ch = ch.clone();
                move || waiting(|| ch.recv()).0.unwrap().read()
            });
            waiting(|| ch.send(w.value(1)));
            if hasty.join().unwrap() {
                ch.send(w.value(2));
            }
            patient.join().unwrap();
            assert_eq!(ch.len(), 0);
        });
    }
}

/// A receive is dropped while the channel is closed: the value is received once, and nothing is received after the end.
#[test]
fn a_receive_that_is_dropped_as_the_channel_closes_loses_no_value() {
    for capacity in [0, 1] {
        let states = &[TAKEN_FROM_A_TASK, STAYS, TO_THE_NEXT, RECEIVER_LEAVES, RECEIVED, CLOSED];
        explore(3, states, move |w| {
            let ch = Chan::new(capacity);
            let hasty = thread::spawn({
                let ch: Chan<Value> = ch.clone();
                move || match poll_and_drop(pin!(ch.recv_async())) {
                    Some(Some(value)) => value.read() == 1,
                    Some(None) | None => false,
                }
            });
            let patient = thread::spawn({
                let ch: Chan<Value> = ch.clone();
                move || {
                    let received = waiting(|| ch.recv()).0.map(Value::read);
                    mark(if received.is_some() { RECEIVED } else { CLOSED });
                    if received.is_none() {
                        assert!(ch.recv().is_none(), "the end is the end");
                    }
                    received.is_some()
                }
            });
            ch.send(w.value(1));
            ch.close();
            let by_hasty = hasty.join().unwrap();
            let by_patient = patient.join().unwrap();
            assert!(by_hasty != by_patient, "the value is received once");
            assert!(ch.recv().is_none());
        });
    }
}

/// A task that has been given a value, and another receiver, when the channel is closed: one of the two receives the
/// value, the other learns of the close.
#[test]
fn of_a_task_and_a_thread_one_receives_the_last_value() {
    for capacity in [0, 1] {
        explore(3, &[TAKEN_FROM_A_TASK, RECEIVED, CLOSED, WOKEN, READY_AT_ONCE], move |w| {
            let ch = Chan::new(capacity);
            let task = thread::spawn({
                let ch: Chan<Value> = ch.clone();
                move || finish(pin!(ch.recv_async())).map(Value::read).is_some()
            });
            let thread = thread::spawn({
                let ch: Chan<Value> = ch.clone();
                move || {
                    let received = waiting(|| ch.recv()).0.map(Value::read);
                    mark(if received.is_some() { RECEIVED } else { CLOSED });
                    received.is_some()
                }
            });
            ch.send(w.value(1));
            ch.close();
            assert!(task.join().unwrap() != thread.join().unwrap());
        });
    }
}

/// A send to a buffer that is dropped has sent nothing, and a place that the send was given goes to the next sender.
#[test]
fn a_send_to_a_buffer_that_is_dropped_has_sent_nothing() {
    explore(3, &[SENDER_LEAVES, PLACE_GOES_ON, SENT, SLEEPS], |w| {
        let ch = Chan::new(1);
        ch.send(w.value(8));
        let hasty = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || {
                let sent = poll_and_drop(pin!(ch.send_async(w.value(1)))).is_some();
                if sent {
                    mark(SENT);
                }
                sent
            }
        });
        let patient = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || _ = waiting(|| ch.send(w.value(2)))
        });
        let mut sum = waiting(|| ch.recv()).0.unwrap().read() + waiting(|| ch.recv()).0.unwrap().read();
        if hasty.join().unwrap() {
            sum += waiting(|| ch.recv()).0.unwrap().read();
            assert_eq!(sum, 11);
        }
        assert!(sum == 10 || sum == 11);
        patient.join().unwrap();
        assert!(ch.try_recv().is_err());
    });
}

/// A place that a dropped permit or a dropped reservation had goes to the next sender; a value that a permit sends is
/// received.
#[test]
fn permits() {
    for capacity in [0, 1] {
        explore(2, &[SENDER_LEAVES, PLACE_GOES_ON, WOKEN, READY_AT_ONCE, SLEEPS], move |w| {
            let (tx, rx) = channel(capacity);
            let hasty = thread::spawn({
                let tx = tx.clone();
                move || drop(poll_and_drop(pin!(tx.reserve_async())))
            });
            let patient = thread::spawn({
                let w = w.clone();
                move || {
                    for n in 1..=2 {
                        finish(pin!(tx.reserve_async())).send(w.value(n)).unwrap();
                    }
                }
            });
            for n in 1..=2 {
                assert_eq!(waiting(|| rx.recv()).0.unwrap().read(), n);
            }
            hasty.join().unwrap();
            patient.join().unwrap();
            assert!(rx.recv().is_err());
        });
    }
}

/// A task sends to a full buffer while the channel is closed: the task's value is received, or comes back.
#[test]
fn a_send_of_a_task_as_the_channel_closes() {
    explore(2, &[SENT, SEND_FAILS, WOKEN, READY_AT_ONCE], |w| {
        let (tx, rx) = channel(1);
        tx.send(w.value(8)).unwrap();
        let sender = thread::spawn({
            let (tx, w) = (tx.clone(), w.clone());
            move || {
                let sent = finish(pin!(tx.send_async(w.value(1)))).is_ok();
                mark(if sent { SENT } else { SEND_FAILS });
                sent
            }
        });
        let receiver = thread::spawn({
            let rx = rx.clone();
            move || rx.try_recv().map_or(0, Value::read)
        });
        tx.close();
        let sent = u32::from(sender.join().unwrap());
        let received = receiver.join().unwrap() + rx.iter().map(Value::read).sum::<u32>();
        assert_eq!(received, 8 + sent);
    });
}

/// A dropped send has sent its value, or drops the value.
#[test]
fn a_send_that_is_dropped_does_not_double_its_value() {
    explore(4, &[SENDER_LEAVES, RECEIVED, CLOSED], |w| {
        let (tx, rx) = channel(0);
        let hasty = thread::spawn({
            let w = w.clone();
            move || _ = poll_and_drop(pin!(tx.send_async(w.value(1))))
        });
        match waiting(|| rx.recv()).0 {
            Ok(value) => {
                mark(RECEIVED);
                assert_eq!(value.read(), 1);
            }
            Err(_) => mark(CLOSED),
        }
        hasty.join().unwrap();
    });
}

/// A value that is given back to a full channel stays in the channel, beyond the channel's capacity.
#[test]
fn a_value_that_is_given_back_to_a_full_channel() {
    const OVERFULL: &str = "a channel has more values than its capacity";
    explore(4, &[STAYS, OVERFULL, RECEIVER_LEAVES], |w| {
        let ch = Chan::new(1);
        let hasty = thread::spawn({
            let ch = ch.clone();
            move || poll_and_drop(pin!(ch.recv_async())).map_or(0, |value: Option<Value>| value.unwrap().read())
        });
        ch.send(w.value(1));
        let second = ch.try_send(w.value(2)).is_ok();
        let taken = hasty.join().unwrap();
        if ch.len() > ch.capacity() {
            mark(OVERFULL);
        }
        let received: u32 = ch.try_iter().map(Value::read).sum();
        assert_eq!(taken + received, if second { 3 } else { 1 });
    });
}

/// A `try_recv` looks without the lock. If it finds nothing, the sender, which looks after its send, sees the caller's
/// earlier store.
#[test]
fn a_try_that_fails_is_ordered() {
    const FINDS: &str = "the value is found";
    const FOUND: &str = "the sender sees the other";
    let test = concat!(module_path!(), "::a_try_that_fails_is_ordered");
    let needed = [
        "raw.rs, try_lock: compare_exchange",
        "raw.rs, look: load",
        "loom_chan.rs, a_try_that_fails_is_ordered: load",
        "loom_chan.rs, a_try_that_fails_is_ordered: store",
    ];
    each_site(test, &needed, &[], || {
        let model = || {
            let shared = Arc::new((Chan::new(1), AtomicU32::new(0)));
            let sender = thread::spawn({
                let shared = shared.clone();
                move || {
                    shared.0.send(1);
                    shared.1.load(SeqCst) == 1
                }
            });
            shared.1.store(1, SeqCst);
            let finds = shared.0.try_recv() != Err(TryRecvError::Empty);
            let found = sender.join().unwrap();
            assert!(finds || found, "both looked before the other wrote");
            mark(if finds { FINDS } else { FOUND });
        };
        let explore = || {
            sudog_runtime::model::explore(3, model);
        };
        must_reach(&[FINDS, FOUND], explore);
    });
}
