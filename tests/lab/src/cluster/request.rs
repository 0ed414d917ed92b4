//! Requests of a pod.

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
