//! Assessment of a loop as a whole: its effective policy, the specs of its children, whether it may act, and its
//! status.
//!
//! A loop with a problem also has children. They report why nothing is done, and continue once the problem is solved.
//! Must not know how children are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::chain::{self, ChainError, LoopLink};
use super::conflict::{self, Claimant, Conflict};
use super::feedback::feedback;
use super::preflight::Preflight;
use crate::acted;
use crate::children::{Children, children};
use crate::common::{CHANGE_UNDONE, FieldError, LAST_ACTION_SUCCEEDED, TRACKING, UTILIZATION_FEEDBACK, time_text};
use crate::decision::DecisionRules;
use crate::execution::{UndoneField, undone_fields};
use crate::monitoring::{MonitoringRules, NOT_YET};
use crate::proposal::{self, Proposal};
use crate::rung;
use crate::tuning::effective_policy;
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::{Effective, LoopSummary, SeenOwner};
use ganglion_api::closed_loop::{ClosedLoopSpec, ClosedLoopStatus, LoopMode};
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_api::monitoring::{MonitoringStatus, UnknownMetric};
use ganglion_core::conditions::{self, DATA_AVAILABLE, Health, Stamp};
use ganglion_core::contest;
use ganglion_core::names;
use ganglion_core::status::StatusChange;
use ganglion_core::words::quoted;

/// Maximum length of a loop's name: its children have the name in a label.
const MAX_NAME: usize = 63;

/// Maximum length of a list of fields in a message, in characters.
const MAX_LIST: usize = 700;

/// Message before the first verdict of the preflight.
const CHECKING: &str = "checking the target and the rights";

/// Input of an assessment: a loop, and the other loops and autoscalers of its namespace.
#[derive(Clone, Copy, Debug)]
pub struct AssessmentInput<'a> {
    pub name: &'a str,
    pub spec: &'a ClosedLoopSpec,
    pub status: &'a ClosedLoopStatus,
    /// All loops of the namespace, including this one.
    pub links: &'a BTreeMap<String, LoopLink>,
    /// This loop as a claimant of its target.
    pub me: &'a Claimant,
    /// Other claimants in the namespace.
    pub others: &'a [Claimant],
    /// Digest that the user approved.
    pub approval: Option<&'a str>,
    pub access: &'a NamespaceAccess,
    pub now: Timestamp,
}

/// Whether the operator may act in the loop's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NamespaceAccess {
    #[default]
    Granted,
    /// The settings exclude the namespace.
    Refused(String),
    /// The operator may not act as the loop's account; the message says how to allow it.
    NotBound(String),
}

/// Reason why a loop does not act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopProblem {
    /// The spec has to be changed.
    Spec(LoopReason, String),
    /// This process could not read the spec at the moment.
    Passing(String),
    /// The operator does not act in this namespace.
    Refused(String),
    /// The operator may not act as the loop's account.
    NotBound(String),
    /// Something else acts on the same target.
    Conflict(LoopReason, String),
}

/// Result of the assessment.
#[derive(Clone, Debug)]
pub struct Assessment {
    pub children: Arc<Children>,
    /// Parsed rules of the first two stages; None if the spec cannot be parsed.
    pub stages: Option<(MonitoringRules, DecisionRules)>,
    pub effective: Effective,
    pub problem: Option<LoopProblem>,
    /// Message if the interval is too short for the loop that this loop tunes.
    pub overlap: Option<String>,
    /// Message if the loop changes the requests that one of its metrics is in percent of.
    pub feedback: Option<String>,
}

/// Assesses a loop.
pub fn assess(case: &AssessmentInput) -> Assessment {
    let held = effective_policy::effective(case.spec, &case.status.tuning, case.status.effective.as_ref(), case.now);
    let (policy, unreadable) = match held {
        Ok(policy) => (policy, None),
        Err(fault) => (effective_policy::declared(case.spec), Some(fault)),
    };
    let free = children_of(case, &policy, None);
    let read =
        MonitoringRules::parse(&free.monitoring).and_then(|watch| Ok((watch, DecisionRules::parse(&free.decision)?)));
    let problem = find_problem(case, unreadable.or_else(|| read.as_ref().err().cloned()));
    let Some(why) = problem.as_ref().map(LoopProblem::message) else {
        return Assessment {
            children: Arc::new(free),
            stages: read.ok(),
            effective: policy.shown,
            problem,
            overlap: chain::overlap(case.name, case.links),
            feedback: feedback(case.spec),
        };
    };
    let mut blocked = children_of(case, &policy, Some(why.to_owned()));
    if matches!(problem, Some(LoopProblem::Refused(_))) {
        (blocked.monitoring.paused, blocked.execution.paused) = (true, true);
    }
    let stages = read.ok().and_then(|(watch, _)| Some((watch, DecisionRules::parse(&blocked.decision).ok()?)));
    Assessment { children: Arc::new(blocked), stages, effective: policy.shown, problem, overlap: None, feedback: None }
}

