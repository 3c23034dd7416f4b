//! Threads on processors with costs: the processor with the earliest clock runs.
//!
//! | event | at | then |
//! |---|---|---|
//! | `Continue` | the clock of a processor | the processor's thread goes on, until the processor is not the earliest any more |
//! | `Timer` | the deadline of a sleeper | the sleeper can run again |
//! | `Slice` | the end of a slice of time | a thread that spins, while others of its processor wait, goes to the end of their queue, unless its slice is extended |
//!
//! The system: a thread that can run again goes to the processor on which it ran, if that is idle; else to an idle
//! processor, near before far; else into the queue of its own processor, or into the shortest queue. A processor
//! without threads takes a thread from the longest queue. A thread runs for a quantum, if others wait; a thread that
//! was woken takes the processor from a thread that has had a granule of time. A thread that has asked for an extension of
//! its slice keeps the processor for 5 us more, once: see [`super::request_slice_extension`].
//!
//! A thread that spins for ever on a line of its cache causes no events: its processor waits until the line changes,
//! and then reads the line at the time of the next read of the spin loop.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::cache::{Access, Caches, Request, Traffic};
use super::preset::Preset;
use super::{Machine, Mode, State, ThreadId};

/// The size of the pieces into which work is cut, in nanoseconds, so that the processor sees a queue that fills in the
/// meantime.
const PIECE: u64 = 5_000;

/// The longest extension of a slice, in nanoseconds: the default of Linux 7.0.
const EXTENSION: u64 = 5_000;

/// Places between the first threads of two consecutive seeds. Seven seeds put a few threads on one socket of `x5-2`, or
/// on both.
const FIRST: u64 = 5;

/// An event other than `Continue`. Events are ordered as they happen, ties by processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time: u64,
    /// The number of the processor; for a timer, the number of all processors plus the number of the thread.
    who: usize,
    what: What,
    /// The turn of the processor, or the sleep of the thread. Events of earlier turns or sleeps are ignored.
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Slice,
    Timer,
}

#[derive(Debug, Default)]
struct Cpu {
    clock: u64,
    current: Option<ThreadId>,
    queue: VecDeque<ThreadId>,
    slice_begin: u64,
    slice_end: u64,
    /// True if this slice has been extended, and the thread has not made a system call since.
    extended: bool,
    /// The time at which all stores of the processor are done.
    store_done: u64,
    /// The number of turns so far. Events of earlier turns are ignored.
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct Spinner {
    thread: ThreadId,
    cpu: usize,
    /// The turn of the processor in which the thread spins. After another turn the thread spins no more.
    turn: u64,
    period: u64,
}

pub(crate) struct Timed {
    cpus: Vec<Cpu>,
    /// The processor that runs.
    cpu: usize,
    /// The time at which the thread of each processor goes on.
    turns: Turns,
    events: BinaryHeap<Reverse<Event>>,
    /// The time of the earliest event, and the number that breaks ties. A step at this time, by this processor, is the
    /// last that may be taken before the event.
    horizon: (u64, usize),
    caches: Caches,
    spinners: HashMap<u32, Vec<Spinner>>,
    /// The processor of each thread.
    home: Vec<usize>,
    /// The place of the first thread, which the seed decides; see [`Self::make_ready`].
    first: usize,
    /// True if the current thread gives way.
    gives_way: bool,
    preset: Preset,
    quantum: u64,
    granule: u64,
    switch: u64,
    idle_exit: u64,
    piece: u64,
}

impl Timed {
    pub(crate) fn new(preset: &Preset, processors: usize, seed: u64) -> Self {
        Self {
            cpus: (0..processors).map(|_| Cpu::default()).collect(),
            cpu: 0,
            turns: Turns::new(processors),
            events: BinaryHeap::new(),
            horizon: (0, 0),
            caches: Caches::new(seed, preset.details),
            spinners: HashMap::new(),
            home: Vec::new(),
            first: (seed % processors as u64 * FIRST) as usize % processors,
            gives_way: false,
            quantum: preset.cycles(preset.system.quantum),
            granule: preset.cycles(preset.system.granule),
            switch: preset.cycles(preset.system.switch),
            idle_exit: preset.cycles(preset.system.idle_exit),
            piece: preset.cycles(PIECE),
            preset: preset.clone(),
        }
    }

    pub(crate) fn processors(&self) -> usize {
        self.cpus.len()
    }

    pub(crate) fn processor(&self) -> usize {
        self.cpu
    }

