//! A move of a moveApplication: how it is created, and how its state is read.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::refs::{NodePreference, NodeSource, PodRef, Target, WorkloadRef};
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_api::workload_action::{MOST_REPLICAS, Move, ReplicaCount, RunPolicy, WorkloadAction, WorkloadActionSpec};
use ganglion_core::digest::digest;
use ganglion_core::facts::NodeName;

use super::super::context::PlanContext;
use super::super::explain::{cause, reason_of};
use super::Application;
use super::survey::Member;

/// Maximum length of a label value.
const LABEL: usize = 63;

/// A move that a moveApplication has created.
#[derive(Clone, Copy)]
pub struct ApplicationPart<'a> {
    action: &'a WorkloadAction,
    change: &'a Move,
}

impl<'a> ApplicationPart<'a> {
    pub fn of(action: &'a WorkloadAction) -> Option<Self> {
        Some(Self { action, change: action.spec.move_.as_ref()? })
    }

    pub fn name(&self) -> &'a str {
        self.action.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether it moves a replica back.
    pub fn is_back(&self) -> bool {
        self.change.pod.is_some()
    }

    /// The pod that it moves back.
    fn taken_back(&self) -> Option<&'a str> {
        self.change.pod.as_ref().map(|pod| pod.name.as_str())
    }

    /// Whether it moves replicas of this workload.
    pub fn is_of(&self, workload: &WorkloadRef) -> bool {
        self.change.workload.as_ref() == Some(workload)
    }

    /// Kind and name of the workload or pod that it moves.
    pub fn subject(&self) -> String {
        match (&self.change.workload, &self.change.pod) {
            (Some(workload), _) => format!("{}/{}", workload.kind, workload.name),
            (None, pod) => format!("Pod/{}", pod.as_ref().map_or("?", |pod| pod.name.as_str())),
        }
    }

    pub fn slots(&self) -> &'a [Slot] {
        self.action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default()
    }

    /// Number of its replicas; None while it is unknown.
    pub fn replicas(&self) -> Option<usize> {
        usize::try_from(self.action.status.as_ref()?.replicas?).ok()
    }

    pub fn done(&self) -> usize {
        self.slots().iter().filter(|slot| slot.step == Step::Succeeded).count()
    }

    /// Number of its replicas in motion.
    pub fn at_work(&self) -> usize {
        self.slots().iter().filter(|slot| !slot.step.is_end() && slot.step != Step::Queued).count()
    }

    pub fn has_ended(&self) -> bool {
        self.finished_at().is_some()
    }

    pub fn finished_at(&self) -> Option<Timestamp> {
        Some(self.action.status.as_ref()?.finished_at.as_ref()?.0)
    }

    /// Whether it has ended without success.
    pub fn failed(&self) -> bool {
        let conditions = self.action.status.iter().flat_map(|status| &status.conditions);
        self.has_ended() && conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "False")
    }

    /// The reason of its state.
    pub fn reason(&self) -> Reason {
        self.cause().map_or(Reason::Queued, |(reason, _)| reason)
    }

    /// Whether it waits and its status says for what.
    pub fn waits(&self) -> bool {
        let conditions = self.action.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|one| one.type_ == "Ready" && one.reason == Reason::Queued.as_str())
    }

    /// Why it has not progressed further, or why it failed.
    pub fn cause(&self) -> Option<(Reason, &'a str)> {
        let condition = cause(self.action.status.as_ref()?)?;
        Some((reason_of(&condition.reason), &condition.message))
    }

    /// The failure as text.
    pub fn failure_words(&self) -> String {
        let message = self.cause().map_or("no reason known", |(_, message)| message);
        format!("{} could not move (WorkloadAction {}): {message}", self.subject(), self.name())
    }
}

/// The next move of this workload's replicas: all of them, or the first ones if there are more than an action can
/// change.
pub fn forward(ctx: &PlanContext, application: Application, member: &Member) -> WorkloadAction {
    let WorkloadRef { kind, name, .. } = &member.workload;
    let name = free_name(ctx, name, &[kind, name]);
    let change = Move {
        workload: Some(member.workload.clone()),
        pod: None,
        from: Some(application.spec.from.clone()),
        to: application.spec.to.clone(),
        count: Some(ReplicaCount::All),
        up_to: Some(MOST_REPLICAS),
    };
    action(ctx, name, change)
}

