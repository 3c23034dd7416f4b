//! The kernels of GoBench's blocking bugs (Yuan et al., CGO 2021: "GoBench: A Benchmark Suite of Real-World Go Concurrency
//! Bugs"), rewritten from their descriptions, and the views of this library that show each bug.
//!
//! A kernel is a function that some goroutines never return from. Each line on which a goroutine gets stuck ends with a
//! marker, `//~ NAME: WAIT`: the name of the goroutine, and its wait as reports print it. A wait for a mutex also says
//! which goroutine holds that mutex. Each kernel runs in a child process, where
//!
//! 1. a dump must show the waits of the markers, each at the line of its marker, and no other; and must call those
//!    goroutines stuck that wait for each other's locks, for a goroutine that has ended, or for such a goroutine;
//! 2. goroutines that wait for each other's locks must be reported while the rest of the program goes on, and no other
//!    goroutines;
//! 3. once `main` waits too, the report of the deadlock must show what the dump has shown;
//! 4. the check of the order of locks must have reported the line at which a lock is wanted in another order than
//!    before, or is wanted again, and no other line.
//!
//! These tests run without the test harness, because the report of the deadlock must assume that any thread of the
//! harness could wake any goroutine. They need a build with debug assertions and debug information, where stacks have
//! lines and locks know their holders.
#![cfg(all(target_os = "linux", not(sudog_loom)))]

mod channels;
mod kernel;
mod locks;
mod mixed;
mod report;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Mutex as StdMutex;
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant};

use sudog::low_level::sema::semacquire;
use sudog::runtime::{GoroutineInfo, dump};
use sudog::sync::GoMutex;
use sudog::{blocking, run, time};

use kernel::{go, new};
use report::Stuck;

const CHILD: &str = "SUDOG_TEST_CHILD";
/// The time after which a child that does not show what it must is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first words of a report of goroutines that wait for each other.
const CYCLE: &str = "sudog: deadlock: each of these goroutines waits for the next, the last for the first\n\n";
/// The first words of the report of a deadlock of all goroutines.
const ASLEEP: &str = "fatal error: all goroutines are asleep - deadlock!\n\n";
/// The first words of the reports of the check of the order of locks.
const AGAIN: &str = "sudog: a lock is ";
const ORDERS: &str = "sudog: locks are taken in two orders, ";
/// The name of the goroutine that waits for itself. It begins to wait after the kernel is stuck, so its cycle is reported
/// last.
const LAST: &str = "the last cycle";

/// The view that shows a bug while the rest of the program goes on. (A dump and the report of the deadlock of all
/// goroutines show every bug.)
#[derive(Clone, Copy, PartialEq, Debug)]
enum View {
    /// The report of goroutines that wait for each other's locks.
    Cycle,
    /// A dump only: a channel, a wait group or a Cond takes part, or a lock whose holder has ended.
    Dump,
}

/// What the check of the order of locks reports, before the goroutines are stuck.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Early {
    /// A lock that its owner, or a reader, wants again.
    Again,
    /// Locks that are taken in two orders.
    Orders,
    Nothing,
}

struct Kernel {
    name: &'static str,
    view: View,
    early: Early,
    /// The source of the kernel's file, and that file's path, as stacks print it.
    source: &'static str,
    file: &'static str,
    run: fn(),
}

macro_rules! kernels {
    ($($module:ident { $($name:ident: $view:ident $early:ident,)* })*) => {
        &[$($(Kernel {
            name: stringify!($name),
            view: View::$view,
            early: Early::$early,
            source: include_str!(concat!(stringify!($module), ".rs")),
            file: concat!("tests/gobench/", stringify!($module), ".rs"),
            run: $module::$name,
        },)*)*]
    };
}

const KERNELS: &[Kernel] = kernels! {
    locks {
        cockroach_584: Cycle Again,
        cockroach_3710: Cycle Again,
        cockroach_6181: Cycle Again,
        cockroach_7504: Cycle Orders,
        cockroach_9935: Cycle Again,
        cockroach_10214: Cycle Orders,
        cockroach_16167: Cycle Again,
        etcd_5509: Cycle Again,
        etcd_6708: Cycle Again,
        etcd_10492: Cycle Again,
        grpc_795: Cycle Again,
        grpc_3017: Dump Nothing,
        hugo_3251: Cycle Orders,
        hugo_5379: Cycle Again,
        kubernetes_13135: Cycle Orders,
        kubernetes_30872: Cycle Orders,
        kubernetes_62464: Cycle Again,
        moby_4951: Cycle Orders,
        moby_7559: Cycle Again,
        moby_17176: Dump Nothing,
        moby_36114: Cycle Again,
        syncthing_4829: Cycle Again,
    }
    channels {
        cockroach_2448: Dump Nothing,
        cockroach_10790: Dump Nothing,
        cockroach_13197: Dump Nothing,
        cockroach_13755: Dump Nothing,
        cockroach_18101: Dump Nothing,
        cockroach_24808: Dump Nothing,
        cockroach_25456: Dump Nothing,
        cockroach_35073: Dump Nothing,
        cockroach_35931: Dump Nothing,
        etcd_6857: Dump Nothing,
        grpc_660: Dump Nothing,
        grpc_862: Dump Nothing,
        grpc_1275: Dump Nothing,
        grpc_1424: Dump Nothing,
        istio_17860: Dump Nothing,
        istio_18454: Dump Nothing,
        kubernetes_5316: Dump Nothing,
        kubernetes_25331: Dump Nothing,
        kubernetes_38669: Dump Nothing,
        kubernetes_70277: Dump Nothing,
        moby_4395: Dump Nothing,
        moby_21233: Dump Nothing,
        moby_33293: Dump Nothing,
        moby_33781: Dump Nothing,
        syncthing_5795: Dump Nothing,
    }
    mixed {
        cockroach_1055: Dump Nothing,
        cockroach_1462: Dump Nothing,
        etcd_6873: Dump Nothing,
        etcd_7443: Dump Nothing,
        etcd_7492: Dump Nothing,
        etcd_7902: Dump Nothing,
        grpc_1353: Dump Nothing,
        grpc_1460: Dump Nothing,
        istio_16224: Dump Nothing,
        kubernetes_1321: Dump Nothing,
        kubernetes_6632: Dump Nothing,
        kubernetes_10182: Dump Nothing,
        kubernetes_11298: Dump Nothing,
        kubernetes_26980: Dump Nothing,
        kubernetes_58107: Dump Nothing,
        moby_25384: Dump Nothing,
        moby_27782: Dump Nothing,
        moby_28462: Dump Nothing,
        moby_29733: Dump Nothing,
        moby_30408: Dump Nothing,
        serving_2137: Dump Nothing,
    }
};

