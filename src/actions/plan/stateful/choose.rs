//! Refusals before anything is done to a StatefulSet, and the order of its replicas.

use crate::admission;
use crate::apart;
use crate::choose::cut;
use crate::context::{PlanContext, Verb};
use crate::nodes::tolerates_cordon;
use crate::place::{Filter, source_words};
use crate::scope::{StartRefusal, not_alone};
use crate::victims::{FoundVictims, Victims, choice_of, is_in_use};
use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Plan, PodChoice, PodOnNode, Slot, Step};
use ganglion_api::workload_action::{DataLoss, Mode};
use ganglion_core::facts::{ClaimFact, Key, NodeName, PodFact, StatefulSetFact};
use ganglion_core::world::World;

/// Maximum number of claims in one message.
const LISTED_CLAIMS: usize = 8;

/// The label of the slots. It is empty, since pods of a StatefulSet are not detached. The error says why the action is
/// refused.
pub fn label(ctx: &PlanContext, set: &StatefulSetFact) -> Result<String, StartRefusal> {
    let name = &set.id.key.name;
    if ctx.work.verb == Verb::Move && !ctx.may_disrupt() {
        let message = format!(
            "a replica of StatefulSet {name} keeps its name, so it stops before it starts on the other node; allow \
             that with disruption: Allowed"
        );
        return Err(StartRefusal::now(Reason::DisruptionNeeded, message));
    }
    Ok(String::new())
}

/// Whether the new pod of a replica must be pinned to a node: the action names nodes, or the pod could come back to the
/// node that it leaves. Otherwise the scheduler chooses the node. Fails if the pod must be pinned and nothing can pin
/// it.
pub fn is_pinned(ctx: &PlanContext, set: &StatefulSetFact, victim: Option<&PodFact>) -> Result<bool, StartRefusal> {
    if !ctx.work.places() {
        return Ok(false);
    }
    let names_nodes = ctx.work.verb == Verb::Create || ctx.work.to.is_some();
    let way_back = victim.and_then(|pod| way_back(ctx, set, pod.node.as_ref()?)).filter(|_| !names_nodes);
    if !names_nodes && way_back.is_none() {
        return Ok(false);
    }
    if set.is_gated() || ctx.world.pins_pods() {
        return Ok(true);
    }
    Err(way_back.unwrap_or_else(|| no_pin(&set.id.key.name)))
}

fn no_pin(set: &str) -> StartRefusal {
    let message = format!(
        "nothing can give a new pod of StatefulSet {set} its node: apply kustomize/components/pin-statefulsets \
         (Kubernetes 1.36 or newer), or add the scheduling gate {} to spec.template.spec.schedulingGates",
        marks::GATE
    );
    StartRefusal::soon(Reason::PinNotInstalled, message)
}

/// Why a new pod without a pin could come back to the node that its predecessor leaves.
pub fn way_back(ctx: &PlanContext, set: &StatefulSetFact, node: &NodeName) -> Option<StartRefusal> {
    if let Some(message) = apart::open_node(ctx, node) {
        return Some(apart::refuse_open(message));
    }
    if !set.set.template.as_ref().is_some_and(|template| tolerates_cordon(&template.tolerations)) {
        return None;
    }
    let why = no_pin(&set.id.key.name);
    let message = format!("pods of the set tolerate the cordon of node {node}, so the next one could come back to it");
    Some(StartRefusal { message: format!("{message}; {}", why.message), ..why })
}

/// Why the action must wait: the replicas of a StatefulSet change one after the other.
pub fn busy(ctx: &PlanContext, set: &StatefulSetFact) -> Option<String> {
    let slot = ctx.world.slots_on(&set.id.uid).find(|slot| slot.step != Step::Queued)?;
    let pods = [&slot.victim, &slot.replacement];
    let pod = pods.into_iter().flatten().next().map_or("", |pod| pod.name.as_str());
    Some(format!("replica {pod} is at work; those of a StatefulSet change one after the other"))
}

/// The slots that start now: one, or all with `mode: Plan`. The replicas of a create are numbered.
pub fn in_order(ctx: &PlanContext, set: &StatefulSetFact, mut slots: Vec<Slot>) -> Vec<Slot> {
    let numbers = set.next_ordinal()..;
    for (slot, next) in slots.iter_mut().zip(numbers) {
        let name = slot.victim.as_ref().map_or_else(|| set.pod_name(next), |victim| victim.name.clone());
        if let Some(replacement) = &mut slot.replacement {
            replacement.name = name;
        }
    }
    if ctx.action.spec.mode == Mode::Execute {
        slots.truncate(1);
    }
    slots
}

