//! Computes the goal: the absolute value for the target, from the current value and the rung.
//!
//! A rung that raises never returns less than the current value nor more than its max; a rung that lowers never returns
//! more than the current value nor less than its min. A decision on an unknown value never lowers. Must not know how a
//! value is read or written.

use serde_json::Value;

use super::types::NoPlan;
use crate::common::{decimal, decimal_text, number_text};
use crate::rung;
use ganglion_api::closed_loop::action::{Bounds, PatchField, Resize, Scale};
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::decision::{Chosen, ReplicaChange};
use ganglion_api::execution::Quantities;
use ganglion_api::scalars::Number;
use ganglion_core::quantity;
use ganglion_core::words::quoted;

/// Maximum amount: larger ones are not exact as floats. In bytes, it is 8 PiB.
const MOST: i64 = 1 << 53;

/// Bounds of a change.
#[derive(Clone, Copy, Debug)]
struct NumberBounds<'a> {
    min: Option<f64>,
    max: Option<f64>,
    /// Why the value is not lowered, if so.
    no_lowering: Option<&'a str>,
}

/// Reason for not lowering a value.
const UNKNOWN: &str = "the value is unknown";

impl NumberBounds<'_> {
    /// Returns the value between `now` and `want` that the bounds allow. An unset bound is the current value.
    fn bound(self, now: f64, want: f64) -> f64 {
        if want > now {
            let floor = self.min.unwrap_or(want);
            want.max(floor).min(self.max.unwrap_or(now)).max(now)
        } else if self.no_lowering.is_none() {
            want.max(self.min.unwrap_or(now)).min(now)
        } else {
            now
        }
    }

    fn limit_message(self, now: f64, want: f64) -> String {
        let at = number_text(now).0;
        if want > now {
            return self.max.map_or(format!("no max is set: it stays at {at}"), |max| {
                format!("it is at {at}, and max is {}", number_text(max).0)
            });
        }
        if let Some(why) = self.no_lowering {
            return not_lowered(why, &at);
        }
        self.min.map_or(format!("no min is set: it stays at {at}"), |min| {
            format!("it is at {at}, and min is {}", number_text(min).0)
        })
    }
}

fn not_lowered(why: &str, at: &str) -> String {
    format!("{why}: it is not lowered from {at}")
}

/// Returns why the action of this decision must not lower capacity, if so.
pub fn no_lowering(chosen: &Chosen) -> Option<&str> {
    chosen.no_lowering.as_deref().or(chosen.unknown.then_some(UNKNOWN))
}

/// Computes the number of replicas. `no_lowering`: why it is not lowered, if so.
pub fn replicas(scale: &Scale, now: i32, no_lowering: Option<&str>) -> Result<i32, NoPlan> {
    let have = f64::from(now);
    if let Some(to) = scale.to {
        return match no_lowering.filter(|_| to < now) {
            Some(why) => Err(NoPlan::Limited(not_lowered(why, &now.to_string()))),
            None if to == now => Err(NoPlan::Limited(format!("it is at {to} already"))),
            None => Ok(to),
        };
    }
    let room = NumberBounds { min: scale.min.map(f64::from), max: scale.max.map(f64::from), no_lowering };
    let want = match (scale.by, &scale.factor) {
        (Some(by), _) => have + f64::from(by),
        (None, Some(factor)) => round_away(have, multiplied(have, read("factor", factor)?, room)?),
        (None, None) => return Err(NoPlan::invalid("none of by, factor, to, track is set".into())),
    };
    let goal = room.bound(have, want).max(0.0);
    // The goal is between two values of i32.
    let goal = goal.clamp(0.0, f64::from(i32::MAX)) as i32;
    if goal == now { Err(NoPlan::Limited(room.limit_message(have, want))) } else { Ok(goal) }
}

/// Returns the number of replicas of a decision that tracks. It was computed for a target with a certain number of
/// replicas; with another one, the decision is overtaken.
pub fn tracked(scale: &Scale, now: i32, change: Option<ReplicaChange>) -> Result<i32, NoPlan> {
    let Some(ReplicaChange { from, to }) = change else {
        return Err(NoPlan::invalid("the decision has no number of replicas".into()));
    };
    if !within_bounds(scale, to) {
        return Err(NoPlan::invalid(format!(
            "the decision has {to} replicas, which the bounds of the rung do not allow"
        )));
    }
    if now == from { Ok(to) } else { Err(NoPlan::Overtaken(format!("it is at {now}, and no longer at {from}"))) }
}

/// Whether a decision of this rung may lead to this number at some time.
pub fn within_bounds(scale: &Scale, replicas: i32) -> bool {
    let entries = || scale.schedule.iter().flatten();
    let lowest =
        entries().filter_map(|entry| entry.to.or(entry.min).or(entry.max)).chain([scale.min.unwrap_or(1)]).min();
    let highest = entries().filter_map(|entry| entry.to.or(entry.max).or(entry.min)).chain(scale.max).max();
    lowest.is_some_and(|lowest| lowest <= replicas) && highest.is_some_and(|highest| replicas <= highest)
}

