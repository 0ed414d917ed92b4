//! Admission: limits on the number of replicas in motion, and actions that exclude one another.
//!
//! Decides over the whole store. Only slots that have started count. [`ahead`] computes the turns of waiting actions.
//! Neither depends on the number of waiting actions, which users decide.

use std::collections::HashMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::line::{QueueRank, WaitingLine};
use crate::world::{ActionsWorld, application_of};
use ganglion_api::reasons::Reason;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::{Key, NodeName, PodFact};
use ganglion_core::world::Fact;

use super::context::{PlanContext, Work, is_suspended};
use super::nodes::{Nodes, OtherChanges};
use super::scope::{Scope, StartRefusal};
use super::{Limits, QUEUE_PACE};

/// Number of waiting actions of one namespace that are planned again within [`QUEUE_PACE`].
const PLANS_PER_PACE: usize = 64;

/// Why the action must wait for another action on the same workload. Actions that change replicas run alone; moves run
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

/// Whether a started slot uses this pod.
pub fn is_taken(ctx: &PlanContext, pod: &PodFact) -> bool {
    let mut slots = pod.controller.iter().flat_map(|owner| ctx.world.slots_on(&owner.uid));
    slots.any(|slot| {
        let victim = slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref() == Some(&pod.id.uid));
        let replacement = slot.replacement.as_ref().is_some_and(|replacement| replacement.name == pod.id.key.name);
        (victim || replacement) && slot.step != Step::Queued
    })
}

/// Whether replicas of other actions are in motion. Idle slots do not count.
pub fn others_move(ctx: &PlanContext) -> bool {
    let own = ctx.id().key;
    ctx.world.slots_at_work().any(|(action, slot)| *action != own && !is_idle(ctx, action, slot))
}

/// The nodes as an action sees them that is about to begin. Idle slots change no node, and other moves of the same
/// moveApplication do not: it has chosen them together. Late in its time in the queue, an action no longer waits for
/// other namespaces: otherwise one that moves replicas all the time could keep it from ever beginning.
pub fn nodes_at_begin<'a>(ctx: &PlanContext<'a>) -> Nodes<'a> {
    let (world, action, nodes) = (ctx.world, ctx.action, Nodes::new(ctx.world, ctx.now));
    if !world.reads_load(action) {
        return nodes;
    }
    let late = |since: &Time| ctx.clock.duration_since(since.0) >= ctx.queue_time() * 3 / 4;
    let namespace = ctx.status.queued_at.as_ref().is_some_and(late).then(|| ctx.namespace());
    let counts = |key: &Key, slot: &Slot| {
        namespace.is_none_or(|namespace| key.namespace == namespace)
            && !world.is_of_family(key, action)
            && !is_idle(ctx, key, slot)
    };
    let others = world.slots_at_work().filter(|(key, slot)| counts(key, slot));
    let in_motion = others.flat_map(|(_, slot)| [&slot.victim, &slot.replacement]).flatten().map(|pod| &pod.node);
    nodes.measured_after(OtherChanges { action, namespace, in_motion: in_motion.collect() })
}

/// A limit that is reached, with reason and message.
#[derive(Debug)]
pub struct ReachedLimit {
    pub reason: Reason,
    pub message: String,
}

/// The limit that admits no replica of the workload, independent of pod and node. It is evaluated before replicas and
/// nodes are chosen, since the choice would be most of the work in a long queue.
pub fn shared_limit(ctx: &PlanContext, workload: &WorkloadRef) -> Option<ReachedLimit> {
    Count::with_those_ahead(ctx).shared(ctx, workload)
}

/// The limit that can never admit a swap of these workloads' replicas, since all replicas of a swap are admitted at
/// once. `on_one_node` is the number of replicas that leave the same node and arrive at the same node.
pub fn too_small(ctx: &PlanContext, workloads: &[WorkloadRef], on_one_node: usize) -> Option<StartRefusal> {
    let Limits { in_all, per_namespace, per_workload, per_source_node, per_target_node, .. } = ctx.limits;
    let all = workloads.len();
    let of_one = workloads.iter().map(|one| workloads.iter().filter(|other| *other == one).count()).max().unwrap_or(0);
    let needs = [
        (in_all, all, "inAll"),
        (per_namespace, all, "perNamespace"),
        (per_workload, of_one, "perWorkload"),
        (per_source_node, on_one_node, "perSourceNode"),
        (per_target_node, on_one_node, "perTargetNode"),
    ];
    let (limit, need, setting) = needs
        .into_iter()
        .find_map(|(limit, need, setting)| Some((limit.filter(|limit| need > *limit)?, need, setting)))?;
    let message = format!("the swap changes {need} replicas at once, and the setting limits.{setting} allows {limit}");
    Some(StartRefusal::now(Reason::LimitTooSmall, message))
}

