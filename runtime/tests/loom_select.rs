//! Models of select: against sends, receives, closes, limits, and other selects.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_select`
//!
//! A model polls the cases in one order, because chance is no step of a model. The threads decide which case is ready
//! first.
#![cfg(sudog_loom)]

mod chan_world;

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;

use chan_world::{READY_AT_ONCE, Value, WOKEN, explore, finish, poll_and_drop};
use loom::sync::Arc;
use sudog_runtime::AtomicU32;
use sudog_runtime::Instant;
use sudog_runtime::chan::{Chan, channel, select, select_async};
use sudog_runtime::model::thread;
use sudog_runtime::reached::{AT_ONCE, SLEEPS, TIME_IS_UP, TOO_LATE_AND_WOKEN, TWO_SLEEP, WOKEN_BEFORE, mark, waiting};
use sudog_runtime::sema::{Cancel, WaitError, WaitLimit, Wake, semacquire_async, semrelease};

const FIRST: &str = "the first case is chosen";
const SECOND: &str = "the second case is chosen";
const CANCELLED: &str = "a cancel ends a select";
const CANCELLED_BEFORE: &str = "a cancel comes before the select";
const READY_WHEN_CANCELLED: &str = "a case is ready when the cancel comes";
const PASSED_OVER: &str = "a waiter whose claim is taken is passed over";
const LEAVES: &str = "a select that gives up leaves its queues";
const TO_THE_NEXT: &str = "a value that is given back goes to the next receiver";
const STAYS: &str = "a value that is given back stays in the channel";

/// Each of two values is received once, and the other channel is left unchanged.
#[test]
fn a_select_receives_from_either() {
    explore(3, &[FIRST, SECOND, AT_ONCE, SLEEPS, WOKEN_BEFORE, PASSED_OVER], |w| {
        let (a, b) = (Chan::new(0), Chan::new(0));
        let senders = [(1, a.clone()), (2, b.clone())].map(|(n, ch)| {
            let w = w.clone();
            thread::spawn(move || ch.send(w.value(n)))
        });
        let ((first, other), _) = waiting(|| {
            select! {
                recv(a) -> value => (value.unwrap(), &b),
                recv(b) -> value => (value.unwrap(), &a),
            }
        });
        mark(if first.read() == 1 { FIRST } else { SECOND });
        other.recv().unwrap().read();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(w.read.load(Relaxed), 3);
    });
}

#[test]
fn a_select_sends_to_either() {
    explore(3, &[FIRST, SECOND, AT_ONCE, SLEEPS, PASSED_OVER], |w| {
        let (a, b) = (Chan::new(0), Chan::new(0));
        let receivers = [a.clone(), b.clone()].map(|ch| thread::spawn(move || ch.recv().map(Value::read)));
        let (a_is_served, _) = waiting(|| {
            select! {
                send(a, w.value(1)) => true,
                send(b, w.value(2)) => false,
            }
        });
        mark(if a_is_served { FIRST } else { SECOND });
        let other = if a_is_served { b } else { a };
        other.close();
        let [from_a, from_b] = receivers.map(|receiver| receiver.join().unwrap());
        assert_eq!((from_a, from_b), if a_is_served { (Some(1), None) } else { (None, Some(2)) });
    });
}

/// Two selects, each with a receive where the other select sends, and the other way round. They meet on one channel.
#[test]
fn two_selects_meet() {
    explore(3, &[FIRST, SECOND, AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let (a, b) = (Chan::<Value>::new(0), Chan::<Value>::new(0));
        let other = thread::spawn({
            let (a, b, w) = (a.clone(), b.clone(), w.clone());
            move || {
                waiting(|| {
                    select! {
                        recv(b) -> value => { assert_eq!(value.unwrap().read(), 2); false }
                        send(a, w.value(1)) => true,
                    }
                })
                .0
            }
        });
        let (by_a, _) = waiting(|| {
            select! {
                recv(a) -> value => { assert_eq!(value.unwrap().read(), 1); true }
                send(b, w.value(2)) => false,
            }
        });
        mark(if by_a { FIRST } else { SECOND });
        assert_eq!(by_a, other.join().unwrap());
    });
}

