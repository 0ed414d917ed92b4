//! Status of a template: written on changes, at most once a second.

use std::sync::Arc;

use jiff::SignedDuration;
use kube::Resource;

use super::{STATUS, TemplateMemory};
use ganglion_api::node_config::{NodeConfigTemplate, NodeConfigTemplateStatus};
use ganglion_core::conditions::Stamp;
use ganglion_core::facts::Uid;
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};
use ganglion_nodes_plan::template::parsed::Rejection;
use ganglion_nodes_plan::template::plan::TemplatePlan;
use ganglion_nodes_plan::template::state;
use ganglion_nodes_plan::world::NodesWorld;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{ConditionChange, ConditionEvent, condition_events};
use ganglion_runtime::frame::Next;

/// Minimum time between two reports and between two counts of the NodeConfigs, which change with every machine.
const COUNTS: StatusPolicy = StatusPolicy { details_after: SignedDuration::from_secs(1), heartbeat: None };

/// Conditions of a template that have events.
const EVENTS: [ConditionEvent; 1] = [ConditionEvent::warning("Stalled", "True", ConditionChange::Message)];

/// Reports the state of the NodeConfigs. While writes are pending, reports progress only if they take longer than one
/// second.
pub async fn report_plan(
    ctx: &Context,
    template: &Arc<NodeConfigTemplate>,
    plan: &TemplatePlan,
    failure: Option<&str>,
    memory: &mut TemplateMemory,
) -> Result<Next, Error> {
    // Plan again even if the only changes are the answers to the writes.
    let next = if plan.is_settled() { Next::AwaitChange } else { Next::Again };
    let now = ctx.now();
    let since = memory.counted_at.max(memory.busy_since.filter(|_| failure.is_none()));
    if let StatusTiming::At(due) = COUNTS.timing(StatusChange::Details, since, now) {
        return Ok(if plan.is_settled() { Next::At(due) } else { next });
    }
    // The plan only rendered: the number of up-to-date NodeConfigs is still unknown.
    if plan.more && plan.writes.is_empty() {
        return Ok(next);
    }
    memory.counted_at = Some(now);
    let uid = Uid::of(template.meta());
    let tally = ctx.store.read(|world| state::tally(world.node_configs_by(&uid), plan));
    let health = state::health(plan, &tally, failure);
    let old = template.status.clone().unwrap_or_default();
    let status = state::status(&old, (plan, &tally), &health, stamp(ctx, template));
    write_status(ctx, template, &old, &status).await?;
    Ok(next)
}

/// Reports why the template is rejected.
pub async fn report_rejected(
    ctx: &Context,
    template: &Arc<NodeConfigTemplate>,
    rejection: &Rejection,
) -> Result<Next, Error> {
    let old = template.status.clone().unwrap_or_default();
    let status = state::rejected_status(&old, rejection, stamp(ctx, template));
    write_status(ctx, template, &old, &status).await?;
    Ok(Next::AwaitChange)
}

fn stamp(ctx: &Context, template: &NodeConfigTemplate) -> Stamp {
    Stamp { generation: template.metadata.generation.unwrap_or(0), now: ctx.now() }
}

async fn write_status(
    ctx: &Context,
    template: &NodeConfigTemplate,
    old: &NodeConfigTemplateStatus,
    status: &NodeConfigTemplateStatus,
) -> Result<(), Error> {
    if old == status {
        return Ok(());
    }
    let events = condition_events(&EVENTS, &old.conditions, &status.conditions);
    STATUS.write(ctx, template, status, events).await
}
