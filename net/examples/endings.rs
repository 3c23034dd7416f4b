//! Measures how long a read goes on after its context is done, and prints the longest time.
//!
//! `cargo run --release -p sudog-net --example endings`
#![cfg(target_os = "linux")]

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sudog::net::{Side, TcpListener, TcpStream};
use sudog::prelude::*;
use sudog::runtime::gosched;

const ROUNDS: u32 = 1000;

fn until_it_waits(stream: &TcpStream) {
    while stream.waiters(Side::Read) == 0 {
        gosched();
    }
}

/// The longest time from the cancel to the end of the read.
fn by_a_context(stream: &Arc<TcpStream>) -> Duration {
    let round = || {
        let (ctx, cancel) = context::with_cancel(&context::background());
        let reader = stream.clone();
        let read = spawn(move || {
            reader.read_limited(&mut [0], &ctx).expect_err("nothing is sent");
            Instant::now()
        });
        until_it_waits(stream);
        let begun = Instant::now();
        cancel.cancel();
        read.join().expect("no panic") - begun
    };
    (0..ROUNDS).map(|_| round()).max().unwrap_or_default()
}

fn main() -> io::Result<()> {
    sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let _client = TcpStream::connect(addr)?;
        let (stream, _) = listener.accept()?;
        println!("a read ends {:?} after its context at most, in {ROUNDS} rounds", by_a_context(&Arc::new(stream)));
        Ok(())
    })
}
