//! Swap: replicas on two nodes exchange places.
//!
//! Each replica is moved by a slot of its own. This module contains the rules that connect the slots: they are chosen
//! and admitted together; each waits for room, and for the others' new pods to be Ready before the first old pod is
//! detached; until the first old pod is gone, a slot that fails rolls all of them back. If neither node has room,
//! `disruption: Allowed` lets the old pod of the first side leave before its new pod runs.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use ganglion_api::reasons::Reason;
use ganglion_api::refs::PodRef;
use ganglion_api::workload_action::status::{Plan, Slot, Step};
use ganglion_api::workload_action::{Mode, Swap, SwapSide};
use ganglion_core::facts::{NodeFact, NodeName, PodFact, Uid};

use super::QUEUE_PACE;
use super::admission;
use super::apart;
use super::choose::{Choice, cut, new_slot, obstacle, unknown_load, unknown_usage, words};
use super::context::PlanContext;
use super::neighbors::{Departing, Neighbors};
use super::nodes::{NodeRefusal, Nodes, possible};
use super::place::Filter;
use super::protocol::{self, SlotProtocol};
use super::scope::{Scope, StartRefusal};
use super::slot::{SlotNext, View};
use super::spread::SpreadRules;
use super::victims::{Suitable, candidates, choice_of, is_in_use, refuse_budgets};
use super::volumes::BoundVolumes;

/// One replica of the swap, and the pods that it may be.
struct SwapHalf<'a> {
    index: i32,
    attempt: i32,
    scope: Scope<'a>,
    label: String,
    fit: Vec<&'a PodFact>,
}

/// A chosen pod and its target node.
struct Pairing<'a, 's> {
    side: &'s SwapHalf<'a>,
    pod: &'a PodFact,
    to: &'a NodeFact,
}

/// Chooses for the slots with these indexes and attempts: all slots of the swap, or those that are tried again.
pub fn choose(ctx: &PlanContext, swap: &Swap, open: &[(i32, i32)]) -> Result<Choice, StartRefusal> {
    if ctx.working().next().is_some() && !is_committed(ctx) {
        let message = "the other replicas of the swap are rolled back first".to_owned();
        return Ok(Choice::Wait { reason: Reason::VictimBusy, message });
    }
    let workloads = open.iter().map(|(index, _)| Ok(subject(ctx, side_of(swap, *index)?)?.0.workload()));
    let on_one_node = open.iter().filter(|(index, _)| *index != 0).count();
    if let Some(stop) = admission::too_small(ctx, &workloads.collect::<Result<Vec<_>, StartRefusal>>()?, on_one_node) {
        return Err(stop);
    }
    let mut plan = Plan::default();
    let mut sides = Vec::new();
    for &(index, attempt) in open {
        match side(ctx, swap, (index, attempt), &mut plan)? {
            Ok(side) => sides.push(side),
            Err(wait) => return Ok(wait),
        }
    }
    if let Some(wait) = unknown_load(ctx).or_else(|| unknown_usage(ctx)) {
        return Ok(wait);
    }
    let Some(pairs) = pair(ctx, &sides) else { return Ok(Choice::Refuse(no_pair(&sides), plan)) };
    if let Err(stop) = room(ctx, &pairs, &mut plan) {
        return Ok(Choice::Refuse(stop, plan));
    }
    for choice in &mut plan.pods {
        choice.chosen = pairs.iter().any(|pair| pair.pod.id.key.name == choice.name);
    }
    plan.pods.sort_by_key(|choice| !choice.chosen);
    cut(&mut plan.pods, &mut plan.truncated);
    let slots = pairs.iter().map(|Pairing { side, pod, to }| {
        let node = Some(to.name());
        new_slot(ctx, &side.scope, &side.label, (side.index, side.attempt), Some(pod), node)
    });
    Ok(admit(ctx, slots.collect(), plan))
}

/// Admits all slots or none: a part of a swap would leave the others without room.
fn admit(ctx: &PlanContext, slots: Vec<Slot>, plan: Plan) -> Choice {
    match admission::room(ctx, &slots) {
        (_, Some(limit)) if ctx.action.spec.mode == Mode::Execute => limit.into(),
        _ => Choice::Begin { slots, plan, found: None },
    }
}

/// The workload of one side, and the pod that it names.
fn subject<'a>(ctx: &PlanContext<'a>, asked: &SwapSide) -> Result<(Scope<'a>, Option<&'a PodFact>), StartRefusal> {
    match (&asked.workload, &asked.pod) {
        (_, Some(PodRef { name })) => {
            Scope::of_pod(ctx.world, ctx.namespace(), name).map(|(scope, pod)| (scope, Some(pod)))
        }
        (Some(workload), None) => Ok((Scope::of_workload(ctx.world, ctx.namespace(), workload)?, None)),
        (None, None) => Err(StartRefusal::now(Reason::NotSupported, "name a workload or a pod on each side")),
    }
}

