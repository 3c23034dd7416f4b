//! Pipes and listeners in memory: Go's tests of `net.Pipe` (`net/pipe_test.go`, with those of
//! `golang.org/x/net/nettest`) and of `io.Pipe` (`io/pipe_test.go`) of 1.27 by name, and what these do not ask: buffers,
//! tasks, bubbles, the listener.
#![cfg(all(unix, not(sudog_loom)))]

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use sudog_net::{PipeListener, PipeReader, PipeStream, PipeWriter, Side, buffered_pipe, io_pipe, is_closed, pipe};
use sudog_runtime::goroutine::{block_on, go, gosched, now, run, sleep, spawn, spawn_async, synctest};
use sudog_sync::WaitGroup;
use sudog_sync::context::{self, background};
use support::{Watchdog, eventually};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

type Pipe = fn() -> (PipeStream, PipeStream);

/// Pipes without a buffer, with a small buffer, and with a large one.
const PIPES: [Pipe; 3] = [pipe, || buffered_pipe(100), || buffered_pipe(1 << 16)];

/// Runs a test on a thread, in `run`, and in a bubble.
fn everywhere(test: impl Fn() + Copy + Send + Sync + 'static) {
    let watchdog = Watchdog::new();
    test();
    watchdog.pat();
    run(test);
    watchdog.pat();
    synctest::test(test);
}

/// Runs a test for each of [`PIPES`], with shared ends.
fn each_pipe(test: fn(Arc<PipeStream>, Arc<PipeStream>)) {
    everywhere(move || {
        for pipe in PIPES {
            let (one, other) = pipe();
            test(Arc::new(one), Arc::new(other));
        }
    });
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

#[track_caller]
fn assert_closed<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.expect_err("an error");
    assert!(is_closed(&error), "{error}");
}

/// Waits until a call waits on one side of a stream.
fn until_waiting(stream: &PipeStream, side: Side) {
    until(|| stream.waiters(side) > 0);
}

/// A deadline that has passed.
fn past() -> Option<Instant> {
    now().checked_sub(MS)
}

fn numbers(n: u64) -> Vec<u8> {
    (0..n).map(|n| ((n * n) >> 8) as u8).collect()
}

/// Copies from `from` to `to` until an error.
fn copy_until_an_error(from: &PipeStream, to: &mut impl Write) {
    _ = io::copy(&mut { from }, to);
}

fn go_echo(stream: &Arc<PipeStream>) {
    let stream = stream.clone();
    go(move || copy_until_an_error(&stream, &mut &*stream));
}

fn go_discard(stream: &Arc<PipeStream>) {
    let stream = stream.clone();
    go(move || copy_until_an_error(&stream, &mut io::sink()));
}

/// Sends bytes through the stream to an echo, and receives them.
fn round_trip(stream: &PipeStream) {
    stream.set_deadline(None).unwrap();
    const TEXT: &[u8] = b"Hello, world!";
    (&*stream).write_all(TEXT).unwrap();
    let mut back = [0; TEXT.len()];
    (&*stream).read_exact(&mut back).unwrap();
    assert_eq!(back, TEXT);
}

// ---- Go's net.Pipe, by name -----------------------------------------------------------------------------------------

