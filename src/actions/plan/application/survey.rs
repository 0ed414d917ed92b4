//! The survey of an application: its workloads, their replicas on the nodes that it leaves, and the pods that stay
//! there.

use std::collections::{BTreeMap, HashMap};

use ganglion_api::reasons::Reason;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::MoveApplication;
use ganglion_core::facts::{DeploymentFact, Key, Owner, PodFact, ReplicaSetFact, StatefulSetFact, Uid};

use super::super::admission;
use super::super::choose::{usage_words, way};
use super::super::context::PlanContext;
use super::super::nodes::Nodes;
use super::super::place::Filter;
use super::super::scope::{Scope, StartRefusal, not_alone, reduced};
use super::super::stateful;

/// Result of the survey.
pub struct Survey<'a> {
    /// The workloads, in the order in which they start.
    pub members: Vec<Member<'a>>,
    /// The pods with the application's labels that stay, each with the reason.
    pub stay: Vec<(&'a PodFact, String)>,
    /// The first reason why a replica of the application's workloads stays: the action does not allow it to move, or
    /// nothing can pin its pod to a node.
    pub held: Option<StartRefusal>,
    /// Why it is not known of some replicas whether they leave, if so: their nodes must be measured again.
    unmeasured: Option<String>,
}

/// One workload of the application.
pub struct Member<'a> {
    pub workload: WorkloadRef,
    uid: &'a Uid,
    /// The replicas on the nodes that the application leaves.
    pub leaving: Vec<&'a PodFact>,
}

impl<'a> Survey<'a> {
    /// Surveys the current world. Fails if an expression cannot be used.
    pub fn of(ctx: &PlanContext<'a>, spec: &MoveApplication) -> Result<Self, StartRefusal> {
        let (world, namespace) = (ctx.world, ctx.namespace());
        let source = Filter::source(world, Some(&spec.from))?;
        // A target that cannot be used is reported before anything moves.
        Filter::target(world, spec.to.as_ref(), Some(&spec.from))?;
        // Each move of an application that has begun waits for measurements itself.
        let has_begun = ctx.status.started_at.is_some();
        let nodes = if has_begun { Nodes::new(world, ctx.now) } else { admission::nodes_at_begin(ctx) };
        let mut unmeasured = None;
        let mut known: HashMap<&str, bool> = HashMap::new();
        let mut leaves = |pod: &PodFact| {
            let Some(name) = pod.node.as_ref() else { return false };
            let node = world.node(name);
            *known.entry(node.map_or("", |node| &node.id.key.name)).or_insert_with(|| {
                let selected = node.map_or(Ok(false), |node| source.selects(&nodes, node));
                selected.unwrap_or_else(|why| {
                    unmeasured.get_or_insert(why);
                    false
                })
            })
        };
        let selected =
            |labels: &BTreeMap<String, String>| spec.selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let mut members: BTreeMap<&Uid, Member> = BTreeMap::new();
        let (mut stay, mut held) = (Vec::new(), None);
        for pod in world.within::<PodFact>(namespace).filter(|pod| pod.is_active()) {
            let scope = scope_of(ctx, pod);
            let is_member = scope.as_ref().is_ok_and(|scope| selected(scope.object_labels()));
            // Labels that are not kept may be those of the application.
            let unknown = why_unknown(pod, scope.as_ref().ok());
            let is_member = is_member && unknown.is_none();
            if !(is_member || unknown.is_some() || selected(&pod.labels)) || pod.marks.role.is_some() || !leaves(pod) {
                continue;
            }
            // A replica also stays if its move requires something that the action does not allow.
            match unknown
                .map_or(scope, Err)
                .and_then(|scope| if is_member { may_move(ctx, &scope, pod).map(|()| scope) } else { Ok(scope) })
            {
                Ok(scope) if is_member => {
                    let uid = scope.object_uid();
                    let member = || Member { workload: scope.workload(), uid, leaving: Vec::new() };
                    members.entry(uid).or_insert_with(member).leaving.push(pod);
                }
                Ok(scope) => {
                    let workload = scope.workload();
                    stay.push((
                        pod,
                        format!("{} {} does not have the labels of the selector", workload.kind, workload.name),
                    ));
                }
                Err(stop) => {
                    stay.push((pod, stop.message.clone()));
                    held = held.or_else(|| is_member.then_some(stop));
                }
            }
        }
        let mut members: Vec<Member> = members.into_values().collect();
        let order = spec.order.as_deref().unwrap_or_default();
        let place =
            |member: &Member| order.iter().position(|name| *name == member.workload.name).unwrap_or(order.len());
        members.sort_by(|a, b| (place(a), a.uid).cmp(&(place(b), b.uid)));
        Ok(Self { members, stay, held, unmeasured })
    }

