//! Tests of histories of events that are made by hand.

use super::super::contest::Role;
use super::*;

const HOG: usize = 0;
const A: usize = 1;
const B: usize = 2;
const C: usize = 3;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns a hog and three victims.
fn contenders() -> Vec<Contender> {
    let role = |n| if n == HOG { Role::Hog } else { Role::Victim };
    (0..4).map(|n| Contender { role: role(n), number: (n > 0).then_some(n), ring: n }).collect()
}

/// Makes an event each microsecond. `about` is the waiter that is woken.
fn events(list: &[(usize, Kind, Option<usize>)]) -> Vec<Event> {
    let event = |(n, &(who, kind, about)): (usize, &(usize, Kind, Option<usize>))| {
        let waiter = match kind {
            Kind::Want | Kind::Locked | Kind::Unlocked => who + 1,
            Kind::Sleep | Kind::Requeue => 0x1000 + who,
            Kind::Wake | Kind::Handoff => 0x1000 + about.expect("somebody is woken"),
            _ => 0,
        };
        Event { at: us(n as u64), who: Who::Thread(70 + who as u64), kind, addr: 0x8, waiter }
    };
    list.iter().enumerate().map(event).collect()
}

fn history(list: &[(usize, Kind, Option<usize>)]) -> EventHistory {
    EventHistory::new(&events(list), &contenders(), 0, us(100))
}

fn does(who: usize, kind: Kind) -> (usize, Kind, Option<usize>) {
    (who, kind, None)
}

fn to(who: usize, kind: Kind, woken: usize) -> (usize, Kind, Option<usize>) {
    (who, kind, Some(woken))
}

/// Returns the events of a queue: all contenders ask in this order; the first has the mutex and the others sleep.
fn line_up(rest: &[(usize, Kind, Option<usize>)]) -> Vec<(usize, Kind, Option<usize>)> {
    let mut list = vec![does(HOG, Kind::Want), does(HOG, Kind::Locked)];
    for who in [A, B, C] {
        list.extend([does(who, Kind::Want), does(who, Kind::Sleep)]);
    }
    list.extend_from_slice(rest); // from 8 us on
    list
}

#[test]
fn a_lane() {
    let history = history(&[
        does(HOG, Kind::Want),
        does(HOG, Kind::Locked),
        does(A, Kind::Want),
        does(A, Kind::Sleep),
        does(HOG, Kind::Unlocked),
        to(HOG, Kind::Wake, A),
        does(HOG, Kind::Want),
        does(HOG, Kind::Barge),
        does(HOG, Kind::Locked),
        does(A, Kind::Requeue),
        does(HOG, Kind::Unlocked),
        to(HOG, Kind::Wake, A),
        does(A, Kind::Locked),
        does(A, Kind::Unlocked),
    ]);
    let lane = |n: usize| {
        let intervals = history.lanes[n].intervals.iter();
        intervals.map(|i| (i.state, i.from.as_micros(), i.to.as_micros())).collect::<Vec<_>>()
    };
    use State::{Holding, Sleeping, Waiting};
    assert_eq!(lane(HOG), [(Waiting, 0, 1), (Holding, 1, 4), (Waiting, 6, 8), (Holding, 8, 10)]);
    assert_eq!(
        lane(A),
        [(Waiting, 2, 3), (Sleeping, 3, 5), (Waiting, 5, 9), (Sleeping, 9, 11), (Waiting, 11, 12), (Holding, 12, 13)]
    );
    assert_eq!((lane(B), history.lanes[B].who), (vec![], None));
    assert_eq!(history.lanes[A].who, Some(Who::Thread(71)));
    assert_eq!(history.lanes[A].waits, [us(10)]);
    assert_eq!(history.barges, [Barge { at: us(7), by: HOG }]);
    assert_eq!(history.count(Kind::Wake), 2);
    assert_eq!(history.count(Kind::Handoff), 0);
}

#[test]
fn what_is_not_over_goes_on_until_the_end() {
    let history = history(&line_up(&[does(C, Kind::StarvingEnter)]));
    assert_eq!(history.lanes[HOG].intervals[1], Interval { state: State::Holding, from: us(1), to: us(100) });
    assert_eq!(history.lanes[A].intervals[1], Interval { state: State::Sleeping, from: us(3), to: us(100) });
    assert_eq!(history.starving, [Starving { from: us(8), to: us(100), by: Some(C), ended_by: None }]);
}

