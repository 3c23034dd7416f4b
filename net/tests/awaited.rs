//! Sockets that tasks await. Loopback addresses only.
#![cfg(all(unix, not(sudog_loom)))]

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use sudog_net::{Side, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, is_closed};
use sudog_runtime::goroutine::{block_on, go_async, gosched, now, run, set_max_procs, spawn, spawn_async};
use support::{Watchdog, eventually};

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let addr = listener.local_addr().expect("its address");
    (listener, addr)
}

/// Two streams that are connected to each other.
fn pair() -> (Arc<TcpStream>, Arc<TcpStream>) {
    let (listener, addr) = listen();
    let there = TcpStream::connect(addr).expect("a connection");
    (Arc::new(listener.accept().expect("its other end").0), Arc::new(there))
}

/// Runs a test on threads, and in `run`.
fn everywhere(test: impl Fn() + Copy + Send + Sync) {
    let _watchdog = Watchdog::new();
    test();
    run(test);
}

fn until_waiting(n: usize, stream: &TcpStream, side: Side) {
    eventually(|| {
        gosched();
        stream.waiters(side) == n
    });
}

async fn read_exact(stream: &TcpStream, mut buf: &mut [u8]) {
    while !buf.is_empty() {
        let n = stream.read_async(buf).await.expect("read");
        assert_ne!(n, 0, "the end of the stream");
        buf = &mut buf[n..];
    }
}

async fn echo(stream: TcpStream) {
    let mut buf = [0; 4096];
    loop {
        match stream.read_async(&mut buf).await.expect("read") {
            0 => return,
            n => stream.write_all_async(&buf[..n]).await.expect("written"),
        }
    }
}

/// Sends more than the buffers hold to an echo, and reads it back, half-closed.
async fn megabyte(addr: SocketAddr) {
    let stream = Arc::new(TcpStream::connect_async(addr).await.expect("a connection"));
    let sent: Arc<Vec<u8>> = Arc::new((0..1_000_000_u64).map(|n| ((n * n) >> 8) as u8).collect());
    let (writer, data) = (stream.clone(), sent.clone());
    go_async(async move {
        writer.write_all_async(&data).await.expect("written");
        writer.shutdown(Shutdown::Write).expect("half closed");
    });
    let mut back = vec![0; sent.len()];
    read_exact(&stream, &mut back).await;
    assert!(back == *sent);
    assert_eq!(stream.read_async(&mut [0]).await.expect("the end"), 0);
}

fn serve(connections: usize) -> SocketAddr {
    let (listener, addr) = listen();
    go_async(async move {
        for _ in 0..connections {
            go_async(echo(listener.accept_async().await.expect("a connection").0));
        }
    });
    addr
}

#[test]
fn echo_by_tasks() {
    everywhere(|| spawn_async(megabyte(serve(1))).join().unwrap());
}

#[test]
fn block_on_awaits() {
    everywhere(|| block_on(megabyte(serve(1))));
}

/// An executor of another crate.
#[test]
fn tokio_awaits() {
    let _watchdog = Watchdog::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(megabyte(serve(1)));
}

