//! `ureq` over the streams of this crate: the example's own connector lets a request block the goroutine and not the
//! worker.
//!
//! `cargo run -p sudog-net --example http_client`
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};

use sudog::net::{TcpListener, TcpStream};
use sudog::prelude::*;
use sudog::time::now;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};
use ureq::{Agent, Error};

#[derive(Debug)]
struct Sudog;

struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stream.fmt(f)
    }
}

impl Connector for Sudog {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = TcpStream::connect(&details.addrs[..])?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers }))
    }
}

impl Connection {
    fn set_deadline(&self, timeout: NextTimeout) -> Result<(), Error> {
        let after = timeout.not_zero().map(|timeout| *timeout);
        Ok(self.stream.set_deadline(after.and_then(|after| now().checked_add(after)))?)
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.set_deadline(timeout)?;
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.set_deadline(timeout)?;
        let n = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.peer_addr().is_ok()
    }
}

/// Answers each request with its path.
fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
        }
        write!(&stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len())?;
    }
}

fn main() {
    sudog::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let addr = listener.local_addr().expect("its address");
        go!(for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            go!(serve(stream).expect("served"));
        });
        let agent = Agent::with_parts(Config::default(), Sudog, DefaultResolver::default());
        let requests: Vec<_> = (0..20)
            .map(|n| {
                let agent = agent.clone();
                spawn(move || {
                    let mut answer = agent.get(format!("http://{addr}/page/{n}")).call().expect("an answer");
                    answer.body_mut().read_to_string().expect("text") == format!("/page/{n}")
                })
            })
            .collect();
        let right = requests.into_iter().map(|request| request.join().expect("no panic"));
        let right = right.filter(|&right| right).count();
        println!("{right} answers");
        assert_eq!(right, 20);
    });
}
