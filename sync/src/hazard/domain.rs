//! The hazard pointers of all threads.

use std::ptr;

use sudog_runtime::const_unless_model;
use sudog_runtime::shim::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*, mark, system};

use crate::bias::UnbiasedReads;

#[cfg(all(test, sudog_loom))]
pub(crate) use model_threads::own_record;
#[cfg(sudog_loom)]
use model_threads::record_of_this_thread;
#[cfg(not(sudog_loom))]
use threads::record_of_this_thread;
#[cfg(not(sudog_loom))]
pub(crate) use threads::{of_this_process, with_hazard, with_own_hazard};

/// The number of hazard pointers that a thread's goroutines can use before the thread needs another record. More than one is
/// needed only if the user's code in a read reads again, or switches to another goroutine.
pub(super) const HAZARDS: usize = if cfg!(sudog_loom) { 1 } else { 3 };

/// The address that a guard names: no value has this address.
const GUARD: *const () = ptr::without_provenance(1);

/// A hazard pointer: the address of the value that a read looks at; or a *guard*, which keeps all memory that its map had when
/// the guard began. Only the record's owner writes here, but for `is_awaited`.
pub(crate) struct Hazard {
    /// The address, [`GUARD`], or null.
    address: AtomicPtr<()>,
    /// The address of the pointer from which the value was read: another pointer may have a reference of the same value. Or
    /// the address of the guard's map.
    from: AtomicPtr<()>,
    /// The number of guards that there have been here, modulo 2 to the 32.
    guards: AtomicU32,
    pub(crate) unbiased_reads: UnbiasedReads,
    /// A flag that other threads set: memory may wait for the end of the guard.
    is_awaited: AtomicBool,
}

/// A guard that is, or was, in a hazard pointer.
pub(crate) struct GuardId {
    hazard: &'static Hazard,
    number: u32,
}

