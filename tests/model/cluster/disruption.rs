//! The disruption controller: maintains the number of allowed disruptions of each budget, with some lag.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::api::{Api, If};
use super::object::{BudgetStatus, DisruptionBudget, Pod, Rule, selects};
use super::store::View;

/// Seconds after which an evicted pod that still exists counts again.
const DELETION_TIMEOUT: i64 = 120;

#[derive(Debug, Default)]
pub struct Disruption {
    pub pods: View<Pod>,
    pub budgets: View<DisruptionBudget>,
}

impl Disruption {
    pub fn hear_pod(&mut self, api: &Api) -> bool {
        self.pods.advance(&api.pods).is_some()
    }

    pub fn hear_budget(&mut self, api: &Api) -> bool {
        self.budgets.advance(&api.budgets).is_some()
    }

    /// Updates the status of one budget from the observed events; false if nothing changed.
    pub fn sync(&mut self, api: &mut Api) -> bool {
        for budget in self.budgets.items.values() {
            let status = self.status(api, budget);
            if status == budget.status {
                continue;
            }
            let (key, version) = (&budget.meta.key, budget.meta.version);
            let allowed = status.allowed;
            let done =
                api.update::<DisruptionBudget>(key, If::version(version), |budget| budget.status = status).is_ok();
            if done {
                api.say(|| format!("disruption controller: budget {key} allows {allowed}"));
                return true;
            }
        }
        false
    }

    fn status(&self, api: &Api, budget: &DisruptionBudget) -> BudgetStatus {
        let now = api.seconds();
        let guarded: Vec<&Arc<Pod>> =
            self.pods.items.values().filter(|pod| selects(&budget.selector, &pod.meta.labels)).collect();
        let (expected, desired) = match budget.rule {
            Rule::MinAvailable(count) => (count_of(&guarded), count),
            Rule::MaxUnavailable(count) => {
                let expected = expected_scale(api, &guarded);
                (expected, (expected - count).max(0))
            }
        };
        let disrupted: BTreeMap<String, i64> = guarded
            .iter()
            .filter(|pod| pod.meta.deleted.is_none())
            .filter_map(|pod| {
                let name = &pod.meta.key.name;
                let since = *budget.status.disrupted.get(name)?;
                (since + DELETION_TIMEOUT >= now).then(|| (name.clone(), since))
            })
            .collect();
        let healthy: Vec<&Arc<Pod>> =
            guarded.into_iter().filter(|pod| pod.is_serving() && !disrupted.contains_key(&pod.meta.key.name)).collect();
        let healthy = count_of(&healthy);
        let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
        BudgetStatus { observed: budget.meta.generation, healthy, desired, allowed, disrupted }
    }
}

fn count_of<T>(all: &[T]) -> i32 {
    i32::try_from(all.len()).unwrap_or(i32::MAX)
}

/// Desired replicas of the pods' owners; pods without a controller do not count.
fn expected_scale(api: &Api, pods: &[&Arc<Pod>]) -> i32 {
    let sets: BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod.meta.controller()).map(|owner| owner.uid.as_str()).collect();
    let mut deployments = BTreeSet::new();
    let mut sum = 0;
    for set in sets.iter().filter_map(|uid| api.sets.by_uid(uid)) {
        match set.meta.controller().and_then(|owner| api.deployments.by_uid(&owner.uid)) {
            Some(deployment) if deployments.insert(deployment.meta.uid.clone()) => sum += deployment.replicas,
            Some(_) => {}
            None => sum += set.replicas,
        }
    }
    sum
}
