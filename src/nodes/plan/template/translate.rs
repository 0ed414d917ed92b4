//! Replaces WAO's plain fields in template texts, and limits the size of expressions. The engine parses everything
//! else.

use thiserror::Error;

/// Maximum number of words and signs in the expressions of one text. The engine's compiler uses stack for each.
const MAX_TOKENS: usize = 256;

/// Maximum nesting of brackets. The engine's parser limits only plain parentheses, and overflows the stack of a thread
/// at some hundred nested calls.
const MAX_DEPTH: usize = 16;

/// Maximum length of an expression in an error, in characters.
const MAX_SHOWN: usize = 100;

/// Variables of expressions, for error texts.
pub const KNOWN: &str =
    "hostname, node.name, node.labels[\"…\"], ipv4.address, ipv4.octet1 to ipv4.octet4, ipv6.address";

/// Where the language is documented, for error texts.
pub const HELP: &str = "expressions are those of minijinja, and of Go templates only plain fields work: \
                        see samples/nodeconfigtemplate/README.md#expressions";

/// WAO's fields and their names in the template language.
const FIELDS: [(&str, &str); 6] = [
    (".Hostname", "hostname"),
    (".IPv4.Address", "ipv4.address"),
    (".IPv4.Octet1", "ipv4.octet1"),
    (".IPv4.Octet2", "ipv4.octet2"),
    (".IPv4.Octet3", "ipv4.octet3"),
    (".IPv4.Octet4", "ipv4.octet4"),
];

/// Why a text is not a valid template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SyntaxError {
    #[error("`{opening}` at character {at} is not closed by `{closing}`")]
    Unclosed { opening: &'static str, closing: &'static str, at: usize },
    #[error("`{{{{ }}}}` at character {at} has no expression")]
    Empty { at: usize },
    #[error("`{found}` is unknown; there are {KNOWN}; {HELP}")]
    Unknown { found: String },
    #[error("its expressions are too long: at most {MAX_TOKENS} words and signs in one text")]
    TooLong,
    #[error("its brackets are nested too deep: at most {MAX_DEPTH}")]
    TooDeep,
    #[error("`{found}`: {message}; {HELP}")]
    Engine { found: String, message: String },
}

/// Whether the text contains an expression or another construct of the template language.
pub fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|opening| text.contains(opening))
}

/// Replaces WAO's fields. Fails on unclosed, empty and too large constructs and on unknown fields.
pub fn translate(text: &str) -> Result<String, SyntaxError> {
    let (mut out, mut at, mut tokens) = (String::with_capacity(text.len()), 0, 0);
    while let Some((start, opening, closing)) = next_opening(text, at) {
        out.push_str(&text[at..start]);
        let inside = start + opening.len();
        let position = || text[..start].chars().count() + 1;
        let extent = match opening {
            "{#" => text[inside..].find(closing).map(|length| ConstructSize { length, tokens: 0, depth: 0 }),
            _ => extent(&text[inside..], closing),
        };
        let Some(extent) = extent else {
            return Err(SyntaxError::Unclosed { opening, closing, at: position() });
        };
        tokens += extent.tokens;
        if tokens > MAX_TOKENS {
            return Err(SyntaxError::TooLong);
        }
        if extent.depth > MAX_DEPTH {
            return Err(SyntaxError::TooDeep);
        }
        let end = inside + extent.length;
        let content = &text[inside..end];
        out.push_str(opening);
        match opening {
            "{{" => out.push_str(&expression(content)?.ok_or_else(|| SyntaxError::Empty { at: position() })?),
            _ => out.push_str(content),
        }
        out.push_str(closing);
        at = end + closing.len();
    }
    out.push_str(&text[at..]);
    Ok(out)
}

/// The construct that begins last before this place in a text, and ends there; shortened.
pub fn construct_before(text: &str, end: usize) -> String {
    let before = text.get(..end).unwrap_or(text);
    let start = before.rfind("{{").max(before.rfind("{%")).unwrap_or(0);
    before[start..].chars().take(MAX_SHOWN).collect()
}

/// Finds the next construct: its start, its opening and its closing delimiter.
fn next_opening(text: &str, from: usize) -> Option<(usize, &'static str, &'static str)> {
    let found = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")]
        .into_iter()
        .filter_map(|(opening, closing)| Some((from + text[from..].find(opening)?, opening, closing)));
    found.min_by_key(|(start, _, _)| *start)
}

/// Size of the content of a construct.
#[derive(Default)]
struct ConstructSize {
    /// Length in bytes.
    length: usize,
    /// Number of words, literals, and signs other than dots.
    tokens: usize,
    /// Maximum nesting of brackets.
    depth: usize,
}

/// Measures a construct up to its closing delimiter. Delimiters within quoted literals and within braces do not count.
fn extent(text: &str, closing: &str) -> Option<ConstructSize> {
    let mut extent = ConstructSize::default();
    let (mut quote, mut escaped, mut in_word) = (None, false, false);
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (offset, character) in text.char_indices() {
        if let Some(mark) = quote {
            if escaped {
                escaped = false;
            } else if character == '\\' {
                escaped = true;
            } else if character == mark {
                quote = None;
            }
            continue;
        }
        if braces == 0 && text[offset..].starts_with(closing) {
            extent.length = offset;
            return Some(extent);
        }
        match character {
            '"' | '\'' => quote = Some(character),
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
        match character {
            '(' | '[' | '{' => brackets += 1,
            ')' | ']' | '}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        extent.depth = extent.depth.max(brackets);
        let is_word = character.is_alphanumeric() || character == '_';
        let is_sign = !is_word && character != '.' && !character.is_whitespace();
        extent.tokens += usize::from(is_sign || (is_word && !in_word));
        in_word = is_word;
    }
    None
}

/// Content of an expression, with WAO's field at its start replaced; None if there is no expression.
fn expression(content: &str) -> Result<Option<String>, SyntaxError> {
    let (left, inner, right) = trim_markers(content);
    if inner.is_empty() {
        return Ok(None);
    }
    if !inner.starts_with('.') {
        return Ok(Some(content.to_owned()));
    }
    let is_outside = |c: char| !c.is_alphanumeric() && c != '_' && c != '.';
    let (field, rest) = inner.split_at(inner.find(is_outside).unwrap_or(inner.len()));
    match FIELDS.iter().find(|(go, _)| *go == field) {
        Some((_, name)) => Ok(Some(format!("{left} {name}{rest} {right}"))),
        None => Err(SyntaxError::Unknown { found: field.to_owned() }),
    }
}

/// Splits the trim markers from the content of an expression.
fn trim_markers(content: &str) -> (&str, &str, &str) {
    let left = if content.starts_with('-') { "-" } else { "" };
    let inner = &content[left.len()..];
    let right = if inner.ends_with('-') { "-" } else { "" };
    (left, inner[..inner.len() - right.len()].trim(), right)
}
