//! The capacitor protocols in every state: the exact bound on bypass, no stuck state, a way back to rest from every
//! state.
//!
//! ```text
//! cargo test -p sudog-locks --test capacitor_model
//! cargo stress -p sudog-locks --test capacitor_model -- --ignored --nocapture --test-threads 1
//! ```
//!
//! The second command runs the large sizes, and takes a few minutes. With `--nocapture` each line is a result for
//! the claims in `locks/docs/capacitor.md`: T threads that loop for ever, bound B.
//!
//! The models in `explicit_state/` describe the protocols and the counting (`crowd.rs`). All models assume sequential
//! consistency; orderings are argued, and modelled on loom, where the protocols are implemented.

mod explicit_state;

use std::fmt::Display;

use explicit_state::bounded::{self, Bounded};
use explicit_state::checker::{Kind, Model, explore};
use explicit_state::crowd::Count;
use explicit_state::gate::{self, Gate, Over};
use explicit_state::multilane::{Dealing, Departures, Multilane};
use explicit_state::parking::{self, Parking, Wake};
use explicit_state::plain::Plain;
use explicit_state::platoon::{Form, Platoon};
use explicit_state::sliding::{self, Sliding};

const CAP: usize = 20_000_000;

const PERMITS_LOST: Kind = Kind::Broken("permits are not conserved");

/// Checks that the protocol does not fail, and that its bypass reaches the bound and does not exceed it.
fn exact(name: impl Display, model: &impl Model, bound: usize) {
    let report = explore(model, bound as u32, CAP);
    println!("| {name} | {} | {} |", report.states, report.most);
    assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    assert_eq!(report.most, bound as u32, "{name}: the bound is not reached");
}

/// Checks that the protocol fails in this way.
fn fails(name: impl Display, model: &impl Model, highest: usize, kind: Kind) {
    let failure = explore(model, highest as u32, CAP).failure.unwrap_or_else(|| panic!("{name} does not fail"));
    println!("| {name} | {:?} | {} |", failure.kind, failure.trace.len());
    assert_eq!(failure.kind, kind, "{name}: {failure:?}");
}

/// A limit far above any bound.
fn far(threads: usize, b: u8) -> usize {
    3 * threads * usize::from(b)
}

fn platoon<const N: usize>(b: u8) {
    for form in [Form::Packed, Form::Paper] {
        exact(format!("platoon, {form:?}, T {N}, B {b}"), &Platoon::<N> { b, form }, usize::from(b) - 1);
    }
}

#[test]
fn platoon_passes_b_less_1() {
    (1..=4).for_each(platoon::<2>);
    (1..=4).for_each(platoon::<3>);
    (1..=4).for_each(platoon::<4>);
    (1..=4).for_each(platoon::<5>);
    (1..=4).for_each(platoon::<6>);
}

#[test]
fn platoon_must_reset_before_it_posts() {
    fails("post, then subtract", &Platoon::<2> { b: 2, form: Form::PostFirst }, 1, Kind::Stuck);
    fails("post, then store 0", &Platoon::<2> { b: 2, form: Form::PostThenStore }, 1, PERMITS_LOST);
}

#[test]
fn plain_semaphore_is_no_capacitor() {
    let plain = |window| Plain::<2> { permits: 2, window };
    fails("plain semaphore", &plain(None), far(2, 2), Kind::Unbounded);
    fails("window behind a plain semaphore", &plain(Some(2)), far(2, 2), Kind::Unbounded);
}

fn sliding<const N: usize>(model: &Sliding<N>) {
    let Sliding { b, r, most, tries, deadlines, .. } = *model;
    let name = match (tries, deadlines) {
        (false, false) => "sliding",
        (true, false) => "sliding, try",
        (false, true) => "sliding, deadlines",
        (true, true) => "sliding, try, deadlines",
    };
    let sizes = if deadlines { format!(", {r} bits, T - base <= {most}") } else { String::new() };
    exact(format!("{name}, T {N}, B {b}{sizes}"), model, usize::from(b) - 1);
}

fn with_deadlines<const N: usize>(b: u8, r: u8, most: u8, tries: bool) {
    sliding(&Sliding::<N> { r, most, tries, deadlines: true, ..Sliding::new(b) });
}

#[test]
fn sliding_passes_b_less_1() {
    (1..=4).for_each(|b| sliding(&Sliding::<2>::new(b)));
    (1..=4).for_each(|b| sliding(&Sliding::<3>::new(b)));
    (1..=4).for_each(|b| sliding(&Sliding::<4>::new(b)));
    (1..=4).for_each(|b| sliding(&Sliding::<5>::new(b)));
    (1..=3).for_each(|b| sliding(&Sliding { tries: true, ..Sliding::<2>::new(b) }));
    (1..=3).for_each(|b| sliding(&Sliding { tries: true, ..Sliding::<3>::new(b) }));
    (1..=3).for_each(|b| sliding(&Sliding { tries: true, ..Sliding::<4>::new(b) }));
}

