//! Explains a loop for a terminal: its last decisions and their reasons, its state, and what its user can do.
//!
//! Reads the loop and its children only. Decides nothing and sends no requests.

mod advice;
mod subject;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use crate::common::{CHANGE_UNDONE, LAST_ACTION_SUCCEEDED, TRACKING, UTILIZATION_FEEDBACK};
use crate::decision::{Executor, met_since, settlement};
pub use crate::proposal::Proposal;
use crate::tuning::effective_policy::declared_rank;
pub use advice::proposal;
use ganglion_api::closed_loop::metric::{Metric, Side};
use ganglion_api::closed_loop::when::When;
use ganglion_api::decision::{Decision, Entry, LimitState, Outcome, Repetitions};
use ganglion_api::execution::ExecutionState;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus, Reading, RefusedSamples};
use ganglion_core::conditions::DATA_AVAILABLE;
use ganglion_core::layout::{clock, paragraph, table};
use ganglion_core::names;
pub use subject::ExplainedLoop;

/// Returns the explanation. Lines have at most 120 columns, except for long names and commands.
pub fn explain(subject: &ExplainedLoop) -> String {
    let settled = settled_decision(subject);
    let subject = &ExplainedLoop { decision: settled.as_ref(), ..*subject };
    let mut text = head(subject);
    text.push('\n');
    text.push_str(&history(subject));
    text.push('\n');
    text.push_str(&last_sample(subject));
    text.push_str(&limits(subject));
    text.push('\n');
    text.push_str(&now(subject));
    for advice::Advice { words, command } in advice::advice(subject) {
        text.push_str(&paragraph("-> ", &words));
        // Commands are not wrapped, so that they can be copied.
        text.extend(command.map(|command| format!("     {command}\n")));
    }
    text
}

fn head(subject: &ExplainedLoop) -> String {
    let (parent, spec) = (subject.parent, &subject.parent.spec);
    let mut text = paragraph(
        "",
        &format!(
            "Loop {} in namespace {} acts on {}/{} as service account {}. Mode: {}.",
            parent.name_any(),
            parent.namespace().unwrap_or_default(),
            spec.target.kind,
            spec.target.name,
            spec.service_account_name.as_deref().unwrap_or(names::DEFAULT_ACCOUNT),
            spec.mode.as_str(),
        ),
    );
    let declared = declared_rank(spec);
    let effective = parent.status.as_ref().and_then(|status| status.effective.as_ref());
    let rank = effective.map_or(&declared, |effective| &effective.rank);
    let mut order = format!("Rank of its metrics: {}.", rank.join(", "));
    if *rank != declared {
        order.push_str(&format!(" Its spec says {}.", declared.join(", ")));
    }
    text.push_str(&paragraph("", &order));
    for threshold in effective.iter().flat_map(|effective| &effective.thresholds) {
        text.push_str(&paragraph("", &format!("Level {} is tuned to {}.", threshold.path, threshold.value.as_str())));
    }
    let until = effective.and_then(|effective| effective.until.as_ref());
    let until = until.map(|until| format!(", until {}", clock(until.0))).unwrap_or_default();
    for tuning in parent.status.iter().flat_map(|status| &status.tuning) {
        let words = tuning.message.as_deref().unwrap_or("tuned");
        let listed = spec.tunable.as_ref().is_some_and(|tunable| tunable.by.contains(&tuning.by));
        let effect = if listed { &until } else { ", not in effect: it is not in tunable.by" };
        text.push_str(&paragraph("", &format!("Loop {} at {}: {words}{effect}.", tuning.by, clock(tuning.at.0))));
    }
    text
}

/// Formats the history of decisions, the newest last.
fn history(subject: &ExplainedLoop) -> String {
    let history = subject.decided().map(|decided| decided.history.as_slice()).unwrap_or_default();
    if history.is_empty() {
        return paragraph("", "No decision yet.");
    }
    let rows = history.iter().map(|entry| row(subject, entry)).collect();
    table(["DECIDED (UTC)", "NO", "ALARM", "VALUE", "LEVEL", "ACTION", "OUTCOME", "EFFECT"], rows)
}

fn row(subject: &ExplainedLoop, entry: &Entry) -> [String; 8] {
    let level = entry.when.one().and_then(|alarm| level(subject.metrics(), &alarm.metric, alarm.side));
    [
        clock(entry.at.0),
        entry.seq.to_string(),
        entry.when.to_string(),
        entry.value.as_ref().map_or("-", |value| value.as_str()).to_owned(),
        level.unwrap_or_else(|| "-".to_owned()),
        entry.action.clone(),
        entry.outcome.map_or_else(|| waiting(subject, entry.seq), |outcome| outcome_words(outcome, entry)),
        entry.effect.as_deref().unwrap_or_default().replace("->", "→"),
    ]
}

