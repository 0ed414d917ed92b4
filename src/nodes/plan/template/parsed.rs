//! Parsed template, or why it is rejected as a whole.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{CompiledTemplate, compile};
use ganglion_api::node_config::NodeConfigTemplate;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_core::facts::Selector;
use ganglion_core::namespaces::Namespaces;

/// Parsed template.
pub struct ParsedTemplate {
    pub selector: Selector,
    pub compiled: CompiledTemplate,
}

/// Why a template is rejected as a whole.
#[derive(Clone, Debug)]
pub struct Rejection {
    pub reason: NodeReason,
    pub message: String,
}

impl ParsedTemplate {
    /// Parses selector and texts of a template in a namespace that the settings include.
    pub fn parse(template: &NodeConfigTemplate, namespaces: Namespaces) -> Result<Self, Rejection> {
        let namespace = template.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(message) = namespaces.refusal(namespace) {
            return Err(Rejection { reason: NodeReason::NamespaceRefused, message });
        }
        let selector = parse_selector(&template.spec.node_selector)
            .map_err(|message| Rejection { reason: NodeReason::SpecInvalid, message })?;
        let compiled = compile(&template.spec.template)
            .map_err(|error| Rejection { reason: NodeReason::TemplateInvalid, message: error.to_string() })?;
        Ok(Self { selector, compiled })
    }
}

/// Parses the selector. Rejects terms that match no node regardless of its labels: such a mistake would delete all
/// NodeConfigs of the template.
pub fn parse_selector(selector: &LabelSelector) -> Result<Selector, String> {
    for (at, term) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("nodeSelector.matchExpressions[{at}]");
        let values = term.values.as_deref().unwrap_or_default();
        match term.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                return Err(format!("{path}.values is empty: {} needs values", term.operator));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                return Err(format!("{path}.values is set: {} takes none", term.operator));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => return Err(format!("{path}.operator must be one of In, NotIn, Exists, DoesNotExist")),
        }
    }
    Ok(selector.into())
}
