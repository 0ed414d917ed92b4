//! Requests to servers that users name, and parsing of their answers.
//!
//! Owns the limits of a request: allowed addresses, timeout, size of the answer, bytes in flight. Depends on neither
//! Kubernetes nor our kinds, and stores no secret beyond a request, except Secrets and sessions for the next one.
//!
//! | file | content |
//! |---|---|
//! | `address`, `network`, `private` | allowed addresses, checked when a name is resolved; who may ask private ones |
//! | `web` | a single request, over pooled connections; calls of gRPC methods |
//! | `trust` | verification of server certificates |
//! | `cloud_events`, `signature` | events: one request for each attempt, and its signature |
//! | `prometheus` | a number from an answer; the values of a range of time |
//! | `partial` | how servers say that an answer is partial |
//! | `pressure`, `node_usage`, `inference` | values of nodes: requests, and parsing of answers |
//! | `value` | shared by these: errors, and names that may be shown |
//! | `otlp` | spans of traces, for the endpoint that the administrator names |
//! | `external_scaler` | a number from an external scaler of KEDA |
//! | `redfish` | intake temperature and power model, from a BMC |

pub mod address;
pub mod client;
pub mod cloud_events;
pub mod external_scaler;
pub mod inference;
pub mod network;
pub mod node_usage;
pub mod otlp;
mod partial;
pub mod pressure;
pub mod private;
pub mod prometheus;
pub mod redfish;
mod signature;
pub mod trust;
pub mod value;
pub mod web;

#[cfg(test)]
mod tests;

use std::time::Duration;

use reqwest::StatusCode;
use thiserror::Error;
use tonic::Code;

use trust::Distrust;

/// Why there is no usable answer. The texts appear in the status of an object: they contain no secret, and nothing that
/// the server answered except its HTTP status and its warnings about a value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The request was not sent: the address is not allowed.
    #[error("the address is refused: {0}")]
    Refused(String),
    /// The request was not sent: its credentials or certificates are unusable.
    #[error("{0}")]
    Unfit(String),
    /// The request was not sent: the name does not resolve to an address.
    #[error("{0}")]
    Unresolved(String),
    /// The request was not sent: the connection failed. Only for hosts that the settings allow.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The request was not sent: the certificate of the server is not trusted. Shown for every host, since a server
    /// that presents a certificate is reachable anyway.
    #[error("the certificate of the server is not trusted: {0}")]
    Certificate(Distrust),
    /// The request was not sent: the TLS handshake failed. Shown for every host, like [`Self::Certificate`]. Old BMCs
    /// have only TLS 1.1 or only RSA key exchange.
    #[error(
        "the server and the operator have no TLS version or cipher in common: TLS 1.2 with ECDHE or TLS 1.3 is needed"
    )]
    Incompatible,
    /// No answer arrived in time; the request may have been executed.
    #[error("no answer within {}", seconds(.0))]
    Timeout(Duration),
    /// The connection broke; the request may have been executed. Only for hosts that the settings allow.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// There is no answer; the cause is only in the operator's log. The request may have been executed.
    #[error("no answer from {0}; the operator's log says why")]
    NoAnswer(String),
    /// The answer is longer than the limit.
    #[error("the answer has more than {0} bytes (setting outbound.maxBytes)")]
    TooLong(usize),
    /// Too many bytes of other answers are in flight.
    #[error("too many bytes of answers are in flight (setting outbound.maxBytes.inFlight)")]
    Full,
    /// The server answers with a redirect, which is not followed.
    #[error("the server answers {0}, a redirect, which is not followed")]
    Redirect(u16),
    /// The server answers with an error status.
    #[error("the server answers {0}")]
    Status(StatusCode),
    /// The server answers with this status of gRPC.
    #[error("the server answers {0:?}, a status of gRPC")]
    Grpc(Code),
    /// A Prometheus server rejects the query with this type of error.
    #[error("the server answers {0} ({1}): check the query")]
    Query(StatusCode, &'static str),
    /// The server says that its answer is partial, or warns about the value.
    #[error("the answer is partial: {0}")]
    Partial(String),
    /// The content of the answer is invalid.
    #[error("{0}")]
    Answer(String),
}

impl Error {
    /// Whether the server refused the credentials.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
                | Self::Grpc(Code::Unauthenticated | Code::PermissionDenied)
        )
    }

    /// Whether the same request may succeed later, or from another host.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unresolved(_)
            | Self::Unreachable(_)
            | Self::Certificate(_)
            | Self::Incompatible
            | Self::Timeout(_)
            | Self::Broken(_)
            | Self::NoAnswer(_)
            | Self::Partial(_)
            | Self::Full => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Grpc(code) => matches!(
                code,
                Code::Aborted
                    | Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Internal
                    | Code::ResourceExhausted
                    | Code::Unavailable
                    | Code::Unknown
            ),
            Self::Refused(_)
            | Self::Unfit(_)
            | Self::TooLong(_)
            | Self::Redirect(_)
            | Self::Query(..)
            | Self::Answer(_) => false,
        }
    }

    /// Name of the error in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "Refused",
            Self::Unfit(_) => "Unfit",
            Self::Unresolved(_) => "Unresolved",
            Self::Unreachable(_) => "Unreachable",
            Self::Certificate(_) => "Certificate",
            Self::Incompatible => "Incompatible",
            Self::Timeout(_) => "Timeout",
            Self::Broken(_) => "Broken",
            Self::NoAnswer(_) => "NoAnswer",
            Self::TooLong(_) => "TooLong",
            Self::Full => "Full",
            Self::Redirect(_) => "Redirect",
            Self::Status(_) => "Status",
            Self::Grpc(_) => "Grpc",
            Self::Query(..) => "Query",
            Self::Partial(_) => "Partial",
            Self::Answer(_) => "Answer",
        }
    }
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
