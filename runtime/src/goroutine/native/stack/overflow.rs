//! The report of a goroutine that has overflowed its stack: a handler for the fault in the guard, which names the
//! goroutine.
//!
//! Every other fault goes to the handler that was there before: `std`'s, as a rule, which reports threads that have
//! overflowed their stacks. The handler of this file is called first, as it was installed last.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{null, null_mut};
use std::sync::{Once, OnceLock};

use crate::fatal::write_raw;
use crate::goroutine::native::stack::memory::{Pages, guard_len};

/// The goroutine that runs on a thread at this moment.
pub(crate) struct Running {
    /// The addresses of the guard, below the goroutine's stack.
    pub(crate) guard: Range<usize>,
    /// The number of bytes above the guard.
    pub(crate) size: usize,
    /// The goroutine's name, which may be empty. Must be readable while the goroutine runs.
    pub(crate) name: *const [u8],
    /// The goroutine's number.
    pub(crate) id: u64,
}

struct Handlers {
    describe: fn() -> Option<Running>,
    /// The handlers of SIGSEGV and SIGBUS that were installed before.
    before: [libc::sigaction; 2],
}

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The handlers. Written before the handler of this file is installed, and so before that handler can run.
static HANDLERS: OnceLock<Handlers> = OnceLock::new();

/// Installs the handler. Only the first call of the process does so; every call returns when the handler is installed.
///
/// `describe` returns the goroutine that runs on the calling thread. The handler calls `describe`, which must be
/// async-signal-safe, as a `const` thread-local without a destructor is.
pub(crate) fn install(describe: fn() -> Option<Running>) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        HANDLERS.get_or_init(|| Handlers { describe, before: SIGNALS.map(installed) });
        // SAFETY: all zeros are a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        for signal in SIGNALS {
            // SAFETY: the handler is async-signal-safe, and of the type that SA_SIGINFO asks for.
            unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
        }
    });
}

fn installed(signal: libc::c_int) -> libc::sigaction {
    let mut action = MaybeUninit::uninit();
    // SAFETY: the call changes nothing, and fills `action`: `sigaction` fails for unknown signals only.
    unsafe {
        libc::sigaction(signal, null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// Reports an overflow, or calls the handler that was there before. Async-signal-safe throughout: no allocation, no
/// lock, nothing of `std`'s I/O. Must fit into `std`'s alternate stack, in which the kernel leaves some 5 KiB for the
/// handler.
unsafe extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    let Some(handlers) = HANDLERS.get() else { return };
    // SAFETY: `info` is the siginfo of a fault, from the kernel, and so has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    match (handlers.describe)() {
        Some(running) if running.guard.contains(&at) => die(&running),
        _ => {}
    }
    let before = &handlers.before[usize::from(signal == SIGNALS[1])];
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // When this handler returns, the fault recurs and runs the old action; the kernel does not let a fault be
            // ignored. SAFETY: `before` is the action that was in force for `signal`.
            unsafe { libc::sigaction(signal, before, null_mut()) };
        }
        f if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the handler was installed with SA_SIGINFO, so `f` has this type.
            let f: unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(f) };
            // SAFETY: `f` has this type, and gets the arguments that the kernel gave.
            unsafe { f(signal, info, ucontext) }
        }
        f => {
            // SAFETY: the handler was installed without SA_SIGINFO, so `f` has this type.
            let f: unsafe extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(f) };
            // SAFETY: `f` has this type, and gets the signal that the kernel gave.
            unsafe { f(signal) }
        }
    }
}

#[cold]
fn die(running: &Running) -> ! {
    // SAFETY: `running.name` is readable while the goroutine runs. The goroutine has stopped in the handler, and does
    // not run on.
    let name = unsafe { &*running.name };
    let mut text = Text { bytes: [0; 256], len: 0 };
    text.write(b"runtime: goroutine stack exceeds ");
    text.number(running.size as u64);
    text.write(b"-byte limit\ngoroutine ");
    text.number(running.id);
    if !name.is_empty() {
        text.write(b" \"");
        text.write(name);
        text.write(b"\"");
    }
    text.write(b" [running]\nfatal error: stack overflow\n");
    text.write(
        b"For larger stacks: sudog::runtime::set_stack_size, or sudog::Builder::stack_size for one goroutine.\n",
    );
    text.flush();
    std::process::abort()
}

/// A buffer for the text, so that lines of several threads do not mix.
struct Text {
    bytes: [u8; 256],
    len: usize,
}

impl Text {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    fn number(&mut self, mut n: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.write(&digits[at..]);
    }

    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            let n = write_raw(rest);
            if n <= 0 {
                break; // nothing can be done
            }
            rest = &rest[n as usize..];
        }
        self.len = 0;
    }
}

/// The alternate signal stack of a thread. The handler needs such a stack, as the thread's stack may have overflowed.
pub(crate) struct AltStack {
    /// The memory, with a guard at the low end. None if the thread had an alternate stack already, or if there is no
    /// memory for an alternate stack.
    memory: Option<Pages>,
    /// Keeps the value on its thread, which uses the memory.
    not_send: PhantomData<*const ()>,
}

/// Makes sure that the calling thread has an alternate signal stack, until the returned value is dropped.
///
/// `std` gives an alternate stack to its own threads and to the main thread; this function is for other threads. If
/// there is no memory for an alternate stack, an overflow on this thread ends the process by SIGSEGV, without a report.
pub(crate) fn prepare_thread() -> AltStack {
    let memory = (alternate().ss_flags & libc::SS_DISABLE != 0).then(|| make_alternate().ok()).flatten();
    AltStack { memory, not_send: PhantomData }
}

fn alternate() -> libc::stack_t {
    let mut stack = MaybeUninit::uninit();
    // SAFETY: the call changes nothing, and fills `stack`; such a call cannot fail.
    unsafe {
        libc::sigaltstack(null(), stack.as_mut_ptr());
        stack.assume_init()
    }
}

fn make_alternate() -> io::Result<Pages> {
    // The state that the kernel saves on the stack grows with the processor's registers.
    #[cfg(target_os = "linux")]
    // SAFETY: the call only looks up a number; the result is 0 if the kernel does not know that number.
    let saved = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    #[cfg(not(target_os = "linux"))]
    let saved = 0_usize;
    let size = (saved + (64 << 10)).next_multiple_of(guard_len());
    let mut pages = Pages::map(size + guard_len(), libc::PROT_READ | libc::PROT_WRITE)?;
    let installed = pages.set_protection(guard_len(), libc::PROT_NONE).and_then(|()| {
        let stack = libc::stack_t { ss_sp: pages.at(guard_len()).as_ptr().cast(), ss_size: size, ss_flags: 0 };
        // SAFETY: `stack` describes writable memory of `pages`, which stays until `AltStack` takes the alternate stack away
        // again.
        match unsafe { libc::sigaltstack(&raw const stack, null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    if installed.is_err() {
        pages.unmap();
    }
    installed.map(|()| pages)
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let Some(pages) = &mut self.memory else { return };
        let mut stack = alternate();
        if stack.ss_sp.addr() == pages.at(guard_len()).addr().get() {
            stack.ss_flags = libc::SS_DISABLE;
            // SAFETY: `make_alternate` installed this stack on the same thread; no handler returns to this stack.
            unsafe { libc::sigaltstack(&raw const stack, null_mut()) };
        }
        pages.unmap();
    }
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
#[path = "overflow_tests.rs"]
mod tests;
