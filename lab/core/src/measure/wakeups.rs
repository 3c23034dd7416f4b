//! The system's counts for a single thread: of the thread's sleeps, and of the thread's system calls.
//!
//! | | counts | where |
//! |---|---|---|
//! | [`SleepCounter`] | voluntary switches, by `getrusage(RUSAGE_THREAD)` | Linux |
//! | [`CallCounter`] | system calls, by the trace point `raw_syscalls:sys_enter` | Linux, if the user may use it |
//!
//! System calls could also be counted where our locks make them, in the runtime's futex. But that would count only our
//! locks, and only calls of that kind; the trace point counts all system calls of every lock alike.

#[cfg(target_os = "linux")]
use nix::sys::resource::{UsageWho, getrusage};

/// Counts the sleeps of the thread that created the counter.
///
/// The counter asks the system only after a wait that is longer than the shortest possible sleep, so a short wait costs
/// only a comparison. All voluntary switches since the last question are attributed to that wait. The few switches that
/// belong elsewhere, such as a release that sleeps, are attributed to the wait as well.
#[derive(Clone, Debug)]
pub struct SleepCounter {
    /// The system's count at the last question; `None` if the system does not count.
    switches: Option<u64>,
    sleeps: Sleeps,
    calls_made: u64,
}

/// Sleeps in waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sleeps {
    /// All sleeps.
    pub all: u64,
    /// The sleeps beyond the first in each wait. Each comes after a wake-up in vain, or after a wake-up at another
    /// place, if the lock makes a contender wait at two places.
    pub beyond_first: u64,
}

impl Sleeps {
    /// Records a wait with `sleeps` sleeps.
    fn record(&mut self, sleeps: u64) {
        self.all += sleeps;
        self.beyond_first += sleeps.saturating_sub(1);
    }

    /// Returns the sum of both.
    pub fn and(self, other: Self) -> Self {
        Self { all: self.all + other.all, beyond_first: self.beyond_first + other.beyond_first }
    }
}

impl SleepCounter {
    /// The shortest possible wait with a sleep, in ticks: 1 to 2 us of a processor's counter, 4 us of the system's
    /// clock.
    const SHORT: u64 = 4096;

    /// Starts counting the sleeps of the calling thread. Counts nothing if the thread is not that of a single
    /// contender.
    pub fn start(is_contender: bool) -> Self {
        let switches = if is_contender { voluntary_switches() } else { None };
        Self { switches, sleeps: Sleeps::default(), calls_made: u64::from(switches.is_some()) }
    }

    /// Notes a wait of `ticks` ticks.
    #[inline]
    pub fn waited(&mut self, ticks: u64) {
        if ticks > Self::SHORT {
            self.ask();
        }
    }

    #[cold]
    fn ask(&mut self) {
        let Some(before) = self.switches else { return };
        self.calls_made += 1;
        if let Some(now) = voluntary_switches() {
            self.sleeps.record(now - before);
            self.switches = Some(now);
        }
    }

    /// Returns the sleeps until now; `None` if the system does not count.
    pub fn counted(&self) -> Option<Sleeps> {
        self.switches.map(|_| self.sleeps)
    }

    /// Returns the number of questions to the system.
    pub fn calls_made(&self) -> u64 {
        self.calls_made
    }
}

/// Returns the voluntary switches of the calling thread, since the thread began.
#[cfg(target_os = "linux")]
fn voluntary_switches() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    Some(usage.voluntary_context_switches() as u64)
}

#[cfg(not(target_os = "linux"))]
fn voluntary_switches() -> Option<u64> {
    None
}

/// Counts the system calls of the thread that opened the counter.
#[derive(Debug)]
pub struct CallCounter {
    #[cfg(target_os = "linux")]
    counter: perf::Counter,
    /// The count at the beginning.
    before: u64,
}

impl CallCounter {
    /// Opens a counter for the calling thread. Fails, with the reason, if the system does not allow counting, or if the
    /// thread is not that of a single contender.
    #[cfg(target_os = "linux")]
    pub fn open(is_contender: bool) -> Result<Self, String> {
        if !is_contender {
            return Err("only those of threads are counted".into());
        }
        Ok(Self { counter: perf::Counter::of_system_calls()?, before: 0 })
    }

    /// Fails, with the reason.
    #[cfg(not(target_os = "linux"))]
    pub fn open(_: bool) -> Result<Self, String> {
        Err(format!("nobody counts them on {}", std::env::consts::OS))
    }

    /// Starts counting from now on.
    pub fn start(mut self) -> Self {
        self.before = self.read().unwrap_or(0);
        self
    }

    /// Returns the number of system calls from the start until now.
    pub fn until_now(&self) -> Result<u64, String> {
        // Take off the call that reads the counter: the system counts the call before the read.
        self.read().map(|now| now.saturating_sub(self.before + 1))
    }

