//! Large closures, futures and values, on stacks of the default size: a program that overflows a stack ends the
//! process.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::future::{Future, pending};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, Receiver, Select, Sender, channel, select, select_async};
use sudog::sync::WaitGroup;
use sudog::x::{ErrGroup, SingleFlight};
use sudog::{
    Builder, Cancel, WaitLimit, block_on, blocking, compute, context, go, go_async, run, scope, spawn, spawn_async,
    synctest,
};
use support::Watchdog;

/// A value of `N` bytes, which all have the same value.
struct Large<const N: usize>([u8; N]);

impl<const N: usize> Large<N> {
    fn new() -> Self {
        Self([7; N])
    }

    fn check(&self) {
        assert!(black_box(&self.0).iter().all(|&byte| byte == 7));
    }
}

/// Runs `f` as the main goroutine of a `run`, on a stack of 8 MiB.
fn on_main(f: fn()) {
    let _watchdog = Watchdog::new();
    run(f);
}

/// Makes a test for each way to start something. The macro makes `$check` a closure that holds 1 MiB, and `$done` a
/// channel on which `$check` reports its end.
macro_rules! starts {
    ($($name:ident |$check:ident, $done:ident| $start:expr;)+) => {$(
        #[test]
        fn $name() {
            on_main(|| {
                let large = Large::<{ 1 << 20 }>::new();
                let (reports, $done) = channel(1);
                let $check = move || {
                    large.check();
                    reports.send(()).unwrap();
                };
                $start;
            });
        }
    )+};
}

mod closures {
    use super::*;

    starts! {
        go_ |check, done| { go(check); done.recv().unwrap() };
        spawn_ |check, done| { spawn(check).join().unwrap(); done.recv().unwrap() };
        builder_go |check, done| { Builder::new().name("large").go(check); done.recv().unwrap() };
        builder_spawn |check, done| { Builder::new().name("large").spawn(check).join().unwrap(); done.recv().unwrap() };
        scope_go |check, done| { scope(|s| s.go(check)); done.recv().unwrap() };
        scope_spawn |check, done| { scope(|s| s.spawn(check).join().unwrap()); done.recv().unwrap() };
        go_scoped |check, done| { scope(|s| Builder::new().go_scoped(s, check)); done.recv().unwrap() };
        spawn_scoped |check, done| {
            scope(|s| Builder::new().spawn_scoped(s, check).join().unwrap());
            done.recv().unwrap();
        };
        wait_group |check, done| { Arc::new(WaitGroup::new()).go(check); done.recv().unwrap() };
        wait_group_with |check, done| {
            Arc::new(WaitGroup::new()).go_with(Builder::new(), check);
            done.recv().unwrap();
        };
        wait_group_static |check, done| {
            static GROUP: WaitGroup = WaitGroup::new();
            GROUP.go_static(check);
            done.recv().unwrap();
        };
        err_group |check, done| {
            let group = ErrGroup::new();
            group.go(move || {
                check();
                Ok::<_, Infallible>(())
            });
            group.wait().unwrap();
            done.recv().unwrap();
        };
        err_group_limited |check, done| {
            let group = ErrGroup::new();
            let f = move || {
                check();
                Err("done")
            };
            group.go_limited(f, &WaitLimit::default()).unwrap();
            assert_eq!(group.wait().unwrap_err().to_string(), "done");
            done.recv().unwrap();
        };
        single_flight |check, done| {
            let group = Arc::new(SingleFlight::<_, _, ()>::new());
            let f = move || {
                check();
                Ok(())
            };
            assert_eq!(group.do_chan(1, f).recv().unwrap().result, Ok(()));
            done.recv().unwrap();
        };
        context_after_func |check, done| {
            let (ctx, cancel) = context::with_cancel(&context::background());
            let call = context::after_func(&ctx, check);
            cancel.cancel();
            done.recv().unwrap();
            assert!(!call.stop());
        };
        blocking_ |check, done| { blocking(check); done.recv().unwrap() };
        compute_ |check, done| { compute(check); done.recv().unwrap() };
        go_async_ |check, done| {
            go_async(async move {
                sudog::time::sleep_async(Duration::from_micros(10)).await;
                check();
            });
            done.recv().unwrap();
        };
        spawn_async_ |check, done| {
            let task = spawn_async(async move {
                sudog::time::sleep_async(Duration::from_micros(10)).await;
                check();
            });
            task.join().unwrap();
            done.recv().unwrap();
        };
    }

