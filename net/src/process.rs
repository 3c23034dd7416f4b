//! Waits for processes that block a goroutine, not its worker, and that end at a limit: Go's `os/exec`, over `std`'s
//! [`Child`].
//!
//! | Go | here |
//! |---|---|
//! | `cmd.Wait()` | [`wait`] |
//! | `exec.CommandContext(ctx, ..)`, then `cmd.Wait()`; `cmd.Output()` | [`wait_limited`]; [`output_limited`] |
//! | `cmd.Cancel`, `cmd.WaitDelay` | [`OnDone::cancel`], [`OnDone::wait_delay`] |
//! | `cmd.StdoutPipe()` | `child.stdout`, in a [`BlockingIo`](crate::BlockingIo) |
//!
//! Everything else is `std`'s: [`Command`] starts a process.
//!
//! The poller watches a process by a pidfd. Where there is none (on other systems than Linux, before Linux 5.3, or under
//! a filter of system calls), a [`blocking`] call waits.
//!
//! In a bubble of `synctest` a wait for a process is like a call of a socket: the clock stands still meanwhile, so a
//! deadline by the bubble's clock does not end the wait.

use std::fmt;
use std::io::{self, Read};
use std::mem::MaybeUninit;
#[cfg(target_os = "linux")]
use std::os::fd::FromRawFd;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use sudog_runtime::chan::Chan;
use sudog_runtime::goroutine::{blocking, go, now, scope};
use sudog_runtime::sema::{IntoLimit, WaitLimit};

use crate::Side;
use crate::fd::{NetFd, limited, run_limited};

/// Waits as [`Child::wait`] does, but blocks only the calling goroutine.
///
/// # Errors
///
/// An error of the system.
///
/// # Examples
///
/// ```
/// use std::process::Command;
/// use sudog::net::process;
/// use sudog::run;
///
/// let status = run(|| process::wait(&mut Command::new("true").spawn()?))?;
/// assert!(status.success());
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    drop(child.stdin.take()); // as `Child::wait` does: the process may read its input to the end before it ends
    match Exit::of(child)? {
        Exit::Ended(status) => Ok(status),
        exit => exit.wait(child, &WaitLimit::default()),
    }
}

/// Waits as [`wait`] does. If the limit comes before the process has ended, kills the process, and waits for its end. See
/// [`IntoLimit`]. Go's `exec.CommandContext`. [`OnDone`] ends a process in other ways.
///
/// # Errors
///
/// An error of the system, or the limit's error: of kind `TimedOut` after a deadline, else `Other`. The process has ended
/// then, and [`Child::try_wait`] returns its status.
///
/// # Examples
///
/// ```
/// use std::io::ErrorKind;
/// use std::process::Command;
/// use std::time::Duration;
/// use sudog::net::process;
/// use sudog::{context, run};
///
/// run(|| {
///     let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(10));
///     let mut child = Command::new("sleep").arg("60").spawn().unwrap();
///     let error = process::wait_limited(&mut child, &ctx).unwrap_err();
///     assert_eq!(error.kind(), ErrorKind::TimedOut);
/// });
/// ```
pub fn wait_limited<L: IntoLimit<Error: Into<io::Error>>>(child: &mut Child, limit: L) -> io::Result<ExitStatus> {
    OnDone::new().wait(child, limit)
}

/// Runs a command, and returns its output. If the limit comes before the process has ended, kills the process. See
/// [`IntoLimit`]. Go's `cmd.Output()`, after `exec.CommandContext`.
///
/// The command's standard input is empty, whatever `command` says. For other settings, start the process, and call
/// [`OnDone::wait_with_output`].
///
/// # Errors
///
/// The same as those of [`OnDone::wait_with_output`], and an error of the start. If the limit is a context that is done
/// already, the process is not started.
///
/// # Examples
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
/// use sudog::net::process;
/// use sudog::run;
///
/// let output = run(|| process::output_limited(Command::new("echo").arg("hello"), Duration::from_secs(60)))?;
/// assert_eq!(output.stdout, b"hello\n");
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn output_limited<L: IntoLimit<Error: Into<io::Error>>>(command: &mut Command, limit: L) -> io::Result<Output> {
    limited(limit, |limit| {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        OnDone::new().wait_with_output(&mut child, limit)
    })
}

type CancelFn<'a> = Box<dyn FnOnce(&mut Child) -> io::Result<()> + Send + 'a>;

