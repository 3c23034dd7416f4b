//! The lock that the user has chosen, and nodes: the memory in which locks live.
//!
//! A node has a lock for as long as the process lives. A mutex or readers-writer lock refers to a node from the first
//! use until its destroy. A node is in one of these places:
//!
//! | place | found by |
//! |---|---|
//! | in use, or of an object that is gone without a destroy | the address of the object, in `by_address` |
//! | spare | `spare`, a list |
//! | lost: of an older generation, or locked in an object that is gone | |

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::time::Instant;

use sudog_lab_core::targets::locks::{Job, LockName, with_lock};
use sudog_sync::RawLock;

use crate::fork;
use crate::futex_lock::FutexLock;
use crate::rw_word::RwWord;
use crate::start::refuse;

/// The lock of a name, as functions. Each function takes a node of this backend.
#[derive(Debug)]
pub struct Backend {
    /// True if all objects are glibc's. The functions below are not called then.
    pub passes_all: bool,
    /// Locks.
    pub lock: unsafe fn(&Node),
    /// Locks if that is possible without waiting.
    pub try_lock: unsafe fn(&Node) -> bool,
    /// Locks, waiting until an instant at most.
    pub lock_until: unsafe fn(&Node, Instant) -> bool,
    /// Unlocks. The calling thread holds the lock.
    pub unlock: unsafe fn(&Node),
    is_locked: unsafe fn(&Node) -> bool,
    make: fn() -> &'static Node,
}

/// The beginning of a node. The lock follows.
#[derive(Debug)]
#[repr(C)]
pub struct Node {
    /// For a readers-writer lock: its readers and its writer.
    pub rw: RwWord,
    /// The next spare node. Changed under the lock of [`Nodes`].
    next: AtomicPtr<Node>,
}

/// A node. Aligned to a cache line, so that two mutexes do not share one.
#[repr(C, align(64))]
struct NodeOf<L: RawLock> {
    node: Node,
    lock: L,
    /// The guard of the lock's owner. Only the owner accesses it.
    guard: UnsafeCell<MaybeUninit<L::Guard>>,
}

impl<L: RawLock + 'static> NodeOf<L> {
    const BACKEND: Backend = Backend {
        passes_all: false,
        lock: Self::lock,
        try_lock: Self::try_lock,
        lock_until: Self::lock_until,
        unlock: Self::unlock,
        is_locked: Self::is_locked,
        make: Self::make,
    };

    fn make() -> &'static Node {
        let node = Node { rw: RwWord::new(), next: AtomicPtr::new(ptr::null_mut()) };
        let node: &Self =
            Box::leak(Box::new(Self { node, lock: L::new(), guard: UnsafeCell::new(MaybeUninit::uninit()) }));
        // SAFETY: `NodeOf` begins with its `node`. The pointer is to the whole.
        unsafe { &*ptr::from_ref(node).cast::<Node>() }
    }

    /// # Safety
    ///
    /// `make` of this type has made `node`.
    #[inline(always)]
    unsafe fn of(node: &Node) -> &Self {
        // SAFETY: `node` is the beginning of a `NodeOf<L>`, by the contract of `of`, and came from a pointer to the whole.
        unsafe { &*ptr::from_ref(node).cast::<Self>() }
    }

    #[inline(always)]
    fn keep(&self, guard: L::Guard) {
        // SAFETY: `guard` is of the acquisition that made this thread the owner, so no other thread accesses `self.guard`.
        unsafe { (*self.guard.get()).write(guard) };
    }

    unsafe fn lock(node: &Node) {
        // SAFETY: the contract of this function is that of `of`.
        let this = unsafe { Self::of(node) };
        this.keep(this.lock.lock());
    }

    unsafe fn try_lock(node: &Node) -> bool {
        // SAFETY: the contract of this function is that of `of`.
        let this = unsafe { Self::of(node) };
        this.lock.try_lock().map(|guard| this.keep(guard)).is_some()
    }

    unsafe fn lock_until(node: &Node, deadline: Instant) -> bool {
        // SAFETY: the contract of this function is that of `of`.
        let this = unsafe { Self::of(node) };
        this.lock.try_lock_until(deadline).map(|guard| this.keep(guard)).is_some()
    }

    unsafe fn unlock(node: &Node) {
        // SAFETY:
        // - `node` is of this type, by the contract of `unlock`.
        // - The calling thread holds the lock, so it has written the guard, which is read once for each acquisition.
        unsafe {
            let this = Self::of(node);
            let guard = (*this.guard.get()).assume_init_read();
            this.lock.unlock(guard);
        }
    }

    unsafe fn is_locked(node: &Node) -> bool {
        // SAFETY: the contract of this function is that of `of`.
        unsafe { Self::of(node) }.lock.is_locked()
    }
}

