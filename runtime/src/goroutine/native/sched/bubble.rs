//! The clock of a bubble. A bubble is a scheduler with a single worker. The bubble's time stands still while a
//! goroutine of the bubble can run.
//!
//! | when the worker has nothing to run | then |
//! |---|---|
//! | a source of work outside of the bubble is left, such as a blocking call | the worker looks again, after a nap |
//! | the last such source has ended since the worker found nothing | the work that the source has brought runs: see [`Idle::left`] |
//! | a goroutine waits in [`wait`] | that goroutine runs |
//! | a timer or an alarm is set, and main has not ended | the clock jumps to the time of the first that is due |
//! | else | the bubble is at rest: [`synctest`](crate::goroutine::synctest) reports the goroutines that are left |
//!
//! A bubble's worker is a thread of its own, so the state of the bubble is in that thread: [`HERE`]. Only alarms are
//! elsewhere: a context may be dropped, and its alarm cancelled, on any thread.
//!
//! The thread ends with the bubble if all goroutines have ended. The next bubble uses the scheduler and the worker
//! again, which a late waker may still touch. If goroutines are left, the thread stays, as an ordinary worker by the
//! system's clock, and these goroutines wait like threads that are never woken.
//!
//! [`Idle::left`]: crate::goroutine::protocol::idle::Idle::left
//!
//! Go: `synctestGroup` of `runtime/synctest.go` (1.27).

use crate::shim::system;
use crate::shim::system::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::shim::system::thread;
use crate::shim::system::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::box_if_large;
use crate::goroutine::native::alarm::alarms;
use crate::goroutine::native::fibre::current::FibreRef;
use crate::goroutine::native::fibre::{current, job};
use crate::goroutine::native::sched::clock;
use crate::goroutine::native::sched::scheduler::Sched;
use crate::goroutine::native::sched::worker::Worker;
use crate::goroutine::native::sched::{report, sysmon};
use crate::goroutine::native::stack::overflow;
use crate::goroutine::protocol::idle::Left;
use crate::panics::drop_payload;
use crate::sema::{self, Wake as Waking};

/// The state of the bubble whose worker the calling thread is, beside the time, which is in `clock.rs`.
struct Here {
    name: Cell<u64>,
    /// True once main has ended: time stands still for good.
    main_has_ended: Cell<bool>,
    /// The caller of [`wait`].
    waiter: Cell<Option<FibreRef>>,
}

system::thread_local! {
    // Constant and without a destructor, for the reasons given at `CURRENT`.
    static HERE: Here =
        const { Here { name: Cell::new(0), main_has_ended: Cell::new(false), waiter: Cell::new(None) } };
}

/// A guard: the calling thread is in a bubble until the guard is dropped.
struct Bubble {
    name: u64,
}

impl Bubble {
    fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = NEXT.fetch_add(1, Ordering::Relaxed);
        HERE.with(|here| {
            here.name.set(name);
            here.main_has_ended.set(false);
            here.waiter.set(None);
        });
        clock::set_bubble(Some(system::now()));
        Self { name }
    }

    /// Stops the clock of a bubble in which waiting goroutines are left. A goroutine that waits for a time then waits
    /// for ever. A goroutine that another thread wakes goes on, by the system's clock.
    fn stops(self, worker: &Worker) {
        clock::set_bubble(None);
        worker.drop_timers();
    }

    /// Ends a bubble whose goroutines are at rest: from now on this thread's time is the system's time. An alarm that
    /// outlives the bubble becomes an alarm by the system's clock, and is due when the time that was left has passed.
    fn ends(&self) {
        let Some(now) = clock::set_bubble(None) else { return };
        // Hold this lock to the end: a thread that cancels an alarm meanwhile, or that an alarm wakes, then finds the
        // place to which the alarm has moved.
        let mut moved = lock_moved();
        let mut alarms = lock();
        let mut ours = alarms.split_off(&(self.name, None, 0));
        alarms.append(&mut ours.split_off(&(self.name + 1, None, 0)));
        drop(alarms);
        let begun = system::now();
        for (place, waker) in ours {
            let left = place.1.unwrap_or(now).saturating_duration_since(now);
            // If the clock cannot count the alarm's time, the alarm is due in 100 years.
            let when = begun.checked_add(left).unwrap_or_else(|| begun + FAR);
            let waker = Waker::from(Arc::new(Moved { place, waker }));
            moved.insert(place, alarms::set(when, waker));
        }
    }
}

