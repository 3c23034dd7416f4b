//! Waits for processes: Go's tests of `exec.CommandContext`, of `Cancel` and of `WaitDelay` (`os/exec/exec_test.go` of
//! 1.27), from their behaviour.
#![cfg(all(unix, not(sudog_loom)))]

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sudog_net::process::{OnDone, output_limited, wait, wait_limited};
use sudog_runtime::goroutine::{go, gosched, run, set_max_procs, spawn, synctest};
use sudog_sync::WaitGroup;
use sudog_sync::context::{self, Context, background};
use support::Watchdog;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs a test on threads, and in `run`.
fn everywhere(test: impl Fn() + Copy + Send + Sync) {
    let _watchdog = Watchdog::new();
    test();
    run(test);
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that ends when its input does.
fn cat() -> Child {
    shell("exec cat").spawn().unwrap()
}

fn canceled() -> Context {
    let (ctx, cancel) = context::with_cancel(&background());
    cancel.cancel();
    ctx
}

#[track_caller]
fn assert_canceled<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.expect_err("an error");
    assert_eq!(error.get_ref().and_then(|error| error.downcast_ref()), Some(&context::Error::Canceled), "{error}");
}

fn send(child: &Child, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` has no preconditions. The process has not been waited for, so the id is its own.
    match unsafe { libc::kill(child.id() as i32, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for the first byte that a process writes.
fn until_ready(child: &mut Child) {
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
}

#[test]
fn status() {
    everywhere(|| {
        for code in [0, 1, 77] {
            let mut child = shell(&format!("exit {code}")).spawn().unwrap();
            assert_eq!(wait(&mut child).unwrap().code(), Some(code));
            // The status stays.
            assert_eq!(wait(&mut child).unwrap().code(), Some(code));
            assert_eq!(wait_limited(&mut child, &canceled()).unwrap().code(), Some(code));
        }
        let mut child = shell("kill -9 $$").spawn().unwrap();
        assert_eq!(wait_limited(&mut child, &background()).unwrap().signal(), Some(libc::SIGKILL));
    });
}

/// The process reads its input to the end, which the wait closes.
#[test]
fn a_wait_closes_the_input() {
    everywhere(|| {
        assert!(wait(&mut cat()).unwrap().success());
        assert!(wait_limited(&mut cat(), &background()).unwrap().success());
    });
}

/// The end of the process depends on another goroutine of the same worker.
#[test]
fn a_wait_blocks_no_worker() {
    let _watchdog = Watchdog::new();
    run(|| {
        set_max_procs(1);
        let mut child = cat();
        let input = child.stdin.take();
        let wait = spawn(move || wait(&mut child).unwrap());
        for _ in 0..10 {
            gosched(); // the wait has begun
        }
        drop(input);
        assert!(wait.join().unwrap().success());

        let mut child = cat();
        let mut input = child.stdin.take().unwrap();
        let output = spawn(move || OnDone::new().wait_with_output(&mut child, &background()).unwrap());
        for _ in 0..10 {
            gosched();
        }
        input.write_all(b"input").unwrap();
        drop(input);
        assert_eq!(output.join().unwrap().stdout, b"input");
        set_max_procs(2);
    });
}

/// Go: TestContextCancel, TestContext.
#[test]
fn a_context_kills() {
    everywhere(|| {
        let mut child = cat();
        let input = child.stdin.take();
        let (ctx, cancel) = context::with_cancel(&background());
        go(move || cancel.cancel());
        assert_canceled(wait_limited(&mut child, &ctx));
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
        drop(input);

        let mut child = cat();
        let input = child.stdin.take();
        assert_canceled(wait_limited(&mut child, &canceled()));
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
        drop(input);

        let mut child = cat();
        let input = child.stdin.take();
        let (ctx, _cancel) = context::with_timeout(&background(), 10 * MS);
        assert_eq!(wait_limited(&mut child, &ctx).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
        drop(input);
    });
}

/// Go: TestWaitInterrupt/interrupt-and-wait, TestCancelErrors/success_after_interrupt. The process ends by itself once it is asked.
#[test]
fn a_process_that_is_asked_to_end() {
    everywhere(|| {
        let mut child = shell("trap 'exit 3' TERM; echo; while :; do sleep 0.01; done").spawn().unwrap();
        until_ready(&mut child);
        let calls = AtomicUsize::new(0);
        let ask = |child: &mut Child| {
            calls.fetch_add(1, Relaxed);
            send(child, libc::SIGTERM)
        };
        assert_canceled(OnDone::new().cancel(ask).wait_delay(HOUR).wait(&mut child, &canceled()));
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(3));
        assert_eq!(calls.load(Relaxed), 1);
    });
}

/// Go: TestWaitInterrupt/Kill_with_WaitDelay. The process does not end when it is asked.
#[test]
fn a_process_that_is_killed_after_the_delay() {
    everywhere(|| {
        let mut child = shell("trap '' TERM; echo; exec cat").spawn().unwrap();
        let input = child.stdin.take();
        until_ready(&mut child);
        let on_done = OnDone::new().cancel(|child| send(child, libc::SIGTERM)).wait_delay(10 * MS);
        assert_canceled(on_done.wait(&mut child, &canceled()));
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
        drop(input);
    });
}

/// Go: TestCancelErrors. The error of the cancel comes before the context's; and a process that has ended is not canceled.
#[test]
fn cancel_errors() {
    everywhere(|| {
        let mut child = cat();
        let input = child.stdin.take();
        let fail = |_: &mut Child| Err(io::Error::other("no"));
        let error = OnDone::new().cancel(fail).wait_delay(MS).wait(&mut child, &canceled()).unwrap_err();
        assert_eq!(error.to_string(), "no");
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
        drop(input);

        let mut child = cat();
        wait(&mut child).unwrap();
        let never = |_: &mut Child| unreachable!("the process has ended");
        assert!(OnDone::new().cancel(never).wait(&mut child, &canceled()).unwrap().success());
    });
}

/// A panic of the cancel goes on, and does not wait for the output.
#[test]
fn a_cancel_that_panics() {
    everywhere(|| {
        let mut child = cat();
        let input = child.stdin.take();
        let on_done = OnDone::new().cancel(|_| panic!("out of the cancel"));
        let call = AssertUnwindSafe(|| on_done.wait_with_output(&mut child, &canceled()).map(drop));
        let payload = catch_unwind(call).expect_err("a panic");
        assert_eq!(payload.downcast_ref(), Some(&"out of the cancel"));
        drop(input);
        assert!(wait(&mut child).unwrap().success(), "not killed");
    });
}

#[test]
fn output() {
    everywhere(|| {
        // More than the pipes hold, to both, one after the other.
        let script = "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; exit 5";
        let output = output_limited(&mut shell(script), &background()).unwrap();
        assert_eq!(output.status.code(), Some(5));
        assert!(output.stdout == vec![0; 200_000] && output.stderr == vec![0; 300_000]);

        // The input is empty.
        assert!(output_limited(&mut shell("cat"), &background()).unwrap().stdout.is_empty());

        // Only the pipes that there are.
        let mut child = shell("cat; echo error >&2").stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"input").unwrap();
        let output = OnDone::new().wait_with_output(&mut child, &background()).unwrap();
        assert_eq!(output.stdout, b"input");
        assert!(output.stderr.is_empty());
    });
}

/// Go: TestContext of a command that is not started.
#[test]
fn a_command_is_not_started_after_its_context() {
    everywhere(|| {
        assert_canceled(output_limited(&mut Command::new("/no/such/command"), &canceled()));
        let error = output_limited(&mut Command::new("/no/such/command"), &background()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

/// Go: TestWaitInterrupt/SIGKILL. Another process keeps the output open: the call does not wait for that process.
#[test]
fn output_that_another_process_keeps_open() {
    const ANOTHER: &str = "exec 3<&0; cat <&3 & echo";
    everywhere(|| {
        // The process is killed.
        let mut child = shell(&format!("{ANOTHER}; exec cat <&3")).stderr(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        until_ready(&mut child);
        assert_canceled(OnDone::new().wait_with_output(&mut child, &canceled()));
        assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
        drop(input); // ends the other process

        // The process ends by itself.
        let mut child = shell(&format!("{ANOTHER}; exit 0")).spawn().unwrap();
        let input = child.stdin.take();
        let error = OnDone::new().wait_delay(10 * MS).wait_with_output(&mut child, &background()).unwrap_err();
        assert_eq!(error.to_string(), "the output did not end within the wait delay");
        assert!(child.try_wait().unwrap().unwrap().success());
        drop(input);

        // Without a delay, the call waits for the other process, too.
        let mut child = shell(&format!("{ANOTHER}; exit 0")).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        until_ready(&mut child);
        go(move || input.write_all(b"late").unwrap());
        let output = OnDone::new().wait_with_output(&mut child, &background()).unwrap();
        assert_eq!(output.stdout, b"late");
    });
}

#[test]
fn many_processes() {
    let _watchdog = Watchdog::new();
    run(|| {
        let group = Arc::new(WaitGroup::new());
        for n in 0..40_i32 {
            group.go(move || {
                let script = format!("echo {n}; exit {n}");
                let output = output_limited(&mut shell(&script), &background()).unwrap();
                assert_eq!(output.status.code(), Some(n));
                assert_eq!(output.stdout, format!("{n}\n").as_bytes());
            });
        }
        group.wait();
    });
}

/// A process is outside of a bubble: no time passes while a goroutine waits for its end.
#[test]
fn a_bubble_waits_for_a_process() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let (ctx, _cancel) = context::with_timeout(&background(), MS);
        let output = output_limited(&mut shell("sleep 0.05; echo late"), &ctx).unwrap();
        assert_eq!(output.stdout, b"late\n");
        assert!(ctx.err().is_none());
    });
}
