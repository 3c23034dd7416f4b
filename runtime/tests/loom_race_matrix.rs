//! The accesses that a channel orders: the tests of Go's race detector, by name.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --test loom_race_matrix`
//!
//! Source: `runtime/race/testdata/chan_test.go` and `select_test.go` (Go 1.27.3), in their order. `TestNoRaceChanSync` is
//! `no_race_chan_sync` here, and so on. Variables are loom's cells: a model fails if two accesses are not ordered. So a
//! `race_..` model must fail, by a race, and a `no_race_..` model must not, in any interleaving.
//!
//! | differs from Go's tests | because |
//! |---|---|
//! | a caller joins threads, where Go's waits for a channel `compl` or `done` | the same order, at the end, in fewer steps |
//! | nothing sleeps | loom visits the interleavings that a sleep makes likely |
//! | where Go recovers from a panic, the ends are counted (`channel`): a close or a send fails | the same core; a hook sees each panic, also a panic that is caught |
//! | ten goroutines are two; ten rounds, or slots, are one | the number of interleavings that loom visits |
//! | the cases of a select are polled in one order | chance is no step of a model |
//!
//! **A race in Go, but ordered here.** Go's detector knows the edges of the memory model, and not the channel's lock.
//! Loom sees the lock. A call that fails, or looks, because of another call comes after that other call here. Programs
//! must not rely on this order. These models are named `ordered_here_..`, and must not race; each reaches the
//! interleaving of which Go complains: `TestRaceChanSyncCloseSend`, `TestRaceChanAsyncCloseSend`,
//! `TestRaceChanCloseClose`, `TestRaceChanSendLen`, `TestRaceChanRecvLen`, `TestRaceChanSendSend`.
//!
//! **Not ported.**
//!
//! | test | because |
//! |---|---|
//! | `TestRaceChanSendClose`, `TestRaceChanSendSelectClose`, `TestRaceChanCloseSend` | Go reports the send and the close of one channel themselves. Here neither accesses memory of the program: either the send or the close is first |
//! | `TestFlakyDefault` | commented out in Go |
#![cfg(sudog_loom)]

mod chan_world;
mod must_fail;

use std::sync::atomic::Ordering::Relaxed;

use chan_world::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use must_fail::must_fail;
use sudog_runtime::chan::{Chan, channel, select};
use sudog_runtime::model::thread::{self, JoinHandle};
use sudog_runtime::reached::{AT_ONCE, SLEEPS, mark, waiting};

/// The start of loom's message about two accesses without order.
const RACE: &str = "Causality violation: Concurrent";
/// The interleaving of which Go's detector complains.
const OF_GO: &str = "the accesses follow each other by what Go takes for chance";

/// A variable that threads share.
struct Var<T = u32>(Arc<Shared<T>>);

struct Shared<T>(UnsafeCell<T>);

// SAFETY: loom's cell checks that accesses do not overlap, and ends the model if they do; that is the test.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: loom's cell checks that accesses do not overlap, and ends the model if they do; that is the test.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Clone for Var<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Var<T> {
    fn of(value: T) -> Self {
        Self(Arc::new(Shared(UnsafeCell::new(value))))
    }

    fn set(&self, value: T) {
        // SAFETY: loom's cell checks that accesses do not overlap, and ends the model if they do; that is the test.
        self.0.0.with_mut(|at| unsafe { *at = value });
    }

    fn get(&self) -> T
    where
        T: Clone,
    {
        // SAFETY: loom's cell checks that accesses do not overlap, and ends the model if they do; that is the test.
        self.0.0.with(|at| unsafe { (*at).clone() })
    }
}

impl Var {
    fn new() -> Self {
        Self::of(0)
    }
}

/// Go's `go func() { .. }()`, with clones of these variables.
macro_rules! go {
    ($($var:ident),*; $body:expr) => {{
        $(let $var = $var.clone();)*
        thread::spawn(move || $body)
    }};
}

