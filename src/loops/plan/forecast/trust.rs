//! Errors of the models and of the last value, and the rule for trust.

use super::model::ForecastModel;

/// Error, relative to that of the last value, below which a model is trusted.
const TRUSTED_BELOW: f64 = 0.8;

/// Error, relative to that of the last value, from which on a model is not trusted any more.
const UNTRUSTED_FROM: f64 = 0.9;

/// Error, relative to that of the trusted model, below which the other one takes its place.
const REPLACED_BELOW: f64 = 0.95;

/// Mean absolute errors of forecasts over the last horizons, in replicas. The last season counts most: each error has
/// the weight of one bucket of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForecastErrors {
    /// Error of the last value before the forecast was made.
    pub last_value: f64,
    pub seasonal_naive: f64,
    pub holt_winters: f64,
    /// Number of judged horizons, at most one for each bucket of a season.
    pub horizons: u32,
}

impl ForecastErrors {
    pub fn error(&self, model: ForecastModel) -> f64 {
        match model {
            ForecastModel::SeasonalNaive => self.seasonal_naive,
            ForecastModel::HoltWinters => self.holt_winters,
        }
    }

    /// The model with the smaller error.
    pub fn better(&self) -> ForecastModel {
        if self.seasonal_naive < self.holt_winters { ForecastModel::SeasonalNaive } else { ForecastModel::HoltWinters }
    }
}

/// Whether a forecast is used, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForecastTrust {
    /// This model is clearly better than the last value.
    Trusted(ForecastModel),
    /// Fewer horizons are judged than a season has buckets.
    Learning { horizons: u32, needed: u32 },
    /// No model is clearly better than the last value.
    NotBetter,
    /// The last values are unknown.
    NoRecentValues,
}

/// Forecasts of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketForecasts {
    pub last_value: f64,
    pub seasonal_naive: f64,
    pub holt_winters: f64,
}

/// Errors, and the model that is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Judgement {
    pub errors: ForecastErrors,
    pub trusted: Option<ForecastModel>,
}

impl Judgement {
    /// Compares forecasts with the demand. `needed`: number of buckets of a season.
    pub fn judge(&mut self, forecasts: BucketForecasts, demand: f64, needed: u32) {
        let errors = &mut self.errors;
        errors.horizons = errors.horizons.saturating_add(1).min(needed);
        let weight = 1.0 / f64::from(errors.horizons.max(1));
        for (error, forecast) in [
            (&mut errors.last_value, forecasts.last_value),
            (&mut errors.seasonal_naive, forecasts.seasonal_naive),
            (&mut errors.holt_winters, forecasts.holt_winters),
        ] {
            *error += weight * ((forecast - demand).abs() - *error);
        }
        self.trusted = self.next(needed);
    }

    fn next(&self, needed: u32) -> Option<ForecastModel> {
        let errors = &self.errors;
        if errors.horizons < needed {
            return None;
        }
        let better = errors.better();
        let (model, limit) = match self.trusted {
            None => (better, TRUSTED_BELOW),
            Some(model) if errors.error(better) < REPLACED_BELOW * errors.error(model) => (better, UNTRUSTED_FROM),
            Some(model) => (model, UNTRUSTED_FROM),
        };
        (errors.error(model) < limit * errors.last_value).then_some(model)
    }
}
