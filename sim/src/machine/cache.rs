//! Coherence: the owner and the sharers of a line, and the cost of an access to the line.
//!
//! | a line is | load | store, read-modify-write |
//! |---|---|---|
//! | in no cache | a miss, served by memory; the line is shared afterwards | a miss; the line is owned by the core afterwards |
//! | owned by a core (modified or exclusive) | a hit for that core; else a miss, and two cores share the line | a hit for that core; else a miss, and the owner loses the line |
//! | shared by several cores | a hit for these; else a miss, served by the nearest | all others lose the line, each at a cost |
//!
//! An access that misses takes effect in the middle of its time, when it reaches the caches that have the line; until
//! then the cores of these caches go on using the line. A line serves a single access at a time: `busy` is the time at
//! which the line's directory is free again. After a store the processor goes on while other cores lose the line; the
//! next read-modify-write or fence waits until they have lost the line. The simulator's memory has the stored value at
//! once, so other cores delay their accesses until the store reaches them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::limited::Limited;
use super::preset::{Details, Preset};

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    Rmw,
}

impl Access {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Rmw => "read-modify-write",
        }
    }
}

const LINE_BITS: u32 = 6;
/// The time to find the address of a page that the TLB does not hold, in cycles.
const WALK: u64 = 30;
const NO_CORE: u8 = u8::MAX;

#[derive(Debug)]
struct Line {
    /// The core that may write, or `NO_CORE`.
    owner: u8,
    /// The cores that may read, if there is no owner.
    sharers: u128,
    /// The time at which the directory serves the next access.
    busy: u64,
    /// The number of writes so far.
    version: u32,
    /// A store under way: its core, and the time at which that core takes the line.
    store: Option<(u8, u64)>,
}

/// The costs of accesses since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of all accesses.
    pub accesses: u64,
    /// The number of accesses that another cache or memory served.
    pub misses: u64,
    /// The number of misses that a cache of another socket served.
    pub far_misses: u64,
    /// The number of times that a cache lost a line to a writer.
    pub invalidations: u64,
    /// The number of accesses to a page that the core's TLB did not hold. 0 without [`Details::tlb`].
    pub tlb_misses: u64,
    /// The number of futex calls that found their bucket of the system's table locked. 0 without [`Details::futex`].
    pub futex_waits: u64,
}

/// All lines, numbered in the order of first touch.
#[derive(Debug)]
pub(crate) struct Caches {
    numbers: HashMap<u64, u32, BuildHasherDefault<LineHasher>>,
    lines: Vec<Line>,
    /// The lines that were accessed lately, with their numbers.
    recent: Box<[(u64, u32); RECENT]>,
    /// The state of the random numbers that vary the latencies of misses.
    random: u64,
    pub(crate) traffic: Traffic,
    /// The caches and the TLBs that hold a limited number of lines and pages.
    limited: Limited,
    /// See [`Details::pairs`].
    pairs: bool,
}

const RECENT: usize = 1024;

#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, line: u64) {
        self.0 = line.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The answer to an access: see [`Caches::request`].
pub(crate) enum Request {
    /// The access is served.
    Hit(Served),
    /// The access takes effect when the request reaches the caches that have the line: see [`Caches::reach`].
    Miss { line: u32, reaches: u64, done: u64 },
    /// The access waits until earlier stores of its core, or another core's store to this line, are done. Then it is
    /// requested anew.
    Later { at: u64 },
}

/// An access that has taken effect.
pub(crate) struct Served {
    /// The time at which the processor goes on.
    pub(crate) done: u64,
    /// The line of the access.
    pub(crate) line: u32,
    /// True if other caches have lost the line.
    pub(crate) changed: bool,
}

impl Caches {
    pub(crate) fn new(seed: u64, details: Details) -> Self {
        Self {
            numbers: HashMap::default(),
            lines: Vec::new(),
            recent: Box::new([(u64::MAX, 0); RECENT]),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            traffic: Traffic::default(),
            limited: Limited::new(details),
            pairs: details.pairs,
        }
    }

