//! Tests of formulas over metrics. The ids, such as M3, are those of the cases of autoscaling.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::monitoring::formula::{current_replicas, is_changing, replica_resource};
use crate::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceValue, ValueRange};
use crate::tests::bench::{Loop, at, sample, spec};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_api::monitoring::{MonitoringSpec, MonitoringStatus, Reading};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

fn formula(expression: &str) -> Value {
    json!({"formula": {"expression": expression}})
}

/// Monitoring of pushed metrics `a`, `b` and `c`, of `cpu` from metrics.k8s.io, and of `load`, the formula.
fn monitoring(expression: &str, changes: &[(&str, Value)]) -> MonitoringSpec {
    let mut metrics = vec![json!({"name": "load", "source": formula(expression), "high": {"raise": "1000"}})];
    for name in ["a", "b", "c"] {
        metrics.push(json!({"name": name, "source": {"push": {}}, "high": {"raise": "1000"}}));
    }
    metrics.push(json!({"name": "cpu", "source": {"resource": {"resource": "cpu"}}, "high": {"raise": "1000"}}));
    for (name, fields) in changes {
        let index = metrics.iter().position(|metric| metric["name"] == *name);
        let metric = match index {
            Some(index) => &mut metrics[index],
            None => {
                metrics.push(json!({"name": name}));
                metrics.last_mut().unwrap()
            }
        };
        for (key, value) in fields.as_object().unwrap() {
            metric[key] = value.clone();
        }
    }
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    serde_json::from_value(json!({"interval": "15s", "target": target, "metrics": metrics})).unwrap()
}

struct Bench {
    rules: MonitoringRules,
    status: MonitoringStatus,
    replicas: Result<i32, &'static str>,
}

impl Bench {
    fn new(expression: &str, changes: &[(&str, Value)]) -> Self {
        let rules = MonitoringRules::parse(&monitoring(expression, changes)).unwrap();
        Self { rules, status: MonitoringStatus::default(), replicas: Ok(2) }
    }

    fn apply(&mut self, second: i64, trigger: ObserveTrigger) {
        let context = ObserveContext { replicas: self.replicas, ..ObserveContext::of(None, at(second)) };
        self.status = self.rules.observe(&self.status, trigger, context).status;
    }

    fn push(&mut self, second: i64, values: &[(&str, &str)]) {
        let measured = self.rules.pushed(&sample(at(second), values), at(second));
        self.apply(second, ObserveTrigger::Measured(&measured));
    }

    fn poll(&mut self, second: i64, metric: &str, value: SourceValue) {
        let values = [(metric.to_owned(), Ok(value))].into();
        self.apply(second, ObserveTrigger::Measured(&Measurement { values, ..Measurement::default() }));
    }

    fn wait(&mut self, second: i64) {
        self.apply(second, ObserveTrigger::Time);
    }

    fn reading(&self) -> &Reading {
        self.status.values.iter().find(|reading| reading.metric == "load").unwrap()
    }

    /// Value of the formula, or why it has none.
    fn load(&self) -> Result<&str, &str> {
        match self.status.unknown.iter().find(|unknown| unknown.metric == "load") {
            Some(unknown) => Err(&unknown.message),
            None => Ok(self.reading().value.as_str()),
        }
    }
}

/// Value of the formula on one sample.
fn load(expression: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut bench = Bench::new(expression, &[]);
    bench.push(0, values);
    bench.load().map(str::to_owned).map_err(str::to_owned)
}

const UNKNOWN_A: Result<&str, &str> = Err("its operand a is unknown");

