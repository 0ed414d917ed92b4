//! Status of a template, derived from the last plan and the conditions of its NodeConfigs.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::parsed::Rejection;
use super::plan::TemplatePlan;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplateStatus};
use ganglion_core::conditions::{self, Health, Stamp};

/// Counts of the template's NodeConfigs by state. NodeConfigs that are not up to date are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    ready: usize,
    suspended: usize,
    /// Without a value yet.
    waiting: usize,
    failing: usize,
    /// First NodeConfig that fails: name and reason.
    first: Option<(String, String)>,
}

/// Counts the NodeConfigs of a template by their conditions.
pub fn tally<'a>(configs: impl Iterator<Item = &'a Arc<NodeConfig>>, plan: &TemplatePlan) -> Tally {
    let mut tally = Tally::default();
    for config in configs.filter(|config| !plan.outdated.contains(&config.name_any())) {
        let status = config.status.as_ref();
        let is_current = status.and_then(|status| status.observed_generation) == config.metadata.generation;
        let ready = status.filter(|_| is_current).and_then(|status| ready(&status.conditions));
        match ready.map(|ready| (ready.status.as_str(), ready.reason.as_str())) {
            Some(("True", _)) => tally.ready += 1,
            Some((_, reason)) if reason == NodeReason::Suspended.as_str() => tally.suspended += 1,
            Some(("False", reason)) => {
                tally.failing += 1;
                tally.first.get_or_insert_with(|| (config.name_any(), reason.to_owned()));
            }
            Some(_) | None => tally.waiting += 1,
        }
    }
    tally
}

fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Health of a template. `failure` is the name of the error that ended the last write.
pub fn health(plan: &TemplatePlan, tally: &Tally, failure: Option<&str>) -> Health<NodeReason> {
    let TemplatePlan { nodes, current, left_out, .. } = plan;
    let progress = || format!("{current} of {nodes} NodeConfigs are up to date");
    if let Some(problem) = &plan.invalid {
        return Health::Stalled(NodeReason::TemplateInvalid, format!("{problem}; existing NodeConfigs are unchanged"));
    }
    if let Some(failure) = failure {
        let message = format!("{}; the API server rejected a write: {failure}", progress());
        return Health::Retrying(NodeReason::Applying, message);
    }
    if !plan.is_settled() {
        return Health::working(NodeReason::Applying, progress());
    }
    if let Some(first) = left_out.listed.first() {
        let message = format!("{} of {nodes} nodes left out; {}: {}", left_out.count, first.node, first.message);
        return match left_out.taken {
            0 => Health::Retrying(NodeReason::NodesLeftOut, message),
            _ => Health::Stalled(NodeReason::NotOwned, message),
        };
    }
    if current < nodes || !plan.outdated.is_empty() {
        return Health::working(NodeReason::Applying, progress());
    }
    of_configs(plan, tally)
}

/// Health of a template whose NodeConfigs are all up to date.
fn of_configs(plan: &TemplatePlan, tally: &Tally) -> Health<NodeReason> {
    let nodes = plan.nodes;
    if nodes == 0 {
        return Health::Good(NodeReason::NoNodes, "the selector matches no node".to_owned());
    }
    if let Some((name, reason)) = &tally.first {
        let message = format!("{} of {nodes} NodeConfigs are not Ready; {name}: {reason}", tally.failing);
        return Health::Retrying(NodeReason::NodeConfigsNotReady, message);
    }
    if tally.waiting > 0 {
        let message = format!("{} of {nodes} NodeConfigs have no values yet", tally.waiting);
        return Health::working(NodeReason::Waiting, message);
    }
    if tally.suspended > 0 {
        let message = format!("{} of {nodes} NodeConfigs are suspended", tally.suspended);
        return Health::Suspended(NodeReason::Suspended, message);
    }
    Health::Good(NodeReason::Applied, format!("{nodes} NodeConfigs are Ready"))
}

/// Status of a template.
pub fn status(
    old: &NodeConfigTemplateStatus,
    (plan, tally): (&TemplatePlan, &Tally),
    health: &Health<NodeReason>,
    stamp: Stamp,
) -> NodeConfigTemplateStatus {
    let number = |count: usize| i64::try_from(count).ok();
    let known = plan.invalid.is_none();
    NodeConfigTemplateStatus {
        observed_generation: Some(stamp.generation),
        conditions: conditions::summary(&old.conditions, health, stamp),
        nodes: number(plan.nodes),
        current: number(plan.current).filter(|_| known),
        fresh: number(tally.ready).filter(|_| known),
        preview: plan.preview.clone(),
        left_out: plan.left_out.listed.clone(),
    }
}

/// Status of a template that is rejected as a whole.
pub fn rejected_status(
    old: &NodeConfigTemplateStatus,
    rejection: &Rejection,
    stamp: Stamp,
) -> NodeConfigTemplateStatus {
    let health = Health::Stalled(rejection.reason, rejection.message.clone());
    NodeConfigTemplateStatus {
        observed_generation: Some(stamp.generation),
        conditions: conditions::summary(&old.conditions, &health, stamp),
        ..NodeConfigTemplateStatus::default()
    }
}
