//! Moves of replicas that must not run side by side: the old pod leaves first, and its ReplicaSet creates the new one.
//!
//! Such a move requires `disruption: Allowed` and no `to`, since nothing controls the node of a pod that a ReplicaSet
//! creates. The node that the replica leaves must be cordoned, or the new pod could come back to it. The old pod is not
//! detached, since its substitute would run beside it. The only effect of such a slot is the eviction of the old pod,
//! recorded before it is sent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{PodOnNode, Protocol, Slot, Step};
use ganglion_core::facts::{ClaimFact, Key, NodeName, PodFact};

use ganglion_core::world::World;

use super::choose::words;
use super::context::{PlanContext, Verb};
use super::hindrance::Hindrance;
use super::holder::Holder;
use super::scope::{Scope, StartRefusal};
use super::set::Pods;
use super::slot::{SlotNext, View};

/// Whether the old pod of a slot leaves before any new pod exists.
pub fn goes_first(slot: &Slot) -> bool {
    slot.protocol == Protocol::Eviction
}

/// Why replicas of a workload must not run side by side.
pub fn hindrances(world: &World, scope: &Scope) -> Vec<Hindrance> {
    let recreate = match scope.holder {
        Holder::Deployment(deployment) if deployment.recreates => Some(Hindrance::Recreate),
        Holder::Deployment(_) | Holder::Set | Holder::Stateful(_) | Holder::Other(..) => None,
    };
    let namespace = &scope.set.id.key.namespace;
    let claims = scope.set.template.iter().flat_map(|template| &template.claims);
    let claims = claims.filter_map(|name| Hindrance::of_claim(world.get::<ClaimFact>(&Key::new(namespace, name))?));
    recreate.into_iter().chain(claims).collect()
}

/// Whether the old pods of a move must leave first. An error if they must and the action does not allow it.
pub fn is_needed(ctx: &PlanContext, scope: &Scope) -> Result<bool, StartRefusal> {
    let found = hindrances(ctx.world, scope);
    if ctx.work.verb != Verb::Move || found.is_empty() {
        return Ok(false);
    }
    let no = |advice: &str| Err(cannot(scope, &found, advice));
    if ctx.work.swap.is_some() {
        return no("its replicas cannot be swapped; move them with disruption: Allowed, without `to`");
    }
    if !ctx.may_disrupt() {
        return no("apply a new action with disruption: Allowed and without `to`, which evicts the old pod first");
    }
    if ctx.work.to.is_some() {
        return no(
            "the old pod has to go first, and the node of the next one cannot be chosen: apply a new action without \
                   `to`, and cordon the nodes that the replicas leave",
        );
    }
    Ok(true)
}

fn cannot(scope: &Scope, found: &[Hindrance], advice: &str) -> StartRefusal {
    let why: Vec<String> = found.iter().map(Hindrance::to_string).collect();
    let message =
        format!("no new pod of {} can run beside the old one: {}; {advice}", words(scope), why.join(", and "));
    StartRefusal::now(Reason::ReplacementCannotBeFirst, message)
}

/// Refuses replicas on nodes to which the next pod could come back.
pub fn refuse_open_nodes(ctx: &PlanContext, victims: &[Option<&PodFact>]) -> Result<(), StartRefusal> {
    let open = victims.iter().flatten().find_map(|pod| open_node(ctx, pod.node.as_ref()?));
    open.map_or(Ok(()), |message| Err(StartRefusal::soon(Reason::NodeNotCordoned, message)))
}

/// Why the next pod could come back to this node.
pub fn open_node(ctx: &PlanContext, name: &NodeName) -> Option<String> {
    let is_open = ctx.world.node(name).is_some_and(|node| !node.cordoned && !node.terminating);
    is_open.then(|| {
        format!("the next pod could come back to node {name}: run `kubectl cordon {name}`, then apply a new action")
    })
}

impl<'a> View<'a> {
    /// Records the intent to evict the old pod as soon as the pod may leave.
    pub fn go_first(&self) -> SlotNext {
        let step = Step::Planned;
        let (Some(victim), Some(scope), Some(pods)) = (self.victim, &self.scope, self.pods()) else {
            return self.hold(step, None, None, None);
        };
        if self.ctx.suspended() {
            return self.suspended(step);
        }
        if let Some(message) = victim.node.as_ref().and_then(|name| open_node(self.ctx, name)) {
            return self.roll_back(Reason::NodeNotCordoned, &message);
        }
        // If replicas share a volume, the next pods run only after all old pods have left it, so the replicas do not
        // take turns.
        let by_turns = hindrances(self.ctx.world, scope).iter().all(|one| *one == Hindrance::Recreate);
        if by_turns && self.is_behind_others() {
            let message = "another replica of the workload goes first".to_owned();
            return self.hold(step, Some(Reason::ReplicasNotReady), Some(message), None);
        }
        let rollout = scope.rollout(self.ctx.world).map(|message| (Reason::RolloutInProgress, message));
        let unrest = rollout.or_else(|| by_turns.then(|| self.unready(&pods)).flatten());
        if let Some((reason, message)) = unrest.or_else(|| self.budget(victim)) {
            return self.hold_or_back(step, reason, message, self.ctx.ready_time() + self.ctx.drain_time());
        }
        self.commit()
    }

