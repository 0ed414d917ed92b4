//! Metrics that are computed from other metrics of the loop, and from the target's number of replicas.
//!
//! Owns the checks of names, the order of evaluation, and the age of a result. Must not know how a source is read.

use jiff::Timestamp;

use super::level::RangedValue;
use super::value::{NOT_YET, SourceValue, ValueRange};
use crate::common::{FieldError, decimal};
use ganglion_api::GROUP;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_api::monitoring::MonitoringSpec;
use ganglion_core::expression::{Concern, Formula, FormulaNumber, FormulaOutcome, FormulaProblem};
use ganglion_core::words::quoted;

/// Name of the target's `spec.replicas` in a formula.
pub const REPLICAS: &str = "replicas";

/// Kind of targets whose replicas are in the operator's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaResource {
    api_version: &'static str,
    kind: &'static str,
    pub group: &'static str,
    pub plural: &'static str,
}

const REPLICA_RESOURCES: [ReplicaResource; 4] = [
    ReplicaResource { api_version: "apps/v1", kind: "Deployment", group: "apps", plural: "deployments" },
    ReplicaResource { api_version: "apps/v1", kind: "ReplicaSet", group: "apps", plural: "replicasets" },
    ReplicaResource { api_version: "apps/v1", kind: "StatefulSet", group: "apps", plural: "statefulsets" },
    ReplicaResource { api_version: "ganglion.dev/v1alpha1", kind: "SwarmPool", group: GROUP, plural: "swarmpools" },
];

/// Time after a change of the replicas in which the caches may still contain the number before.
const CACHE_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// A metric with a formula.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFormula {
    pub metric: String,
    pub formula: Formula,
}

/// An operand of a formula with its value, or why it has none.
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaOperand {
    pub value: Result<RangedValue, String>,
    /// Time from which its age counts; None for a fact, which has no age, and for an assumed value.
    pub at: Option<Timestamp>,
    /// When it was measured. For a missing value, the time since which it is missing.
    pub measured: Option<Timestamp>,
    /// Why there is no newer value.
    pub problem: Option<String>,
    /// Name of the operand whose value is assumed.
    pub assumed: Option<String>,
}

/// Value of a formula.
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaValue {
    pub source: SourceValue,
    pub problem: Option<String>,
    pub assumed: Option<String>,
}

/// Parses all formulas. Each one comes after the formulas that it uses.
pub fn parse(spec: &MonitoringSpec) -> Result<Vec<MetricFormula>, FieldError> {
    let mut formulas = Vec::new();
    for metric in &spec.metrics {
        let Some(source) = &metric.source.formula else { continue };
        let field = field(&metric.name);
        let formula = Formula::parse(&source.expression).map_err(|error| FieldError {
            passing: error.concern() == Concern::Process,
            ..FieldError::new(&*field, error)
        })?;
        if formula.operands().is_empty() {
            return Err(FieldError::new(field, "a formula without an operand: name a metric of this loop"));
        }
        for operand in formula.operands() {
            check_name(spec, operand).map_err(|problem| FieldError::new(&*field, problem))?;
        }
        formulas.push(MetricFormula { metric: metric.name.clone(), formula });
    }
    ordered(formulas)
}

fn field(metric: &str) -> String {
    format!("metrics[{metric}].source.formula.expression")
}

fn check_name(spec: &MonitoringSpec, operand: &str) -> Result<(), String> {
    if spec.metrics.iter().any(|metric| metric.name == operand) {
        return Ok(());
    }
    let target = spec.target.as_ref();
    match target {
        Some(target) if operand == REPLICAS && replica_resource(target).is_some() => Ok(()),
        _ if operand == REPLICAS => {
            let kinds = REPLICA_RESOURCES.map(|one| one.kind).join(", ");
            let kind = target.map_or("none", |target| target.kind.as_str());
            Err(format!(
                "replicas is known of {kinds}, and the target's kind is {kind}: add a metric with a source object and the \
                 path of the number"
            ))
        }
        _ => {
            let known: Vec<&str> = spec.metrics.iter().map(|metric| metric.name.as_str()).collect();
            let facts = if target.and_then(replica_resource).is_some() { ", and the fact replicas" } else { "" };
            Err(format!("{} is no metric of this loop: known are {}{facts}", quoted(operand), known.join(", ")))
        }
    }
}

