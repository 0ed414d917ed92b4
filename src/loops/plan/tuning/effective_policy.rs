//! Effective policy of a loop that other loops tune: within the bounds of `tunable`, one step at a time, until the
//! tuning expires.
//!
//! Nobody writes a user's spec: tunings are in the status and are merged with the spec here. A tuning that is not
//! allowed is left out and reported.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::common::{FieldError, decimal_text, duration, later, micro_time, number, number_text};
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::closed_loop::policy::{Tunable, TunableThreshold, TunedThreshold, Tuning};
use ganglion_api::closed_loop::status::Effective;
use ganglion_api::scalars::Number;
use ganglion_core::quantity;

/// Lifetime of a tuning if the spec does not set it.
pub const DEFAULT_TTL: SignedDuration = SignedDuration::from_hours(24);

/// Tolerance for rounding when steps are compared.
const SLACK: f64 = 1e-9;

/// Effective policy.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectivePolicy {
    /// All metrics, the most important first.
    pub rank: Vec<String>,
    /// The metrics, with the effective levels.
    pub metrics: Vec<Metric>,
    /// Effective policy, in the form of the status.
    pub shown: Effective,
}

/// Returns all metrics in the order of the spec's rank. Metrics that are not in the rank follow in the order of the
/// spec.
pub fn declared_rank(spec: &ClosedLoopSpec) -> Vec<String> {
    let rank = spec.policy.as_ref().and_then(|policy| policy.rank.as_deref()).unwrap_or_default();
    complete_rank(rank, spec)
}

/// Returns the rank with every metric of the spec exactly once.
fn complete_rank(rank: &[String], spec: &ClosedLoopSpec) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let declared = || spec.metrics.iter().map(|metric| &metric.name);
    for name in rank.iter().filter(|name| declared().any(|other| other == *name)).chain(declared()) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// Returns the policy without tunings.
pub fn declared(spec: &ClosedLoopSpec) -> EffectivePolicy {
    let rank = declared_rank(spec);
    let shown = Effective { rank: rank.clone(), ..Effective::default() };
    EffectivePolicy { rank, metrics: spec.metrics.clone(), shown }
}

/// Returns the effective policy now. `before` is the last effective policy, from which steps are measured.
pub fn effective(
    spec: &ClosedLoopSpec,
    tuning: &[Tuning],
    before: Option<&Effective>,
    now: Timestamp,
) -> Result<EffectivePolicy, FieldError> {
    let mut policy =
        EffectivePolicy { rank: declared_rank(spec), metrics: spec.metrics.clone(), shown: Effective::default() };
    if let Some(tunable) = &spec.tunable {
        let ttl = ttl(tunable)?;
        let mut ranked = false;
        // Earlier names in `by` have priority.
        for by in &tunable.by {
            let Some(tuning) = tuning.iter().find(|tuning| &tuning.by == by) else { continue };
            let end = |at: Option<&MicroTime>| later(at.unwrap_or(&tuning.at).0, ttl);
            let mut ends = Vec::new();
            let rank_end = end(tuning.rank_at.as_ref());
            if let Some(rank) = tuning.rank.as_ref().filter(|_| !ranked && rank_end > now) {
                if tunable.rank {
                    policy.rank = complete_rank(rank, spec);
                    ranked = true;
                    ends.push(rank_end);
                } else {
                    policy.shown.refused.push(format!("{by}: the rank is not tunable"));
                }
            }
            for tuned in &tuning.thresholds {
                let level_end = end(tuned.at.as_ref());
                if level_end <= now {
                    continue;
                }
                match apply_threshold(&mut policy, spec, tunable, tuned, before) {
                    Ok(true) => ends.push(level_end),
                    Ok(false) => {}
                    Err(why) => policy.shown.refused.push(format!("{by}: {}: {why}", tuned.path)),
                }
            }
            policy.shown.until = policy.shown.until.into_iter().chain(ends.into_iter().map(micro_time)).min();
        }
    }
    for tuning in tuning {
        let known = spec.tunable.as_ref().is_some_and(|tunable| tunable.by.contains(&tuning.by));
        if !known {
            policy.shown.refused.push(format!("{}: this loop is not in tunable.by", tuning.by));
        }
    }
    policy.shown.rank.clone_from(&policy.rank);
    Ok(policy)
}

/// Returns the lifetime of a tuning.
pub fn ttl(tunable: &Tunable) -> Result<SignedDuration, FieldError> {
    tunable.ttl.as_ref().map_or(Ok(DEFAULT_TTL), |ttl| duration("tunable.ttl", Some(ttl)))
}

