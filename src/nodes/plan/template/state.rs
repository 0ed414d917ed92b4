//! Status of a template, derived from the last plan and the conditions of its NodeConfigs.

use std::sync::Arc;

use kube::ResourceExt;

use super::parsed::Rejection;
use super::plan::TemplatePlan;
use crate::report::NodeDataState;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplateStatus};
use ganglion_core::conditions::{self, DATA_AVAILABLE, Health, Stamp};

/// Counts of the template's NodeConfigs by state. NodeConfigs that are not up to date are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Not observed by their controller yet.
    unobserved: usize,
    /// Not Ready: nobody polls their sources.
    rejected: usize,
    /// First of these: name and reason.
    first_rejected: Option<(String, String)>,
    /// With all values.
    fresh: usize,
    suspended: usize,
    /// Without a value yet.
    waiting: usize,
    /// With unknown or stale values.
    failing: usize,
    /// First of these: name and reason.
    first_failing: Option<(String, String)>,
}

/// Counts the NodeConfigs of a template by their conditions.
pub fn tally<'a>(configs: impl Iterator<Item = &'a Arc<NodeConfig>>, plan: &TemplatePlan) -> Tally {
    let mut tally = Tally::default();
    for config in configs.filter(|config| !plan.outdated.contains(&config.name_any())) {
        let status = config.status.as_ref();
        let is_current = status.and_then(|status| status.observed_generation) == config.metadata.generation;
        let Some(status) = status.filter(|_| is_current) else {
            tally.unobserved += 1;
            continue;
        };
        let first = |reason: &str| (config.name_any(), reason.to_owned());
        if let Some(ready) = conditions::find(&status.conditions, "Ready").filter(|ready| ready.status == "False") {
            tally.rejected += 1;
            tally.first_rejected.get_or_insert_with(|| first(&ready.reason));
        }
        let data = conditions::find(&status.conditions, DATA_AVAILABLE);
        match data.map(|data| (data.status.as_str(), data.reason.as_str())) {
            Some(("True", _)) => tally.fresh += 1,
            Some((_, reason)) if reason == NodeReason::Suspended.as_str() => tally.suspended += 1,
            Some(("False", reason)) => {
                tally.failing += 1;
                tally.first_failing.get_or_insert_with(|| first(reason));
            }
            Some(_) | None => tally.waiting += 1,
        }
    }
    tally
}

/// Health of a template. `failure`: why a write failed, if one did.
pub fn health(plan: &TemplatePlan, tally: &Tally, failure: Option<&str>) -> Health<NodeReason> {
    let TemplatePlan { nodes, current, left_out, .. } = plan;
    let progress = || format!("{current} of {nodes} NodeConfigs are up to date");
    if let Some(problem) = &plan.invalid {
        return Health::Stalled(NodeReason::TemplateInvalid, format!("{problem}; existing NodeConfigs are unchanged"));
    }
    if let Some(failure) = failure {
        let message = format!("{}; a NodeConfig was not written: {failure}", progress());
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

/// Health of a template whose NodeConfigs are all up to date. It does not depend on their values: a template is applied
/// although a machine is off.
fn of_configs(plan: &TemplatePlan, tally: &Tally) -> Health<NodeReason> {
    let nodes = plan.nodes;
    if nodes == 0 {
        return Health::Good(NodeReason::NoNodes, "the selector matches no node".to_owned());
    }
    if let Some((name, reason)) = &tally.first_rejected {
        let message = format!("{} of {nodes} NodeConfigs are not Ready; {name}: {reason}", tally.rejected);
        return Health::Retrying(NodeReason::NodeConfigsNotReady, message);
    }
    if tally.unobserved > 0 {
        let message = format!("{} of {nodes} NodeConfigs are not observed yet", tally.unobserved);
        return Health::working(NodeReason::Waiting, message);
    }
    Health::Good(NodeReason::Applied, format!("{nodes} of {nodes} NodeConfigs are Ready"))
}

/// Whether the NodeConfigs of a template have their values.
pub fn data(plan: &TemplatePlan, tally: &Tally) -> NodeDataState {
    let nodes = plan.nodes;
    let is_applied = plan.is_settled() && plan.current == nodes && plan.outdated.is_empty();
    let missing = tally.unobserved.saturating_add(tally.waiting);
    if let Some((name, reason)) = &tally.first_failing {
        let message = format!("{} of {nodes} NodeConfigs have unknown values; {name}: {reason}", tally.failing);
        return ("False", NodeReason::SomeUnknown, message);
    }
    if nodes == 0 {
        return ("Unknown", NodeReason::NoNodes, "the selector matches no node".to_owned());
    }
    if !is_applied {
        return ("Unknown", NodeReason::Applying, format!("{} of {nodes} NodeConfigs are up to date", plan.current));
    }
    if missing > 0 {
        return ("Unknown", NodeReason::Waiting, format!("{missing} of {nodes} NodeConfigs have no values yet"));
    }
    if tally.suspended > 0 {
        let message = format!("{} of {nodes} NodeConfigs are suspended", tally.suspended);
        return ("Unknown", NodeReason::Suspended, message);
    }
    ("True", NodeReason::Sampled, format!("{nodes} of {nodes} NodeConfigs have all their values"))
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
    let mut conditions = conditions::summary(&old.conditions, health, stamp);
    let (data, reason, message) = data(plan, tally);
    conditions.push(conditions::condition(&old.conditions, DATA_AVAILABLE, data, reason.as_str(), &message, stamp));
    NodeConfigTemplateStatus {
        observed_generation: Some(stamp.generation),
        conditions,
        nodes: number(plan.nodes),
        current: number(plan.current).filter(|_| known),
        fresh: number(tally.fresh).filter(|_| known),
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
