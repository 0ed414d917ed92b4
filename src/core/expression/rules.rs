//! Type rules: allowed operand types and the resulting type.
//!
//! Owns the rules that are looser than CEL's (an int with a double) and those that are stricter (a comparison that is
//! never true). Must not depend on names.

use super::error::ExpressionError;
use super::kind::Kind;
use cel::IdedExpr;
use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, Expr, LiteralValue};

/// A checked part of the tree.
pub(super) struct Part {
    pub(super) tree: IdedExpr,
    pub(super) kind: Kind,
}

pub(super) type CheckResult = Result<Part, ExpressionError>;

pub(super) fn literal(value: &LiteralValue) -> CheckResult {
    let kind = match value {
        LiteralValue::Boolean(_) => Kind::Bool,
        LiteralValue::Int(_) => Kind::Int,
        LiteralValue::Double(_) => Kind::Double,
        LiteralValue::String(_) => Kind::Text,
        LiteralValue::UInt(_) => return unsupported("a number such as 3u", "write 3"),
        LiteralValue::Bytes(_) => return unsupported("b\"…\"", "write \"…\""),
        LiteralValue::Null => {
            return unsupported("null", "test for a label with \"key\" in node.labels");
        }
    };
    Ok(part(Expr::Literal(value.clone()), kind))
}

pub(super) fn unary(operator: &str, value: Part) -> CheckResult {
    let kind = value.kind;
    if operator == op::LOGICAL_NOT {
        expect(operator, &value, Kind::Bool, "a bool")?;
    } else if !kind.is_number() {
        return Err(wrong_operand(operator, "a number", kind));
    }
    Ok(operation(operator, vec![value.tree], kind))
}

pub(super) fn binary(operator: &str, left: Part, right: Part) -> CheckResult {
    match operator {
        op::LOGICAL_AND | op::LOGICAL_OR => {
            for operand in [&left, &right] {
                expect(operator, operand, Kind::Bool, "a bool")?;
            }
            Ok(operation(operator, vec![left.tree, right.tree], Kind::Bool))
        }
        op::EQUALS | op::NOT_EQUALS => {
            comparable(operator, &left, &right)?;
            Ok(operation(operator, vec![left.tree, right.tree], Kind::Bool))
        }
        op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS => {
            comparable(operator, &left, &right)?;
            if left.kind == Kind::Bool {
                return Err(wrong_operand(operator, "a number or a string", left.kind));
            }
            Ok(operation(operator, vec![left.tree, right.tree], Kind::Bool))
        }
        _ => arithmetic(operator, left, right),
    }
}

fn arithmetic(operator: &str, left: Part, right: Part) -> CheckResult {
    let (left, right) = alike(operator, left, right)?;
    let kind = left.kind;
    let defined = match kind {
        Kind::Int => true,
        Kind::Double => operator != op::MODULO,
        Kind::Text => operator == op::ADD,
        Kind::Bool => false,
    };
    if !defined {
        let expected = if operator == op::MODULO { "an int" } else { "a number" };
        return Err(wrong_operand(operator, expected, kind));
    }
    Ok(operation(operator, vec![left.tree, right.tree], kind))
}

pub(super) fn conversion(function: &str, value: Part) -> CheckResult {
    if value.kind == Kind::Bool {
        return Err(wrong_operand(function, "a number or a string", value.kind));
    }
    let kind = if function == "int" { Kind::Int } else { Kind::Double };
    if kind == Kind::Double && value.kind == Kind::Int {
        return promote(value);
    }
    Ok(operation(function, vec![value.tree], kind))
}

/// Converts two operands to one type: an int next to a double becomes a double. CEL refuses such operands, but users
/// write them, as in `0.8 * node.memory.allocatable`.
pub(super) fn alike(operator: &str, left: Part, right: Part) -> Result<(Part, Part), ExpressionError> {
    match (left.kind, right.kind) {
        (Kind::Int, Kind::Double) => Ok((promote(left)?, right)),
        (Kind::Double, Kind::Int) => Ok((left, promote(right)?)),
        (a, b) if a == b => Ok((left, right)),
        (a, b) => Err(mismatch(operator, a, b)),
    }
}

/// Refuses comparisons that are never true, and those that depend on a lost fraction.
pub(super) fn comparable(operator: &str, left: &Part, right: &Part) -> Result<(), ExpressionError> {
    match (left.kind, right.kind) {
        (Kind::Int, Kind::Double) => whole(left),
        (Kind::Double, Kind::Int) => whole(right),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(mismatch(operator, a, b)),
    }
}

/// Converts an int to a double.
fn promote(value: Part) -> CheckResult {
    whole(&value)?;
    Ok(operation("double", vec![value.tree], Kind::Double))
}

/// Refuses an int that has lost its fraction: `node.pods / node.podCapacity < 0.5` is nearly always true, which nobody
/// intends.
fn whole(value: &Part) -> Result<(), ExpressionError> {
    if divides(&value.tree) {
        return Err(ExpressionError::DropsFraction);
    }
    Ok(())
}

fn divides(tree: &IdedExpr) -> bool {
    match &tree.expr {
        Expr::Call(call) => match call.func_name.as_str() {
            op::DIVIDE => true,
            op::ADD | op::SUBSTRACT | op::MULTIPLY | op::NEGATE | op::CONDITIONAL => call.args.iter().any(divides),
            _ => false,
        },
        _ => false,
    }
}

pub(super) fn part(expr: Expr, kind: Kind) -> Part {
    // Ids are only needed for error positions of the parser, which has finished.
    let tree = IdedExpr { id: 0, expr };
    Part { tree, kind }
}

pub(super) fn operation(name: &str, args: Vec<IdedExpr>, kind: Kind) -> Part {
    let func_name = name.to_owned();
    part(Expr::Call(CallExpr { func_name, target: None, args }), kind)
}

pub(super) fn expect(operator: &str, found: &Part, kind: Kind, expected: &'static str) -> Result<(), ExpressionError> {
    if found.kind == kind {
        return Ok(());
    }
    Err(wrong_operand(operator, expected, found.kind))
}

fn wrong_operand(operator: &str, expected: &'static str, found: Kind) -> ExpressionError {
    ExpressionError::WrongOperand { operator: spelled(operator), expected, found }
}

fn mismatch(operator: &str, left: Kind, right: Kind) -> ExpressionError {
    ExpressionError::Mismatch { operator: spelled(operator), left, right }
}

pub(super) fn unsupported<T>(what: &'static str, instead: &'static str) -> Result<T, ExpressionError> {
    Err(ExpressionError::Unsupported { what, instead })
}

/// The operator as users write it: the parser calls `<` `_<_`.
pub(super) fn spelled(operator: &str) -> String {
    match operator {
        op::IN => "in".to_owned(),
        op::CONDITIONAL => "? :".to_owned(),
        _ => operator.trim_matches('_').to_owned(),
    }
}