/// The way in which a process is ended if the limit of the wait comes first. Go's `Cancel` and `WaitDelay` of `exec.Cmd`.
///
/// # Examples
///
/// The process is asked to end, and killed if it has not ended five seconds later:
///
/// ```
/// use std::process::Command;
/// use std::time::Duration;
/// use sudog::net::process::OnDone;
/// use sudog::{context, run};
///
/// run(|| {
///     let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(10));
///     let mut child = Command::new("sleep").arg("60").spawn().unwrap();
///     let ask = |child: &mut std::process::Child| {
///         // SAFETY: `kill` has no preconditions. The process has not been waited for, so the id is its own.
///         match unsafe { libc::kill(child.id() as i32, libc::SIGTERM) } {
///             0 => Ok(()),
///             _ => Err(std::io::Error::last_os_error()),
///         }
///     };
///     let on_done = OnDone::new().cancel(ask).wait_delay(Duration::from_secs(5));
///     on_done.wait(&mut child, &ctx).unwrap_err();
///     assert!(!child.try_wait().unwrap().unwrap().success());
/// });
/// ```
#[derive(Default)]
pub struct OnDone<'a> {
    /// None: kills the process.
    cancel: Option<CancelFn<'a>>,
    wait_delay: Option<Duration>,
}

impl<'a> OnDone<'a> {
    /// Kills the process, and waits for its end without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `cancel` in place of killing the process. Go's `cmd.Cancel`. If the process then goes on, so does the wait,
    /// unless there is a [`wait_delay`](Self::wait_delay).
    #[must_use]
    pub fn cancel(self, cancel: impl FnOnce(&mut Child) -> io::Result<()> + Send + 'a) -> Self {
        Self { cancel: Some(Box::new(cancel)), ..self }
    }

    /// Kills the process if the process has not ended this long after the limit of the wait. Also bounds the time between
    /// the end of the process and the end of its output, which a child of the process may keep open. Go's
    /// `cmd.WaitDelay`.
    #[must_use]
    pub fn wait_delay(self, delay: Duration) -> Self {
        Self { wait_delay: Some(delay), ..self }
    }

    /// Waits as [`wait_limited`] does.
    ///
    /// # Errors
    ///
    /// The same as those of [`wait_limited`]; or the error of the function given to [`cancel`](Self::cancel), in place of
    /// the limit's error.
    pub fn wait<L: IntoLimit<Error: Into<io::Error>>>(self, child: &mut Child, limit: L) -> io::Result<ExitStatus> {
        drop(child.stdin.take()); // as in `wait`
        let exit = match Exit::of(child)? {
            Exit::Ended(status) => return Ok(status),
            exit => exit,
        };
        let error = match run_limited(limit, |limit| exit.wait(child, limit)) {
            Ok(result) => return result,
            Err(error) => error.into(),
        };
        if let Some(status) = child.try_wait()? {
            return Ok(status); // ended by itself
        }
        let canceled = match self.cancel {
            Some(cancel) => cancel(child),
            None => child.kill(),
        };
        if let Some(delay) = self.wait_delay {
            match run_limited(delay, |limit| exit.wait(child, limit)) {
                Err(_) => child.kill()?,
                Ok(result) => _ = result?,
            }
        }
        exit.wait(child, &WaitLimit::default())?;
        Err(canceled.err().unwrap_or(error))
    }

    /// Waits as [`wait_limited`] does, and collects what the process writes to its standard output and standard error, if
    /// these are pipes. Like [`Child::wait_with_output`].
    ///
    /// # Errors
    ///
    /// The same as those of [`wait`](Self::wait): what the process has written is lost then. `TimedOut`, if the output has
    /// not ended within the [`wait_delay`](Self::wait_delay) of the end of the process.
    pub fn wait_with_output<L: IntoLimit<Error: Into<io::Error>>>(
        self,
        child: &mut Child,
        limit: L,
    ) -> io::Result<Output> {
        let stdout = child.stdout.take().map(|pipe| OutputPipe::new(pipe.into())).transpose()?;
        let stderr = child.stderr.take().map(|pipe| OutputPipe::new(pipe.into())).transpose()?;
        let pipes = [stdout, stderr];
        let wait_delay = self.wait_delay;
        scope(|s| {
            let reads =
                pipes.each_ref().map(|pipe| s.spawn(|| pipe.as_ref().map_or(Ok(Vec::new()), OutputPipe::read_all)));
            // After an error, or a panic of `cancel`, the output is of no use. So do not wait for other processes that keep
            // the pipes open.
            let _end = EndReads(&pipes);
            let status = self.wait(child, limit)?;
            if let Some(deadline) = wait_delay.and_then(|delay| now().checked_add(delay)) {
                set_deadline(&pipes, deadline);
            }
            let late = |error: io::Error| match error.kind() {
                io::ErrorKind::TimedOut => io::Error::new(error.kind(), "the output did not end within the wait delay"),
                _ => error,
            };
            let [stdout, stderr] =
                reads.map(|read| read.join().unwrap_or_else(|payload| resume_unwind(payload)).map_err(late));
            Ok(Output { status, stdout: stdout?, stderr: stderr? })
        })
    }
}

