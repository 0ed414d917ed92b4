//! The schema of label selectors, bounded.

use schemars::{Schema, json_schema};

/// The schema of a selector of these objects.
pub fn schema(description: &str, objects: &str) -> Schema {
    json_schema!({
        "type": "object",
        "description": description,
        "properties": {
            "matchLabels": {
                "type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63},
                "description": format!("Labels that the {objects} have, all of them."),
            },
            "matchExpressions": {
                "type": "array", "maxItems": 64,
                "description": format!("Conditions on the labels of the {objects}; all must hold."),
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317, "description": "The label."},
                        "operator": {
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "How the label is compared with the values.",
                        },
                        "values": {
                            "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 63},
                            "description": "The values, for In and NotIn.",
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                        "message": "In and NotIn need values; Exists and DoesNotExist have none",
                    }],
                },
            },
        },
    })
}
