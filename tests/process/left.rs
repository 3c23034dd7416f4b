//! Goroutines that cannot be unwound when their scheduler is over: they are left where they wait, but not while others use
//! what their frames have lent.
//!
//! Where panics unwind, that is a goroutine in a frame of C; where they abort, each. No harness, so that the same file is run
//! with `-C panic=abort`, too.
#![cfg(all(unix, not(sudog_loom)))]

use std::cell::OnceCell;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use sudog::runtime::sema::{Cancel, NotifyList, WaitLimit, semacquire};
use sudog::runtime::{goexit, gosched, set_max_procs};
use sudog::sync::{Map, Mutex};
use sudog::{Builder, Placement, blocking, go, run, scope, spawn};
use support::{Watchdog, eventually};

/// What the threads of one test share.
#[derive(Default)]
struct World {
    /// The thread-local of the caller of `run` has ended.
    ended: AtomicBool,
    /// Those that have borrowed it run.
    borrowed: AtomicBool,
    /// They may end.
    gate: AtomicBool,
    /// They have found that it has ended.
    misused: AtomicBool,
    /// The owner of the scope goes on after it.
    returned: AtomicBool,
}

struct Lent(Arc<World>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.ended.store(true, SeqCst);
    }
}

/// Calls `f` with a thread-local of this thread.
fn with_lent(world: &Arc<World>, f: impl FnOnce(&Lent)) {
    thread_local! {
        static LENT: OnceCell<Lent> = const { OnceCell::new() };
    }
    LENT.with(|lent| f(lent.get_or_init(|| Lent(world.clone()))));
}

impl Lent {
    /// What a borrower does: until it may end, the thread-local is there.
    fn is_used(&self) {
        let world = self.0.clone(); // should it end
        world.borrowed.store(true, SeqCst);
        while !world.gate.load(SeqCst) {
            if world.ended.load(SeqCst) {
                return world.misused.store(true, SeqCst);
            }
            thread::yield_now();
        }
    }
}

/// Calls `f` through a frame that no panic may pass.
fn through_c(mut f: impl FnMut()) {
    #[allow(improper_ctypes_definitions)] // it is Rust on both sides
    extern "C" fn call(f: &mut dyn FnMut()) {
        f();
    }
    call(&mut f);
}

fn wait_for_ever() {
    semacquire(&AtomicU32::new(0));
    unreachable!("nobody releases");
}

/// Runs `lends` in a goroutine of a thread that calls `run`, and then ends; on that thread, whose thread-local it lends out. The
/// gate opens when the thread has had the time to end.
fn in_a_run_that_ends(lends: impl FnOnce(Arc<World>) + Send + 'static) -> Arc<World> {
    let world = Arc::new(World::default());
    let of_caller = world.clone();
    let caller = thread::spawn(move || {
        let world = of_caller.clone();
        run(move || {
            set_max_procs(2);
            Builder::new().on(Placement::Here).go(move || lends(of_caller));
            while !world.borrowed.load(SeqCst) {
                gosched();
            }
        });
    });
    eventually(|| world.borrowed.load(SeqCst));
    // A worker has patience for a second. Were it more, this would test nothing.
    thread::sleep(Duration::from_millis(1500));
    world.gate.store(true, SeqCst);
    caller.join().unwrap();
    assert!(world.ended.load(SeqCst), "no thread-local was lent, or its thread goes on");
    assert!(!world.misused.load(SeqCst), "the thread-local has ended, and is in use");
    world
}

fn a_call_has_returned_before_its_goroutine_is_left() {
    in_a_run_that_ends(|world| {
        with_lent(&world, |lent| {
            through_c(|| {
                blocking(|| lent.is_used());
                wait_for_ever();
            });
        });
    });
}

