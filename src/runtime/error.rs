//! Errors of requests and reconciles, and whether to retry them.
//!
//! Owns the classification of the API server's error answers. Except for evictions, no other code in the controllers
//! reads HTTP status codes.

use std::error::Error as _;
use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

use ganglion_core::definitions::DEFINITION_OUTDATED;
use ganglion_core::kind_path::BadSegment;
use ganglion_core::words::without_types;

/// Reaction to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A retry cannot succeed.
    Terminal,
    /// Retry after the backoff.
    Retry,
    /// Retry, but not before this delay.
    After(Duration),
}

impl Class {
    /// The label in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Retry => "retry",
            Self::After(_) => "retry_after",
        }
    }
}

/// Reason why a request or a reconcile failed.
#[derive(Debug, Error)]
pub enum Error {
    /// This replica no longer holds the lease.
    #[error("this replica no longer holds the lease")]
    NotLeader,
    /// The object does not have the expected version.
    #[error("the object has changed: {0}")]
    Conflict(String),
    /// An object of that name exists.
    #[error("the object exists: {0}")]
    AlreadyExists(String),
    /// The object or its namespace does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// RBAC denies the request.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// Validation, admission or a quota refused the request.
    #[error("denied: {0}")]
    Denied(String),
    /// RBAC denies the request, possibly because the API server has just started and not loaded its roles yet.
    #[error("forbidden, or not allowed yet: {0}")]
    Doubtful(String),
    /// The API server throttles requests.
    #[error("the API server asks to wait for {} s", .0.as_secs_f64())]
    Throttled(Duration),
    /// No answer arrived in time; the API server may have executed the request.
    #[error("no answer from the API server within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The API server is unreachable or failed.
    #[error("the API server failed: {}", failure(.0))]
    Unavailable(#[source] Box<kube::Error>),
    /// Too many bytes of the API server's answers are in flight. The API server may have executed the request.
    #[error("too many bytes of answers are in flight (setting outbound.maxBytes.inFlight)")]
    Full,
    /// The API server stored the object without this field, or refused it, because the CRD does not have the field.
    #[error("the CRD is older than the operator: it does not have {0}")]
    Dropped(String),
    /// The request or the answer is malformed.
    #[error("malformed: {}", without_types(.0))]
    Malformed(String),
    /// A bug in this program.
    #[error("a bug in this program")]
    Broken,
}

impl From<BadSegment> for Error {
    fn from(error: BadSegment) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl Error {
    /// How to handle the error.
    pub fn class(&self) -> Class {
        match self {
            Self::NotLeader
            | Self::Forbidden(_)
            | Self::Denied(_)
            | Self::Dropped(_)
            | Self::Malformed(_)
            | Self::Broken => Class::Terminal,
            Self::Conflict(_)
            | Self::AlreadyExists(_)
            | Self::NotFound(_)
            | Self::Doubtful(_)
            | Self::Timeout(_)
            | Self::Unavailable(_)
            | Self::Full => Class::Retry,
            Self::Throttled(pause) => Class::After(*pause),
        }
    }

    /// Whether the API server may have executed the request despite the error.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Unavailable(_) | Self::Full | Self::Malformed(_))
    }

    /// Why the API server fails requests, for the status of an object that waits for one: the message of the API
    /// server, or that nothing answers. None for other errors, and while the API server is unreachable: then no status
    /// can be written either.
    pub fn words_of_failing(&self) -> Option<String> {
        match self {
            Self::Unavailable(cause) => match &**cause {
                kube::Error::Api(answer) => Some(answer.message.clone()),
                _ => None,
            },
            // A webhook has as much time by default as a request of the operator.
            Self::Timeout(_) => Some(format!("{self}; an admission webhook may not answer")),
            _ => None,
        }
    }

    /// Name of the error in logs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotLeader => "NotLeader",
            Self::Conflict(_) => "Conflict",
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::NotFound(_) => "NotFound",
            Self::Forbidden(_) | Self::Doubtful(_) => "Forbidden",
            Self::Denied(_) => "Denied",
            Self::Throttled(_) => "Throttled",
            Self::Timeout(_) => "Timeout",
            Self::Unavailable(_) => "Unavailable",
            Self::Full => "Full",
            Self::Dropped(_) => DEFINITION_OUTDATED,
            Self::Malformed(_) => "Malformed",
            Self::Broken => "Broken",
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => from_status(status),
            kube::Error::SerdeError(error) => Self::Malformed(error.to_string()),
            kube::Error::BuildRequest(error) => Self::Malformed(error.to_string()),
            other => Self::Unavailable(Box::new(other)),
        }
    }
}

fn from_status(status: Box<Status>) -> Error {
    let words = status.message.clone();
    match status.code {
        404 => Error::NotFound(words),
        409 if status.reason == "AlreadyExists" => Error::AlreadyExists(words),
        409 => Error::Conflict(words),
        429 => Error::Throttled(retry_after(&status)),
        403 if is_missing_right(&words) => Error::Forbidden(words),
        400 | 422 if let Some(field) = unknown_field(&words) => Error::Dropped(field),
        422 if is_failed_test(&status) => Error::Conflict(words),
        400 | 403 | 413 | 422 => Error::Denied(words),
        _ => Error::Unavailable(Box::new(kube::Error::Api(status))),
    }
}

