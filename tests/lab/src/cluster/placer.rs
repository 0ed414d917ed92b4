//! The interface of schedulers.

use super::node::LabNode;
use super::request::PodRequest;

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

    /// Explains the last points: the scores of each part of the scheduler. Empty if they are not known.
    fn report(&self) -> String {
        String::new()
    }
}
