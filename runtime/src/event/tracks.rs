//! The steps of goroutines as tracks of a trace: a track for each worker, and a track for each goroutine.
//!
//! | track of | slices | a slice ends at |
//! |---|---|---|
//! | a worker | the goroutine, or the poll of a task, that runs | `Park`, `Yield`, `End` |
//! | a goroutine | `runnable`: before the goroutine begins, after a wake-up, after a yield | `Run` |
//! | | `running` | `Park`, `Yield`, `End` |
//! | | the wait reason, or `waiting` | `Ready`, `Expire` |
//!
//! An arrow leads to the `running` slice of a goroutine from the `running` slice of the goroutine that has started or
//! readied the first; or, if a thread or a worker's loop has done that, from a mark on the track of that thread or worker:
//!
//! | arrow | |
//! |---|---|
//! | `starts` | the goroutine that begins was started there |
//! | `wakes` | the goroutine was readied there |
//! | `hands over` | the goroutine was readied there, and the waker gave its worker up at once |
//!
//! All slices of a track are one after the other. A slice that has begun and not ended ends with the recording, with
//! `"open": true`. A slice whose beginning is not recorded is left out. A goroutine that joined the recording while it
//! waited has no `End`; such a goroutine ends at the next step of its worker.

use std::collections::HashMap;
use std::fmt;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::panic::Location;
use std::time::Duration;

use super::Who;
use super::steps::{Deed, Step};
use super::trace::us;

/// The process of a trace that has the tracks of workers and threads.
const WORKERS: u32 = 2;
/// The process of a trace that has the tracks of goroutines.
const GOROUTINES: u32 = 3;

/// A track: its process, and its number in the trace.
#[derive(Clone, Copy)]
struct Track(u32, usize);

/// The beginning of an arrow.
#[derive(Clone, Copy)]
struct Origin {
    at: Duration,
    track: Track,
    name: &'static str,
    /// The goroutine that acts, if a goroutine acts.
    goroutine: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The recording does not say.
    Unknown,
    Runnable,
    Running,
    /// The reason of the wait.
    Waiting(&'static str),
}

struct Goroutine {
    track: Track,
    /// The bytes of the name, as far as they are recorded.
    name: Vec<u8>,
    /// The code that the goroutine runs. Empty if the beginning is not recorded.
    code: &'static str,
    /// True for the poll of a task, which has no track.
    is_poll: bool,
    created_at: Option<&'static Location<'static>>,
    state: State,
    since: Duration,
    /// The worker on which the goroutine has run last.
    worker: u64,
    /// The beginning of the arrow to the next `running` slice.
    origin: Option<Origin>,
    /// True if a timer has ended the last wait.
    has_expired: bool,
    /// The goroutine that this goroutine has readied in its last step.
    readied: Option<u64>,
}

struct Worker {
    track: Track,
    /// The index of the worker, if the recording has a run on that worker.
    index: Option<u64>,
    /// The running goroutine, and the time when it began to run.
    running: Option<(u64, Duration)>,
}

pub(super) struct Tracks<'a, W> {
    out: &'a mut W,
    /// Workers by their addresses.
    workers: HashMap<u64, Worker>,
    /// The tracks of threads that are no workers, by the numbers of the threads.
    threads: HashMap<u64, Track>,
    goroutines: HashMap<u64, Goroutine>,
    /// Goroutines that have been started and have not begun, by the addresses of the packed jobs.
    started: HashMap<u64, (Origin, &'static Location<'static>)>,
    /// The number of tracks so far.
    tracks: usize,
    /// The number of arrows so far.
    arrows: u64,
}

impl Goroutine {
    fn title(&self, id: u64) -> String {
        match std::str::from_utf8(&self.name) {
            _ if self.is_poll => "poll of a task".to_owned(),
            Ok("") if self.code.is_empty() => format!("goroutine {id}"),
            Ok("") => format!("goroutine {id} {}", self.code),
            _ => format!("goroutine {id} {:?}", String::from_utf8_lossy(&self.name)),
        }
    }
}

