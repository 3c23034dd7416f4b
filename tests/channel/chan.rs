//! Tests of channels and select that Go's tests do not contain.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sudog::chan::{
    Chan, GaveUp, Permit, Receiver, RecvError, RecvFuture, RecvLimitedError, RecvOnly, ReserveFuture, Select,
    SelectFuture, SendError, SendFuture, SendLimitedError, SendOnly, Sender, TryRecvError, TrySendError, channel,
    select, select_async,
};
use sudog::context::{self, background};
use sudog::runtime::{gosched, set_max_procs};
use sudog::{Builder, Cancel, OnPanic, Placement, WaitError, WaitLimit, block_on, go, run, spawn, spawn_async};
use sudog_runtime::chan::RecvStream;
use sudog_runtime::chan::macros::{RecvCase, SendCase, StaticCases};
use support::goroutine::{alone, text, until};
use support::{Watchdog, eventually};

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A counter of the values that have not been dropped.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

struct Counted {
    number: usize,
    count: Count,
}

impl Count {
    fn make(&self, number: usize) -> Counted {
        self.0.fetch_add(1, SeqCst);
        Counted { number, count: self.clone() }
    }

    fn alive(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A second drop of the same value would wrap the count to a number near the largest.
        self.count.0.fetch_sub(1, SeqCst);
    }
}

// Tests that compare a channel with a model: queues of values and of waiters, one operation at a time.

#[derive(Clone, Debug)]
enum Op {
    TrySend,
    TryRecv,
    TryReserve,
    /// Makes a future and polls it.
    Send,
    Recv,
    Reserve,
    /// Polls or drops a future that is under way.
    PollSend(usize),
    PollRecv(usize),
    PollReserve(usize),
    DropSend(usize),
    DropRecv(usize),
    DropReserve(usize),
    /// Uses or drops a permit.
    SendBy(usize),
    DropPermit(usize),
    Close,
    Select,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::TrySend),
        3 => Just(Op::TryRecv),
        1 => Just(Op::TryReserve),
        3 => Just(Op::Send),
        3 => Just(Op::Recv),
        2 => Just(Op::Reserve),
        2 => (0usize..8).prop_map(Op::PollSend),
        2 => (0usize..8).prop_map(Op::PollRecv),
        1 => (0usize..4).prop_map(Op::PollReserve),
        1 => (0usize..8).prop_map(Op::DropSend),
        2 => (0usize..8).prop_map(Op::DropRecv),
        1 => (0usize..4).prop_map(Op::DropReserve),
        1 => (0usize..4).prop_map(Op::SendBy),
        1 => (0usize..4).prop_map(Op::DropPermit),
        2 => Just(Op::Select),
        1 => Just(Op::Close),
    ]
}

/// The state of a future that has waited.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Waits,
    /// A send without a buffer whose value a receiver has taken.
    Sent,
    /// A send to a buffer, or a reservation, that has a place.
    Place,
    /// A receive that holds a value: the time of the handover, and the value's number.
    Holds(u32, usize),
    /// A future whose channel was closed, or whose held value went to another receiver.
    Closed,
}

#[derive(Clone, Copy)]
enum Reserver {
    Send(usize),
    Reserve(usize),
}

#[derive(Default)]
struct Model {
    capacity: usize,
    /// Values beside the buffer, the oldest first: values given back, or sent by a permit without a buffer.
    returned: BTreeMap<u32, usize>,
    values: VecDeque<usize>,
    /// The waiting senders of a channel without a buffer.
    senders: VecDeque<(usize, usize)>,
    reservers: VecDeque<Reserver>,
    receivers: VecDeque<usize>,
    /// The receivers that hold a value, by the age of the values.
    held: BTreeMap<u32, usize>,
    places: usize,
    closed: bool,
    handed: u32,
    sends: Vec<Fate>,
    recvs: Vec<Fate>,
    reserves: Vec<Fate>,
}

enum Sent {
    ToReceiver,
    ToBuffer,
    Full,
    Closed,
}

impl Sent {
    fn done(&self) -> bool {
        matches!(self, Self::ToReceiver | Self::ToBuffer)
    }
}

impl Model {
    fn len(&self) -> usize {
        self.returned.len() + self.values.len()
    }

    fn hold(&mut self, receiver: usize, age: u32, value: usize) {
        self.recvs[receiver] = Fate::Holds(age, value);
        self.held.insert(age, receiver);
    }

    fn age(&mut self) -> u32 {
        self.handed += 1;
        self.handed
    }

    fn send(&mut self, value: usize) -> Sent {
        if self.closed {
            return Sent::Closed;
        }
        if let Some(receiver) = self.receivers.pop_front() {
            let age = self.age();
            self.hold(receiver, age, value);
            return Sent::ToReceiver;
        }
        if self.len() + self.places < self.capacity {
            self.values.push_back(value);
            return Sent::ToBuffer;
        }
        Sent::Full
    }

    fn has_place(&self) -> bool {
        self.len() + self.places < self.capacity.max(1)
    }

    fn refill(&mut self) {
        if self.closed || !self.has_place() {
            return;
        }
        let Some(first) = self.reservers.pop_front() else { return };
        self.places += 1;
        match first {
            Reserver::Send(i) => self.sends[i] = Fate::Place,
            Reserver::Reserve(i) => self.reserves[i] = Fate::Place,
        }
    }

    fn give_up_place(&mut self) {
        self.places -= 1;
        self.refill();
    }

    fn send_by_place(&mut self, value: usize) -> Sent {
        self.places -= 1;
        let sent = self.send(value);
        match sent {
            Sent::ToReceiver => self.refill(),
            Sent::Full if self.capacity > 0 => {
                self.values.push_back(value);
                return Sent::ToBuffer;
            }
            Sent::Full => {
                let age = self.age();
                self.returned.insert(age, value);
                return Sent::ToBuffer;
            }
            _ => {}
        }
        sent
    }

    fn recv(&mut self) -> Result<usize, TryRecvError> {
        let returned = self.returned.pop_first().map(|(_, value)| value);
        if let Some(value) = returned.or_else(|| self.values.pop_front()) {
            self.refill();
            return Ok(value);
        }
        if self.closed {
            let (_, receiver) = self.held.pop_first().ok_or(TryRecvError::Closed)?;
            let Fate::Holds(_, value) = self.recvs[receiver] else { panic!("it holds a value") };
            self.recvs[receiver] = Fate::Closed;
            return Ok(value);
        }
        let (sender, value) = self.senders.pop_front().ok_or(TryRecvError::Empty)?;
        self.sends[sender] = Fate::Sent;
        Ok(value)
    }

    /// Polls a receive. Returns `None` if the receive is pending.
    fn poll_recv(&mut self, i: usize) -> Option<Result<usize, TryRecvError>> {
        match self.recvs[i] {
            Fate::Waits => None,
            Fate::Holds(age, value) => {
                self.held.remove(&age);
                Some(Ok(value))
            }
            _ => Some(self.recv()),
        }
    }

    fn drop_recv(&mut self, i: usize) {
        self.receivers.retain(|&receiver| receiver != i);
        if let Fate::Holds(age, value) = self.recvs[i] {
            self.held.remove(&age);
            match self.receivers.pop_front() {
                Some(receiver) => self.hold(receiver, age, value),
                None => assert_eq!(self.returned.insert(age, value), None),
            }
        }
    }