    pub(crate) fn socket(&self) -> usize {
        self.preset.socket(self.preset.core(self.cpu))
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.caches.traffic
    }

    #[inline]
    pub(crate) fn is_next(&self, clock: u64) -> bool {
        (clock, self.cpu) <= self.horizon
    }

    /// Requests an access of the running thread.
    pub(crate) fn request(&mut self, preset: &Preset, address: usize, kind: Access, clock: u64) -> Request {
        let core = preset.core(self.cpu);
        let store_done = &mut self.cpus[self.cpu].store_done;
        self.caches.request(preset, core, address, kind, clock, store_done)
    }

    /// Lets the running thread's access, which has missed, take effect now.
    pub(crate) fn reach(&mut self, preset: &Preset, line: u32, kind: Access, clock: u64, done: u64) -> Request {
        self.caches.reach(preset.core(self.cpu), line, kind, clock, done)
    }

    /// Counts a futex call that found its bucket locked.
    pub(crate) fn count_futex_wait(&mut self) {
        self.caches.traffic.futex_waits += 1;
    }

    /// Returns the number of writes to a line so far.
    pub(crate) fn version(&self, line: u32) -> u32 {
        self.caches.version(line)
    }

    /// Returns the time at which all earlier stores of the processor are done, but not earlier than `clock`.
    pub(crate) fn drained(&self, clock: u64) -> u64 {
        clock.max(self.cpus[self.cpu].store_done)
    }

    /// Does a piece of work. Returns the number of cycles that were done.
    pub(crate) fn work(&self, clock: &mut u64, left: u64) -> u64 {
        let done = left.min(self.piece);
        *clock += done;
        done
    }

    fn push(&mut self, time: u64, who: usize, what: What, number: u64) {
        self.horizon = self.horizon.min((time, who));
        self.events.push(Reverse(Event { time, who, what, number }));
    }

    /// Returns the time of the first event other than those of `turns`, and the number that breaks ties.
    fn earliest_event(&self) -> (u64, usize) {
        self.events.peek().map_or((Turns::NEVER, 0), |Reverse(event)| (event.time, event.who))
    }

    /// Lets the thread of this processor go on at `clock`.
    fn continue_at(&mut self, cpu: usize, clock: u64) {
        let at = &mut self.cpus[cpu];
        at.clock = clock;
        at.turn += 1;
        self.turns.set(cpu, clock);
        self.horizon = self.horizon.min((clock, cpu));
    }

    /// Gives the processor to the thread from now on.
    fn begin(&mut self, cpu: usize, thread: ThreadId, clock: u64) {
        self.home[thread] = cpu;
        let at = &mut self.cpus[cpu];
        at.current = Some(thread);
        at.slice_begin = clock;
        at.slice_end = clock + self.quantum;
        at.extended = false;
        self.continue_at(cpu, clock);
    }

    /// Lets this processor, which has no thread, take the next thread, if there is one.
    fn dispatch(&mut self, cpu: usize, clock: u64) {
        self.cpus[cpu].current = None;
        self.cpus[cpu].clock = clock;
        self.cpus[cpu].turn += 1;
        let own = self.cpus[cpu].queue.pop_front();
        let next = own.or_else(|| {
            let core = self.preset.core(cpu);
            let far = |other: usize| self.preset.socket(self.preset.core(other)) != self.preset.socket(core);
            let victim = (0..self.cpus.len())
                .filter(|&other| !self.cpus[other].queue.is_empty())
                .min_by_key(|&other| (Reverse(self.cpus[other].queue.len()), far(other), other))?;
            self.cpus[victim].queue.pop_front()
        });
        if let Some(thread) = next {
            self.begin(cpu, thread, clock + self.switch);
        }
    }