fn outcome_words(outcome: Outcome, entry: &Entry) -> String {
    let word = outcome.reason().as_str();
    let repeated = entry.repeated.as_ref();
    repeated.map_or_else(
        || word.to_owned(),
        |Repetitions { times, since }| format!("{word} ({times} times since {})", clock(since.0)),
    )
}

/// Returns the Decision with the outcome of the last decision, which so far may be only in the Execution.
fn settled_decision(subject: &ExplainedLoop) -> Option<Decision> {
    let mut decision = subject.decision?.clone();
    let executor = subject.execution.and_then(Executor::from_execution);
    decision.status = decision.status.map(|status| settlement::with_outcome(&status, executor, subject.now));
    Some(decision)
}

/// Describes the state of a decision without an outcome.
fn waiting(subject: &ExplainedLoop, seq: i64) -> String {
    if proposal(subject).is_some_and(|proposal| proposal.seq == seq) {
        "proposed".to_owned()
    } else {
        "in progress".to_owned()
    }
}

/// Returns the effective level of an alarm, such as `under 5`.
fn level(metrics: &[Metric], name: &str, side: Side) -> Option<String> {
    let metric = metrics.iter().find(|metric| metric.name == name)?;
    match side {
        Side::Low => metric.low.as_ref().map(|level| format!("under {}", level.raise.as_str())),
        Side::High => metric.high.as_ref().map(|level| format!("over {}", level.raise.as_str())),
        Side::Equal => metric.equal.as_ref().map(|equal| format!("is {}", equal.to.as_str())),
        Side::Missing => Some("missing".to_owned()),
        Side::Target => Some("not the number of its target".to_owned()),
    }
}

/// Describes the result of each stage for the last sample.
fn last_sample(subject: &ExplainedLoop) -> String {
    let Some(watched) = subject.watched().filter(|watched| watched.tag.is_some()) else {
        return paragraph("", "No sample has been received yet.");
    };
    let (time, number) = watched.tag.as_ref().map(|tag| (clock(tag.time.0), tag.sequence)).unwrap_or_default();
    let values: Vec<String> = watched.values.iter().map(|value| value_words(subject.metrics(), value)).collect();
    let mut text = paragraph("", &format!("The last sample that changed the status (number {number}, {time}):"));
    let mut line = |name: &str, words: &str| text.push_str(&paragraph(&format!("  {name:<12} "), words));
    line("values", &if values.is_empty() { "none".to_owned() } else { values.join(", ") });
    for metric in subject.metrics() {
        if let Some(formula) = &metric.source.formula {
            line("formula", &format!("{} = {}", metric.name, formula.expression));
        }
    }
    for unknown in &watched.unknown {
        line("unknown", &format!("{}, since {}: {}", unknown.metric, clock(unknown.since.0), unknown.message));
    }
    for (name, words) in tracking(watched) {
        line(&name, &words);
    }
    line("alarms", &alarms(subject, &watched.alarms));
    let actions = subject.parent.spec.actions.iter().flatten();
    for when in actions.map(|action| &action.when).filter(|when| when.one().is_none()) {
        line("combined", &combined(when, watched));
    }
    for pending in &watched.pending {
        let since = clock(pending.since.0);
        line("not yet", &format!("{} {}: pending since {since}", pending.side, pending.metric));
    }
    if let Some(newer) = newer(subject, watched) {
        line("newer", &newer);
    }
    if let Some(refused) = watched.refused.as_ref().and_then(refused) {
        line("refused", &refused);
    }
    if let Some(decided) = subject.decided() {
        line("decision", decided.message.as_deref().unwrap_or("none yet"));
        for passed in &decided.rejected {
            let words = format!("{}: {} ({})", passed.when, passed.message, passed.reason.as_str());
            line("rejected", &words);
        }
    }
    if let Some(executed) = subject.executed().filter(|executed| executed.state != Some(ExecutionState::Idle)) {
        let (seq, words) = (executed.seq.unwrap_or(0), executed.message.as_deref().unwrap_or("nothing yet"));
        let state = executed.state.map_or("", ExecutionState::as_str);
        line("last action", &format!("number {seq}: {words} ({state})"));
    }
    text
}

/// The value of a metric, with its period if it is that of several samples: `queue 12 (mean over 5m)`.
fn value_words(metrics: &[Metric], value: &Reading) -> String {
    let metric = metrics.iter().find(|metric| metric.name == value.metric);
    let period = metric.and_then(|metric| metric.over.as_ref());
    let period = period.map(|over| format!(" ({} over {})", over.function.as_str(), over.window.as_str()));
    format!("{} {}{}", value.metric, value.value.as_str(), period.unwrap_or_default())
}