/// Go: BasicIO.
#[test]
fn basic_io() {
    each_pipe(|one, other| {
        let want = Arc::new(numbers(1 << 20));
        let (sent, writer) = (want.clone(), one.clone());
        let write = spawn(move || {
            for part in sent.chunks(1000) {
                (&*writer).write_all(part).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let echo = spawn(move || {
            let mut received = Vec::new();
            (&*other).read_to_end(&mut received).unwrap();
            (&*other).write_all(&received).unwrap();
            other.close().unwrap();
        });
        let mut got = Vec::new();
        (&*one).read_to_end(&mut got).unwrap();
        assert!(got == *want);
        write.join().unwrap();
        echo.join().unwrap();
        one.close().unwrap();
    });
}

/// Go: PingPong.
#[test]
fn ping_pong() {
    each_pipe(|one, other| {
        fn player(stream: &PipeStream) {
            let mut buf = [0; 8];
            loop {
                if let Err(error) = (&*stream).read_exact(&mut buf) {
                    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                    return;
                }
                let n = u64::from_le_bytes(buf);
                if n == 1000 {
                    stream.close().unwrap();
                    return;
                }
                (&*stream).write_all(&(n + 1).to_le_bytes()).unwrap();
            }
        }
        let partner = spawn(move || player(&other));
        (&*one).write_all(&0_u64.to_le_bytes()).unwrap();
        player(&one);
        partner.join().unwrap();
    });
}

/// Go: RacyRead.
#[test]
fn racy_read() {
    each_pipe(|one, other| {
        go(move || while (&*other).write_all(&numbers(3000)).is_ok() {});
        let group = Arc::new(WaitGroup::new());
        for _ in 0..10 {
            let one = one.clone();
            group.go(move || {
                let mut buf = [0; 1024];
                for _ in 0..10 {
                    one.set_read_deadline(Some(now() + MS)).unwrap();
                    if let Err(error) = (&*one).read(&mut buf) {
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                    }
                }
            });
        }
        group.wait();
    });
}

/// Go: RacyWrite.
#[test]
fn racy_write() {
    each_pipe(|one, other| {
        go_discard(&other);
        let group = Arc::new(WaitGroup::new());
        for _ in 0..10 {
            let one = one.clone();
            group.go(move || {
                for _ in 0..10 {
                    one.set_write_deadline(Some(now() + MS)).unwrap();
                    if let Err(error) = (&*one).write(&[7; 1024]) {
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                    }
                }
            });
        }
        group.wait();
        one.close().unwrap();
    });
}

/// Go: ReadTimeout.
#[test]
fn read_timeout() {
    each_pipe(|one, other| {
        go_discard(&other);
        one.set_read_deadline(past()).unwrap();
        assert_eq!(kind((&*one).read(&mut [0; 1024])), ErrorKind::TimedOut);
        (&*one).write_all(&[0; 1024]).unwrap();
        one.close().unwrap();
    });
}

/// Go: WriteTimeout.
#[test]
fn write_timeout() {
    each_pipe(|one, other| {
        go(move || while (&*other).write_all(&[1; 100]).is_ok() {});
        one.set_write_deadline(past()).unwrap();
        assert_eq!(kind((&*one).write(&[0; 1024])), ErrorKind::TimedOut);
        (&*one).read_exact(&mut [0; 1024]).unwrap();
        one.close().unwrap();
    });
}

/// Go: PastTimeout.
#[test]
fn past_timeout() {
    each_pipe(|one, other| {
        go_echo(&other);
        round_trip(&one);
        one.set_deadline(past()).unwrap();
        assert_eq!(kind((&*one).write(&[0; 1024])), ErrorKind::TimedOut);
        assert_eq!(kind((&*one).read(&mut [0; 1024])), ErrorKind::TimedOut);
        round_trip(&one);
        one.close().unwrap();
    });
}

/// Go: PresentTimeout. A deadline in the past, set while calls wait.
#[test]
fn present_timeout() {
    each_pipe(|one, _other| {
        let (reader, writer) = (one.clone(), one.clone());
        let read = spawn(move || kind((&*reader).read(&mut [0; 1024])));
        let write = spawn(move || {
            loop {
                if let Err(error) = (&*writer).write(&[0; 1024]) {
                    return error.kind();
                }
            }
        });
        until_waiting(&one, Side::Read);
        until_waiting(&one, Side::Write);
        one.set_read_deadline(past()).unwrap();
        assert_eq!(read.join().unwrap(), ErrorKind::TimedOut);
        one.set_write_deadline(past()).unwrap();
        assert_eq!(write.join().unwrap(), ErrorKind::TimedOut);
    });
}

/// Go: FutureTimeout.
#[test]
fn future_timeout() {
    each_pipe(|one, other| {
        let deadline = now() + 100 * MS;
        one.set_deadline(Some(deadline)).unwrap();
        let writer = one.clone();
        let write = spawn(move || {
            loop {
                if let Err(error) = (&*writer).write(&[b'.'; 1024]) {
                    assert!(now() >= deadline);
                    return error.kind();
                }
            }
        });
        assert_eq!(kind((&*one).read(&mut [0; 1024])), ErrorKind::TimedOut);
        assert!(now() >= deadline);
        assert_eq!(write.join().unwrap(), ErrorKind::TimedOut);
        // The stream can be used again, after the bytes of the writes that had room.
        go_echo(&other);
        one.set_deadline(None).unwrap();
        (&*one).write_all(b"!").unwrap();
        let mut byte = [0];
        while byte != *b"!" {
            (&*one).read_exact(&mut byte).unwrap();
        }
        round_trip(&one);
        one.close().unwrap();
    });
}

/// Go: CloseTimeout. A close while calls with a deadline wait.
#[test]
fn close_timeout() {
    each_pipe(|one, _other| {
        one.set_deadline(Some(now() + HOUR)).unwrap();
        let (reader, writer) = (one.clone(), one.clone());
        let read = spawn(move || (&*reader).read(&mut [0; 1024]));
        let write = spawn(move || {
            loop {
                if let Err(error) = (&*writer).write(&[0; 1024]) {
                    return error;
                }
            }
        });
        until_waiting(&one, Side::Read);
        until_waiting(&one, Side::Write);
        one.close().unwrap();
        assert_closed(read.join().unwrap());
        assert!(is_closed(&write.join().unwrap()));
    });
}

/// Go: ConcurrentMethods.
#[test]
fn concurrent_methods() {
    each_pipe(|one, other| {
        go_echo(&other);
        let group = Arc::new(WaitGroup::new());
        for _ in 0..100 {
            let methods: [fn(&PipeStream); 7] = [
                |stream| _ = { stream }.read(&mut [0; 1024]),
                |stream| _ = { stream }.write(&[0; 1024]),
                |stream| stream.set_deadline(Some(now() + 10 * MS)).unwrap(),
                |stream| stream.set_read_deadline(Some(now() + 10 * MS)).unwrap(),
                |stream| stream.set_write_deadline(Some(now() + 10 * MS)).unwrap(),
                |stream| assert_eq!(stream.local_addr().unwrap().to_string(), "pipe"),
                |stream| assert_eq!(stream.peer_addr().unwrap().to_string(), "pipe"),
            ];
            for method in methods {
                let one = one.clone();
                group.go(move || method(&one));
            }
        }
        group.wait();
        one.close().unwrap();
    });
}

/// Go: net's TestPipeCloseError.
#[test]
fn close_error() {
    each_pipe(|one, other| {
        one.close().unwrap();
        assert_closed((&*one).read(&mut [0]));
        assert_closed((&*one).write(&[0]));
        assert_eq!((&*other).read(&mut [0]).unwrap(), 0);
        assert_eq!(kind((&*other).write(&[0])), ErrorKind::BrokenPipe);
        assert_closed(one.set_deadline(None));
        assert_closed(one.close());
        other.set_deadline(None).unwrap();
    });
}

// ---- Go's io.Pipe, by name ------------------------------------------------------------------------------------------

/// Go: TestPipe1. A single write, and a single read.
#[test]
fn pipe_1() {
    everywhere(|| {
        let (mut reader, writer) = io_pipe();
        let write = spawn(move || ((&writer).write(b"hello, world").unwrap(), writer));
        let mut buf = [0; 64];
        assert_eq!(reader.read(&mut buf).unwrap(), 12);
        assert_eq!(&buf[..12], b"hello, world");
        let (n, writer) = write.join().unwrap();
        assert_eq!(n, 12);
        writer.close().unwrap();
        reader.close().unwrap();
    });
}

/// Go: TestPipe2. Writes of several sizes, each read as a whole.
#[test]
fn pipe_2() {
    everywhere(|| {
        let (mut reader, writer) = io_pipe();
        let (lengths, received) = io_channel();
        go(move || {
            let mut buf = [0; 64];
            loop {
                let n = reader.read(&mut buf).unwrap();
                lengths.send(n);
                if n == 0 {
                    return;
                }
            }
        });
        let buf = [1; 64];
        for i in 0..5 {
            let part = &buf[..5 + i * 10];
            assert_eq!((&writer).write(part).unwrap(), part.len());
            assert_eq!(received.recv(), part.len());
        }
        writer.close().unwrap();
        assert_eq!(received.recv(), 0);
    });
}

struct Lengths(sudog_runtime::chan::Chan<usize>);

impl Lengths {
    fn send(&self, n: usize) {
        self.0.send(n);
    }

    fn recv(&self) -> usize {
        self.0.recv().expect("a length")
    }
}

fn io_channel() -> (Lengths, Lengths) {
    let channel = sudog_runtime::chan::Chan::new(0);
    (Lengths(channel.clone()), Lengths(channel))
}

/// Go: TestPipe3. A large write by several reads.
#[test]
fn pipe_3() {
    everywhere(|| {
        let (mut reader, writer) = io_pipe();
        let want = numbers(128);
        let sent = want.clone();
        let write = spawn(move || {
            assert_eq!((&writer).write(&sent).unwrap(), 128);
            writer.close().unwrap();
        });
        let mut got = vec![0; 1024];
        let mut total = 0;
        for (room, n) in [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (128, 1), (256, 0)] {
            assert_eq!(reader.read(&mut got[total..total + room]).unwrap(), n);
            total += n;
        }
        write.join().unwrap();
        assert_eq!(got[..total], want);
    });
}

#[derive(Debug, PartialEq, Eq)]
struct MyError(u32);

impl std::fmt::Display for MyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "my error {}", self.0)
    }
}