    pub(crate) fn make_ready(&mut self, preset: &Preset, thread: ThreadId, now: u64) {
        if thread >= self.home.len() {
            // Place a new thread: first a thread on each core, socket by socket, then on the other hyperthreads.
            let (cpus, each) = (self.cpus.len(), preset.threads_per_core);
            let cores = cpus.div_ceil(each);
            let place = (self.first + thread) % cpus;
            let cpu = place % cores * each + place / cores;
            self.home.resize(thread + 1, if cpu < cpus { cpu } else { place });
        }
        let home = self.home[thread];
        let socket = |cpu: usize| preset.socket(preset.core(cpu));
        let idle = (0..self.cpus.len())
            .filter(|&cpu| self.cpus[cpu].current.is_none())
            .min_by_key(|&cpu| (cpu != home, socket(cpu) != socket(home), cpu));
        if let Some(cpu) = idle {
            let clock = self.cpus[cpu].clock.max(now) + self.idle_exit;
            return self.begin(cpu, thread, clock);
        }
        let shortest = (0..self.cpus.len())
            .min_by_key(|&cpu| (self.cpus[cpu].queue.len(), cpu != home, cpu))
            .expect("there is a processor");
        self.home[thread] = shortest;
        let at = &mut self.cpus[shortest];
        at.queue.push_back(thread);
        // The new thread takes the processor from a thread that has had its granule.
        at.slice_end = at.slice_end.min(now.max(at.slice_begin + self.granule));
        let (end, turn) = (at.slice_end, at.turn);
        if shortest == self.cpu {
            self.horizon = self.horizon.min((end, shortest));
        }
        self.push(end.max(now), shortest, What::Slice, turn);
    }

    pub(crate) fn set_timer(&mut self, at: u64, thread: ThreadId, sleep: u64) {
        let who = self.cpus.len() + thread;
        self.push(at, who, What::Timer, sleep);
    }

    /// Records that the running thread spins on these lines, from the end of this turn on.
    pub(crate) fn spin(&mut self, lines: &[u32], thread: ThreadId, period: u64, clock: u64) {
        let cpu = self.cpu;
        self.cpus[cpu].clock = clock;
        let spinner = Spinner { thread, cpu, turn: self.cpus[cpu].turn + 1, period };
        for line in lines {
            self.spinners.entry(*line).or_default().push(spinner);
        }
    }

    /// Wakes the threads that spin on a line, as the line changes now. Each reads the line at the time of its next
    /// read.
    pub(crate) fn wake_spinners(&mut self, line: u32, now: u64) -> Vec<ThreadId> {
        if self.spinners.is_empty() {
            return Vec::new();
        }
        let mut spinners = self.spinners.remove(&line).unwrap_or_default();
        spinners.retain(|spinner| self.cpus[spinner.cpu].turn == spinner.turn);
        spinners
            .iter()
            .map(|spinner| {
                let clock = self.cpus[spinner.cpu].clock;
                let rounds = now.saturating_sub(clock).div_ceil(spinner.period);
                self.continue_at(spinner.cpu, clock + rounds * spinner.period);
                spinner.thread
            })
            .collect()
    }

    /// Ends the extension of the running thread's slice. Returns whether there was an extension.
    pub(crate) fn end_extension(&mut self) -> bool {
        std::mem::take(&mut self.cpus[self.cpu].extended)
    }

    /// Extends the slice of this processor's thread, from now on. Returns the new end.
    fn extend_slice(&mut self, cpu: usize, now: u64) -> u64 {
        let at = &mut self.cpus[cpu];
        at.extended = true;
        at.slice_end = now + self.preset.cycles(EXTENSION);
        at.slice_end
    }

    pub(crate) fn give_way(&mut self) -> bool {
        self.gives_way = !self.cpus[self.cpu].queue.is_empty();
        self.gives_way
    }
}

/// The time at which each processor goes on, and the first processor: a tree of winners, as this choice takes most of
/// the time of a simulation.
struct Turns {
    times: Vec<u64>,
    /// The winner of each pair: the processor that goes on first. The pairs are ordered from the root, 1, down to the
    /// processors; of a tie, the lower number wins.
    winners: Vec<u8>,
}

impl Turns {
    /// The time of a processor that goes on only after another event.
    const NEVER: u64 = u64::MAX;

    fn new(processors: usize) -> Self {
        let leaves = processors.next_power_of_two();
        let mut winners = vec![0; 2 * leaves];
        for node in (1..2 * leaves).rev() {
            winners[node] = if node >= leaves { (node - leaves) as u8 } else { winners[2 * node] };
        }
        Self { times: vec![Self::NEVER; leaves], winners }
    }

    fn set(&mut self, processor: usize, time: u64) {
        self.times[processor] = time;
        let mut node = (self.times.len() + processor) / 2;
        while node > 0 {
            let [left, right] = [self.winners[2 * node], self.winners[2 * node + 1]];
            let left_first = self.times[usize::from(left)] <= self.times[usize::from(right)];
            self.winners[node] = if left_first { left } else { right };
            node /= 2;
        }
    }

