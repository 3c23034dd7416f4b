//! Goroutines with thread-locals of their own: what `std`, glibc and libraries see of them. Each test is a child process with
//! one worker, with thread-locals of the worker (`Shared`), of the goroutine (`Own`), or both in turn. The rows of the table in
//! docs/move.md name these tests.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output, Stdio};
use std::ptr::{self, null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use sudog::chan::channel;
use sudog::runtime::{gosched, own_thread_locals};
use sudog::{Builder, JoinHandle, run, spawn};
use tracing::{Subscriber, info, info_span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

const CHILD: &str = "SUDOG_TEST_CHILD";

/// Whose thread-locals a goroutine uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Shared,
    Own,
}
use Kind::{Own, Shared};

const BOTH: &[Kind] = &[Shared, Own];

/// The test with several workers.
const STORM: &str = "a_storm";

type Test = (&'static str, &'static [Kind], fn(Kind), fn(Output));

/// Each test: its name, the kinds of thread-locals, its program for a child process, and the expected end of that process.
const TESTS: &[Test] = &[
    ("a_lazy_initialiser_waits", &[Own], a_lazy_initialiser_waits, succeeds),
    ("a_wait_while_panicking", BOTH, a_wait_while_panicking, succeeds),
    ("a_borrow_over_a_wait", BOTH, a_borrow_over_a_wait, succeeds),
    ("thread_ids", BOTH, thread_ids, succeeds),
    ("errno_over_a_wait", BOTH, errno_over_a_wait, succeeds),
    ("locks_and_park_of_std", BOTH, locks_and_park_of_std, succeeds),
    ("keys_and_destructors", BOTH, keys_and_destructors, succeeds),
    ("destructors_start_goroutines", &[Own], destructors_start_goroutines, succeeds),
    ("recursive_mutexes", BOTH, recursive_mutexes, succeeds),
    ("priority_inheriting_mutexes", BOTH, priority_inheriting_mutexes, succeeds),
    ("robust_mutexes", BOTH, robust_mutexes, succeeds),
    ("the_end_of_a_pthread", &[Own], the_end_of_a_pthread, |output| {
        assert!(output.status.signal().is_some(), "{}", output.status);
    }),
    ("kernel_threads", BOTH, kernel_threads, succeeds),
    ("commands", BOTH, commands, succeeds),
    ("a_forked_child_that_waits", &[Own], a_forked_child_that_waits, succeeds),
    ("setuid", BOTH, setuid, succeeds),
    ("setuid_while_blocks_are_made", &[Own], setuid_while_blocks_are_made, succeeds),
    ("blocks_are_freed", &[Own], blocks_are_freed, succeeds),
    ("a_library_with_static_thread_locals", BOTH, a_library_with_static_thread_locals, succeeds),
    ("a_library_with_dynamic_thread_locals", BOTH, a_library_with_dynamic_thread_locals, succeeds),
    ("spans_of_tracing", BOTH, spans_of_tracing, succeeds),
    ("threads_of_tracing", BOTH, threads_of_tracing, succeeds),
    ("guards_of_tokio", BOTH, guards_of_tokio, succeeds),
    ("signals", BOTH, signals, succeeds),
    ("memory_of_the_workers", BOTH, memory_of_the_workers, succeeds),
    (STORM, BOTH, a_storm, succeeds),
    ("a_stack_overflow", BOTH, a_stack_overflow, |output| {
        assert!(words(&output).contains("goroutine stack exceeds"), "{}", words(&output));
    }),
    ("asked_for_by_a_call", &[Shared], asked_for_by_a_call, succeeds),
    ("asked_for_too_late", &[Shared], asked_for_too_late, succeeds),
];

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    if let Ok(child) = std::env::var(CHILD) {
        let (_, _, program, _) = TESTS.iter().find(|(name, ..)| *name == child).expect("a test");
        return program(if std::env::var("SUDOG_MOVE").as_deref() == Ok("1") { Own } else { Shared });
    }
    if filter.is_empty() {
        an_unknown_value();
        refusals();
    }
    for (name, kinds, _, ends) in TESTS.iter().filter(|(name, ..)| name.contains(&filter)) {
        for kind in *kinds {
            ends(child(name, if *kind == Own { "1" } else { "0" }));
            println!("test {name}, {kind:?} ... ok");
        }
    }
}

/// Runs a test's program in a child process, which is ended after two minutes.
fn child(name: &str, mode: &str) -> Output {
    output(command(name, mode))
}

