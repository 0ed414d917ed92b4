//! Simulates a whole loop in memory: the stages one after another, with a target that counts the effects on it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::children::{Children, children};
use crate::decision::settlement;
use crate::decision::{DecisionInput, DecisionRules, Executor};
use crate::execution::{
    self, EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, Sent, TargetState, TunedLoop,
};
use crate::forecast::ForecastMemory;
use crate::monitoring::tag;
use crate::monitoring::tracking::{OwnScaling, TargetNews, TargetReading};
use crate::monitoring::{Measurement, MonitoringRules, ObserveContext, ObserveTrigger, SourceResult, SourceValue};
use crate::track::TrackMemory;
use crate::tuning::{effective_policy, last_served};
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::closed_loop::policy::Tuning;
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::ExecutionStatus;
use ganglion_api::monitoring::{MonitoringStatus, Sample};

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_795_000_000 + seconds).unwrap()
}

pub fn spec(value: Value) -> ClosedLoopSpec {
    serde_json::from_value(value).unwrap()
}

/// The loop of the demo: cpu low under 5, memory low under 50, rank cpu then memory.
pub fn demo(policy: Value) -> ClosedLoopSpec {
    spec(json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"push": {}}, "low": {"raise": "50"}},
        ],
        "policy": policy,
        "actions": [
            {"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": 1, "max": 1000}}]},
            {"when": {"metric": "memory", "side": "Low"}, "ladder": [{"scale": {"by": 1, "max": 1000}}]},
        ],
        "tunable": {"by": ["slow"], "rank": true},
    }))
}

