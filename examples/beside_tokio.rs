//! Goroutines and tokio in one program: a channel and a mutex that both sides use, and on which each side waits by its
//! own means.
//!
//! `cargo run --example beside_tokio`

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sudog::prelude::*;

fn main() {
    let (jobs, results) = (Chan::<u64>::new(4), Chan::<u64>::new(4));
    let log = Arc::new(Mutex::new(Vec::new()));

    // The tokio side sends the jobs and receives the answers.
    let asker = thread::spawn({
        let (jobs, results, log) = (jobs.clone(), results.clone(), log.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
            runtime.block_on(async {
                let ask = tokio::spawn(async move {
                    for n in 1..=10 {
                        jobs.send_async(n).await;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    jobs.close();
                });
                let mut sum = 0;
                while let Some(square) = results.recv_async().await {
                    log.lock_async().await.push(square); // the mutex that the goroutines lock, too
                    sum += square;
                }
                ask.await.unwrap();
                sum
            })
        }
    });

    // The goroutines do the work.
    sudog::run(|| {
        let workers = Arc::new(WaitGroup::new());
        for _ in 0..3 {
            let (jobs, results) = (jobs.clone(), results.clone());
            workers.go(move || {
                while let Some(n) = jobs.recv() {
                    results.send(n * n);
                }
            });
        }
        workers.wait();
        results.close();
    });
    let sum = asker.join().unwrap();
    println!("{sum}: {:?}", log.lock());
    assert_eq!((sum, log.lock().len()), (385, 10));
}
