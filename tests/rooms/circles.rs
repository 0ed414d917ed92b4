//! No modules of a package use each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::source::{Package, WORKSPACE, path};

/// Modules whose children use each other in a circle today. The list may only shrink.
const STILL_CIRCULAR: &[(&str, &str)] = &[("ganglion-actions-plan", "crate")];

/// Dependencies between the children of a module, each with a file that shows it.
type Uses = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// Child of this module to which a path leads; None if it leads elsewhere or to an item of the module itself.
fn child(parent: &[String], path: &[String], modules: &BTreeSet<Vec<String>>) -> Option<String> {
    let inner = path.get(..=parent.len())?;
    (inner.starts_with(parent) && modules.iter().any(|module| module.starts_with(inner)))
        .then(|| inner[parent.len()].clone())
}

/// Dependencies among the children of this module.
fn uses_within(package: &Package, parent: &[String]) -> Uses {
    let modules = package.modules();
    let mut uses = Uses::new();
    for file in &package.files {
        let Some(user) = child(parent, &file.module, &modules) else { continue };
        for path in file.code.used(&file.module, &modules) {
            if let Some(used) = child(parent, &path, &modules).filter(|used| *used != user) {
                uses.entry(user.clone()).or_default().entry(used).or_insert_with(|| file.path.clone());
            }
        }
    }
    uses
}

/// Names on a circle, if there is one.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    for start in uses.keys() {
        let mut way = vec![start.clone()];
        if !done.contains(start) && walk(uses, &mut way, &mut done) {
            return Some(way);
        }
    }
    None
}

/// Whether the last name of `way` leads to a circle, which `way` is then.
fn walk(uses: &Uses, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
    let at = way.last().cloned().unwrap_or_default();
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

/// The circle among the children of this module, with the file that shows each step; None if there is none.
fn describe_circle(package: &Package, parent: &[String]) -> Option<String> {
    let uses = uses_within(package, parent);
    let way = circle(&uses)?;
    let mut text = format!("{} {}: {}", package.name, parent.join("::"), way[0]);
    for step in way.windows(2) {
        text += &format!(" -> {} (in {})", step[1], uses[&step[0]][&step[1]].display());
    }
    Some(text)
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.iter() {
        let modules = package.modules();
        let parents: BTreeSet<&[String]> = modules.iter().map(|module| &module[..module.len() - 1]).collect();
        for parent in parents {
            let is_listed = STILL_CIRCULAR.contains(&(package.name.as_str(), parent.join("::").as_str()));
            match describe_circle(package, parent) {
                Some(circle) if !is_listed => wrong.push(circle),
                None if is_listed => {
                    wrong.push(format!("{} {}: delete it from STILL_CIRCULAR", package.name, parent.join("::")));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "modules use each other in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn circles_are_seen() {
    fn uses(pairs: &[(&str, &str)]) -> Uses {
        let mut uses = Uses::new();
        for (user, used) in pairs {
            uses.entry((*user).to_owned()).or_default().insert((*used).to_owned(), PathBuf::new());
        }
        uses
    }
    assert_eq!(circle(&uses(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    assert_eq!(circle(&uses(&[("a", "b"), ("b", "a")])), Some(path("a::b::a")));
    assert_eq!(circle(&uses(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")])), Some(path("b::c::d::b")));
}

#[test]
fn a_circle_is_found_in_sources() {
    let package =
        Package::example(&[("a", "use super::b::B;"), ("b", "fn f() { g!(crate::a::A) }"), ("c", "use crate::b;")]);
    let expected = "example crate: a -> b (in a.rs) -> a (in b.rs)";
    assert_eq!(describe_circle(&package, &path("crate")).as_deref(), Some(expected));
}