fn command(name: &str, mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env(CHILD, name)
        .env("SUDOG_MOVE", mode)
        .env("SUDOG_MAXPROCS", if name == STORM { "3" } else { "1" })
        .env("SUDOG_STALLS", "0") // a report reads the program's debug information, which takes megabytes
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn output(mut command: Command) -> Output {
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("{command:?} does not end: {}", words(&output));
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn succeeds(output: Output) {
    assert!(output.status.success(), "{}: {}", output.status, words(&output));
}

/// Starts a goroutine whose stack, and whose thread-locals of its own, are freed at the goroutine's end.
fn spawn_apart<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(128 << 10).spawn(f)
}

fn until(state: impl Fn() -> bool) {
    while !state() {
        gosched();
    }
}

fn an_unknown_value() {
    let output = child("thread_ids", "yes");
    assert!(words(&output).contains("SUDOG_MOVE is neither"), "{}", words(&output));
    println!("test an_unknown_value ... ok");
}

/// What the blocks do not support is found at the start: more thread-locals than a stack keeps, and sanitizers.
fn refusals() {
    let cases = [
        ("large", "__thread char value[12000] = {1}; char first(void) { return value[0]; }", "thread-locals take"),
        ("asan", "void __asan_init(void) {}", "sanitizers"),
    ];
    for (name, source, reason) in cases {
        let library = compile(name, source, "initial-exec");
        let with_library = |mode| {
            let mut command = command("thread_ids", mode);
            command.env("LD_PRELOAD", library.to_str().unwrap());
            output(command)
        };
        let refused = with_library("1");
        assert!(!refused.status.success() && words(&refused).contains(reason), "{}", words(&refused));
        succeeds(with_library("try"));
        std::fs::remove_file(library.to_str().unwrap()).unwrap();
        println!("test refusals, {name} ... ok");
    }
}

fn asked_for_by_a_call(_: Kind) {
    // The variable, which is 0, decides for programs that do not call.
    own_thread_locals().unwrap();
    own_thread_locals().unwrap();
    run(|| thread_ids_are(Own));
    own_thread_locals().unwrap();
}

fn asked_for_too_late(_: Kind) {
    run(|| ());
    assert_eq!(own_thread_locals().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    run(|| thread_ids_are(Shared));
}

// ---- thread-locals ------------------------------------------------------------------------------------------------------

/// Each goroutine has a value of its own, which stays where it is although others run the same initialiser meanwhile.
fn a_lazy_initialiser_waits(_: Kind) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LAZY: Box<usize> = {
            gosched();
            let value = Box::new(NEXT.fetch_add(1, SeqCst));
            gosched();
            value
        };
    }
    run(|| {
        let goroutines: Vec<_> = (0..50)
            .map(|_| {
                spawn(|| {
                    LAZY.with(|value| {
                        let seen = **value;
                        for _ in 0..10 {
                            gosched();
                            assert_eq!(**value, seen);
                        }
                        seen
                    })
                })
            })
            .collect();
        let mut values: Vec<_> = goroutines.into_iter().map(|goroutine| goroutine.join().unwrap()).collect();
        values.sort_unstable();
        assert_eq!(values, (0..50).collect::<Vec<_>>());
    });
}

/// A destructor yields while its goroutine panics. With thread-locals of its own another goroutine runs meanwhile, and does not
/// panic. Without, none runs.
fn a_wait_while_panicking(kind: Kind) {
    static PANICS: AtomicBool = AtomicBool::new(false);
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    struct Yields;
    impl Drop for Yields {
        fn drop(&mut self) {
            PANICS.store(true, SeqCst);
            for _ in 0..10 {
                gosched();
                assert!(thread::panicking());
            }
            PANICS.store(false, SeqCst);
        }
    }
    run(move || {
        let panics = spawn(|| {
            let _yields = Yields;
            panic!("expected");
        });
        let looks = spawn(|| {
            for _ in 0..100 {
                assert!(!thread::panicking());
                SEEN.fetch_add(usize::from(PANICS.load(SeqCst)), SeqCst);
                // A panic beside a panic is caught here.
                assert!(catch_unwind(|| panic!("expected")).is_err());
                gosched();
            }
        });
        assert!(panics.join().is_err());
        looks.join().unwrap();
        assert_eq!(SEEN.load(SeqCst) > 0, kind == Own);
    });
}

