//! What fibres that hang cost, and what it costs to reclaim them: the figures of `docs/csp.md`.
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
        figures::readers(n, true);
        figures::readers(n, false);
        figures::pipeline(n, true);
        figures::pipeline(n, false);
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
    use sudog::csp::{make_channel, make_ends};
    use sudog::runtime::{gosched, num_goroutine};
    use sudog::{go, run_local};

    fn per(since: Instant, n: usize) -> f64 {
        since.elapsed().as_nanos() as f64 / n.max(1) as f64
    }

    fn fate(unwound: bool) -> &'static str {
        if unwound { "to be unwound" } else { "to be told" }
    }

    /// What the process has in memory, in bytes; 0 where the system does not say.
    fn resident() -> usize {
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        4096 * statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0)
    }

    /// `n` values, one after the other.
    pub(crate) fn exchange(n: usize) {
        run_local(|| {
            let [mut to, mut from] = make_channel::<usize, 2>();
            let since = Instant::now();
            go(move || (0..n).for_each(|i| to.write(i).unwrap()));
            for i in 0..n {
                assert_eq!(from.read(), Ok(i));
            }
            println!("exchange, one worker: {:.1} ns", per(since, n));

            let chan = Chan::new(0);
            let sends = chan.clone();
            let since = Instant::now();
            go(move || (0..n).for_each(|i| sends.send(i)));
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

    /// The source's two lists of fibres that can run: the queue of phase 1, and the stack of phase 2. A hundred entries,
    /// of which one goes out and in again.
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

    /// All hang on one channel; then the last writer goes.
    pub(crate) fn readers(n: usize, unwound: bool) {
        run_local(move || {
            let before = resident();
            let mut ends = make_ends::<u32>(n + 1);
            let writer = ends.pop().unwrap();
            for mut end in ends {
                go(move || _ = if unwound { end.read() } else { end.read_or_err() });
            }
            while writer.readers() < n {
                gosched();
            }
            let bytes = resident().saturating_sub(before) / n.max(1);
            println!("{n} readers hang, {}: {bytes} bytes each more", fate(unwound));
            let since = Instant::now();
            drop(writer);
            println!("  the last writer goes: {:.0} ns each, for the drop", per(since, n));
            while num_goroutine() > 1 {
                gosched();
            }
            println!("  until all have ended: {:.0} ns each", per(since, n));
        });
    }

    /// Each hangs on the one before; then the first end goes.
    pub(crate) fn pipeline(n: usize, unwound: bool) {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        BEGUN.store(0, Relaxed);
        run_local(move || {
            let [first, mut from] = make_channel::<u32, 2>();
            for _ in 0..n {
                let [mut to, next] = make_channel::<u32, 2>();
                go(move || {
                    BEGUN.fetch_add(1, Relaxed);
                    loop {
                        let value = if unwound { from.read() } else { from.read_or_err() };
                        let Ok(value) = value else { return };
                        to.write(value).unwrap();
                    }
                });
                from = next;
            }
            while BEGUN.load(Relaxed) < n {
                gosched();
            }
            gosched(); // one whose time slice was over then hangs now
            println!("a pipeline of {n} hangs, {}", fate(unwound));
            let since = Instant::now();
            drop(first);
            while num_goroutine() > 1 {
                gosched();
            }
            println!("  until all have ended, by a cascade: {:.0} ns each", per(since, n));
        });
    }
}
