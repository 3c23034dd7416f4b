//! Plots as SVG: curves, over the number of contenders or of waiters.

use std::fmt::Write;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::page::{Escaped, figures};
use crate::measure::growth::Point;
use crate::output::failure::Failure;
use crate::output::units;
use crate::targets::locks::LockName;
use crate::targets::queues::QueueName;
use crate::targets::rw_locks::RwLockName;
use crate::targets::semaphores::SemaphoreName;
use crate::targets::target::Target;

/// Colours that are readable on white and on black.
const COLOURS: [RGBColor; 18] = [
    RGBColor(0xe0, 0x3b, 0x3b),
    RGBColor(0xf0, 0x8c, 0x1e),
    RGBColor(0xb5, 0x8a, 0x00),
    RGBColor(0xd6, 0x4f, 0xa8),
    RGBColor(0x1f, 0x86, 0xe0),
    RGBColor(0x1d, 0x9a, 0x55),
    RGBColor(0x62, 0xb0, 0x2c),
    RGBColor(0x8a, 0x5c, 0xe6),
    RGBColor(0x0f, 0xa3, 0xb1),
    RGBColor(0x8c, 0x7b, 0x6b),
    RGBColor(0xff, 0x7a, 0x6e),
    RGBColor(0x9c, 0x4a, 0x1a),
    RGBColor(0x8f, 0x9a, 0x1c),
    RGBColor(0xa8, 0x35, 0x6d),
    RGBColor(0x6e, 0x9f, 0xd8),
    RGBColor(0x5a, 0x63, 0xc9),
    RGBColor(0x2f, 0x7f, 0x7a),
    RGBColor(0xc0, 0x8a, 0xe8),
];

/// The colour of floors.
const FLOOR: RGBColor = RGBColor(0x90, 0x90, 0x90);

pub(super) const SIZE: (u32, u32) = (640, 380);

/// The colour that the page's style sheet replaces by the colour of its text.
pub(super) const INK: RGBColor = BLACK;

/// Returns the colours of the targets of a plot. A named target has the same colour in all plots. Composed targets get
/// the remaining colours, in turn.
pub fn colours(targets: &[Target]) -> Vec<RGBColor> {
    let usual: Vec<_> = targets.iter().map(|&target| usual_colour(target)).collect();
    let mut free: Vec<_> = COLOURS.iter().filter(|&&colour| !usual.contains(&Some(colour))).collect();
    if free.is_empty() {
        free = COLOURS.iter().collect();
    }
    let mut free = free.into_iter().cycle();
    usual.into_iter().map(|usual| usual.unwrap_or_else(|| *free.next().expect("there are colours"))).collect()
}

/// Returns the colour that a target has in all plots; `None` for a composed target.
fn usual_colour(target: Target) -> Option<RGBColor> {
    let place = match target {
        Target::Lock(lock) => LockName::ALL.iter().position(|&known| known == lock),
        Target::RwLock(lock) => RwLockName::ALL.iter().position(|&known| known == lock),
        Target::Semaphore(semaphore) => SemaphoreName::ALL.iter().position(|&known| known == semaphore),
        Target::Floor(_) => return Some(FLOOR),
        Target::Composed(_) => None,
    };
    place.map(|place| COLOURS[place % COLOURS.len()])
}

/// The curves of a plot.
#[derive(Clone, Debug)]
pub struct Curves {
    /// The text of the horizontal axis. This axis is logarithmic.
    pub x: &'static str,
    /// The base of the logarithms of the horizontal axis: the ticks are powers of the base.
    pub base: f64,
    /// The text of the vertical axis.
    pub y: &'static str,
    /// Formats a number on the vertical axis.
    pub label: fn(f64) -> String,
    /// Makes the vertical axis logarithmic: values that are not above zero cannot be shown then.
    pub logarithmic: bool,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A curve of a plot.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The colour of the curve.
    pub colour: RGBColor,
    /// The points of the curve, in any order.
    pub points: Vec<(f64, f64)>,
}

