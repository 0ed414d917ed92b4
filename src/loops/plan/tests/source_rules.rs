//! The table of sources: its copy in the page, and properties that hold for each source.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::monitoring::source_rule::{MeasuredAt, SOURCE_RULES, SourceRule};
use crate::monitoring::{Measurement, MonitoringRules, ObserveTrigger, SourceResult, SourceValue};
use crate::sources::{SelectableNode, node_value};
use crate::tests::bench::{Loop, at, sample, spec};
use crate::validate::assessment::{AssessmentInput, ChildStatuses, NamespaceAccess, assess, status};
use crate::validate::chain::LoopLink;
use crate::validate::conflict::{Claimant, ClaimantKind, dimensions};
use crate::validate::preflight::Preflight;
use ganglion_api::closed_loop::ClosedLoopStatus;
use ganglion_api::closed_loop::metric::NodeConfigField;
use ganglion_api::node_config::NodeConfigStatus;
use ganglion_api::node_config::status::{NodeReading, NodeValue};
use ganglion_core::conditions::{self, DATA_AVAILABLE};

const PAGE: &str = include_str!("../../../../samples/closedloop/README.md");

#[test]
fn the_page_contains_the_table() {
    for rule in SOURCE_RULES {
        let row = rule.row();
        assert!(PAGE.contains(&row), "samples/closedloop/README.md lacks: {row}");
    }
}

/// Something that happens to a source.
#[derive(Clone, Copy, Debug)]
enum SourceEvent {
    /// It serves a value that was measured this many seconds ago; a source without times of its own serves a new one.
    Value(i64),
    /// It serves its last value once more, with the same time.
    Repeat,
    /// It fails, or a sample lacks the key.
    Failure,
    /// Nothing comes.
    Silence,
}

fn event() -> impl Strategy<Value = (i64, SourceEvent)> {
    let kind = prop_oneof![
        4 => (0..90_i64).prop_map(SourceEvent::Value),
        2 => Just(SourceEvent::Repeat),
        2 => Just(SourceEvent::Failure),
        2 => Just(SourceEvent::Silence),
    ];
    (1..60_i64, kind)
}

/// A kind of source.
#[derive(Clone, Copy, Debug)]
struct DrivenSource {
    rule: SourceRule,
    /// Value of a node that it reads, if it is one of nodes.
    field: NodeValue,
}

fn which() -> impl Strategy<Value = DrivenSource> {
    let kinds = (prop::sample::select(SOURCE_RULES.to_vec()), prop::sample::select(NodeValue::ALL.to_vec()));
    kinds.prop_map(|(rule, field)| DrivenSource { rule, field })
}

fn source(rule: SourceRule) -> Value {
    let member = match rule.name {
        "push" => json!({}),
        "prometheus" => json!({"url": "http://a", "query": "a"}),
        "http" => json!({"url": "http://a", "path": "a"}),
        "scaler" => json!({"address": "a:1"}),
        "cron" => json!({"during": [{"cron": "0 8 * * *", "duration": "1h"}], "value": "1"}),
        "object" => json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "path": "a"}),
        "resource" => json!({"resource": "cpu"}),
        "external" => json!({"metric": "a"}),
        "custom" => json!({"metric": "a", "pods": {}}),
        "nodeConfig" => json!({"nodeName": "a", "field": "cpu"}),
        _ => json!({"name": "a", "rule": "LastServed"}),
    };
    json!({rule.name: member})
}

/// A loop that raises while the value of this source is high.
fn raising(rule: SourceRule) -> Loop {
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "interval": "10s",
            "metrics": [{"name": "load", "source": source(rule), "high": {"raise": "80"}}],
            "actions": [{"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 1000}}]}],
        })),
    )
}

/// Value that a source has served.
#[derive(Default)]
struct ServedValue {
    /// Time from which the age of the last value counts.
    counts_from: Option<Timestamp>,
    /// Time of its measurement.
    measured: Option<Timestamp>,
    /// It has failed since.
    has_failed: bool,
}

/// Value of a node that was measured at this time, or that is stale, as the source reads it from a NodeConfig.
fn read_from_node(field: NodeValue, measured: Option<Timestamp>, now: Timestamp) -> SourceResult {
    let mut status = NodeConfigStatus { valid_until: Some(Time(at(1_000_000))), ..NodeConfigStatus::default() };
    let mut reading = NodeReading { value: Some("90".to_owned()), ..NodeReading::default() };
    (reading.sampled_at, reading.stale) = (measured.map(Time), measured.is_none().then_some(true));
    *status.reading_mut(field) = Some(reading);
    let source = NodeConfigField { node_name: Some("a".into()), field, ..NodeConfigField::default() };
    node_value(&source, [SelectableNode { name: "a".into(), labels: &BTreeMap::new(), status: Some(&status) }], now)
}

