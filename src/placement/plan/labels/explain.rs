//! Explains how labels placed a pod: the terms by which its scheduler reads them, and the labels of the nodes when it
//! was scheduled and now.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use super::LabelValue;
use super::application::{LABELS_APPLIED, is_default};
use super::history::{LabelEntry, LabelHistory, PastLabel};
use super::key;
use super::report::LABELS_CURRENT;
use super::terms::LabelTerms;
use crate::placed_pod::PlacedPod;
use ganglion_api::marks;
use ganglion_api::placement_policy::{PlacementPolicy, PolicyDelivery, PolicyMode};
use ganglion_core::facts::NodeFact;
use ganglion_core::layout::{clock, paragraph, table};
use ganglion_core::world::World;

/// Label of a namespace whose pods get terms, and its value, as in the binding of the component placement-labels.
pub const NAMESPACE_LABEL: (&str, &str) = ("ganglion.dev/placement", "labels");

/// The objects that decide about the pod.
#[derive(Clone, Debug)]
pub struct LabelSubject<'a> {
    pub pod: &'a Pod,
    /// Name of the policy; it may no longer exist.
    pub name: &'a str,
    pub policy: Option<&'a PlacementPolicy>,
    /// Whether its spec is valid.
    pub is_valid: bool,
    /// Terms that the profile of the pod's scheduler adds, or the reason why they are not known.
    pub added: Result<Vec<LabelTerms>, String>,
    /// Whether the namespace takes part; None if it was not read.
    pub takes_part: Option<bool>,
}

/// Labels by which a pod was placed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelExplanation {
    /// State of the labels of the policy.
    pub policy: String,
    /// Terms in the spec of the pod.
    pub terms: Vec<LabelTerms>,
    /// Reason why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_terms: Option<String>,
    pub scheduler: String,
    /// Terms that the profile of the scheduler adds.
    pub added_terms: Vec<LabelTerms>,
    /// Reason why they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_unknown: Option<String>,
    /// Time of the condition PodScheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The labels that the terms read, and that of the policy.
    pub labels: Vec<ExplainedLabel>,
}

/// A label on all nodes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedLabel {
    pub key: String,
    /// The node of the pod, and the others by label, the best first.
    pub nodes: Vec<LabeledNode>,
}

/// The label of a node, then and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabeledNode {
    pub name: String,
    /// Label when the pod was scheduled; None if it was not, or if the label is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then_written: Option<Timestamp>,
    /// Present label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// Time at which the operator wrote the present label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now_written: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Explains the labels; None if neither the policy nor the pod has to do with labels.
pub fn explain(world: &World, subject: &LabelSubject<'_>) -> Option<LabelExplanation> {
    let terms = LabelTerms::of_pod(subject.pod);
    let added_terms = subject.added.clone().unwrap_or_default();
    let is_delivered = subject.policy.is_some_and(|policy| policy.spec.is_delivered_by(PolicyDelivery::Labels));
    if !is_delivered && terms.is_empty() && added_terms.is_empty() {
        return None;
    }
    let mut keys: BTreeSet<String> = terms.iter().chain(&added_terms).map(|terms| terms.key.clone()).collect();
    keys.extend(is_delivered.then(|| key(subject.name)));
    let placed = PlacedPod::from(subject.pod);
    let node = subject.pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let scheduled = node.as_ref().and_then(|_| scheduled(subject.pod));
    let label = |key: String| {
        let nodes = world.nodes().map(|fact| LabeledNode::new(fact, &key, scheduled, node.as_deref()));
        let mut nodes: Vec<LabeledNode> = nodes.collect();
        nodes.sort_by_key(|one| {
            let level = one.then.as_ref().or(one.now.as_ref()).and_then(|text| text.parse::<u8>().ok());
            (node.as_ref() != Some(&one.name), Reverse(level), one.name.clone())
        });
        ExplainedLabel { key, nodes }
    };
    let labels = keys.into_iter().map(label).collect();
    Some(LabelExplanation {
        policy: subject.state(),
        no_terms: terms.is_empty().then(|| subject.no_terms(&placed)),
        terms,
        scheduler: placed.scheduler,
        added_terms,
        added_unknown: subject.added.as_ref().err().cloned(),
        scheduled,
        node,
        labels,
    })
}

/// Time at which a pod was scheduled.
fn scheduled(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let mut scheduled = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "True");
    Some(scheduled.next()?.last_transition_time.as_ref()?.0)
}

