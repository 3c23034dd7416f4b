//! The operating system's counts: for this process and its children, and for the whole machine.

use std::time::{Duration, Instant};
use sudog_runtime::shim::system;

#[cfg(all(unix, not(sudog_sim)))]
use nix::{
    sys::resource::{self, UsageWho, getrusage},
    sys::time::TimeVal,
    unistd::{SysconfVar, sysconf},
};

/// Returns the mean over some runs of the number of processors that other processes used; `None` if the system does not
/// tell.
pub fn others(runs: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let n = runs.len() as f64;
    runs.sum::<Option<f64>>().map(|sum| sum / n)
}

/// Returns a warning if other processes used the machine as well. If another process takes one of two processors,
/// threads take turns on the other and hardly ever meet: that is a different benchmark.
pub fn disturbance(other_cpus: Option<f64>) -> Option<String> {
    const TOLERABLE: f64 = 0.1;
    let others = other_cpus.filter(|&cpus| cpus > TOLERABLE)?;
    Some(format!("Others used {others:.2} processors meanwhile, so the figures are not to be relied upon."))
}

/// The processors and the switches that a run took, and the processors that other processes took meanwhile, which
/// disturbs the run.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The number of switches away from a thread because the thread waited.
    pub voluntary_switches: u64,
    /// The number of switches away from a thread because another thread was to run.
    pub involuntary_switches: u64,
    /// The number of processors that the process used, on average.
    pub cpus: f64,
    /// The number of processors that other processes used, on average; `None` if the system does not tell. The system
    /// counts to a hundredth of a second, so for a short run the number says little.
    pub other_cpus: Option<f64>,
    /// Misses and lost copies of lines; `None` on a real machine.
    pub traffic: Option<Traffic>,
}

/// A simulated machine's counts of cache traffic.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Accesses that another cache or memory served.
    pub misses: u64,
    /// Caches that lost a line to a writer.
    pub invalidations: u64,
    /// Accesses to a page that the core's TLB did not hold; 0 on a machine without TLBs.
    pub tlb_misses: u64,
    /// Futex calls that found their bucket locked; 0 on a machine without a futex table.
    pub futex_waits: u64,
}

impl Traffic {
    #[cfg(sudog_sim)]
    fn now() -> Option<Self> {
        let sudog_sim::Traffic { misses, invalidations, tlb_misses, futex_waits, .. } = sudog_sim::traffic();
        Some(Self { misses, invalidations, tlb_misses, futex_waits })
    }

    #[cfg(not(sudog_sim))]
    fn now() -> Option<Self> {
        None
    }

    fn since(self, before: Self) -> Self {
        Self {
            misses: self.misses - before.misses,
            invalidations: self.invalidations - before.invalidations,
            tlb_misses: self.tlb_misses - before.tlb_misses,
            futex_waits: self.futex_waits - before.futex_waits,
        }
    }
}

/// The counts at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    time: Instant,
    voluntary_switches: u64,
    involuntary_switches: u64,
    cpu: Duration,
    /// The time of all processors of the machine together.
    busy: Option<Duration>,
    traffic: Option<Traffic>,
}

impl Counts {
    /// Returns a warning if other processes have disturbed this process since.
    pub fn warning(&self) -> Option<String> {
        disturbance(self.usage_until_now().other_cpus)
    }

    /// Returns the counts of all threads, and of all child processes that have been waited for, until now.
    #[cfg(all(unix, not(sudog_sim)))]
    pub fn now() -> Self {
        let [ours, children] =
            [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(|who| getrusage(who).expect("getrusage takes both"));
        let duration = |t: TimeVal| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000);
        let cpu = |usage: resource::Usage| duration(usage.user_time()) + duration(usage.system_time());
        Self {
            time: system::now(),
            voluntary_switches: (ours.voluntary_context_switches() + children.voluntary_context_switches()) as u64,
            involuntary_switches: (ours.involuntary_context_switches() + children.involuntary_context_switches())
                as u64,
            cpu: cpu(ours) + cpu(children),
            busy: busy(),
            traffic: Traffic::now(),
        }
    }

    /// Returns the counts until now. The counts of the operating system are missing here.
    #[cfg(any(not(unix), sudog_sim))]
    pub fn now() -> Self {
        Self {
            time: system::now(),
            voluntary_switches: 0,
            involuntary_switches: 0,
            cpu: Duration::ZERO,
            busy: None,
            traffic: Traffic::now(),
        }
    }

    /// Returns the usage from these counts until now.
    pub fn usage_until_now(self) -> Usage {
        let now = Self::now();
        let seconds = (now.time - self.time).as_secs_f64();
        let cpu = now.cpu.saturating_sub(self.cpu);
        let busy = now.busy.zip(self.busy).map(|(now, then)| now.saturating_sub(then));
        Usage {
            voluntary_switches: now.voluntary_switches - self.voluntary_switches,
            involuntary_switches: now.involuntary_switches - self.involuntary_switches,
            cpus: cpu.as_secs_f64() / seconds,
            other_cpus: busy.map(|busy| busy.saturating_sub(cpu).as_secs_f64() / seconds),
            traffic: now.traffic.zip(self.traffic).map(|(now, before)| now.since(before)),
        }
    }
}

/// Returns the time for which all processors together have been busy since the machine was started. Time that a
/// hypervisor has taken away counts as busy, as this process did not get that time.
#[cfg(all(unix, not(sudog_sim)))]
fn busy() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    // Columns: user, nice, system, idle, iowait, irq, softirq, steal. Guests are included in the first two.
    let times: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
    let ticks = [0, 1, 2, 5, 6, 7].into_iter().map(|column| times.get(column).copied()).sum::<Option<u64>>()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_use_is_counted_as_ours() {
        let counts = Counts::now();
        while counts.time.elapsed() < Duration::from_millis(20) {}
        let usage = counts.usage_until_now();
        assert!(usage.cpus >= 0.0 && usage.cpus.is_finite());
        if cfg!(target_os = "linux") {
            assert!(usage.other_cpus.is_some());
        }
    }
}
