//! Profiles of waits, in bubbles, whose clock makes each figure exact.
//!
//! | Go's test | here |
//! |---|---|
//! | `TestMutexProfile` | `mutexes_charge_their_releases` |
//! | the program of golang/go#73760 | `each_release_is_charged_its_part` |
//! | `TestMutexProfileRateAdjust` | `a_profile_that_is_off_charges_nothing` |
//! | `TestBlockProfile` | `block_profile` |
//! | `TestBlockProfileBias` | in `runtime/src/profile/blocks.rs` |
//! | `TestMutexBlockFullAggregation` | `each_stack_stands_once` |
#![cfg(all(unix, not(sudog_loom)))]

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, select};
use sudog::low_level::sema::{Order, Wake, semacquire_mutex, semrelease, waiters};
use sudog::low_level::{ConstSemaphore, RuntimeSema, Semaphore};
use sudog::runtime::dump;
use sudog::sync::{Cond, LockAsync, Mutex, RwMutex, WaitGroup};
use sudog::time::{sleep, sleep_async};
use sudog::{Cancel, WaitError, WaitLimit, block_on, go, run, spawn, spawn_async, synctest};
use sudog_runtime::profile::{self, Profile, Record};
use support::counting::without_allocating;
use support::{Watchdog, eventually, pat, turn};

const SECOND: Duration = Duration::from_secs(1);

/// Takes the turn to use the profiles, which belong to the process.
fn alone() -> impl Drop {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    struct Alone {
        _watchdog: Watchdog,
        _turn: std::sync::MutexGuard<'static, ()>,
    }
    impl Drop for Alone {
        fn drop(&mut self) {
            profile::set_mutex_profile_fraction(0);
            profile::set_block_profile_rate(0);
        }
    }
    Alone { _turn: turn(&TURN), _watchdog: Watchdog::new() }
}

/// Returns the records whose stack has a function with `name` in its path.
fn of<'a>(profile: &'a Profile, name: &str) -> Vec<&'a Record> {
    let has = |record: &&Record| record.frames().iter().any(|frame| frame.function.contains(name));
    profile.records().iter().filter(has).collect()
}

/// Returns the number and the total time of the waits that are charged to `name`.
fn charged(profile: &Profile, name: &str) -> (u64, Duration) {
    let records = of(profile, name);
    (records.iter().map(|record| record.count()).sum(), records.iter().map(|record| record.delay()).sum())
}

/// Makes functions that call their argument, so that their names are on stacks.
macro_rules! named {
    ($($name:ident)+) => { $(
        #[inline(never)]
        fn $name<R>(f: impl FnOnce() -> R) -> R {
            // The compiler makes one of functions that are alike.
            black_box(stringify!($name));
            let result = f();
            black_box(stringify!($name));
            result
        }
    )+ };
}

// ---- the mutex profile ------------------------------------------------------------------------------------------------

named!(release_0 release_1 release_2 release_3 release_4);

/// The program of golang/go#73760, where Go charges 4, 15, 3 and 6 seconds.
#[test]
fn each_release_is_charged_its_part() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        for (n, hold) in [1, 5, 2, 3, 4].into_iter().enumerate() {
            let mutex = mutex.clone();
            go(move || {
                let guard = mutex.lock();
                sleep(hold * SECOND);
                match n {
                    0 => release_0(|| drop(guard)),
                    1 => release_1(|| drop(guard)),
                    2 => release_2(|| drop(guard)),
                    3 => release_3(|| drop(guard)),
                    _ => release_4(|| drop(guard)),
                }
            });
        }
        sleep(20 * SECOND);
    });
    let profile = profile::mutex();
    let parts = ["release_0", "release_1", "release_2", "release_3", "release_4"].map(|name| charged(&profile, name));
    assert_eq!(parts, [(1, 4), (1, 15), (1, 4), (1, 3), (0, 0)].map(|(count, seconds)| (count, seconds * SECOND)));
}

named!(unlocks_mutex unlocks_readers unlocks_writer posts hands_over);

