//! Writes and reads one name in the workers' file. A name is written plain if every YAML 1.1 or 1.2 parser reads it as
//! the same string; otherwise in double quotes, with escapes that YAML and JSON share.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Words that some YAML parser does not read as a string, in any case of their letters.
const WORDS: [&str; 13] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity", "undefined"];

/// Writes a name.
pub fn write(out: &mut String, name: &str) {
    if is_plain(name) {
        out.push_str(name);
        return;
    }
    out.push('"');
    for character in name.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            _ if is_escaped(character) => {
                // Writing to a text cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// Parses a name. The second value is true if `write` would write it the same way.
pub fn read(text: &str) -> (Cow<'_, str>, bool) {
    if is_plain(text) {
        return (Cow::Borrowed(text), true);
    }
    let quoted: Option<String> = if text.starts_with('"') { serde_json::from_str(text).ok() } else { None };
    let Some(name) = quoted else { return (Cow::Borrowed(text), false) };
    let mut again = String::with_capacity(text.len());
    write(&mut again, &name);
    let is_ours = again == text;
    (Cow::Owned(name), is_ours)
}

/// Returns true if a name needs no quotes: it begins with a letter and has only characters without a meaning in YAML.
/// No number, date or constant begins with a letter, except [`WORDS`].
fn is_plain(name: &str) -> bool {
    let is_safe =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-' | b':' | b'@' | b'+');
    name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && name.as_bytes().iter().all(is_safe)
        && !name.ends_with(':')
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// Returns true for characters that are not printable, break lines, or that some parser reads as a byte order mark.
fn is_escaped(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}