    fn drop_sender(&mut self, fate: Fate, is_it: impl Fn(Reserver) -> bool) {
        self.reservers.retain(|&reserver| !is_it(reserver));
        if fate == Fate::Place {
            self.give_up_place();
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.receivers.drain(..).for_each(|receiver| self.recvs[receiver] = Fate::Closed);
        self.senders.drain(..).for_each(|(sender, _)| self.sends[sender] = Fate::Closed);
        self.reservers.drain(..).for_each(|reserver| match reserver {
            Reserver::Send(i) => self.sends[i] = Fate::Closed,
            Reserver::Reserve(i) => self.reserves[i] = Fate::Closed,
        });
    }
}

/// Futures that have waited. An entry is `None` once its future is ready or dropped.
type Futures<F> = Vec<Option<Pin<Box<F>>>>;

fn follows_the_model(capacity: usize, ops: &[Op]) {
    let count = Count::default();
    let (tx, rx) = channel::<Counted>(capacity);
    let mut model = Model { capacity, ..Model::default() };
    let mut sends: Futures<SendFuture<'_, Sender<Counted>>> = Vec::new();
    let mut recvs: Futures<RecvFuture<'_, Receiver<Counted>>> = Vec::new();
    let mut reserves: Futures<ReserveFuture<'_, Sender<Counted>>> = Vec::new();
    let mut numbers = Vec::new();
    // Each permit has a flag: whether the permit has a place, that is, was made before the close.
    let mut permits: Vec<Option<(Permit<'_, Sender<Counted>>, bool)>> = Vec::new();
    let mut next = 0;
    let mut fresh = || {
        next += 1;
        next
    };
    for op in ops {
        match *op {
            Op::TrySend => {
                let number = fresh();
                let sent = tx.try_send(count.make(number));
                match model.send(number) {
                    Sent::ToReceiver | Sent::ToBuffer => assert!(sent.is_ok()),
                    Sent::Full => assert!(matches!(sent, Err(TrySendError::Full(value)) if value.number == number)),
                    Sent::Closed => assert!(matches!(sent, Err(TrySendError::Closed(value)) if value.number == number)),
                }
            }
            Op::TryRecv => assert_eq!(rx.try_recv().map(|value| value.number), model.recv()),
            Op::TryReserve => {
                let permit = tx.try_reserve();
                let has_place = !model.closed && model.has_place();
                assert_eq!(permit.is_some(), model.closed || has_place);
                model.places += usize::from(has_place);
                permits.extend(permit.map(|permit| Some((permit, has_place))));
            }
            Op::Select => {
                let number = fresh();
                let done = select! {
                    send(tx, count.make(number)) -> sent => sent.is_ok(),
                    default => false,
                };
                assert_eq!(done, model.send(number).done());
                let done = select! {
                    recv(rx) -> value => value.map(|value| value.number).map_err(|RecvError| TryRecvError::Closed),
                    default => Err(TryRecvError::Empty),
                };
                assert_eq!(done, model.recv());
            }
            Op::Send => {
                let number = fresh();
                let mut future = Box::pin(tx.send_async(count.make(number)));
                let polled = poll(future.as_mut());
                let sender = sends.len();
                match model.send(number) {
                    Sent::ToReceiver | Sent::ToBuffer => assert!(matches!(polled, Poll::Ready(Ok(())))),
                    Sent::Closed => assert!(matches!(polled, Poll::Ready(Err(SendError(_))))),
                    Sent::Full => {
                        assert!(polled.is_pending());
                        match capacity {
                            0 => model.senders.push_back((sender, number)),
                            _ => model.reservers.push_back(Reserver::Send(sender)),
                        }
                        model.sends.push(Fate::Waits);
                        sends.push(Some(future));
                        numbers.push(number);
                    }
                }
            }
            Op::Recv => {
                let mut future = Box::pin(rx.recv_async());
                let polled = poll(future.as_mut());
                match model.recv() {
                    Ok(number) => assert!(matches!(polled, Poll::Ready(Ok(value)) if value.number == number)),
                    Err(TryRecvError::Closed) => assert!(matches!(polled, Poll::Ready(Err(RecvError)))),
                    Err(TryRecvError::Empty) => {
                        assert!(polled.is_pending());
                        model.receivers.push_back(recvs.len());
                        model.recvs.push(Fate::Waits);
                        recvs.push(Some(future));
                    }
                }
            }
            Op::Reserve => {
                let mut future = Box::pin(tx.reserve_async());
                let has_place = !model.closed && model.has_place();
                match poll(future.as_mut()) {
                    Poll::Ready(permit) => {
                        assert!(model.closed || has_place);
                        model.places += usize::from(has_place);
                        permits.push(Some((permit, has_place)));
                    }
                    Poll::Pending => {
                        assert!(!model.closed && !has_place);
                        model.reservers.push_back(Reserver::Reserve(reserves.len()));
                        model.reserves.push(Fate::Waits);
                        reserves.push(Some(future));
                    }
                }
            }
            Op::PollSend(i) => {
                let Some(future) = sends.get_mut(i).and_then(Option::as_mut) else { continue };
                let expected = match model.sends[i] {
                    Fate::Waits => None,
                    Fate::Sent => Some(true),
                    Fate::Place => Some(model.send_by_place(numbers[i]).done()),
                    _ => Some(false),
                };
                match (poll(future.as_mut()), expected) {
                    (Poll::Pending, None) => {}
                    (Poll::Ready(sent), Some(expected)) => {
                        assert_eq!(sent.is_ok(), expected);
                        sends[i] = None;
                    }
                    (polled, expected) => panic!("{polled:?}, but {expected:?}"),
                }
            }
            Op::PollRecv(i) => {
                let Some(future) = recvs.get_mut(i).and_then(Option::as_mut) else { continue };
                match (poll(future.as_mut()), model.poll_recv(i)) {
                    (Poll::Pending, None) => {}
                    (Poll::Ready(value), Some(expected)) => {
                        assert_eq!(value.map_err(|_| TryRecvError::Closed).map(|value| value.number), expected);
                        recvs[i] = None;
                    }
                    (polled, expected) => panic!("{}, but {expected:?}", polled.is_ready()),
                }
            }
            Op::PollReserve(i) => {
                let Some(future) = reserves.get_mut(i).and_then(Option::as_mut) else { continue };
                match (poll(future.as_mut()), model.reserves[i]) {
                    (Poll::Pending, Fate::Waits) => {}
                    (Poll::Ready(permit), fate @ (Fate::Place | Fate::Closed)) => {
                        permits.push(Some((permit, fate == Fate::Place)));
                        reserves[i] = None;
                    }
                    (polled, expected) => panic!("{polled:?}, but {expected:?}"),
                }
            }
            Op::DropSend(i) => {
                if sends.get_mut(i).and_then(Option::take).is_some() {
                    model.senders.retain(|&(sender, _)| sender != i);
                    model.drop_sender(model.sends[i], |reserver| matches!(reserver, Reserver::Send(n) if n == i));
                }
            }
            Op::DropRecv(i) => {
                if recvs.get_mut(i).and_then(Option::take).is_some() {
                    model.drop_recv(i);
                }
            }
            Op::DropReserve(i) => {
                if reserves.get_mut(i).and_then(Option::take).is_some() {
                    model.drop_sender(model.reserves[i], |reserver| matches!(reserver, Reserver::Reserve(n) if n == i));
                }
            }
            Op::SendBy(i) => {
                let Some((permit, has_place)) = permits.get_mut(i).and_then(Option::take) else { continue };
                let number = fresh();
                let sent = permit.send(count.make(number));
                assert_eq!(sent.is_ok(), has_place && model.send_by_place(number).done());
            }
            Op::DropPermit(i) => {
                if let Some((_, true)) = permits.get_mut(i).and_then(Option::take) {
                    model.give_up_place();
                }
            }
            Op::Close => {
                assert_eq!(tx.close(), !model.closed);
                model.close();
            }
        }
        assert_eq!(
            (tx.len(), tx.is_closed(), rx.waiting_senders(), rx.waiting_receivers()),
            (model.len(), model.closed, model.senders.len() + model.reservers.len(), model.receivers.len())
        );
    }
    drop((sends, recvs, reserves, permits));
    drop((tx, rx));
    assert_eq!(count.alive(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_channel_follows_its_model(capacity in 0usize..4, ops in prop::collection::vec(op(), 0..80)) {
        follows_the_model(capacity, &ops);
    }
}

// Tests that no value is lost and that no value follows the end, whatever is dropped when.

/// A receive in one of its forms.
type Receive<'a> = Pin<Box<dyn Future<Output = Option<usize>> + 'a>>;

fn receive<'a>(rx: &'a Receiver<usize>, never: &'a Chan<usize>, form: usize) -> Receive<'a> {
    match form {
        0 => Box::pin(async move { rx.recv_async().await.ok() }),
        1 => Box::pin(async move {
            let mut stream = Box::pin(RecvStream::new(rx));
            std::future::poll_fn(|cx| futures_core::Stream::poll_next(stream.as_mut(), cx)).await
        }),
        2 => Box::pin(async move {
            select_async! {
                recv(rx) -> value => value.ok(),
                recv(never) => unreachable!(),
            }
        }),
        3 => Box::pin(async move {
            select_async! {
                recv(never) => unreachable!(),
                recv(rx) -> value => value.ok(),
                future(std::future::pending::<()>()) => unreachable!(),
            }
        }),
        _ => Box::pin(async move {
            select_async! {
                recv(rx) -> value => value.ok(),
                recv(rx) -> value => value.ok(),
            }
        }),
    }
}

/// A send in one of its forms. Its output is true if the send succeeds.
type Sending<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

fn sending<'a>(tx: &'a Sender<usize>, never: &'a Chan<usize>, form: usize, value: usize) -> Sending<'a> {
    match form {
        0 => Box::pin(async move { tx.send_async(value).await.is_ok() }),
        1 => Box::pin(async move {
            select_async! {
                send(tx, value) -> sent => sent.is_ok(),
                recv(never) => unreachable!(),
            }
        }),
        2 => Box::pin(async move {
            select_async! {
                recv(never) => unreachable!(),
                send(tx, value) -> sent => sent.is_ok(),
                future(std::future::pending::<()>()) => unreachable!(),
            }
        }),
        _ => Box::pin(async move {
            select_async! {
                send(tx, value) -> sent => sent.is_ok(),
                send(tx, value) -> sent => sent.is_ok(),
            }
        }),
    }
}

#[derive(Clone, Debug)]
enum Step {
    TrySend,
    TryRecv,
    Send(usize),
    Recv(usize),
    PollSend(prop::sample::Index),
    PollRecv(prop::sample::Index),
    DropSend(prop::sample::Index),
    DropRecv(prop::sample::Index),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    use prop::sample::Index;
    prop_oneof![
        4 => Just(Step::TrySend),
        4 => Just(Step::TryRecv),
        4 => (0usize..4).prop_map(Step::Send),
        6 => (0usize..5).prop_map(Step::Recv),
        3 => any::<Index>().prop_map(Step::PollSend),
        3 => any::<Index>().prop_map(Step::PollRecv),
        2 => any::<Index>().prop_map(Step::DropSend),
        4 => any::<Index>().prop_map(Step::DropRecv),
        1 => Just(Step::Close),
    ]
}

fn nothing_is_lost(capacity: usize, steps: &[Step]) {
    let (tx, rx) = channel(capacity);
    let never = Chan::new(0);
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    let (mut sent, mut perhaps, mut received) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut ended = false;
    let mut next = 0;
    let mut note = |value: Option<usize>| match value {
        Some(value) => {
            assert!(!ended, "{value} has been received after the end");
            assert!(received.insert(value), "{value} has been received twice");
        }
        None => ended = true,
    };
    for step in steps {
        next += 1;
        match step {
            Step::TrySend => _ = tx.try_send(next).is_ok() && sent.insert(next),
            Step::TryRecv => match rx.try_recv() {
                Ok(value) => note(Some(value)),
                Err(TryRecvError::Closed) => note(None),
                Err(TryRecvError::Empty) => {}
            },
            Step::Send(form) => sends.push((next, sending(&tx, &never, *form, next))),
            Step::Recv(form) => recvs.push(receive(&rx, &never, *form)),
            Step::PollSend(_) | Step::DropSend(_) if sends.is_empty() => {}
            Step::PollRecv(_) | Step::DropRecv(_) if recvs.is_empty() => {}
            Step::PollSend(i) => {
                let i = i.index(sends.len());
                if let Poll::Ready(is_sent) = poll(sends[i].1.as_mut()) {
                    let (value, _) = sends.swap_remove(i);
                    _ = is_sent && sent.insert(value);
                }
            }
            Step::PollRecv(i) => {
                let i = i.index(recvs.len());
                if let Poll::Ready(value) = poll(recvs[i].as_mut()) {
                    drop(recvs.swap_remove(i));
                    note(value);
                }
            }
            Step::DropSend(i) => _ = perhaps.insert(sends.swap_remove(i.index(sends.len())).0),
            Step::DropRecv(i) => drop(recvs.swap_remove(i.index(recvs.len()))),
            Step::Close => _ = tx.close(),
        }
    }
    perhaps.extend(sends.into_iter().map(|(value, _)| value));
    drop(recvs);
    drop(tx);
    while let Ok(value) = rx.recv() {
        note(Some(value));
    }
    let unsent: Vec<_> = received.difference(&sent).collect();
    assert!(sent.is_subset(&received), "{sent:?} have been sent, {received:?} received");
    match capacity {
        0 => assert!(unsent.iter().all(|value| perhaps.contains(value))),
        _ => assert!(unsent.is_empty(), "{unsent:?} of sends that were dropped have been received"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_value_is_lost_and_the_end_is_the_end(capacity in 0usize..4, steps in prop::collection::vec(step(), 0..60)) {
        nothing_is_lost(capacity, &steps);
    }
}

/// A closed channel is at its end, for good, only when the value held by an unpolled task has been received.
///
/// Tested with every form of a receive, both with a receive that waits when the channel is closed and with a later
/// receive.
#[test]
fn a_closed_channel_is_not_at_its_end_while_a_task_has_a_value() {
    let _watchdog = Watchdog::new();
    type Form = fn(&Chan<u32>) -> Option<u32>;
    let forms: &[Form] = &[
        Chan::recv,
        |ch| ch.recv_limited(Duration::from_secs(60)).unwrap(),
        |ch| ch.try_recv().ok(),
        |ch| ch.iter().next(),
        |ch| ch.try_iter().next(),
        |ch| block_on(ch.recv_async()),
        |ch| block_on(next(&mut pin!(RecvStream::new(ch)))),
        |ch| ch.recv_limited(&WaitLimit { deadline: None, cancel: Some(&Cancel::new()) }).unwrap(),
        |ch| {
            select! {
                recv(ch) -> value => value,
                recv(Chan::<u32>::nil()) => unreachable!(),
            }
        },
        |ch| {
            select! {
                recv(ch) -> value => value,
                default => None,
            }
        },
        |ch| {
            select! {
                recv(ch) -> value => value,
                recv(Chan::<u32>::new(0)) => unreachable!(),
                future(std::future::pending::<()>()) => unreachable!(),
            }
        },
        |ch| {
            let mut select = Select::new();
            select.recv(ch, |value| value).recv(Chan::<u32>::new(0), |_| unreachable!());
            select.wait()
        },
        |ch| {
            block_on(async {
                select_async! {
                    recv(ch) -> value => value,
                    default(Duration::from_secs(60)) => unreachable!(),
                }
            })
        },
    ];
    for (i, form) in forms.iter().enumerate() {
        for capacity in [0, 1] {
            // The receive begins after the close.
            let ch = Chan::new(capacity);
            let mut task = Box::pin(ch.recv_async());
            assert!(poll(task.as_mut()).is_pending());
            ch.send(1);
            ch.close();
            assert_eq!(form(&ch), Some(1), "form {i}");
            assert_eq!((form(&ch), poll(task.as_mut())), (None, Poll::Ready(None)), "form {i}");
            // The receive waits when the channel is closed, if its form waits; for the other forms, the task is dropped
            // after the close.
            let ch = Chan::new(capacity);
            let mut task = Box::pin(ch.recv_async());
            assert!(poll(task.as_mut()).is_pending());
            ch.send(2);
            let waits = ![2, 4, 9].contains(&i);
            thread::scope(|s| {
                let receiver = s.spawn(|| form(&ch));
                if waits {
                    eventually(|| ch.waiting_receivers() == 1);
                    ch.close();
                    assert_eq!(receiver.join().unwrap(), Some(2), "form {i}");
                } else {
                    assert_eq!(receiver.join().unwrap(), None, "form {i}");
                    ch.close();
                    drop(task);
                    assert_eq!(form(&ch), Some(2), "form {i}");
                }
            });
            assert_eq!(ch.recv(), None);
        }
    }
}

/// Values that are given back are received in the order of their sends, before the values of the buffer, in whatever
/// order the futures are dropped.
#[test]
fn values_that_are_given_back_keep_their_order() {
    let _watchdog = Watchdog::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let ch = Chan::new(2);
        let mut tasks = [(); 3].map(|()| Some(Box::pin(ch.recv_async())));
        tasks.iter_mut().flatten().for_each(|task| assert!(poll(task.as_mut()).is_pending()));
        (1..=5).for_each(|n| ch.send(n));
        order.into_iter().for_each(|i| tasks[i] = None);
        ch.close();
        assert_eq!(ch.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5], "{order:?}");
    }
}

/// A task gives up its send again and again, and sends each number until that number has been sent: each number is
/// received once.
///
/// To a buffer the task uses a send, which has sent nothing if it is dropped; without a buffer the task uses a permit.
#[test]
fn a_loop_that_sends_again_sends_each_value_once() {
    let _watchdog = Watchdog::new();
    const COUNT: usize = 2000;
    for (capacity, by_permit) in [(0, true), (1, true), (16, true), (1, false), (16, false)] {
        let received = run(|| {
            let (tx, rx) = channel(capacity);
            let receiver = spawn_async(async move {
                let mut received = Vec::new();
                while let Ok(value) = rx.recv_async().await {
                    received.push(value);
                    if value % 5 == 0 {
                        yield_once().await;
                    }
                }
                received
            });
            let sender = spawn_async(async move {
                let mut turn = 0;
                for n in 0..COUNT {
                    let sent = loop {
                        turn += 1;
                        // The future is dropped after its last poll if it is not ready.
                        let polls = turn % 3;
                        if by_permit {
                            if let Some(permit) = polled_at_most(polls, tx.reserve_async()).await {
                                break permit.send(n);
                            }
                        } else if let Some(sent) = polled_at_most(polls, tx.send_async(n)).await {
                            break sent;
                        }
                    };
                    sent.unwrap();
                }
            });
            sender.join().unwrap();
            receiver.join().unwrap()
        });
        assert_eq!(received, (0..COUNT).collect::<Vec<_>>(), "capacity {capacity}");
    }
}

/// Yields to the other tasks once.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls a future `more` + 1 times at most. Returns its output, or `None` if the future was never ready.
///
/// After each poll in vain the other tasks run, so that a peer may do its part.
async fn polled_at_most<F: Future>(more: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..=more {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        yield_once().await;
    }
    None
}

/// The guarantees of a permit, and the fate of a place that is not used.
#[test]
fn permits() {
    let _watchdog = Watchdog::new();
    // A permit for a slot of a buffer.
    let (tx, rx) = channel(1);
    let permit = tx.try_reserve().unwrap();
    assert!(tx.try_reserve().is_none());
    assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
    permit.send(2).unwrap();
    assert_eq!((tx.len(), rx.try_recv()), (1, Ok(2)));
    // Without a buffer there is one place: the value stays in that place until a receiver takes the value.
    let (tx, rx) = channel(0);
    let permit = tx.try_reserve().unwrap();
    assert!(tx.try_reserve().is_none());
    permit.send(3).unwrap();
    assert!((tx.len(), tx.try_reserve().is_none()) == (1, true));
    assert_eq!(rx.recv(), Ok(3));
    // A place that is given up goes to the next waiter: a reservation, a thread, a task.
    let (tx, rx) = channel(1);
    let permit = tx.try_reserve().unwrap();
    let mut reserve = Box::pin(tx.reserve_async());
    assert!(poll(reserve.as_mut()).is_pending());
    drop(permit);
    let Poll::Ready(permit) = poll(reserve.as_mut()) else { panic!("it has a place") };
    thread::scope(|s| {
        s.spawn(|| tx.send(4).unwrap());
        eventually(|| tx.waiting_senders() == 1);
        drop(permit);
        assert_eq!(rx.recv(), Ok(4));
    });
    let permit = tx.try_reserve().unwrap();
    let mut send = Box::pin(tx.send_async(5));
    assert!(poll(send.as_mut()).is_pending());
    permit.send(6).unwrap();
    assert_eq!(rx.recv(), Ok(6));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty), "the task has a place, and has not been polled");
    assert_eq!((poll(send.as_mut()), rx.recv()), (Poll::Ready(Ok(())), Ok(5)));
    // Permits of a closed channel.
    let permit = tx.try_reserve().unwrap();
    let mut reserve = Box::pin(tx.reserve_async());
    assert!(poll(reserve.as_mut()).is_pending());
    tx.close();
    assert_eq!(rx.recv(), Err(RecvError));
    assert_eq!(permit.send(7), Err(SendError(7)));
    let Poll::Ready(permit) = poll(reserve.as_mut()) else { panic!("a closed channel lets no one wait") };
    assert_eq!(permit.send(8), Err(SendError(8)));
    assert_eq!(tx.try_reserve().unwrap().send(9), Err(SendError(9)));
    assert_eq!(rx.recv(), Err(RecvError));
    let ch = Chan::<u32>::new(1);
    let permit = ch.try_reserve().unwrap();
    ch.close();
    assert_eq!(text(&*catch_unwind(AssertUnwindSafe(|| permit.send(1))).unwrap_err()), "send on closed channel");
    // Permits of a nil channel.
    let nil = Chan::<u32>::nil();
    assert!(nil.try_reserve().is_none());
    assert!(poll(pin!(nil.reserve_async())).is_pending());
}

/// A place that becomes free goes to the sender that has waited the longest, whether that is a thread or a task.
#[test]
fn senders_get_their_places_in_the_order_of_their_coming() {
    let _watchdog = Watchdog::new();
    for thread_first in [true, false] {
        let (tx, rx) = channel(1);
        tx.send(0).unwrap();
        let mut send = Box::pin(tx.send_async(1));
        thread::scope(|s| {
            if !thread_first {
                assert!(poll(send.as_mut()).is_pending());
            }
            s.spawn(|| tx.send(2).unwrap());
            eventually(|| tx.waiting_senders() == if thread_first { 1 } else { 2 });
            if thread_first {
                assert!(poll(send.as_mut()).is_pending());
            }
            assert_eq!(rx.recv(), Ok(0));
            // The task sends when the test polls the task.
            assert_eq!(poll(send.as_mut()).is_ready(), !thread_first);
            assert_eq!(rx.recv(), Ok(if thread_first { 2 } else { 1 }));
            if thread_first {
                assert!(poll(send.as_mut()).is_ready());
            }
            assert_eq!(rx.recv(), Ok(if thread_first { 1 } else { 2 }));
        });
    }
}

// Tests that each value is dropped once.

/// Threads send and receive in every form, give up, close, and drop their ends.
#[test]
fn each_value_is_dropped_once() {
    let watchdog = Watchdog::new();
    for round in 0..60 {
        watchdog.pat();
        let (count, got) = (Count::default(), AtomicUsize::new(0));
        let (sent, perhaps) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (tx, rx) = channel(round % 4);
        let (other_tx, other_rx) = channel(round % 2);
        let stop = Cancel::new();
        const N: usize = 200;
        thread::scope(|s| {
            for form in 0..6 {
                let (tx, other) = (tx.clone(), other_tx.clone());
                let (count, all_sent, perhaps, stop) = (&count, &sent, &perhaps, &stop);
                s.spawn(move || {
                    for n in 0..N {
                        let value = count.make(n);
                        let soon = || Instant::now() + Duration::from_micros(n as u64 % 50);
                        let sent = match form {
                            0 => tx.send(value).is_ok(),
                            1 => tx.try_send(value).is_ok(),
                            2 => tx.send_limited(value, soon()).is_ok(),
                            3 => tx.send_limited(value, &WaitLimit { deadline: None, cancel: Some(stop) }).is_ok(),
                            4 => {
                                let mut value = Some(value);
                                select! {
                                    send_from(tx, &mut value) -> sent => sent.is_ok(),
                                    send(other, count.make(n)) -> sent => sent.is_ok(),
                                }
                            }
                            _ => match poll(pin!(tx.send_async(value))) {
                                Poll::Ready(sent) => sent.is_ok(),
                                // The value may have been received before the future was dropped.
                                Poll::Pending => {
                                    perhaps.fetch_add(1, SeqCst);
                                    false
                                }
                            },
                        };
                        all_sent.fetch_add(usize::from(sent), SeqCst);
                    }
                });
            }
            drop((tx, other_tx));
            for form in 0..5 {
                let (rx, other) = (rx.clone(), other_rx.clone());
                let (got, stop) = (&got, &stop);
                s.spawn(move || {
                    let mut n = 0_u64;
                    loop {
                        n += 1;
                        let soon = Instant::now() + Duration::from_micros(n % 50);
                        let limit = WaitLimit { deadline: Some(soon), cancel: Some(stop) };
                        let received = match form {
                            1 if !stop.is_cancelled() => {
                                rx.recv_limited(&limit).map_err(|why| why == RecvLimitedError::Closed)
                            }
                            0 | 1 => rx.recv().map_err(|_| true),
                            2 => select! {
                                recv(rx) -> value => value.map_err(|_| true),
                                default(Duration::from_micros(n % 50)) => Err(false),
                            },
                            3 => block_on(rx.recv_async()).map_err(|_| true),
                            _ => match poll(pin!(rx.recv_async())) {
                                Poll::Ready(value) => value.map_err(|_| true),
                                Poll::Pending => Err(false),
                            },
                        };
                        match received {
                            Ok(_) => _ = got.fetch_add(1, SeqCst),
                            Err(true) => break,
                            Err(false) => {}
                        }
                        if n.is_multiple_of(100) {
                            stop.cancel();
                        }
                    }
                    // Receive from the other channel until both are closed.
                    while other.recv().is_ok() {
                        got.fetch_add(1, SeqCst);
                    }
                });
            }
            drop((rx, other_rx));
        });
        assert_eq!(count.alive(), 0);
        let (got, sent, perhaps) = (got.load(SeqCst), sent.load(SeqCst), perhaps.load(SeqCst));
        assert!(sent <= got && got <= sent + perhaps, "{got} of {sent}, and perhaps {perhaps}");
    }
}

// User code: destructors.

/// A value whose destructor uses the value's channel.
struct Reenters {
    chan: Chan<Reenters>,
    again: bool,
}

impl Drop for Reenters {
    fn drop(&mut self) {
        let _ = self.chan.try_recv();
        if self.again {
            let _ = self.chan.try_send(Reenters { chan: self.chan.clone(), again: false });
        }
        assert!(self.chan.len() <= self.chan.capacity());
    }
}

#[test]
fn a_destructor_may_use_its_channel() {
    let _watchdog = Watchdog::new();
    let ch = Chan::new(2);
    let value = |again| Reenters { chan: ch.clone(), again };
    assert!(ch.try_send(value(true)).is_ok() && ch.try_send(value(true)).is_ok());
    drop(ch.try_send(value(true)));
    drop(ch.try_recv());
    select! {
        send(ch, value(true)) => {}
        default => {}
    }
    while let Ok(value) = ch.try_recv() {
        drop(value);
    }
    ch.close();
    assert!(catch_unwind(AssertUnwindSafe(|| ch.send(value(false)))).is_err());
    assert_eq!(ch.len(), 0);
}

/// A value whose destructor panics.
struct Bomb(Count);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, SeqCst);
        if !thread::panicking() {
            panic!("a destructor panics");
        }
    }
}

