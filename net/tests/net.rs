//! Sockets: Go's tests of deadlines, of close against pending calls, and of half-closed streams (`net/timeout_test.go`,
//! `net/net_test.go`, `net/splice_test.go` of 1.27) by name, and situations that a service meets. Loopback addresses
//! only.
#![cfg(all(unix, not(sudog_loom)))]

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use sudog_net::{
    BlockingIo, Closed, Side, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, is_closed,
};
use sudog_runtime::goroutine::{
    block_on, blocking, go, gosched, now, run, set_max_blocking, set_max_procs, sleep, spawn, synctest,
};
use sudog_sync::WaitGroup;
use sudog_sync::context::{self, background};
use support::{Watchdog, eventually};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let addr = listener.local_addr().expect("its address");
    (listener, addr)
}

/// Two streams that are connected to each other.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen();
    let there = TcpStream::connect(addr).expect("a connection");
    (listener.accept().expect("its other end").0, there)
}

/// Runs a test on threads, and in `run`.
fn everywhere(test: impl Fn() + Copy + Send + Sync) {
    let _watchdog = Watchdog::new();
    test();
    run(test);
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

/// Waits until `n` calls wait.
fn until_waiting(n: usize, waiters: impl Fn() -> usize) {
    eventually(|| {
        gosched();
        waiters() == n
    });
}

// ---- streams --------------------------------------------------------------------------------------------------------

#[test]
fn echo() {
    everywhere(|| {
        let (listener, addr) = listen();
        let server = spawn(move || {
            let (stream, peer) = listener.accept().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), peer);
            io::copy(&mut &stream, &mut &stream).unwrap()
        });
        let mut stream = TcpStream::connect(addr).unwrap();
        assert!(stream.nodelay().unwrap());
        let sent: Vec<u8> = (0..1_000_000_u64).map(|n| ((n * n) >> 8) as u8).collect();
        thread_or_goroutine(&stream, sent.clone());
        let mut echo = Vec::new();
        stream.read_to_end(&mut echo).unwrap();
        assert!(echo == sent);
        assert_eq!(server.join().unwrap(), sent.len() as u64);
    });
}

/// Go: `newTCPConn`, for both ends.
#[test]
fn small_packets_are_not_delayed() {
    everywhere(|| {
        let (listener, addr) = listen();
        let _one = TcpStream::connect(addr).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        let _another = TcpStream::connect(addr).unwrap();
        let (accepted, _) = listener.accept_limited(&background()).unwrap();
        assert!(accepted.nodelay().unwrap());
    });
}

/// Go: `newTCPConn` for both ends, and TestTCPConnKeepAliveConfigDialer (defaults).
#[test]
fn peers_are_probed() {
    fn times(stream: &TcpStream) -> (bool, [Duration; 2], u32) {
        stream
            .with_std(|socket| {
                let socket = socket2::SockRef::from(socket);
                let times = [socket.tcp_keepalive_time()?, socket.tcp_keepalive_interval()?];
                Ok((socket.keepalive()?, times, socket.tcp_keepalive_retries()?))
            })
            .unwrap()
    }
    everywhere(|| {
        let (accepted, connected) = pair();
        let quarter = Duration::from_secs(15);
        for stream in [accepted, connected] {
            assert_eq!(times(&stream), (true, [quarter; 2], 9));
            assert!(stream.keepalive().unwrap());
            stream.set_keepalive(false).unwrap();
            assert!(!stream.keepalive().unwrap());
            stream.set_keepalive(true).unwrap();
            assert_eq!(times(&stream), (true, [quarter; 2], 9));
        }
    });
}