/// Two selects that wait on the same two channels, in different orders; each select gets a value.
#[test]
fn two_selects_on_the_same_channels() {
    explore(2, &[AT_ONCE, SLEEPS, TWO_SLEEP, PASSED_OVER], |w| {
        let (a, b) = (Chan::new(0), Chan::new(0));
        let selects = [(a.clone(), b.clone()), (b.clone(), a.clone())].map(|(x, y)| {
            thread::spawn(move || {
                waiting(|| {
                    select! {
                        recv(x) -> value => value,
                        recv(y) -> value => value,
                    }
                })
                .0
                .map(Value::read)
                .unwrap()
            })
        });
        a.send(w.value(1));
        b.send(w.value(2));
        let sum: u32 = selects.map(|select| select.join().unwrap()).iter().sum();
        assert_eq!(sum, 3);
    });
}

/// A channel in two cases of a select counts as a single channel: its queue stays whole.
#[test]
fn the_same_channel_in_two_cases() {
    explore(3, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let ch = Chan::new(0);
        let sender = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || {
                ch.send(w.value(1));
                ch.send(w.value(2));
            }
        });
        let (value, _) = waiting(|| {
            select! {
                recv(ch) -> value => value,
                recv(ch) -> value => value,
                send(ch, w.value(9)) => unreachable!("a select does not meet itself"),
            }
        });
        assert_eq!(value.unwrap().read(), 1);
        assert_eq!(ch.recv().unwrap().read(), 2);
        sender.join().unwrap();
    });
}

#[test]
fn a_close_ends_a_select() {
    explore(4, &[FIRST, SECOND, AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let (ch, quit) = (Chan::new(0), Chan::<u32>::new(0));
        let closer = thread::spawn({
            let quit = quit.clone();
            move || quit.close()
        });
        let receiver = thread::spawn({
            let ch = ch.clone();
            move || ch.recv().map(Value::read)
        });
        let (sent, _) = waiting(|| {
            select! {
                send(ch, w.value(1)) => true,
                recv(quit) -> none => { assert_eq!(none, None); false }
            }
        });
        mark(if sent { FIRST } else { SECOND });
        if !sent {
            ch.close();
        }
        closer.join().unwrap();
        assert_eq!(receiver.join().unwrap(), sent.then_some(1));
    });
}

/// The send of a waiting select fails, and its value comes back; the select does not choose the other case.
#[test]
fn a_close_ends_the_send_of_a_select() {
    explore(4, &[AT_ONCE, SLEEPS, WOKEN_BEFORE], |w| {
        let (tx, rx) = channel(0);
        let never = Chan::<u32>::new(0);
        let closer = thread::spawn(move || drop(rx));
        let (sent, _) = waiting(|| {
            select! {
                recv(never) => unreachable!(),
                send(tx, w.value(1)) -> sent => sent,
            }
        });
        assert_eq!(sent.unwrap_err().into_inner().read(), 1);
        closer.join().unwrap();
    });
}

#[test]
fn a_select_that_times_out_takes_nothing() {
    explore(3, &[TIME_IS_UP, TOO_LATE_AND_WOKEN, AT_ONCE, PASSED_OVER, FIRST], |w| {
        let (ch, quit) = (Chan::new(0), Chan::<u32>::new(0));
        let sender = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || ch.send(w.value(1))
        });
        let (value, _) = waiting(|| {
            select! {
                recv(ch) -> value => value,
                recv(quit) => unreachable!(),
                default(Instant::now()) -> why => { assert_eq!(why, WaitError::TimedOut); None }
            }
        });
        let value = match value {
            Some(value) => {
                mark(FIRST);
                value
            }
            None => ch.recv().unwrap(),
        };
        assert_eq!(value.read(), 1);
        sender.join().unwrap();
    });
}

#[test]
fn a_select_that_is_cancelled_takes_nothing() {
    explore(3, &[CANCELLED, CANCELLED_BEFORE, READY_WHEN_CANCELLED, FIRST, SLEEPS], |w| {
        let (ch, quit) = (Chan::new(0), Chan::<u32>::new(0));
        let stop = Arc::new(Cancel::new());
        let sender = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || ch.send(w.value(1))
        });
        let canceller = thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        let limit = WaitLimit { deadline: None, cancel: Some(&stop) };
        let (value, waited) = waiting(|| {
            select! {
                recv(quit) => unreachable!(),
                recv(ch) -> value => value,
                default(limit) -> why => { assert_eq!(why, WaitError::Cancelled); None }
            }
        });
        let value = match value {
            Some(value) => {
                mark(FIRST);
                value
            }
            None => {
                mark(if waited { CANCELLED } else { CANCELLED_BEFORE });
                ch.recv().unwrap()
            }
        };
        assert_eq!(value.read(), 1);
        sender.join().unwrap();
        canceller.join().unwrap();
    });
}

