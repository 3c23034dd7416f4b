//! What is inside: the critical section.
//!
//! | | [`Alone`]: one at a time | [`Together`]: several |
//! |---|---|---|
//! | generator that is advanced there | one that all share | the contender's own: a shared one would be a lock itself |
//! | the order of admissions | counted | not: to count it would be to make one |

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_mt::Mt;

use super::Workload;

/// What a contender carries.
pub struct Visitor {
    pub me: usize,
    /// Its own generator.
    pub random: Mt,
}

impl Visitor {
    pub fn new(me: usize, seed: u32) -> Self {
        Self { me, random: Mt::new(seed.wrapping_add(me as u32 + 1)) }
    }
}

/// What is inside.
pub trait Room: Send + Sync + 'static {
    fn new(workload: &Workload) -> Self;

    /// How many have been admitted, for those who are outside; 0 if they are not counted.
    fn admissions(&self) -> u64;

    /// Does what is to be done inside; or, if the visitor is to leave at once, nothing. Returns how many have been
    /// admitted before; 0 if they are not counted.
    ///
    /// # Safety
    ///
    /// The visitor has been let in, by an entrance that lets in as many at a time as this room is for.
    unsafe fn visit(&self, visitor: &mut Visitor, stays: bool, cs: u32) -> u64;

    /// The longest run of admissions of one contender, if that has been counted. There have been this many in all.
    fn longest_run(self, admissions: u64) -> Option<u64>;
}

/// For one at a time.
pub struct Alone {
    /// Admissions so far. Written by the one who is inside only.
    seq: AtomicU64,
    shared: UnsafeCell<Shared>,
}

// SAFETY: `shared` is touched by the one who is inside only; the rest is atomic.
unsafe impl Sync for Alone {}

struct Shared {
    last_admitted: usize,
    current_run: u64,
    longest_run: u64,
    random: Mt,
}

impl Shared {
    #[inline]
    fn admit(&mut self, contender: usize) {
        if self.last_admitted == contender {
            self.current_run += 1;
        } else {
            self.last_admitted = contender;
            self.current_run = 1;
        }
        self.longest_run = self.longest_run.max(self.current_run);
    }
}

impl Room for Alone {
    fn new(workload: &Workload) -> Self {
        let shared =
            Shared { last_admitted: usize::MAX, current_run: 0, longest_run: 0, random: Mt::new(workload.seed) };
        Self { seq: AtomicU64::new(0), shared: UnsafeCell::new(shared) }
    }

    fn admissions(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    #[inline]
    unsafe fn visit(&self, visitor: &mut Visitor, stays: bool, cs: u32) -> u64 {
        // SAFETY: nobody else is inside, by the contract, and the reference does not leave.
        let shared = unsafe { &mut *self.shared.get() };
        let seq = self.seq.load(Ordering::Relaxed);
        if stays {
            self.seq.store(seq + 1, Ordering::Relaxed);
            shared.admit(visitor.me);
            steps(&mut shared.random, cs);
        }
        seq
    }

    fn longest_run(self, admissions: u64) -> Option<u64> {
        assert_eq!(admissions, self.seq.into_inner(), "two were in the critical section at once");
        Some(self.shared.into_inner().longest_run)
    }
}

/// For several at a time.
pub struct Together;

impl Room for Together {
    fn new(_: &Workload) -> Self {
        Self
    }

    fn admissions(&self) -> u64 {
        0
    }

    #[inline]
    unsafe fn visit(&self, visitor: &mut Visitor, stays: bool, cs: u32) -> u64 {
        if stays {
            steps(&mut visitor.random, cs);
        }
        0
    }

    fn longest_run(self, _: u64) -> Option<u64> {
        None
    }
}

#[inline]
pub fn steps(random: &mut Mt, n: u32) {
    for _ in 0..n {
        black_box(random.next_u32());
    }
}
