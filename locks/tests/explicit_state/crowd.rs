//! The threads of a model, and the number of times that one of the threads is bypassed.
//!
//! | word | meaning |
//! |---|---|
//! | `members[0]` | V, the victim: one thread stands for all, because all threads are alike |
//! | `members[1..]` | the other threads, sorted: their identity does not matter |
//! | `late` | this thread's acquisition counts if it enters before V |
//! | `waits` | V has ended its doorway and has not entered |
//! | `bypassed` | the number of late threads that have entered since V ended its doorway |
//!
//! A doorway is the part of an acquisition that gives a thread its place, in a bounded number of the thread's own
//! steps. Each model says which part is the doorway. The ways to count differ in the threads that are in their doorway
//! when V leaves its own:
//!
//! | [`Count`] | an acquisition counts if |
//! |---|---|
//! | `Ended` | its doorway ended after V's, so that it did not come before V; the count of all models that name no other |
//! | `Began` | its doorway began after V's ended: the literature on bypass counts these |
//! | `Holds` | another thread takes the inner lock while V waits, even if no critical section follows |

use std::fmt::{self, Debug};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Ended,
    Began,
    Holds,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Member<A> {
    at: A,
    late: bool,
}

/// `N` threads, each at a place `A` of its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crowd<A, const N: usize> {
    members: [Member<A>; N],
    waits: bool,
    bypassed: u8,
}

impl<A: Copy + Ord, const N: usize> Crowd<A, N> {
    pub fn new(at: impl Fn(usize) -> A) -> Self {
        let members = std::array::from_fn(|who| Member { at: at(who), late: false });
        Self { members, waits: false, bypassed: 0 }
    }

    pub fn at(&self, who: usize) -> A {
        self.members[who].at
    }

    pub fn go(&mut self, who: usize, to: A) {
        self.members[who].at = to;
    }

    pub fn places(&self) -> impl Iterator<Item = A> {
        self.members.iter().map(|member| member.at)
    }

    pub fn places_mut(&mut self) -> impl Iterator<Item = &mut A> {
        self.members.iter_mut().map(|member| &mut member.at)
    }

    /// Notes that the doorway of thread `who` begins.
    pub fn begins(&mut self, who: usize, count: Count) {
        if count == Count::Began {
            self.members[who].late = self.waits && who != 0;
        }
    }

    /// Notes that the doorway of thread `who` ends.
    pub fn ends(&mut self, who: usize, count: Count) {
        if who == 0 {
            self.restart(true);
        } else if count != Count::Began {
            self.members[who].late = self.waits;
        }
    }

    /// Notes that the critical section of thread `who` begins.
    pub fn enters(&mut self, who: usize, count: Count) {
        if who == 0 {
            self.restart(false);
        } else {
            self.bypassed += u8::from(self.members[who].late && count != Count::Holds);
            self.members[who].late = false;
        }
    }

    /// Notes that thread `who` takes the inner lock, whether or not its critical section follows.
    pub fn holds(&mut self, who: usize, count: Count) {
        self.bypassed += u8::from(self.waits && who != 0 && count == Count::Holds);
    }

    /// Notes that thread `who` gives up its acquisition.
    pub fn gives_up(&mut self, who: usize) {
        if who == 0 {
            self.restart(false);
        } else {
            self.members[who].late = false;
        }
    }

    fn restart(&mut self, waits: bool) {
        self.waits = waits;
        self.bypassed = 0;
        self.members.iter_mut().for_each(|member| member.late = false);
    }

    pub fn bypassed(&self) -> u32 {
        self.bypassed.into()
    }

    #[must_use]
    pub fn unmeasured(self) -> Self {
        Self { bypassed: 0, ..self }
    }

    #[must_use]
    pub fn canonical(mut self) -> Self {
        self.members[1..].sort_unstable();
        self
    }
}

impl<A: Debug, const N: usize> Debug for Crowd<A, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| &member.at)).finish()?;
        write!(f, " bypassed {}", self.bypassed)
    }
}