/// The pods that one side may be. The inner error is a wait.
fn side<'a>(
    ctx: &PlanContext<'a>,
    swap: &'a Swap,
    (index, attempt): (i32, i32),
    plan: &mut Plan,
) -> Result<Result<SwapHalf<'a>, Choice>, StartRefusal> {
    let asked = side_of(swap, index)?;
    let (scope, named) = subject(ctx, asked)?;
    apart::is_needed(ctx, &scope)?;
    let label = scope.detach_label(ctx.world)?;
    refuse_budgets(ctx, &scope)?;
    if let Some(wait) = obstacle(ctx, &scope) {
        return Ok(Err(wait));
    }
    let mut considered = Plan::default();
    let Suitable { fit, busy, unmeasured, .. } = match named {
        Some(pod) => {
            considered.pods.push(choice_of(pod, true, "named by the action"));
            considered.pods_total = 1;
            let (fit, busy) = if is_in_use(ctx, pod) { (Vec::new(), 1) } else { (vec![pod], 0) };
            Suitable { fit, busy, immovable: None, unmeasured: None }
        }
        None => candidates(ctx, &scope, asked.from.as_ref(), &Filter::default(), 1, &mut considered)?,
    };
    plan.pods_total += considered.pods_total;
    plan.truncated |= considered.truncated;
    plan.pods.extend(
        considered
            .pods
            .into_iter()
            .filter(|pod| plan.pods.iter().all(|known| known.name != pod.name))
            .collect::<Vec<_>>(),
    );
    // The side exchanges its node with another one, which the fitting replicas may not share.
    if let Some(message) = unmeasured {
        return Ok(Err(Choice::Wait { reason: Reason::UsageOutdated, message }));
    }
    if fit.is_empty() && busy > 0 {
        let message = format!("{busy} replicas of {} are in use by other actions", words(&scope));
        return Ok(Err(Choice::Wait { reason: Reason::VictimBusy, message }));
    }
    Ok(Ok(SwapHalf { index, attempt, scope, label, fit }))
}

fn side_of(swap: &Swap, index: i32) -> Result<&SwapSide, StartRefusal> {
    let side = usize::try_from(index).ok().and_then(|at| [&swap.replica].into_iter().chain(&swap.with).nth(at));
    side.ok_or_else(|| StartRefusal::now(Reason::NotSupported, "the swap has fewer sides than slots"))
}

/// The sides as text, for the column Workload.
pub fn sides_words(swap: &Swap) -> String {
    let words = |side: &SwapSide| match (&side.workload, &side.pod) {
        (_, Some(pod)) => format!("Pod/{}", pod.name),
        (Some(workload), None) => format!("{}/{}", workload.kind, workload.name),
        (None, None) => "?".to_owned(),
    };
    match swap.with.as_slice() {
        [other] => format!("{}, {}", words(&swap.replica), words(other)),
        others => format!("{} and {} others", words(&swap.replica), others.len()),
    }
}

/// Two nodes, and a pod for each side: the first side on one node, the other sides on the other node.
fn pair<'a, 's>(ctx: &PlanContext<'a>, sides: &'s [SwapHalf<'a>]) -> Option<Vec<Pairing<'a, 's>>> {
    let fixed = nodes_of_started(ctx);
    let on = |is_of: fn(&SwapHalf) -> bool| {
        let pods = sides.iter().find(|side| is_of(side)).map(|side| side.fit.as_slice()).unwrap_or_default();
        let mut nodes: Vec<&NodeName> = Vec::new();
        for node in pods.iter().filter_map(|pod| pod.node.as_ref()) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    };
    let first = fixed.map_or_else(|| on(|side| side.index == 0), |(first, _)| vec![first]);
    let second = fixed.map_or_else(|| on(|side| side.index != 0), |(_, second)| vec![second]);
    let both = first.iter().flat_map(|one| second.iter().map(move |other| (*one, *other)));
    both.filter(|(one, other)| one != other).find_map(|(one, other)| assign(ctx, sides, one, other))
}

/// The two nodes of a swap that has started.
fn nodes_of_started<'a>(ctx: &PlanContext<'a>) -> Option<(&'a NodeName, &'a NodeName)> {
    let slot = ctx.status.slots.iter().find(|slot| slot.step != Step::Queued)?;
    let (home, target) = (&slot.victim.as_ref()?.node, &slot.replacement.as_ref()?.node);
    Some(if slot.index == 0 { (home, target) } else { (target, home) })
}

