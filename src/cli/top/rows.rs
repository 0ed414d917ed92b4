//! Rows of the table: state, reason and progress of an object in a few words.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::facts::{TopDetail, TopId, TopObject, TopReading};
use super::kinds::TopKind;
use super::trend::TopLevels;
use ganglion_core::layout;
use ganglion_core::words::counted;

/// Severity of a state, the worst first. It selects the color and the order by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopTone {
    Bad,
    Waits,
    Busy,
    Good,
    Plain,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    pub id: TopId,
    pub created: Option<Timestamp>,
    pub state: String,
    pub tone: TopTone,
    pub reason: String,
    pub progress: String,
    pub message: String,
    /// Metric of the sparkline, and its levels.
    pub metric: Option<(String, TopLevels)>,
}

impl TopRow {
    /// The row of an object, with the children of a loop.
    pub fn of(object: &TopObject, objects: &BTreeMap<TopId, TopObject>) -> Self {
        let child = |kind| objects.get(&object.id.as_kind(kind));
        let (state, tone) = state(object);
        let ready = object.condition("Ready");
        let cause = cause(object);
        let metric = child(TopKind::Monitoring).and_then(main_metric);
        Self {
            id: object.id.clone(),
            created: object.created,
            state: state.to_owned(),
            tone,
            reason: cause.or(ready).map(|condition| condition.reason.clone()).unwrap_or_default(),
            progress: progress(object, [TopKind::Monitoring, TopKind::Execution].map(child)),
            message: cause.or(ready).map(|condition| condition.message.clone()).unwrap_or_default(),
            metric: metric.filter(|_| object.id.kind == TopKind::Loop),
        }
    }

    /// Age as kubectl shows it.
    pub fn age(&self, now: Timestamp) -> String {
        self.created.map(|created| layout::age(created, now)).unwrap_or_default()
    }

    /// Whether the row contains all words of the filter, in any case of letters.
    pub fn matches(&self, filter: &str) -> bool {
        let id = &self.id;
        let texts = [&id.namespace, &id.name, &self.state, &self.reason, &self.progress, &self.message];
        let all = texts.map(|text| text.to_lowercase()).join(" ") + " " + &id.kind.kind().to_lowercase();
        filter.to_lowercase().split_whitespace().all(|word| all.contains(word))
    }
}

/// The condition that says most: a proposal, or the reason why an object is not further.
fn cause(object: &TopObject) -> Option<&super::facts::TopCondition> {
    let is_true = |kind: &str| object.condition(kind).filter(|condition| condition.status == "True");
    is_true("Proposed").or_else(|| {
        let ready = object.condition("Ready")?;
        is_true("Reconciling").filter(|_| ready.status == "Unknown")
    })
}

fn state(object: &TopObject) -> (&'static str, TopTone) {
    let status = |kind: &str| object.condition(kind).map_or("", |condition| condition.status.as_str());
    if object.is_deleting {
        return ("Deleting", TopTone::Waits);
    }
    if status("Stalled") == "True" {
        return ("Stalled", TopTone::Bad);
    }
    if let TopDetail::Loop { mode, .. } = &object.detail
        && mode == "Paused"
    {
        return ("Paused", TopTone::Waits);
    }
    let is_ready = status("Ready") == "True";
    let is_over = is_ready && object.id.kind == TopKind::Action;
    if object.is_suspended && !is_over {
        return ("Suspended", TopTone::Waits);
    }
    if status("Proposed") == "True" {
        return ("Proposal", TopTone::Waits);
    }
    match (status("Ready"), status("DataAvailable")) {
        ("True", "False") => ("NoData", TopTone::Bad),
        ("True", _) if is_over => ("Done", TopTone::Good),
        ("True", _) => ("Ready", TopTone::Good),
        ("False", _) => ("NotReady", TopTone::Bad),
        ("", _) => ("Unseen", TopTone::Plain),
        _ => ("Working", TopTone::Busy),
    }
}

