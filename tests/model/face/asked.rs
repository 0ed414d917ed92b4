//! A request as it came over the wire (method, path and body), parsed into an operation on an object.
//!
//! An unsupported request panics: the operator now sends something that the model does not implement yet.

use std::collections::BTreeMap;

use ganglion_api::receipt::WorkloadActionReceiptSpec;
use ganglion_api::workload_action::{WorkloadAction, WorkloadActionStatus};
use ganglion_core::facts::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, OwnerReference, Preconditions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Kinds for which the operator sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pod,
    Set,
    Deployment,
    Action,
    Receipt,
}

/// A request of the operator.
#[derive(Clone, Debug)]
pub struct Asked {
    pub kind: Kind,
    pub key: Key,
    pub what: What,
}

/// Operation of a request.
#[derive(Clone, Debug)]
pub enum What {
    Get,
    /// A new status, applied or replaced. Both replace the whole status, because only the operator writes it.
    Status(Head, Box<WorkloadActionStatus>),
    /// A status replaced without a resource version.
    Unversioned,
    /// RFC 7386, or Kubernetes' strategic merge patch for pods.
    Merge(MergePatch),
    /// RFC 6902.
    Json(Vec<Value>),
    /// A dry run of a pod that a ReplicaSet would create.
    DryPod(Box<Pod>),
    NewPod(Box<Pod>),
    NewReceipt(WorkloadActionReceiptSpec),
    /// A move of a moveApplication.
    NewAction(Box<WorkloadAction>),
    /// Only the pod with this uid.
    Evict(Option<String>),
    /// Only the object with this uid.
    Delete(Option<String>),
}

/// Object of a write, and its expected version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// A merge patch, with the fields that the operator patches.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergePatch {
    pub metadata: MetaPatch,
    #[serde(default)]
    pub spec: SpecPatch,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetaPatch {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub annotations: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub owner_references: Vec<OwnerPatch>,
    pub finalizers: Option<Vec<String>>,
}

/// One owner in a strategic merge patch, which merges owners by uid.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OwnerPatch {
    /// Always `$patch: delete`.
    Delete {
        #[serde(rename = "$patch")]
        patch: String,
        uid: String,
    },
    Set(OwnerReference),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecPatch {
    pub replicas: Option<i32>,
    pub outcome: Option<String>,
}

#[derive(Deserialize)]
struct WithStatus {
    metadata: Head,
    status: WorkloadActionStatus,
}

#[derive(Deserialize)]
struct WithName<T> {
    metadata: Name,
    spec: T,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> T {
    serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(body)))
}

fn uid(of: Option<Preconditions>) -> Option<String> {
    of?.uid
}

