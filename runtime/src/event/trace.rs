//! A recording as a trace for a viewer: the JSON of Chrome's Trace Event Format, which <https://ui.perfetto.dev> opens.
//!
//! Each thread and goroutine has a track. The slices of a track, and what begins and ends each:
//!
//! | slice | begins | ends |
//! |---|---|---|
//! | `asleep` | `Sleep`, `Requeue` | `Wake` or `Handoff` with the same waiter and lock; `Leave` of the same actor |
//! | `wants` | `Want` | `Locked` of the same actor and lock |
//! | `has` | `Locked` | `Unlocked` of the same actor and lock |
//!
//! An arrow leads from each `Wake` and `Handoff` to the waiter's track. Starvation mode has a track for each lock.
//! All other events are marks on the actor's track. What has not ended ends with the recording, with `"open": true`.
//!
//! The steps of goroutines have tracks of their own: see `tracks.rs`.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

#[cfg(all(unix, not(sudog_loom)))]
use super::tracks::Tracks;
use super::{Event, Kind, Recording, Who};

/// The name of the time in which a lock is in starvation mode.
const STARVATION: &str = "starvation mode";

/// A slice that has begun.
struct Begun {
    name: &'static str,
    at: Duration,
    track: usize,
    addr: usize,
}

/// What a slice is known by until its end: its name, its actor's track or its waiter's number, and its lock.
type Key = (&'static str, usize, usize);

struct Trace<W> {
    out: W,
    /// The track of each actor, numbered from 1 in the order of the first events.
    tracks: HashMap<Who, usize>,
    begun: HashMap<Key, Begun>,
    /// The number of arrows so far.
    arrows: u64,
}

impl Recording {
    /// Writes the recording as a trace: JSON in Chrome's Trace Event Format, which <https://ui.perfetto.dev> and
    /// `chrome://tracing` open. Each thread and goroutine has a track, which shows when the actor wanted a lock, slept
    /// and had the lock; an arrow leads from each waker to its waiter.
    ///
    /// A recording with [`Recorder::goroutines`](super::Recorder::goroutines) also has a track for each worker, which shows
    /// which goroutine runs, and a track for each goroutine, which shows when the goroutine runs, could run and waits, with
    /// the wait reason. Arrows `wakes` and `starts` lead to a goroutine from the goroutine or thread that has made it
    /// ready or has started it. An arrow is called `hands over` if the waker has given its worker up at once.
    ///
    /// # Errors
    ///
    /// The error of `out`. The trace is then not whole.
    ///
    /// # Examples
    ///
    /// ```standalone_crate
    /// use sudog::low_level::event::{self, Kind};
    ///
    /// event::start();
    /// event::record(Kind::Locked, 0x1000, 0);
    /// event::record(Kind::Unlocked, 0x1000, 0);
    /// let mut trace = Vec::new();
    /// event::stop().write_trace(&mut trace)?;
    /// assert!(String::from_utf8(trace)?.contains(r#""name":"has""#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_trace(&self, out: impl Write) -> io::Result<()> {
        let mut trace =
            Trace { out: io::BufWriter::new(out), tracks: HashMap::new(), begun: HashMap::new(), arrows: 0 };
        write!(trace.out, r#"{{"displayTimeUnit":"ns","otherData":{{"dropped":{}}},"traceEvents":["#, self.dropped)?;
        let named = r#"{"ph":"M","pid":1,"name":"process_name","args":{"name":"threads and goroutines"}}"#;
        write!(trace.out, "\n{named}")?;
        for event in &self.events {
            trace.add(event)?;
        }
        let end = self.end();
        trace.end(end)?;
        #[cfg(all(unix, not(sudog_loom)))]
        Tracks::write(&mut trace.out, &self.steps, end)?;
        writeln!(trace.out, "\n]}}")?;
        trace.out.flush()
    }
}

impl<W: Write> Trace<W> {
    fn add(&mut self, event: &Event) -> io::Result<()> {
        let Event { at, kind, addr, waiter, .. } = *event;
        let track = self.track(event.who)?;
        match kind {
            Kind::Sleep | Kind::Requeue => {
                self.begin(("asleep", waiter, addr), track, at)?;
            }
            Kind::Wake | Kind::Handoff => {
                self.mark(event, track)?;
                if let Some(asleep) = self.begun.remove(&("asleep", waiter, addr)) {
                    self.arrow(at, track, &asleep)?;
                    self.slice(&asleep, at, kind.name())?;
                }
            }
            Kind::Leave => {
                let left = ("asleep", waiter, addr);
                self.finish(left, at, kind.name())?;
            }
            Kind::Want => self.begin(("wants", track, addr), track, at)?,
            Kind::Locked => {
                self.finish(("wants", track, addr), at, kind.name())?;
                self.begin(("has", track, addr), track, at)?;
            }
            Kind::Unlocked => self.unlocked(track, addr, at)?,
            Kind::StarvingEnter => {
                self.end_starvation(addr, at)?;
                self.phase('b', STARVATION, addr, track, at)?;
                self.begun.insert((STARVATION, 0, addr), Begun { name: STARVATION, at, track, addr });
            }
            Kind::StarvingExit => self.end_starvation(addr, at)?,
            Kind::Barge | Kind::SpinWin | Kind::StolenToken => self.mark(event, track)?,
        }
        Ok(())
    }

    /// Returns the actor's track. Names the track at the actor's first event.
    fn track(&mut self, who: Who) -> io::Result<usize> {
        let next = self.tracks.len() + 1;
        let track = *self.tracks.entry(who).or_insert(next);
        if track == next {
            write!(
                self.out,
                ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{track},\"name\":\"thread_name\",\"args\":{{\"name\":\"{who}\"}}}}"
            )?;
        }
        Ok(track)
    }

    /// Begins a slice. A slice with the same key, whose end was dropped, ends here.
    fn begin(&mut self, key: Key, track: usize, at: Duration) -> io::Result<()> {
        let (name, _, addr) = key;
        self.finish(key, at, "dropped")?;
        self.begun.insert(key, Begun { name, at, track, addr });
        Ok(())
    }

    /// Ends a slice, if it has begun.
    fn finish(&mut self, key: Key, at: Duration, by: &'static str) -> io::Result<()> {
        self.begun.remove(&key).map_or(Ok(()), |begun| self.slice(&begun, at, by))
    }

    /// Ends the time in which an actor had a lock. Slices of a track must nest. So if a slice has begun later and is still
    /// open, as for locks that are taken hand over hand, the time has a track of its own.
    fn unlocked(&mut self, track: usize, addr: usize, at: Duration) -> io::Result<()> {
        let Some(has) = self.begun.remove(&("has", track, addr)) else { return Ok(()) };
        if self.begun.values().any(|later| later.track == track && later.name != STARVATION && later.at > has.at) {
            self.phase('b', "has", addr, track, has.at)?;
            return self.phase('e', "has", addr, track, at);
        }
        self.slice(&has, at, Kind::Unlocked.name())
    }

    /// Ends a lock's starvation mode, if the mode has begun.
    fn end_starvation(&mut self, addr: usize, at: Duration) -> io::Result<()> {
        let Some(begun) = self.begun.remove(&(STARVATION, 0, addr)) else { return Ok(()) };
        self.phase('e', STARVATION, addr, begun.track, at)
    }

    /// Writes the beginning (`b`) or the end (`e`) of a time that has a track of its own for each lock.
    fn phase(&mut self, phase: char, name: &str, addr: usize, track: usize, at: Duration) -> io::Result<()> {
        write!(self.out, ",\n{{\"ph\":\"{phase}\",\"cat\":\"lock\",\"name\":\"{name}\",\"id\":\"{addr:#x}\",")?;
        write!(self.out, "\"pid\":1,\"tid\":{track},\"ts\":{}}}", us(at))
    }

    /// Ends the slices that are still open.
    fn end(&mut self, at: Duration) -> io::Result<()> {
        let mut open: Vec<_> = self.begun.drain().map(|(_, begun)| begun).collect();
        open.sort_by_key(|begun| (begun.at, begun.track));
        open.iter().try_for_each(|begun| match begun.name {
            STARVATION => self.phase('e', STARVATION, begun.addr, begun.track, at),
            _ => self.slice(begun, at, "open"),
        })
    }

    fn slice(&mut self, begun: &Begun, end: Duration, by: &'static str) -> io::Result<()> {
        let Begun { name, at, track, addr } = *begun;
        let (ts, dur) = (us(at), us(end.saturating_sub(at)));
        write!(self.out, ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":1,\"tid\":{track},\"ts\":{ts},\"dur\":{dur},")?;
        write!(self.out, "\"args\":{{\"lock\":\"{addr:#x}\",")?;
        if by == "open" { write!(self.out, "\"open\":true}}}}") } else { write!(self.out, "\"until\":\"{by}\"}}}}") }
    }

    /// Writes a slice without length: viewers draw arrows between slices only.
    fn mark(&mut self, event: &Event, track: usize) -> io::Result<()> {
        let (name, ts, addr) = (event.kind.name(), us(event.at), event.addr);
        write!(self.out, ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":1,\"tid\":{track},\"ts\":{ts},\"dur\":0,")?;
        write!(self.out, "\"args\":{{\"lock\":\"{addr:#x}\"}}}}")
    }

    /// Writes an arrow from the waker's mark to the end of the sleeper's slice.
    fn arrow(&mut self, at: Duration, waker: usize, asleep: &Begun) -> io::Result<()> {
        self.arrows += 1;
        let (id, ts) = (self.arrows, us(at));
        let common = format!("\"name\":\"wakes\",\"cat\":\"wakes\",\"id\":{id},\"pid\":1,\"ts\":{ts}");
        write!(self.out, ",\n{{\"ph\":\"s\",{common},\"tid\":{waker}}}")?;
        write!(self.out, ",\n{{\"ph\":\"f\",\"bp\":\"e\",{common},\"tid\":{}}}", asleep.track)
    }
}

/// Returns a time in microseconds, with three digits after the point.
pub(super) fn us(time: Duration) -> String {
    let ns = time.as_nanos();
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a trace about its events, without the two lines that name the process and the format.
    fn lines(events: &[(u64, u64, Kind, usize)]) -> Vec<String> {
        let event = |&(ns, thread, kind, waiter)| Event {
            at: Duration::from_nanos(ns),
            who: Who::Thread(thread),
            kind,
            addr: 16,
            waiter,
        };
        let recording = Recording { events: events.iter().map(event).collect(), dropped: 3, ..Recording::default() };
        let mut out = Vec::new();
        recording.write_trace(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let all: Vec<_> = text.lines().map(|line| line.trim_end_matches(',').to_owned()).collect();
        assert!(all[0].contains("\"dropped\":3") && all[0].ends_with('['), "{text}");
        assert_eq!(all.last().unwrap(), "]}");
        all[2..all.len() - 1].iter().filter(|line| !line.contains("thread_name")).cloned().collect()
    }

    #[test]
    fn a_hand_over_is_an_arrow_and_ends_the_sleep() {
        let found = lines(&[
            (1_000, 1, Kind::Sleep, 7),
            (2_500, 2, Kind::Handoff, 7),
            (3_000, 1, Kind::Locked, 0),
            (4_001, 1, Kind::Unlocked, 0),
        ]);
        let of = |n: usize| found[n].as_str();
        assert_eq!(of(0), r#"{"ph":"X","name":"handoff","pid":1,"tid":2,"ts":2.500,"dur":0,"args":{"lock":"0x10"}}"#);
        assert_eq!(of(1), r#"{"ph":"s","name":"wakes","cat":"wakes","id":1,"pid":1,"ts":2.500,"tid":2}"#);
        assert_eq!(of(2), r#"{"ph":"f","bp":"e","name":"wakes","cat":"wakes","id":1,"pid":1,"ts":2.500,"tid":1}"#);
        assert_eq!(
            of(3),
            r#"{"ph":"X","name":"asleep","pid":1,"tid":1,"ts":1.000,"dur":1.500,"args":{"lock":"0x10","until":"handoff"}}"#
        );
        assert_eq!(
            of(4),
            r#"{"ph":"X","name":"has","pid":1,"tid":1,"ts":3.000,"dur":1.001,"args":{"lock":"0x10","until":"unlocked"}}"#
        );
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn what_has_not_ended_ends_with_the_recording() {
        let found = lines(&[(0, 1, Kind::Want, 0), (10, 2, Kind::Sleep, 1), (2_000, 3, Kind::Barge, 0)]);
        assert!(found[0].contains("barge"), "{found:?}");
        assert!(found[1].contains(r#""name":"wants""#) && found[1].contains(r#""dur":2.000"#), "{found:?}");
        assert!(found[2].contains(r#""name":"asleep""#) && found[2].contains(r#""dur":1.990"#), "{found:?}");
        assert!(found[1..].iter().all(|line| line.ends_with(r#""open":true}}"#)) && found.len() == 3, "{found:?}");
    }

    #[test]
    fn a_deadline_ends_the_sleep() {
        let found = lines(&[(0, 1, Kind::Sleep, 5), (9, 1, Kind::Leave, 5)]);
        assert!(found[0].contains(r#""dur":0.009"#) && found[0].contains(r#""until":"leave""#), "{found:?}");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn starvation_mode_ends_once() {
        let phases = |events: &[_]| lines(events).iter().map(|line| line[..9].to_owned()).collect::<String>();
        let (enter, exit) = (Kind::StarvingEnter, Kind::StarvingExit);
        assert_eq!(phases(&[(0, 1, enter, 0), (9, 2, exit, 0), (10, 1, exit, 0)]), r#"{"ph":"b"{"ph":"e""#);
        assert_eq!(phases(&[(0, 1, enter, 0)]), r#"{"ph":"b"{"ph":"e""#, "still on at the end");
    }

    /// Locks taken hand over hand: the slices of a track nest, so the first lock has a track of its own.
    #[test]
    fn what_does_not_nest_has_a_track_of_its_own() {
        let event = |ns, kind, addr| Event { at: Duration::from_nanos(ns), who: Who::Thread(1), kind, addr, waiter: 0 };
        let events = vec![
            event(0, Kind::Locked, 16),
            event(10, Kind::Locked, 32),
            event(20, Kind::Unlocked, 16),
            event(30, Kind::Unlocked, 32),
        ];
        let mut out = Vec::new();
        Recording { events, ..Recording::default() }.write_trace(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let count = |what: &str| text.matches(what).count();
        assert_eq!((count(r#""ph":"X""#), count(r#""ph":"b""#), count(r#""ph":"e""#)), (1, 1, 1), "{text}");
        assert!(text.contains(r#""ts":0.010,"dur":0.020"#), "{text}");
    }

    #[test]
    fn an_empty_recording_is_a_trace() {
        assert_eq!(lines(&[]), [""; 0]);
    }
}
