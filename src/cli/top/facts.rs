//! Facts of an object, read from its JSON. Fields that are missing or have another form, as in objects of another
//! version, are left out; no object is hidden because of them.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::Value;

use super::kinds::TopKind;
use super::trend::TopLevels;
use crate::cli::width::clean;
use ganglion_api::decision::Entry;
use ganglion_core::quantity;

/// Maximum number of characters of a text.
const TEXT: usize = 1024;

/// Maximum number of items of a list.
const ITEMS: usize = 200;

/// Kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopId {
    pub kind: TopKind,
    /// Empty for objects without a namespace.
    pub namespace: String,
    pub name: String,
}

impl TopId {
    /// The same name as another kind: a loop and its children have one name.
    pub fn as_kind(&self, kind: TopKind) -> Self {
        Self { kind, ..self.clone() }
    }

    /// Kind, namespace and name as text: `ClosedLoop shop/web`.
    pub fn words(&self) -> String {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.kind.kind(), self.namespace, self.name)
    }
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct TopCondition {
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// A value of a metric in the status of a Monitoring.
#[derive(Clone, Debug, PartialEq)]
pub struct TopReading {
    pub metric: String,
    pub value: String,
    pub at: Option<Timestamp>,
}

/// A past value of a metric in the history of a Decision.
#[derive(Clone, Debug, PartialEq)]
pub struct PastValue {
    pub metric: String,
    pub at: Timestamp,
    pub value: f64,
}

/// Facts that only some kinds have.
#[derive(Clone, Debug, PartialEq)]
pub enum TopDetail {
    /// Steps of the slots, `status.summary.done`, the counts of a moveApplication, and whether the action has ended.
    Action {
        steps: Vec<String>,
        done: Option<String>,
        application: Option<String>,
        has_ended: bool,
    },
    Loop {
        mode: String,
        alarms: Option<String>,
    },
    Pool {
        workers: Option<i64>,
        jobs: Option<i64>,
        converged: Option<String>,
        states: Vec<String>,
    },
    Node {
        node: Option<String>,
        values: Vec<String>,
    },
    Policy {
        agents: Option<String>,
        nodes: Option<i64>,
    },
    /// Metrics, their levels, the last values, and the active alarms as text.
    Monitoring {
        levels: Vec<(String, TopLevels)>,
        readings: Vec<TopReading>,
        alarms: Vec<String>,
    },
    Decision {
        message: Option<String>,
        past: Vec<PastValue>,
    },
    Execution {
        state: Option<String>,
        message: Option<String>,
    },
}

/// An object as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct TopObject {
    pub id: TopId,
    pub uid: String,
    pub created: Option<Timestamp>,
    pub is_deleting: bool,
    /// `spec.suspend`.
    pub is_suspended: bool,
    /// Kind and name of the controlling owner.
    pub owner: Option<String>,
    pub conditions: Vec<TopCondition>,
    pub detail: TopDetail,
}

