//! `Pinned`: binds a thread to a processor, where the system can.

#[cfg(target_os = "linux")]
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// A guard: while the guard lives, its thread runs on one processor only. Does nothing where threads cannot be told
/// where to run, or where there are not so many processors.
#[derive(Debug)]
pub struct Pinned {
    #[cfg(target_os = "linux")]
    before: Option<CpuSet>,
}

#[cfg(target_os = "linux")]
impl Pinned {
    /// Binds this thread to the `n`-th of the processors that this thread may run on.
    pub fn to(n: usize) -> Self {
        let before = allowed();
        let is_allowed = |set: &CpuSet, cpu: usize| set.is_set(cpu) == Ok(true);
        let cpu = before.and_then(|set| (0..CpuSet::count()).filter(|&cpu| is_allowed(&set, cpu)).nth(n));
        let mut only = CpuSet::new();
        let Some(Ok(())) = cpu.map(|cpu| only.set(cpu)) else { return Self { before: None } };
        set_allowed(&only);
        Self { before }
    }
}

#[cfg(not(target_os = "linux"))]
impl Pinned {
    /// Does nothing.
    pub fn to(_: usize) -> Self {
        Self {}
    }
}

/// Binds all threads of this process, and the threads that they start, to the first of the calling thread's processors.
/// Does nothing where threads cannot be told where to run.
#[cfg(not(sudog_sim))]
pub fn bind_process() {
    std::mem::forget(Pinned::to(0));
    #[cfg(target_os = "linux")]
    if let (Some(only), Ok(tasks)) = (allowed(), std::fs::read_dir("/proc/self/task")) {
        let number = |name: std::ffi::OsString| name.to_str()?.parse().ok().map(Pid::from_raw);
        for task in tasks.filter_map(|task| number(task.ok()?.file_name())) {
            // Ignore errors: a thread may have ended since the directory was read.
            let _ = sched_setaffinity(task, &only);
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(before) = &self.before {
            set_allowed(before);
        }
    }
}

/// Returns the processors on which this thread may run, if the system tells.
#[cfg(target_os = "linux")]
fn allowed() -> Option<CpuSet> {
    sched_getaffinity(THIS_THREAD).ok()
}

#[cfg(target_os = "linux")]
fn set_allowed(set: &CpuSet) {
    // Ignore errors: if the system refuses, the thread runs where it ran before.
    let _ = sched_setaffinity(THIS_THREAD, set);
}

#[cfg(target_os = "linux")]
const THIS_THREAD: Pid = Pid::from_raw(0);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn one_processor_and_then_all_again() {
        let count = || allowed().map(|set| (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).count());
        let before = count();
        let pinned = Pinned::to(0);
        assert!(before.is_none() || count() == Some(1));
        drop(pinned);
        assert_eq!(count(), before);
        drop(Pinned::to(1 << 20));
        assert_eq!(count(), before, "there are not so many");
    }
}
