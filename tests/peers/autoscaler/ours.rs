//! The situation as the operator's function gets it.

use ganglion_loops_plan::track::{
    Nanos, PodMeasure, PodPhase, PodReady, PodSample, PolicySelect, RateChange, RatePolicy, ScalePace, ScaleRules,
    Tolerances, TrackInput, TrackRules, TrackTarget, TrackedMetric, TrackedPod, ready_pods,
};
use jiff::{SignedDuration, Timestamp};

use super::case::{CaseContainer, CaseDirection, CaseKind, CaseMetric, CasePod, CaseRules, CaseStep, SAMPLE_WINDOW};

pub fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

fn nanos(billionths: i64) -> Nanos {
    Nanos::new(i128::from(billionths))
}

/// Rules of a case, and the tolerances of all its metrics.
pub fn rules(rules: &CaseRules) -> (TrackRules, Tolerances) {
    let mut tolerances = Tolerances::default();
    let pace = match &rules.behavior {
        None => ScalePace::default(),
        Some(behavior) => {
            let parsed = |direction: &Option<CaseDirection>, of: &mut Nanos, default: ScaleRules| {
                let Some(direction) = direction else { return default };
                if let Some(tolerance) = direction.tolerance {
                    *of = Nanos::parse(tolerance).unwrap();
                }
                scale_rules(direction, default)
            };
            let up = parsed(&behavior.up, &mut tolerances.up, ScaleRules::default_up());
            let down = parsed(&behavior.down, &mut tolerances.down, ScaleRules::default_down());
            ScalePace::rules(Some(up), Some(down))
        }
    };
    let parsed = TrackRules { min: rules.min, max: rules.max, pace, cooldown: None };
    assert_eq!(parsed.check(), Ok(()), "{rules:?}");
    (parsed, tolerances)
}

fn scale_rules(direction: &CaseDirection, default: ScaleRules) -> ScaleRules {
    let policies = direction.policies.as_ref().map(|policies| {
        let parsed = policies.iter().map(|policy| RatePolicy {
            change: if policy.is_percent { RateChange::Percent(policy.value) } else { RateChange::Pods(policy.value) },
            period: SignedDuration::from_secs(policy.period),
        });
        parsed.collect()
    });
    let select = direction.select.map(|select| match select {
        "Min" => PolicySelect::Min,
        "Disabled" => PolicySelect::Disabled,
        _ => PolicySelect::Max,
    });
    ScaleRules {
        window: direction.window.map_or(default.window, SignedDuration::from_secs),
        policies: policies.unwrap_or(default.policies),
        select: select.unwrap_or(default.select),
    }
}

/// Metrics of a step. The caller of the operator's function leaves out foreign pods.
pub fn metrics(metrics: &[CaseMetric], step: &CaseStep, tolerances: &Tolerances) -> Vec<TrackedMetric> {
    let inputs = metrics.iter().enumerate().map(|(index, metric)| {
        let pods = || -> Vec<TrackedPod> {
            let own = step.pods.iter().filter(|pod| !pod.is_foreign);
            own.map(|pod| tracked_pod(pod, metric.kind, index)).collect()
        };
        let fails = if metric.kind.is_usage() { step.usage_fails } else { step.totals[index].is_none() };
        let input = match step.totals[index] {
            _ if fails => TrackInput::Unknown("the API does not answer".to_owned()),
            _ if metric.kind.is_of_pods() => {
                let measure = if metric.kind.is_cpu() { PodMeasure::Cpu } else { PodMeasure::Other };
                TrackInput::Pods { measure, pods: pods() }
            }
            total => TrackInput::Total { value: nanos(total.unwrap_or(0)), ready_pods: ready_pods(&pods()) },
        };
        let target = if metric.kind.is_utilization() {
            TrackTarget::utilization(metric.target)
        } else if matches!(metric.kind, CaseKind::ObjectValue | CaseKind::ExternalValue) {
            TrackTarget::value(nanos(metric.target))
        } else {
            TrackTarget::average_value(nanos(metric.target))
        };
        let tracked = TrackedMetric::new(&metric.name, target.unwrap(), input);
        TrackedMetric { tolerances: tolerances.clone(), ..tracked }
    });
    inputs.collect()
}

fn tracked_pod(pod: &CasePod, kind: CaseKind, index: usize) -> TrackedPod {
    let containers: &[CaseContainer] =
        if kind == CaseKind::ContainerUtilization { &pod.containers[..1] } else { &pod.containers };
    let value = match kind {
        CaseKind::PodsAverage => pod.values[index],
        CaseKind::MemoryUtilization => pod.sampled.map(|_| containers.iter().map(|container| container.memory).sum()),
        _ => pod.sampled.map(|_| containers.iter().map(|container| container.cpu).sum()),
    };
    let sampled = pod.sampled.unwrap_or(0);
    let requests: Option<i64> = containers
        .iter()
        .map(|container| match kind {
            CaseKind::MemoryUtilization => Some(container.memory_request),
            _ => container.cpu_request,
        })
        .sum();
    let allocated: Option<i64> =
        containers.iter().map(|container| container.cpu_allocated.or(container.cpu_request)).sum();
    TrackedPod {
        name: pod.name.clone(),
        phase: match pod.phase {
            "Pending" => PodPhase::Pending,
            "Running" => PodPhase::Running,
            "Succeeded" => PodPhase::Succeeded,
            "Failed" => PodPhase::Failed,
            _ => PodPhase::Unknown,
        },
        is_deleting: pod.is_deleting,
        started: Some(at(pod.started)),
        ready: pod.ready.map(|(status, since)| PodReady {
            is_ready: match status {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            since: at(since),
        }),
        sample: value.map(|value| PodSample { value: nanos(value), at: at(sampled), window: SAMPLE_WINDOW }),
        requests: requests.map(nanos).ok_or_else(|| format!("a container of {} has no request", pod.name)),
        allocated: allocated.filter(|_| kind.is_cpu() && kind.is_utilization()).map(nanos),
    }
}