/// Multiplies the value. A factor that raises leads from 0 to min: otherwise it could never leave 0.
fn multiplied(have: f64, factor: f64, room: NumberBounds<'_>) -> Result<f64, NoPlan> {
    let is_stuck = have == 0.0 && factor > 1.0;
    match room.min {
        Some(min) if is_stuck && min > 0.0 => Ok(min),
        Some(_) | None if is_stuck => {
            Err(NoPlan::Limited("it is at 0, and a factor leaves it there: set min".to_owned()))
        }
        Some(_) | None => Ok(decimal(have * factor)),
    }
}

/// Rounds away from the current value, so that a factor always changes the number.
fn round_away(have: f64, want: f64) -> f64 {
    if want > have { want.ceil() } else { want.floor() }
}

/// Computes the requests and limits.
pub fn quantities(resize: &Resize, now: &Quantities, unknown: bool) -> Result<Quantities, NoPlan> {
    let factor = read("factor", &resize.factor)?;
    if factor <= 0.0 {
        return Err(NoPlan::invalid("factor must be above 0".into()));
    }
    let bound =
        |bound: &Option<Number>, field| bound.as_ref().map(|bound| amount(resize.resource, field, bound)).transpose();
    let room = NumberBounds {
        min: bound(&resize.min, "min")?.map(|min| min as f64),
        max: bound(&resize.max, "max")?.map(|max| max as f64),
        no_lowering: unknown.then_some(UNKNOWN),
    };
    let (requests, limits) = match resize.what.unwrap_or(Bounds::Both) {
        Bounds::Requests => (true, false),
        Bounds::Limits => (false, true),
        Bounds::Both => (true, true),
    };
    let mut why = None;
    let mut change = |chosen: bool, field, now: &Option<Number>| -> Result<Option<Number>, NoPlan> {
        let Some(text) = now.as_ref().filter(|_| chosen) else { return Ok(now.clone()) };
        let have = amount(resize.resource, field, text)?;
        let want = round_away(have as f64, multiplied(have as f64, factor, room)?);
        let goal = room.bound(have as f64, want) as i64;
        if goal == have {
            why = Some(room.limit_message(have as f64, want));
            return Ok(now.clone());
        }
        Ok(Some(amount_text(resize.resource, goal)))
    };
    let request = change(requests, "requests", &now.request)?;
    let limit = change(limits, "limits", &now.limit)?;
    let goal = Quantities { request, limit };
    check_request_within_limit(resize.resource, &goal)?;
    if goal != *now {
        return Ok(goal);
    }
    Err(match why {
        Some(why) => NoPlan::Limited(why),
        None => NoPlan::invalid(match &resize.container {
            Some(container) => format!("container {container} has no such request or limit"),
            None => "the pods have no such request or limit at pod level".to_owned(),
        }),
    })
}

/// Whether the rung raises.
pub fn raises(resize: &Resize) -> Result<bool, NoPlan> {
    Ok(read("factor", &resize.factor)? > 1.0)
}

/// Returns the amount in millicores or bytes, to sort pods; 0 if unset.
pub fn amount_or_zero(resize: &Resize, text: Option<&Number>) -> Result<i64, NoPlan> {
    text.map_or(Ok(0), |text| amount(resize.resource, resize.part(), text))
}

/// Returns the quantities of a pod that has `now` while the workload goes from `was` to `goal`. They are never lower
/// than `now` when the workload goes up, and never higher when it goes down.
pub fn moved_toward(resource: ResourceName, now: &Quantities, was: &Quantities, goal: &Quantities) -> Quantities {
    let part = |now: &Option<Number>, was: &Option<Number>, goal: &Option<Number>| {
        let read = |text: &Option<Number>| text.as_ref().and_then(|text| amount(resource, "", text).ok());
        let (Some(have), Some(from), Some(to)) = (read(now), read(was), read(goal)) else { return now.clone() };
        let farther = if to > from { have < to } else { to < from && have > to };
        if farther { goal.clone() } else { now.clone() }
    };
    Quantities {
        request: part(&now.request, &was.request, &goal.request),
        limit: part(&now.limit, &was.limit, &goal.limit),
    }
}

/// Whether `has` is behind `wants`: less if the rung raises, and more if it lowers.
pub fn is_behind(resource: ResourceName, raises: bool, has: &Quantities, wants: &Quantities) -> bool {
    let part = |has: &Option<Number>, wants: &Option<Number>| {
        let read = |text: &Option<Number>| text.as_ref().and_then(|text| amount(resource, "", text).ok());
        match (read(has), read(wants)) {
            (Some(has), Some(wants)) => {
                if raises {
                    has < wants
                } else {
                    has > wants
                }
            }
            (Some(_) | None, _) => false,
        }
    };
    part(&has.request, &wants.request) || part(&has.limit, &wants.limit)
}

