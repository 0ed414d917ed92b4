//! Parsed template, or why it is rejected as a whole.

use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::template::NodeConfigTemplate;
use ganglion_core::facts::Selector;
use ganglion_core::namespaces::Namespaces;

use super::{Compiled, compile, selector};

/// Parsed template.
pub struct ParsedTemplate {
    pub selector: Selector,
    pub compiled: Compiled,
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
        let selector = selector::parse(&template.spec.node_selector)
            .map_err(|message| Rejection { reason: NodeReason::SpecInvalid, message })?;
        let compiled = compile(&template.spec.template)
            .map_err(|error| Rejection { reason: NodeReason::TemplateInvalid, message: error.to_string() })?;
        Ok(Self { selector, compiled })
    }
}
