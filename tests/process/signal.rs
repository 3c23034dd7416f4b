//! Signals as values of a channel: Go's tests of `os/signal`; the kinds of receivers; and user code that does its
//! worst.
//!
//! The tests take turns, because the action of a signal belongs to the whole process. `raise` returns when the handler
//! of the calling thread has returned; another thread sends the noted signal to the channels. Where a test says that no
//! signal comes, the test stops first: after the stop, all signals that have arrived are in the channel.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use std::{env, pin};

use signal_hook::low_level::raise;
use sudog::chan::{Chan, TryRecvError, select, select_async};
use sudog::context::{self, Error};
use sudog::time::{now, sleep};
use sudog::{go, run, spawn, spawn_async, synctest};
use sudog_sync::signal::{Received, Signal, ignore, ignored, notify, notify_context, reset, stop};
use support::{Watchdog, eventually, test_command};

/// The variable that tells a child the part that the child plays.
const CHILD: &str = "SUDOG_TEST_CHILD";

/// Sends a signal to the calling thread, whose handler has run when this function returns.
fn send(signal: Signal) {
    raise(signal.as_raw()).unwrap();
}

/// Sends a signal to the process: any of its threads may handle the signal.
fn send_to_process(signal: Signal) {
    // SAFETY: `kill` has no precondition; the signal goes to this process.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.as_raw()) }, 0);
}

fn notified(capacity: usize, signals: &[Signal]) -> Chan<Signal> {
    let ch = Chan::new(capacity);
    notify(&ch, signals);
    ch
}

fn is_empty(ch: &Chan<Signal>) -> bool {
    ch.try_recv() == Err(TryRecvError::Empty)
}

/// Runs a child of this test, and returns the signal that the child died of, if any.
fn child(test: &str, part: &str) -> Option<i32> {
    let output = test_command(module_path!(), test).env(CHILD, part).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || output.status.signal().is_some(), "{words}");
    output.status.signal()
}

/// Returns the part that this process plays, if this process is a child.
fn part() -> Option<String> {
    as_from_a_terminal();
    env::var(CHILD).ok()
}

/// Takes the turn to use signals, whose actions belong to the whole process.
fn alone() -> support::goroutine::Alone {
    let alone = support::goroutine::alone();
    as_from_a_terminal();
    alone
}

/// Resets interrupts, quits and hangups: a shell that starts a program in the background lets it ignore interrupts, and
/// `nohup` hangups.
fn as_from_a_terminal() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            // SAFETY: no handler has been installed, because the first test has not begun.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    });
}

// ---- Go's ----------------------------------------------------------------------------------------------------------

/// The clock of a bubble does not wait for signals, because signals come from outside of the bubble.
#[test]
fn a_bubble_does_not_await_signals() {
    let _turn = alone();
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let signals = notified(1, &[Signal::HUP]);
        let begun = now();
        sleep(Duration::from_secs(3600));
        assert_eq!(now() - begun, Duration::from_secs(3600));
        stop(&signals);
    });
}

/// Go's test. Also, a full channel misses signals, and holds up no other channel.
#[test]
fn signal() {
    let _turn = alone();
    let one = notified(1, &[Signal::HUP]);
    send_to_process(Signal::HUP);
    assert_eq!(one.recv(), Some(Signal::HUP));
    let all = notified(10, &[]);
    let next = || all.iter().find(|signal| *signal != Signal::URG && *signal != Signal::CHLD);
    send_to_process(Signal::WINCH);
    assert_eq!(next(), Some(Signal::WINCH));
    for _ in 0..2 {
        send_to_process(Signal::HUP);
        assert_eq!(next(), Some(Signal::HUP));
    }
    stop(&one);
    assert_eq!(one.recv(), Some(Signal::HUP));
    assert!(is_empty(&one), "there was room for one");
    stop(&all);
    reset(&[]);
}

