//! A request of kube-scheduler: the pod and the candidate nodes.
//!
//! Parses the body once and borrows from it. The pod is reduced to what agents read; a full node stays as JSON text,
//! since parsing 5,000 typed nodes costs more than any decision about them. Only the node's name is read, and nothing
//! else must be.
//!
//! If a key occurs twice, the last one counts, as in Go. The first `metadata.name` of a full node
//! counts, however, since the search ends there. Keys are compared without regard to ASCII case.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::WireError;
use super::pod::WirePod;
use ganglion_placement_plan::question::PlacedPod;

/// Maximum number of candidates in a request.
pub const MAX_NODES: usize = 100_000;

/// A parsed `ExtenderArgs`, the request for both verbs.
#[derive(Debug)]
pub struct ExtenderRequest<'a> {
    pub pod: PlacedPod,
    pub candidates: CandidateNodes<'a>,
}

/// Candidate nodes of the pod. Their names are not necessarily distinct.
#[derive(Clone, Debug)]
pub enum CandidateNodes<'a> {
    /// The extender is configured with `nodeCacheCapable: true`.
    Names(Vec<Cow<'a, str>>),
    /// The extender is configured with `nodeCacheCapable: false`.
    Nodes(Vec<FullNode<'a>>),
}

/// A node as the scheduler sent it.
#[derive(Clone, Debug)]
pub struct FullNode<'a> {
    pub name: Cow<'a, str>,
    /// Original JSON text, which a filter reply returns.
    pub raw: &'a RawValue,
}

impl<'a> ExtenderRequest<'a> {
    /// Parses a body with up to `max_nodes` candidates, usually [`MAX_NODES`].
    pub fn parse(body: &'a [u8], max_nodes: usize) -> Result<Self, WireError> {
        let args = parse(body, ArgsVisitor { max_nodes, reads_pod: true })?;
        let Some(WirePod(pod)) = args.pod else { return Err(WireError::NoPod) };
        Ok(Self { pod, candidates: candidates(args.nodes, args.names, max_nodes)? })
    }
}

impl<'a> CandidateNodes<'a> {
    /// Parses the candidates of a body, and skips its pod.
    pub fn parse(body: &'a [u8], max_nodes: usize) -> Result<Self, WireError> {
        let args = parse(body, ArgsVisitor { max_nodes, reads_pod: false })?;
        candidates(args.nodes, args.names, max_nodes)
    }
}

/// Parses a whole body.
pub(super) fn parse<'a, V: Visitor<'a>>(body: &'a [u8], visitor: V) -> Result<V::Value, WireError> {
    // Checks the whole text at once: the parser would check only the parts that it reads, and each raw node separately.
    let text = str::from_utf8(body).map_err(|error| WireError::NotUtf8(error.valid_up_to()))?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let args = parser.deserialize_map(visitor).and_then(|args| parser.end().map(|()| args));
    args.map_err(|error| WireError::of_parser(&error))
}

fn candidates<'a>(
    nodes: Option<Bounded<&'a RawValue>>,
    names: Option<Bounded<Name<'a>>>,
    max_nodes: usize,
) -> Result<CandidateNodes<'a>, WireError> {
    match (nodes, names) {
        (Some(_), Some(_)) => Err(WireError::BothNodesAndNames),
        (None, None) => Err(WireError::NeitherNodesNorNames),
        (None, Some(names)) => {
            Ok(CandidateNodes::Names(names.within(max_nodes)?.into_iter().map(|Name(name)| name).collect()))
        }
        (Some(nodes), None) => Ok(CandidateNodes::Nodes(named(nodes.within(max_nodes)?)?)),
    }
}

impl CandidateNodes<'_> {
    /// Number of candidates.
    pub fn len(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Nodes(nodes) => nodes.len(),
        }
    }

    /// Whether there are no candidates.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of the candidates, in the order of the request.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        // One of both lists is empty.
        let (names, nodes): (&[Cow<'_, str>], &[FullNode<'_>]) = match self {
            Self::Names(names) => (names, &[]),
            Self::Nodes(nodes) => (&[], nodes),
        };
        names.iter().map(AsRef::as_ref).chain(nodes.iter().map(|node| node.name.as_ref()))
    }
}

/// Reads the names of full nodes.
fn named(nodes: Vec<&RawValue>) -> Result<Vec<FullNode<'_>>, WireError> {
    let named = nodes.into_iter().enumerate().map(|(at, raw)| {
        let name = node_name(raw).filter(|name| !name.is_empty());
        let name = name.ok_or(WireError::NoNodeName(at.saturating_add(1)))?;
        Ok(FullNode { name, raw })
    });
    named.collect()
}