impl<'a, W: Write> Tracks<'a, W> {
    /// Writes the tracks of `steps`, which are in the order of time. `end` is the time of the recording's last event.
    pub(super) fn write(out: &'a mut W, steps: &[Step], end: Duration) -> io::Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let mut tracks = Self {
            out,
            workers: HashMap::new(),
            threads: HashMap::new(),
            goroutines: HashMap::new(),
            started: HashMap::new(),
            tracks: 0,
            arrows: 0,
        };
        tracks.name("process_name", Track(WORKERS, 0), "workers")?;
        tracks.name("process_name", Track(GOROUTINES, 0), "goroutines")?;
        steps.iter().try_for_each(|step| tracks.add(step))?;
        tracks.end(end)
    }

    fn add(&mut self, step: &Step) -> io::Result<()> {
        let Step { at, who, deed } = *step;
        match (who, deed) {
            (_, Deed::Create { place, work }) => {
                self.begin_step(who);
                let origin = self.origin(at, who, 0, "starts")?;
                self.started.insert(work, (origin, place));
                Ok(())
            }
            (_, Deed::Ready { worker, goroutine }) => {
                self.begin_step(who);
                self.ready(at, who, worker, goroutine)
            }
            (_, Deed::Expire { goroutine }) => self.expire(at, goroutine),
            (_, Deed::Idle { worker }) => self.idle(at, worker),
            (Who::Goroutine(id), _) => self.add_own(id, at, deed),
            (Who::Thread(_), _) => Ok(()), // the other steps are those of goroutines
        }
    }

    /// Adds a step that a goroutine records about itself.
    fn add_own(&mut self, id: u64, at: Duration, deed: Deed) -> io::Result<()> {
        let readied = self.begin_step(Who::Goroutine(id));
        match deed {
            Deed::Begin { origin: code, work } => {
                let started = self.started.remove(&work);
                let goroutine = self.goroutine(id);
                (goroutine.code, goroutine.is_poll) = (code, work & 1 != 0);
                if let Some((origin, place)) = started {
                    (goroutine.state, goroutine.since) = (State::Runnable, origin.at);
                    (goroutine.origin, goroutine.created_at) = (Some(origin), Some(place));
                }
                Ok(())
            }
            Deed::Name(bytes) => {
                let goroutine = self.goroutine(id);
                goroutine.name.extend(bytes.iter().take_while(|&&byte| byte != 0));
                Ok(())
            }
            Deed::Run { worker, index } => self.run(id, at, worker, index),
            Deed::Park { reason } => {
                let goroutine = self.goroutine(id);
                // Keep a wake-up that has come in this run. An earlier wake-up was for another wait.
                let (state, since) = (goroutine.state, goroutine.since);
                goroutine.origin.take_if(|origin| state != State::Running || origin.at < since);
                let reason = if reason.is_empty() { "waiting" } else { reason };
                self.stop(id, at, State::Waiting(reason), "wait")
            }
            Deed::Yield => {
                let origin = readied.and_then(|other| self.goroutines.get_mut(&other)?.origin.as_mut());
                if let Some(origin) = origin.filter(|origin| origin.goroutine == Some(id)) {
                    origin.name = "hands over";
                }
                self.stop(id, at, State::Runnable, "yield")
            }
            _ => {
                self.stop(id, at, State::Unknown, "end")?;
                self.forget(id)
            }
        }
    }

    /// Returns the goroutine that the actor has readied in the step before this step.
    fn begin_step(&mut self, who: Who) -> Option<u64> {
        let Who::Goroutine(id) = who else { return None };
        self.goroutine(id).readied.take()
    }

    fn run(&mut self, id: u64, at: Duration, worker: u64, index: u64) -> io::Result<()> {
        self.idle(at, worker)?; // ends a goroutine whose end is not recorded
        let runs = self.worker(worker);
        (runs.index, runs.running) = (Some(index), Some((id, at)));
        self.goroutine(id).worker = worker;
        self.change(id, at, State::Running, "run")?;
        let goroutine = self.goroutine(id);
        // After a timeout, a waker that has taken the goroutine out of a queue has still to ready the goroutine.
        if std::mem::take(&mut goroutine.has_expired) {
            return Ok(());
        }
        goroutine.origin.take().map_or(Ok(()), |origin| self.arrow(origin, at, id))
    }

    /// Ends the run of a goroutine, whose state is `next` from now on.
    fn stop(&mut self, id: u64, at: Duration, next: State, until: &'static str) -> io::Result<()> {
        let worker = self.goroutine(id).worker;
        if self.workers.get(&worker).is_some_and(|worker| worker.running.is_some_and(|(runs, _)| runs == id)) {
            self.stop_worker(worker, at, until)?;
        }
        self.change(id, at, next, until)
    }

    /// Ends the slice on the track of a worker, if a goroutine runs there. Returns that goroutine.
    fn stop_worker(&mut self, worker: u64, at: Duration, until: &'static str) -> io::Result<Option<u64>> {
        let worker = self.worker(worker);
        let track = worker.track;
        let Some((id, since)) = worker.running.take() else { return Ok(None) };
        let title = self.goroutine(id).title(id);
        self.slice(track, &title, since, at, until, "")?;
        Ok(Some(id))
    }

    /// Notes that a worker runs no goroutine. If the recording says that the worker runs a goroutine, the end of that
    /// goroutine is not recorded.
    fn idle(&mut self, at: Duration, worker: u64) -> io::Result<()> {
        if let Some(id) = self.stop_worker(worker, at, "not recorded")? {
            self.change(id, at, State::Unknown, "not recorded")?;
            self.forget(id)?;
        }
        Ok(())
    }

    fn ready(&mut self, at: Duration, who: Who, worker: u64, id: u64) -> io::Result<()> {
        let state = self.goroutine(id).state;
        // A waker on another thread and then the goroutine's own worker record the same wake-up.
        if state != State::Runnable && self.goroutine(id).origin.is_none() {
            let origin = self.origin(at, who, worker, "wakes")?;
            self.goroutine(id).origin = Some(origin);
            if let Who::Goroutine(waker) = who {
                self.goroutine(waker).readied = Some(id);
            }
        }
        match state {
            State::Waiting(_) => self.change(id, at, State::Runnable, "ready"),
            _ => Ok(()), // the goroutine is about to park
        }
    }

    fn expire(&mut self, at: Duration, id: u64) -> io::Result<()> {
        let goroutine = self.goroutine(id);
        if !matches!(goroutine.state, State::Waiting(_)) {
            return Ok(());
        }
        goroutine.has_expired = true;
        self.change(id, at, State::Runnable, "timer")
    }

    /// Ends the slice of a goroutine's track, and begins the slice of another state.
    fn change(&mut self, id: u64, at: Duration, next: State, until: &'static str) -> io::Result<()> {
        let goroutine = self.goroutine(id);
        let (track, since) = (goroutine.track, std::mem::replace(&mut goroutine.since, at));
        let state = std::mem::replace(&mut goroutine.state, next);
        if goroutine.is_poll {
            return Ok(());
        }
        let (worker, place) = (goroutine.worker, goroutine.created_at.take_if(|_| state == State::Runnable));
        let (name, more) = match state {
            State::Unknown => return Ok(()),
            State::Runnable => match place {
                Some(place) => ("runnable", format!(",\"created at\":\"{}\"", Json(&place.to_string()))),
                None => ("runnable", String::new()),
            },
            State::Running => match self.workers.get(&worker).and_then(|worker| worker.index) {
                Some(index) => ("running", format!(",\"worker\":{index}")),
                None => ("running", String::new()),
            },
            State::Waiting(reason) => (reason, String::new()),
        };
        self.slice(track, name, since, at, until, &more)
    }

    /// Ends what is still open, and names the tracks.
    fn end(&mut self, at: Duration) -> io::Result<()> {
        let mut workers: Vec<_> = self.workers.iter().map(|(&address, worker)| (worker.track.1, address)).collect();
        workers.sort_unstable();
        for (_, address) in workers {
            self.stop_worker(address, at, "open")?;
            let Worker { track, index, .. } = *self.worker(address);
            self.name("thread_name", track, &index.map_or("worker".to_owned(), |index| format!("worker {index}")))?;
        }
        let mut threads: Vec<_> = self.threads.iter().map(|(&number, &track)| (track.1, number)).collect();
        threads.sort_unstable();
        for (track, number) in threads {
            self.name("thread_name", Track(WORKERS, track), &Who::Thread(number).to_string())?;
        }
        let mut goroutines: Vec<_> = self.goroutines.keys().copied().collect();
        goroutines.sort_unstable();
        for id in goroutines {
            let goroutine = self.goroutine(id);
            let (state, since) = (goroutine.state, goroutine.since);
            if let Some(origin) = goroutine.origin.take_if(|_| state == State::Runnable) {
                self.arrow(origin, since, id)?;
            }
            self.change(id, at, State::Unknown, "open")?;
            self.forget(id)?;
        }
        Ok(())
    }

    /// Names the track of a goroutine that has ended, and forgets the goroutine.
    fn forget(&mut self, id: u64) -> io::Result<()> {
        match self.goroutines.remove(&id) {
            Some(goroutine) if !goroutine.is_poll => self.name("thread_name", goroutine.track, &goroutine.title(id)),
            _ => Ok(()),
        }
    }

    /// Returns a goroutine. Nothing is known about a goroutine before its first step.
    fn goroutine(&mut self, id: u64) -> &mut Goroutine {
        let tracks = &mut self.tracks;
        self.goroutines.entry(id).or_insert_with(|| Goroutine {
            track: new_track(GOROUTINES, tracks),
            name: Vec::new(),
            code: "",
            is_poll: false,
            created_at: None,
            state: State::Unknown,
            since: Duration::ZERO,
            worker: 0,
            origin: None,
            has_expired: false,
            readied: None,
        })
    }

    fn worker(&mut self, address: u64) -> &mut Worker {
        let tracks = &mut self.tracks;
        self.workers.entry(address).or_insert_with(|| Worker {
            track: new_track(WORKERS, tracks),
            index: None,
            running: None,
        })
    }

    /// Returns the beginning of an arrow from the actor. `worker` is not 0 if the loop of that worker acts.
    fn origin(&mut self, at: Duration, who: Who, worker: u64, name: &'static str) -> io::Result<Origin> {
        let (track, goroutine) = match who {
            Who::Goroutine(id) => {
                let Goroutine { track, is_poll, state, worker, .. } = *self.goroutine(id);
                let track = if is_poll { self.worker(worker).track } else { track };
                if state == State::Running {
                    return Ok(Origin { at, track, name, goroutine: Some(id) });
                }
                (track, Some(id))
            }
            Who::Thread(_) if worker != 0 => (self.worker(worker).track, None),
            Who::Thread(number) => {
                let tracks = &mut self.tracks;
                (*self.threads.entry(number).or_insert_with(|| new_track(WORKERS, tracks)), None)
            }
        };
        // Write a mark, which is a slice without length: viewers draw arrows between slices only.
        self.slice(track, name, at, at, name, "")?;
        Ok(Origin { at, track, name, goroutine })
    }

    /// Writes an arrow to the slice that begins at `at` on the goroutine's track.
    fn arrow(&mut self, origin: Origin, at: Duration, to: u64) -> io::Result<()> {
        let Goroutine { track, is_poll, worker, .. } = *self.goroutine(to);
        let Track(process, thread) = if is_poll { self.worker(worker).track } else { track };
        self.arrows += 1;
        let common = format!("\"name\":\"{0}\",\"cat\":\"goroutines\",\"id\":{1}", origin.name, self.arrows);
        let Track(from, from_thread) = origin.track;
        let ts = us(origin.at);
        write!(self.out, ",\n{{\"ph\":\"s\",{common},\"pid\":{from},\"tid\":{from_thread},\"ts\":{ts}}}")?;
        let ts = us(at);
        write!(self.out, ",\n{{\"ph\":\"f\",\"bp\":\"e\",{common},\"pid\":{process},\"tid\":{thread},\"ts\":{ts}}}")
    }

    /// Writes a slice. `more` has further arguments of the slice, each after a comma.
    fn slice(
        &mut self,
        Track(process, thread): Track,
        name: &str,
        since: Duration,
        at: Duration,
        until: &str,
        more: &str,
    ) -> io::Result<()> {
        let (ts, dur, name) = (us(since), us(at.saturating_sub(since)), Json(name));
        write!(self.out, ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{process},\"tid\":{thread},")?;
        write!(self.out, "\"ts\":{ts},\"dur\":{dur},\"args\":{{")?;
        match until {
            "open" => write!(self.out, "\"open\":true{more}}}}}"),
            _ => write!(self.out, "\"until\":\"{until}\"{more}}}}}"),
        }
    }

    fn name(&mut self, what: &str, Track(process, thread): Track, name: &str) -> io::Result<()> {
        let name = Json(name);
        write!(self.out, ",\n{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},")?;
        write!(self.out, "\"name\":\"{what}\",\"args\":{{\"name\":\"{name}\"}}}}")
    }
}

