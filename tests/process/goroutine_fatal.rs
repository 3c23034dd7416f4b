//! Processes that end because of a goroutine. Each test is a child process, judged by its output and its status.
//!
//! These tests run without the test harness, because the deadlock report must assume that any thread of the harness
//! could wake any goroutine.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::{Chan, channel, select};
use sudog::csp::ActiveSet;
use sudog::low_level::event::Recorder;
use sudog::low_level::sema::{Wake, semacquire, semacquire_async, semrelease, waiters};
use sudog::low_level::{G, Leaving, SwitchHooks, add_switch_hooks};
use sudog::runtime::{dump, goexit, gosched, set_max_blocking, set_max_procs, set_stack_size};
use sudog::sync::{GoMutex, GoRwMutex, LockAsync, Mutex, Once, RwMutex, RwMutexWith, ShardedRwMutex, WaitGroup};
use sudog::time::{Ticker, Timer, after, after_func, sleep, sleep_async};
use sudog::x::{ErrGroup, Weighted};
use sudog::{
    Builder, JoinHandle, OnPanic, Placement, WaitLimit, block_on, blocking, compute, context, go, go_async, run, scope,
    spawn, spawn_async, without_switching,
};
use sudog_net::{TcpListener, TcpStream};
use sudog_sync::signal::{Signal, notify};

const CHILD: &str = "SUDOG_TEST_CHILD";

/// Runs `program` in a child process. The child is this program again, which then finds the variable set.
fn in_a_child(test: &str, env: &[(&str, &str)], program: fn()) -> Output {
    if std::env::var_os(CHILD).is_some() {
        program();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, test).env_remove("SUDOG_MAXPROCS").envs(env.iter().copied());
    command.output().unwrap()
}

fn main() {
    let tests: &[(&str, fn())] = &[
        ("a_panic_ends_the_process", a_panic_ends_the_process),
        ("a_panic_whose_handle_is_dropped_ends_the_process", a_panic_whose_handle_is_dropped_ends_the_process),
        (
            "the_report_of_a_dropped_handle_names_the_goroutine_that_panicked",
            the_report_of_a_dropped_handle_names_the_goroutine_that_panicked,
        ),
        ("a_joined_panic_does_not", a_joined_panic_does_not),
        ("goroutines_of_groups_have_names", goroutines_of_groups_have_names),
        ("the_size_of_stacks", the_size_of_stacks),
        ("all_goroutines_are_asleep", all_goroutines_are_asleep),
        ("the_code_that_started_those_that_wait", the_code_that_started_those_that_wait),
        ("a_join_of_a_task_that_waits_for_ever", a_join_of_a_task_that_waits_for_ever),
        ("a_once_in_itself", a_once_in_itself),
        ("goroutines_that_wait_for_each_other_are_reported", goroutines_that_wait_for_each_other_are_reported),
        ("threads_that_wait_for_each_other_are_reported", threads_that_wait_for_each_other_are_reported),
        ("threads_beside_no_goroutine_are_reported", threads_beside_no_goroutine_are_reported),
        ("a_watch_for_long_waits_hides_no_deadlock", a_watch_for_long_waits_hides_no_deadlock),
        ("a_call_on_a_long_wait_is_no_deadlock", a_call_on_a_long_wait_is_no_deadlock),
        ("cycles_beside_foreign_threads_are_reported", cycles_beside_foreign_threads_are_reported),
        ("a_goroutine_that_blocks_its_worker_is_in_a_cycle", a_goroutine_that_blocks_its_worker_is_in_a_cycle),
        ("waits_of_threads_and_tasks_that_are_no_cycle_are_not", waits_of_threads_and_tasks_that_are_no_cycle_are_not),
        ("waits_that_are_no_cycle_are_not", waits_that_are_no_cycle_are_not),
        ("waits_for_readers_that_are_no_cycle_are_not", waits_for_readers_that_are_no_cycle_are_not),
        ("locks_that_are_taken_in_two_orders_are_reported", locks_that_are_taken_in_two_orders_are_reported),
        ("a_lock_that_is_read_again_is_reported", a_lock_that_is_read_again_is_reported),
        ("locks_that_are_taken_in_one_order_are_not", locks_that_are_taken_in_one_order_are_not),
        ("a_future_that_has_a_lock_and_is_not_polled", a_future_that_has_a_lock_and_is_not_polled),
        ("a_dump_knows_how_long_all_have_slept", a_dump_knows_how_long_all_have_slept),
        ("main_goexits", main_goexits),
        ("a_foreign_thread_that_has_ended_hides_no_deadlock", a_foreign_thread_that_has_ended_hides_no_deadlock),
        ("no_deadlock_where_there_is_none", no_deadlock_where_there_is_none),
        ("a_call_to_come_is_no_deadlock", a_call_to_come_is_no_deadlock),
        ("a_stopped_timer_is_a_deadlock", a_stopped_timer_is_a_deadlock),
        ("a_context_without_a_cancel", a_context_without_a_cancel),
        ("the_deadline_of_a_context_is_no_deadlock", the_deadline_of_a_context_is_no_deadlock),
        ("an_alarm_that_has_gone_off_hides_no_deadlock", an_alarm_that_has_gone_off_hides_no_deadlock),
        ("a_stack_overflow_has_a_name", a_stack_overflow_has_a_name),
        ("nonsense_in_the_environment_is_refused", nonsense_in_the_environment_is_refused),
        ("the_environment_says_how_many_workers", the_environment_says_how_many_workers),
        ("threads_have_the_numbers_of_their_workers", threads_have_the_numbers_of_their_workers),
        ("waits_in_initialisers_are_found", waits_in_initialisers_are_found),
        ("a_goroutine_that_computes_is_reported", a_goroutine_that_computes_is_reported),
        ("a_goroutine_that_waits_where_it_may_not_switch", a_goroutine_that_waits_where_it_may_not_switch),
        ("a_goroutine_that_computes_alone_is_not", a_goroutine_that_computes_alone_is_not),
        ("all_threads_for_blocking_calls_are_taken", all_threads_for_blocking_calls_are_taken),
        ("a_raised_limit_starts_a_thread_for_each_call", a_raised_limit_starts_a_thread_for_each_call),
        ("a_switch_hook_that_panics", a_switch_hook_that_panics),
        ("a_switch_hook_that_waits", a_switch_hook_that_waits),
        ("a_switch_hook_that_only_tries", a_switch_hook_that_only_tries),
        ("a_switch_hook_that_locks", a_switch_hook_that_locks),
        ("a_switch_hook_that_starts_goroutines", a_switch_hook_that_starts_goroutines),
        ("a_switch_hook_that_calls_run", a_switch_hook_that_calls_run),
        ("a_forked_child_cannot_count_on_workers", a_forked_child_cannot_count_on_workers),
        ("a_goroutine_that_forks_cannot_count_on_workers", a_goroutine_that_forks_cannot_count_on_workers),
        ("what_a_forked_child_may_do", what_a_forked_child_may_do),
        ("what_a_goroutine_that_forks_may_do", what_a_goroutine_that_forks_may_do),
        ("a_child_forked_before_the_runtime_may_do_all", a_child_forked_before_the_runtime_may_do_all),
    ];
    if let Ok(child) = std::env::var(CHILD) {
        let (_, test) = tests.iter().find(|(name, _)| *name == child).unwrap();
        return test();
    }
    // The first argument selects tests, as in the harness: a word that a test's name must contain.
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let tests = StdMutex::new(tests.iter().filter(|(name, _)| name.contains(&filter)));
    let next = || tests.lock().unwrap().next();
    // Most children wait most of the time.
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while let Some((name, test)) = next() {
                    test();
                    println!("test {name} ... ok");
                }
            });
        }
    });
}

