//! The loop of a replay: its spec, parsed once, the options of the user, and what the history of it lacks.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use thiserror::Error;

use super::effect::{EffectError, EffectModel};
use super::recording::Recording;
use super::target::REPLICAS;
use crate::children::{Children, children};
use crate::common::FieldError;
use crate::decision::DecisionRules;
use crate::monitoring::MonitoringRules;
use crate::monitoring::source_rule::SourceRule;
use crate::rung;
use crate::schedule::CronNumber;
use crate::tuning::effective_policy::declared;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::closed_loop::{ClosedLoopSpec, LoopMode};
use ganglion_core::duration::show;
use ganglion_core::quantity;

/// Options of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Values at the start of what the actions change, by dimension, such as `replicas` or `app/cpu`.
    pub start: BTreeMap<String, String>,
    /// Models of the effect, see [`EffectModel::parse`].
    pub effects: Vec<String>,
    /// Time until a new pod serves, or an action has its effect.
    pub delay: SignedDuration,
    /// Whether each proposal of a loop with mode Approve is approved at once.
    pub approves: bool,
}

/// Error: a loop cannot be replayed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Effect(#[from] EffectError),
    #[error("the loop reads or changes {dimension}: give its value at the start with --start {dimension}=VALUE")]
    NoStart { dimension: String },
    #[error("--start {dimension}={value}: {problem}")]
    Start { dimension: String, value: String, problem: String },
    #[error("the replay of {0} does not end at one time: its stages follow each other without a pause")]
    Restless(String),
}

/// How the values of a metric arrive in a replay.
#[derive(Clone, Debug)]
pub enum ReplayedSource {
    /// A sender pushes them with this key.
    Pushed(String),
    /// The operator polls them.
    Polled,
    /// They follow from the time.
    Cron(CronNumber),
    /// They are computed from other metrics.
    Computed,
}

/// The loop of a replay.
#[derive(Clone, Debug)]
pub struct ReplayRules {
    pub name: String,
    pub spec: ClosedLoopSpec,
    pub(super) children: Children,
    pub(super) watches: MonitoringRules,
    pub(super) decides: DecisionRules,
    pub(super) effect: EffectModel,
    pub(super) delay: SignedDuration,
    pub(super) approves: bool,
    pub(super) sources: Vec<(String, ReplayedSource)>,
    start: BTreeMap<String, String>,
}

impl ReplayRules {
    /// Parses a loop and the options.
    pub fn new(name: &str, spec: &ClosedLoopSpec, options: &ReplayOptions) -> Result<Self, ReplayError> {
        let children = children(spec, &declared(spec), None, None);
        let watches = MonitoringRules::parse(&children.monitoring)?;
        let decides = DecisionRules::parse(&children.decision)?;
        let effect = EffectModel::parse(&options.effects, spec)?;
        let sources = spec.metrics.iter().map(|metric| Ok((metric.name.clone(), source(metric)?)));
        let sources = sources.collect::<Result<_, FieldError>>()?;
        let rules = Self {
            name: name.to_owned(),
            spec: spec.clone(),
            children,
            watches,
            decides,
            effect,
            delay: options.delay,
            approves: options.approves,
            sources,
            start: options.start.clone(),
        };
        rules.check_start()?;
        Ok(rules)
    }

    /// Names that a recording may have: metrics that are not computed, and the number of replicas.
    pub fn recordable(&self) -> BTreeSet<String> {
        let measured = self.sources.iter().filter(|(_, source)| !matches!(source, ReplayedSource::Computed));
        measured.map(|(name, _)| name.clone()).chain([REPLICAS.to_owned()]).collect()
    }

    /// Whether the operator polls sources, or the target once per interval.
    pub(super) fn is_polled(&self) -> bool {
        self.watches.tracking.is_some()
            || self.spec.metrics.iter().any(|metric| SourceRule::of(&metric.source).is_polled)
    }

    /// Interval of the loop.
    pub fn interval(&self) -> SignedDuration {
        self.watches.interval
    }

    /// Names that a value at the start may have: what the actions of a loop change, and the number of replicas.
    pub fn dimensions_of(spec: &ClosedLoopSpec) -> BTreeSet<String> {
        let of_rung = |rung: &Rung| {
            let is_known = rung.webhook.is_some() || rung.tune.is_some();
            let is_moved = rung.workload_action.as_ref().is_some_and(|template| template.move_.is_some());
            (!is_known && !is_moved).then(|| rung::dimension(rung))
        };
        rungs(spec).filter_map(of_rung).chain([REPLICAS.to_owned()]).collect()
    }

    /// Dimensions whose value the loop reads.
    fn dimensions(&self) -> BTreeSet<String> {
        let mut dimensions = Self::dimensions_of(&self.spec);
        let changes = rungs(&self.spec).any(|rung| rung::dimension(rung) == REPLICAS);
        if !(changes || self.watches.reads_replicas() || self.effect.needs_replicas()) {
            dimensions.remove(REPLICAS);
        }
        dimensions
    }

