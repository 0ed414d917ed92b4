//! Objects of the simulated cluster, as the facts that the caches would derive from the API's own objects.

use std::sync::Arc;

use ganglion_api::closed_loop::TargetRef;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{
    AutoscalerFact, AutoscalerKind, BudgetFact, Controls, DeploymentFact, HpaFact, Identity, Key, Marks, NodeFact,
    NodeName, Owner, PodFact, PodHold, PodRun, ReceiptFact, ReplicaSetFact, RunFailure, SPREAD_RATE, ScaleFact,
    Selector, ServiceFact,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use super::object::{
    Action, Deployment, DisruptionBudget, Labels, Meta, Node, OwnerRef, Phase, Pod, Receipt, Scaler, Service, Set,
};

/// Converts seconds since the epoch.
pub fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or_default()
}

impl Meta {
    pub fn identity(&self) -> Identity {
        Identity { key: self.key.clone(), uid: self.uid.as_str().into(), version: self.version.to_string() }
    }

    fn owner(&self) -> Option<Owner> {
        self.controller().map(|owner| Owner {
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.as_str().into(),
        })
    }

    fn annotation(&self, key: &str) -> Option<String> {
        self.annotations.get(key).cloned()
    }
}

/// The fact that the operator derives from an object of this kind.
pub trait AsFact {
    type Fact;
    fn fact(&self) -> Self::Fact;
}

impl AsFact for Pod {
    type Fact = PodFact;
    fn fact(&self) -> PodFact {
        let meta = &self.meta;
        PodFact {
            id: meta.identity(),
            created: time(meta.created),
            labels: meta.labels.clone(),
            annotated: !meta.annotations.is_empty(),
            marks: Marks {
                slot: meta.annotation(marks::SLOT).map(Into::into),
                role: meta.annotation(marks::ROLE),
                peers: meta.annotation(marks::PEERS),
                cost: meta.annotation(marks::DELETION_COST),
                ..Marks::default()
            },
            controller: meta.owner(),
            generated: self.generated,
            node: self.node.as_deref().map(NodeName::from),
            ready_since: self.ready_since.map(time),
            terminating: meta.deleted.is_some(),
            end: meta.deleted.map(|_| Box::default()),
            finished: self.phase == Phase::Failed,
            grace_seconds: self.template.grace,
            unschedulable: self.unschedulable.clone(),
            trouble: self.trouble.clone(),
            refused: self.trouble.as_ref().is_some_and(|trouble| trouble.message.starts_with("OutOf")),
            hold: PodHold {
                requests: self.template.requests,
                cores: self.template.requests.cpu,
                bound: time(meta.created),
                pending: self.phase == Phase::Pending,
                priority: self.template.priority(),
            },
            run: match self.phase {
                Phase::Failed | Phase::Unknown => PodRun::Failing([RunFailure::default()].into()),
                Phase::Pending | Phase::Running => PodRun::Neutral,
            },
            ..PodFact::default()
        }
    }
}

impl AsFact for Node {
    type Fact = NodeFact;
    fn fact(&self) -> NodeFact {
        NodeFact {
            id: self.meta.identity(),
            labels: self.meta.labels.clone(),
            ready: self.ready,
            cordoned: self.cordoned,
            allocatable: self.capacity,
            pod_capacity: self.pods,
            terminating: self.meta.deleted.is_some(),
            ..NodeFact::default()
        }
    }
}

fn scale(meta: &Meta, replicas: i32) -> ScaleFact {
    ScaleFact { replicas, ledger: meta.annotation(marks::LEDGER), ..ScaleFact::default() }
}

fn selector(labels: &Labels) -> Selector {
    Selector { labels: labels.clone(), expressions: Vec::new() }
}

impl AsFact for Set {
    type Fact = ReplicaSetFact;
    fn fact(&self) -> ReplicaSetFact {
        ReplicaSetFact {
            id: self.meta.identity(),
            labels: if self.meta.controller().is_none() { self.meta.labels.clone() } else { Labels::new() },
            scale: scale(&self.meta, self.replicas),
            controller: self.meta.owner(),
            controller_version: self.meta.owner().map(|_| "apps/v1".to_owned()).unwrap_or_default(),
            selector: selector(&self.selector),
            revision: self.meta.annotation(marks::REVISION),
            spread_rate: self.meta.annotation(SPREAD_RATE),
            min_ready_seconds: 0,
            behind: self.status.observed < self.meta.generation,
            create_failure: self.status.failure.clone(),
            terminating: self.meta.deleted.is_some(),
            template: Some(Arc::clone(&self.template.fact)).filter(|_| self.replicas > 0),
            reduced: false,
        }
    }
}

