//! Explains the state of a node for a terminal: each value with its source and age, and its problems. Advice is part of
//! the problem texts.
//!
//! Reads only the NodeConfigs of the node.

use jiff::Timestamp;
use kube::ResourceExt;

use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::{FittedLine, NodeReading, NodeValue, PowerAccuracy, PowerCurve};
use ganglion_core::conditions::DATA_AVAILABLE;
use ganglion_core::layout::{age, paragraph, table};

/// Subject of the explanation.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedNode<'a> {
    pub name: &'a str,
    /// NodeConfigs of the node, from all namespaces that could be read.
    pub configs: &'a [NodeConfig],
    pub now: Timestamp,
}

/// Returns the explanation. Lines have at most 120 columns, except for long names and commands.
pub fn explain(subject: ExplainedNode) -> String {
    let ExplainedNode { name, configs, now } = subject;
    if configs.is_empty() {
        let words = format!("No NodeConfig describes node {name}.");
        return paragraph("", &words)
            + &paragraph("-> ", "Create one, or a NodeConfigTemplate whose selector matches the node.");
    }
    let parts: Vec<String> = configs.iter().map(|config| explain_config(config, now)).collect();
    parts.join("\n")
}

fn explain_config(config: &NodeConfig, now: Timestamp) -> String {
    let namespace = config.namespace().unwrap_or_default();
    let owner = config.owner_references().iter().find(|owner| owner.controller == Some(true));
    let origin = owner.map(|owner| format!(", created by template {}", owner.name)).unwrap_or_default();
    let head = format!("Node {}, from NodeConfig {namespace}/{}{origin}:", config.spec.node_name, config.name_any());
    let mut text = paragraph("", &head);
    let status = config.status.clone().unwrap_or_default();
    let known = NodeValue::ALL.iter().filter_map(|value| Some((*value, status.reading(*value)?)));
    let rows: Vec<[String; 4]> = known.clone().map(|(value, reading)| row(value, reading, now)).collect();
    if !rows.is_empty() {
        text.push_str(&table(["VALUE", "LAST", "SAMPLED", "FROM"], rows));
    }
    if let Some(choice) = &status.inlet_sensor {
        text.extend(choice.evidence.as_ref().map(|evidence| paragraph("Inlet sensor: ", evidence)));
        text.extend(choice.runner_up.as_ref().map(|other| paragraph("Next best sensor: ", other)));
        let again = |why: &String| paragraph("", &format!("The search for the inlet sensor is repeated: {why}."));
        text.extend(choice.provisional.as_ref().map(again));
    }
    if let Some(PowerCurve { watts, problem, .. }) = &status.power_curve {
        if let [idle, .., full] = watts.as_slice() {
            text.push_str(&paragraph("", &format!("Predicted power: {idle} W when idle, {full} W when fully used.")));
        }
        text.extend(problem.as_ref().map(|problem| paragraph("powerCurve: ", problem)));
    }
    text.extend(status.power_accuracy.as_ref().and_then(describe_accuracy).map(|words| paragraph("", &words)));
    let problems: Vec<String> = known
        .filter_map(|(value, reading)| Some(paragraph(&format!("{}: ", value.as_str()), reading.problem.as_ref()?)))
        .collect();
    // DataAvailable repeats the reason if the NodeConfig is not Ready.
    let find = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let ready = find(DATA_AVAILABLE).or_else(|| find("Ready"));
    match ready {
        None => text.push_str(&paragraph("", "The operator has not reconciled it yet.")),
        // The message repeats the problems.
        Some(_) if !problems.is_empty() => text.extend(problems),
        Some(ready) => text.push_str(&paragraph(&format!("{}: ", ready.reason), &ready.message)),
    }
    text
}

/// Describes how far predicted power is from the measured one.
fn describe_accuracy(accuracy: &PowerAccuracy) -> Option<String> {
    let (error, samples) = (accuracy.mean_absolute_error.as_ref()?, accuracy.samples?);
    let own = format!("Predicted power is off by {error} W on average (comparisons: {samples})");
    let Some(FittedLine { idle_watts, full_watts, mean_absolute_error: Some(of_line) }) = &accuracy.line else {
        return Some(format!("{own}."));
    };
    let used = if accuracy.worse_than_line == Some(true) { " Policies use the line." } else { "" };
    Some(format!("{own}, a straight line from {idle_watts} W to {full_watts} W by {of_line} W.{used}"))
}