/// A guard whose drop ends the reads of some pipes.
struct EndReads<'a>(&'a [Option<OutputPipe>]);

impl Drop for EndReads<'_> {
    fn drop(&mut self) {
        set_deadline(self.0, now());
    }
}

fn set_deadline(pipes: &[Option<OutputPipe>], deadline: Instant) {
    for pipe in pipes.iter().flatten() {
        _ = pipe.fd.set_deadline(&[Side::Read], Some(deadline)); // fails for a closed descriptor, and this one is open
    }
}

impl fmt::Debug for OnDone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills = self.cancel.is_none();
        f.debug_struct("OnDone").field("kills", &kills).field("wait_delay", &self.wait_delay).finish()
    }
}

/// A way to learn that a process has ended.
enum Exit {
    Ended(ExitStatus),
    /// A pidfd, which is readable once the process has ended.
    #[cfg(target_os = "linux")]
    Polled(NetFd<OwnedFd>),
    /// A channel that is closed once the process has ended.
    Blocking(Chan<()>),
}

impl Exit {
    fn of(child: &mut Child) -> io::Result<Self> {
        if let Some(status) = child.try_wait()? {
            return Ok(Self::Ended(status));
        }
        #[cfg(target_os = "linux")]
        if let Some(exit) = Self::polled(child.id()) {
            return Ok(exit);
        }
        Ok(Self::blocking(child))
    }

    /// Opens a pidfd. Returns None if the system has none, or if no descriptors are left.
    #[cfg(target_os = "linux")]
    fn polled(id: u32) -> Option<Self> {
        // SAFETY: no preconditions. The process has not been waited for, so the id is its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the call has just opened `fd`, so nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        NetFd::new(fd).ok().map(Self::Polled)
    }

    fn blocking(child: &Child) -> Self {
        let ended = Chan::new(0);
        let (closes, id) = (ended.clone(), child.id());
        go(move || {
            blocking(|| until_ended(id));
            closes.close();
        });
        Self::Blocking(ended)
    }

    /// Waits for the end of the process, and returns its status. Gives up at the limit.
    fn wait(&self, child: &mut Child, limit: &WaitLimit<'_>) -> io::Result<ExitStatus> {
        match self {
            Self::Ended(status) => Ok(*status),
            #[cfg(target_os = "linux")]
            Self::Polled(fd) => fd.call(Side::Read, limit, |_| {
                child.try_wait()?.ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))
            }),
            Self::Blocking(ended) => {
                ended.recv_limited(limit)?;
                child.wait() // does not wait any more
            }
        }
    }
}

/// Waits until a child of this process has ended, and leaves its status for [`Child::wait`].
fn until_ended(id: u32) {
    loop {
        let mut info = MaybeUninit::uninit(); // not read
        // SAFETY: the call writes to `info`, which outlives the call.
        let result = unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
        if result == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// The end of a pipe that has the output of a process.
struct OutputPipe {
    fd: NetFd<io::PipeReader>,
}

impl OutputPipe {
    fn new(pipe: OwnedFd) -> io::Result<Self> {
        // SAFETY: `pipe` is open. `F_GETFL` and `F_SETFL` take and return flags.
        let result = unsafe {
            let flags = libc::fcntl(pipe.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd: NetFd::new(pipe.into())? })
    }

    /// Reads to the end.
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut output = Vec::new();
        let mut reader = self;
        reader.read_to_end(&mut output)?;
        Ok(output)
    }
}

impl Read for &OutputPipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.fd.call(Side::Read, &WaitLimit::default(), |mut pipe| pipe.read(buf))
    }
}

#[cfg(test)]
mod tests {
    use sudog_runtime::sema::Cancel;

    use super::*;

    /// Tests the wait on a system that has no pidfd.
    #[test]
    fn without_a_pidfd() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let exit = Exit::blocking(&child);
        let cancel = Cancel::new();
        cancel.cancel();
        let limit = WaitLimit { cancel: Some(&cancel), ..WaitLimit::default() };
        exit.wait(&mut child, &limit).unwrap_err();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        assert!(!exit.wait(&mut child, &WaitLimit::default()).unwrap().success());

        let mut child = Command::new("true").spawn().unwrap();
        assert!(Exit::blocking(&child).wait(&mut child, &WaitLimit::default()).unwrap().success());
    }
}
