//! Texts of statuses, and deterministic names of objects and events that an execution creates, so that none is created
//! twice.
use serde_json::Value;

use super::types::ExecutionContext;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::execution::Quantities;
use ganglion_api::scalars::Number;
use ganglion_core::digest::digest;
use ganglion_core::facts::Uid;
use ganglion_core::quantity;
use ganglion_core::words::kind_of_text;

/// Name of the target, such as `Deployment/web`.
pub fn target_text(target: &TargetRef) -> String {
    format!("{}/{}", target.kind, target.name)
}

/// Message of a change, such as `changed Deployment/web from 3 to 4`.
pub fn done_text(context: &ExecutionContext) -> String {
    let after = context.status.after.as_deref().unwrap_or("what was decided");
    match &context.status.before {
        Some(before) => format!("changed {} from {before} to {after}", target_text(&context.spec.target)),
        None => format!("carried out: {after}"),
    }
}

/// Formats the value of a field for a status: numbers, quantities, booleans and null as JSON; of any other value only
/// its kind, since a field may hold a secret.
pub fn value_text(value: Option<&Value>) -> String {
    match value {
        None => "unset".to_owned(),
        Some(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value.to_string(),
        Some(value @ Value::String(text)) if quantity::number(text).is_ok() => value.to_string(),
        Some(Value::String(text)) => kind_of_text(text),
        Some(Value::Array(items)) => format!("a list of {} items", items.len()),
        Some(Value::Object(_)) => "an object".to_owned(),
    }
}

/// Formats quantities, such as `request 512Mi, limit 1Gi`.
pub fn quantities_text(quantities: &Quantities) -> String {
    let part = |name: &str, value: &Option<Number>| value.as_ref().map(|value| format!("{name} {}", value.as_str()));
    let parts: Vec<String> =
        [part("request", &quantities.request), part("limit", &quantities.limit)].into_iter().flatten().collect();
    parts.join(", ")
}

/// Name of the WorkloadAction of a decision.
pub fn action_name(loop_name: &str, uid: &Uid, seq: i64) -> String {
    let mut name = loop_name.to_owned();
    name.truncate(200);
    let hash = digest(&[uid.as_str(), &seq.to_string()], 8);
    format!("{}-{seq}-{hash}", name.trim_end_matches(['-', '.']))
}

/// Id of the event of a decision.
pub fn event_id(uid: &Uid, seq: i64) -> String {
    format!("{uid}/{seq}")
}
