//! A replay of samples decides what the shipped controllers decide on the same samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_loops_plan::replay::{RecordedSample, Recording, ReplayOptions, ReplayRules, replay};
use ganglion_runtime::metrics::Metrics;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::{Api, By, Sort};
use super::process::{NOW, Process, now};
use super::setup::Setup;
use crate::random::Rng;

/// Number of situations, and of samples in each.
const RUNS: u64 = 20;
const SAMPLES: i64 = 60;

/// Difference between the fractions of a second of two samples, in milliseconds.
const SHIFT: i64 = 15;

/// Start of a run, in milliseconds since the epoch.
const BEGINNING: i64 = 1_800_000_000_000;

/// Replicas at the start.
const REPLICAS: i32 = 3;

/// Timers of the operator have a jitter of at most 50 ms each. A dwell that one delays can delay the next.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// A sample: when it is pushed, in milliseconds, and its values.
type LoopSample = (i64, BTreeMap<String, String>);

/// A decision that has ended.
#[derive(Clone, Debug, PartialEq)]
struct EndedDecision {
    seq: i64,
    when: String,
    change: Option<(String, String)>,
    outcome: String,
}

/// Samples of both metrics of the loop; some lack one of them. Limits last for whole seconds, and the controllers
/// notice their ends later by the jitter of timers. So that no sample arrives meanwhile, each has a smaller fraction
/// of a second than the ones before.
fn samples(rng: &mut Rng) -> Vec<LoopSample> {
    let mut second = BEGINNING / 1000;
    let mut samples = Vec::new();
    for index in 0..SAMPLES {
        second += rng.between(3, 20);
        let time = second * 1000 + SHIFT * (SAMPLES - index);
        let mut values = BTreeMap::new();
        for metric in ["a", "b"] {
            if !rng.chance(50) {
                let value = *rng.pick(&["2", "5", "15", "50", "85", "95", "99"]).unwrap();
                values.insert(metric.to_owned(), value.to_owned());
            }
        }
        if !values.is_empty() {
            samples.push((time, values));
        }
    }
    samples
}

/// The shipped controllers on an API server that answers at once.
struct LiveLoop {
    api: Api,
    process: Process,
}

impl LiveLoop {
    async fn start(spec: &Value) -> Self {
        NOW.set(BEGINNING);
        let mut live = Self { api: Api::new(false), process: Process::start(&Metrics::new(), "term") };
        let deployment = json!({"metadata": {}, "spec": {"replicas": REPLICAS, "template": {}}});
        live.api.create(By::Others, Sort::Deployment, "web", deployment).unwrap();
        let object = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {}, "spec": spec});
        live.api.create(By::Others, Sort::Loop, "web", object).unwrap();
        live.rest().await;
        live
    }

    /// Works until nothing is left to do now.
    async fn rest(&mut self) {
        loop {
            let mut did = false;
            for place in 0..Process::kinds() {
                while self.process.hear(place, &self.api) {
                    did = true;
                }
            }
            for part in 0..Process::kinds() {
                did |= self.process.begin(part).await;
            }
            while let Some(pending) = self.process.pending.first_mut() {
                pending.answer = Some(self.api.serve(By::Operator, &pending.asked.clone()));
                self.process.answer(0).await;
                did = true;
            }
            if !did {
                return;
            }
        }
    }

    async fn until(&mut self, end: i64) {
        while let Some(next) = self.process.next_time().filter(|next| *next < end) {
            NOW.set(next.max(NOW.get() + 1));
            self.rest().await;
        }
        NOW.set(end);
    }

    async fn push(&mut self, (time, values): &LoopSample) {
        self.until(*time).await;
        let sample = json!({"time": now().to_string(), "values": values});
        self.api.change(By::Others, Sort::Monitoring, "web", |object| object["spec"]["sample"] = sample);
        self.rest().await;
    }

    /// The decisions, each with its time.
    fn decisions(&self) -> Vec<(Timestamp, EndedDecision)> {
        let written = |sort| self.api.log.iter().filter(move |write| write.sort == sort && write.name == "web");
        let mut chosen: BTreeMap<i64, (Timestamp, String)> = BTreeMap::new();
        for write in written(Sort::Decision) {
            let status = write.new.as_ref().map(|object| &object["status"]["chosen"]);
            let Some(status) = status.filter(|status| status.is_object()) else { continue };
            let at = status["at"].as_str().unwrap().parse().unwrap();
            let when = format!("{} {}", status["side"].as_str().unwrap(), status["metric"].as_str().unwrap());
            chosen.insert(status["seq"].as_i64().unwrap(), (at, when));
        }
        let mut ends: BTreeMap<i64, ExecutionStatus> = BTreeMap::new();
        for write in written(Sort::Execution) {
            let status = write.new.as_ref().map(|object| object["status"].clone()).unwrap_or_default();
            let status: ExecutionStatus = serde_json::from_value(status).unwrap();
            ends.insert(status.seq.unwrap_or(0), status);
        }
        let ended = |(seq, (at, when)): (i64, (Timestamp, String))| {
            let end = ends.get(&seq).cloned().unwrap_or_default();
            let outcome = match end.state {
                Some(ExecutionState::Done) => "Served".to_owned(),
                other => other.map_or_else(|| "Withdrawn".to_owned(), |state| format!("{state:?}")),
            };
            (at, EndedDecision { seq, when, change: end.before.zip(end.after), outcome })
        };
        chosen.into_iter().map(ended).collect()
    }
}

