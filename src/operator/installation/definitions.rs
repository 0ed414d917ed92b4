//! The CustomResourceDefinitions: whether each is installed, served, and the one of this program. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value};

use super::APPLY;
use super::facts::DefinitionFact;
use ganglion_core::check::CheckReport;

/// Advice about a definition that another version of Ganglion wrote.
const UPDATE: &str = "if the operator is of a newer version, too, update this program; otherwise apply the manifests of the \
    operator's version again: kubectl apply --server-side -k OVERLAY";

/// Number of differences that a message names.
const NAMED: usize = 3;

/// Number of differences after which a comparison ends.
const MOST: usize = 1000;

/// Parts of a version of a definition that are compared. The API server completes the others.
const PARTS: [&str; 5] = ["served", "storage", "subresources", "additionalPrinterColumns", "selectableFields"];

/// Reports on each definition of this program; those without a finding share one point.
pub fn report(definitions: &[DefinitionFact]) -> CheckReport {
    let mut report = CheckReport::on("CustomResourceDefinitions");
    let mut good = 0;
    for (own, stored) in definitions {
        let name = own.metadata.name.as_deref().unwrap_or_default();
        match stored {
            Err(error) => error.add_to(&mut report, name),
            Ok(None) => report.failed_with(format!("{name} is not installed"), APPLY),
            Ok(Some(stored)) => match problem(stored) {
                Some(problem) => report.failed_with(
                    format!("{name} is not served: {problem}"),
                    "delete what conflicts with it, or wait until it is deleted; then apply the CRDs again",
                ),
                None if add_difference(name, own, stored, &mut report) => {}
                None => good += 1,
            },
        }
    }
    if good > 0 {
        report.passed(format!(
            "{good} of {} are installed, served, and the same as in this program, version {}",
            definitions.len(),
            env!("CARGO_PKG_VERSION"),
        ));
    }
    report
}

