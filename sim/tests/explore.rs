//! Exploration finds the failures of wrong programs, and no failure in right programs.

use std::hint::black_box;
use std::panic::resume_unwind;
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use sudog_sim::atomic::{AtomicPtr, AtomicU32};
use sudog_sim::explore::{Explore, Schedule, read_schedule, write_schedule};
use sudog_sim::sync::{Condvar, Mutex};
use sudog_sim::{Cell, Choice, futex, thread, time};

#[global_allocator]
static ARENA: sudog_sim::Arena = sudog_sim::Arena;

const SEEDS: std::ops::Range<u64> = 0..1000;

fn explore(schedule: Schedule) -> Explore {
    Explore { schedule, most: 20_000, ..Explore::default() }
}

/// Runs two threads that each add 1 by a load and a store.
fn lost_update() {
    let n = Arc::new(AtomicU32::new(0));
    let add = |n: Arc<AtomicU32>| move || n.store(n.load(Relaxed) + 1, Relaxed);
    let other = thread::spawn(add(n.clone()));
    add(n.clone())();
    other.join().expect("it does not panic");
    assert_eq!(n.load(Relaxed), 2, "an update is lost");
}

/// Locks two mutexes in two orders.
fn two_orders() {
    let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
    let both = |locks: Arc<[Mutex<()>; 2]>, first: usize| {
        let _first = locks[first].lock();
        let _second = locks[1 - first].lock();
    };
    let theirs = locks.clone();
    let other = thread::spawn(move || both(theirs, 1));
    both(locks, 0);
    other.join().expect("it does not panic");
}

/// Looks at the condition only once after a sleep: a futex may return for no reason.
fn believes_its_futex() {
    let word = Arc::new(AtomicU32::new(0));
    let theirs = word.clone();
    let other = thread::spawn(move || {
        theirs.store(1, Release);
        futex::wake(&raw const *theirs, 1);
    });
    futex::wait(&word, 0, None);
    assert_eq!(word.load(Acquire), 1, "it was woken for nothing");
    other.join().expect("it does not panic");
}

/// Lets a timer go off just as the awaited event happens.
fn gives_up_too_late() {
    let word = Arc::new(AtomicU32::new(0));
    let theirs = word.clone();
    let other = thread::spawn(move || {
        if theirs.swap(1, Release) == 2 {
            panic!("the waiter has given up");
        }
    });
    if !futex::wait(&word, 0, Some(time::now() + Duration::from_secs(1))) {
        word.store(2, Relaxed);
    }
    other.join().expect("it does not panic");
}

/// Waits for a store that never comes.
fn spins_for_ever() {
    let word = AtomicU32::new(0);
    while word.load(Acquire) == 0 {
        sudog_sim::pause();
    }
}

/// Passes values through a queue of one place, by a mutex and a condition variable.
fn a_right_program() {
    let queue = Arc::new((Mutex::new(None), Condvar::new()));
    let theirs = queue.clone();
    let producer = thread::spawn(move || {
        for value in 0..3 {
            let mut place = theirs.0.lock().expect("nothing is poisoned");
            while place.is_some() {
                place = theirs.1.wait(place).expect("nothing is poisoned");
            }
            *place = Some(value);
            theirs.1.notify_all();
        }
    });
    for value in 0..3 {
        let mut place = queue.0.lock().expect("nothing is poisoned");
        while place.is_none() {
            place = queue.1.wait(place).expect("nothing is poisoned");
        }
        assert_eq!(place.take(), Some(value));
        queue.1.notify_all();
    }
    producer.join().expect("it does not panic");
    let begun = time::now();
    time::sleep(Duration::from_secs(3600));
    assert!(time::now() - begun >= Duration::from_secs(3600), "an hour of simulated time");
}

/// Checks that a timer that is an hour away does not end a wait that a wake-up ends.
fn waits_for_an_hour() {
    let (word, deadline) = (AtomicU32::new(0), time::now() + Duration::from_secs(3600));
    thread::scope(|s| {
        let waker = s.spawn(|| {
            word.store(1, Release);
            futex::wake(&raw const word, 1);
            7
        });
        while word.load(Acquire) == 0 {
            assert!(futex::wait(&word, 0, Some(deadline)), "the hour is over");
        }
        assert_eq!(waker.join().expect("it does not panic"), 7);
    });
}

/// Checks that a scope passes on the panic of a thread that was not joined.
fn scope_of_a_panic() {
    thread::scope(|s| _ = s.spawn(|| resume_unwind(Box::new(()))));
}

