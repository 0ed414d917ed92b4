//! Pods of StatefulSets with the operator's scheduling gate. A slot that wants such a pod pins and releases it. A pod
//! that no slot wants is released at once, and a pod that a slot wants is released after [`LONGEST_HOLD`] at the
//! latest.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::world::ActionsWorld;
use ganglion_api::marks;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{Identity, Key, NodeName, PodFact, Uid};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::World;

/// Maximum time for which a pod stays gated while an operator runs, even if a slot wants it.
pub const LONGEST_HOLD: SignedDuration = SignedDuration::from_secs(60);

/// A gated pod that is not bound to a node, and whether a slot wants it.
#[derive(Debug, PartialEq)]
pub struct GatedPod {
    pub id: Identity,
    created: Timestamp,
    is_wanted: bool,
}

/// Decision about a gated pod.
#[derive(Debug, PartialEq)]
pub enum GateVerdict {
    /// A slot is about to release the pod; decide again at this time.
    HoldUntil(Timestamp),
    /// Release the pod without a pin.
    Release,
}

impl GatedPod {
    /// None if the pod does not exist or does not wait at the gate.
    pub fn observe(world: &World, key: &Key) -> Option<Self> {
        let pod = world.pod(key).filter(|pod| pod.gated && pod.is_active() && pod.node.is_none())?;
        Some(Self { id: pod.id.clone(), created: pod.created, is_wanted: is_wanted(world, pod) })
    }

    /// Decides whether the pod stays gated.
    pub fn decide(&self, now: Timestamp) -> GateVerdict {
        // The creation time is by the clock of the API server, which may be ahead.
        let until = (self.created + LONGEST_HOLD).min(now + LONGEST_HOLD);
        if self.is_wanted && now < until { GateVerdict::HoldUntil(until) } else { GateVerdict::Release }
    }
}

/// Whether a running slot wants to pin this pod.
fn is_wanted(world: &World, pod: &PodFact) -> bool {
    let Some(owner) = &pod.controller else { return false };
    world.slots_on(&owner.uid).any(|slot| {
        let is_it = slot.replacement.as_ref().is_some_and(|new| new.name == pod.id.key.name);
        // The old pod may be gated itself.
        let is_old = slot.victim.as_ref().is_some_and(|old| old.uid.as_ref() == Some(&pod.id.uid));
        is_it && !is_old && !matches!(slot.step, Step::Queued | Step::RollingBack)
    })
}

/// The patch that releases a pod, given as the API server sent it. If a node is given, the patch also pins the pod to
/// it, in every term of its required node affinity, since the scheduler needs only one term to match. None if the gate
/// is gone.
pub fn release_patch(pod: &Value, uid: &Uid, node: Option<&NodeName>) -> Option<JsonPatch> {
    let gates = pod.pointer("/spec/schedulingGates")?.as_array()?;
    let at = gates.iter().position(|gate| gate["name"] == marks::GATE)?;
    let index = at.to_string();
    let mut patch = JsonPatch::of(uid);
    patch.test(&["spec", "schedulingGates", &index, "name"], marks::GATE);
    if let Some(node) = node {
        let affinity = pod.pointer("/spec/affinity").cloned().unwrap_or(Value::Null);
        patch.test(&["spec", "affinity"], affinity.clone());
        patch.add(&["spec", "affinity"], pinned(affinity, node));
    }
    patch.remove(&["spec", "schedulingGates", &index]);
    Some(patch)
}

/// The affinity, narrowed to this node.
fn pinned(affinity: Value, node: &NodeName) -> Value {
    let mut affinity = if affinity.is_object() { affinity } else { json!({}) };
    let pin = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    if !affinity["nodeAffinity"].is_object() {
        affinity["nodeAffinity"] = json!({});
    }
    let required = &mut affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if !required.is_object() {
        *required = json!({"nodeSelectorTerms": [{}]});
    }
    for term in required["nodeSelectorTerms"].as_array_mut().into_iter().flatten() {
        match term["matchFields"].as_array_mut() {
            Some(fields) => fields.push(pin.clone()),
            None => term["matchFields"] = json!([pin.clone()]),
        }
    }
    affinity
}
