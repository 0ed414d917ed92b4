//! The replicas that an action evicts: which of them fit, which are in use, and the order in which they are chosen.

use std::collections::HashMap;

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::refs::NodeSource;
use ganglion_api::workload_action::MOST_REPLICAS;
use ganglion_api::workload_action::status::{Plan, PodChoice, Step};
use ganglion_core::facts::{NodeName, PodFact};

use super::admission;
use super::choose::{cut, words};
use super::context::{PlanContext, Verb};
use super::nodes::{NodeRefusal, Nodes};
use super::place::{Filter, source_words, target_words};
use super::scope::{Scope, StartRefusal, not_alone, reduced};
use super::set::Pods;
use super::stateful;

/// The replicas for the slots that have not started.
pub enum Victims<'a> {
    Found(FoundVictims<'a>),
    /// `count: All` matches no replica.
    None,
    /// Other actions use the replicas.
    Busy(String),
    /// Replicas may match once their nodes have been measured again.
    Unmeasured(String),
}

pub struct FoundVictims<'a> {
    /// One pod for each slot, from the first; None for create.
    pub pods: Vec<Option<&'a PodFact>>,
    /// Number of replicas of `count: All`, including those that have started.
    pub found: Option<i32>,
}

/// Chooses the replicas. The error ends the action.
pub fn pick<'a>(
    ctx: &PlanContext<'a>,
    scope: &Scope<'a>,
    named: Option<&'a PodFact>,
    count: usize,
    plan: &mut Plan,
) -> Result<Victims<'a>, StartRefusal> {
    let some = |pods, found| Ok(Victims::Found(FoundVictims { pods, found }));
    if ctx.work.verb == Verb::Create {
        return some(vec![None; count], None);
    }
    refuse_budgets(ctx, scope)?;
    if let Some(set) = scope.stateful().filter(|_| ctx.work.verb == Verb::Delete) {
        return stateful::highest(ctx, set, named, count, plan);
    }
    if let Some(pod) = named {
        plan.pods = vec![choice_of(pod, true, "named by the action")];
        plan.pods_total = 1;
        if is_in_use(ctx, pod) {
            return Ok(Victims::Busy(format!("pod {} is in use by another action", pod.id.key.name)));
        }
        return some(vec![Some(pod)], None);
    }
    let target = Filter::target(ctx.world, if ctx.work.from.is_none() { ctx.work.to } else { None }, None)?;
    let Suitable { mut fit, busy, immovable, unmeasured } =
        candidates(ctx, scope, ctx.work.from, &target, count, plan)?;
    let in_use =
        |busy: usize| Victims::Busy(format!("{busy} replicas of {} are in use by other actions", words(scope)));
    // `count: All` without `upTo` stands for the most that an action may change, so it asks for every replica.
    if let Some(why) = unmeasured.filter(|_| fit.len() < count) {
        return Ok(Victims::Unmeasured(why));
    }
    if ctx.work.all {
        // Otherwise, whoever empties a node would be told that it is empty.
        if let Some(refusal) = immovable.filter(|_| fit.len() < count) {
            return Err(refusal);
        }
        return match (fit.len(), busy) {
            (0, 0) => Ok(Victims::None),
            (0, busy) => Ok(in_use(busy)),
            (there, busy) => {
                let found = found(ctx, scope, there + busy, count)?;
                fit.truncate(count);
                some(fit.into_iter().map(Some).collect(), Some(found))
            }
        };
    }
    if fit.len() >= count {
        fit.truncate(count);
        return some(fit.into_iter().map(Some).collect(), None);
    }
    if fit.len() + busy >= count {
        return Ok(in_use(busy));
    }
    Err(StartRefusal::soon(Reason::NotEnoughReplicas, too_few(ctx, scope, count, fit.len() + busy, plan)))
}

/// Number of replicas of `count: All`: those that have started plus those that match now, at most as many as requested.
fn found(ctx: &PlanContext, scope: &Scope, matching: usize, open: usize) -> Result<i32, StartRefusal> {
    let started = ctx.status.slots.iter().filter(|slot| slot.step != Step::Queued).count();
    let bounded = ctx.work.bounded;
    if started == 0 && matching > open && !bounded {
        let message = format!(
            "{matching} replicas of {} match, and an action changes at most {MOST_REPLICAS}; set upTo, or move them \
             with moveApplication, which works in waves",
            words(scope)
        );
        return Err(StartRefusal::now(Reason::NotSupported, message));
    }
    Ok(i32::try_from(started + matching.min(open)).unwrap_or(MOST_REPLICAS))
}

/// Stops the action if the workload's pods cannot be evicted.
pub fn refuse_budgets(ctx: &PlanContext, scope: &Scope) -> Result<(), StartRefusal> {
    if ctx.world.budgets_for(ctx.namespace(), &scope.labels()).count() < 2 {
        return Ok(());
    }
    let message =
        format!("more than one PodDisruptionBudget selects the pods of {}; nothing can evict them", words(scope));
    Err(StartRefusal::now(Reason::BudgetsOverlap, message))
}

