//! The agent `congestion` of a policy. The formulas are in `placement::congestion`.

use super::{Agent, AgentError, decimal, explained, scores};
use crate::congestion::{Congestion as Factor, CongestionRules};
use crate::question::{Opinion, PlacementQuestion};
use crate::record::NodeRecord;
use ganglion_api::placement_policy::agents::CongestionAgent;
use ganglion_core::facts::{CONGESTION, CONGESTION_SAMPLED_AT};
use ganglion_core::words::quoted;

#[derive(Debug)]
struct CongestionScorer(CongestionRules);

pub fn compile(options: &CongestionAgent) -> Result<Box<dyn Agent>, AgentError> {
    let rules = match decimal(options.max.as_ref(), 0.0)? {
        0.0 => CongestionRules::default(),
        max => CongestionRules::new(max),
    };
    Ok(Box::new(CongestionScorer(rules)))
}

impl Agent for CongestionScorer {
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let found = |node: &NodeRecord| node.congestion(question.now, &question.rules);
        if !question.candidates.iter().flatten().any(|node| found(node).is_some()) {
            return Opinion::Abstains(format!("no node has an annotation {CONGESTION} that has not expired"));
        }
        scores(question, |node| self.0.score(found(node).unwrap_or(Factor::NONE)))
    }

    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        explained(question, at, |node| {
            let Some(text) = node.node.published.get(CONGESTION) else {
                return format!("no annotation {CONGESTION}: not congested");
            };
            match node.congestion(question.now, &question.rules) {
                None => format!("the factor has expired by annotation {CONGESTION_SAMPLED_AT}: not congested"),
                Some(Factor::Factor(factor)) => format!("factor {factor}"),
                Some(Factor::Malformed) => format!("the annotation {CONGESTION} is not a number: {}", quoted(text)),
            }
        })
    }
}
