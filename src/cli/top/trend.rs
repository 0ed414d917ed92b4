//! Recent values of a metric, and their sparkline against the levels of the metric.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Maximum number of values per metric.
pub const KEPT: usize = 240;

/// Bars, the lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Levels of a metric: the alarm High is raised above `high`, Low below `low`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopLevels {
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl TopLevels {
    fn exceeded(self, value: f64) -> bool {
        self.low.is_some_and(|low| value < low) || self.high.is_some_and(|high| value > high)
    }
}

/// A bar of a sparkline. `beyond`: the value is beyond a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrendBar {
    pub glyph: char,
    pub beyond: bool,
}

/// Recent values of a metric, by the time of the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trend {
    points: BTreeMap<Timestamp, f64>,
}

impl Trend {
    /// Adds a value. A value of a known time replaces the former one; the oldest values are dropped.
    pub fn add(&mut self, at: Timestamp, value: f64) {
        if value.is_finite() {
            self.points.insert(at, value);
        }
        while self.points.len() > KEPT {
            self.points.pop_first();
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// The last values as bars, the newest last; at most `columns`. The scale reaches over the shown values and the
    /// levels.
    pub fn bars(&self, levels: TopLevels, columns: usize) -> Vec<TrendBar> {
        let mut shown: Vec<f64> = self.points.values().rev().take(columns).copied().collect();
        shown.reverse();
        let all = || shown.iter().copied().chain(levels.low).chain(levels.high).filter(|value| value.is_finite());
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        let bar = |value: f64| TrendBar { glyph: glyph(value, least, most), beyond: levels.exceeded(value) };
        shown.into_iter().map(bar).collect()
    }
}

fn glyph(value: f64, least: f64, most: f64) -> char {
    let top = BARS.len() - 1;
    // Halves first: the difference of two large numbers would be infinite.
    let range = most / 2.0 - least / 2.0;
    if range <= 0.0 {
        return BARS[top / 2];
    }
    let share = ((value / 2.0 - least / 2.0) / range).clamp(0.0, 1.0);
    let at = (0..top).rev().find(|at| share * top as f64 >= *at as f64 + 0.5).map_or(0, |at| at + 1);
    BARS[at]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trend(values: &[f64]) -> Trend {
        let mut trend = Trend::default();
        for (at, value) in values.iter().enumerate() {
            trend.add(Timestamp::from_second(at as i64).unwrap(), *value);
        }
        trend
    }

    fn text(bars: &[TrendBar]) -> String {
        bars.iter().map(|bar| bar.glyph).collect()
    }

    proptest! {
        #[test]
        fn any_values_have_bars(values in proptest::collection::vec(any::<f64>(), 0..20), low in any::<f64>()) {
            let levels = TopLevels { low: Some(low), high: None };
            let trend = trend(&values);
            prop_assert_eq!(trend.bars(levels, 8).len(), trend.len().min(8));
        }

        #[test]
        fn a_larger_value_has_no_lower_bar(a in -1e6..1e6, b in -1e6..1e6) {
            let bars = trend(&[a, b]).bars(TopLevels { low: Some(0.0), high: Some(100.0) }, 9);
            let (low, high) = if a <= b { (bars[0], bars[1]) } else { (bars[1], bars[0]) };
            prop_assert!(low.glyph <= high.glyph);
        }
    }

    #[test]
    fn the_scale_covers_values_and_levels() {
        let levels = TopLevels { low: Some(0.0), high: Some(70.0) };
        let bars = trend(&[0.0, 30.0, 70.0, 35.0]).bars(levels, 10);
        assert_eq!(text(&bars), "▁▄█▅");
        assert!(bars.iter().all(|bar| !bar.beyond));
        let bars = trend(&[-1.0, 70.0, 71.0]).bars(levels, 10);
        assert_eq!(bars.iter().map(|bar| bar.beyond).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn the_last_values_are_shown_and_kept() {
        assert_eq!(text(&trend(&[9.0, 1.0, 2.0]).bars(TopLevels::default(), 2)), "▁█");
        assert_eq!(text(&trend(&[5.0, 5.0]).bars(TopLevels::default(), 9)), "▄▄");
        let many: Vec<f64> = (0..KEPT + 5).map(|at| at as f64).collect();
        assert_eq!(trend(&many).len(), KEPT);
        let mut same = trend(&[1.0]);
        same.add(Timestamp::from_second(0).unwrap(), 2.0);
        assert_eq!(same.len(), 1);
    }
}