fn row(value: NodeValue, reading: &NodeReading, now: Timestamp) -> [String; 4] {
    let unit = value.unit();
    let deviation = reading.deviation.as_ref().map(|deviation| format!(" ± {deviation}")).unwrap_or_default();
    let last = reading.value.as_ref().map_or_else(|| "-".to_owned(), |number| format!("{number}{deviation} {unit}"));
    let stale = if reading.stale == Some(true) { ", stale" } else { "" };
    let age = reading.sampled_at.as_ref().map_or_else(|| "-".to_owned(), |at| format!("{} ago{stale}", age(at.0, now)));
    [value.as_str().to_owned(), last, age, reading.source.clone().unwrap_or_else(|| "-".to_owned())]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_known_is_shown_with_its_age_and_what_is_wrong() {
        let config: NodeConfig = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
            "metadata": {"name": "fleet-worker-0", "namespace": "machines", "ownerReferences": [
                {"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "name": "fleet", "uid": "u", "controller": true},
            ]},
            "spec": {"nodeName": "worker-0"},
            "status": {
                "inletTemperature": {"value": "23.5", "sampledAt": "2026-11-21T10:00:00Z", "source": "/redfish/v1/Chassis/1/Sensors/Inlet"},
                "inletSensor": {"evidence": "its name means the inlet", "provisional": "a part of the machine could not be read",
                    "runnerUp": "/redfish/v1/Chassis/1/Sensors/Front: its name means the front"},
                "cpu": {"value": "40", "deviation": "5.2", "sampledAt": "2026-11-21T09:00:00Z", "stale": true, "problem": "no answer within 5 s"},
                "power": {"problem": "cpu is not known"},
                "measuredPower": {"value": "180", "sampledAt": "2026-11-21T10:00:02Z", "source": "Fake"},
                "powerCurve": {"watts": ["100.5", "150", "300"], "problem": "no number"},
                "powerAccuracy": {"meanAbsoluteError": "31.5", "samples": 60, "worseThanLine": true,
                    "line": {"idleWatts": "90", "fullWatts": "280", "meanAbsoluteError": "4"}},
                "conditions": [{"type": "Ready", "status": "False", "reason": "Unreachable", "message": "cpu: no answer within 5 s", "lastTransitionTime": "2026-11-21T10:00:00Z"}],
            },
        }))
        .unwrap();
        let now: Timestamp = "2026-11-21T10:00:12Z".parse().unwrap();
        let text = explain(ExplainedNode { name: "worker-0", configs: &[config], now });
        let expected = "Node worker-0, from NodeConfig machines/fleet-worker-0, created by template fleet:\n\
                        VALUE             LAST        SAMPLED         FROM\n\
                        inletTemperature  23.5 °C     12s ago         /redfish/v1/Chassis/1/Sensors/Inlet\n\
                        cpu               40 ± 5.2 %  60m ago, stale  -\n\
                        power             -           -               -\n\
                        measuredPower     180 W       10s ago         Fake\n\
                        Inlet sensor: its name means the inlet\n\
                        Next best sensor: /redfish/v1/Chassis/1/Sensors/Front: its name means the front\n\
                        The search for the inlet sensor is repeated: a part of the machine could not be read.\n\
                        Predicted power: 100.5 W when idle, 300 W when fully used.\n\
                        powerCurve: no number\n\
                        Predicted power is off by 31.5 W on average (comparisons: 60), a straight line from 90 W to 280 W by \
                        4 W. Policies use\nthe line.\n\
                        cpu: no answer within 5 s\n\
                        power: cpu is not known\n";
        assert_eq!(text, expected);
        let nothing = explain(ExplainedNode { name: "worker-1", configs: &[], now });
        assert!(nothing.starts_with("No NodeConfig describes node worker-1.\n-> "), "{nothing}");
    }
}
