//! Chooses replicas and nodes for the slots that have not started, and explains the choice in the plan.

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::refs::{Target, WorkloadRef};
use ganglion_api::workload_action::status::{LIST_LIMIT, NodeChoice, Plan, PodOnNode, Protocol, SetRef, Slot, Step};
use ganglion_api::workload_action::{Mode, OnReplicaOwner};
use ganglion_core::facts::{NodeName, PodFact};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::admission::{self, ReachedLimit};
use super::apart;
use super::candidates::Candidates;
use super::context::{PlanContext, Verb};
use super::fitting::Fitting;
use super::holder::Holder;
use super::identity;
use super::neighbors::Departing;
use super::nodes::{NodeRefusal, Nodes};
use super::place::{Filter, target_words};
use super::scope::{Outlook, Scope, StartRefusal};
use super::set::Pods;
use super::slot::is_old_stateful;
use super::spread::SpreadRules;
use super::stateful;
use super::successor;
use super::swap;
use super::victims::{self, Victims};
use super::volumes::BoundVolumes;

/// The result of choosing.
#[derive(Debug)]
pub enum Choice {
    /// These slots start now. `found` is the number of replicas of `count: All`.
    Begin { slots: Vec<Slot>, plan: Plan, found: Option<i32> },
    /// `count: All` has no replica left to start.
    Nothing { plan: Plan },
    /// The action waits.
    Wait { reason: Reason, message: String },
    /// The action cannot start.
    Refuse(StartRefusal, Plan),
}

impl From<ReachedLimit> for Choice {
    fn from(ReachedLimit { reason, message }: ReachedLimit) -> Self {
        Self::Wait { reason, message }
    }
}

/// Chooses pods and nodes for the slots with these indexes and attempts.
pub fn choose(ctx: &PlanContext, open: &[(i32, i32)]) -> Choice {
    match prepare(ctx, open) {
        Ok(choice) => choice,
        Err(StartRefusal { reason: Reason::VictimBusy, message, .. }) => {
            Choice::Wait { reason: Reason::VictimBusy, message }
        }
        Err(stop) => Choice::Refuse(stop, Plan::default()),
    }
}

fn prepare(ctx: &PlanContext, open: &[(i32, i32)]) -> Result<Choice, StartRefusal> {
    if let Some(swap) = ctx.work.swap {
        return swap::choose(ctx, swap, open);
    }
    let (scope, named) = subject(ctx)?;
    let (label, goes_first) = way(ctx, &scope)?;
    let scope = if ctx.work.verb.scales() { scalable(ctx, scope, named)? } else { scope };
    if ctx.work.verb.scales()
        && ctx.action.spec.on_replica_owner == OnReplicaOwner::Yield
        && let Some(owner) = scope.replicas_owner(ctx.world)
    {
        let advice = "change the number there, or apply a new action with onReplicaOwner: Force";
        let message = format!("{owner} owns spec.replicas of {}; {advice}", words(&scope));
        return Err(StartRefusal::now(Reason::ReplicasOwnedElsewhere, message));
    }
    if let Some(wait) = obstacle(ctx, &scope) {
        return Ok(wait);
    }
    let looks_at_load = ctx.work.places() || ctx.work.from.is_some_and(|from| from.condition.is_some());
    if looks_at_load && let Some(wait) = unknown_load(ctx) {
        return Ok(wait);
    }
    if let Some(wait) = unknown_usage(ctx) {
        return Ok(wait);
    }
    let mut plan = Plan::default();
    let victims = match victims::pick(ctx, &scope, named, open.len(), &mut plan) {
        Err(stop) => return Ok(Choice::Refuse(stop, plan)),
        Ok(Victims::Found(victims)) => victims,
        Ok(Victims::None) => return Ok(Choice::Nothing { plan }),
        Ok(Victims::Busy(message)) => return Ok(Choice::Wait { reason: Reason::VictimBusy, message }),
        Ok(Victims::Unmeasured(message)) => return Ok(Choice::Wait { reason: Reason::UsageOutdated, message }),
    };
    if let Some(set) = scope.stateful()
        && let Err(stop) = stateful::refuse_older_claims(ctx, set, open.len(), &mut plan)
    {
        return Ok(Choice::Refuse(stop, plan));
    }
    let places = if ctx.work.places() {
        match pick_nodes(ctx, &scope, &victims.pods, &mut plan) {
            Ok(places) => recorded_places(ctx, &scope, goes_first, &victims.pods, places, &mut plan)?,
            Err(stop) => return Ok(Choice::Refuse(stop, plan)),
        }
    } else {
        vec![None; victims.pods.len()]
    };
    let suits_all = !goes_first && successor::suits(ctx, &scope, &victims.pods);
    let protocol_of = |victim: Option<&PodFact>| match victim {
        _ if goes_first => Protocol::Eviction,
        _ if suits_all => Protocol::Successor,
        Some(pod) if successor::leaves_at_once(ctx, &scope, pod) => Protocol::Successor,
        _ => Protocol::Replacement,
    };
    let is_scheduled = !goes_first && scheduler_chooses(ctx, &scope);
    if is_scheduled {
        for node in plan.nodes.iter_mut().filter(|node| node.replicas > 0) {
            node.message.push_str("; the scheduler may choose another one");
        }
    }
    // Only a move has successors; the number of others may depend on an owner that is not read yet.
    let available = if ctx.work.verb == Verb::Move { successor::available(ctx, &scope) } else { 0 };
    let chosen = open.iter().zip(victims.pods).zip(places);
    let slots = chosen.map(|((&(index, attempt), pod), node)| {
        let mut slot = new_slot(ctx, &scope, &label, (index, attempt), pod, node);
        (slot.protocol, slot.break_first, slot.scheduled) = (protocol_of(pod), goes_first, is_scheduled);
        if slot.protocol == Protocol::Successor {
            slot.available = available;
            slot.replacement.iter_mut().for_each(|new| new.name.clear());
        }
        slot
    });
    let slots = match scope.stateful() {
        Some(set) => stateful::in_order(ctx, set, slots.collect()),
        None => slots.collect(),
    };
    Ok(admit(ctx, slots, plan, victims.found))
}

