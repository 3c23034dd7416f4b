//! Goroutines with thread-locals of their own (feature `move`, switched on by `SUDOG_MOVE` or [`own_thread_locals`]).
//!
//! In this mode each stack has a *block*: what glibc keeps for a thread, with all thread-locals of the program. A switch
//! to the stack sets the thread pointer to the block. So to `std`, to glibc and to each library a goroutine is a thread.
//! The goroutine stays on its worker.
//!
//! ```text
//!  low                                                                                 high
//!  ┌───────┬───────────────────────────────┬──────────────────┬─────────────────┬────────┐
//!  │ guard │ room          ◀ grows│ frames │ frames of the    │ thread-locals,  │ Fibre  │
//!  │       │                               │ ended thread     │ glibc's pthread │        │
//!  └───────┴───────────────────────────────┴──────────────────┴─────────────────┴────────┘
//!                                          base               block
//! ```
//!
//! | file | content |
//! |---|---|
//! | `donor.rs` | makes a block, ends a block, frees a block |
//! | `pointer.rs` | the assembly that writes the thread pointer |
//! | `probe.rs` | what must be known of glibc, and the checks at the start |
//! | `setxid.rs` | `setuid` and its like |
//!
//! docs/move.md has the reasons, and what libraries see.

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64", not(sudog_sim))))]
compile_error!("the feature `move` needs Linux on x86-64 with glibc");

mod donor;
mod pointer;
mod probe;
mod setxid;

use std::io;
use std::ptr;

use corosensei::{Coroutine, CoroutineResult};

use crate::goroutine::native::fork;
use crate::goroutine::native::stack::{self, PooledStack};
use crate::shim::Mutex;
use crate::shim::system::OnceLock;
use crate::shim::system::atomic::{AtomicUsize, Ordering};

pub(super) use donor::Block;

/// The bytes that stacks of a size of their own have for a block in addition: more than a block takes, as the C library refuses
/// stacks that have no room for a signal's frame.
const ROOM: usize = 32 << 10;

/// Distances of two words that have equal values in all blocks: glibc's stack guard, twice.
const NOTHING_SHARED: [isize; 2] = [40, 40];

type Routine = Coroutine<(), (), (), PooledStack>;

/// What is known of glibc. `None`: goroutines use the thread-locals of their workers. Decided before the first goroutine.
static LAYOUT: OnceLock<Option<probe::Layout>> = OnceLock::new();

fn layout() -> Option<&'static probe::Layout> {
    LAYOUT.get_or_init(from_environment).as_ref()
}

#[cold]
fn from_environment() -> Option<probe::Layout> {
    let value = std::env::var_os("SUDOG_MOVE").unwrap_or_default();
    match value.to_str() {
        Some("" | "0") => None,
        Some("try") => probe::probe().ok(),
        Some("1") => match probe::probe() {
            Ok(layout) => Some(layout),
            Err(reason) => crate::fatal(&format!("sudog: SUDOG_MOVE=1: {reason}")),
        },
        _ => crate::fatal("sudog: SUDOG_MOVE is neither 0 nor 1 nor try"),
    }
}

/// Gives each goroutine thread-locals of its own. Call this function before the first goroutine starts.
///
/// docs/move.md says what that changes, and what it costs. After an error goroutines use the thread-locals of their
/// workers. `SUDOG_MOVE=1` in the environment does the same as this function, and ends the process at an error;
/// `SUDOG_MOVE=try` ignores an error.
///
/// # Errors
///
/// * [`Unsupported`](io::ErrorKind::Unsupported): the system lacks something. The error says what is lacking.
/// * [`ResourceBusy`](io::ErrorKind::ResourceBusy): goroutines have started without thread-locals of their own, or an earlier
///   call has failed.
pub fn own_thread_locals() -> io::Result<()> {
    let mut error = io::Error::new(
        io::ErrorKind::ResourceBusy,
        "that goroutines use the thread-locals of their workers has been decided before",
    );
    let layout = LAYOUT.get_or_init(|| {
        let layout = probe::probe();
        layout.map_err(|reason| error = io::Error::new(io::ErrorKind::Unsupported, reason)).ok()
    });
    if layout.is_some() { Ok(()) } else { Err(error) }
}

