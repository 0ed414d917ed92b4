//! Numbers from JSON documents and Kubernetes objects: the number at a path, or a condition as 1 or 0.

use serde_json::Value;

/// How a string in a document is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Not as a number: JSON has numbers.
    Never,
    /// As a Kubernetes quantity, such as `250m`.
    Quantity,
}

/// The number at this path: names and indexes separated by dots.
///
/// # Errors
///
/// There is no number; the message says why.
pub fn number(document: &Value, path: &str, text: Text) -> Result<String, String> {
    let mut at = document;
    for (depth, part) in path.split('.').enumerate() {
        let next = match at {
            Value::Object(members) => members.get(part),
            Value::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        at = next.ok_or_else(|| {
            let there: Vec<&str> = path.split('.').take(depth + 1).collect();
            format!("there is no {}", there.join("."))
        })?;
    }
    match at {
        Value::Number(number) => Ok(number.to_string()),
        // It is parsed where all values are.
        Value::String(quantity) if text == Text::Quantity => Ok(quantity.clone()),
        Value::String(_) => Err(format!("{path} is a string, not a number")),
        Value::Null => Err(format!("{path} is null, not a number")),
        Value::Bool(_) => Err(format!("{path} is true or false, not a number")),
        Value::Array(_) => Err(format!("{path} is a list, not a number")),
        Value::Object(_) => Err(format!("{path} is an object, not a number")),
    }
}

/// 1 if this condition of an object is True, 0 if it is False.
///
/// # Errors
///
/// It is neither, or was observed for an older generation; the message says why.
pub fn condition(object: &Value, kind: &str) -> Result<String, String> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut all = all.into_iter().flatten();
    let found = all.find(|one| one["type"] == kind).ok_or_else(|| format!("there is no condition {kind}"))?;
    let (of, now) = (&found["observedGeneration"], &object["metadata"]["generation"]);
    if let (Some(of), Some(now)) = (of.as_i64(), now.as_i64())
        && of < now
    {
        return Err(format!("condition {kind} was observed for an older generation"));
    }
    match found["status"].as_str() {
        Some("True") => Ok("1".to_owned()),
        Some("False") => Ok("0".to_owned()),
        Some(_) | None => Err(format!("condition {kind} is Unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("a.b", Ok("1.5"))]
    #[case("list.1.c", Ok("-3"))]
    #[case("small", Ok("1e-7"))]
    #[case("a.x.y", Err("there is no a.x"))]
    #[case("list.2", Err("there is no list.2"))]
    #[case("list.-1", Err("there is no list.-1"))]
    #[case("a.b.c", Err("there is no a.b.c"))]
    #[case("", Err("there is no "))]
    #[case("text", Err("text is a string, not a number"))]
    #[case("none", Err("none is null, not a number"))]
    #[case("yes", Err("yes is true or false, not a number"))]
    #[case("list", Err("list is a list, not a number"))]
    #[case("a", Err("a is an object, not a number"))]
    fn numbers_stand_at_paths(#[case] path: &str, #[case] expected: Result<&str, &str>) {
        let document =
            json!({"a": {"b": 1.5}, "list": [0, {"c": -3}], "text": "12", "none": null, "yes": true, "small": 1e-7});
        let found = number(&document, path, Text::Never);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn objects_write_numbers_as_quantities() {
        assert_eq!(number(&json!({"cpu": "250m"}), "cpu", Text::Quantity).as_deref(), Ok("250m"));
    }

    #[rstest]
    #[case(json!({"type": "Ready", "status": "True"}), Ok("1"))]
    #[case(json!({"type": "Ready", "status": "False", "observedGeneration": 2}), Ok("0"))]
    #[case(json!({"type": "Ready", "status": "Unknown"}), Err("condition Ready is Unknown"))]
    #[case(json!({"type": "Ready"}), Err("condition Ready is Unknown"))]
    #[case(json!({"type": "Ready", "status": "True", "observedGeneration": 1}), Err("condition Ready was observed for an older generation"))]
    #[case(json!({"type": "Other", "status": "True"}), Err("there is no condition Ready"))]
    fn conditions_hold_or_not(#[case] one: Value, #[case] expected: Result<&str, &str>) {
        let object = json!({"metadata": {"generation": 2}, "status": {"conditions": [one]}});
        assert_eq!(condition(&object, "Ready").as_deref().map_err(String::as_str), expected);
    }
}
