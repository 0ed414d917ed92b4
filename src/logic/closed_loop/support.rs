//! What this version of the operator can do: of what the schema accepts, the part that is not there yet is named.

use super::Fault;
use crate::api::closed_loop::ClosedLoopSpec;
use crate::api::closed_loop::action::Rung;

/// Checks that everything the spec asks for can be done.
///
/// # Errors
///
/// It cannot; the fault names the first field that is in the way.
pub fn check(spec: &ClosedLoopSpec) -> Result<(), Fault> {
    let not_yet = |field: String| Err(Fault::new(field, "this version of the operator does not support it yet"));
    for metric in &spec.metrics {
        if metric.source.node_config.is_some() {
            return not_yet(format!("spec.metrics[{}].source.nodeConfig", metric.name));
        }
    }
    for action in spec.actions.iter().flatten() {
        for (index, rung) in action.ladder.iter().enumerate() {
            if let Some(rung) = missing_rung(rung) {
                let alarm = format!("{} {}", action.when.side, action.when.metric);
                return not_yet(format!("spec.actions[{alarm}].ladder[{index}].{rung}"));
            }
        }
    }
    Ok(())
}

/// The rung that cannot be done yet.
fn missing_rung(rung: &Rung) -> Option<&'static str> {
    let Rung { scale: _, tune: _, workload_action: _, resize: _, patch: _, webhook } = rung;
    let missing = [(webhook.is_some(), "webhook")];
    missing.into_iter().find(|(set, _)| *set).map(|(_, name)| name)
}
