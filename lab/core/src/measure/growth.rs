//! The growth of times with n.

use serde::Serialize;

use crate::output::table::Table;
use crate::output::units;
use crate::targets::queues::QueueName;

/// The number of waiters from which on the growth is also computed: with fewer waiters, the rest of an operation dominates.
const MANY: usize = 1000;

/// A measured time.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The case that was measured.
    pub case: &'static str,
    pub queue: QueueName,
    /// The number of waiters.
    pub n: usize,
    /// The time of an operation, in nanoseconds.
    pub ns: f64,
}

/// The growth of a case with a queue.
#[derive(Clone, Serialize, Debug)]
pub struct Growth {
    bench: &'static str,
    case: &'static str,
    queue: QueueName,
    /// The smallest n of the growth.
    from_n: usize,
    /// The largest n of the growth.
    to_n: usize,
    /// The exponent of the growth. `None` if there are not two different n.
    exponent: Option<f64>,
}

/// Returns the p of the time c n^p that fits best: the slope of log(time) over log(n), by least squares. Returns `None`
/// if there are not two different n.
pub fn exponent(points: impl IntoIterator<Item = (f64, f64)>) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points.into_iter().map(|(n, time)| (n.ln(), time.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / logs.len() as f64;
    let (x, y) = (mean(|log| log.0), mean(|log| log.1));
    let spread: f64 = logs.iter().map(|log| (log.0 - x).powi(2)).sum();
    let slope = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum::<f64>() / spread;
    (spread > 0.0 && slope.is_finite()).then_some(slope)
}

/// Returns the growth of each case with each queue, over all n; and over the n from [`MANY`] on, if there are several
/// such n and smaller n as well.
pub fn growths(bench: &'static str, points: &[Point]) -> Vec<Growth> {
    let mut froms = vec![0];
    let mut many: Vec<usize> = points.iter().map(|p| p.n).filter(|&n| n >= MANY).collect();
    many.sort_unstable();
    many.dedup();
    if many.len() > 1 && points.iter().any(|p| p.n < MANY) {
        froms.push(MANY);
    }
    let mut growths: Vec<Growth> = Vec::new();
    let mut all: Vec<usize> = points.iter().map(|p| p.n).collect();
    all.sort_unstable();
    all.dedup();
    if all.len() < 2 {
        return growths;
    }
    for from in froms {
        let mut seen = Vec::new();
        for &Point { case, queue, .. } in points {
            if seen.contains(&(case, queue)) {
                continue;
            }
            seen.push((case, queue));
            let ours = || points.iter().filter(|p| p.case == case && p.queue == queue && p.n >= from);
            growths.push(Growth {
                bench,
                case,
                queue,
                from_n: ours().map(|p| p.n).min().unwrap_or(from),
                to_n: ours().map(|p| p.n).max().unwrap_or(from),
                exponent: exponent(ours().map(|p| (p.n as f64, p.ns))),
            });
        }
    }
    growths
}

/// Returns a table of the results of [`growths`].
pub fn table(growths: &[Growth]) -> Table {
    let mut table = Table::new(2, ["case", "queue", "n from", "to", "growth exponent"]);
    for growth in growths {
        let numbers = [growth.from_n.to_string(), growth.to_n.to_string()];
        let exponent = growth.exponent.map_or_else(|| units::NOTHING.to_owned(), |exponent| format!("{exponent:.2}"));
        let words = [growth.case, growth.queue.name()].map(str::to_owned);
        table.row(words.into_iter().chain(numbers).chain([exponent]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(queue: QueueName, times: &[(usize, f64)]) -> impl Iterator<Item = Point> {
        times.iter().map(move |&(n, ns)| Point { case: "case", queue, n, ns })
    }

    #[test]
    fn the_exponent_of_a_power_is_that_power() {
        for power in [0.0, 0.5, 1.0, 2.0] {
            let times = [100.0, 300.0, 1000.0, 64_000.0].map(|n: f64| (n, 7.0 * n.powf(power)));
            assert!((exponent(times).unwrap() - power).abs() < 1e-12, "{power}");
        }
        assert_eq!(exponent([(1000.0, 3.0)]), None);
        assert_eq!(exponent([(1000.0, 3.0), (1000.0, 4.0)]), None);
        assert_eq!(exponent([]), None);
    }

    #[test]
    fn growth_over_all_and_over_many() {
        let times = [(10, 10.0), (100, 10.0), (1000, 10.0), (4000, 160.0)];
        let growths = growths("bench", &points(QueueName::Treap, &times).collect::<Vec<_>>());
        assert_eq!(growths.iter().map(|g| (g.from_n, g.to_n)).collect::<Vec<_>>(), [(10, 4000), (1000, 4000)]);
        assert!((growths[1].exponent.unwrap() - 2.0).abs() < 1e-12);
        assert!(growths[0].exponent.unwrap() < 1.0);
        assert_eq!(table(&growths).rows().count(), 3);
    }
}
