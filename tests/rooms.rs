//! The rooms keep to themselves: which may use which, and which crates stay out of which, read off the sources.

use std::fs;
use std::path::{Path, PathBuf};

/// A room, the rooms of ours that it may name, and the crates that it must not.
struct Rule {
    room: &'static str,
    may_use: &'static [&'static str],
    must_not_use: &'static [&'static str],
}

const RULES: [Rule; 13] = [
    Rule {
        room: "api",
        may_use: &[],
        must_not_use: &["tokio", "axum", "tracing", "prometheus_client", "clap", "anyhow"],
    },
    Rule {
        room: "logic",
        may_use: &["api"],
        must_not_use: &[
            "tokio",
            "tokio_util",
            "futures",
            "axum",
            "tracing",
            "prometheus_client",
            "clap",
            "anyhow",
            "fastrand",
            "hostname",
            "kube::Client",
            "kube::Api",
            "kube::api",
            "kube::runtime",
            "kube::client",
            "std::env",
            "std::fs",
            "std::net",
            "std::time::Instant",
            "std::time::SystemTime",
            "Timestamp::now",
            "SystemTime::now",
            "Instant::now",
        ],
    },
    Rule {
        room: "clients",
        may_use: &["logic", "metrics"],
        must_not_use: &[
            "kube",
            "k8s_openapi",
            "axum",
            "clap",
            "anyhow",
            "fastrand",
            "std::env",
            "std::fs",
            "Timestamp::now",
            "SystemTime::now",
        ],
    },
    Rule { room: "caches", may_use: &["logic", "api", "metrics"], must_not_use: &["axum", "clap", "anyhow"] },
    Rule { room: "lease", may_use: &["metrics"], must_not_use: &["axum", "clap", "anyhow"] },
    Rule {
        room: "controllers",
        may_use: &["logic", "api", "clients", "caches", "metrics"],
        must_not_use: &["axum", "clap", "anyhow", "std::env", "std::fs"],
    },
    Rule {
        room: "http",
        may_use: &["logic", "api", "caches", "metrics"],
        must_not_use: &["kube::Client", "kube::Api", "kube::api", "clap", "anyhow"],
    },
    Rule { room: "metrics", may_use: &[], must_not_use: &["kube", "axum", "tokio", "clap", "anyhow"] },
    Rule {
        room: "settings",
        may_use: &["logic"],
        must_not_use: &["kube", "axum", "tokio", "clap", "anyhow", "std::env"],
    },
    Rule { room: "telemetry", may_use: &[], must_not_use: &["kube", "axum", "tokio", "anyhow"] },
    Rule {
        room: "app",
        may_use: &[
            "api",
            "logic",
            "controllers",
            "http",
            "clients",
            "caches",
            "lease",
            "telemetry",
            "metrics",
            "settings",
        ],
        must_not_use: &["clap", "anyhow"],
    },
    Rule { room: "cli", may_use: &["app", "api", "settings", "telemetry"], must_not_use: &["anyhow", "axum"] },
    Rule { room: "lib", may_use: &[], must_not_use: &["anyhow", "clap", "kube", "tokio"] },
];

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_path_buf()];
    }
    let Ok(entries) = fs::read_dir(path) else { return vec![] };
    entries
        .flat_map(|entry| sources(&entry.unwrap().path()))
        .filter(|path| path.extension() == Some("rs".as_ref()))
        .collect()
}

fn room(name: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = sources(&source.join(format!("{name}.rs")));
    all.extend(sources(&source.join(name)));
    all
}

/// The code of a file: without comments, and without its tests, which may use what they like.
fn code(path: &Path) -> String {
    if path.file_name() == Some("tests.rs".as_ref()) || path.components().any(|part| part.as_os_str() == "tests") {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Whether a path of this crate or module is named: at the border of a word, followed by `::`, `;` or the like.
fn names(code: &str, path: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next();
        let ends = path.contains("::") || code[at + path.len()..].starts_with("::");
        !before.is_some_and(is_word) && ends && !after.is_some_and(|after| after.is_alphanumeric() || after == '_')
    })
}

/// The rooms of ours that a file names.
fn used_rooms(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    code.match_indices("crate::")
        .flat_map(|(at, found)| {
            let rest = &code[at + found.len()..];
            match rest.strip_prefix('{') {
                // use crate::{a, b::c}; nothing here nests deeper.
                Some(list) => {
                    list.split('}').next().unwrap_or_default().split(',').map(|part| word(part.trim())).collect()
                }
                None => vec![word(rest)],
            }
        })
        .collect()
}

#[test]
fn a_room_names_only_the_rooms_that_it_may() {
    for rule in &RULES {
        for path in room(rule.room) {
            for used in used_rooms(&code(&path)) {
                let may = used == rule.room || rule.may_use.contains(&used.as_str());
                assert!(may, "{} uses crate::{used}: {} may use {:?}", path.display(), rule.room, rule.may_use);
            }
        }
    }
}

#[test]
fn a_room_names_no_crate_that_it_must_not() {
    for rule in &RULES {
        for path in room(rule.room) {
            let code = code(&path);
            for forbidden in rule.must_not_use {
                assert!(!names(&code, forbidden), "{} names {forbidden}", path.display());
            }
        }
    }
}

#[test]
fn every_file_stands_in_a_room_with_a_rule() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let known = name == "main" || RULES.iter().any(|rule| rule.room == name);
        assert!(known, "{} stands in no room: give it a rule here and a line in src/lib.rs", path.display());
    }
}

#[test]
fn every_file_says_what_it_owns() {
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} does not begin with what it is", path.display());
    }
}

#[test]
fn no_file_grows_beyond_what_one_can_hold_in_mind() {
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let lines = code(&path).lines().filter(|line| !line.trim().is_empty()).count();
        assert!(lines <= 400, "{} has {lines} lines of code: split it by verb or by kind", path.display());
    }
}

#[test]
fn the_reading_of_sources_sees_what_it_should() {
    assert!(names("use tokio::sync::Mutex;", "tokio"));
    assert!(!names("use tokio_util::sync;", "tokio"));
    assert!(
        names("let now = jiff::Timestamp::now();", "Timestamp::now") || names("Timestamp::now()", "Timestamp::now")
    );
    assert_eq!(used_rooms("use crate::api::marks; use crate::{caches, logic::world};"), ["api", "caches", "logic"]);
}
