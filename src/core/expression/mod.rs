//! Expressions of users: conditions on a node, such as `node.pods < 3 && node.memory.requestedShare < 0.5`, scores of a
//! metric, such as `metric.excess * 2.0`, and formulas over metrics, such as `requests / replicas` (`formula`).
//!
//! Owns limits, parsing, checks and evaluation. The language is CEL without loops; no type of the cel crate leaves this
//! folder. Must not depend on the origin of nodes or the use of results.
//!
//! | name | type | |
//! |---|---|---|
//! | `node.name` | string | |
//! | `node.zone` | string | the label `topology.kubernetes.io/zone` |
//! | `node.labels["key"]` | string | also `node.labels.key`; test: `"key" in node.labels` or `has(node.labels.key)` |
//! | `node.taints["key"]` | string | value, may be empty; also `node.taints.key`; tested like a label |
//! | `node.ready`, `node.schedulable` | bool | |
//! | `node.pods`, `node.podCapacity` | int | pods on the node or assigned to it by actions; maximum |
//! | `node.arriving` | int | part of `node.pods`: pods that actions move there, or that a scheduler may place there |
//! | `node.cpu.allocatable`, `node.cpu.requested` | int | millicores |
//! | `node.memory.allocatable`, `node.memory.requested` | int | bytes |
//! | `node.cpu.requestedShare`, `node.memory.requestedShare` | double | requests / allocatable; 1.0 if that is 0 |
//! | `node.cpu.utilization`, `node.memory.utilization` | double | used fraction: NodeConfig, metrics.k8s.io; optional |
//! | `node.power`, `node.inletTemperature`, `node.differentialPressure` | double | W, °C, Pa: NodeConfig; optional |
//!
//! Operators: `&& || ! == != < <= > >= + - * / % ?: in [..]`; functions: `int`, `double`, `startsWith`, `endsWith`,
//! `contains`, `has`. Types are checked when the text is parsed. Int and double may be mixed. An int divided by an int
//! stays an int, and cannot be combined with a double.
//!
//! A missing label or taint has no value: if the result depends on it, evaluation fails with
//! [`ExpressionError::MissingLabel`], so that the node never matches by accident, neither with `==` nor with `!=`. If
//! the result does not depend on it (`node.labels["a"] == "b" || node.pods < 3`), there is no error. The same applies
//! to an optional value that is not measured or is stale; test it with `has(node.power)`.

mod check;
mod error;
mod formula;
mod kind;
mod metric;
mod names;
mod rules;
mod score;

pub use error::{Concern, ExpressionError};
pub use formula::{Formula, FormulaNumber, FormulaOutcome, FormulaProblem};
pub use kind::Kind;
pub use metric::MetricView;
pub use names::{MeasuredView, NodeView, PodsView, ResourceView, ZONE_LABEL};
pub use score::{NodeScore, Score};

use cel::parser::{ParseErrors, Parser};
use cel::{Context, Env, ExecutionError, IdedExpr, Value};
use check::{Checked, ResultKind};
use ganglion_api::node_config::status::NodeValue;
use names::{Bound, Field, Leaf, Measure, NodeMap, Subject, Vocabulary};
use std::fmt;
use std::sync::Arc;
use std::thread;

/// Maximum length of an expression, in characters. The CRD has the same `maxLength`.
pub const MAX_CHARS: usize = 512;

/// Maximum nesting depth of operations. Parentheses do not count, and a chain of `&&` or `||` counts by its logarithm.
/// In a debug build the evaluator needs 45 KiB of stack per level, so this depth fits an ordinary thread.
pub const MAX_DEPTH: usize = 16;

/// Maximum number of values and operations.
pub const MAX_TERMS: usize = 192;

/// Maximum nesting depth of brackets in the parser.
const MAX_BRACKETS: u16 = 32;

/// Stack size of the parser thread. In a debug build the parser needs about 170 KiB of stack per bracket, so
/// [`MAX_BRACKETS`] overflow the 2 MiB of an ordinary thread. The size is three times the need; only touched pages use
/// memory.
const PARSER_STACK_BYTES: usize = 16 << 20;

/// Start of the parser's message at [`MAX_BRACKETS`]; there is no separate error type.
const PARSER_TOO_DEEP: &str = "Recursion limit of";

