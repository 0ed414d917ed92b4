//! Texts that several steps use in messages.

use super::types::ExecutionContext;
use crate::api::closed_loop::TargetRef;
use crate::api::execution::Quantities;
use crate::api::scalars::Number;

/// `Deployment/web`.
pub fn target_text(target: &TargetRef) -> String {
    format!("{}/{}", target.kind, target.name)
}

/// `changed Deployment/web from 3 to 4`.
pub fn done_text(context: &ExecutionContext) -> String {
    let after = context.status.after.as_deref().unwrap_or("what was decided");
    match &context.status.before {
        Some(before) => format!("changed {} from {before} to {after}", target_text(&context.spec.target)),
        None => format!("carried out: {after}"),
    }
}

/// `request 512Mi, limit 1Gi`.
pub fn quantities_text(quantities: &Quantities) -> String {
    let part = |name: &str, value: &Option<Number>| value.as_ref().map(|value| format!("{name} {}", value.as_str()));
    let parts: Vec<String> =
        [part("request", &quantities.request), part("limit", &quantities.limit)].into_iter().flatten().collect();
    parts.join(", ")
}
