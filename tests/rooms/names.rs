//! A type name means one thing in the workspace, whether the type is public or private.

use std::collections::BTreeMap;

use crate::source::WORKSPACE;

/// Names that Rust programs repeat by convention.
const IDIOMATIC: [(&str, &str); 2] = [
    ("Error", "each module may have its own error, named by its path: `lease::Error`"),
    ("Inner", "private state behind a handle that is cloned"),
];

/// Faults of these declarations, which are pairs of a type name and its file.
fn problems<'a>(declarations: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    let mut files = BTreeMap::<&str, Vec<String>>::new();
    for (name, file) in declarations {
        files.entry(name).or_default().push(file);
    }
    let mut problems = Vec::new();
    for (name, declared_in) in &files {
        let is_idiomatic = IDIOMATIC.iter().any(|(idiom, _)| idiom == name);
        if declared_in.len() > 1 && !is_idiomatic {
            problems
                .push(format!("{name} is declared in {}: give all but one another name", declared_in.join(" and ")));
        }
    }
    problems
}

#[test]
fn a_type_name_means_one_thing() {
    let files = || WORKSPACE.iter().flat_map(|package| &package.files);
    let declarations =
        files().flat_map(|file| file.code.types.iter().map(|name| (name.as_str(), file.path.display().to_string())));
    assert!(declarations.clone().count() > 500, "only {} types were found", declarations.clone().count());
    let problems = problems(declarations);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn double_names_are_seen() {
    let declarations = [("A", "a.rs"), ("B", "a.rs"), ("A", "b.rs"), ("Error", "a.rs"), ("Error", "b.rs")];
    let declarations = declarations.iter().map(|(name, file)| (*name, (*file).to_owned()));
    assert_eq!(problems(declarations), ["A is declared in a.rs and b.rs: give all but one another name"]);
}
