//! Names derived from the action: equal after a crash, different for another action.

use kube::Resource;
use serde_json::Value;

use super::origin;
use ganglion_api::execution::Execution;
use ganglion_api::workload_action::{MOST_REPLICAS, RunPolicy, WorkloadAction};
use ganglion_core::digest::digest;
use ganglion_core::facts::{Identity, SlotId, Uid};

/// Spec members that may change while the action runs. They do not belong to its identity.
const MUTABLE: [&str; 4] = ["suspend", "abort", "timeouts", "ttlSecondsAfterFinished"];

/// Spec members that are newer than receipts in use, with their defaults, which do not count: an action that ran before
/// an upgrade must find its receipt.
const NEWER: [(&str, &str); 1] = [("dataLoss", "Refuse")];

/// Whether each object of this name and spec runs, not only the first one.
fn runs_for_each_object(action: &WorkloadAction) -> bool {
    match action.spec.run_policy {
        RunPolicy::Auto => origin::is_by_hand(&action.metadata),
        RunPolicy::Once => false,
        RunPolicy::OncePerObject => true,
    }
}

/// Whether the receipt of the action is deleted with it: another object is another action, or a loop's Execution
/// records which decisions were carried out. Otherwise each object would leave a receipt forever.
pub fn owns_receipt(action: &WorkloadAction) -> bool {
    let mut owners = action.metadata.owner_references.iter().flatten();
    runs_for_each_object(action) || owners.any(|owner| owner.kind == Execution::kind(&()))
}

/// Hash of the action's identity: its immutable spec, and its uid if each object runs. 10 hex digits.
pub fn spec_hash(action: &WorkloadAction) -> String {
    let mut value = serde_json::to_value(&action.spec).unwrap_or(Value::Null);
    if let Value::Object(members) = &mut value {
        for member in MUTABLE {
            members.remove(member);
        }
        for (member, default) in NEWER {
            if members.get(member).is_some_and(|value| value == default) {
                members.remove(member);
            }
        }
    }
    let uid = action.metadata.uid.as_deref().unwrap_or_default();
    let object = if runs_for_each_object(action) { uid } else { "" };
    // serde_json sorts the members of an object, so equal specs result in equal text.
    digest(&[&value.to_string(), object], 10)
}

/// Name of the action's receipt: the action's name, cut to fit, and the hash of its identity. A recorded name takes
/// precedence, so that labels that a tool adds later do not make it another action.
pub fn receipt_name(action: &WorkloadAction) -> String {
    if let Some(recorded) = action.status.as_ref().and_then(|status| status.receipt.as_ref()) {
        return recorded.clone();
    }
    let mut name = Identity::from(&action.metadata).key.name;
    name.truncate(200);
    format!("{}-{}", name.trim_end_matches(['-', '.']), spec_hash(action))
}

/// Id of a slot: a hash of the action's uid and the slot's index. 16 hex digits.
pub fn slot_id(action: &Uid, index: i32) -> SlotId {
    digest(&[action.as_str(), &index.to_string()], 16).into()
}

/// Ids of all slots that an action may have: one for each replica, at most [`MOST_REPLICAS`].
pub fn slot_ids(action: &Uid) -> impl Iterator<Item = SlotId> {
    (0..MOST_REPLICAS).map(move |index| slot_id(action, index))
}

/// Maximum length of a generated name. The hostname of a pod is its name, cut to this length.
const LONGEST_NAME: usize = 63;

/// Length of [`suffix_of`], in hex digits.
const SUFFIX: usize = 8;

/// Name of a slot's new pod in one attempt. It has the style of the ReplicaSet's own names and is deterministic, so
/// that the pod cannot be created twice. The name of the ReplicaSet is cut so that the suffix is part of the hostname,
/// as with names that the API server generates.
pub fn replacement_name(set_name: &str, slot: &SlotId, attempt: i32) -> String {
    let mut name = set_name.to_owned();
    name.truncate(LONGEST_NAME - SUFFIX - 1);
    format!("{}-{}", name.trim_end_matches(['-', '.']), suffix_of(slot, attempt))
}

/// Whether a slot gives its new pods this name in one of these attempts. A pod cannot be renamed, so the name proves
/// what a mark does not: anybody who may patch a pod can write the marks of a slot. The name of the ReplicaSet is not
/// compared, since a later attempt may be for another one.
pub fn is_replacement_name(name: &str, slot: &SlotId, attempts: impl Iterator<Item = i32>) -> bool {
    let Some((_, suffix)) = name.rsplit_once('-') else { return false };
    attempts.into_iter().any(|attempt| suffix == suffix_of(slot, attempt))
}

fn suffix_of(slot: &SlotId, attempt: i32) -> String {
    digest(&[slot.as_str(), &attempt.to_string()], SUFFIX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_replacement_has_a_hostname_of_its_own() {
        let slots: Vec<SlotId> = (0..3).map(|index| slot_id(&"uid".into(), index)).collect();
        for length in [1, 10, 52, 53, 54, 55, 56, 62, 63, 200, 253] {
            for set in ["a".repeat(length), "a-".repeat(length), "a.".repeat(length)] {
                let set = &set[..length];
                let mut hostnames: Vec<String> = Vec::new();
                for (slot, attempt) in slots.iter().flat_map(|slot| [(slot, 0), (slot, 1)]) {
                    let name = replacement_name(set, slot, attempt);
                    assert!(is_replacement_name(&name, slot, 0..=attempt), "{name}");
                    assert!(!name.contains("--") && !name.contains(".-"), "{name} is no valid name");
                    hostnames.push(name.chars().take(LONGEST_NAME).collect());
                }
                hostnames.sort_unstable();
                hostnames.dedup();
                assert_eq!(hostnames.len(), 2 * slots.len(), "{set}: {hostnames:?}");
            }
        }
    }

    #[test]
    fn a_field_that_receipts_do_not_know_counts_only_if_it_is_set() {
        let hash = |spec: Value| spec_hash(&WorkloadAction::new("go", serde_json::from_value(spec).expect("a spec")));
        let delete = json!({"pod": {"name": "db-2"}});
        let usual = hash(json!({"delete": delete}));
        assert_eq!(usual, "f13e35c235", "receipts of earlier versions have this hash");
        assert_eq!(usual, hash(json!({"delete": delete, "dataLoss": "Refuse"})));
        assert_ne!(usual, hash(json!({"delete": delete, "dataLoss": "Accept"})));
    }
}