#[test]
fn a_destructor_that_panics_leaves_the_channel_whole() {
    let dropped = Count::default();
    let (tx, rx) = channel(3);
    for _ in 0..3 {
        tx.send(Bomb(dropped.clone())).unwrap();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(tx.try_send(Bomb(dropped.clone()))))).is_err());
    assert_eq!((tx.len(), dropped.alive()), (3, 1));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(rx.recv()))).is_err());
    assert_eq!((tx.len(), dropped.alive()), (2, 2));
    // The last receiver drops all values that are left.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(rx))).is_err());
    assert_eq!((tx.len(), dropped.alive()), (0, 4));
    assert!(tx.is_closed());
    // So does the last handle.
    let ch = Chan::new(2);
    ch.send(Bomb(dropped.clone()));
    ch.send(Bomb(dropped.clone()));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(ch))).is_err());
    assert_eq!(dropped.alive(), 6);
}

/// A waker panics: the value has been received or is dropped, and the channel still works.
#[test]
fn a_waker_that_panics() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }
    let waker = Waker::from(Arc::new(Panics));
    let count = Count::default();
    let (tx, rx) = channel(0);
    {
        let mut recv = pin!(rx.recv_async());
        assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| tx.send(count.make(1)))).is_err());
        assert!(matches!(poll(recv), Poll::Ready(Ok(value)) if value.number == 1));
    }
    {
        let mut send = pin!(tx.send_async(count.make(2)));
        assert!(send.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(catch_unwind(AssertUnwindSafe(|| rx.recv())).is_err());
        assert_eq!(count.alive(), 0);
        assert!(matches!(poll(send), Poll::Ready(Ok(()))));
    }
    // A close wakes all waiters, whichever waker panics.
    let (mut a, mut b) = (pin!(rx.recv_async()), pin!(rx.recv_async()));
    assert!(a.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(b.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| tx.close())).is_err());
    assert!(matches!((poll(a), poll(b)), (Poll::Ready(Err(RecvError)), Poll::Ready(Err(RecvError)))));
}

