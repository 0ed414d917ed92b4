//! The wire format of the scheduler extender, version 1: parses requests and encodes replies.
//!
//! The format is that of Go's `encoding/json` for structs without tags: keys are read in any letter case and written in
//! `PascalCase`, and `null` stands for nil. Must not decide about a node, and does not depend on HTTP or the caches.

mod pod;
mod preemption;
mod reply;
mod request;

#[cfg(test)]
mod tests;

use thiserror::Error;

pub use preemption::{MAX_VICTIMS, PreemptionRequest};
pub use reply::{MAX_SCORE, filter_reply, preemption_reply, prioritize_reply};
pub use request::{CandidateNodes, ExtenderRequest, FullNode, MAX_NODES};

/// Maximum number of labels of a pod.
const MAX_LABELS: usize = 1024;

/// Maximum length of an error's detail in characters.
const MAX_DETAIL: usize = 200;

/// Start of a serde message that ends with the expected form.
const INVALID: &str = "invalid ";

/// Text before the expected form in a serde message.
const EXPECTED: &str = ", expected ";

/// Reason why a request is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    #[error("the request is not UTF-8 text: the byte at offset {0} is wrong")]
    NotUtf8(usize),
    #[error("the request is not JSON: {0}")]
    NotJson(String),
    #[error("the request does not have the form of ExtenderArgs: {0}")]
    WrongForm(String),
    #[error("the request has no Pod")]
    NoPod,
    #[error("the request has both Nodes and NodeNames: one of them must be null")]
    BothNodesAndNames,
    #[error("the request has neither Nodes nor NodeNames")]
    NeitherNodesNorNames,
    /// Carries the position of the node in the list, starting at 1.
    #[error("node {0} of the request has no metadata.name")]
    NoNodeName(usize),
    #[error("the request has {count} nodes, more than {max}")]
    TooManyNodes { count: usize, max: usize },
    #[error("the request has neither NodeNameToMetaVictims nor NodeNameToVictims")]
    NoVictims,
    #[error("the request has more than {0} pods to preempt")]
    TooManyVictims(usize),
}

impl WireError {
    /// Converts an error of the JSON parser. If the body is JSON of another form, the parser's message may quote it,
    /// and a pod may contain secrets. So only the description of the expected form is used.
    fn of_parser(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let place = format!(" at line {line}, column {column}");
        let text = error.to_string();
        let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let what = if error.is_data() {
            // `invalid type: string "…", expected a list`. In other messages, no part is certain not to be a quotation.
            let form = text.rsplit_once(EXPECTED).filter(|_| text.starts_with(INVALID));
            form.map_or_else(|| "unexpected value".to_owned(), |(_, form)| format!("expected {form}"))
        } else {
            text.to_owned()
        };
        let what = what.chars().take(MAX_DETAIL.saturating_sub(place.len()));
        let detail = what.chain(place.chars()).collect();
        if error.is_data() { Self::WrongForm(detail) } else { Self::NotJson(detail) }
    }
}
