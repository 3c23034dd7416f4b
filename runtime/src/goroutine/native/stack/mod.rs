//! Stacks for goroutines: slots of one region of reserved addresses, each above a guard.
//!
//! ```text
//! region  [slot 0][slot 1]....[slot n]|....................................|   reserved once, never unmapped
//!          read-write, 128 slots more |  PROT_NONE
//!          whenever they run out      |
//!
//! slot    | guard | ............................ stack | header | colour |    top is the end of a page
//!         limit   floor                               base              top
//! ```
//!
//! * **Writable in steps**, as under `vm.overcommit_memory=2` the kernel sets memory aside for all writable memory,
//!   touched or not. Neighbours of equal protection merge, so the region stays at two mappings.
//! * **The guard** is made of `MADV_GUARD_INSTALL`'s markers (Linux 6.13): they are page table entries, cost no
//!   mapping, and outlast the `MADV_DONTNEED` that empties a stack. Where the kernel has no markers, the guard is
//!   `PROT_NONE`. Then each stack costs two mappings, and `vm.max_map_count` (65,530 by default) allows 32,000 stacks.
//!   A guard of one page would stop Rust, whose functions touch each page of their frames in turn from the top. A guard
//!   of four pages also stops C code, whose functions as a rule do not touch each page, as long as the C frames are
//!   below 16 KiB. Markers are made for several slots in one call: for as many slots as have been taken so far, but 128
//!   at most.
//! * **One page** of 4 KiB is all that a goroutine touches that needs no more than 2,944 bytes of stack. The page also
//!   holds the header, for the caller's control block, and the *colour*. The colour shifts header and stack by a
//!   multiple of 128 bytes, eight in turn: at equal offsets in their pages, the data that many goroutines use most
//!   would share few sets of the L1 cache. Huge pages are off, as they would make each stack 2 MiB.

pub(crate) mod overflow;

use crate::shim::system::OnceLock;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use corosensei::stack::{Stack, StackPointer};

use self::memory::{MANY, Pages, context, guard_len, markers_work, offset_by, page};
use crate::shim::{AtomicU32, Mutex, Ordering};

pub(crate) mod memory;

/// The size of a stack unless the program sets another size: the usable bytes, including header and colour.
///
/// Builds with debug assertions have the size that `std` gives a thread. Without optimisation each move of a value is a
/// copy to another place in a frame, so frames are several times as large: the frame of `tx.send(value).unwrap()` has
/// six copies of `value`. Memory still comes page by page, as the stack is touched. (The unit tests use the size of
/// other builds.)
pub(crate) const DEFAULT_SIZE: usize =
    if cfg!(all(debug_assertions, target_pointer_width = "64", not(test))) { 2 << 20 } else { 256 << 10 };
/// The bytes of [`PooledStack::header`].
pub(crate) const HEADER: usize = 256;
/// The alignment of [`PooledStack::header`].
pub(crate) const HEADER_ALIGN: usize = 64;

const MIN_SIZE: usize = 16 << 10;
/// The largest size of a stack. A caller that asks for more has made a mistake, such as a negative number or a number
/// of bits.
const MAX_SIZE: usize = if cfg!(target_pointer_width = "64") { 1 << 36 } else { 1 << 28 };
/// The bytes that [`Extent::trim`] leaves, rounded up to pages.
const KEEP: usize = 16 << 10;
const COLOUR_STEP: usize = 128;
const COLOURS: u32 = 8;
const _: () = assert!(HEADER.is_multiple_of(HEADER_ALIGN) && COLOUR_STEP.is_multiple_of(HEADER_ALIGN));
/// The length of the address region to reserve, and the shortest region that is worth having. 4 TiB are 16 million
/// stacks.
const RESERVE: usize = if cfg!(target_pointer_width = "64") { 1 << 42 } else { 1 << 29 };
const RESERVE_MIN: usize = 1 << 26;
/// The bytes of stacks that become writable at a time: 128 stacks of the default size, and at least one stack of
/// another size.
const GROW: usize = 128 * DEFAULT_SIZE;

static POOL: Pool = Pool::new(RESERVE, markers_work);

/// The size of the pool's stacks: fixed when the first stack is taken.
static SIZE: OnceLock<usize> = OnceLock::new();

/// Returns the size of a stack for which the caller names no size.
fn default_size() -> usize {
    *SIZE.get_or_init(|| DEFAULT_SIZE.next_multiple_of(page()))
}

/// Sets the default size. Returns false if stacks have been made, or if another size has been set.
///
/// # Errors
///
/// `InvalidInput` for an absurd size.
pub(crate) fn set_default_size(size: usize) -> io::Result<bool> {
    let size = round(size)?;
    Ok(*SIZE.get_or_init(|| size) == size)
}

/// Takes a stack from the pool. A stack of another size than [`default_size`] gets a mapping of its own.
///
/// # Errors
///
/// `InvalidInput` for an absurd size. If the system refuses a request, the system's error, with the name of that
/// request.
pub(crate) fn take(size: Option<usize>) -> io::Result<PooledStack> {
    match size.map(round).transpose()? {
        Some(size) if size != default_size() => own(size, markers_work()),
        _ => POOL.take(),
    }
}

