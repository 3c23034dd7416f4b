//! Communication deadlocks: a send without a receiver, a receive without a sender, a context that is not cancelled.

use sudog::chan::{Chan, select};
use sudog::context;

use crate::kernel::{chan, go, until};

/// Two loops send each other an event, and neither receives.
pub fn cockroach_2448() {
    let (events, callbacks) = (chan(0), chan(0));
    go("raft", move || events.send(1)); //~ raft: chan send
    go("store", move || callbacks.send(1)); //~ store: chan send
    until(|| events.waiting_senders() + callbacks.waiting_senders() == 2);
}

/// Commands wait for the commands before them, which are never told that the caller has given up.
pub fn cockroach_10790() {
    let (before, (ctx, cancel)) = (chan::<()>(0), context::with_cancel(&context::background()));
    go("command", move || _ = before.recv()); //~ command: chan receive
    cancel.cancel();
    select! {
        recv(before) => before.close(),
        recv(ctx.done_chan()) => {} // and no close
    }
}

/// A transaction that is never ended keeps the goroutine that waits for its context.
pub fn cockroach_13197() {
    fn begin() -> context::CancelFunc {
        let (ctx, cancel) = context::with_cancel(&context::background());
        go("await done", move || _ = ctx.wait()); //~ await done: context.Context.Done
        cancel
    }
    let _never_called = begin();
}

/// Rows that are never closed keep the goroutine that waits for their context, or for the transaction's.
pub fn cockroach_13755() {
    let ((rows, _close), (tx, _end)) =
        (context::with_cancel(&context::background()), context::with_cancel(&context::background()));
    go("await done", move || {
        select! { //~ await done: select
            recv(rows.done_chan()) => {}
            recv(tx.done_chan()) => {}
        }
    });
}

/// The importer has left with an error, and the splitter goes on to send.
pub fn cockroach_18101() {
    let ready = chan(1);
    go("split", move || (0..4).for_each(|range| ready.send(range))); //~ split: chan send
    until(|| ready.is_full());
    ready.recv();
}

/// The first compaction is asked for twice before the compactor receives: the channel has room for one.
pub fn cockroach_24808() {
    let asked = chan(1);
    asked.send(());
    asked.send(()); //~ test: chan send
    go("compactor", move || asked.iter().for_each(drop));
}

/// A consistency check waits for the end of a server that this test never starts.
pub fn cockroach_25456() {
    let (result, quiesce) = (chan::<()>(0), chan::<()>(0));
    select! { //~ test: select
        recv(result) => {}
        recv(quiesce) => {}
    }
}

/// A flow that fails before its start does not drain what its producer sends.
pub fn cockroach_35073() {
    let rows = chan(1);
    go("producer", move || {
        rows.send("row");
        rows.send("error"); //~ producer: chan send
    });
}

/// A flow runs its receiver in its own goroutine, after the producer that fills the channel.
pub fn cockroach_35931() {
    let rows = chan(2);
    (0..4).for_each(|row| rows.send(row)); //~ test: chan send
    rows.iter().for_each(drop);
}

/// A status is asked of a node that has stopped.
pub fn etcd_6857() {
    let (status, stop) = (chan::<&Chan<()>>(0), chan::<()>(0));
    go("node", move || {
        select! {
            recv(status) -> answer => answer.unwrap().send(()),
            recv(stop) => {}
        }
    });
    stop.send(());
    let answer = chan(0);
    status.send(answer); //~ test: chan send
    answer.recv();
}

/// A benchmark's client ends, and the goroutines that measure go on to send.
pub fn grpc_660() {
    let results = chan(0);
    for _client in 0..2 {
        go("client", move || results.send(1)); //~ client: chan send
    }
    until(|| results.waiting_senders() == 2);
}

/// A dial that is given up leaves a goroutine behind, which waits for a context that the dial's cancel does not reach.
pub fn grpc_862() {
    let (ctx, _cancel) = context::with_cancel(&context::background());
    let (dial, cancel_dial) = context::with_cancel(&context::background());
    go("reset transport", move || _ = ctx.wait()); //~ reset transport: context.Context.Done
    cancel_dial.cancel();
    dial.wait();
}

