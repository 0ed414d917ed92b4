//! Boundaries of the source folders ("rooms"): which rooms may use which, which crates each room must not use, and that
//! no folders or files depend on each other in a cycle. Everything is derived from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A room, the rooms that it may use, and the crates that it must not use.
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
    Rule { room: "caches", may_use: &["logic", "api", "runtime"], must_not_use: &["axum", "clap", "anyhow", "tokio"] },
    Rule {
        room: "runtime",
        may_use: &["logic", "metrics"],
        must_not_use: &["axum", "clap", "anyhow", "std::env", "std::fs"],
    },
    Rule {
        room: "controllers",
        may_use: &["logic", "api", "caches", "clients", "runtime", "metrics"],
        must_not_use: &["axum", "clap", "anyhow", "std::env", "std::fs", "Timestamp::now", "SystemTime::now"],
    },
    Rule {
        room: "http",
        may_use: &["logic", "api", "caches", "runtime", "metrics"],
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
            "runtime",
            "telemetry",
            "metrics",
            "settings",
        ],
        must_not_use: &["clap", "anyhow"],
    },
    Rule { room: "cli", may_use: &["app", "api", "logic", "settings", "telemetry"], must_not_use: &["anyhow", "axum"] },
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

/// Code of a file, without comments and without its tests, which may use anything.
fn code(path: &Path) -> String {
    if path.file_name() == Some("tests.rs".as_ref()) || path.components().any(|part| part.as_os_str() == "tests") {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Whether the code names a path of this crate or module: at a word boundary, followed by `::`, `;` or similar.
fn names(code: &str, path: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next();
        let ends = path.contains("::") || code[at + path.len()..].starts_with("::");
        !before.is_some_and(is_word) && ends && !after.is_some_and(|after| after.is_alphanumeric() || after == '_')
    })
}

/// Rooms that a file names.
fn used_rooms(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    code.match_indices("crate::")
        .flat_map(|(at, found)| {
            let rest = &code[at + found.len()..];
            match rest.strip_prefix('{') {
                // use crate::{a, b::c}; deeper nesting does not occur.
                Some(list) => {
                    list.split('}').next().unwrap_or_default().split(',').map(|part| word(part.trim())).collect()
                }
                None => vec![word(rest)],
            }
        })
        .collect()
}

/// Folders of `src/logic` that every other folder there may use, and that must use none of the others.
const SHARED_LOGIC: [&str; 3] = ["facts", "world", "expression"];

/// Folders of the logic that the runtime may use: the runtime is independent of our kinds.
const RUNTIME_LOGIC: [&str; 2] = ["facts", "world"];

/// Dependencies between folders and files, each with a file that shows it.
type Uses = BTreeMap<String, BTreeMap<String, PathBuf>>;

fn idents(path: &str) -> Vec<String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Paths of a `use` with braces resolved: `a::{b, c::{d, e}}` is three paths.
fn use_paths(tree: &str) -> Vec<Vec<String>> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![idents(tree.split(" as ").next().unwrap_or_default())];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for character in inner.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(character);
    }
    let nested = parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| use_paths(part));
    nested.map(|path| idents(head).into_iter().chain(path).collect()).collect()
}

/// All paths in the code: those of each `use`, and those in expressions and types.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let starts = code[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
        if starts {
            all.extend(use_paths(code[at + 4..].split(';').next().unwrap_or_default()));
        }
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_path(c)).filter(|word| word.contains("::") && !word.ends_with("::"));
    all.extend(words.map(idents));
    all
}

/// Module path of a file, starting at the crate.
fn module(path: &Path) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let inside = path.strip_prefix(source).unwrap().with_extension("");
    let parts = inside.iter().map(|part| part.to_str().unwrap().to_owned()).filter(|part| part != "mod");
    std::iter::once("crate".to_owned()).chain(parts).collect()
}

/// Whether a module has this child.
fn has_child(module: &[String], child: &str) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module[1..].iter().collect::<PathBuf>());
    folder.join(format!("{child}.rs")).is_file() || folder.join(child).join("mod.rs").is_file()
}

