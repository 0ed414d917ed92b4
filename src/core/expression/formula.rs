//! Formulas: numbers that are computed from named numbers, such as `requests / replicas`.
//!
//! Owns the lowering of a parsed text, the operators and functions of formulas, and the evaluation. Must not know what
//! an operand is, nor where its value comes from.
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

use cel::IdedExpr;
use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, Expr, LiteralValue};

use super::error::ExpressionError;
use super::rules::unsupported;
use super::{MAX_DEPTH, MAX_TERMS, parsed};

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
            let mut lowering = FormulaReader { operands: Vec::new(), terms: 0 };
            let term = lowering.number(tree, 1)?;
            Ok((term, lowering.operands))
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

/// Translates a syntax tree. Everything that it does not name is refused.
struct FormulaReader {
    operands: Vec<String>,
    terms: usize,
}

impl FormulaReader {
    fn count(&mut self, depth: usize) -> Result<(), ExpressionError> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(ExpressionError::TooManyTerms);
        }
        if depth > MAX_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        Ok(())
    }

    fn number(&mut self, source: &IdedExpr, depth: usize) -> Result<FormulaTerm, ExpressionError> {
        self.count(depth)?;
        match &source.expr {
            #[expect(clippy::cast_precision_loss, reason = "all numbers of formulas are doubles")]
            Expr::Literal(LiteralValue::Int(number)) => Ok(FormulaTerm::Number(*number.inner() as f64)),
            Expr::Literal(LiteralValue::Double(number)) => Ok(FormulaTerm::Number(*number.inner())),
            Expr::Literal(LiteralValue::UInt(_)) => unsupported("a number such as 3u", "write 3"),
            Expr::Literal(LiteralValue::Boolean(_)) => Err(ExpressionError::NeedsNumber),
            Expr::Ident(name) => Ok(FormulaTerm::Operand(self.operand(name))),
            Expr::Call(call) if call.target.is_none() => self.call(call, depth),
            _ => unsupported("this part of the language", "a formula has names, numbers, operators and functions only"),
        }
    }

    fn operand(&mut self, name: &str) -> usize {
        self.operands.iter().position(|known| known == name).unwrap_or_else(|| {
            self.operands.push(name.to_owned());
            self.operands.len() - 1
        })
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Result<FormulaTerm, ExpressionError> {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (op::NEGATE, [value]) => Ok(FormulaTerm::Negate(Box::new(self.number(value, depth + 1)?))),
            (op::ADD, [left, right]) => self.arithmetic(FormulaOperator::Add, left, right, depth),
            (op::SUBSTRACT, [left, right]) => self.arithmetic(FormulaOperator::Subtract, left, right, depth),
            (op::MULTIPLY, [left, right]) => self.arithmetic(FormulaOperator::Multiply, left, right, depth),
            (op::DIVIDE, [left, right]) => self.arithmetic(FormulaOperator::Divide, left, right, depth),
            (op::CONDITIONAL, [test, yes, no]) => {
                let test = self.condition(test, depth + 1)?;
                Ok(FormulaTerm::Conditional(Box::new(test), self.both(yes, no, depth)?))
            }
            ("max", [_, ..]) => Ok(FormulaTerm::Max(self.arguments(call, depth)?)),
            ("min", [_, ..]) => Ok(FormulaTerm::Min(self.arguments(call, depth)?)),
            ("coalesce", [_, ..]) => Ok(FormulaTerm::Coalesce(self.arguments(call, depth)?)),
            (
                op::LOGICAL_NOT
                | op::LOGICAL_AND
                | op::LOGICAL_OR
                | op::EQUALS
                | op::NOT_EQUALS
                | op::LESS
                | op::LESS_EQUALS
                | op::GREATER
                | op::GREATER_EQUALS,
                _,
            ) => Err(ExpressionError::NeedsNumber),
            _ => Err(ExpressionError::UnknownFormulaFunction { name: super::rules::spelled(name) }),
        }
    }

    fn arguments(&mut self, call: &CallExpr, depth: usize) -> Result<Vec<FormulaTerm>, ExpressionError> {
        call.args.iter().map(|argument| self.number(argument, depth + 1)).collect()
    }

    fn both(
        &mut self,
        left: &IdedExpr,
        right: &IdedExpr,
        depth: usize,
    ) -> Result<Box<[FormulaTerm; 2]>, ExpressionError> {
        Ok(Box::new([self.number(left, depth + 1)?, self.number(right, depth + 1)?]))
    }

    fn arithmetic(
        &mut self,
        operator: FormulaOperator,
        left: &IdedExpr,
        right: &IdedExpr,
        depth: usize,
    ) -> Result<FormulaTerm, ExpressionError> {
        Ok(FormulaTerm::Operator(operator, self.both(left, right, depth)?))
    }

    fn condition(&mut self, source: &IdedExpr, depth: usize) -> Result<FormulaTest, ExpressionError> {
        self.count(depth)?;
        let call = match &source.expr {
            Expr::Literal(LiteralValue::Boolean(value)) => return Ok(FormulaTest::Always(*value.inner())),
            Expr::Call(call) if call.target.is_none() => call,
            _ => return Err(ExpressionError::NeedsCondition),
        };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::LOGICAL_NOT, [value]) => Ok(FormulaTest::Not(Box::new(self.condition(value, depth + 1)?))),
            (op::LOGICAL_AND, [left, right]) => {
                Ok(FormulaTest::And(Box::new([self.condition(left, depth + 1)?, self.condition(right, depth + 1)?])))
            }
            (op::LOGICAL_OR, [left, right]) => {
                Ok(FormulaTest::Or(Box::new([self.condition(left, depth + 1)?, self.condition(right, depth + 1)?])))
            }
            (op::LESS, [left, right]) => {
                Ok(FormulaTest::Compare(FormulaComparison::Less, self.both(left, right, depth)?))
            }
            (op::LESS_EQUALS, [left, right]) => {
                Ok(FormulaTest::Compare(FormulaComparison::LessOrEqual, self.both(left, right, depth)?))
            }
            (op::GREATER, [left, right]) => {
                Ok(FormulaTest::Compare(FormulaComparison::Less, self.both(right, left, depth)?))
            }
            (op::GREATER_EQUALS, [left, right]) => {
                Ok(FormulaTest::Compare(FormulaComparison::LessOrEqual, self.both(right, left, depth)?))
            }
            (op::EQUALS, [left, right]) => {
                Ok(FormulaTest::Compare(FormulaComparison::Equal, self.both(left, right, depth)?))
            }
            (op::NOT_EQUALS, [left, right]) => {
                let equal = FormulaTest::Compare(FormulaComparison::Equal, self.both(left, right, depth)?);
                Ok(FormulaTest::Not(Box::new(equal)))
            }
            _ => Err(ExpressionError::NeedsCondition),
        }
    }
}

