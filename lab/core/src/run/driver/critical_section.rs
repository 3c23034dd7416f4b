//! The critical section: the work of a contender while it is inside the target.
//!
//! | | [`Exclusive`]: one at a time | [`Shared`]: several | [`ReadersWriter`]: one writes, or several read |
//! |---|---|---|---|
//! | the access of a visit | always a write | always a write | drawn at random: a read or a write |
//! | the generator that is advanced | one that all contenders share | the contender's own: a shared generator would itself be a lock | the contender's own |
//! | other work | | | a reader looks at two words; a writer changes the words, and sees whether the last write was its own |
//! | the order of admissions | counted | not counted: a count would impose an order | not counted |

use std::cell::UnsafeCell;
use std::hint::black_box;
use sudog_runtime::shim::system::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::measure::mt::Mt;
use sudog_runtime::shim::work;

use super::Workload;
use crate::run::lockable::{Access, PerAccess};

pub struct ContenderState {
    pub me: usize,
    /// The contender's own generator.
    pub random: Mt,
    /// The state of a second, cheaper generator, for the accesses.
    drawn: u64,
    /// The number of writes of all contenders so far, as of this contender's last write.
    written: u64,
    /// The number of this contender's writes that came just after another write of this contender.
    pub writes_again: u64,
}

const SPREAD: u64 = 6_364_136_223_846_793_005;

impl ContenderState {
    pub fn new(me: usize, seed: u32) -> Self {
        let seed = seed.wrapping_add(me as u32 + 1);
        let drawn = u64::from(seed).wrapping_mul(SPREAD);
        Self { me, random: Mt::new(seed), drawn, written: u64::MAX, writes_again: 0 }
    }

    /// Returns true for `in_a_thousand` of a thousand calls, on average.
    #[inline]
    fn draw(&mut self, in_a_thousand: u32) -> bool {
        // Knuth's congruential generator. Only the upper half is random enough.
        self.drawn = self.drawn.wrapping_mul(SPREAD).wrapping_add(1_442_695_040_888_963_407);
        (self.drawn >> 32) * 1000 < u64::from(in_a_thousand) << 32
    }
}

pub trait CriticalSection: Send + Sync + 'static {
    /// True if the section is for one contender at a time. Then the order of admissions is counted.
    const IN_ORDER: bool;

    fn new(workload: &Workload) -> Self;

    /// Returns the access of the contender's next visit.
    fn access(contender: &mut ContenderState, workload: &Workload) -> Access;

    /// Returns the number of admissions so far, for contenders outside; 0 if admissions are not counted.
    fn admissions(&self) -> u64;

    /// Does the work of the section if `stays` is true. If `stays` is false, does nothing, because the contender leaves
    /// at once. Returns the number of admissions before this visit; 0 if admissions are not counted.
    ///
    /// # Safety
    ///
    /// The contender has been let in by a target that lets in at most as many contenders at a time as this section is
    /// for.
    unsafe fn visit(&self, contender: &mut ContenderState, access: Access, stays: bool, cs: u32) -> u64;

    /// Returns the longest run of admissions of one contender, if the section counts runs. `admissions` is the number
    /// of all admissions, by which the section checks its own counts.
    fn longest_run(&mut self, admissions: PerAccess<u64>) -> Option<u64>;
}

/// A section for one contender at a time.
pub struct Exclusive {
    /// The number of admissions so far. Written only by the contender inside.
    seq: AtomicU64,
    shared: UnsafeCell<Guarded>,
}

// SAFETY: `shared` is touched only by the contender inside, of which there is at most one; `seq` is atomic.
unsafe impl Sync for Exclusive {}

struct Guarded {
    last_admitted: usize,
    current_run: u64,
    longest_run: u64,
    random: Mt,
}

impl Guarded {
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

impl CriticalSection for Exclusive {
    const IN_ORDER: bool = true;

    fn new(workload: &Workload) -> Self {
        let shared =
            Guarded { last_admitted: usize::MAX, current_run: 0, longest_run: 0, random: Mt::new(workload.seed) };
        Self { seq: AtomicU64::new(0), shared: UnsafeCell::new(shared) }
    }

    #[inline]
    fn access(_: &mut ContenderState, _: &Workload) -> Access {
        Access::Write
    }

    fn admissions(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    #[inline]
    unsafe fn visit(&self, contender: &mut ContenderState, _: Access, stays: bool, cs: u32) -> u64 {
        // SAFETY: no other contender is inside, by the contract of `visit`, and the reference does not leave this
        // function.
        let shared = unsafe { &mut *self.shared.get() };
        let seq = self.seq.load(Ordering::Relaxed);
        if stays {
            self.seq.store(seq + 1, Ordering::Relaxed);
            shared.admit(contender.me);
            steps(&mut shared.random, cs);
        }
        seq
    }

    fn longest_run(&mut self, admissions: PerAccess<u64>) -> Option<u64> {
        assert_eq!(admissions.write, *self.seq.get_mut(), "two were in the critical section at once");
        Some(self.shared.get_mut().longest_run)
    }
}

/// A section for several contenders at a time.
pub struct Shared;

impl CriticalSection for Shared {
    const IN_ORDER: bool = false;

