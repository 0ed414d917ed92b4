//! The agent `expression` of a policy: filters and scores by the user's expressions. It has no formulas of its own.

use super::{Agent, AgentError, explained, on_the_way};
use crate::answered::ExpectedLoad;
use crate::question::{NodeRejection, Opinion, PlacementQuestion};
use crate::record::NodeRecord;
use crate::wire::TOP;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::placement_policy::agents::ExpressionAgent;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::expression::{
    Expression as Condition, ExpressionError, MeasuredView, NodeScore, NodeView, PodsView, ResourceView,
};

#[derive(Debug)]
struct ExpressionScorer {
    filter: Option<Condition>,
    score: Option<NodeScore>,
}

pub fn compile(options: &ExpressionAgent) -> Result<Box<dyn Agent>, AgentError> {
    let failed = |member: &'static str| {
        move |error: ExpressionError| (PolicyReason::ExpressionInvalid, format!("{member}: {error}"))
    };
    let filter = options.filter.as_deref().map(Condition::parse).transpose().map_err(failed("filter"))?;
    let score = options.score.as_deref().map(NodeScore::parse).transpose().map_err(failed("score"))?;
    Ok(Box::new(ExpressionScorer { filter, score }))
}

/// Evaluates an expression on a node with an expected load.
fn view<T>(
    question: &PlacementQuestion<'_>,
    record: &NodeRecord,
    expected: ExpectedLoad,
    look: impl FnOnce(&NodeView<'_>) -> T,
) -> T {
    let node = &record.node;
    let requests = record.requests + expected.requests;
    let pods = record.pods.saturating_add(expected.pods);
    let arriving = expected.pods.max(0);
    let value = |value| record.value(value, question.now);
    let resource = |allocatable, requested| ResourceView { allocatable, requested };
    look(&NodeView {
        name: record.name(),
        labels: &node.labels,
        taints: &node.taints,
        ready: node.ready,
        schedulable: !node.cordoned,
        pods: PodsView { count: pods, arriving, capacity: node.pod_capacity },
        cpu: resource(node.allocatable.cpu, requests.cpu),
        memory: resource(node.allocatable.memory, requests.memory),
        measured: MeasuredView {
            cpu: value(NodeValue::Cpu).map(|percent| percent / 100.0),
            memory: value(NodeValue::Memory).map(|percent| percent / 100.0),
            power: value(NodeValue::Power),
            inlet_temperature: value(NodeValue::InletTemperature),
            differential_pressure: value(NodeValue::DifferentialPressure),
        },
    })
}

impl Agent for ExpressionScorer {
    fn filter(&self, question: &PlacementQuestion<'_>, rejections: &mut [Option<NodeRejection>]) {
        let Some(filter) = &self.filter else { return };
        for (record, rejection) in question.candidates.iter().zip(rejections) {
            if let (Some(record), None) = (record, &rejection) {
                let expected = question.possible(record);
                *rejection = match view(question, record, expected, |node| filter.matches(node)) {
                    Ok(true) => None,
                    Ok(false) => Some(NodeRejection(format!("{} is false{}", filter.as_str(), on_the_way(expected)))),
                    Err(error) => Some(NodeRejection(error.to_string())),
                };
            }
        }
    }

    fn counts_pods(&self) -> bool {
        self.filter.as_ref().is_some_and(Condition::reads_pods)
    }

    fn score(&self, question: &PlacementQuestion<'_>) -> Opinion {
        let Some(score) = &self.score else { return Opinion::FilterOnly };
        let found: Vec<_> = question
            .candidates
            .iter()
            .map(|record| record.map(|record| view(question, record, question.likely(record), |node| score.of(node))))
            .collect();
        if let Some(Err(error)) = found.iter().flatten().find(|one| one.is_err())
            && !found.iter().flatten().any(Result::is_ok)
        {
            return Opinion::Abstains(error.to_string());
        }
        let bounded = |number: f64| number.clamp(0.0, TOP);
        Opinion::Scores(found.into_iter().map(|one| one.and_then(Result::ok).map_or(0.0, bounded)).collect())
    }

    fn explain(&self, question: &PlacementQuestion<'_>, at: usize) -> String {
        explained(question, at, |record| match &self.score {
            None => String::new(),
            Some(score) => match view(question, record, question.likely(record), |node| score.of(node)) {
                Ok(number) => format!("the expression gives {number}"),
                Err(error) => error.to_string(),
            },
        })
    }
}