/// Checks the size as [`take`] does.
///
/// # Errors
///
/// `InvalidInput` for an absurd size.
pub(crate) fn check(size: usize) -> io::Result<()> {
    round(size).map(|_| ())
}

fn round(size: usize) -> io::Result<usize> {
    if size > MAX_SIZE {
        let text = format!("a goroutine's stack of {size} bytes: more than the {MAX_SIZE} that are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(size.max(MIN_SIZE).next_multiple_of(page()))
}

/// Makes a stack in a mapping of its own, outside of the pool.
fn own(size: usize, markers: bool) -> io::Result<PooledStack> {
    static COLOUR: AtomicU32 = AtomicU32::new(0);
    let mut pages = Pages::map(size + guard_len(), libc::PROT_READ | libc::PROT_WRITE)
        .map_err(|e| context(format_args!("no memory for a goroutine's stack of {size} bytes"), e))?;
    if let Err(error) = pages.guard(markers) {
        pages.unmap();
        return Err(error);
    }
    // Relaxed: any colour will do.
    let colour = COLOUR.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `pages` was mapped writable, and has got a guard.
    Ok(unsafe { PooledStack::new(pages, colour, Home::Own) })
}

/// A stack to run a coroutine on. The drop gives the memory back to the system, and the slot back to the pool.
pub(crate) struct PooledStack {
    pages: Pages,
    header: NonNull<u8>,
    home: Home,
}

#[derive(Clone, Copy)]
enum Home {
    Slot(&'static Pool, u32),
    Own,
}

// SAFETY: a `PooledStack` owns the memory that it points to, and no thread has a special claim on that memory.
unsafe impl Send for PooledStack {}

// SAFETY: `base` and `limit` are those of mapped memory that this value owns. Between the two are at least MIN_SIZE -
// HEADER - colour bytes, more than the 4096 wanted; the lowest GUARD bytes trap. Both addresses are multiples of 128,
// and so aligned.
unsafe impl Stack for PooledStack {
    #[inline]
    fn base(&self) -> StackPointer {
        self.header.expose_provenance()
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.pages.at(0).expose_provenance()
    }
}

impl PooledStack {
    /// Creates a stack in `pages`.
    ///
    /// # Safety
    /// `pages` begins with a guard. The bytes above are writable, and at least MIN_SIZE.
    unsafe fn new(pages: Pages, colour: u32, home: Home) -> Self {
        let colour = (colour % COLOURS) as usize * COLOUR_STEP;
        Self { header: pages.at(pages.len() - colour - HEADER), pages, home }
    }

    /// Returns [`HEADER`] bytes for the caller, above the stack, aligned to [`HEADER_ALIGN`]. The bytes are zero, or
    /// left over from an earlier use.
    #[inline]
    pub(crate) fn header(&self) -> NonNull<u8> {
        self.header
    }

    /// Returns the addresses of the stack, as an [`Extent`].
    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        let guard = guard_len();
        Extent { low: self.pages.at(0), floor: self.pages.at(guard), size: self.pages.len() - guard }
    }
}

/// The addresses of a stack, for code that does not own that stack.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    low: NonNull<u8>,
    floor: NonNull<u8>,
    size: usize,
}

impl Extent {
    /// Returns the addresses below the stack that trap.
    #[inline]
    pub(crate) fn guard(&self) -> Range<usize> {
        self.low.addr().get()..self.floor.addr().get()
    }

    /// Returns all addresses, the guard's and the header's included.
    #[inline]
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.low.addr().get()..self.floor.addr().get() + self.size
    }

    /// Returns the number of usable bytes, header and colour included.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the memory of the stack to the system, except the uppermost 16 KiB: for an idle stack that has been used
    /// deeply.
    ///
    /// # Safety
    /// - The stack is alive.
    /// - Nothing below the uppermost 16 KiB is in use.
    #[cold]
    pub(crate) unsafe fn trim(&self) {
        let keep = KEEP.next_multiple_of(page());
        let len = self.size - keep; // MIN_SIZE in pages is not less than `keep`
        // SAFETY: the stack, which is alive, lends these bytes, which are whole pages: they are not in use, by the contract
        // of `trim`.
        unsafe { Pages::new(self.floor, len) }.discard(0..len);
    }
}

impl Drop for PooledStack {
    fn drop(&mut self) {
        match self.home {
            Home::Slot(pool, slot) => {
                // Discard before another owner can take the slot.
                self.pages.discard(guard_len()..self.pages.len());
                // From now on the pages belong to the slot's next owner: see `Pool::take`.
                self.pages = Pages::NONE;
                pool.state.lock().free.push(slot); // does not allocate: see `fresh`
            }
            Home::Own => self.pages.unmap(),
        }
    }
}

struct Pool {
    reserve: usize,
    markers: fn() -> bool,
    state: Mutex<State>,
}

