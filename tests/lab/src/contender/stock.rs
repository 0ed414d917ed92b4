//! The scores of kube-scheduler that depend on requests, by their published formulas.
//!
//! NodeResourcesFit with the strategies LeastAllocated and MostAllocated, and NodeResourcesBalancedAllocation, each
//! with weight 1 for CPU and memory (`pkg/scheduler/framework/plugins/noderesources` of Kubernetes 1.36). Other plugins
//! score all nodes of the lab alike, except PodTopologySpread, which is not modeled.

use anyhow::Result;

use crate::cluster::{LabNode, Placer, PodRequest};

/// Strategy of NodeResourcesFit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitStrategy {
    LeastAllocated,
    MostAllocated,
}

/// The default scheduler.
#[derive(Debug)]
pub struct StockScheduler(pub FitStrategy);

impl Placer for StockScheduler {
    fn points(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        _: i64,
    ) -> Result<Vec<Option<f64>>> {
        Ok(candidates.iter().map(|node| Some(stock_points(self.0, pod, &nodes[*node]))).collect())
    }
}

/// Points of both plugins for a node with room for the pod, 0 to 200.
pub fn stock_points(strategy: FitStrategy, pod: &PodRequest, node: &LabNode) -> f64 {
    let cpu = ((node.requested_cpu + pod.cpu) / node.threads()).min(1.0);
    let memory = ((node.requested_memory + pod.memory) / node.memory()).min(1.0);
    fit(strategy, cpu, memory) + balance(cpu, memory)
}

/// Score of NodeResourcesFit for the requested parts of CPU and memory. Each resource is rounded down, and the mean.
fn fit(strategy: FitStrategy, cpu: f64, memory: f64) -> f64 {
    let score = |part: f64| match strategy {
        FitStrategy::LeastAllocated => whole((1.0 - part) * 100.0),
        FitStrategy::MostAllocated => whole(part * 100.0),
    };
    whole(f64::midpoint(score(cpu), score(memory)))
}

/// Score of NodeResourcesBalancedAllocation: the less CPU and memory differ, the better.
fn balance(cpu: f64, memory: f64) -> f64 {
    whole((1.0 - (cpu - memory).abs() / 2.0) * 100.0)
}

/// Rounds down, but not below a whole number that is only missed by the error of a float.
fn whole(score: f64) -> f64 {
    (score + 1e-9).floor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::node;

    /// Values computed by hand from `leastRequestedScore`, `mostRequestedScore` and `balancedResourceScorer` of
    /// Kubernetes, which divide whole numbers.
    #[test]
    fn scores_are_those_of_the_published_formulas() {
        // 3,000m and 5,000 bytes on nodes with 4,000m and 10,000 bytes, and with 6,000m and 10,000 bytes.
        assert_eq!(fit(FitStrategy::LeastAllocated, 0.75, 0.5), 37.0);
        assert_eq!(fit(FitStrategy::LeastAllocated, 0.5, 0.5), 50.0);
        assert_eq!(fit(FitStrategy::MostAllocated, 0.75, 0.5), 62.0);
        assert_eq!(fit(FitStrategy::MostAllocated, 0.5, 0.5), 50.0);
        // Balanced: 0.75 and 0.5 give 87, 0.6 and 0.25 give 82.
        assert_eq!(balance(0.75, 0.5), 87.0);
        assert_eq!(balance(0.6, 0.25), 82.0);
        assert_eq!(balance(0.5, 0.5), 100.0);
    }

    #[test]
    fn least_spreads_and_most_packs() {
        let (mut busy, idle) = (node(10.0), node(10.0));
        (busy.requested_cpu, busy.requested_memory) = (5.0, 20.0);
        let pod = PodRequest { pod: 0, cpu: 1.0, memory: 4.0 };
        let points = |strategy| [&busy, &idle].map(|node| stock_points(strategy, &pod, node));
        assert_eq!(points(FitStrategy::LeastAllocated), [140.0, 190.0]);
        assert_eq!(points(FitStrategy::MostAllocated), [160.0, 110.0]);
    }
}
