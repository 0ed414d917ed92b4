//! Moves of replicas that must not run side by side: the old pod leaves first, and its ReplicaSet creates the new one.
//!
//! Such a move requires `disruption: Allowed` and no `to`, since nothing controls the node of a pod that a ReplicaSet
//! creates. The node that the replica leaves must be cordoned, or the new pod could come back to it. The old pod is not
//! detached, since its substitute would run beside it. The only effect of such a slot is the eviction of the old pod,
//! recorded before it is sent.

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Protocol, Slot, Step};
use ganglion_core::facts::{ClaimFact, Key, NodeFact, NodeName, PodFact};

use ganglion_core::world::World;

use super::choose::words;
use super::context::{PlanContext, Verb};
use super::eviction;
use super::hindrance::Hindrance;
use super::holder::Holder;
use super::nodes::{Nodes, tolerates_cordon};
use super::obstacles;
use super::place::Filter;
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
    if scope.set.template.as_ref().is_some_and(|template| tolerates_cordon(&template.tolerations)) {
        return no(
            "the old pod has to go first, and the next one could come back to its node, since the pods tolerate the \
                   cordon: remove the toleration of node.kubernetes.io/unschedulable from their template",
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
    open.map_or(Ok(()), |message| Err(refuse_open(message)))
}

/// The refusal of an action because of [`open_node`].
pub fn refuse_open(message: String) -> StartRefusal {
    StartRefusal::soon(Reason::NodeNotCordoned, format!("{message}, then apply a new action"))
}

/// Why the next pod could come back to this node, or to another one that `from` selects.
pub fn open_node(ctx: &PlanContext, name: &NodeName) -> Option<String> {
    let is_open = |node: &NodeFact| !node.cordoned && !node.terminating;
    let own = ctx.world.node(name).filter(|node| is_open(node));
    let name = own.or_else(|| nodes_left(ctx).into_iter().find(|node| is_open(node)))?.name();
    Some(format!("the next pod could come back to node {name}: run `kubectl cordon {name}`"))
}

/// The nodes that `from` selects; none without `from`, or if its expression cannot be used.
fn nodes_left<'a>(ctx: &PlanContext<'a>) -> Vec<&'a NodeFact> {
    let Some(Ok(source)) = ctx.work.from.map(|from| Filter::source(ctx.world, Some(from))) else { return Vec::new() };
    let nodes = Nodes::new(ctx.world, ctx.now);
    ctx.world.nodes().filter(|node| source.admits(&nodes, node).is_ok()).collect()
}

/// Records the intent to evict the old pod as soon as the pod may leave.
pub fn go_first(view: &View) -> SlotNext {
    let step = Step::Planned;
    let (Some(victim), Some(scope), Some(pods)) = (view.victim, &view.scope, view.pods()) else {
        return view.hold(step, None, None, None);
    };
    if view.ctx.suspended() {
        return view.suspended(step);
    }
    if let Some(message) = victim.node.as_ref().and_then(|name| open_node(view.ctx, name)) {
        return view.roll_back(Reason::NodeNotCordoned, &message);
    }
    // If replicas share a volume, the next pods run only after all old pods have left it, so the replicas do not
    // take turns.
    let by_turns = hindrances(view.ctx.world, scope).iter().all(|one| *one == Hindrance::Recreate);
    if by_turns && is_behind_others(view) {
        let message = "another replica of the workload goes first".to_owned();
        return view.hold(step, Some(Reason::ReplicasNotReady), Some(message), None);
    }
    let rollout = scope.rollout(view.ctx.world).map(|message| (Reason::RolloutInProgress, message));
    let unrest = rollout.or_else(|| by_turns.then(|| obstacles::unavailable(view, &pods)).flatten());
    if let Some((reason, message)) = unrest.or_else(|| obstacles::budget(view, victim)) {
        return view.hold_or_back(step, reason, message, view.ctx.ready_time() + view.ctx.drain_time());
    }
    eviction::commit(view)
}

/// Whether another replica of the set is in motion, or has an earlier turn.
fn is_behind_others(view: &View) -> bool {
    let is_ahead = |other: &Slot| {
        let is_open = !other.step.is_end() && !matches!(other.step, Step::Queued | Step::RollingBack);
        goes_first(other) && is_open && (other.evicting || (!view.slot.evicting && other.id < view.slot.id))
    };
    view.ctx.world.slots_on(&view.slot.replica_set.uid).any(|other| other.id != view.slot.id && is_ahead(other))
}

/// Waits for the pod that the ReplicaSet creates in place of the old one, and for the set's full number of Ready
/// pods.
pub fn verify(view: &View) -> SlotNext {
    let step = Step::Verifying;
    let Some(pods) = &view.pods() else { return eviction::workload_is_gone(view) };
    if let Some(pod) = young(view, pods).find(|pod| pod.node.as_ref() == home(view)) {
        let node = home(view).map(NodeName::as_str).unwrap_or_default();
        let message = format!("pod {} came back to node {node}, which is not cordoned any more", pod.id.key.name);
        return view.end(Step::Failed, Reason::NodeNotCordoned, &message);
    }
    let successor = successor(view, pods);
    let stable = successor.and_then(PodFact::ready_from).map(|since| since + view.settling_time());
    let Some((reason, message)) = obstacles::lacking(view, pods) else {
        if let Some(stable) = stable.filter(|stable| view.ctx.now < *stable) {
            let message = format!("the new pod is Ready; it must stay Ready until {stable}");
            return view.hold(step, None, Some(message), Some(stable));
        }
        return view.succeeded_with(successor);
    };
    let timeout = view.ctx.schedule_time() + view.ctx.ready_time() + view.settling_time();
    if view.overdue(step, timeout).unwrap_or(false) {
        let message = format!("{message}; the old pod is gone, and its ReplicaSet goes on trying");
        return view.end(Step::Failed, reason, &message);
    }
    view.hold(step, Some(reason), Some(message), view.deadline(step, timeout))
}

/// The node that the replica leaves.
fn home<'a>(view: &View<'a>) -> Option<&'a NodeName> {
    view.slot.victim.as_ref().map(|victim| &victim.node)
}

/// Pods that the set has created since the action was created.
fn young<'a>(view: &View<'a>, pods: &Pods<'a>) -> impl Iterator<Item = &'a PodFact> + use<'a> {
    let created = view.ctx.created();
    pods.active().filter(move |pod| pod.created > created)
}

/// The successor of the old pod: the youngest pod on another node that no slot has recorded.
fn successor<'a>(view: &View<'a>, pods: &Pods<'a>) -> Option<&'a PodFact> {
    let taken = |pod: &PodFact| {
        let mut slots = view.ctx.status.slots.iter();
        slots.any(|slot| slot.replacement.as_ref().is_some_and(|one| one.name == pod.id.key.name))
    };
    let created = view.ctx.created();
    let came = pods.active().filter(|pod| pod.created >= created && pod.node.as_ref() != home(view));
    came.filter(|pod| !taken(pod)).max_by_key(|pod| (pod.created, pod.id.key.name.clone()))
}