    /// Returns the latency plus a random part of up to an eighth of the latency. If misses took the same time, threads
    /// would run in step for ever.
    fn varied(&mut self, latency: u64) -> u64 {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        latency + (self.random >> 32) * latency / 8 / (1 << 32)
    }

    pub(crate) fn line_of(&mut self, address: usize) -> u32 {
        let key = (address >> LINE_BITS) as u64;
        let recent = &mut self.recent[key as usize % RECENT];
        if recent.0 == key {
            return recent.1;
        }
        let next = self.lines.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.lines.push(Line { owner: NO_CORE, sharers: 0, busy: 0, version: 0, store: None });
        }
        *recent = (key, number);
        number
    }

    /// Returns the number of writes to the line so far.
    pub(crate) fn version(&self, line: u32) -> u32 {
        self.lines[line as usize].version
    }

    /// Requests an access of `core` at time `now`. The core's earlier stores are under way until `*store_done`.
    pub(crate) fn request(
        &mut self,
        machine: &Preset,
        core: usize,
        address: usize,
        kind: Access,
        mut now: u64,
        store_done: &mut u64,
    ) -> Request {
        let number = self.line_of(address);
        if self.limited.is_limited() && self.meets_limits(core, address, number) {
            now += WALK;
        }
        let stores = match self.store_under_way(number, core, now) {
            // Another hyperthread of the core may have stored.
            Store::Own { until } if kind == Access::Rmw => return Request::Later { at: until.max(*store_done) },
            Store::Own { .. } => true,
            Store::None => false,
            Store::OfAnother { until } => return Request::Later { at: until },
        };
        let line = &mut self.lines[number as usize];
        let memory = &machine.memory;
        let me = 1_u128 << core;
        let own = line.owner as usize == core || stores;
        if own && kind == Access::Rmw && *store_done > now {
            return Request::Later { at: *store_done }; // in the meantime another core may take the line
        }
        self.traffic.accesses += 1;
        let hit = |cost| Served { done: now + cost, line: number, changed: false };
        match kind {
            Access::Load if own || line.sharers & me != 0 => return Request::Hit(hit(memory.load)),
            Access::Store if own => {
                line.version = line.version.wrapping_add(1);
                return Request::Hit(Served { changed: true, ..hit(memory.store) });
            }
            Access::Rmw if own => {
                line.version = line.version.wrapping_add(1);
                return Request::Hit(Served { changed: true, ..hit(memory.rmw) });
            }
            _ => {}
        }
        let others = line.others(core);
        let home = machine.socket(core);
        let is_near = |core: u32| machine.socket(core as usize) == home;
        let from_near = bits(others).any(is_near);
        let from_far = bits(others).any(|core| !is_near(core));
        // A reader takes the line from the nearest cache; a writer has to wait for all caches that had the line.
        let far = match kind {
            Access::Load => from_far && !from_near,
            Access::Store | Access::Rmw => from_far,
        };
        let latency = match (others, far) {
            // The core is the only sharer, and becomes the owner.
            (0, _) if line.sharers & me != 0 => memory.rmw,
            (0, _) => memory.first,
            (_, false) => memory.near,
            (_, true) => memory.far,
        };
        let latency = self.varied(latency);
        self.traffic.misses += 1;
        self.traffic.far_misses += u64::from(far);
        if self.pairs {
            self.fetch_other_of_pair(machine, core, address, now);
        }
        let line = &mut self.lines[number as usize];
        let begin = now.max(line.busy);
        if kind == Access::Load {
            line.busy = begin + memory.read_occupancy;
            return Request::Miss { line: number, reaches: begin + latency / 2, done: begin + latency };
        }
        let lost = u64::from(others.count_ones());
        line.busy = begin + memory.write_occupancy + memory.invalidation * lost;
        let (reaches, arrives) = (begin + latency / 2, begin + latency + memory.invalidation * lost);
        if kind == Access::Store {
            *store_done = arrives.max(*store_done);
            line.store = Some((core as u8, reaches));
            line.version = line.version.wrapping_add(1);
            return Request::Hit(Served { changed: true, ..hit(memory.store) });
        }
        // The core fetches the line while its stores are under way; the instruction waits for both.
        let done = arrives.max(*store_done) + memory.rmw;
        Request::Miss { line: number, reaches: reaches.max(*store_done), done }
    }

    /// Puts an access of `core` into its cache and its TLB, which may displace a line. Returns whether the TLB missed.
    fn meets_limits(&mut self, core: usize, address: usize, number: u32) -> bool {
        let lines = &self.lines;
        let holds = |number: u32| lines[number as usize].is_held_by(core);
        if let Some(displaced) = self.limited.hold_line(core, address >> LINE_BITS, number, holds) {
            let line = &mut self.lines[displaced as usize];
            if line.store.is_none() {
                line.sharers &= !(1 << core);
                if line.owner as usize == core {
                    line.owner = NO_CORE;
                }
            }
        }
        let missed = self.limited.hold_page(core, address);
        self.traffic.tlb_misses += u64::from(missed);
        missed
    }

    /// Lets `core` read the other line of the pair, in the background: an owner of that line shares the line afterwards.
    fn fetch_other_of_pair(&mut self, machine: &Preset, core: usize, address: usize, now: u64) {
        let other = self.line_of(address ^ 1 << LINE_BITS);
        let line = &mut self.lines[other as usize];
        if line.store.is_none() && !line.is_held_by(core) {
            line.sharers = 1 << core | line.others(core);
            line.owner = NO_CORE;
            line.busy = now.max(line.busy) + machine.memory.read_occupancy;
        }
    }

    /// Lets a load or a read-modify-write of `core` that has missed take effect. Until now the other caches kept the
    /// line.
    pub(crate) fn reach(&mut self, core: usize, number: u32, kind: Access, now: u64, done: u64) -> Request {
        if let Store::OfAnother { until } = self.store_under_way(number, core, now) {
            return Request::Later { at: until };
        }
        if kind == Access::Load {
            let line = &mut self.lines[number as usize];
            line.sharers = 1 << core | line.others(core);
            line.owner = NO_CORE;
            return Request::Hit(Served { done, line: number, changed: false });
        }
        self.take(number, core);
        let line = &mut self.lines[number as usize];
        line.version = line.version.wrapping_add(1);
        Request::Hit(Served { done, line: number, changed: true })
    }

    /// Returns the store that is under way to this line. A store whose time has come takes the line first. Memory
    /// already has the value of a store under way, so other cores must not read before the store takes the line.
    fn store_under_way(&mut self, number: u32, core: usize, now: u64) -> Store {
        match self.lines[number as usize].store {
            None => Store::None,
            Some((of, at)) if at <= now => {
                self.take(number, of as usize);
                Store::None
            }
            Some((of, until)) if of as usize == core => Store::Own { until },
            Some((_, until)) => Store::OfAnother { until },
        }
    }

    /// Takes the line from all other cores, for this core.
    fn take(&mut self, number: u32, core: usize) {
        let line = &mut self.lines[number as usize];
        self.traffic.invalidations += u64::from(line.others(core).count_ones());
        line.owner = core as u8;
        line.sharers = 0;
        line.store = None;
    }
}