/// Whether the scheduler can choose the node of a replacement pod: its node affinity can express which nodes the action
/// allows. With the exclusion of a node or of nodes without a label, the scheduler does not count the pods there in
/// required spread constraints, so the planner chooses the node if that could lead to a wrong choice.
fn scheduler_chooses(ctx: &PlanContext, scope: &Scope) -> bool {
    let work = &ctx.work;
    let names_labels_only = |to: &Target| {
        to.node_name.is_none() && to.condition.is_none() && to.policy.is_none() && to.preferences.is_none()
    };
    let leaves_one = work.from.is_none_or(|from| from.node_name.is_some());
    let spread = scope.set.template.as_deref().map(SpreadRules::required);
    work.places()
        && work.swap.is_none()
        && !ctx.is_part()
        && scope.stateful().is_none()
        && match work.to {
            None => leaves_one && spread.is_none_or(|spread| spread.most_skew() <= 1),
            Some(to) => names_labels_only(to) && spread.is_none_or(|spread| spread.most_skew() == 0),
        }
}

/// The nodes that the slots record. A slot whose new pod is placed by the scheduler only needs to know that a node
/// exists.
fn recorded_places(
    ctx: &PlanContext,
    scope: &Scope,
    goes_first: bool,
    victims: &[Option<&PodFact>],
    places: Vec<NodeName>,
    plan: &mut Plan,
) -> Result<Vec<Option<NodeName>>, StartRefusal> {
    if goes_first {
        apart::refuse_open_nodes(ctx, victims)?;
    }
    let mut recorded = Vec::new();
    for (place, victim) in places.into_iter().zip(victims) {
        let is_chosen = match scope.stateful() {
            Some(set) => stateful::is_pinned(ctx, set, *victim)?,
            None => !goes_first,
        };
        recorded.push(is_chosen.then_some(place));
    }
    for node in &mut plan.nodes {
        let there = recorded.iter().flatten().filter(|place| **place == node.name).count();
        node.replicas = i32::try_from(there).unwrap_or(i32::MAX);
    }
    Ok(recorded)
}

