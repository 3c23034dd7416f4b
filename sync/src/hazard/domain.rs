//! The hazard pointers of all threads.

use std::ptr;

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*, mark, system};

#[cfg(not(sudog_loom))]
pub(super) use threads::{of_this_process, with_hazard};

/// The number of values that goroutines of a thread can look at before the thread needs another record. More than one is
/// needed only if the user's code in a read reads again, or switches to another goroutine.
pub(super) const HAZARDS: usize = if cfg!(sudog_loom) { 1 } else { 4 };

/// The number of reads by a hazard pointer, of values that are not biased, for which one value is biased. Such a read takes
/// 3 to 16 ns more than a read of a value that is biased, and a heavy fence 0.4 us, or 15 us and more beside other
/// threads. A prime, so that a loop over a few pointers does not bias the same pointer each time.
pub(super) const READS_FOR_A_BIAS: u32 = match (cfg!(sudog_loom), cfg!(test)) {
    (true, _) => 1,
    (false, true) => 17,
    (false, false) => 10_007,
};

/// A hazard pointer: the address of the value that a read looks at. Only the record's owner writes here.
pub(super) struct Hazard {
    /// The address, or null.
    address: AtomicPtr<()>,
    /// The address of the pointer from which the value was read: another pointer may have a reference of the same value.
    from: AtomicPtr<()>,
    /// The number of reads by this hazard pointer, of values that were not biased, since such a value was biased.
    unbiased_reads: AtomicU32,
}

impl Hazard {
    fn new() -> Self {
        let null = || AtomicPtr::new(ptr::null_mut());
        Self { address: null(), from: null(), unbiased_reads: AtomicU32::new(0) }
    }

    /// Acquire: a read that has ended on another thread, in a coroutine, is over for those who see this thread's next name.
    #[inline(always)]
    fn is_free(&self) -> bool {
        self.address.load(Acquire).is_null()
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

    /// Says from which pointer the values are read that this hazard pointer names from now on. Release, as in `name`.
    #[inline(always)]
    pub(super) fn name_from<P>(&self, pointer: *const P) {
        self.from.store(pointer.cast_mut().cast(), Release);
    }

    /// Returns whether the hazard pointer names a value that was read from a pointer.
    ///
    /// A name is written after the pointer's address. So if the pointer is another one than that of the name, the read with
    /// that name has ended.
    fn names(&self, address: *mut (), from: *mut ()) -> bool {
        // SeqCst: after a write's exchange of the word. Acquire: the reads under an earlier name are over.
        self.address.load(SeqCst) == address && self.from.load(Acquire) == from
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
    next: system::atomic::AtomicPtr<Record>,
}

impl Record {
    fn new() -> Self {
        Self {
            hazards: [(); HAZARDS].map(|()| Hazard::new()),
            owned: AtomicBool::new(true),
            next: system::atomic::AtomicPtr::default(),
        }
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
    /// The record that was made last. No record is ever freed.
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
    pub(super) fn acquire(&self) -> &'static Record {
        let mut first = self.first.load(Acquire);
        // Look before: a locked instruction would take the line from the owner.
        let take = |record: &&Record| {
            !record.owned.load(Relaxed) && record.owned.compare_exchange(false, true, Acquire, Relaxed).is_ok()
        };
        if let Some(record) = records_from(first).find(take) {
            mark("a record is used again");
            return record;
        }
        let record: &'static Record = Box::leak(Box::new(Record::new()));
        loop {
            record.next.store(first, Relaxed);
            // SeqCst: before the record's first name, so that who would see the name sees the record.
            match self.first.compare_exchange(first, ptr::from_ref(record).cast_mut(), SeqCst, Relaxed) {
                Ok(_) => return record,
                Err(now) => first = now,
            }
        }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &'static Record> {
        records_from(self.first.load(SeqCst)) // SeqCst: after a write's exchange of the word
    }

    /// Returns whether a hazard pointer names a value that was read from a pointer.
    pub(super) fn names<T, P>(&self, address: *const T, from: *const P) -> bool {
        let (address, from) = (address.cast_mut().cast(), from.cast_mut().cast());
        self.records().any(|record| record.hazards.iter().any(|hazard| hazard.names(address, from)))
    }
}

/// Returns the record `first` of a list, and those that were made before.
fn records_from(first: *mut Record) -> impl Iterator<Item = &'static Record> {
    let mut next = first;
    std::iter::from_fn(move || {
        // SAFETY: `next` is null or was a `&'static Record`, as only `acquire` stores pointers of records. A thread that reads the
        // pointer sees the record, as `first` is read with Acquire or SeqCst, and older records were put on the list before.
        let record = unsafe { next.as_ref() }?;
        next = record.next.load(Relaxed);
        Some(record)
    })
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