impl std::error::Error for MyError {}

/// The error with which an end was closed, as the other end reports it.
#[track_caller]
fn my_error<T: std::fmt::Debug>(result: io::Result<T>) -> u32 {
    let error = result.expect_err("an error");
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Arc<io::Error>>()).expect("a shared error");
    inner.get_ref().and_then(|inner| inner.downcast_ref::<MyError>()).expect("the error of the close").0
}

/// Closes an end before, or while, the other end uses the pipe.
fn close_while<T: Send + 'static>(
    is_waited_for: bool,
    waits: impl FnOnce() -> T + Send + 'static,
    until_waiting: impl FnOnce(),
    close: impl FnOnce(),
) -> T {
    if is_waited_for {
        let call = spawn(waits);
        until_waiting();
        close();
        call.join().unwrap()
    } else {
        close();
        waits()
    }
}

type Close<T> = fn(&T) -> io::Result<()>;

/// Go: TestPipeReadClose, TestPipeReadClose2.
#[test]
fn pipe_read_close() {
    everywhere(|| {
        let closes: [(Close<PipeWriter>, Option<u32>); 3] = [
            (PipeWriter::close, None),
            (|writer| writer.close_with_error(MyError(1)), Some(1)),
            (|writer| writer.close_with_error(ErrorKind::UnexpectedEof.to_string()), None),
        ];
        for is_waited_for in [false, true] {
            for (n, (close, error)) in closes.into_iter().enumerate() {
                let (reader, writer) = io_pipe();
                let reader = Arc::new(reader);
                let read = reader.clone();
                let result = close_while(
                    is_waited_for,
                    move || (&*read).read(&mut [0; 64]),
                    || until(|| reader.waiters() == 1),
                    || close(&writer).unwrap(),
                );
                match (n, error) {
                    (0, _) => assert_eq!(result.unwrap(), 0),
                    (_, Some(n)) => assert_eq!(my_error(result), n),
                    _ => assert_eq!(result.unwrap_err().to_string(), ErrorKind::UnexpectedEof.to_string()),
                }
                reader.close().unwrap();
                assert_closed((&*reader).read(&mut [0; 64]));
            }
        }
    });
}

