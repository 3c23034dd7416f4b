//! The parts of which locks are made, for lock engineers: Go's semaphore, and waiting, spinning, ending a process; the
//! traits by which a type parameter exchanges a lock or a semaphore; the events that locks report; and hooks that run
//! when a worker switches between goroutines.
//!
//! | to exchange | implement | and put the type into |
//! |---|---|---|
//! | how the mutex waits | [`policy::Policy`] | [`GoMutex<RuntimeSema, P>`](crate::sync::GoMutex) |
//! | the semaphore on which the mutex sleeps | [`Semaphore`], [`ConstSemaphore`]; for async tasks [`AsyncSemaphore`] | [`GoMutex<S>`](crate::sync::GoMutex) |
//! | the lock under a guard | [`RawLock`], [`ConstRawLock`]; for async tasks [`AsyncRawLock`] | [`MutexWith<L, T>`](crate::sync::MutexWith) |
//! | the readers-writer lock under a guard | [`RawRwLock`], [`ConstRawRwLock`] | [`RwMutexWith<R, T>`](crate::sync::RwMutexWith) |
//!
//! `docs/guide.md` has examples.

#[cfg(all(target_os = "linux", not(sudog_loom)))]
pub use sudog_runtime::futex;
#[cfg(all(unix, not(sudog_loom)))]
pub use sudog_runtime::goroutine::{Entering, Leaving, SwitchHooks, TooManySwitchHooks, add_switch_hooks};
pub use sudog_runtime::{G, ParkResult, event, fatal, spin};
pub use sudog_sync::mutex::UnguardedLock;
pub use sudog_sync::rw_mutex::SharedGuard;
pub use sudog_sync::semaphore::RuntimeSema;
#[cfg(not(sudog_loom))]
pub use sudog_sync::{ApiLock, ApiRwLock, CondGuard};
pub use sudog_sync::{
    AsyncRawLock, AsyncSemaphore, ConstPermits, ConstRawLock, ConstRawRwLock, ConstSemaphore, RawLock, RawRwLock,
    Semaphore,
};

pub mod sema {
    //! Go's runtime semaphore: sleep until a 32-bit counter, anywhere in memory, is above zero.
    //!
    //! A semaphore is just an [`AtomicU32`](std::sync::atomic::AtomicU32), without set-up and without space for a
    //! queue. A caller that finds the counter at zero waits in a global table, keyed by the counter's address. The
    //! counter may be freed or moved when no call on it is under way.
    //!
    //! * [`semacquire`] returns after taking one permit; [`semrelease`] adds a permit and wakes a waiter, if there is
    //!   one.
    //! * Waiters of one address are woken first in, first out. A waiter that loses its permit to a newcomer returns to
    //!   the front of the queue.
    //! * With [`Wake::Handoff`] the permit goes to the first waiter directly, and no newcomer can take that permit.
    //! * A wait that ends by a limit ([`IntoLimit`](crate::IntoLimit)) takes no permit and loses none: if a permit was
    //!   granted at the same instant, the wait succeeds.
    //! * Waiting allocates nothing.
    //!
    //! # Examples
    //!
    //! ```
    //! use std::sync::atomic::AtomicU32;
    //! use sudog::low_level::sema::{Wake, semacquire, semrelease};
    //!
    //! static DONE: AtomicU32 = AtomicU32::new(0);
    //!
    //! let worker = std::thread::spawn(|| semrelease(&DONE, Wake::Normal));
    //! semacquire(&DONE); // waits for the worker
    //! # worker.join().unwrap();
    //! ```

    pub use sudog_runtime::sema::{
        Acquire, NotifyList, Order, Ticket, Wake, semacquire, semacquire_async, semacquire_limited, semacquire_mutex,
        semacquire_mutex_async, semgrant_many, semrelease, semrelease_many, try_semacquire, waiters,
    };
}

pub mod policy {
    //! The parameters of the mutex, as a type: the strategy of a contender before it sleeps, and the time after which a
    //! contender starves.
    //!
    //! A policy costs nothing: its constants are folded into the code. [`Go`] is the mutex of Go 1.14 and later, constant
    //! by constant. [`Threads`] is the default, made for operating-system threads.
    //! [`study::policy`](crate::study::policy) has Go's former policies.

    pub use sudog_sync::mutex::policy::{Go, Policy, SpinStrategy, Threads};
}
