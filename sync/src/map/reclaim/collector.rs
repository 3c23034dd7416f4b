//! The collector of a map: the bags of retired memory, and the batches that wait for guards.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::{self, ManuallyDrop};

use sudog_runtime::shim::{AtomicUsize, Mutex, MutexGuard, Ordering::*, asymmetric, mark, pause, system::OnceLock};

use super::{Free, Retired};
use crate::hazard::domain::{Domain, GuardId, Hazard};
#[cfg(not(sudog_loom))]
use crate::hazard::domain::{with_hazard, with_own_hazard};

/// The number of objects in a bag that make a batch, unless there are more records than that. A multiple of this number, if the
/// system has refused a heavy fence.
pub(super) const BATCH: usize = if cfg!(sudog_loom) { 1 } else { 32 };

/// The number of looks at guards before a thread leaves its batch to other threads. Most guards end within 50 ns. And a thread that frees
/// the memory which another thread has allocated may wait for that thread at a lock of the allocator.
const LOOKS: usize = if cfg!(sudog_loom) { 1 } else { 8 };

/// The state of a map: the number of changes of the state, and one more for each time that the map became unbiased.
#[derive(Clone, Copy)]
pub(super) struct State(usize);

impl State {
    #[inline(always)]
    pub(super) const fn is_unbiased(self) -> bool {
        self.0.is_multiple_of(4)
    }

    #[inline(always)]
    pub(super) const fn is_biased(self) -> bool {
        self.0 % 4 == 1
    }

    pub(super) const fn is_revoking(self) -> bool {
        self.0 % 4 == 2
    }

    /// Returns the state after this one: from unbiased to biased, to revoking, to unbiased.
    const fn next(self) -> Self {
        Self(self.0.wrapping_add(if self.is_revoking() { 2 } else { 1 }))
    }
}

pub(super) struct AtomicState(AtomicUsize);

impl AtomicState {
    #[inline(always)]
    #[track_caller]
    pub(super) fn load(&self) -> State {
        State(self.0.load(SeqCst))
    }

    /// Changes `state` to the state after it. Returns the new state, or the state that another thread has set.
    #[track_caller]
    pub(super) fn advance(&self, state: State) -> State {
        State(
            self.0.compare_exchange(state.0, state.next().0, SeqCst, SeqCst).map_or_else(|now| now, |_| state.next().0),
        )
    }
}

/// The objects that the owner of a record has retired, and not freed yet. Only the owner of the record uses the bag.
#[repr(align(64))]
#[derive(Default)]
struct Bag(RefCell<Objects>);

#[derive(Default)]
struct Objects {
    /// The objects that were retired since the last batch.
    retired: Vec<Retired>,
    /// The objects of earlier batches, which no guard keeps any more.
    ready: Vec<Retired>,
    /// True while an object that was ready is being freed. Its destructor may use the map: then no further object of
    /// `ready` is freed, so that destructors do not nest for each of them.
    frees: bool,
}

// SAFETY: only the owner of a record uses the bag of that record, and a record has one owner at a time.
unsafe impl Sync for Bag {}

impl Bag {
    /// Puts an object into the bag. Stores an object that no guard keeps in `ready`, unless another is being freed: the caller
    /// frees the object, and then calls `has_freed`. Returns the number of objects that wait for a batch.
    fn put(&self, retired: Retired, ready: &Cell<Option<Retired>>) -> usize {
        let mut objects = self.0.borrow_mut();
        objects.retired.push(retired);
        if !objects.frees
            && let Some(object) = objects.ready.pop()
        {
            objects.frees = true;
            ready.set(Some(object));
        }
        objects.retired.len()
    }

    fn has_freed(&self) {
        self.0.borrow_mut().frees = false;
    }

    /// Takes the objects that make a batch.
    fn take(&self) -> Vec<Retired> {
        mem::take(&mut self.0.borrow_mut().retired)
    }

    /// Puts back the `Vec` that `take` has returned, or another, with the objects that are left in it.
    fn put_back(&self, mut objects: Vec<Retired>) {
        let Objects { retired, .. } = &mut *self.0.borrow_mut();
        if retired.is_empty() {
            *retired = objects;
        } else {
            retired.append(&mut objects);
        }
    }

    /// Puts a batch into the bag that no guard keeps. Returns the objects of earlier batches.
    fn replace_ready(&self, batch: Vec<Retired>) -> Vec<Retired> {
        let mut objects = self.0.borrow_mut();
        // A coroutine whose destructor has moved it to another thread has not called `has_freed` here.
        objects.frees = false;
        mem::replace(&mut objects.ready, batch)
    }
}

/// The bags of a map, by the indices of records.
struct Bags {
    bags: Box<[Bag]>,
    more: OnceLock<Box<Self>>,
}