/// Maximum length of the parser's message in our errors; it may list all tokens.
const MAX_DETAIL_CHARS: usize = 200;

/// A condition on a node, parsed and checked. Clones share it. Equal if the texts are equal.
///
/// # Examples
///
/// ```
/// use std::collections::BTreeMap;
///
/// use ganglion_core::expression::{Concern, Expression, MeasuredView, NodeView, PodsView, ResourceView};
///
/// let labels = BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]);
/// let node = NodeView {
///     name: "node-4",
///     labels: &labels,
///     taints: &[],
///     ready: true,
///     schedulable: true,
///     pods: PodsView { count: 3, arriving: 0, capacity: 110 },
///     cpu: ResourceView { allocatable: 4_000, requested: 1_000 },
///     memory: ResourceView::default(),
///     measured: MeasuredView::default(),
/// };
/// let condition = Expression::parse(r#"node.pods < 4 && node.labels["disk"] == "ssd""#).unwrap();
/// assert_eq!(condition.matches(&node), Ok(true));
///
/// // A node that lacks the value is no candidate, whatever the comparison.
/// let missing = Expression::parse(r#"node.labels["gpu"] != "a100""#).unwrap();
/// assert_eq!(missing.matches(&node).unwrap_err().concern(), Concern::Node);
///
/// // Names and types are checked when the text is parsed.
/// let error = Expression::parse("node.pod < 4").unwrap_err();
/// assert!(error.to_string().contains("did you mean node.pods?"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression(Arc<Compiled>);

struct Compiled {
    text: String,
    tree: IdedExpr,
    leaves: Vec<Leaf>,
    env: Arc<Env>,
}

impl Expression {
    /// Parses and checks an expression of at most [`MAX_CHARS`] characters. All errors except
    /// [`ExpressionError::NoThread`] are permanent.
    ///
    /// Starts a thread and waits for it, about a millisecond, so callers should cache the result.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Compiled::parse(Vocabulary::Node, ResultKind::Bool, text).map(|compiled| Self(Arc::new(compiled)))
    }

    /// Whether `node` meets the condition. Fails if the expression has no result for this node, because of a missing
    /// label, a division by zero or a number out of range. Such a node is not a candidate; other nodes are not
    /// affected.
    pub fn matches(&self, node: &NodeView<'_>) -> Result<bool, ExpressionError> {
        match self.0.evaluate(Subject::Node(node)) {
            Ok(Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(ExpressionError::Failed {
                node: node.name.to_owned(),
                detail: format!("it gives {}, not a bool", other.type_of()),
            }),
            Err(error) => Err(self.0.explain(&error, node.name)),
        }
    }

    /// The answer for `node` if it is the same whatever its [`Self::load_values`] are.
    pub fn matches_with_any_load(&self, node: &NodeView<'_>) -> Option<bool> {
        let bound = Bound { leaves: &self.0.leaves, subject: Subject::Node(node), without_load: true };
        match self.0.resolve(&bound) {
            Ok(Value::Bool(answer)) => Some(answer),
            Ok(_) | Err(_) => None,
        }
    }

    /// The source text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether it reads a value that depends on the node's pods, so that the eviction of a pod may change the result.
    pub fn reads_pods(&self) -> bool {
        self.0.leaves.iter().any(Leaf::is_of_pods)
    }

    /// Whether it reads the usage of the node, or tests with `has` whether it is available.
    pub fn reads_usage(&self) -> bool {
        self.0.leaves.iter().any(|leaf| leaf.usage().is_some())
    }

    /// The measured values of the node that it reads or tests for, without those that follow the node's pods slowly.
    pub fn load_values(&self) -> impl Iterator<Item = NodeValue> + '_ {
        self.0.leaves.iter().filter_map(Leaf::load_value)
    }

    /// Whether it reads the usage of the node without testing with `has` whether it is available.
    pub fn needs_usage(&self) -> bool {
        let leaves = &self.0.leaves;
        let is_tested = |measure: Measure| leaves.contains(&Leaf::HasValue(measure));
        leaves.iter().filter_map(Leaf::usage).any(|measure| !is_tested(measure))
    }
}

