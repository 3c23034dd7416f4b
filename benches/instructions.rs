//! How many instructions short paths take: what a clock is too coarse for.
//!
//! `cargo bench --bench instructions` counts them by valgrind, which must be there; `--features event` for locks that
//! report. What is printed is the difference between many rounds and fewer, by round, so that all else cancels out.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;
use std::{env, io};

use sudog::chan::{Chan, select};
use sudog::runtime::gosched;
use sudog::sync::mutex::policy::Go;
use sudog::sync::semaphore::RuntimeSema;
use sudog::sync::{ConstSemaphore, GoMutex, Mutex, Order, RwMutex, Semaphore, Wake};
use sudog::{go, run, run_local, spawn};

const FEW: u64 = 1000;
const MANY: u64 = 3000;

/// A path, and its rounds.
type Path = (&'static str, fn(u64));

const PATHS: [Path; 13] = [
    ("GoMutex, default policy: lock, unlock", |rounds| {
        let mutex = GoMutex::new();
        for _ in 0..rounds {
            black_box(&mutex).lock();
            black_box(&mutex).unlock();
        }
    }),
    ("GoMutex, policy::Go: lock, unlock", |rounds| {
        let mutex = GoMutex::<RuntimeSema, Go>::const_new();
        for _ in 0..rounds {
            black_box(&mutex).lock();
            black_box(&mutex).unlock();
        }
    }),
    ("Mutex<u64>: lock, count, drop the guard", |rounds| {
        let mutex = Mutex::new(0_u64);
        for _ in 0..rounds {
            *black_box(&mutex).lock() += 1;
        }
    }),
    ("RuntimeSema: acquire, release", |rounds| {
        let semaphore = RuntimeSema::new(1);
        for _ in 0..rounds {
            black_box(&semaphore).acquire(Order::Fifo);
            black_box(&semaphore).release(Wake::Normal);
        }
    }),
    ("GoMutex, locked: queue and give up at once", |rounds| {
        let mutex = GoMutex::new();
        mutex.lock();
        for _ in 0..rounds {
            black_box(black_box(&mutex).try_lock_until(Instant::now()));
        }
    }),
    ("RuntimeSema, empty: queue and give up at once", |rounds| {
        let semaphore = RuntimeSema::INIT;
        for _ in 0..rounds {
            black_box(black_box(&semaphore).acquire_until(Order::Fifo, Instant::now()));
        }
    }),
    ("RwMutex<u64>: read, unlock, write, unlock", |rounds| {
        let lock = RwMutex::new(0_u64);
        for _ in 0..rounds {
            black_box(*black_box(&lock).read());
            *black_box(&lock).write() += 1;
        }
    }),
    ("two goroutines: gosched each", |rounds| {
        run(move || {
            let other = spawn(move || (0..rounds).for_each(|_| gosched()));
            (0..rounds).for_each(|_| gosched());
            other.join().expect("it does not panic");
        });
    }),
    ("two goroutines: a handoff each by two semaphores", |rounds| {
        let pair = Arc::new([RuntimeSema::new(0), RuntimeSema::new(0)]);
        run(move || {
            let theirs = pair.clone();
            let other = spawn(move || {
                for _ in 0..rounds {
                    theirs[0].acquire(Order::Fifo);
                    theirs[1].release(Wake::Handoff);
                }
            });
            for _ in 0..rounds {
                pair[0].release(Wake::Handoff);
                pair[1].acquire(Order::Fifo);
            }
            other.join().expect("it does not panic");
        });
    }),
    ("spawn and join", |rounds| {
        run(move || {
            for _ in 0..rounds {
                spawn(|| ()).join().expect("it does not panic");
            }
        });
    }),
    ("Chan, buffered: send, receive", |rounds| {
        let ch = Chan::new(1);
        for round in 0..rounds {
            black_box(&ch).send(round);
            black_box(black_box(&ch).recv());
        }
    }),
    ("Chan, two goroutines: a rendezvous", |rounds| {
        run_local(move || {
            let ch = Chan::new(0);
            let sender = ch.clone();
            go(move || (0..rounds).for_each(|round| sender.send(round)));
            (0..rounds).for_each(|_| {
                black_box(ch.recv());
            });
        });
    }),
    ("select with one ready case of two, and the send", |rounds| {
        let (a, b) = (Chan::<u64>::new(1), Chan::<u64>::new(1));
        for round in 0..rounds {
            a.send(round);
            select! { recv(a) -> v => { black_box(v); }, recv(b) -> v => { black_box(v); } }
        }
    }),
];

/// All instructions of this program, when it goes one path for so many rounds and does nothing else.
fn count(path: usize, rounds: u64) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["rounds", &path.to_string(), &rounds.to_string()])
        .env("SUDOG_MAXPROCS", "1") // the others would search for work
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let number = text.split("Collected :").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("valgrind says: {text}")))
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [what, path, rounds] = &arguments[..]
        && what == "rounds"
    {
        PATHS[path.parse::<usize>().expect("a path")].1(rounds.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    for (n, (name, path)) in PATHS.into_iter().enumerate() {
        if arguments.iter().any(|argument| argument == "--test") {
            path(FEW); // once, and nothing is counted
            continue;
        }
        match (count(n, FEW), count(n, MANY)) {
            (Ok(few), Ok(many)) => println!("{:6} instructions  {name}", (many - few) / (MANY - FEW)),
            (Err(error), _) | (_, Err(error)) => {
                eprintln!("cannot count instructions: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
