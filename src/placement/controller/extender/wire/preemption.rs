//! A preemption request of kube-scheduler: the pod, and for each node that would fit it the pods to preempt there.
//!
//! The scheduler sends uids (`NodeNameToMetaVictims`) or, with `nodeCacheCapable: false`, whole pods
//! (`NodeNameToVictims`); of these, only the uid is read. As in Go, keys are compared without regard to ASCII case, and
//! the last one counts if a key occurs twice.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::WireError;
use super::pod::WirePod;
use super::request::{MemberKey, Name, parse};
use ganglion_placement_plan::preempted::PreemptionNode;
use ganglion_placement_plan::question::PlacedPod;

/// Maximum number of pods to preempt in a request.
pub const MAX_VICTIMS: usize = 100_000;

/// A parsed `ExtenderPreemptionArgs`.
#[derive(Debug)]
pub struct PreemptionRequest<'a> {
    /// None if it was not to be read.
    pub pod: Option<PlacedPod>,
    pub nodes: Vec<PreemptionNode<'a>>,
}

impl<'a> PreemptionRequest<'a> {
    /// Parses a body with up to `max_nodes` nodes and `max_victims` pods to preempt, usually
    /// [`MAX_NODES`](super::MAX_NODES) and [`MAX_VICTIMS`]. The pod is skipped unless `reads_pod` is true.
    pub fn parse(body: &'a [u8], max_nodes: usize, max_victims: usize, reads_pod: bool) -> Result<Self, WireError> {
        let (victims, exceeded) = (Cell::new(0), Cell::new(None));
        let limits = PreemptionLimits { max_nodes, max_victims, victims, exceeded };
        let args = parse(body, PreemptionVisitor { limits: &limits, reads_pod });
        let PreemptionArgs { pod, nodes } = args.map_err(|error| limits.exceeded.take().unwrap_or(error))?;
        let pod = pod.map(|WirePod(pod)| pod);
        if reads_pod && pod.is_none() {
            return Err(WireError::NoPod);
        }
        Ok(Self { pod, nodes: nodes.ok_or(WireError::NoVictims)? })
    }
}

/// Limits of one request.
struct PreemptionLimits {
    max_nodes: usize,
    max_victims: usize,
    /// Number of pods to preempt that were read.
    victims: Cell<usize>,
    /// The exceeded limit, which ends the parsing.
    exceeded: Cell<Option<WireError>>,
}

#[derive(Default)]
struct PreemptionArgs<'a> {
    pod: Option<WirePod>,
    nodes: Option<Vec<PreemptionNode<'a>>>,
}

struct PreemptionVisitor<'l> {
    limits: &'l PreemptionLimits,
    reads_pod: bool,
}

impl<'de> Visitor<'de> for PreemptionVisitor<'_> {
    type Value = PreemptionArgs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with Pod and either NodeNameToMetaVictims or NodeNameToVictims")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<PreemptionArgs<'de>, A::Error> {
        let mut args = PreemptionArgs::default();
        while let Some(key) = members.next_key::<MemberKey>()? {
            match key {
                MemberKey::Pod if self.reads_pod => args.pod = members.next_value()?,
                // One of both is null.
                MemberKey::Victims => {
                    args.nodes = members.next_value_seed(PreemptionNodes(self.limits))?.or(args.nodes)
                }
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(args)
    }
}

/// Reads nodes by name, or null.
struct PreemptionNodes<'l>(&'l PreemptionLimits);

impl<'de> DeserializeSeed<'de> for PreemptionNodes<'_> {
    type Value = Option<Vec<PreemptionNode<'de>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PreemptionNodes<'_> {
    type Value = Option<Vec<PreemptionNode<'de>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nodes by name, or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(Name(name)) = members.next_key()? {
            if nodes.len() >= self.0.max_nodes {
                let (count, max) = (nodes.len() + 1, self.0.max_nodes);
                self.0.exceeded.set(Some(WireError::TooManyNodes { count, max }));
                return Err(A::Error::custom("too many nodes"));
            }
            let node = members.next_value_seed(NodeVictims(self.0))?.unwrap_or_default();
            nodes.push(PreemptionNode { name, ..node });
        }
        Ok(Some(nodes))
    }
}

/// Reads `Victims` or `MetaVictims`, or null.
struct NodeVictims<'l>(&'l PreemptionLimits);

impl<'de> DeserializeSeed<'de> for NodeVictims<'_> {
    type Value = Option<PreemptionNode<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeVictims<'_> {
    type Value = Option<PreemptionNode<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pods to preempt on a node, or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut node = PreemptionNode::default();
        while let Some(key) = members.next_key::<MemberKey>()? {
            match key {
                MemberKey::Pods => node.uids = members.next_value_seed(VictimUids(self.0))?,
                MemberKey::Violations => node.violations = members.next_value()?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Some(node))
    }
}

/// Reads a list of pods or null.
struct VictimUids<'l>(&'l PreemptionLimits);

impl<'de> DeserializeSeed<'de> for VictimUids<'_> {
    type Value = Vec<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for VictimUids<'_> {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pods or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pods: A) -> Result<Self::Value, A::Error> {
        let mut uids = Vec::new();
        while let Some(Victim(uid)) = pods.next_element()? {
            if self.0.victims.get() >= self.0.max_victims {
                self.0.exceeded.set(Some(WireError::TooManyVictims(self.0.max_victims)));
                return Err(A::Error::custom("too many pods"));
            }
            self.0.victims.set(self.0.victims.get() + 1);
            uids.push(uid);
        }
        Ok(uids)
    }
}

/// Uid of a `MetaPod` (`UID`) or of a pod (`metadata.uid`). Also reads the metadata.
struct Victim<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Victim<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(VictimVisitor)
    }
}

struct VictimVisitor;

impl<'de> Visitor<'de> for VictimVisitor {
    type Value = Victim<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pod with a uid")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Victim<'de>, A::Error> {
        let mut uid = None;
        while let Some(key) = members.next_key::<MemberKey>()? {
            match key {
                MemberKey::Uid => uid = Some(members.next_value::<Name<'de>>()?.0),
                MemberKey::Metadata => uid = Some(members.next_value::<Victim<'de>>()?.0),
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        uid.map(Victim).ok_or_else(|| A::Error::custom("no uid"))
    }
}
