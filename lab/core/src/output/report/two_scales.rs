//! A plot with two scales, as in the figure of the paper on capacitors: a quantity in solid lines, on the left axis,
//! which is logarithmic; and a share in dotted lines, on the right axis, from 0 to 1.

use plotters::prelude::*;

use super::plot::{INK, SIZE, axes};
use crate::output::failure::Failure;

/// Curves in a plot with two scales.
#[derive(Clone, Debug)]
pub struct TwoScales {
    /// The text of the horizontal axis. This axis is logarithmic, and the ticks are powers of 2.
    pub x: &'static str,
    /// The text of the left axis.
    pub left: &'static str,
    /// Formats a number on the left axis.
    pub label: fn(f64) -> String,
    /// The text of the right axis.
    pub right: &'static str,
    /// The curves.
    pub curves: Vec<TwoCurves>,
}

/// Two curves of the same colour, over the same axis.
#[derive(Clone, Debug)]
pub struct TwoCurves {
    /// The colour of both curves.
    pub colour: RGBColor,
    /// The solid curve. Values that are not above zero cannot be shown.
    pub left: Vec<(f64, f64)>,
    /// The dotted curve, from 0 to 1.
    pub right: Vec<(f64, f64)>,
}

impl TwoScales {
    /// Draws the curves.
    pub fn svg(mut self) -> Result<String, Failure> {
        for curves in &mut self.curves {
            curves.left.retain(|&(_, value)| value.is_finite() && value > 0.0);
            curves.right.retain(|&(_, share)| share.is_finite());
            for points in [&mut curves.left, &mut curves.right] {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
        }
        if self.curves.iter().all(|curves| curves.left.is_empty()) {
            return Ok("<p>Nothing was measured.</p>".to_owned());
        }
        self.draw().map_err(|error| Failure::Run(format!("cannot draw a plot: {error}")))
    }

    fn draw(&self) -> Result<String, Box<dyn std::error::Error>> {
        let points = || self.curves.iter().flat_map(|curves| &curves.left);
        let range = |of: fn(&(f64, f64)) -> f64| {
            (points().map(of).fold(f64::INFINITY, f64::min), points().map(of).fold(f64::NEG_INFINITY, f64::max))
        };
        let ((fewest, most), (least, greatest)) = (range(|point| point.0), range(|point| point.1));
        let x = || (fewest / 1.1..most * 1.1).log_scale().base(2.0);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&area)
                .margin(10)
                .x_label_area_size(40)
                .y_label_area_size(80)
                .right_y_label_area_size(50)
                .build_cartesian_2d(x(), (least / 1.5..greatest * 1.5).log_scale())?
                .set_secondary_coord(x(), 0.0..1.05);
            axes(&mut chart, self.x, self.left, self.label)?;
            chart
                .configure_secondary_axes()
                .y_desc(self.right)
                .y_label_formatter(&|share| format!("{share:.1}"))
                .axis_style(INK)
                .label_style(("sans-serif", 13, &INK))
                .draw()?;
            for TwoCurves { colour, left, right } in &self.curves {
                let solid = LineSeries::new(left.iter().copied(), colour.stroke_width(2));
                chart.draw_series(solid.point_size(3))?;
                let dotted = DashedLineSeries::new(right.iter().copied(), 2, 4, colour.stroke_width(2));
                chart.draw_secondary_series(dotted)?;
            }
            area.present()?;
        }
        Ok(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(left: Vec<(f64, f64)>) -> String {
        let right = left.iter().map(|&(x, _)| (x, 0.5)).collect();
        let curves = vec![TwoCurves { colour: RGBColor(1, 2, 3), left, right }];
        TwoScales { x: "over", left: "solid", label: |v| format!("{v}"), right: "dotted", curves }.svg().unwrap()
    }

    #[test]
    fn both_scales_are_there() {
        for points in [vec![(1.0, 10.0)], vec![(1.0, 10.0), (32.0, 1e7)]] {
            let svg = plot(points);
            assert!(svg.starts_with("<svg") && svg.contains("solid") && svg.contains("dotted"), "{svg}");
        }
        assert_eq!(plot(vec![(1.0, f64::NAN), (2.0, 0.0)]), "<p>Nothing was measured.</p>");
    }
}
