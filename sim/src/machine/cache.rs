//! Coherence: whose a line is, and what an access to it costs.
//!
//! | a line is | load | store, read-modify-write |
//! |---|---|---|
//! | in no cache | a miss, from memory; it is shared then | a miss; it is the core's then |
//! | one core's (modified or exclusive) | a hit for that core; else a miss, and two share it | a hit for that core; else a miss, and the other loses it |
//! | shared by several cores | a hit for these; else a miss, from the nearest | all others lose it, each at a cost |
//!
//! One access at a time is served at a line: `busy` is when its directory is free again. A store does not wait for its miss
//! (a store buffer of one entry): the next store, read-modify-write or fence does.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::preset::Preset;

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
const NO_CORE: u8 = u8::MAX;

#[derive(Debug)]
struct Line {
    /// The core that may write.
    owner: u8,
    /// The cores that may read, if there is no owner.
    sharers: u128,
    /// When the directory serves the next access.
    busy: u64,
    /// Writes so far.
    version: u32,
}

/// What accesses have cost, since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accesses in all.
    pub accesses: u64,
    /// Those that another cache or memory served.
    pub misses: u64,
    /// Of these, those that came from another socket.
    pub far_misses: u64,
    /// Caches that lost a line.
    pub invalidations: u64,
}

/// All lines, by number of first touch.
#[derive(Debug)]
pub(crate) struct Caches {
    numbers: HashMap<u64, u32, BuildHasherDefault<LineHasher>>,
    lines: Vec<Line>,
    /// The numbers of lines that were looked for lately.
    recent: Box<[(u64, u32); RECENT]>,
    /// Decides by how much misses vary.
    random: u64,
    pub(crate) traffic: Traffic,
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

/// What an access comes to: see [`Caches::access`].
pub(crate) struct Served {
    /// When the processor goes on.
    pub(crate) done: u64,
    /// The line, and whether other caches have lost it.
    pub(crate) line: u32,
    pub(crate) changed: bool,
}

impl Caches {
    pub(crate) fn new(seed: u64) -> Self {
        let recent = Box::new([(u64::MAX, 0); RECENT]);
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { numbers: HashMap::default(), lines: Vec::new(), recent, random, traffic: Traffic::default() }
    }

    /// Up to an eighth more: no two misses take the same time, or threads would run in step for ever.
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
            self.lines.push(Line { owner: NO_CORE, sharers: 0, busy: 0, version: 0 });
        }
        *recent = (key, number);
        number
    }

    /// How often the line has been written.
    pub(crate) fn version(&self, line: u32) -> u32 {
        self.lines[line as usize].version
    }

    /// An access of `core` at time `now`, whose last store is under way until `*store_done`.
    pub(crate) fn access(
        &mut self,
        machine: &Preset,
        core: usize,
        address: usize,
        kind: Access,
        now: u64,
        store_done: &mut u64,
    ) -> Served {
        let number = self.line_of(address);
        let line = &mut self.lines[number as usize];
        let memory = &machine.memory;
        self.traffic.accesses += 1;
        let me = 1_u128 << core;
        let own = line.owner as usize == core;
        line.version = line.version.wrapping_add(u32::from(kind != Access::Load));
        let hit = |cost| Served { done: now + cost, line: number, changed: false };
        match kind {
            Access::Load if own || line.sharers & me != 0 => return hit(memory.load),
            Access::Store if own => return Served { changed: true, ..hit(memory.store) },
            Access::Rmw if own => {
                return Served { done: now.max(*store_done) + memory.rmw, line: number, changed: true };
            }
            _ => {}
        }
        let others = if line.owner == NO_CORE { line.sharers & !me } else { 1 << line.owner };
        let home = machine.socket(core);
        let is_near = |core: u32| machine.socket(core as usize) == home;
        let from_near = bits(others).any(is_near);
        let from_far = bits(others).any(|core| !is_near(core));
        // A reader takes the line from the nearest; a writer has to hear from all that had it.
        let far = match kind {
            Access::Load => from_far && !from_near,
            Access::Store | Access::Rmw => from_far,
        };
        let latency = match (others, far) {
            (0, _) if line.sharers & me != 0 => memory.rmw, // shared with no other core: it becomes its own
            (0, _) => memory.first,
            (_, false) => memory.near,
            (_, true) => memory.far,
        };
        let latency = self.varied(latency);
        self.traffic.misses += 1;
        self.traffic.far_misses += u64::from(far);
        let line = &mut self.lines[number as usize];
        let mut begin = now.max(line.busy);
        if kind != Access::Load {
            begin = begin.max(*store_done);
        }
        let lost = u64::from(others.count_ones());
        if kind == Access::Load {
            line.busy = begin + memory.read_occupancy;
            line.sharers |= me | others;
            line.owner = NO_CORE;
            return Served { done: begin + latency, line: number, changed: false };
        }
        self.traffic.invalidations += lost;
        line.busy = begin + memory.write_occupancy + memory.invalidation * lost;
        line.owner = core as u8;
        line.sharers = 0;
        let arrived = begin + latency + memory.invalidation * lost;
        let done = if kind == Access::Store {
            *store_done = arrived;
            begin + memory.store
        } else {
            arrived + memory.rmw
        };
        Served { done, line: number, changed: true }
    }
}

fn bits(mut set: u128) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        next
    })
}