impl Compiled {
    fn parse(vocabulary: Vocabulary, wanted: ResultKind, text: &str) -> Result<Self, ExpressionError> {
        if text.trim().is_empty() {
            return Err(ExpressionError::Empty);
        }
        let Checked { tree, leaves } = parsed(text, move |tree| check::check(vocabulary, wanted, tree))?;
        Ok(Self { text: text.to_owned(), tree, leaves, env: Arc::new(Env::default().with_stdlib()) })
    }

    fn explain(&self, error: &ExecutionError, node: &str) -> ExpressionError {
        let node = node.to_owned();
        match error {
            // The checks replaced names by numbers, so an undeclared reference is a leaf without a value.
            ExecutionError::UndeclaredReference(variable) => match names::leaf(&self.leaves, variable) {
                Some(Leaf::Entry(NodeMap::Labels, label)) => {
                    ExpressionError::MissingLabel { node, label: label.clone() }
                }
                Some(Leaf::Entry(NodeMap::Taints, key)) => ExpressionError::MissingTaint { node, key: key.clone() },
                Some(Leaf::Field(Field::Measured(measure))) => {
                    ExpressionError::MissingValue { node, name: measure.name() }
                }
                _ => failed(node, error),
            },
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                ExpressionError::DivisionByZero { node }
            }
            ExecutionError::Overflow(..) => ExpressionError::Overflow { node },
            ExecutionError::FunctionError { function, .. } => {
                ExpressionError::Conversion { node, function: function.clone() }
            }
            // Types were checked, so only NaN is not comparable.
            ExecutionError::NoSuchOverload(_) | ExecutionError::ValuesNotComparable(..) => {
                ExpressionError::NotComparable { node }
            }
            _ => failed(node, error),
        }
    }

    fn evaluate(&self, subject: Subject<'_>) -> Result<Value, ExecutionError> {
        self.resolve(&Bound { leaves: &self.leaves, subject, without_load: false })
    }

    fn resolve(&self, bound: &Bound<'_>) -> Result<Value, ExecutionError> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.set_variable_resolver(bound);
        Value::resolve(&self.tree, &context)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

/// The text.
impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Equal if the texts are equal.
impl PartialEq for Compiled {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Compiled {}

/// Parses a text of at most [`MAX_CHARS`] characters, and translates its syntax tree.
fn parsed<T: Send + 'static>(
    text: &str,
    translate: impl FnOnce(&IdedExpr) -> Result<T, ExpressionError> + Send + 'static,
) -> Result<T, ExpressionError> {
    let chars = text.chars().count();
    if chars > MAX_CHARS {
        return Err(ExpressionError::TooLong { chars });
    }
    let source = text.to_owned();
    on_deep_stack(move || {
        let tree = Parser::new().max_recursion_depth(MAX_BRACKETS).parse(&source).map_err(|errors| syntax(&errors))?;
        // Translated on this thread, too, since dropping a deep tree also needs the stack.
        translate(&tree)
    })
}

/// Runs `work` in a thread with a large stack. A panic there is caused by the text and becomes an error.
fn on_deep_stack<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ExpressionError> + Send + 'static,
) -> Result<T, ExpressionError> {
    thread::Builder::new()
        .name("expression".to_owned())
        .stack_size(PARSER_STACK_BYTES)
        .spawn(work)
        .map_err(|error| ExpressionError::NoThread { kind: error.kind() })?
        .join()
        .unwrap_or(Err(ExpressionError::Unreadable))
}

/// Converts the first error of the parser; the others mostly follow from it.
fn syntax(errors: &ParseErrors) -> ExpressionError {
    let Some(first) = errors.errors.first() else {
        return ExpressionError::Unreadable;
    };
    if errors.errors.iter().any(|error| error.msg.contains(PARSER_TOO_DEEP)) {
        return ExpressionError::TooDeep;
    }
    let message = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg);
    ExpressionError::Syntax {
        line: usize::try_from(first.pos.0).unwrap_or(0).max(1),
        column: usize::try_from(first.pos.1).unwrap_or(0).max(1),
        message: shortened(message),
    }
}

fn failed(node: String, error: &ExecutionError) -> ExpressionError {
    let detail = shortened(&error.to_string());
    ExpressionError::Failed { node, detail }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_DETAIL_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