/// Two threads send signals as fast as they can, until a stop. Then the channel is closed, and nothing is sent after
/// that.
#[test]
fn stress() {
    let turn = alone();
    for _ in 0..20 {
        let ch = notified(1, &[Signal::USR1]);
        thread::scope(|s| {
            let receiver = s.spawn(|| run(|| ch.iter().count()));
            let senders = [(); 2].map(|()| s.spawn(|| (0..500).for_each(|_| send(Signal::USR1))));
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            stop(&ch);
            ch.close();
            assert!((1..=1000).contains(&receiver.join().unwrap()));
        });
        turn.watchdog.pat();
    }
}

fn cancelled_by(cancel: fn(&[Signal]), is_ignored: bool) {
    let (one, two) = (notified(1, &[Signal::WINCH]), notified(1, &[Signal::HUP]));
    send(Signal::WINCH);
    assert_eq!(one.recv(), Some(Signal::WINCH));
    send(Signal::HUP);
    assert_eq!(two.recv(), Some(Signal::HUP));
    cancel(&[Signal::WINCH, Signal::HUP]);
    send(Signal::WINCH);
    assert_eq!([Signal::WINCH, Signal::HUP].map(ignored), [is_ignored; 2]);
    if is_ignored {
        send(Signal::HUP);
    }
    // A signal for another channel arrives after all earlier signals have been sent.
    let other = notified(1, &[Signal::USR1]);
    send(Signal::USR1);
    assert_eq!(other.recv(), Some(Signal::USR1));
    assert!(is_empty(&one) && is_empty(&two));
    // Both channels may be notified again.
    notify(&two, &[Signal::HUP]);
    assert!(!ignored(Signal::HUP));
    send(Signal::HUP);
    assert_eq!(two.recv(), Some(Signal::HUP));
    reset(&[]);
}

#[test]
fn go_reset() {
    let _turn = alone();
    cancelled_by(reset, false);
}

#[test]
fn go_ignore() {
    let _turn = alone();
    cancelled_by(ignore, true);
}

#[test]
fn go_ignored() {
    let _turn = alone();
    let ch = notified(1, &[Signal::WINCH]);
    assert!(!ignored(Signal::WINCH));
    stop(&ch);
    ignore(&[Signal::WINCH]);
    assert!(ignored(Signal::WINCH));
    reset(&[]);
    assert!(!ignored(Signal::WINCH));
}

