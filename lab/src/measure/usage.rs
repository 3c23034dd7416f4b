//! What the operating system counts: for this process and its children, and for the whole machine.

use std::time::{Duration, Instant};
use sudog_runtime::shim::system;

#[cfg(all(unix, not(sudog_sim)))]
use nix::{
    sys::resource::{self, UsageWho, getrusage},
    sys::time::TimeVal,
    unistd::{SysconfVar, sysconf},
};

/// A warning, if the machine was not ours alone. On two processors of which one is taken, threads take turns on the
/// other and hardly ever meet: that is another benchmark.
#[must_use]
pub fn disturbance(other_cpus: Option<f64>) -> Option<String> {
    const TOLERABLE: f64 = 0.1;
    let others = other_cpus.filter(|&cpus| cpus > TOLERABLE)?;
    Some(format!("Others used {others:.2} processors meanwhile, so the figures are not to be relied upon."))
}

/// The processors and the switches that a run took; and what other processes took meanwhile, which disturb it.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// How often a thread was switched from because it waited.
    pub voluntary_switches: u64,
    /// How often because another thread was to run.
    pub involuntary_switches: u64,
    /// How many processors the process used, on average.
    pub cpus: f64,
    /// How many were used otherwise; nothing, if that cannot be told. To a hundredth of a second, so of a short run it
    /// says little.
    pub other_cpus: Option<f64>,
    /// Misses and lost copies of lines; nothing on a real machine.
    pub traffic: Option<Traffic>,
}

/// What a simulated machine counts of its caches.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Accesses that another cache or memory served.
    pub misses: u64,
    /// Caches that lost a line to a writer.
    pub invalidations: u64,
}

impl Traffic {
    #[cfg(sudog_sim)]
    fn now() -> Option<Self> {
        let sudog_sim::Traffic { misses, invalidations, .. } = sudog_sim::traffic();
        Some(Self { misses, invalidations })
    }

    #[cfg(not(sudog_sim))]
    fn now() -> Option<Self> {
        None
    }

    fn since(self, before: Self) -> Self {
        Self { misses: self.misses - before.misses, invalidations: self.invalidations - before.invalidations }
    }
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    time: Instant,
    voluntary_switches: u64,
    involuntary_switches: u64,
    cpu: Duration,
    /// Of the whole machine.
    busy: Option<Duration>,
    traffic: Option<Traffic>,
}

impl Counts {
    /// What is to be said if others have disturbed us since.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        disturbance(self.usage_until_now().other_cpus)
    }

    /// Now. Of all threads and of all child processes that have been waited for.
    #[cfg(all(unix, not(sudog_sim)))]
    #[must_use]
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

    /// Now. Nothing is counted here.
    #[cfg(any(not(unix), sudog_sim))]
    #[must_use]
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

    /// From then until now.
    #[must_use]
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

/// How long all processors together have been busy since the machine was started. What a hypervisor has taken away
/// counts, as it is not ours.
#[cfg(all(unix, not(sudog_sim)))]
fn busy() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two already.
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