/// Describes a failed request for users. The text of kube's error for an answer of the API server contains a dump of
/// the answer; its message is enough. For a request without an answer, the last cause says most.
pub fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("HTTP {} {}", status.code, status.reason),
        other => {
            let mut text = other.to_string();
            let mut cause = other.source();
            while let Some(error) = cause {
                let words = error.to_string();
                if !text.contains(&words) {
                    text = format!("{text}: {words}");
                }
                cause = error.source();
            }
            text
        }
    }
}

/// Recognizes the authorizer's messages: `User "…" cannot create resource "pods" in API group "" in the namespace "…"`,
/// and `User "…" cannot get path "/apis/apps/v1"`. Quotas, admission plugins and webhooks also answer 403, with other
/// messages.
fn is_missing_right(message: &str) -> bool {
    message.contains(" cannot ") && (message.contains(" resource \"") || message.contains(" path \""))
}

/// The first field in the answer to a request with `fieldValidation=Strict`, such as `Monitoring in version "v1alpha1"
/// cannot be handled as a Monitoring: strict decoding error: unknown field "spec.over", unknown field "spec.last"`.
fn unknown_field(message: &str) -> Option<String> {
    let (head, fields) = message.split_once("strict decoding error: unknown field \"")?;
    let field = fields.split_once('"')?.0;
    Some(match head.split_once(" in version ") {
        Some((kind, _)) => format!("{field} of {kind}"),
        None => field.to_owned(),
    })
}

/// Recognizes a failed `test` operation of a JSON patch. The API server only answers that the request was in error;
/// answers to invalid content have causes.
fn is_failed_test(status: &Status) -> bool {
    status.message.contains("rejected our request due to an error in our request")
        && status.details.as_ref().is_none_or(|details| details.causes.is_empty())
}

/// Delay that the API server requests; one second by default.
pub fn retry_after(status: &Status) -> Duration {
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(u64::from(seconds.clamp(1, 60)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, reason: &str, message: &str) -> Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed()).into()
    }

    #[test]
    fn no_message_contains_a_dump() {
        for (message, expected) in [
            ("the spec replicas field does not exist", "the API server failed: the spec replicas field does not exist"),
            ("", "the API server failed: HTTP 500 InternalError"),
        ] {
            assert_eq!(error(500, "InternalError", message).to_string(), expected);
        }
        let (half, second) = (Duration::from_millis(500), Duration::from_secs(1));
        assert_eq!(Error::Timeout(half).to_string(), "no answer from the API server within 0.5 s");
        assert_eq!(Error::Throttled(second).to_string(), "the API server asks to wait for 1 s");
    }

    #[test]
    fn refusals_are_told_from_what_passes() {
        let quota = "pods \"a\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3";
        let right = "pods is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \"pods\" in API group \"\" in the namespace \"c\"";
        let path = "forbidden: User \"system:serviceaccount:a:b\" cannot get path \"/apis/apps/v1\"";
        let webhook = "admission webhook \"a.b.c\" denied the request: no";
        let strict = "Monitoring in version \"v1alpha1\" cannot be handled as a Monitoring: strict decoding error: unknown field \"spec.over\", unknown field \"spec.last\"";
        for (code, reason, message, expected) in [
            (403, "Forbidden", quota, "Denied"),
            (403, "Forbidden", right, "Forbidden"),
            (403, "Forbidden", path, "Forbidden"),
            (400, "BadRequest", webhook, "Denied"),
            (400, "BadRequest", strict, DEFINITION_OUTDATED),
            (422, "Invalid", "spec.containers: Required value", "Denied"),
            (422, "Invalid", "the server rejected our request due to an error in our request", "Conflict"),
            (404, "NotFound", "pods \"a\" not found", "NotFound"),
            (409, "AlreadyExists", "pods \"a\" already exists", "AlreadyExists"),
            (409, "Conflict", "the object has been modified", "Conflict"),
            (429, "TooManyRequests", "slow down", "Throttled"),
            (401, "Unauthorized", "Unauthorized", "Unavailable"),
            (500, "InternalError", "failed calling webhook", "Unavailable"),
            (503, "ServiceUnavailable", "", "Unavailable"),
            (504, "Timeout", "", "Unavailable"),
        ] {
            assert_eq!(error(code, reason, message).reason(), expected, "{code} {reason} {message}");
        }
    }

    #[test]
    fn an_api_server_that_fails_requests_or_does_not_answer_is_described() {
        let failing = error(500, "InternalError", "failed calling webhook \"a.b.c\"");
        assert_eq!(failing.words_of_failing().as_deref(), Some("failed calling webhook \"a.b.c\""));
        let silent = Error::Timeout(Duration::from_secs(10)).words_of_failing();
        let words = "no answer from the API server within 10 s; an admission webhook may not answer";
        assert_eq!(silent.as_deref(), Some(words));
        for other in [error(409, "Conflict", "no"), error(422, "Invalid", "no"), Error::NotLeader, Error::Full] {
            assert_eq!(other.words_of_failing(), None, "{other}");
        }
    }

    #[test]
    fn only_what_asking_again_cannot_change_is_terminal() {
        assert_eq!(error(422, "Invalid", "").class(), Class::Terminal);
        assert_eq!(error(503, "ServiceUnavailable", "").class(), Class::Retry);
        assert_eq!(error(409, "Conflict", "").class(), Class::Retry);
        assert_eq!(error(429, "TooManyRequests", "").class(), Class::After(Duration::from_secs(1)));
        assert_eq!(Error::Timeout(Duration::ZERO).class(), Class::Retry);
    }
}