#[rstest]
#[case::m1_empty("a + b", &[("a", ""), ("b", "2")], UNKNOWN_A)]
#[case::m1_null("a + b", &[("a", "null"), ("b", "2")], UNKNOWN_A)]
#[case::m2_nan("a + b", &[("a", "NaN"), ("b", "2")], UNKNOWN_A)]
#[case::m2_zero_by_zero("a / b", &[("a", "0"), ("b", "0")], Err("the result is not a finite number (a 0, b 0)"))]
#[case::m2_infinite("a / b", &[("a", "5"), ("b", "0")], Err("the result is not a finite number (a 5, b 0)"))]
#[case::m2_negative("a - b", &[("a", "2"), ("b", "5")], Ok("-3"))]
#[case::m3_first("coalesce(a, b, 8)", &[("a", "1"), ("b", "2")], Ok("1"))]
#[case::m3_second("coalesce(a, b, 8)", &[("b", "2")], Ok("2"))]
#[case::m3_default("coalesce(a, b, 8)", &[("c", "1")], Ok("8"))]
#[case::m3_without_default("max(a, b)", &[("b", "2")], UNKNOWN_A)]
#[case::m10("(a + b) / 2", &[("c", "1")], UNKNOWN_A)]
#[case::doubles("a / b", &[("a", "5"), ("b", "2")], Ok("2.5"))]
#[case::replicas("a / replicas", &[("a", "5")], Ok("2.5"))]
#[case::quantities("a / b", &[("a", "512Mi"), ("b", "1Gi")], Ok("0.5"))]
#[case::small("a / 25000", &[("a", "10")], Ok("0.0004"))]
#[case::digits("a + b", &[("a", "0.1"), ("b", "0.2")], Ok("0.3"))]
#[case::large("a * 1e90 * 1e90", &[("a", "1")], Err("the number is too large"))]
fn a_formula_has_a_value_or_a_reason(
    #[case] expression: &str,
    #[case] values: &[(&str, &str)],
    #[case] expected: Result<&str, &str>,
) {
    assert_eq!(load(expression, values), expected.map(str::to_owned).map_err(str::to_owned));
}

#[test]
fn m4_values_that_are_assumed_count_once() {
    let assume = |value: &str| json!({"missing": {"after": "30s", "then": "Assume", "value": value}});
    let mut bench = Bench::new("max(a, b)", &[("a", assume("12")), ("b", assume("7"))]);
    bench.push(0, &[("c", "1")]);
    assert_eq!(bench.load(), UNKNOWN_A);
    bench.wait(31);
    assert_eq!((bench.load(), bench.reading().assumed_operand.as_deref()), (Ok("12"), Some("a")));
    assert_eq!(bench.reading().measured_at, Some(MicroTime(at(0))), "it is one measurement, since it is missing");
    bench.push(40, &[("a", "3"), ("b", "2")]);
    assert_eq!((bench.load(), &bench.reading().assumed_operand), (Ok("3"), &None));
}

#[rstest]
#[case("0", "70")]
#[case("5", "5")]
fn m6_usage_of_pods_is_an_operand(#[case] over: &str, #[case] expected: &str) {
    let mut bench = Bench::new("a > 0 ? a : cpu", &[]);
    bench.push(0, &[("a", over)]);
    assert_eq!(bench.load(), Err("no value has been received yet"));
    bench.poll(1, "cpu", SourceValue { at: Some(at(-40)), ..SourceValue::from("70".to_owned()) });
    assert_eq!((bench.load(), bench.reading().at.0), (Ok(expected), at(-40)));
}

#[test]
fn m7_an_operand_that_has_not_answered_is_no_number() {
    let mut bench = Bench::new("a + cpu", &[]);
    bench.push(0, &[("a", "1")]);
    assert_eq!(bench.load(), Err("no value has been received yet"));
    let values = [("cpu".to_owned(), Err("connection refused".to_owned()))].into();
    bench.apply(1, ObserveTrigger::Measured(&Measurement { values, ..Measurement::default() }));
    assert_eq!(bench.load(), Err("its operand cpu is unknown"));
}

#[test]
fn a_partial_operand_stays_partial() {
    let partial = |most: Option<&str>, request: Option<&str>| SourceValue {
        range: Some(ValueRange {
            least: "20".to_owned(),
            most: most.map(str::to_owned),
            missing_request: request.map(str::to_owned),
        }),
        ..SourceValue::from("40".to_owned())
    };
    let range = |expression: &str, value: SourceValue| {
        let mut bench = Bench::new(expression, &[("load", json!({"high": {"raise": "70"}}))]);
        bench.push(0, &[("a", "1"), ("b", "1"), ("c", "1")]);
        bench.poll(1, "cpu", value);
        let text = |number: &Option<ganglion_api::scalars::Number>| number.as_ref().map(|one| one.as_str().to_owned());
        bench
            .load()
            .map(|value| (value.to_owned(), text(&bench.reading().at_least), text(&bench.reading().at_most)))
            .map_err(str::to_owned)
    };
    let found = |value: &str, least: &str, most: Option<&str>| {
        Ok((value.to_owned(), Some(least.to_owned()), most.map(str::to_owned)))
    };
    assert_eq!(range("cpu * 2", partial(Some("60"), None)), found("80", "40", Some("120")));
    assert_eq!(range("100 - cpu", partial(Some("60"), None)), found("60", "40", Some("80")));
    assert_eq!(range("cpu * 2", partial(Some("60"), Some("5"))), found("80", "40", None));
    let why = "cpu is partial: the result has no lower limit";
    assert_eq!(range("100 - cpu", partial(None, None)), Err(why.to_owned()));
    let why = "cpu is partial: the result depends on the pods that are not measured";
    assert_eq!(range("cpu > 30 ? 100 : 0", partial(Some("60"), None)), Err(why.to_owned()));
    let mut bench = Bench::new("cpu * 2", &[("load", json!({"high": {"raise": "70"}}))]);
    bench.poll(1, "cpu", partial(Some("60"), None));
    assert!(bench.status.alarms.is_empty(), "80 is above 70, and may be 40");
}