#[test]
fn a_hundred_connections_on_two_workers() {
    let _watchdog = Watchdog::new();
    set_max_procs(2);
    run(|| {
        let addr = serve(100);
        let clients: Vec<_> = (0..100_u8)
            .map(|n| {
                spawn_async(async move {
                    let stream = TcpStream::connect_async(addr).await.unwrap();
                    for round in 0..20 {
                        stream.write_all_async(&[n, round]).await.unwrap();
                        let mut back = [0; 2];
                        read_exact(&stream, &mut back).await;
                        assert_eq!(back, [n, round]);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

/// A reader that is dropped while it waits leaves the queue, and the next one gets the data.
#[test]
fn a_dropped_reader() {
    everywhere(|| {
        let (here, there) = pair();
        let mut buf = [0];
        {
            let mut read = pin!(here.read_async(&mut buf));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(read.as_mut().poll(&mut cx).is_pending());
            assert_eq!(here.waiters(Side::Read), 1);
        }
        assert_eq!(here.waiters(Side::Read), 0);
        let reader = here.clone();
        let read = spawn_async(async move { reader.read_async(&mut [0]).await });
        until_waiting(1, &here, Side::Read);
        (&*there).write_all(b"x").unwrap();
        assert_eq!(read.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn a_close_ends_an_awaited_call() {
    everywhere(|| {
        let (here, _there) = pair();
        let (reader, ready) = (here.clone(), here.clone());
        let read = spawn_async(async move { reader.read_async(&mut [0]).await.map(drop) });
        let ready = spawn_async(async move { ready.readable().await });
        until_waiting(2, &here, Side::Read);
        here.close().unwrap();
        for waiter in [read, ready] {
            assert!(is_closed(&waiter.join().unwrap().unwrap_err()));
        }
        assert!(is_closed(&block_on(here.writable()).unwrap_err()));
        assert!(is_closed(&here.try_read(&mut [0]).unwrap_err()));
    });
}

/// A deadline that is set meanwhile, in the past or not, ends an awaited call.
#[test]
fn a_deadline_ends_an_awaited_call() {
    everywhere(|| {
        let (here, there) = pair();
        for d in [Duration::ZERO, Duration::from_millis(2)] {
            let reader = here.clone();
            let read = spawn_async(async move { reader.read_async(&mut [0]).await });
            until_waiting(1, &here, Side::Read);
            here.set_read_deadline(Some(now() + d)).unwrap();
            let error = read.join().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::TimedOut, "i/o timeout"));
            assert_eq!(block_on(here.readable()).unwrap_err().kind(), ErrorKind::TimedOut);
            here.set_read_deadline(None).unwrap();
        }
        (&*there).write_all(b"x").unwrap();
        assert_eq!(block_on(here.read_async(&mut [0])).unwrap(), 1);
    });
}

/// A task and a goroutine that read one stream: each byte goes to one of them, and both are told of the end.
#[test]
fn a_task_and_a_goroutine_read() {
    everywhere(|| {
        let (here, there) = pair();
        let (by_task, by_goroutine) = (here.clone(), here.clone());
        let task = spawn_async(async move {
            let mut n = 0;
            while by_task.read_async(&mut [0]).await.unwrap() == 1 {
                n += 1;
            }
            n
        });
        let goroutine = spawn(move || {
            let mut n = 0;
            while (&*by_goroutine).read(&mut [0]).unwrap() == 1 {
                n += 1;
            }
            n
        });
        for n in 0..100 {
            if n % 10 == 0 {
                until_waiting(2, &here, Side::Read);
            }
            (&*there).write_all(b"x").unwrap();
        }
        there.shutdown(Shutdown::Write).unwrap();
        assert_eq!(task.join().unwrap() + goroutine.join().unwrap(), 100);
    });
}

/// A task and a goroutine that write to one full stream both go on when there is room.
#[test]
fn a_task_and_a_goroutine_write() {
    // More than the kernel's buffers take, even if the peer's makes room after the socket has been full.
    const LEN: usize = 16 << 20;
    everywhere(|| {
        let (here, there) = pair();
        while here.try_write(&[0; 1 << 16]).is_ok() {}
        let (by_task, by_goroutine) = (here.clone(), here.clone());
        let task = spawn_async(async move { by_task.write_all_async(&vec![1; LEN]).await.unwrap() });
        let goroutine = spawn(move || (&*by_goroutine).write_all(&vec![2; LEN]).unwrap());
        until_waiting(2, &here, Side::Write);
        let reader = spawn(move || {
            let mut all = Vec::new();
            (&*there).read_to_end(&mut all).unwrap();
            [1, 2].map(|from| all.iter().filter(|&&byte| byte == from).count())
        });
        task.join().unwrap();
        goroutine.join().unwrap();
        here.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reader.join().unwrap(), [LEN, LEN]);
    });
}

/// Polls that are given up keep no other caller out; the last waker that polled is woken.
#[test]
fn polls_of_a_side() {
    struct Unpark(thread::Thread, std::sync::atomic::AtomicBool);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, std::sync::atomic::Ordering::Release);
            self.0.unpark();
        }
    }
    let _watchdog = Watchdog::new();
    let (here, there) = pair();
    let mut noop = Context::from_waker(Waker::noop());
    assert!(here.poll_read_ready(&mut noop).is_pending());
    assert!(matches!(here.poll_write_ready(&mut noop), Poll::Ready(Ok(()))));
    let unpark = Arc::new(Unpark(thread::current(), false.into()));
    let waker = Waker::from(unpark.clone());
    // A late event of the descriptor's last socket may end a poll.
    loop {
        assert!(here.poll_read_ready(&mut Context::from_waker(&waker)).is_pending());
        if here.waiters(Side::Read) == 1 {
            break;
        }
    }
    (&*there).write_all(b"x").unwrap();
    assert_eq!((&*here).read(&mut [0]).unwrap(), 1, "a blocking reader beside the poll");
    (&*there).write_all(b"y").unwrap();
    while !unpark.1.load(std::sync::atomic::Ordering::Acquire) {
        thread::park();
    }
    block_on(poll_fn(|cx| here.poll_read_ready(cx))).unwrap();
    assert_eq!(here.try_read(&mut [0]).unwrap(), 1);
    assert_eq!(here.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A poll by another task takes the place of the first, and wakes the first task, which would wait for ever otherwise.
#[test]
fn a_displaced_poll_is_woken() {
    /// Tells whether a poll of this thread has woken the task.
    struct Woken(std::sync::atomic::AtomicBool, thread::ThreadId);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            if thread::current().id() == self.1 {
                self.0.store(true, std::sync::atomic::Ordering::Release);
            }
        }
    }
    /// Returns whether the second task's poll woke the first. A late event of the descriptor's last socket may have.
    fn second_poll_wakes() -> bool {
        let (here, _there) = pair();
        let woken = Arc::new(Woken(false.into(), thread::current().id()));
        let waker = Waker::from(woken.clone());
        let mut first = Context::from_waker(&waker);
        assert!(here.poll_read_ready(&mut first).is_pending());
        assert!(here.poll_read_ready(&mut first).is_pending());
        assert!(!woken.0.load(std::sync::atomic::Ordering::Acquire), "by a poll of its own");
        assert!(here.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_pending());
        woken.0.load(std::sync::atomic::Ordering::Acquire)
    }
    let _watchdog = Watchdog::new();
    while !second_poll_wakes() {}
}

/// A waker that panics in `close` keeps no other call of the socket asleep, in either direction.
#[test]
fn a_close_wakes_all_before_a_panic_goes_on() {
    /// Panics in the thread that closes the socket only.
    struct Panics(thread::ThreadId);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            assert_ne!(thread::current().id(), self.0, "a waker panics");
        }
    }
    /// Returns whether the close ran the waker. A late event of the descriptor's last socket may have woken the task.
    fn close_panics() -> bool {
        let (here, _there) = pair();
        let mut ready = Box::pin(here.readable());
        let waker = Waker::from(Arc::new(Panics(thread::current().id())));
        assert!(ready.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let closed = thread::scope(|s| {
            let writer = s.spawn(|| (&*here).write_all(&vec![0; 64 << 20]));
            until_waiting(1, &here, Side::Write);
            let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| here.close()));
            assert!(is_closed(&writer.join().unwrap().unwrap_err()));
            closed
        });
        assert!(is_closed(&block_on(ready).unwrap_err()));
        closed.map(Result::unwrap).is_err()
    }
    let _watchdog = Watchdog::new();
    while !close_panics() {}
}

/// A close wakes tasks of its own socket only, also if another socket is given the descriptor's place in the poller.
#[test]
fn a_close_wakes_no_task_of_a_later_socket() {
    struct WokenIn(thread::ThreadId);
    impl Wake for WokenIn {
        fn wake(self: Arc<Self>) {
            assert_ne!(thread::current().id(), self.0, "the other close ran this waker");
        }
    }
    let _watchdog = Watchdog::new();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|s| {
        let closer = s.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let (here, there) = pair();
                here.close().unwrap();
                there.close().unwrap();
            }
        });
        let waker = Waker::from(Arc::new(WokenIn(closer.thread().id())));
        for _ in 0..1000 {
            let (here, _there) = pair();
            let mut ready = Box::pin(here.readable());
            assert!(ready.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        closer.join().unwrap();
    });
}

/// A waker that panics, or waits, does so in a goroutine of its own: the poller goes on.
#[test]
fn wakers_are_user_code() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            sudog_runtime::goroutine::sleep(Duration::from_micros(10));
            panic!("a waker panics");
        }
    }
    let _watchdog = Watchdog::new();
    run(|| {
        let (here, there) = pair();
        let waker = Waker::from(Arc::new(Panics));
        let mut ready = Box::pin(here.readable());
        assert!(ready.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let reader = here.clone();
        let read = spawn_async(async move { reader.read_async(&mut [0]).await });
        until_waiting(2, &here, Side::Read);
        (&*there).write_all(b"xy").unwrap();
        drop(waker);
        assert_eq!(read.join().unwrap().unwrap(), 1);
        block_on(ready).unwrap();
    });
}

