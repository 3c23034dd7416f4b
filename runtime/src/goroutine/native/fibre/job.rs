//! A goroutine that has not started: a closure, in 64 bytes that any worker may take.
//!
//! ```text
//!  ┌──────┬────────┬─────────┬───────────────────────────────┐
//!  │ link │ vtable │ details │ closure, or a box that has it │
//!  └──────┴────────┴─────────┴───────────────────────────────┘
//! ```
//!
//! A [`Work`] is a pointer. If bit 0 is clear, the pointer is to a job; if bit 0 is set, to an async task that is to be
//! polled. Jobs and tasks are `Send`, so they may move from worker to worker. Work gets a stack when a worker runs the
//! work.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use async_task::Runnable;

use crate::fatal::say;
use crate::goroutine::native::exit::OnPanic;
use crate::goroutine::native::switch_hooks;
use crate::goroutine::protocol::inbox::Link;
use crate::goroutine::protocol::runq::Word;

/// The size, in words, of the largest closure that a job holds without a box.
const WORDS: usize = 5;
/// The number of ended jobs whose memory a worker keeps.
const SPARE_JOBS: u32 = 256;

/// A goroutine that has not started, or an async task that is to be polled: see the top of this file.
///
/// A `Work` owns its job or task: only [`pack`], [`pack_body`], [`pack_with`] and [`pack_task`] make a `Work`, and a
/// queue gives back each word once. A `Work` is neither `Clone` nor `Copy`, and to unpack it consumes it. A `Work` that
/// is dropped is lost.
#[must_use = "the goroutine never runs"]
pub(crate) struct Work(NonZeroUsize);

impl Word for Work {
    #[inline]
    fn into_word(self) -> usize {
        self.0.get()
    }

    #[inline]
    unsafe fn from_word(word: usize) -> Self {
        // SAFETY: `word` came from `into_word`, by the contract of this function, so it is not 0.
        Self(unsafe { NonZeroUsize::new_unchecked(word) })
    }
}

/// A goroutine that has not started, whose closure is a `C`: see the top of this file.
#[repr(C)]
struct JobOf<C> {
    /// The first word, in which [`SpareMemory`] links the memory of jobs that have ended.
    link: Link,
    vtable: &'static Vtable,
    details: Option<Box<Details>>,
    closure: C,
}

/// A job whose closure's type is not known. Each `JobOf` begins with the same fields, and fits into a `Job`.
type Job = JobOf<[MaybeUninit<usize>; WORDS]>;

/// A job that has been packed. The owner of the job, as of a [`Work`].
#[must_use = "the goroutine never runs"]
pub(crate) struct Packed(NonNull<Job>);

/// The memory of a job, which no job uses. The owner of that memory. Memory that is dropped is leaked.
#[must_use = "the memory is leaked"]
pub(crate) struct Memory(NonNull<Job>);

/// The memory of jobs that have ended, for later jobs: a list that is linked through the memory's first word.
pub(crate) struct SpareMemory {
    first: Cell<Option<NonNull<Job>>>,
    len: Cell<u32>,
}

impl SpareMemory {
    pub(crate) const fn new() -> Self {
        Self { first: Cell::new(None), len: Cell::new(0) }
    }

    /// Takes memory out of the list.
    #[inline]
    fn pop(&self) -> Option<Memory> {
        let first = self.first.get()?;
        // SAFETY: `first` is in the list, so `push` has written the next link into its first word.
        self.first.set(unsafe { first.cast::<Option<NonNull<Job>>>().read() });
        self.len.set(self.len.get() - 1);
        Some(Memory(first))
    }

    /// Puts memory into the list, or frees the memory if the list has `most` already.
    #[inline]
    fn push(&self, memory: Memory, most: u32) {
        if self.len.get() < most {
            // SAFETY: `memory` is unused, and its first word has the size and the alignment of a link.
            unsafe { memory.0.cast::<Option<NonNull<Job>>>().write(self.first.get()) };
            self.first.set(Some(memory.0));
            self.len.set(self.len.get() + 1);
        } else {
            memory.free();
        }
    }

    /// Frees all memory of the list.
    pub(crate) fn clear(&self) {
        while let Some(memory) = self.pop() {
            memory.free();
        }
    }
}