/// Returns the resource of a target whose replicas are in the operator's caches; None for other kinds.
pub fn replica_resource(target: &TargetRef) -> Option<&'static ReplicaResource> {
    REPLICA_RESOURCES.iter().find(|one| (one.api_version, one.kind) == (&*target.api_version, &*target.kind))
}

/// Sorts the formulas so that each comes after those that it uses.
fn ordered(mut rest: Vec<MetricFormula>) -> Result<Vec<MetricFormula>, FieldError> {
    let mut ordered = Vec::new();
    loop {
        let names: Vec<String> = rest.iter().map(|one| one.metric.clone()).collect();
        let uses_none = |one: &MetricFormula| !one.formula.operands().iter().any(|operand| names.contains(operand));
        let (ready, waiting): (Vec<_>, Vec<_>) = rest.into_iter().partition(uses_none);
        if waiting.is_empty() {
            ordered.extend(ready);
            return Ok(ordered);
        }
        if ready.is_empty() {
            let circle = circle(&waiting);
            let first = circle.first().cloned().unwrap_or_default();
            let problem = format!("these formulas use each other: {}", circle.join(" → "));
            return Err(FieldError::new(field(&first), problem));
        }
        ordered.extend(ready);
        rest = waiting;
    }
}

/// Returns a circle of names, the first one repeated at the end. Each of these formulas uses another one of them.
fn circle(all: &[MetricFormula]) -> Vec<String> {
    let mut path: Vec<String> = all.iter().take(1).map(|one| one.metric.clone()).collect();
    while let Some(last) = path.last() {
        let formula = all.iter().find(|one| one.metric == *last);
        let mut operands = formula.iter().flat_map(|one| one.formula.operands());
        let Some(next) = operands.find(|operand| all.iter().any(|one| one.metric == **operand)).cloned() else { break };
        let seen = path.iter().position(|name| *name == next);
        path.push(next);
        if let Some(seen) = seen {
            return path.split_off(seen);
        }
    }
    path
}

impl MetricFormula {
    /// Computes the value from the operands, in the order of [`Formula::operands`].
    pub fn value(&self, operands: &[FormulaOperand], now: Timestamp) -> Result<FormulaValue, String> {
        let numbers: Vec<Option<FormulaNumber>> =
            operands.iter().map(|operand| operand.value.as_ref().ok().map(number)).collect();
        let FormulaOutcome { result, used, defaulted } = self.formula.evaluate(&numbers);
        let number = result.map_err(|problem| self.words(problem, operands, &used))?;
        let used: Vec<&FormulaOperand> = used.iter().filter_map(|at| operands.get(*at)).collect();
        let missing = defaulted.iter().filter_map(|at| operands.get(*at));
        // A value without any measured operand was measured when its operands became unknown.
        let measured = used.iter().filter(|operand| operand.at.is_some()).filter_map(|operand| operand.measured).min();
        let since = used.iter().copied().chain(missing).filter_map(|operand| operand.measured).min();
        let measured = measured.or(since);
        let at = used.iter().filter_map(|operand| operand.at).min().unwrap_or(now);
        let default = defaulted.first().and_then(|at| self.formula.operands().get(*at));
        Ok(FormulaValue {
            source: SourceValue {
                at: Some(at),
                measured: measured.filter(|measured| *measured != at),
                range: range(number).map_err(|why| format!("{}: {why}", self.partial(operands)))?,
                ..SourceValue::from(text(number.value))
            },
            problem: used.iter().find_map(|operand| operand.problem.clone()),
            assumed: used.iter().find_map(|operand| operand.assumed.clone()).or_else(|| default.cloned()),
        })
    }

    fn words(&self, problem: FormulaProblem, operands: &[FormulaOperand], used: &[usize]) -> String {
        match problem {
            FormulaProblem::Unknown(at) => match operands.get(at).map(|operand| &operand.value) {
                Some(Err(why)) if why == NOT_YET => NOT_YET.to_owned(),
                // A fact has no entry of its own that says why it is unknown.
                Some(Err(why)) if self.name(at) == REPLICAS => format!("its operand {REPLICAS} is unknown: {why}"),
                Some(Err(_) | Ok(_)) | None => format!("its operand {} is unknown", self.name(at)),
            },
            FormulaProblem::NotFinite => {
                let values: Vec<String> = used.iter().filter_map(|at| self.shown(*at, operands)).collect();
                format!("the result is not a finite number ({})", values.join(", "))
            }
            FormulaProblem::Undecided => {
                format!("{}: the result depends on the pods that are not measured", self.partial(operands))
            }
        }
    }