fn a_borrow_over_a_wait(kind: Kind) {
    thread_local!(static CELL: RefCell<u32> = const { RefCell::new(0) });
    run(move || {
        let borrows = spawn(|| {
            CELL.with_borrow_mut(|value| {
                *value = 1;
                gosched();
                gosched();
                assert_eq!(*value, 1);
            });
        });
        gosched();
        let finds = spawn(|| CELL.with(|cell| cell.try_borrow_mut().is_ok()));
        assert_eq!(finds.join().unwrap(), kind == Own);
        borrows.join().unwrap();
    });
}

fn thread_ids(kind: Kind) {
    run(move || thread_ids_are(kind));
}

/// Checks that the ids of goroutines are stable, and tells whether they are unique.
fn thread_ids_are(kind: Kind) {
    let all_wait = |n: usize| {
        static HERE: AtomicUsize = AtomicUsize::new(0);
        HERE.store(0, SeqCst);
        let goroutines: Vec<JoinHandle<ThreadId>> = (0..n)
            .map(move |_| {
                spawn(move || {
                    let before = (thread::current().id(), pthread());
                    HERE.fetch_add(1, SeqCst);
                    until(|| HERE.load(SeqCst) == n);
                    assert_eq!(before, (thread::current().id(), pthread()));
                    before.0
                })
            })
            .collect();
        let mut ids: Vec<_> = goroutines.into_iter().map(|goroutine| goroutine.join().unwrap()).collect();
        ids.sort_unstable_by_key(|id| format!("{id:?}"));
        ids.dedup();
        ids.len()
    };
    assert_eq!(all_wait(20), if kind == Own { 20 } else { 1 });
}

fn pthread() -> libc::pthread_t {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::pthread_self() }
}

fn errno_over_a_wait(kind: Kind) {
    fn fail(error: i32) {
        // SAFETY: the place is the calling thread's.
        unsafe { *libc::__errno_location() = error };
    }
    fn last() -> Option<i32> {
        std::io::Error::last_os_error().raw_os_error()
    }
    run(move || {
        let waits = spawn(move || {
            fail(libc::EDOM);
            gosched();
            gosched();
            last()
        });
        let other = spawn(|| fail(libc::ERANGE));
        other.join().unwrap();
        let expected = if kind == Own { libc::EDOM } else { libc::ERANGE };
        assert_eq!(waits.join().unwrap(), Some(expected));
    });
}

/// `std`'s locks and `park` work, with partners that are threads. They block the worker.
fn locks_and_park_of_std(_: Kind) {
    static STATE: Mutex<u32> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    run(|| {
        let waits = spawn(|| {
            let me = thread::current();
            thread::spawn(move || {
                *STATE.lock().unwrap() = 1;
                CHANGED.notify_all();
                me.unpark();
            });
            let state = CHANGED.wait_while(STATE.lock().unwrap(), |state| *state == 0).unwrap();
            gosched(); // the guard is held over a switch
            drop(state);
            thread::park();
            thread::current().unpark();
            gosched();
            thread::park();
            thread::scope(|scope| scope.spawn(|| thread::current().id()).join().unwrap()) != thread::current().id()
        });
        assert!(waits.join().unwrap());
    });
}

/// The destructors of thread-locals and of pthread keys run when the stack goes, and may use thread-locals and yield.
fn keys_and_destructors(kind: Kind) {
    static KEY: AtomicUsize = AtomicUsize::new(0);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    static FREED: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static LAST: Cell<u32> = const { Cell::new(0) });
    struct Drops(u32);
    impl Drop for Drops {
        fn drop(&mut self) {
            assert_eq!(LAST.get(), self.0, "this stack's");
            gosched();
            assert!(thread::current().name().is_none());
            DROPS.fetch_add(1, SeqCst);
        }
    }
    thread_local!(static VALUE: RefCell<Option<Drops>> = const { RefCell::new(None) });
    extern "C" fn free(value: *mut libc::c_void) {
        FREED.fetch_add(value.addr(), SeqCst);
    }
    let mut key = 0;
    // SAFETY: `key` is writable, and the destructor has the type that is wanted.
    assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(free)) }, 0);
    KEY.store(key as usize, SeqCst);
    run(move || {
        let goroutines: Vec<_> = (1..=10)
            .map(|i: u32| {
                spawn_apart(move || {
                    let key = KEY.load(SeqCst) as libc::pthread_key_t;
                    let value = ptr::without_provenance_mut(i as usize);
                    // SAFETY: the key exists.
                    unsafe { libc::pthread_setspecific(key, value) };
                    gosched();
                    // SAFETY: the key exists.
                    let kept = unsafe { libc::pthread_getspecific(key) } == value;
                    LAST.set(i);
                    if kind == Own {
                        assert!(kept);
                        VALUE.set(Some(Drops(i)));
                    }
                    kept
                })
            })
            .collect();
        let kept = goroutines.into_iter().filter_map(|goroutine| goroutine.join().unwrap().then_some(())).count();
        if kind == Own {
            until(|| DROPS.load(SeqCst) == 10 && FREED.load(SeqCst) == 55);
        } else {
            assert!(kept < 10);
        }
    });
}

