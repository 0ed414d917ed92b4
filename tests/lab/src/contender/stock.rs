//! The scores of kube-scheduler that depend on requests, by their published formulas.
//!
//! NodeResourcesFit with the strategies LeastAllocated and MostAllocated, and NodeResourcesBalancedAllocation, each
//! with weight 1 for CPU and memory (`pkg/scheduler/framework/plugins/noderesources` of Kubernetes 1.36).
//! PodTopologySpread is added to them. Other plugins score all nodes of the lab alike. The second ground compares these
//! points with those of a real scheduler.

use anyhow::Result;

use super::spread::spread_points;
use crate::cluster::{LabNode, Placer, PodRequest, bytes, millis};

/// Maximum score of a plugin.
const MAX_SCORE: i64 = 100;

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
        let spread = spread_points(pod, candidates, nodes);
        let points = |(node, spread): (&usize, f64)| Some(stock_points(self.0, pod, &nodes[*node]) + spread);
        Ok(candidates.iter().zip(spread).map(points).collect())
    }
}

/// Points of the plugins that read requests, for a node with room for the pod, 0 to 200.
pub fn stock_points(strategy: FitStrategy, pod: &PodRequest, node: &LabNode) -> f64 {
    let cpu = ResourceShare {
        allocated: millis(node.requested_cpu),
        requested: millis(node.requested_cpu + pod.cpu),
        allocatable: millis(node.threads()),
    };
    let memory = ResourceShare {
        allocated: bytes(node.requested_memory),
        requested: bytes(node.requested_memory + pod.memory),
        allocatable: bytes(node.memory()),
    };
    (fit(strategy, [&cpu, &memory]) + balance(&cpu, &memory)) as f64
}

/// Amounts of a resource of a node, as whole numbers: the scheduler rounds when it divides them.
struct ResourceShare {
    /// Requests of its pods.
    allocated: i64,
    /// The same with the pod to place.
    requested: i64,
    allocatable: i64,
}

/// Score of NodeResourcesFit: `leastRequestedScore` or `mostRequestedScore` of each resource, and their mean.
fn fit(strategy: FitStrategy, resources: [&ResourceShare; 2]) -> i64 {
    let score = |share: &ResourceShare| {
        let requested = share.requested.min(share.allocatable);
        let counted = match strategy {
            FitStrategy::LeastAllocated => share.allocatable - requested,
            FitStrategy::MostAllocated => requested,
        };
        counted * MAX_SCORE / share.allocatable
    };
    resources.map(score).iter().sum::<i64>() / 2
}

/// Score of NodeResourcesBalancedAllocation (`balancedResourceScorer`): about 75 if the pod does not change how much
/// CPU and memory differ, more if they differ less with it.
fn balance(cpu: &ResourceShare, memory: &ResourceShare) -> i64 {
    let part = |amount: i64, share: &ResourceShare| (amount as f64 / share.allocatable as f64).min(1.0);
    let score = |cpu: f64, memory: f64| ((1.0 - ((cpu - memory) / 2.0).abs()) * MAX_SCORE as f64) as i64;
    let with = score(part(cpu.requested, cpu), part(memory.requested, memory));
    let without = score(part(cpu.allocated, cpu), part(memory.allocated, memory));
    MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::node;

    fn share(allocated: i64, requested: i64, allocatable: i64) -> ResourceShare {
        ResourceShare { allocated, requested, allocatable }
    }

    /// Values computed by hand from `leastRequestedScore` and `mostRequestedScore` of Kubernetes.
    #[test]
    fn fit_is_that_of_the_published_formulas() {
        // 3,000m and 5,000 bytes on nodes with 4,000m and 10,000 bytes, and with 6,000m and 10,000 bytes.
        for (cpu, least, most) in [(4000, 37, 62), (6000, 50, 50)] {
            let (cpu, memory) = (share(0, 3000, cpu), share(0, 5000, 10_000));
            assert_eq!(fit(FitStrategy::LeastAllocated, [&cpu, &memory]), least);
            assert_eq!(fit(FitStrategy::MostAllocated, [&cpu, &memory]), most);
        }
    }

    /// Scores that Kubernetes 1.36.3 expects in `TestNodeResourcesBalancedAllocation`.
    #[test]
    fn balance_is_that_of_the_published_tests() {
        for (cpu, memory, expected) in [
            ((3000, 6000, 10_000), (0, 5000, 20_000), 73),
            ((3000, 6000, 10_000), (5000, 10_000, 20_000), 74),
            ((3000, 6000, 10_000), (5000, 10_000, 50_000), 70),
            ((3000, 3000, 3000), (0, 5000, 5000), 100),
            ((0, 0, 3000), (0, 5000, 5000), 50),
            ((3000, 6000, 6000), (5000, 5000, 10_000), 62),
        ] {
            let [cpu, memory] = [cpu, memory].map(|(allocated, requested, size)| share(allocated, requested, size));
            assert_eq!(balance(&cpu, &memory), expected);
        }
    }

    #[test]
    fn least_spreads_and_most_packs() {
        let (mut busy, idle) = (node(10.0), node(10.0));
        (busy.requested_cpu, busy.requested_memory) = (5.0, 20.0);
        let pod = PodRequest { pod: 0, service: None, cpu: 1.0, memory: 4.0 };
        let points = |strategy| [&busy, &idle].map(|node| stock_points(strategy, &pod, node));
        assert_eq!(points(FitStrategy::LeastAllocated), [115.0, 165.0]);
        assert_eq!(points(FitStrategy::MostAllocated), [135.0, 85.0]);
    }
}
