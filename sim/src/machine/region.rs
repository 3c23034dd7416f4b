//! The addresses of a machine: an arena for what its program allocates, and stacks.
//!
//! The first machine of a process has the first region, in each process alike. No region is used twice, as results may point
//! into an arena.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the first one is. Nothing else of a Linux process is there, on any of its layouts.
const BASE: usize = 0x1000_0000_0000;
const SIZE: usize = 1 << 36;
/// So many machines can be made in one process.
const MOST: usize = 512;
/// The lower half of a region; stacks have the other.
pub(crate) const ARENA_SIZE: usize = SIZE / 2;

/// A region, with its arena mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region(usize);

impl Region {
    /// The next one.
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

    /// The lowest address of the stacks.
    pub(crate) fn stacks(self) -> usize {
        self.0 + ARENA_SIZE
    }
}

/// Whether this address is in the arena of any machine.
pub(crate) fn is_arena(address: usize) -> bool {
    let of_region = address.wrapping_sub(BASE);
    of_region < MOST * SIZE && of_region % SIZE < ARENA_SIZE
}

/// Maps zeroes at just this address.
pub(crate) fn map(at: usize, len: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    // SAFETY: with MAP_FIXED_NOREPLACE nothing that is mapped is touched.
    let mapped =
        unsafe { libc::mmap(ptr::without_provenance_mut(at), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}