#[test]
fn a_value_is_as_old_as_its_oldest_operand_and_as_fresh_as_each() {
    let mut bench = Bench::new("a + cpu", &[]);
    bench.poll(0, "cpu", SourceValue { at: Some(at(-60)), ..SourceValue::from("1".to_owned()) });
    bench.push(10, &[("a", "1"), ("b", "1"), ("c", "1")]);
    assert_eq!((bench.load(), bench.reading().at.0), (Ok("2"), at(-60)));
    bench.poll(20, "cpu", SourceValue { at: Some(at(15)), ..SourceValue::from("2".to_owned()) });
    assert_eq!((bench.load(), bench.reading().at.0), (Ok("3"), at(10)));
    // The pushed operand expires after 150 s, the other one 5 s later.
    bench.wait(160);
    assert_eq!(bench.load(), Ok("3"));
    bench.wait(161);
    assert_eq!(bench.load(), UNKNOWN_A);
}

#[test]
fn a_formula_may_have_a_shorter_age_than_its_operands() {
    let mut bench = Bench::new("a + b", &[("load", json!({"missing": {"after": "20s"}}))]);
    bench.push(0, &[("a", "1"), ("b", "1"), ("c", "1")]);
    bench.wait(20);
    assert_eq!(bench.load(), Ok("2"));
    bench.wait(21);
    assert_eq!(bench.load(), Err("the last value is too old"));
    let since = |bench: &Bench| bench.status.unknown.iter().find(|one| one.metric == "load").unwrap().since.clone();
    let first = since(&bench);
    bench.wait(50);
    assert_eq!(since(&bench), first, "it is unknown since then");
}

#[test]
fn an_operand_whose_source_has_failed_holds_the_alarm() {
    let mut bench = Bench::new("a + cpu", &[("load", json!({"high": {"raise": "1"}}))]);
    bench.push(0, &[("a", "1"), ("b", "1"), ("c", "1")]);
    bench.poll(0, "cpu", "1".to_owned().into());
    assert_eq!((bench.status.message.as_deref(), bench.status.alarms[0].held), (Some("High load"), false));
    let values = [("cpu".to_owned(), Err("503".to_owned()))].into();
    bench.apply(10, ObserveTrigger::Measured(&Measurement { values, ..Measurement::default() }));
    assert_eq!((bench.load(), bench.status.alarms[0].held), (Ok("2"), true));
    assert_eq!(bench.reading().problem.as_deref(), Some("503"));
}

#[test]
fn formulas_may_use_formulas_in_any_order() {
    let changes = [("twice", json!({"source": formula("a * 2")})), ("sum", json!({"source": formula("twice + b")}))];
    let mut bench = Bench::new("sum * 10", &changes);
    bench.push(0, &[("a", "1"), ("b", "3"), ("c", "1")]);
    assert_eq!(bench.load(), Ok("50"));
    bench.push(1, &[("b", "3"), ("c", "1")]);
    bench.wait(152);
    assert_eq!(bench.load(), Err("its operand sum is unknown"));
}

#[test]
fn a_restart_computes_the_same() {
    let mut bench = Bench::new("a / b", &[]);
    bench.push(0, &[("a", "5"), ("b", "2"), ("c", "1")]);
    let stored: MonitoringStatus = serde_json::from_value(serde_json::to_value(&bench.status).unwrap()).unwrap();
    let mut other = Bench { status: stored, ..Bench::new("a / b", &[]) };
    other.wait(1);
    bench.wait(1);
    assert_eq!(other.status.values, bench.status.values);
}

