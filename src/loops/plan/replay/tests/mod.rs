//! Tests of replays: single situations, and properties of all of them.

mod csv;
mod effects;
mod properties;
mod recorded;
mod situations;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::common::later;
use ganglion_api::closed_loop::ClosedLoopSpec;

pub fn start() -> Timestamp {
    "2026-11-22T10:00:00Z".parse().unwrap()
}

/// Time of a test, in seconds after the start.
pub fn at(seconds: i64) -> Timestamp {
    later(start(), SignedDuration::from_secs(seconds))
}

/// A loop on pushed values that scales between 1 and 6, with these changes of its spec.
pub fn spec(changes: Value) -> ClosedLoopSpec {
    let action = |side: &str, by: i32| json!({"when": {"metric": "cpu", "side": side}, "ladder": [{"scale": {"by": by, "min": 1, "max": 6}}]});
    let mut spec = json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "cpu", "source": {"push": {}}, "low": {"raise": "10"}, "high": {"raise": "80"}}],
        "actions": [action("High", 1), action("Low", -1)],
    });
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// Values of one metric, one each 15 seconds. An empty text is a gap.
pub fn recording(series: &[(&str, &[&str])]) -> Recording {
    let longest = series.iter().map(|(_, values)| values.len()).max().unwrap();
    let mut recording = Recording::new(start(), at(15 * (longest as i64 - 1))).unwrap();
    for (name, values) in series {
        let samples = (0..).zip(*values).map(|(index, value)| RecordedSample {
            at: at(15 * index),
            value: if value.is_empty() { Err(Arc::from("a gap")) } else { Ok((*value).to_owned()) },
        });
        recording.add(name, samples.collect()).unwrap();
    }
    recording
}

/// Options with this number of replicas at the start.
pub fn options(replicas: i32) -> ReplayOptions {
    ReplayOptions { start: BTreeMap::from([("replicas".to_owned(), replicas.to_string())]), ..ReplayOptions::default() }
}

pub fn run(spec: &ClosedLoopSpec, options: &ReplayOptions, recording: &Recording) -> ReplayReport {
    replay(&ReplayRules::new("web", spec, options).unwrap(), recording).unwrap()
}

/// One line for each decision: seconds after the start, alarm, change, outcome.
pub fn lines(report: &ReplayReport) -> Vec<String> {
    let line = |decision: &ReplayedDecision| {
        let seconds = decision.at.duration_since(start()).as_secs();
        let (before, after) = (decision.before.as_deref().unwrap_or("-"), decision.after.as_deref().unwrap_or("-"));
        let outcome = decision.outcome.map_or_else(|| "open".to_owned(), |outcome| format!("{outcome:?}"));
        format!("{seconds} {} {before}->{after} {outcome}", decision.when)
    };
    report.decisions.iter().map(line).collect()
}
