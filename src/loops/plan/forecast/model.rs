//! The two models: seasonal naive, and Holt-Winters with an additive season.

use super::season::StoredSeason;

/// Candidates for the weight of the latest deviation in the level.
const LEVEL_WEIGHTS: [f64; 5] = [0.1, 0.2, 0.4, 0.6, 0.8];

/// Candidates for the weight of the latest change of the level in the trend, relative to that of the level. 0: no
/// trend.
const TREND_WEIGHTS: [f64; 2] = [0.0, 0.1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForecastModel {
    /// The demand of one season before.
    SeasonalNaive,
    /// The usual demand at that time of the season, plus level and trend of the current deviation from it.
    HoltWinters,
}

impl ForecastModel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SeasonalNaive => "seasonal naive",
            Self::HoltWinters => "Holt-Winters",
        }
    }
}

/// Level and trend of Holt-Winters at the end of a bucket, relative to what is usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HoltWintersFit {
    /// Last bucket that is over.
    last: i64,
    level: f64,
    trend: f64,
}

impl HoltWintersFit {
    /// Follows the deviations of the stored season up to a bucket, with the weights whose forecasts at this distance
    /// have the least mean error over the stored season. None while no forecast can be compared with a value.
    pub fn new(season: &StoredSeason, last: i64, count: i64, distance: i64) -> Option<Self> {
        let deviations: Vec<Option<f64>> = (last - count + 1..=last).map(|index| season.deviation(index)).collect();
        let mut best: Option<SmoothedDeviation> = None;
        for level_weight in LEVEL_WEIGHTS {
            for trend_weight in TREND_WEIGHTS {
                let candidate = smoothed(&deviations, level_weight, level_weight * trend_weight, distance);
                if let Some(candidate) = candidate
                    && best.as_ref().is_none_or(|best| candidate.error < best.error)
                {
                    best = Some(candidate);
                }
            }
        }
        best.map(|best| Self { last, level: best.level, trend: best.trend })
    }

    /// Forecast for a later bucket.
    pub fn forecast(&self, season: &StoredSeason, index: i64) -> Option<f64> {
        let steps = (index - self.last) as f64;
        Some((season.usual(index)? + self.level + self.trend * steps).max(0.0))
    }
}

struct SmoothedDeviation {
    level: f64,
    trend: f64,
    /// Mean absolute error of the forecasts.
    error: f64,
}

/// Double exponential smoothing. A missing deviation changes neither level nor trend.
fn smoothed(
    deviations: &[Option<f64>],
    level_weight: f64,
    trend_weight: f64,
    distance: i64,
) -> Option<SmoothedDeviation> {
    let distance = usize::try_from(distance).ok()?;
    let mut state: Option<(f64, f64)> = None;
    let mut forecasts: Vec<Option<f64>> = Vec::with_capacity(deviations.len());
    let (mut sum, mut number) = (0.0, 0_u32);
    for (position, deviation) in deviations.iter().enumerate() {
        if let Some(deviation) = deviation {
            let forecast = position.checked_sub(distance).and_then(|made| *forecasts.get(made)?);
            if let Some(forecast) = forecast {
                sum += (forecast - deviation).abs();
                number += 1;
            }
            state = Some(match state {
                None => (*deviation, 0.0),
                Some((level, trend)) => {
                    let error = deviation - level - trend;
                    (level + trend + level_weight * error, trend + trend_weight * error)
                }
            });
        }
        forecasts.push(state.map(|(level, trend)| level + trend * distance as f64));
    }
    let (level, trend) = state?;
    (number > 0).then(|| SmoothedDeviation { level, trend, error: sum / f64::from(number) })
}
