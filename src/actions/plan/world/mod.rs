//! WorkloadActions in the [`World`]: the queries of the planner, what it derives from facts, and the actions that a
//! change requeues.
//!
//! | file | content |
//! |---|---|
//! | `index` | derived from actions, pods and ReplicaSets; reservations; what is not watched |
//! | `follow` | the objects that a change requeues |
//! | `line` | the order in which waiting actions have their turns |
//! | `expressions` | cache of parsed conditions |
//! | `owners` | cached objects of kinds that are not watched |
//! | `changes` | when actions changed the pods of nodes |
//! | `usage` | node usage from metrics.k8s.io, while an expression needs it |

mod changes;
mod expressions;
mod follow;
mod index;
pub mod line;
mod owners;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub use follow::register;
use ganglion_api::marks;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_core::expression::{Expression, ExpressionError, MeasuredView};
use ganglion_core::facts::{
    BudgetFact, ClaimFact, DeploymentFact, Key, NodeName, OutsidePodFact, PinBindingFact, PinPolicyFact, PodFact,
    ReplicaSetFact, ServiceFact, SlotId, Uid, VolumeFact, group,
};
use ganglion_core::node_values::{measured, measured_since};
use ganglion_core::world::World;
use index::{ActionIndex, family_of};
use line::WaitingLines;
pub use owners::OwnerReading;
pub use usage::NodeUse;

/// A world that only this product follows.
#[cfg(test)]
pub fn registered() -> World {
    let mut world = World::default();
    register(&mut world);
    world
}

/// uid of the moveApplication that created the action.
pub fn application_of(action: &WorkloadAction) -> Option<Uid> {
    let owners = action.metadata.owner_references.iter().flatten();
    let is_application = |owner: &&OwnerReference| owner.kind == "WorkloadAction" && owner.controller == Some(true);
    owners.into_iter().find(is_application).map(|owner| owner.uid.as_str().into())
}

/// The moveApplication that created an action.
pub enum ParentApplication<'a> {
    /// The action is no move of a moveApplication.
    None,
    Deleted,
    Existing(&'a Arc<WorkloadAction>),
}

impl<'a> ParentApplication<'a> {
    pub fn existing(self) -> Option<&'a Arc<WorkloadAction>> {
        match self {
            Self::Existing(application) => Some(application),
            Self::None | Self::Deleted => None,
        }
    }
}

/// Queries of the planner of WorkloadActions, and what it records in the world.
pub trait ActionsWorld {
    fn action(&self, key: &Key) -> Option<&Arc<WorkloadAction>>;

    /// Actions that have not ended.
    fn running(&self) -> impl Iterator<Item = &Arc<WorkloadAction>>;

    /// The actions without running slots, in the order of their turns.
    fn waiting_lines(&self) -> &WaitingLines;

    /// The actions with reserved slots.
    fn reserved(&self) -> impl Iterator<Item = &Key>;

