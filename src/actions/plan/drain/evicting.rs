//! The drain's own evictions: which are due, and why pods are still there.

use super::super::explain::{cause, reason_of};
use super::super::hindrance::Hindrance;
use super::super::preview::{ActionPreview, PreviewOutcome};
use super::evictions::{LastEviction, OwnEviction};
use super::progress::{DrainProgress, MoveState, slots};
use super::{DrainWishes, LeavingPod, Stay, StayCause};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Slot;
use ganglion_core::facts::Identity;

/// Whether an action that ended for this reason, before it did anything, would end so again.
fn leaves_alone(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NamespaceRefused
            | Reason::NotSupported
            | Reason::Forbidden
            | Reason::AdmissionPolicyMissing
            | Reason::DefinitionOutdated
            | Reason::RolloutStuck
            | Reason::NoDetachLabel
            // The workload was deleted, or the pod's controller is unknown to the operator.
            | Reason::WorkloadNotFound
    )
}

impl<'a> DrainProgress<'a> {
    /// Pods that the drain evicts now.
    pub fn next_evictions(&self) -> Vec<&'a Identity> {
        let mut pods: Vec<&Identity> = self.evictable().filter(|pod| self.refusal(pod).is_none()).collect();
        if let Some(most) = self.wishes.parallel {
            pods.truncate(most.saturating_sub(self.moving() + self.plan.leaving.len()));
        }
        pods
    }

    /// Pods that the drain evicts itself, those included whose eviction was refused.
    pub(super) fn evictable(&self) -> impl Iterator<Item = &'a Identity> {
        let own = self.plan.evictions.iter().filter(|one| one.missing(self.wishes).is_empty()).map(|one| &one.pod);
        let left = self.plan.moves.iter().filter(|of| self.wishes.disruption && self.is_left_alone(&self.state(of)));
        own.chain(left.flat_map(|of| &of.pods))
    }

    /// Whether nothing was done for the workload, and nothing will be: the API server refused the action, or the
    /// operator does not work in its namespace or on its kind.
    pub(super) fn is_left_alone(&self, state: &MoveState) -> bool {
        match state {
            MoveState::Refused(_) => true,
            MoveState::Ended(action) => {
                let reason = action.status.as_ref().and_then(cause).map(|condition| reason_of(&condition.reason));
                reason.is_some_and(leaves_alone) && slots(action).is_empty()
            }
            MoveState::Open(_) | MoveState::NeedsDisruption | MoveState::NotSelected | MoveState::ToDo => false,
        }
    }

    /// Whether the drain would evict the pods of the workload itself. `preview` is the plan of its action.
    pub(super) fn would_evict(&self, state: &MoveState, preview: Option<&ActionPreview>) -> bool {
        let is_refused = |preview: &ActionPreview| match preview.outcome {
            PreviewOutcome::Refused => true,
            PreviewOutcome::Ends => preview.reason.as_deref().map(reason_of).is_some_and(leaves_alone),
            PreviewOutcome::Starts | PreviewOutcome::Nothing | PreviewOutcome::Waits => false,
        };
        let is_tried_in_vain = || matches!(state, MoveState::ToDo) && preview.is_some_and(is_refused);
        self.wishes.disruption && (self.is_left_alone(state) || is_tried_in_vain())
    }

    pub(super) fn refusal(&self, pod: &Identity) -> Option<&'a str> {
        match self.evictions.get(&pod.uid) {
            Some(LastEviction::Refused(words)) => Some(words),
            Some(LastEviction::Accepted | LastEviction::Gone | LastEviction::Blocked(_)) | None => None,
        }
    }

    /// Message of the budget that does not allow the eviction of the pod.
    pub(super) fn block(&self, pod: &Identity) -> Option<&'a str> {
        match self.evictions.get(&pod.uid) {
            Some(LastEviction::Blocked(words)) => Some(words),
            Some(LastEviction::Accepted | LastEviction::Gone | LastEviction::Refused(_)) | None => None,
        }
    }

    /// Whether the drain no longer waits for a pod that terminates.
    pub(super) fn is_stuck(&self, leaving: &LeavingPod) -> bool {
        let is_victim = |slot: &Slot| {
            let name = slot.victim.as_ref().map(|victim| victim.name.as_str());
            slot.reason == Some(Reason::VictimStuck) && name == Some(leaving.pod.key.name.as_str())
        };
        let namespace = Some(leaving.pod.key.namespace.as_str());
        let own = self.actions.iter().filter(|action| action.metadata.namespace.as_deref() == namespace);
        leaving.termination.is_some()
            && (own.flat_map(slots).any(is_victim) || self.terminations.is_overdue(leaving, self.now))
    }

    /// Pods that the drain evicts itself and that are on the nodes for a known reason.
    pub(super) fn evictable_stay(&self, one: &OwnEviction, timed_out: bool) -> Option<Stay> {
        let missing = one.missing(self.wishes);
        if (one.is_waited_for(self.wishes) && !timed_out) || (one.finished && !missing.is_empty()) {
            return None;
        }
        if !missing.is_empty() {
            let losses: Vec<String> = one.losses.iter().map(Hindrance::to_string).collect();
            let message = [std::slice::from_ref(&one.stay.message), &losses].concat().join(", and ");
            let flags: Vec<&str> = missing.iter().map(|option| option.flag()).collect();
            let advice = format!("To evict it, too: {}", self.command(&flags));
            return Some(Stay { message, advice: Some(advice), ..one.stay.clone() });
        }
        self.unevicted(one.stay.clone(), &[&one.pod], timed_out)
    }

    /// Why these pods, which the drain evicts itself, are still there: the words of a refusal or, if the time is over,
    /// those of a budget. None if they may still leave.
    pub(super) fn unevicted(&self, stay: Stay, pods: &[&Identity], timed_out: bool) -> Option<Stay> {
        let refused = pods.iter().find_map(|pod| self.refusal(pod));
        let blocked = pods.iter().find_map(|pod| self.block(pod));
        let (why, message, advice) = match (refused, blocked) {
            (Some(words), _) => {
                let advice = "Remove the cause that the message names, then drain again.";
                (StayCause::Refused, words, advice.to_owned())
            }
            (None, _) if !timed_out => return None,
            (None, words) => {
                let advice = format!("To go on with its eviction: {}", self.command(&[]));
                (StayCause::NotYet, words.unwrap_or("its turn has not come"), advice)
            }
        };
        Some(Stay { cause: why, reason: None, message: message.to_owned(), advice: Some(advice), ..stay })
    }

    /// A pod that terminates and does not end, or has not ended when the time is over.
    pub(super) fn stuck_stay(&self, leaving: &LeavingPod) -> Stay {
        let (stay, Some(termination)) = (&leaving.stay, &leaving.termination) else {
            let advice = format!("To wait for it: {}", self.command(&[]));
            return Stay { advice: Some(advice), ..leaving.stay.clone() };
        };
        let why = if self.is_stuck(leaving) { StayCause::Stuck } else { StayCause::NotYet };
        let name = &leaving.pod.key;
        let (holder, advice) = match termination.finalizers.as_slice() {
            [] => (
                format!("the kubelet of node {} has not ended it", stay.node),
                format!("Check the kubelet: kubectl describe node {}", stay.node),
            ),
            all => (
                format!("finalizers hold it: {}", all.join(", ")),
                format!(
                    "Check who removes the finalizers: kubectl get pod {} -n {} -o yaml",
                    name.name, name.namespace
                ),
            ),
        };
        Stay { cause: why, message: format!("it was deleted, and {holder}"), advice: Some(advice), ..stay.clone() }
    }

    /// The command that drains the same pods, with these further options.
    pub fn command(&self, more: &[&str]) -> String {
        let DrainWishes { disruption, force, evict_jobs, leave_jobs, pod_selector, parallel, grace_seconds } =
            self.wishes;
        let mut words = vec!["kubectl ganglion drain".to_owned()];
        words.extend(self.nodes.iter().map(ToString::to_string));
        let set = [
            (*disruption, "--disruption"),
            (*force, "--force"),
            (*evict_jobs, "--evict-jobs"),
            (*leave_jobs && !more.contains(&"--evict-jobs"), "--leave-jobs"),
        ];
        words.extend(set.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
        words.extend(pod_selector.iter().map(|labels| format!("--pod-selector='{labels}'")));
        words.extend(parallel.iter().map(|most| format!("--parallel={most}")));
        words.extend(grace_seconds.iter().map(|seconds| format!("--grace-period={seconds}")));
        words.extend(more.iter().map(|flag| (*flag).to_owned()));
        words.join(" ")
    }

    /// Number of pods that left the nodes by an eviction and are not counted as moved.
    pub(super) fn evicted(&self) -> usize {
        let own = self.evictions.values().filter(|answer| **answer == LastEviction::Accepted).count();
        own + self.actions.iter().flat_map(slots).filter(|slot| self.is_evicted(slot)).count()
    }
}
