//! Values of metrics that are aggregated from several objects: from the statuses of NodeConfigs, and from the usage of
//! pods.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::common::number_text;
use crate::monitoring::{SourceResult, SourceValue};
use ganglion_api::closed_loop::metric::{
    Aggregate, NodeAggregate, NodeConfigField, ResourceName, ResourceUse, UseUnit,
};
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::facts::NodeName;
use ganglion_core::items::Items;
use ganglion_core::node_values::{fresh, means};
use ganglion_core::quantity;
use ganglion_core::words::kind_of_text;

/// Maximum difference between the time in an answer of Prometheus and the current time. Clocks differ, and servers with
/// its API evaluate up to half a minute in the past; an answer that is older comes from a cache.
const MAX_DIFFERENCE: SignedDuration = SignedDuration::from_mins(5);

/// Returns the value of a query that was evaluated at this time of the server's clock.
pub fn queried(value: String, evaluated: Timestamp, now: Timestamp) -> SourceResult {
    let difference = now.duration_since(evaluated);
    if difference.abs() <= MAX_DIFFERENCE {
        return Ok(value.into());
    }
    let minutes = difference.as_mins().abs();
    let side = if difference.is_positive() { "behind" } else { "ahead of" };
    Err(format!("the time of the answer is {minutes} min {side} the operator's clock: check the server's clock"))
}

/// Node that the source may select.
#[derive(Clone, Debug)]
pub struct SelectableNode<'a> {
    pub name: NodeName,
    pub labels: &'a BTreeMap<String, String>,
    /// Status of its NodeConfig in the namespace that the source names; None if there is no NodeConfig.
    pub status: Option<&'a NodeConfigStatus>,
}

/// Computes the value. Nodes without a fresh value are ignored, except in a sum, which would be too low without them.
/// An error names the first such node by name.
pub fn node_value<'a>(
    source: &NodeConfigField,
    nodes: impl IntoIterator<Item = SelectableNode<'a>>,
    now: Timestamp,
) -> SourceResult {
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for node in nodes.into_iter().filter(|node| means(source, &node.name, node.labels)) {
        match node.status {
            None => problems.push((node.name, "it has no NodeConfig".to_owned())),
            Some(status) => match fresh(Some(status), source.field, now) {
                Ok(value) => values.push(value),
                Err(problem) => problems.push((node.name, problem)),
            },
        }
    }
    let (count, field) = (values.len() as f64, source.field.as_str());
    let of = source.of.unwrap_or_default();
    let first = problems.iter().min();
    let value = match (of, first) {
        (_, None) if values.is_empty() => return Err(no_node_message(source)),
        (NodeAggregate::Count, _) => count,
        (NodeAggregate::Sum, Some((name, problem))) => return Err(format!("{field} of node {name}: {problem}")),
        (_, Some((name, problem))) if values.is_empty() => return Err(format!("{field} of node {name}: {problem}")),
        (NodeAggregate::Sum, None) => values.iter().sum(),
        (NodeAggregate::Mean, _) => values.iter().sum::<f64>() / count,
        (NodeAggregate::Max, _) => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        (NodeAggregate::Min, _) => values.iter().copied().fold(f64::INFINITY, f64::min),
    };
    Ok(number_text(value).0.into())
}

/// Message if the source selects no node.
fn no_node_message(source: &NodeConfigField) -> String {
    match &source.node_name {
        Some(name) => format!("there is no node {name}"),
        None => "no node has the labels of nodeSelector".to_owned(),
    }
}

/// Maximum number of pods of a source.
const PODS: usize = 10_000;

/// The fields of a `PodMetricsList` of metrics.k8s.io that are used here.
#[derive(Default, Deserialize)]
pub struct PodMetricsList {
    /// One item per measured pod.
    #[serde(default)]
    pub items: Items<PodMetrics, PODS>,
}

/// The usage of one pod.
#[derive(Debug, Deserialize)]
pub struct PodMetrics {
    metadata: PodMeta,
    /// The end of the period of the measurement.
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    containers: Vec<ContainerMetrics>,
}

#[derive(Debug, Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    usage: Amounts,
}

