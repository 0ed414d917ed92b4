//! Parts of messages that several kinds share.

use std::fmt::Display;

/// Renders a count with its noun, such as `1 job` and `3 jobs`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// Truncates the text to this number of bytes, at a character boundary.
pub fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Quotes a text in a message, as it is: a text with quotes keeps them. Control characters become blanks.
pub fn quoted(text: &str) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{shown}\"")
}

/// Describes a text of other writers by its length only: the text may be a secret.
pub fn kind_of_text(text: &str) -> String {
    match text.chars().count() {
        1 => "a text of 1 character".to_owned(),
        count => format!("a text of {count} characters"),
    }
}

/// Text of serde for a value that has none of the forms of a Rust type.
const NO_FORM: &str = "data did not match any variant of untagged enum";

/// The message of a parser without the names of Rust types, which users do not know.
pub fn without_types(message: &str) -> String {
    if let Some((before, _)) = message.split_once(NO_FORM) {
        return format!("{before}the value has none of the possible forms");
    }
    let Some((before, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let (first, rest) = expected.split_once(' ').unwrap_or((expected, ""));
    let expected = match (first, rest) {
        ("struct", _) | ("a", "map") => "an object".to_owned(),
        ("a", "sequence") => "a list".to_owned(),
        ("enum", _) => "one of the possible words".to_owned(),
        ("f32" | "f64", _) => "a number".to_owned(),
        ("i8" | "i16" | "i32" | "i64", _) => format!("a whole number of {} bits", &first[1..]),
        ("u8" | "u16" | "u32" | "u64", _) => format!("a whole number of {} bits, at least 0", &first[1..]),
        _ => expected.to_owned(),
    };
    format!("{before}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::{quoted, without_types};
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    #[test]
    fn a_quoted_text_has_no_escapes() {
        assert_eq!(quoted(r#"say "hi" to C:\"#), r#""say "hi" to C:\""#);
        assert_eq!(quoted("a\nb\u{7}é\u{301}"), "\"a b é\u{301}\"");
    }

    #[derive(Deserialize)]
    struct Inner {
        #[serde(rename = "word")]
        _word: Word,
    }

    #[derive(Deserialize)]
    enum Word {
        On,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(#[expect(dead_code, reason = "only its errors are read")] i32),
    }

    fn message<T: DeserializeOwned>(text: &str) -> String {
        let error = serde_json::from_str::<T>(text).err().map(|error| error.to_string()).unwrap_or_default();
        without_types(error.split(" at line ").next().unwrap_or_default())
    }

    #[test]
    fn no_message_has_the_name_of_a_type() {
        assert_eq!(message::<Inner>("7"), "invalid type: integer `7`, expected an object");
        assert_eq!(message::<Inner>("{}"), "missing field `word`");
        assert_eq!(message::<Word>(r#""Off""#), "unknown variant `Off`, expected `On`");
        assert_eq!(message::<Either>(r#""a""#), "the value has none of the possible forms");
        assert_eq!(message::<Vec<u8>>("{}"), "invalid type: map, expected a list");
        assert_eq!(
            message::<i32>("3000000000"),
            "invalid value: integer `3000000000`, expected a whole number of 32 bits"
        );
        assert_eq!(message::<u8>("-1"), "invalid value: integer `-1`, expected a whole number of 8 bits, at least 0");
        assert_eq!(message::<String>("1"), "invalid type: integer `1`, expected a string");
        assert_eq!(message::<f64>(r#"", expected u8""#), "invalid type: string \", expected u8\", expected a number");
    }
}
