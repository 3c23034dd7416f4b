//! Blocks: the thread-locals of a stack, and glibc's record of a thread.
//!
//! A block is that of a thread that glibc has made on the goroutine's stack, and whose kernel thread has ended at once, by the
//! system call itself. To glibc that thread is alive: glibc has initialised all fields, `dlopen` initialises the thread-locals
//! of new libraries in all such blocks, and `dlclose` waits for a block that looks up a symbol. (A block made by
//! `_dl_allocate_tls` is in none of glibc's lists: thread-locals of a library that is loaded later would not be
//! initialised there, and symbols could be freed during a look-up; see docs/move.md.)
//!
//! | field of the block | value | reason |
//! |---|---|---|
//! | `tid` | a number of its own, larger than that of any thread of the system | recursive mutexes tell owners apart by this number |
//! | `cpu_id` of `rseq` | "not registered" | the kernel writes the processor's number into the blocks of its own threads only |
//! | [`SHIFT`] | the distance to the worker's block | see `worker_local.rs` |

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::{self, null_mut};

use super::pointer::thread_pointer;
use super::probe::Layout;
use crate::shim;
use crate::shim::system::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::shim::worker_local::SHIFT;

/// The block of a stack: the thread pointer, which is also the `pthread_t`.
#[derive(Clone, Copy)]
pub(crate) struct Block(NonZeroUsize);

impl Block {
    pub(super) fn pointer(self) -> usize {
        self.0.get()
    }

    /// Returns the word at a distance from the thread pointer: one of those that the probe has found.
    fn word(&self, distance: isize) -> &AtomicU32 {
        let address = self.pointer().wrapping_add_signed(distance);
        // SAFETY: the block is alive as long as this value is used, and has an aligned word at this distance. glibc changes
        // the words of `Layout` by atomic operations, or while no other code does.
        unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(address)) }
    }
}

/// What a donor is told, and what a donor tells about itself. `pointer` is written last.
struct Birth {
    /// [`Layout::cancelhandling`].
    cancelhandling: isize,
    /// The thread pointer, or 0.
    pointer: AtomicUsize,
    /// An address in the donor's frame. All bytes from there up belong to the donor.
    base: AtomicUsize,
    shift: AtomicUsize,
}

impl Birth {
    fn new(layout: &Layout) -> Self {
        let zero = || AtomicUsize::new(0);
        Self { cancelhandling: layout.cancelhandling, pointer: zero(), base: zero(), shift: zero() }
    }
}

/// Bits of glibc's `cancelhandling`, which glibc's library for debuggers knows, too.
///
/// The thread is about to end: `setuid` passes the thread over.
const EXITING: u32 = 1 << 4;
/// `setuid` waits until the thread's handler has cleared this bit.
const SETXID: u32 = 1 << 6;

/// The numbers that Linux gives to threads are at most 2^22, and a futex has room for 30 bits.
const FIRST_TID: u32 = (1 << 22) + 1;
const LAST_TID: u32 = (1 << 30) - 2;

/// Makes a block at the upper end of each of the memories `rooms`, which the caller owns. Returns the first blocks, at least one,
/// each with the lower end of the memory that the block takes.
///
/// Makes several blocks at a time, because a new thread waits until the kernel runs it: these waits coincide.
///
/// # Errors
///
/// Fails if the system gives no thread, or if this library was loaded by `dlopen` in a way that blocks do not support.
pub(super) fn make(layout: &Layout, rooms: &[Range<NonZeroUsize>]) -> io::Result<Vec<(Block, NonZeroUsize)>> {
    let births: Vec<Birth> = rooms.iter().map(|_| Birth::new(layout)).collect();
    let mut refused = None;
    let mut starts = |birth, room| start_donor(birth, room).map_err(|why| refused = Some(why)).is_ok();
    let started = births.iter().zip(rooms).take_while(|(birth, room)| starts(birth, room)).count();
    // Wait for each donor that has started, as each uses its `birth`.
    let finished: Vec<_> =
        births[..started].iter().zip(rooms).map(|(birth, room)| finish(layout, birth, room)).collect();
    let mut blocks = Vec::with_capacity(started);
    let mut failed = None;
    for block in finished {
        match block {
            Ok(block) if failed.is_none() => blocks.push(block),
            Ok((block, _)) => free(layout, block),
            Err(why) => failed = Some(why),
        }
    }
    match failed.or(refused) {
        Some(error) if blocks.is_empty() => Err(error),
        _ => Ok(blocks),
    }
}

