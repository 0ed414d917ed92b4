//! Checks that a rendered template is a valid NodeConfig: a wrong value must not reach a machine.

use thiserror::Error;

use super::translate::is_template;
use super::{HEADERS, TextField, octets};
use ganglion_api::node_config::source::{EndpointTerm, WITHOUT_ENDPOINT, types_of};
use ganglion_core::words::quoted;

/// Maximum length of a rendered text in bytes.
pub const MAX_RENDERED: usize = 2048;

/// Maximum length of `type` and `sensor` in bytes.
const MAX_TEXT: usize = 512;

/// Maximum length of the value of a header in bytes.
const MAX_HEADER: usize = 1024;

/// Maximum length of an object name.
const MAX_NAME: usize = 253;

/// Why a rendered text is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvalidValue {
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    #[error("is {}, which still has an expression: a result is not rendered again", quoted(found))]
    Unrendered { found: String },
    #[error("is {}, which must be one of {}", quoted(found), types.join(", "))]
    Type { found: String, types: &'static [&'static str] },
    #[error("is required for type {0}")]
    NoEndpoint(String),
    #[error("and fullWatts, which is not less, or cpuFamily without them are required for type Linear")]
    NoLine,
    #[error("is {}, which is not an http or https address: {problem}", quoted(found))]
    Address { found: String, problem: &'static str },
    #[error(
        "is {}, which is not a valid object name: only lower case letters, digits, - and . are allowed",
        quoted(found)
    )]
    Name { found: String },
    #[error("is empty, or has control characters")]
    Text,
}

/// Checks each text of a rendered source. `term` is the spec field of the source.
pub fn check(term: &'static str, source: &EndpointTerm) -> Result<(), (TextField, InvalidValue)> {
    texts(term, source).map_err(|(name, problem)| (TextField { term, name }, problem))
}

fn texts(term: &str, source: &EndpointTerm) -> Result<(), (&'static str, InvalidValue)> {
    let found = || source.type_.chars().take(MAX_TEXT).collect();
    let types = types_of(term.rsplit('.').next().unwrap_or_default());
    if !types.contains(&source.type_.as_str()) {
        return Err(("type", InvalidValue::Type { found: found(), types }));
    }
    let needs_endpoint = !WITHOUT_ENDPOINT.contains(&source.type_.as_str());
    match &source.endpoint {
        None if needs_endpoint => return Err(("endpoint", InvalidValue::NoEndpoint(found()))),
        Some(endpoint) if needs_endpoint => address(endpoint).map_err(|problem| ("endpoint", problem))?,
        Some(endpoint) => rendered(endpoint).map_err(|problem| ("endpoint", problem))?,
        None => {}
    }
    let (idle, full) = (source.idle_watts, source.full_watts);
    let is_line = match (idle, full, source.cpu_family) {
        (Some(idle), Some(full), None) => idle <= full,
        (idle, full, family) => idle.is_none() && full.is_none() && family.is_some(),
    };
    if source.type_ == "Linear" && !is_line {
        return Err(("idleWatts", InvalidValue::NoLine));
    }
    for (field, name) in [
        ("basicAuthSecret.name", source.basic_auth_secret.as_ref().map(|secret| &secret.name)),
        ("ca.secret.name", source.ca.as_ref().and_then(|ca| ca.secret.as_ref()).map(|key| &key.name)),
        ("ca.configMap.name", source.ca.as_ref().and_then(|ca| ca.config_map.as_ref()).map(|key| &key.name)),
    ] {
        name.map_or(Ok(()), |name| object_name(name)).map_err(|problem| (field, problem))?;
    }
    for (header, [value, secret]) in source.headers.iter().flatten().zip(HEADERS) {
        header.secret.as_ref().map_or(Ok(()), |key| object_name(&key.name)).map_err(|problem| (secret, problem))?;
        header.value.as_deref().map_or(Ok(()), header_value).map_err(|problem| (value, problem))?;
    }
    source.sensor.as_deref().map_or(Ok(()), sensor).map_err(|problem| ("sensor", problem))
}

/// Checks the length and that no expression is left.
fn rendered(text: &str) -> Result<(), InvalidValue> {
    if text.len() > MAX_RENDERED {
        return Err(InvalidValue::TooLong(MAX_RENDERED));
    }
    if is_template(text) {
        return Err(InvalidValue::Unrendered { found: text.chars().take(MAX_TEXT).collect() });
    }
    Ok(())
}

/// Checks for an http or https URL with a host and without user information.
fn address(text: &str) -> Result<(), InvalidValue> {
    rendered(text)?;
    let wrong = |problem| InvalidValue::Address { found: text.chars().take(MAX_TEXT).collect(), problem };
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.ok_or_else(|| wrong("it must begin with http:// or https://"))?;
    let uri: http::Uri = text.parse().map_err(|_| wrong("it has a character that must be escaped, or no host"))?;
    let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
    let host = authority.host();
    if authority.as_str().contains('@') {
        return Err(wrong("name a Secret in basicAuthSecret instead of a user"));
    }
    if host.is_empty() || rest.starts_with('/') {
        return Err(wrong("it has no host"));
    }
    if authority.as_str().len() != host.len() && authority.port_u16().is_none() {
        return Err(wrong("its port is not a number up to 65535"));
    }
    let is_numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_numeric && octets(host).is_none() {
        return Err(wrong("its host is not a valid IPv4 address"));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_ipv6 = host.starts_with('[') && host.ends_with(']') && host.contains(':');
    if !is_ipv6 && !host.chars().all(is_name) {
        return Err(wrong("its host has a character that is not allowed in a host name"));
    }
    Ok(())
}

/// Checks for a DNS subdomain, the form of Secret and ConfigMap names.
fn object_name(text: &str) -> Result<(), InvalidValue> {
    let is_label = |label: &str| {
        let may = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(may) && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() > MAX_NAME || !text.split('.').all(is_label) {
        return Err(InvalidValue::Name { found: text.chars().take(MAX_TEXT).collect() });
    }
    Ok(())
}

/// Checks the value of a header: printable ASCII characters.
fn header_value(text: &str) -> Result<(), InvalidValue> {
    rendered(text)?;
    if text.is_empty() || !text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return Err(InvalidValue::Text);
    }
    if text.len() > MAX_HEADER { Err(InvalidValue::TooLong(MAX_HEADER)) } else { Ok(()) }
}

fn sensor(text: &str) -> Result<(), InvalidValue> {
    rendered(text)?;
    match text {
        "" => Err(InvalidValue::Text),
        text if text.len() > MAX_TEXT => Err(InvalidValue::TooLong(MAX_TEXT)),
        text if text.chars().any(char::is_control) => Err(InvalidValue::Text),
        _ => Ok(()),
    }
}