fn join<const N: usize>(threads: [JoinHandle<()>; N]) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn send<T>(ch: &Chan<T>, value: T) {
    waiting(|| ch.send(value));
}

fn recv<T>(ch: &Chan<T>) -> Option<T> {
    waiting(|| ch.recv()).0
}

/// Tests of models without a race, which must reach these states.
macro_rules! no_race {
    ($($(#[$doc:meta])* $name:ident: $states:expr, $model:expr;)*) => { $(
        $(#[$doc])*
        #[test]
        fn $name() {
            explore(3, $states, |_| $model);
        }
    )* };
}

/// Tests of models with a race.
macro_rules! race {
    ($($(#[$doc:meta])* $name:ident: $model:expr;)*) => {
        must_fail! { $($(#[$doc])* $name: RACE, explore(3, &[], |_| $model);)* }
    };
}

// ---- chan_test.go --------------------------------------------------------------------------------------------------

/// A thread writes, and closes the channel; the caller's receive, in one of three forms, returns because of the close.
fn close_recv(capacity: usize, receive: fn(&Chan<u32>)) {
    explore(3, &[SLEEPS, AT_ONCE], move |_| {
        let (v, c, both) = (Var::new(), Chan::new(capacity), Arc::new(AtomicU32::new(0)));
        let closer = go!(v, c, both; {
            meet(&both);
            v.set(1);
            c.close();
        });
        meet(&both);
        waiting(|| receive(&c));
        v.set(2);
        join([closer]);
    });
}

/// Adds to `both`, which orders nothing. Each of two threads calls `meet` first.
///
/// Loom does not take a load and a later store for dependent. Without `meet`, if a load is the first thing that a
/// thread does, loom leaves the other thread's store out.
fn meet(both: &AtomicU32) {
    both.fetch_add(1, Relaxed);
}

/// A thread reads a variable in order to send the value; the caller receives into that variable, from another channel
/// or the same channel.
fn read_write(same: bool, in_selects: bool, capacity: usize) {
    let (x, c1, c2, c3) = (Var::new(), Chan::new(capacity), Chan::new(capacity), Chan::<u32>::new(0));
    let c2 = if same { c1.clone() } else { c2 };
    let helpers = match (same, capacity) {
        (true, _) => vec![],
        (false, 0) => vec![go!(c1; _ = c1.recv()), go!(c2; c2.send(1))],
        (false, _) => {
            c2.send(1);
            vec![]
        }
    };
    let reader = go!(x, c1, c3; if in_selects {
        waiting(|| select! {
            send(c1, x.get()) => {}
            send(c3, 1) => {}
        });
    } else {
        send(&c1, x.get());
    });
    if in_selects {
        waiting(|| {
            select! {
                recv(c2) -> value => x.set(value.unwrap()),
                send(c3, 1) => {}
            }
        });
    } else {
        x.set(recv(&c2).unwrap());
    }
    join([reader]);
    helpers.into_iter().for_each(|helper| helper.join().unwrap());
}

/// Two threads access a variable under a channel of this capacity, which serves as their lock.
fn chan_as_lock(capacity: usize) {
    let (data, lock) = (Var::new(), Chan::new(capacity));
    let other = go!(data, lock; {
        send(&lock, ());
        data.set(42);
        recv(&lock);
    });
    send(&lock, ());
    data.set(43);
    recv(&lock);
    join([other]);
}

/// A thread reads the variable that holds the channel, and the caller assigns to that variable.
fn itself(capacity: usize, next: Chan<u32>, call: fn(Chan<u32>)) {
    let first = Chan::new(capacity);
    if capacity > 0 {
        first.send(1);
    }
    let c = Var::of(first);
    let thread = go!(c; call(c.get()));
    c.set(next);
    join([thread]);
}

no_race! {
    no_race_chan_sync: &[SLEEPS, AT_ONCE], {
        let (v, c) = (Var::new(), Chan::new(0));
        let sender = go!(v, c; {
            v.set(1);
            send(&c, 0);
        });
        recv(&c);
        v.set(2);
        join([sender]);
    };

    /// A receive happens before the send returns.
    no_race_chan_sync_rev: &[SLEEPS, AT_ONCE], {
        let (v, c) = (Var::new(), Chan::new(0));
        let sender = go!(v, c; {
            send(&c, 0);
            v.set(2);
        });
        v.set(1);
        recv(&c);
        join([sender]);
    };

    no_race_chan_async: &[SLEEPS, AT_ONCE], {
        let (v, c) = (Var::new(), Chan::new(10));
        let sender = go!(v, c; {
            v.set(1);
            send(&c, 0);
        });
        recv(&c);
        v.set(2);
        join([sender]);
    };
}

race! {
    race_chan_async_rev: {
        let (v, c) = (Var::new(), Chan::new(10));
        let sender = go!(v, c; {
            send(&c, 0);
            v.set(1);
        });
        v.set(2);
        recv(&c);
        join([sender]);
    };
}

#[test]
fn no_race_chan_async_close_recv() {
    close_recv(10, |c| _ = c.recv());
}

#[test]
fn no_race_chan_async_close_recv2() {
    close_recv(10, |c| assert_eq!(c.recv(), None));
}

#[test]
fn no_race_chan_async_close_recv3() {
    close_recv(10, |c| assert_eq!(c.iter().count(), 0));
}

#[test]
fn no_race_chan_sync_close_recv() {
    close_recv(0, |c| _ = c.recv());
}

#[test]
fn no_race_chan_sync_close_recv2() {
    close_recv(0, |c| assert_eq!(c.recv(), None));
}

#[test]
fn no_race_chan_sync_close_recv3() {
    close_recv(0, |c| assert_eq!(c.iter().count(), 0));
}

no_race! {
    ordered_here_race_chan_sync_close_send: &[SLEEPS, OF_GO], {
        let (v, (tx, rx)) = (Var::new(), channel(0));
        let closer = go!(v; {
            v.set(1);
            rx.close();
        });
        assert!(waiting(|| tx.send(0)).0.is_err());
        mark(OF_GO);
        v.set(2);
        join([closer]);
    };

    /// The sends fill the buffer, and then wait or fail.
    ordered_here_race_chan_async_close_send: &[SLEEPS, OF_GO], {
        let (v, (tx, rx)) = (Var::new(), channel(1));
        let closer = go!(v; {
            v.set(1);
            rx.close();
        });
        while waiting(|| tx.send(0)).0.is_ok() {}
        mark(OF_GO);
        v.set(2);
        join([closer]);
    };

    /// The close that comes second fails.
    ordered_here_race_chan_close_close: &[OF_GO], {
        let (v1, v2, (tx, rx)) = (Var::new(), Var::new(), channel::<u32>(0));
        let other = go!(v1, v2; {
            v1.set(1);
            if !rx.close() {
                mark(OF_GO);
                v2.set(2);
            }
        });
        v2.set(1);
        if !tx.close() {
            v1.set(2);
        }
        join([other]);
    };

    ordered_here_race_chan_send_len: &[OF_GO], {
        let (v, c) = (Var::new(), Chan::new(10));
        let sender = go!(v, c; {
            v.set(1);
            c.send(1);
        });
        while c.is_empty() {
            thread::yield_now();
        }
        mark(OF_GO);
        v.set(2);
        join([sender]);
    };

    ordered_here_race_chan_recv_len: &[OF_GO], {
        let (v, c) = (Var::new(), Chan::new(10));
        c.send(1);
        let receiver = go!(v, c; {
            v.set(1);
            c.recv();
        });
        while !c.is_empty() {
            thread::yield_now();
        }
        mark(OF_GO);
        v.set(2);
        join([receiver]);
    };

    /// The send that comes second finds no room.
    ordered_here_race_chan_send_send: &[OF_GO], {
        let (v1, v2, c) = (Var::new(), Var::new(), Chan::new(1));
        let other = go!(v1, v2, c; {
            v1.set(1);
            select! {
                send(c, 1) => {}
                default => {
                    mark(OF_GO);
                    v2.set(2);
                }
            }
        });
        v2.set(1);
        select! {
            send(c, 1) => {}
            default => v1.set(2),
        }
        join([other]);
    };

    no_race_chan_ptr: &[SLEEPS, AT_ONCE], {
        let c = Chan::new(0);
        let sender = go!(c; {
            let message = Var::new();
            message.set(1);
            send(&c, message);
        });
        recv(&c).unwrap().set(2);
        join([sender]);
    };
}

race! {
    /// A receive of one value says nothing of the other sender.
    race_chan_wrong_send: {
        let (v1, v2, c) = (Var::new(), Var::new(), Chan::new(2));
        let senders = [go!(v1, c; {
            v1.set(1);
            c.send(1);
        }), go!(v2, c; {
            v2.set(2);
            c.send(2);
        })];
        if c.recv() == Some(1) { v2.set(3) } else { v1.set(3) }
        join(senders);
    };

    race_chan_wrong_close: {
        let (v1, v2, (tx, rx)) = (Var::new(), Var::new(), channel(1));
        let closing = tx.clone();
        let others = [go!(v1; {
            v1.set(1);
            _ = tx.send(1);
        }), go!(v2; {
            v2.set(2);
            closing.close();
        })];
        if rx.recv().is_ok() { v2.set(2) } else { v1.set(2) }
        join(others);
    };

    race_select_read_write_async: read_write(false, true, 1);
    race_select_read_write_sync: read_write(false, true, 0);
}

no_race! {
    no_race_select_read_write_async: &[SLEEPS, AT_ONCE], read_write(true, true, 0);
}

race! {
    race_chan_read_write_async: read_write(false, false, 1);
    race_chan_read_write_sync: read_write(false, false, 0);
}

/// A function for a worker to run, and the channel on which its caller waits for the end.
type Job = (Box<dyn FnOnce() + Send>, Chan<()>);

no_race! {
    no_race_chan_read_write_async: &[SLEEPS, AT_ONCE], read_write(true, false, 10);

    no_race_producer_consumer_unbuffered: &[SLEEPS, AT_ONCE], {
        let (x, queue, done) = (Var::new(), Chan::<Job>::new(0), Chan::new(1));
        let worker = go!(queue; {
            let (job, done) = recv(&queue).unwrap();
            job();
            send(&done, ());
        });
        let of_job = x.clone();
        send(&queue, (Box::new(move || of_job.set(1)) as Box<_>, done.clone()));
        recv(&done);
        assert_eq!(x.get(), 1);
        join([worker]);
    };
}

race! {
    race_chan_itself_send: itself(2, Chan::new(20), |c| c.send(0));
    race_chan_itself_recv: itself(1, Chan::new(20), |c| _ = c.recv());
    race_chan_itself_nil: itself(2, Chan::nil(), |c| c.send(0));
    race_chan_itself_close: itself(0, Chan::new(0), |c| c.close());
    race_chan_itself_len: itself(0, Chan::new(0), |c| _ = c.len());
    race_chan_itself_cap: itself(0, Chan::new(0), |c| _ = c.capacity());
}

no_race! {
    no_race_chan_close_len: &[], {
        let c = Chan::<u32>::new(10);
        let others = [go!(c; assert_eq!(c.len(), 0)), go!(c; c.close())];
        join(others);
    };

    no_race_chan_close_cap: &[], {
        let c = Chan::<u32>::new(10);
        let others = [go!(c; assert_eq!(c.capacity(), 10)), go!(c; c.close())];
        join(others);
    };

    no_race_chan_mutex: &[SLEEPS, AT_ONCE], chan_as_lock(1);

    no_race_select_mutex: &[SLEEPS, AT_ONCE], {
        let (data, lock, aux) = (Var::new(), Chan::new(1), Chan::<()>::new(0));
        let locked = |data: &Var, lock: &Chan<()>, aux: &Chan<()>, value| {
            waiting(|| select! {
                send(lock, ()) => {}
                recv(aux) => {}
            });
            data.set(value);
            waiting(|| select! {
                recv(lock) => {}
                recv(aux) => {}
            });
        };
        let other = go!(data, lock, aux; locked(&data, &lock, &aux, 42));
        locked(&data, &lock, &aux, 43);
        join([other]);
    };
}

race! {
    race_chan_sem: chan_as_lock(2);
}

no_race! {
    /// The receive that makes room happens before the send that takes the room.
    no_race_chan_wait_group: &[SLEEPS, AT_ONCE], {
        let (data, group) = ([Var::new(), Var::new()], Chan::new(1));
        for slot in &data {
            send(&group, ());
            go!(slot, group; {
                slot.set(42);
                group.recv();
            });
        }
        send(&group, ());
        data.iter().for_each(|slot| assert_eq!(slot.get(), 42));
    };

    no_race_blocked_send_sync: &[SLEEPS, AT_ONCE], {
        let c = Chan::new(1);
        c.send(Var::new());
        let sender = go!(c; {
            let i = Var::new();
            i.set(42);
            send(&c, i);
        });
        recv(&c);
        assert_eq!(recv(&c).unwrap().get(), 42);
        join([sender]);
    };

    no_race_blocked_select_send_sync: &[SLEEPS, AT_ONCE], {
        let (c, never) = (Chan::new(1), Chan::<()>::new(0));
        c.send(Var::new());
        let sender = go!(c; {
            let i = Var::new();
            i.set(42);
            send(&c, i);
        });
        recv(&c);
        waiting(|| select! {
            recv(c) -> p => assert_eq!(p.unwrap().get(), 42),
            recv(never) => unreachable!(),
        });
        join([sender]);
    };

    /// The close also happens before a receive that finds the channel closed without taking the channel's lock.
    no_race_close_happens_before_read: &[SLEEPS, CLOSED_BEFORE, NOT_CLOSED], {
        let (loc, write, read) = (Var::new(), Chan::<()>::new(0), Chan::<()>::new(0));
        let others = [go!(loc, write, read; {
            select! {
                recv(write) => {
                    mark(CLOSED_BEFORE);
                    assert_eq!(loc.get(), 1);
                }
                default => mark(NOT_CLOSED),
            }
            read.close();
        }), go!(loc, write; {
            loc.set(1);
            write.close();
        })];
        recv(&read);
        join(others);
    };

    no_race_elem_size0: &[SLEEPS, AT_ONCE], {
        let (x, y, c) = (Var::new(), Var::new(), Chan::new(2));
        c.send(());
        c.send(());
        let receivers = [&x, &y].map(|var| go!(var, c; {
            var.set(var.get() + 1);
            c.recv();
        }));
        send(&c, ());
        send(&c, ());
        for var in [x, y] {
            var.set(var.get() + 1);
        }
        join(receivers);
    };
}

const CLOSED_BEFORE: &str = "the channel is closed before the look";
const NOT_CLOSED: &str = "the channel is closed after the look";

// ---- select_test.go ------------------------------------------------------------------------------------------------

/// A thread writes and sends; another thread receives and writes.
fn select_5(in_selects: bool) {
    explore(2, &[SLEEPS, AT_ONCE], move |_| {
        let (x, ch, c1) = (Var::new(), Chan::new(0), Chan::<()>::new(0));
        let others = [
            go!(x, ch, c1; {
                x.set(1);
                if in_selects {
                    waiting(|| select! {
                        send(ch, true) => {}
                        recv(c1) => {}
                    });
                } else {
                    send(&ch, true);
                }
            }),
            go!(x, ch, c1; {
                if in_selects {
                    waiting(|| select! {
                        recv(ch) => {}
                        recv(c1) => {}
                    });
                } else {
                    recv(&ch);
                }
                x.set(1);
            }),
        ];
        join(others);
    });
}

no_race! {
    no_race_select1: &[SLEEPS, AT_ONCE], {
        let (x, c, c1) = (Var::new(), Chan::new(0), Chan::new(0));
        let sender = go!(x, c, c1; {
            x.set(1);
            waiting(|| select! {
                send(c, true) => {}
                send(c1, true) => {}
            });
        });
        waiting(|| select! {
            recv(c) => {}
            send(c1, true) => {}
        });
        x.set(2);
        join([sender]);
    };

    no_race_select2: &[SLEEPS, AT_ONCE], {
        let (x, c, c1) = (Var::new(), Chan::<()>::new(0), Chan::<()>::new(0));
        let receiver = go!(x, c, c1; {
            waiting(|| select! {
                recv(c) => {}
                recv(c1) => {}
            });
            x.set(1);
        });
        x.set(2);
        c.close();
        join([receiver]);
    };

    no_race_select3: &[SLEEPS, AT_ONCE], {
        let (x, c, c1) = (Var::new(), Chan::new(10), Chan::<()>::new(0));
        let sender = go!(x, c, c1; {
            x.set(1);
            waiting(|| select! {
                send(c, true) => {}
                recv(c1) => {}
            });
        });
        recv(&c);
        x.set(2);
        join([sender]);
    };

    /// Go's worker never ends; this worker does one job.
    no_race_select4: &[SLEEPS, AT_ONCE], {
        let (x, queue, dummy, done) = (Var::new(), Chan::<Job>::new(0), Chan::<()>::new(0), Chan::new(1));
        let worker = go!(queue; {
            let (job, done) = waiting(|| select! {
                recv(queue) -> job => job.unwrap(),
            }).0;
            job();
            send(&done, ());
        });
        let of_job = x.clone();
        waiting(|| select! {
            send(queue, (Box::new(move || of_job.set(1)) as Box<_>, done.clone())) => {}
            recv(dummy) => unreachable!(),
        });
        waiting(|| select! {
            recv(done) => {}
            recv(dummy) => unreachable!(),
        });
        assert_eq!(x.get(), 1);
        join([worker]);
    };
}

/// Models with a select on each side, and without a select. (Go's other parameter is a yield.)
#[test]
fn no_race_select5() {
    select_5(true);
    select_5(false);
}

race! {
    /// Two sends to one receiver do not order the two senders.
    race_select1: {
        let (x, c, c1) = (Var::new(), Chan::new(0), Chan::new(0));
        let receiver = go!(c; {
            c.recv();
            c.recv();
        });
        let senders = [(); 2].map(|()| go!(x, c, c1; {
            select! {
                send(c, true) => {}
                send(c1, true) => {}
            }
            x.set(1);
        }));
        join(senders);
        join([receiver]);
    };

    race_select2: {
        let (x, c, c1) = (Var::new(), Chan::<()>::new(0), Chan::<()>::new(0));
        let receiver = go!(x, c, c1; {
            x.set(1);
            select! {
                recv(c) => {}
                recv(c1) => {}
            }
        });
        c.close();
        x.set(2);
        join([receiver]);
    };

    race_select3: {
        let (x, c, c1) = (Var::new(), Chan::new(0), Chan::new(0));
        let sender = go!(x, c, c1; {
            x.set(1);
            select! {
                send(c, true) => {}
                send(c1, true) => {}
            }
        });
        x.set(2);
        select! {
            recv(c) => {}
        }
        join([sender]);
    };

    race_select4: {
        let x = Var::new();
        let other = go!(x; select! {
            default => x.set(2),
        });
        _ = x.get();
        join([other]);
    };

    race_select5: {
        let (x, y, c1, c2) = (Var::new(), Var::new(), Chan::new(1), Chan::new(0));
        let other = go!(x, y, c1, c2; select! {
            send(c1, true) => x.set(1),
            send(c2, true) => y.set(1),
        });
        _ = (x.get(), y.get());
        join([other]);
    };
}