/// Message for a workload that has fewer suitable replicas than requested.
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

/// The replicas that fit.
pub struct Suitable<'a> {
    /// In the order in which they are chosen.
    pub fit: Vec<&'a PodFact>,
    /// Number of further replicas that would fit if no other action used them.
    pub busy: usize,
    /// Why further replicas that match are left alone, if there are some: the refusal of the first one.
    pub immovable: Option<StartRefusal>,
    /// Why it is not known of further replicas whether they fit, if there are some: the nodes must be measured again.
    pub unmeasured: Option<String>,
}

/// The replicas that fit.
pub fn candidates<'a>(
    ctx: &PlanContext<'a>,
    scope: &Scope<'a>,
    from: Option<&NodeSource>,
    target: &Filter<'_>,
    count: usize,
    plan: &mut Plan,
) -> Result<Suitable<'a>, StartRefusal> {
    let source = Filter::source(ctx.world, from)?;
    let nodes = admission::nodes_at_begin(ctx);
    // The result for each node, since several of the pods may be on it.
    let mut eligible: HashMap<Option<&NodeName>, Result<(), NodeRefusal>> = HashMap::new();
    let (mut fit, mut busy, mut immovable, mut unmeasured) = (Vec::new(), 0, None, None);
    let mut refused = Vec::new();
    for pod in Pods::of(ctx.world, scope).active() {
        let node = pod.node.as_ref();
        match eligible.entry(node).or_insert_with(|| may_leave(ctx, &nodes, node, &source, target)) {
            Err((reason, why)) => {
                if *reason == Reason::UsageOutdated {
                    unmeasured.get_or_insert_with(|| why.clone());
                }
                refused.push(choice_of(pod, false, why));
            }
            Ok(()) if pod.reduced => {
                immovable.get_or_insert_with(|| reduced(&format!("pod {}", pod.id.key.name)));
                refused.push(choice_of(pod, false, "its labels are too long to be kept"));
            }
            Ok(()) if let Some(membership) = pod.membership => {
                immovable.get_or_insert_with(|| not_alone(&format!("pod {}", pod.id.key.name), membership));
                refused.push(choice_of(pod, false, &format!("its pods {membership}")));
            }
            Ok(()) if has_failed(ctx, pod) => refused.push(choice_of(pod, false, "could not be moved before")),
            Ok(()) if scope.stateful().is_some() && stateful::is_done(ctx, pod) => {
                refused.push(choice_of(pod, false, "moved by this action"));
            }
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
    if let Some(set) = scope.stateful() {
        fit.sort_by_key(|pod| std::cmp::Reverse(set.ordinal(&pod.id.key.name)));
    }
    plan.pods_total = i64::try_from(fit.len() + refused.len()).unwrap_or(i64::MAX);
    let words = |chosen| if scope.stateful().is_some() { stateful::rank_words(chosen) } else { rank_words(chosen) };
    plan.pods = fit.iter().enumerate().map(|(rank, pod)| choice_of(pod, rank < count, words(rank < count))).collect();
    plan.pods.append(&mut refused);
    cut(&mut plan.pods, &mut plan.truncated);
    Ok(Suitable { fit, busy, immovable, unmeasured })
}

/// Whether the action tried this pod and gave up.
fn has_failed(ctx: &PlanContext, pod: &PodFact) -> bool {
    let ended = ctx.status.slots.iter().filter(|slot| slot.step.is_end());
    ended.filter_map(|slot| slot.victim.as_ref()).any(|victim| victim.uid.as_ref() == Some(&pod.id.uid))
}

/// Whether any slot works on this pod.
pub fn is_in_use(ctx: &PlanContext, pod: &PodFact) -> bool {
    pod.marks.slot.is_some() || admission::is_taken(ctx, pod)
}

fn rank_words(chosen: bool) -> &'static str {
    if chosen { "first in order: not Ready, lowest deletion cost, youngest" } else { "later in order" }
}

/// Whether a replica on this node may be chosen.
fn may_leave(
    ctx: &PlanContext,
    nodes: &Nodes,
    node: Option<&NodeName>,
    source: &Filter,
    target: &Filter,
) -> Result<(), NodeRefusal> {
    let refuse = |why: &str| Err((Reason::NodeExcluded, why.to_owned()));
    let Some(node) = node.and_then(|node| ctx.world.node(node)) else { return refuse("not scheduled yet") };
    source.admits(nodes, node).map_err(|(reason, why)| match reason {
        Reason::UsageOutdated => (reason, why),
        _ => (reason, format!("excluded by `from`: {why}")),
    })?;
    match target.is_best(nodes, node) {
        Ok(true) => refuse("already on a target node"),
        Ok(false) => Ok(()),
        Err(why) => Err((Reason::UsageOutdated, why)),
    }
}

/// Entry of the plan for a pod.
pub fn choice_of(pod: &PodFact, chosen: bool, message: &str) -> PodChoice {
    PodChoice { name: pod.id.key.name.clone(), node: pod.node.clone(), chosen, message: message.to_owned() }
}