/// Go's TestNonblockSelectRace: at each instant one of two channels has a value, so `default` is never chosen.
#[test]
fn a_default_is_chosen_at_an_instant_only() {
    explore(4, &[FIRST, SECOND], |w| {
        let (a, b) = (Chan::new(1), Chan::new(1));
        a.send(w.value(1));
        let select = thread::spawn({
            let (a, b) = (a.clone(), b.clone());
            move || {
                select! {
                    recv(a) => mark(FIRST),
                    recv(b) => mark(SECOND),
                    default => panic!("no case was ready"),
                }
            }
        });
        b.send(w.value(2));
        select! {
            recv(a) => {}
            default => {}
        }
        select.join().unwrap();
    });
}

#[test]
fn selects_of_tasks() {
    explore(3, &[READY_AT_ONCE, WOKEN, FIRST, SECOND, PASSED_OVER], |w| {
        let (a, b) = (Chan::new(0), Chan::new(0));
        let senders = [(1, a.clone()), (2, b.clone())].map(|(n, ch)| {
            let w = w.clone();
            thread::spawn(move || ch.send(w.value(n)))
        });
        let first = finish(pin!(async {
            select_async! {
                recv(a) -> value => value.unwrap().read(),
                recv(b) -> value => value.unwrap().read(),
            }
        }));
        mark(if first == 1 { FIRST } else { SECOND });
        let other = if first == 1 { b } else { a };
        other.recv().unwrap().read();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert_eq!(w.read.load(Relaxed), 3);
    });
}

#[test]
fn a_select_that_is_dropped_loses_no_value() {
    explore(3, &[LEAVES, TO_THE_NEXT, STAYS, FIRST], |w| {
        let (a, b) = (Chan::<Value>::new(0), Chan::<Value>::new(0));
        let hasty = thread::spawn({
            let (a, b, w) = (a.clone(), b.clone(), w.clone());
            move || {
                let select = pin!(async {
                    select_async! {
                        recv(a) -> value => value.unwrap().read(),
                        send(b, w.value(9)) => unreachable!(),
                    }
                });
                poll_and_drop(select).is_some()
            }
        });
        let patient = thread::spawn({
            let a = a.clone();
            move || a.recv().unwrap().read()
        });
        a.send(w.value(1));
        if hasty.join().unwrap() {
            mark(FIRST);
            a.send(w.value(2));
        }
        patient.join().unwrap();
        assert!(b.try_recv().is_err(), "the send of the select has left");
    });
}

/// A select is dropped while the channel is closed: the value is received once, and nothing is received after the end.
#[test]
fn a_select_that_is_dropped_as_the_channel_closes_loses_no_value() {
    const TAKEN_FROM_A_TASK: &str = "a value that a task holds is taken as the channel is closed";
    explore(3, &[LEAVES, TAKEN_FROM_A_TASK, STAYS, TO_THE_NEXT, FIRST, SECOND], |w| {
        let (ch, never) = (Chan::<Value>::new(1), Chan::<u32>::new(0));
        let hasty = thread::spawn({
            let (ch, never) = (ch.clone(), never.clone());
            move || {
                let select = pin!(async {
                    select_async! {
                        recv(ch) -> value => value.map(Value::read).is_some(),
                        recv(never) => unreachable!(),
                    }
                });
                poll_and_drop(select).unwrap_or(false)
            }
        });
        let patient = thread::spawn({
            let (ch, never) = (ch.clone(), never.clone());
            move || {
                let received = select! {
                    recv(ch) -> value => value.map(Value::read).is_some(),
                    recv(never) => unreachable!(),
                };
                assert!(received || ch.recv().is_none(), "the end is the end");
                received
            }
        });
        ch.send(w.value(1));
        ch.close();
        let by_hasty = hasty.join().unwrap();
        mark(if by_hasty { FIRST } else { SECOND });
        assert!(by_hasty != patient.join().unwrap(), "the value is received once");
        assert!(ch.recv().is_none());
    });
}

