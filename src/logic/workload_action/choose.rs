//! Chooses replicas and nodes for the slots that have not started, and explains the choice in the plan.

use std::collections::HashMap;

use crate::api::reasons::Reason;
use crate::api::targets::Target;
use crate::api::workload_action::status::{LIST_LIMIT, NodeChoice, Plan, PodChoice, PodOnNode, SetRef, Slot, Step};
use crate::api::workload_action::{Mode, OnReplicaOwner};
use crate::logic::facts::PodFact;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::admission::{self, ReachedLimit};
use super::candidates::Candidates;
use super::context::{PlanContext, Verb};
use super::identity;
use super::nodes::Nodes;
use super::place::{Filter, source_words, target_words};
use super::scope::{Scope, Stop};
use super::set::Pods;

/// The result of choosing.
#[derive(Debug)]
pub enum Choice {
    /// These slots start now.
    Begin { slots: Vec<Slot>, plan: Plan },
    /// The action waits.
    Wait { reason: Reason, message: String },
    /// The action cannot start.
    Refuse(Stop, Plan),
}

impl From<ReachedLimit> for Choice {
    fn from(ReachedLimit { reason, message }: ReachedLimit) -> Self {
        Self::Wait { reason, message }
    }
}

/// Chooses for the slots with these indexes and attempts.
pub fn choose(ctx: &PlanContext, open: &[(i32, i32)]) -> Choice {
    match prepare(ctx, open) {
        Ok(choice) => choice,
        Err(Stop { reason: Reason::VictimBusy, message, .. }) => Choice::Wait { reason: Reason::VictimBusy, message },
        Err(stop) => Choice::Refuse(stop, Plan::default()),
    }
}

/// The replica that a slot evicts; None for create.
struct Victim<'a>(Option<&'a PodFact>);

fn prepare(ctx: &PlanContext, open: &[(i32, i32)]) -> Result<Choice, Stop> {
    let (scope, named) = subject(ctx)?;
    let label = scope.detach_label(ctx.world)?;
    if ctx.work.verb.scales()
        && ctx.action.spec.on_replica_owner == OnReplicaOwner::Yield
        && let Some(owner) = scope.replicas_owner(ctx.world)
    {
        let advice = "change the number there, or apply a new action with onReplicaOwner: Force";
        let message = format!("{owner} owns spec.replicas of {}; {advice}", words(&scope));
        return Err(Stop::now(Reason::ReplicasOwnedElsewhere, message));
    }
    if let Some(message) = scope.rollout(ctx.world) {
        return Ok(Choice::Wait { reason: Reason::RolloutInProgress, message });
    }
    if let Some(message) = admission::busy(ctx, &scope) {
        return Ok(Choice::Wait { reason: Reason::WorkloadBusy, message });
    }
    if ctx.work.verb != Verb::Create && Pods::of(ctx.world, &scope).wanted_by_others("") {
        let message = "the ReplicaSet has not created the substitute of another replica yet".to_owned();
        return Ok(Choice::Wait { reason: Reason::VictimBusy, message });
    }
    if ctx.action.spec.mode == Mode::Execute
        && let Some(limit) = admission::shared_limit(ctx, &scope.workload())
    {
        return Ok(limit.into());
    }
    let looks_at_load = ctx.work.to.is_some() || ctx.work.from.is_some_and(|from| from.condition.is_some());
    if looks_at_load && !ctx.world.knows_load() {
        let message =
            "the load of nodes is unknown: the operator may not list and watch pods in all namespaces".to_owned();
        return Ok(Choice::Wait { reason: Reason::LoadUnknown, message });
    }
    let mut plan = Plan::default();
    let victims = match pick_victims(ctx, &scope, named, open.len(), &mut plan)? {
        Ok(victims) => victims,
        Err(message) => return Ok(Choice::Wait { reason: Reason::VictimBusy, message }),
    };
    let places = match ctx.work.to {
        None => vec![None; open.len()],
        Some(to) => match pick_nodes(ctx, &scope, to, &victims, &mut plan) {
            Ok(places) => places.into_iter().map(Some).collect(),
            Err(stop) => return Ok(Choice::Refuse(stop, plan)),
        },
    };
    let chosen = open.iter().zip(victims).zip(places);
    let slots = chosen
        .map(|((&(index, attempt), Victim(pod)), node)| new_slot(ctx, &scope, &label, (index, attempt), pod, node));
    Ok(admit(ctx, slots.collect(), plan))
}

/// As many of the slots as the limits admit; a plan that is only shown has all of them.
fn admit(ctx: &PlanContext, mut slots: Vec<Slot>, plan: Plan) -> Choice {
    if ctx.action.spec.mode == Mode::Plan {
        return Choice::Begin { slots, plan };
    }
    let (room, full) = admission::room(ctx, &slots);
    match full {
        Some(limit) if room == 0 => limit.into(),
        _ => {
            slots.truncate(room);
            Choice::Begin { slots, plan }
        }
    }
}

