//! The addresses of a machine: an arena for the blocks that its program allocates, and stacks.
//!
//! The first machine of a process has the first region, in each process alike. No region is used twice, as results may
//! point into an arena.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The address of the first region. Linux maps nothing else there, in any layout of a process.
const BASE: usize = 0x1000_0000_0000;
const SIZE: usize = 1 << 36;
/// The largest number of machines in a process.
const MOST: usize = 512;
/// The size of the arena, which is the lower half of a region; stacks have the upper half.
pub(crate) const ARENA_SIZE: usize = SIZE / 2;

/// A region, with its arena mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region(usize);

impl Region {
    /// Maps the arena of the next region.
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if number >= MOST {
            return Err(io::Error::other(format!("more than {MOST} machines in one process")));
        }
        let region = Self(BASE + number * SIZE);
        map(region.0, ARENA_SIZE)?;
        Ok(region)
    }

    pub(crate) fn arena(self) -> usize {
        self.0
    }

    /// Returns the lowest address of the stacks.
    pub(crate) fn stacks(self) -> usize {
        self.0 + ARENA_SIZE
    }
}

/// Returns whether this address is in the arena of any machine.
pub(crate) fn is_arena(address: usize) -> bool {
    let of_region = address.wrapping_sub(BASE);
    of_region < MOST * SIZE && of_region % SIZE < ARENA_SIZE
}

/// Maps zeroed memory at exactly this address.
pub(crate) fn map(at: usize, len: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    // SAFETY: with MAP_FIXED_NOREPLACE the call does not touch existing mappings.
    let mapped =
        unsafe { libc::mmap(ptr::without_provenance_mut(at), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
