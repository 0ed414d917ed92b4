//! Fields that the API server dropped from a write, because the CRD does not have them.

use serde_json::Value;

/// Path of the first field of `sent` that `stored` does not have. Values are not compared: the API server may normalize
/// them. It drops nulls, and elements of lists whose lengths differ do not correspond.
pub fn dropped_field(sent: &Value, stored: &Value) -> Option<String> {
    let mut path = String::new();
    is_dropped(sent, stored, &mut path).then_some(path)
}

/// Appends the path of the first field to `path`, if there is one.
fn is_dropped(sent: &Value, stored: &Value, path: &mut String) -> bool {
    let length = path.len();
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => {
            for (name, value) in sent.iter().filter(|(_, value)| !value.is_null()) {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                if stored.get(name).is_none_or(|stored| is_dropped(value, stored, path)) {
                    return true;
                }
                path.truncate(length);
            }
        }
        (Value::Array(sent), Value::Array(stored)) if sent.len() == stored.len() => {
            for (at, (value, stored)) in sent.iter().zip(stored).enumerate() {
                path.push_str(&format!("[{at}]"));
                if is_dropped(value, stored, path) {
                    return true;
                }
                path.truncate(length);
            }
        }
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_missing_field_is_named() {
        let sent = json!({"status": {"a": 1, "slots": [{"id": "x", "step": "Queued"}, {"id": "y", "attempt": 2}]}});
        for (stored, expected) in [
            (sent.clone(), None),
            (
                json!({"status": {"a": 2, "more": 1, "slots": [{"id": "x", "step": "q"}, {"id": "y", "attempt": 0}]}}),
                None,
            ),
            (json!({"status": {"a": 1}}), Some("status.slots")),
            (json!({"status": {"slots": []}}), Some("status.a")),
            (
                json!({"status": {"a": 1, "slots": [{"id": "x", "step": ""}, {"id": "y"}]}}),
                Some("status.slots[1].attempt"),
            ),
            // Another writer's element: which ones correspond is unknown.
            (json!({"status": {"a": 1, "slots": [{"id": "x"}]}}), None),
            (json!({}), Some("status")),
        ] {
            assert_eq!(dropped_field(&sent, &stored).as_deref(), expected, "{stored}");
        }
        assert_eq!(dropped_field(&json!({"a": null, "b": {}}), &json!({"b": {}})), None, "nulls are dropped anyway");
    }
}