/// Whether both are the same amounts, in any notation: the API server writes `2000m` as `2`.
pub fn same_quantities(resource: ResourceName, a: &Quantities, b: &Quantities) -> bool {
    let same = |a: &Option<Number>, b: &Option<Number>| match (a, b) {
        (Some(a), Some(b)) => match (amount(resource, "", a), amount(resource, "", b)) {
            (Ok(a), Ok(b)) => a == b,
            (Ok(_) | Err(_), _) => false,
        },
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    same(&a.request, &b.request) && same(&a.limit, &b.limit)
}

/// The API server refuses a request above its limit; this check returns a better message.
fn check_request_within_limit(resource: ResourceName, goal: &Quantities) -> Result<(), NoPlan> {
    let (Some(request), Some(limit)) = (&goal.request, &goal.limit) else { return Ok(()) };
    if amount(resource, "requests", request)? > amount(resource, "limits", limit)? {
        let message = format!("the request, {}, would be above the limit, {}", request.as_str(), limit.as_str());
        return Err(NoPlan::Limited(message));
    }
    Ok(())
}

/// Parses an amount, in millicores or bytes.
fn amount(resource: ResourceName, field: &str, text: &Number) -> Result<i64, NoPlan> {
    let amount = match resource {
        ResourceName::Cpu => quantity::cpu_millis(text.as_str()),
        ResourceName::Memory => quantity::bytes(text.as_str()),
    };
    match amount {
        Ok(amount) if (0..=MOST).contains(&amount) => Ok(amount),
        Ok(_) => Err(NoPlan::invalid(format!("{field}: {} is out of range", text.as_str()))),
        Err(error) => Err(NoPlan::invalid(format!("{field}: {error}"))),
    }
}

/// Formats the amount in the largest unit of which it is a multiple, as people write it.
fn amount_text(resource: ResourceName, amount: i64) -> Number {
    let (units, rest): (&[(i64, &str)], &str) = match resource {
        ResourceName::Cpu => (&[(1000, "")], "m"),
        ResourceName::Memory => (&[(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")], ""),
    };
    let whole = units.iter().find(|(size, _)| amount > 0 && amount % size == 0);
    Number(whole.map_or_else(|| format!("{amount}{rest}"), |(size, unit)| format!("{}{unit}", amount / size)))
}

/// Computes the value of the field. `no_lowering`: why a number is not lowered, if so.
pub fn field(patch: &PatchField, now: Option<&Value>, no_lowering: Option<&str>) -> Result<Value, NoPlan> {
    if let Some(to) = &patch.to {
        let goal: Value = serde_json::from_str(to)
            .map_err(|error| NoPlan::invalid(format!("to: {} is not a JSON value: {error}", quoted(to))))?;
        if now == Some(&goal) {
            return Err(NoPlan::Limited(format!("it is {to} already")));
        }
        let numbers = now.and_then(rung::number).zip(rung::number(&goal));
        return match (numbers, no_lowering) {
            (Some((have, want)), Some(why)) if want < have => {
                Err(NoPlan::Limited(not_lowered(why, &number_text(have).0)))
            }
            (Some(_) | None, _) => Ok(goal),
        };
    }
    let have = now.and_then(rung::number).ok_or_else(|| NoPlan::invalid(format!("{} is not a number", patch.path)))?;
    let bound = |bound: &Option<Number>, field| bound.as_ref().map(|bound| read(field, bound)).transpose();
    let room = NumberBounds { min: bound(&patch.min, "min")?, max: bound(&patch.max, "max")?, no_lowering };
    let want = match (&patch.by, &patch.factor) {
        (Some(by), _) => decimal(have + read("by", by)?),
        (None, Some(factor)) => multiplied(have, read("factor", factor)?, room)?,
        (None, None) => return Err(NoPlan::invalid("none of by, factor, to is set".into())),
    };
    let whole = matches!(now, Some(Value::Number(number)) if number.is_i64() || number.is_u64());
    let want = if whole { round_away(have, want) } else { want };
    let goal = room.bound(have, want);
    if (goal - have).abs() < f64::EPSILON {
        return Err(NoPlan::Limited(room.limit_message(have, want)));
    }
    if whole {
        return Ok(Value::from(goal as i64));
    }
    if matches!(now, Some(Value::String(_))) {
        return Ok(Value::String(decimal_text(goal).0));
    }
    serde_json::Number::from_f64(goal)
        .map(Value::Number)
        .ok_or_else(|| NoPlan::invalid(format!("{} would leave the range of numbers", patch.path)))
}

fn read(field: &str, text: &Number) -> Result<f64, NoPlan> {
    quantity::number(text.as_str()).map_err(|error| NoPlan::invalid(format!("{field}: {error}")))
}
