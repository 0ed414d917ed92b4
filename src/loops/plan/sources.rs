//! Values of metrics that are aggregated from several objects: from the statuses of NodeConfigs, and from the usage of
//! pods.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::common::{later, number_text};
use crate::monitoring::{SourceResult, SourceValue, ValueRange};
use ganglion_api::closed_loop::metric::{
    Aggregate, NodeAggregate, NodeConfigField, ResourceName, ResourceUse, UseUnit,
};
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::duration;
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
                Ok(value) => values.push((value, sampled_at(status, source))),
                Err(problem) => problems.push((node.name, problem)),
            },
        }
    }
    let (count, field) = (values.len() as f64, source.field.as_str());
    let of = source.of.unwrap_or_default();
    let first = problems.iter().min();
    let times = || values.iter().filter_map(|(_, at)| *at);
    let numbers = || values.iter().map(|(value, _)| *value);
    let (value, measured) = match (of, first) {
        (_, None) if values.is_empty() => return Err(no_node_message(source)),
        (NodeAggregate::Count, _) => (count, times().min()),
        (NodeAggregate::Sum, Some((name, problem))) => return Err(format!("{field} of node {name}: {problem}")),
        (_, Some((name, problem))) if values.is_empty() => return Err(format!("{field} of node {name}: {problem}")),
        (NodeAggregate::Sum, None) => (numbers().sum(), times().min()),
        (NodeAggregate::Mean, _) => (numbers().sum::<f64>() / count, times().min()),
        (NodeAggregate::Max, _) => extreme(values.iter().max_by(|one, other| one.0.total_cmp(&other.0))),
        (NodeAggregate::Min, _) => extreme(values.iter().min_by(|one, other| one.0.total_cmp(&other.0))),
    };
    Ok(SourceValue { measured, ..SourceValue::from(number_text(value).0) })
}

/// When the value of the node was measured. A later measurement that differs by less than the deadband is not written
/// before the heartbeat, so the value counts as measured at this time until then.
fn sampled_at(status: &NodeConfigStatus, source: &NodeConfigField) -> Option<Timestamp> {
    status.reading(source.field)?.sampled_at.as_ref().map(|at| at.0)
}