fn progress(object: &TopObject, [monitoring, execution]: [Option<&TopObject>; 2]) -> String {
    match &object.detail {
        TopDetail::Action { application: Some(words), .. } => words.clone(),
        TopDetail::Action { steps, done, application: None, .. } => slots(steps, done.as_deref()),
        TopDetail::Loop { alarms, .. } => loop_progress(alarms.as_deref(), monitoring, execution),
        TopDetail::Pool { workers, jobs, converged, states } => {
            let mut parts = vec![match (converged, workers) {
                (Some(converged), _) => format!("{converged} converged"),
                (None, Some(workers)) => counted(*workers, "worker"),
                (None, None) => String::new(),
            }];
            parts.extend(jobs.map(|jobs| counted(jobs, "job")));
            let others = states.iter().filter(|state| *state != "Converged");
            parts.extend(tally(others).into_iter().map(|(state, count)| format!("{count} {state}")));
            parts.retain(|part| !part.is_empty());
            parts.join(", ")
        }
        TopDetail::Node { node, values } => {
            let node = node.as_ref().filter(|node| **node != object.id.name);
            node.into_iter().chain(values).cloned().collect::<Vec<_>>().join(", ")
        }
        TopDetail::Policy { agents, nodes } => {
            let nodes = nodes.map(|nodes| counted(nodes, "node"));
            agents.iter().cloned().chain(nodes).collect::<Vec<_>>().join(", ")
        }
        TopDetail::Monitoring { .. } | TopDetail::Decision { .. } | TopDetail::Execution { .. } => String::new(),
    }
}

/// Completed replicas, and the number of replicas in each other step: `1/3: 1 Readying, 1 Queued`.
fn slots(steps: &[String], done: Option<&str>) -> String {
    if steps.is_empty() {
        return done.unwrap_or_default().to_owned();
    }
    let completed = steps.iter().filter(|step| *step == "Succeeded").count();
    let done = done.map_or_else(|| format!("{completed}/{}", steps.len()), str::to_owned);
    let others = tally(steps.iter().filter(|step| *step != "Succeeded"));
    let others: Vec<String> = others.into_iter().map(|(step, count)| format!("{count} {step}")).collect();
    if others.is_empty() { done } else { format!("{done}: {}", others.join(", ")) }
}