/// A process that is started with an ignored signal ignores that signal again when the last channel for the signal
/// stops.
#[test]
fn nohup() {
    if env::var_os(CHILD).is_some() {
        assert!(ignored(Signal::HUP));
        let ch = notified(1, &[Signal::HUP]);
        assert!(!ignored(Signal::HUP));
        send(Signal::HUP);
        assert_eq!(ch.recv(), Some(Signal::HUP));
        stop(&ch);
        assert!(ignored(Signal::HUP));
        send(Signal::HUP);
        reset(&[]);
        send(Signal::HUP);
        return assert!(ignored(Signal::HUP) && is_empty(&ch));
    }
    let _turn = alone();
    let mut command = test_command(module_path!(), "nohup");
    let ignored_at_start = || {
        // SAFETY: `signal` may be called between fork and exec.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: `ignored_at_start` only calls `signal`, which may be called between fork and exec.
    let output = unsafe { std::os::unix::process::CommandExt::pre_exec(command.env(CHILD, ""), ignored_at_start) };
    let output = output.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Each signal has its default action again when its last channel stops. Each signal is tested in a child process.
#[test]
fn go_stop() {
    let signals = [Signal::WINCH, Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1, Signal::PIPE];
    if let Some(part) = part() {
        let signal = Signal::from_raw(part.parse().unwrap()).unwrap();
        let (a, b) = (notified(1, &[signal]), notified(1, &[signal]));
        send(signal);
        assert_eq!((a.recv(), b.recv()), (Some(signal), Some(signal)));
        stop(&a);
        stop(&a); // does nothing
        send(signal);
        assert_eq!(b.recv(), Some(signal));
        stop(&b);
        send(signal);
        return assert!(is_empty(&a) && is_empty(&b));
    }
    let _turn = alone();
    for signal in signals {
        // The test harness of Rust ignores SIGPIPE from the beginning, as all of Rust's programs do.
        let dies = ![Signal::WINCH, Signal::PIPE].contains(&signal);
        let died_of = child("go_stop", &signal.as_raw().to_string());
        assert_eq!(died_of, dies.then_some(signal.as_raw()), "{signal}");
    }
}

#[test]
fn sigcont() {
    let _turn = alone();
    let ch = notified(1, &[Signal::CONT]);
    send_to_process(Signal::CONT);
    assert_eq!(ch.recv(), Some(Signal::CONT));
    stop(&ch);
}

/// A signal that races with the stop is received, or the process dies of that signal: no signal is lost.
#[test]
fn atomic_stop() {
    if part().is_some() {
        for _ in 0..1000 {
            let ch = notified(1, &[Signal::INT]);
            thread::scope(|s| {
                s.spawn(|| stop(&ch));
                send(Signal::INT);
            });
            assert_eq!(ch.try_recv(), Ok(Signal::INT), "lost");
        }
        return;
    }
    let turn = alone();
    for _ in 0..10 {
        assert!([None, Some(libc::SIGINT)].contains(&child("atomic_stop", "")));
        turn.watchdog.pat();
    }
}

/// Several contexts, each cancelled by its own signal.
#[test]
fn notify_context_notifications() {
    let _turn = alone();
    run(|| {
        let signals = [Signal::INT, Signal::USR1, Signal::USR2];
        let all: Vec<_> = signals.iter().map(|&signal| notify_context(&context::background(), &[signal])).collect();
        for (signal, (ctx, stop)) in signals.iter().zip(&all) {
            assert_eq!(ctx.err(), None);
            send(*signal);
            assert_eq!(ctx.wait(), Error::Canceled);
            send(*signal); // has no effect
            stop.stop();
        }
    });
}

#[test]
fn notify_context_stop() {
    let _turn = alone();
    ignore(&[Signal::HUP]);
    run(|| {
        let (ctx, stop) = notify_context(&context::background(), &[Signal::HUP]);
        assert!(!ignored(Signal::HUP));
        stop.stop();
        assert_eq!((ctx.err(), ctx.cause().unwrap().to_string()), (Some(Error::Canceled), "context canceled".into()));
        stop.stop();
    });
    reset(&[]);
}

#[test]
fn notify_context_cancel_parent() {
    let _turn = alone();
    run(|| {
        let (parent, cancel) = context::with_cancel_cause(&context::background());
        let (ctx, stop) = notify_context(&parent, &[Signal::INT]);
        let stop = stop.on_drop();
        cancel.cancel("the parent");
        assert_eq!((ctx.wait(), ctx.cause().unwrap().to_string()), (Error::Canceled, "the parent".into()));
        drop(stop);
    });
}

#[test]
fn notify_context_premature_cancel_parent() {
    let _turn = alone();
    run(|| {
        let (parent, cancel) = context::with_cancel(&context::background());
        cancel.cancel();
        let (ctx, stop) = notify_context(&parent, &[Signal::INT]);
        assert_eq!(ctx.err(), Some(Error::Canceled));
        send(Signal::INT); // has no effect, because the context has not been stopped
        stop.stop();
    });
}

#[test]
fn notify_context_simultaneous_stop() {
    let _turn = alone();
    run(|| {
        let (ctx, stop) = notify_context(&context::background(), &[Signal::INT]);
        let stoppers: Vec<_> = (0..10).map(|_| stop.clone()).map(|stop| spawn(move || stop.stop())).collect();
        stoppers.into_iter().for_each(|stopper| stopper.join().unwrap());
        assert_eq!(ctx.err(), Some(Error::Canceled));
    });
}

#[test]
fn notify_context_cause() {
    let _turn = alone();
    run(|| {
        let (ctx, stop) = notify_context(&context::background(), &[Signal::INT, Signal::USR2]);
        send(Signal::USR2);
        assert_eq!(ctx.wait(), Error::Canceled);
        let cause = ctx.cause().unwrap();
        assert_eq!(cause.to_string(), "user defined signal 2 signal received");
        assert_eq!(cause.downcast_ref(), Some(&Received(Signal::USR2)));
        stop.stop();
        assert_eq!(ctx.cause().unwrap().to_string(), cause.to_string());
    });
}

// ---- waits for signals ---------------------------------------------------------------------------------------------

#[test]
fn a_thread_a_goroutine_and_a_task_receive() {
    let _turn = alone();
    let ch = notified(1, &[Signal::USR1]);
    let sent = |waiters: usize| {
        eventually(|| ch.waiting_receivers() == waiters);
        send(Signal::USR1);
    };
    thread::scope(|s| {
        let thread = s.spawn(|| ch.recv());
        sent(1);
        assert_eq!(thread.join().unwrap(), Some(Signal::USR1));
        let goroutine = s.spawn(|| run(|| ch.recv()));
        sent(1);
        assert_eq!(goroutine.join().unwrap(), Some(Signal::USR1));
        let (never, of_task) = (Chan::<u32>::new(0), ch.clone());
        let task = spawn_async(async move {
            select_async! {
                recv(of_task) -> signal => signal,
                recv(never) => unreachable!(),
            }
        });
        sent(1);
        assert_eq!(task.join().unwrap(), Some(Signal::USR1));
        // The receivers get the signals in the order in which they came, each receiver a signal of its own.
        let waiters: Vec<_> = (0..3).map(|_| s.spawn(|| run(|| ch.recv()))).collect();
        eventually(|| ch.waiting_receivers() == 3);
        for left in (0..3).rev() {
            send(Signal::USR1);
            eventually(|| ch.waiting_receivers() == left);
        }
        waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), Some(Signal::USR1)));
    });
    stop(&ch);
}

