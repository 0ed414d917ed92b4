//! The replies of the extender, in the form of the scheduler's Go structs.
//!
//! A filter reply has the form of its request: names for names, and the original JSON text for full nodes. Each name
//! occurs once in a reply, even if the request repeats it, since an object must not have a key twice, and the scheduler
//! adds up the scores of a repeated host. Must not decide about a node.
//!
//! Every rejection is unresolvable. The scheduler preempts pods only where its own plugins then find room, and does not
//! ask the filters of extenders again; so preemption never cures the rejection of a node.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::request::CandidateNodes;
use ganglion_placement_plan::preempted::PreemptionNode;
use ganglion_placement_plan::question::NodeRejection;

/// Maximum score of an extender. The scheduler does not enforce it.
pub const MAX_SCORE: u8 = 10;

/// Bytes of a reply besides names, nodes and reasons, rounded up.
const FRAME: usize = 256;

/// Bytes around a name or a reason: quotes, a comma, or key and value of a score.
const AROUND: usize = 24;

/// `ExtenderFilterResult`, without JSON tags in Go: all keys are always present.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterResult<'r> {
    nodes: Option<NodeListBody<'r>>,
    node_names: Option<Vec<&'r str>>,
    failed_nodes: Option<Reasons<'r>>,
    failed_and_unresolvable_nodes: Option<Reasons<'r>>,
    error: &'r str,
}

/// A `NodeList`, which has JSON tags.
#[derive(Serialize)]
struct NodeListBody<'r> {
    metadata: ListMeta,
    items: Vec<&'r RawValue>,
}

/// Always empty.
#[derive(Serialize)]
struct ListMeta {}

/// Reasons by node name; the names are distinct.
#[derive(Default)]
struct Reasons<'r>(Vec<(&'r str, &'r str)>);

impl Serialize for Reasons<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// An entry of `HostPriorityList`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostPriority<'r> {
    host: &'r str,
    score: u8,
}

/// `ExtenderPreemptionResult`, without JSON tags in Go.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PreemptionResult<'r> {
    node_name_to_meta_victims: HashMap<&'r str, MetaVictims<'r>, RandomState>,
}

/// Pods to preempt on a node.
#[derive(Serialize)]
struct MetaVictims<'r> {
    #[serde(rename = "Pods")]
    pods: Vec<MetaPod<'r>>,
    #[serde(rename = "NumPDBViolations")]
    violations: i64,
}

#[derive(Serialize)]
struct MetaPod<'r> {
    #[serde(rename = "UID")]
    uid: &'r str,
}

/// Encodes the reply to a filter request. `rejections` has one element per candidate, in their order; None for a node
/// that passes. A candidate without an element passes. If a name occurs more than once, its first rejection counts.
pub fn filter_reply(candidates: &CandidateNodes<'_>, rejections: &[Option<NodeRejection>]) -> Vec<u8> {
    let outcomes = outcomes(candidates, rejections);
    let mut capacity = FRAME;
    let mut result = FilterResult::default();
    let mut unresolvable = Reasons::default();
    for outcome in &outcomes {
        if let Some(NodeRejection(reason)) = outcome.rejected {
            unresolvable.0.push((outcome.name, reason));
            capacity = capacity.saturating_add(outcome.name.len() + reason.len() + AROUND);
        }
    }
    let fitting = outcomes.iter().filter(|outcome| outcome.rejected.is_none());
    match candidates {
        CandidateNodes::Names(_) => {
            let names: Vec<_> = fitting.map(|outcome| outcome.name).collect();
            capacity = names.iter().fold(capacity, |sum, name| sum.saturating_add(name.len() + AROUND));
            result.node_names = Some(names);
        }
        CandidateNodes::Nodes(nodes) => {
            let items: Vec<_> = fitting.filter_map(|outcome| Some(nodes.get(outcome.at)?.raw)).collect();
            capacity = items.iter().fold(capacity, |sum, raw| sum.saturating_add(raw.get().len() + 1));
            result.nodes = Some(NodeListBody { metadata: ListMeta {}, items });
        }
    }
    result.failed_nodes = Some(Reasons::default());
    result.failed_and_unresolvable_nodes = Some(unresolvable);
    written(&result, capacity)
}

/// Encodes the reply to a prioritize request. `scores` has one element per candidate, in their order. A score above
/// [`MAX_SCORE`] is lowered to it, and a missing score counts as 0. If a name occurs more than once, its first score
/// counts.
pub fn prioritize_reply(candidates: &CandidateNodes<'_>, scores: &[u8]) -> Vec<u8> {
    let mut capacity = FRAME;
    let outcomes = outcomes(candidates, &[]);
    let hosts = outcomes.iter().map(|outcome| {
        capacity = capacity.saturating_add(outcome.name.len() + AROUND);
        let score = scores.get(outcome.at).copied().unwrap_or_default();
        HostPriority { host: outcome.name, score: score.min(MAX_SCORE) }
    });
    let hosts: Vec<_> = hosts.collect();
    written(&hosts, capacity)
}

/// Encodes the reply to a preemption request: the nodes for which `is_kept` is true, with their pods. Nodes without
/// pods are left out, since the scheduler takes such a node for an error.
pub fn preemption_reply(nodes: &[PreemptionNode<'_>], is_kept: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut capacity = FRAME;
    let kept = nodes.iter().enumerate().filter(|(at, node)| is_kept(*at) && !node.uids.is_empty());
    let kept = kept.map(|(_, node)| {
        let uids = node.uids.iter().map(|uid| uid.len() + AROUND).sum::<usize>();
        capacity = capacity.saturating_add(node.name.len() + uids + FRAME);
        let pods = node.uids.iter().map(|uid| MetaPod { uid }).collect();
        (&*node.name, MetaVictims { pods, violations: node.violations })
    });
    let node_name_to_meta_victims = kept.collect();
    written(&PreemptionResult { node_name_to_meta_victims }, capacity)
}

/// Result for a name.
struct NamedResult<'r> {
    name: &'r str,
    /// Index of the first candidate with this name.
    at: usize,
    /// None: the node passes.
    rejected: Option<&'r NodeRejection>,
}

/// Distinct names with their first rejection, in the order of the request.
fn outcomes<'r>(candidates: &'r CandidateNodes<'_>, rejections: &'r [Option<NodeRejection>]) -> Vec<NamedResult<'r>> {
    let mut outcomes: Vec<NamedResult<'r>> = Vec::with_capacity(candidates.len());
    let mut known: HashMap<&str, usize, RandomState> =
        HashMap::with_capacity_and_hasher(candidates.len(), RandomState::default());
    for (at, name) in candidates.names().enumerate() {
        let rejected = rejections.get(at).and_then(Option::as_ref);
        match known.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(outcomes.len());
                outcomes.push(NamedResult { name, at, rejected });
            }
            Entry::Occupied(entry) => {
                if let Some(earlier) = outcomes.get_mut(*entry.get()) {
                    earlier.rejected = earlier.rejected.or(rejected);
                }
            }
        }
    }
    outcomes
}

/// Encodes a reply as JSON. Names, reasons and raw JSON can always be encoded; if they could not, the reply would be
/// empty, which the scheduler handles as a failed call.
fn written(answer: &impl Serialize, capacity: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(capacity);
    if serde_json::to_writer(&mut text, answer).is_err() {
        text.clear();
    }
    text
}