/// Name of the replica at this index: that of its victim, or the next free one.
pub fn name_of(set: &StatefulSetFact, victims: &[Option<&PodFact>], at: usize) -> String {
    let next = set.next_ordinal().saturating_add(i32::try_from(at).unwrap_or(0));
    victims.get(at).copied().flatten().map_or_else(|| set.pod_name(next), |pod| pod.id.key.name.clone())
}

/// Whether the action has already moved this replica.
pub fn is_done(ctx: &PlanContext, pod: &PodFact) -> bool {
    let is_it = |victim: &PodOnNode| victim.name == pod.id.key.name;
    ctx.status.slots.iter().any(|slot| slot.step == Step::Succeeded && slot.victim.as_ref().is_some_and(is_it))
}

/// Why a replica is chosen, or not yet.
pub fn rank_words(chosen: bool) -> &'static str {
    if chosen { "first in order: highest ordinal" } else { "later in order" }
}

/// The replicas that a delete removes: those with the highest ordinals, which must be the requested ones.
pub fn highest<'a>(
    ctx: &PlanContext<'a>,
    set: &'a StatefulSetFact,
    named: Option<&'a PodFact>,
    count: usize,
    plan: &mut Plan,
) -> Result<Victims<'a>, StartRefusal> {
    let name = &set.id.key.name;
    let ordinals = (set.first_ordinal..set.next_ordinal()).rev();
    let top: Vec<(i32, Option<&PodFact>)> =
        ordinals.map(|ordinal| (ordinal, ctx.world.pod(&ctx.key(&set.pod_name(ordinal))))).collect();
    if let Some(pod) = named {
        plan.pods = vec![choice_of(pod, true, "named by the action")];
        plan.pods_total = 1;
        let last = top.first().map_or_else(String::new, |(ordinal, _)| set.pod_name(*ordinal));
        if pod.id.key.name != last {
            let message = format!(
                "StatefulSet {name} loses {last} first, which has the highest ordinal: delete that one, or move {} to \
                 another node",
                pod.id.key.name
            );
            return Err(StartRefusal::now(Reason::NotHighestOrdinal, message));
        }
    }
    let (nodes, source) = (admission::nodes_at_begin(ctx), Filter::source(ctx.world, ctx.work.from)?);
    let leaves = |pod: &PodFact| {
        let node = pod.node.as_ref().and_then(|node| ctx.world.node(node));
        node.map_or(Ok(false), |node| source.selects(&nodes, node))
    };
    if let Some(why) = top.iter().find_map(|(_, pod)| leaves((*pod)?).err()) {
        return Ok(Victims::Unmeasured(why));
    }
    let is_meant = |pod: Option<&PodFact>| ctx.work.from.is_none() || pod.is_some_and(|pod| leaves(pod) == Ok(true));
    let matching = top.iter().filter(|(_, pod)| is_meant(*pod)).count();
    let wanted = if ctx.work.all { matching.min(count) } else { count };
    if matching < wanted || top.len() < wanted {
        let message =
            format!("{wanted} replicas of StatefulSet {name} asked for, {} of {} can be deleted", matching, top.len());
        return Err(StartRefusal::soon(Reason::NotEnoughReplicas, message));
    }
    if wanted == 0 {
        return Ok(Victims::None);
    }
    let mut pods = Vec::new();
    for (ordinal, pod) in top.into_iter().take(wanted) {
        let Some(pod) = pod.filter(|pod| pod.is_of(&set.id.uid)) else {
            let message = format!("replica {} of StatefulSet {name} does not exist now", set.pod_name(ordinal));
            return Ok(Victims::Busy(message));
        };
        if !is_meant(Some(pod)) {
            return Err(another_order(set, pod, ctx));
        }
        if let Some(membership) = pod.membership {
            return Err(not_alone(&format!("pod {}", pod.id.key.name), membership));
        }
        if is_in_use(ctx, pod) {
            return Ok(Victims::Busy(format!("pod {} is in use by another action", pod.id.key.name)));
        }
        pods.push(pod);
    }
    if named.is_none() {
        plan.pods = pods.iter().map(|pod| choice_of(pod, true, rank_words(true))).collect();
        plan.pods_total = i64::from(set.set.scale.replicas);
    }
    let lost: Vec<Vec<String>> = pods.iter().map(|pod| lost_claims(ctx.world, set, &pod.id.key.name)).collect();
    for (choice, claims) in plan.pods.iter_mut().zip(&lost).filter(|(_, claims)| !claims.is_empty()) {
        choice.message = format!("{}; deleted with its data: {}", choice.message, claims_words(claims));
    }
    refuse_data_loss(ctx, set, &lost.concat())?;
    let started = ctx.status.slots.iter().filter(|slot| slot.step != Step::Queued).count();
    let found = ctx.work.all.then(|| i32::try_from(started + wanted).unwrap_or(i32::MAX));
    Ok(Victims::Found(FoundVictims { pods: pods.into_iter().map(Some).collect(), found }))
}