/// A send of a select to a buffer is dropped: the send has sent nothing, and its place goes to the next sender.
#[test]
fn a_select_that_is_dropped_has_sent_nothing_to_a_buffer() {
    const PLACE_GOES_ON: &str = "a place that is given up goes to the next sender";
    explore(3, &[LEAVES, PLACE_GOES_ON, FIRST], |w| {
        let (ch, never) = (Chan::new(1), Chan::<u32>::new(0));
        ch.send(w.value(8));
        let hasty = thread::spawn({
            let (ch, never, w) = (ch.clone(), never.clone(), w.clone());
            move || {
                let select = pin!(async {
                    select_async! {
                        send(ch, w.value(1)) => true,
                        recv(never) => unreachable!(),
                    }
                });
                poll_and_drop(select).is_some()
            }
        });
        let patient = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || ch.send(w.value(2))
        });
        let mut sum = ch.recv().unwrap().read() + ch.recv().unwrap().read();
        if hasty.join().unwrap() {
            mark(FIRST);
            sum += ch.recv().unwrap().read();
            assert_eq!(sum, 11);
        }
        assert!(sum == 10 || sum == 11);
        patient.join().unwrap();
        assert!(ch.try_recv().is_err());
    });
}

/// The value of a dropped select's send has been received, or is dropped with the select.
#[test]
fn a_select_that_is_dropped_does_not_double_its_value() {
    const SENT: &str = "the value of a dropped select was received";
    explore(4, &[LEAVES, SENT], |w| {
        let (tx, rx) = channel(0);
        let never = Chan::<u32>::new(0);
        let hasty = thread::spawn({
            let w = w.clone();
            move || {
                let select = pin!(async {
                    select_async! {
                        recv(never) => unreachable!(),
                        send(tx, w.value(1)) -> sent => sent.is_ok(),
                    }
                });
                poll_and_drop(select)
            }
        });
        let received = rx.recv().map(Value::read).is_ok();
        if hasty.join().unwrap().is_none() && received {
            mark(SENT);
        }
    });
}

const ANEW: &str = "a select queues anew";
const PEER_FIRST: &str = "a peer is faster than a future's wake-up";

/// A permit and a value come at the same time. The select takes one of the two, and the other stays available.
#[test]
fn a_future_beside_a_channel_loses_nothing() {
    explore(3, &[READY_AT_ONCE, WOKEN, FIRST, SECOND, ANEW, PEER_FIRST], |w| {
        let (ch, permits) = (Chan::new(0), Arc::new(AtomicU32::new(0)));
        let sender = thread::spawn({
            let (ch, w) = (ch.clone(), w.clone());
            move || ch.send(w.value(1))
        });
        let releaser = thread::spawn({
            let permits = permits.clone();
            move || semrelease(&permits, Wake::Normal)
        });
        let received = finish(pin!(async {
            select_async! {
                recv(ch) -> value => { value.unwrap().read(); true },
                future(semacquire_async(&permits)) => false,
            }
        }));
        mark(if received { FIRST } else { SECOND });
        if received {
            finish(pin!(semacquire_async(&permits)));
        } else {
            ch.recv().unwrap().read();
        }
        sender.join().unwrap();
        releaser.join().unwrap();
    });
}

/// A task that is woken for nothing, as inside a `join!`, queues anew; no value is lost or sent twice by that.
#[test]
fn a_select_with_a_future_that_is_polled_for_nothing() {
    explore(3, &[READY_AT_ONCE, WOKEN, FIRST, ANEW, PEER_FIRST], |w| {
        let (ch, quit) = (Chan::new(0), Chan::<()>::new(0));
        let receiver = thread::spawn({
            let ch: Chan<Value> = ch.clone();
            move || ch.recv().unwrap().read()
        });
        let mut select = pin!(async {
            select_async! {
                send(ch, w.value(1)) => mark(FIRST),
                recv(quit) => unreachable!(),
                future(std::future::pending::<()>()) => unreachable!(),
            }
        });
        if poll_and_drop(select.as_mut()).is_none() {
            finish(select);
        }
        receiver.join().unwrap();
    });
}

/// The counterpart of `a_select_that_is_dropped_loses_no_value`, with a select that may be between two queues.
#[test]
fn a_select_with_a_future_is_dropped() {
    explore(3, &[LEAVES, TO_THE_NEXT, STAYS, FIRST, ANEW], |w| {
        let ch = Chan::<Value>::new(0);
        let hasty = thread::spawn({
            let ch = ch.clone();
            move || {
                let mut select = pin!(async {
                    select_async! {
                        recv(ch) -> value => value.unwrap().read(),
                        future(std::future::pending::<()>()) => unreachable!(),
                    }
                });
                poll_and_drop(select.as_mut()).or_else(|| poll_and_drop(select)).is_some()
            }
        });
        let patient = thread::spawn({
            let ch = ch.clone();
            move || ch.recv().unwrap().read()
        });
        ch.send(w.value(1));
        if hasty.join().unwrap() {
            mark(FIRST);
            ch.send(w.value(2));
        }
        patient.join().unwrap();
    });
}