fn live(spec: &Value, samples: &[LoopSample], end: i64) -> Vec<(Timestamp, EndedDecision)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut live = LiveLoop::start(spec).await;
        for sample in samples {
            live.push(sample).await;
        }
        live.until(end).await;
        live.decisions()
    })
}

fn replayed(spec: &Value, samples: &[LoopSample], end: i64) -> Vec<(Timestamp, EndedDecision)> {
    let spec: ClosedLoopSpec = serde_json::from_value(spec.clone()).unwrap();
    let time = |millis| Timestamp::from_millisecond(millis).unwrap();
    let mut recording = Recording::new(time(BEGINNING), time(end)).unwrap();
    for metric in ["a", "b"] {
        let sample = |(at, values): &LoopSample| RecordedSample {
            at: time(*at),
            value: values.get(metric).cloned().ok_or_else(|| Arc::from("not in the sample")),
        };
        recording.add(metric, samples.iter().map(sample).collect()).unwrap();
    }
    let start = BTreeMap::from([("replicas".to_owned(), REPLICAS.to_string())]);
    let rules = ReplayRules::new("web", &spec, &ReplayOptions { start, ..ReplayOptions::default() }).unwrap();
    let report = replay(&rules, &recording).unwrap();
    let ended = |decision: ganglion_loops_plan::replay::ReplayedDecision| {
        let outcome = decision.outcome.map_or_else(|| "open".to_owned(), |outcome| format!("{outcome:?}"));
        let change = decision.before.zip(decision.after);
        (decision.at, EndedDecision { seq: decision.seq, when: decision.when, change, outcome })
    };
    report.decisions.into_iter().map(ended).collect()
}

#[test]
fn a_replay_decides_what_the_controllers_decide() {
    let mut decisions = 0;
    for seed in 0..RUNS {
        let mut rng = Rng::new(seed);
        fastrand::seed(seed);
        let (spec, samples) = (Setup::random(seed).fast, samples(&mut rng));
        let end = samples.last().unwrap().0 + 1000;
        let (expected, found) = (live(&spec, &samples, end), replayed(&spec, &samples, end));
        let is_same = |(found, expected): (&(Timestamp, EndedDecision), &(Timestamp, EndedDecision))| {
            found.1 == expected.1 && found.0.duration_since(expected.0).abs() <= TOLERANCE
        };
        let same = found.iter().zip(&expected).take_while(|pair| is_same(*pair)).count();
        assert!(
            same == found.len() && same == expected.len(),
            "seed {seed}, decision {}: {:#?}\ninstead of {:#?}\nsamples: {samples:#?}\n{spec:#}",
            same + 1,
            found.get(same),
            expected.get(same)
        );
        decisions += found.len();
    }
    assert!(decisions > 150, "only {decisions} decisions");
}
