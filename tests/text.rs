//! The text of the sources: comments start with a noun or a verb, and lines fit in 120 columns.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use proc_macro2::{TokenStream, TokenTree};

const WIDTH: usize = 120;

/// Words that start no sentence of a comment. A comment starts with a noun ("Number of nodes that …") or with a verb
/// ("Marks the pod as terminating"); it does not paraphrase by a relative clause, nor start with half a verb.
const OPENERS: [&str; 20] = [
    "Are to",
    "As many",
    "By which",
    "Has",
    "Have",
    "How long",
    "How many",
    "How much",
    "How often",
    "Is to",
    "Of",
    "So many",
    "That which",
    "Those",
    "What",
    "Where it",
    "Which of",
    "Who",
    "Whose",
    "Within which",
];

/// Text files of these folders with one of these extensions, or scripts.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> =
        ["src", "tests", "hack"].iter().flat_map(|folder| files_below(&root.join(folder))).collect();
    files.sort();
    files
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("node_modules") {
            files.extend(files_below(&path));
        } else if is_rust(&path) || is_script(&path) {
            files.push(path);
        }
    }
    files
}

fn is_rust(path: &Path) -> bool {
    path.extension() == Some("rs".as_ref())
}

fn is_script(path: &Path) -> bool {
    let has_shell_name = path.extension().is_none_or(|extension| extension == "sh");
    has_shell_name
        && (path.extension().is_some() || fs::read(path).is_ok_and(|text| text.starts_with(b"#!/usr/bin/env bash")))
}

/// The comment on a line that has no code; None for other lines.
fn comment<'a>(line: &'a str, marks: &[&str]) -> Option<&'a str> {
    let line = line.trim_start();
    marks.iter().find_map(|mark| line.strip_prefix(mark)).filter(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Starts of the sentences in the comments of a text, each with its line, counted from one.
fn sentence_starts<'a>(text: &'a str, marks: &[&str]) -> Vec<(usize, &'a str)> {
    let mut starts = Vec::new();
    // Whether a sentence starts with the next word.
    let mut starts_next = true;
    for (number, line) in iter::zip(1.., text.lines()) {
        let Some(comment) = comment(line, marks) else {
            starts_next = true;
            continue;
        };
        let comment = comment.trim();
        let item = comment.trim_start_matches(['-', '*', '|', '#', '>']).trim_start();
        starts_next |= item.is_empty() || item.len() < comment.len();
        if starts_next && !item.is_empty() {
            starts.push((number, item));
        }
        for end in [". ", "? ", "! ", " | "] {
            starts.extend(item.match_indices(end).map(|(at, _)| (number, &item[at + end.len()..])));
        }
        starts_next = item.ends_with(['.', '?', '!', '|']);
    }
    starts
}

/// Lines on which a sentence of a comment starts as it must not, each with the start.
fn wrong_openers<'a>(text: &'a str, marks: &[&str]) -> Vec<(usize, &'a str)> {
    let mut wrong = sentence_starts(text, marks);
    wrong.retain(|(_, sentence)| OPENERS.iter().any(|opener| starts_with_words(sentence, opener)));
    wrong
}

fn starts_with_words(sentence: &str, words: &str) -> bool {
    sentence
        .strip_prefix(words)
        .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '\''))
}

/// Lines that are too long, counted from one. Parts that cannot be broken do not count: string literals, URLs, tables
/// in documentation, and the data of a test case (`#[case(…)]`).
fn long_lines(text: &str) -> Vec<usize> {
    let mut strings = vec![0; text.lines().count() + 1];
    if let Ok(tokens) = text.parse() {
        add_strings(tokens, &mut strings);
    }
    let mut long = Vec::new();
    for (number, line) in iter::zip(1.., text.lines()) {
        let urls: usize =
            line.split_whitespace().filter(|word| word.contains("://")).map(|word| word.chars().count()).sum();
        let unbreakable = if strings[number] > 0 { strings[number] } else { urls };
        let is_exempt = line.trim_start().starts_with("#[case")
            || comment(line, &["//!", "///"]).is_some_and(|text| text.trim_start().starts_with('|'));
        if line.chars().count() > WIDTH + unbreakable && !is_exempt {
            long.push(number);
        }
    }
    long
}