/// A time that is as good as never.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// An alarm of a bubble that has ended, now among the system's alarms.
struct Moved {
    place: Place,
    waker: Waker,
}

impl Wake for Moved {
    fn wake(self: Arc<Self>) {
        lock_moved().remove(&self.place);
        self.waker.wake_by_ref();
    }
}

impl Drop for Bubble {
    fn drop(&mut self) {
        self.ends();
    }
}

// ---- a bubble's life ----------------------------------------------------------------------------------------------

/// The result of a bubble at rest, and a list of the goroutines that are left.
pub(crate) struct AtRest<T> {
    /// The result of the main goroutine. None: that goroutine waits.
    pub(crate) result: Option<thread::Result<T>>,
    /// The goroutines and tasks that have not ended, a line for each.
    pub(crate) left: String,
}

/// The workers of bubbles that have ended.
static SPARE: Mutex<Vec<&'static Worker>> = Mutex::new(Vec::new());

/// Runs `main` in a new bubble, on a thread of the bubble's own, until the bubble is at rest.
///
/// # Panics
///
/// Panics if the system gives no thread.
pub(crate) fn run<T, F>(main: F) -> AtRest<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    box_if_large!(main: F as dyn FnOnce() -> T + Send => run(main));
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    let left = run_boxed(Box::new(move || {
        let outcome = catch_unwind(AssertUnwindSafe(main));
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }));
    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    AtRest { result, left }
}

/// The main of a bubble, which stores its own result and does not unwind.
type Main = Box<dyn FnOnce() + Send>;

/// Runs a bubble, and returns [`AtRest::left`]. Compiled once, not for each `main`.
#[track_caller]
fn run_boxed(main: Main) -> String {
    let told = Arc::new((AtomicU32::new(0), Mutex::new(None)));
    let tells = told.clone();
    let tell = move |left| {
        *tells.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        sema::semrelease(&tells.0, Waking::Normal);
    };
    sysmon::start();
    let thread = thread::Builder::new().name("sudog-bubble".into()).spawn(|| live(main, tell));
    let thread = thread.unwrap_or_else(|error| panic!("synctest: no thread for the bubble: {error}"));
    sema::semacquire(&told.0);
    let left = told.1.lock().unwrap_or_else(PoisonError::into_inner).take().expect("told");
    if String::is_empty(&left) {
        _ = thread.join(); // the thread ends
    }
    left
}

/// Runs a bubble from beginning to end, on the bubble's thread. Calls `tell` with [`AtRest::left`].
fn live(main: Main, tell: impl FnOnce(String)) {
    let _stack = overflow::prepare_thread();
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let worker = spare.unwrap_or_else(Sched::of_bubble);
    let sched = worker.sched();
    _ = sched.idle.expect(1);
    sched.idle.join();
    sched.begin();
    worker.enter_thread();
    let bubble = Bubble::begin();

    let main = move || {
        main();
        // From now on the clock does not jump.
        HERE.with(|here| here.main_has_ended.set(true));
    };
    worker.count_made();
    worker.start_on(job::pack(main, Some(Box::<job::Details>::default().as_main()), Some(&worker.own.jobs)), false);
    worker.run();

    let goroutines = report::goroutines(sched);
    let tasks = sched.live().saturating_sub(goroutines.len());
    let mut left = report::list(&goroutines, &[], true);
    if tasks > 0 {
        left += &format!("{tasks} async task(s)\n");
    }
    let all_have_ended = left.is_empty();
    if !all_have_ended {
        bubble.stops(worker);
    } else {
        drop(bubble);
        worker.forget_fibres();
        sched.end();
        sched.idle.leave();
        current::set_worker(None);
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
    tell(left);
    if !all_have_ended {
        loop {
            worker.run();
        }
    }
}

// ---- waiting for the others -----------------------------------------------------------------------------------------

/// Blocks the calling goroutine until no other goroutine of the bubble can run before the clock jumps.
#[track_caller]
pub(crate) fn wait() {
    assert!(clock::is_of_bubble(), "goroutine is not in a bubble");
    let Some(me) = current::current() else { panic!("synctest: wait where the goroutine may not switch") };
    assert!(HERE.with(|here| here.waiter.get()).is_none(), "wait already in progress");
    HERE.with(|here| here.waiter.set(Some(me)));
    current::note_wait("synctest.Wait");
    // The goroutine is readied after the goroutine has been taken out of `waiter`, so only once.
    me.park(None, || ());
}

// ---- the clock ------------------------------------------------------------------------------------------------------

/// The next step of a bubble's worker that looks for work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Run the work that is ready now.
    Run,
    /// Look again soon: a source of work outside is left.
    Nap,
    /// Rest: nothing can come.
    Rest,
}