fn main() {
    if !cfg!(debug_assertions) {
        return;
    }
    if let Ok(name) = std::env::var(CHILD) {
        return child(KERNELS.iter().find(|kernel| kernel.name == name).unwrap());
    }
    // The first argument selects tests, as in the harness: a word that a test's name must contain.
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let kernels = StdMutex::new(KERNELS.iter().filter(|kernel| kernel.name.contains(&filter)));
    let next = || kernels.lock().unwrap().next();
    let failures = StdMutex::new(0);
    // Most children wait most of the time.
    thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                while let Some(kernel) = next() {
                    let result = check(kernel);
                    println!("test {} ... {}", kernel.name, if result.is_ok() { "ok" } else { "FAILED" });
                    if let Err(why) = result {
                        println!("{why}");
                        *failures.lock().unwrap() += 1;
                    }
                }
            });
        }
    });
    assert_eq!(*failures.lock().unwrap(), 0);
}

/// Runs a kernel, and prints what `check` judges.
fn child(kernel: &'static Kernel) {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    let expected = report::markers(kernel.source, kernel.file, kernel.name);
    let never_woken = report::never_woken(&expected);
    // SAFETY: `alarm` has no precondition. The alarm's SIGALRM ends a child that hangs.
    unsafe { libc::alarm(2 * PATIENCE.as_secs() as u32) };
    run(|| {
        go("test", kernel.run);
        let begun = Instant::now();
        loop {
            // Longer than a step of the clock of waits, so that the last cycle is younger than the others.
            time::sleep(Duration::from_millis(50));
            let dump = dump();
            let found = report::stuck(&dump.to_string(), "main");
            let is_stuck = |info: &&GoroutineInfo| info.is_stuck;
            let names: BTreeSet<String> =
                dump.goroutines.iter().filter(is_stuck).map(|info| info.name.as_deref().unwrap().to_owned()).collect();
            if (&found, &names) == (&expected, &never_woken) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                eprintln!("the dump:\n{dump}\nshows {found:#?}\nnot {expected:#?}, or not {never_woken:?} as stuck");
                std::process::exit(1);
            }
        }
        go(LAST, || {
            let mutex = new::<GoMutex>();
            mutex.lock();
            mutex.lock();
        });
        // The parent closes the pipe when the cycle has been reported.
        blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).unwrap();
        semacquire(&NEVER);
    });
}

/// Runs a kernel in a child process. Returns what is wrong with the reports.
fn check(kernel: &Kernel) -> Result<(), String> {
    let expected = report::markers(kernel.source, kernel.file, kernel.name);
    assert!(!expected.is_empty(), "{} has no markers", kernel.name);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, kernel.name).env("SUDOG_CHECK_ORDER", "1");
    command.env_remove("SUDOG_MAXPROCS").env_remove("SUDOG_STALLS");
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take();
    let mut text = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    while lines.read_line(&mut text).unwrap() > 0 {
        if text.contains(&format!("{LAST:?} [sync.Mutex.Lock")) {
            drop(stdin.take());
        }
    }
    let status = child.wait().unwrap();
    if status.code() != Some(2) {
        return Err(format!("{status}: {text}"));
    }
    let (before, at_the_end) = text.split_once(ASLEEP).ok_or_else(|| format!("no deadlock is reported: {text}"))?;
    let mut cycles: Vec<_> = before.split(CYCLE).skip(1).map(|cycle| report::stuck(cycle, "main")).collect();
    let last = cycles.pop().ok_or_else(|| format!("no cycle is reported: {text}"))?;
    let mut all = expected.clone();
    all.extend(last);
    let found = report::stuck(at_the_end, "main");
    if found != all {
        return Err(format!("the report of the deadlock:\n{at_the_end}\nshows {found:#?}\nnot {all:#?}"));
    }
    let expected_cycles: Vec<BTreeSet<Stuck>> = match kernel.view {
        View::Cycle => vec![report::cycle(&expected)],
        View::Dump => Vec::new(),
    };
    if cycles != expected_cycles {
        return Err(format!("{before}\nshows the cycles {cycles:#?}\nnot {expected_cycles:#?}"));
    }
    let (again, orders) = (report::wants(before, AGAIN, LAST), report::wants(before, ORDERS, LAST));
    let counts = match kernel.early {
        Early::Again => (1, 0),
        Early::Orders => (0, 1),
        Early::Nothing => (0, 0),
    };
    let are_marked = again.iter().chain(&orders).all(|want| expected.iter().any(|stuck| stuck.is_at(want)));
    if (again.len(), orders.len()) != counts || !are_marked {
        return Err(format!("{before}\nshows {again:?} and {orders:?}, where {:?} is expected", kernel.early));
    }
    Ok(())
}