#[test]
fn mutexes_charge_their_releases() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let (mutex, rw, sema) = (Arc::new(Mutex::new(())), Arc::new(RwMutex::new(())), Arc::new(RuntimeSema::INIT));

        let guard = mutex.lock();
        let theirs = mutex.clone();
        go(move || drop(theirs.lock()));
        sleep(SECOND);
        unlocks_mutex(|| drop(guard));

        let guard = rw.read();
        let theirs = rw.clone();
        let writer = spawn(move || drop(theirs.write()));
        sleep(2 * SECOND);
        unlocks_readers(|| drop(guard));
        writer.join().unwrap();

        let guard = rw.write();
        for _ in 0..3 {
            let theirs = rw.clone();
            go(move || drop(theirs.read()));
        }
        sleep(SECOND);
        unlocks_writer(|| drop(guard));

        for wake in [Wake::Normal, Wake::Handoff] {
            let theirs = sema.clone();
            let waiter = spawn(move || theirs.acquire(Order::Fifo));
            sleep(4 * SECOND);
            match wake {
                Wake::Handoff => hands_over(|| sema.release(wake)),
                _ => posts(|| sema.release(wake)),
            }
            waiter.join().unwrap();
        }
    });
    let profile = profile::mutex();
    assert_eq!(charged(&profile, "unlocks_mutex"), (1, SECOND));
    assert_eq!(charged(&profile, "unlocks_readers"), (1, 2 * SECOND));
    assert_eq!(charged(&profile, "unlocks_writer").1, 3 * SECOND);
    assert_eq!(charged(&profile, "::posts"), (1, 4 * SECOND));
    assert_eq!(charged(&profile, "hands_over"), (1, 4 * SECOND));
    // Stacks begin with the call into this project, and end with the goroutine's first function.
    for record in of(&profile, "unlocks_mutex") {
        let frames = record.frames();
        assert!(frames[0].function.contains("sudog_sync::"), "{frames:#?}");
        assert!(frames.iter().skip(1).all(|frame| !frame.function.contains("sudog_runtime::")), "{frames:#?}");
    }
}

named!(released_after_patience);

#[test]
fn waits_given_up_are_charged_to_the_next_release() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        for patience in [1, 2] {
            let theirs = mutex.clone();
            go(move || assert!(theirs.try_lock_for(patience * SECOND).is_none()));
        }
        let theirs = mutex.clone();
        let patient = spawn(move || drop(theirs.lock()));
        sleep(5 * SECOND);
        released_after_patience(|| drop(guard));
        patient.join().unwrap();
    });
    assert_eq!(charged(&profile::mutex(), "released_after_patience"), (1, 8 * SECOND));
}

named!(charged_to_no_release);

#[test]
fn a_release_without_waiters_is_charged_nothing() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        go(move || assert!(theirs.try_lock_for(SECOND).is_none()));
        sleep(5 * SECOND);
        charged_to_no_release(|| drop(guard)); // all waiters have given up
        charged_to_no_release(|| drop(mutex.lock()));
    });
    assert_eq!(charged(&profile::mutex(), "charged_to_no_release"), (0, Duration::ZERO));
}

named!(released_while_off released_while_on released_on_again);

#[test]
fn a_profile_that_is_off_charges_nothing() {
    let _alone = alone();
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        let contend = |release: fn(&dyn Fn())| {
            let guard = std::cell::Cell::new(Some(mutex.lock()));
            let theirs = mutex.clone();
            let waiter = spawn(move || drop(theirs.lock()));
            sleep(SECOND);
            release(&|| drop(guard.take()));
            waiter.join().unwrap();
        };
        contend(|release| released_while_off(release));
        assert_eq!(profile::set_mutex_profile_fraction(1), 0);
        contend(|release| released_while_on(release));
        contend(|release| released_while_on(release));
        contend(|release| {
            assert_eq!(profile::set_mutex_profile_fraction(0), 1);
            assert_eq!(profile::set_mutex_profile_fraction(1), 0);
            released_on_again(release);
        });
        contend(|release| released_while_on(release));
        contend(|release| {
            assert_eq!(profile::set_mutex_profile_fraction(0), 1);
            released_while_off(release);
        });
        assert_eq!(profile::mutex_profile_fraction(), 0);
        contend(|release| released_while_off(release));
        assert_eq!(profile::set_mutex_profile_fraction(1), 0);
        contend(|release| released_while_on(release)); // earlier waiters are no longer counted
    });
    let profile = profile::mutex();
    assert_eq!(charged(&profile, "released_while_off"), (0, Duration::ZERO));
    assert_eq!(charged(&profile, "released_while_on"), (4, 4 * SECOND));
    assert_eq!(charged(&profile, "released_on_again"), (1, SECOND)); // the wait began while the profile was on
}

