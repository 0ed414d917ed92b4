//! The planner on hand-made worlds: the protocol step by step, the refusals and their reasons, and the order of turns.
//!
//! The model (`tests/model`) tests what only shows over time and under faults.

mod all;
mod apart;
mod application;
mod distribution;
mod neighbors;
mod notified;
mod owners;
mod paused;
mod places;
mod preemption;
mod previews;
mod protocol;
mod ranked;
mod refused;
mod spread;
mod stateful;
mod stories;
mod successor;
mod swap;
mod troubles;
mod turns;
mod usage;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use serde_json::json;

use super::effect::{NewPod, NewReceipt, PodChange, ScalableKind};
use super::rank::NoRanker;
use super::*;
use crate::world::registered;
use ganglion_api::workload_action::{Disruption, RunPolicy, WorkloadActionSpec};
use ganglion_core::facts::{
    BudgetFact, DeploymentFact, Identity, Marks, NodeFact, Owner, PodFact, ReceiptFact, ReplicaSetFact, Requests,
    ScaleFact, Selector, TemplateFact,
};
use ganglion_core::world::{Fact, Origin};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const NAMESPACE: &str = "shop";
const HASH: &str = "h1";

/// A world under construction: a Deployment `web` with three replicas on nodes a, b and c. Each node takes two more
/// pods.
struct Stage {
    world: World,
    version: u64,
    now: Timestamp,
    limits: Limits,
    ranker: &'static dyn NodeRanker,
}

fn labels(hash: bool) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    if hash {
        labels.insert(marks::POD_TEMPLATE_HASH.to_owned(), HASH.to_owned());
    }
    labels
}

fn budget(allowed: i32, healthy: i32) -> impl FnOnce(Identity) -> BudgetFact {
    let selector = Some(Selector { labels: labels(false), ..Selector::default() });
    move |id| BudgetFact {
        id,
        selector,
        allowed,
        healthy,
        required: healthy - allowed,
        pods: Some(healthy),
        granted: BTreeMap::new(),
        reduced: false,
    }
}

impl Stage {
    fn new() -> Self {
        let now = NOW + SignedDuration::from_hours(1000);
        let mut stage = Self { world: registered(), version: 0, now, limits: Limits::default(), ranker: &NoRanker };
        for node in ["a", "b", "c", "d"] {
            stage.put_node(node, |_| {});
        }
        stage.put_deployment(|_| {});
        stage.put_set(3);
        for (pod, node) in [("web-a", "a"), ("web-b", "b"), ("web-c", "c")] {
            stage.put_pod(pod, node, |_| {});
        }
        stage
    }

    fn id(&mut self, name: &str) -> Identity {
        self.version += 1;
        Identity {
            key: Key::new(NAMESPACE, name),
            uid: format!("uid-{name}").into(),
            version: self.version.to_string(),
        }
    }

    fn put<F: Fact>(&mut self, make: impl FnOnce(Identity) -> F, name: &str) {
        let id = self.id(name);
        self.world.apply(make(id), Origin::Watch);
    }

    fn put_node(&mut self, name: &str, change: impl FnOnce(&mut NodeFact)) {
        let mut id = self.id(name);
        id.key.namespace.clear();
        let allocatable = Requests { cpu: 4000, memory: 8 << 30, ..Requests::default() };
        let mut node = NodeFact { id, ready: true, allocatable, pod_capacity: 3, ..NodeFact::default() };
        node.labels.insert("disk".into(), if name == "d" { "ssd" } else { "hdd" }.into());
        change(&mut node);
        self.world.apply(node, Origin::Watch);
    }

    fn put_deployment(&mut self, change: impl FnOnce(&mut DeploymentFact)) {
        let mut deployment = DeploymentFact {
            id: self.id("web"),
            labels: labels(false),
            scale: ScaleFact { replicas: 3, ..ScaleFact::default() },
            status_replicas: 3,
            updated_replicas: 3,
            revision: Some("1".into()),
            ..DeploymentFact::default()
        };
        change(&mut deployment);
        self.world.apply(deployment, Origin::Watch);
    }

    fn put_set(&mut self, replicas: i32) {
        self.put_set_with(replicas, json!({"containers": []}));
    }

    /// Puts the ReplicaSet with this spec of its template.
    fn put_template(&mut self, spec: serde_json::Value) {
        self.put_set_with(3, spec);
    }

