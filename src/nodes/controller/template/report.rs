//! Status of a template: written on changes, at most once a second.

use std::sync::Arc;

use jiff::SignedDuration;
use kube::Resource;

use super::{STATUS, TemplateMemory};
use ganglion_api::node_config::{NodeConfigTemplate, NodeConfigTemplateStatus};
use ganglion_core::conditions::Stamp;
use ganglion_core::facts::Uid;
use ganglion_core::status::{StatusChange, StatusPolicy, StatusTiming};
use ganglion_core::words::cut;
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

/// Maximum length of the words of the API server in the status, in bytes.
const MAX_WORDS: usize = 512;

/// Describes why a write failed, in the words of the API server if it answered with any.
pub fn why(error: &Error) -> String {
    let words = error.words_of_failing().unwrap_or_else(|| error.to_string());
    let shown = cut(&words, MAX_WORDS);
    if shown.len() < words.len() { format!("{shown} ...") } else { words }
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A webhook that hangs has rejected nothing.
    #[test]
    fn a_write_without_an_answer_names_the_webhook() {
        let silent = why(&Error::Timeout(Duration::from_secs(10)));
        assert_eq!(silent, "no answer from the API server within 10 s; an admission webhook may not answer");
    }

    #[test]
    fn a_rejected_write_has_the_words_of_the_api_server() {
        let words = "admission webhook \"a.b.c\" denied the request: no power of rack 7";
        assert_eq!(why(&Error::Denied(words.into())), format!("denied: {words}"));
        assert_eq!(why(&Error::Forbidden("quota".into())), "forbidden: quota");
        assert_eq!(why(&Error::Throttled(Duration::from_secs(1))), "the API server asks to wait for 1 s");
    }

    #[test]
    fn the_words_of_the_api_server_are_bounded() {
        let long = why(&Error::Denied("\u{e9}".repeat(MAX_WORDS)));
        assert!(long.starts_with("denied: \u{e9}") && long.len() <= MAX_WORDS + 4, "{} bytes", long.len());
        assert!(long.ends_with(" ..."), "{long}");
    }
}
