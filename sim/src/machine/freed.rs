//! Checks for accesses to freed memory, where schedules are explored: such an access fails its execution.
//!
//! | memory | is freed | found by |
//! |---|---|---|
//! | a block of the [`Arena`](crate::Arena) | when the block is freed | quarantine |
//! | a frame of a thread or a goroutine | when its function has returned | the addresses below the frames of a stack |
//! | the stack of a thread or a goroutine | when the thread or goroutine ends | its number, or [`stack::ends`](crate::stack::ends) |
//!
//! Waiters lie on the stacks of threads and goroutines that wait, so the second row is about the mistake that matters
//! most: a waker that accesses a waiter after it has let the waiting function return. While one thread runs, all others
//! are suspended in a function of this crate, and [`frame`] has recorded the address at which the frames of its callers
//! end. Addresses from there down belong to no live frame.
//!
//! These checks do not find: an access that is neither a step nor an access to a [`Cell`](crate::Cell); an access to a
//! frame in whose place another frame is by now; an access to a block that quarantine has given back. While a worker
//! runs a goroutine, the whole stack of the worker counts as live.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;

use super::{Machine, Mode, State, ThreadId, Why, stack, with};
use crate::arena::{self, Freed, Step};

/// Returns an address below all frames of the caller and of the caller's callers.
///
/// The address lies in a frame of this function's own, which is the lowest: stacks grow towards lower addresses on each
/// target of this crate.
#[inline(never)]
pub(crate) fn frame() -> usize {
    let lowest = 0_u8;
    black_box(&raw const lowest).addr()
}

/// A stack that the program has made.
#[derive(Debug)]
struct Foreign {
    end: usize,
    state: Use,
}

#[derive(Clone, Copy, Debug)]
enum Use {
    /// Code of this thread runs on the stack.
    Runs(ThreadId),
    /// The frames of the suspended stack end at this address.
    Suspended(usize),
    Ended,
}

/// The stacks that the program has made, by their lowest addresses.
#[derive(Debug, Default)]
pub(crate) struct Stacks(BTreeMap<usize, Foreign>);

/// The freed memory that an access has met.
enum Met {
    Block(Freed, usize),
    Frame { whose: String, below: usize },
    Stack(String),
}

impl Machine {
    /// Checks an access of the current thread, whose frames end at `frame`, to this address. Returns true if the memory
    /// at the address is freed; the machine has stopped then.
    pub(crate) fn meets_freed_memory(&mut self, address: usize, what: &str, frame: usize) -> bool {
        let text = arena::outside(|| {
            let met = self.meets(address, frame)?;
            let (by, place) = (self.describe(self.current), self.threads[self.current].place);
            let access = format!("{what} of freed memory by {by} at {place}");
            Some(match met {
                Met::Block(block, offset) => {
                    let freed = match block.by {
                        None => "before any step".into(),
                        Some(Step { thread, place, at }) => {
                            format!("by {} at {at} ns, after its step at {place}", self.describe(thread))
                        }
                    };
                    format!("{access}: byte {offset} of a block of {} bytes, which was freed {freed}", block.size)
                }
                Met::Frame { whose, below } => {
                    format!("{access}: a frame of {whose} that is no more, {below} bytes below those that it has")
                }
                Met::Stack(whose) => format!("{access}: the stack of {whose}, which has ended"),
            })
        });
        let Some(text) = text else { return false };
        self.stop = Some(Why::FreedMemory(text));
        true
    }

    fn meets(&self, address: usize, frame: usize) -> Option<Met> {
        if let Some(block) = arena::freed(address) {
            return Some(Met::Block(block, address - block.begin));
        }
        // The address at which the frames of a thread end. No other thread knows an address in the stack of a thread
        // that has no frames yet.
        let frames = |id: ThreadId| if id == self.current { frame } else { self.threads[id].frame };
        let below = |end: usize| end.checked_sub(address).filter(|below| *below > 0);
        if let Some((id, stack)) = stack::owner(self.region, address) {
            let thread = self.threads.get(id)?;
            if thread.state == State::Done {
                return Some(Met::Stack(self.describe(id)));
            }
            // The thread may run on another stack, that of a goroutine.
            let below = below(Some(frames(id)).filter(|end| stack.contains(end))?)?;
            return Some(Met::Frame { whose: self.describe(id), below });
        }
        let Mode::Explored(explored) = &self.mode else { return None };
        let (&low, stack) = explored.stacks.0.range(..=address).next_back()?;
        let addresses = low..stack.end;
        if !addresses.contains(&address) {
            return None;
        }
        let end = match stack.state {
            Use::Ended => return Some(Met::Stack("a goroutine".into())),
            Use::Suspended(end) => end,
            Use::Runs(id) => frames(id),
        };
        let below = below(Some(end).filter(|end| addresses.contains(end))?)?;
        let whose = match stack.state {
            Use::Runs(id) => format!("the goroutine that {} runs", self.describe(id)),
            Use::Suspended(_) | Use::Ended => "a goroutine that is suspended".into(),
        };
        Some(Met::Frame { whose, below })
    }
}

// The functions by which programs tell of the stacks that they make.

fn stacks(f: impl FnOnce(&mut Stacks, ThreadId)) {
    if super::is_simulated() {
        with(|machine| {
            let current = machine.current;
            if let Mode::Explored(explored) = &mut machine.mode {
                arena::outside(|| f(&mut explored.stacks, current));
            }
        });
    }
}

/// Declares these addresses to be a stack from now on. The stack is suspended, and all of it counts as live.
pub fn begins(addresses: Range<usize>) {
    let begun = Foreign { end: addresses.end, state: Use::Suspended(addresses.start) };
    stacks(|stacks, _| _ = stacks.0.insert(addresses.start, begun));
}

fn set(low: usize, state: impl FnOnce(ThreadId) -> Use) {
    stacks(|stacks, current| {
        if let Some(stack) = stacks.0.get_mut(&low) {
            stack.state = state(current);
        }
    });
}

/// Records that the calling thread goes on on the stack with this lowest address.
pub fn resumes(low: usize) {
    set(low, Use::Runs);
}

/// Records that the caller, which runs on the stack with this lowest address, is about to leave that stack.
pub fn suspends(low: usize) {
    let end = frame();
    set(low, |_| Use::Suspended(end));
}

/// Records that the stack with this lowest address is not used any more, until it begins again.
pub fn ends(low: usize) {
    set(low, |_| Use::Ended);
}
