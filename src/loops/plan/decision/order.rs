//! The order of alarms: by rank, by weight, or by a user's expression. Equal alarms are ordered by rank.
//!
//! A combination has the place of its first alarm: how urgent it is does not depend on what else must hold. Among
//! candidates of the same place, the more specific one is first; otherwise a combination with `all` would never be
//! served beside an action for one of its alarms.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::candidate::AlarmCandidate;
use crate::common::{FieldError, number};
use ganglion_api::closed_loop::policy::{Policy, Select};
use ganglion_api::decision::Counter;
use ganglion_api::monitoring::{AlarmState, Reading};
use ganglion_core::expression::{Concern, MetricView, Score};
use ganglion_core::quantity;

/// Method of ordering alarms.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// By rank.
    Rank,
    /// By excess times weight.
    Weighted(BTreeMap<String, f64>),
    /// By the result of an expression.
    Expression(Score),
}

/// A candidate at its place in the order.
#[derive(Clone, Debug)]
pub struct RankedCandidate<'a> {
    pub candidate: AlarmCandidate<'a>,
    /// The expression returned no number above 0: the alarm is not served.
    pub refused: bool,
}

impl Selection {
    /// Parses the policy.
    pub fn parse(policy: &Policy) -> Result<Self, FieldError> {
        match policy.select.unwrap_or_default() {
            Select::Rank => Ok(Self::Rank),
            Select::Weighted => {
                let weights = policy.weights.iter().flatten();
                let read = |(name, weight)| -> Result<(String, f64), FieldError> {
                    let name: &String = name;
                    Ok((name.clone(), number(&format!("policy.weights[{name}]"), weight)?))
                };
                weights.map(read).collect::<Result<_, _>>().map(Self::Weighted)
            }
            Select::Expression => {
                let text = policy.expression.as_deref().unwrap_or_default();
                Score::parse(text).map(Self::Expression).map_err(|error| FieldError {
                    passing: error.concern() == Concern::Process,
                    ..FieldError::new("policy.expression", error)
                })
            }
        }
    }
}

/// Inputs of the order, besides the alarms.
#[derive(Clone, Copy, Debug)]
pub struct OrderContext<'a> {
    /// All metrics, the most important first.
    pub rank: &'a [String],
    /// The last value of each metric.
    pub values: &'a [Reading],
    /// The counters of each metric.
    pub counters: &'a [Counter],
}

impl OrderContext<'_> {
    fn place(&self, metric: &str) -> usize {
        self.rank.iter().position(|name| name == metric).unwrap_or(self.rank.len())
    }

    fn compare_places(&self, a: &AlarmState, b: &AlarmState) -> Ordering {
        let by_rank = self.place(&a.metric).cmp(&self.place(&b.metric));
        by_rank.then_with(|| (&a.metric, a.side).cmp(&(&b.metric, b.side)))
    }

    /// The last value of a metric.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let reading = self.values.iter().find(|reading| reading.metric == metric)?;
        quantity::number(reading.value.as_str()).ok()
    }

    fn view<'a>(&self, alarm: &'a AlarmState) -> MetricView<'a> {
        let counter = self.counters.iter().find(|counter| counter.metric == alarm.metric);
        MetricView {
            name: &alarm.metric,
            side: alarm.side.as_str(),
            value: self.value(&alarm.metric).unwrap_or(0.0),
            excess: excess(alarm).unwrap_or(0.0),
            rank: i64::try_from(self.place(&alarm.metric)).unwrap_or(i64::MAX),
            wanted: counter.map_or(0, |counter| counter.wanted),
            served: counter.map_or(0, |counter| counter.served),
            limited: counter.map_or(0, |counter| counter.limited),
        }
    }
}

/// The candidates in the order in which they are evaluated, each led by its first alarm.
pub fn order<'a>(
    selection: &Selection,
    candidates: Vec<AlarmCandidate<'a>>,
    context: OrderContext,
) -> Vec<RankedCandidate<'a>> {
    let compare = |(a_score, a): &(Option<f64>, &AlarmState), (b_score, b): &(Option<f64>, &AlarmState)| {
        descending(*a_score, *b_score).then_with(|| context.compare_places(a, b))
    };
    let led = |candidate: AlarmCandidate<'a>| {
        let scored = candidate.alarms.iter().map(|alarm| (score(selection, alarm, context), *alarm));
        let (score, lead) = scored.min_by(compare).unwrap_or((None, candidate.lead));
        ((score, lead), AlarmCandidate { lead, ..candidate })
    };
    let mut scored: Vec<((Option<f64>, &AlarmState), AlarmCandidate)> = candidates.into_iter().map(led).collect();
    scored.sort_by(|(a, a_candidate), (b, b_candidate)| {
        compare(a, b).then_with(|| a_candidate.specificity().cmp(&b_candidate.specificity()))
    });
    let ranked = scored.into_iter();
    ranked.map(|((score, _), candidate)| RankedCandidate { candidate, refused: score.is_none() }).collect()
}

/// Orders the highest score first, no score last.
fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

fn score(selection: &Selection, alarm: &AlarmState, context: OrderContext) -> Option<f64> {
    match selection {
        Selection::Rank => Some(0.0),
        // An alarm without a measure counts as a full excess.
        Selection::Weighted(weights) => {
            let weight = weights.get(&alarm.metric).copied().unwrap_or(1.0);
            Some(weight * excess(alarm).unwrap_or(1.0)).filter(|score| score.is_finite()).or(Some(0.0))
        }
        Selection::Expression(score) => score.of(&context.view(alarm)).filter(|score| *score > 0.0),
    }
}

fn excess(alarm: &AlarmState) -> Option<f64> {
    quantity::number(alarm.excess.as_ref()?.as_str()).ok()
}
