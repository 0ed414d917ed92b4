//! Scores: expressions in the same language as conditions, with a number as result, for metrics and nodes.
//!
//! Must not depend on the use of a score.

use std::sync::Arc;

use cel::Value;

use super::Compiled;
use super::check::ResultKind;
use super::error::ExpressionError;
use super::metric::MetricView;
use super::names::{NodeView, Subject, Vocabulary};

/// A score of a metric, parsed and checked. Clones share it. Equal if the texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score(Arc<Compiled>);

impl Score {
    /// Parses and checks an expression of at most [`super::MAX_CHARS`] characters whose result is a number.
    ///
    /// Starts a thread and waits for it, about a millisecond, so callers should cache the result.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Compiled::parse(Vocabulary::Metric, ResultKind::Number, text).map(|compiled| Self(Arc::new(compiled)))
    }

    /// The number for this metric; None if there is no result, as after a division by zero.
    pub fn of(&self, metric: &MetricView<'_>) -> Option<f64> {
        number(&self.0.evaluate(Subject::Metric(metric)).ok()?)
    }

    /// The source text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

/// A score of a node, parsed and checked. Clones share it. Equal if the texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeScore(Arc<Compiled>);

impl NodeScore {
    /// Like [`Score::parse`], with the names of nodes.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Compiled::parse(Vocabulary::Node, ResultKind::Number, text).map(|compiled| Self(Arc::new(compiled)))
    }

    /// The number for this node. Fails like [`super::Expression::matches`], and if the result is not a finite number.
    pub fn of(&self, node: &NodeView<'_>) -> Result<f64, ExpressionError> {
        let found = self.0.evaluate(Subject::Node(node)).map_err(|error| self.0.explain(&error, node.name))?;
        number(&found).ok_or_else(|| ExpressionError::NotFinite { node: node.name.to_owned() })
    }
}

/// Converts a finite number.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Float(number) => *number,
        Value::Int(number) => *number as f64,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const VIEW: MetricView<'static> =
        MetricView { name: "cpu", side: "Low", value: 2.0, excess: 0.6, rank: 0, wanted: 9, served: 4, limited: 1 };

    #[rstest]
    #[case("metric.excess * 10.0 - double(metric.served)", Some(2.0))]
    #[case("metric.wanted - metric.served", Some(5.0))]
    #[case(r#"metric.name == "cpu" ? 1 : 0"#, Some(1.0))]
    #[case(r#"metric.side == "High" ? 1.0 : metric.value"#, Some(2.0))]
    #[case("metric.served / metric.rank", None)]
    #[case("metric.value / 0.0", None)]
    fn gives_a_number(#[case] text: &str, #[case] expected: Option<f64>) {
        assert_eq!(Score::parse(text).unwrap().of(&VIEW), expected);
    }

    #[rstest]
    #[case("metric.name", "not a number")]
    #[case("metric.value < 3.0", "not a number")]
    #[case("node.pods", "known are metric.name")]
    #[case("metric.labels.a", "known are metric.name")]
    #[case("node.labels[\"a\"]", "cannot be used")]
    #[case("[1, 2].map(x, x)", "cannot be used")]
    fn refuses_what_gives_none(#[case] text: &str, #[case] words: &str) {
        let error = Score::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