/// A raised limit starts a thread for each call. The test counts the threads, so it needs a process of its own.
fn a_raised_limit_starts_a_thread_for_each_call() {
    let output = in_a_child("a_raised_limit_starts_a_thread_for_each_call", &[], || {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        static OVER: AtomicUsize = AtomicUsize::new(0);
        set_max_blocking(1);
        run(|| {
            let call = || {
                spawn(|| {
                    blocking(|| {
                        BEGUN.fetch_add(1, Relaxed);
                        while OVER.load(Relaxed) == 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                    });
                })
            };
            let calls = [call(), call(), call()];
            while BEGUN.load(Relaxed) == 0 {
                gosched();
            }
            (0..10).for_each(|_| gosched());
            set_max_blocking(1000);
            while BEGUN.load(Relaxed) < 3 {
                gosched();
            }
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            let threads = names.filter(|name| name.starts_with("sudog-blocking")).count();
            assert_eq!(threads, 3, "for three calls");
            OVER.store(1, Relaxed);
            calls.into_iter().for_each(|call| call.join().unwrap());
        });
    });
    assert!(output.status.success(), "{}", words(&output));
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_says(output: &Output, status: i32, says: &[&str]) {
    let words = words(output);
    assert_eq!(output.status.code(), Some(status), "{words}");
    for text in says {
        assert!(words.contains(text), "{text:?} is missing in: {words}");
    }
}

fn a_panic_ends_the_process() {
    let output = in_a_child("a_panic_ends_the_process", &[], || {
        run(|| {
            Builder::new().name("unlucky").go(|| panic!("boom"));
            sleep(Duration::from_secs(100));
        });
    });
    assert_says(&output, 2, &["panic: boom\n\ngoroutine ", "\"unlucky\" [running]"]);
}

fn a_panic_whose_handle_is_dropped_ends_the_process() {
    let output = in_a_child("a_panic_whose_handle_is_dropped_ends_the_process", &[], || {
        run(|| {
            drop(spawn(|| panic!("nobody asked")));
            sleep(Duration::from_secs(100));
        });
    });
    assert_says(&output, 2, &["panic: nobody asked"]);
}

/// The report names the goroutine, whether the panic or the drop of the handle comes first.
fn the_report_of_a_dropped_handle_names_the_goroutine_that_panicked() {
    let output = in_a_child("the_report_of_a_dropped_handle_names_the_goroutine_that_panicked", &[], || {
        run(|| {
            let handle = Builder::new().name("unlucky").spawn(|| panic!("boom"));
            while !handle.is_finished() {
                gosched();
            }
            let dropper = Builder::new().name("dropper").spawn(move || drop(handle));
            dropper.join().unwrap();
        });
    });
    assert_says(&output, 2, &["panic: boom\n\ngoroutine ", "\"unlucky\" [running]"]);
    assert!(!words(&output).contains("dropper"), "{}", words(&output));
}

fn goroutines_of_groups_have_names() {
    let output = in_a_child("goroutines_of_groups_have_names", &[], || {
        static TASKS: WaitGroup = WaitGroup::new();
        run(|| {
            TASKS.go_static(|| sleep(Duration::from_millis(1)));
            TASKS.wait();
            let (group, errors) = (Arc::new(WaitGroup::new()), ErrGroup::new());
            group.go_with(Builder::new().name("of a wait group"), || semacquire(&NEVER));
            errors.go_with(Builder::new().name("of an error group"), || {
                semacquire(&NEVER);
                Ok::<_, Infallible>(())
            });
            group.wait();
        });
    });
    static NEVER: AtomicU32 = AtomicU32::new(0);
    assert_says(&output, 2, &["\"of a wait group\" [", "\"of an error group\" ["]);
}

fn the_size_of_stacks() {
    fn depth(n: usize) -> usize {
        let frame = std::hint::black_box([n; 1024]);
        if n == 0 { 0 } else { 1 + depth(frame[0] - 1) }
    }
    let output = in_a_child("the_size_of_stacks", &[], || {
        assert!(std::panic::catch_unwind(|| set_stack_size(usize::MAX)).is_err());
        set_stack_size(32 << 20).unwrap();
        set_stack_size(32 << 20).unwrap();
        run(|| {
            for _ in 0..3 {
                assert_eq!(spawn(|| depth(500)).join().unwrap(), 500); // at least 4 MB
            }
            let small = Builder::new().stack_size(1 << 20).spawn(|| depth(3));
            assert_eq!(small.join().unwrap(), 3);
        });
        assert_eq!(set_stack_size(1 << 20).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
        println!("deep enough");
    });
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("deep enough"));
}

fn a_joined_panic_does_not() {
    let output = in_a_child("a_joined_panic_does_not", &[], || {
        run(|| {
            assert!(spawn(|| panic!("joined")).join().is_err());
            let ended = Arc::new(());
            let inside = ended.clone();
            Builder::new().on_panic(OnPanic::Unwind).go(move || {
                let _inside = inside;
                panic!("nobody minds")
            });
            while Arc::strong_count(&ended) > 1 {
                gosched();
            }
        });
    });
    assert_says(&output, 0, &[]);
}

fn all_goroutines_are_asleep() {
    let output = in_a_child("all_goroutines_are_asleep", &[], || {
        static MUTEX: Mutex<()> = Mutex::new(());
        static NEVER: AtomicU32 = AtomicU32::new(0);
        run(|| {
            Builder::new().name("keeper").go(|| {
                let _guard = MUTEX.lock();
                semacquire(&NEVER);
            });
            while waiters(&NEVER) == 0 {
                gosched();
            }
            drop(MUTEX.lock());
        });
    });
    let main = "\"main\" [sync.Mutex.Lock, ";
    assert_says(&output, 2, &["fatal error: all goroutines are asleep - deadlock!\n\n", main, "\"keeper\" ["]);
    let origin = "\n    started as goroutine_fatal::all_goroutines_are_asleep::{{closure}}::{{closure}}";
    assert_says(&output, 2, &[&format!("{origin}\n"), &format!("{origin}::{{{{closure}}}}\n")]);
    // The mutex knows its holder only in builds with debug assertions.
    if cfg!(debug_assertions) {
        assert_says(&output, 2, &[", held by goroutine ", "\"keeper\""]);
    }
}

/// The report names the user's closure, by whatever call the goroutine was started.
fn the_code_that_started_those_that_wait() {
    let output = in_a_child("the_code_that_started_those_that_wait", &[], || {
        fn in_a_function() {
            semacquire(&AtomicU32::new(0));
        }
        run(|| {
            let group = Arc::new(WaitGroup::new());
            group.go(in_a_function);
            spawn(in_a_function);
            spawn(|| block_on(std::future::pending::<()>()));
            go_async(async { in_a_function() });
            scope(|s| {
                s.go(in_a_function);
                s.spawn(in_a_function);
            });
        });
    });
    let here = "started as goroutine_fatal::the_code_that_started_those_that_wait::{{closure}}";
    assert_says(&output, 2, &["fatal error: all goroutines are asleep - deadlock!\n\n"]);
    let text = words(&output);
    assert_eq!(text.matches(&format!("{here}::in_a_function\n")).count(), 4, "{text}");
    // In builds with debug assertions the list has the task, too, with the goroutine that polls the task.
    assert_eq!(text.matches(here).count(), 6 + usize::from(cfg!(debug_assertions)), "{text}");
    assert_eq!(text.matches("started as a task\n").count(), 1, "{text}");
}

/// A task that nothing can wake any more stays. So a join of that task is a deadlock, and is reported.
fn a_join_of_a_task_that_waits_for_ever() {
    let output = in_a_child("a_join_of_a_task_that_waits_for_ever", &[], || {
        run(|| spawn_async(std::future::pending::<()>()).join().unwrap());
    });
    assert_says(&output, 2, &["fatal error: all goroutines are asleep - deadlock!\n\n", "\"main\" [join, "]);
    if cfg!(debug_assertions) {
        assert_says(&output, 2, &["\ntask 1 [waiting, ", "created at tests/process/goroutine_fatal.rs:"]);
    }
}

fn a_once_in_itself() {
    let output = in_a_child("a_once_in_itself", &[], || {
        static ONCE: Once = Once::new();
        run(|| ONCE.do_(|| ONCE.do_(|| ())));
    });
    assert_says(&output, 2, &["fatal error: all goroutines are asleep - deadlock!\n\n", "\"main\" [sync.Once.Do, "]);
}

/// The thread that looks for long waits is no foreign thread, unless that thread calls a user's function.
fn a_watch_for_long_waits_hides_no_deadlock() {
    let output = in_a_child("a_watch_for_long_waits_hides_no_deadlock", &[], || {
        Recorder::new().goroutines().start();
        let file = std::env::temp_dir().join(format!("sudog-long-wait-{}.json", std::process::id()));
        Recorder::write_on_long_wait(&["sync."], Duration::from_secs(3600), file).unwrap();
        run(|| semacquire(&AtomicU32::new(0)));
    });
    assert_says(&output, 2, &["fatal error: all goroutines are asleep - deadlock!\n\n"]);
}

/// No deadlock is reported while a function that is called on a long wait may end that wait.
fn a_call_on_a_long_wait_is_no_deadlock() {
    let output = in_a_child("a_call_on_a_long_wait_is_no_deadlock", &[], || {
        let ends = Chan::new(1);
        let theirs = ends.clone();
        Recorder::new().goroutines().start();
        Recorder::on_long_wait(&["chan"], Duration::from_millis(500), move |_, _| theirs.send(())).unwrap();
        run(|| ends.recv());
    });
    assert_says(&output, 0, &[]);
}

/// A cycle of goroutines is reported while a foreign thread and another goroutine go on.
fn goroutines_that_wait_for_each_other_are_reported() {
    fn program() {
        thread::spawn(|| thread::sleep(Duration::from_secs(60)));
        run(|| {
            let [one, other] = pairs();
            goroutine("ab", one);
            goroutine("ba", other);
            Builder::new().name("twice").go(|| {
                let mutex = Mutex::new(());
                let _first = mutex.lock();
                let _second = mutex.lock();
            });
            // The runtime looks for cycles a second after a wait has begun, and again if a worker has not answered.
            sleep(Duration::from_millis(if std::env::var_os("SUDOG_STALLS").is_some() { 1500 } else { 6000 }));
            eprintln!("main goes on");
        });
    }
    let output = in_a_child("goroutines_that_wait_for_each_other_are_reported", &[], program);
    assert_says(&output, 0, &["main goes on\n"]);
    let text = words(&output);
    // The mutex knows its holder only in builds with debug assertions.
    let reports = if cfg!(debug_assertions) { 2 } else { 0 };
    assert_eq!(text.matches("sudog: deadlock: each of these goroutines waits for the next").count(), reports, "{text}");
    if cfg!(debug_assertions) {
        let held = ["\"ab\" [sync.Mutex.Lock, ", "\"ba\"\n    started as", "\"twice\"\n    started as"];
        assert_says(&output, 0, &held);
        assert_says(&output, 0, &["    created at tests/process/goroutine_fatal.rs:"]);
        let silent = in_a_child("goroutines_that_wait_for_each_other_are_reported", &[("SUDOG_STALLS", "0")], program);
        assert_eq!(words(&silent), "main goes on\n");
    }
}

type Pair = ([Arc<Mutex<()>>; 2], Arc<WaitGroup>);

/// Two mutexes, in two orders; and a group in which each side is done when it holds its first mutex.
fn pairs() -> [Pair; 2] {
    let [a, b] = [(), ()].map(|()| Arc::new(Mutex::new(())));
    let held = group_of_two();
    [([a.clone(), b.clone()], held.clone()), ([b, a], held)]
}

fn group_of_two() -> Arc<WaitGroup> {
    let group = Arc::new(WaitGroup::new());
    group.add(2);
    group
}

fn both(([first, second], held): Pair) {
    let _first = first.lock();
    held.done();
    held.wait();
    let _second = second.lock();
}

/// The line on which `both` waits for ever.
const SECOND: u32 = line!() - 4;

fn thread(name: &str, pair: Pair) {
    thread::Builder::new().name(name.into()).spawn(|| both(pair)).unwrap();
}

fn goroutine(name: &str, pair: Pair) {
    Builder::new().name(name).go(|| both(pair));
}

/// Cycles of threads, of a thread and a goroutine, and of goroutines that block their worker or poll a task, are reported
/// while the rest goes on.
fn threads_that_wait_for_each_other_are_reported() {
    fn program() {
        run(|| {
            let [one, other] = pairs();
            thread("two-threads", one);
            thread("other-thread", other);
            let [one, other] = pairs();
            thread("a-thread", one);
            goroutine("a-goroutine", other);
            let [one, other] = pairs();
            go_async(async { both(one) });
            goroutine("beside-task", other);
            // A thread reads, and wants the lock of a goroutine that wants to write.
            let (rw, mutex) = (Arc::new(RwMutex::new(())), Arc::new(Mutex::new(())));
            let held = group_of_two();
            let theirs = (rw.clone(), mutex.clone(), held.clone());
            let reads = move || {
                let _read = theirs.0.read();
                theirs.2.done();
                theirs.2.wait();
                drop(theirs.1.lock());
            };
            thread::Builder::new().name("reads".into()).spawn(reads).unwrap();
            Builder::new().name("writes").go(move || {
                let _guard = mutex.lock();
                held.done();
                held.wait();
                drop(rw.write());
            });
            // The runtime looks for cycles a second after a wait has begun, and again if a worker has not answered.
            sleep(Duration::from_millis(8000));
            eprintln!("{}\nmain goes on", dump());
        });
    }
    let output = in_a_child("threads_that_wait_for_each_other_are_reported", &[("SUDOG_MAXPROCS", "2")], program);
    assert_says(&output, 0, &["main goes on\n"]);
    let text = words(&output);
    let reports: Vec<&str> = text.split("sudog: deadlock: each of ").skip(1).collect();
    if !cfg!(debug_assertions) {
        return assert!(reports.is_empty(), "{text}");
    }
    assert_eq!(reports.len(), 4, "{text}");
    let members = [
        ["\"two-threads\" [sync.Mutex.Lock, ", "\"other-thread\" [sync.Mutex.Lock, "],
        ["\"a-thread\" [sync.Mutex.Lock, ", "\"a-goroutine\" [sync.Mutex.Lock, "],
        ["started as a task\n", "\"beside-task\" [sync.Mutex.Lock, "],
        ["\"reads\" [sync.Mutex.Lock, ", "\"writes\" [sync.RWMutex.Lock, "],
    ];
    for [one, other] in members {
        // After the first line comes the list of the members, and then perhaps other output.
        let list = |report: &str| report.split("\n\n").nth(1).unwrap_or_default().to_owned();
        let is_of = |report: &&&str| list(report).contains(one) && list(report).contains(other);
        assert_eq!(reports.iter().filter(is_of).count(), 1, "{one}, {other}: {text}");
    }
    assert_says(&output, 0, &[", held by thread ", "these goroutines and threads waits for the next"]);
}

/// The first words of the report of a cycle.
const CYCLE: &str = "sudog: deadlock: each of ";

/// Runs `program` in a child process, until the child has reported as many cycles as it must in a build with debug
/// assertions, and then until its end. Returns the child's words.
fn with_reports(test: &str, reports: usize, program: fn()) -> String {
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: `alarm` has no precondition. The signal ends this child if it hangs.
        unsafe { libc::alarm(60) };
        program();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, test).env_remove("SUDOG_MAXPROCS").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut text, reports) = (String::new(), if cfg!(debug_assertions) { reports } else { 0 });
    while text.matches(CYCLE).count() < reports && stderr.read_line(&mut text).unwrap() > 0 {}
    drop(child.stdin.take());
    stderr.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert_eq!(text.matches(CYCLE).count(), reports, "{text}");
    text
}

