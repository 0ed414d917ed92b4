//! Tests of the agent `podSpread`: its vectors, and the choice of areas.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde::Deserialize;

use super::congestion::text;
use super::vectors;
use crate::pod_spread::{Spread, SpreadMode, SpreadNode, SpreadRejection, SpreadRequest, rate, spread};

#[derive(Deserialize)]
struct Vector {
    id: String,
    replicas: u32,
    rate: f64,
    tolerates_control_plane: bool,
    nodes: BTreeMap<String, Node>,
    feasible: Vec<String>,
    expected: Expected,
}

#[derive(Deserialize)]
struct Node {
    region: Option<String>,
    zone: Option<String>,
    control_plane: bool,
    replicaset_pods: u32,
}

#[derive(Deserialize)]
struct Expected {
    redundancy: u32,
    deployed: u32,
    mode: String,
    allowed: Vec<String>,
}

fn allowed<'a>(nodes: &[SpreadNode<'a>], spread: &Spread) -> Vec<&'a str> {
    assert_eq!(nodes.len(), spread.rejections.len());
    let all = nodes.iter().zip(&spread.rejections).filter(|(node, rejection)| node.feasible && rejection.is_none());
    all.map(|(node, _)| node.name).collect()
}

#[test]
fn vectors_are_met() {
    for Vector { id, replicas, rate, tolerates_control_plane, nodes, feasible, expected } in vectors("podspread") {
        let node = |(name, node): (&'static str, Node)| SpreadNode {
            name,
            region: node.region.map(|region| &*region.leak()),
            zone: node.zone.map(|zone| &*zone.leak()),
            control_plane: node.control_plane,
            pods: node.replicaset_pods,
            feasible: feasible.iter().any(|feasible| feasible == name),
        };
        let nodes: Vec<_> = nodes.into_iter().map(|(name, at)| node((name.leak(), at))).collect();
        let spread = spread(SpreadRequest { replicas, rate, tolerates_control_plane, one_area: false }, &nodes);
        assert_eq!((spread.need, spread.have), (expected.redundancy, expected.deployed), "{id}");
        assert_eq!(format!("{:?}", spread.mode), expected.mode, "{id}");
        assert_eq!(allowed(&nodes, &spread), expected.allowed, "{id}");
    }
}

fn in_zone(name: &'static str, zone: Option<&'static str>, pods: u32) -> SpreadNode<'static> {
    SpreadNode { name, zone, pods, feasible: true, ..SpreadNode::default() }
}

const REQUEST: SpreadRequest =
    SpreadRequest { replicas: 10, rate: 1.0, tolerates_control_plane: false, one_area: false };

#[test]
fn areas_without_a_possible_node_do_not_count() {
    let master = SpreadNode { control_plane: true, ..in_zone("m", Some("z1"), 0) };
    let nodes = [master, in_zone("a", Some("z2"), 2), in_zone("b", Some("z3"), 1), in_zone("c", None, 0)];
    let spread = spread(REQUEST, &nodes);
    assert_eq!(allowed(&nodes, &spread), ["b"]);
    let reasons: Vec<_> = spread.rejections.iter().flatten().map(ToString::to_string).collect();
    assert_eq!(
        reasons,
        [
            "control plane node, which the pod does not tolerate",
            "zone z2 has 2 pods of the ReplicaSet, another has 1",
            "no label topology.kubernetes.io/zone",
        ]
    );
}

#[test]
fn all_nodes_are_allowed_once_enough_pods_are_spread() {
    let nodes = [in_zone("a", None, 2), in_zone("b", None, 3)];
    let request = |rate| SpreadRequest { rate, ..REQUEST };
    assert_eq!(allowed(&nodes, &spread(request(0.6), &nodes)), ["a"]);
    assert_eq!(allowed(&nodes, &spread(request(0.5), &nodes)), ["a", "b"]);
}

#[test]
fn one_zone_alone_is_no_choice() {
    let nodes = [in_zone("a", Some("z"), 1), in_zone("b", Some("z"), 0), in_zone("c", None, 0)];
    let spread = spread(REQUEST, &nodes);
    assert_eq!((spread.mode, allowed(&nodes, &spread)), (SpreadMode::Node, vec!["b", "c"]));
}

#[test]
fn a_control_plane_is_used_where_it_is_tolerated() {
    let nodes = [SpreadNode { control_plane: true, ..in_zone("m", None, 0) }, in_zone("a", None, 1)];
    let request = SpreadRequest { tolerates_control_plane: true, ..REQUEST };
    assert_eq!(allowed(&nodes, &spread(request, &nodes)), ["m"]);
}

#[test]
fn regions_go_before_zones() {
    let in_region = |name, region, zone, pods| SpreadNode { region: Some(region), ..in_zone(name, Some(zone), pods) };
    let nodes = [in_region("a", "r1", "z1", 0), in_region("b", "r1", "z2", 3), in_region("c", "r2", "z3", 2)];
    let spread = spread(REQUEST, &nodes);
    assert_eq!(spread.mode, SpreadMode::Region);
    assert_eq!(allowed(&nodes, &spread), ["c"]);
    let fuller = SpreadRejection::Fuller { mode: SpreadMode::Region, area: "r1".to_owned(), pods: 3, fewest: 2 };
    assert_eq!(spread.rejections[0], Some(fuller));
}

#[rstest]
#[case(100, 0.29, 29)]
#[case(5, 0.5, 2)]
#[case(3, 0.0, 0)]
#[case(7, 1.0, 7)]
#[case(7, f64::NAN, 0)]
fn the_part_is_of_the_replicas(#[case] replicas: u32, #[case] rate: f64, #[case] need: u32) {
    let nodes = [in_zone("a", None, 0)];
    assert_eq!(spread(SpreadRequest { replicas, rate, ..REQUEST }, &nodes).need, need);
}

fn node() -> impl Strategy<Value = SpreadNode<'static>> {
    let label = || prop::option::of(prop::sample::select(vec!["x", "y", "z"]));
    (label(), label(), any::<bool>(), 0..4_u32, any::<bool>()).prop_map(
        |(region, zone, control_plane, pods, feasible)| SpreadNode {
            name: "n",
            region,
            zone,
            control_plane,
            pods,
            feasible,
        },
    )
}

proptest! {
    #[test]
    fn some_node_is_left_where_one_is_possible(
        mut nodes in proptest::collection::vec(node(), 0..8),
        replicas in 0..20_u32,
        rate in 0.0..=1.0_f64,
        tolerates_control_plane in any::<bool>(),
    ) {
        const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        nodes.iter_mut().zip(NAMES).for_each(|(node, name)| node.name = name);
        let request = SpreadRequest { replicas, rate, tolerates_control_plane, one_area: false };
        let outcome = spread(request, &nodes);
        let labelled = |node: &SpreadNode<'_>| match outcome.mode {
            SpreadMode::Region => node.region.is_some(),
            SpreadMode::Zone => node.zone.is_some(),
            SpreadMode::Node => true,
        };
        let possible = nodes.iter().any(|node| {
            node.feasible && (tolerates_control_plane || !node.control_plane) && labelled(node)
        });
        if possible {
            prop_assert!(!allowed(&nodes, &outcome).is_empty());
        }
        nodes.reverse();
        let mut other = allowed(&nodes, &spread(request, &nodes));
        other.reverse();
        nodes.reverse();
        prop_assert_eq!(allowed(&nodes, &outcome), other);
    }

    #[test]
    fn only_parts_are_rates(text in text()) {
        prop_assert!(rate(&text).is_none_or(|rate| (0.0..=1.0).contains(&rate)));
    }
}
