//! The growth of times with n, and the verdict whether the treap loses to another queue.

use serde::Serialize;

use crate::output::table::Table;
use crate::output::units;
use crate::targets::queues::QueueName;

/// The least number of waiters for which the queues are judged: with fewer waiters, the rest of an operation dominates.
pub const MANY: usize = 1000;

/// Times that differ by less than this part are a tie.
const TIE: f64 = 0.05;

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

/// A comparison of the treap with another queue, at a single n.
#[derive(Clone, Copy, Serialize, Debug)]
struct Match {
    case: &'static str,
    queue: QueueName,
    n: usize,
    /// The treap's time over the time of the other queue.
    ratio: f64,
}

/// The verdict whether the treap loses to another queue with [`MANY`] waiters or more.
#[derive(Clone, Serialize, Debug)]
pub struct Verdict {
    bench: &'static str,
    at_least_n: usize,
    /// The comparisons in which the treap loses.
    losses: Vec<Match>,
    /// The comparisons in which the treap neither loses nor wins by more than chance.
    ties: Vec<Match>,
    wins: usize,
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

impl Verdict {
    /// Compares the treap with the other queues. Returns `None` if the treap or all others are missing.
    pub fn new(bench: &'static str, points: &[Point]) -> Option<Self> {
        let (treaps, others): (Vec<&Point>, Vec<_>) = points.iter().partition(|p| p.queue == QueueName::Treap);
        if treaps.is_empty() || others.is_empty() {
            return None;
        }
        let mut verdict = Self { bench, at_least_n: MANY, losses: Vec::new(), ties: Vec::new(), wins: 0 };
        for other in others.into_iter().filter(|other| other.n >= MANY) {
            let Some(treap) = treaps.iter().find(|p| p.case == other.case && p.n == other.n) else { continue };
            let ratio = treap.ns / other.ns;
            let of = Match { case: other.case, queue: other.queue, n: other.n, ratio };
            match ratio {
                _ if ratio > 1.0 + TIE => verdict.losses.push(of),
                _ if ratio >= 1.0 / (1.0 + TIE) => verdict.ties.push(of),
                _ => verdict.wins += 1,
            }
        }
        Some(verdict)
    }

    /// Returns the verdict as a line.
    pub fn line(&self) -> String {
        let many = self.at_least_n;
        let ties = match &self.ties[..] {
            [] => String::new(),
            ties => format!(" A tie, within {:.0} %: {}.", 100.0 * TIE, list(ties)),
        };
        match &self.losses[..] {
            [] if self.wins + self.ties.len() == 0 => format!("With n >= {many} nothing was compared with the treap."),
            [] => format!("With n >= {many} the treap loses to no other queue.{ties}"),
            losses => format!("With n >= {many} the treap loses. It takes {}.{ties}", list(losses)),
        }
    }
}

/// Returns a list of the comparisons, by case and queue.
fn list(matches: &[Match]) -> String {
    let mut items: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    for &Match { case, queue, .. } in matches {
        if seen.contains(&(case, queue)) {
            continue;
        }
        seen.push((case, queue));
        let ours = || matches.iter().filter(|m| m.case == case && m.queue == queue);
        let ratios = |pick: fn(f64, f64) -> f64| units::ratio(ours().map(|m| m.ratio).reduce(pick).unwrap_or(f64::NAN));
        let ratios = match (ratios(f64::min), ratios(f64::max)) {
            (least, most) if least == most => least,
            (least, most) => format!("{least} to {most}"),
        };
        let ns: Vec<_> = ours().map(|m| m.n.to_string()).collect();
        items.push(format!("{ratios} x {} in {case}, n = {}", queue.name(), ns.join(", ")));
    }
    items.join("; ")
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

    #[test]
    fn losses_ties_and_wins() {
        let treap = [(100, 9.0), (1000, 12.0), (2000, 10.4), (4000, 10.0)];
        let other = [(100, 1.0), (1000, 10.0), (2000, 10.0), (4000, 20.0)];
        let both: Vec<_> = points(QueueName::Treap, &treap).chain(points(QueueName::TwoLevel, &other)).collect();
        let verdict = Verdict::new("bench", &both).unwrap();
        assert_eq!((verdict.losses.len(), verdict.ties.len(), verdict.wins), (1, 1, 1));
        let line = verdict.line();
        assert!(line.contains("loses. It takes 1.200 x two-level in case, n = 1000."), "{line}");
        assert!(line.ends_with("A tie, within 5 %: 1.040 x two-level in case, n = 2000."), "{line}");

        let twice: Vec<_> = points(QueueName::Treap, &[(1000, 2.0), (2000, 3.0)])
            .chain(points(QueueName::OneLevel, &[(1000, 1.0), (2000, 1.0)]))
            .collect();
        let line = Verdict::new("bench", &twice).unwrap().line();
        assert!(line.ends_with("It takes 2.000 to 3.000 x one-level in case, n = 1000, 2000."), "{line}");

        let wins: Vec<_> = both.iter().copied().filter(|p| p.n == 4000).collect();
        assert!(Verdict::new("bench", &wins).unwrap().line().ends_with("loses to no other queue."));
        let few: Vec<_> = both.iter().copied().filter(|p| p.n == 100).collect();
        assert!(Verdict::new("bench", &few).unwrap().line().contains("nothing was compared"));
        assert!(Verdict::new("bench", &points(QueueName::Treap, &treap).collect::<Vec<_>>()).is_none());
    }
}
