//! Tests of the runtime's semaphore beyond the contract of [`Semaphore`](sudog::low_level::Semaphore), which all semaphores
//! share: cancels, places in line, and semaphores that share a bucket.
#![cfg(not(sudog_loom))]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::sema::{Order, Wake};
use sudog::study::SemTable;
use sudog::{Cancel, WaitError, WaitLimit};
use support::{Watchdog, eventually};

/// A table with a single bucket: all semaphores collide.
type Table = SemTable<1>;

/// Checks that a panic in the caller's standing-by function leaves no waiter behind, and loses no permit.
#[test]
fn a_waiter_that_panics_as_it_stands_by_leaves_the_queue() {
    let _watchdog = Watchdog::new();
    let (table, count) = (Table::new(), AtomicU32::new(0));
    let limit = WaitLimit::default();
    for is_released in [false, true] {
        let stands_by = |_: &dyn Fn() -> bool| {
            if is_released {
                table.release(&count, Wake::Normal);
            }
            std::panic::resume_unwind(Box::new("stands by"));
        };
        let waits = || table.acquire_standing_by(&count, Order::Fifo, &limit, stands_by);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(waits)).is_err());
        assert_eq!(table.waiters(&count), 0);
        let over = WaitLimit::until(Instant::now());
        assert_eq!(table.acquire_limited(&count, Order::Fifo, &over).is_ok(), is_released);
    }
}

#[test]
fn a_cancel_ends_all_its_waits_and_no_other() {
    let _watchdog = Watchdog::new();
    let (table, semaphores) = (Table::new(), [const { AtomicU32::new(0) }; 3]);
    let (cancel, other) = (Cancel::new(), Cancel::new());
    let far = Some(Instant::now() + Duration::from_secs(3600));
    let limited = [
        WaitLimit { cancel: Some(&cancel), ..WaitLimit::default() },
        WaitLimit { cancel: Some(&cancel), deadline: far },
        WaitLimit { cancel: Some(&other), ..WaitLimit::default() },
        WaitLimit { cancel: None, deadline: far },
    ];
    thread::scope(|s| {
        let waits: Vec<_> = semaphores
            .iter()
            .flat_map(|count| limited.iter().map(move |limit| (count, limit)))
            .map(|(count, limit)| (limit, s.spawn(|| table.acquire_limited(count, Order::Fifo, limit))))
            .collect();
        eventually(|| semaphores.iter().all(|count| table.waiters(count) == limited.len()));
        assert!(!cancel.is_cancelled());
        cancel.cancel();
        assert!(cancel.is_cancelled() && !other.is_cancelled());
        eventually(|| semaphores.iter().all(|count| table.waiters(count) == 2));
        semaphores.iter().for_each(|count| table.release_many(count, 2));
        for (limit, wait) in waits {
            let ours = limit.cancel.is_some_and(|c| std::ptr::eq(c, &cancel));
            assert_eq!(wait.join().unwrap(), if ours { Err(WaitError::Cancelled) } else { Ok(()) });
        }
    });
    assert!(semaphores.into_iter().all(|count| count.into_inner() == 0));
}

#[test]
fn a_cancelled_handle_stays_cancelled() {
    let (table, count, cancel) = (Table::new(), AtomicU32::new(1), Cancel::new());
    let limit = WaitLimit { cancel: Some(&cancel), ..WaitLimit::default() };
    assert_eq!(table.acquire_limited(&count, Order::Fifo, &limit), Ok(()));
    cancel.cancel();
    cancel.cancel();
    table.release(&count, Wake::Normal);
    assert_eq!(table.acquire_limited(&count, Order::Fifo, &limit), Err(WaitError::Cancelled));
    assert_eq!(count.into_inner(), 1, "it took no permit");
}

/// Ends some of the waits in a line by a cancel or a deadline: the first, the last, and waits in between.
#[test]
fn a_waiter_that_gives_up_leaves_the_queue_in_order() {
    const WAITERS: usize = 8;
    let _watchdog = Watchdog::new();
    let (table, count, served) = (Table::new(), AtomicU32::new(0), Mutex::new(Vec::new()));
    let cancels = [const { Cancel::new() }; WAITERS];
    thread::scope(|s| {
        for (waiter, cancel) in cancels.iter().enumerate() {
            let (table, count, served) = (&table, &count, &served);
            s.spawn(move || {
                let limit = WaitLimit { cancel: Some(cancel), ..WaitLimit::default() };
                if table.acquire_limited(count, Order::Fifo, &limit).is_ok() {
                    served.lock().unwrap().push(waiter);
                }
            });
            eventually(|| table.waiters(count) == waiter + 1);
        }
        assert!(
            table
                .acquire_limited(&count, Order::Fifo, &WaitLimit::until(Instant::now() + Duration::from_millis(1)))
                .is_err()
        );
        assert!(
            table
                .acquire_limited(&count, Order::Lifo, &WaitLimit::until(Instant::now() + Duration::from_millis(1)))
                .is_err()
        );
        for (left, waiter) in [(7, 3), (6, 0), (5, 7)] {
            cancels[waiter].cancel();
            eventually(|| table.waiters(&count) == left);
        }
        for n in 1..=5 {
            table.release(&count, if n % 2 == 0 { Wake::Normal } else { Wake::Handoff });
            eventually(|| served.lock().unwrap().len() == n);
        }
    });
    assert_eq!(served.into_inner().unwrap(), [1, 2, 4, 5, 6]);
    assert_eq!(count.into_inner(), 0);
}

