//! Models of the effect of actions on the recorded values. The history does not contain the effect of actions that were
//! not taken, so the report names the model.

use std::fmt::{Display, Formatter, Result as FmtResult};

use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

use super::target::REPLICAS;
use crate::common::decimal_text;
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_core::duration::show;
use ganglion_core::quantity;
use ganglion_core::words::quoted;

/// Effect of actions on the values.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum EffectModel {
    /// The values are as recorded, whatever the loop does.
    #[default]
    None,
    /// The values of these metrics are shares of a total: each is multiplied by the recorded number of replicas, and
    /// divided by the number of simulated pods that serve.
    Proportional(Vec<String>),
    /// Each action changes values as the user says.
    Given(Vec<GivenEffect>),
}

/// Effect of one action, as given by the user.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenEffect {
    /// The alarm or combination of alarms, as text.
    when: String,
    /// Index of the rung on the ladder, from 0.
    rung: usize,
    metric: String,
    change: ValueChange,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ValueChange {
    Multiply(f64),
    Add(f64),
}

/// Error: the text is no model of an effect.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EffectError {
    #[error(
        "{} is no effect: write none, proportional=METRIC,..., or the effect of an action as 'SIDE METRIC/RUNG: METRIC*NUMBER' \
         or 'SIDE METRIC/RUNG: METRIC+NUMBER'",
        quoted(.0)
    )]
    Form(String),
    #[error("effect {}: the loop has no metric {metric} with values of its own: {known}", quoted(text))]
    NoMetric { text: String, metric: String, known: String },
    #[error("effect {}: the loop has no such action: {known}", quoted(text))]
    NoAction { text: String, known: String },
    #[error("several effects can only be effects of actions; use one of none and proportional alone")]
    Mixed,
}

impl EffectModel {
    /// Parses the options of a user. No text stands for no effect.
    pub fn parse(texts: &[String], spec: &ClosedLoopSpec) -> Result<Self, EffectError> {
        let mut given = Vec::new();
        for text in texts {
            let single = match text.split_once('=') {
                None if text == "none" => Some(Self::None),
                Some(("proportional", metrics)) => {
                    let names: Vec<String> = metrics.split(',').map(|name| name.trim().to_owned()).collect();
                    names.iter().try_for_each(|name| check_metric(text, name, spec))?;
                    Some(Self::Proportional(names))
                }
                None | Some(_) => None,
            };
            match single {
                Some(model) if texts.len() == 1 => return Ok(model),
                Some(_) => return Err(EffectError::Mixed),
                None => given.push(GivenEffect::parse(text, spec)?),
            }
        }
        Ok(if given.is_empty() { Self::None } else { Self::Given(given) })
    }

    /// Whether the model depends on the recorded number of replicas.
    pub fn needs_replicas(&self) -> bool {
        matches!(self, Self::Proportional(_))
    }

    /// Describes the model for the report. `delay`: time until a new pod serves, or an action has its effect.
    pub fn describe(&self, delay: SignedDuration) -> String {
        match self {
            Self::None => "none: the values are as recorded, whatever the loop does".to_owned(),
            Self::Proportional(metrics) => format!(
                "proportional: {} is a total shared by the pods that serve; a new pod serves after {}",
                metrics.join(", "),
                show(delay)
            ),
            Self::Given(effects) => {
                let effects = effects.iter().map(GivenEffect::to_string).collect::<Vec<_>>().join("; ");
                format!("given: {effects}; each after {}", show(delay))
            }
        }
    }
}

fn check_metric(text: &str, metric: &str, spec: &ClosedLoopSpec) -> Result<(), EffectError> {
    let measured = || spec.metrics.iter().filter(|metric| metric.source.formula.is_none());
    if measured().any(|one| one.name == metric) {
        return Ok(());
    }
    let known = measured().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
    Err(EffectError::NoMetric { text: text.to_owned(), metric: metric.to_owned(), known })
}

