//! The start of a moveApplication: refusals before anything moves, the plan, and the record of the start.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{NodeChoice, Plan, PlannedReplica, PodChoice};
use ganglion_api::workload_action::{Mode, WorkloadActionStatus};
use ganglion_core::conditions::Health;
use ganglion_core::facts::PodFact;
use ganglion_core::words::counted;

use super::super::admission;
use super::super::candidates::Candidates;
use super::super::choose::{LOAD_UNKNOWN, count_and_cut, cut, no_node_for, unknown_node};
use super::super::context::PlanContext;
use super::super::effect::{Effect, NextStep};
use super::super::neighbors::Departing;
use super::super::place::{Filter, labels_words, source_words};
use super::super::scope::{Scope, StartRefusal};
use super::super::volumes::BoundVolumes;
use super::super::{before, identity, queue, record, refuse, report};
use super::progress::Progress;
use super::survey::{self, Survey};
use super::{Application, ending, wait};

/// The first steps: the refusals, then the finalizer, then the record. After the record, the moves are created.
pub fn begin(ctx: &PlanContext, application: Application, survey: &Survey) -> NextStep {
    if let Some(next) = before(ctx) {
        return next;
    }
    if ctx.suspended() {
        return wait(ctx, report::status(ctx, ctx.status.clone(), &report::working(ctx, &[])), None);
    }
    if !ctx.world.knows_load() {
        return queue(ctx, Reason::LoadUnknown, LOAD_UNKNOWN.to_owned());
    }
    if let Some((reason, message)) = survey.unknown(ctx) {
        return queue(ctx, reason, message);
    }
    let mut plan = stays(survey);
    if let Err(stop) = refusal(ctx, application, survey).and_then(|()| place(ctx, application, survey, &mut plan)) {
        return refuse(ctx, stop, finished(plan));
    }
    if let (true, Some(stop)) = (survey.members.is_empty(), &survey.held) {
        return refuse(ctx, stop.clone(), finished(plan));
    }
    let words = words(application, survey);
    if survey.members.is_empty() {
        let status = WorkloadActionStatus { plan: Some(finished(plan)), ..ctx.status.clone() };
        return ending::finish(ctx, status, Health::Good(Reason::Succeeded, format!("nothing to do: {words}")));
    }
    if ctx.action.spec.mode == Mode::Plan {
        let status = WorkloadActionStatus { plan: Some(finished(plan)), ..ctx.status.clone() };
        return ending::finish(ctx, status, Health::Good(Reason::Planned, format!("would move {words}")));
    }
    if let Some(effect) = finalizer(ctx) {
        return NextStep::Do(effect);
    }
    plan.replicas.clear();
    let status = WorkloadActionStatus {
        plan: Some(finished(plan)),
        application: Some(Progress::of(application, survey).shown()),
        started_at: Some(Time(ctx.now)),
        queued_at: None,
        receipt: Some(identity::receipt_name(ctx.action)),
        ..ctx.status.clone()
    };
    let health = Health::working(Reason::Moving, format!("moves {words}"));
    record(ctx, report::status(ctx, status, &health))
}

fn finalizer(ctx: &PlanContext) -> Option<Effect> {
    let finalizers = ctx.action.metadata.finalizers.clone().unwrap_or_default();
    let has_it = finalizers.iter().any(|name| name == marks::FINALIZER);
    let finalizers = finalizers.into_iter().chain([marks::FINALIZER.to_owned()]).collect();
    (!has_it).then(|| Effect::AddFinalizer { action: ctx.id(), finalizers })
}

/// Why the spec cannot be executed with the objects that exist.
fn refusal(ctx: &PlanContext, application: Application, survey: &Survey) -> Result<(), StartRefusal> {
    let spec = application.spec;
    if let Some(name) =
        spec.to.as_ref().and_then(|to| to.node_name.as_ref()).filter(|name| ctx.world.node(name).is_none())
    {
        return Err(unknown_node(name));
    }
    if !survey.members.is_empty() {
        return Ok(());
    }
    if let Some(name) = spec.from.node_name.as_ref().filter(|name| ctx.world.node(name).is_none()) {
        return Err(unknown_node(name));
    }
    if survey::exists(ctx, spec) {
        return Ok(());
    }
    let message = format!(
        "no workload of namespace {} has the labels {}; look at \
         `kubectl get deployments,statefulsets,replicasets --show-labels`",
        ctx.namespace(),
        labels_words(&spec.selector)
    );
    Err(StartRefusal::soon(Reason::WorkloadNotFound, message))
}