/// Explains the number of replicas that the actions on side Target ask for: one line for each stage.
fn tracking(watched: &MonitoringStatus) -> Vec<(String, String)> {
    let Some(state) = &watched.tracking else { return Vec::new() };
    let problem = state.problem.iter().map(|why| ("replicas".to_owned(), format!("unknown: {why}")));
    let read = ("replicas".to_owned(), format!("{} at {}", state.replicas, clock(state.at.0)));
    let stages = state.lines.iter().filter_map(|line| line.split_once(": "));
    let stages = stages.map(|(stage, words)| (stage.to_owned(), words.to_owned()));
    std::iter::once(read).filter(|_| !state.lines.is_empty()).chain(stages).chain(problem).collect()
}

fn alarms(subject: &ExplainedLoop, alarms: &[AlarmState]) -> String {
    let words = |alarm: &AlarmState| {
        let level = level(subject.metrics(), &alarm.metric, alarm.side).unwrap_or_default();
        let doubt = if alarm.held || alarm.unknown { ", value unknown now" } else { "" };
        format!("{} {} ({level} since {}{doubt})", alarm.side, alarm.metric, clock(alarm.since.0))
    };
    if alarms.is_empty() { "none".to_owned() } else { alarms.iter().map(words).collect::<Vec<_>>().join(", ") }
}

/// Describes whether a combination of alarms is met, and since when, or what is missing.
fn combined(when: &When, watched: &MonitoringStatus) -> String {
    match met_since(when, watched) {
        Ok(since) => format!("{when}: met since {}", clock(since)),
        Err(why) => format!("{when}: not met: {why}"),
    }
}

/// Describes a newer pushed sample that is not in the status.
fn newer(subject: &ExplainedLoop, watched: &MonitoringStatus) -> Option<String> {
    let sample = subject.monitoring?.spec.sample.as_ref()?;
    let seen = watched.tag.as_ref().map(|tag| tag.time.0);
    let values: Vec<String> = sample.values.iter().map(|(key, value)| format!("{key} {value}")).collect();
    (sample.time.parse::<Timestamp>().ok() != seen)
        .then(|| format!("the sample of {} changed nothing: {}", sample.time, values.join(", ")))
}

/// Describes the number of refused samples by reason.
fn refused(refused: &RefusedSamples) -> Option<String> {
    let counts = [
        (refused.out_of_order, "older than the sample before"),
        (refused.repeated, "with the time of the sample before"),
        (refused.from_future, "from the future"),
        (refused.unreadable, "without a valid time"),
    ];
    let words: Vec<String> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}")).collect();
    (!words.is_empty()).then(|| format!("{} (since the loop was created)", words.join(", ")))
}

/// Describes the limits that block the loop now.
fn limits(subject: &ExplainedLoop) -> String {
    let Some(limits) = subject.decided().and_then(|decided| decided.limits.as_ref()) else { return String::new() };
    let LimitState { dwell_until, budget_left, damped_until, frozen_until } = limits;
    let ahead = |time: &Option<_>, words: &str| {
        let time: &k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime = time.as_ref()?;
        (time.0 > subject.now).then(|| format!("{words} {}", clock(time.0)))
    };
    let words: Vec<String> = [
        ahead(dwell_until, "no action before"),
        ahead(frozen_until, "oscillation: no action before"),
        ahead(damped_until, "oscillation: capacity is not lowered before"),
        budget_left.map(|left| format!("{left} actions are left in the budget")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if words.is_empty() { String::new() } else { paragraph("  limits       ", &words.join("; ")) }
}

/// Describes the state of the loop.
fn now(subject: &ExplainedLoop) -> String {
    let Some(ready) = subject.condition("Ready") else {
        return paragraph("", "Now: the operator has not reconciled this loop yet.");
    };
    let state = match ready.status.as_str() {
        "True" => "it works",
        "Unknown" => "it is starting",
        _ => "it does not work",
    };
    let since = clock(ready.last_transition_time.0);
    let mut text = paragraph("", &format!("Now: {state}, since {since} ({}): {}.", ready.reason, ready.message));
    let troubles = [
        ("Conflict", true),
        ("TimescaleOverlap", true),
        (UTILIZATION_FEEDBACK, true),
        (CHANGE_UNDONE, true),
        (DATA_AVAILABLE, false),
        (TRACKING, false),
        (LAST_ACTION_SUCCEEDED, false),
    ];
    for (kind, bad) in troubles {
        let is_bad = |condition: &&Condition| (condition.status == "True") == bad;
        let found = subject.condition(kind).filter(is_bad);
        if let Some(condition) = found.filter(|condition| condition.message != ready.message) {
            text.push_str(&paragraph("", &format!("{kind} is {}: {}.", condition.status, condition.message)));
        }
    }
    text
}