/// Specs of the children. `blocked` is the reason why the loop may not act.
fn children_of(
    case: &AssessmentInput,
    policy: &effective_policy::EffectivePolicy,
    blocked: Option<String>,
) -> Children {
    let mut all = children(case.spec, policy, blocked, case.approval);
    all.decision.replicas_path.clone_from(&case.status.replicas_path);
    all
}

fn find_problem(case: &AssessmentInput, unreadable: Option<FieldError>) -> Option<LoopProblem> {
    let spec = |reason, fault: &dyn std::fmt::Display| Some(LoopProblem::Spec(reason, fault.to_string()));
    if let NamespaceAccess::Refused(message) = case.access {
        return Some(LoopProblem::Refused(message.clone()));
    }
    if case.name.len() > MAX_NAME {
        let fault = FieldError::new("metadata.name", format!("a loop's name may have at most {MAX_NAME} characters"));
        return spec(LoopReason::SpecInvalid, &fault);
    }
    if let Some(fault) = misnamed(case.spec).or(unreadable).or_else(|| LoopLink::parse(case.spec).err()) {
        return if fault.passing {
            Some(LoopProblem::Passing(fault.to_string()))
        } else {
            spec(LoopReason::SpecInvalid, &fault)
        };
    }
    match chain::check(case.name, case.links) {
        Ok(()) => {}
        Err(broken @ ChainError::Circle(_)) => return spec(LoopReason::Circle, &broken),
        Err(broken @ ChainError::TooDeep(_)) => return spec(LoopReason::TooDeep, &broken),
    }
    if let NamespaceAccess::NotBound(message) = case.access {
        return Some(LoopProblem::NotBound(message.clone()));
    }
    let conflict = conflict::find(case.me, case.others)?;
    Some(LoopProblem::Conflict(reason_of(&conflict), conflict.to_string()))
}

/// Returns the first name that no object can have: in a URL it would address something else.
fn misnamed(spec: &ClosedLoopSpec) -> Option<FieldError> {
    let target = &spec.target;
    let account = spec.service_account_name.as_deref().unwrap_or(names::DEFAULT_ACCOUNT);
    let checked = [
        ("spec.target.apiVersion", target.api_version.as_str(), names::is_api_version(&target.api_version)),
        ("spec.target.name", target.name.as_str(), names::is_name(&target.name)),
        ("spec.serviceAccountName", account, names::is_name(account)),
    ];
    let (field, text, _) = checked.into_iter().find(|(_, _, good)| !good)?;
    Some(FieldError::new(field, format!("{} is not a valid name", quoted(text))))
}

fn reason_of(conflict: &Conflict) -> LoopReason {
    if conflict.with.is_autoscaler() { LoopReason::AutoscalerConflict } else { LoopReason::LoopConflict }
}

impl Assessment {
    /// Whether the result may change although its inputs stay the same.
    pub fn is_passing(&self) -> bool {
        matches!(self.problem, Some(LoopProblem::Passing(_)))
    }
}

impl LoopProblem {
    /// Returns the message.
    pub fn message(&self) -> &str {
        match self {
            Self::Spec(_, words)
            | Self::Passing(words)
            | Self::Conflict(_, words)
            | Self::Refused(words)
            | Self::NotBound(words) => words,
        }
    }
}

/// Statuses of the existing children.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildStatuses<'a> {
    pub monitoring: Option<&'a MonitoringStatus>,
    pub decision: Option<&'a DecisionStatus>,
    pub execution: Option<&'a ExecutionStatus>,
    /// Message if the loop does not own an object with the name of a child.
    pub not_owned: Option<&'a str>,
    /// Words of the API server if it refuses to create or change a child.
    pub refused: Option<&'a str>,
    /// Result of the preflight; None while the loop is not checked.
    pub preflight: Option<&'a Preflight>,
    /// Owners of fields that the preflight has found; None while the loop is not checked.
    pub owners: Option<&'a [SeenOwner]>,
    /// Path of the number of replicas in the target, if a check has found it.
    pub replicas_path: Option<&'a str>,
}

