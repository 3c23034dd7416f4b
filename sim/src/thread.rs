//! Threads: simulated threads inside a simulation, the system's threads outside.

use std::cell::{RefCell, UnsafeCell};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::atomic::AtomicU32;
use crate::futex;
use crate::machine::{self, is_simulated};

pub use crate::machine::yield_now;
pub use crate::time::sleep;

/// The identity of a thread, simulated or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadId {
    /// The number of a simulated thread.
    Simulated(usize),
    /// The id of a thread of the process.
    Real(std::thread::ThreadId),
}

/// A thread, simulated or not.
#[derive(Clone, Copy, Debug)]
pub struct Thread(ThreadId);

impl Thread {
    /// The counterpart of `std`'s `id`.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.0
    }
}

/// The counterpart of `std`'s `current`.
#[must_use]
pub fn current() -> Thread {
    let simulated = is_simulated().then(|| ThreadId::Simulated(machine::thread_id()));
    Thread(simulated.unwrap_or_else(|| ThreadId::Real(std::thread::current().id())))
}

/// Returns the number of processors of the simulated machine; outside a simulation, the number that `std` returns.
///
/// # Errors
///
/// The same as those of `std`.
pub fn available_parallelism() -> io::Result<std::num::NonZeroUsize> {
    machine::processors().and_then(std::num::NonZeroUsize::new).map_or_else(std::thread::available_parallelism, Ok)
}
pub use std::thread::{Result, panicking};

/// The counterpart of `std`'s `Builder`.
#[derive(Debug, Default)]
pub struct Builder(Option<String>);

/// A handle that waits for a thread to end.
pub struct JoinHandle<T>(Handle<T>, Thread);

enum Handle<T> {
    Simulated(Arc<Packet<T>>),
    Real(std::thread::JoinHandle<T>),
}

struct Packet<T> {
    done: AtomicU32,
    result: UnsafeCell<Option<Result<T>>>,
}

// SAFETY: the thread writes `result` before it stores `done`, and the joiner takes `result` after it has loaded that
// store.
unsafe impl<T: Send> Sync for Packet<T> {}
// SAFETY: the same order of accesses holds when the packet moves to another thread; the result may move, as T is Send.
unsafe impl<T: Send> Send for Packet<T> {}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle")
    }
}

impl Builder {
    /// The counterpart of `std`'s `new`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The counterpart of `std`'s `name`.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(Some(name))
    }

    /// The counterpart of `std`'s `spawn`.
    ///
    /// # Errors
    ///
    /// The same as those of `std`.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        if !is_simulated() {
            let builder = std::thread::Builder::new();
            let builder = if let Some(name) = self.0 { builder.name(name) } else { builder };
            return builder.spawn(body).map(|handle| {
                let thread = Thread(ThreadId::Real(handle.thread().id()));
                JoinHandle(Handle::Real(handle), thread)
            });
        }
        let packet = Arc::new(Packet { done: AtomicU32::new(0), result: UnsafeCell::new(None) });
        let theirs = packet.clone();
        let body = move || {
            let result = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: no other thread accesses `result` before the store to `done` below.
            unsafe { *theirs.result.get() = Some(result) };
            theirs.done.store(1, Release);
            futex::wake(&raw const theirs.done, u32::MAX);
        };
        let id = machine::spawn(self.0, Box::new(body), Location::caller())?;
        Ok(JoinHandle(Handle::Simulated(packet), Thread(ThreadId::Simulated(id))))
    }
}

/// The counterpart of `std`'s `spawn`.
///
/// # Panics
///
/// In the same cases as `std`.
#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(body).expect("a thread")
}

impl<T> JoinHandle<T> {
    /// The counterpart of `std`'s `join`.
    ///
    /// # Errors
    ///
    /// The same as those of `std`.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        match self.0 {
            Handle::Real(handle) => handle.join(),
            Handle::Simulated(packet) => {
                while packet.done.load(Acquire) == 0 {
                    futex::wait(&packet.done, 0, None);
                }
                // SAFETY: the thread has stored its result, as `done` is set, and does not access `result` any more.
                unsafe { &mut *packet.result.get() }.take().expect("a thread is joined once")
            }
        }
    }

    /// The counterpart of `std`'s `thread`.
    pub fn thread(&self) -> &Thread {
        &self.1
    }

    /// The counterpart of `std`'s `is_finished`.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Handle::Real(handle) => handle.is_finished(),
            Handle::Simulated(packet) => packet.done.load(Acquire) != 0,
        }
    }
}

/// The counterpart of `std`'s `Scope`. But only the thread that called [`scope`] may spawn threads in the scope.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    /// The threads that were spawned in this scope. An entry is None after the thread was joined by its handle.
    threads: RefCell<Vec<Option<JoinHandle<()>>>>,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// The counterpart of `std`'s `ScopedJoinHandle`.
pub struct ScopedJoinHandle<'scope, T> {
    threads: &'scope RefCell<Vec<Option<JoinHandle<()>>>>,
    index: usize,
    value: Arc<std::sync::Mutex<Option<T>>>,
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScopedJoinHandle")
    }
}

/// The counterpart of `std`'s `scope`: runs threads that borrow from the caller, and joins them before it returns.
///
/// # Panics
///
/// In the same cases as `std`.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let scope = Scope { threads: RefCell::default(), _scope: PhantomData, _env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    let threads = scope.threads.take();
    let joined: Vec<_> = threads.into_iter().flatten().map(JoinHandle::join).collect();
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(_) if joined.iter().any(|result| result.is_err()) => panic!("a scoped thread panicked"),
        Ok(value) => value,
    }
}

impl<'scope> Scope<'scope, '_> {
    /// The counterpart of `std`'s `spawn`.
    ///
    /// # Panics
    ///
    /// In the same cases as `std`.
    #[track_caller]
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let value = Arc::new(std::sync::Mutex::new(None));
        let theirs = value.clone();
        let body: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            let value = body();
            *theirs.lock().expect("nobody panics with it") = Some(value);
        });
        // SAFETY:
        // - the two types differ in the lifetime only;
        // - `scope` joins the thread before `scope` returns or unwinds, so 'scope has not ended; the thread has then
        //   dropped the values that `body` holds.
        let body = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Box<dyn FnOnce() + Send>>(body) };
        let thread = spawn(body);
        let mut threads = self.threads.borrow_mut();
        threads.push(Some(thread));
        ScopedJoinHandle { threads: &self.threads, index: threads.len() - 1, value }
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// The counterpart of `std`'s `join`.
    ///
    /// # Errors
    ///
    /// The same as those of `std`.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let thread = self.threads.borrow_mut()[self.index].take();
        thread.expect("a thread is joined once").join()?;
        let value = self.value.lock().expect("nobody panics with it").take();
        Ok(value.expect("a thread that has not panicked has a value"))
    }
}