/// Full path, starting at the crate; None if it leads to another crate, or to something that a `use` imported.
fn resolved(file: &[String], path: &[String]) -> Option<Vec<String>> {
    match path.first()?.as_str() {
        "crate" => Some(path.to_vec()),
        "self" => Some([file, &path[1..]].concat()),
        "super" => {
            let above = path.iter().take_while(|part| *part == "super").count();
            Some([&file[..file.len().checked_sub(above)?], &path[above..]].concat())
        }
        first if has_child(file, first) => Some([file, path].concat()),
        _ => None,
    }
}

/// Child of this module to which a path leads; `mod` for items of the module itself.
fn child(parent: &[String], path: &[String]) -> Option<String> {
    let rest = path.strip_prefix(parent)?;
    Some(rest.first().filter(|child| has_child(parent, child)).map_or("mod", String::as_str).to_owned())
}

/// Dependencies among the folders and files directly within this folder of `src`.
fn uses_within(folder: &str) -> Uses {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let parent: Vec<String> = std::iter::once("crate").chain(folder.split('/')).map(str::to_owned).collect();
    let mut uses = Uses::new();
    for path in sources(&root) {
        let file = module(&path);
        let user = child(&parent, &file).unwrap();
        for used in paths(&code(&path)).iter().filter_map(|path| child(&parent, &resolved(&file, path)?)) {
            if used != user {
                uses.entry(user.clone()).or_default().entry(used).or_insert_with(|| path.clone());
            }
        }
    }
    uses
}

/// Names on a cycle, if there is one.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    fn walk(uses: &Uses, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let at = way.last().cloned().unwrap();
        for next in uses.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if let Some(first) = way.iter().position(|passed| passed == next) {
                way.drain(..first);
                way.push(next.clone());
                return true;
            }
            way.push(next.clone());
            if !done.contains(next) && walk(uses, way, done) {
                return true;
            }
            way.pop();
        }
        done.insert(at);
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|start| {
        let mut way = vec![start.clone()];
        (!done.contains(start) && walk(uses, &mut way, &mut done)).then_some(way)
    })
}

#[track_caller]
fn assert_no_circle(folder: &str, uses: &Uses) {
    if let Some(way) = circle(uses) {
        let by: Vec<String> =
            way.windows(2).map(|pair| format!("{} in {}", pair[1], uses[&pair[0]][&pair[1]].display())).collect();
        panic!("circle in src/{folder}: {}\nused: {}", way.join(" -> "), by.join("\nused: "));
    }
}

#[test]
fn folders_of_logic_know_only_the_shared_ones() {
    let logic = ["crate", "logic"].map(str::to_owned);
    let is_folder =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/logic").join(name).join("mod.rs").is_file();
    let (mut uses, mut wrong) = (Uses::new(), BTreeSet::new());
    for path in room("logic") {
        let file = module(&path);
        let (name, Some(user)) = (file[2..].join("/"), child(&logic, &file)) else { continue };
        for used in paths(&code(&path)).iter().filter_map(|path| child(&logic, &resolved(&file, path)?)) {
            if used != user {
                if is_folder(&used) && !SHARED_LOGIC.contains(&used.as_str()) {
                    wrong.insert((name.clone(), used.clone()));
                }
                uses.entry(user.clone()).or_default().entry(used).or_insert_with(|| path.clone());
            }
        }
    }
    assert!(wrong.is_empty(), "a folder of logic may use {SHARED_LOGIC:?} and no other: {wrong:?}");
    assert_no_circle("logic", &uses);
}

#[test]
fn the_runtime_knows_no_kind_of_ours() {
    for path in room("runtime") {
        for used in code(&path).split("crate::logic::").skip(1) {
            let folder: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(RUNTIME_LOGIC.contains(&folder.as_str()), "{} uses logic::{folder}", path.display());
        }
    }
}

