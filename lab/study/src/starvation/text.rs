//! The picture in letters: a line for each contender, for a terminal.

use std::fmt::Write;
use std::time::Duration;

use super::contest::Contender;
use super::event_history::{EventHistory, Lane, State, Window};
use crate::output::units;

/// The width of the lines.
const COLUMNS: usize = 100;
/// The rows above the contenders.
const ROWS: [&str; 3] = ["starvation", "handoffs", "barges"];

/// The meanings of the letters.
pub const LEGEND: &str =
    "# holds the mutex   . sleeps in line   - waits awake   = starvation mode   v handoff   ^ overtakes sleepers";

/// Returns the part of a history that is in the window.
pub fn text(history: &EventHistory, contenders: &[Contender], window: Window) -> String {
    let names: Vec<_> = contenders.iter().map(ToString::to_string).collect();
    let widest = ROWS.into_iter().chain(names.iter().map(String::as_str)).map(str::len).max().unwrap_or(0);
    let columns = Columns { window, number: COLUMNS - widest - 1 };
    let mut lines = format!(
        "From {} to {} of {}; a column is {}.\n",
        units::time(window.from.as_nanos() as f64),
        units::time(window.to.as_nanos() as f64),
        units::time(history.end.as_nanos() as f64),
        units::time(window.length().as_nanos() as f64 / columns.number as f64)
    );
    let rows = [
        columns.row(|from, to| {
            let on = history.starving.iter().any(|s| s.from < to && from < s.to);
            if on { '=' } else { ' ' }
        }),
        columns.marks('v', history.handoffs.iter().map(|handoff| handoff.at)),
        columns.marks('^', history.barges.iter().map(|barge| barge.at)),
    ];
    let lanes = history.lanes.iter().map(|lane| columns.row(|from, to| letter(lane, from, to)));
    for (name, row) in ROWS.into_iter().chain(names.iter().map(String::as_str)).zip(rows.into_iter().chain(lanes)) {
        let _ = writeln!(lines, "{}", format!("{name:<widest$} {row}").trim_end());
    }
    lines + LEGEND
}

/// The columns of a line, each of which stands for a part of the window.
struct Columns {
    window: Window,
    number: usize,
}

impl Columns {
    fn edge(&self, column: usize) -> Duration {
        self.window.from + self.window.length().mul_f64(column as f64 / self.number as f64)
    }

    fn row(&self, letter: impl Fn(Duration, Duration) -> char) -> String {
        (0..self.number).map(|column| letter(self.edge(column), self.edge(column + 1))).collect()
    }

    fn marks(&self, mark: char, times: impl Iterator<Item = Duration> + Clone) -> String {
        self.row(|from, to| if times.clone().any(|at| from <= at && at < to) { mark } else { ' ' })
    }
}

/// Returns the letter of a contender in a column: that of holding the mutex if the contender held it for any time in
/// the column, otherwise that of the state that took most of the column.
fn letter(lane: &Lane, from: Duration, to: Duration) -> char {
    let column = Window { from, to };
    let first = lane.intervals.partition_point(|interval| interval.to <= from);
    let mut most = (to - from, ' ');
    let mut times = [(State::Holding, '#'), (State::Sleeping, '.'), (State::Waiting, '-')]
        .map(|(state, letter)| (state, letter, Duration::ZERO));
    for interval in lane.intervals[first..].iter().take_while(|interval| interval.from < to) {
        if let Some((from, to)) = column.part(interval.from, interval.to) {
            let entry = times.iter_mut().find(|(state, ..)| *state == interval.state).expect("each state is there");
            entry.2 += to - from;
            most.0 = most.0.saturating_sub(to - from);
        }
    }
    if !times[0].2.is_zero() {
        return times[0].1;
    }
    for (_, letter, time) in times {
        if time > most.0 {
            most = (time, letter);
        }
    }
    most.1
}

#[cfg(test)]
mod tests {
    use super::super::contest::Role;
    use super::super::event_history::{Interval, Starving};
    use super::*;

    #[test]
    fn a_short_hold_is_seen() {
        let ms = Duration::from_millis;
        let interval = |state, from, to| Interval { state, from: ms(from), to: ms(to) };
        let intervals = vec![
            interval(State::Waiting, 0, 20),
            interval(State::Sleeping, 20, 59),
            interval(State::Holding, 59, 60),
            interval(State::Waiting, 70, 72),
        ];
        let mut history = EventHistory::new(&[], &[], 0, ms(89));
        history.lanes = vec![Lane { intervals, ..Lane::default() }];
        history.starving = vec![Starving { from: ms(30), to: ms(40), by: None, ended_by: None }];
        let hog = Contender { role: Role::Hog, number: None, ring: 0 };
        let text = text(&history, &[hog], Window { from: ms(0), to: ms(89) });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "From 0 ns to 89.0 ms of 89.0 ms; a column is 1.00 ms.");
        assert_eq!(lines[1], format!("starvation {}==========", " ".repeat(30)));
        assert_eq!(lines[2], "handoffs");
        let expected = ["hog        ", &"-".repeat(20), &".".repeat(39), "#", &" ".repeat(10), "--"].concat();
        assert_eq!(lines[4], expected);
        assert!(lines.iter().take(5).all(|line| line.len() <= COLUMNS));
    }
}
