//! Locks and semaphores beyond Go's `sync`: to use as the backend of a mutex, to compare, and to study.
//!
//! * [`waiting_array`]: semaphores that disperse their waiters over a global array. Use [`waiting_array::Benaphore`];
//!   the other semaphores are the paper's.
//! * [`capacitor`]: bounds how often a waiter of any lock is overtaken.
//! * [`spin_lock`]: the classic small locks: test-and-set, ticket, MCS, CLH, and similar ones.
//!
//! All of these implement the traits of `sudog_sync`: a semaphore fits under [`GoMutex`](sudog_sync::GoMutex), and a
//! lock fits under [`MutexWith`](sudog_sync::MutexWith).
//!
//! The TWA lock, on which most semaphores of [`waiting_array`] build, is covered by US patents: see NOTICE. A program
//! that must avoid the TWA lock turns the feature `locks` of `sudog` off; then nothing of this crate is compiled.

// docs.rs shows which features and systems an item needs.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(sudog_loom, sudog_sim))))]

pub mod capacitor;
pub mod spin_lock;
mod waiting;
pub mod waiting_array;