/// A place where a waiter leaves the address of its word, for the waker.
#[derive(Default)]
struct Mailbox {
    word: AtomicPtr<AtomicU32>,
    full: AtomicU32,
}

impl Mailbox {
    /// Leaves a word, and sleeps until the word is set.
    fn wait(&self, word: &AtomicU32) {
        self.word.store(ptr::from_ref(word).cast_mut(), Relaxed);
        self.full.store(1, Release);
        futex::wake(&raw const self.full, 1);
        while word.load(Acquire) == 0 {
            futex::wait(word, 0, None);
        }
    }

    /// Sets the word that a waiter has left, and wakes the waiter.
    fn wake(&self) -> Left {
        while self.full.load(Acquire) == 0 {
            futex::wait(&self.full, 0, None);
        }
        let word = self.word.load(Relaxed);
        // SAFETY: the waiter keeps the word until the word is set.
        unsafe { (*word).store(1, Release) };
        futex::wake(word, 1); // uses only the address
        Left(word)
    }
}

/// The word of a waiter that has been woken.
struct Left(*const AtomicU32);

impl Left {
    /// Looks at the word by mistake: the waiter may have freed the word.
    fn look(&self) {
        // SAFETY: none, on purpose. The machine stops before this step if the word has been freed.
        unsafe { (*self.0).load(Relaxed) };
    }
}

fn wakes_a_word_on_the_heap(looks: bool) {
    let mailbox = Mailbox::default();
    thread::scope(|s| {
        s.spawn(|| {
            let word = mailbox.wake();
            if looks {
                word.look();
            }
        });
        let word = Box::new(AtomicU32::new(0));
        mailbox.wait(&word);
        drop(word);
        // The new box must not lie in the same place.
        let other = black_box(Box::new(AtomicU32::new(0)));
        other.store(1, Relaxed);
    });
}

/// Wakes a waiter, and then, if `looks`, reads a cell that lies beside the waiter's word. The machine does not count that
/// read as a step.
fn reads_a_cell_on_the_heap(looks: bool) {
    struct Waiter {
        word: AtomicU32,
        outcome: Cell<u32>,
    }
    let mailbox = Mailbox::default();
    thread::scope(|s| {
        let waiter = Box::new(Waiter { word: AtomicU32::new(0), outcome: Cell::new(0) });
        let outcome = ptr::from_ref(&waiter.outcome).expose_provenance();
        let mailbox = &mailbox;
        s.spawn(move || {
            mailbox.wake();
            if looks {
                // SAFETY: none, on purpose. The machine stops before this access if the waiter has been freed.
                unsafe { (*ptr::with_exposed_provenance::<Cell<u32>>(outcome)).get() };
            }
        });
        mailbox.wait(&waiter.word);
        drop(waiter);
    });
}

/// Waits in a frame far below the frame of the caller, so that the caller's next frames lie elsewhere.
#[inline(never)]
fn waits_in_a_frame(mailbox: &Mailbox) {
    #[inline(never)]
    fn wait(mailbox: &Mailbox) {
        let word = AtomicU32::new(0);
        mailbox.wait(black_box(&word));
    }
    let room = black_box([0_u8; 4096]);
    wait(mailbox);
    black_box(&room);
}

fn wakes_a_word_in_a_frame(looks: bool) {
    let mailbox = Mailbox::default();
    thread::scope(|s| {
        s.spawn(|| {
            let word = mailbox.wake();
            if looks {
                word.look();
            }
        });
        waits_in_a_frame(&mailbox);
    });
}

fn wakes_a_word_of_a_thread_that_ends(looks: bool) {
    let mailbox = Arc::new(Mailbox::default());
    let theirs = mailbox.clone();
    let waiter = thread::spawn(move || waits_in_a_frame(&theirs));
    let word = mailbox.wake();
    waiter.join().expect("it does not panic");
    // Only the handle of the thread is left, and the thread's stack is unmapped.
    while sudog_sim::live_threads() > 1 {
        thread::yield_now();
    }
    if looks {
        word.look();
    }
}

/// Checks that a block is used again at last, because memory is finite, but not soon.
fn frees_much() {
    let block = || Box::new([0_u64; 256]);
    let first = ptr::from_ref(&*block()).addr();
    let mut others = 1..100_000;
    let again = others.find(|_| ptr::from_ref(&*black_box(block())).addr() == first).expect("it comes again");
    assert!(again > 10_000, "it comes again after {again} others");
}