impl Asked {
    /// Parses a request; `content` is its Content-Type.
    pub fn read(method: &str, path: &str, content: &str, body: &[u8]) -> Self {
        let parts: Vec<&str> = path.split('/').skip_while(|part| *part != "namespaces").skip(1).collect();
        let (namespace, plural, name, sub) = match parts.as_slice() {
            [namespace, plural] => (*namespace, *plural, "", ""),
            [namespace, plural, name] => (*namespace, *plural, *name, ""),
            [namespace, plural, name, sub] => (*namespace, *plural, *name, *sub),
            _ => panic!("{method} {path} is not supported by the model"),
        };
        let kind = match plural {
            "pods" => Kind::Pod,
            "replicasets" => Kind::Set,
            "deployments" => Kind::Deployment,
            "workloadactions" => Kind::Action,
            "workloadactionreceipts" => Kind::Receipt,
            _ => panic!("{method} {path} is not supported by the model"),
        };
        let (mut name, apply) = (name.to_owned(), content == "application/apply-patch+yaml");
        let what = match (method, kind, sub) {
            ("GET", _, "") => What::Get,
            ("PUT", Kind::Action, "status") => status(body, true),
            ("PATCH", Kind::Action, "status") if apply => status(body, false),
            ("PATCH", Kind::Pod, "") if content == "application/strategic-merge-patch+json" => What::Merge(parse(body)),
            ("PATCH", Kind::Pod, "") if content == "application/merge-patch+json" => panic!("owners would be replaced"),
            ("PATCH", _, "") if content == "application/merge-patch+json" => What::Merge(parse(body)),
            ("PATCH", Kind::Pod, "") if content == "application/json-patch+json" => What::Json(parse(body)),
            ("POST", Kind::Pod, "") => {
                let pod: Box<Pod> = parse(body);
                name = pod.metadata.name.clone().unwrap_or_default();
                // The operator names its own pods; the server would name a pod of a ReplicaSet.
                if pod.metadata.generate_name.is_some() { What::DryPod(pod) } else { What::NewPod(pod) }
            }
            ("POST", Kind::Receipt, "") => {
                let receipt: WithName<WorkloadActionReceiptSpec> = parse(body);
                name = receipt.metadata.name;
                What::NewReceipt(receipt.spec)
            }
            ("POST", Kind::Action, "") => {
                let action: Box<WorkloadAction> = parse(body);
                name = action.metadata.name.clone().unwrap_or_default();
                What::NewAction(action)
            }
            ("POST", Kind::Pod, "eviction") => {
                What::Evict(parse::<Eviction>(body).delete_options.and_then(|options| uid(options.preconditions)))
            }
            ("DELETE", Kind::Pod | Kind::Action | Kind::Receipt, "") => {
                What::Delete(uid(parse::<DeleteOptions>(body).preconditions))
            }
            _ => panic!("{method} {path} ({content}) is not supported by the model"),
        };
        Self { kind, key: Key::new(namespace, name), what }
    }

    /// Whether it changes something when it is carried out.
    pub fn writes(&self) -> bool {
        !matches!(self.what, What::Get | What::DryPod(_))
    }
}

fn status(body: &[u8], put: bool) -> What {
    let WithStatus { metadata, status } = parse(body);
    if put && metadata.resource_version.is_none() {
        return What::Unversioned;
    }
    What::Status(metadata, Box::new(status))
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, key, what } = self;
        match what {
            What::Get => write!(f, "get {kind:?} {key}"),
            What::Status(_, status) => write!(f, "record {key} {}", words(status)),
            What::Unversioned => write!(f, "record {key} without a version"),
            What::Merge(MergePatch { metadata, spec }) => {
                write!(f, "patch {kind:?} {key}")?;
                if let Some(replicas) = spec.replicas {
                    write!(f, " to {replicas}")?;
                }
                for (name, value) in metadata.labels.iter().chain(&metadata.annotations) {
                    write!(f, " {name}={}", value.as_deref().unwrap_or("-"))?;
                }
                match &metadata.finalizers {
                    Some(finalizers) => write!(f, " finalizers {finalizers:?}"),
                    None => Ok(()),
                }
            }
            What::Json(_) => write!(f, "mark {kind:?} {key}"),
            What::DryPod(_) => write!(f, "dry run of a pod"),
            What::NewPod(_) | What::NewReceipt(_) | What::NewAction(_) => write!(f, "create {kind:?} {key}"),
            What::Evict(_) => write!(f, "evict {key}"),
            What::Delete(_) => write!(f, "delete {kind:?} {key}"),
        }
    }
}

/// One-line summary of a status.
fn words(status: &WorkloadActionStatus) -> String {
    let one = |slot: &ganglion_api::workload_action::status::Slot| {
        let reason = slot.reason.map(|reason| format!("({reason})")).unwrap_or_default();
        format!("{}:{:?}{reason}", slot.index, slot.step)
    };
    let all: Vec<String> = status.slots.iter().map(one).collect();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let word = ready.map(|ready| format!("{}={}", ready.status, ready.reason)).unwrap_or_default();
    let end = if status.finished_at.is_some() { " finished" } else { "" };
    format!("[{}] {word}{end}", all.join(" "))
}
