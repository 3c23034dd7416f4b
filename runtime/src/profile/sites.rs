//! A table of stacks, and of the waits that are charged to each stack.

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::system_box::SystemBox;
use crate::goroutine::{has_room, stack_addresses};
use crate::shim::system::Mutex;
use crate::shim::system::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The maximum number of frames that are recorded of a stack. Go's default, too.
const DEPTH: usize = 128;
const BUCKETS: usize = 512;
/// The bytes of stack that a walk needs. If a goroutine has less room, its stack is recorded as empty.
const ROOM: usize = 16 << 10;

/// A table of stacks, in memory from the system's allocator. A node stays in its list for ever, and a list grows at its
/// head.
///
/// A thread writes a head with Release, when a node becomes the head, and reads a head with Acquire. So a thread that
/// finds a node sees the node's fields. All older nodes were written before that node, so their links can be followed.
pub(super) struct Sites {
    heads: [AtomicPtr<Node>; BUCKETS],
}

struct Node {
    /// Return addresses, innermost first.
    frames: [usize; DEPTH],
    depth: usize,
    charges: Mutex<Charges>,
    older: Option<&'static Node>,
}

impl Node {
    fn frames(&self) -> &[usize] {
        &self.frames[..self.depth]
    }
}

/// The charges of a stack: the number of waits or releases, and the sum of their delays.
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
        let depth = if has_room(ROOM) { walk(&mut frames) } else { 0 };
        let Some(node) = self.node(&frames, depth) else { return };
        let mut charges = node.charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.count += count;
        charges.delay = charges.delay.saturating_add(delay);
    }

    /// Returns the node of a stack, and makes the node if there is none. Returns `None` if there is no memory.
    fn node(&self, frames: &[usize; DEPTH], depth: usize) -> Option<&'static Node> {
        let is_same = |node: &&Node| node.frames() == &frames[..depth];
        let head = self.head(&frames[..depth]);
        let mut seen = head.load(Ordering::Acquire);
        if let Some(node) = nodes(seen).find(is_same) {
            return Some(node);
        }
        let mut made = SystemBox::new(Node { frames: *frames, depth, charges: Mutex::default(), older: None })?;
        loop {
            made.older = nodes(seen).next();
            let published = made.leak();
            match head.compare_exchange(seen, published.as_ptr(), Ordering::Release, Ordering::Acquire) {
                // SAFETY: `published` was leaked, so the node is never freed, and from now on never changed but under its lock.
                Ok(_) => return Some(unsafe { published.as_ref() }),
                Err(now) => seen = now,
            }
            // SAFETY: `published` was leaked above, and the exchange has failed, so no other thread knows the node.
            made = unsafe { SystemBox::from_leaked(published) };
            // Another thread has put a node there, perhaps for this stack.
            if let Some(node) = nodes(seen).find(is_same) {
                return Some(node);
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

    /// Returns all stacks with their charges.
    pub(super) fn all(&'static self) -> impl Iterator<Item = (&'static [usize], Charges)> {
        let nodes = self.heads.iter().flat_map(|head| nodes(head.load(Ordering::Acquire)));
        nodes.map(|node| (node.frames(), *node.charges.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Returns the nodes of a list, the newest first.
fn nodes(head: *const Node) -> impl Iterator<Item = &'static Node> {
    // SAFETY: `head` is null or was read from a list by Acquire, so it points to a node that was written before, and that is
    // never freed nor changed.
    std::iter::successors(unsafe { head.as_ref() }, |node| node.older)
}

/// Returns the return addresses of the caller's stack, innermost first.
pub(crate) fn addresses() -> Arc<[usize]> {
    let mut frames = [0; DEPTH];
    let depth = walk(&mut frames);
    frames[..depth].into()
}

/// Writes the return addresses of the caller's stack, innermost first, and returns their number. In a goroutine the
/// walk ends where the goroutine's stack ends.
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
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Returns a random number: splitmix64 on a state of the calling thread.
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
