//! Edits of the generated CRDs that the derive macros cannot express.
//!
//! The last two reduce cost. For each write, the API server decodes, merges, validates and stores the whole object:
//! each field in managedFields, each CEL rule, and a copy in the watch cache for 75 seconds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
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

/// For a child of a loop: removes the CEL rules and makes the status atomic. Apart from samples, only the operator
/// writes children, and the rules of the ClosedLoop have already validated the copied parts.
pub fn made_by_us(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    roots(&mut crd).for_each(without_rules);
    with_whole_status(crd)
}

fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn each_status(crd: &mut CustomResourceDefinition, edit: impl Fn(&mut JSONSchemaProps)) {
    roots(crd).filter_map(|root| root.properties.as_mut()?.get_mut("status")).for_each(edit);
}

fn without_rules(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations = None;
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(without_rules);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_rules(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        without_rules(values);
    }
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
            assert!(!schema.to_string().contains("x-kubernetes-validations"), "{kind}");
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