#[test]
fn a_handoff_is_an_arrow_to_the_one_who_slept() {
    let history = history(&line_up(&[
        does(HOG, Kind::Unlocked),
        to(HOG, Kind::Handoff, A),
        does(HOG, Kind::Want),
        does(A, Kind::Locked),
        does(A, Kind::Unlocked),
        to(A, Kind::Handoff, B),
        does(B, Kind::Locked),
    ]));
    let verdict = Verdict::Longest;
    assert_eq!(
        history.handoffs,
        [
            Handoff { at: us(9), from: HOG, to: Some(A), arrived: Some(us(11)), verdict },
            Handoff { at: us(13), from: A, to: Some(B), arrived: Some(us(14)), verdict },
        ]
    );
}

/// Returns the verdict on the last handoff.
#[track_caller]
fn verdict(list: &[(usize, Kind, Option<usize>)]) -> Verdict {
    history(list).handoffs.last().expect("there is a handoff").verdict
}

#[test]
fn to_another_than_the_one_who_has_waited_longest() {
    assert_eq!(verdict(&line_up(&[to(HOG, Kind::Handoff, B)])), Verdict::Another);
    assert_eq!(verdict(&line_up(&[to(HOG, Kind::Handoff, A), to(HOG, Kind::Handoff, C)])), Verdict::Another);
    assert_eq!(verdict(&line_up(&[to(HOG, Kind::Wake, A), to(HOG, Kind::Handoff, B)])), Verdict::Longest, "A is awake");
}

#[test]
fn who_is_beaten_keeps_its_place() {
    let beaten = [to(HOG, Kind::Wake, A), does(A, Kind::Requeue)];
    assert_eq!(verdict(&line_up(&[&beaten[..], &[to(HOG, Kind::Handoff, A)]].concat())), Verdict::Longest);
    assert_eq!(verdict(&line_up(&[&beaten[..], &[to(HOG, Kind::Handoff, B)]].concat())), Verdict::Another);
    // In Go 1.8 a beaten waiter goes to the end of the queue, where the next handoff would not be to that waiter.
    let to_the_end = [to(HOG, Kind::Wake, A), does(A, Kind::Sleep), to(HOG, Kind::Handoff, B)];
    assert_eq!(verdict(&line_up(&to_the_end)), Verdict::Another);
}

#[test]
fn who_has_had_it_begins_a_new_wait() {
    let again = [
        to(HOG, Kind::Handoff, A),
        does(A, Kind::Locked),
        does(A, Kind::Unlocked),
        does(A, Kind::Want),
        does(A, Kind::Sleep),
    ];
    assert_eq!(verdict(&line_up(&[&again[..], &[to(HOG, Kind::Handoff, B)]].concat())), Verdict::Longest);
    assert_eq!(verdict(&line_up(&[&again[..], &[to(HOG, Kind::Handoff, A)]].concat())), Verdict::Another);
}

#[test]
fn two_who_were_awake_at_a_time() {
    let crossed = [
        to(HOG, Kind::Wake, A),
        to(HOG, Kind::Wake, B),
        does(A, Kind::Requeue),
        does(B, Kind::Requeue),
        to(HOG, Kind::Handoff, B),
    ];
    assert_eq!(verdict(&line_up(&crossed)), Verdict::Passed);
    // C waited longer than neither A nor B, and did not wake.
    let [a, b, ..] = crossed;
    assert_eq!(verdict(&line_up(&[a, b, does(B, Kind::Requeue), to(HOG, Kind::Handoff, C)])), Verdict::Another);
    // B was woken when A was back already: A was before B.
    let in_turn = [a, does(A, Kind::Requeue), b, does(B, Kind::Requeue), to(HOG, Kind::Handoff, B)];
    assert_eq!(verdict(&line_up(&in_turn)), Verdict::Another);
    // A waiter that goes to the end of the line does not come before any other.
    let to_the_end = [a, b, does(A, Kind::Requeue), does(B, Kind::Sleep), to(HOG, Kind::Handoff, B)];
    assert_eq!(verdict(&line_up(&to_the_end)), Verdict::Another);
}

