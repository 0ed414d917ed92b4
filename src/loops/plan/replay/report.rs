//! The result of a replay. Its parts are in the order in which they are printed.

use jiff::Timestamp;
use serde::Serialize;

use ganglion_api::closed_loop::metric::Side;
use ganglion_api::decision::Outcome;

/// Decisions that a loop would have made, with counts and times.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayReport {
    /// Name of the loop.
    pub name: String,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Description of the model of the effect.
    pub effect: String,
    /// Number of evaluations of the levels.
    pub evaluations: u64,
    pub decisions: Vec<ReplayedDecision>,
    /// Number of decisions by outcome. A decision without an outcome waited for an approval.
    pub totals: ReplayTotals,
    /// Time beyond each level, and of each alarm.
    pub alarms: Vec<AlarmTime>,
    /// Alarms that were not served, by reason: dwell, budget, bounds and others.
    pub held: Vec<HeldTime>,
    /// Metrics with an alarm that was never served while another was.
    pub starved: Vec<String>,
    /// Time without a value, by metric and reason.
    pub unknown: Vec<UnknownTime>,
    /// Values that actions changed, the values at the start first.
    pub target: Vec<TargetChange>,
    /// Assumptions of the replay, and parts of the loop that the history does not contain.
    pub limits: Vec<String>,
    /// Values of each metric as the loop had them, for a picture.
    #[serde(skip)]
    pub values: Vec<MetricValues>,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayedDecision {
    pub seq: i64,
    pub at: Timestamp,
    /// The alarm or combination of alarms.
    pub when: String,
    /// Value of the metric; None for a combination of alarms, or if it was unknown.
    pub value: Option<String>,
    /// Number of the rung on the ladder, from 1.
    pub rung: usize,
    pub action: String,
    /// Value before the change, if the target has one.
    pub before: Option<String>,
    /// Value after the change, or the description of another effect.
    pub after: Option<String>,
    /// None: it waited for an approval.
    pub outcome: Option<Outcome>,
    /// The end of the decision as text.
    pub message: Option<String>,
}

/// Number of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayTotals {
    pub decisions: u64,
    /// Carried out.
    pub served: u64,
    /// Would have been carried out in mode Auto.
    pub dry_run: u64,
    /// Nothing changed: the target was at a bound.
    pub limited: u64,
    /// Failed, overtaken or lost.
    pub failed: u64,
    /// Proposals that were withdrawn, since their alarm ended or their number was no longer right.
    pub withdrawn: u64,
    /// Proposals that waited at the end.
    pub proposed: u64,
    /// Actions in the opposite direction of the one before, as the oscillation limit counts them.
    pub reversals: u64,
}

/// Time of one alarm.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AlarmTime {
    pub metric: String,
    pub side: Side,
    /// Level of the spec; None for the sides Missing and Target.
    pub level: Option<String>,
    /// Time for which the value was beyond the level.
    pub beyond_seconds: f64,
    /// Time for which the alarm was raised.
    pub raised_seconds: f64,
    /// Number of times that it was raised.
    pub raised: u64,
}

/// Alarms that were not served for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldTime {
    /// The alarm or combination of alarms, or `replicas` for the bounds of actions on side Target.
    pub when: String,
    /// Name of the reason.
    pub reason: String,
    /// Number of times that it began.
    pub times: u64,
    pub seconds: f64,
}

/// Time without a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownTime {
    pub metric: String,
    pub reason: String,
    /// Number of times that it began.
    pub times: u64,
    pub seconds: f64,
}

/// A value of the target, from this time on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetChange {
    pub at: Timestamp,
    /// Name of the value, such as `replicas`.
    pub dimension: String,
    pub value: String,
}

/// Values of one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricValues {
    pub metric: String,
    /// Time and value of each evaluation; None: unknown.
    pub points: Vec<(Timestamp, Option<f64>)>,
}

impl ReplayTotals {
    /// Counts decisions, without the reversals.
    pub(super) fn of(decisions: &[ReplayedDecision]) -> Self {
        let mut totals = Self::default();
        for decision in decisions {
            let count = match decision.outcome {
                Some(Outcome::Served) => &mut totals.served,
                Some(Outcome::DryRun) => &mut totals.dry_run,
                Some(Outcome::Limited) => &mut totals.limited,
                Some(Outcome::Failed | Outcome::Overtaken | Outcome::Lost) => &mut totals.failed,
                Some(Outcome::Withdrawn) => &mut totals.withdrawn,
                None => &mut totals.proposed,
            };
            *count += 1;
            totals.decisions += 1;
        }
        totals
    }
}
