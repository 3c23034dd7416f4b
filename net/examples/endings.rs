//! How long it takes until reads that wait have ended: by a context, and with their `run`. Prints figures.
//!
//! `cargo run --release -p sudog-net --example endings [CONNECTIONS]`
#![cfg(target_os = "linux")]

use std::io::{self, Read};
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

/// From the cancel to the end of the read, at most.
fn by_a_context(stream: &Arc<TcpStream>) -> Duration {
    let round = || {
        let (ctx, cancel) = context::with_cancel(&context::background());
        let reader = stream.clone();
        let read = spawn(move || {
            reader.read_ctx(&ctx, &mut [0]).expect_err("nothing is sent");
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
    let connections = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(100);
    let ended = sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let mut ends = Vec::new();
        for _ in 0..connections {
            let client = TcpStream::connect(addr)?;
            let (stream, _) = listener.accept()?;
            let stream = Arc::new(stream);
            ends.push((client, stream.clone()));
            go!((&*stream).read_exact(&mut [0]).expect("it is unwound"));
        }
        ends.iter().for_each(|(_, stream)| until_it_waits(stream));
        let _client = TcpStream::connect(addr)?;
        let (stream, _) = listener.accept()?;
        println!("a read ends {:?} after its context at most, in {ROUNDS} rounds", by_a_context(&Arc::new(stream)));
        std::mem::forget(ends); // they stay open
        Ok::<_, io::Error>(Instant::now())
    })?;
    println!("run returns {:?} after main, with {connections} reads that wait", ended.elapsed());
    Ok(())
}
