//! The benchmarks on threads and goroutines, whose calls block.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Instant;

use sudog_csp::{End, make_channel};
use sudog_runtime::chan::{self, Chan, Select};

use super::{Case, Pattern, Peer, Run};
use crate::output::failure::Failure;
use crate::run::contenders::{Contenders, Gate};

/// A bounded channel to measure. The value 0 tells a receiver that no more values come.
trait Channel: 'static {
    type Tx: Clone + Send + 'static;
    type Rx: Send + 'static;

    /// True if the channel has select.
    const SELECTS: bool = false;

    fn bounded(capacity: usize) -> (Self::Tx, Self::Rx);
    fn send(tx: &Self::Tx, value: u64);
    fn recv(rx: &Self::Rx) -> u64;

    /// Returns another receiver, or `None` if the channel allows a single receiver only.
    fn another(rx: &Self::Rx) -> Option<Self::Rx>;

    /// Receives from any of the channels. Returns `None` without select.
    fn select_recv(_: &[Self::Rx]) -> Option<u64> {
        None
    }

    /// Sends to any of the channels. Returns `None` without select.
    fn select_send(_: &[Self::Tx], _: u64) -> Option<()> {
        None
    }
}

macro_rules! channel {
    (
        $Name:ident, $Tx:ty, $Rx:ty, $bounded:expr, $send:expr, $recv:expr, $another:expr
        $(; |$rxs:ident| $select_recv:expr, |$txs:ident, $value:ident| $select_send:expr)?
    ) => {
        struct $Name;

        impl Channel for $Name {
            type Tx = $Tx;
            type Rx = $Rx;

            fn bounded(capacity: usize) -> (Self::Tx, Self::Rx) {
                ($bounded)(capacity)
            }

            #[inline]
            fn send(tx: &Self::Tx, value: u64) {
                ($send)(tx, value);
            }

            #[inline]
            fn recv(rx: &Self::Rx) -> u64 {
                ($recv)(rx)
            }

            fn another(rx: &Self::Rx) -> Option<Self::Rx> {
                ($another)(rx)
            }

            $(
                const SELECTS: bool = true;

                fn select_recv($rxs: &[Self::Rx]) -> Option<u64> {
                    Some($select_recv)
                }

                fn select_send($txs: &[Self::Tx], $value: u64) -> Option<()> {
                    Some($select_send)
                }
            )?
        }
    };
}

const OPEN: &str = "the channel is open while it is measured";

/// Waits for one of the cases that `add` adds to a select, for each of the ends.
fn select<'a, E, R>(ends: &'a [E], add: impl Fn(&mut Select<'a, R>, &'a E)) -> R {
    let mut select = Select::new();
    ends.iter().for_each(|end| add(&mut select, end));
    select.wait()
}

channel!(
    Ours,
    Chan<u64>,
    Chan<u64>,
    |n| {
        let ch = Chan::new(n);
        (ch.clone(), ch)
    },
    |tx: &Chan<u64>, v| tx.send(v),
    |rx: &Chan<u64>| rx.recv().expect(OPEN),
    |rx: &Chan<u64>| Some(rx.clone());
    |rxs| select(rxs, |select, rx| _ = select.recv(rx, |v| v.expect(OPEN))),
    |txs, value| select(txs, |select, tx| _ = select.send(tx, value, |()| ()))
);

channel!(
    Ends,
    chan::Sender<u64>,
    chan::Receiver<u64>,
    chan::channel,
    |tx: &chan::Sender<u64>, v| tx.send(v).expect(OPEN),
    |rx: &chan::Receiver<u64>| rx.recv().expect(OPEN),
    |rx: &chan::Receiver<u64>| Some(rx.clone());
    |rxs| select(rxs, |select, rx| _ = select.recv(rx, |v| v.expect(OPEN))),
    |txs, value| select(txs, |select, tx| _ = select.send(tx, value, |sent| sent.expect(OPEN)))
);

/// An end of a channel of `csp`, whose reads and writes borrow it mutably.
struct CspEnd(RefCell<End<u64>>);

impl Clone for CspEnd {
    fn clone(&self) -> Self {
        Self(self.0.borrow().dup().into())
    }
}

channel!(
    Csp,
    CspEnd,
    CspEnd,
    |_| make_channel::<u64, 2>().map(|end| CspEnd(end.into())).into(),
    |tx: &CspEnd, v| tx.0.borrow_mut().write(v).expect(OPEN),
    |rx: &CspEnd| rx.0.borrow_mut().read().expect(OPEN),
    |rx: &CspEnd| Some(rx.clone())
);

channel!(
    Crossbeam,
    crossbeam_channel::Sender<u64>,
    crossbeam_channel::Receiver<u64>,
    crossbeam_channel::bounded,
    |tx: &crossbeam_channel::Sender<u64>, v| tx.send(v).expect(OPEN),
    |rx: &crossbeam_channel::Receiver<u64>| rx.recv().expect(OPEN),
    |rx: &crossbeam_channel::Receiver<u64>| Some(rx.clone());
    |rxs| {
        let mut select = crossbeam_channel::Select::new();
        rxs.iter().for_each(|rx| _ = select.recv(rx));
        let case = select.select();
        let rx = &rxs[case.index()];
        case.recv(rx).expect(OPEN)
    },
    |txs, value| {
        let mut select = crossbeam_channel::Select::new();
        txs.iter().for_each(|tx| _ = select.send(tx));
        let case = select.select();
        let tx = &txs[case.index()];
        case.send(tx, value).expect(OPEN)
    }
);

