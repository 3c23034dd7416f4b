//! An `Option<Arc<T>>` that is read without a locked instruction while it is seldom written: hazard pointers (Michael,
//! 2004) with [asymmetric fences](sudog_runtime::shim::asymmetric), and a bias towards reads as in BRAVO (Dice and Kogan,
//! 2019).
//!
//! A [`Map`](crate::Map) uses the same hazard pointers for its guards: see `map/reclaim`.
//!
//! Each thread has a few *hazard pointers*. A hazard pointer *names* the value that a read of that thread looks at, and no
//! value that is named is freed.
//!
//! | step | a read | a write |
//! |---|---|---|
//! | 1 | names the value that the [`Word`] has, and the pointer; fence | takes the old value out of the word; fence |
//! | 2 | looks at the word again, and starts anew if the word has changed | looks at all hazard pointers, and gives the value to its caller if none names it |
//! | 3 | looks at the value | otherwise also puts the value on the list of retired values, unless the value is there |
//! | 4 | names no value any more; fence | |
//! | 5 | sweeps the list, if the word has another value now, or if the read has started anew | sweeps the list, if it is not empty |
//!
//! To *sweep* the list is to free the values on the list that no hazard pointer names. The list has a lock,
//! under which no user code runs but the allocator. A write puts its value on the list, and sweeps the list, without
//! unlocking in between.
//!
//! # The bias
//!
//! A value is *biased* once the word has the flag [`BIASED`], which stays until the value is replaced. The word says what
//! the fences are:
//!
//! | the value that is read, or replaced | fences of the read | fence of the write |
//! |---|---|---|
//! | is not biased | the name is written by a locked instruction | the word is exchanged by a locked instruction |
//! | is biased | light, which costs nothing | heavy, a system call |
//!
//! Each hazard pointer biases a value once in [`READS_FOR_A_BIAS`](crate::bias) reads of values that are not biased. So for
//! each heavy fence there have been so many reads with locked instructions, however reads and writes alternate. Where there are no
//! heavy fences, no value is ever biased.
//!
//! # Why it is correct
//!
//! *Both fences are of one kind.* If a read has light fences, then the word was biased in step 2 of that read. The write that takes
//! that value out exchanges that word, or a later word of the same value, which is biased too; so the write executes the
//! heavy fence. If a read has locked instructions, these are SeqCst, and fence the read against both kinds of
//! writes: all accesses of steps 1 and 2 are SeqCst, and the heavy fence is a full fence.
//!
//! *A value that is read is not freed.* Of the steps 1 of a read and of a write, at least one is seen in the other's step
//! 2, as a fence is between the steps: either the read sees that the word has changed, or the write sees the name. Later
//! looks at the hazard pointers see the name, too, until step 4.
//!
//! *A value that is not read any more is freed.* The fence of the write that has replaced the value comes after the fence
//! of step 4 of a read that has named the value, or before it. If after, no look at the hazard pointers that follows the write's
//! fence sees that name. If before, the read finds another value in step 5, or has started anew; so the read sweeps.
//! Either this sweep finds the value on the list; or the write puts the value there later, and sees step 4, because of the
//! lock. There is one exception: a value that has been stored again meanwhile stays on the list until the next
//! write, or until the end of the pointer.
//!
//! *Reads end before the value is freed:* step 4 is a Release store, and each look at a hazard pointer an Acquire load.
//! For the single order of Go's atomics, the loads of step 2 and all changes of the word's value are SeqCst.
//!
//! Destructors run after the last step, under no lock. What stays in memory: each value that is read, until that read ends; and the
//! records of hazard pointers, of which there are as many as there were threads at a time, and one more for each read that
//! began while its thread had three reads under way. The child of a `fork` inherits
//! the names of threads that it does not have, and never frees the values that these were reading.

pub(crate) mod domain;
#[cfg(all(test, sudog_loom))]
mod models;
#[cfg(all(test, not(sudog_loom)))]
mod tests;

use std::mem::{self, ManuallyDrop};
use std::ptr;
#[cfg(not(sudog_loom))]
use std::sync::Arc;

#[cfg(sudog_loom)]
use loom::sync::Arc;
use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicBool, AtomicPtr, Mutex, Ordering::*, asymmetric, mark};

use domain::{Domain, Hazard};

/// Flag: reads of the value execute light fences.
const BIASED: usize = 1;

/// A pointer of an `Arc`, or null, and the flag [`BIASED`].
struct Word<T>(*mut T);

impl<T> Clone for Word<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Word<T> {}

impl<T> PartialEq for Word<T> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl<T> Word<T> {
    /// Returns the word of a value that is not biased.
    fn new(value: Option<&Arc<T>>) -> Self {
        let address = value.map_or(ptr::null(), Arc::as_ptr);
        // An `Arc` has two words before its value, so that the address of a byte is even as well.
        assert!(address.addr() & BIASED == 0, "the address of an `Arc`'s value is odd");
        Self(address.cast_mut())
    }