/// Checks that a waiter that loses its permit goes back to the front. Go sends such a waiter to the back.
#[test]
fn a_waiter_that_loses_its_permit_goes_back_to_the_front() {
    const LOSSES: u32 = 20;
    let _watchdog = Watchdog::new();
    let (table, count) = (Table::new(), AtomicU32::new(0));
    let mut losses = 0;
    while losses < LOSSES {
        let served = Mutex::new(Vec::new());
        let so_far = || served.lock().unwrap().len();
        thread::scope(|s| {
            for waiter in 0..2 {
                let (table, count, served) = (&table, &count, &served);
                s.spawn(move || {
                    table.acquire(count, Order::Fifo);
                    served.lock().unwrap().push(waiter);
                });
                eventually(|| table.waiters(count) == waiter + 1);
            }
            table.release(&count, Wake::Normal);
            // Either this thread or the first waiter in line is faster.
            let stolen = table.acquire_limited(&count, Order::Fifo, &WaitLimit::until(Instant::now())).is_ok();
            eventually(|| table.waiters(&count) + so_far() == 2);
            losses += u32::from(stolen);
            let before = so_far();
            assert_eq!(before, usize::from(!stolen));
            for n in before + 1..=2 {
                table.release(&count, Wake::Handoff);
                eventually(|| so_far() == n);
            }
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1]);
    }
    assert_eq!(count.into_inner(), 0);
}

/// Checks that a handoff goes to a waiter of its own semaphore, however many other waiters stand in the bucket.
#[test]
fn semaphores_that_share_a_bucket_are_not_mixed_up() {
    const WAITERS: usize = 3;
    let _watchdog = Watchdog::new();
    let (table, semaphores) = (Table::new(), [const { AtomicU32::new(0) }; 6]);
    thread::scope(|s| {
        for count in &semaphores {
            (0..WAITERS).for_each(|_| drop(s.spawn(|| table.acquire(count, Order::Fifo))));
        }
        eventually(|| semaphores.iter().all(|count| table.waiters(count) == WAITERS));
        for wave in (0..WAITERS).rev() {
            for (n, count) in semaphores.iter().enumerate().rev() {
                match (n + wave) % 4 {
                    0 => table.release(count, Wake::Normal),
                    1 => table.release(count, Wake::Handoff),
                    2 => table.release_many(count, 1),
                    _ => table.grant_many(count, 1),
                }
                eventually(|| table.waiters(count) == wave);
                assert!(semaphores[..n].iter().all(|count| table.waiters(count) == wave + 1));
            }
        }
    });
    assert!(semaphores.into_iter().all(|count| count.load(Relaxed) == 0));
}

/// Checks that grants go to waiters, in their order, and past newcomers, and that the remaining grants become permits
/// for any caller.
#[test]
fn grants_pass_newcomers_by() {
    let watchdog = Watchdog::new();
    // Include numbers that exceed the number of waiters woken at a time.
    let few = (0..=5).map(|n| (3, n));
    for (waiters, n) in few.chain([(70, 69), (70, 70), (70, 90)]) {
        let (table, count, served) = (Table::new(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|s| {
            for _ in 0..waiters {
                s.spawn(|| {
                    table.acquire(&count, Order::Fifo);
                    served.fetch_add(1, Relaxed);
                });
            }
            eventually(|| table.waiters(&count) == waiters);
            table.grant_many(&count, n as u32);
            assert_eq!(table.waiters(&count), waiters.saturating_sub(n), "unlinked by the grant itself");
            assert_eq!(count.load(Relaxed) as usize, n.saturating_sub(waiters), "they need none from the counter");
            eventually(|| served.load(Relaxed) as usize == n.min(waiters));
            table.grant_many(&count, waiters.saturating_sub(n) as u32);
        });
        watchdog.pat();
    }
}

#[test]
fn a_table_with_waiters_elsewhere_does_not_hand_over_to_them() {
    let _watchdog = Watchdog::new();
    let (table, here, there) = (Table::new(), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|s| {
        s.spawn(|| table.acquire(&there, Order::Fifo));
        eventually(|| table.waiters(&there) == 1);
        table.release(&here, Wake::Handoff);
        table.release(&here, Wake::Normal);
        table.release_many(&here, 2);
        assert_eq!((here.load(Relaxed), table.waiters(&there)), (4, 1));
        table.release(&there, Wake::Handoff);
    });
    assert_eq!((here.into_inner(), there.into_inner()), (4, 0));
}