fn subject<'a>(ctx: &PlanContext<'a>) -> Result<(Scope<'a>, Option<&'a PodFact>), Stop> {
    match (ctx.work.workload, ctx.work.pod) {
        (_, Some(pod)) => {
            let (scope, pod) = Scope::of_pod(ctx.world, ctx.namespace(), &pod.name)?;
            Ok((scope, Some(pod)))
        }
        (Some(workload), None) => Ok((Scope::of_workload(ctx.world, ctx.namespace(), workload)?, None)),
        (None, None) => Err(Stop::now(Reason::NotSupported, "name a workload or a pod")),
    }
}

fn words(scope: &Scope) -> String {
    let workload = scope.workload();
    format!("{} {}", workload.kind, workload.name)
}

/// The replicas to evict. The outer error ends the action, the inner one makes it wait.
fn pick_victims<'a>(
    ctx: &PlanContext<'a>,
    scope: &Scope<'a>,
    named: Option<&'a PodFact>,
    count: usize,
    plan: &mut Plan,
) -> Result<Result<Vec<Victim<'a>>, String>, Stop> {
    if ctx.work.verb == Verb::Create {
        return Ok(Ok((0..count).map(|_| Victim(None)).collect()));
    }
    if ctx.world.budgets_for(ctx.namespace(), &scope.labels()).count() > 1 {
        let message =
            format!("more than one PodDisruptionBudget selects the pods of {}; nothing can evict them", words(scope));
        return Err(Stop::now(Reason::BudgetsOverlap, message));
    }
    if let Some(pod) = named {
        plan.pods = vec![choice_of(pod, true, "named by the action")];
        plan.pods_total = 1;
        if is_in_use(ctx, pod) {
            return Ok(Err(format!("pod {} is in use by another action", pod.id.key.name)));
        }
        return Ok(Ok(vec![Victim(Some(pod))]));
    }
    let (mut fit, busy) = candidates(ctx, scope, count, plan)?;
    if fit.len() >= count {
        fit.truncate(count);
        return Ok(Ok(fit.into_iter().map(|pod| Victim(Some(pod))).collect()));
    }
    if fit.len() + busy >= count {
        return Ok(Err(format!("{busy} replicas of {} are in use by other actions", words(scope))));
    }
    Err(Stop::soon(Reason::NotEnoughReplicas, too_few(ctx, scope, count, fit.len() + busy, plan)))
}

/// The message for a number of replicas that the workload does not have where the action takes them.
fn too_few(ctx: &PlanContext, scope: &Scope, count: usize, available: usize, plan: &Plan) -> String {
    let verb = if ctx.work.verb == Verb::Delete { "deleted" } else { "moved" };
    let asked =
        format!("{count} replicas of {} asked for, {available} of {} can be {verb}", words(scope), plan.pods_total);
    let why = match (ctx.work.from, ctx.work.to) {
        (Some(from), _) => format!("the others are not on {}", source_words(from)),
        (None, Some(to)) if ctx.work.verb == Verb::Move => {
            format!("the others are on nodes that match `to` ({}) already", target_words(to))
        }
        _ => "there are no others".to_owned(),
    };
    let advice = if available > 0 { format!("; apply a new action with count: {available}") } else { String::new() };
    format!("{asked}: {why}{advice}; status.plan.pods lists each")
}

/// The replicas that fit, in the order in which they are chosen, and how many more would fit if no other action used them.
fn candidates<'a>(
    ctx: &PlanContext<'a>,
    scope: &Scope<'a>,
    count: usize,
    plan: &mut Plan,
) -> Result<(Vec<&'a PodFact>, usize), Stop> {
    let source = Filter::source(ctx.world, ctx.work.from)?;
    let target = Filter::target(ctx.world, if ctx.work.from.is_none() { ctx.work.to } else { None })?;
    let nodes = Nodes::new(ctx.world, ctx.now);
    // The answer for each node: several of the pods may be on it.
    let mut eligible: HashMap<&str, Result<(), String>> = HashMap::new();
    let (mut fit, mut busy) = (Vec::new(), 0);
    let mut refused = Vec::new();
    for pod in Pods::of(ctx.world, scope).active() {
        let node = pod.node.as_deref().unwrap_or_default();
        match eligible.entry(node).or_insert_with(|| may_leave(ctx, &nodes, node, &source, &target)) {
            Err(why) => refused.push(choice_of(pod, false, why)),
            Ok(()) if is_in_use(ctx, pod) => {
                busy += 1;
                refused.push(choice_of(pod, false, "in use by another action"));
            }
            Ok(()) => fit.push(pod),
        }
    }
    // The order in which the ReplicaSet itself would delete them, as far as it depends on the pod alone: not Ready,
    // lowest deletion cost, youngest; then by name, which makes it deterministic.
    let cost = |pod: &PodFact| pod.marks.cost.as_ref().and_then(|cost| cost.parse::<i32>().ok()).unwrap_or(0);
    fit.sort_by_key(|pod| (pod.is_ready(), cost(pod), std::cmp::Reverse(pod.created), pod.id.key.name.clone()));
    plan.pods_total = i64::try_from(fit.len() + refused.len()).unwrap_or(i64::MAX);
    plan.pods =
        fit.iter().enumerate().map(|(rank, pod)| choice_of(pod, rank < count, rank_words(rank < count))).collect();
    plan.pods.append(&mut refused);
    cut(&mut plan.pods, &mut plan.truncated);
    Ok((fit, busy))
}