/// Waits until the parent has read the reports. Then the parent closes the standard input.
fn wait_for_the_parent() {
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Two threads that wait for each other are reported while no goroutine exists, and the watcher sleeps.
fn threads_beside_no_goroutine_are_reported() {
    let text = with_reports("threads_beside_no_goroutine_are_reported", 1, || {
        run(|| ());
        // The first wait hands the watcher the search, and rouses the watcher by that. Let the search end, a second later.
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.lock();
        let theirs = mutex.clone();
        let waiter = thread::spawn(move || drop(theirs.lock()));
        thread::sleep(Duration::from_millis(50));
        drop(held);
        waiter.join().unwrap();
        thread::sleep(Duration::from_millis(2000)); // the watcher falls asleep; the report must come if it has not, too
        let [one, other] = pairs();
        thread("a-thread", one);
        thread("other-thread", other);
        wait_for_the_parent();
    });
    let place = format!("    waits at tests/process/goroutine_fatal.rs:{SECOND}:");
    assert_eq!(text.matches(&place).count(), if cfg!(debug_assertions) { 2 } else { 0 }, "{text}");
}

/// Cycles are reported, with the place of each member, and no other wait is, beside threads of tokio, a goroutine in
/// `accept`, a listener for signals and a ticker; and all of these go on.
fn cycles_beside_foreign_threads_are_reported() {
    static DEEDS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
    fn program() {
        let [polled, ticked, accepted, signalled] = &DEEDS;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.spawn(async {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                polled.fetch_add(1, Relaxed);
            }
        });
        run(|| {
            go(|| {
                let ticker = Ticker::new(Duration::from_millis(1));
                loop {
                    ticker.recv();
                    ticked.fetch_add(1, Relaxed);
                }
            });
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            go(move || {
                while listener.accept().is_ok() {
                    accepted.fetch_add(1, Relaxed);
                }
            });
            let signals = Chan::new(1);
            notify(&signals, &[Signal::USR1]);
            go(move || {
                while signals.recv().is_some() {
                    signalled.fetch_add(1, Relaxed);
                }
            });
            // A thread waits for a mutex whose owner, a goroutine, waits for a value: a chain, and no cycle.
            let (mutex, (tx, rx)) = (Arc::new(Mutex::new(())), channel::<()>(0));
            let held = mutex.clone();
            Builder::new().name("keeper").go(move || {
                let _guard = held.lock();
                _ = rx.recv();
            });
            while !mutex.is_locked() {
                gosched();
            }
            thread::Builder::new().name("behind".into()).spawn(move || drop(mutex.lock())).unwrap();
            let [one, other] = pairs();
            goroutine("ab", one);
            goroutine("ba", other);
            let [one, other] = pairs();
            thread("a-thread", one);
            goroutine("a-goroutine", other);
            blocking(wait_for_the_parent);
            let before = DEEDS.each_ref().map(|deed| deed.load(Relaxed));
            _ = TcpStream::connect(address).unwrap();
            signal_hook::low_level::raise(Signal::USR1.as_raw()).unwrap();
            while DEEDS.iter().zip(before).any(|(deed, before)| deed.load(Relaxed) == before) {
                gosched();
            }
            drop(tx);
            eprintln!("all goes on");
        });
    }
    let text = with_reports("cycles_beside_foreign_threads_are_reported", 2, program);
    assert!(text.contains("all goes on\n"), "{text}");
    let place = format!("tests/process/goroutine_fatal.rs:{SECOND}:");
    for report in text.split(CYCLE).skip(1) {
        assert_eq!(report.matches("[sync.Mutex.Lock, ").count(), 2, "{text}");
        assert!(report.matches(&place).count() >= 2, "{text}"); // a report of a stall may come in between
        assert_eq!(report.matches("    waits for the object at 0x").count(), 2, "{text}");
        assert_eq!(
            report.contains("\"ab\" [") && report.contains("\"ba\" ["),
            !report.contains("\"a-thread\" ["),
            "{text}"
        );
        assert_eq!(report.contains("\"a-goroutine\" ["), report.contains(&format!("    waits at {place}")), "{text}");
    }
}

