//! Evaluates the formulas of a Monitoring on the values in its status.

use super::formula::{FormulaOperand, FormulaValue, MetricFormula};
use super::level::MetricState;
use super::rules::{MonitoringRules, NO_MORE, ObserveContext};
use super::stored_values::{mark_unknown, metric_state, reading};
use super::value::{NOT_YET, SourceResult, SourceValue};
use crate::common::elapsed;
use ganglion_api::monitoring::{MonitoringStatus, Reading};

impl MonitoringRules {
    /// Computes all formulas from the current values of their operands. The result does not depend on what was computed
    /// before, so that evaluating once more changes nothing.
    pub(super) fn evaluate_formulas(&self, status: &mut MonitoringStatus, context: ObserveContext) {
        let now = context.now;
        for formula in &self.formulas {
            let metric = &formula.metric;
            let operands = self.operands(formula, status, context);
            let computed = formula.value(&operands, now).and_then(|value| {
                let FormulaValue { source, problem, assumed } = value;
                Ok(Reading { problem, assumed_operand: assumed, ..reading(metric, &source, now)? })
            });
            let why = match computed {
                Ok(reading) => {
                    let is_over = self.levels_of(metric).is_some_and(|levels| elapsed(&reading.at, now) > levels.after);
                    status.values.retain(|old| &old.metric != metric);
                    status.values.push(reading);
                    is_over.then(|| NO_MORE.to_owned())
                }
                Err(why) => Some(why),
            };
            match why {
                Some(why) => mark_unknown(status, metric, &why, &now),
                None => status.unknown.retain(|unknown| &unknown.metric != metric),
            }
        }
        status.values.sort_by_key(|reading| self.place(&reading.metric));
        status.unknown.sort_by_key(|unknown| self.place(&unknown.metric));
    }

    /// Returns the operands of the formula, in its order.
    fn operands(
        &self,
        formula: &MetricFormula,
        status: &MonitoringStatus,
        context: ObserveContext,
    ) -> Vec<FormulaOperand> {
        let names = formula.formula.operands().iter();
        names
            .map(|name| {
                self.levels_of(name).map_or_else(
                    || replicas(context),
                    |levels| operand(status, name, metric_state(status, name, levels, context.now)),
                )
            })
            .collect()
    }

    /// Describes each formula with its operands and its result, in the order of the spec.
    pub fn described_formulas(
        &self,
        status: &MonitoringStatus,
        context: ObserveContext,
    ) -> Vec<(String, SourceResult)> {
        let mut described: Vec<(String, SourceResult)> = Vec::new();
        for formula in &self.formulas {
            let operands = self.operands(formula, status, context);
            let words = formula.described(&operands);
            let result = match formula.value(&operands, context.now) {
                Ok(value) => Ok(SourceValue::from(format!("{} = {words}", value.source.value))),
                Err(why) => Err(format!("{why}: {words}")),
            };
            described.push((formula.metric.clone(), result));
        }
        described.sort_by_key(|(metric, _)| self.place(metric));
        described
    }
}

/// Returns the target's number of replicas as an operand. While it is not known, it counts as missing since this
/// process watches.
fn replicas(context: ObserveContext) -> FormulaOperand {
    FormulaOperand {
        value: context.replicas.map(|replicas| f64::from(replicas).into()).map_err(str::to_owned),
        at: None,
        measured: context.replicas.is_err().then_some(context.watched_since),
        problem: None,
        assumed: None,
    }
}

/// Returns a metric as an operand.
fn operand(status: &MonitoringStatus, metric: &str, state: MetricState) -> FormulaOperand {
    let reading = status.values.iter().find(|reading| reading.metric == metric);
    let unknown = status.unknown.iter().find(|unknown| unknown.metric == metric);
    let value = match state {
        MetricState::Known(value) | MetricState::Standing(value) | MetricState::Assumed(value) => Ok(value),
        MetricState::Unknown | MetricState::Missing => {
            Err(unknown.map_or_else(|| NOT_YET.to_owned(), |unknown| unknown.message.clone()))
        }
    };
    match (unknown, reading) {
        (None, Some(reading)) => FormulaOperand {
            value,
            at: Some(reading.at.0),
            measured: Some(reading.measured_at.as_ref().unwrap_or(&reading.at).0),
            problem: reading.problem.clone(),
            assumed: reading.assumed_operand.clone(),
        },
        (unknown, _) => FormulaOperand {
            assumed: value.is_ok().then(|| metric.to_owned()),
            value,
            at: None,
            measured: unknown.map(|unknown| unknown.since.0),
            problem: None,
        },
    }
}