/// A destructor may start goroutines, which run on the worker that has freed the stack.
fn destructors_start_goroutines(_: Kind) {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    struct Starts;
    impl Drop for Starts {
        fn drop(&mut self) {
            let inner = spawn(gosched);
            spawn(move || {
                inner.join().unwrap();
                ENDED.fetch_add(1, SeqCst);
            });
        }
    }
    thread_local!(static VALUE: RefCell<Option<Starts>> = const { RefCell::new(None) });
    fn sets() {
        VALUE.set(Some(Starts));
        gosched();
    }
    run(|| {
        (0..20).for_each(|_| spawn_apart(sets).join().unwrap());
        until(|| ENDED.load(SeqCst) == 20);
    });
    // At the end of a bubble its worker frees all stacks.
    sudog::synctest::test(|| (0..20).for_each(|_| spawn(sets).join().unwrap()));
    run(|| until(|| ENDED.load(SeqCst) > 20));
}

/// A mutex of the C library, in memory that forked processes share.
#[derive(Clone, Copy)]
struct CMutex(usize);

impl CMutex {
    fn new(set: impl FnOnce(*mut libc::pthread_mutexattr_t) -> i32) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new. The attributes and then the mutex are initialised by these calls, in this order.
        unsafe {
            let memory = libc::mmap(null_mut(), 4096, protection, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            let mut attributes = MaybeUninit::uninit();
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            assert_eq!(set(attributes.as_mut_ptr()), 0);
            libc::pthread_mutex_init(memory.cast(), attributes.as_ptr());
            Self(memory.expose_provenance())
        }
    }

    fn get(self) -> *mut libc::pthread_mutex_t {
        ptr::with_exposed_provenance_mut(self.0)
    }

    fn try_lock(self) -> i32 {
        // SAFETY: `new` has initialised the mutex, which is never freed.
        unsafe { libc::pthread_mutex_trylock(self.get()) }
    }

    /// Locks the mutex, or gives up after a second.
    fn lock_within_a_second(self) -> i32 {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `until` is writable. `new` has initialised the mutex, which is never freed.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            until.tv_sec += 1;
            libc::pthread_mutex_timedlock(self.get(), &raw const until)
        }
    }

    fn unlock(self) -> i32 {
        // SAFETY: the caller has locked the mutex.
        unsafe { libc::pthread_mutex_unlock(self.get()) }
    }
}

fn recursive_mutexes(kind: Kind) {
    // SAFETY: the attributes are initialised.
    let mutex =
        CMutex::new(|attributes| unsafe { libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_RECURSIVE) });
    let (lock, unlock) = (move || mutex.try_lock(), move || mutex.unlock());
    run(move || {
        let owner = spawn(move || {
            assert_eq!((lock(), lock()), (0, 0));
            gosched();
            gosched();
            assert_eq!((unlock(), unlock()), (0, 0));
        });
        gosched();
        let other = spawn(move || {
            let result = lock();
            if result == 0 {
                unlock();
            }
            result
        });
        assert_eq!(other.join().unwrap(), if kind == Own { libc::EBUSY } else { 0 });
        owner.join().unwrap();
    });
}

/// A thread that has begun to wait for a priority-inheriting mutex of a goroutine never gets the mutex: the kernel knows no owner of
/// the goroutine's number.
fn priority_inheriting_mutexes(kind: Kind) {
    static WAITER: AtomicI32 = AtomicI32::new(0);
    // SAFETY: the attributes are initialised.
    let mutex = CMutex::new(|attributes| unsafe {
        libc::pthread_mutexattr_setprotocol(attributes, libc::PTHREAD_PRIO_INHERIT)
    });
    run(move || {
        let owner = spawn(move || {
            assert_eq!((mutex.try_lock(), mutex.unlock(), mutex.try_lock()), (0, 0, 0));
            let thread = thread::spawn(move || {
                // SAFETY: the call takes no arguments and cannot fail.
                WAITER.store(unsafe { libc::gettid() }, SeqCst);
                mutex.lock_within_a_second()
            });
            until(|| {
                let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", WAITER.load(SeqCst)));
                call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
            });
            _ = mutex.unlock();
            thread.join().unwrap()
        });
        assert_eq!(owner.join().unwrap(), if kind == Own { libc::ETIMEDOUT } else { 0 });
    });
}

