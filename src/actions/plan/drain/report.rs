//! Reports of a drain: what its plan predicts, and what it has done and left at its end.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::Serialize;

use super::super::explain::{cause, reason_of};
use super::super::preview::{ActionPreview, PreviewOutcome};
use super::action::{is_open, key_of};
use super::plan::WorkloadMove;
use super::progress::{DrainProgress, MoveState, done, is_failed};
use super::{MoveKey, Stay, StayCause};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::duration;
use ganglion_core::facts::{Identity, NodeName};

/// Result of a drain, or of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum DrainOutcome {
    /// Only DaemonSets and static pods are left.
    Empty,
    /// Other pods stay, too.
    Stays,
    /// The time ran out before.
    TimedOut,
}

/// Report at the end of a drain, or of its plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainReport {
    pub nodes: Vec<NodeName>,
    pub outcome: DrainOutcome,
    /// Number of replicas that moved.
    pub moved: usize,
    /// Number of pods that were evicted, and whose successor is not known to serve.
    pub evicted: usize,
    /// The actions, as namespace and name.
    pub actions: Vec<String>,
    /// In a plan: what leaves the nodes, and where it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<PlannedMove>,
    pub stays: Vec<Stay>,
    /// Workloads whose replicas left the nodes, and whose actions have not succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<Stay>,
    /// Pods of the drained workloads that no node has taken yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingPod>,
    /// Duration, such as `2m13s`.
    pub took: String,
}

/// A pod that waits for a node, with the scheduler's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPod {
    pub namespace: String,
    pub name: String,
    /// Kind and name of its controller.
    pub owner: String,
    pub message: String,
}

/// Pods that would leave a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    pub namespace: String,
    /// Kind and name of the workload or pod, such as `Deployment/web`.
    pub what: String,
    pub node: NodeName,
    pub pods: Vec<String>,
    pub how: PlannedHow,
    /// Nodes of the new pods; empty if the scheduler chooses them.
    pub to: BTreeSet<NodeName>,
    /// Reason and message if the move would wait before it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// How pods would leave a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PlannedHow {
    /// Each new pod is Ready before the old one is evicted.
    ReplacementFirst,
    OldPodFirst,
    /// The drain evicts them itself.
    Evicted,
    /// The drain waits until they end by themselves.
    Waited,
    /// They terminate already.
    Terminating,
    /// An action of another drain, or of a user, moves them already.
    InMotion,
}

impl DrainReport {
    /// Sets the outcome according to the pods that stay.
    fn judged(self) -> Self {
        let is_empty = self.stays.iter().all(Stay::is_expected);
        Self { outcome: if is_empty { DrainOutcome::Empty } else { DrainOutcome::Stays }, ..self }
    }
}

