//! The kernels of GoBench's blocking bugs (Yuan et al., CGO 2021: "GoBench: A Benchmark Suite of Real-World Go Concurrency
//! Bugs"), rewritten from their descriptions, and the views of this library that show each bug.
//!
//! A kernel is a function that some goroutines never return from. Each line on which a goroutine gets stuck ends with a
//! marker, `//~ NAME: WAIT`: the name of the goroutine, and its wait as reports print it. A wait for a mutex also says
//! which goroutine holds that mutex. Each kernel runs in a child process, where
//!
//! 1. a dump must show the waits of the markers, each at the line of its marker, and no other;
//! 2. goroutines that wait for each other's locks must be reported while the rest of the program goes on, and no other
//!    goroutines;
//! 3. once `main` waits too, the report of the deadlock must show what the dump has shown.
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

use sudog::runtime::{dump, sema::semacquire};
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
/// The name of the goroutine that waits for itself. It starts when the kernel is stuck, so its cycle is reported last.
const LAST: &str = "the last cycle";

/// The view that shows a bug while the rest of the program goes on. (A dump and the report of the deadlock of all
/// goroutines show every bug.)
#[derive(Clone, Copy, PartialEq, Debug)]
enum View {
    /// The report of goroutines that wait for each other's locks.
    Cycle,
    /// A dump only: a channel, a wait group or a Cond takes part, or a lock that stays locked, or readers.
    Dump,
}

struct Kernel {
    name: &'static str,
    view: View,
    /// The source of the kernel's file, and that file's path, as stacks print it.
    source: &'static str,
    file: &'static str,
    run: fn(),
}

macro_rules! kernels {
    ($($module:ident { $($name:ident: $view:ident,)* })*) => {
        &[$($(Kernel {
            name: stringify!($name),
            view: View::$view,
            source: include_str!(concat!(stringify!($module), ".rs")),
            file: concat!("tests/gobench/", stringify!($module), ".rs"),
            run: $module::$name,
        },)*)*]
    };
}

const KERNELS: &[Kernel] = kernels! {
    locks {
        cockroach_584: Cycle,
        cockroach_3710: Dump,
        cockroach_6181: Dump,
        cockroach_7504: Cycle,
        cockroach_9935: Cycle,
        cockroach_10214: Cycle,
        cockroach_16167: Dump,
        etcd_5509: Dump,
        etcd_6708: Cycle,
        etcd_10492: Cycle,
        grpc_795: Cycle,
        grpc_3017: Dump,
        hugo_3251: Cycle,
        hugo_5379: Cycle,
        kubernetes_13135: Cycle,
        kubernetes_30872: Cycle,
        kubernetes_62464: Dump,
        moby_4951: Cycle,
        moby_7559: Cycle,
        moby_17176: Dump,
        moby_36114: Cycle,
        syncthing_4829: Cycle,
    }
    channels {
        cockroach_2448: Dump,
        cockroach_10790: Dump,
        cockroach_13197: Dump,
        cockroach_13755: Dump,
        cockroach_18101: Dump,
        cockroach_24808: Dump,
        cockroach_25456: Dump,
        cockroach_35073: Dump,
        cockroach_35931: Dump,
        etcd_6857: Dump,
        grpc_660: Dump,
        grpc_862: Dump,
        grpc_1275: Dump,
        grpc_1424: Dump,
        istio_17860: Dump,
        istio_18454: Dump,
        kubernetes_5316: Dump,
        kubernetes_25331: Dump,
        kubernetes_38669: Dump,
        kubernetes_70277: Dump,
        moby_4395: Dump,
        moby_21233: Dump,
        moby_33293: Dump,
        moby_33781: Dump,
        syncthing_5795: Dump,
    }
    mixed {
        cockroach_1055: Dump,
        cockroach_1462: Dump,
        etcd_6873: Dump,
        etcd_7443: Dump,
        etcd_7492: Dump,
        etcd_7902: Dump,
        grpc_1353: Dump,
        grpc_1460: Dump,
        istio_16224: Dump,
        kubernetes_1321: Dump,
        kubernetes_6632: Dump,
        kubernetes_10182: Dump,
        kubernetes_11298: Dump,
        kubernetes_26980: Dump,
        kubernetes_58107: Dump,
        moby_25384: Dump,
        moby_27782: Dump,
        moby_28462: Dump,
        moby_29733: Dump,
        moby_30408: Dump,
        serving_2137: Dump,
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
    run(|| {
        go("test", kernel.run);
        let begun = Instant::now();
        loop {
            let dump = dump().to_string();
            let found = report::stuck(&dump, "main");
            if found == expected {
                break;
            }
            if begun.elapsed() > PATIENCE {
                eprintln!("the dump:\n{dump}\nshows {found:#?}\nnot {expected:#?}");
                std::process::exit(1);
            }
            time::sleep(Duration::from_millis(20));
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
    command.env(CHILD, kernel.name).env_remove("SUDOG_MAXPROCS").env_remove("SUDOG_STALLS");
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
    Ok(())
}
