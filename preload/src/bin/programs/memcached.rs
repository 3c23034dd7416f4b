//! A load for memcached: as many connections as threads, over loopback, each of which sends a request and waits for the
//! answer.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::Figures;

const KEYS: u64 = 2000;
const KEYS_IN_A_REQUEST: usize = 24;
const PATIENCE: Duration = Duration::from_secs(3);

/// Starts the server by a command, sends requests, and ends the server.
pub fn run(mut command: Command, threads: u32, seconds: f64) -> Result<Figures, String> {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(text)?.port();
    command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-t", &threads.to_string(), "-p", &port.to_string()]);
    let mut server = command.stdout(Stdio::null()).spawn().map_err(text)?;
    let result = load(port, threads, seconds);
    // `timeout` passes the signal on.
    let _ = Command::new("kill").arg(server.id().to_string()).status();
    let _ = server.wait();
    result
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let begun = Instant::now();
    let stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed() > PATIENCE => return Err(text(error)),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    };
    stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(text)?;
    Ok(stream)
}

fn load(port: u16, threads: u32, seconds: f64) -> Result<Figures, String> {
    let mut first = Client::new(port, 1)?;
    (0..KEYS).try_for_each(|key| first.set(key))?;
    let length = Duration::from_secs_f64(seconds);
    let results: Vec<_> = thread::scope(|s| {
        let clients: Vec<_> = (0..threads)
            .map(|n| {
                s.spawn(move || {
                    let mut client = Client::new(port, u64::from(n) + 2)?;
                    let (mut waits, begun) = (Vec::new(), Instant::now());
                    while begun.elapsed() < length {
                        let sent = Instant::now();
                        if waits.len() % 5 == 0 {
                            let key = client.key();
                            client.set(key)?;
                        } else {
                            client.get()?;
                        }
                        waits.push(sent.elapsed().as_secs_f64() * 1e6);
                    }
                    Ok::<_, String>(waits)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| Err("panicked".to_owned()))).collect()
    });
    let mut waits = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    waits.sort_by(f64::total_cmp);
    let p99 = waits.get(waits.len() * 99 / 100).copied();
    Ok(Figures { rate: waits.len() as f64 / seconds / 1e3, p99, longest: waits.last().copied() })
}

struct Client {
    stream: BufReader<TcpStream>,
    random: u64,
    line: String,
}

impl Client {
    fn new(port: u16, seed: u64) -> Result<Self, String> {
        Ok(Self { stream: BufReader::new(connect(port)?), random: seed, line: String::new() })
    }

    /// Returns a random key.
    fn key(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % KEYS
    }

    /// Sends a request, and reads lines until `last`.
    fn call(&mut self, request: &str, last: &str) -> Result<(), String> {
        self.stream.get_mut().write_all(request.as_bytes()).map_err(text)?;
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line).map_err(text)? == 0 {
                return Err("the server is gone".to_owned());
            }
            if self.line.trim_end() == last {
                return Ok(());
            }
        }
    }

    fn set(&mut self, key: u64) -> Result<(), String> {
        self.call(&format!("set key{key} 0 0 32\r\n{:032}\r\n", key), "STORED")
    }

    fn get(&mut self) -> Result<(), String> {
        let mut request = "get".to_owned();
        for _ in 0..KEYS_IN_A_REQUEST {
            request += &format!(" key{}", self.key());
        }
        self.call(&(request + "\r\n"), "END")
    }
}
