//! The eviction subresource: the API server's part of disruption budgets.

use std::sync::Arc;

use ganglion_core::facts::Key;

use super::api::{Api, If, Refused};
use super::object::{DisruptionBudget, Phase, Pod, selects};

impl Api {
    /// Evicts the pod if its precondition and its budget allow it. As in Kubernetes, the budget is decremented before
    /// the precondition is checked.
    pub fn evict(&mut self, key: &Key, condition: If<'_>) -> Result<Option<Arc<Pod>>, Refused> {
        self.admit()?;
        let pod = self.pods.get(key).cloned().ok_or(Refused::NotFound)?;
        if !skips_budgets(&pod) {
            self.decrement(&pod)?;
        }
        self.delete_pod(key, condition)
    }

    /// An eviction that fails after its budget has granted it: the pod survives.
    pub fn evict_half(&mut self, key: &Key) {
        let pod = self.pods.get(key).filter(|pod| !skips_budgets(pod)).cloned();
        if pod.is_some_and(|pod| self.decrement(&pod).is_ok()) {
            self.say(|| format!("API server: the eviction of {key} is granted and not carried out"));
        }
    }

    fn decrement(&mut self, pod: &Pod) -> Result<(), Refused> {
        let guards = |budget: &&Arc<DisruptionBudget>| {
            budget.meta.key.namespace == pod.meta.key.namespace && selects(&budget.selector, &pod.meta.labels)
        };
        let budgets: Vec<Arc<DisruptionBudget>> = self.budgets.values().filter(guards).cloned().collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let text =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Refused::Budgets(text.to_owned()));
            }
        };
        let status = &budget.status;
        if pod.ready_since.is_none() && status.healthy >= status.desired && status.desired > 0 {
            return Ok(());
        }
        if status.observed < budget.meta.generation || status.allowed <= 0 {
            return Err(Refused::Budget(
                "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
            ));
        }
        let (name, now) = (pod.meta.key.name.clone(), self.seconds());
        self.update::<DisruptionBudget>(&budget.meta.key, If::any(), |budget| {
            budget.status.allowed -= 1;
            budget.status.disrupted.insert(name, now);
        })?;
        Ok(())
    }
}

fn skips_budgets(pod: &Pod) -> bool {
    pod.meta.deleted.is_some() || matches!(pod.phase, Phase::Pending | Phase::Failed)
}