#[rstest]
#[case("a +", "metrics[load].source.formula.expression: syntax error")]
#[case("1 + 2", "without an operand")]
#[case("a + requets", "\"requets\" is no metric of this loop: known are load, a, b, c, cpu, and the fact replicas")]
#[case("load + a", "these formulas use each other: load → load")]
#[case("a % 2", "formulas have + - * / ?:")]
fn a_formula_that_cannot_work_is_refused(#[case] expression: &str, #[case] words: &str) {
    let error = MonitoringRules::parse(&monitoring(expression, &[])).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_circle_is_named() {
    let changes = [
        ("x", json!({"source": formula("load + y")})),
        ("y", json!({"source": formula("z")})),
        ("z", json!({"source": formula("a + x")})),
    ];
    let error = MonitoringRules::parse(&monitoring("a + b", &changes[1..])).unwrap_err();
    assert!(error.to_string().contains("\"x\" is no metric"), "{error}");
    let error = MonitoringRules::parse(&monitoring("a + b", &changes)).unwrap_err();
    assert!(error.to_string().contains("these formulas use each other: x → y → z → x"), "{error}");
}

#[test]
fn an_operand_needs_no_level_and_any_other_metric_does() {
    let changes = [("requests", json!({"source": {"push": {}}}))];
    assert!(MonitoringRules::parse(&monitoring("requests / replicas", &changes)).is_ok());
    let error = MonitoringRules::parse(&monitoring("a / replicas", &changes)).unwrap_err().to_string();
    assert!(
        error.starts_with("metrics[requests]: it raises no alarm, and no formula or action on side Target uses it"),
        "{error}"
    );
}

#[rstest]
#[case("apps/v1", "Deployment", true)]
#[case("apps/v1", "StatefulSet", true)]
#[case("apps/v1", "ReplicaSet", true)]
#[case("ganglion.dev/v1alpha1", "SwarmPool", true)]
#[case("apps/v1", "DaemonSet", false)]
#[case("example.com/v1", "Deployment", false)]
fn replicas_are_known_of_some_kinds(#[case] api_version: &str, #[case] kind: &str, #[case] known: bool) {
    let target = TargetRef { api_version: api_version.into(), kind: kind.into(), name: "web".into() };
    assert_eq!(replica_resource(&target).is_some(), known);
    let mut spec = monitoring("a / replicas", &[]);
    spec.target = Some(target);
    let parsed = MonitoringRules::parse(&spec);
    assert_eq!(parsed.is_ok(), known);
    let words = format!("the target's kind is {kind}: add a metric with a source object");
    assert!(parsed.is_ok() || parsed.unwrap_err().to_string().contains(&words));
    // A metric may have the name, whatever the target is.
    spec.metrics[1].name = "replicas".to_owned();
    spec.metrics[2].name = "a".to_owned();
    let rules = MonitoringRules::parse(&spec).unwrap();
    assert!(!rules.reads_replicas());
}

#[test]
fn replicas_are_not_those_of_before_the_last_change() {
    let status = |state, before: &str, after: &str, since: i64| ExecutionStatus {
        state: Some(state),
        before: Some(before.to_owned()),
        after: Some(after.to_owned()),
        since: Some(MicroTime(at(since))),
        ..ExecutionStatus::default()
    };
    let done = status(ExecutionState::Done, "2", "3", 0);
    assert_eq!(current_replicas(None, None, at(1)), Err("the target does not exist"));
    assert_eq!(current_replicas(Some(2), None, at(1)), Ok(2));
    assert!(current_replicas(Some(2), Some(&done), at(1)).is_err(), "the caches are behind");
    assert_eq!(current_replicas(Some(3), Some(&done), at(1)), Ok(3));
    assert_eq!(current_replicas(Some(9), Some(&done), at(1)), Ok(9), "somebody else has changed it since");
    assert_eq!(current_replicas(Some(2), Some(&done), at(11)), Ok(2), "somebody else has reverted it");
    assert_eq!([1, 11].map(|second| is_changing(&done, at(second))), [true, false]);
    let failed = status(ExecutionState::Failed, "2", "3", 0);
    assert!(!is_changing(&failed, at(1)), "it has changed nothing");
    assert_eq!(current_replicas(Some(2), Some(&failed), at(1)), Ok(2));
}

/// A loop that adds a replica while each has more than 50 requests.
fn scaled_by_share() -> Loop {
    let mut this = Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [
                {"name": "requests", "source": {"push": {}}},
                {"name": "share", "source": formula("requests / replicas"),
                 "high": {"raise": "50"}, "low": {"raise": "10"}},
            ],
            "actions": [
                {"when": {"metric": "share", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]},
                {"when": {"metric": "share", "side": "Low"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
            ],
        })),
    );
    this.replicas = 2;
    this
}

