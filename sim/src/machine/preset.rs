//! The costs of a machine.
//!
//! Costs are cycles of the machine's processors, unless a name says otherwise. Results of a simulation are ratios and
//! shapes: none of them is a time to quote.

/// A machine: its processors, and the costs of memory and of the operating system.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// The source of the numbers.
    pub source: &'static str,
    /// The number of processors that the system sees, hyperthreads included.
    pub processors: usize,
    /// The number of hyperthreads that share a core and its caches.
    pub threads_per_core: usize,
    /// The number of cores of a socket. Processors are numbered thread by thread of a core, core by core, socket by
    /// socket.
    pub cores_per_socket: usize,
    /// The frequency in million cycles a second.
    pub mhz: u64,
    /// The costs of memory.
    pub memory: Memory,
    /// The costs of the operating system.
    pub system: System,
    /// Parts that usual runs leave out.
    pub details: Details,
}

/// Costs of accesses, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// A load of a line in the core's own cache, together with an instruction or two.
    pub load: u64,
    /// A store to a line that the core owns.
    pub store: u64,
    /// A locked instruction on a line that the core owns.
    pub rmw: u64,
    /// A pause instruction.
    pub pause: u64,
    /// A reading of the clock.
    pub clock: u64,
    /// A miss that another cache of this socket serves.
    pub near: u64,
    /// A miss that a cache of another socket serves.
    pub far: u64,
    /// A miss that memory serves: the first use of a line.
    pub first: u64,
    /// The time for which a read miss keeps other accesses from the line.
    pub read_occupancy: u64,
    /// The time for which a write miss keeps other accesses from the line.
    pub write_occupancy: u64,
    /// The additional time of a write miss for each cache that loses the line.
    pub invalidation: u64,
}

/// Costs of the operating system, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// A system call that does nothing.
    pub syscall: u64,
    /// The time from putting a thread to sleep until another thread runs in its place.
    pub switch: u64,
    /// The time that a waker spends to wake a thread.
    pub wake: u64,
    /// The time from the wake-up to the first instruction on a processor that was idle.
    pub idle_exit: u64,
    /// The time for which a thread runs while other threads wait for its processor.
    pub quantum: u64,
    /// The time for which a thread runs before a woken thread takes its place.
    pub granule: u64,
}

/// Parts of a machine that usual runs leave out, as few claims are about these parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Details {
    /// Number of lines of a core's cache, which has eight lines in each set. 0: the cache holds all lines.
    pub cache: usize,
    /// Number of pages that a core's TLB holds. 0: there is no TLB.
    pub tlb: usize,
    /// True if a miss fetches both lines of an aligned 128 bytes, as Intel's prefetcher of adjacent lines does.
    pub pairs: bool,
    /// Number of buckets of the system's futex table, each with a spinlock. 0: there is no such table.
    pub futex: usize,
}

impl Details {
    /// The details of a usual run.
    pub const NONE: Self = Self { cache: 0, tlb: 0, pairs: false, futex: 0 };
}

const LINUX: System =
    System { syscall: 150, switch: 1_500, wake: 2_000, idle_exit: 8_000, quantum: 3_000_000, granule: 750_000 };

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "two",
        source: "the project's own machine, two processors of an AMD EPYC (Zen 4) in a virtual machine: `cargo lab calibrate`, 2026-11-25",
        processors: 2,
        threads_per_core: 1,
        cores_per_socket: 2,
        mhz: 3_694,
        memory: Memory {
            load: 1,
            store: 1,
            rmw: 10,
            pause: 90,
            clock: 85,
            near: 90,
            // Never used: there is a single socket.
            far: 90,
            first: 854,
            read_occupancy: 20,
            write_occupancy: 40,
            invalidation: 3,
        },
        system: System {
            syscall: 237,
            switch: 1_122,
            wake: 5_893,
            idle_exit: 9_817,
            quantum: 3_970_000,
            granule: 750_000,
        },
        details: Details::NONE,
    },
    Preset {
        name: "x5-2",
        source: "the testbed of Malthusian Locks and TWA: 2 x 18 cores x 2 (Xeon E5-2699 v3); latencies of libslock (SOSP'13)",
        processors: 72,
        threads_per_core: 2,
        cores_per_socket: 18,
        mhz: 2_300,
        memory: Memory {
            load: 4,
            store: 4,
            rmw: 20,
            pause: 10,
            clock: 60,
            near: 110,
            far: 300,
            first: 250,
            read_occupancy: 14,
            write_occupancy: 40,
            invalidation: 3,
        },
        system: LINUX,
        details: Details::NONE,
    },
    Preset {
        name: "altra",
        source: "the testbed of the capacitors: Ampere Altra Max, 128 cores, one socket, a mesh",
        processors: 128,
        threads_per_core: 1,
        cores_per_socket: 128,
        mhz: 3_000,
        memory: Memory {
            load: 4,
            store: 4,
            rmw: 18,
            pause: 20,
            clock: 40,
            near: 150,
            far: 450,
            first: 300,
            read_occupancy: 14,
            write_occupancy: 40,
            invalidation: 3,
        },
        system: LINUX,
        details: Details::NONE,
    },
    Preset {
        name: "forty",
        source: "any part with 40 processors, for Go issue 33747: 2 x 10 cores x 2, costs of x5-2",
        processors: 40,
        threads_per_core: 2,
        cores_per_socket: 10,
        mhz: 2_300,
        memory: Memory {
            load: 4,
            store: 4,
            rmw: 20,
            pause: 10,
            clock: 60,
            near: 110,
            far: 300,
            first: 250,
            read_occupancy: 14,
            write_occupancy: 40,
            invalidation: 3,
        },
        system: LINUX,
        details: Details::NONE,
    },
    Preset {
        name: "core128",
        source: "a part of two sockets of 64 cores: costs of an AMD EPYC, misses across sockets as libslock's Opteron",
        processors: 128,
        threads_per_core: 1,
        cores_per_socket: 64,
        mhz: 2_600,
        memory: Memory {
            load: 4,
            store: 4,
            rmw: 18,
            pause: 40,
            clock: 65,
            near: 130,
            far: 400,
            first: 250,
            read_occupancy: 20,
            write_occupancy: 40,
            invalidation: 3,
        },
        system: LINUX,
        details: Details::NONE,
    },
];

impl Preset {
    /// Returns the preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    pub(crate) fn cycles(&self, ns: u64) -> u64 {
        ns * self.mhz / 1000
    }

    pub(crate) fn ns(&self, cycles: u64) -> u64 {
        // Divide first, so that no number of cycles overflows.
        cycles / self.mhz * 1000 + cycles % self.mhz * 1000 / self.mhz
    }

    pub(crate) fn core(&self, cpu: usize) -> usize {
        cpu / self.threads_per_core
    }

    pub(crate) fn socket(&self, core: usize) -> usize {
        core / self.cores_per_socket
    }
}