#[test]
fn nothing_of_closed_loop_uses_each_other_in_a_circle() {
    let closed_loop = "logic/closed_loop";
    assert_no_circle(closed_loop, &uses_within(closed_loop));
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(closed_loop)).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir() && !path.ends_with("tests"));
    let mut count = 0;
    for folder in folders {
        let name = format!("{closed_loop}/{}", folder.file_name().unwrap().to_str().unwrap());
        assert_no_circle(&name, &uses_within(&name));
        count += 1;
    }
    assert!(count >= 7, "only {count} folders were looked at");
}

/// Crates that only one file may use; its interface hides their types.
const BEHIND_A_BORDER: [(&str, &str); 3] = [
    ("chrono", "src/logic/closed_loop/decision/schedule.rs"),
    ("chrono_tz", "src/logic/closed_loop/decision/schedule.rs"),
    ("croner", "src/logic/closed_loop/decision/schedule.rs"),
];

#[test]
fn a_crate_behind_a_border_is_named_there_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, home) in BEHIND_A_BORDER {
        let all = sources(&root.join("src")).into_iter().filter(|path| names(&code(path), name));
        assert_eq!(all.collect::<Vec<_>>(), [root.join(home)], "{name} is named by these files");
    }
}

#[test]
fn circles_are_seen() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (user, used) in pairs {
            uses.entry((*user).to_owned()).or_default().insert((*used).to_owned(), PathBuf::new());
        }
        uses
    };
    assert_eq!(circle(&uses(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    assert_eq!(circle(&uses(&[("a", "b"), ("b", "a")])), Some(idents("a::b::a")));
    assert_eq!(circle(&uses(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])), Some(idents("b::c::d::b")));
}

#[test]
fn paths_are_read_wherever_they_stand() {
    let found = paths("pub use a::{b, c::{d as e, f}};\nlet x = super::super::g::h(crate::i::J);");
    for expected in ["a::b", "a::c::d", "a::c::f", "super::super::g::h", "crate::i::J"] {
        assert!(found.contains(&idents(expected)), "{expected} in {found:?}");
    }
    let file = idents("crate::logic::closed_loop::decision::decide");
    assert_eq!(
        resolved(&file, &idents("super::super::rung::words")),
        Some(idents("crate::logic::closed_loop::rung::words"))
    );
    assert_eq!(resolved(&idents("crate::logic"), &idents("facts::Key")), Some(idents("crate::logic::facts::Key")));
    assert_eq!(resolved(&file, &idents("serde_json::Value")), None);
    let decision = idents("crate::logic::closed_loop::decision");
    assert_eq!(child(&decision, &idents("crate::logic::closed_loop::decision::Input")), Some("mod".to_owned()));
    assert_eq!(child(&decision, &file), Some("decide".to_owned()));
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

/// Public structs, enums and traits that this code declares.
fn declared_types(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    code.lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub"))
        .map(|line| line.split_once(") ").filter(|_| line.starts_with('(')).map_or(line, |(_, rest)| rest).trim_start())
        .filter_map(|line| ["struct ", "enum ", "trait "].iter().find_map(|kind| line.strip_prefix(kind)))
        .map(word)
        .collect()
}

#[test]
fn a_type_name_means_one_thing() {
    let mut files = BTreeMap::<String, BTreeSet<PathBuf>>::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        // Each module may have its own `Error`.
        for name in declared_types(&code(&path)).into_iter().filter(|name| name != "Error") {
            files.entry(name).or_default().insert(path.clone());
        }
    }
    assert!(files.len() > 100, "only {} types were found", files.len());
    files.retain(|_, declared_in| declared_in.len() > 1);
    assert!(files.is_empty(), "a public type name is declared in two files, give one of them another name: {files:#?}");
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
    assert_eq!(
        declared_types("pub struct A<T> {\n    pub(super) enum B {}\nstruct C;\npub trait D: E {}\npub fn f() {}"),
        ["A", "B", "D"]
    );
}