/// A goroutine that waits where it may not switch blocks its worker, which does not answer dumps.
fn a_goroutine_that_blocks_its_worker_is_in_a_cycle() {
    let env = [("SUDOG_MAXPROCS", "2")];
    let output = in_a_child("a_goroutine_that_blocks_its_worker_is_in_a_cycle", &env, || {
        Builder::new().on(Placement::Worker(0)).run(|| {
            let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
            let (first, second) = (b.clone(), a.clone());
            let held = a.lock();
            Builder::new().name("fixed").on(Placement::Worker(1)).go(move || {
                without_switching(|| {
                    let _first = first.lock();
                    drop(second.lock());
                });
            });
            while !b.is_locked() {
                gosched();
            }
            Builder::new().name("ends-it").on(Placement::Worker(0)).go(|| {
                sleep(Duration::from_millis(4000));
                std::process::exit(0);
            });
            drop((b.lock(), held));
        });
    });
    assert_says(&output, 0, &[]);
    let text = words(&output);
    if cfg!(debug_assertions) {
        let says =
            ["these goroutines and threads waits for the next", "\"sudog-1\", goroutine ", "\"main\" [sync.Mutex.Lock"];
        assert_says(&output, 0, &says);
    }
    assert_eq!(text.matches("sudog: deadlock: ").count(), usize::from(cfg!(debug_assertions)), "{text}");
}

/// A thread before the first goroutine has no watcher. A task that holds a lock between polls, and one that waits for a
/// future, are no members of a cycle.
#[allow(clippy::await_holding_lock)] // that is what is tested
fn waits_of_threads_and_tasks_that_are_no_cycle_are_not() {
    let output = in_a_child("waits_of_threads_and_tasks_that_are_no_cycle_are_not", &[], || {
        const LONG: Duration = Duration::from_millis(1500);
        run(|| {
            // A chain of threads, and a thread with a deadline in a cycle.
            let [a, b, c] = [(), (), ()].map(|()| Arc::new(Mutex::new(())));
            let (first, second) = (a.clone(), b.clone());
            let held = b.lock();
            let chain = thread::spawn(move || {
                let _first = first.lock();
                drop(second.lock());
            });
            sleep(LONG);
            drop(held);
            blocking(|| chain.join().unwrap());
            let both = [(a.clone(), b.clone()), (b.clone(), a)].map(|(first, second)| {
                thread::spawn(move || {
                    let _first = first.lock();
                    thread::sleep(Duration::from_millis(50));
                    drop(second.try_lock_for(LONG));
                })
            });
            both.into_iter().for_each(|one| blocking(|| one.join().unwrap()));
            // The task holds `b` and waits for `c` until a timer ends the wait; a thread holds `c` and waits for `b`.
            let (theirs, other) = (b.clone(), c.clone());
            let task = spawn_async(async move {
                let _b = theirs.lock_async().await;
                sleep_async(Duration::from_millis(50)).await;
                let mut c = pin!(other.lock_async());
                let mut timer = pin!(sleep_async(LONG));
                poll_fn(|cx| match c.as_mut().poll(cx) {
                    Poll::Ready(_) => Poll::Ready(()),
                    Poll::Pending => timer.as_mut().poll(cx),
                })
                .await;
            });
            let thread = thread::spawn(move || {
                let _c = c.lock();
                thread::sleep(Duration::from_millis(100));
                drop(b.lock());
            });
            task.join().unwrap();
            blocking(|| thread.join().unwrap());
        });
    });
    assert_says(&output, 0, &[]);
    assert!(!words(&output).contains("deadlock"), "{}", words(&output));
}

/// A long wait, a chain of waits, and a cycle that deadlines end are not reported as deadlocks.
fn waits_that_are_no_cycle_are_not() {
    let output = in_a_child("waits_that_are_no_cycle_are_not", &[], || {
        run(|| {
            let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
            let (first, second) = (a.clone(), b.clone());
            let held = b.lock();
            let chain = spawn(move || {
                let _first = first.lock();
                drop(second.lock());
            });
            sleep(Duration::from_millis(1500));
            drop(held);
            chain.join().unwrap();
            let both = [(a.clone(), b.clone()), (b, a)].map(|(first, second)| {
                spawn(move || {
                    let _first = first.lock();
                    sleep(Duration::from_millis(50));
                    drop(second.try_lock_for(Duration::from_millis(1500)));
                })
            });
            both.into_iter().for_each(|one| one.join().unwrap());
        });
    });
    assert_says(&output, 0, &[]);
    assert!(!words(&output).contains("deadlock"), "{}", words(&output));
}

/// A writer that waits for readers is not reported: of readers that go on, of a goroutine whose read another goroutine
/// has ended, and of goroutines that use semaphores as locks.
fn waits_for_readers_that_are_no_cycle_are_not() {
    const LONG: Duration = Duration::from_millis(1500);
    let output = in_a_child("waits_for_readers_that_are_no_cycle_are_not", &[], || {
        run(|| {
            // Two readers go on after some time.
            let rw = Arc::new(GoRwMutex::new());
            let readers = [(), ()].map(|()| {
                let rw = rw.clone();
                spawn(move || {
                    rw.rlock();
                    sleep(LONG);
                    rw.runlock();
                })
            });
            while rw.readers() < 2 {
                gosched();
            }
            rw.lock();
            rw.unlock();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            // This goroutine reads, and another one ends that read. Then this goroutine waits for a writer that waits for
            // a third goroutine, which reads.
            rw.rlock();
            let theirs = rw.clone();
            spawn(move || theirs.runlock()).join().unwrap();
            let theirs = rw.clone();
            let reader = spawn(move || {
                theirs.rlock();
                sleep(2 * LONG);
                theirs.runlock();
            });
            while rw.readers() == 0 {
                gosched();
            }
            let mutex = Arc::new(GoMutex::new());
            let (theirs, first) = (rw.clone(), mutex.clone());
            let writer = spawn(move || {
                first.lock();
                theirs.lock();
                theirs.unlock();
                first.unlock();
            });
            while !rw.has_writer() {
                gosched();
            }
            mutex.lock();
            mutex.unlock();
            reader.join().unwrap();
            writer.join().unwrap();
            // Two goroutines take two semaphores in opposite orders. That is no deadlock, as a third goroutine may release them.
            let locks = Arc::new([Weighted::new(1), Weighted::new(1)]);
            let both = [(0, 1), (1, 0)].map(|(first, second)| {
                let locks = locks.clone();
                spawn(move || {
                    let background = context::background();
                    locks[first].acquire(&background, 1).unwrap();
                    while locks[second].try_acquire(1) {
                        locks[second].release(1);
                        gosched();
                    }
                    locks[second].acquire(&background, 1).unwrap();
                })
            });
            while locks.iter().any(|lock| lock.waiters() == 0) {
                gosched();
            }
            sleep(LONG);
            locks.iter().for_each(|lock| lock.release(1));
            both.into_iter().for_each(|one| one.join().unwrap());
        });
    });
    assert_says(&output, 0, &[]);
    assert_eq!(words(&output), "");
}

/// The variable that turns the check of the order of locks on.
const CHECK_ORDER: (&str, &str) = ("SUDOG_CHECK_ORDER", "1");

/// The second order is reported at once, though nothing waits. The report has the four calls.
fn locks_that_are_taken_in_two_orders_are_reported() {
    const FIRST: u32 = line!() + 5;
    fn program() {
        run(|| {
            let (a, b) = (Mutex::new(()), RwMutex::new(()));
            for round in 0..4 {
                if round % 2 == 0 { drop((a.lock(), b.read())) } else { drop((b.write(), a.lock())) }
            }
            eprintln!("main goes on");
        });
    }
    let test = "locks_that_are_taken_in_two_orders_are_reported";
    let output = in_a_child(test, &[CHECK_ORDER], program);
    assert_says(&output, 0, &["main goes on\n"]);
    let text = words(&output);
    if cfg!(debug_assertions) {
        assert_eq!(text.matches("sudog: locks are taken in two orders").count(), 1, "{text}");
        let place = format!("tests/process/goroutine_fatal.rs:{FIRST}:");
        assert_eq!(text.matches(&place).count(), 4, "{place} in {text}");
        let main =
            format!("goroutine {} \"main\"", text.split("goroutine ").nth(1).unwrap().split(' ').next().unwrap());
        let says = ["locked lock", "now wants lock", "had locked lock", "wanted lock", main.as_str()];
        assert_says(&output, 0, &says);
    } else {
        assert_eq!(text, "main goes on\n");
    }
    assert_eq!(words(&in_a_child(test, &[], program)), "main goes on\n");
    assert_eq!(words(&in_a_child(test, &[("SUDOG_CHECK_ORDER", "0")], program)), "main goes on\n");
}

