//! Traces of goroutines: their tracks, slices and arrows, read by a parser of JSON that is not the project's. A process
//! has one recording.
#![cfg(all(unix, not(sudog_loom)))]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sudog::chan::{Chan, channel};
use sudog::low_level::event::{self, Recorder, Recording};
use sudog::low_level::sema::Wake;
use sudog::low_level::{RuntimeSema, Semaphore};
use sudog::runtime::{GoroutineInfo, dump, goexit, gosched};
use sudog::sync::{Mutex, WaitGroup};
use sudog::time::sleep;
use sudog::{Builder, Placement, go_async, run, spawn, synctest};
use support::Watchdog;

/// The processes of a trace.
const WORKERS: u64 = 2;
const GOROUTINES: u64 = 3;

/// Takes the turn to use the recorder.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: StdMutex<()> = StdMutex::new(());
    support::turn(&ALONE)
}

/// Records the goroutines of `program`.
fn traced(program: impl FnOnce()) -> Trace {
    Recorder::new().goroutines().start();
    program();
    Trace::of(&event::stop())
}

#[derive(Clone, Debug)]
struct Slice {
    name: String,
    /// The beginning and the end, in nanoseconds.
    begin: u64,
    end: u64,
    args: Value,
}

/// An end of an arrow: time, process and track.
type End = (u64, u64, u64);

struct Trace {
    text: String,
    /// The slices of each track, in the order of time, by the track's process and number.
    slices: HashMap<(u64, u64), Vec<Slice>>,
    names: HashMap<(u64, u64), String>,
    /// The name, the beginning and the end of each arrow.
    arrows: Vec<(String, End, End)>,
}

