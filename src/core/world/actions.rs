//! WorkloadActions and their receipts: the objects that a change requeues, and the queries of planners.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Fact, Indexed, Requeue, World, index};
use crate::expression::{Expression, ExpressionError};
use crate::facts::{Key, PodFact, ReceiptFact};
use ganglion_api::execution::Execution;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

impl Indexed for WorkloadAction {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let waiting = world.index.action(old, new);
        if let (Some(gone), None) = (old.and_then(|old| old.metadata.uid.as_deref()), new) {
            world.noticed.remove(gone);
        }
        let this = new.or(old).map(|action| action.id().key);
        // The Execution that created the action waits for the end of the action.
        let made = new.map_or_else(|| old.and_then(loop_of), loop_of_ended);
        let family = family(world, old, new);
        // Pods whose gate may have to be opened: replacements of a StatefulSet's replicas.
        let slots = [old, new].into_iter().flatten().flat_map(|action| action.status.iter().flat_map(|it| &it.slots));
        let pods = slots.filter(|slot| slot.is_stateful()).filter_map(|slot| slot.replacement.as_ref());
        let keys = pods.filter_map(|pod| Some(Key::new(this.as_ref()?.namespace.clone(), pod.name.clone())));
        let held = Requeue::all::<PodFact>(keys.filter(|key| world.pod(key).is_some_and(|pod| pod.gated)));
        let actions = Requeue::all::<Self>(waiting.into_iter().chain(this).chain(family));
        actions.and(Requeue::all::<Execution>(made)).and(held)
    }
}

/// Related actions that must be planned again. For a move that belongs to a moveApplication: the moveApplication, and,
/// if the move frees replicas that waiting moves need, the other moves. For a moveApplication whose spec changed or
/// that ended: its moves.
fn family(world: &World, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) -> Vec<Key> {
    let Some(action) = new.or(old) else { return Vec::new() };
    let (before, after) = (ActionProgress::of(old), ActionProgress::of(new));
    let uid = application_of(action);
    let application = uid.filter(|_| before != after).and_then(|uid| world.application(action, uid));
    let makes_room = after.working < before.working || after.ended != before.ended;
    let of_part = uid.filter(|_| makes_room);
    let of_application = action.metadata.uid.as_deref().filter(|_| before.asked != after.asked || makes_room);
    let moves = of_part.into_iter().chain(of_application).flat_map(|uid| world.parts_of(uid));
    let moves = moves.filter(|part| is_unfinished(part)).map(|part| part.id().key);
    moves.chain(application.map(|application| application.id().key)).collect()
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
        let working = index::working_slots(Some(action));
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

/// uid of the moveApplication that created the action.
pub fn application_of(action: &WorkloadAction) -> Option<&str> {
    let owners = action.metadata.owner_references.iter().flatten();
    let is_application = |owner: &&OwnerReference| owner.kind == "WorkloadAction" && owner.controller == Some(true);
    owners.into_iter().find(is_application).map(|owner| owner.uid.as_str())
}

fn is_unfinished(action: &WorkloadAction) -> bool {
    action.status.as_ref().is_none_or(|status| status.finished_at.is_none())
}

impl Indexed for ReceiptFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

/// The loop that created the action.
pub fn loop_of(action: &WorkloadAction) -> Option<Key> {
    let name = action.metadata.labels.as_ref()?.get(marks::LOOP)?;
    Some(Key::new(action.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

/// The loop that created the action, if the action has ended.
pub fn loop_of_ended(action: &WorkloadAction) -> Option<Key> {
    action.status.as_ref()?.finished_at.as_ref()?;
    loop_of(action)
}

impl World {
    pub fn action(&self, key: &Key) -> Option<&Arc<WorkloadAction>> {
        self.tables.actions.get(key)
    }

    /// Records that the action with this uid is about to be planned.
    pub fn notice(&mut self, uid: &str, now: Timestamp) {
        self.noticed.entry(uid.to_owned()).or_insert(now);
    }

    /// Time at which this process first planned the action with this uid, by its own clock.
    pub fn noticed(&self, uid: &str) -> Option<Timestamp> {
        self.noticed.get(uid).copied()
    }

    pub fn receipt(&self, key: &Key) -> Option<&ReceiptFact> {
        self.tables.receipts.get(key).map(Arc::as_ref)
    }

    /// The moves of the moveApplication with this uid, including ended ones, by key.
    pub fn parts_of(&self, application_uid: &str) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.index.parts_of(application_uid).filter_map(|key| self.action(key))
    }

    /// The moveApplication that created this action, if it still exists.
    fn application(&self, part: &WorkloadAction, uid: &str) -> Option<&Arc<WorkloadAction>> {
        let mut owners = part.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.uid == uid)?;
        let key = Key::new(part.metadata.namespace.as_deref().unwrap_or_default(), &owner.name);
        self.action(&key).filter(|action| action.metadata.uid.as_deref() == Some(uid))
    }

    /// The moveApplication that created this action: None if there is none, Some(None) if it was deleted.
    pub fn application_of(&self, part: &WorkloadAction) -> Option<Option<&Arc<WorkloadAction>>> {
        application_of(part).map(|uid| self.application(part, uid))
    }

    /// The parsed expression of this condition, from the cache if possible. Fails like [`Expression::parse`].
    pub fn expression(&self, text: &str) -> Result<Expression, ExpressionError> {
        self.index.expressions.get(text)
    }

    /// All actions, including ended ones, by key.
    pub fn actions(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.tables.actions.values()
    }

    /// Actions that have not ended, by key.
    pub fn running(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.index.running().filter_map(|key| self.tables.actions.get(key))
    }
}
