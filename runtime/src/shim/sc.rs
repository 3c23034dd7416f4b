//! Loom's atomics, with sequentially consistent accesses.
//!
//! Loom treats a SeqCst access as an acquire-release access, but models SeqCst fences. So this file performs a SeqCst
//! access as the acquire-release access and a fence, by one of two conventions ([`Sc`]):
//!
//! | access, SeqCst | `AfterWrites` | `BeforeLoads` |
//! |---|---|---|
//! | load | Acquire | fence, then Acquire |
//! | store | Release, then fence | Release |
//! | read-modify-write | AcqRel, then fence | AcqRel |
//! | compare-exchange that fails | Acquire, or its given failure ordering | the same |
//!
//! A *site* is a place in the source that has a SeqCst access or fence. [`each_site`] weakens each site in turn
//! to acquire-release, and checks whether the model fails. `docs/orderings.md`, section 10, says what the conventions
//! prove, and lists the sites in a table.

use std::cell::{Cell, RefCell};
use std::panic::{self, Location};
use std::{env, process};

use loom::sync::atomic;
pub use loom::sync::atomic::Ordering;

/// A convention: the position of the fence that stands for the sequential consistency of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sc {
    /// The fence stands after each store and read-modify-write.
    AfterWrites,
    /// The fence stands before each load.
    BeforeLoads,
}

#[derive(Clone, Copy)]
struct Site {
    what: &'static str,
    place: &'static Location<'static>,
    weakened: bool,
}

impl Site {
    fn full(&self) -> String {
        format!("{}: {}", self.place, self.what)
    }
}

/// The file, the function and the operation: this name stays the same if other lines of the file change.
impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.place.file();
        let text = std::fs::read_to_string(format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"))).expect("the source");
        let above = text.lines().take(self.place.line() as usize);
        let function = above.filter_map(|line| line.split_once("fn ")?.1.split_once(['(', '<'])).last();
        let file = file.rsplit_once('/').map_or(file, |(_, name)| name);
        write!(f, "{file}, {}: {}", function.map_or("", |(name, _)| name), self.what)
    }
}

// Loom runs all threads of a model on one thread of the machine, the test's thread.
thread_local! {
    static SC: Cell<Sc> = const { Cell::new(Sc::AfterWrites) };
    /// The sites, in the order in which the models of this test have first reached them.
    static SITES: RefCell<Vec<Site>> = const { RefCell::new(Vec::new()) };
    /// The full name of the weakened site, or empty.
    static WEAKENED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Sets the convention that the models of this test follow from now on. The default is [`Sc::AfterWrites`].
pub fn set_sc(sc: Sc) {
    SC.set(sc);
}

/// Explores a model that relies on SeqCst accesses, under each convention.
pub fn under_both(explore: impl Fn()) {
    for sc in [Sc::AfterWrites, Sc::BeforeLoads] {
        set_sc(sc);
        explore();
    }
    set_sc(Sc::AfterWrites);
}

/// Explores a model under both conventions; then once more for each SeqCst access and fence that the model has reached,
/// with that site weakened. The model must fail if the site is in `needed`, and pass if it is in `spare`; each site is
/// in one of the two lists.
///
/// A weakened model is explored in a process of its own, which ends when the model fails: unwinding would run
/// destructors in a model that has ended. `test` is the name of the calling test, with its modules.
pub fn each_site(test: &str, needed: &[&str], spare: &[&str], explore: impl Fn()) {
    const CHILD: &str = "SUDOG_WEAKENED_SITE";
    if let Ok(site) = env::var(CHILD) {
        WEAKENED.with_borrow_mut(|weakened| *weakened = site);
        panic::set_hook(Box::new(|failure| {
            eprintln!("{failure}");
            process::exit(FAILS);
        }));
        under_both(explore);
        process::exit(PASSES);
    }
    under_both(explore);
    let (_, test) = test.split_once("::").expect("with its crate");
    let (mut killed, mut survivors) = (Vec::new(), Vec::new());
    for site in SITES.with_borrow(Clone::clone) {
        let child = process::Command::new(env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, site.full())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stderr);
        // Do not count an execution that ends at loom's own limits as an answer.
        let answers = !output.contains("exceeded maximum") && !output.contains("internal bug");
        match child.status.code() {
            Some(FAILS) if answers => killed.push(site.to_string()),
            Some(PASSES) => survivors.push(site.to_string()),
            _ => panic!("{}: {output}", site.full()),
        }
    }
    assert_eq!(sorted(&killed), sorted(needed), "the needed ones; spare were {survivors:?}");
    assert_eq!(sorted(&survivors), sorted(spare), "the spare ones");
}

