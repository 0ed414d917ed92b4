//! The specs of a loop's children: Monitoring, Decision and Execution.

use super::proposal::MAX_APPROVAL;
use super::tuning::effective_policy::EffectivePolicy;
use ganglion_api::closed_loop::{ClosedLoopSpec, LoopMode};
use ganglion_api::decision::DecisionSpec;
use ganglion_api::execution::ExecutionSpec;
use ganglion_api::monitoring::MonitoringSpec;

/// Specs of the three children.
#[derive(Clone, Debug, PartialEq)]
pub struct Children {
    /// Without `sample`, which belongs to the sender.
    pub monitoring: MonitoringSpec,
    pub decision: DecisionSpec,
    pub execution: ExecutionSpec,
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
