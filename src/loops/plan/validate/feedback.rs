//! Warns about a metric in percent of requests that the same loop changes: each resize changes the value although the
//! usage stays the same, so the next action answers the last one and not the load.

use std::collections::BTreeSet;

use crate::rung;
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::action::{Bounds, Resize, Rung};
use ganglion_api::closed_loop::metric::{Metric, ResourceName, ResourceUse, UseUnit};
use ganglion_api::closed_loop::track::TrackType;

/// Returns the warning about the first such metric with an action; None if there is none.
pub fn feedback(spec: &ClosedLoopSpec) -> Option<String> {
    spec.metrics.iter().find_map(|metric| {
        let source = metric.source.resource.as_ref()?;
        let is_tracked = is_tracked_in_percent(spec, &metric.name);
        if source.unit != Some(UseUnit::Utilization) && !is_tracked {
            return None;
        }
        let acting = acting_metric(spec, metric)?;
        let place = changing_rung(spec, source)?;
        let (name, resource) = (&metric.name, source.resource.as_str());
        let unit = match source.resource {
            ResourceName::Cpu => "cores",
            ResourceName::Memory => "bytes",
        };
        let of = if acting == *name { String::new() } else { format!(", which {acting} is computed from,") };
        let advice = if is_tracked { "track AverageValue" } else { "set unit: Usage and levels" };
        Some(format!(
            "metric {name}{of} is in percent of the {resource} requests, and {place} changes these requests: each resize \
             changes the value although the usage stays the same; {advice} in {unit} instead"
        ))
    })
}

/// Whether an action keeps the utilization of this metric at a target.
fn is_tracked_in_percent(spec: &ClosedLoopSpec, metric: &str) -> bool {
    let mut actions = spec.actions.iter().flatten().filter(|action| action.when.is_about(metric));
    let is_of_percent = |rung: &Rung| {
        let track = rung.scale.as_ref().and_then(|scale| scale.track.as_ref());
        track.is_some_and(|track| track.type_ == TrackType::Utilization)
    };
    actions.any(|action| action.ladder.iter().any(is_of_percent))
}

/// Name of the metric with an action that is this metric, or is computed from it.
fn acting_metric(spec: &ClosedLoopSpec, metric: &Metric) -> Option<String> {
    let mut dependent = BTreeSet::from([metric.name.as_str()]);
    // Each round finds the formulas over those of the round before.
    for _ in &spec.metrics {
        let uses = |formula: &str| words(formula).any(|word| dependent.contains(word));
        let formulas = spec
            .metrics
            .iter()
            .filter(|one| one.source.formula.as_ref().is_some_and(|formula| uses(&formula.expression)));
        let found: Vec<&str> = formulas.map(|one| one.name.as_str()).collect();
        dependent.extend(found);
    }
    let mut acting = spec.actions.iter().flatten().flat_map(|action| action.when.alarms());
    acting.find(|alarm| dependent.contains(alarm.metric.as_str())).map(|alarm| alarm.metric.clone())
}

/// The names in an expression.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').filter(|word| !word.is_empty())
}

/// Place of the first rung that changes the requests that the source divides by.
fn changing_rung(spec: &ClosedLoopSpec, source: &ResourceUse) -> Option<String> {
    spec.actions.iter().flatten().find_map(|action| {
        let mut rungs = action.ladder.iter().enumerate();
        let (index, rung) = rungs.find(|(_, rung)| changes_requests(rung, source))?;
        Some(rung::place(rung, index, &action.when))
    })
}

fn changes_requests(rung: &Rung, source: &ResourceUse) -> bool {
    let Some(Resize { container, resource, what, .. }) = &rung.resize else { return false };
    let requests = match what.unwrap_or(Bounds::Both) {
        Bounds::Requests | Bounds::Both => true,
        Bounds::Limits => false,
    };
    let is_measured = match (container, &source.container) {
        (Some(resized), Some(measured)) => resized == measured,
        (None, _) | (_, None) => true,
    };
    requests && *resource == source.resource && is_measured
}