    /// Why it is not known which replicas leave, if so.
    pub fn unknown(&self, ctx: &PlanContext) -> Option<(Reason, String)> {
        let usage = usage_words(ctx).map(|message| (Reason::UsageUnknown, message));
        usage.or_else(|| Some((Reason::UsageOutdated, self.unmeasured.clone()?)))
    }
}

/// Why a replica of the application stays.
fn may_move(ctx: &PlanContext, scope: &Scope, pod: &PodFact) -> Result<(), StartRefusal> {
    if let Some(membership) = pod.membership {
        return Err(not_alone(&format!("pod {}", pod.id.key.name), membership));
    }
    scope.alone()?;
    way(ctx, scope)?;
    scope.stateful().map_or(Ok(()), |set| stateful::is_pinned(ctx, set, Some(pod)).map(drop))
}

/// Why it is unknown whether a pod is one of the application; None if it is known.
fn why_unknown(pod: &PodFact, scope: Option<&Scope>) -> Option<StartRefusal> {
    if pod.reduced {
        return Some(reduced(&format!("pod {}", pod.id.key.name)));
    }
    scope?.unreduced().err()
}

/// Whether any workload of the namespace has all these labels, or may have them, because they are not kept.
pub fn exists(ctx: &PlanContext, spec: &MoveApplication) -> bool {
    let selected =
        |labels: &BTreeMap<String, String>| spec.selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let here = |key: &Key| key.namespace == ctx.namespace();
    ctx.world.all::<DeploymentFact>().any(|one| here(&one.id.key) && (one.reduced || selected(&one.labels)))
        || ctx
            .world
            .all::<StatefulSetFact>()
            .any(|one| here(&one.id.key) && (one.set.reduced || selected(&one.set.labels)))
        || ctx.world.all::<ReplicaSetFact>().any(|one| here(&one.id.key) && (one.reduced || selected(&one.labels)))
}

/// The workload of a pod, or why its pods cannot be moved.
fn scope_of<'a>(ctx: &PlanContext<'a>, pod: &'a PodFact) -> Result<Scope<'a>, StartRefusal> {
    match &pod.controller {
        Some(Owner { kind, name, uid }) if kind == "ReplicaSet" => {
            let set = ctx.world.get::<ReplicaSetFact>(&ctx.key(name)).filter(|set| set.id.uid == *uid);
            let set = set.ok_or_else(|| {
                StartRefusal::now(Reason::WorkloadNotFound, format!("ReplicaSet {name} of the pod does not exist"))
            })?;
            Scope::of_set(ctx.world, set)
        }
        Some(Owner { kind, name, uid }) if kind == "StatefulSet" => {
            let set = ctx.world.get::<StatefulSetFact>(&ctx.key(name)).filter(|set| set.id.uid == *uid);
            let message = || format!("apps/v1 StatefulSet {name} of the pod does not exist");
            set.map(Scope::of_stateful).ok_or_else(|| StartRefusal::now(Reason::WorkloadNotFound, message()))
        }
        _ => Scope::of_pod(ctx.world, ctx.namespace(), &pod.id.key.name).map(|(scope, _)| scope),
    }
}
