//! New pods of actions must not take the place of pods that nobody named.
//!
//! A pod preempts pods of lower priority as soon as no node has room for it, even if it is deleted a moment later. The
//! operator cannot prevent that for a pod that a ReplicaSet creates, so it waits until a node has room. Source of the
//! rules: kube-scheduler's DefaultPreemption.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::world::ActionsWorld;
use ganglion_core::facts::{Key, NodeFact, NodeName, PodFact, SlotId, TemplateFact, Uid};
use ganglion_core::world::World;

use super::context::PlanContext;
use super::effect::PodPlace;
use super::fitting::Fitting;
use super::neighbors::Departing;
use super::nodes::Nodes;
use super::replacement;
use super::scope::Scope;
use super::set::Pods;
use super::slot::View;
use super::volumes::BoundVolumes;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Prioritized {
    spec: PriorityOfSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PriorityOfSpec {
    priority_class_name: Option<String>,
    priority: Option<i32>,
}

/// Why no new pod of the set may be created now, by its ReplicaSet or by this slot. None if there is room for it and
/// for the other pods that are about to be scheduled, wherever the scheduler places them; if no pod would be preempted;
/// or if the action may disrupt. `place`: the nodes of a pod that the slot creates.
pub fn danger<'a>(view: &View<'a>, scope: &Scope<'a>, place: Option<&PodPlace>) -> Option<String> {
    let ctx = view.ctx;
    if ctx.may_disrupt() {
        return None;
    }
    let others = Unscheduled::all(ctx);
    let number = others.len();
    let urgency = Urgency::of(ctx.world, scope, view.victim);
    let (slot, place) = (Some(&view.slot.id), place.cloned());
    let own = Unscheduled { scope: *scope, slot, place, urgency, room: None };
    let all: Vec<Unscheduled> = std::iter::once(own).chain(others).collect();
    let mut known = HashSet::new();
    // Pods of a ReplicaSet have the same nodes to choose from.
    all.iter()
        .filter(|one| one.place.is_some() || known.insert((&one.scope.set.id.uid, one.was_tried())))
        .any(|one| one.may_preempt(ctx, &all))
        .then(|| match number {
            0 => "no node has room for the new pod, which would preempt other pods by its priority; free room for one \
                  pod, or use disruption: Allowed to accept that"
                .to_owned(),
            _ => format!(
                "new pods of other replicas may take the room that is left ({number} without a node), and a pod with \
                 a priority would preempt others then; the action waits until they have nodes"
            ),
        })
}

/// Time for which a pod that no scheduler has tried is expected to be scheduled. A pod with a gate, or one whose
/// scheduler does not run, can wait for ever, and must not delay the actions of others as long.
const UNTRIED: SignedDuration = SignedDuration::from_mins(2);

/// A new pod of a slot that is about to be scheduled, whoever creates it.
struct Unscheduled<'a> {
    scope: Scope<'a>,
    /// The slot whose reservation is for this pod.
    slot: Option<&'a SlotId>,
    /// The nodes that it may use, if its slot creates it.
    place: Option<PodPlace>,
    urgency: Urgency,
    /// The nodes that have room now, if the scheduler had found no node before, and no pod to preempt.
    room: Option<NodesWithRoom>,
}

type NodesWithRoom = Rc<HashSet<NodeName>>;

impl<'a> Unscheduled<'a> {
    /// New pods of the slots of all actions, without those that no node has room for although they were tried: a tenant
    /// with such pods does not delay others.
    fn all(ctx: &PlanContext<'a>) -> Vec<Self> {
        let world = ctx.world;
        let (mut all, mut sets) = (Vec::new(), HashSet::new());
        let waits = |pod: &PodFact| {
            let is_expected = pod.unschedulable.is_some() || ctx.now < pod.created + UNTRIED;
            pod.is_active() && pod.node.is_none() && is_expected
        };
        let mut rooms = Rooms::default();
        for (action, slot) in world.slots_at_work() {
            let Some(scope) = Scope::of_slot(world, &action.namespace, slot) else { continue };
            let urgency = Urgency::of(world, &scope, None);
            let new = || {
                let place = world.action(action).and_then(|action| replacement::place(action, slot));
                Self { scope, slot: Some(&slot.id), place, urgency, room: None }
            };
            let of_set = || Self { scope, slot: None, place: None, urgency, room: None };
            let pod = slot.replacement.as_ref().and_then(|new| world.pod(&Key::new(&action.namespace, &new.name)));
            all.extend(pod.filter(|pod| waits(pod)).map(|pod| rooms.of(ctx, pod, new())));
            if world.runs_effect(action) {
                all.push(if pod.is_none() { new() } else { of_set() });
            }
            if sets.insert(&slot.replica_set.uid) && scope.stateful().is_none() {
                let pods = Pods::of(world, &scope);
                all.extend(pods.active().filter(|pod| waits(pod)).map(|pod| rooms.of(ctx, pod, of_set())));
                all.extend((0..pods.missing()).map(|_| of_set()));
            }
        }
        all.retain(|one| one.room.as_ref().is_none_or(|room| !room.is_empty()));
        all
    }