impl Trace {
    /// Reads a trace, and checks what must hold for each trace.
    fn of(recording: &Recording) -> Self {
        let mut text = Vec::new();
        recording.write_trace(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let mut trace = Self { text, slices: HashMap::new(), names: HashMap::new(), arrows: Vec::new() };
        let mut begun: HashMap<u64, (String, End)> = HashMap::new();
        let mut ended: HashMap<u64, (String, End)> = HashMap::new();
        for item in json["traceEvents"].as_array().unwrap() {
            let number = |key: &str| item[key].as_u64().unwrap_or(0);
            // Three digits after the point: times are whole nanoseconds.
            let time = |key: &str| (item[key].as_f64().unwrap() * 1000.0).round() as u64;
            let track = (number("pid"), number("tid"));
            let name = item["name"].as_str().unwrap().to_owned();
            match item["ph"].as_str().unwrap() {
                "M" if name == "thread_name" => {
                    let before = trace.names.insert(track, item["args"]["name"].as_str().unwrap().to_owned());
                    assert_eq!(before, None, "a track has two names");
                }
                "X" if track.0 >= WORKERS => {
                    let (begin, args) = (time("ts"), item["args"].clone());
                    trace.slices.entry(track).or_default().push(Slice { name, begin, end: begin + time("dur"), args });
                }
                "s" if item["cat"] == "goroutines" => {
                    assert!(begun.insert(number("id"), (name, (time("ts"), track.0, track.1))).is_none());
                }
                "f" if item["cat"] == "goroutines" => {
                    assert!(ended.insert(number("id"), (name, (time("ts"), track.0, track.1))).is_none());
                }
                _ => {}
            }
        }
        for slices in trace.slices.values_mut() {
            slices.sort_by_key(|slice| (slice.begin, slice.end));
        }
        for (id, (name, from)) in begun {
            let (also, to) = ended.remove(&id).unwrap_or_else(|| panic!("arrow {id} has no end"));
            assert_eq!(name, also);
            trace.arrows.push((name, from, to));
        }
        assert!(ended.is_empty(), "arrows without a beginning: {ended:?}");
        trace.check();
        trace
    }

    fn check(&self) {
        for (track, slices) in &self.slices {
            assert!(self.names.contains_key(track), "{track:?} has no name");
            for pair in slices.windows(2) {
                assert!(pair[0].end <= pair[1].begin, "slices of one track overlap: {pair:?}");
            }
        }
        for (name, from, to) in &self.arrows {
            assert!(from.0 <= to.0, "an arrow leads back in time: {name} {from:?} {to:?}");
            for &(at, process, track) in [from, to] {
                let slices = self.slices.get(&(process, track)).map_or(&[][..], Vec::as_slice);
                // The slices are in the order of time, and do not overlap.
                let next = slices.partition_point(|slice| slice.begin <= at);
                assert!(next > 0 && at <= slices[next - 1].end, "an arrow {name} has no slice at {at}");
            }
        }
    }

    /// Returns the track in a process whose name contains `name`.
    fn track(&self, process: u64, name: &str) -> (u64, u64) {
        let found: Vec<_> = self.names.iter().filter(|(track, is)| track.0 == process && is.contains(name)).collect();
        assert_eq!(found.len(), 1, "tracks called {name}: {found:?} in {}", self.text);
        *found[0].0
    }

    fn of_goroutine(&self, name: &str) -> &[Slice] {
        &self.slices[&self.track(GOROUTINES, name)]
    }

    /// Returns the names of the arrows that lead to a goroutine, in the order of time, and the tracks from which they
    /// lead.
    fn arrows_to(&self, name: &str) -> Vec<(&str, &str)> {
        let (process, number) = self.track(GOROUTINES, name);
        let mut arrows: Vec<_> = self.arrows.iter().filter(|(_, _, to)| (to.1, to.2) == (process, number)).collect();
        arrows.sort_by_key(|(_, _, to)| to.0);
        arrows.into_iter().map(|(name, from, _)| (name.as_str(), self.names[&(from.1, from.2)].as_str())).collect()
    }

    fn is_closed(&self) -> bool {
        self.slices.values().flatten().all(|slice| slice.args.get("open").is_none())
    }
}

fn names(slices: &[Slice]) -> Vec<&str> {
    slices.iter().map(|slice| slice.name.as_str()).collect()
}

/// Runs a goroutine called `name` in a bubble.
fn start(name: &str, f: impl FnOnce() + Send + 'static) {
    Builder::new().name(name).go(f);
}

#[test]
fn each_span_and_arrow_is_there() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let trace = traced(|| {
        synctest::test(move || {
            let (tx, rx) = channel::<u32>(0);
            start("the \"reader\"", move || {
                assert_eq!(rx.recv(), Ok(1));
                gosched();
                sleep(Duration::from_secs(5));
            });
            synctest::wait();
            tx.send(1).unwrap();
            synctest::wait();
            sleep(Duration::from_secs(10));
        });
    });
    let reader = trace.of_goroutine("reader");
    let spans = ["runnable", "running", "chan receive", "runnable", "running", "runnable", "running", "sleep"];
    assert_eq!(names(reader), [&spans[..], &["runnable", "running"]].concat());
    let until: Vec<_> = reader.iter().map(|slice| slice.args["until"].as_str().unwrap()).collect();
    assert_eq!(until, ["run", "wait", "ready", "run", "yield", "run", "wait", "timer", "run", "end"]);
    assert!(reader.windows(2).all(|pair| pair[0].end == pair[1].begin), "{reader:?}");
    assert!(reader[0].args["created at"].as_str().unwrap().starts_with(file!()), "{reader:?}");
    // What runs on the worker is what the goroutines say of themselves.
    let worker = trace.track(WORKERS, "worker 0");
    let runs = |title: &str| {
        let slices = trace.slices[&worker].iter().filter(|slice| slice.name.contains(title));
        slices.map(|slice| (slice.begin, slice.end)).collect::<Vec<_>>()
    };
    let running = reader.iter().filter(|slice| slice.name == "running").map(|slice| (slice.begin, slice.end));
    assert_eq!(runs("reader"), running.collect::<Vec<_>>());
    let main = trace.arrows_to("reader")[0].1;
    assert!(main.starts_with("goroutine "), "{main}");
    assert_eq!(trace.arrows_to("reader"), [("starts", main), ("wakes", main)]);
    let main = trace.of_goroutine(main);
    assert_eq!(main.iter().filter(|slice| slice.name == "synctest.Wait").count(), 2, "{main:?}");
    assert_eq!(main.iter().filter(|slice| slice.name == "sleep").count(), 1, "{main:?}");
    assert!(trace.is_closed());
}