/// A store that is under way to a line, and the time at which the store takes the line.
enum Store {
    None,
    Own { until: u64 },
    OfAnother { until: u64 },
}

impl Line {
    /// Returns whether a core has the line in its cache.
    fn is_held_by(&self, core: usize) -> bool {
        self.owner as usize == core || self.owner == NO_CORE && self.sharers & 1 << core != 0
    }

    /// Returns the set of other cores that have the line.
    fn others(&self, core: usize) -> u128 {
        let all = if self.owner == NO_CORE { self.sharers } else { 1 << self.owner };
        all & !(1 << core)
    }
}

fn bits(mut set: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: usize = 1 << LINE_BITS;

    /// Two cores and their caches.
    struct Cores {
        caches: Caches,
        preset: &'static Preset,
        stores_done: [u64; 2],
    }

    impl Cores {
        fn new() -> Self {
            let preset = Preset::named("two").expect("a machine of this name");
            Self { caches: Caches::new(1, Details::NONE), preset, stores_done: [0; 2] }
        }

        fn request(&mut self, core: usize, line: usize, kind: Access, now: u64) -> Request {
            self.caches.request(self.preset, core, line * LINE, kind, now, &mut self.stores_done[core])
        }

        /// Makes an access that no other access disturbs. Returns the time at which the access is done.
        fn access(&mut self, core: usize, line: usize, kind: Access, mut now: u64) -> u64 {
            loop {
                match self.request(core, line, kind, now) {
                    Request::Hit(served) => return served.done,
                    Request::Later { at } => now = at,
                    Request::Miss { line, reaches, done } => match self.caches.reach(core, line, kind, reaches, done) {
                        Request::Hit(served) => return served.done,
                        Request::Later { .. } | Request::Miss { .. } => panic!("nothing disturbs it"),
                    },
                }
            }
        }
    }

    #[test]
    fn an_owner_goes_on_with_its_line_until_a_request_reaches_it() {
        let mut cores = Cores::new();
        let now = cores.access(0, 1, Access::Rmw, 0);
        let Request::Miss { line, reaches, done } = cores.request(1, 1, Access::Rmw, now) else { panic!("0 owns it") };
        assert!(now < reaches && reaches < done);
        assert!(matches!(cores.request(0, 1, Access::Rmw, reaches - 1), Request::Hit(_)));
        assert!(matches!(cores.caches.reach(1, line, Access::Rmw, reaches, done), Request::Hit(_)));
        assert!(matches!(cores.request(0, 1, Access::Rmw, done), Request::Miss { .. }));
    }

    #[test]
    fn other_cores_see_no_store_before_it_reaches_them() {
        let mut cores = Cores::new();
        let now = cores.access(0, 1, Access::Load, 0).max(cores.access(1, 1, Access::Load, 0));
        let Request::Hit(stored) = cores.request(0, 1, Access::Store, now) else { panic!("a store does not wait") };
        assert!(stored.done < now + cores.preset.memory.near);
        let Request::Later { at } = cores.request(1, 1, Access::Load, stored.done) else {
            panic!("1 would see the store")
        };
        assert!(matches!(cores.request(0, 1, Access::Load, stored.done), Request::Hit(_)), "its own core sees it");
        let Request::Later { at: done } = cores.request(0, 1, Access::Rmw, stored.done) else { panic!("it must wait") };
        assert!(now < at && at < done && done == cores.stores_done[0]);
        assert!(matches!(cores.request(1, 1, Access::Load, at), Request::Miss { .. }), "the store has taken the line");
    }

    #[test]
    fn an_access_under_way_waits_for_a_store_that_overtakes_it() {
        let mut cores = Cores::new();
        let now = cores.access(0, 1, Access::Load, 0);
        let Request::Miss { line, reaches, done } = cores.request(1, 1, Access::Rmw, now) else {
            panic!("1 has it not")
        };
        assert!(matches!(cores.request(0, 1, Access::Store, now + 1), Request::Hit(_)));
        let Request::Later { at } = cores.caches.reach(1, line, Access::Rmw, reaches, done) else {
            panic!("too early")
        };
        assert!(matches!(cores.caches.reach(1, line, Access::Rmw, at, done.max(at)), Request::Hit(_)));
    }

    #[test]
    fn a_locked_instruction_fetches_its_line_while_a_store_is_under_way() {
        let mut cores = Cores::new();
        let now = [1, 2].map(|line| cores.access(1, line, Access::Rmw, 0)).into_iter().max().expect("two lines");
        let stored = cores.access(0, 1, Access::Store, now);
        let done = cores.access(0, 2, Access::Rmw, stored);
        let memory = &cores.preset.memory;
        assert!(done >= cores.stores_done[0], "it waits for the store");
        assert!(done < now + 2 * memory.near, "one miss after the other: {}", done - now);
    }
}
