//! An `Option<Arc<T>>` that is read without a locked instruction while it is seldom written: hazard pointers (Michael,
//! 2004) with [asymmetric fences](sudog_runtime::shim::asymmetric), and a bias towards reads as in BRAVO (Dice and Kogan,
//! 2019).
//!
//! Each thread has a few *hazard pointers*. A hazard pointer *names* the value that a read of that thread looks at, and no
//! value that is named is freed.
//!
//! | step | a read | a write |
//! |---|---|---|
//! | 1 | names the value that the [`Word`] has; fence | takes the old value out of the word; fence |
//! | 2 | looks at the word again, and starts anew if the word has changed | looks at all hazard pointers, and gives the value to its caller if none names it |
//! | 3 | looks at the value | otherwise also puts the value on the list of retired values |
//! | 4 | names no value any more; fence | |
//! | 5 | sweeps the list, if the word has another value now, or if the read has started anew | sweeps the list, if it is not empty |
//!
//! To *sweep* the list is to take the whole list, to free the values that no hazard pointer names, to put the others back,
//! and to start anew if one of these is not named any more.
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
//! Each thread biases a value once in [`READS_FOR_A_BIAS`](domain) reads of values that are not biased. So for each system
//! call there have been so many reads with locked instructions, however reads and writes alternate. Where there are no
//! heavy fences, no value is ever biased.
//!
//! # Why it is correct
//!
//! *Both fences are of one kind.* If a read has light fences, then the word was biased in step 2 of that read. The write that takes
//! that value out exchanges that word, or a later word of the same value, which is biased too; so the write executes the
//! heavy fence. If a read has locked instructions, these are fences against both kinds of writes.
//!
//! *A value that is read is not freed.* Of the steps 1 of a read and of a write, at least one is seen in the other's step
//! 2, as a fence is between the steps: either the read sees that the word has changed, or the write sees the name. Later
//! looks at the hazard pointers see the name, too, until step 4.
//!
//! *A value that is not read any more is freed.* The fence of the write that has replaced the value comes after the fence
//! of step 4 of a read that has named the value, or before it. If after, no look at the hazard pointers that follows the write's
//! fence sees that name. If before, the read finds another value in step 5, or has started anew; so the read sweeps.
//! Either this sweep finds the value on the list; or the value is put there later, and who puts it there sees step 4, as
//! the list is changed by RMWs only. There are two exceptions, in which the value stays on the list until the next write,
//! or until the end of the pointer: the value has been stored again meanwhile; or the name was that of a read of another
//! pointer, before its step 2, and the value has the address of an older value of that pointer.
//!
//! *Reads end before the value is freed:* step 4 is a Release store, and each look at a hazard pointer an Acquire load.
//! For the single order of Go's atomics, the loads of step 2 and all changes of the word's value are SeqCst.
//!
//! Destructors run after the last step. What stays in memory: each value that is read, until that read ends; and the
//! records of hazard pointers, of which there are as many as there were threads at a time. The child of a `fork` inherits
//! the names of threads that it does not have, and never frees the values that these were reading.

mod domain;
#[cfg(all(test, sudog_loom))]
mod models;
#[cfg(all(test, not(sudog_loom)))]
mod tests;

use std::marker::PhantomData;
#[cfg(not(sudog_loom))]
use std::sync::Arc;
use std::{mem, ptr};

#[cfg(sudog_loom)]
use loom::sync::Arc;
use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicPtr, Ordering::*, asymmetric, mark};

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
    /// Returns a word that is not biased, and that owns what the `Arc` owned.
    fn new(value: Option<Arc<T>>) -> Self {
        let Some(value) = value else { return Self(ptr::null_mut()) };
        // An `Arc` has two words before its value, so that the address of a byte is even as well.
        assert!(Arc::as_ptr(&value).addr() & BIASED == 0, "the address of an `Arc`'s value is odd");
        Self(Arc::into_raw(value).cast_mut())
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

/// A value that a hazard pointer named when the value was replaced.
struct Retired<T> {
    value: Arc<T>,
    next: *mut Retired<T>,
}

/// An `Option<Arc<T>>` that is loaded, stored and exchanged atomically. See the top of this file.
pub(super) struct HazardArc<T> {
    /// The current value, as a [`Word`].
    word: AtomicPtr<T>,
    /// The list of retired values.
    retired: AtomicPtr<Retired<T>>,
    owns: PhantomData<Arc<T>>,
}

/// A read that has named the current value. Dropping the `Read` ends the read.
struct Read<'a, T> {
    pointer: &'a HazardArc<T>,
    domain: &'a Domain,
    hazard: &'a Hazard,
    /// The word in step 2.
    word: Word<T>,
}

