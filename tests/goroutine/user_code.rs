//! User code at each place where it runs: a table of the places, times the deeds of user code. After each pair the
//! object must work as before, and the other goroutines of the worker must have had their turns.
//!
//! | deed | |
//! |---|---|
//! | `Panics` | |
//! | `Waits` | for a goroutine of the same worker that has not begun |
//! | `Reenters` | calls the object that runs the user code |
//! | `Exits` | ends its goroutine |
//! | `Yields` | |
//!
//! A new place is a single entry: code that makes its object, and has the user code run. A deed that a place does not
//! support is named with the reason; `docs/design.md`, "Where user code runs", has the same exceptions.
#![cfg(all(unix, feature = "locks", not(sudog_loom)))]
#![forbid(unsafe_code)]

use std::future::{Future, poll_fn};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex, OnceLock};
use std::task::{Context, Poll, Wake as WakeTask, Waker};
use std::thread;
use std::time::{Duration, Instant};
use std::{error, fmt};

use sudog::locks::capacitor::{Admission, ConstAdmission, Path, Sliding};
use sudog::locks::spin_lock::WaitPolicy;
use sudog::locks::waiting_array::{Ticket, TwaChain, TwaLocation};
use sudog::low_level::sema::{NotifyList, Order, Wake, semacquire, semacquire_async, semrelease, semrelease_many};
use sudog::low_level::{G, Semaphore};
use sudog::runtime::{Goexit, goexit, gosched};
use sudog::sync::atomic::Value;
use sudog::sync::{
    Cond, LockAsync, Locker, Map, Mutex, MutexGuard, MutexWith, Once, OnceValue, Pool, RwMutex, WaitGroup,
};
use sudog::time::{after_func, sleep_async};
use sudog::x::{ErrGroup, SingleFlight};
use sudog::{
    Builder, JoinHandle, OnPanic, Placement, block_on, blocking, context, goroutine_local, run, spawn_async,
    without_switching,
};
use support::eventually;
use support::goroutine::{alone_with, until};

use Deed::{Exits, Panics, Reenters, Waits, Yields};

// ---- the table's machine --------------------------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Panics,
    Waits,
    Reenters,
    Exits,
    Yields,
}

const DEEDS: [Deed; 5] = [Panics, Waits, Reenters, Exits, Yields];

/// The user: code that does its deed, once, after it has been armed.
#[derive(Clone)]
struct User(Arc<State>);

struct State {
    deed: Deed,
    armed: AtomicBool,
    acted: AtomicBool,
    /// A closure that calls the object, for `Reenters`. Set at most once, by the scene.
    reenters: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl User {
    fn new(deed: Deed) -> Self {
        let [armed, acted] = [(); 2].map(|()| AtomicBool::new(false));
        Self(Arc::new(State { deed, armed, acted, reenters: OnceLock::new() }))
    }

    fn reenters(&self, f: impl Fn() + Send + Sync + 'static) {
        assert!(self.0.reenters.set(Box::new(f)).is_ok());
    }

    fn arm(&self) {
        self.0.armed.store(true, SeqCst);
    }

    fn acts(&self) {
        if !self.0.armed.swap(false, SeqCst) {
            return;
        }
        self.0.acted.store(true, SeqCst);
        match self.0.deed {
            Panics => resume_unwind(Box::new("hostile")),
            Waits => {
                let done = Arc::new(AtomicU32::new(0));
                let releases = Releases(done.clone());
                here().go(move || drop(releases));
                semacquire(&done);
            }
            Reenters => (self.0.reenters.get().expect("a place says how it is called again"))(),
            Exits => goexit(),
            Yields => (0..3).for_each(|_| gosched()),
        }
    }

    /// Returns a value whose destructor acts.
    fn drops(&self) -> Drops {
        Drops(self.clone())
    }

    /// Returns a waker that acts when it wakes.
    fn waker(&self) -> Waker {
        Arc::new(Wakes(self.clone())).into()
    }
}

/// A value whose destructor releases a permit.
struct Releases(Arc<AtomicU32>);

impl Drop for Releases {
    fn drop(&mut self) {
        semrelease(&self.0, Wake::Normal);
    }
}

struct Drops(User);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.acts();
    }
}

struct Wakes(User);

impl WakeTask for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.acts();
    }
}

/// A place where user code runs.
struct Place {
    name: &'static str,
    scene: fn(&User) -> Scene,
    /// The deeds that are fatal here or are not supported, each with the reason.
    except: &'static [(Deed, &'static str)],
}

struct Scene {
    /// Arms the user, and makes it act. Runs in a goroutine.
    act: Box<dyn FnOnce() + Send>,
    /// Asserts that the object works as before.
    check: Box<dyn Fn() + Send>,
}

fn scene(act: impl FnOnce() + Send + 'static, check: impl Fn() + Send + 'static) -> Scene {
    Scene { act: Box::new(act), check: Box::new(check) }
}

fn here() -> Builder {
    Builder::new().on(Placement::Here).on_panic(OnPanic::Unwind)
}

/// Tests one pair of a place and a deed, on a single worker.
fn pair(place: &Place, deed: Deed) {
    let _alone = alone_with(1);
    let user = User::new(deed);
    let Scene { act, check } = (place.scene)(&user);
    run(move || assert_is_the_users(here().spawn(act).join()));
    eventually(|| user.0.acted.load(SeqCst));
    check();
    run(|| here().spawn(check).join().unwrap());
}

/// Asserts that a panic that came out of the driver is the user's. A failed assertion of the driver is raised again.
fn assert_is_the_users(ended: thread::Result<()>) {
    let Err(payload) = ended else { return };
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    // The panic of a deed itself, or the panic that a primitive raises in the other goroutines because of the deed.
    let deeds = ["hostile", "has ended its goroutine", "goexit was called outside of a goroutine"];
    if !payload.is::<Goexit>() && !text.is_some_and(|text| deeds.iter().any(|deed| text.contains(deed))) {
        resume_unwind(payload);
    }
}