    /// The caller's stack is a thread's stack, so run the caller on a thread whose stack is large enough for the
    /// closure itself.
    #[test]
    fn main_of_run() {
        let _watchdog = Watchdog::new();
        let calls = || {
            let large = Large::<{ 1 << 20 }>::new();
            run(move || large.check());
            let large = Large::<{ 1 << 20 }>::new();
            Builder::new().stack_size(256 << 10).run(move || large.check());
            let large = Large::<{ 1 << 20 }>::new();
            synctest::test(move || large.check());
        };
        std::thread::Builder::new().stack_size(32 << 20).spawn(calls).unwrap().join().unwrap();
    }
}

/// Makes tests of large values. Each test runs as a goroutine with a stack of the default size.
macro_rules! passes {
    ($($name:ident $body:block)+) => {$(
        #[test]
        fn $name() {
            on_main(|| spawn(|| $body).join().unwrap());
        }
    )+};
}

mod values {
    use super::*;

    /// The size of a value. A stack of the default size (2 MiB with debug assertions, else 256 KiB) has room for a few
    /// copies of the value only.
    const SIZE: usize = if cfg!(debug_assertions) { 64 << 10 } else { 16 << 10 };

    type Value = Large<SIZE>;

    const HOUR: Duration = Duration::from_secs(3600);

    fn value() -> Value {
        Large::new()
    }

    fn full() -> (Sender<Value>, Receiver<Value>) {
        let (tx, rx) = channel(1);
        assert!(tx.send(value()).is_ok());
        (tx, rx)
    }

    /// Starts a goroutine that waits to send.
    fn waiting() -> Receiver<Value> {
        let (tx, rx) = channel(0);
        go(move || drop(tx.send(value())));
        rx
    }

    /// Starts a goroutine that waits to receive.
    fn awaited() -> Sender<Value> {
        let (tx, rx) = channel::<Value>(0);
        go(move || rx.recv().unwrap().check());
        tx
    }

    fn in_an_hour() -> Instant {
        Instant::now() + HOUR
    }

    fn in_a_task(future: impl Future<Output = ()> + Send + 'static) {
        spawn_async(future).join().unwrap();
    }