/// The most blocks that are made at a time.
const AT_ONCE: usize = 64;

/// Stacks of the default size, with blocks, that have not been used yet.
static UNUSED: Mutex<Vec<(PooledStack, Block)>> = Mutex::new(Vec::new());

/// Takes a stack, with a block if goroutines have thread-locals of their own. Called by the worker that will run the stack.
///
/// # Errors
///
/// Fails if there is no memory for the stack, or no thread for the block.
pub(super) fn take_stack(size: Option<usize>) -> io::Result<(PooledStack, Option<Block>)> {
    let Some(layout) = layout() else { return Ok((stack::take(size)?, None)) };
    // Another thread may have held `UNUSED` at the fork.
    fork::forbid_in_child();
    let (stack, block) = match size {
        Some(size) => make(layout, vec![stack::take(Some(size.saturating_add(ROOM)))?])?.remove(0),
        None => usual(layout)?,
    };
    donor::adopt(block);
    Ok((stack, Some(block)))
}

/// Returns a stack of the default size. Makes as many as have been made so far, if none is left.
fn usual(layout: &probe::Layout) -> io::Result<(PooledStack, Block)> {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    if let Some(unused) = UNUSED.lock().pop() {
        return Ok(unused);
    }
    let n = MADE.load(Ordering::Relaxed).clamp(1, AT_ONCE);
    let stacks = (0..n).map(|_| stack::take(None)).collect::<io::Result<_>>()?;
    let mut made = make(layout, stacks)?;
    MADE.fetch_add(made.len(), Ordering::Relaxed);
    let first = made.remove(0);
    UNUSED.lock().extend(made);
    Ok(first)
}

/// Makes blocks for the first of these stacks, at least one.
fn make(layout: &probe::Layout, stacks: Vec<PooledStack>) -> io::Result<Vec<(PooledStack, Block)>> {
    let rooms: Vec<_> = stacks.iter().map(PooledStack::room).collect();
    let blocks = donor::make(layout, &rooms)?;
    let with_blocks = stacks.into_iter().zip(blocks).map(|(mut stack, (block, base))| {
        stack.lower_base(base);
        (stack, block)
    });
    Ok(with_blocks.collect())
}

/// Resumes a coroutine whose stack has this block.
///
/// Always inlined, as the processor mispredicts each return after a switch.
#[inline(always)]
pub(super) fn resume(block: Block, routine: &mut Routine) -> CoroutineResult<(), ()> {
    /// Runs with the thread pointer of the block. Panics end the process here.
    extern "C" fn enter(routine: usize, _: usize, _: usize) -> usize {
        // SAFETY: `routine` is the address of the caller's exclusive reference.
        let routine = unsafe { &mut *ptr::with_exposed_provenance_mut::<Routine>(routine) };
        match routine.resume(()) {
            CoroutineResult::Yield(()) => 0,
            CoroutineResult::Return(()) => 1,
        }
    }
    let routine = ptr::from_mut(routine).expose_provenance();
    let layout = layout().expect("a block has been made");
    // SAFETY: the probe has found that `wrfsbase` works. The block is that of the coroutine's stack, so the block is alive,
    // and this thread alone uses the block. `enter` does not unwind, as an `extern "C"` function. glibc's words are at the
    // same distances in all blocks.
    match unsafe { pointer::call_with(block.pointer(), enter, routine, 0, 0, &layout.malloc) } {
        0 => CoroutineResult::Yield(()),
        _ => CoroutineResult::Return(()),
    }
}

/// Runs the destructors of the thread-locals of the calling stack's block. Called on that stack, when no goroutine will run
/// there any more.
pub(super) fn end() {
    donor::end(layout().expect("a block has been made"));
}

/// Frees a block that has ended, or that has never run. Called before the block's stack is given back.
pub(super) fn free(block: Block) {
    donor::free(layout().expect("a block has been made"), block);
}
