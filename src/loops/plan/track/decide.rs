//! One pass: metrics, proposal, windows, rates, bounds.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::explain;
use super::memory::TrackMemory;
use super::metric::{Combined, MetricProposal, MetricReason, TrackedMetric, combine};
use super::outcome::{TrackLine, TrackOutcome, TrackReason};
use super::pace::{LimitCause, Paced, Position, next_change, pace};
use super::rules::TrackRules;
use super::zero::{Activity, Sleep};
use crate::forecast::{ForecastOutcome, with_forecast};

/// Input of a pass. There is one pass in each interval: without rules, each one may double the replicas.
#[derive(Clone, Copy, Debug)]
pub struct TrackPass<'a> {
    /// `spec.replicas` of the target.
    pub replicas: i32,
    pub metrics: &'a [TrackedMetric],
    /// Origin of 0 replicas; only used at 0.
    pub zero: ZeroOrigin,
    pub now: Timestamp,
    /// Forecast of the demand, if the loop has one. It may raise the proposal of the metrics.
    pub forecast: Option<&'a ForecastOutcome>,
}

/// Origin of 0 replicas: who scaled the target down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroOrigin {
    Own,
    Other,
}

/// Determines the number of replicas, and records the proposal in the memory. The caller records the change with
/// [`TrackMemory::record_change`] once it is done.
pub fn decide(rules: &TrackRules, memory: &mut TrackMemory, pass: &TrackPass) -> TrackOutcome {
    let TrackPass { replicas, now, .. } = *pass;
    memory.begin(rules, replicas, now);
    let metrics: Vec<MetricProposal> = pass.metrics.iter().map(|metric| metric.propose(replicas, now)).collect();
    let mut lines: Vec<TrackLine> = metrics.iter().map(explain::metric_line).collect();
    if let Some((result, reason)) = without_metrics(rules, pass) {
        lines.push(explain::bounds(rules, reason, replicas));
        lines.push(explain::result(replicas, result, reason));
        return TrackOutcome { replicas: result, reason, proposal: None, metrics, lines, changes_at: None };
    }
    let combined = combine(&metrics, replicas);
    lines.push(explain::proposal(&metrics, combined, replicas));
    let (mut combined, mut floor, mut forecast) = (combined, rules.min, pass.forecast);
    if let Some(cooldown) = rules.cooldown.filter(|_| rules.min == 0) {
        let activity = Activity::of(pass.metrics);
        if replicas == 0 {
            return at_zero(rules, &activity, combined, metrics, lines);
        }
        let sleep = memory.zero.record_activity(activity, cooldown, now);
        lines.push(explain::sleep(&sleep));
        if sleep == Sleep::Due {
            // A forecast does not keep the last replica, and wakes nothing.
            (combined, forecast) = (Combined::Known(0), None);
        } else {
            floor = 1.min(rules.max);
        }
    }
    let rules = &TrackRules { min: floor, ..rules.clone() };
    let Combined::Known(raw) = combined else {
        // At 0, min counts at once. Otherwise the number is within the bounds.
        let result = rules.bounded(replicas);
        let reason = if result == replicas { TrackReason::MetricUnknown } else { TrackReason::BelowMin };
        lines.push(explain::result(replicas, result, reason));
        return TrackOutcome { replicas: result, reason, proposal: None, metrics, lines, changes_at: None };
    };
    let raw = match forecast {
        Some(forecast) => {
            let raised = with_forecast(raw, forecast.replicas(), forecast.trust);
            lines.push(explain::forecast(forecast, raw, raised));
            raised
        }
        None => raw,
    };
    memory.record_proposal(raw, now);
    let paced = pace(&rules.pace, memory, Position { replicas, raw, now });
    let result = rules.bounded(paced.replicas);
    let reason = reason_of(rules, &paced, &metrics, Position { replicas, raw, now }, result);
    lines.extend(explain::pace_lines(rules, &paced, raw));
    lines.push(explain::bounds(rules, bounds_reason(rules, &paced, raw), paced.replicas));
    lines.push(explain::result(replicas, result, reason));
    let changes_at = changes_at(rules, memory, Position { replicas, raw, now }, result);
    TrackOutcome { replicas: result, reason, proposal: Some(raw), metrics, lines, changes_at }
}