/// The moves that move replicas back, each with its number of replicas. The replica that moved last goes back first.
/// Empty until all forward moves have ended.
pub fn back(ctx: &PlanContext, application: Application) -> Vec<(usize, WorkloadAction)> {
    let parts: Vec<ApplicationPart> = application.parts().collect();
    if parts.iter().any(|part| !part.is_back() && !part.has_ended()) {
        return Vec::new();
    }
    let begun: BTreeSet<&str> = parts.iter().filter_map(ApplicationPart::taken_back).collect();
    let mut moved: Vec<&Slot> = parts.iter().filter(|part| !part.is_back()).flat_map(|part| part.slots()).collect();
    moved.retain(|slot| slot.step == Step::Succeeded);
    moved.sort_by(|a, b| (b.since.0, &b.id).cmp(&(a.since.0, &a.id)));
    let back = moved.into_iter().filter_map(|slot| {
        let (pod, home) = (slot.replacement.as_ref()?, &slot.victim.as_ref()?.node);
        let still = ctx.world.pod(&ctx.key(&pod.name)).filter(|known| known.node.as_ref() == Some(&pod.node));
        if begun.contains(pod.name.as_str()) || still.is_none_or(|known| !known.is_active()) {
            return None;
        }
        let name = free_name(ctx, &pod.name, &["back", slot.id.as_str()]);
        let to = Some(home_first(&application.spec.from, home));
        let pod = Some(PodRef { name: pod.name.clone() });
        let change = Move { workload: None, pod, from: None, to, count: None, up_to: None };
        Some((1, action(ctx, name, change)))
    });
    back.collect()
}

/// The nodes that a replica came from as a target, its own node first.
fn home_first(from: &NodeSource, home: &NodeName) -> Target {
    let NodeSource { node_name, node_selector, condition } = from.clone();
    let own = NodePreference { node_selector: None, condition: Some(format!("node.name == {:?}", home.as_str())) };
    Target { node_name, node_selector, condition, policy: None, preferences: Some(vec![own]) }
}

/// Name of the next move: the name of the application, the name of the subject, and a hash that no other action of the
/// namespace has. The name stays the same until the move is created, so that it is created only once.
fn free_name(ctx: &PlanContext, subject: &str, of: &[&str]) -> String {
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let (application, subject) = (cut(&ctx.id().key.name, 120), cut(subject, 120));
    let mut number = 0;
    loop {
        let unique = digest(&[&[ctx.id().uid.as_str(), &format!("{number}")], of].concat(), 8);
        let name = format!("{application}-{subject}-{unique}");
        if ctx.world.action(&ctx.key(&name)).is_none() {
            return name;
        }
        number += 1;
    }
}

fn action(ctx: &PlanContext, name: String, change: Move) -> WorkloadAction {
    let (application, asked) = (ctx.id(), &ctx.action.spec);
    let spec = WorkloadActionSpec {
        move_: Some(change),
        disruption: asked.disruption,
        priority: asked.priority,
        timeouts: asked.timeouts.clone(),
        stable_seconds: asked.stable_seconds,
        grace_period_seconds: asked.grace_period_seconds,
        run_policy: RunPolicy::OncePerObject,
        ..WorkloadActionSpec::default()
    };
    let mut part = WorkloadAction::new(&name, spec);
    let label = Some(application.key.name.clone()).filter(|name| name.len() <= LABEL);
    part.metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(application.key.namespace.clone()),
        labels: label.map(|name| [(marks::APPLICATION.to_owned(), name)].into()),
        finalizers: Some(vec![marks::FINALIZER.to_owned()]),
        owner_references: Some(vec![OwnerReference {
            api_version: "ganglion.dev/v1alpha1".to_owned(),
            kind: "WorkloadAction".to_owned(),
            name: application.key.name,
            uid: application.uid.into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    part
}
