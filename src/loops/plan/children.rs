//! The specs of a loop's children: Monitoring, Decision and Execution.

use super::proposal::MAX_APPROVAL;
use super::tuning::effective_policy::EffectivePolicy;
use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopSpec, LoopMode};
use ganglion_api::decision::DecisionSpec;
use ganglion_api::execution::ExecutionSpec;
use ganglion_api::marks;
use ganglion_api::monitoring::MonitoringSpec;
use ganglion_core::facts::Uid;
use ganglion_core::owners::is_owned;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

/// Specs of the three children.
#[derive(Clone, Debug, PartialEq)]
pub struct Children {
    /// Without `sample`, which belongs to the sender.
    pub monitoring: MonitoringSpec,
    pub decision: DecisionSpec,
    pub execution: ExecutionSpec,
}

/// Whether the Monitoring's spec is what the loop says, except for the sample, which senders write.
pub fn is_said(spec: &MonitoringSpec, says: &MonitoringSpec) -> bool {
    let MonitoringSpec { metrics, tracking, interval, trace, service_account_name, target, paused, sample: _ } = spec;
    (metrics, interval, trace, paused) == (&says.metrics, &says.interval, &says.trace, &says.paused)
        && tracking == &says.tracking
        && (service_account_name, target) == (&says.service_account_name, &says.target)
}

/// Relation of an object that has the name of a child to the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildStanding {
    /// The loop owns it.
    Owned,
    /// It is the loop's child, and somebody has changed its owner references.
    Damaged,
    /// It belongs to a deleted loop of the same name. The garbage collector deletes it.
    Orphan,
    /// It belongs to somebody else.
    Foreign,
}

/// Determines the relation of an object to the loop. `known`: this process has seen that the loop owns it. Whoever may
/// write a child can change its owner references, but not its uid. After a restart, the label decides.
pub fn standing(child: &ObjectMeta, parent: &ObjectMeta, known: bool) -> ChildStanding {
    let owners = child.owner_references.as_deref().unwrap_or_default();
    let name = parent.name.as_deref().unwrap_or_default();
    let is_of_namesake = |owner: &OwnerReference| owner.kind == ClosedLoop::kind(&()) && owner.name == name;
    if is_owned(child.owner_references.as_ref(), &Uid::of(parent)) {
        return ChildStanding::Owned;
    }
    if known {
        return ChildStanding::Damaged;
    }
    if owners.iter().any(|owner| owner.controller == Some(true) && !is_of_namesake(owner)) {
        return ChildStanding::Foreign;
    }
    if owners.iter().any(is_of_namesake) {
        return ChildStanding::Orphan;
    }
    let is_labeled = child.labels.as_ref().is_some_and(|labels| labels.get(marks::LOOP).is_some_and(|own| own == name));
    if is_labeled { ChildStanding::Damaged } else { ChildStanding::Foreign }
}

/// Computes the specs of the children. `blocked` is the reason why the loop may not act; None if it may. `approval` is
/// the digest that the user approved.
pub fn children(
    spec: &ClosedLoopSpec,
    policy: &EffectivePolicy,
    blocked: Option<String>,
    approval: Option<&str>,
) -> Children {
    let paused = match spec.mode {
        LoopMode::Paused => true,
        LoopMode::Auto | LoopMode::DryRun | LoopMode::Approve => false,
    };
    let mut decides = spec.policy.clone().unwrap_or_default();
    // The complete rank is in `DecisionSpec.rank`.
    decides.rank = None;
    let blocked = blocked.map(|why| why.chars().take(1024).collect::<String>());
    Children {
        monitoring: MonitoringSpec {
            metrics: policy.metrics.clone(),
            tracking: spec.actions.iter().flatten().filter(|one| one.when.is_target()).cloned().collect(),
            interval: Some(spec.interval.clone()),
            trace: spec.trace,
            service_account_name: spec.service_account_name.clone(),
            target: Some(spec.target.clone()),
            paused,
            sample: None,
        },
        decision: DecisionSpec {
            mode: spec.mode,
            trace: spec.trace,
            blocked: blocked.clone(),
            replicas_path: None,
            rank: policy.rank.clone(),
            policy: Some(decides),
            actions: spec.actions.clone().unwrap_or_default(),
        },
        execution: ExecutionSpec {
            target: spec.target.clone(),
            service_account_name: spec.service_account_name.clone(),
            paused,
            blocked,
            approve: approval.filter(|text| (1..=MAX_APPROVAL).contains(&text.len())).map(str::to_owned),
        },
    }
}