/// Different pods for the sides on these nodes. Sides with the fewest candidates choose first.
fn assign<'a, 's>(
    ctx: &PlanContext<'a>,
    sides: &'s [SwapHalf<'a>],
    one: &NodeName,
    other: &NodeName,
) -> Option<Vec<Pairing<'a, 's>>> {
    let mut order: Vec<&SwapHalf> = sides.iter().collect();
    order.sort_by_key(|side| (side.fit.len(), side.index));
    let mut pairs: Vec<Pairing> = Vec::new();
    for side in order {
        let (home, target) = if side.index == 0 { (one, other) } else { (other, one) };
        let is_free = |pod: &&&PodFact| pairs.iter().all(|pair| pair.pod.id.uid != pod.id.uid);
        let mut there = side.fit.iter().filter(|pod| pod.node.as_ref() == Some(home));
        let pod = *there.find(is_free)?;
        pairs.push(Pairing { side, pod, to: ctx.world.node(target)? });
    }
    pairs.sort_by_key(|pair| pair.side.index);
    Some(pairs)
}

fn no_pair(sides: &[SwapHalf]) -> StartRefusal {
    let on = |side: &SwapHalf| {
        let nodes = side.fit.iter().filter_map(|pod| pod.node.as_ref());
        let mut nodes: Vec<&str> = nodes.map(NodeName::as_str).collect();
        nodes.dedup();
        let nodes = if nodes.is_empty() { "no node that the side allows".to_owned() } else { nodes.join(", ") };
        format!("{} is on {nodes}", words(&side.scope))
    };
    let where_they_are: Vec<String> = sides.iter().take(4).map(on).collect();
    let advice = "the first replica must be on one node, and all others together on another";
    StartRefusal::soon(
        Reason::NotEnoughReplicas,
        format!("no two nodes to swap between: {}; {advice}", where_they_are.join("; ")),
    )
}

/// Whether both nodes can take the replicas after the others have left, and at least one node can take a replica
/// before.
fn room(ctx: &PlanContext, pairs: &[Pairing], plan: &mut Plan) -> Result<(), StartRefusal> {
    let key = ctx.id().key;
    let mut after = Nodes::new(ctx.world, ctx.now).without(&key);
    for pair in pairs {
        after.remove(pair.pod);
    }
    let mut before = Nodes::new(ctx.world, ctx.now).without(&key);
    let leaving: Vec<&Uid> = pairs.iter().map(|pair| &pair.pod.id.uid).collect();
    let mut full: Option<String> = None;
    let mut fits = false;
    for (at, pair) in pairs.iter().enumerate() {
        let name = pair.to.name();
        if let Some(refusal) = BoundVolumes::of(ctx.world, &pair.side.scope, &pair.pod.id.key.name).refusal(pair.to) {
            return Err(StartRefusal::node(refusal));
        }
        let share = assess(&mut after, pair).map_err(StartRefusal::node)?;
        if let Some(refusal) = kept_off(ctx, pairs, at, leaving.clone()) {
            return Err(StartRefusal::node(refusal));
        }
        match plan.nodes.iter_mut().find(|choice| choice.name == name) {
            Some(choice) => choice.replicas += 1,
            None => plan.nodes.push(possible(&name, share, 1)),
        }
        let now = assess(&mut before, pair);
        match now.and_then(|share| kept_off(ctx, pairs, at, Vec::new()).map_or(Ok(share), Err)) {
            Ok(_) => fits = true,
            Err((_, message)) => full = full.or(Some(message)),
        }
    }
    plan.nodes_total = i64::try_from(plan.nodes.len()).unwrap_or(0);
    let sets: Vec<&Uid> = pairs.iter().map(|pair| &pair.side.scope.set.id.uid).collect();
    let may_begin = fits || is_committed(ctx) || (ctx.may_disrupt() && is_apart(&sets));
    let Some(message) = full.filter(|_| !may_begin) else { return Ok(()) };
    let advice = if ctx.may_disrupt() {
        "replicas of one workload cannot be swapped if one of them must leave before its new pod runs"
    } else {
        "apply a new action with disruption: Allowed to evict the first replica before its new pod runs"
    };
    Err(StartRefusal::node((Reason::NodeFull, format!("neither node has room for one more pod: {message}; {advice}"))))
}