impl TopObject {
    pub fn read(kind: TopKind, object: &DynamicObject) -> Self {
        let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
        let id = TopId {
            kind,
            namespace: clean(&object.namespace().unwrap_or_default(), TEXT),
            name: clean(&object.name_any(), TEXT),
        };
        Self {
            id,
            uid: object.uid().unwrap_or_default(),
            created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            is_suspended: object.data.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or_default(),
            owner: owner.map(|owner| clean(&format!("{} {}", owner.kind, owner.name), TEXT)),
            conditions: list(&object.data, "/status/conditions").filter_map(condition).collect(),
            detail: detail(kind, &object.data),
        }
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&TopCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

fn detail(kind: TopKind, data: &Value) -> TopDetail {
    let texts = |path: &str, member: &str| list(data, path).filter_map(|item| text(item, member)).collect();
    match kind {
        TopKind::Action => TopDetail::Action {
            steps: texts("/status/slots", "/step"),
            done: text(data, "/status/summary/done"),
            application: application(data),
            has_ended: text(data, "/status/finishedAt").is_some(),
        },
        TopKind::Loop => TopDetail::Loop {
            mode: text(data, "/spec/mode").unwrap_or_else(|| "Auto".to_owned()),
            alarms: text(data, "/status/summary/alarms"),
        },
        TopKind::Pool => TopDetail::Pool {
            workers: whole(data, "/status/replicas"),
            jobs: whole(data, "/status/jobs"),
            converged: text(data, "/status/converged"),
            states: texts("/status/workers", "/state"),
        },
        TopKind::Node => TopDetail::Node { node: text(data, "/spec/nodeName"), values: node_values(data) },
        TopKind::Policy => {
            TopDetail::Policy { agents: text(data, "/status/summary"), nodes: whole(data, "/status/nodes") }
        }
        TopKind::Monitoring => TopDetail::Monitoring {
            levels: list(data, "/spec/metrics").filter_map(levels).collect(),
            readings: list(data, "/status/values").filter_map(reading).collect(),
            alarms: list(data, "/status/alarms").filter_map(|alarm| text(alarm, "")).collect(),
        },
        TopKind::Decision => TopDetail::Decision {
            message: text(data, "/status/message"),
            past: list(data, "/status/history").filter_map(past_value).collect(),
        },
        TopKind::Execution => {
            TopDetail::Execution { state: text(data, "/status/state"), message: text(data, "/status/message") }
        }
    }
}

/// The items of a list; none if there is no list at this path.
fn list<'a>(data: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    data.pointer(path).and_then(Value::as_array).into_iter().flatten().take(ITEMS)
}

/// A text or a number as text.
fn text(data: &Value, path: &str) -> Option<String> {
    let found = match data.pointer(path)? {
        Value::String(found) => clean(found, TEXT),
        Value::Number(found) => found.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (!found.is_empty()).then_some(found)
}

fn whole(data: &Value, path: &str) -> Option<i64> {
    data.pointer(path)?.as_i64()
}

fn number(data: &Value, path: &str) -> Option<f64> {
    quantity::number(&text(data, path)?).ok().filter(|value| value.is_finite())
}

fn time(data: &Value, path: &str) -> Option<Timestamp> {
    data.pointer(path)?.as_str()?.parse().ok()
}

fn condition(data: &Value) -> Option<TopCondition> {
    let member = |path| text(data, path).unwrap_or_default();
    let (status, reason, message) = (member("/status"), member("/reason"), member("/message"));
    Some(TopCondition { kind: text(data, "/type")?, status, reason, message })
}

/// Counts of a moveApplication.
fn application(data: &Value) -> Option<String> {
    let counts = data.pointer("/status/application")?;
    let of = |member: &str| whole(counts, member).unwrap_or_default();
    let mut words = format!("{} moved, {} in motion, {} left", of("/moved"), of("/inMotion"), of("/left"));
    if of("/failed") > 0 {
        words.push_str(&format!(", {} failed", of("/failed")));
    }
    Some(words)
}

fn node_values(data: &Value) -> Vec<String> {
    let values = [
        ("/status/power/value", "", " W"),
        ("/status/measuredPower/value", "measured ", " W"),
        ("/status/inletTemperature/value", "inlet ", " C"),
        ("/status/differentialPressure/value", "", " Pa"),
        ("/status/cpu/value", "cpu ", "%"),
    ];
    let shown = |(path, before, unit): (&str, &str, &str)| Some(format!("{before}{}{unit}", text(data, path)?));
    values.into_iter().filter_map(shown).collect()
}

fn levels(metric: &Value) -> Option<(String, TopLevels)> {
    let equal = number(metric, "/equal/to").map(|to| (to, number(metric, "/equal/within").unwrap_or_default()));
    let low = number(metric, "/low/raise").or(equal.map(|(to, within)| to - within));
    let high = number(metric, "/high/raise").or(equal.map(|(to, within)| to + within));
    Some((text(metric, "/name")?, TopLevels { low, high }))
}

fn reading(data: &Value) -> Option<TopReading> {
    Some(TopReading { metric: text(data, "/metric")?, value: text(data, "/value")?, at: time(data, "/at") })
}

/// The value of an entry of the history; None for a line of another version.
fn past_value(line: &Value) -> Option<PastValue> {
    let entry: Entry = line.as_str()?.parse().ok()?;
    let value = quantity::number(entry.value?.as_str()).ok()?;
    Some(PastValue { metric: entry.when.one()?.metric.clone(), at: entry.at.0, value })
}