fn extreme(value: Option<&(f64, Option<Timestamp>)>) -> (f64, Option<Timestamp>) {
    value.copied().unwrap_or((0.0, None))
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
    /// Length of that period.
    #[serde(default)]
    window: Option<String>,
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

/// Pod that the source selects.
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
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    start_time: Option<String>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<PodReadiness>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodReadiness {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    last_transition_time: Option<String>,
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

/// Time after the start of a pod in which its cpu usage counts only if the pod is ready for a whole period of
/// measurement, as in a HorizontalPodAutoscaler: programs that start use more than later.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);

/// Time after the start of a pod in which a condition Ready that turned False was not True before.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// How a pod counts, as in a HorizontalPodAutoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PodUse {
    /// Its usage.
    Measured(f64),
    /// It is starting: it uses nothing for the alarm High, and is left out for the alarm Low.
    Starting,
    /// It is not measured: it uses nothing for the alarm High, and this for the alarm Low. None: it requests nothing.
    Missing(Option<f64>),
}

/// Returns the usage of the pods as one number, with the time of the oldest measurement. If pods are not measured, or
/// are not ready yet, the range says what the number may be with them.
pub fn pod_usage(source: &ResourceUse, used: &PodMetricsList, pods: &PodList, now: Timestamp) -> SourceResult {
    let count = used.items.count.max(pods.items.count);
    if count > PODS {
        return Err(format!("the source has {count} pods, more than {PODS}"));
    }
    let metrics: HashMap<&str, &PodMetrics> =
        used.items.kept.iter().map(|metrics| (metrics.metadata.name.as_str(), metrics)).collect();
    let (mut measured, mut requests, mut starting) = (Vec::new(), Vec::new(), 0);
    let mut oldest: Option<Timestamp> = None;
    for pod in pods.items.kept.iter().filter(|pod| counts(pod)) {
        let metrics = metrics.get(pod.metadata.name.as_str()).copied();
        match pod_use(source, pod, metrics, now)? {
            PodUse::Measured(usage) => {
                measured.push(usage);
                oldest = [oldest, metrics.and_then(PodMetrics::measured_at)].into_iter().flatten().min();
            }
            PodUse::Starting => starting += 1,
            PodUse::Missing(request) => requests.push(request),
        }
    }
    if measured.is_empty() {
        let none = if starting > 0 { "no pod that is ready is measured" } else { "no pod is measured" };
        return Err(none.to_owned());
    }
    let of = source.of.unwrap_or_default();
    let value = aggregated(of, &measured);
    let missing = requests.len() + starting;
    let range = (missing > 0).then(|| ValueRange {
        least: aggregated(of, &[measured.as_slice(), &vec![0.0; missing]].concat()).to_string(),
        ..upper_limit(of, &measured, requests)
    });
    Ok(SourceValue { at: oldest, range, ..SourceValue::from(value.to_string()) })
}

/// Returns the upper limit of the value if these pods use what they request. A mean is that over one pod fewer:
/// otherwise one pod after the other would be removed although the others have no room for its load.
fn upper_limit(of: Aggregate, measured: &[f64], requests: Vec<Option<f64>>) -> ValueRange {
    let value = aggregated(of, measured);
    let Some(requests) = requests.into_iter().collect::<Option<Vec<f64>>>() else { return ValueRange::default() };
    let all = [measured, &requests].concat();
    let most = match of {
        Aggregate::Mean if !requests.is_empty() => {
            aggregated(Aggregate::Sum, &all) / all.len().saturating_sub(1).max(1) as f64
        }
        Aggregate::Mean | Aggregate::Sum | Aggregate::Max | Aggregate::Min => aggregated(of, &all),
    };
    // The smallest usage is at most that of a measured pod, whatever the others use.
    let request = requests.into_iter().reduce(f64::min).filter(|_| of != Aggregate::Min);
    ValueRange {
        most: Some(most.max(value).to_string()),
        missing_request: request.map(|request| request.to_string()),
        ..ValueRange::default()
    }
}

fn aggregated(of: Aggregate, values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    match of {
        #[expect(clippy::cast_precision_loss, reason = "there are not that many pods")]
        Aggregate::Mean => sum / values.len() as f64,
        Aggregate::Sum => sum,
        Aggregate::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Aggregate::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
    }
}

/// Whether the pod counts at all: it neither has ended nor is being deleted.
fn counts(pod: &MeasuredPod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !matches!(pod.status.phase.as_deref(), Some("Failed" | "Succeeded"))
}

fn pod_use(
    source: &ResourceUse,
    pod: &MeasuredPod,
    metrics: Option<&PodMetrics>,
    now: Timestamp,
) -> Result<PodUse, String> {
    if pod.status.phase.as_deref() == Some("Pending") {
        return Ok(PodUse::Starting);
    }
    let requests = pod.requested(source)?;
    let unit = source.unit.unwrap_or_default();
    let usage = match metrics {
        Some(metrics) => metrics.usage(source, pod)?,
        None => None,
    };
    let (Some(metrics), Some(usage)) = (metrics, usage) else {
        return Ok(PodUse::Missing(match unit {
            UseUnit::Usage => requests,
            UseUnit::Utilization => Some(100.0),
        }));
    };
    if source.resource == ResourceName::Cpu && pod.is_starting(metrics, now) {
        return Ok(PodUse::Starting);
    }
    match (unit, requests) {
        (UseUnit::Usage, _) => Ok(PodUse::Measured(usage)),
        (UseUnit::Utilization, Some(requests)) => Ok(PodUse::Measured(100.0 * usage / requests)),
        (UseUnit::Utilization, None) => {
            Err(format!("pod {} requests no {}", pod.metadata.name, source.resource.as_str()))
        }
    }
}

impl PodMetrics {
    fn measured_at(&self) -> Option<Timestamp> {
        self.timestamp.as_deref()?.parse().ok()
    }

    /// Returns the usage of the selected containers; None if one of them is not measured.
    fn usage(&self, source: &ResourceUse, pod: &MeasuredPod) -> Result<Option<f64>, String> {
        let (resource, name) = (source.resource.as_str(), &pod.metadata.name);
        let mut sum = 0.0;
        for container in pod.selected(source) {
            let mut measured = self.containers.iter();
            let Some(metrics) = measured.find(|metrics| metrics.name == container.name) else { return Ok(None) };
            let Some(usage) = metrics.usage.of(source.resource) else { return Ok(None) };
            sum += number(usage, || format!("{resource} of pod {name}"))?;
        }
        Ok(Some(sum))
    }
}

impl MeasuredPod {
    /// Returns the containers that the source selects, including sidecars.
    fn selected<'a>(&'a self, source: &'a ResourceUse) -> impl Iterator<Item = &'a Container> {
        let sidecars = self.spec.init_containers.iter();
        let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
        let all = self.spec.containers.iter().chain(sidecars);
        all.filter(|container| source.container.as_ref().is_none_or(|only| *only == container.name))
    }

    /// Returns the sum of the requests of the selected containers; None if one of them requests nothing.
    fn requested(&self, source: &ResourceUse) -> Result<Option<f64>, String> {
        let (resource, name) = (source.resource.as_str(), &self.metadata.name);
        let (mut sum, mut any) = (0.0, false);
        let mut is_complete = true;
        for container in self.selected(source) {
            any = true;
            match container.resources.requests.of(source.resource) {
                Some(request) => sum += number(request, || format!("the request for {resource} of pod {name}"))?,
                None => is_complete = false,
            }
        }
        if !any {
            return Err(format!("pod {name} has no container {}", source.container.as_deref().unwrap_or_default()));
        }
        Ok((is_complete && sum > 0.0).then_some(sum))
    }

    /// Whether the measured cpu usage may be that of a program that starts.
    fn is_starting(&self, metrics: &PodMetrics, now: Timestamp) -> bool {
        let time = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
        let ready = self.status.conditions.iter().find(|condition| condition.kind == "Ready");
        let (Some(ready), Some(started)) = (ready, time(&self.status.start_time)) else { return true };
        let changed = time(&ready.last_transition_time).unwrap_or(Timestamp::MIN);
        let is_ready = ready.status != "False";
        if later(started, CPU_INITIALIZATION) > now {
            let window = metrics.window.as_deref().and_then(|window| duration::parse(window).ok()).unwrap_or_default();
            let since = metrics.measured_at().unwrap_or(now);
            !is_ready || since < later(changed, window)
        } else {
            !is_ready && later(started, INITIAL_READINESS) > changed
        }
    }
}

fn number(text: &str, what: impl Fn() -> String) -> Result<f64, String> {
    quantity::number(text).map_err(|_| format!("{} is {}, not a quantity", what(), kind_of_text(text)))
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

    const NOW: &str = "2026-11-21T10:00:10Z";

    fn measured() -> PodMetricsList {
        let items = [pod_metrics("a", "10:00:05", "250m"), pod_metrics("b", "10:00:00", "750000000n")];
        serde_json::from_value(json!({"items": items})).unwrap()
    }

    /// Usage of a pod: cpu of the container app, 50m of the container side.
    fn pod_metrics(name: &str, at: &str, cpu: &str) -> Value {
        let at = format!("2026-11-21T{at}Z");
        json!({"metadata": {"name": name}, "timestamp": at, "window": "15s", "containers": [
            {"name": "app", "usage": {"cpu": cpu, "memory": "64Mi"}},
            {"name": "side", "usage": {"cpu": "50m", "memory": "1Mi"}},
        ]})
    }

    /// A pod that has been ready for an hour.
    fn pod(name: &str) -> Value {
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        json!({"metadata": {"name": name}, "spec": {"containers": [container("app", "1"), container("side", "500m")]},
            "status": {"phase": "Running", "startTime": "2026-11-21T09:00:00Z", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T09:00:05Z"}]}})
    }

    fn list<T: serde::de::DeserializeOwned>(items: &[Value]) -> T {
        serde_json::from_value(json!({"items": items})).unwrap()
    }

    fn pods(names: &[&str]) -> PodList {
        list(&names.iter().map(|name| pod(name)).collect::<Vec<_>>())
    }

    fn usage(source: Value, used: &PodMetricsList, pods: &PodList) -> SourceResult {
        pod_usage(&serde_json::from_value(source).unwrap(), used, pods, NOW.parse().unwrap())
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
        let found = usage(source, &measured(), &pods(&["a", "b"]));
        assert_eq!(found.as_ref().map(|point| point.value.as_str()).map_err(String::as_str), expected);
        if let Ok(point) = found {
            assert_eq!(point.at, Some("2026-11-21T10:00:00Z".parse().unwrap()), "as old as the oldest");
            assert_eq!(point.range, None, "all pods are measured");
        }
    }

    /// Value, value if the others use nothing, value if they use what they request.
    type Expected<'a> = (&'a str, &'a str, Option<&'a str>);

    /// Two pods use 0.25 and 0.75 cores, three others are not measured; each requests 1 core.
    #[rstest]
    #[case("Usage", "Mean", ("0.5", "0.2", Some("1")))]
    #[case("Usage", "Sum", ("1", "1", Some("4")))]
    #[case("Usage", "Max", ("0.75", "0.75", Some("1")))]
    #[case("Usage", "Min", ("0.25", "0", Some("0.25")))]
    #[case("Utilization", "Mean", ("50", "20", Some("100")))]
    fn missing_pods_use_nothing_or_what_they_request(#[case] unit: &str, #[case] of: &str, #[case] expected: Expected) {
        let source = json!({"resource": "cpu", "container": "app", "unit": unit, "of": of});
        let found = usage(source, &measured(), &pods(&["a", "b", "c", "d", "e"])).unwrap();
        let range = found.range.unwrap();
        assert_eq!((found.value.as_str(), range.least.as_str(), range.most.as_deref()), expected);
    }

    #[test]
    fn a_missing_pod_without_a_request_may_use_any_amount() {
        let found = usage(json!({"resource": "memory"}), &measured(), &pods(&["a", "b", "c"])).unwrap();
        assert_eq!(found.range.unwrap().most, None);
    }

    /// A measured pod may use more than it requests; a missing one then does not make the value smaller.
    #[test]
    fn a_missing_pod_does_not_lower_the_largest_value() {
        let used = list(&[pod_metrics("a", "10:00:00", "3")]);
        let source = json!({"resource": "cpu", "container": "app"});
        assert_eq!(usage(source, &used, &pods(&["a", "b", "c"])).unwrap().range.unwrap().most.as_deref(), Some("3"));
        let source = json!({"resource": "cpu", "container": "app", "of": "Max"});
        assert_eq!(usage(source, &used, &pods(&["a", "b"])).unwrap().range.unwrap().most.as_deref(), Some("3"));
    }

    #[rstest]
    #[case::pending(json!({"phase": "Pending"}), true)]
    #[case::no_condition(json!({"phase": "Running", "startTime": "2026-11-21T09:59:00Z"}), true)]
    #[case::never_ready(ready("09:59:00", "False", "09:59:00"), true)]
    #[case::ready_within_the_window(ready("09:59:00", "True", "09:59:50"), true)]
    #[case::ready_for_a_window(ready("09:59:00", "True", "09:59:30"), false)]
    #[case::never_ready_for_long(ready("09:00:00", "False", "09:00:01"), true)]
    #[case::not_ready_any_more(ready("09:00:00", "False", "09:30:00"), false)]
    #[case::ready(ready("09:00:00", "True", "09:00:10"), false)]
    fn a_pod_that_starts_does_not_raise(#[case] status: Value, #[case] starts: bool) {
        let used = list(&[pod_metrics("a", "10:00:00", "250m"), pod_metrics("new", "10:00:00", "4")]);
        let new = |source: &str| {
            let mut new = pod("new");
            new["status"] = status.clone();
            let pods = list(&[pod("a"), new]);
            usage(json!({"resource": source, "container": "app"}), &used, &pods).unwrap()
        };
        let expected = if starts { ("0.25", Some(("0.125", Some("0.25")))) } else { ("2.125", None) };
        let found = new("cpu");
        let range = found.range.as_ref().map(|range| (range.least.as_str(), range.most.as_deref()));
        assert_eq!((found.value.as_str(), range), expected);
        let is_pending = status["phase"] == "Pending";
        assert_eq!(new("memory").range.is_some(), is_pending, "a pod that starts needs its memory");
    }

    fn ready(started: &str, status: &str, changed: &str) -> Value {
        let time = |time: &str| format!("2026-11-21T{time}Z");
        json!({"phase": "Running", "startTime": time(started), "conditions": [
            {"type": "Ready", "status": status, "lastTransitionTime": time(changed)}]})
    }

    #[rstest]
    #[case("Failed", false)]
    #[case("Succeeded", false)]
    #[case("Running", true)]
    fn pods_that_have_ended_do_not_count(#[case] phase: &str, #[case] count: bool) {
        let mut ended = pod("c");
        ended["status"]["phase"] = json!(phase);
        let found =
            usage(json!({"resource": "cpu"}), &measured(), &list(&[pod("a"), pod("b"), ended.clone()])).unwrap();
        assert_eq!(found.range.is_some(), count);
        ended["status"]["phase"] = json!("Running");
        ended["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
        let found = usage(json!({"resource": "cpu"}), &measured(), &list(&[pod("a"), pod("b"), ended])).unwrap();
        assert_eq!(found.range, None, "it is being deleted");
    }

    #[test]
    fn a_pod_is_measured_only_with_all_its_containers() {
        let mut half = pod_metrics("b", "10:00:00", "9");
        half["containers"].as_array_mut().unwrap().pop();
        let found =
            usage(json!({"resource": "cpu"}), &list(&[pod_metrics("a", "10:00:00", "250m"), half]), &pods(&["a", "b"]));
        assert_eq!(found.map(|found| (found.value, found.range.is_some())), Ok(("0.3".to_owned(), true)));
    }

    #[test]
    fn nothing_is_no_zero() {
        for of in ["Sum", "Mean", "Min", "Max"] {
            let source = json!({"resource": "cpu", "of": of});
            for nobody in [PodList::default(), pods(&["c"])] {
                assert_eq!(usage(source.clone(), &measured(), &nobody), Err("no pod is measured".into()));
            }
        }
        let refused = usage(json!({"resource": "cpu"}), &measured(), &pods(&["a"; PODS + 1]));
        assert_eq!(refused, Err("the source has 10001 pods, more than 10000".into()));
    }
}
