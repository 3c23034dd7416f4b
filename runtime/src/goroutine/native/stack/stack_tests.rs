//! Tests of the stacks against the kernel: the addresses that trap, the resident pages, the number of mappings.

use std::process::{Command, Output};
use std::sync::atomic::AtomicU8;

use corosensei::{Coroutine, CoroutineResult};

use super::memory::traps;
use super::*;

/// Runs the test `name`, which is the caller, in a process of its own that the test may spoil. Returns `None` in that
/// process.
pub(crate) fn child(module: &str, name: &str) -> Option<Output> {
    const CHILD: &str = "SUDOG_TEST_CHILD";
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        // SAFETY: `alarm` takes only a number. The alarm ends a process whose fault recurs for ever.
        unsafe { libc::alarm(60) };
        return None;
    }
    let test = format!("{}::{name}", module.split_once("::").expect("a crate's module").1);
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    // A backtrace needs memory, and hangs where there is none.
    command.args(["--exact", &test, "--nocapture"]).env(CHILD, name).env("RUST_BACKTRACE", "0");
    Some(command.output().expect("a child"))
}

/// Returns the text that such a process printed. The process must have passed its test.
fn said(out: Output) -> String {
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("1 passed"), "{text}");
    text
}

/// A pool that no other test uses.
fn pool(reserve: usize, markers: fn() -> bool) -> &'static Pool {
    Box::leak(Box::new(Pool::new(reserve, markers)))
}

fn no_markers() -> bool {
    false
}

fn byte(at: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(at)
}

/// Asserts that every page of the guard traps, and that the first page above does not.
fn assert_guarded(stack: &PooledStack) {
    let guard = stack.extent().guard();
    assert!(guard.len() >= 16 << 10, "{guard:?}");
    assert_eq!(guard.start, stack.limit().get(), "the guard is the lowest part");
    for at in guard.clone().step_by(page()) {
        assert!(traps(byte(at)), "{at:#x} in {guard:#x?}");
    }
    assert!(traps(byte(guard.end - 1)) && !traps(byte(guard.end)), "{guard:#x?}");
}

impl PooledStack {
    /// Trims the stack, on which nothing runs: a coroutine would own the stack.
    fn trim(&mut self) {
        // SAFETY: the stack is alive, and nothing of it is in use.
        unsafe { self.extent().trim() };
    }
}

/// Returns a byte of the memory of a stack, on which nothing runs: a coroutine would own the stack.
fn byte_of(stack: &PooledStack, at: usize) -> &AtomicU8 {
    assert!(usable(stack).contains(&at));
    // SAFETY: the byte is in the writable memory of `stack`, which only this function gives access to.
    unsafe { AtomicU8::from_ptr(byte(at)) }
}

/// Touches the stack from the header down to `depth` bytes below the top.
fn touch(stack: &PooledStack, depth: usize) {
    let top = stack.extent().guard().end + stack.extent().size();
    for at in (top - depth..top).step_by(128) {
        byte_of(stack, at).store(1, Ordering::Relaxed);
    }
}

/// Returns the number of pages in the range that are in memory.
fn resident(range: Range<usize>) -> usize {
    let mut pages = vec![0; range.len().div_ceil(page())];
    // SAFETY: `pages` has a byte for each page of the range.
    let got = unsafe { libc::mincore(byte(range.start).cast(), range.len(), pages.as_mut_ptr()) };
    assert_eq!(got, 0, "{range:#x?}: {}", io::Error::last_os_error());
    pages.iter().filter(|&&page| page & 1 != 0).count()
}

fn usable(stack: &PooledStack) -> Range<usize> {
    let floor = stack.extent().guard().end;
    floor..floor + stack.extent().size()
}

/// Returns the number of the process's mappings that have a part in the range.
fn mappings(range: &Range<usize>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let hex = |text| usize::from_str_radix(text, 16).expect("an address");
    let bounds = maps.lines().map(|line| line.split_once(' ').and_then(|(at, _)| at.split_once('-')).expect("a range"));
    bounds.filter(|&(low, high)| hex(low) < range.end && hex(high) > range.start).count()
}