#[test]
fn other_sockets() {
    everywhere(|| {
        block_on(async {
            let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
            let mut buf = [0; 8];
            assert_eq!(there.try_recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
            here.writable().await.unwrap();
            here.send_to_async(b"hello", there.local_addr().unwrap()).await.unwrap();
            assert_eq!(there.recv_from_async(&mut buf).await.unwrap(), (5, here.local_addr().unwrap()));
            let (here, there) = UnixDatagram::pair().unwrap();
            here.send_async(b"hello").await.unwrap();
            assert_eq!(there.recv_async(&mut buf).await.unwrap(), 5);
            let path = std::env::temp_dir().join(format!("sudog-awaited-{}", std::process::id()));
            _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            assert_eq!(listener.try_accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            let here = UnixStream::connect_async(&path).await.unwrap();
            let (there, _) = listener.accept_async().await.unwrap();
            here.write_all_async(b"hello").await.unwrap();
            there.readable().await.unwrap();
            assert_eq!(there.try_read(&mut buf).unwrap(), 5);
            _ = std::fs::remove_file(&path);
            let refused = { listen().1 };
            assert_eq!(TcpStream::connect_async(refused).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
    });
}

/// Runs as a child process: while no descriptors are left, `accept_async` is pending, and tries again after a pause,
/// although no event comes.
#[test]
fn no_descriptors_left() {
    const CHILD: &str = "SUDOG_NET_TEST_AWAITS_DESCRIPTORS";
    if support::started_child(module_path!(), "no_descriptors_left", CHILD) {
        return;
    }
    let _watchdog = Watchdog::new();
    let (listener, addr) = listen();
    let listener = Arc::new(listener);
    run(|| {
        let _client = std::net::TcpStream::connect(addr).unwrap();
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: `limit` is alive.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        let server = listener.clone();
        let accepted = spawn_async(async move { server.accept_async().await.map(drop) });
        eventually(|| {
            gosched();
            listener.waiters(Side::Read) == 1
        });
        taken.clear();
        accepted.join().unwrap().unwrap();
    });
}

#[cfg(feature = "futures-io")]
#[test]
fn futures_io() {
    use futures_io::{AsyncRead, AsyncWrite};
    use std::pin::Pin;
    everywhere(|| {
        let (here, mut there) = UnixStream::pair().unwrap();
        let text = spawn_async(async move {
            let (mut text, mut here) = (Vec::new(), &here);
            loop {
                let mut buf = [0; 3];
                match poll_fn(|cx| Pin::new(&mut here).poll_read(cx, &mut buf)).await.unwrap() {
                    0 => return text,
                    n => text.extend_from_slice(&buf[..n]),
                }
            }
        });
        block_on(async {
            assert_eq!(poll_fn(|cx| Pin::new(&mut there).poll_write(cx, b"hello")).await.unwrap(), 5);
            poll_fn(|cx| Pin::new(&mut there).poll_close(cx)).await.unwrap();
        });
        assert_eq!(text.join().unwrap(), b"hello");
    });
}

/// Checks that a close succeeds on a connection that the peer has reset: the reset has ended the direction of writes.
#[cfg(feature = "futures-io")]
#[test]
fn futures_io_close_after_a_reset() {
    use futures_io::AsyncWrite;
    let (here, there) = pair();
    (&*here).write_all(b"x").unwrap();
    block_on(there.readable()).unwrap();
    there.close().unwrap(); // with a byte that has not been read, so the system resets the connection
    assert_eq!((&*here).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    block_on(poll_fn(|cx| std::pin::Pin::new(&mut &*here).poll_close(cx))).unwrap();
}

#[cfg(feature = "hyper")]
mod hyper_server {
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    use super::*;

    async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let body = request.into_body().collect().await?.to_bytes();
        Ok(Response::new(Full::from(spawn(move || body).await.unwrap())))
    }

    /// Serves a connection. Returns whether the connection ended without an error.
    async fn serve(stream: TcpStream) -> bool {
        http1::Builder::new().serve_connection(stream, service_fn(answer)).await.is_ok()
    }

    fn read_answer(stream: &TcpStream, body: &str) {
        let mut text = Vec::new();
        let mut byte = [0];
        while !text.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
            assert_eq!((&mut &*stream).read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&text));
            text.push(byte[0]);
        }
        assert!(text.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }

    /// Two requests over a connection, whose bodies come in single bytes.
    #[test]
    fn keep_alive() {
        everywhere(|| {
            let (listener, addr) = listen();
            let server = spawn_async(async move { serve(listener.accept_async().await.unwrap().0).await });
            let client = TcpStream::connect(addr).unwrap();
            for body in ["the first", "the second"] {
                write!(&client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
                for byte in body.bytes() {
                    (&client).write_all(&[byte]).unwrap();
                    gosched();
                }
                read_answer(&client, body);
            }
            client.shutdown(Shutdown::Write).unwrap();
            assert!(server.join().unwrap());
        });
    }

    /// A client that goes away in the middle of a body ends the connection's task.
    #[test]
    fn a_client_goes_away() {
        everywhere(|| {
            let (listener, addr) = listen();
            let server = spawn_async(async move { serve(listener.accept_async().await.unwrap().0).await });
            let client = TcpStream::connect(addr).unwrap();
            write!(&client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
            drop(client);
            assert!(!server.join().unwrap());
        });
    }
}
