//! Sends an event to the loop's webhook: CloudEvents 1.0, structured JSON, at most once.

use serde_json::{Value, json};

use super::ExecutionController;
use crate::target::Actor;
use ganglion_api::closed_loop::action::Webhook;
use ganglion_api::decision::DecisionStatus;
use ganglion_loops_plan::execution::EffectResult;
use ganglion_loops_plan::rung;
use ganglion_outbound as clients;
use ganglion_outbound::client::Outgoing;

/// CloudEvents type of the events.
const TYPE: &str = "dev.ganglion.closedloop.decision";

/// Media type of one CloudEvent as JSON.
const MEDIA: &str = "application/cloudevents+json; charset=utf-8";

/// Sends the event, with Secrets of the loop's namespace. Without an answer it is unknown whether the event was
/// received.
pub async fn act(
    controller: &ExecutionController,
    (actor, decision): (&Actor, &DecisionStatus),
    id: &str,
    webhook: &Webhook,
) -> EffectResult {
    let outbound = &controller.outbound;
    let _permit = outbound.requests.acquire(&actor.account.namespace, 1).await;
    let (auth, ca, within) = (webhook.auth.as_ref(), webhook.ca.as_ref(), outbound.request_timeout);
    let request = Outgoing { url: &webhook.url, auth, ca, within };
    let body = event(actor, decision, id).to_string().into_bytes();
    let answer = match outbound.post(&actor.account, request, MEDIA, body).await {
        Ok(answer) => answer,
        Err(words) => return EffectResult::Refused(format!("it was not sent: {words}")),
    };
    match answer.and_then(|answer| answer.good().map(drop)) {
        Ok(()) => EffectResult::Done(None),
        Err(
            error @ (clients::Error::Timeout(_)
            | clients::Error::Broken(_)
            | clients::Error::NoAnswer(_)
            | clients::Error::TooLong(_)
            | clients::Error::Full),
        ) => EffectResult::Unclear(error.to_string()),
        Err(
            error @ (clients::Error::Refused(_)
            | clients::Error::Unfit(_)
            | clients::Error::Unresolved(_)
            | clients::Error::Unreachable(_)
            | clients::Error::Certificate(_)
            | clients::Error::Redirect(_)
            | clients::Error::Status(_)
            | clients::Error::Query(..)
            | clients::Error::Answer(_)),
        ) => EffectResult::Refused(error.to_string()),
    }
}

fn event(actor: &Actor, decision: &DecisionStatus, id: &str) -> Value {
    let key = &actor.loop_key;
    let DecisionStatus { chosen, history, message, tag, .. } = decision;
    let entry = history.last().filter(|entry| chosen.as_ref().is_some_and(|chosen| chosen.seq == entry.seq));
    json!({
        "specversion": "1.0",
        "id": id,
        "source": format!("/apis/ganglion.dev/v1alpha1/namespaces/{}/closedloops/{}", key.namespace, key.name),
        "type": TYPE,
        "subject": format!("{}/{}", actor.target.kind, actor.target.name),
        "time": chosen.as_ref().map(|chosen| &chosen.at),
        "datacontenttype": "application/json",
        "data": {
            "loop": {"namespace": key.namespace, "name": key.name},
            "target": actor.target,
            "seq": chosen.as_ref().map(|chosen| chosen.seq),
            "metric": chosen.as_ref().map(|chosen| &chosen.metric),
            "side": chosen.as_ref().map(|chosen| chosen.side),
            "value": entry.and_then(|entry| entry.value.as_ref()),
            "message": message,
            "action": chosen.as_ref().map(|chosen| rung::words(&chosen.action)),
            "tag": tag,
        },
    })
}