struct State {
    /// The address of the region, if `slots` is not 0.
    low: NonNull<u8>,
    slots: u32,
    /// The slots that have never been taken: those from `used` on.
    untaken: Pages,
    /// The number of slots that are writable.
    writable: u32,
    /// The number of slots that are known to have a guard. At least `used`.
    guarded: u32,
    /// True if the kernel has refused to make several guards in one call.
    one_by_one: bool,
    /// The number of slots that have ever been taken.
    used: u32,
    /// The slots that were taken and given back. The slot given back last is taken first: its page tables may still be
    /// cached.
    free: Vec<u32>,
}

// SAFETY: `low` points to the pool's own memory; no thread has a special claim on that memory.
unsafe impl Send for State {}

impl Pool {
    const fn new(reserve: usize, markers: fn() -> bool) -> Self {
        let state = State {
            low: NonNull::dangling(),
            slots: 0,
            untaken: Pages::NONE,
            writable: 0,
            guarded: 0,
            one_by_one: false,
            used: 0,
            free: Vec::new(),
        };
        Self { reserve, markers, state: Mutex::new(state) }
    }

    fn take(&'static self) -> io::Result<PooledStack> {
        let mut state = self.state.lock();
        let (slot, pages) = match state.free.pop() {
            // SAFETY: these are the pages of one slot of the region. The slot was in `free`: the stack that owned the pages
            // has given them up before it put the slot there.
            Some(slot) => (slot, unsafe { Pages::new(state.at(slot), stride()) }),
            None => state.fresh(self)?,
        };
        drop(state);
        // SAFETY: `fresh` has made the slot writable, and has given the slot a guard, which outlasts the slot's owners.
        Ok(unsafe { PooledStack::new(pages, slot, Home::Slot(self, slot)) })
    }
}

impl State {
    fn at(&self, slot: u32) -> NonNull<u8> {
        debug_assert!(slot < self.slots);
        offset_by(self.low, slot as usize * stride())
    }

    /// Returns a slot that has never been used, and its pages.
    #[cold]
    fn fresh(&mut self, pool: &Pool) -> io::Result<(u32, Pages)> {
        if self.slots == 0 {
            self.untaken = reserve(pool.reserve)?;
            (self.low, self.slots) = (self.untaken.at(0), (self.untaken.len() / stride()) as u32);
        }
        let slot = self.used;
        if slot == self.slots {
            let text = format!("all {slot} stacks that the reserved addresses have room for are taken");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        if slot == self.writable {
            let n = ((GROW / default_size()).max(1) as u32).min(self.slots - slot);
            let len = n as usize * stride();
            self.untaken
                .set_protection(len, libc::PROT_READ | libc::PROT_WRITE)
                .map_err(|e| context(format_args!("no memory for {n} more stacks, {len} bytes"), e))?;
            self.writable += n;
        }
        // Reserve room in `free` for every slot here, where the allocation may fail, so that `drop` need not allocate.
        self.free.try_reserve(slot as usize + 1)?;
        if slot == self.guarded {
            self.guarded += self.guard((pool.markers)())?;
        }
        self.used += 1;
        Ok((slot, self.untaken.split_to(stride())))
    }
}

impl State {
    /// Makes the guards of the next slots, which have none, at least one guard, and returns the number of guards made. No
    /// slot that has not been taken has a guard, and the next slot is writable.
    fn guard(&mut self, markers: bool) -> io::Result<u32> {
        // Make no more guards than slots have been used, so that a program with few goroutines does not pay for many.
        let n = self.used.min(MANY as u32).min(self.writable - self.guarded);
        if markers && n > 1 && !self.one_by_one {
            if self.untaken.guard_many(stride(), n as usize) {
                return Ok(n);
            }
            self.one_by_one = true;
        }
        self.untaken.guard(markers)?; // anew, if the call above has made this guard
        Ok(1)
    }
}

/// Reserves addresses for slots.
fn reserve(most: usize) -> io::Result<Pages> {
    let mut len = most.min(address_limit() / 4).max(RESERVE_MIN);
    loop {
        match Pages::map(len, libc::PROT_NONE) {
            Ok(pages) => return Ok(pages),
            Err(e) if len == RESERVE_MIN => {
                return Err(context(format_args!("cannot reserve {len} bytes of addresses for stacks"), e));
            }
            Err(_) => len = (len / 2).max(RESERVE_MIN),
        }
    }
}

/// Returns the bytes of addresses that this process may have, as set by `ulimit -v`. [`reserve`] needs the limit:
/// without the limit, halving the request until a request succeeds might take nearly all addresses.
#[cfg(target_os = "linux")]
fn address_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `getrlimit` writes `limit`, or fails and leaves `limit` as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

#[cfg(not(target_os = "linux"))]
fn address_limit() -> usize {
    usize::MAX
}

fn stride() -> usize {
    default_size() + guard_len()
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
#[path = "stack_tests.rs"]
pub(crate) mod tests;
