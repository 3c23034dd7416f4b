//! A history as a picture: a lane for each contender, over time.
//!
//! ```text
//!          ┌ starvation mode ┐
//!   hog    ████ ████│████ ▒▒▒▒│     bars: the contender's states
//!   victim ▒▒▒▒▒▒▒▒▒│▒▒▒▒↓██  │     an arrow: a handoff
//!          └────────┴─────────┘
//! ```
//!
//! Text, arrows and axes have the colour of the page's text. A picture without a page defines that colour and its
//! background itself, as the reader prefers: dark on light, or light on dark.

use std::fmt::Write;
use std::time::Duration;

use crate::output::report::Escaped;
use crate::output::units;
use crate::starvation::Verdict;
use crate::starvation::event_history::{EventHistory, Lane, State, Window};

const WIDTH: f64 = 1200.0;
/// The width of the column of names.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 30.0;
/// The height of the part above the lanes.
const TOP: f64 = 30.0;
/// The distance from lane to lane.
const PITCH: f64 = 62.0;
const BAR: f64 = 26.0;
/// The height of the part below the lanes: the axis, and the legend.
const BOTTOM: f64 = 84.0;
/// The least width of a bar, so that every bar can be seen.
const LEAST: f64 = 0.8;

/// The states with their descriptions and colours. Each colour is readable on white and on black.
const STATES: [(State, &str, &str); 3] = [
    (State::Sleeping, "sleeps in line", "#9aa0a6"),
    (State::Waiting, "waits awake", "#f08c1e"),
    (State::Holding, "holds the mutex", "#1f86e0"),
];
const STARVING: &str = "#e03b3b";
const BARGE: &str = "#d64fa8";

/// The style of a picture without a page around it.
const ALONE: &str = "<style>:root.timeline { color: #222; background: #fff; }\n\
    @media (prefers-color-scheme: dark) { :root.timeline { color: #ddd; background: #111; } }</style>\n";

/// Draws the part of a history that is in the window, as SVG.
pub fn timeline(history: &EventHistory, names: &[String], window: Window) -> String {
    let mut drawing = Drawing { history, names, window, svg: String::new() };
    drawing.all();
    drawing.svg
}

struct Drawing<'a> {
    history: &'a EventHistory,
    names: &'a [String],
    window: Window,
    svg: String,
}

/// Writes to the picture, which cannot fail.
macro_rules! draw {
    ($self:ident, $($format:tt)+) => {{ let _ = writeln!($self.svg, $($format)+); }};
}