/// Returns the indexes of the tunings without effect: those that have expired, those of loops that no longer exist, and
/// those of loops that may no longer tune. `tunable` belongs to the tuned loop.
pub fn obsolete(
    tunable: Option<&Tunable>,
    tuning: &[Tuning],
    exists: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Vec<usize> {
    let ttl = tunable.and_then(|tunable| ttl(tunable).ok()).unwrap_or(DEFAULT_TTL);
    let may_tune = |by: &String| tunable.is_some_and(|tunable| tunable.by.contains(by)) && exists(by);
    let is_obsolete = |tuning: &Tuning| later(tuning.at.0, ttl) <= now || !may_tune(&tuning.by);
    tuning.iter().enumerate().filter(|(_, tuning)| is_obsolete(tuning)).map(|(place, _)| place).collect()
}

/// Applies one tuned level to the policy. Returns false if a loop with priority has already set it.
fn apply_threshold(
    policy: &mut EffectivePolicy,
    spec: &ClosedLoopSpec,
    tunable: &Tunable,
    tuned: &TunedThreshold,
    before: Option<&Effective>,
) -> Result<bool, String> {
    if policy.shown.thresholds.iter().any(|other| other.path == tuned.path) {
        return Ok(false);
    }
    let bounds = bounds(tunable, &tuned.path).ok_or("it is not tunable")?;
    let declared = level(&spec.metrics, &tuned.path).ok_or("no metric has this level")?;
    let held = before.and_then(|before| before.thresholds.iter().find(|other| other.path == tuned.path));
    let from = held.map_or(&declared, |held| &held.value);
    let (value, from) = (read(&tuned.value)?, [read(from)?, read(&declared)?]);
    check_bounds(bounds, from, value)?;
    // When its tuning ends, a level falls back to the declared one, so a step from the declared one is also allowed.
    let step = read(&bounds.max_step)? + SLACK;
    if from.iter().all(|from| (value - from).abs() > step) {
        return Err(format!(
            "{} is more than {} from {}",
            tuned.value.as_str(),
            bounds.max_step.as_str(),
            number_text(from[0]).as_str()
        ));
    }
    let mut metrics = policy.metrics.clone();
    set_level(&mut metrics, &tuned.path, &tuned.value);
    let name = tuned.path.split('.').next().unwrap_or_default();
    if metrics.iter().any(|metric| metric.name == name && crossed(metric)) {
        return Err("raise and clear would cross".into());
    }
    policy.metrics = metrics;
    policy.shown.thresholds.push(TunedThreshold { at: None, ..tuned.clone() });
    Ok(true)
}

/// A level that is declared outside of its bounds may return step by step, but not move further out. A tuned level that
/// narrower bounds now exclude is refused.
fn check_bounds(bounds: &TunableThreshold, from: [f64; 2], value: f64) -> Result<(), String> {
    let (min, max) = (read(&bounds.min)?, read(&bounds.max)?);
    let outside = |value: f64| (min - value).max(value - max).max(0.0);
    if from.iter().any(|from| outside(value) > outside(*from) + SLACK) {
        return Err(format!(
            "{} is not within {} and {}",
            number_text(value).0,
            bounds.min.as_str(),
            bounds.max.as_str()
        ));
    }
    Ok(())
}

/// Result of a step of a level.
#[derive(Clone, Debug, PartialEq)]
pub enum LevelStep {
    To(Number),
    /// The level stays as it is; the message says what it must not exceed.
    Limited(String),
}

/// Returns the level after a change by `by`: at most one step, within the bounds or on the way back to them, and
/// without crossing another level of its metric. `metrics`: the effective metrics of the tuned loop.
pub fn stepped(tunable: &Tunable, metrics: &[Metric], path: &str, by: &Number) -> Result<LevelStep, FieldError> {
    let field = |name: &str| format!("tunable.thresholds[{path}].{name}");
    let not_tunable = || FieldError::new(path, "it is not tunable");
    let bounds = bounds(tunable, path).ok_or_else(not_tunable)?;
    let step = number(&field("maxStep"), &bounds.max_step)?.abs();
    let (min, max) = (number(&field("min"), &bounds.min)?, number(&field("max"), &bounds.max)?);
    let now = number(path, &level(metrics, path).ok_or_else(not_tunable)?)?;
    let by = number("by", by)?.max(-step).min(step);
    let wanted = (now + by).min(max).max(min).min(now + step).max(now - step);
    let at = number_text(now).0;
    if (wanted - now).abs() < SLACK {
        return Ok(LevelStep::Limited(format!("{path} is at {at}, the limit of its bounds")));
    }
    let distance = |neighbor: &LevelNeighbor| (neighbor.value - now).abs();
    let crossed = neighbors(metrics, path).into_iter().filter(|neighbor| neighbor.is_crossed_by(wanted));
    // Between two at the same distance, the one that must not be reached counts.
    let by_distance = |one: &LevelNeighbor, other: &LevelNeighbor| {
        distance(one).total_cmp(&distance(other)).then(one.may_be_equal.cmp(&other.may_be_equal))
    };
    let Some(neighbor) = crossed.min_by(by_distance) else {
        return Ok(LevelStep::To(decimal_text(wanted)));
    };
    if neighbor.may_be_equal && (SLACK..=step).contains(&distance(&neighbor)) {
        return Ok(LevelStep::To(decimal_text(neighbor.value)));
    }
    let (other, limit) = (neighbor.path, number_text(neighbor.value).0);
    Ok(LevelStep::Limited(format!("{path} is at {at}, and {other} is at {limit}: the two must not cross")))
}

/// Another level of the same metric, which a level must not cross.
struct LevelNeighbor {
    path: String,
    value: f64,
    /// This level is above the other one, or else below.
    is_above: bool,
    /// The two levels may be equal.
    may_be_equal: bool,
}

impl LevelNeighbor {
    fn is_crossed_by(&self, level: f64) -> bool {
        let beyond = if self.is_above { level - self.value } else { self.value - level };
        beyond > if self.may_be_equal { SLACK } else { -SLACK }
    }
}

/// Returns the neighbors of a level. If clear is unset, it is the same as raise and moves with it.
fn neighbors(metrics: &[Metric], path: &str) -> Vec<LevelNeighbor> {
    let found = parts(path).and_then(|parts| Some((parts, metrics.iter().find(|metric| metric.name == parts.0)?)));
    let Some(((name, side, part), metric)) = found else { return Vec::new() };
    let is_low = side == "low";
    let (own, opposite) = if is_low { (&metric.low, &metric.high) } else { (&metric.high, &metric.low) };
    let neighbor = |path: &str, value: Option<&Number>, is_above, may_be_equal| {
        Some(LevelNeighbor { path: format!("{name}.{path}"), value: read(value?).ok()?, is_above, may_be_equal })
    };
    let raise = own.as_ref().map(|own| &own.raise);
    if part == "clear" {
        return neighbor(&format!("{side}.raise"), raise, !is_low, true).into_iter().collect();
    }
    let clear = own.as_ref().and_then(|own| own.clear.as_ref());
    let far = opposite.as_ref().map(|opposite| &opposite.raise);
    let far_path = if is_low { "high.raise" } else { "low.raise" };
    let both = [neighbor(&format!("{side}.clear"), clear, is_low, true), neighbor(far_path, far, is_low, false)];
    both.into_iter().flatten().collect()
}

/// Returns the bounds of a tunable level.
pub fn bounds<'a>(tunable: &'a Tunable, path: &str) -> Option<&'a TunableThreshold> {
    tunable.thresholds.iter().flatten().find(|bounds| bounds.path == path)
}

