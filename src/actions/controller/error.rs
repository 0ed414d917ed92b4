//! Why an effect failed: a refusal that the planner decides about, or an error of any request.

use thiserror::Error;

use ganglion_actions_plan::effect::{Refusal, RefusalKind};
use ganglion_runtime::error::Error;

/// See the module.
#[derive(Debug, Error)]
pub enum ActError {
    /// The API server refused it, and would refuse it again.
    #[error("refused: {}", .0.message)]
    Refused(Refusal),
    /// The request failed; its class says when to retry.
    #[error(transparent)]
    Request(Error),
}

impl ActError {
    /// Makes a refusal of this kind.
    pub fn refused(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self::Refused(Refusal { kind, message: message.into() })
    }

    /// The reason for logs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.kind.reason().as_str(),
            Self::Request(error) => error.reason(),
        }
    }
}

impl From<Error> for ActError {
    fn from(error: Error) -> Self {
        match error {
            Error::Forbidden(message) => Self::refused(RefusalKind::Forbidden, message),
            Error::Denied(message) => Self::refused(RefusalKind::Denied, message),
            error => Self::Request(error),
        }
    }
}

/// A refusal that the planner has no next step for ends the reconcile.
impl From<ActError> for Error {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Refused(Refusal { kind: RefusalKind::Forbidden, message }) => Self::Forbidden(message),
            ActError::Refused(refusal) => Self::Denied(refusal.message),
            ActError::Request(error) => error,
        }
    }
}
