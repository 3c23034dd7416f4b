//! Plots over the number of contenders, as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::bench::summary::{Summaries, Summary};
use crate::failure::Failure;
use crate::locks::LockName;
use crate::rw_locks::RwLockName;
use crate::semaphores::SemaphoreName;
use crate::subject::Subject;

/// Readable on white and on black.
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

/// What the others are measured by.
const FLOOR: RGBColor = RGBColor(0x90, 0x90, 0x90);

const SIZE: (u32, u32) = (640, 380);

/// What the page's style sheet replaces by the colour of its text.
const INK: RGBColor = BLACK;

/// Its colour, the same in all plots.
pub fn colour(subject: Subject) -> RGBColor {
    let place = match subject {
        Subject::Lock(lock) => LockName::ALL.iter().position(|&known| known == lock),
        Subject::RwLock(lock) => RwLockName::ALL.iter().position(|&known| known == lock),
        Subject::Semaphore(semaphore) => SemaphoreName::ALL.iter().position(|&known| known == semaphore),
        Subject::Floor(_) => return FLOOR,
    };
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}

/// What is plotted.
#[derive(Clone, Copy)]
pub struct Quantity {
    /// What the axis says.
    pub axis: &'static str,
    /// Where it comes from.
    pub of: fn(&Summary) -> f64,
    /// How a number on the axis looks.
    pub label: fn(f64) -> String,
    /// Logarithmic: what is not above zero cannot be shown then.
    pub logarithmic: bool,
}

/// One curve for each subject.
pub fn plot(summaries: &Summaries, quantity: Quantity) -> Result<String, Failure> {
    let values: Vec<f64> = summaries.all.iter().map(quantity.of).filter(|&v| quantity.shows(v)).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let drawn = match (values.is_empty(), quantity.logarithmic) {
        (true, _) => return Ok("<p>Nothing was measured.</p>".to_owned()),
        (false, true) => draw(summaries, quantity, (least / 1.5..most * 1.5).log_scale()),
        (false, false) => draw(summaries, quantity, 0.0..most.max(1.0) * 1.05),
    };
    drawn.map_err(|error| Failure::Run(format!("cannot draw a plot: {error}")))
}

impl Quantity {
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.logarithmic || value > 0.0)
    }
}

fn draw<Y>(summaries: &Summaries, quantity: Quantity, y: Y) -> Result<String, Box<dyn std::error::Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let fewest = summaries.threads.iter().copied().min().unwrap_or(1) as f64;
    let most = summaries.threads.iter().copied().max().unwrap_or(1) as f64;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d((fewest / 1.1..most * 1.1).log_scale().base(2.0), y)?;
        chart
            .configure_mesh()
            .x_desc("contenders")
            .y_desc(quantity.axis)
            .x_label_formatter(&|&t| format!("{t:.0}"))
            .y_label_formatter(&|&v| (quantity.label)(v))
            .axis_style(INK)
            .bold_line_style(INK.mix(0.15))
            .light_line_style(TRANSPARENT)
            .label_style(("sans-serif", 13, &INK))
            .draw()?;
        for &subject in &summaries.subjects {
            let mut points: Vec<(f64, f64)> = summaries
                .all
                .iter()
                .filter(|s| s.subject == subject)
                .map(|s| (s.threads as f64, (quantity.of)(s)))
                .filter(|&(_, value)| quantity.shows(value))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = colour(subject).stroke_width(2);
            chart.draw_series(LineSeries::new(points, style).point_size(3))?;
        }
        area.present()?;
    }
    Ok(svg)
}
