//! The agent `safe`: limits the risk of overload, based on measured usage.
//!
//! A resource is not judged if it has no valid statistics or if the node has none of it. A node without any judged
//! resource passes the filter and gets the worst score.

use super::risk::{risk, risk_at_most};
use super::sample::number;

/// Settings of the agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SafeRules {
    /// Utilisation above which a resource is overloaded, 0 to 1.
    pub threshold: f64,
    /// Maximum accepted probability of overload, 0 to 1.
    pub accepted: f64,
    /// Weight of the forecast against the mean, 0 to 1.
    pub forecast_weight: f64,
    /// Factor of the deviation in the score `Balance`, 0 or more.
    pub margin: f64,
    /// Degree of the root of the deviation in the score `Balance`, more than 0.
    pub sensitivity: f64,
}

impl Default for SafeRules {
    fn default() -> Self {
        Self { threshold: 0.9, accepted: 0.3, forecast_weight: 0.2, margin: 1.0, sensitivity: 2.0 }
    }
}

/// Usage of one resource of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Allocatable amount.
    pub capacity: f64,
    pub statistics: Option<Statistics>,
    /// Requests of pods that the statistics do not include yet.
    pub unmeasured: f64,
}

/// Expected utilisation once the pod runs, as a fraction of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub mean: f64,
    pub deviation: f64,
}

impl Usage {
    /// Expected utilisation with a pod of this request; None without valid statistics.
    pub fn with(&self, request: f64, rules: &SafeRules) -> Option<Moments> {
        let statistics = self.statistics.filter(|_| self.capacity > 0.0 && self.capacity.is_finite())?;
        let used = statistics.used(self.capacity, rules.forecast_weight) + self.unmeasured;
        Some(Moments {
            mean: ((used + request) / self.capacity).clamp(0.0, 1.0),
            deviation: (statistics.deviation().unwrap_or(0.0) / self.capacity).clamp(0.0, 1.0),
        })
    }
}

impl Moments {
    /// Probability of overload.
    pub fn risk(&self, rules: &SafeRules) -> f64 {
        risk(self.mean, self.deviation, rules.threshold)
    }

    /// Score `Balance`, 0 to 10: low and steady utilisation is best.
    pub fn balance(&self, rules: &SafeRules) -> f64 {
        let deviation = (rules.margin * self.deviation.powf(rules.sensitivity.recip())).clamp(0.0, 1.0);
        10.0 * (1.0 - (self.mean + deviation) / 2.0)
    }
}

/// One value for CPU and one for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerResource<T> {
    pub cpu: T,
    pub memory: T,
}

impl<T> PerResource<T> {
    fn each(&self) -> [(&'static str, &T); 2] {
        [("cpu", &self.cpu), ("memory", &self.memory)]
    }
}

impl PerResource<Usage> {
    /// Expected utilisation of the node with a pod of these requests: the first step of the filter and of both scores.
    pub fn with(&self, request: &PerResource<f64>, rules: &SafeRules) -> PerResource<Option<Moments>> {
        PerResource { cpu: self.cpu.with(request.cpu, rules), memory: self.memory.with(request.memory, rules) }
    }
}

impl PerResource<Option<Moments>> {
    /// Whether the upper bounds of all risks are accepted. If false, [`Self::judge`] calculates the exact risks.
    pub fn is_surely_accepted(&self, rules: &SafeRules) -> bool {
        let accepted =
            |moments: &Moments| risk_at_most(moments.mean, moments.deviation, rules.threshold) <= rules.accepted;
        self.each().into_iter().filter_map(|(_, moments)| moments.as_ref()).all(accepted)
    }

