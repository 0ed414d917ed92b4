//! Moves without a target: the ReplicaSet creates the new pod, and the scheduler places it.
//!
//! The old pod is detached and continues to serve. Its ReplicaSet creates a *successor* at once, which is by
//! construction what its controller makes. The old pod is evicted when as many pods are available without it as before
//! it was detached. So nothing is pinned, marked or adopted, and several old pods of one ReplicaSet need no pairing.
//!
//! The scheduler counts the detached pod, which keeps its other labels, and could send the successor back to a node
//! that is not cordoned. See [`suits`] for the moves that are made like this.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Protocol, Slot, Step};
use ganglion_core::facts::{Key, NodeName, PodFact, TemplateFact, Uid};
use ganglion_core::world::World;

use super::context::{PlanContext, Verb};
use super::deletion;
use super::eviction;
use super::exchange;
use super::holder::Holder;
use super::neighbors;
use super::nodes::tolerates_cordon;
use super::obstacles;
use super::preemption;
use super::scope::Scope;
use super::set::Pods;
use super::slot::{SlotNext, View};
use super::spread::{HOSTNAME, SpreadRules};

/// Whether the scheduler may choose the node of each new pod: no target is named, and of the nodes only the one that
/// the replica leaves is excluded.
pub fn is_free(ctx: &PlanContext) -> bool {
    let work = &ctx.work;
    let leaves_one = work.from.is_none_or(|from| from.node_name.is_some());
    work.verb == Verb::Move && work.to.is_none() && work.swap.is_none() && !ctx.is_part() && leaves_one
}

/// Whether the ReplicaSet can create the new pods of these victims:
/// - the scheduler chooses the nodes, and cannot choose a node that a victim leaves;
/// - no constraint on domains larger than a node counts the victims, which still run when the successors are placed;
/// - the status of the Deployment stays Available, as far as it is: it counts a detached pod as unavailable. With a pod
///   that is not Ready, another way is no better: a replacement would have to wait for that pod.
pub fn suits(ctx: &PlanContext, scope: &Scope, victims: &[Option<&PodFact>]) -> bool {
    let all_stay_away = victims.iter().flatten().all(|pod| stays_away(ctx, scope, pod));
    let allows_one_out =
        || most_out(scope).is_none_or(|most| most > 0) || Pods::of(ctx.world, scope).unready().is_some();
    let counts_victims = |template| counts_victims_by_domain(scope, template);
    is_free(ctx) && all_stay_away && allows_one_out() && !scope.set.template.as_deref().is_some_and(counts_victims)
}

/// Whether this victim leaves before its successor exists: nobody misses a pod that is not Ready, and a pod that is
/// gone keeps its successor out of no domain.
pub fn leaves_at_once(ctx: &PlanContext, scope: &Scope, victim: &PodFact) -> bool {
    !victim.is_ready() && stays_away(ctx, scope, victim)
}

/// Whether the scheduler chooses the node of the successor, and cannot choose the node that the victim leaves.
fn stays_away(ctx: &PlanContext, scope: &Scope, victim: &PodFact) -> bool {
    let is_closed = |name: &NodeName| ctx.world.node(name).is_none_or(|node| node.cordoned || node.terminating);
    let template = scope.set.template.as_deref();
    is_free(ctx)
        && scope.stateful().is_none()
        && victim.node.as_ref().is_none_or(is_closed)
        && template.is_some_and(|template| !tolerates_cordon(&template.tolerations))
}

/// Number of available pods of a set, those that are detached included.
pub fn available(ctx: &PlanContext, scope: &Scope) -> i32 {
    Supply::of(ctx, scope, &Pods::of(ctx.world, scope)).total()
}

/// Maximum number of pods of the Deployment that may be detached at once; None if there is no limit.
fn most_out(scope: &Scope) -> Option<i32> {
    match scope.holder {
        Holder::Deployment(deployment) => Some(deployment.max_unavailable),
        Holder::Set | Holder::Stateful(_) | Holder::Other(..) => None,
    }
}

