//! The pods of StatefulSets that the operator's scheduling gate holds: a slot that wants one binds and releases it; one that no
//! slot wants is released at once, and one that is wanted after [`LONGEST_HOLD`] at the latest.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use ganglion_api::marks;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{Identity, Key, PodFact};
use ganglion_core::world::World;

/// How long a gated pod is held at most while an operator runs, whatever a slot wants.
pub const LONGEST_HOLD: SignedDuration = SignedDuration::from_secs(60);

/// What to do about a gated pod.
#[derive(Debug, PartialEq)]
pub enum GateVerdict {
    /// Nothing: it is not gated.
    None,
    /// A slot is about to release it; look again then.
    Until(Timestamp),
    /// Let it go, without a node.
    Release(Identity),
}

/// Looks at one pod.
#[must_use]
pub fn hold(world: &World, key: &Key, now: Timestamp) -> GateVerdict {
    let Some(pod) = world.pod(key).filter(|pod| pod.gated && pod.is_active() && pod.node.is_none()) else {
        return GateVerdict::None;
    };
    let until = pod.created + LONGEST_HOLD;
    // Its clock is the API server's, which may be ahead.
    let until = until.min(now + LONGEST_HOLD);
    if is_wanted(world, pod) && now < until {
        return GateVerdict::Until(until);
    }
    GateVerdict::Release(pod.id.clone())
}

/// Whether a slot at work wants to give this pod a node.
fn is_wanted(world: &World, pod: &PodFact) -> bool {
    let Some(owner) = &pod.controller else { return false };
    world.slots_on(&owner.uid).any(|slot| {
        let is_it = slot.replacement.as_ref().is_some_and(|new| new.name == pod.id.key.name);
        // The old one may be gated itself.
        let is_old = slot.victim.as_ref().is_some_and(|old| old.uid.as_ref() == Some(&pod.id.uid));
        is_it && !is_old && !matches!(slot.step, Step::Queued | Step::RollingBack)
    })
}

/// The patch that lets a pod go, as the API server sent it, bound to this node if one is given: in every term of its required node
/// affinity, since one is enough for the scheduler. None: the gate is not there any more.
#[must_use]
pub fn release_patch(pod: &Value, node: Option<&str>) -> Option<Value> {
    let gates = pod.pointer("/spec/schedulingGates")?.as_array()?;
    let at = gates.iter().position(|gate| gate["name"] == marks::GATE)?;
    let gate = format!("/spec/schedulingGates/{at}");
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": pod.pointer("/metadata/uid")}),
        json!({"op": "test", "path": format!("{gate}/name"), "value": marks::GATE}),
    ];
    if let Some(node) = node {
        let affinity = pod.pointer("/spec/affinity").cloned().unwrap_or(Value::Null);
        patch.push(json!({"op": "test", "path": "/spec/affinity", "value": affinity}));
        patch.push(json!({"op": "add", "path": "/spec/affinity", "value": pinned(affinity, node)}));
    }
    patch.push(json!({"op": "remove", "path": gate}));
    Some(Value::Array(patch))
}

/// The affinity, narrowed to this node.
fn pinned(affinity: Value, node: &str) -> Value {
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