/// Number of these slots, from the first, that the limits admit; also the limit that is reached, if not all are
/// admitted.
pub fn room(ctx: &PlanContext, slots: &[Slot]) -> (usize, Option<ReachedLimit>) {
    let mut count = Count::with_those_ahead(ctx);
    for (admitted, slot) in slots.iter().enumerate() {
        if let Some(reached) = count.shared(ctx, &slot.workload).or_else(|| count.of_nodes(slot)) {
            return (admitted, Some(reached));
        }
        count.add(ctx.namespace(), slot, true);
        if let Some(application) = &mut count.application {
            (application.all, application.own) = (application.all + 1, application.own + 1);
        }
    }
    (slots.len(), None)
}

/// Nodes on which the limits admit one more replica.
pub struct OpenNodes<'a> {
    limit: Option<usize>,
    targets: HashMap<&'a NodeName, usize>,
}

impl<'a> OpenNodes<'a> {
    pub fn of(ctx: &PlanContext<'a>) -> Self {
        Self { limit: ctx.limits.per_target_node, targets: Count::at_work(ctx).targets }
    }

    pub fn takes_one_more(&self, node: &NodeName) -> bool {
        self.limit.is_none_or(|limit| self.targets.get(node).copied().unwrap_or(0) < limit)
    }
}

/// Number of replicas in motion, for each limit.
struct Count<'a> {
    limits: &'a Limits,
    all: usize,
    namespaces: HashMap<&'a str, usize>,
    workloads: HashMap<WorkloadName<'a>, usize>,
    sources: HashMap<&'a NodeName, usize>,
    targets: HashMap<&'a NodeName, usize>,
    ahead: Ahead,
    application: Option<OfApplication>,
}

/// Number of replicas in motion of the application that the action is a move of, with its limits.
struct OfApplication {
    all: usize,
    most: usize,
    own: usize,
    most_of_one: usize,
}

impl OfApplication {
    fn at_work(ctx: &PlanContext) -> Option<Self> {
        let (most, most_of_one) = ctx.application()?.limits();
        let (own, application) = (ctx.id().key, application_of(ctx.action)?);
        let at_work = ctx.world.slots_at_work_of(&application);
        let (all, own) = at_work.fold((0, 0), |(all, mine), (action, _)| (all + 1, mine + usize::from(*action == own)));
        Some(Self { all, most, own, most_of_one })
    }

    fn reached(&self, workload: &WorkloadRef) -> Option<ReachedLimit> {
        let Self { all, most, own, most_of_one } = self;
        let message = if all >= most {
            format!("{all} of {most} replicas of the application are on their way (its maxParallel)")
        } else if own >= most_of_one {
            let WorkloadRef { kind, name, .. } = workload;
            format!("{own} of {most_of_one} replicas of {kind} {name} are on their way (maxParallelPerWorkload)")
        } else {
            return None;
        };
        Some(ReachedLimit { reason: Reason::ApplicationLimitReached, message })
    }
}