fn until(state: impl Fn() -> bool) {
    eventually(|| {
        gosched();
        state()
    });
}

/// Go: TestPipeWriteClose, TestPipeWriteClose2.
#[test]
fn pipe_write_close() {
    everywhere(|| {
        let closes: [(Close<PipeReader>, Option<u32>); 2] =
            [(PipeReader::close, None), (|reader| reader.close_with_error(MyError(2)), Some(2))];
        for is_waited_for in [false, true] {
            for (close, error) in closes {
                let (reader, writer) = io_pipe();
                let writer = Arc::new(writer);
                let write = writer.clone();
                let result = close_while(
                    is_waited_for,
                    move || (&*write).write(&[0; 64]),
                    || until(|| writer.waiters() == 1),
                    || close(&reader).unwrap(),
                );
                match error {
                    None => assert_eq!(kind(result), ErrorKind::BrokenPipe),
                    Some(n) => assert_eq!(my_error(result), n),
                }
                writer.close().unwrap();
            }
        }
    });
}

/// Go: TestWriteEmpty, TestWriteNil. Different: a write of no bytes does not wait for a reader.
#[test]
fn write_empty() {
    everywhere(|| {
        let (mut reader, writer) = io_pipe();
        assert_eq!((&writer).write(&[]).unwrap(), 0);
        writer.close().unwrap();
        assert_eq!(kind(reader.read_exact(&mut [0; 2])), ErrorKind::UnexpectedEof);
    });
}

