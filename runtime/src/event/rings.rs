//! The rings of all threads.
//!
//! A ring is never freed: a thread that ends leaves its ring to the next thread that needs one. So the number of rings
//! is the largest number of recording threads that have existed at the same time.

use crate::shim::system;
use crate::shim::system::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::clock::{self, Reading};
use super::ring::{Part, Ring, Words};
#[cfg(unix)]
use super::steps;
use super::{Event, Kind, Recording, Who};
use crate::goroutine;
use crate::shim::Mutex;

/// True while a recording is under way.
static ON: AtomicBool = AtomicBool::new(false);
/// The number of events that a ring of the recording holds. Written before `ON` is set.
static CAPACITY: AtomicUsize = AtomicUsize::new(0);
/// The number of events that were dropped because their thread had no ring: the thread was ending, or could make no ring
/// at that moment.
static HOMELESS: AtomicU64 = AtomicU64::new(0);
/// The number of recordings that have begun.
static RECORDINGS: AtomicU64 = AtomicU64::new(0);
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

system::thread_local! {
    static CLEANER: Cleaner = const { Cleaner };
}

/// Gives a thread's ring back when the thread ends.
struct Cleaner;

impl Cleaner {
    /// Makes the cleaner run at the end of the calling thread. Returns false if the thread is ending, so that the
    /// cleaner may have run.
    fn will_run() -> bool {
        CLEANER.try_with(|_| ()).is_ok()
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        if let Some(ring) = OWN.with(|own| own.ring.take()) {
            RINGS.lock().free.push(ring);
        }
    }
}

/// Begins a recording whose rings hold `capacity` events each, and makes `spares` rings for threads that cannot make a
/// ring themselves: see [`record_step`].
pub(super) fn start(capacity: usize, spares: usize) {
    let capacity = capacity.next_power_of_two();
    let is_free = |rings: &Rings| rings.free.iter().filter(|ring| ring.capacity() == capacity).count();
    let missing = spares.saturating_sub(is_free(&RINGS.lock()));
    let new: Vec<_> = (0..missing).map(|_| &*Box::leak(Box::new(Ring::new(capacity)))).collect();
    let mut rings = RINGS.lock();
    rings.all.extend(new.iter().map(|&ring| Entry { ring, before: 0 }));
    rings.free.extend(new);
    rings.started = Some(Reading::now());
    HOMELESS.store(0, Relaxed);
    RECORDINGS.fetch_add(1, Relaxed);
    CAPACITY.store(capacity, Relaxed);
    for entry in &mut rings.all {
        entry.before = entry.ring.written();
    }
    // Use Release, so that a thread that sees the store reads the same clock and the same capacity.
    ON.store(true, Release);
}

/// Returns the number of the recording under way, which no other recording has.
#[cfg(unix)]
pub(super) fn number() -> Option<u64> {
    ON.load(Acquire).then(|| RECORDINGS.load(Relaxed))
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
    let mut recording = Recording { dropped: HOMELESS.load(Relaxed), ..Recording::default() };
    for part in parts {
        recording.dropped += part.lost;
        // Drop events with an earlier time than the recording: these were being recorded when the recording began.
        for words in part.events.into_iter().filter(|words| (started.ticks()..=until).contains(&words[0])) {
            #[cfg(unix)]
            if steps::is_step(code(words)) {
                // SAFETY: `words` have the code of a step, and only `record_step` writes such words.
                let step = unsafe { steps::unpack(scale.time(words[0]), who(words), code(words), arguments(words)) };
                recording.steps.push(step);
                continue;
            }
            recording.events.push(unpack(words, &scale));
        }
    }
    // Sort by stable sorts: events of one thread at the same time keep their order.
    recording.events.sort_by_key(|event| event.at);
    #[cfg(unix)]
    recording.steps.sort_by_key(|step| step.at);
    recording
}

/// Returns the thread's ring. `None`: the thread has no ring of the recording's capacity.
#[inline]
fn ring(own: &Own) -> Option<&'static Ring> {
    own.ring.get().filter(|ring| ring.capacity() == CAPACITY.load(Relaxed))
}