channel!(
    Flume,
    flume::Sender<u64>,
    flume::Receiver<u64>,
    flume::bounded,
    |tx: &flume::Sender<u64>, v| tx.send(v).expect(OPEN),
    |rx: &flume::Receiver<u64>| rx.recv().expect(OPEN),
    |rx: &flume::Receiver<u64>| Some(rx.clone());
    |rxs| rxs.iter().fold(flume::Selector::new(), |s, rx| s.recv(rx, |v| v.expect(OPEN))).wait(),
    |txs, value| txs.iter().fold(flume::Selector::new(), |s, tx| s.send(tx, value, |sent| sent.expect(OPEN))).wait()
);

channel!(
    Kanal,
    kanal::Sender<u64>,
    kanal::Receiver<u64>,
    kanal::bounded,
    |tx: &kanal::Sender<u64>, v| tx.send(v).expect(OPEN),
    |rx: &kanal::Receiver<u64>| rx.recv().expect(OPEN),
    |rx: &kanal::Receiver<u64>| Some(rx.clone())
);

channel!(
    Std,
    mpsc::SyncSender<u64>,
    mpsc::Receiver<u64>,
    mpsc::sync_channel,
    |tx: &mpsc::SyncSender<u64>, v| tx.send(v).expect(OPEN),
    |rx: &mpsc::Receiver<u64>| rx.recv().expect(OPEN),
    |_: &mpsc::Receiver<u64>| None
);

/// Makes a run. Returns `None` if the peer cannot do the benchmark.
pub fn run(peer: Peer, case: Case, on: Contenders) -> Result<Option<Run>, Failure> {
    match peer {
        Peer::Chan => measure::<Ours>(case, on),
        Peer::Ends => measure::<Ends>(case, on),
        Peer::Csp if case.capacity > 0 => Ok(None),
        Peer::Csp => measure::<Csp>(case, on),
        Peer::Crossbeam => measure::<Crossbeam>(case, on),
        // Left out: a run of this benchmark with flume 0.12 did not end. The cause is not known: flume's `Selector`, or
        // this harness.
        Peer::Flume if case.pattern == Pattern::SelectBoth => Ok(None),
        Peer::Flume => measure::<Flume>(case, on),
        Peer::Kanal => measure::<Kanal>(case, on),
        Peer::Std => measure::<Std>(case, on),
        Peer::Tokio | Peer::AsyncChannel => Ok(None),
    }
}

/// The ends that a contender sends to, or receives from.
enum Side<C: Channel> {
    Send(Vec<C::Tx>),
    Recv(Vec<C::Rx>),
}

fn measure<C: Channel>(case: Case, on: Contenders) -> Result<Option<Run>, Failure> {
    let selects = matches!(case.pattern, Pattern::SelectRx | Pattern::SelectBoth);
    if selects && !C::SELECTS {
        return Ok(None);
    }
    let (txs, rxs): (Vec<_>, Vec<_>) =
        (0..if selects { case.senders } else { 1 }).map(|_| C::bounded(case.capacity)).unzip();
    if case.pattern == Pattern::Seq {
        return Ok(Some(on.alone(move || {
            let start = Instant::now();
            (0..case.messages as u64).for_each(|v| C::send(&txs[0], v));
            (0..case.messages).for_each(|_| {
                black_box(C::recv(&rxs[0]));
            });
            (start.elapsed(), vec![case.messages as u64])
        })));
    }
    let mut sides: Vec<Mutex<Option<Side<C>>>> = Vec::new();
    for i in 0..case.senders {
        let own = match case.pattern {
            Pattern::SelectRx => vec![txs[i].clone()],
            _ => txs.clone(),
        };
        sides.push(Mutex::new(Some(Side::Send(own))));
    }
    for _ in 1..case.receivers {
        let Some(own) = rxs.iter().map(C::another).collect() else { return Ok(None) };
        sides.push(Mutex::new(Some(Side::Recv(own))));
    }
    sides.push(Mutex::new(Some(Side::Recv(rxs))));
    // The last sender to finish sends an end mark to each receiver. Selects use several channels, and an end mark is
    // not ordered after the values of the other channels: receivers that select take equal shares instead.
    let sending = AtomicUsize::new(case.senders);
    let share = case.total() / case.receivers;
    let body = move |number: usize, gate: &Gate| {
        let side = sides[number].lock().expect("not poisoned").take().expect("each is taken once");
        if !gate.wait() {
            return (None, side);
        }
        let mut n = 0;
        match &side {
            Side::Send(txs) => {
                for _ in 0..case.messages {
                    match case.pattern {
                        Pattern::SelectBoth => C::select_send(txs, 1).expect("it has select"),
                        _ => C::send(&txs[0], 1),
                    }
                }
                if sending.fetch_sub(1, Relaxed) == 1 && !selects {
                    (0..case.receivers).for_each(|_| C::send(&txs[0], 0));
                }
                return (None, side);
            }
            Side::Recv(rxs) if selects => {
                (0..share).for_each(|_| {
                    black_box(C::select_recv(rxs));
                });
                n = share as u64;
            }
            Side::Recv(rxs) => {
                while C::recv(&rxs[0]) != 0 {
                    n += 1;
                }
            }
        }
        (Some(n), side)
    };
    let contenders = case.senders + case.receivers;
    let (start, sides) = on
        .fan_out(contenders, body, |gate| {
            gate.open(true);
            Instant::now()
        })
        .map_err(|error| Failure::Run(format!("cannot start {contenders} threads: {error}")))?;
    Ok(Some((start.elapsed(), sides.into_iter().filter_map(|(n, _)| n).collect())))
}