#[test]
fn a_hand_over_is_an_arrow_of_its_own() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let trace = traced(|| {
        synctest::test(|| {
            let turn = Arc::new(RuntimeSema::new(0));
            let theirs = turn.clone();
            start("waiter", move || theirs.acquire(sudog::low_level::sema::Order::Fifo));
            synctest::wait();
            start("releaser", move || turn.release(Wake::Handoff));
        });
    });
    let arrows = trace.arrows_to("waiter");
    assert_eq!(arrows.iter().map(|arrow| arrow.0).collect::<Vec<_>>(), ["starts", "hands over"]);
    assert!(arrows[1].1.contains("releaser"), "{arrows:?}");
    assert_eq!(names(trace.of_goroutine("releaser")), ["runnable", "running", "runnable", "running"]);
    let (waiter, releaser) = (trace.of_goroutine("waiter"), trace.of_goroutine("releaser"));
    assert!(releaser[1].end <= waiter.last().unwrap().begin && waiter.last().unwrap().end <= releaser[3].begin);
    assert!(trace.is_closed());
}

/// A thread, and a goroutine of another worker, wake goroutines.
#[test]
fn a_waker_on_another_thread_is_named() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let (tx, rx) = channel::<u32>(0);
    let (tx2, rx2) = channel::<u32>(0);
    let trace = traced(|| {
        run(move || {
            let first = Builder::new().name("first").on(Placement::Worker(0)).spawn(move || rx.recv().unwrap());
            await_receiver("first");
            thread::spawn(move || tx.send(1).unwrap()).join().unwrap();
            assert_eq!(first.join().unwrap(), 1);
            let second = Builder::new().name("second").on(Placement::Worker(0)).spawn(move || rx2.recv().unwrap());
            await_receiver("second");
            let sender = Builder::new().name("sender").on(Placement::Worker(1)).spawn(move || tx2.send(2).unwrap());
            sender.join().unwrap();
            assert_eq!(second.join().unwrap(), 2);
        });
    });
    let kinds = |name: &str| trace.arrows_to(name).iter().map(|arrow| arrow.0).collect::<Vec<_>>();
    assert_eq!((kinds("first"), kinds("second")), (vec!["starts", "wakes"], vec!["starts", "wakes"]));
    assert!(trace.arrows_to("first")[1].1.starts_with("thread "), "{:?}", trace.arrows_to("first"));
    assert!(trace.arrows_to("second")[1].1.contains("sender"), "{:?}", trace.arrows_to("second"));
    let worker = |name: &str| trace.of_goroutine(name).last().unwrap().args["worker"].as_u64().unwrap();
    assert_eq!((worker("second"), worker("sender")), (0, 1));
}

/// Waits until the goroutine called `name` waits for a channel.
fn await_receiver(name: &str) {
    let waits = |info: &GoroutineInfo| info.name.as_deref() == Some(name) && info.wait_reason == "chan receive";
    while !dump().goroutines.iter().any(waits) {
        gosched();
    }
}

