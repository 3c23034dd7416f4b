//! The command `netbench`: servers of echoes or of HTTP under the same load, on this library, on tokio and on Go.
//!
//! Each server is a separate process, so that its memory and its processor time can be measured. The client is this
//! process: the client opens idle connections. Then each active connection gets a thread, which sends a request and
//! reads the response, again and again.

mod servers;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use self::servers::{echo_by_our_tasks, serve_by_goroutines, serve_by_tasks};
use super::versus_go::go::{Go, Program};
use crate::measure::metrics::{median, quantile};
use crate::options::{List, MAX_RUNS, list, number, seconds};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::run::noise::{end_with_input, noise};
use crate::targets::registry::names;

names! {
    /// The server that answers.
    enum Server;
    unknown "server";
    Sudog = "sudog", "A goroutine for each connection, over `sudog-net`.";
    SudogAsync = "sudog-async", "A task of our workers for each connection, over `sudog-net`. For echoes.";
    Tokio = "tokio", "A task for each connection.";
    Go = "go", "A goroutine for each connection. Needs Go.";
}

names! {
    /// The protocol of requests and responses.
    enum Protocol;
    unknown "protocol";
    Echo = "echo", "64 bytes, which come back.";
    Http = "http", "HTTP/1.1, answered with a line of text: sudog's `http`, hyper on tokio, Go's `net/http`.";
    Json = "json", "HTTP/1.1, answered with an object of JSON.";
}

/// The time for which a handler of a slow request sleeps.
const SLOW: Duration = Duration::from_millis(100);

