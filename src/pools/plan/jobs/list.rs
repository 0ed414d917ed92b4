//! Parses jobs from a YAML or JSON list. Names are strings: values that YAML reads as a number, a boolean or null need
//! quotes.
//!
//! Nodes of any type are deserialized, so that a wrong type is reported in our own words.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, Spanned};

use super::{Job, JobFault, JobsProblem, MAX_JOBS, TextPosition, check_name};
use crate::yaml;

const MAX_WEIGHT: u64 = 1000;

/// Parses the jobs of such a text.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsProblem> {
    let document: Spanned<Node<JobsDocument>> =
        serde_saphyr::from_str_with_options(text, yaml::options()).map_err(|error| broken(text, &error))?;
    let Node(JobsDocument(found)) = document.value;
    found.map_err(|fault| {
        let at = fault.at.unwrap_or(document.referenced);
        let shown = fault.text.as_deref().unwrap_or_else(|| text_at(text, &at));
        JobsProblem::new(TextPosition { line: at.line().max(1), item: fault.item }, fault.fault, shown)
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
        Error::DuplicateMappingKey { .. } => JobFault::Twice,
        Error::MultipleDocuments { .. } => JobFault::SeveralDocuments,
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } => JobFault::TooComplex,
        other => {
            let message = other.to_string();
            JobFault::Yaml(message.split(" at line ").next().unwrap_or_default().to_owned())
        }
    };
    let shown = usize::try_from(line - 1).ok().and_then(|before| text.lines().nth(before)).unwrap_or_default();
    JobsProblem::new(TextPosition { line, item: None }, fault, shown.trim())
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
struct DocumentFault {
    fault: JobFault,
    item: Option<usize>,
    /// Location of the error; None for the whole document.
    at: Option<Location>,
    /// Text to quote; None for the text at the location.
    text: Option<String>,
}

impl From<JobFault> for DocumentFault {
    fn from(fault: JobFault) -> Self {
        Self { fault, item: None, at: None, text: None }
    }
}

impl DocumentFault {
    /// Sets the location of the error, unless a more precise one is set.
    fn within(mut self, location: Location) -> Self {
        self.at = self.at.or(Some(location));
        self
    }
}

/// A list of jobs, or an object with such a list.
struct JobsDocument(Result<Vec<Job>, DocumentFault>);

impl Shape for JobsDocument {
    fn other(kind: &'static str) -> Self {
        let JobItems(found) = JobItems::other(kind);
        Self(found)
    }

    fn list<'de, A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error> {
        JobItems::list(items).map(|JobItems(found)| Self(found))
    }

    fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error> {
        let mut jobs_or_fault = Err(JobFault::NoJobs.into());
        while let Some(member) = members.next_key::<String>()? {
            if member == "jobs" {
                let jobs: Spanned<Node<JobItems>> = members.next_value()?;
                let Node(JobItems(list)) = jobs.value;
                jobs_or_fault = list.map_err(|fault| fault.within(jobs.referenced));
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Self(jobs_or_fault))
    }
}

/// A list of jobs; null is an empty list.
struct JobItems(Result<Vec<Job>, DocumentFault>);

impl Shape for JobItems {
    fn other(kind: &'static str) -> Self {
        Self(if kind == "empty" { Ok(Vec::new()) } else { Err(JobFault::NotAList(kind).into()) })
    }

    fn list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut jobs = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Node<JobItem>>>()? {
            let Node(JobItem(found)) = item.value;
            match found {
                Ok(job) if jobs.len() < MAX_JOBS => jobs.push(job),
                found => {
                    let fault = found.err().unwrap_or_else(|| JobFault::TooMany.into());
                    while items.next_element::<IgnoredAny>()?.is_some() {}
                    let item_number = Some(jobs.len() + 1);
                    return Ok(Self(Err(DocumentFault { item: item_number, ..fault.within(item.referenced) })));
                }
            }
        }
        Ok(Self(Ok(jobs)))
    }
}

/// A job: a name or an object.
struct JobItem(Result<Job, DocumentFault>);

impl Shape for JobItem {
    fn other(kind: &'static str) -> Self {
        Self(Err(JobFault::NotAJob(kind).into()))
    }

    fn text(text: &str) -> Self {
        let named = || Job { name: text.into(), weight: 1, dedicated: false };
        Self(
            check_name(text)
                .map(|()| named())
                .map_err(|fault| DocumentFault { text: Some(text.to_owned()), ..fault.into() }),
        )
    }

    fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error> {
        let (mut job, mut first_fault) = (Job { name: "".into(), weight: 1, dedicated: false }, None);
        let mut is_named = false;
        while let Some(member) = members.next_key::<String>()? {
            let value: Spanned<Node<Value>> = members.next_value()?;
            let Node(Value(found)) = &value.value;
            is_named |= member == "name";
            let fault = set_field(&mut job, &member, found).err();
            first_fault = first_fault.or(fault.map(|fault| fault.within(value.referenced)));
        }
        let unnamed = || (!is_named).then(|| JobFault::NoName.into());
        Ok(Self(first_fault.or_else(unnamed).map_or(Ok(job), Err)))
    }
}

/// Sets a field of a job.
fn set_field(job: &mut Job, member: &str, value: &FieldValue) -> Result<(), DocumentFault> {
    match (member, value) {
        ("name", FieldValue::Text(name)) => {
            check_name(name).map_err(|fault| DocumentFault { text: Some(name.clone()), ..fault.into() })?;
            job.name = name.as_str().into();
        }
        ("name", FieldValue::Whole(_)) => return Err(JobFault::NotAName("a number").into()),
        ("name", FieldValue::Other(kind)) => return Err(JobFault::NotAName(kind).into()),
        ("weight", FieldValue::Whole(weight)) if (1..=MAX_WEIGHT).contains(weight) => {
            job.weight = u32::try_from(*weight).unwrap_or(1);
        }
        ("weight", _) => return Err(JobFault::Weight.into()),
        ("qos", FieldValue::Text(qos)) if qos == "Dedicated" => job.dedicated = true,
        ("qos", FieldValue::Text(qos)) if qos == "Shared" => job.dedicated = false,
        ("qos", _) => return Err(JobFault::Qos.into()),
        _ => return Err(DocumentFault { text: Some(member.to_owned()), ..JobFault::UnknownMember.into() }),
    }
    Ok(())
}

/// Value of a field of a job.
struct Value(FieldValue);

enum FieldValue {
    Text(String),
    Whole(u64),
    Other(&'static str),
}

impl Shape for Value {
    fn other(kind: &'static str) -> Self {
        Self(FieldValue::Other(kind))
    }

    fn text(text: &str) -> Self {
        Self(FieldValue::Text(text.to_owned()))
    }

    fn whole(number: u64) -> Self {
        Self(FieldValue::Whole(number))
    }
}

/// A value that can be made from any node. The default for each kind of node is `other`.
pub trait Shape: Sized {
    /// Makes a value from a node of this kind, such as `a number`; `empty` is null.
    fn other(kind: &'static str) -> Self;

    fn text(_: &str) -> Self {
        Self::other("a text")
    }

    fn whole(_: u64) -> Self {
        Self::other("a number")
    }

    fn list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::other("a list"))
    }

    fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::other("an object"))
    }
}

/// Deserializes any node as `T`.
pub struct Node<T>(pub T);

impl<'de, T: Shape> Deserialize<'de> for Node<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(PhantomData)).map(Self)
    }
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Shape> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::whole(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_i128<E>(self, _: i128) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_u128<E>(self, _: u128) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::other("true or false"))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::other("empty"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::list(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::object(members)
    }
}