impl Memory {
    #[cold]
    fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::<MaybeUninit<Job>>::new_uninit())).cast())
    }

    /// Takes memory of an ended job from `spare`, or allocates memory.
    #[inline]
    fn take(spare: Option<&SpareMemory>) -> Self {
        spare.and_then(SpareMemory::pop).unwrap_or_else(Self::new)
    }

    /// Makes a job in this memory.
    #[inline]
    fn fill<C: FnOnce()>(self, VtableOf(vtable, _): VtableOf<C>, closure: C, details: Option<Box<Details>>) -> Packed {
        assert!(size_of::<JobOf<C>>() <= size_of::<Job>() && align_of::<JobOf<C>>() <= align_of::<Job>());
        let job = JobOf { link: Link::new(), vtable, details, closure };
        // SAFETY: the memory is unused, and has room for a `JobOf<C>`, by the assertion above.
        unsafe { self.0.cast::<JobOf<C>>().write(job) };
        Packed(self.0)
    }

    /// Gives the memory back to the allocator.
    fn free(self) {
        // SAFETY: `new` allocated the memory as a box of this layout, and nothing uses it.
        drop(unsafe { Box::from_raw(self.0.cast::<MaybeUninit<Job>>().as_ptr()) });
    }
}

/// The part of a job that depends on the type of the closure.
pub(crate) struct Vtable {
    /// Takes the closure out of the job, puts the job's memory into the list, and calls the closure, whose panic goes on
    /// in the caller. The job's closure has the type of this vtable.
    run: unsafe fn(Packed, &SpareMemory),
    /// The name of the type, which has the path of the function that started the goroutine.
    origin: fn() -> &'static str,
}

impl Vtable {
    /// The vtable of a task, which is no job.
    pub(crate) const TASK: &Self = {
        static TASK: Vtable = Vtable { run: |_, _| unreachable!("a task is no job"), origin: || "a task" };
        &TASK
    };

    /// Returns the type name of the user's closure that the goroutine runs, without this project's closures around that
    /// closure.
    pub(crate) fn origin(&self) -> &'static str {
        closure_of_the_user((self.origin)())
    }
}