/// Why the API server does not serve the definition; None if it does.
fn problem(stored: &Value) -> Option<String> {
    let conditions = stored["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|one| one["type"] == kind);
    let holds = |kind: &str| condition(kind).is_some_and(|one| one["status"] == "True");
    if stored["metadata"]["deletionTimestamp"].is_string() {
        return Some("it is being deleted".to_owned());
    }
    if holds("Established") && holds("NamesAccepted") {
        return None;
    }
    let refused = condition(if holds("NamesAccepted") { "Established" } else { "NamesAccepted" });
    let message = refused.and_then(|one| one["message"].as_str()).filter(|message| !message.is_empty());
    Some(message.unwrap_or("the API server has not accepted it yet").to_owned())
}

/// Adds a point if the stored definition is another one than that of this program.
fn add_difference(name: &str, own: &CustomResourceDefinition, stored: &Value, report: &mut CheckReport) -> bool {
    let own = serde_json::to_value(own).unwrap_or_default();
    let found = Difference::of(&own, stored);
    let has = |paths: &[String]| !paths.is_empty();
    match (has(&found.missing), has(&found.unknown), has(&found.changed)) {
        (false, false, false) => return false,
        (true, false, _) => {
            report.failed_with(format!("{name} is older than this program; it lacks {}", list(&found.missing)), APPLY)
        }
        (false, true, _) => report.unsure_with(
            format!("{name} is newer than this program, which does not have {}", list(&found.unknown)),
            UPDATE,
        ),
        (true, true, _) => {
            let all: Vec<String> = found.missing.into_iter().chain(found.unknown).collect();
            report.unsure_with(
                format!("{name} is of another version than this program; they differ in {}", list(&all)),
                UPDATE,
            );
        }
        (false, false, true) => report.unsure_with(
            format!(
                "{name} was edited, or is of another version than this program; they differ in {}",
                list(&found.changed)
            ),
            UPDATE,
        ),
    }
    true
}

/// The first paths, and the number of the others.
fn list(paths: &[String]) -> String {
    let named = paths.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// Difference of a stored definition to that of this program. Descriptions do not count.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Fields and values of this program that the stored definition lacks.
    missing: Vec<String>,
    /// Fields and values that this program does not have.
    unknown: Vec<String>,
    /// Other parts that differ.
    changed: Vec<String>,
}

impl Difference {
    fn of(own: &Value, stored: &Value) -> Self {
        let mut found = Self::default();
        let versions = |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let theirs = versions(stored);
        if own["spec"]["scope"] != stored["spec"]["scope"] {
            found.changed.push("scope".to_owned());
        }
        for version in versions(own) {
            let name = version["name"].as_str().unwrap_or_default();
            let Some(other) = theirs.iter().find(|other| other["name"] == version["name"]) else {
                found.missing.push(format!("version {name}"));
                continue;
            };
            let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
            found.compare(&schema(&version), &schema(other), "", "");
            for part in PARTS {
                // Kubernetes 1.30 does not store selectable fields; the list of features says so.
                let is_dropped = part == "selectableFields" && other[part].is_null();
                if !is_dropped && !is_same(&without_descriptions(&version[part]), &without_descriptions(&other[part])) {
                    found.changed.push(part.to_owned());
                }
            }
        }
        found
    }

    /// Compares two parts of a schema. `key` is the member of which they are the values.
    fn compare(&mut self, own: &Value, stored: &Value, key: &str, path: &str) {
        if self.missing.len() + self.unknown.len() + self.changed.len() > MOST {
            return;
        }
        match (own, stored) {
            (Value::Object(own), Value::Object(stored)) => self.compare_objects(own, stored, key, path),
            (Value::Array(own), Value::Array(stored)) if key == "enum" => {
                let value =
                    |value: &Value| format!("the value {} of {}", value.as_str().unwrap_or("null"), named(path));
                self.missing.extend(own.iter().filter(|one| !stored.contains(one)).map(value));
                self.unknown.extend(stored.iter().filter(|one| !own.contains(one)).map(value));
            }
            (own, stored) if is_same(&without_descriptions(own), &without_descriptions(stored)) => {}
            _ => self.changed.push(format!("{} of {}", if key.is_empty() { "schema" } else { key }, named(path))),
        }
    }

    fn compare_objects(&mut self, own: &Map<String, Value>, stored: &Map<String, Value>, key: &str, path: &str) {
        let is_of_fields = key == "properties";
        for (name, value) in own {
            match stored.get(name) {
                // A field may have the name of a word of the schema.
                Some(other) if is_of_fields => self.compare(value, other, "", &below(path, key, name)),
                Some(other) => self.compare(value, other, name, &below(path, key, name)),
                None if is_of_fields => self.missing.push(below(path, key, name)),
                None if name == "description" => {}
                None => self.changed.push(format!("{name} of {}", named(path))),
            }
        }
        for name in stored.keys().filter(|name| !own.contains_key(*name)) {
            if is_of_fields {
                self.unknown.push(below(path, key, name));
            } else if name != "description" {
                self.changed.push(format!("{name} of {}", named(path)));
            }
        }
    }
}

/// Path of a member as users write it: without the words of the schema.
fn below(path: &str, key: &str, name: &str) -> String {
    match (key, name) {
        ("properties", name) if path.is_empty() => name.to_owned(),
        ("properties", name) => format!("{path}.{name}"),
        (_, "items") => format!("{path}[]"),
        _ => path.to_owned(),
    }
}

fn named(path: &str) -> &str {
    if path.is_empty() { "the object" } else { path }
}

/// Equality of two JSON values; 1 and 1.0 are the same number.
fn is_same(own: &Value, stored: &Value) -> bool {
    match (own, stored) {
        (Value::Number(own), Value::Number(stored)) => own.as_f64() == stored.as_f64(),
        (Value::Array(own), Value::Array(stored)) => {
            own.len() == stored.len() && own.iter().zip(stored).all(|(own, stored)| is_same(own, stored))
        }
        (Value::Object(own), Value::Object(stored)) => {
            let is_there =
                |(name, value): (&String, &Value)| stored.get(name).is_some_and(|other| is_same(value, other));
            own.len() == stored.len() && own.iter().all(is_there)
        }
        _ => own == stored,
    }
}

/// The value without descriptions, at any depth.
fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| *name != "description" || !value.is_string());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_descriptions(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_descriptions).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn definition(schema: Value) -> Value {
        json!({"spec": {"scope": "Namespaced", "versions": [{
            "name": "v1alpha1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.a"}],
            "schema": {"openAPIV3Schema": schema},
        }]}})
    }

    fn field(field: Value) -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": {
            "type": "array", "items": {"type": "object", "properties": {"a": field}}}}}}})
    }

    #[rstest]
    #[case::same(json!({"maximum": 1.0}), "")]
    #[case::words(json!({"maximum": 1, "description": "other"}), "")]
    #[case::bound(json!({"maximum": 2}), "maximum of spec.list[].a")]
    #[case::rule(json!({"maximum": 1, "minimum": 0}), "minimum of spec.list[].a")]
    #[case::field(json!({"maximum": 1, "properties": {"description": {}}}), "properties of spec.list[].a")]
    fn a_change_is_found_at_its_path(#[case] stored: Value, #[case] expected: &str) {
        let found = Difference::of(&definition(field(json!({"maximum": 1}))), &definition(field(stored)));
        let changed: Vec<String> = [expected].into_iter().filter(|path| !path.is_empty()).map(str::to_owned).collect();
        assert_eq!(found, Difference { changed, ..Difference::default() });
    }

    #[test]
    fn fields_and_values_tell_which_one_is_older() {
        let schema = |value: Value| definition(json!({"properties": value}));
        let less = schema(json!({"a": {"enum": ["x"]}}));
        let more = schema(json!({"a": {"enum": ["x", "y"]}, "b": {}}));
        let expected = ["b", "the value y of a"].map(str::to_owned).to_vec();
        let mut older = Difference::of(&more, &less);
        older.missing.sort();
        assert_eq!(older, Difference { missing: expected.clone(), ..Difference::default() });
        let mut newer = Difference::of(&less, &more);
        newer.unknown.sort();
        assert_eq!(newer, Difference { unknown: expected, ..Difference::default() });
        let mut other = less.clone();
        other["spec"]["versions"][0]["name"] = json!("v1");
        assert_eq!(Difference::of(&less, &other).missing, ["version v1alpha1"]);
        other = less.clone();
        other["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(Difference::of(&less, &other).changed, ["served"]);
        other = less.clone();
        other["spec"]["versions"][0]["selectableFields"] = Value::Null;
        assert_eq!(Difference::of(&less, &other), Difference::default(), "dropped by the API server");
    }

    #[test]
    fn a_message_names_some_differences_and_counts_the_others() {
        let paths: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        assert_eq!(list(&paths), "a, b, c, and 2 more");
        assert_eq!(list(&paths[..2]), "a, b");
    }
}