/// A robust mutex that a goroutine holds when the process ends is released only without thread-locals of the goroutine: the
/// kernel knows the list of the worker's mutexes.
fn robust_mutexes(kind: Kind) {
    // SAFETY: the attributes are initialised.
    let mutex = CMutex::new(|attributes| unsafe {
        libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED)
            | libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST)
    });
    let status = status_of(move || {
        run(move || spawn(move || assert_eq!(mutex.try_lock(), 0)).join().unwrap());
    });
    assert_eq!(status, 0);
    assert_eq!(mutex.lock_within_a_second(), if kind == Own { libc::ETIMEDOUT } else { libc::EOWNERDEAD });
}

/// `pthread_exit` in a goroutine ends the process.
fn the_end_of_a_pthread(_: Kind) {
    unsafe extern "C" {
        fn pthread_exit(value: *mut libc::c_void) -> !;
    }
    run(|| {
        // SAFETY: the call ends the process: see the expected end.
        _ = spawn(|| unsafe { pthread_exit(null_mut()) }).join();
    });
}

/// Calls that hand the goroutine's `pthread_self` to the kernel fail, as the kernel has no thread of that number. The number of
/// the worker's thread, and all that belongs to that thread, are there as ever.
fn kernel_threads(kind: Kind) {
    run(move || {
        let calls = spawn(|| {
            // SAFETY: zeros are a valid set of processors; the attributes are initialised by the second call.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                let mut attributes = MaybeUninit::uninit();
                [
                    libc::pthread_getaffinity_np(pthread(), size_of_val(&set), &raw mut set),
                    libc::pthread_getattr_np(pthread(), attributes.as_mut_ptr()),
                    libc::sched_getaffinity(0, size_of_val(&set), &raw mut set),
                    libc::pthread_kill(pthread(), 0),
                    i32::from(libc::sched_getcpu() < 0),
                ]
            }
        });
        let expected = if kind == Own { libc::ESRCH } else { 0 };
        assert_eq!(calls.join().unwrap(), [expected, expected, 0, 0, 0]);
        // The number stays the same over waits, and the mask is that of all goroutines of the worker.
        let number = || {
            spawn(|| {
                // SAFETY: `gettid` takes no arguments and cannot fail.
                let number = || unsafe { libc::gettid() };
                let before = number();
                gosched();
                assert_eq!(number(), before);
                before
            })
        };
        let (first, second) = (number(), number());
        assert_eq!(first.join().unwrap(), second.join().unwrap());
        let blocked = |how| {
            // SAFETY: both sets are initialised, and the call may write the second.
            unsafe {
                let (mut set, mut old) = (std::mem::zeroed(), std::mem::zeroed());
                libc::sigaddset(&raw mut set, libc::SIGUSR2);
                libc::pthread_sigmask(how, &raw const set, &raw mut old);
                libc::sigismember(&raw const old, libc::SIGUSR2)
            }
        };
        assert_eq!(spawn(move || blocked(libc::SIG_BLOCK)).join().unwrap(), 0);
        assert_eq!(spawn(move || blocked(libc::SIG_UNBLOCK)).join().unwrap(), 1);
    });
}

// ---- processes ------------------------------------------------------------------------------------------------------------

fn commands(_: Kind) {
    run(|| {
        let runs: Vec<_> = (0..8)
            .map(|i| {
                spawn(move || {
                    let mut command = Command::new("true");
                    if i % 2 == 1 {
                        // A step before `exec`, which has `std` fork.
                        // SAFETY: the closure makes a system call, and nothing else.
                        unsafe {
                            command.pre_exec(|| {
                                if libc::getpid() > 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
                            })
                        };
                    }
                    command.status().unwrap().success()
                })
            })
            .collect();
        assert!(runs.into_iter().all(|run| run.join().unwrap()));
    });
}

