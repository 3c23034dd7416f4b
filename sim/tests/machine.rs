//! The machine with costs is exact, gives the same result each time, and behaves like a machine.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use sudog_sim::atomic::{AtomicU32, AtomicU64};
use sudog_sim::sync::{Mutex, OnceLock};
use sudog_sim::{
    Details, Machine, Preset, Traffic, Why, end_slice_extension, futex, pause, request_slice_extension, thread, time,
    traffic, work,
};

#[global_allocator]
static ARENA: sudog_sim::Arena = sudog_sim::Arena;

#[repr(align(128))]
struct OwnLine<T>(T);

fn machine(processors: usize) -> Machine {
    let preset = Preset::named("altra").expect("a machine of this name");
    Machine { processors, limit: Duration::from_secs(1), ..Machine::new(preset) }
}

/// Runs a spinning ticket lock. Returns the throughput for `threads` threads in 2 ms, and the traffic.
fn ticket_lock(machine: &Machine, threads: usize) -> (u64, Traffic) {
    type Lock = (OwnLine<AtomicU32>, OwnLine<AtomicU32>, OwnLine<AtomicU32>, OwnLine<AtomicU64>);
    let run = move || {
        let lock: Arc<Lock> = Arc::new((
            OwnLine(AtomicU32::new(0)),
            OwnLine(AtomicU32::new(0)),
            OwnLine(AtomicU32::new(0)),
            OwnLine(AtomicU64::new(0)),
        ));
        let contend = |lock: Arc<Lock>| {
            move || {
                let (next, serving, stop, visits) = &*lock;
                while stop.0.load(Relaxed) == 0 {
                    let me = next.0.fetch_add(1, Relaxed);
                    while serving.0.load(Acquire) != me {
                        pause();
                    }
                    visits.0.store(visits.0.load(Relaxed) + 1, Relaxed);
                    serving.0.store(me + 1, Release);
                    work(50);
                }
            }
        };
        let contenders: Vec<_> = (0..threads).map(|_| thread::spawn(contend(lock.clone()))).collect();
        thread::sleep(Duration::from_millis(2));
        lock.2.0.store(1, Relaxed);
        contenders.into_iter().for_each(|contender| contender.join().expect("it does not panic"));
        (lock.3.0.load(Relaxed), traffic())
    };
    machine.run(run).expect("it ends")
}

#[test]
fn a_seed_gives_one_execution() {
    let of = |seed| ticket_lock(&Machine { seed, ..machine(8) }, 8);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2), "misses vary by seed");
}

/// Checks that each release invalidates the copy of each waiter, so throughput falls as waiters are added: the shape
/// that textbooks show.
#[test]
fn a_ticket_lock_decays() {
    let [few, many] = [4, 64].map(|threads| ticket_lock(&machine(128), threads));
    assert!(few.0 > many.0 * 3 / 2, "{few:?} {many:?}");
    let per_visit = |(visits, traffic): (u64, Traffic)| traffic.invalidations as f64 / visits as f64;
    assert!(per_visit(many) > 4.0 * per_visit(few), "{few:?} {many:?}");
}

#[test]
fn a_hit_is_cheap_and_a_miss_is_not() {
    let times = machine(2).run(|| {
        let word = Arc::new(AtomicU32::new(0));
        let time = |word: &AtomicU32| {
            let begun = time::now();
            word.fetch_add(1, SeqCst);
            time::now() - begun
        };
        let first = time(&word);
        let own = time(&word);
        let theirs = word.clone();
        thread::spawn(move || theirs.fetch_add(1, SeqCst)).join().expect("it does not panic");
        (first, own, time(&word))
    });
    let (first, own, other) = times.expect("it ends");
    assert!(own < first / 2 && own < other / 2, "{first:?} {own:?} {other:?}");
}

