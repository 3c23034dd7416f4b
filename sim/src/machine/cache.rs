//! Coherence: whose a line is, and what an access to it costs.
//!
//! | a line is | load | store, read-modify-write |
//! |---|---|---|
//! | in no cache | a miss, from memory; it is shared then | a miss; it is the core's then |
//! | one core's (modified or exclusive) | a hit for that core; else a miss, and two share it | a hit for that core; else a miss, and the other loses it |
//! | shared by several cores | a hit for these; else a miss, from the nearest | all others lose it, each at a cost |
//!
//! An access that misses takes effect half way, when it reaches the caches that have the line; until then their cores go on with
//! it. One access at a time is served at a line: `busy` is when its directory is free again. After a store the processor goes on
//! while others lose the line; the next read-modify-write or fence waits until they have. Memory has the value at once, so
//! other cores wait with their accesses until the store reaches them.

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
    /// A store under way: its core, and when it takes the line.
    store: Option<(u8, u64)>,
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

/// What an access comes to: see [`Caches::request`].
pub(crate) enum Request {
    /// It is served.
    Hit(Served),
    /// It takes effect when it reaches the caches that have the line: see [`Caches::reach`].
    Miss { line: u32, reaches: u64, done: u64 },
    /// It waits until stores are done, those before it or another core's to this line, and is requested anew.
    Later { at: u64 },
}

/// An access that has taken effect.
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
            self.lines.push(Line { owner: NO_CORE, sharers: 0, busy: 0, version: 0, store: None });
        }
        *recent = (key, number);
        number
    }

    /// How often the line has been written.
    pub(crate) fn version(&self, line: u32) -> u32 {
        self.lines[line as usize].version
    }

    /// An access of `core` at time `now`, whose stores are under way until `*store_done`.
    pub(crate) fn request(
        &mut self,
        machine: &Preset,
        core: usize,
        address: usize,
        kind: Access,
        now: u64,
        store_done: &mut u64,
    ) -> Request {
        let number = self.line_of(address);
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
            return Request::Later { at: *store_done }; // meanwhile another core may take the line
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
        // The line is fetched while stores are under way; the instruction waits for both.
        let done = arrives.max(*store_done) + memory.rmw;
        Request::Miss { line: number, reaches: reaches.max(*store_done), done }
    }

    /// A load or a read-modify-write of `core` that has missed takes effect. Until now the line was where it was.
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

    /// The store that is under way to this line, which takes it when it is time. Its value is there already, so other cores must
    /// not look before.
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

    /// All other cores lose the line to this one.
    fn take(&mut self, number: u32, core: usize) {
        let line = &mut self.lines[number as usize];
        self.traffic.invalidations += u64::from(line.others(core).count_ones());
        line.owner = core as u8;
        line.sharers = 0;
        line.store = None;
    }
}

/// A store that is under way to a line, and until when.
enum Store {
    None,
    Own { until: u64 },
    OfAnother { until: u64 },
}

impl Line {
    /// The other cores that have it.
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
            Self { caches: Caches::new(1), preset, stores_done: [0; 2] }
        }

        fn request(&mut self, core: usize, line: usize, kind: Access, now: u64) -> Request {
            self.caches.request(self.preset, core, line * LINE, kind, now, &mut self.stores_done[core])
        }

        /// When an access is done that no other disturbs.
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
