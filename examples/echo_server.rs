//! A TCP server that stops gracefully: Go's `net.Listen` with a goroutine for each connection.
//!
//! `cargo run --features net --example echo_server`

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;
use sudog::time::now;

fn serve(listener: &TcpListener) -> io::Result<()> {
    let open = Arc::new(WaitGroup::new());
    for stream in listener.incoming() {
        let stream = stream?;
        open.go(move || {
            // Disconnect a client that says nothing for a second.
            let mut buf = [0; 1024];
            loop {
                stream.set_deadline(Some(now() + Duration::from_secs(1))).expect("open");
                match (&stream).read(&mut buf) {
                    Ok(0) | Err(_) => return,
                    Ok(n) => (&stream).write_all(&buf[..n]).unwrap_or(()),
                }
            }
        });
    }
    open.wait(); // after the listener's close: serve the open connections to their end
    Ok(())
}

fn main() -> io::Result<()> {
    sudog::run(|| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
        let addr = listener.local_addr()?;
        let server = listener.clone();
        let served = spawn(move || serve(&server));

        let clients = (0..100).map(|n| {
            spawn(move || {
                let mut stream = TcpStream::connect(addr)?;
                let sent = format!("client {n}");
                stream.write_all(sent.as_bytes())?;
                let mut echo = vec![0; sent.len()];
                stream.read_exact(&mut echo)?;
                Ok::<_, io::Error>(echo == sent.as_bytes())
            })
        });
        let mut right = 0;
        for client in clients.collect::<Vec<_>>() {
            right += u32::from(client.join().expect("no panic")?);
        }
        listener.close()?;
        served.join().expect("no panic")?;
        assert_eq!(right, 100);
        println!("{right} echoes");
        Ok(())
    })
}