    /// The moves of the moveApplication with this uid, including ended ones, by key.
    fn parts_of<'a>(&'a self, application: &Uid) -> impl Iterator<Item = &'a Arc<WorkloadAction>> + use<'a, Self>;

    /// The moveApplication that created this action.
    fn application_of(&self, part: &WorkloadAction) -> ParentApplication<'_>;

    /// The parsed expression of this condition, from the cache if possible. Fails like [`Expression::parse`].
    fn expression(&self, text: &str) -> Result<Expression, ExpressionError>;

    /// Time at which this process first planned the action with this uid, by its own clock.
    fn noticed(&self, uid: &Uid) -> Option<Timestamp>;

    /// Records that the action with this uid is about to be planned.
    fn notice(&mut self, uid: &Uid, now: Timestamp);

    /// The slots at work of all actions, recorded and reserved, each with its action.
    fn slots_at_work(&self) -> impl Iterator<Item = (&Key, &Slot)>;

    /// The slots at work of the moves of the moveApplication with this uid, recorded and reserved, each with its
    /// action.
    fn slots_at_work_of<'a>(&'a self, application: &'a Uid) -> impl Iterator<Item = (&'a Key, &'a Slot)>;

    /// The open slots of this workload in all of its ReplicaSets, each with its action.
    fn slots_of_workload<'a>(
        &'a self,
        namespace: &'a str,
        workload: &'a WorkloadRef,
    ) -> impl Iterator<Item = (&'a Key, &'a Slot)>;

    /// The open slots of the ReplicaSet with this uid, recorded and reserved.
    fn slots_on(&self, set: &Uid) -> impl Iterator<Item = &Slot>;

    /// The open slots whose replacement has this target node, recorded and reserved, each with its action.
    fn slots_to<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = (&'a Key, &'a Slot)>;

    /// The action with this open slot.
    fn action_of(&self, slot: &SlotId) -> Option<&Key>;

    /// Whether slots are reserved for the action: their nodes, pods and shares of limits are not free.
    fn is_reserved(&self, action: &Key) -> bool;

    /// Reserves these slots: they replace the recorded slots of the action until [`ActionsWorld::release`]. Counts as a
    /// turn of the action's namespace.
    fn reserve(&mut self, action: &Key, slots: Vec<Slot>);

    /// Whether an effect of this action that creates a pod is being carried out, or has an unknown outcome.
    fn runs_effect(&self, action: &Key) -> bool;

    /// Records that such an effect of this action begins.
    fn begin_effect(&mut self, action: &Key);

    /// Records that such an effect of this action has ended, and that the world contains its result.
    fn end_effect(&mut self, action: &Key);

    /// Ends the reservation: the slots recorded in the action's status count again. Effects of the action have ended.
    fn release(&mut self, action: &Key);

    /// Counter value of the namespace's last turn; larger means later, 0 means none.
    fn last_turn(&self, namespace: &str) -> u64;

    /// The pods with the mark of this slot.
    fn pods_marked(&self, slot: &SlotId) -> impl Iterator<Item = &PodFact>;

    /// The pods with the mark of any slot.
    fn marked_pods(&self) -> impl Iterator<Item = &PodFact>;

    /// The ReplicaSets whose controller has this group, kind and name, by name.
    fn sets_of_named<'a>(&'a self, namespace: &str, workload: &WorkloadRef)
    -> impl Iterator<Item = &'a ReplicaSetFact>;

    /// The budgets that select a pod with these labels.
    fn budgets_for<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a BudgetFact>;

    /// Number of pods that this budget selects, and how many of them are Ready. None if the labels of a pod of the
    /// namespace are not kept.
    fn guarded(&self, budget: &BudgetFact) -> Option<(usize, usize)>;

    /// Whether a Service or a budget uses this label to select pods with these labels.
    fn selects_by(&self, namespace: &str, labels: &BTreeMap<String, String>, label: &str) -> bool;

    /// The PersistentVolume that a claim is bound to or requests, if both are cached.
    fn volume_of(&self, claim: &Key) -> Option<&VolumeFact>;

    /// Whether pods of StatefulSets can be pinned to a node: the policy is installed and its binding is in effect.
    fn pins_pods(&self) -> bool;

    /// Whether the pods of all namespaces are cached. False if the operator watches only some namespaces and may not
    /// read the pods of the others.
    fn knows_load(&self) -> bool;

    /// Time at which a watch of workloads or their pods last broke.
    fn broken_off(&self) -> Option<Timestamp>;

    /// The last reading of the object with this uid.
    fn owner(&self, uid: &Uid) -> Option<&OwnerReading>;

    /// Time of the last reading.
    fn owner_read_at(&self, uid: &Uid) -> Option<Timestamp>;

    /// Stores a reading, or the answer to a write, unless the stored version is newer.
    fn put_owner(&mut self, uid: &Uid, reading: OwnerReading, now: Timestamp);

    /// Removes an object that a request found deleted.
    fn drop_owner(&mut self, uid: &Uid);

    /// Stores the usage of all nodes.
    fn put_usage(&mut self, nodes: HashMap<NodeName, NodeUse>, now: Timestamp);

    /// Records that the usage could not be read. The last usage counts until it is too old.
    fn usage_failed(&mut self, problem: String);

    /// Measured values of a node, for expressions: from its NodeConfigs; a missing CPU or memory usage comes from
    /// metrics.k8s.io.
    fn measured(&self, node: &NodeName, now: Timestamp) -> MeasuredView;

    /// Whether an expression of an unfinished action reads the usage of nodes.
    fn wants_usage(&self) -> bool;

    /// Reason why an action whose expressions read the usage of nodes cannot be planned yet: the usage was not read
    /// recently. None if NodeConfigs measure every node. If reading fails, expressions that test with `has(…)` whether
    /// the usage is available do not block the plan.
    fn unknown_usage(&self, action: &WorkloadAction, now: Timestamp) -> Option<String>;

    /// Begin of the time that this value of the node describes, for the value that [`ActionsWorld::measured`] returns.
    /// None if no value is fresh.
    fn measured_since(&self, node: &NodeName, value: NodeValue, now: Timestamp) -> Option<Timestamp>;

    /// Whether an expression of the action reads measured values that follow the pods of a node.
    fn reads_load(&self, action: &WorkloadAction) -> bool;

    /// Time of the last change of the node's pods by an action that has ended, in this namespace or in any. Does not
    /// count this action, and moves of the same moveApplication.
    fn changed_at(
        &self,
        node: &NodeName,
        except: &WorkloadAction,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Option<Timestamp>;

    /// Whether both are the same action, or moves of the same moveApplication.
    fn is_of_family(&self, one: &Key, action: &WorkloadAction) -> bool;
}