named!(sampled_release);

#[test]
fn a_fraction_stands_for_all() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(10);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        for _ in 0..4000 {
            let guard = mutex.lock();
            let theirs = mutex.clone();
            let waiter = spawn(move || drop(theirs.lock()));
            sleep(SECOND);
            sampled_release(|| drop(guard));
            waiter.join().unwrap();
        }
    });
    let (count, delay) = charged(&profile::mutex(), "sampled_release");
    assert_eq!((count % 10, delay), (0, count as u32 * SECOND));
    assert!((3000..5000).contains(&count), "{count} of 4000"); // 5 standard deviations
}

named!(grants_many);

/// Waiters are woken 32 at a time, but the release counts once.
#[test]
fn a_release_of_many_is_charged_once() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let sema = Arc::new(RuntimeSema::INIT);
        for _ in 0..100 {
            let theirs = sema.clone();
            go(move || theirs.acquire(Order::Fifo));
        }
        sleep(SECOND);
        grants_many(|| sema.grant_many(70));
        sleep(SECOND);
        grants_many(|| sema.release_many(40));
    });
    let profile = profile::mutex();
    assert_eq!(charged(&profile, "grants_many"), (2, (100 + 30) * SECOND), "{profile}");
}

named!(released_after_cancel);

#[test]
fn a_wait_that_is_cancelled_is_charged_to_the_next_release() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let sema = Arc::new(RuntimeSema::INIT);
        let cancel = Arc::new(Cancel::new());
        let theirs = (sema.clone(), cancel.clone());
        go(move || {
            let limit = WaitLimit { cancel: Some(&theirs.1), ..WaitLimit::default() };
            assert_eq!(theirs.0.acquire_limited(Order::Fifo, &limit), Err(WaitError::Cancelled));
        });
        let theirs = sema.clone();
        go(move || theirs.acquire(Order::Fifo));
        sleep(SECOND);
        cancel.cancel();
        sleep(SECOND);
        released_after_cancel(|| sema.release(Wake::Normal));
    });
    assert_eq!(charged(&profile::mutex(), "released_after_cancel"), (1, 3 * SECOND));
}

/// Waits for objects that are no locks are charged to no release.
#[test]
fn other_waits_are_charged_to_no_release() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    let before = profile::mutex().delay();
    synctest::test(|| {
        spawn(|| sleep(SECOND)).join().unwrap();
        let group = Arc::new(WaitGroup::new());
        for _ in 0..3 {
            let theirs = group.clone();
            theirs.add(1);
            go(move || {
                sleep(SECOND);
                theirs.done();
            });
        }
        let theirs = group.clone();
        go(move || theirs.wait());
        group.wait();
    });
    assert_eq!(profile::mutex().delay(), before);
}

named!(allocates_nothing);

/// The global allocator is not used while waits are counted, so it may itself use this project's locks.
#[test]
fn no_memory_comes_from_the_global_allocator() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    profile::set_block_profile_rate(1);
    let mutex = Mutex::new(());
    let contend = || {
        without_allocating(|| {
            for _ in 0..300 {
                allocates_nothing(|| {
                    let _guard = mutex.lock();
                    thread::yield_now();
                });
            }
        });
    };
    thread::scope(|s| (0..4).for_each(|_| _ = s.spawn(contend)));
    let (waits, _) = charged(&profile::block(), "allocates_nothing");
    let (releases, _) = charged(&profile::mutex(), "allocates_nothing");
    assert!(waits > 0 && releases > 0, "{waits} waits, {releases} releases");
}