/// Adds the columns of each line that belong to string literals.
fn add_strings(tokens: TokenStream, columns: &mut [usize]) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_strings(group.stream(), columns),
            TokenTree::Literal(literal) => {
                let source = literal.span().source_text().unwrap_or_default();
                // A documentation comment is a literal too.
                if source.contains('"') && !source.starts_with('/') {
                    for (line, part) in iter::zip(literal.span().start().line.., source.lines()) {
                        columns[line] += part.chars().count();
                    }
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Folders whose code formats messages for users.
const MESSAGES: [&str; 10] = [
    "src/api",
    "src/core",
    "src/outbound",
    "src/cli",
    "src/actions/plan",
    "src/loops/plan",
    "src/nodes/plan",
    "src/pools/plan",
    "src/placement/plan",
    "src/loops/controller",
];

/// Lines that may format with `{:?}`: keys of caches, code of expressions, texts that are searched, and a quotation of
/// control characters that have to be removed.
const EXEMPT: [&str; 5] = [
    "write!(f, \": {:?}\", self.0)",
    "format!(\"resize {dimension} {:?} {:?}\"",
    "format!(\"workloadAction {dimension} {:?}\"",
    "format!(\"node.name == {:?}\"",
    "CertificateError::Other(other) if",
];

/// Lines of code, without tests, that format with `{:?}`: with the names of Rust types, or with escapes in quotes.
fn debug_formats(code: &str) -> Vec<usize> {
    let tests = code.find("#[cfg(test)]").unwrap_or(code.len());
    let lines = iter::zip(1.., code[..tests].lines());
    let is_debug = |line: &str| line.contains(":?}") || line.contains(":#?}");
    let is_exempt =
        |line: &str| line.trim_start().starts_with("//") || EXEMPT.iter().any(|exempt| line.contains(exempt));
    lines.filter(|(_, line)| is_debug(line) && !is_exempt(line)).map(|(number, _)| number).collect()
}

#[test]
fn no_message_is_formatted_for_programmers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_test =
        |path: &Path| path.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name));
    for file in MESSAGES.iter().flat_map(|folder| files_below(&root.join(folder))) {
        let inside = file.strip_prefix(root).unwrap_or(&file);
        if is_rust(&file) && !is_test(inside) {
            let lines = debug_formats(&fs::read_to_string(&file).unwrap());
            assert!(lines.is_empty(), "{}: {{:?}} in lines {lines:?}: use words::quoted or as_str", inside.display());
        }
    }
}

#[test]
fn debug_formats_are_seen() {
    let code = "format!(\"{name:?} x\")\n// {:?}\nformat!(\"{:#?}\", a)\n#[cfg(test)]\nassert!(a, \"{a:?}\")";
    assert_eq!(debug_formats(code), [1, 3]);
}

#[test]
fn comments_start_with_a_noun_or_a_verb() {
    let mut wrong = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        let marks: &[&str] = if is_rust(&path) { &["///", "//!", "//"] } else { &["#"] };
        for (line, sentence) in wrong_openers(&text, marks) {
            wrong.push(format!("{}:{line}: {sentence}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "start these sentences with a noun or a verb:\n{}", wrong.join("\n"));
}

#[test]
fn lines_fit_in_their_width() {
    let mut wrong = Vec::new();
    for path in files().iter().filter(|path| is_rust(path)) {
        let long = long_lines(&fs::read_to_string(path).unwrap());
        wrong.extend(long.iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert!(wrong.is_empty(), "these lines are longer than {WIDTH} columns:\n{}", wrong.join("\n"));
}

#[test]
fn wrong_openers_are_seen() {
    let text = "//! Of the nodes, those that fit.\nfn f() {\n    // Counts nodes. How many\n    // there are. Whose\n}\n/// - Has a list\n/// Has the item as it is\n/// Hash of a name; What.\n// Who's";
    let wrong = |text, marks| wrong_openers(text, marks).iter().map(|(line, _)| *line).collect::<Vec<_>>();
    assert_eq!(wrong(text, &["///", "//!", "//"]), [1, 3, 4, 6]);
    assert_eq!(wrong("#!/usr/bin/env bash\n# What must hold.\necho # What", &["#"]), [2]);
}

#[test]
fn long_lines_are_seen() {
    let long = "x".repeat(WIDTH);
    let breakable = format!("//! {long}\n\nfn f() {{ {} }}\n", "g(); ".repeat(WIDTH / 4));
    assert_eq!(long_lines(&breakable), [1, 3]);
    let unbreakable = format!(
        "fn f() {{ g(\"{long}\", r#\"a\n{long} b\"#) }}\n// https://{long}\n#[case(1, {long})]\n/// | {long} |\nfn h() {{}}"
    );
    assert_eq!(long_lines(&unbreakable), [0; 0]);
    let with_short_string = format!("fn f() {{ g(\"a\"); {} }}\n", "g(); ".repeat(WIDTH / 4));
    assert_eq!(long_lines(&with_short_string), [1]);
}
