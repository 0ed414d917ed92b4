//! Usage statistics of one resource of a node, as published in annotations.

use crate::sample::number;

/// Whether statistics describe the free or the used amount.
///
/// The free amount is measured against the node's capacity, but readers subtract it from allocatable, so the usage
/// appears lower by the difference of the two. Statistics of the used amount are preferred for that reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    Free,
    Used,
}

/// Valid usage statistics of a resource: CPU in millicores, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    basis: Basis,
    mean: f64,
    deviation: Option<f64>,
    forecast: Option<f64>,
}

/// Annotation keys of the statistics of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticKeys {
    pub(crate) mean_used: &'static str,
    pub(crate) deviation_used: &'static str,
    pub(crate) forecast_used: &'static str,
    pub(crate) mean_free: &'static str,
    pub(crate) deviation_free: &'static str,
    /// The first valid one counts.
    pub(crate) forecast_free: [&'static str; 2],
}

/// Keys for CPU, in millicores. `forcasted` is how the annotator of kube-safe-scheduler spells it.
pub const CPU: StatisticKeys = StatisticKeys {
    mean_used: "mean-used-cpu",
    deviation_used: "std-used-cpu",
    forecast_used: "forecasted-used-cpu",
    mean_free: "mean-free-cpu",
    deviation_free: "std-free-cpu",
    forecast_free: ["forcasted-free-cpu", "forecasted-free-cpu"],
};

/// Keys for memory, in bytes.
pub const MEMORY: StatisticKeys = StatisticKeys {
    mean_used: "mean-used-memory",
    deviation_used: "std-used-memory",
    forecast_used: "forecasted-used-memory",
    mean_free: "mean-free-memory",
    deviation_free: "std-free-memory",
    forecast_free: ["forcasted-free-memory", "forecasted-free-memory"],
};

impl StatisticKeys {
    /// Reads the statistics from annotations; None without a valid mean.
    pub fn read<'a>(&self, annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Statistics> {
        let valid = |key: &str| annotation(key).and_then(number);
        // The used and the free amount have the same deviation.
        let deviation = |key: &str, other: &str| valid(key).or_else(|| valid(other));
        let (used, free) = (self.deviation_used, self.deviation_free);
        if let Some(mean) = valid(self.mean_used) {
            return Statistics::new(Basis::Used, mean, deviation(used, free), valid(self.forecast_used));
        }
        let forecast = self.forecast_free.iter().find_map(|key| valid(key));
        Statistics::new(Basis::Free, valid(self.mean_free)?, deviation(free, used), forecast)
    }
}

impl Statistics {
    /// None without a finite mean. A forecast or deviation that is not finite is ignored, and so is a negative
    /// deviation.
    pub fn new(basis: Basis, mean: f64, deviation: Option<f64>, forecast: Option<f64>) -> Option<Self> {
        let valid = |value: &f64| value.is_finite();
        let deviation = deviation.filter(|value| valid(value) && *value >= 0.0);
        valid(&mean).then(|| Self { basis, mean, deviation, forecast: forecast.filter(valid) })
    }

    /// Standard deviation. None if it is missing or invalid; it then counts as 0.
    pub fn deviation(&self) -> Option<f64> {
        self.deviation
    }

    /// Expected used amount of a resource with this capacity.
    pub(super) fn used(&self, capacity: f64, forecast_weight: f64) -> f64 {
        let expected = self
            .forecast
            .map_or(self.mean, |forecast| (1.0 - forecast_weight) * self.mean + forecast_weight * forecast);
        match self.basis {
            Basis::Free => (capacity - expected).max(0.0),
            Basis::Used => expected.max(0.0),
        }
    }
}