named!(released_to_task);

#[test]
fn tasks_wait_too() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let (kept, dropped) = (mutex.clone(), mutex.clone());
        let task = spawn_async(async move { drop(kept.lock_async().await) });
        let given_up = spawn_async(async move {
            let (mut lock, mut patience) = (pin!(dropped.lock_async()), pin!(sleep_async(SECOND)));
            poll_fn(|cx| {
                assert!(lock.as_mut().poll(cx).is_pending());
                patience.as_mut().poll(cx)
            })
            .await;
        });
        sleep(3 * SECOND);
        released_to_task(|| drop(guard));
        block_on(async { (task.await.unwrap(), given_up.await.unwrap()) });
    });
    assert_eq!(charged(&profile::mutex(), "released_to_task"), (1, 4 * SECOND));
}

/// Threads and goroutines on the system's clock: the charges are the waits, up to the times of the wake-ups.
#[test]
fn charges_are_waits_among_threads_and_goroutines() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    named!(storms);
    let (mutex, sema, waited) = (Mutex::new(0_u64), RuntimeSema::INIT, AtomicU64::new(0));
    sema.release(Wake::Normal);
    let contend = || {
        for turn in 0..300 {
            let begun = Instant::now();
            let guard = if turn % 3 == 0 { mutex.try_lock_for(Duration::from_micros(50)) } else { Some(mutex.lock()) };
            waited.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
            let Some(mut guard) = guard else { continue };
            *guard += 1;
            if turn % 10 == 0 {
                thread::sleep(Duration::from_micros(50));
            }
            storms(|| drop(guard));
            // Between two owners the permit is in the counter, where a waiter that is about to be queued finds the permit.
            let begun = Instant::now();
            sema.acquire(Order::Fifo);
            waited.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
            storms(|| sema.release(Wake::Normal));
        }
    };
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(contend);
        }
        run(|| sudog::scope(|s| (0..8).for_each(|_| _ = s.spawn(contend))));
    });
    let (count, delay) = charged(&profile::mutex(), "storms");
    assert!(count > 0 && !delay.is_zero());
    let waited = Duration::from_nanos(waited.into_inner());
    assert!(delay <= waited, "{delay:?} of {waited:?}");
}

named!(released_after_a_storm);

/// Waiters that found a permit on their way to the queue, woke, or lost the permit to another, are counted no more.
#[test]
fn no_waiter_stays_counted() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    let permits = AtomicU32::new(1);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20_000 {
                    semacquire_mutex(&permits, Order::Fifo);
                    semrelease(&permits, Wake::Normal);
                }
            });
        }
    });
    // A waiter that is still counted would be charged for this time, too.
    thread::sleep(Duration::from_millis(50));
    semacquire_mutex(&permits, Order::Fifo);
    thread::scope(|s| {
        let waiter = s.spawn(|| {
            let begun = Instant::now();
            semacquire_mutex(&permits, Order::Fifo);
            begun.elapsed()
        });
        eventually(|| waiters(&permits) == 1);
        released_after_a_storm(|| semrelease(&permits, Wake::Normal));
        let waited = waiter.join().unwrap();
        let (count, delay) = charged(&profile::mutex(), "released_after_a_storm");
        assert!(count == 1 && delay <= waited, "{delay:?} of {waited:?}, {count} times");
    });
}

// ---- the block profile ------------------------------------------------------------------------------------------------

named!(receives sends receives_closed selects_receive selects_send locks awaits_cond awaits_group joins slept);