impl ActionsWorld for World {
    fn action(&self, key: &Key) -> Option<&Arc<WorkloadAction>> {
        self.table().get(key)
    }

    fn running(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        let index = index(self);
        let waiting: Vec<Key> = index.waiting.keys().collect();
        let waiting = waiting.into_iter().filter_map(|key| self.action(&key));
        index.working.iter().filter_map(|key| self.action(key)).chain(waiting)
    }

    fn waiting_lines(&self) -> &WaitingLines {
        &index(self).waiting
    }

    fn reserved(&self) -> impl Iterator<Item = &Key> {
        index(self).reserved.keys()
    }

    fn parts_of<'a>(&'a self, application: &Uid) -> impl Iterator<Item = &'a Arc<WorkloadAction>> + use<'a> {
        index(self).parts_of_application.of(application).filter_map(|key| self.action(key))
    }

    fn application_of(&self, part: &WorkloadAction) -> ParentApplication<'_> {
        let Some(uid) = application_of(part) else { return ParentApplication::None };
        application(self, part, &uid).map_or(ParentApplication::Deleted, ParentApplication::Existing)
    }

    fn expression(&self, text: &str) -> Result<Expression, ExpressionError> {
        index(self).expressions.get(text)
    }

    fn noticed(&self, uid: &Uid) -> Option<Timestamp> {
        index(self).noticed.get(uid).copied()
    }

    fn notice(&mut self, uid: &Uid, now: Timestamp) {
        if let Some(index) = index_mut(self) {
            index.noticed.entry(uid.to_owned()).or_insert(now);
        }
    }

    fn slots_at_work(&self) -> impl Iterator<Item = (&Key, &Slot)> {
        slots_among(self, index(self).working.iter()).filter(|(_, slot)| slot.step != Step::Queued)
    }

    fn slots_at_work_of<'a>(&'a self, application: &'a Uid) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let index = index(self);
        let is_of_it = move |key: &&Key| {
            self.action(key).is_some_and(|action| application_of(action).as_ref() == Some(application))
        };
        let recorded = index.parts_of_application.of(application).filter(|key| !self.is_reserved(key));
        let keys = recorded.chain(index.reserved.keys().filter(is_of_it));
        let slots = keys.filter_map(|key| Some((key, self.action(key)?)));
        let slots = slots.flat_map(|(key, action)| index.slots_of(key, action).map(move |slot| (key, slot)));
        slots.filter(|(_, slot)| slot.step != Step::Queued)
    }

    fn slots_of_workload<'a>(
        &'a self,
        namespace: &'a str,
        workload: &'a WorkloadRef,
    ) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let is_of_it = move |key: &Key, slot: &Slot| key.namespace == namespace && slot.workload == *workload;
        slots_among(self, index(self).actions_on_workload(namespace, workload))
            .filter(move |(key, slot)| is_of_it(key, slot))
    }

    fn slots_on(&self, set: &Uid) -> impl Iterator<Item = &Slot> {
        let slots = slots_among(self, index(self).actions_on_set.of(set)).map(|(_, slot)| slot);
        slots.filter(move |slot| slot.replica_set.uid == *set)
    }

    fn slots_to<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
        let goes_there =
            move |slot: &Slot| slot.replacement.as_ref().is_some_and(|replacement| replacement.node == *node);
        slots_among(self, index(self).actions_to_node.of(node)).filter(move |(_, slot)| goes_there(slot))
    }

    fn action_of(&self, slot: &SlotId) -> Option<&Key> {
        index(self).action_of_slot.get(slot)
    }

    fn is_reserved(&self, action: &Key) -> bool {
        index(self).reserved.contains_key(action)
    }

    fn reserve(&mut self, action: &Key, slots: Vec<Slot>) {
        if let Some(index) = index_mut(self) {
            index.reserve(action, slots);
        }
    }

    fn runs_effect(&self, action: &Key) -> bool {
        index(self).running_effects.contains_key(action)
    }

    fn begin_effect(&mut self, action: &Key) {
        if let Some(index) = index_mut(self) {
            *index.running_effects.entry(action.clone()).or_default() += 1;
        }
    }

    fn end_effect(&mut self, action: &Key) {
        let Some(index) = index_mut(self) else { return };
        if let Some(number) = index.running_effects.get_mut(action) {
            *number = number.saturating_sub(1);
            if *number == 0 {
                index.running_effects.remove(action);
            }
        }
    }

    fn release(&mut self, action: &Key) {
        if let Some(index) = index_mut(self) {
            index.reserved.remove(action);
            index.running_effects.remove(action);
        }
    }

    fn last_turn(&self, namespace: &str) -> u64 {
        index(self).last_turn(namespace)
    }

    fn pods_marked(&self, slot: &SlotId) -> impl Iterator<Item = &PodFact> {
        index(self).marked.of(slot).filter_map(|key| self.pod(key))
    }

    fn marked_pods(&self) -> impl Iterator<Item = &PodFact> {
        index(self).marked.keys().filter_map(|key| self.pod(key))
    }

    fn sets_of_named<'a>(
        &'a self,
        namespace: &str,
        workload: &WorkloadRef,
    ) -> impl Iterator<Item = &'a ReplicaSetFact> {
        let group = group(&workload.api_version).to_owned();
        let sets = index(self).sets_of_workload(namespace, workload);
        let sets = sets.filter_map(|key| self.get::<ReplicaSetFact>(key));
        sets.filter(move |set| self::group(&set.controller_version) == group)
    }

    fn budgets_for<'a>(
        &'a self,
        namespace: &'a str,
        labels: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a BudgetFact> {
        let budgets = self.within::<BudgetFact>(namespace);
        budgets.filter(move |budget| budget.guards(namespace, labels))
    }

    fn guarded(&self, budget: &BudgetFact) -> Option<(usize, usize)> {
        let namespace = &budget.id.key.namespace;
        let (mut all, mut serving) = (0, 0);
        for pod in self.within::<PodFact>(namespace) {
            if pod.reduced {
                return None;
            }
            if budget.guards(namespace, &pod.labels) {
                all += 1;
                serving += usize::from(pod.is_ready());
            }
        }
        Some((all, serving))
    }

    fn selects_by(&self, namespace: &str, labels: &BTreeMap<String, String>, label: &str) -> bool {
        self.within::<ServiceFact>(namespace).any(|service| service.may_select_by(labels, label))
            || self.budgets_for(namespace, labels).any(|budget| budget.may_mention(label))
    }

    fn volume_of(&self, claim: &Key) -> Option<&VolumeFact> {
        let volume = self.get::<ClaimFact>(claim)?.volume.clone()?;
        self.get(&Key::new("", volume))
    }

    fn pins_pods(&self) -> bool {
        let key = Key::new("", marks::PIN_POLICY);
        let binding = self.get::<PinBindingFact>(&key);
        self.get::<PinPolicyFact>(&key).is_some() && binding.is_some_and(|one| one.policy == marks::PIN_POLICY)
    }

    fn knows_load(&self) -> bool {
        !self.table::<OutsidePodFact>().is_unavailable()
    }

    fn broken_off(&self) -> Option<Timestamp> {
        let pods = self.table::<PodFact>().watch_broke_at();
        pods.max(self.table::<ReplicaSetFact>().watch_broke_at()).max(self.table::<DeploymentFact>().watch_broke_at())
    }

    fn owner(&self, uid: &Uid) -> Option<&OwnerReading> {
        index(self).owners.get(uid)
    }

    fn owner_read_at(&self, uid: &Uid) -> Option<Timestamp> {
        index(self).owners.read_at(uid)
    }

    fn put_owner(&mut self, uid: &Uid, reading: OwnerReading, now: Timestamp) {
        if let Some(index) = index_mut(self) {
            index.owners.put(uid, reading, now);
        }
    }

    fn drop_owner(&mut self, uid: &Uid) {
        if let Some(index) = index_mut(self) {
            index.owners.remove(uid);
        }
    }

    fn put_usage(&mut self, nodes: HashMap<NodeName, NodeUse>, now: Timestamp) {
        if let Some(index) = index_mut(self) {
            index.usage.put(nodes, now);
        }
    }

    fn usage_failed(&mut self, problem: String) {
        if let Some(index) = index_mut(self) {
            index.usage.failed(problem);
        }
    }

    fn measured(&self, node: &NodeName, now: Timestamp) -> MeasuredView {
        let known = measured(self.node_configs_of(node), now);
        let usage = index(self).usage.fresh(node, now);
        MeasuredView { cpu: known.cpu.or_else(|| usage?.cpu), memory: known.memory.or_else(|| usage?.memory), ..known }
    }

    fn wants_usage(&self) -> bool {
        index(self).expressions.any(Expression::reads_usage)
    }

    fn unknown_usage(&self, action: &WorkloadAction, now: Timestamp) -> Option<String> {
        let ActionIndex { usage, .. } = index(self);
        let mut all = expressions::conditions(&action.spec).filter_map(|text| self.expression(text).ok());
        let reads = match usage.problem() {
            None => all.any(|expression| expression.reads_usage()),
            Some(_) => all.any(|expression| expression.needs_usage()),
        };
        let is_measured = |node: &NodeName| {
            let known = measured(self.node_configs_of(node), now);
            known.cpu.is_some() && known.memory.is_some()
        };
        if !reads || usage.is_fresh(now) || self.nodes().all(|node| is_measured(&node.name())) {
            return None;
        }
        Some(usage.problem().unwrap_or("metrics.k8s.io has not been read yet").to_owned())
    }

    fn measured_since(&self, node: &NodeName, value: NodeValue, now: Timestamp) -> Option<Timestamp> {
        let usage = index(self).usage.fresh(node, now).filter(|usage| match value {
            NodeValue::Cpu => usage.cpu.is_some(),
            NodeValue::Memory => usage.memory.is_some(),
            NodeValue::InletTemperature
            | NodeValue::DifferentialPressure
            | NodeValue::Power
            | NodeValue::MeasuredPower => false,
        });
        measured_since(self.node_configs_of(node), value, now).or_else(|| usage.map(|usage| usage.since))
    }

    fn reads_load(&self, action: &WorkloadAction) -> bool {
        let mut all = expressions::conditions(&action.spec).filter_map(|text| self.expression(text).ok());
        all.any(|expression| expression.load_values().next().is_some())
    }

    fn changed_at(
        &self,
        node: &NodeName,
        except: &WorkloadAction,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        index(self).changes.last(node, &family_of(except), namespace, now)
    }

    fn is_of_family(&self, one: &Key, action: &WorkloadAction) -> bool {
        self.action(one).is_some_and(|one| family_of(one) == family_of(action))
    }
}

fn index(world: &World) -> &ActionIndex {
    world.state()
}

fn index_mut(world: &mut World) -> Option<&mut ActionIndex> {
    world.state_mut()
}

/// The moveApplication that created this action, if it still exists.
fn application<'a>(world: &'a World, part: &WorkloadAction, uid: &Uid) -> Option<&'a Arc<WorkloadAction>> {
    let mut owners = part.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| *uid == *owner.uid)?;
    let key = Key::new(part.metadata.namespace.as_deref().unwrap_or_default(), &owner.name);
    world.action(&key).filter(|action| Uid::of(&action.metadata) == *uid)
}

/// The open slots of these actions and of all actions with reserved slots.
fn slots_among<'a>(
    world: &'a World,
    recorded: impl Iterator<Item = &'a Key>,
) -> impl Iterator<Item = (&'a Key, &'a Slot)> {
    let index = index(world);
    let keys = recorded.filter(|key| !world.is_reserved(key)).chain(index.reserved.keys());
    keys.filter_map(|key| Some((key, world.action(key)?)))
        .flat_map(|(key, action)| index.slots_of(key, action).map(move |slot| (key, slot)))
}