#[test]
fn sliding_with_deadlines_passes_b_less_1() {
    for b in 1..=3 {
        for r in b..=b + 1 {
            with_deadlines::<2>(b, r, 7, true);
            with_deadlines::<3>(b, r, 6, false);
        }
    }
    with_deadlines::<3>(2, 2, 6, true);
    with_deadlines::<3>(2, 3, 6, true);
    with_deadlines::<4>(2, 2, 6, false);
}

/// Each attempt that times out while the lowest ticket stands still costs a place in the list. All these tickets may be
/// in the list, and also the lowest ticket, between a departure and the absorbing that the departure owes.
#[test]
fn sliding_list_is_as_long_as_it_may_be() {
    for most in [4, 8, 12] {
        let model = Sliding { most, deadlines: true, measures_list: true, ..Sliding::<2>::new(2) };
        exact(format!("length of the list, T 2, B 2, 2 bits, T - base <= {most}"), &model, most.into());
    }
}

#[test]
#[ignore = "large"]
fn sliding_large() {
    (1..=4).for_each(|b| sliding(&Sliding::<6>::new(b)));
    (1..=3).for_each(|b| sliding(&Sliding { tries: true, ..Sliding::<5>::new(b) }));
    with_deadlines::<3>(2, 2, 12, true);
    with_deadlines::<3>(3, 3, 12, true);
    with_deadlines::<4>(2, 2, 8, true);
    with_deadlines::<4>(2, 3, 8, true);
    with_deadlines::<4>(3, 3, 8, true);
    with_deadlines::<5>(2, 2, 7, false);
}

#[test]
fn sliding_has_no_step_to_spare() {
    use sliding::Fault;
    let model = |fault| Sliding { most: 6, deadlines: true, fault, ..Sliding::<3>::new(2) };
    fails("a waiter that gives up does not depart", &model(Fault::ForgetsToDepart), 1, PERMITS_LOST);
    fails("the list is never absorbed", &model(Fault::AbsorbsNothing), 1, PERMITS_LOST);
    fails("the flag is set without a look at base", &model(Fault::FlagsBlindly), 1, PERMITS_LOST);
    fails("a push without a look under the lock", &model(Fault::PushesBlindly), 1, PERMITS_LOST);
    let cleared = Kind::Broken("the flag does not say whether the list is empty");
    fails("the flag is cleared too early", &model(Fault::ClearsFlag), 1, cleared);
    let stored = Sliding { fault: Fault::PlainStore, ..Sliding::<2>::new(2) };
    fails("W is written with a store", &stored, 1, Kind::Broken("base moves back"));
    // `T - base` grows with each blind attempt, so no state repeats.
    let blind = Sliding { tries: true, fault: Fault::TriesBlindly, ..Sliding::<2>::new(2) };
    fails("try_arrive without the window's test", &blind, far(2, 2), Kind::Above);
}

fn gates<const N: usize>(b: u8, tries: bool) {
    use gate::Form;
    let bound = usize::from(b) - 1;
    let also = if tries { ", try" } else { "" };
    for over in [Over::Window, Over::Platoon] {
        let gate = |form, count, bound| {
            let name = format!("gate over {over:?}, {form:?}{also}, {count:?}, T {N}, B {b}");
            exact(name, &Gate::<N> { form, count, tries, ..Gate::new(b, over) }, bound);
        };
        gate(Form::Snapshot, Count::Ended, bound);
        gate(Form::Snapshot, Count::Began, bound);
        gate(Form::Snapshot, Count::Holds, bound + N - 1);
        gate(Form::NoLook, Count::Ended, bound);
    }
}

#[test]
fn gate_passes_b_less_1() {
    (1..=3).for_each(|b| gates::<2>(b, true));
    (1..=3).for_each(|b| gates::<3>(b, false));
    (1..=3).for_each(|b| gates::<3>(b, true));
    (2..=3).for_each(|b| gates::<4>(b, false));
}

#[test]
#[ignore = "large"]
fn gate_large() {
    (1..=4).for_each(|b| gates::<4>(b, true));
    (1..=4).for_each(|b| gates::<5>(b, false));
    (2..=3).for_each(|b| gates::<5>(b, true));
}

/// The semaphore behind a capacitor: for permits, whichever thread releases.
fn bounded<const N: usize>(model: &Bounded<N>) {
    let Bounded { b, over, permits, tries, deadlines, .. } = *model;
    let also = format!("{}{}", if tries { ", try" } else { "" }, if deadlines { ", deadlines" } else { "" });
    let name = format!("semaphore of {permits} behind {over:?}{also}, T {N}, B {b}");
    exact(name, model, usize::from(b) - 1);
}