/// Go: TestWriteAfterWriterClose.
#[test]
fn write_after_writer_close() {
    everywhere(|| {
        let (mut reader, writer) = io_pipe();
        let write = spawn(move || {
            (&writer).write_all(b"hello").unwrap();
            writer.close().unwrap();
            assert_closed((&writer).write(b"world"));
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        write.join().unwrap();
    });
}

/// Go: io's TestPipeCloseError. The first error stays.
#[test]
fn io_close_error() {
    everywhere(|| {
        let (reader, mut writer) = io_pipe();
        reader.close_with_error(MyError(1)).unwrap();
        assert_eq!(my_error(writer.write(b"x")), 1);
        assert_closed(reader.close_with_error(MyError(2)));
        assert_eq!(my_error(writer.write(b"x")), 1);

        let (mut reader, writer) = io_pipe();
        writer.close_with_error(MyError(1)).unwrap();
        assert_eq!(my_error(reader.read(&mut [0])), 1);
        assert_closed(writer.close_with_error(MyError(2)));
        assert_eq!(my_error(reader.read(&mut [0])), 1);
    });
}

/// Go: TestPipeConcurrent. Writes are not mixed; reads lose nothing.
#[test]
fn pipe_concurrent() {
    const INPUT: &[u8] = b"0123456789abcdef";
    const COUNT: usize = 8;
    everywhere(|| {
        let (mut reader, writer) = io_pipe();
        let writer = Arc::new(writer);
        for _ in 0..COUNT {
            let writer = writer.clone();
            go(move || (&*writer).write_all(INPUT).unwrap());
        }
        for _ in 0..COUNT {
            let mut got = [0; INPUT.len()];
            // In two reads: a write is not over after the first.
            let (front, back) = got.split_at_mut(5);
            reader.read_exact(front).unwrap();
            gosched();
            reader.read_exact(back).unwrap();
            assert_eq!(got, INPUT);
        }

        let (reader, mut writer) = io_pipe();
        let reader = Arc::new(reader);
        let reads = [(); COUNT].map(|()| {
            let reader = reader.clone();
            spawn(move || {
                let mut buf = [0; INPUT.len() / 2];
                (&*reader).read_exact(&mut buf).unwrap();
                buf
            })
        });
        // Each write is of a single byte, so each read makes several calls, beside the other readers.
        let sent: Vec<u8> = INPUT.repeat(COUNT / 2);
        for byte in sent.chunks(1) {
            writer.write_all(byte).unwrap();
        }
        let mut got = reads.map(|read| read.join().unwrap()).concat();
        let mut want = sent;
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want);
    });
}

// ---- more -----------------------------------------------------------------------------------------------------------

/// A write without a buffer returns only after the last of its bytes has been read, also if it is larger than an offer.
#[test]
fn a_write_waits_for_the_last_byte() {
    everywhere(|| {
        const LEN: usize = 200_000;
        let (mut one, other) = pipe();
        let other = Arc::new(other);
        let writer = other.clone();
        let write = spawn(move || (&*writer).write(&numbers(LEN as u64)));
        let mut got = vec![0; LEN - 1];
        one.read_exact(&mut got).unwrap();
        until_waiting(&other, Side::Write);
        one.read_exact(&mut [0]).unwrap();
        assert_eq!(write.join().unwrap().unwrap(), LEN);
        assert!(got[..] == numbers(LEN as u64)[..LEN - 1]);
    });
}

/// A write that ends early returns the number of the bytes that have been read, and takes the others back.
#[test]
fn an_unread_rest_is_taken_back() {
    everywhere(|| {
        let (one, mut other) = pipe();
        let one = Arc::new(one);
        let ends: [fn(&PipeStream); 2] =
            [|stream| stream.set_write_deadline(past()).unwrap(), |stream| stream.close().unwrap()];
        for end in ends {
            let writer = one.clone();
            let write = spawn(move || ((&*writer).write(b"abcdef"), (&*writer).write(b"ghi")));
            other.read_exact(&mut [0; 2]).unwrap();
            until_waiting(&one, Side::Write);
            end(&one);
            let (first, second) = write.join().unwrap();
            assert_eq!(first.unwrap(), 2);
            second.unwrap_err();
            if !is_closed(&one.set_write_deadline(None).err().unwrap_or_else(|| ErrorKind::Other.into())) {
                assert_eq!(kind(other.try_read(&mut [0])), ErrorKind::WouldBlock);
            }
        }
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    });
}

/// Once an end has been closed, the other end reads nothing of a write that has waited, before that write has returned.
#[test]
fn an_offer_of_a_closed_end_is_not_read() {
    everywhere(|| {
        let (one, mut other) = pipe();
        let one = Arc::new(one);
        let writer = one.clone();
        let write = spawn(move || (&*writer).write(b"abc"));
        until_waiting(&one, Side::Write);
        one.close().unwrap();
        assert_eq!(other.read(&mut [0; 3]).unwrap(), 0);
        assert_closed(write.join().unwrap());
    });
}

/// Checks that the bytes in a buffer can be read after the end that wrote them has been closed.
#[test]
fn a_buffer_is_read_to_its_end() {
    everywhere(|| {
        let (mut one, mut other) = buffered_pipe(10);
        assert_eq!(one.write(&[1; 20]).unwrap(), 10);
        assert_eq!(kind(one.try_write(&[1])), ErrorKind::WouldBlock);
        other.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(one.write(&[2; 20]).unwrap(), 3);
        drop(one);
        let mut rest = Vec::new();
        other.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [1, 1, 1, 1, 1, 1, 1, 2, 2, 2]);
    });
}