/// Goroutines that have begun before the recording are in the trace from a later wait on, also those of which no switch was
/// observed before. Dumps that ask them for their stacks meanwhile resume none of them for good.
#[test]
fn a_goroutine_that_waited_before_joins() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let (ping, pong) = (Chan::<u32>::new(0), Chan::<u32>::new(0));
    let mut all = None;
    run(|| {
        let (theirs, answers) = (ping.clone(), pong.clone());
        let answerer = spawn(move || {
            let mut count = 0_u32;
            while let Some(n) = theirs.recv() {
                count += 1;
                answers.send(n + 1);
            }
            count
        });
        let (tx, rx) = channel::<u32>(0);
        let waiter = Builder::new().name("waiter").spawn(move || rx.recv());
        await_receiver("waiter");
        ping.send(0);
        assert_eq!(pong.recv(), Some(1));
        Recorder::new().goroutines().start();
        let mut sent = 1;
        loop {
            ping.send(sent);
            assert_eq!(pong.recv(), Some(sent + 1));
            sent += 1;
            _ = dump();
            let trace = Trace::of(&event::snapshot());
            let waits = trace.slices.iter().filter(|(track, slices)| {
                track.0 == GOROUTINES && slices.iter().filter(|slice| slice.name == "chan receive").count() > 3
            });
            if waits.count() >= 2 {
                break;
            }
        }
        tx.send(7).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(7));
        ping.close();
        assert_eq!(answerer.join().unwrap(), sent);
        all = Some(Trace::of(&event::stop()));
    });
    assert!(!all.unwrap().arrows.is_empty());
}

#[test]
fn each_end_of_a_goroutine_ends_its_track() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let trace = traced(|| {
        run(|| {
            let spawn = |name: &str, f: fn()| Builder::new().name(name).spawn(f).join();
            assert!(spawn("returns", || ()).is_ok());
            assert!(spawn("panics", || std::panic::resume_unwind(Box::new(()))).is_err());
            assert!(spawn("exits", || goexit()).is_err());
        });
    });
    for name in ["returns", "panics", "exits"] {
        let slices = trace.of_goroutine(name);
        assert_eq!(names(slices).last(), Some(&"running"), "{name}");
        assert_eq!(slices.last().unwrap().args["until"], "end", "{name}");
    }
}

#[test]
fn polls_of_tasks_are_on_the_tracks_of_workers_only() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let trace = traced(|| {
        synctest::test(|| {
            let ch = Chan::<()>::new(0);
            let theirs = ch.clone();
            go_async(async move { _ = theirs.recv_async().await });
            synctest::wait();
            ch.close();
        });
    });
    let worker = &trace.slices[&trace.track(WORKERS, "worker 0")];
    assert_eq!(worker.iter().filter(|slice| slice.name == "poll of a task").count(), 2, "{worker:?}");
    assert!(trace.names.values().all(|name| !name.contains("task")), "{:?}", trace.names);
    assert!(trace.is_closed());
}

#[test]
fn a_recording_ends_and_begins_again() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let program = || run(|| spawn(gosched).join().unwrap());
    let lines = |recording: &Recording| Trace::of(recording).slices.len();
    let first = traced(program);
    assert!(!first.slices.is_empty());
    program();
    assert_eq!(lines(&event::snapshot()), 0, "nothing is recorded after the end");
    event::start();
    program();
    assert_eq!(lines(&event::stop()), 0, "goroutines were not asked for");
    let second = traced(program);
    assert!(!second.slices.is_empty());
}

#[test]
fn a_full_ring_keeps_the_last_steps() {
    const FEW: usize = 60;
    let _watchdog = Watchdog::new();
    let _alone = alone();
    Recorder::new().goroutines().capacity(FEW).start();
    synctest::test(|| (0..1000).for_each(|_| gosched()));
    assert!(event::snapshot().dropped > 1000);
    let trace = Trace::of(&event::snapshot());
    // A yield makes two events, and a capacity of 60 is one of 64.
    let spans = trace.slices.iter().filter(|(track, _)| track.0 == GOROUTINES).map(|(_, slices)| slices.len());
    let spans: usize = spans.sum();
    assert!((58..=64).contains(&spans), "{spans}");
    let mut recording = event::stop();
    recording.keep_last(Duration::ZERO);
    let last: usize = Trace::of(&recording).slices.values().map(Vec::len).sum();
    assert!(last <= 2, "only the last step is left: {last}");
}

