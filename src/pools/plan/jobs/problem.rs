//! What is wrong with the text of a source, in words for the person who wrote it: where, what would be right, and what is there.

use std::fmt;

/// How much of a text a message quotes.
const QUOTED_CHARACTERS: usize = 60;

/// Why a text has no jobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}{}", Quoted(text))]
pub struct JobsProblem {
    pub place: Place,
    pub fault: Fault,
    /// The beginning of what is wrong; empty if there is nothing to show.
    pub text: String,
}

impl JobsProblem {
    pub(super) fn new(place: Place, fault: Fault, text: &str) -> Self {
        let mut characters = text.chars();
        let mut text: String = characters.by_ref().take(QUOTED_CHARACTERS).collect();
        if characters.next().is_some() {
            text.push('…');
        }
        Self { place, fault, text }
    }
}

/// A place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: u64,
    /// The item of the list.
    pub item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.item {
            Some(item) => write!(f, "item {item}, line {}", self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the name is empty; it needs 1 to 253 characters")]
    EmptyName,
    #[error("the name has {0} characters; at most 253 are allowed")]
    LongName(usize),
    #[error("the name begins or ends with a blank; remove it")]
    BlankEnd,
    #[error("the name has the control character U+{:04X}; remove it", u32::from(*.0))]
    Control(char),
    #[error("a job is a name, or an object with name, weight and qos, but this is {0}{hint}", hint = quote_hint(.0))]
    NotAJob(&'static str),
    #[error("the name is {0}, not a text{hint}", hint = quote_hint(.0))]
    NotAName(&'static str),
    #[error("the object has no name")]
    NoName,
    #[error("the weight must be a whole number from 1 to 1000")]
    Weight,
    #[error("the qos must be Shared or Dedicated")]
    Qos,
    #[error("a job has name, weight and qos, but no such member")]
    UnknownMember,
    #[error("the jobs must be a list, but this is {0}")]
    NotAList(&'static str),
    #[error("the object has no member jobs")]
    NoJobs,
    #[error("the member is there twice")]
    Twice,
    #[error("there is more than one YAML document; only one is allowed")]
    SeveralDocuments,
    #[error("the YAML has too many aliases or levels")]
    TooComplex,
    #[error("this cannot be read as YAML: {0}")]
    Yaml(String),
}

/// What looks like a number or a constant can be a name in quotes.
fn quote_hint(kind: &str) -> &'static str {
    match kind {
        "a list" | "an object" | "empty" => "",
        _ => "; write a name in quotes",
    }
}

/// A quotation at the end of a message, without control characters.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}