impl Bags {
    fn new(len: usize) -> Box<Self> {
        Box::new(Self { bags: (0..len).map(|_| Bag::default()).collect(), more: OnceLock::new() })
    }

    #[inline]
    fn of(&self, record: usize) -> &Bag {
        self.bags.get(record).unwrap_or_else(|| self.of_more(record - self.bags.len()))
    }

    #[inline(never)]
    fn of_more(&self, record: usize) -> &Bag {
        self.more.get_or_init(|| Self::new(2 * self.bags.len())).of(record)
    }
}

/// Objects that are freed once the guards have ended.
struct Batch {
    guards: Vec<GuardId>,
    #[expect(dead_code, reason = "the drop frees the objects")]
    objects: Vec<Retired>,
}

/// The collector of a map. Dropping the collector frees all objects that were retired.
pub(in crate::map) struct Collector {
    state: AtomicState,
    bags: OnceLock<Box<Bags>>,
    /// The batches that wait, in the order in which they came. A batch waits at least as long as the batches before it.
    waiting: Mutex<VecDeque<Batch>>,
}

/// A guard: keeps all objects that the map had when the guard began. Dropping the guard ends it.
pub(in crate::map) struct Guard<'a> {
    collector: &'a Collector,
    domain: &'a Domain,
    hazard: &'a Hazard,
    due: Cell<Due>,
    /// An object that no guard keeps. The drop of the guard leaves the object to `finish`, so a load does not look for it.
    ready: ManuallyDrop<Cell<Option<Retired>>>,
}

/// What the end of a guard does with the objects that the thread has retired.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Nothing.
    Nothing,
    /// Frees `ready`.
    Ready,
    /// Collects them as a batch, whose objects become ready. An allocator is faster if the objects of another thread are freed one
    /// by one, between allocations.
    Batch,
    /// Collects them as a batch, whose objects are freed at once.
    BatchAtOnce,
}

impl Guard<'_> {
    /// Frees `gone` once no guard can reach it.
    ///
    /// # Safety
    /// - `gone` comes from a box.
    /// - No operation that begins from now on can reach `gone`.
    /// - `gone` is retired once, and no other code frees `gone`.
    #[inline]
    pub unsafe fn retire<T: Free>(&self, gone: *mut T) {
        // By the contract of `retire`, only guards that have begun can reach `gone`. The batch that has the `Retired` waits for these.
        let len = self.collector.put(self.domain, Retired::new(gone), &self.ready);
        let is_batch = len.is_multiple_of(BATCH) && len >= self.domain.len();
        self.raise(if is_batch { Due::Batch } else { Due::Ready });
    }

    /// Lets the objects that this thread has retired wait for no more objects. Called if the objects use so much memory
    /// that they must not wait.
    pub fn hasten(&self) {
        self.raise(Due::BatchAtOnce);
    }

    fn raise(&self, due: Due) {
        self.due.set(self.due.get().max(due));
    }
}

impl Drop for Guard<'_> {
    /// Steps 3 to 5.
    #[inline(always)]
    fn drop(&mut self) {
        let is_awaited = self.hazard.end_guard();
        if self.due.get() > Due::Nothing {
            self.collector.finish(self.domain, self.due.get(), is_awaited, self.ready.take());
        } else if is_awaited {
            self.collector.free_batches_of_guard();
        }
    }
}

#[cfg(not(sudog_loom))]
impl Collector {
    /// Calls `f` under a guard.
    #[inline(always)]
    pub fn with_guard<R>(&self, f: impl FnOnce(&Guard<'_>) -> R) -> R {
        with_hazard(|domain, hazard| f(&self.guard(domain, hazard)))
    }

    /// Calls `f`, which may take long, under a guard that leaves the thread's hazard pointers to others.
    pub fn with_own_guard<R>(&self, f: impl FnOnce(&Guard<'_>) -> R) -> R {
        with_own_hazard(|domain, hazard| f(&self.guard(domain, hazard)))
    }
}

impl Collector {
    pub fn new() -> Self {
        let waiting = Mutex::new(VecDeque::new());
        Self { state: AtomicState(AtomicUsize::new(0)), bags: OnceLock::new(), waiting }
    }

    #[cfg(all(test, not(sudog_loom)))]
    pub(super) fn state(&self) -> &AtomicState {
        &self.state
    }

    /// Step 1.
    #[inline(always)]
    pub(super) fn guard<'a>(&'a self, domain: &'a Domain, hazard: &'a Hazard) -> Guard<'a> {
        hazard.announce_guard(self);
        if !self.begin_biased(hazard) {
            self.begin_unbiased(hazard);
        }
        Guard {
            collector: self,
            domain,
            hazard,
            due: Cell::new(Due::Nothing),
            ready: ManuallyDrop::new(Cell::new(None)),
        }
    }

