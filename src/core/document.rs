//! Reads numbers from JSON documents and Kubernetes objects: the number at a path, or a condition as 1 or 0.
//!
//! Does not build a tree of the document, which would take many times its memory: everything off the path is skipped.
//! Errors contain paths and kinds of values, never a value, since a document may hold secrets.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_json::value::RawValue;

use crate::quantity;
use crate::words::kind_of_text;

/// Splits a path into names and indexes. They are separated by dots, as in `items.0.load`; an index may also be written
/// as `items[0]`. A dot within a name is written as `\.`, or the name as `['a.b']`.
pub fn path_parts(path: &str) -> Result<Vec<String>, String> {
    if let Some(inner) = of_json_path(path) {
        return Err(format!("{path} is a JSONPath: write {inner}"));
    }
    let mut parts = Vec::new();
    // None after a bracket, which is a part of its own.
    let mut name = Some(String::new());
    let mut rest = path;
    while let Some(next) = rest.chars().next() {
        let tail = &rest[next.len_utf8()..];
        rest = match (next, &mut name) {
            ('.', Some(name)) if name.is_empty() => return Err(empty_name(path)),
            ('.', _) => {
                parts.extend(name.replace(String::new()));
                tail
            }
            ('[', _) => {
                parts.extend(name.take().filter(|name| !name.is_empty()));
                let (inner, tail) = bracket(tail).ok_or_else(|| format!("{path}: a bracket has no end"))?;
                parts.push(inner.to_owned());
                tail
            }
            (_, None) => return Err(format!("{path}: a dot is missing after a bracket")),
            ('\\', Some(name)) => {
                let escaped =
                    tail.chars().next().ok_or_else(|| format!("{path}: nothing follows the last backslash"))?;
                name.push(escaped);
                &tail[escaped.len_utf8()..]
            }
            (_, Some(name)) => {
                name.push(next);
                tail
            }
        };
    }
    if name.as_ref().is_some_and(String::is_empty) {
        return Err(empty_name(path));
    }
    parts.extend(name);
    Ok(parts)
}

/// Returns the path in a JSONPath, such as `{.a.b}` of kubectl or `$.a.b`; None if it is none.
fn of_json_path(path: &str) -> Option<&str> {
    let braced = path.strip_prefix('{').and_then(|path| path.strip_suffix('}'));
    let inner = braced.unwrap_or(path);
    let from_root = inner.strip_prefix('$').filter(|rest| rest.starts_with(['.', '[']));
    let inner = from_root.or(braced)?;
    Some(inner.strip_prefix('.').unwrap_or(inner))
}

fn empty_name(path: &str) -> String {
    let path = if path.is_empty() { "the path" } else { path };
    format!("{path} has an empty name: write it without the dot at its start, or an empty name as ['']")
}

/// Splits what follows a bracket into its content, without quotes, and the rest.
fn bracket(text: &str) -> Option<(&str, &str)> {
    match text.chars().next()? {
        quote @ ('\'' | '"') => {
            let (name, rest) = text[1..].split_once(quote)?;
            Some((name, rest.strip_prefix(']')?))
        }
        _ => text.split_once(']'),
    }
}

/// Returns the number at this path, see [`path_parts`]. It may be a text: a number or a Kubernetes quantity, such as
/// `250m`, with blanks around it. If a name occurs several times in an object, the last one counts.
pub fn number(document: &[u8], path: &str) -> Result<String, String> {
    let raw = at(document, path)?;
    let kind = match raw.as_bytes().first() {
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "a list".to_owned(),
        Some(b't' | b'f') => "true or false".to_owned(),
        Some(b'n') => "null".to_owned(),
        Some(b'"') => {
            let found: Cow<'_, str> = parsed(raw.as_bytes())?;
            let text = found.trim();
            if quantity::number(text).is_ok() {
                return Ok(text.to_owned());
            }
            if text.strip_suffix('%').is_some_and(|text| quantity::number(text.trim_end()).is_ok()) {
                return Err(format!("{path} is a text with a percent sign, not a number: 45% may mean 45 or 0.45"));
            }
            kind_of_text(&found)
        }
        Some(_) | None => return parsed::<Number>(raw.as_bytes()).map(|number| number.to_string()),
    };
    Err(format!("{path} is {kind}, not a number"))
}

/// Returns the JSON text of this part of a document: names and indexes. None if it does not exist, or if the document
/// is malformed.
pub fn find<'a>(document: &'a [u8], path: &[&str]) -> Option<&'a str> {
    let found = Walk(path).deserialize(&mut serde_json::Deserializer::from_slice(document));
    found.ok()?.ok().map(RawValue::get)
}

