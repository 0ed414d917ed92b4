//! One attempt to notify a receiver: at most one request.

use std::time::Duration;

use ganglion_actions_plan::notify::AttemptResult;
use ganglion_actions_plan::notify::event::event;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_outbound::client::{Behalf, OutboundClient, Outgoing};
use ganglion_outbound::cloud_events::{EventError, EventRequest};
use ganglion_runtime::context::Context;

/// Maximum time until a receiver answers. A shorter request timeout in the settings wins.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Notifies one receiver. Returns the name of the result in metrics, and the result.
pub async fn send(
    ctx: &Context,
    outbound: &OutboundClient,
    action: &WorkloadAction,
    receiver: usize,
) -> (&'static str, AttemptResult) {
    let to = action.spec.notify.as_ref().and_then(|all| all.get(receiver));
    let (Some(to), Some(event)) = (to, event(action)) else {
        // Neither changes once the action has ended.
        return ("NoEvent", AttemptResult::Refused { code: None, message: "the action has no event".into() });
    };
    let namespace = action.metadata.namespace.as_deref().unwrap_or_default();
    let on = Behalf::Operator { writer: &ctx.writer, namespace };
    let within = TIMEOUT.min(outbound.request_timeout);
    let sent = outbound.send_event(EventRequest {
        on,
        request: Outgoing { url: &to.url, auth: None, ca: None, headers: &[], within },
        signed_by: to.secret_ref.as_ref().map(|secret| secret.name.as_str()),
        id: &event.id,
        now: ctx.now(),
        body: &event.body,
    });
    match sent.await {
        Ok(status) => ("Accepted", AttemptResult::Accepted { code: status.as_u16() }),
        Err(error) => (error.reason(), failure(&error)),
    }
}

/// Decides whether another attempt may succeed.
fn failure(error: &EventError) -> AttemptResult {
    let (code, message) = (error.code(), error.to_string());
    if error.is_passing() { AttemptResult::Missed { code, message } } else { AttemptResult::Refused { code, message } }
}
