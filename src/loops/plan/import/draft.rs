//! A loop under construction.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::difference::ImportDifference;
use super::names::MetricNames;
use ganglion_api::closed_loop::{ClosedLoopSpec, TargetRef};

/// Maximum number of metrics of a loop.
const MOST_METRICS: usize = 16;

/// Largest number of replicas of a loop.
pub const MOST_REPLICAS: i32 = 100_000;

/// Choices of the user.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Account of the loop. None: the default of the field.
    pub service_account: Option<String>,
}

/// Result of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedLoop {
    /// The spec of the loop, with only the fields that are set.
    pub manifest: Value,
    pub spec: ClosedLoopSpec,
    /// Differences that apply to this object, each a sentence.
    pub differences: Vec<String>,
    /// Steps that the user should take first, each a sentence.
    pub warnings: Vec<String>,
}

/// Error: the object has fields that a loop cannot express.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("a loop cannot do the same, so nothing was changed:\n- {}", problems.join("\n- "))]
pub struct ImportRefusal {
    /// One for each field, with advice.
    pub problems: Vec<String>,
}

impl ImportRefusal {
    /// Refusal for one reason.
    pub fn of(problem: impl Into<String>) -> Self {
        Self { problems: vec![problem.into()] }
    }
}

/// How the action on a metric determines the number.
#[derive(Clone, Debug)]
pub struct TrackDraft {
    /// Utilization, AverageValue or Value.
    pub type_: &'static str,
    pub target: String,
    pub activation: Option<String>,
}

impl TrackDraft {
    /// Tracks this target.
    pub fn new(type_: &'static str, target: impl Into<String>) -> Self {
        Self { type_, target: target.into(), activation: None }
    }
}

/// A loop under construction.
#[derive(Debug, Default)]
pub struct LoopDraft {
    names: MetricNames,
    metrics: Vec<Value>,
    /// Name of the metric; None: only the schedule sets the number.
    actions: Vec<(String, Option<TrackDraft>)>,
    /// Members that all actions share: min, max, up, down, cooldown, schedule.
    pub pace: Map<String, Value>,
    pub tolerance: Option<Value>,
    pub differences: BTreeSet<ImportDifference>,
    /// Differences whose sentence depends on the object.
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
    problems: Vec<String>,
}

impl LoopDraft {
    /// Adds what the loop cannot express.
    pub fn refuse(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    pub fn differs(&mut self, by: impl IntoIterator<Item = ImportDifference>) {
        self.differences.extend(by);
    }

    /// Adds a metric. Returns its name.
    pub fn metric(&mut self, text: &str, source: Value, missing: Option<Value>) -> String {
        let name = self.names.add(text);
        let mut metric = json!({"name": name, "source": source});
        if let Some(missing) = missing {
            metric["missing"] = missing;
        }
        self.metrics.push(metric);
        name
    }

    /// Adds an action on side Target for this metric.
    pub fn track(&mut self, metric: String, track: Option<TrackDraft>) {
        self.actions.push((metric, track));
    }

    /// Sets min and max.
    pub fn bounds(&mut self, (min_field, min): (&str, i32), (max_field, max): (&str, i32)) {
        for (field, number) in [(min_field, min), (max_field, max)] {
            if !(0..=MOST_REPLICAS).contains(&number) {
                self.refuse(format!("{field} is {number}: use 0 to {MOST_REPLICAS}"));
            }
        }
        self.pace.insert("min".to_owned(), json!(min));
        self.pace.insert("max".to_owned(), json!(max));
    }

    /// The loop, if everything could be expressed.
    pub fn finish(
        mut self,
        target: &TargetRef,
        interval: &str,
        options: &ImportOptions,
    ) -> Result<ImportedLoop, ImportRefusal> {
        if self.metrics.len() > MOST_METRICS {
            let count = self.metrics.len();
            self.refuse(format!(
                "the loop would have {count} metrics: use at most {MOST_METRICS}, or combine some of them in the source"
            ));
        }
        let manifest = self.manifest(target, interval, options);
        let spec = match serde_json::from_value::<ClosedLoopSpec>(manifest.clone()) {
            Ok(spec) => {
                self.problems.extend(unknown_sources(&manifest, &spec));
                spec
            }
            Err(error) => {
                self.refuse(format!("the spec of the loop is not valid: {error}"));
                ClosedLoopSpec::default()
            }
        };
        if !self.problems.is_empty() {
            return Err(ImportRefusal { problems: self.problems });
        }
        let differences = self.differences.iter().map(|one| one.text().to_owned()).chain(self.notes).collect();
        Ok(ImportedLoop { manifest, spec, differences, warnings: self.warnings })
    }

    /// The spec of the loop as JSON.
    pub fn manifest(&self, target: &TargetRef, interval: &str, options: &ImportOptions) -> Value {
        let mut manifest = json!({"interval": interval});
        if let Some(account) = &options.service_account {
            manifest["serviceAccountName"] = json!(account);
        }
        manifest["target"] = json!(target);
        manifest["metrics"] = json!(self.metrics);
        manifest["actions"] = self.actions.iter().map(|(metric, track)| self.action(metric, track.as_ref())).collect();
        manifest
    }

    fn action(&self, metric: &str, track: Option<&TrackDraft>) -> Value {
        let mut scale = Map::new();
        if let Some(TrackDraft { type_, target, activation }) = track {
            let mut member = json!({"type": type_, "target": target});
            if let Some(tolerance) = &self.tolerance {
                member["tolerance"] = tolerance.clone();
            }
            if let Some(activation) = activation {
                member["activation"] = json!(activation);
            }
            scale.insert("track".to_owned(), member);
        }
        scale.extend(self.pace.clone());
        json!({"when": {"metric": metric, "side": "Target"}, "ladder": [{"scale": scale}]})
    }
}

/// Sources that this version does not have: they are lost when the spec is parsed.
fn unknown_sources(manifest: &Value, spec: &ClosedLoopSpec) -> Vec<String> {
    let lost = |(index, metric): (usize, &Value)| {
        let parsed = serde_json::to_value(&spec.metrics.get(index)?.source).ok()?;
        let given = metric["source"].as_object()?.keys().next()?;
        let name = metric["name"].as_str().unwrap_or_default();
        parsed.get(given).is_none().then(|| {
            format!(
                "metric {name} needs the source {given}, which this version of Ganglion does not have: use a version that \
                 has it, or read the number from Prometheus (source prometheus)"
            )
        })
    };
    manifest["metrics"].as_array().into_iter().flatten().enumerate().filter_map(lost).collect()
}