/// Writes beside a reader: more data than the buffers hold.
fn thread_or_goroutine(stream: &TcpStream, data: Vec<u8>) {
    let copy = stream.with_std(std::net::TcpStream::try_clone).unwrap();
    let mut writer = TcpStream::from_std(copy).unwrap();
    go(move || {
        writer.write_all(&data).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
}

/// Go: TestTCPClose, TestCloseRead, TestCloseWrite.
#[test]
fn half_close() {
    everywhere(|| {
        let (mut here, mut there) = pair();
        here.write_all(b"the end").unwrap();
        here.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        there.read_to_string(&mut text).unwrap();
        assert_eq!(text, "the end");
        there.write_all(b"an answer").unwrap(); // the other direction is open
        drop(there);
        text.clear();
        here.read_to_string(&mut text).unwrap();
        assert_eq!(text, "an answer");
        assert_eq!(kind(here.write(b"x").and_then(|_| here.write_all(b"x"))), ErrorKind::BrokenPipe);
    });
}

/// Reads and writes at the same time by a single stream.
#[test]
fn both_sides_at_once() {
    let _watchdog = Watchdog::new();
    run(|| {
        let (here, there) = pair();
        let (here, there) = (Arc::new(here), Arc::new(there));
        let group = Arc::new(WaitGroup::new());
        for stream in [here, there] {
            let reader = stream.clone();
            group.go(move || {
                let mut buf = vec![0; 1 << 20];
                (&*reader).read_exact(&mut buf).unwrap();
                assert!(buf.iter().all(|&byte| byte == 7));
            });
            group.go(move || (&*stream).write_all(&vec![7; 1 << 20]).unwrap());
        }
        group.wait();
    });
}

/// Checks that writers of a stream take turns: the data of a write stays together.
#[test]
fn writers_take_turns() {
    let _watchdog = Watchdog::new();
    run(|| {
        let (here, mut there) = pair();
        let here = Arc::new(here);
        for n in 0..8_u8 {
            let here = here.clone();
            go(move || (0..100).for_each(|_| (&*here).write_all(&[n; 16]).unwrap()));
        }
        let mut buf = [0; 16];
        for _ in 0..800 {
            there.read_exact(&mut buf).unwrap();
            assert!(buf.iter().all(|&byte| byte == buf[0]), "{buf:?}");
        }
    });
}

#[test]
fn vectored() {
    run(|| {
        let (mut here, mut there) = pair();
        let parts = [io::IoSlice::new(b"one "), io::IoSlice::new(b"two")];
        assert_eq!(here.write_vectored(&parts).unwrap(), 7);
        here.flush().unwrap();
        let (mut a, mut b) = ([0; 4], [0; 3]);
        assert_eq!(there.read_vectored(&mut [io::IoSliceMut::new(&mut a), io::IoSliceMut::new(&mut b)]).unwrap(), 7);
        assert_eq!((&a, &b), (b"one ", b"two"));
    });
}

// ---- closing --------------------------------------------------------------------------------------------------------

/// Go: TestReadAfterClose, TestWriteAfterClose, TestDoubleClose..., TestAcceptAfterClose.
#[test]
fn after_close() {
    everywhere(|| {
        let (listener, _) = listen();
        listener.close().unwrap();
        assert!(is_closed(&listener.accept().unwrap_err()));
        assert!(is_closed(&listener.close().unwrap_err()));
        assert_eq!(listener.incoming().count(), 0);
        let (mut here, _there) = pair();
        here.close().unwrap();
        assert!(is_closed(&here.read(&mut [0]).unwrap_err()));
        assert!(is_closed(&here.write(&[0]).unwrap_err()));
        assert!(is_closed(&here.set_deadline(None).unwrap_err()));
        assert!(is_closed(&here.peer_addr().unwrap_err()));
        assert_eq!(here.close().unwrap_err().to_string(), Closed.to_string());
        assert_eq!(Closed.to_string(), "use of closed network connection");
        assert_eq!(format!("{here:?}"), "(closed)");
        assert!(!is_closed(&io::Error::other("something else")));
    });
}

/// Go: TestCloseUnblocksRead, TestAcceptIgnoreAbortedConnRequest's neighbours: a close ends pending calls.
#[test]
fn a_close_ends_a_pending_read() {
    everywhere(|| {
        let (here, _there) = pair();
        let here = Arc::new(here);
        let reads = [here.clone(), here.clone()].map(|here| spawn(move || (&*here).read(&mut [0])));
        until_waiting(2, || here.waiters(Side::Read));
        here.close().unwrap();
        for read in reads {
            assert!(is_closed(&read.join().unwrap().unwrap_err()), "the one that waits, and the one behind it");
        }
    });
}

#[test]
fn a_close_ends_a_pending_write() {
    everywhere(|| {
        let (here, _there) = pair();
        let here = Arc::new(here);
        let writer = here.clone();
        let write = spawn(move || {
            loop {
                if let Err(error) = (&*writer).write_all(&[0; 1 << 16]) {
                    return error;
                }
            }
        });
        until_waiting(1, || here.waiters(Side::Write));
        here.close().unwrap();
        assert!(is_closed(&write.join().unwrap()));
    });
}

#[test]
fn a_close_ends_a_pending_accept() {
    everywhere(|| {
        let (listener, _) = listen();
        let listener = Arc::new(listener);
        let theirs = listener.clone();
        let accept = spawn(move || theirs.incoming().count());
        until_waiting(1, || listener.waiters(Side::Read));
        listener.close().unwrap();
        assert_eq!(accept.join().unwrap(), 0);
    });
}

/// Checks that the descriptor is closed when its last user has gone: the other end sees the end of the stream.
#[test]
fn the_descriptor_is_closed() {
    everywhere(|| {
        let (here, mut there) = pair();
        here.close().unwrap();
        assert_eq!(there.read(&mut [0]).unwrap(), 0);
        drop(here);
        drop(pair()); // dropped without a close
    });
}

// ---- deadlines ------------------------------------------------------------------------------------------------------

/// Go: TestReadTimeout, TestReadTimeoutMustNotReturn, TestReadTimeoutFluctuation.
#[test]
fn read_timeout() {
    everywhere(|| {
        let (mut here, mut there) = pair();
        for d in [Duration::ZERO, 50 * Duration::from_micros(1), MS, 5 * MS] {
            let deadline = now() + d;
            here.set_read_deadline(Some(deadline)).unwrap();
            for _ in 0..3 {
                let error = here.read(&mut [0]).unwrap_err();
                assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::TimedOut, "i/o timeout"));
                assert!(now() >= deadline);
            }
        }
        // The read deadline does not concern the write side, and data that has arrived is not read once the deadline
        // has passed.
        there.write_all(b"x").unwrap();
        here.write_all(b"y").unwrap();
        assert_eq!(kind(here.read(&mut [0])), ErrorKind::TimedOut);
        here.set_read_deadline(None).unwrap();
        assert_eq!(here.read(&mut [0]).unwrap(), 1);
    });
}

/// Go: TestWriteTimeout, TestWriteTimeoutMustNotReturn.
#[test]
fn write_timeout() {
    everywhere(|| {
        let (mut here, _there) = pair();
        here.set_write_deadline(Some(now() + 10 * MS)).unwrap();
        assert_eq!(kind(loop_write(&mut here)), ErrorKind::TimedOut);
        here.set_deadline(None).unwrap();
    });
}

