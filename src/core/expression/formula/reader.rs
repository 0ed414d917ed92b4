//! Translates the syntax tree of a formula, and refuses what a formula cannot contain.

use cel::IdedExpr;
use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, Expr, LiteralValue};

use super::{FormulaComparison, FormulaOperator, FormulaTerm, FormulaTest};
use crate::expression::error::ExpressionError;
use crate::expression::rules::{spelled, unsupported};
use crate::expression::{MAX_DEPTH, MAX_TERMS};

/// Translates a syntax tree. Everything that it does not name is refused.
#[derive(Default)]
pub struct FormulaReader {
    /// Names of the operands so far, in the order of the text.
    pub operands: Vec<String>,
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

    pub fn number(&mut self, source: &IdedExpr, depth: usize) -> Result<FormulaTerm, ExpressionError> {
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
            _ => Err(ExpressionError::UnknownFormulaFunction { name: spelled(name) }),
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