    fn check_start(&self) -> Result<(), ReplayError> {
        for (dimension, value) in &self.start {
            let problem = |problem: String| {
                let (dimension, value) = (dimension.clone(), value.clone());
                ReplayError::Start { dimension, value, problem }
            };
            if dimension == REPLICAS && !value.parse::<i32>().is_ok_and(|replicas| replicas >= 0) {
                return Err(problem("use a whole number of 0 or more".to_owned()));
            }
            let is_amount = rungs(&self.spec).any(|rung| rung.resize.is_some() && rung::dimension(rung) == *dimension);
            if is_amount {
                quantity::number(value).map_err(|error| problem(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// Values at the start: those of the options, or the first recorded number of replicas.
    pub(super) fn start_values(&self, recording: &Recording) -> Result<BTreeMap<String, String>, ReplayError> {
        let mut values = self.start.clone();
        let recorded = recording.samples(REPLICAS).into_iter().flatten().find_map(|sample| sample.value.as_ref().ok());
        let recorded = recorded.and_then(|text| quantity::number(text).ok()).filter(|number| *number >= 0.0);
        if let Some(replicas) = recorded {
            values.entry(REPLICAS.to_owned()).or_insert_with(|| format!("{replicas:.0}"));
        }
        match self.dimensions().into_iter().find(|dimension| !values.contains_key(dimension)) {
            Some(dimension) => Err(ReplayError::NoStart { dimension }),
            None => Ok(values),
        }
    }

    /// Describes what the replay lacks or assumes, besides the effect.
    pub(super) fn limits(&self, recording: &Recording) -> Vec<String> {
        let mut limits = self.mode_limits();
        for (name, source) in &self.sources {
            limits.extend(self.source_limit(name, source, recording));
        }
        let has = |test: fn(&Rung) -> bool| rungs(&self.spec).any(test);
        if has(|rung| rung.workload_action.is_some()) {
            limits.push("WorkloadActions are counted as succeeded at once, and moves change nothing".to_owned());
        }
        if has(|rung| rung.resize.is_some()) {
            let words = "resizes are counted as carried out at once, on one pod that stands for all; memory usage is unknown and \
                bounds nothing";
            limits.push(words.to_owned());
        }
        if has(|rung| rung.webhook.is_some()) {
            limits.push("events are counted as sent".to_owned());
        }
        if has(|rung| rung.tune.is_some()) {
            limits.push("the loop that is tuned is not part of the replay, so its tuning fails".to_owned());
        }
        if self.spec.tunable.is_some() {
            limits.push("tuning by other loops is not replayed".to_owned());
        }
        limits.push("changes of the target by others, conflicts and missing rights are not replayed".to_owned());
        limits
    }

    fn mode_limits(&self) -> Vec<String> {
        match (self.spec.mode, self.approves) {
            (LoopMode::Paused, _) => vec!["the loop is paused, so it decides nothing".to_owned()],
            (LoopMode::Approve, true) => vec!["each proposal is approved at once".to_owned()],
            (LoopMode::Approve, false) => {
                vec!["approvals by people are not in the history: no proposal is approved (see --approve)".to_owned()]
            }
            (LoopMode::DryRun, _) => vec!["the loop is in mode DryRun, so nothing is carried out".to_owned()],
            (LoopMode::Auto, _) => Vec::new(),
        }
    }

    /// Why the values of a metric are not those of the running loop, if so.
    fn source_limit(&self, name: &str, source: &ReplayedSource, recording: &Recording) -> Option<String> {
        let is_computed = match source {
            ReplayedSource::Computed => true,
            ReplayedSource::Cron(_) => recording.samples(name).is_none(),
            ReplayedSource::Pushed(_) | ReplayedSource::Polled => false,
        };
        if is_computed {
            return None;
        }
        let metric = self.spec.metrics.iter().find(|metric| metric.name == name)?;
        let Some(samples) = recording.samples(name) else {
            let source = SourceRule::of(&metric.source).name;
            return Some(format!("metric {name}: the recording has no values of its source {source}: it is unknown"));
        };
        if self.watches.tracks_pods_of(name) {
            return Some(format!(
                "metric {name}: values of single pods are not in the recording: its target is unknown"
            ));
        }
        match samples.iter().find(|sample| sample.value.is_ok()) {
            None => return Some(format!("metric {name}: it has no value in the whole range")),
            Some(first) if first.at > recording.start() => {
                let words = "the series began then, or the server no longer has older values";
                return Some(format!("metric {name}: it has no value before {:.0}: {words}", first.at));
            }
            Some(_) => {}
        }
        let mut distances: Vec<SignedDuration> =
            samples.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at)).collect();
        distances.sort_unstable();
        let usual = distances.get(distances.len() / 2)?;
        let age = self.watches.levels_of(name)?.after;
        (*usual > age).then(|| {
            let (usual, age) = (show(*usual), show(age));
            format!("metric {name}: its values are {usual} apart and count for {age} (missing.after): it is unknown in between")
        })
    }
}

fn rungs(spec: &ClosedLoopSpec) -> impl Iterator<Item = &Rung> {
    spec.actions.iter().flatten().flat_map(|action| &action.ladder)
}

fn source(metric: &Metric) -> Result<ReplayedSource, FieldError> {
    if let Some(push) = &metric.source.push {
        return Ok(ReplayedSource::Pushed(push.key.clone().unwrap_or_else(|| metric.name.clone())));
    }
    if let Some(cron) = &metric.source.cron {
        return Ok(ReplayedSource::Cron(CronNumber::parse(&format!("metrics[{}].source.cron", metric.name), cron)?));
    }
    Ok(if metric.source.formula.is_some() { ReplayedSource::Computed } else { ReplayedSource::Polled })
}