#[inline]
pub(super) fn prepare() {
    if ON.load(Acquire) {
        OWN.with(|own| ring(own).is_none().then(|| provide(own)));
    }
}

#[inline]
pub(super) fn record(kind: Kind, addr: usize, waiter: usize) {
    if ON.load(Acquire) {
        write(kind as u8, addr as u64, waiter as u64, provide);
    }
}

#[inline]
pub(super) fn record_if_prepared(kind: Kind, addr: usize, waiter: usize) {
    if ON.load(Acquire) {
        write(kind as u8, addr as u64, waiter as u64, |_| None);
    }
}

/// Records a step of a goroutine: `code` and the arguments are those of [`steps`]. Allocates nothing: a thread without a
/// ring takes one of the rings that [`start`] has made, and the event is dropped, and counted, if no such ring is left.
#[cfg(unix)]
#[inline]
pub(super) fn record_step(code: u8, first: u64, second: u64) {
    if ON.load(Acquire) {
        write(code, first, second, spare);
    }
}

#[inline]
fn write(code: u8, first: u64, second: u64, otherwise: impl FnOnce(&Own) -> Option<&'static Ring>) {
    let done = OWN.with(|own| {
        let ring = ring(own).or_else(|| otherwise(own))?;
        ring.write(pack(clock::ticks(), own.number.get(), code, first, second));
        Some(())
    });
    if done.is_none() {
        HOMELESS.fetch_add(1, Relaxed);
    }
}

/// Gives the thread a ring of the recording's capacity, unless the thread is ending.
#[cold]
fn provide(own: &Own) -> Option<&'static Ring> {
    spare(own).or_else(|| {
        if !Cleaner::will_run() {
            return None;
        }
        let ring = &*Box::leak(Box::new(Ring::new(CAPACITY.load(Relaxed))));
        let mut rings = RINGS.lock();
        rings.all.push(Entry { ring, before: 0 });
        rings.free.extend(own.ring.replace(Some(ring)));
        Some(ring)
    })
}

/// Gives the thread a ring of the recording's capacity that no other thread uses, if there is such a ring and the thread is
/// not ending. The thread's former ring is free from then on.
#[cold]
fn spare(own: &Own) -> Option<&'static Ring> {
    if !Cleaner::will_run() {
        return None;
    }
    if own.number.get() == 0 {
        own.number.set(THREADS.fetch_add(1, Relaxed) + 1);
    }
    let capacity = CAPACITY.load(Relaxed);
    let mut rings = RINGS.lock();
    let free = rings.free.iter().position(|ring| ring.capacity() == capacity)?;
    let ring = match own.ring.get() {
        // Exchange the two in place: `free` has room.
        Some(old) => std::mem::replace(&mut rings.free[free], old),
        None => rings.free.swap_remove(free),
    };
    own.ring.set(Some(ring));
    Some(ring)
}

const GOROUTINE: u64 = 1 << 63;
/// The number of bits in which an event stores its second argument: [`Event::waiter`]. The bits above store the code.
const SECOND_BITS: u32 = 56;

#[inline]
fn pack(ticks: u64, thread: u64, code: u8, first: u64, second: u64) -> Words {
    let who = match goroutine::id() {
        0 => thread,
        id => id | GOROUTINE,
    };
    [ticks, who, first, u64::from(code) << SECOND_BITS | second & ((1 << SECOND_BITS) - 1)]
}

fn who([_, who, ..]: Words) -> Who {
    if who & GOROUTINE == 0 { Who::Thread(who) } else { Who::Goroutine(who & !GOROUTINE) }
}

fn code([.., last]: Words) -> u8 {
    (last >> SECOND_BITS) as u8
}

fn arguments([_, _, first, last]: Words) -> (u64, u64) {
    (first, last & ((1 << SECOND_BITS) - 1))
}

fn unpack(words: Words, scale: &clock::Scale) -> Event {
    let (addr, waiter) = arguments(words);
    Event {
        at: scale.time(words[0]),
        who: who(words),
        kind: Kind::ALL[usize::from(code(words))],
        addr: addr as usize,
        waiter: waiter as usize,
    }
}