impl Hazard {
    fn new() -> Self {
        let null = || AtomicPtr::new(ptr::null_mut());
        Self {
            address: null(),
            from: null(),
            guards: AtomicU32::new(0),
            unbiased_reads: UnbiasedReads::new(),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Acquire: a read that has ended on another thread, in a coroutine, is over for those who see this thread's next name.
    #[inline(always)]
    fn is_free(&self) -> bool {
        self.address.load(Acquire).is_null()
    }

    /// Names a value, or none. Release: reads of the value, or of the map, that was named before are over.
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

    /// Says that the next guard is one of a map.
    #[inline(always)]
    pub(crate) fn announce_guard<P>(&self, map: *const P) {
        self.guards.store(self.guards.load(Relaxed).wrapping_add(1), Release);
        self.name_from(map);
    }

    /// Begins the guard that was announced.
    #[inline(always)]
    pub(crate) fn begin_guard(&self) {
        self.name(GUARD);
    }

    /// Begins the guard that was announced, by a locked instruction: before the next SeqCst load of this thread.
    #[inline(always)]
    pub(crate) fn begin_guard_sc(&self) {
        self.name_sc(GUARD);
    }

    /// Ends the guard. Returns whether memory may wait for that.
    #[inline(always)]
    pub(crate) fn end_guard(&self) -> bool {
        self.name::<()>(ptr::null());
        self.is_awaited.load(Relaxed) && {
            self.is_awaited.store(false, Relaxed);
            true
        }
    }

    /// Returns the number of the guard that a map has here.
    ///
    /// The number and the map's address are written before the guard begins. So if the number or the address is that of another
    /// guard, the guard that began has ended.
    fn guard_of(&self, map: *mut ()) -> Option<u32> {
        self.names(GUARD.cast_mut(), map).then(|| self.guards.load(Acquire))
    }
}

/// The hazard pointers of a thread, in cache lines that no other thread writes to, but for `is_awaited`.
#[repr(align(128))]
pub(crate) struct Record {
    hazards: [Hazard; HAZARDS],
    /// The number of records that were made before this record.
    index: AtomicUsize,
    /// True while a thread, or a read, owns the record.
    owned: AtomicBool,
    /// The record that was made before this record.
    next: system::atomic::AtomicPtr<Record>,
}

impl Record {
    fn new() -> Self {
        Self {
            hazards: [(); HAZARDS].map(|()| Hazard::new()),
            index: AtomicUsize::new(0),
            owned: AtomicBool::new(true),
            next: system::atomic::AtomicPtr::default(),
        }
    }

    /// Returns a hazard pointer that names no value. Only the record's owner may call this.
    #[inline(always)]
    pub(crate) fn free_hazard(&self) -> Option<&Hazard> {
        self.hazards.iter().find(|hazard| hazard.is_free())
    }

    /// Returns the number of records that were made before this record.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.index.load(Relaxed) // written before the record is on the list
    }

    /// Gives the record back, unless a read still uses a hazard pointer: a coroutine of another library may be suspended
    /// inside of a read when its thread ends. Then the record is never used again.
    pub(super) fn give_back(&self) {
        if self.hazards.iter().all(Hazard::is_free) {
            self.owned.store(false, Release); // the next owner sees the hazard pointers as they are
        }
    }
}

/// Owns a record for a single read, or operation.
struct Extra(&'static Record);

impl Drop for Extra {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// All records.
pub(crate) struct Domain {
    /// The record that was made last. No record is ever freed.
    first: AtomicPtr<Record>,
}

impl Domain {
    const_unless_model! {
        pub(crate) const fn new() -> Domain {
            Domain { first: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Returns a record that the caller owns from now on.
    #[cold]
    pub(crate) fn acquire(&self) -> &'static Record {
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
            record.index.store(number_of(first), Relaxed);
            // SeqCst: before the record's first name, so that who would see the name sees the record.
            match self.first.compare_exchange(first, ptr::from_ref(record).cast_mut(), SeqCst, Acquire) {
                Ok(_) => return record,
                Err(now) => first = now,
            }
        }
    }

    /// Returns the number of records.
    #[cold]
    pub(crate) fn len(&self) -> usize {
        number_of(self.first.load(Acquire))
    }

    /// Calls `f`, which must not run the user's code, with a record that only the caller owns.
    #[inline(always)]
    pub(crate) fn with_record<R>(&self, f: impl FnOnce(&'static Record) -> R) -> R {
        match record_of_this_thread() {
            Some(record) => f(record),
            None => self.with_extra_record(f),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_extra_record<R>(&self, f: impl FnOnce(&'static Record) -> R) -> R {
        let extra = Extra(self.acquire());
        f(extra.0)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &'static Record> {
        records_from(self.first.load(SeqCst)) // SeqCst: after a write's exchange of the word
    }

    /// Returns whether a hazard pointer names a value that was read from a pointer.
    pub(super) fn names<T, P>(&self, address: *const T, from: *const P) -> bool {
        let (address, from) = (address.cast_mut().cast(), from.cast_mut().cast());
        self.records().any(|record| record.hazards.iter().any(|hazard| hazard.names(address, from)))
    }

    /// Returns the guards that a map has.
    pub(crate) fn guards_of<P>(&self, map: *const P) -> Vec<GuardId> {
        let map = map.cast_mut().cast();
        let guard = |hazard: &'static Hazard| Some(GuardId { hazard, number: hazard.guard_of(map)? });
        self.records().flat_map(|record| record.hazards.iter().filter_map(guard)).collect()
    }
}

impl GuardId {
    /// Asks the guard to look for memory that waits, at its end. In vain if the guard ends at this very moment.
    pub(crate) fn ask(&self) {
        self.hazard.is_awaited.store(true, Relaxed);
    }

    /// Returns whether the guard has ended. Acquire: then what its thread has read under the guard was read before.
    pub(crate) fn has_ended<P>(&self, map: *const P) -> bool {
        self.hazard.guard_of(map.cast_mut().cast()) != Some(self.number)
    }
}

/// Returns the number of records of a list.
fn number_of(first: *mut Record) -> usize {
    records_from(first).next().map_or(0, |record| record.index() + 1)
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

    use super::{Domain, Extra, Hazard, Record};

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

    /// Returns the records of this process.
    pub(crate) fn of_this_process() -> &'static Domain {
        &DOMAIN
    }

    /// Returns the thread's record. None if the thread ends.
    #[inline(always)]
    pub(super) fn record_of_this_thread() -> Option<&'static Record> {
        RECORD.with(Cell::get).or_else(first_record)
    }

    #[cold]
    fn first_record() -> Option<&'static Record> {
        OWNER.try_with(|owner| owner.0).ok()
    }

    /// Calls `f` with a hazard pointer that names no value, and with the records to which the hazard pointer belongs.
    #[inline(always)]
    pub(crate) fn with_hazard<R>(f: impl FnOnce(&'static Domain, &Hazard) -> R) -> R {
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
        match first_record().and_then(Record::free_hazard) {
            Some(hazard) => f(&DOMAIN, hazard),
            None => with_own_hazard(f),
        }
    }

    /// Takes a record for this call only, so that the thread's hazard pointers are left to others.
    pub(crate) fn with_own_hazard<R>(f: impl FnOnce(&'static Domain, &Hazard) -> R) -> R {
        let extra = Extra(DOMAIN.acquire());
        f(&DOMAIN, extra.0.free_hazard().expect("a record that nobody owned names a value"))
    }
}

/// The records of a model's threads.
#[cfg(sudog_loom)]
mod model_threads {
    use std::cell::Cell;

    use super::{Domain, Record};

    loom::thread_local! {
        static RECORD: Cell<Option<&'static Record>> = Cell::new(None);
    }

    pub(super) fn record_of_this_thread() -> Option<&'static Record> {
        RECORD.with(Cell::get)
    }

    /// Returns the thread's record. Takes one for the rest of the model at the first call.
    #[cfg(test)]
    pub(crate) fn own_record(domain: &Domain) -> &'static Record {
        record_of_this_thread().unwrap_or_else(|| {
            let record = domain.acquire();
            RECORD.with(|place| place.set(Some(record)));
            record
        })
    }
}