fn loop_write(stream: &mut TcpStream) -> io::Result<()> {
    loop {
        stream.write_all(&[0; 1 << 16])?;
    }
}

/// Go: TestAcceptTimeout.
#[test]
fn accept_timeout() {
    everywhere(|| {
        let (listener, addr) = listen();
        listener.set_read_deadline(Some(now() + MS)).unwrap();
        assert_eq!(kind(listener.accept()), ErrorKind::TimedOut);
        listener.set_read_deadline(None).unwrap();
        let _there = TcpStream::connect(addr).unwrap();
        listener.accept().unwrap();
    });
}

/// Go: TestReadWriteDeadlineRace, TestSetDeadlineWhilePending...: a deadline that is set meanwhile, in the past or not,
/// ends a waiting call; the call goes on if the deadline is taken back.
#[test]
fn a_deadline_for_a_pending_call() {
    everywhere(|| {
        let (here, mut there) = pair();
        let here = Arc::new(here);
        for deadline in [Some(Duration::ZERO), Some(2 * MS)] {
            let reader = here.clone();
            let read = spawn(move || (&*reader).read(&mut [0]));
            until_waiting(1, || here.waiters(Side::Read));
            here.set_read_deadline(deadline.map(|d| now() + d)).unwrap();
            assert_eq!(kind(read.join().unwrap()), ErrorKind::TimedOut);
            here.set_read_deadline(None).unwrap();
        }
        here.set_read_deadline(Some(now() + HOUR)).unwrap();
        let reader = here.clone();
        let read = spawn(move || (&*reader).read(&mut [0]));
        until_waiting(1, || here.waiters(Side::Read));
        here.set_read_deadline(None).unwrap();
        there.write_all(b"x").unwrap();
        assert_eq!(read.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn connect_errors() {
    everywhere(|| {
        let (listener, addr) = listen();
        assert_eq!(kind(TcpListener::bind(addr)), ErrorKind::AddrInUse);
        drop(listener);
        assert_eq!(kind(TcpStream::connect(addr)), ErrorKind::ConnectionRefused);
        assert_eq!(kind(TcpStream::connect("not an address")), ErrorKind::InvalidInput);
        assert_eq!(kind(TcpStream::connect(&[][..])), ErrorKind::InvalidInput);
        assert!(TcpStream::connect(("127.0.0.1", 0)).is_err());
        assert!(TcpListener::bind("127.0.0.1:notaport").is_err());
        assert!(UnixStream::connect("/nonexistent/socket").is_err());
        // A connect to several addresses uses the first that answers.
        let (listener, there) = listen();
        let stream = TcpStream::connect(&[addr, there][..]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
        listener.accept().unwrap();
        TcpListener::bind("localhost:0").unwrap();
    });
}

/// A listener whose queue is full, which answers no client.
struct Silent {
    addr: SocketAddr,
    _listener: std::net::TcpListener,
    _clients: Vec<TcpStream>,
}

impl Silent {
    /// Creates the listener, and dials it until a dial times out.
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: the descriptor is an open socket of `listener`.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let addr = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        let error = loop {
            match TcpStream::connect_limited(addr, 20 * MS) {
                Ok(stream) => clients.push(stream),
                Err(error) => break error,
            }
            assert!(clients.len() < 100);
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        Self { addr, _listener: listener, _clients: clients }
    }
}

/// Dials a listener that answers no client: the dial times out, and a context ends the dial.
#[test]
fn connect_timeout() {
    let _watchdog = Watchdog::new();
    run(|| {
        let silent = Silent::new();
        let addr = silent.addr;
        let (ctx, cancel) = context::with_cancel(&background());
        let dial = spawn(move || TcpStream::connect_limited(addr, &ctx));
        sleep(MS);
        cancel.cancel();
        let error = dial.join().unwrap().unwrap_err();
        assert_eq!(error.get_ref().and_then(|error| error.downcast_ref()), Some(&context::Error::Canceled));
    });
}

/// A silent address gets two of the four seconds. Go: `partialDeadline`.
#[test]
fn a_silent_address_leaves_time_for_the_next() {
    let _watchdog = Watchdog::new();
    run(|| {
        let silent = Silent::new();
        let (_listener, there) = listen();
        let stream = TcpStream::connect_limited(&[silent.addr, there][..], 4000 * MS).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
    });
}

/// Runs as a child process: a look-up that does not end, because the only thread for blocking calls is taken.
#[test]
fn a_limit_ends_the_look_up_of_a_name() {
    const CHILD: &str = "SUDOG_NET_TEST_LOOK_UP";
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    static RELEASE: OnceLock<()> = OnceLock::new();
    if support::started_child(module_path!(), "a_limit_ends_the_look_up_of_a_name", CHILD) {
        return;
    }
    let _watchdog = Watchdog::new();
    set_max_blocking(1);
    let taker = spawn(|| {
        blocking(|| {
            IS_TAKEN.store(true, Relaxed);
            RELEASE.wait();
        });
    });
    eventually(|| IS_TAKEN.load(Relaxed));
    everywhere(|| {
        assert_eq!(kind(TcpStream::connect_limited("localhost:1", MS)), ErrorKind::TimedOut);
        assert_eq!(kind(TcpStream::connect_limited(String::from("localhost:1"), MS)), ErrorKind::TimedOut);
        assert_eq!(kind(TcpStream::connect_limited(("localhost", 1), MS)), ErrorKind::TimedOut);
        let (ctx, cancel) = context::with_cancel(&background());
        let dial = spawn(move || TcpStream::connect_limited("localhost:1", &ctx));
        sleep(MS);
        cancel.cancel();
        let error = dial.join().unwrap().unwrap_err();
        assert_eq!(error.get_ref().and_then(|error| error.downcast_ref()), Some(&context::Error::Canceled));
        // A literal address needs no look-up.
        let (_listener, addr) = listen();
        TcpStream::connect_limited(addr.to_string(), HOUR).unwrap();
    });
    RELEASE.set(()).unwrap();
    taker.join().unwrap();
    everywhere(|| {
        let (_listener, addr) = listen();
        let stream = TcpStream::connect_limited(("localhost", addr.port()), HOUR).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addr);
    });
}

/// Go: TestListenerHosts, and `net.Dial` with an empty host.
#[test]
fn an_empty_host() {
    everywhere(|| {
        for listener in [TcpListener::bind(":0"), TcpListener::bind(("", 0))] {
            let listener = listener.unwrap();
            let addr = listener.local_addr().unwrap();
            assert!(addr.ip().is_unspecified());
            let port = addr.port();
            let this_system = format!(":{port}");
            let dialled = |stream: io::Result<TcpStream>| {
                let (here, there) = (stream.unwrap().local_addr().unwrap(), listener.accept().unwrap().1);
                assert_eq!((there.ip().to_canonical(), there.port()), (here.ip(), here.port()));
            };
            dialled(TcpStream::connect(("127.0.0.1", port)));
            dialled(TcpStream::connect(("", port)));
            dialled(TcpStream::connect_limited(this_system.as_str(), HOUR));
            dialled(block_on(TcpStream::connect_async(this_system)));
        }
        assert!(UdpSocket::bind(":0").unwrap().local_addr().unwrap().ip().is_unspecified());
        for text in ["", ":", ":port", ":65536", "0"] {
            assert_eq!(kind(TcpListener::bind(text)), ErrorKind::InvalidInput, "{text}");
        }
    });
}

/// Lets the system refuse IPv6 sockets to this thread, and to threads that this thread starts. For x86-64 only: qemu
/// has no such filters, and on i686 the C library makes sockets by another system call.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn forbid_ipv6() {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO};
    use std::mem::offset_of;

    let step = |code: u32, jump_unless_equal: u8, k: u32| libc::sock_filter {
        code: code.try_into().unwrap(),
        jt: 0,
        jf: jump_unless_equal,
        k,
    };
    // The family is the lower half of the first argument.
    let family = offset_of!(libc::seccomp_data, args).try_into().unwrap();
    let mut steps = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, offset_of!(libc::seccomp_data, nr).try_into().unwrap()),
        step(BPF_JMP | BPF_JEQ | BPF_K, 3, libc::SYS_socket.try_into().unwrap()),
        step(BPF_LD | BPF_W | BPF_ABS, 0, family),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, libc::AF_INET6.try_into().unwrap()),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | u32::try_from(libc::EAFNOSUPPORT).unwrap()),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len().try_into().unwrap(), filter: steps.as_mut_ptr() };
    // SAFETY: the call takes numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: `filter` and `steps`, to which `filter` points, outlive the call, which copies them.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) }, 0);
}

