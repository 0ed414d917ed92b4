//! The actions that a change requeues.

use std::collections::BTreeMap;

use super::index::{ActionIndex, is_unfinished, working_slots};
use super::{ActionsWorld, application_of};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Slot;
use ganglion_core::facts::{
    BudgetFact, DeploymentFact, Key, Ledger, NodeFact, PodFact, ReplicaSetFact, SlotId, StatefulSetFact, Uid,
};
use ganglion_core::world::{Fact, Follows, Requeue, World};

/// Registers the kinds that the planner of WorkloadActions follows. It also reads claims, volumes, Services and
/// receipts, but only when it plans an action: a waiting action is planned again anyway.
pub fn register(world: &mut World) {
    world.follow::<ActionIndex, PodFact>();
    world.follow::<ActionIndex, NodeFact>();
    world.follow::<ActionIndex, ReplicaSetFact>();
    world.follow::<ActionIndex, DeploymentFact>();
    world.follow::<ActionIndex, StatefulSetFact>();
    world.follow::<ActionIndex, BudgetFact>();
    world.follow::<ActionIndex, WorkloadAction>();
}

/// WorkloadActions to requeue.
fn actions<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Requeue {
    Requeue::all::<WorkloadAction>(keys.into_iter().cloned())
}

impl Follows<PodFact> for ActionIndex {
    fn update(&mut self, old: Option<&PodFact>, new: Option<&PodFact>) {
        let Some(pod) = new.or(old) else { return };
        self.marked.update(&pod.id.key, old.and_then(marker), new.and_then(marker));
    }

    fn requeue(world: &World, old: Option<&PodFact>, new: Option<&PodFact>) -> Requeue {
        if old.zip(new).is_some_and(|(old, new)| old.differs_in_run_only(new)) {
            return Requeue::none();
        }
        let index = world.state::<Self>();
        let requeue = actions([old, new].into_iter().flatten().flat_map(|pod| index.concerned_by_pod(pod)));
        // Only pods held by the operator's scheduling gate are reconciled on their own.
        let gated = new.filter(|pod| pod.gated).map(|pod| pod.id.key.clone());
        requeue.and(Requeue::all::<PodFact>(gated))
    }
}

/// The slot that marked the pod.
fn marker(pod: &PodFact) -> Option<&SlotId> {
    pod.marks.slot.as_ref()
}

impl Follows<NodeFact> for ActionIndex {
    fn requeue(world: &World, old: Option<&NodeFact>, new: Option<&NodeFact>) -> Requeue {
        let Some(node) = new.or(old) else { return Requeue::none() };
        actions(world.slots_to(&node.name()).map(|(action, _)| action))
    }
}

impl Follows<ReplicaSetFact> for ActionIndex {
    fn update(&mut self, old: Option<&ReplicaSetFact>, new: Option<&ReplicaSetFact>) {
        self.update_set(old, new);
    }

    fn requeue(world: &World, old: Option<&ReplicaSetFact>, new: Option<&ReplicaSetFact>) -> Requeue {
        let Some(set) = new.or(old) else { return Requeue::none() };
        let at_work = actions(world.state::<Self>().actions_on_set.of(&set.id.uid));
        // The Deployment controller copies the ledger to the ReplicaSet with a delay, possibly after the action has
        // ended and cleaned up.
        let Some(ledger) = Ledger::parse(set.scale.ledger.as_deref()) else { return at_work };
        at_work.and(actions(world.state::<Self>().recorded_slots.get(&ledger.slot)))
    }
}

impl Follows<DeploymentFact> for ActionIndex {
    fn requeue(world: &World, old: Option<&DeploymentFact>, new: Option<&DeploymentFact>) -> Requeue {
        let Some(deployment) = new.or(old) else { return Requeue::none() };
        let index = world.state::<Self>();
        actions(world.sets_of(&deployment.id.uid).flat_map(|set| index.actions_on_set.of(&set.id.uid)))
    }
}

impl Follows<StatefulSetFact> for ActionIndex {
    fn requeue(world: &World, old: Option<&StatefulSetFact>, new: Option<&StatefulSetFact>) -> Requeue {
        let Some(set) = new.or(old) else { return Requeue::none() };
        actions(world.state::<Self>().actions_on_set.of(&set.id.uid))
    }
}

