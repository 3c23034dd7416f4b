//! The cost of fibres that hang, and of reclaiming these fibres: the figures of `docs/journal/csp.md`.
//!
//! `cargo run --release --example csp_figures 1000000`

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() {
    let count = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("how many fibres"));
    figures::exchange(count);
    figures::lists(count);
    for n in [count / 10, count] {
        for in_set in [false, true] {
            figures::readers(n, in_set);
            figures::pipeline(n, in_set);
        }
        figures::cycle(n);
    }
}

#[cfg(unix)]
mod figures {
    use std::collections::{LinkedList, VecDeque};
    use std::fs;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;
    use std::time::Instant;

    use sudog::chan::Chan;
    use sudog::csp::{self, ActiveSet, make_channel, make_ends, spawn_fibre_on};
    use sudog::runtime::{gosched, num_goroutine};
    use sudog::{Builder, Placement, spawn};

    fn per(since: Instant, n: usize) -> f64 {
        since.elapsed().as_nanos() as f64 / n.max(1) as f64
    }

    fn place(in_set: bool) -> &'static str {
        if in_set { "in a set" } else { "outside of sets" }
    }

    /// Runs `main` as a goroutine, in a set of its own or outside of sets.
    fn run(in_set: bool, main: impl FnOnce() + Send + 'static) {
        if in_set { csp::run(main) } else { spawn(main).join().expect("no panic") }
    }

    /// Starts a fibre on the caller's worker, in the caller's set if there is one.
    fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) {
        drop(spawn_fibre_on(Placement::Here, f));
    }

    /// Returns the resident memory of the process in bytes, or 0 if the system does not report it.
    fn resident() -> usize {
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        4096 * statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0)
    }

    /// Measures an exchange of `n` values, one after the other.
    pub(crate) fn exchange(n: usize) {
        for in_set in [false, true] {
            run(in_set, move || {
                let [mut to, mut from] = make_channel::<usize, 2>();
                let since = Instant::now();
                start(move || (0..n).for_each(|i| to.write(i).unwrap()));
                for i in 0..n {
                    assert_eq!(from.read(), Ok(i));
                }
                println!("exchange, one worker, {}: {:.1} ns", place(in_set), per(since, n));
            });
        }
        run(false, move || {
            let chan = Chan::new(0);
            let sends = chan.clone();
            let since = Instant::now();
            Builder::new().on(Placement::Here).go(move || (0..n).for_each(|i| sends.send(i)));
            for i in 0..n {
                assert_eq!(chan.recv(), Some(i));
            }
            println!("the same over Chan: {:.1} ns", per(since, n));
        });
        let [mut to, mut from] = make_channel::<usize, 2>();
        let n = n.min(100_000);
        let since = Instant::now();
        let writer = thread::spawn(move || (0..n).for_each(|i| to.write(i).unwrap()));
        for i in 0..n {
            assert_eq!(from.read(), Ok(i));
        }
        println!("exchange, two threads: {:.0} ns", per(since, n));
        writer.join().unwrap();
    }

    /// Measures the source's two lists of runnable fibres: the queue of phase 1 and the stack of phase 2. Each list has
    /// a hundred entries; each step takes an entry out and puts it back in.
    pub(crate) fn lists(n: usize) {
        struct Node {
            next: Option<Box<Node>>,
        }
        let n = n * 100;
        let mut queue: VecDeque<u64> = (0..100).collect();
        let since = Instant::now();
        for _ in 0..n {
            let entry = black_box(&mut queue).pop_front().unwrap();
            queue.push_back(entry);
        }
        println!("a queue in an array: {:.2} ns", per(since, n));
        let mut queue: LinkedList<u64> = (0..100).collect();
        let since = Instant::now();
        for _ in 0..n {
            let entry = black_box(&mut queue).pop_front().unwrap();
            queue.push_back(entry);
        }
        println!("a queue that allocates: {:.2} ns", per(since, n));
        let mut top = None;
        for _ in 0..100 {
            top = Some(Box::new(Node { next: top }));
        }
        let since = Instant::now();
        for _ in 0..n {
            let mut entry = black_box(&mut top).take().unwrap();
            top = entry.next.take();
            entry.next = top;
            top = Some(entry);
        }
        println!("a stack through the fibres: {:.2} ns", per(since, n));
    }

    /// Measures `n` readers that hang on one channel whose last writer is then dropped.
    pub(crate) fn readers(n: usize, in_set: bool) {
        run(in_set, move || {
            let (before, others) = (resident(), num_goroutine());
            let mut ends = make_ends::<u32>(n + 1);
            let writer = ends.pop().unwrap();
            for mut end in ends {
                start(move || end.read());
            }
            while writer.readers() < n {
                gosched();
            }
            let bytes = resident().saturating_sub(before) / n.max(1);
            println!("{n} readers hang, {}: {bytes} bytes each more", place(in_set));
            let since = Instant::now();
            drop(writer);
            println!("  the last writer goes: {:.0} ns each, for the drop", per(since, n));
            while num_goroutine() > others {
                gosched();
            }
            println!("  until all have ended: {:.0} ns each", per(since, n));
        });
    }

    /// Measures a pipeline in which each fibre hangs on the fibre before, and whose first end is then dropped.
    pub(crate) fn pipeline(n: usize, in_set: bool) {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        BEGUN.store(0, Relaxed);
        run(in_set, move || {
            let others = num_goroutine();
            let [first, mut from] = make_channel::<u32, 2>();
            for _ in 0..n {
                let [mut to, next] = make_channel::<u32, 2>();
                start(move || {
                    BEGUN.fetch_add(1, Relaxed);
                    while let Ok(value) = from.read() {
                        to.write(value).unwrap();
                    }
                });
                from = next;
            }
            while BEGUN.load(Relaxed) < n {
                gosched();
            }
            gosched(); // let a fibre whose time slice was over hang now
            println!("a pipeline of {n} hangs, {}", place(in_set));
            let since = Instant::now();
            drop(first);
            while num_goroutine() > others {
                gosched();
            }
            println!("  until all have ended, by a cascade: {:.0} ns each", per(since, n));
        });
    }

    /// Measures a cycle: each fibre hangs on the fibre before, the first on the last. Then their set is dropped.
    pub(crate) fn cycle(n: usize) {
        let mut set = ActiveSet::new();
        set.run(move || {
            let [first, mut from] = make_channel::<u32, 2>();
            let mut first = Some(first);
            for i in 0..n {
                let [to, next] = make_channel::<u32, 2>();
                let to = if i == n - 1 { first.take() } else { Some(to) };
                start(move || (from.read(), to));
                from = next;
            }
        });
        println!("a cycle of {n} hangs");
        let since = Instant::now();
        drop(set);
        println!("  until all have ended, by the drop of the set: {:.0} ns each", per(since, n));
    }
}