/// Returns the next status of the loop, without `tuning`, which other loops write.
pub fn status(
    case: &AssessmentInput,
    assessment: &Assessment,
    hops: ChildStatuses,
    generation: i64,
) -> ClosedLoopStatus {
    let stamp = Stamp { generation, now: case.now };
    let old = &case.status.conditions;
    let mut conditions = conditions::summary(old, &health(case, assessment, hops), stamp);
    conditions.extend(data(case, hops, stamp));
    conditions.extend(tracking(case, hops, stamp));
    conditions.extend(last_action(case, hops, stamp));
    conditions.extend(proposed(case, hops, stamp));
    conditions.extend(change_undone(case, hops, stamp));
    conditions.extend(hops.preflight.and_then(|preflight| preflight.condition(old, stamp)));
    if let Some(LoopProblem::Conflict(reason, message)) = &assessment.problem {
        conditions.push(conditions::condition(old, "Conflict", "True", reason.as_str(), message, stamp));
    }
    if let Some(message) = &assessment.overlap {
        let reason = LoopReason::TimescaleOverlap;
        conditions.push(conditions::condition(old, "TimescaleOverlap", "True", reason.as_str(), message, stamp));
    }
    if let Some(message) = &assessment.feedback {
        let reason = LoopReason::UtilizationFeedback;
        conditions.push(conditions::condition(old, UTILIZATION_FEEDBACK, "True", reason.as_str(), message, stamp));
    }
    let target = &case.spec.target;
    ClosedLoopStatus {
        observed_generation: Some(generation),
        conditions,
        summary: Some(LoopSummary {
            target: format!("{}/{}", target.kind, target.name),
            decision: hops.decision.and_then(|decision| decision.message.clone()),
            decided_at: hops.decision.and_then(|decision| decision.chosen.as_ref()).map(|chosen| chosen.at.clone()),
            ..last_change(case, hops)
        }),
        effective: Some(assessment.effective.clone()),
        tuning: Vec::new(),
        forecast: None,
        owners: hops.owners.unwrap_or(&case.status.owners).to_vec(),
        replicas_path: replicas_path(case, hops).map(str::to_owned),
    }
}

/// Path of the number of replicas in the target, if it is an unusual one.
fn replicas_path<'a>(case: &AssessmentInput<'a>, hops: ChildStatuses<'a>) -> Option<&'a str> {
    hops.replicas_path.or(case.status.replicas_path.as_deref()).filter(|path| *path != rung::REPLICAS_PATH)
}

/// Returns the raised alarms and the last action, for the columns.
fn last_change(case: &AssessmentInput, hops: ChildStatuses) -> LoopSummary {
    let before = case.status.summary.clone().unwrap_or_default();
    let alarms = hops.monitoring.filter(|monitoring| monitoring.tag.is_some()).map(|monitoring| {
        let words: Vec<String> =
            monitoring.alarms.iter().map(|alarm| format!("{} {}", alarm.side, alarm.metric)).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(",") }
    });
    let change = hops
        .execution
        .zip(hops.decision)
        .and_then(|(execution, decision)| Some((acted::change(execution, decision)?, execution.since.clone())));
    let (action, acted_at) = change.map_or((before.action, before.acted_at), |(text, at)| (Some(text), at));
    LoopSummary { alarms, action, acted_at, ..LoopSummary::default() }
}

