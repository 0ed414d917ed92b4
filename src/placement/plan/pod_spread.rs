//! The agent `podSpread`: spreads a part of a ReplicaSet's pods over regions, zones or nodes. A filter, without a score.
//!
//! Without a memory: everything is counted anew for each pod.

use std::collections::{BTreeMap, BTreeSet};

use super::sample::number;

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpreadNode<'a> {
    pub name: &'a str,
    /// The label `topology.kubernetes.io/region`.
    pub region: Option<&'a str>,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<&'a str>,
    pub control_plane: bool,
    /// The scheduled pods of the ReplicaSet on it that are not being deleted.
    pub pods: u32,
    /// The scheduler still considers it for the pod.
    pub feasible: bool,
}

/// The pod's side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpreadRequest {
    /// The replicas of the ReplicaSet.
    pub replicas: u32,
    /// The part of them that is spread, 0 to 1.
    pub rate: f64,
    /// The pod tolerates the taint of the control plane.
    pub tolerates_control_plane: bool,
}

/// What pods are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadMode {
    Region,
    Zone,
    Node,
}

/// Which nodes are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// How many pods are to be spread.
    pub need: u32,
    /// How many pods there are.
    pub have: u32,
    pub mode: SpreadMode,
    /// For each node, in the order given, why it is not allowed; None if it is, and for nodes that were not feasible before.
    pub rejections: Vec<Option<SpreadRejection>>,
}

/// Why a node is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpreadRejection {
    /// It is of the control plane, which the pod does not tolerate.
    ControlPlane,
    /// It is in no region or zone.
    NoArea(SpreadMode),
    /// Another area has fewer pods.
    Fuller { mode: SpreadMode, area: String, pods: u32, fewest: u32 },
}

impl std::fmt::Display for SpreadMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Region => "region",
            Self::Zone => "zone",
            Self::Node => "node",
        })
    }
}

impl std::fmt::Display for SpreadRejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ControlPlane => f.write_str("control plane node, which the pod does not tolerate"),
            Self::NoArea(mode) => write!(f, "no label topology.kubernetes.io/{mode}"),
            Self::Fuller { mode, area, pods, fewest } => {
                write!(f, "{mode} {area} has {pods} pods of the ReplicaSet, another has {fewest}")
            }
        }
    }
}

/// The rate of a text; None if it is none from 0 to 1.
#[must_use]
pub fn rate(text: &str) -> Option<f64> {
    number(text).filter(|rate| (0.0..=1.0).contains(rate))
}

/// Decides which of the feasible nodes are allowed: all, once enough pods are spread; until then those in the areas with the
/// fewest pods, among the areas with a node that the pod can have.
#[must_use]
pub fn spread(request: SpreadRequest, nodes: &[SpreadNode<'_>]) -> Spread {
    let need = need(request.replicas, request.rate);
    let have = nodes.iter().map(|node| node.pods).fold(0, u32::saturating_add);
    let mode = mode(nodes);
    if have >= need {
        return Spread { need, have, mode, rejections: vec![None; nodes.len()] };
    }
    let mut pods = BTreeMap::<&str, u32>::new();
    for (area, node) in nodes.iter().filter_map(|node| Some((mode.area(node)?, node))) {
        let count = pods.entry(area).or_default();
        *count = count.saturating_add(node.pods);
    }
    let places: Vec<_> = nodes
        .iter()
        .map(|node| node.feasible.then(|| place(node, mode, &pods, request.tolerates_control_plane)))
        .collect();
    let fewest = places.iter().flatten().flatten().map(|(_, pods)| *pods).min().unwrap_or_default();
    let rejection = |place: Option<Result<(&str, u32), SpreadRejection>>| match place? {
        Ok((area, pods)) => {
            (pods > fewest).then(|| SpreadRejection::Fuller { mode, area: area.to_owned(), pods, fewest })
        }
        Err(rejection) => Some(rejection),
    };
    Spread { need, have, mode, rejections: places.into_iter().map(rejection).collect() }
}

/// The area of a node that the pod can have, with its pods.
fn place<'a>(
    node: &SpreadNode<'a>,
    mode: SpreadMode,
    pods: &BTreeMap<&str, u32>,
    tolerates_control_plane: bool,
) -> Result<(&'a str, u32), SpreadRejection> {
    if node.control_plane && !tolerates_control_plane {
        return Err(SpreadRejection::ControlPlane);
    }
    let area = mode.area(node).ok_or(SpreadRejection::NoArea(mode))?;
    Ok((area, pods.get(area).copied().unwrap_or_default()))
}

/// How many pods are to be spread. The addend makes up for rates that binary fractions lie just below of.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
fn need(replicas: u32, rate: f64) -> u32 {
    (f64::from(replicas) * rate + 1e-9).floor() as u32
}

/// The widest areas of which there are at least two.
fn mode(nodes: &[SpreadNode<'_>]) -> SpreadMode {
    let several =
        |mode: &SpreadMode| nodes.iter().filter_map(|node| mode.area(node)).collect::<BTreeSet<_>>().len() > 1;
    [SpreadMode::Region, SpreadMode::Zone].into_iter().find(several).unwrap_or(SpreadMode::Node)
}

impl SpreadMode {
    /// The area that a node is in.
    fn area<'a>(self, node: &SpreadNode<'a>) -> Option<&'a str> {
        match self {
            Self::Region => node.region,
            Self::Zone => node.zone,
            Self::Node => Some(node.name),
        }
        .filter(|area| !area.is_empty())
    }
}