    #[inline(always)]
    fn is_none(self) -> bool {
        self.0.is_null()
    }

    #[inline(always)]
    fn is_biased(self) -> bool {
        self.0.addr() & BIASED != 0
    }

    /// Returns the address of the value.
    #[inline(always)]
    fn address(self) -> *const T {
        self.0.map_addr(|address| address & !BIASED)
    }

    /// Returns the word that has the same value, and the flag.
    fn biased(self) -> Self {
        Self(self.0.map_addr(|address| address | BIASED))
    }

    /// Executes the fence of a write that has replaced this word: none, if the value is not biased. Returns false if the
    /// system has refused.
    fn write_fence(self) -> bool {
        !self.is_biased() || {
            mark("a biased value is replaced");
            asymmetric::heavy()
        }
    }
}

/// An `Option<Arc<T>>` that is loaded, stored and exchanged atomically. See the top of this file.
pub(super) struct HazardArc<T> {
    /// The current value, as a [`Word`].
    word: AtomicPtr<T>,
    /// The values that hazard pointers named when the values were replaced, each once.
    retired: Mutex<Vec<Arc<T>>>,
    /// Whether `retired` has values. Written under the lock of `retired`.
    has_retired: AtomicBool,
}

/// A word that a write has taken out of its pointer, with what an `Arc` owned.
struct Taken<T>(Word<T>);

/// A read that has named the current value. Dropping the `Read` ends the read.
struct Read<'a, T> {
    pointer: &'a HazardArc<T>,
    domain: &'a Domain,
    hazard: &'a Hazard,
    /// The word in step 2.
    word: Word<T>,
}

impl<T> Read<'_, T> {
    /// Returns the `Arc` that the word was made of, without counting a reference.
    #[inline(always)]
    fn value(&self) -> ManuallyDrop<Arc<T>> {
        // SAFETY: the address comes from an `Arc` that its owner has forgotten. The pointer had the word after the hazard
        // pointer named the address, so whoever takes the `Arc` out of the pointer and drops it sees the name, until this
        // `Read` is dropped. The result is not dropped.
        ManuallyDrop::new(unsafe { Arc::from_raw(self.word.address()) })
    }
}

impl<T> Drop for Read<'_, T> {
    /// Steps 4 and 5. The called functions get copies of the fields, so that the `Read` need not be in memory.
    #[inline(always)]
    fn drop(&mut self) {
        let Self { pointer, domain, hazard, word } = *self;
        let is_replaced = if word.is_biased() {
            hazard.name::<T>(ptr::null());
            asymmetric::light();
            pointer.word() != word
        } else {
            pointer.end_unbiased(hazard, word)
        };
        if is_replaced {
            mark("a read sweeps");
            pointer.sweep(domain, None);
        }
    }
}

#[cfg(not(sudog_loom))]
impl<T> HazardArc<T> {
    /// Calls `f` with the value, if there is a value, and returns the result of `f`.
    #[inline]
    pub(super) fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        domain::with_hazard(|domain, hazard| self.read(domain, hazard, |read| f(&read.value())))
    }

    /// Returns the `Arc`.
    #[inline]
    pub(super) fn load(&self) -> Option<Arc<T>> {
        domain::with_hazard(|domain, hazard| self.read(domain, hazard, |read| Arc::clone(&read.value())))
    }

    /// Sets the `Arc`, and returns the previous one.
    pub(super) fn swap(&self, new: Option<Arc<T>>) -> Option<Arc<T>> {
        self.replace(domain::of_this_process(), new)
    }

    /// Sets the `Arc` to `new`, if the current one is identical to `old`. Returns whether the two were identical.
    pub(super) fn compare_and_swap(&self, old: Option<&Arc<T>>, new: Option<Arc<T>>) -> bool {
        self.replace_if(domain::of_this_process(), old.map_or(ptr::null(), Arc::as_ptr), new).is_ok()
    }
}

impl<T> HazardArc<T> {
    const_unless_model! {
        pub(super) const fn new() -> Self {
            Self {
                word: AtomicPtr::new(ptr::null_mut()),
                retired: Mutex::new(Vec::new()),
                has_retired: AtomicBool::new(false),
            }
        }
    }

    #[inline(always)]
    fn word(&self) -> Word<T> {
        Word(self.word.load(SeqCst))
    }

