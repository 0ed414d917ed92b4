//! Two load-aware plugins of kubernetes-sigs/scheduler-plugins, by their published formulas.
//!
//! TargetLoadPacking replaces the scores by requests, as its documentation configures it; LoadVariationRiskBalancing is
//! added to them with weight 1. Both have PodTopologySpread beside them, and read the mean of a quarter of an hour, as
//! load-watcher provides it.

use anyhow::Result;

use super::spread::spread_points;
use super::stock::{FitStrategy, stock_points};
use crate::cluster::{LabNode, Placer, PodRequest, UsageStatistics};

/// Target of TargetLoadPacking in percent, the default.
const TARGET: f64 = 40.0;

/// Predicted usage of a pod without a limit, relative to its request, the default.
const MULTIPLIER: f64 = 1.5;

/// Interval of the metrics in seconds: pods that were bound later than that before a sample are not in it.
const INTERVAL: i64 = 60;

/// A plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimaranPlugin {
    TargetLoadPacking,
    LoadVariationRiskBalancing,
}

/// The scheduler with a plugin.
#[derive(Debug)]
pub struct TrimaranScheduler(pub TrimaranPlugin);

impl Placer for TrimaranScheduler {
    fn points(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        _: i64,
    ) -> Result<Vec<Option<f64>>> {
        let points = |node: &LabNode| match self.0 {
            TrimaranPlugin::TargetLoadPacking => packing(pod, node),
            TrimaranPlugin::LoadVariationRiskBalancing => {
                balancing(pod, node) + stock_points(FitStrategy::LeastAllocated, pod, node)
            }
        };
        let spread = spread_points(pod, candidates, nodes);
        Ok(candidates.iter().zip(spread).map(|(node, spread)| Some(points(&nodes[*node]) + spread)).collect())
    }
}

/// Score of TargetLoadPacking; 0 without metrics.
fn packing(pod: &PodRequest, node: &LabNode) -> f64 {
    let Some((sampled, usage)) = node.sampled else { return 0.0 };
    let missing = node.bound.iter().filter(|(bound, _)| *bound > sampled - INTERVAL).map(|(_, cpu)| cpu);
    let predicted = MULTIPLIER * (pod.cpu + missing.sum::<f64>());
    packing_score(100.0 * (usage.mean + predicted) / node.threads())
}

/// Score at this predicted usage in percent.
fn packing_score(usage: f64) -> f64 {
    if usage > 100.0 {
        0.0
    } else if usage > TARGET {
        (TARGET * (100.0 - usage) / (100.0 - TARGET)).round()
    } else {
        ((100.0 - TARGET) * usage / TARGET + TARGET).round()
    }
}

/// Score of LoadVariationRiskBalancing: the worse of CPU and memory; 0 without metrics.
fn balancing(pod: &PodRequest, node: &LabNode) -> f64 {
    let Some((_, usage)) = node.sampled else { return 0.0 };
    let memory = risk_score(node.memory_usage, pod.memory, node.memory());
    risk_score(usage, pod.cpu, node.threads()).min(memory).round()
}

/// Score of a resource, not rounded, with the default margin 1 and sensitivity 1.
fn risk_score(usage: UsageStatistics, request: f64, capacity: f64) -> f64 {
    if capacity <= 0.0 {
        return 0.0;
    }
    let mean = usage.mean.clamp(0.0, capacity);
    let deviation = usage.deviation.clamp(0.0, capacity);
    let mu = ((mean + request.max(0.0)) / capacity).clamp(0.0, 1.0);
    let sigma = (deviation / capacity).clamp(0.0, 1.0);
    (1.0 - f64::midpoint(mu, sigma)) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::node;

    /// Cases of `targetloadpacking_test.go`: a new node has the target, a node at 50 % has 33, one beyond 100 % has 0.
    #[test]
    fn packing_scores_are_those_of_the_published_tests() {
        assert_eq!([0.0, 50.0, 130.0].map(packing_score), [40.0, 33.0, 0.0]);
        assert_eq!([20.0, 40.0, 100.0].map(packing_score), [70.0, 100.0, 0.0]);
    }

    /// Cases of `analysis_test.go` and `loadvariationriskbalancing_test.go` with sensitivity 1.
    #[test]
    fn risk_scores_are_those_of_the_published_tests() {
        let score = |mean, deviation, request, capacity| {
            risk_score(UsageStatistics { mean, deviation }, request, capacity).round()
        };
        assert_eq!(score(40.0, 36.0, 10.0, 100.0), 57.0, "valid data");
        assert_eq!(score(40.0, 36.0, 10.0, 0.0), 0.0, "zero capacity");
        assert_eq!(score(500.0, 0.0, 0.0, 1000.0), 75.0, "new node");
        assert_eq!(score(1000.0, 0.0, 0.0, 1000.0), 50.0, "hot node");
        assert_eq!(score(300.0, 160.0, 200.0, 1000.0), 67.0, "average and stDev metrics");
        // "CPU and Memory metrics": the worse of 67 for CPU and 45 for memory.
        assert_eq!(score(400.0, 160.0, 100.0, 1000.0), 67.0);
        assert_eq!(score(512.0, 102.4, 512.0, 1024.0), 45.0);
    }

    #[test]
    fn pods_that_metrics_do_not_show_count() {
        let mut target = node(10.0);
        target.sampled = Some((120, UsageStatistics { mean: 1.0, deviation: 0.0 }));
        let pod = PodRequest { pod: 0, service: None, cpu: 1.0, memory: 1.0 };
        // 25 % of the node: 60 * 25 / 40 + 40.
        assert_eq!(packing(&pod, &target), 78.0);
        target.bound.push_back((60, 1.0));
        assert_eq!(packing(&pod, &target), 78.0, "bound a minute before the sample");
        target.bound.push_back((61, 1.0));
        assert_eq!(packing(&pod, &target), 100.0, "40 % of the node");
        target.sampled = None;
        assert_eq!(packing(&pod, &target), 0.0);
    }
}