/// Number of replicas of waiting actions that are admitted before this action: all replicas of a swap, one replica of
/// any other action.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ahead {
    all: usize,
    namespace: usize,
    /// There are more, which were not counted.
    is_cut: bool,
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
            ahead: Ahead::default(),
            application: OfApplication::at_work(ctx),
        };
        if !ctx.limits.is_unlimited() {
            for (action, slot) in ctx.world.slots_at_work() {
                count.add(&action.namespace, slot, !is_idle(ctx, action, slot));
            }
        }
        count
    }

    fn with_those_ahead(ctx: &PlanContext<'a>) -> Self {
        let mut count = Self::at_work(ctx);
        if ctx.limits.in_all.is_some() || ctx.limits.per_namespace.is_some() {
            count.ahead = ahead(ctx, &count.namespaces);
        }
        count
    }

    /// Counts a slot. An idle slot counts only for its namespace and workload.
    fn add(&mut self, namespace: &'a str, slot: &'a Slot, is_active: bool) {
        *self.namespaces.entry(namespace).or_default() += 1;
        *self.workloads.entry(workload_of(namespace, &slot.workload)).or_default() += 1;
        if !is_active {
            return;
        }
        self.all += 1;
        for (nodes, pod) in [(&mut self.sources, slot.victim.as_ref()), (&mut self.targets, target(slot))] {
            if let Some(pod) = pod {
                *nodes.entry(&pod.node).or_default() += 1;
            }
        }
    }

    /// The reached limit of the application, the workload, the namespace or the cluster.
    fn shared(&self, ctx: &PlanContext, workload: &WorkloadRef) -> Option<ReachedLimit> {
        let (limits, namespace) = (self.limits, ctx.namespace());
        let in_namespace = self.namespaces.get(namespace).copied().unwrap_or(0);
        let of_workload = self.workloads.get(&workload_of(namespace, workload)).copied().unwrap_or(0);
        let changing = |place: String| format!("replicas {place} are being changed");
        let reached = |limit: Option<usize>, used, ahead, reason, what: &dyn Fn() -> String, setting| {
            let limit = limit.filter(|limit| used + ahead >= *limit)?;
            let or_more = if self.ahead.is_cut { " or" } else { "" };
            let line =
                if ahead > 0 { format!(", {ahead}{or_more} more are ahead in the queue") } else { String::new() };
            let message = format!("{used} of {limit} {}{line} (setting limits.{setting})", what());
            Some(ReachedLimit { reason, message })
        };
        let in_all = || changing("in the cluster".to_owned());
        let of_this = || changing(format!("of {} {}", workload.kind, workload.name));
        let in_this = || changing(format!("in namespace {namespace}"));
        // The limits of the application and of the workload come first: an action that waits for one of them must not
        // block the turns of others.
        let of_application = self.application.as_ref().and_then(|application| application.reached(workload));
        of_application
            .or_else(|| {
                reached(limits.per_workload, of_workload, 0, Reason::WorkloadLimitReached, &of_this, "perWorkload")
            })
            .or_else(|| {
                let ahead = self.ahead.namespace;
                reached(
                    limits.per_namespace,
                    in_namespace,
                    ahead,
                    Reason::NamespaceLimitReached,
                    &in_this,
                    "perNamespace",
                )
            })
            .or_else(|| reached(limits.in_all, self.all, self.ahead.all, Reason::LimitReached, &in_all, "inAll"))
    }

    /// The reached limit of the node that the slot's replica leaves, or of the node that it arrives at.
    fn of_nodes(&self, slot: &Slot) -> Option<ReachedLimit> {
        let sides = [
            (self.limits.per_source_node, &self.sources, slot.victim.as_ref(), "leaving", "perSourceNode"),
            (self.limits.per_target_node, &self.targets, target(slot), "arriving at", "perTargetNode"),
        ];
        sides.into_iter().find_map(|(limit, nodes, pod, does, setting)| {
            let node = &pod?.node;
            let used = nodes.get(node).copied().unwrap_or(0);
            let limit = limit.filter(|limit| used >= *limit)?;
            let message = format!("{used} of {limit} replicas are {does} {node} (setting limits.{setting})");
            Some(ReachedLimit { reason: Reason::NodeLimitReached, message })
        })
    }
}

/// The new pod whose node the action chooses. Other pods count for no node, since the scheduler spreads them.
fn target(slot: &Slot) -> Option<&PodOnNode> {
    slot.replacement.as_ref().filter(|_| !slot.scheduled)
}

/// Whether the slot no longer counts for the limits that it shares with other namespaces: its action is suspended, or
/// the slot has been in one step for too long. Otherwise a namespace could occupy these limits forever, by `suspend` or
/// a `readySeconds` of a day.
fn is_idle(ctx: &PlanContext, action: &Key, slot: &Slot) -> bool {
    ctx.world.action(action).is_some_and(|action| is_suspended(ctx.world, action))
        || ctx.limits.idle_after.is_some_and(|idle| ctx.now.duration_since(slot.since.0) >= idle)
}