/// Why affinity or spreading keeps the new pod of a pair off its node once these pods have left. The new pods of the
/// pairs before it are on their nodes.
fn kept_off(ctx: &PlanContext, pairs: &[Pairing], at: usize, left: Vec<&Uid>) -> Option<NodeRefusal> {
    let Pairing { side, to, .. } = &pairs[at];
    let later = pairs.iter().map(|pair| &pair.pod.id.uid).collect();
    let departing = Departing { pods: left, later, ..Departing::default() };
    let mut neighbors = Neighbors::of(ctx.world, &side.scope, &departing)?;
    let mut spread = SpreadRules::of(ctx.world, &side.scope, &departing);
    for other in &pairs[..at] {
        neighbors.add_of(&other.side.scope, other.to);
        if other.side.scope.set.id.uid == side.scope.set.id.uid {
            spread.add(other.to);
        }
    }
    neighbors.refusal(to).or_else(|| spread.refusal(to))
}

fn assess(nodes: &mut Nodes, pair: &Pairing) -> Result<i64, NodeRefusal> {
    let template = pair.side.scope.set.template.as_deref();
    let share = nodes.assess(pair.to, template)?;
    nodes.add(&pair.to.name(), template);
    Ok(share)
}

/// Whether the swap is past its point of no return: one of its old pods is gone.
pub fn is_committed(ctx: &PlanContext) -> bool {
    let is_past = |slot: &Slot| match slot.step {
        Step::Succeeded | Step::Failed => true,
        Step::Queued | Step::RolledBack | Step::Aborted | Step::Expired => false,
        _ => !View::new(ctx, slot).can_go_back(),
    };
    ctx.work.swap.is_some() && ctx.status.slots.iter().any(is_past)
}

/// Rolls the slot back if another slot of the swap does not succeed.
pub fn back_with_others(view: &View) -> Option<SlotNext> {
    let failed = |step: Step| match step {
        Step::RollingBack | Step::RolledBack | Step::Failed | Step::Aborted | Step::Expired | Step::Queued => true,
        Step::Planned
        | Step::Creating
        | Step::Scheduling
        | Step::Readying
        | Step::Detached
        | Step::Marked
        | Step::Scaled
        | Step::Adopted
        | Step::Evicting
        | Step::Verifying
        | Step::Succeeded => false,
    };
    let other = others(view)?.find(|other| failed(other.step))?;
    if is_committed(view.ctx) {
        return None;
    }
    let why = other.message.as_deref().unwrap_or("no reason known");
    let message = format!("another replica of the swap, of {}, was undone: {why}", other.workload.name);
    Some(view.roll_back(other.reason.unwrap_or(Reason::RolledBack), &message))
}

/// Continues a slot that an abort has rolled back too late. The API server marks a pod that it evicts before it deletes
/// it, so an accepted eviction looks for a moment as if there were none.
pub fn on_again(view: &View) -> Option<SlotNext> {
    let is_whole = view.scope.is_some() && view.replacement.is_some_and(PodFact::is_active);
    if view.slot.reason != Some(Reason::Aborted) || !is_whole || !is_committed(view.ctx) {
        return None;
    }
    let protocol = SlotProtocol::of(view.slot, view.ctx.work.verb)?;
    let mut slot = view.noted();
    (slot.step, slot.since) = (protocol::step(view, protocol), Time(view.ctx.now));
    (slot.reason, slot.message) = (None, None);
    Some(SlotNext::Record(slot))
}

/// Waits until the target node has room for the new pod. If no replica of the swap has room and the action may disrupt,
/// the first slot continues nevertheless: its pod waits for the scheduler, and so its old pod leaves first.
pub fn until_there_is_room(view: &View) -> Option<SlotNext> {
    view.ctx.work.swap?;
    if has_room(view.ctx, view.slot) || goes_first(view) {
        return None;
    }
    let node = view.slot.replacement.as_ref().map(|replacement| replacement.node.as_str()).unwrap_or_default();
    let message = match waiting_pod(view.ctx).filter(|_| view.ctx.may_disrupt()) {
        Some(pod) => {
            format!("node {node} has no room, and pod {} waits for the room that a replica would free", pod.id.key)
        }
        None => format!("node {node} has no room until another replica has left it"),
    };
    let mut next = view.hold_or_back(Step::Creating, Reason::NodeFull, message, patience(view.ctx));
    if let SlotNext::Wait(hold) = &mut next {
        hold.until = super::earlier(hold.until, Some(view.ctx.now + QUEUE_PACE));
    }
    Some(next)
}