/// Waits until a donor has ended, and completes the block.
fn finish(layout: &Layout, birth: &Birth, room: &Range<NonZeroUsize>) -> io::Result<(Block, NonZeroUsize)> {
    static NEXT: AtomicU32 = AtomicU32::new(FIRST_TID);
    let pointer = loop {
        match NonZeroUsize::new(birth.pointer.load(Ordering::Acquire)) {
            Some(pointer) => break pointer,
            None => shim::yield_now(),
        }
    };
    let block = Block(pointer);
    // The kernel sets this word to 0 when the kernel's thread does not use memory any more. glibc waits for the same, before it
    // frees a stack.
    while block.word(layout.tid).load(Ordering::Acquire) != 0 {
        shim::yield_now();
    }
    let base = birth.base.load(Ordering::Relaxed) & !63;
    let is_inside = room.start.get() < base && base < pointer.get() && pointer < room.end;
    let tid = NEXT.fetch_add(1, Ordering::Relaxed);
    let reason = if !is_inside {
        "a thread is not on the stack that the C library was given"
    } else if !(FIRST_TID..=LAST_TID).contains(&tid) {
        "this process has had a billion stacks"
    } else if birth.shift.load(Ordering::Relaxed) != place_of_shift(block) {
        "thread-locals of this library are not at a fixed distance from the thread pointer"
    } else {
        block.word(layout.tid).store(tid, Ordering::Relaxed);
        // From here on `setuid` sends the block's signal to the new number, which no thread has, and so does not wait.
        block.word(layout.cancelhandling).fetch_and(!EXITING, Ordering::Release);
        if let Some(rseq) = layout.rseq {
            const NOT_REGISTERED: u32 = -2_i32 as u32;
            block.word(rseq + 4).store(NOT_REGISTERED, Ordering::Relaxed);
        }
        return Ok((block, NonZeroUsize::new(base).expect("not null")));
    };
    free(layout, block);
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Returns the address of [`SHIFT`] in a block, which has the same distance from the thread pointer in each block.
fn place_of_shift(block: Block) -> usize {
    let distance = SHIFT.with(|shift| ptr::from_ref(shift).addr()).wrapping_sub(thread_pointer());
    block.pointer().wrapping_add(distance)
}

/// Gives a block to the worker that calls, for good.
pub(super) fn adopt(block: Block) {
    let home = thread_pointer().wrapping_add_signed(SHIFT.get());
    let shift = home.wrapping_sub(block.pointer()).cast_signed();
    // SAFETY: `finish` has found `SHIFT` of the block at this address, and no code runs with the block now.
    unsafe { *ptr::with_exposed_provenance_mut::<isize>(place_of_shift(block)) = shift };
}

fn start_donor(birth: &Birth, room: &Range<NonZeroUsize>) -> io::Result<()> {
    let mut attributes = std::mem::MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    let mut thread = 0;
    let low = ptr::with_exposed_provenance_mut(room.start.get());
    let birth = ptr::from_ref(birth).cast_mut().cast();
    // SAFETY:
    // - the attributes are those of this call;
    // - `room` is memory of the caller's, for the stack of this thread alone;
    // - `donate` gets `birth`, which lives until the thread has ended: `make` waits for each donor that has started.
    let error = unsafe {
        libc::pthread_attr_init(attributes);
        match libc::pthread_attr_setstack(attributes, low, room.end.get() - room.start.get()) {
            0 => libc::pthread_create(&raw mut thread, attributes, donate, birth),
            error => error,
        }
    };
    match error {
        0 => Ok(()),
        error => {
            let error = io::Error::from_raw_os_error(error);
            Err(io::Error::new(error.kind(), format!("no thread for the thread-locals of a goroutine: {error}")))
        }
    }
}

/// Tells where the block is, and ends the kernel's thread. The thread of glibc stays.
extern "C" fn donate(birth: *mut libc::c_void) -> *mut libc::c_void {
    let mark = 0_u8;
    // SAFETY: `birth` is the value that `make` lends until this thread has ended.
    let birth = unsafe { &*birth.cast::<Birth>() };
    let block = Block(NonZeroUsize::new(thread_pointer()).expect("not null"));
    birth.base.store((&raw const mark).expose_provenance(), Ordering::Relaxed);
    birth.shift.store(SHIFT.with(|shift| ptr::from_ref(shift).expose_provenance()), Ordering::Relaxed);
    birth.pointer.store(block.pointer(), Ordering::Release);
    // End as the threads of glibc do. Otherwise this thread could end between the moment when `setuid` sends a signal to the
    // thread, and the moment when the handler runs: `setuid` would wait for ever.
    let cancelhandling = block.word(birth.cancelhandling);
    cancelhandling.fetch_or(EXITING, Ordering::Relaxed);
    while cancelhandling.load(Ordering::Relaxed) & SETXID != 0 {
        shim::yield_now(); // until the handler has run on this thread
    }
    loop {
        // SAFETY: the call ends this thread. No frame of the thread has a destructor.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// glibc's PTHREAD_DESTRUCTOR_ITERATIONS: the rounds in which destructors may set values again.
const ROUNDS: usize = 4;

/// Runs the destructors of all thread-locals of the calling block, in glibc's order: first those of C++ and Rust, then those of
/// pthread keys.
pub(super) fn end(layout: &Layout) {
    // SAFETY: `__call_tls_dtors` runs the destructors that are registered for the calling thread, once each. The goroutines
    // of this stack have ended, so no frame uses a thread-local of the block.
    unsafe { (layout.call_tls_dtors)() };
    for _ in 0..ROUNDS {
        let mut found = false;
        for key in 0..layout.keys.len() {
            let Some(destructor) = layout.destructor(key) else { continue };
            let key = key as libc::pthread_key_t;
            // SAFETY: the key is in use. Its destructor gets the block's value, once, as at the end of a thread.
            unsafe {
                let value = libc::pthread_getspecific(key);
                if !value.is_null() {
                    libc::pthread_setspecific(key, null_mut());
                    destructor(value);
                    found = true;
                }
            }
        }
        if !found {
            break;
        }
    }
}

/// Has glibc free a block.
pub(super) fn free(layout: &Layout, block: Block) {
    // To glibc the thread has ended when this word is 0.
    block.word(layout.tid).store(0, Ordering::Release);
    // SAFETY: the block is a thread's that was made by `pthread_create`, is not detached, and is joined only here.
    let error = unsafe { libc::pthread_join(block.pointer() as libc::pthread_t, null_mut()) };
    debug_assert_eq!(error, 0);
}
