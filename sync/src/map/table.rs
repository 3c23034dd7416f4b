//! papaya's table, with lines of keys of one hash.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hasher};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use papaya::{Compute, HashMapRef, LocalGuard, Operation};

pub(super) struct Table<K, V, S> {
    pub(super) lines: papaya::HashMap<u64, Line<K, V>, Mix>,
    pub(super) hasher: S,
    /// How many ranges have begun.
    pub(super) ranges: AtomicU64,
}

/// The lines, and the thread's guard: what is seen through this is there as long as this is.
pub(super) type Lines<'a, K, V> = HashMapRef<'a, u64, Line<K, V>, Mix, LocalGuard<'a>>;

/// The keys of one hash.
pub(super) struct Line<K, V> {
    born: AtomicU64,
    first: Option<Arc<Pair<K, V>>>,
    more: Box<[Arc<Pair<K, V>>]>,
}

pub(super) struct Pair<K, V> {
    pub(super) key: K,
    pub(super) value: V,
}

impl<K, V, S> Table<K, V, S> {
    pub(super) fn new(hasher: S) -> Self {
        Self { lines: papaya::HashMap::with_hasher(Mix), hasher, ranges: AtomicU64::new(0) }
    }

    /// A line with the new pair: that of its key if there was none, else the old one with this for what is `there`.
    #[inline]
    pub(super) fn line(
        &self,
        old: Option<&Line<K, V>>,
        there: Option<&Arc<Pair<K, V>>>,
        new: &Arc<Pair<K, V>>,
    ) -> Line<K, V> {
        old.map_or_else(|| Line::of(new.clone()), |old| old.with(there, new, &self.ranges))
    }

    /// Exchanges the line for what `step` makes of it, atomically: `step` may be asked several times. False if it has
    /// left things as they are.
    ///
    /// One call of papaya's `compute` would do, but for this: it never helps to copy entries to a bigger table. If all
    /// entries came by it, tables would only ever queue up.
    #[inline]
    pub(super) fn alter<'g>(
        &self,
        hash: u64,
        lines: &'g Lines<'_, K, V>,
        mut step: impl FnMut(Option<&'g Line<K, V>>) -> Step<K, V>,
    ) -> bool {
        loop {
            let line = lines.get(&hash);
            let done = match (line, step(line)) {
                (_, Step::Leave) => return false,
                (None, Step::Put(new)) => match lines.try_insert(hash, new) {
                    Ok(line) => {
                        // Between the store that has shown the line and our next load, which may be of this map: so
                        // that of two callers that insert and then look for each other's key, at least one finds it.
                        // And for `born`.
                        fence(SeqCst);
                        line.born_by_now(&self.ranges);
                        return true;
                    }
                    Err(_) => false,
                },
                (Some(line), Step::Put(new)) => {
                    let mut new = Some(new);
                    let outcome = lines.compute(hash, |now| match (now, new.take()) {
                        (Some((_, now)), Some(new)) if ptr::eq(now, line) => Operation::Insert(new),
                        _ => Operation::Abort(()),
                    });
                    matches!(outcome, Compute::Updated { .. })
                }
                (Some(line), Step::Remove) => {
                    matches!(lines.remove_if(&hash, |_, now| ptr::eq(now, line)), Ok(Some(_)))
                }
                (None, Step::Remove) => unreachable!("there is nothing to remove"),
            };
            if done {
                // As above; on these machines a compare-exchange is a fence already.
                if !cfg!(any(target_arch = "x86_64", target_arch = "x86")) {
                    fence(SeqCst);
                }
                return true;
            }
        }
    }
}

/// What becomes of a line.
pub(super) enum Step<K, V> {
    Leave,
    Put(Line<K, V>),
    Remove,
}

impl<K, V> Line<K, V> {
    /// No caller has looked yet at how many ranges have begun.
    const UNKNOWN: u64 = u64::MAX;

    fn of(pair: Arc<Pair<K, V>>) -> Self {
        Self { born: AtomicU64::new(Self::UNKNOWN), first: Some(pair), more: Box::default() }
    }

