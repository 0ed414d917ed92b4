//! Why an effect failed: a refusal that the planner decides about, or what any request may come to.

use thiserror::Error;

use crate::logic::workload_action::effect::{Refusal, RefusalKind};
use crate::runtime::error::Error;

/// See the module.
#[derive(Debug, Error)]
pub enum ActError {
    /// It was refused, and would be again.
    #[error("refused: {}", .0.message)]
    Refused(Refusal),
    /// It may be tried again, as this says.
    #[error(transparent)]
    Request(Error),
}

impl ActError {
    /// A refusal of this kind.
    pub fn refused(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self::Refused(Refusal { kind, message: message.into() })
    }

    /// Its name, in logs and metrics.
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

/// A refusal that the planner has no answer to ends the pass.
impl From<ActError> for Error {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Refused(Refusal { kind: RefusalKind::Forbidden, message }) => Self::Forbidden(message),
            ActError::Refused(refusal) => Self::Denied(refusal.message),
            ActError::Request(error) => error,
        }
    }
}