/// Forks, and returns the status of the child, which calls `child` and exits.
fn status_of(child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls `child`, which uses what this process may use after a fork, and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        child();
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// A forked child may go on and exit. A switch would lead to a stack that glibc has taken for another thread.
fn a_forked_child_that_waits(_: Kind) {
    run(|| {
        let other = spawn(|| (0..100).for_each(|_| gosched()));
        let forks = spawn(|| {
            assert_eq!(status_of(|| _ = vec![1; 1000]), 0);
            let thread = || assert_eq!(thread::spawn(|| 1).join().unwrap(), 1);
            assert_eq!(status_of(thread), 0);
            let status = status_of(gosched);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status}");
        });
        forks.join().unwrap();
        other.join().unwrap();
    });
}

/// Each thread of the process takes part in `setuid`, whether it runs a goroutine, waits, or calls.
fn setuid(_: Kind) {
    static STOP: AtomicBool = AtomicBool::new(false);
    fn same() -> i32 {
        // SAFETY: the two calls take numbers.
        unsafe { libc::setuid(libc::getuid()) }
    }
    run(|| {
        assert_eq!(same(), 0);
        let busy = spawn(|| {
            // A goroutine that holds its worker: the signal comes while its thread-locals are in force.
            while !STOP.load(SeqCst) {
                std::hint::spin_loop();
            }
            same()
        });
        let thread = thread::spawn(|| {
            let result = same();
            STOP.store(true, SeqCst);
            result
        });
        assert_eq!(busy.join().unwrap(), 0);
        assert_eq!(thread.join().unwrap(), 0);
    });
}

/// The thread of glibc's that a block begins as takes part in `setuid`, or is passed over, at each instant of that thread's life.
fn setuid_while_blocks_are_made(_: Kind) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let thread = thread::spawn(|| {
        while !STOP.load(SeqCst) {
            // SAFETY: the two calls take numbers.
            assert_eq!(unsafe { libc::setuid(libc::getuid()) }, 0);
        }
    });
    run(|| (0..1000).for_each(|_| spawn_apart(|| ()).join().unwrap()));
    STOP.store(true, SeqCst);
    thread.join().unwrap();
}

/// Returns the resident bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn blocks_are_freed(_: Kind) {
    thread_local!(static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    fn some(n: usize) {
        let mut left = n;
        while left > 0 {
            let goroutines: Vec<_> = (0..50)
                .map(|_| {
                    spawn_apart(|| {
                        BYTES.with_borrow_mut(|bytes| bytes.resize(1000, 1));
                        gosched();
                        _ = thread::current().id();
                        BYTES.with_borrow(|bytes| assert_eq!(bytes.len(), 1000));
                    })
                })
                .collect();
            goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            left -= 50;
        }
    }
    run(|| {
        some(1000);
        let before = resident();
        some(10_000);
        let grown = resident().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes more");
    });
}

/// Memory that a goroutine has freed is the next that another goroutine of the worker gets: goroutines have no caches of their own.
fn memory_of_the_workers(_: Kind) {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    fn address() -> usize {
        // Not zeroed: an optimised program would call `calloc`, which does not look into glibc's cache.
        let memory = std::hint::black_box(Vec::<u8>::with_capacity(1000));
        memory.as_ptr().addr()
    }
    run(|| {
        let gets = spawn(|| {
            address();
            until(|| FREED.load(SeqCst) != 0);
            address() == FREED.load(SeqCst)
        });
        gosched();
        let frees = spawn(|| FREED.store(address(), SeqCst));
        assert!(gets.join().unwrap());
        frees.join().unwrap();
    });
}

// ---- libraries --------------------------------------------------------------------------------------------------------------

/// Compiles a library whose function `next` adds 1 to a thread-local that begins with 100.
fn library(model: &str) -> CString {
    compile(model, "static __thread int value = 100; int next(void) { return ++value; }\n", model)
}

/// Compiles a library with this model of thread-locals. Linking Rust needs `cc`, too.
fn compile(name: &str, text: &str, model: &str) -> CString {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("sudog-move-{name}-{}.so", std::process::id()));
    let source = path.with_extension("c");
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", &format!("-ftls-model={model}"), "-o"]).arg(&path).arg(&source);
    assert!(compiler.status().unwrap().success());
    std::fs::remove_file(source).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

