//! Confidence intervals, by a bootstrap over seeds.
//!
//! All contenders run the same workloads, so seeds are compared in pairs. The statistic is the ratio of the sums of a
//! figure over all seeds, minus 1: the change relative to the baseline. The seeds are drawn [`RESAMPLES`] times with
//! replacement; the interval has the middle 95 % of the changes (Efron and Tibshirani, "An Introduction to the
//! Bootstrap", 1993, chapter 13). With five seeds it shows how much seeds differ, and it is too narrow rather than too
//! wide: five seeds can be drawn in 126 ways.

use fastrand::Rng;

/// Number of draws.
const RESAMPLES: usize = 10_000;

/// Part of the changes beyond each end of an interval.
const TAIL: f64 = 0.025;

/// Change relative to a baseline: -0.1 is a tenth less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelativeChange {
    pub mean: f64,
    /// Ends of the interval.
    pub low: f64,
    pub high: f64,
}

/// Change of the values relative to the baseline, both in the order of the seeds. None if the baseline is 0.
pub fn change(values: &[f64], baseline: &[f64]) -> Option<RelativeChange> {
    let pairs: Vec<(f64, f64)> = values.iter().copied().zip(baseline.iter().copied()).collect();
    let mean = ratio(pairs.iter().copied())?;
    // The same draws for all figures, so that a result can be repeated.
    let mut random = Rng::with_seed(1);
    let mut changes: Vec<f64> =
        (0..RESAMPLES).filter_map(|_| ratio((0..pairs.len()).map(|_| pairs[random.usize(..pairs.len())]))).collect();
    changes.sort_by(f64::total_cmp);
    let at = |part: f64| changes.get((part * (changes.len() - 1) as f64).round() as usize).copied().unwrap_or(mean);
    Some(RelativeChange { mean, low: at(TAIL), high: at(1.0 - TAIL) })
}

fn ratio(pairs: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (value, baseline) = pairs.fold((0.0, 0.0), |(value, baseline), pair| (value + pair.0, baseline + pair.1));
    (baseline > 0.0).then(|| value / baseline - 1.0)
}

/// Mean of the values; 0 without any.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_changes_have_a_narrow_interval() {
        let found = change(&[90.0, 180.0, 45.0], &[100.0, 200.0, 50.0]).unwrap();
        for value in [found.mean, found.low, found.high] {
            assert!((value + 0.1).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn different_changes_have_a_wide_interval() {
        let found = change(&[80.0, 100.0, 120.0, 90.0, 110.0], &[100.0; 5]).unwrap();
        assert!(found.mean.abs() < 1e-9, "{found:?}");
        assert!(found.low < -0.08 && found.low > -0.2, "{found:?}");
        assert!(found.high > 0.08 && found.high < 0.2, "{found:?}");
        assert_eq!(change(&[80.0, 100.0], &[100.0; 2]), change(&[80.0, 100.0], &[100.0; 2]));
    }

    /// Pairs hide differences between seeds: the values vary by a factor of ten, the change does not.
    #[test]
    fn pairs_are_kept() {
        let found = change(&[11.0, 110.0], &[10.0, 100.0]).unwrap();
        assert!((found.low - 0.1).abs() < 1e-9 && (found.high - 0.1).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn nothing_has_no_change() {
        assert_eq!(change(&[1.0], &[0.0]), None);
        assert_eq!(change(&[], &[]), None);
    }

    /// About 57 of 60 samples have an interval with the true mean.
    #[test]
    fn the_interval_covers_the_truth() {
        let mut random = Rng::with_seed(2);
        let covered = (0..60).filter(|_| {
            let values: Vec<f64> = (0..30).map(|_| 100.0 * (0.8 + 0.4 * random.f64())).collect();
            change(&values, &[100.0; 30]).is_some_and(|found| found.low <= 0.0 && 0.0 <= found.high)
        });
        assert!(covered.count() >= 52);
    }
}