/// Threads are checked, too.
fn a_lock_that_is_read_again_is_reported() {
    let output = in_a_child("a_lock_that_is_read_again_is_reported", &[CHECK_ORDER], || {
        let lock = RwMutex::new(());
        drop((lock.read(), lock.read()));
        drop(lock.read());
    });
    let reports = if cfg!(debug_assertions) { 1 } else { 0 };
    let text = words(&output);
    assert_eq!(text.matches("sudog: a lock is read-locked again").count(), reports, "{text}");
    assert_eq!(text.matches("thread \"main\" read-locked lock 1 at ").count(), reports, "{text}");
}

#[allow(clippy::await_holding_lock)] // that is what is tested
fn locks_that_are_taken_in_one_order_are_not() {
    let output = in_a_child("locks_that_are_taken_in_one_order_are_not", &[CHECK_ORDER], || {
        run(|| {
            let soon = || Instant::now() + Duration::from_secs(60);
            // A lock at the address of an earlier lock is another lock, and a lock that moves is the same lock.
            let mut locks = Vec::from([Mutex::new(()), Mutex::new(())]);
            for _ in 0..4 {
                drop((locks[0].lock(), locks[1].lock()));
                locks = Vec::from([Mutex::new(()), Mutex::new(())]);
                drop((locks[1].lock(), locks[0].lock()));
                locks.swap(0, 1);
            }
            // Tries make no order.
            let (a, b) = (Arc::new(Mutex::new(())), Arc::new(RwMutex::new(())));
            drop((a.lock(), b.read()));
            drop((b.write(), a.try_lock().unwrap()));
            drop((b.read(), a.try_lock_until(soon()).unwrap()));
            let (a, b) = (Arc::new(RwMutex::new(())), Arc::new(Mutex::new(())));
            drop((a.write(), b.lock()));
            drop((b.lock(), a.try_read_until(soon()).unwrap()));
            drop((b.lock(), a.try_write_until(soon()).unwrap(), a.try_read()));
            // Another goroutine unlocks.
            let guard = Mutex::lock_arc(&b);
            spawn(move || drop(guard)).join().unwrap();
            drop((a.write(), b.lock()));
            // A reader after a writer, and readers beside each other.
            let reader = sudog::sync::lock_api::RwLockWriteGuard::downgrade(a.write());
            let other = a.clone();
            spawn(move || drop(other.read())).join().unwrap();
            drop(reader);
            drop((a.read(), b.lock()));
            // A task goes on with a lock, while its worker runs other goroutines.
            let (theirs, never) = (b.clone(), Arc::new(AtomicU32::new(0)));
            let task = {
                let never = never.clone();
                spawn_async(async move {
                    let _b = theirs.lock();
                    semacquire_async(&never).await;
                })
            };
            while waiters(&never) == 0 {
                gosched();
            }
            drop(a.read());
            semrelease(&never, Wake::Normal);
            task.join().unwrap();
            // A Cond takes its lock again, and a mutex whose readers scale has locks of its own.
            let (cond, sharded) = (sudog::sync::Cond::new(), RwMutexWith::<ShardedRwMutex, ()>::new(()));
            let _a = a.write();
            let mut guard = b.lock();
            cond.wait_limited(&mut guard, Duration::from_millis(1)).unwrap_err();
            drop(sharded.read());
            drop(sharded.write());
            drop(sharded.try_write().unwrap());
        });
    });
    assert_says(&output, 0, &[]);
    assert_eq!(words(&output), "");
}

/// A task that has begun to wait for a lock, and then waits for something else, is reported when the lock is free. A
/// future that is polled, or dropped, is not.
fn a_future_that_has_a_lock_and_is_not_polled() {
    const QUEUED: u32 = line!() + 11;
    fn program() {
        run(|| {
            static NEVER: AtomicU32 = AtomicU32::new(0);
            for what_then in ["is polled", "is dropped", "is kept"] {
                let mutex = Arc::new(Mutex::new(()));
                let held = mutex.lock();
                let (theirs, queued) = (mutex.clone(), Arc::new(AtomicUsize::new(0)));
                let is_queued = queued.clone();
                go_async(async move {
                    let mut lock = Box::pin(theirs.lock_async());
                    assert!(poll_fn(|cx| Poll::Ready(lock.as_mut().poll(cx).is_pending())).await);
                    is_queued.store(1, Relaxed);
                    if what_then == "is polled" {
                        return drop(lock.await);
                    }
                    if what_then == "is dropped" {
                        sleep_async(Duration::from_millis(100)).await;
                        drop(lock);
                    }
                    semacquire_async(&NEVER).await;
                });
                while queued.load(Relaxed) == 0 {
                    gosched();
                }
                drop(held);
            }
            // Longer than the check waits.
            sleep(Duration::from_millis(2500));
            eprintln!("main goes on");
        });
    }
    let output = in_a_child("a_future_that_has_a_lock_and_is_not_polled", &[("SUDOG_CHECK_WAITS", "1")], program);
    assert_says(&output, 0, &["main goes on\n"]);
    let text = words(&output);
    let reports: Vec<_> = text.split("sudog: a future has been given a lock").skip(1).collect();
    assert_eq!(reports.len(), if cfg!(debug_assertions) { 1 } else { 0 }, "{text}");
    for report in reports {
        // The innermost of the user's functions.
        let place = report.split("\n          at ").nth(1).unwrap().lines().next().unwrap();
        assert!(place.contains(&format!("tests/process/goroutine_fatal.rs:{QUEUED}:")), "{QUEUED} in {text}");
    }
    let output = in_a_child("a_future_that_has_a_lock_and_is_not_polled", &[], program);
    assert_eq!(words(&output), "main goes on\n");
}

/// A dump reports the length of waits although the watcher, which keeps the clock of waits, sleeps while all workers
/// sleep.
fn a_dump_knows_how_long_all_have_slept() {
    let output = in_a_child("a_dump_knows_how_long_all_have_slept", &[], || {
        static GO: AtomicU32 = AtomicU32::new(0);
        run(|| {
            let thread = thread::spawn(|| {
                thread::sleep(Duration::from_millis(600));
                let dump = dump();
                let main = dump.goroutines.iter().find(|info| info.name.as_deref() == Some("main")).unwrap();
                assert!(main.waited >= Duration::from_millis(500), "{dump}");
                semrelease(&GO, Wake::Normal);
            });
            semacquire(&GO);
            blocking(|| thread.join().unwrap());
            eprintln!("long enough");
        });
    });
    assert_says(&output, 0, &["long enough"]);
}

fn main_goexits() {
    let output = in_a_child("main_goexits", &[], || {
        run(|| {
            go(|| {
                sleep(Duration::from_millis(20));
                eprintln!("the others go on");
            });
            goexit();
        });
    });
    let dead = "fatal error: no goroutines (main called runtime.Goexit) - deadlock!";
    assert_says(&output, 2, &["the others go on", dead]);
}

/// The watcher looks again when the foreign threads that held back its report have ended.
fn a_foreign_thread_that_has_ended_hides_no_deadlock() {
    let output = in_a_child("a_foreign_thread_that_has_ended_hides_no_deadlock", &[], || {
        let pause = Duration::from_millis(500); // the watcher looks every 10 ms at first
        thread::spawn(move || thread::sleep(pause));
        // Another thread waits for a socket, so there is a thread of the poller.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        thread::spawn(move || {
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let closes = thread::spawn(move || {
                thread::sleep(pause);
                drop(client);
            });
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
            closes.join().unwrap();
        });
        run(|| semacquire(&AtomicU32::new(0)));
    });
    assert_says(&output, 2, &["fatal error: all goroutines are asleep - deadlock!\n\n"]);
}

/// No deadlock is reported while something may still wake main: a thread, a blocking call, a timer, an async timer.
fn no_deadlock_where_there_is_none() {
    let output = in_a_child("no_deadlock_where_there_is_none", &[], || {
        static GO: AtomicU32 = AtomicU32::new(0);
        let while_asleep = Duration::from_millis(100); // the watcher looks every 10 ms
        run(|| {
            let thread = thread::spawn(move || {
                thread::sleep(while_asleep);
                semrelease(&GO, Wake::Normal);
            });
            semacquire(&GO);
            blocking(|| thread.join().unwrap());
            blocking(|| thread::sleep(while_asleep));
            sleep(while_asleep);
            block_on(sleep_async(while_asleep));
        });
    });
    assert_says(&output, 0, &[]);
}

fn a_call_to_come_is_no_deadlock() {
    let output = in_a_child("a_call_to_come_is_no_deadlock", &[], || {
        static CALLED: AtomicU32 = AtomicU32::new(0);
        run(|| {
            drop(after_func(Duration::from_millis(100), || semrelease(&CALLED, Wake::Normal)));
            semacquire(&CALLED);
        });
    });
    assert_says(&output, 0, &[]);
}