    fn was_tried(&self) -> bool {
        self.room.is_some()
    }

    /// Whether it may take room on the node, as far as that is known.
    fn may_take(&self, node: &NodeName) -> bool {
        self.room.as_ref().is_none_or(|room| room.contains(node))
    }

    /// The nodes that it may use.
    fn choices(&self, world: &'a World) -> impl Iterator<Item = &'a NodeFact> {
        world.nodes().filter(|node| self.place.as_ref().is_none_or(|place| place.allows(node)))
    }

    /// The checks of these nodes for it.
    fn fitting(&self, ctx: &PlanContext<'a>, nodes: Nodes<'a>) -> Fitting<'a, 'a> {
        let departing = Departing { slot: self.slot, ..Departing::default() };
        Fitting::of(nodes, &self.scope, &departing, BoundVolumes::of(ctx.world, &self.scope, ""))
    }

    /// Whether it may preempt a pod once all of these have been scheduled. Each takes the room of one node at most.
    fn may_preempt(&self, ctx: &PlanContext<'a>, all: &[Self]) -> bool {
        let priority = self.urgency.priority;
        let others = || all.iter().filter(|other| !std::ptr::eq(*other, self));
        let gives_way = |node: &NodeFact| ctx.world.priorities(&node.name()).any(|one| one < priority);
        let is_lower = |other: &Self| other.urgency.priority < priority;
        if !self.urgency.preempts || !others().any(is_lower) && !self.choices(ctx.world).any(gives_way) {
            return false;
        }
        // All of these are counted one by one instead of by the nodes that their slots have reserved.
        let slots = all.iter().filter_map(|one| one.slot);
        let mut fitting = self.fitting(ctx, slots.fold(Nodes::new(ctx.world, ctx.now), Nodes::without_slot));
        let (mut open, mut preempts) = (0, false);
        for node in self.choices(ctx.world) {
            match fitting.assess(node) {
                Ok(_) => {
                    open += 1;
                    let rivals = || others().filter(|other| other.may_take(&node.name()));
                    let has_room_left = rivals().all(|other| {
                        fitting.nodes.add(&node.name(), other.scope.set.template.as_deref());
                        fitting.assess(node).is_ok()
                    });
                    if has_room_left || open >= all.len() {
                        return false;
                    }
                    preempts |= gives_way(node) || rivals().any(is_lower);
                }
                // Pods of lower priority there would leave.
                Err(misfit) if misfit.is_by_load() && fitting.closed(node).is_none() && !self.was_tried() => {
                    preempts |= gives_way(node);
                }
                Err(_) => {}
            }
        }
        preempts
    }
}

/// The nodes that have room for pods that the scheduler has tried, once per set and place.
#[derive(Default)]
struct Rooms<'a> {
    of_sets: HashMap<&'a Uid, NodesWithRoom>,
}

impl<'a> Rooms<'a> {
    /// The new pod, with its room if this pod was tried.
    fn of(&mut self, ctx: &PlanContext<'a>, pod: &PodFact, new: Unscheduled<'a>) -> Unscheduled<'a> {
        if pod.unschedulable.is_none() {
            return new;
        }
        let find = || {
            let fitting = new.fitting(ctx, Nodes::new(ctx.world, ctx.now).without_slots());
            let fits = new.choices(ctx.world).filter(|node| fitting.assess(node).is_ok());
            Rc::new(fits.map(NodeFact::name).collect())
        };
        let room = match new.place {
            Some(_) => find(),
            None => self.of_sets.entry(&new.scope.set.id.uid).or_insert_with(find).clone(),
        };
        Unscheduled { room: Some(room), ..new }
    }
}

/// Priority of new pods of a set, as admission has given it to the others. Without another pod, a class can have any
/// value.
#[derive(Clone, Copy)]
struct Urgency {
    priority: i32,
    /// Whether they preempt other pods.
    preempts: bool,
}

impl Urgency {
    fn of(world: &World, scope: &Scope, victim: Option<&PodFact>) -> Self {
        let pods = world.pods_of(&scope.set.id.uid).chain(victim);
        let known = pods.map(|pod| (!pod.non_preempting, pod.hold.priority)).max();
        let (preempts, priority) = known.unwrap_or_else(|| (true, of_template(scope.set.template.as_deref())));
        Self { priority, preempts }
    }
}

fn of_template(template: Option<&TemplateFact>) -> i32 {
    let parsed = template.map(|template| serde_json::from_str::<Prioritized>(&template.json));
    let Some(Ok(Prioritized { spec })) = parsed else { return i32::MAX };
    match spec.priority_class_name.as_deref() {
        None | Some("") => spec.priority.unwrap_or(0),
        Some(_) => i32::MAX,
    }
}
