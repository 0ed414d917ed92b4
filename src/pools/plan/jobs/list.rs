//! Parses jobs from a YAML or JSON list. Names are strings: values that YAML reads as a number, a boolean or null need
//! quotes.

use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use serde_saphyr::{Error, Location, Spanned};

use super::Job;
use super::name;
use super::node::{Node, Shape};
use super::problem::{Fault, JobsProblem, Place};
use crate::yaml;

const MOST_WEIGHT: u64 = 1000;

/// Parses the jobs of such a text.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let document: Spanned<Node<Document>> =
        serde_saphyr::from_str_with_options(text, yaml::options()).map_err(|error| broken(text, &error))?;
    let Node(Document(found)) = document.value;
    found.map_err(|flaw| {
        let at = flaw.at.unwrap_or(document.referenced);
        let shown = flaw.text.as_deref().unwrap_or_else(|| text_at(text, &at));
        JobsProblem::new(Place { line: at.line().max(1), item: flaw.item }, flaw.fault, shown)
    })
}

/// Problem of a text that is not YAML, or is too complex.
fn broken(text: &str, error: &Error) -> JobsProblem {
    let line = error.location().map_or(1, |at| at.line().max(1));
    let mut cause = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = cause {
        cause = error;
    }
    let fault = match cause {
        Error::DuplicateMappingKey { .. } => Fault::Twice,
        Error::MultipleDocuments { .. } => Fault::SeveralDocuments,
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => Fault::TooComplex,
        other => {
            let message = other.to_string();
            Fault::Yaml(message.split(" at line ").next().unwrap_or_default().to_owned())
        }
    };
    let shown = usize::try_from(line - 1).ok().and_then(|before| text.lines().nth(before)).unwrap_or_default();
    JobsProblem::new(Place { line, item: None }, fault, shown.trim())
}

/// Text at a location: the scalar, or the rest of the line.
fn text_at<'a>(text: &'a str, at: &Location) -> &'a str {
    let (span, whole) = (at.span(), |number| usize::try_from(number).ok());
    let Some(rest) = span.byte_offset().and_then(whole).and_then(|start| text.get(start..)) else { return "" };
    // For a list or an object, the location is only its beginning.
    let length = span.byte_len().and_then(whole).filter(|_| !rest.starts_with(['[', '{', '-']));
    let scalar = length.and_then(|length| rest.get(..length)).filter(|scalar| !scalar.is_empty());
    scalar.unwrap_or_else(|| rest.lines().next().unwrap_or_default()).trim()
}

/// Error in a document that is valid YAML.
struct Flaw {
    fault: Fault,
    item: Option<usize>,
    /// Location of the error; None for the whole document.
    at: Option<Location>,
    /// Text to quote; None for the text at the location.
    text: Option<String>,
}

impl From<Fault> for Flaw {
    fn from(fault: Fault) -> Self {
        Self { fault, item: None, at: None, text: None }
    }
}

impl Flaw {
    /// Sets the location of the error, unless a more precise one is set.
    fn within(mut self, part: Location) -> Self {
        self.at = self.at.or(Some(part));
        self
    }
}

/// A list of jobs, or an object with such a list.
struct Document(Result<Vec<Job>, Flaw>);

impl Shape for Document {
    fn other(kind: &'static str) -> Self {
        let List(found) = List::other(kind);
        Self(found)
    }

    fn list<'de, A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        List::list(items).map(|List(found)| Self(found))
    }

    fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error> {
        let mut found = Err(Fault::NoJobs.into());
        while let Some(member) = members.next_key::<String>()? {
            if member == "jobs" {
                let jobs: Spanned<Node<List>> = members.next_value()?;
                let Node(List(list)) = jobs.value;
                found = list.map_err(|flaw| flaw.within(jobs.referenced));
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Self(found))
    }
}

/// A list of jobs; null is an empty list.
struct List(Result<Vec<Job>, Flaw>);

impl Shape for List {
    fn other(kind: &'static str) -> Self {
        Self(if kind == "empty" { Ok(Vec::new()) } else { Err(Fault::NotAList(kind).into()) })
    }

    fn list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut jobs = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Node<Item>>>()? {
            let Node(Item(found)) = item.value;
            match found {
                Ok(job) => jobs.push(job),
                Err(flaw) => {
                    while items.next_element::<IgnoredAny>()?.is_some() {}
                    let item_number = Some(jobs.len() + 1);
                    return Ok(Self(Err(Flaw { item: item_number, ..flaw.within(item.referenced) })));
                }
            }
        }
        Ok(Self(Ok(jobs)))
    }
}

/// A job: a name or an object.
struct Item(Result<Job, Flaw>);

impl Shape for Item {
    fn other(kind: &'static str) -> Self {
        Self(Err(Fault::NotAJob(kind).into()))
    }

    fn text(text: &str) -> Self {
        let named = || Job { name: text.into(), weight: 1, dedicated: false };
        Self(name::check(text).map(|()| named()).map_err(|fault| Flaw { text: Some(text.to_owned()), ..fault.into() }))
    }

    fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error> {
        let (mut job, mut flaw) = (Job { name: "".into(), weight: 1, dedicated: false }, None);
        let mut is_named = false;
        while let Some(member) = members.next_key::<String>()? {
            let value: Spanned<Node<Value>> = members.next_value()?;
            let Node(Value(found)) = &value.value;
            is_named |= member == "name";
            let fault = set(&mut job, &member, found).err();
            flaw = flaw.or(fault.map(|fault| fault.within(value.referenced)));
        }
        let unnamed = || (!is_named).then(|| Fault::NoName.into());
        Ok(Self(flaw.or_else(unnamed).map_or(Ok(job), Err)))
    }
}

/// Sets a field of a job.
fn set(job: &mut Job, member: &str, value: &Found) -> Result<(), Flaw> {
    match (member, value) {
        ("name", Found::Text(name)) => {
            name::check(name).map_err(|fault| Flaw { text: Some(name.clone()), ..fault.into() })?;
            job.name = name.as_str().into();
        }
        ("name", Found::Whole(_)) => return Err(Fault::NotAName("a number").into()),
        ("name", Found::Other(kind)) => return Err(Fault::NotAName(kind).into()),
        ("weight", Found::Whole(weight)) if (1..=MOST_WEIGHT).contains(weight) => {
            job.weight = u32::try_from(*weight).unwrap_or(1);
        }
        ("weight", _) => return Err(Fault::Weight.into()),
        ("qos", Found::Text(qos)) if qos == "Dedicated" => job.dedicated = true,
        ("qos", Found::Text(qos)) if qos == "Shared" => job.dedicated = false,
        ("qos", _) => return Err(Fault::Qos.into()),
        _ => return Err(Flaw { text: Some(member.to_owned()), ..Fault::UnknownMember.into() }),
    }
    Ok(())
}

/// Value of a field of a job.
struct Value(Found);

enum Found {
    Text(String),
    Whole(u64),
    Other(&'static str),
}

impl Shape for Value {
    fn other(kind: &'static str) -> Self {
        Self(Found::Other(kind))
    }

    fn text(text: &str) -> Self {
        Self(Found::Text(text.to_owned()))
    }

    fn whole(number: u64) -> Self {
        Self(Found::Whole(number))
    }
}
