//! The hazard pointers of all threads.

use std::ptr;

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*, mark};

#[cfg(not(sudog_loom))]
pub(super) use threads::{of_this_process, with_hazard};

/// The number of values that goroutines of a thread can look at before the thread needs another record. More than one is
/// needed only if the user's code in a read reads again, or switches to another goroutine.
pub(super) const HAZARDS: usize = if cfg!(sudog_loom) { 1 } else { 4 };

/// The number of reads of values that are not biased for which one value is biased. Such a read takes 3 to 16 ns more than
/// a read of a value that is biased, and a heavy fence 0.4 to 50 us.
pub(super) const READS_FOR_A_BIAS: u32 = if cfg!(sudog_loom) { 1 } else { 10_000 };

/// A hazard pointer: the address of the value that a read looks at.
pub(super) struct Hazard {
    /// The address, or null. Only the record's owner writes here.
    address: AtomicPtr<()>,
    /// The number of reads by this hazard pointer, of values that were not biased, since such a value was biased.
    unbiased_reads: AtomicU32,
}

impl Hazard {
    fn new() -> Self {
        Self { address: AtomicPtr::new(ptr::null_mut()), unbiased_reads: AtomicU32::new(0) }
    }

    #[inline(always)]
    fn is_free(&self) -> bool {
        self.address.load(Relaxed).is_null()
    }

    /// Names a value, or none. Release: reads of the value that was named before are over.
    #[inline(always)]
    pub(super) fn name<T>(&self, address: *const T) {
        self.address.store(address.cast_mut().cast(), Release);
    }

    /// Names a value, or none, by a locked instruction: before the next SeqCst load of this thread.
    #[inline(always)]
    pub(super) fn name_sc<T>(&self, address: *const T) {
        self.address.swap(address.cast_mut().cast(), SeqCst);
    }

    /// Counts a read of a value that is not biased. Returns whether the value is to be biased.
    #[inline]
    pub(super) fn counts_for_a_bias(&self) -> bool {
        let reads = self.unbiased_reads.load(Relaxed) + 1;
        self.unbiased_reads.store(reads % READS_FOR_A_BIAS, Relaxed);
        reads == READS_FOR_A_BIAS
    }
}

/// The hazard pointers of a thread, in cache lines that no other thread writes to.
#[repr(align(128))]
pub(super) struct Record {
    hazards: [Hazard; HAZARDS],
    /// True while a thread, or a read, owns the record.
    owned: AtomicBool,
    /// The record that was made before this record.
    next: *const Record,
}

impl Record {
    fn new(next: *const Self) -> Self {
        Self { hazards: [(); HAZARDS].map(|()| Hazard::new()), owned: AtomicBool::new(true), next }
    }

    /// Returns a hazard pointer that names no value. Only the record's owner may call this.
    #[inline(always)]
    pub(super) fn free_hazard(&self) -> Option<&Hazard> {
        self.hazards.iter().find(|hazard| hazard.is_free())
    }

    /// Gives the record back, unless a read still uses a hazard pointer: a coroutine of another library may be suspended
    /// inside of a read when its thread ends. Then the record is never used again.
    pub(super) fn give_back(&self) {
        if self.hazards.iter().all(Hazard::is_free) {
            self.owned.store(false, Release); // the next owner sees the hazard pointers as they are
        }
    }
}

/// All records.
pub(super) struct Domain {
    /// The record that was made last. No record is freed before the domain is.
    first: AtomicPtr<Record>,
}