/// The fields of a `PodList` that are used here.
#[derive(Default, Deserialize)]
pub struct PodList {
    #[serde(default)]
    pub items: Items<MeasuredPod, PODS>,
}

/// Pod whose requests are compared with its usage.
#[derive(Debug, Deserialize)]
pub struct MeasuredPod {
    metadata: PodMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    name: String,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    resources: Resources,
    #[serde(default)]
    restart_policy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Amounts,
}

/// Whether the pods are needed besides their metrics.
pub fn needs_pods(source: &ResourceUse) -> bool {
    source.unit == Some(UseUnit::Utilization) || source.of == Some(Aggregate::Sum)
}

/// Returns the usage of the pods as one number, with the time of the oldest measurement. Pods without a measurement are
/// ignored, except that a sum needs all of them.
pub fn pod_usage(source: &ResourceUse, used: &PodMetricsList, pods: &PodList) -> Result<SourceValue, String> {
    let of = source.of.unwrap_or_default();
    let count = used.items.count.max(pods.items.count);
    if count > PODS {
        return Err(format!("the source has {count} pods, more than {PODS}"));
    }
    let (used, pods) = (&used.items.kept, &pods.items.kept);
    if of == Aggregate::Sum {
        let measured: HashSet<&str> = used.iter().map(|one| one.metadata.name.as_str()).collect();
        let mut running = pods.iter().filter(|pod| runs(pod)).map(|pod| pod.metadata.name.as_str());
        if let Some(name) = running.find(|name| !measured.contains(name)) {
            return Err(format!("pod {name} is not measured yet"));
        }
    }
    let pods = pods.iter().map(|pod| (pod.metadata.name.as_str(), pod)).collect();
    let mut values = Vec::with_capacity(used.len());
    let mut oldest: Option<Timestamp> = None;
    for one in used {
        values.push(value(source, one, &pods)?);
        let at: Option<Timestamp> = one.timestamp.as_deref().and_then(|at| at.parse().ok());
        oldest = match (oldest, at) {
            (Some(oldest), Some(at)) => Some(at.min(oldest)),
            (oldest, at) => oldest.or(at),
        };
    }
    if values.is_empty() {
        return Err("no pod is measured".to_owned());
    }
    let sum: f64 = values.iter().sum();
    let value = match of {
        #[expect(clippy::cast_precision_loss, reason = "there are not that many pods")]
        Aggregate::Mean => sum / values.len() as f64,
        Aggregate::Sum => sum,
        Aggregate::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Aggregate::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
    };
    Ok(SourceValue { value: value.to_string(), at: oldest })
}

/// Pods by name.
type PodsByName<'a> = HashMap<&'a str, &'a MeasuredPod>;

/// Whether the pod is running and not being deleted.
fn runs(pod: &MeasuredPod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && pod.status.phase.as_deref() == Some("Running")
}

fn value(source: &ResourceUse, used: &PodMetrics, pods: &PodsByName<'_>) -> Result<f64, String> {
    let (name, pod) = (source.resource.as_str(), &used.metadata.name);
    let meant = |container: &str| source.container.as_deref().is_none_or(|only| only == container);
    let mut sum = 0.0;
    let mut any = false;
    for container in used.containers.iter().filter(|container| meant(&container.name)) {
        let text = container.usage.of(source.resource);
        let text = text.ok_or_else(|| format!("{name} of pod {pod} is not measured"))?;
        sum += number(text, || format!("{name} of pod {pod}"))?;
        any = true;
    }
    if !any {
        let container = source.container.as_deref().unwrap_or("that is measured");
        return Err(format!("pod {pod} has no container {container}"));
    }
    match source.unit.unwrap_or_default() {
        UseUnit::Usage => Ok(sum),
        UseUnit::Utilization => Ok(100.0 * sum / requested(source.resource, pod, pods, meant)?),
    }
}

