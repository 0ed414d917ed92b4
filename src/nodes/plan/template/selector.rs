//! Node selector of a template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use ganglion_core::facts::Selector;

/// Parses the selector. Rejects terms that match no node regardless of its labels: such a mistake would delete all
/// NodeConfigs of the template.
pub fn parse(selector: &LabelSelector) -> Result<Selector, String> {
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