    /// How many ranges had begun at some time after this line's place was taken, and before the insertion that took it
    /// returned. A line that takes the place of another one inherits this.
    ///
    /// A range passes over lines that were born after it began. It so misses no key that was stored before: that line
    /// was born before. And it sees none twice. For the key to be in a second place, it was removed from the first
    /// after the range had looked there, so after the range had begun. The inserter of the second knew of the removal,
    /// and looked at the count after that.
    ///
    /// A reader looks at the count for the inserter, if the inserter has not yet.
    ///
    /// Orderings: the look at the first place is SeqCst (papaya's `protect`), and so is the step of the count before
    /// it. The removal comes after the look, in the place's modification order. It happens before the inserter's fence,
    /// as the inserter has seen it; so in the order of all SeqCst the look comes before that fence, and the load after
    /// the fence sees the step. A reader that saw the insertion, and loads the count for the inserter, has a fence of
    /// its own.
    #[inline]
    pub(super) fn born(&self, ranges: &AtomicU64) -> u64 {
        match self.born.load(Relaxed) {
            Self::UNKNOWN => {
                fence(SeqCst);
                self.born_by_now(ranges)
            }
            born => born,
        }
    }

    fn born_by_now(&self, ranges: &AtomicU64) -> u64 {
        let now = ranges.load(SeqCst);
        // Relaxed: a number, and whichever came first is right.
        self.born.compare_exchange(Self::UNKNOWN, now, Relaxed, Relaxed).err().unwrap_or(now)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = &Arc<Pair<K, V>>> {
        self.first.iter().chain(&self.more)
    }

    #[inline]
    pub(super) fn find<Q: Eq + ?Sized>(&self, key: &Q) -> Option<&Arc<Pair<K, V>>>
    where
        K: Borrow<Q>,
    {
        self.pairs().find(|pair| pair.key.borrow() == key)
    }

    /// The line with a new pair for what is `there`, or in addition.
    #[inline]
    fn with(&self, there: Option<&Arc<Pair<K, V>>>, new: &Arc<Pair<K, V>>, ranges: &AtomicU64) -> Self {
        let born = AtomicU64::new(self.born(ranges));
        if self.more.is_empty() && there.is_some() {
            return Self { born, first: Some(new.clone()), more: Box::default() };
        }
        let others = self.pairs().filter(|pair| there.is_none_or(|there| !Arc::ptr_eq(pair, there)));
        Self::from_pairs(born, others.chain([new]).cloned().collect())
    }

    /// The line without this pair of it, if it has others.
    pub(super) fn without(&self, gone: &Arc<Pair<K, V>>, ranges: &AtomicU64) -> Option<Self> {
        if self.more.is_empty() {
            return None;
        }
        let rest = self.pairs().filter(|pair| !Arc::ptr_eq(pair, gone)).cloned().collect();
        Some(Self::from_pairs(AtomicU64::new(self.born(ranges)), rest))
    }

    fn from_pairs(born: AtomicU64, mut pairs: Vec<Arc<Pair<K, V>>>) -> Self {
        let first = pairs.pop();
        Self { born, first, more: pairs.into_boxed_slice() }
    }
}

/// Where papaya reclaims memory; it, and what it waits for, must not be unwound.
impl<K, V> Drop for Line<K, V> {
    fn drop(&mut self) {
        for pair in self.first.take().into_iter().chain(mem::take(&mut self.more)) {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(pair)))
                && let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
            {
                mem::forget(another); // it may go on like this
            }
        }
    }
}

/// papaya takes a table's slot from the low bits of the hash, and a tag from the high ones; the user's hasher may be
/// good in neither. One to one, so that different hashes do not become one.
#[derive(Clone, Copy)]
pub(super) struct Mix;

pub(super) struct Mixed(u64);

impl BuildHasher for Mix {
    type Hasher = Mixed;

    #[inline]
    fn build_hasher(&self) -> Mixed {
        Mixed(0)
    }
}

impl Hasher for Mixed {
    #[inline]
    fn write_u64(&mut self, hash: u64) {
        let mut h = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h = (h ^ (h >> 29)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.0 = h ^ (h >> 32);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are u64");
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
