//! Admission: limits on how much is at work at once, and which actions exclude one another.
//!
//! Decides over the whole store, deterministically: by priority, then age, then name. Only slots that have started
//! count.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::api::reasons::Reason;
use crate::api::workload_action::WorkloadAction;
use crate::api::workload_action::status::{PodOnNode, Slot, Step};
use crate::logic::facts::PodFact;
use crate::logic::world::Fact;

use super::Limits;
use super::context::{PlanContext, Work};
use super::scope::Scope;

/// Why the action has to wait for another one on the same workload: actions that change replicas run alone, moves run
/// together.
pub fn busy(ctx: &PlanContext, scope: &Scope) -> Option<String> {
    let workload = scope.workload();
    let at_work = ctx.world.slots_of_workload(ctx.namespace(), &workload).filter(|(_, slot)| slot.step != Step::Queued);
    at_work
        .filter_map(|(key, _)| ctx.world.action(key))
        .filter(|action| action.metadata.uid != ctx.action.metadata.uid)
        .find(|action| ctx.work.verb.scales() || Work::of(&action.spec).is_ok_and(|work| work.verb.scales()))
        .map(|action| format!("WorkloadAction {} is at work on the same workload", action.id().key.name))
}

/// Whether another slot works on this pod, or is about to.
pub fn is_taken(ctx: &PlanContext, pod: &PodFact) -> bool {
    ctx.world.slots_on(pod.controller.as_ref().map_or("", |owner| owner.uid.as_str())).any(|slot| {
        let victim = slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref() == Some(&pod.id.uid));
        let replacement = slot.replacement.as_ref().is_some_and(|replacement| replacement.name == pod.id.key.name);
        (victim || replacement) && slot.step != Step::Queued
    })
}

/// How many of these slots, from the first, the limits admit; and which limit is reached, if not all.
pub fn room(ctx: &PlanContext, slots: &[Slot]) -> (usize, Option<String>) {
    let mut count = Count::at_work(ctx);
    count.add_waiting_ahead(ctx);
    for (admitted, slot) in slots.iter().enumerate() {
        if let Some(full) = count.full(ctx, slot) {
            return (admitted, Some(full));
        }
        count.add(ctx.namespace(), slot);
    }
    (slots.len(), None)
}

/// The nodes on which the limits admit one more replica.
pub struct OpenNodes<'a> {
    limit: Option<usize>,
    targets: HashMap<&'a str, usize>,
}

impl<'a> OpenNodes<'a> {
    pub fn of(ctx: &PlanContext<'a>) -> Self {
        Self { limit: ctx.limits.per_target_node, targets: Count::at_work(ctx).targets }
    }

    pub fn takes_one_more(&self, node: &str) -> bool {
        self.limit.is_none_or(|limit| self.targets.get(node).copied().unwrap_or(0) < limit)
    }
}

/// How much is at work, for each limit that is set. What has no limit is not counted.
struct Count<'a> {
    limits: &'a Limits,
    all: usize,
    namespaces: HashMap<&'a str, usize>,
    workloads: HashMap<Workload<'a>, usize>,
    sources: HashMap<&'a str, usize>,
    targets: HashMap<&'a str, usize>,
}

impl<'a> Count<'a> {
    fn at_work(ctx: &PlanContext<'a>) -> Self {
        let mut count = Self {
            limits: ctx.limits,
            all: 0,
            namespaces: HashMap::new(),
            workloads: HashMap::new(),
            sources: HashMap::new(),
            targets: HashMap::new(),
        };
        if !ctx.limits.is_unlimited() {
            for (action, slot) in ctx.world.slots_at_work() {
                count.add(&action.namespace, slot);
            }
        }
        count
    }

    fn add(&mut self, namespace: &'a str, slot: &'a Slot) {
        self.add_one(namespace);
        if self.limits.per_workload.is_some() {
            *self.workloads.entry(workload(namespace, slot)).or_default() += 1;
        }
        let ends = [
            (self.limits.per_source_node, &mut self.sources, &slot.victim),
            (self.limits.per_target_node, &mut self.targets, &slot.replacement),
        ];
        for (limit, nodes, pod) in ends {
            if let (Some(_), Some(pod)) = (limit, pod) {
                *nodes.entry(&pod.node).or_default() += 1;
            }
        }
    }

    fn add_one(&mut self, namespace: &'a str) {
        self.all += 1;
        if self.limits.per_namespace.is_some() {
            *self.namespaces.entry(namespace).or_default() += 1;
        }
    }

    /// Actions that wait for admission and rank before this one are admitted first.
    fn add_waiting_ahead(&mut self, ctx: &PlanContext<'a>) {
        if self.limits.in_all.is_none() && self.limits.per_namespace.is_none() {
            return;
        }
        let own = rank(ctx.action);
        let world = ctx.world;
        let ahead = |action: &WorkloadAction| waits_for_turn(action) && rank(action) < own;
        for action in world.running().filter(|action| ahead(action) && !world.is_reserved(&action.id().key)) {
            self.add_one(action.metadata.namespace.as_deref().unwrap_or_default());
        }
    }

    fn full(&self, ctx: &PlanContext, slot: &Slot) -> Option<String> {
        let limits = self.limits;
        let at = |map: &HashMap<&str, usize>, key: &str| map.get(key).copied().unwrap_or(0);
        let node =
            |pod: &Option<PodOnNode>, map: &HashMap<&str, usize>| pod.as_ref().map_or(0, |pod| at(map, &pod.node));
        let of_workload = self.workloads.get(&workload(ctx.namespace(), slot)).copied().unwrap_or(0);
        let used = [
            ("in all", limits.in_all, self.all),
            ("in this namespace", limits.per_namespace, at(&self.namespaces, ctx.namespace())),
            ("of this workload", limits.per_workload, of_workload),
            ("from this node", limits.per_source_node, node(&slot.victim, &self.sources)),
            ("to this node", limits.per_target_node, node(&slot.replacement, &self.targets)),
        ];
        used.into_iter().find(|(_, limit, used)| limit.is_some_and(|limit| *used >= limit)).map(|(what, limit, _)| {
            format!("limit reached: {} replicas {what} are being worked on", limit.unwrap_or_default())
        })
    }
}

/// Namespace, kind and name.
type Workload<'a> = (&'a str, &'a str, &'a str);

/// The workload that the user named: after a rollout it has another ReplicaSet and is the same workload.
fn workload<'a>(namespace: &'a str, slot: &'a Slot) -> Workload<'a> {
    (namespace, &slot.workload.kind, &slot.workload.name)
}

/// The order of admission: the smallest is first.
fn rank(action: &WorkloadAction) -> (i32, Timestamp, Option<&str>, Option<&str>) {
    let metadata = &action.metadata;
    let age = metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    (-action.spec.priority, age, metadata.namespace.as_deref(), metadata.name.as_deref())
}

/// Whether the action has nothing at work, and only because of a limit.
fn waits_for_turn(action: &WorkloadAction) -> bool {
    let Some(status) = &action.status else { return false };
    let limited =
        status.conditions.iter().any(|one| one.type_ == "Reconciling" && one.reason == Reason::LimitReached.as_str());
    limited && !action.spec.suspend && status.slots.iter().all(|slot| slot.step.is_end() || slot.step == Step::Queued)
}
