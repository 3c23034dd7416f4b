//! The queue and the doorways are compared with a model, one step after another: the permits of each waiter, with
//! waiters that give up.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::ticket_queue::Outcome;
use super::super::{CountedDoorway, GrantWait};
use super::sealed::Sealed;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Enter(u32),
    TryEnter(u32),
    Post(u32),
    /// A waiter gives up.
    Leave(prop::sample::Index),
    /// The waiters that have all their permits leave the model's queue.
    Go,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4u32).prop_map(Step::Enter),
        1 => (1..4u32).prop_map(Step::TryEnter),
        3 => (1..5u32).prop_map(Step::Post),
        4 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => Just(Step::Go),
        1 => Just(Step::Move),
    ]
}

/// A model in which permits go to the first waiter until that waiter has all permits that it wants.
#[derive(Default)]
struct Model {
    permits: u64,
    queue: Vec<Waiter>,
}

struct Waiter {
    first: u64,
    wants: u32,
    has: u32,
}

impl Model {
    fn post(&mut self, n: u64) {
        self.permits += n;
        for waiter in &mut self.queue {
            let more = self.permits.min(u64::from(waiter.wants - waiter.has));
            waiter.has += more as u32;
            self.permits -= more;
        }
    }
}

/// The first tickets of the tests: near the numbers where tickets wrap, and where tickets change their sign.
const BEGINNINGS: [u64; 4] = [0, (1 << 62) - 9, (1 << 61) - 9, (1 << 60) - 9];

fn agrees<D: Doorway + Sealed>(begin: usize, permits: u32, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut sema = Box::new(TicketSema::<GrantWait, D>::new(permits));
    sema.queue.begin_at(BEGINNINGS[begin]);
    let mut model = Model { permits: permits.into(), queue: Vec::new() };
    for step in steps {
        match step {
            Step::Enter(n) => match sema.doorway.enter(&sema.queue, n) {
                None => {
                    prop_assert!(model.permits >= n.into());
                    model.permits -= u64::from(n);
                }
                Some(first) => {
                    prop_assert!(model.permits < n.into());
                    model.queue.push(Waiter { first, wants: n, has: 0 });
                    model.post(0);
                }
            },
            Step::TryEnter(n) => {
                let got = sema.try_acquire_many(n);
                prop_assert_eq!(got, model.permits >= n.into());
                model.permits -= if got { n.into() } else { 0 };
            }
            Step::Post(n) => {
                sema.post(n);
                model.post(n.into());
            }
            Step::Leave(who) if !model.queue.is_empty() => {
                let Waiter { first, wants, has } = model.queue.remove(who.index(model.queue.len()));
                let outcome = sema.queue.leave(first, wants, &|n| sema.post(n as u32));
                prop_assert_eq!(outcome == Outcome::Granted, has == wants);
                if outcome == Outcome::Granted {
                    sema.post(wants);
                }
                model.post(has.into());
            }
            Step::Go => model.queue.retain(|waiter| waiter.has < waiter.wants),
            Step::Move => {
                let elsewhere = Box::new(std::mem::take(&mut *sema));
                sema = elsewhere;
            }
            Step::Leave(_) => {}
        }
        for waiter in &model.queue {
            prop_assert_eq!(sema.queue.are_granted(waiter.first, waiter.wants), waiter.has == waiter.wants);
        }
        prop_assert_eq!(sema.available(), model.permits);
        let wanted: u32 = model.queue.iter().map(|waiter| waiter.wants - waiter.has).sum();
        prop_assert_eq!(sema.wanted(), u64::from(wanted));
        let gaps = sema.queue.gaps();
        let queue_len = sema.queue.turn(0, 1).queue_len();
        let len_of_gaps = queue_len - u64::from(wanted);
        prop_assert_eq!(gaps > 0, len_of_gaps > 0);
        let waiting = model.queue.iter().filter(|waiter| waiter.has < waiter.wants).count();
        prop_assert!(gaps <= waiting + 1, "{} notes of those who left, for {} who wait", gaps, waiting);
    }
    Ok(())
}

proptest! {
    #[test]
    fn tickets_agree_with_the_model(begin in 0..4usize, permits in 0..4u32, steps in vec(step(), 1..60)) {
        agrees::<Tickets>(begin, permits, steps)?;
    }

    #[test]
    fn the_split_doorway_agrees_with_the_model(begin in 0..4usize, permits in 0..4u32, steps in vec(step(), 1..60)) {
        agrees::<CountedDoorway>(begin, permits, steps)?;
    }
}
