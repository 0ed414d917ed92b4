//! A number in a JSON document.

use super::Error;
use super::web::Answer;
use ganglion_core::document::{self, Text};

/// The number at this path: names and indexes separated by dots.
///
/// # Errors
/// There is no number at the path; a string does not count as one.
pub fn number(answer: &Answer, path: &str) -> Result<String, Error> {
    document::number(answer.good()?, path, Text::Never).map_err(Error::Answer)
}
