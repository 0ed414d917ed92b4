//! Facts: the parts of cluster objects that decisions depend on.
//!
//! One file per group of kinds, each with the conversion from the API type. Caches store facts instead of objects, so
//! that ten thousand pods fit into a few megabytes. Planners read facts, so that a simulated cluster can drive them.

mod autoscaler;
mod claim;
mod constraints;
mod field_owner;
mod ledger;
mod membership;
mod node;
mod owner;
mod pod;
mod policy;
mod replica_set;
mod requests;
mod run;
mod slim;
mod stateful_set;
mod texts;
mod volumes;
mod workload;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

pub use autoscaler::{AutoscalerFact, AutoscalerKind, Controls, HpaFact, ScaledObjectFact, VpaFact};
pub use claim::ClaimFact;
pub use constraints::{HostPort, PodConstraints, PodTerm, PreferredTerm, TermNamespaces};
pub use field_owner::{ApplyMethod, FieldOwner, FieldPath, has_applied_since, scaled_path};
pub use ganglion_api::GROUP;
pub use ganglion_api::identity::{NodeName, SlotId, Uid};
pub use ledger::Ledger;
pub use membership::PodMembership;
pub use node::{
    CONGESTION, CONGESTION_SAMPLED_AT, MAX_LABEL_HISTORY, NodeFact, PUBLISHED, USAGE_SAMPLED_AT, USAGE_SAMPLES,
};
pub use owner::{OtherKind, OwnerFact, group};
pub use pod::{Marks, OutsidePodFact, PodEnd, PodFact, PodHold, Trouble};
pub use policy::{LabelBindingFact, LabelPolicyFact, PolicyBindingFact, PolicyFact, spec_digest};
pub use replica_set::{ReplicaSet, ReplicaSetFact, ReplicaSetSpec, SPREAD_RATE, TemplateFact};
pub use requests::{ContainerRequests, GPU, Requests, ResourceAmounts, cores, default_requests, requests};
pub use run::{PodRun, RunFailure, pod_type};
pub use slim::{SlimAutoscaler, SlimDeployment, SlimPod};
pub use stateful_set::{PinBindingFact, PinPolicyFact, StatefulSet, StatefulSetFact, VolumeFact, pin_of};
pub use texts::Reducible;
pub use volumes::PodVolumes;
pub use workload::{BudgetFact, ConfigMapFact, DeploymentFact, Owner, ReceiptFact, ScaleFact, ServiceFact};

/// Namespace and name; the namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Creates a key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Identity and version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub key: Key,
    pub uid: Uid,
    /// The resourceVersion as text, for preconditions.
    pub version: String,
}

impl Identity {
    /// The resourceVersion as a number; see [`order`].
    pub fn order(&self) -> u64 {
        order(&self.version)
    }

    /// The object without a version, as a request of ours knows it that found it deleted.
    pub fn unversioned(self) -> Self {
        Self { version: String::new(), ..self }
    }
}

/// A resourceVersion as a number, for comparison; 0 if it is not a number. Kubernetes 1.35 guarantees that versions of
/// one kind can be compared this way, and earlier servers with etcd behave the same.
pub fn order(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

impl From<&ObjectMeta> for Identity {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            key: Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default()),
            uid: Uid::of(meta),
            version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// A parsed label selector. As in the API, the empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    pub labels: BTreeMap<String, String>,
    /// (key, operator, values) of `matchExpressions`.
    pub expressions: Vec<(String, String, Vec<String>)>,
}

impl Selector {
    /// Whether the labels satisfy every term. An operator that the API does not define matches nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|(key, operator, values)| {
                let value = labels.get(key);
                match operator.as_str() {
                    "In" => value.is_some_and(|value| values.contains(value)),
                    "NotIn" => value.is_none_or(|value| !values.contains(value)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }

    /// Whether a term uses this label key.
    pub fn mentions(&self, key: &str) -> bool {
        self.labels.contains_key(key) || self.expressions.iter().any(|(term, _, _)| term == key)
    }
}

impl From<&LabelSelector> for Selector {
    fn from(selector: &LabelSelector) -> Self {
        Self {
            labels: selector.match_labels.clone().unwrap_or_default(),
            expressions: selector
                .match_expressions
                .iter()
                .flatten()
                .map(|term| (term.key.clone(), term.operator.clone(), term.values.clone().unwrap_or_default()))
                .collect(),
        }
    }
}