/// Returns the sum of the requests of the selected containers of a pod, including sidecars.
fn requested(
    resource: ResourceName,
    pod: &str,
    pods: &PodsByName<'_>,
    meant: impl Fn(&str) -> bool,
) -> Result<f64, String> {
    let name = resource.as_str();
    let spec = &pods.get(pod).ok_or_else(|| format!("pod {pod} no longer exists"))?.spec;
    let sidecars = spec.init_containers.iter();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut sum = 0.0;
    for container in spec.containers.iter().chain(sidecars).filter(|container| meant(&container.name)) {
        let request = container.resources.requests.of(resource);
        let request = request.ok_or_else(|| format!("pod {pod} requests no {name}"))?;
        sum += number(request, || format!("the request for {name} of pod {pod}"))?;
    }
    if sum > 0.0 { Ok(sum) } else { Err(format!("pod {pod} requests no {name}")) }
}

fn number(text: &str, what: impl Fn() -> String) -> Result<f64, String> {
    quantity::number(text).map_err(|_| format!("{} is {}, not a quantity", what(), kind_of_text(text)))
}

#[cfg(test)]
mod node_tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// Evaluates the source on six nodes: three in row a, of which one is stale; one in row b; one in row c without a
    /// NodeConfig; and a stale one in row d.
    fn found(source: Value) -> Result<String, String> {
        let source: NodeConfigField = serde_json::from_value(source).unwrap();
        let status = |value: &str, stale: bool| -> NodeConfigStatus {
            let mut reading = json!({"value": value});
            if stale {
                reading["stale"] = json!(true);
                reading["problem"] = json!("no answer");
            }
            serde_json::from_value(json!({"validUntil": "2026-01-01T00:00:00Z", "cpu": reading})).unwrap()
        };
        let all = [
            ("a1", "a", Some(status("10", false))),
            ("a2", "a", Some(status("20.5", false))),
            ("a3", "a", Some(status("99", true))),
            ("b1", "b", Some(status("-4", false))),
            ("c1", "c", None),
            ("d1", "d", Some(status("1", true))),
        ];
        let labels = |row: &str| BTreeMap::from([("row".to_owned(), row.to_owned())]);
        let labelled: Vec<_> = all.iter().map(|(name, row, status)| (*name, labels(row), status.as_ref())).collect();
        let nodes = labelled.iter().map(|(name, labels, status)| SelectableNode {
            name: (*name).into(),
            labels,
            status: *status,
        });
        node_value(&source, nodes, Timestamp::UNIX_EPOCH).map(|found| found.value)
    }

    #[rstest]
    #[case(json!({"nodeName": "a2", "field": "cpu"}), Ok("20.5"))]
    #[case(json!({"nodeName": "a3", "field": "cpu"}), Err("cpu of node a3: it is stale: no answer"))]
    #[case(json!({"nodeName": "a2", "field": "power"}), Err("power of node a2: it is not measured"))]
    #[case(json!({"nodeName": "c1", "field": "cpu"}), Err("cpu of node c1: it has no NodeConfig"))]
    #[case(json!({"nodeName": "z", "field": "cpu"}), Err("there is no node z"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu"}), Ok("15.25"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Max"}), Ok("20.5"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Min"}), Ok("10"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Count"}), Ok("2"))]
    #[case(json!({"nodeSelector": {"row": "a"}, "field": "cpu", "of": "Sum"}), Err("cpu of node a3: it is stale: no answer"))]
    #[case(json!({"nodeSelector": {"row": "b"}, "field": "cpu", "of": "Sum"}), Ok("-4"))]
    #[case(json!({"nodeSelector": {"row": "c"}, "field": "cpu", "of": "Count"}), Ok("0"))]
    #[case(json!({"nodeSelector": {"row": "d"}, "field": "cpu"}), Err("cpu of node d1: it is stale: no answer"))]
    #[case(json!({"nodeSelector": {"row": "e"}, "field": "cpu"}), Err("no node has the labels of nodeSelector"))]
    #[case(json!({"nodeSelector": {"row": "e"}, "field": "cpu", "of": "Count"}), Err("no node has the labels of nodeSelector"))]
    fn nodes_become_one_number(#[case] source: Value, #[case] expected: Result<&str, &str>) {
        assert_eq!(found(source).as_deref().map_err(String::as_str), expected);
    }
}

