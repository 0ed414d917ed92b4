//! Generates values that a CRD schema accepts, mostly boundary values. CEL rules are ignored: the generated values are
//! a superset of those that the API server accepts.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

/// Number of texts generated per pattern.
const TEXTS: usize = 300;

/// Times that the API server accepts as `date-time`.
const TIMES: [&str; 10] = [
    "2026-12-01T00:00:00Z",
    "2026-12-01t00:00:00z",
    "2026-12-01T00:00:00.123456789Z",
    "2026-12-01T00:00:00.1234567890123Z",
    "2026-12-01T00:00:00,5Z",
    "2026-12-01T23:59:59+14:00",
    "2026-12-01T00:00:00+99:99",
    "2026-12-01T00:00:00-25:59",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-12:00",
];

/// Values that this schema accepts.
pub fn accepted(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return prop::sample::select(words.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        let bound = schema["pattern"].is_string();
        let free = || prop_oneof![Just(json!(i32::MAX)), Just(json!("1"))].boxed();
        return if bound { prop_oneof![integer(schema), string(schema)].boxed() } else { free() };
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true && schema["properties"].is_null() {
        return prop::sample::select(vec![json!({}), json!({"a": [1, null]})]).boxed();
    }
    let values = match schema["type"].as_str() {
        Some("object") => object(schema),
        Some("array") => array(schema),
        Some("string") => string(schema),
        Some("integer") => integer(schema),
        Some("number") => prop::sample::select(vec![json!(0), json!(-1.5), json!(1e308)]).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        _ => prop::sample::select(vec![json!(0), json!("a"), json!(true), json!({}), json!([])]).boxed(),
    };
    if schema["nullable"] == true { prop_oneof![4 => values, 1 => Just(Value::Null)].boxed() } else { values }
}

fn object(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(properties) = schema["properties"].as_object() {
        let is_required = |name: &str| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let fields: Vec<_> = properties.iter().map(|(name, schema)| field(name, schema, is_required(name))).collect();
        return fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed();
    }
    let values = accepted(&schema["additionalProperties"]);
    prop::collection::btree_map("[a-z]{1,3}", values, 0..3).prop_map(|map| Value::Object(Map::from_iter(map))).boxed()
}

fn field(name: &str, schema: &Value, required: bool) -> BoxedStrategy<Option<(String, Value)>> {
    let name = name.to_owned();
    let value = accepted(schema).prop_map(move |value| (name.clone(), value));
    if required { value.prop_map(Some).boxed() } else { prop::option::of(value).boxed() }
}

fn array(schema: &Value) -> BoxedStrategy<Value> {
    let size = |name: &str| schema[name].as_u64().and_then(|size| usize::try_from(size).ok());
    let least = size("minItems").unwrap_or(0);
    let most = size("maxItems").unwrap_or(least + 2).min(least + 2);
    prop::collection::vec(accepted(&schema["items"]), least..=most).prop_map(Value::Array).boxed()
}

fn string(schema: &Value) -> BoxedStrategy<Value> {
    let size = |name: &str| schema[name].as_u64().and_then(|size| usize::try_from(size).ok());
    let (least, most) = (size("minLength").unwrap_or(0), size("maxLength").unwrap_or(usize::MAX));
    let pattern = schema["pattern"].as_str();
    if schema["format"] == "date-time" {
        let matches = |time: &&str| pattern.is_none_or(|pattern| regex::Regex::new(pattern).unwrap().is_match(time));
        let times: Vec<Value> = TIMES.iter().filter(|time| matches(time)).map(|time| json!(time)).collect();
        return prop::sample::select(times).boxed();
    }
    let Some(pattern) = pattern else {
        let (short, long) = ("a".repeat(least), "é".repeat(most.min(least + 600)));
        let text = string_regex(&format!("[ -~]{{{least},{}}}", most.min(least + 12))).unwrap();
        return prop_oneof![Just(short), Just(long), text].prop_map(Value::from).boxed();
    };
    // The generator creates whole texts and does not support anchors.
    let pattern = pattern.strip_prefix('^').map_or_else(|| format!("[a-z]{{0,9}}{pattern}"), str::to_owned);
    let pattern = pattern.strip_suffix('$').map_or_else(|| format!("{pattern}[a-z]{{0,9}}"), str::to_owned);
    let texts = string_regex(&pattern).unwrap();
    let mut runner = TestRunner::deterministic();
    let texts = (0..TEXTS).map(|_| texts.new_tree(&mut runner).unwrap().current());
    let fitting: Vec<Value> =
        texts.filter(|text| (least..=most).contains(&text.chars().count())).map(Value::from).collect();
    assert!(!fitting.is_empty(), "no text of {least} to {most} characters matches {pattern}");
    prop::sample::select(fitting).boxed()
}

fn integer(schema: &Value) -> BoxedStrategy<Value> {
    let (low, high) = match schema["format"].as_str() {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
    let (low, high) = (bound("minimum").unwrap_or(low), bound("maximum").unwrap_or(high));
    prop_oneof![Just(low), Just(high), low..=high].prop_map(Value::from).boxed()
}
