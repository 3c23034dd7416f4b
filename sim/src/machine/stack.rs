//! Stacks of simulated threads.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr;

use corosensei::stack::{Stack as CoroutineStack, StackPointer};

use super::ThreadId;
use super::region::{ARENA_SIZE, Region, map};

/// The size of a stack with its guard.
const SIZE: usize = 1 << 20;
const GUARD: usize = 1 << 14;

/// A stack with a guard below it. The stack is unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Stack(usize);

impl Stack {
    /// Maps the stack with this number in a region. No other stack of the region has the number.
    pub(crate) fn new(region: Region, number: usize) -> io::Result<Self> {
        let limit = region.stacks() + number * SIZE;
        map(limit, SIZE)?;
        let stack = Self(limit);
        // SAFETY: the range is the first pages of the mapping above, which no code uses yet.
        if unsafe { libc::mprotect(ptr::without_provenance_mut(limit), GUARD, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }
}

/// Returns the number of the stack in which this address of a region lies, and the addresses of that stack without its
/// guard.
pub(crate) fn owner(region: Region, address: usize) -> Option<(ThreadId, Range<usize>)> {
    let offset = address.checked_sub(region.stacks()).filter(|offset| *offset < ARENA_SIZE)?;
    let number = offset / SIZE;
    let limit = region.stacks() + number * SIZE;
    Some((number, limit + GUARD..limit + SIZE))
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped this range, and the coroutine on the stack has ended.
        unsafe { libc::munmap(ptr::without_provenance_mut(self.0), SIZE) };
    }
}

// SAFETY:
// - a guard lies at the lower end, from `limit` on;
// - base and limit are aligned to pages.
unsafe impl CoroutineStack for Stack {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.0 + SIZE).expect("it is not at address 0")
    }

    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.0).expect("it is not at address 0")
    }
}
