//! To be replaced.
use super::Job;
use crate::api::swarm_pool::assignment::AssignmentStrategy;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DealRules {
    pub strategy: AssignmentStrategy,
    pub max_jobs: Option<usize>,
}
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deal {
    pub owner: Vec<Option<u32>>,
    pub sharing: usize,
}
pub fn deal(jobs: &[Job], workers: &[u32], _rules: DealRules) -> Deal {
    let n = u32::try_from(workers.len()).unwrap_or(0);
    Deal { owner: (0..jobs.len()).map(|at| u32::try_from(at).ok()?.checked_rem(n)).collect(), sharing: 0 }
}
