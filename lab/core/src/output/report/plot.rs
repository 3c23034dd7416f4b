//! Plots as SVG: lines over the number of contenders or of waiters. Each line has a colour, dashes, a marker for its
//! points, and its name at its end.

use std::fmt::Write;

use super::page::Escaped;

/// Colours that are readable on white and on black, and differ also for readers who do not see red and green.
const COLOURS: [&str; 8] = ["#e0483b", "#1f86e0", "#1d9a55", "#b07a00", "#a04fd0", "#0fa3b1", "#d6559f", "#8a7a6a"];

/// The dashes of lines that share a colour, for SVG and for CSS.
const DASHES: [(&str, &str); 3] =
    [("", "solid"), (" stroke-dasharray=\"9 4\"", "dashed"), (" stroke-dasharray=\"2 4\"", "dotted")];

/// The look of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    colour: &'static str,
    /// The place in [`DASHES`].
    dashes: usize,
}

impl Style {
    /// Returns the style of the line with this number. 24 styles differ.
    pub const fn nth(n: usize) -> Self {
        Self { colour: COLOURS[n % COLOURS.len()], dashes: n / COLOURS.len() % DASHES.len() }
    }
}

#[derive(Clone, Debug)]
pub struct Plot {
    /// The text of the horizontal axis. This axis is logarithmic.
    pub x: &'static str,
    /// The text of the vertical axis.
    pub y: &'static str,
    /// Formats a number on the vertical axis.
    pub label: fn(f64) -> String,
    /// Makes the vertical axis logarithmic if the largest value is much larger than the smallest.
    pub logarithmic: bool,
    /// The text of a second vertical axis, on the right, from 0 to 1, if there is one.
    pub right: Option<&'static str>,
    pub lines: Vec<Line>,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name of the line.
    pub name: String,
    /// The look of the line.
    pub style: Style,
    /// The points of the line, in any order. Points that are no numbers are left out.
    pub points: Vec<(f64, f64)>,
    /// The points of a dotted line in the same colour, on the right axis.
    pub right: Vec<(f64, f64)>,
}

/// Returns a legend: names, with their descriptions and styles.
pub fn legend<'a>(items: impl IntoIterator<Item = (&'a str, &'a str, Style)>) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (name, about, Style { colour, dashes }) in items {
        let (name, about, css) = (Escaped(name), Escaped(about), DASHES[dashes].1);
        let _ = write!(html, "<li title=\"{about}\"><span style=\"border-top:3px {css} {colour}\"></span>{name}</li>");
    }
    html + "</ul>\n"
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// The edges of the area of the lines.
const LEFT: f64 = 90.0;
const TOP: f64 = 15.0;
const BOTTOM: f64 = HEIGHT - 55.0;
/// The size of the text. A plot is shown at four fifths of its size and more.
const FONT: f64 = 15.0;
/// The distance between two lines of text.
const GAP: f64 = 17.0;
/// The width of a letter, on average.
const LETTER: f64 = 0.55 * FONT;

/// The factor from which on a logarithmic axis shows more than a linear one.
const MUCH: f64 = 30.0;

/// An axis: the values at both ends, or their logarithms.
#[derive(Clone, Copy)]
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    /// Returns the place of a value on the axis: 0 at the beginning, 1 at the end.
    fn place(self, value: f64) -> f64 {
        let value = if self.logarithmic { value.ln() } else { value };
        if self.to > self.from { (value - self.from) / (self.to - self.from) } else { 0.5 }
    }

    fn logarithmic(least: f64, most: f64) -> Self {
        Self { from: least.ln(), to: most.ln(), logarithmic: true }
    }

    /// Returns round numbers on the axis.
    fn ticks(self) -> Vec<f64> {
        let decades = |steps: &'static [f64]| {
            let tens = (self.from / 10f64.ln()).floor() as i32..=(self.to / 10f64.ln()).ceil() as i32;
            tens.flat_map(move |ten| steps.iter().map(move |step| step * 10f64.powi(ten)))
        };
        let shown = |tick: &f64| (-1e-9..=1.0 + 1e-9).contains(&self.place(*tick));
        if self.logarithmic {
            let tens: Vec<_> = decades(&[1.0]).filter(shown).collect();
            return if tens.len() > 2 { tens } else { decades(&[1.0, 2.0, 5.0]).filter(shown).collect() };
        }
        let rough = (self.to - self.from) / 6.0;
        let ten = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * ten).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(rough);
        (0..=6).map(|n| f64::from(n) * step).filter(shown).collect()
    }
}