fn finds(name: &str, program: fn(), schedule: Schedule, words: &str) {
    let explore = explore(schedule);
    let failure = explore.check(SEEDS, &program).expect_err(name);
    assert!(failure.what.contains(words), "{name}: {failure}");
    assert!(failure.schedule.len() <= failure.first && failure.schedule.len() <= 6, "{name}: {failure}");
    // The failure's schedule, as text, makes the program fail again, in the same way; and a seed repeats its execution.
    let text = write_schedule(&failure.schedule);
    let again = explore.replay(&read_schedule(&text).expect("written above"), &program).expect("it fails again");
    assert_eq!(again.what, failure.what, "{name}");
    let second = explore.check(failure.seed..failure.seed + 1, &program).expect_err("the same seed");
    assert_eq!(second.to_string(), failure.to_string(), "{name}");
    assert!(failure.timeline().starts_with("{\"format\":\"sudog-sim 1\",\"traceEvents\":["));
    println!("{name}: seed {}, {} of {} decisions", failure.seed, failure.schedule.len(), failure.first);
}

/// The kinds of schedules. Each is explored by a process of its own, which gets the number of its kind in [`KIND`].
const SCHEDULES: [Schedule; 3] = [Schedule::Random(3), Schedule::Priorities(2), Schedule::Mixed];
const KIND: &str = "SUDOG_TEST_SCHEDULES";

fn main() {
    if let Ok(kind) = std::env::var(KIND) {
        return explore_all(SCHEDULES[kind.parse::<usize>().expect("a number")]);
    }
    let program = std::env::current_exe().expect("this program has a path");
    let kind = |kind: usize| Command::new(&program).env(KIND, kind.to_string()).spawn().expect("the program starts");
    let children: Vec<_> = (0..SCHEDULES.len()).map(kind).collect();
    explore_one();
    for mut child in children {
        assert!(child.wait().expect("the child ends").success());
    }
    println!("all good");
}

fn explore_all(schedule: Schedule) {
    finds("lost update", lost_update, schedule, "an update is lost");
    finds("two orders", two_orders, schedule, "deadlock: no thread can run");
    finds("believes its futex", believes_its_futex, schedule, "it was woken for nothing");
    finds("gives up too late", gives_up_too_late, schedule, "the waiter has given up");
    let block = "load of freed memory by thread 1";
    finds("a freed block", || wakes_a_word_on_the_heap(true), schedule, block);
    finds("a frame", || wakes_a_word_in_a_frame(true), schedule, "a frame of thread 0 (main) that is no more");
    finds("a cell", || reads_a_cell_on_the_heap(true), schedule, "plain load of freed memory by thread 1");
    let stack = "the stack of thread 1";
    finds("the stack of a thread", || wakes_a_word_of_a_thread_that_ends(true), schedule, stack);
    finds("spins for ever", spins_for_ever, schedule, "no end after 20000 decisions");
    let explored = explore(schedule).check(0..300, &a_right_program);
    assert_eq!(explored.map_err(|failure| failure.to_string()), Ok(300));
    for right in [
        || wakes_a_word_on_the_heap(false),
        || reads_a_cell_on_the_heap(false),
        || wakes_a_word_in_a_frame(false),
        || wakes_a_word_of_a_thread_that_ends(false),
    ] {
        let explored = explore(schedule).check(SEEDS, &right);
        assert_eq!(explored.map_err(|failure| failure.to_string()), Ok(SEEDS.end));
    }
    finds("the scope of a panic", scope_of_a_panic, schedule, "a scoped thread panicked");
    let explored = explore(schedule).check(SEEDS, &waits_for_an_hour);
    assert_eq!(explored.map_err(|failure| failure.to_string()), Ok(SEEDS.end));
}

fn explore_one() {
    let explored = Explore::default().check(0..1, &frees_much);
    assert_eq!(explored.map_err(|failure| failure.to_string()), Ok(1));
    // A schedule may name an absent thread: a schedule that has lost some of its decisions spawns fewer threads in the
    // same time.
    let absent = explore(Schedule::Mixed).replay(&[(1, Choice::Spurious(9)), (2, Choice::Run(9))], &a_right_program);
    assert!(absent.is_none(), "{absent:?}");
    let schedule = [(3, Choice::Run(2)), (4, Choice::Timer), (9, Choice::Jump(77)), (10, Choice::Spurious(1))];
    assert_eq!(read_schedule(&write_schedule(&schedule)).expect("it is one"), schedule);
    assert_eq!(read_schedule(""), Some(Vec::new()), "the default alone");
    for bad in ["x", "1:run", "1:jump-1", "1:wakex", ":timer", ",", "1:run2,", "5:run1,3:run2", "5:run1,5:timer"] {
        assert!(read_schedule(bad).is_none(), "{bad}");
    }
}
