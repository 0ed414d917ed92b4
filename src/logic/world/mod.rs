//! The world as the planners see it: every fact, indexed by what they ask.
//!
//! Owns the facts of one process, fed by watches and by the answers to our own writes, and answers which actions a change
//! concerns. Knows nothing of how facts get here: the caches feed it from a cluster, the model from a simulated one.
//!
//! **Reads see our own writes.** The answer to a write is applied at once ([`Source::Own`]); watch events that are older
//! than what is known are passed over, and an answer that the watch has overtaken is, too. So a planner never repeats what
//! it did because a watch lags. Another process' writes may still be missing: every effect carries a precondition.

mod expressions;
mod index;
pub mod loops;
pub mod rivals;
mod slots;
mod table;
#[cfg(test)]
mod tests;
pub mod wakes;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::api::workload_action::WorkloadAction;
use crate::api::workload_action::status::Slot;
use crate::logic::expression::{Expression, ExpressionError};
use crate::logic::facts::{
    BudgetFact, DeploymentFact, Identity, Key, NodeFact, PodFact, ReceiptFact, Requests, ScalerFact, ServiceFact,
    SetFact,
};
use index::Index;
use table::Table;
pub use table::{Fact, Source};

/// The actions that a change concerns.
pub type Wakes = BTreeSet<Key>;

/// An object, as a fact.
#[derive(Clone, Debug)]
pub enum Object {
    Pod(PodFact),
    Node(NodeFact),
    Set(SetFact),
    Deployment(DeploymentFact),
    Budget(BudgetFact),
    Service(ServiceFact),
    Scaler(ScalerFact),
    Receipt(ReceiptFact),
    Action(Box<WorkloadAction>),
}

/// The kinds of [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Node,
    Set,
    Deployment,
    Budget,
    Service,
    Scaler,
    Receipt,
    Action,
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct World {
    pods: Table<PodFact>,
    nodes: Table<NodeFact>,
    sets: Table<SetFact>,
    deployments: Table<DeploymentFact>,
    budgets: Table<BudgetFact>,
    services: Table<ServiceFact>,
    scalers: Table<ScalerFact>,
    receipts: Table<ReceiptFact>,
    actions: Table<WorkloadAction>,
    /// Slots on their way into their actions' status.
    reserved: HashMap<Key, Vec<Slot>>,
    /// When a watch of workloads or their pods last broke off.
    broken: Option<Timestamp>,
    index: Index,
}

impl World {
    /// Takes in an object that was made or changed, and says which actions should look again: none where nothing changed
    /// that a planner reads.
    pub fn apply(&mut self, object: Object, source: Source) -> Wakes {
        match object {
            Object::Pod(fact) => {
                let change = self.pods.put(fact, source);
                self.pod_changed(&change)
            }
            Object::Node(fact) => {
                let change = self.nodes.put(fact, source);
                self.node_changed(&change)
            }
            Object::Set(fact) => {
                let change = self.sets.put(fact, source);
                self.set_changed(&change)
            }
            Object::Deployment(fact) => {
                let change = self.deployments.put(fact, source);
                self.deployment_changed(&change)
            }
            Object::Budget(fact) => {
                let change = self.budgets.put(fact, source);
                self.budget_changed(&change)
            }
            Object::Service(fact) => {
                self.services.put(fact, source);
                Wakes::new()
            }
            Object::Scaler(fact) => {
                self.scalers.put(fact, source);
                Wakes::new()
            }
            Object::Receipt(fact) => {
                self.receipts.put(fact, source);
                Wakes::new()
            }
            Object::Action(action) => {
                let change = self.actions.put(*action, source);
                self.action_changed(&change)
            }
        }
    }