fn region(pool: &Pool) -> Range<usize> {
    let state = pool.state.lock();
    let low = state.low.addr().get();
    low..low + state.slots as usize * stride()
}

#[test]
fn header_and_stack_share_the_first_page_in_every_colour() {
    let pool = pool(RESERVE_MIN, markers_work);
    let stacks: Vec<_> = (0..2 * COLOURS).map(|_| pool.take().expect("a stack")).collect();
    let mut offsets = Vec::new();
    for stack in &stacks {
        let (base, top) = (stack.base().get(), usable(stack).end);
        assert_eq!(stack.header().addr().get(), base);
        assert_eq!(base % HEADER_ALIGN, 0);
        assert!(base + HEADER <= top);
        assert!(base - 2944 >= top - 4096, "{base:#x} below {top:#x}");
        assert_eq!(usable(stack).len(), DEFAULT_SIZE);
        offsets.push(top - base);
    }
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), COLOURS as usize, "{offsets:?}");
}

#[test]
fn a_blocked_coroutine_costs_one_page() {
    let pool = pool(RESERVE_MIN, markers_work);
    for _ in 0..COLOURS {
        let stack = pool.take().expect("a stack");
        let usable = usable(&stack);
        assert_eq!(resident(usable.clone()), 0, "untouched");
        let header = stack.header().addr().get();
        (header..header + HEADER).for_each(|at| byte_of(&stack, at).store(1, Ordering::Relaxed));
        let mut blocked = Coroutine::with_stack(stack, |yielder, ()| yielder.suspend(()));
        assert!(matches!(blocked.resume(()), CoroutineResult::Yield(())));
        assert_eq!(resident(usable), 1);
        assert!(matches!(blocked.resume(()), CoroutineResult::Return(())));
    }
}

#[test]
fn guards_outlast_trim_and_reuse() {
    for markers in [markers_work, no_markers] {
        let pool = pool(RESERVE_MIN, markers);
        let others = [(); 2].map(|()| pool.take().expect("a stack"));
        for _ in 0..3 {
            let mut stack = pool.take().expect("a stack");
            assert_eq!(stack.limit().get(), region(pool).start + 2 * stride(), "the same slot each time");
            assert_guarded(&stack);
            touch(&stack, DEFAULT_SIZE);
            assert_guarded(&stack);
            stack.trim();
            assert_guarded(&stack);
            stack.pages.discard(0..stride()); // more than `trim` discards: also the guard
            assert_guarded(&stack);
        }
        others.iter().for_each(assert_guarded);
    }
}

#[test]
fn trim_gives_back_what_a_deep_use_has_taken() {
    let mut stack = take(None).expect("a stack");
    let usable = usable(&stack);
    touch(&stack, DEFAULT_SIZE);
    assert_eq!(resident(usable.clone()), DEFAULT_SIZE / page());
    stack.trim();
    assert_eq!(resident(usable.clone()), KEEP.div_ceil(page()));
    assert_eq!(byte_of(&stack, usable.end - KEEP).load(Ordering::Relaxed), 1, "what is above stays");
    assert_eq!(byte_of(&stack, usable.end - KEEP - 128).load(Ordering::Relaxed), 0, "what was below is gone");
}

#[test]
fn a_stack_given_back_costs_nothing() {
    let pool = pool(RESERVE_MIN, markers_work);
    let stack = pool.take().expect("a stack");
    let usable = usable(&stack);
    touch(&stack, DEFAULT_SIZE);
    drop(stack);
    assert_eq!(resident(usable.clone()), 0);
    let again = pool.take().expect("a stack");
    assert_eq!(again.extent().guard().end, usable.start);
}