/// One evaluation, with the operands that it has used so far.
struct FormulaEvaluation<'a> {
    values: &'a [Option<FormulaNumber>],
    used: Vec<usize>,
    defaulted: Vec<usize>,
}

type Evaluated = Result<FormulaNumber, FormulaProblem>;

impl FormulaEvaluation<'_> {
    fn number(&mut self, term: &FormulaTerm) -> Evaluated {
        match term {
            FormulaTerm::Number(number) => finite((*number).into()),
            FormulaTerm::Operand(operand) => {
                let value = self.values.get(*operand).copied().flatten();
                self.used.push(*operand);
                let value = value.filter(|number| number.value.is_finite());
                value.ok_or(FormulaProblem::Unknown(*operand)).and_then(finite)
            }
            FormulaTerm::Negate(value) => {
                let FormulaNumber { value, least, most } = self.number(value)?;
                Ok(FormulaNumber { value: -value, least: -most, most: -least })
            }
            FormulaTerm::Operator(operator, operands) => {
                let [left, right] = self.both(operands)?;
                match operator {
                    FormulaOperator::Add => add(left, right),
                    FormulaOperator::Subtract => {
                        add(left, FormulaNumber { value: -right.value, least: -right.most, most: -right.least })
                    }
                    FormulaOperator::Multiply => multiply(left, right),
                    FormulaOperator::Divide => divide(left, right),
                }
            }
            FormulaTerm::Max(terms) => self.extreme(terms, f64::max),
            FormulaTerm::Min(terms) => self.extreme(terms, f64::min),
            FormulaTerm::Coalesce(terms) => self.coalesce(terms),
            FormulaTerm::Conditional(test, branches) => {
                let test = self.condition(test)?;
                let [yes, no] = branches.as_ref();
                let (yes, no) = (self.number(yes), self.number(no));
                let (taken, other) = if test { (yes, no) } else { (no, yes) };
                // A condition may guard a division by zero, but not an unknown operand.
                if let Err(unknown @ FormulaProblem::Unknown(_)) = other {
                    return Err(unknown);
                }
                taken
            }
        }
    }

    /// Evaluates both, so that an unknown operand in the second one is found even if the first one has a problem.
    fn both(&mut self, terms: &[FormulaTerm; 2]) -> Result<[FormulaNumber; 2], FormulaProblem> {
        let [left, right] = terms;
        match (self.number(left), self.number(right)) {
            (Ok(left), Ok(right)) => Ok([left, right]),
            (Err(unknown @ FormulaProblem::Unknown(_)), _) | (_, Err(unknown @ FormulaProblem::Unknown(_))) => {
                Err(unknown)
            }
            (Err(problem), _) | (_, Err(problem)) => Err(problem),
        }
    }

    fn extreme(&mut self, terms: &[FormulaTerm], choose: fn(f64, f64) -> f64) -> Evaluated {
        let mut found: Option<FormulaNumber> = None;
        for term in terms {
            let next = self.number(term)?;
            found = Some(found.map_or(next, |found| FormulaNumber {
                value: choose(found.value, next.value),
                least: choose(found.least, next.least),
                most: choose(found.most, next.most),
            }));
        }
        found.ok_or(FormulaProblem::NotFinite)
    }

    fn coalesce(&mut self, terms: &[FormulaTerm]) -> Evaluated {
        let mut first_problem = None;
        let mut skipped = Vec::new();
        for term in terms {
            let (used, defaulted) = (self.used.len(), self.defaulted.len());
            match self.number(term) {
                Ok(number) => {
                    if self.used.len() == used {
                        self.defaulted.append(&mut skipped);
                    }
                    return Ok(number);
                }
                Err(problem) => {
                    first_problem.get_or_insert(problem);
                    if let FormulaProblem::Unknown(operand) = problem {
                        self.used.truncate(used);
                        self.defaulted.truncate(defaulted);
                        skipped.push(operand);
                    }
                }
            }
        }
        Err(first_problem.unwrap_or(FormulaProblem::NotFinite))
    }

    fn condition(&mut self, condition: &FormulaTest) -> Result<bool, FormulaProblem> {
        match condition {
            FormulaTest::Always(value) => Ok(*value),
            FormulaTest::Not(inner) => self.condition(inner).map(|value| !value),
            FormulaTest::And(conditions) => self.conditions(conditions).map(|[left, right]| left && right),
            FormulaTest::Or(conditions) => self.conditions(conditions).map(|[left, right]| left || right),
            FormulaTest::Compare(comparison, operands) => {
                let [left, right] = self.both(operands)?;
                compare(*comparison, left, right).ok_or(FormulaProblem::Undecided)
            }
        }
    }

    fn conditions(&mut self, conditions: &[FormulaTest; 2]) -> Result<[bool; 2], FormulaProblem> {
        let [left, right] = conditions;
        match (self.condition(left), self.condition(right)) {
            (Ok(left), Ok(right)) => Ok([left, right]),
            (Err(unknown @ FormulaProblem::Unknown(_)), _) | (_, Err(unknown @ FormulaProblem::Unknown(_))) => {
                Err(unknown)
            }
            (Err(problem), _) | (_, Err(problem)) => Err(problem),
        }
    }
}