/// The claims that are deleted together with the replica of this name.
pub fn lost_claims(world: &World, set: &StatefulSetFact, pod: &str) -> Vec<String> {
    let ordinal = set.ordinal(pod).filter(|_| set.deletes_claims);
    let claims = ordinal.into_iter().flat_map(|ordinal| set.own_claims_of(ordinal));
    claims.filter(|claim| world.get::<ClaimFact>(&Key::new(&set.id.key.namespace, claim)).is_some()).collect()
}

/// Shows the claims that exist already for the replicas of a create. Undoing the create deletes them with their data,
/// so the create is refused unless the action accepts that.
pub fn refuse_older_claims(
    ctx: &PlanContext,
    set: &StatefulSetFact,
    count: usize,
    plan: &mut Plan,
) -> Result<(), StartRefusal> {
    if ctx.work.verb != Verb::Create {
        return Ok(());
    }
    let mut lost = Vec::new();
    for pod in (set.next_ordinal()..).take(count).map(|ordinal| set.pod_name(ordinal)) {
        let claims = lost_claims(ctx.world, set, &pod);
        if !claims.is_empty() {
            let message = format!("created with older data; deleted with them if undone: {}", claims_words(&claims));
            plan.pods.push(PodChoice { name: pod, node: None, chosen: true, message });
            lost.extend(claims);
        }
    }
    plan.pods_total = i64::try_from(plan.pods.len()).unwrap_or(i64::MAX);
    cut(&mut plan.pods, &mut plan.truncated);
    refuse_data_loss(ctx, set, &lost)
}

/// The claims of the replica of this name that are older than the action. Undoing a create deletes them.
pub fn older_claims(ctx: &PlanContext, set: &StatefulSetFact, pod: &str) -> Vec<String> {
    let claim = |name: &str| ctx.world.get::<ClaimFact>(&ctx.key(name));
    let is_older = |name: &String| claim(name).is_some_and(|claim| claim.created < ctx.created());
    lost_claims(ctx.world, set, pod).into_iter().filter(is_older).collect()
}

/// Refuses to delete claims with their data, unless the action accepts that.
pub fn refuse_data_loss(ctx: &PlanContext, set: &StatefulSetFact, claims: &[String]) -> Result<(), StartRefusal> {
    if claims.is_empty() || ctx.action.spec.data_loss == DataLoss::Accept {
        return Ok(());
    }
    let undone = if ctx.work.verb == Verb::Create { " if the create is undone" } else { "" };
    let message = format!(
        "StatefulSet {} would delete {} with the data{undone}: its persistentVolumeClaimRetentionPolicy.whenScaled is \
         Delete; apply a new action with dataLoss: Accept, or set whenScaled: Retain",
        set.id.key.name,
        claims_words(claims)
    );
    Err(StartRefusal::now(Reason::DataWouldBeLost, message))
}

fn claims_words(claims: &[String]) -> String {
    let listed: Vec<&str> = claims.iter().take(LISTED_CLAIMS).map(String::as_str).collect();
    let more = claims.len().saturating_sub(listed.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if claims.len() == 1 { "claim" } else { "claims" }, listed.join(", "))
}

fn another_order(set: &StatefulSetFact, pod: &PodFact, ctx: &PlanContext) -> StartRefusal {
    let from = ctx.work.from.map(source_words).unwrap_or_default();
    let message = format!(
        "StatefulSet {} loses {} before the others, and it is on node {}, not on {from}: move replicas so that the \
         highest ordinals are there, or leave `from` out",
        set.id.key.name,
        pod.id.key.name,
        pod.node.as_ref().map_or("none", NodeName::as_str),
    );
    StartRefusal::now(Reason::NotHighestOrdinal, message)
}