    /// Returns the time at which the first processor goes on, and that processor.
    fn first(&self) -> (u64, usize) {
        let first = usize::from(self.winners[1]);
        (self.times[first], first)
    }
}

/// Returns the thread that goes on, and sets its processor and the clock. Returns None if no event will ever happen, or
/// if the time is up.
pub(crate) fn next(machine: &mut Machine) -> Option<ThreadId> {
    loop {
        let Mode::Timed(timed) = &mut machine.mode else { unreachable!("schedules are not explored") };
        let (time, cpu) = timed.turns.first();
        let other = timed.earliest_event();
        if time != Turns::NEVER && (time, cpu) <= other {
            timed.turns.set(cpu, Turns::NEVER);
            let at = &timed.cpus[cpu];
            let end = if at.queue.is_empty() { (Turns::NEVER, 0) } else { (at.slice_end, cpu) };
            timed.cpu = cpu;
            timed.horizon = end.min(other).min(timed.turns.first());
            machine.clock = time;
            return at.current;
        }
        let Reverse(Event { time, who, what, number }) = timed.events.pop()?;
        let cpu = who;
        match what {
            What::Slice if timed.cpus[cpu].turn == number => {
                // A thread that is not suspended by spinning checks the end of its slice itself.
                let Some(thread) = timed.cpus[cpu].current else { continue };
                let spinner = &mut machine.threads[thread];
                if spinner.state != State::Spins || timed.cpus[cpu].queue.is_empty() {
                    continue;
                }
                if std::mem::take(&mut spinner.requests_extension) {
                    let end = timed.extend_slice(cpu, time);
                    timed.push(end, cpu, What::Slice, number);
                } else {
                    spinner.state = State::Ready;
                    timed.cpus[cpu].queue.push_back(thread);
                    timed.dispatch(cpu, time);
                }
            }
            What::Timer => {
                let thread = cpu - timed.cpus.len();
                let sleeper = &machine.threads[thread];
                if sleeper.sleep == number && matches!(sleeper.state, State::Waits(_) | State::Sleeps) {
                    machine.clock = time;
                    machine.time_is_up(thread);
                }
            }
            What::Slice => {}
        }
        if machine.clock > machine.limit {
            return None;
        }
    }
}

/// Records that the running thread is suspended, or has ended.
pub(crate) fn suspended(machine: &mut Machine) {
    let (id, clock) = (machine.current, machine.clock);
    let state = machine.threads[id].state;
    let Mode::Timed(timed) = &mut machine.mode else { unreachable!("schedules are not explored") };
    let cpu = timed.cpu;
    let gives_way = std::mem::take(&mut timed.gives_way);
    match state {
        State::Ready => {
            let at = &timed.cpus[cpu];
            let (waiting, is_over) = (!at.queue.is_empty(), clock >= at.slice_end);
            if waiting && is_over && !gives_way && std::mem::take(&mut machine.threads[id].requests_extension) {
                timed.extend_slice(cpu, clock);
                timed.continue_at(cpu, clock);
            } else if waiting && (gives_way || is_over) {
                timed.cpus[cpu].queue.push_back(id);
                timed.dispatch(cpu, clock);
            } else {
                if is_over {
                    timed.cpus[cpu].slice_begin = clock;
                    timed.cpus[cpu].slice_end = clock + timed.quantum;
                }
                timed.continue_at(cpu, clock);
            }
        }
        State::Spins => {
            timed.cpus[cpu].turn += 1;
            let at = &timed.cpus[cpu];
            if !at.queue.is_empty() {
                let (end, turn) = (at.slice_end.max(clock), at.turn);
                timed.push(end, cpu, What::Slice, turn);
            }
        }
        State::Waits(_) | State::Sleeps | State::Done => timed.dispatch(cpu, clock),
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn the_first_turn_is_that_of_the_least_time_and_number() {
        for processors in [1, 2, 3, 36, 72, 128] {
            let (mut turns, mut times) = (Turns::new(processors), vec![Turns::NEVER; processors]);
            assert_eq!(turns.first(), (Turns::NEVER, 0), "none goes on");
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..4000 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let processor = (random >> 33) as usize % processors;
                // Use few different times, so that many are equal; a fourth of them is NEVER.
                let time = Some((random >> 20) % 8).filter(|time| *time < 6).unwrap_or(Turns::NEVER);
                turns.set(processor, time);
                times[processor] = time;
                let first = times.iter().copied().zip(0..).min().expect("there is a processor");
                assert_eq!(turns.first(), first, "{times:?}");
            }
        }
    }
}