/// Number of each word, in the order in which they first appear.
fn tally<'a>(words: impl Iterator<Item = &'a String>) -> Vec<(&'a str, usize)> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for word in words {
        match counts.iter_mut().find(|(known, _)| known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts
}

/// The values against their levels, the main metric first, and a change in progress.
fn loop_progress(alarms: Option<&str>, monitoring: Option<&TopObject>, execution: Option<&TopObject>) -> String {
    let mut parts = Vec::new();
    if let Some(TopDetail::Execution { state: Some(state), .. }) = execution.map(|execution| &execution.detail)
        && !matches!(state.as_str(), "Idle" | "Done")
    {
        parts.push(state.clone());
    }
    let Some(TopDetail::Monitoring { levels, readings, .. }) = monitoring.map(|monitoring| &monitoring.detail) else {
        parts.extend(alarms.filter(|alarms| *alarms != "none").map(str::to_owned));
        return parts.join(", ");
    };
    let main = monitoring.and_then(main_metric).map(|(metric, _)| metric);
    let (first, others): (Vec<&TopReading>, Vec<&TopReading>) =
        readings.iter().partition(|reading| Some(&reading.metric) == main.as_ref());
    for reading in first.into_iter().chain(others) {
        let level = levels.iter().find(|(metric, _)| *metric == reading.metric).map(|(_, level)| *level);
        parts.push(format!("{} {}{}", reading.metric, reading.value, range(level.unwrap_or_default())));
    }
    parts.join(", ")
}

/// Levels as text: ` (5..80)`, ` (<80)`, ` (>5)`.
fn range(levels: TopLevels) -> String {
    match (levels.low, levels.high) {
        (Some(low), Some(high)) => format!(" ({low}..{high})"),
        (Some(low), None) => format!(" (>{low})"),
        (None, Some(high)) => format!(" (<{high})"),
        (None, None) => String::new(),
    }
}

/// The metric of the first alarm, or else the first metric.
fn main_metric(monitoring: &TopObject) -> Option<(String, TopLevels)> {
    let TopDetail::Monitoring { levels, alarms, .. } = &monitoring.detail else { return None };
    let alarmed = alarms.iter().find_map(|alarm| alarm.split_whitespace().nth(1));
    alarmed.and_then(|name| levels.iter().find(|(metric, _)| metric == name)).or(levels.first()).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::top::testing::{object, place};

    fn row(kind: TopKind, spec: serde_json::Value, status: serde_json::Value) -> TopRow {
        TopRow::of(&object(kind, "web", spec, status), &BTreeMap::new())
    }

    fn ready(status: &str, reason: &str) -> serde_json::Value {
        json!({"type": "Ready", "status": status, "reason": reason, "message": "words"})
    }

    #[test]
    fn an_action_shows_the_steps_of_its_replicas() {
        let steps = ["Succeeded", "Readying", "Queued", "Queued"].map(|step| json!({"step": step}));
        let reconciling = json!({"type": "Reconciling", "status": "True", "reason": "NodeFull", "message": "no room"});
        let status = json!({"slots": steps, "conditions": [ready("Unknown", "Moving"), reconciling]});
        let shown = row(TopKind::Action, json!({}), status);
        assert_eq!(shown.progress, "1/4: 1 Readying, 2 Queued");
        assert_eq!((shown.state.as_str(), shown.reason.as_str()), ("Working", "NodeFull"));
        assert_eq!(shown.message, "no room");
        let over = json!({"summary": {"done": "2/2"}, "conditions": [ready("True", "Succeeded")]});
        let shown = row(TopKind::Action, json!({"suspend": true}), over);
        assert_eq!((shown.state.as_str(), shown.progress.as_str()), ("Done", "2/2"));
    }

    #[test]
    fn states_follow_the_conditions() {
        let stalled = json!({"type": "Stalled", "status": "True"});
        let no_data = json!({"type": "DataAvailable", "status": "False"});
        let proposed = json!({"type": "Proposed", "status": "True", "reason": "AwaitsApproval", "message": "scale"});
        for (kind, spec, conditions, expected) in [
            (TopKind::Loop, json!({}), json!([]), "Unseen"),
            (TopKind::Loop, json!({}), json!([ready("True", "Running")]), "Ready"),
            (TopKind::Loop, json!({"mode": "Paused"}), json!([ready("Unknown", "Paused")]), "Paused"),
            (TopKind::Loop, json!({}), json!([ready("False", "SpecInvalid"), stalled]), "Stalled"),
            (TopKind::Loop, json!({"mode": "Approve"}), json!([ready("True", "Running"), proposed]), "Proposal"),
            (TopKind::Node, json!({}), json!([ready("True", "Polling"), no_data]), "NoData"),
            (TopKind::Pool, json!({"suspend": true}), json!([ready("Unknown", "Suspended")]), "Suspended"),
            (TopKind::Policy, json!({}), json!([ready("False", "Forbidden")]), "NotReady"),
        ] {
            assert_eq!(row(kind, spec, json!({"conditions": conditions})).state, expected);
        }
    }

    #[test]
    fn a_loop_shows_the_values_of_its_monitoring() {
        let metrics = json!([{"name": "cpu", "low": {"raise": "5"}, "high": {"raise": "80"}}, {"name": "mem"}]);
        let values = json!([{"metric": "cpu", "value": "50"}, {"metric": "mem", "value": "2Gi"}]);
        let mut objects = BTreeMap::new();
        let mut monitor = |alarms: serde_json::Value| {
            let status = json!({"values": values, "alarms": alarms});
            place(&mut objects, object(TopKind::Monitoring, "web", json!({"metrics": metrics}), status));
            place(&mut objects, object(TopKind::Execution, "web", json!({}), json!({"state": "Claimed"})));
            TopRow::of(&object(TopKind::Loop, "web", json!({}), json!({})), &objects)
        };
        let shown = monitor(json!([]));
        assert_eq!(shown.progress, "Claimed, cpu 50 (5..80), mem 2Gi");
        assert_eq!(shown.metric.unwrap().0, "cpu");
        let shown = monitor(json!(["High mem since 2026-11-21T10:00:03.000000Z"]));
        assert_eq!(shown.progress, "Claimed, mem 2Gi, cpu 50 (5..80)");
        assert_eq!(shown.metric.unwrap().0, "mem");
    }

    #[test]
    fn pools_nodes_and_policies_count() {
        let workers = json!([{"state": "Converged"}, {"state": "Waiting"}, {"state": "Waiting"}]);
        let pool = json!({"replicas": 3, "jobs": 1, "converged": "1/3", "workers": workers});
        assert_eq!(row(TopKind::Pool, json!({}), pool).progress, "1/3 converged, 1 job, 2 Waiting");
        let node = json!({"power": {"value": "210"}, "inletTemperature": {"value": "23.1"}});
        let shown = row(TopKind::Node, json!({"nodeName": "n1"}), node);
        assert_eq!(shown.progress, "n1, 210 W, inlet 23.1 C");
        let policy = json!({"summary": "power, risk", "nodes": 4});
        assert_eq!(row(TopKind::Policy, json!({}), policy).progress, "power, risk, 4 nodes");
        assert_eq!(row(TopKind::Policy, json!({}), json!({"nodes": "four"})).progress, "");
    }

    #[test]
    fn a_filter_needs_all_words() {
        let shown = row(TopKind::Pool, json!({}), json!({"conditions": [ready("False", "NotReady")]}));
        assert!(shown.matches("") && shown.matches("WEB notready") && shown.matches("swarmpool"));
        assert!(!shown.matches("web other"));
    }
}
