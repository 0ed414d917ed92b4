//! Checks a parsed expression and makes it safe to evaluate.
//!
//! Owns the allowed operators, functions and names, and the limits on depth and size. Refuses everything else, so new
//! features of the language are not available by default. `rules` owns the type rules. Must not evaluate.
//!
//! Replaces names by the number of a [`Leaf`], so that evaluation looks nothing up by name.

use super::error::ExpressionError;
use super::kind::Kind;
use super::names::{self, Field, Leaf, NodeMap, Vocabulary};
use super::rules::{
    CheckResult, Part, alike, binary, comparable, conversion, expect, literal, operation, part, spelled, unary,
    unsupported,
};
use super::{MAX_DEPTH, MAX_TERMS};
use cel::IdedExpr;
use cel::common::ast::operators as op;
use cel::common::ast::{CallExpr, Expr, ListExpr, LiteralValue, SelectExpr};

/// A checked expression, with its names replaced by numbers of `leaves`.
pub(super) struct Checked {
    pub(super) tree: IdedExpr,
    pub(super) leaves: Vec<Leaf>,
}

/// Required type of an expression's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultKind {
    Bool,
    Number,
}

/// Checks a whole expression.
pub(super) fn check(vocabulary: Vocabulary, wanted: ResultKind, tree: &IdedExpr) -> Result<Checked, ExpressionError> {
    let mut checker = Checker { vocabulary, leaves: Vec::new(), terms: 0 };
    let checked = checker.lower(tree, 1)?;
    match wanted {
        ResultKind::Bool if checked.kind != Kind::Bool => {
            return Err(ExpressionError::NotABool { found: checked.kind });
        }
        ResultKind::Number if !checked.kind.is_number() => {
            return Err(ExpressionError::NotANumber { found: checked.kind });
        }
        ResultKind::Bool | ResultKind::Number => {}
    }
    Ok(Checked { tree: checked.tree, leaves: checker.leaves })
}

struct Checker {
    vocabulary: Vocabulary,
    leaves: Vec<Leaf>,
    terms: usize,
}

