//! The arithmetic of the window is compared, on one thread, with its definition: the set of tickets that have departed.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// The definition of a window: the set of tickets that have been drawn and have not departed.
struct Naive {
    present: BTreeSet<u64>,
    next: u64,
}

impl Naive {
    fn base(&self) -> u64 {
        self.present.first().copied().unwrap_or(self.next)
    }
}

proptest! {
    /// Tickets are drawn, and depart in any order: near the base, or far from the base, as after giving up.
    #[test]
    fn the_base_is_the_first_that_has_not_departed(
        at in prop::sample::select(vec![0, 7, u32::MAX - 40, u32::MAX]),
        limit in 1..=SPAN,
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..400),
    ) {
        let window: SlidingWindow = SlidingWindow::with_limit_at(limit, at);
        let mut naive = Naive { present: BTreeSet::new(), next: u64::from(at) };
        for (draws, which) in steps {
            if draws || naive.present.is_empty() {
                prop_assert_eq!(window.draw(), naive.next as u32);
                naive.present.insert(naive.next);
                naive.next += 1;
            } else {
                let departs = *which.get(&naive.present.iter().copied().collect::<Vec<_>>());
                naive.present.remove(&departs);
                window.leave(departs as u32);
            }
            let word = window.window.load(Relaxed);
            prop_assert_eq!(word.base(), naive.base() as u32);
            prop_assert_eq!(u64::from(window.present()), naive.next - naive.base());
            prop_assert_eq!(window.is_idle(), naive.present.is_empty());
            prop_assert_eq!(word.has_overflow(), !window.overflow.lock().is_empty());
            for ticket in naive.base()..naive.next {
                let behind = (ticket - naive.base()).checked_sub(u64::from(limit)).map(|n| n as u32);
                prop_assert_eq!(window.ahead(word, ticket as u32), behind);
                let noted = if ticket - naive.base() < u64::from(SPAN) {
                    word.has_departed(ticket as u32)
                } else {
                    window.overflow.lock().contains(ticket)
                };
                prop_assert_eq!(noted, !naive.present.contains(&ticket), "ticket {}", ticket);
            }
        }
    }
}

#[test]
fn all_at_once() {
    // The last ticket of a full window departs first, and the first ticket departs last.
    let window = SlidingWindow::new(SPAN);
    let tickets: Vec<WindowTicket> = (0..SPAN).map(|_| window.arrive()).collect();
    assert!(window.try_arrive().is_none());
    tickets.into_iter().rev().for_each(|ticket| window.depart(ticket));
    assert!(window.is_idle());
    assert_eq!(window.window.load(Relaxed).base(), SPAN);
}

#[test]
#[should_panic(expected = "the bypass limit is at least 1")]
fn no_limit_of_none() {
    let _ = SlidingWindow::new(0);
}

#[test]
#[should_panic(expected = "not more than this capacitor can have")]
fn no_limit_without_bits() {
    let _ = SlidingWindow::new(SPAN + 1);
}

/// Creates a window in which the first ticket holds up the base, and `drawn` tickets have been drawn.
fn crowded(drawn: u32) -> SlidingWindow {
    let window = SlidingWindow::new(1);
    window.arrive();
    window.next.store(u64::from(drawn), Relaxed);
    window
}

#[test]
fn far_from_the_base_no_ticket_is_drawn_that_may_be_given_up() {
    let soon = || Instant::now() + std::time::Duration::from_millis(1);
    let window = crowded(CROWDED + 1);
    assert!(window.arrive_until(soon()).is_none());
    assert_eq!(window.drawn(), u64::from(CROWDED) + 1);
    // There is space for arrivals without a deadline.
    let window = crowded(MOST - 1);
    assert!(!window.wait(window.draw(), Some(soon())), "it waits");
}

#[test]
fn too_many_tickets_are_fatal() {
    const CHILD: &str = "SUDOG_WINDOW_CROWDED";
    if std::env::var_os(CHILD).is_some() {
        crowded(MOST).arrive();
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "capacitor::sliding::tests::too_many_tickets_are_fatal", "--nocapture"])
        .env(CHILD, "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && said.contains("too many tickets"), "{said}");
}
