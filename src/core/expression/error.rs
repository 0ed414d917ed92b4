//! Errors in expressions, for the user who wrote the expression.
//!
//! Owns the messages, which are shown in conditions. Must not parse or evaluate.

use super::kind::Kind;
use super::metric;
use super::names;
use super::{MAX_BRACKETS, MAX_CHARS, MAX_DEPTH, MAX_TERMS};
use crate::words::quoted;
use std::io;
use thiserror::Error;

/// Reason why an expression was refused, or has no result for a node.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExpressionError {
    /// The text is empty or white space.
    #[error("an empty expression: write a condition such as node.pods < 3")]
    Empty,
    /// The text is longer than [`MAX_CHARS`].
    #[error("an expression of {chars} characters: the limit is {MAX_CHARS}")]
    TooLong { chars: usize },
    /// More than [`MAX_DEPTH`] nested operations or `MAX_BRACKETS` nested brackets.
    #[error(
        "the expression nests too deeply: the limit is {MAX_DEPTH} nested operations or {MAX_BRACKETS} nested brackets"
    )]
    TooDeep,
    /// More than [`MAX_TERMS`] values and operations.
    #[error("the expression has more than {MAX_TERMS} terms: shorten it")]
    TooManyTerms,
    /// The text is not a CEL expression. Lines and columns count from one.
    #[error("syntax error at line {line}, column {column}: {message}")]
    Syntax { line: usize, column: usize, message: String },
    /// The parser panicked.
    #[error("the expression cannot be read: write it more simply")]
    Unreadable,
    /// An unknown name in a condition.
    #[error("unknown name {}{}: known are {}", quoted(name), did_you_mean(suggestion), names::known_names())]
    UnknownName { name: String, suggestion: Option<&'static str> },
    /// An unknown name in a score.
    #[error("unknown name {}: known are {}", quoted(name), metric::known_names())]
    UnknownMetricName { name: String },
    /// An unknown function.
    #[error("unknown function {}: known are {}", quoted(name), names::known_functions())]
    UnknownFunction { name: String },
    /// A known function with wrong arguments.
    #[error("{function} is called as {usage}")]
    WrongCall { function: &'static str, usage: &'static str },
    /// Part of the language that is not allowed in expressions.
    #[error("{what} cannot be used: {instead}")]
    Unsupported { what: &'static str, instead: &'static str },
    /// One operand of the wrong type.
    #[error("{} needs {expected}, and got {found}", quoted(operator))]
    WrongOperand { operator: String, expected: &'static str, found: Kind },
    /// Two operands of incompatible types.
    #[error("{} cannot take {left} and {right}: both must be numbers or both strings", quoted(operator))]
    Mismatch { operator: String, left: Kind, right: Kind },
    /// An integer division that is compared or combined with a double.
    #[error("an int divided by an int drops its fraction: write double(node.pods) / node.podCapacity")]
    DropsFraction,
    /// The result is not a bool.
    #[error("the expression gives {found}, not a bool: compare it, as in node.pods < 3")]
    NotABool { found: Kind },
    /// The result is not a number.
    #[error("the expression gives {found}, not a number: compute one, as in metric.excess * 2.0")]
    NotANumber { found: Kind },
    /// A formula is empty or white space.
    #[error("an empty formula: write one such as requests / replicas")]
    EmptyFormula,
    /// A condition in a formula, in the place of a number.
    #[error("a formula computes a number, and has a condition in the place of one: write condition ? 1 : 0")]
    NeedsNumber,
    /// A number in a formula, in the place of a condition.
    #[error("a formula has a number in the place of a condition: compare it, as in requests > 0")]
    NeedsCondition,
    /// An unknown function or operator in a formula.
    #[error("unknown function {}: formulas have + - * / ?: and max(a, b), min(a, b), coalesce(a, b, 8)", quoted(name))]
    UnknownFormulaFunction { name: String },
    /// No thread could be started for the parser; a retry may succeed.
    #[error("the expression could not be parsed because no thread could be started ({kind}); this will be retried")]
    NoThread { kind: io::ErrorKind },

    /// The result depends on a label that the node lacks.
    #[error(
        "node {} has no label {}: to allow for that, put {} in node.labels && before it",
        quoted(node),
        quoted(label),
        quoted(label)
    )]
    MissingLabel { node: String, label: String },
    /// The result depends on a taint that the node lacks.
    #[error(
        "node {} has no taint {}: to allow for that, put {} in node.taints && before it",
        quoted(node),
        quoted(key),
        quoted(key)
    )]
    MissingTaint { node: String, key: String },
    /// The result depends on a measured value that is missing or stale on the node.
    #[error("node {} has no fresh value of {name}: to allow for that, put has({name}) && before it", quoted(node))]
    MissingValue { node: String, name: &'static str },
    /// `/` or `%` by an int that is zero on this node.
    #[error("on node {} the expression divides by zero: guard it with a comparison", quoted(node))]
    DivisionByZero { node: String },
    /// Integer arithmetic exceeded 64 bits.
    #[error("on node {} a number exceeds the range of 64 bits: use double(…)", quoted(node))]
    Overflow { node: String },
    /// `int(…)` or `double(…)` of a value that is not a number in range on this node.
    #[error("on node {} the argument of {function}(…) is not a number in its range", quoted(node))]
    Conversion { node: String, function: String },
    /// A comparison with NaN, such as 0.0 / 0.0.
    #[error("on node {} a comparison has no result (NaN): guard its division", quoted(node))]
    NotComparable { node: String },
    /// A number that is infinite or NaN.
    #[error("on node {} the result is not a finite number: guard its division", quoted(node))]
    NotFinite { node: String },
    /// Any other error of the evaluator.
    #[error("on node {} the expression fails: {detail}", quoted(node))]
    Failed { node: String, detail: String },
}

/// Scope of an [`ExpressionError`], which determines the reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The text: permanent until the text changes, since no node can match.
    Text,
    /// One node: it is not a candidate. Other nodes may match.
    Node,
    /// This process: retry.
    Process,
}

impl ExpressionError {
    /// Scope of the error.
    pub fn concern(&self) -> Concern {
        match self {
            Self::Empty
            | Self::TooLong { .. }
            | Self::TooDeep
            | Self::TooManyTerms
            | Self::Syntax { .. }
            | Self::Unreadable
            | Self::UnknownName { .. }
            | Self::UnknownMetricName { .. }
            | Self::UnknownFunction { .. }
            | Self::WrongCall { .. }
            | Self::Unsupported { .. }
            | Self::WrongOperand { .. }
            | Self::Mismatch { .. }
            | Self::DropsFraction
            | Self::NotABool { .. }
            | Self::NotANumber { .. }
            | Self::EmptyFormula
            | Self::NeedsNumber
            | Self::NeedsCondition
            | Self::UnknownFormulaFunction { .. } => Concern::Text,
            Self::NoThread { .. } => Concern::Process,
            Self::MissingLabel { .. }
            | Self::MissingTaint { .. }
            | Self::MissingValue { .. }
            | Self::DivisionByZero { .. }
            | Self::Overflow { .. }
            | Self::Conversion { .. }
            | Self::NotComparable { .. }
            | Self::NotFinite { .. }
            | Self::Failed { .. } => Concern::Node,
        }
    }
}

fn did_you_mean(suggestion: &Option<&'static str>) -> String {
    suggestion.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