impl GivenEffect {
    fn parse(text: &str, spec: &ClosedLoopSpec) -> Result<Self, EffectError> {
        let form = || EffectError::Form(text.to_owned());
        let (action, change) = text.split_once(": ").ok_or_else(form)?;
        let (when, rung) = action.rsplit_once('/').ok_or_else(form)?;
        let number: usize = rung.parse().map_err(|_| form())?;
        let at = change.find(['*', '+', '-']).ok_or_else(form)?;
        let (metric, operation) = (change[..at].trim(), &change[at..]);
        let read = |text: &str| quantity::number(text.trim()).map_err(|_| form());
        let change = match operation.strip_prefix('*') {
            Some(factor) => ValueChange::Multiply(read(factor)?),
            None => ValueChange::Add(read(operation.trim_start_matches('+'))?),
        };
        check_metric(text, metric, spec)?;
        let actions = || spec.actions.iter().flatten();
        let rung = number.checked_sub(1);
        let is_known = |rung: &usize| actions().any(|one| one.when.to_string() == when && *rung < one.ladder.len());
        let Some(rung) = rung.filter(is_known) else {
            let known =
                actions().flat_map(|one| (1..=one.ladder.len()).map(move |rung| format!("{}/{rung}", one.when)));
            return Err(EffectError::NoAction { text: text.to_owned(), known: known.collect::<Vec<_>>().join(", ") });
        };
        Ok(Self { when: when.to_owned(), rung, metric: metric.to_owned(), change })
    }
}

impl Display for GivenEffect {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let Self { when, rung, metric, change } = self;
        write!(f, "{when}/{}: {metric}", rung + 1)?;
        match change {
            ValueChange::Multiply(factor) => write!(f, "*{factor}"),
            ValueChange::Add(number) => write!(f, "{number:+}"),
        }
    }
}

/// Replicas at the time of a value: those of the recording, and the simulated ones that serve.
#[derive(Clone, Copy, Debug)]
pub struct EffectReplicas {
    pub recorded: Option<f64>,
    pub serving: i32,
}

/// The effects of the actions so far.
#[derive(Clone, Debug, Default)]
pub struct EffectState {
    /// Effects that were caused, each with the time at which it begins.
    caused: Vec<(Timestamp, GivenEffect)>,
}

impl EffectState {
    /// Records that an action was carried out.
    pub fn acted(&mut self, model: &EffectModel, when: &str, rung: usize, begins: Timestamp) {
        let EffectModel::Given(effects) = model else { return };
        let caused = effects.iter().filter(|effect| effect.when == when && effect.rung == rung);
        self.caused.extend(caused.map(|effect| (begins, effect.clone())));
    }

    /// Returns the value that the source would have had. `recorded`: a number or quantity.
    pub fn value(
        &self,
        model: &EffectModel,
        metric: &str,
        recorded: &str,
        replicas: EffectReplicas,
        now: Timestamp,
    ) -> Result<String, String> {
        let number = || quantity::number(recorded).map_err(|error| error.to_string());
        match model {
            EffectModel::None => Ok(recorded.to_owned()),
            EffectModel::Proportional(metrics) if metrics.iter().any(|name| name == metric) => {
                let Some(before) = replicas.recorded else {
                    return Err(format!(
                        "its share is unknown: the recording has no number of {REPLICAS} at this time"
                    ));
                };
                if replicas.serving == 0 {
                    return Err("its share is unknown: no pod serves".to_owned());
                }
                Ok(decimal_text(number()? * before / f64::from(replicas.serving)).0)
            }
            EffectModel::Given(_) if self.caused.iter().any(|(at, effect)| *at <= now && effect.metric == metric) => {
                let mut value = number()?;
                for (_, effect) in self.caused.iter().filter(|(at, effect)| *at <= now && effect.metric == metric) {
                    value = match effect.change {
                        ValueChange::Multiply(factor) => value * factor,
                        ValueChange::Add(number) => value + number,
                    };
                }
                Ok(decimal_text(value).0)
            }
            EffectModel::Proportional(_) | EffectModel::Given(_) => Ok(recorded.to_owned()),
        }
    }
}
