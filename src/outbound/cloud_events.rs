//! Sends events to servers that users name: one request for each attempt, signed if the user names a Secret.
//!
//! Owns the request and the classification of its answer. The caller owns what is sent, and whether to try again.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use thiserror::Error;

use crate::client::{Behalf, OutboundClient, Outgoing};
use crate::signature::sign;
use ganglion_core::cloud_event::MEDIA_TYPE;

/// Key in the Secret's data that contains the signing key.
const SIGNING_KEY: &str = "hmac";

/// One attempt to send an event.
#[derive(Clone, Copy)]
pub struct EventRequest<'a> {
    /// Reads the Secrets.
    pub on: Behalf<'a>,
    pub request: Outgoing<'a>,
    /// Secret with the signing key. None: the request is not signed.
    pub signed_by: Option<&'a str>,
    /// Id of the event, which the signature covers.
    pub id: &'a str,
    /// Current time, which the signature covers.
    pub now: Timestamp,
    pub body: &'a [u8],
}

/// Why a receiver has not accepted an event.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EventError {
    /// A Secret or ConfigMap cannot be used.
    #[error("it was not sent: {0}")]
    NotSent(String),
    #[error(transparent)]
    Failed(#[from] crate::Error),
}

impl EventError {
    /// HTTP status of the answer, if there is one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(crate::Error::Status(status)) => Some(status.as_u16()),
            Self::Failed(crate::Error::Redirect(code)) => Some(*code),
            Self::Failed(_) | Self::NotSent(_) => None,
        }
    }

    /// Whether another attempt may succeed without a change of the event or its receiver.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Failed(error) => error.is_passing() || self.code() == Some(StatusCode::REQUEST_TIMEOUT.as_u16()),
        }
    }

    /// Whether the receiver may have accepted the event all the same.
    pub fn may_have_arrived(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Failed(
                crate::Error::Timeout(_)
                | crate::Error::Broken(_)
                | crate::Error::NoAnswer(_)
                | crate::Error::TooLong(_)
                | crate::Error::Partial(_)
                | crate::Error::Full,
            ) => true,
            Self::Failed(
                crate::Error::Refused(_)
                | crate::Error::Unfit(_)
                | crate::Error::Unresolved(_)
                | crate::Error::Unreachable(_)
                | crate::Error::Certificate(_)
                | crate::Error::Incompatible
                | crate::Error::Redirect(_)
                | crate::Error::Status(_)
                | crate::Error::Grpc(_)
                | crate::Error::Query(..)
                | crate::Error::Answer(_),
            ) => false,
        }
    }

    /// Name of the error in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotSent(_) => "Unsigned",
            Self::Failed(error) => error.reason(),
        }
    }
}

impl OutboundClient {
    /// Sends an event at most once, with the current version of its Secrets. A redirect is not followed: it could lead
    /// the event, and requests from the operator's network, to another server.
    pub async fn send_event(&self, event: EventRequest<'_>) -> Result<StatusCode, EventError> {
        let headers = self.event_headers(&event).await?;
        let call = self.call(event.on, event.request, Duration::ZERO).await;
        let call = call.map_err(|unanswered| EventError::NotSent(unanswered.words))?;
        let answer = self.web().post(&call, headers, event.body.to_vec()).await?;
        answer.good()?;
        Ok(answer.status)
    }

    /// Headers of the request. If a Secret is named, they include the signature; without it, nothing is sent.
    async fn event_headers(&self, event: &EventRequest<'_>) -> Result<HeaderMap, EventError> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))]);
        let Some(secret) = event.signed_by else { return Ok(headers) };
        let key = self.key(event.on, secret, SIGNING_KEY, Duration::ZERO).await;
        let key = key.map_err(|unread| EventError::NotSent(unread.words))?;
        let signature = sign(&key, event.id, event.now, event.body)
            .map_err(|why| EventError::NotSent(format!("key {SIGNING_KEY} of Secret {secret} {why}")))?;
        for (name, value) in signature {
            let value = HeaderValue::from_str(&value)
                .map_err(|_| EventError::NotSent(format!("the header {name} cannot be made")))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::Error;

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
        let error = EventError::from(Error::Status(StatusCode::from_u16(code).unwrap()));
        assert_eq!((error.code(), error.is_passing(), error.may_have_arrived()), (Some(code), again, false));
    }

    #[rstest]
    #[case(Error::Timeout(Duration::ZERO), true, true)]
    #[case(Error::NoAnswer("a:1".into()), true, true)]
    #[case(Error::Unreachable("refused".into()), true, false)]
    #[case(Error::Unresolved("no address".into()), true, false)]
    #[case(Error::Refused("loopback".into()), false, false)]
    #[case(Error::Redirect(302), false, false)]
    fn what_did_not_answer_is_tried_again_and_what_must_not_be_asked_is_not(
        #[case] error: Error,
        #[case] again: bool,
        #[case] may_have_arrived: bool,
    ) {
        let error = EventError::from(error);
        assert_eq!((error.is_passing(), error.may_have_arrived()), (again, may_have_arrived));
    }
}