/// The label by which pods of the workload are detached, and whether the old pods leave before new ones are created.
/// The error says why the replicas cannot be changed.
pub fn way(ctx: &PlanContext, scope: &Scope) -> Result<(String, bool), StartRefusal> {
    if let Some(set) = scope.stateful() {
        return Ok((stateful::label(ctx, set)?, false));
    }
    let goes_first = apart::is_needed(ctx, scope)?;
    let label = scope.detach_label(ctx.world);
    Ok((if goes_first { label.unwrap_or_default() } else { label? }, goes_first))
}

/// The scope for an action that changes replicas. The policy on authors checks the right to scale the workload that the
/// action names, so the replicas of no other object are changed: a ReplicaSet with a controller is refused. A pod of a
/// workload of another kind is refused, too, since the API server cannot check the right by the name of a pod.
fn scalable<'a>(ctx: &PlanContext<'a>, scope: Scope<'a>, named: Option<&PodFact>) -> Result<Scope<'a>, StartRefusal> {
    if let (Some(pod), Holder::Other(..)) = (named, scope.holder) {
        let (pod, workload) = (&pod.id.key.name, words(&scope));
        let advice =
            "name the workload instead, and the pod's node in `from`: your right to scale it is checked by its name";
        let message =
            format!("pod {pod} belongs to {workload}, whose replicas are not deleted by the name of a pod; {advice}");
        return Err(StartRefusal::now(Reason::NotSupported, message));
    }
    if let Some(other) = ctx.work.workload.filter(|workload| !scope.is_named_by(workload)) {
        let (WorkloadRef { kind, name, .. }, workload) = (other, words(&scope));
        let advice = format!("name {workload} instead: your right to scale it is checked by its name");
        let message = format!("{kind} {name} belongs to {workload}, which has its replicas; {advice}");
        return Err(StartRefusal::now(Reason::NotSupported, message));
    }
    scope.with_owner(ctx.world)
}

/// Why no replica of the workload may start now, independent of pod and node.
pub fn obstacle(ctx: &PlanContext, scope: &Scope) -> Option<Choice> {
    if let Some(refusal) = scope.stuck_rollout(ctx.world) {
        return Some(Choice::Refuse(refusal, Plan::default()));
    }
    if let Some(message) = scope.rollout(ctx.world) {
        return Some(Choice::Wait { reason: Reason::RolloutInProgress, message });
    }
    let busy = scope.stateful().and_then(|set| stateful::busy(ctx, set)).or_else(|| admission::busy(ctx, scope));
    if let Some(message) = busy {
        return Some(Choice::Wait { reason: Reason::WorkloadBusy, message });
    }
    if ctx.work.verb != Verb::Create && Pods::of(ctx.world, scope).wanted_by_others(None) {
        let message = "the ReplicaSet has not created the substitute of another replica yet".to_owned();
        return Some(Choice::Wait { reason: Reason::VictimBusy, message });
    }
    let executes = ctx.action.spec.mode == Mode::Execute;
    executes.then(|| admission::shared_limit(ctx, &scope.workload()))?.map(Choice::from)
}

/// Message of [`Reason::LoadUnknown`].
pub const LOAD_UNKNOWN: &str =
    "the load of nodes is unknown: the operator may not list and watch pods in all namespaces";

/// Waits until the pods of all nodes are known.
pub fn unknown_load(ctx: &PlanContext) -> Option<Choice> {
    (!ctx.world.knows_load()).then(|| Choice::Wait { reason: Reason::LoadUnknown, message: LOAD_UNKNOWN.to_owned() })
}

/// Waits until the usage of nodes is known, if an expression of the action reads it.
pub fn unknown_usage(ctx: &PlanContext) -> Option<Choice> {
    Some(Choice::Wait { reason: Reason::UsageUnknown, message: usage_words(ctx)? })
}

/// Why the usage of nodes is unknown and what to do, if an expression of the action reads it.
pub fn usage_words(ctx: &PlanContext) -> Option<String> {
    let why = ctx.world.unknown_usage(ctx.action, ctx.now)?;
    let advice = "NodeConfigs measure it, too; an expression without node.cpu.utilization and node.memory.utilization \
                  needs neither";
    Some(format!("the usage of nodes is unknown: {why}; {advice}"))
}

