//! The rings of all threads.
//!
//! A ring is never freed: a thread that ends leaves its ring to the next thread that needs one. So the number of rings
//! is the largest number of recording threads that have existed at the same time.

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, AtomicU64};
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::clock::{self, Reading};
use super::ring::{Part, Ring, Words};
use super::{CAPACITY, Event, Kind, Recording, Who};
use crate::goroutine;
use crate::shim::Mutex;

/// True while a recording is under way.
static ON: AtomicBool = AtomicBool::new(false);
/// The number of events that were dropped because their thread had no ring: the thread was ending, or held a lock under
/// which no ring may be made.
static HOMELESS: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(0);
static RINGS: Mutex<Rings> = Mutex::new(Rings { all: Vec::new(), free: Vec::new(), started: None });

struct Rings {
    all: Vec<Entry>,
    free: Vec<&'static Ring>,
    started: Option<Reading>,
}

struct Entry {
    ring: &'static Ring,
    /// The number of events that had been written to the ring when the recording began.
    before: u64,
}

/// A thread's ring, and its number.
struct Own {
    ring: Cell<Option<&'static Ring>>,
    number: Cell<u64>,
}

system::thread_local! {
    static OWN: Own = const { Own { ring: Cell::new(None), number: Cell::new(0) } };
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            RINGS.lock().free.push(ring);
        }
    }
}

pub(super) fn start() {
    let mut rings = RINGS.lock();
    rings.started = Some(Reading::now());
    HOMELESS.store(0, Relaxed);
    for entry in &mut rings.all {
        entry.before = entry.ring.written();
    }
    // Use Release, so that a thread that sees the store reads the same clock.
    ON.store(true, Release);
}

pub(super) fn stop() -> Recording {
    let mut rings = RINGS.lock();
    let Some(started) = rings.started.take() else { return Recording::default() };
    ON.store(false, Relaxed);
    let parts = rings.read();
    drop(rings);
    collect(started, u64::MAX, parts)
}

pub(super) fn snapshot() -> Recording {
    let rings = RINGS.lock();
    let Some(started) = rings.started else { return Recording::default() };
    // Leave out what is recorded meanwhile: a ring that is read later would have effects of causes that an earlier ring lacks.
    let until = clock::ticks();
    let parts = rings.read();
    drop(rings);
    collect(started, until, parts)
}

impl Rings {
    /// Reads what each ring still has of the recording.
    fn read(&self) -> Vec<Part> {
        self.all.iter().map(|entry| entry.ring.read(entry.before)).collect()
    }
}

/// Puts the parts of a recording together, up to the time `until`.
fn collect(started: Reading, until: u64, parts: Vec<Part>) -> Recording {
    let scale = started.scale();
    let mut recording = Recording { events: Vec::new(), dropped: HOMELESS.load(Relaxed) };
    for part in parts {
        recording.dropped += part.lost;
        // Drop events with an earlier time than the recording: these were being recorded when the recording began.
        let ours = part.events.into_iter().filter(|words| (started.ticks()..=until).contains(&words[0]));
        recording.events.extend(ours.map(|words| unpack(words, &scale)));
    }
    recording.events.sort_by_key(|event| event.at); // a stable sort
    recording
}

#[inline]
pub(super) fn prepare() {
    if ON.load(Acquire) {
        let _ = OWN.try_with(|own| own.ring.get().is_none().then(|| provide(own)));
    }
}

#[inline]
pub(super) fn record(kind: Kind, addr: usize, waiter: usize) {
    if ON.load(Acquire) {
        write(kind, addr, waiter, |own| Some(provide(own)));
    }
}

#[inline]
pub(super) fn record_if_prepared(kind: Kind, addr: usize, waiter: usize) {
    if ON.load(Acquire) {
        write(kind, addr, waiter, |_| None);
    }
}

#[inline]
fn write(kind: Kind, addr: usize, waiter: usize, otherwise: impl FnOnce(&Own) -> Option<&'static Ring>) {
    let done = OWN.try_with(|own| {
        let ring = own.ring.get().or_else(|| otherwise(own))?;
        ring.write(pack(clock::ticks(), own.number.get(), kind, addr, waiter));
        Some(())
    });
    if done.ok().flatten().is_none() {
        HOMELESS.fetch_add(1, Relaxed);
    }
}

#[cold]
fn provide(own: &Own) -> &'static Ring {
    own.number.set(THREADS.fetch_add(1, Relaxed) + 1);
    let free = RINGS.lock().free.pop();
    let ring = free.unwrap_or_else(|| {
        let ring = &*Box::leak(Box::new(Ring::new(CAPACITY)));
        RINGS.lock().all.push(Entry { ring, before: 0 });
        ring
    });
    own.ring.set(Some(ring));
    ring
}

const GOROUTINE: u64 = 1 << 63;
/// The number of bits in which an event stores [`Event::waiter`]. The bits above store the kind.
const WAITER_BITS: u32 = 56;

#[inline]
fn pack(ticks: u64, thread: u64, kind: Kind, addr: usize, waiter: usize) -> Words {
    let who = match goroutine::id() {
        0 => thread,
        id => id | GOROUTINE,
    };
    let waiter = waiter as u64 & ((1 << WAITER_BITS) - 1);
    [ticks, who, addr as u64, (kind as u64) << WAITER_BITS | waiter]
}

fn unpack([ticks, who, addr, last]: Words, scale: &clock::Scale) -> Event {
    Event {
        at: scale.time(ticks),
        who: if who & GOROUTINE == 0 { Who::Thread(who) } else { Who::Goroutine(who & !GOROUTINE) },
        kind: Kind::ALL[(last >> WAITER_BITS) as usize],
        addr: addr as usize,
        waiter: (last & ((1 << WAITER_BITS) - 1)) as usize,
    }
}