impl AsFact for Deployment {
    type Fact = DeploymentFact;
    fn fact(&self) -> DeploymentFact {
        DeploymentFact {
            id: self.meta.identity(),
            labels: self.meta.labels.clone(),
            scale: scale(&self.meta, self.replicas),
            generation: self.meta.generation,
            observed_generation: self.status.observed,
            status_replicas: self.status.replicas,
            updated_replicas: self.status.updated,
            revision: self.meta.annotation(marks::REVISION),
            // The default, 25 %.
            max_unavailable: self.replicas / 4,
            terminating: self.meta.deleted.is_some(),
            ..DeploymentFact::default()
        }
    }
}

impl AsFact for DisruptionBudget {
    type Fact = BudgetFact;
    fn fact(&self) -> BudgetFact {
        let current = self.status.observed >= self.meta.generation;
        BudgetFact {
            id: self.meta.identity(),
            selector: Some(selector(&self.selector)),
            allowed: if current { self.status.allowed } else { 0 },
            healthy: self.status.healthy,
            required: self.status.desired,
            pods: None,
            granted: self.status.disrupted.iter().map(|(pod, at)| (pod.clone(), time(*at))).collect(),
            reduced: false,
        }
    }
}

impl AsFact for Service {
    type Fact = ServiceFact;
    fn fact(&self) -> ServiceFact {
        ServiceFact { id: self.meta.identity(), selector: self.selector.clone(), reduced: false }
    }
}

impl AsFact for Scaler {
    type Fact = HpaFact;
    fn fact(&self) -> HpaFact {
        HpaFact(AutoscalerFact {
            id: self.meta.identity(),
            kind: AutoscalerKind::HorizontalPodAutoscaler,
            target: TargetRef {
                api_version: "apps/v1".to_owned(),
                kind: self.target_kind.clone(),
                name: self.target_name.clone(),
            },
            controls: Controls::Replicas,
        })
    }
}

impl AsFact for Receipt {
    type Fact = ReceiptFact;
    fn fact(&self) -> ReceiptFact {
        ReceiptFact {
            id: self.meta.identity(),
            action_uid: self.spec.action_uid.clone(),
            executed_at: self.spec.executed_at.0,
            outcome: self.spec.outcome.clone(),
        }
    }
}

fn reference(owner: &OwnerRef) -> OwnerReference {
    OwnerReference {
        api_version: "ganglion.dev/v1alpha1".to_owned(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.as_str().into(),
        controller: Some(owner.controller),
        ..OwnerReference::default()
    }
}

impl Action {
    /// The custom resource as the API server would return it.
    pub fn resource(&self) -> WorkloadAction {
        let meta = &self.meta;
        let some = |labels: &Labels| Some(labels.clone()).filter(|labels| !labels.is_empty());
        WorkloadAction {
            metadata: ObjectMeta {
                name: Some(meta.key.name.clone()),
                namespace: Some(meta.key.namespace.clone()),
                uid: Some(meta.uid.clone()),
                resource_version: Some(meta.version.to_string()),
                generation: Some(meta.generation),
                creation_timestamp: Some(Time(time(meta.created))),
                deletion_timestamp: meta.deleted.map(|seconds| Time(time(seconds))),
                labels: some(&meta.labels),
                annotations: some(&meta.annotations),
                finalizers: Some(meta.finalizers.clone()).filter(|all| !all.is_empty()),
                owner_references: Some(meta.owners.iter().map(reference).collect())
                    .filter(|all: &Vec<_>| !all.is_empty()),
                ..ObjectMeta::default()
            },
            spec: self.spec.clone(),
            status: self.status.clone(),
        }
    }

    /// Name of its receipt, which identifies the decision.
    pub fn decision(&self) -> Key {
        let name = ganglion_actions_plan::identity::receipt_name(&self.resource());
        Key::new(self.meta.key.namespace.clone(), name)
    }
}

impl AsFact for Action {
    type Fact = WorkloadAction;
    fn fact(&self) -> WorkloadAction {
        self.resource()
    }
}
