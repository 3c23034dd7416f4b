//! A panic of a misused call names the line of the call, not a line of this library.
#![cfg(all(unix, not(sudog_loom)))]

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sudog::chan::{Chan, channel};
use sudog::context::{self, Context};

use sudog::locks::capacitor::{ArriveDepart, Fractional, LaneChoice, Multilane, Platoon, SeparateLanes, SlidingWindow};
use sudog::locks::spin_lock::Spin;
use sudog::locks::waiting_array::Benaphore;
use sudog::runtime::{goexit, set_max_blocking, set_max_procs, set_stack_size};
use sudog::sync::WaitGroup;
use sudog::x::rate::Limit;
use sudog::x::{ErrGroup, Weighted};
use sudog::{Builder, Placement, go, run, scope, synctest};

/// The file of the last panic.
static PLACE: Mutex<String> = Mutex::new(String::new());

const NO_WORKER: usize = 1000;

fn elsewhere() -> Builder {
    Builder::new().on(Placement::Worker(NO_WORKER))
}

/// Returns a group of which a goroutine has panicked, and whose panic has been raised again in a caller.
fn failed_group() -> ErrGroup {
    let group = ErrGroup::new();
    group.go(|| -> Result<(), Infallible> { panic!("of the group") });
    assert!(catch_unwind(AssertUnwindSafe(|| group.wait())).is_err());
    group
}

/// Returns a group with a limit, and with a goroutine that waits until the context is done.
fn busy_group(ctx: &Context) -> ErrGroup {
    let group = ErrGroup::new();
    group.set_limit(Some(1));
    let ctx = ctx.clone();
    group.go(move || {
        ctx.wait();
        Ok::<_, Infallible>(())
    });
    group
}

#[allow(clippy::type_complexity)]
const CALLS: &[(&str, fn())] = &[
    ("WaitGroup::done", || WaitGroup::new().done()),
    ("WaitGroup::add", || WaitGroup::new().add(-1)),
    ("ErrGroup::set_limit", || {
        let (ctx, _cancel) = context::with_cancel(&context::background());
        busy_group(&ctx).set_limit(Some(2));
    }),
    ("ErrGroup::wait", || _ = failed_group().wait()),
    ("ErrGroup::wait_limited", || _ = failed_group().wait_limited(&context::background())),
    ("ErrGroup::go_with", || ErrGroup::new().go_with(elsewhere(), || Ok::<_, Infallible>(()))),
    ("Weighted::new", || _ = Weighted::new(u64::MAX)),
    ("Weighted::release", || Weighted::new(1).release(1)),
    ("Limit::per_second", || _ = Limit::per_second(-1.0)),
    ("Chan::close, twice", || {
        let chan = Chan::<u32>::new(0);
        chan.close();
        chan.close();
    }),
    ("Chan::close, nil", || Chan::<u32>::nil().close()),
    ("Chan::send", || {
        let chan = Chan::new(0);
        chan.close();
        chan.send(1);
    }),
    ("Chan::new", || _ = Chan::<u64>::new(usize::MAX)),
    ("channel", || _ = channel::<u64>(usize::MAX)),
    ("Builder::stack_size", || _ = Builder::new().stack_size(usize::MAX)),
    ("Builder::go", || elsewhere().go(|| ())),
    ("Builder::spawn", || _ = elsewhere().spawn(|| ())),
    ("Builder::go_scoped", || scope(|s| elsewhere().go_scoped(s, || ()))),
    ("Builder::spawn_scoped", || _ = scope(|s| elsewhere().spawn_scoped(s, || ()).join())),
    ("WaitGroup::go_with", || Arc::new(WaitGroup::new()).go_with(elsewhere(), || ())),
    ("scope", || scope(|s| _ = s.spawn(|| panic!("in the scope")))),
    ("goexit", || goexit()),
    ("set_max_procs", || _ = set_max_procs(0)),
    ("set_max_blocking", || _ = set_max_blocking(0)),
    ("set_stack_size", || _ = set_stack_size(usize::MAX)),
    ("synctest::test, from a goroutine", || run(|| synctest::test(|| ()))),
    ("synctest::test, goroutines are left", || synctest::test(|| go(|| _ = Chan::<u32>::nil().recv()))),
    ("synctest::test, main waits for ever", || synctest::test(|| _ = Chan::<u32>::nil().recv())),
    ("synctest::wait", || synctest::wait()),
    ("synctest::sleep", || synctest::sleep(Duration::ZERO)),
    ("Multilane::with_lanes", || _ = Multilane::with_lanes(0, 1)),
    ("Multilane::with_limit", || _ = Multilane::with_limit(0)),
    ("SeparateLanes::with_lanes", || _ = SeparateLanes::<Benaphore>::with_lanes(1, 0, LaneChoice::InTurn)),
    ("SeparateLanes::with_limit", || _ = SeparateLanes::<Benaphore>::with_limit(0)),
    ("Platoon::with_limit", || _ = Platoon::<Benaphore>::with_limit(0)),
    ("SlidingWindow::with_limit", || _ = SlidingWindow::<Spin>::with_limit(0)),
    ("Fractional::new", || _ = Fractional::new(2.0)),
];

#[test]
fn a_panic_names_the_caller() {
    std::panic::set_hook(Box::new(|info| {
        *PLACE.lock().unwrap() = info.location().unwrap().file().to_owned();
    }));
    let mut elsewhere = Vec::new();
    for (what, call) in CALLS {
        PLACE.lock().unwrap().clear();
        assert!(catch_unwind(call).is_err(), "{what} does not panic");
        let place = PLACE.lock().unwrap().clone();
        if place != file!() {
            elsewhere.push(format!("{what}: {place}"));
        }
    }
    _ = std::panic::take_hook();
    assert!(elsewhere.is_empty(), "the panic is somewhere else: {elsewhere:#?}");
}