/// Returns a legend, and a plot for each case with a curve for each queue: the time over the number of waiters.
pub fn queue_plots(points: &[Point], y: &'static str) -> Result<String, Failure> {
    let mut cases: Vec<&'static str> = points.iter().map(|p| p.case).collect();
    cases.dedup();
    let queues = || QueueName::ALL.iter().filter(|queue| points.iter().any(|p| p.queue == **queue));
    let legend = legend(queues().map(|&queue| (queue.name(), queue.about(), colour_of_queue(queue))));
    let plot = |case: &'static str| {
        let curve = |&queue| {
            let ours = points.iter().filter(|p| p.case == case && p.queue == queue);
            Curve { colour: colour_of_queue(queue), points: ours.map(|p| (p.n as f64, p.ns)).collect() }
        };
        let curves = queues().map(curve).collect();
        let svg = Curves { x: "n", base: 10.0, y, label: units::time, logarithmic: true, curves }.svg()?;
        Ok((case, svg))
    };
    let plots: Result<Vec<_>, Failure> = cases.into_iter().map(plot).collect();
    Ok(legend + &figures(plots?))
}

/// Returns the colour of a queue. The treap has the colour of the first lock in other plots, which is ours.
fn colour_of_queue(queue: QueueName) -> RGBColor {
    COLOURS[match queue {
        QueueName::Treap => 0,
        QueueName::TwoLevel => 1,
        QueueName::OneLevel => 4,
        QueueName::TreapGo => 5,
    }]
}

/// Returns a legend: names, with their descriptions and colours.
pub fn legend<'a>(items: impl IntoIterator<Item = (&'a str, &'a str, RGBColor)>) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (name, about, RGBColor(r, g, b)) in items {
        let (name, about) = (Escaped(name), Escaped(about));
        let _ = write!(html, "<li title=\"{about}\"><span style=\"background:rgb({r},{g},{b})\"></span>{name}</li>");
    }
    html + "</ul>\n"
}

/// Draws the axes of a plot, and the lines behind the plot, with the texts of the axes; `label` formats the numbers on
/// the vertical axis.
pub(super) fn axes<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    x: &str,
    y: &str,
    label: fn(f64) -> String,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&|&place| format!("{place:.0}"))
        .y_label_formatter(&|&value| label(value))
        .axis_style(INK)
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 13, &INK))
        .draw()?;
    Ok(())
}

impl Curves {
    /// Draws the curves.
    pub fn svg(mut self) -> Result<String, Failure> {
        let logarithmic = self.logarithmic;
        for curve in &mut self.curves {
            curve.points.retain(|&(_, value)| value.is_finite() && (!logarithmic || value > 0.0));
            curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
        let least = values().fold(f64::INFINITY, f64::min);
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        let drawn = match (least > most, logarithmic) {
            (true, _) => return Ok("<p>Nothing was measured.</p>".to_owned()),
            (false, true) => self.draw((least / 1.5..most * 1.5).log_scale()),
            (false, false) => self.draw(0.0..most.max(1.0) * 1.05),
        };
        drawn.map_err(|error| Failure::Run(format!("cannot draw a plot: {error}")))
    }

    fn draw<Y>(&self, y: Y) -> Result<String, Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let places = || self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
        let fewest = places().fold(f64::INFINITY, f64::min);
        let most = places().fold(f64::NEG_INFINITY, f64::max);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&area)
                .margin(10)
                .x_label_area_size(40)
                .y_label_area_size(80)
                .build_cartesian_2d((fewest / 1.1..most * 1.1).log_scale().base(self.base), y)?;
            axes(&mut chart, self.x, self.y, self.label)?;
            for curve in &self.curves {
                let style = curve.colour.stroke_width(2);
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), style).point_size(3))?;
            }
            area.present()?;
        }
        Ok(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::compose::LockSpec;

    fn targets(names: &[String]) -> Vec<Target> {
        names.iter().map(|name| name.parse::<LockSpec>().unwrap().into()).collect()
    }

    #[test]
    fn lines_of_one_plot_differ() {
        let composed = (1..16).map(|b| format!("sliding(sudog,b={b})"));
        let names: Vec<_> = composed.chain(["sudog", "std"].map(str::to_owned)).collect();
        let colours = colours(&targets(&names));
        assert!((0..colours.len()).all(|n| !colours[..n].contains(&colours[n])), "{colours:?}");
        assert_eq!(colours[15], self::colours(&[LockName::Sudog.into()])[0], "a lock keeps its own");
    }

    #[test]
    fn there_is_a_colour_for_any_number() {
        let composed: Vec<_> = (1..=31).map(|b| format!("sliding(sudog,b={b})")).collect();
        assert_eq!(colours(&targets(&composed)).len(), 31);
        let all: Vec<Target> = LockName::ALL.iter().map(|&lock| lock.into()).chain(targets(&composed[..1])).collect();
        assert_eq!(colours(&all).len(), LockName::ALL.len() + 1);
    }
}
