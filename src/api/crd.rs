//! Edits of the generated CRDs that the derive macros cannot express.
//!
//! [`with_whole_status`] and [`made_by_us`] reduce cost. For each write, the API server decodes, merges, validates and
//! stores the whole object: each field in managedFields, each CEL rule, and a copy in the watch cache for 75 seconds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};

use super::UNSEEN_GENERATION;

/// Sets `status: {observedGeneration: -1}` on new objects, so that kstatus does not report them as healthy before a
/// controller has observed them.
pub fn with_unseen_status(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    each_status(&mut crd, |status| {
        status.default = Some(JSON(serde_json::json!({ "observedGeneration": UNSEEN_GENERATION })));
    });
    crd
}

/// Makes the status atomic: it has one writer, so managedFields needs no entry for each of its fields.
pub fn with_whole_status(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    each_status(&mut crd, |status| status.x_kubernetes_map_type = Some("atomic".to_owned()));
    crd
}

/// For a child of a loop: removes the CEL rules except those of [`with_bounds`] and makes the status atomic. Apart from
/// samples, only the operator writes children, and the rules of the ClosedLoop have already validated the copied parts.
pub fn made_by_us(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    roots(&mut crd).for_each(|root| each_schema(root, &|schema| schema.x_kubernetes_validations = None));
    with_whole_status(crd)
}

/// Maximum length of the key of a map: that of a label, with its prefix.
const MAX_KEY: usize = 317;

/// Maximum length of a time. The API server accepts any number of digits after the second.
const MAX_TIME: i64 = 64;

/// Maximum length of a text of a status that has no bound of its own. Messages have at most 1024 characters; a text may
/// also combine several names.
const MAX_STATUS_TEXT: i64 = 4096;

/// Maximum length of a list of a status that has no bound of its own.
const MAX_STATUS_ITEMS: i64 = 256;

/// Bounds what a field of the types cannot: times, keys of maps, conditions, and all texts and lists of the status that
/// have no bound of their own. Each replica of the operator keeps these objects in memory, and whoever may write an
/// object or its status would otherwise decide how much.
pub fn with_bounds(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    roots(&mut crd).for_each(|root| each_schema(root, &bound_key_or_time));
    each_status(&mut crd, |status| each_schema(status, &bound_text_or_list));
    crd
}

fn bound_key_or_time(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref() == Some("date-time") {
        schema.max_length.get_or_insert(MAX_TIME);
    }
    if schema.additional_properties.is_some() {
        // A schema cannot bound the keys of a map; only a rule can.
        let rule = ValidationRule {
            rule: format!("self.all(key, key.size() <= {MAX_KEY})"),
            message: Some(format!("a key has at most {MAX_KEY} characters")),
            ..ValidationRule::default()
        };
        schema.x_kubernetes_validations.get_or_insert_default().push(rule);
    }
}

fn bound_text_or_list(schema: &mut JSONSchemaProps) {
    match schema.type_.as_deref() {
        Some("string") if schema.enum_.is_none() => {
            schema.max_length.get_or_insert(MAX_STATUS_TEXT);
        }
        Some("array") => {
            schema.max_items.get_or_insert(MAX_STATUS_ITEMS);
        }
        _ => {}
    }
}

/// Edits a schema and all schemas within it.
fn each_schema(schema: &mut JSONSchemaProps, edit: &impl Fn(&mut JSONSchemaProps)) {
    edit(schema);
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(|field| each_schema(field, edit));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        each_schema(items, edit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        each_schema(values, edit);
    }
}

fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn each_status(crd: &mut CustomResourceDefinition, edit: impl Fn(&mut JSONSchemaProps)) {
    roots(crd).filter_map(|root| root.properties.as_mut()?.get_mut("status")).for_each(edit);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn schema(kind: &str) -> Value {
        let crd = super::super::all().into_iter().find(|crd| crd.spec.names.kind == kind).expect("such a kind");
        json!(crd.spec.versions[0].schema.as_ref().expect("a schema").open_api_v3_schema)
    }

    #[test]
    fn children_have_no_rules_and_a_whole_status() {
        for kind in ["Monitoring", "Decision", "Execution"] {
            let schema = schema(kind);
            let text = schema.to_string();
            let rules = |start: &str| text.matches(&format!("\"rule\":\"{start}")).count();
            assert_eq!(rules(""), rules("self.all(key, key.size()"), "{kind}");
            assert_eq!(schema["properties"]["status"]["x-kubernetes-map-type"], "atomic", "{kind}");
            assert!(schema["properties"]["spec"].get("x-kubernetes-map-type").is_none(), "{kind}");
        }
    }

    #[test]
    fn what_users_write_keeps_its_rules_and_what_many_write_its_fields() {
        for kind in ["WorkloadAction", "ClosedLoop"] {
            assert!(schema(kind).to_string().contains("x-kubernetes-validations"), "{kind}");
        }
        assert!(schema("ClosedLoop")["properties"]["status"].get("x-kubernetes-map-type").is_none());
    }
}
