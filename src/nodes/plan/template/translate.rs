//! Translates template texts into the language of the engine: WAO's plain fields are translated, and any other Go
//! construct is an error that shows the equivalent.

use thiserror::Error;

use super::go::{self, Token};
use super::sprig;

/// Maximum number of tokens in the expressions of one text. The engine's compiler uses stack for each.
const MAX_TOKENS: usize = 256;

/// Maximum nesting of brackets. The engine's parser limits only plain parentheses, and overflows the stack of a thread
/// at some hundred nested calls.
const MAX_DEPTH: usize = 16;

/// Variables of expressions, for error texts.
pub const KNOWN: &str =
    "hostname, node.name, node.labels[\"…\"], ipv4.address, ipv4.octet1 to ipv4.octet4, ipv6.address";

/// Filters without arguments that have the same name in Go and in the engine.
const SAME_FILTERS: [&str; 3] = ["upper", "lower", "trim"];

/// Why a text is not a valid template.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SyntaxError {
    #[error("`{opening}` at character {at} is not closed by `{closing}`")]
    Unclosed { opening: &'static str, closing: &'static str, at: usize },
    #[error("`{{{{ }}}}` at character {at} has no expression")]
    Empty { at: usize },
    #[error("`{found}` is not supported: write `{equivalent}`")]
    Go { found: String, equivalent: String },
    #[error(
        "`{found}` is not supported and has no equivalent; see the filters of minijinja, such as upper, replace, int, split"
    )]
    NoEquivalent { found: String },
    #[error("`{found}` is unknown; there are {KNOWN}")]
    Unknown { found: String },
    #[error("its expressions are too long: at most {MAX_TOKENS} words and signs in one text")]
    TooLong,
    #[error("its brackets are nested too deep: at most {MAX_DEPTH}")]
    TooDeep,
    #[error("{0}")]
    Engine(String),
}

/// Whether the text contains an expression or another construct of the template language.
pub fn is_template(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|opening| text.contains(opening))
}

/// Translates a text into the language of the engine. Fails on unclosed constructs and on Go constructs other than
/// plain fields.
pub fn translate(text: &str) -> Result<String, SyntaxError> {
    let (mut out, mut at, mut pieces) = (String::with_capacity(text.len()), 0, 0);
    while let Some((start, opening, closing)) = next_opening(text, at) {
        out.push_str(&text[at..start]);
        let inside = start + opening.len();
        let end = match opening {
            "{#" => text[inside..].find(closing).map(|found| inside + found),
            _ => closing_of(text, inside, closing),
        };
        let Some(end) = end else {
            return Err(SyntaxError::Unclosed { opening, closing, at: text[..start].chars().count() + 1 });
        };
        let content = &text[inside..end];
        if opening != "{#" {
            let tokens = go::tokens(content);
            pieces += tokens.len();
            if pieces > MAX_TOKENS {
                return Err(SyntaxError::TooLong);
            }
            if depth(&tokens) > MAX_DEPTH {
                return Err(SyntaxError::TooDeep);
            }
        }
        out.push_str(opening);
        match opening {
            "{{" => out.push_str(&action(content, start, text)?),
            _ => out.push_str(content),
        }
        out.push_str(closing);
        at = end + closing.len();
    }
    out.push_str(&text[at..]);
    Ok(out)
}