/// Moves labels apart that would overlap, and keeps them above the bottom. The labels are in order.
fn spread(labels: &mut [f64]) {
    for n in 1..labels.len() {
        labels[n] = labels[n].max(labels[n - 1] + GAP);
    }
    let mut below = BOTTOM + GAP;
    for label in labels.iter_mut().rev() {
        *label = label.min(below - GAP);
        below = *label;
    }
}

/// Returns a marker around a point. Styles of the same colour differ in their dashes, so the shape goes with the colour.
fn marker(style: Style, (x, y): (f64, f64)) -> String {
    let shape = COLOURS.iter().position(|&colour| colour == style.colour).unwrap_or(0) % 4;
    let path = match shape {
        0 => "m-4 -4h8v8h-8z",
        1 => "m0 -5l5 5l-5 5l-5 -5z",
        2 => "m0 -5l5 9h-10z",
        _ => "m0 5l5 -9h-10z",
    };
    format!("<path d=\"M{x:.1} {y:.1}{path}\" fill=\"{}\"/>", style.colour)
}

impl Plot {
    /// Draws the plot.
    pub fn svg(mut self) -> String {
        for Line { points, right, .. } in &mut self.lines {
            points.retain(|&(_, y)| y.is_finite() && (!self.logarithmic || y > 0.0));
            right.retain(|&(_, share)| share.is_finite());
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            right.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        self.lines.retain(|line| !line.points.is_empty());
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = (least(&mut points().map(|p| p.1)), most(&mut points().map(|p| p.1)));
        if low > high {
            return "<p>Nothing was measured.</p>".to_owned();
        }
        let x = Axis::logarithmic(least(&mut points().map(|p| p.0)), most(&mut points().map(|p| p.0)));
        let y = match self.logarithmic && high > low * MUCH {
            true => Axis::logarithmic(low / 1.3, high * 1.3),
            false => {
                Axis { from: 0.0, to: if self.logarithmic { high } else { high.max(1.0) } * 1.05, logarithmic: false }
            }
        };
        self.draw(x, y)
    }

    fn draw(&self, x: Axis, y: Axis) -> String {
        let longest = self.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0) as f64;
        let margin = if self.right.is_some() { 60.0 } else { 30.0 + longest * LETTER };
        let right = WIDTH - margin;
        let across = |value: f64| LEFT + 12.0 + x.place(value) * (right - LEFT - 24.0);
        let up = |axis: Axis, value: f64| BOTTOM - axis.place(value) * (BOTTOM - TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-size=\"{FONT}\" font-family=\"sans-serif\" fill=\"none\">\n\
             <g stroke=\"currentColor\" stroke-opacity=\".5\"><path d=\"M{LEFT} {TOP}V{BOTTOM}H{right:.1}\"/>"
        );
        for tick in y.ticks() {
            let _ = write!(svg, "<path d=\"M{LEFT} {:.1}H{right:.1}\" stroke-opacity=\".15\"/>", up(y, tick));
        }
        svg += "</g>\n<g class=\"text\">";
        let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", Escaped(text));
        };
        for tick in y.ticks() {
            text(LEFT - 8.0, up(y, tick) + 5.0, "end", &(self.label)(tick));
        }
        let mut places: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|p| p.0)).collect();
        places.sort_by(f64::total_cmp);
        let mut free = f64::NEG_INFINITY;
        for place in places {
            let (at, label) = (across(place), format!("{place:.0}"));
            let half = label.len() as f64 * LETTER / 2.0;
            if at - half > free {
                text(at, BOTTOM + 20.0, "middle", &label);
                free = at + half + LETTER;
            }
        }
        let middle = f64::midpoint(TOP, BOTTOM);
        text(f64::midpoint(LEFT, right), HEIGHT - 10.0, "middle", self.x);
        let mut turned = |x: f64, text: &str| {
            let text = Escaped(text);
            let _ = write!(
                svg,
                "<text transform=\"translate({x:.1} {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{text}</text>"
            );
        };
        turned(FONT, self.y);
        let share = Axis { from: 0.0, to: 1.05, logarithmic: false };
        if let Some(axis) = self.right {
            turned(WIDTH - 4.0, axis);
            for tick in share.ticks() {
                let y = up(share, tick) + 5.0;
                let _ = write!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\">{tick:.1}</text>", right + 8.0);
            }
        }
        svg += "</g>\n";

        let mut ends: Vec<_> = self.lines.iter().map(|line| (line, line.points[line.points.len() - 1])).collect();
        ends.sort_by(|a, b| up(y, a.1.1).total_cmp(&up(y, b.1.1)));
        let mut labels: Vec<f64> = ends.iter().map(|(_, end)| up(y, end.1)).collect();
        spread(&mut labels);
        for (&(line, end), label) in ends.iter().zip(labels) {
            let Line { style: Style { colour, dashes }, .. } = *line;
            let path = |axis: Axis, points: &[(f64, f64)], dashes: &str| {
                let points: Vec<_> =
                    points.iter().map(|p| format!("{:.1},{:.1}", across(p.0), up(axis, p.1))).collect();
                let points = points.join(" ");
                format!("<polyline points=\"{points}\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>")
            };
            let name = Escaped(&line.name);
            let _ = write!(svg, "<g><title>{name}</title>{}", path(y, &line.points, DASHES[dashes].0));
            for &point in &line.points {
                svg += &marker(line.style, (across(point.0), up(y, point.1)));
            }
            if self.right.is_some() {
                svg += &path(share, &line.right, DASHES[2].0);
            } else {
                let (from, to) = (across(end.0) + 6.0, right + 14.0);
                let _ = write!(
                    svg,
                    "<path d=\"M{from:.1} {:.1}L{to:.1} {label:.1}\" stroke=\"{colour}\" stroke-opacity=\".5\"/>\
                     <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
                    up(y, end.1),
                    to + 4.0,
                    label + 5.0
                );
            }
            svg += "</g>\n";
        }
        svg + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(logarithmic: bool, right: Option<&'static str>, lines: &[&[(f64, f64)]]) -> String {
        let line = |(n, points): (usize, &&[(f64, f64)])| Line {
            name: format!("line {n}"),
            style: Style::nth(n),
            points: points.to_vec(),
            right: points.iter().map(|&(x, _)| (x, 0.0)).collect(),
        };
        let lines = lines.iter().enumerate().map(line).collect();
        Plot { x: "over", y: "value", label: |v| format!("<{v}>"), logarithmic, right, lines }.svg()
    }

    #[test]
    fn lines_of_one_plot_differ() {
        let styles: Vec<_> = (0..24).map(Style::nth).collect();
        assert!((0..24).all(|n| !styles[..n].contains(&styles[n])), "{styles:?}");
        assert_eq!(Style::nth(24), Style::nth(0), "there is a style for any number");
    }

    #[test]
    fn the_axis_is_logarithmic_where_that_helps() {
        let near = plot(true, None, &[&[(1.0, 10.0), (2.0, 100.0)]]);
        assert!(near.contains("&lt;0&gt;") && near.contains("&lt;100&gt;"), "{near}");
        let far = plot(true, None, &[&[(1.0, 1.0), (2.0, 1000.0)]]);
        assert!(!far.contains("&lt;0&gt;") && far.contains("&lt;1&gt;") && far.contains("&lt;1000&gt;"), "{far}");
        let share = plot(false, None, &[&[(1.0, 0.0), (2.0, 0.9)]]);
        assert!(share.contains("&lt;0&gt;") && share.contains("&lt;1&gt;"), "{share}");
    }

    #[test]
    fn names_do_not_overlap() {
        let svg = plot(
            true,
            None,
            &[&[(1.0, 1.0), (4.0, 5.0)], &[(1.0, 2.0), (2.0, 5.0)], &[(1.0, 5.0)], &[(2.0, f64::NAN)]],
        );
        assert!(!svg.contains("line 3"), "a line without points is not drawn: {svg}");
        let mut places: Vec<f64> = (0..3)
            .map(|n| {
                let (before, _) = svg.split_once(&format!(">line {n}</text>")).unwrap();
                let (_, y) = before.rsplit_once(" y=\"").unwrap();
                y.split('"').next().unwrap().parse().unwrap()
            })
            .collect();
        places.sort_by(f64::total_cmp);
        assert!(places.windows(2).all(|two| two[1] - two[0] >= GAP - 0.11), "{places:?}");
    }

    #[test]
    fn both_scales_are_there() {
        for points in [&[(1.0, 10.0)][..], &[(1.0, 10.0), (32.0, 1e7)]] {
            let svg = plot(true, Some("dotted"), &[points]);
            assert!(svg.starts_with("<svg") && svg.contains(">value<") && svg.contains(">dotted<"), "{svg}");
            assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
            assert_eq!(svg.matches(&format!(",{BOTTOM:.1}")).count(), points.len(), "shares of 0 are shown: {svg}");
        }
        assert_eq!(plot(true, None, &[&[(1.0, f64::NAN), (2.0, 0.0)]]), "<p>Nothing was measured.</p>");
    }
}