#[test]
fn bounded_semaphore_passes_b_less_1() {
    for over in [Over::Window, Over::Platoon] {
        for permits in 1..=2 {
            (1..=3).for_each(|b| bounded(&Bounded::<2>::new(b, over, permits)));
            (1..=3).for_each(|b| bounded(&Bounded::<3>::new(b, over, permits)));
            (1..=3).for_each(|b| bounded(&Bounded { tries: true, ..Bounded::<3>::new(b, over, permits) }));
        }
        (1..=4).for_each(|b| bounded(&Bounded { tries: true, ..Bounded::<5>::new(b, over, 2) }));
        (1..=3).for_each(|b| {
            bounded(&Bounded { tries: true, deadlines: true, most: 8, ..Bounded::<4>::new(b, over, 2) });
        });
    }
}

#[test]
fn bounded_semaphore_has_no_step_to_spare() {
    use bounded::Fault;
    for over in [Over::Window, Over::Platoon] {
        let model = |fault| Bounded::<3> {
            tries: fault == Fault::TriesPast,
            deadlines: fault == Fault::ForgetsToDepart,
            most: 6,
            fault,
            ..Bounded::new(2, over, 1)
        };
        let row =
            |what, fault, kind| fails(format!("semaphore behind {over:?}: {what}"), &model(fault), far(3, 2), kind);
        row("departs before it has its permit", Fault::DepartsFirst, Kind::Unbounded);
        row("tries past the capacitor", Fault::TriesPast, Kind::Unbounded);
        row("does not depart", Fault::NeverDeparts, PERMITS_LOST);
        row("gives up without departing", Fault::ForgetsToDepart, PERMITS_LOST);
        let wider = Bounded::<3>::new(3, over, 1);
        fails(format!("semaphore behind {over:?}: B is 3, not 2"), &wider, 1, Kind::Above);
    }
}

#[test]
fn bounded_semaphore_is_full_and_held_up() {
    let reached = Kind::Broken("the state is reached");
    for over in [Over::Window, Over::Platoon] {
        let model = |seek| Bounded::<3> { seek: Some(seek), ..Bounded::new(1, over, 2) };
        fails(
            format!("semaphore behind {over:?}: full"),
            &Bounded { permits: 1, ..model(bounded::State::is_full) },
            1,
            reached,
        );
        fails(format!("semaphore behind {over:?}: held up"), &model(bounded::State::is_held_up), 1, reached);
    }
}

fn other_gates<const N: usize>(b: u8) {
    use gate::Form;
    let bound = usize::from(b) - 1;
    for over in [Over::Window, Over::Platoon] {
        let gate = |form, count| Gate::<N> { form, count, ..Gate::new(b, over) };
        let row = |form, count, bound| {
            exact(format!("gate over {over:?}, {form:?}, {count:?}, T {N}, B {b}"), &gate(form, count), bound);
        };
        row(Form::Plain, Count::Ended, bound + N - 1);
        row(Form::CountFirst, Count::Ended, bound + 1);
        row(Form::Plain, Count::Began, bound);
        row(Form::CountFirst, Count::Began, bound);
        for count in [Count::Ended, Count::Began] {
            let name = format!("gate over {over:?} before an inner lock that waits, {count:?}, T {N}, B {b}");
            fails(name, &gate(Form::PlainWaits, count), far(N, b), Kind::Unbounded);
        }
        let unasked = Gate::<N> { form: Form::TriesUnasked, tries: true, count: Count::Holds, ..Gate::new(b, over) };
        fails(
            format!("try_lock over {over:?} without a look, Holds, T {N}, B {b}"),
            &unasked,
            far(N, b),
            Kind::Unbounded,
        );
    }
    let late = Gate::<N> { form: Form::CountsLate, ..Gate::new(b, Over::Platoon) };
    fails(format!("gate over Platoon, A after T, T {N}, B {b}"), &late, far(N, b), Kind::Unbounded);
}

#[test]
fn gate_in_other_forms() {
    (1..=3).for_each(other_gates::<2>);
    (1..=3).for_each(other_gates::<3>);
    other_gates::<4>(2);
}