/// A recording is looked into while a goroutine, and in builds with debug assertions a thread, waits for too long, once
/// for each such wait.
#[test]
fn long_waits_are_written() {
    const LONG: Duration = Duration::from_millis(50);
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let folder = std::env::temp_dir().join(format!("sudog-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("long-wait.json");
    let files = || std::fs::read_dir(&folder).unwrap().count();
    let of_locks: &[&str] = &["sync.Mutex"];
    let refuses =
        |threshold, path: &std::path::Path| Recorder::write_on_long_wait(of_locks, threshold, path).unwrap_err();
    assert_eq!(refuses(LONG, &file).to_string(), "no recording is under way");
    Recorder::new().goroutines().start();
    assert_eq!(refuses(Duration::ZERO, &file).to_string(), "a threshold of no time");
    assert_eq!(refuses(LONG, &folder.join("missing").join("file")).kind(), std::io::ErrorKind::NotFound);
    assert_eq!(refuses(LONG, &folder).kind(), std::io::ErrorKind::IsADirectory);
    assert_eq!(files(), 0);

    let (told, tells) = channel(16);
    Recorder::on_long_wait(of_locks, LONG, move |waits, recording| {
        assert!(waits.goroutines.iter().all(|info| info.waited > LONG), "{waits}");
        _ = told.send((waits.to_string(), recording));
    })
    .unwrap();
    Recorder::write_on_long_wait(of_locks, LONG, &file).unwrap();
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let (held, theirs, other) = (mutex.lock(), mutex.clone(), mutex.clone());
        start("waits-long", move || drop(theirs.lock()));
        sleep(3 * LONG); // no lock, so not in the list
        let (waits, recording) = tells.recv().unwrap();
        assert!(waits.contains("\"waits-long\" [sync.Mutex.Lock, ") && !waits.contains("[sleep"), "{waits}");
        assert!(Trace::of(&recording).names.values().any(|name| name.contains("waits-long")));
        sudog::blocking(|| support::eventually(|| file.exists())); // a worker that is busy answers no look
        let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert!(trace["traceEvents"].as_array().unwrap().len() > 1);
        assert_eq!(files(), 1, "nothing half-written is left");
        if cfg!(debug_assertions) {
            let waiter = thread::spawn(move || drop(other.lock()));
            let (waits, _) = tells.recv().unwrap();
            assert!(waits.lines().any(|line| line.starts_with("thread ")), "{waits}");
            drop(held);
            sudog::blocking(|| waiter.join().unwrap());
        }
    });
    _ = event::stop();
    // The sender goes with the thread.
    while tells.recv().is_ok() {}
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Goroutines on all workers wait for each other by locks, channels and timers, while snapshots are taken: each trace holds
/// together.
#[test]
fn traces_of_a_storm() {
    let _watchdog = Watchdog::new();
    let _alone = alone();
    let done = Arc::new(AtomicBool::new(false));
    Recorder::new().goroutines().capacity(1 << 11).start();
    run(|| {
        let (mutex, group) = (Arc::new(Mutex::new(0_u64)), Arc::new(WaitGroup::new()));
        let ch = Chan::<u64>::new(2);
        for n in 0..8 {
            let (mutex, ch, done) = (mutex.clone(), ch.clone(), done.clone());
            group.go(move || {
                while !done.load(Relaxed) {
                    *mutex.lock() += 1;
                    _ = if n % 2 == 0 { ch.try_send(n).is_ok() } else { ch.try_recv().is_ok() };
                    spawn(gosched).join().unwrap();
                    sleep(Duration::from_micros(50));
                }
            });
        }
        let theirs = done.clone();
        let reader = thread::spawn(move || {
            for _ in 0..20 {
                _ = Trace::of(&event::snapshot());
                support::pat();
            }
            theirs.store(true, Relaxed);
        });
        group.wait();
        reader.join().unwrap();
    });
    assert!(!Trace::of(&event::stop()).arrows.is_empty());
}
