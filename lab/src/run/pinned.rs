//! A processor of one's own, where that can be had.

/// While it lives, this thread runs on one processor only. Does nothing where threads cannot be told where to run, or
/// where there are not so many processors.
#[derive(Debug)]
pub struct Pinned {
    #[cfg(target_os = "linux")]
    before: Option<libc::cpu_set_t>,
}

#[cfg(target_os = "linux")]
impl Pinned {
    /// To the `n`-th of those that this thread may run on.
    #[must_use]
    pub fn to(n: usize) -> Self {
        let before = allowed();
        let may_run_on = |set: &libc::cpu_set_t, cpu: usize| {
            // SAFETY: the number is below the size of the set.
            unsafe { libc::CPU_ISSET(cpu, set) }
        };
        let cpu = before.and_then(|set| (0..libc::CPU_SETSIZE as usize).filter(|&cpu| may_run_on(&set, cpu)).nth(n));
        if let Some(cpu) = cpu {
            let mut only = none();
            // SAFETY: as above.
            unsafe { libc::CPU_SET(cpu, &mut only) };
            set_allowed(&only);
        }
        Self { before: cpu.and(before) }
    }
}

#[cfg(not(target_os = "linux"))]
impl Pinned {
    /// Nothing.
    #[must_use]
    pub fn to(_: usize) -> Self {
        Self {}
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

#[cfg(target_os = "linux")]
fn none() -> libc::cpu_set_t {
    // SAFETY: an all-zero set is a valid, empty one.
    unsafe { std::mem::zeroed() }
}

/// Where this thread may run, if the system tells.
#[cfg(target_os = "linux")]
fn allowed() -> Option<libc::cpu_set_t> {
    let mut set = none();
    // SAFETY: `set` is a set of the size given; 0 is this thread.
    let told = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    (told == 0).then_some(set)
}

#[cfg(target_os = "linux")]
fn set_allowed(set: &libc::cpu_set_t) {
    // Should the system refuse, the thread runs where it did.
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn one_processor_and_then_all_again() {
        let count = || {
            // SAFETY: the set is one.
            allowed().map(|set| unsafe { libc::CPU_COUNT(&set) })
        };
        let before = count();
        let pinned = Pinned::to(0);
        assert!(before.is_none() || count() == Some(1));
        drop(pinned);
        assert_eq!(count(), before);
        drop(Pinned::to(1 << 20));
        assert_eq!(count(), before, "there are not so many");
    }
}