#[cfg(test)]
mod query_tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::victoria_metrics(-30, None)]
    #[case::slow(-40, None)]
    #[case::fast(40, None)]
    #[case::cached(-3600, Some("60 min behind"))]
    #[case::wrong(600, Some("10 min ahead of"))]
    fn a_small_difference_of_clocks_does_not_matter(#[case] seconds: i64, #[case] problem: Option<&str>) {
        let evaluated = Timestamp::from_second(seconds).unwrap();
        match (queried("5".into(), evaluated, Timestamp::UNIX_EPOCH), problem) {
            (Ok(value), None) => {
                assert_eq!((value.value.as_str(), value.at), ("5", None), "its age counts from the query")
            }
            (Err(error), Some(problem)) => assert!(error.contains(problem), "{error}"),
            (found, problem) => panic!("{found:?} instead of {problem:?}"),
        }
    }
}

#[cfg(test)]
mod usage_tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn measured() -> PodMetricsList {
        let pod = |name: &str, at: &str, cpu: &str| {
            json!({"metadata": {"name": name}, "timestamp": at, "window": "15s", "containers": [
                {"name": "app", "usage": {"cpu": cpu, "memory": "64Mi"}},
                {"name": "side", "usage": {"cpu": "50m", "memory": "1Mi"}},
            ]})
        };
        let items = [pod("a", "2026-11-21T10:00:05Z", "250m"), pod("b", "2026-11-21T10:00:00Z", "750000000n")];
        serde_json::from_value(json!({"items": items})).unwrap()
    }

    fn pods(names: &[&str]) -> PodList {
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let pod = |name: &&str| {
            json!({"metadata": {"name": name}, "status": {"phase": "Running"},
                "spec": {"containers": [container("app", "1"), container("side", "500m")]}})
        };
        let items: Vec<Value> = names.iter().map(pod).collect();
        serde_json::from_value(json!({"items": items})).unwrap()
    }

    #[rstest]
    #[case(json!({"resource": "cpu"}), Ok("0.55"))]
    #[case(json!({"resource": "cpu", "container": "app"}), Ok("0.5"))]
    #[case(json!({"resource": "memory", "container": "app", "of": "Max"}), Ok("67108864"))]
    #[case(json!({"resource": "cpu", "container": "app", "of": "Min"}), Ok("0.25"))]
    #[case(json!({"resource": "cpu", "container": "app", "of": "Sum"}), Ok("1"))]
    #[case(json!({"resource": "cpu", "container": "app", "unit": "Utilization"}), Ok("50"))]
    #[case(json!({"resource": "cpu", "unit": "Utilization", "of": "Min"}), Ok("20"))]
    #[case(json!({"resource": "memory", "unit": "Utilization"}), Err("pod a requests no memory"))]
    #[case(json!({"resource": "cpu", "container": "none"}), Err("pod a has no container none"))]
    fn pods_become_one_number(#[case] source: Value, #[case] expected: Result<&str, &str>) {
        let source: ResourceUse = serde_json::from_value(source).unwrap();
        let found = pod_usage(&source, &measured(), &pods(&["a", "b"]));
        assert_eq!(found.as_ref().map(|point| point.value.as_str()).map_err(String::as_str), expected);
        if let Ok(point) = found {
            assert_eq!(point.at, Some("2026-11-21T10:00:00Z".parse().unwrap()), "as old as the oldest");
        }
    }

    #[test]
    fn a_sum_lacks_nobody_and_nothing_is_no_zero() {
        let source = |of| ResourceUse { of: Some(of), ..ResourceUse::default() };
        let all = pods(&["a", "b", "new"]);
        assert_eq!(pod_usage(&source(Aggregate::Sum), &measured(), &all), Err("pod new is not measured yet".into()));
        assert!(pod_usage(&source(Aggregate::Mean), &measured(), &all).is_ok());
        for of in [Aggregate::Sum, Aggregate::Mean, Aggregate::Min, Aggregate::Max] {
            let nobody = pod_usage(&source(of), &PodMetricsList::default(), &PodList::default());
            assert_eq!(nobody, Err("no pod is measured".into()));
        }
        let many = pods(&["a"; PODS + 1]);
        let refused = pod_usage(&source(Aggregate::Mean), &measured(), &many);
        assert_eq!(refused, Err("the source has 10001 pods, more than 10000".into()));
    }
}
