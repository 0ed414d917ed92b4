//! The agent `podSpread`: spreads a share of a ReplicaSet's pods over regions, zones or nodes. It filters and does not
//! score.
//!
//! It keeps no state: pods are counted again for each pod to place.

use std::collections::{BTreeMap, BTreeSet};

use super::sample::number;

/// Data of a node that the filter reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpreadNode<'a> {
    pub name: &'a str,
    /// The label `topology.kubernetes.io/region`.
    pub region: Option<&'a str>,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: Option<&'a str>,
    pub control_plane: bool,
    /// Number of active pods of the ReplicaSet on the node. Terminating pods do not count.
    pub pods: u32,
    /// Whether the node is a candidate that no other agent has rejected.
    pub feasible: bool,
}

/// Spread options of the pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpreadRequest {
    /// Replicas of the ReplicaSet.
    pub replicas: u32,
    /// Share of the replicas that is spread, 0 to 1.
    pub rate: f64,
    /// Whether the pod tolerates the taint of the control plane.
    pub tolerates_control_plane: bool,
    /// Whether only one of several areas with the fewest pods is allowed, if more pods are to be spread after this one:
    /// they may come before the choice of the scheduler is known.
    pub one_area: bool,
}

/// Topology level that pods are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadMode {
    Region,
    Zone,
    Node,
}

/// Result of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Number of pods to spread.
    pub need: u32,
    /// Number of existing pods.
    pub have: u32,
    pub mode: SpreadMode,
    /// Rejection of each node, in the order of the nodes; None for allowed nodes and for nodes that were not feasible
    /// before.
    pub rejections: Vec<Option<SpreadRejection>>,
}

/// Reason why a node is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpreadRejection {
    /// The node belongs to the control plane, and the pod does not tolerate its taint.
    ControlPlane,
    /// The node has no region or zone.
    NoArea(SpreadMode),
    /// Another region, zone or node has fewer pods.
    Fuller { mode: SpreadMode, area: String, pods: u32, fewest: u32 },
    /// Another region, zone or node has as few pods, and is next.
    Later { mode: SpreadMode, area: String, next: String },
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
            Self::Later { mode, area, next } => {
                write!(f, "{mode} {area} has as few pods of the ReplicaSet as {mode} {next}, which is next")
            }
        }
    }
}

/// Parses a rate; None if it is not a number from 0 to 1.
pub fn rate(text: &str) -> Option<f64> {
    number(text).filter(|rate| (0.0..=1.0).contains(rate))
}

/// Decides which feasible nodes are allowed. Once enough pods exist, all nodes are. Until then, only nodes in the areas
/// with the fewest pods are, among the areas with a feasible node whose taints the pod tolerates. An area is a region,
/// zone or node.
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
    let next = next(&places, fewest).filter(|_| request.one_area && have.saturating_add(1) < need);
    let next = next.map(str::to_owned);
    let rejection = |place: Option<Result<(&str, u32), SpreadRejection>>| match (place?, &next) {
        (Ok((area, pods)), _) if pods > fewest => {
            Some(SpreadRejection::Fuller { mode, area: area.to_owned(), pods, fewest })
        }
        (Ok((area, _)), Some(next)) if area != next => {
            Some(SpreadRejection::Later { mode, area: area.to_owned(), next: next.clone() })
        }
        (Ok(_), _) => None,
        (Err(rejection), _) => Some(rejection),
    };
    Spread { need, have, mode, rejections: places.into_iter().map(rejection).collect() }
}

/// Chooses the area with the most feasible nodes among those with the fewest pods; of several, the first by name.
fn next<'a>(places: &[Option<Result<(&'a str, u32), SpreadRejection>>], fewest: u32) -> Option<&'a str> {
    let mut nodes = BTreeMap::<&str, usize>::new();
    for (area, _) in places.iter().flatten().flatten().filter(|(_, pods)| *pods == fewest) {
        *nodes.entry(area).or_default() += 1;
    }
    nodes.into_iter().max_by_key(|(area, count)| (*count, std::cmp::Reverse(*area))).map(|(area, _)| area)
}

/// Area of a node and the number of pods in the area.
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

/// Number of pods to spread. The addend corrects products that are just below a whole number in binary floating point.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
fn need(replicas: u32, rate: f64) -> u32 {
    (f64::from(replicas) * rate + 1e-9).floor() as u32
}

/// The widest topology level with at least two areas; `Node` if there is none.
fn mode(nodes: &[SpreadNode<'_>]) -> SpreadMode {
    let several =
        |mode: &SpreadMode| nodes.iter().filter_map(|node| mode.area(node)).collect::<BTreeSet<_>>().len() > 1;
    [SpreadMode::Region, SpreadMode::Zone].into_iter().find(several).unwrap_or(SpreadMode::Node)
}

impl SpreadMode {
    /// Area of a node at this topology level.
    fn area<'a>(self, node: &SpreadNode<'a>) -> Option<&'a str> {
        match self {
            Self::Region => node.region,
            Self::Zone => node.zone,
            Self::Node => Some(node.name),
        }
        .filter(|area| !area.is_empty())
    }
}