impl<T> Read<'_, T> {
    /// Returns the value that the read looks at.
    #[inline(always)]
    fn value(&self) -> &T {
        // SAFETY: the address comes from an `Arc`. The pointer had the word after the hazard pointer named the address, so
        // whoever takes the `Arc` out of the pointer and drops it sees the name, until this `Read` is dropped.
        unsafe { &*self.word.address() }
    }

    /// Returns an `Arc` of the value that the read looks at.
    #[inline(always)]
    fn value_arc(&self) -> Arc<T> {
        let address = self.word.address();
        // SAFETY: the address comes from `Arc::into_raw`. The `Arc` is alive as long as this `Read` is: see `value`.
        unsafe {
            Arc::increment_strong_count(address);
            Arc::from_raw(address)
        }
    }

    /// Step 4, if the value is not biased. Returns whether the value has been replaced.
    #[inline(never)]
    fn end_unbiased(&self) -> bool {
        if self.hazard.counts_for_a_bias() {
            self.bias();
        }
        self.hazard.name_sc::<T>(ptr::null());
        !ptr::eq(self.pointer.word().address(), self.word.address()) // a bias changes the word only
    }

    /// Biases the value, if it is still the current value. The read keeps the value, so no other value has the address.
    #[cold]
    fn bias(&self) {
        if asymmetric::is_available() {
            mark("a value is biased");
            let _ = self.pointer.word.compare_exchange(self.word.0, self.word.biased().0, SeqCst, Relaxed);
        }
    }
}

impl<T> Drop for Read<'_, T> {
    /// Steps 4 and 5.
    #[inline(always)]
    fn drop(&mut self) {
        let is_replaced = if self.word.is_biased() {
            self.hazard.name::<T>(ptr::null());
            asymmetric::light();
            self.pointer.word() != self.word
        } else {
            self.end_unbiased()
        };
        if is_replaced {
            mark("a read sweeps");
            self.pointer.sweep(self.domain);
        }
    }
}