/// Starts as many of the slots as the limits admit. With `mode: Plan`, all of them are shown.
fn admit(ctx: &PlanContext, mut slots: Vec<Slot>, plan: Plan, found: Option<i32>) -> Choice {
    if ctx.action.spec.mode == Mode::Plan {
        return Choice::Begin { slots, plan, found };
    }
    let (room, full) = admission::room(ctx, &slots);
    match full {
        Some(limit) if room == 0 => limit.into(),
        _ => {
            slots.truncate(room);
            Choice::Begin { slots, plan, found }
        }
    }
}

fn subject<'a>(ctx: &PlanContext<'a>) -> Result<(Scope<'a>, Option<&'a PodFact>), StartRefusal> {
    match (ctx.work.workload, ctx.work.pod) {
        (_, Some(pod)) => {
            let (scope, pod) = Scope::of_pod(ctx.world, ctx.namespace(), &pod.name)?;
            Ok((scope, Some(pod)))
        }
        (Some(workload), None) => Ok((Scope::of_workload(ctx.world, ctx.namespace(), workload)?, None)),
        (None, None) => Err(StartRefusal::now(Reason::NotSupported, "name a workload or a pod")),
    }
}

/// Kind and name of the workload.
pub fn words(scope: &Scope) -> String {
    let workload = scope.workload();
    format!("{} {}", workload.kind, workload.name)
}

/// Chooses one node for each replica.
fn pick_nodes(
    ctx: &PlanContext,
    scope: &Scope,
    victims: &[Option<&PodFact>],
    plan: &mut Plan,
) -> Result<Vec<NodeName>, StartRefusal> {
    if let Some(name) = ctx.work.to.and_then(|to| to.node_name.as_ref())
        && ctx.world.node(name).is_none()
    {
        return Err(unknown_node(name));
    }
    let filter = target(ctx)?;
    // With leave to evict the old pod first, it keeps its successor away from no node.
    let leaving = victims.iter().flatten().filter(|_| ctx.may_disrupt());
    let later = victims.iter().flatten().map(|pod| &pod.id.uid).collect();
    let departing = Departing { pods: leaving.map(|pod| &pod.id.uid).collect(), later, ..Departing::default() };
    let mut candidates = Candidates::at_begin(ctx, &filter, scope, &departing)?;
    let homes: Vec<Option<&NodeName>> = victims.iter().map(|pod| pod.and_then(|pod| pod.node.as_ref())).collect();
    let mut places = Vec::new();
    for (at, home) in homes.iter().enumerate() {
        let pod = scope.stateful().map(|set| stateful::name_of(set, victims, at)).unwrap_or_default();
        let volumes = BoundVolumes::of(ctx.world, scope, &pod);
        if homes.len() == 1 {
            candidates.narrow(|node| volumes.refusal(node));
        }
        let Some(name) = candidates.take(*home, &|node| volumes.refusal(node).is_none()) else {
            candidates.narrow(|node| volumes.refusal(node));
            plan.nodes = candidates.refused(*home);
            let stop = no_node_for(ctx, &volumes, &filter, &plan.nodes);
            count_and_cut(plan);
            return Err(stop);
        };
        places.push(name);
    }
    let shared_home = homes.first().copied().flatten().filter(|first| homes.iter().all(|home| *home == Some(*first)));
    plan.nodes = candidates.listed(shared_home);
    count_and_cut(plan);
    Ok(places)
}

/// The target nodes. For a move of a moveApplication, they never include the nodes that the application leaves.
pub fn target<'a>(ctx: &PlanContext<'a>) -> Result<Filter<'a>, StartRefusal> {
    match ctx.work.from {
        Some(from) if ctx.is_part() => Filter::apart(ctx.world, ctx.work.to, from),
        from => Filter::target(ctx.world, ctx.work.to, from),
    }
}

pub fn unknown_node(name: &NodeName) -> StartRefusal {
    StartRefusal::soon(Reason::NodeNotFound, format!("no node {name}; look at `kubectl get nodes`"))
}

/// Counts the nodes of the plan and truncates their list.
pub fn count_and_cut(plan: &mut Plan) {
    plan.nodes_total = i64::try_from(plan.nodes.len()).unwrap_or(i64::MAX);
    cut(&mut plan.nodes, &mut plan.truncated);
}

/// Maximum number of further nodes on which a slot of a ReplicaSet tries a new pod. Each new pod may preempt others. A
/// slot of a StatefulSet counts its attempts.
const MOST_TRIED: usize = 3;