/// Reads the first `metadata.name` of a node.
fn node_name(raw: &RawValue) -> Option<Cow<'_, str>> {
    let mut name = None;
    let mut parser = serde_json::Deserializer::from_str(raw.get());
    // The search returns an error to end early, since parsing the rest would take most of the time. The text is valid
    // JSON already.
    let _ = FindName { name: &mut name, path: &[MemberKey::Metadata, MemberKey::Name] }.deserialize(&mut parser);
    name
}

/// A key of the protocol, in any letter case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberKey {
    Pod,
    Nodes,
    NodeNames,
    Items,
    Metadata,
    Name,
    /// `NodeNameToMetaVictims` or `NodeNameToVictims`.
    Victims,
    Pods,
    Uid,
    Violations,
    Other,
}

impl<'de> Deserialize<'de> for MemberKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = MemberKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<MemberKey, E> {
        let keys = [
            ("Pod", MemberKey::Pod),
            ("Nodes", MemberKey::Nodes),
            ("NodeNames", MemberKey::NodeNames),
            ("items", MemberKey::Items),
            ("metadata", MemberKey::Metadata),
            ("name", MemberKey::Name),
            ("NodeNameToMetaVictims", MemberKey::Victims),
            ("NodeNameToVictims", MemberKey::Victims),
            ("Pods", MemberKey::Pods),
            ("UID", MemberKey::Uid),
            ("NumPDBViolations", MemberKey::Violations),
        ];
        let found = keys.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        Ok(found.map_or(MemberKey::Other, |(_, key)| key))
    }
}

/// Members of `ExtenderArgs`; None if missing or null.
#[derive(Default)]
struct Args<'a> {
    pod: Option<WirePod>,
    nodes: Option<Bounded<&'a RawValue>>,
    names: Option<Bounded<Name<'a>>>,
}

struct ArgsVisitor {
    max_nodes: usize,
    reads_pod: bool,
}

impl<'de> Visitor<'de> for ArgsVisitor {
    type Value = Args<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with Pod and either Nodes or NodeNames")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Args<'de>, A::Error> {
        let mut args = Args::default();
        while let Some(key) = members.next_key::<MemberKey>()? {
            match key {
                MemberKey::Pod if self.reads_pod => args.pod = members.next_value()?,
                MemberKey::Nodes => args.nodes = members.next_value_seed(NodeList { max: self.max_nodes })?,
                MemberKey::NodeNames => args.names = members.next_value_seed(List::new(self.max_nodes))?,
                // Skipped without recursion at any depth.
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(args)
    }
}

/// Reads the `items` of a `NodeList`. Go may encode an empty list as null, so a `NodeList` without items is an empty
/// list.
struct NodeList {
    max: usize,
}

impl<'de> DeserializeSeed<'de> for NodeList {
    type Value = Option<Bounded<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeList {
    type Value = Option<Bounded<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a NodeList or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut items = None;
        while let Some(key) = members.next_key::<MemberKey>()? {
            if key == MemberKey::Items {
                items = members.next_value_seed(List::new(self.max))?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Some(items.unwrap_or_default()))
    }
}

/// The first elements of a list and its length. The elements are bounded, since a short body can contain millions of
/// them.
struct Bounded<T> {
    kept: Vec<T>,
    count: usize,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<T> Bounded<T> {
    fn within(self, max: usize) -> Result<Vec<T>, WireError> {
        if self.count > max { Err(WireError::TooManyNodes { count: self.count, max }) } else { Ok(self.kept) }
    }
}

/// Reads a list or null, and stores up to `max` elements.
struct List<T> {
    max: usize,
    elements: PhantomData<T>,
}

impl<T> List<T> {
    fn new(max: usize) -> Self {
        Self { max, elements: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for List<T> {
    type Value = Option<Bounded<T>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Option<Bounded<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Bounded::default();
        loop {
            if list.count < self.max {
                let Some(element) = elements.next_element()? else { break };
                list.kept.push(element);
            } else if elements.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
            list.count = list.count.saturating_add(1);
        }
        Ok(Some(list))
    }
}

/// Name of a node, borrowed unless the text has escapes. serde never borrows a plain `Cow` in a list.
pub(super) struct Name<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a node")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// Stores the string at a path of keys and then fails, so that the rest is not parsed.
struct FindName<'s, 'de> {
    name: &'s mut Option<Cow<'de, str>>,
    path: &'static [MemberKey],
}

impl<'de> DeserializeSeed<'de> for FindName<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            let Name(name) = Name::deserialize(deserializer)?;
            *self.name = Some(name);
            return Err(D::Error::custom("found"));
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FindName<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Some((wanted, rest)) = self.path.split_first() else { return Ok(()) };
        while let Some(key) = members.next_key::<MemberKey>()? {
            if key == *wanted {
                members.next_value_seed(FindName { name: &mut *self.name, path: rest })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}
