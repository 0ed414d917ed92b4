//! Situations in few words.

use jiff::{SignedDuration, Timestamp};

use crate::track::{
    Nanos, PodMeasure, PodPhase, PodReady, PodSample, PolicySelect, RateChange, RatePolicy, ScalePace, ScaleRules,
    Tolerances, TrackInput, TrackMemory, TrackOutcome, TrackPass, TrackRules, TrackTarget, TrackedMetric, TrackedPod,
    ZeroOrigin, decide,
};

/// A second of the tests.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub fn nanos(text: &str) -> Nanos {
    Nanos::parse(text).unwrap()
}

/// Rules without windows and rates: the result is the proposal.
pub fn direct(min: i32, max: i32) -> TrackRules {
    let change = RateChange::Pods(1_000_000);
    let rules = ScaleRules {
        window: SignedDuration::ZERO,
        policies: vec![RatePolicy { change, period: seconds(1) }],
        select: PolicySelect::Max,
    };
    let pace = ScalePace::Rules { up: rules.clone(), down: rules };
    TrackRules { min, max, pace, cooldown: None }
}

pub fn policy(change: RateChange, period: i64) -> RatePolicy {
    RatePolicy { change, period: seconds(period) }
}

pub fn rules(window: i64, policies: &[RatePolicy], select: PolicySelect) -> ScaleRules {
    ScaleRules { window: seconds(window), policies: policies.to_vec(), select }
}

/// Pod that has been ready for long, with a usage in millicores of a request of 1 core.
pub fn pod(name: &str, used: Option<i64>) -> TrackedPod {
    let sample = |used| PodSample { value: Nanos::from_millis(used), at: at(-5), window: seconds(15) };
    TrackedPod {
        name: name.to_owned(),
        phase: PodPhase::Running,
        is_deleting: false,
        started: Some(at(-7200)),
        ready: Some(PodReady { is_ready: Some(true), since: at(-7100) }),
        sample: used.map(sample),
        requests: Ok(Nanos::from_whole(1)),
        allocated: None,
    }
}

/// Pods with these usages, in percent of their requests; None: no sample.
pub fn pods(used: &[Option<i64>]) -> Vec<TrackedPod> {
    used.iter().enumerate().map(|(index, used)| pod(&format!("p{index}"), used.map(|used| used * 10))).collect()
}

/// Pod that runs and has not been ready yet.
pub fn starting(name: &str, used: i64) -> TrackedPod {
    TrackedPod {
        started: Some(at(-60)),
        ready: Some(PodReady { is_ready: Some(false), since: at(-60) }),
        ..pod(name, Some(used * 10))
    }
}

pub fn cpu(percent: i64, pods: Vec<TrackedPod>) -> TrackedMetric {
    let target = TrackTarget::utilization(percent).unwrap();
    TrackedMetric::new("cpu", target, TrackInput::Pods { measure: PodMeasure::Cpu, pods })
}

pub fn average(target: &str, pods: Vec<TrackedPod>) -> TrackedMetric {
    let target = TrackTarget::average_value(nanos(target)).unwrap();
    TrackedMetric::new("tasks", target, TrackInput::Pods { measure: PodMeasure::Other, pods })
}

/// Pods with these values of a custom metric.
pub fn valued(values: &[&str]) -> Vec<TrackedPod> {
    let valued = |(index, value): (usize, &&str)| {
        let sample = PodSample { value: nanos(value), at: at(-5), window: seconds(60) };
        TrackedPod { sample: Some(sample), ..pod(&format!("p{index}"), None) }
    };
    values.iter().enumerate().map(valued).collect()
}

/// Total with an AverageValue.
pub fn queue(total: &str, target: &str) -> TrackedMetric {
    let target = TrackTarget::average_value(nanos(target)).unwrap();
    TrackedMetric::new("queue", target, TrackInput::Total { value: nanos(total), ready_pods: 0 })
}

/// Total with a Value.
pub fn total(total: &str, target: &str, ready_pods: u32) -> TrackedMetric {
    let target = TrackTarget::value(nanos(target)).unwrap();
    TrackedMetric::new("total", target, TrackInput::Total { value: nanos(total), ready_pods })
}

pub fn unknown(name: &str) -> TrackedMetric {
    TrackedMetric { input: TrackInput::Unknown("the adapter answers 503".to_owned()), ..named(queue("1", "1"), name) }
}

pub fn named(metric: TrackedMetric, name: &str) -> TrackedMetric {
    TrackedMetric { name: name.to_owned(), ..metric }
}

/// Loop whose results are applied.
pub struct Tracked {
    pub rules: TrackRules,
    pub memory: TrackMemory,
    pub replicas: i32,
    /// Tolerances of all metrics; None: those of each.
    pub tolerances: Option<Tolerances>,
}

impl Tracked {
    pub fn new(rules: TrackRules, replicas: i32) -> Self {
        assert_eq!(rules.check(), Ok(()));
        Self { rules, memory: TrackMemory::default(), replicas, tolerances: None }
    }

    fn tolerated(&self, metrics: &[TrackedMetric]) -> Vec<TrackedMetric> {
        let of = |metric: &TrackedMetric| self.tolerances.clone().unwrap_or(metric.tolerances.clone());
        metrics.iter().map(|metric| TrackedMetric { tolerances: of(metric), ..metric.clone() }).collect()
    }

    /// Result at this second, not applied.
    pub fn result(&mut self, second: i64, metrics: &[TrackedMetric]) -> TrackOutcome {
        let metrics = &self.tolerated(metrics);
        let pass =
            TrackPass { replicas: self.replicas, metrics, zero: ZeroOrigin::Own, now: at(second), forecast: None };
        decide(&self.rules, &mut self.memory, &pass)
    }

    /// Result at this second without a trace in the memory.
    pub fn clone_result(&self, second: i64, metrics: &[TrackedMetric]) -> TrackOutcome {
        self.clone_result_at(at(second), metrics)
    }

    pub fn clone_result_at(&self, now: Timestamp, metrics: &[TrackedMetric]) -> TrackOutcome {
        let metrics = &self.tolerated(metrics);
        let pass = TrackPass { replicas: self.replicas, metrics, zero: ZeroOrigin::Own, now, forecast: None };
        decide(&self.rules, &mut self.memory.clone(), &pass)
    }

    /// Applies the result at this second; the outcome.
    pub fn step(&mut self, second: i64, metrics: &[TrackedMetric]) -> TrackOutcome {
        let outcome = self.result(second, metrics);
        self.memory.record_change(self.replicas, outcome.replicas, at(second));
        self.replicas = outcome.replicas;
        outcome
    }

    /// Number of replicas after a step in which the metrics propose this number.
    pub fn raw(&mut self, second: i64, raw: i32) -> i32 {
        self.step(second, &[queue(&raw.to_string(), "1")]).replicas
    }

    /// Continues with the stored form of the memory.
    pub fn restart(&mut self, second: i64) {
        let text = self.memory.text(&self.rules, at(second));
        self.memory = TrackMemory::parse(&text, at(second)).unwrap();
    }
}

/// Number of replicas that one metric proposes for this many, without windows, rates and bounds.
pub fn proposed(replicas: i32, metric: &TrackedMetric) -> i32 {
    Tracked::new(direct(0, 10_000), replicas).result(0, std::slice::from_ref(metric)).replicas
}