/// The vtable of jobs whose closure is a `C`.
pub(crate) struct VtableOf<C>(&'static Vtable, PhantomData<C>);

impl<C: FnOnce()> VtableOf<C> {
    /// Returns the vtable for user's closures of type `F`: a `C` is an `F`, a box of an `F`, or a closure that calls an
    /// `F`.
    #[inline]
    pub(crate) const fn from<F>() -> Self {
        Self(const { &Vtable { run: run::<C>, origin: std::any::type_name::<F> } }, PhantomData)
    }
}

/// Strips from a type name the functions that this project and the standard library have put around the user's closure:
/// the name `sudog_runtime::..::spawn<T, app::serve::{{closure}}>::{{closure}}` becomes `app::serve::{{closure}}`.
fn closure_of_the_user(name: &'static str) -> &'static str {
    const OURS: [&str; 7] =
        ["sudog_runtime::", "sudog_sync::", "sudog_csp::", "sudog_net::", "core::", "alloc::", "std::"];
    let is_ours = |name: &str| OURS.iter().any(|prefix| name.starts_with(prefix));
    let mut rest = name;
    while is_ours(rest) {
        // In all names of our functions the closure is the last generic argument of the last function.
        match last_argument(rest) {
            Some(argument) if !argument.starts_with("dyn ") => rest = argument,
            _ => return name,
        }
    }
    rest
}

/// Returns the last argument in the last list of generic arguments of a path.
fn last_argument(path: &str) -> Option<&str> {
    let is_arrow = |at: usize| path[..at].ends_with('-');
    let end = path.char_indices().rev().find(|&(at, char)| char == '>' && !is_arrow(at))?.0;
    let mut depth = 0;
    let mut last = None;
    for (at, char) in path[..end].char_indices().rev() {
        match char {
            '>' if is_arrow(at) => {}
            '>' | ')' | ']' => depth += 1,
            '<' if depth == 0 => return Some(path[last.unwrap_or(at + 1)..end].trim()),
            '<' | '(' | '[' => depth -= 1,
            ',' if depth == 0 => _ = last.get_or_insert(at + 1),
            _ => {}
        }
    }
    None
}

/// The settings that a [`Builder`](crate::goroutine::Builder) adds to a goroutine. Most goroutines have no settings.
#[derive(Default)]
pub(crate) struct Details {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) on_panic: OnPanic,
    /// The call that started the goroutine, if switches are observed.
    pub(crate) created_at: Option<&'static Location<'static>>,
}

/// The stack size that the main thread of a process has as a rule: programs were written for that size.
const MAIN_STACK: usize = 8 << 20;

impl Details {
    /// Adds the name and the stack size of a main goroutine, where the starter has set none.
    pub(crate) fn as_main(mut self: Box<Self>) -> Box<Self> {
        self.name.get_or_insert_with(|| "main".into());
        self.stack_size.get_or_insert(MAIN_STACK);
        self
    }
}

/// An unpacked piece of work: a job to run, or a task to poll.
pub(crate) enum Unpacked {
    Job(Packed),
    Task(Runnable),
}

const _: () = assert!(size_of::<Job>() == 64 || size_of::<usize>() != 8);

/// Returns whether a closure fits into a job.
const fn is_inline<F>() -> bool {
    size_of::<F>() <= WORDS * size_of::<usize>() && align_of::<F>() <= align_of::<usize>()
}

/// Returns whether a closure or future is too large to be moved on a goroutine's stack: see
/// [`box_if_large!`](crate::box_if_large).
#[must_use]
pub const fn is_large<F>() -> bool {
    size_of::<F>() > 1024
}

/// Boxes a closure that is too large to be moved on a goroutine's stack, and returns the result of a call with that box.
///
/// On the way to its call, a closure is moved a few times: into other closures, into a job, and out of that job.
/// Without optimisation each move is a copy on the stack. So a function that starts a goroutine, or calls a closure on
/// another thread, begins with this macro: `box_if_large!(f: F as dyn FnOnce() + Send => start(f))`.
#[doc(hidden)]
#[macro_export]
macro_rules! box_if_large {
    ($f:ident: $F:ty as $Dyn:ty => $call:expr) => {
        if const { $crate::goroutine::is_large::<$F>() } {
            let $f: ::std::boxed::Box<$Dyn> = ::std::boxed::Box::new($f);
            return $call;
        }
    };
}

/// Packs the closure of a new goroutine into a job, in memory from `spare` if there is some.
#[inline]
pub(crate) fn pack<F>(f: F, details: Option<Box<Details>>, spare: Option<&SpareMemory>) -> Work
where
    F: FnOnce() + Send + 'static,
{
    switch_hooks::forbid_start_in_hook();
    pack_body(Body::owned(f), details, spare)
}

/// A closure that may run on any thread: the closure may be moved there, and the values that the closure borrows live until
/// the run has ended.
pub(crate) struct Body<F>(F);

impl<F: FnOnce() + Send> Body<F> {
    /// Wraps a closure that borrows nothing.
    #[inline]
    pub(crate) fn owned(f: F) -> Self
    where
        F: 'static,
    {
        Self(f)
    }

    /// Wraps a closure that may borrow.
    ///
    /// # Safety
    ///
    /// The values that the closure borrows live until the run of the closure has ended.
    #[inline]
    pub(crate) unsafe fn borrowing(f: F) -> Self {
        Self(f)
    }
}

/// Packs any closure, as [`pack`] does.
#[inline]
pub(crate) fn pack_body<F>(Body(f): Body<F>, details: Option<Box<Details>>, spare: Option<&SpareMemory>) -> Work
where
    F: FnOnce(),
{
    if const { is_inline::<F>() } {
        pack_with(VtableOf::from::<F>(), Body(f), details, spare)
    } else {
        pack_with(VtableOf::from::<F>(), Body(Box::new(f)), details, spare)
    }
}

/// Packs a closure of at most the size of [`WORDS`], as [`pack`] does, with the origin of another closure.
#[inline]
pub(crate) fn pack_with<C: FnOnce()>(
    vtable: VtableOf<C>,
    Body(closure): Body<C>,
    details: Option<Box<Details>>,
    spare: Option<&SpareMemory>,
) -> Work {
    let Packed(job) = Memory::take(spare).fill(vtable, closure, details);
    Work(job.addr_and_expose())
}

trait Expose {
    fn addr_and_expose(self) -> NonZeroUsize;
}

impl<T> Expose for NonNull<T> {
    fn addr_and_expose(self) -> NonZeroUsize {
        // Never 0, as the pointer is not null.
        NonZeroUsize::new(self.as_ptr().expose_provenance()).expect("a pointer that is not null")
    }
}

/// Packs an async task that is to be polled.
pub(crate) fn pack_task(task: Runnable) -> Work {
    let raw = task.into_raw().addr_and_expose();
    debug_assert_eq!(raw.get() & 1, 0);
    Work(raw | 1)
}

impl Work {
    /// Unpacks this piece of work.
    pub(crate) fn unpack(self) -> Unpacked {
        let raw = self.0.get();
        if raw & 1 == 0 {
            Unpacked::Job(Packed(NonNull::new(ptr::with_exposed_provenance_mut(raw)).expect("packed from a NonNull")))
        } else {
            let task = NonNull::new(ptr::with_exposed_provenance_mut(raw & !1)).expect("packed from a NonNull");
            // SAFETY: `task` came from `Runnable::into_raw` in `pack_task`. This `Work` owned the task, and is consumed.
            Unpacked::Task(unsafe { Runnable::from_raw(task) })
        }
    }

    /// Returns the job. `None`: this is a task.
    #[inline]
    fn job(&self) -> Option<&Job> {
        let raw = self.0.get();
        // SAFETY: bit 0 is clear, so the word is the address of a packed job, which this `Work` owns. The fields before
        // the closure are initialised, and the closure may be uninitialised.
        (raw & 1 == 0).then(|| unsafe { &*ptr::with_exposed_provenance(raw) })
    }

    /// Returns the stack size that the builder of a goroutine has set. None: the default size.
    #[inline]
    pub(crate) fn stack_size(&self) -> Option<usize> {
        self.job()?.details.as_ref()?.stack_size
    }

    pub(crate) fn vtable(&self) -> &'static Vtable {
        self.job().map_or(Vtable::TASK, |job| job.vtable)
    }

    /// Returns a number that no other piece of work has at the same time.
    pub(crate) fn id(&self) -> usize {
        self.0.get()
    }
}