#[test]
fn other_sizes_have_their_own_mapping() {
    for markers in [markers_work(), false] {
        let mut stack = own(round(100_000).expect("a size"), markers).expect("a stack");
        assert_eq!(stack.extent().size(), 100_000_usize.next_multiple_of(page()));
        assert_guarded(&stack);
        touch(&stack, stack.extent().size());
        stack.trim();
        assert_eq!(resident(usable(&stack)), KEEP.div_ceil(page()));
        assert_guarded(&stack);
    }
    for (asked, size) in [(0, MIN_SIZE), (1, MIN_SIZE), (MIN_SIZE + 1, MIN_SIZE + page()), (1 << 20, 1 << 20)] {
        let mut stack = take(Some(asked)).expect("a stack");
        assert_eq!(stack.extent().size(), size.next_multiple_of(page()), "{asked}");
        assert!(matches!(stack.home, Home::Own));
        touch(&stack, stack.extent().size());
        stack.trim();
        assert_eq!(resident(usable(&stack)), KEEP.div_ceil(page()), "the smallest has nothing to trim");
        assert_guarded(&stack);
    }
    for asked in [None, Some(DEFAULT_SIZE), Some(DEFAULT_SIZE - 1)] {
        assert!(matches!(take(asked).expect("a stack").home, Home::Slot(..)), "{asked:?}");
    }
}

#[test]
fn absurd_sizes_are_refused() {
    for size in [usize::MAX, usize::MAX - 4095, isize::MAX as usize, MAX_SIZE + 1] {
        let error = take(Some(size)).err().expect("an error");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("stack of {size} bytes")), "{error}");
    }
}

#[test]
fn own_mappings_are_unmapped() {
    // Together these are more addresses than there are, if each mapping stayed.
    for round in 0..1 << 12 {
        match take(Some(MAX_SIZE)) {
            Ok(_) => {}
            Err(error) if round == 0 => return eprintln!("skipped, the system grants no {MAX_SIZE} bytes: {error}"),
            Err(error) => panic!("{round}: {error}"),
        }
    }
}

#[test]
fn a_region_that_is_used_up_says_so() {
    let pool = pool(RESERVE_MIN, markers_work);
    let room = RESERVE_MIN / stride();
    assert!(room > GROW / DEFAULT_SIZE, "more than one step");
    let mut stacks: Vec<_> = (0..room).map(|_| pool.take().expect("a stack")).collect();
    stacks.iter().for_each(assert_guarded);
    let error = pool.take().err().expect("an error");
    assert!(error.to_string().contains(&format!("all {room} stacks")), "{error}");
    assert!(pool.state.lock().free.capacity() >= room, "giving back must not allocate");
    stacks.pop();
    assert!(pool.take().is_ok(), "one is free again");
}

#[test]
fn a_hundred_thousand_stacks_take_two_mappings_and_a_page_each() {
    const N: usize = 100_000;
    // Ask the kernel, whether or not `markers_work` sees the markers.
    let mut probe = Pages::map(page(), libc::PROT_READ | libc::PROT_WRITE).expect("a page");
    if !probe.install_markers(page()) || !traps(probe.at(0).as_ptr()) {
        return eprintln!("skipped: this kernel has no MADV_GUARD_INSTALL");
    }
    let pool = pool(1 << 36, markers_work);
    let stacks: Vec<_> = (0..N)
        .map(|_| {
            let stack = pool.take().expect("a stack");
            touch(&stack, page());
            stack
        })
        .collect();
    let region = region(pool);
    let mappings = mappings(&region);
    assert!(mappings <= 2, "{mappings} mappings");
    assert_eq!(resident(region.start..region.start + N * stride()), N);
    stacks.iter().step_by(N / 100).for_each(assert_guarded);
    drop(stacks);
    assert_eq!(resident(region.start..region.start + N * stride()), 0);
}

/// Tests that guards are made in one call for as many slots as have been taken: for the slot taken and for slots to
/// come.
#[test]
fn guards_are_made_ahead() {
    if !markers_work() {
        return;
    }
    let pool = pool(1 << 30, markers_work);
    let stacks: Vec<_> = (0..300).map(|_| pool.take().unwrap()).collect();
    stacks.iter().for_each(assert_guarded);
    let state = pool.state.lock();
    let expected = if state.one_by_one { 300 } else { 384 };
    assert_eq!((state.used, state.guarded), (300, expected));
    for slot in state.used..state.guarded {
        let low = state.at(slot).as_ptr();
        assert!((0..guard_len()).step_by(page()).all(|at| traps(low.wrapping_add(at))), "slot {slot}");
        assert!(!traps(low.wrapping_add(guard_len())), "slot {slot}");
    }
}

