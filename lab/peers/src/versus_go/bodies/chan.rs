//! Channels and select: Go's benchmarks, and pools.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sudog_runtime::chan::{Chan, select};
use sudog_runtime::goroutine::{go, max_procs};
use sudog_sync::WaitGroup;

use super::round::Round;
use super::work::burn;
use super::{load, shared};
use crate::rounds::{WORK, steps};

/// The number of operations that a goroutine takes at a time, in the benchmarks that Go divides in this way.
const GRAIN: usize = 1000;

pub fn chan<T: Send>(capacity: usize) -> &'static Chan<T> {
    shared(Chan::new(capacity))
}

/// Works outside the channel.
fn work(n: u32) {
    if n > 0 {
        black_box(steps(n, black_box(1)));
    }
}

/// Measures creating and dropping a channel of 8 values.
pub fn make<T: Send>(round: &mut Round) {
    for _ in 0..round.n {
        black_box(Chan::<T>::new(black_box(8)));
    }
}

/// Measures a receive that does not wait, from an empty channel.
pub fn nonblocking(round: &mut Round) {
    let ch = chan::<u64>(0);
    round.parallel(1, move |portion| {
        while portion.more() {
            select! { recv(ch) -> v => { black_box(v); }, default => {} }
        }
    });
}

/// Measures a select on two channels of each goroutine's own, of which one at a time has a value.
pub fn select_uncontended(round: &mut Round) {
    round.parallel(1, move |portion| {
        let (a, b) = (Chan::new(1), Chan::new(1));
        a.send(0_u64);
        while portion.more() {
            select! { recv(a) => b.send(0), recv(b) => a.send(0) }
        }
    });
}

/// Measures selects on three channels without capacity, which all goroutines share. Each goroutine has a partner.
pub fn select_sync_contended(round: &mut Round) {
    let (a, b, c, done) = (chan::<u64>(0), chan::<u64>(0), chan::<u64>(0), chan::<u64>(0));
    round.parallel(1, move |portion| {
        go(move || {
            loop {
                select! {
                    send(a, 0) => {},
                    send(b, 0) => {},
                    send(c, 0) => {},
                    recv(done) => return,
                }
            }
        });
        while portion.more() {
            select! { recv(a) => {}, recv(b) => {}, recv(c) => {} }
        }
    });
    done.close();
}

/// Measures selects on two channels that all goroutines share, with a value for each worker.
pub fn select_async_contended(round: &mut Round) {
    let (a, b) = (chan::<u64>(max_procs()), chan::<u64>(max_procs()));
    round.parallel(1, move |portion| {
        a.send(0);
        while portion.more() {
            select! { recv(a) => b.send(0), recv(b) => a.send(0) }
        }
    });
}

/// Measures four selects that do not wait: a receive and a send without capacity, and the same with capacity.
pub fn select_nonblock(round: &mut Round) {
    let (a, b, c, d) = (chan::<u64>(0), chan::<u64>(0), chan::<u64>(1), chan::<u64>(1));
    round.parallel(1, move |portion| {
        while portion.more() {
            select! { recv(a) => {}, default => {} }
            select! { send(b, 0) => {}, default => {} }
            select! { recv(c) => {}, default => {} }
            select! { send(d, 0) => {}, default => {} }
        }
    });
}

/// Measures 100 sends, then 100 receives, on a channel of each goroutine's own.
pub fn uncontended(round: &mut Round) {
    const VALUES: usize = 100;
    round.parallel(1, move |portion| {
        let ch = Chan::new(VALUES);
        while portion.more() {
            (0..VALUES).for_each(|_| ch.send(0_u64));
            (0..VALUES).for_each(|_| {
                black_box(ch.recv());
            });
        }
    });
}

/// Measures 100 sends, then 100 receives, on a channel that all goroutines share.
pub fn contended(round: &mut Round) {
    const VALUES: usize = 100;
    let ch = chan::<u64>(VALUES * max_procs());
    round.parallel(1, move |portion| {
        while portion.more() {
            (0..VALUES).for_each(|_| ch.send(0));
            (0..VALUES).for_each(|_| {
                black_box(ch.recv());
            });
        }
    });
}