impl Domain {
    const_unless_model! {
        pub(super) const fn new() -> Domain {
            Domain { first: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Returns a record that the caller owns from now on.
    #[cold]
    pub(super) fn acquire(&self) -> &Record {
        let mut first = self.first.load(Acquire);
        // SAFETY: `first` comes from the list of this domain.
        let mut records = unsafe { Self::records_from(first) };
        if let Some(record) =
            records.find(|record| record.owned.compare_exchange(false, true, Acquire, Relaxed).is_ok())
        {
            mark("a record is used again");
            return record;
        }
        let record = Box::into_raw(Box::new(Record::new(first)));
        // SeqCst: before the record's first name, so that who would see the name sees the record.
        while let Err(now) = self.first.compare_exchange(first, record, SeqCst, Relaxed) {
            first = now;
            // SAFETY: `record` comes from a box, and is not on the list yet.
            unsafe { (*record).next = first };
        }
        // SAFETY: `record` comes from a box, and no record is freed before the domain.
        unsafe { &*record }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        // SeqCst: after a write's exchange of the word.
        // SAFETY: the pointer comes from the list of this domain.
        unsafe { Self::records_from(self.first.load(SeqCst)) }
    }

    /// Returns the record `first`, and those that were made before.
    ///
    /// # Safety
    ///
    /// `first` is null or comes from a SeqCst or Acquire load of the field of that name, and the domain outlives `'a`.
    unsafe fn records_from<'a>(first: *const Record) -> impl Iterator<Item = &'a Record> {
        // SAFETY: `first` is null or comes from a box, and no record is freed before the domain. The load pairs with the step
        // that put the record on the list; older records were put there before.
        let mut next = unsafe { first.as_ref() };
        std::iter::from_fn(move || {
            let record = next?;
            // SAFETY: `record.next` is null or an older record of the list, and no record is freed before the domain.
            next = unsafe { record.next.as_ref() };
            Some(record)
        })
    }

    /// Returns whether a hazard pointer names the address.
    pub(super) fn names<T>(&self, address: *const T) -> bool {
        let address = address.cast_mut().cast();
        // SeqCst: after a write's exchange of the word. Acquire: the reads under an earlier name are over.
        self.records().any(|record| record.hazards.iter().any(|hazard| hazard.address.load(SeqCst) == address))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let mut next = self.first.load(Relaxed).cast_const();
        while !next.is_null() {
            // SAFETY: `next` comes from a box, and is on the list once; no thread uses the domain any more.
            next = unsafe { Box::from_raw(next.cast_mut()) }.next;
        }
    }
}

/// The records of this process's threads.
#[cfg(not(sudog_loom))]
mod threads {
    use std::cell::Cell;

    use sudog_runtime::shim::system;

    use super::{Domain, Hazard, Record};

    static DOMAIN: Domain = Domain::new();

    system::thread_local! {
        // `RECORD` has no destructor, so that a read costs no look at the state of a thread-local.
        /// The thread's record, if `OWNER` has a record.
        static RECORD: Cell<Option<&'static Record>> = const { Cell::new(None) };
        static OWNER: Owner = Owner::new();
    }

    /// Owns the thread's record.
    struct Owner(&'static Record);

    impl Owner {
        fn new() -> Self {
            let record = DOMAIN.acquire();
            RECORD.with(|place| place.set(Some(record)));
            Self(record)
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            RECORD.with(|place| place.set(None));
            self.0.give_back();
        }
    }

    /// Owns a record for a single read.
    struct Extra(&'static Record);

    impl Drop for Extra {
        fn drop(&mut self) {
            self.0.give_back();
        }
    }

    /// Returns the records of this process.
    pub(in super::super) fn of_this_process() -> &'static Domain {
        &DOMAIN
    }

    /// Calls `f` with a hazard pointer that names no value, and with the records to which the hazard pointer belongs.
    #[inline(always)]
    pub(in super::super) fn with_hazard<R>(f: impl FnOnce(&'static Domain, &Hazard) -> R) -> R {
        match RECORD.with(Cell::get).and_then(Record::free_hazard) {
            Some(hazard) => f(&DOMAIN, hazard),
            None => with_another(f),
        }
    }

    /// Takes the thread's first record; or another record, if all hazard pointers of the thread's record are in use, or if
    /// the thread ends.
    #[cold]
    #[inline(never)]
    fn with_another<R>(f: impl FnOnce(&'static Domain, &Hazard) -> R) -> R {
        if let Some(hazard) = OWNER.try_with(|owner| owner.0.free_hazard()).ok().flatten() {
            return f(&DOMAIN, hazard);
        }
        let extra = Extra(DOMAIN.acquire());
        f(&DOMAIN, extra.0.free_hazard().expect("a record that nobody owned names a value"))
    }
}