/// Applies the event at this time, and notes what the rule makes of it.
fn apply(this: &mut Loop, which: DrivenSource, served: &mut ServedValue, now: Timestamp, event: SourceEvent) {
    let DrivenSource { rule, field } = which;
    let children = this.children(now);
    let rules = MonitoringRules::parse(&children.monitoring).unwrap();
    let measured = match (rule.measured_at, event) {
        (_, SourceEvent::Silence | SourceEvent::Failure) => None,
        // The clock of the sender is wrong; a sample that is sent twice is refused.
        (MeasuredAt::Arrival, SourceEvent::Repeat) => None,
        (MeasuredAt::Arrival | MeasuredAt::Query, _) => Some(now),
        (MeasuredAt::Reported | MeasuredAt::Confirmed, SourceEvent::Value(seconds)) => {
            Some(now - SignedDuration::from_secs(seconds))
        }
        (MeasuredAt::Reported | MeasuredAt::Confirmed, SourceEvent::Repeat) => served.measured,
    };
    let counts_from = match rule.measured_at {
        MeasuredAt::Confirmed => measured.map(|_| now),
        MeasuredAt::Arrival | MeasuredAt::Query | MeasuredAt::Reported => measured,
    };
    let slow = now - SignedDuration::from_secs(40);
    let measurement = match (rule.measured_at, event, measured) {
        (_, SourceEvent::Silence, _) | (_, SourceEvent::Repeat, None) => None,
        (MeasuredAt::Arrival, _, Some(_)) => Some(rules.pushed(&sample(slow, &[("load", "90")]), now)),
        (MeasuredAt::Arrival, _, None) => Some(rules.pushed(&sample(slow, &[]), now)),
        (MeasuredAt::Confirmed, _, measured) => {
            let values = [("load".to_owned(), read_from_node(field, measured, now))].into();
            Some(Measurement { values, ..Measurement::default() })
        }
        (MeasuredAt::Query | MeasuredAt::Reported, _, measured) => {
            let value = measured.map(|at| SourceValue { at: Some(at), ..SourceValue::from("90".to_owned()) });
            let result = value.ok_or_else(|| "the server answers 503".to_owned());
            Some(Measurement { values: [("load".to_owned(), result)].into(), ..Measurement::default() })
        }
    };
    let is_failure = matches!(event, SourceEvent::Failure);
    if measurement.is_some() {
        served.has_failed = is_failure;
        if !is_failure {
            (served.counts_from, served.measured) = (counts_from, measured);
        }
    }
    let trigger = measurement.as_ref().map_or(ObserveTrigger::Time, ObserveTrigger::Measured);
    this.hop(&children, &rules, trigger, now, None);
}

/// Returns the next status of the loop.
fn assessed(this: &Loop, old: &ClosedLoopStatus, now: Timestamp) -> ClosedLoopStatus {
    let (name, spec) = (this.name, &this.spec);
    let me = Claimant {
        kind: ClaimantKind::ClosedLoop,
        name: name.into(),
        uid: name.into(),
        created: at(0),
        target: spec.target.clone(),
        dimensions: dimensions(spec, None),
        keeps: None,
    };
    let links = LoopLink::parse(spec).into_iter().map(|link| (name.to_owned(), link)).collect();
    let case = AssessmentInput {
        name,
        spec,
        status: old,
        links: &links,
        me: &me,
        others: &[],
        approval: None,
        access: &NamespaceAccess::Granted,
        now,
    };
    let hops = ChildStatuses {
        monitoring: Some(&this.stored.0),
        decision: Some(&this.stored.1),
        execution: Some(&this.execution),
        preflight: Some(&Preflight::Passed),
        ..ChildStatuses::default()
    };
    status(&case, &assess(&case), hops, 1)
}

proptest! {
    /// For each source: neither an answer, nor a failure, nor silence changes the condition Ready of the loop.
    #[test]
    fn ready_does_not_flap(events in prop::collection::vec(event(), 1..40), which in which()) {
        let rule = which.rule;
        let (mut this, mut served) = (raising(rule), ServedValue::default());
        let (mut shown, mut first, mut second) = (ClosedLoopStatus::default(), None, 0);
        for (pause, event) in events {
            second += pause;
            apply(&mut this, which, &mut served, at(second), event);
            shown = assessed(&this, &shown, at(second));
            let ready = conditions::find(&shown.conditions, "Ready").unwrap().clone();
            prop_assert_eq!(ready.status.as_str(), "True", "{} at {}", rule.name, second);
            prop_assert_eq!(first.get_or_insert(ready.clone()), &ready, "{} at {}", rule.name, second);
        }
    }

    /// For each source: a value is used while it is young enough, once, and not after a failure.
    #[test]
    fn a_value_is_used_once_and_fresh(events in prop::collection::vec(event(), 1..40), which in which()) {
        let rule = which.rule;
        let mut this = raising(rule);
        let age = rule.default_age(SignedDuration::from_secs(10));
        let (mut served, mut used, mut second) = (ServedValue::default(), None, 0);
        for (pause, event) in events {
            second += pause;
            let (now, effects) = (at(second), this.effects.len());
            apply(&mut this, which, &mut served, now, event);
            let is_fresh = served.counts_from.is_some_and(|from| now.duration_since(from) <= age);
            prop_assert_eq!(this.monitoring.unknown.is_empty(), is_fresh, "{} at {}", rule.name, second);
            let holds = |kind| conditions::find(&this.monitoring.conditions, kind).unwrap().status == "True";
            prop_assert_eq!(holds(DATA_AVAILABLE), is_fresh, "it follows the age, not single answers");
            prop_assert!(holds("Ready"), "missing values are no trouble of the loop");
            if this.effects.len() > effects {
                prop_assert!(is_fresh && !served.has_failed, "{} at {}", rule.name, second);
                prop_assert!(used < served.measured, "{}: a measurement of before the last effect", rule.name);
                used = Some(now);
            }
        }
    }
}