/// The backend of `pthread`, which is the control: all objects are glibc's.
static PASSES_ALL: Backend = Backend {
    passes_all: true,
    lock: |_| {},
    try_lock: |_| false,
    lock_until: |_, _| false,
    unlock: |_| {},
    is_locked: |_| false,
    make: || refuse("glibc's locks have no nodes"),
};

/// The name of the environment variable with the name of the lock.
const VARIABLE: &CStr = c"SUDOG_LOCK";

static CHOSEN: AtomicPtr<Backend> = AtomicPtr::new(ptr::null_mut());

/// Returns the chosen backend.
#[inline(always)]
pub fn chosen() -> &'static Backend {
    // Acquire: pairs with the Release in `choose`.
    let chosen = CHOSEN.load(Acquire);
    if chosen.is_null() {
        return choose();
    }
    // SAFETY: a pointer that is not null is to one of the backends, which are never freed.
    unsafe { &*chosen }
}

/// Reads the environment variable. Several threads may do so at once, with the same result.
#[cold]
fn choose() -> &'static Backend {
    struct Find;
    impl Job for Find {
        type Out = &'static Backend;
        fn run<L: RawLock + 'static>(self) -> &'static Backend {
            &NodeOf::<L>::BACKEND
        }
    }
    // SAFETY: the name ends with a zero. A text in the environment ends with a zero, and is not changed before `main`.
    let name = unsafe {
        let value = libc::getenv(VARIABLE.as_ptr());
        if value.is_null() { c"sudog" } else { CStr::from_ptr(value) }
    };
    let backend = match name.to_string_lossy().parse() {
        Ok(LockName::Pthread) => &PASSES_ALL,
        // Some of these panic in a thread that is ending.
        Ok(name) if name.is_model() => refuse(&format!("SUDOG_LOCK: {} is a model", name.name())),
        Ok(name) => with_lock(name, Find),
        Err(unknown) => refuse(&format!("SUDOG_LOCK: {unknown}")),
    };
    CHOSEN.store(ptr::from_ref(backend).cast_mut(), Release);
    backend
}

/// The part of a mutex or readers-writer lock that refers to the node. All bits zero: no node.
#[derive(Debug)]
#[repr(C)]
pub struct NodeRef {
    node: AtomicPtr<Node>,
}

impl NodeRef {
    /// Forgets the node, in an object that is being initialised.
    pub fn clear(&self) {
        self.node.store(ptr::null_mut(), Relaxed);
    }

