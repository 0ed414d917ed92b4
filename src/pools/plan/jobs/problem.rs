//! Describes an error in the text of a source to the person who wrote it: the place, the expectation, and the actual
//! text.

use std::fmt;

/// Maximum number of characters that a message quotes.
const QUOTED_CHARACTERS: usize = 60;

/// Error that makes the whole text invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}{}", Quoted(text))]
pub struct JobsProblem {
    pub place: Place,
    pub fault: Fault,
    /// Beginning of the wrong text; empty if there is nothing to quote.
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

/// Place in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: u64,
    /// Number of the item of the list.
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

/// Kind of an error.
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
    #[error("unknown field; a job has only name, weight and qos")]
    UnknownMember,
    #[error("the jobs must be a list, but this is {0}")]
    NotAList(&'static str),
    #[error("the object has no field jobs")]
    NoJobs,
    #[error("the field is set twice")]
    Twice,
    #[error("there is more than one YAML document; only one is allowed")]
    SeveralDocuments,
    #[error("the YAML has too many aliases or levels")]
    TooComplex,
    #[error("this cannot be read as YAML: {0}")]
    Yaml(String),
}

/// Advice for a number or a constant, which may be meant as a name.
fn quote_hint(kind: &str) -> &'static str {
    match kind {
        "a list" | "an object" | "empty" => "",
        _ => "; write a name in quotes",
    }
}

/// Quotation at the end of a message, with control characters escaped.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.0) }
    }
}
