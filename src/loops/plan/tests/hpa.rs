//! A loop beside the HorizontalPodAutoscaler (Kubernetes 1.37) in the same situation. Where the two differ, the case
//! says why: a loop has levels, ladders and a rank instead of one target, and shows people what it does.

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::execution::goal::replicas;
use crate::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceResult, SourceValue};
use crate::sources::{PodList, PodMetricsList, pod_usage};
use crate::tests::bench::{Loop, at, spec};
use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus};
use ganglion_core::conditions::{self, DATA_AVAILABLE};

/// Percent of its request of 1 core that a pod uses; None: it is not measured.
type Use = Option<u32>;

/// A pod, with its phase, or `starting` for a running pod that is not ready yet.
fn pod(name: &str, state: &str, request: Option<&str>) -> Value {
    let phase = if state == "starting" { "Running" } else { state };
    let ready = if state == "starting" { "False" } else { "True" };
    let resources = request.map_or(json!({}), |request| json!({"requests": {"cpu": request}}));
    json!({
        "metadata": {"name": name}, "spec": {"containers": [{"name": "app", "resources": resources}]},
        "status": {"phase": phase, "startTime": at(-60).to_string(), "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": at(-50).to_string()}]},
    })
}

/// Alarms for pods with this use, state and, if set, request.
fn alarms(source: &Value, metric: &Value, pods: &[(Use, &str)], request: Option<&str>) -> String {
    let items: Vec<Value> =
        pods.iter().enumerate().map(|(index, (_, state))| pod(&format!("p{index}"), state, request)).collect();
    let used = pods.iter().enumerate().filter_map(|(index, (used, _))| {
        let cpu = format!("{}m", used.as_ref()? * 10);
        Some(json!({"metadata": {"name": format!("p{index}")}, "timestamp": at(-5).to_string(), "window": "15s",
            "containers": [{"name": "app", "usage": {"cpu": cpu}}]}))
    });
    let used: PodMetricsList = serde_json::from_value(json!({"items": used.collect::<Vec<_>>()})).unwrap();
    let pods: PodList = serde_json::from_value(json!({"items": items})).unwrap();
    let result = pod_usage(&serde_json::from_value(source.clone()).unwrap(), &used, &pods, at(0));
    evaluated(&[(0, result)], source, metric, 0).0
}

/// Message and status of Ready after these answers of the source, at this second.
fn evaluated(answers: &[(i64, SourceResult)], source: &Value, metric: &Value, now: i64) -> (String, String) {
    let mut metric = metric.clone();
    metric["name"] = json!("cpu");
    metric["source"] = json!({"resource": source});
    let spec: MonitoringSpec = serde_json::from_value(json!({"interval": "15s", "metrics": [metric]})).unwrap();
    let rules = MonitoringRules::parse(&spec).unwrap();
    let mut status = MonitoringStatus::default();
    let mut observe = |trigger: ObserveTrigger, now: Timestamp| {
        status = rules.observe(&status, trigger, ObserveContext::of(None, now)).status;
    };
    for (second, result) in answers {
        let values = [("cpu".to_owned(), result.clone())].into();
        observe(ObserveTrigger::Measured(&Measurement { values, ..Measurement::default() }), at(*second));
    }
    observe(ObserveTrigger::Time, at(now));
    let data = conditions::find(&status.conditions, DATA_AVAILABLE).unwrap();
    (status.message.clone().unwrap_or_default(), data.status.clone())
}

fn value(percent: u32, measured: i64) -> SourceResult {
    Ok(SourceValue { at: Some(at(measured)), ..SourceValue::from(percent.to_string()) })
}

const READY: &str = "Running";

