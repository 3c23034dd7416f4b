//! Go's `sync/atomic`: typed atomics with Go's names. All operations are sequentially consistent.
//!
//! These atomics differ from `std`'s in three ways, as Go's do. There is only one ordering, so no method takes an
//! ordering. `add` returns the *new* value, whereas `and` and `or` return the *old* value. `compare_and_swap` returns
//! only whether it has swapped. For other orderings, or to get the value that was found, use `std::sync::atomic`.
//!
//! | Go | here | `std` beneath |
//! |---|---|---|
//! | `atomic.Bool` | [`Bool`] | `AtomicBool` |
//! | `atomic.Int32`, `atomic.Int64` | [`Int32`], [`Int64`] | `AtomicI32`, `AtomicI64` |
//! | `atomic.Uint32`, `atomic.Uint64` | [`Uint32`], [`Uint64`] | `AtomicU32`, `AtomicU64` |
//! | `atomic.Uintptr` | [`Uintptr`] | `AtomicUsize` |
//! | `atomic.Pointer[T]` | [`Pointer<T>`](Pointer), of `Arc<T>` | (hazard pointers) |
//! | `atomic.Value` | [`Value<T>`](Value), of one type | (hazard pointers) |
//! | `x.Load()` | `x.load()` | `load(SeqCst)` |
//! | `x.Store(v)` | `x.store(v)` | `store(v, SeqCst)` |
//! | `old := x.Swap(v)` | `x.swap(v)` | `swap(v, SeqCst)` |
//! | `x.CompareAndSwap(old, new)` | `x.compare_and_swap(old, new)` | `compare_exchange(old, new, SeqCst, SeqCst).is_ok()` |
//! | `new := x.Add(d)` | `x.add(d)` | `fetch_add(d, SeqCst)`, then `+ d`, both wrapping |
//! | `old := x.And(m)`, `x.Or(m)` | `x.and(m)`, `x.or(m)` | `fetch_and(m, SeqCst)`, `fetch_or` |
//! | `atomic.AddInt32(&x, d)` and the other functions | the methods | |
//!
//! Some panics of Go have no counterpart here. These mistakes do not compile: a store of nil into a `Value`, a store
//! of a type other than the type before, and a nil pointer to an atomic. 64-bit atomics are always aligned. A target
//! without 64-bit atomics has no `Int64` and no `Uint64`.
//!
//! # Examples
//!
//! ```
//! use sudog::sync::atomic::{Int64, Uint32};
//!
//! static HITS: Int64 = Int64::new(0);
//! assert_eq!(HITS.add(3), 3);
//! assert_eq!(HITS.add(-1), 2);
//! assert!(HITS.compare_and_swap(2, 10));
//! assert_eq!(HITS.swap(0), 10);
//!
//! let flags = Uint32::new(0b0110);
//! assert_eq!(flags.or(0b0001), 0b0110);
//! assert_eq!(flags.load(), 0b0111);
//! ```
//!
//! Source: Go's `sync/atomic/type.go` and `value.go`, in the development tree of 1.28.

mod number;
mod pointer;
mod value;

pub use number::{Bool, Int32, Uint32, Uintptr};
#[cfg(target_has_atomic = "64")]
pub use number::{Int64, Uint64};
pub use pointer::Pointer;
pub use value::Value;
