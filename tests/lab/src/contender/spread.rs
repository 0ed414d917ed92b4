//! PodTopologySpread with the default constraints of kube-scheduler, by its published formula (`scoring.go` in
//! `pkg/scheduler/framework/plugins/podtopologyspread` of Kubernetes).
//!
//! The constraints apply to replicas of a service; kube-scheduler finds no selector for the pods of a job. A site is a
//! zone.

use std::collections::BTreeMap;

use crate::cluster::{LabNode, PodRequest};

/// Weight of the plugin in the default profile.
const WEIGHT: f64 = 2.0;

/// `maxSkew` of the constraint on zones, and of the one on nodes.
const ZONE_SKEW: f64 = 5.0;
const NODE_SKEW: f64 = 3.0;

/// Weighted points of each candidate, 0 to 200. `candidates`: indexes of the nodes that have passed all filters.
pub fn spread_points(pod: &PodRequest, candidates: &[usize], nodes: &[LabNode]) -> Vec<f64> {
    let Some(service) = pod.service else { return vec![0.0; candidates.len()] };
    let mut zones: BTreeMap<usize, usize> =
        candidates.iter().map(|candidate| (nodes[*candidate].server.site, 0)).collect();
    for node in nodes {
        if let Some(replicas) = zones.get_mut(&node.server.site) {
            *replicas += node.replicas_of(service);
        }
    }
    let (in_nodes, in_zones) = (domain_weight(candidates.len()), domain_weight(zones.len()));
    let skew = |candidate: &usize| {
        let node = &nodes[*candidate];
        let zone = zones.get(&node.server.site).copied().unwrap_or(0);
        let of_node = node.replicas_of(service) as f64 * in_nodes + NODE_SKEW - 1.0;
        let of_zone = zone as f64 * in_zones + ZONE_SKEW - 1.0;
        (of_node + of_zone).round()
    };
    let skews: Vec<f64> = candidates.iter().map(skew).collect();
    let (least, most) =
        skews.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), skew| (least.min(*skew), most.max(*skew)));
    skews.iter().map(|skew| WEIGHT * (100.0 * (most + least - skew) / most).floor()).collect()
}

/// Weight of a replica in a domain, if there are this many domains: few domains have many replicas each.
fn domain_weight(domains: usize) -> f64 {
    (domains as f64 + 2.0).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::node;

    const REPLICA: PodRequest = PodRequest { pod: 9, service: Some(1), cpu: 1.0, memory: 1.0 };

    /// Nodes with these sites, and with this many replicas of the service.
    fn nodes(sites: &[(usize, usize)]) -> Vec<LabNode> {
        let with_replicas = |(site, replicas): &(usize, usize)| {
            let mut node = node(10.0);
            node.server.site = *site;
            (0..*replicas).for_each(|pod| node.bind(&PodRequest { pod, ..REPLICA }, 0));
            node.bind(&PodRequest { pod: 100, service: Some(2), ..REPLICA }, 0);
            node
        };
        sites.iter().map(with_replicas).collect()
    }

    /// Computed by hand. The zone adds 3 ln 3 + 4; the nodes, (2, 1, 0) ln 5 + 2: rounded 13, 11 and 9. That is 900/13,
    /// 1100/13 and 1300/13 of 100 points.
    #[test]
    fn a_node_with_fewer_replicas_has_more_points() {
        let nodes = nodes(&[(0, 2), (0, 1), (0, 0)]);
        assert_eq!(spread_points(&REPLICA, &[0, 1, 2], &nodes), [138.0, 168.0, 200.0]);
    }

    /// Computed by hand. Zones add ln 4 + 4 and 4, nodes ln 5 + 2, 2 and 2: rounded 9, 7 and 6. That is 600/9, 800/9
    /// and 900/9 of 100 points.
    #[test]
    fn a_zone_with_fewer_replicas_has_more_points() {
        let nodes = nodes(&[(0, 1), (0, 0), (1, 0)]);
        assert_eq!(spread_points(&REPLICA, &[0, 1, 2], &nodes), [132.0, 176.0, 200.0]);
    }

    /// Computed by hand. The full node counts for its zone, not for the weight of nodes: 7 ln 3 + 4, and
    /// (1, 0) ln 4 + 2 give 15 and 14. That is 1400/15 and 1500/15 of 100 points.
    #[test]
    fn a_full_node_counts_for_its_zone() {
        let nodes = nodes(&[(0, 6), (0, 1), (0, 0)]);
        assert_eq!(spread_points(&REPLICA, &[1, 2], &nodes), [186.0, 200.0]);
    }

    #[test]
    fn jobs_are_not_spread() {
        let nodes = nodes(&[(0, 2), (0, 0)]);
        assert_eq!(spread_points(&PodRequest { service: None, ..REPLICA }, &[0, 1], &nodes), [0.0, 0.0]);
    }
}