/// Returns the JSON text at this path.
pub fn at<'a>(document: &'a [u8], path: &str) -> Result<&'a str, String> {
    let parts = path_parts(path)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut deserializer = serde_json::Deserializer::from_slice(document);
    let found = Walk(&parts).deserialize(&mut deserializer).and_then(|found| deserializer.end().map(|()| found));
    match found {
        Ok(Ok(raw)) => Ok(raw.get()),
        Ok(Err(Lost { after })) => {
            let there = parts.len().saturating_sub(after).saturating_add(1);
            Err(format!("there is no {}", parts[..there.min(parts.len())].join(".")))
        }
        Err(error) => Err(malformed(&error)),
    }
}

/// Parses a JSON text.
pub fn parsed<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| malformed(&error))
}

/// Parses a JSON text in which numbers may also be `NaN` or infinite, as programs in Python and C++ write them, or too
/// large. JSON has no such numbers; they count as null, so that the rest of the text can be used.
pub fn parsed_without_nan<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    parsed(text).or_else(|problem| without_nan(text).and_then(|text| parsed(&text).ok()).ok_or(problem))
}

/// Replaces numbers that are not finite by null. None if there are none.
fn without_nan(text: &[u8]) -> Option<Vec<u8>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let (mut out, mut rest, mut has_any) = (Vec::with_capacity(text.len()), text, false);
    while let Some(first) = rest.first() {
        let length = match first {
            b'"' => string_length(rest),
            byte if is_word(byte) => rest.iter().take_while(|byte| is_word(byte)).count(),
            _ => 1,
        };
        let (token, tail) = rest.split_at(length);
        let number: Option<f64> = std::str::from_utf8(token).ok().and_then(|token| token.parse().ok());
        let is_finite = number.is_none_or(f64::is_finite);
        has_any |= !is_finite;
        out.extend_from_slice(if is_finite { token } else { b"null" });
        rest = tail;
    }
    has_any.then_some(out)
}

/// Length of the string at the start of this text, with its quotes; that of the text if it does not end.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = true;
    let end = text.iter().position(|byte| match byte {
        _ if is_escaped => {
            is_escaped = false;
            false
        }
        b'\\' => {
            is_escaped = true;
            false
        }
        byte => *byte == b'"',
    });
    end.map_or(text.len(), |end| end.saturating_add(1))
}

/// Upper limit of the number of values in a JSON text. A tree of the text takes up to a kilobyte for each of them.
pub fn count_values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1_usize, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

/// Contains only the position of the error, since its text may quote the document.
fn malformed(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    if error.is_data() {
        format!("the answer does not have the expected form at line {line}, column {column}")
    } else {
        format!("the answer is no JSON document: error at line {line}, column {column}")
    }
}

/// Nothing is at the path. `after` is the number of its parts that were left, including the missing one.
struct Lost {
    after: usize,
}

/// Follows a path and skips everything else. The recursion is as deep as the path.
struct Walk<'p>(&'p [&'p str]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Result<&'de RawValue, Lost>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return <&RawValue>::deserialize(deserializer).map(Ok);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Result<&'de RawValue, Lost>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = self.lost();
        let Some((name, rest)) = self.0.split_first() else { return found };
        while let Some(is_it) = members.next_key_seed(Check(|key: &str| key == *name))? {
            if is_it {
                found = Ok(members.next_value_seed(Walk(rest))?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        found
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = self.lost();
        let Some((index, rest)) = self.0.split_first() else { return found };
        let index: Option<usize> = index.parse().ok();
        for place in 0_usize.. {
            if Some(place) == index {
                let Some(item) = items.next_element_seed(Walk(rest))? else { break };
                found = Ok(item);
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        found
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        self.lost()
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        self.lost()
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        self.lost()
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        self.lost()
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        self.lost()
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        self.lost()
    }
}

impl Walk<'_> {
    fn lost<'de, E>(&self) -> Result<Result<&'de RawValue, Lost>, E> {
        Ok(Err(Lost { after: self.0.len() }))
    }
}

/// Checks a text with escapes resolved, such as the name of an object member.
struct Check<F>(F);

impl<'de, F: FnMut(&str) -> bool> DeserializeSeed<'de> for Check<F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<F: FnMut(&str) -> bool> Visitor<'_> for Check<F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(mut self, text: &str) -> Result<bool, E> {
        Ok(self.0(text))
    }
}

/// Checks the texts in a list.
struct CheckAll<F>(F);

impl<'de, F: FnMut(&str) -> bool> Visitor<'de> for CheckAll<F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<bool, A::Error> {
        let mut all = true;
        while let Some(is_good) = items.next_element_seed(Check(&mut self.0))? {
            all &= is_good;
        }
        Ok(all)
    }
}