/// Result of a target that the operator has scaled to 0: it wakes to its number at once when a metric is active.
fn at_zero(
    rules: &TrackRules,
    activity: &Activity,
    combined: Combined,
    metrics: Vec<MetricProposal>,
    mut lines: Vec<TrackLine>,
) -> TrackOutcome {
    lines.push(explain::sleep(&Sleep::Awake(activity.clone())));
    let raw = match (activity, combined) {
        (Activity::Active(_), Combined::Known(raw)) => raw.max(1),
        (Activity::Active(_), Combined::Unknown) => 1,
        (Activity::Unknown(_) | Activity::Inactive | Activity::OfPods, _) => 0,
    };
    let result = rules.bounded(raw);
    let reason = if result > 0 { TrackReason::Woken } else { TrackReason::Inactive };
    lines.push(explain::bounds(rules, TrackReason::Unchanged, raw));
    lines.push(explain::result(0, result, reason));
    TrackOutcome { replicas: result, reason, proposal: None, metrics, lines, changes_at: None }
}

/// Results that need no metric.
fn without_metrics(rules: &TrackRules, pass: &TrackPass) -> Option<(i32, TrackReason)> {
    if pass.replicas == 0 {
        return (pass.zero == ZeroOrigin::Other).then_some((0, TrackReason::StoppedAtZero));
    }
    if pass.replicas > rules.max {
        return Some((rules.max, TrackReason::AboveMax));
    }
    (pass.replicas < rules.min).then_some((rules.min, TrackReason::BelowMin))
}

fn bounds_reason(rules: &TrackRules, paced: &Paced, raw: i32) -> TrackReason {
    if paced.replicas > rules.max || (paced.replicas == rules.max && raw > rules.max) {
        TrackReason::AtMax
    } else if paced.replicas < rules.min || (paced.replicas == rules.min && raw < rules.min) {
        TrackReason::AtMin
    } else {
        TrackReason::Unchanged
    }
}

fn reason_of(
    rules: &TrackRules,
    paced: &Paced,
    metrics: &[MetricProposal],
    position: Position,
    result: i32,
) -> TrackReason {
    let Position { replicas, raw, .. } = position;
    if result == rules.max && raw > rules.max {
        return TrackReason::AtMax;
    }
    if result == rules.min && raw < rules.min {
        return TrackReason::AtMin;
    }
    if let Some(limited) = &paced.limited {
        return match limited.by {
            LimitCause::PerPass => TrackReason::LimitedPerPass,
            LimitCause::Disabled => TrackReason::DirectionDisabled,
            LimitCause::Policy { .. } => TrackReason::LimitedByPolicy,
        };
    }
    if paced.held.is_some() {
        return TrackReason::HeldByWindow;
    }
    match result.cmp(&replicas) {
        Ordering::Greater => TrackReason::Raised,
        Ordering::Less => TrackReason::Lowered,
        Ordering::Equal => {
            let decisive = metrics.iter().find(|metric| metric.replicas == Some(raw));
            match decisive.map(|metric| metric.reason) {
                Some(MetricReason::WithinTolerance) => TrackReason::Metric(MetricReason::WithinTolerance),
                Some(MetricReason::DirectionHeld) => TrackReason::Metric(MetricReason::DirectionHeld),
                Some(MetricReason::NoReadyPods) => TrackReason::Metric(MetricReason::NoReadyPods),
                Some(MetricReason::Restrained) => TrackReason::Metric(MetricReason::Restrained),
                Some(
                    MetricReason::OverTarget | MetricReason::UnderTarget | MetricReason::Idle | MetricReason::Unknown,
                )
                | None => TrackReason::AtTarget,
            }
        }
    }
}

fn changes_at(rules: &TrackRules, memory: &TrackMemory, position: Position, result: i32) -> Option<Timestamp> {
    let bounded = |replicas: i32| rules.bounded(replicas);
    if bounded(position.raw) == result {
        return None;
    }
    let applied = Position { replicas: result, ..position };
    if result == position.replicas {
        return next_change(&rules.pace, memory, applied, bounded);
    }
    let mut then = memory.clone();
    then.record_change(position.replicas, result, position.now);
    next_change(&rules.pace, &then, applied, bounded)
}
