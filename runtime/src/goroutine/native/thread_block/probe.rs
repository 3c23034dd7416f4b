//! What the blocks need to know of glibc, and the checks at the start.
//!
//! Everything is asked of the running glibc, by names that glibc has for debuggers and for its own libraries, or found by
//! watching a thread. Each finding is checked; a system on which a check fails is refused.

use std::ffi::CStr;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ptr::{self, null_mut};

use super::donor;
use super::pointer::{self, thread_pointer};
use super::{NOTHING_SHARED, setxid};
use crate::shim::system::atomic::{AtomicUsize, Ordering};
use crate::shim::worker_local::SHIFT;

/// What is known of glibc. Distances are from the thread pointer.
pub(super) struct Layout {
    /// The distance of the word that glibc takes for the kernel's number of the thread.
    pub(super) tid: isize,
    /// The distance of the word of flags that tell, among other things, whether the thread is about to end.
    pub(super) cancelhandling: isize,
    /// The distances of the two words of the allocator's cache: the cache, and the arena.
    pub(super) malloc: [isize; 2],
    /// The distance of the area in which the kernel writes the processor's number, if glibc has such an area.
    pub(super) rseq: Option<isize>,
    pub(super) call_tls_dtors: unsafe extern "C" fn(),
    pub(super) keys: &'static [Key],
}

/// glibc's `struct pthread_key_struct`.
#[repr(C)]
pub(super) struct Key {
    /// Odd while the key is in use.
    seq: AtomicUsize,
    destructor: AtomicUsize,
}

type Destructor = unsafe extern "C" fn(*mut libc::c_void);

impl Layout {
    /// Returns the destructor of a pthread key, if the key is in use and has a destructor.
    pub(super) fn destructor(&self, key: usize) -> Option<Destructor> {
        let key = &self.keys[key];
        let is_used = !key.seq.load(Ordering::Relaxed).is_multiple_of(2);
        let destructor = key.destructor.load(Ordering::Relaxed);
        // SAFETY: the word is null, or the address of the function that `pthread_key_create` was given.
        is_used.then(|| unsafe { std::mem::transmute::<usize, Option<Destructor>>(destructor) }).flatten()
    }
}

/// Finds out what the blocks need, and makes, runs and frees a block. Returns the reason if this system is not supported.
pub(super) fn probe() -> Result<Layout, String> {
    const FSGSBASE: libc::c_ulong = 2;
    // SAFETY: the call only looks up a number.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE == 0 {
        return Err("the processor or the kernel has no FSGSBASE (Linux 5.9), or valgrind hides it".into());
    }
    if [c"__asan_init", c"__msan_init", c"__tsan_init"].iter().any(|name| symbol(name).is_some()) {
        return Err("sanitizers keep their own account of threads".into());
    }
    // glibc's descriptions for debuggers: the bits of an element, the number of elements, the distance.
    let Some([32, 1, tid]) = description(c"_thread_db_pthread_tid") else { return Err(lacks("pthread.tid")) };
    let Some([32, 1, cancelhandling]) = description(c"_thread_db_pthread_cancelhandling") else {
        return Err(lacks("pthread.cancelhandling"));
    };
    let Some([128, keys_max, 0]) = description(c"_thread_db___pthread_keys") else { return Err(lacks("pthread_keys")) };
    let (Some(dtors), Some(keys)) = (symbol(c"__call_tls_dtors"), symbol(c"__pthread_keys")) else {
        return Err(lacks("__call_tls_dtors or __pthread_keys"));
    };
    let rseq = symbol(c"__rseq_offset").map(|at| {
        // SAFETY: `__rseq_offset` is a constant of this type, by glibc's manual.
        unsafe { *ptr::with_exposed_provenance::<isize>(at.get()) }
    });
    let seen = Watched::of_a_thread(tid as isize)?;
    let layout = Layout {
        tid: tid as isize,
        cancelhandling: cancelhandling as isize,
        malloc: seen.malloc()?,
        rseq,
        // SAFETY: `__call_tls_dtors` takes no arguments and returns nothing.
        call_tls_dtors: unsafe { std::mem::transmute::<usize, unsafe extern "C" fn()>(dtors.get()) },
        // SAFETY: glibc's table is static, and has `keys_max` entries of 16 bytes, by glibc's description. glibc changes
        // entries by atomic operations.
        keys: unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(keys.get()), keys_max as usize) },
    };
    try_block(&layout)?;
    setxid::wrap()?;
    Ok(layout)
}

fn lacks(what: &str) -> String {
    format!("the C library does not say where {what} is: it must be glibc 2.34 or later, linked dynamically")
}

fn symbol(name: &CStr) -> Option<NonZeroUsize> {
    // SAFETY: `name` ends with a zero byte.
    NonZeroUsize::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.expose_provenance())
}

fn description(name: &CStr) -> Option<[u32; 3]> {
    let at = symbol(name)?;
    // SAFETY: glibc's descriptions for debuggers are constants of three numbers of 32 bits each.
    Some(unsafe { *ptr::with_exposed_provenance(at.get()) })
}

// ---- a thread, watched ------------------------------------------------------------------------------------------------

/// The most words of thread-locals that glibc may have: there are some 20.
const WORDS: usize = 256;

/// What a thread has found out about itself.
struct Watched {
    tid: isize,
    /// Whether `tid` and the thread pointer are where they should be.
    is_known: bool,
    /// The distances of the words of glibc's thread-locals that the first call of the allocator has changed.
    changed: [isize; 4],
    changes: usize,
}

