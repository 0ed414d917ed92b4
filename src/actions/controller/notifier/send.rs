//! One attempt to notify a receiver: reads the Secret, signs the event and sends it at most once.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use ganglion_actions_plan::notify::AttemptResult;
use ganglion_actions_plan::notify::event::{EndEvent, MEDIA, event};
use ganglion_actions_plan::notify::signature::{SECRET_KEY, sign};
use ganglion_api::workload_action::{Notify, WorkloadAction};
use ganglion_outbound as clients;
use ganglion_outbound::client::{Behalf, OutboundClient, Outgoing};
use ganglion_outbound::web::Call;
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
    let headers = match headers(ctx, outbound, on, to, &event).await {
        Ok(headers) => headers,
        Err(message) => {
            let message = format!("it was not sent: {message}");
            return ("Unsigned", AttemptResult::Missed { code: None, message });
        }
    };
    let within = TIMEOUT.min(outbound.request_timeout);
    let request = Outgoing { url: &to.url, auth: None, ca: None, within };
    let call = match outbound.call(on, request, Duration::ZERO).await {
        // A redirect could lead the event, and requests from the operator's network, to another server.
        Ok(call) => Call { redirects: false, ..call },
        Err(unanswered) => return ("Unfit", AttemptResult::Refused { code: None, message: unanswered.words }),
    };
    let answer = outbound.web().post_with(&call, headers, event.body).await;
    result(answer.and_then(|answer| answer.good().map(|_| answer.status)))
}

/// Headers of the request. If a Secret is named, they include the signature; without a signature the request is not
/// sent.
async fn headers(
    ctx: &Context,
    outbound: &OutboundClient,
    on: Behalf<'_>,
    to: &Notify,
    event: &EndEvent,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(MEDIA))]);
    let Some(secret) = &to.secret_ref else { return Ok(headers) };
    let value = outbound.key(on, &secret.name, SECRET_KEY, Duration::ZERO).await.map_err(|unread| unread.words)?;
    let signed = sign(&value, &event.id, ctx.now(), &event.body);
    let signed = signed.map_err(|why| format!("key {SECRET_KEY} of Secret {} {why}", secret.name))?;
    for (name, value) in signed {
        let value = HeaderValue::from_str(&value).map_err(|_| format!("the header {name} cannot be made"))?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// Decides by the response whether another attempt may succeed. Also returns the name of the result in metrics.
fn result(answer: Result<StatusCode, clients::Error>) -> (&'static str, AttemptResult) {
    let error = match answer {
        Ok(status) => return ("Accepted", AttemptResult::Accepted { code: status.as_u16() }),
        Err(error) => error,
    };
    let code = match &error {
        clients::Error::Status(status) => Some(status.as_u16()),
        clients::Error::Redirect(code) => Some(*code),
        _ => None,
    };
    let message = error.to_string();
    let again = error.is_passing() || code == Some(StatusCode::REQUEST_TIMEOUT.as_u16());
    let result = if again { AttemptResult::Missed { code, message } } else { AttemptResult::Refused { code, message } };
    (error.reason(), result)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(400, false)]
    #[case(401, false)]
    #[case(404, false)]
    #[case(408, true)]
    #[case(410, false)]
    #[case(429, true)]
    #[case(500, true)]
    #[case(503, true)]
    #[case(101, false)]
    fn a_status_is_final_or_tried_again(#[case] code: u16, #[case] again: bool) {
        let error = clients::Error::Status(StatusCode::from_u16(code).unwrap());
        let (_, result) = result(Err(error));
        let expected = Some(code);
        match result {
            AttemptResult::Missed { code, .. } => assert!(again && code == expected),
            AttemptResult::Refused { code, .. } => assert!(!again && code == expected),
            AttemptResult::Accepted { .. } => panic!("{code} is no success"),
        }
    }

    #[test]
    fn what_did_not_answer_is_tried_again_and_what_must_not_be_asked_is_not() {
        let again = |error| matches!(result(Err(error)).1, AttemptResult::Missed { code: None, .. });
        assert!(again(clients::Error::Timeout(TIMEOUT)));
        assert!(again(clients::Error::Unreachable("refused".into())));
        assert!(again(clients::Error::Unresolved("no address".into())));
        assert!(again(clients::Error::NoAnswer("a:1".into())));
        assert!(!again(clients::Error::Refused("loopback".into())));
        assert!(matches!(result(Err(clients::Error::Redirect(302))).1, AttemptResult::Refused { code: Some(302), .. }));
        assert!(matches!(result(Ok(StatusCode::NO_CONTENT)).1, AttemptResult::Accepted { code: 204 }));
    }
}