/// It lends a variable of its own, which is dropped if panics unwind.
fn a_call_has_returned_before_its_goroutine_is_unwound() {
    let world = Arc::new(World::default());
    let opener = world.clone();
    let opener = thread::spawn(move || {
        eventually(|| opener.borrowed.load(SeqCst));
        // The goroutine ends at once, if it does not wait. Were it later, this would test nothing.
        thread::sleep(Duration::from_millis(200));
        opener.gate.store(true, SeqCst);
    });
    let lent = Lent(world.clone());
    run(|| {
        let world = lent.0.clone();
        Builder::new().on(Placement::Here).go(move || {
            let lent = lent;
            blocking(|| lent.is_used());
            wait_for_ever();
        });
        while !world.borrowed.load(SeqCst) {
            gosched();
        }
    });
    opener.join().unwrap();
    assert!(!world.misused.load(SeqCst), "the variable has been dropped, and is in use");
    assert_eq!(world.ended.load(SeqCst), cfg!(panic = "unwind"));
}

/// The owner waits inside of the scope, in a frame of C; the goroutine of the scope computes on another worker.
fn goroutines_of_a_scope_have_ended_before_its_owner_is_left() {
    in_a_run_that_ends(|world| {
        with_lent(&world, |lent| {
            scope(|s| {
                Builder::new().on(Placement::Worker(1)).go_scoped(s, || lent.is_used());
                through_c(wait_for_ever);
            });
        });
    });
}

/// The goroutine of the scope is left, and so the owner is, too. Both the one that waits for its scope, and the one that waits
/// inside of it.
fn goroutines_of_a_scope_have_been_left_before_its_owner_is() {
    for waits_inside in [false, true] {
        let world = in_a_run_that_ends(move |world| {
            with_lent(&world, |lent| {
                scope(|s| {
                    Builder::new().on(Placement::Worker(1)).go_scoped(s, || {
                        lent.is_used();
                        through_c(wait_for_ever);
                    });
                    if waits_inside {
                        through_c(wait_for_ever);
                    }
                });
                lent.0.returned.store(true, SeqCst);
            });
        });
        assert!(!world.returned.load(SeqCst), "the scope has returned before its goroutine has ended");
    }
}

/// The owner waits for what its scope's goroutine would bring, and is unwound into the wait for that one, which is left.
fn an_owner_that_is_unwound_is_left_with_its_goroutine() {
    for on in [Placement::Here, Placement::Worker(1)] {
        let world = Arc::new(World::default());
        let (of_goroutines, of_main) = (world.clone(), world.clone());
        run(move || {
            set_max_procs(2);
            Builder::new().on(Placement::Here).go(move || {
                scope(|s| {
                    Builder::new().on(on).go_scoped(s, || {
                        through_c(|| {
                            of_goroutines.borrowed.store(true, SeqCst);
                            wait_for_ever();
                        });
                    });
                    wait_for_ever();
                });
                of_goroutines.returned.store(true, SeqCst);
            });
            while !of_main.borrowed.load(SeqCst) {
                gosched();
            }
        });
        assert!(!world.returned.load(SeqCst), "the scope has returned before its goroutine has ended");
    }
}

/// Between two calls it has lent nothing.
fn a_goroutine_that_calls_again_and_again_is_left() {
    let world = Arc::new(World::default());
    let of_goroutine = world.clone();
    run(move || {
        Builder::new().on(Placement::Here).go(move || {
            through_c(|| {
                loop {
                    blocking(|| of_goroutine.borrowed.store(true, SeqCst));
                }
            });
        });
        while !world.borrowed.load(SeqCst) {
            gosched();
        }
    });
}

/// Locks a mutex as it is dropped.
struct Locks(Arc<Mutex<()>>);

