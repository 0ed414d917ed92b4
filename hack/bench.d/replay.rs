//! `hack/bench replay`: time to replay a week of three metrics, once the values are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_loops_plan::replay::{RecordedSample, Recording, ReplayOptions, ReplayRules, replay};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use testkit::autoscaling::LoadShape;

use super::frame::{Bench, Bound};

/// Interval of the loop, in seconds, and length of the recording.
const INTERVAL: i64 = 15;
const DAYS: usize = 7;

/// Maximum time in seconds.
const MOST_SECONDS: f64 = 5.0;

/// Loads of the metrics, each with a name.
const LOADS: [(&str, LoadShape); 3] =
    [("cpu", LoadShape::NoisyDaily), ("memory", LoadShape::SlowWalk), ("queue", LoadShape::Office)];

/// Measures loops whose levels raise alarms, and one that tracks the same metrics.
pub fn run(bench: &mut Bench) -> Result<()> {
    let recording = recording()?;
    for (name, spec) in [("levels", levels()), ("tracking", tracking())] {
        if !bench.wants(name) {
            continue;
        }
        let spec: ClosedLoopSpec = serde_json::from_value(spec)?;
        let start = BTreeMap::from([("replicas".to_owned(), "5".to_owned())]);
        let rules = ReplayRules::new("web", &spec, &ReplayOptions { start, ..ReplayOptions::default() })?;
        let began = Instant::now();
        let report = replay(&rules, &recording)?;
        let seconds = began.elapsed().as_secs_f64();
        bench.claim(&format!("{name}: a week of three metrics at 15 s"), seconds, "s", Bound::Below(MOST_SECONDS));
        bench.note(&format!("{name}: decisions"), report.decisions.len() as f64, "");
        bench.note(&format!("{name}: evaluations"), report.evaluations as f64, "");
    }
    Ok(())
}

fn recording() -> Result<Recording> {
    let start = Timestamp::from_second(1_790_000_000)?;
    let length = SignedDuration::from_hours(24 * i64::try_from(DAYS)?);
    let mut recording = Recording::new(start, start.checked_add(length)?)?;
    for (seed, (name, shape)) in (1..).zip(LOADS) {
        let times = (0..).map(|step| start + SignedDuration::from_secs(step * INTERVAL));
        let samples = times.zip(shape.generate(seed, DAYS).steps).map(|(at, demand)| RecordedSample {
            at,
            value: demand.map(|demand| format!("{demand:.3}")).ok_or_else(|| Arc::from("a gap")),
        });
        recording.add(name, samples.collect())?;
    }
    Ok(recording)
}

fn metric(name: &str) -> Value {
    json!({"name": name, "source": {"prometheus": {"url": "http://prometheus", "query": name}},
        "low": {"raise": "10", "clear": "15"}, "high": {"raise": "60", "clear": "50", "for": "1m"}})
}

fn with_actions(actions: Vec<Value>) -> Value {
    json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "interval": format!("{INTERVAL}s"),
        "metrics": LOADS.map(|(name, _)| metric(name)),
        "policy": {"dwell": "2m", "budget": {"max": 10, "per": "1h"}},
        "actions": actions,
    })
}

fn levels() -> Value {
    let action = |metric: &str, side: &str, by: i32| json!({"when": {"metric": metric, "side": side}, "settle": "1m", "ladder": [{"scale": {"by": by, "min": 1, "max": 50}}]});
    with_actions(LOADS.iter().flat_map(|(name, _)| [action(name, "High", 2), action(name, "Low", -1)]).collect())
}

fn tracking() -> Value {
    let action = |(name, _): &(&str, LoadShape)| {
        let track = json!({"type": "AverageValue", "target": "10"});
        json!({"when": {"metric": name, "side": "Target"}, "ladder": [{"scale": {"track": track, "min": 1, "max": 50}}]})
    };
    with_actions(LOADS.iter().map(action).collect())
}