fn health(case: &AssessmentInput, assessment: &Assessment, hops: ChildStatuses) -> Health<LoopReason> {
    match &assessment.problem {
        Some(LoopProblem::Spec(reason, message)) => return Health::Stalled(*reason, message.clone()),
        Some(LoopProblem::Passing(message)) => return Health::Retrying(LoopReason::NotParsed, message.clone()),
        Some(LoopProblem::Refused(message)) => return Health::Stalled(LoopReason::NamespaceRefused, message.clone()),
        Some(LoopProblem::NotBound(message)) => {
            return Health::Retrying(LoopReason::NamespaceNotBound, message.clone());
        }
        Some(LoopProblem::Conflict(reason, message)) => return Health::Retrying(*reason, message.clone()),
        None => {}
    }
    if let Some(not_owned) = hops.not_owned {
        return Health::Stalled(LoopReason::NotOwned, not_owned.to_owned());
    }
    if let Some(words) = hops.refused {
        let message = format!(
            "a Monitoring, Decision or Execution of the loop cannot be written, and the operator tries again: {words}"
        );
        return Health::Retrying(LoopReason::ChildRefused, message);
    }
    if case.spec.mode == LoopMode::Paused {
        return Health::Good(LoopReason::Paused, "the loop is paused".into());
    }
    let (Some(monitoring), Some(decision), Some(execution)) = (hops.monitoring, hops.decision, hops.execution) else {
        return Health::working(LoopReason::Starting, "the loop's children are being created".into());
    };
    // The loop has stopped: every further decision on this field fails.
    if execution.state == Some(ExecutionState::Failed) && execution.reason == Some(LoopReason::FieldConflict) {
        return Health::Retrying(LoopReason::FieldConflict, execution.message.clone().unwrap_or_default());
    }
    match hops.preflight {
        Some(Preflight::Passed) => {}
        Some(Preflight::Failed(reason, message)) => return Health::Retrying(*reason, message.clone()),
        Some(Preflight::Pending(Some(why))) => {
            return Health::working(LoopReason::Starting, format!("{CHECKING}: {why}"));
        }
        Some(Preflight::Pending(None)) | None => return Health::working(LoopReason::Starting, CHECKING.into()),
    }
    let of_children = [("Decision", &decision.conditions), ("Execution", &execution.conditions)];
    for (kind, conditions) in of_children {
        // These two are Stalled only while the operator does not act on them.
        if let Some(stalled) = conditions::find(conditions, "Stalled").filter(|stalled| stalled.status == "True") {
            let message = format!("the {kind} of the loop: {}", stalled.message);
            return Health::Retrying(LoopReason::of(&stalled.reason), message);
        }
    }
    match conditions::find(&monitoring.conditions, "Ready") {
        None => Health::working(LoopReason::Starting, "the loop's children are being created".into()),
        // The table of `kubectl get` shows this reason, and so that somebody has to do something.
        Some(ready) if ready.status == "True" => match proposal_message(case, hops) {
            Some(message) => Health::Good(LoopReason::AwaitsApproval, message),
            None => Health::Good(LoopReason::Running, "watches, decides and acts".to_owned()),
        },
        Some(ready) => Health::Retrying(LoopReason::of(&ready.reason), ready.message.clone()),
    }
}

/// Returns the condition about the values: that of the Monitoring. It does not change Ready, since a correct loop
/// without a sample must count as applied.
fn data(case: &AssessmentInput, hops: ChildStatuses, stamp: Stamp) -> Option<Condition> {
    let monitoring = hops.monitoring?;
    let Condition { status, reason, message, .. } = conditions::find(&monitoring.conditions, DATA_AVAILABLE)?;
    let message = match status.as_str() {
        "Unknown" => no_sample_message(case, &monitoring.unknown, message),
        _ => message.clone(),
    };
    Some(conditions::condition(&case.status.conditions, DATA_AVAILABLE, status, reason, &message, stamp))
}

/// Returns the condition about actions on side Target: that of the Monitoring.
fn tracking(case: &AssessmentInput, hops: ChildStatuses, stamp: Stamp) -> Option<Condition> {
    let Condition { status, reason, message, .. } = conditions::find(&hops.monitoring?.conditions, TRACKING)?;
    Some(conditions::condition(&case.status.conditions, TRACKING, status, reason, message, stamp))
}

/// Returns the condition about the end of the last action: that of the Execution. The summary shows what a successful
/// action has done, so that not each action changes a condition.
fn last_action(case: &AssessmentInput, hops: ChildStatuses, stamp: Stamp) -> Option<Condition> {
    let last = conditions::find(&hops.execution?.conditions, LAST_ACTION_SUCCEEDED)?;
    let message = match (last.status.as_str(), LoopReason::of(&last.reason)) {
        ("True", LoopReason::Limited) => {
            "nothing was changed: the target was at its min or max, or there was no replica to move"
        }
        ("True", _) => "the last action was carried out",
        _ => &last.message,
    };
    let (old, kind) = (&case.status.conditions, LAST_ACTION_SUCCEEDED);
    Some(conditions::condition(old, kind, &last.status, &last.reason, message, stamp))
}

/// Returns the condition of a loop whose decision waits for approval.
fn proposed(case: &AssessmentInput, hops: ChildStatuses, stamp: Stamp) -> Option<Condition> {
    let (old, reason) = (&case.status.conditions, LoopReason::AwaitsApproval);
    Some(conditions::condition(old, "Proposed", "True", reason.as_str(), &proposal_message(case, hops)?, stamp))
}