#[test]
fn one_sample_leads_to_one_action_although_the_replicas_change() {
    let mut this = scaled_by_share();
    this.push(at(0), &[("requests", "1000")]);
    assert_eq!(this.replicas, 3);
    for second in 1..140 {
        this.wait(at(second));
    }
    assert_eq!(this.replicas, 3, "the sample is of before the change");
    this.push(at(141), &[("requests", "1000")]);
    assert_eq!(this.replicas, 4);
    this.push(at(150), &[("requests", "120")]);
    assert_eq!((this.replicas, this.monitoring.message.as_deref()), (4, Some("No Event")));
}

#[test]
fn an_unknown_operand_leads_to_no_action() {
    let mut this = scaled_by_share();
    this.push(at(0), &[("requests", "60")]);
    this.push(at(10), &[("other", "1")]);
    for second in 11..400 {
        this.wait(at(second));
    }
    this.push(at(400), &[("requests", "none")]);
    assert_eq!(this.replicas, 2);
    let why: BTreeMap<&str, &str> =
        this.monitoring.unknown.iter().map(|one| (one.metric.as_str(), one.message.as_str())).collect();
    assert_eq!(why["share"], "its operand requests is unknown");
}

#[rstest]
#[case::assumed(json!({"missing": {"after": "30s", "then": "Assume", "value": "1000"}}), "requests / replicas")]
#[case::default(json!({}), "coalesce(requests, 1000) / replicas")]
fn an_assumed_operand_raises_once_and_lowers_never(#[case] operand: Value, #[case] expression: &str) {
    let mut this = scaled_by_share();
    this.spec.metrics[0].missing = serde_json::from_value(operand["missing"].clone()).unwrap_or_default();
    this.spec.metrics[1].source.formula.as_mut().unwrap().expression = expression.to_owned();
    this.push(at(0), &[("other", "1")]);
    for second in 1..400 {
        this.wait(at(second));
    }
    assert_eq!(this.replicas, 3, "{:?}", this.decision);
    let mut this = scaled_by_share();
    let missing = json!({"after": "30s", "then": "Assume", "value": "1"});
    this.spec.metrics[0].missing = serde_json::from_value(missing).unwrap();
    this.push(at(0), &[("other", "1")]);
    for second in 1..400 {
        this.wait(at(second));
    }
    assert_eq!((this.replicas, this.monitoring.message.as_deref()), (2, Some("Low share")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Whatever an unknown operand hides, it never becomes a number, and no text of a user panics.
    #[test]
    fn an_unknown_operand_never_gives_a_number(
        expression in prop::sample::select(vec!["a + b", "a * 0", "max(a, 5)", "b > 0 ? b : a", "b / a", "-a", "b + 0 * (a - a)"]),
        values in prop::collection::vec((prop::option::of(-5..5_i32), -5..5_i32), 1..12),
    ) {
        let mut bench = Bench::new(expression, &[]);
        for (second, (a, b)) in values.iter().enumerate() {
            let (a, b) = (a.map(|a| a.to_string()), b.to_string());
            // Each sample comes after the values of the one before have expired.
            let now = 200 * i64::try_from(second).unwrap();
            let pushed: Vec<(&str, &str)> =
                a.iter().map(|a| ("a", a.as_str())).chain([("b", b.as_str())]).collect();
            bench.push(now, &pushed);
            prop_assert!(a.is_some() || bench.load().is_err(), "{:?}", bench.load());
        }
    }

    #[test]
    fn no_text_of_a_user_panics(text in r"[ab0-9 ()<>=!&|?:+*/.,%-]{1,40}") {
        if let Ok(rules) = MonitoringRules::parse(&monitoring(&text, &[])) {
            let mut bench = Bench { rules, status: MonitoringStatus::default(), replicas: Ok(0) };
            bench.push(0, &[("a", "0"), ("b", "1e98"), ("c", "1")]);
            bench.wait(500);
        }
    }
}