    /// Takes out an object that a watch reported deleted at this version.
    pub fn remove(&mut self, kind: Kind, id: &Identity) -> Wakes {
        match kind {
            Kind::Pod => {
                let change = self.pods.take(id);
                self.pod_changed(&change)
            }
            Kind::Node => {
                let change = self.nodes.take(id);
                self.node_changed(&change)
            }
            Kind::Set => {
                let change = self.sets.take(id);
                self.set_changed(&change)
            }
            Kind::Deployment => {
                let change = self.deployments.take(id);
                self.deployment_changed(&change)
            }
            Kind::Budget => {
                let change = self.budgets.take(id);
                self.budget_changed(&change)
            }
            Kind::Service => {
                self.services.take(id);
                Wakes::new()
            }
            Kind::Scaler => {
                self.scalers.take(id);
                Wakes::new()
            }
            Kind::Receipt => {
                self.receipts.take(id);
                Wakes::new()
            }
            Kind::Action => {
                let change = self.actions.take(id);
                self.action_changed(&change)
            }
        }
    }

    /// Takes in a whole new list of one kind, of one namespace or of all, as it was at this version: what is not in it is
    /// gone, since a list that follows a broken watch comes without deletions; see [`table::vanished`].
    pub fn replace(&mut self, kind: Kind, namespace: Option<&str>, objects: Vec<Object>, version: &str) -> Wakes {
        let version = Identity { version: version.to_owned(), ..Identity::default() }.order();
        let mut wakes = Wakes::new();
        let listed: HashSet<Key> = objects.iter().map(|object| object.id().key).collect();
        for id in table::vanished(self.identities(kind), namespace, &listed, version) {
            wakes.extend(self.remove(kind, &id));
        }
        for object in objects {
            wakes.extend(self.apply(object, Source::Watch));
        }
        wakes
    }

    fn identities(&self, kind: Kind) -> Vec<Identity> {
        match kind {
            Kind::Pod => self.pods.identities(),
            Kind::Node => self.nodes.identities(),
            Kind::Set => self.sets.identities(),
            Kind::Deployment => self.deployments.identities(),
            Kind::Budget => self.budgets.identities(),
            Kind::Service => self.services.identities(),
            Kind::Scaler => self.scalers.identities(),
            Kind::Receipt => self.receipts.identities(),
            Kind::Action => self.actions.identities(),
        }
    }
}

/// What planners ask.
impl World {
    /// A watch of workloads or their pods broke off: those of other controllers may have, too.
    pub fn broke_off(&mut self, at: Timestamp) {
        self.broken = self.broken.max(Some(at));
    }

    /// When one last did.
    #[must_use]
    pub fn broken_off(&self) -> Option<Timestamp> {
        self.broken
    }

    #[must_use]
    pub fn action(&self, key: &Key) -> Option<&Arc<WorkloadAction>> {
        self.actions.get(key)
    }

    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&PodFact> {
        self.pods.get(key).map(Arc::as_ref)
    }

    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeFact> {
        self.nodes.get(&Key::new("", name)).map(Arc::as_ref)
    }