#[test]
fn a_select_receives() {
    let _turn = alone();
    let (ch, other) = (notified(1, &[Signal::USR1]), Chan::<u32>::new(0));
    thread::scope(|s| {
        let selecting = s.spawn(|| {
            run(|| {
                select! {
                    recv(ch) -> signal => signal,
                    recv(other) => None,
                }
            })
        });
        eventually(|| ch.waiting_receivers() == 1 && other.waiting_receivers() == 1);
        send(Signal::USR1);
        assert_eq!(selecting.join().unwrap(), Some(Signal::USR1));
    });
    stop(&ch);
}

/// A channel without capacity gets only the signals that come while a receiver waits.
#[test]
fn a_channel_without_room_misses_signals() {
    let _turn = alone();
    let (none, two) = (notified(0, &[Signal::USR1]), notified(2, &[Signal::USR1]));
    let seen = notified(1, &[Signal::USR1]); // is sent each signal after the others, as the newest channel
    for left in [1, 2, 2] {
        send(Signal::USR1);
        assert_eq!(seen.recv(), Some(Signal::USR1));
        assert_eq!((none.len(), two.len()), (0, left));
    }
    thread::scope(|s| {
        let waiter = s.spawn(|| none.recv());
        eventually(|| none.waiting_receivers() == 1);
        send(Signal::USR1);
        assert_eq!(waiter.join().unwrap(), Some(Signal::USR1));
    });
    [&none, &two, &seen].into_iter().for_each(stop);
    assert_eq!(two.try_iter().collect::<Vec<_>>(), [Signal::USR1; 2]);
}

#[test]
fn a_closed_channel_gets_nothing() {
    let _turn = alone();
    let (closed, open) = (notified(1, &[Signal::USR1]), notified(1, &[Signal::USR1]));
    closed.close();
    send(Signal::USR1);
    assert_eq!(open.recv(), Some(Signal::USR1));
    assert_eq!(closed.recv(), None);
    stop(&closed);
    stop(&open);
}

#[test]
fn notify_adds_to_the_signals_of_a_channel() {
    let _turn = alone();
    let ch = notified(2, &[Signal::USR1]);
    notify(&ch, &[Signal::USR2]);
    send(Signal::USR2);
    assert_eq!(ch.recv(), Some(Signal::USR2));
    reset(&[Signal::USR2]);
    ignore(&[Signal::USR2]);
    send(Signal::USR2);
    send(Signal::USR1);
    assert_eq!(ch.recv(), Some(Signal::USR1));
    stop(&ch);
    assert!(is_empty(&ch));
    reset(&[]);
}

