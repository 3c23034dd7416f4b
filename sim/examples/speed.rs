//! Speed.
use std::sync::Arc;
use std::time::{Duration, Instant};
use sudog_sim::atomic::{AtomicU32, AtomicU64, Ordering};
use sudog_sim::{Machine, Preset, pause, thread, traffic, work};

fn main() {
    for kind in ["ticket", "tts"] {
        for t in [1usize, 2, 4, 8, 16, 32, 64] {
            let machine = Machine::new(Preset::named("x5-2").unwrap());
            let begun = Instant::now();
            let (n, traffic, min, max) = machine
                .run(move || {
                    #[repr(align(128))]
                    struct P<T>(T);
                    let lock = Arc::new((
                        P(AtomicU32::new(0)),
                        P(AtomicU32::new(0)),
                        P(AtomicU32::new(0)),
                        P(AtomicU64::new(0)),
                    ));
                    let hs: Vec<_> = (0..t)
                        .map(|_| {
                            let lock = lock.clone();
                            thread::spawn(move || {
                                let mut n = 0;
                                while lock.2.0.load(Ordering::Relaxed) == 0 {
                                    if kind == "ticket" {
                                        let me = lock.0.0.fetch_add(1, Ordering::Relaxed);
                                        while lock.1.0.load(Ordering::Acquire) != me {
                                            pause()
                                        }
                                    } else {
                                        while lock.0.0.swap(1, Ordering::Acquire) != 0 {
                                            while lock.0.0.load(Ordering::Relaxed) != 0 {
                                                pause()
                                            }
                                        }
                                    }
                                    lock.3.0.store(lock.3.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                                    work(20);
                                    if kind == "ticket" {
                                        lock.1.0.store(lock.1.0.load(Ordering::Relaxed) + 1, Ordering::Release);
                                    } else {
                                        lock.0.0.store(0, Ordering::Release);
                                    }
                                    work(50);
                                    n += 1;
                                }
                                n
                            })
                        })
                        .collect();
                    thread::sleep(Duration::from_millis(5));
                    lock.2.0.store(1, Ordering::Relaxed);
                    let ns: Vec<i32> = hs.into_iter().map(|h| h.join().unwrap()).collect();
                    (lock.3.0.load(Ordering::Relaxed), traffic(), *ns.iter().min().unwrap(), *ns.iter().max().unwrap())
                })
                .unwrap();
            let real = begun.elapsed();
            println!(
                "{kind} T={t}: {:.2} M/s, misses {:.1} inval {:.1} per acq, min/max {:.2}; {} accesses in {real:?}: {:.1} M/s",
                n as f64 / 5e3,
                traffic.misses as f64 / n as f64,
                traffic.invalidations as f64 / n as f64,
                f64::from(min) / f64::from(max),
                traffic.accesses,
                traffic.accesses as f64 / real.as_secs_f64() / 1e6
            );
        }
    }
}
