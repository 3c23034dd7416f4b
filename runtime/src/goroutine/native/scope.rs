//! Goroutines that borrow from the goroutine or the thread that starts them: `std`'s `thread::scope`, for goroutines.
//!
//! The frame from which goroutines borrow stands until all goroutines of the scope have ended. That holds in each of
//! these cases:
//!
//! | case | why the frame stands |
//! |---|---|
//! | the closure of `scope` panics, or calls `goexit` | the unwinding is caught, and goes on after the wait |
//! | a goroutine never ends | the wait never ends either |
//! | a [`ScopedJoinHandle`] is leaked | the scope counts its goroutines, not the handles |
//!
//! There is no such scope for async tasks: the future that waits for the tasks could be leaked or dropped before they
//! end.

use crate::shim::system::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::shim::system::thread;
use std::any::Any;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use crate::box_if_large;
use crate::goroutine::native::builder::{Builder, JoinHandle, Sender, packet};
use crate::goroutine::native::exit::{Goexit, OnPanic};
use crate::goroutine::native::fibre::current;
use crate::panics::drop_payload;
use crate::sema::{self, Wake};
use crate::shim::Mutex;

/// A scope in which goroutines may borrow: see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    state: State,
    // Both lifetimes are invariant: if one could be shortened, a goroutine could borrow a value that ends before the
    // scope.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The state that the goroutines of a scope share with the scope's owner, in the owner's frame.
struct State {
    /// The number of goroutines that have not ended, plus 1 until the owner begins to wait.
    pending: AtomicUsize,
    /// A semaphore. If the owner waits, the last goroutine to end releases a permit.
    done: AtomicU32,
    /// The number of goroutines started by [`Scope::spawn`] that have panicked, and whose panic no `join` has returned.
    panics: AtomicUsize,
    /// The payload of the first panic of a goroutine without a handle.
    payload: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A handle for the result of a goroutine of a scope.
///
/// Dropping the handle without a [`join`](ScopedJoinHandle::join) lets the goroutine run on; the scope waits for the
/// goroutine.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    state: &'scope State,
}

/// Runs `f`, which may start goroutines that borrow from the caller's frame, and waits until all of them have ended.
///
/// A goroutine that never ends keeps the caller in this function for ever, and so keeps the values that the goroutine
/// borrows.
///
/// Go has no such function, and needs none: the garbage collector keeps the values that a goroutine uses.
///
/// # Panics
///
/// If `f` panics, with that panic; else with the panic of a goroutine started by [`Scope::go`]; else if a goroutine
/// started by [`Scope::spawn`] has panicked and was not joined. In each case all goroutines have ended before the
/// panic.
///
/// # Examples
///
/// ```
/// use sudog::{run, scope};
///
/// let mut squares = [1, 2, 3, 4];
/// run(|| {
///     scope(|s| {
///         for n in &mut squares {
///             s.go(move || *n *= *n);
///         }
///     });
/// });
/// assert_eq!(squares, [1, 4, 9, 16]);
/// ```
///
/// Borrowed values must outlive the scope:
///
/// ```compile_fail,E0373
/// use sudog::scope;
///
/// scope(|s| {
///     let n = 1;
///     s.go(|| assert_eq!(n, 1));
/// });
/// ```
///
/// ```compile_fail,E0521
/// use sudog::scope;
///
/// let mut escaped = None;
/// scope(|s| escaped = Some(s));
/// ```
#[track_caller]
pub fn scope<'env, T, F>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    // `f` may be large: `f` holds the values that it hands on to its goroutines.
    box_if_large!(f: F as dyn for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T + '_ => scope(f));
    let state = State {
        pending: AtomicUsize::new(1),
        done: AtomicU32::new(0),
        panics: AtomicUsize::new(0),
        payload: Mutex::new(None),
    };
    let scope = Scope { state, scope: PhantomData, env: PhantomData };
    // Catch the panic, and wait after that. A destructor that waits would run during the unwinding. A goroutine that
    // unwinds may not switch, and so would keep the worker from the goroutines for which the destructor waits.
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.state.wait();
    let payload = scope.state.payload.lock().take();
    match (result, payload) {
        (Ok(_), Some(payload)) => resume_unwind(payload),
        (Ok(result), None) if scope.state.panics.load(Ordering::Relaxed) == 0 => result,
        (Ok(_), None) => panic!("a goroutine of this scope has panicked"),
        (Err(panic), payload) => {
            if let Some(payload) = payload {
                drop_payload(payload);
            }
            resume_unwind(panic)
        }
    }
}

impl State {
    /// Waits for the goroutines. Called by the owner, once.
    fn wait(&self) {
        // Acquire: the owner sees the writes of the goroutines. If goroutines are left, the last of them releases a
        // permit.
        if self.pending.fetch_sub(1, Ordering::Acquire) != 1 {
            current::forbid_wait_in_child();
            current::note_wait("scope");
            sema::semacquire(&self.done);
        }
    }
}

/// A goroutine's share in [`State::pending`]. Dropped by the goroutine, as the last use of the scope.
///
/// The state is behind a pointer and not a reference, as the owner's frame may end before the drop returns.
struct Pending(NonNull<State>);

// SAFETY: a `State` is made for many threads; the state stands until the last `Pending` has subtracted its share.
unsafe impl Send for Pending {}

