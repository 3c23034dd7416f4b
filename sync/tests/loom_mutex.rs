//! Models of the mutex under each policy: every interleaving, on loom's memory model, up to a bound of preemptions.
//!
//! `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --test loom_mutex`
//!
//! The clock advances by a fixed step each time that somebody reads it. With no step nobody ever starves; with a step
//! of a threshold everybody does at once. A lost wake-up shows as a deadlock; a lost exclusion as a data race in
//! loom's cell; a stray permit when the semaphore is dropped.
#![cfg(sudog_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use sudog_runtime::Instant;
use sudog_runtime::model::set_clock;
use sudog_sync::mutex::policy::{Go, Policy, Threads};
use sudog_sync::semaphore::RuntimeSema;
use sudog_sync::{GoMutex, Order, RawLock, Semaphore, Wake};

/// The runtime's semaphore, which must be left without a permit; and which may be told to do without handoff or LIFO,
/// as poorer backends do.
struct Checked<const RICH: bool>(RuntimeSema);

// SAFETY: passes every call on.
unsafe impl<const RICH: bool> Semaphore for Checked<RICH> {
    const LIFO: bool = RICH;
    const FIFO: bool = true;
    const HANDOFF: bool = RICH;
    const DEADLINES: bool = true;

    fn new(permits: u32) -> Self {
        Self(RuntimeSema::new(permits))
    }
    fn acquire(&self, order: Order) {
        self.0.acquire(if RICH { order } else { Order::Fifo });
    }
    fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }
    fn acquire_until(&self, order: Order, deadline: Instant) -> bool {
        self.0.acquire_until(if RICH { order } else { Order::Fifo }, deadline)
    }
    fn release(&self, wake: Wake) {
        self.0.release(if RICH { wake } else { Wake::Normal });
    }
}

impl<const RICH: bool> Drop for Checked<RICH> {
    fn drop(&mut self) {
        assert!(thread_panicking() || !self.0.try_acquire(), "a permit was left behind");
    }
}

fn thread_panicking() -> bool {
    std::thread::panicking()
}

struct World<P, const RICH: bool = true> {
    mutex: GoMutex<Checked<RICH>, P>,
    data: UnsafeCell<u32>,
}

impl<P: Policy, const RICH: bool> World<P, RICH> {
    fn touch(&self) {
        // SAFETY: loom's cell checks that accesses do not overlap; that is the test.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    fn turn(&self) {
        self.mutex.lock();
        self.touch();
        self.mutex.unlock();
    }

    /// A turn with a deadline; says whether it came off. The deadline is far by the clock, so that the contender does
    /// not give up before it sleeps; but a sleep with a deadline is always over at once in a model.
    fn hasty_turn(&self) -> u32 {
        self.turn_until(Instant::now() + Duration::from_secs(1))
    }

    /// A turn whose deadline has passed by the time that the contender must wait.
    fn late_turn(&self) -> u32 {
        self.turn_until(Instant::now())
    }

    fn turn_until(&self, deadline: Instant) -> u32 {
        let got = self.mutex.try_lock_until(deadline);
        if got {
            self.touch();
            self.mutex.unlock();
        }
        u32::from(got)
    }

    fn finish(&self, turns: u32) {
        assert!(!self.mutex.is_locked() && !self.mutex.is_starving());
        self.mutex.lock();
        // SAFETY: as above.
        assert_eq!(self.data.with(|data| unsafe { *data }), turns);
        self.mutex.unlock();
        assert!(!self.mutex.is_locked() && !self.mutex.is_starving());
        assert_eq!(self.mutex.waiters(), 0);
    }
}

fn explore<P: Policy, const RICH: bool>(
    preemptions: usize,
    step_us: u64,
    model: impl Fn(Arc<World<P, RICH>>) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        set_clock(step_us * 1000);
        model(Arc::new(World { mutex: RawLock::new(), data: UnsafeCell::new(0) }));
    });
}

