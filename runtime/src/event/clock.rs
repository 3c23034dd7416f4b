//! The time of an event: the processor's counter where that is usable, because reading the system's clock takes longer
//! than the rest of an event.
//!
//! If one event happens before another (the first under a lock, the second after the release of that lock), the second
//! must not have the smaller time. So the reading of the counter waits for earlier instructions (`lfence`). The store
//! of the time depends on the reading, so the release of the lock, which comes after that store, cannot come before the
//! reading.

use crate::shim::system;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// True if the counter runs at a constant rate. Written before the first event is recorded.
static STEADY: AtomicBool = AtomicBool::new(false);

/// The values of both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    ticks: u64,
    time: Instant,
}

/// Converts ticks into the time since a first reading.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    start: u64,
    ns_per_tick: f64,
}

impl Reading {
    /// Reads the system's clock between two readings of the counter. Tries several times, and keeps the try whose two
    /// readings of the counter are closest, as another thread may run between the readings.
    #[must_use]
    pub fn now() -> Self {
        const TRIES: usize = 8;
        STEADY.store(is_steady(), Relaxed);
        let one = |_| {
            let before = ticks();
            let time = system::now();
            let apart = ticks().saturating_sub(before);
            (apart, Self { ticks: before + apart / 2, time })
        };
        let best = (0..TRIES).map(one).min_by_key(|&(apart, _)| apart);
        best.expect("there is more than one try").1
    }

    /// Returns the counter's value.
    #[must_use]
    pub fn ticks(self) -> u64 {
        self.ticks
    }

    /// Makes a second reading, and returns the scale that follows from both readings.
    #[must_use]
    pub fn scale(self) -> Scale {
        let now = Self::now();
        let ticks = now.ticks.saturating_sub(self.ticks).max(1);
        let ns_per_tick =
            if STEADY.load(Relaxed) { (now.time - self.time).as_nanos() as f64 / ticks as f64 } else { 1.0 };
        Scale { start: self.ticks, ns_per_tick }
    }
}

impl Scale {
    /// Returns the time from the first reading to these ticks; zero if the ticks came before that reading.
    #[must_use]
    pub fn time(&self, ticks: u64) -> Duration {
        let ns = ticks.saturating_sub(self.start) as f64 * self.ns_per_tick;
        Duration::from_nanos(ns as u64)
    }
}

/// Returns the counter's value. Ticks of different threads are comparable as far as the processors' counters agree.
///
/// The caller must have made a [`Reading`] before, because that decides which counter is used.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if STEADY.load(Relaxed) {
        // SAFETY: every x86-64 processor has both instructions.
        return unsafe {
            std::arch::x86_64::_mm_lfence();
            std::arch::x86_64::_rdtsc()
        };
    }
    system_ns()
}

#[cold]
fn system_ns() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(system::now);
    system::now().saturating_duration_since(epoch).as_nanos() as u64
}

#[cfg(all(target_arch = "x86_64", not(sudog_sim)))]
fn is_steady() -> bool {
    /// "Advanced power management information", with bit 8 of `edx` for the invariant counter.
    const LEAF: u32 = 0x8000_0007;
    let most = std::arch::x86_64::__cpuid(0x8000_0000).eax;
    most >= LEAF && std::arch::x86_64::__cpuid(LEAF).edx & (1 << 8) != 0
}

#[cfg(any(sudog_sim, not(target_arch = "x86_64")))]
fn is_steady() -> bool {
    false
}