fn lanes<const N: usize, const L: usize>(b: u8) {
    let bound = L * usize::from(b) - 1;
    let model = |dealing, departures, count| Multilane::<N, L> { b, dealing, departures, count };
    let name = |dealing, departures, count: Count| {
        format!("{L} lanes, by {dealing:?}, {departures:?}, {count:?}, T {N}, B {b}")
    };
    let row = |dealing, departures, count, bound| {
        exact(name(dealing, departures, count), &model(dealing, departures, count), bound);
    };
    use {Dealing::*, Departures::*};
    row(Ticket, Shared, Count::Ended, bound);
    row(Ticket, Own, Count::Ended, bound + (L - 1) * (N - 2));
    row(Lane, Shared, Count::Began, bound + (N - 2) * (L - 1) / L);
    row(Lane, Own, Count::Began, bound + (L - 1) * (N - 2));
    row(Lane, Own, Count::Ended, bound + (L - 1) * (N - 2) + (N - 1));
    for dealing in [ByThread, Random] {
        fails(name(dealing, Own, Count::Began), &model(dealing, Own, Count::Began), far(N, b), Kind::Unbounded);
        fails(name(dealing, Shared, Count::Began), &model(dealing, Shared, Count::Began), far(N, b), Kind::Stuck);
    }
}

#[test]
fn multilane_is_bounded_only_if_dealt() {
    (1..=3).for_each(lanes::<2, 2>);
    (1..=3).for_each(lanes::<3, 2>);
    (1..=2).for_each(lanes::<4, 2>);
    (1..=2).for_each(lanes::<2, 3>);
    (1..=2).for_each(lanes::<3, 3>);
}

#[test]
#[ignore = "large"]
fn multilane_large() {
    lanes::<4, 2>(3);
    (1..=3).for_each(lanes::<5, 2>);
    (1..=2).for_each(lanes::<6, 2>);
    (1..=2).for_each(lanes::<4, 3>);
    lanes::<5, 3>(1);
}

/// Lets another thread overtake V in a lane of its own, round after round.
#[test]
fn multilane_shortest_way_to_starve() {
    for dealing in [Dealing::ByThread, Dealing::Random] {
        let model = Multilane::<2, 2> { b: 1, dealing, departures: Departures::Own, count: Count::Began };
        let failure = explore(&model, 1, CAP).failure.expect("it fails");
        assert_eq!((failure.kind, failure.trace.len()), (Kind::Unbounded, 11), "{failure:?}");
    }
}

fn parking<const N: usize>(b: u8, wake: Wake, buckets: u8, most: Option<u8>) {
    let base = Parking::<N>::new(b, wake, buckets);
    let deadlines = most.is_some();
    let limit = most.map_or(String::new(), |most| format!(", deadlines, T - base <= {most}"));
    let name = format!("parking, {wake:?}, {buckets} buckets{limit}, T {N}, B {b}");
    exact(name, &Parking { deadlines, most: most.unwrap_or(base.most), ..base }, usize::from(b) - 1);
}

#[test]
fn parking_loses_no_wake_up() {
    for wake in [Wake::Sequence, Wake::List] {
        for buckets in 1..=3 {
            parking::<2>(1, wake, buckets, None);
            parking::<3>(1, wake, buckets, None);
            parking::<3>(2, wake, buckets, None);
        }
        parking::<3>(2, wake, 1, Some(6));
        parking::<3>(2, wake, 2, Some(4));
    }
    parking::<4>(2, Wake::List, 1, None);
    parking::<4>(2, Wake::List, 2, None);
}

#[test]
#[ignore = "large"]
fn parking_large() {
    for wake in [Wake::Sequence, Wake::List] {
        for buckets in 1..=3 {
            parking::<4>(2, wake, buckets, None);
            parking::<4>(3, wake, buckets, None);
            parking::<3>(2, wake, buckets, Some(5));
        }
    }
    parking::<4>(2, Wake::List, 1, Some(4));
}

#[test]
fn parking_has_no_step_to_spare() {
    use parking::Fault;
    for wake in [Wake::Sequence, Wake::List] {
        let model = |fault| Parking::<4> {
            deadlines: fault == Fault::LeavesQuietly,
            most: 5,
            fault,
            ..Parking::new(2, wake, 2)
        };
        fails(format!("{wake:?}: no poke"), &model(Fault::NeverPokes), 1, Kind::Stuck);
        fails(format!("{wake:?}: T is read before the CAS"), &model(Fault::SkipsEarly), 1, Kind::Stuck);
        fails(format!("{wake:?}: only the last is poked"), &model(Fault::PokesLast), 1, Kind::Stuck);
        fails(format!("{wake:?}: a waiter that gives up does not poke"), &model(Fault::LeavesQuietly), 1, Kind::Stuck);
    }
    let quiet =
        Parking::<3> { deadlines: true, most: 6, fault: Fault::AbsorbsQuietly, ..Parking::new(2, Wake::List, 1) };
    fails("List: the absorbing thread does not poke", &quiet, 1, Kind::Stuck);
    let old = Parking::<3> { fault: Fault::SleepsOnOldLook, ..Parking::new(2, Wake::Sequence, 2) };
    fails("Sequence: seq is read after W", &old, 1, Kind::Stuck);
}