impl Watched {
    /// Runs a thread of the C library, which has never called the allocator.
    fn of_a_thread(tid: isize) -> Result<Self, String> {
        let mut seen = Self { tid, is_known: false, changed: [0; 4], changes: 0 };
        let mut thread = 0;
        // SAFETY: `watch` gets `seen`, which this call lends until the thread has ended.
        let error = unsafe {
            match libc::pthread_create(&raw mut thread, ptr::null(), watch, (&raw mut seen).cast()) {
                0 => libc::pthread_join(thread, null_mut()),
                error => error,
            }
        };
        match error {
            0 if seen.is_known => Ok(seen),
            0 => Err("the C library's description of a thread is wrong".into()),
            _ => Err("the system gives no thread".into()),
        }
    }

    /// Returns the distances of the allocator's words. An allocator that is not glibc's has none, and glibc's has one less if
    /// its cache is turned off.
    fn malloc(&self) -> Result<[isize; 2], String> {
        match self.changed[..self.changes.min(4)] {
            [] => Ok(NOTHING_SHARED),
            [one] => Ok([one, one]),
            [one, two] => Ok([one, two]),
            _ => Err("the allocator changes more of a thread's memory than is known".into()),
        }
    }
}

extern "C" fn watch(seen: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `seen` is the value that `of_a_thread` lends until this thread has ended.
    let seen = unsafe { &mut *seen.cast::<Watched>() };
    let pointer = thread_pointer();
    let Some((first, words)) = locals_of_glibc() else { return null_mut() };
    let read = |at: usize| {
        // SAFETY: the address is that of an aligned word of this thread's block.
        unsafe { ptr::with_exposed_provenance::<usize>(at).read_volatile() }
    };
    let tid = read(pointer.wrapping_add_signed(seen.tid) & !7) >> (8 * (seen.tid & 7));
    // SAFETY: the two calls take no arguments and cannot fail.
    let (this, real) = unsafe { (libc::pthread_self(), libc::gettid()) };
    seen.is_known = this as usize == pointer && tid as u32 == real as u32 && read(pointer) == pointer;
    let mut before = [0; WORDS];
    (0..words).for_each(|i| before[i] = read(first + 8 * i));
    // SAFETY: the memory is freed once, and not used.
    unsafe { libc::free(black_box(libc::malloc(black_box(24)))) };
    for i in (0..words).filter(|&i| before[i] != read(first + 8 * i)) {
        if let Some(place) = seen.changed.get_mut(seen.changes) {
            *place = (first + 8 * i).wrapping_sub(pointer).cast_signed();
        }
        seen.changes += 1;
    }
    null_mut()
}

/// Returns the address and the number of words of the thread-locals that glibc itself has in the calling thread.
fn locals_of_glibc() -> Option<(usize, usize)> {
    extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader passes a description that is valid during the call, and `found` of the caller below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<(usize, usize)>>()) };
        // SAFETY: the description has this number of headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let Some(locals) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else { return 0 };
        let first = info.dlpi_tls_data.addr();
        // SAFETY: the call takes no arguments and cannot fail.
        let errno = unsafe { libc::__errno_location() }.addr();
        if !(first..first + locals.p_memsz as usize).contains(&errno) {
            return 0;
        }
        let first = first.next_multiple_of(8);
        *found = Some((first, (locals.p_memsz as usize / 8).min(WORDS)));
        1
    }
    let mut found = None::<(usize, usize)>;
    // SAFETY: `look` does not unwind, and gets `found`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

// ---- a block, tried ---------------------------------------------------------------------------------------------------

/// The most bytes that a block may take: [`Extent::trim`](crate::goroutine::native::stack::Extent::trim) keeps 16 KiB of a stack,
/// which also has the frames of a fibre that waits for work.
const MOST: usize = 8 << 10;

/// Makes a block, runs a function with the block, and frees the block.
fn try_block(layout: &Layout) -> Result<(), String> {
    /// Returns 1 if the thread pointer and the thread-locals are those of the block at `pointer`.
    extern "C" fn step(pointer: usize, home: usize, _: usize) -> usize {
        // SAFETY: the two calls take no arguments and cannot fail.
        let (this, errno) = unsafe { (libc::pthread_self(), libc::__errno_location()) };
        // SAFETY: `errno` is this block's.
        let was = unsafe { std::mem::replace(&mut *errno, libc::EDOM) };
        let is_ours = thread_pointer() == pointer && this as usize == pointer && was == 0;
        usize::from(is_ours && pointer.wrapping_add_signed(SHIFT.get()) == home)
    }
    let memory = vec![0_u8; 64 << 10];
    let low = NonZeroUsize::new(memory.as_ptr().expose_provenance().next_multiple_of(64)).expect("not null");
    let high = NonZeroUsize::new(low.get() + memory.len() - 64).expect("not null");
    let (block, base) = donor::make(layout, &[low..high]).map_err(|error| error.to_string())?.remove(0);
    donor::adopt(block);
    let home = thread_pointer().wrapping_add_signed(SHIFT.get());
    // SAFETY: `probe` has found that `wrfsbase` works. The block was just made, and no other thread knows it. `step` does not
    // unwind. The words at `layout.malloc` are there in all blocks.
    let good = unsafe { pointer::call_with(block.pointer(), step, block.pointer(), home, 0, &layout.malloc) };
    let size = high.get() - base.get();
    donor::free(layout, block); // before the memory under the block
    drop(memory);
    match good {
        1 if size <= MOST => Ok(()),
        1 => Err(format!("the program's thread-locals take {size} bytes of each stack, of at most {MOST}")),
        _ => Err("a block of thread-locals does not work".into()),
    }
}