// Counted ends.

#[test]
fn the_last_sender_closes() {
    let _watchdog = Watchdog::new();
    let (tx, rx) = channel(2);
    let another = tx.clone();
    tx.send(1).unwrap();
    drop(tx);
    assert!(!rx.is_closed());
    another.send(2).unwrap();
    drop(another);
    assert!(rx.is_closed());
    assert_eq!((rx.recv(), rx.recv(), rx.recv()), (Ok(1), Ok(2), Err(RecvError)));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
}

#[test]
fn the_last_receiver_closes_and_drops() {
    let _watchdog = Watchdog::new();
    let count = Count::default();
    let (tx, rx) = channel(1);
    tx.send(count.make(1)).unwrap();
    let waiting = thread::spawn({
        let (tx, value) = (tx.clone(), count.make(2));
        move || tx.send(value).unwrap_err().into_inner().number
    });
    eventually(|| tx.waiting_senders() == 1);
    let another = rx.clone();
    drop(rx);
    assert!(!tx.is_closed());
    drop(another);
    assert_eq!(waiting.join().unwrap(), 2);
    assert_eq!(count.alive(), 0);
    assert!(matches!(tx.try_send(count.make(3)), Err(TrySendError::Closed(_))));
    assert!(matches!(tx.send_limited(count.make(3), Duration::MAX), Err(SendLimitedError::Closed(_))));
}