/// A receive from a stopped timer waits for ever, as in Go, whatever the kind of receive, and even if the receive began
/// before the stop.
fn a_stopped_timer_is_a_deadlock() {
    let output = in_a_child("a_stopped_timer_is_a_deadlock", &[], || {
        run(|| {
            let hour = Duration::from_secs(3600);
            let timer = Arc::new(Timer::new(hour));
            let theirs = timer.clone();
            go(move || _ = theirs.recv());
            let theirs = timer.clone();
            go(move || _ = block_on(theirs.recv_async()));
            let theirs = timer.clone();
            go(move || select! { recv(*theirs) => unreachable!() });
            sleep(Duration::from_millis(20));
            timer.stop();
            // A stopped call and a dropped timer do not hold back the report.
            after_func(hour, || ()).stop();
            drop(after(hour));
            timer.recv();
        });
    });
    let says = ["all goroutines are asleep - deadlock!", "[timer", "[block_on", "[select"];
    assert_says(&output, 2, &says);
}

fn a_context_without_a_cancel() {
    let output = in_a_child("a_context_without_a_cancel", &[], || {
        run(|| {
            let (ctx, _cancel) = context::with_cancel(&context::background());
            go(|| _ = context::background().wait());
            // A dropped context and a cancelled context do not hold back the report.
            let hour = Duration::from_secs(3600);
            drop(context::with_timeout(&ctx, hour));
            context::with_timeout(&ctx, hour).1.cancel();
            ctx.wait();
        });
    });
    let says = ["all goroutines are asleep - deadlock!", "[context.Context.Done"];
    assert_says(&output, 2, &says);
}

/// The watcher looks again when the alarm that held back its report has gone off.
fn an_alarm_that_has_gone_off_hides_no_deadlock() {
    let output = in_a_child("an_alarm_that_has_gone_off_hides_no_deadlock", &[], || {
        run(|| {
            let _ctx = context::with_timeout(&context::background(), Duration::from_millis(100));
            semacquire(&AtomicU32::new(0));
        });
    });
    assert_says(&output, 2, &["all goroutines are asleep - deadlock!"]);
}

fn the_deadline_of_a_context_is_no_deadlock() {
    let output = in_a_child("the_deadline_of_a_context_is_no_deadlock", &[], || {
        static CALLED: AtomicU32 = AtomicU32::new(0);
        let (early, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(50));
        run(|| {
            early.wait();
            // No goroutine waits for the context itself.
            let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(50));
            context::after_func(&ctx, || semrelease(&CALLED, Wake::Normal));
            semacquire(&CALLED);
            let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(50));
            block_on(ctx.done());
        });
    });
    assert_says(&output, 0, &[]);
}

fn a_stack_overflow_has_a_name() {
    let output = in_a_child("a_stack_overflow_has_a_name", &[], || {
        fn deep(n: usize) -> usize {
            let room = std::hint::black_box([n; 64]);
            if n == usize::MAX { 0 } else { deep(n + 1) + room[n % 64] }
        }
        run(|| {
            Builder::new().name("diver").spawn(|| deep(0)).join().unwrap();
        });
    });
    assert_eq!(output.status.signal(), Some(libc_sigabrt()), "{}", words(&output));
    let words = words(&output);
    let size = if cfg!(debug_assertions) { 2 << 20 } else { 256 << 10 };
    assert!(words.contains(&format!("goroutine stack exceeds {size}-byte limit")), "{words}");
    assert!(words.contains("\"diver\""), "{words}");
    assert!(words.contains("set_stack_size") && words.contains("Builder::stack_size"), "{words}");
}

fn libc_sigabrt() -> i32 {
    6
}

fn nonsense_in_the_environment_is_refused() {
    let name = "nonsense_in_the_environment_is_refused";
    let output = in_a_child(name, &[("SUDOG_MAXPROCS", "many")], || run(|| ()));
    assert!(!output.status.success());
    assert!(words(&output).contains("SUDOG_MAXPROCS"), "{}", words(&output));
}

fn the_environment_says_how_many_workers() {
    let name = "the_environment_says_how_many_workers";
    let output = in_a_child(name, &[("SUDOG_MAXPROCS", "3")], || {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        run(|| {
            assert_eq!(sudog::runtime::max_procs(), 3);
            THREADS.fetch_add(1, Relaxed);
        });
        assert_eq!(THREADS.load(Relaxed), 1);
    });
    assert_says(&output, 0, &[]);
}

/// All workers are started at once, for the last one, so threads come in any order.
fn threads_have_the_numbers_of_their_workers() {
    const WORKERS: usize = 100;
    let output =
        in_a_child("threads_have_the_numbers_of_their_workers", &[("SUDOG_MAXPROCS", &WORKERS.to_string())], || {
            for index in (0..WORKERS).rev() {
                let worker = Builder::new().on(Placement::Worker(index));
                let name = worker.spawn(|| thread::current().name().map(String::from)).join();
                assert_eq!(name.unwrap(), Some(format!("sudog-{index}")));
            }
        });
    assert_says(&output, 0, &[]);
}

/// Waits in initialisers are found with `SUDOG_CHECK_WAITS`, in debug builds.
fn waits_in_initialisers_are_found() {
    use std::cell::OnceCell;
    use std::sync::{LazyLock, OnceLock};

    thread_local! {
        static LOCAL: u32 = waits();
        static EAGER: OnceCell<u32> = const { OnceCell::new() };
    }
    static LAZY: LazyLock<u32> = LazyLock::new(waits);
    static ONCE_LOCK: OnceLock<u32> = OnceLock::new();
    static ONCE: std::sync::Once = std::sync::Once::new();

    fn waits() -> u32 {
        sleep(Duration::from_millis(1));
        gosched();
        42
    }

    fn programs() -> [(&'static str, fn()); 5] {
        [
            ("a std::thread_local!", || LOCAL.with(|_| ())),
            ("a std::sync::LazyLock", || _ = *LAZY),
            ("a std::sync::OnceLock", || _ = ONCE_LOCK.get_or_init(waits)),
            ("a std::sync::Once", || ONCE.call_once(|| _ = waits())),
            // No other goroutine enters these initialisers. The same holds for the initialiser in which the `run`
            // itself is.
            ("", || {
                assert_eq!(EAGER.with(|cell| *cell.get_or_init(waits)), 42);
                assert_eq!(*sudog::sync::OnceValue::new(waits).get(), 42);
            }),
        ]
    }
    for (i, (what, _)) in programs().iter().enumerate() {
        let number = i.to_string();
        let output =
            in_a_child("waits_in_initialisers_are_found", &[("SUDOG_CHECK_WAITS", "1"), ("PROGRAM", &number)], || {
                static OUTER: LazyLock<()> = LazyLock::new(|| {
                    let number: usize = std::env::var("PROGRAM").unwrap().parse().unwrap();
                    run(|| spawn(programs()[number].1).join().unwrap());
                });
                *OUTER;
            });
        if cfg!(debug_assertions) && !what.is_empty() {
            let words = words(&output);
            let says = format!("fatal error: sudog: a goroutine waits in the initialiser of {what},");
            assert!(words.contains(&says) && words.contains("waits_in_initialisers_are_found"), "{what}: {words}");
        } else {
            assert_says(&output, 0, &[]);
        }
    }
}

// ---- reports --------------------------------------------------------------------------------------------------------

/// Computes for `d` without a call into the runtime. The watcher may make a report meanwhile.
#[inline(never)]
fn computes_for_long(d: Duration) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < d {
        std::hint::spin_loop();
    }
}

/// A computing goroutine is reported once, by its name and by the code that started it, when other goroutines on its
/// worker are queued, asleep or woken. Its stack is reported at its next call.
fn a_goroutine_that_computes_is_reported() {
    fn program() {
        run(|| {
            let kind = std::env::var("OTHERS").unwrap();
            let sleepers = if kind == "asleep" || kind == "ends" { 100 } else { 0 };
            for _ in 0..sleepers {
                spawn(|| sleep(Duration::from_millis(1)));
            }
            gosched();
            if kind == "queued" {
                spawn(|| (0..2).for_each(|_| gosched()));
                gosched();
            }
            if kind == "woken" {
                let waits = Arc::new(AtomicU32::new(0));
                let theirs = waits.clone();
                spawn(move || semacquire(&theirs));
                gosched();
                // In its own turn, the hog readies the other goroutine, and then computes.
                Builder::new().name("hog").go(move || {
                    semrelease(&waits, Wake::Normal);
                    computes_for_long(Duration::from_millis(400));
                    gosched();
                });
            } else {
                Builder::new().name("hog").go(move || {
                    computes_for_long(Duration::from_millis(400));
                    if kind != "ends" {
                        gosched();
                    }
                });
            }
            sleep(Duration::from_millis(450));
        });
    }
    for kind in ["queued", "asleep", "woken", "ends"] {
        let env = [("SUDOG_STALLS", "1"), ("SUDOG_MAXPROCS", "1"), ("OTHERS", kind)];
        let output = in_a_child("a_goroutine_that_computes_is_reported", &env, program);
        assert_says(
            &output,
            0,
            &[
                "\"hog\" has run for 1",
                "started as goroutine_fatal::",
                if kind == "ends" { " has ended\n" } else { "calls into the runtime again:" },
            ],
        );
        assert!(!words(&output).contains("corosensei"), "{}", words(&output));
        assert_eq!(words(&output).matches("has run for").count(), 1, "once: {}", words(&output));
    }
    let env = [("SUDOG_STALLS", "0"), ("SUDOG_MAXPROCS", "1"), ("OTHERS", "asleep")];
    let output = in_a_child("a_goroutine_that_computes_is_reported", &env, program);
    assert_eq!(words(&output), "");
}

