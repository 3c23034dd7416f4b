//! Channels of communicating sequential processes, whose fibres are reclaimed when no partner can come.
//!
//! After John Skaller, *Communicating Sequential Processes in C++* (2021), chapters 5 and 6: *the source* in the
//! comments of this crate. `docs/csp.md` lists the differences from the source, with reasons, the defects of the
//! printed code, and figures.
//!
//! A channel has no buffer: a reader and a writer meet. Only the channel's [ends](End) give access to the channel. As a
//! rule, a fibre does not end by itself: the fibre reads, or writes, for ever, and is *reclaimed* when it hangs on a
//! channel and no partner can come. Then the fibre's own read or write returns [`Reclaimed`], and the fibre returns, by
//! `?`. Two counts show that no partner can come:
//!
//! * A channel counts the ends through which it may still be served. When the last such end is dropped, or hangs too,
//!   the channel is dead, and all fibres that hang on the channel are reclaimed. The ends that these fibres drop when
//!   they return may end other channels.
//! * An [`ActiveSet`] counts its fibres. When none of them can run, [`run`] reclaims those that hang.
//!
//! A fibre is a goroutine; threads may use channels, too, and async tasks, by [`read_async`](End::read_async). Reclaiming
//! unwinds nothing: a fibre that ignores [`Reclaimed`] just goes on.
//!
//! # Examples
//!
//! The source's program, a list of squares. Neither the transducer nor the consumer knows when to stop.
//!
//! ```
//! # #[cfg(unix)] {
//! use sudog::csp::{self, Reclaimed, make_channel, spawn_fibre};
//!
//! let mut squares = Vec::new();
//! csp::run(|| {
//!     let [mut numbers, mut input] = make_channel::<u64, 2>();
//!     let [mut output, mut results] = make_channel::<u64, 2>();
//!     spawn_fibre(move || (0..20).for_each(|n| numbers.write(n).unwrap()));
//!     spawn_fibre(move || -> Result<(), Reclaimed> {
//!         loop {
//!             let n = input.read()?;
//!             output.write(n * n)?;
//!         }
//!     });
//!     while let Ok(n) = results.read() {
//!         squares.push(n);
//!     }
//! });
//! assert_eq!(squares, (0..20).map(|n| n * n).collect::<Vec<_>>());
//! # }
//! ```
//!
//! # Limits of counting ends
//!
//! The count of ends does not show that no partner can come if channels cross (fibre A hangs on a channel and holds an
//! end of another, fibre B the other way round); if a single fibre holds both ends, and hangs; or if an end is leaked,
//! or held by a fibre that waits for something else for ever. The fibres of an [`ActiveSet`] are reclaimed all the
//! same, when the set is dropped; other goroutines and threads hang for ever.

// docs.rs shows which features and systems an item needs.
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(sudog_loom, sudog_sim))))]

mod channel;
mod end;
mod error;
#[cfg(all(unix, not(sudog_loom)))]
mod fibre;
mod future;
mod hang;
mod list;
mod read;
#[cfg_attr(not(unix), allow(dead_code))] // sets have no fibres on other systems
mod set;
mod write;

pub use end::{End, make_channel, make_ends};
pub use error::{Failed, Reclaimed, Unwritten};
#[cfg(all(unix, not(sudog_loom)))]
pub use fibre::{spawn_fibre, spawn_fibre_on};
pub use future::{ReadFuture, WriteFuture};
pub use set::ActiveSet;
#[cfg(all(unix, not(sudog_loom)))]
pub use set::run;
