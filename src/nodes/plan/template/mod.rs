//! Templates of NodeConfigs: compiled once, rendered for each node, and what follows for the NodeConfigs.
//!
//! | file | what it owns |
//! |---|---|
//! | `translate`, `go`, `sprig` | WAO's plain fields, and the errors for other Go constructs |
//! | `texts` | which texts of a template are rendered |
//! | `context` | what expressions can name |
//! | `check` | which rendered values are valid |
//! | `selector`, `name` | which nodes, and the names of their NodeConfigs |
//! | `plan`, `state` | which NodeConfigs to write; how the template is |
//!
//! Nothing half-rendered leaves this folder: a result is a whole spec that passed `check`, or an error. Rendering is bounded: the
//! engine has fuel for each text, no files and no time.

mod check;
mod context;
mod go;
pub mod name;
pub mod plan;
pub mod selector;
mod sprig;
pub mod state;
#[cfg(test)]
mod tests;
mod texts;
mod translate;

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use thiserror::Error;

use check::InvalidValue;
use context::{OCTETS, ipv4_of, ipv6_of};
use ganglion_api::node_config::NodeConfigSpec;
use ganglion_api::node_config::template::NodeTemplate;
use ganglion_core::facts::NodeFact;
use texts::{TextField, terms, visit};
use translate::{KNOWN, SyntaxError, is_template, translate};

/// What one text may cost: instructions, and 64 bytes of values for each. An expression takes some dozens.
const FUEL: u64 = 5_000;

/// A text of a template that is wrong for every node.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("template.{field}: {problem}")]
pub struct CompileError {
    field: TextField,
    problem: SyntaxError,
}

/// Why there is no NodeConfig for a node.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// The text is wrong, whatever the node is.
    #[error("template.{field}: {problem}")]
    Text { field: TextField, problem: String },
    /// The node does not have what the text names.
    #[error("template.{field}: {problem}")]
    Node { field: TextField, problem: String },
    /// The result is not valid.
    #[error("template.{field} {problem}")]
    Value { field: TextField, problem: InvalidValue },
}

/// A template whose texts were compiled.
#[derive(Debug)]
pub struct Compiled {
    template: NodeTemplate,
    engine: Environment<'static>,
    /// The texts with expressions, and what the engine knows them by.
    compiled: BTreeMap<TextField, String>,
}

/// The engine without includes, macros and files, with the filters that it brings and those of sprig that it lacks.
fn engine() -> Environment<'static> {
    let mut engine = Environment::new();
    // Names what is undefined in errors.
    engine.set_debug(true);
    engine.set_fuel(Some(FUEL));
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    // As in Go, the text around expressions stays as it is.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        engine.set_syntax(syntax);
    }
    for global in ["debug", "dict", "namespace"] {
        engine.remove_global(global);
    }
    engine.remove_filter("pprint");
    engine.add_filter("trim_prefix", |text: String, prefix: String| {
        text.strip_prefix(&prefix).map(str::to_owned).unwrap_or(text)
    });
    engine.add_filter("trim_suffix", |text: String, suffix: String| {
        text.strip_suffix(&suffix).map(str::to_owned).unwrap_or(text)
    });
    engine
}

/// Compiles the texts of a template.
///
/// # Errors
/// A text is no template: it has an error of syntax, a construct of Go other than a plain field, or an unknown name.
pub fn compile(template: &NodeTemplate) -> Result<Compiled, CompileError> {
    let mut template = template.clone();
    let (mut engine, mut compiled) = (engine(), BTreeMap::new());
    visit(&mut template, |field, text| {
        if is_template(text) {
            compiled.insert(field, field.to_string());
            add(&mut engine, field, text).map_err(|problem| CompileError { field, problem })?;
        }
        Ok(())
    })?;
    Ok(Compiled { template, engine, compiled })
}

fn add(engine: &mut Environment<'static>, field: TextField, text: &str) -> Result<(), SyntaxError> {
    let wrong = |error: minijinja::Error| SyntaxError::Engine(words(&error));
    engine.add_template_owned(field.to_string(), translate(text)?).map_err(wrong)?;
    let template = engine.get_template(&field.to_string()).map_err(wrong)?;
    let mut names: Vec<String> = template.undeclared_variables(true).into_iter().collect();
    names.sort();
    match names.into_iter().find(|name| !is_known(name)) {
        Some(found) => Err(SyntaxError::Unknown { found }),
        None => Ok(()),
    }
}

/// Whether expressions can name this.
fn is_known(name: &str) -> bool {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    match first {
        "hostname" | "range" => rest.is_empty(),
        "node" => rest.is_empty() || rest == "name" || rest == "labels" || rest.starts_with("labels."),
        "ipv4" => rest.is_empty() || rest == "address" || OCTETS.contains(&rest),
        "ipv6" => rest.is_empty() || rest == "address",
        _ => false,
    }
}

/// The engine's words about an error, without the place, which is a name of ours.
fn words(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()))
}

/// The NodeConfig of a node.
///
/// # Errors
/// A text cannot be rendered for this node, or not to a valid value.
pub fn render(compiled: &Compiled, node: &NodeFact) -> Result<NodeConfigSpec, RenderError> {
    let mut template = compiled.template.clone();
    if !compiled.compiled.is_empty() {
        let context = context::context(node);
        visit(&mut template, |field, text| {
            let Some(name) = compiled.compiled.get(&field) else { return Ok(()) };
            let rendered = compiled.engine.get_template(name).and_then(|template| template.render(&context));
            *text = rendered.map_err(|error| failure(field, &error, node))?;
            Ok(())
        })?;
    }
    for (term, source) in terms(&mut template) {
        check::check(term, source).map_err(|(field, problem)| RenderError::Value { field, problem })?;
    }
    let NodeTemplate { node_name: _, suspend, metrics_collector, predictor } = template;
    Ok(NodeConfigSpec { node_name: node.id.key.name.clone(), suspend, metrics_collector, predictor })
}

/// Whether the node or the text is to blame.
fn failure(field: TextField, error: &minijinja::Error, node: &NodeFact) -> RenderError {
    let problem = words(error);
    // Also where an operator or a filter is the first to notice.
    if problem.contains("is undefined") || error.kind() == ErrorKind::UndefinedError {
        let lacks = |name: &str, there: bool| problem.contains(&format!("`{name}")) && !there;
        let missing = match () {
            () if lacks("ipv4", ipv4_of(node).is_some()) => "the node has no internal IPv4 address: ",
            () if lacks("ipv6", ipv6_of(node).is_some()) => "the node has no internal IPv6 address: ",
            () if lacks("node.labels", false) => "the node does not have this label: ",
            () => "",
        };
        return RenderError::Node { field, problem: format!("{missing}{problem}") };
    }
    match error.kind() {
        ErrorKind::OutOfFuel => {
            let problem = "it takes too long: its loops must be short, and its values small".to_owned();
            RenderError::Text { field, problem }
        }
        // Of a value that this node has and another may not.
        ErrorKind::InvalidOperation | ErrorKind::BadSerialization | ErrorKind::CannotUnpack => {
            RenderError::Node { field, problem }
        }
        ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction | ErrorKind::UnknownMethod => {
            let problem = format!("{problem}; expressions can name {KNOWN}, and use the filters of minijinja");
            RenderError::Text { field, problem }
        }
        _ => RenderError::Text { field, problem },
    }
}