/// Whether a required constraint of the template counts pods of the template by a domain that is larger than a node.
fn counts_victims_by_domain(scope: &Scope, template: &TemplateFact) -> bool {
    let repels = neighbors::apart(template).iter().any(|term| {
        let namespace = scope.set.id.key.namespace.as_str();
        *term.topology != *HOSTNAME && term.concerns(namespace, namespace, &template.labels)
    });
    repels || SpreadRules::required(template).counts_own_pods_by_other_than(HOSTNAME)
}

/// The step, derived from the world. A victim that others deleted while it was detached has left like an evicted one.
pub fn step(view: &View) -> Step {
    let was_out = view.slot.step == Step::Detached;
    match (view.slot.evicting, view.victim) {
        (true, Some(_)) => Step::Evicting,
        (true, None) => Step::Verifying,
        (false, _) if view.is_out() && view.victim_runs() => Step::Detached,
        (false, _) if was_out && !view.victim_runs() => Step::Verifying,
        (false, _) => Step::Planned,
    }
}

/// Detaches the victim. A victim that is not Ready is evicted at once, as nobody misses it.
pub fn detach(view: &View, available: i32) -> SlotNext {
    let step = Step::Planned;
    let (Some(victim), Some(scope), Some(pods)) = (view.victim.filter(|pod| pod.is_active()), &view.scope, view.pods())
    else {
        return view.roll_back(Reason::VictimGone, &deletion::words("the old pod", view.victim));
    };
    if view.ctx.suspended() {
        return view.suspended(step);
    }
    if let Some(name) = victim.node.as_ref().filter(|name| is_open(view.ctx.world, name)) {
        return view.roll_back(Reason::NodeNotCordoned, &format!("node {name} is not cordoned any more"));
    }
    let timeout = view.ctx.ready_time() + view.ctx.drain_time();
    if let Some(message) = scope.rollout(view.ctx.world) {
        return view.hold_or_back(step, Reason::RolloutInProgress, message, timeout);
    }
    if pods.wanted_by_others(Some(&view.slot.id)) {
        let message = "the ReplicaSet has not created the substitute of another replica yet".to_owned();
        return view.hold_or_back(step, Reason::VictimBusy, message, timeout);
    }
    let supply = Supply::of(view.ctx, scope, &pods);
    if let Some(message) = preemption::danger(view, scope, None) {
        return view.hold_or_back(step, Reason::NodeFull, message, timeout);
    }
    if !victim.is_ready() {
        return eviction::commit(view);
    }
    let out = supply.number_out();
    if most_out(scope).is_some_and(|most| out >= most.max(1)) {
        let message = format!("{out} other replicas of the workload are on their way, which maxUnavailable allows");
        return view.hold(step, Some(Reason::WorkloadBusy), Some(message), None);
    }
    if supply.total() != available {
        let mut slot = view.slot.clone();
        slot.available = supply.total();
        return SlotNext::Record(slot);
    }
    exchange::detached(view, victim, &pods)
}

/// Waits until as many pods are available without the victim as before.
pub fn await_availability(view: &View, available: i32) -> SlotNext {
    let step = Step::Detached;
    let (Some(scope), Some(pods)) = (&view.scope, view.pods()) else { return view.hold(step, None, None, None) };
    if let Some(pod) = came_back(view, &pods) {
        return view.roll_back(Reason::NodeNotCordoned, &came_back_words(pod));
    }
    let supply = Supply::of(view.ctx, scope, &pods);
    if supply.may_leave(view, available) {
        return eviction::commit(view);
    }
    let timeout = view.ctx.schedule_time() + view.ctx.ready_time() + view.settling_time();
    let waiting = (Reason::ReplicasNotReady, "the successor is not available yet".to_owned());
    let (reason, message) = obstacles::lacking(view, &pods).unwrap_or(waiting);
    let mut next = view.hold_or_back(step, reason, message, timeout);
    if let SlotNext::Wait(hold) = &mut next {
        hold.until = super::earlier(hold.until, supply.next_available());
    }
    next
}

