//! Operators with one flaw each: the real one, with its requests, their answers or its watch events changed on the way.
//! Each flaw must be detected by the rule that is meant for it.

use ganglion_actions_plan::Limits;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadActionStatus;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::Ledger;
use ganglion_core::facts::{Key, PodFact};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::build::now;
use super::feed::Misread;
use crate::cluster::api::Api;
use crate::cluster::object::{Pod, Set};
use crate::face::HttpAnswer;
use crate::face::asked::{Asked, Kind, MergePatch, MetaPatch, SpecPatch, What};
use crate::face::deed::Deed;

/// Flaw of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// Evicts the old pod before the new one exists.
    EvictFirst,
    /// Treats every pod that it created as Ready.
    TreatsAsReady,
    /// Marks the surplus without a lower deletion cost.
    NoMark,
    /// Acts although its intent is not recorded.
    ActsBeforeRecord,
    /// Evicts another pod at the end.
    EvictsAnother,
    /// Lowers `spec.replicas`, which a move must not do.
    Scales,
    /// Leaves a finalizer on the action.
    KeepsFinalizer,
    /// Marks any pod of the set.
    MarksAnyPod,
    /// Does nothing.
    Idle,
    /// Reports success before it has done anything.
    ClaimsSuccess,
    /// Ignores the limits.
    NoLimits,
}

impl Flaw {
    /// The limits that it respects.
    pub fn limits(self, limits: &Limits) -> Limits {
        if self == Self::NoLimits { Limits::default() } else { limits.clone() }
    }

    /// Change of each pod that its watch receives.
    pub fn misreading(self) -> Misread {
        match self {
            Self::TreatsAsReady => |pod| {
                if !pod.generated {
                    pod.ready_since.get_or_insert(pod.created);
                }
            },
            _ => |_: &mut PodFact| (),
        }
    }

    /// A request that it sends before this one.
    pub fn adds(self, asked: &Asked, action: &Key, api: &Api) -> Option<Asked> {
        match self {
            Self::EvictFirst => evicted(asked, action, api),
            Self::Scales => lowered(asked, api),
            _ => None,
        }
    }

    /// The request that is carried out instead of this one.
    pub fn bend(self, asked: &Asked, action: &Key, api: &Api) -> Asked {
        let mut bent = asked.clone();
        match (self, &mut bent.what) {
            (Self::NoMark, What::Json(patch)) => unmarked(patch),
            (Self::ActsBeforeRecord | Self::ClaimsSuccess | Self::EvictsAnother, What::Status(_, status)) => {
                self.misrecord(status, action, api);
            }
            (Self::KeepsFinalizer, What::Merge(patch)) if patch.metadata.finalizers == Some(vec![]) => {
                patch.metadata.finalizers = Some(vec!["ganglion.dev/another".to_owned()]);
            }
            (Self::MarksAnyPod, What::Json(patch)) => {
                if let Some(other) = another(&asked.key, api) {
                    bent.key = other.meta.key.clone();
                    patch[0]["value"] = json!(other.meta.uid);
                }
            }
            _ => {}
        }
        bent
    }

    /// Changes the status that it is about to write.
    fn misrecord(self, status: &mut WorkloadActionStatus, action: &Key, api: &Api) {
        let Some(there) = api.actions.get(action).and_then(|action| action.status.clone()) else { return };
        let begins = there.slots.is_empty() && !status.slots.is_empty();
        match self {
            Self::ActsBeforeRecord if begins => status.slots.clear(),
            Self::ClaimsSuccess if begins => {
                status.slots.iter_mut().for_each(|slot| slot.step = Step::Succeeded);
                status.finished_at = Some(Time(now()));
                status.conditions = vec![succeeded()];
            }
            Self::EvictsAnother if status.finished_at.is_some() && !there.slots.is_empty() => {
                let mut again = there;
                let more = again.slots.iter_mut().filter_map(|slot| Some((other_victim(slot, api)?, slot))).next();
                if let Some((other, slot)) = more {
                    slot.victim = Some(other);
                    *status = again;
                }
            }
            _ => {}
        }
    }