impl Packed {
    pub(crate) fn vtable(&self) -> &'static Vtable {
        self.job().vtable
    }

    /// Takes the settings out of the job. None: there are no settings, or they have been taken.
    #[inline]
    pub(crate) fn take_details(&mut self) -> Option<Box<Details>> {
        // SAFETY: the job is packed, and this `Packed`, which is borrowed mutably, owns it. The fields before the closure
        // are initialised, and the closure may be uninitialised.
        unsafe { self.0.as_mut() }.details.take()
    }

    /// Takes the closure out of the job, whose details have been taken, puts the job's memory into `spare`, and calls the
    /// closure, whose panic goes on in the caller.
    #[inline]
    pub(crate) fn call(self, spare: &SpareMemory) {
        let vtable = self.vtable();
        // SAFETY: the job was packed with the vtable of its closure's type.
        unsafe { (vtable.run)(self, spare) }
    }

    #[inline]
    fn job(&self) -> &Job {
        // SAFETY: the job is packed, and this `Packed` owns it. The fields before the closure are initialised, and the
        // closure may be uninitialised.
        unsafe { self.0.as_ref() }
    }
}

/// Takes the closure out of a job, whose details have been taken, and calls the closure.
///
/// # Safety
///
/// The job's closure is a `C`.
unsafe fn run<C: FnOnce()>(job: Packed, spare: &SpareMemory) {
    // SAFETY: the job is packed, its closure is a `C` by the contract of this function, and `job` owned that closure. The
    // memory is not used as a job again.
    let f = unsafe { (&raw const (*job.0.cast::<JobOf<C>>().as_ptr()).closure).read() };
    spare.push(Memory(job.0), SPARE_JOBS);
    f();
}

/// Prints Go's report of a panic, which names the goroutine, and ends the process with Go's status, 2. Called when a
/// goroutine without a handle has panicked.
#[cold]
pub(crate) fn die_of_panic(payload: &(dyn Any + Send), goroutine: Option<&str>) -> ! {
    let what = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "(a value that is no text)",
    };
    let mut text = format!("panic: {what}\n\n");
    if let Some(goroutine) = goroutine {
        _ = writeln!(text, "goroutine {goroutine} [running]");
    }
    say(&text);
    std::process::exit(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_that_started_a_goroutine() {
        for (name, origin) in [
            ("app::main::{{closure}}", "app::main::{{closure}}"),
            ("sudog_runtime::a::Builder::spawn<(), app::main::{{closure}}>::{{closure}}", "app::main::{{closure}}"),
            (
                "sudog_sync::wait_group::WaitGroup::go<sudog_runtime::a::f<u8, app::serve<(u8, T<V>)>::{{closure}}>::{{closure}}>::{{closure}}",
                "app::serve<(u8, T<V>)>::{{closure}}",
            ),
            ("sudog_runtime::run_with<(), app::main>::{{closure}}", "app::main"),
            (
                "sudog_runtime::Scope<'_, '_>::start<sudog_runtime::<impl sudog_runtime::Builder>::go_scoped<'_, app::main>::{{closure}}>::{{closure}}",
                "app::main",
            ),
            (
                "alloc::boxed::Box<dyn core::ops::function::FnOnce() + core::marker::Send>",
                "alloc::boxed::Box<dyn core::ops::function::FnOnce() + core::marker::Send>",
            ),
            ("sudog_runtime::f::{{closure}}", "sudog_runtime::f::{{closure}}"),
            (
                "sudog_runtime::spawn<i32, app::serve<fn(u8) -> u8>::{{closure}}>::{{closure}}",
                "app::serve<fn(u8) -> u8>::{{closure}}",
            ),
            ("sudog_demo::serve<app::Job>::{{closure}}", "sudog_demo::serve<app::Job>::{{closure}}"),
        ] {
            assert_eq!(closure_of_the_user(name), origin);
        }
        assert!(Vtable::of_value(&|| ()).origin().ends_with("the_code_that_started_a_goroutine::{{closure}}"));
    }

    impl Vtable {
        fn of_value<F: FnOnce()>(_: &F) -> &'static Self {
            VtableOf::<F>::from::<F>().0
        }
    }
}
