//! Stacks, and what is charged to each.

use std::cell::Cell;
use std::ptr;
use std::sync::PoisonError;
use std::time::Duration;

use crate::goroutine::stack_addresses;
use crate::shim::system::Mutex;
use crate::shim::system::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The longest stack. Go's default, too.
const DEPTH: usize = 128;
const BUCKETS: usize = 512;

/// A table of stacks. A node stays in its list for ever, and lists grow at their heads.
///
/// Release, when a node becomes the head, and Acquire, when a head is read: who finds a node sees its fields. All older nodes were
/// written before that node, so their links can be followed.
pub(super) struct Sites {
    heads: [AtomicPtr<Node>; BUCKETS],
}

struct Node {
    /// Return addresses, innermost first.
    frames: Box<[usize]>,
    /// Under this lock nothing is allocated, and no code of a user runs.
    charges: Mutex<Charges>,
    older: Option<&'static Node>,
}

/// What is charged to a stack.
#[derive(Clone, Copy, Default)]
pub(super) struct Charges {
    pub(super) count: f64,
    pub(super) delay: Duration,
}

impl Sites {
    pub(super) const fn new() -> Self {
        Self { heads: [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS] }
    }

    /// Charges the stack of the caller.
    pub(super) fn add(&self, count: f64, delay: Duration) {
        let mut frames = [0; DEPTH];
        let depth = walk(&mut frames);
        let mut charges = self.node(&frames[..depth]).charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.count += count;
        charges.delay = charges.delay.saturating_add(delay);
    }

    /// The node of a stack, which is made if there is none.
    fn node(&self, frames: &[usize]) -> &'static Node {
        let head = self.head(frames);
        let mut seen = head.load(Ordering::Acquire);
        if let Some(node) = nodes(seen).find(|node| *node.frames == *frames) {
            return node;
        }
        // No lock is held: an allocator is a user's code, and may wait for a lock that is profiled.
        let made = Box::leak(Box::new(Node { frames: frames.into(), charges: Mutex::default(), older: None }));
        loop {
            made.older = nodes(seen).next();
            match head.compare_exchange(seen, made, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return made,
                Err(now) => seen = now,
            }
            // Another thread has put a node there, perhaps for this stack.
            if let Some(node) = nodes(seen).find(|node| *node.frames == *frames) {
                // SAFETY: `made` comes from `Box::leak` above, and no other thread has seen its address.
                drop(unsafe { Box::from_raw(made) });
                return node;
            }
        }
    }

    fn head(&self, frames: &[usize]) -> &AtomicPtr<Node> {
        // FNV-1a, a word at a time.
        let hash = frames
            .iter()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, frame| (hash ^ *frame as u64).wrapping_mul(0x0000_0100_0000_01B3));
        &self.heads[(hash ^ (hash >> 32)) as usize % BUCKETS]
    }

    /// All stacks, and what is charged to each.
    pub(super) fn all(&'static self) -> impl Iterator<Item = (&'static [usize], Charges)> {
        let nodes = self.heads.iter().flat_map(|head| nodes(head.load(Ordering::Acquire)));
        nodes.map(|node| (&*node.frames, *node.charges.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The nodes of a list, the newest first.
fn nodes(head: *const Node) -> impl Iterator<Item = &'static Node> {
    // SAFETY: `head` is null or was read from a list by Acquire, so it points to a node that was written before, and that is
    // never freed nor changed.
    std::iter::successors(unsafe { head.as_ref() }, |node| node.older)
}

/// Writes the return addresses of the caller's stack, innermost first, and returns how many. Those of a goroutine end where
/// the goroutine's stack ends.
fn walk(frames: &mut [usize; DEPTH]) -> usize {
    let stack = stack_addresses();
    let (mut depth, mut is_in_stack) = (0, false);
    // SAFETY: the unwinder of a Unix system may be used by several threads at a time, and this code is built for Unix only;
    // the closure neither panics nor calls the unwinder.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            if let Some(stack) = &stack {
                let is_here = stack.contains(&frame.sp().addr());
                if is_in_stack && !is_here {
                    return false;
                }
                is_in_stack |= is_here;
            }
            let address = frame.ip().addr();
            if address == 0 {
                return false; // the base of a thread's stack
            }
            frames[depth] = address;
            depth += 1;
            depth < DEPTH
        });
    }
    depth
}

crate::shim::system::thread_local! {
    static IS_QUIET: Cell<u32> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// While this lives the calling thread is in a profile's code, and what waits there is not profiled: an allocator may use
/// this project's locks.
pub(super) struct Quiet;

impl Quiet {
    /// None: the calling thread is in a profile's code already, or is about to end.
    pub(super) fn enter() -> Option<Self> {
        IS_QUIET.try_with(|depth| depth.replace(1)).ok().filter(|depth| *depth == 0).map(|_| Self)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.with(|depth| depth.set(0));
    }
}

/// A random number: splitmix64 on a state of the calling thread.
pub(super) fn random() -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(1);
    RANDOM.with(|state| {
        if state.get() == 0 {
            state.set(SEED.fetch_add(1, Ordering::Relaxed) << 32);
        }
        let next = state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        state.set(next);
        let x = (next ^ (next >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    })
}
