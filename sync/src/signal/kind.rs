//! The signals that a program can wait for.

use std::fmt;

use signal_hook::low_level::signal_name;

/// A signal that a program can wait for.
///
/// Signals that a program cannot wait for have no value of this type. These are `SIGKILL` and `SIGSTOP`, which no
/// program sees; and `SIGSEGV`, `SIGBUS`, `SIGFPE` and `SIGILL`, which a fault of the program itself raises. Signals
/// whose default action is not known here, such as real-time signals, have no value either.
///
/// A signal is displayed as in Go: `interrupt`.
///
/// # Examples
///
/// ```
/// use sudog::signal::Signal;
///
/// assert_eq!(Signal::INT.to_string(), "interrupt");
/// assert_eq!(Signal::from_raw(libc::SIGINT), Some(Signal::INT));
/// assert_eq!(Signal::from_raw(libc::SIGKILL), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

/// The signals that have no [`Signal`]. Except for `SIGKILL` and `SIGSTOP`, the running instruction raises these
/// signals: if the handler returned, that instruction would run again.
const FAULTS: [i32; 6] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

macro_rules! signals {
    ($($NAME:ident = $number:ident, $go:literal;)+) => {
        impl Signal {
            $(
                #[doc = concat!("`", stringify!($number), "`: ", $go, ".")]
                pub const $NAME: Self = Self(libc::$number as u8);
            )+
        }

        /// Returns the text of Go's `syscall.Signal.String`.
        fn words(signal: Signal) -> Option<&'static str> {
            match i32::from(signal.0) {
                $(libc::$number => Some($go),)+
                _ => None,
            }
        }
    };
}

signals! {
    HUP = SIGHUP, "hangup";
    INT = SIGINT, "interrupt";
    QUIT = SIGQUIT, "quit";
    TRAP = SIGTRAP, "trace/breakpoint trap";
    ABRT = SIGABRT, "aborted";
    USR1 = SIGUSR1, "user defined signal 1";
    USR2 = SIGUSR2, "user defined signal 2";
    PIPE = SIGPIPE, "broken pipe";
    ALRM = SIGALRM, "alarm clock";
    TERM = SIGTERM, "terminated";
    CHLD = SIGCHLD, "child exited";
    CONT = SIGCONT, "continued";
    TSTP = SIGTSTP, "stopped";
    TTIN = SIGTTIN, "stopped (tty input)";
    TTOU = SIGTTOU, "stopped (tty output)";
    URG = SIGURG, "urgent I/O condition";
    XCPU = SIGXCPU, "CPU time limit exceeded";
    XFSZ = SIGXFSZ, "file size limit exceeded";
    VTALRM = SIGVTALRM, "virtual timer expired";
    PROF = SIGPROF, "profiling timer expired";
    WINCH = SIGWINCH, "window changed";
    IO = SIGIO, "I/O possible";
    SYS = SIGSYS, "bad system call";
}

impl Signal {
    /// Returns the signal with this number, if a program can wait for that signal.
    #[must_use]
    pub fn from_raw(number: i32) -> Option<Self> {
        let known = (1..=64).contains(&number) && signal_name(number).is_some() && !FAULTS.contains(&number);
        known.then_some(Self(number as u8))
    }

    /// Returns the signal's number.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        i32::from(self.0)
    }

    /// Returns all signals that a program can wait for, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=64).filter_map(Self::from_raw)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match words(*self) {
            Some(words) => f.pad(words),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(signal_name(self.as_raw()).unwrap_or("?"))
    }
}