/// Returns the level at `path`, such as `cpu.low.raise`. An unset clear is the same as raise.
pub fn level(metrics: &[Metric], path: &str) -> Option<Number> {
    let (name, side, part) = parts(path)?;
    let metric = metrics.iter().find(|metric| metric.name == name)?;
    let level = match side {
        "low" => metric.low.as_ref()?,
        "high" => metric.high.as_ref()?,
        _ => return None,
    };
    match part {
        "raise" => Some(level.raise.clone()),
        "clear" => Some(level.clear.clone().unwrap_or_else(|| level.raise.clone())),
        _ => None,
    }
}

fn set_level(metrics: &mut [Metric], path: &str, value: &Number) {
    let Some((name, side, part)) = parts(path) else { return };
    let Some(metric) = metrics.iter_mut().find(|metric| metric.name == name) else { return };
    let level = match side {
        "low" => metric.low.as_mut(),
        "high" => metric.high.as_mut(),
        _ => None,
    };
    match (level, part) {
        (Some(level), "raise") => level.raise = value.clone(),
        (Some(level), "clear") => level.clear = Some(value.clone()),
        (Some(_) | None, _) => {}
    }
}

fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let mut parts = path.split('.');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

/// Whether an alarm would never clear, or both alarms would be raised at once.
fn crossed(metric: &Metric) -> bool {
    let value = |number: &Number| quantity::number(number.as_str()).ok();
    let over = |a: Option<f64>, b: Option<f64>| matches!((a, b), (Some(a), Some(b)) if a > b);
    let low = metric.low.as_ref().is_some_and(|low| over(value(&low.raise), low.clear.as_ref().and_then(value)));
    let high = metric.high.as_ref().is_some_and(|high| over(high.clear.as_ref().and_then(value), value(&high.raise)));
    let both = match (&metric.low, &metric.high) {
        (Some(low), Some(high)) => !over(value(&high.raise), value(&low.raise)),
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    low || high || both
}

fn read(number: &Number) -> Result<f64, String> {
    quantity::number(number.as_str()).map_err(|error| error.to_string())
}