#[test]
fn an_end_may_close() {
    let (tx, rx) = channel(1);
    tx.send(1).unwrap();
    assert!(rx.close());
    assert!(!tx.close());
    assert_eq!(tx.send(2), Err(SendError(2)));
    assert_eq!(rx.into_iter().collect::<Vec<_>>(), [1]);
}

/// An end that is sent over its own channel.
#[test]
fn a_channel_of_its_own_ends() {
    struct End(#[allow(dead_code)] Sender<End>);
    let (tx, rx) = channel(1);
    assert!(tx.send(End(tx.clone())).is_ok());
    drop(tx);
    assert!(!rx.is_closed(), "an end is on its way");
    drop(rx); // drops the value, which is the last sender
}

// Limits.

#[test]
fn limits() {
    let _watchdog = Watchdog::new();
    let ch = Chan::new(1);
    assert_eq!(ch.recv_limited(Instant::now()), Err(WaitError::TimedOut));
    assert_eq!(ch.send_limited(1, Instant::now()), Ok(()), "a deadline limits waiting");
    assert_eq!(ch.send_limited(2, Duration::ZERO), Err(GaveUp { value: 2, why: WaitError::TimedOut }));
    assert_eq!(ch.recv_limited(Duration::MAX), Ok(Some(1)));
    let stop = Cancel::new();
    let limit = WaitLimit { cancel: Some(&stop), ..WaitLimit::default() };
    thread::scope(|s| {
        let waits = s.spawn(|| ch.recv_limited(&limit));
        eventually(|| ch.waiting_receivers() == 1);
        stop.cancel();
        assert_eq!(waits.join().unwrap(), Err(WaitError::Cancelled));
    });
    ch.send(1);
    assert_eq!(ch.recv_limited(&limit), Err(WaitError::Cancelled), "at once, though there is a value");
    assert_eq!(ch.send_limited(2, &limit).unwrap_err().value, 2);
    assert_eq!(Chan::<()>::nil().recv_limited(&limit), Err(WaitError::Cancelled));
    ch.close();
    assert_eq!((ch.recv_limited(Duration::ZERO), ch.recv_limited(Duration::ZERO)), (Ok(Some(1)), Ok(None)));
}

#[test]
fn a_context_ends_a_wait() {
    let _alone = alone();
    run(|| {
        let ch = Chan::<u32>::new(0);
        let (ctx, cancel) = context::with_cancel(&background());
        let waits = spawn({
            let (ch, ctx) = (ch.clone(), ctx.clone());
            move || ctx.limited(|limit| ch.recv_limited(limit))
        });
        until(|| ch.waiting_receivers() == 1);
        cancel.cancel();
        assert_eq!(waits.join().unwrap(), Err(context::Error::Canceled));
        let sent = ctx.limited(|limit| Ok(ch.send_limited(1, limit)?));
        assert_eq!(sent, Err(context::Error::Canceled));
        let why = select! {
            recv(ch) => unreachable!(),
            default(ctx.limit()) -> why => why,
        };
        assert_eq!(why, WaitError::Cancelled);
        // A select with a context that is done does not look at its cases, and keeps none.
        let ready = Chan::new(1);
        ready.send(1);
        let why = select! {
            recv(ready) => unreachable!(),
            default(&ctx) -> why => why,
        };
        assert_eq!(why, context::Error::Canceled);
        let mut value = Some(2);
        select! {
            send_from(ch, &mut value) => unreachable!(),
            recv(sudog::time::after(Duration::ZERO)) => unreachable!(),
            future(std::future::ready(())) => unreachable!(),
            default(&ctx) => {},
        }
        assert_eq!(value, Some(2));
        let mut several = Select::new();
        several.recv(&ready, |_| unreachable!());
        assert_eq!(several.wait_limited(&ctx), Err::<(), _>(context::Error::Canceled));
        assert!(several.is_empty());
    });
}

#[test]
fn the_channel_of_a_context() {
    let _alone = alone();
    run(|| {
        assert!(background().done_chan().is_nil());
        let (parent, cancel) = context::with_cancel(&background());
        let (child, _) = context::with_cancel(&parent);
        let (done, kept) = (child.done_chan().clone(), parent.done_chan().clone());
        assert!(&done == child.done_chan() && done != kept && !done.is_closed());
        let waits = spawn({
            let (done, never) = (done.clone(), Chan::<u32>::new(0));
            move || {
                select! {
                    recv(done) -> end => end.is_none(),
                    recv(never) => false,
                }
            }
        });
        until(|| done.waiting_receivers() == 1);
        drop(child); // the drop of the child does not keep the channel from being closed
        cancel.cancel();
        assert!(waits.join().unwrap());
        assert_eq!((kept.recv(), done.recv()), (None, None));
        assert!(parent.done_chan().is_closed());
        let (late, cancel) = context::with_cancel(&background());
        cancel.cancel();
        assert!(late.done_chan().is_closed(), "made after the end");
        let (deadline, _) = context::with_timeout(&background(), Duration::from_millis(1));
        let done = deadline.done_chan().clone();
        drop(deadline);
        assert_eq!(done.recv(), None);
    });
}

// Kinds of G in the same queue.

#[test]
fn threads_goroutines_and_tasks_in_one_queue() {
    let _alone = alone();
    set_max_procs(2);
    run(|| {
        let (ch, order) = (Chan::new(0), Chan::new(8));
        let joins = |n| ch.waiting_receivers() == n;
        let receive = |who: &'static str| {
            let (ch, order) = (ch.clone(), order.clone());
            move || order.send((who, ch.recv().unwrap()))
        };
        let first = thread::spawn(receive("thread"));
        until(|| joins(1));
        go(receive("goroutine"));
        until(|| joins(2));
        let task = spawn_async({
            let (ch, order) = (ch.clone(), order.clone());
            async move {
                let value = ch.recv_async().await.unwrap();
                order.send_async(("task", value)).await;
            }
        });
        until(|| joins(3));
        go({
            let (ch, order) = (ch.clone(), order.clone());
            move || select! { recv(ch) -> value => order.send(("select", value.unwrap())) }
        });
        until(|| joins(4));
        (1..=4).for_each(|n| ch.send(n));
        let mut served: Vec<_> = (0..4).map(|_| order.recv().unwrap()).collect();
        served.sort_by_key(|&(_, n)| n);
        assert_eq!(served, [("thread", 1), ("goroutine", 2), ("task", 3), ("select", 4)]);
        first.join().unwrap();
        task.join().unwrap();
    });
}