impl LabelSubject<'_> {
    /// State of the labels of the policy.
    fn state(&self) -> String {
        let Some(policy) = self.policy else {
            return format!(
                "there is no PlacementPolicy {}: it was deleted or has another name now, so the operator removes its labels, \
                 and terms that read them prefer no node",
                self.name
            );
        };
        let valid_until = policy.status.as_ref().and_then(|status| status.valid_until.as_ref()).map(|time| time.0);
        if !policy.spec.is_delivered_by(PolicyDelivery::Labels) {
            "its delivery is not Labels, so the operator removes its labels".to_owned()
        } else if policy.spec.mode == PolicyMode::Shadow {
            "mode: Shadow, so the operator removes its labels".to_owned()
        } else if !self.is_valid {
            let until = valid_until.map(|until| format!(", valid until {}", clock(until))).unwrap_or_default();
            format!("its spec is invalid, so its labels stay as they are{until}")
        } else if let Some(until) = valid_until {
            format!("its labels are valid until {}", clock(until))
        } else {
            let said = self.condition(LABELS_CURRENT).map(|(_, message)| format!(": {message}")).unwrap_or_default();
            format!("its labels are not valid yet{said}")
        }
    }

    /// Status and message of a condition of the policy.
    fn condition(&self, kind: &str) -> Option<(&str, &str)> {
        let conditions = &self.policy?.status.as_ref()?.conditions;
        let found = conditions.iter().find(|condition| condition.type_ == kind)?;
        Some((&found.status, &found.message))
    }

    /// Reason why the spec of the pod has no terms, as far as the present objects show it.
    fn no_terms(&self, pod: &PlacedPod) -> String {
        let Some(created) = self.pod.metadata.creation_timestamp.as_ref().map(|time| time.0) else {
            return "the API server adds terms when a pod is created".to_owned();
        };
        let Some(policy) = self.policy else { return "a policy that does not exist adds none".to_owned() };
        if let Some(why) = self.excluded(policy, pod) {
            return why;
        }
        match policy.status.as_ref().and_then(|status| status.valid_until.as_ref()) {
            None => return "the policy has no valid labels".to_owned(),
            Some(until) if created > until.0 => {
                return format!("created {}, after validUntil {}: no terms", clock(created), clock(until.0));
            }
            Some(_) => {}
        }
        match self.condition(LABELS_APPLIED) {
            Some((status, message)) if status != "True" => return message.to_owned(),
            _ if self.takes_part == Some(false) => {
                let (label, value) = NAMESPACE_LABEL;
                return format!("namespace {} does not have the label {label}={value}", pod.key.namespace);
            }
            _ => {}
        }
        format!(
            "it is not known why: labels, policy or namespace may have been others when the pod was created ({})",
            clock(created)
        )
    }

    /// Reason why the policy adds no terms to this pod, whenever it is created.
    fn excluded(&self, policy: &PlacementPolicy, pod: &PlacedPod) -> Option<String> {
        let named = pod.labels.get(marks::POD_POLICY);
        if let Some(other) = named.filter(|named| *named != self.name) {
            return Some(format!("the pod names policy {other} (label {})", marks::POD_POLICY));
        }
        if named.is_none() && !is_default(policy.metadata.labels.as_ref()) {
            return Some(format!(
                "the pod names no policy (label {}), and {} is not the default one (label {})",
                marks::POD_POLICY,
                self.name,
                marks::DEFAULT_POLICY
            ));
        }
        if pod.controller.as_ref().is_some_and(|owner| owner.kind == "DaemonSet") {
            return Some("pods of DaemonSets have a node each".to_owned());
        }
        if pod.labels.contains_key(marks::ROLE) {
            return Some("an action chooses the node of its replacement".to_owned());
        }
        let is_named = policy.spec.schedulers().any(|scheduler| scheduler == pod.scheduler);
        (!is_named).then(|| format!("the policy does not name scheduler {} (schedulerNames)", pod.scheduler))
    }
}

impl LabeledNode {
    fn new(node: &NodeFact, key: &str, scheduled: Option<Timestamp>, of_pod: Option<&str>) -> Self {
        let name = node.id.key.name.clone();
        let history = LabelHistory::of(node, key);
        let present = node.labels.get(key);
        let mut notes = Vec::new();
        if of_pod == Some(name.as_str()) {
            notes.push("the pod is here".to_owned());
        }
        let then = scheduled.and_then(|moment| then(node, &history, moment, &mut notes));
        let parsed = present.and_then(|text| LabelValue::parse(text));
        let newest = history.newest();
        let is_ours = newest.is_some_and(|newest| parsed == Some(newest.value));
        if let Some(newest) = newest.filter(|_| !is_ours) {
            let verb = if present.is_some() { "changed" } else { "removed" };
            let LabelEntry { value, written } = newest;
            notes.push(format!("somebody else {verb} the label: the operator wrote {value} at {}", clock(written)));
        }
        Self {
            name,
            then: then.map(|entry| entry.value.to_string()),
            then_written: then.map(|entry| entry.written),
            now: present.cloned(),
            now_written: newest.filter(|_| is_ours).map(|entry| entry.written),
            notes,
        }
    }

