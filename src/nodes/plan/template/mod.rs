//! NodeConfigTemplates: compiled once, rendered for each node, and the resulting plan for the NodeConfigs.
//!
//! | file | content |
//! |---|---|
//! | `translate` | WAO's plain fields, and the size of expressions |
//! | `texts` | texts of a template that are rendered |
//! | `context` | variables of expressions |
//! | `check` | validation of rendered values |
//! | `selector`, `name` | node selector, and names of the NodeConfigs |
//! | `parsed` | parsed template, or why it is rejected as a whole |
//! | `plan`, `state` | NodeConfigs to write; status of the template |
//!
//! A result is either a complete spec that passed `check`, or an error: nothing half-rendered leaves this folder.
//! Rendering is bounded: the engine has fuel for each text, and access to neither files nor the clock.

mod check;
mod context;
pub mod name;
pub mod parsed;
pub mod plan;
pub mod selector;
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
use translate::{HELP, KNOWN, SyntaxError, construct_before, is_template, translate};

/// Maximum cost of one text: instructions, and 64 bytes of values for each. A typical expression takes some dozens.
const FUEL: u64 = 5_000;

/// Text of a template that is wrong for every node.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("template.{field}: {problem}")]
pub struct CompileError {
    field: TextField,
    problem: SyntaxError,
}

/// Why a node has no NodeConfig.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RenderError {
    /// The text is wrong for any node.
    #[error("template.{field}: {problem}")]
    Text { field: TextField, problem: String },
    /// The node lacks a property that the text uses.
    #[error("template.{field}: {problem}")]
    Node { field: TextField, problem: String },
    /// The rendered value is invalid.
    #[error("template.{field} {problem}")]
    Value { field: TextField, problem: InvalidValue },
}

/// Template with compiled texts.
#[derive(Debug)]
pub struct Compiled {
    template: NodeTemplate,
    engine: Environment<'static>,
    /// Texts with expressions, by the name under which the engine stores them.
    compiled: BTreeMap<TextField, String>,
}

/// Template engine without includes, macros and files. Adds the filters of sprig that minijinja lacks.
fn engine() -> Environment<'static> {
    let mut engine = Environment::new();
    // Errors name the undefined variable.
    engine.set_debug(true);
    engine.set_fuel(Some(FUEL));
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_auto_escape_callback(|_| AutoEscape::None);
    // Like Go, keeps the text around expressions unchanged.
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

/// Compiles the texts of a template. Fails on syntax errors and unknown names.
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
    let translated = translate(text)?;
    let wrong = |error: minijinja::Error| {
        let end = error.range().map_or(translated.len(), |range| range.end);
        SyntaxError::Engine { found: construct_before(&translated, end), message: engine_message(&error) }
    };
    engine.add_template_owned(field.to_string(), translated.clone()).map_err(wrong)?;
    let template = engine.get_template(&field.to_string()).map_err(wrong)?;
    let mut names: Vec<String> = template.undeclared_variables(true).into_iter().collect();
    names.sort();
    match names.into_iter().find(|name| !is_variable(name)) {
        Some(found) => Err(SyntaxError::Unknown { found }),
        None => Ok(()),
    }
}

/// Whether expressions can use this name.
fn is_variable(name: &str) -> bool {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    match first {
        "hostname" | "range" => rest.is_empty(),
        "node" => rest.is_empty() || rest == "name" || rest == "labels" || rest.starts_with("labels."),
        "ipv4" => rest.is_empty() || rest == "address" || OCTETS.contains(&rest),
        "ipv6" => rest.is_empty() || rest == "address",
        _ => false,
    }
}

/// Error text of the engine without the location, which is an internal name.
fn engine_message(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()))
}

/// Renders the NodeConfig of a node.
pub fn render(compiled: &Compiled, node: &NodeFact) -> Result<NodeConfigSpec, RenderError> {
    let mut template = compiled.template.clone();
    if !compiled.compiled.is_empty() {
        let context = context::context(node);
        visit(&mut template, |field, text| {
            let Some(name) = compiled.compiled.get(&field) else { return Ok(()) };
            let rendered = compiled.engine.get_template(name).and_then(|template| template.render(&context));
            *text = rendered.map_err(|error| classify_error(field, &error, node))?;
            Ok(())
        })?;
    }
    for (term, source) in terms(&mut template) {
        check::check(term, source).map_err(|(field, problem)| RenderError::Value { field, problem })?;
    }
    let NodeTemplate { node_name: _, suspend, metrics_collector, predictor } = template;
    Ok(NodeConfigSpec { node_name: node.id.key.name.clone(), suspend, metrics_collector, predictor })
}

/// Classifies an error of the engine: caused by the node or by the text.
fn classify_error(field: TextField, error: &minijinja::Error, node: &NodeFact) -> RenderError {
    let problem = engine_message(error);
    // An operator or a filter may also be the first to report an undefined value.
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
            let problem = "rendering takes too long: shorten its loops and values".to_owned();
            RenderError::Text { field, problem }
        }
        // The value of another node may be valid.
        ErrorKind::InvalidOperation | ErrorKind::BadSerialization | ErrorKind::CannotUnpack => {
            RenderError::Node { field, problem }
        }
        ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction | ErrorKind::UnknownMethod => {
            let problem = format!("{problem}; there are {KNOWN}; {HELP}");
            RenderError::Text { field, problem }
        }
        _ => RenderError::Text { field, problem },
    }
}