impl DrainProgress<'_> {
    /// Pods on the nodes that will not leave; if `timed_out`, all pods that are still there.
    pub fn stays(&self, timed_out: bool) -> Vec<Stay> {
        let moves = self.plan.moves.iter().filter_map(|asked| self.stay(asked, timed_out));
        let evictions = self.plan.evictions.iter().filter_map(|one| self.evictable_stay(one, timed_out));
        let leaving = self.plan.leaving.iter().filter(|one| timed_out || self.is_stuck(one));
        let mut all: Vec<Stay> = moves.chain(evictions).chain(leaving.map(|one| self.stuck_stay(one))).collect();
        all.extend(self.plan.stays.iter().cloned());
        all.sort_by_key(Stay::is_expected);
        all
    }

    fn stay(&self, asked: &WorkloadMove, timed_out: bool) -> Option<Stay> {
        let stay = |cause| stay_of(asked, cause);
        let state = self.state(asked);
        if self.wishes.disruption && self.is_left_alone(&state) {
            return self.unevicted(stay(StayCause::NotYet), &asked.pods.iter().collect::<Vec<_>>(), timed_out);
        }
        let otherwise = || {
            let command = self.command(&["--disruption"]);
            format!("To evict its pods, which are then gone before new ones come: {command}")
        };
        Some(match &state {
            MoveState::Open(_) | MoveState::ToDo => return timed_out.then(|| self.late(asked, &state)),
            MoveState::NeedsDisruption => Stay {
                message: asked.why(),
                advice: Some(self.disrupt_words(asked)),
                ..stay(StayCause::NeedsDisruption)
            },
            MoveState::NotSelected => {
                let (all, other) = (asked.pods.len(), asked.unselected);
                let message = format!("{other} of its {all} pods on the node do not have the labels of --pod-selector");
                Stay { message, advice: Some("Select all its pods, or none.".into()), ..stay(StayCause::NotSelected) }
            }
            MoveState::Refused(words) => {
                Stay { message: (*words).to_owned(), advice: Some(otherwise()), ..stay(StayCause::Refused) }
            }
            MoveState::Ended(_) if self.is_left_alone(&state) => {
                let ended = ended_words(&state);
                Stay { advice: Some(otherwise()), ..with_words(stay(StayCause::NotMoved), ended) }
            }
            MoveState::Ended(action) => {
                let Identity { key, .. } = (&action.metadata).into();
                let reason = action.status.as_ref().and_then(cause).map(|condition| condition.reason.as_str());
                let own = reason.filter(|_| is_failed(action)).and_then(advice_for);
                let advice = own.unwrap_or_else(|| {
                    let again = self.command(&[]);
                    format!("See kubectl ganglion explain wa {} -n {}. To try again: {again}", key.name, key.namespace)
                });
                Stay { advice: Some(advice), ..with_words(stay(StayCause::NotMoved), ended_words(&state)) }
            }
        })
    }

    fn disrupt_words(&self, asked: &WorkloadMove) -> String {
        let how =
            if asked.disrupts() { "the old pod then goes before the new one comes" } else { "its data are then lost" };
        format!("To move it, too ({how}): {}", self.command(&["--disruption"]))
    }

    /// Replicas whose action has not ended when the time is over.
    fn late(&self, asked: &WorkloadMove, state: &MoveState) -> Stay {
        let stay = stay_of(asked, StayCause::NotYet);
        let (words, advice) = match state {
            MoveState::Open(action) => (Some(self.words_of(action)), "Its action goes on. To wait for it"),
            _ => (None, "To go on"),
        };
        let words = words.unwrap_or_else(|| (None, "its turn has not come".to_owned()));
        Stay { advice: Some(format!("{advice}: {}", self.command(&[]))), ..with_words(stay, words) }
    }

    /// Reason and message of an action, or why it has none.
    pub(super) fn words_of(&self, action: &WorkloadAction) -> (Option<String>, String) {
        match (action.status.as_ref().and_then(cause), self.operator) {
            (Some(condition), _) => (Some(condition.reason.clone()), condition.message.clone()),
            (None, Some(words)) => (None, words.to_owned()),
            (None, None) => (None, "the operator has not seen its action yet".to_owned()),
        }
    }

    /// Actions that have not succeeded although no replica is left on their node.
    fn incomplete(&self) -> Vec<Stay> {
        let gone = |key: &MoveKey| self.plan.moves.iter().all(|asked| asked.key() != *key);
        let mut all = Vec::new();
        for action in self.actions.iter().filter(|action| is_open(action) || is_failed(action)) {
            let Some(key) = key_of(action).filter(gone) else { continue };
            let advice = is_open(action).then(|| format!("Its action goes on. To wait for it: {}", self.command(&[])));
            let stay = Stay {
                what: format!("{}/{}", key.kind, key.name),
                namespace: key.namespace,
                node: key.node,
                pods: 0,
                cause: StayCause::Incomplete,
                reason: None,
                message: String::new(),
                advice,
            };
            all.push(with_words(stay, self.words_of(action)));
        }
        all
    }

    /// Report at the end of the drain. If `timed_out`, pods that are not gone yet count as staying, too.
    pub fn report(&self, timed_out: bool, took: SignedDuration) -> DrainReport {
        let name = |action: &WorkloadAction| Identity::from(&action.metadata).key.to_string();
        let report = DrainReport {
            nodes: self.nodes.to_vec(),
            outcome: DrainOutcome::Empty,
            moved: self.actions.iter().map(done).sum(),
            evicted: self.evicted(),
            actions: self.actions.iter().map(name).collect(),
            leaves: Vec::new(),
            stays: self.stays(timed_out),
            incomplete: self.incomplete(),
            pending: Vec::new(),
            took: duration::show(took),
        };
        if timed_out { DrainReport { outcome: DrainOutcome::TimedOut, ..report } } else { report.judged() }
    }

    /// Report of the plan. `previews` are the operator's own plans, as far as they are known.
    pub fn planned(&self, previews: &BTreeMap<MoveKey, ActionPreview>) -> DrainReport {
        let report = self.report(false, SignedDuration::ZERO);
        let would_end = |of: &&WorkloadMove| {
            let ends =
                |preview: &ActionPreview| matches!(preview.outcome, PreviewOutcome::Ends | PreviewOutcome::Refused);
            let (state, preview) = (self.state(of), previews.get(&of.key()));
            matches!(state, MoveState::ToDo) && preview.is_some_and(ends) && !self.would_evict(&state, preview)
        };
        let stay = |of: &WorkloadMove| {
            let preview = previews.get(&of.key());
            let reason = preview.and_then(|preview| preview.reason.clone());
            let own = reason.as_deref().and_then(advice_for);
            let advice = own.unwrap_or_else(|| "Remove the cause that the message names, then drain.".to_owned());
            Stay {
                advice: Some(advice),
                reason,
                message: preview.and_then(|preview| preview.message.clone()).unwrap_or_default(),
                ..stay_of(of, StayCause::NotMoved)
            }
        };
        let stays: Vec<Stay> =
            self.plan.moves.iter().filter(would_end).map(stay).chain(report.stays.iter().cloned()).collect();
        DrainReport { leaves: self.leaves(previews), stays, ..report }.judged()
    }

    /// Pods that would leave the nodes.
    fn leaves(&self, previews: &BTreeMap<MoveKey, ActionPreview>) -> Vec<PlannedMove> {
        let mut all = Vec::new();
        for of in &self.plan.moves {
            let (state, preview) = (self.state(of), previews.get(&of.key()));
            let is_evicted = self.would_evict(&state, preview);
            if !is_evicted && !matches!(state, MoveState::ToDo | MoveState::Open(_)) {
                continue;
            }
            let waits = match preview.map(|preview| preview.outcome) {
                _ if is_evicted => None,
                Some(PreviewOutcome::Ends | PreviewOutcome::Refused | PreviewOutcome::Nothing) => continue,
                Some(PreviewOutcome::Waits) => preview.map(ActionPreview::why),
                Some(PreviewOutcome::Starts) | None => None,
            };
            let replicas = preview.and_then(|preview| preview.plan.as_ref()).map(|plan| plan.replicas.as_slice());
            all.push(PlannedMove {
                namespace: of.namespace.clone(),
                what: of.words(),
                node: of.node.clone(),
                pods: of.pods.iter().map(|pod| pod.key.name.clone()).collect(),
                how: match (is_evicted, of.disrupts()) {
                    (true, _) => PlannedHow::Evicted,
                    (false, true) => PlannedHow::OldPodFirst,
                    (false, false) => PlannedHow::ReplacementFirst,
                },
                to: replicas.unwrap_or_default().iter().filter_map(|replica| replica.to.clone()).collect(),
                waits,
            });
        }
        for one in &self.plan.evictions {
            match one.missing(self.wishes).is_empty() {
                true => all.push(planned_pod(&one.stay, &one.pod, PlannedHow::Evicted)),
                false if one.is_waited_for(self.wishes) => {
                    all.push(planned_pod(&one.stay, &one.pod, PlannedHow::Waited));
                }
                false => {}
            }
        }
        for one in self.plan.leaving.iter().filter(|one| !self.is_stuck(one)) {
            let how = if one.termination.is_some() { PlannedHow::Terminating } else { PlannedHow::InMotion };
            all.push(planned_pod(&one.stay, &one.pod, how));
        }
        all
    }
}

