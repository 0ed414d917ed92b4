//! Sends an event to the loop's webhook, at most once, in a background task, so that a slow receiver delays no other
//! loop.
//!
//! Later reconciles read here whether the event is being sent, or its result. If the process ends before the result is
//! recorded, the claim remains, and the next process cannot find out whether the event was sent.

use std::sync::Arc;

use serde_json::json;

use super::ExecutionController;
use crate::target::{Actor, webhook_request};
use ganglion_api::closed_loop::action::Webhook;
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::{Execution, ExecutionStatus};
use ganglion_core::cloud_event::{CloudEvent, EventSource};
use ganglion_loops_plan::execution::{EffectResult, ExecutionEffect};
use ganglion_loops_plan::rung;
use ganglion_outbound::cloud_events::EventRequest;
use ganglion_runtime::background::BackgroundWork;

/// CloudEvents type of the events.
const TYPE: &str = "dev.ganglion.closedloop.decision";

/// Events that are being sent, by the number of the decision. A result stays until it is recorded.
pub type Webhooks = BackgroundWork<Execution, i64, SentEvent>;

/// An event, and what became of it.
pub struct SentEvent {
    pub effect: ExecutionEffect,
    pub result: EffectResult,
}

/// Number of the claimed decision.
pub fn claimed_seq(status: &ExecutionStatus) -> Option<i64> {
    Some(status.claim.as_ref()?.seq)
}

impl ExecutionController {
    /// Starts to send the claimed event.
    pub(super) fn start_webhook(
        self: &Arc<Self>,
        actor: Actor,
        decision: DecisionStatus,
        seq: i64,
        effect: ExecutionEffect,
    ) {
        let controller = Arc::clone(self);
        self.webhooks.start(&self.ctx, actor.loop_key.clone(), Arc::new(seq), |answers| async move {
            let ExecutionEffect::Send { id, webhook } = &effect else { return };
            let result = controller.send(&actor, webhook, &decision_event(&actor, &decision, id)).await;
            answers.publish(SentEvent { effect, result });
        });
    }

    /// Sends the event, with Secrets of the loop's namespace. Without an answer it is unknown whether the event was
    /// received.
    async fn send(&self, actor: &Actor, webhook: &Webhook, event: &CloudEvent) -> EffectResult {
        let _permit = self.outbound.requests.acquire(&actor.account.namespace, 1).await;
        let body = event.to_json().to_string().into_bytes();
        let sent = self.outbound.send_event(EventRequest {
            on: (&actor.account).into(),
            request: webhook_request(webhook, self.outbound.request_timeout),
            signed_by: None,
            id: &event.id,
            now: self.ctx.now(),
            body: &body,
        });
        match sent.await {
            Ok(_) => EffectResult::Done(None),
            Err(error) if error.may_have_arrived() => EffectResult::Unclear(error.to_string()),
            Err(error) => EffectResult::Refused(error.to_string()),
        }
    }
}

/// The event about a decision.
fn decision_event(actor: &Actor, decision: &DecisionStatus, id: &str) -> CloudEvent {
    let key = &actor.loop_key;
    let DecisionStatus { chosen, history, message, tag, .. } = decision;
    let entry = history.last().filter(|entry| chosen.as_ref().is_some_and(|chosen| chosen.seq == entry.seq));
    let source = EventSource { plural: "closedloops", namespace: key.namespace.clone(), name: key.name.clone() };
    CloudEvent {
        id: id.to_owned(),
        source,
        event_type: TYPE.to_owned(),
        subject: Some(format!("{}/{}", actor.target.kind, actor.target.name)),
        time: chosen.as_ref().map(|chosen| json!(chosen.at)),
        data: json!({
            "loop": {"namespace": key.namespace, "name": key.name},
            "target": actor.target,
            "seq": chosen.as_ref().map(|chosen| chosen.seq),
            "metric": chosen.as_ref().map(|chosen| &chosen.metric),
            "side": chosen.as_ref().map(|chosen| chosen.side),
            "when": chosen.as_ref().map(|chosen| chosen.served().to_string()),
            "value": entry.and_then(|entry| entry.value.as_ref()),
            "message": message,
            "action": chosen.as_ref().map(|chosen| rung::describe(&chosen.action)),
            "tag": tag,
        }),
    }
}