/// Waits, with a new pod that is Ready, until the other new pods of the swap that have room are Ready, too.
pub fn until_all_are_ready(view: &View) -> Option<SlotNext> {
    let lagging = others(view)?.find(|other| !is_ready(view.ctx, other))?;
    if is_committed(view.ctx) {
        return None;
    }
    let pod = lagging.replacement.as_ref().map(|replacement| replacement.name.as_str()).unwrap_or_default();
    let message = format!("the new pod is Ready; the action waits for pod {pod} before it evicts any");
    Some(view.hold(Step::Readying, None, Some(message), None))
}

/// Waits, with a new pod that its set has adopted, until the sets of the other detached replicas have adopted theirs.
/// Until then the whole swap can go back, and one write records the intent to evict all old pods.
pub fn until_all_are_adopted(view: &View) -> Option<SlotNext> {
    let lags = |other: &&Slot| {
        let other_view = View::new(view.ctx, other);
        let is_exchanged = other.evicting || other.break_first || other_view.taken_in();
        !other.step.is_end() && !is_exchanged && other_view.is_out()
    };
    let lagging = others(view)?.find(lags)?;
    if is_committed(view.ctx) {
        return None;
    }
    let name = &lagging.workload.name;
    let message =
        format!("the action waits until the ReplicaSet of {name} has adopted its new pod, before it evicts any");
    Some(view.hold(Step::Adopted, None, Some(message), None))
}

/// Additional time for a replica of a swap, since it waits for the others.
pub fn patience(ctx: &PlanContext) -> SignedDuration {
    if ctx.work.swap.is_none() {
        return SignedDuration::ZERO;
    }
    ctx.schedule_time() + ctx.ready_time() + ctx.stable_time() + ctx.drain_time()
}

/// The other slots of the swap; None if the action is no swap.
fn others<'a>(view: &View<'a>) -> Option<impl Iterator<Item = &'a Slot> + use<'a>> {
    view.ctx.work.swap?;
    let index = view.slot.index;
    Some(view.ctx.status.slots.iter().filter(move |other| other.index != index))
}

/// Whether the new pod of the slot fits beside the pods on its node. Obstacles other than room are those of any move.
fn has_room(ctx: &PlanContext, slot: &Slot) -> bool {
    let node = slot.replacement.as_ref().and_then(|replacement| ctx.world.node(&replacement.node));
    let scope = Scope::of_slot(ctx.world, ctx.namespace(), slot);
    let Some((node, scope)) = node.zip(scope) else { return true };
    let key = ctx.id().key;
    let nodes = Nodes::new(ctx.world, ctx.now).without(&key);
    let departing = Departing { slot: Some(&slot.id), ..Departing::default() };
    let neighbors = Neighbors::of(ctx.world, &scope, &departing);
    !matches!(nodes.assess(node, scope.set.template.as_deref()), Err((Reason::NodeFull | Reason::NodeOccupied, _)))
        && neighbors.is_none_or(|neighbors| neighbors.refusal(node).is_none())
}

/// Whether the first replica's ReplicaSet owns none of the others. Otherwise they would wait for one another: no pod
/// leaves a set in which a new pod waits for room.
fn is_apart(sets: &[&Uid]) -> bool {
    sets.split_first().is_some_and(|(first, others)| !others.contains(first))
}

/// Whether this slot is the one that continues without room.
fn goes_first(view: &View) -> bool {
    let ctx = view.ctx;
    let waits = |slot: &Slot| !slot.step.is_end() && View::new(ctx, slot).replacement.is_none() && !has_room(ctx, slot);
    let slots = &ctx.status.slots;
    let sets: Vec<&Uid> = slots.iter().map(|slot| &slot.replica_set.uid).collect();
    ctx.may_disrupt()
        && view.slot.index == 0
        && slots.iter().all(waits)
        && is_apart(&sets)
        && waiting_pod(ctx).is_none()
}

/// A pod that waits for room. The scheduler would give it the place of the replica that leaves first.
fn waiting_pod<'a>(ctx: &PlanContext<'a>) -> Option<&'a PodFact> {
    let mut pods = ctx.world.table::<PodFact>().values();
    pods.find(|pod| pod.is_active() && pod.node.is_none() && pod.unschedulable.is_some()).map(AsRef::as_ref)
}

/// Whether this slot allows the eviction of the others' old pods.
fn is_ready(ctx: &PlanContext, slot: &Slot) -> bool {
    let view = View::new(ctx, slot);
    let runs = |pod: &PodFact| pod.ready_from().is_some_and(|since| ctx.now >= since + view.settling_time());
    let has_begun = view.is_out() || view.taken_in() || slot.evicting || slot.break_first;
    slot.step.is_end() || has_begun || view.replacement.map_or_else(|| !has_room(ctx, slot), runs)
}
