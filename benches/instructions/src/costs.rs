//! Times of switches and sizes of stacks, with and without thread-locals of goroutines: the table "Costs" of docs/move.md.

use std::env;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use sudog::chan::channel;
use sudog::runtime::gosched;
use sudog::{run, spawn};

const ROUNDS: usize = 9;
const ROWS: [&str; 5] = [
    "a turn of gosched, 2 goroutines, ns",
    "the same, 1,000 goroutines, ns",
    "there and back over two channels, ns",
    "make a stack and run to the first wait, us",
    "memory of a goroutine that waits, bytes",
];

/// Prints the median of nine rounds, and the least and the most, for goroutines that share the thread-locals of their worker, and
/// for goroutines with thread-locals of their own. A child process measures each kind in each round, in turn.
pub fn print() {
    let mut seen: [[Vec<f64>; ROWS.len()]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (seen, mode) in seen.iter_mut().zip(["0", "1"]) {
            let mut child = Command::new(env::current_exe().expect("this program"));
            let output = child.arg("figures").env("SUDOG_MOVE", mode).env("SUDOG_MAXPROCS", "1").output();
            let output = output.expect("a child process");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).expect("figures");
            let figures = text.split_whitespace().map(|figure| figure.parse().expect("a figure"));
            seen.iter_mut().zip(figures).for_each(|(seen, figure)| seen.push(figure));
        }
    }
    let range = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        format!("{:.1} ({:.1}..{:.1})", figures[ROUNDS / 2], figures[0], figures[ROUNDS - 1])
    };
    let [shared, own] = &mut seen;
    println!("\tshared\town");
    for ((row, shared), own) in ROWS.iter().zip(shared).zip(own) {
        println!("{row}\t{}\t{}", range(shared), range(own));
    }
}

/// Measures and prints the figures, in the time of the process.
pub fn figures() {
    const MESSAGES: usize = 500_000;
    const STACKS: usize = 10_000;
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    turns(1000, 10); // make the stacks
    print!("{} {} ", turns(2, 1_000_000), turns(1000, 2000));
    let there_and_back = run(|| {
        let begun = time();
        let ((there, comes), (back, returns)) = (channel(0), channel(0));
        let other = spawn(move || comes.iter().for_each(|message: usize| back.send(message).unwrap()));
        for message in 0..MESSAGES {
            there.send(message).unwrap();
            assert_eq!(returns.recv(), Ok(message));
        }
        drop(there);
        other.join().unwrap();
        time() - begun
    });
    print!("{} ", nanoseconds(there_and_back) / MESSAGES as f64);
    run(|| {
        let spare = 1000; // of `turns`
        let (before, begun) = (resident(), time());
        let (never, waits) = channel::<()>(0);
        for _ in 0..spare + STACKS {
            let waits = waits.clone();
            spawn(move || {
                STARTED.fetch_add(1, Relaxed);
                _ = waits.recv();
            });
        }
        while STARTED.load(Relaxed) < spare + STACKS {
            gosched();
        }
        let made = nanoseconds(time() - begun) / 1e3;
        print!("{} {}", made / STACKS as f64, (resident() - before) / STACKS);
        drop(never);
    });
}

/// Returns the nanoseconds of a turn, if this number of goroutines take turns.
fn turns(goroutines: usize, turns: usize) -> f64 {
    let took = run(move || {
        let begun = time();
        let each = || spawn(move || (0..turns).for_each(|_| gosched()));
        let goroutines: Vec<_> = (0..goroutines).map(|_| each()).collect();
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        time() - begun
    });
    nanoseconds(took) / (goroutines * turns) as f64
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Returns the time that the process has used so far.
fn time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock").into()
}

/// Returns the resident bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").expect("/proc");
    text.split(' ').nth(1).expect("the resident pages").parse::<usize>().expect("a number") * 4096
}
