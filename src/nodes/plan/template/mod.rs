//! NodeConfigTemplates: compiled once, rendered for each node, and the resulting plan for the NodeConfigs.
//!
//! | file | content |
//! |---|---|
//! | `translate` | WAO's plain fields, and the size of expressions |
//! | `check` | validation of rendered values |
//! | `name` | names of the NodeConfigs |
//! | `parsed` | parsed template and node selector, or why the template is rejected as a whole |
//! | `plan`, `state` | NodeConfigs to write; status of the template |
//!
//! A result is either a complete spec that passed `check`, or an error: nothing half-rendered leaves this folder.
//! Rendering is bounded: the engine has fuel for each text, and access to neither files nor the clock.

mod check;
pub mod name;
pub mod parsed;
pub mod plan;
pub mod state;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::BTreeMap;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use thiserror::Error;

use check::InvalidValue;
use ganglion_api::node_config::source::EndpointTerm;
use ganglion_api::node_config::{NodeConfigSpec, NodeTemplate};
use ganglion_core::facts::NodeFact;
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
pub struct CompiledTemplate {
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
pub fn compile(template: &NodeTemplate) -> Result<CompiledTemplate, CompileError> {
    let mut template = template.clone();
    let (mut engine, mut compiled) = (engine(), BTreeMap::new());
    visit(&mut template, |field, text| {
        if is_template(text) {
            compiled.insert(field, field.to_string());
            add(&mut engine, field, text).map_err(|problem| CompileError { field, problem })?;
        }
        Ok(())
    })?;
    Ok(CompiledTemplate { template, engine, compiled })
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
pub fn render(compiled: &CompiledTemplate, node: &NodeFact) -> Result<NodeConfigSpec, RenderError> {
    let mut template = compiled.template.clone();
    if !compiled.compiled.is_empty() {
        let context = variables(node);
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
    Ok(NodeConfigSpec { node_name: node.name(), suspend, metrics_collector, predictor })
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

/// Well-known label with the hostname that the machine reports.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Names of the octets of an IPv4 address.
const OCTETS: [&str; 4] = ["octet1", "octet2", "octet3", "octet4"];

/// Variables for one node. Missing properties are undefined.
fn variables(node: &NodeFact) -> Value {
    let name = node.id.key.name.as_str();
    let hostname = node.labels.get(HOSTNAME).map_or(name, String::as_str);
    let labels = Value::from_pairs(node.labels.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))));
    Value::from_pairs([
        ("hostname", Value::from(hostname)),
        ("node", Value::from_pairs([("name", Value::from(name)), ("labels", labels)])),
        ("ipv4", ipv4(node)),
        ("ipv6", Value::from_pairs(ipv6_of(node).map(|address| ("address", Value::from(address))))),
    ])
}

fn ipv4(node: &NodeFact) -> Value {
    let Some((address, octets)) = ipv4_of(node) else { return Value::from_pairs::<_, &str, Value>([]) };
    let octets = OCTETS.into_iter().zip(octets.map(Value::from));
    Value::from_pairs(octets.chain([("address", Value::from(address))]))
}

/// First internal IPv4 address, and its octets.
fn ipv4_of(node: &NodeFact) -> Option<(&str, [u8; 4])> {
    node.addresses.iter().find_map(|address| Some((address.as_str(), octets(address)?)))
}

/// First internal IPv6 address.
fn ipv6_of(node: &NodeFact) -> Option<&str> {
    node.addresses.iter().map(String::as_str).find(|address| address.contains(':'))
}

/// Octets of an IPv4 address; None if the text is not one.
pub fn octets(address: &str) -> Option<[u8; 4]> {
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<u8> = address.split('.').filter(is_number).filter_map(|part| part.parse().ok()).collect();
    (address.split('.').count() == 4).then(|| parts.try_into().ok()).flatten()
}

/// Field of a template, such as `metricsCollector.inletTemp.endpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextField {
    /// Field of its source, such as `metricsCollector.inletTemp`.
    pub term: &'static str,
    /// Name within the source, such as `endpoint`.
    pub name: &'static str,
}

impl fmt::Display for TextField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.name)
    }
}

/// Sources of a template, with their spec fields.
fn terms(template: &mut NodeTemplate) -> impl Iterator<Item = (&'static str, &mut EndpointTerm)> {
    let collector = template.metrics_collector.iter_mut().flat_map(|collector| {
        [
            ("metricsCollector.inletTemp", &mut collector.inlet_temp),
            ("metricsCollector.deltaP", &mut collector.delta_p),
            ("metricsCollector.usage", &mut collector.usage),
            ("metricsCollector.power", &mut collector.power),
        ]
    });
    let predictor = template.predictor.iter_mut().flat_map(|predictor| {
        [
            ("predictor.powerConsumption", &mut predictor.power_consumption),
            ("predictor.powerConsumptionEndpointProvider", &mut predictor.power_consumption_endpoint_provider),
        ]
    });
    collector.chain(predictor).filter_map(|(term, source)| Some((term, source.as_mut()?)))
}

/// Visits each text that may contain expressions. Stops at the first error.
fn visit<E>(
    template: &mut NodeTemplate,
    mut visit: impl FnMut(TextField, &mut String) -> Result<(), E>,
) -> Result<(), E> {
    for (term, source) in terms(template) {
        for (name, text) in texts(source) {
            visit(TextField { term, name }, text)?;
        }
    }
    Ok(())
}

/// Texts of each header that may contain expressions.
pub const HEADERS: [[&str; 2]; 8] = [
    ["headers[0].value", "headers[0].secret.name"],
    ["headers[1].value", "headers[1].secret.name"],
    ["headers[2].value", "headers[2].secret.name"],
    ["headers[3].value", "headers[3].secret.name"],
    ["headers[4].value", "headers[4].secret.name"],
    ["headers[5].value", "headers[5].secret.name"],
    ["headers[6].value", "headers[6].secret.name"],
    ["headers[7].value", "headers[7].secret.name"],
];

fn texts(source: &mut EndpointTerm) -> impl Iterator<Item = (&'static str, &mut String)> {
    let EndpointTerm { type_, endpoint, basic_auth_secret, ca, sensor, headers, .. } = source;
    let headers = headers.iter_mut().flatten().zip(HEADERS).flat_map(|(header, [value, secret])| {
        [(value, header.value.as_mut()), (secret, header.secret.as_mut().map(|key| &mut key.name))]
    });
    let (secret, config_map) = ca.as_mut().map_or((None, None), |ca| (ca.secret.as_mut(), ca.config_map.as_mut()));
    let all = [
        ("type", Some(type_)),
        ("endpoint", endpoint.as_mut()),
        ("basicAuthSecret.name", basic_auth_secret.as_mut().map(|secret| &mut secret.name)),
        ("ca.secret.name", secret.map(|key| &mut key.name)),
        ("ca.configMap.name", config_map.map(|key| &mut key.name)),
        ("sensor", sensor.as_mut()),
    ];
    all.into_iter().chain(headers).filter_map(|(name, text)| Some((name, text?)))
}
