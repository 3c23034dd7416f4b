//! The ends of runs and of processes. Each test is a child process, judged by its status and its output.
//!
//! These tests run without the test harness, whose threads would be counted, and because the deadlock report must
//! assume that any of these threads could wake any goroutine.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

use std::cell::RefCell;
use std::io::{Read, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::sema::semacquire;
use sudog::runtime::{gosched, max_procs, num_goroutine, set_max_procs};
use sudog::sync::WaitGroup;
use sudog::{Builder, blocking, go, run, scope, spawn, synctest};
use sudog_net::BlockingIo;

const CHILD: &str = "SUDOG_TEST_CHILD";

type Test = (&'static str, fn(), fn(Output));

/// Each test: its name, its program for a child process, and the expected end of that process.
const TESTS: &[Test] = &[
    ("many_runs", many_runs, succeeds),
    ("calls_that_never_return", calls_that_never_return, succeeds),
    ("goroutines_in_frames_of_c", goroutines_in_frames_of_c, succeeds),
    ("a_run_inside_everything", a_run_inside_everything, succeeds),
    ("a_run_that_panics_beside_others", a_run_that_panics_beside_others, succeeds),
    ("a_scope_that_never_ends", a_scope_that_never_ends, |output| {
        fails_with(&output, &["all goroutines are asleep", "\"main\" [scope, ", "\"for ever\" ["]);
    }),
    ("bubbles_leave_nothing_behind", bubbles_leave_nothing_behind, succeeds),
];

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    if let Ok(child) = std::env::var(CHILD) {
        let (_, program, _) = TESTS.iter().find(|(name, ..)| *name == child).expect("a test");
        return program();
    }
    for (name, _, ends) in TESTS.iter().filter(|(name, ..)| name.contains(&filter)) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // Keep the standard input open, and empty.
        let mut child = command
            .env(CHILD, name)
            .env_remove("SUDOG_MAXPROCS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let begun = Instant::now();
        let ended = loop {
            if child.try_wait().unwrap().is_some() {
                break true;
            }
            if begun.elapsed() > Duration::from_secs(120) {
                child.kill().unwrap();
                break false;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        assert!(ended, "{name} does not end: {}", words(&output));
        ends(output);
        println!("test {name} ... ok");
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn succeeds(output: Output) {
    assert!(output.status.success(), "{}: {}", output.status, words(&output));
}

#[track_caller]
fn fails_with(output: &Output, says: &[&str]) {
    let text = words(output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    says.iter().for_each(|said| assert!(text.contains(said), "{said:?} is not in {text}"));
}

fn for_ever() {
    semacquire(&AtomicU32::new(0));
}

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// Waits until the process has so many threads: the system lists a thread for a moment after its join.
fn until_threads(wanted: usize) {
    let mut seen = 0;
    while seen != wanted {
        let now = count("/proc/self/task");
        if now != seen {
            eprintln!("{now} threads; {wanted} are expected");
            seen = now;
        }
        thread::yield_now();
    }
}

/// Returns the number of resident pages.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// After many runs, the numbers of threads and descriptors, the memory and the goroutines are as after the first runs.
fn many_runs() {
    const RUNS: u32 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let some = |runs: u32| {
        for round in 0..runs {
            let sum = run(|| spawn(move || round).join().unwrap() + 1);
            assert_eq!(sum, round + 1);
            // As in Go, a goroutine that has been joined may not have ended yet.
            while num_goroutine() > 0 {
                thread::yield_now();
            }
            run(|| ());
            assert_eq!(num_goroutine(), 0, "the main goroutine is counted off before `run` returns");
        }
    };
    set_max_procs(max_procs()); // from then on the watcher reads no files to see whether the number has changed
    some(1000);
    let at_first = (count("/proc/self/task"), count("/proc/self/fd"));
    let pages = memory();
    some(RUNS);
    until_threads(at_first.0);
    assert_eq!(count("/proc/self/fd"), at_first.1, "descriptors");
    assert!(memory() <= pages + 256, "{} pages, and {pages} before", memory());
}

/// The process ends with its main function, even while goroutines are blocked in reads.
fn calls_that_never_return() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let (reader, writer) = pipe().unwrap();
    let reader = Arc::new(reader);
    run(move || {
        for _ in 0..600 {
            let reader = reader.clone();
            go(move || {
                blocking(|| {
                    BEGUN.fetch_add(1, Relaxed);
                    (&*reader).read(&mut [0; 1])
                })
                .unwrap();
            });
        }
        go(|| _ = BlockingIo::new(std::io::stdin()).read(&mut [0; 1]));
        while BEGUN.load(Relaxed) < 500 {
            gosched();
        }
    });
    std::mem::forget(writer);
}

/// When `run` returns, a goroutine waits in a callback of C, in a frame that no panic may leave.
fn goroutines_in_frames_of_c() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        let local = std::hint::black_box(Arc::new(5));
        INSIDE.fetch_add(1, Relaxed);
        for_ever();
        *local
    }
    run(|| {
        go(|| {
            let mut numbers = [3, 1, 2];
            // SAFETY: `numbers` has three numbers of four bytes, and `compare` does not unwind.
            unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 4, Some(compare)) };
        });
        while INSIDE.load(Relaxed) == 0 {
            gosched();
        }
    });
    assert_eq!(run(|| spawn(|| 1).join().unwrap()), 1);
}

/// In a goroutine `run` is a plain call; on any other thread `run` waits for a goroutine of its own.
fn a_run_inside_everything() {
    assert_eq!(run(|| run(|| run(|| 1))), 1, "in a run");
    assert_eq!(run(|| blocking(|| run(|| spawn(|| 2).join().unwrap()))), 2, "in a blocking call");
    struct Runs;
    impl Drop for Runs {
        fn drop(&mut self) {
            assert_eq!(run(|| spawn(|| 3).join().unwrap()), 3);
        }
    }
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _runs = Runs;
        panic!("by intent");
    }));
    assert!(panics.is_err(), "in a destructor during a panic");
    thread_local! {
        static AT_THE_END: RefCell<Option<Runs>> = const { RefCell::new(None) };
    }
    thread::spawn(|| AT_THE_END.with(|runs| *runs.borrow_mut() = Some(Runs))).join().unwrap();
    let (a, b) = thread::scope(|s| {
        let other = s.spawn(|| run(|| spawn(|| 4).join().unwrap()));
        (run(|| 5), other.join().unwrap())
    });
    assert_eq!((a, b), (5, 4), "on two threads at once");
}