/// Opens the library from a goroutine while others have their blocks already, and calls the function in each.
fn open_and_call(kind: Kind, path: CString) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    fn next() -> i32 {
        let address = ptr::with_exposed_provenance::<()>(NEXT.load(SeqCst));
        // SAFETY: the address is that of the library's function `next`, and the library is never closed.
        unsafe { std::mem::transmute::<*const (), extern "C" fn() -> i32>(address)() }
    }
    fn open(path: &CStr) -> usize {
        // SAFETY: both strings end with a zero byte; the library has no constructors.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
            libc::dlsym(library, c"next".as_ptr()).expose_provenance()
        }
    }
    run(move || {
        let calls = || {
            spawn(|| {
                until(|| NEXT.load(SeqCst) != 0);
                let first = next();
                gosched();
                (first, next())
            })
        };
        let mut goroutines: Vec<_> = (0..5).map(|_| calls()).collect();
        gosched();
        spawn(move || NEXT.store(open(&path), SeqCst)).join().unwrap();
        goroutines.extend((0..5).map(|_| calls()));
        let mut seen: Vec<_> = goroutines.into_iter().map(|goroutine| goroutine.join().unwrap()).collect();
        seen.sort_unstable();
        if kind == Own {
            assert!(seen.iter().all(|&(first, second)| second == first + 1), "{seen:?}");
            assert_eq!(seen.iter().filter(|&&calls| calls == (101, 102)).count(), 10, "{seen:?}");
        } else {
            assert_eq!(seen.iter().map(|&(_, second)| second).max(), Some(120), "{seen:?}");
        }
    });
}

fn a_library_with_static_thread_locals(kind: Kind) {
    let path = library("initial-exec");
    open_and_call(kind, path.clone());
    std::fs::remove_file(path.to_str().unwrap()).unwrap();
}

fn a_library_with_dynamic_thread_locals(kind: Kind) {
    let path = library("global-dynamic");
    open_and_call(kind, path.clone());
    std::fs::remove_file(path.to_str().unwrap()).unwrap();
}

/// Without `PerGoroutine`, spans that are entered over a switch are right only with thread-locals of the goroutine.
fn spans_of_tracing(kind: Kind) {
    static LINES: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    struct Lines;
    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
        fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
            LINES.lock().unwrap().push(context.event_scope(event).into_iter().flatten().count());
        }
    }
    tracing::subscriber::set_global_default(Registry::default().with(Lines)).unwrap();
    run(|| {
        let goroutines: Vec<_> = (0..8)
            .map(|_| {
                spawn(|| {
                    let _span = info_span!("request").entered();
                    for _ in 0..5 {
                        gosched();
                        info!("a line");
                    }
                })
            })
            .collect();
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    });
    let lines = LINES.lock().unwrap();
    assert_eq!(lines.len(), 40);
    assert_eq!(lines.iter().all(|&spans| spans == 1), kind == Own, "{lines:?}");
}

/// The registry of `tracing-subscriber` has room for 4,096 threads, and panics in any more.
fn threads_of_tracing(kind: Kind) {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    const GOROUTINES: usize = 4200;
    tracing::subscriber::set_global_default(Registry::default()).unwrap();
    run(move || {
        let goroutines: Vec<_> = (0..GOROUTINES)
            .map(|_| {
                spawn(|| {
                    let entered = catch_unwind(|| info_span!("request").entered());
                    INSIDE.fetch_add(1, SeqCst);
                    until(|| INSIDE.load(SeqCst) == GOROUTINES);
                    entered.is_ok()
                })
            })
            .collect();
        let entered = goroutines.into_iter().filter_map(|goroutine| goroutine.join().unwrap().then_some(())).count();
        assert!(if kind == Own { entered <= 4096 } else { entered == GOROUTINES }, "{entered}");
    });
}

/// Guards of two goroutines end in another order than that of a stack.
fn guards_of_tokio(kind: Kind) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let handle = tokio.handle().clone();
    run(move || {
        let goroutines: Vec<_> = (0..4)
            .map(|i| {
                let handle = handle.clone();
                spawn(move || {
                    catch_unwind(AssertUnwindSafe(|| {
                        let _entered = handle.enter();
                        (0..10 - i).for_each(|_| gosched());
                        tokio::runtime::Handle::current();
                    }))
                    .is_ok()
                })
            })
            .collect();
        let fine = goroutines.into_iter().filter_map(|goroutine| goroutine.join().unwrap().then_some(())).count();
        if kind == Own {
            assert_eq!(fine, 4);
        }
    });
}

