//! Formulas: numbers that are computed from named numbers, such as `requests / replicas`.
//!
//! Owns the operators and functions of formulas, and their evaluation. Must not know what an operand is, nor where its
//! value comes from.
//!
//! The syntax is that of CEL, with numbers and conditions only. All numbers are doubles: `5 / 2` is 2.5. Operators:
//! `+ - * / ?: < <= > >= == != && || !`; functions: `max(a, b)`, `min(a, b)` and `coalesce(a, b, 8)`, which is its
//! first argument with a value.
//!
//! An operand without a value leaves the formula without one, also in the branch of `?:` that is not taken and beside a
//! condition that is decided already; only `coalesce` replaces it. A result that is not finite, as of `0 / 0`, is no
//! value. An operand may be a range. The result is then a range that contains every possible result, and a comparison
//! that the range does not decide has no value.

use std::sync::Arc;

use super::error::ExpressionError;
use super::parsed;
use evaluation::FormulaEvaluation;
use reader::FormulaReader;

mod evaluation;
mod reader;

/// A formula, parsed and checked. Clones share it. Equal if the texts are equal.
///
/// # Examples
///
/// ```
/// use ganglion_core::expression::{Formula, FormulaNumber};
///
/// let formula = Formula::parse("requests / replicas").unwrap();
/// assert_eq!(formula.operands(), ["requests", "replicas"]);
/// let values = [Some(FormulaNumber::from(5.0)), Some(FormulaNumber::from(2.0))];
/// assert_eq!(formula.evaluate(&values).result.unwrap().value, 2.5);
/// ```
#[derive(Clone, Debug)]
pub struct Formula(Arc<CompiledFormula>);

#[derive(Debug)]
struct CompiledFormula {
    text: String,
    term: FormulaTerm,
    operands: Vec<String>,
}

/// A number, and the range in which it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormulaNumber {
    pub value: f64,
    /// Lower end; may be negative infinity.
    pub least: f64,
    /// Upper end; may be infinity.
    pub most: f64,
}

/// Reason why a formula has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormulaProblem {
    /// This operand has no value.
    Unknown(usize),
    /// A result is not finite, as of a division by zero.
    NotFinite,
    /// The ranges of the operands do not decide a comparison, or a divisor may be zero.
    Undecided,
}

/// Result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaOutcome {
    pub result: Result<FormulaNumber, FormulaProblem>,
    /// Operands on whose values the result depends.
    pub used: Vec<usize>,
    /// Operands without a value, in whose place a number of the formula is used.
    pub defaulted: Vec<usize>,
}

#[derive(Debug)]
enum FormulaTerm {
    Number(f64),
    Operand(usize),
    Negate(Box<FormulaTerm>),
    Operator(FormulaOperator, Box<[FormulaTerm; 2]>),
    Max(Vec<FormulaTerm>),
    Min(Vec<FormulaTerm>),
    Coalesce(Vec<FormulaTerm>),
    Conditional(Box<FormulaTest>, Box<[FormulaTerm; 2]>),
}

#[derive(Clone, Copy, Debug)]
enum FormulaOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug)]
enum FormulaTest {
    Always(bool),
    Compare(FormulaComparison, Box<[FormulaTerm; 2]>),
    Not(Box<FormulaTest>),
    And(Box<[FormulaTest; 2]>),
    Or(Box<[FormulaTest; 2]>),
}

#[derive(Clone, Copy, Debug)]
enum FormulaComparison {
    Less,
    LessOrEqual,
    Equal,
}

impl From<f64> for FormulaNumber {
    fn from(value: f64) -> Self {
        Self { value, least: value, most: value }
    }
}

impl FormulaNumber {
    /// Whether the range is the value alone.
    pub fn is_exact(&self) -> bool {
        self.least >= self.value && self.most <= self.value
    }
}

impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Formula {
    /// Parses and checks a formula of at most [`super::MAX_CHARS`] characters. All errors except
    /// [`ExpressionError::NoThread`] are permanent.
    ///
    /// Starts a thread and waits for it, about a millisecond, so callers should cache the result.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.trim().is_empty() {
            return Err(ExpressionError::EmptyFormula);
        }
        let (term, operands) = parsed(text, |tree| {
            let mut reader = FormulaReader::default();
            let term = reader.number(tree, 1)?;
            Ok((term, reader.operands))
        })?;
        Ok(Self(Arc::new(CompiledFormula { text: text.to_owned(), term, operands })))
    }

    /// The source text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Names of the operands, each once, in the order of the text.
    pub fn operands(&self) -> &[String] {
        &self.0.operands
    }

    /// Evaluates the formula with these values of its operands, in the order of [`Self::operands`]. A value that is
    /// missing or not finite is unknown.
    pub fn evaluate(&self, values: &[Option<FormulaNumber>]) -> FormulaOutcome {
        let mut evaluation = FormulaEvaluation { values, used: Vec::new(), defaulted: Vec::new() };
        let result = evaluation.number(&self.0.term);
        let FormulaEvaluation { mut used, mut defaulted, .. } = evaluation;
        for list in [&mut used, &mut defaulted] {
            list.sort_unstable();
            list.dedup();
        }
        FormulaOutcome { result, used, defaulted }
    }
}