/// A goroutine waits in a destructor, while it panics.
fn a_goroutine_that_waits_where_it_may_not_switch() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            sleep(Duration::from_millis(400));
        }
    }
    // Turn backtraces off, because printing a backtrace takes long, too.
    let env = [("SUDOG_STALLS", "1"), ("SUDOG_MAXPROCS", "1"), ("RUST_BACKTRACE", "0")];
    let output = in_a_child("a_goroutine_that_waits_where_it_may_not_switch", &env, || {
        run(|| {
            spawn(|| sleep(Duration::from_millis(1)));
            let panics = spawn(|| {
                let _waits = Waits;
                panic!("on its way out");
            });
            assert!(panics.join().is_err());
        });
    });
    assert_says(&output, 0, &["has not given way for ", "in a destructor while it panics"]);
    assert!(!words(&output).contains("has run for"), "{}", words(&output));
}

/// There is nothing to report if no other goroutine wants to run on the worker.
fn a_goroutine_that_computes_alone_is_not() {
    let output = in_a_child("a_goroutine_that_computes_alone_is_not", &[("SUDOG_STALLS", "1")], || {
        run(|| {
            let never = Arc::new(AtomicU32::new(0));
            let theirs = never.clone();
            go(move || semacquire(&theirs));
            go(|| sleep(Duration::from_secs(1000)));
            while waiters(&never) == 0 {
                gosched();
            }
            gosched();
            computes_for_long(Duration::from_millis(300));
        });
    });
    assert_eq!((output.status.code(), words(&output)), (Some(0), String::new()));
}

fn all_threads_for_blocking_calls_are_taken() {
    let output = in_a_child("all_threads_for_blocking_calls_are_taken", &[("SUDOG_STALLS", "1")], || {
        set_max_blocking(2);
        run(|| {
            let calls: Vec<_> =
                (0..10).map(|_| spawn(|| blocking(|| thread::sleep(Duration::from_millis(5))))).collect();
            calls.into_iter().for_each(|call| call.join().unwrap());
        });
    });
    assert_says(&output, 0, &["sudog: all 2 threads for blocking calls are taken"]);
    assert_eq!(words(&output).matches("are taken").count(), 1);
}

fn a_switch_hook_that_panics() {
    let output = in_a_child("a_switch_hook_that_panics", &[], || {
        add_switch_hooks(SwitchHooks { enter: |_| (), leave: |_| panic!("oh no") }).unwrap();
        run(gosched);
    });
    assert_eq!(output.status.signal(), Some(6));
    assert!(words(&output).contains("fatal error: sudog: a switch hook panicked: oh no"), "{}", words(&output));
}

fn a_switch_hook_that_waits() {
    fn wait() -> fn() {
        match std::env::var("WAIT").unwrap().as_str() {
            "gosched" => || gosched(),
            "sleep" => || sleep(Duration::from_millis(1)),
            _ => || {
                static NEVER: AtomicU32 = AtomicU32::new(0);
                semacquire(&NEVER);
            },
        }
    }
    for name in ["gosched", "sleep", "lock"] {
        let output = in_a_child("a_switch_hook_that_waits", &[("WAIT", name)], || {
            add_switch_hooks(SwitchHooks { enter: |_| wait()(), leave: |_| () }).unwrap();
            run(|| ());
        });
        assert_eq!(output.status.signal(), Some(6), "{name}: {}", words(&output));
        assert!(words(&output).contains("fatal error: sudog: a switch hook must not wait"), "{}", words(&output));
    }
}

/// Calls that never wait may switch elsewhere, but not in a hook.
fn a_switch_hook_that_only_tries() {
    let output = in_a_child("a_switch_hook_that_only_tries", &[], || {
        static FULL: std::sync::OnceLock<sudog::chan::Chan<()>> = std::sync::OnceLock::new();
        FULL.get_or_init(|| sudog::chan::Chan::new(0));
        fn tries() {
            (0..100).for_each(|_| _ = FULL.get().unwrap().try_send(()));
            // A contended unlock asks this.
            _ = G::is_goroutine();
        }
        add_switch_hooks(SwitchHooks { enter: |_| tries(), leave: |_| tries() }).unwrap();
        run(|| {
            // Run for some ticks of the watcher, which asks for a safepoint at each tick.
            let end = Instant::now() + Duration::from_millis(300);
            let yields = move || {
                while Instant::now() < end {
                    gosched();
                }
            };
            let other = spawn(yields);
            yields();
            other.join().unwrap();
        });
    });
    assert!(output.status.success(), "{}", words(&output));
}

/// A hook may lock mutexes that are free.
fn a_switch_hook_that_locks() {
    let output = in_a_child("a_switch_hook_that_locks", &[], || {
        static MUTEX: Mutex<u32> = Mutex::new(0);
        static RW: RwMutex<u32> = RwMutex::new(0);
        fn locks() {
            *MUTEX.lock() += 1;
            *MUTEX.try_lock().unwrap() += 1;
            *MUTEX.try_lock_for(Duration::ZERO).unwrap() += 1;
            *RW.write() += 1;
            *RW.try_write().unwrap() += 1;
            assert!(*RW.read() == *RW.try_read().unwrap());
        }
        add_switch_hooks(SwitchHooks { enter: |_| locks(), leave: |_| locks() }).unwrap();
        run(gosched);
        // The goroutine begins, waits, resumes, and ends.
        assert_eq!((*MUTEX.lock(), *RW.read()), (12, 8));
    });
    assert!(output.status.success(), "{}", words(&output));
}

/// The public ways to start a goroutine, a task, or a call on another thread, each with the words of the fatal error.
const STARTS: &[(&str, fn(), &str)] = &[
    ("go", || go(|| ()), "start goroutines"),
    ("go!", || sudog::go!(gosched()), "start goroutines"),
    ("spawn", || drop(spawn(|| ())), "start goroutines"),
    ("Builder::go", || Builder::new().name("name").go(|| ()), "start goroutines"),
    ("Builder::spawn", || drop(Builder::new().spawn(|| ())), "start goroutines"),
    ("Placement::Here", || Builder::new().on(Placement::Here).go(|| ()), "start goroutines"),
    ("Placement::First", || Builder::new().on(Placement::First).go(|| ()), "start goroutines"),
    ("Placement::Worker", || Builder::new().on(Placement::Worker(0)).go(|| ()), "start goroutines"),
    ("Scope::go", || scope(|s| s.go(|| ())), "start goroutines"),
    ("Scope::spawn", || scope(|s| drop(s.spawn(|| ()))), "start goroutines"),
    ("go_async", || go_async(async {}), "start goroutines"),
    ("spawn_async", || drop(spawn_async(async {})), "start goroutines"),
    ("WaitGroup::go", || Arc::new(WaitGroup::new()).go(|| ()), "start goroutines"),
    ("ErrGroup::go", || ErrGroup::new().go(|| Ok::<_, Infallible>(())), "start goroutines"),
    ("ErrGroup::try_go", || _ = ErrGroup::new().try_go(|| Ok::<_, Infallible>(())), "start goroutines"),
    ("context::after_func", || drop(context::after_func(&canceled(), || ())), "start goroutines"),
    ("blocking", || blocking(|| ()), "wait"),
    ("compute", || compute(|| ()), "wait"),
];

fn canceled() -> context::Context {
    let (ctx, cancel) = context::with_cancel(&context::background());
    cancel.cancel();
    ctx
}

fn start_as_told() {
    // The started goroutine calls the hook again: without an end, if the start is not forbidden.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    if CALLS.fetch_add(1, Relaxed) > 100 {
        return;
    }
    let way = std::env::var("WAY").unwrap();
    let (_, start, _) = STARTS.iter().find(|(name, ..)| *name == way).unwrap();
    start();
}

