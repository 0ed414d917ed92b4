//! CEL rules for the sources of a NodeConfig, and of a template, whose texts may contain expressions. Each message
//! names the field.

use kube::core::{Message, Rule};

use super::source::{WITHOUT_ENDPOINT, types_of};

/// A rule that this member of the spec, if set, has one of these types, and the endpoint that its type requires.
pub fn source(group: &str, member: &str) -> Rule {
    let types = types_of(member);
    let path = format!("{group}.{member}");
    let good = format!(
        "self.{path}.type in {} && (self.{path}.type in {} || has(self.{path}.endpoint) \
         && self.{path}.endpoint.matches('^https?://[^/]'))",
        list(types),
        list(&WITHOUT_ENDPOINT)
    );
    Rule::new(unless_set(group, member, &good)).message(needs(&path, types)).field_path(format!(".{path}"))
}

/// The same rule for a template: a text with an expression is not checked before it is rendered.
pub fn source_template(group: &str, member: &str) -> Rule {
    let types = types_of(member);
    let path = format!("template.{group}.{member}");
    let good = format!(
        "self.{path}.type.contains('{{{{') || self.{path}.type in {} && (self.{path}.type in {} \
         || has(self.{path}.endpoint) && (self.{path}.endpoint.contains('{{{{') || self.{path}.endpoint.matches('^https?://[^/]')))",
        list(types),
        list(&WITHOUT_ENDPOINT)
    );
    Rule::new(unless_set(&format!("template.{group}"), member, &good))
        .message(needs(&path, types))
        .field_path(format!(".{path}"))
}

/// A rule that power from Prometheus names its metric. `prefix` is the path to the sources, such as `template.`.
pub fn power_metric(prefix: &str) -> Rule {
    let path = format!("{prefix}metricsCollector.power");
    let good = format!("self.{path}.type != 'Prometheus' || has(self.{path}.metric)");
    let message = "metric is required for power from Prometheus, such as ipmi_dcmi_power_consumption_watts, \
                   kepler_platform_watts, kepler_node_platform_joules_total or node_hwmon_power_average_watt";
    Rule::new(unless_set(&format!("{prefix}metricsCollector"), "power", &good))
        .message(Message::Message(format!("{path}: {message}")))
        .field_path(format!(".{path}"))
}

/// A rule that the reading of power at a BMC, if it is named, is named by its path.
pub fn power_sensor(prefix: &str) -> Rule {
    let path = format!("{prefix}metricsCollector.power");
    let good = format!(
        "!has(self.{path}.sensor) || self.{path}.sensor.startsWith('/') || self.{path}.sensor.contains('{{{{')"
    );
    Rule::new(unless_set(&format!("{prefix}metricsCollector"), "power", &good))
        .message(Message::Message(format!(
            "{path}.sensor: it must be a path such as /redfish/v1/Chassis/1/EnvironmentMetrics"
        )))
        .field_path(format!(".{path}"))
}

fn unless_set(group: &str, member: &str, good: &str) -> String {
    format!("!has(self.{group}) || !has(self.{group}.{member}) || {good}")
}

fn list(types: &[&str]) -> String {
    let quoted: Vec<String> = types.iter().map(|one| format!("'{one}'")).collect();
    format!("[{}]", quoted.join(", "))
}

fn needs(path: &str, types: &[&str]) -> Message {
    let without = types.iter().filter(|one| WITHOUT_ENDPOINT.contains(one)).copied().collect::<Vec<_>>();
    Message::Message(format!(
        "{path}: type must be one of {}; endpoint must be an http or https address, except with type {}",
        types.join(", "),
        without.join(" or ")
    ))
}
