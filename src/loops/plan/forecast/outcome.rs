//! Result of a forecast, its explanation, and its use.

use std::fmt;

use jiff::Timestamp;

use super::model::ForecastModel;
use super::trust::{ForecastErrors, ForecastTrust};

/// Part of a replica that does not ask for one more: the stored form rounds.
const ROUNDING: f64 = 0.001;

/// Result of a forecast.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastOutcome {
    /// Highest demand until `until`, in replicas, not rounded; None if the model has no forecast.
    pub demand: Option<f64>,
    /// The trusted model, otherwise the one with the smaller error.
    pub model: ForecastModel,
    pub until: Timestamp,
    pub errors: ForecastErrors,
    pub trust: ForecastTrust,
}

impl ForecastOutcome {
    /// Number of replicas that the demand needs; None without a forecast.
    pub fn replicas(&self) -> Option<i32> {
        // The conversion saturates.
        self.demand.map(|demand| (demand * (1.0 - ROUNDING)).ceil() as i32)
    }
}

/// Number of replicas with a forecast: the larger one of the reactive number and a trusted proposal. A forecast raises
/// early and never lowers. Whether there are 0 replicas is not its decision.
pub fn with_forecast(reactive: i32, proposal: Option<i32>, trust: ForecastTrust) -> i32 {
    match (trust, proposal) {
        (ForecastTrust::Trusted(_), Some(proposal)) if reactive > 0 => reactive.max(proposal),
        (
            ForecastTrust::Trusted(_)
            | ForecastTrust::Learning { .. }
            | ForecastTrust::NotBetter
            | ForecastTrust::NoRecentValues,
            _,
        ) => reactive,
    }
}

impl fmt::Display for ForecastTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trusted(_) => f.write_str("trusted"),
            Self::Learning { horizons, needed } => {
                write!(f, "not used: {horizons} of {needed} horizons are judged")
            }
            Self::NotBetter => f.write_str("not used: it is not clearly better than the last value"),
            Self::NoRecentValues => f.write_str("not used: the last values are unknown"),
        }
    }
}

impl fmt::Display for ForecastOutcome {
    /// One line, such as `12.4 replicas until 2026-11-28T10:25:00Z by Holt-Winters, trusted (mean error over 288
    /// horizons: Holt-Winters 0.98, seasonal naive 1.15, last value 2.15)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demand, model, until, errors, trust } = self;
        let until = Timestamp::from_second(until.as_second()).unwrap_or(*until);
        match demand {
            Some(demand) => write!(f, "{demand:.1} replicas until {until} by {}, {trust}", model.as_str())?,
            None => write!(f, "no forecast until {until}, {trust}")?,
        }
        let ForecastErrors { last_value, seasonal_naive, holt_winters, horizons } = errors;
        if *horizons > 0 {
            write!(
                f,
                " (mean error over {horizons} horizons: Holt-Winters {holt_winters:.2}, seasonal naive \
                 {seasonal_naive:.2}, last value {last_value:.2})"
            )?;
        }
        Ok(())
    }
}
