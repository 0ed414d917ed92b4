//! Services whose number of replicas follows their load.
//!
//! The rule is the shipped one for target tracking, which follows HorizontalPodAutoscaler (`tests/peers/autoscaler`
//! compares both). The metric is the CPU that the ready replicas use, as metrics-server would report it: CPU that they
//! want and do not get is invisible.

use ganglion_loops_plan::forecast::{ForecastMemory, ForecastRuleError, ForecastRules};
use ganglion_loops_plan::track::{
    Nanos, ScalePace, Tolerances, TrackInput, TrackMemory, TrackPass, TrackRules, TrackTarget, TrackedMetric,
    ZeroOrigin, decide,
};
use jiff::Timestamp;

use super::request::PodRequest;
use crate::trace::{HistoryPoint, WorkKind, WorkPod, WorkTrace};

/// Target of the usage of a replica, relative to its request.
pub const TARGET: f64 = 0.7;

/// Midnight at which runs begin, in seconds since 1970.
pub const BEGIN: i64 = 1_800_057_600;

/// How the number of replicas of services is determined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplicaScaling {
    /// As in the trace.
    Fixed,
    /// HorizontalPodAutoscaler's rule, which is that of our target tracking.
    Tracking,
    /// The same with a forecast.
    Forecast(ForecastRules),
}

/// A scaled service.
pub struct ScaledService {
    pub site: usize,
    /// Requests of a replica; `pod` is not used.
    pub request: PodRequest,
    /// Indexes of its pods, the oldest first.
    pub pods: Vec<usize>,
    /// Wanted cores in each step.
    demand: Vec<f64>,
    /// Cores that its replicas used in the last step.
    pub used: f64,
    memory: TrackMemory,
    forecast: Option<ForecastMemory>,
    rules: TrackRules,
    /// Replicas at the begin.
    pub initial: i32,
}

pub fn time(second: i64) -> Timestamp {
    Timestamp::from_second(BEGIN.saturating_add(second)).unwrap_or_default()
}

/// The services of a trace, one for each pool of kind `service`. `site`: of a pool, by its position.
pub fn services(
    trace: &WorkTrace,
    steps: usize,
    step: i64,
    scaling: ReplicaScaling,
    site: impl Fn(&str) -> usize,
) -> Result<Vec<ScaledService>, ForecastRuleError> {
    let mut services = Vec::new();
    for (index, (pool, members)) in trace.pools().into_iter().enumerate() {
        let pods: Vec<_> = members.iter().map(|index| &trace.pods[*index]).collect();
        if pods.first().is_none_or(|pod| pod.kind == WorkKind::Job) {
            continue;
        }
        let demand_at = |step_index: usize| {
            let now = (step_index as i64 * step) as f64;
            let alive = pods.iter().filter(|pod| pod.arrival <= now && now < pod.ends());
            alive.map(|pod| pod.usage.at(now - pod.arrival)).sum()
        };
        let request = replica_request(index, &pods);
        let history = trace.history.get(pool).map(Vec::as_slice).unwrap_or_default();
        let forecast = match scaling {
            ReplicaScaling::Forecast(rules) => Some(learned(&rules, history, &request)?),
            ReplicaScaling::Fixed | ReplicaScaling::Tracking => None,
        };
        let most = i32::try_from(pods.len().saturating_mul(3)).unwrap_or(i32::MAX);
        services.push(ScaledService {
            site: site(pool),
            request,
            pods: Vec::new(),
            demand: (0..steps).map(demand_at).collect(),
            used: 0.0,
            memory: TrackMemory::default(),
            forecast,
            rules: TrackRules { min: 1, max: most, pace: ScalePace::default(), cooldown: None },
            initial: i32::try_from(pods.len()).unwrap_or(i32::MAX),
        });
    }
    Ok(services)
}

/// Mean requests of these replicas. `service`: index of their pool; `pod` is not used.
pub fn replica_request(service: usize, replicas: &[&WorkPod]) -> PodRequest {
    let mean = |value: fn(&WorkPod) -> f64| {
        replicas.iter().map(|replica| value(replica)).sum::<f64>() / replicas.len().max(1) as f64
    };
    PodRequest::new(0, Some(service), mean(|pod| pod.cpu), mean(|pod| pod.memory))
}

/// A forecast that has learned from this history.
fn learned(
    rules: &ForecastRules,
    history: &[HistoryPoint],
    request: &PodRequest,
) -> Result<ForecastMemory, ForecastRuleError> {
    let first = history.first().map_or(0, |point| point.time as i64);
    let mut memory = ForecastMemory::new(rules, time(first))?;
    for HistoryPoint { time: second, cores } in history {
        memory.record(Some(cores / (TARGET * request.cpu)), time(*second as i64));
    }
    Ok(memory)
}

impl ScaledService {
    /// Cores that the service wants in a step.
    pub fn demand(&self, step: usize) -> f64 {
        self.demand.get(step).copied().unwrap_or(0.0)
    }

    /// The number of replicas that the rule asks for.
    pub fn desired(&mut self, replicas: i32, now: i64) -> i32 {
        let now = time(now);
        let demand = self.used / (TARGET * self.request.cpu);
        let forecast = self.forecast.as_mut().map(|memory| {
            memory.record(Some(demand), now);
            memory.forecast(now)
        });
        let input = TrackInput::Total { value: Nanos::new((demand * 1e9) as i128), ready_pods: 0 };
        let target = TrackTarget::AverageValue(Nanos::from_whole(1));
        let metrics = [TrackedMetric { tolerances: Tolerances::default(), ..TrackedMetric::new("cpu", target, input) }];
        let pass = TrackPass { replicas, metrics: &metrics, zero: ZeroOrigin::Own, now, forecast: forecast.as_ref() };
        let desired = decide(&self.rules, &mut self.memory, &pass).replicas;
        self.memory.record_change(replicas, desired, now);
        desired
    }
}
