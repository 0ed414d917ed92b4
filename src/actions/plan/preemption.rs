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
    let urgency = Urgency::of(ctx.world, scope, view.victim);
    let (slot, place) = (Some(&view.slot.id), place.cloned());
    let own = Unscheduled { scope: *scope, slot, place, urgency, was_tried: false, room: None };
    let all: Vec<Unscheduled> = std::iter::once(own).chain(Unscheduled::all(ctx)).collect();
    // Most clusters have pods of one priority: nodes are not looked at.
    if !is_possible(ctx, &all) {
        return None;
    }
    let all = Unscheduled::with_room(ctx, all);
    let mut known = HashSet::new();
    // Pods of a ReplicaSet have the same nodes to choose from.
    all.iter()
        .filter(|one| one.place.is_some() || known.insert((&one.scope.set.id.uid, one.was_tried)))
        .any(|one| one.may_preempt(ctx, &all))
        .then(|| match all.len() - 1 {
            0 => "no node has room for the new pod, which would preempt other pods by its priority; free room for one \
                  pod, or use disruption: Allowed to accept that"
                .to_owned(),
            number => format!(
                "new pods of other replicas may take the room that is left ({number} without a node), and a pod with \
                 a priority would preempt others then; the action waits until they have nodes"
            ),
        })
}

/// Whether a pod could be preempted for one of these at all: another one, or a pod on a node, has a lower priority.
fn is_possible(ctx: &PlanContext, all: &[Unscheduled]) -> bool {
    let there = ctx.world.nodes().filter_map(|node| ctx.world.priorities(&node.name()).min());
    let lowest = there.chain(all.iter().map(|one| one.urgency.priority)).min();
    all.iter().any(|one| one.urgency.preempts && lowest.is_some_and(|lowest| lowest < one.urgency.priority))
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
    /// Whether the scheduler has found no node for it, and no pod to preempt. It still takes room that others free.
    was_tried: bool,
    /// The nodes that have room for it, if it was tried.
    room: Option<NodesWithRoom>,
}

type NodesWithRoom = Rc<HashSet<NodeName>>;

impl<'a> Unscheduled<'a> {
    /// New pods of the slots of all actions.
    fn all(ctx: &PlanContext<'a>) -> Vec<Self> {
        let world = ctx.world;
        let (mut all, mut sets) = (Vec::new(), HashSet::new());
        let was_tried = |pod: &PodFact| pod.unschedulable.is_some();
        let waits = |pod: &PodFact| {
            pod.is_active() && pod.node.is_none() && (was_tried(pod) || ctx.now < pod.created + UNTRIED)
        };
        for (action, slot) in world.slots_at_work() {
            let Some(scope) = Scope::of_slot(world, &action.namespace, slot) else { continue };
            let urgency = Urgency::of(world, &scope, None);
            let of_slot = |was_tried| {
                let place = world.action(action).and_then(|action| replacement::place(action, slot));
                Self { scope, slot: Some(&slot.id), place, urgency, was_tried, room: None }
            };
            let of_set = |was_tried| Self { scope, slot: None, place: None, urgency, was_tried, room: None };
            let new = slot.replacement.as_ref().and_then(|new| world.pod(&Key::new(&action.namespace, &new.name)));
            all.extend(new.filter(|pod| waits(pod)).map(|pod| of_slot(was_tried(pod))));
            if world.runs_effect(action) {
                all.push(if new.is_none() { of_slot(false) } else { of_set(false) });
            }
            if sets.insert(&slot.replica_set.uid) && scope.stateful().is_none() {
                let pods = Pods::of(world, &scope);
                all.extend(pods.active().filter(|pod| waits(pod)).map(|pod| of_set(was_tried(pod))));
                all.extend((0..pods.missing()).map(|_| of_set(false)));
            }
        }
        all
    }

    /// The same with the nodes that have room for those that were tried. Pods without such a node are left out: a
    /// tenant with pods that fit nowhere does not delay others.
    fn with_room(ctx: &PlanContext<'a>, all: Vec<Self>) -> Vec<Self> {
        let mut of_sets: HashMap<&Uid, NodesWithRoom> = HashMap::new();
        let find = |one: Self| {
            if !one.was_tried {
                return one;
            }
            let look = || {
                let fitting = one.fitting(ctx, Nodes::new(ctx.world, ctx.now).without_slots());
                let fits = one.choices(ctx.world).filter(|node| fitting.assess(node).is_ok());
                Rc::new(fits.map(NodeFact::name).collect())
            };
            let room = match one.place {
                Some(_) => look(),
                None => of_sets.entry(&one.scope.set.id.uid).or_insert_with(look).clone(),
            };
            Self { room: Some(room), ..one }
        };
        let has_choice = |one: &Self| one.room.as_ref().is_none_or(|room| !room.is_empty());
        all.into_iter().map(find).filter(has_choice).collect()
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
                Err(misfit) if misfit.is_by_load() && fitting.closed(node).is_none() && !self.was_tried => {
                    preempts |= gives_way(node);
                }
                Err(_) => {}
            }
        }
        preempts
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
