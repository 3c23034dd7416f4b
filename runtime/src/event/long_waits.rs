//! A flight recorder that writes by itself: when a wait takes too long.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Recorder, Recording, rings};
use crate::fatal::say;
use crate::goroutine::{Dump, watch_long_waits};

impl Recorder {
    /// Calls `f` whenever a goroutine or thread has waited for longer than `threshold` and still waits, until the recording
    /// under way ends. `f` gets the long waits, as a dump, and the events up to now. Go's `trace.FlightRecorder`, without the
    /// code that decides when to write.
    ///
    /// A wait counts if its [reason](crate::goroutine::GoroutineInfo::wait_reason) begins with one of `kinds`, and is
    /// reported once. A wait that ends less than a quarter of `threshold` (10 ms to 2 s) after it has become too long may be
    /// missed. Threads have wait reasons, and the dump has stacks, as in [`dump`](fn@crate::goroutine::dump).
    ///
    /// `f` runs on a thread of its own, and so may block. The next look comes after 20 times the time that the look and `f`
    /// took, 2 s at most. A panic of `f` ends the looks. As `f` may end a wait, no deadlock of all goroutines is reported
    /// until the thread has ended.
    ///
    /// # Errors
    ///
    /// If no recording is under way, if `threshold` is zero, or if the system gives no thread.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// use std::time::Duration;
    /// use sudog::low_level::event::Recorder;
    ///
    /// Recorder::new().goroutines().start();
    /// Recorder::on_long_wait(&["sync.Mutex", "sync.RWMutex"], Duration::from_millis(200), |waits, mut recording| {
    ///     recording.keep_last(Duration::from_secs(5));
    ///     eprintln!("{waits}{} events led to this", recording.events.len());
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_long_wait(
        kinds: &'static [&'static str],
        threshold: Duration,
        f: impl FnMut(&Dump, Recording) + Send + 'static,
    ) -> io::Result<()> {
        Self::call_on_long_wait(kinds, threshold, true, f)
    }

    /// Does the same as [`on_long_wait`](Self::on_long_wait). `is_users` is true if `f` is a function of the user.
    fn call_on_long_wait(
        kinds: &'static [&'static str],
        threshold: Duration,
        is_users: bool,
        mut f: impl FnMut(&Dump, Recording) + Send + 'static,
    ) -> io::Result<()> {
        if threshold.is_zero() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a threshold of no time"));
        }
        let Some(number) = rings::number() else { return Err(io::Error::other("no recording is under way")) };
        let is_over = move || rings::number() != Some(number);
        watch_long_waits(kinds, threshold, is_over, is_users, move |waits| f(waits, rings::snapshot()))
    }

    /// Writes a [trace](Recording::write_trace) of the events up to now to a file whenever a wait takes too long: see
    /// [`on_long_wait`](Self::on_long_wait). The file is replaced as a whole, by a file beside it whose name ends in
    /// `.part`. If the file cannot be replaced, a line on standard error says why.
    ///
    /// # Errors
    ///
    /// The errors of [`on_long_wait`](Self::on_long_wait). If the file cannot be written.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// use std::time::Duration;
    /// use sudog::low_level::event::Recorder;
    ///
    /// Recorder::new().goroutines().start();
    /// let file = std::env::temp_dir().join("long-wait.json"); // for https://ui.perfetto.dev
    /// Recorder::write_on_long_wait(&["sync.Mutex"], Duration::from_millis(200), file)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_on_long_wait(
        kinds: &'static [&'static str],
        threshold: Duration,
        path: impl Into<PathBuf>,
    ) -> io::Result<()> {
        let path = path.into();
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Find out now, not when it matters, whether the file can be written.
        let part = part(&path);
        drop(File::create(&part)?);
        fs::remove_file(&part)?;
        Self::call_on_long_wait(kinds, threshold, false, move |_, recording| {
            if let Err(error) = replace(&path, &recording) {
                say(&format!("sudog: cannot write the trace of a long wait to {}: {error}\n", path.display()));
            }
        })
    }
}

/// Returns the path of the file that replaces `path`.
fn part(path: &Path) -> PathBuf {
    let mut part = OsString::from(path);
    part.push(".part");
    part.into()
}

/// Replaces the file by a trace.
fn replace(path: &Path, recording: &Recording) -> io::Result<()> {
    let part = part(path);
    let written =
        File::create(&part).and_then(|file| recording.write_trace(file)).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        _ = fs::remove_file(&part);
    }
    written
}