    fn put_set_with(&mut self, replicas: i32, spec: serde_json::Value) {
        let template = json!({"metadata": {"labels": labels(true)}, "spec": spec});
        let template: TemplateFact = serde_json::from_str(&template.to_string()).expect("a pod template");
        self.put(
            |id| ReplicaSetFact {
                id,
                scale: ScaleFact { replicas, ..ScaleFact::default() },
                controller: Some(Owner { kind: "Deployment".into(), name: "web".into(), uid: "uid-web".into() }),
                controller_version: "apps/v1".into(),
                selector: Selector { labels: labels(true), ..Selector::default() },
                revision: Some("1".into()),
                template: Some(Arc::new(template)),
                ..ReplicaSetFact::default()
            },
            "web-h1",
        );
    }

    fn put_pod(&mut self, name: &str, node: &str, change: impl FnOnce(&mut PodFact)) {
        let mut pod = PodFact {
            id: self.id(name),
            created: self.now - SignedDuration::from_mins(10),
            generated: true,
            labels: labels(true),
            controller: Some(Owner { kind: "ReplicaSet".into(), name: "web-h1".into(), uid: "uid-web-h1".into() }),
            node: Some(node.into()),
            ready_since: Some(self.now),
            ..PodFact::default()
        };
        change(&mut pod);
        self.world.apply(pod, Origin::Watch);
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut PodFact)) {
        let mut pod = self.world.pod(&Key::new(NAMESPACE, name)).expect("the pod is there").clone();
        pod.id.version = self.id(name).version;
        change(&mut pod);
        self.world.apply(pod, Origin::Watch);
    }

    /// Puts an action with this spec (YAML as a user writes it).
    fn act(&mut self, name: &str, spec: serde_json::Value) {
        let spec: WorkloadActionSpec = serde_json::from_value(spec).expect("a valid spec");
        let mut action = WorkloadAction::new(name, spec);
        action.metadata.namespace = Some(NAMESPACE.into());
        action.metadata.uid = Some(format!("uid-{name}"));
        action.metadata.generation = Some(1);
        action.metadata.creation_timestamp = Some(Time(self.now - SignedDuration::from_secs(30)));
        self.put_action(action);
    }

    fn put_action(&mut self, mut action: WorkloadAction) {
        self.version += 1;
        action.metadata.resource_version = Some(self.version.to_string());
        self.world.apply(action, Origin::Watch);
    }

    fn action(&self, name: &str) -> WorkloadAction {
        self.world.action(&Key::new(NAMESPACE, name)).expect("the action is there").as_ref().clone()
    }

    fn next(&self, name: &str) -> NextStep {
        next(&Key::new(NAMESPACE, name), &self.world, self.now, &self.limits, self.ranker)
    }

    fn effect(&self, name: &str) -> Effect {
        match self.next(name) {
            NextStep::Do(effect) => effect,
            NextStep::DoAll(effects) => panic!("several: {effects:#?}"),
            NextStep::Wait { until, report } => panic!("waits until {until:?} with {report:#?}"),
        }
    }

    /// The status that would start its slots, not carried out; None if they may not start.
    fn settle_until_admitted(&mut self, name: &str) -> Option<WorkloadActionStatus> {
        loop {
            match self.next(name) {
                NextStep::Do(Effect::Admit { status, .. }) => return Some(*status),
                NextStep::Do(Effect::AddFinalizer { finalizers, .. }) => {
                    let mut action = self.action(name);
                    action.metadata.finalizers = Some(finalizers);
                    self.put_action(action);
                }
                NextStep::Do(_) | NextStep::DoAll(_) | NextStep::Wait { .. } => return None,
            }
        }
    }

    /// Carries out the effects on the action itself, like the API server, until another effect is due or the action
    /// waits.
    fn settle(&mut self, name: &str) -> NextStep {
        loop {
            let mut action = self.action(name);
            match self.next(name) {
                NextStep::Do(Effect::Record { status, .. } | Effect::Admit { status, .. }) => {
                    action.status = Some(*status)
                }
                NextStep::Do(Effect::AddFinalizer { finalizers, .. } | Effect::RemoveFinalizer { finalizers, .. }) => {
                    action.metadata.finalizers = Some(finalizers);
                }
                NextStep::Do(Effect::WriteReceipt(NewReceipt { key, spec, .. })) => {
                    self.put(
                        |id| ReceiptFact { id, action_uid: spec.action_uid, executed_at: NOW, outcome: None },
                        &key.name,
                    );
                    continue;
                }
                NextStep::Wait { report: Some(status), .. } => action.status = Some(*status),
                other => return other,
            }
            self.put_action(action);
        }
    }

    fn ready(&self, name: &str) -> (String, String, String) {
        let status = self.action(name).status.expect("a status");
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready").expect("Ready is always there");
        (ready.status.clone(), ready.reason.clone(), ready.message.clone())
    }
}

fn move_web(to: serde_json::Value) -> serde_json::Value {
    json!({"move": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "to": to}})
}