    /// Score `Overload`, 0 to 10: the score of the resource with the highest risk. The exact risk of the other resource
    /// is only calculated if its upper bound is higher.
    pub fn overload(&self, rules: &SafeRules) -> f64 {
        let bound = |moments: &Moments| risk_at_most(moments.mean, moments.deviation, rules.threshold);
        let bounds = self.each().map(|(_, moments)| moments.as_ref().map(|moments| (bound(moments), moments)));
        let [first, second] = bounds;
        let (first, second) = match (first, second) {
            (Some(first), Some(second)) if first.0 < second.0 => (second, Some(first)),
            (Some(first), second) => (first, second),
            (None, Some(second)) => (second, None),
            (None, None) => return 0.0,
        };
        let risk = first.1.risk(rules);
        let higher =
            second.filter(|(bound, _)| *bound > risk).map_or(risk, |(_, moments)| moments.risk(rules).max(risk));
        overload(higher, rules)
    }

    /// Score `Balance`, 0 to 10: the score of the worst resource.
    pub fn balance(&self, rules: &SafeRules) -> f64 {
        worst(self.each().into_iter().filter_map(|(_, moments)| Some(moments.as_ref()?.balance(rules))))
    }

    /// Calculates the exact risks. This costs more than all other steps, so calculate it once for filter and score.
    pub fn judge(&self, rules: &SafeRules) -> PerResource<Option<Judged>> {
        let judge = |moments: Option<Moments>| moments.map(|moments| Judged { risk: moments.risk(rules), moments });
        PerResource { cpu: judge(self.cpu), memory: judge(self.memory) }
    }
}

/// Expected utilisation of a resource with its risk of overload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    pub moments: Moments,
    pub risk: f64,
}

impl Judged {
    /// Whether the risk is accepted.
    pub fn is_accepted(&self, rules: &SafeRules) -> bool {
        self.risk <= rules.accepted
    }

    /// Score `Overload` of the resource, 0 to 10.
    pub fn overload(&self, rules: &SafeRules) -> f64 {
        overload(self.risk, rules)
    }
}

impl PerResource<Option<Judged>> {
    /// Reason of a rejection for users, such as `cpu risk 0.412 > 0.300 (mu 0.71, sigma 0.18)`; None if the node is
    /// accepted.
    pub fn rejection(&self, rules: &SafeRules) -> Option<String> {
        let rejected = self.each().into_iter().filter_map(|(name, judged)| {
            let judged = judged.as_ref().filter(|judged| !judged.is_accepted(rules))?;
            let Moments { mean, deviation } = judged.moments;
            let (risk, accepted) = distinct(judged.risk, rules.accepted);
            Some(format!("{name} risk {risk} > {accepted} (mu {mean:.2}, sigma {deviation:.2})"))
        });
        Some(rejected.collect::<Vec<_>>().join("; ")).filter(|reason| !reason.is_empty())
    }

    /// Score `Overload`, 0 to 10: the score of the worst resource.
    pub fn overload(&self, rules: &SafeRules) -> f64 {
        worst(self.each().into_iter().filter_map(|(_, judged)| Some(judged.as_ref()?.overload(rules))))
    }
}

fn overload(risk: f64, rules: &SafeRules) -> f64 {
    10.0 * (1.0 - part(risk, rules.accepted).sqrt())
}

/// Risk as a fraction of the accepted risk, at most 1.
fn part(risk: f64, accepted: f64) -> f64 {
    if accepted > 0.0 {
        (risk / accepted).min(1.0)
    } else if risk > 0.0 {
        1.0
    } else {
        0.0
    }
}

fn worst(scores: impl Iterator<Item = f64>) -> f64 {
    scores.reduce(f64::min).unwrap_or(0.0)
}

/// Formats two numbers with three digits after the point, or with as many as they need to differ.
fn distinct(one: f64, other: f64) -> (String, String) {
    let texts = |digits: usize| (format!("{one:.digits$}"), format!("{other:.digits$}"));
    (3..18).map(texts).find(|(one, other)| one != other).unwrap_or_else(|| (one.to_string(), other.to_string()))
}

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
    fn used(&self, capacity: f64, forecast_weight: f64) -> f64 {
        let expected = self
            .forecast
            .map_or(self.mean, |forecast| (1.0 - forecast_weight) * self.mean + forecast_weight * forecast);
        match self.basis {
            Basis::Free => (capacity - expected).max(0.0),
            Basis::Used => expected.max(0.0),
        }
    }
}
