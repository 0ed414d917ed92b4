//! Who is to look again when something has changed.

use super::table::{Change, Fact};
use super::{Wakes, World};
use crate::api::marks;
use crate::api::workload_action::WorkloadAction;
use crate::logic::facts::{BudgetFact, DeploymentFact, Key, NodeFact, PodFact, SetFact};
use crate::logic::workload_action::ledger::Ledger;

/// What a change means to the index and to the actions.
impl World {
    pub(super) fn pod_changed(&mut self, change: &Change<PodFact>) -> Wakes {
        let Some((old, new)) = change.sides() else { return Wakes::new() };
        self.index.pod(old, new);
        [old, new].into_iter().flatten().flat_map(|pod| self.index.concerned_by_pod(pod)).collect()
    }

    pub(super) fn node_changed(&mut self, change: &Change<NodeFact>) -> Wakes {
        let Some((old, new)) = change.sides() else { return Wakes::new() };
        let Some(node) = new.or(old) else { return Wakes::new() };
        self.slots_to(&node.id.key.name).map(|(action, _)| action.clone()).collect()
    }

    pub(super) fn set_changed(&mut self, change: &Change<SetFact>) -> Wakes {
        let Some((old, new)) = change.sides() else { return Wakes::new() };
        self.index.set(old, new);
        let Some(set) = new.or(old) else { return Wakes::new() };
        let at_work = self.index.actions_on(&set.id.uid).cloned();
        // The Deployment controller copies the ledger to the set whenever it gets round to it, also when the action has
        // ended and cleaned up already.
        let ledger = Ledger::parse(set.scale.ledger.as_deref());
        let has = |action: &WorkloadAction| {
            let mut slots = action.status.iter().flat_map(|status| &status.slots);
            ledger.as_ref().is_some_and(|ledger| slots.any(|slot| slot.id == ledger.slot))
        };
        let copied = ledger.iter().flat_map(|_| self.actions.values().filter(|action| has(action)));
        at_work.chain(copied.map(|action| action.id().key)).collect()
    }

    pub(super) fn deployment_changed(&mut self, change: &Change<DeploymentFact>) -> Wakes {
        let Some((old, new)) = change.sides() else { return Wakes::new() };
        let Some(deployment) = new.or(old) else { return Wakes::new() };
        let sets: Vec<String> = self.sets_of(&deployment.id.uid).map(|set| set.id.uid.clone()).collect();
        sets.iter().flat_map(|uid| self.index.actions_on(uid)).cloned().collect()
    }

    pub(super) fn budget_changed(&mut self, change: &Change<BudgetFact>) -> Wakes {
        let Some((old, new)) = change.sides() else { return Wakes::new() };
        let Some(budget) = new.or(old) else { return Wakes::new() };
        let namespace = &budget.id.key.namespace;
        let guarded = |set: &str| {
            let set = self.set(&Key::new(namespace.clone(), set.to_owned()));
            set.is_some_and(|set| budget.guards(namespace, &set.selector.labels))
        };
        self.slots_at_work()
            .filter(|(action, slot)| action.namespace == *namespace && guarded(&slot.replica_set.name))
            .map(|(action, _)| action.clone())
            .collect()
    }

    pub(super) fn action_changed(&mut self, change: &Change<WorkloadAction>) -> Wakes {
        let Some((old, new)) = change.sides() else { return Wakes::new() };
        let mut wakes = self.index.action(old, new);
        wakes.extend(new.or(old).map(|action| action.id().key));
        wakes
    }
}

/// The loop that made the action.
#[must_use]
pub fn maker(action: &WorkloadAction) -> Option<Key> {
    let name = action.metadata.labels.as_ref()?.get(marks::LOOP)?;
    Some(Key::new(action.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

/// The loop that made the action, where the action has ended.
#[must_use]
pub fn maker_of_ended(action: &WorkloadAction) -> Option<Key> {
    action.status.as_ref()?.finished_at.as_ref()?;
    maker(action)
}
