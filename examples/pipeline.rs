//! A pipeline of channels that ends early: a producer, workers that share its channel, and a quit channel.
//!
//! `cargo run --example pipeline`

use sudog::prelude::*;

fn main() {
    run(|| {
        let (numbers, quit) = (Chan::new(0), Chan::<()>::new(0));

        // The producer stops when `quit` is closed.
        go({
            let (numbers, quit) = (numbers.send_only(), quit.recv_only());
            move || {
                for n in 1_u64.. {
                    select! {
                        send(numbers, n) => {}
                        recv(quit) => break,
                    }
                }
                numbers.close();
            }
        });

        // Four workers share one channel. When the last worker ends, the channel of the squares is closed.
        let (results, squares) = channel(8);
        for _ in 0..4 {
            let (numbers, results) = (numbers.recv_only(), results.clone());
            go(move || {
                for n in &numbers {
                    if results.send(n * n).is_err() {
                        break;
                    }
                }
            });
        }
        drop(results);

        let sum: u64 = squares.iter().take(100).sum();
        quit.close();
        // Receive the squares that are under way. The loop ends when the last worker has ended.
        let late = squares.iter().count();
        println!("the sum of the first 100 squares that came: {sum}; {late} came after that");
        assert!(sum >= 338_350);
    });
}