/// The panic comes out of `run`. The other goroutines go on, and the waiting goroutines stay.
fn a_run_that_panics_beside_others() {
    let (begun, gate) = (Arc::new(WaitGroup::new()), Arc::new(AtomicU32::new(0)));
    begun.add(2);
    let shared = (begun.clone(), gate.clone());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            let (begun, gate) = shared;
            let theirs = begun.clone();
            go(move || {
                theirs.done();
                for_ever();
            });
            let theirs = begun.clone();
            go(move || {
                theirs.done();
                semacquire(&gate);
                theirs.add(1);
            });
            begun.wait();
            panic!("by intent");
        })
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"by intent"));
    assert_eq!(num_goroutine(), 2);
    sudog::low_level::sema::semrelease(&gate, sudog::low_level::sema::Wake::Normal);
    while num_goroutine() == 2 {
        thread::yield_now();
    }
    assert_eq!(num_goroutine(), 1, "the goroutine that waits for ever");
}

fn a_scope_that_never_ends() {
    run(|| {
        scope(|s| Builder::new().name("for ever").go_scoped(s, for_ever));
    });
}

/// A bubble that ends leaves no thread. A bubble with goroutines left keeps its thread, and disturbs no other bubble.
fn bubbles_leave_nothing_behind() {
    let bubble = || {
        synctest::test(|| {
            go(|| sudog::time::sleep(Duration::from_secs(3600)));
            sudog::time::sleep(Duration::from_secs(7200));
        });
    };
    let after_one = || {
        bubble();
        count("/proc/self/task")
    };
    let threads = (0..20).map(|_| after_one()).min().unwrap();
    (0..1000).for_each(|_| bubble());
    until_threads(threads);
    for _ in 0..3 {
        let left = catch_unwind(|| synctest::test(|| go(for_ever)));
        assert!(left.is_err(), "a goroutine is left");
        let stuck = catch_unwind(|| synctest::test(for_ever));
        assert!(stuck.is_err(), "main waits for ever");
        bubble();
    }
    until_threads(threads + 6);
    assert_eq!(num_goroutine(), 0, "outside of bubbles");
}