/// Whether all texts in a list pass this check. Fails if it is not a list of texts.
pub fn all_texts(list: &str, check: impl FnMut(&str) -> bool) -> Result<bool, String> {
    serde_json::Deserializer::from_str(list).deserialize_seq(CheckAll(check)).map_err(|error| malformed(&error))
}

/// Condition of an object.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OneCondition {
    #[serde(rename = "type")]
    kind: String,
    status: Option<String>,
    observed_generation: Option<i64>,
}

/// Finds the first condition of this type in a list.
struct First<'k>(&'k str);

impl<'de> Visitor<'de> for First<'_> {
    type Value = Option<OneCondition>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of conditions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(one) = items.next_element::<OneCondition>()? {
            found = found.or(Some(one).filter(|one| one.kind == self.0));
        }
        Ok(found)
    }
}

/// Returns 1 if this condition of an object is True, 0 if it is False. Fails if the condition is neither, or was
/// observed for an older generation.
pub fn condition(object: &[u8], kind: &str) -> Result<String, String> {
    let none = || format!("there is no condition {kind}");
    let list = at(object, "status.conditions").map_err(|_| none())?;
    let found = serde_json::Deserializer::from_str(list).deserialize_seq(First(kind));
    let found = found.map_err(|_| "status.conditions is not a list of conditions".to_owned())?.ok_or_else(none)?;
    let now = at(object, "metadata.generation").and_then(|now| parsed::<i64>(now.as_bytes()));
    if let (Some(of), Ok(now)) = (found.observed_generation, now)
        && of < now
    {
        return Err(format!("condition {kind} was observed for an older generation"));
    }
    match found.status.as_deref() {
        Some("True") => Ok("1".to_owned()),
        Some("False") => Ok("0".to_owned()),
        Some(_) | None => Err(format!("condition {kind} is Unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case("a.b", Ok("1.5"))]
    #[case("list.1.c", Ok("-3"))]
    #[case("small", Ok("1e-7"))]
    #[case("a.x.y", Err("there is no a.x"))]
    #[case("list.2", Err("there is no list.2"))]
    #[case("list.-1", Err("there is no list.-1"))]
    #[case("a.b.c", Err("there is no a.b.c"))]
    #[case("", Err("the path has an empty name: write it without the dot at its start, or an empty name as ['']"))]
    #[case(".a.b", Err(".a.b has an empty name: write it without the dot at its start, or an empty name as ['']"))]
    #[case("a..b", Err("a..b has an empty name: write it without the dot at its start, or an empty name as ['']"))]
    #[case("['']", Ok("6"))]
    #[case("{.a.b}", Err("{.a.b} is a JSONPath: write a.b"))]
    #[case("{$.list[1].c}", Err("{$.list[1].c} is a JSONPath: write list[1].c"))]
    #[case("$.a.b", Err("$.a.b is a JSONPath: write a.b"))]
    #[case("['$'].a", Ok("5"))]
    #[case("blanks", Ok("12"))]
    #[case("percent", Err("percent is a text with a percent sign, not a number: 45% may mean 45 or 0.45"))]
    #[case("blank", Err("blank is a text of 1 character, not a number"))]
    #[case("text", Ok("12"))]
    #[case("quantity", Ok("250m"))]
    #[case("words", Err("words is a text of 7 characters, not a number"))]
    #[case("list[1].c", Ok("-3"))]
    #[case("list[1]['c']", Ok("-3"))]
    #[case("[\"list\"][1].c", Ok("-3"))]
    #[case("dotted\\.name", Ok("7"))]
    #[case("['dotted.name']", Ok("7"))]
    #[case("a['x.y'].z", Err("there is no a.x.y"))]
    #[case("list[1", Err("list[1: a bracket has no end"))]
    #[case("list['1]", Err("list['1]: a bracket has no end"))]
    #[case("list[1]c", Err("list[1]c: a dot is missing after a bracket"))]
    #[case("a\\", Err("a\\: nothing follows the last backslash"))]
    #[case("none", Err("none is null, not a number"))]
    #[case("yes", Err("yes is true or false, not a number"))]
    #[case("list", Err("list is a list, not a number"))]
    #[case("a", Err("a is an object, not a number"))]
    fn numbers_stand_at_paths(#[case] path: &str, #[case] expected: Result<&str, &str>) {
        let document = json!({"a": {"b": 1.5}, "list": [0, {"c": -3}], "text": "12", "quantity": "250m", "words": "hunter2",
                "dotted.name": 7, "": 6, "$": {"a": 5}, "blanks": " 12\n",
                "percent": "45%", "blank": " ", "none": null, "yes": true, "small": 1e-7});
        let found = number(document.to_string().as_bytes(), path);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[rstest]
    #[case(r#"{"a": 1, "a": {"b": 2}}"#, "a", Err("a is an object, not a number"))]
    #[case(r#"{"a": {"b": 2}, "a": 1}"#, "a.b", Err("there is no a.b"))]
    #[case(r#"{"\u0061\/": [5]}"#, "a/.0", Ok("5"))]
    #[case(r#"{"a": -0, "b": 1E2}"#, "b", Ok("100.0"))]
    #[case(r#"{"a": 1} x"#, "a", Err("the answer is no JSON document: error at line 1, column 10"))]
    #[case(r#"{"a": hunter2}"#, "a", Err("the answer is no JSON document: error at line 1, column 7"))]
    #[case(r#"["hunter2"#, "0", Err("the answer is no JSON document: error at line 1, column 9"))]
    fn odd_documents_are_read_as_a_tree_would_be(
        #[case] document: &str,
        #[case] path: &str,
        #[case] expected: Result<&str, &str>,
    ) {
        let found = number(document.as_bytes(), path);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn depth_is_no_limit_beside_the_path_and_one_on_it() {
        let deep = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
        let beside = format!(r#"{{"x": {}, "a": 7}}"#, deep(300_000, ""));
        assert_eq!(number(beside.as_bytes(), "a").as_deref(), Ok("7"));
        let path = vec!["0"; 126].join(".");
        assert_eq!(number(deep(126, "7").as_bytes(), &path).as_deref(), Ok("7"));
        let path = vec!["0"; 1000].join(".");
        assert!(number(deep(1000, "7").as_bytes(), &path).is_err());
    }

    #[rstest]
    #[case("[NaN, nan, -nan, Infinity, -inf, +Infinity, 1e999, -2]", "[null,null,null,null,null,null,null,-2]")]
    #[case(r#"{"NaN": "a \" NaN \\", "b": {"c":NaN}, "d": 1.5}"#, r#"{"NaN":"a \" NaN \\","b":{"c":null},"d":1.5}"#)]
    fn numbers_that_json_does_not_have_are_null(#[case] text: &str, #[case] expected: &str) {
        assert!(parsed::<Value>(text.as_bytes()).is_err());
        assert_eq!(parsed_without_nan::<Value>(text.as_bytes()).unwrap().to_string(), expected);
    }

    #[rstest]
    #[case("[NaNa]", "the answer is no JSON document: error at line 1, column 2")]
    #[case("[NaN, x]", "the answer is no JSON document: error at line 1, column 2")]
    #[case("[\"NaN", "the answer is no JSON document: error at line 1, column 5")]
    #[case("", "the answer is no JSON document: error at line 1, column 0")]
    fn other_words_are_no_json(#[case] text: &str, #[case] words: &str) {
        assert_eq!(parsed_without_nan::<Value>(text.as_bytes()).unwrap_err(), words);
    }

    proptest! {
        #[test]
        fn what_is_json_stays_as_it_is(text in r#"[\[\]{}",:0-9a-zN.\\ -]{0,40}"#) {
            let (strict, lenient) = (parsed::<Value>(text.as_bytes()), parsed_without_nan::<Value>(text.as_bytes()));
            if strict.is_ok() {
                prop_assert_eq!(strict, lenient);
            }
        }
    }

    #[rstest]
    #[case("1", 1)]
    #[case(r#""a,[\",{""#, 1)]
    #[case("[1, [], {}]", 6)]
    #[case(r#"{"a": "\\", "b,": [1]}"#, 4)]
    fn values_are_counted(#[case] text: &str, #[case] count: usize) {
        assert_eq!(count_values(text.as_bytes()), count);
    }

    #[rstest]
    #[case(&["a.b", "1"], Some("{}"))]
    #[case(&["a.b", "2"], None)]
    #[case(&["a"], None)]
    #[case(&[], Some(r#"{"a.b": [0, {}]}"#))]
    fn a_part_is_found_by_names_with_dots(#[case] path: &[&str], #[case] found: Option<&str>) {
        assert_eq!(find(br#"{"a.b": [0, {}]}"#, path), found);
        assert_eq!(find(br#"{"a.b": [0, {}"#, path), None);
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
        assert_eq!(condition(object.to_string().as_bytes(), "Ready").as_deref().map_err(String::as_str), expected);
    }
}