/// Maximum nesting of brackets in the tokens.
fn depth(tokens: &[Token]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for token in tokens {
        match token {
            Token::Symbol('(' | '[' | '{') => depth += 1,
            Token::Symbol(')' | ']' | '}') => depth = depth.saturating_sub(1),
            Token::Field(_) | Token::Word(_) | Token::Text(_) | Token::Number(_) | Token::Symbol(_) => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Finds the next construct: its start, its opening and its closing delimiter.
fn next_opening(text: &str, from: usize) -> Option<(usize, &'static str, &'static str)> {
    let found = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")]
        .into_iter()
        .filter_map(|(opening, closing)| Some((from + text[from..].find(opening)?, opening, closing)));
    found.min_by_key(|(start, _, _)| *start)
}

/// Finds the end of the construct. Delimiters within quoted literals and within braces do not count.
fn closing_of(text: &str, from: usize, closing: &str) -> Option<usize> {
    let (mut quote, mut escaped, mut depth) = (None, false, 0_usize);
    for (offset, character) in text[from..].char_indices() {
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(mark), '\\') if mark != '`' => escaped = true,
            (Some(mark), _) if mark == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(character),
            (None, _) if depth == 0 && text[from + offset..].starts_with(closing) => return Some(from + offset),
            (None, '{') => depth += 1,
            (None, '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    None
}

/// Translates the content of an action.
fn action(content: &str, start: usize, text: &str) -> Result<String, SyntaxError> {
    let (left, inner, right) = trim_markers(content);
    if inner.is_empty() {
        return Err(SyntaxError::Empty { at: text[..start].chars().count() + 1 });
    }
    let found = format!("{{{{ {inner} }}}}");
    if let Some(comment) = inner.strip_prefix("/*") {
        let words = comment.trim_end_matches("*/").trim();
        return Err(SyntaxError::Go { found, equivalent: format!("{{# {words} #}}") });
    }
    let tokens = go::tokens(inner);
    if !go::is_go(&tokens) {
        return Ok(content.to_owned());
    }
    match plain(&tokens) {
        Some(translated) => Ok(format!("{left} {translated} {right}")),
        None => Err(refused(found, inner, &tokens)),
    }
}

/// Splits the trim markers from the content of an action. In Go a marker needs a space: `{{-1}}` is a number there.
fn trim_markers(content: &str) -> (&str, &str, &str) {
    let left = if content.starts_with('-') { "-" } else { "" };
    let inner = &content[left.len()..];
    let right = if inner.ends_with('-') { "-" } else { "" };
    (left, inner[..inner.len() - right.len()].trim(), right)
}

/// Translates a field with optional filters of the same name; None for anything else.
fn plain(tokens: &[Token]) -> Option<String> {
    let (first, rest) = tokens.split_first()?;
    let mut translated = first.field()?.to_owned();
    for pair in rest.chunks(2) {
        let [Token::Symbol('|'), Token::Word(filter)] = pair else { return None };
        if !SAME_FILTERS.contains(&filter.as_str()) {
            return None;
        }
        translated.push_str(&format!(" | {filter}"));
    }
    Some(translated)
}

/// Error for a Go action that is not a plain field.
fn refused(found: String, inner: &str, tokens: &[Token]) -> SyntaxError {
    if let Some(field) = tokens.iter().find_map(Token::unknown_field) {
        return SyntaxError::Unknown { found: format!(".{field}") };
    }
    let shown = |tokens: &[Token]| go::parse(tokens).and_then(|expr| sprig::equivalent(&expr));
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) => word.as_str(),
        _ => "",
    };
    let equivalent = match (word(0), word(1)) {
        ("if", _) => shown(&tokens[1..]).map(|test| format!("{{% if {test} %}}")),
        ("else", "if") => shown(&tokens[2..]).map(|test| format!("{{% elif {test} %}}")),
        ("else", "") => Some("{% else %}".to_owned()),
        ("end", "") => Some("{% endif %}".to_owned()),
        _ => shown(tokens).or_else(|| renamed(inner, tokens)).map(|expr| format!("{{{{ {expr} }}}}")),
    };
    match equivalent {
        Some(equivalent) => SyntaxError::Go { found, equivalent },
        None => SyntaxError::NoEquivalent { found },
    }
}

/// Replaces WAO's fields in an expression that is otherwise valid in the template language.
fn renamed(inner: &str, tokens: &[Token]) -> Option<String> {
    let calls_as_go =
        matches!(tokens, [Token::Word(_), Token::Text(_) | Token::Number(_) | Token::Word(_) | Token::Field(_), ..]);
    if calls_as_go || inner.contains(['$', '`']) {
        return None;
    }
    let mut text = inner.to_owned();
    for token in tokens {
        if let (Token::Field(go), Some(ours)) = (token, token.field()) {
            text = text.replacen(&format!(".{go}"), ours, 1);
        }
    }
    // Shows only what the engine can parse.
    minijinja::Environment::empty().compile_expression(&text).is_ok().then_some(text)
}