/// The transport closes a stream, and does not wake the reader of the stream.
pub fn grpc_1275() {
    let received = chan::<u8>(0);
    let close_stream = || {}; // and no close of the channel
    go("read", move || _ = received.recv()); //~ read: chan receive
    close_stream();
}

/// The watcher of addresses ends before it has told the dial.
pub fn grpc_1424() {
    let (addresses, done) = (chan::<u32>(0), chan::<()>(0));
    go("watcher", move || {
        for _addresses in addresses {
            done.close();
        }
    });
    addresses.close();
    done.recv(); //~ test: chan receive
}

/// An agent's epochs report their end to a loop that has ended.
pub fn istio_17860() {
    let (status, (ctx, cancel)) = (chan(0), context::with_cancel(&context::background()));
    go("epoch", move || status.send("exited")); //~ epoch: chan send
    cancel.cancel();
    ctx.wait();
}

/// A strategy's loop tells its worker of a change while the worker ends.
pub fn istio_18454() {
    let (updates, stop) = (chan::<u32>(0), chan::<()>(0));
    go("worker", move || {
        select! {
            recv(updates) => {}
            recv(stop) => {}
        }
    });
    stop.close();
    until(|| updates.waiting_receivers() == 0);
    go("loop", move || {
        select! { //~ loop: select
            send(updates, 1) => {}
            recv(chan::<()>(0)) => {} // the timer that has been stopped
        }
    });
}

/// A request that has timed out still sends its result.
pub fn kubernetes_5316() {
    let results = chan(0);
    go("request", move || results.send("late")); //~ request: chan send
    until(|| results.waiting_senders() == 1);
    // The caller has timed out.
}

/// A watch that is stopped sends its error without a receiver.
pub fn kubernetes_25331() {
    let (errors, (ctx, cancel)) = (chan(0), context::with_cancel(&context::background()));
    go("watch", move || errors.send("closed")); //~ watch: chan send
    cancel.cancel();
    select! {
        recv(ctx.done_chan()) => {}
    }
}

/// Events go to a watcher's result, whose reader has gone.
pub fn kubernetes_38669() {
    let (input, result) = (chan(10), chan(0));
    go("process", move || input.iter().for_each(|event| result.send(event))); //~ process: chan send
    (0..3).for_each(|event| input.send(event));
    input.close();
}

/// A poller sends a tick to a wait that has returned.
pub fn kubernetes_70277() {
    let ticks = chan(0);
    go("poller", move || {
        loop {
            ticks.send(()); //~ poller: chan send
        }
    });
    ticks.recv();
}

/// A call in the background sends its error to a caller that does not receive.
pub fn moby_4395() {
    fn in_the_background(f: impl FnOnce() -> u32 + Send + 'static) -> &'static Chan<u32> {
        let errors = chan(0);
        go("call", move || errors.send(f())); //~ call: chan send
        errors
    }
    in_the_background(|| 1);
}

/// Progress is sent to a watcher that has gone after the first line.
pub fn moby_21233() {
    let progress = chan(0);
    go("transfer", move || (0..9).for_each(|line| progress.send(line))); //~ transfer: chan send
    progress.recv();
}

/// A command that cannot be attached sends two errors, and one is read.
pub fn moby_33293() {
    let errors = chan(0);
    go("attach", move || {
        errors.send("stdin");
        errors.send("stdout"); //~ attach: chan send
    });
    errors.recv();
}

/// A probe that takes too long sends its result after the monitor has given up.
pub fn moby_33781() {
    let (results, stop) = (chan(0), chan::<()>(0));
    go("probe", move || results.send("healthy")); //~ probe: chan send
    stop.close();
    select! {
        recv(stop) => {}
    }
}

/// A connection that is closed by its own loop waits for the end of that loop.
pub fn syncthing_5795() {
    let stopped = chan::<()>(0);
    let close = || _ = stopped.recv(); //~ dispatcher: chan receive
    go("dispatcher", move || {
        close();
        stopped.close();
    });
}