/// Another node within the limits for a slot whose node failed; None if there is none, or if too many have failed. The
/// nodes of a swap are fixed.
pub fn another_node(ctx: &PlanContext, slot: &Slot) -> Option<NodeName> {
    if ctx.work.swap.is_some() || (!slot.is_stateful() && slot.tried.len() >= MOST_TRIED) {
        return None;
    }
    let scope = Scope::of_slot(ctx.world, ctx.namespace(), slot)?;
    let filter = target(ctx).ok()?;
    let home = slot.victim.as_ref().map(|victim| &victim.node);
    let mut tried = slot.tried.clone();
    tried.extend(slot.replacement.as_ref().map(|replacement| replacement.node.clone()));
    let open = admission::OpenNodes::of(ctx);
    let mut candidates = Candidates::new(ctx, &filter, &scope, &tried, &departing(ctx, slot)).ok()?;
    let volumes = BoundVolumes::of(ctx.world, &scope, replica_name(slot));
    candidates.narrow(|node| volumes.refusal(node));
    candidates.best(home).find(|name| open.takes_one_more(name)).cloned()
}

/// Whether the scheduler can choose the node of the slot's next new pod although nodes that failed are excluded: no
/// required spread constraint counts pods on them.
pub fn scheduler_may_exclude(ctx: &PlanContext, slot: &Slot) -> bool {
    let scope = Scope::of_slot(ctx.world, ctx.namespace(), slot).filter(|_| !slot.tried.is_empty());
    let template = scope.and_then(|scope| scope.set.template.as_deref());
    template.is_none_or(|template| SpreadRules::required(template).most_skew() == 0)
}

/// Pods and slot that do not keep the new pod of the slot off a node. A new pod that has failed leaves before the next
/// one is created.
fn departing<'s>(ctx: &PlanContext<'s>, slot: &'s Slot) -> Departing<'s> {
    let victim = slot.victim.iter().filter(|_| ctx.may_disrupt());
    let failed = slot.replacement.as_ref().and_then(|new| ctx.world.pod(&ctx.key(&new.name)));
    let failed = failed.filter(|pod| !is_old_stateful(slot, pod)).map(|pod| &pod.id.uid);
    let pods = victim.filter_map(|pod| pod.uid.as_ref()).chain(failed).collect();
    Departing { pods, slot: Some(&slot.id), ..Departing::default() }
}

/// Name of the slot's pod, which matters for a StatefulSet only: its old and new pods have the same.
fn replica_name(slot: &Slot) -> &str {
    slot.victim.as_ref().or(slot.replacement.as_ref()).map_or("", |pod| pod.name.as_str())
}

/// Why the new pod of the slot does not fit on its target node any more, even without the old pod.
pub fn misfit(ctx: &PlanContext, slot: &Slot) -> Option<NodeRefusal> {
    refusal_of(ctx, slot, false)
}

/// Whether the old pod alone keeps the new pod of the slot off its target node, as far as the planner sees. Others may
/// cause the rest.
pub fn is_freed_by_victim(ctx: &PlanContext, slot: &Slot) -> bool {
    misfit(ctx, slot).is_none() && refusal_of(ctx, slot, true).is_some()
}

/// Why the new pod of the slot does not fit on its target node, beside the old pod or without it.
fn refusal_of(ctx: &PlanContext, slot: &Slot, is_beside_victim: bool) -> Option<NodeRefusal> {
    let name = &slot.replacement.as_ref()?.node;
    let Some(node) = ctx.world.node(name) else { return Some((Reason::NodeGone, format!("node {name} is gone"))) };
    let scope = Scope::of_slot(ctx.world, ctx.namespace(), slot)?;
    let nodes = Nodes::new(ctx.world, ctx.now).without_slot(&slot.id);
    let victim = slot.victim.as_ref().and_then(|pod| pod.uid.as_ref());
    let departing = Departing {
        pods: victim.into_iter().filter(|_| !is_beside_victim).collect(),
        staying: victim.filter(|_| is_beside_victim),
        slot: Some(&slot.id),
        ..Departing::default()
    };
    let volumes = BoundVolumes::of(ctx.world, &scope, replica_name(slot));
    Fitting::of(nodes, &scope, &departing, volumes).assess(node).err().map(NodeRefusal::from)
}

