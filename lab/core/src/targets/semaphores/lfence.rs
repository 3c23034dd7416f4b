//! A wait policy for the claim that LFENCE may stand in place of PAUSE in spin loops.

use sudog_locks::waiting_array::{Spin, WaitPolicy};

/// A policy like [`Spin`], that executes LFENCE in place of PAUSE on x86-64. A simulated machine knows no instructions, so
/// there the policy is [`Spin`].
#[derive(Clone, Copy, Debug)]
pub struct Lfence;

impl WaitPolicy for Lfence {
    const PARKS: bool = false;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        #[cfg(all(target_arch = "x86_64", not(sudog_sim)))]
        if !sudog_runtime::G::is_goroutine() {
            // SAFETY: each processor of x86-64 has LFENCE, which changes no memory.
            unsafe { std::arch::x86_64::_mm_lfence() };
            return true;
        }
        Spin::pass_time(iter)
    }
}
