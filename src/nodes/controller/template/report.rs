//! Status of a template: written on changes, at most once a second.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Resource;

use super::Memory;
use ganglion_api::marks;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::template::{NodeConfigTemplate, NodeConfigTemplateStatus};
use ganglion_core::conditions::Stamp;
use ganglion_core::world::Fact;
use ganglion_nodes_plan::template::state;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{EventText, reference};

/// Minimum time between two reports and between two counts of the NodeConfigs, which change with every machine.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Reports the state of the NodeConfigs. Returns the due time if the report is postponed. While writes are pending,
/// reports progress only if they take longer than one second.
pub async fn write(
    ctx: &Context,
    template: &Arc<NodeConfigTemplate>,
    memory: &mut Memory,
    failure: Option<&str>,
) -> Result<Option<Timestamp>, Error> {
    let Some((_, plan)) = &memory.plan else { return Ok(None) };
    let now = ctx.now();
    let since = memory.counted_at.max(memory.busy_since.filter(|_| failure.is_none()));
    if let Some(due) = since.and_then(|since| since.checked_add(PAUSE).ok()).filter(|due| *due > now) {
        return Ok(Some(due));
    }
    // The pass only rendered: the number of up-to-date NodeConfigs is still unknown.
    if plan.more && plan.writes.is_empty() {
        return Ok(None);
    }
    memory.counted_at = Some(now);
    let uid = template.meta().uid.as_deref().unwrap_or_default();
    let tally = ctx.store.read(|world| state::tally(world.node_configs_by(uid), plan));
    let health = state::health(plan, &tally, failure);
    let old = template.status.clone().unwrap_or_default();
    let status = state::status(&old, (plan, &tally), &health, stamp(ctx, template));
    record(ctx, template, &old, &status).await.map(|()| None)
}

/// Reports why the template is rejected.
pub async fn refuse(
    ctx: &Context,
    template: &Arc<NodeConfigTemplate>,
    reason: NodeReason,
    message: String,
) -> Result<Option<Timestamp>, Error> {
    let old = template.status.clone().unwrap_or_default();
    let status = state::refused(&old, reason, message, stamp(ctx, template));
    record(ctx, template, &old, &status).await.map(|()| None)
}

fn stamp(ctx: &Context, template: &NodeConfigTemplate) -> Stamp {
    Stamp { generation: template.metadata.generation.unwrap_or(0), now: ctx.now() }
}

async fn record(
    ctx: &Context,
    template: &Arc<NodeConfigTemplate>,
    old: &NodeConfigTemplateStatus,
    status: &NodeConfigTemplateStatus,
) -> Result<(), Error> {
    if old == status {
        return Ok(());
    }
    let id = template.id();
    let write = ctx.writer.replace_status::<NodeConfigTemplate>(marks::TEMPLATE_STATUS_MANAGER, &id, status);
    ctx.write_own::<NodeConfigTemplate, NodeConfigTemplate>("RecordTemplate", template, write).await?;
    if let Some(event) = transition_event(old, status) {
        ctx.events.publish(reference::<NodeConfigTemplate>(&id), event);
    }
    Ok(())
}

/// Event for a stalled template, if this status is the first to report the reason.
fn transition_event(before: &NodeConfigTemplateStatus, after: &NodeConfigTemplateStatus) -> Option<EventText> {
    let stalled = |status: &NodeConfigTemplateStatus| {
        let found = status.conditions.iter().find(|one| one.type_ == "Stalled" && one.status == "True");
        found.map(|one| (one.reason.clone(), one.message.clone()))
    };
    let (reason, note) = stalled(after).filter(|new| stalled(before).as_ref() != Some(new))?;
    Some(EventText { warning: true, reason, note, about: None })
}