#[test]
fn who_has_passed_another_stays_before_it() {
    let crossed = [
        to(HOG, Kind::Wake, A),
        to(HOG, Kind::Wake, B),
        does(A, Kind::Requeue),
        does(B, Kind::Requeue),
        to(HOG, Kind::Wake, B),
        does(B, Kind::Requeue),
    ];
    let verdict = |rest: &[_]| verdict(&line_up(&[&crossed[..], rest].concat()));
    assert_eq!(verdict(&[to(HOG, Kind::Handoff, B)]), Verdict::Passed);
    assert_eq!(verdict(&[to(HOG, Kind::Handoff, A)]), Verdict::Longest);
    // But B does not stay before A when A has come to the head.
    let back = [to(HOG, Kind::Wake, A), does(A, Kind::Requeue)];
    assert_eq!(verdict(&[&back[..], &[to(HOG, Kind::Handoff, B)]].concat()), Verdict::Another);
}

#[test]
fn who_begins_at_the_head_has_passed_the_line() {
    let list = [
        does(HOG, Kind::Want),
        does(HOG, Kind::Locked),
        does(A, Kind::Want),
        does(B, Kind::Want),
        does(B, Kind::Sleep),
        does(A, Kind::Requeue),
    ];
    assert_eq!(verdict(&[&list[..], &[to(HOG, Kind::Handoff, A)]].concat()), Verdict::Longest);
    assert_eq!(verdict(&[&list[..], &[to(HOG, Kind::Handoff, B)]].concat()), Verdict::Another);

    // A took the permit that B was woken by. C came before A, and sleeps.
    let taken = [
        does(HOG, Kind::Want),
        does(HOG, Kind::Locked),
        does(B, Kind::Want),
        does(B, Kind::Sleep),
        does(C, Kind::Want),
        does(C, Kind::Sleep),
        to(HOG, Kind::Wake, B),
        does(A, Kind::Want),
        does(A, Kind::Requeue),
        to(HOG, Kind::Wake, A),
        does(A, Kind::Requeue),
    ];
    assert_eq!(verdict(&[&taken[..], &[to(HOG, Kind::Handoff, A)]].concat()), Verdict::Passed);
    let back = [does(B, Kind::Requeue), to(HOG, Kind::Handoff, A)];
    assert_eq!(verdict(&[&taken[..], &back].concat()), Verdict::Another, "B is before A again");
}

#[test]
fn times_of_starvation_mode() {
    let [enter, exit] = [Kind::StarvingEnter, Kind::StarvingExit];
    let in_order = history(&line_up(&[does(A, enter), does(B, exit), does(B, enter), does(A, exit)]));
    let starving =
        |from, to, by, ended_by| Starving { from: us(from), to: us(to), by: Some(by), ended_by: Some(ended_by) };
    assert_eq!(in_order.starving, [starving(8, 9, A, B), starving(10, 11, B, A)]);
    assert_eq!(in_order.time_starving(), us(2));
    // B's report of the end comes before A's report of the beginning.
    let swapped = history(&line_up(&[does(B, exit), does(A, enter), does(C, enter), does(A, exit)]));
    assert_eq!(swapped.starving, [starving(8, 8, A, B), starving(10, 11, C, A)]);
}

/// Returns a history for which the rings of A and HOG have dropped all events before 5 us.
fn in_the_middle(rest: &[(usize, Kind, Option<usize>)]) -> EventHistory {
    let mut events = events(&line_up(rest));
    events.retain(|event| event.at >= us(6) || [Who::Thread(70 + B as u64)].contains(&event.who));
    EventHistory::new(&events, &contenders(), 4, us(100))
}