/// A signal that is noted when the channel stops is in the channel, even if no thread has had the time to send it.
#[test]
fn a_stop_leaves_what_has_arrived_in_the_channel() {
    let _turn = alone();
    for _ in 0..1000 {
        let ch = notified(1, &[Signal::USR1]);
        send(Signal::USR1);
        stop(&ch);
        assert_eq!(ch.try_recv(), Ok(Signal::USR1));
    }
}

#[test]
#[should_panic = "os/signal: Notify using nil channel"]
fn a_nil_channel_is_not_notified() {
    notify(&Chan::nil(), &[Signal::USR1]);
}

#[test]
fn signals_have_their_names_and_numbers() {
    let all: Vec<_> = Signal::all().collect();
    assert_eq!(all.iter().copied().collect::<HashSet<_>>().len(), all.len());
    for signal in &all {
        assert_eq!(Signal::from_raw(signal.as_raw()), Some(*signal));
        assert!(format!("{signal:?}").starts_with("SIG"), "{signal:?}");
        assert!(!signal.to_string().starts_with("signal "), "{signal} has words in Go");
    }
    let faults = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
    let not_a_signal = [0, -1, 65, 1000, libc::SIGRTMIN()];
    assert!(faults.iter().chain(&not_a_signal).all(|&number| Signal::from_raw(number).is_none()));
}

/// Handlers do not run on the stack of the goroutine that happens to run, which may have little room left.
#[test]
fn handlers_run_on_the_alternate_stack() {
    let _turn = alone();
    let ch = notified(1, &[Signal::USR1]);
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action changes nothing. `sigaction` writes to `action`, for which zeros are a valid value.
    let action = unsafe {
        assert_eq!(libc::sigaction(libc::SIGUSR1, std::ptr::null(), action.as_mut_ptr()), 0);
        action.assume_init()
    };
    assert_ne!(action.sa_flags & libc::SA_ONSTACK, 0);
    stop(&ch);
}

// ---- user code -----------------------------------------------------------------------------------------------------

/// A waker that waits or panics keeps no signal from the other channels.
#[test]
fn a_waker_holds_up_no_signal() {
    struct Hostile {
        go_on: AtomicBool,
        woken: AtomicUsize,
    }
    impl Wake for Hostile {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, SeqCst);
            eventually(|| self.go_on.load(SeqCst));
            panic!("a waker");
        }
    }
    let _turn = alone();
    let (of_task, other) = (notified(0, &[Signal::USR1]), notified(1, &[Signal::USR1, Signal::USR2]));
    let hostile = Arc::new(Hostile { go_on: false.into(), woken: 0.into() });
    let waker = Waker::from(hostile.clone());
    let mut future = pin::pin!(of_task.recv_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    send(Signal::USR1);
    assert_eq!(other.recv(), Some(Signal::USR1));
    eventually(|| hostile.woken.load(SeqCst) == 1);
    send(Signal::USR2);
    assert_eq!(other.recv(), Some(Signal::USR2));
    hostile.go_on.store(true, SeqCst);
    assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Some(Signal::USR1)));
    stop(&of_task);
    stop(&other);
}

/// A waker may call any function of the module.
#[test]
fn a_waker_may_notify_and_stop() {
    struct Calls(Chan<Signal>, AtomicBool);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            stop(&self.0);
            notify(&self.0, &[Signal::USR2]);
            self.1.store(true, SeqCst);
        }
    }
    let _turn = alone();
    let ch = notified(1, &[Signal::USR1]);
    let calls = Arc::new(Calls(ch.clone(), false.into()));
    let waker = Waker::from(calls.clone());
    let mut future = pin::pin!(ch.recv_async());
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    send(Signal::USR1);
    eventually(|| calls.1.load(SeqCst));
    assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Some(Signal::USR1)));
    send(Signal::USR2);
    assert_eq!(ch.recv(), Some(Signal::USR2));
    stop(&ch);
}

/// `run` ends with its main goroutine, and a channel that has not been stopped still gets signals.
#[test]
fn run_does_not_wait_for_a_stop() {
    let _turn = alone();
    let ch = run(|| {
        go(|| _ = notified(1, &[Signal::USR2]).recv());
        notified(1, &[Signal::USR1])
    });
    send(Signal::USR1);
    assert_eq!(ch.recv(), Some(Signal::USR1));
    reset(&[]);
}