    /// Whether another replica of the set is in motion, or has an earlier turn.
    fn is_behind_others(&self) -> bool {
        let is_ahead = |other: &Slot| {
            let is_open = !other.step.is_end() && !matches!(other.step, Step::Queued | Step::RollingBack);
            goes_first(other) && is_open && (other.evicting || (!self.slot.evicting && other.id < self.slot.id))
        };
        self.ctx.world.slots_on(&self.slot.replica_set.uid).any(|other| other.id != self.slot.id && is_ahead(other))
    }

    /// Waits for the pod that the ReplicaSet creates in place of the old one, and for the set's full number of Ready
    /// pods.
    pub fn await_successor(&self, pods: &Pods<'a>) -> SlotNext {
        let step = Step::Verifying;
        if let Some(pod) = self.young(pods).find(|pod| pod.node.as_ref() == self.home()) {
            let node = self.home().map(NodeName::as_str).unwrap_or_default();
            let message = format!("pod {} came back to node {node}, which is not cordoned any more", pod.id.key.name);
            return self.end(Step::Failed, Reason::NodeNotCordoned, &message);
        }
        let successor = self.successor(pods);
        let stable = successor.and_then(|pod| pod.ready_since).map(|since| since + self.settling_time());
        let Some((reason, message)) = self.lacking(pods) else {
            if let Some(stable) = stable.filter(|stable| self.ctx.now < *stable) {
                let message = format!("the new pod is Ready; it must stay Ready until {stable}");
                return self.hold(step, None, Some(message), Some(stable));
            }
            let mut slot = self.slot.clone();
            (slot.step, slot.since) = (Step::Succeeded, Time(self.ctx.now));
            (slot.reason, slot.message) = (None, None);
            slot.replacement = successor.map(|pod| PodOnNode {
                name: pod.id.key.name.clone(),
                uid: Some(pod.id.uid.clone()),
                node: pod.node.clone().unwrap_or_default(),
            });
            return SlotNext::Record(slot);
        };
        let timeout = self.ctx.schedule_time() + self.ctx.ready_time() + self.settling_time();
        if self.overdue(step, timeout).unwrap_or(false) {
            let message = format!("{message}; the old pod is gone, and its ReplicaSet goes on trying");
            return self.end(Step::Failed, reason, &message);
        }
        self.hold(step, Some(reason), Some(message), self.deadline(step, timeout))
    }

    /// Why the set does not have its full number of Ready pods; None if it has.
    pub fn lacking(&self, pods: &Pods<'a>) -> Option<(Reason, String)> {
        if pods.is_short() {
            let failure = self.scope.and_then(|scope| scope.set.create_failure.clone());
            let slow = || (Reason::SetStuck, "the ReplicaSet controller has not made the new pod yet".to_owned());
            return Some(failure.map_or_else(slow, |message| (Reason::PodRefused, message)));
        }
        let pod = pods.unready()?;
        let name = &pod.id.key.name;
        Some(match (&pod.trouble, &pod.node, &pod.unschedulable) {
            (Some(trouble), _, _) => (trouble.reason, trouble.message.clone()),
            (None, Some(node), _) => {
                (Reason::ReplacementNotReady, format!("pod {name} on node {node} is not Ready yet"))
            }
            (None, None, Some(why)) => (Reason::Unschedulable, format!("pod {name}: {why}")),
            (None, None, None) => (Reason::Unschedulable, format!("pod {name} waits for the scheduler")),
        })
    }

    /// The node that the replica leaves.
    fn home(&self) -> Option<&'a NodeName> {
        self.slot.victim.as_ref().map(|victim| &victim.node)
    }

    /// Pods that the set has created since the action was created.
    fn young(&self, pods: &Pods<'a>) -> impl Iterator<Item = &'a PodFact> + use<'a> {
        let created = self.ctx.created();
        pods.active().filter(move |pod| pod.created > created)
    }

    /// The successor of the old pod: the youngest pod on another node that no slot has recorded.
    fn successor(&self, pods: &Pods<'a>) -> Option<&'a PodFact> {
        let taken = |pod: &PodFact| {
            let mut slots = self.ctx.status.slots.iter();
            slots.any(|slot| slot.replacement.as_ref().is_some_and(|one| one.name == pod.id.key.name))
        };
        let created = self.ctx.created();
        let came = pods.active().filter(|pod| pod.created >= created && pod.node.as_ref() != self.home());
        came.filter(|pod| !taken(pod)).max_by_key(|pod| (pod.created, pod.id.key.name.clone()))
    }
}