impl Drop for Locks {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

/// What has not begun is dropped; its destructor waits for what a goroutine has that is left, where panics abort.
fn a_destructor_that_waits_for_one_that_is_left_does_not_keep_a_run() {
    let mutex = Arc::new(Mutex::new(()));
    let locked = Arc::new(AtomicBool::new(false));
    run(|| {
        set_max_procs(2);
        let (of_owner, is_locked) = (mutex.clone(), locked.clone());
        Builder::new().on(Placement::Here).go(move || {
            let _guard = of_owner.lock();
            is_locked.store(true, SeqCst);
            wait_for_ever();
        });
        while !locked.load(SeqCst) {
            gosched();
        }
        // Its scope's goroutine has not begun, either, as its worker is busy until main has ended, or just after it has.
        let (ends, of_child) = (Arc::new(AtomicBool::new(false)), mutex.clone());
        let busy = ends.clone();
        Builder::new().on(Placement::Worker(1)).go(move || while !busy.load(SeqCst) {});
        Builder::new().on(Placement::Here).go(move || {
            scope(|s| {
                let captured = Locks(of_child);
                Builder::new().on(Placement::Worker(1)).go_scoped(s, move || drop(captured));
                wait_for_ever();
            });
        });
        gosched();
        let captured = Locks(mutex.clone());
        Builder::new().on(Placement::Here).go(move || drop(captured));
        ends.store(true, SeqCst);
    });
}

/// It waits in a list that a thread-local of the caller's may own: that may be gone when the cancel comes.
fn a_cancel_does_not_look_for_one_that_was_left() {
    static LIST: NotifyList = NotifyList::new();
    static CANCEL: Cancel = Cancel::new();
    run(|| {
        Builder::new().on(Placement::Here).go(|| {
            through_c(|| {
                let limit = WaitLimit { cancel: Some(&CANCEL), deadline: None };
                LIST.with_ticket(|ticket| _ = ticket.wait_limited(&limit));
            });
        });
        while LIST.waiters() == 0 {
            gosched();
        }
    });
    CANCEL.cancel();
    assert_eq!(LIST.waiters(), 1, "the cancel has used the list");
}

/// It waits again, where it cannot be unwound.
fn one_that_has_caught_its_end_does_not_keep_a_run() {
    static CAUGHT: AtomicBool = AtomicBool::new(false);
    run(|| {
        Builder::new().on(Placement::Here).go(|| {
            through_c(|| {
                CAUGHT.store(catch_unwind(wait_for_ever).is_err(), SeqCst);
                wait_for_ever();
            });
        });
        gosched();
    });
    assert_eq!(CAUGHT.load(SeqCst), cfg!(panic = "unwind"));
}

/// Of a map: its clone may wait.
struct Value {
    world: Arc<World>,
    waits: fn(&World),
}

impl Clone for Value {
    fn clone(&self) -> Self {
        (self.waits)(&self.world);
        Self { world: self.world.clone(), waits: |_| () }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.world.ended.store(true, SeqCst);
    }
}

/// A goroutine is left in a `clone` under the guard of its thread, which ends. A thread that gets the same place in the map's
/// collector, after `range` has had it, takes itself for a reader that is there already.
fn what_a_map_lends_stays_after_a_goroutine_was_left_in_it() {
    let value = |waits: fn(&World)| Value { world: Arc::default(), waits };
    // Not freed while the goroutine that is left has it: it does not run any more, so it does not use it.
    let owner: *mut Map<u32, Value> = Box::into_raw(Box::default());
    // SAFETY: freed at the end of this function.
    let map = unsafe { &*owner };
    map.store(0, value(|_| ())); // this thread has the first place
    let waits = value(|world| {
        world.borrowed.store(true, SeqCst);
        through_c(wait_for_ever);
    });
    let world = waits.world.clone();
    map.store(1, waits);
    let caller = thread::spawn(move || {
        run(move || {
            Builder::new().on(Placement::Here).go(move || _ = map.load(&1));
            while !world.borrowed.load(SeqCst) {
                gosched();
            }
        });
    });
    caller.join().unwrap();
    map.range(|_, _| true);
    let waits = value(|world| {
        world.borrowed.store(true, SeqCst);
        eventually(|| world.gate.load(SeqCst));
    });
    let world = waits.world.clone();
    map.store(2, waits);
    thread::scope(|s| {
        let reader = s.spawn(|| {
            assert!(map.load(&0).is_some());
            assert!(map.load(&2).is_some());
        });
        eventually(|| world.borrowed.load(SeqCst));
        map.delete(&2);
        // More than a batch.
        for key in 100..400 {
            map.store(key, value(|_| ()));
            map.delete(&key);
        }
        let is_freed = world.ended.load(SeqCst);
        world.gate.store(true, SeqCst);
        assert!(!is_freed, "a value was freed that is being cloned");
        reader.join().unwrap();
    });
    world.ended.store(false, SeqCst); // the clone's end
    // SAFETY: made above; the goroutine that is left is the only one that has borrowed it.
    drop(unsafe { Box::from_raw(owner) });
    assert!(world.ended.load(SeqCst), "what was removed is freed with the map");
}

/// Where panics unwind, they are unwound.
fn what_has_lent_nothing_does_not_keep_a_run() {
    let count = Arc::new(AtomicU32::new(0));
    run(|| {
        for _ in 0..100 {
            let count = count.clone();
            go(move || {
                count.fetch_add(1, SeqCst);
                wait_for_ever();
            });
        }
        while count.load(SeqCst) < 100 {
            gosched();
        }
    });
}

const TESTS: [(&str, fn()); 12] = [
    // First: places are given to threads in their order.
    (
        "what_a_map_lends_stays_after_a_goroutine_was_left_in_it",
        what_a_map_lends_stays_after_a_goroutine_was_left_in_it,
    ),
    ("a_cancel_does_not_look_for_one_that_was_left", a_cancel_does_not_look_for_one_that_was_left),
    ("one_that_has_caught_its_end_does_not_keep_a_run", one_that_has_caught_its_end_does_not_keep_a_run),
    ("an_owner_that_is_unwound_is_left_with_its_goroutine", an_owner_that_is_unwound_is_left_with_its_goroutine),
    ("a_goroutine_that_calls_again_and_again_is_left", a_goroutine_that_calls_again_and_again_is_left),
    (
        "a_destructor_that_waits_for_one_that_is_left_does_not_keep_a_run",
        a_destructor_that_waits_for_one_that_is_left_does_not_keep_a_run,
    ),
    ("a_call_has_returned_before_its_goroutine_is_unwound", a_call_has_returned_before_its_goroutine_is_unwound),
    ("a_call_has_returned_before_its_goroutine_is_left", a_call_has_returned_before_its_goroutine_is_left),
    (
        "goroutines_of_a_scope_have_ended_before_its_owner_is_left",
        goroutines_of_a_scope_have_ended_before_its_owner_is_left,
    ),
    (
        "goroutines_of_a_scope_have_been_left_before_its_owner_is",
        goroutines_of_a_scope_have_been_left_before_its_owner_is,
    ),
    ("what_has_lent_nothing_does_not_keep_a_run", what_has_lent_nothing_does_not_keep_a_run),
    ("a_goexit_says_why_it_ends_the_process", a_goexit_says_why_it_ends_the_process),
];

/// Where panics abort, a `goexit` says why it ends the process; elsewhere it ends its goroutine.
fn a_goexit_says_why_it_ends_the_process() {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).env(GOEXIT, "1").output().expect("a child");
    let words = String::from_utf8_lossy(&output.stderr);
    if cfg!(panic = "abort") {
        assert!(!output.status.success() && words.contains("fatal error: sudog: goexit unwinds"), "{words}");
    } else {
        assert!(output.status.success(), "{words}");
    }
}

/// Set in a child process that is to call `goexit`.
const GOEXIT: &str = "SUDOG_TEST_GOEXIT";

/// One test, if an argument names it; else all.
fn main() {
    if std::env::var_os(GOEXIT).is_some() {
        return run(|| _ = spawn(|| goexit()).join());
    }
    let only = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let panics = if cfg!(panic = "abort") { "abort" } else { "unwind" };
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let tests: Vec<_> = TESTS.into_iter().filter(|(name, _)| wanted(name)).collect();
    for (name, test) in &tests {
        let _watchdog = Watchdog::new();
        test();
        println!("test {name}, where panics {panics} ... ok");
    }
    println!("test result: ok. {} passed", tests.len());
}