    passes! {
        send { awaited().send(value()).unwrap() }
        send_to_a_buffer { let (tx, _rx) = channel(1); tx.send(value()).unwrap() }
        send_that_fails {
            let (tx, rx) = channel(1);
            drop(rx);
            tx.send(value()).unwrap_err().into_inner().check();
        }
        recv { waiting().recv().unwrap().check() }
        recv_from_a_buffer { full().1.recv().unwrap().check() }
        try_send { let (tx, _rx) = channel(1); tx.try_send(value()).unwrap() }
        try_send_that_fails { full().0.try_send(value()).unwrap_err().into_inner().check() }
        try_recv { full().1.try_recv().unwrap().check() }
        send_limited {
            let cancel = Cancel::new();
            awaited().send_limited(value(), &WaitLimit::until(in_an_hour())).unwrap();
            awaited().send_limited(value(), &WaitLimit { cancel: Some(&cancel), deadline: None }).unwrap();
        }
        send_until { awaited().send_limited(value(), in_an_hour()).unwrap() }
        send_within { awaited().send_limited(value(), HOUR).unwrap() }
        send_with_a_context { awaited().send_limited(value(), &context::background()).unwrap() }
        send_that_gives_up {
            let (tx, _rx) = full();
            tx.send_limited(value(), Duration::from_millis(1)).unwrap_err().into_inner().check();
        }
        recv_limited {
            let cancel = Cancel::new();
            waiting().recv_limited(&WaitLimit::until(in_an_hour())).unwrap().check();
            waiting().recv_limited(&WaitLimit { cancel: Some(&cancel), deadline: None }).unwrap().check();
        }
        recv_until { waiting().recv_limited(in_an_hour()).unwrap().check() }
        recv_within { waiting().recv_limited(HOUR).unwrap().check() }
        recv_with_a_context { waiting().recv_limited(&context::background()).unwrap().check() }
        iter { waiting().iter().for_each(|value| value.check()) }
        try_iter { full().1.try_iter().for_each(|value| value.check()) }
        into_iter { for value in waiting() { value.check() } }
        send_async { block_on(awaited().send_async(value())).unwrap() }
        send_async_in_a_task { let tx = awaited(); in_a_task(async move { tx.send_async(value()).await.unwrap() }) }
        recv_async { block_on(waiting().recv_async()).unwrap().check() }
        recv_async_in_a_task { let rx = waiting(); in_a_task(async move { rx.recv_async().await.unwrap().check() }) }

        chan {
            let ch = Chan::new(1);
            ch.send(value());
            ch.recv().unwrap().check();
            ch.try_send(value()).ok().unwrap();
            ch.try_send(value()).unwrap_err().check();
            ch.try_recv().unwrap().check();
        }
        chan_limited {
            let ch = Chan::new(1);
            ch.send_limited(value(), HOUR).unwrap();
            ch.send_limited(value(), Duration::from_millis(1)).unwrap_err().value.check();
            ch.recv_limited(HOUR).unwrap().unwrap().check();
            ch.send_limited(value(), in_an_hour()).unwrap();
            ch.recv_limited(in_an_hour()).unwrap().unwrap().check();
        }
        chan_async {
            let ch = Chan::new(1);
            block_on(ch.send_async(value()));
            block_on(ch.recv_async()).unwrap().check();
        }
        chan_views {
            let ch = Chan::new(1);
            ch.send_only().send(value());
            ch.close();
            ch.recv_only().iter().for_each(|value| value.check());
        }

        select_send { select! { send(awaited(), value()) -> sent => sent.unwrap() } }
        select_send_from {
            let (tx, mut from) = (awaited(), Some(value()));
            select! { send_from(tx, &mut from) -> sent => sent.unwrap() }
        }
        select_send_or_default {
            let (tx, _rx) = full();
            select! { send(tx, value()) -> _ => unreachable!(), default => {} }
        }
        select_recv { select! { recv(waiting()) -> value => value.unwrap().check() } }
        select_recv_or_default { select! { recv(full().1) -> value => value.unwrap().check(), default => unreachable!() } }
        select_recv_with_a_limit {
            select! { recv(waiting()) -> value => value.unwrap().check(), default(HOUR) => unreachable!() }
        }
        select_of_two {
            let (tx, rx) = full();
            select! { recv(waiting()) -> value => value.unwrap().check(), send(tx, value()) -> _ => unreachable!() }
            drop(rx);
        }
        select_with_a_future {
            let never = pending::<()>();
            select! { recv(waiting()) -> value => value.unwrap().check(), future(never) => unreachable!() }
        }
        select_async_recv {
            let rx = waiting();
            in_a_task(async move { select_async! { recv(rx) -> value => value.unwrap().check() } });
        }
        select_async_send {
            let tx = awaited();
            in_a_task(async move { select_async! { send(tx, value()) -> sent => sent.unwrap() } });
        }
        select_dynamic {
            let (tx, rx) = (awaited(), waiting());
            Select::new().send(tx, value(), |sent| sent.unwrap()).wait();
            Select::new().recv(rx, |value| value.unwrap().check()).wait();
        }
    }
}