    /// Returns the node, if there is one of this generation.
    #[inline(always)]
    pub fn get(&self, generation: &AtomicU32) -> Option<&'static Node> {
        // Acquire, both: pair with the Releases in `find`, which stores the node first. So a thread that sees the new
        // generation sees the new node, and a thread that sees a node sees the node's content.
        let current = generation.load(Acquire) == fork::generation();
        let node = self.node.load(Acquire);
        if !current {
            return None;
        }
        // SAFETY: a node that is not null is never freed.
        unsafe { node.as_ref() }
    }

    /// Returns the node, and finds one if there is none of this generation. `mend` makes a fresh node like the one of an
    /// older generation.
    #[inline(always)]
    pub fn get_or_find(&self, generation: &AtomicU32, mend: impl FnOnce(&Node, &'static Node)) -> &'static Node {
        self.get(generation).unwrap_or_else(|| self.find(generation, mend))
    }

    #[cold]
    fn find(&self, generation: &AtomicU32, mend: impl FnOnce(&Node, &'static Node)) -> &'static Node {
        let backend = chosen();
        NODES.with(|places| {
            // Another thread may have been faster.
            if let Some(node) = self.get(generation) {
                return node;
            }
            let node = match self.node.load(Relaxed) {
                old if old.is_null() => places.take(backend, ptr::from_ref(self)),
                old => {
                    let fresh = places.take_new(backend, ptr::from_ref(self));
                    // SAFETY: a node that is not null is never freed.
                    mend(unsafe { &*old }, fresh);
                    fresh
                }
            };
            // In this order, with Release: see `get`.
            self.node.store(ptr::from_ref(node).cast_mut(), Release);
            generation.store(fork::generation(), Release);
            node
        })
    }

    /// Gives the node up, in an object that is being destroyed.
    pub fn give_up(&self, generation: &AtomicU32) {
        if let Some(node) = self.get(generation) {
            NODES.with(|places| places.give(ptr::from_ref(self), node));
        }
        self.clear();
    }
}

/// All nodes.
pub struct Nodes {
    lock: FutexLock,
    places: UnsafeCell<Places>,
}

struct Places {
    by_address: BTreeMap<usize, &'static Node>,
    spare: Option<&'static Node>,
}

// SAFETY: `places` is used under `lock` only.
unsafe impl Sync for Nodes {}

/// The nodes of this process.
pub static NODES: Nodes =
    Nodes { lock: FutexLock::new(), places: UnsafeCell::new(Places { by_address: BTreeMap::new(), spare: None }) };

impl Nodes {
    /// Locks.
    pub fn lock(&self) {
        fork::generation(); // In a child, forget the parent's nodes first.
        self.lock.lock();
    }

    /// Unlocks.
    pub fn unlock(&self) {
        self.lock.unlock();
    }

    /// Forgets all nodes, in a child of `fork` whose threads do not use the nodes yet. They are leaked, as the heap is.
    pub fn forget(&self) {
        // SAFETY: no thread of this process uses the places: see `fork::begin`.
        unsafe { self.places.get().write(Places { by_address: BTreeMap::new(), spare: None }) };
        self.unlock();
    }

    fn with<T>(&self, f: impl FnOnce(&mut Places) -> T) -> T {
        self.lock();
        // SAFETY: this thread holds `lock`, and `f`, a method of `Places` or `find`, does not call `with`.
        let result = f(unsafe { &mut *self.places.get() });
        self.unlock();
        result
    }
}

impl Places {
    /// Returns an unlocked node for the object at an address.
    fn take(&mut self, backend: &Backend, address: *const NodeRef) -> &'static Node {
        if let Some(node) = self.by_address.get(&address.addr()) {
            // The object that was here is gone without a destroy.
            // SAFETY: each node is of the chosen backend.
            if !unsafe { (backend.is_locked)(node) } && node.rw.reset() {
                return node;
            }
        } else if let Some(node) = self.spare {
            // SAFETY: a node that is not null is never freed.
            self.spare = unsafe { node.next.load(Relaxed).as_ref() };
            self.by_address.insert(address.addr(), node);
            return node;
        }
        self.take_new(backend, address)
    }

    /// Returns a new node for the object at an address.
    fn take_new(&mut self, backend: &Backend, address: *const NodeRef) -> &'static Node {
        let node = (backend.make)();
        self.by_address.insert(address.addr(), node);
        node
    }

    /// Makes a node spare, if the node is unlocked.
    fn give(&mut self, address: *const NodeRef, node: &'static Node) {
        self.by_address.remove(&address.addr());
        if node.rw.reset() {
            node.next.store(self.spare.map_or(ptr::null_mut(), |node| ptr::from_ref(node).cast_mut()), Relaxed);
            self.spare = Some(node);
        }
    }
}