/// Waits until the ReplicaSet has created the successor and it is on a node; ends the slot. Other pods of the set do
/// not matter. If others have scaled the workload down, there is no successor.
pub fn verify(view: &View) -> SlotNext {
    let step = Step::Verifying;
    let Some(pods) = view.pods() else { return eviction::workload_is_gone(view) };
    if let Some(pod) = came_back(view, &pods) {
        return view.end(Step::Failed, Reason::NodeNotCordoned, &came_back_words(pod));
    }
    let successor = successor(view, &pods);
    if successor.map_or(pods.is_short(), |pod| pod.node.is_none()) {
        let waiting = (Reason::Unschedulable, "the successor waits for the scheduler".to_owned());
        let (reason, message) = obstacles::lacking(view, &pods).unwrap_or(waiting);
        let timeout = view.ctx.schedule_time();
        if view.overdue(step, timeout).unwrap_or(false) {
            let message = format!("{message}; the old pod is gone, and its ReplicaSet goes on trying");
            return view.end(Step::Failed, reason, &message);
        }
        return view.hold(step, Some(reason), Some(message), view.deadline(step, timeout));
    }
    view.succeeded_with(successor)
}

/// Whether nothing is left to undo: the set has its pods without the victim, and none of them is the successor. Others
/// scaled the workload down, so the victim is evicted. A budget can refuse that for `drainSeconds`; then the victim
/// goes back, and the set deletes the pod that it has too many.
pub fn is_superfluous(view: &View, pods: &Pods) -> bool {
    view.slot.protocol == Protocol::Successor
        && !pods.is_short()
        && pods.surplus_of(&view.slot.id).is_none()
        && pods.unclaimed(view.slot).is_none()
        && !view.overdue(Step::RollingBack, view.ctx.drain_time()).unwrap_or(false)
}

/// Whether the victim of this slot has left its set.
pub fn has_left(world: &World, namespace: &str, slot: &Slot) -> bool {
    let victim = slot.victim.as_ref().and_then(|victim| world.pod(&Key::new(namespace, &victim.name)));
    victim.is_none_or(|pod| !pod.is_of(&slot.replica_set.uid))
}

/// Whether the set of this slot has all its pods, each on a node: the successors of all victims have arrived.
pub fn is_complete(world: &World, namespace: &str, slot: &Slot) -> bool {
    let Some(scope) = Scope::of_slot(world, namespace, slot) else { return false };
    let pods = Pods::of(world, &scope);
    !pods.is_short() && pods.active().all(|pod| pod.node.is_some())
}

fn is_open(world: &World, name: &NodeName) -> bool {
    world.node(name).is_some_and(|node| !node.cordoned && !node.terminating)
}

/// A pod that the set has created since the action was created, on the node that the replica leaves.
fn came_back<'a>(view: &View<'a>, pods: &Pods<'a>) -> Option<&'a PodFact> {
    let home = &view.slot.victim.as_ref()?.node;
    let created = view.ctx.created();
    let came = pods.active().filter(|pod| pod.created > created && pod.node.as_ref() == Some(home));
    came.filter(|_| is_open(view.ctx.world, home)).min_by_key(|pod| &pod.id.key)
}

fn came_back_words(pod: &PodFact) -> String {
    let node = pod.node.as_ref().map(NodeName::as_str).unwrap_or_default();
    format!("pod {} came back to node {node}, which is not cordoned any more", pod.id.key.name)
}

