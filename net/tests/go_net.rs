//! Go's tests of packets without bytes, of packets that find no room, and of many connections (`net/udpsock_test.go`,
//! `net/unixsock_test.go`, `net/tcpsock_test.go` of 1.27), by name. Loopback addresses only.
#![cfg(all(unix, not(sudog_loom)))]

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use sudog_net::{Side, TcpListener, TcpStream, UdpSocket, UnixDatagram, io_pipe};
use sudog_runtime::goroutine::{go, gosched, run, spawn};
use sudog_sync::context::{self, background};
use support::{Watchdog, eventually};

/// Runs a test on threads, and in `run`.
fn everywhere(test: impl Fn() + Copy + Send + Sync) {
    let _watchdog = Watchdog::new();
    test();
    run(test);
}

/// A packet without bytes arrives, and a receiver gets its length and its sender.
#[test]
fn udp_zero_byte_payload() {
    everywhere(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        assert_eq!(socket.send_to(&[], addr).unwrap(), 0);
        assert_eq!(socket.recv_from(&mut [1]).unwrap(), (0, addr));
    });
}

/// A receive without room waits for a packet, and takes the packet.
#[test]
fn udp_zero_byte_buffer() {
    everywhere(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        assert_eq!(socket.send_to(b"UDP ZERO BYTE BUFFER TEST", addr).unwrap(), 25);
        assert_eq!(socket.recv_from(&mut []).unwrap(), (0, addr));
        assert_eq!(socket.try_recv_from(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

/// The part of a packet that finds no room is lost.
#[test]
fn udp_read_size_error() {
    everywhere(|| {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        one.send_to(b"READ SIZE ERROR TEST", other.local_addr().unwrap()).unwrap();
        let mut buf = [0; 2];
        assert_eq!(other.recv_from(&mut buf).unwrap(), (2, one.local_addr().unwrap()));
        assert_eq!(&buf, b"RE");
        assert_eq!(other.try_recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn unixgram_zero_byte_payload() {
    everywhere(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        assert_eq!(one.send(&[]).unwrap(), 0);
        assert_eq!(other.recv(&mut [1]).unwrap(), 0);
    });
}

#[test]
fn unixgram_zero_byte_buffer() {
    everywhere(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        assert_eq!(one.send(b"UNIXGRAM ZERO BYTE BUFFER TEST").unwrap(), 30);
        assert_eq!(other.recv(&mut []).unwrap(), 0);
        assert_eq!(other.try_recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

/// Several goroutines accept from one listener. Each connection is accepted once.
#[test]
fn tcp_concurrent_accept() {
    const N: usize = 10;
    everywhere(|| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let addr = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let acceptors: Vec<_> = (0..N)
            .map(|_| {
                let (listener, accepted) = (listener.clone(), accepted.clone());
                spawn(move || {
                    listener.incoming().for_each(|stream| {
                        stream.unwrap();
                        accepted.fetch_add(1, Relaxed);
                    });
                })
            })
            .collect();
        let streams: Vec<_> = (0..10 * N).map(|_| TcpStream::connect(addr).unwrap()).collect();
        eventually(|| {
            gosched();
            accepted.load(Relaxed) == streams.len()
        });
        listener.close().unwrap();
        acceptors.into_iter().for_each(|acceptor| acceptor.join().unwrap());
        assert_eq!(accepted.load(Relaxed), 10 * N);
    });
}

/// Connections one after the other, which the client opens, writes to, and closes at once.
#[test]
fn tcp_stress() {
    const CONNECTIONS: usize = 2;
    const MESSAGES: usize = 512;
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(move || {
            for _ in 0..CONNECTIONS {
                let (mut stream, _) = listener.accept().unwrap();
                for _ in 0..MESSAGES {
                    let mut message = [0; 32];
                    stream.read_exact(&mut message).unwrap();
                    stream.write_all(&message).unwrap();
                }
            }
        });
        for connection in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(addr).unwrap();
            for n in 0..MESSAGES {
                let message = [(connection + n) as u8; 32];
                stream.write_all(&message).unwrap();
                let mut answer = [0; 32];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, message);
            }
        }
        server.join().unwrap();
    });
}

/// What comes out of a pipe goes into a connection, until the pipe is closed.
#[test]
fn copy_pipe_into_tcp() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = spawn(move || {
            let mut text = String::new();
            listener.accept().unwrap().0.read_to_string(&mut text).map(|_| text)
        });
        let (mut reader, mut writer) = io_pipe();
        go(move || {
            for _ in 0..100 {
                writer.write_all(b"a line of text\n").unwrap();
            }
        });
        let mut stream = TcpStream::connect(addr).unwrap();
        assert_eq!(io::copy(&mut reader, &mut stream).unwrap(), 1500);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.join().unwrap().unwrap(), "a line of text\n".repeat(100));
    });
}

/// A context that ends after the dial does not end the connection.
#[test]
fn cancel_after_dial() {
    everywhere(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (ctx, cancel) = context::with_cancel(&background());
        let mut stream = TcpStream::connect_limited(addr, &ctx).unwrap();
        cancel.cancel();
        let (mut other, _) = listener.accept().unwrap();
        stream.write_all(b"hello").unwrap();
        other.write_all(b"world").unwrap();
        let mut buf = [0; 5];
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"world");
        other.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"hello");
        TcpStream::connect_limited(addr, &ctx).expect_err("the context has ended");
        assert_eq!(listener.waiters(Side::Read), 0);
    });
}