impl Drawing<'_> {
    fn all(&mut self) {
        let height = self.bottom() + BOTTOM;
        draw!(
            self,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"14\" fill=\"currentColor\">"
        );
        draw!(self, "<title>Who held the mutex, who waited, and when it was in starvation mode</title>");
        self.svg.push_str(ALONE);
        draw!(
            self,
            "<defs><marker id=\"timeline-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0.5 8 4 0 7.5z\" fill=\"currentColor\"/></marker></defs>"
        );
        self.axis();
        self.starving();
        for (n, lane) in self.history.lanes.iter().enumerate() {
            self.lane(n, lane);
        }
        self.handoffs();
        self.barges();
        self.turns();
        self.legend();
        self.svg.push_str("</svg>\n");
    }

    /// Returns the lower end of the lanes.
    fn bottom(&self) -> f64 {
        TOP + PITCH * self.history.lanes.len() as f64
    }

    fn x(&self, at: Duration) -> f64 {
        let length = self.window.length().as_secs_f64().max(1e-9);
        LEFT + (WIDTH - LEFT - RIGHT) * (at.as_secs_f64() - self.window.from.as_secs_f64()) / length
    }

    /// Returns the upper edge of a bar.
    fn y(lane: usize) -> f64 {
        TOP + PITCH * lane as f64 + (PITCH - BAR) / 2.0
    }

    fn axis(&mut self) {
        let (bottom, right) = (self.bottom(), WIDTH - RIGHT);
        draw!(self, "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"currentColor\" fill=\"none\"/>");
        let Axis { step, unit, per, decimals } = Axis::over(self.window);
        let mut at = self.window.from.as_nanos().div_ceil(step) * step;
        while at <= self.window.to.as_nanos() {
            let x = self.x(Duration::from_nanos(at as u64));
            draw!(
                self,
                "<path d=\"M{x:.2} {TOP}V{bottom}\" stroke=\"currentColor\" opacity=\"0.15\"/>\
                 <path d=\"M{x:.2} {bottom}v5\" stroke=\"currentColor\"/>\
                 <text x=\"{x:.2}\" y=\"{}\" text-anchor=\"middle\">{:.decimals$} {unit}</text>",
                bottom + 21.0,
                at as f64 / per
            );
            at += step;
        }
    }

    fn starving(&mut self) {
        let height = self.bottom() - TOP + 12.0;
        for starving in &self.history.starving {
            let Some((from, to)) = self.window.part(starving.from, starving.to) else { continue };
            let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(LEAST));
            draw!(
                self,
                "<rect x=\"{x:.2}\" y=\"{}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{STARVING}\" \
                 fill-opacity=\"0.17\"><title>starvation mode, {}: turned on by {}, off by {}</title></rect>",
                TOP - 12.0,
                span(starving.from, starving.to),
                Escaped(starving.by.map_or("a contender", |who| &self.names[who])),
                Escaped(starving.ended_by.map_or("nobody", |who| &self.names[who]))
            );
            if width > 110.0 {
                draw!(self, "<text x=\"{:.2}\" y=\"{}\" font-size=\"12\">starvation mode</text>", x + 5.0, TOP + 2.0);
            }
        }
    }

    fn lane(&mut self, n: usize, lane: &Lane) {
        let (y, name) = (Self::y(n), Escaped(&self.names[n]));
        draw!(
            self,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}<title>{}</title></text>\
             <path d=\"M{LEFT} {line}H{}\" stroke=\"currentColor\" opacity=\"0.35\"/>",
            LEFT - 10.0,
            y + BAR / 2.0 + 5.0,
            lane.who.map_or_else(|| "no events".to_owned(), |who| who.to_string()),
            WIDTH - RIGHT,
            line = y + BAR / 2.0
        );
        for (state, does, colour) in STATES {
            // Draw bars of contenders that hold the mutex higher, so that they stand out.
            let (y, height) = if state == State::Holding { (y, BAR) } else { (y + 5.0, BAR - 10.0) };
            draw!(self, "<g fill=\"{colour}\">");
            for interval in lane.intervals.iter().filter(|interval| interval.state == state) {
                let Some((from, to)) = self.window.part(interval.from, interval.to) else { continue };
                let (x, width) = (self.x(from), (self.x(to) - self.x(from)).max(LEAST));
                draw!(
                    self,
                    "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{height}\"><title>{name} {does}, {}\
                     </title></rect>",
                    span(interval.from, interval.to)
                );
            }
            draw!(self, "</g>");
        }
    }

    fn handoffs(&mut self) {
        draw!(self, "<g stroke=\"currentColor\" stroke-width=\"1.5\" fill=\"none\">");
        for handoff in self.history.handoffs.iter().filter(|handoff| self.window.contains(handoff.at)) {
            let (Some(to), Some(arrived)) = (handoff.to, handoff.arrived) else { continue };
            let (x1, x2) = (self.x(handoff.at), self.x(arrived.min(self.window.to)));
            let middle = |lane| Self::y(lane) + BAR / 2.0;
            // Draw from the edge of the unlocker's bar to the edge of the receiver's bar.
            let half = if to > handoff.from { BAR / 2.0 } else { -BAR / 2.0 };
            let (y1, y2) = (middle(handoff.from) + half, middle(to) - half);
            let verdict = match handoff.verdict {
                Verdict::Longest => "which had waited longest",
                Verdict::Passed => "which had passed others on its way into the queue",
                Verdict::Another => "which had NOT waited longest",
                Verdict::Unknown => "",
            };
            draw!(
                self,
                "<path d=\"M{x1:.2} {y1}L{x2:.2} {y2}\" marker-end=\"url(#timeline-head)\"><title>{} hands over to {}, \
                 {verdict}; the receiver has the mutex after {}</title></path>",
                Escaped(&self.names[handoff.from]),
                Escaped(&self.names[to]),
                time(arrived.saturating_sub(handoff.at))
            );
        }
        draw!(self, "</g>");
    }

    fn barges(&mut self) {
        draw!(self, "<g fill=\"{BARGE}\">");
        for barge in self.history.barges.iter().filter(|barge| self.window.contains(barge.at)) {
            let (x, y) = (self.x(barge.at), Self::y(barge.by) - 2.0);
            let name = Escaped(&self.names[barge.by]);
            draw!(
                self,
                "<path d=\"M{x:.2} {y}l-4.5 -9h9z\"><title>{name} takes the mutex while others sleep, at {}</title></path>",
                time(barge.at)
            );
        }
        draw!(self, "</g>");
    }

    /// Marks the contenders that turned starvation mode on and off.
    fn turns(&mut self) {
        for starving in &self.history.starving {
            let turns = [(starving.by, starving.from, "on", STARVING), (starving.ended_by, starving.to, "off", "none")];
            for (who, at, turned, fill) in turns {
                let Some(who) = who.filter(|_| self.window.contains(at)) else { continue };
                // The pointer finds the middle of a circle that is not filled, too.
                draw!(
                    self,
                    "<circle cx=\"{:.2}\" cy=\"{}\" r=\"5\" fill=\"{fill}\" stroke=\"{STARVING}\" stroke-width=\"2.5\" \
                     pointer-events=\"all\"><title>{} turns starvation mode {turned}, at {}</title></circle>",
                    self.x(at),
                    Self::y(who) + BAR + 8.0,
                    Escaped(&self.names[who]),
                    time(at)
                );
            }
        }
    }

    fn legend(&mut self) {
        let y = self.bottom() + 54.0;
        let mut x = LEFT;
        let mut entry = |svg: &mut String, symbol: String, words: &str| {
            let _ =
                writeln!(svg, "<g transform=\"translate({x} {y})\">{symbol}<text x=\"28\" y=\"5\">{words}</text></g>");
            // The step is wide enough for any usual letters.
            x += 28.0 + 7.4 * words.len() as f64 + 18.0;
        };
        for (_, words, colour) in STATES.into_iter().rev() {
            let symbol = format!("<rect y=\"-7\" width=\"20\" height=\"14\" fill=\"{colour}\"/>");
            entry(&mut self.svg, symbol, words);
        }
        let band = format!("<rect y=\"-9\" width=\"20\" height=\"18\" fill=\"{STARVING}\" fill-opacity=\"0.17\"/>");
        entry(&mut self.svg, band, "starvation mode");
        let turn = |cx: u32, fill| {
            format!("<circle cx=\"{cx}\" r=\"5\" fill=\"{fill}\" stroke=\"{STARVING}\" stroke-width=\"2.5\"/>")
        };
        entry(&mut self.svg, turn(5, STARVING) + &turn(19, "none"), "turns it on, off");
        let arrow = "<path d=\"M0 -7 18 6\" stroke=\"currentColor\" stroke-width=\"1.5\" \
                     marker-end=\"url(#timeline-head)\"/>";
        entry(&mut self.svg, arrow.to_owned(), "hands over");
        let barge = format!("<path d=\"M10 5l-4.5 -9h9z\" fill=\"{BARGE}\"/>");
        entry(&mut self.svg, barge, "overtakes sleepers");
    }
}

fn time(time: Duration) -> String {
    units::time(time.as_nanos() as f64)
}

/// Formats a span, as in "1.20 ms (from 12.3 ms on)".
fn span(from: Duration, to: Duration) -> String {
    format!("{} (from {:.3} ms on)", time(to.saturating_sub(from)), from.as_secs_f64() * 1e3)
}

/// The ticks and the unit of the axis of time.
struct Axis {
    /// The distance from tick to tick, in nanoseconds.
    step: u128,
    unit: &'static str,
    /// The number of nanoseconds in the unit.
    per: f64,
    decimals: usize,
}

impl Axis {
    /// Returns an axis with five ticks to a dozen.
    fn over(window: Window) -> Self {
        let length = window.length().as_nanos();
        let steps = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u128.pow(power)));
        let step = steps.take_while(|step| step * 5 <= length).last().unwrap_or(1);
        let (unit, per) = match window.to.as_nanos() {
            ..10_000_000 if step < 100_000 => ("µs", 1e3),
            _ => ("ms", 1e6),
        };
        let decimals = (per / step as f64).log10().ceil().max(0.0) as usize;
        Self { step, unit, per, decimals }
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