#[test]
fn shutdown() {
    each_pipe(|one, other| {
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(kind((&*one).write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!((&*other).read(&mut [0]).unwrap(), 0);
        // The other direction is open.
        let reader = one.clone();
        let read = spawn(move || (&*reader).read(&mut [0]));
        (&*other).write_all(b"x").unwrap();
        assert_eq!(read.join().unwrap().unwrap(), 1);
        let reader = one.clone();
        let read = spawn(move || (&*reader).read(&mut [0]));
        until_waiting(&one, Side::Read);
        one.shutdown(Shutdown::Read).unwrap();
        assert_eq!(read.join().unwrap().unwrap(), 0);
        assert_eq!(kind((&*other).write(b"x")), ErrorKind::BrokenPipe);
    });
}

#[test]
fn contexts_end_calls() {
    each_pipe(|one, other| {
        let (ctx, _cancel) = context::with_timeout(&background(), 10 * MS);
        assert_eq!(kind(one.read_limited(&mut [0], &ctx)), ErrorKind::TimedOut);
        let (ctx, cancel) = context::with_cancel(&background());
        let writer = one.clone();
        let write = spawn(move || {
            loop {
                if let Err(error) = writer.write_limited(&[1; 1024], &ctx) {
                    return error;
                }
            }
        });
        until_waiting(&one, Side::Write);
        cancel.cancel();
        let error = write.join().unwrap();
        assert_eq!(error.get_ref().and_then(|error| error.downcast_ref()), Some(&context::Error::Canceled));
        // Only whole writes are in the pipe.
        one.close().unwrap();
        let mut rest = Vec::new();
        (&*other).read_to_end(&mut rest).unwrap();
        assert!(rest.iter().all(|&byte| byte == 1));
    });
}

/// A deadline in a bubble: to the nanosecond, and no time passes.
#[test]
fn a_wait_is_durable_in_a_bubble() {
    let _watchdog = Watchdog::new();
    for pipe in PIPES {
        synctest::test(move || {
            let (one, other) = pipe();
            let one = Arc::new(one);
            let begun = now();
            one.set_deadline(Some(begun + 24 * HOUR)).unwrap();
            let reader = one.clone();
            let read = spawn(move || (kind((&*reader).read(&mut [0])), now()));
            synctest::wait();
            assert_eq!(one.waiters(Side::Read), 1);
            let writer = one.clone();
            let write = spawn(move || {
                loop {
                    if let Err(error) = (&*writer).write(&[0; 1000]) {
                        return (error.kind(), now());
                    }
                }
            });
            sleep(HOUR);
            assert_eq!(one.waiters(Side::Write), 1);
            let ended = (ErrorKind::TimedOut, begun + 24 * HOUR);
            assert_eq!(read.join().unwrap(), ended);
            assert_eq!(write.join().unwrap(), ended);
            drop(other);
        });
    }
}

/// A read that can never end is a leak, which the bubble reports.
#[test]
#[should_panic(expected = "deadlock")]
fn a_bubble_reports_a_wait_that_cannot_end() {
    let _watchdog = Watchdog::new();
    synctest::test(|| {
        let (one, _other) = pipe();
        _ = { &one }.read(&mut [0]);
    });
}

/// Threads alone, outside of `run`.
#[test]
fn threads() {
    let _watchdog = Watchdog::new();
    for pipe in PIPES {
        let (mut one, mut other) = pipe();
        std::thread::scope(|s| {
            s.spawn(move || {
                for part in numbers(100_000).chunks(777) {
                    one.write_all(part).unwrap();
                }
            });
            let mut got = Vec::new();
            other.read_to_end(&mut got).unwrap();
            assert!(got == numbers(100_000));
        });
    }
}

// ---- tasks ----------------------------------------------------------------------------------------------------------

async fn echo_task(stream: PipeStream) {
    let mut buf = [0; 500];
    loop {
        let n = stream.read_async(&mut buf).await.unwrap();
        if n == 0 {
            return;
        }
        stream.write_all_async(&buf[..n]).await.unwrap();
    }
}

/// Tasks at both ends; and a goroutine at one of them.
#[test]
fn tasks() {
    everywhere(|| {
        for pipe in PIPES {
            let (one, other) = pipe();
            let echo = spawn_async(echo_task(other));
            block_on(async {
                for n in 0..100_u8 {
                    one.write_all_async(&[n; 50]).await.unwrap();
                    let mut back = [0; 50];
                    let mut got = 0;
                    while got < 50 {
                        got += one.read_async(&mut back[got..]).await.unwrap();
                    }
                    assert_eq!(back, [n; 50]);
                }
            });
            let one = Arc::new(one);
            let writer = one.clone();
            let write = spawn(move || {
                (&*writer).write_all(&numbers(100_000)).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut got = Vec::new();
            (&*one).read_to_end(&mut got).unwrap();
            assert!(got == numbers(100_000));
            write.join().unwrap();
            echo.join().unwrap();
        }
    });
}

/// A task's write without a buffer keeps its bytes in the pipe, once; a write that waits comes after these bytes.
#[test]
fn a_tasks_write_without_a_buffer() {
    everywhere(|| {
        let (one, mut other) = pipe();
        let one = Arc::new(one);
        assert_eq!(block_on(one.write_async(b"ab")).unwrap(), 2);
        assert_eq!(kind(one.try_write(b"cd")), ErrorKind::WouldBlock);
        let writer = one.clone();
        let write = spawn(move || (&*writer).write(b"ef"));
        until_waiting(&one, Side::Write);
        let mut got = [0; 4];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abef");
        assert_eq!(write.join().unwrap().unwrap(), 2);
        // A close withdraws the bytes of a write that waits, and no bytes of a task.
        assert_eq!(one.try_write(b"gh").unwrap(), 2);
        let writer = one.clone();
        let write = spawn(move || (&*writer).write(b"ij"));
        until_waiting(&one, Side::Write);
        one.close().unwrap();
        let mut rest = String::new();
        other.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "gh");
        assert_closed(write.join().unwrap());
    });
}

#[test]
fn readable_and_writable() {
    fn is_pending(future: impl Future) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
    everywhere(|| {
        for (pipe, room) in [(PIPES[0], 3), (PIPES[1], 100)] {
            let (one, other) = pipe();
            assert!(is_pending(one.readable()));
            block_on(other.writable()).unwrap();
            let other = Arc::new(other);
            let writer = other.clone();
            let write = spawn_async(async move { writer.write_all_async(&vec![1; room]).await });
            block_on(one.readable()).unwrap();
            write.join().unwrap().unwrap();
            assert!(is_pending(other.writable()), "there is no room");
            let writer = other.clone();
            let writable = spawn_async(async move { writer.writable().await });
            until(|| other.waiters(Side::Write) == 1);
            { &one }.read_exact(&mut vec![0; room]).unwrap();
            writable.join().unwrap().unwrap();
            assert!(is_pending(one.readable()));

            // Calls that would fail are ready.
            assert_eq!(one.try_write(&vec![1; room]).unwrap(), room);
            assert!(is_pending(one.writable()));
            other.close().unwrap();
            block_on(one.readable()).unwrap();
            block_on(one.writable()).unwrap();
            assert_closed(block_on(other.readable()));
        }
        let listener = PipeListener::with_capacity(1, 1);
        assert!(is_pending(listener.readable()));
        let dialer = listener.dialer();
        let dial = spawn(move || dialer.dial().map(drop));
        block_on(listener.readable()).unwrap();
        dial.join().unwrap().unwrap();
        listener.try_accept().unwrap();
        assert!(is_pending(listener.readable()));
    });
}

/// A write that gives up makes room for the write of a task that waits.
#[test]
fn a_rest_that_is_taken_back_makes_room() {
    everywhere(|| {
        let (one, mut other) = pipe();
        let one = Arc::new(one);
        let (ctx, cancel) = context::with_cancel(&background());
        let writer = one.clone();
        let write = spawn(move || writer.write_limited(b"given up", &ctx));
        until_waiting(&one, Side::Write);
        let writer = one.clone();
        let task = spawn_async(async move { writer.write_async(b"written").await });
        until(|| one.waiters(Side::Write) == 2);
        cancel.cancel();
        assert_eq!(kind(write.join().unwrap()), ErrorKind::Other);
        assert_eq!(task.join().unwrap().unwrap(), 7);
        drop(one);
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert_eq!(text, "written");
    });
}

#[test]
fn a_task_ends_at_its_deadline_and_at_a_close() {
    everywhere(|| {
        let (one, _other) = pipe();
        let one = Arc::new(one);
        one.set_read_deadline(Some(now() + 10 * MS)).unwrap();
        assert_eq!(kind(block_on(one.read_async(&mut [0]))), ErrorKind::TimedOut);
        one.set_read_deadline(None).unwrap();
        let reader = one.clone();
        let read = spawn_async(async move { reader.read_async(&mut [0]).await });
        until_waiting(&one, Side::Read);
        one.close().unwrap();
        assert_closed(read.join().unwrap());
    });
}

// ---- the listener ---------------------------------------------------------------------------------------------------

#[test]
fn connections_to_a_listener() {
    everywhere(|| {
        for capacity in [0, 100, 1 << 16] {
            let listener = PipeListener::with_capacity(2, capacity);
            let dialer = listener.dialer();
            let server = spawn(move || {
                let mut served = 0;
                for stream in listener.incoming().take(20) {
                    let stream = stream.unwrap();
                    go(move || copy_until_an_error(&stream, &mut { &stream }));
                    served += 1;
                }
                served
            });
            let clients = [(); 20].map(|()| {
                let dialer = dialer.clone();
                spawn(move || round_trip(&dialer.dial().unwrap()))
            });
            clients.into_iter().for_each(|client| client.join().unwrap());
            assert_eq!(server.join().unwrap(), 20);
            assert_eq!(kind(dialer.dial()), ErrorKind::ConnectionRefused); // the drop has closed the listener
        }
    });
}

#[test]
fn a_full_backlog() {
    everywhere(|| {
        let listener = Arc::new(PipeListener::with_capacity(1, 10));
        let dialer = listener.dialer();
        let first = dialer.dial().unwrap();
        let (ctx, _cancel) = context::with_timeout(&background(), 10 * MS);
        assert_eq!(kind(dialer.dial_limited(&ctx)), ErrorKind::TimedOut);
        let dial = spawn(move || dialer.dial());
        until_listener_waits(&listener, Side::Write);
        let (mut accepted, _) = listener.accept().unwrap();
        let mut second = dial.join().unwrap().unwrap();
        { &first }.write_all(b"1").unwrap();
        let mut byte = [0];
        accepted.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"1", "the oldest first");
        second.write_all(b"2").unwrap();
        listener.close().unwrap();
        assert_eq!(kind(second.read(&mut [0])), ErrorKind::ConnectionReset);
        assert_eq!(kind(second.write(&[0])), ErrorKind::ConnectionReset);
        drop(first);
        assert_eq!(accepted.read(&mut [0]).unwrap(), 0, "accepted, and so not reset");
    });
}

fn until_listener_waits(listener: &PipeListener, side: Side) {
    until(|| listener.waiters(side) > 0);
}

#[test]
fn a_listener_that_is_closed() {
    everywhere(|| {
        let listener = Arc::new(PipeListener::with_capacity(1, 10));
        listener.set_read_deadline(Some(now() + MS)).unwrap();
        assert_eq!(kind(listener.accept()), ErrorKind::TimedOut);
        listener.set_read_deadline(None).unwrap();
        assert_eq!(kind(listener.try_accept()), ErrorKind::WouldBlock);
        let accepts = [(); 3].map(|()| {
            let listener = listener.clone();
            spawn(move || listener.accept().map(drop))
        });
        until_listener_waits(&listener, Side::Read);
        listener.close().unwrap();
        accepts.into_iter().for_each(|accept| assert_closed(accept.join().unwrap()));
        assert_closed(listener.close());
        assert_closed(listener.accept());
        assert!(listener.incoming().next().is_none());
        assert_eq!(kind(listener.dialer().dial()), ErrorKind::ConnectionRefused);

        // Dials that wait.
        let listener = Arc::new(PipeListener::with_capacity(1, 10));
        let _first = listener.dialer().dial().unwrap();
        let dialer = listener.dialer();
        let dial = spawn(move || dialer.dial().map(drop));
        until_listener_waits(&listener, Side::Write);
        listener.close().unwrap();
        assert_eq!(kind(dial.join().unwrap()), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn tasks_accept_and_dial() {
    everywhere(|| {
        let listener = PipeListener::with_capacity(1, 100);
        let dialer = listener.dialer();
        let server = spawn_async(async move {
            for _ in 0..3 {
                echo_task(listener.accept_async().await.unwrap().0).await;
            }
        });
        block_on(async {
            for _ in 0..3 {
                let stream = dialer.dial_async().await.unwrap();
                stream.write_all_async(b"hello").await.unwrap();
                let mut back = [0; 5];
                assert_eq!(stream.read_async(&mut back).await.unwrap(), 5);
                assert_eq!(&back, b"hello");
            }
        });
        server.join().unwrap();
    });
}

// ---- at random ------------------------------------------------------------------------------------------------------

/// Writes and reads with short deadlines, by several goroutines: each byte that a write has counted has been read, once,
/// and no other byte has.
#[test]
fn what_is_counted_is_read() {
    everywhere(|| {
        let (one, other) = pipe();
        let (one, other) = (Arc::new(one), Arc::new(other));
        let writers = [(); 3].map(|()| {
            let one = one.clone();
            spawn(move || {
                let mut counted = 0;
                for n in 0..300_u32 {
                    let len = [1, 10, 1000, 100_000][n as usize % 4];
                    let (ctx, _cancel) = context::with_timeout(&background(), Duration::from_micros(u64::from(n) % 70));
                    match one.write_limited(&vec![0; len], &ctx) {
                        Ok(n) => counted += n,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                    }
                    sleep(Duration::from_micros(7));
                }
                counted
            })
        });
        let readers = [(); 2].map(|()| {
            let other = other.clone();
            spawn(move || {
                let mut read = 0;
                let mut buf = [0; 3000];
                loop {
                    let (ctx, _cancel) = context::with_timeout(&background(), Duration::from_micros(31));
                    match other.read_limited(&mut buf, &ctx) {
                        Ok(0) => return read,
                        Ok(n) => read += n,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                    }
                    sleep(Duration::from_micros(11));
                }
            })
        });
        let counted: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        one.close().unwrap();
        let read: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(counted, read);
        assert_ne!(counted, 0);
    });
}

// ---- traits of other crates -----------------------------------------------------------------------------------------

#[cfg(feature = "futures-io")]
#[test]
fn futures_io() {
    use std::future::poll_fn;
    use std::pin::Pin;

    use futures_io::{AsyncRead, AsyncWrite};

    everywhere(|| {
        for pipe in PIPES {
            let (one, other) = pipe();
            let mut buf = [0; 10];
            block_on(async {
                assert_eq!(poll_fn(|cx| Pin::new(&mut &one).poll_write(cx, b"abc")).await.unwrap(), 3);
                assert_eq!(poll_fn(|cx| Pin::new(&mut &other).poll_read(cx, &mut buf)).await.unwrap(), 3);
                assert_eq!(&buf[..3], b"abc");
                poll_fn(|cx| Pin::new(&mut &one).poll_close(cx)).await.unwrap();
                assert_eq!(poll_fn(|cx| Pin::new(&mut &other).poll_read(cx, &mut buf)).await.unwrap(), 0);
            });
        }
    });
}

/// A server of hyper, whose client is slow by the bubble's clock.
#[cfg(feature = "hyper")]
#[test]
fn a_hyper_server_in_a_bubble() {
    use http_body_util::Full;
    use hyper::body::{Bytes, Incoming};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use sudog_runtime::goroutine::{go_async, sleep_async};

    async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        sleep_async(HOUR).await;
        Ok(Response::new(Full::from(request.uri().path().to_owned())))
    }

    let _watchdog = Watchdog::new();
    for capacity in [0, 10, 1 << 16] {
        synctest::test(move || {
            let listener = PipeListener::with_capacity(10, capacity);
            let dialer = listener.dialer();
            go(move || {
                for stream in listener.incoming().take(2) {
                    let stream = stream.unwrap();
                    go_async(async {
                        http1::Builder::new().serve_connection(stream, service_fn(answer)).await.unwrap()
                    });
                }
            });
            let begun = now();
            let clients = ["/a", "/b"].map(|path| {
                let dialer = dialer.clone();
                spawn(move || {
                    let mut stream = dialer.dial().unwrap();
                    for byte in format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").bytes() {
                        stream.write_all(&[byte]).unwrap();
                        sleep(Duration::from_secs(1));
                    }
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
                    assert!(text.ends_with(&format!("\r\n\r\n{path}")), "{text}");
                })
            });
            clients.into_iter().for_each(|client| client.join().unwrap());
            let took = now() - begun;
            assert!(HOUR < took && took < 2 * HOUR, "{took:?}");
        });
    }
}
