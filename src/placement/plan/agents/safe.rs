//! The agent `safe` of a policy. The formulas are in `placement::safe`.

use jiff::Timestamp;

use super::{Agent, AgentError, decimal, explained, fraction, on_the_way, scores};
use crate::answered::ExpectedLoad;
use crate::question::{NodeRejection, Opinion, PlacementQuestion};
use crate::record::{NodeRecord, SampleRules};
use crate::safe::{Judged, Moments, PerResource, SafeRules};
use ganglion_api::placement_policy::agents::{SafeAgent, SafeScore};
use ganglion_api::placement_policy::reasons::PolicyReason;

#[derive(Debug)]
struct Safe {
    rules: SafeRules,
    filters: bool,
    score: SafeScore,
}

pub fn compile(options: &SafeAgent) -> Result<Box<dyn Agent>, AgentError> {
    let default = SafeRules::default();
    let balance = options.balance.clone().unwrap_or_default();
    let rules = SafeRules {
        threshold: fraction(options.utilization.as_ref(), default.threshold)?,
        accepted: fraction(options.risk.as_ref(), default.accepted)?,
        forecast_weight: fraction(options.forecast_weight.as_ref(), default.forecast_weight)?,
        margin: decimal(balance.margin.as_ref(), default.margin)?,
        sensitivity: decimal(balance.sensitivity.as_ref(), default.sensitivity)?,
    };
    if rules.sensitivity <= 0.0 {
        return Err((PolicyReason::SpecInvalid, "balance.sensitivity must be above 0".to_owned()));
    }
    let (filters, score) = (options.filter.unwrap_or(true), options.score.unwrap_or_default());
    Ok(Box::new(Safe { rules, filters, score }))
}

impl Safe {
    fn moments(
        &self,
        question: &PlacementQuestion<'_>,
        node: &NodeRecord,
        expected: &ExpectedLoad,
    ) -> PerResource<Option<Moments>> {
        let requests = question.pod.requests;
        let request = PerResource { cpu: requests.cpu as f64, memory: requests.memory as f64 };
        node.usage(expected, question.now, &question.rules).with(&request, &self.rules)
    }
}

const NO_USAGE: &str = "no fresh usage of CPU or memory, neither in node annotations nor in a NodeConfig";

impl Agent for Safe {
    fn filter(&self, question: &PlacementQuestion<'_>, rejections: &mut [Option<NodeRejection>]) {
        if !self.filters {
            return;
        }
        for (node, rejection) in question.candidates.iter().zip(rejections) {
            if let (Some(node), None) = (node, &rejection) {
                let expected = question.possible(node);
                let moments = self.moments(question, node, &expected);
                if moments.is_surely_accepted(&self.rules) {
                    continue;
                }
                let reason = moments.judge(&self.rules).rejection(&self.rules);
                *rejection = reason.map(|reason| NodeRejection(reason + &on_the_way(expected)));
            }
        }
    }

    fn counts_pods(&self) -> bool {
        self.filters
    }

    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let known = |node: &&NodeRecord| node.sample(question.now, &question.rules).is_some();
        if !question.candidates.iter().flatten().any(known) {
            return Opinion::Abstains(NO_USAGE.to_owned());
        }
        scores(question, |node| {
            let moments = self.moments(question, node, &question.likely(node));
            match self.score {
                SafeScore::Overload => moments.overload(&self.rules),
                SafeScore::Balance => moments.balance(&self.rules),
            }
        })
    }

    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        explained(question, at, |node| {
            let PerResource { cpu, memory } = self.moments(question, node, &question.likely(node)).judge(&self.rules);
            let of = |name: &str, judged: Option<Judged>| {
                let Judged { moments: Moments { mean, deviation }, risk } = judged?;
                Some(format!("{name} risk {risk:.3} (mu {mean:.2}, sigma {deviation:.2})"))
            };
            let known: Vec<String> = [of("cpu", cpu), of("memory", memory)].into_iter().flatten().collect();
            if known.is_empty() { NO_USAGE.to_owned() } else { known.join(", ") }
        })
    }

    fn lacks(&self, node: &NodeRecord, now: Timestamp, rules: &SampleRules) -> Option<String> {
        node.sample(now, rules).is_none().then(|| NO_USAGE.to_owned())
    }
}
