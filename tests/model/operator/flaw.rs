//! Operators with one flaw each: the real one, with its requests, their answers, or what it hears changed on the way. Each
//! must be caught by the rule that is there for it.

use ganglion::api::marks;
use ganglion::api::workload_action::WorkloadActionStatus;
use ganglion::api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion::logic::facts::Ledger;
use ganglion::logic::facts::{Key, PodFact};
use ganglion::logic::workload_action::Limits;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use super::build::now;
use super::feed::Lie;
use crate::cluster::api::Api;
use crate::cluster::object::{Pod, Set};
use crate::face::Answer;
use crate::face::asked::{Asked, Kind, MergePatch, MetaPatch, SpecPatch, What};
use crate::face::deed::Deed;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// The old pod goes before the new one is there.
    EvictFirst,
    /// Takes every pod that it made for Ready.
    TakesForReady,
    /// Gives the pod that it chooses to go no lower cost than the others have.
    NoMark,
    /// Believes that its intent is recorded, and it is not.
    ActFirst,
    /// Turns to another pod when it is done.
    Greedy,
    /// Lowers the workload's replicas, which a move must not.
    Scales,
    /// Leaves a finalizer behind.
    KeepsFinalizer,
    /// Chooses any pod of the set to go.
    MarksAnybody,
    /// Does nothing.
    Idle,
    /// Ends before anything is done.
    ClaimsSuccess,
    /// Begins without asking whether there is room.
    NoLimits,
}

impl Flaw {
    /// The limits that it keeps.
    pub fn limits(self, limits: &Limits) -> Limits {
        if self == Self::NoLimits { Limits::default() } else { limits.clone() }
    }

    /// What it makes of a pod that it hears of.
    pub fn lie(self) -> Lie {
        match self {
            Self::TakesForReady => |pod| {
                if !pod.generated {
                    pod.ready_since.get_or_insert(pod.created);
                }
            },
            _ => |_: &mut PodFact| (),
        }
    }

    /// A request that it makes beside this one, before it.
    pub fn adds(self, asked: &Asked, action: &Key, api: &Api) -> Option<Asked> {
        match self {
            Self::EvictFirst => evicted(asked, action, api),
            Self::Scales => lowered(asked, api),
            _ => None,
        }
    }

    /// What is carried out instead of this request.
    pub fn bend(self, asked: &Asked, action: &Key, api: &Api) -> Asked {
        let mut bent = asked.clone();
        match (self, &mut bent.what) {
            (Self::NoMark, What::Json(patch)) => unmarked(patch),
            (Self::ActFirst | Self::ClaimsSuccess | Self::Greedy, What::Status(_, status)) => {
                self.misrecord(status, action, api);
            }
            (Self::KeepsFinalizer, What::Merge(patch)) if patch.metadata.finalizers == Some(vec![]) => {
                patch.metadata.finalizers = Some(vec!["ganglion.dev/another".to_owned()]);
            }
            (Self::MarksAnybody, What::Json(patch)) => {
                if let Some(other) = another(&asked.key, api) {
                    bent.key = other.meta.key.clone();
                    patch[0]["value"] = json!(other.meta.uid);
                }
            }
            _ => {}
        }
        bent
    }

    /// Another status than it wants to write.
    fn misrecord(self, status: &mut WorkloadActionStatus, action: &Key, api: &Api) {
        let Some(there) = api.actions.get(action).and_then(|action| action.status.clone()) else { return };
        let begins = there.slots.is_empty() && !status.slots.is_empty();
        match self {
            Self::ActFirst if begins => status.slots.clear(),
            Self::ClaimsSuccess if begins => {
                status.slots.iter_mut().for_each(|slot| slot.step = Step::Succeeded);
                status.finished_at = Some(Time(now()));
                status.conditions = vec![succeeded()];
            }
            Self::Greedy if status.finished_at.is_some() && !there.slots.is_empty() => {
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

    /// What it believes was answered.
    pub fn color(self, asked: &Asked, answer: Answer) -> Answer {
        let (code, body) = answer;
        let object = || serde_json::from_str::<Value>(&body).expect("JSON");
        match (self, &asked.what) {
            (Self::ActFirst, What::Status(_, status)) if code == 200 => {
                let mut object = object();
                object["status"]["slots"] = json!(status.slots);
                (code, object.to_string())
            }
            (Self::TakesForReady, _) if code == 200 && asked.kind == Kind::Pod => {
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

/// Takes what makes a pod go first off a mark.
fn unmarked(patch: &mut Vec<Value>) {
    patch.retain(|step| !step["path"].as_str().is_some_and(|path| path.ends_with("pod-deletion-cost")));
    for step in patch {
        if let Some(annotations) = step["value"].as_object_mut() {
            annotations.remove(marks::DELETION_COST);
        }
    }
}

/// Another pod of the same set that nobody has marked.
fn another<'a>(key: &Key, api: &'a Api) -> Option<&'a Pod> {
    let set = api.pods.get(key)?.meta.controller()?;
    let mut others = api.pods.values().filter(|pod| pod.meta.is_of(&set.uid) && pod.meta.key != *key);
    others.find(|pod| pod.is_active() && !pod.meta.annotations.contains_key(marks::SLOT)).map(|pod| &**pod)
}

/// A serving pod of the slot's set, other than its victim and its new one.
fn other_victim(slot: &Slot, api: &Api) -> Option<PodOnNode> {
    let fits = |pod: &Pod| pod.is_serving() && pod.generated && pod.meta.is_of(&slot.replica_set.uid);
    let pod = api.pods.values().find(|pod| fits(pod))?;
    let node = pod.node.clone().unwrap_or_default();
    Some(PodOnNode { name: pod.meta.key.name.clone(), uid: Some(pod.meta.uid.clone()), node })
}

/// Beside the creation of a pod: the eviction of the one whose place it takes.
fn evicted(asked: &Asked, action: &Key, api: &Api) -> Option<Asked> {
    let Deed::CreatePod { slot, pod } = Deed::of(asked) else { return None };
    let victim = api.actions.get(action)?.slots().find(|one| one.id == slot)?.victim.clone()?;
    Some(Asked { kind: Kind::Pod, key: Key::new(pod.namespace, victim.name), what: What::Evict(victim.uid) })
}

/// Beside the detaching of a pod of a set of its own: one replica fewer.
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