fn a_switch_hook_that_starts_goroutines() {
    let program = || {
        let begins = SwitchHooks { enter: |_| start_as_told(), leave: |_| () };
        // This hook runs after the destructors of the goroutine's locals.
        let ends = SwitchHooks { enter: |_| (), leave: |why| (why == Leaving::Ends).then(start_as_told).unwrap_or(()) };
        add_switch_hooks(if std::env::var("AT").unwrap() == "begin" { begins } else { ends }).unwrap();
        run(|| spawn(|| ()).join().unwrap());
    };
    for at in ["begin", "end"] {
        for (way, _, deed) in STARTS {
            let output = in_a_child("a_switch_hook_that_starts_goroutines", &[("WAY", way), ("AT", at)], program);
            let says = format!("fatal error: sudog: a switch hook must not {deed}\n");
            assert_eq!(output.status.signal(), Some(6), "{way} at the {at}: {}", words(&output));
            assert!(words(&output).contains(&says), "{way} at the {at}: {}", words(&output));
        }
    }
}

/// A hook may call `run`, because on a goroutine `run` starts no other goroutine.
fn a_switch_hook_that_calls_run() {
    let output = in_a_child("a_switch_hook_that_calls_run", &[], || {
        add_switch_hooks(SwitchHooks { enter: |_| run(|| ()), leave: |_| () }).unwrap();
        run(gosched);
    });
    assert!(output.status.success(), "{}", words(&output));
}

const NO_THREADS: &str = "fatal error: sudog: a forked child has none of the runtime's threads";

/// Forks, calls `f` in the child, and returns the status of the child. The child is killed after a minute.
fn in_a_fork(f: impl FnOnce()) -> ExitStatus {
    // SAFETY: the child makes only calls that are allowed after a fork, except for calls whose failure is the subject
    // of the test.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: `alarm` has no precondition. The alarm's SIGALRM kills a child that hangs.
        unsafe { libc::alarm(60) };
        let ended = catch_unwind(AssertUnwindSafe(f));
        // SAFETY: `_exit` has no precondition.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live place for an int.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    ExitStatus::from_raw(status)
}

/// The actions of a child, by name.
type Deeds<F> = &'static [(&'static str, F)];

/// Returns the action that the variable `WAY` names.
fn chosen<T>(list: Deeds<T>) -> &'static T {
    let way = std::env::var("WAY").unwrap();
    &list.iter().find(|(name, _)| *name == way).unwrap().1
}

/// The objects that the parent has made before it forks.
struct Before {
    goroutine: JoinHandle<()>,
    waker: Waker,
    set: ActiveSet,
}

fn a_forked_child_cannot_count_on_workers() {
    const DEEDS: Deeds<fn(Before)> = &[
        ("run", |_| run(|| ())),
        ("go", |_| go(|| ())),
        ("spawn", |_| drop(spawn(|| ()))),
        ("Placement::Worker", |_| Builder::new().on(Placement::Worker(0)).go(|| ())),
        ("Scope::go", |_| scope(|s| s.go(|| ()))),
        ("go_async", |_| go_async(async {})),
        ("WaitGroup::go", |_| Arc::new(WaitGroup::new()).go(|| ())),
        ("ErrGroup::go", |_| ErrGroup::new().go(|| Ok::<_, Infallible>(()))),
        ("JoinHandle::join", |before| before.goroutine.join().unwrap()),
        ("JoinHandle::join_limited", |mut before| {
            drop(before.goroutine.join_limited(&WaitLimit::until(Instant::now() + Duration::from_secs(3600))));
        }),
        ("Waker::wake", |before| before.waker.wake()),
        ("sleep_async", |_| block_on(sleep_async(Duration::from_millis(1)))),
        ("context::with_timeout", |_| {
            let (ctx, _cancel) = context::with_timeout(&context::background(), Duration::from_millis(1));
            block_on(ctx.done());
        }),
        ("context::after_func", |_| drop(context::after_func(&canceled(), || ()))),
        ("ActiveSet::run", |mut before| before.set.run(|| ())),
    ];
    let program = || {
        // Start a task that waits, and hand its waker to the parent.
        static WAKER: std::sync::Mutex<Option<Waker>> = std::sync::Mutex::new(None);
        go_async(poll_fn(|cx| {
            *WAKER.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        }));
        let goroutine = spawn(|| sleep(Duration::from_secs(3600)));
        let waker = loop {
            if let Some(waker) = WAKER.lock().unwrap().take() {
                break waker;
            }
            thread::yield_now();
        };
        let mut set = ActiveSet::new();
        set.run(|| ());
        let before = Before { goroutine, waker, set };
        let status = in_a_fork(|| chosen(DEEDS)(before));
        assert_eq!(status.signal(), Some(libc_sigabrt()), "{status}");
        std::process::exit(0);
    };
    forks(DEEDS, program, "a_forked_child_cannot_count_on_workers", true);
}

/// Runs `program` in a process for each action of the list.
fn forks<T>(list: Deeds<T>, program: fn(), test: &str, dies: bool) {
    for (way, _) in list {
        let output = in_a_child(test, &[("WAY", way)], program);
        assert!(output.status.success(), "{way}: {}", words(&output));
        assert_eq!(words(&output).contains(NO_THREADS), dies, "{way}: {}", words(&output));
    }
}

/// A child that a goroutine forks has only the worker on which it was forked. That worker may run existing goroutines,
/// but may not wait.
fn a_goroutine_that_forks_cannot_count_on_workers() {
    const DEEDS: Deeds<fn()> = &[
        ("sleep", || sleep(Duration::from_millis(1))),
        ("join", || {
            let never = AtomicU32::new(0);
            spawn(move || semacquire(&never)).join().unwrap();
        }),
        ("blocking", || blocking(|| ())),
        ("compute", || compute(|| ())),
        ("another worker", || Builder::new().on(Placement::Worker(1)).go(|| ())),
        ("sleep_async", || block_on(sleep_async(Duration::from_millis(1)))),
    ];
    let program = || {
        run(|| {
            blocking(|| ()); // the thread of this call stays, and is not in the child
            let status = in_a_fork(|| chosen(DEEDS)());
            assert_eq!(status.signal(), Some(libc_sigabrt()), "{status}");
        });
        std::process::exit(0);
    };
    forks(DEEDS, program, "a_goroutine_that_forks_cannot_count_on_workers", true);
}

fn what_a_forked_child_may_do() {
    const DEEDS: Deeds<fn()> = &[
        ("exec", || assert!(Command::new("true").status().unwrap().success())),
        ("a mutex", || {
            let mutex = Mutex::new(0);
            thread::scope(|s| {
                (0..4).for_each(|_| _ = s.spawn(|| (0..1000).for_each(|_| *mutex.lock() += 1)));
            });
            assert_eq!(*mutex.lock(), 4000);
        }),
        ("a channel", || {
            let (tx, rx) = sudog::chan::channel(0);
            thread::scope(|s| {
                s.spawn(move || (0..100).for_each(|n| tx.send(n).unwrap()));
                assert_eq!(rx.iter().sum::<i32>(), 4950);
            });
        }),
        ("a wait group, a once, a sleep", || {
            let (group, once) = (WaitGroup::new(), Once::new());
            group.add(2);
            thread::scope(|s| {
                (0..2).for_each(|_| {
                    s.spawn(|| {
                        once.do_(|| sleep(Duration::from_millis(1)));
                        gosched();
                        group.done();
                    });
                });
                group.wait();
            });
        }),
    ];
    let program = || {
        spawn(|| ()).join().unwrap();
        let status = in_a_fork(|| chosen(DEEDS)());
        assert!(status.success(), "{status}");
        std::process::exit(0);
    };
    forks(DEEDS, program, "what_a_forked_child_may_do", false);
}

fn what_a_goroutine_that_forks_may_do() {
    const DEEDS: &[(&str, fn())] = &[
        ("exec", || assert!(Command::new("true").status().unwrap().success())),
        ("gosched", gosched),
        ("a goroutine, and more than a slice", || {
            let (begun, calls, other) = (Instant::now(), RwMutex::new(0_u64), spawn(|| 7));
            while begun.elapsed() < Duration::from_millis(8) {
                *calls.write() += 1; // the unlock is a safepoint
            }
            assert_eq!(other.join().unwrap(), 7);
        }),
    ];
    let program = || {
        set_max_procs(2);
        let status = run(|| {
            // Another worker sleeps; in the child it is not there.
            Builder::new().on(Placement::Worker(1)).spawn(|| ()).join().unwrap();
            while !sudog_runtime::spin::is_processor_idle() {
                thread::yield_now();
            }
            in_a_fork(|| chosen(DEEDS)())
        });
        assert!(status.success(), "{status}");
        std::process::exit(0);
    };
    forks(DEEDS, program, "what_a_goroutine_that_forks_may_do", false);
}

fn a_child_forked_before_the_runtime_may_do_all() {
    let output = in_a_child("a_child_forked_before_the_runtime_may_do_all", &[], || {
        let status = in_a_fork(|| {
            assert_eq!(run(|| spawn(|| blocking(|| 41)).join().unwrap() + 1), 42);
            spawn(|| sleep(Duration::from_millis(1))).join().unwrap();
            block_on(sleep_async(Duration::from_millis(1)));
        });
        assert!(status.success(), "{status}");
        // The parent is not affected by the child.
        assert_eq!(run(|| spawn(|| 42).join().unwrap()), 42);
    });
    assert!(output.status.success(), "{}", words(&output));
}
