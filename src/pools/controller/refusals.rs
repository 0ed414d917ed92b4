//! Notes writes that the API server refuses and without which a pool goes on.

use jiff::Timestamp;

use ganglion_pools_plan::refusals::{RefusalCause, WriteRefusal};
use ganglion_runtime::error::Error;

/// Cause and message of a write that the API server refuses until somebody changes something, or does not answer.
/// Returns any other error.
pub fn cause_of(error: Error) -> Result<(RefusalCause, String), Error> {
    match error {
        Error::Forbidden(message) => Ok((RefusalCause::Permission, message)),
        Error::Denied(message) => Ok((RefusalCause::Admission, message)),
        Error::Timeout(_) => match error.words_of_failing() {
            Some(words) => Ok((RefusalCause::NoAnswer, words)),
            None => Err(error),
        },
        error => Err(error),
    }
}

/// Notes a refusal.
pub fn note(refused: &mut Option<WriteRefusal>, (cause, message): (RefusalCause, String), now: Timestamp) {
    *refused = Some(WriteRefusal::new(refused.as_ref(), cause, message, now));
}
