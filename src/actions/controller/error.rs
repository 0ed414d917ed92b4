//! Errors of effects: a refusal, which the planner handles, or a failed request.

use thiserror::Error;

use ganglion_actions_plan::effect::{Refusal, RefusalKind};
use ganglion_runtime::error::Error;

#[derive(Debug, Error)]
pub enum ActError {
    /// The API server refused the effect and would refuse it again.
    #[error("refused: {}", .0.message)]
    Refused(Refusal),
    /// The request failed. The class of the error says when to retry.
    #[error(transparent)]
    Request(Error),
}

impl ActError {
    /// Creates a refusal of this kind.
    pub fn refused(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self::Refused(Refusal { kind, message: message.into() })
    }

    /// Reason for logs and metrics.
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

/// A refusal without a next step ends the reconcile.
impl From<ActError> for Error {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Refused(Refusal { kind: RefusalKind::Forbidden, message }) => Self::Forbidden(message),
            ActError::Refused(refusal) => Self::Denied(refusal.message),
            ActError::Request(error) => error,
        }
    }
}