#[test]
fn sleeps_take_their_time_and_deadlines_hold() {
    let run = machine(1).run(|| {
        let begun = time::now();
        thread::sleep(Duration::from_millis(5));
        let slept = time::now() - begun;
        let word = AtomicU32::new(0);
        let woken = futex::wait(&word, 0, Some(time::now() + Duration::from_millis(1)));
        let changed = futex::wait(&word, 1, None);
        (slept, woken, changed, time::now() - begun)
    });
    let (slept, woken, changed, all) = run.expect("it ends");
    assert!((5..6).contains(&slept.as_millis()) && !woken && changed, "{slept:?}");
    assert!(all >= Duration::from_millis(6), "{all:?}");
}

/// Checks that two threads that compute on one processor take turns: the second does not wait until the first has
/// ended.
#[test]
fn threads_of_one_processor_take_turns() {
    let finished = machine(1).run(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let compute = |name, ms: u64, order: Arc<Mutex<Vec<&'static str>>>| {
            move || {
                work(ms * 3_000_000);
                order.lock().expect("nothing is poisoned").push(name);
            }
        };
        let long = thread::spawn(compute("long", 100, order.clone()));
        let short = thread::spawn(compute("short", 10, order.clone()));
        long.join().expect("it does not panic");
        short.join().expect("it does not panic");
        Arc::into_inner(order).expect("both have ended").into_inner().expect("nothing is poisoned")
    });
    assert_eq!(finished.expect("it ends"), ["short", "long"]);
}