/// Measures two goroutines that send to each other in turn, without capacity.
pub fn sync(round: &mut Round, local: u32) {
    let (ch, done) = (chan::<u64>(0), shared(WaitGroup::new()));
    // Give both the same number of whole grains: an odd grain would have no partner.
    let turns = round.n.div_ceil(2 * GRAIN) * GRAIN;
    done.add(2);
    for first in [true, false] {
        go(move || {
            for _ in 0..turns {
                if first {
                    ch.recv();
                    work(local);
                    ch.send(0);
                } else {
                    ch.send(0);
                    work(local);
                    ch.recv();
                }
                work(local);
            }
            done.done();
        });
    }
    done.wait();
}

/// Takes a grain, if any is left.
fn take(grains: &AtomicU64) -> bool {
    grains.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Measures a producer and a consumer for each worker, on a single channel. The value 0 ends a consumer.
pub fn prod_cons(round: &mut Round, capacity: usize, local: u32) {
    let (ch, done) = (chan::<u64>(capacity), shared(WaitGroup::new()));
    let grains = shared(AtomicU64::new(round.n.div_ceil(GRAIN) as u64));
    for _ in 0..max_procs() {
        done.add(2);
        go(move || {
            while take(grains) {
                for _ in 0..GRAIN {
                    work(local);
                    ch.send(1);
                }
            }
            ch.send(0);
            done.done();
        });
        go(move || {
            while ch.recv() == Some(1) {
                work(local);
            }
            done.done();
        });
    }
    done.wait();
}

/// Measures [`prod_cons`] by select, beside a timer's channel and a channel for closing, which never have a value.
pub fn select_prod_cons(round: &mut Round) {
    let (ch, timer, close) = (chan::<u64>(128), chan::<u64>(0), chan::<u64>(1));
    let done = shared(WaitGroup::new());
    let grains = shared(AtomicU64::new(round.n.div_ceil(GRAIN) as u64));
    for _ in 0..max_procs() {
        done.add(2);
        go(move || {
            while take(grains) {
                for _ in 0..GRAIN {
                    work(WORK);
                    select! { send(ch, 1) => {}, recv(timer) => {}, recv(close) => {} }
                }
            }
            ch.send(0);
            done.done();
        });
        go(move || {
            loop {
                let last = select! { recv(ch) -> v => v == Some(0), recv(timer) => false, recv(close) => false };
                if last {
                    break;
                }
                work(WORK);
            }
            done.done();
        });
    }
    done.wait();
}

/// Measures receiving the values of a closed channel.
pub fn receive_from_closed(round: &mut Round) {
    let ch = Chan::new(round.n);
    (0..round.n).for_each(|_| ch.send(0_u64));
    ch.close();
    round.reset_timer();
    for v in &ch {
        black_box(v);
    }
    round.stop_timer();
}

/// Measures creating a channel for a single value, with a send and a receive.
pub fn creation(round: &mut Round) {
    round.parallel(1, move |portion| {
        while portion.more() {
            let ch = Chan::new(1);
            ch.send(0_u64);
            black_box(ch.recv());
        }
    });
}

/// Measures a channel as a semaphore.
pub fn semaphore(round: &mut Round) {
    let ch = chan::<()>(max_procs());
    round.parallel(1, move |portion| {
        while portion.more() {
            ch.send(());
            ch.recv();
        }
    });
}

/// Measures 1000 goroutines that select on a shared channel and a channel of their own; values come on the latter only.
pub fn popular(round: &mut Round) {
    const GOROUTINES: usize = 1000;
    let (popular, done, n) = (chan::<bool>(0), shared(WaitGroup::new()), round.n);
    done.add(GOROUTINES as _);
    let own: Vec<_> = (0..GOROUTINES)
        .map(|_| {
            let own = Chan::new(0);
            let receiver = own.clone();
            go(move || {
                for _ in 0..n {
                    select! { recv(popular) => {}, recv(receiver) => {} }
                }
                done.done();
            });
            own
        })
        .collect();
    for _ in 0..n {
        own.iter().for_each(|ch| ch.send(true));
    }
    done.wait();
}

/// Measures a receive from a closed channel.
pub fn closed(round: &mut Round) {
    let ch = chan::<u64>(0);
    ch.close();
    round.parallel(1, move |portion| {
        while portion.more() {
            select! { recv(ch) => {}, default => {} }
        }
    });
}

/// The number of workers of a pool, or of a fan-out.
const WORKERS: usize = 8;

/// Measures 8 workers that receive 1000 jobs of 20 to 200 us from a single channel. The workers start, and wait, before
/// the first job comes.
pub fn pool(round: &mut Round, capacity: usize) {
    const JOBS: u64 = 1000;

    burn(Duration::from_micros(1)); // calibrates
    round.reset_timer();
    for _ in 0..round.n {
        let (jobs, done) = (Chan::new(capacity), shared(WaitGroup::new()));
        done.add(WORKERS as _);
        for _ in 0..WORKERS {
            let jobs = jobs.clone();
            go(move || {
                jobs.iter().for_each(|us| burn(Duration::from_micros(us)));
                done.done();
            });
        }
        (0..JOBS).for_each(|i| jobs.send(20 + i * 7919 % 181));
        jobs.close();
        done.wait();
    }
}

/// Measures passing a value through 4 stages, which work for about 25 ns each.
pub fn pipeline(round: &mut Round, capacity: usize) {
    let source = chan(capacity);
    let mut last = source;
    for _ in 0..4 {
        let (from, to) = (last, chan(capacity));
        go(move || {
            from.iter().for_each(|v| to.send(steps(WORK, v)));
            to.close();
        });
        last = to;
    }
    let n = round.n as u64;
    go(move || {
        (1..=n).for_each(|v| source.send(v));
        source.close();
    });
    last.iter().for_each(|v| {
        black_box(v);
    });
}

/// Measures passing a value to any of 8 workers, which all send to the same channel.
pub fn fan(round: &mut Round) {
    let (out, back, done) = (chan(0), chan(0), shared(WaitGroup::new()));
    done.add(WORKERS as _);
    for _ in 0..WORKERS {
        go(move || {
            out.iter().for_each(|v| back.send(steps(WORK, v)));
            done.done();
        });
    }
    go(move || {
        done.wait();
        back.close();
    });
    let n = round.n as u64;
    go(move || {
        (1..=n).for_each(|v| out.send(v));
        out.close();
    });
    back.iter().for_each(|v| {
        black_box(v);
    });
}

/// Measures the first 100 primes, by a filter for each. At the end of the output, `quit` is closed, and each filter
/// stops.
pub fn sieve(round: &mut Round) {
    const PRIMES: usize = 100;
    for _ in 0..round.n {
        let (quit, done) = (Chan::<()>::new(0), shared(WaitGroup::new()));
        let mut last = Chan::new(0);
        let (first, stop) = (last.clone(), quit.clone());
        done.add(1);
        go(move || {
            for n in 2_u64.. {
                select! { send(first, n) => {}, recv(stop) => break }
            }
            done.done();
        });
        for _ in 0..PRIMES {
            let prime: u64 = last.recv().expect("no filter closes its channel");
            let (from, to, stop) = (last, Chan::new(0), quit.clone());
            last = to.clone();
            done.add(1);
            go(move || {
                loop {
                    let n =
                        select! { recv(from) -> n => n.expect("no filter closes its channel"), recv(stop) => break };
                    if n % prime != 0 {
                        select! { send(to, n) => {}, recv(stop) => break }
                    }
                }
                done.done();
            });
        }
        quit.close();
        done.wait();
    }
}

/// Starts `count` goroutines, which receive from a single channel; closes the channel when all have started; returns
/// when all have ended.
fn crowd(count: usize, something: fn()) {
    let (ready, gate, done) = (shared(WaitGroup::new()), chan::<()>(0), shared(WaitGroup::new()));
    ready.add(count as _);
    done.add(count as _);
    for _ in 0..count {
        go(move || {
            ready.done();
            gate.recv();
            something();
            done.done();
        });
    }
    ready.wait();
    gate.close();
    done.wait();
}

/// Measures very many goroutines that wait on a single channel.
pub fn million(round: &mut Round) {
    load::million_of(round, crowd);
}
