//! The oracle: `hack/peers hpa-oracle` as a process that answers line by line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::case::{CaseContainer, CaseDirection, CaseKind, CaseMetric, CasePod, CaseRules, CaseStep, SAMPLE_WINDOW};

/// Process of the oracle. It ends with its input.
pub struct OracleProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// Answer for a step.
#[derive(Debug, Deserialize)]
pub struct OracleResult {
    pub desired: i32,
    pub proposals: Vec<Option<i32>>,
    /// Status and reason of each condition, such as `True/ValidMetricFound`.
    pub conditions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct OracleAnswer {
    steps: Vec<OracleResult>,
}

impl OracleProcess {
    pub fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/peers");
        let done = Command::new(script).arg("hpa-oracle").stderr(Stdio::inherit()).output().expect("hack/peers");
        assert!(done.status.success(), "hack/peers hpa-oracle failed");
        let path = String::from_utf8(done.stdout).unwrap();
        let started = Command::new(path.trim()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("the oracle starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    /// Result of a step. With rules, it is the first one of a situation.
    pub fn step(&mut self, rules: Option<&CaseRules>, step: &CaseStep, metrics: &[CaseMetric]) -> OracleResult {
        let mut line = rules.map_or_else(|| json!({"continues": true}), situation);
        line["steps"] = json!([step_json(step, metrics)]);
        let mut text = line.to_string();
        text.push('\n');
        self.input.as_mut().expect("the input is open").write_all(text.as_bytes()).expect("the oracle reads");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the oracle answers");
        let mut answer: OracleAnswer =
            serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer:?} to {text}"));
        answer.steps.pop().expect("a result for the step")
    }
}

impl Drop for OracleProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Billionths as a quantity.
pub fn quantity(billionths: i64) -> String {
    format!("{billionths}n")
}

fn situation(rules: &CaseRules) -> Value {
    let behavior = rules.behavior.as_ref().map(|behavior| {
        let mut json = Map::new();
        let directions = [("scaleUp", &behavior.up), ("scaleDown", &behavior.down)];
        for (name, direction) in directions {
            if let Some(direction) = direction {
                json.insert(name.to_owned(), direction_json(direction));
            }
        }
        Value::Object(json)
    });
    json!({
        "min": rules.min, "max": rules.max, "behavior": behavior, "scaledToZero": rules.own_zero,
        "metrics": rules.metrics.iter().map(metric_json).collect::<Vec<_>>(),
    })
}

fn direction_json(direction: &CaseDirection) -> Value {
    let mut json = Map::new();
    if let Some(window) = direction.window {
        json.insert("stabilizationWindowSeconds".to_owned(), json!(window));
    }
    if let Some(select) = direction.select {
        json.insert("selectPolicy".to_owned(), json!(select));
    }
    if let Some(tolerance) = direction.tolerance {
        json.insert("tolerance".to_owned(), json!(tolerance));
    }
    if let Some(policies) = &direction.policies {
        let policies = policies.iter().map(|policy| {
            let kind = if policy.is_percent { "Percent" } else { "Pods" };
            json!({"type": kind, "value": policy.value, "periodSeconds": policy.period})
        });
        json.insert("policies".to_owned(), policies.collect());
    }
    Value::Object(json)
}

fn metric_json(metric: &CaseMetric) -> Value {
    let CaseMetric { name, kind, target } = metric;
    let utilization = json!({"type": "Utilization", "averageUtilization": target});
    let average = json!({"type": "AverageValue", "averageValue": quantity(*target)});
    let value = json!({"type": "Value", "value": quantity(*target)});
    let object = json!({"apiVersion": "v1", "kind": "Service", "name": "web"});
    let metric = json!({"name": name});
    match kind {
        CaseKind::CpuUtilization => json!({"type": "Resource", "resource": {"name": "cpu", "target": utilization}}),
        CaseKind::MemoryUtilization => {
            json!({"type": "Resource", "resource": {"name": "memory", "target": utilization}})
        }
        CaseKind::CpuAverage => json!({"type": "Resource", "resource": {"name": "cpu", "target": average}}),
        CaseKind::ContainerUtilization => {
            let container = json!({"name": "cpu", "container": "app", "target": utilization});
            json!({"type": "ContainerResource", "containerResource": container})
        }
        CaseKind::PodsAverage => json!({"type": "Pods", "pods": {"metric": metric, "target": average}}),
        CaseKind::ObjectValue => {
            json!({"type": "Object", "object": {"describedObject": object, "metric": metric, "target": value}})
        }
        CaseKind::ObjectAverage => {
            json!({"type": "Object", "object": {"describedObject": object, "metric": metric, "target": average}})
        }
        CaseKind::ExternalValue => json!({"type": "External", "external": {"metric": metric, "target": value}}),
        CaseKind::ExternalAverage => json!({"type": "External", "external": {"metric": metric, "target": average}}),
    }
}

fn step_json(step: &CaseStep, metrics: &[CaseMetric]) -> Value {
    let has_usage = metrics.iter().any(|metric| metric.kind.is_usage());
    let usage = step.pods.iter().filter(|_| has_usage).filter_map(|pod| {
        let containers = [("app", pod.containers[0]), ("proxy", pod.containers[1])];
        let used = containers.map(|(name, container)| {
            (name.to_owned(), json!({"cpu": quantity(container.cpu), "memory": quantity(container.memory)}))
        });
        let containers: Map<String, Value> = used.into_iter().collect();
        let window = SAMPLE_WINDOW.as_millis() as i64;
        Some(json!({"pod": pod.name, "time": pod.sampled?, "window": window, "containers": containers}))
    });
    let mut answers = Map::new();
    for (index, (metric, total)) in metrics.iter().zip(&step.totals).enumerate() {
        let Some(total) = total else { continue };
        let answer = if metric.kind == CaseKind::PodsAverage {
            let samples = step.pods.iter().filter_map(|pod| {
                let value = pod.values.get(index).copied().flatten()?;
                Some(json!({"pod": pod.name, "value": quantity(value)}))
            });
            json!({"samples": samples.collect::<Vec<_>>()})
        } else {
            json!({"values": [quantity(*total)]})
        };
        answers.insert(metric.name.clone(), answer);
    }
    json!({
        "time": step.time, "replicas": step.replicas, "statusReplicas": step.status_replicas,
        "pods": step.pods.iter().map(pod_json).collect::<Vec<_>>(),
        "usage": usage.collect::<Vec<_>>(), "usageFails": step.usage_fails, "answers": answers,
    })
}

fn pod_json(pod: &CasePod) -> Value {
    let container = |name: &str, container: &CaseContainer| {
        let mut requests = json!({"memory": quantity(container.memory_request)});
        if let Some(cpu) = container.cpu_request {
            requests["cpu"] = json!(quantity(cpu));
        }
        json!({"name": name, "requests": requests})
    };
    json!({
        "name": pod.name, "phase": pod.phase, "deleting": pod.is_deleting, "start": pod.started,
        "ready": pod.ready.map(|(status, since)| json!({"status": status, "since": since})),
        "containers": [container("app", &pod.containers[0]), container("proxy", &pod.containers[1])],
    })
}
