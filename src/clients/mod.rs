//! Clients: requests to servers that users name, and what the answers are worth.
//!
//! Owns how a request leaves the process: where it may go, how long it may take, how much is read. Knows no Kubernetes and no
//! kind of ours, and keeps no secret beyond a request.
//!
//! | file | what |
//! |---|---|
//! | `address` | which addresses may be connected to, looked at when a name is resolved |
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

/// Why there is no answer, or none that can be used. The words are for the status of an object: they name no secret, and of
/// what a server said only what it says about our request.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The request was not sent: nobody may be asked there.
    #[error("the address is refused: {0}")]
    Refused(String),
    /// The request was not sent: what was to be sent with it cannot be used.
    #[error("{0}")]
    Unfit(String),
    /// The request was not sent: there is no connection.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// No answer came in time; the request may have been carried out.
    #[error("no answer within {}", seconds(.0))]
    Timeout(Duration),
    /// The connection broke; the request may have been carried out.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The answer is longer than may be.
    #[error("the answer has more than {} bytes", web::MAX_BODY)]
    TooLong,
    /// The server sends us elsewhere, and we do not go.
    #[error("the server answers {0}, a redirect, which is not followed")]
    Redirect(u16),
    /// The server did not do what was asked.
    #[error("the server answers {0}")]
    Status(String),
    /// The answer is not what it should be.
    #[error("{0}")]
    Answer(String),
}

impl Error {
    /// Its name, in metrics.
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
