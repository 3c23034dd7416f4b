//! The steps of goroutines, which a recording has beside the steps of locks if [`Recorder::goroutines`](super::Recorder::goroutines) has asked for
//! them.
//!
//! | step | actor | recorded by | words of the event |
//! |---|---|---|---|
//! | `Create` | starter | starter | call that starts the goroutine, packed job |
//! | `Begin` | goroutine | its worker | vtable of the closure, packed job |
//! | `Name` | goroutine | its worker | 15 bytes of the name; a longer name takes several events |
//! | `Run` | goroutine | its worker | worker, index of the worker |
//! | `Park` | goroutine | its worker | address and length of the wait reason |
//! | `Yield`, `End` | goroutine | its worker | |
//! | `Ready` | waker | waker; then again the worker, when the worker finds the goroutine in its inbox | worker if the worker's loop is the actor, readied goroutine |
//! | `Expire` | worker | worker | , goroutine whose timer was due |
//! | `Idle` | worker | worker | worker |
//!
//! All steps of a goroutine are in the ring of its worker, in their order, but for the `Ready` of a waker on another
//! thread. That `Ready` is recorded before the goroutine is handed over, and so has an earlier time than the
//! goroutine's next `Run`. The `Ready` may come before the `Park`: a waker can find a goroutine that is about to park.

use std::panic::Location;
use std::ptr;
use std::time::Duration;

use super::rings::record_step;
use super::{Who, rings};
use crate::goroutine;

/// The smallest code of a step. Smaller codes are those of [`Kind`](super::Kind).
const FIRST: u8 = 0x80;
/// The number of bytes of a goroutine's name in an event: all of the first argument, and the 56 bits of the second.
const CHUNK: usize = 15;
/// The greatest number of events that a name takes. The rest of a longer name is left out.
const CHUNKS: usize = 4;

const CREATE: u8 = FIRST;
const BEGIN: u8 = FIRST + 1;
const NAME: u8 = FIRST + 2;
const RUN: u8 = FIRST + 3;
const PARK: u8 = FIRST + 4;
const YIELD: u8 = FIRST + 5;
const END: u8 = FIRST + 6;
const READY: u8 = FIRST + 7;
const EXPIRE: u8 = FIRST + 8;
const IDLE: u8 = FIRST + 9;

/// A step: see the top of this file.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub at: Duration,
    pub who: Who,
    pub deed: Deed,
}

#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Create {
        place: &'static Location<'static>,
        work: u64,
    },
    /// The first bit of `work` is set if a task is polled: each poll has the number of a goroutine of its own.
    Begin {
        origin: &'static str,
        work: u64,
    },
    Name([u8; CHUNK]),
    Run {
        worker: u64,
        index: u64,
    },
    Park {
        reason: &'static str,
    },
    Yield,
    End,
    Ready {
        worker: u64,
        goroutine: u64,
    },
    Expire {
        goroutine: u64,
    },
    Idle {
        worker: u64,
    },
}

#[cold]
pub(crate) fn creates(place: &'static Location<'static>, work: usize) {
    record_step(CREATE, ptr::from_ref(place).expose_provenance() as u64, work as u64);
}

/// `vtable` is the vtable of the goroutine's closure.
pub(crate) fn begins(vtable: &'static goroutine::Vtable, work: usize) {
    rings::prepare();
    record_step(BEGIN, ptr::from_ref(vtable).expose_provenance() as u64, work as u64);
}

#[cold]
pub(crate) fn is_named(name: &str) {
    for chunk in name.as_bytes().chunks(CHUNK).take(CHUNKS) {
        let mut bytes = [0; 16];
        bytes[..chunk.len()].copy_from_slice(chunk);
        let number = u128::from_le_bytes(bytes);
        record_step(NAME, number as u64, (number >> 64) as u64);
    }
}

pub(crate) fn runs(worker: usize, index: usize) {
    record_step(RUN, worker as u64, index as u64);
}

pub(crate) fn parks(reason: &'static str) {
    record_step(PARK, reason.as_ptr().expose_provenance() as u64, reason.len() as u64);
}

pub(crate) fn yields() {
    record_step(YIELD, 0, 0);
}

pub(crate) fn ends() {
    record_step(END, 0, 0);
}

/// `worker` is 0 if a thread or a goroutine readies, else the worker whose loop does.
pub(crate) fn readies(worker: usize, goroutine: u64) {
    record_step(READY, worker as u64, goroutine);
}

pub(crate) fn expires(goroutine: u64) {
    record_step(EXPIRE, 0, goroutine);
}

pub(crate) fn idles(worker: usize) {
    record_step(IDLE, worker as u64, 0);
}

/// Returns whether an event with this code is a step.
pub(super) fn is_step(code: u8) -> bool {
    code >= FIRST
}

/// Returns the step of an event.
///
/// # Safety
///
/// A function of this file has recorded the event: `code` is the code of a step, and `first` and `second` are the
/// arguments with which the function called [`record_step`].
pub(super) unsafe fn unpack(at: Duration, who: Who, code: u8, (first, second): (u64, u64)) -> Step {
    let address = first as usize;
    let deed = match code {
        CREATE => Deed::Create {
            // SAFETY: `first` is the address of a static `Location`, which `creates` has exposed.
            place: unsafe { &*ptr::with_exposed_provenance(address) },
            work: second,
        },
        BEGIN => Deed::Begin {
            // SAFETY: `first` is the address of a static vtable, which `begins` has exposed.
            origin: unsafe { &*ptr::with_exposed_provenance::<goroutine::Vtable>(address) }.origin(),
            work: second,
        },
        NAME => {
            let bytes = (u128::from(second) << 64 | u128::from(first)).to_le_bytes();
            Deed::Name(std::array::from_fn(|n| bytes[n]))
        }
        RUN => Deed::Run { worker: first, index: second },
        PARK => {
            // SAFETY: `first` and `second` are the address and the length of a `&'static str`, and `parks` has exposed
            // the address.
            let bytes = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(address), second as usize) };
            // SAFETY: `bytes` are those of a `str`.
            Deed::Park { reason: unsafe { std::str::from_utf8_unchecked(bytes) } }
        }
        YIELD => Deed::Yield,
        END => Deed::End,
        READY => Deed::Ready { worker: first, goroutine: second },
        EXPIRE => Deed::Expire { goroutine: second },
        _ => Deed::Idle { worker: first },
    };
    Step { at, who, deed }
}