/// Why the scheduler would find no node for the new pod of a slot without a target.
pub fn homeless(ctx: &PlanContext, slot: &Slot) -> Option<StartRefusal> {
    let scope = Scope::of_slot(ctx.world, ctx.namespace(), slot)?;
    let filter = target(ctx).ok()?;
    let home = slot.victim.as_ref().map(|victim| &victim.node);
    let mut candidates = Candidates::new(ctx, &filter, &scope, &[], &departing(ctx, slot)).ok()?;
    let volumes = BoundVolumes::of(ctx.world, &scope, replica_name(slot));
    candidates.narrow(|node| volumes.refusal(node));
    if candidates.best(home).next().is_some() {
        return None;
    }
    Some(no_node_for(ctx, &volumes, &filter, &candidates.refused(home)))
}

/// Why no node takes a replica with these volumes.
pub fn no_node_for(ctx: &PlanContext, volumes: &BoundVolumes, filter: &Filter, refused: &[NodeChoice]) -> StartRefusal {
    let confined = volumes.confinement(ctx.world, refused).filter(|_| ctx.work.to.is_none());
    confined.unwrap_or_else(|| no_node(ctx.work.to, filter, refused))
}

/// Why no node takes a replica.
pub fn no_node(to: Option<&Target>, filter: &Filter, refused: &[NodeChoice]) -> StartRefusal {
    if let Some(outdated) = refused.iter().find(|node| node.refused == Some(Reason::UsageOutdated)) {
        return StartRefusal {
            outlook: Outlook::Passing,
            ..StartRefusal::now(Reason::UsageOutdated, &outdated.message)
        };
    }
    let is_by_load = |node: &NodeChoice| {
        matches!(node.refused, Some(Reason::NodeFull | Reason::NodeOccupied | Reason::PolicyRejected))
    };
    let stop = match refused {
        [only] if to.is_some_and(|to| to.node_name.is_some()) => {
            StartRefusal::soon(only.refused.unwrap_or(Reason::NoCandidateNode), only.message.clone())
        }
        [] => {
            let asked = to.map_or_else(|| "any node".to_owned(), target_words);
            StartRefusal::soon(Reason::NoCandidateNode, format!("no node matches {asked}"))
        }
        some => {
            let first = some.iter().find(|node| node.refused != Some(Reason::NodeExcluded)).unwrap_or(&some[0]);
            let message = format!("none of {} nodes can take the replica, for instance: {}", some.len(), first.message);
            StartRefusal::soon(Reason::NoCandidateNode, message)
        }
    };
    stop.caused_by_load(filter.reads_pods() || refused.iter().any(is_by_load))
}

/// Creates a slot that is about to start.
pub fn new_slot(
    ctx: &PlanContext,
    scope: &Scope,
    label: &str,
    (index, attempt): (i32, i32),
    victim: Option<&PodFact>,
    node: Option<NodeName>,
) -> Slot {
    let id = identity::slot_id(&ctx.id().uid, index);
    let set = &scope.set.id;
    let replacement =
        node.map(|node| PodOnNode { name: identity::replacement_name(&set.key.name, &id, attempt), uid: None, node });
    Slot {
        index,
        attempt,
        step: Step::Planned,
        since: Time(ctx.now),
        workload: scope.workload(),
        replica_set: SetRef { name: set.key.name.clone(), uid: set.uid.clone() },
        label: label.to_owned(),
        victim: victim.map(|pod| PodOnNode {
            name: pod.id.key.name.clone(),
            uid: Some(pod.id.uid.clone()),
            node: pod.node.clone().unwrap_or_default(),
        }),
        replacement,
        protocol: Protocol::default(),
        available: 0,
        scheduled: false,
        tried: Vec::new(),
        scaled: false,
        evicting: false,
        break_first: false,
        reason: None,
        obstacle: None,
        message: None,
        id,
    }
}

/// Truncates a list of the plan to the limit of the status.
pub fn cut<T>(list: &mut Vec<T>, truncated: &mut bool) {
    if list.len() > LIST_LIMIT {
        list.truncate(LIST_LIMIT);
        *truncated = true;
    }
}
