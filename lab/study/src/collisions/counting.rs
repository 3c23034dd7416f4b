//! Futile wake-ups, counted from outside: by the policy, which a waiter calls anew each time that the waiter begins to
//! wait.

use std::cell::Cell;
use std::marker::PhantomData;

use sudog_locks::waiting_array::WaitPolicy;
use sudog_runtime::shim::system;

system::thread_local! {
    static WAITS_BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of waits that this thread has begun.
#[inline]
pub fn waits_begun() -> u64 {
    WAITS_BEGUN.get()
}

/// A policy that behaves as `P`, and counts the waits that each thread begins.
///
/// A waiter that is near its turn looks at the grant. (The first waiter in the queue is near, if `NEAR` is at least 1.)
/// If its turn has not come, the waiter asks its policy, with `iter` 0, for how long to look, and then waits by its
/// protocol. When that wait ends, the waiter looks again: it asks with `iter` 0 again if its turn has still not come,
/// and does not ask at all if the turn has come. So for a waiter that is the first in the queue all along, *waits
/// begun, minus 1, are the futile wake-ups*.
///
/// | protocol | other reasons to get up, besides a wake of the waiter's bucket |
/// |---|---|
/// | chains, channels | none |
/// | locations | none; the waiter begins two waits each time, as the first only enlists the waiter |
/// | buckets | the bucket's word has changed before the waiter sleeps: its sequence, or the bit of the first sleeper there; or four seconds have passed |
///
/// Waiters behind the first do not ask, so they are not counted; nor are goroutines, which share a thread.
pub struct Counting<P>(PhantomData<P>);

impl<P: WaitPolicy> WaitPolicy for Counting<P> {
    const PARKS: bool = P::PARKS;

    #[inline]
    fn pass_time(iter: u32) -> bool {
        if iter == 0 {
            WAITS_BEGUN.set(WAITS_BEGUN.get() + 1);
        }
        P::pass_time(iter)
    }
}

/// A policy that sleeps at once. With two processors for each pair, a contender that looks again before it sleeps finds
/// its turn, and does not sleep; but only sleepers collide.
pub struct AtOnce;

impl WaitPolicy for AtOnce {
    const PARKS: bool = true;

    #[inline]
    fn pass_time(_: u32) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use sudog_locks::waiting_array::Benaphore;
    use sudog_locks::waiting_array::{BucketWait, ChainWait, ChannelWait, LocationWait, MixedHash, TicketWait};

    use super::*;

    /// A policy that sleeps at once, and counts the calls.
    struct Telling<const N: usize>;

    static TOLD: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

    impl<const N: usize> WaitPolicy for Telling<N> {
        const PARKS: bool = true;

        fn pass_time(_: u32) -> bool {
            TOLD[N].fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    /// Wakes the waiter of a semaphore in vain, some times, by wakes of all 64 buckets.
    fn in_vain<W: TicketWait, const N: usize>() {
        const TIMES: u32 = 3;
        let sema = Benaphore::<W>::with_permits(0);
        thread::scope(|s| {
            let waiter = s.spawn(|| {
                let before = waits_begun();
                sema.acquire_many(1).unwrap();
                waits_begun() - before
            });
            while TOLD[N].load(Ordering::Relaxed) < 1 + TIMES {
                W::wake(0, 0..64);
                thread::yield_now();
            }
            sema.post(1);
            let begun = waiter.join().unwrap();
            assert!(begun > u64::from(TIMES), "{begun}");
            assert_eq!(begun, u64::from(TOLD[N].load(Ordering::Relaxed)));
        });
    }

    #[test]
    fn each_wake_in_vain_begins_a_wait() {
        in_vain::<ChannelWait<Counting<Telling<2>>, 1, MixedHash<64>>, 2>();
        in_vain::<LocationWait<Counting<Telling<3>>, 1, MixedHash<64>>, 3>();
        in_vain::<ChainWait<Counting<Telling<0>>, 1, MixedHash<64>>, 0>();
        in_vain::<BucketWait<Counting<Telling<1>>, 1, MixedHash<64>>, 1>();
    }

    #[test]
    fn who_does_not_wait_begins_no_wait() {
        let before = waits_begun();
        Benaphore::<ChainWait<Counting<Telling<0>>>>::with_permits(1).acquire_many(1).unwrap();
        assert_eq!(waits_begun(), before);
    }
}