    /// Calls `f` with a read, if there is a value, and returns the result of `f`.
    #[inline(always)]
    fn read<R>(&self, domain: &Domain, hazard: &Hazard, f: impl FnOnce(&Read<'_, T>) -> R) -> Option<R> {
        let word = self.word();
        if word.is_none() {
            return None;
        }
        hazard.name_from(self);
        match self.named(hazard, word) {
            Some(word) => Some(f(&Read { pointer: self, domain, hazard, word })),
            None => self.read_anew(domain, hazard, f),
        }
    }

    /// Steps 1 and 2: names the value of the word, and returns the word if this still is the current word.
    #[inline(always)]
    fn named(&self, hazard: &Hazard, word: Word<T>) -> Option<Word<T>> {
        if word.is_biased() {
            hazard.name(word.address());
            asymmetric::light();
        } else {
            hazard.name_sc(word.address());
        }
        // Of two equal words, the later one is that of the value that is alive.
        let now = self.word();
        (now == word).then_some(now)
    }

    /// Step 4 of a read whose value is not biased. Returns whether the value has been replaced.
    #[inline(never)]
    fn end_unbiased(&self, hazard: &Hazard, word: Word<T>) -> bool {
        if hazard.unbiased_reads.count() {
            self.bias(word);
        }
        hazard.name_sc::<T>(ptr::null());
        !ptr::eq(self.word().address(), word.address()) // a bias changes the word only
    }

    /// Biases the value, if it is still the current value. The caller's read keeps the value, so no other value has the address.
    #[cold]
    fn bias(&self, word: Word<T>) {
        if asymmetric::is_available() {
            mark("a value is biased");
            let _ = self.word.compare_exchange(word.0, word.biased().0, SeqCst, Relaxed);
        }
    }

    /// A read whose hazard pointer names a value that is not current any more.
    #[cold]
    #[inline(never)]
    fn read_anew<R>(&self, domain: &Domain, hazard: &Hazard, f: impl FnOnce(&Read<'_, T>) -> R) -> Option<R> {
        let read = loop {
            mark("a read starts anew");
            let word = self.word();
            if word.is_none() {
                hazard.name::<T>(ptr::null());
                break None;
            }
            if let Some(word) = self.named(hazard, word) {
                break Some(Read { pointer: self, domain, hazard, word });
            }
        };
        self.sweep(domain, None); // a write may have seen one of the earlier names
        read.map(|read| f(&read))
    }

    /// Sets the value, and returns the previous value.
    fn replace(&self, domain: &Domain, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let old = self.word.swap(Word::new(new.as_ref()).0, SeqCst);
        mem::forget(new); // the word owns the reference
        self.take_over(domain, Taken(Word(old)))
    }

    /// Sets the value, if the current value is at the address `old`. Returns the previous value, or `new`.
    ///
    /// The caller keeps the value at `old`, so no other value has that address.
    fn replace_if(
        &self,
        domain: &Domain,
        old: *const T,
        new: Option<Arc<T>>,
    ) -> Result<Option<Arc<T>>, Option<Arc<T>>> {
        let mut word = self.word();
        while ptr::eq(word.address(), old) {
            match self.word.compare_exchange(word.0, Word::new(new.as_ref()).0, SeqCst, SeqCst) {
                Ok(_) => {
                    mem::forget(new); // the word owns the reference
                    return Ok(self.take_over(domain, Taken(word)));
                }
                Err(now) => {
                    mark("another word is current");
                    word = Word(now); // of another value; or of `old`, which has been biased
                }
            }
        }
        Err(new)
    }

    /// The rest of step 1, and steps 2 to 5, of a write. Returns the value of the word.
    fn take_over(&self, domain: &Domain, Taken(old): Taken<T>) -> Option<Arc<T>> {
        if old.is_none() {
            self.sweep_if_any(domain);
            return None;
        }
        // SAFETY: the address comes from an `Arc` that its owner has forgotten, and only the writer that has taken the word
        // has a `Taken`.
        let value = unsafe { Arc::from_raw(old.address()) };
        if !old.write_fence() {
            // Reads may look at the value that no look at their hazard pointers shows: a reference stays for ever.
            mem::forget(value.clone());
        } else if domain.names(old.address(), self) {
            mark("a value is retired");
            self.sweep(domain, Some(value.clone()));
        } else {
            self.sweep_if_any(domain);
        }
        Some(value)
    }

    fn sweep_if_any(&self, domain: &Domain) {
        if self.has_retired.load(Relaxed) {
            self.sweep(domain, None);
        }
    }

    /// Frees the retired values that no hazard pointer names. Before, `also` is retired, unless that value already is.
    #[cold]
    #[inline(never)]
    fn sweep(&self, domain: &Domain, also: Option<Arc<T>>) {
        let mut retired = self.retired.lock();
        // One reference keeps a value for all reads, however often the value was stored and replaced.
        let also = also.filter(|also| !retired.iter().any(|there| Arc::ptr_eq(there, also)));
        retired.extend(also);
        let free: Vec<_> = retired.extract_if(.., |value| !domain.names(Arc::as_ptr(value), self)).collect();
        self.has_retired.store(!retired.is_empty(), Relaxed);
        drop(retired);
        drop(free); // the user's destructors
    }
}

impl<T> Drop for HazardArc<T> {
    fn drop(&mut self) {
        // No thread uses the pointer: the value needs no fence, and no hazard pointer names the value. The fields' destructors
        // free the retired values.
        let current = Word::<T>(self.word().address().cast_mut());
        drop(self.take_over(&Domain::new(), Taken(current)));
    }
}