/// Missing pods and pods that start. The target of the autoscaler is 50 %; the levels are around it.
#[rstest]
// The autoscaler: missing pods count as 100 % when it would lower, so 5 stay.
#[case::one_of_five_measured(&[(Some(4), READY), (None, READY), (None, READY), (None, READY), (None, READY)], "No Event")]
// The autoscaler: (60 + 100) / 4 = 40 %, 4 stay within rounding. The loop has a level at 40 %.
#[case::low_beside_one_missing(&[(Some(20), READY), (Some(20), READY), (Some(20), READY), (None, READY)], "No Event")]
// The autoscaler: 75 % with the missing pod at 0, so it raises.
#[case::high_beside_one_missing(&[(Some(100), READY), (Some(100), READY), (Some(100), READY), (None, READY)], "High cpu")]
// The autoscaler: 180 / 5 = 36 % with the starting pods at 0; the direction turns, so 5 stay.
#[case::high_beside_starting(&[(Some(90), READY), (Some(90), READY), (Some(0), "starting"), (Some(0), "starting"), (Some(0), "starting")], "No Event")]
// The autoscaler: starting pods are left out when it lowers, so it lowers.
#[case::low_beside_starting(&[(Some(20), READY), (Some(20), READY), (Some(20), READY), (Some(400), "starting"), (Some(400), "starting")], "Low cpu")]
// The autoscaler: pending pods are starting pods.
#[case::pending(&[(Some(60), READY), (None, "Pending"), (None, "Pending")], "No Event")]
// Different: the autoscaler counts a Succeeded pod as missing, and stays at 3. It has ended, and nobody misses it.
#[case::ended(&[(Some(20), READY), (Some(20), READY), (Some(20), READY), (None, "Succeeded"), (None, "Succeeded")], "Low cpu")]
fn missing_pods(#[case] pods: &[(Use, &str)], #[case] expected: &str) {
    let source = json!({"resource": "cpu", "unit": "Utilization"});
    let metric = json!({"low": {"raise": "40"}, "high": {"raise": "50"}});
    assert_eq!(alarms(&source, &metric, pods, Some("1")), expected);
}

/// Same: for a usage in cores, the autoscaler counts a missing pod as its target. A loop counts it as its request, and
/// at least as the level. Different: without a request, nothing is lowered.
#[rstest]
#[case::requests(Some("1"), "No Event")]
#[case::requests_less_than_the_level(Some("100m"), "No Event")]
#[case::no_requests(None, "No Event")]
fn missing_pods_in_cores(#[case] request: Option<&str>, #[case] expected: &str) {
    let pods = [(Some(1), READY), (None, READY), (None, READY), (None, READY), (None, READY)];
    let (source, metric) = (json!({"resource": "cpu"}), json!({"low": {"raise": "200m"}, "high": {"raise": "800m"}}));
    for count in 2..=pods.len() {
        assert_eq!(alarms(&source, &metric, &pods[..count], request), expected, "{count} pods");
    }
    assert_eq!(alarms(&source, &metric, &pods[..1], request), "Low cpu", "all pods are measured");
}

/// Same: the autoscaler counts a missing pod as its target if that is above 100 %.
#[rstest]
#[case::mean("Mean", "120")]
#[case::max("Max", "120")]
#[case::sum("Sum", "300")]
fn missing_pods_below_a_level_above_their_request(#[case] of: &str, #[case] level: &str) {
    let source = json!({"resource": "cpu", "unit": "Utilization", "of": of});
    let pods = [(Some(4), READY), (None, READY), (None, READY)];
    assert_eq!(alarms(&source, &json!({"low": {"raise": level}}), &pods, Some("1")), "No Event");
    let measured = [(Some(4), READY), (Some(4), READY), (Some(4), READY)];
    assert_eq!(alarms(&source, &json!({"low": {"raise": level}}), &measured, Some("1")), "Low cpu");
}

proptest! {
    /// Same: while pods are missing, the alarm Low is raised only if the autoscaler with this level as its target would
    /// remove at least one pod.
    #[test]
    fn missing_pods_lower_only_what_the_autoscaler_lowers(
        used in prop::collection::vec(0..150_u32, 1..6), missing in 1..6_usize, level in 1..200_u32,
    ) {
        let source = json!({"resource": "cpu", "unit": "Utilization"});
        let measured = used.iter().map(|used| (Some(*used), READY));
        let pods: Vec<(Use, &str)> = measured.chain(std::iter::repeat_n((None, READY), missing)).collect();
        let with_missing = used.iter().sum::<u32>() + u32::try_from(missing).unwrap() * level.max(100);
        let is_low = alarms(&source, &json!({"low": {"raise": level.to_string()}}), &pods, Some("1")) == "Low cpu";
        if is_low {
            prop_assert!(with_missing.div_ceil(level) < u32::try_from(pods.len()).unwrap());
        }
    }
}

