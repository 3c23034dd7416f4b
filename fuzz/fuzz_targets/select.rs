//! Random programs of sends, receives, selects and closes over a few channels, by threads or by goroutines.
//!
//! Each wait refers to a `Cancel`, which the caller cancels when no party proceeds any more, so no program can wait for
//! ever: `-timeout` reports a program that does. In the end each value that was sent has been received once, or is still in the channel, each value
//! has been dropped once, and a receiver has got the values of a sender in the order of the sends.
#![no_main]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sudog::chan::{Receiver, Select, Sender, channel};
use sudog::{Cancel, WaitLimit};

const CHANNELS: usize = 3;
const PARTIES: usize = 4;
const OPS: usize = 12;

#[derive(Arbitrary, Debug)]
struct Program {
    /// Threads in one program of eight, because starting them takes most of the time of a program.
    threads: u8,
    capacities: [u8; CHANNELS],
    parties: [Vec<Op>; PARTIES],
}

#[derive(Arbitrary, Debug)]
enum Op {
    Send(u8),
    Recv(u8),
    TrySend(u8),
    TryRecv(u8),
    Close(u8),
    Select(Vec<Case>, bool),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Case {
    Send(u8),
    Recv(u8),
}

/// A value: the party that sends it, and a number that grows with each attempt of that party.
struct Value {
    from: usize,
    number: usize,
    _count: Arc<()>,
}

type Id = (usize, usize);

/// The channels and the ids of the values that a party has sent, and of those that it has received.
#[derive(Default)]
struct Log {
    sent: Vec<(usize, Id)>,
    received: Vec<(usize, Id)>,
}

struct World {
    senders: Vec<Sender<Value>>,
    receivers: Vec<Receiver<Value>>,
    stop: Cancel,
    /// The number of parties that are done, or in an operation that may wait.
    idle: AtomicUsize,
    /// The number of operations that have ended.
    ended: AtomicUsize,
    count: Arc<()>,
}

/// The result of a select: the channel and the value that was sent or received. `None` if the channel is closed.
enum Chosen {
    Sent(Option<(usize, Id)>),
    Received(Option<(usize, Value)>),
}

fn party(world: &World, from: usize, ops: &[Op]) -> Log {
    let mut log = Log::default();
    let mut number = 0;
    let limit = WaitLimit { cancel: Some(&world.stop), ..WaitLimit::default() };
    for op in ops.iter().take(OPS) {
        let mut value = || {
            number += 1;
            Value { from, number, _count: world.count.clone() }
        };
        let channel = |ch: u8| usize::from(ch) % CHANNELS;
        let may_wait = matches!(op, Op::Send(_) | Op::Recv(_) | Op::Select(_, true));
        world.idle.fetch_add(usize::from(may_wait), SeqCst);
        match op {
            Op::Send(ch) | Op::TrySend(ch) => {
                let (ch, value) = (channel(*ch), value());
                let id = (value.from, value.number);
                let sent = match op {
                    Op::Send(_) => world.senders[ch].send_limited(value, &limit).is_ok(),
                    _ => world.senders[ch].try_send(value).is_ok(),
                };
                if sent {
                    log.sent.push((ch, id));
                }
            }
            Op::Recv(ch) | Op::TryRecv(ch) => {
                let ch = channel(*ch);
                let received = match op {
                    Op::Recv(_) => world.receivers[ch].recv_limited(&limit).ok(),
                    _ => world.receivers[ch].try_recv().ok(),
                };
                log.received.extend(received.map(|value| (ch, (value.from, value.number))));
            }
            Op::Close(ch) => {
                world.senders[channel(*ch)].close();
            }
            Op::Select(cases, waits) => {
                let mut select = Select::new();
                for case in cases.iter().take(10) {
                    match *case {
                        Case::Send(ch) => {
                            let (ch, value) = (channel(ch), value());
                            let id = (value.from, value.number);
                            select.send(&world.senders[ch], value, move |sent| {
                                Chosen::Sent(sent.is_ok().then_some((ch, id)))
                            });
                        }
                        Case::Recv(ch) => {
                            let ch = channel(ch);
                            select.recv(&world.receivers[ch], move |got| {
                                Chosen::Received(got.ok().map(|value| (ch, value)))
                            });
                        }
                    }
                }
                let chosen = if *waits { select.wait_limited(&limit).ok() } else { select.try_now() };
                match chosen {
                    Some(Chosen::Sent(sent)) => log.sent.extend(sent),
                    Some(Chosen::Received(got)) => {
                        log.received.extend(got.map(|(ch, value)| (ch, (value.from, value.number))));
                    }
                    None => {}
                }
            }
        }
        world.ended.fetch_add(1, SeqCst);
        world.idle.fetch_sub(usize::from(may_wait), SeqCst);
    }
    world.idle.fetch_add(1, SeqCst);
    log
}

/// Ends all waits when all parties have been idle for a while, without the end of an operation.
fn stop_soon(world: &World) {
    let observe = || (world.idle.load(SeqCst) == PARTIES, world.ended.load(SeqCst));
    let (mut before, mut since) = (observe(), Instant::now());
    while !before.0 || since.elapsed() < Duration::from_micros(50) {
        thread::yield_now();
        let now = observe();
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
    world.stop.cancel();
}

fn check(world: &World, logs: &[Log]) {
    let sent: HashSet<(usize, Id)> = logs.iter().flat_map(|log| log.sent.iter().copied()).collect();
    let mut received = HashSet::new();
    let mut get = |what: (usize, Id)| {
        assert!(received.insert(what), "{what:?} was received twice");
        assert!(sent.contains(&what), "{what:?} was received, and not sent");
    };
    // The values that are left follow those that each receiver has got: check them as if each receiver got them, too.
    let mut left = Vec::new();
    for (ch, receiver) in world.receivers.iter().enumerate() {
        while let Ok(value) = receiver.try_recv() {
            left.push((ch, (value.from, value.number)));
        }
    }
    logs.iter().flat_map(|log| &log.received).chain(&left).for_each(|&what| get(what));
    assert_eq!(received.len(), sent.len(), "a value was sent, and is lost");
    for log in logs {
        let mut last = HashMap::new();
        for &(ch, (from, number)) in log.received.iter().chain(&left) {
            let before = last.insert((ch, from), number).unwrap_or(0);
            assert!(before < number, "channel {ch}: value {number} of party {from} came after {before}");
        }
    }
}

fuzz_target!(|program: Program| {
    let count = Arc::new(());
    let (senders, receivers) = program.capacities.iter().map(|&n| channel(usize::from(n % 4))).unzip();
    let world = World {
        senders,
        receivers,
        stop: Cancel::new(),
        idle: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        count: count.clone(),
    };
    let parties = program.parties.iter().enumerate();
    let logs: Vec<Log> = if program.threads % 8 != 0 {
        sudog::scope(|scope| {
            let world = &world;
            let handles: Vec<_> = parties.map(|(from, ops)| scope.spawn(move || party(world, from, ops))).collect();
            stop_soon(world);
            handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
        })
    } else {
        thread::scope(|scope| {
            let world = &world;
            let handles: Vec<_> = parties.map(|(from, ops)| scope.spawn(move || party(world, from, ops))).collect();
            stop_soon(world);
            handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
        })
    };
    check(&world, &logs);
    drop(world);
    assert_eq!(Arc::strong_count(&count), 1, "each value has been dropped");
});
