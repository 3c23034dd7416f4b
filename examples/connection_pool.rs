//! A pool of connections as in Go's `database/sql`: at most so many are open, so many are kept when idle, none is used
//! after its lifetime, and a caller's context ends the wait for a connection.
//!
//! Two channels are the whole state: a place in `open` stands for a connection that is open, and `idle` has the
//! connections that wait for their next use. The program runs in a bubble, with a server in memory: no time passes.
//!
//! `cargo run --features net --example connection_pool`

use std::io::{self, Read, Write};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sudog::net::{PipeListener, PipeStream};
use sudog::prelude::*;
use sudog::synctest;
use sudog::time::now;

type Connect = Box<dyn Fn(&Context) -> io::Result<PipeStream> + Send + Sync>;

struct Pool {
    connect: Connect,
    lifetime: Duration,
    /// A value for each connection that is in use.
    in_use: Chan<()>,
    idle: Chan<Connection>,
    closed: Context,
    close: context::CancelFunc,
}

struct Connection {
    stream: PipeStream,
    created: Instant,
}

/// A connection in use. A drop gives the connection back to the pool.
struct Lent {
    /// None, if the connection is not to be used again.
    connection: Option<Connection>,
    pool: Arc<Pool>,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl Pool {
    fn new(max_open: usize, max_idle: usize, lifetime: Duration, connect: Connect) -> Arc<Self> {
        let (closed, close) = context::with_cancel(&context::background());
        Arc::new(Self { connect, lifetime, in_use: Chan::new(max_open), idle: Chan::new(max_idle), closed, close })
    }

    /// Returns an idle connection, or a new one. Waits while the maximum is in use.
    fn get(self: &Arc<Self>, ctx: &Context) -> Result<Lent, Error> {
        // Look first: `select!` chooses at random if there is a place, too.
        if let Some(error) = ctx.err() {
            return Err(error.into());
        }
        if self.closed.err().is_some() {
            return Err("the pool is closed".into());
        }
        select! {
            send(self.in_use, ()) => {},
            recv(ctx.done_chan()) => return Err(ctx.err().expect("it is done").into()),
            recv(self.closed.done_chan()) => return Err("the pool is closed".into()),
        }
        // From here on, the drop gives the place back.
        let mut lent = Lent { connection: None, pool: self.clone() };
        let fresh = self.idle.try_iter().find(|connection| connection.is_fresh(self.lifetime));
        lent.connection = Some(match fresh {
            Some(connection) => connection,
            None => Connection { stream: (self.connect)(ctx)?, created: now() },
        });
        Ok(lent)
    }

    /// Closes the idle connections now, and those in use when they come back. Calls that wait fail.
    fn close(&self) {
        self.close.cancel();
        self.idle.try_iter().for_each(drop);
    }
}

impl Connection {
    fn is_fresh(&self, lifetime: Duration) -> bool {
        now() - self.created < lifetime
    }
}

impl Deref for Lent {
    type Target = PipeStream;

    fn deref(&self) -> &PipeStream {
        &self.connection.as_ref().expect("lent").stream
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let pool = &self.pool;
        if let Some(connection) = self.connection.take().filter(|connection| connection.is_fresh(pool.lifetime)) {
            // If there are enough, the connection is dropped, and so closed.
            _ = pool.idle.try_send(connection);
        }
        if pool.closed.err().is_some() {
            pool.idle.try_iter().for_each(drop); // `close` may have looked before
        }
        // After the connection has come back: the next caller finds the connection.
        pool.in_use.try_recv().expect("the place of this connection");
    }
}

/// Answers each byte with the number of the connection. Returns the number of connections.
fn serve(listener: &PipeListener) -> u8 {
    let mut connections = 0;
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        connections += 1;
        let number = connections;
        go(move || {
            while stream.read_exact(&mut [0]).is_ok() {
                sleep(Duration::from_secs(1)); // a slow query
                stream.write_all(&[number]).expect("a client");
            }
        });
    }
    connections
}

/// Makes a query, and returns the number of its connection.
fn query(pool: &Arc<Pool>, ctx: &Context) -> Result<u8, Error> {
    let mut lent = pool.get(ctx)?;
    let mut answer = [0];
    let mut stream: &PipeStream = &lent;
    if let Err(error) = stream.write_all(b"?").and_then(|()| stream.read_exact(&mut answer)) {
        lent.connection = None; // broken
        return Err(error.into());
    }
    Ok(answer[0])
}

fn main() {
    synctest::test(|| {
        let listener = Arc::new(PipeListener::new());
        let dialer = listener.dialer();
        let server = listener.clone();
        let served = spawn(move || serve(&server));
        let background = context::background();
        let minute = Duration::from_secs(60);
        let pool = Pool::new(2, 2, minute, Box::new(move |ctx| dialer.dial_limited(ctx)));

        // Ten queries of a second each over two connections.
        let begun = now();
        let queries = [(); 10].map(|()| {
            let (pool, ctx) = (pool.clone(), background.clone());
            spawn(move || query(&pool, &ctx).expect("an answer"))
        });
        let numbers = queries.map(|query| query.join().unwrap());
        println!("ten queries took {:?}, by the connections {numbers:?}", now() - begun);
        assert_eq!(now() - begun, Duration::from_secs(5));

        // A caller that waits for a connection no longer than half a second.
        let busy = [(); 2].map(|()| pool.get(&background).expect("a connection"));
        let (ctx, _cancel) = context::with_timeout(&background, Duration::from_millis(500));
        let error = query(&pool, &ctx).expect_err("no connection is free");
        println!("while both are in use: {error}");
        assert_eq!(error.downcast_ref(), Some(&context::Error::DeadlineExceeded));
        drop(busy);

        // The idle connections are used again, until they are too old.
        assert!(query(&pool, &background).expect("an answer") <= 2);
        sleep(minute);
        let fresh = query(&pool, &background).expect("an answer");
        println!("after the lifetime of the others: connection {fresh}");
        assert_eq!(fresh, 3);

        pool.close();
        assert_eq!(query(&pool, &background).expect_err("closed").to_string(), "the pool is closed");
        listener.close().expect("open");
        assert_eq!(served.join().unwrap(), 3);
    });
}
