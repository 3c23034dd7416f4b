//! A library for `LD_PRELOAD`, which puts the pthread mutexes, conditions and readers-writer locks of any program on a
//! lock of the laboratory: `SUDOG_LOCK=mcs LD_PRELOAD=libsudog_preload.so PROGRAM`. For users see `docs/preload.md`.
//!
//! | file | content |
//! |---|---|
//! | `backend.rs` | the chosen lock, and the nodes that locks live in |
//! | `mutex.rs`, `cond.rs`, `rwlock.rs` | the functions that are replaced |
//! | `owner.rs` | the numbers of threads |
//! | `rw_word.rs` | how readers and the writer of a readers-writer lock exclude each other |
//! | `fork.rs`, `glibc.rs`, `time.rs`, `alloc.rs` | a child of `fork`; the replaced functions; deadlines; memory |
//! | `futex_lock.rs`, `futex.rs`, `errno.rs` | an internal lock, the futex under the lock, and `errno` |
//!
//! **The place of a lock.** A `pthread_mutex_t` has 40 bytes, and is often initialised by a constant, so the first use
//! of a mutex takes a [`Node`](backend::Node) and stores a pointer to the node in the mutex. The lock is in the node,
//! and not in the mutex, for the sake of the end of a mutex: POSIX allows to destroy and free a mutex as soon as
//! another thread has unlocked it, even while an earlier `unlock` has not returned yet. [`RawLock`] demands that the
//! lock stays alive until then. So nodes are never freed, and a lock is never made anew in a node: the next mutex that
//! gets the node goes on with the same lock, for which a late `unlock` is a slow one.
//! `pthread_mutex_destroy` gives the node to the next mutex. C++'s `std::mutex` calls no destroy: the node of a mutex
//! that is gone is found by the address, once another mutex stands there.
//!
//! **The kind of a mutex** stays where glibc has it, so that glibc's static initialisers work, and so do glibc's
//! functions that are not replaced. Robust, priority-inheriting, priority-protected and process-shared mutexes,
//! and process-shared conditions and readers-writer locks, are recognised by glibc's own bits, and passed on to glibc.
//! At its start the library checks that glibc puts these bits where the library expects them.
//!
//! **The owner** of a mutex is stored for each kind. A thread that unlocks a mutex of another thread gets `EPERM`, where
//! glibc unlocks a default mutex (undefined in POSIX): the guards of many locks must stay on their thread. An owner is
//! known by a number of this library: see `owner.rs`.
//!
//! **Conditions** do not depend on the lock: each waiter sleeps on a semaphore of glibc, in a queue of the condition.
//! So signals are never lost or stolen, and a wait is a cancellation point because glibc's `sem_wait` is one. A shadow
//! mutex in each mutex, as in LiTL, would cost each unlock a second lock.
//!
//! **Readers-writer locks.** glibc lets a thread read again while a writer waits, and programs rely on that. Go's RWMutex,
//! std's and parking_lot's do not. So readers are counted in a word, and the chosen lock is the queue of the writers.
//!
//! **Reentrancy.** The first call may come before this library's constructor, or from within the program's allocator. So
//! the choice of the lock needs `getenv` only; glibc's functions are found when they are needed; and all memory of
//! Rust code here comes from `alloc.rs`, which calls neither the program's allocator nor a pthread function. An exception
//! is left: a lock with a thread-local that has a destructor (`mcs`, `clh`) registers it with glibc, which allocates by the
//! program's allocator. If that locks a pthread mutex, as jemalloc may, the thread recurses until its stack ends.
//!
//! **`fork`.** The child has the locks that were held, but not the threads that waited for them: a queue lock would be
//! handed to a thread that is not there. So a child takes a fresh node for each mutex that it meets, locked if the
//! mutex was locked, and empties each condition. No lock is held during a fork: [`fork`]. What other threads did in
//! locks *inside* the chosen lock (the semaphore table, parking_lot's table) is not mended: after a fork of a process
//! whose threads wait at that moment, a child that starts threads of its own may hang.
//!
//! **Panics** end the process: all functions but the waits of conditions are `extern "C"`, and those call only such.
//!
//! **Thread exit.** Destructors of thread-specific data may lock and wait after the destructors of Rust's thread-locals
//! have run. The locks of the laboratory allow that; the tests do so with each lock.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64", not(sudog_loom), not(sudog_sim)))]
#![warn(missing_debug_implementations)]

mod alloc;
mod backend;
mod cond;
mod errno;
mod fork;
mod futex;
mod futex_lock;
mod glibc;
mod mutex;
mod owner;
mod rw_word;
mod rwlock;

mod start;
mod time;

#[allow(unused_imports)] // named in the documentation above
use sudog_sync::RawLock;
