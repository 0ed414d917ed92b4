//! The target of a loop on a virtual clock. In a replay, it has the values that its actions change: each change takes
//! effect at once, except that new pods serve after a start-up delay.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::common::later;
use crate::execution::{
    EffectResult, ExecutionEffect, ObjectVersion, PodResources, ResizeTarget, TargetState, WorkloadActionState,
};
use crate::rung;
use ganglion_api::closed_loop::action::{Bounds, Resize, Rung};
use ganglion_api::execution::{Claim, Quantities};
use ganglion_api::scalars::Number;

/// Dimension of the number of replicas.
pub const REPLICAS: &str = "replicas";

/// uid of the target, and of the one pod that stands for all.
const UID: &str = "target";

/// Target of a loop on a virtual clock.
pub trait LoopTarget: Clone {
    /// Number of replicas; None if it is not known.
    fn replicas(&self) -> Option<i32>;

    /// Number of pods that serve at this time.
    fn serving(&self, now: Timestamp) -> i32;

    /// State of the target for this rung, as an Execution reads it.
    fn read(&self, rung: &Rung, claim: Option<&Claim>) -> TargetState;

    /// Carries out an effect of this rung.
    fn apply(&mut self, rung: &Rung, claim: Option<&Claim>, effect: &ExecutionEffect, now: Timestamp) -> EffectResult;
}

/// Simulated target.
#[derive(Clone, Debug)]
pub struct SimulatedTarget {
    /// Values by dimension, see [`rung::dimension`].
    values: BTreeMap<String, String>,
    /// Increases with each change.
    generation: i64,
    /// WorkloadAction that was created last.
    action: Option<String>,
    serving: ServingPods,
}

/// Number of pods that serve.
#[derive(Clone, Debug)]
struct ServingPods {
    delay: SignedDuration,
    now: i32,
    /// Numbers that will be reached when new pods have started, the earliest first.
    starting: VecDeque<(Timestamp, i32)>,
}

impl ServingPods {
    fn set(&mut self, replicas: i32, at: Timestamp) {
        self.now = self.at(at);
        self.starting.retain(|(start, _)| *start > at);
        for (_, number) in &mut self.starting {
            *number = (*number).min(replicas);
        }
        if replicas > self.now && !self.delay.is_zero() {
            self.starting.push_back((later(at, self.delay), replicas));
        } else {
            self.now = replicas;
        }
    }

    fn at(&self, now: Timestamp) -> i32 {
        let started = self.starting.iter().filter(|(start, _)| *start <= now).map(|(_, number)| *number);
        started.chain([self.now]).max().unwrap_or(self.now)
    }
}

impl SimulatedTarget {
    /// A target with these values by dimension. `delay`: time until a new pod serves.
    pub fn new(values: BTreeMap<String, String>, delay: SignedDuration) -> Self {
        let now = values.get(REPLICAS).and_then(|text| text.parse().ok()).unwrap_or(0);
        let serving = ServingPods { delay, now, starting: VecDeque::new() };
        Self { values, generation: 1, action: None, serving }
    }

    /// Values by dimension.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    fn version(&self) -> ObjectVersion {
        ObjectVersion { uid: UID.into(), generation: self.generation, ..ObjectVersion::default() }
    }

    /// One pod, which stands for all. Its memory usage is not in the history, so that it bounds nothing.
    fn resources(&self, resize: &Resize, value: &str) -> TargetState {
        let amount = Some(Number(value.to_owned()));
        let wants = match resize.what.unwrap_or(Bounds::Both) {
            Bounds::Requests => Quantities { request: amount, limit: None },
            Bounds::Limits => Quantities { request: None, limit: amount },
            Bounds::Both => Quantities { request: amount.clone(), limit: amount },
        };
        let pod = PodResources {
            name: UID.to_owned(),
            thing: self.version(),
            index: Some(0),
            has: Some(wants.clone()),
            allocated: Some(wants.clone()),
            wants: wants.clone(),
            usage: Some(0),
            ..PodResources::default()
        };
        let (target, template) = (self.version(), Some((Some(0), wants)));
        TargetState::Resources(Box::new(ResizeTarget { target, template, pods: vec![pod], ..ResizeTarget::default() }))
    }
}

impl LoopTarget for SimulatedTarget {
    fn replicas(&self) -> Option<i32> {
        self.values.get(REPLICAS)?.parse().ok()
    }

    fn serving(&self, now: Timestamp) -> i32 {
        self.serving.at(now)
    }

    fn read(&self, rung: &Rung, claim: Option<&Claim>) -> TargetState {
        let dimension = rung::dimension(rung);
        let unknown = || TargetState::NotFound(format!("{dimension} of the target is not part of the replay"));
        let value = self.values.get(&dimension);
        match rung {
            Rung { scale: Some(_), .. } => {
                self.replicas().map_or_else(unknown, |replicas| TargetState::Scale(self.version(), replicas))
            }
            Rung { workload_action: Some(template), .. } => {
                let claimed = claim.and_then(|claim| claim.goal.workload_action.as_ref());
                if claimed.is_some() || template.move_.is_some() {
                    let done = WorkloadActionState::Succeeded("simulated".to_owned());
                    let exists = claimed.is_some() && claimed == self.action.as_ref();
                    return TargetState::WorkloadAction(exists.then_some(done));
                }
                self.replicas().map_or_else(unknown, |replicas| TargetState::Workload(self.version(), replicas))
            }
            Rung { resize: Some(resize), .. } => value.map_or_else(unknown, |value| self.resources(resize, value)),
            Rung { patch: Some(_), .. } => TargetState::Field(self.version(), value.map(|text| json(text))),
            Rung { tune: Some(_), .. } => {
                TargetState::NotFound("the loop that it tunes is not part of the replay".to_owned())
            }
            Rung { scale: None, resize: None, workload_action: None, patch: None, tune: None, .. } => {
                TargetState::Nothing
            }
        }
    }

    fn apply(&mut self, rung: &Rung, claim: Option<&Claim>, effect: &ExecutionEffect, now: Timestamp) -> EffectResult {
        let dimension = rung::dimension(rung);
        let mut value = None;
        match effect {
            ExecutionEffect::Scale { replicas, .. } => value = Some(replicas.to_string()),
            ExecutionEffect::Resize { pods, .. } => {
                value = pods.first().and_then(|pod| pod.to.request.as_ref().or(pod.to.limit.as_ref())).map(text);
            }
            ExecutionEffect::Template { to, .. } => value = to.request.as_ref().or(to.limit.as_ref()).map(text),
            ExecutionEffect::Patch { value: field, .. } => value = Some(field.to_string()),
            ExecutionEffect::Create { name, .. } => {
                self.action = Some(name.clone());
                value = claim.and_then(|claim| claim.goal.replicas).map(|replicas| replicas.to_string());
            }
            ExecutionEffect::TakeBack { .. } | ExecutionEffect::Send { .. } | ExecutionEffect::Tune { .. } => {}
        }
        if let Some(value) = &value {
            self.generation += 1;
            if let (REPLICAS, Ok(replicas)) = (dimension.as_str(), value.parse()) {
                self.serving.set(replicas, now);
            }
            self.values.insert(dimension, value.clone());
        }
        EffectResult::Done(value)
    }
}

fn text(number: &Number) -> String {
    number.0.clone()
}

/// A value that a user has written without quotes.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