impl Checker {
    /// Checks a node of the tree and its subtree; the root has depth 1.
    fn lower(&mut self, source: &IdedExpr, depth: usize) -> CheckResult {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(ExpressionError::TooManyTerms);
        }
        if depth > MAX_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        match &source.expr {
            Expr::Literal(value) => literal(value),
            Expr::Ident(_) => self.name(source),
            Expr::Select(select) if select.test => self.presence(select),
            Expr::Select(_) => self.name(source),
            Expr::Call(call) => self.call(call, depth),
            Expr::List(_) => unsupported("a list", "it stands only to the right of in"),
            Expr::Map(_) | Expr::Struct(_) => unsupported("{…}", "compare single values"),
            Expr::Comprehension(_) => unsupported(
                "all, exists, map, filter and their like",
                "compare single values, or write value in [a, b]",
            ),
            Expr::Unspecified => Err(ExpressionError::Unreadable),
        }
    }

    /// `node.pods`, `node.labels.disk`.
    fn name(&mut self, source: &IdedExpr) -> CheckResult {
        let path = path(source)?;
        match self.map(&path) {
            Some(NodeMap::Labels) => {
                return unsupported("node.labels by itself", "read one, as in node.labels[\"key\"]");
            }
            Some(NodeMap::Taints) => {
                return unsupported("node.taints by itself", "read one, as in node.taints[\"key\"]");
            }
            None => {}
        }
        Leaf::named(self.vocabulary, &path).map(|leaf| self.leaf(leaf)).ok_or_else(|| self.unknown_name(path))
    }

    /// `has(node.labels.disk)`.
    fn presence(&mut self, select: &SelectExpr) -> CheckResult {
        let path = format!("{}.{}", path(&select.operand)?, select.field);
        if self.vocabulary == Vocabulary::Node
            && let Some((map, key)) = names::entry_of(&path)
        {
            return Ok(self.leaf(Leaf::HasEntry(map, key.to_owned())));
        }
        match Leaf::named(self.vocabulary, &path) {
            Some(Leaf::Field(Field::Measured(measure))) => Ok(self.leaf(Leaf::HasValue(measure))),
            Some(_) => unsupported(
                "has(…) of this",
                "it is always there; only labels, taints and measured values of nodes can be missing",
            ),
            None => Err(self.unknown_name(path)),
        }
    }

    fn leaf(&mut self, leaf: Leaf) -> Part {
        let kind = leaf.kind();
        let name = Expr::Ident(self.leaves.len().to_string());
        self.leaves.push(leaf);
        part(name, kind)
    }

    fn call(&mut self, source: &CallExpr, depth: usize) -> CheckResult {
        if let Some(target) = &source.target {
            return self.method(source, target, depth);
        }
        let name = source.func_name.as_str();
        match (name, source.args.as_slice()) {
            (op::INDEX, [map, key]) => self.index(map, key),
            (op::IN, [value, list]) => self.within(value, list, depth),
            (op::CONDITIONAL, [test, yes, no]) => self.conditional([test, yes, no], depth),
            (op::LOGICAL_NOT | op::NEGATE, [value]) => {
                let value = self.lower(value, depth + 1)?;
                unary(name, value)
            }
            (
                op::LOGICAL_AND
                | op::LOGICAL_OR
                | op::EQUALS
                | op::NOT_EQUALS
                | op::LESS
                | op::LESS_EQUALS
                | op::GREATER
                | op::GREATER_EQUALS
                | op::ADD
                | op::SUBSTRACT
                | op::MULTIPLY
                | op::DIVIDE
                | op::MODULO,
                [left, right],
            ) => {
                let left = self.lower(left, depth + 1)?;
                let right = self.lower(right, depth + 1)?;
                binary(name, left, right)
            }
            ("int" | "double", [value]) => {
                let value = self.lower(value, depth + 1)?;
                conversion(name, value)
            }
            _ => Err(wrong_call(name)),
        }
    }

    /// `node.name.startsWith("a")`.
    fn method(&mut self, source: &CallExpr, target: &IdedExpr, depth: usize) -> CheckResult {
        let name = source.func_name.as_str();
        let ("startsWith" | "endsWith" | "contains", [argument]) = (name, source.args.as_slice()) else {
            return Err(wrong_call(name));
        };
        let target = self.lower(target, depth + 1)?;
        let argument = self.lower(argument, depth + 1)?;
        for operand in [&target, &argument] {
            expect(name, operand, Kind::Text, "a string")?;
        }
        let call =
            CallExpr { func_name: name.to_owned(), target: Some(Box::new(target.tree)), args: vec![argument.tree] };
        Ok(part(Expr::Call(call), Kind::Bool))
    }

    /// `node.labels["key"]` or `node.taints["key"]`, the only index expressions.
    fn index(&mut self, map: &IdedExpr, key: &IdedExpr) -> CheckResult {
        let Some(map) = path(map).ok().and_then(|path| self.map(&path)) else {
            return unsupported("[…]", "only labels and taints have it, as in node.labels[\"key\"]");
        };
        match text_literal(key) {
            Some(key) => Ok(self.leaf(Leaf::Entry(map, key.to_owned()))),
            None => unsupported("a computed key", "write the key, as in node.labels[\"key\"]"),
        }
    }

    fn map(&self, path: &str) -> Option<NodeMap> {
        (self.vocabulary == Vocabulary::Node).then(|| NodeMap::named(path)).flatten()
    }

    fn unknown_name(&self, name: String) -> ExpressionError {
        match self.vocabulary {
            Vocabulary::Metric => ExpressionError::UnknownMetricName { name },
            Vocabulary::Node => {
                let suggestion = names::suggestion(&name);
                ExpressionError::UnknownName { name, suggestion }
            }
        }
    }

    /// `"key" in node.labels`, `"key" in node.taints` or `node.name in ["a", "b"]`.
    fn within(&mut self, value: &IdedExpr, list: &IdedExpr, depth: usize) -> CheckResult {
        if let Some(map) = path(list).ok().and_then(|path| self.map(&path)) {
            return match text_literal(value) {
                Some(key) => Ok(self.leaf(Leaf::HasEntry(map, key.to_owned()))),
                None => unsupported("a computed key", "write the key, as in \"key\" in node.labels"),
            };
        }
        let Expr::List(list) = &list.expr else {
            return unsupported("in with anything else", "write value in [a, b] or \"key\" in node.labels");
        };
        let value = self.lower(value, depth + 1)?;
        let mut elements = Vec::with_capacity(list.elements.len());
        for element in &list.elements {
            let element = self.lower(element, depth + 1)?;
            comparable(op::IN, &value, &element)?;
            elements.push(element.tree);
        }
        let list = IdedExpr { id: 0, expr: Expr::List(ListExpr::new(elements)) };
        Ok(operation(op::IN, vec![value.tree, list], Kind::Bool))
    }

    fn conditional(&mut self, [test, yes, no]: [&IdedExpr; 3], depth: usize) -> CheckResult {
        let test = self.lower(test, depth + 1)?;
        expect("?", &test, Kind::Bool, "a bool")?;
        let yes = self.lower(yes, depth + 1)?;
        let no = self.lower(no, depth + 1)?;
        let (yes, no) = alike(op::CONDITIONAL, yes, no)?;
        let kind = yes.kind;
        Ok(operation(op::CONDITIONAL, vec![test.tree, yes.tree, no.tree], kind))
    }
}

/// The dotted name that `source` spells.
fn path(source: &IdedExpr) -> Result<String, ExpressionError> {
    let mut segments = Vec::new();
    let mut rest = source;
    loop {
        match &rest.expr {
            Expr::Select(select) if !select.test => {
                segments.push(select.field.as_str());
                rest = &select.operand;
            }
            Expr::Ident(name) => {
                segments.push(name);
                segments.reverse();
                return Ok(segments.join("."));
            }
            _ => {
                return unsupported(".field of a computed value", "names start with node");
            }
        }
    }
}

fn text_literal(source: &IdedExpr) -> Option<&str> {
    match &source.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text),
        _ => None,
    }
}

fn wrong_call(name: &str) -> ExpressionError {
    match names::FUNCTIONS.iter().find(|(known, _)| *known == name) {
        Some((function, usage)) => ExpressionError::WrongCall { function, usage },
        None => ExpressionError::UnknownFunction { name: spelled(name) },
    }
}