/// Decides the next step of a bubble's worker that looks for work. `has_work` returns whether anything is queued.
#[cold]
pub(crate) fn settle(worker: &'static Worker, has_work: impl FnOnce() -> bool) -> Idle {
    HERE.with(|here| {
        match worker.sched().idle.left(has_work) {
            Left::Outside => return Idle::Nap,
            Left::Work => return Idle::Run,
            Left::Nothing => {}
        }
        if let Some(waiter) = here.waiter.take() {
            // SAFETY: the waiter is parked, as this worker runs no goroutine now. The waiter has been taken out of
            // `waiter`, so this is the only `ready`.
            unsafe { waiter.ready() };
            return Idle::Run;
        }
        if here.main_has_ended.get() {
            return Idle::Rest;
        }
        let name = here.name.get();
        let first = [worker.next_timer(), first_alarm(name)].into_iter().flatten().min();
        let Some(first) = first else { return Idle::Rest };
        let now = clock::now().max(first);
        clock::set_bubble(Some(now));
        while let Some(waker) = take_due(name, now) {
            // A waker is user code: run the waker in a goroutine.
            let wake = || {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    drop_payload(payload);
                }
            };
            worker.count_made();
            worker.submit(job::pack(wake, None, Some(&worker.own.jobs)));
        }
        worker.fire_timers();
        Idle::Run
    })
}

// ---- alarms ---------------------------------------------------------------------------------------------------------

/// The key of an alarm in [`ALARMS`]: the bubble, the time when the alarm is due (None: a bound before all times), and
/// a number that tells alarms of equal times apart.
type Place = (u64, Option<Instant>, u64);

/// The bubble of an alarm, the time when the alarm is due, and the number of the alarm.
pub(crate) type Key = (u64, Instant, u64);

static ALARMS: Mutex<BTreeMap<Place, Waker>> = Mutex::new(BTreeMap::new());

/// The alarms that have outlived their bubbles: for each old place, the key among the system's alarms.
static MOVED: Mutex<BTreeMap<Place, alarms::Key>> = Mutex::new(BTreeMap::new());

/// Locks the moved alarms. No user code runs under this lock. A thread that takes this lock and that of `lock`, or
/// this lock and a lock of `alarms`, takes this lock first.
fn lock_moved() -> MutexGuard<'static, BTreeMap<Place, alarms::Key>> {
    MOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the alarms of bubbles. No user code runs under this lock.
fn lock() -> MutexGuard<'static, BTreeMap<Place, Waker>> {
    ALARMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes `waker` when the bubble's clock comes to `when`. Called by a goroutine of the bubble.
pub(crate) fn set_alarm(when: Instant, waker: Waker) -> Key {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = HERE.with(|here| here.name.get());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    lock().insert((name, Some(when), number), waker);
    (name, when, number)
}

/// Cancels an alarm, and drops the alarm's waker. May be called on any thread.
pub(crate) fn cancel_alarm((name, when, number): Key) {
    let place = (name, Some(when), number);
    let waker = lock().remove(&place);
    // Look into the bubble's alarms first, then into `MOVED`: the end of a bubble holds the lock of `MOVED` while
    // alarms move there.
    let moved = if waker.is_none() { lock_moved().remove(&place) } else { None };
    if let Some(key) = moved {
        alarms::cancel(key);
    }
    drop(waker); // drop without a lock, as the drop is user code
}

fn first_alarm(name: u64) -> Option<Instant> {
    lock().range((name, None, 0)..(name + 1, None, 0)).next().and_then(|((_, when, _), _)| *when)
}

fn take_due(name: u64, now: Instant) -> Option<Waker> {
    let mut alarms = lock();
    let first = *alarms.range((name, None, 0)..=(name, Some(now), u64::MAX)).next()?.0;
    alarms.remove(&first)
}