/// The replicas that move, as text.
fn words(application: Application, survey: &Survey) -> String {
    let replicas: usize = survey.members.iter().map(|member| member.leaving.len()).sum();
    let from = source_words(&application.spec.from);
    let stay = match survey.stay.len() {
        0 => String::new(),
        some => format!("; {} there cannot move, see status.plan.pods", counted(some as u64, "pod")),
    };
    if replicas == 0 {
        return format!(
            "no replica of the workloads with {} is on {from}{stay}",
            labels_words(&application.spec.selector)
        );
    }
    let workloads = counted(survey.members.len() as u64, "workload");
    format!("{} of {workloads} from {from}{stay}", counted(replicas as u64, "replica"))
}

/// The plan with the pods that stay. They come first, since a plan lists only some pods.
fn stays(survey: &Survey) -> Plan {
    let stay = survey.stay.iter().map(|(pod, why)| choice(pod, false, why.clone()));
    Plan { pods: stay.collect(), ..Plan::default() }
}

fn choice(pod: &PodFact, chosen: bool, message: String) -> PodChoice {
    PodChoice { name: pod.id.key.name.clone(), node: pod.node.clone(), chosen, message }
}

fn finished(mut plan: Plan) -> Plan {
    plan.pods_total = i64::try_from(plan.pods.len()).unwrap_or(i64::MAX);
    cut(&mut plan.pods, &mut plan.truncated);
    cut(&mut plan.replicas, &mut plan.truncated);
    count_and_cut(&mut plan);
    plan
}

/// Chooses a node for each replica, as it would be chosen now. If a replica has none, nothing starts, unless the
/// moveApplication continues on failures.
fn place(ctx: &PlanContext, application: Application, survey: &Survey, plan: &mut Plan) -> Result<(), StartRefusal> {
    let spec = application.spec;
    let filter = Filter::apart(ctx.world, spec.to.as_ref(), &spec.from)?;
    let mut nodes = admission::nodes_at_begin(ctx);
    for member in &survey.members {
        let workload = format!("{} {}", member.workload.kind, member.workload.name);
        let Ok(scope) = Scope::of_workload(ctx.world, ctx.namespace(), &member.workload) else { continue };
        let leaving = member.leaving.iter().filter(|_| ctx.may_disrupt());
        let later = member.leaving.iter().map(|pod| &pod.id.uid).collect();
        let departing = Departing { pods: leaving.map(|pod| &pod.id.uid).collect(), later, ..Departing::default() };
        let mut candidates = Candidates::among(ctx, nodes, &filter, &scope, &[], &departing)?;
        let mut full = None;
        for pod in &member.leaving {
            let volumes = BoundVolumes::of(ctx.world, &scope, &pod.id.key.name);
            let to = candidates.take(pod.node.as_ref(), &|node| volumes.refusal(node).is_none());
            full = full.or_else(|| to.is_none().then_some(volumes));
            plan.pods.push(choice(pod, true, format!("replica of {workload}")));
            plan.replicas.push(PlannedReplica { pod: Some(pod.id.key.name.clone()), from: pod.node.clone(), to });
        }
        if let Some(volumes) = full.filter(|_| !application.goes_on()) {
            candidates.narrow(|node| volumes.refusal(node));
            plan.nodes = candidates.refused(None);
            return Err(no_node_for(ctx, &volumes, &filter, &plan.nodes));
        }
        let (chosen, rest) = candidates.taken();
        chosen.into_iter().for_each(|choice| add(&mut plan.nodes, choice));
        nodes = rest;
    }
    Ok(())
}

/// Adds the replicas that a node gets to those that it gets from other workloads.
fn add(all: &mut Vec<NodeChoice>, choice: NodeChoice) {
    match all.iter_mut().find(|known| known.name == choice.name) {
        Some(known) => (known.replicas, known.message) = (known.replicas + choice.replicas, choice.message),
        None => all.push(choice),
    }
}