/// Holds a word for `cycles` again and again, on one processor beside a thread that looks at the word once in each of its
/// slices. Returns how often that thread has found the word held, of 20 looks.
fn times_found_held(cycles: u64, asks: bool, calls: bool) -> u32 {
    let run = machine(1).run(move || {
        let (held, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let holder = {
            let (held, stop) = (held.clone(), stop.clone());
            thread::spawn(move || {
                while stop.load(Relaxed) == 0 {
                    if asks {
                        request_slice_extension();
                    }
                    held.store(1, Relaxed);
                    work(cycles);
                    if calls {
                        futex::wake(&raw const *stop, 1); // nobody sleeps there
                    }
                    work(cycles);
                    held.store(0, Relaxed);
                    end_slice_extension();
                }
            })
        };
        let mut found = 0;
        for _ in 0..20 {
            found += held.load(Relaxed);
            thread::yield_now();
        }
        stop.store(1, Relaxed);
        holder.join().expect("it does not panic");
        found
    });
    run.expect("it ends")
}

/// Checks that a thread which asks for an extension is not preempted inside a section of 2 us, but at its end; and that
/// a system call ends the extension, and so does its limit of 5 us.
#[test]
fn an_extended_slice_ends_with_its_section() {
    const MICROSECOND: u64 = 3_000;
    assert!(times_found_held(MICROSECOND, false, false) > 15, "preempted in the section, without a request");
    assert_eq!(times_found_held(MICROSECOND, true, false), 0);
    assert!(times_found_held(MICROSECOND, true, true) > 5, "a system call ends the extension");
    assert!(times_found_held(13 * MICROSECOND, true, false) > 10, "the section is longer than an extension");
}

/// Checks that a spinning thread keeps its processor until its slice ends, and that then other threads run: so the
/// awaited store happens.
#[test]
fn a_spinner_does_not_keep_its_processor_for_ever() {
    let run = machine(1).run(|| {
        let word = Arc::new(AtomicU32::new(0));
        let theirs = word.clone();
        let other = thread::spawn(move || theirs.store(1, Release));
        while word.load(Acquire) == 0 {
            pause();
        }
        other.join().expect("it does not panic");
    });
    run.expect("it ends");
}

/// Looks at two lines in each round of a loop. The first line may change before the second look: the thread must not
/// sleep then.
#[test]
fn a_spinner_misses_no_change_between_two_looks() {
    let memory = Preset::named("altra").expect("a machine of this name").memory;
    // The thread sleeps after 512 rounds: the delays end in each cycle of some rounds before and after that point.
    let asleep = 512 * (memory.pause + 2 * memory.load);
    let run = move || {
        for delay in asleep - 1000..asleep + 1500 {
            let words = Arc::new([0; 3].map(|word| OwnLine(AtomicU32::new(word))));
            let theirs = words.clone();
            let spinner = thread::spawn(move || {
                let [spins, ends, other] = &*theirs;
                spins.0.store(1, Release);
                while ends.0.load(Acquire) == 0 {
                    other.0.load(Relaxed);
                    pause();
                }
            });
            let [spins, ends, _] = &*words;
            while spins.0.load(Acquire) == 0 {
                pause();
            }
            work(delay);
            ends.0.store(1, Release);
            spinner.join().expect("it does not panic");
        }
    };
    machine(2).run(run).expect("each spinner sees the change");
}

/// Checks that a delay by pauses alone ends by itself, because such a delay looks at no line.
#[test]
fn a_delay_ends_though_nothing_changes() {
    let run = machine(2).run(|| {
        let word = AtomicU32::new(0);
        for _ in 0..3 {
            word.load(Acquire);
            word.load(Acquire);
            (0..2000).for_each(|_| pause());
        }
    });
    run.expect("it ends");
}

/// Checks that a deadlock is reported by names and places, which need no debug information, so in each profile.
#[test]
fn a_deadlock_is_named_at_once() {
    let begun = line!();
    let stopped = machine(2)
        .run(|| {
            let (word, mutex) = (AtomicU32::new(0), Arc::new(Mutex::new(())));
            let theirs = mutex.clone();
            let _guard = mutex.lock();
            let lock = move || drop(theirs.lock());
            let locker = thread::Builder::new().name("locker".into()).spawn(lock).expect("a thread");
            drop(thread::spawn(move || futex::wait(&word, 0, None)));
            locker.join().expect("it does not panic");
        })
        .expect_err("no thread can run");
    assert_eq!((stopped.why.clone(), stopped.threads.len()), (Why::Deadlock, 3));
    let place = |offset: u32| format!("at sim/tests/machine.rs:{}:", begun + offset);
    let text = stopped.to_string();
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    assert!(lines[0].starts_with("deadlock: no thread can run, and no timer is set"), "{text}");
    let expected = [
        ("main sleeps on futex 1, ", place(9), None),
        ("locker sleeps on futex 2, ", place(6), Some(place(7))),
        ("thread 2 sleeps on futex 3, ", place(8), Some(place(8))),
    ];
    for (line, (what, waits, spawned)) in lines[1..].iter().zip(expected) {
        assert!(line.starts_with(&format!("{what}{waits}")), "{text}");
        assert_eq!(
            line.split_once("; spawned ").map(|(_, at)| at.rsplit_once(':').map(|(at, _)| format!("{at}:"))),
            spawned.map(Some),
            "{text}"
        );
    }
    if cfg!(debug_assertions) {
        assert!(stopped.threads.iter().all(|thread| thread.backtrace.contains("a_deadlock_is_named_at_once")));
    }
}

#[test]
fn a_program_that_spins_for_ever_is_stopped() {
    let stopped = machine(2)
        .run(|| {
            let word = AtomicU32::new(0);
            let _clock = thread::spawn(|| {
                loop {
                    thread::sleep(Duration::from_millis(100));
                }
            });
            while word.load(Acquire) == 0 {
                pause();
            }
        })
        .expect_err("it spins");
    assert_eq!(stopped.why, Why::OutOfTime);
    assert!(stopped.to_string().contains("main spins on a line that no thread changes"), "{stopped}");
}

#[test]
fn a_panic_is_the_joiners() {
    let joined = machine(2).run(|| thread::spawn(|| panic!("on purpose")).join().is_err());
    assert!(joined.expect("it ends"));
}

#[test]
#[should_panic(expected = "of main")]
fn a_panic_of_main_goes_on() {
    drop(machine(1).run(|| panic!("of main")));
}

#[test]
#[should_panic(expected = "1 to 128 processors")]
fn more_processors_than_there_can_be() {
    drop(machine(129).run(|| ()));
}

sudog_sim::thread_local! {
    static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(7) };
}