/// A goroutine that only sends and receives without waiting does not starve the other goroutines of its worker.
#[test]
fn a_hog_gives_way() {
    let _alone = alone();
    set_max_procs(1);
    for form in 0..4 {
        run(|| {
            let ran = Arc::new(AtomicBool::new(false));
            Builder::new().on(Placement::Here).go({
                let ran = ran.clone();
                move || ran.store(true, Relaxed)
            });
            let (ch, closed) = (Chan::new(1), Chan::<u32>::new(0));
            closed.close();
            let rounds = 4_000_000;
            let n = (0..rounds).take_while(|_| !ran.load(Relaxed)).inspect(|_| match form {
                0 => {
                    ch.send(1);
                    ch.recv();
                }
                1 => _ = ch.try_recv(),
                2 => _ = closed.recv(),
                _ => select! { recv(ch) => {}, default => {} },
            });
            assert!(n.count() < rounds, "form {form}");
        });
    }
}

// Select.

#[test]
fn a_select_of_tasks_with_a_deadline() {
    let _watchdog = Watchdog::new();
    let (ch, quit) = (Chan::new(1), Chan::<()>::new(0));
    let select = || async {
        select_async! {
            recv(ch) -> value => value,
            recv(quit) => None,
            default(Duration::from_millis(1)) -> why => { assert_eq!(why, WaitError::TimedOut); Some(0) }
        }
    };
    assert_eq!(block_on(select()), Some(0));
    assert_eq!((ch.waiting_receivers(), quit.waiting_receivers()), (0, 0));
    ch.send(7);
    assert_eq!(block_on(select()), Some(7));
    let now = async {
        select_async! {
            send(quit, ()) => true,
            default => false,
        }
    };
    assert!(!block_on(now));
}

#[test]
fn send_from_keeps_the_value_unless_it_is_sent() {
    let (full, room) = (Chan::new(0), Chan::new(1));
    let mut value = Some(Box::new(1));
    select! {
        send_from(full, &mut value) => unreachable!(),
        default => {}
    }
    assert_eq!(value, Some(Box::new(1)));
    select! {
        send_from(full, &mut value) => unreachable!(),
        send(room, Box::new(2)) => {}
    }
    assert_eq!((&value, room.recv()), (&Some(Box::new(1)), Some(Box::new(2))));
    select! { send_from(room, &mut value) => {} }
    assert_eq!((&value, room.recv()), (&None, Some(Box::new(1))));
    select! {
        send_from(room, &mut value) => unreachable!("it has no value"),
        default => {}
    }
}

/// The arms belong to the function around the select: they leave loops and functions, and use the operands of the
/// select.
#[test]
fn the_arms_of_a_select_are_part_of_the_function() {
    fn first<T>(mut ch: Chan<T>, quit: &Chan<()>) -> Option<T> {
        let mut rounds = 0;
        'outer: loop {
            rounds += 1;
            select! {
                recv(ch) -> value => match value {
                    Some(value) if rounds > 1 => return Some(value),
                    Some(_) => continue,
                    None => ch = Chan::nil(),
                },
                recv(quit) => break 'outer None,
            }
        }
    }
    let (ch, quit) = (Chan::new(3), Chan::new(0));
    ch.send(1);
    ch.send(2);
    assert_eq!(first(ch.clone(), &quit), Some(2));
    ch.close();
    quit.close();
    assert_eq!(first(ch, &quit), None);
    // Operands may be temporaries, references, options and both kinds of handle; each has its own type of result.
    let (tx, rx) = channel(1);
    let send: SendOnly<u8> = Chan::nil().into();
    let recv: RecvOnly<u8> = Chan::nil().into();
    let value: Result<u32, RecvError> = select! {
        send(tx.clone(), 5) -> sent => { let () = sent.unwrap(); Ok(0) }
        recv(&rx) -> value => value,
        recv(Some(recv.clone())) -> _ => Ok(1),
        send(&&send, 1) -> () => Ok(2),
    };
    assert_eq!((value, rx.recv()), (Ok(0), Ok(5)));
}

#[test]
fn a_select_of_a_number_of_cases_that_is_not_known() {
    let _watchdog = Watchdog::new();
    let channels: Vec<_> = (0..300).map(|_| channel(1)).collect();
    let collect = |limit: &WaitLimit<'_>| {
        let mut select = Select::new();
        for (i, (_, rx)) in channels.iter().enumerate() {
            select.recv(rx, move |value| (i, value));
        }
        select.wait_limited(limit)
    };
    let soon = WaitLimit::until(Instant::now());
    assert_eq!(collect(&soon), Err(WaitError::TimedOut));
    thread::scope(|s| {
        let waits = s.spawn(|| collect(&WaitLimit::default()));
        eventually(|| channels.iter().all(|(_, rx)| rx.waiting_receivers() == 1));
        channels[123].0.send(7).unwrap();
        assert_eq!(waits.join().unwrap(), (Ok((123, Ok(7)))));
    });
    assert!(channels.iter().all(|(_, rx)| rx.waiting_receivers() == 0));
    let mut select = Select::new();
    select.send(&channels[0].0, 1, |sent| sent.is_ok());
    assert_eq!((select.len(), select.try_now(), select.len()), (1, Some(true), 0));
    assert_eq!(channels[0].1.recv(), Ok(1));
}

