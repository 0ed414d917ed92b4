//! Facts about workloads, and about objects that affect their replicas.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::PartialObjectMeta;

use super::field_owner::{FieldOwner, FieldPath};
use super::{Identity, Key, Selector, Uid, texts};
use ganglion_api::marks;
use ganglion_api::receipt::WorkloadActionReceipt;

/// The controlling owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub kind: String,
    pub name: String,
    pub uid: Uid,
}

impl Owner {
    /// The controlling owner reference, if there is one.
    pub fn controller_of(meta: &ObjectMeta) -> Option<Self> {
        meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)).map(|owner| Self {
            kind: texts::name(&owner.kind),
            name: texts::name(&owner.name),
            uid: texts::name(&owner.uid).as_str().into(),
        })
    }

    /// API version in the controlling owner reference; empty if there is none. Not a field of [`Owner`], to save
    /// memory: every pod has one.
    pub fn version_in(meta: &ObjectMeta) -> String {
        let controller = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        controller.map(|owner| texts::name(&owner.api_version)).unwrap_or_default()
    }
}

/// Facts common to workloads with replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScaleFact {
    pub replicas: i32,
    /// The ledger annotation, as text.
    pub ledger: Option<String>,
    /// Field manager that will apply `spec.replicas` again.
    pub owned_by: Option<FieldOwner>,
    /// Field manager that last wrote `spec.replicas`, unless it was the execution of a loop.
    pub written_by: Option<String>,
}

/// A Deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeploymentFact {
    pub id: Identity,
    pub labels: BTreeMap<String, String>,
    pub scale: ScaleFact,
    pub generation: i64,
    pub observed_generation: i64,
    pub status_replicas: i32,
    pub updated_replicas: i32,
    pub revision: Option<String>,
    /// Selector of the pods, as text.
    pub selector: String,
    /// Old pods are deleted before new ones are created (`strategy: Recreate`).
    pub recreates: bool,
    /// Maximum number of unavailable replicas in a rollout, which the condition Available allows, too.
    pub max_unavailable: i32,
    /// `spec.paused`: a changed template is not rolled out.
    pub paused: bool,
    /// The rollout has made no progress for `progressDeadlineSeconds`.
    pub stuck: bool,
    pub terminating: bool,
    /// Labels and selector are not kept; see [`super::Reducible`].
    pub reduced: bool,
}

impl DeploymentFact {
    /// Whether pods have an older template than the spec, or the controller has not observed the latest spec. While a
    /// Deployment is paused, its ReplicaSets stay as they are, and create pods of their own templates.
    pub fn in_rollout(&self) -> bool {
        let is_behind = self.observed_generation < self.generation;
        is_behind || (!self.paused && self.updated_replicas < self.status_replicas)
    }
}

impl From<Deployment> for DeploymentFact {
    fn from(deployment: Deployment) -> Self {
        let meta = &deployment.metadata;
        let status = deployment.status.as_ref();
        Self {
            id: meta.into(),
            labels: meta.labels.clone().unwrap_or_default(),
            scale: scale(meta, deployment.spec.as_ref().and_then(|spec| spec.replicas)),
            generation: meta.generation.unwrap_or(0),
            observed_generation: status.and_then(|status| status.observed_generation).unwrap_or(0),
            status_replicas: status.and_then(|status| status.replicas).unwrap_or(0),
            updated_replicas: status.and_then(|status| status.updated_replicas).unwrap_or(0),
            revision: meta.annotations.as_ref().and_then(|all| all.get(marks::REVISION)).map(|text| texts::name(text)),
            selector: selector_text(deployment.spec.as_ref().map(|spec| &spec.selector)),
            recreates: deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.strategy.as_ref()?.type_.as_deref())
                .is_some_and(|strategy| strategy == "Recreate"),
            max_unavailable: max_unavailable(deployment.spec.as_ref()),
            paused: deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false),
            stuck: status
                .and_then(|status| status.conditions.as_deref())
                .is_some_and(|all| all.iter().any(|one| one.type_ == "Progressing" && one.status == "False")),
            terminating: meta.deletion_timestamp.is_some(),
            reduced: false,
        }
    }
}

/// `maxUnavailable` as a number of replicas, as the Deployment controller calculates it: percentages are rounded down,
/// those of `maxSurge` up, and if both are zero, one replica may be unavailable.
fn max_unavailable(spec: Option<&DeploymentSpec>) -> i32 {
    let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0);
    let strategy = spec.and_then(|spec| spec.strategy.as_ref());
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
        return 0;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let resolve = |asked: Option<&IntOrString>, rounds_up: bool| {
        let percent = match asked {
            Some(IntOrString::Int(number)) => return i64::from(*number),
            Some(IntOrString::String(text)) => text.trim_end_matches('%').parse().unwrap_or(0),
            None => 25,
        };
        let hundredths = i64::from(replicas).saturating_mul(percent);
        if rounds_up { hundredths.saturating_add(99) / 100 } else { hundredths / 100 }
    };
    let unavailable = resolve(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), false);
    let surge = resolve(rolling.and_then(|rolling| rolling.max_surge.as_ref()), true);
    let unavailable = if unavailable == 0 && surge == 0 { 1 } else { unavailable };
    i32::try_from(unavailable.clamp(0, i64::from(replicas))).unwrap_or(replicas)
}

/// Renders a label selector in the format of `kubectl -l`; empty if it is malformed.
pub(super) fn selector_text(selector: Option<&LabelSelector>) -> String {
    let parsed = selector.and_then(|selector| kube::core::Selector::try_from(selector.clone()).ok());
    parsed.map(|selector| selector.to_string()).unwrap_or_default()
}