#[test]
fn block_profile() {
    let _alone = alone();
    profile::set_block_profile_rate(1);
    synctest::test(|| {
        let later = |f: Box<dyn FnOnce() + Send>| {
            go(move || {
                slept(|| sleep(SECOND));
                f();
            });
        };
        let (chan, other) = (Chan::<u32>::new(0), Chan::<u8>::new(0));

        let theirs = chan.clone();
        later(Box::new(move || theirs.send(1)));
        receives(|| chan.recv());

        let theirs = chan.clone();
        later(Box::new(move || _ = theirs.recv()));
        sends(|| chan.send(1));

        let theirs = chan.clone();
        later(Box::new(move || theirs.send(1)));
        selects_receive(|| select! { recv(chan) -> _ => {}, recv(other) -> _ => {} });

        let theirs = chan.clone();
        later(Box::new(move || _ = theirs.recv()));
        selects_send(|| select! { send(chan, 1) -> _ => {}, recv(other) -> _ => {} });

        let theirs = chan.clone();
        later(Box::new(move || theirs.close()));
        receives_closed(|| chan.recv());

        let mutex = Arc::new(Mutex::new(()));
        let (theirs, locked) = (mutex.clone(), Arc::new(AtomicBool::new(false)));
        let has_it = locked.clone();
        go(move || {
            let _guard = theirs.lock();
            has_it.store(true, Relaxed);
            sleep(SECOND);
        });
        synctest::wait();
        assert!(locked.load(Relaxed));
        locks(|| drop(mutex.lock()));

        let pair = Arc::new((Mutex::new(()), Cond::new()));
        let theirs = pair.clone();
        later(Box::new(move || {
            let _guard = theirs.0.lock();
            theirs.1.signal();
        }));
        let mut guard = pair.0.lock();
        awaits_cond(|| pair.1.wait(&mut guard));
        drop(guard);

        let group = Arc::new(WaitGroup::new());
        group.add(1);
        let theirs = group.clone();
        later(Box::new(move || theirs.done()));
        awaits_group(|| group.wait());

        joins(|| spawn(|| sleep(SECOND)).join().unwrap());
    });
    let profile = profile::block();
    let text = profile.to_string();
    for name in [
        "::receives::",
        "::sends::",
        "receives_closed",
        "selects_receive",
        "selects_send",
        "::locks::",
        "awaits_cond",
        "awaits_group",
        "::joins::",
    ] {
        let name = name.trim_end_matches(':');
        let (count, delay) = charged(&profile, name);
        // Do not count `receives_closed` as `receives`, whose name it contains.
        let (more, longer) =
            if name == "::receives" { charged(&profile, "receives_closed") } else { (0, Duration::ZERO) };
        assert_eq!((count - more, delay - longer), (1, SECOND), "{name}\n{text}");
    }
    assert_eq!(charged(&profile, "slept"), (0, Duration::ZERO), "{text}");
}

named!(many_waits);

#[test]
fn each_stack_stands_once() {
    let _alone = alone();
    profile::set_block_profile_rate(1);
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        for _ in 0..100 {
            let theirs = mutex.clone();
            go(move || {
                many_waits(|| {
                    let _guard = theirs.lock();
                    sleep(SECOND);
                });
            });
        }
        sleep(101 * SECOND);
    });
    let (mutexes, blocks) = (profile::mutex(), profile::block());
    assert_eq!(charged(&mutexes, "many_waits"), (99, 99 * 100 / 2 * SECOND));
    assert_eq!(charged(&blocks, "many_waits"), (99, 99 * 100 / 2 * SECOND));
    for profile in [mutexes, blocks] {
        let records = of(&profile, "many_waits");
        for (n, record) in records.iter().enumerate() {
            assert!(records[..n].iter().all(|other| other.frames() != record.frames()), "{profile}");
        }
    }
}

// ---- dumps ----------------------------------------------------------------------------------------------------------

named!(waits_here waits_there);