/// Tests all pairs of these places, each pair in a thread with the pair's name.
fn every_pair(places: &[Place]) {
    let mut failed = Vec::new();
    for place in places {
        for deed in DEEDS.into_iter().filter(|deed| place.except.iter().all(|(except, _)| except != deed)) {
            let name = format!("{}: {deed:?}", place.name);
            let ended = thread::scope(|s| {
                thread::Builder::new().name(name.clone()).spawn_scoped(s, || pair(place, deed)).unwrap().join()
            });
            if ended.is_err() {
                failed.push(name);
            }
            support::pat();
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Polls a future that is pending, with a waker that acts.
fn poll_early<F: Future>(future: Pin<&mut F>, user: &User) {
    assert!(future.poll(&mut Context::from_waker(&user.waker())).is_pending());
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

const NO_SWITCH: &str = "documented: whatever waits in there blocks the worker";

// ---- the runtime ----------------------------------------------------------------------------------------------------

/// Asserts that the worker's queues, timers and stacks work.
fn goroutines_work() {
    let done = Arc::new(AtomicU32::new(0));
    for _ in 0..3 {
        let releases = done.clone();
        here().go(move || semrelease(&releases, Wake::Normal));
    }
    (0..3).for_each(|_| semacquire(&done));
    assert!(!G::yield_and_wait(Duration::from_millis(1)));
}

trait YieldAndWait {
    /// Waits, and asserts that only the deadline ends the wait.
    fn yield_and_wait(d: Duration) -> bool;
}

impl YieldAndWait for G {
    fn yield_and_wait(d: Duration) -> bool {
        let until = Instant::now() + d;
        let woken = G::current().park(Some(until), || ()) == sudog::low_level::ParkResult::Unparked;
        assert!(Instant::now() >= until);
        woken
    }
}

/// Asserts that a permit goes through, and that no permit is left.
fn permits_work(permits: &AtomicU32) {
    assert_eq!(permits.load(SeqCst), 0);
    semrelease(permits, Wake::Normal);
    semacquire(permits);
    assert_eq!(permits.load(SeqCst), 0);
}

/// The user for `MADE`, a local whose initialiser acts, and for `DROPPED`, a local whose destructor acts. `None` if
/// there is no user.
static LOCAL_USERS: StdMutex<Option<User>> = StdMutex::new(None);
static LOCALS_TURN: StdMutex<()> = StdMutex::new(());

struct Local(#[allow(dead_code)] Option<Drops>);

goroutine_local! {
    static MADE: Local = {
        let user = LOCAL_USERS.lock().unwrap().clone();
        if let Some(user) = user {
            user.acts();
        }
        Local(None)
    };
    static DROPPED: Local = Local(LOCAL_USERS.lock().unwrap().as_ref().map(User::drops));
}

const RUNTIME: &[Place] = &[
    Place {
        name: "the commit of G::park",
        scene: |user| {
            user.reenters(|| _ = G::current().park(Some(Instant::now() + Duration::from_millis(1)), || ()));
            let user = user.clone();
            let act = move || {
                user.arm();
                G::current().park(Some(Instant::now() + Duration::from_millis(5)), || user.acts());
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "a goroutine's closure",
        scene: |user| {
            user.reenters(|| _ = here().spawn(|| ()).join());
            let user = user.clone();
            let act = move || {
                user.arm();
                let _ = here().spawn(move || user.acts()).join();
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the destructor of what a closure has captured",
        scene: |user| {
            user.reenters(|| _ = here().spawn(|| ()).join());
            let user = user.clone();
            let act = move || {
                user.arm();
                let captured = user.drops();
                let _ = here().spawn(move || drop(captured)).join();
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the destructor of what a closure has captured that never begins",
        scene: |user| {
            user.reenters(|| here().go(|| ()));
            let user = user.clone();
            let act = move || {
                user.arm();
                let captured = user.drops();
                here().go(move || drop(captured)); // main goes on, and returns, before this goroutine begins
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the destructor of a result that nobody wants",
        scene: |user| {
            user.reenters(|| _ = here().spawn(|| ()).join());
            let user = user.clone();
            let act = move || {
                let result = user.drops();
                drop(here().spawn(move || result));
                user.arm();
                until(|| user.0.acted.load(SeqCst));
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the destructor of a panic's payload",
        scene: |user| {
            user.reenters(|| _ = here().spawn(|| ()).join());
            let user = user.clone();
            let act = move || {
                user.arm();
                let payload = user.drops();
                here().go(move || resume_unwind(Box::new(payload)));
                until(|| user.0.acted.load(SeqCst));
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the waker of a handle",
        scene: |user| {
            let go_on = Arc::new(AtomicU32::new(0));
            let handle: Arc<StdMutex<Option<JoinHandle<u32>>>> = Arc::default();
            let again = handle.clone();
            user.reenters(move || {
                if let Some(handle) = &mut *again.lock().unwrap() {
                    let _ = Pin::new(handle).poll(&mut noop());
                }
            });
            let (user, waits) = (user.clone(), go_on.clone());
            let act = move || {
                let mut polled = here().spawn(move || {
                    semacquire(&waits);
                    42
                });
                poll_early(Pin::new(&mut polled), &user);
                *handle.lock().unwrap() = Some(polled);
                user.arm();
                semrelease(&go_on, Wake::Normal);
                until(|| user.0.acted.load(SeqCst));
                let mut polled = handle.lock().unwrap().take().unwrap();
                if user.0.deed != Reenters {
                    assert!(matches!(Pin::new(&mut polled).poll(&mut noop()), Poll::Ready(Ok(42))));
                }
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the initialiser of a local",
        scene: |user| {
            user.reenters(|| MADE.with(|_| ()));
            local(user, || MADE.with(|_| ()))
        },
        except: &[],
    },
    Place {
        name: "the destructor of a local",
        scene: |user| {
            user.reenters(|| DROPPED.with(|_| ()));
            local(user, || DROPPED.with(|_| ()))
        },
        except: &[],
    },
    Place {
        name: "a future's poll",
        scene: |user| {
            user.reenters(|| _ = spawn_async(async {}).join());
            let user = user.clone();
            let act = move || {
                user.arm();
                let _ = spawn_async(async move { user.acts() }).join();
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the destructor of a future that is ready",
        scene: |user| {
            user.reenters(|| _ = spawn_async(async {}).join());
            let user = user.clone();
            let act = move || {
                user.arm();
                let held = Held(user.drops());
                let ended = spawn_async(held).join();
                assert_eq!(ended.is_err(), matches!(user.0.deed, Panics | Exits));
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the destructor of a task's result that nobody wants",
        scene: |user| {
            user.reenters(|| _ = spawn_async(async {}).join());
            let user = user.clone();
            let act = move || {
                let result = user.drops();
                drop(spawn_async(async move { result }));
                user.arm();
                until(|| user.0.acted.load(SeqCst));
            };
            scene(act, goroutines_work)
        },
        except: &[(Panics, "documented: a panic in a task that nobody joins ends the process")],
    },
    Place {
        name: "the waker of an alarm",
        scene: |user| {
            user.reenters(|| block_on(sleep_async(Duration::from_millis(1))));
            let user = user.clone();
            let act = move || {
                let mut sleeps = pin!(sleep_async(Duration::from_millis(2)));
                poll_early(sleeps.as_mut(), &user);
                user.arm();
                until(|| user.0.acted.load(SeqCst));
                while sleeps.as_mut().poll(&mut noop()).is_pending() {
                    gosched();
                }
            };
            scene(act, || block_on(sleep_async(Duration::from_millis(1))))
        },
        except: &[],
    },
    Place {
        name: "the waker of a permit",
        scene: |user| {
            let permits = Arc::new(AtomicU32::new(0));
            let (again, checked) = (permits.clone(), permits.clone());
            user.reenters(move || {
                semrelease(&again, Wake::Handoff);
                semacquire(&again);
            });
            let user = user.clone();
            let act = move || {
                let mut waits = pin!(semacquire_async(&permits));
                poll_early(waits.as_mut(), &user);
                user.arm();
                let released = catch_unwind(AssertUnwindSafe(|| semrelease(&permits, Wake::Handoff)));
                assert!(waits.as_mut().poll(&mut noop()).is_ready());
                released.unwrap_or_else(|payload| resume_unwind(payload));
            };
            scene(act, move || permits_work(&checked))
        },
        except: &[],
    },
    Place {
        name: "two wakers of permits that are released at once",
        scene: |user| {
            let permits = Arc::new(AtomicU32::new(0));
            let (again, checked) = (permits.clone(), permits.clone());
            user.reenters(move || semrelease_many(&again, 0));
            let user = user.clone();
            let act = move || {
                let another = User::new(user.0.deed);
                another.reenters(|| ());
                let mut waits = [(); 3].map(|()| Box::pin(semacquire_async(&permits)));
                poll_early(waits[0].as_mut(), &user);
                poll_early(waits[1].as_mut(), &another);
                assert!(waits[2].as_mut().poll(&mut noop()).is_pending());
                another.arm();
                user.arm();
                let released = catch_unwind(AssertUnwindSafe(|| semrelease_many(&permits, 3)));
                assert!(another.0.acted.load(SeqCst), "the second is woken, whatever the first does");
                waits.iter_mut().for_each(|wait| assert!(wait.as_mut().poll(&mut noop()).is_ready()));
                released.unwrap_or_else(|payload| resume_unwind(payload));
            };
            scene(act, move || {
                if checked.load(SeqCst) > 0 {
                    (0..checked.load(SeqCst)).for_each(|_| semacquire(&checked));
                }
                permits_work(&checked);
            })
        },
        except: &[],
    },
    Place {
        name: "a waker that a destructor uses in a panic",
        scene: |user| {
            let permits = Arc::new(AtomicU32::new(0));
            let (again, checked) = (permits.clone(), permits.clone());
            user.reenters(move || semrelease_many(&again, 0));
            let user = user.clone();
            let act = move || {
                let mut waits = pin!(semacquire_async(&permits));
                poll_early(waits.as_mut(), &user);
                user.arm();
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    let _releases = Releases(permits.clone());
                    resume_unwind(Box::new(1));
                }));
                assert!(panicked.is_err());
                assert!(waits.as_mut().poll(&mut noop()).is_ready());
            };
            scene(act, move || permits_work(&checked))
        },
        except: &[(Waits, "documented: what waits while its thread panics blocks the worker")],
    },
    Place {
        name: "the poll of block_on",
        scene: |user| {
            user.reenters(|| block_on(async {}));
            let user = user.clone();
            let act = move || {
                user.arm();
                let mut first = true;
                block_on(poll_fn(|cx| {
                    if std::mem::take(&mut first) {
                        cx.waker().wake_by_ref();
                        user.acts();
                        return Poll::Pending;
                    }
                    Poll::Ready(())
                }));
            };
            scene(act, goroutines_work)
        },
        except: &[],
    },
    Place {
        name: "the closure of blocking",
        scene: |user| {
            user.reenters(|| blocking(|| ()));
            let user = user.clone();
            let act = move || {
                user.arm();
                blocking(|| user.acts());
            };
            scene(act, || assert_eq!(blocking(|| 42), 42))
        },
        except: &[],
    },
    Place {
        name: "the function of after_func",
        scene: |user| {
            user.reenters(|| _ = after_func(Duration::ZERO, || ()).stop());
            let user = user.clone();
            let act = move || {
                user.arm();
                let acts = user.clone();
                let _call = after_func(Duration::from_millis(1), move || acts.acts());
                until(|| user.0.acted.load(SeqCst));
            };
            scene(act, goroutines_work)
        },
        except: &[(Panics, "documented: as `go`, it ends the process")],
    },
    Place {
        name: "the closure of NotifyList::with_ticket",
        scene: |user| {
            let list = Arc::new(NotifyList::new());
            let (again, checked) = (list.clone(), list.clone());
            user.reenters(move || {
                again.with_ticket(|ticket| assert!(!ticket.wait(Some(Instant::now()))));
                again.notify_one(); // for the outer ticket
            });
            let user = user.clone();
            let act = move || {
                user.arm();
                list.with_ticket(|ticket| {
                    user.acts();
                    ticket.wait(Some(Instant::now()))
                });
            };
            scene(act, move || {
                assert_eq!(checked.waiters(), 0);
                checked.with_ticket(|ticket| {
                    checked.notify_one();
                    assert!(ticket.wait(None));
                });
            })
        },
        except: &[],
    },
    Place {
        name: "the closure of without_switching",
        scene: |user| {
            user.reenters(|| without_switching(|| ()));
            let user = user.clone();
            let act = move || {
                user.arm();
                without_switching(|| user.acts());
            };
            scene(act, goroutines_work)
        },
        except: &[(Waits, NO_SWITCH)],
    },
    Place {
        name: "the panic hook",
        scene: |_| unreachable!("all is excepted"),
        except: &[
            (Panics, "fatal: std ends the process"),
            (Waits, "documented: it blocks the worker, as its thread panics"),
            (Reenters, "fatal: a panic in the hook is one within a panic"),
            (Exits, "fatal: a panic in the hook is one within a panic"),
            (Yields, "it is the thread that yields, as it panics"),
        ],
    },
];

/// A future that is ready, and holds a value.
struct Held<T>(#[allow(dead_code)] T);

impl<T> Future for Held<T> {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        Poll::Ready(42)
    }
}

fn local(user: &User, uses: fn()) -> Scene {
    let user = user.clone();
    let act = move || {
        let _turn = LOCALS_TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *LOCAL_USERS.lock().unwrap() = Some(user.clone());
        user.arm();
        let used = here().spawn(uses);
        let _ = used.join();
        until(|| user.0.acted.load(SeqCst));
        *LOCAL_USERS.lock().unwrap() = None;
    };
    scene(act, move || {
        uses();
        uses();
    })
}

#[test]
fn in_the_runtime() {
    every_pair(RUNTIME);
}

// ---- sync -----------------------------------------------------------------------------------------------------------

/// A key, value or error that acts when it is hashed, compared, cloned, shown, or converted.
#[derive(Clone)]
struct Acts {
    user: User,
    at: At,
    n: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Hash,
    Eq,
    Clone,
    Debug,
    Into,
}

impl Acts {
    fn acts(&self, at: At) {
        if self.at == at {
            self.user.acts();
        }
    }
}

impl Hash for Acts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.acts(At::Hash);
        self.n.hash(state);
    }
}

impl PartialEq for Acts {
    fn eq(&self, other: &Self) -> bool {
        self.acts(At::Eq);
        other.acts(At::Eq);
        self.n == other.n
    }
}

impl Eq for Acts {}

/// A wrapper of [`Acts`] that acts when it is cloned.
struct Clones(Acts);

impl Clone for Clones {
    fn clone(&self) -> Self {
        self.0.acts(At::Clone);
        Self(self.0.clone())
    }
}

impl fmt::Debug for Acts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acts(At::Debug);
        self.n.fmt(f)
    }
}

impl From<Acts> for Box<dyn error::Error + Send + Sync> {
    fn from(acts: Acts) -> Self {
        acts.acts(At::Into);
        "an error".into()
    }
}

/// An error whose destructor acts.
struct Fails(#[allow(dead_code)] Drops);

impl fmt::Debug for Fails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Fails")
    }
}

impl fmt::Display for Fails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("fails")
    }
}

impl error::Error for Fails {}

/// Returns a key or value without a deed. The counterpart with a deed is `hostile`.
fn plain(n: u32) -> Acts {
    Acts { user: User::new(Yields), at: At::Debug, n }
}

fn hostile(user: &User, at: At, n: u32) -> Acts {
    Acts { user: user.clone(), at, n }
}

const FATAL_AS_GO: &str = "fatal: documented, as in Go: a panic in a goroutine that nobody joins ends the process";
const OWN_LOCK: &str = "it is the caller who has the lock there: to lock it again is to wait for oneself";

/// Makes the scene of a map, of which key 1 acts, and in which `does` uses that key.
fn map_of_keys(user: &User, at: At, does: fn(&Map<Acts, u32>, Acts)) -> Scene {
    let map = Arc::new(Map::new());
    for n in 0..100 {
        map.store(plain(n), n);
    }
    let (again, checked) = (map.clone(), map.clone());
    user.reenters(move || {
        assert_eq!(again.load(&plain(7)), Some(7));
        again.store(plain(1), 1);
        again.delete(&plain(200));
    });
    let user = user.clone();
    let act = move || {
        let key = hostile(&user, at, 1);
        user.arm();
        does(&map, key);
    };
    scene(act, move || {
        for n in (0..100).filter(|&n| n != 1) {
            assert_eq!(checked.load(&plain(n)), Some(n));
        }
        checked.store(plain(1), 5);
        assert_eq!(checked.load_and_delete(&plain(1)), Some(5));
        let mut n = 0;
        checked.range(|_, _| {
            n += 1;
            true
        });
        assert_eq!(n, 99);
    })
}

/// Makes the scene of a `SingleFlight`, in which `does` uses a key that acts.
fn flights_of(user: &User, at: At, does: fn(&SingleFlight<Acts, u32, ()>, Acts)) -> Scene {
    let group = Arc::new(SingleFlight::<Acts, u32, ()>::new());
    let (again, checked) = (group.clone(), group.clone());
    user.reenters(move || {
        assert_eq!(again.do_(plain(7), || Ok(7)).result, Ok(7));
        again.forget(&plain(1));
        assert_eq!(again.do_(plain(1), || Ok(1)).result, Ok(1));
    });
    let user = user.clone();
    let act = move || {
        let key = hostile(&user, at, 1);
        user.arm();
        // Run `does` while another call for the key is under way.
        group.do_(plain(1), || {
            does(&group, key);
            Ok(1)
        });
    };
    scene(act, move || flights_work(&checked, plain))
}

fn flights_work<K: Hash + Eq>(group: &SingleFlight<K, u32, ()>, key: fn(u32) -> K) {
    assert_eq!(format!("{group:?}"), "SingleFlight { calls: 0, waiters: 0 }");
    assert_eq!(group.do_(key(1), || Ok(2)).result, Ok(2));
    assert_eq!(format!("{group:?}"), "SingleFlight { calls: 0, waiters: 0 }");
}

/// Makes the scene of a group in which a goroutine acts, and checks that the group still works.
fn group_of(user: &User, goes: fn(&ErrGroup, User)) -> Scene {
    let (group, ctx) = ErrGroup::with_context(&context::background());
    let group = Arc::new(group);
    let (again, checked) = (group.clone(), group.clone());
    user.reenters(move || again.go(|| Ok::<_, fmt::Error>(())));
    let user = user.clone();
    let act = move || {
        // Its own waker is told of the end, after it.
        user.arm();
        goes(&group, user.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| group.wait()));
        assert!(user.0.deed != Panics || ended.is_err(), "a panic goes on in wait");
        drop(ctx);
    };
    scene(act, move || {
        // All goroutines of the group have ended, and the group can be used again.
        let _ = catch_unwind(AssertUnwindSafe(|| checked.wait()));
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        checked.go(move || {
            runs.store(true, SeqCst);
            Ok::<_, fmt::Error>(())
        });
        let _ = catch_unwind(AssertUnwindSafe(|| checked.wait()));
        assert!(ran.load(SeqCst));
    })
}

/// Makes the scene of a context, its cancel, and its other waiters.
fn context_of(user: &User, follows: fn(&context::Context, User) -> Box<dyn Send>) -> Scene {
    let (ctx, cancel) = context::with_cancel(&context::background());
    let (again, checked) = (cancel.clone(), ctx.clone());
    let (child, _cancel) = context::with_cancel(&ctx);
    user.reenters(move || {
        again.cancel();
        assert!(child.err().is_some());
    });
    let user = user.clone();
    let act = move || {
        let mut kept = vec![follows(&ctx, user.clone())];
        // Add other waiters for the context and for a child: the cancel tells these waiters all the same.
        let told = Arc::new(AtomicU32::new(0));
        let (child, _cancel) = context::with_cancel(&ctx);
        for ctx in [ctx.clone(), child] {
            let told = told.clone();
            let call = context::after_func(&ctx, move || semrelease(&told, Wake::Normal));
            kept.push(Box::new((ctx, call)));
        }
        user.arm();
        let cancelled = catch_unwind(AssertUnwindSafe(|| cancel.cancel()));
        (0..2).for_each(|_| semacquire(&told));
        drop(kept);
        cancelled.unwrap_or_else(|payload| resume_unwind(payload));
    };
    scene(act, move || {
        assert_eq!(checked.wait(), context::Error::Canceled);
        assert_eq!(block_on(checked.done()), context::Error::Canceled);
        let (child, _cancel) = context::with_cancel(&checked);
        assert!(child.err().is_some());
    })
}

/// A user's bare lock, which acts: at its unlock if the flag is set, else at its lock.
struct Bare(Arc<sudog::sync::GoMutex>, User, bool);

impl Locker for Bare {
    fn lock(&self) {
        if !self.2 {
            self.1.acts();
        }
        self.0.lock();
    }

    fn unlock(&self) {
        self.0.unlock();
        if self.2 {
            self.1.acts();
        }
    }
}

fn cond_of(user: &User, at_unlock: bool) -> Scene {
    let cond = Arc::new(Cond::new());
    let mutex = Arc::new(sudog::sync::GoMutex::new());
    let (again, checked, free) = (cond.clone(), cond.clone(), mutex.clone());
    user.reenters(move || {
        again.broadcast();
        assert!(again.wait_limited(&mut Mutex::new(0).lock(), Instant::now()).is_err());
    });
    let user = user.clone();
    let act = move || {
        let lock = Bare(mutex.clone(), user.clone(), at_unlock);
        mutex.lock();
        let _unlocks = Unlocks(mutex);
        user.arm();
        let soon = sudog::WaitLimit::until(Instant::now() + Duration::from_millis(1));
        let _ = cond.wait_locker_limited(&lock, &soon);
        assert!(!lock.0.try_lock(), "it is locked, whatever has happened");
    };
    scene(act, move || {
        assert_eq!(checked.waiters(), 0);
        eventually(|| free.try_lock());
        free.unlock();
        assert!(checked.wait_limited(&mut Mutex::new(0).lock(), Instant::now()).is_err());
    })
}

struct Unlocks(Arc<sudog::sync::GoMutex>);

impl Drop for Unlocks {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// A policy that acts, for the user in `POLICY_USER`.
struct Policy;

static POLICY_USER: StdMutex<Option<User>> = StdMutex::new(None);

fn policy_acts() {
    let user = POLICY_USER.lock().unwrap().clone();
    if let Some(user) = user {
        user.acts();
    }
}

impl WaitPolicy for Policy {
    const PARKS: bool = true;

    fn pass_time(iter: u32) -> bool {
        policy_acts();
        iter < 3
    }
}

/// An admission policy of a capacitor that acts, and sends all threads through the gate.
#[derive(Default)]
struct Admits;

impl Admission for Admits {
    const GATED: bool = true;

    fn path(&self) -> Path {
        policy_acts();
        Path::Gate
    }
}

impl ConstAdmission for Admits {
    const DEFAULT: Self = Self;
}

/// Runs `does` while the user is in the slot `POLICY_USER`.
fn with_policy(user: &User, does: impl FnOnce()) {
    struct Empties;
    impl Drop for Empties {
        fn drop(&mut self) {
            *POLICY_USER.lock().unwrap() = None;
        }
    }
    *POLICY_USER.lock().unwrap() = Some(user.clone());
    let _empties = Empties;
    user.arm();
    does();
}

/// Makes a scene: a goroutine waits at a semaphore without a permit, and the semaphore's wait policy runs the user's deed in
/// that wait. If the goroutine is still there afterwards, the scene gives it a permit.
fn policy_of<S: Semaphore + 'static>(user: &User) -> Scene {
    let sema = Arc::new(S::new(0));
    let (again, checked) = (sema.clone(), sema.clone());
    user.reenters(move || {
        again.release(Wake::Normal);
        again.acquire(Order::Fifo);
    });
    let user = user.clone();
    let given = Arc::new(AtomicBool::new(false));
    let is_given = given.clone();
    let act = move || {
        let (gives, acted) = (sema.clone(), user.clone());
        here().go(move || {
            until(|| acted.0.acted.load(SeqCst));
            gives.release(Wake::Normal);
            given.store(true, SeqCst);
        });
        with_policy(&user, || sema.acquire(Order::Fifo));
    };
    scene(act, move || {
        eventually(|| is_given.load(SeqCst));
        // The single permit has been taken, or is available.
        while checked.try_acquire() {}
        checked.release(Wake::Normal);
        checked.acquire(Order::Fifo);
        assert!(!checked.try_acquire());
    })
}

const SYNC: &[Place] = &[
    Place {
        name: "the WaitPolicy of a ticket semaphore",
        scene: |user| policy_of::<Ticket<Policy>>(user),
        except: &[],
    },
    Place {
        name: "the WaitPolicy of a semaphore with a waiting array",
        scene: |user| policy_of::<TwaChain<Policy>>(user),
        except: &[],
    },
    Place {
        name: "the WaitPolicy of a semaphore with locations",
        scene: |user| policy_of::<TwaLocation<Policy>>(user),
        except: &[],
    },
    Place {
        name: "the WaitPolicy of a spin lock",
        scene: |_| unreachable!("all is excepted"),
        except: &[
            (Panics, "fatal: documented: a line cannot be left"),
            (Waits, NO_SWITCH),
            (Reenters, OWN_LOCK),
            (Exits, "fatal: documented: a line cannot be left"),
            (Yields, "it is the thread that yields"),
        ],
    },
    Place {
        name: "the Admission of a capacitor",
        scene: |user| {
            let lock = Arc::new(MutexWith::<Sliding<sudog::sync::GoMutex, Admits>, u32>::new(1));
            let (again, checked) = (lock.clone(), lock.clone());
            user.reenters(move || *again.lock() = 1);
            let user = user.clone();
            let act = move || with_policy(&user, || *lock.lock() = 1);
            scene(act, move || assert_eq!(*checked.lock(), 1))
        },
        except: &[],
    },
    Place {
        name: "the function of a Once",
        scene: |user| {
            let once = Arc::new(Once::new());
            let (again, checked) = (once.clone(), once.clone());
            // `do_` would wait for itself, as documented.
            user.reenters(move || assert!(again.do_limited(|| unreachable!(), Instant::now()).is_err()));
            let user = user.clone();
            let act = move || {
                user.arm();
                once.do_(|| user.acts());
            };
            scene(act, move || {
                checked.do_(|| unreachable!("it counts as done"));
                assert!(checked.is_done());
            })
        },
        except: &[],
    },
    Place {
        name: "the function of a OnceValue",
        scene: |user| {
            let (acts, again) = (user.clone(), Arc::new(OnceLock::<Box<dyn Fn() + Send + Sync>>::new()));
            let value = Arc::new(OnceValue::new(move || {
                acts.acts();
                42
            }));
            let (inner, checked) = (value.clone(), value.clone());
            assert!(again.set(Box::new(move || assert_eq!(inner.get_limited(Instant::now()).ok(), None))).is_ok());
            user.reenters(move || again.get().unwrap()());
            let user = user.clone();
            let fails = matches!(user.0.deed, Panics | Exits);
            let act = move || {
                user.arm();
                value.get();
            };
            scene(act, move || match catch_unwind(AssertUnwindSafe(|| *checked.get())) {
                Ok(value) => assert!(!fails && value == 42),
                Err(_) => assert!(fails),
            })
        },
        except: &[],
    },
    Place {
        name: "a Pool's New",
        scene: |user| {
            let acts = user.clone();
            let pool = Arc::new(Pool::new(move || {
                acts.acts();
                1
            }));
            let (again, checked) = (pool.clone(), pool.clone());
            user.reenters(move || {
                again.put(2);
                assert_eq!(again.get(), 2);
                again.age();
            });
            let user = user.clone();
            let act = move || {
                user.arm();
                pool.get();
            };
            scene(act, move || {
                checked.put(5);
                let n = checked.get();
                assert!(n == 5 || n == 1, "{n}");
                assert_eq!(checked.get(), 1);
            })
        },
        except: &[],
    },
    Place {
        name: "the destructors of a Pool's items that age",
        scene: |user| {
            let pool = Arc::new(Pool::<Drops, _>::empty());
            let (again, checked) = (pool.clone(), pool.clone());
            user.reenters(move || {
                again.age();
                again.put(User::new(Yields).drops());
                assert!(again.get().is_some());
            });
            let user = user.clone();
            let act = move || {
                pool.put(user.drops()); // the first to be dropped
                let others = [(); 3].map(|()| User::new(user.0.deed));
                for other in &others {
                    other.reenters(|| ());
                    pool.put(other.drops());
                }
                pool.age();
                others.iter().for_each(User::arm);
                user.arm();
                let aged = catch_unwind(AssertUnwindSafe(|| pool.age()));
                assert!(others.iter().all(|other| other.0.acted.load(SeqCst)), "each has been dropped");
                aged.unwrap_or_else(|payload| resume_unwind(payload));
            };
            scene(act, move || {
                assert!(checked.get().is_none());
                checked.put(User::new(Yields).drops());
                assert!(checked.get().is_some());
            })
        },
        except: &[],
    },
    Place {
        name: "a Map's Hash",
        scene: |user| map_of_keys(user, At::Hash, |map, key| map.store(key, 1)),
        except: &[],
    },
    Place {
        name: "a Map's Eq, as it stores",
        scene: |user| map_of_keys(user, At::Eq, |map, key| map.store(key, 1)),
        except: &[],
    },
    Place {
        name: "a Map's Eq, as it loads",
        scene: |user| map_of_keys(user, At::Eq, |map, key| _ = map.load(&key)),
        except: &[],
    },
    Place {
        name: "a Map's Eq, as it deletes",
        scene: |user| {
            map_of_keys(user, At::Eq, |map, key| {
                map.store(plain(1), 1);
                map.delete(&key);
            })
        },
        except: &[],
    },
    Place {
        name: "the function of a Map's range",
        scene: |user| {
            map_of_keys(user, At::Eq, |map, key| {
                map.range(|_, _| {
                    key.user.acts();
                    true
                });
            })
        },
        except: &[],
    },
    Place {
        name: "the function of a Map's load_with",
        scene: |user| map_of_keys(user, At::Eq, |map, key| _ = map.load_with(&plain(1), |_| key.user.acts())),
        except: &[],
    },
    Place {
        name: "a Map's Debug",
        scene: |user| {
            map_of_keys(user, At::Debug, |map, key| {
                map.delete(&plain(1));
                key.user.0.armed.store(false, SeqCst);
                map.store(key.clone(), 1);
                key.user.arm();
                assert!(format!("{map:?}").contains("7: 7"));
            })
        },
        except: &[],
    },
    Place {
        name: "the iterator that a Map is made of",
        scene: |user| {
            map_of_keys(user, At::Debug, |_, key| {
                let pairs = (0..10).map(|n| {
                    key.user.acts();
                    (n, n)
                });
                let map: Map<u32, u32> = pairs.collect();
                assert_eq!(map.load(&9), Some(9));
            })
        },
        except: &[],
    },
    Place {
        name: "the clone of a Map's value",
        scene: |user| {
            let map = Arc::new(Map::new());
            map.store(1, Clones(hostile(user, At::Clone, 1)));
            let (again, checked) = (map.clone(), map.clone());
            user.reenters(move || {
                again.delete(&1);
                again.store(1, Clones(plain(1)));
            });
            let user = user.clone();
            let act = move || {
                user.arm();
                assert_eq!(map.load(&1).unwrap().0.n, 1);
            };
            scene(act, move || {
                assert_eq!(checked.load(&1).unwrap().0.n, 1);
                assert_eq!(checked.swap(1, Clones(plain(1))).unwrap().0.n, 1);
            })
        },
        except: &[],
    },
    Place {
        name: "the comparison of a Map's values",
        scene: |user| {
            let map = Arc::new(Map::new());
            map.store(1, hostile(user, At::Eq, 1));
            let (again, checked) = (map.clone(), map.clone());
            user.reenters(move || again.store(2, plain(2)));
            let user = user.clone();
            let act = move || {
                user.arm();
                assert!(map.compare_and_swap(1, &plain(1), plain(1)));
            };
            scene(act, move || {
                assert!(checked.compare_and_swap(1, &plain(1), plain(1)));
                assert!(!checked.compare_and_delete(&1, &plain(2)));
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of a Map's value",
        scene: |user| {
            let map = Arc::new(Map::<u32, Option<Drops>>::new());
            let (again, checked) = (map.clone(), map.clone());
            user.reenters(move || {
                again.store(1, None);
                again.delete(&2);
            });
            let user = user.clone();
            let act = move || {
                map.store(1, Some(user.drops()));
                user.arm();
                map.delete(&1);
                // The value is dropped a little later.
                while !user.0.acted.load(SeqCst) {
                    map.store(3, None);
                    map.delete(&3);
                }
            };
            scene(act, move || {
                checked.store(1, None);
                assert!(checked.load_with(&1, |_| ()).is_some());
                checked.delete(&1);
                assert!(checked.load_with(&1, |_| ()).is_none());
            })
        },
        except: &[],
    },
    Place {
        name: "the Hash of a SingleFlight's key",
        scene: |user| flights_of(user, At::Hash, |group, key| _ = group.do_limited(key, || Ok(1), Instant::now())),
        except: &[],
    },
    Place {
        name: "the Eq of a SingleFlight's key",
        scene: |user| flights_of(user, At::Eq, |group, key| _ = group.do_limited(key, || Ok(1), Instant::now())),
        except: &[],
    },
    Place {
        name: "the Eq of a key that a SingleFlight forgets",
        scene: |user| flights_of(user, At::Eq, |group, key| group.forget(&key)),
        except: &[],
    },
    Place {
        name: "the function of a SingleFlight",
        scene: |user| {
            flights_of(user, At::Into, |group, key| {
                let user = key.user.clone();
                let flight = group.do_(plain(2), || {
                    user.acts();
                    Ok(2)
                });
                assert_eq!(flight.result, Ok(2));
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of a SingleFlight's key",
        scene: |user| {
            #[derive(PartialEq, Eq, Hash)]
            struct Key(u32, Dropped);
            struct Dropped(#[allow(dead_code)] Option<Drops>);
            impl PartialEq for Dropped {
                fn eq(&self, _: &Self) -> bool {
                    true
                }
            }
            impl Eq for Dropped {}
            impl Hash for Dropped {
                fn hash<H: Hasher>(&self, _: &mut H) {}
            }
            let key = |n| Key(n, Dropped(None));
            let group = Arc::new(SingleFlight::<Key, u32, ()>::new());
            let (again, checked) = (group.clone(), group.clone());
            user.reenters(move || assert_eq!(again.do_(key(1), || Ok(1)).result, Ok(1)));
            let user = user.clone();
            let act = move || {
                user.arm();
                group.do_(Key(1, Dropped(Some(user.drops()))), || Ok(1));
            };
            scene(act, move || flights_work(&checked, |n| Key(n, Dropped(None))))
        },
        except: &[],
    },
    Place {
        name: "the clone of a SingleFlight's result",
        scene: |user| {
            let group = Arc::new(SingleFlight::<u32, Clones, ()>::new());
            let (again, checked) = (group.clone(), group.clone());
            user.reenters(move || assert!(again.do_(1, || Ok(Clones(plain(2)))).result.is_ok()));
            let user = user.clone();
            let act = move || {
                let (go_on, sharer) = (Arc::new(AtomicU32::new(0)), group.clone());
                let releases = go_on.clone();
                // Another goroutine shares the call, and the first caller clones the result for that goroutine.
                let starts = move || {
                    here().go(move || {
                        until(|| format!("{sharer:?}").contains("waiters: 1"));
                        semrelease(&releases, Wake::Normal);
                    });
                };
                let shares = group.clone();
                here().go(move || _ = shares.do_(1, || unreachable!("it is under way")));
                let result = Clones(hostile(&user, At::Clone, 1));
                let acts = user.clone();
                let flight = group.do_(1, move || {
                    starts();
                    semacquire(&go_on);
                    acts.arm();
                    Ok(result)
                });
                assert!(flight.shared);
                until(|| user.0.acted.load(SeqCst));
            };
            scene(act, move || {
                eventually(|| format!("{checked:?}") == "SingleFlight { calls: 0, waiters: 0 }");
                assert!(checked.do_(1, || Ok(Clones(plain(3)))).result.is_ok_and(|value| value.0.n == 3));
            })
        },
        except: &[],
    },
    Place {
        name: "the function of an ErrGroup",
        scene: |user| {
            group_of(user, |group, user| {
                group.go(move || {
                    user.acts();
                    Ok::<_, fmt::Error>(())
                });
            })
        },
        except: &[],
    },
    Place {
        name: "the Into of an ErrGroup's error",
        scene: |user| group_of(user, |group, user| group.go(move || Err(hostile(&user, At::Into, 1)))),
        except: &[],
    },
    Place {
        name: "the destructor of an ErrGroup's second error",
        scene: |user| {
            group_of(user, |group, user| {
                user.0.armed.store(false, SeqCst);
                group.go(|| Err("the first"));
                group.go(move || {
                    let error = Fails(user.drops());
                    user.arm();
                    Err(error)
                });
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of what an ErrGroup's function has captured",
        scene: |user| {
            group_of(user, |group, user| {
                let captured = user.drops();
                group.go(move || {
                    drop(captured);
                    Ok::<_, fmt::Error>(())
                });
            })
        },
        except: &[],
    },
    Place {
        name: "a waker of an ErrGroup's context",
        scene: |user| {
            let (group, ctx) = ErrGroup::with_context(&context::background());
            let (again, checked) = (group.clone(), group.clone());
            user.reenters(move || again.go(|| Ok::<_, fmt::Error>(())));
            let user = user.clone();
            let act = move || {
                let mut done = pin!(ctx.done());
                poll_early(done.as_mut(), &user);
                user.arm();
                group.go(|| Err("an error"));
                let ended = catch_unwind(AssertUnwindSafe(|| group.wait()));
                assert_eq!(ended.is_err(), user.0.deed == Panics, "a panic goes on in wait");
                assert!(done.as_mut().poll(&mut noop()).is_ready());
            };
            scene(act, move || _ = catch_unwind(AssertUnwindSafe(|| checked.wait())))
        },
        except: &[],
    },
    Place {
        name: "the function of WaitGroup::go",
        scene: |user| {
            let group = Arc::new(WaitGroup::new());
            let (again, checked) = (group.clone(), group.clone());
            user.reenters(move || again.go(|| ()));
            let user = user.clone();
            let act = move || {
                user.arm();
                let acts = user.clone();
                group.go(move || acts.acts());
                group.wait();
            };
            scene(act, move || {
                checked.wait();
                checked.go(|| ());
                checked.wait();
            })
        },
        except: &[(Panics, FATAL_AS_GO)],
    },
    Place {
        name: "the clone of an atomic Value",
        scene: |user| {
            let value = Arc::new(Value::from(Clones(hostile(user, At::Clone, 1))));
            let (again, checked) = (value.clone(), value.clone());
            user.reenters(move || again.store(Clones(plain(1))));
            let user = user.clone();
            let act = move || {
                user.arm();
                assert_eq!(value.load().unwrap().0.n, 1);
            };
            scene(act, move || assert_eq!(checked.swap(Clones(plain(1))).unwrap().0.n, 1))
        },
        except: &[],
    },
    Place {
        name: "the comparison of an atomic Value",
        scene: |user| {
            let value = Arc::new(Value::from(hostile(user, At::Eq, 1)));
            let (again, checked) = (value.clone(), value.clone());
            user.reenters(move || again.store(plain(1)));
            let user = user.clone();
            let act = move || {
                user.arm();
                assert!(value.compare_and_swap(Some(&plain(1)), plain(1)));
            };
            scene(act, move || assert!(checked.compare_and_swap(Some(&plain(1)), plain(1))))
        },
        except: &[],
    },
    Place {
        name: "the destructor of an atomic Value's value",
        scene: |user| {
            let value = Arc::new(Value::from(Some(user.drops())));
            let (again, checked) = (value.clone(), value.clone());
            user.reenters(move || {
                again.store(None);
                assert!(again.load_with(Option::is_none).unwrap());
            });
            let user = user.clone();
            let act = move || {
                user.arm();
                value.store(None);
            };
            scene(act, move || {
                checked.store(None);
                assert!(checked.load_with(Option::is_none).unwrap());
            })
        },
        except: &[],
    },
    Place { name: "a Locker's unlock in Cond::wait_locker", scene: |user| cond_of(user, true), except: &[] },
    Place { name: "a Locker's lock in Cond::wait_locker", scene: |user| cond_of(user, false), except: &[] },
    Place {
        name: "the closure of MutexGuard::map",
        scene: |user| {
            let mutex = Arc::new(Mutex::new((1, 2)));
            let (again, checked) = (mutex.clone(), mutex.clone());
            user.reenters(move || assert!(again.try_lock().is_none(), "{OWN_LOCK}"));
            let user = user.clone();
            let act = move || {
                user.arm();
                let mut second = MutexGuard::map(mutex.lock(), |pair| {
                    user.acts();
                    &mut pair.1
                });
                *second = 3;
            };
            scene(act, move || {
                eventually(|| checked.try_lock().is_some());
                assert_eq!(checked.lock().0, 1);
            })
        },
        except: &[],
    },
    Place {
        name: "the closure of MutexGuard::unlocked",
        scene: |user| {
            let mutex = Arc::new(Mutex::new(1));
            let (again, checked) = (mutex.clone(), mutex.clone());
            user.reenters(move || *again.lock() = 1);
            let user = user.clone();
            let act = move || {
                user.arm();
                MutexGuard::unlocked(&mut mutex.lock(), || user.acts());
            };
            scene(act, move || {
                eventually(|| checked.try_lock().is_some());
                assert_eq!(*checked.lock(), 1);
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of what a mutex guards",
        scene: |user| {
            let mutex = Arc::new(Mutex::new(Some(user.drops())));
            let (again, checked) = (mutex.clone(), mutex.clone());
            user.reenters(move || assert!(again.try_lock().is_none(), "{OWN_LOCK}"));
            let user = user.clone();
            let act = move || {
                user.arm();
                *mutex.lock() = None;
            };
            scene(act, move || {
                eventually(|| checked.try_lock().is_some());
                assert!(checked.lock().is_none());
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of what a readers-writer mutex guards",
        scene: |user| {
            let lock = Arc::new(RwMutex::new(Some(user.drops())));
            let (again, checked) = (lock.clone(), lock.clone());
            user.reenters(move || assert!(again.try_read().is_none(), "{OWN_LOCK}"));
            let user = user.clone();
            let act = move || {
                user.arm();
                *lock.write() = None;
            };
            scene(act, move || {
                eventually(|| checked.try_write().is_some());
                assert!(checked.read().is_none());
            })
        },
        except: &[],
    },
    Place {
        name: "the waker of a task that locks a mutex",
        scene: |user| {
            let mutex = Arc::new(Mutex::new(1));
            let (again, checked) = (mutex.clone(), mutex.clone());
            user.reenters(move || drop(again.lock()));
            let user = user.clone();
            let act = move || {
                let mut locks = Box::pin(mutex.lock_async());
                let guard = mutex.lock();
                poll_early(locks.as_mut(), &user);
                user.arm();
                let unlocked = catch_unwind(AssertUnwindSafe(|| drop(guard)));
                match locks.as_mut().poll(&mut noop()) {
                    Poll::Ready(mut guard) => *guard += 1,
                    Poll::Pending => panic!("nobody has it"),
                }
                assert_eq!(*mutex.lock(), 2);
                *mutex.lock() = 1;
                drop(locks);
                unlocked.unwrap_or_else(|payload| resume_unwind(payload));
            };
            scene(act, move || {
                eventually(|| checked.try_lock().is_some());
                drop(checked.lock());
                block_on(async { drop(checked.lock_async().await) });
            })
        },
        except: &[],
    },
    Place {
        name: "the waker of a task that waits for a context",
        scene: |user| {
            context_of(user, |ctx, user| {
                let mut done = Box::pin(ctx.done());
                poll_early(done.as_mut(), &user);
                Box::new(done)
            })
        },
        except: &[],
    },
    Place {
        name: "the function of a context's after_func",
        scene: |user| context_of(user, |ctx, user| Box::new(context::after_func(ctx, move || user.acts()))),
        except: &[(Panics, FATAL_AS_GO)],
    },
    Place {
        name: "the destructors of two functions of a context that nobody can cancel any more",
        scene: |user| {
            user.reenters(|| _ = context::with_cancel(&context::background()));
            let user = user.clone();
            let act = move || {
                let (ctx, cancel) = context::with_cancel(&context::background());
                let another = User::new(user.0.deed);
                another.reenters(|| ());
                for user in [&user, &another] {
                    let captured = user.drops();
                    drop(context::after_func(&ctx, move || drop(captured)));
                }
                user.arm();
                another.arm();
                let dropped = catch_unwind(AssertUnwindSafe(|| drop((ctx, cancel))));
                assert!(user.0.acted.load(SeqCst) && another.0.acted.load(SeqCst));
                dropped.unwrap_or_else(|payload| resume_unwind(payload));
            };
            scene(act, || {
                let (ctx, cancel) = context::with_cancel(&context::background());
                cancel.cancel();
                assert!(ctx.err().is_some());
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of a context's value",
        scene: |user| {
            static KEY: context::Key<Drops> = context::Key::new("key");
            user.reenters(|| _ = context::with_value(&context::background(), &KEY, User::new(Yields).drops()));
            let user = user.clone();
            let act = move || {
                let (ctx, cancel) = context::with_cancel(&context::background());
                let with = context::with_value(&ctx, &KEY, user.drops());
                let (child, _cancel) = context::with_cancel(&with);
                drop((with, cancel));
                user.arm();
                drop(child);
                drop(_cancel);
            };
            scene(act, || {
                let (ctx, cancel) = context::with_cancel(&context::background());
                cancel.cancel();
                assert!(ctx.err().is_some());
            })
        },
        except: &[],
    },
    Place {
        name: "the destructor of a context's cause",
        scene: |user| {
            user.reenters(|| _ = context::with_cancel_cause(&context::background()));
            let user = user.clone();
            let act = move || {
                let (ctx, cancel) = context::with_cancel_cause(&context::background());
                cancel.cancel(Fails(user.drops()));
                assert_eq!(ctx.cause().unwrap().to_string(), "fails");
                user.arm();
                // This cause comes too late, and is dropped.
                cancel.cancel("another");
                drop((ctx, cancel));
            };
            scene(act, || {
                let (ctx, cancel) = context::with_cancel_cause(&context::background());
                cancel.cancel("a cause");
                assert_eq!(ctx.cause().unwrap().to_string(), "a cause");
            })
        },
        except: &[],
    },
];

#[test]
fn in_sync() {
    every_pair(SYNC);
}
