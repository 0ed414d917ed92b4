//! Large objects that a CRD schema accepts. Rules in CEL are ignored.

use serde_json::{Map, Value, json};

/// Maximum size of the spec of an object that the operator reads, in bytes of JSON.
const MAX_SPEC: usize = 64 << 10;

/// Objects with all fields, with as many and as long items as the schema and the operator accept: few long ones, many
/// short ones, and mixtures.
pub fn accepted_objects(schema: &Value) -> impl Iterator<Item = Value> {
    let sizes = [1, 2, 4, 8, 16, 32, 63]
        .into_iter()
        .flat_map(|items| [1, 8, 63, 253, 1024, 4096].map(|length| (items, length)));
    let objects = sizes.map(|(items, length)| {
        let [spec, status] = ["spec", "status"].map(|part| filled(&schema["properties"][part], items, length));
        json!({"spec": spec, "status": status})
    });
    objects.filter(|object| object.to_string().len() <= MAX_SPEC)
}

/// A value with this many items per list and map, and texts of this length, within the bounds of the schema.
fn filled(schema: &Value, items: u64, length: u64) -> Value {
    let most = |bound: &str, wanted: u64| schema[bound].as_u64().unwrap_or(wanted).min(wanted);
    let whole = |count: u64| usize::try_from(count).unwrap_or(0);
    if let Some(words) = schema["enum"].as_array() {
        return words.first().cloned().unwrap_or_default();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    match schema["type"].as_str() {
        Some("object") => match schema["properties"].as_object() {
            Some(fields) => fields.iter().map(|(name, field)| (name.clone(), filled(field, items, length))).collect(),
            None => {
                let value = filled(&schema["additionalProperties"], items, length);
                let keys = 0..most("maxProperties", items);
                Value::Object(keys.map(|key| (format!("k{key}"), value.clone())).collect::<Map<_, _>>())
            }
        },
        Some("array") => vec![filled(&schema["items"], items, length); whole(most("maxItems", items))].into(),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        Some("string") => "x".repeat(whole(most("maxLength", length))).into(),
        Some("boolean") => json!(true),
        _ => schema["minimum"].as_f64().map_or(json!(1), |least| json!(least.max(1.0) as i64)),
    }
}
