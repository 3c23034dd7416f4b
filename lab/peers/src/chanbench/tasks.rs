//! The benchmarks on tasks, all of them on tokio's runtime. There is no select.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use sudog_csp::{End, make_channel};
use sudog_runtime::chan::{self, Chan};
use tokio::sync::mpsc;

use super::{Case, Pattern, Peer, Run};
use crate::output::failure::Failure;

trait Channel: 'static {
    type Tx: Send + 'static;
    type Rx: Send + 'static;

    fn bounded(capacity: usize) -> (Self::Tx, Self::Rx);
    fn send(tx: &mut Self::Tx, value: u64) -> impl Future<Output = ()> + Send;
    fn recv(rx: &mut Self::Rx) -> impl Future<Output = u64> + Send;
    fn another_sender(tx: &Self::Tx) -> Self::Tx;
    /// Returns another receiver, or `None` if the channel allows a single receiver only.
    fn another(rx: &Self::Rx) -> Option<Self::Rx>;
}

const OPEN: &str = "the channel is open while it is measured";

/// Makes another sender: by a function, or else as a clone.
macro_rules! clone_by {
    ($tx:ident) => {
        $tx.clone()
    };
    ($tx:ident, $by:expr) => {
        ($by)($tx)
    };
}

macro_rules! channel {
    ($Name:ident, $Tx:ty, $Rx:ty, $bounded:expr, ($tx:ident, $v:ident) $send:expr, ($rx:ident) $recv:expr,
     $another:expr $(, $another_sender:expr)?) => {
        struct $Name;

        impl Channel for $Name {
            type Tx = $Tx;
            type Rx = $Rx;

            fn bounded(capacity: usize) -> (Self::Tx, Self::Rx) {
                ($bounded)(capacity)
            }

            async fn send($tx: &mut Self::Tx, $v: u64) {
                $send;
            }

            async fn recv($rx: &mut Self::Rx) -> u64 {
                $recv.expect(OPEN)
            }

            fn another_sender(tx: &Self::Tx) -> Self::Tx {
                clone_by!(tx $(, $another_sender)?)
            }

            fn another(rx: &Self::Rx) -> Option<Self::Rx> {
                ($another)(rx)
            }
        }
    };
}

channel!(
    Ours, Chan<u64>, Chan<u64>, |n| { let ch = Chan::new(n); (ch.clone(), ch) },
    (tx, v) tx.send_async(v).await, (rx) rx.recv_async().await, |rx: &Chan<u64>| Some(rx.clone())
);
channel!(
    Ends, chan::Sender<u64>, chan::Receiver<u64>, chan::channel,
    (tx, v) tx.send_async(v).await.expect(OPEN), (rx) rx.recv_async().await,
    |rx: &chan::Receiver<u64>| Some(rx.clone())
);
channel!(
    Csp, End<u64>, End<u64>, |_| make_channel::<u64, 2>().into(),
    (tx, v) tx.write_async(v).await.expect(OPEN), (rx) rx.read_async().await, |rx: &End<u64>| Some(rx.dup()), End::dup
);
channel!(
    Tokio, mpsc::Sender<u64>, mpsc::Receiver<u64>, mpsc::channel,
    (tx, v) tx.send(v).await.expect(OPEN), (rx) rx.recv().await, |_: &mpsc::Receiver<u64>| None
);
channel!(
    AsyncChannel, async_channel::Sender<u64>, async_channel::Receiver<u64>, async_channel::bounded,
    (tx, v) tx.send(v).await.expect(OPEN), (rx) rx.recv().await,
    |rx: &async_channel::Receiver<u64>| Some(rx.clone())
);

/// Makes a run. Returns `None` if the peer cannot do the benchmark.
pub fn run(peer: Peer, case: Case, workers: usize) -> Result<Option<Run>, Failure> {
    if matches!(case.pattern, Pattern::SelectRx | Pattern::SelectBoth) {
        return Ok(None);
    }
    match peer {
        Peer::Chan => measure::<Ours>(case, workers),
        Peer::Ends => measure::<Ends>(case, workers),
        Peer::Csp if case.capacity == 0 => measure::<Csp>(case, workers),
        Peer::Tokio if case.capacity > 0 => measure::<Tokio>(case, workers),
        Peer::AsyncChannel if case.capacity > 0 => measure::<AsyncChannel>(case, workers),
        _ => Ok(None),
    }
}

fn measure<C: Channel>(case: Case, workers: usize) -> Result<Option<Run>, Failure> {
    // In `seq` the receiver starts after the sender has ended, so the channel needs room for all messages and for the
    // end mark. The sender sends one end mark, because `seq` has one receiver.
    let extra = if case.pattern == Pattern::Seq { 1 } else { 0 };
    let (tx, rx) = C::bounded(case.capacity + extra);
    let others: Option<Vec<_>> = (1..case.receivers).map(|_| C::another(&rx)).collect();
    let Some(mut rxs) = others else { return Ok(None) };
    rxs.push(rx);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .build()
        .map_err(|error| Failure::Run(format!("cannot start tokio: {error}")))?;
    Ok(Some(runtime.block_on(async move {
        let sending = Arc::new(AtomicUsize::new(case.senders));
        let start = Instant::now();
        let mut senders = Vec::new();
        for _ in 0..case.senders {
            let (mut tx, sending) = (C::another_sender(&tx), Arc::clone(&sending));
            senders.push(tokio::spawn(async move {
                for _ in 0..case.messages {
                    C::send(&mut tx, 1).await;
                }
                if sending.fetch_sub(1, Relaxed) == 1 {
                    for _ in 0..case.receivers {
                        C::send(&mut tx, 0).await;
                    }
                }
            }));
        }
        if case.pattern == Pattern::Seq {
            for sender in senders.drain(..) {
                sender.await.expect("a sender does not panic");
            }
        }
        let mut receivers = Vec::new();
        for mut rx in rxs {
            receivers.push(tokio::spawn(async move {
                let mut n = 0;
                while C::recv(&mut rx).await != 0 {
                    n += 1;
                }
                (n, rx)
            }));
        }
        let mut counts = Vec::new();
        let mut open = Vec::new();
        for receiver in receivers {
            let (n, rx) = receiver.await.expect("a receiver does not panic");
            counts.push(n);
            open.push(rx);
        }
        let time = start.elapsed();
        for sender in senders {
            sender.await.expect("a sender does not panic");
        }
        (time, counts)
    })))
}
