//! A number in a JSON document.

use serde_json::Value;

use super::Error;
use super::web::{Call, Web};
use crate::logic::closed_loop::sources::document::{self, Text};

/// Fetches the document and reads the number at this path: names and indexes separated by dots.
///
/// # Errors
/// There is no number at the path; a string does not count as one.
pub async fn number(web: &Web, call: &Call, path: &str) -> Result<String, Error> {
    let answer = web.get(call).await?.good()?;
    let document: Value = serde_json::from_slice(&answer.body)
        .map_err(|error| Error::Answer(format!("the answer is no JSON document: {error}")))?;
    document::number(&document, path, Text::Never).map_err(Error::Answer)
}
