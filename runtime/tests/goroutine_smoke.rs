//! Smoke.
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use sudog_runtime::goroutine::*;
use sudog_runtime::sema::*;
#[test]
fn smoke() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    static N: AtomicUsize = AtomicUsize::new(0);
    let r = run(|| {
        for _ in 0..10_000 {
            go(|| {
                N.fetch_add(1, Ordering::Relaxed);
                semrelease(&DONE, Wake::Normal);
            });
        }
        for _ in 0..10_000 {
            semacquire(&DONE);
        }
        sleep(Duration::from_millis(3));
        let h = spawn(|| {
            sleep(Duration::from_millis(2));
            5
        });
        let a = spawn_async(async {
            sleep_async(Duration::from_millis(2)).await;
            6
        });
        let b = blocking(|| {
            std::thread::sleep(Duration::from_millis(5));
            7
        });
        h.join().unwrap() + a.join().unwrap() + b
    });
    assert_eq!(r, 18);
    assert_eq!(N.load(Ordering::Relaxed), 10_000);
}
