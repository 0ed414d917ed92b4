//! `congestion` as an agent of a policy. The formulas are in `placement::congestion`.

use super::{Agent, AgentError, decimal, scores, words_of};
use crate::api::placement_policy::agents::CongestionAgent;
use crate::logic::facts::CONGESTION;
use crate::logic::placement::congestion::{Congestion as Factor, CongestionRules};
use crate::logic::placement::question::{Opinion, PlacementQuestion};

#[derive(Debug)]
struct Congestion(CongestionRules);

pub fn compile(options: &CongestionAgent) -> Result<Box<dyn Agent>, AgentError> {
    let rules = match decimal(options.max.as_ref(), 0.0)? {
        0.0 => CongestionRules::default(),
        max => CongestionRules::new(max),
    };
    Ok(Box::new(Congestion(rules)))
}

impl Agent for Congestion {
    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let published = question.candidates.iter().flatten().any(|node| node.node.published.contains_key(CONGESTION));
        if !published {
            return Opinion::Abstains(format!("no node has the annotation {CONGESTION}"));
        }
        scores(question, |node| self.0.score(node.congestion))
    }

    fn words(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        words_of(question, at, |node| match (node.congestion, node.node.published.get(CONGESTION)) {
            (_, None) => format!("no annotation {CONGESTION}: not congested"),
            (Factor::Factor(factor), Some(_)) => format!("factor {factor}"),
            (Factor::Malformed, Some(text)) => format!("the annotation {CONGESTION} is no number: {text:?}"),
        })
    }
}