/// Runs as a child process: an address of a family that the system lacks leaves the next address to be tried.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn an_address_of_a_family_that_the_system_lacks() {
    const CHILD: &str = "SUDOG_NET_TEST_NO_IPV6";
    if support::started_child(module_path!(), "an_address_of_a_family_that_the_system_lacks", CHILD) {
        return;
    }
    forbid_ipv6();
    everywhere(|| {
        let ipv6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 1));
        let (_listener, there) = listen();
        let addrs: &'static [SocketAddr] = vec![ipv6, there].leak();
        for stream in [TcpStream::connect(addrs), block_on(TcpStream::connect_async(addrs))] {
            assert_eq!(stream.unwrap().peer_addr().unwrap(), there);
        }
        for stream in [TcpStream::connect(ipv6), block_on(TcpStream::connect_async(ipv6))] {
            assert_eq!(stream.unwrap_err().raw_os_error(), Some(libc::EAFNOSUPPORT));
        }
        let listener = TcpListener::bind(":0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(TcpStream::connect(("", port)).unwrap().peer_addr().unwrap().is_ipv4());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        assert!(TcpListener::bind(&[ipv6, any][..]).unwrap().local_addr().unwrap().is_ipv4());
        assert!(UdpSocket::bind(&[ipv6, any][..]).unwrap().local_addr().unwrap().is_ipv4());
    });
}

// ---- contexts -------------------------------------------------------------------------------------------------------

#[test]
fn contexts_end_calls() {
    everywhere(|| {
        let (listener, _) = listen();
        let listener = Arc::new(listener);
        let (here, _there) = pair();
        let here = Arc::new(here);
        let (ctx, cancel) = context::with_cancel(&background());
        let reader = (here.clone(), ctx.clone());
        let read = spawn(move || reader.0.read_limited(&mut [0], &reader.1));
        let acceptor = (listener.clone(), ctx.clone());
        let accept = spawn(move || acceptor.0.accept_limited(&acceptor.1).map(drop));
        until_waiting(2, || here.waiters(Side::Read) + listener.waiters(Side::Read));
        cancel.cancel();
        for error in [read.join().unwrap().unwrap_err(), accept.join().unwrap().unwrap_err()] {
            assert_eq!(error.get_ref().and_then(|error| error.downcast_ref()), Some(&context::Error::Canceled));
        }
        let (ctx, _cancel) = context::with_timeout(&background(), MS);
        assert_eq!(kind(here.read_limited(&mut [0], &ctx)), ErrorKind::TimedOut);
        assert_eq!(kind(here.write_limited(&[0], &ctx)), ErrorKind::TimedOut, "before it tries");
        assert_eq!(here.write_limited(b"x", &background()).unwrap(), 1, "the stream is as it was");
        // A deadline of the stream also ends a call with a context.
        here.set_read_deadline(Some(now() + MS)).unwrap();
        let error = here.read_limited(&mut [0], &background()).unwrap_err();
        assert_eq!(error.to_string(), "i/o timeout");
        here.close().unwrap();
        assert!(is_closed(&here.read_limited(&mut [0], &background()).unwrap_err()));
    });
}