#[test]
fn each_thread_has_its_own_locals_and_all_share_a_cell() {
    static CELL: OnceLock<u32> = OnceLock::new();
    let seen = machine(4).run(|| {
        OWN.set(1);
        let look = || {
            let before = OWN.get();
            OWN.set(9);
            (before, *CELL.get_or_init(|| 5))
        };
        let others: Vec<_> = (0..3).map(|_| thread::spawn(look)).collect();
        let seen: Vec<_> = others.into_iter().map(|other| other.join().expect("it does not panic")).collect();
        (OWN.get(), seen)
    });
    assert_eq!(seen.expect("it ends"), (1, vec![(7, 5); 3]));
    assert_eq!(OWN.get(), 7, "outside a simulation it is the system's thread's");
}

/// Runs `main` on a machine with these details. Returns the traffic.
fn traffic_with(details: Details, main: fn()) -> Traffic {
    let mut machine = machine(16);
    machine.preset.details = details;
    let run = move || {
        main();
        traffic()
    };
    machine.run(run).expect("it ends")
}

/// Walks twice over 128 lines, which lie in two pages or three.
fn walk() {
    let lines: Vec<_> = (0..64).map(|_| OwnLine((AtomicU64::new(0), [0_u64; 7], AtomicU64::new(0)))).collect();
    for _ in 0..2 {
        for line in &lines {
            line.0.0.fetch_add(1, Relaxed);
            line.0.2.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn a_cache_or_a_tlb_that_is_too_small_misses() {
    let [all, fits, small] = [0, 1024, 64].map(|cache| traffic_with(Details { cache, ..Details::NONE }, walk).misses);
    assert_eq!(all, fits, "the lines fit");
    assert!(small >= all + 128, "{small} {all}");
    let [none, large, small] = [0, 64, 1].map(|tlb| traffic_with(Details { tlb, ..Details::NONE }, walk).tlb_misses);
    assert!(none == 0 && (2..8).contains(&large) && small > large, "{none} {large} {small}");
}

/// Lets two threads count, each in its own line of a pair of lines.
fn neighbours() {
    let pair = Arc::new(OwnLine((AtomicU64::new(0), [0_u64; 7], AtomicU64::new(0))));
    let theirs = pair.clone();
    let count = |word: &AtomicU64| (0..10_000).for_each(|_| _ = word.fetch_add(1, Relaxed));
    let other = thread::spawn(move || count(&theirs.0.2));
    count(&pair.0.0);
    other.join().expect("it does not panic");
}

#[test]
fn a_miss_that_fetches_a_pair_takes_the_other_line_from_its_owner() {
    let [alone, pairs] = [false, true].map(|pairs| traffic_with(Details { pairs, ..Details::NONE }, neighbours).misses);
    assert!(pairs > alone, "{alone} {pairs}");
}

/// Lets sixteen threads call the system for a word of each.
fn wakers() {
    let wake = || {
        let word = OwnLine(AtomicU32::new(0));
        (0..100).for_each(|_| futex::wake(&raw const word.0, 1));
        assert!(futex::wait(&word.0, 1, None), "the word has another value");
    };
    let wakers: Vec<_> = (0..16).map(|_| thread::spawn(wake)).collect();
    wakers.into_iter().for_each(|waker| waker.join().expect("it does not panic"));
}

#[test]
fn calls_for_words_of_one_bucket_wait_for_each_other() {
    let [none, one, many] =
        [0, 1, 1 << 20].map(|futex| traffic_with(Details { futex, ..Details::NONE }, wakers).futex_waits);
    assert!(none == 0 && one > 100 && many < one / 10, "{none} {one} {many}");
}