/// The profile of a dump has a goroutine under each stack, below the kind of the wait. Where switches are not observed,
/// goroutines have no stacks.
#[test]
fn goroutines_as_a_profile() {
    let _alone = alone();
    const LONG: Duration = Duration::from_millis(100);
    run(|| {
        let chan = Chan::<u32>::new(0);
        for n in 0..3 {
            let chan = chan.clone();
            go(move || _ = if n < 2 { waits_here(|| chan.recv()) } else { waits_there(|| chan.recv()) });
        }
        let is_ours = |frame: &profile::Frame| frame.function.contains("goroutines_as_a_profile");
        let (leaks, profile) = loop {
            let leaks = dump().leaks(LONG);
            let profile = leaks.profile();
            let ours = profile.records().iter().filter(|record| record.frames().iter().any(is_ours));
            if ours.map(Record::count).sum::<u64>() == 3 {
                break (leaks, profile);
            }
            sleep(LONG);
        };
        let counts = ["waits_here", "waits_there"].map(|name| charged(&profile, name).0);
        assert_eq!(counts, if cfg!(debug_assertions) { [2, 1] } else { [0, 0] }, "{profile}");
        assert_eq!(profile.records().iter().map(Record::count).sum::<u64>(), leaks.goroutines.len() as u64);
        assert!(profile.delay() > 3 * LONG);
        let record = profile.records().iter().find(|record| record.frames().iter().any(is_ours)).unwrap();
        assert_eq!(record.frames()[0].function, "chan receive", "{profile}");
        assert!(profile.to_string().contains(" goroutines\n      chan receive\n"), "{profile}");
        chan.close();
    });
}

// ---- output -----------------------------------------------------------------------------------------------------------

named!(written_release);

/// A program of Go's, which `SUDOG_GO` names, reads the written files. Without that variable the files are only
/// unpacked.
#[test]
fn files() {
    let _alone = alone();
    assert!(mutex_of_seven_seconds().0);
    let profile = profile::mutex();
    let mut folded = Vec::new();
    profile.write_folded(&mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    let line = folded.lines().find(|line| line.contains("written_release")).unwrap();
    assert!(line.ends_with(" 7000000000"), "{line}");

    let path = std::env::temp_dir().join(format!("sudog-profile-{}.pb.gz", std::process::id()));
    profile.write_pprof(std::fs::File::create(&path).unwrap()).unwrap();
    let unpacked = Command::new("gzip").arg("-dc").arg(&path).output();
    if let Ok(unpacked) = unpacked {
        assert!(unpacked.status.success());
        assert!(String::from_utf8_lossy(&unpacked.stdout).contains("written_release"));
    }
    if let Some(go) = std::env::var_os("SUDOG_GO") {
        let top = Command::new(go)
            .args(["tool", "pprof", "-top", "-cum", "-focus=written_release"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&top.stdout);
        assert!(top.status.success(), "{}", String::from_utf8_lossy(&top.stderr));
        let line = text.lines().find(|line| line.contains("::written_release")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(" 7s "), "{line}");
        assert!(text.contains("Type: delay"), "{text}");
    }
    std::fs::remove_file(path).unwrap();

    /// A writer that takes nothing.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert_eq!(profile.write_pprof(Full).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(profile.write_folded(Full).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}

/// Contends for 7 seconds, and returns whether the waiter has had the lock.
fn mutex_of_seven_seconds() -> (bool, ()) {
    profile::set_mutex_profile_fraction(1);
    synctest::test(|| {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock();
        let theirs = mutex.clone();
        let waiter = spawn(move || drop(theirs.lock()));
        sleep(7 * SECOND);
        written_release(|| drop(guard));
        (waiter.join().is_ok(), ())
    })
}

/// A profile is read while waits are recorded.
#[test]
fn a_profile_is_read_while_others_wait() {
    let _alone = alone();
    profile::set_mutex_profile_fraction(1);
    profile::set_block_profile_rate(1);
    named!(waits_while_read);
    let (mutex, done) = (Mutex::new(()), AtomicBool::new(false));
    let contend = || {
        while !done.load(Relaxed) {
            waits_while_read(|| {
                let _guard = mutex.lock();
                thread::yield_now();
            });
        }
    };
    thread::scope(|s| {
        s.spawn(contend);
        s.spawn(contend);
        let mut count = 0;
        for _ in 0..5 {
            let mut now = count;
            while now == count {
                pat();
                (now, _) = charged(&profile::block(), "waits_while_read");
            }
            assert!(now > count, "{now} after {count}");
            count = now;
        }
        done.store(true, Relaxed);
    });
}