/// A pod that the set has created since the action was created and that no slot has recorded, on another node than the
/// victim's. Pods that have a node come first.
fn successor<'a>(view: &View<'a>, pods: &Pods<'a>) -> Option<&'a PodFact> {
    let home = view.slot.victim.as_ref().map(|victim| &victim.node);
    let set = &view.slot.replica_set.uid;
    let is_taken = |pod: &PodFact| {
        let mut slots = view.ctx.status.slots.iter().chain(view.ctx.world.slots_on(set));
        slots.any(|slot| slot.replacement.as_ref().is_some_and(|one| one.name == pod.id.key.name))
    };
    let created = view.ctx.created();
    let came = pods.active().filter(|pod| pod.created >= created && pod.node.as_ref() != home && !is_taken(pod));
    came.max_by_key(|pod| (pod.node.is_some(), pod.created, pod.id.key.name.clone()))
}

/// Available pods of one ReplicaSet: those that it has, and detached victims that still serve. Pods that existed before
/// the action, and victims, count while they are Ready: they serve, whether or not they have settled.
struct Supply<'a> {
    now: Timestamp,
    /// See [`Scope::settling_time`].
    settling: SignedDuration,
    /// Creation of the action.
    created: Timestamp,
    /// Victims of all slots of this protocol.
    victims: HashSet<&'a Uid>,
    kept: Vec<&'a PodFact>,
    /// Detached victims of slots of this protocol, with their slots; those that leave first come first.
    out: Vec<(&'a Slot, &'a PodFact)>,
    wanted: i32,
}

impl<'a> Supply<'a> {
    fn of(ctx: &PlanContext<'a>, scope: &Scope<'a>, pods: &Pods<'a>) -> Self {
        let set = &scope.set.id.uid;
        let namespace = ctx.namespace();
        let slots = || ctx.world.slots_on(set).filter(|slot| slot.protocol == Protocol::Successor);
        let victims = slots().filter_map(|slot| slot.victim.as_ref()?.uid.as_ref()).collect();
        let victim_of = |slot: &'a Slot| {
            let victim = slot.victim.as_ref()?;
            let pod = ctx.world.pod(&Key::new(namespace, &victim.name))?;
            let is_it = victim.uid.as_ref() == Some(&pod.id.uid) && pod.is_active() && !pod.is_of(set);
            is_it.then_some((slot, pod))
        };
        let mut out: Vec<_> = slots().filter_map(victim_of).collect();
        out.sort_by(|(a, _), (b, _)| (!a.evicting, &a.id).cmp(&(!b.evicting, &b.id)));
        Self {
            now: ctx.now,
            settling: scope.settling_time(ctx),
            created: ctx.created(),
            victims,
            kept: pods.active().collect(),
            out,
            wanted: scope.replicas(),
        }
    }

    /// Time at which the pod is available if it stays Ready.
    fn available_from(&self, pod: &PodFact) -> Option<Timestamp> {
        let counts_at_once = pod.created < self.created || self.victims.contains(&pod.id.uid);
        let settling = if counts_at_once { SignedDuration::ZERO } else { self.settling };
        pod.ready_from().filter(|_| pod.is_active()).map(|since| since + settling)
    }

    fn is_available(&self, pod: &PodFact) -> bool {
        self.available_from(pod).is_some_and(|from| from <= self.now)
    }

    fn number_out(&self) -> i32 {
        i32::try_from(self.out.len()).unwrap_or(i32::MAX)
    }

    /// Number of available pods, detached ones included.
    fn total(&self) -> i32 {
        let out = self.out.iter().map(|(_, pod)| *pod);
        i32::try_from(self.kept.iter().copied().chain(out).filter(|pod| self.is_available(pod)).count())
            .unwrap_or(i32::MAX)
    }

    /// Whether the victim of this slot may leave: fewer victims than there are available pods too many are ahead of it.
    fn may_leave(&self, view: &View, available: i32) -> bool {
        let spare = self.total() - available.min(self.wanted);
        let ahead = self.out.iter().take_while(|(slot, _)| slot.id != view.slot.id).count();
        i32::try_from(ahead).is_ok_and(|ahead| ahead < spare)
    }

    /// Time at which the next Ready pod becomes available.
    fn next_available(&self) -> Option<Timestamp> {
        self.kept.iter().filter_map(|pod| self.available_from(pod)).filter(|from| *from > self.now).min()
    }
}