/// Each case is chosen equally often, also when several cases use the same channel.
#[test]
fn a_select_is_fair_among_waiters() {
    let _alone = alone();
    set_max_procs(1);
    run(|| {
        let (ch, counts) = (Chan::new(0), Chan::new(0));
        go({
            let (ch, counts) = (ch.clone(), counts.clone());
            move || {
                let mut chosen = [0; 3];
                for _ in 0..3000 {
                    chosen[select! {
                        recv(ch) => 0,
                        recv(ch) => 1,
                        recv(ch) => 2,
                    }] += 1;
                }
                counts.send(chosen);
            }
        });
        (0..3000).for_each(|n| ch.send(n));
        let chosen = counts.recv().unwrap();
        assert!(chosen.iter().all(|&n| (800..1200).contains(&n)), "{chosen:?}");
    });
}

// Auto traits and sizes of the types.

#[test]
fn auto_traits() {
    fn send_and_sync<T: Send + Sync>() {}
    fn send<T: Send>(_: &T) {}
    // A type of values that may be sent but not shared.
    type V = Cell<u32>;
    send_and_sync::<Chan<V>>();
    send_and_sync::<SendOnly<V>>();
    send_and_sync::<RecvOnly<V>>();
    send_and_sync::<Sender<V>>();
    send_and_sync::<Receiver<V>>();
    fn unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    unwind_safe::<Chan<V>>();
    unwind_safe::<Sender<V>>();
    send_and_sync::<RecvFuture<'static, Receiver<V>>>();
    send_and_sync::<SendFuture<'static, Chan<V>>>();
    let (ch, rx) = (Chan::<V>::new(0), channel::<V>(0).1);
    send(&async {
        select_async! {
            recv(ch) => {}
            recv(rx) => {}
            send(ch, V::new(1)) => {}
        }
    });
    fn is_future<C: sudog_runtime::chan::macros::Cases>(_: Option<SelectFuture<C>>) {}
    is_future::<sudog_runtime::chan::macros::StaticCases<0, ()>>(None);
}

#[test]
fn what_debug_and_errors_say() {
    let ch = Chan::new(2);
    ch.send(1);
    assert_eq!(format!("{ch:?}"), "Chan { len: 1, capacity: 2, closed: false, .. }");
    let (tx, rx) = channel::<u32>(0);
    drop(rx);
    assert_eq!(format!("{tx:?}"), "Sender { len: 0, capacity: 0, closed: true, .. }");
    let error = tx.send(1).unwrap_err();
    assert_eq!(format!("{error:?}: {error}"), "SendError(..): sending on a closed channel");
    assert_eq!(TryRecvError::Empty.to_string(), "receiving on an empty channel");
}

/// A panic in an arm, or of a send on a closed channel, ends only its goroutine.
#[test]
fn a_goroutine_that_panics_in_a_select() {
    let _alone = alone();
    run(|| {
        let (closed, never) = (Chan::new(0), Chan::<u32>::new(0));
        let n = never.clone();
        Builder::new().on_panic(OnPanic::Unwind).go({
            let closed = closed.clone();
            move || {
                select! {
                    send(closed, 1) => {}
                    recv(n) => {}
                }
            }
        });
        until(|| closed.waiting_senders() == 1);
        closed.close();
        until(|| never.waiting_receivers() == 0);
    });
}

/// The forms of each handle that take a context: they receive, send, give their values back at a cancel, and report a
/// close.
#[test]
fn with_a_context() {
    use sudog::context::{self, Error};
    let _watchdog = Watchdog::new();
    let test = || {
        let (ctx, cancel) = context::with_cancel(&context::background());
        let ch = Chan::new(1);
        let (tx, rx) = channel(1);
        ch.send_only().send_limited(1, &ctx).unwrap();
        assert_eq!(ch.recv_only().recv_limited(&ctx), Ok(Some(1)));
        assert_eq!(tx.send_limited(1, &ctx), Ok(()));
        assert_eq!(rx.recv_limited(&ctx), Ok(1));
        // Waits end by the cancel, and the full channel keeps its value.
        ch.send(1);
        let waits = [
            spawn({
                let (ch, ctx) = (ch.clone(), ctx.clone());
                move || ch.send_limited(2, &ctx).map_err(|error| (error.value, error.why))
            }),
            spawn({
                let (ch, ctx) = (Chan::<()>::new(0), ctx.clone());
                move || ch.recv_limited(&ctx).map(|_| ()).map_err(|error| (0, error))
            }),
            spawn({
                let (nil, ctx) = (Chan::nil(), ctx.clone());
                move || nil.send_limited(3, &ctx).map_err(|error| (error.value, error.why))
            }),
            spawn({
                let (nil, ctx) = (Chan::<()>::nil(), ctx.clone());
                move || nil.recv_limited(&ctx).map(|_| ()).map_err(|error| (0, error))
            }),
        ];
        gosched();
        cancel.cancel();
        let over = waits.map(|wait| wait.join().unwrap());
        assert_eq!(over, [2, 0, 3, 0].map(|value| Err((value, Error::Canceled))));
        assert_eq!(ch.recv_limited(&ctx), Err(Error::Canceled), "at once, though there is a value");
        assert_eq!(ch.len(), 1);
        let why = RecvLimitedError::GaveUp(Error::Canceled);
        assert_eq!(rx.recv_limited(&ctx), Err(why));
        assert_eq!(why.source().unwrap().downcast_ref(), Some(&Error::Canceled));
        let late = tx.send_limited(3, &ctx).unwrap_err();
        assert_eq!(late.to_string(), "context canceled");
        assert_eq!(late.source().unwrap().downcast_ref(), Some(&Error::Canceled));
        assert_eq!(late.into_inner(), 3);
        let late: Error = ch.send_limited(3, &ctx).unwrap_err().into();
        assert_eq!(late, Error::Canceled);
        let ctx = context::background();
        ch.close();
        assert_eq!((ch.recv_limited(&ctx), ch.recv_limited(&ctx)), (Ok(Some(1)), Ok(None)));
        drop(rx);
        assert_eq!(tx.send_limited(3, &ctx), Err(SendLimitedError::Closed(3)));
        let error = catch_unwind(AssertUnwindSafe(|| ch.send_limited(4, &ctx))).unwrap_err();
        assert_eq!(text(&*error), "send on closed channel");
    };
    run(test);
    test();
}

// Streams of tasks.

/// Returns the next value of a stream: the counterpart of `StreamExt::next` of the crate futures.
fn next<S: futures_core::Stream>(stream: &mut Pin<&mut S>) -> impl Future<Output = Option<S::Item>> {
    std::future::poll_fn(|cx| stream.as_mut().poll_next(cx))
}

#[test]
fn a_stream_receives_until_the_channel_is_closed() {
    let _watchdog = Watchdog::new();
    for capacity in [0, 1, 10] {
        let (tx, rx) = channel(capacity);
        let ch = Chan::new(capacity);
        let received = run(|| {
            let theirs = ch.clone();
            go(move || {
                (0..100).for_each(|n| tx.send(n).unwrap());
                drop(tx);
                (0..100).for_each(|n| theirs.send(n));
                theirs.close();
            });
            let task = spawn_async(async move {
                let mut values = Vec::new();
                let mut ends = pin!(RecvStream::new(rx));
                while let Some(value) = next(&mut ends).await {
                    values.push(value);
                }
                let mut stream = pin!(RecvStream::new(&ch));
                while let Some(value) = next(&mut stream).await {
                    values.push(value);
                }
                assert_eq!(next(&mut stream).await, None, "it ends again");
                values
            });
            task.join().unwrap()
        });
        assert_eq!(received, (0..100).chain(0..100).collect::<Vec<_>>());
    }
}

/// A waker that panics when it is woken, and at no other time.
struct PanicWaker;

impl Wake for PanicWaker {
    fn wake(self: Arc<Self>) {
        panic!("by intention");
    }
}

/// Polls a future once with a waker that panics, and returns the queued future.
fn queue_panicking<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(PanicWaker)))).is_pending());
    future
}

