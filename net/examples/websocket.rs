//! `tungstenite` over the streams of this crate: a WebSocket server that sends messages back, and ten clients. Code
//! written for `Read` and `Write` of `std` runs on these streams.
//!
//! `cargo run -p sudog-net --example websocket`
#![cfg(target_os = "linux")]

use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;
use tungstenite::Message;

fn main() {
    sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let addr = listener.local_addr().expect("its address");
        go!(for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            go!({
                let mut socket = tungstenite::accept(stream).expect("a handshake");
                while let Ok(message) = socket.read() {
                    if message.is_text() {
                        socket.send(message).expect("sent");
                    }
                }
            });
        });
        let clients: Vec<_> = (0..10)
            .map(|n| {
                spawn(move || {
                    let stream = TcpStream::connect(addr).expect("a connection");
                    let (mut socket, _) = tungstenite::client(format!("ws://{addr}/"), stream).expect("a handshake");
                    for i in 0..100 {
                        let text = format!("message {i} of client {n}");
                        socket.send(Message::text(&text)).expect("sent");
                        assert_eq!(socket.read().expect("an answer").to_text().expect("text"), text);
                    }
                    socket.close(None).expect("closed");
                    100
                })
            })
            .collect();
        let messages: u32 = clients.into_iter().map(|client| client.join().expect("no panic")).sum();
        println!("{messages} messages");
        assert_eq!(messages, 1000);
    });
}
