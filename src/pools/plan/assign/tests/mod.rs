//! Assignments of all sizes are exact and balanced, and move few jobs.

mod chain;
mod exact;
mod fixed;
mod history;
mod moves;
mod weights;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;

const STRATEGIES: [AssignmentStrategy; 2] = [AssignmentStrategy::Stable, AssignmentStrategy::Contiguous];

fn rules(strategy: AssignmentStrategy) -> AssignmentRules {
    AssignmentRules { strategy, max_jobs: None }
}

fn job(number: usize, weight: u32, dedicated: bool) -> Job {
    Job { name: format!("stream:{number:05}:updated").into(), weight, dedicated }
}

/// Jobs of weight 1.
fn plain(count: usize) -> Vec<Job> {
    (0..count).map(|number| job(number, 1, false)).collect()
}

/// Consecutive slots from 0.
fn slots(count: u32) -> Vec<u32> {
    (0..count).collect()
}

/// Slot of each job, by name.
fn by_name(jobs: &[Job], workers: &[u32], rules: AssignmentRules) -> BTreeMap<Arc<str>, u32> {
    let owner = assign(jobs, workers, rules).owner;
    let assigned = jobs.iter().zip(owner).filter_map(|(job, owner)| Some((job.name.clone(), workers[owner? as usize])));
    assigned.collect()
}

/// Number of jobs in both assignments whose worker differs.
fn moved(before: &BTreeMap<Arc<str>, u32>, after: &BTreeMap<Arc<str>, u32>) -> usize {
    before.iter().filter(|(name, slot)| after.get(*name).is_some_and(|now| now != *slot)).count()
}
