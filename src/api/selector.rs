//! Schema of label selectors, with bounds.

use schemars::{Schema, json_schema};

/// Schema of a selector for these objects.
pub fn schema(description: &str, objects: &str) -> Schema {
    json_schema!({
        "type": "object",
        "description": description,
        "properties": {
            "matchLabels": {
                "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63},
                "description": format!("Labels that the {objects} must have; all must match."),
            },
            "matchExpressions": {
                "type": "array", "maxItems": 64,
                "description": format!("Conditions on the labels of the {objects}; all must match."),
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317, "description": "Key of the label."},
                        "operator": {
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "Relation of the label to the values.",
                        },
                        "values": {
                            "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 63},
                            "description": "The values, for In and NotIn.",
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                        "message": "In and NotIn require values; Exists and DoesNotExist must not have values",
                    }],
                },
            },
        },
    })
}