fn sorted(sites: &[impl AsRef<str>]) -> Vec<&str> {
    let mut sites: Vec<_> = sites.iter().map(AsRef::as_ref).collect();
    sites.sort_unstable();
    sites
}

/// The exit codes of the process of a weakened model. A test's process ends with neither.
const FAILS: i32 = 3;
const PASSES: i32 = 4;

/// Returns whether an access of the caller with this ordering is sequentially consistent.
#[track_caller]
fn is_sc(what: &'static str, ordering: Ordering) -> bool {
    if ordering != Ordering::SeqCst {
        return false;
    }
    let place = Location::caller();
    SITES.with_borrow_mut(|sites| {
        if let Some(site) = sites.iter().find(|site| site.place == place && site.what == what) {
            return !site.weakened;
        }
        let mut site = Site { what, place, weakened: false };
        site.weakened = WEAKENED.with_borrow(|weakened| *weakened == site.full());
        sites.push(site);
        !site.weakened
    })
}

#[track_caller]
fn before_load(ordering: Ordering) {
    if is_sc("load", ordering) && SC.get() == Sc::BeforeLoads {
        atomic::fence(Ordering::SeqCst);
    }
}

/// Executes the fence after an access that has written, if the convention asks for that fence.
#[track_caller]
fn after_write(what: &'static str, ordering: Ordering) {
    if is_sc(what, ordering) && SC.get() == Sc::AfterWrites {
        atomic::fence(Ordering::SeqCst);
    }
}

/// The counterpart of `std`'s `fence`.
#[track_caller]
pub fn fence(ordering: Ordering) {
    let weakened = ordering == Ordering::SeqCst && !is_sc("fence", ordering);
    atomic::fence(if weakened { Ordering::AcqRel } else { ordering });
}

/// Returns the ordering of a load, with Acquire instead of SeqCst.
fn load_part(ordering: Ordering) -> Ordering {
    if ordering == Ordering::SeqCst { Ordering::Acquire } else { ordering }
}

fn store_part(ordering: Ordering) -> Ordering {
    if ordering == Ordering::SeqCst { Ordering::Release } else { ordering }
}

fn rmw_part(ordering: Ordering) -> Ordering {
    if ordering == Ordering::SeqCst { Ordering::AcqRel } else { ordering }
}

macro_rules! atomic {
    ($Atomic:ident $(<$T:ident>)?, $Value:ty) => {
        /// The counterpart of `std`'s type of this name.
        pub struct $Atomic $(<$T>)? (atomic::$Atomic $(<$T>)?);

        impl $(<$T>)? $Atomic $(<$T>)? {
            #[track_caller]
            pub fn new(value: $Value) -> Self {
                Self(atomic::$Atomic::new(value))
            }

            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $Value {
                before_load(ordering);
                self.0.load(load_part(ordering))
            }

            #[track_caller]
            pub fn store(&self, value: $Value, ordering: Ordering) {
                self.0.store(value, store_part(ordering));
                after_write("store", ordering);
            }

            #[track_caller]
            pub fn swap(&self, value: $Value, ordering: Ordering) -> $Value {
                let old = self.0.swap(value, rmw_part(ordering));
                after_write("swap", ordering);
                old
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $Value,
                new: $Value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$Value, $Value> {
                let done = self.0.compare_exchange(old, new, rmw_part(ordering), load_part(failure));
                if done.is_ok() {
                    after_write("compare_exchange", ordering);
                }
                done
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                old: $Value,
                new: $Value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$Value, $Value> {
                self.compare_exchange(old, new, ordering, failure)
            }
        }

        impl $(<$T>)? std::fmt::Debug for $Atomic $(<$T>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! number {
    ($Atomic:ident, $Value:ty) => {
        atomic!($Atomic, $Value);
        number!($Atomic, $Value: fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
    };
    ($Atomic:ident, $Value:ty: $($rmw:ident),*) => {
        impl $Atomic {
            #[track_caller]
            pub fn with_mut<R>(&mut self, f: impl FnOnce(&mut $Value) -> R) -> R {
                self.0.with_mut(f)
            }

            #[track_caller]
            pub fn fetch_update(
                &self,
                ordering: Ordering,
                failure: Ordering,
                mut f: impl FnMut($Value) -> Option<$Value>,
            ) -> Result<$Value, $Value> {
                let mut old = self.load(failure);
                while let Some(new) = f(old) {
                    match self.compare_exchange(old, new, ordering, failure) {
                        Ok(_) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }

            $(
            #[track_caller]
            pub fn $rmw(&self, value: $Value, ordering: Ordering) -> $Value {
                let old = self.0.$rmw(value, rmw_part(ordering));
                after_write(stringify!($rmw), ordering);
                old
            }
            )*
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
number!(AtomicU32, u32);
number!(AtomicU64, u64);
number!(AtomicUsize, usize);
