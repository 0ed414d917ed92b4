//! `power` as an agent of a policy. The formulas are in `placement::power`; predictions come from memory.

use std::borrow::Cow;

use jiff::Timestamp;

use super::{Agent, AgentError, fraction, words_of};
use crate::api::node_config::status::NodeValue;
use crate::api::placement_policy::agents::{CpuUsageFormat, PowerAgent};
use crate::logic::placement::power::{Increment, NOT_FETCHED, PowerNode, PowerScale, PowerUsage, UsageScale, scores};
use crate::logic::placement::question::{Opinion, PlacementQuestion};
use crate::logic::placement::record::{NodeRecord, SampleRules};

/// WAO's base, in percent.
const DEFAULT_BASE: i32 = 20;

#[derive(Debug)]
struct Power {
    assumption: f64,
    usage: UsageScale,
    scale: PowerScale,
}

pub fn compile(options: &PowerAgent) -> Result<Box<dyn Agent>, AgentError> {
    let usage = match options.cpu_usage_format.unwrap_or_default() {
        CpuUsageFormat::Percent => UsageScale::Percent,
        CpuUsageFormat::Raw => UsageScale::Cores,
    };
    Ok(Box::new(Power {
        assumption: fraction(options.pod_usage_assumption.as_ref(), 0.5)?,
        usage,
        scale: PowerScale::of_extender(f64::from(options.base.unwrap_or(DEFAULT_BASE))),
    }))
}

/// Predicted watts before and after the pod.
type Prediction = Result<(f64, f64), (Increment, Cow<'static, str>)>;

impl Power {
    fn prediction(&self, question: &PlacementQuestion<'_>, record: &NodeRecord) -> Prediction {
        let unknown = |words: &'static str| (Increment::Unknown, Cow::Borrowed(words));
        let cores = |millis: i64| millis as f64 / 1000.0;
        let pod = cores(question.pod.cores);
        if pod <= 0.0 {
            return Err(unknown("the pod neither requests nor limits CPU"));
        }
        let capacity = cores(record.cpu_capacity);
        let usage = record.value(NodeValue::Cpu, question.now).map(|percent| percent / 100.0 * capacity);
        if usage.is_none() {
            return Err(unknown(NO_USAGE));
        }
        let node = PowerNode { capacity, usage, pending: cores(record.pending) };
        let PowerUsage { before, after } = node.inputs(pod, self.assumption, self.usage).map_err(|increment| {
            let words = match increment {
                Increment::Overcommit => "the pod needs more CPU than the node has left",
                Increment::Unknown | Increment::Watts(_) => "the node has no CPU",
            };
            (increment, Cow::Borrowed(words))
        })?;
        let watts = |usage| question.predictions.watts(record, usage, self.usage, question.now);
        let (before, after) = (watts(before), watts(after));
        Ok((before.map_err(|words| (Increment::Unknown, words))?, after.map_err(|words| (Increment::Unknown, words))?))
    }
}

const NO_USAGE: &str = "no NodeConfig with fresh usage of CPU";

impl Agent for Power {
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let predictions: Vec<Option<Prediction>> =
            question.candidates.iter().map(|record| record.map(|record| self.prediction(question, record))).collect();
        let increment = |one: &Option<Prediction>| match one {
            Some(Ok((before, after))) => Increment::between(*before, *after),
            Some(Err((increment, _))) => *increment,
            None => Increment::Unknown,
        };
        let increments: Vec<Increment> = predictions.iter().map(increment).collect();
        if increments.iter().all(|increment| *increment == Increment::Unknown) {
            let why = predictions.into_iter().flatten().find_map(|one| one.err().map(|(_, words)| words.into_owned()));
            return Opinion::Abstains(why.unwrap_or_else(|| "no node is known yet".to_owned()));
        }
        Opinion::Scores(scores(&increments, self.scale))
    }

    fn words(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        words_of(question, at, |record| match self.prediction(question, record) {
            Ok((before, after)) => format!("{:+.2} W ({before:.1} to {after:.1})", after - before),
            Err((_, words)) => words.into_owned(),
        })
    }

    fn lacks(&self, _: &NodeRecord, _: Timestamp, _: &SampleRules) -> Option<String> {
        Some(NOT_FETCHED.to_owned())
    }
}