    #[cfg(target_os = "linux")]
    fn read(&self) -> Result<u64, String> {
        self.counter.read().map_err(|error| format!("cannot read the counter: {error}"))
    }

    #[cfg(not(target_os = "linux"))]
    fn read(&self) -> Result<u64, String> {
        Err("there is none".into())
    }
}

/// Linux's counters of events.
#[cfg(target_os = "linux")]
mod perf {
    use std::fs::{self, File};
    use std::io::{self, Read};
    use std::os::fd::FromRawFd;

    /// The first version of the kernel's structure, which every kernel accepts.
    #[repr(C)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        wakeup_events: u32,
        bp_type: u32,
        config1: u64,
    }

    const TRACE_POINT: u32 = 2;

    /// A counter for an event of the thread that opened the counter, from then on.
    #[derive(Debug)]
    pub struct Counter(File);

    impl Counter {
        pub fn of_system_calls() -> Result<Self, String> {
            const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
            let path = |folder: &str| format!("{folder}/events/raw_syscalls/sys_enter/id");
            let id = FOLDERS.iter().find_map(|folder| fs::read_to_string(path(folder)).ok()?.trim().parse().ok());
            let id = id.ok_or_else(|| format!("{} cannot be read", path(FOLDERS[0])))?;
            Self::open(TRACE_POINT, id).map_err(|error| format!("perf_event_open: {error}"))
        }

        fn open(kind: u32, config: u64) -> io::Result<Self> {
            let attributes = Attributes {
                kind,
                size: size_of::<Attributes>() as u32,
                config,
                sample_period: 0,
                sample_type: 0,
                read_format: 0,
                flags: 0,
                wakeup_events: 0,
                bp_type: 0,
                config1: 0,
            };
            const THIS_THREAD: libc::pid_t = 0;
            const ANY: libc::c_int = -1;
            const CLOSE_ON_EXEC: libc::c_ulong = 8;
            // SAFETY: `attributes` lives during the call, has the kernel's layout, and states its own size.
            let fd = unsafe {
                libc::syscall(libc::SYS_perf_event_open, &raw const attributes, THIS_THREAD, ANY, ANY, CLOSE_ON_EXEC)
            };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the call above has just opened `fd`, and `fd` has no other owner.
            Ok(Self(unsafe { File::from_raw_fd(fd as i32) }))
        }

        pub fn read(&self) -> io::Result<u64> {
            let mut count = [0; 8];
            (&self.0).read_exact(&mut count)?;
            Ok(u64::from_ne_bytes(count))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::time::Duration;

        /// Uses context switches, an event of the same kind: the trace point needs privileges.
        #[test]
        fn events_of_this_thread_are_counted() {
            const SOFTWARE: u32 = 1;
            const CONTEXT_SWITCHES: u64 = 3;
            let Ok(counter) = Counter::open(SOFTWARE, CONTEXT_SWITCHES) else { return };
            let before = counter.read().unwrap();
            (0..3).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
            assert!(counter.read().unwrap() >= before + 3);
        }

        #[test]
        fn the_structure_is_the_kernels() {
            assert_eq!(size_of::<Attributes>(), 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sleep_of_a_wait_is_not_futile() {
        let mut sleeps = Sleeps::default();
        [0, 1, 3].iter().for_each(|&n| sleeps.record(n));
        assert_eq!(sleeps, Sleeps { all: 4, beyond_first: 2 });
        assert_eq!(sleeps.and(sleeps), Sleeps { all: 8, beyond_first: 4 });
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_long_waits_ask() {
        let mut counter = SleepCounter::start(true);
        std::thread::sleep(std::time::Duration::from_millis(1));
        counter.waited(SleepCounter::SHORT);
        assert_eq!((counter.counted(), counter.calls_made()), (Some(Sleeps::default()), 1));
        counter.waited(SleepCounter::SHORT + 1);
        assert!(counter.counted().unwrap().all >= 1 && counter.calls_made() == 2);
    }

    #[test]
    fn of_those_who_are_no_threads_nothing_is_counted() {
        let mut counter = SleepCounter::start(false);
        counter.waited(u64::MAX);
        assert_eq!((counter.counted(), counter.calls_made()), (None, 0));
        assert!(CallCounter::open(false).is_err());
    }

    #[test]
    fn calls_are_counted_or_it_is_said_why_not() {
        match CallCounter::open(true).map(CallCounter::start) {
            Err(why) => assert!(!why.is_empty()),
            Ok(counter) => {
                (0..5).for_each(|_| std::thread::sleep(std::time::Duration::from_micros(1)));
                assert!(counter.until_now().unwrap() >= 5);
            }
        }
    }
}