/// Whether any slot works on this pod.
fn is_in_use(ctx: &PlanContext, pod: &PodFact) -> bool {
    pod.marks.slot.is_some() || admission::is_taken(ctx, pod)
}

fn rank_words(chosen: bool) -> &'static str {
    if chosen { "first in order: not Ready, lowest deletion cost, youngest" } else { "later in order" }
}

/// Whether a replica on this node may be chosen.
fn may_leave(ctx: &PlanContext, nodes: &Nodes, node: &str, source: &Filter, target: &Filter) -> Result<(), String> {
    let Some(node) = ctx.world.node(node) else { return Err("not scheduled yet".into()) };
    source.admits(nodes, node).map_err(|why| format!("excluded by `from`: {why}"))?;
    let already = !target.is_empty() && target.admits(nodes, node).is_ok();
    if already { Err("already on a target node".into()) } else { Ok(()) }
}

fn choice_of(pod: &PodFact, chosen: bool, message: &str) -> PodChoice {
    PodChoice { name: pod.id.key.name.clone(), node: pod.node.clone(), chosen, message: message.to_owned() }
}

/// One node for each replica.
fn pick_nodes(
    ctx: &PlanContext,
    scope: &Scope,
    to: &Target,
    victims: &[Victim],
    plan: &mut Plan,
) -> Result<Vec<String>, Stop> {
    if let Some(name) = &to.node_name
        && ctx.world.node(name).is_none()
    {
        let message = format!("no node {name}; look at `kubectl get nodes`");
        return Err(Stop::soon(Reason::NodeNotFound, message));
    }
    let filter = Filter::target(ctx.world, Some(to))?;
    let mut candidates = Candidates::new(ctx, &filter, scope, &[])?;
    let homes: Vec<Option<&str>> = victims.iter().map(|Victim(pod)| pod.and_then(|pod| pod.node.as_deref())).collect();
    let mut places = Vec::new();
    for home in &homes {
        let Some(name) = candidates.take(*home) else {
            plan.nodes = candidates.refused(*home);
            let stop = no_node(to, &plan.nodes);
            count_and_cut(plan);
            return Err(stop);
        };
        places.push(name.to_owned());
    }
    let shared_home = homes.first().copied().flatten().filter(|first| homes.iter().all(|home| *home == Some(*first)));
    plan.nodes = candidates.listed(shared_home);
    count_and_cut(plan);
    Ok(places)
}

fn count_and_cut(plan: &mut Plan) {
    plan.nodes_total = i64::try_from(plan.nodes.len()).unwrap_or(i64::MAX);
    cut(&mut plan.nodes, &mut plan.truncated);
}

/// Another node for a slot whose node failed, within the limits; None if none is left.
pub fn another_node(ctx: &PlanContext, slot: &Slot) -> Option<String> {
    let scope = Scope::of_slot(ctx.world, ctx.namespace(), &slot.replica_set)?;
    let filter = Filter::target(ctx.world, ctx.work.to).ok()?;
    let home = slot.victim.as_ref().map(|victim| victim.node.as_str());
    let mut tried = slot.tried.clone();
    tried.extend(slot.replacement.as_ref().map(|replacement| replacement.node.clone()));
    let open = admission::OpenNodes::of(ctx);
    let candidates = Candidates::new(ctx, &filter, &scope, &tried).ok()?;
    candidates.best(home).find(|name| open.takes_one_more(name)).map(str::to_owned)
}

fn no_node(to: &Target, refused: &[NodeChoice]) -> Stop {
    match refused {
        [only] if to.node_name.is_some() => {
            Stop::soon(only.refused.unwrap_or(Reason::NoCandidateNode), only.message.clone())
        }
        [] => Stop::soon(Reason::NoCandidateNode, format!("no node matches {}", target_words(to))),
        some => {
            let first = some.iter().find(|node| node.refused != Some(Reason::NodeExcluded)).unwrap_or(&some[0]);
            let advice = "see `status.plan.nodes` for each";
            let message =
                format!("none of {} nodes can take the replica, for instance: {}; {advice}", some.len(), first.message);
            Stop::soon(Reason::NoCandidateNode, message)
        }
    }
}

fn new_slot(
    ctx: &PlanContext,
    scope: &Scope,
    label: &str,
    (index, attempt): (i32, i32),
    victim: Option<&PodFact>,
    node: Option<String>,
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
        tried: Vec::new(),
        scaled: false,
        evicting: false,
        break_first: false,
        reason: None,
        message: None,
        id,
    }
}

fn cut<T>(list: &mut Vec<T>, truncated: &mut bool) {
    if list.len() > LIST_LIMIT {
        list.truncate(LIST_LIMIT);
        *truncated = true;
    }
}