    /// Begins a guard with a light fence. Returns false if the map is not biased.
    #[inline(always)]
    fn begin_biased(&self, hazard: &Hazard) -> bool {
        self.state.load().is_biased() && {
            hazard.begin_guard();
            asymmetric::light();
            self.state.load().is_biased()
        }
    }

    #[inline(never)]
    fn begin_unbiased(&self, hazard: &Hazard) {
        hazard.begin_guard_sc();
        if hazard.unbiased_reads.count() {
            self.bias();
        }
    }

    #[cold]
    fn bias(&self) {
        let state = self.state.load();
        if state.is_unbiased() && asymmetric::is_available() {
            mark("a map is biased");
            self.state.advance(state);
        }
    }

    /// Executes the fence of a batch. Returns false if the system has refused.
    fn fence(&self) -> bool {
        let mut state = self.state.load();
        if state.is_revoking() {
            mark("another batch ends the bias");
        }
        while state.is_biased() {
            state = self.state.advance(state);
        }
        state.is_unbiased() || {
            let fenced = asymmetric::heavy();
            if fenced {
                self.state.advance(state);
            }
            fenced
        }
    }

    /// Puts an object into the bag of the thread's record, as [`Bag::put`] does.
    ///
    /// Never inlined: a coroutine may have come from another thread since an address of the thread's record was computed.
    #[inline(never)]
    fn put(&self, domain: &Domain, retired: Retired, ready: &Cell<Option<Retired>>) -> usize {
        self.with_bag(domain, |bag| bag.put(retired, ready))
    }

    /// Calls `f`, which must not run the user's code, with the bag of the thread's record.
    #[inline(always)]
    fn with_bag<R>(&self, domain: &Domain, f: impl FnOnce(&Bag) -> R) -> R {
        domain.with_record(|record| f(self.bags.get_or_init(|| Bags::new(4)).of(record.index())))
    }

    /// Steps 4 and 5 of an operation that has retired objects. `ready` is an object that no guard keeps.
    #[inline(never)]
    fn finish(&self, domain: &Domain, due: Due, is_awaited: bool, ready: Option<Retired>) {
        if due >= Due::Batch {
            self.collect(domain, due);
        } else if is_awaited {
            self.free_batches_of_guard();
        }
        if let Some(ready) = ready {
            drop(ready); // runs the user's destructors
            self.with_bag(domain, Bag::has_freed);
        }
    }

    /// Step 4.
    #[cold]
    #[inline(never)]
    fn collect(&self, domain: &Domain, due: Due) {
        let mut objects = self.with_bag(domain, Bag::take);
        if !self.fence() {
            // No guard can be excluded: try again after `BATCH` objects more.
            self.with_bag(domain, |bag| bag.put_back(objects));
            return self.free_batches_of_guard();
        }
        let mut guards = domain.guards_of(self);
        for _ in 0..LOOKS {
            self.forget_ended(&mut guards);
            if guards.is_empty() {
                if due == Due::Batch {
                    objects = self.with_bag(domain, |bag| bag.replace_ready(objects));
                }
                objects.clear(); // runs the user's destructors
                self.with_bag(domain, |bag| bag.put_back(objects));
                return self.free_batches(None);
            }
            pause();
        }
        guards.iter().for_each(GuardId::ask);
        self.forget_ended(&mut guards);
        self.free_batches(Some(Batch { guards, objects }));
    }

    fn forget_ended(&self, guards: &mut Vec<GuardId>) {
        guards.retain(|guard| !guard.has_ended(self));
    }

    /// Step 5, of a batch. Before, `also` begins to wait.
    #[cold]
    #[inline(never)]
    fn free_batches(&self, also: Option<Batch>) {
        let mut waiting = self.waiting.lock();
        waiting.extend(also);
        self.free_front(waiting);
    }

    /// Step 5, of a guard, which waits for no lock: another thread that has the lock frees batches, too.
    #[cold]
    #[inline(never)]
    fn free_batches_of_guard(&self) {
        if let Some(waiting) = self.waiting.try_lock() {
            mark("a guard looks at the batches");
            self.free_front(waiting);
        }
    }

    fn free_front(&self, mut waiting: MutexGuard<'_, VecDeque<Batch>>) {
        let mut free = Vec::new();
        while waiting.front().is_some_and(|batch| batch.guards.iter().all(|guard| guard.has_ended(self))) {
            free.extend(waiting.pop_front());
        }
        if !waiting.is_empty() {
            mark("a batch waits");
        }
        drop(waiting);
        drop(free); // the user's destructors
    }
}