    fn new(_: &Workload) -> Self {
        Self
    }

    #[inline]
    fn access(_: &mut ContenderState, _: &Workload) -> Access {
        Access::Write
    }

    fn admissions(&self) -> u64 {
        0
    }

    #[inline]
    unsafe fn visit(&self, contender: &mut ContenderState, _: Access, stays: bool, cs: u32) -> u64 {
        if stays {
            steps(&mut contender.random, cs);
        }
        0
    }

    fn longest_run(&mut self, _: PerAccess<u64>) -> Option<u64> {
        None
    }
}

/// A section for one writer or several readers.
///
/// The two words count the writes, and are equal except for a moment in each write. They are changed by loads and
/// stores, so two writers at once lose a write; and a reader beside a writer may see the words differ.
pub struct ReadersWriter {
    words: [AtomicU64; 2],
    torn: AtomicBool,
}

impl CriticalSection for ReadersWriter {
    const IN_ORDER: bool = false;

    fn new(_: &Workload) -> Self {
        Self { words: [0, 0].map(AtomicU64::new), torn: AtomicBool::new(false) }
    }

    #[inline]
    fn access(contender: &mut ContenderState, workload: &Workload) -> Access {
        if contender.draw(workload.writes) { Access::Write } else { Access::Read }
    }

    fn admissions(&self) -> u64 {
        0
    }

    #[inline]
    unsafe fn visit(&self, contender: &mut ContenderState, access: Access, stays: bool, cs: u32) -> u64 {
        if stays {
            let [first, last] = &self.words;
            let seen = first.load(Ordering::Relaxed);
            if access == Access::Write {
                first.store(seen + 1, Ordering::Relaxed);
                contender.writes_again += u64::from(seen == contender.written);
                contender.written = seen + 1;
            }
            steps(&mut contender.random, cs);
            let also_seen = last.load(Ordering::Relaxed);
            if access == Access::Write {
                last.store(also_seen + 1, Ordering::Relaxed);
            }
            if seen != also_seen {
                self.torn.store(true, Ordering::Relaxed);
            }
        }
        0
    }

    fn longest_run(&mut self, admissions: PerAccess<u64>) -> Option<u64> {
        assert!(!*self.torn.get_mut(), "one wrote while another was inside");
        assert_eq!(self.words.each_mut().map(|word| *word.get_mut()), [admissions.write; 2], "two wrote at once");
        None
    }
}

/// The cycles that a step takes on a simulated machine, as measured by `cargo lab calibrate`.
const CYCLES: u64 = 5;

#[inline]
pub fn steps(random: &mut Mt, n: u32) {
    match n {
        0 => {}
        1 => {
            work(CYCLES);
            black_box(random.next_u32());
        }
        _ => many_steps(random, n),
    }
}

/// Does `n` steps. All locks use this same loop: a copy for each lock would lie at another address, and that alone
/// changed throughput by a tenth with 400 steps.
#[inline(never)]
fn many_steps(random: &mut Mt, n: u32) {
    work(CYCLES * u64::from(n));
    for _ in 0..n {
        black_box(random.next_u32());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_thousand() {
        const DRAWS: u32 = 1_000_000;
        let mut contender = ContenderState::new(0, 1);
        for share in [0, 1, 10, 500, 1000] {
            let drawn = (0..DRAWS).filter(|_| contender.draw(share)).count() as f64;
            let expected = f64::from(DRAWS) * f64::from(share) / 1000.0;
            // Six standard deviations.
            assert!(
                (drawn - expected).abs() <= 6.0 * (expected * (1.0 - f64::from(share) / 1000.0)).sqrt(),
                "{share}: {drawn}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "one wrote while another was inside")]
    fn a_reader_beside_a_writer_is_noticed() {
        let mut section = ReadersWriter { words: [1, 0].map(AtomicU64::new), torn: AtomicBool::new(false) };
        // SAFETY: the `visit` of this section relies on no fact about the target.
        unsafe { section.visit(&mut ContenderState::new(0, 1), Access::Read, true, 1) };
        section.words[1].store(1, Ordering::Relaxed);
        section.longest_run(PerAccess { read: 1, write: 1 });
    }

    #[test]
    #[should_panic(expected = "two wrote at once")]
    fn a_lost_write_is_noticed() {
        let mut section = ReadersWriter { words: [1, 1].map(AtomicU64::new), torn: AtomicBool::new(false) };
        section.longest_run(PerAccess { read: 0, write: 2 });
    }
}
