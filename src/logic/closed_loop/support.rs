//! What this version of the operator can do: of what the schema accepts, the part that is not there yet is named.

use super::Fault;
use crate::api::closed_loop::ClosedLoopSpec;
use crate::api::closed_loop::action::Rung;
use crate::api::closed_loop::source::Source;

/// Checks that everything the spec asks for can be done.
///
/// # Errors
///
/// It cannot; the fault names the first field that is in the way.
pub fn check(spec: &ClosedLoopSpec) -> Result<(), Fault> {
    let not_yet = |field: String| Err(Fault::new(field, "this version of the operator does not support it yet"));
    for metric in &spec.metrics {
        if let Some(source) = missing_source(&metric.source) {
            return not_yet(format!("spec.metrics[{}].source.{source}", metric.name));
        }
    }
    // Samples have one order: the sender's clock and ours would each refuse what the other said.
    let pushed = spec.metrics.iter().find(|metric| metric.source.push.is_some());
    let asked = spec.metrics.iter().find(|metric| metric.source.push.is_none());
    if let (Some(pushed), Some(asked)) = (pushed, asked) {
        return Err(Fault::new(
            format!("spec.metrics[{}].source", asked.name),
            format!("a loop cannot ask for one metric while {} is pushed: make two loops", pushed.name),
        ));
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

/// The source that cannot be asked yet.
fn missing_source(source: &Source) -> Option<&'static str> {
    let Source { push: _, loop_: _, prometheus, http, object, resource, node_config } = source;
    let missing = [
        (prometheus.is_some(), "prometheus"),
        (http.is_some(), "http"),
        (object.is_some(), "object"),
        (resource.is_some(), "resource"),
        (node_config.is_some(), "nodeConfig"),
    ];
    missing.into_iter().find(|(set, _)| *set).map(|(_, name)| name)
}

/// The rung that cannot be done yet.
fn missing_rung(rung: &Rung) -> Option<&'static str> {
    let Rung { scale: _, tune: _, workload_action: _, resize: _, patch: _, webhook } = rung;
    let missing = [(webhook.is_some(), "webhook")];
    missing.into_iter().find(|(set, _)| *set).map(|(_, name)| name)
}