/// Same: if one of several metrics is unknown, the others may raise and not lower. Different: `policy.lowering:
/// Always`, since a loop may watch metrics that have little to do with each other.
#[rstest]
#[case("WhenKnown", "5", 3)]
#[case("WhenKnown", "95", 4)]
#[case("Always", "5", 2)]
fn one_metric_of_two_is_unknown(#[case] lowering: &str, #[case] cpu: &str, #[case] replicas: i32) {
    let push = json!({"push": {}});
    let scale = |metric: &str, side: &str, by: i32| json!({"when": {"metric": metric, "side": side}, "ladder": [{"scale": {"by": by, "min": 1, "max": 9}}]});
    let mut this = Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [
                {"name": "cpu", "source": push, "low": {"raise": "10"}, "high": {"raise": "90"}},
                {"name": "queue", "source": push, "high": {"raise": "90"}},
            ],
            "policy": {"lowering": lowering},
            "actions": [scale("cpu", "Low", -1), scale("cpu", "High", 1), scale("queue", "High", 1)],
        })),
    );
    this.push(at(0), &[("cpu", cpu)]);
    assert_eq!(this.replicas, replicas);
}

/// Different: at each failed poll, the autoscaler sets ScalingActive=False and starts no new pass. It has no `for`, so
/// a lost poll costs it one pass. A loop would lose the whole time of `for`; its value stands for three polls, and
/// Ready, which tools wait for, changes only then.
#[rstest]
#[case::one_failure(45, "High cpu", "True")]
#[case::too_old(151, "High cpu", "False")]
fn failed_polls(#[case] now: i64, #[case] message: &str, #[case] data: &str) {
    let failed = Err("the API metrics.k8s.io answers 503".to_owned());
    let answers = [(0, value(90, 0)), (15, failed.clone()), (30, failed)];
    let metric = json!({"high": {"raise": "80", "for": "40s"}});
    let found = evaluated(&answers, &json!({"resource": "cpu"}), &metric, now.min(45));
    assert_eq!(found, ("High cpu".to_owned(), "True".to_owned()), "the time of for went on");
    let later = evaluated(&answers, &json!({"resource": "cpu"}), &json!({"high": {"raise": "80"}}), now);
    assert_eq!(later, (message.to_owned(), data.to_owned()));
}

/// Different: the autoscaler never checks the age of a sample, and scales by one of an hour ago. A loop uses a usage of
/// up to 150 s, which metrics-server at a resolution of a minute never exceeds; an older one says nothing about now.
#[rstest]
#[case::a_minute_and_delivery(90, "True")]
#[case::an_hour(3600, "False")]
fn old_samples(#[case] age: i64, #[case] data: &str) {
    let metric = json!({"high": {"raise": "80"}});
    let fresh = (0, value(50, 0));
    let (_, found) = evaluated(&[fresh, (age, value(50, 0))], &json!({"resource": "cpu"}), &metric, age);
    assert_eq!(found, data);
}

/// Different: at 0 replicas the autoscaler rests, since a person uses 0 to switch it off (only a zero of its own
/// wakes). A loop is switched off by `mode: Paused`; a rung that raises and names a min leads there, also from 0.
#[rstest]
#[case(json!({"factor": "3", "min": 2, "max": 9}), Some(2))]
#[case(json!({"by": 1, "min": 2, "max": 9}), Some(2))]
#[case(json!({"by": 1, "max": 9}), Some(1))]
// The autoscaler with only a policy of 100 % stays at 0 for ever; a factor without min says so.
#[case(json!({"factor": "2", "max": 9}), None)]
fn zero_replicas(#[case] scale: Value, #[case] expected: Option<i32>) {
    assert_eq!(replicas(&serde_json::from_value(scale).unwrap(), 0, None).ok(), expected);
}
