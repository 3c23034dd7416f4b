//! The cases, in a child process. `posix.rs` has the objects.

mod cancel;
mod cond;
mod errno;
mod fork;
mod mutex;
mod passed;
mod posix;
mod rwlock;

use std::ffi::CStr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// True if the library is there and the lock is not glibc's own.
static REPLACED: AtomicBool = AtomicBool::new(false);

/// Returns whether the objects are the library's. Cases that POSIX leaves undefined differ.
fn is_replaced() -> bool {
    REPLACED.load(Relaxed)
}

/// The seconds after which a case is taken to hang.
const PATIENCE: u32 = 180;

/// Runs all cases.
pub fn run() {
    let lock = std::env::var("SUDOG_LOCK").ok();
    assert_eq!(library_is_loaded(), lock.is_some());
    REPLACED.store(lock.is_some_and(|lock| lock != "pthread"), Relaxed);
    let cases: &[(&str, fn())] = &[
        ("owners exclude each other", mutex::owners_exclude_each_other),
        ("an owner that locks again", mutex::an_owner_that_locks_again),
        ("a recursive mutex counts", mutex::a_recursive_mutex_counts),
        ("unlocks by others", mutex::unlocks_by_others),
        ("a thread in the place of an owner", mutex::a_thread_in_the_place_of_an_owner),
        ("the end of a mutex", mutex::the_end_of_a_mutex),
        ("a mutex is freed after its last unlock", mutex::a_mutex_is_freed_after_its_last_unlock),
        ("memory of mutexes is used again", mutex::memory_of_mutexes_is_used_again),
        ("timed locks", mutex::timed_locks),
        ("destructors of thread-specific data lock", mutex::destructors_of_thread_specific_data_lock),
        ("a signal wakes a waiter", cond::a_signal_wakes_a_waiter),
        ("as many signals as waiters", cond::as_many_signals_as_waiters),
        ("a broadcast wakes all", cond::a_broadcast_wakes_all),
        ("timed waits", cond::timed_waits),
        ("signals and deadlines", cond::signals_and_deadlines),
        ("a wait without the mutex", cond::a_wait_without_the_mutex),
        ("the end of a condition", cond::the_end_of_a_condition),
        ("a destroy sleeps until the woken have left", cond::a_destroy_sleeps_until_the_woken_have_left),
        ("a cancelled wait has the mutex", cancel::a_cancelled_wait_has_the_mutex),
        ("a cancelled wait takes no signal", cancel::a_cancelled_wait_takes_no_signal),
        ("a lock is no cancellation point", cancel::a_lock_is_no_cancellation_point),
        ("readers and writers", rwlock::readers_and_writers),
        ("misuse of a readers-writer lock", rwlock::misuse),
        ("timed reads and writes", rwlock::timed),
        ("a thread reads again beside a writer that waits", rwlock::a_thread_reads_again),
        ("writers that are preferred", rwlock::writers_that_are_preferred),
        ("robust mutexes", passed::robust_mutexes),
        ("inheriting and protected mutexes", passed::inheriting_mutexes),
        ("process-shared objects", passed::process_shared_objects),
        ("a shared condition with a private mutex", passed::a_shared_condition_with_a_private_mutex),
        ("errno after waits that time out", errno::waits_that_time_out),
        ("errno after a wait that a signal interrupts", errno::a_wait_that_a_signal_interrupts),
        ("a child of fork", fork::a_child),
        ("a child of fork, of waiters", fork::a_child_of_waiters),
        ("a fork beside a lock of another handler", fork::a_fork_beside_a_lock_of_another_handler),
        ("a child whose thread ends", fork::a_child_whose_thread_ends),
        ("a child in the same memory", fork::a_child_in_the_same_memory),
    ];
    for (name, case) in cases {
        println!("{name}");
        // SAFETY: the default action of SIGALRM, which ends the process, is wanted.
        unsafe { libc::alarm(PATIENCE) };
        case();
    }
}

/// Returns whether the mutexes of this process are the library's.
fn library_is_loaded() -> bool {
    // SAFETY: all bits zero is a valid `Dl_info`, to which `dladdr` writes; the name that it writes is a C string.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let address = libc::dlsym(libc::RTLD_DEFAULT, c"pthread_mutex_lock".as_ptr());
        assert_ne!(libc::dladdr(address, &raw mut info), 0);
        CStr::from_ptr(info.dli_fname).to_string_lossy().contains("sudog_preload")
    }
}
