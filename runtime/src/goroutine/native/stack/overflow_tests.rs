//! Tests of processes that end by a fault. Each process is a copy of this program that runs one test.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use corosensei::Coroutine;

use super::*;
use crate::goroutine::native::stack::DEFAULT_SIZE;
use crate::goroutine::native::stack::tests::child;
use crate::goroutine::native::stack::{self, PooledStack};

const NAME: &[u8] = b"the one that recurs";

thread_local! {
    /// The beginning of the guard, the size of the stack, and the length of the name.
    static RUNNING: Cell<Option<(usize, usize, usize)>> = const { Cell::new(None) };
}

fn describe() -> Option<Running> {
    let (low, size, name) = RUNNING.get()?;
    Some(Running { guard: low..low + guard_len(), size, name: &raw const NAME[..name], id: 7 })
}

#[track_caller]
fn assert_end(out: &Output, signal: libc::c_int, says: &str) {
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.signal(), Some(signal), "{:?}: {text}", out.status);
    assert!(text.contains(says), "{text}");
    assert_eq!(text.contains("goroutine"), says.contains("goroutine"), "{text}");
}

/// Recurs until the stack ends.
fn deep(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 32]);
    if n == u64::MAX { 0 } else { deep(n + 1) + frame[31] }
}

fn run_as(stack: &PooledStack, name: usize) {
    RUNNING.set(Some((stack.extent().guard().start, stack.extent().size(), name)));
}

/// Overflows a stack of that size, as goroutine 7.
fn overflow(size: Option<usize>, name: usize) {
    let stack = stack::take(size).expect("a stack");
    run_as(&stack, name);
    Coroutine::with_stack(stack, |_: &corosensei::Yielder<(), ()>, ()| deep(0)).resume(());
}

/// A fault in no stack: in the page at 0, which is never mapped.
fn fault() {
    // SAFETY: not safe: the read is meant to fault.
    unsafe { std::hint::black_box(16 as *const u64).read_volatile() };
}

#[test]
fn an_overflow_names_the_goroutine() {
    let Some(out) = child(module_path!(), "an_overflow_names_the_goroutine") else {
        install(describe);
        return overflow(None, NAME.len());
    };
    let says = format!(
        "runtime: goroutine stack exceeds {DEFAULT_SIZE}-byte limit\n\
         goroutine 7 \"the one that recurs\" [running]\n\
         fatal error: stack overflow\n"
    );
    assert_end(&out, libc::SIGABRT, &says);
}

#[test]
fn an_overflow_of_a_nameless_one_with_a_small_stack() {
    let Some(out) = child(module_path!(), "an_overflow_of_a_nameless_one_with_a_small_stack") else {
        install(describe);
        return overflow(Some(1 << 15), 0);
    };
    let says =
        "runtime: goroutine stack exceeds 32768-byte limit\ngoroutine 7 [running]\nfatal error: stack overflow\n";
    assert_end(&out, libc::SIGABRT, says);
}

#[test]
fn a_thread_of_others_has_an_alternate_stack_too() {
    extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
        let bare = |stack: libc::stack_t| stack.ss_flags & libc::SS_DISABLE != 0;
        assert!(bare(alternate()), "nobody has given it one");
        drop(prepare_thread());
        assert!(bare(alternate()), "and it is gone");
        let _alternate = prepare_thread();
        let again = prepare_thread();
        assert!(again.memory.is_none(), "one is enough");
        drop(again);
        overflow(None, 0);
        null_mut()
    }
    let Some(out) = child(module_path!(), "a_thread_of_others_has_an_alternate_stack_too") else {
        install(describe);
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `run` needs no argument; the thread is joined.
        unsafe {
            assert_eq!(libc::pthread_create(thread.as_mut_ptr(), null(), run, null_mut()), 0);
            libc::pthread_join(thread.assume_init(), null_mut());
        }
        return;
    };
    assert_end(&out, libc::SIGABRT, &format!("runtime: goroutine stack exceeds {DEFAULT_SIZE}-byte limit\n"));
}

#[test]
fn threads_keep_the_alternate_stack_they_have() {
    let before = alternate();
    assert_eq!(before.ss_flags & libc::SS_DISABLE, 0, "std gives one to its threads");
    let ours = prepare_thread();
    assert!(ours.memory.is_none());
    drop(ours);
    assert_eq!(alternate().ss_sp, before.ss_sp);
}

#[test]
fn an_overflow_of_a_thread_is_stds() {
    let Some(out) = child(module_path!(), "an_overflow_of_a_thread_is_stds") else {
        install(describe);
        install(describe); // the second call must not note the first one's handler as the handler before
        // The thread overflows its own stack while `describe` names a goroutine, whose guard is elsewhere.
        let stack = stack::take(None).expect("a stack");
        return drop(
            std::thread::spawn(move || {
                run_as(&stack, 0);
                deep(0)
            })
            .join(),
        );
    };
    assert_end(&out, libc::SIGABRT, "has overflowed its stack");
}

#[test]
fn a_wild_pointer_still_faults() {
    let Some(out) = child(module_path!(), "a_wild_pointer_still_faults") else {
        install(describe);
        return fault();
    };
    assert_end(&out, libc::SIGSEGV, "");
}

#[test]
fn the_default_action_is_restored() {
    let Some(out) = child(module_path!(), "the_default_action_is_restored") else {
        // SAFETY: this process does not need std's handler.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        install(describe);
        return fault();
    };
    assert_end(&out, libc::SIGSEGV, "");
}

#[test]
fn a_handler_without_siginfo_is_called() {
    extern "C" fn exit(signal: libc::c_int) {
        // SAFETY: `_exit` is async-signal-safe.
        unsafe { libc::_exit(signal + 50) };
    }
    let Some(out) = child(module_path!(), "a_handler_without_siginfo_is_called") else {
        // SAFETY: `exit` is async-signal-safe.
        unsafe { libc::signal(libc::SIGSEGV, exit as *const () as libc::sighandler_t) };
        install(describe);
        return fault();
    };
    assert_eq!(out.status.code(), Some(libc::SIGSEGV + 50), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_long_name_is_written_whole() {
    static LONG: [u8; 1000] = [b'x'; 1000];
    let Some(out) = child(module_path!(), "a_long_name_is_written_whole") else {
        die(&Running { guard: 0..1, size: usize::MAX, name: &raw const LONG[..], id: u64::MAX });
    };
    let says =
        format!("exceeds {}-byte limit\ngoroutine {} \"{}\" [running]\n", usize::MAX, u64::MAX, "x".repeat(1000));
    assert_end(&out, libc::SIGABRT, &says);
}