fn planned_pod(Stay { namespace, what, node, .. }: &Stay, pod: &Identity, how: PlannedHow) -> PlannedMove {
    PlannedMove {
        namespace: namespace.clone(),
        what: what.clone(),
        node: node.clone(),
        pods: vec![pod.key.name.clone()],
        how,
        to: BTreeSet::new(),
        waits: None,
    }
}

/// Advice for a reason; None if it only helps people who create actions themselves.
fn advice_for(reason: &str) -> Option<String> {
    let words = reason_of(reason).advice();
    let is_for_actions = ["new action", "spec.", "status."].iter().any(|part| words.contains(part));
    (!is_for_actions).then(|| words.to_owned())
}

fn ended_words(state: &MoveState) -> (Option<String>, String) {
    let MoveState::Ended(action) = state else { return (None, String::new()) };
    let condition = action.status.as_ref().and_then(cause);
    (
        condition.map(|condition| reason_of(&condition.reason).to_string()),
        condition.map(|condition| condition.message.clone()).unwrap_or_default(),
    )
}

fn with_words(stay: Stay, (reason, message): (Option<String>, String)) -> Stay {
    Stay { reason, message, ..stay }
}

fn stay_of(asked: &WorkloadMove, cause: StayCause) -> Stay {
    Stay {
        namespace: asked.namespace.clone(),
        what: asked.words(),
        node: asked.node.clone(),
        pods: asked.pods.len(),
        cause,
        reason: None,
        message: String::new(),
        advice: None,
    }
}