    /// Every node, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeFact> {
        let mut all: Vec<&NodeFact> = self.nodes.values().map(Arc::as_ref).collect();
        all.sort_by(|a, b| a.id.key.cmp(&b.id.key));
        all.into_iter()
    }

    #[must_use]
    pub fn set(&self, key: &Key) -> Option<&SetFact> {
        self.sets.get(key).map(Arc::as_ref)
    }

    #[must_use]
    pub fn deployment(&self, key: &Key) -> Option<&DeploymentFact> {
        self.deployments.get(key).map(Arc::as_ref)
    }

    /// Every ReplicaSet, in no order.
    pub fn sets(&self) -> impl Iterator<Item = &SetFact> {
        self.sets.values().map(Arc::as_ref)
    }

    /// Every Deployment, in no order.
    pub fn deployments(&self) -> impl Iterator<Item = &DeploymentFact> {
        self.deployments.values().map(Arc::as_ref)
    }

    #[must_use]
    pub fn receipt(&self, key: &Key) -> Option<&ReceiptFact> {
        self.receipts.get(key).map(Arc::as_ref)
    }

    /// The ReplicaSets that this Deployment controls, by name.
    pub fn sets_of(&self, deployment_uid: &str) -> impl Iterator<Item = &SetFact> {
        self.index.sets_of(deployment_uid).filter_map(|key| self.set(key))
    }

    /// The pods that this ReplicaSet controls, by name; ended and ending ones too.
    pub fn pods_of(&self, set_uid: &str) -> impl Iterator<Item = &PodFact> {
        self.index.pods_of(set_uid).filter_map(|key| self.pod(key))
    }

    /// The pods that bear this slot's mark.
    pub fn pods_marked(&self, slot: &str) -> impl Iterator<Item = &PodFact> {
        self.index.marked_by(slot).filter_map(|key| self.pod(key))
    }

    /// The pods that bear some slot's mark.
    pub fn marked_pods(&self) -> impl Iterator<Item = &PodFact> {
        self.index.marked().filter_map(|key| self.pod(key))
    }

    /// How many pods are bound to this node, and what they request; ended ones do not count.
    #[must_use]
    pub fn usage(&self, node: &str) -> (i64, Requests) {
        self.index.usage(node)
    }

    /// The budgets that guard a pod with these labels.
    pub fn budgets_for<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a BudgetFact> {
        self.budgets.within(namespace).map(Arc::as_ref).filter(move |budget| budget.guards(namespace, labels))
    }

    /// How many pods this budget guards, and how many of them serve.
    #[must_use]
    pub fn guarded(&self, budget: &BudgetFact) -> (usize, usize) {
        let namespace = &budget.id.key.namespace;
        let pods = self.pods.within(namespace).filter(|pod| budget.guards(namespace, &pod.labels));
        pods.fold((0, 0), |(all, serving), pod| (all + 1, serving + usize::from(pod.is_ready())))
    }

    /// This condition, parsed.
    ///
    /// # Errors
    ///
    /// As [`Expression::parse`].
    pub fn expression(&self, text: &str) -> Result<Expression, ExpressionError> {
        self.index.expressions.get(text)
    }

    /// Whether a Service or a budget that selects pods with these labels does so by this one.
    #[must_use]
    pub fn selects_by(&self, namespace: &str, labels: &BTreeMap<String, String>, label: &str) -> bool {
        let service = |service: &Arc<ServiceFact>| {
            service.selector.contains_key(label)
                && service.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let budget = |budget: &Arc<BudgetFact>| {
            budget.guards(namespace, labels)
                && budget.selector.as_ref().is_some_and(|selector| selector.mentions(label))
        };
        self.services.within(namespace).any(service) || self.budgets.within(namespace).any(budget)
    }

    /// The autoscaler that targets this workload.
    #[must_use]
    pub fn scaler_of(&self, namespace: &str, kind: &str, name: &str) -> Option<&ScalerFact> {
        let mut scalers = self.scalers.within(namespace).map(Arc::as_ref);
        scalers.find(|scaler| scaler.target_kind == kind && scaler.target_name == name)
    }

    /// Every action, ended ones too, in no order.
    pub fn actions(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.actions.values()
    }

    /// The actions that have not ended, by key.
    pub fn running(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.index.running().filter_map(|key| self.actions.get(key))
    }

    /// How many objects of each kind are known.
    #[must_use]
    pub fn counts(&self) -> HashMap<Kind, usize> {
        [
            (Kind::Pod, self.pods.len()),
            (Kind::Node, self.nodes.len()),
            (Kind::Set, self.sets.len()),
            (Kind::Deployment, self.deployments.len()),
            (Kind::Budget, self.budgets.len()),
            (Kind::Service, self.services.len()),
            (Kind::Scaler, self.scalers.len()),
            (Kind::Receipt, self.receipts.len()),
            (Kind::Action, self.actions.len()),
        ]
        .into()
    }
}

impl Object {
    /// Which object it is.
    #[must_use]
    pub fn id(&self) -> Identity {
        match self {
            Self::Pod(fact) => fact.id.clone(),
            Self::Node(fact) => fact.id.clone(),
            Self::Set(fact) => fact.id.clone(),
            Self::Deployment(fact) => fact.id.clone(),
            Self::Budget(fact) => fact.id.clone(),
            Self::Service(fact) => fact.id.clone(),
            Self::Scaler(fact) => fact.id.clone(),
            Self::Receipt(fact) => fact.id.clone(),
            Self::Action(action) => action.id(),
        }
    }
}