/// A handler that uses thread-locals and the errno runs at any point of a switch.
fn signals(_: Kind) {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    static WORKER: AtomicI32 = AtomicI32::new(0);
    thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });
    extern "C" fn handle(_: libc::c_int) {
        // SAFETY: the place is the calling thread's.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let was = unsafe { *errno };
        COUNT.set(COUNT.get() + 1);
        HANDLED.fetch_add(1, SeqCst);
        // SAFETY: as above.
        unsafe { *errno = was };
    }
    // SAFETY: the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
    }
    run(|| {
        // SAFETY: the call takes no arguments and cannot fail.
        spawn(|| WORKER.store(unsafe { libc::gettid() }, SeqCst)).join().unwrap();
        let sender = thread::spawn(|| {
            for sent in 0..2000 {
                // SAFETY: the worker's thread exists as long as the process.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), WORKER.load(SeqCst), libc::SIGUSR1) };
                while HANDLED.load(SeqCst) <= sent {
                    thread::yield_now();
                }
            }
        });
        let switches = || spawn(|| until(|| HANDLED.load(SeqCst) == 2000));
        let goroutines = [switches(), switches(), switches()];
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        sender.join().unwrap();
    });
}

// ---- all at once ------------------------------------------------------------------------------------------------------------

/// Goroutines with thread-locals that have destructors wait, panic, meet threads and each other, and end, for a second or
/// `SUDOG_STRESS_SECS` seconds.
fn a_storm(kind: Kind) {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Value(usize, Vec<u8>);
    impl Drop for Value {
        fn drop(&mut self) {
            assert_eq!(self.1.len(), self.0 % 500);
            if self.0.is_multiple_of(7) {
                let bytes = std::mem::take(&mut self.1);
                sudog::go(move || drop(bytes));
            }
            DROPS.fetch_add(usize::from(self.0.is_multiple_of(2)), SeqCst);
        }
    }
    thread_local!(static VALUE: RefCell<Option<Value>> = const { RefCell::new(None) });
    struct Yields(usize);
    impl Drop for Yields {
        fn drop(&mut self) {
            (0..self.0 % 3).for_each(|_| gosched());
        }
    }
    /// Returns whether the thread-local has stayed the goroutine's over all waits.
    fn work(me: usize) -> bool {
        let value = Value(me, vec![me as u8; me % 500]);
        VALUE.set(Some(value));
        let (sender, receiver) = channel(me % 2);
        let helper = match me % 4 {
            0 => {
                thread::spawn(move || sender.send(me));
                None
            }
            1 => Some(spawn(move || {
                sudog::time::sleep(Duration::from_micros(me as u64 % 50));
                _ = sender.send(me);
            })),
            _ => Some(spawn(move || {
                let _yields = Yields(me);
                assert!(catch_unwind(|| panic!("expected")).is_err());
                _ = sender.send(me);
                panic!("expected");
            })),
        };
        (0..me % 3).for_each(|_| gosched());
        assert_eq!(receiver.recv(), Ok(me));
        _ = helper.map(JoinHandle::join);
        VALUE.with_borrow(|value| value.as_ref().is_some_and(|value| value.0 == me && value.1.len() == me % 500))
    }
    std::panic::set_hook(Box::new(|info| {
        if info.payload_as_str() != Some("expected") {
            eprintln!("{info}");
        }
    }));
    let secs = std::env::var("SUDOG_STRESS_SECS").map_or(1.0, |secs| secs.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs_f64(secs);
    run(move || {
        let (mut apart, mut kept) = (0, true);
        while Instant::now() < end {
            let one = || {
                let me = NEXT.fetch_add(1, SeqCst);
                if me.is_multiple_of(2) { spawn_apart(move || work(me)) } else { spawn(move || work(me)) }
            };
            let goroutines: Vec<_> = (0..100).map(|_| one()).collect();
            apart += 50;
            goroutines.into_iter().for_each(|goroutine| kept &= goroutine.join().unwrap());
        }
        assert_eq!(kept, kind == Own);
        // The values of freed stacks, which are the even ones, are dropped.
        until(|| kind == Shared || DROPS.load(SeqCst) == apart);
    });
}

fn a_stack_overflow(_: Kind) {
    #[expect(unconditional_recursion)]
    fn deeper(at: *const u8) -> u8 {
        let frame = std::hint::black_box([0_u8; 512]);
        deeper(frame.as_ptr()).wrapping_add(std::hint::black_box(if at.is_null() { 0 } else { frame[1] }))
    }
    run(|| spawn(|| deeper(null())).join().unwrap());
}