// ---- packets, Unix sockets ------------------------------------------------------------------------------------------

#[test]
fn udp() {
    everywhere(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let (a, b) = (here.local_addr().unwrap(), there.local_addr().unwrap());
        let echo = spawn(move || {
            let mut buf = [0; 64];
            let (n, from) = there.recv_from(&mut buf).unwrap();
            there.send_to(&buf[..n], from).unwrap();
            there.connect(from).unwrap();
            there.send(b"again").unwrap();
            there.peer_addr().unwrap()
        });
        here.send_to(b"hello", b).unwrap();
        let mut buf = [0; 64];
        assert_eq!(here.recv_from(&mut buf).unwrap(), (5, b));
        here.connect(b).unwrap();
        assert_eq!(here.recv(&mut buf).unwrap(), 5);
        assert_eq!(echo.join().unwrap(), a);
        here.set_read_deadline(Some(now() + MS)).unwrap();
        assert_eq!(kind(here.recv(&mut buf)), ErrorKind::TimedOut);
        let (ctx, _cancel) = context::with_timeout(&background(), MS);
        here.set_read_deadline(None).unwrap();
        assert_eq!(kind(here.recv_from_limited(&mut buf, &ctx)), ErrorKind::TimedOut);
        here.close().unwrap();
        assert!(is_closed(&here.send(b"x").unwrap_err()));
    });
}

/// A packet to the broadcast address of the loopback network arrives. Go: `setDefaultSockopts`.
#[test]
fn udp_broadcast() {
    everywhere(|| {
        let there = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = there.local_addr().unwrap().port();
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(here.send_to(b"all", ("127.255.255.255", port)).unwrap(), 3);
        assert_eq!(there.recv_from(&mut [0; 8]).unwrap(), (3, here.local_addr().unwrap()));
        assert!(UdpSocket::bind(":0").unwrap().with_std(std::net::UdpSocket::broadcast).unwrap());
    });
}