impl Follows<BudgetFact> for ActionIndex {
    fn requeue(world: &World, old: Option<&BudgetFact>, new: Option<&BudgetFact>) -> Requeue {
        let Some(budget) = new.or(old) else { return Requeue::none() };
        let namespace = &budget.id.key.namespace;
        let guards = |labels: &BTreeMap<String, String>| {
            [old, new].into_iter().flatten().any(|one| one.guards(namespace, labels))
        };
        let guarded = |slot: &Slot| {
            let key = Key::new(namespace, &slot.replica_set.name);
            let stateful = world.get::<StatefulSetFact>(&key).map(|set| &set.set);
            let mut sets = world.get::<ReplicaSetFact>(&key).into_iter().chain(stateful);
            let pods = [&slot.victim, &slot.replacement].into_iter().flatten();
            let mut pods = pods.filter_map(|pod| world.pod(&Key::new(namespace, &pod.name)));
            sets.any(|set| guards(&set.pod_labels())) || pods.any(|pod| guards(&pod.labels))
        };
        let slots = world.slots_at_work();
        let guarded = slots.filter(|(action, slot)| action.namespace == *namespace && guarded(slot));
        actions(guarded.map(|(action, _)| action))
    }
}

impl Follows<WorkloadAction> for ActionIndex {
    fn update(&mut self, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) {
        self.update_action(old, new);
    }

    /// Requeues the action, waiting ones if it frees slots, related ones, and the pods whose gate may have to be
    /// opened: replacements of a StatefulSet's replicas.
    fn requeue(world: &World, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) -> Requeue {
        let Some(key) = new.or(old).map(|action| action.key().into_owned()) else { return Requeue::none() };
        let slots = [old, new].into_iter().flatten().flat_map(|action| action.status.iter().flat_map(|it| &it.slots));
        let pods = slots.filter(|slot| slot.is_stateful()).filter_map(|slot| slot.replacement.as_ref());
        let pods = pods.map(|pod| Key::new(key.namespace.clone(), pod.name.clone()));
        let held = Requeue::all::<PodFact>(pods.filter(|key| world.pod(key).is_some_and(|pod| pod.gated)));
        let mut requeue = held.and(Requeue::all::<WorkloadAction>(family(world, old, new)));
        if working_slots(old) > working_slots(new) {
            requeue.extend(Requeue::all::<WorkloadAction>(world.state::<Self>().next_waiting()));
        }
        requeue.and(Requeue::one::<WorkloadAction>(key))
    }
}

/// Related actions that must be planned again. For a move that belongs to a moveApplication: the moveApplication, and,
/// if the move frees replicas that waiting moves need, the other moves. For a moveApplication whose spec changed or
/// that ended: its moves.
fn family(world: &World, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) -> Vec<Key> {
    let Some(action) = new.or(old) else { return Vec::new() };
    let (before, after) = (ActionProgress::of(old), ActionProgress::of(new));
    let application = if before == after { None } else { world.application_of(action).existing() };
    let makes_room = after.working < before.working || after.ended != before.ended;
    let of_part = application_of(action).filter(|_| makes_room);
    let of_application = Some(Uid::of(&action.metadata)).filter(|_| before.asked != after.asked || makes_room);
    let moves = of_part.into_iter().chain(of_application).flat_map(|uid| world.parts_of(&uid));
    let moves = moves.filter(|part| is_unfinished(part)).map(|part| part.key().into_owned());
    moves.chain(application.map(|application| application.key().into_owned())).collect()
}

/// Progress of an action, as far as related actions depend on it.
#[derive(Default, PartialEq, Eq)]
struct ActionProgress {
    exists: bool,
    /// Generation of the spec, and whether deletion was requested.
    asked: (i64, bool),
    working: usize,
    done: usize,
    ended: bool,
    /// Reason that it waits for, if none of its slots is at work.
    waits_for: Option<String>,
}

impl ActionProgress {
    fn of(action: Option<&WorkloadAction>) -> Self {
        let Some(action) = action else { return Self::default() };
        let slots = action.status.iter().flat_map(|status| &status.slots);
        let conditions = action.status.iter().flat_map(|status| &status.conditions);
        let working = working_slots(Some(action));
        Self {
            exists: true,
            asked: (action.metadata.generation.unwrap_or(0), action.metadata.deletion_timestamp.is_some()),
            working,
            waits_for: conditions
                .filter(|one| working == 0 && one.type_ == "Reconciling")
                .map(|one| one.reason.clone())
                .next(),
            done: slots.filter(|slot| slot.step.is_end()).count(),
            ended: !is_unfinished(action),
        }
    }
}
