//! Wake-ups from other threads: a stack onto which many threads push, and whose links one thread takes all at once.
//!
//! ```text
//!  top ──▶ third ──▶ second ──▶ first ──▶ null        take_all: swaps null in, turns the list round
//! ```
//!
//! The links are in the pushed items, so a push allocates nothing. No thread takes a single link off, so the ABA
//! problem does no harm: if the top is taken and pushed again between a pusher's load and compare-exchange, the same
//! link is on top again, and the pusher's link points to that link.
//!
//! *No wake-up is lost*, if the taker also sleeps. The steps are a Dekker pair with a full fence on each side; both
//! fences are in `idle.rs`:
//!
//! | pusher | sleeper |
//! |---|---|
//! | P1: `push`: an RMW of the top | S1: notes that the sleeper sleeps |
//! | P2: a full fence, then looks whether the sleeper sleeps: `Idle::wake` | S2: a full fence: `Idle::prepare`; then `is_empty` |
//!
//! If S2 does not see P1, the sleeper's fence is before the pusher's in the order of all sequentially consistent
//! operations, so P2 sees S1. The accesses themselves may have any ordering.

use std::ptr::{self, NonNull};

use crate::shim::{AtomicPtr, Cell, Ordering, mark};

/// A link of the list in an inbox, part of the pushed item.
pub(crate) struct Link {
    /// The next link. Used by the pusher before the push, and by the drainer after the push.
    next: Cell<*mut Link>,
}

/// The stack of pushed links: see the top of this file.
pub(crate) struct Inbox {
    top: AtomicPtr<Link>,
}

/// The right to push a link, and to use the link until then. There is one for each link that is in no inbox.
///
/// Made by [`Free::new`], and taken away by [`Inbox::push`] and [`Chain::add`]. A [`Drain`] gives the link itself back.
#[must_use = "the item is lost"]
pub(crate) struct Free(NonNull<Link>);

impl Free {
    /// Creates the right to push a link.
    ///
    /// # Safety
    ///
    /// - The link is alive until a [`Drain`] has given it back.
    /// - From this call until then, no other thread touches the link, and no other `Free` of the link exists. The caller
    ///   has lost the link as soon as a push of the new value has begun: the link may be drained, and the item that it is
    ///   in run, moved on or freed, before the push returns.
    #[inline]
    pub(crate) unsafe fn new(link: NonNull<Link>) -> Self {
        Self(link)
    }

    #[inline]
    fn next(&self) -> &Cell<*mut Link> {
        // SAFETY: the link is alive, and this value's alone, by the contract of `new`.
        unsafe { &self.0.as_ref().next }
    }
}

/// A stack of links that one pusher pushes at once. Owns each of its links, as a [`Free`] does.
pub(crate) struct Chain {
    top: *mut Link,
    /// The lowest link, if `top` is not null. Its field `next` has no meaning before the push.
    bottom: NonNull<Link>,
}

impl Chain {
    pub(crate) const fn new() -> Self {
        Self { top: ptr::null_mut(), bottom: NonNull::dangling() }
    }

    /// Puts a link on top.
    pub(crate) fn add(&mut self, link: Free) {
        if self.top.is_null() {
            self.bottom = link.0;
        } else {
            link.next().set(self.top);
        }
        self.top = link.0.as_ptr();
    }

    /// Takes all links out, from the highest to the lowest. Returns `None` if there are none.
    #[inline]
    fn take(&mut self) -> Option<(NonNull<Link>, Free)> {
        let highest = NonNull::new(std::mem::replace(&mut self.top, ptr::null_mut()))?;
        // The chain has given up its links, so this is the only `Free` of the lowest link.
        Some((highest, Free(self.bottom)))
    }
}

impl Link {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        Self { next: Cell::new(ptr::null_mut()) }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        Self { next: Cell::new(ptr::null_mut()) }
    }
}

