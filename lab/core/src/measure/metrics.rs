//! Numbers about shares: how evenly the admissions fell on the contenders.

/// Returns the smallest share over the largest: 1 if all shares are equal, 0 if a contender got nothing.
///
/// If no contender got anything, this and the other functions return the value of even shares.
pub fn min_max(shares: &[u64]) -> f64 {
    match (shares.iter().min(), shares.iter().max()) {
        (Some(&min), Some(&max)) if max > 0 => min as f64 / max as f64,
        _ => 1.0,
    }
}

/// Returns Jain's index, (sum x)^2 / (n sum x^2): the part of the contenders among which equal shares would be as
/// uneven. 1 if all shares are equal, 1/n if a single contender got everything.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&x| x as f64).sum();
    let squares: f64 = shares.iter().map(|&x| (x as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum.powi(2) / (shares.len() as f64 * squares) }
}

/// Returns the largest of some costs, or NaN if there are none.
pub fn worst(costs: &[f64]) -> f64 {
    costs.iter().copied().fold(f64::NAN, f64::max)
}

/// Returns whether the runs of a series fall into two modes: the best or the worst run is more than twice away from the
/// median.
pub fn is_bistable(costs: &[f64]) -> bool {
    let middle = median(costs.iter().copied());
    costs.iter().any(|&cost| cost > 2.0 * middle || 2.0 * cost < middle)
}

/// Returns the middle value, or the mean of the two middle values, or NaN if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Returns the least of the values that `per_mille` in a thousand do not exceed, or `None` if there are no values. The
/// values must be sorted.
pub fn quantile(sorted: &[u64], per_mille: usize) -> Option<u64> {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the n-th root of the product of n values, or NaN if there are none.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn even_shares() {
        for shares in [&[7][..], &[5, 5, 5]] {
            close(min_max(shares), 1.0);
            close(jain(shares), 1.0);
        }
    }

    #[test]
    fn one_takes_all() {
        let shares = [0, 0, 0, 12];
        close(min_max(&shares), 0.0);
        close(jain(&shares), 0.25);
    }

    #[test]
    fn all_zero_is_even() {
        for shares in [&[0][..], &[0, 0], &[]] {
            close(min_max(shares), 1.0);
            close(jain(shares), 1.0);
        }
    }

    #[test]
    fn uneven_shares() {
        close(min_max(&[1, 4]), 0.25);
        close(jain(&[1, 3]), 16.0 / 20.0);
    }

    #[test]
    fn no_overflow() {
        close(jain(&[u64::MAX, u64::MAX]), 1.0);
    }

    #[test]
    fn quantiles_are_values() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([0, 500, 990, 991, 999, 1000].map(|n| quantile(&hundred, n).unwrap()), [1, 50, 99, 100, 100, 100]);
        assert_eq!([1, 500, 1000].map(|n| quantile(&[7], n)), [Some(7); 3]);
        assert_eq!(quantile(&[], 500), None);
    }

    #[test]
    fn middles() {
        close(median([3.0]), 3.0);
        close(median([9.0, 1.0, 2.0]), 2.0);
        close(median([4.0, 1.0]), 2.5);
        assert!(median([]).is_nan());
        close(geometric_mean([2.0, 8.0]), 4.0);
        assert!(geometric_mean([]).is_nan());
    }
}