/// A select as a future is finished after the waker of its peer has panicked: a second poll does not perform the case
/// again.
#[test]
fn a_select_whose_peer_panics_when_it_is_woken_is_over() {
    let _watchdog = Watchdog::new();
    let count = Count::default();
    let ch = Chan::new(0);
    let mut receive = queue_panicking(ch.recv_async());
    {
        let mut select = pin!(SelectFuture::<StaticCases<1, _>>::new((SendCase::new(&ch, count.make(1)), ())));
        assert!(catch_unwind(AssertUnwindSafe(|| poll(select.as_mut()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| poll(select.as_mut()))).is_err(), "it is over");
    }
    let Poll::Ready(Some(value)) = poll(receive.as_mut()) else { panic!("it has been sent") };
    assert_eq!((value.number, count.alive()), (1, 1));
    drop(value);
    assert!(ch.try_recv().is_err());
    // A receive: the received value is dropped with the future.
    let ch = Chan::new(0);
    let _send = queue_panicking(ch.send_async(count.make(2)));
    {
        let mut select = pin!(SelectFuture::<StaticCases<1, _>>::new((RecvCase::new(&ch), ())));
        assert!(catch_unwind(AssertUnwindSafe(|| poll(select.as_mut()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| poll(select.as_mut()))).is_err());
    }
    assert_eq!(count.alive(), 0);
}

/// Calls a closure when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A waker that panics during an unwinding does not end the process, whichever destructor wakes.
#[test]
fn a_waker_s_second_panic_is_dropped() {
    let _watchdog = Watchdog::new();
    // The drop of a receive gives the value to the next receiver.
    let ch = Chan::new(1);
    let mut first = Box::pin(ch.recv_async());
    assert!(poll(first.as_mut()).is_pending());
    let mut next = queue_panicking(ch.recv_async());
    ch.send(1);
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            let _first = first;
            panic!("by intention");
        }))
        .is_err()
    );
    assert_eq!(poll(next.as_mut()), Poll::Ready(Some(1)));
    // The drop of a permit gives the place to the next sender.
    let permit = ch.try_reserve().unwrap();
    let mut next = queue_panicking(ch.reserve_async());
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            let _permit = permit;
            panic!("by intention");
        }))
        .is_err()
    );
    assert!(poll(next.as_mut()).is_ready());
    drop(next);
    // A destructor sends, or receives.
    let ch = Chan::new(0);
    let mut receive = queue_panicking(ch.recv_async());
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            let _sends = OnDrop(|| ch.send(2));
            panic!("by intention");
        }))
        .is_err()
    );
    assert_eq!(poll(receive.as_mut()), Poll::Ready(Some(2)));
    let mut send = queue_panicking(ch.send_async(3));
    assert!(
        catch_unwind(AssertUnwindSafe(|| {
            let _receives = OnDrop(|| assert_eq!(ch.recv(), Some(3)));
            panic!("by intention");
        }))
        .is_err()
    );
    assert!(poll(send.as_mut()).is_ready());
}

/// The destructor of the value that a select has not sent panics: the value that the select has received is dropped.
#[test]
fn what_a_select_received_is_dropped_though_a_destructor_panics() {
    let _watchdog = Watchdog::new();
    let (bombs, count) = (Count::default(), Count::default());
    let (full, nobody) = (Chan::new(1), Chan::new(0));
    let (bomb, long) = (|| Bomb(bombs.clone()), Duration::from_secs(3600));
    let receives = |select: &dyn Fn()| {
        full.send(count.make(1));
        assert!(catch_unwind(AssertUnwindSafe(select)).is_err());
        assert_eq!((full.len(), count.alive()), (0, 0));
    };
    receives(&|| select! { recv(full) -> value => drop(value), send(nobody, bomb()) => {} });
    receives(&|| select! { recv(full) -> value => drop(value), send(nobody, bomb()) => {}, default => {} });
    receives(&|| select! { recv(full) -> value => drop(value), send(nobody, bomb()) => {}, default(long) => {} });
    let timer = sudog::time::after(long);
    receives(&|| select! { recv(full) -> value => drop(value), send(nobody, bomb()) => {}, recv(timer) => {} });
    receives(
        &|| select! { recv(full) -> value => drop(value), send(nobody, bomb()) => {}, recv(timer) => {}, default => {} },
    );
    receives(
        &|| select! { recv(full) -> value => drop(value), send(nobody, bomb()) => {}, future(std::future::pending::<()>()) => {} },
    );
    assert_eq!(bombs.alive(), 6, "each bomb went off");
}

/// The last receiver is dropped, and a sender's waker panics: the values in the buffer are dropped all the same.
#[test]
fn the_last_receiver_drops_what_there_is_though_a_waker_panics() {
    let _watchdog = Watchdog::new();
    let (count, (tx, rx)) = (Count::default(), channel(1));
    tx.send(count.make(1)).unwrap();
    let _send = queue_panicking(tx.send_async(count.make(2)));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(rx))).is_err());
    assert_eq!(count.alive(), 1, "the sender's own");
}

/// A stream whose peer's waker panics goes on with the next value.
#[test]
fn a_stream_goes_on_after_a_panic() {
    let _watchdog = Watchdog::new();
    let ch = Chan::new(0);
    let mut stream = pin!(RecvStream::new(&ch));
    let _send = queue_panicking(ch.send_async(1));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(pin!(next(&mut stream))))).is_err());
    let mut send = Box::pin(ch.send_async(2));
    assert!(poll(send.as_mut()).is_pending());
    assert_eq!(poll(pin!(next(&mut stream))), Poll::Ready(Some(2)));
}

/// A dropped stream has taken only the values that it has returned, at whatever point between two values it is dropped.
#[test]
fn a_stream_that_is_dropped_gives_back() {
    let _watchdog = Watchdog::new();
    let ch = Chan::new(0);
    let cx = &mut Context::from_waker(Waker::noop());
    for taken in 0..3 {
        let sender = thread::spawn({
            let ch = ch.clone();
            move || (0..3).for_each(|n| ch.send(n))
        });
        {
            let mut stream = pin!(RecvStream::new(&ch));
            let mut poll = || futures_core::Stream::poll_next(stream.as_mut(), cx);
            for n in 0..taken {
                let value = loop {
                    match poll() {
                        Poll::Pending => thread::yield_now(), // the sender has not sent yet
                        ready => break ready,
                    }
                };
                assert_eq!(value, Poll::Ready(Some(n)));
            }
            // The stream is queued now, and perhaps has been given a value. The drop gives that value back.
            if let Poll::Ready(Some(n)) = poll() {
                assert_eq!(n, taken);
                (taken + 1..3).for_each(|n| assert_eq!(ch.recv(), Some(n)));
                sender.join().unwrap();
                continue;
            }
            thread::yield_now();
        }
        (taken..3).for_each(|n| assert_eq!(ch.recv(), Some(n)));
        sender.join().unwrap();
    }
    let mut nil = pin!(RecvStream::new(None::<Receiver<u32>>));
    assert!(futures_core::Stream::poll_next(nil.as_mut(), cx).is_pending());
}

/// A select with more arms than Go's programs have: expansions nest, and a crate's recursion limit is 128.
#[test]
fn a_select_of_64_arms() {
    macro_rules! select_of {
        ($select:ident, $channels:ident, [$($i:literal)*], $($default:tt)*) => {
            $select! {
                $(recv($channels[$i]) -> value => ($i, value),)*
                $($default)*
            }
        };
    }
    macro_rules! select_of_64 {
        ($select:ident, $channels:ident, $($default:tt)*) => {
            select_of!($select, $channels, [
                0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
                32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
            ], $($default)*)
        };
    }
    let channels: Vec<_> = (0..64).map(|_| Chan::new(1)).collect();
    for (i, channel) in channels.iter().enumerate() {
        channel.send(i);
        assert_eq!(select_of_64!(select, channels,), (i, Some(i)));
        channel.send(i);
        assert_eq!(select_of_64!(select, channels, default => (64, None)), (i, Some(i)));
        channel.send(i);
        let of_a_task = async { select_of_64!(select_async, channels, default(Duration::MAX) -> _ => (64, None)) };
        assert_eq!(block_on(of_a_task), (i, Some(i)));
    }
    assert_eq!(select_of_64!(select, channels, default => (64, None)), (64, None));
}

/// Arms with and without a comma after their block in the same select, and the default anywhere.
#[test]
fn the_grammar_of_arms() {
    let (a, b) = (Chan::<u32>::new(1), Chan::<u32>::new(1));
    let mut value = Some(3);
    for round in 0..4 {
        let did = select! {
            default => { "nothing" }
            recv(a) -> got => match got {
                Some(1) => "one",
                _ => "another",
            },
            send_from(b, &mut value) => { "sent" }
            recv(b) => { "received" },
            recv(Chan::<u32>::nil()) -> Some(_) | None => "never"
        };
        match round {
            0 => assert_eq!(did, "sent"),
            1 => assert_eq!(did, "received"),
            2 => {
                assert_eq!(did, "nothing");
                a.send(1);
            }
            _ => assert_eq!(did, "one"),
        }
    }
}