    fn row(&self, is_scheduled: bool) -> Vec<String> {
        let written = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), clock);
        let mut row = vec![self.name.clone()];
        if is_scheduled {
            row.extend([self.then.clone().unwrap_or_else(|| "?".to_owned()), written(self.then_written)]);
        }
        row.extend([self.now.clone().unwrap_or_else(|| "-".to_owned()), written(self.now_written)]);
        row.push(self.notes.join("; "));
        row
    }
}

/// Label of a node when the pod was scheduled; a note if it is not known.
fn then(node: &NodeFact, history: &LabelHistory, moment: Timestamp, notes: &mut Vec<String>) -> Option<LabelEntry> {
    if node.created > moment {
        notes.push(format!("created {}, after the pod was scheduled", clock(node.created)));
        return None;
    }
    match history.at(moment) {
        PastLabel::Known(entry) => {
            // Both times are in whole seconds.
            if entry.written == moment {
                let before = history.before(entry).map(|before| format!("; before, it was {}", before.value));
                notes.push(format!("written in the second of the scheduling{}", before.unwrap_or_default()));
            }
            if let Some(restored) = history.restored(entry) {
                notes.push(format!("somebody else changed the label, which was restored at {}", clock(restored)));
            }
            Some(entry)
        }
        PastLabel::Dropped(oldest) => {
            notes.push(format!("then is not known, the history begins at {}", clock(oldest)));
            None
        }
        PastLabel::Before(first) => {
            notes.push(format!("then is not known, the first record is of {}", clock(first)));
            None
        }
        PastLabel::NoHistory => {
            notes.push("then is not known, the label has no history".to_owned());
            None
        }
    }
}

impl LabelExplanation {
    /// Adds the reasons for the worst label of a policy, by node, as notes on the nodes that have it now.
    pub fn add_worst(&mut self, policy: &str, reasons: &BTreeMap<String, String>) {
        let of_policy = self.labels.iter_mut().filter(|label| label.key == key(policy));
        for node in of_policy.flat_map(|label| &mut label.nodes) {
            let present = node.now.as_deref().and_then(LabelValue::parse);
            let is_worst = matches!(present, Some(LabelValue::Level(0) | LabelValue::Rejected));
            node.notes.extend(reasons.get(&node.name).filter(|_| is_worst).cloned());
        }
    }

    /// Text for a terminal.
    pub fn text(&self) -> String {
        let texts = |terms: &[LabelTerms]| terms.iter().map(LabelTerms::text).collect::<Vec<_>>().join("; ");
        let mut text = "Delivery by labels:\n".to_owned();
        text.push_str(&paragraph("  policy     ", &self.policy));
        let own = self.no_terms.as_ref().map(|why| format!("no terms in its spec: {why}"));
        text.push_str(&paragraph("  pod        ", &own.unwrap_or_else(|| texts(&self.terms))));
        let added = match &self.added_unknown {
            Some(why) => format!("the profile of {} may add terms, which is not known: {why}", self.scheduler),
            None if self.added_terms.is_empty() => format!("the profile of {} adds no terms", self.scheduler),
            None => format!("the profile of {} adds terms: {}", self.scheduler, texts(&self.added_terms)),
        };
        text.push_str(&paragraph("  scheduler  ", &added));
        let scheduled = match (&self.node, self.scheduled) {
            (None, _) => "not yet".to_owned(),
            (Some(node), Some(at)) => format!("{} on {node}", clock(at)),
            (Some(node), None) => format!("on {node}, it is not known when"),
        };
        text.push_str(&paragraph("  scheduled  ", &scheduled));
        for label in &self.labels {
            text.push_str(&format!("\n{}:\n", label.key));
            let mut header = vec!["NODE"];
            header.extend(self.scheduled.iter().flat_map(|_| ["THEN", "WRITTEN"]));
            header.extend(["NOW", "WRITTEN", "NOTE"]);
            let rows = label.nodes.iter().map(|node| node.row(self.scheduled.is_some()));
            text.push_str(&table(header, rows.collect()));
        }
        text
    }
}

#[cfg(test)]
mod tests;
