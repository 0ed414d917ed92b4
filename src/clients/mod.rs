//! Clients: requests to servers that users name, and the parsing of answers.
//!
//! Owns the limits of a request: allowed addresses, timeout, size of the answer. Knows neither Kubernetes nor our kinds, and
//! keeps no secret beyond a request.
//!
//! | file | what |
//! |---|---|
//! | `address` | allowed addresses, checked when a name is resolved |
//! | `web` | one request, over kept connections |
//! | `prometheus`, `json` | one number from an answer |

pub mod address;
pub mod json;
pub mod prometheus;
pub mod web;

#[cfg(test)]
mod tests;

use std::time::Duration;

use thiserror::Error;

/// Why there is no usable answer. The texts are shown in the status of an object: they contain no secret, and of the server's
/// answer only what concerns the request.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The request was not sent: the address is not allowed.
    #[error("the address is refused: {0}")]
    Refused(String),
    /// The request was not sent: its credentials or certificates cannot be used.
    #[error("{0}")]
    Unfit(String),
    /// The request was not sent: there is no connection.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// No answer arrived in time; the request may have been carried out.
    #[error("no answer within {}", seconds(.0))]
    Timeout(Duration),
    /// The connection broke; the request may have been carried out.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The answer is longer than the limit.
    #[error("the answer has more than {} bytes", web::MAX_BODY)]
    TooLong,
    /// The server answers with a redirect, which is not followed.
    #[error("the server answers {0}, a redirect, which is not followed")]
    Redirect(u16),
    /// The server answers with an error status.
    #[error("the server answers {0}")]
    Status(String),
    /// The content of the answer is not as expected.
    #[error("{0}")]
    Answer(String),
}

impl Error {
    /// The name of the error in metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "Refused",
            Self::Unfit(_) => "Unfit",
            Self::Unreachable(_) => "Unreachable",
            Self::Timeout(_) => "Timeout",
            Self::Broken(_) => "Broken",
            Self::TooLong => "TooLong",
            Self::Redirect(_) => "Redirect",
            Self::Status(_) => "Status",
            Self::Answer(_) => "Answer",
        }
    }
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