/// Describes the decision that waits for approval, and how to approve it.
fn proposal_message(case: &AssessmentInput, hops: ChildStatuses) -> Option<String> {
    let Proposal { seq, digest, words } =
        proposal::open(hops.decision?, hops.execution, &case.spec.target, case.approval)?;
    Some(format!("decision {seq}: {words}; to approve it: ganglion approve {} {digest}", case.name))
}

/// Returns the condition of a loop whose changes somebody else has undone within the last hour.
fn change_undone(case: &AssessmentInput, hops: ChildStatuses, stamp: Stamp) -> Option<Condition> {
    let fields = undone_fields(&hops.execution?.undone, case.now);
    let until = fields.iter().map(|field| field.until).max()?;
    let texts = fields.iter().map(|UndoneField { dimension, by, row, .. }| {
        format!("{by} undid {row} of {} changes of {dimension} in a row", contest::MAX_REVERTS)
    });
    let message = format!(
        "{}; after {} of one field, the loop stops: configure the client to leave the field alone, or remove this \
         loop's rung. This condition ends at {} unless another change is undone",
        shortened(&texts.collect::<Vec<_>>().join("; ")),
        contest::MAX_REVERTS,
        time_text(until)
    );
    let (old, reason) = (&case.status.conditions, LoopReason::FieldConflict);
    Some(conditions::condition(old, CHANGE_UNDONE, "True", reason.as_str(), &message, stamp))
}

/// Cuts a list of fields, so that the advice behind it is not cut off.
fn shortened(list: &str) -> String {
    let mut chars = list.chars();
    let start: String = chars.by_ref().take(MAX_LIST).collect();
    if chars.next().is_some() { format!("{start}…") } else { start }
}

/// Returns the next time at which the condition about undone changes names one field less, or ends.
pub fn undone_until(execution: Option<&ExecutionStatus>, now: Timestamp) -> Option<Timestamp> {
    undone_fields(&execution?.undone, now).into_iter().map(|field| field.until).min()
}

/// Returns why there is no value yet, and how to push a sample if one is awaited. Reasons of sources are always shown.
fn no_sample_message(case: &AssessmentInput, unknown: &[UnknownMetric], message: &str) -> String {
    let awaits = |metric: &Metric| {
        let mut unknown = unknown.iter().filter(|unknown| unknown.metric == metric.name);
        unknown.all(|unknown| unknown.message == NOT_YET)
    };
    let key = |metric: &Metric| {
        let push = metric.source.push.as_ref().filter(|_| awaits(metric))?;
        Some(format!("{}=NUMBER", push.key.as_deref().unwrap_or(&metric.name)))
    };
    let keys: Vec<String> = case.spec.metrics.iter().filter_map(key).collect();
    let push = format!("ganglion push {} {}", case.name, keys.join(" "));
    match keys.as_slice() {
        [] => message.to_owned(),
        _ if case.spec.metrics.iter().all(awaits) => format!("waiting for the first sample: {push}"),
        _ => format!("{message}; to send a sample: {push}"),
    }
}

/// Difference that users see: everything except the last decision and times is written at once.
pub fn status_change(old: &ClosedLoopStatus, new: &ClosedLoopStatus) -> StatusChange {
    if !same_edges(old, new) {
        StatusChange::Edge
    } else if old.summary != new.summary {
        StatusChange::Details
    } else {
        StatusChange::None
    }
}

/// Whether two statuses are equal except for the last decision and times.
fn same_edges(old: &ClosedLoopStatus, new: &ClosedLoopStatus) -> bool {
    let messages = |status: &ClosedLoopStatus| -> Vec<String> {
        status.conditions.iter().map(|condition| condition.message.clone()).collect()
    };
    // The first decision is an edge; later ones are not.
    let summary = |status: &ClosedLoopStatus| {
        status.summary.as_ref().map(|summary| (summary.target.clone(), summary.decision.is_some()))
    };
    conditions::alike(&old.conditions, &new.conditions)
        && messages(old) == messages(new)
        && old.effective == new.effective
        && old.owners == new.owners
        && old.replicas_path == new.replicas_path
        && old.observed_generation == new.observed_generation
        && summary(old) == summary(new)
}

impl Assessment {
    /// Whether missing children are created.
    pub fn creates_children(&self) -> bool {
        !matches!(self.problem, Some(LoopProblem::Refused(_)))
    }

    /// Whether children of this name can be created: the name must fit into a label.
    pub fn can_have_children(&self, name: &str) -> bool {
        name.len() <= MAX_NAME
    }
}