/// A ConfigMap, without its data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigMapFact {
    pub id: Identity,
    /// The resourceVersion. It changes with the data, which the fact does not contain.
    pub edition: String,
    pub labels: BTreeMap<String, String>,
    pub controller: Option<Owner>,
    /// Labels are not kept; see [`super::Reducible`].
    pub reduced: bool,
}

impl From<&ObjectMeta> for ConfigMapFact {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            id: meta.into(),
            edition: meta.resource_version.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            controller: Owner::controller_of(meta),
            reduced: false,
        }
    }
}

impl From<PartialObjectMeta<ConfigMap>> for ConfigMapFact {
    fn from(object: PartialObjectMeta<ConfigMap>) -> Self {
        Self::from(&object.metadata)
    }
}

/// Reads replicas and ledger of a workload.
pub(super) fn scale(meta: &ObjectMeta, replicas: Option<i32>) -> ScaleFact {
    let path = FieldPath::replicas();
    ScaleFact {
        replicas: replicas.unwrap_or(1),
        ledger: meta.annotations.as_ref().and_then(|all| all.get(marks::LEDGER)).map(|text| texts::list(text)),
        owned_by: path.owner(meta),
        written_by: path.last_writer(meta),
    }
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BudgetFact {
    pub id: Identity,
    /// None if the budget has no selector; it then matches nothing.
    pub selector: Option<Selector>,
    /// Number of evictions that the budget currently allows; 0 until its controller has observed the latest spec.
    pub allowed: i32,
    /// Number of healthy pods, as counted by its controller.
    pub healthy: i32,
    /// Number of pods that must stay healthy, as computed by its controller.
    pub required: i32,
    /// Number of all pods, as counted by its controller. None for a percentage or `maxUnavailable`, where the
    /// controller counts the workloads' replicas instead.
    pub pods: Option<i32>,
    /// Pods whose eviction the API server has granted, with the time of the grant. The disruption controller removes a
    /// pod from the status when the pod is terminating or deleted.
    pub granted: BTreeMap<String, Timestamp>,
    /// The selector is not kept; see [`super::Reducible`].
    pub reduced: bool,
}

impl BudgetFact {
    /// Whether the budget selects a pod with these labels in this namespace. A selector that is not kept may select any
    /// pod.
    pub fn guards(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        let selects = || self.selector.as_ref().is_some_and(|selector| selector.matches(labels));
        self.id.key.namespace == namespace && (self.reduced || selects())
    }

    /// Whether a term of the selector may use this label key.
    pub fn may_mention(&self, label: &str) -> bool {
        self.reduced || self.selector.as_ref().is_some_and(|selector| selector.mentions(label))
    }
}

impl From<PodDisruptionBudget> for BudgetFact {
    fn from(budget: PodDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        let seen = status.and_then(|status| status.observed_generation).unwrap_or(0);
        let current = seen >= budget.metadata.generation.unwrap_or(0);
        let least = budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref());
        let absolute = matches!(least, Some(IntOrString::Int(_)));
        Self {
            id: (&budget.metadata).into(),
            selector: budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(Selector::from),
            allowed: status.filter(|_| current).map_or(0, |status| status.disruptions_allowed),
            healthy: status.map_or(0, |status| status.current_healthy),
            required: status.map_or(0, |status| status.desired_healthy),
            pods: status.filter(|_| absolute).map(|status| status.expected_pods),
            granted: status
                .iter()
                .flat_map(|status| status.disrupted_pods.iter().flatten())
                .map(|(pod, at)| (pod.clone(), at.0))
                .collect(),
            reduced: false,
        }
    }
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceFact {
    pub id: Identity,
    pub selector: BTreeMap<String, String>,
    /// The selector is not kept; see [`super::Reducible`].
    pub reduced: bool,
}

impl ServiceFact {
    /// Whether the Service may select pods with these labels by this label. A selector that is not kept may do so.
    pub fn may_select_by(&self, labels: &BTreeMap<String, String>, label: &str) -> bool {
        let selects = || self.selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        self.reduced || (self.selector.contains_key(label) && selects())
    }
}

impl From<Service> for ServiceFact {
    fn from(service: Service) -> Self {
        Self {
            id: (&service.metadata).into(),
            selector: service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default(),
            reduced: false,
        }
    }
}

/// A WorkloadActionReceipt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceiptFact {
    pub id: Identity,
    pub action_uid: Uid,
    pub executed_at: Timestamp,
    pub outcome: Option<String>,
}

impl ReceiptFact {
    /// Estimate of the memory that the fact occupies, in bytes.
    pub fn bytes(&self) -> usize {
        let Key { namespace, name } = &self.id.key;
        let texts = [namespace.len(), name.len(), self.id.uid.as_str().len(), self.action_uid.as_str().len()];
        let outcome = self.outcome.as_ref().map_or(0, String::len);
        texts.into_iter().fold(512_usize.saturating_add(outcome), usize::saturating_add)
    }
}

impl From<WorkloadActionReceipt> for ReceiptFact {
    fn from(receipt: WorkloadActionReceipt) -> Self {
        Self {
            id: (&receipt.metadata).into(),
            action_uid: receipt.spec.action_uid.clone(),
            executed_at: receipt.spec.executed_at.0,
            outcome: receipt.spec.outcome.clone(),
        }
    }
}