/// Checks that the value is finite. Rounding must not put it outside its range.
fn finite(number: FormulaNumber) -> Evaluated {
    let FormulaNumber { value, least, most } = number;
    if !value.is_finite() || least.is_nan() || most.is_nan() {
        return Err(FormulaProblem::NotFinite);
    }
    Ok(FormulaNumber { value, least: least.min(value), most: most.max(value) })
}

fn add(left: FormulaNumber, right: FormulaNumber) -> Evaluated {
    finite(FormulaNumber {
        value: left.value + right.value,
        least: left.least + right.least,
        most: left.most + right.most,
    })
}

fn multiply(left: FormulaNumber, right: FormulaNumber) -> Evaluated {
    let value = left.value * right.value;
    if left.is_exact() && right.is_exact() {
        return finite(value.into());
    }
    let (least, most) = products(left, right);
    finite(FormulaNumber { value, least, most })
}

fn divide(left: FormulaNumber, right: FormulaNumber) -> Evaluated {
    let value = left.value / right.value;
    if !value.is_finite() || (left.is_exact() && right.is_exact()) {
        return finite(value.into());
    }
    let reciprocal = if right.least > 0.0 || right.most < 0.0 {
        (1.0 / right.most, 1.0 / right.least)
    } else if right.least >= 0.0 {
        (1.0 / right.most, f64::INFINITY)
    } else if right.most <= 0.0 {
        (f64::NEG_INFINITY, 1.0 / right.least)
    } else {
        return Err(FormulaProblem::Undecided);
    };
    let reciprocal = FormulaNumber { value: 1.0 / right.value, least: reciprocal.0, most: reciprocal.1 };
    let (least, most) = products(left, reciprocal);
    finite(FormulaNumber { value, least, most })
}

/// Returns the smallest and the largest product of two numbers of these ranges.
fn products(left: FormulaNumber, right: FormulaNumber) -> (f64, f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for one in [left.least, left.most] {
        for other in [right.least, right.most] {
            // The other number may be as large as it wants: zero times it is zero.
            let product = if one == 0.0 || other == 0.0 { 0.0 } else { one * other };
            (least, most) = (least.min(product), most.max(product));
        }
    }
    (least, most)
}

/// Compares two ranges; None if the result depends on where in the ranges the numbers are.
fn compare(comparison: FormulaComparison, left: FormulaNumber, right: FormulaNumber) -> Option<bool> {
    match comparison {
        FormulaComparison::Less if left.most < right.least => Some(true),
        FormulaComparison::Less if left.least >= right.most => Some(false),
        FormulaComparison::LessOrEqual if left.most <= right.least => Some(true),
        FormulaComparison::LessOrEqual if left.least > right.most => Some(false),
        FormulaComparison::Equal if left.most < right.least || right.most < left.least => Some(false),
        FormulaComparison::Equal if left.is_exact() && right.is_exact() => Some(true),
        FormulaComparison::Less | FormulaComparison::LessOrEqual | FormulaComparison::Equal => None,
    }
}
