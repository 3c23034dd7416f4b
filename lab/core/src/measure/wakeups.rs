//! The sleeps of a single thread: its voluntary switches, which Linux counts (`getrusage(RUSAGE_THREAD)`).

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
        Self { switches, sleeps: Sleeps::default() }
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
        if let Some(now) = voluntary_switches() {
            self.sleeps.record(now - before);
            self.switches = Some(now);
        }
    }

    /// Returns the sleeps until now; `None` if the system does not count.
    pub fn counted(&self) -> Option<Sleeps> {
        self.switches.map(|_| self.sleeps)
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
        assert_eq!(counter.counted(), Some(Sleeps::default()));
        counter.waited(SleepCounter::SHORT + 1);
        assert!(counter.counted().unwrap().all >= 1);
    }

    #[test]
    fn of_those_who_are_no_threads_nothing_is_counted() {
        let mut counter = SleepCounter::start(false);
        counter.waited(u64::MAX);
        assert_eq!(counter.counted(), None);
    }
}