#[test]
fn unix_sockets() {
    everywhere(|| {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("sudog-net-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(kind(UnixListener::bind(&path)), ErrorKind::AddrInUse);
        let theirs = path.clone();
        let client = spawn(move || {
            let mut stream = UnixStream::connect(theirs).unwrap();
            stream.write_all(b"hello").unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        client.join().unwrap();
        std::fs::remove_file(path).unwrap();
        let (here, there) = UnixDatagram::pair().unwrap();
        let packet = spawn(move || {
            let mut buf = [0; 8];
            there.recv(&mut buf).map(|n| (n, buf))
        });
        here.send(b"one").unwrap();
        assert_eq!(packet.join().unwrap().unwrap(), (3, *b"one\0\0\0\0\0"));
    });
}

// ---- ends -----------------------------------------------------------------------------------------------------------

/// Checks that goroutines that wait in reads do not keep `run` from returning. They go on, and another `run` can use
/// the stream.
#[test]
fn run_returns_with_connections_open() {
    let _watchdog = Watchdog::new();
    let (here, mut there) = pair();
    let here = Arc::new(here);
    let reads = run(|| {
        let read = || {
            let here = here.clone();
            spawn(move || (&*here).read(&mut [0]).unwrap())
        };
        let reads: Vec<_> = (0..100).map(|_| read()).collect();
        until_waiting(100, || here.waiters(Side::Read));
        reads
    });
    run(|| {
        there.write_all(&[7; 100]).unwrap();
        assert_eq!(reads.into_iter().map(|read| read.join().unwrap()).sum::<usize>(), 100);
    });
}

/// Checks that a bubble is not at rest while a goroutine waits for the network.
#[test]
fn a_bubble_waits_for_the_network() {
    let _watchdog = Watchdog::new();
    static READ: AtomicBool = AtomicBool::new(false);
    let (mut here, mut there) = pair();
    let writer = thread::spawn(move || {
        thread::sleep(20 * MS);
        there.write_all(b"x").unwrap();
    });
    synctest::test(move || {
        go(move || {
            here.read_exact(&mut [0]).unwrap();
            READ.store(true, Relaxed);
        });
    });
    assert!(READ.load(Relaxed));
    writer.join().unwrap();
}

/// Lets the worker of a bubble poll, and end: goroutines of other workers are woken all the same.
#[test]
fn the_one_that_polls_leaves() {
    let _watchdog = Watchdog::new();
    for _ in 0..20 {
        let (mut here, there) = pair();
        let stays = thread::spawn(move || run(move || here.read_exact(&mut [0]).unwrap()));
        let (mut here, mut peer) = pair();
        let writer = thread::spawn(move || {
            thread::sleep(MS);
            peer.write_all(b"x").unwrap();
        });
        synctest::test(move || here.read_exact(&mut [0]).unwrap());
        writer.join().unwrap();
        (&there).write_all(b"x").unwrap();
        stays.join().unwrap();
    }
}

/// Lets goroutines of two workers wait, and keeps one worker busy: the goroutines of the other worker are woken.
#[test]
fn a_busy_worker_keeps_no_other_from_its_events() {
    let _watchdog = Watchdog::new();
    static OVER: AtomicBool = AtomicBool::new(false);
    run(|| {
        set_max_procs(2);
        let (here, there) = pair();
        let (here, there) = (Arc::new(here), Arc::new(there));
        let pings: Vec<_> = [here, there]
            .into_iter()
            .enumerate()
            .map(|(n, stream)| {
                spawn(move || {
                    let mut byte = [0];
                    for _ in 0..200 {
                        if n == 0 {
                            (&*stream).write_all(&byte).unwrap();
                        }
                        (&*stream).read_exact(&mut byte).unwrap();
                        if n == 1 {
                            (&*stream).write_all(&byte).unwrap();
                        }
                    }
                })
            })
            .collect();
        go(|| {
            while !OVER.load(Relaxed) {
                gosched();
            }
        });
        pings.into_iter().for_each(|ping| ping.join().unwrap());
        OVER.store(true, Relaxed);
    });
}

/// Runs four workers that sleep and wake all the time: one worker at a time sleeps in the poller, or a wake-up goes to
/// another worker.
#[test]
fn short_connections_on_four_workers() {
    let _watchdog = Watchdog::new();
    run(|| {
        set_max_procs(4);
        let (listener, addr) = listen();
        go(move || {
            for stream in listener.incoming() {
                go(move || {
                    let stream = stream.unwrap();
                    io::copy(&mut &stream, &mut &stream).unwrap();
                });
            }
        });
        for round in 0..100 {
            let clients: Vec<_> = (0..round % 8 + 1)
                .map(|_| {
                    spawn(move || {
                        let mut stream = TcpStream::connect(addr).unwrap();
                        stream.write_all(b"hello").unwrap();
                        stream.shutdown(Shutdown::Write).unwrap();
                        let mut echo = String::new();
                        stream.read_to_string(&mut echo).unwrap();
                        assert_eq!(echo, "hello");
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
        }
    });
    set_max_procs(2);
}

// ---- many -----------------------------------------------------------------------------------------------------------

/// Opens, uses and closes connections at random, on goroutines and threads: 49 clients with 20 connections each, and
/// again, as often as `SUDOG_NET_ROUNDS` says.
#[test]
fn many_connections_at_random() {
    let watchdog = Watchdog::new();
    let rounds = std::env::var("SUDOG_NET_ROUNDS").map_or(1, |n| n.parse().expect("a number of rounds"));
    let (listener, addr) = listen();
    let listener = Arc::new(listener);
    let server = listener.clone();
    let served = thread::spawn(move || {
        run(|| {
            let group = Arc::new(WaitGroup::new());
            for stream in server.incoming() {
                let mut stream = stream.unwrap();
                group.go(move || {
                    let mut buf = [0; 64];
                    while let Ok(n) = stream.read(&mut buf) {
                        if n == 0 || stream.write_all(&buf[..n]).is_err() {
                            break;
                        }
                    }
                });
            }
            group.wait();
        });
    });
    let client = move |seed: u32| {
        let mut random = seed.wrapping_mul(2_654_435_761) | 1;
        for _ in 0..20 {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            let stream = Arc::new(TcpStream::connect(addr).unwrap());
            match random % 4 {
                0 => {
                    let reader = stream.clone();
                    let read = spawn(move || (&*reader).read(&mut [0]).map_err(|error| is_closed(&error)));
                    stream.close().unwrap();
                    assert!(matches!(read.join().unwrap(), Err(true)));
                }
                1 => stream.shutdown(Shutdown::Both).unwrap(),
                _ => {
                    let n = (random >> 8) as usize % 64 + 1;
                    (&*stream).write_all(&[7; 64][..n]).unwrap();
                    let mut buf = [0; 64];
                    (&*stream).read_exact(&mut buf[..n]).unwrap();
                }
            }
        }
    };
    for round in 0..rounds {
        let seeds = round * 50;
        thread::scope(|s| {
            s.spawn(|| client(seeds + 1));
            s.spawn(|| run(|| client(seeds + 2)));
            s.spawn(|| {
                run(|| {
                    let group = Arc::new(WaitGroup::new());
                    for seed in 3..50 {
                        group.go(move || client(seeds + seed));
                    }
                    group.wait();
                });
            });
        });
        watchdog.pat();
    }
    listener.close().unwrap();
    served.join().unwrap();
}

// ---- bad networks ---------------------------------------------------------------------------------------------------

/// The fault that a proxy adds to the data that passes through.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The data passes one byte at a time, each in a packet of its own.
    Trickles,
    /// The client's half is cut after this number of bytes, and then the other half.
    CutsAfter(usize),
    /// The connection is reset after this number of bytes.
    ResetsAfter(usize),
    /// No data passes any more after this number of bytes.
    StallsAfter(usize),
}

/// Runs a proxy between a client and a server on the loopback.
fn proxy(server: SocketAddr, fault: Fault) -> SocketAddr {
    let (listener, addr) = listen();
    go(move || {
        let (client, _) = listener.accept().unwrap();
        let server = Arc::new(TcpStream::connect(server).unwrap());
        let client = Arc::new(client);
        let (from, to) = (server.clone(), client.clone());
        go(move || _ = io::copy(&mut &*from, &mut &*to));
        let mut passed = 0;
        let mut byte = [0];
        while let Ok(1) = (&*client).read(&mut byte) {
            if (&*server).write_all(&byte).is_err() {
                return;
            }
            passed += 1;
            match fault {
                Fault::Trickles => gosched(),
                Fault::CutsAfter(n) if n == passed => {
                    server.close().unwrap();
                    client.close().unwrap();
                    return;
                }
                Fault::ResetsAfter(n) if n == passed => {
                    // With linger 0, a close is a reset.
                    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                    client
                        .with_std(|socket| {
                            let size = size_of::<libc::linger>() as libc::socklen_t;
                            // SAFETY: the descriptor is an open socket; the value is alive, and `size` is its size.
                            let set = unsafe {
                                libc::setsockopt(
                                    socket.as_raw_fd(),
                                    libc::SOL_SOCKET,
                                    libc::SO_LINGER,
                                    (&raw const linger).cast(),
                                    size,
                                )
                            };
                            assert_eq!(set, 0);
                            Ok(())
                        })
                        .unwrap();
                    server.close().unwrap();
                    client.close().unwrap();
                    return;
                }
                Fault::StallsAfter(n) if n == passed => return sleep(HOUR),
                _ => {}
            }
        }
        _ = server.shutdown(Shutdown::Write);
    });
    addr
}

#[test]
fn a_fault_in_between() {
    let _watchdog = Watchdog::new();
    run(|| {
        for fault in [Fault::Trickles, Fault::CutsAfter(100), Fault::ResetsAfter(100), Fault::StallsAfter(100)] {
            let (listener, addr) = listen();
            go(move || {
                let (stream, _) = listener.accept().unwrap();
                _ = io::copy(&mut &stream, &mut &stream); // send back the data that arrives before the fault
            });
            let stream = Arc::new(TcpStream::connect(proxy(addr, fault)).unwrap());
            let writer = stream.clone();
            let write = spawn(move || {
                (&*writer).write_all(&[7; 2000])?;
                writer.shutdown(Shutdown::Write)
            });
            if let Fault::StallsAfter(n) = fault {
                let mut echo = vec![0; n];
                (&*stream).read_exact(&mut echo).unwrap();
                stream.set_read_deadline(Some(now() + 5 * MS)).unwrap();
                assert_eq!(kind((&*stream).read(&mut [0])), ErrorKind::TimedOut, "{fault:?}");
                continue;
            }
            let mut echo = Vec::new();
            let end = (&*stream).read_to_end(&mut echo);
            match fault {
                Fault::Trickles => {
                    assert_eq!((end.unwrap(), echo), (2000, vec![7; 2000]), "{fault:?}");
                    write.join().unwrap().unwrap();
                }
                Fault::ResetsAfter(_) => assert_eq!(kind(end), ErrorKind::ConnectionReset, "{fault:?}"),
                // The proxy had not read all data: then the system resets the connection, too.
                _ => assert!(end.is_ok() || kind(end) == ErrorKind::ConnectionReset, "{fault:?}"),
            }
        }
    });
}

/// Runs as a child process: while no descriptors are left, `accept` waits until there are some; no connection is lost.
#[test]
fn no_descriptors_left() {
    const CHILD: &str = "SUDOG_NET_TEST_NO_DESCRIPTORS";
    if support::started_child(module_path!(), "no_descriptors_left", CHILD) {
        return;
    }
    let _watchdog = Watchdog::new();
    let (listener, addr) = listen();
    let listener = Arc::new(listener);
    run(|| {
        // Make the clients first, because they need descriptors, too.
        let clients: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: `limit` is alive.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        assert_eq!(std::fs::File::open("/dev/null").unwrap_err().raw_os_error(), Some(libc::EMFILE));
        let server = listener.clone();
        let accepted = spawn(move || (0..8).map(|_| server.accept().map(|(stream, _)| stream)).collect::<Vec<_>>());
        until_waiting(1, || listener.waiters(Side::Read));
        taken.clear();
        let streams = accepted.join().unwrap();
        assert_eq!(streams.iter().flatten().count(), clients.len());
        // A close ends an accept that has no descriptor left.
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        taken.pop();
        let _one_more = std::net::TcpStream::connect(addr).unwrap();
        let server = listener.clone();
        let accept = spawn(move || server.accept().map(drop));
        until_waiting(1, || listener.waiters(Side::Read));
        listener.close().unwrap();
        assert!(is_closed(&accept.join().unwrap().unwrap_err()));
    });
}

/// Runs as a child process: the poller cannot be made as long as no descriptors are left, and can be made later.
#[test]
fn no_descriptors_for_the_poller() {
    const CHILD: &str = "SUDOG_NET_TEST_NO_POLLER";
    if support::started_child(module_path!(), "no_descriptors_for_the_poller", CHILD) {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: `limit` is alive.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    assert_eq!(UnixStream::from_std(one).unwrap_err().raw_os_error(), Some(libc::EMFILE));
    drop(taken);
    assert!(UnixStream::from_std(other).is_ok());
}

// ---- Go's, by name --------------------------------------------------------------------------------------------------

/// Go: TestVariousDeadlines. A server never stops writing; each read ends at its deadline, and not before.
#[test]
fn various_deadlines() {
    let _watchdog = Watchdog::new();
    for workers in [1, 4] {
        run(|| {
            set_max_procs(workers);
            let (listener, addr) = listen();
            go(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    go(move || while stream.write_all(&[0; 4096]).is_ok() {});
                }
            });
            for nanos in [1, 10, 1_000, 50_000, 100_000, 1_000_000, 5_000_000] {
                for _ in 0..3 {
                    let mut stream = TcpStream::connect(addr).unwrap();
                    let deadline = now() + Duration::from_nanos(nanos);
                    stream.set_deadline(Some(deadline)).unwrap();
                    let error = io::copy(&mut stream, &mut io::sink()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    assert!(now() >= deadline);
                }
            }
        });
    }
    set_max_procs(2);
}

/// Go: TestReadWriteProlongedTimeout. A deadline that is put off again and again ends no call.
#[test]
fn read_write_prolonged_timeout() {
    let _watchdog = Watchdog::new();
    run(|| {
        let (here, mut there) = pair();
        let here = Arc::new(here);
        let reader = here.clone();
        let read = spawn(move || (&*reader).read_exact(&mut [0; 50]));
        for _ in 0..50 {
            here.set_deadline(Some(now() + HOUR)).unwrap();
            there.write_all(b"x").unwrap();
            gosched();
        }
        read.join().unwrap().unwrap();
    });
}

/// Go: TestReadWriteDeadlineRace, TestConcurrentSetDeadline.
#[test]
fn read_write_deadline_race() {
    let _watchdog = Watchdog::new();
    run(|| {
        let (here, there) = pair();
        let (here, there) = (Arc::new(here), Arc::new(there));
        let group = Arc::new(WaitGroup::new());
        for n in 0..4 {
            let here = here.clone();
            group.go(move || {
                for i in 0..200 {
                    _ = match n {
                        0 => here.set_read_deadline(Some(now() + Duration::from_micros(i))),
                        1 => here.set_write_deadline(Some(now() + Duration::from_micros(2))),
                        2 => (&*here).read(&mut [0]).map(drop),
                        _ => (&*here).write(&[0; 64]).map(drop),
                    };
                    gosched();
                }
            });
        }
        go(move || while (&*there).write(&[0]).is_ok() {});
        group.wait();
        here.close().unwrap();
    });
}

/// Go: TestZeroByteRead, TestNotTemporaryRead.
#[test]
fn zero_byte_read() {
    everywhere(|| {
        let (mut here, mut there) = pair();
        there.write_all(b"x").unwrap();
        here.read_exact(&mut [0]).unwrap();
        assert_eq!(here.read(&mut []).unwrap(), 0);
        assert_eq!(here.write(&[]).unwrap(), 0);
        drop(there);
        assert_eq!(here.read(&mut [0]).unwrap(), 0);
    });
}

/// Checks that the worker makes no call that may wait: at the end of the data there is nothing in the buffer, and a
/// second look would be a read.
#[test]
fn blocking_io_looks_at_the_end_once() {
    struct AtItsEnd(usize);
    impl Read for AtItsEnd {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }
    impl BufRead for AtItsEnd {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.0 += 1;
            Ok(&[])
        }
        fn consume(&mut self, _: usize) {}
    }
    everywhere(|| {
        let mut reader = BlockingIo::new(AtItsEnd(0));
        assert!(reader.fill_buf().unwrap().is_empty());
        assert_eq!(reader.into_inner().0, 1);
    });
}

/// Go: TestMutexLock, TestMutexClose, TestMutexCloseUnblock.
#[test]
fn fd_mutex() {
    use sudog_net::low_level::{FdMutex, LockError};
    let _watchdog = Watchdog::new();
    let mutex = Arc::new(FdMutex::new(()));
    drop(mutex.refer().expect("open"));
    let (read, write) = (mutex.lock(Side::Read).unwrap(), mutex.lock(Side::Write).unwrap());
    let waiters = [Side::Read, Side::Read, Side::Write].map(|side| {
        let mutex = mutex.clone();
        spawn(move || mutex.lock(side).map(drop))
    });
    eventually(|| mutex.waiters(Side::Read) == 2 && mutex.waiters(Side::Write) == 1);
    assert!(mutex.close() && !mutex.close());
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Err(LockError::Closed));
    }
    assert!(mutex.refer().is_none() && mutex.is_closed() && read.is_closed());
    drop((read, write));
    assert_eq!(mutex.lock(Side::Read).map(drop), Err(LockError::Closed));
}

/// Go: TestMutexStress.
#[test]
fn fd_mutex_stress() {
    use sudog_net::low_level::FdMutex;
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Data([AtomicUsize; 2]);
    impl Drop for Data {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Relaxed);
        }
    }
    let _watchdog = Watchdog::new();
    let mutex = Arc::new(FdMutex::new(Data([const { AtomicUsize::new(0) }; 2])));
    let users: Vec<_> = (0..8)
        .map(|n| {
            let mutex = mutex.clone();
            spawn(move || {
                for i in 0..2000 {
                    let (side, place) = if (n + i) % 2 == 0 { (Side::Read, 0) } else { (Side::Write, 1) };
                    if i % 3 == 0 {
                        _ = mutex.refer();
                        continue;
                    }
                    let guard = mutex.lock(side).unwrap();
                    assert_eq!(guard.0[place].fetch_add(1, Relaxed), 0);
                    gosched();
                    assert_eq!(guard.0[place].fetch_sub(1, Relaxed), 1);
                }
            })
        })
        .collect();
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(DROPS.load(Relaxed), 0);
    assert!(mutex.close());
    assert_eq!(DROPS.load(Relaxed), 1);
}