#[cfg(not(sudog_loom))]
impl<T> HazardArc<T> {
    /// Calls `f` with the value, if there is a value, and returns the result of `f`.
    #[inline]
    pub(super) fn load_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        domain::with_hazard(|domain, hazard| self.read(domain, hazard, |read| f(read.value())))
    }

    /// Returns the `Arc`.
    #[inline]
    pub(super) fn load(&self) -> Option<Arc<T>> {
        domain::with_hazard(|domain, hazard| self.read(domain, hazard, |read| read.value_arc()))
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
            Self { word: AtomicPtr::new(ptr::null_mut()), retired: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
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
            None
        } else if self.keeps_named(hazard, word) {
            Some(f(&Read { pointer: self, domain, hazard, word }))
        } else {
            self.read_anew(domain, hazard, f)
        }
    }

    /// Steps 1 and 2: names the value of the word, and returns whether this still is the current word.
    #[inline(always)]
    fn keeps_named(&self, hazard: &Hazard, word: Word<T>) -> bool {
        if word.is_biased() {
            hazard.name(word.address());
            asymmetric::light();
        } else {
            hazard.name_sc(word.address());
        }
        self.word() == word
    }

    /// A read whose hazard pointer names a value that is not current any more.
    #[cold]
    #[inline(never)]
    fn read_anew<R>(&self, domain: &Domain, hazard: &Hazard, f: impl FnOnce(&Read<'_, T>) -> R) -> Option<R> {
        let _sweep = Sweep(self, domain);
        loop {
            mark("a read starts anew");
            let word = self.word();
            if word.is_none() {
                hazard.name::<T>(ptr::null());
                return None;
            }
            if self.keeps_named(hazard, word) {
                return Some(f(&Read { pointer: self, domain, hazard, word }));
            }
        }
    }

    /// Sets the value, and returns the previous value.
    fn replace(&self, domain: &Domain, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let old = Word(self.word.swap(Word::new(new).0, SeqCst));
        self.take_over(domain, old)
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
        if !ptr::eq(word.address(), old) {
            return Err(new);
        }
        let new = Word::new(new);
        while let Err(now) = self.word.compare_exchange(word.0, new.0, SeqCst, SeqCst) {
            word = Word(now);
            if !ptr::eq(word.address(), old) {
                // SAFETY: `new` owns what an `Arc` owned, and is in no pointer.
                return Err((!new.is_none()).then(|| unsafe { Arc::from_raw(new.address()) }));
            }
            mark("a value becomes biased while it is exchanged");
        }
        Ok(self.take_over(domain, word))
    }

    /// The rest of step 1, and steps 2 to 5, of a write that has taken the value `old` out of the word. Returns the value.
    fn take_over(&self, domain: &Domain, old: Word<T>) -> Option<Arc<T>> {
        if old.is_none() {
            return None;
        }
        // SAFETY: the word owned what an `Arc` owned, and this write has taken the word.
        let value = unsafe { Arc::from_raw(old.address()) };
        if !old.write_fence() {
            // Reads may look at the value that no look at their hazard pointers shows: this `Arc` is never dropped.
            mem::forget(value.clone());
        } else if domain.names(old.address()) {
            mark("a value is retired");
            self.put(Box::new(Retired { value: value.clone(), next: ptr::null_mut() }));
        }
        if !self.retired.load(Relaxed).is_null() {
            self.sweep(domain);
        }
        Some(value)
    }

    /// Puts a value on the list.
    fn put(&self, mut retired: Box<Retired<T>>) {
        let mut first = self.retired.load(Relaxed);
        loop {
            retired.next = first;
            let new = Box::into_raw(retired);
            // Release: who takes the list sees the value. Acquire: if a read has taken the list before, this thread sees
            // that the read names no value any more.
            match self.retired.compare_exchange(first, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
            // SAFETY: `new` comes from a box, and is not on the list.
            retired = unsafe { Box::from_raw(new) };
        }
    }

    /// Frees the retired values that no hazard pointer names.
    #[cold]
    #[inline(never)]
    fn sweep(&self, domain: &Domain) {
        let mut free = Vec::new();
        loop {
            // AcqRel: who changes the list later sees what this thread's hazard pointers name now.
            let mut list = self.retired.swap(ptr::null_mut(), AcqRel);
            let mut named = Vec::new();
            while !list.is_null() {
                // SAFETY: `list` comes from a box, and is on no list any more.
                let mut retired = unsafe { Box::from_raw(list) };
                list = mem::replace(&mut retired.next, ptr::null_mut());
                let address = Arc::as_ptr(&retired.value);
                if domain.names(address) {
                    named.push(address);
                    self.put(retired);
                } else {
                    free.push(retired);
                }
            }
            if named.iter().all(|&address| domain.names(address)) {
                break; // the reads that look at these values will sweep
            }
            mark("a name is given up before the value is on the list");
        }
        drop(free); // the user's destructors
    }
}

/// Sweeps the list when dropped.
struct Sweep<'a, T>(&'a HazardArc<T>, &'a Domain);

impl<T> Drop for Sweep<'_, T> {
    fn drop(&mut self) {
        self.0.sweep(self.1);
    }
}

impl<T> Drop for HazardArc<T> {
    fn drop(&mut self) {
        let current = self.word();
        // No thread uses the pointer, so no read looks at a value.
        if !current.is_none() {
            // SAFETY: the word owns what an `Arc` owned.
            drop(unsafe { Arc::from_raw(current.address()) });
        }
        let mut list = self.retired.load(Relaxed);
        while !list.is_null() {
            // SAFETY: `list` comes from a box, and is on the list once.
            list = unsafe { Box::from_raw(list) }.next;
        }
    }
}
