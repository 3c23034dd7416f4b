//! Keeps the stacks of a model's threads from one execution to the next.
//!
//! Loom maps a stack for each thread of each execution, and unmaps it at the end of the execution: 40 % of a model's time.
//! `.ci/run` builds this file as a library, and has each model load it (`LD_PRELOAD`), so that an unmapped stack serves the
//! next thread. The models are the same without it, and take longer. Linux.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::transmute;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, c_long) -> *mut c_void;
type Unmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Protect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;

const MAP_STACK: c_int = 0x20000;

/// A mapping that was made as a stack.
struct Stack {
    address: usize,
    size: usize,
    is_free: bool,
    has_guard: bool,
}

static STACKS: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

fn stacks() -> MutexGuard<'static, Vec<Stack>> {
    STACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the C library's function of this name.
fn next(name: &CStr) -> *mut c_void {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const std::ffi::c_char) -> *mut c_void;
    }
    const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;
    // SAFETY: `name` is a C string, and the handle asks for the next library that has the name.
    let function = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    assert!(!function.is_null(), "{name:?}");
    function
}

// Each function has the type that the C library documents for its name.
static MAP: LazyLock<Map> = LazyLock::new(|| unsafe { transmute::<*mut c_void, Map>(next(c"mmap")) });
static UNMAP: LazyLock<Unmap> = LazyLock::new(|| unsafe { transmute::<*mut c_void, Unmap>(next(c"munmap")) });
static PROTECT: LazyLock<Protect> = LazyLock::new(|| unsafe { transmute::<*mut c_void, Protect>(next(c"mprotect")) });

/// `mmap(2)`. A free stack of the size is taken before a new one is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    size: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: c_long,
) -> *mut c_void {
    let is_stack = address.is_null() && flags & MAP_STACK != 0;
    if is_stack && let Some(stack) = stacks().iter_mut().find(|stack| stack.is_free && stack.size == size) {
        stack.is_free = false;
        return stack.address as *mut c_void;
    }
    // SAFETY: the caller keeps the contract of mmap(2), to which the arguments go unchanged.
    let mapping = unsafe { MAP(address, size, protection, flags, file, offset) };
    if is_stack && mapping.addr() != usize::MAX {
        stacks().push(Stack { address: mapping as usize, size, is_free: false, has_guard: false });
    }
    mapping
}

/// `munmap(2)`. A stack stays mapped, and is free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, size: usize) -> c_int {
    let is_this = |stack: &&mut Stack| stack.address == address as usize && stack.size == size;
    if let Some(stack) = stacks().iter_mut().find(is_this) {
        stack.is_free = true;
        return 0;
    }
    // SAFETY: the caller keeps the contract of munmap(2), to which the arguments go unchanged.
    unsafe { UNMAP(address, size) }
}

/// `mprotect(2)`. The first call for the low end of a stack makes the stack's guard, which the stack keeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, size: usize, protection: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of mprotect(2), to which the arguments go unchanged.
    let protect = || unsafe { PROTECT(address, size, protection) };
    let mut stacks = stacks();
    let Some(stack) = stacks.iter_mut().find(|stack| stack.address == address as usize) else { return protect() };
    if stack.has_guard && protection == 0 {
        return 0;
    }
    let result = protect();
    stack.has_guard = result == 0 && protection == 0;
    result
}
