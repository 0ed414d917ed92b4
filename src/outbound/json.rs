//! Number in a JSON document.

use super::Error;
use super::web::Answer;
use ganglion_core::document::{self, Text};

/// Returns the number at this path: names and indexes separated by dots. A string does not count as a number.
pub fn number(answer: &Answer, path: &str) -> Result<String, Error> {
    document::number(answer.good()?, path, Text::Never).map_err(Error::Answer)
}
