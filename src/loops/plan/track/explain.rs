//! Texts that describe the result of each stage, with its numbers.

use jiff::Timestamp;

use super::metric::{
    Calculation, Combined, MetricProposal, MetricReason, Restraint, TrackInput, TrackTarget, TrackedMetric,
};
use super::nanos::{Nanos, ONE};
use super::outcome::{TrackLine, TrackReason, TrackStage};
use super::pace::{LimitCause, LimitedChange, Paced};
use super::rules::{RateChange, RatePolicy, Tolerances, TrackRules};
use super::zero::{Activity, Sleep};
use crate::forecast::ForecastOutcome;

fn line(stage: TrackStage, reason: TrackReason, text: String) -> TrackLine {
    TrackLine { stage, reason, text }
}

/// Number of replicas in words.
fn count(replicas: i32) -> String {
    if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") }
}

fn pods(pods: usize) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

/// Time without fractions of a second.
fn moment(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Line of a metric, such as `cpu: 75 %, target 50 %, ratio 1.5 (tolerance 0.9 to 1.1): 6 replicas`.
pub(super) fn metric(metric: &TrackedMetric, calculation: &Calculation, replicas: i32) -> String {
    let tolerances = &metric.tolerances;
    let Calculation { shown, ratio, base, .. } = calculation;
    let down = Nanos::new(ONE as i128 - tolerances.down.billionths()).max(Nanos::ZERO);
    let up = Nanos::new(ONE as i128 + tolerances.up.billionths());
    let target = match metric.target {
        TrackTarget::Utilization { percent } => format!("target {percent} %"),
        TrackTarget::AverageValue(target) => format!("target {target} for each replica"),
        TrackTarget::Value(target) => format!("target {target}"),
    };
    let mut text = format!("{}: {shown}, {target}, ratio {ratio}", metric.name);
    if replicas > 0 {
        text += &format!(" (tolerance {down} to {up})");
    }
    if !matches!((metric.target, &metric.input), (TrackTarget::AverageValue(_), TrackInput::Total { .. })) {
        text += &format!(" × {base}");
    }
    for (number, what) in [(calculation.missing, "without a sample"), (calculation.unready, "not ready")] {
        if number > 0 {
            text += &format!(", with {} {what}", pods(number));
        }
    }
    text += &format!(": {}", count(calculation.replicas));
    match calculation.reason {
        MetricReason::WithinTolerance => text += ", within the tolerance",
        MetricReason::DirectionHeld => text += ", since the proposal would turn the direction",
        MetricReason::NoReadyPods => text += ", since no pod is ready",
        MetricReason::Restrained => {
            let Restraint { down, up } = &metric.restraint;
            text +=
                &format!(": {}", [down, up].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("; "));
        }
        MetricReason::OverTarget | MetricReason::UnderTarget | MetricReason::Idle | MetricReason::Unknown => {}
    }
    if calculation.replicas == replicas
        && calculation.reason == MetricReason::UnderTarget
        && let Some(hint) = lowering(metric.target, calculation, replicas, tolerances)
    {
        text += &format!("; lowers at {hint} or less");
    }
    text
}

/// The largest value at which the metric would lower; None if there is no simple one.
fn lowering(target: TrackTarget, calculation: &Calculation, replicas: i32, tolerances: &Tolerances) -> Option<String> {
    if calculation.missing > 0 || calculation.unready > 0 || replicas < 2 {
        return None;
    }
    let fewer = u128::from(replicas.unsigned_abs() - 1);
    // The ratio must also be below the tolerance.
    let outside = |target: u128| {
        let lowest = target.checked_mul(ONE.saturating_sub(tolerances.down.size()))?;
        lowest.div_ceil(ONE).checked_sub(1)
    };
    let largest = |target: u128| {
        let rounded = target.checked_mul(fewer)?.checked_div(u128::from(calculation.base))?;
        Some(rounded.min(outside(target)?))
    };
    match target {
        TrackTarget::Utilization { percent } => Some(format!("{} %", largest(u128::from(percent))?)),
        TrackTarget::AverageValue(target) | TrackTarget::Value(target) => {
            Some(Nanos::new(i128::try_from(largest(target.size())?).ok()?).to_string())
        }
    }
}

pub(super) fn metric_line(metric: &MetricProposal) -> TrackLine {
    line(TrackStage::Metric, TrackReason::Metric(metric.reason), metric.text.clone())
}

pub(super) fn proposal(metrics: &[MetricProposal], combined: Combined, replicas: i32) -> TrackLine {
    match combined {
        Combined::Known(raw) => {
            let decisive = metrics.iter().find(|metric| metric.replicas == Some(raw));
            let name = decisive.map_or("", |metric| metric.name.as_str());
            line(TrackStage::Proposal, TrackReason::Unchanged, format!("{} by {name}", count(raw)))
        }
        Combined::Unknown => {
            let unknown: Vec<&str> =
                metrics.iter().filter(|metric| metric.replicas.is_none()).map(|metric| metric.name.as_str()).collect();
            let text =
                format!("none, since metrics are unknown ({}); it stays at {}", unknown.join(", "), count(replicas));
            line(TrackStage::Proposal, TrackReason::MetricUnknown, text)
        }
    }
}

/// Line about zero replicas.
pub(super) fn sleep(sleep: &Sleep) -> TrackLine {
    let (reason, text) = match sleep {
        Sleep::Awake(Activity::Active(metric)) => (TrackReason::Unchanged, format!("{metric} is active")),
        Sleep::Awake(Activity::Unknown(metric)) => {
            (TrackReason::MetricUnknown, format!("{metric} is unknown, and could be active"))
        }
        Sleep::Awake(Activity::OfPods) => (TrackReason::Unchanged, "no metric has a value without pods".to_owned()),
        Sleep::Awake(Activity::Inactive) => (TrackReason::Inactive, "no metric is active".to_owned()),
        Sleep::Cooldown(until) => {
            (TrackReason::Cooldown, format!("no metric is active; the last replica stays until {}", moment(*until)))
        }
        Sleep::Due => (TrackReason::Inactive, "no metric is active, and the cooldown is over".to_owned()),
    };
    line(TrackStage::Zero, reason, text)
}

pub(super) fn pace_lines(rules: &TrackRules, paced: &Paced, raw: i32) -> [TrackLine; 2] {
    let windows = rules.pace.windows();
    let window = match &paced.held {
        Some(held) => {
            let text = format!(
                "{}, held by the proposal of {} at {} until {}",
                count(held.replicas),
                held.by.replicas,
                moment(held.by.at),
                moment(held.until),
            );
            line(TrackStage::Window, TrackReason::HeldByWindow, text)
        }
        None => {
            let text =
                format!("{}; windows: up {} s, down {} s", count(raw), windows.up.as_secs(), windows.down.as_secs(),);
            line(TrackStage::Window, TrackReason::Unchanged, text)
        }
    };
    let rate = match &paced.limited {
        Some(limited) => rate(limited),
        None => line(TrackStage::Rate, TrackReason::Unchanged, format!("{}, within the rate", count(paced.replicas))),
    };
    [window, rate]
}

fn rate(limited: &LimitedChange) -> TrackLine {
    let number = count(limited.replicas);
    match &limited.by {
        LimitCause::PerPass => {
            let text = format!("{number}: at most twice as many, or 4, in one interval");
            line(TrackStage::Rate, TrackReason::LimitedPerPass, text)
        }
        LimitCause::Disabled => {
            let text = format!("{number}: the direction has select: Disabled");
            line(TrackStage::Rate, TrackReason::DirectionDisabled, text)
        }
        LimitCause::Policy { policy, until } => {
            let mut text = format!("{number}, limited by {}", describe(policy));
            if let Some(until) = until {
                text += &format!(" until {}", moment(*until));
            }
            line(TrackStage::Rate, TrackReason::LimitedByPolicy, text)
        }
    }
}

fn describe(policy: &RatePolicy) -> String {
    let seconds = policy.period.as_secs();
    match policy.change {
        RateChange::Pods(pods) => format!("{pods} pods in {seconds} s"),
        RateChange::Percent(percent) => format!("{percent} % in {seconds} s"),
    }
}

pub(super) fn bounds(rules: &TrackRules, reason: TrackReason, replicas: i32) -> TrackLine {
    let bounded = if reason == TrackReason::StoppedAtZero { 0 } else { rules.bounded(replicas) };
    line(TrackStage::Bounds, reason, format!("{}; min {}, max {}", count(bounded), rules.min, rules.max))
}

pub(super) fn result(before: i32, after: i32, reason: TrackReason) -> TrackLine {
    let text =
        if before == after { format!("stays at {}", count(after)) } else { format!("{before} → {}", count(after)) };
    line(TrackStage::Result, reason, text)
}

/// Line of a forecast, with the number that follows if it raises the proposal.
pub(super) fn forecast(forecast: &ForecastOutcome, proposal: i32, raised: i32) -> TrackLine {
    let text = forecast.to_string();
    if raised > proposal {
        line(TrackStage::Forecast, TrackReason::Raised, format!("{text}: {} instead of {proposal}", count(raised)))
    } else {
        line(TrackStage::Forecast, TrackReason::Unchanged, text)
    }
}