/// Number of replicas of waiting actions that are admitted before this action.
///
/// Within a namespace, actions are ordered by priority, then age, then name. Between namespaces, the namespace with the
/// fewest replicas in motion has the next turn; among equals, the namespace whose last turn was longest ago. Only
/// actions that wait for the same limit take turns. A swap takes all of its replicas in one turn, since others would
/// otherwise take its places one by one.
///
/// Counts no further than to a limit: what is behind it cannot be admitted, however long the line is.
fn ahead(ctx: &PlanContext, at_work: &HashMap<&str, usize>) -> Ahead {
    let (own, namespace, lines) = (QueueRank::of(ctx.action), ctx.namespace(), ctx.world.waiting_lines());
    let reserved = reserved_ranks(ctx);
    let is_reserved = |namespace: &str, rank: &QueueRank| {
        reserved.get(namespace).is_some_and(|ranks: &Vec<QueueRank>| ranks.contains(rank))
    };
    let mut ahead = Ahead::default();
    let mut before_in_namespace = 0;
    for (rank, waiting) in lines.of(namespace).into_iter().flat_map(|line| line.limited_before(&own)) {
        if is_reserved(namespace, rank) {
            continue;
        }
        ahead.namespace += waiting.replicas;
        before_in_namespace += if waiting.waits_for_all { waiting.replicas } else { 0 };
        let reaches = |limit: Option<usize>, count: usize| limit.is_some_and(|limit| count >= limit);
        if reaches(ctx.limits.per_namespace, ahead.namespace) || reaches(ctx.limits.in_all, before_in_namespace) {
            ahead.all = before_in_namespace;
            ahead.is_cut = true;
            return ahead;
        }
    }
    let at_work = |namespace: &str| at_work.get(namespace).copied().unwrap_or(0);
    // Number of replicas of this namespace in motion at the turn of this action.
    let level = at_work(namespace) + before_in_namespace;
    let is_first = |other: &str| (ctx.world.last_turn(other), other) < (ctx.world.last_turn(namespace), namespace);
    let others = lines.iter().filter(|(other, line)| *other != namespace && line.replicas_for_all() > 0);
    let turns = others.map(|(other, line)| {
        let being_admitted = reserved.get(other).into_iter().flatten().filter_map(|rank| line.replicas_of(rank));
        let replicas = line.replicas_for_all().saturating_sub(being_admitted.sum());
        let until_equal = level.saturating_sub(at_work(other)).min(replicas);
        let also_then = at_work(other) <= level && until_equal < replicas && is_first(other);
        match until_equal + usize::from(also_then) {
            0 => 0,
            turns => {
                let first = line.for_all().find(|(rank, _)| !is_reserved(other, rank));
                turns.max(first.map_or(0, |(_, replicas)| replicas))
            }
        }
    });
    ahead.all = before_in_namespace + turns.sum::<usize>();
    ahead
}

/// Ranks of the actions that are being admitted, by namespace.
fn reserved_ranks<'a>(ctx: &PlanContext<'a>) -> HashMap<&'a str, Vec<QueueRank>> {
    let mut ranks: HashMap<&str, Vec<QueueRank>> = HashMap::new();
    for key in ctx.world.reserved() {
        if let Some(action) = ctx.world.action(key) {
            ranks.entry(&key.namespace).or_default().push(QueueRank::of(action));
        }
    }
    ranks
}

/// Interval at which a waiting action is planned again without a change: longer in a long line of its namespace, so
/// that the number of plans is bounded. The first actions of each line are planned as soon as slots become free.
pub fn pace(ctx: &PlanContext) -> SignedDuration {
    let line = ctx.world.waiting_lines().of(ctx.namespace()).map_or(0, WaitingLine::count);
    let times = i32::try_from(line.div_ceil(PLANS_PER_PACE)).unwrap_or(i32::MAX).max(1);
    QUEUE_PACE.saturating_mul(times)
}

/// Namespace, kind and name.
type WorkloadName<'a> = (&'a str, &'a str, &'a str);

/// The workload that the user named. A rollout replaces its ReplicaSet, but not the workload.
fn workload_of<'a>(namespace: &'a str, workload: &'a WorkloadRef) -> WorkloadName<'a> {
    (namespace, &workload.kind, &workload.name)
}