/// A loop that raises while load is high, and lowers while it is low.
pub fn up_and_down(policy: Value) -> Loop {
    Loop::new(
        "fast",
        spec(json!({
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "load", "source": {"push": {}}, "low": {"raise": "10"}, "high": {"raise": "90"}}],
            "policy": policy,
            "actions": [
                {"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 9}}]},
                {"when": {"metric": "load", "side": "Low"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
            ],
        })),
    )
}

pub fn sample(now: Timestamp, values: &[(&str, &str)]) -> Sample {
    Sample {
        time: now.to_string(),
        values: values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect::<BTreeMap<_, _>>(),
    }
}

/// A loop, its children's statuses, and its target.
#[derive(Clone)]
pub struct Loop {
    pub name: &'static str,
    pub spec: ClosedLoopSpec,
    pub tuning: Vec<Tuning>,
    pub shown: Option<ganglion_api::closed_loop::status::Effective>,
    pub monitoring: MonitoringStatus,
    pub decision: DecisionStatus,
    pub execution: ExecutionStatus,
    pub replicas: i32,
    pub generation: i64,
    /// All effects, each with the number of its decision.
    pub effects: Vec<(i64, ExecutionEffect)>,
    pub writes: usize,
    /// Stored statuses of the first two stages: all that survives a crash.
    pub stored: (MonitoringStatus, DecisionStatus),
    /// Time at which the next time-based rejection expires.
    pub again: Option<Timestamp>,
    /// The digest that the user approved.
    pub approval: Option<String>,
    /// Metrics whose source has not answered since the last crash.
    pub unanswered: Vec<String>,
    /// Time since which this process has watched the values; the time of each call if it is unset.
    pub watched_since: Option<Timestamp>,
    /// Leader term of the process.
    pub term: String,
    /// Number of further writes and effects until the process ends; None if it runs on.
    pub writes_left: Option<usize>,
    /// Path of the target's number of replicas, if it is not the usual one.
    pub replicas_path: Option<String>,
    /// Field manager that last wrote the replicas, unless it was the loop.
    pub written_by: Option<String>,
    /// Memory of the actions on side Target.
    pub track: TrackMemory,
    /// Memory of the forecast.
    pub forecast: Option<ForecastMemory>,
    /// State of the target that the next call reads.
    pub reading: Option<Result<TargetReading, String>>,
    /// The loop is changing the number of replicas.
    pub is_changing: bool,
}

impl Loop {
    pub fn new(name: &'static str, spec: ClosedLoopSpec) -> Self {
        Self {
            name,
            spec,
            tuning: Vec::new(),
            shown: None,
            monitoring: MonitoringStatus::default(),
            decision: DecisionStatus::default(),
            execution: ExecutionStatus::default(),
            replicas: 3,
            generation: 1,
            effects: Vec::new(),
            writes: 0,
            stored: (MonitoringStatus::default(), DecisionStatus::default()),
            again: None,
            approval: None,
            unanswered: Vec::new(),
            watched_since: None,
            term: "term".to_owned(),
            writes_left: None,
            replicas_path: None,
            written_by: None,
            track: TrackMemory::default(),
            forecast: None,
            reading: None,
            is_changing: false,
        }
    }

    /// Whether the process gets as far as this write or effect.
    fn may_write(&mut self) -> bool {
        match &mut self.writes_left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        true
    }

    pub fn children(&mut self, now: Timestamp) -> Children {
        let policy = effective_policy::effective(&self.spec, &self.tuning, self.shown.as_ref(), now).unwrap();
        self.shown = Some(policy.shown.clone());
        let mut all = children(&self.spec, &policy, None, self.approval.as_deref());
        all.decision.replicas_path.clone_from(&self.replicas_path);
        all
    }

    /// Sends one sample through all stages.
    pub fn push(&mut self, now: Timestamp, values: &[(&str, &str)]) {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        let measurement = watch.pushed(&sample(now, values), now);
        self.hop(&children, &watch, ObserveTrigger::Measured(&measurement), now, None);
    }

    /// Polls sources, which return these values, each with the time of its measurement.
    pub fn poll(&mut self, now: Timestamp, values: &[(&str, &str, Timestamp)]) {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        let value = |value: &str, at| SourceValue { at: Some(at), ..SourceValue::from(value.to_owned()) };
        let values = values.iter().map(|(metric, text, at)| ((*metric).to_owned(), Ok(value(text, *at)))).collect();
        let measurement = Measurement { values, ..Measurement::default() };
        self.unanswered.retain(|metric| !measurement.values.contains_key(metric));
        self.hop(&children, &watch, ObserveTrigger::Measured(&measurement), now, None);
    }

    /// One interval: sources return these results, and then the target is read.
    pub fn pass(&mut self, now: Timestamp, results: &[(&str, SourceResult)]) {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        let values = results.iter().map(|(metric, result)| ((*metric).to_owned(), result.clone())).collect();
        let measurement = Measurement { values, ..Measurement::default() };
        self.unanswered.clear();
        let ready_pods = Some(self.replicas.unsigned_abs());
        self.reading = Some(Ok(TargetReading { replicas: Some(self.replicas), ready_pods }));
        self.hop(&children, &watch, ObserveTrigger::Measured(&measurement), now, None);
    }

    /// Advances the time without a sample.
    pub fn wait(&mut self, now: Timestamp) {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        self.hop(&children, &watch, ObserveTrigger::Time, now, None);
    }

    /// Runs one interval of a slow loop.
    pub fn look(&mut self, now: Timestamp, fast: &mut Loop) {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        let rank = fast.children(now).decision.rank;
        let before = self.monitoring.last_served.first();
        let found = last_served::find_least_served("imbalance", before, &rank, &fast.status_at(now), 10);
        let measurement = Measurement {
            pushed: None,
            values: [("imbalance".to_owned(), Ok(last_served::imbalance(&found).to_string().into()))].into(),
            last_served: vec![("imbalance".to_owned(), found)],
        };
        self.hop(&children, &watch, ObserveTrigger::Measured(&measurement), now, Some(fast));
    }

    pub fn hop(
        &mut self,
        children: &Children,
        watch: &MonitoringRules,
        news: ObserveTrigger,
        now: Timestamp,
        mut below: Option<&mut Loop>,
    ) {
        self.execute(children, now, below.as_deref_mut());
        let last = tag::latest([self.stored.1.tag.as_ref(), self.execution.tag.as_ref()]).cloned();
        let (stored, unanswered) = (self.stored.0.clone(), self.unanswered.clone());
        let executor = Executor { uid: "exe", target: &self.spec.target, status: &self.execution };
        let reading = self.reading.take();
        let results = match news {
            ObserveTrigger::Measured(measurement) => measurement.values.clone(),
            ObserveTrigger::Time => BTreeMap::new(),
        };
        let target = reading.as_ref().map(|reading| TargetNews {
            reading: reading.as_ref().map_err(String::as_str),
            results: &results,
            memory: &self.track,
            forecast: self.forecast.as_ref(),
            own_change: OwnScaling::last_of(&self.execution),
            is_changing: self.is_changing,
        });
        let context = ObserveContext {
            last: last.as_ref(),
            written: &stored,
            unanswered: &unanswered,
            watched_since: self.watched_since.unwrap_or(now),
            replicas: Ok(self.replicas),
            target,
            awaited: settlement::awaits_execution(&self.stored.1, Some(executor)),
            term: &self.term,
            now,
        };
        let seen = watch.observe(&self.monitoring, news, context);
        if seen.write && self.may_write() {
            self.writes += 1;
            self.stored.0 = seen.status.clone();
        }
        self.monitoring = seen.status;
        if let Some(memory) = seen.memory {
            (self.track, self.forecast) = (memory.track, memory.forecast);
        }
        self.decide(children, now);
        self.execute(children, now, below);
    }

    /// Returns the status of the Decision with the outcome of the last decision.
    pub fn status_at(&self, now: Timestamp) -> DecisionStatus {
        settlement::with_outcome(
            &self.decision,
            Some(Executor { uid: "exe", target: &self.spec.target, status: &self.execution }),
            now,
        )
    }

    pub fn decide(&mut self, children: &Children, now: Timestamp) {
        let rules = DecisionRules::parse(&children.decision).unwrap();
        let executor = Some(Executor { uid: "exe", target: &self.spec.target, status: &self.execution });
        let input = DecisionInput {
            monitoring: &self.stored.0,
            executor,
            written: &self.stored.1,
            generation: 1,
            term: &self.term,
            now,
        };
        let decided = rules.decide(&self.decision, input);
        if decided.write && self.may_write() {
            self.writes += 1;
            self.stored.1 = decided.status.clone();
        }
        self.decision = decided.status;
        self.again = decided.again;
    }

    /// Kills the operator and starts it again.
    pub fn crash(&mut self) {
        (self.monitoring, self.decision) = self.stored.clone();
    }

    /// Kills the operator, and lets another process lead from now on.
    pub fn restart(&mut self, now: Timestamp) {
        self.crash();
        self.term.push('+');
        self.writes_left = None;
        self.unanswered = self.spec.metrics.iter().map(|metric| metric.name.clone()).collect();
        self.watched_since = Some(now);
        let text = self.monitoring.tracking.as_ref().and_then(|state| state.memory.as_deref());
        self.track = text.map(|text| TrackMemory::parse(text, now).unwrap()).unwrap_or_default();
    }

    /// Polls sources, all of which fail.
    pub fn fail(&mut self, now: Timestamp) {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        let failed = |metric: &Metric| (metric.name.clone(), Err("the server answers 503".to_owned()));
        let values = children.monitoring.metrics.iter().map(failed).collect();
        self.unanswered.clear();
        let measurement = Measurement { values, ..Measurement::default() };
        self.hop(&children, &watch, ObserveTrigger::Measured(&measurement), now, None);
    }

    /// Returns the next time after `now` at which time alone changes something.
    pub fn next_wake(&mut self, now: Timestamp) -> Option<Timestamp> {
        let children = self.children(now);
        let watch = MonitoringRules::parse(&children.monitoring).unwrap();
        let evaluation =
            watch.next_evaluation(&self.monitoring, &self.stored.0, now).filter(|_| !children.monitoring.paused);
        evaluation.into_iter().chain(self.again).filter(|at| *at > now).min()
    }

    /// Runs the execution stage until there is nothing to do.
    pub fn execute(&mut self, children: &Children, now: Timestamp, mut below: Option<&mut Loop>) {
        let mut sent = Sent::Maybe;
        for _ in 0..20 {
            let seen = self.seen(below.as_deref_mut(), now);
            let status = self.execution.clone();
            // An execution reads what was written.
            let decision = self.stored.1.clone();
            let job = ExecutionContext {
                spec: &children.execution,
                actions: &children.decision.actions,
                status: &status,
                uid: &"exe".into(),
                generation: 1,
                loop_name: self.name,
                mode: children.decision.mode,
                chosen: decision.chosen.as_ref(),
                is_confirmed: decision.term.as_ref() == Some(&self.term),
                tag: decision.tag.as_ref(),
                seen: Some(&seen),
                sent,
                now,
            };
            match execution::next_step(&job) {
                ExecutionStep::Nothing | ExecutionStep::Wait(_) | ExecutionStep::ReadTarget => return,
                ExecutionStep::Record(status) => {
                    if !self.may_write() {
                        return;
                    }
                    self.execution = *status;
                    self.writes += 1;
                    sent = Sent::NotYet;
                }
                ExecutionStep::Act(effect) => {
                    if !self.may_write() {
                        return;
                    }
                    let acted = self.act(&effect, below.as_deref_mut());
                    sent = Sent::Maybe;
                    if let ExecutionStep::Record(status) = execution::after_effect(&job, &effect, &acted) {
                        if !self.may_write() {
                            return;
                        }
                        self.execution = *status;
                        self.writes += 1;
                    }
                }
            }
        }
        panic!("the execution stage does not come to rest");
    }

    pub fn thing(&self) -> ObjectVersion {
        ObjectVersion {
            uid: "target".into(),
            generation: self.generation,
            version: self.generation.to_string(),
            replicas_path: self.replicas_path.clone(),
            written_by: self.written_by.clone(),
            ..ObjectVersion::default()
        }
    }

    fn seen(&self, below: Option<&mut Loop>, now: Timestamp) -> TargetState {
        let chosen = self.stored.1.chosen.as_ref();
        match below {
            None if chosen.is_some_and(|chosen| chosen.action.patch.is_some()) => {
                TargetState::Field(self.thing(), Some(json!(self.replicas)))
            }
            None => TargetState::Scale(self.thing(), self.replicas),
            Some(below) => {
                let policy =
                    effective_policy::effective(&below.spec, &below.tuning, below.shown.as_ref(), now).unwrap();
                TargetState::Loop(Box::new(TunedLoop {
                    uid: "fast".into(),
                    tunable: below.spec.tunable.clone(),
                    rank: policy.rank,
                    metrics: policy.metrics,
                    mine: below.tuning.iter().find(|tuning| tuning.by == self.name).cloned(),
                }))
            }
        }
    }

    pub fn act(&mut self, effect: &ExecutionEffect, below: Option<&mut Loop>) -> EffectResult {
        let seq = self.execution.claim.as_ref().map_or(0, |claim| claim.seq);
        match effect {
            ExecutionEffect::Scale { target, replicas } => {
                if target.generation != self.generation {
                    return EffectResult::Conflict;
                }
                (self.replicas, self.generation, self.written_by) = (*replicas, self.generation + 1, None);
            }
            ExecutionEffect::Patch { target, value, .. } => {
                if target.generation != self.generation {
                    return EffectResult::Conflict;
                }
                self.replicas = value.as_i64().and_then(|value| value.try_into().ok()).expect("a number of replicas");
                self.generation += 1;
            }
            ExecutionEffect::Tune { tuning, .. } => {
                let below = below.expect("a loop to tune");
                below.tuning.retain(|old| old.by != tuning.by);
                below.tuning.push(tuning.clone());
            }
            other => panic!("unexpected effect: {other:?}"),
        }
        self.effects.push((seq, effect.clone()));
        EffectResult::Done(None)
    }

    /// Returns the metrics in the order in which they were served.
    pub fn served(&self) -> Vec<&str> {
        self.decision.history.iter().map(|entry| entry.when.alarms()[0].metric.as_str()).collect()
    }

    pub fn messages(&self) -> (&str, &str) {
        (self.monitoring.message.as_deref().unwrap_or(""), self.decision.message.as_deref().unwrap_or(""))
    }
}

pub fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}