fn spawn<P: Policy, const RICH: bool, T: 'static>(
    world: &Arc<World<P, RICH>>,
    f: impl FnOnce(&World<P, RICH>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

fn two_threads<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let other = spawn(&w, |w| {
            w.turn();
            w.turn();
        });
        w.turn();
        w.turn();
        other.join().unwrap();
        w.finish(4);
    });
}

fn three_threads<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let others = [spawn(&w, |w| w.turn()), spawn(&w, |w| w.turn())];
        w.turn();
        for t in others {
            t.join().unwrap();
        }
        w.finish(3);
    });
}

/// One who has the mutex twice, one who does not wait: it may be woken, beaten to the mutex, starve, and then leave.
fn deadline_of_the_starving<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let hasty = spawn(&w, |w| w.hasty_turn());
        w.turn();
        w.turn();
        let turns = 2 + hasty.join().unwrap();
        w.finish(turns);
    });
}

/// Two who wait for ever, one who does not.
fn deadlines<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let patient = spawn(&w, |w| w.turn());
        let hasty = spawn(&w, |w| w.hasty_turn());
        w.turn();
        patient.join().unwrap();
        let turns = 2 + hasty.join().unwrap();
        w.finish(turns);
    });
    explore::<P, RICH>(preemptions, step_us, |w| {
        let patient = spawn(&w, |w| w.turn());
        let late = spawn(&w, |w| w.late_turn());
        w.turn();
        patient.join().unwrap();
        let turns = 2 + late.join().unwrap();
        w.finish(turns);
    });
}

/// Two who do not wait, one who has the mutex: both may leave at once, and the last one must take what is theirs.
fn two_deadlines<P: Policy, const RICH: bool>(preemptions: usize, step_us: u64) {
    explore::<P, RICH>(preemptions, step_us, |w| {
        let hasty = [spawn(&w, |w| w.hasty_turn()), spawn(&w, |w| w.hasty_turn())];
        w.turn();
        let turns = hasty.map(|t| t.join().unwrap()).iter().sum::<u32>();
        w.finish(1 + turns);
    });
}

/// Steps of the clock, in microseconds: nobody starves; everybody does.
const GO: [u64; 2] = [0, 2000];
/// Nobody claims; an heir claims, then tires; an heir tires at once.
const THREADS: [u64; 3] = [0, 50, 150];

#[test]
fn go_two_threads() {
    GO.into_iter().for_each(|step| two_threads::<Go, true>(3, step));
}

#[test]
fn go_three_threads() {
    GO.into_iter().for_each(|step| three_threads::<Go, true>(2, step));
}

#[test]
fn go_over_a_poor_semaphore() {
    GO.into_iter().for_each(|step| three_threads::<Go, false>(2, step));
}

#[test]
fn go_deadlines() {
    GO.into_iter().for_each(|step| deadlines::<Go, true>(2, step));
    GO.into_iter().for_each(|step| two_deadlines::<Go, true>(2, step));
    GO.into_iter().for_each(|step| deadline_of_the_starving::<Go, true>(4, step));
}

#[test]
fn go_deadlines_over_a_poor_semaphore() {
    GO.into_iter().for_each(|step| deadlines::<Go, false>(2, step));
}

#[test]
fn threads_two_threads() {
    THREADS.into_iter().for_each(|step| two_threads::<Threads, true>(3, step));
}

#[test]
fn threads_three_threads() {
    THREADS.into_iter().for_each(|step| three_threads::<Threads, true>(2, step));
}

#[test]
fn threads_over_a_poor_semaphore() {
    THREADS.into_iter().for_each(|step| three_threads::<Threads, false>(2, step));
}

#[test]
fn threads_deadlines() {
    THREADS.into_iter().for_each(|step| deadlines::<Threads, true>(2, step));
    THREADS.into_iter().for_each(|step| two_deadlines::<Threads, true>(2, step));
    THREADS.into_iter().for_each(|step| deadline_of_the_starving::<Threads, true>(4, step));
}

#[test]
fn threads_deadlines_over_a_poor_semaphore() {
    THREADS.into_iter().for_each(|step| deadlines::<Threads, false>(2, step));
}