#[test]
fn without_markers_a_stack_takes_two_mappings() {
    let pool = pool(RESERVE_MIN, no_markers);
    let stacks: Vec<_> = (0..100).map(|_| pool.take().expect("a stack")).collect();
    stacks.iter().for_each(assert_guarded);
    let low = region(pool).start;
    assert_eq!(mappings(&(low..low + stacks.len() * stride())), 2 * stacks.len());
    drop(stacks);
    let stack = pool.take().expect("a stack");
    touch(&stack, DEFAULT_SIZE);
    assert_guarded(&stack);
}

/// Takes stacks until `take` fails. Returns the number of stacks and the error.
fn exhaust(pool: &'static Pool) -> (usize, io::Error) {
    let mut stacks = Vec::with_capacity(1 << 17);
    let error = loop {
        match pool.take() {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };
    stacks.last().map(assert_guarded);
    stacks.pop();
    assert!(pool.take().is_ok(), "the pool still works");
    (stacks.len() + 1, error)
}

#[test]
fn without_markers_the_error_names_the_limit() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("/proc");
    let limit: usize = limit.trim().parse().expect("a number");
    if limit > 200_000 {
        return eprintln!("skipped: vm.max_map_count is {limit}");
    }
    // At the limit, nothing else can be mapped either, so run in a process of its own.
    let Some(out) = child(module_path!(), "without_markers_the_error_names_the_limit") else {
        let (taken, error) = exhaust(pool(1 << 36, no_markers));
        assert!((limit / 2 - 1000..=limit / 2).contains(&taken), "{taken} of {limit}");
        return println!("the error: {error}");
    };
    let text = said(out);
    assert!(text.contains("the error: ") && text.contains("vm.max_map_count"), "{text}");
}

/// Tests limits as `ulimit -v` and `ulimit -d` set them; the kernel's strict accounting fails at the same call as
/// `ulimit -d`.
#[test]
fn a_process_with_limits_takes_its_part_and_says_what_it_lacks() {
    fn limit(what: libc::__rlimit_resource_t, bytes: usize) {
        let limit = libc::rlimit { rlim_cur: bytes as libc::rlim_t, rlim_max: bytes as libc::rlim_t };
        // SAFETY: `setrlimit` only reads `limit`.
        assert_eq!(unsafe { libc::setrlimit(what, &raw const limit) }, 0);
    }
    let name = "a_process_with_limits_takes_its_part_and_says_what_it_lacks";
    let Some(out) = child(module_path!(), name) else {
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
        let data = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("VmData");
        let data: usize = data.trim().trim_end_matches(" kB").parse().expect("a number");
        limit(libc::RLIMIT_AS, 4 << 30);
        limit(libc::RLIMIT_DATA, (data << 10) + (100 << 20));
        let pool = pool(RESERVE, markers_work);
        let (taken, error) = exhaust(pool);
        assert!(region(pool).len() <= 1 << 30, "a quarter");
        assert_eq!(taken, 2 * (GROW / DEFAULT_SIZE), "{error}");
        return println!("the error: {error}");
    };
    let text = said(out);
    assert!(text.contains(&format!("the error: no memory for {} more stacks", GROW / DEFAULT_SIZE)), "{text}");
}

#[test]
fn threads_share_the_pool() {
    let pool = pool(RESERVE_MIN, markers_work);
    std::thread::scope(|scope| {
        for thread in 1..=4_u8 {
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let stacks = [(); 3].map(|()| pool.take().expect("a stack"));
                    let headers = || stacks.iter().map(|stack| byte_of(stack, stack.header().addr().get()));
                    headers().for_each(|header| header.store(thread, Ordering::Relaxed));
                    std::thread::yield_now(); // time for a thread that would still empty these stacks
                    headers().for_each(|header| assert_eq!(header.load(Ordering::Relaxed), thread));
                }
            });
        }
    });
    let used = pool.state.lock().used;
    assert!(used <= 12, "{used} slots for 12 stacks");
}
