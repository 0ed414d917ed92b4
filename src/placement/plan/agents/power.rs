//! The agent `power` of a policy. The formulas are in `placement::power`; the watts are predicted by the nodes'
//! NodeConfigs.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use jiff::Timestamp;

use super::{Agent, AgentError, explained, fraction};
use crate::power::{Increment, PowerNode, PowerScale, PowerUsage, scores};
use crate::question::{Opinion, PlacementQuestion};
use crate::record::{NodeRecord, PredictedPower, SampleRules};
use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_api::placement_policy::agents::PowerAgent;
use ganglion_api::placement_policy::reasons::PolicyReason;

/// Default base in percent, the same as in WAO.
const DEFAULT_BASE: i32 = 20;

/// Valid bases in percent. They round to scores above that of an overcommitted node and below the best score.
const BASES: RangeInclusive<i32> = 15..=90;

#[derive(Debug)]
struct Power {
    assumption: f64,
    /// Required usage format of power models; None accepts all formats.
    format: Option<CpuUsageFormat>,
    scale: PowerScale,
}

pub fn compile(options: &PowerAgent) -> Result<Box<dyn Agent>, AgentError> {
    let base = options.base.unwrap_or(DEFAULT_BASE);
    if !BASES.contains(&base) {
        let words = format!("base must be {} to {}", BASES.start(), BASES.end());
        return Err((PolicyReason::SpecInvalid, words));
    }
    Ok(Box::new(Power {
        assumption: fraction(options.pod_usage_assumption.as_ref(), 0.5)?,
        format: options.cpu_usage_format,
        scale: PowerScale::of_extender(f64::from(base)),
    }))
}

/// Predicted watts before and after the pod is placed; as an error the increment without a prediction, and its reason.
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
        let usage = record.cpu_usage.and_then(|cpu| cpu.at(question.now)).map(|percent| percent / 100.0 * capacity);
        let pending = record.pending.saturating_add(question.likely(record).cores);
        let node = PowerNode { capacity, usage, pending: cores(pending) };
        let predicted = node.predicted(pod, self.assumption);
        // Checked before the prediction: overcommitment is known even if no power is predicted.
        if predicted == Err(Increment::Overcommit) {
            return Err((Increment::Overcommit, "the pod needs more CPU than the node has left".into()));
        }
        let power = self.predicted(record, question.now).map_err(|words| (Increment::Unknown, words))?;
        let PowerUsage { before, after } =
            predicted.map_err(|_| unknown(if usage.is_none() { NO_USAGE } else { "the node has no CPU" }))?;
        let watts =
            |cores: f64| power.curve.watts(cores / capacity).ok_or_else(|| unknown("usage is outside the power curve"));
        Ok((watts(before)?, watts(after)?))
    }

    fn predicted<'r>(&self, record: &'r NodeRecord, now: Timestamp) -> Result<&'r PredictedPower, Cow<'static, str>> {
        let power = record.power.as_deref().ok_or(NO_CURVE)?;
        if now > power.until {
            return Err(OLD_CURVE.into());
        }
        match self.format.zip(power.format).filter(|(required, format)| required != format) {
            Some((required, format)) => Err(format!(
                "the power model in the node's NodeConfig has cpuUsageFormat: {}, but the policy requires {}",
                format.as_str(),
                required.as_str()
            )
            .into()),
            None => Ok(power),
        }
    }
}

const NO_CURVE: &str =
    "no NodeConfig has current predicted power: create one with predictor.powerConsumption, or see its DataAvailable";
const OLD_CURVE: &str = "the predicted power of its NodeConfig is stale";
const LINE: &str = ", by the straight line of the measured power, which is better than the predictor";
const NO_USAGE: &str = "no NodeConfig has a fresh CPU usage";

impl Agent for Power {
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let predict = |record: &NodeRecord| self.prediction(question, record);
        let increment = |record: &Option<&NodeRecord>| match record.map(predict) {
            Some(Ok((before, after))) => Increment::between(before, after),
            Some(Err((increment, _))) => increment,
            None => Increment::Unknown,
        };
        let increments: Vec<Increment> = question.candidates.iter().map(increment).collect();
        // Without any prediction, overcommitted nodes would score better than nodes with missing data.
        if !increments.iter().any(|increment| matches!(increment, Increment::Watts(_))) {
            let why = question.candidates.iter().flatten().find_map(|record| predict(record).err());
            return Opinion::Abstains(
                why.map_or_else(|| "no candidate is in the cache yet".to_owned(), |(_, why)| why.into_owned()),
            );
        }
        Opinion::Scores(scores(&increments, self.scale))
    }

    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        explained(question, at, |record| match self.prediction(question, record) {
            Ok((before, after)) => {
                let line = if record.power.as_ref().is_some_and(|power| power.is_discounted) { LINE } else { "" };
                format!("{:+.2} W ({before:.1} to {after:.1}){line}", after - before)
            }
            Err((_, words)) => words.into_owned(),
        })
    }

    fn lacks(&self, node: &NodeRecord, now: Timestamp, _: &SampleRules) -> Option<String> {
        match self.predicted(node, now) {
            Err(words) => Some(words.into_owned()),
            Ok(_) => node.cpu_usage.and_then(|cpu| cpu.at(now)).is_none().then(|| NO_USAGE.to_owned()),
        }
    }
}