    /// The answer that it receives instead of this one.
    pub fn color(self, asked: &Asked, answer: HttpAnswer) -> HttpAnswer {
        let (code, body) = answer;
        let object = || serde_json::from_str::<Value>(&body).expect("JSON");
        match (self, &asked.what) {
            (Self::ActsBeforeRecord, What::Status(_, status)) if code == 200 => {
                let mut object = object();
                object["status"]["slots"] = json!(status.slots);
                (code, object.to_string())
            }
            (Self::TreatsAsReady, _) if code == 200 && asked.kind == Kind::Pod => {
                let mut object = object();
                if object["metadata"]["generateName"].is_null() && object["kind"] == "Pod" {
                    let since = object["metadata"]["creationTimestamp"].clone();
                    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
                    object["status"]["conditions"] = ready;
                }
                (code, object.to_string())
            }
            _ => (code, body),
        }
    }
}

fn succeeded() -> Condition {
    Condition {
        type_: "Ready".into(),
        status: "True".into(),
        reason: "Succeeded".into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(now()),
    }
}

/// Removes the deletion cost from a mark.
fn unmarked(patch: &mut Vec<Value>) {
    patch.retain(|step| !step["path"].as_str().is_some_and(|path| path.ends_with("pod-deletion-cost")));
    for step in patch {
        if let Some(annotations) = step["value"].as_object_mut() {
            annotations.remove(marks::DELETION_COST);
        }
    }
}

/// Another pod of the same ReplicaSet without a mark.
fn another<'a>(key: &Key, api: &'a Api) -> Option<&'a Pod> {
    let set = api.pods.get(key)?.meta.controller()?;
    let mut others = api.pods.values().filter(|pod| pod.meta.is_of(&set.uid) && pod.meta.key != *key);
    others.find(|pod| pod.is_active() && !pod.meta.annotations.contains_key(marks::SLOT)).map(|pod| &**pod)
}

/// A serving pod of the slot's ReplicaSet, other than its victim and its replacement.
fn other_victim(slot: &Slot, api: &Api) -> Option<PodOnNode> {
    let fits = |pod: &Pod| pod.is_serving() && pod.generated && pod.meta.is_of(slot.replica_set.uid.as_str());
    let pod = api.pods.values().find(|pod| fits(pod))?;
    let node = pod.node.clone().unwrap_or_default().into();
    Some(PodOnNode { name: pod.meta.key.name.clone(), uid: Some(pod.meta.uid.as_str().into()), node })
}

/// Before the creation of a pod: the eviction of the pod that it replaces.
fn evicted(asked: &Asked, action: &Key, api: &Api) -> Option<Asked> {
    let Deed::CreatePod { slot, pod } = Deed::of(asked) else { return None };
    let victim = api.actions.get(action)?.slots().find(|one| one.id == slot)?.victim.clone()?;
    Some(Asked {
        kind: Kind::Pod,
        key: Key::new(pod.namespace, victim.name),
        what: What::Evict(victim.uid.map(String::from)),
    })
}

/// Before the release of a pod of a standalone ReplicaSet: one replica fewer.
fn lowered(asked: &Asked, api: &Api) -> Option<Asked> {
    let Deed::Detach { slot, pod, .. } = Deed::of(asked) else { return None };
    let owner = api.pods.get(&pod)?.meta.controller()?.uid.clone();
    let set: &Set = api.sets.by_uid(&owner).filter(|set| set.meta.owners.is_empty())?;
    let ledger = Ledger { slot, undone: false, from: set.replicas, to: set.replicas - 1, peers: vec![] };
    let metadata =
        MetaPatch { annotations: [(marks::LEDGER.to_owned(), Some(ledger.render()))].into(), ..MetaPatch::default() };
    let spec = SpecPatch { replicas: Some(set.replicas - 1), outcome: None };
    Some(Asked { kind: Kind::Set, key: set.meta.key.clone(), what: What::Merge(MergePatch { metadata, spec }) })
}