    fn name(&self, at: usize) -> &str {
        self.formula.operands().get(at).map_or("", String::as_str)
    }

    fn shown(&self, at: usize, operands: &[FormulaOperand]) -> Option<String> {
        let value = operands.get(at)?.value.as_ref().ok()?.value;
        Some(format!("{} {}", self.name(at), text(value)))
    }

    /// Names the operands that are ranges.
    fn partial(&self, operands: &[FormulaOperand]) -> String {
        let is_partial = |operand: &FormulaOperand| operand.value.as_ref().is_ok_and(|value| !number(value).is_exact());
        let partial = operands.iter().enumerate().filter(|(_, operand)| is_partial(operand));
        let names: Vec<&str> = partial.map(|(at, _)| self.name(at)).collect();
        format!("{} is partial", names.join(", "))
    }

    /// The formula with its operands, such as `requests / replicas (requests 5, replicas 2)`.
    pub fn described(&self, operands: &[FormulaOperand]) -> String {
        let shown = operands
            .iter()
            .enumerate()
            .map(|(at, _)| self.shown(at, operands).unwrap_or_else(|| format!("{} unknown", self.name(at))));
        format!("{} ({})", self.formula.as_str(), shown.collect::<Vec<_>>().join(", "))
    }
}

/// Converts the value of an operand. Pods that are not measured may use as much as any level, so that a level above
/// their request is never certain to be reached; a result has no such bound.
fn number(value: &RangedValue) -> FormulaNumber {
    let is_bounded = value.missing_request.is_infinite();
    FormulaNumber { value: value.value, least: value.least, most: if is_bounded { value.most } else { f64::INFINITY } }
}

/// Formats a result with all its digits.
fn text(value: f64) -> String {
    if value.abs() < 1e18 { decimal(value).to_string() } else { format!("{value:.15e}") }
}

/// Converts the range of a result; None if it is the value alone.
fn range(number: FormulaNumber) -> Result<Option<ValueRange>, &'static str> {
    if number.is_exact() {
        return Ok(None);
    }
    if !number.least.is_finite() {
        return Err("the result has no lower limit");
    }
    let most = number.most.is_finite().then(|| text(number.most));
    Ok(Some(ValueRange { least: text(number.least), most, missing_request: None }))
}

/// Whether the loop changes the number of replicas, or has just changed something: for this time, it may be unknown.
pub fn is_changing(execution: &ExecutionStatus, now: Timestamp) -> bool {
    execution.claim.as_ref().is_some_and(|claim| claim.goal.replicas.is_some()) || has_just_acted(execution, now)
}

fn has_just_acted(execution: &ExecutionStatus, now: Timestamp) -> bool {
    let is_recent = execution.since.as_ref().is_some_and(|since| now.duration_since(since.0) < CACHE_DELAY);
    execution.state == Some(ExecutionState::Done) && is_recent
}

/// Returns the target's number of replicas. `cached`: the number in the operator's caches, if the target is there.
/// While the loop itself changes the number, and until the caches show its last change, the number is not known: it
/// does not belong to the values that are measured meanwhile.
pub fn current_replicas(
    cached: Option<i32>,
    execution: Option<&ExecutionStatus>,
    now: Timestamp,
) -> Result<i32, &'static str> {
    let Some(cached) = cached else { return Err("the target does not exist") };
    let Some(execution) = execution else { return Ok(cached) };
    let is_goal = |text: &Option<String>| text.as_deref() == Some(cached.to_string().as_str());
    if execution.claim.as_ref().is_some_and(|claim| claim.goal.replicas.is_some_and(|goal| goal != cached)) {
        return Err("the loop is changing the number of replicas");
    }
    let is_before = is_goal(&execution.before) && !is_goal(&execution.after);
    if has_just_acted(execution, now) && is_before {
        return Err("the loop has changed the number of replicas, and the operator has not seen the new one yet");
    }
    Ok(cached)
}
