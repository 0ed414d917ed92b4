//! The interface of schedulers.

use super::node::LabNode;

const GIB: f64 = (1 << 30) as f64;

/// A pod that waits for a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRequest {
    /// Index of the pod, unique in the run.
    pub pod: usize,
    /// Index of its service; None for the pod of a job.
    pub service: Option<usize>,
    /// Requested cores and GiB.
    pub cpu: f64,
    pub memory: f64,
}

impl PodRequest {
    /// A request in whole millicores and bytes, as Kubernetes counts them. Cores and GiB.
    pub fn new(pod: usize, service: Option<usize>, cpu: f64, memory: f64) -> Self {
        Self { pod, service, cpu: millis(cpu) as f64 / 1000.0, memory: bytes(memory) as f64 / GIB }
    }
}

/// Whole millicores of an amount in cores.
pub fn millis(cores: f64) -> i64 {
    (cores * 1000.0).round() as i64
}

/// Whole bytes of an amount in GiB.
pub fn bytes(gib: f64) -> i64 {
    (gib * GIB).round() as i64
}

/// A scheduler. It scores nodes for pods, and sees what the API server and the metrics would show it.
pub trait Placer {
    /// Points of each candidate, in their order; None: the pod must not run there now. All candidates have room. `now`:
    /// seconds since the begin of the run.
    fn points(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        now: i64,
    ) -> Result<Vec<Option<f64>>, anyhow::Error>;

    /// Usage of all nodes has been measured; inlet temperatures in degrees Celsius.
    fn sampled(&mut self, _nodes: &[LabNode], _inlets: &[f64], _now: i64) -> Result<(), anyhow::Error> {
        Ok(())
    }

    /// A pod was bound to a node.
    fn bound(&mut self, _pod: &PodRequest, _node: usize, _now: i64) -> Result<(), anyhow::Error> {
        Ok(())
    }

    /// A pod that was bound at this time runs: measured usage includes it from now on.
    fn started(&mut self, _pod: &PodRequest, _node: usize, _bound: i64) -> Result<(), anyhow::Error> {
        Ok(())
    }

    /// A bound pod has left its node.
    fn ended(&mut self, _pod: &PodRequest) -> Result<(), anyhow::Error> {
        Ok(())
    }

    /// Describes the last points for people.
    fn report(&self) -> String {
        String::new()
    }
}