#[test]
fn lanes_that_begin_in_the_middle() {
    let [enter, exit] = [Kind::StarvingEnter, Kind::StarvingExit];
    let history = in_the_middle(&[
        does(HOG, Kind::Unlocked),
        to(HOG, Kind::Handoff, A),
        does(A, Kind::Locked),
        does(A, exit),
        does(A, Kind::Unlocked),
        to(A, Kind::Handoff, B),
        does(B, Kind::Locked),
        does(B, enter),
        does(B, Kind::Unlocked),
        to(B, Kind::Handoff, C),
        does(C, Kind::Locked),
        does(C, exit),
    ]);
    let verdicts: Vec<_> = history.handoffs.iter().map(|handoff| (handoff.to, handoff.verdict)).collect();
    // The events do not tell that A slept; A and HOG are known since.
    assert_eq!(verdicts, [(None, Verdict::Unknown), (Some(B), Verdict::Longest), (Some(C), Verdict::Longest)]);
    assert_eq!(history.lanes[A].intervals, [Interval { state: State::Holding, from: us(10), to: us(12) }]);
    assert!(history.lanes[A].waits.is_empty());
    assert_eq!(history.lanes[HOG].intervals, []);
    // A's ring begins at 10 us: the next end of starvation mode tells that the mode was on then.
    assert_eq!(history.starving[0], Starving { from: us(10), to: us(11), by: None, ended_by: Some(A) });
    assert_eq!(history.starving[1], Starving { from: us(15), to: us(19), by: Some(B), ended_by: Some(C) });
    assert_eq!(history.starving.len(), 2);
}

#[test]
fn nobody_is_judged_by_what_is_missing() {
    // B may have been woken by HOG before the first event of HOG that was kept.
    let history = in_the_middle(&[does(A, Kind::Want), does(HOG, Kind::Unlocked), to(HOG, Kind::Handoff, C)]);
    assert_eq!(history.judged(Verdict::Unknown), 1);
    // A's wait began before its first event.
    let history = in_the_middle(&[does(A, Kind::Requeue), does(HOG, Kind::Want), to(HOG, Kind::Handoff, A)]);
    assert_eq!(history.judged(Verdict::Unknown), 1);
    // So A may have waited longer than C.
    let history = in_the_middle(&[
        does(A, Kind::Requeue),
        does(HOG, Kind::Want),
        to(HOG, Kind::Wake, B),
        to(HOG, Kind::Handoff, C),
    ]);
    assert_eq!(history.judged(Verdict::Unknown), 1);
    // Nothing is known of A.
    let history = in_the_middle(&[does(HOG, Kind::Want), to(HOG, Kind::Wake, B), to(HOG, Kind::Handoff, C)]);
    assert_eq!(history.judged(Verdict::Unknown), 1);
}

#[test]
fn strangers_are_left_out() {
    let mut events = events(&line_up(&[]));
    events.push(Event { at: us(50), who: Who::Goroutine(1), kind: Kind::StarvingEnter, addr: 0x8, waiter: 0 });
    let history = EventHistory::new(&events, &contenders(), 0, us(10));
    assert!(history.starving.is_empty());
    assert_eq!(history.end, us(50));
}

#[test]
fn the_window() {
    let [enter, exit] = [Kind::StarvingEnter, Kind::StarvingExit];
    let list = [does(A, enter), does(A, exit)].repeat(30);
    let history = history(&line_up(&list));
    // Starvation mode is turned on at 8, 10, 12 ...
    let window = |length| history.window(us(length));
    assert_eq!(window(8), Window { from: us(24), to: us(32) }, "2 us before 26, the first after 25");
    assert_eq!(window(90), Window { from: us(3) + Duration::from_nanos(500), to: us(93) + Duration::from_nanos(500) });
    assert_eq!(window(100), Window { from: us(0), to: us(100) });
    assert_eq!(window(1000), Window { from: us(0), to: us(100) });
    let long = [does(A, enter)].into_iter().chain([does(HOG, Kind::Unlocked); 30]).chain([does(A, exit)]);
    let long_then_short: Vec<_> = [does(HOG, Kind::Unlocked); 20].into_iter().chain(long).chain(list).collect();
    let history = self::history(&line_up(&long_then_short));
    assert_eq!(history.starving[0].from, us(28));
    assert_eq!(history.window(us(8)).from, us(58), "2 us before 60, where the first short one begins");
    let quiet = super::EventHistory::new(&[], &contenders(), 0, us(100));
    assert_eq!(quiet.window(us(10)), Window { from: us(25), to: us(35) });
    assert_eq!(window(8).part(us(0), us(25)), Some((us(24), us(25))));
    assert_eq!(window(8).part(us(32), us(40)), None);
}
