//! A small cluster in memory: an API server and the controllers of a stock cluster, each with its own lagging cache.
//!
//! Nothing happens by itself: the driver takes one step of one part at a time, in any order.

pub mod api;
pub mod build;
pub mod deployment;
pub mod disruption;
pub mod eviction;
pub mod facts;
pub mod foreign;
pub mod garbage;
pub mod kubelet;
pub mod object;
pub mod replica_set;
pub mod scheduler;
pub mod store;
#[cfg(test)]
mod tests;
pub mod victims;

use api::Api;
use deployment::Deployments;
use disruption::Disruption;
use replica_set::ReplicaSets;

/// A part of the cluster that may take the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    SetsHearSet,
    SetsHearPod,
    SetsSync,
    SetsRetry,
    DeploymentsHearDeployment,
    DeploymentsHearSet,
    DeploymentsSync,
    DeploymentsRetry,
    DisruptionHearPod,
    DisruptionHearBudget,
    DisruptionSync,
    Scheduler,
    Kubelet,
    Garbage,
}

impl Part {
    pub const ALL: [Self; 14] = [
        Self::SetsHearSet,
        Self::SetsHearPod,
        Self::SetsSync,
        Self::SetsRetry,
        Self::DeploymentsHearDeployment,
        Self::DeploymentsHearSet,
        Self::DeploymentsSync,
        Self::DeploymentsRetry,
        Self::DisruptionHearPod,
        Self::DisruptionHearBudget,
        Self::DisruptionSync,
        Self::Scheduler,
        Self::Kubelet,
        Self::Garbage,
    ];
}

#[derive(Debug)]
pub struct SimulatedCluster {
    pub api: Api,
    pub sets: ReplicaSets,
    pub deployments: Deployments,
    pub disruption: Disruption,
}

impl SimulatedCluster {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            sets: ReplicaSets::default(),
            deployments: Deployments::default(),
            disruption: Disruption::default(),
        }
    }

    /// Takes one step of one part; false if it had nothing to do.
    pub fn step(&mut self, part: Part) -> bool {
        let api = &mut self.api;
        match part {
            Part::SetsHearSet => self.sets.hear_set(api),
            Part::SetsHearPod => self.sets.hear_pod(api),
            Part::SetsSync => self.sets.sync(api),
            Part::SetsRetry => self.sets.retry(),
            Part::DeploymentsHearDeployment => self.deployments.hear_deployment(api),
            Part::DeploymentsHearSet => self.deployments.hear_set(api),
            Part::DeploymentsSync => self.deployments.sync(api),
            Part::DeploymentsRetry => self.deployments.retry(),
            Part::DisruptionHearPod => self.disruption.hear_pod(api),
            Part::DisruptionHearBudget => self.disruption.hear_budget(api),
            Part::DisruptionSync => self.disruption.sync(api),
            Part::Scheduler => scheduler::step(api),
            Part::Kubelet => kubelet::step(api),
            Part::Garbage => garbage::step(api),
        }
    }

    /// Takes steps of every part in turn until only failed syncs are left; false if nothing was written.
    pub fn quiesce(&mut self) -> bool {
        let before = self.api.version();
        loop {
            let round = self.api.version();
            for part in Part::ALL.into_iter().filter(|part| !matches!(part, Part::SetsRetry | Part::DeploymentsRetry)) {
                while self.step(part) {}
            }
            self.sets.retry();
            self.deployments.retry();
            self.sets.resync();
            while self.sets.sync(&mut self.api) {}
            while self.deployments.sync(&mut self.api) {}
            if self.api.version() == round {
                return round != before;
            }
        }
    }

    /// Next time at which a part has something to do without an event, in seconds.
    pub fn next_time(&self) -> Option<i64> {
        let disrupted = self.disruption.budgets.items.values().flat_map(|budget| budget.status.disrupted.values());
        let recheck = disrupted.map(|since| since + 121);
        let all = kubelet::next_time(&self.api).into_iter().chain(self.sets.next_timeout().map(|at| at + 1));
        let webhook = self.api.webhook.map(|webhook| webhook.until);
        all.chain(recheck).chain(webhook).filter(|at| *at > self.api.seconds()).min()
    }
}