impl Inbox {
    #[cfg(not(sudog_loom))]
    pub(crate) const fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()) }
    }

    #[cfg(sudog_loom)]
    pub(crate) fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Puts a link in. The drainer sees the writes that the caller made before this call.
    #[inline]
    pub(crate) fn push(&self, link: Free) {
        self.push_between(link.0, link);
    }

    /// Puts the links of a chain in, in one step, and empties the chain. Does nothing if the chain is empty.
    pub(crate) fn push_all(&self, chain: &mut Chain) {
        if let Some((highest, lowest)) = chain.take() {
            self.push_between(highest, lowest);
        }
    }

    /// Pushes a chain of links, from `lowest` to `highest`, as one push. The chain has given these links up.
    #[inline]
    fn push_between(&self, highest: NonNull<Link>, lowest: Free) {
        let highest = highest.as_ptr();
        let mut top = self.guess_top();
        loop {
            // `lowest` is this call's alone until the compare-exchange below succeeds.
            lowest.next().set(top);
            // Release, for the drainer. The drainer sees the links further down too: every change of the top is an RMW,
            // so the pushes before this push head release sequences that this push continues.
            match self.top.compare_exchange_weak(top, highest, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => {
                    mark("a pusher finds another top");
                    top = now;
                }
            }
        }
    }

    /// Returns a guess at the top, which need not be right. Relaxed: no thread looks into the link because of a guess.
    ///
    /// In a model the guess is null, without a load: loom remembers only the last access to an atomic, and with a load
    /// here would leave out some interleavings of the other accesses.
    #[inline]
    fn guess_top(&self) -> *mut Link {
        if cfg!(sudog_loom) { ptr::null_mut() } else { self.top.load(Ordering::Relaxed) }
    }

    /// Takes all links out, in the order in which they were pushed. Links that are not taken from the [`Drain`] are
    /// lost.
    ///
    /// Not for the look before sleeping, which is [`is_empty`](Self::is_empty).
    #[inline]
    pub(crate) fn take_all(&self) -> Drain {
        // As a rule the inbox is empty: then do not write to the cache line to which the pushers write.
        if !cfg!(sudog_loom) && self.guess_top().is_null() {
            return Drain { first: ptr::null_mut() };
        }
        Drain::of_stack(self.top.swap(ptr::null_mut(), Ordering::Acquire))
    }

    /// Returns whether the inbox was empty: the look in S2 of the Dekker pair, after the sleeper's fence. A Relaxed
    /// load is enough: a worker that sees links takes the links by `take_all`, which has the Acquire.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed).is_null()
    }
}

/// The links that were in an inbox, as an iterator. Each link that was pushed and not yet given back is alive, and a drain
/// owns its links since the swap of the top. The caller owns each link that the iterator returns.
#[must_use = "the links of a drain are in the inbox no more"]
pub(crate) struct Drain {
    first: *mut Link,
}

impl Drain {
    fn of_stack(mut top: *mut Link) -> Self {
        let mut first = ptr::null_mut();
        while let Some(link) = NonNull::new(top).map(Free) {
            let below = link.next().replace(first);
            first = top;
            top = below;
        }
        Self { first }
    }
}

impl Iterator for Drain {
    type Item = *mut Link;

    #[inline]
    fn next(&mut self) -> Option<*mut Link> {
        let link = NonNull::new(self.first).map(Free)?;
        // Read `next` before the caller gets the link, as the caller may push the link again.
        self.first = link.next().get();
        Some(link.0.as_ptr())
    }
}

#[cfg(all(test, not(sudog_loom)))]
mod tests {
    use super::*;

    /// Links that stay alive, and the knowledge which of them an inbox or a chain has.
    struct Links<const N: usize> {
        links: &'static [(Link, Cell<bool>); N],
    }

    impl<const N: usize> Links<N> {
        fn new() -> Self {
            Self { links: Box::leak(Box::new(std::array::from_fn(|_| (Link::new(), Cell::new(false))))) }
        }

        /// Hands a link out, to be pushed.
        fn take(&self, n: usize) -> Free {
            assert!(!self.links[n].1.replace(true), "link {n} is pushed already");
            // SAFETY: the link is alive for ever, and in no inbox and no chain, by the assertion above.
            unsafe { Free::new(NonNull::from(&self.links[n].0)) }
        }

        fn push(&self, inbox: &Inbox, n: usize) {
            inbox.push(self.take(n));
        }

        fn add(&self, chain: &mut Chain, n: usize) {
            chain.add(self.take(n));
        }

        /// Returns the number of a link that an inbox has given back.
        fn number(&self, link: *mut Link) -> usize {
            let n = self.links.iter().position(|(of, _)| ptr::eq(of, link)).expect("one of these links");
            assert!(self.links[n].1.replace(false));
            n
        }

        fn drain(&self, inbox: &Inbox) -> Vec<usize> {
            inbox.take_all().map(|link| self.number(link)).collect()
        }
    }