impl Pending {
    fn new(state: &State) -> Self {
        // Relaxed: the caller is the owner, or a goroutine of the scope, so the count is not 0, and does not get to 0
        // before the caller's own share ends.
        state.pending.fetch_add(1, Ordering::Relaxed);
        Self(NonNull::from(state))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let state = self.0.as_ptr();
        // SAFETY: the state stands, as this goroutine is counted, so the addresses of its fields can be taken.
        let (pending, done) = unsafe { (&raw const (*state).pending, &raw const (*state).done) };
        // Release, so that the owner sees the writes of this goroutine. Acquire, so that the last goroutine hands on
        // the writes of the others. SAFETY: `pending` is alive until the subtraction.
        if unsafe { (*pending).fetch_sub(1, Ordering::AcqRel) } == 1 {
            // SAFETY: `done` is alive: the owner's frame stands until the permit is there. From then on the release
            // uses `done` as an address only.
            current::without_switching(|| sema::semrelease(unsafe { &*done }, Wake::Normal));
        }
    }
}

/// A closure that a frame may hold longer than the values live that the closure borrows. From a plain argument of type
/// `F` the compiler may conclude that the closure's references are valid until the function returns.
struct MaybeDangling<F>(MaybeUninit<F>);

impl<F> MaybeDangling<F> {
    const fn new(f: F) -> Self {
        Self(MaybeUninit::new(f))
    }

    fn into_inner(self) -> F {
        // SAFETY: `new` has written the closure. The closure is read once: `ManuallyDrop` keeps `drop` from reading it
        // again.
        unsafe { ManuallyDrop::new(self).0.assume_init_read() }
    }
}

impl<F> Drop for MaybeDangling<F> {
    fn drop(&mut self) {
        // SAFETY: `new` has written the closure, and `into_inner` has not read it: `into_inner` keeps its value from
        // this drop.
        unsafe { self.0.assume_init_drop() };
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a goroutine, which may borrow values that outlive the scope, as [`go`](fn@crate::goroutine::go) does. If
    /// the goroutine panics, [`scope`] panics.
    #[track_caller]
    pub fn go<F: FnOnce() + Send + 'scope>(&'scope self, f: F) {
        box_if_large!(f: F as dyn FnOnce() + Send + 'scope => self.go(f));
        Builder::new().go_scoped(self, f);
    }

    /// Starts a goroutine, which may borrow values that outlive the scope, and returns a handle for its result, as
    /// [`spawn`](crate::goroutine::spawn) does.
    #[track_caller]
    pub fn spawn<T, F>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        box_if_large!(f: F as dyn FnOnce() -> T + Send + 'scope => self.spawn(f));
        Builder::new().spawn_scoped(self, f)
    }

    #[track_caller]
    fn start(&'scope self, builder: Builder, f: impl FnOnce() + Send + 'scope) {
        let (pending, f) = (Pending::new(&self.state), MaybeDangling::new(f));
        let body = move || {
            // Drop the share last: the values that `f` has captured are dropped before.
            let _pending = pending;
            f.into_inner()();
        };
        // SAFETY: the owner of the scope keeps the values that `f` borrows until `pending` is dropped. That drop comes
        // after the call of `f`, which has dropped `f`, whether `f` returned or unwound. The frames around that call
        // hold a `MaybeDangling`, which holds no reference that the compiler takes for alive.
        unsafe { builder.go_unchecked(body) };
    }
}

impl Builder {
    /// Starts a goroutine of `scope`, as [`Scope::go`] does, with this builder's name, stack size and placement.
    /// [`Builder::on_panic`] has no effect.
    ///
    /// # Panics
    ///
    /// If the goroutine is placed on a worker that does not exist.
    #[track_caller]
    pub fn go_scoped<'scope, F: FnOnce() + Send + 'scope>(self, scope: &'scope Scope<'scope, '_>, f: F) {
        box_if_large!(f: F as dyn FnOnce() + Send + 'scope => self.go_scoped(scope, f));
        let state = &scope.state;
        scope.start(self, move || {
            let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
            if payload.is::<Goexit>() {
                return;
            }
            let mut first = state.payload.lock();
            if first.is_none() {
                *first = Some(payload);
            } else {
                drop(first);
                drop_payload(payload);
            }
        });
    }

    /// Starts a goroutine of `scope`, as [`Scope::spawn`] does, with this builder's name, stack size and placement.
    /// [`Builder::on_panic`] has no effect.
    ///
    /// # Panics
    ///
    /// If the goroutine is placed on a worker that does not exist.
    #[track_caller]
    pub fn spawn_scoped<'scope, T, F>(self, scope: &'scope Scope<'scope, '_>, f: F) -> ScopedJoinHandle<'scope, T>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        box_if_large!(f: F as dyn FnOnce() -> T + Send + 'scope => self.spawn_scoped(scope, f));
        let state = &scope.state;
        let (sender, handle): (Sender<T>, _) = packet(OnPanic::Unwind);
        scope.start(self, move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            if is_panic(&result) {
                state.panics.fetch_add(1, Ordering::Relaxed);
            }
            sender.send(result);
        });
        ScopedJoinHandle { handle, state }
    }
}

fn is_panic<T>(result: &thread::Result<T>) -> bool {
    matches!(result, Err(payload) if !payload.is::<Goexit>())
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the goroutine to end, and returns its result.
    ///
    /// # Errors
    ///
    /// The payload of the panic that ended the goroutine; or [`Goexit`] if the goroutine called
    /// [`goexit`](crate::goroutine::goexit).
    pub fn join(self) -> thread::Result<T> {
        let result = self.handle.join();
        if is_panic(&result) {
            // Relaxed: the goroutine raised the count before sending the result.
            self.state.panics.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }

    /// Returns whether the goroutine has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pending = self.state.pending.load(Ordering::Relaxed);
        f.debug_struct("Scope").field("goroutines", &pending.saturating_sub(1)).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}
