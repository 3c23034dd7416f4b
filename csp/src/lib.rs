//! Channels of communicating sequential processes, whose fibres are reclaimed when no partner can come.
//!
//! After John Skaller, *Communicating Sequential Processes in C++* (2021), chapters 5 and 6. What differs and why, the
//! defects of the printed code, and figures are in `docs/csp.md`.
//!
//! A channel has no buffer: a reader and a writer meet. It is known by its [ends](End) only. A fibre does not end by
//! itself, as a rule: it reads, or writes, for ever, and is *reclaimed* when it hangs on a channel and nothing is left that
//! could meet it. For that a channel counts the ends through which it may still be served. When the last of these goes, or
//! hangs too, all that hang are ended: each unwinds on its own worker, as by `goexit`, and drops what it holds, which may
//! end others.
//!
//! The fibres are goroutines, of any kind; threads may take part, and get an error instead of an end.
//!
//! # Examples
//!
//! The source's program: a list of squares. Neither the transducer nor the consumer knows when to stop.
//!
//! ```
//! # #[cfg(unix)] {
//! use std::sync::{Arc, Mutex};
//! use sudog::csp::{make_channel, spawn_fibre};
//! use sudog::run_local;
//!
//! let squares = Arc::new(Mutex::new(Vec::new()));
//! let list = squares.clone();
//! run_local(move || {
//!     let [mut numbers, mut input] = make_channel::<u64, 2>();
//!     let [mut output, mut results] = make_channel::<u64, 2>();
//!     spawn_fibre(move || loop {
//!         let Ok(n) = results.read() else { return };
//!         list.lock().unwrap().push(n);
//!     });
//!     spawn_fibre(move || loop {
//!         let Ok(n) = input.read() else { return };
//!         output.write(n * n).unwrap();
//!     });
//!     (0..20).for_each(|n| numbers.write(n).unwrap());
//! });
//! assert_eq!(*squares.lock().unwrap(), (0..20).map(|n| n * n).collect::<Vec<_>>());
//! # }
//! ```
//!
//! # What counting cannot see
//!
//! Channels that cross (A hangs on one, with an end of the other, and B the other way round); both ends in one fibre,
//! which then hangs; an end that is leaked, or in the hands of a fibre that waits for something else for ever. Such fibres
//! hang until their scheduler is at rest (`run_local`, `Scheduler`) or its main goroutine returns (`run`), and are unwound
//! then. In the background, or on threads, they hang for ever.

mod channel;
mod end;
mod error;
#[cfg(all(unix, not(sudog_loom)))]
mod fibre;
mod hang;
mod list;
mod read;
#[cfg(all(unix, not(sudog_loom)))]
mod set;
mod write;

pub use end::{End, make_channel, make_ends};
pub use error::{Failed, Reclaimed, Unwritten};
#[cfg(all(unix, not(sudog_loom)))]
pub use fibre::spawn_fibre;
#[cfg(all(unix, not(sudog_loom)))]
pub use set::ActiveSet;