    #[test]
    fn first_in_first_out() {
        let (inbox, links) = (Inbox::new(), Links::<5>::new());
        for _ in 0..2 {
            assert!(inbox.is_empty() && inbox.take_all().next().is_none());
            for n in 0..5 {
                links.push(&inbox, n);
                assert!(!inbox.is_empty());
            }
            assert_eq!(links.drain(&inbox), [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn a_chain_is_drained_in_the_order_of_its_making() {
        let (inbox, links) = (Inbox::new(), Links::<6>::new());
        let mut chain = Chain::new();
        inbox.push_all(&mut chain);
        assert!(inbox.is_empty());
        for len in 1..=4 {
            links.push(&inbox, 0);
            (1..=len).for_each(|n| links.add(&mut chain, n));
            inbox.push_all(&mut chain);
            inbox.push_all(&mut chain); // the chain is empty
            links.push(&inbox, 5);
            assert!(links.drain(&inbox).into_iter().eq((0..=len).chain([5])));
        }
    }

    #[test]
    fn a_link_may_be_pushed_again_while_the_rest_is_drained() {
        let (inbox, links) = (Inbox::new(), Links::<3>::new());
        (0..3).for_each(|n| links.push(&inbox, n));
        let mut seen = Vec::new();
        for link in inbox.take_all() {
            let n = links.number(link);
            seen.push(n);
            links.push(&inbox, n);
        }
        assert_eq!(seen, [0, 1, 2]);
        assert_eq!(links.drain(&inbox), [0, 1, 2]);
    }
}

/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-runtime --lib inbox`
#[cfg(all(test, sudog_loom))]
mod models {
    use super::*;
    use crate::goroutine::protocol::idle::{Idle, Sleeper, Woken};
    use crate::model::thread;
    use crate::shim::model::each_site;
    use crate::shim::reached::{SLEEPS, must_reach, times};
    use loom::sync::Arc;

    #[repr(C)]
    struct Letter {
        link: Link,
        text: Cell<usize>,
    }

    struct World {
        inbox: Inbox,
        letters: [Letter; 4],
    }

    impl World {
        fn new() -> Arc<Self> {
            let letters = std::array::from_fn(|_| Letter { link: Link::new(), text: Cell::new(0) });
            Arc::new(Self { inbox: Inbox::new(), letters })
        }

        /// Writes a letter. Each letter is sent by one thread.
        fn write(&self, n: usize) -> Free {
            self.letters[n].text.set(n * n);
            // SAFETY: the letter is alive as long as the world is, and in no inbox.
            unsafe { Free::new(NonNull::from(&self.letters[n]).cast()) }
        }

        fn send(&self, n: usize) {
            self.inbox.push(self.write(n));
        }

        fn read(&self, link: *mut Link) -> usize {
            let n = self.letters.iter().position(|letter| ptr::eq(&letter.link, link)).expect("one of ours");
            assert_eq!(self.letters[n].text.get(), n * n);
            n
        }

        fn receive(&self) -> Vec<usize> {
            self.inbox.take_all().map(|link| self.read(link)).collect()
        }
    }

    /// Runs the model in every interleaving; among these must be some that reach the states.
    fn explore(states: &[&'static str], model: impl Fn(Arc<World>) + Sync + Send + 'static) {
        must_reach(states, || crate::model::explore_all(move || model(World::new())));
    }

    const PUSHES_AGAIN: &str = "a pusher finds another top";

    fn spawn<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
        let world = world.clone();
        thread::spawn(move || f(&world))
    }

    #[test]
    fn nothing_is_lost_and_each_pusher_is_served_in_order() {
        const NOTHING: &str = "the first look finds nothing";
        const ALL: &str = "the first look finds all";
        const TORN: &str = "the first look comes between the two links of both pushers";
        const IN_TURN: &str = "the links of two pushers alternate";
        explore(&[NOTHING, ALL, TORN, IN_TURN, PUSHES_AGAIN], |world| {
            let pushers = [0, 2].map(|n| {
                spawn(&world, move |w| {
                    w.send(n);
                    w.send(n + 1);
                })
            });
            let mut got = world.receive();
            match got[..] {
                [] => mark(NOTHING),
                [_, _, _, _] => mark(ALL),
                [0, 2] | [2, 0] => mark(TORN),
                _ => {}
            }
            got.extend(world.receive());
            for pusher in pushers {
                pusher.join().unwrap();
            }
            got.extend(world.receive());
            assert!(world.inbox.is_empty());
            let place = |n| got.iter().position(|&m| m == n).expect("lost");
            assert!(got.len() == 4 && place(0) < place(1) && place(2) < place(3), "{got:?}");
            if matches!(got[..], [0, 2, 1, 3] | [2, 0, 3, 1]) {
                mark(IN_TURN);
            }
        });
    }

    #[test]
    fn a_chain_comes_whole() {
        const NOTHING: &str = "the first look finds nothing";
        const CHAIN: &str = "the first look finds the chain alone";
        const ABOVE: &str = "the chain comes to stand on another link";
        explore(&[NOTHING, CHAIN, ABOVE, PUSHES_AGAIN], |world| {
            let of_chain = spawn(&world, |w| {
                let mut chain = Chain::new();
                [0, 1].into_iter().for_each(|n| chain.add(w.write(n)));
                w.inbox.push_all(&mut chain);
            });
            let of_one = spawn(&world, |w| w.send(2));
            let mut got = world.receive();
            match got[..] {
                [] => mark(NOTHING),
                [0, 1] => mark(CHAIN),
                [2, 0, 1] => mark(ABOVE),
                _ => {}
            }
            of_chain.join().unwrap();
            of_one.join().unwrap();
            got.extend(world.receive());
            assert!(got == [0, 1, 2] || got == [2, 0, 1], "{got:?}");
        });
    }

    /// The drainer takes a link, and sends the link again. A pusher that saw this link on top before sees the same link
    /// on top again.
    #[test]
    fn a_link_that_comes_back_deceives_no_pusher() {
        const BEFORE: &str = "the pusher is through before the first look";
        const DECEIVED: &str =
            "the pusher has seen the link on top before it was taken, and pushes when it has come back";
        explore(&[BEFORE, DECEIVED], |world| {
            world.send(0);
            let before = times(PUSHES_AGAIN);
            let pusher = spawn(&world, |w| w.send(1));
            let mut got = world.receive();
            // In a model, a pusher looks by a compare-exchange that fails.
            let looked = times(PUSHES_AGAIN) > before;
            if got == [0, 1] {
                mark(BEFORE);
            }
            assert!(got == [0] || got == [0, 1], "{got:?}");
            let came_back = {
                world.send(2);
                world.send(0);
                times(PUSHES_AGAIN)
            };
            pusher.join().unwrap();
            got.extend(world.receive());
            if looked && got == [0, 2, 0, 1] && times(PUSHES_AGAIN) == came_back {
                mark(DECEIVED);
            }
            got.sort_unstable();
            assert_eq!(got, [0, 0, 1, 2]);
        });
    }

    const SEEN: &str = "the sleeper sees what was pushed";

    /// Tests that a pusher sees that the sleeper is asleep, or the sleeper sees the pushed link. A wake-up that is lost
    /// is a deadlock.
    #[test]
    fn the_pusher_sees_the_sleeper_or_is_seen() {
        let test = concat!(module_path!(), "::the_pusher_sees_the_sleeper_or_is_seen");
        each_site(test, &["idle.rs, list: fence", "idle.rs, wake: fence"], &[], || {
            explore(&[SLEEPS, SEEN], |world| {
                let (idle, sleeper) = (Arc::new(Idle::new()), Arc::new(Sleeper::new()));
                idle.join();
                let pusher = {
                    let (idle, sleeper) = (idle.clone(), sleeper.clone());
                    spawn(&world, move |w| {
                        w.send(0);
                        idle.wake(&sleeper);
                    })
                };
                while world.receive().is_empty() {
                    idle.prepare(&sleeper, false, true, false);
                    if world.inbox.is_empty() {
                        idle.sleep(&sleeper, None);
                    } else {
                        mark(SEEN);
                        idle.abort(&sleeper, false);
                    }
                }
                pusher.join().unwrap();
            });
        });
    }

    /// The same for work that any worker can do.
    #[test]
    fn the_pusher_sees_any_sleeper_or_is_seen() {
        let test = concat!(module_path!(), "::the_pusher_sees_any_sleeper_or_is_seen");
        each_site(test, &["idle.rs, list: fence", "idle.rs, wake_one: fence"], &[], || {
            explore(&[SLEEPS, SEEN], |world| {
                let idle = Arc::new(Idle::new());
                idle.join();
                let pusher = {
                    let idle = idle.clone();
                    spawn(&world, move |w| {
                        w.send(0);
                        idle.wake_any();
                    })
                };
                let sleeper = Sleeper::new();
                let mut searching = false;
                while world.receive().is_empty() {
                    idle.prepare(&sleeper, false, true, searching);
                    let woken = if world.inbox.is_empty() {
                        idle.sleep(&sleeper, None)
                    } else {
                        mark(SEEN);
                        idle.abort(&sleeper, searching)
                    };
                    searching = woken == Woken::ToSearch;
                }
                pusher.join().unwrap();
            });
        });
    }
}