fn new_track(process: u32, tracks: &mut usize) -> Track {
    *tracks += 1;
    Track(process, *tracks)
}

/// Text inside a string of JSON.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '"' | '\\' => write!(f, "\\{char}"),
            '\0'..' ' => write!(f, "\\u{:04x}", u32::from(char)),
            _ => f.write_char(char),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Recording;
    use super::*;
    use serde_json::Value;

    const G: fn(u64) -> Who = Who::Goroutine;
    const LOOP: Who = Who::Thread(9);
    const RUN: Deed = Deed::Run { worker: 0x100, index: 3 };

    /// Returns the slices and arrows of a trace with these steps, in the order in which they are written: a slice as
    /// `track: name begin-end until`, an arrow as `name: track@time -> track@time`.
    fn trace(steps: &[(u64, Who, Deed)]) -> Vec<String> {
        let step = |&(at, who, deed): &_| Step { at: Duration::from_micros(at), who, deed };
        let recording = Recording { steps: steps.iter().map(step).collect(), ..Recording::default() };
        let mut text = Vec::new();
        recording.write_trace(&mut text).unwrap();
        let json: Value = serde_json::from_slice(&text).unwrap();
        let items = json["traceEvents"].as_array().unwrap();
        let of = |item: &Value, kind: &str| item["ph"] == kind;
        let name = |item: &Value| {
            let is_name = |name: &&Value| {
                name["name"] == "thread_name" && name["pid"] == item["pid"] && name["tid"] == item["tid"]
            };
            items.iter().find(is_name).map_or("?", |name| name["args"]["name"].as_str().unwrap()).to_owned()
        };
        let text = |item: &Value| match item["ph"].as_str().unwrap() {
            "X" => {
                let (begin, length) = (item["ts"].as_f64().unwrap(), item["dur"].as_f64().unwrap());
                let until = item["args"]["until"].as_str().unwrap_or("open");
                let what = item["name"].as_str().unwrap();
                Some(format!("{}: {what} {begin}-{} {until}", name(item), begin + length))
            }
            "s" => {
                let end = items.iter().find(|end| of(end, "f") && end["id"] == item["id"]).unwrap();
                let what = item["name"].as_str().unwrap();
                Some(format!("{what}: {}@{} -> {}@{}", name(item), item["ts"], name(end), end["ts"]))
            }
            _ => None,
        };
        items.iter().filter_map(text).collect()
    }

    #[test]
    fn a_wake_up_before_the_park_is_the_wake_up_of_that_park() {
        let found = trace(&[
            (0, G(1), RUN),
            (1, Who::Thread(2), Deed::Ready { worker: 0, goroutine: 1 }),
            (2, G(1), Deed::Park { reason: "chan receive" }),
            (3, LOOP, Deed::Ready { worker: 0x100, goroutine: 1 }),
            (4, G(1), RUN),
            (5, G(1), Deed::End),
        ]);
        assert_eq!(
            found,
            [
                "thread 2: wakes 1-1 wakes",
                "worker 3: goroutine 1 0-2 wait",
                "goroutine 1: running 0-2 wait",
                "goroutine 1: chan receive 2-3 ready",
                "goroutine 1: runnable 3-4 run",
                "wakes: thread 2@1.0 -> goroutine 1@4.0",
                "worker 3: goroutine 1 4-5 end",
                "goroutine 1: running 4-5 end",
            ]
        );
    }

    /// A waker takes a goroutine out of its queue while the goroutine's timer is due: the goroutine waits again, for that
    /// waker.
    #[test]
    fn a_timer_and_a_late_wake_up() {
        let found = trace(&[
            (0, G(1), RUN),
            (1, G(1), Deed::Park { reason: "" }),
            (2, LOOP, Deed::Expire { goroutine: 1 }),
            (3, Who::Thread(2), Deed::Ready { worker: 0, goroutine: 1 }),
            (4, G(1), RUN),
            (5, G(1), Deed::Park { reason: "" }),
            (6, LOOP, Deed::Ready { worker: 0x100, goroutine: 1 }),
            (7, G(1), RUN),
        ]);
        let arrows: Vec<_> = found.iter().filter(|line| line.contains("->")).collect();
        assert_eq!(arrows, ["wakes: worker 3@6.0 -> goroutine 1@7.0"]);
        let timers: Vec<_> = found.iter().filter(|line| line.ends_with("timer") || line.ends_with("ready")).collect();
        assert_eq!(timers, ["goroutine 1: waiting 1-2 timer", "goroutine 1: waiting 5-6 ready"]);
        assert_eq!(found.last().unwrap(), "goroutine 1: running 7-7 open");
    }

    /// A goroutine that joined the recording while it waited ends without a step of its own.
    #[test]
    fn an_end_that_is_not_recorded() {
        let joins =
            [(0, G(1), Deed::Park { reason: "sleep" }), (1, LOOP, Deed::Expire { goroutine: 1 }), (2, G(1), RUN)];
        let ended = ["worker 3: goroutine 1 2-3 not recorded", "goroutine 1: running 2-3 not recorded"];
        for next in [(3, LOOP, Deed::Idle { worker: 0x100 }), (3, G(2), RUN)] {
            let found = trace(&[&joins[..], &[next]].concat());
            assert_eq!(found[2..4], ended, "{found:?}");
        }
    }

    #[test]
    fn a_hand_over_is_a_wake_up_and_then_a_yield() {
        let steps = |between: &[(u64, Who, Deed)]| {
            let before = [
                (0, G(1), RUN),
                (1, G(1), Deed::Park { reason: "semacquire" }),
                (2, G(2), RUN),
                (3, G(2), Deed::Ready { worker: 0, goroutine: 1 }),
            ];
            let found = trace(&[&before, between, &[(8, G(2), Deed::Yield), (9, G(1), RUN)]].concat());
            found.into_iter().find(|line| line.contains("->")).unwrap()
        };
        assert_eq!(steps(&[]), "hands over: goroutine 2@3.0 -> goroutine 1@9.0");
        let waits = [(4, G(2), Deed::Park { reason: "" }), (5, LOOP, Deed::Expire { goroutine: 2 }), (6, G(2), RUN)];
        assert_eq!(steps(&waits), "wakes: goroutine 2@3.0 -> goroutine 1@9.0");
    }

    #[test]
    fn names_are_escaped() {
        let named = |text: &[u8]| {
            let mut bytes = [0; 15];
            bytes[..text.len()].copy_from_slice(text);
            Deed::Name(bytes)
        };
        let name = "a \"b\" \\ \u{1}".as_bytes();
        let found = trace(&[(0, G(1), RUN), (0, G(1), named(name)), (0, G(1), named(b" c")), (1, G(1), Deed::End)]);
        assert_eq!(found[0], format!("worker 3: goroutine 1 {:?} 0-1 end", "a \"b\" \\ \u{1} c"));
        assert_eq!(trace(&[]), [""; 0]);
    }
}
