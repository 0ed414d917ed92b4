//! Deterministic names of objects and events that an execution creates, so that none is created twice.

use ganglion_core::digest::digest;

/// Name of the WorkloadAction of a decision.
pub fn action_name(loop_name: &str, uid: &str, seq: i64) -> String {
    let mut name = loop_name.to_owned();
    name.truncate(200);
    let hash = digest(&[uid, &seq.to_string()], 8);
    format!("{}-{seq}-{hash}", name.trim_end_matches(['-', '.']))
}

/// Id of the event of a decision.
pub fn event_id(uid: &str, seq: i64) -> String {
    format!("{uid}/{seq}")
}
