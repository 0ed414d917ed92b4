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

/// Objects with as little text as the schema accepts, and one list each with these numbers of items; lists around it
/// have one item. A list occupies the memory of four items at least, and otherwise up to twice that of its items.
pub fn sparse_objects(schema: &Value) -> impl Iterator<Item = Value> {
    let parts = ["spec", "status"].map(|part| (part, &schema["properties"][part]));
    let lists = parts.map(|(part, schema)| {
        [1, 2, 5, 9, 33].into_iter().flat_map(move |items| with_list(schema, items)).map(move |value| (part, value))
    });
    let [spec, status] = parts.map(|(_, schema)| shortest(schema));
    lists.into_iter().flatten().map(move |(part, value)| {
        let mut object = json!({"spec": spec, "status": status});
        object[part] = value;
        object
    })
}

/// For each list within a value of this schema, the shortest value with this many items in the list.
fn with_list(schema: &Value, items: u64) -> Vec<Value> {
    if let Some(fields) = schema["properties"].as_object() {
        let with = |(name, field): (&String, &Value)| {
            let inner = with_list(field, items).into_iter();
            let outer = inner.map(|value| {
                let mut object = shortest(schema);
                object[name] = value;
                object
            });
            outer.collect::<Vec<_>>()
        };
        return fields.iter().flat_map(with).collect();
    }
    if schema["type"] != "array" {
        return Vec::new();
    }
    let count = usize::try_from(schema["maxItems"].as_u64().unwrap_or(items).min(items)).unwrap_or(0);
    let inner = with_list(&schema["items"], items).into_iter().flat_map(|item| [vec![item.clone()], vec![item; count]]);
    inner.chain([vec![shortest(&schema["items"]); count]]).map(Value::Array).collect()
}

/// The shortest value that this schema accepts.
fn shortest(schema: &Value) -> Value {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().min_by_key(|word| word.to_string().len()).cloned().unwrap_or_default();
    }
    match (schema["type"].as_str(), schema["properties"].as_object()) {
        (Some("object"), Some(fields)) => {
            let required = schema["required"].as_array();
            let is_required = |name: &String| required.is_some_and(|all| all.contains(&json!(name)));
            let chosen = fields.iter().filter(|(name, _)| is_required(name));
            Value::Object(chosen.map(|(name, field)| (name.clone(), shortest(field))).collect())
        }
        (Some("object"), None) => json!({}),
        (Some("array"), _) => {
            vec![shortest(&schema["items"]); usize::from(schema["minItems"].as_u64() > Some(0))].into()
        }
        _ => filled(schema, 1, 1),
    }
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
