use sudog_runtime::event::{Event, Kind, Who};

use super::*;
use crate::starvation::contest::{Contender, Role};

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns a history of a hog and a victim, with an event of every kind that is drawn.
fn history() -> EventHistory {
    let role = |n, role| Contender { role, number: None, ring: n };
    let contenders = [role(0, Role::Hog), role(1, Role::Victim)];
    let kinds = [
        (0, Kind::Want),
        (0, Kind::Locked),
        (1, Kind::Want),
        (1, Kind::Sleep),
        (0, Kind::Barge),
        (1, Kind::StarvingEnter),
        (0, Kind::Unlocked),
        (0, Kind::Handoff),
        (1, Kind::Locked),
        (1, Kind::StarvingExit),
        (1, Kind::Unlocked),
    ];
    let event = |(n, (who, kind)): (usize, (usize, Kind))| {
        let waiter = if [Kind::Sleep, Kind::Handoff].contains(&kind) { 0x100 } else { who + 1 };
        Event { at: us(10 * n as u64), who: Who::Thread(who as u64), kind, addr: 1, waiter }
    };
    let events: Vec<_> = kinds.into_iter().enumerate().map(event).collect();
    EventHistory::new(&events, &contenders, 0, us(110))
}

fn names() -> Vec<String> {
    vec!["hog <&\">".to_owned(), "victim".to_owned()]
}

/// Checks that every tag is closed, and that the last opened is closed first.
#[track_caller]
fn is_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "<{tag}>");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn everything_is_drawn() {
    let (history, names) = (history(), names());
    let svg = timeline(&history, &names, history.window(us(110)));
    is_well_formed(&svg);
    let drawn = |what: &str| svg.matches(what).count();
    assert_eq!(drawn("<title>hog &lt;&amp;&quot;&gt; holds the mutex, 50.0 µs (from 0.010 ms on)</title>"), 1);
    assert_eq!(drawn("<title>victim sleeps in line, 40.0 µs"), 1);
    assert_eq!(drawn("<title>victim waits awake"), 2);
    assert_eq!(drawn("hands over to victim, which had waited longest; the receiver has the mutex after 10.0 µs"), 1);
    assert_eq!(drawn("starvation mode, 40.0 µs (from 0.050 ms on): turned on by victim, off by victim"), 1);
    assert_eq!(drawn("turns starvation mode on, at 50.0 µs") + drawn("turns starvation mode off, at 90.0 µs"), 2);
    assert_eq!(drawn("takes the mutex while others sleep, at 40.0 µs"), 1);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn nothing_is_outside_the_window() {
    let (history, names) = (history(), names());
    let svg = timeline(&history, &names, Window { from: us(25), to: us(45) });
    is_well_formed(&svg);
    assert!(!svg.contains("hands over to") && !svg.contains("turns starvation mode") && !svg.contains("turned on by"));
    let places = svg.split("<rect x=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
    assert!(places.clone().count() > 0 && places.into_iter().all(|x| (LEFT..=WIDTH - RIGHT).contains(&x)));
}

#[test]
fn nothing_at_all() {
    let history = EventHistory::new(&[], &[], 0, Duration::ZERO);
    let svg = timeline(&history, &[], history.window(us(10)));
    is_well_formed(&svg);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn ticks() {
    let axis = |from: u64, to: u64| Axis::over(Window { from: us(from), to: us(to) });
    let of = |axis: Axis| (axis.step, axis.unit, axis.decimals);
    assert_eq!(of(axis(0, 500)), (100_000, "ms", 1));
    assert_eq!(of(axis(0, 400)), (50_000, "µs", 0));
    assert_eq!(of(axis(50_000, 55_000)), (1_000_000, "ms", 0));
    assert_eq!(of(axis(50_000, 54_000)), (500_000, "ms", 1));
    assert_eq!(of(axis(50_000, 50_100)), (20_000, "ms", 2));
}