impl Protocol {
    /// Returns a request. `is_slow`: a request whose handler sleeps before the answer.
    fn request(self, is_slow: bool) -> &'static [u8] {
        match self {
            Self::Echo => &[7; 64],
            Self::Http | Self::Json if is_slow => {
                b"GET /slow HTTP/1.1\r\nHost: localhost\r\nUser-Agent: netbench\r\nAccept: */*\r\n\r\n"
            }
            Self::Http | Self::Json => {
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: netbench\r\nAccept: */*\r\n\r\n"
            }
        }
    }

    /// Reads the first response, and returns its length, which is that of all responses.
    fn first_response(self, stream: &mut impl Read) -> io::Result<usize> {
        if self == Self::Echo {
            stream.read_exact(&mut [0; 64])?;
            return Ok(64);
        }
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a response of status 200 with a length");
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            response.push(byte[0]);
        }
        let header = str::from_utf8(&response).map_err(|_| invalid())?.to_ascii_lowercase();
        let length = header.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let length: usize = length.filter(|_| header.starts_with("http/1.1 200 ok\r\n")).ok_or_else(invalid)?;
        stream.read_exact(&mut vec![0; length])?;
        Ok(response.len() + length)
    }
}

/// Options of `netbench`.
#[derive(Args, Clone, Debug)]
#[command(allow_negative_numbers = true)]
pub struct NetbenchArgs {
    /// Servers: sudog, sudog-async (echo only), tokio, go
    #[arg(long, value_name = "A,B", default_value = "sudog,tokio,go", value_parser = list::<Server>)]
    pub servers: List<Server>,

    /// Protocol: echo, http, json
    #[arg(long, default_value_t = Protocol::Echo)]
    pub protocol: Protocol,

    /// Every N-th request of a connection is slow: its handler sleeps for 100 ms, and its time does not count. 0: none. For HTTP
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<0, 1_000_000>)]
    pub slow: usize,

    /// Processors that a server may use
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<1, 256>)]
    pub workers: usize,

    /// Connections without traffic
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number::<0, 1_000_000>)]
    pub idle: usize,

    /// Connections with traffic
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = number::<1, 10_000>)]
    pub active: usize,

    /// Seconds of a run
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,

    /// Runs of each server, in turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_RUNS>)]
    pub runs: usize,
}

/// Options of `netbench-child`.
#[derive(Args, Clone, Debug)]
pub struct ChildArgs {
    /// The server
    pub server: Server,

    /// Protocol: echo, http, json
    #[arg(long, default_value_t = Protocol::Echo)]
    pub protocol: Protocol,

    /// Number of workers
    #[arg(long, value_parser = number::<1, 256>)]
    pub workers: usize,
}

/// The result of a server under the load: medians over the runs.
#[derive(Clone, Serialize, Debug)]
struct Record {
    bench: &'static str,
    protocol: Protocol,
    slow: usize,
    server: Server,
    workers: usize,
    idle: usize,
    active: usize,
    runs: usize,
    /// Round trips per second.
    throughput: f64,
    /// Round trips per second in the worst run.
    worst_throughput: f64,
    /// The server's processor time for a round trip, in nanoseconds.
    processor_time: f64,
    /// The time that 99 of 100 round trips do not exceed, in nanoseconds.
    p99: f64,
    /// The time that 999 of 1000 round trips do not exceed, in nanoseconds.
    p99_9: f64,
    /// The longest round trip, in nanoseconds.
    longest: f64,
    /// The memory of the server with all connections open, in bytes.
    memory: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    throughput: f64,
    processor_time: f64,
    p99: f64,
    p99_9: f64,
    longest: f64,
    memory: f64,
}

/// A running server. Dropping the value ends the server's process.
pub(super) struct Running {
    child: Child,
    port: u16,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Result<Self, Failure> {
        let fail = |error: io::Error| Failure::Run(format!("a server does not start: {error}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fail)?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or_else(|| fail(io::ErrorKind::BrokenPipe.into()))?;
        BufReader::new(stdout).read_line(&mut line).map_err(fail)?;
        let port = line.trim().parse().map_err(|_| Failure::Run(format!("a server says '{}'", line.trim())))?;
        Ok(Self { child, port })
    }

    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Returns the server's resident memory, in bytes: `VmRSS` of `/proc/PID/status`.
    fn memory(&self) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn processor_time(&self) -> io::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The program's name, in parentheses, may contain spaces and parentheses. So count the fields after the last
        // parenthesis: fields 0 to 10 are skipped, 11 is the user time, 12 the system time.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |field: usize| fields.get(field).and_then(|field| field.parse::<f64>().ok());
        let tick = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100) as f64;
        match (ticks(11), ticks(12)) {
            (Some(user), Some(system)) => Ok((user + system) / tick * 1e9),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command_of(server: Server, args: &NetbenchArgs, program: Option<&Program>) -> Result<Command, Failure> {
    let workers = args.workers;
    if let (Server::Go, Some(program)) = (server, program) {
        return Ok(program.net_server(args.protocol.name(), workers));
    }
    let this = env::current_exe().map_err(|error| Failure::Run(format!("where is this program? {error}")))?;
    let mut command = Command::new(this);
    command.args([
        "netbench-child",
        server.name(),
        "--workers",
        &workers.to_string(),
        "--protocol",
        args.protocol.name(),
    ]);
    command.env("SUDOG_MAXPROCS", workers.to_string());
    noise().ask(&mut command);
    Ok(command)
}

fn measure(args: &NetbenchArgs, server: &Running) -> io::Result<Reading> {
    let idle = (0..args.idle).map(|_| server.connect()).collect::<io::Result<Vec<_>>>()?;
    let active = (0..args.active).map(|_| server.connect()).collect::<io::Result<Vec<_>>>()?;
    let (over, start) = (AtomicBool::new(false), Barrier::new(args.active + 1));
    let round_trips = |mut stream: &TcpStream| -> io::Result<(u64, Vec<u64>)> {
        // Each connection gets a response before the clock starts: the server has accepted all of them.
        stream.write_all(args.protocol.request(false))?;
        let mut buf = vec![0; args.protocol.first_response(&mut stream)?];
        start.wait();
        let (mut count, mut times) = (0_u64, Vec::new());
        while !over.load(Ordering::Relaxed) {
            count += 1;
            let is_slow = args.slow > 0 && count.is_multiple_of(args.slow as u64);
            let begun = Instant::now();
            stream.write_all(args.protocol.request(is_slow))?;
            stream.read_exact(&mut buf)?;
            if !is_slow {
                times.push(begun.elapsed().as_nanos() as u64);
            }
        }
        Ok((count, times))
    };
    thread::scope(|s| {
        let threads: Vec<_> = active.iter().map(|stream| s.spawn(|| round_trips(stream))).collect();
        start.wait();
        let (begun, time) = (Instant::now(), server.processor_time()?);
        thread::sleep(args.seconds);
        let memory = server.memory()?;
        let (took, time) = (begun.elapsed(), server.processor_time()? - time);
        over.store(true, Ordering::Relaxed);
        let (mut count, mut times) = (0, Vec::new());
        for thread in threads {
            let (n, of_thread) = thread.join().map_err(|_| io::Error::other("a client has panicked"))??;
            count += n;
            times.extend(of_thread);
        }
        drop(idle);
        times.sort_unstable();
        let at = |per_mille| quantile(&times, per_mille).unwrap_or(0) as f64;
        Ok(Reading {
            throughput: count as f64 / took.as_secs_f64(),
            processor_time: time / count as f64,
            p99: at(990),
            p99_9: at(999),
            longest: at(1000),
            memory,
        })
    })
}

/// Raises the limit of descriptors. Both ends of all connections, of servers and of this process, are descriptors.
pub(super) fn raise_limit(connections: usize) -> Result<(), Failure> {
    let fail = |error| Failure::Run(format!("the limit of descriptors: {error}"));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(fail)?;
    let wanted = connections as rlim_t + 100;
    if wanted > hard {
        return Err(Failure::Usage(format!("{connections} connections need more descriptors than the limit, {hard}")));
    }
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard).map_err(fail)
}

/// Raises the limit of descriptors as far as the system allows.
fn raise_limit_to_most() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// Runs `netbench`: measures and prints.
pub fn run(args: &NetbenchArgs, output: Output) -> Result<(), Failure> {
    if args.protocol == Protocol::Echo && args.slow > 0 {
        return Err(Failure::Usage("--slow needs --protocol http or json".into()));
    }
    if args.protocol != Protocol::Echo && args.servers.0.contains(&Server::SudogAsync) {
        return Err(Failure::Usage("the server sudog-async needs --protocol echo".into()));
    }
    raise_limit(args.idle + args.active)?;
    let servers = &args.servers.0;
    let program = if servers.contains(&Server::Go) { Some(Go::find()?.build()?) } else { None };
    let mut readings = vec![Vec::new(); servers.len()];
    let progress = output.progress("netbench", args.runs * servers.len());
    for _ in 0..args.runs {
        for (&server, readings) in servers.iter().zip(&mut readings) {
            let command = command_of(server, args, program.as_ref())?;
            // Bind the clients, and a server of Go. Our servers bind themselves.
            let one_processor = if server == Server::Go { noise().bind_what_starts() } else { None };
            let running = Running::start(command)?;
            let _one_processor = one_processor.or_else(|| noise().bind_what_starts());
            let reading = measure(args, &running).map_err(|error| Failure::Run(format!("{server:?}: {error}")))?;
            readings.push(reading);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let mut table = Table::new(
        1,
        [
            "server",
            "round trips/s",
            "worst run",
            "ratio",
            "processor us",
            "p99 us",
            "p99.9 us",
            "longest us",
            "memory MB",
        ],
    );
    let mut first = None;
    for (&server, readings) in servers.iter().zip(&readings) {
        let middle = |of: fn(&Reading) -> f64| median(readings.iter().map(of));
        let record = Record {
            bench: "netbench",
            protocol: args.protocol,
            slow: args.slow,
            server,
            workers: args.workers,
            idle: args.idle,
            active: args.active,
            runs: args.runs,
            throughput: middle(|reading| reading.throughput),
            worst_throughput: readings.iter().map(|reading| reading.throughput).fold(f64::INFINITY, f64::min),
            processor_time: middle(|reading| reading.processor_time),
            p99: middle(|reading| reading.p99),
            p99_9: middle(|reading| reading.p99_9),
            longest: middle(|reading| reading.longest),
            memory: middle(|reading| reading.memory),
        };
        let first = *first.get_or_insert(record.throughput);
        table.row([
            server.to_string(),
            format!("{:.0}", record.throughput),
            format!("{:.0}", record.worst_throughput),
            format!("{:.2}", record.throughput / first),
            format!("{:.1}", record.processor_time / 1e3),
            format!("{:.0}", record.p99 / 1e3),
            format!("{:.0}", record.p99_9 / 1e3),
            format!("{:.0}", record.longest / 1e3),
            format!("{:.1}", record.memory / 1e6),
        ]);
        output.record(&record)?;
    }
    output.text(format_args!(
        "netbench, {}: {} idle and {} active connections, {} workers; medians of {} runs of {:?}\n\n{table}\n",
        args.protocol.name(),
        args.idle,
        args.active,
        args.workers,
        args.runs,
        args.seconds
    ))
}

/// Runs a server until the standard input ends.
pub fn serve(args: &ChildArgs) -> Result<(), Failure> {
    if args.server == Server::Go {
        return Err(Failure::Usage("Go's server is Go's".into()));
    }
    raise_limit_to_most().map_err(|error| Failure::Run(format!("the limit of descriptors: {error}")))?;
    end_with_input();
    match args.server {
        Server::Sudog => serve_by_goroutines(args.protocol),
        Server::SudogAsync => echo_by_our_tasks(),
        Server::Tokio => serve_by_tasks(args.workers, args.protocol),
        Server::Go => unreachable!("refused above"),
    }
    .map_err(|error| Failure::Run(error.to_string()))
}

pub(super) fn say(port: u16) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{port}")?;
    out.flush()
}
